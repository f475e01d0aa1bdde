"""Waits for the zone lock as ``perf lock contention`` sums them up: its table, or ``-x`` CSV.

Times of the table carry a unit, those of the CSV are nanoseconds.  A row is one call chain, and
"caller" is the frame that is left when perf has skipped the lock's own: often the caller of the
function that took the lock.  With ``-l`` rows are locks, told by address.  No percentiles.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input.contention import Wait, _address, bare, side_of

__all__ = ["LockTable"]

_UNIT_US = {"": 1e-3, "ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "m": 6e7, "h": 3.6e9}
_TIMES = ("total wait", "max wait", "min wait", "avg wait")
_NUMBERS = ("contended", *_TIMES)
_WORDS = ("type", "caller", "address", "symbol", "stacktrace")
_HEAD = re.compile(
    r"^\s*(?:(?:contended|(?:total|max|min|avg) wait)\s+)+(?:type|address)\s+\w+\s*$"
)
_CSV_HEAD = re.compile(r"^# output: (?P<columns>.*)$")
_TIME = r"\d+(?:\.\d+)? *(?:ns|us|ms|s|m|h)?"
_STACK = re.compile(r"^\s+0x[0-9a-f]+\s+\S+$")
_BAD = re.compile(
    r"^\s*(bad: \d+, total: \d+|bad rate: .*|=== output for debug ?===|histogram of .*"
    r"|(acquire|acquired|contended|release|task|stack|time|data): \d+)\s*$"
)
_SPINNING = re.compile(r"(rt-)?spinlock$|rtmutex$")


class LockTable:
    """Reader of what ``perf lock contention`` prints."""

    tool = "perf lock contention"

    @staticmethod
    def begins(line: str) -> bool:
        """Whether the line is this tool's header."""
        return bool(_HEAD.match(line) or (_CSV_HEAD.match(line) and "wait" in line))

    def __init__(self, path: Any, zone_locks: Collection[str]) -> None:
        self.path = path
        self.zone_locks = {_address(lock) for lock in zone_locks}
        self.columns: list[str] = []
        self.separator = ""
        self.pattern = re.compile("")
        self.sums: dict[tuple[str, str], list[float]] = {}  # waits, total us, longest us
        self.rows = self.others = 0

    def line(self, line: str, row: int) -> None:
        """Take one line of text."""
        if head := _CSV_HEAD.match(line):
            self._csv_head(head["columns"], row)
        elif self.separator:
            if line.strip() and not line.startswith("#"):
                self._csv_row(line, row)
        elif _HEAD.match(line):
            self._head(line, row)
        elif found := self.pattern.match(line) if self.columns and line.strip() else None:
            self._row(dict(zip(self.columns, found.groups(), strict=True)), row)
        elif line.strip() and not (_BAD.match(line) or (_STACK.match(line) and self.rows)):
            raise self._fault(f"not a line of perf lock contention: {line.strip()[:60]!r}", row)

    def _once(self, columns: list[str], row: int) -> None:
        if self.columns:
            raise self._fault("a second header; one file is one recording", row)
        for column in columns:
            if column not in (*_NUMBERS, *_WORDS):
                raise self._fault(f"column {column[:40]!r} is not one of perf lock contention", row)
        for column in ("contended", "total wait"):
            if column not in columns:
                raise self._fault(f"has no column {column!r}; it is printed by default", row)
        if not {"caller", "address"} & set(columns):
            raise self._fault("has no caller and no address; rows of tasks tell no lock", row)
        self.columns = columns

    def _head(self, line: str, row: int) -> None:
        self._once(re.findall("|".join((*_NUMBERS, *_WORDS)), line), row)
        cells = {"contended": r"(\d+)", "type": r"([\w:-]+)", "address": r"([0-9a-f]+)"}
        cells |= dict.fromkeys(_TIMES, rf"({_TIME})") | {"caller": r"(\S+)", "symbol": r"(.*?)"}
        self.pattern = re.compile(r"^\s*" + r"\s+".join(cells[c] for c in self.columns) + r"\s*$")

    def _csv_head(self, columns: str, row: int) -> None:
        found = re.match(r"[a-z ]+?(?P<separator>[^a-z ]+) ", columns)
        if not found:
            raise self._fault(f"not a header of perf lock contention -x: {columns[:60]!r}", row)
        self._once([c.strip() for c in columns.split(found["separator"])], row)
        self.separator = found["separator"]

    def _csv_row(self, line: str, row: int) -> None:
        cells = [cell.strip() for cell in line.split(self.separator)]
        # One more cell than columns: a symbol or a stack with the separator in it.
        wanted = len(self.columns)
        if "stacktrace" in self.columns:
            cells = cells[:wanted]
        numbers = [c for c, name in zip(cells, self.columns, strict=False) if name in _NUMBERS]
        if len(cells) != wanted or not all(re.fullmatch(r"\d{1,19}", n) for n in numbers):
            raise self._fault(
                f"{line.strip()[:60]!r} is not {wanted} cells as its header has, numbers whole", row
            )
        self._row(dict(zip(self.columns, cells, strict=True)), row)

    def _row(self, cells: dict[str, str], row: int) -> None:
        self.rows += 1
        waits = int(cells["contended"])
        total, longest, mean = (
            _us(cells[name]) if name in cells else None
            for name in ("total wait", "max wait", "avg wait")
        )
        assert total is not None
        # The table rounds to a hundredth of its unit; beyond that the cells must agree.
        slack = 1.02
        if waits < 1:
            raise self._fault("a row without a wait", row)
        if longest is not None and not longest / slack <= total <= waits * longest * slack:
            raise self._fault(
                f"{waits} waits of at most {longest:g} us do not sum up to {total:g} us", row
            )
        if mean is not None and not total / slack <= mean * waits + waits * 2e-3 <= (
            total * slack + waits * 4e-3
        ):
            raise self._fault(f"{waits} waits of {mean:g} us do not sum up to {total:g} us", row)
        name = bare(cells.get("caller") or cells.get("symbol") or "")
        side = side_of(name)
        if "address" in cells:
            told = _address(cells["address"]) in self.zone_locks
            side, name = ("unknown" if told else None), name or f"0x{_address(cells['address'])}"
        if side is None or not _SPINNING.match(cells.get("type", "spinlock")):
            self.others += waits
            return
        sums = self.sums.setdefault((side, name), [0, 0.0, 0.0])
        sums[0] += waits
        sums[1] += total
        sums[2] = max(sums[2], longest or 0.0)

    def _fault(self, message: str, row: int) -> InputError:
        return InputError(message, file=self.path, row=row)

    def end(self, row: int) -> list[Wait]:
        """Take the end of the file; return what was waited for the zone lock."""
        if not self.rows:
            raise self._fault("has a header and no row", row)
        return [
            Wait(side, caller, int(waits), total, total / waits, None, longest or None)
            for (side, caller), (waits, total, longest) in sorted(self.sums.items())
        ]


def _us(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+) *([a-z]*)", text).groups()  # type: ignore[union-attr]
    return float(number) * _UNIT_US[unit]

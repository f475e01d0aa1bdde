"""``funclatency``, of bcc and of libbpf-tools: a power-of-two histogram.

bcc's comes with total and count below it; that of libbpf-tools has neither, names the function in
its first line and ends with one of its own.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input.estimates import NS, Histogram

__all__ = ["Funclatency"]

_HEAD = re.compile(r"^\s*(\S+)\s+: count\s+distribution\s*$")
_ROW = re.compile(r"^\s*(\d+) -> (\d+)\s*: (\d+)\s*\|[* +]*\|\s*$")
_AVG = re.compile(r"^avg = (\d+) (\w+), total: (\d+) (\w+), count: (\d+)\s*$")
_NAME = re.compile(r"^Function = (.*\S)\s*$")
# libbpf-tools: the function stands in the first line, and there is one alone.
_TRACING = re.compile(r"^Tracing (\S+)\. +Hit Ctrl-C to exit\s*$")
_EXITING = re.compile(r"^Exiting trace of ")


class Funclatency:
    """Reader of funclatency output."""

    @staticmethod
    def begins(line: str) -> bool:
        """Whether the line is one of this tool."""
        return any(known.match(line) for known in (_HEAD, _NAME, _TRACING))

    def __init__(self, path: Any) -> None:
        self.path = path
        self.histograms: dict[str, Histogram] = {}
        self.scale = 0.0
        self.unit = ""
        self.name = ""
        self.tool = "bcc funclatency"
        self.current: Histogram | None = None
        self.whole = False  # the tool came to its end

    def line(self, line: str, row: int) -> None:
        """Take one line of text."""
        if named := _NAME.match(line):
            self.name = re.sub(r"^b'([^']*)'", r"\1", named[1])  # bytes, as Python prints them
        elif tracing := _TRACING.match(line):
            self.name, self.tool = tracing[1], "libbpf-tools funclatency"
        elif head := _HEAD.match(line):
            self._begin(head[1], row)
        elif "->" in line and self.current is not None:
            bucket = _ROW.match(line)
            if not bucket:
                raise self._fault(f"not a line of a histogram: {line.strip()[:60]!r}", row)
            low, high, count = int(bucket[1]), int(bucket[2]) + 1, int(bucket[3])
            if low and not self.current.buckets:
                raise self._fault(
                    f"first bucket from {low}; funclatency begins at 0: cut off?", row
                )
            self.current.add(low * self.scale, high * self.scale, count, row)
        elif line.startswith("avg"):
            self._average(line, row)
        elif line.startswith("Detaching") or _EXITING.match(line):
            self.whole = True

    def _begin(self, unit: str, row: int) -> None:
        if unit not in NS:
            raise self._fault(
                f"given a histogram of {unit!r}; allowed: nsecs, usecs, msecs, or nsec, usec, msec",
                row,
            )
        if self.unit not in ("", unit):
            raise self._fault(f"given {unit}, and {self.unit} above; one unit per file", row)
        if self.name in self.histograms:
            raise self._fault("a second histogram; one file is one batch setting", row)
        self.unit, self.scale = unit, NS[unit]
        self.whole = False
        self.current = self.histograms[self.name] = Histogram(self.path, self.tool)

    def _average(self, line: str, row: int) -> None:
        given = _AVG.match(line)
        if not given or self.current is None:
            raise self._fault(f"not an average of funclatency: {line.strip()[:60]!r}", row)
        average, total, count = (int(given[group]) for group in (1, 3, 5))
        for unit in (given[2], given[4]):
            if unit != self.unit:
                raise self._fault(f"given {unit}, and {self.unit} above; one unit per file", row)
        self.whole = True
        held = sum(histogram.samples for histogram in self.histograms.values())
        # The tool reads both while calls go on; they may differ by a few.
        if abs(count - held) > max(held, count) // 1000:
            raise self._fault(f"count {count}; the buckets hold {held}", row)
        if len(self.histograms) == 1:  # it is over all of them
            if count and average != total // count:
                raise self._fault(f"average {average}; total / count is {total // count}", row)
            if count:
                self.current.mean = total * self.scale / count, (total + 1) * self.scale / count

    def _fault(self, message: str, row: int | None = None) -> InputError:
        return InputError(message, file=self.path, row=row)

    def end(self, row: int) -> None:
        """Take the end of the file."""
        if not any(histogram.samples for histogram in self.histograms.values()):
            raise self._fault("has no counts in its histogram", row)
        if not self.whole:
            raise self._fault(
                "ends with a histogram: cut off? funclatency goes on with a line 'avg = ...', "
                "'Detaching...' or 'Exiting trace of ...'; give all that it printed",
                row,
            )

    def found(self) -> dict[str, Histogram]:
        """Return function -> histogram."""
        return self.histograms

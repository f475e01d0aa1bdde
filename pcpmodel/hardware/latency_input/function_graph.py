"""ftrace ``function_graph``: the ``trace`` file, or ``trace-cmd report``.

Every duration of the function that runs with the zone lock held is taken, leaf lines and
closing braces alike.  A closing brace without a name belongs to the opening
line of the same CPU and indentation; one whose opening was not recorded is
left out.  Where the trace has the events of pages as well, they stand as comments
within the call, which so says how many pages it moved.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from array import array
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input.estimates import Durations

__all__ = ["FunctionGraph"]

_DURATION = re.compile(r"(?:^|[\s+!#*@$])(\d+(?:\.\d+)?) (us|ns|ms|s|usecs|nsecs|msecs)\s*$")
_CALL = r"(?P<name>[A-Za-z_][\w.]*)(?: \[\w+\])?\(.*\)"
_COMMENT = r"(?:\s*/\*.*\*/)?\s*$"
_OPEN = re.compile(r"\|(?P<indent> *)" + _CALL + r" \{" + _COMMENT)
_LEAF = re.compile(r"(?P<indent> *)" + _CALL + ";" + _COMMENT)
_CLOSE = re.compile(r"(?P<indent> *)\}(?: /\* (?P<name>[A-Za-z_][\w.]*)\b.*\*/)?\s*$")
_CPU = re.compile(r"(?:^|\s)(\d+)\)|\[(\d{3,})\]")
_LOST = re.compile(r"CPU:(\d+) \[LOST \d+ EVENTS\]")
_SWITCH = re.compile(r"^\s*(\d+)\)\s+.* => ")
_PAGES = re.compile(
    r"\|\s*/\* (?:mm_page_pcpu_drain|mm_page_alloc_zone_locked): .*\border=(\d{1,2}) .*\*/\s*$"
)
_OTHER = re.compile(r"\s*$|\s*#|\s*-{10,}\s*$|.*\|\s*/\*.*\*/\s*$|.*(==========> |<========== )\|")


class FunctionGraph:
    """Reader of function_graph text.

    Attributes
    ----------
    pages : dict of str to array
        By function, beside each of its durations: pages whose events stand within the call.
    """

    @staticmethod
    def begins(line: str) -> bool:
        """Whether the line is one of this tool."""
        timed = "|" in line and any(map(_DURATION.search, line.split("|")))
        return bool(_OPEN.search(line) or timed)

    def __init__(self, path: Any) -> None:
        self.path = path
        self.durations: dict[str, Durations] = {}
        self.pages: dict[str, array] = {}
        self.open: dict[str, list[list[Any]]] = {}  # by CPU: indentation, name, pages

    def line(self, line: str, row: int) -> None:
        """Take one line of text."""
        parts = line.split("|")
        for at, part in enumerate(parts):
            if part.rstrip().endswith("s") and (found := _DURATION.search(part)):
                return self._timed(found, "|".join(parts[: at + 1]), parts[at + 1 :], row)
        return self._untimed(line, row)

    def _timed(self, found: re.Match, head: str, after: list[str], row: int) -> None:
        if found[2] != "us":
            raise self._fault(f"given a duration in {found[2]}; function_graph prints us", row)
        rest = "|".join(after)
        pages = 0
        if leaf := _LEAF.match(rest):
            name: str | None = leaf["name"]
        elif close := _CLOSE.match(rest):
            name, pages = self._close(self._cpu(head), len(close["indent"]), close["name"])
        else:
            raise self._fault(f"no call follows the duration: {rest.strip()[:60]!r}", row)
        if name is not None:
            if name not in self.durations:
                self.durations[name] = Durations()
                self.pages[name] = array("q")
            self.durations[name].us.append(float(found[1]))
            self.pages[name].append(pages)

    def _untimed(self, line: str, row: int) -> None:
        if opened := _OPEN.search(line):
            stack = self.open.setdefault(self._cpu(line), [])
            indent = len(opened["indent"])
            while stack and stack[-1][0] >= indent:
                stack.pop()
            stack.append([indent, opened["name"], 0])
        elif moved := _PAGES.search(line):
            for call in self.open.get(self._cpu(line), [])[-1:]:
                call[2] += 1 << int(moved[1])
        elif gone := _LOST.search(line) or _SWITCH.search(line):
            self.open.pop(gone[1].lstrip("0") or "0", None)
        elif not _OTHER.match(line):
            raise self._fault(f"not a line of function_graph: {line.strip()[:60]!r}", row)

    def _close(self, cpu: str, indent: int, name: str | None) -> tuple[str | None, int]:
        """Name and pages of the call that ends."""
        stack = self.open.get(cpu, [])
        while stack and stack[-1][0] > indent:
            stack.pop()
        if not (stack and stack[-1][0] == indent):
            return name, 0
        _, opened, pages = stack.pop()
        return name or opened, pages

    @staticmethod
    def _cpu(head: str) -> str:
        found = _CPU.search(head)
        return (found[1] or found[2]).lstrip("0") or "0" if found else ""

    def _fault(self, message: str, row: int) -> InputError:
        return InputError(message, file=self.path, row=row)

    def end(self, row: int) -> None:
        """Take the end of the file."""
        if not self.durations:
            raise self._fault("has no durations of calls; is funcgraph-duration on?", row)

    def found(self) -> dict[str, Durations]:
        """Return function -> durations."""
        return self.durations

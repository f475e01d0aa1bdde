"""Waits for the zone lock from ``contention_begin`` and ``contention_end``: ftrace, perf script.

A wait goes from the begin to the end of one lock by one task, in the time stamps of the text.
Which lock it was is told by the stack below the event: the first function above the lock's own
is one that takes a zone lock (`side_of`).  Without stacks only addresses are there, and whoever
knows a zone lock's gives it.  What cannot be told: how long the lock was held, how often it was
taken without waiting, and how many pages were moved.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input.estimates import MIN_SAMPLES, p99_ranks

__all__ = ["Contention", "Wait", "side_of"]


@dataclass(frozen=True)
class Wait:
    """Waits for the zone lock in one function [us].

    Attributes
    ----------
    side : str
        free, alloc or unknown.
    caller : str
        Function, or the address of the lock.
    waits : int
    total_us, avg_us : float
    p99_us, max_us : float or None
        None: not known.
    """

    side: str
    caller: str
    waits: int
    total_us: float
    avg_us: float
    p99_us: float | None
    max_us: float | None


# Functions that take a zone lock, or whose callee that does is inlined (mm/page_alloc.c, v5.14 to
# v7.2).  The lock of the lists is only tried by them, and a try has no contention event.  Those
# that wait for either (drain_pages_zone) are in neither list.
_SIDES = {
    "free": (
        *("free_pcppages_bulk", "free_one_page", "__free_pages_ok", "__free_frozen_pages"),
        *("free_unref_", "free_frozen_page", "decay_pcp_high"),
    ),
    "alloc": ("rmqueue", "__rmqueue", "get_page_from_freelist"),
}
_LOCK = re.compile(
    r"(?:trace_\w*|__traceiter_\w*|__bpf_trace_\w*|perf_trace_\w*|\w*queued_spin_lock\w*"
    r"|_raw_spin_\w*|do_raw_spin_lock|rt_spin_lock\w*|rtlock_slowlock\w*|__lock_text_start)$"
)
_EVENT = re.compile(
    r"^\s*(?P<task>\S.*?)[-\s](?P<pid>\d+)(?:/\d+)?\s+(?:\([\s\d-]+\)\s+)?"
    r"(?:\[(?P<cpu>\d+)\]\s+)?(?:[a-zA-Z.#\d]{4,6}\s+)?(?P<s>\d+)\.(?P<frac>\d{6}|\d{9}):\s+"
    r"(?P<what>.*)$"
)
_CONTENTION = re.compile(
    r"^(?:\d+\s+)?(?:lock:)?contention_(?:(?P<begin>begin):\s+(?P<lock>(?:0x)?[0-9a-f]{6,16}) "
    r"\(flags=(?P<flags>[A-Z0-9x|]*)\)|end:\s+(?P<ended>(?:0x)?[0-9a-f]{6,16}) "
    r"\(ret=(?P<ret>-?\d+)\))\s*$"
)
_OTHER = re.compile(r"^(?:\d+\s+)?[\w-]+(?::[\w-]+)?:(?:\s|$)")
_FRAME = re.compile(
    r"^\s+(?:=> |[0-9a-f]+ )(?P<name>[\w.\[\]]+)(?:\+0x[0-9a-f]+)?(?:\s+<[0-9a-f]+>|\s+\(.*\))?\s*$"
)
_LOST = re.compile(r"^CPU:\d+ \[LOST \d+ EVENTS\]|^.*PERF_RECORD_LOST")
#: Waits under way at once: more have lost their ends.
_MOST_OPEN = 1 << 16


def side_of(function: str) -> str | None:
    """Say whether a function takes a zone lock to free or to allocate; None: neither is known."""
    return next((side for side, known in _SIDES.items() if function.startswith(known)), None)


def bare(symbol: str) -> str:
    """Return a function without offset and without what the compiler appended."""
    return re.sub(r"(\+0x[0-9a-f]+|\.(isra|part|constprop|cold|llvm)[.\w]*)*$", "", symbol)


@dataclass
class _Open:
    """A wait that began."""

    ns: int
    spins: bool
    caller: str | None = None


class Contention:
    """Reader of text with lock contention events, line after line."""

    tool = "lock contention events"

    @staticmethod
    def begins(line: str) -> bool:
        """Whether the line is such an event."""
        found = _EVENT.match(line) if "contention_" in line else None
        return bool(found and "contention_" in found["what"])

    def __init__(self, path: Any, zone_locks: Collection[str]) -> None:
        self.path = path
        self.zone_locks = {_address(lock) for lock in zone_locks}
        self.open: dict[tuple[str, str, str], _Open] = {}  # by task, CPU of idle tasks, lock
        self.us: dict[tuple[str, str], array] = {}
        self.begun = self.twice = 0  # waits that began; those while the same task waited for it
        self.others = 0  # waits for other locks, or for one that cannot be told
        self.stackless = 0  # of them without a stack
        self.newest: dict[tuple[str, str], _Open | None] = {}  # event whose stack may follow
        self.stack_of: _Open | None = None
        self.step_ns = 1000

    def line(self, line: str, row: int) -> None:
        """Take one line of text."""
        if not line.strip() or line.startswith("#"):
            self.stack_of = None
        elif frame := _FRAME.match(line):
            if self.stack_of is not None and self.stack_of.caller is None:
                name = bare(frame["name"])
                if not _LOCK.match(name):
                    self.stack_of.caller = name
        elif _LOST.match(line):
            # Ends may be among what was lost: a wait must not last until the next one's end.
            self.open.clear()
            self.newest.clear()
        elif event := _EVENT.match(line):
            self._event(event, line, row)
        else:
            raise self._no_event(line, row)

    def _event(self, event: re.Match, line: str, row: int) -> None:
        who = event["pid"], (event["cpu"] or "") if event["pid"] == "0" else ""
        if event["what"].startswith("<stack trace>"):
            self.stack_of = self.newest.pop(who, None)
            return
        self.stack_of = None
        found = _CONTENTION.match(event["what"])
        if found is None:
            if "contention_" in event["what"] or not _OTHER.match(event["what"]):
                raise self._no_event(line, row)
            self.newest.pop(who, None)
            return
        ns = int(event["s"]) * 10**9 + int(event["frac"].ljust(9, "0"))
        self.step_ns = 1 if len(event["frac"]) == 9 else self.step_ns
        key = (*who, _address(found["lock"] or found["ended"]))
        if found["begin"]:
            if len(self.open) >= _MOST_OPEN:
                raise self._fault(f"{_MOST_OPEN} waits began and none ended", row)
            self.begun += 1
            self.twice += key in self.open
            flags = re.split(r"\|", found["flags"])
            self.open[key] = _Open(ns, "SPIN" in flags or "RT" in flags)
            # Below in perf script; in ftrace below a line of its own, maybe after other CPUs'.
            self.stack_of = self.newest[who] = self.open[key]
            return
        self.newest.pop(who, None)
        begun = self.open.pop(key, None)
        if begun is None:  # it began before the recording did
            return
        if ns < begun.ns:
            raise self._fault("a wait ends before it began; the lines are not in time order", row)
        if begun.spins and found["ret"] == "0":
            self._take(begun, key[2], (ns - begun.ns) / 1e3)

    def _take(self, wait: _Open, lock: str, us: float) -> None:
        side = side_of(wait.caller) if wait.caller else None
        caller = wait.caller or ""
        if side is None and lock in self.zone_locks:
            side, caller = "unknown", caller or f"0x{lock}"
        if side is None:
            self.others += 1
            self.stackless += wait.caller is None
            return
        self.us.setdefault((side, caller), array("d")).append(us)

    def _no_event(self, line: str, row: int) -> InputError:
        return self._fault(f"not a line of ftrace or perf script: {line.strip()[:60]!r}", row)

    def _fault(self, message: str, row: int) -> InputError:
        return InputError(message, file=self.path, row=row)

    def end(self, row: int) -> list[Wait]:
        """Take the end of the file; return what was waited for the zone lock."""
        if self.twice * 20 > self.begun:  # one or the other may have lost its end
            raise self._fault(
                f"{self.twice} of {self.begun} waits began while the same task waited for the same "
                "lock: threads under one number? Print theirs (perf script -F comm,tid,...)",
                row,
            )
        if not self.us and self.stackless:
            raise self._fault(
                f"{self.others} waits, {self.stackless} of them without a stack: which lock it was "
                "cannot be told; record stacks (pcpmodel measure --script), or give --zone-lock "
                "ADDRESS",
                row,
            )
        found = []
        for (side, caller), us in sorted(self.us.items()):
            values, n, p99 = sorted(us), len(us), None
            if n >= MIN_SAMPLES:
                p99 = values[p99_ranks(n)[0] - 1]
            total = math.fsum(values)
            if total * 1e3 < n * self.step_ns:
                raise self._fault(
                    f"{n} waits in {caller} are shorter than the clock's step of "
                    f"{self.step_ns} ns in the mean; print nanoseconds (perf script --ns)",
                    row,
                )
            found.append(Wait(side, caller, n, total, total / n, p99, values[-1]))
        return found


def _address(text: str) -> str:
    return text.lower().removeprefix("0x").lstrip("0")

"""The markers of a trace: at which rows each dump of the lists began and ended.

Everything that is read from between two markers trusts them, so all are read and checked
here, in one place: a marker that stands twice, alone or out of its order is refused with its
line.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.kernel.sizing import percpu_pagelist_high_fraction
from pcpmodel.trace.recording import Recording

__all__ = ["Interval", "Markers", "read_markers", "stops"]

#: What stands around a dump of the lists, around all that is read at one moment, and around work.
_KINDS = {
    "state": re.compile(r"state-(?P<tag>.+)-(?P<edge>begin|end)"),
    "snapshot": re.compile(r"snapshot-(?P<tag>.+?)(?P<edge>-end)?"),
    "phase": re.compile(r"phase (?P<tag>.+) (?P<edge>begin|end)"),
    "drain": re.compile(r"drain-(?P<tag>.+)-(?P<edge>begin|end)"),
}


#: What a recording says when it has written the sysctl.
_FRACTION = re.compile(r"sysctl vm/percpu_pagelist_high_fraction=(\d{1,10}) r=0")


@dataclass(frozen=True)
class Interval:
    """Rows of the two markers around one dump or snapshot."""

    begin: int
    end: int | None  #: None: the trace was cut off before


@dataclass(frozen=True)
class Markers:
    """All markers of a trace.

    Attributes
    ----------
    texts : dict
        Row -> text, without the name of the program that wrote it; ascending.
    fractions : dict
        Row -> vm.percpu_pagelist_high_fraction, where it was written just before.
    state, snapshot : dict
        Tag -> `Interval`, in the order of the trace: dumps of the lists, and what was read of
        ``/proc`` (around the dump of the same tag, if there is one).
    """

    texts: dict[int, str]
    fractions: dict[int, int]
    state: dict[str, Interval]
    snapshot: dict[str, Interval]


def read_markers(cap: Recording) -> Markers:
    """Read a recording's markers.

    Raises
    ------
    InputError
        Naming file and line, for a marker that a recording cannot have: one that stands a second
        time, an end without its beginning, a beginning without its end (but at the end of a trace
        that was cut off), two dumps at once, a first dump that is not the first or a last one
        that is not the last, a dump outside its snapshot.
    """
    if cap.markers is None:
        cap.markers = _read_markers(cap)
    return cap.markers


def _read_markers(cap: Recording) -> Markers:
    events, reader = cap.trace
    rows = events.rows
    texts = {
        int(k): reader.markers[int(rows["a"][k])].removeprefix("pcpmodel: ")
        for k in np.flatnonzero(events.is_event("tracing_mark_write"))
    }

    def refuse(k: int, why: str) -> InputError:
        return InputError(f"marker {texts[k]!r} {why}", file=cap.file("trace.txt"), row=line(k))

    def line(k: int) -> int:
        return int(rows["line"][k])

    lost = f": {cap.lost} events were lost (`pcpmodel record --buffer-kb`)" if cap.lost else ""
    found: dict[str, dict[str, Interval]] = {}
    for kind, pattern in _KINDS.items():
        begins: dict[str, int] = {}
        ends: dict[str, int] = {}
        open_: str | None = None
        for k, text in texts.items():
            match = pattern.fullmatch(text)
            if match is None:
                continue
            tag, end = match["tag"], (match["edge"] or "begin").endswith("end")
            seen = ends if end else begins
            if tag in seen:
                raise refuse(k, f"stands a second time, first in line {line(seen[tag])}")
            if end and open_ != tag:
                raise refuse(k, f"has no beginning before it{lost}")
            if not end and open_ is not None:
                raise refuse(k, f"comes while {kind} {open_!r} of line {line(begins[open_])} "
                                f"has no end{lost}")  # fmt: skip
            if not end and tag == "before" and begins:
                raise refuse(k, f"is not the first: {kind} {next(iter(begins))!r} is in line "
                                f"{line(next(iter(begins.values())))}")  # fmt: skip
            if not end and "after" in begins:
                raise refuse(k, f"comes after the last {kind}, in line {line(begins['after'])}")
            seen[tag] = k
            open_ = None if end else tag
        found[kind] = {tag: Interval(k, ends.get(tag)) for tag, k in begins.items()}
    for tag, inner in found["state"].items():
        outer = found["snapshot"].get(tag)
        if outer is None:
            continue
        if inner.begin < outer.begin:
            raise refuse(inner.begin, f"comes before its snapshot, in line {line(outer.begin)}")
        last = inner.begin if inner.end is None else inner.end
        if outer.end is not None and outer.end < last:
            raise refuse(last, f"comes after its snapshot ended, in line {line(outer.end)}")
    told = {k: _FRACTION.fullmatch(text) for k, text in texts.items()}
    fractions = {}
    for k, match in told.items():
        if match:
            try:
                fractions[k] = percpu_pagelist_high_fraction(int(match[1]))
            except InputError as error:
                raise refuse(k, f"cannot be: {error.message}") from None
    return Markers(texts, fractions, found["state"], found["snapshot"])


def stops(cap: Recording, markers: Markers) -> dict[int, tuple]:
    """Rows at which the replay has a look: ("begin", tag) of dumps, ("size", zone, fraction).

    The latter where zone_set_pageset_high_and_batch() gave a zone's lists another size.
    """
    events = cap.trace[0]
    rows = events.rows
    found: dict[int, tuple] = {}
    for tag, at in markers.state.items():
        found[at.begin] = "begin", tag
    # zone_set_pageset_high_and_batch() goes through the populated zones in order.
    outer = events.is_event("hit:zone_set_pageset_high_and_batch")
    if outer.any():
        inner = events.is_event("hit:__zone_set_pageset_high_and_batch")
        # What was written next was so when its marker came; any other setting leaves the fraction.
        now, fraction = 0 if markers.fractions else cap.high_fraction, {}
        for k, text in markers.texts.items():
            if text.startswith("sysctl "):
                fraction[k] = now = markers.fractions.get(k, now)
        nth, last, cpus = -1, -2, rows["cpu"]
        after = sorted(fraction)
        for k in np.flatnonzero(outer | inner).tolist():
            if outer[k]:
                # A burst ends where another event of that CPU comes between.
                nth = 0 if last < 0 or _shows(cpus, int(cpus[k]), last + 1, k) else nth + 1
            else:
                at = bisect_left(after, k)
                found[k] = "size", nth, fraction[after[at]] if at < len(after) else now
            last = k
    return dict(sorted(found.items()))


def _shows(cpus: np.ndarray, cpu: int, begin: int, end: int) -> bool:
    """Whether a CPU has any of these rows; the first one is mostly near."""
    return any(bool((cpus[at : min(at + 256, end)] == cpu).any()) for at in range(begin, end, 256))

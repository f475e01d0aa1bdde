"""Holds of the zone lock by number of pages, from the kmem events within them.

``rmqueue_bulk()`` emits ``mm_page_alloc_zone_locked`` for every page that it takes and
``free_pcppages_bulk()`` ``mm_page_pcpu_drain`` for every page that it gives back, with the zone
lock held and interrupts off (mm/page_alloc.c, v6.1 and later).  Between two such holds of a CPU
there is an allocation or a free, which is an event too: a run of one kind is one hold.  From its
first to its last event it takes as long as its pages but one, and the tracing of these.

What tracing costs is measured in the same load: a second and a third instance trace the same
events as well.  The time of a page then rises by the cost of an event with every instance, and
the line through these times says what a page takes with none.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcpmodel.errors import InputError
from pcpmodel.trace.raw_buffer import read_pages
from pcpmodel.trace.tracefs import instance, text_of, tries, write

__all__ = ["COPIES", "SIDES", "HoldTracer", "Traced", "hold_tracer", "other_tracers", "runs"]

#: Side of a hold -> the event of its pages.
SIDES = {"alloc": "kmem/mm_page_alloc_zone_locked", "free": "kmem/mm_page_pcpu_drain"}
#: What stands between two holds.  Pages that are freed together are all checked before the first of
#: them goes to the lists (free_unref_folios()): then only the last of these is between two drains.
BETWEEN = ("kmem/mm_page_alloc", "kmem/mm_page_free", "kmem/mm_page_free_batched")
#: Instances that trace at once, at most.
COPIES = 3


@dataclass(frozen=True)
class Traced:
    """What one piece of work did.

    Attributes
    ----------
    pages, span_ns : dict of str to (N,) ndarray
        By side: pages of each hold, 2 or more, of order 0; from its first to its last page [ns].
    events : dict of str to int
        By event: how many.
    lost : bool
        Whether the buffers were too small; the holds are those of the end of the work then.
    """

    pages: dict[str, NDArray[np.int64]]
    span_ns: dict[str, NDArray[np.int64]]
    events: dict[str, int]
    lost: bool


def runs(
    time_ns: NDArray[np.int64],
    kind: NDArray[np.int8],
    order: NDArray[np.uint32],
    loss: NDArray[np.bool_],
) -> tuple[NDArray[np.int8], NDArray[np.int64], NDArray[np.int64]]:
    """Cut one CPU's events into holds.

    Parameters
    ----------
    time_ns, order, loss : (N,) ndarray
        As `pcpmodel.trace.raw_buffer.read_pages` has them.
    kind : (N,) ndarray
        1, 2: a page of one kind of hold; 0: another event.

    Returns
    -------
    tuple of (M,) ndarray
        Kind, pages and span [ns] of every hold that is whole, has 2 pages or more, and none of
        another order than 0.  The first and the last event may be within a hold: neither is.
    """
    if len(kind) == 0:
        return kind, time_ns, time_ns
    cut = np.flatnonzero((kind[1:] != kind[:-1]) | (kind[1:] == 0) | loss[1:]) + 1
    first = np.concatenate(([0], cut))
    last = np.concatenate((cut, [len(kind)])) - 1
    high = np.maximum.reduceat(order, first) > 0
    # What events were lost before or after may have been of the same hold.
    torn = loss[first].copy()
    torn[:-1] |= loss[first[1:]]
    torn[[0, -1]] = True
    keep = (kind[first] > 0) & (last > first) & ~high & ~torn
    first, last = first[keep], last[keep]
    return kind[first], last - first + 1, time_ns[last] - time_ns[first]


class HoldTracer:
    """Traces holds; made by `hold_tracer`."""

    def __init__(self, tracefs: Path, instances: list[Path]) -> None:
        self._instances = instances
        events = tracefs / "events"
        self._ids = {e: int(text_of(events / e / "id")) for e in (*SIDES.values(), *BETWEEN)}
        offsets = set()
        for event in SIDES.values():
            found = re.search(
                r" order;\s*offset:(\d+);\s*size:4;", text_of(events / event / "format")
            )
            if found is None:
                raise InputError("has no order of 4 bytes", file=events / event / "format")
            offsets.add(int(found[1]))
        head = text_of(events / "header_page")
        if (
            len(offsets) != 1
            or sys.byteorder != "little"
            or not re.search(r"commit;.*size:8", head)
        ):
            raise InputError("ring buffers of another form than is known here", file=events)
        (self._order_at,) = offsets
        size = instances[0] / "buffer_subbuf_size_kb"
        self._page_bytes = int(text_of(size)) << 10 if size.exists() else os.sysconf("SC_PAGESIZE")

    def trace(self, work: Callable[[], object], copies: int = 1) -> Traced:
        """Trace while ``work`` runs, in ``copies`` instances at once, 1..`COPIES`."""
        here = self._instances[0]
        used = self._instances[:copies]
        _truncate(here / "trace")
        try:
            for number, each in enumerate(used):
                for event in (*SIDES.values(), *(() if number else BETWEEN)):
                    write(each / "events" / event / "enable", "1")
                write(each / "tracing_on", "1")
            work()
        finally:
            for each in used:
                tries(each / "tracing_on", "0")
                tries(each / "events" / "enable", "0")
        found: dict[str, list[tuple[NDArray[np.int64], NDArray[np.int64]]]]
        found = {side: [] for side in SIDES}
        events = dict.fromkeys(self._ids, 0)
        lost = False
        for cpu in sorted(here.glob("per_cpu/cpu*/trace_pipe_raw")):
            time_ns, ids, order, loss = read_pages(
                _drained(cpu, self._page_bytes), self._page_bytes, self._order_at
            )
            kind = np.zeros(len(ids), np.int8)
            for number, event in enumerate(SIDES.values(), 1):
                kind[ids == self._ids[event]] = number
            for event, id_ in self._ids.items():
                events[event] += int((ids == id_).sum())
            lost |= bool(loss.any())
            kinds, pages, span_ns = runs(time_ns, kind, np.where(kind > 0, order, 0), loss)
            for number, side in enumerate(SIDES, 1):
                found[side].append((pages[kinds == number], span_ns[kinds == number]))
        pages, spans = (
            {side: np.concatenate([one[k] for one in found[side]]) for side in SIDES}
            for k in (0, 1)
        )
        return Traced(pages, spans, events, lost)


def other_tracers(tracefs: Path) -> list[str]:
    """Name the others who trace pages of holds now: each makes every page dearer."""
    own = f"_{os.getpid()}_"
    places = [tracefs, *(p for p in sorted((tracefs / "instances").glob("*")) if own not in p.name)]
    return [
        "tracefs itself" if place == tracefs else place.name
        for place in places
        if any(_reads(place / "events" / event / "enable") == "1" for event in SIDES.values())
        and _reads(place / "tracing_on") == "1"
    ]


def _reads(path: Path) -> str:
    """A control file's value; empty if it is gone."""
    try:
        return text_of(path).strip()
    except OSError:
        return ""


def _truncate(path: Path) -> None:
    """Empty a ring buffer."""
    with open(path, "w", encoding="ascii"):
        pass


def _drained(path: Path, page_bytes: int) -> bytes:
    """All pages of a CPU's buffer."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    found = []
    try:
        while page := os.read(handle, page_bytes):
            found.append(page.ljust(page_bytes, b"\0"))
    except BlockingIOError:
        pass  # empty
    finally:
        os.close(handle)
    return b"".join(found)


@contextmanager
def hold_tracer(
    tracefs: str | os.PathLike[str] = "/sys/kernel/tracing", buffer_kb: int = 16384
) -> Iterator[HoldTracer]:
    """Make the tracing instances of a `HoldTracer`; they are gone afterwards, whatever happens.

    Parameters
    ----------
    tracefs : path-like
        Where it is mounted.
    buffer_kb : int
        Ring buffer of each CPU [KiB].

    Raises
    ------
    InputError
        If tracing is not permitted or not there, or there is no memory for the buffers.
    """
    where = Path(tracefs)
    with ExitStack() as stack:
        instances = []
        for number in range(COPIES):
            each = stack.enter_context(instance(where, (*SIDES.values(), *BETWEEN), number))
            write(each / "tracing_on", "0")
            tries(each / "trace_clock", "local")
            size = 64 if number else buffer_kb
            if not tries(each / "buffer_size_kb", str(size)):
                raise InputError(
                    f"no memory for ring buffers of {size} KiB on every CPU", file=each
                )
            instances.append(each)
        yield HoldTracer(where, instances)

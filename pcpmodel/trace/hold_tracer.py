"""Holds of the zone lock by number of pages, from the kmem events within them.

``rmqueue_bulk()`` emits ``mm_page_alloc_zone_locked`` for every page that it takes and
``free_pcppages_bulk()`` ``mm_page_pcpu_drain`` for every page that it gives back, with the zone
lock held and interrupts off (mm/page_alloc.c, v6.1 and later).  Between two such holds of a CPU
there is an allocation or a free, which is an event too: a run of one kind is one hold.  From its
first to its last event it takes as long as its pages but one, and the tracing of these.

What tracing costs is measured in the same load: a second and a third instance trace the same
events as well.  The time of a page then rises by the cost of an event with every instance, and
the line through these times says what a page takes with none.

Who waits for a spinlock in its queue emits ``contention_begin`` and ``contention_end`` (v5.19 and
later), which name a lock by its address.  The zone lock's is the one whose waits end in a hold: the
next event of the CPU is a page of one.  Where the kernel has ``contended_release`` too, whoever
waited and is waited for shows his whole hold, from the end of his wait to his release.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcpmodel.errors import InputError
from pcpmodel.trace.raw_buffer import read_pages
from pcpmodel.trace.tracefs import instance, reads, text_of, tries, write

__all__ = [
    "COPIES", "RELEASE", "SIDES", "HoldTracer", "Traced", "hold_tracer", "other_tracers", "runs",
]  # fmt: skip

#: Side of a hold -> the event of its pages.
SIDES = {"alloc": "kmem/mm_page_alloc_zone_locked", "free": "kmem/mm_page_pcpu_drain"}
#: Orders that there are.
ORDERS = 11
#: What stands between two holds.  Pages that are freed together are all checked before the first of
#: them goes to the lists (free_unref_folios()): then only the last of these is between two drains.
BETWEEN = ("kmem/mm_page_alloc", "kmem/mm_page_free", "kmem/mm_page_free_batched")
#: Waits for a lock, where the kernel has them.
WAITS = ("lock/contention_begin", "lock/contention_end")
#: A lock is let go that somebody waits for, where the kernel has it.
RELEASE = "lock/contended_release"
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
        Whether the buffers were too small; all is of the end of the work then.
    holds, moved : dict of str to int
        By side: holds of any order and number of pages, and pages that they moved.
    allocated, freed : (ORDERS,) ndarray
        Blocks by order.
    wait_ns : (K,) ndarray or None
        Waits for the zone lock [ns]; None where the kernel has no such events.
    contended_pages, contended_ns : dict of str to (M,) ndarray
        By side: pages, or blocks, of the holds that began with the end of a wait and ended with a
        release that somebody waited for, and how long they were [ns].
    """

    pages: dict[str, NDArray[np.int64]]
    span_ns: dict[str, NDArray[np.int64]]
    events: dict[str, int]
    lost: bool
    holds: dict[str, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    allocated: NDArray[np.int64] = field(default_factory=lambda: np.zeros(ORDERS, np.int64))
    freed: NDArray[np.int64] = field(default_factory=lambda: np.zeros(ORDERS, np.int64))
    wait_ns: NDArray[np.int64] | None = None
    contended_pages: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    contended_ns: dict[str, NDArray[np.int64]] = field(default_factory=dict)


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


def _holds_of(
    kind: NDArray[np.int8], order: NDArray[np.uint32], loss: NDArray[np.bool_], number: int
) -> tuple[int, int]:
    """Holds of one kind in one CPU's events, those cut off too, and the pages that they moved."""
    if len(kind) == 0:
        return 0, 0
    here = kind == number
    begins = here & np.concatenate(([True], (kind[1:] != kind[:-1]) | loss[1:]))
    return int(begins.sum()), int((1 << order[here].astype(np.int64)).sum())


def _blocks(order: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.bincount(np.minimum(order, ORDERS - 1), minlength=ORDERS).astype(np.int64)


class HoldTracer:
    """Traces holds; made by `hold_tracer`.

    Attributes
    ----------
    sees_waits, sees_releases : bool
        Whether the kernel has events of waits for locks, and of their contended releases.
    """

    def __init__(self, tracefs: Path, instances: list[Path]) -> None:
        self._instances = instances
        events = tracefs / "events"
        pages = (*SIDES.values(), *BETWEEN)
        self.sees_waits = all((events / event).is_dir() for event in WAITS)
        form = reads(events / RELEASE / "format")
        self.sees_releases = self.sees_waits and " lock_addr;" in form
        self._locks = (*WAITS, RELEASE)[: 2 * self.sees_waits + self.sees_releases]
        known = (*pages, *self._locks)
        self._ids = {e: int(text_of(events / e / "id")) for e in known}
        ordered = (*SIDES.values(), *BETWEEN[:2])
        offsets = {_offset(events / event / "format", "order", 4) for event in ordered}
        head = text_of(events / "header_page")
        if (
            len(offsets) != 1
            or sys.byteorder != "little"
            or not re.search(r"commit;.*size:8", head)
        ):
            raise InputError("ring buffers of another form than is known here", file=events)
        (self._order_at,) = offsets
        if self.sees_waits:
            # Of an address its lower half, which tells locks apart well enough.
            places = {_offset(events / event / "format", "lock_addr", 8) for event in self._locks}
            (self._lock_at,) = places
        self._zone_locks: set[int] = set()
        size = instances[0] / "buffer_subbuf_size_kb"
        self._page_bytes = int(text_of(size)) << 10 if size.exists() else os.sysconf("SC_PAGESIZE")

    def trace(
        self,
        work: Callable[[], object],
        copies: int = 1,
        *,
        pids: Sequence[int] = (),
        only_waits: bool = False,
    ) -> Traced:
        """Trace while ``work`` runs.

        Parameters
        ----------
        work : callable
        copies : int
            In how many instances at once, 1..`COPIES`.
        pids : sequence of int
            Only what these processes do, and those that they make; default: all.
        only_waits : bool
            Leave out the events of pages, so that nothing is slowed down but who waits.  Which
            lock is the zone lock must have been seen before.
        """
        here = self._instances[0]
        used = self._instances[:copies]
        _truncate(here / "trace")
        first = () if only_waits else (*SIDES.values(), *BETWEEN)
        first += self._locks if pids or only_waits else ()
        try:
            for each in used if pids else ():  # a page costs more where processes are told apart
                write(each / "options/event-fork", "1")
                for pid in pids:
                    write(each / "set_event_pid", f"{pid}\n")
            for number, each in enumerate(used):
                for event in SIDES.values() if number else first:
                    write(each / "events" / event / "enable", "1")
                write(each / "tracing_on", "1")
            work()
        finally:
            for each in used:
                tries(each / "tracing_on", "0")
                tries(each / "events" / "enable", "0")
                _truncate(each / "set_event_pid")
        return self._evaluate(here, bool(pids) or only_waits)

    def _evaluate(self, here: Path, waits: bool) -> Traced:
        found: dict[str, list[tuple[NDArray[np.int64], NDArray[np.int64]]]]
        found = {side: [] for side in SIDES}
        events = dict.fromkeys(self._ids, 0)
        holds, moved = dict.fromkeys(SIDES, 0), dict.fromkeys(SIDES, 0)
        allocated, freed = np.zeros(ORDERS, np.int64), np.zeros(ORDERS, np.int64)
        locks = []
        lost = False
        for cpu in sorted(here.glob("per_cpu/cpu*/trace_pipe_raw")):
            raw = _drained(cpu, self._page_bytes)
            time_ns, ids, order, loss = read_pages(raw, self._page_bytes, self._order_at)
            kind = np.zeros(len(ids), np.int8)
            for number, (side, event) in enumerate(SIDES.items(), 1):
                kind[ids == self._ids[event]] = number
                one = _holds_of(kind, order, loss, number)
                holds[side], moved[side] = holds[side] + one[0], moved[side] + one[1]
            for event, id_ in self._ids.items():
                events[event] += int((ids == id_).sum())
            lost |= bool(loss.any())
            allocated += _blocks(order[ids == self._ids[BETWEEN[0]]])
            freed += _blocks(order[ids == self._ids[BETWEEN[1]]])
            kinds, pages, span_ns = runs(time_ns, kind, np.where(kind > 0, order, 0), loss)
            for number, side in enumerate(SIDES, 1):
                found[side].append((pages[kinds == number], span_ns[kinds == number]))
            if waits and self.sees_waits:
                address = read_pages(raw, self._page_bytes, self._lock_at)[2]
                locks.append((time_ns, ids, address, kind, loss))
        spans = {
            side: tuple(np.concatenate([one[k] for one in found[side]]) for k in (0, 1))
            for side in SIDES
        }
        return Traced(
            {side: pages for side, (pages, _) in spans.items()},
            {side: span for side, (_, span) in spans.items()},
            events,
            lost,
            holds,
            moved,
            allocated,
            freed,
            self._waits(locks) if waits and self.sees_waits else None,
            *(self._contended(locks) if waits and self.sees_releases else ({}, {})),
        )

    def _waits(self, cpus: Sequence[tuple[NDArray, ...]]) -> NDArray[np.int64]:
        """Waits for the zone lock [ns]; learns its address where pages were traced as well."""
        begin, end = (self._ids[event] for event in WAITS)
        ends, followed = [], []
        for _, ids, address, kind, _ in cpus:
            at = np.flatnonzero(ids[:-1] == end)
            ends.append(address[at])
            followed.append(address[at[kind[at + 1] > 0]])
        for lock, times in zip(
            *np.unique(np.concatenate(followed), return_counts=True), strict=True
        ):
            if times > 0.5 * (np.concatenate(ends) == lock).sum():
                self._zone_locks.add(int(lock))
        waits = []
        for time_ns, ids, address, _, loss in cpus:
            here = np.isin(ids, (begin, end)) & np.isin(address, list(self._zone_locks))
            # A loss between the two is that of an event before the second.
            lost = np.cumsum(loss)[here]
            when, what = time_ns[here], ids[here]
            pair = (what[:-1] == begin) & (what[1:] == end) & (lost[:-1] == lost[1:])
            waits.append((when[1:] - when[:-1])[pair])
        return np.concatenate(waits)

    def _contended(
        self, cpus: Sequence[tuple[NDArray, ...]]
    ) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]]]:
        """Pages and time [ns] of holds of the zone lock that show their both ends, by side."""
        end, release = self._ids[WAITS[1]], self._ids[RELEASE]
        found: dict[str, list[tuple[NDArray, NDArray]]] = {side: [] for side in SIDES}
        for time_ns, ids, address, kind, loss in cpus:
            at = np.flatnonzero(
                np.isin(ids, (end, release)) & np.isin(address, list(self._zone_locks))
            )
            first, last = at[:-1], at[1:]
            whole = (ids[first] == end) & (ids[last] == release) & (address[first] == address[last])
            whole &= np.cumsum(loss)[first] == np.cumsum(loss)[last]
            moved = [np.cumsum(kind == number) for number in (1, 2)]
            pages = np.array([sums[last] - sums[first] for sums in moved])
            for number, side in enumerate(SIDES):
                # Who frees a single block past the lists holds the lock too, and emits no page.
                own = whole & (pages[number] > 0) & (pages[1 - number] == 0)
                span = time_ns[last] - time_ns[first]
                found[side].append((pages[number][own], span[own]))
        both = {
            side: [np.concatenate([one[k] for one in some]) for k in (0, 1)]
            for side, some in found.items()
        }
        return {s: two[0] for s, two in both.items()}, {s: two[1] for s, two in both.items()}


def _offset(path: Path, name: str, size: int) -> int:
    """Where in an event a field stands."""
    found = re.search(rf" {name};\s*offset:(\d+);\s*size:{size};", text_of(path))
    if found is None:
        raise InputError(f"has no {name} of {size} bytes", file=path)
    return int(found[1])


def other_tracers(tracefs: Path) -> list[str]:
    """Name the others who trace pages of holds now: each makes every page dearer."""
    own = f"_{os.getpid()}_"
    places = [tracefs, *(p for p in sorted((tracefs / "instances").glob("*")) if own not in p.name)]
    return [
        "tracefs itself" if place == tracefs else place.name
        for place in places
        if any(reads(place / "events" / event / "enable") == "1" for event in SIDES.values())
        and reads(place / "tracing_on") == "1"
    ]


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

"""What a machine's caches, lines and pages take, measured from user space in seconds.

`Probes` has one step for each operation of the cost sheet.  A sample is a round of about a
millisecond on pinned threads; a round in which the kernel gave the CPU to somebody else does not
count.  Every figure is the median of its rounds, with the interval that two order statistics put
around a median (95 %, no distribution assumed).  Steps are made in passes, minutes apart if more
is measured between them: where the intervals of two passes do not meet, something else changed,
and the interval stated takes in both.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import mmap
import os
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations, cycle
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from pcpmodel.errors import InputError
from pcpmodel.hardware.probes import bounce, chase, clear, count, link, touch, write_lines
from pcpmodel.proc.host import HostFiles

__all__ = ["Cost", "Missing", "Probes", "median_interval"]

LINE = 64  # bytes
#: Rounds of a step in one pass, and how often a disturbed one is tried again.
ROUNDS, TRIES = 15, 12
#: Loads, hand-overs and seconds of a round.
LOADS, EXCHANGES, ROUND_S = 20_000, 2_000, 0.003
#: Pairs of CPUs of one distance that are tried.
PAIRS = 4
_MIB = 1 << 20


class Cost(NamedTuple):
    """A row of ``costs.csv``: see ``datasets/schemas/costs.json``."""

    operation: str
    distance: str
    value: float
    unit: str
    low: float
    high: float
    origin: str
    source: str


class Missing(NamedTuple):
    """What was not measured, and why."""

    name: str
    why: str


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median, and the order statistics that enclose it with 95 % probability or more.

    With fewer than 6 samples no two do; then it is the least and the largest.
    """
    values = np.sort(np.asarray(samples, dtype=float))
    below = bdtr(np.arange(len(values) + 1), len(values), 0.5)  # of the median, at most so many
    rank = max(int(np.searchsorted(below, 0.025)), 1)
    return float(np.median(values)), float(values[rank - 1]), float(values[-rank])


class _Step(NamedTuple):
    operation: str
    distance: str
    unit: str
    how: str
    sample: Callable[[], float | None]  # None: disturbed


class Probes:
    """The steps that a machine allows.

    Parameters
    ----------
    host : HostFiles
        This machine.
    cpus : sequence of int
        CPUs that the steps may use; all of them online.
    memory_bytes : int
        Most memory that a step may take at once, at least 64 MiB.
    seed : int
        Of the order in which lines and pages are visited.

    Attributes
    ----------
    steps : list
        ``(operation, distance)`` in the order in which `run` makes them.
    missing : list of Missing
    """

    def __init__(
        self, host: HostFiles, cpus: Sequence[int], memory_bytes: int, seed: int = 1
    ) -> None:
        if not set(cpus) <= set(host.online) or not cpus:
            raise InputError(f"cpus={list(cpus)!r}: one or more of the CPUs online")
        if memory_bytes < 64 * _MIB:
            raise InputError(f"memory_bytes={memory_bytes}: at least {64 * _MIB}")
        self._host, self._cpus, self._memory = host, list(cpus), memory_bytes
        self._rng = np.random.default_rng(seed)
        self._samples: dict[tuple[str, str], list[list[float]]] = {}
        self.missing: list[Missing] = []
        self._steps = [
            *self._latencies(),
            *self._dirty_lines(),
            *self._hand_overs(),
            *self._clearing(),
            *self._sharing(),
            self._fault(),
        ]
        self.steps = [(step.operation, step.distance) for step in self._steps]

    # ----------------------------------------------------------------- measure

    def run(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Make one pass over all steps; ``progress`` is told what comes next."""
        before = os.sched_getaffinity(0)
        try:
            for step in self._steps:
                progress(f"{step.operation} {step.distance}".rstrip())
                got = self._samples.setdefault((step.operation, step.distance), [])
                rounds: list[float] = []
                for _ in range(ROUNDS * TRIES):
                    value = step.sample()
                    if value is not None:
                        rounds.append(value)
                    if len(rounds) == ROUNDS:
                        break
                got.append(rounds)
        finally:
            os.sched_setaffinity(0, before)

    def costs(self) -> tuple[list[Cost], list[str]]:
        """Rows of the cost sheet, and the operations whose passes do not agree."""
        rows, unsteady = [], []
        for step in self._steps:
            passes = [p for p in self._samples.get((step.operation, step.distance), []) if p]
            samples = [value for one in passes for value in one]
            name = f"{step.operation} {step.distance}".rstrip()
            if len(samples) < ROUNDS:
                found = f"{len(samples)} of {ROUNDS} rounds were left alone by other work"
                self.missing.append(Missing(name, found))
                continue
            middle, low, high = median_interval(samples)
            ends = [median_interval(one)[1:] for one in passes]
            if max(e[0] for e in ends) > min(e[1] for e in ends):
                unsteady.append(name)
                low, high = min(e[0] for e in ends), max(e[1] for e in ends)
            how = f"{step.how}; median of {len(samples)} rounds in {len(passes)} passes"
            how += ", which do not agree" if name in unsteady else ""
            rows.append(
                Cost(step.operation, step.distance, middle, step.unit, low, high, "measured", how)
            )
        return rows, unsteady

    # ------------------------------------------------------------------- steps

    def _latencies(self) -> list[_Step]:
        cpu = self._cpus[0]
        data = [c for c in self._host.caches(cpu) if c.type in ("Data", "Unified") if c.size_bytes]
        if len(data) < 2:
            self.missing.append(Missing("line_l2", "the kernel does not say how large caches are"))
            sizes = {}
        else:
            sizes = {"line_l2": data[1].size_bytes // 2}
        last = data[-1].size_bytes if data else 32 * _MIB
        if len(data) > 2 and last >= 8 * data[1].size_bytes:
            sizes["line_llc"] = 4 * data[1].size_bytes
        elif len(data) > 2:
            sizes["line_llc"] = last // 2
        else:
            self.missing.append(Missing("line_llc", "no cache is shared by cores"))
        steps = [self._latency(operation, "", size, cpu, cpu) for operation, size in sizes.items()]
        if "line_llc" in sizes:
            steps.append(self._latency("line_ahead", "", sizes["line_llc"], cpu, cpu, ahead=True))
        if 4 * last > self._memory:
            why = f"needs {4 * last // _MIB} MiB, four times the last-level cache"
            self.missing.append(Missing("line_memory", why))
            return steps
        steps.append(self._latency("line_memory", "", 4 * last, cpu, cpu))
        far = [c for c in self._cpus if self._host.distance(cpu, c) == "node"]
        if far:
            steps.append(self._latency("line_memory", "node", 4 * last, far[0], cpu))
        else:
            self.missing.append(Missing("line_memory node", "one node"))
        return steps

    def _latency(
        self, operation: str, distance: str, size: int, home: int, cpu: int, ahead: bool = False
    ) -> _Step:
        """Loads by ``cpu`` of memory that ``home`` touched first; ``ahead``: in its order."""
        ring: list[NDArray[np.uint64]] = []
        at = 0

        def sample() -> float | None:
            nonlocal at
            if not ring:
                os.sched_setaffinity(0, {home})
                memory = _memory(size).view(np.uint64)
                order = self._rng.permutation(size // LINE)
                link(memory, np.sort(order) if ahead else order)
                ring.append(memory)
                os.sched_setaffinity(0, {cpu})
                at = chase(memory, 0, size // LINE)[1]
            os.sched_setaffinity(0, {cpu})

            def follow() -> float:
                nonlocal at
                ns, at = chase(ring[0], at, LOADS)
                return ns

            return _quiet(follow)

        order = "in order of addresses" if ahead else "at random"
        how = f"dependent loads {order} in {size // 1024} KiB of {_huge()}"
        return _Step(operation, distance, "ns", how, sample)

    def _pairs(self) -> dict[str, list[tuple[int, int]]]:
        """Pairs of CPUs by distance, a few of each, those of one node first."""
        found: dict[str, list[tuple[int, int]]] = {}
        for a, b in combinations(self._cpus, 2):
            pairs = found.setdefault(self._host.distance(a, b), [])
            if len(pairs) < PAIRS:
                pairs.append((a, b))
        return found

    def _dirty_lines(self) -> list[_Step]:
        size = 256 << 10
        steps = []
        for distance, pairs in self._pairs().items():
            memory = _memory(size).view(np.uint64)
            link(memory, self._rng.permutation(size // LINE))
            turn = cycle(pairs)

            def sample(
                memory: NDArray[np.uint64] = memory, turn: Iterator[tuple[int, int]] = turn
            ) -> float | None:
                owner, reader = next(turn)
                os.sched_setaffinity(0, {owner})
                write_lines(memory)
                os.sched_setaffinity(0, {reader})
                return _quiet(lambda: chase(memory, 0, size // LINE)[0])

            how = f"dependent loads at random of {size // 1024} KiB that the other CPU has written"
            steps.append(_Step("line_dirty", distance, "ns", how, sample))
        return steps

    def _hand_overs(self) -> list[_Step]:
        steps = []
        pairs = self._pairs()
        for distance, some in pairs.items():
            turn = cycle(some)

            def sample(turn: Iterator[tuple[int, int]] = turn) -> float | None:
                line = _memory(4096).view(np.uint64)
                work = [
                    lambda side=side: bounce(line, side, EXCHANGES, 1.0) or 0.0 for side in (0, 1)
                ]
                got = _together(next(turn), work)
                return got[0] if got and got[0] else None

            how = f"a line handed back and forth {EXCHANGES} times by two threads, one way"
            steps.append(_Step("handover", distance, "ns", how, sample))
        for distance in ("core", "llc", "socket", "node"):
            if distance not in pairs:
                why = f"no two of the CPUs are that near or far ({len(self._cpus)} CPUs)"
                self.missing.append(Missing(f"line_dirty, handover {distance}", why))
        return steps

    def _clearing(self) -> list[_Step]:
        page = mmap.PAGESIZE
        data = self._host.caches(self._cpus[0])
        size = min(4 * (data[-1].size_bytes if data else 32 * _MIB), self._memory)
        steps = []
        for operation, cpus in (("clear_page", self._cpus[:1]), ("clear_page_all", self._cpus)):
            if operation == "clear_page_all" and len(self._cpus) == 1:
                self.missing.append(Missing(operation, "one CPU"))
                continue
            part = max(size // len(cpus) // page * page, page)
            areas: list[NDArray[np.uint8]] = []

            def sample(
                cpus: Sequence[int] = cpus, part: int = part, areas: list[NDArray] = areas
            ) -> float | None:
                if not areas:
                    areas += [_memory(part) for _ in cpus]
                    for area in areas:
                        area[::page] = 1
                work = [lambda area=area: clear(area, page, ROUND_S) for area in areas]
                got = _together(cpus, work)
                return None if got is None else float(np.mean(got))

            who = "one CPU" if operation == "clear_page" else f"each of {len(cpus)} CPUs at once"
            how = f"memset of a page of {_huge()}, {who}, {part * len(cpus) // _MIB} MiB in turn"
            steps.append(_Step(operation, "", "ns", how, sample))
        return steps

    def _sharing(self) -> list[_Step]:
        pair = self._pairs().get("core")
        if pair is None:
            self.missing.append(Missing("smt_share", "no two of the CPUs are of one core"))
            return []

        def sample() -> float | None:
            alone = _together(pair[0][:1], [lambda: count(ROUND_S)])
            both = _together(pair[0], [lambda: count(ROUND_S)] * 2)
            return None if alone is None or both is None else float(np.mean(both)) / alone[0]

        how = "speed of a thread's arithmetic beside the same on the core's other thread"
        return [_Step("smt_share", "core", "1", how, sample)]

    def _fault(self) -> _Step:
        page, pages = mmap.PAGESIZE, 4096
        order = np.arange(pages)

        def sample() -> float | None:
            os.sched_setaffinity(0, {self._cpus[0]})
            area = mmap.mmap(-1, pages * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            area.madvise(mmap.MADV_NOHUGEPAGE)
            memory = np.frombuffer(area, dtype=np.uint8)
            return _quiet(lambda: touch(memory, order, page, False))

        how = (
            f"read faults of {pages} fresh pages in order: they map the zero page and allocate none"
        )
        return _Step("fault_entry", "", "ns", how, sample)


def _huge() -> str:
    return "memory in huge pages, where there are"


def _memory(size: int) -> NDArray[np.uint8]:
    """Fresh memory, in huge pages where the kernel has them: the kernel's own is mapped so."""
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(area, dtype=np.uint8)


def _quiet(work: Callable[[], float]) -> float | None:
    """Do the work; None if the kernel gave the CPU to somebody else meanwhile."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    value = work()
    after = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    return value if before == after else None


def _together(cpus: Sequence[int], work: Sequence[Callable[[], float]]) -> list[float] | None:
    """Do each piece of work on a CPU of its own, all at once; None: disturbed.

    The first is the caller's: a thread that only waits for the others is woken beside one of them.
    """
    start = threading.Barrier(len(work))
    got: list[float | None] = [None] * len(work)

    def one(number: int, cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        with suppress(threading.BrokenBarrierError):
            start.wait()
            got[number] = _quiet(work[number])

    threads = [
        threading.Thread(target=one, args=(number, cpu))
        for number, cpu in enumerate(cpus[1 : len(work)], 1)
    ]
    for thread in threads:
        thread.start()
    try:
        one(0, cpus[0])
    except BaseException:
        start.abort()  # nobody waits for one who was interrupted
        raise
    for thread in threads:
        thread.join()
    values = [value for value in got if value is not None]
    return values if len(values) == len(work) else None

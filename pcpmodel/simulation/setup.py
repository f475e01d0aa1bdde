"""A run's settings as the engines take them: named arrays, made from a `RunSpec`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri

from pcpmodel.errors import InputError
from pcpmodel.hardware.cache import PageCache
from pcpmodel.hardware.lines import LINE_PLACES, PageLines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.zone import Zone
from pcpmodel.simulation.host import ZoneSize
from pcpmodel.simulation.spec import RunSpec, timeline
from pcpmodel.simulation.state import (
    CHANGE,
    CHANGES,
    CHANNEL,
    COSTS_MAX,
    DISTANCE_NAMES,
    FREE_HIGH_BATCH,
    LISTS_ROOM,
    SIZES,
    TASK,
    ZONE,
)
from pcpmodel.workload.ops import LIMITS, OPS
from pcpmodel.workload.program import Op, Program
from pcpmodel.workload.tasks import Task

__all__ = ["LATE", "Lines", "Setup", "line_ns", "setup"]

_PS = 10**12
_TABLE: int = LIMITS["table"]
_TIME, _CODE, _N, _ORDER, _TARGET = (
    Op._fields.index(f) for f in ("ps", "code", "n", "order", "target")
)
_BLOCK_PAGES = 1024  # of the largest block, at which zones begin
_KEPT_PAGES = 1 << 21  # of a zone, at most, that is kept as others hold pages of it


@dataclass(frozen=True, eq=False)
class Setup:
    """What a simulation begins with.

    Attributes
    ----------
    release : str or Release
    zones : (zones,) ndarray of `ZONE`
    sizes : (zones,) ndarray of `SIZES`
    tasks : (tasks,) ndarray of `TASK`
        One per CPU.
    task_channels : (tasks, channels of a task) ndarray of int32
        Channel in each slot of a task.
    zonelists : (tasks, zones) ndarray of int32
        Zones that a task takes pages from, in order, its own first; -1: no more.
    programs : list of (n, 9) ndarray of int64
        Rows of `pcpmodel.workload.program.Op`.
    channels : (channels,) ndarray of `CHANNEL`
    tables : (tables, 1024) ndarray of int32
        Equally likely values for the operations ``draw`` and ``pick``.
    speed : (1024,) ndarray of uint32
        Equally likely factors of work, 16 binary digits after the point.
    spread : (3, 1024) ndarray of uint32
        The same of the holds: refill, drain, LRU.
    direct_ps : int
        Mean hold for a block past the lists [ps].
    costs : (3, COSTS_MAX + 1) ndarray of int64
        Mean hold [ps] by blocks moved: refill, drain, LRU.
    blocks : (2, LISTS_ROOM) ndarray of int64
        By count: lines that a hold waits for, per block of a list: refill, drain [ps].
    lines : (2, places) ndarray of int64
        With page identity: what a hold, refill or drain, waits for a line, by where it is
        (`LINE_PLACES`) [ps].
    first : (2, distances) ndarray of int64
        Zone locks, LRU locks: lines of the lock's own that a hold begins with, by how far the CPU
        is from the last holder (`DISTANCE_NAMES`) [ps].
    handovers : (2, distances) ndarray of int64
        The same: handing the lock to a waiting CPU [ps].
    seats : (tasks,) ndarray of int32
        Where the CPU of a task is: node << 21 | last-level cache << 11 | core << 1 | thread.
    siblings : (tasks,) ndarray of int32
        Task on the other hardware thread of the core; -1: none.
    beside : int
        A time beside a thread that works, as a factor with 16 binary digits.
    end_ps, warm_ps : int
        End of the run, and of the warm-up [ps].
    tick_ps : int
        vm.stat_interval; 0: no vmstat worker [ps].
    sample_ps, samples : int
        Interval of the time series [ps], from the end of the warm-up on, and their length.
    seed : int
    nohz_idle : bool
    lru_batches : (int, int)
        Pages of a hold of the LRU lock: to its lists, off them, 1..32.
    pages : Memory, optional
        With page identity: the zones, untouched, one pageset per CPU.
    policy : optional
        A policy of the user's own (`pcpmodel.cython_pcp`).
    changes : (changes,) ndarray of `CHANGE`
        Changes of the machine, in order.
    changed_sizes : (changes, zones) ndarray of `SIZES`
        Sizes after each.
    trylock : bool
        PCP trylocks fail now and then.
    fails : (1024,) ndarray of int32
        With ``trylock``: equally likely numbers of operations until the next failure; else empty.
    caches : PageCache, optional
        With page identity: caches of as many CPUs, empty.
    page_lines : PageLines, optional
        With page identity: the lines of the struct pages of these zones.
    page_cache : sequence of (int, int, int64 ndarray or int)
        Task of a kswapd, zone, and the pages of that zone that it may reclaim: their numbers with
        page identity, oldest first, else how many.
    test_and_set : bool
        Locks are test-and-set, not queued; see `pcpmodel.hardware.lock`.

    Notes
    -----
    The types of the rows stand in `pcpmodel.simulation.state`, which checks every array.
    """

    release: str | Release
    zones: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    tasks: npt.NDArray[Any]
    task_channels: npt.NDArray[np.int32]
    zonelists: npt.NDArray[np.int32]
    programs: Sequence[npt.NDArray[np.int64]]
    channels: npt.NDArray[Any]
    tables: npt.NDArray[np.int32]
    speed: npt.NDArray[np.uint32]
    spread: npt.NDArray[np.uint32]
    direct_ps: int
    costs: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    handovers: npt.NDArray[np.int64]
    seats: npt.NDArray[np.int32]
    siblings: npt.NDArray[np.int32]
    beside: int
    end_ps: int
    warm_ps: int
    tick_ps: int
    sample_ps: int
    samples: int
    seed: int
    nohz_idle: bool
    lru_batches: tuple[int, int]
    changes: npt.NDArray[Any]
    changed_sizes: npt.NDArray[Any]
    trylock: bool
    fails: npt.NDArray[np.int32]
    pages: Any = None
    policy: object = None
    caches: PageCache | None = None
    page_lines: PageLines | None = None
    page_cache: Sequence[tuple[int, int, int | npt.NDArray[np.int64]]] = ()
    test_and_set: bool = False


def _rows(kind: np.dtype[Any], rows: Sequence[Any]) -> npt.NDArray[Any]:
    return np.array(rows, dtype=kind).reshape(-1)


def _size_row(spec: RunSpec, size: ZoneSize) -> tuple[int, int, int, int]:
    flags = FREE_HIGH_BATCH if spec.host.free_high_batch(size.batch, spec.release) else 0
    return size.batch, size.high_min, size.high_max, flags


@cache
def _paces(jitter: float) -> npt.NDArray[np.uint32]:
    """Equally likely factors of work: a gamma law of mean 1; 1 where 16 digits show no other."""
    if jitter < 1e-6:
        return np.full(_TABLE, 65536, dtype=np.uint32)
    return _unit_mean(gammaincinv(1 / jitter**2, (np.arange(_TABLE) + 0.5) / _TABLE))


def _unit_mean(quantiles: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """Equally likely factors with mean 1, 16 binary digits after the point."""
    return np.maximum(np.rint(quantiles / quantiles.mean() * 65536), 1).astype(np.uint32)


def _lognormal(p99_over_mean: float) -> npt.NDArray[np.uint32]:
    """Law of a hold with this ratio of 99th percentile to mean, at least 1."""
    z = ndtri(0.99)
    peak = math.exp(z * z / 2)  # larger ratios are impossible
    ratio = min(max(p99_over_mean, 1.0), 0.99 * peak)
    # of z s - s^2 / 2 = log(ratio) the smaller root, without cancellation
    sigma = 2 * math.log(ratio) / (z + math.sqrt(z * z - 2 * math.log(ratio)))
    return _unit_mean(np.exp(sigma * ndtri((np.arange(_TABLE) + 0.5) / _TABLE)))


@cache
def _between_failures(chance: float) -> npt.NDArray[np.int32]:
    """Equally likely numbers of operations between two failures: a geometric law."""
    if not chance:
        return np.zeros(0, dtype=np.int32)
    quantiles = np.log1p(-(np.arange(_TABLE) + 0.5) / _TABLE) / math.log1p(-chance)
    return np.minimum(quantiles, 2**30).astype(np.int32)


_FITTED: dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.uint32]]] = {}


def _fitted(machine: Machine) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint32]]:
    """Mean hold [ns] by blocks moved and its law: refill, drain; kept by data digest."""
    if machine.digest not in _FITTED:
        blocks = np.arange(1, COSTS_MAX + 1)
        measured = np.asarray(machine.measured["batch"])
        means = np.zeros((2, COSTS_MAX + 1))
        laws = []
        for side, cost in enumerate((machine.hold_time.refill, machine.hold_time.drain)):
            means[side, 1:] = cost(blocks).mean_ns
            at = cost(measured)
            laws.append(_lognormal(float(np.median(at.p99_ns / at.mean_ns))))
        _FITTED[machine.digest] = means, np.stack(laws)
    return _FITTED[machine.digest]


def _holds(spec: RunSpec) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Mean hold [ps] by blocks moved, and the law around it: refill, drain, LRU."""
    means, laws = _fitted(spec.machine)
    sheet = spec.machine.sheet
    # What was traced is longer by the tracer's event, and a refill of the latency tables' process
    # waited for the first line of the run of pages that it took, which is counted apart (`Lines`);
    # of a short hold, which no table has, both are at most a half.
    apart = np.full((2, 1), sheet.value("tracer"))
    if not spec.warm:
        apart[0] += line_ns(spec)["memory"]
    apart = np.minimum(apart, means / 2)
    folios = sheet.value("lru_page") * np.arange(COSTS_MAX + 1) + sheet.value("lru_hold")
    costs = np.vstack([means - apart, folios])
    if spec.hold == "mean":
        spreads = np.full((3, _TABLE), 65536, dtype=np.uint32)
    elif spec.hold == "exponential":
        spreads = np.tile(_unit_mean(-np.log1p(-(np.arange(_TABLE) + 0.5) / _TABLE)), (3, 1))
    else:
        spreads = laws[[0, 1, 1]]
    return np.maximum(np.rint(costs * 1000), 1).astype(np.int64), spreads


def _drawn(program: Program) -> list[np.ndarray]:
    """The tables that a program draws from; they are a public attribute, and go to C."""
    tables = program.tables
    if not isinstance(tables, list) or not all(
        isinstance(t, np.ndarray) and t.shape == (_TABLE,) and t.dtype.kind in "iu" for t in tables
    ):
        raise InputError(f"Program.tables: not a list of arrays of {_TABLE} whole numbers")
    return tables


def _programs(
    spec: RunSpec,
    tasks: Sequence[Task],
    homes: list[int],
    cpus: list[int],
    cold_page_ns: float,
) -> dict[str, Any]:
    """Operations, tables and channels; and of each task, which of them and on what zones."""
    programs: dict[int, int] = {}
    names = spec.workload.phases  # looked for in all programs
    code: list[npt.NDArray[np.int64]] = []
    tables: list[npt.NDArray[Any]] = []
    for task in tasks:
        if id(task.program) not in programs:
            programs[id(task.program)] = len(code)
            ops = task.program.compiled()
            draws = np.isin(ops[:, _CODE], (OPS["draw"], OPS["pick"], OPS["rest"]))
            ops[draws, _TARGET] += len(tables)
            marks = ops[:, _CODE] == OPS["phase"]
            number = np.array([names.index(name) for name in task.program.phases])
            ops[marks, _N] = number[ops[marks, _N]]
            takes = ops[:, _CODE] == OPS["alloc"]
            ops[takes, _TIME] += round(cold_page_ns * 1000) << ops[takes, _ORDER]
            code.append(ops)
            tables.extend(_drawn(task.program))
    rng = np.random.default_rng(spec.seed)
    tick = round(spec.stat_interval_s * _PS)
    # Processes do not start together, and each CPU has its own tick.
    latest = max(round(spec.workload.start_s * _PS), 1)
    starts = rng.integers(0, latest, len(tasks)) if spec.jitter else np.zeros(len(tasks))
    rows = np.zeros(len(tasks), dtype=TASK)
    rows["home"] = homes
    rows["peer"] = [
        home if task.peer is None else homes[task.peer]
        for task, home in zip(tasks, homes, strict=True)
    ]
    rows["program"] = [programs[id(task.program)] for task in tasks]
    rows["start_ps"] = starts
    rows["tick_ps"] = rng.integers(1, max(tick, 2), len(tasks))
    rows["node"] = [spec.host.node_of(cpu) for cpu in cpus]
    rows["memcg"] = [task.memcg for task in tasks]
    rows["peer_memcg"] = [
        task.memcg if task.peer is None else tasks[task.peer].memcg for task in tasks
    ]
    slots = LIMITS["channels"]
    return {
        "tasks": rows,
        "task_channels": np.array(
            [(*task.channels, *(0,) * slots)[:slots] for task in tasks], dtype=np.int32
        ),
        "programs": code,
        "tables": np.array(tables, dtype=np.int32).reshape(-1, _TABLE),
        "channels": _rows(
            CHANNEL,
            [
                (c.room, round(c.latency_ns * 1000), c.producer, c.consumer)
                for c in spec.workload.channels
            ],
        ),
        "tick_ps": tick,
    }


def _changes(spec: RunSpec, cpus: list[int]) -> dict[str, npt.NDArray[Any]]:
    """Changes of the machine, and the sizes of the lists after each."""
    tasks = {cpu: task for task, cpu in enumerate(cpus)}
    changes, sizes = [], []
    for change, after in timeline(spec):
        name, cpu = next(iter(change.given.items()))
        kind = CHANGES.get(name, CHANGES["resize"])
        changes.append((round(change.at_s * _PS), kind, tasks.get(cpu, -1)))
        rows = [_size_row(spec, size) for size in after]
        if name not in ("offline", "online"):  # PCP flags follow the caches of the CPUs online
            rows = [(*row[:3], -1) for row in rows]
        sizes.append(rows)
    zones = spec.host.zones
    return {
        "changes": _rows(CHANGE, changes),
        "changed_sizes": np.array(sizes, dtype=SIZES).reshape(-1, zones),
    }


def _mixed(seed: int, zone: int, pages: int) -> npt.NDArray[np.uint32]:
    """Pages of a zone in no order."""
    numbers = np.arange(pages, dtype=np.uint32)
    np.random.default_rng([seed, zone]).shuffle(numbers)
    return numbers


def _give_back(pages: Memory, zone: int, numbers: npt.NDArray[Any]) -> None:
    """Pages of a zone become free one after the other."""
    pages.free_many(numbers.astype(np.int64) + pages.zones[zone].start_pfn)
    pages.drain_pages_zone(0, zone)


@lru_cache(maxsize=4)
def _aged(seed: int, zone: int, pages: int, others: int) -> Memory:
    """A zone of which others hold pages; kept for pilots, which begin with the same few.

    Pages are drained in the order in which they are freed: all rules leave the zone alike.
    """
    held = Memory("v6.6", [Zone(pages)], free=False)
    _give_back(held, 0, _mixed(seed, zone, pages)[others:])
    return held


def _pages(spec: RunSpec, cpus: int) -> tuple[Memory, list[npt.NDArray[np.int64]]]:
    """Zones in which others and the page cache hold their share; the cache's pages of each."""
    zones, start, cached = [], 0, []
    for size in spec.sizes:
        zones.append(Zone(size.managed, start, node=size.node))
        start += -(-size.managed // _BLOCK_PAGES) * _BLOCK_PAGES
    pages = Memory(spec.release, zones, cpus, free=not (spec.aged or spec.page_cache))
    if spec.aged or spec.page_cache:
        for z, (zone, size) in enumerate(zip(zones, spec.sizes, strict=True)):
            others = spec.held_by_others(size)
            if zone.pages <= _KEPT_PAGES and not spec.page_cache:
                pages.copy_zone(z, _aged(spec.seed, z, zone.pages, others))
                continue
            mixed = _mixed(spec.seed, z, zone.pages) if spec.aged else np.arange(zone.pages)
            of_cache, left = np.split(mixed[others:], [spec.cached(size)])
            cached.append(of_cache.astype(np.int64))
            _give_back(pages, z, left)
    return pages, cached


def _seats(spec: RunSpec, cpus: list[int]) -> dict[str, Any]:
    """Where the CPUs of the tasks are, who shares a core, and what that makes of a time."""
    host = spec.host
    cores = [(host.node_of(cpu), host.core(cpu)) for cpu in cpus]
    on_core: dict[tuple[int, int], list[int]] = {}
    for task, core in enumerate(cores):
        on_core.setdefault(core, []).append(task)
    siblings = np.full(len(cpus), -1, dtype=np.int32)
    thread = [on_core[core].index(task) for task, core in enumerate(cores)]
    for pair in on_core.values():
        if len(pair) > 1:
            siblings[pair] = pair[::-1]
    share = spec.machine.sheet.value("smt_share", "core")
    if not 0 < share < 1:
        siblings[:] = -1
    return {
        "seats": np.array(
            [node << 21 | core << 1 | t for (node, core), t in zip(cores, thread, strict=True)],
            dtype=np.int32,
        ),
        "siblings": siblings,
        "beside": round(65536 / share) if 0 < share < 1 else 65536,
    }


#: Places from which a line of a struct page does not come in time.
LATE = ("beside", "llc", "dirty", "memory")


def line_ns(spec: RunSpec) -> dict[str, float]:
    """What a hold waits for a line of a struct page, by where it is [ns]."""
    sheet = spec.machine.sheet
    late = {
        "beside": sheet.value("line_beside"),
        "llc": sheet.value("line_llc"),
        "dirty": sheet.value("line_dirty", "llc"),
        "memory": sheet.value("line_memory"),
    }
    return {place: late.get(place, 0.0) for place in LINE_PLACES}


@dataclass(frozen=True)
class Lines:
    """What blocks take in a hold beside what is warm, by count; what a page from memory takes.

    Attributes
    ----------
    block_ns : (2, LISTS_ROOM) ndarray of float
        Refill, drain: by list [ns].
    page_ns : float
        Of the program's time, for a page whose data have left the caches [ns].
    """

    block_ns: npt.NDArray[np.float64]
    page_ns: float


def _lock_lines(spec: RunSpec) -> dict[str, npt.NDArray[np.int64]]:
    """Lines that a hold begins with and the hand-over, of zone and LRU locks, by distance [ps]."""
    sheet = spec.machine.sheet
    far = DISTANCE_NAMES[1:]
    lines = np.array([[sheet.value("zone_lines")], [sheet.value("lru_lines")]])
    line_ns = np.array([0.0, *(sheet.value("line_dirty", distance) for distance in far)])
    over = [0.0, *(sheet.value("handover", distance) for distance in far)]
    return {
        "first": np.rint(1000 * lines * line_ns).astype(np.int64),
        "handovers": np.rint(1000 * np.array([over, over])).astype(np.int64),
    }


def _page_lines(spec: RunSpec, cpus: int) -> PageLines:
    managed = [-(-size.managed // _BLOCK_PAGES) * _BLOCK_PAGES for size in spec.sizes]
    return PageLines(cpus, managed, float(spec.host.l2_kib), float(spec.host.llc_slice_kib))


def setup(spec: RunSpec, lines: Lines | None = None) -> Setup:
    """What the simulation of a run begins with.

    Parameters
    ----------
    spec : RunSpec
    lines : Lines, optional
        As a pilot found them (`pcpmodel.simulation.pilot.lines_of`); None: holds wait for no line
        that is not counted page by page.
    """
    host, tasks, sizes = spec.host, spec.tasks, spec.sizes
    cpus = spec.cpus
    zonelists = np.full((len(cpus), host.zones), -1, dtype=np.int32)
    for row, zones in zip(zonelists, spec.zonelists, strict=True):
        row[: len(zones)] = zones
    homes = zonelists[:, 0].tolist()
    # Who hands pages to another, or takes them from it, names their zone: that is where it stays.
    hands_over = [bool(task.channels) for task in tasks]
    zonelists[hands_over, 1:] = -1
    costs, spread = _holds(spec)
    pages, page_cache = (_pages(spec, len(cpus)) if spec.identity else None), []
    if spec.page_cache:
        first = len(spec.workload.tasks)
        kswapd = {node: first + i for i, node in enumerate(host.memory_nodes)}
        page_cache = [
            (kswapd[size.node], z, pages[1][z] if pages else spec.cached(size))
            for z, size in enumerate(sizes)
        ]
    by_page = spec.identity and not spec.warm
    page_line_ns = np.array([line_ns(spec)[place] for place in LINE_PLACES]) * by_page
    blocks = np.zeros((2, LISTS_ROOM)) if lines is None or spec.identity else lines.block_ns
    warm = round((spec.warmup_s or 0.0) * _PS)
    end = warm + round(spec.seconds * _PS)
    caches = None
    if spec.caches:
        slices = range(len(cpus))
        caches = PageCache(len(cpus), int(host.l2_kib) // 4, int(host.llc_slice_kib) // 4, slices)
    return Setup(
        release=spec.release,
        zones=_rows(
            ZONE,
            [
                (
                    size.managed - spec.held_by_others(size) - spec.cached(size),
                    *size.watermarks,
                    size.node,
                )
                for size in sizes
            ],
        ),
        sizes=_rows(SIZES, [_size_row(spec, size) for size in sizes]),
        zonelists=zonelists,
        **_programs(spec, tasks, homes, cpus, 0.0 if lines is None else lines.page_ns),
        speed=_paces(spec.jitter),
        spread=spread,
        direct_ps=max(round(1000 * spec.machine.sheet.value("hold_block")), 1),
        costs=costs,
        blocks=np.rint(1000 * blocks).astype(np.int64),
        lines=np.rint(1000 * np.tile(page_line_ns, (2, 1))).astype(np.int64),
        **_lock_lines(spec),
        **_seats(spec, cpus),
        end_ps=end,
        warm_ps=warm,
        sample_ps=(end - warm) // spec.samples if spec.samples else 0,
        samples=spec.samples,
        seed=spec.seed,
        nohz_idle=spec.nohz_idle,
        lru_batches=spec.lru_batches,
        **_changes(spec, cpus),
        trylock=spec.trylock_failure > 0,
        fails=_between_failures(spec.trylock_failure),
        pages=pages and pages[0],
        policy=spec.rule,
        caches=caches,
        page_lines=_page_lines(spec, len(cpus)) if by_page else None,
        page_cache=page_cache,
        test_and_set=spec.spinlock == "test-and-set",
    )

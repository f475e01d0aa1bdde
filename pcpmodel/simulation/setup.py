"""A run's settings as the engines take them: named arrays, made from a `RunSpec`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri

from pcpmodel.errors import InputError
from pcpmodel.hardware.cache import PageCache
from pcpmodel.hardware.lines import PageLines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.zone import Zone
from pcpmodel.simulation.host import ZoneSize
from pcpmodel.simulation.spec import RunSpec, place, timeline
from pcpmodel.simulation.state import (
    CHANGE,
    CHANGES,
    CHANNEL,
    COSTS_MAX,
    FREE_HIGH_BATCH,
    SIZES,
    TASK,
    ZONE,
    State,
)
from pcpmodel.workload.ops import LIMITS, OPS
from pcpmodel.workload.program import Op, Program
from pcpmodel.workload.tasks import Task

__all__ = ["Setup", "prepare", "setup"]

_PS = 10**12
_TABLE: int = LIMITS["table"]
_TIME, _CODE, _N, _ORDER, _TARGET = (
    Op._fields.index(f) for f in ("ps", "code", "n", "order", "target")
)
_BLOCK_PAGES = 1024  # of the largest block, at which zones begin


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
    costs : (3, COSTS_MAX + 1) ndarray of int64
        Mean hold [ps] by blocks moved: refill, drain, LRU.
    handoffs : (2, 2) ndarray of int64
        Zone locks, LRU locks: hand-over, and more per CPU queued before [ps].
    end_ps, warm_ps : int
        End of the run, and of the warm-up [ps].
    tick_ps : int
        vm.stat_interval; 0: no vmstat worker [ps].
    sample_ps, samples : int
        Interval of the time series [ps], from the end of the warm-up on, and their length.
    seed : int
    nohz_idle : bool
    pagevec : int
        Pages between two holds of the LRU lock, 1..31.
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
    lines : PageLines, optional
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
    costs: npt.NDArray[np.int64]
    handoffs: npt.NDArray[np.int64]
    end_ps: int
    warm_ps: int
    tick_ps: int
    sample_ps: int
    samples: int
    seed: int
    nohz_idle: bool
    pagevec: int
    changes: npt.NDArray[Any]
    changed_sizes: npt.NDArray[Any]
    trylock: bool
    fails: npt.NDArray[np.int32]
    pages: Any = None
    policy: object = None
    caches: PageCache | None = None
    lines: PageLines | None = None
    page_cache: Sequence[tuple[int, int, int | npt.NDArray[np.int64]]] = ()
    test_and_set: bool = False


def _rows(kind: np.dtype[Any], rows: Sequence[Any]) -> npt.NDArray[Any]:
    return np.array(rows, dtype=kind).reshape(-1)


def _size_row(spec: RunSpec, size: ZoneSize) -> tuple[int, int, int, int]:
    flags = FREE_HIGH_BATCH if spec.host.free_high_batch(size.batch, spec.release) else 0
    return size.batch, size.high_min, size.high_max, flags


@cache
def _paces(jitter: float) -> npt.NDArray[np.uint32]:
    """Equally likely factors of work: a gamma law of mean 1."""
    if not jitter:
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
    means = (means + spec.cost("cold_block_ns") * np.arange(COSTS_MAX + 1)) * spec.hold_scale
    costs = np.vstack([means, np.full((1, COSTS_MAX + 1), spec.cost("lru_hold_ns"))])
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
    spec: RunSpec, tasks: Sequence[Task], homes: list[int], cpus: list[int]
) -> dict[str, Any]:
    """Operations, tables and channels; and of each task, which of them and on what zones."""
    programs: dict[int, int] = {}
    code: list[npt.NDArray[np.int64]] = []
    tables: list[npt.NDArray[Any]] = []
    for task in tasks:
        if id(task.program) not in programs:
            programs[id(task.program)] = len(code)
            ops = task.program.compiled()
            draws = np.isin(ops[:, _CODE], (OPS["draw"], OPS["pick"], OPS["rest"]))
            ops[draws, _TARGET] += len(tables)
            marks = ops[:, _CODE] == OPS["phase"]
            names = spec.workload.phases
            number = np.array([names.index(name) for name in task.program.phases])
            ops[marks, _N] = number[ops[marks, _N]]
            takes = ops[:, _CODE] == OPS["alloc"]
            ops[takes, _TIME] += round(spec.cold_page_ns * 1000) << ops[takes, _ORDER]
            code.append(ops)
            tables.extend(_drawn(task.program))
    rng = np.random.default_rng(spec.seed)
    tick = round(spec.stat_interval_s * _PS)
    # Processes do not start together, and each CPU has its own tick.
    starts = rng.integers(0, 10**9, len(tasks)) if spec.cost("jitter") else np.zeros(len(tasks))
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


def _pages(spec: RunSpec, cpus: int) -> tuple[Memory, list[npt.NDArray[np.int64]]]:
    """Zones in which others and the page cache hold their share; the cache's pages of each."""
    zones, start, cached = [], 0, []
    for size in spec.sizes:
        zones.append(Zone(size.managed, start, node=size.node))
        start += -(-size.managed // _BLOCK_PAGES) * _BLOCK_PAGES
    pages = Memory(spec.release, zones, cpus, free=not (spec.aged or spec.page_cache))
    if spec.aged or spec.page_cache:
        for z, (zone, size) in enumerate(zip(zones, spec.sizes, strict=True)):
            numbers = np.arange(zone.pages)
            if spec.aged:
                np.random.default_rng([spec.seed, z]).shuffle(numbers)
            others = spec.held_by_others(size)
            _, of_cache, left = np.split(numbers, [others, others + spec.cached(size)])
            cached.append(of_cache)
            pages.free_many(left + zone.start_pfn)
            pages.drain_pages_zone(0, z)
    return pages, cached


def setup(spec: RunSpec) -> Setup:
    """What the simulation of a run begins with."""
    host, tasks, sizes = spec.host, spec.tasks, spec.sizes
    cpus = place(tasks, host)
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
        first = len(spec.workload.tasks)  # kswapd of node 0
        page_cache = [
            (first + size.node, z, pages[1][z] if pages else spec.cached(size))
            for z, size in enumerate(sizes)
        ]
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
        **_programs(spec, tasks, homes, cpus),
        speed=_paces(spec.cost("jitter")),
        spread=spread,
        costs=costs,
        handoffs=np.array(
            [(spec.cost("handoff_ns") * 1000, spec.handoff_per_waiter_ns * 1000)] * 2,
            dtype=np.int64,
        ),
        end_ps=end,
        warm_ps=warm,
        sample_ps=(end - warm) // spec.samples if spec.samples else 0,
        samples=spec.samples,
        seed=spec.seed,
        nohz_idle=spec.nohz_idle,
        pagevec=spec.pagevec,
        **_changes(spec, cpus),
        trylock=spec.trylock_failure > 0,
        fails=_between_failures(spec.trylock_failure),
        pages=pages and pages[0],
        policy=spec.policy,
        caches=caches,
        page_cache=page_cache,
        test_and_set=spec.spinlock == "test-and-set",
    )


def prepare(spec: RunSpec) -> State:
    """Make the initial state of a run."""
    return State(setup(spec))

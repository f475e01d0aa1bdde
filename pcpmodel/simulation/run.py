"""One simulated run: from names and numbers to a `Result`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from pcpmodel import machine as machines
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.zone import Zone
from pcpmodel.machine import Machine
from pcpmodel.machine.cache import PageCache
from pcpmodel.simulation.changes import Change, changes_from
from pcpmodel.simulation.engine import MAX_CPUS, MAX_SECONDS, Engine
from pcpmodel.simulation.host import Host, ZoneSize
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.state import COSTS_MAX, State
from pcpmodel.workload.ops import LIMITS, OPS
from pcpmodel.workload.program import Program, Task, Workload

__all__ = ["ENGINES", "HOLDS", "RunSpec", "execute", "prepare", "simulate"]

#: How long one hold lasts: always the fitted mean; drawn from a lognormal law with the
#: fitted mean and 99th percentile; exponential, for comparison with closed forms.
HOLDS = ("drawn", "mean", "exponential")
ENGINES = ("event", "per-page")
_PS = 10**12
_TABLE: int = LIMITS["table"]
_EVENTS_BETWEEN_SIGNALS = 200_000
_SWAP_CLUSTER_MAX = 32
_BLOCK_PAGES = 1024  # of the largest block, at which zones begin


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides the outcome of a run.

    Times per hold come from ``machine``; how many CPUs and how much memory the run has is
    said here, because the measured tables do not say it of their machines.

    Attributes
    ----------
    release : Release
        Kernel state.
    machine : Machine
        Whose hold times are used.
    workload : Workload
    seconds : float
        Simulated time that is counted [s].
    warmup_s : float
        Simulated time before counting starts [s].
    seed : int
        Same seed and spec: same result, bit for bit.
    host : Host
        CPUs, nodes, memory.
    batch, high_pages, high_min_pages, high_fraction
        Overrides of the sizes, see `Host.sizes`.
    hold : str
        One of `HOLDS`.
    hold_scale : float
        Factor on every zone-lock hold: holds of a loaded machine against measured ones.
    cold_block_ns : float
        Added to a hold for every block that it moves [ns]: cache lines of the pages' struct
        page that a busy machine has to fetch from another CPU or from memory.
    jitter : float
        Spread (standard deviation / mean) of the pace of work, drawn anew by every operation
        of a program and after every hold.  A run without it locks phases and understates
        waiting.
    handoff_ns, handoff_per_waiter_ns : float
        Cost of handing a lock to a waiting CPU [ns].
    lru_hold_ns : float
        Hold of the LRU lock per pagevec [ns].
    pagevec : int
        Pages per hold of the LRU lock: 15 up to v6.8, then 31.
    stat_interval_s : float
        vm.stat_interval; 0 switches the vmstat worker off [s].
    nohz_idle : bool
        A sleeping CPU does not run its vmstat worker.
    samples : int
        Points of the time series.
    identity : bool
        Follow every page over real buddy lists instead of counting; four bytes of this host's
        memory per simulated page.
    aged : float
        Share of every zone that others hold for the whole run, 0..0.95.  With ``identity`` in
        single pages at random places, so that what is free is in pieces and out of order.
    page_cache : float
        Share of every zone that is page cache at first, 0..0.95.  Once all zones are short of
        pages a kswapd on each node, on a CPU of its own, frees the oldest until the node is back
        above its high watermark.
    reclaim_page_ns : float
        What kswapd takes to reclaim a page, the free not included [ns]; an assumption.
    caches : bool
        With ``identity``: also follow which pages are still in a CPU's private cache or in its
        slice of the last-level cache when they are allocated (``l2_kib``, ``llc_slice_kib``).
    trylock_failure : float
        Chance that an interrupt has the PCP lock when a page is allocated or freed, so that the
        page goes past the lists, under the zone lock, 0..0.5.
    changes : tuple of Change
        What happens to the machine meanwhile; see `pcpmodel.change`.
    policy : optional
        A rule of the user's own in place of the kernel's, as `pcpmodel.cython_pcp` makes it.
    """

    release: Release
    machine: Machine
    workload: Workload
    seconds: float = 1.0
    warmup_s: float = 0.0
    seed: int = 1
    host: Host = field(default_factory=lambda: Host(224, 2, 512.0))
    batch: int | None = None
    high_pages: int | None = None
    high_min_pages: int | None = None
    high_fraction: int = 0
    hold: str = "drawn"
    hold_scale: float = 1.0
    cold_block_ns: float = 0.0
    jitter: float = 0.2
    handoff_ns: float = 50.0
    handoff_per_waiter_ns: float = 0.0
    lru_hold_ns: float = 1000.0
    pagevec: int = 15
    stat_interval_s: float = 1.0
    nohz_idle: bool = True
    samples: int = 100
    identity: bool = False
    aged: float = 0.0
    page_cache: float = 0.0
    reclaim_page_ns: float = 500.0
    caches: bool = False
    trylock_failure: float = 0.0
    changes: tuple[Change, ...] = ()
    policy: object = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", changes_from(self.changes))
        _check(self)

    def as_dict(self) -> dict[str, Any]:
        """For the record: names and numbers."""
        values = {k: getattr(self, k) for k in self.__dataclass_fields__}
        return {
            **values,
            "release": self.release.name,
            "batch_scale_max": self.release.batch_scale_max,
            "machine": self.machine.name,
            "machine_digest": self.machine.digest,
            "workload": {"name": self.workload.name, **self.workload.params},
            "host": asdict(self.host),
            "changes": [c.as_dict() for c in self.changes],
            "policy": None if self.policy is None else "the user's own",
        }


def _number(spec: RunSpec, name: str, low: float, high: float, whole: bool = False) -> None:
    value = getattr(spec, name)
    kinds = (int, np.integer) if whole else (int, float, np.number)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        what = "whole number" if whole else "finite number"
        raise InputError(f"{name}={value!r} is not a {what}")
    if not low <= value <= high:
        raise InputError(f"{name}={value} is outside {low}..{high}")


def _check(spec: RunSpec) -> None:
    """Refuse what cannot be run, before anything is run."""
    for name, kind in (("release", Release), ("machine", Machine), ("workload", Workload)):
        if not isinstance(getattr(spec, name), kind):
            raise InputError(f"{name}={getattr(spec, name)!r} is not a {kind.__name__}")
    _number(spec, "seconds", 1e-6, MAX_SECONDS / 2)
    _number(spec, "warmup_s", 0.0, MAX_SECONDS / 2)
    _number(spec, "seed", 0, 2**63 - 1, whole=True)
    _number(spec, "hold_scale", 1e-3, 1e3)
    _number(spec, "cold_block_ns", 0.0, 1e6)
    _number(spec, "jitter", 0.0, 2.0)
    _number(spec, "handoff_ns", 0.0, 1e6)
    _number(spec, "handoff_per_waiter_ns", 0.0, 1e6)
    _number(spec, "lru_hold_ns", 0.0, 1e6)
    _number(spec, "pagevec", 1, 31, whole=True)
    _number(spec, "stat_interval_s", 0.0, 3600.0)
    _number(spec, "trylock_failure", 0.0, 0.5)
    _number(spec, "aged", 0.0, 0.95)
    _number(spec, "page_cache", 0.0, 0.95)
    _number(spec, "reclaim_page_ns", 1.0, 1e6)
    if spec.aged + spec.page_cache > 0.95:
        raise InputError(
            f"aged={spec.aged} and page_cache={spec.page_cache} leave less than 0.05 of the memory"
        )
    _number(spec, "samples", 0, 100_000, whole=True)
    for name in ("batch", "high_pages", "high_min_pages"):
        if getattr(spec, name) is not None:
            _number(spec, name, 1, 2**24, whole=True)
    for name in ("identity", "caches"):
        if not isinstance(getattr(spec, name), bool):
            raise InputError(f"{name}={getattr(spec, name)!r} is neither True nor False")
    if spec.caches and not spec.identity:
        raise InputError("caches=True needs identity=True: a cache holds single pages")
    if spec.hold not in HOLDS:
        raise unknown_name("hold", spec.hold, HOLDS)
    sizes = _sizes(spec)
    _check_sizes(sizes)
    cpus, nodes = len(_tasks(spec)), spec.host.nodes
    if cpus > spec.host.cpus or cpus > MAX_CPUS:
        kswapds = f" and {nodes} kswapd" if spec.page_cache else ""
        raise InputError(
            f"workload {spec.workload.name!r} has {len(spec.workload.tasks)} tasks{kswapds}, the "
            f"machine {spec.host.cpus} CPUs; each task needs a CPU of its own"
        )
    for i, task in enumerate(spec.workload.tasks):
        if task.node is not None and task.node not in range(nodes):
            raise InputError(f"task {i} is to run on node {task.node}; there are {nodes}")
    _check_messages(spec)
    largest = [sizes, *(after for _, after in _timeline(spec))]
    lists = max(sum(size.high_max for size in sizes) // len(sizes) for sizes in largest) * cpus
    memory = sum(size.managed - _held_by_others(spec, size) for size in sizes)
    if spec.workload.pages + lists > memory:
        others = f", others hold {spec.aged:.0%} of it" if spec.aged else ""
        raise InputError(
            f"workload {spec.workload.name!r} holds up to {spec.workload.pages} pages and the "
            f"per-CPU lists up to {lists}; the machine has {memory} for them "
            f"({spec.host.memory_gib} GiB{others})"
        )


def _check_messages(spec: RunSpec) -> None:
    """Who gives and who takes blocks of a message must name the same zone."""
    tasks = spec.workload.tasks
    homes = [spec.host.zonelist(cpu)[0] for cpu in place(_tasks(spec), spec.host)]
    moves: dict[int, set[tuple[int, int]]] = {}
    zones: dict[int, int] = {}
    for i, task in enumerate(tasks):
        key = id(task.program)
        if key not in moves:
            codes = OPS["give"], OPS["take"]
            moves[key] = {(op[7], op[6]) for op in task.program.ops if op[1] in codes}
        for slot, of in moves[key]:
            zone = homes[i if of == 0 or task.peer is None else task.peer]
            channel = task.channels[slot]
            if zones.setdefault(channel, zone) != zone:
                raise InputError(
                    f"workload {spec.workload.name!r}: task {i} moves blocks of zone {zone} on a "
                    f"channel whose blocks are of zone {zones[channel]}"
                )


def _check_sizes(sizes: tuple[ZoneSize, ...]) -> None:
    for size in sizes:
        if size.high_min < size.batch or size.high_max < size.batch:
            raise InputError(
                f"high of {min(size.high_min, size.high_max)} pages is below batch "
                f"{size.batch}: the kernel would free one page at a time. Raise high_pages or "
                "lower batch."
            )


def _held_by_others(spec: RunSpec, size: ZoneSize) -> int:
    return round(spec.aged * size.managed)


def _cached(spec: RunSpec, size: ZoneSize) -> int:
    return round(spec.page_cache * size.managed)


def _settings(spec: RunSpec) -> dict[str, Any]:
    names = ("batch", "high_pages", "high_min_pages", "high_fraction")
    return {name: getattr(spec, name) for name in names}


def _sizes(spec: RunSpec) -> tuple[ZoneSize, ...]:
    return spec.host.sizes(spec.release, **_settings(spec))


def _timeline(spec: RunSpec) -> Iterator[tuple[Change, tuple[ZoneSize, ...]]]:
    """Each change and the sizes after it."""
    host, settings = spec.host, _settings(spec)
    off: set[int] = set()
    tasks = set(place(_tasks(spec), host)) if spec.changes else set()
    for change in spec.changes:
        where = f"change at {change.at_s} s"
        if change.at_s >= spec.warmup_s + spec.seconds:
            raise InputError(f"{where}: the run ends at {spec.warmup_s + spec.seconds} s")
        coming = change.online
        for name in ("offline", "online", "drain_all"):
            cpu = getattr(change, name)
            if cpu is None:
                continue
            if cpu >= host.cpus:
                raise InputError(f"{where}: {name}={cpu}; CPUs are 0..{host.cpus - 1}")
            if (cpu in off) != (name == "online"):
                state = "offline" if cpu in off else "online"
                raise InputError(f"{where}: {name}={cpu}; this CPU is {state} then")
            if name == "drain_all" and cpu not in tasks:
                raise InputError(f"{where}: {name}={cpu}; no task runs on this CPU")
        if change.offline is not None:
            off.add(change.offline)
            if len(off) == host.cpus:
                raise InputError(f"{where}: offline={change.offline} is the last CPU online")
        settings = change.sizes(settings)
        online = [host.cpus_per_node] * host.nodes
        for cpu in off:
            online[cpu // host.cpus_per_node] -= 1
        try:
            sizes = host.sizes(
                spec.release,
                **settings,
                online=online,
                coming=coming is not None,
            )
            _check_sizes(sizes)
        except InputError as error:
            raise InputError(f"{where}: {error.message}") from None
        off.discard(coming)  # type: ignore[arg-type]
        yield change, sizes


_KINDS = {"offline": 1, "online": 2, "drain_all": 3}


def _changes(
    spec: RunSpec, cpus: list[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | tuple[None, None]:
    """Changes as the engines take them: time, kind, task; sizes after each."""
    if not spec.changes:
        return None, None
    tasks = {cpu: task for task, cpu in enumerate(cpus)}
    whens, sizes = [], []
    for change, after in _timeline(spec):
        name, cpu = next(iter(change.given.items()))
        hotplug = name in ("offline", "online")
        whens.append((round(change.at_s * _PS), _KINDS.get(name, 0), tasks.get(cpu, -1)))
        sizes.append(
            [
                (
                    size.batch,
                    size.high_min,
                    size.high_max,
                    2 * spec.host.free_high_batch(size.batch, spec.release) if hotplug else -1,
                )
                for size in after
            ]
        )
    return np.array(whens, dtype=np.int64), np.array(sizes, dtype=np.int32)


@cache
def _between_failures(chance: float) -> npt.NDArray[np.int32]:
    """Equally likely numbers of operations between two failures: a geometric law."""
    quantiles = np.log1p(-(np.arange(_TABLE) + 0.5) / _TABLE) / math.log1p(-chance)
    return np.minimum(quantiles, 2**30).astype(np.int32)


def _kswapd(spec: RunSpec) -> Program:
    """Clusters of pages, as long as balance_pgdat() finds something to do."""
    p = Program()
    with p.forever():
        p._add("kswapd")
        p.free(_SWAP_CLUSTER_MAX, ns=spec.reclaim_page_ns)
    return p


def _tasks(spec: RunSpec) -> tuple[Task, ...]:
    """The workload's tasks, then a kswapd for each node if there is anything to reclaim."""
    tasks = spec.workload.tasks
    if not spec.page_cache:
        return tasks
    program = _kswapd(spec)
    return (*tasks, *(Task(program, node) for node in range(spec.host.nodes)))


def place(tasks: tuple[Task, ...], host: Host) -> list[int]:
    """CPU of each task: its node's lowest free one; tasks without a node go in turn."""
    per_node = host.cpus_per_node
    used = [0] * host.nodes
    for task in tasks:
        if task.node is not None:
            used[task.node] += 1
    if max(used) > per_node:
        raise InputError(f"{max(used)} tasks are bound to a node of {per_node} CPUs")
    free = [0] * host.nodes
    cpus = []
    for task in tasks:
        node = task.node
        if node is None:
            node = min(range(host.nodes), key=lambda n: used[n])
            used[node] += 1
        cpus.append(node * per_node + free[node])
        free[node] += 1
    return cpus


@cache
def _paces(jitter: float) -> npt.NDArray[np.uint32]:
    """Equally likely factors of work: a gamma law of mean 1."""
    if not jitter:
        return np.full(_TABLE, 65536, dtype=np.uint32)
    return _unit_mean(stats.gamma.ppf((np.arange(_TABLE) + 0.5) / _TABLE, 1 / jitter**2))


def _unit_mean(quantiles: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """Equally likely factors with mean 1, 16 binary digits after the point."""
    return np.maximum(np.rint(quantiles / quantiles.mean() * 65536), 1).astype(np.uint32)


def _lognormal(p99_over_mean: float) -> npt.NDArray[np.uint32]:
    """Law of a hold with this ratio of 99th percentile to mean, at least 1."""
    z = stats.norm.ppf(0.99)
    peak = math.exp(z * z / 2)  # larger ratios are impossible
    ratio = min(max(p99_over_mean, 1.0), 0.99 * peak)
    sigma = optimize.brentq(lambda s: z * s - s * s / 2 - math.log(ratio), 0.0, z)
    return _unit_mean(np.exp(sigma * stats.norm.ppf((np.arange(_TABLE) + 0.5) / _TABLE)))


_FITTED: dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.uint32]]] = {}


def _fitted(machine: Machine) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint32]]:
    """Mean hold [ns] by blocks moved and its law: refill, drain; kept by data digest."""
    if machine.digest not in _FITTED:
        blocks = np.arange(1, COSTS_MAX + 1)
        measured = machine.latency["batch"].to_numpy()
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
    means = (means + spec.cold_block_ns * np.arange(COSTS_MAX + 1)) * spec.hold_scale
    costs = np.vstack([means, np.full((1, COSTS_MAX + 1), spec.lru_hold_ns)])
    if spec.hold == "mean":
        spreads = np.full((3, _TABLE), 65536, dtype=np.uint32)
    elif spec.hold == "exponential":
        spreads = np.tile(_unit_mean(-np.log1p(-(np.arange(_TABLE) + 0.5) / _TABLE)), (3, 1))
    else:
        spreads = laws[[0, 1, 1]]
    return np.maximum(np.rint(costs * 1000), 1).astype(np.int64), spreads


def prepare(spec: RunSpec) -> State:
    """Make the initial state of a run."""
    host, workload, tasks = spec.host, spec.workload, _tasks(spec)
    sizes = _sizes(spec)
    cpus = place(tasks, host)
    zonelists = np.array([host.zonelist(cpu) for cpu in cpus], dtype=np.int32)
    homes = zonelists[:, 0].tolist()
    # Who hands pages to another, or takes them from it, names their zone: that is where it stays.
    hands_over = [bool(task.channels) for task in tasks]
    zonelists[hands_over, 1:] = -1
    costs, spreads = _holds(spec)
    rng = np.random.default_rng(spec.seed)
    tick = round(spec.stat_interval_s * _PS)
    # Processes do not start together, and each CPU has its own tick.
    starts = rng.integers(0, 10**9, len(cpus)) if spec.jitter else np.zeros(len(cpus))
    ticks = rng.integers(1, max(tick, 2), len(cpus))
    programs: dict[int, int] = {}
    code, tables = [], []
    for task in tasks:
        if id(task.program) not in programs:
            programs[id(task.program)] = len(code)
            ops = task.program.compiled()
            ops[np.isin(ops[:, 1], (OPS["draw"], OPS["pick"])), 7] += len(tables)
            code.append(ops)
            tables.extend(task.program.tables)
    node_zones = [
        sum(1 << z for z, size in enumerate(sizes) if size.node == node)
        for node in range(host.nodes)
    ]
    pages, cached = (_pages(spec, len(cpus)) if spec.identity else None), []
    if spec.page_cache:
        first = len(workload.tasks)  # kswapd of node 0
        cached = [
            (first + size.node, z, pages[1][z] if pages else _cached(spec, size))
            for z, size in enumerate(sizes)
        ]
    end = round((spec.seconds + spec.warmup_s) * _PS)
    slots = LIMITS["channels"]
    return State(
        spec.release,
        np.array(
            [
                (
                    size.batch,
                    size.high_min,
                    size.high_max,
                    2 * host.free_high_batch(size.batch, spec.release),
                )
                for size in sizes
            ],
            dtype=np.int32,
        ),
        np.array(
            [
                (
                    size.managed - _held_by_others(spec, size) - _cached(spec, size),
                    *size.watermarks,
                    size.node,
                )
                for size in sizes
            ],
            dtype=np.int64,
        ),
        np.array(
            [
                (
                    home,
                    home if task.peer is None else homes[task.peer],
                    programs[id(task.program)],
                    node_zones[cpu // host.cpus_per_node],
                )
                for task, cpu, home in zip(tasks, cpus, homes, strict=True)
            ],
            dtype=np.int32,
        ),
        zonelists,
        np.array([(*task.channels, *(0,) * slots)[:slots] for task in tasks], dtype=np.int32),
        np.stack([starts, ticks], axis=1).astype(np.int64),
        code,
        np.array(
            [
                (c.room, round(c.latency_ns * 1000), c.producer, c.consumer)
                for c in workload.channels
            ],
            dtype=np.int64,
        ).reshape(-1, 4),
        np.array(tables, dtype=np.int32).reshape(-1, _TABLE),
        _paces(float(spec.jitter)),
        spreads,
        costs,
        np.array([(spec.handoff_ns * 1000, spec.handoff_per_waiter_ns * 1000)] * 2, dtype=np.int64),
        np.array(
            [
                end,
                round(spec.warmup_s * _PS),
                tick,
                end // spec.samples if spec.samples else 0,
                spec.samples,
            ],
            dtype=np.int64,
        ),
        spec.seed,
        spec.nohz_idle,
        spec.pagevec,
        pages and pages[0],
        spec.policy,
        *_changes(spec, cpus),
        _between_failures(spec.trylock_failure) if spec.trylock_failure else None,
        caches=PageCache(len(cpus), int(host.l2_kib) // 4, int(host.llc_slice_kib) // 4, 1)
        if spec.caches
        else None,
        cached=cached,
    )


def _types_change(spec: RunSpec) -> bool:
    """Whether page blocks in which CPUs hold pages may be taken for another migratetype.

    That takes more than one, and a lack of page blocks that are free as a whole.  What is taken,
    and to which list a page is freed, then depends on what other CPUs do while one waits for a
    lock: only the per-page engine knows that.
    """
    tasks, smallest = spec.workload.tasks, min(size.managed for size in _sizes(spec))
    crowded = spec.aged or spec.page_cache or 2 * spec.workload.pages > smallest
    lists = {op[4] for task in tasks for op in task.program.ops if op[1] == OPS["alloc"]}
    types = {1 if pindex >= 12 else pindex % 3 for pindex in lists}
    return spec.identity and bool(crowded) and len(types) > 1


def _pages(spec: RunSpec, cpus: int) -> tuple[Memory, list[npt.NDArray[np.int64]]]:
    """Zones in which others and the page cache hold their share; the cache's pages of each."""
    zones, start, cached = [], 0, []
    for size in _sizes(spec):
        zones.append(Zone(size.managed, start, node=size.node))
        start += -(-size.managed // _BLOCK_PAGES) * _BLOCK_PAGES
    pages = Memory(spec.release, zones, cpus, free=not (spec.aged or spec.page_cache))
    if spec.aged or spec.page_cache:
        for z, (zone, size) in enumerate(zip(zones, _sizes(spec), strict=True)):
            numbers = np.arange(zone.pages)
            if spec.aged:
                np.random.default_rng([spec.seed, z]).shuffle(numbers)
            others = _held_by_others(spec, size)
            _, of_cache, left = np.split(numbers, [others, others + _cached(spec, size)])
            cached.append(of_cache)
            pages.free_many(left + zone.start_pfn)
            pages.drain_pages_zone(0, z)
    return pages, cached


def execute(
    spec: RunSpec,
    *,
    engine: str = "event",
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Run a spec.

    Parameters
    ----------
    spec : RunSpec
    engine : str
        "event", or "per-page" for the slow oracle; the result is the same.  With page identity,
        where page blocks may change their migratetype under pages in use, both are the oracle.
    progress : callable, optional
        Called now and then with the simulated time done [s].

    Raises
    ------
    InputError
        If a zone runs out of memory.
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    state = prepare(spec)
    runner = PerPage(state) if engine == "per-page" or _types_change(spec) else Engine(state)
    began = time.perf_counter()
    # Back in Python now and then: for Ctrl-C and for the progress bar.
    while not runner.run(_EVENTS_BETWEEN_SIGNALS):
        if progress is not None:
            progress(runner.now_ps / _PS)
    took = time.perf_counter() - began
    if state.failed == 2:
        raise AssertionError("lists of pages and their counts disagree; this is a bug")
    if state.failed:
        raise InputError(
            f"workload {spec.workload.name!r} ran out of memory, or of blocks as large as it asks "
            f"for, on {spec.host.memory_gib} GiB"
        )
    if progress is not None:
        progress(spec.seconds + spec.warmup_s)
    return Result.from_state(spec, state, took)


def simulate(
    *,
    release: str | Release,
    machine: str | Machine,
    workload: Workload,
    seconds: float = 1.0,
    seed: int = 1,
    cpus: int | None = None,
    nodes: int | None = None,
    memory_gib: float | None = None,
    batch_scale_max: int | None = None,
    engine: str = "event",
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Result:
    """Run a workload on many CPUs under one kernel.

    Parameters
    ----------
    release : str or Release
        Kernel state, `pcpmodel.release`.
    machine : str or Machine
        Whose hold times are used, `pcpmodel.machine`.
    workload : Workload
        See `pcpmodel.workload`.
    seconds : float
        Simulated time that is counted [s].
    seed : int
        Same arguments and seed: same result, bit for bit.
    cpus, nodes, memory_gib : int, int, float, optional
        Size of the machine; by default what its platform file says, else two nodes with
        112 CPUs each and 512 GiB.
    batch_scale_max : int, optional
        CONFIG_PCP_BATCH_SCALE_MAX, 0..6.
    engine : str
        See `execute`.
    progress : callable, optional
        See `execute`.
    **options
        Further fields of `RunSpec`, or of `Host` (``zones_per_node``, ...).

    Returns
    -------
    Result

    Raises
    ------
    InputError
        For anything impossible, before the run starts.

    Notes
    -----
    A CPU looks at the watermarks when a list of its own is empty, by the order-0 test, and sees
    zones as the last hold of their lock left them; the zone flags it sees when it comes to the
    zone's lock.  It takes the first zone of its zonelist above the low watermark; if there is none
    it wakes kswapd and takes the first above the min watermark.  A task that hands pages to
    another stays with its zone.  Direct reclaim is not modelled: who finds every zone at the min
    watermark sleeps until kswapd has freed a cluster, and without page cache the run ends there.

    References
    ----------
    mm/page_alloc.c: get_page_from_freelist(), __alloc_pages_slowpath(); mm/vmscan.c:
    balance_pgdat(); v6.1 ... v7.2.
    """
    spec = make_spec(
        release=release,
        machine=machine,
        workload=workload,
        seconds=seconds,
        seed=seed,
        cpus=cpus,
        nodes=nodes,
        memory_gib=memory_gib,
        batch_scale_max=batch_scale_max,
        **options,
    )
    return execute(spec, engine=engine, progress=progress)


def make_spec(
    *,
    release: str | Release,
    machine: str | Machine,
    workload: Workload,
    cpus: int | None = None,
    nodes: int | None = None,
    memory_gib: float | None = None,
    batch_scale_max: int | None = None,
    **options: Any,
) -> RunSpec:
    """Make the `RunSpec` of `simulate`'s arguments."""
    state = find_release(release)
    if batch_scale_max is not None:
        state = state.with_batch_scale_max(batch_scale_max)
    hardware = machines.load(machine)
    host_fields = set(Host.__dataclass_fields__)
    spec_fields = set(RunSpec.__dataclass_fields__)
    for name in options:
        if name not in spec_fields | host_fields:
            raise unknown_name("argument", name, sorted(spec_fields | host_fields))
    known = hardware.platform
    if nodes is None:
        nodes = known.get("nodes") or (1 if cpus and cpus % 2 else 2)
    host = Host(
        cpus=known.get("cpus") or 112 * nodes if cpus is None else cpus,
        nodes=nodes,
        memory_gib=known.get("memory_gib") or 512.0 if memory_gib is None else memory_gib,
        **{k: options.pop(k) for k in list(options) if k in host_fields},
    )
    return RunSpec(state, hardware, workload, host=host, **options)


def varied(spec: RunSpec, **changes: Any) -> RunSpec:
    """Return the spec with some arguments of `simulate` changed.

    ``patch="name"`` puts a patch on the release, ``"-name"`` takes it off, ``""`` does neither.
    """
    host = {k: changes.pop(k) for k in list(changes) if k in Host.__dataclass_fields__}
    scale = changes.pop("batch_scale_max", None)
    patch = changes.pop("patch", "")
    if "release" in changes:
        changes["release"] = find_release(changes["release"])
    if patch:
        state = changes.get("release", spec.release)
        on = not patch.startswith("-")
        changes["release"] = state.plus(patch) if on else state.without(patch[1:])
    if "machine" in changes:
        changes["machine"] = machines.load(changes["machine"])
    if scale is not None:
        changes["release"] = changes.get("release", spec.release).with_batch_scale_max(int(scale))
    for name in changes:
        if name not in RunSpec.__dataclass_fields__:
            known = sorted({*RunSpec.__dataclass_fields__, *Host.__dataclass_fields__})
            raise unknown_name("argument", name, known)
    return replace(spec, host=replace(spec.host, **host), **changes)

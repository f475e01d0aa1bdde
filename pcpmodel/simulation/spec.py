"""What is to be simulated: the settings of a run, and which of them make sense."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np

from pcpmodel.arguments import checked_methods
from pcpmodel.cached import cached_property
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel import sizing
from pcpmodel.kernel.lists import HPAGE_PMD_ORDER
from pcpmodel.kernel.pcp import policy_callbacks
from pcpmodel.kernel.policies import Policy
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.simulation.changes import Change, changes_from
from pcpmodel.simulation.engine import MAX_CPUS, MAX_SECONDS
from pcpmodel.simulation.host import LEAST_GIB, Host, ZoneSize
from pcpmodel.simulation.work import on_kernel, on_machine
from pcpmodel.workload.ops import OPS
from pcpmodel.workload.program import Op, Program
from pcpmodel.workload.tasks import Task, Workload

__all__ = [
    "HOLDS",
    "JITTER",
    "MAX_CPUS",
    "MAX_SECONDS",
    "SPINLOCKS",
    "RunSpec",
    "given_by_hand",
    "host_of",
    "make_spec",
    "place",
    "timeline",
    "varied",
    "work_digest",
]

#: How long one hold lasts: always the fitted mean; drawn from a lognormal law with the
#: fitted mean and 99th percentile; exponential, for comparison with closed forms.
HOLDS = ("drawn", "mean", "exponential")
#: Who is next at a lock; see `RunSpec`.
SPINLOCKS = ("queued", "test-and-set")
#: Spread of the pace of work that no source states; recorded writes of one stream spread by 1.5,
#: waits for the peer included.
JITTER = 0.5
#: Where a machine's platform does not state them: memory [GiB], and hardware threads of a core, of
#: which there is one where a node's CPUs cannot be paired.
_MEMORY_GIB, _THREADS_PER_CORE = 512.0, 2
_SWAP_CLUSTER_MAX = 32
#: Of the time series: eight numbers of 8 bytes per CPU and sample, three times as a run ends.
_MAX_SERIES_GIB, _SAMPLE_BYTES = 2, 3 * 64
_CODE, _ZONE, _TARGET = (Op._fields.index(f) for f in ("code", "zone", "target"))
#: What decides a run beside its programs: where each task is and its memory comes from, ...
_task_fields = attrgetter(*(f.name for f in fields(Task) if f.name != "program"))
#: ... and what is said of all of them; the rest names or records.
_WORK_FIELDS = ("unit", "pages", "page_size_kib", "start_s", "mixed", "from_memory", "steady")
_HOST_FIELDS = tuple(Host.__dataclass_fields__)
#: Sizes that may differ by node.
_BY_NODE = ("batch", "high_pages", "high_min_pages")


@checked_methods
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
    warmup_s : float, optional
        Simulated time before counting starts [s].  By default until rates are steady (`settle`);
        a course of events (a workload that is not ``steady`` or ends, ``changes``,
        ``page_cache``) is counted from its beginning.
    seed : int
        Same seed and spec: same result, bit for bit.
    host : Host
        CPUs, nodes, memory.
    batch, high_pages, high_min_pages, high_fraction
        Overrides of the sizes, see `Host.sizes`; in a sweep one for all nodes.
    hold : str
        One of `HOLDS`.
    warm : bool
        The pages that a hold moves are at hand, as when the latency tables were measured: it waits
        for no line of them, and no pilot (`pcpmodel.simulation.pilot`) is run.
    jitter : float
        Spread (standard deviation / mean) of the pace of work, drawn anew by every operation
        of a program and after every hold.  A run without it locks phases and understates
        waiting.
    spinlock : str
        One of `SPINLOCKS`: "queued" is first come, first served (kernel/locking/qspinlock.c);
        "test-and-set" takes one of those who wait, with equal chances, and whoever comes by
        before that one has seen the release goes first.
    pagevec : int, optional
        Folios of a batch that goes to the LRU lists, and since v6.9 off them; by default the
        release's (`Release.folio_batch`).
    stat_interval_s : float
        vm.stat_interval; 0 switches the vmstat worker off [s].
    nohz_idle : bool
        A sleeping CPU does not run its vmstat worker.
    samples : int
        Points of the time series of the counted time; with fewer than 20 there are no
        confidence intervals.  At most 100,000, and 2 GiB of this host's memory, of which each takes
        192 bytes per CPU.
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
        A rule of the user's own in place of the kernel's, as `pcpmodel.cython_pcp` makes it; by
        default the release's, where it has one.
    given : frozenset of str
        Fields of ``host``, and ``batch_scale_max``, that were given by hand: `varied` keeps them.
        What is not among them came with the machine or the release.
    """

    release: Release
    machine: Machine
    workload: Workload
    seconds: float = 1.0
    warmup_s: float | None = None
    seed: int = 1
    host: Host = field(default_factory=lambda: Host(224, 2, 512.0))
    batch: int | tuple[int, ...] | None = None
    high_pages: int | tuple[int, ...] | None = None
    high_min_pages: int | tuple[int, ...] | None = None
    high_fraction: int = 0
    hold: str = "drawn"
    warm: bool = False
    jitter: float = JITTER
    spinlock: str = "queued"
    pagevec: int | None = None
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
    given: frozenset[str] = field(default=frozenset(_HOST_FIELDS), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", changes_from(self.changes))
        for name in _BY_NODE:
            if isinstance(sizes := getattr(self, name), list):
                object.__setattr__(self, name, tuple(sizes))
        _check(self)

    @property
    def notes(self) -> list[str]:
        """What to know before using the result."""
        found = [self.machine.page_size_note(self.host.page_size_kib)]
        stated, threads = self.machine.platform.get("threads_per_core"), self.host.threads_per_core
        if stated and stated != threads and "threads_per_core" not in self.given:
            sizes = f"nodes of {', '.join(map(str, self.host.node_cpus))} CPUs are not made of"
            has, which = (
                ("each CPU has a core to itself", sizes)
                if threads == 1
                else ("two CPUs share a core", "the model does not know")
            )
            found.append(f"{has}: {self.machine.name} has {stated} to a core, which {which}")
        if "batch_scale_max" in self.given and not _scales(self.release):
            found.append(f"batch_scale_max changes nothing: {self.release} has no such bound")
        found.append(_khugepaged_note(self))
        return [*filter(None, found), *self.machine.notes, *self.release.notes]

    @property
    def assumed(self) -> list[str]:
        """What takes time in this run that nobody measured on the machine or of the workload."""
        rows = [f"{name} of {self.machine.name}" for name in self.machine.assumed]
        jitter = [f"jitter {self.jitter:g}"] if self.jitter == JITTER else []
        return [*rows, *jitter, *assumed_nodes(self.machine.platform, self.host, self.given)]

    @property
    def lru_batches(self) -> tuple[int, int]:
        """Pages of a hold of the LRU lock: that go to its lists, that leave them."""
        added = self.release.folio_batch if self.pagevec is None else self.pagevec
        return added, self.release.swap_cluster_max or added

    @property
    def rule(self) -> object:
        """What decides in the kernel's place; None: nothing."""
        return self.release.policy if self.policy is None else self.policy

    @property
    def rules(self) -> str:
        """The release, and which of its decisions a rule of the user's own takes."""
        if self.rule is None:
            return str(self.release)
        return f"{self.release} with its own {' and '.join(policy_callbacks(self.rule))}"

    @property
    def settles(self) -> bool:
        """Whether the run finds its warm-up by itself."""
        return (
            self.warmup_s is None
            and self.workload.endless
            and not self.changes
            and not self.page_cache
        )

    @cached_property
    def sizes(self) -> tuple[ZoneSize, ...]:
        """Every zone and the sizes of its lists, before any change."""
        return self.host.sizes(self.release, **_settings(self))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The workload's tasks, then a kswapd for each node if there is anything to reclaim."""
        if not self.page_cache:
            return self.workload.tasks
        program = _kswapd(self)
        # That of a node without CPUs runs anywhere.
        return (
            *self.workload.tasks,
            *(
                Task(program, n if n < self.host.nodes else None, membind=(n,))
                for n in self.host.memory_nodes
            ),
        )

    @cached_property
    def cpus(self) -> list[int]:
        """CPU of each task."""
        return place(self.tasks, self.host)

    @cached_property
    def zonelists(self) -> list[list[int]]:
        """Zones that each task takes pages from, in order, as far as its memory policy lets it."""
        found = []
        for task, cpu in zip(self.tasks, self.cpus, strict=True):
            zones, bound = self.host.zonelist(cpu, task.preferred), task.membind
            if bound:
                zones = [z for z in zones if self.host.node_of_zone(z) in bound]
            found.append(zones)
        return found

    def held_by_others(self, size: ZoneSize) -> int:
        """Pages of a zone that others hold for the whole run."""
        return round(self.aged * size.managed)

    def cached(self, size: ZoneSize) -> int:
        """Pages of a zone that are page cache at first."""
        return round(self.page_cache * size.managed)

    def as_dict(self) -> dict[str, Any]:
        """For the record: names and numbers."""
        values = {k: getattr(self, k) for k in self.__dataclass_fields__ if k != "given"}
        return {
            **values,
            "pagevec": self.lru_batches[0],
            "release": self.release.name,
            **self.release.recorded,
            **({"policy_digest": self.rule.digest} if isinstance(self.rule, Policy) else {}),
            "batch_scale_max": self.release.batch_scale_max,
            "machine": self.machine.name,
            "machine_digest": self.machine.digest,
            "workload": {"name": self.workload.name, **self.workload.params},
            "host": asdict(self.host),
            "changes": [c.as_dict() for c in self.changes],
            "policy": None if self.rule is None else list(policy_callbacks(self.rule)),
        }


def _scales(release: Release) -> bool:
    """Whether CONFIG_PCP_BATCH_SCALE_MAX bounds anything: not in older kernels; a tree's may."""
    if release.recorded:
        return True
    rules = release.with_batch_scale_max(1).rules
    return sizing.refill_limit(1, rules) > 1 or (sizing.drain_limit(1, rules) or 1) > 1


def _number(
    spec: RunSpec, name: str, low: float, high: float, whole: bool = False, several: bool = False
) -> None:
    value = getattr(spec, name)
    if value is None and name in ("pagevec", "warmup_s"):
        return
    kinds = (int, np.integer) if whole else (int, float, np.number)
    for one in value if several and isinstance(value, tuple) else (value,):
        if isinstance(one, bool) or not isinstance(one, kinds) or not -math.inf < one < math.inf:
            what = "whole number" if whole else "finite number"
            raise InputError(f"{name}={value!r} is not a {what}")
        if not low <= one <= high:
            raise InputError(f"{name}={value} is outside {low}..{high}")


def _khugepaged_note(spec: RunSpec) -> str:
    """Sizes follow from vm.min_free_kbytes, which khugepaged raises on machines like this one."""
    host = spec.host
    given = (spec.high_pages, spec.high_min_pages, spec.high_fraction or None)
    if host.min_free_kbytes or host.page_size_kib != 4 or given != (None, None, None):
        return ""
    boot = sizing.min_free_kbytes_at_boot(host.memory_kib)
    zones = len(host.memory_nodes) + 2  # ZONE_DMA and ZONE_DMA32 of x86-64
    raised = sizing.khugepaged_min_free_kbytes(zones, host.memory_kib // host.page_size_kib)
    if raised <= boot:
        return ""
    return (
        f"high_min as with vm.min_free_kbytes={boot}, that of boot; where huge pages are enabled "
        f"khugepaged raises it to about {raised} here (min_free_kbytes says which)"
    )


def _check(spec: RunSpec) -> None:
    """Refuse what cannot be run, before anything is run."""
    for name, kind in (("release", Release), ("machine", Machine), ("workload", Workload)):
        if not isinstance(getattr(spec, name), kind):
            raise InputError(f"{name}={getattr(spec, name)!r} is not a {kind.__name__}")
    for program in {id(task.program): task.program for task in spec.workload.tasks}.values():
        program.compiled()
    _number(spec, "seconds", 1e-6, MAX_SECONDS)
    _number(spec, "warmup_s", 0.0, MAX_SECONDS)
    if spec.seconds + (spec.warmup_s or 0.0) > MAX_SECONDS:
        raise InputError(
            f"seconds={spec.seconds} after warmup_s={spec.warmup_s}: a run lasts {MAX_SECONDS} s "
            "at most"
        )
    _number(spec, "seed", 0, 2**63 - 1, whole=True)
    _number(spec, "jitter", 0.0, 2.0)
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
    for name in _BY_NODE:
        value, nodes = getattr(spec, name), spec.host.memory_nodes
        if isinstance(value, tuple) and len(value) != len(nodes):
            raise InputError(
                f"{name}={value!r} is {len(value)} numbers; allowed: one, or one for each node "
                f"with memory ({', '.join(map(str, nodes))})"
            )
        if value is not None:
            _number(spec, name, 1, 2**24, whole=True, several=True)
    for name in ("identity", "caches", "warm", "nohz_idle"):
        if not isinstance(getattr(spec, name), bool):
            raise InputError(f"{name}={getattr(spec, name)!r} is neither True nor False")
    if spec.caches and not spec.identity:
        raise InputError("caches=True needs identity=True: a cache holds single pages")
    if spec.hold not in HOLDS:
        raise unknown_name("hold", spec.hold, HOLDS)
    if spec.spinlock not in SPINLOCKS:
        raise unknown_name("spinlock", spec.spinlock, SPINLOCKS)
    _check_page_size(spec)
    sizes = spec.sizes
    _check_sizes(sizes)
    cpus = len(spec.tasks)
    if cpus > MAX_CPUS:
        raise InputError(
            f"workload {spec.workload.name!r} has {cpus} tasks, kswapds among them; allowed: at "
            f"most {MAX_CPUS}, the CPUs at work that a run follows, however many the machine has"
        )
    if cpus > spec.host.cpus:
        kswapds = f" and {len(spec.host.memory_nodes)} kswapd" if spec.page_cache else ""
        raise InputError(
            f"workload {spec.workload.name!r} has {len(spec.workload.tasks)} tasks{kswapds}, the "
            f"machine {spec.host.cpus} CPUs; each task needs a CPU of its own"
        )
    most = (_MAX_SERIES_GIB << 30) // (_SAMPLE_BYTES * cpus)
    if spec.samples > most:
        raise InputError(
            f"samples={spec.samples} of {cpus} CPUs take "
            f"{_SAMPLE_BYTES * cpus * spec.samples / (1 << 30):.1f} GiB of memory; allowed: "
            f"{_MAX_SERIES_GIB} GiB, which are {most} samples"
        )
    for i, task in enumerate(spec.workload.tasks):
        _check_place(i, task, spec.host)
    _check_messages(spec)
    largest = [sizes, *(after for _, after in timeline(spec))]
    lists = max(sum(size.high_max for size in sizes) // len(sizes) for sizes in largest) * cpus
    memory = sum(size.managed - spec.held_by_others(size) for size in sizes)
    if spec.workload.pages + lists > memory:
        others = f", others hold {spec.aged:.0%} of it" if spec.aged else ""
        raise InputError(
            f"workload {spec.workload.name!r} holds up to {spec.workload.pages} pages and the "
            f"per-CPU lists up to {lists}; the machine has {memory} for them "
            f"({spec.host.memory_gib} GiB{others})"
        )


def _check_place(i: int, task: Task, host: Host) -> None:
    """Refuse a CPU or a node that the machine has not."""
    if task.node is not None and task.node not in range(host.nodes):
        alone = ", the others have no CPUs" if task.node in host.memory_nodes else ""
        raise InputError(
            f"task {i} is to run on node {task.node}; allowed: 0..{host.nodes - 1} of "
            f"nodes={host.nodes}{alone}"
        )
    if task.cpu is not None and task.cpu not in range(host.cpus):
        raise InputError(f"task {i} is to run on CPU {task.cpu}; allowed: 0..{host.cpus - 1}")
    if task.membind and task.preferred is not None:
        raise InputError(f"task {i} both prefers and is bound to nodes for its memory: choose one")
    for node in (*task.membind, *(() if task.preferred is None else (task.preferred,))):
        if node not in host.memory_nodes:
            raise InputError(
                f"task {i} is to have memory of node {node!r}; nodes with memory are "
                f"{', '.join(map(str, host.memory_nodes))}"
            )


def _check_page_size(spec: RunSpec) -> None:
    """Refuse what is known for pages of 4 KiB only."""
    kib, workload = spec.host.page_size_kib, spec.workload
    if workload.page_size_kib != kib:
        raise InputError(
            f"workload {workload.name!r} counts pages of {workload.page_size_kib} KiB, its times "
            f"are for these, and the machine has pages of {kib} KiB (page_size_kib). page_fault1 "
            f"and page_fault2 take page_size_kib={kib}; recorded workloads are of 4 KiB pages"
        )
    if kib == 4:
        return
    if spec.identity:
        raise InputError(
            "identity=True needs page_size_kib=4: the buddy lists are those of 4 KiB pages, with "
            "page blocks of order 9 and blocks up to order 10 (arm64 has 11 and 11 with 16 KiB, "
            "13 and 13 with 64 KiB)"
        )
    orders = {op.order for task in workload.tasks for op in task.program.ops}
    if HPAGE_PMD_ORDER in orders:
        raise InputError(
            f"workload {workload.name!r} has blocks of order 9, the huge pages of 4 KiB kernels; "
            f"with page_size_kib={kib} per-CPU lists hold orders 0 to 3 and one that is not "
            "modelled (arm64: 11 with 16 KiB, 13 with 64 KiB)"
        )


def _check_messages(spec: RunSpec) -> None:
    """Who gives and who takes blocks of a message must name the same zone."""
    tasks = spec.workload.tasks
    homes = [zones[0] for zones in spec.zonelists]
    moves: dict[int, set[tuple[int, int]]] = {}
    zones: dict[int, int] = {}
    for i, task in enumerate(tasks):
        key = id(task.program)
        if key not in moves:
            code = task.program.compiled()
            moving = np.isin(code[:, _CODE], (OPS["give"], OPS["take"]))
            moves[key] = set(map(tuple, code[moving][:, [_TARGET, _ZONE]].tolist()))
        for slot, of in moves[key]:
            if slot not in range(len(task.channels)):  # its operations changed since it was made
                raise InputError(
                    f"workload {spec.workload.name!r}: task {i} uses channel slot {slot!r}, "
                    f"has {len(task.channels)}"
                )
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


def _settings(spec: RunSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in (*_BY_NODE, "high_fraction")}


def timeline(spec: RunSpec) -> Iterator[tuple[Change, tuple[ZoneSize, ...]]]:
    """Each change and the sizes after it."""
    host, settings = spec.host, _settings(spec)
    off: set[int] = set()
    tasks = set(spec.cpus) if spec.changes else set()
    for change in spec.changes:
        where = f"change at {change.at_s} s"
        end = (spec.warmup_s or 0.0) + spec.seconds
        if change.at_s >= end:
            raise InputError(f"{where}: the run ends at {end} s")
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
        online = list(host.node_cpus)
        for cpu in off:
            online[host.node_of(cpu)] -= 1
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


def _kswapd(spec: RunSpec) -> Program:
    """Clusters of pages, as long as balance_pgdat() finds something to do."""
    p = Program()
    with p.forever():
        p._add("kswapd")
        p.free(_SWAP_CLUSTER_MAX, ns=spec.reclaim_page_ns)
    return p


def place(tasks: tuple[Task, ...], host: Host) -> list[int]:
    """CPU of each task: its own, or its node's lowest free one; tasks without either go in turn.

    The turn is that of the node of whose CPUs the smallest share is taken.

    A task that is to be near another is on that one's node, while there is room.

    The first threads of a node's cores are its lower CPUs: where there are no more tasks than
    cores each has one to itself, as schedulers have it.
    """
    pinned = [task.cpu for task in tasks if task.cpu is not None]
    if len(set(pinned)) < len(pinned):
        twice = next(cpu for cpu in pinned if pinned.count(cpu) > 1)
        raise InputError(f"several tasks are to run on CPU {twice}; each needs one of its own")
    free = [[cpu for cpu in own if cpu not in set(pinned)] for own in host.cpus_of]
    bound = [0] * host.nodes
    for task in tasks:
        if task.cpu is None and task.node is not None:
            bound[task.node] += 1
    for node, number in enumerate(bound):
        if number > len(free[node]):
            raise InputError(
                f"{number} tasks are bound to node {node}; it has {len(free[node])} CPUs for them"
            )
    sizes = host.node_cpus
    used = [
        size - len(cpus) + number for size, cpus, number in zip(sizes, free, bound, strict=True)
    ]
    cpus = []
    for task in tasks:
        node = task.node
        if task.cpu is not None:
            cpus.append(task.cpu)
            continue
        if node is None:
            node = min(range(host.nodes), key=lambda n: used[n] / sizes[n])
            if task.near is not None:
                near = host.node_of(cpus[task.near])
                node = near if used[near] < sizes[near] else node
            used[node] += 1
        cpus.append(free[node].pop(0))
    return cpus


def make_spec(
    *,
    release: str | Release,
    machine: str | Machine,
    workload: Workload,
    batch_scale_max: int | None = None,
    **options: Any,
) -> RunSpec:
    """Make the `RunSpec` of `simulate`'s arguments."""
    hardware = machines.machine(machine)
    # The host is told by its fields.
    allowed = {*_HOST_FIELDS, "batch_scale_max", *RunSpec.__dataclass_fields__} - {"host", "given"}
    for name in options:
        if name not in allowed:
            raise unknown_name("argument", name, sorted(allowed))
    options = {name: _plain(value) for name, value in options.items()}
    by_hand = _by_hand(options)
    by_hand |= {} if batch_scale_max is None else {"batch_scale_max": batch_scale_max}
    return _made(find_release(release), hardware, workload, by_hand, options)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, also in a list: those of an array are as good as any."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _by_hand(options: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a host out of `simulate`'s arguments; None leaves some to the machine."""
    fields = {name: options.pop(name) for name in _HOST_FIELDS if name in options}
    left = ("cpus", "nodes", "memory_gib")
    return {name: v for name, v in fields.items() if v is not None or name not in left}


def _made(
    state: Release,
    hardware: Machine,
    workload: Workload,
    by_hand: dict[str, Any],
    options: dict[str, Any],
) -> RunSpec:
    """What was given, and what follows from release and machine where nothing was."""
    if "batch_scale_max" in by_hand:
        state = state.with_batch_scale_max(by_hand["batch_scale_max"])
    host = host_of(hardware, {k: v for k, v in by_hand.items() if k != "batch_scale_max"})
    if isinstance(workload, Workload):  # else it is refused
        workload = on_kernel(on_machine(workload, hardware.sheet, host), state)
    return RunSpec(state, hardware, workload, host=host, given=frozenset(by_hand), **options)


def host_of(hardware: Machine, given: dict[str, Any]) -> Host:
    """CPUs and memory as given, else as the machine's platform states them, else assumed.

    Parameters
    ----------
    hardware : Machine
    given : dict
        Fields of a `Host`.
    """
    known, fields = hardware.platform, Host.__dataclass_fields__
    own, theirs, alone = _stated_nodes(known)
    cpus, nodes = given.get("cpus"), given.get("nodes")
    told: dict[str, Any] = {"page_size_kib": hardware.page_size_kib}
    with suppress(TypeError):  # it is no list of numbers, which the host says
        if split := given.get("cpus_per_node"):  # says both
            cpus, nodes = cpus or sum(split), nodes or len(split)
        if gib := given.get("gib_per_node"):
            nodes = nodes or len(gib) - given.get("cpuless_nodes", 0)
            told |= {"memory_gib": sum(gib[:nodes]), "cpuless_gib": sum(gib[nodes:])}
    if nodes is None:
        odd = isinstance(cpus, int) and cpus % 2
        nodes = len(own) or len(theirs) or known.get("nodes") or (1 if odd else 2)
    if cpus is None:
        cpus = known.get("cpus") or sum(own) or 112 * nodes
    told |= {"cpus": cpus, "nodes": nodes}
    if len(set(own)) > 1 and (len(own), sum(own)) == (nodes, cpus):
        told["cpus_per_node"] = own
    if "memory_gib" not in told:
        whole = (known.get("memory_gib") or _MEMORY_GIB) - sum(alone)
        told["memory_gib"] = sum(theirs) if theirs else whole
        if not given.keys() & {"memory_gib", "cpuless_nodes", "cpuless_gib"}:
            told |= {"cpuless_nodes": len(alone), "cpuless_gib": float(sum(alone))}
            if len(theirs) == nodes and max(len({*theirs}), len({*alone})) > 1:
                told["gib_per_node"] = (*theirs, *alone)
    host = Host(**told | given)
    last, sharing = known.get("llc_kib"), known.get("llc_cpus")
    # More than two of a core are taken as pairs: how much they slow each other nobody measured.
    threads = min(known.get("threads_per_core") or _THREADS_PER_CORE, 2)
    odd = any(cpus % threads for cpus in host.node_cpus)
    told = {
        "l2_kib": float(known.get("l2_kib") or fields["l2_kib"].default),
        "llc_slice_kib": last / sharing if last and sharing else fields["llc_slice_kib"].default,
        "threads_per_core": 1 if odd else threads,
    }
    return replace(host, **{k: v for k, v in told.items() if k not in given})


def _stated_nodes(
    known: dict[str, Any],
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """CPUs of the platform's nodes that have any, their memory, and that of the others [GiB].

    Empty: not stated.  The others have as much as each where only the memory of all is.
    """
    cpus = [int(n) for n in (known.get("cpus_per_node") or "").split(",") if n]
    gib = [float(n) for n in (known.get("gib_per_node") or "").split(",") if n]
    gib = [n if n >= LEAST_GIB else 0.0 for n in gib]
    own, behind = tuple(filter(None, cpus)), cpus.count(0)
    if gib:
        nodes = list(zip(cpus or [1] * len(gib), gib, strict=True))
        theirs = tuple(here for n, here in nodes if n)
        return own, theirs, tuple(here for n, here in nodes if here and not n)
    alone = known.get("cpuless_gib")
    if alone is None and behind:
        alone = (known.get("memory_gib") or _MEMORY_GIB) * behind / len(cpus)
    return own, (), (alone / behind,) * behind if behind and alone >= LEAST_GIB * behind else ()


def assumed_nodes(
    known: dict[str, Any], host: Host, given: frozenset[str] = frozenset()
) -> list[str]:
    """CPUs and memory of a host that neither the platform states nor anybody gave, in words."""
    split, shares = known.get("cpus_per_node"), known.get("gib_per_node")
    found = []
    if not given & {"cpus", "cpus_per_node"} and not (known.get("cpus") or split):
        found.append(f"{host.cpus} CPUs")
    if not given & {"nodes", "cpus_per_node", "gib_per_node"}:
        if not (known.get("nodes") or split or shares):
            found.append(f"{host.nodes} nodes" if host.nodes > 1 else "1 node")
        if host.nodes > 1 and not split:
            found.append("as many CPUs on each node")
    if not given & {"memory_gib", "gib_per_node"}:
        if not (known.get("memory_gib") or shares):
            found.append(f"{host.memory_gib + host.cpuless_gib:g} GiB")
        if host.nodes + host.cpuless_nodes > 1 and not host.gib_per_node and not shares:
            found.append("as much memory on each node")
    return found


def given_by_hand(spec: RunSpec) -> dict[str, Any]:
    """Fields of the host, and ``batch_scale_max``, that do not follow from machine and release.

    Those that were given, and those that somebody replaced since.
    """
    found = {name: getattr(spec.host, name) for name in _HOST_FIELDS if name in spec.given}
    follow = host_of(spec.machine, found)
    both = {name: (getattr(spec.host, name), getattr(follow, name)) for name in _HOST_FIELDS}
    found |= {name: here for name, (here, there) in both.items() if here != there}
    if "batch_scale_max" in spec.given:
        found["batch_scale_max"] = spec.release.batch_scale_max
    return found


def work_digest(workload: Workload) -> str:
    """Digest of what the tasks do, and where: two workloads may have the same name."""
    programs = {id(task.program): task.program for task in workload.tasks}
    numbers = {key: i for i, key in enumerate(programs)}
    found = hashlib.sha256()
    for program in programs.values():
        found.update(program.compiled().tobytes())
        found.update(b"".join(table.tobytes() for table in program.tables))
        found.update(repr(program.names()).encode())
    tasks = [(numbers[id(t.program)], *_task_fields(t)) for t in workload.tasks]
    others = {name: getattr(workload, name) for name in _WORK_FIELDS}
    made = workload.made  # by which a pilot has fewer of its tasks
    how = None if made is None else (made.make.__qualname__, sorted(made.given))
    found.update(repr((tasks, workload.channels, others, how)).encode())
    return found.hexdigest()


def varied(spec: RunSpec, **changes: Any) -> RunSpec:
    """Return the spec with some arguments of `simulate` changed.

    It is what these would have made of the others that were given: what the machine or the release
    brought by itself, another one brings anew.

    ``patch="name"`` puts a patch on the release, ``"-name"`` takes it off, ``""`` does neither.
    """
    options = {f: getattr(spec, f) for f in RunSpec.__dataclass_fields__}
    by_hand = given_by_hand(spec)
    for name in ("host", "given"):
        del options[name]
    for name in changes:
        if name not in (allowed := {*options, *_HOST_FIELDS, "batch_scale_max", "patch"}):
            raise unknown_name("argument", name, sorted(allowed))
    changes = {name: _plain(value) for name, value in changes.items()}
    patch, scale = changes.pop("patch", ""), changes.pop("batch_scale_max", None)
    by_hand |= _by_hand(changes) | ({} if scale is None else {"batch_scale_max": int(scale)})
    options |= changes
    state = find_release(options.pop("release"))
    if patch:
        state = state.without(patch[1:]) if patch.startswith("-") else state.plus(patch)
    hardware = machines.machine(options.pop("machine"))
    return _made(state, hardware, options.pop("workload"), by_hand, options)

"""The state of a simulation, made from named arrays; see ``structs.pxd``."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from pcpmodel.cython_pcp cimport pcp_policy
from pcpmodel.exclusive cimport Exclusive, begin_use, check_idle, end_use
from pcpmodel.hardware.cache cimport PageCache
from pcpmodel.hardware.lines cimport LINE_STATES, PageLines, page_lines
from pcpmodel.kernel.lists cimport MAX_PCP_LISTS, pindex_in
from pcpmodel.kernel.memory cimport Memory
from pcpmodel.kernel.page_alloc cimport pageset_of
from pcpmodel.kernel.pages cimport (
    MIGRATE_MOVABLE,
    page_ring,
    page_ring_at,
    page_ring_free,
    page_ring_push_tail,
    page_ring_reserve,
)
from pcpmodel.kernel.pcp cimport (
    PCPF_FREE_HIGH_BATCH,
    pcp_scalars,
    per_cpu_pages,
    policy_failed,
    policy_from,
    policy_state,
)
from pcpmodel.kernel.rules cimport rules_of
from pcpmodel.kernel.tree_guard cimport this_call, tree_failed
from pcpmodel.simulation.chores cimport drain_all_over
from pcpmodel.simulation.cpu cimport ONE, count_blocks, paced, set_timer, sibling_of
from pcpmodel.simulation.structs cimport (
    ABOVE_HIGH,
    COSTS,
    CPU_OFFLINE,
    CPU_ONLINE,
    DISTANCES,
    DRAIN_PAGES,
    HIST,
    KINDS,
    LISTS_DISAGREE,
    LRU,
    NONE_FAILED,
    NO_TIME,
    OUT_OF_MEMORY,
    POLICY_FAILED,
    RESIZE,
    SERIES,
    TREE_FAILED,
    barrier_t,
    change_t,
    channel_t,
    count_t,
    cpu_t,
    held_of,
    hold_more,
    mine_of,
    notice_t,
    op_t,
    pcp_of,
    pcp_t,
    sizes_t,
    state_t,
    last_t,
    lock_t,
    thread_t,
    zone_t,
)
from pcpmodel.simulation.zones cimport level_of
from pcpmodel.splitmix cimport draw
from pcpmodel.workload.ops cimport (
    BLOCK_KINDS,
    CHANNELS,
    HOME,
    KINDS_ROOM,
    OP_BARRIER,
    OP_GIVE,
    OP_KSWAPD,
    OP_PHASE,
    OP_RECV,
    OP_SEND,
    OP_TAKE,
    PEER,
    PHASES,
    TABLE,
)

from enum import IntEnum

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.workload.program import BLOCKS, check_ops

__all__ = [
    "CHANGE",
    "CHANGES",
    "CHANNEL",
    "COSTS_MAX",
    "DISTANCE_NAMES",
    "FREE_HIGH_BATCH",
    "HISTOGRAM",
    "LISTS_ROOM",
    "SIZES",
    "TASK",
    "ZONE",
    "Failure",
    "State",
]

COSTS_MAX = COSTS
LISTS_ROOM = KINDS_ROOM
#: How far a CPU is from the last holder of a lock.
DISTANCE_NAMES = ("cpu", "core", "llc", "socket", "node")
assert len(DISTANCE_NAMES) == DISTANCES
HISTOGRAM = HIST
#: PCP flag of `SIZES`.
FREE_HIGH_BATCH = PCPF_FREE_HIGH_BATCH
FOUND = ("found_private", "found_llc", "found_memory")
KIND_NAMES = ("refill", "drain", "lru", "direct")


cdef struct zone_row:
    int64_t free
    int64_t min_wmark
    int64_t low_wmark
    int64_t high_wmark
    int64_t node


cdef struct task_row:
    int64_t home
    int64_t peer
    int64_t program
    int64_t start_ps
    int64_t tick_ps
    int64_t node
    int64_t memcg
    int64_t peer_memcg


cdef struct op_row:  # as `pcpmodel.workload.program.Op` has them
    int64_t ps
    int64_t code
    int64_t n
    int64_t reg
    int64_t pindex
    int64_t order
    int64_t zone
    int64_t target
    int64_t depth


cdef struct channel_row:
    int64_t room
    int64_t latency_ps
    int64_t producer
    int64_t consumer


cdef struct change_row:
    int64_t at_ps
    int64_t kind
    int64_t cpu


def _rows(kind, *names):
    return np.dtype([(name, kind) for name in names])


#: Pages on the buddy lists of a zone, its watermarks [pages], its node.
ZONE = _rows(np.int64, "free", "min_wmark", "low_wmark", "high_wmark", "node")
#: Sizes of a zone's lists [pages] and their PCP flags (of a change: -1, as they are).
SIZES = _rows(np.int32, "batch", "high_min", "high_max", "flags")
#: Zones that a task calls its own and its peer's, number of its program, start, first vmstat tick,
#: node of its CPU, memcgs that its pages and its peer's are charged to.
TASK = _rows(
    np.int64, "home", "peer", "program", "start_ps", "tick_ps", "node", "memcg", "peer_memcg"
)
#: Room [messages], latency, tasks at the ends.
CHANNEL = _rows(np.int64, "room", "latency_ps", "producer", "consumer")
#: Time, one of `CHANGES`, task (-1: none).
CHANGE = _rows(np.int64, "at_ps", "kind", "cpu")
#: Kinds of changes of the machine.
CHANGES = {
    "resize": RESIZE, "offline": CPU_OFFLINE, "online": CPU_ONLINE, "drain_all": DRAIN_PAGES,
}


#: Why a run stopped before its end.
Failure = IntEnum(
    "Failure",
    {
        "NONE": NONE_FAILED, "OUT_OF_MEMORY": OUT_OF_MEMORY, "LISTS_DISAGREE": LISTS_DISAGREE,
        "POLICY_FAILED": POLICY_FAILED, "NO_TIME": NO_TIME, "TREE_FAILED": TREE_FAILED,
    },
    module=__name__,
)


cdef extern from "<stdlib.h>":
    void *aligned_alloc(size_t alignment, size_t size) noexcept nogil


cdef void *get(size_t n, size_t size) except NULL:
    """Zeroed memory that begins with a cache line."""
    cdef size_t whole = (n * size + 64) // 64 * 64
    cdef void *p = aligned_alloc(64, whole)
    if p == NULL:
        raise MemoryError
    memset(p, 0, whole)
    return p


def _within(name, array, low, high):
    """All numbers of an array, or InputError."""
    array = np.asarray(array)
    if array.size and not low <= array.min() <= array.max() <= high:
        raise InputError(f"{name}: {array.min()}..{array.max()} leaves {low}..{high}")


#: Arrays of a `Setup`: type and axes; an axis is counted where it is named first.
ARRAYS = {
    "zones": (ZONE, "zones"),
    "sizes": (SIZES, "zones"),
    "tasks": (TASK, "tasks"),
    "task_channels": (np.int32, "tasks", CHANNELS),
    "zonelists": (np.int32, "tasks", "zones"),
    "channels": (CHANNEL, "channels"),
    "tables": (np.int32, "tables", TABLE),
    "speed": (np.uint32, TABLE),
    "spread": (np.uint32, KINDS, TABLE),
    "costs": (np.int64, KINDS, COSTS + 1),
    "blocks": (np.int64, 2, KINDS_ROOM),
    "lines": (np.int64, 2, LINE_STATES),
    "first": (np.int64, 2, DISTANCES),
    "handovers": (np.int64, 2, DISTANCES),
    "seats": (np.int32, "tasks"),
    "siblings": (np.int32, "tasks"),
    "changes": (CHANGE, "changes"),
    "changed_sizes": (SIZES, "changes", "zones"),
    "fails": (np.int32, "fails"),
}


def _check_arrays(setup):
    """That every array is there, of its type and shape, without gaps."""
    lengths = {"fails": TABLE if setup.trylock else 0}
    for name, (kind, *axes) in ARRAYS.items():
        array = getattr(setup, name)
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != len(axes):
            raise InputError(f"{name} is not an array of {np.dtype(kind)} with {len(axes)} axes")
        known = zip(axes, array.shape, strict=True)
        shape = tuple([lengths.setdefault(a, n) if isinstance(a, str) else a for a, n in known])
        if array.shape != shape:
            raise InputError(f"{name} has the shape {array.shape}, not {shape}")
        if not array.flags.c_contiguous:
            raise InputError(f"{name} has gaps")
    if not 1 <= lengths["tasks"] <= 1024 or not 1 <= lengths["zones"] <= 32:
        raise InputError(
            f"{lengths['tasks']} CPUs, {lengths['zones']} zones; allowed: 1..1024, 1..32"
        )


def _check(setup):
    """Shapes, and every number that leads somewhere."""
    _check_arrays(setup)
    nr_cpus, nr_zones, nr_channels = len(setup.tasks), len(setup.zones), len(setup.channels)
    zones, tasks, channels, changes = setup.zones, setup.tasks, setup.channels, setup.changes
    most, long = 1 << 26, 1 << 53
    for name in ("free", "min_wmark", "low_wmark", "high_wmark"):
        _within(f"{name} of a zone", zones[name], 0, 1 << 40)
    _within("node of a zone", zones["node"], 0, 1023)
    for of, sizes, least in (("", setup.sizes, 0), (" after a change", setup.changed_sizes, -1)):
        _within(f"batch{of}", sizes["batch"], 1, 1 << 16)
        _within(f"high_min{of}", sizes["high_min"], 0, most)
        _within(f"high_max{of}", sizes["high_max"], 0, most)
        _within(f"PCP flags{of}", sizes["flags"], least, 3)
    _within("own zone of a task", tasks["home"], 0, nr_zones - 1)
    _within("peer's zone of a task", tasks["peer"], 0, nr_zones - 1)
    _within("program of a task", tasks["program"], 0, len(setup.programs) - 1)
    _within("start of a task", tasks["start_ps"], 0, long)
    _within("first tick of a CPU", tasks["tick_ps"], 0, long)
    _within("node of a task's CPU", tasks["node"], 0, 1023)
    _within("memcg of a task", tasks["memcg"], 0, 1023)
    _within("memcg of a task's peer", tasks["peer_memcg"], 0, 1023)
    _within("zonelists", setup.zonelists, -1, nr_zones - 1)
    _within("first zone of a zonelist", setup.zonelists[:, 0], 0, nr_zones - 1)
    _within("task_channels", setup.task_channels, 0, max(nr_channels - 1, 0))
    _within("room of a channel", channels["room"], 1, 1 << 30)
    _within("latency of a channel", channels["latency_ps"], 0, long)
    _within("producer of a channel", channels["producer"], 0, nr_cpus - 1)
    _within("consumer of a channel", channels["consumer"], 0, nr_cpus - 1)
    _within("spread", setup.spread, 0, 1 << 31)
    _within("costs", setup.costs, 0, long)
    for name in ("blocks", "lines", "first", "handovers"):
        _within(name, getattr(setup, name), 0, 1 << 40)
    _within("seats", setup.seats, 0, (1 << 31) - 1)
    if len(set(setup.seats.tolist())) < nr_cpus:
        raise InputError("two CPUs have one seat")
    _within("siblings", setup.siblings, -1, nr_cpus - 1)
    for cpu, other in enumerate(setup.siblings.tolist()):
        if other >= 0 and (other == cpu or setup.siblings[other] != cpu):
            raise InputError(f"CPU {other} is no sibling of CPU {cpu}, which is one of it")
    _within("beside", setup.beside, 4096, 1 << 20)
    _within("end_ps", setup.end_ps, 0, long)
    _within("warm_ps", setup.warm_ps, 0, long)
    _within("tick_ps", setup.tick_ps, 0, long)
    _within("samples", setup.samples, 0, 100_000)
    _within("sample_ps", setup.sample_ps, 1 if setup.samples else 0, long)
    for number in setup.lru_batches:
        _within("lru_batches", number, 1, 32)
    _within("direct_ps", setup.direct_ps, 0, 1 << 40)
    _within("fails", setup.fails, 0, 1 << 30)
    _within("time of a change", changes["at_ps"], 0, long)
    _within("kind of a change", changes["kind"], 0, DRAIN_PAGES)
    _within("CPU of a change", changes["cpu"], -1, nr_cpus - 1)
    if not len(setup.programs):
        raise InputError("there are no programs")
    for program in setup.programs:
        code = np.asarray(program)
        check_ops(code, setup.tables)
        talks = np.isin(code[:, 1], (OP_SEND, OP_RECV, OP_GIVE, OP_TAKE))
        if talks.any() and not nr_channels:
            raise InputError("a program sends or receives; there are no channels")
        if (code[:, 1] == OP_KSWAPD).any() and not len(setup.page_cache):
            raise InputError("a program reclaims as kswapd does; there is no page cache")
    for cpu, z, _ in setup.page_cache:
        _within("CPU of a kswapd", cpu, 0, nr_cpus - 1)
        _within("zone of a kswapd", z, 0, nr_zones - 1)


cdef class State(Exclusive):
    """Everything that an engine changes while it runs.

    That the settings make sense was checked by `pcpmodel.simulation.spec.RunSpec`; that no number
    leads out of its array is checked here.

    Parameters
    ----------
    setup : pcpmodel.simulation.setup.Setup
    """

    def __cinit__(self, setup):
        cdef state_t *s = &self.s
        cdef int i
        _check(setup)
        s.rules = rules_of(setup.release)
        s.nr_cpus, s.nr_zones = len(setup.tasks), len(setup.zones)
        self.make_books(setup)
        self.make_zones(setup)
        self.make_changes(setup)
        self.make_lists(setup)
        starts = self.make_programs(setup)
        s.cpu = <cpu_t *> get(s.nr_cpus, sizeof(cpu_t))
        s.woken = <int32_t *> get(s.nr_cpus, sizeof(int32_t))
        assert sizeof(cpu_t) == 256 and sizeof(pcp_t) == 256 and sizeof(count_t) == 192
        for i in range(s.nr_cpus):
            self.make_cpu(setup, i, starts)
        for cpu, z, reclaimable in setup.page_cache:
            self.cache(cpu, z, reclaimable)

    cdef int make_books(self, setup) except -1:
        """Times, what holds take, and where all of it is written down."""
        cdef state_t *s = &self.s
        cdef const int64_t[:, ::1] costs = setup.costs
        cdef const uint32_t[:, ::1] spread = setup.spread
        cdef int k
        s.course.end, s.course.warm, s.course.tick = setup.end_ps, setup.warm_ps, setup.tick_ps
        s.course.sample_every, s.course.samples = setup.sample_ps, setup.samples
        s.course.nohz_idle = setup.nohz_idle
        s.holds.folios[0], s.holds.folios[1] = setup.lru_batches
        for k in range(KINDS):
            memcpy(s.holds.spread[k], &spread[k, 0], TABLE * sizeof(uint32_t))
            memcpy(s.holds.cost[k], &costs[k, 0], (COSTS + 1) * sizeof(int64_t))
        s.holds.direct = setup.direct_ps
        self.make_lines(setup)
        self.test_and_set, self.seed = setup.test_and_set, setup.seed
        s.books.count = <count_t *> get(s.nr_cpus, sizeof(count_t))
        s.books.series = <int64_t *> get(
            SERIES * s.nr_cpus * s.course.samples, sizeof(int64_t)
        )
        return 0

    cdef int make_lines(self, setup) except -1:
        """What lines take that come from elsewhere, and who shares a core."""
        cdef state_t *s = &self.s
        cdef const int64_t[:, ::1] blocks = setup.blocks, first = setup.first
        cdef const int64_t[:, ::1] handovers = setup.handovers
        cdef const int64_t[:, ::1] lines = setup.lines
        cdef const int32_t[::1] siblings = setup.siblings
        cdef int i
        memcpy(&s.holds.block[0][0], &blocks[0, 0], 2 * KINDS_ROOM * sizeof(int64_t))
        memcpy(&s.holds.line[0][0], &lines[0, 0], 2 * LINE_STATES * sizeof(int64_t))
        for i in range(KINDS):
            memcpy(s.holds.first[i], &first[i == LRU, 0], DISTANCES * sizeof(int64_t))
            memcpy(s.holds.handover[i], &handovers[i == LRU, 0], DISTANCES * sizeof(int64_t))
        s.programs.beside = setup.beside
        s.programs.beside_one = <double> s.programs.beside * ONE
        s.programs.above_one = <double> s.programs.beside - ONE
        s.programs.sibling = <int32_t *> get(s.nr_cpus, sizeof(int32_t))
        memcpy(s.programs.sibling, &siblings[0], s.nr_cpus * sizeof(int32_t))
        if max(setup.siblings) >= 0:
            s.programs.thread = <thread_t *> get(s.nr_cpus, sizeof(thread_t))
        return 0

    cdef int make_zones(self, setup) except -1:
        cdef state_t *s = &self.s
        cdef const zone_row[::1] zones = setup.zones
        cdef const int32_t[:, ::1] zonelists = setup.zonelists
        cdef zone_t *zone
        cdef int i, memcgs
        tasks = setup.tasks
        s.zones.zone = <zone_t *> get(s.nr_zones, sizeof(zone_t))
        for i in range(s.nr_zones):
            zone = &s.zones.zone[i]
            zone.free, zone.min_wmark = zones[i].free, zones[i].min_wmark
            zone.low_wmark, zone.high_wmark = zones[i].low_wmark, zones[i].high_wmark
            zone.node = zones[i].node
            zone.level = zone.seen = level_of(zone)
            zone.plenty = INT64_MAX
            s.zones.watch |= zone.level < ABOVE_HIGH
            zone.mask = 1
            while zone.mask < s.nr_cpus:
                zone.mask = 2 * zone.mask + 1
            zone.notice = <notice_t *> get(zone.mask + 1, sizeof(notice_t))
            s.zones.nodes = max(s.zones.nodes, zone.node + 1)
        memcgs = 1 + max(tasks["memcg"].max(), tasks["peer_memcg"].max())
        self.nlocks = s.nr_zones + s.zones.nodes * memcgs
        s.zones.lru = <int32_t *> get(2 * s.nr_cpus, sizeof(int32_t))
        s.zones.node_of = <int32_t *> get(s.nr_cpus, sizeof(int32_t))
        for i in range(s.nr_cpus):
            s.zones.lru[2 * i + HOME] = s.nr_zones + s.zones.nodes * tasks["memcg"][i]
            s.zones.lru[2 * i + PEER] = s.nr_zones + s.zones.nodes * tasks["peer_memcg"][i]
            s.zones.node_of[i] = tasks["node"][i]
        s.zones.zonelist = <int32_t *> get(s.nr_cpus * s.nr_zones, sizeof(int32_t))
        memcpy(s.zones.zonelist, &zonelists[0, 0], s.nr_cpus * s.nr_zones * sizeof(int32_t))
        s.zones.kswapd = <int32_t *> get(s.zones.nodes, sizeof(int32_t))
        for i in range(s.zones.nodes):
            s.zones.kswapd[i] = -1
        s.lock = <lock_t *> get(self.nlocks, sizeof(lock_t))
        for i in range(self.nlocks):
            s.lock[i].seat = -1
        return 0

    cdef int make_changes(self, setup) except -1:
        cdef state_t *s = &self.s
        cdef const change_row[::1] changes = setup.changes
        cdef const sizes_t[:, ::1] sizes = setup.changed_sizes
        cdef int i, z
        s.changes.drainer = -1
        s.changes.last = <last_t *> get(s.nr_cpus, sizeof(last_t))
        s.changes.number = changes.shape[0]
        s.changes.change = <change_t *> get(s.changes.number, sizeof(change_t))
        s.changes.size = <sizes_t *> get(s.changes.number * s.nr_zones, sizeof(sizes_t))
        for i in range(s.changes.number):
            s.changes.change[i] = change_t(changes[i].at_ps, changes[i].kind, changes[i].cpu, 0)
            for z in range(s.nr_zones):
                s.changes.size[i * s.nr_zones + z] = sizes[i, z]
        drain_all_over(s)
        return 0

    cdef int make_lists(self, setup) except -1:
        """By count; with page identity; under a policy."""
        cdef state_t *s = &self.s
        cdef const int32_t[::1] fails = setup.fails
        cdef const pcp_policy *asked
        cdef Memory pages = setup.pages
        cdef PageCache caches = setup.caches
        cdef PageLines lines = setup.page_lines
        cdef int i, lists = s.nr_cpus * s.nr_zones
        s.lists.pcp = <pcp_t *> get(lists, sizeof(pcp_t))
        s.lists.held = <int32_t *> get(lists * KINDS_ROOM, sizeof(int32_t))
        s.lists.pages = <int64_t *> get(s.nr_cpus, sizeof(int64_t))
        s.lists.passed = <int64_t *> get(s.nr_cpus, sizeof(int64_t))
        if setup.trylock:
            s.lists.trylock = 1
            memcpy(s.lists.fails, &fails[0], TABLE * sizeof(int32_t))
        if pages is not None:
            if pages.mm.nr_zones != s.nr_zones or pages.mm.nr_cpus < s.nr_cpus:
                raise InputError("pages are not those of as many zones and CPUs")
            self.pages, s.pages.mm = pages, &pages.mm
            s.pages.mine = <page_ring *> get(lists * BLOCK_KINDS, sizeof(page_ring))
            s.pages.digest = <uint64_t *> get(s.nr_cpus, sizeof(uint64_t))
            s.pages.dice = <uint64_t *> get(s.nr_cpus, sizeof(uint64_t))
        if caches is not None:
            if pages is None or caches.cpus < s.nr_cpus:
                raise InputError("caches need page identity, and a CPU for each")
            self.caches, s.pages.cache = caches, &caches.cache
            s.pages.found = <uint64_t *> get(3 * s.nr_cpus, sizeof(uint64_t))
        if lines is not None:
            if pages is None or lines.cpus < s.nr_cpus or lines.zones != s.nr_zones:
                raise InputError("lines need page identity, and are those of its CPUs and zones")
            self.lines, s.pages.lines = lines, &lines.lines
        policy_from(setup.policy, &s.rules, &asked)
        self.policy = setup.policy
        if asked != NULL:
            s.lists.policy = <policy_state *> get(lists, sizeof(policy_state))
            s.lists.asks_high = asked.nr_pcp_high != NULL
            for i in range(lists):
                s.lists.policy[i].policy = asked
                s.lists.policy[i].cpu = i // s.nr_zones
        return 0

    cdef list make_programs(self, setup):
        """Operations, tables and channels; returns where each program begins."""
        cdef state_t *s = &self.s
        cdef const int32_t[:, ::1] tables = setup.tables
        cdef const uint32_t[::1] speed = setup.speed
        cdef const channel_row[::1] channels = setup.channels
        cdef const int64_t[:, ::1] code
        cdef const op_row *op
        cdef channel_t *ch
        cdef int64_t at = 0
        cdef int i
        for i, (order, migratetype) in enumerate(BLOCKS):
            s.programs.order_of[i] = order
            s.programs.type_of[i] = migratetype
        s.programs.rested = <int64_t *> get(s.nr_cpus, sizeof(int64_t))
        s.programs.tables = tables.shape[0]
        s.programs.table = <int32_t *> get(s.programs.tables * TABLE, sizeof(int32_t))
        if s.programs.tables:
            memcpy(s.programs.table, &tables[0, 0], s.programs.tables * TABLE * sizeof(int32_t))
        memcpy(s.programs.speed, &speed[0], TABLE * sizeof(uint32_t))
        s.programs.channel = <channel_t *> get(channels.shape[0], sizeof(channel_t))
        s.nr_channels = channels.shape[0]
        s.programs.carry = <int32_t *> get(2 * s.nr_channels * KINDS_ROOM, sizeof(int32_t))
        for i in range(s.nr_channels):
            ch = &s.programs.channel[i]
            ch.size, ch.latency = channels[i].room, channels[i].latency_ps
            ch.producer, ch.consumer = channels[i].producer, channels[i].consumer
            while ch.mask < ch.size - 1:
                ch.mask = 2 * ch.mask + 1
            ch.sent = <int64_t *> get(<size_t> ch.mask + 1, sizeof(int64_t))
            ch.received = <int64_t *> get(<size_t> ch.mask + 1, sizeof(int64_t))
            ch.carried = <int32_t *> get((<size_t> ch.mask + 1) * KINDS_ROOM, sizeof(int32_t))
        self.make_barriers(setup)
        if any((np.asarray(program)[:, 1] == OP_PHASE).any() for program in setup.programs):
            s.books.phase = <count_t *> get(s.nr_cpus * PHASES, sizeof(count_t))
            s.books.mark = <count_t *> get(s.nr_cpus, sizeof(count_t))
            s.books.phase_of = <int32_t *> get(s.nr_cpus, sizeof(int32_t))
        starts = []
        self.ops = <op_t *> get(sum(map(len, setup.programs)), sizeof(op_t))
        for program in setup.programs:
            starts.append(at)
            code = np.ascontiguousarray(program, dtype=np.int64)
            for i in range(code.shape[0]):
                op = <const op_row *> &code[i, 0]
                self.ops[at] = op_t(
                    ps=op.ps, code=<int32_t> op.code, n=<int32_t> op.n, reg=<int32_t> op.reg,
                    kind=<int32_t> op.pindex,
                    pindex=pindex_in(s.rules.nr_pcp_lists, <int> op.pindex)
                    if op.pindex < MAX_PCP_LISTS else <int32_t> op.pindex,
                    order=<int32_t> op.order, zone=<int32_t> op.zone,
                    target=<int32_t> op.target, depth=<int32_t> op.depth,
                )
                at += 1
        return starts

    cdef int make_barriers(self, setup) except -1:
        """Who has to come to each: the tasks whose program names it."""
        cdef state_t *s = &self.s
        cdef const task_row[::1] tasks = setup.tasks
        cdef barrier_t *b
        cdef int cpu, n
        named = []
        for program in setup.programs:
            code = np.asarray(program)
            named.append(sorted(set(code[code[:, 1] == OP_BARRIER, 2].tolist())))
        number = 1 + max(map(max, filter(None, named)), default=-1)
        if number == 0:
            return 0
        s.programs.barriers = number
        s.programs.barrier = <barrier_t *> get(number, sizeof(barrier_t))
        s.programs.member = <int32_t *> get(number * s.nr_cpus, sizeof(int32_t))
        for cpu in range(s.nr_cpus):
            for n in named[tasks[cpu].program]:
                b = &s.programs.barrier[n]
                s.programs.member[n * s.nr_cpus + b.members] = cpu
                b.members += 1
        return 0

    cdef int make_cpu(self, setup, int cpu, list starts) except -1:
        """A CPU, its task and its lists."""
        cdef state_t *s = &self.s
        cdef const int32_t[:, ::1] channels = setup.task_channels
        cdef const sizes_t[::1] sizes = setup.sizes
        cdef const task_row[::1] tasks = setup.tasks
        cdef task_row task = tasks[cpu]
        cdef cpu_t *c = &s.cpu[cpu]
        cdef per_cpu_pages *pcp
        cdef uint64_t key
        cdef int k
        c.id = cpu
        c.lists, c.count = &s.lists.pcp[cpu * s.nr_zones], &s.books.count[cpu]
        c.task.zone[HOME], c.task.zone[PEER] = task.home, task.peer
        for k in range(CHANNELS):
            c.vars.channel[k] = channels[cpu, k]
        c.task.program = c.task.pc = self.ops + <int64_t> starts[task.program]
        c.task.left = -1
        c.vars.work_left = -1
        c.task.lru_left[0], c.task.lru_left[1] = s.holds.folios[0], s.holds.folios[1]
        # Each CPU its own stream, from seed and CPU number alone.
        key = self.seed
        key = draw(&key) ^ (<uint64_t> cpu + 1) * <uint64_t> 0xD1342543DE82EF95
        c.rng = draw(&key)
        c.seat, c.pace = setup.seats[cpu], ONE
        k = s.programs.sibling[cpu]
        if k >= 0:
            if k > cpu:
                c.thread = &s.programs.thread[2 * self.cores]
                self.cores += 1
            else:
                c.thread = sibling_of(s.cpu[k].thread)
            c.pace = s.programs.beside
        c.task.factor = paced(c, s.programs.speed[draw(&c.rng) >> 54])
        if s.pages.mm != NULL:
            s.pages.dice[cpu] = key ^ <uint64_t> 0xA0761D6478BD642F
        c.time, c.timers.tick_at = task.start_ps, task.tick_ps
        s.programs.rested[cpu] = c.time
        if s.books.phase != NULL:
            s.books.mark[cpu].end_ps = c.time
        c.timers.sample_at = INT64_MAX
        if s.course.samples:
            c.timers.sample_at = s.course.warm + s.course.sample_every
        c.timers.change_at = s.changes.change[0].at if s.changes.number else INT64_MAX
        if s.lists.trylock:
            c.quiet = s.lists.fails[draw(&c.rng) >> 54]
        set_timer(s, c)
        for k in range(s.nr_zones):
            pcp = &pcp_of(c, k).pcp
            pcp.batch, pcp.high_min = sizes[k].batch, sizes[k].high_min
            pcp.high_max, pcp.flags = sizes[k].high_max, sizes[k].flags
            pcp.high = pcp.high_min
        return 0

    cdef int cache(self, int cpu, int zone, pages) except -1:
        """Give a kswapd what it may reclaim."""
        cdef state_t *s = &self.s
        cdef const int64_t[::1] numbers
        cdef page_ring *mine
        cdef int64_t i
        s.zones.kswapd[s.zones.zone[zone].node] = cpu
        s.cpu[cpu].task.starved = s.zones.watch = 1
        if s.pages.mm == NULL:
            hold_more(s, &s.cpu[cpu], zone, MIGRATE_MOVABLE, 0, pages)
            return 0
        numbers = pages
        mine = mine_of(s, &s.cpu[cpu], zone, MIGRATE_MOVABLE)
        if page_ring_reserve(mine, numbers.shape[0]) < 0:
            raise MemoryError
        for i in range(numbers.shape[0]):
            page_ring_push_tail(mine, <uint32_t> numbers[i])
        hold_more(s, &s.cpu[cpu], zone, MIGRATE_MOVABLE, 0, numbers.shape[0])
        return 0

    def __dealloc__(self):
        cdef int i
        if self.s.zones.zone != NULL:
            for i in range(self.s.nr_zones):
                free(self.s.zones.zone[i].notice)
        if self.s.pages.mine != NULL:
            for i in range(self.s.nr_cpus * self.s.nr_zones * BLOCK_KINDS):
                page_ring_free(&self.s.pages.mine[i])
        if self.s.programs.channel != NULL:
            for i in range(self.s.nr_channels):
                page_ring_free(&self.s.programs.channel[i].pages)
                free(self.s.programs.channel[i].sent)
                free(self.s.programs.channel[i].received)
                free(self.s.programs.channel[i].carried)
        for p in (
            <size_t> self.ops, <size_t> self.s.cpu, <size_t> self.s.woken,
            <size_t> self.s.lists.pcp, <size_t> self.s.lists.held, <size_t> self.s.lists.pages,
            <size_t> self.s.lists.passed, <size_t> self.s.lists.policy,
            <size_t> self.s.pages.mine, <size_t> self.s.pages.digest,
            <size_t> self.s.pages.dice, <size_t> self.s.pages.found,
            <size_t> self.s.zones.zone, <size_t> self.s.zones.zonelist,
            <size_t> self.s.zones.kswapd, <size_t> self.s.zones.lru, <size_t> self.s.zones.node_of,
            <size_t> self.s.programs.channel,
            <size_t> self.s.programs.carry, <size_t> self.s.programs.table,
            <size_t> self.s.programs.barrier, <size_t> self.s.programs.member,
            <size_t> self.s.programs.rested,
            <size_t> self.s.changes.change, <size_t> self.s.changes.size,
            <size_t> self.s.books.count, <size_t> self.s.books.series, <size_t> self.s.lock,
            <size_t> self.s.changes.last, <size_t> self.s.programs.thread,
            <size_t> self.s.programs.sibling,
            <size_t> self.s.books.phase, <size_t> self.s.books.mark, <size_t> self.s.books.phase_of,
        ):
            free(<void *> <size_t> p)

    cdef const page_lines *followed(self) except NULL:
        """For an engine that is to stop by what is counted there."""
        if self.s.pages.lines == NULL:
            raise InputError("the lines of struct pages are not followed in this run")
        return self.s.pages.lines

    cdef int take(self) except -1:
        """For an engine that will run it: only one may."""
        begin_use(self)
        if self.taken:
            end_use(self)
            raise InputError("this state has been run, or is to be run by another engine")
        self.taken = True
        end_use(self)
        return 0

    cdef int begin(self) except -1:
        """Have it and what it works on for oneself up to `end`."""
        begin_use(self)
        try:
            if self.pages is not None:
                begin_use(self.pages)
                try:
                    if self.caches is not None:
                        begin_use(self.caches)
                except BaseException:
                    end_use(self.pages)
                    raise
        except BaseException:
            end_use(self)
            raise
        if self.s.rules.tree:
            this_call().stop = &self.s.failed
            this_call().why = TREE_FAILED
        return 0

    cdef void end(self) noexcept:
        end_use(self)
        if self.s.rules.tree:
            this_call().stop = NULL
        if self.pages is not None:
            end_use(self.pages)
            if self.caches is not None:
                end_use(self.caches)

    cdef int check(self) except -1:
        """After some events: raise what a callback raised, or what it or a tree did wrong."""
        cdef int i
        tree_failed(&self.s.rules)
        if self.s.failed == POLICY_FAILED:
            for i in range(self.s.nr_cpus * self.s.nr_zones):
                policy_failed(&self.s.lists.policy[i])
        return 0

    @property
    def failed(self):
        """Why the run stopped before its end, if it did."""
        return Failure(self.s.failed)

    @property
    def events(self):
        """Lock interactions so far."""
        return self.s.books.events

    @property
    def order_digests(self):
        """Of each lock: digest of (CPU, arrival) of all grants, in order."""
        return tuple([self.s.lock[i].order for i in range(self.nlocks)])

    def counters(self):
        """Counters of each CPU since the end of the warm-up, by name."""
        check_idle(self)
        cdef int i, k
        result = []
        for i in range(self.s.nr_cpus):
            count_blocks(&self.s.cpu[i])
            counts = dict(self.s.books.count[i])
            for k, where in enumerate(FOUND):
                counts[where] = self.s.pages.found[3 * i + k] if self.s.pages.found != NULL else 0
            result.append(counts)
        return result

    def histograms(self):
        """``{what: {kind: [counts]}}`` of wait, hold and latency; HIST buckets each."""
        check_idle(self)
        cdef int k
        result = {"wait": {}, "hold": {}, "latency": {}}
        for k, name in enumerate(KIND_NAMES):
            result["wait"][name] = self.s.books.wait[k]
            result["hold"][name] = self.s.books.hold[k]
            result["latency"][name] = self.s.books.latency[k]
        return result

    def phases(self):
        """``[cpu][phase]``: counters since the end of the warm-up, by name; none without phases."""
        check_idle(self)
        cdef int i, k
        result = []
        for i in range(self.s.nr_cpus if self.s.books.phase != NULL else 0):
            result.append([])
            for k in range(PHASES):
                counts = dict(self.s.books.phase[i * PHASES + k])
                counts["time_ps"] = counts["end_ps"]
                for name in ("start_ps", "end_ps", "wait_max_ps", "lru_wait_max_ps"):
                    del counts[name]
                result[i].append(counts)
        return result

    def by_kind(self):
        """``{what: {kind: ps}}``: all waits and all holds, of those that the histograms count."""
        check_idle(self)
        cdef int k
        result = {"wait": {}, "hold": {}}
        for k, name in enumerate(KIND_NAMES):
            result["wait"][name] = self.s.books.wait_ps[k]
            result["hold"][name] = self.s.books.hold_ps[k]
        return result

    def over(self):
        """Interactions whose wait and hold together pass 100 us, 1 ms, 10 ms, by kind."""
        check_idle(self)
        cdef int k
        result = {}
        for k, name in enumerate(KIND_NAMES):
            result[name] = self.s.books.over[k]
        return result

    def series(self):
        """Pages, work, waits, sleep over the counted time: int64 of [cpu][samples][8] as bytes."""
        check_idle(self)
        cdef int numbers = SERIES * self.s.nr_cpus * self.s.course.samples
        return (<char *> self.s.books.series)[: numbers * sizeof(int64_t)]

    def pcps(self):
        """``[cpu][zone]`` -> the scalars and list lengths of the PCP."""
        check_idle(self)
        cdef int i, z
        cdef pcp_t *p
        result = []
        for i in range(self.s.nr_cpus):
            result.append([])
            for z in range(self.s.nr_zones):
                p = pcp_of(&self.s.cpu[i], z)
                result[i].append({**pcp_scalars(&p.pcp), "blocks": p.blocks})
        return result

    def held(self):
        """Pages that the programs hold, of each zone (lists of blocks weighted by order)."""
        check_idle(self)
        cdef int i, z, k
        pages = [0] * self.s.nr_zones
        for i in range(self.s.nr_cpus):
            for z in range(self.s.nr_zones):
                for k in range(BLOCK_KINDS):
                    pages[z] += (
                        <int64_t> held_of(&self.s, &self.s.cpu[i], z)[k]
                        << self.s.programs.order_of[k]
                    )
        return pages

    def page_digests(self):
        """With page identity: of each CPU, a digest of the pages it allocated, in order."""
        check_idle(self)
        cdef int i
        return [self.s.pages.digest[i] for i in range(self.s.nr_cpus) if self.s.pages.mm != NULL]

    def page_lists(self):
        """With page identity: ``[cpu][zone]`` -> page numbers of each list, head first."""
        check_idle(self)
        cdef int i, z, k
        cdef uint32_t j
        cdef page_ring *ring
        result = []
        for i in range(self.s.nr_cpus if self.s.pages.mm != NULL else 0):
            result.append([])
            for z in range(self.s.nr_zones):
                lists = []
                for k in range(self.s.rules.nr_pcp_lists):
                    ring = &pageset_of(self.s.pages.mm, z, i).lists[k]
                    lists.append([page_ring_at(ring, j) for j in range(ring.len)])
                result[i].append(lists)
        return result

    def zone_free(self):
        """Pages on the buddy lists of each zone."""
        check_idle(self)
        return [self.s.zones.zone[z].free for z in range(self.s.nr_zones)]

    def times_ps(self):
        """Local time of each CPU [ps]."""
        check_idle(self)
        return [self.s.cpu[i].time for i in range(self.s.nr_cpus)]

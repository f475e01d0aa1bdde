"""The state of a simulation, made from plain arrays; see ``state.pxd``."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from pcpmodel.kernel.page_alloc cimport PageAllocator, pageset_of
from pcpmodel.machine.cache cimport PageCache
from pcpmodel.cython_pcp cimport pcp_policy
from pcpmodel.kernel.pages cimport (
    MIGRATE_MOVABLE,
    page_ring,
    page_ring_at,
    page_ring_free,
    page_ring_push_tail,
    page_ring_reserve,
)
from pcpmodel.kernel.pcp cimport policy_failed, policy_from, policy_state
from pcpmodel.kernel.rules cimport rules_of

__all__ = ["COSTS_MAX", "HISTOGRAM", "State"]

COSTS_MAX = COSTS
HISTOGRAM = HIST
FOUND = ("found_private", "found_llc", "found_memory")
KIND_NAMES = ("refill", "drain", "lru")

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


cdef class State:
    """Everything that an engine changes while it runs.

    Parameters are plain arrays, already checked by `pcpmodel.simulation.spec`.

    Parameters
    ----------
    release : str or Release
    pcps : (zones, 4) int32
        batch, high_min, high_max [pages] and PCP flags of each zone.
    zones : (zones, 5) int64
        Pages on the buddy lists, min, low and high watermark [pages], node.
    cpus : (cpus, 4) int32
        Own zone, peer's zone, program, bits of the zones on the CPU's node.
    zonelists : (cpus, zones) int32
        Zones that a CPU takes pages from, in order, its own first; -1: no more.
    cpu_channels : (cpus, CHANNELS) int32
    cpu_times : (cpus, 2) int64
        Start and first vmstat tick [ps].
    programs : list of (n, 9) int64
        ps, code, n, reg, pindex, order, zone, target, depth of each operation.
    channels : (channels, 4) int64
        Room [messages], latency [ps], producer, consumer.
    tables : (tables, TABLE) int32
        Equally likely values for the operation ``draw``.
    speed : (TABLE,) uint32
        Equally likely factors of work, 16 binary digits after the point.
    spread : (3, TABLE) uint32
        The same of the holds: refill, drain, LRU.
    costs : (3, COSTS_MAX + 1) int64
        Mean hold [ps] by blocks moved: refill, drain, LRU.
    handoffs : (2, 2) int64
        Zone locks, LRU locks: hand-over, and more per CPU queued before [ps].
    times : (5,) int64
        End, end of the warm-up, vmstat interval (0: none), sample interval [ps], samples.
    seed : int
    nohz_idle : bool
    pagevec : int
        Pages between two holds of the LRU lock.
    pages : PageAllocator, optional
        With page identity: the zones, untouched, one pageset per CPU.
    policy : optional
        A policy of the user's own (`pcpmodel.cython_pcp`).
    changes : (changes, 3) int64, optional
        Time [ps], kind, CPU (-1: none) of each change of the machine, in order.
    sizes : (changes, zones, 4) int32, optional
        batch, high_min, high_max [pages] and PCP flags (-1: as they are) after each.
    fails : (TABLE,) int32, optional
        Equally likely numbers of PCP operations until the next trylock fails.
    caches : PageCache, optional
        With page identity: caches of as many CPUs, none shared, empty.
    cached : list of (int, int, int64 ndarray or int)
        CPU of a kswapd, zone, and the pages of that zone that it may reclaim: their numbers with
        page identity, oldest first, else how many.
    """

    def __cinit__(
        self,
        release,
        const int32_t[:, ::1] pcps,
        const int64_t[:, ::1] zones,
        const int32_t[:, ::1] cpus,
        const int32_t[:, ::1] zonelists,
        const int32_t[:, ::1] cpu_channels,
        const int64_t[:, ::1] cpu_times,
        programs,
        const int64_t[:, ::1] channels,
        const int32_t[:, ::1] tables,
        const uint32_t[::1] speed,
        const uint32_t[:, ::1] spread,
        const int64_t[:, ::1] costs,
        const int64_t[:, ::1] handoffs,
        const int64_t[::1] times,
        uint64_t seed,
        bint nohz_idle,
        int pagevec,
        PageAllocator pages=None,
        policy=None,
        const int64_t[:, ::1] changes=None,
        const int32_t[:, :, ::1] sizes=None,
        const int32_t[::1] fails=None,
        PageCache caches=None,
        cached=(),
    ):
        cdef state_t *s = &self.s
        cdef int i, z, k
        cdef int64_t total = 0
        cdef const int64_t[:, ::1] code
        cdef cpu_t *c
        cdef pcp_t *p
        cdef channel_t *ch
        cdef uint64_t key
        cdef const pcp_policy *asked
        s.rules = rules_of(release)
        s.lists = s.rules.nr_pcp_lists
        s.cpus, s.zones, s.channels = cpus.shape[0], zones.shape[0], channels.shape[0]
        s.cpu = <cpu_t *> get(s.cpus, sizeof(cpu_t))
        s.pcp = <pcp_t *> get(s.cpus * s.zones, sizeof(pcp_t))
        s.count = <count_t *> get(s.cpus, sizeof(count_t))
        s.held = <int32_t *> get(s.cpus * s.zones * 16, sizeof(int32_t))
        s.carry = <int32_t *> get(s.cpus * 32, sizeof(int32_t))
        s.zone = <zone_t *> get(s.zones, sizeof(zone_t))
        s.channel = <channel_t *> get(s.channels, sizeof(channel_t))
        s.table = <int32_t *> get(tables.shape[0] * TABLE, sizeof(int32_t))
        if pages is not None:
            self.pages, s.pages = pages, &pages.mm
            s.mine = <page_ring *> get(s.cpus * s.zones * 16, sizeof(page_ring))
            s.digest = <uint64_t *> get(s.cpus, sizeof(uint64_t))
        if caches is not None:
            self.caches, s.cache = caches, &caches.cache
            s.found = <uint64_t *> get(3 * s.cpus, sizeof(uint64_t))
        policy_from(policy, &asked)
        self.policy = policy
        if asked != NULL:
            s.policy = <policy_state *> get(s.cpus * s.zones, sizeof(policy_state))
            s.asks_high = asked.nr_pcp_high != NULL
            for i in range(s.cpus * s.zones):
                s.policy[i].policy = asked
                s.policy[i].cpu = i // s.zones
        s.woken = <int32_t *> get(s.cpus, sizeof(int32_t))
        s.tables = tables.shape[0]
        if s.tables:
            memcpy(s.table, &tables[0, 0], s.tables * TABLE * sizeof(int32_t))
        memcpy(s.speed, &speed[0], TABLE * sizeof(uint32_t))
        for k in range(KINDS):
            memcpy(s.spread[k], &spread[k, 0], TABLE * sizeof(uint32_t))
            memcpy(s.cost[k], &costs[k, 0], (COSTS + 1) * sizeof(int64_t))
        for k in range(2):
            self.handoff[k][0], self.handoff[k][1] = handoffs[k, 0], handoffs[k, 1]
        s.drainer = -1
        if changes is not None and changes.shape[0]:
            s.changes = changes.shape[0]
            s.change = <change_t *> get(s.changes, sizeof(change_t))
            s.size = <sizes_t *> get(s.changes * s.zones, sizeof(sizes_t))
            for i in range(s.changes):
                s.change[i].at, s.change[i].kind = changes[i, 0], changes[i, 1]
                s.change[i].cpu = changes[i, 2]
                for z in range(s.zones):
                    s.size[i * s.zones + z] = sizes_t(
                        sizes[i, z, 0], sizes[i, z, 1], sizes[i, z, 2], sizes[i, z, 3]
                    )
        drain_all_over(s)
        if fails is not None:
            s.trylock = 1
            memcpy(s.fails, &fails[0], TABLE * sizeof(int32_t))
        s.end, s.warm, s.tick, s.sample_every = times[0], times[1], times[2], times[3]
        s.samples = times[4]
        s.series = <int64_t *> get(2 * s.cpus * s.samples, sizeof(int64_t))
        s.nohz_idle, s.pagevec = nohz_idle, pagevec
        assert sizeof(cpu_t) == 256 and sizeof(pcp_t) == 128 and sizeof(count_t) == 192
        for z in range(s.zones):
            s.zone[z].free, s.zone[z].min_wmark = zones[z, 0], zones[z, 1]
            s.zone[z].low_wmark, s.zone[z].high_wmark = zones[z, 2], zones[z, 3]
            s.zone[z].node = zones[z, 4]
            s.zone[z].level = s.zone[z].seen = level_of(&s.zone[z])
            s.watch |= s.zone[z].level < ABOVE_HIGH
            s.zone[z].mask = 1
            while s.zone[z].mask < s.cpus:
                s.zone[z].mask = 2 * s.zone[z].mask + 1
            s.zone[z].notice = <notice_t *> get(s.zone[z].mask + 1, sizeof(notice_t))
            s.nodes = max(s.nodes, s.zone[z].node + 1)
        self.nlocks = s.zones + s.nodes
        s.zonelist = <int32_t *> get(s.cpus * s.zones, sizeof(int32_t))
        memcpy(s.zonelist, &zonelists[0, 0], s.cpus * s.zones * sizeof(int32_t))
        s.kswapd = <int32_t *> get(s.nodes, sizeof(int32_t))
        for i in range(s.nodes):
            s.kswapd[i] = -1
        s.order = <uint64_t *> get(self.nlocks, sizeof(uint64_t))
        for i in range(s.channels):
            ch = &s.channel[i]
            ch.size, ch.latency = channels[i, 0], channels[i, 1]
            ch.producer, ch.consumer = channels[i, 2], channels[i, 3]
            ch.sent = <int64_t *> get(ch.size, sizeof(int64_t))
            ch.received = <int64_t *> get(ch.size, sizeof(int64_t))
            ch.carried = <int32_t *> get(ch.size * 16, sizeof(int32_t))
        starts = []
        for program in programs:
            starts.append(total)
            total += program.shape[0]
        self.ops = <op_t *> get(total, sizeof(op_t))
        for k, program in enumerate(programs):
            code = program
            for i in range(code.shape[0]):
                self.ops[starts[k] + i] = op_t(
                    ps=code[i, 0], code=code[i, 1], n=code[i, 2], reg=code[i, 3],
                    pindex=min(code[i, 4], s.lists - 1), order=code[i, 5], zone=code[i, 6],
                    target=code[i, 7], depth=code[i, 8],
                )
        for i in range(s.cpus):
            c = &s.cpu[i]
            c.id = i
            c.at[HOME], c.at[PEER], c.local = cpus[i, 0], cpus[i, 1], cpus[i, 3]
            for k in range(CHANNELS):
                c.channel[k] = cpu_channels[i, k]
            c.program = c.pc = self.ops + <int64_t> starts[cpus[i, 2]]
            c.left = -1
            c.work_left = -1
            c.lru_left = pagevec
            # Each CPU its own stream, from seed and CPU number alone.
            key = seed
            key = draw(&key) ^ (<uint64_t> i + 1) * <uint64_t> 0xD1342543DE82EF95
            c.rng = draw(&key)
            c.factor = s.speed[draw(&c.rng) >> 54]
            c.time, c.tick_at = cpu_times[i, 0], cpu_times[i, 1]
            c.sample_at = s.sample_every if s.samples else INT64_MAX
            c.change_at = s.change[0].at if s.changes else INT64_MAX
            if s.trylock:
                c.quiet = s.fails[draw(&c.rng) >> 54]
            set_timer(s, c)
            for z in range(s.zones):
                p = pcp_of(s, c, z)
                p.pcp.batch, p.pcp.high_min = pcps[z, 0], pcps[z, 1]
                p.pcp.high_max, p.pcp.flags = pcps[z, 2], pcps[z, 3]
                p.pcp.high = p.pcp.high_min

        for cpu, z, reclaimable in cached:
            self.cache(cpu, z, reclaimable)

    cdef int cache(self, int cpu, int zone, pages) except -1:
        """Give a kswapd what it may reclaim."""
        cdef state_t *s = &self.s
        cdef const int64_t[::1] numbers
        cdef page_ring *mine
        cdef int64_t i
        s.kswapd[s.zone[zone].node] = cpu
        s.cpu[cpu].starved = s.watch = 1
        if s.pages == NULL:
            held_of(s, &s.cpu[cpu], zone)[MIGRATE_MOVABLE] = pages
            return 0
        numbers = pages
        mine = mine_of(s, &s.cpu[cpu], zone, MIGRATE_MOVABLE)
        if page_ring_reserve(mine, numbers.shape[0]) < 0:
            raise MemoryError
        for i in range(numbers.shape[0]):
            page_ring_push_tail(mine, <uint32_t> numbers[i])
        held_of(s, &s.cpu[cpu], zone)[MIGRATE_MOVABLE] = numbers.shape[0]
        return 0

    def __dealloc__(self):
        cdef int i
        if self.s.zone != NULL:
            for i in range(self.s.zones):
                free(self.s.zone[i].notice)
        if self.s.mine != NULL:
            for i in range(self.s.cpus * self.s.zones * 16):
                page_ring_free(&self.s.mine[i])
        if self.s.channel != NULL:
            for i in range(self.s.channels):
                page_ring_free(&self.s.channel[i].pages)
                free(self.s.channel[i].sent)
                free(self.s.channel[i].received)
                free(self.s.channel[i].carried)
        for p in (
            <size_t> self.s.cpu, <size_t> self.s.pcp, <size_t> self.s.count,
            <size_t> self.s.held, <size_t> self.s.zone, <size_t> self.s.channel,
            <size_t> self.s.table, <size_t> self.s.woken, <size_t> self.s.series,
            <size_t> self.ops, <size_t> self.s.order, <size_t> self.s.mine,
            <size_t> self.s.digest, <size_t> self.s.policy, <size_t> self.s.carry,
            <size_t> self.s.found, <size_t> self.s.zonelist, <size_t> self.s.kswapd,
            <size_t> self.s.change, <size_t> self.s.size,
        ):
            free(<void *> <size_t> p)

    cdef int check(self) except -1:
        """After some events: raise what a callback raised, or what it did wrong."""
        cdef int i
        if self.s.failed == POLICY_FAILED:
            for i in range(self.s.cpus * self.s.zones):
                policy_failed(&self.s.policy[i])
        return 0

    @property
    def failed(self):
        """0; 1 if a zone ran out of memory; 2 if lists of pages and counts disagree."""
        return self.s.failed

    @property
    def events(self):
        """Lock interactions so far."""
        return self.s.events

    @property
    def order_digests(self):
        """Of each lock: digest of (CPU, arrival) of all grants, in order."""
        return tuple([self.s.order[i] for i in range(self.nlocks)])

    def counters(self):
        """Counters of each CPU since the end of the warm-up, by name."""
        cdef int i, k
        result = []
        for i in range(self.s.cpus):
            counts = dict(self.s.count[i])
            del counts["pad"]
            for k, where in enumerate(FOUND):
                counts[where] = self.s.found[3 * i + k] if self.s.found != NULL else 0
            result.append(counts)
        return result

    def histograms(self):
        """``{what: {kind: [counts]}}`` of wait, hold and latency; HIST buckets each."""
        cdef int k
        result = {"wait": {}, "hold": {}, "latency": {}}
        for k, name in enumerate(KIND_NAMES):
            result["wait"][name] = self.s.wait[k]
            result["hold"][name] = self.s.hold[k]
            result["latency"][name] = self.s.latency[k]
        return result

    def over(self):
        """Interactions whose wait and hold together pass 100 us, 1 ms, 10 ms, by kind."""
        cdef int k
        result = {}
        for k, name in enumerate(KIND_NAMES):
            result[name] = self.s.over[k]
        return result

    def series(self):
        """Pages in PCPs and held by programs: int64 of [cpu][2][samples] as bytes."""
        return (<char *> self.s.series)[: 2 * self.s.cpus * self.s.samples * sizeof(int64_t)]

    def pcps(self):
        """``[cpu][zone]`` -> the scalars and list lengths of the PCP."""
        cdef int i, z
        cdef pcp_t *p
        result = []
        for i in range(self.s.cpus):
            result.append([])
            for z in range(self.s.zones):
                p = pcp_of(&self.s, &self.s.cpu[i], z)
                result[i].append(dict(p.pcp, blocks=p.blocks))
        return result

    def held(self):
        """Pages that the programs hold, of each zone (lists of blocks weighted by order)."""
        cdef int i, z, k
        pages = [0] * self.s.zones
        for i in range(self.s.cpus):
            for z in range(self.s.zones):
                for k in range(self.s.lists):
                    pages[z] += (
                        held_of(&self.s, &self.s.cpu[i], z)[k] << pindex_to_order(k)
                    )
        return pages

    def page_digests(self):
        """With page identity: of each CPU, a digest of the pages it allocated, in order."""
        cdef int i
        return [self.s.digest[i] for i in range(self.s.cpus) if self.s.pages != NULL]

    def page_lists(self):
        """With page identity: ``[cpu][zone]`` -> page numbers of each list, head first."""
        cdef int i, z, k
        cdef uint32_t j
        cdef page_ring *ring
        result = []
        for i in range(self.s.cpus if self.s.pages != NULL else 0):
            result.append([])
            for z in range(self.s.zones):
                lists = []
                for k in range(self.s.lists):
                    ring = &pageset_of(self.s.pages, z, i).lists[k]
                    lists.append([page_ring_at(ring, j) for j in range(ring.len)])
                result[i].append(lists)
        return result

    def zone_free(self):
        """Pages on the buddy lists of each zone."""
        return [self.s.zone[z].free for z in range(self.s.zones)]

    def times_ps(self):
        """Local time of each CPU [ps]."""
        return [self.s.cpu[i].time for i in range(self.s.cpus)]

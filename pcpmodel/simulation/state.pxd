"""What both engines work on: programs, CPUs, per-CPU lists by count, zones, locks, counters.

Shared here is all that does not depend on how time advances: fetching
operations, channels, timers, what one lock interaction does, bookkeeping.
How single pages move (`engine.pyx` skips, `per_page.pyx` does not), in which
order CPUs run and who gets a lock is each engine's own.

Times are integers [ps].
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pcpmodel.kernel.buddy cimport block_type, free_direct, rmqueue_buddy, rmqueue_bulk
from pcpmodel.kernel.page_alloc cimport PageAllocator, memory, pageset_of
from pcpmodel.kernel.pages cimport (
    MAX_PCP_LISTS,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    NO_PAGE,
    W_HELD,
    W_MOVABLE,
    ZONE_BELOW_HIGH,
    ZONE_RECLAIM_ACTIVE,
    fill_words,
    order_to_pindex,
    page_ring,
    page_ring_at,
    page_ring_pop_head,
    page_ring_push_head,
    page_ring_push_tail,
    page_ring_reserve,
    pages_unlikely,
    pcp_word,
    pindex_to_order,
)
from pcpmodel.kernel.pcp cimport (
    PCPF_FREE_HIGH_BATCH,
    decay_pcp_high,
    decide_alloc,
    decide_decay,
    decide_free,
    decide_high,
    free_pcppages_bulk,
    nr_pcp_alloc,
    nr_pcp_free,
    nr_pcp_high,
    pageset,
    pcp_alloc_begin,
    pcp_alloc_end,
    pcp_commit,
    per_cpu_pages,
    policy_state,
)
from pcpmodel.kernel.rules cimport (
    COMMIT_CHUNKS,
    COMMIT_CHUNKS_WHILE_HIGH,
    COMMIT_WHOLE,
    DECAY_NONE,
    pcp_rules,
)
from pcpmodel.machine.cache cimport PageCache, cache_touch, page_cache
from pcpmodel.workload.ops cimport (
    ALL,
    CHANNELS,
    HOME,
    LOOPS,
    OP_ALLOC,
    OP_DRAW,
    OP_END,
    OP_FREE,
    OP_GIVE,
    OP_IDLE,
    OP_KSWAPD,
    OP_LOOP,
    OP_MAYBE,
    OP_PICK,
    OP_RECV,
    OP_SCORE,
    OP_SEND,
    OP_TAKE,
    OP_WORK,
    PEER,
    REGISTERS,
    TABLE,
)

cdef enum:
    # What a CPU does
    RUNNING = 0
    ARRIVED = 1  # asks for a lock
    BLOCKED = 2  # waits for a message or for room
    FINISHED = 3
    WAITING = 4  # for a PCP lock

    # Lock interactions
    REFILL = 0
    DRAIN = 1
    LRU = 2
    KINDS = 3
    LOOK = 3  # no lock: kswapd looks at its zones

    # Why: up to BY_DEATH the CPU holds the PCP lock of its own lists meanwhile
    BY_NEED = 0  # a refill
    BY_COMMIT = 0
    BY_TICK = 1
    BY_DEATH = 2  # the CPU goes offline
    BY_REMOTE = 3  # drain_all_pages(): the lists of c.target
    DIRECT = 4  # one block past the lists: the trylock failed

    # What a CPU is doing beside its program
    NO_CHORE = 0
    TICK = 1
    DEATH = 2
    DRAIN_ALL = 3
    OFFLINE = 4

    # Free pages of a zone: up to min; above min, low, high
    ABOVE_MIN = 1
    ABOVE_LOW = 2
    ABOVE_HIGH = 3

    # Changes of the machine
    RESIZE = 0
    CPU_OFFLINE = 1
    CPU_ONLINE = 2
    DRAIN_PAGES = 3

    HIST = 320  # buckets: 8 per power of two [ns]
    COSTS = 4096  # blocks; beyond, the cost of a hold grows by its last slope
    NONE_FAILED = 0
    OUT_OF_MEMORY = 1
    DISAGREEMENT = 2  # lists of pages and their counts differ: our mistake
    POLICY_FAILED = 3  # a callback raised, or answered what it must not


cdef struct op_t:
    int64_t ps  # per block, or the duration
    int32_t code
    int32_t n  # blocks (or ALL), channel slot, times round the loop, units
    int32_t reg  # register that holds n; -1: n itself
    int32_t pindex  # PCP list of the blocks
    int32_t order
    int32_t zone  # HOME or PEER
    int32_t target  # OP_LOOP: index to return to; OP_DRAW: table; OP_GIVE: channel slot
    int32_t depth  # OP_LOOP: which loop counter; OP_ALLOC, OP_FREE: 1 if on the LRU


cdef struct pcp_t:  # one (CPU, zone): two cache lines
    per_cpu_pages pcp
    int32_t view  # zone flags as this CPU last saw them: at its last hold of the zone lock
    int32_t touched  # refilled or drained since the last vmstat tick
    int32_t blocks[MAX_PCP_LISTS]  # blocks on each list; their pages add up to pcp.count
    int32_t locked  # pages on them when another CPU took their lock
    int64_t remote  # another CPU has the PCP lock until then; INT64_MAX: nobody knows yet
    int32_t more[2]


cdef struct cpu_t:  # four cache lines; what every event needs comes first
    int64_t time
    int64_t timer  # next of tick, sample, warm-up end, run end
    uint64_t rng
    op_t *pc
    uint32_t factor  # of work: drawn anew by every operation and hold; 16 binary digits
    int32_t left  # blocks left of the operation; -1: not begun
    int32_t state
    int32_t kind  # of the interaction
    int32_t lock
    int32_t zone  # of the interaction
    int32_t id
    int32_t at[2]  # zone: HOME, PEER
    int32_t pindex
    int32_t why
    int32_t want  # pages to drain in this hold; blocks that it brought
    int32_t rest  # pages to drain after it
    int32_t high  # what nr_pcp_high() said for this commit
    int32_t chore  # vmstat tick, going offline, drain_all_pages()
    int32_t waiter  # 1 + CPU that waits for this one to let go of a PCP lock
    int32_t quiet  # operations until a PCP trylock fails
    int32_t lru_left  # pages until the pagevec is full
    int64_t work_left  # of OP_WORK or OP_IDLE; -1: not begun
    op_t *program
    int64_t tick_at
    int64_t sample_at
    int32_t tick_phase
    int32_t sample
    int32_t warm  # warm-up is over
    int32_t local  # bit per zone: on this CPU's node
    int32_t channel[CHANNELS]
    int32_t regs[REGISTERS]
    int32_t loops[LOOPS]
    int32_t chore_zone
    int64_t change_at  # next change of the machine
    int64_t release_at  # end of the last hold, where CPUs drain others' lists
    int32_t pcp_zone  # whose PCP lock it held meanwhile; -1: none
    int32_t change
    int32_t target  # whose lists drain_all_pages() is at
    int32_t marked  # had pages when that began
    int32_t relocks  # comes for another chunk of a commit
    int32_t wanted  # blocks to free after those of the zone at hand
    int32_t strayed  # has taken pages of another zone than its own
    int32_t starved  # asleep until kswapd has freed something; of kswapd: until it is woken


cdef struct count_t:  # three cache lines, likewise
    uint64_t refills
    uint64_t refill_pages
    uint64_t drains  # holds of the zone lock that freed pages
    uint64_t drain_pages
    int64_t wait_ps
    int64_t hold_ps
    int64_t wait_max_ps
    uint64_t moved_blocks
    uint64_t alloc_blocks
    uint64_t alloc_pages
    uint64_t free_pages
    uint64_t free_high
    uint64_t score
    uint64_t tick_pages
    uint64_t lru_holds
    int64_t lru_wait_ps
    int64_t lru_hold_ps
    int64_t idle_ps
    int64_t start_ps
    int64_t end_ps
    int64_t lru_wait_max_ps
    uint64_t direct_allocs
    uint64_t direct_frees
    int64_t pad[1]


cdef struct notice_t:
    int64_t at  # end of the hold
    int32_t level


cdef struct zone_t:
    int64_t free  # pages on the buddy lists
    int64_t min_wmark
    int64_t low_wmark
    int64_t high_wmark
    int32_t flags
    int32_t node
    int32_t reclaims  # ZONE_RECLAIM_ACTIVE while kswapd is at work, else 0
    int32_t level  # of free pages, after the last hold
    int32_t seen  # what CPUs without the lock knew when the last one looked
    int32_t mask  # ring of changes of the level that CPUs have yet to see
    uint32_t head
    uint32_t tail
    notice_t *notice


cdef struct change_t:
    int64_t at
    int32_t kind
    int32_t cpu
    int32_t done  # DRAIN_PAGES


cdef struct sizes_t:  # of the lists of a zone [pages]
    int32_t batch
    int32_t high_min
    int32_t high_max
    int32_t flags  # -1: as they are


cdef struct channel_t:
    int64_t *sent  # ring of times
    int64_t *received
    int32_t *carried  # [message][16]: blocks given, by list
    page_ring pages  # blocks under way, with page identity
    int64_t nsent
    int64_t nreceived
    int64_t latency
    int32_t size
    int32_t producer
    int32_t consumer


cdef struct state_t:
    int32_t cpus
    int32_t zones
    int32_t channels
    int32_t lists
    pcp_rules rules
    cpu_t *cpu
    pcp_t *pcp  # [cpu][zone]
    count_t *count
    int32_t *held  # [cpu][zone][16]: blocks that the program holds, by list
    int32_t *carry  # [cpu][2][16]: blocks for the next message; come with the last one
    zone_t *zone
    int32_t *zonelist  # [cpu][zone]; -1: no more
    int32_t *kswapd  # CPU of each node's; -1: none
    int32_t nodes
    int32_t watch  # some zone has been short of pages
    int32_t starving  # CPUs that are starved
    channel_t *channel
    int32_t *table  # [tables][TABLE], for OP_DRAW
    int32_t tables
    uint32_t speed[TABLE]  # unit mean, 16 binary digits after the point
    uint32_t spread[KINDS][TABLE]  # of the holds
    int64_t cost[KINDS][COSTS + 1]  # mean hold by blocks moved
    int64_t end
    int64_t warm
    int64_t tick  # vm.stat_interval; 0: no vmstat worker
    int64_t sample_every
    int32_t samples
    int32_t nohz_idle
    int32_t pagevec
    int32_t failed
    int64_t *series  # [cpu][2][samples]: pages in PCPs, pages held by the program
    uint64_t wait[KINDS][HIST]
    uint64_t hold[KINDS][HIST]
    uint64_t latency[KINDS][HIST]
    uint64_t over[KINDS][3]  # latency above 100 us, 1 ms, 10 ms
    uint64_t *order  # of each lock: digest of (CPU, time of arrival) in the order of grants
    int64_t events
    policy_state *policy  # [cpu][zone]: a user's rule; NULL: the kernel's alone
    int32_t asks_high  # that rule says when a free drains: every free asks it
    memory *pages  # with page identity: the zones and lists; else NULL
    page_ring *mine  # [cpu][zone][16]: blocks that the program holds, oldest first
    uint64_t *digest  # of each CPU: of the pages that it allocated, in order
    page_cache *cache  # of each CPU: what it last used; else NULL
    uint64_t *found  # [cpu][3]: pages allocated, by where they were found
    int32_t *woken  # CPUs that a message set free, to be run next
    int32_t nwoken
    int32_t changes
    change_t *change
    sizes_t *size  # [change][zone]
    # From the first drain_all_pages() that is not over yet on CPUs look at each other's lists:
    # nobody may run ahead.
    int64_t careful_from
    int32_t drainer  # -1: none
    int32_t trylock  # PCP trylocks fail now and then
    int32_t fails[TABLE]  # operations between two of them, equally likely values


cdef inline uint64_t draw(uint64_t *rng) noexcept nogil:
    """splitmix64 (Steele, Lea, Flood 2014)."""
    cdef uint64_t z
    rng[0] += <uint64_t> 0x9E3779B97F4A7C15
    z = rng[0]
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EB
    return z ^ (z >> 31)


cdef inline int64_t scaled(int64_t ps, uint32_t factor) noexcept nogil:
    return (ps * factor) >> 16


cdef extern from *:
    """
    #define pcpmodel_clz64(x) __builtin_clzll(x)
    """
    int clz64 "pcpmodel_clz64"(uint64_t x) noexcept nogil


@cython.cdivision(True)
cdef inline int bucket(int64_t ps) noexcept nogil:
    """Histogram bucket of a time: 8 per power of two of ns, exact below 16 ns."""
    cdef uint64_t ns = <uint64_t> ps // 1000
    cdef int e = 60 - clz64(ns | 8)  # no branch: whether a CPU waits is hard to predict
    return min(e * 8 + <int> (ns >> e), HIST - 1)


cdef inline pcp_t *pcp_of(state_t *s, cpu_t *c, int zone) noexcept nogil:
    return &s.pcp[c.id * s.zones + zone]


cdef inline int32_t *held_of(state_t *s, cpu_t *c, int zone) noexcept nogil:
    return &s.held[(c.id * s.zones + zone) * 16]


# The kernel's decisions, or those of a user's policy.  Once a callback has failed none is asked.


cdef inline policy_state *policy_of(state_t *s, cpu_t *c, int zone) noexcept nogil:
    return &s.policy[c.id * s.zones + zone]


cdef inline int answered(state_t *s, policy_state *policy, int answer) noexcept nogil:
    if policy.error:
        s.failed = POLICY_FAILED
    return answer


cdef inline int refill_blocks(state_t *s, cpu_t *c, pcp_t *p, int flags, int order) noexcept nogil:
    cdef policy_state *policy
    if s.policy == NULL:
        return nr_pcp_alloc(&p.pcp, &s.rules, flags, order)
    if s.failed:
        return 1
    policy = policy_of(s, c, c.zone)
    return answered(s, policy, decide_alloc(policy, &p.pcp, &s.rules, flags, order))


cdef inline int drain_from(state_t *s, cpu_t *c, pcp_t *p, int zone, int order,
                           bint free_high) noexcept nogil:
    cdef policy_state *policy
    if s.policy == NULL:
        return nr_pcp_high(&p.pcp, &s.rules, p.view, free_high)
    if s.failed:
        return p.pcp.count + 1
    policy = policy_of(s, c, zone)
    return answered(
        s, policy, decide_high(policy, &p.pcp, &s.rules, p.view, order, free_high)
    )


cdef inline int pages_to_drain(state_t *s, cpu_t *c, pcp_t *p, int zone, int order, int high,
                               bint free_high) noexcept nogil:
    cdef policy_state *policy
    if s.policy == NULL:
        return nr_pcp_free(&p.pcp, &s.rules, high, free_high)
    if s.failed:
        return 0
    policy = policy_of(s, c, zone)
    return answered(
        s, policy, decide_free(policy, &p.pcp, &s.rules, p.view, order, free_high, high)
    )


cdef inline int pages_to_decay(state_t *s, cpu_t *c, pcp_t *p, int zone) noexcept nogil:
    cdef policy_state *policy
    cdef bint work
    if s.policy == NULL:
        return decay_pcp_high(&p.pcp, &s.rules, &work)
    if s.failed:
        return 0
    policy = policy_of(s, c, zone)
    return answered(s, policy, decide_decay(policy, &p.pcp, &s.rules, p.view, &work))


cdef inline int32_t *carry_of(state_t *s, cpu_t *c, bint arrived) noexcept nogil:
    return &s.carry[(2 * c.id + arrived) * 16]


@cython.cdivision(True)
cdef inline int32_t *carried_by(channel_t *ch, int64_t message) noexcept nogil:
    return &ch.carried[message % ch.size * 16]


cdef inline void arrive(cpu_t *c, int kind, int lock, int zone, int why) noexcept nogil:
    c.state = ARRIVED
    c.kind = kind
    c.why = why
    c.lock = lock
    c.zone = zone


cdef inline void arrive_drain(cpu_t *c, int zone, int pindex, int why) noexcept nogil:
    arrive(c, DRAIN, zone, zone, why)
    c.pindex = pindex


cdef inline void arrive_refill(state_t *s, cpu_t *c) noexcept nogil:
    arrive(c, REFILL, c.at[c.pc.zone], c.at[c.pc.zone], BY_NEED)
    c.pindex = c.pc.pindex


cdef inline void arrive_direct(state_t *s, cpu_t *c) noexcept nogil:
    """The PCP trylock failed: one block past the lists."""
    cdef int zone = c.at[c.pc.zone]
    arrive(c, REFILL if c.pc.code == OP_ALLOC else DRAIN, zone, zone, DIRECT)
    c.pindex = c.pc.pindex


cdef inline bint trylock_fails(state_t *s, cpu_t *c) noexcept nogil:
    return s.trylock and c.quiet == 0


cdef inline int64_t drain_counts(state_t *s, pcp_t *p, int n, int start) noexcept nogil:
    """free_pcppages_bulk() by count: whole lists in turn; returns the blocks freed."""
    cdef int i = start - 1, take, order
    cdef int64_t blocks = 0
    n = min(n, p.pcp.count)
    while n > 0:
        while True:
            i += 1
            if i >= s.lists:
                i = 0
            if p.blocks[i]:
                break
        order = pindex_to_order(i)
        take = min(p.blocks[i], (n + (1 << order) - 1) >> order)
        p.blocks[i] -= take
        p.pcp.count -= take << order
        n -= take << order
        blocks += take
    return blocks


cdef inline int64_t cost_of(state_t *s, int kind, int64_t blocks) noexcept nogil:
    cdef int64_t *cost = s.cost[kind]
    if blocks <= COSTS:
        return cost[blocks]
    return cost[COSTS] + (blocks - COSTS) * (cost[COSTS] - cost[COSTS - 1])


cdef inline page_ring *mine_of(state_t *s, cpu_t *c, int zone, int pindex) noexcept nogil:
    return &s.mine[(c.id * s.zones + zone) * 16 + pindex]


cdef inline void use_pages(state_t *s, cpu_t *c, int zone, uint32_t page, int order,
                           bint count) noexcept nogil:
    """The program uses a block, whose pages are then in the CPU's caches."""
    cdef uint32_t i
    cdef int where
    for i in range(<uint32_t> 1 << order):
        where = cache_touch(s.cache, c.id, (page + i) ^ <uint32_t> zone << 26)
        s.found[3 * c.id + where] += count


cdef inline void take_pages(state_t *s, cpu_t *c, int zone, int pindex, int n) noexcept nogil:
    """With page identity: n blocks go from the head of a list to the program."""
    cdef page_ring *list
    cdef page_ring *mine
    cdef uint32_t page, word = W_HELD
    cdef int _i, order = pindex_to_order(pindex)
    if s.pages == NULL:
        return
    list = &pageset_of(s.pages, zone, c.id).lists[pindex]
    mine = mine_of(s, c, zone, pindex)
    if list.len < <uint32_t> n or page_ring_reserve(mine, n) < 0:
        s.failed = DISAGREEMENT
        return
    if pindex % MIGRATE_PCPTYPES == MIGRATE_MOVABLE:
        word |= W_MOVABLE
    for _i in range(n):
        page = page_ring_pop_head(list)
        fill_words(s.pages.zone[zone].page + page, word, 1 << order)
        page_ring_push_tail(mine, page)
        s.digest[c.id] = (s.digest[c.id] ^ page) * <uint64_t> 0x100000001B3
        if s.cache != NULL:
            use_pages(s, c, zone, page, order, True)


cdef inline int put_pages(state_t *s, cpu_t *c, int zone, int pindex, int n) noexcept nogil:
    """n blocks go from the program to the heads of their lists; returns the last one's list.

    By count that is the list that they came from; with page identity the one of their page
    block's type, as free_unref_page() chooses it.
    """
    cdef pcp_t *p = pcp_of(s, c, zone)
    cdef page_ring *mine
    cdef pageset *ps
    cdef uint32_t page
    cdef int _i, mt, at = pindex, order
    if s.pages == NULL:
        p.blocks[pindex] += n
        return pindex
    order = pindex_to_order(pindex)
    mine = mine_of(s, c, zone, pindex)
    ps = pageset_of(s.pages, zone, c.id)
    if mine.len < <uint32_t> n:
        s.failed = DISAGREEMENT
        return pindex
    for _i in range(n):
        page = page_ring_pop_head(mine)
        mt = block_type(&s.pages.zone[zone], page)
        at = order_to_pindex(
            s.lists, mt if mt < MIGRATE_PCPTYPES else <int> MIGRATE_MOVABLE, order
        )
        if page_ring_reserve(&ps.lists[at], 1) < 0:
            s.failed = OUT_OF_MEMORY
        fill_words(s.pages.zone[zone].page + page, pcp_word(mt, at, c.id), 1 << order)
        page_ring_push_head(&ps.lists[at], page)
        p.blocks[at] += 1
    return at


cdef inline void pass_pages(state_t *s, page_ring *source, page_ring *target,
                            int n) noexcept nogil:
    """n blocks go from a program to a message or back."""
    cdef int _i
    if source.len < <uint32_t> n or page_ring_reserve(target, n) < 0:
        s.failed = DISAGREEMENT
        return
    for _i in range(n):
        page_ring_push_tail(target, page_ring_pop_head(source))


cdef inline int refill_pages(state_t *s, cpu_t *c, int order, int n) noexcept nogil:
    """rmqueue_bulk() with page identity; returns the blocks it found."""
    cdef int mt = c.pindex % MIGRATE_PCPTYPES if order < 4 else <int> MIGRATE_MOVABLE
    return rmqueue_bulk(
        &s.pages.zone[c.zone], order, n, mt, 0,
        &pageset_of(s.pages, c.zone, c.id).lists[c.pindex], c.pindex, c.id,
    )


cdef inline void drain_pages(state_t *s, cpu_t *c, int owner, int before,
                             int after) noexcept nogil:
    cdef pageset *ps = pageset_of(s.pages, c.zone, owner)
    ps.pcp.count = before
    free_pcppages_bulk(&s.pages.zone[c.zone], ps, c.want, c.pindex)
    if ps.pcp.count != after:
        s.failed = DISAGREEMENT


cdef inline int level_of(const zone_t *zone) noexcept nogil:
    return (
        (zone.free > zone.min_wmark) + (zone.free > zone.low_wmark)
        + (zone.free > zone.high_wmark)
    )


cdef inline void nothing_left(state_t *s, cpu_t *c, zone_t *zone) noexcept nogil:
    """No block for a CPU that has the lock: others had been there before it, or it is the end."""
    if level_of(zone) >= ABOVE_MIN or c.pc.zone != HOME:
        s.failed = OUT_OF_MEMORY


cdef inline int past_lists(state_t *s, cpu_t *c, zone_t *zone) noexcept nogil:
    """rmqueue_buddy() or free_one_page() under the zone lock; returns the blocks moved."""
    cdef count_t *n = &s.count[c.id]
    cdef int order = pindex_to_order(c.pindex), mt = c.pindex % MIGRATE_PCPTYPES
    cdef page_ring *mine
    cdef uint32_t page
    if s.pages != NULL:
        mine = mine_of(s, c, c.zone, c.pindex)
    if c.kind == DRAIN:
        zone.free += 1 << order
        n.direct_frees += 1
        if s.pages != NULL:
            free_direct(&s.pages.zone[c.zone], page_ring_pop_head(mine), order)
        return 1
    c.want = zone.free >= 1 << order
    if not c.want:
        nothing_left(s, c, zone)
        return 0
    zone.free -= 1 << order
    n.direct_allocs += 1
    if s.pages != NULL:
        if order > 3:
            mt = MIGRATE_MOVABLE
        page = rmqueue_buddy(&s.pages.zone[c.zone], order, mt, 0)
        if page == NO_PAGE or page_ring_reserve(mine, 1) < 0:
            s.failed = OUT_OF_MEMORY
            return 1
        fill_words(
            s.pages.zone[c.zone].page + page,
            W_HELD | W_MOVABLE if mt == MIGRATE_MOVABLE else W_HELD, 1 << order,
        )
        page_ring_push_tail(mine, page)
        s.digest[c.id] = (s.digest[c.id] ^ page) * <uint64_t> 0x100000001B3
        if s.cache != NULL:
            use_pages(s, c, c.zone, page, order, True)
    return 1


cdef inline int64_t drain_lists(state_t *s, cpu_t *c, int owner, zone_t *zone) noexcept nogil:
    """free_pcppages_bulk(): ``c.want`` pages of a CPU's lists; returns the blocks freed."""
    cdef pcp_t *p = pcp_of(s, &s.cpu[owner], c.zone)
    cdef count_t *n = &s.count[c.id]
    cdef int before = p.pcp.count, got
    cdef int64_t blocks = drain_counts(s, p, c.want, c.pindex)
    got = before - p.pcp.count
    if s.pages != NULL:
        drain_pages(s, c, owner, before, p.pcp.count)
    zone.free += got
    n.drains += 1
    n.drain_pages += got
    return blocks


cdef inline int64_t refill_list(state_t *s, cpu_t *c, pcp_t *p, zone_t *zone) noexcept nogil:
    """rmqueue_bulk() of what nr_pcp_alloc() says; returns the blocks that it got."""
    cdef count_t *n = &s.count[c.id]
    cdef int order = pindex_to_order(c.pindex), got
    if s.rules.below_high and zone.free <= zone.high_wmark:
        zone.flags |= ZONE_BELOW_HIGH
    pcp_alloc_begin(&p.pcp, &s.rules)
    got = refill_blocks(s, c, p, zone.flags | (p.view & ZONE_RECLAIM_ACTIVE), order)
    if got > zone.free >> order:
        got = <int> (zone.free >> order)
    if s.pages != NULL:
        got = refill_pages(s, c, order, got)
    c.want = got
    if got == 0:
        nothing_left(s, c, zone)
    zone.free -= got << order
    p.pcp.count += got << order
    p.blocks[c.pindex] += got
    n.refills += 1
    n.refill_pages += got << order
    return got


cdef inline int64_t interact(state_t *s, cpu_t *c) noexcept nogil:
    """What a CPU does with the lock, in lock order; returns how long it holds it."""
    cdef pcp_t *p
    cdef zone_t *zone
    cdef count_t *n = &s.count[c.id]
    cdef int64_t blocks, hold
    cdef uint64_t bits, before
    if c.kind == LRU:
        blocks = s.pagevec
        c.lru_left = s.pagevec
        n.lru_holds += 1
    else:
        p = pcp_of(s, c, c.zone)
        zone = &s.zone[c.zone]
        if pages_unlikely(c.why == DIRECT):
            blocks = past_lists(s, c, zone)
        elif pages_unlikely(c.why == BY_REMOTE):
            blocks = drain_lists(s, c, c.target, zone)
        elif c.kind == REFILL:
            blocks = refill_list(s, c, p, zone)
        else:
            before = n.drain_pages
            blocks = drain_lists(s, c, c.id, zone)
            if c.why == BY_TICK:
                n.tick_pages += n.drain_pages - before
            elif (c.why == BY_COMMIT and zone.flags & ZONE_BELOW_HIGH
                    and zone.free > zone.high_wmark):
                zone.flags &= ~ZONE_BELOW_HIGH
        if pages_unlikely(s.policy != NULL) and c.why != DIRECT:
            policy_of(s, &s.cpu[c.target] if c.why == BY_REMOTE else c, c.zone).holds += 1
        p.touched = 1
        p.view = zone.flags | (p.view & ZONE_RECLAIM_ACTIVE)
        n.moved_blocks += blocks
    bits = draw(&c.rng)
    c.factor = s.speed[bits >> 44 & (TABLE - 1)]  # the pace of the work that follows
    hold = scaled(cost_of(s, c.kind, blocks), s.spread[c.kind][bits >> 54])
    return hold if hold > 0 else 1


cdef inline void tell(state_t *s, zone_t *zone, int64_t at) noexcept nogil:
    """From ``at`` on, the end of a hold, all CPUs see what it has done to the zone."""
    cdef notice_t *notice
    cdef int level = level_of(zone)
    if level == zone.level:
        return
    s.watch = 1
    zone.level = level
    # There are more places than CPUs, each in one hold: with none left the oldest is past.
    if zone.tail - zone.head > <uint32_t> zone.mask:
        zone.seen = zone.notice[zone.head & zone.mask].level
        zone.head += 1
    notice = &zone.notice[zone.tail & zone.mask]
    notice.at, notice.level = at, level
    zone.tail += 1


cdef inline int level_seen(zone_t *zone, int64_t now) noexcept nogil:
    while zone.head != zone.tail and zone.notice[zone.head & zone.mask].at <= now:
        zone.seen = zone.notice[zone.head & zone.mask].level
        zone.head += 1
    return zone.seen


cdef inline void account(state_t *s, cpu_t *c, int64_t arrival, int64_t grant,
                         int64_t hold) noexcept nogil:
    cdef count_t *n = &s.count[c.id]
    cdef int64_t wait = grant - arrival, limit
    cdef int i
    cdef uint64_t order = s.order[c.lock]
    s.events += 1
    order = (order ^ <uint64_t> arrival ^ <uint64_t> c.id << 48) * <uint64_t> 0x9E3779B97F4A7C15
    s.order[c.lock] = order ^ order >> 29
    if c.kind == LRU:
        n.lru_wait_ps += wait
        n.lru_hold_ps += hold
        n.lru_wait_max_ps = max(n.lru_wait_max_ps, wait)
    else:
        if pages_unlikely(s.zone[c.zone].free <= s.zone[c.zone].high_wmark
                          or s.zone[c.zone].level < ABOVE_HIGH):
            tell(s, &s.zone[c.zone], grant + hold)
        n.wait_ps += wait
        n.hold_ps += hold
        if wait > n.wait_max_ps:
            n.wait_max_ps = wait
        if pages_unlikely(s.policy != NULL) and wait > 0 and c.why < BY_REMOTE:
            policy_of(s, c, c.zone).waits += 1
    if arrival < s.warm:
        return
    s.wait[c.kind][bucket(wait)] += 1
    s.hold[c.kind][bucket(hold)] += 1
    wait += hold
    s.latency[c.kind][bucket(wait)] += 1
    limit = 100_000_000  # 100 us
    for i in range(3):
        if wait <= limit:
            break
        s.over[c.kind][i] += 1
        limit *= 10


cdef inline void set_timer(state_t *s, cpu_t *c) noexcept nogil:
    cdef int64_t t = min(min(s.end, c.sample_at), c.change_at)
    if not c.warm:
        t = min(t, s.warm)
    if s.tick:
        t = min(t, c.tick_at)
    c.timer = t


cdef inline void next_op(cpu_t *c) noexcept nogil:
    c.pc += 1
    c.left = -1
    c.work_left = -1


cdef inline bint locked_out(state_t *s, cpu_t *c, pcp_t *p) noexcept nogil:
    """Another CPU has the lock of these lists; True if it has, and the CPU waits."""
    if p.remote <= c.time:
        return False
    if p.remote == INT64_MAX:
        s.cpu[s.drainer].waiter = c.id + 1
        c.state = WAITING
    else:
        c.time = p.remote
    return True


cdef inline bint tick_step(state_t *s, cpu_t *c) noexcept nogil:
    """refresh_cpu_vm_stats(), zone by zone; True if it stops for a lock."""
    cdef pcp_t *p
    while c.chore_zone < s.zones:
        p = pcp_of(s, c, c.chore_zone)
        if locked_out(s, c, p):
            return True
        if c.rest > 0:
            c.want = c.rest
            if c.tick_phase == 1 and s.rules.decay_chunks:
                c.want = min(c.rest, p.pcp.batch)
            c.rest -= c.want
            arrive_drain(c, c.chore_zone, 0, BY_TICK)
            return True
        if c.tick_phase == 0:
            c.tick_phase = 1
            c.rest = pages_to_decay(s, c, p, c.chore_zone)
        elif c.tick_phase == 1:
            c.tick_phase = 2
            if s.rules.decay != DECAY_NONE:
                p.pcp.count_min = p.pcp.count
            if p.touched:
                p.touched = 0
                p.pcp.expire = 3
            if p.pcp.expire == 0 or p.pcp.count == 0:
                continue
            if c.local >> c.chore_zone & 1:
                p.pcp.expire = 0
                continue
            p.pcp.expire -= 1
            if p.pcp.expire == 0:
                c.rest = min(p.pcp.count, p.pcp.batch)
        else:
            c.chore_zone += 1
            c.tick_phase = 0
    c.chore = NO_CHORE
    return False


cdef inline void whole_zone(state_t *s, cpu_t *c, pcp_t *p, int why) noexcept nogil:
    """One hold of drain_pages_zone()."""
    c.want = p.pcp.count
    if s.rules.drain_zone_chunks:
        c.want = min(c.want, p.pcp.batch << s.rules.batch_scale_max)
    c.rest = 0
    arrive_drain(c, c.chore_zone, 0, why)


cdef inline bint death_step(state_t *s, cpu_t *c) noexcept nogil:
    """page_alloc_cpu_dead(): the lists of a CPU that goes offline; True if it stops for a lock.

    The kernel does this on another CPU; here it costs no program time of any.
    """
    cdef pcp_t *p
    while c.chore_zone < s.zones:
        p = pcp_of(s, c, c.chore_zone)
        if locked_out(s, c, p):
            return True
        if p.pcp.count:
            whole_zone(s, c, p, BY_DEATH)
            return True
        c.chore_zone += 1
    c.chore = OFFLINE
    return False


cdef inline bint pcp_busy(cpu_t *owner, int zone, int64_t now) noexcept nogil:
    """Whether a CPU is at the zone lock with the PCP lock of its lists in hand."""
    if owner.state == ARRIVED:
        return owner.kind < LRU and owner.why < BY_REMOTE and owner.zone == zone
    return owner.release_at > now and owner.pcp_zone == zone


cdef inline void drain_all_over(state_t *s) noexcept nogil:
    cdef int i
    s.careful_from = INT64_MAX
    for i in range(s.changes):
        if s.change[i].kind == DRAIN_PAGES and not s.change[i].done:
            s.careful_from = min(s.careful_from, s.change[i].at)


cdef inline bint drain_all_step(state_t *s, cpu_t *c) noexcept nogil:
    """drain_all_pages(): the lists of all CPUs, in order; True if it stops for a lock."""
    cdef cpu_t *owner
    cdef pcp_t *p
    while c.target < s.cpus:
        owner = &s.cpu[c.target]
        while owner.marked and c.chore_zone < s.zones:
            p = pcp_of(s, owner, c.chore_zone)
            if owner != c and pcp_busy(owner, c.chore_zone, c.time):
                if owner.state == ARRIVED:
                    owner.waiter = c.id + 1
                    c.state = WAITING
                else:
                    c.time = owner.release_at
                return True
            if p.pcp.count:
                if owner != c:
                    p.remote = INT64_MAX
                    p.locked = p.pcp.count
                whole_zone(s, c, p, BY_REMOTE)
                return True
            c.chore_zone += 1
        owner.marked = 0
        c.target += 1
        c.chore_zone = 0
    s.drainer = -1
    c.chore = NO_CHORE
    s.change[c.tick_phase].done = 1
    drain_all_over(s)
    return False


cdef inline void drain_all_begin(state_t *s, cpu_t *c, int change) noexcept nogil:
    cdef cpu_t *owner
    cdef int i, z
    if s.drainer >= 0:  # only one at a time; the other returns
        s.change[change].done = 1
        drain_all_over(s)
        return
    s.drainer = c.id
    c.chore = DRAIN_ALL
    c.tick_phase = change
    c.target = c.chore_zone = 0
    for i in range(s.cpus):
        owner = &s.cpu[i]
        for z in range(s.zones):
            if pcp_busy(owner, z, c.time) or pcp_of(s, owner, z).pcp.count:
                owner.marked = 1


cdef inline bint chore_step(state_t *s, cpu_t *c) noexcept nogil:
    """Go on with what the CPU does beside its program; True if it stops for a lock."""
    if c.chore == TICK:
        return tick_step(s, c)
    if c.chore == DEATH:
        return death_step(s, c)
    if c.chore == DRAIN_ALL:
        return drain_all_step(s, c)
    return False


cdef inline void change(state_t *s, cpu_t *c) noexcept nogil:
    """The next change of the machine, as far as it concerns this CPU.

    pageset_update() for its lists; the tuned ``high`` follows at its next use.
    """
    cdef int k = c.change, z
    cdef per_cpu_pages *pcp
    cdef sizes_t *size
    c.change += 1
    c.change_at = s.change[c.change].at if c.change < s.changes else INT64_MAX
    for z in range(s.zones):
        pcp = &pcp_of(s, c, z).pcp
        size = &s.size[k * s.zones + z]
        pcp.batch, pcp.high_min, pcp.high_max = size.batch, size.high_min, size.high_max
        if not s.rules.high_min_max:
            pcp.high = pcp.high_min
        if size.flags >= 0:
            pcp.flags = (pcp.flags & ~PCPF_FREE_HIGH_BATCH) | size.flags
    if s.change[k].cpu != c.id:
        return
    if s.change[k].kind == CPU_OFFLINE:
        c.chore = DEATH
        c.chore_zone = 0
    elif s.change[k].kind == CPU_ONLINE:
        c.chore = NO_CHORE
    elif s.change[k].kind == DRAIN_PAGES:
        drain_all_begin(s, c, k)


cdef inline void sample(state_t *s, cpu_t *c) noexcept nogil:
    cdef pcp_t *p
    cdef int z, i
    cdef int64_t pcp = 0, held = 0
    for z in range(s.zones):
        p = pcp_of(s, c, z)
        pcp += p.locked if p.remote > c.time else p.pcp.count
        for i in range(s.lists):
            held += held_of(s, c, z)[i] << pindex_to_order(i)
    if c.left > 0:  # the operation under way was booked in full when it began
        held += (c.left << c.pc.order) * (1 if c.pc.code == OP_FREE else -1)
    while c.sample_at <= c.time:
        if c.sample < s.samples:
            s.series[2 * c.id * s.samples + c.sample] = pcp
            s.series[(2 * c.id + 1) * s.samples + c.sample] = held
        c.sample += 1
        c.sample_at = s.sample_every * (c.sample + 1) if c.sample < s.samples else INT64_MAX


cdef inline bint timers(state_t *s, cpu_t *c) noexcept nogil:
    """Do what is due at ``c.time``: samples, warm-up end, run end, tick.

    Returns True if the CPU cannot go on: it stops for a lock or has finished.
    """
    if c.chore and chore_step(s, c):
        return True
    while c.timer <= c.time:
        if c.sample_at <= c.time:
            sample(s, c)
        if not c.warm and s.warm <= c.time:
            c.warm = 1
            memset(&s.count[c.id], 0, sizeof(count_t))
            if s.cache != NULL:
                memset(&s.found[3 * c.id], 0, 3 * sizeof(uint64_t))
            s.count[c.id].start_ps = c.time
        if s.end <= c.time:
            s.count[c.id].end_ps = c.time
            c.state = FINISHED
            return True
        if c.change_at <= c.time:
            change(s, c)
            set_timer(s, c)
            if chore_step(s, c):
                return True
        if s.tick and c.tick_at <= c.time:
            # A late tick (asleep with NOHZ) is done once; the next is an interval later.
            c.tick_at += s.tick
            if c.tick_at <= c.time:
                c.tick_at = c.time + s.tick
            set_timer(s, c)
            if c.chore != OFFLINE:
                c.chore = TICK
                c.chore_zone = c.tick_phase = c.rest = 0
                if tick_step(s, c):
                    return True
        set_timer(s, c)
    if c.chore == OFFLINE:
        c.state = BLOCKED
        return True
    return False


cdef inline void doze(state_t *s, cpu_t *c, int64_t to) noexcept nogil:
    if to > c.time:
        s.count[c.id].idle_ps += to - c.time
        c.time = to


cdef inline int64_t due(state_t *s, cpu_t *c) noexcept nogil:
    """When a CPU that is asleep has something to do by itself."""
    return min(s.end, c.change_at) if s.nohz_idle or c.chore == OFFLINE else c.timer


cdef inline bint jump(state_t *s, cpu_t *c, int64_t to) noexcept nogil:
    """Be idle until ``to``; False if a timer is due before."""
    cdef int64_t stop = min(to, due(s, c))
    doze(s, c, stop)
    return stop == to


cdef inline void wake(state_t *s, int cpu) noexcept nogil:
    if s.cpu[cpu].state == BLOCKED and s.cpu[cpu].chore != OFFLINE:
        s.cpu[cpu].state = RUNNING
        s.woken[s.nwoken] = cpu
        s.nwoken += 1


cdef inline int find_zone(state_t *s, cpu_t *c, int level) noexcept nogil:
    """get_page_from_freelist(): the first zone with as many free pages; -1: none."""
    cdef int32_t *zonelist = &s.zonelist[c.id * s.zones]
    cdef zone_t *zone
    cdef int i, busy
    for busy in range(not s.rules.skip_busy_kswapd, 2):
        for i in range(s.zones):
            if zonelist[i] < 0:
                break
            zone = &s.zone[zonelist[i]]
            if (busy or not zone.reclaims) and level_seen(zone, c.time) >= level:
                return zonelist[i]
    return -1


cdef inline void feed(state_t *s, cpu_t *c, int64_t now) noexcept nogil:
    """A CPU that sleeps for want of memory, or of work for kswapd, goes on."""
    c.starved = 0
    if c.state == BLOCKED:
        doze(s, c, now)
        wake(s, c.id)


cdef inline bint stays(state_t *s, cpu_t *c) noexcept nogil:
    """A CPU needs a block: whether it takes it from the zone that it has in mind.

    If not, it goes on with another one, or sleeps.  Zones above the low watermark come first;
    if there are none, kswapd is woken and the min watermark counts.
    """
    cdef int zone = find_zone(s, c, ABOVE_LOW), node
    cdef int64_t cached
    cdef bint hope = False
    cdef cpu_t *kswapd
    if c.starved:
        c.starved = 0
        s.starving -= 1
    if zone < 0:
        for node in range(s.nodes):
            if s.kswapd[node] < 0:
                continue
            kswapd = &s.cpu[s.kswapd[node]]
            cached = 0
            for zone in range(s.zones):
                cached += held_of(s, kswapd, zone)[MIGRATE_MOVABLE]
            if cached and kswapd.starved:
                feed(s, kswapd, c.time)
            hope |= cached > 0
        zone = find_zone(s, c, ABOVE_MIN)
    if zone < 0:
        if not hope:
            s.failed = OUT_OF_MEMORY
        c.starved = 1
        s.starving += 1
        c.state = BLOCKED
        return False
    if zone == c.zone:
        return True
    held_of(s, c, c.zone)[c.pc.pindex] -= c.left  # were booked when the operation began
    held_of(s, c, zone)[c.pc.pindex] += c.left
    c.at[HOME] = zone
    c.strayed = 1
    c.state = RUNNING
    return False


cdef inline void balance_pgdat(state_t *s, cpu_t *c) noexcept nogil:
    """kswapd goes on to free another cluster of its node's pages, or to sleep."""
    cdef int i, level, lowest = ABOVE_HIGH, node = s.zone[c.at[HOME]].node
    cdef bint balanced = False, active
    for i in range(s.zones):
        if s.zone[i].node != node:
            continue
        level = level_seen(&s.zone[i], c.time)
        balanced |= level == ABOVE_HIGH
        if level < lowest and held_of(s, c, i)[MIGRATE_MOVABLE]:
            lowest = level
            c.at[HOME] = i
    active = not c.starved and not balanced and lowest < ABOVE_HIGH
    for i in range(s.zones):
        if s.zone[i].node == node:
            s.zone[i].reclaims = ZONE_RECLAIM_ACTIVE if active else 0
    if not c.starved and s.starving:
        for i in range(s.cpus):
            if s.cpu[i].starved and s.cpu[i].program != c.program:
                s.starving -= 1
                feed(s, &s.cpu[i], c.time)
    if active:
        pcp_of(s, c, c.at[HOME]).view |= ZONE_RECLAIM_ACTIVE
        c.state = RUNNING
        next_op(c)
    else:
        c.starved = 1
        c.state = BLOCKED


cdef inline void next_part(state_t *s, cpu_t *c) noexcept nogil:
    """Blocks to free of one zone: where the CPU has strayed, the first that it holds any of."""
    cdef op_t *op = c.pc
    cdef int32_t *zonelist = &s.zonelist[c.id * s.zones]
    cdef int32_t *held
    cdef int i
    if pages_unlikely(c.strayed != 0) and op.zone == HOME:
        for i in range(s.zones):
            if held_of(s, c, zonelist[i])[op.pindex]:
                c.at[HOME] = zonelist[i]
                break
    held = &held_of(s, c, c.at[op.zone])[op.pindex]
    c.left = min(c.wanted, held[0])
    held[0] -= c.left
    c.wanted -= c.left


@cython.cdivision(True)
cdef inline bint control(state_t *s, cpu_t *c) noexcept nogil:
    """Run the program up to its next block of pages; True if the CPU cannot go on.

    On False ``c.pc`` is OP_ALLOC or OP_FREE, ``c.left > 0`` and no timer is due.  On True it may
    be that time has passed and others have to do what they do before.
    """
    cdef op_t *op
    cdef channel_t *ch
    cdef int32_t *held
    cdef int32_t *carry
    cdef page_ring *mine
    cdef int64_t ps, start = c.time
    cdef int moved
    cdef uint32_t i
    while True:
        if c.time >= s.careful_from and c.time != start:
            return True
        if c.chore or c.timer <= c.time:
            if timers(s, c):
                return True
        op = c.pc
        if op.code <= OP_FREE:
            if c.left < 0:
                c.factor = s.speed[draw(&c.rng) >> 54]
                c.left = op.n if op.reg < 0 else c.regs[op.reg]
                if op.code == OP_FREE:
                    c.wanted = c.left if c.left != ALL else INT32_MAX
                    next_part(s, c)
                else:
                    if pages_unlikely(c.strayed != 0):
                        c.at[HOME] = s.zonelist[c.id * s.zones]
                    held_of(s, c, c.at[op.zone])[op.pindex] += c.left
            elif pages_unlikely(c.strayed != 0) and c.left == 0 and op.code == OP_FREE:
                next_part(s, c)
            if c.left > 0:
                return False
            next_op(c)
        elif op.code == OP_WORK:
            if c.work_left < 0:
                c.factor = s.speed[draw(&c.rng) >> 54]
                c.work_left = scaled(op.ps, c.factor)
            ps = min(c.work_left, c.timer - c.time)
            c.time += ps
            c.work_left -= ps
            if c.work_left == 0:
                next_op(c)
        elif op.code == OP_IDLE:
            if c.work_left < 0:
                c.work_left = c.time + op.ps  # wakes then
            if jump(s, c, c.work_left):
                next_op(c)
        elif op.code == OP_SEND:
            ch = &s.channel[c.channel[op.n]]
            if ch.nsent - ch.nreceived == ch.size:
                c.state = BLOCKED
                return True
            if ch.nsent < ch.size or jump(s, c, max(c.time, ch.received[ch.nsent % ch.size])):
                ch.sent[ch.nsent % ch.size] = c.time
                memcpy(carried_by(ch, ch.nsent), carry_of(s, c, False), 16 * sizeof(int32_t))
                memset(carry_of(s, c, False), 0, 16 * sizeof(int32_t))
                ch.nsent += 1
                wake(s, ch.consumer)
                next_op(c)
        elif op.code == OP_RECV:
            ch = &s.channel[c.channel[op.n]]
            if ch.nsent == ch.nreceived:
                c.state = BLOCKED
                return True
            ps = ch.sent[ch.nreceived % ch.size] + ch.latency
            if jump(s, c, max(c.time, ps)):
                ch.received[ch.nreceived % ch.size] = c.time
                memcpy(carry_of(s, c, True), carried_by(ch, ch.nreceived), 16 * sizeof(int32_t))
                ch.nreceived += 1
                wake(s, ch.producer)
                next_op(c)
        elif op.code == OP_GIVE or op.code == OP_TAKE:
            held = &held_of(s, c, c.at[op.zone])[op.pindex]
            carry = &carry_of(s, c, op.code == OP_TAKE)[op.pindex]
            moved = held[0] if op.code == OP_GIVE else carry[0]
            if op.n != ALL:
                moved = min(moved, op.n)
            if op.code == OP_TAKE:
                held[0] += moved
                carry[0] -= moved
            else:
                held[0] -= moved
                carry[0] += moved
            if s.pages != NULL:
                ch = &s.channel[c.channel[op.target]]
                mine = mine_of(s, c, c.at[op.zone], op.pindex)
                if op.code == OP_TAKE:
                    pass_pages(s, &ch.pages, mine, moved)
                    if s.cache != NULL:
                        for i in range(mine.len - moved, mine.len):
                            use_pages(s, c, c.at[op.zone], page_ring_at(mine, i), op.order, False)
                else:
                    pass_pages(s, mine, &ch.pages, moved)
            next_op(c)
        elif op.code == OP_MAYBE:
            if <int> (draw(&c.rng) >> 48) < op.n:
                next_op(c)
            else:
                next_op(c)
                c.pc = c.program + op.target
        elif op.code == OP_PICK:
            moved = op.target * TABLE + <int> ((draw(&c.rng) >> 32) * <uint64_t> op.n >> 32)
            next_op(c)
            c.pc = c.program + s.table[moved]
        elif op.code == OP_DRAW:
            c.regs[op.reg] = s.table[op.target * TABLE + <int> (draw(&c.rng) >> 54)]
            next_op(c)
        elif op.code == OP_LOOP:
            c.loops[op.depth] += 1
            if op.n == 0 or c.loops[op.depth] < op.n:
                next_op(c)
                c.pc = c.program + op.target
            else:
                c.loops[op.depth] = 0
                next_op(c)
        elif op.code == OP_SCORE:
            s.count[c.id].score += op.n if op.reg < 0 else c.regs[op.reg]
            next_op(c)
        elif op.code == OP_KSWAPD:
            arrive(c, LOOK, 0, c.at[HOME], BY_NEED)
            return True
        else:  # OP_END: asleep for the rest of the run
            jump(s, c, s.end)


cdef inline void unlock_pcp(state_t *s, cpu_t *c) noexcept nogil:
    """Who waits for a PCP lock that the CPU had goes on."""
    cdef cpu_t *waiter
    if pages_unlikely(c.waiter != 0):
        waiter = &s.cpu[c.waiter - 1]
        waiter.time = max(waiter.time, c.time)
        waiter.state = RUNNING
        s.woken[s.nwoken] = waiter.id
        s.nwoken += 1
        c.waiter = 0


cdef inline bint turns_back(state_t *s, cpu_t *c) noexcept nogil:
    """What a CPU sees as it comes to a lock; whether it goes on without the lock.

    Between two chunks of a commit the PCP lock is free.  Another CPU that spins for it has it
    before a trylock can succeed, and the rest stays on the lists.
    """
    cdef pcp_t *p
    if c.kind == LOOK:
        balance_pgdat(s, c)
        return True
    if c.kind == LRU:
        return False
    if c.waiter and c.kind == DRAIN and c.why == BY_COMMIT and c.relocks:
        c.state = RUNNING
        unlock_pcp(s, c)
        freed(s, c)
        return True
    p = pcp_of(s, c, c.zone)
    p.view = (p.view & ~ZONE_RECLAIM_ACTIVE) | s.zone[c.zone].reclaims
    if not s.watch or c.kind != REFILL or c.pc.zone != HOME or stays(s, c):
        return False
    unlock_pcp(s, c)  # which it does not even have
    return True


cdef inline void released(state_t *s, cpu_t *c) noexcept nogil:
    """The lock has just been released at ``c.time``: what the CPU does about it."""
    cdef pcp_t *p
    cdef bint more = False, commit = c.kind == DRAIN and c.why == BY_COMMIT
    if commit:
        p = pcp_of(s, c, c.zone)
        if s.rules.commit_drain == COMMIT_CHUNKS:
            more = c.rest > 0 and p.pcp.count > 0
        elif s.rules.commit_drain == COMMIT_CHUNKS_WHILE_HIGH:
            more = c.rest > 0 and p.pcp.count >= c.high
        if more:
            c.want = min(c.rest, p.pcp.batch)
            c.rest -= c.want
            c.relocks = 1
            return
    c.state = RUNNING
    unlock_pcp(s, c)
    if pages_unlikely(c.kind == REFILL and c.want == 0):
        return  # looks for another zone
    if commit:
        freed(s, c)
    elif pages_unlikely(c.why == BY_REMOTE):
        pcp_of(s, &s.cpu[c.target], c.zone).remote = c.time
    elif pages_unlikely(c.why == DIRECT):
        if trylock_fails(s, c):
            c.quiet = s.fails[draw(&c.rng) >> 54]
        if c.kind == REFILL:
            allocated(s, c)
        else:
            freed(s, c)
    elif c.kind == REFILL:
        c.quiet -= s.trylock
        p = pcp_of(s, c, c.zone)
        p.blocks[c.pindex] -= 1
        take_pages(s, c, c.zone, c.pindex, 1)
        pcp_alloc_end(&p.pcp, &s.rules, c.pc.order)
        allocated(s, c)


cdef inline void lru_counts(state_t *s, cpu_t *c, int blocks) noexcept nogil:
    """Pages on their way to or from the LRU; a full pagevec asks for the LRU lock."""
    if c.pc.depth:
        c.lru_left -= blocks
        if c.lru_left == 0:
            arrive(c, LRU, s.zones + s.zone[c.at[c.pc.zone]].node, c.at[c.pc.zone], BY_NEED)


cdef inline void stepped(state_t *s, cpu_t *c) noexcept nogil:
    c.left -= 1
    c.time += scaled(c.pc.ps, c.factor)
    lru_counts(s, c, 1)


cdef inline void allocated(state_t *s, cpu_t *c) noexcept nogil:
    """One block has left its list for the program."""
    cdef op_t *op = c.pc
    cdef count_t *n = &s.count[c.id]
    n.alloc_blocks += 1
    n.alloc_pages += 1 << op.order
    stepped(s, c)


cdef inline void freed(state_t *s, cpu_t *c) noexcept nogil:
    """One block has gone to its list, and what had to be drained is drained."""
    s.count[c.id].free_pages += 1 << c.pc.order
    stepped(s, c)


cdef inline void free_block(state_t *s, cpu_t *c) noexcept nogil:
    """One block to its list; arrives at the zone lock if that calls for a drain."""
    cdef op_t *op = c.pc
    cdef int zone = c.at[op.zone]
    cdef pcp_t *p = pcp_of(s, c, zone)
    cdef bint free_high
    cdef int n, pindex = put_pages(s, c, zone, op.pindex, 1)
    c.quiet -= s.trylock
    free_high = pcp_commit(&p.pcp, &s.rules, op.order)
    c.high = drain_from(s, c, p, zone, op.order, free_high)
    if p.pcp.count < c.high:
        freed(s, c)
        return
    n = pages_to_drain(s, c, p, zone, op.order, c.high, free_high)
    if n <= 0:
        freed(s, c)
        return
    if free_high:
        s.count[c.id].free_high += 1
    c.want = n if s.rules.commit_drain == COMMIT_WHOLE else min(n, p.pcp.batch)
    c.rest = n - c.want
    c.relocks = 0
    arrive_drain(c, zone, pindex, BY_COMMIT)


cdef inline void step_block(state_t *s, cpu_t *c) noexcept nogil:
    """One block of the operation under way."""
    cdef op_t *op = c.pc
    cdef pcp_t *p = pcp_of(s, c, c.at[op.zone])
    if trylock_fails(s, c) or p.remote > c.time:
        arrive_direct(s, c)
    elif op.code == OP_FREE:
        free_block(s, c)
    elif p.blocks[op.pindex] == 0:
        arrive_refill(s, c)
    else:
        c.quiet -= s.trylock
        pcp_alloc_begin(&p.pcp, &s.rules)
        p.blocks[op.pindex] -= 1
        take_pages(s, c, c.at[op.zone], op.pindex, 1)
        pcp_alloc_end(&p.pcp, &s.rules, op.order)
        allocated(s, c)


cdef class State:
    cdef state_t s
    cdef op_t *ops
    cdef PageAllocator pages
    cdef PageCache caches
    cdef object policy
    cdef readonly int nlocks
    cdef int64_t handoff[2][2]  # of zone locks, LRU locks: fixed, per waiter

    cdef int cache(self, int cpu, int zone, pages) except -1
    cdef int check(self) except -1

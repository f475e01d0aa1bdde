"""What a simulation consists of: the structs, and how to find one's own among them.

What happens to them stands in headers of their own, one concept each; who may use whom:
`cpu` (asks, sleeps, wakes) < `lists`, `books` < `zones` < `chores` < `program` < `locks`.  All
of it serves both engines: fetching operations, channels, timers, what one hold of a lock does.  How
single pages move (`at_once` skips, `per_page.pyx` does not), in which order CPUs run and who
gets a lock is each engine's own.

Times are integers [ps].
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint32_t, uint64_t

from pcpmodel.hardware.cache cimport page_cache
from pcpmodel.hardware.lines cimport LINE_STATES, page_lines
from pcpmodel.hardware.lock cimport fifo_lock
from pcpmodel.kernel.lists cimport PCP_LISTS_ROOM
from pcpmodel.kernel.page_alloc cimport memory
from pcpmodel.kernel.pages cimport page_ring
from pcpmodel.kernel.pcp cimport per_cpu_pages, policy_state
from pcpmodel.kernel.rules cimport pcp_rules
from pcpmodel.workload.ops cimport BLOCK_KINDS, CHANNELS, KINDS_ROOM, LOOPS, REGISTERS, TABLE

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
    LOOK_BESIDE = 4  # no lock: what does the other thread of the core leave?
    PAST = 3  # in the books: a refill or drain of one block past the lists
    BOOKED = 4

    # Why: up to BY_DEATH the CPU holds the PCP lock of its own lists meanwhile
    BY_NEED = 0  # a refill
    BY_COMMIT = 0
    BY_TICK = 1
    BY_DEATH = 2  # the CPU goes offline
    BY_REMOTE = 3  # drain_all_pages(): the lists of the CPU that the chore is at
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

    # Series of a CPU: pages on its lists and held by its task; since the end of the warm-up
    # units of work, waits for the zone and LRU locks and sleep [ps], pages from the zone; pages
    # given to messages, less those taken from them
    SERIES = 8

    # How far a CPU is from the one that had a lock before
    SAME_CPU = 0
    SAME_CORE = 1
    SAME_LLC = 2
    SAME_SOCKET = 3
    OTHER_NODE = 4
    DISTANCES = 5

    HIST = 320  # buckets: 8 per power of two [ns]
    COSTS = 4096  # blocks; beyond, the cost of a hold grows by its last slope

    NONE_FAILED = 0
    OUT_OF_MEMORY = 1
    LISTS_DISAGREE = 2  # lists of pages and their counts differ: our mistake
    POLICY_FAILED = 3  # a callback raised, or answered what it must not
    NO_TIME = 4  # a program goes round and round at one moment
    TREE_FAILED = 5  # a function of a kernel tree did not come back

    ROUNDS = 1 << 20  # of a program's loops at one moment, at most
    STRETCH = 1 << 16  # of a program at once, at most [operations, or loops]


# Programs


cdef struct op_t:
    int64_t ps  # per block, or the duration
    int32_t code
    int32_t n  # blocks (or ALL), channel slot, times round the loop, units
    int32_t reg  # register that holds n; -1: n itself
    int32_t kind  # of the blocks: their order and migratetype
    int32_t pindex  # their PCP list, which kinds may share; the kind, if there is none
    int32_t order
    int32_t zone  # HOME or PEER
    int32_t target  # OP_LOOP: index to return to; OP_DRAW: table; OP_GIVE: channel slot
    int32_t depth  # OP_LOOP: which loop counter; OP_ALLOC, OP_FREE: 1 if on the LRU


cdef struct channel_t:
    # Rings of messages: the time of each, and [KINDS_ROOM] the blocks given with it.
    int64_t *sent
    int64_t *received
    int32_t *carried
    page_ring pages  # blocks under way, with page identity
    int64_t nsent
    int64_t nreceived
    int64_t latency
    int32_t size  # messages
    int32_t mask  # of the rings, which may have more places
    int32_t producer
    int32_t consumer


# One of the two hardware threads of a core, which lie in one cache line.
cdef struct thread_t:
    int64_t arrived  # at a lock, last
    int64_t granted  # INT64_MAX: nobody knows yet
    int64_t waited  # for locks, before that
    int64_t other_waited  # when it arrived the other had waited for so long


cdef struct barrier_t:
    int64_t open_at[2]  # when the last two rounds were complete
    int64_t latest  # arrival of this round
    int64_t rounds  # complete
    int32_t members
    int32_t here


cdef struct programs_t:
    channel_t *channel
    barrier_t *barrier
    int32_t barriers
    int32_t *member  # [barrier][cpu]: its members first
    int32_t *carry  # [channel][2][KINDS_ROOM]: blocks for its next message; come, not yet taken
    int32_t *table  # [tables][TABLE], for OP_DRAW and OP_PICK
    int32_t tables
    int64_t *rested  # [cpu]: until when, as its program says
    int32_t order_of[BLOCK_KINDS]
    int32_t type_of[BLOCK_KINDS]  # migratetype
    uint32_t speed[TABLE]  # paces of work: unit mean, 16 binary digits after the point
    thread_t *thread  # two of each core with two tasks; NULL: there is none
    int32_t *sibling  # [cpu]: that of the other thread of its core; -1: without a task
    uint32_t beside  # a time beside a thread that works; 16 binary digits
    double beside_one  # of `beside`: times ONE,
    double above_one  # and what it is more than ONE


# CPUs


cdef struct ask_t:  # of a lock: on the way to it, in its queue, or in the hold
    int32_t lock  # of a zone, or of the LRU lists of its node and a memcg
    int8_t kind
    int8_t why
    int8_t pindex
    int8_t zone
    int8_t relocks  # comes for the next hold of a commit or a refill
    int8_t off  # of the LRU lock: for pages that leave its lists


cdef struct plan_t:  # of a hold
    int32_t drain  # pages to drain in it
    int32_t rest  # pages of a commit to drain, or blocks of a refill to take, after it
    int32_t high  # what nr_pcp_high() said for this commit
    int32_t got  # blocks that a refill brought


cdef struct chore_t:  # what a CPU does beside its program
    int8_t kind
    int8_t phase  # TICK: 0 decay, 1 drain what decayed and expire, 2 drain what expired
    int16_t zone  # the next one to see to
    int32_t rest  # TICK: pages of the phase still to drain
    int32_t owner  # DRAIN_ALL: whose lists it is at
    int32_t change  # DRAIN_ALL: which change of the machine asked for it


cdef struct task_t:  # the program of a CPU
    op_t *pc
    uint32_t factor  # of work: drawn anew by every operation and hold; 16 binary digits
    int32_t left  # blocks left of the operation; -1: not begun
    int32_t zone[2]  # that operations call HOME and PEER
    int32_t wanted  # blocks to free after those of the zone at hand
    int32_t counted  # what was left when the books were brought up to date
    int16_t lru_left[2]  # pages until a hold of the LRU lock: to its lists, off them
    int16_t strayed  # has taken pages of another zone than its own
    int16_t starved  # asleep until kswapd has freed something; of kswapd: until it is woken
    op_t *program
    int32_t loops[LOOPS]


cdef struct vars_t:  # of the program
    int64_t work_left  # of OP_WORK or OP_IDLE; -1: not begun
    int32_t channel[CHANNELS]
    int32_t regs[REGISTERS]


cdef struct timers_t:
    int64_t tick_at
    int64_t sample_at
    int64_t change_at  # next change of the machine
    int32_t sample
    int32_t change


# Four cache lines: two that a refill needs; drains, chores and rarer operations; timers.  A line
# more in an event of 224 CPUs takes it 1.2 ns.
cdef struct cpu_t:
    int64_t time
    int64_t timer  # the first of `timers`
    uint64_t rng
    pcp_t *lists  # its own, of each zone
    count_t *count
    ask_t ask
    int8_t state
    int8_t warm  # warm-up is over
    int16_t id
    int32_t seat  # node << 21 | last-level cache << 11 | core << 1 | thread
    uint32_t pace  # what its sibling makes of a time; 16 binary digits
    thread_t *thread  # NULL: its core has no other task
    int64_t slept  # since it last came to a lock, of its counted sleep
    task_t task
    chore_t chore
    plan_t plan
    int32_t quiet  # operations until a PCP trylock fails
    int32_t waiter  # 1 + CPU that waits for this one to let go of a PCP lock
    vars_t vars
    timers_t timers


# Per-CPU lists


# One (CPU, zone): four cache lines.  A release needs the second, which holds all of `pcp` but the
# fields that only a tree has, and the lists of single pages.
cdef struct pcp_t:
    per_cpu_pages pcp
    int32_t view  # zone flags as this CPU last saw them: at its last hold of the zone lock
    int32_t touched  # refilled or drained since the last vmstat tick
    int32_t blocks[PCP_LISTS_ROOM]  # blocks on each list; their pages add up to pcp.count
    int32_t locked  # pages on them when another CPU took their lock
    int64_t remote  # another CPU has the PCP lock until then; INT64_MAX: nobody knows yet


cdef struct lists_t:
    pcp_t *pcp  # [cpu][zone]
    int32_t *held  # [cpu][zone][KINDS_ROOM]: blocks that the program holds
    int64_t *pages  # [cpu]: their pages
    int64_t *passed  # [cpu]: pages that it gave to messages, less those that it took from them
    policy_state *policy  # [cpu][zone]: a user's rule; NULL: the kernel's alone
    int32_t asks_high  # that rule says when a free drains: every free asks it
    int32_t trylock  # PCP trylocks fail now and then
    int32_t fails[TABLE]  # operations between two of them, equally likely values


cdef struct pages_t:  # with page identity
    memory *mm  # the zones and lists; else NULL
    page_ring *mine  # [cpu][zone][BLOCK_KINDS]: blocks that the program holds, oldest first
    uint64_t *digest  # of each CPU: of the pages that it allocated, in order
    uint64_t *dice  # of each CPU: which of its pages go first, where they go in any order
    page_cache *cache  # of each CPU: what it last used; else NULL
    uint64_t *found  # [cpu][3]: pages allocated, by where they were found
    page_lines *lines  # of the struct pages; else NULL


# Zones


cdef struct notice_t:
    int64_t at  # end of the hold
    int32_t level


cdef struct zone_t:
    int64_t free  # pages on the buddy lists
    int64_t min_wmark
    int64_t low_wmark
    int64_t high_wmark
    int64_t plenty  # with more free pages no hold makes it short of them; INT64_MAX: not known
    int32_t flags
    int32_t node
    int32_t reclaims  # ZONE_RECLAIM_ACTIVE while kswapd is at work, else 0
    int32_t level  # of free pages, after the last hold
    int32_t seen  # what CPUs without the lock knew when the last one looked
    int32_t mask  # ring of changes of the level that CPUs have yet to see
    uint32_t head
    uint32_t tail
    notice_t *notice


cdef struct zones_t:
    zone_t *zone
    int32_t *zonelist  # [cpu][zone]; -1: no more
    int32_t *kswapd  # CPU of each node's; -1: none
    int32_t *lru  # [cpu][2], HOME and PEER: LRU lock of the first node and the pages' memcg
    int32_t *node_of  # each CPU
    int32_t nodes
    int32_t watch  # some zone has been short of pages
    int32_t starving  # CPUs that are starved


# Locks


cdef struct holds_t:  # how long locks are held
    uint32_t spread[KINDS][TABLE]  # around the mean; 16 binary digits
    int64_t cost[KINDS][COSTS + 1]  # mean by blocks moved: fixed part and what is warm
    int64_t direct  # the same of one block past the lists
    # Lines of struct pages (REFILL, DRAIN): by count, what a block of a list takes more for them;
    # with page identity, what a line takes by where it was.
    int64_t block[2][KINDS_ROOM]
    int64_t line[2][LINE_STATES]
    int64_t late  # of the hold under way
    # By the distance from the last holder: lines of the lock's own that a hold begins with, and
    # what handing over to a waiting CPU takes.
    int64_t first[KINDS][DISTANCES]
    int64_t handover[KINDS][DISTANCES]
    int32_t folios[2]  # pages of a hold of the LRU lock: to its lists, off them


cdef struct lock_t:  # of a zone, or of the LRU lists of a node and a memcg
    fifo_lock queue  # of the event engine
    uint64_t order  # digest of (CPU, time of arrival) in the order of grants
    int32_t seat  # of the CPU that had it last; -1: nobody


# Time


cdef struct course_t:  # of the run
    int64_t end
    int64_t warm
    int64_t tick  # vm.stat_interval; 0: no vmstat worker
    int64_t sample_every  # from the end of the warm-up on
    int32_t samples
    int32_t nohz_idle


cdef struct change_t:
    int64_t at
    int32_t kind
    int32_t cpu
    int32_t done  # DRAIN_PAGES


cdef struct last_t:  # last hold of a CPU, as who drains others' lists sees it
    int64_t release_at
    int32_t zone  # whose PCP lock the CPU held meanwhile; -1: none
    int32_t marked  # had pages when the draining began


cdef struct sizes_t:  # of the lists of a zone [pages]
    int32_t batch
    int32_t high_min
    int32_t high_max
    int32_t flags  # -1: as they are


cdef struct changes_t:  # of the machine
    change_t *change
    sizes_t *size  # [change][zone]
    last_t *last  # [cpu]
    int32_t number
    int32_t drainer  # CPU in drain_all_pages(); -1: none
    # From the first drain_all_pages() that is not over yet on CPUs look at each other's lists:
    # nobody may run ahead.
    int64_t careful_from


# Books


cdef struct count_t:  # of a CPU: three cache lines; holds count in the first
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
    uint64_t direct_pages


cdef struct books_t:
    count_t *count
    count_t *phase  # [cpu][PHASES], or NULL: none; the time is in end_ps
    count_t *mark  # of each CPU: its counters when its phase began
    int32_t *phase_of  # each CPU
    int64_t *series  # [cpu][samples][SERIES]
    int64_t events
    uint64_t wait[BOOKED][HIST]
    uint64_t hold[BOOKED][HIST]
    uint64_t latency[BOOKED][HIST]
    uint64_t over[BOOKED][3]  # latency above 100 us, 1 ms, 10 ms
    int64_t wait_ps[BOOKED]
    int64_t hold_ps[BOOKED]


cdef struct state_t:
    int32_t nr_cpus
    int32_t nr_zones
    int32_t nr_channels
    int32_t failed
    pcp_rules rules
    cpu_t *cpu
    lock_t *lock  # zones first
    int32_t *woken  # CPUs that a message set free, to be run next
    int32_t nwoken
    programs_t programs
    lists_t lists
    pages_t pages
    zones_t zones
    holds_t holds
    course_t course
    changes_t changes
    books_t books


cdef inline policy_state *policy_of(state_t *s, cpu_t *c, int zone) noexcept nogil:
    return &s.lists.policy[c.id * s.nr_zones + zone]


cdef inline pcp_t *pcp_of(cpu_t *c, int zone) noexcept nogil:
    return &c.lists[zone]


cdef inline int32_t *held_of(state_t *s, cpu_t *c, int zone) noexcept nogil:
    return &s.lists.held[(c.id * s.nr_zones + zone) * KINDS_ROOM]


cdef inline void hold_more(state_t *s, cpu_t *c, int zone, int kind, int order,
                           int64_t blocks) noexcept nogil:
    """The program holds more blocks, or less."""
    held_of(s, c, zone)[kind] += <int32_t> blocks
    s.lists.pages[c.id] += blocks << order


# The kernel's decisions, or those of a user's policy.  Once a callback has failed none is asked.


cdef inline bint is_local(state_t *s, cpu_t *c, int zone) noexcept nogil:
    """Whether a zone is on the CPU's node: not where a policy binds its memory elsewhere."""
    return s.zones.zone[zone].node == s.zones.node_of[c.id]


cdef inline int apart(const lock_t *lock, const cpu_t *c) noexcept nogil:
    """How far a CPU is from the last holder of a lock; as from itself, where nobody had it yet."""
    cdef int32_t differ = lock.seat ^ c.seat
    return (differ > 0) + (differ >= 1 << 1) + (differ >= 1 << 11) + (differ >= 1 << 21)


cdef inline int64_t handover(const state_t *s, int kind, int far) noexcept nogil:
    """What it takes to hand a lock to a CPU so far from the last holder, if it waits."""
    return s.holds.handover[kind][far]


cdef inline int32_t *carry_of(state_t *s, int channel, bint arrived) noexcept nogil:
    return &s.programs.carry[(2 * channel + arrived) * KINDS_ROOM]


cdef inline int32_t *carried_by(channel_t *ch, int64_t message) noexcept nogil:
    return &ch.carried[(message & ch.mask) * KINDS_ROOM]


cdef inline page_ring *mine_of(state_t *s, cpu_t *c, int zone, int kind) noexcept nogil:
    return &s.pages.mine[(c.id * s.nr_zones + zone) * BLOCK_KINDS + kind]

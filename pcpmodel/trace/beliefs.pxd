"""What is known of every pageset: the states that it may be in, and how it came to them."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memset

from pcpmodel.kernel.lists cimport MAX_PCP_LISTS
from pcpmodel.kernel.pcp cimport (
    decay_pcp_high, nr_pcp_alloc, pcp_alloc_begin, pcp_alloc_end, pcp_commit_due, per_cpu_pages,
)
from pcpmodel.kernel.rules cimport pcp_rules
from pcpmodel.trace.arrays cimport has_room
from pcpmodel.trace.asked cimport interview
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport *
from pcpmodel.trace.stacks cimport *
from pcpmodel.trace.work cimport note_work, work_log

cdef enum:
    MAX_LATE = 64       # frees and ticks that are done with a later line
    MAX_BULK = 64
    MAX_LOG = 4096      # operations that are gone through again
    SETTLED = 64        # up to so many states are merged after each operation
    EFFORT = 9_000_000  # states followed in all searches of a trace, or where they are many: 2 s
    ALL_ALONG = 4       # ... and for each row more, until something is unexplained
    MAX_RESTS = 4       # tasks stopped amid a drain of the same lists
    MAX_BURST = 4096    # rows of an interrupt
    AT_ONCE = 5000      # ns (or ticks of the trace's clock) from a free to one after its interrupt
    TAKEN_AT_ONCE = 64  # pages that a task may have taken when it had the CPU
    PAGE_NS = 2         # a huge page is not given back in less than a microsecond
    MAX_STAY = 1 << 16  # rows among which a CPU has another line
    COPIED = 20_000     # rows in which its parent copies its memory, before it is told of

    # What runs on a CPU.
    RUN_NONE = 0
    RUN_DRAIN = 1
    RUN_REFILL = 2

    # What is done to a pageset.
    OP_ALLOC = 1        # a block leaves its list
    OP_SILENT = 2       # pages leave, and alloc_pages_bulk() halves nothing for each
    OP_FREE = 3
    OP_REFILL = 4
    OP_DRAINED = 5
    OP_TICK = 6         # decay_pcp_high()
    OP_EMPTIED = 8      # a drain begins of all pages that there are
    OP_UNKNOWN = 7      # some of the pages that no line told of yet may have left
    OP_MAYBE = 9        # a block leaves its list, or has left it before

    # operation.got of a free or a tick, unless it is the first row of its drain.
    NO_DRAIN = 0
    UNDECIDED = -1      # no line tells yet

    AT_ALL = 2          # operation.cut of a drain that may end within a hold

    # Why a drain is under way.
    DUE_NONE = 0
    DUE_COMMIT = 1
    DUE_DECAY = 2
    DUE_REMOTE = 3      # drain_zone_pages()

    ANYTHING = -1       # sight.hold: whatever is due
    NR_FIELDS = P_FREE_FACTOR - P_COUNT + 1     # that a probe prints

    # What the states say of what was seen.
    SAID_NONE = 0       # none of them says so
    SAID_ALL = 1
    SAID_SOME = 2       # the others are wrong
    SAID_LATE = 3       # only with something that the trace tells elsewhere
    SAID_NOTHING = 4    # nobody is asked any more

# What the fields may be: those of ``pcp``, and free_count up to ``span`` more, which all have led
# to the same.
cdef struct state:
    per_cpu_pages pcp
    int span
    int zone_flags
    int due             # blocks that the last refill asked for; pages that a free or tick drains
    int threshold       # of a commit: what nr_pcp_high() said [pages]

cdef struct operation:
    int32_t row
    int32_t since       # last row of the drain of a free or a tick
    int32_t page
    int32_t got         # blocks of a refill; pages; the drain of a free or a tick
    uint8_t op
    uint8_t order
    uint8_t pindex
    uint8_t begin       # a refill halves free_count first
    # A refill got less, as there was no more; a drain, as others had the lists, or (AT_ALL) used
    # them between its holds.
    uint8_t cut
    uint8_t zone_flags  # that the trace had told by then
    uint8_t quiet       # a free that did not drain: its task goes on otherwise

# What a line shows of a pageset.
cdef struct sight:
    const int64_t *fields   # of a probe, or NULL
    int hold            # pages of the first hold of the last free's drain, 0 none
    int pindex          # and its list

# The drain under way, of which some holds are to come.
cdef struct drain:
    int why             # DUE_*
    int left            # [pages]
    int threshold       # of a commit, for commit_goes_on()
    int hold            # per_cpu_pages.chunk when it was decided
    int pindex
    int32_t row
    int32_t doubt       # row at which another CPU had the lists locked, -1 none
    bint started

cdef struct drain_rest:
    int32_t pid         # its task, which may be stopped between two holds
    int left            # pages that are to come
    int pindex          # list that each hold begins with

cdef struct pageset:
    page_list *list
    int zone
    int cpu
    uint64_t addr
    bint used           # there are states
    bint cut            # no longer: the search took too long, and only the pages are followed
    state *s
    int n
    int64_t cap
    # Of many states that go the same way the ends of each kind; see `fold`.
    state *ends
    int64_t ends_cap
    int nr_kinds        # 0: each state is followed by itself
    uint8_t *kind       # ... of each state
    int64_t kind_cap
    bint undecided      # nothing shows yet whether the last operation, a free, drains
    int zone_told       # zone_info.told that the states go by
    int64_t touched
    drain due
    int since_merged    # operations
    drain_rest rest[MAX_RESTS]  # of drains whose holds no line tells
    int drainer         # another CPU that empties these lists, or -1
    int32_t known_row   # since when one state is left, or -1
    # Since when something else may be found to have happened, and what did happen.
    state *was
    int nr_was
    int64_t was_cap
    int32_t was_row
    state *mid          # ... and the states before operation mid_at; -1 none
    int nr_mid
    int64_t mid_cap
    int mid_at
    operation *log
    int log_n
    unsigned int log_more   # beside a first one so many need no `make_room`
    int64_t log_cap
    # Where no dump told of the start.
    bint open[MAX_PCP_LISTS]        # below the known pages there may be others
    int32_t shut[MAX_PCP_LISTS]     # ... up to this row; 0 never
    int unsure[MAX_PCP_LISTS]       # pages of the first refill that a silent caller may have left
    int32_t moved[MAX_PCP_LISTS]    # last row of a change
    int high_before     # that a search took for other flags of the zone; 0 none
    int32_t hidden      # last row at which a task that writes no line got, or had, the CPU; 0 none
    int32_t hidden_by   # row that shows it
    int64_t hidden_ns   # ... and how long, all in all, since count was borne out
    int32_t borne       # last row at which a drain bore the fields out, or they were opened
    int32_t counted     # ... bore count out
    int32_t capped      # last refill after which high may be at a high_max that no file tells
    bint raised         # by one of these it is known by count alone
    bint above          # high was set below what the lists held, and every free drains
    bint vague          # ... and a tick has lowered it since
    int32_t ticked      # last row at which decay_pcp_high() ran
    int unnamed         # pages of stacks that count showed to have left, and no line yet which
    int silent          # pages that were taken to be stacks since count was read, and ...
    int32_t silent_by   # ... the last row that showed so
    int stack_left      # pages of a stack that come from the refill; -1: nobody knows how many
    int32_t stack_told
    per_cpu_pages first  # where only some fields are told
    int *counts         # that the lists may have held at the start
    int nr_counts

cdef struct zone_info:
    int64_t start
    int64_t end
    int node
    int name
    unsigned int flags  # as the trace told last
    int told            # how often it did
    int maybe           # that may be set at the start, for all that is known
    int seen_flags      # that any probe shows
    int told_flags      # by the last probe, or the first dump
    int32_t cleared[3]  # row from which on each flag is known to be clear, by its bit
    int32_t unboosted   # last probe without ZONE_BOOSTED_WATERMARK that was over by the last one
    int32_t doubted     # ... and the last one, of which the CPU shows no other line until then
    int32_t boosted     # last row that shows a fallback in this zone
    int32_t woken       # last row that shows its node's kswapd awake
    int32_t reclaiming  # last probe with ZONE_RECLAIM_ACTIVE
    int32_t slept       # last row that shows it going to sleep
    int32_t drained     # last drain of a commit, which may have cleared ZONE_BELOW_HIGH; 0 none
    int32_t low         # first row at which a watermark test may fail, or nr_rows
    int64_t nr_free     # as the last probe told, and with what moved since [pages]
    int64_t least_free  # since the last probe without ZONE_BELOW_HIGH
    int64_t enough      # no watermark test sets ZONE_BELOW_HIGH above [pages]

# A free, or a tick of a pageset, that is done with a later line, or an allocation with one before.
cdef struct late_act:
    int32_t row         # that line; 0: with the next one about the page
    int32_t told        # its own
    int32_t page        # -1: a tick
    int order           # -1: an allocation
    int cpu

# A page, or the stack of a new task, that may have left before its line.
cdef struct candidate:
    int32_t page
    int32_t report      # row of its line
    int32_t since
    int32_t until       # what joined above it and stayed came later
    int pages           # of a stack; 0: a block with a line of its own
    int order
    int op              # it was told of by then, with this operation; or -1

# A state that a pageset can have come to: see search.pyx.
cdef struct guess:
    state s
    uint64_t gone       # candidates that have left
    int16_t waits[2]    # operations (from 1) that are not done yet, 0 none
    int16_t cost        # assumptions on the way
    int16_t floats      # of them, operations at another moment
    int16_t rank        # of these: how far they are from the likeliest
    int32_t trail
    uint64_t hash
    bint good           # as something shows

cdef struct step_back:
    int32_t parent
    int16_t what
    int8_t act
    int8_t zone_flags

cdef struct contig:
    int64_t pfn
    int64_t left
    int32_t row

cdef struct cpu_run:
    int kind
    int set             # pageset
    int pindex          # list that a refill is for, or that a drain is at
    int order
    int want            # pages of a drain's hold
    int left            # pages of a drain, or blocks of a refill, that are to come
    int share           # blocks that a drain takes of its list yet, where lists take turns
    int32_t row
    int32_t moved       # last row of a change of the unmovable list before a drain
    int bulk            # index of the bulk section, or -1
    bint silent         # no line reports the first block of a refill
    bint bad
    bint told           # the model would have had it otherwise; another line explains it
    int rest            # which of its pageset's rests a drain is
    int draining        # pageset of the drain_pages_zone() that this CPU is in, or -1
    int ticking         # task that does a vmstat tick here, 0 none
    int decays          # that its probes have shown
    int32_t last_pfn
    int32_t undone      # last free of a batch that the recording ends amid
    contig contig       # under way

cdef struct bulk_call:
    int pid
    int cpu
    int taken
    int migratetype
    int nid
    int32_t row

cdef struct passed_page:
    int32_t page
    int32_t row

cdef struct first_page:
    int32_t page
    int32_t set
    int8_t pindex
    int8_t drained      # from the tail

# Of one kind: how many there were, and of them those that were foreseen, and so on.
cdef struct counted:
    int64_t total
    int64_t foreseen
    int64_t explained
    int64_t inferred
    int64_t cut

cdef struct tally:
    counted allocations
    counted refills
    counted drains
    counted drained_pages
    counted probes

cdef class Beliefs(PageLists):
    cdef pcp_rules rules
    cdef zone_info zones[MAX_ZONES]
    cdef pageset *sets
    cdef const int64_t *probes
    cdef int zone_flags     # that this kernel has
    cdef bint dumped        # a dump told of the lists at the start
    cdef bint past_told     # a probe shows free_one_page()
    cdef bint locks_sleep   # with PREEMPT_RT
    cdef int64_t isolated   # pages that compaction may have isolated without a line
    cdef bint computed      # no file tells high_max; it is what zone_highsize() gives now
    cdef bint decay_told    # a probe shows decay_pcp_high()
    cdef int p_lists
    cdef int nr_populated   # zones with memory
    cdef int top_zone       # where stacks come from
    cdef int *node_of_cpu
    cdef cpu_run *runs
    cdef bulk_call bulk[MAX_BULK]
    cdef int nr_bulk
    cdef first_page *there
    cdef int64_t nr_there
    cdef int64_t there_cap
    cdef passed_page *passed_pages  # that a drain went past and that are believed gone since
    cdef int64_t nr_passed_pages
    cdef int64_t passed_pages_cap
    cdef tally t
    cdef bint hurried       # one difference that nothing explains is enough
    cdef interview asked
    cdef bint holds_told    # a probe shows every free_pcppages_bulk()
    cdef bint refills_told  # ... every rmqueue_bulk()
    cdef bint commits_told  # ... every free_frozen_page_commit(), or what it was called before
    cdef late_act late[MAX_LATE]
    cdef int nr_late
    cdef work_log work_done
    # States that may still be followed: by searches, where they are many, all after a difference.
    cdef public int64_t effort
    cdef int32_t cut_row    # at which there was none left, -1 not so far
    cdef readonly int most_states   # followed side by side
    cdef bint broken        # out of memory
    cdef uint8_t *orders    # of a drain's blocks
    cdef int nr_orders
    cdef int64_t orders_cap
    cdef int32_t orders_row  # its first row, and the last one
    cdef int32_t last_drained
    # What takes pages, or gives them back, without a line of its own; see taking.pyx and frees.pyx.
    cdef const int32_t *passed      # rows of frees, ascending
    cdef const int32_t *passed_by   # of each by type: row of an allocation that took what lay below
    cdef int32_t nr_passed
    cdef const int32_t *forks       # rows of new tasks, by CPU where their stacks may be from
    cdef const int32_t *forks_of    # cpus + 1 places in it
    cdef const int32_t *stack_of    # place of each in stacks
    cdef uint8_t *stacks            # pages that each new task may still have taken in silence
    cdef uint8_t *thought_of        # whether some states are without them
    cdef const int32_t *made_since        # row after which each was begun
    cdef const int64_t *switches    # sched_switch, by task: task << 32 | row
    cdef int64_t nr_switches
    cdef const int32_t *untold      # rows as of `switched.untold`, of those that are to come
    cdef uint8_t *workers       # index of a task's name -> whether it is a kworker's
    cdef readonly int nr_cut    # pagesets that are followed no longer
    cdef operation nowhere  # of those
    # For searches.
    cdef candidate found[64]
    cdef int nr_found
    cdef int32_t search_row
    cdef int64_t enough     # effort that is to be left after a search
    cdef int first          # operation at which something can have gone otherwise
    cdef int kinds          # flags of the zone that may be set at all
    cdef int slots
    cdef bint moved_some    # the last one found operations at another moment
    cdef state *spare       # states that are not a pageset's yet
    cdef int nr_spare
    cdef int64_t spare_cap
    cdef guess *layers
    cdef step_back *trail
    cdef int32_t used
    cdef int32_t *table
    cdef int64_t table_cap
    cdef uint8_t *turns
    cdef int64_t turns_cap

    cdef int believe(self, release, events) except -1

cdef bint room(Beliefs s, state **states, int64_t *cap, int n) noexcept nogil
cdef int take_blocks(Beliefs s, int pages, int *k) noexcept nogil
cdef int blocks_drained(Beliefs s, const state *v, bint decays, int cut=*) noexcept nogil
cdef int32_t find_drain(Beliefs s, int x, int32_t row, int cpu, int32_t last=*) noexcept nogil
cdef bint decided(Beliefs s, int x, const state *v, const operation *e) noexcept nogil
cdef bint clear_table(Beliefs s, int n) noexcept nogil
cdef void merge_states(Beliefs s, pageset *set) noexcept nogil
cdef void merge_some(Beliefs s, pageset *set) noexcept nogil
cdef bint kinds_say(Beliefs s, int x, const operation *e, const sight *g) noexcept nogil
cdef void settle(Beliefs s, int x, int32_t row) noexcept nogil
cdef void was_there(Beliefs s, int32_t p, int x, int i, bint drained) noexcept nogil
cdef int64_t switches_until(Beliefs s, int32_t row) noexcept nogil
cdef inline bint count_open(const pageset *set) noexcept nogil:
    """Whether a hidden task has made of count what nobody knows, and no drain has told it since."""
    return set.raised and set.hidden > set.counted


cdef bint by_hidden(Beliefs s, int x, int32_t row, int32_t since) noexcept nogil
cdef bint taken_by_hidden(Beliefs s, int x, int32_t p, int32_t row) noexcept nogil
cdef bint sizes_unknown(Beliefs s, int x, int32_t row, bint told, bint soon,
                        int64_t pages=*) noexcept nogil
cdef void look_for_cap(Beliefs s, int x, int32_t row) noexcept nogil
cdef bint untold_since(Beliefs s, int64_t p, int32_t row, int32_t since) noexcept nogil
cdef int32_t first_from(
    const int32_t *rows, int32_t lo, int32_t hi, int32_t row
) noexcept nogil
cdef bint off_by_stacks(Beliefs s, int x, int32_t row, int pages) noexcept nogil
cdef int32_t fork_between(Beliefs s, int cpu, int32_t since, int32_t row, int32_t until,
                          int pages) noexcept nogil
cdef bint may_be_low(Beliefs s, int x, int32_t row) noexcept nogil
cdef void open_states(
    Beliefs s, int x, const per_cpu_pages *like, bint at_start, int maybe
) noexcept nogil
cdef void reopen(Beliefs s, int x, int32_t row) noexcept nogil
cdef void unfold(pageset *set) noexcept nogil
cdef void save(Beliefs s, pageset *set, state **to, int *nr, int64_t *cap) noexcept nogil
cdef void milestone(Beliefs s, int x) noexcept nogil
cdef void make_room(Beliefs s, int x) noexcept nogil
cdef void checkpoint(Beliefs s, int x, int32_t row) noexcept nogil
cdef void agree(Beliefs s, int x, int32_t row, int flags) noexcept nogil
cdef bint agrees(const per_cpu_pages *p, const int64_t *f) noexcept nogil
cdef bint meets(Beliefs s, const pageset *set, const state *v, const operation *last,
                const sight *g) noexcept nogil
cdef int keep(Beliefs s, int x, int32_t row, const sight *g) noexcept nogil
cdef bint goes_on(Beliefs s, const pageset *set) noexcept nogil
cdef int next_hold(Beliefs s, pageset *set) noexcept nogil
cdef void do_op_slowly(Beliefs s, int x, const operation *e) noexcept nogil
cdef bint commit_free(
    const pcp_rules *r, state *v, int order, bint quiet, state *other
) noexcept nogil


cdef inline bint goes_silently(PageLists s, int32_t q, int32_t row) noexcept nogil:
    """Whether the next that the trace tells of this page is that it is freed, and *row* is not
    about it: a page that is told of at this moment has not gone in silence."""
    cdef int32_t j = s.page[q].cursor
    return j > row and s.rows[j].event == EV_FREE and s.rows[j].b == 0 \
        and s.rows[row].a != q + s.base


cdef inline bint may_be_delayed(Beliefs s, int32_t q, int32_t row) noexcept nogil:
    """Whether the task that freed this page can still be on its way to the list.

    From mm_page_free_batched to the list it has preemption off: nobody has its CPU by then.
    """
    cdef int32_t j = s.page[q].pushed
    # One search may put off two.
    if j < 0 or s.nr_late + 1 >= MAX_LATE:
        return False
    if s.rows[j].event == EV_FREE_BATCHED:
        return s.rows[j].a == q + s.base and not 0 < s.link[j].next_cpu <= row
    return freed_at(s, q) >= 0 and not 0 < s.link[j].own_next <= row and not seen_over(s, j, row)


cdef inline void fields_of(const per_cpu_pages *p, int64_t *f) noexcept nogil:
    """The fields that a probe prints, in its order from P_COUNT on."""
    f[0], f[1], f[2], f[3], f[4] = p.count, p.high, p.batch, p.high_min, p.high_max
    f[5], f[6], f[7], f[8] = p.alloc_factor, p.free_count, p.flags, p.free_factor


cdef inline zone_info *zone_told(Beliefs s, const int64_t *f) noexcept nogil:
    """The zone that a probe prints, or NULL."""
    cdef int z
    for z in range(s.nr_zones):
        if s.zones[z].name == f[P_ZONE] and s.zones[z].node == f[P_NODE]:
            return &s.zones[z]
    return NULL


cdef inline int64_t page_at(Beliefs s, int32_t row) noexcept nogil:
    """The page that an event is about, which this passes; or -1, and that is a difference."""
    cdef int64_t p = index_of(s, s.rows[row].a)
    if p < 0:
        differ(s, row, D_PAGE, -1, 0, s.rows[row].a)
    else:
        passed(s, p, row)
    return p


cdef inline void work(Beliefs s, int op, int64_t p, int order, int mt, int cpu, int64_t n,
                      int32_t row) noexcept nogil:
    if s.work_done.ops >> op & 1:
        note_work(&s.work_done, op, p + s.base, order, mt, s.zone_of[p >> 9] if p >= 0 else 0, cpu,
                  n, row)


cdef inline void count_said(counted *of, int said) noexcept nogil:
    """One more, of which the states say so."""
    of.total += 1
    of.foreseen += said == SAID_ALL
    of.explained += said == SAID_LATE
    of.inferred += said == SAID_SOME
    of.cut += said == SAID_NOTHING


cdef inline void begin_alloc(const pcp_rules *r, state *v) noexcept nogil:
    """pcp_alloc_begin()"""
    cdef int last = v.pcp.free_count + v.span
    pcp_alloc_begin(&v.pcp, r)
    if v.span:
        v.span = (last >> 1) - v.pcp.free_count


cdef inline void allocate(const pcp_rules *r, state *v, int order) noexcept nogil:
    """A block leaves its list."""
    begin_alloc(r, v)
    pcp_alloc_end(&v.pcp, r, order)


cdef inline void add_pages(pageset *set, int n) noexcept nogil:
    cdef state *v = set.s
    unfold(set)
    while v < set.s + set.n:
        v.pcp.count += n
        v += 1


cdef inline bint some_due(const pageset *set) noexcept nogil:
    cdef const state *v = set.s
    cdef const state *end = v + set.n
    if set.nr_kinds:
        v = set.ends
        end = v + 2 * set.nr_kinds
    while v < end:
        if v.due > 0:
            return True
        v += 1
    return False


cdef inline bint apply(const pcp_rules *r, state *v, const operation *e,
                       state *other) noexcept nogil:
    """Do an operation; or true, and the state is cut in two by `commit_free`."""
    cdef bint work
    if e.op == OP_ALLOC:
        allocate(r, v, e.order)
    elif e.op == OP_FREE:
        return commit_free(r, v, e.order, e.quiet or e.got == NO_DRAIN, other)
    elif e.op == OP_DRAINED:
        v.pcp.count -= e.got
        v.due = 0
    elif e.op == OP_REFILL:
        if e.begin:
            begin_alloc(r, v)
        v.due = nr_pcp_alloc(&v.pcp, r, v.zone_flags, e.order)
        v.pcp.count += e.got << e.order
        if e.begin and e.got:
            pcp_alloc_end(&v.pcp, r, e.order)
    elif e.op == OP_EMPTIED:
        v.due = v.pcp.count - e.got
    elif e.op == OP_SILENT:
        pcp_alloc_end(&v.pcp, r, e.order)
    elif e.op == OP_TICK:
        v.due = decay_pcp_high(&v.pcp, r, &work)
        v.threshold = 0
        if r.count_min:     # once it has drained
            v.pcp.count_min = v.pcp.count - max(v.due, 0)
    return False


cdef inline void do_op(Beliefs s, int x, const operation *e) noexcept nogil:
    """Do an operation in every state; `settle` is to follow where there are several."""
    cdef pageset *set = &s.sets[x]
    cdef state *v = set.s
    if set.n != 1 or v.span:
        do_op_slowly(s, x, e)
    elif e.op == OP_FREE:
        v.due = pcp_commit_due(&v.pcp, &s.rules, v.zone_flags, e.order, &v.threshold)
    elif e.op == OP_ALLOC:
        allocate(&s.rules, v, e.order)
    else:
        do_op_slowly(s, x, e)


cdef inline operation allocation(const operation *maybe) noexcept nogil:
    """What an OP_MAYBE does if it does anything."""
    cdef operation e = maybe[0]
    e.op = OP_ALLOC
    return e


cdef inline void fill_op(operation *e, int32_t row, int op, int order,
                         unsigned int zone_flags) noexcept nogil:
    e[0] = operation(row, row, -1, 0, <uint8_t>op, <uint8_t>order, 0, 0, 0, <uint8_t>zone_flags, 0)


cdef inline bint same_state(const state *a, const state *b) noexcept nogil:
    return a.span == b.span and a.zone_flags == b.zone_flags and a.due == b.due \
        and a.threshold == b.threshold and memcmp(&a.pcp, &b.pcp, sizeof(per_cpu_pages)) == 0


cdef inline uint64_t hash_of(const state *v) noexcept nogil:
    cdef uint64_t h = <uint64_t>v.pcp.high * <uint64_t>0x9E3779B97F4A7C15
    h ^= <uint64_t>(v.pcp.count * 8 + v.zone_flags) * <uint64_t>0xC2B2AE3D27D4EB4F
    h ^= <uint64_t>v.pcp.count_min * <uint64_t>0x165667B19E3779F9
    h ^= <uint64_t>(v.pcp.free_count * 1024 + v.pcp.alloc_factor * 64 + v.pcp.free_factor * 4
                    + v.pcp.flags) * <uint64_t>0xBF58476D1CE4E5B9
    return h >> 32

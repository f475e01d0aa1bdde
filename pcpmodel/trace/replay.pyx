# cython: auto_pickle=False, autotestdict=False
"""Replay: does the model do, page for page, what a recorded kernel did?

The events of a recording drive the kernel's own decisions (`kernel/pcp.pxd`) on
lists that start from the recording's first dump.  Whatever the trace shows is
compared: the page of every allocation with the head of its list; the size and
list of every refill; the moment, size and start list of every drain, and its
pages in order; the fields of `struct per_cpu_pages` wherever a probe printed
them; the lists in every later dump.

A trace is written late: `mm_page_alloc` comes after the lists were unlocked, so
another task may be ahead of it in the text.  Such a difference counts as
explained only by the line that shows it (the later mm_page_alloc, the probe);
the rest is listed with its line.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from pcpmodel.exclusive cimport begin_use, check_idle, end_use
from pcpmodel.kernel.lists cimport (
    MAX_PCP_LISTS,
    drain_share,
    lists_in_use,
    order_to_pindex,
    pcp_allowed_order,
    pcp_migratetype,
    pindex_after,
    pindex_may_hold,
    pindex_to_only_type,
    pindex_to_order,
    pindex_to_type,
)
from pcpmodel.kernel.pages cimport (
    MIGRATE_PCPTYPES,
    PAGE_ALLOC_COSTLY_ORDER,
    ZONE_BELOW_HIGH,
    ZONE_BOOSTED_WATERMARK,
    ZONE_RECLAIM_ACTIVE,
)
from pcpmodel.kernel.pcp cimport (
    commit_goes_on,
    commit_hold,
    decay_hold,
    decay_pcp_high,
    decide_alloc,
    decide_decay,
    decide_free,
    decide_free_high,
    decide_high,
    nr_pcp_alloc,
    nr_pcp_free,
    nr_pcp_high,
    pcp_alloc_begin,
    pcp_alloc_end,
    pcp_commit,
    pcp_commit_due,
    per_cpu_pages,
    policy_failed,
    policy_from,
    policy_state,
    remote_hold,
    zone_hold,
)
from pcpmodel.kernel.rules cimport pcp_rules, rules_of
from pcpmodel.trace.assumptions cimport *
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport *
from pcpmodel.trace.work cimport *

from bisect import bisect_left

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.trace.assumptions import ASSUMPTIONS
from pcpmodel.trace.free_lists import follow
from pcpmodel.trace.exactness import Exactness
from pcpmodel.trace.markers import read_markers, stops
from pcpmodel.trace.page_lists import Difference, Explained
from pcpmodel.trace.recording import recording as open_recording
from pcpmodel.trace.start import enough, replay_without_dump, sizes
from pcpmodel.trace.work import WORK, WORK_OPS

cdef enum:
    MAX_BULK = 64
    MAX_LOG = 1 << 20   # operations on a pageset between two probes of it
    MAX_DELAYED = 64
    MAX_TURNS = 7       # of a zone's flags between two probes of a pageset
    MAX_GUESSES = 4096  # states followed side by side
    GUESS_SLOTS = 16384
    MAX_TRAIL = 1 << 23  # states followed in one search
    STEPS_PER_GUESS = 8     # log entries that are run again while one such state goes on
    MAX_EFFORT = 200_000_000    # log entries run again in all searches of a trace: 2 s
    MAX_AHEAD = 4096    # rows in which a CPU that holds a lock has its next event

    # What runs on a CPU.
    RUN_NONE = 0
    RUN_DRAIN = 1
    RUN_REFILL = 2

    # Why a drain is due.
    DUE_NONE = 0
    DUE_COMMIT = 1
    DUE_DECAY = 2
    DUE_REMOTE = 3      # drain_zone_pages()

    # Operations in the log of a pageset.
    OP_ALLOC = 1
    OP_BULK = 2
    OP_FREE = 3
    OP_REFILL = 4

cdef struct log_entry:
    int32_t row
    int32_t since       # the operation cannot be older than this row
    int32_t page
    int32_t got         # blocks of a refill
    uint8_t op
    uint8_t order
    uint8_t pindex
    uint8_t begin       # the refill halved free_count first
    uint8_t cut         # the refill got less because there was no more
    uint8_t zone_flags

# What a log of operations leads to.
cdef struct outcome:
    per_cpu_pages pcp
    int due             # pages that the last operation must drain
    int threshold       # for count >= threshold
    int pindex
    bint clash          # an earlier operation would have drained, or refilled otherwise

# What the trace says it led to.
cdef struct goal:
    const int64_t *fields   # of a probe, or NULL
    int drain               # size of the drain that began, 0 none
    int pindex

# A page that may have left its list before row, though it was reported later.
cdef struct candidate:
    int32_t page
    int32_t report      # row of its mm_page_alloc
    int32_t since
    int32_t until

cdef struct pageset:
    per_cpu_pages pcp
    page_list *list
    int zone
    int cpu
    uint64_t addr
    int64_t touched
    int due             # DUE_*
    int due_left
    int due_threshold   # of a commit: what nr_pcp_high() said [pages]
    int due_hold        # per_cpu_pages.chunk when it was decided
    int due_chunk
    int due_pindex
    int due_started
    int32_t due_doubt   # row at which another CPU had the lists locked, -1 none
    int32_t due_row
    per_cpu_pages agreed
    int32_t agreed_row
    int agreed_flags    # of the zone, then; start_flags: at the first operation since, as
    int start_flags     # another CPU's probe may have shown (which may be late)
    log_entry *log
    int log_n
    int log_cap

cdef struct zone_info:
    int64_t start
    int64_t end
    int node
    int name
    unsigned int flags
    int seen_flags      # that any probe shows
    int told_flags      # by the last probe, or the first dump
    int32_t cleared[3]  # row from which on each flag is known to be clear, by its bit
    int32_t unboosted   # last probe without ZONE_BOOSTED_WATERMARK that was over by the last one
    int32_t doubted     # ... and the last one, of which the CPU shows no other line until then
    int32_t boosted     # last row that shows a fallback in this zone
    int32_t woken       # last row that shows its node's kswapd awake
    int32_t reclaiming  # last probe with ZONE_RECLAIM_ACTIVE
    int64_t nr_free     # as the last probe told, and with what moved since [pages]
    int64_t least_free  # since the last probe without ZONE_BELOW_HIGH
    int64_t enough      # no watermark test sets ZONE_BELOW_HIGH above [pages]

cdef struct cpu_run:
    int kind
    int set             # pageset
    int pindex
    int order
    int want
    int got
    int left
    int32_t row
    int32_t first       # first page of a refill
    int bulk            # index of the bulk section, or -1
    int cursor          # list a drain is at
    int share           # blocks that it takes of that one yet, where lists take turns
    int bad
    bint told           # the model would have had it otherwise; another line explains it
    int log_at          # entry of a refill in the log
    int draining        # pageset of the drain_pages_zone() that this CPU is in, or -1
    int ticking         # task that does a vmstat tick here, 0 none
    int decays          # that its probes have shown
    int32_t last_pfn

cdef struct contig:
    int64_t pfn
    int64_t left
    int32_t row

cdef struct bulk_call:
    int pid
    int cpu
    int taken
    int migratetype
    int nid
    int32_t row

# A single free whose task was stopped between mm_page_free and the list.
cdef struct delayed_free:
    int32_t page
    int32_t row
    int order
    int cpu

# A state that a pageset can have come to; search_flags().
cdef struct guess:
    per_cpu_pages pcp
    int zone_flags
    int due
    int threshold
    int pindex
    int inserted        # the extra operation is in
    int at              # ... before this entry
    int turns           # of the zone's flags so far
    int parent          # in the layer before

cdef struct step_back:
    int16_t parent
    uint8_t zone_flags

# What the kernel decided, and what a user's policy would have, from the same state.
cdef struct decision:
    int64_t line
    int32_t kind        # RUN_REFILL, RUN_DRAIN
    int32_t set
    int32_t kernel
    int32_t policy
    int32_t kernel_high
    int32_t policy_high

cdef struct tally:
    int64_t allocations
    int64_t allocations_foreseen
    int64_t allocations_explained
    int64_t refills
    int64_t refills_foreseen
    int64_t refills_explained
    int64_t drains
    int64_t drains_foreseen
    int64_t drains_explained
    int64_t drained_pages
    int64_t drained_pages_foreseen
    int64_t drained_pages_explained
    int64_t frees
    int64_t direct_allocations
    int64_t direct_frees
    int64_t bulk_pages
    int64_t probes
    int64_t probes_foreseen
    int64_t probes_explained

cdef class _Replayer(PageLists)


# -- what was done --------------------------------------------------------------------

cdef log_entry *log_op(_Replayer s, int x, int32_t row, int op, int order) noexcept nogil:
    """Remember an operation until the next probe agrees; NULL when memory is out."""
    cdef pageset *set = &s.sets[x]
    cdef log_entry *e
    cdef void *more
    set.touched += 1
    if set.log_n == MAX_LOG:
        # Nobody will look that far back: what the model has is taken for what the kernel had.
        set.log_n = 0
        set.agreed_row = row
        set.agreed_flags = s.zones[set.zone].flags
    if set.log_n == 0:
        set.agreed = set.pcp
        set.start_flags = s.zones[set.zone].flags
    if set.log_n == set.log_cap:
        more = realloc(set.log, (2 * set.log_cap + 64) * sizeof(log_entry))
        if more == NULL:
            return NULL
        set.log = <log_entry *>more
        set.log_cap = 2 * set.log_cap + 64
    e = &set.log[set.log_n]
    e.row = row
    e.since = row
    e.page = -1
    e.op = <uint8_t>op
    e.order = <uint8_t>order
    e.pindex = 0
    e.begin = 0
    e.cut = 0
    e.got = 0
    e.zone_flags = <uint8_t>s.zones[set.zone].flags
    set.log_n += 1
    return e


cdef void note_work(_Replayer s, int op, int64_t p, int order, int migratetype, int cpu,
                    int64_t n, int32_t row) noexcept nogil:
    """Note a piece of work, for whoever wants to do it again under other rules."""
    cdef work_row *w
    cdef void *more
    if not s.work_ops >> op & 1:
        return
    if s.nr_work == s.work_cap:
        more = realloc(s.work_rows, 2 * s.work_cap * sizeof(work_row))
        if more == NULL:
            s.broken = True
            return
        s.work_rows = <work_row *>more
        s.work_cap *= 2
    w = &s.work_rows[s.nr_work]
    w.op = <uint8_t>op
    w.pfn = p + s.base
    w.n = n
    w.row = row
    w.cpu = cpu
    w.order = <uint8_t>order
    w.migratetype = <uint8_t>migratetype
    w.zone = <uint8_t>s.zone_of[p >> 9] if p >= 0 else 0
    s.nr_work += 1


cdef void note_decision(_Replayer s, int x, int32_t row, int kind, int kernel, int policy,
                        const per_cpu_pages *mine) noexcept nogil:
    """Note a decision that moves pages, the kernel's or the policy's."""
    cdef decision *d
    cdef void *more
    s.policies[x].holds += kernel > 0
    if s.policies[x].error:
        # Nobody else may be asked: its exception waits.
        s.failed = &s.policies[x]
        s.policies = NULL
        return
    if kernel == 0 and policy == 0:
        return
    if s.nr_decisions == s.decisions_cap:
        more = realloc(s.decided, (2 * s.decisions_cap + 1024) * sizeof(decision))
        if more == NULL:
            s.broken = True
            return
        s.decided = <decision *>more
        s.decisions_cap = 2 * s.decisions_cap + 1024
    d = &s.decided[s.nr_decisions]
    d.line = s.rows[row].line
    d.kind = kind
    d.set = x
    d.kernel = kernel
    d.policy = policy
    d.kernel_high = s.sets[x].pcp.high
    d.policy_high = mine.high
    s.nr_decisions += 1


cdef void ask_at_refill(_Replayer s, int x, int32_t row, int order,
                        per_cpu_pages mine, int kernel) noexcept nogil:
    """What a policy asks for where the kernel asked for *kernel* blocks; *mine*: before that."""
    cdef int n = decide_alloc(
        &s.policies[x], &mine, &s.rules, s.zones[s.sets[x].zone].flags, order)
    note_decision(s, x, row, RUN_REFILL, kernel, n, &mine)


cdef void ask_at_free(_Replayer s, int x, int32_t row, int order, bint free_high,
                      per_cpu_pages mine, int kernel) noexcept nogil:
    """What a policy drains where the kernel drains *kernel* pages; *mine*: before it decided."""
    cdef unsigned int flags = s.zones[s.sets[x].zone].flags
    cdef policy_state *state = &s.policies[x]
    cdef int high, n = 0
    free_high = decide_free_high(state, &mine, &s.rules, flags, order, free_high)
    high = decide_high(state, &mine, &s.rules, flags, order, free_high)
    if mine.count >= high:
        n = min(decide_free(state, &mine, &s.rules, flags, order, free_high, high), mine.count)
    note_decision(s, x, row, RUN_DRAIN, min(kernel, mine.count), n, &mine)


cdef void ask_at_tick(_Replayer s, int x, int32_t row, per_cpu_pages mine,
                      int kernel) noexcept nogil:
    """What a policy drains at a vmstat tick."""
    cdef bint work
    cdef int n = decide_decay(
        &s.policies[x], &mine, &s.rules, s.zones[s.sets[x].zone].flags, &work)
    note_decision(s, x, row, RUN_DRAIN, kernel, n, &mine)


# -- operations -----------------------------------------------------------------------

cdef inline int list_type(_Replayer s, int64_t p) noexcept nogil:
    """Migratetype of the list that a freed page goes to."""
    return pcp_migratetype(s.block_type[p >> 9])


cdef void next_chunk(_Replayer s, int x) noexcept nogil:
    """Size of the next free_pcppages_bulk() of a drain that is due."""
    cdef pageset *set = &s.sets[x]
    # Of a tree: another task's free between two holds has put its own answer there.
    set.pcp.chunk = set.due_hold
    if set.due == DUE_COMMIT:
        set.due_chunk = commit_hold(&set.pcp, &s.rules, set.due_left)
    elif set.due == DUE_DECAY:
        set.due_chunk = decay_hold(&set.pcp, &s.rules, set.due_left)
    else:
        set.due_chunk = set.due_left


cdef bint goes_on(_Replayer s, const pageset *set) noexcept nogil:
    """After a hold: has the drain that is due yet another one?"""
    if set.due == DUE_COMMIT:
        return commit_goes_on(&set.pcp, &s.rules, set.due_left, set.due_threshold)
    return set.due_left > 0 and set.pcp.count > 0


cdef void give_up(_Replayer s, int x, int32_t row) noexcept nogil:
    """The rest of a drain in pieces does not come: the lists could not be locked again."""
    cdef pageset *set = &s.sets[x]
    if set.due == DUE_COMMIT and set.due_started and set.due_left > 0:
        if set.due_doubt >= 0:
            explain(s, row, E_RELOCK, x, set.due_doubt)
        else:
            differ(s, row, D_DRAIN_MISSING, x, set.due_left, 0)
    set.due = DUE_NONE


cdef void make_due(_Replayer s, int x, int why, int n, int threshold, int pindex,
                   int32_t row) noexcept nogil:
    """A drain of *n* pages must follow; of a commit, because count reached *threshold*."""
    cdef pageset *set = &s.sets[x]
    if set.due:
        give_up(s, x, row)
    set.due = why
    set.due_left = n
    set.due_hold = set.pcp.chunk
    set.due_threshold = threshold
    set.due_pindex = pindex
    set.due_started = 0
    set.due_doubt = -1
    set.due_row = row
    next_chunk(s, x)


# -- who was first? -------------------------------------------------------------------
#
# Between two probes the model may have applied operations in the order of the text
# while the kernel did them in another one.  The log of a pageset since the last
# agreement is run again with one thing changed, until what the trace shows comes out.

cdef inline bint tired(_Replayer s, int32_t row) noexcept nogil:
    """Whether all searches together have cost what they may."""
    if s.effort >= 0:
        return False
    if s.cut_row < 0:
        s.cut_row = row
    return True


cdef void rerun(_Replayer s, const pageset *set, const log_entry *log, int n,
                outcome *out) noexcept nogil:
    cdef int k, high, want
    cdef const log_entry *e
    cdef per_cpu_pages *pcp = &out.pcp
    s.effort -= n + 1
    out.pcp = set.agreed
    out.due = 0
    out.threshold = 0
    out.pindex = 0
    out.clash = False
    for k in range(n):
        e = &log[k]
        if out.due:
            out.clash = True
            return
        if e.op == OP_FREE:
            out.due = pcp_commit_due(pcp, &s.rules, e.zone_flags, e.order, &high)
            if out.due:
                out.threshold = high
                out.pindex = e.pindex
        elif e.op == OP_REFILL:
            if e.begin:
                pcp_alloc_begin(pcp, &s.rules)
            want = nr_pcp_alloc(pcp, &s.rules, e.zone_flags, e.order)
            if want != e.got and (want < e.got or not e.cut):
                out.clash = True
                return
            pcp.count += e.got << e.order
            if e.begin and e.got:
                pcp_alloc_end(pcp, &s.rules, e.order)
        else:
            if e.op == OP_ALLOC:
                pcp_alloc_begin(pcp, &s.rules)
            pcp_alloc_end(pcp, &s.rules, e.order)


cdef bint reached(_Replayer s, const goal *g, const outcome *out) noexcept nogil:
    if out.clash:
        return False
    if g.fields != NULL and not agrees(&out.pcp, g.fields):
        return False
    if g.drain == 0:
        return out.due == 0
    return commit_hold(&out.pcp, &s.rules, out.due) == g.drain and out.pindex == g.pindex


cdef bint room(_Replayer s, int n) noexcept nogil:
    cdef void *more
    if n <= s.scratch_cap:
        return True
    more = realloc(s.scratch, 2 * n * sizeof(log_entry))
    if more == NULL:
        return False
    s.scratch = <log_entry *>more
    s.scratch_cap = 2 * n
    return True


cdef inline bint sooner(_Replayer s, const candidate *a, const candidate *b,
                        int pid) noexcept nogil:
    cdef bint mine = s.rows[a.report].pid == pid
    if mine != (s.rows[b.report].pid == pid):
        return mine
    return a.report < b.report


cdef int find_candidates(_Replayer s, int x, int32_t row, candidate *found,
                         int most) noexcept nogil:
    """Pages that a task had taken by *row* and reported later, likeliest first.

    Such a page is at the head, or below pages that joined the list since its
    task was last seen, or below other such pages.  The task that an interrupt
    stopped here is the likeliest; then who reports soonest.
    """
    cdef pageset *set = &s.sets[x]
    cdef int i, k, n = 0, depth
    cdef int32_t q, j, oldest
    cdef int pid = s.rows[row].pid
    cdef candidate c
    for i in range(s.rules.nr_pcp_lists):
        q = set.list[i].head
        oldest = s.nr_rows      # oldest push among the pages above that did not leave
        depth = 0
        while q >= 0 and depth < 2048:
            j = s.page[q].cursor
            if in_flight(s, q, row) and s.link[j].own_prev < oldest:
                c.page = q
                c.report = j
                c.since = max(s.link[j].own_prev, s.page[q].pushed)
                c.until = oldest
                k = n if n < most else most - 1
                if n < most:
                    n += 1
                elif not sooner(s, &c, &found[k], pid):
                    k = -1
                while k > 0 and sooner(s, &c, &found[k - 1], pid):
                    found[k] = found[k - 1]
                    k -= 1
                if k >= 0:
                    found[k] = c
            # It may have stayed as well.
            oldest = min(oldest, s.page[q].pushed)
            depth += 1
            q = s.page[q].next
        s.effort -= depth
    return n


cdef bint room_to_search(_Replayer s, int n) noexcept nogil:
    cdef void *more
    if s.trail == NULL:
        s.trail = <step_back *>malloc(MAX_TRAIL * sizeof(step_back))
        s.layers = <guess *>malloc(2 * MAX_GUESSES * sizeof(guess))
        if s.trail == NULL or s.layers == NULL:
            return False
    if n <= s.turns_cap:
        return True
    more = realloc(s.turns, 2 * n)
    if more == NULL:
        return False
    s.turns = <uint8_t *>more
    more = realloc(s.trail_at, 2 * n * sizeof(int32_t))
    if more == NULL:
        return False
    s.trail_at = <int32_t *>more
    s.turns_cap = 2 * n
    return True


cdef void find_turns(_Replayer s, int x, int32_t row) noexcept nogil:
    """Before which operations of the log the zone's flags can have turned.

    Only the drain of a commit clears ZONE_BELOW_HIGH, and its probe shows that it
    was set; only a kswapd that wakes sets ZONE_RECLAIM_ACTIVE.  Setting the one and
    clearing the other leaves no line.  Both happen some time after their line.
    """
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef int32_t j = max(set.agreed_row - 500, 0)
    cdef int k, seen = 0
    cdef const event_row *r
    cdef const int64_t *f
    s.effort -= (row - j) >> 3
    for k in range(set.log_n + 1):
        while j < (set.log[k].row if k < set.log_n else row):
            r = &s.rows[j]
            if r.event == EV_KSWAPD_WAKE and (r.c == z.node or r.c < 0):
                seen |= ZONE_RECLAIM_ACTIVE
            elif r.event == EV_FREE_PCPPAGES_BULK:
                f = &s.probes[r.probe * P_COLUMNS]
                if f[P_ZONE] == z.name and f[P_NODE] == z.node \
                        and f[P_ZONE_FLAGS] & ZONE_BELOW_HIGH:
                    seen |= ZONE_BELOW_HIGH
            j += 1
        s.turns[k] = <uint8_t>seen


cdef inline bint may_turn(int was, int now, int turns) noexcept nogil:
    if was & ~now & ZONE_BELOW_HIGH and not turns & ZONE_BELOW_HIGH:
        return False
    return not (now & ~was & ZONE_RECLAIM_ACTIVE and not turns & ZONE_RECLAIM_ACTIVE)


cdef inline bint same_state(const guess *a, const guess *b) noexcept nogil:
    return a.pcp.high == b.pcp.high and a.pcp.count == b.pcp.count \
        and a.pcp.alloc_factor == b.pcp.alloc_factor and a.pcp.free_count == b.pcp.free_count \
        and a.pcp.free_factor == b.pcp.free_factor and a.pcp.flags == b.pcp.flags \
        and a.zone_flags == b.zone_flags and a.inserted == b.inserted and a.due == b.due \
        and a.threshold == b.threshold


cdef int add_guess(guess *layer, int n, const guess *new, int16_t *table,
                   int slots) noexcept nogil:
    """Put a state in a layer unless it is there with fewer turns."""
    cdef uint64_t h = <uint64_t>new.pcp.high * <uint64_t>0x9E3779B97F4A7C15
    h ^= <uint64_t>(new.pcp.count * 8 + new.zone_flags + new.inserted) \
        * <uint64_t>0xC2B2AE3D27D4EB4F
    h ^= <uint64_t>(new.pcp.free_count * 64 + new.pcp.alloc_factor + new.pcp.flags * 8) \
        * <uint64_t>0xBF58476D1CE4E5B9
    h = h >> 40 & (slots - 1)
    while table[h] >= 0:
        if same_state(&layer[table[h]], new):
            if new.turns < layer[table[h]].turns:
                layer[table[h]] = new[0]
            return n
        h = (h + 1) & (slots - 1)
    if n == MAX_GUESSES:
        return n
    table[h] = <int16_t>n
    layer[n] = new[0]
    return n + 1


cdef bint apply(_Replayer s, guess *v, const log_entry *e, int flags) noexcept nogil:
    """One operation; false if the trace shows that it went otherwise."""
    cdef per_cpu_pages *pcp = &v.pcp
    cdef int high, want
    if v.due:
        return False
    if e.op == OP_FREE:
        v.due = pcp_commit_due(pcp, &s.rules, flags, e.order, &high)
        if v.due:
            v.threshold = high
            v.pindex = e.pindex
    elif e.op == OP_REFILL:
        if e.begin:
            pcp_alloc_begin(pcp, &s.rules)
        want = nr_pcp_alloc(pcp, &s.rules, flags, e.order)
        if want != e.got and (want < e.got or not e.cut):
            return False
        pcp.count += e.got << e.order
        if e.begin and e.got:
            pcp_alloc_end(pcp, &s.rules, e.order)
    else:
        if e.op == OP_ALLOC:
            pcp_alloc_begin(pcp, &s.rules)
        pcp_alloc_end(pcp, &s.rules, e.order)
    return True


cdef bint search_flags(_Replayer s, int x, int32_t row, const goal *g, const candidate *c,
                       int last_flags, outcome *out) noexcept nogil:
    """Fewest turns of the zone's flags that lead to what the trace shows."""
    cdef int most
    for most in range(MAX_TURNS):
        if search_turns(s, x, row, g, c, last_flags, most, out):
            return True
        if s.zones[s.sets[x].zone].seen_flags == 0:
            break
    return False


cdef bint search_turns(_Replayer s, int x, int32_t row, const goal *g, const candidate *c,
                       int last_flags, int most, outcome *out) noexcept nogil:
    """The same, with at most so many turns.

    All states that the log can lead to are followed side by side, with a page that
    left earlier (*c*) put in wherever that is possible.  On success the log is the
    one that was found.
    """
    cdef pageset *set = &s.sets[x]
    cdef int n = set.log_n
    cdef int k, i, v, flags, have, more, best, turns, kinds, slots, used = 0
    cdef log_entry extra
    cdef log_entry *e
    cdef guess new
    cdef guess *layer
    cdef guess *into
    cdef guess *swap
    cdef bint sensitive
    cdef outcome end
    if tired(s, row) or not room_to_search(s, n + 1):
        return False
    layer = s.layers
    into = s.layers + MAX_GUESSES
    find_turns(s, x, row)
    kinds = s.zones[set.zone].seen_flags
    memset(&extra, 0, sizeof(extra))
    if c != NULL:
        extra.op = OP_ALLOC
        extra.order = <uint8_t>pindex_to_order((s.page[c.page].where - 1) & 15)
        extra.row = c.report
        extra.since = c.since
        extra.page = c.page
    memset(&layer[0], 0, sizeof(guess))
    layer[0].pcp = set.agreed
    layer[0].zone_flags = set.agreed_flags
    layer[1] = layer[0]
    layer[1].zone_flags = set.start_flags
    have = 1 + (set.start_flags != set.agreed_flags)
    for k in range(n + 1):
        # A page that left before this operation.
        if c != NULL and (k == 0 or set.log[k - 1].row < c.until) \
                and (k == n or set.log[k].row > c.since):
            more = have
            for i in range(have):
                if not layer[i].inserted and more < MAX_GUESSES:
                    new = layer[i]
                    if apply(s, &new, &extra, 0):
                        new.inserted = 1
                        new.at = k
                        layer[more] = new
                        more += 1
            have = more
        if k == n:
            break
        e = &set.log[k]
        turns = s.turns[k]
        sensitive = e.op == OP_FREE or e.op == OP_REFILL
        slots = 64
        while slots < 16 * have and slots < GUESS_SLOTS:  # each leads to 4 states at most
            slots *= 2
        memset(s.table, -1, slots * sizeof(s.table[0]))
        more = 0
        s.effort -= <int64_t>STEPS_PER_GUESS * have
        if tired(s, row) or used + MAX_GUESSES > MAX_TRAIL:
            return False
        s.trail_at[k] = used
        for i in range(have):
            # v goes through 0 and the flags that this zone ever showed, by two bits from bit 1.
            for v in range(0, 8 if sensitive else 2, 2):
                new = layer[i]
                flags = new.zone_flags ^ v
                if v:
                    if v & ~kinds or new.turns == most:
                        continue
                    if not may_turn(new.zone_flags, flags, turns):
                        continue
                    new.turns += 1
                new.zone_flags = flags
                if not apply(s, &new, e, flags):
                    continue
                new.parent = i
                more = add_guess(into, more, &new, s.table, slots)
        if more == 0:
            return False
        s.most_states = max(s.most_states, more)
        for i in range(more):
            s.trail[used + i].parent = <int16_t>into[i].parent
            s.trail[used + i].zone_flags = <uint8_t>into[i].zone_flags
        used += more
        swap = layer
        layer = into
        into = swap
        have = more
    turns = s.turns[n]
    best = -1
    for i in range(have):
        if c != NULL and not layer[i].inserted:
            continue
        if last_flags >= 0 and g.fields != NULL \
                and not may_turn(layer[i].zone_flags, last_flags, turns):
            continue
        end.pcp = layer[i].pcp
        end.due = layer[i].due
        end.threshold = layer[i].threshold
        end.pindex = layer[i].pindex
        end.clash = False
        if reached(s, g, &end) and (best < 0 or layer[i].turns < layer[best].turns):
            best = i
            out[0] = end
    if best < 0:
        return False
    flags = layer[best].zone_flags
    k = layer[best].at
    v = best
    if n and layer[best].inserted and k == n:
        v = layer[best].parent
    for i in range(n - 1, -1, -1):
        set.log[i].zone_flags = s.trail[s.trail_at[i] + v].zone_flags
        v = s.trail[s.trail_at[i] + v].parent
    s.zones[set.zone].flags = flags
    if c != NULL and log_op(s, x, row, OP_ALLOC, 0) != NULL:
        for i in range(n, k, -1):
            set.log[i] = set.log[i - 1]
        set.log[k] = extra
    return True


cdef int32_t on_top(_Replayer s, int x, const goal *g, const candidate *c,
                    outcome *out) noexcept nogil:
    """Was a page that is said to have left before others came (`take_late`) below *c* instead?

    *c* joined above it and had left by then, to be reported later: one cause for what else takes
    two.  On success the log is the one that was found; returns the row of that page, or -1.
    """
    cdef pageset *set = &s.sets[x]
    cdef log_entry late, extra
    cdef int k, m, n
    cdef bint placed
    if not room(s, set.log_n + 4):
        return -1
    for m in range(set.log_n - 1):
        if s.effort < 0:
            break
        late = set.log[m]
        # It is put before what its line comes after.
        if late.op != OP_ALLOC or late.row <= set.log[m + 1].row or late.row <= c.since \
                or late.row >= c.report:
            continue
        extra = late
        extra.order = <uint8_t>pindex_to_order((s.page[c.page].where - 1) & 15)
        extra.row = c.report
        extra.since = c.since
        extra.page = c.page
        n = 0
        placed = False
        for k in range(set.log_n + 1):
            if not placed and (k == set.log_n or (k > m and set.log[k].row > late.row)):
                s.scratch[n] = extra
                s.scratch[n + 1] = late
                n += 2
                placed = True
            if k != m and k < set.log_n:
                s.scratch[n] = set.log[k]
                n += 1
        rerun(s, set, s.scratch, n, out)
        if reached(s, g, out) and log_op(s, x, extra.row, OP_ALLOC, 0) != NULL:
            memcpy(set.log, s.scratch, n * sizeof(log_entry))
            return late.row
    return -1


cdef bint reconcile(_Replayer s, int x, int32_t row, const goal *g, int zone_flags,
                    int32_t flags_row) noexcept nogil:
    """Find the one order of the operations in the log that leads to what the trace shows."""
    cdef pageset *set = &s.sets[x]
    cdef candidate found[64]
    cdef outcome out
    cdef int n, k, m, too_many
    cdef int32_t late
    cdef log_entry moved
    if set.log_n == 0:
        set.agreed = set.pcp
        set.start_flags = s.zones[set.zone].flags
    if tired(s, row) or not room(s, set.log_n + 4):
        return False
    rerun(s, set, set.log, set.log_n, &out)
    if out.clash and g.fields != NULL:
        too_many = -1
    else:
        too_many = out.pcp.count - g.fields[P_COUNT] if g.fields != NULL else -1
    # Zone flags between two probes.
    if too_many <= 0 and search_flags(s, x, row, g, NULL, zone_flags, &out):
        set.pcp = out.pcp
        s.due_found = out
        explain(s, row, E_ZONE_FLAGS, x, flags_row if flags_row >= 0 else row)
        return True
    # A page that was taken already and reported later.
    n = find_candidates(s, x, row, found, 64)
    for k in range(n):
        m = (s.page[found[k].page].where - 1) & 15
        if too_many >= 0 and too_many != 1 << pindex_to_order(m):
            continue
        late = on_top(s, x, g, &found[k], &out)
        if late >= 0 or search_flags(s, x, row, g, &found[k], zone_flags, &out):
            note_work(s, WORK_ALLOC, found[k].page, pindex_to_order(m), m, set.cpu, 0, row)
            unlink_page(s, found[k].page)
            await_report(s, found[k].page, SHOWN, pindex_to_order(m), pindex_to_only_type(m))
            set.pcp = out.pcp
            s.due_found = out
            if late < 0 or not instead(s, late, E_LATE, E_OVERTAKEN, found[k].report):
                explain(s, row, E_IN_FLIGHT, x, found[k].report)
            return True
    # A page whose task was stopped between mm_page_free and the list.
    for k in range(set.log_n - 1, -1, -1):
        if tired(s, row):
            return False
        if set.log[k].op != OP_FREE or (too_many >= 0 and too_many != 1 << set.log[k].order) \
                or (s.page[set.log[k].page].where - 1) >> 4 != x \
                or not may_be_delayed(s, set.log[k].page, row):
            continue
        memcpy(s.scratch, set.log, k * sizeof(log_entry))
        memcpy(s.scratch + k, set.log + k + 1, (set.log_n - k - 1) * sizeof(log_entry))
        rerun(s, set, s.scratch, set.log_n - 1, &out)
        if reached(s, g, &out):
            s.due_found = out
            delay(s, set.log[k].page, row)
            return True
    # A reported page that was taken earlier than its line says.
    for k in range(set.log_n - 1, -1, -1):
        if too_many > 0 or tired(s, row):
            return False
        if set.log[k].op != OP_ALLOC or k == 0 or set.log[k - 1].row < set.log[k].since:
            continue
        moved = set.log[k]
        memcpy(s.scratch, set.log, set.log_n * sizeof(log_entry))
        m = k
        while m > 0 and set.log[m - 1].row > moved.since and not tired(s, row):
            s.scratch[m] = s.scratch[m - 1]
            s.scratch[m - 1] = moved
            m -= 1
            rerun(s, set, s.scratch, set.log_n, &out)
            if reached(s, g, &out):
                memcpy(set.log, s.scratch, set.log_n * sizeof(log_entry))
                set.pcp = out.pcp
                s.due_found = out
                explain(s, row, E_IN_FLIGHT, x, moved.row)
                return True
    return False


cdef int32_t next_flags(_Replayer s, int x, int32_t row) noexcept nogil:
    """Next row whose probe shows the flags of this pageset's zone, or -1."""
    cdef int32_t j
    cdef const int64_t *f
    cdef const event_row *r
    cdef zone_info *z = &s.zones[s.sets[x].zone]
    if s.effort < 0:
        return -1
    for j in range(row, s.nr_rows):
        r = &s.rows[j]
        if r.probe >= 0:
            f = &s.probes[r.probe * P_COLUMNS]
            if f[P_ZONE] == z.name and f[P_NODE] == z.node and f[P_ZONE_FLAGS] >= 0:
                s.effort -= (j - row) >> 3
                return j
    s.effort -= (s.nr_rows - row) >> 3
    return -1


cdef void missing_drain(_Replayer s, int x, int32_t row) noexcept nogil:
    """Something else happens while the model says that a drain must come first."""
    cdef pageset *set = &s.sets[x]
    cdef goal g
    cdef int32_t j
    cdef int flags = -1
    if set.due == DUE_COMMIT:
        g.fields = NULL
        g.drain = 0
        g.pindex = 0
        j = next_flags(s, x, set.due_row)
        if j >= 0:
            flags = <int>s.probes[s.rows[j].probe * P_COLUMNS + P_ZONE_FLAGS]
        if reconcile(s, x, row, &g, flags, j):
            set.due = DUE_NONE
            return
    differ(s, row, D_DRAIN_MISSING, x, set.due_chunk, set.due)
    set.due = DUE_NONE


cdef void take(_Replayer s, int x, int32_t p, int32_t row, int order, int op,
               int32_t call=0) noexcept nogil:
    """A block leaves its list for the caller."""
    cdef pageset *set = &s.sets[x]
    cdef log_entry *e
    if set.due and set.due_started == 0:
        missing_drain(s, x, row)
    if not s.page[p].where:
        # It was found to have left earlier.
        differ(s, row, D_NOT_LISTED, x, 0, p + s.base)
        return
    e = log_op(s, x, row, op, order)
    if e != NULL:
        e.since = max(s.link[row].own_prev, s.page[p].pushed)
        e.page = p
    note_work(s, WORK_ALLOC if op == OP_ALLOC else WORK_BULK, p, order, (s.page[p].where - 1) & 15,
              set.cpu, call, row)
    unlink_page(s, p)
    if op == OP_ALLOC:
        pcp_alloc_begin(&set.pcp, &s.rules)
    pcp_alloc_end(&set.pcp, &s.rules, order)


cdef void commit(_Replayer s, int64_t p, int order, int cpu, int32_t row) noexcept nogil:
    """A freed block joins its list; says whether a drain must follow."""
    cdef int x = set_of(s, p, cpu)
    cdef pageset *set = &s.sets[x]
    cdef int i = order_to_pindex(s.rules.nr_pcp_lists, list_type(s, p), order)
    cdef int high, n = 0
    cdef bint free_high
    cdef log_entry *e
    cdef unsigned int flags
    cdef per_cpu_pages before
    if s.page[p].where:
        differ(s, row, D_FREED_TWICE, x, 0, p + s.base)
        return
    if set.due and set.due_started == 0:
        missing_drain(s, x, row)
    e = log_op(s, x, row, OP_FREE, order)
    if e != NULL:
        e.pindex = <uint8_t>i
        e.page = <int32_t>p
    s.t.frees += 1
    if s.page[p].status != TOGETHER:
        note_work(s, WORK_FREE, p, order, 0, cpu, 0, row)
    s.page[p].status = AWAY
    s.page[p].cached = s.block_type[p >> 9]
    push(s, x, i, <int32_t>p, row, False)
    flags = s.zones[set.zone].flags
    free_high = pcp_commit(&set.pcp, &s.rules, order)
    if s.policies != NULL:
        before = set.pcp
    high = nr_pcp_high(&set.pcp, &s.rules, flags, free_high)
    if set.pcp.count >= high:
        n = nr_pcp_free(&set.pcp, &s.rules, high, free_high)
        make_due(s, x, DUE_COMMIT, n, high, i, row)
    if s.policies != NULL:
        ask_at_free(s, x, row, order, free_high, before, n)


cdef void commit_contig(_Replayer s, int cpu) noexcept nogil:
    """Go on with a contiguous free (v7.2): aligned chunks, until one of them drains."""
    cdef contig *c = &s.contigs[cpu]
    cdef int order, x
    cdef int64_t p
    cdef int32_t nxt
    while c.left > 0:
        order = 0
        while order < 10 and not (c.pfn >> order) & 1 and (2 << order) <= c.left:
            order += 1
        p = c.pfn - s.base
        x = set_of(s, p, cpu)
        if s.sets[x].due and s.sets[x].due_started == 0:
            return
        if s.sets[x].due and s.runs[cpu].kind == RUN_DRAIN:
            return
        c.pfn += <int64_t>1 << order
        c.left -= <int64_t>1 << order
        nxt = s.page[p].cursor
        if not pcp_allowed_order(s.rules.nr_pcp_lists, order) or (
                nxt and s.rows[nxt].b == order
                and (s.rows[nxt].event == EV_FREE_ONE_PAGE or s.rows[nxt].event == EV_PAGE_COMMIT)):
            continue
        commit(s, p, order, cpu, c.row)


cdef int find_bulk(_Replayer s, int pid) noexcept nogil:
    cdef int i
    for i in range(s.nr_bulk):
        if s.bulk[i].pid == pid:
            return i
    return -1


cdef void finish_run(_Replayer s, int cpu, int32_t row) noexcept nogil:
    """What ran with interrupts off on this CPU is over."""
    cdef cpu_run *run = &s.runs[cpu]
    cdef pageset *set = &s.sets[run.set]
    cdef int32_t p
    cdef int kind = run.kind
    run.kind = RUN_NONE
    if kind == RUN_DRAIN:
        if run.left > 0 and set.pcp.count > 0:
            differ(s, run.row, D_DRAIN_SHORT, run.set, run.want, run.want - run.left)
            run.bad = 1
        if not run.bad:
            s.t.drains_explained += run.told
            s.t.drains_foreseen += not run.told
        set.log_n = 0
        if set.due and run.draining != run.set:
            if goes_on(s, set):
                next_chunk(s, run.set)
            else:
                set.due = DUE_NONE
        if s.contigs[cpu].left:
            commit_contig(s, cpu)
        return
    if kind == RUN_REFILL:
        if run.log_at < set.log_n and set.log[run.log_at].row == run.row:
            set.log[run.log_at].got = run.got
        set.pcp.count += run.got << run.order
        if run.got != run.want:
            differ(s, run.row, D_REFILL_SIZE, run.set, run.want, run.got)
        elif not run.bad:
            s.t.refills_explained += run.told
            s.t.refills_foreseen += not run.told
        if run.bulk < 0 and set.list[run.pindex].head >= 0:
            p = set.list[run.pindex].head
            unlink_page(s, p)
            pcp_alloc_end(&set.pcp, &s.rules, run.order)
            await_report(
                s, p, SHOWN if run.told else TAKEN, run.order, pindex_to_only_type(run.pindex))


cdef void take_late(_Replayer s, int x, int32_t p, int32_t row, int order,
                    int32_t until) noexcept nogil:
    """A block left its list before row *until*, when others were put above it."""
    cdef pageset *set = &s.sets[x]
    cdef outcome out
    cdef log_entry *e
    cdef int at, k
    if set.due and set.due_started == 0 and set.due != DUE_COMMIT:
        missing_drain(s, x, row)
    e = log_op(s, x, row, OP_ALLOC, order)
    note_work(s, WORK_ALLOC, p, order, (s.page[p].where - 1) & 15, set.cpu, 0, row)
    unlink_page(s, p)
    if e == NULL or not room(s, set.log_n + 4):
        return
    e.page = p
    e.since = max(s.link[row].own_prev, s.page[p].pushed)
    e.zone_flags = 0
    at = set.log_n - 1
    while at > 0 and set.log[at - 1].row >= until:
        at -= 1
    s.scratch[0] = set.log[set.log_n - 1]
    for k in range(set.log_n - 1, at, -1):
        set.log[k] = set.log[k - 1]
    set.log[at] = s.scratch[0]
    rerun(s, set, set.log, set.log_n, &out)
    if out.clash:
        # Not there, then; a probe will tell.
        pcp_alloc_begin(&set.pcp, &s.rules)
        pcp_alloc_end(&set.pcp, &s.rules, order)
        return
    set.pcp = out.pcp
    if set.due == DUE_COMMIT and set.due_started == 0 and out.due == 0:
        set.due = DUE_NONE


cdef void take_shown(_Replayer s, int x, int32_t p, int32_t row) noexcept nogil:
    """A block left its list before *row*; its mm_page_alloc comes later."""
    cdef int i = (s.page[p].where - 1) & 15
    take(s, x, p, row, pindex_to_order(i), OP_ALLOC)
    await_report(s, p, SHOWN, pindex_to_order(i), pindex_to_only_type(i))


cdef inline bint may_be_delayed(_Replayer s, int32_t q, int32_t row) noexcept nogil:
    """Whether the task that freed this page can still be on its way to the list."""
    cdef int32_t j = s.page[q].pushed
    return s.nr_delayed < MAX_DELAYED and (on_its_way(s, q, row) or (
        j >= 0 and s.rows[j].event == EV_FREE and not s.link[j].own_next
        and not seen_over(s, j, row)))


cdef void delay(_Replayer s, int32_t q, int32_t row) noexcept nogil:
    """Take back a free that the kernel had not completed by *row*."""
    cdef int place = s.page[q].where - 1
    cdef pageset *set = &s.sets[place >> 4]
    cdef int32_t j = s.page[q].pushed
    cdef int k, n = 0
    cdef int64_t w
    cdef outcome out
    cdef delayed_free *d = &s.delayed[s.nr_delayed]
    explain(s, row, E_DELAYED, place >> 4, s.link[j].own_next or j)
    d.page = q
    d.row = j
    d.order = pindex_to_order(place & 15)
    d.cpu = set.cpu
    s.nr_delayed += 1
    unlink_page(s, q)
    s.page[q].status = DELAYED
    for w in range(s.nr_work - 1, -1, -1):
        if s.work_rows[w].row < j:
            break
        if s.work_rows[w].op == WORK_FREE and s.work_rows[w].pfn == q + s.base:
            s.work_rows[w].op = 0
            break
    for k in range(set.log_n):
        if set.log[k].op != OP_FREE or set.log[k].row != j:
            set.log[n] = set.log[k]
            n += 1
    if n < set.log_n:
        set.log_n = n
        rerun(s, set, set.log, n, &out)
        if not out.clash:
            set.pcp = out.pcp
            if set.due == DUE_COMMIT and set.due_started == 0 and out.due == 0:
                set.due = DUE_NONE
            return
    set.pcp.count -= 1 << d.order


cdef void complete(_Replayer s, int k, int32_t row) noexcept nogil:
    """A delayed free joins its list now."""
    cdef delayed_free d = s.delayed[k]
    s.nr_delayed -= 1
    s.delayed[k] = s.delayed[s.nr_delayed]
    commit(s, d.page, d.order, d.cpu, row)


cdef bint more_follows(_Replayer s, int32_t row, int order) noexcept nogil:
    """Whether the same CPU goes on taking blocks of this order from the buddy lists."""
    cdef int32_t j = s.link[row].next_cpu
    if not j or s.rows[j].b != order:
        return False
    return s.rows[j].event == EV_ZONE_LOCKED \
        or (s.rows[j].event == EV_EXTFRAG and s.rows[j].a != s.rows[row].a)


cdef void begin_refill(_Replayer s, int x, int i, int order, int32_t row) noexcept nogil:
    """The list is empty, or what is left on it has been taken already."""
    cdef pageset *set = &s.sets[x]
    cdef cpu_run *run = &s.runs[set.cpu]
    cdef const event_row *r = &s.rows[row]
    cdef int32_t p, j
    cdef int n, flags
    cdef int64_t left
    cdef int32_t last
    cdef goal g
    cdef log_entry *e
    cdef per_cpu_pages before
    if set.due and set.due_started == 0:
        missing_drain(s, x, row)
    run.kind = RUN_REFILL
    run.set = x
    run.pindex = i
    run.order = order
    run.got = 0
    run.row = row
    run.bad = 0
    run.bulk = find_bulk(s, r.pid)
    if run.bulk >= 0 and (order != 0 or s.bulk[run.bulk].cpu != set.cpu or r.flags & IRQ):
        run.bulk = -1
    if run.bulk >= 0:
        while set.list[i].head >= 0:
            p = set.list[i].head
            take(s, x, p, row, 0, OP_BULK, s.bulk[run.bulk].row)
            s.page[p].status = SILENT
            s.bulk[run.bulk].taken += 1
    else:
        while set.list[i].head >= 0:
            # Taken, not yet reported: each needs its own later mm_page_alloc.
            p = set.list[i].head
            if in_flight(s, p, row):
                explain(s, row, E_OVERTAKEN, x, s.page[p].cursor)
                take_shown(s, x, p, row)
            elif may_be_delayed(s, p, row):
                # Freed by a task that was stopped before the page was on the list.
                delay(s, p, row)
            else:
                differ(s, row, D_LOST_ALLOC, x, 0, p + s.base)
                take(s, x, p, row, order, OP_ALLOC)
                s.page[p].status = SILENT
    e = log_op(s, x, row, OP_REFILL, order)
    run.log_at = set.log_n - 1
    if e != NULL:
        e.begin = run.bulk < 0
    if run.bulk < 0:
        pcp_alloc_begin(&set.pcp, &s.rules)
    if s.policies != NULL:
        before = set.pcp
    run.want = nr_pcp_alloc(&set.pcp, &s.rules, s.zones[set.zone].flags, order)
    if s.policies != NULL:
        ask_at_refill(s, x, row, order, before, run.want)
    s.t.refills += 1
    if e == NULL or r.event == EV_RMQUEUE_BULK:
        return
    n = run_length(s, s.rules.fallback, s.rules.nr_pcp_lists, x, i, order, row, &last)
    if n == run.want:
        return
    if n < run.want:
        j = next_flags(s, x, last)
        if j >= 0:
            left = s.probes[s.rows[j].probe * P_COLUMNS + P_NR_FREE]
            if 0 <= left < max(128, (run.want - n) << order):
                set.log[run.log_at].cut = 1
                run.want = n
                explain(s, row, E_EXHAUSTED, x, j)
                return
    # Another size: what came before was otherwise.
    set.log[run.log_at].got = n
    g.fields = NULL
    g.drain = 0
    g.pindex = 0
    j = next_flags(s, x, row)
    flags = <int>s.probes[s.rows[j].probe * P_COLUMNS + P_ZONE_FLAGS] if j >= 0 else -1
    if reconcile(s, x, row, &g, flags, j):
        run.want = n
        run.log_at = set.log_n - 1
        set.pcp.count -= n << order
        if run.bulk < 0:
            set.pcp.count += 1 << order


cdef void taken_from_buddy(_Replayer s, int32_t row) noexcept nogil:
    """mm_page_alloc_zone_locked, or an extfrag whose page has no zone_locked of its own."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = index_of(s, r.a)
    cdef int cpu = r.cpu
    cdef int order = <int>r.b
    cdef int mt = <int>r.c
    cdef cpu_run *run = &s.runs[cpu]
    cdef int x, i
    cdef int64_t told
    cdef bint direct
    if p < 0:
        differ(s, row, D_PAGE, -1, 0, r.a)
        return
    passed(s, p, row)
    move_free(s, p, -(<int64_t>1 << order))
    if s.page[p].where:
        differ(s, row, D_FREED_TWICE, (s.page[p].where - 1) >> 4, 0, r.a)
        return
    x = set_of(s, p, cpu)
    run.last_pfn = <int32_t>p
    s.page[p].cached = <int8_t>mt
    if not pcp_allowed_order(s.rules.nr_pcp_lists, order) or mt >= MIGRATE_PCPTYPES:
        await_report(s, p, TAKEN, order, mt if mt < MIGRATE_PCPTYPES else -1)
        s.t.direct_allocations += 1
        note_work(s, WORK_DIRECT_ALLOC, p, order, mt, cpu, 0, row)
        return
    i = order_to_pindex(s.rules.nr_pcp_lists, mt, order)
    if run.kind == RUN_REFILL and (run.set != x or run.pindex != i or run.got == run.want):
        finish_run(s, cpu, row)
    if run.kind != RUN_REFILL:
        if r.flags & FL_KNOWN:
            # Under the locks of the lists and of the zone the preempt depth is 3 more.
            direct = (r.flags & FL_DEPTH) < 3
        else:
            direct = s.sets[x].list[i].head >= 0 and not more_follows(s, row, order) \
                and find_bulk(s, r.pid) < 0
        if direct:
            # The lists were locked, so the block comes from the buddy lists.
            await_report(s, p, SHOWN, order, mt)
            s.t.direct_allocations += 1
            note_work(s, WORK_DIRECT_ALLOC, p, order, mt, cpu, 0, row)
            explain(s, row, E_DIRECT, x, s.link[row].chain or row)
            return
        told = s.helped
        begin_refill(s, x, i, order, row)
        run.told = s.helped != told
    if run.got == 0 and run.bulk < 0:
        note_work(s, WORK_ALLOC, p, order, i, cpu, 0, row)
    run.got += 1
    push(s, x, i, <int32_t>p, row, True)


cdef void count_report(_Replayer s, int32_t row, int64_t p, bint explained) noexcept nogil:
    """The mm_page_alloc of a block that has left already: of the order and type asked for?"""
    cdef const event_row *r = &s.rows[row]
    cdef int order = s.page[p].status >> 4
    cdef int mt = s.page[p].cached
    s.page[p].status = AWAY
    if order != r.b:
        differ(s, row, D_ORDER, -1, order, r.b)
    elif mt >= 0 and mt != r.c:
        differ(s, row, D_TYPE, -1, mt, r.c)
    else:
        s.t.allocations_explained += explained
        s.t.allocations_foreseen += not explained


cdef void reported(_Replayer s, int32_t row) noexcept nogil:
    """mm_page_alloc."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p
    cdef int order = <int>r.b
    cdef int i, x, b
    cdef int32_t q, above, until
    cdef pageset *set
    cdef int64_t told = s.helped
    cdef bint good = True
    if r.a < 0:
        return
    s.t.allocations += 1
    p = index_of(s, r.a)
    if p < 0:
        differ(s, row, D_PAGE, -1, 0, r.a)
        return
    passed(s, p, row)
    if s.page[p].status & 15 == DELAYED:
        for b in range(s.nr_delayed):
            if s.delayed[b].page == p:
                complete(s, b, row)
                told = -1
                break
    b = s.page[p].status & 15
    if b == TAKEN or b == SHOWN:
        q = s.link[row].own_prev
        if b == TAKEN and q and EV_ALLOC <= s.rows[q].event <= EV_FREE_BATCHED:
            # Who has a block reports it before all else.
            differ(s, row, D_REPORTED, -1, 0, r.a)
            s.page[p].status = AWAY
            return
        # Foreseen is that some page had to go to this task; ``blocks`` compares which.
        count_report(s, row, p, b == SHOWN)
        if b == TAKEN:
            b = find_bulk(s, r.pid)
            if b >= 0 and not r.flags & IRQ:
                s.bulk[b].taken += 1
        return
    if not s.page[p].where:
        differ(s, row, D_NOT_LISTED, -1, 0, r.a)
        s.page[p].status = AWAY
        return
    x = (s.page[p].where - 1) >> 4
    i = (s.page[p].where - 1) & 15
    set = &s.sets[x]
    if set.cpu != r.cpu:
        b = moved_from(s, row, set.cpu)
        if b:
            explain(s, row, E_MIGRATED, x, b)
        else:
            differ(s, row, D_MIGRATED, x, set.cpu, r.cpu)
            good = False
        if s.runs[set.cpu].kind == RUN_REFILL and s.runs[set.cpu].set == x:
            finish_run(s, set.cpu, row)
        if s.page[p].status & 15 in (TAKEN, SHOWN):
            if good:
                count_report(s, row, p, True)
            s.page[p].status = AWAY
            return
    if not pindex_may_hold(i, <int>r.c, order):
        differ(s, row, D_TYPE, x, i, order_to_pindex(s.rules.nr_pcp_lists, <int>r.c, order))
        good = False
    if set.list[i].head == p:
        take(s, x, <int32_t>p, row, order, OP_ALLOC)
    else:
        # Above it: pages that joined after this task was last seen (then it took its page
        # before they came), or that others took and report later.
        until = s.nr_rows
        q = set.list[i].head
        while q != p and q >= 0:
            above = q
            q = s.page[q].next
            if not s.page[above].where:
                continue
            if s.page[above].pushed > s.link[row].own_prev:
                until = min(until, s.page[above].pushed)
            elif in_flight(s, above, row):
                explain(s, row, E_OVERTAKEN, x, s.page[above].cursor)
                take_shown(s, x, above, row)
            elif may_be_delayed(s, above, row):
                delay(s, above, row)
            else:
                differ(s, row, D_NOT_HEAD, x, above + s.base, r.a)
                good = False
                break
        if until < s.nr_rows and s.page[p].where:
            explain(s, row, E_LATE, x, until)
            take_late(s, x, <int32_t>p, row, order, until)
        else:
            take(s, x, <int32_t>p, row, order, OP_ALLOC)
    s.page[p].status = AWAY
    if good:
        s.t.allocations_explained += s.helped != told
        s.t.allocations_foreseen += s.helped == told
    b = find_bulk(s, r.pid)
    if b >= 0 and not r.flags & IRQ:
        s.bulk[b].taken += 1


cdef void bulk_returned(_Replayer s, int32_t row) noexcept nogil:
    """alloc_pages_bulk() has taken its pages; from the first list that has them."""
    cdef const event_row *r = &s.rows[row]
    cdef int b = find_bulk(s, r.pid)
    cdef int left, z, x, best
    cdef int32_t p = -1, q
    cdef bulk_call *call
    if b < 0:
        differ(s, row, D_BULK, -1, 0, r.d)
        return
    call = &s.bulk[b]
    left = <int>r.d - call.taken
    while left > 0:
        best = -1
        for z in range(s.nr_zones - 1, -1, -1):
            if call.nid >= 0 and s.zones[z].node != call.nid:
                continue
            x = z * s.cpus + r.cpu
            p = s.sets[x].list[call.migratetype].head
            while p >= 0 and in_flight(s, p, row):
                q = s.page[p].next
                explain(s, row, E_OVERTAKEN, x, s.page[p].cursor)
                take_shown(s, x, p, row)
                p = q
            if p >= 0 and (not s.page[p].cursor or s.rows[s.page[p].cursor].event != EV_ALLOC):
                best = x
                break
        if best < 0:
            differ(s, row, D_BULK, -1, r.d, r.d - left)
            break
        take(s, best, p, row, 0, OP_BULK, call.row)
        s.page[p].status = SILENT
        s.t.bulk_pages += 1
        left -= 1
    s.nr_bulk -= 1
    s.bulk[b] = s.bulk[s.nr_bulk]


# -- probes ---------------------------------------------------------------------------

cdef int find_set(_Replayer s, uint64_t addr) noexcept nogil:
    cdef int x
    for x in range(s.nr_sets):
        if s.sets[x].addr == addr:
            return x
    return -1


cdef void resync(_Replayer s, int x, const int64_t *f) noexcept nogil:
    cdef per_cpu_pages *p = &s.sets[x].pcp
    if f[P_COUNT] >= 0:
        p.count = <int>f[P_COUNT]
    if f[P_HIGH] >= 0:
        p.high = <int>f[P_HIGH]
        if not s.rules.high_min_max:
            p.high_min = p.high_max = p.high
    if f[P_ALLOC_FACTOR] >= 0:
        p.alloc_factor = <int>f[P_ALLOC_FACTOR]
    if f[P_FREE_COUNT] >= 0:
        p.free_count = <int>f[P_FREE_COUNT]
    if f[P_FREE_FACTOR] >= 0:
        p.free_factor = <int>f[P_FREE_FACTOR]
    if f[P_FLAGS] >= 0:
        p.flags = <int>f[P_FLAGS]
    if f[P_HIGH_MIN] >= 0:
        p.high_min = <int>f[P_HIGH_MIN]
        p.high_max = <int>f[P_HIGH_MAX]
    if f[P_BATCH] >= 0:
        p.batch = <int>f[P_BATCH]


cdef inline bint same(int64_t told, int64_t have) noexcept nogil:
    return told < 0 or told == have


cdef bint agrees(const per_cpu_pages *p, const int64_t *f) noexcept nogil:
    return same(f[P_COUNT], p.count) and same(f[P_HIGH], p.high) \
        and same(f[P_BATCH], p.batch) and same(f[P_HIGH_MIN], p.high_min) \
        and same(f[P_HIGH_MAX], p.high_max) and same(f[P_ALLOC_FACTOR], p.alloc_factor) \
        and same(f[P_FREE_COUNT], p.free_count) and same(f[P_FREE_FACTOR], p.free_factor) \
        and same(f[P_FLAGS], p.flags)


cdef inline void agree(_Replayer s, int x, int32_t row, int flags) noexcept nogil:
    """Model and kernel have the same fields at *row*."""
    s.sets[x].log_n = 0
    s.sets[x].agreed_row = row
    s.sets[x].agreed_flags = flags & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH)
    s.zones[s.sets[x].zone].flags = flags & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH)


cdef inline void move_free(_Replayer s, int64_t p, int64_t pages) noexcept nogil:
    """So many pages joined the free lists of a zone, or left them."""
    cdef zone_info *z = &s.zones[s.zone_of[p >> 9]]
    z.nr_free += pages
    z.least_free = min(z.least_free, z.nr_free)


cdef bint fallback_under_way(_Replayer s, const zone_info *z, int32_t row) noexcept nogil:
    """Whether a CPU that holds the zone's lock at *row* is about to show a fallback.

    Watermarks are boosted before mm_page_alloc_extfrag; until then it shows taken blocks alone.
    """
    cdef int32_t j, k
    cdef int64_t p
    for j in range(row + 1, min(row + MAX_AHEAD, s.nr_rows)):
        if s.rows[j].event != EV_EXTFRAG:
            continue
        p = index_of(s, s.rows[j].a)
        if p < 0 or &s.zones[s.zone_of[p >> 9]] != z:
            continue
        k = j
        while k > row:
            k -= 1
            if s.rows[k].cpu == s.rows[j].cpu and s.rows[k].event != EV_ZONE_LOCKED \
                    and s.rows[k].event != EV_EXTFRAG:
                break
        if k == row:
            return True
    return False


cdef bint woken_until(_Replayer s, const zone_info *z, int32_t row, int32_t until) noexcept nogil:
    """Whether the kswapd of a zone's node wakes in these rows."""
    cdef int32_t j
    for j in range(row, min(until, row + MAX_AHEAD)):
        if s.rows[j].event == EV_KSWAPD_WAKE and (s.rows[j].c < 0 or s.rows[j].c == z.node):
            return True
    return False


cdef bint asks_large(_Replayer s) noexcept nogil:
    """Are blocks asked for that are larger than those of PAGE_ALLOC_COSTLY_ORDER?"""
    cdef int32_t j
    if s.large_blocks < 0:
        s.large_blocks = 0
        for j in range(s.nr_rows):
            if j % STRETCH == 0:
                let_go(s, j - STRETCH, j)
            if s.rows[j].event == EV_ALLOC and s.rows[j].b > PAGE_ALLOC_COSTLY_ORDER:
                s.large_blocks = 1
                break
    return s.large_blocks


cdef void check_zone_flags(_Replayer s, int32_t row) noexcept nogil:
    """A zone's flags turn only where something that the trace tells can have turned them.

    ZONE_BOOSTED_WATERMARK in a fallback; ZONE_RECLAIM_ACTIVE once for each time that kswapd wakes;
    ZONE_BELOW_HIGH where free pages are below the high watermark, boosted or not, and what is kept
    from requests to higher zones.  A probe reads them after its time stamp, and before the next
    line of its CPU.
    """
    cdef const int64_t *f = &s.probes[s.rows[row].probe * P_COLUMNS]
    cdef int flags = <int>f[P_ZONE_FLAGS], came, wrong, k
    cdef int32_t until = s.link[row].next_cpu or s.nr_rows
    cdef zone_info *z = NULL
    for k in range(s.nr_zones):
        if s.zones[k].name == f[P_ZONE] and s.zones[k].node == f[P_NODE]:
            z = &s.zones[k]
    if z == NULL or flags < 0:
        return
    if f[P_NR_FREE] >= 0:
        z.nr_free = f[P_NR_FREE]
        z.least_free = min(z.least_free, z.nr_free)
    came = flags & ~z.told_flags
    for k in range(3):
        if z.cleared[k] > row:
            came &= ~(1 << k)
    wrong = flags & ~s.zone_flags & ~z.told_flags
    if (s.link[z.doubted].next_cpu or s.nr_rows) <= row:
        z.unboosted = z.doubted
    if came & ZONE_BOOSTED_WATERMARK and z.boosted <= z.unboosted \
            and not fallback_under_way(s, z, row):
        wrong |= ZONE_BOOSTED_WATERMARK
    if came & ZONE_RECLAIM_ACTIVE and z.woken <= z.reclaiming \
            and not woken_until(s, z, row, until):
        wrong |= ZONE_RECLAIM_ACTIVE
    if came & ZONE_BELOW_HIGH and z.least_free > z.enough and not asks_large(s):
        wrong |= ZONE_BELOW_HIGH
    if wrong:
        differ(s, row, D_ZONE_FLAGS, -1, flags & ~wrong, flags)
    for k in range(3):
        if flags >> k & 1:
            z.cleared[k] = s.nr_rows
        else:
            z.cleared[k] = min(z.cleared[k], until)
    z.told_flags = flags
    if not flags & ZONE_BOOSTED_WATERMARK:
        z.doubted = row
    if flags & ZONE_RECLAIM_ACTIVE:
        z.reclaiming = row
    if not flags & ZONE_BELOW_HIGH:
        z.least_free = z.nr_free


cdef int check_fields(_Replayer s, int x, int32_t row, const int64_t *f, int drain,
                      int pindex) noexcept nogil:
    """Hold the struct's fields against those a probe printed.

    *drain*: pages that the commit before must have wanted to drain, 0 none.
    """
    cdef pageset *set = &s.sets[x]
    cdef per_cpu_pages *p = &set.pcp
    cdef goal g
    cdef int flags = <int>f[P_ZONE_FLAGS] if f[P_ZONE_FLAGS] >= 0 else 0
    cdef bint good = agrees(p, f)
    s.t.probes += 1
    if drain > 0:
        good = good and set.due == DUE_COMMIT and set.due_chunk == drain \
            and set.due_pindex == pindex
    elif drain == 0:
        good = good and not (set.due == DUE_COMMIT and set.due_started == 0)
    if good:
        s.t.probes_foreseen += 1
        agree(s, x, row, flags)
        return 1
    if drain >= 0 and (set.due == DUE_NONE or set.due_started == 0):
        g.fields = f
        g.drain = drain
        g.pindex = pindex
        if reconcile(s, x, row, &g, flags, row):
            s.t.probes_explained += 1
            agree(s, x, row, flags)
            set.due = DUE_NONE
            if drain:
                make_due(s, x, DUE_COMMIT, s.due_found.due, s.due_found.threshold, pindex, row)
            return 1
    if not same(f[P_COUNT], p.count):
        differ(s, row, D_COUNT, x, p.count, f[P_COUNT])
    if not same(f[P_HIGH], p.high):
        differ(s, row, D_HIGH, x, p.high, f[P_HIGH])
    if not same(f[P_BATCH], p.batch):
        differ(s, row, D_BATCH, x, p.batch, f[P_BATCH])
    if not same(f[P_HIGH_MIN], p.high_min):
        differ(s, row, D_HIGH_MIN, x, p.high_min, f[P_HIGH_MIN])
    if not same(f[P_HIGH_MAX], p.high_max):
        differ(s, row, D_HIGH_MAX, x, p.high_max, f[P_HIGH_MAX])
    if not same(f[P_ALLOC_FACTOR], p.alloc_factor):
        differ(s, row, D_ALLOC_FACTOR, x, p.alloc_factor, f[P_ALLOC_FACTOR])
    if not same(f[P_FREE_COUNT], p.free_count):
        differ(s, row, D_FREE_COUNT, x, p.free_count, f[P_FREE_COUNT])
    if not same(f[P_FREE_FACTOR], p.free_factor):
        differ(s, row, D_FREE_FACTOR, x, p.free_factor, f[P_FREE_FACTOR])
    if not same(f[P_FLAGS], p.flags):
        differ(s, row, D_FLAGS, x, p.flags, f[P_FLAGS])
    resync(s, x, f)
    agree(s, x, row, flags)
    return 0


cdef void bulk_drain_begins(_Replayer s, int32_t row) noexcept nogil:
    """free_pcppages_bulk()."""
    cdef const event_row *r = &s.rows[row]
    cdef const int64_t *f = &s.probes[r.probe * P_COLUMNS]
    cdef int x = find_set(s, <uint64_t>f[P_PCP])
    cdef pageset *set
    cdef cpu_run *run = &s.runs[r.cpu]
    cdef int want, pindex
    cdef int64_t told = s.helped
    if x < 0:
        differ(s, row, D_PCP, -1, 0, f[P_PCP])
        return
    set = &s.sets[x]
    if set.cpu != r.cpu and s.runs[set.cpu].kind and s.runs[set.cpu].set == x:
        finish_run(s, set.cpu, row)
    s.t.drains += 1
    if run.draining == x and (set.cpu != r.cpu or set.due == DUE_NONE or f[P_PINDEX]
                              != set.due_pindex or f[P_N] != set.due_chunk):
        if set.due and set.cpu != r.cpu:
            set.due_doubt = row
        elif set.due:
            give_up(s, x, row)
        # drain_pages_zone() reads count under the lock, call by call, until nothing is left.
        run.bad = not check_fields(s, x, row, f, 0, 0)
        want = zone_hold(&set.pcp, &s.rules)
        pindex = 0
    else:
        if set.due and (set.due_started or set.due != DUE_COMMIT):
            run.bad = not check_fields(s, x, row, f, -1, 0)
        else:
            run.bad = not check_fields(s, x, row, f, <int>f[P_N], <int>f[P_PINDEX])
        want = set.due_chunk
        pindex = set.due_pindex
        if not set.due:
            differ(s, row, D_DRAIN_UNEXPECTED, x, 0, f[P_N])
            run.bad = 1
            want = <int>f[P_N]
            pindex = <int>f[P_PINDEX]
        set.due_left -= set.due_chunk
        set.due_started = 1
    if f[P_N] != want:
        differ(s, row, D_DRAIN_SIZE, x, want, f[P_N])
        run.bad = 1
    if f[P_PINDEX] != pindex:
        differ(s, row, D_DRAIN_LIST, x, pindex, f[P_PINDEX])
        run.bad = 1
    run.kind = RUN_DRAIN
    run.told = s.helped != told
    run.set = x
    run.row = row
    run.want = <int>min(f[P_N], <int64_t>set.pcp.count)
    run.left = run.want
    run.cursor = 0
    run.share = 0
    if s.rules.drain_by_list and 0 <= f[P_PINDEX] < s.rules.nr_pcp_lists:
        run.cursor = <int>f[P_PINDEX]
    set.touched += 1


cdef void drained(_Replayer s, int32_t row) noexcept nogil:
    """mm_page_pcpu_drain."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = index_of(s, r.a)
    cdef cpu_run *run = &s.runs[r.cpu]
    cdef pageset *set
    cdef int32_t q
    cdef int i, _k, mt
    cdef bint turn
    s.t.drained_pages += 1
    if p < 0:
        differ(s, row, D_PAGE, -1, 0, r.a)
        return
    passed(s, p, row)
    move_free(s, p, <int64_t>1 << r.b)
    if run.kind != RUN_DRAIN:
        differ(s, row, D_DRAIN_UNEXPECTED, -1, 0, r.a)
        if s.page[p].where:
            x = (s.page[p].where - 1) >> 4
            unlink_page(s, <int32_t>p)
            s.sets[x].pcp.count -= 1 << r.b
        return
    set = &s.sets[run.set]
    if run.left <= 0:
        differ(s, row, D_DRAIN_LONG, run.set, run.want, r.a)
        run.bad = 1
    i = run.cursor
    turn = not s.rules.drain_by_list and (run.share == 0 or set.list[i].head < 0)
    if turn:
        i = pindex_after(s.rules.nr_pcp_lists, i)
        run.share += 1
    for _k in range(s.rules.nr_pcp_lists):
        if set.list[i].head >= 0:
            break
        i = pindex_after(s.rules.nr_pcp_lists, i)
        run.share += 1
    if turn:
        run.share = drain_share(&s.rules, run.share, run.left)
    run.share -= 1
    run.cursor = i
    q = set.list[i].tail
    if q != p or pindex_to_order(i) != r.b:
        differ(s, row, D_DRAIN_PAGE, run.set, q + s.base if q >= 0 else -1, r.a)
        run.bad = 1
        if s.page[p].where and (s.page[p].where - 1) >> 4 == run.set:
            i = (s.page[p].where - 1) & 15
            unlink_page(s, <int32_t>p)
            set.pcp.count -= 1 << pindex_to_order(i)
            run.left -= 1 << pindex_to_order(i)
        return
    unlink_page(s, q)
    set.pcp.count -= 1 << r.b
    run.left -= 1 << r.b
    mt = s.block_type[p >> 9] if s.rules.drain_block_type else s.page[p].cached
    if mt != r.c:
        differ(s, row, D_TYPE, run.set, mt, r.c)
        run.bad = 1
    else:
        s.t.drained_pages_explained += run.told
        s.t.drained_pages_foreseen += not run.told
    s.page[p].status = AWAY


cdef void fallback(_Replayer s, int32_t row) noexcept nogil:
    """mm_page_alloc_extfrag."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = index_of(s, r.a)
    if p < 0:
        differ(s, row, D_PAGE, -1, 0, r.a)
        return
    claim_blocks(s, p, r)
    s.zones[s.zone_of[p >> 9]].boosted = row
    if s.rules.fallback == 0 or s.runs[r.cpu].last_pfn == p:
        passed(s, p, row)
        return
    taken_from_buddy(s, row)


cdef void check_batch(_Replayer s, int32_t row) noexcept nogil:
    """mm_page_free of a batch: free_unref_folios() prepares all, then frees them in that order.

    Until v6.9 free_unref_page_list() does so.  Its task does nothing else meanwhile, but that what
    no list may hold goes straight to the buddy lists.
    """
    cdef int32_t then = s.link[row].chain
    cdef int32_t nxt = s.link[row].own_next, last = s.link[row].own_prev
    if not nxt:
        return
    if s.rows[nxt].event == EV_FREE:
        if s.link[nxt].then == EV_FREE_BATCHED and s.link[nxt].chain < then:
            differ(s, row, D_BATCH_ORDER, -1, s.rows[s.link[nxt].chain].line, s.rows[then].line)
    elif s.rows[nxt].event == EV_FREE_BATCHED:
        if nxt != then and s.rows[last].event == EV_FREE_BATCHED:
            differ(s, row, D_BATCH_ORDER, -1, s.rows[nxt].line, s.rows[then].line)
    elif s.rows[nxt].event != EV_FREE_ONE_PAGE:
        differ(s, row, D_BATCH_ORDER, -1, s.rows[nxt].line, s.rows[then].line)


cdef bint in_batch(_Replayer s, int32_t row) noexcept nogil:
    """Whether a task that frees a page by itself is in the midst of a batch."""
    cdef int32_t nxt = s.link[row].own_next, last = s.link[row].own_prev
    if nxt and s.rows[nxt].event == EV_FREE_BATCHED:
        return True     # which it has prepared before
    return s.rows[last].event == EV_FREE and s.link[last].then == EV_FREE_BATCHED \
        and s.link[last].chain > row


cdef void step(_Replayer s, int32_t row) noexcept nogil:
    """One event."""
    cdef const event_row *r = &s.rows[row]
    cdef int cpu = r.cpu
    cdef cpu_run *run = &s.runs[cpu]
    cdef int64_t p, told
    cdef const int64_t *f
    cdef int x, n, e = r.event
    cdef bint work
    cdef per_cpu_pages before
    if r.time < s.last_time:
        differ(s, row, D_TIME, -1, s.last_time, r.time)
    s.last_time = r.time
    if r.probe >= 0:
        check_zone_flags(s, row)
    elif e == EV_KSWAPD_WAKE:
        for x in range(s.nr_zones):
            if r.c < 0 or r.c == s.zones[x].node:
                s.zones[x].woken = row
    if s.nr_delayed:
        for x in range(s.nr_delayed - 1, -1, -1):
            if s.link[s.delayed[x].row].own_next == row:
                complete(s, x, row)
    if run.kind:
        if run.kind == RUN_DRAIN:
            # An interrupt may come between the probe and the zone lock.
            if e != EV_PCPU_DRAIN and not (
                    run.left == run.want and r.flags & (FL_SOFTIRQ | FL_HARDIRQ)
                    and not s.rows[run.row].flags & (FL_SOFTIRQ | FL_HARDIRQ)):
                finish_run(s, cpu, row)
        elif e != EV_ZONE_LOCKED and e != EV_EXTFRAG:
            finish_run(s, cpu, row)
    if run.draining >= 0 and (e == EV_ALLOC or e == EV_FREE or e == EV_FREE_BATCHED) \
            and not r.flags & IRQ:
        run.draining = -1
    if e == EV_ALLOC:
        reported(s, row)
    elif e == EV_FREE:
        p = index_of(s, r.a)
        if p < 0:
            differ(s, row, D_PAGE, -1, 0, r.a)
            return
        passed(s, p, row)
        if s.page[p].where or s.page[p].status & 15 == FREED:
            differ(s, row, D_FREED_TWICE, -1, 0, r.a)
        if s.page[p].status & 15 == TAKEN and r.b:
            # alloc_pages_bulk() alone takes pages without a line, and only single ones.
            differ(s, row, D_LOST_ALLOC, -1, 0, r.a)
        n = s.link[row].then
        if n == EV_FREE_BATCHED or n == EV_FREE_ONE_PAGE or n == EV_PAGE_COMMIT \
                or n == EV_FREE_CONTIG:
            s.page[p].status = <uint8_t>(FREED | r.b << 4)
            if (r.flags & IRQ or not r.pid) and s.rows[s.link[row].chain].cpu != cpu \
                    and n != EV_FREE_CONTIG:
                # Neither an interrupt nor an idle task is moved to another CPU.
                differ(s, row, D_BATCHED, -1, 0, r.a)
            if n == EV_FREE_BATCHED:
                check_batch(s, row)
            elif n == EV_PAGE_COMMIT and in_batch(s, row):
                differ(s, row, D_IN_BATCH, -1, 0, r.a)
        elif run.kind == RUN_DRAIN and run.set == set_of(s, p, cpu):
            # The drain that this interrupt stopped holds the lock of these lists.  (Within a
            # probe's handler the kernel skips other probes, so free_one_page is not seen.)
            explain(s, row, E_TRYLOCK, run.set, run.row)
            note_work(s, WORK_DIRECT_FREE, p, <int>r.b, 0, cpu, 0, row)
            s.page[p].status = AWAY
            s.t.direct_frees += 1
        elif pcp_allowed_order(s.rules.nr_pcp_lists, <int>r.b):
            if in_batch(s, row):
                differ(s, row, D_IN_BATCH, -1, 0, r.a)
            commit(s, p, <int>r.b, cpu, row)
        else:
            note_work(s, WORK_DIRECT_FREE, p, <int>r.b, 0, cpu, 0, row)
            s.page[p].status = AWAY
    elif e == EV_FREE_BATCHED:
        p = index_of(s, r.a)
        if p < 0:
            differ(s, row, D_PAGE, -1, 0, r.a)
            return
        passed(s, p, row)
        n = s.page[p].status >> 4
        if s.page[p].status & 15 != FREED:
            differ(s, row, D_BATCHED, -1, 0, r.a)
            n = 0
        if not pcp_allowed_order(s.rules.nr_pcp_lists, n):
            differ(s, row, D_BATCHED, -1, 0, r.a)
        elif s.link[row].then != EV_PAGE_COMMIT:
            # Printed order is always 0; the order is that of its mm_page_free.
            commit(s, p, n, cpu, row)
    elif e == EV_ZONE_LOCKED:
        taken_from_buddy(s, row)
    elif e == EV_PCPU_DRAIN:
        drained(s, row)
    elif e == EV_EXTFRAG:
        fallback(s, row)
    elif e == EV_FREE_PCPPAGES_BULK:
        bulk_drain_begins(s, row)
    elif e == EV_FREE_ONE_PAGE:
        p = index_of(s, r.a)
        if p < 0:
            differ(s, row, D_PAGE, -1, 0, r.a)
            return
        passed(s, p, row)
        if s.page[p].status & 15 == FREED:
            note_work(s, WORK_DIRECT_FREE, p, <int>r.b, 0, cpu, 0, row)
            if r.b <= PAGE_ALLOC_COSTLY_ORDER:
                explain(s, row, E_TRYLOCK, -1, row)
        s.page[p].status = AWAY
        s.t.direct_frees += 1
    elif e == EV_FREE_CONTIG:
        p = index_of(s, <int64_t>(<uint64_t>r.a - s.vmemmap) >> 6)
        if p < 0 or p + r.d > s.nr_pages:
            differ(s, row, D_PAGE, -1, 0, r.a)
            return
        if not s.rules.free_coalesce:
            differ(s, row, D_CONTIG, -1, 0, r.d)
        for n in range(<int>r.d):
            s.page[p + n].cursor = s.spans[s.link[row].chain + n]
            if s.page[p + n].status & 15 != FREED:
                differ(s, row, D_BATCHED, -1, 0, p + n + s.base)
            s.page[p + n].status = TOGETHER
        note_work(s, WORK_CONTIG, p, 0, 0, cpu, r.d, row)
        s.contigs[cpu].pfn = p + s.base
        s.contigs[cpu].left = r.d
        s.contigs[cpu].row = row
        commit_contig(s, cpu)
    elif e == EV_PAGE_COMMIT:
        p = index_of(s, <int64_t>(<uint64_t>r.a - s.vmemmap) >> 6)
        f = &s.probes[r.probe * P_COLUMNS]
        x = find_set(s, <uint64_t>f[P_PCP])
        if p < 0 or x < 0 or x != set_of(s, p, cpu):
            differ(s, row, D_PCP, x, 0, r.a)
            return
        passed(s, p, row)
        check_fields(s, x, row, f, 0, 0)
        if list_type(s, p) != r.c:
            differ(s, row, D_COMMIT_TYPE, x, list_type(s, p), r.c)
        # Who commits a block has freed it before (free_pages_prepare()), with its order; v7.2's
        # free_prepared_contig_range() makes larger blocks of what was freed by the page.
        if s.page[p].status & 15 != TOGETHER \
                and (s.page[p].status & 15 != FREED or s.page[p].status >> 4 != r.b):
            differ(s, row, D_BATCHED, x, 0, p + s.base)
        commit(s, p, <int>r.b, cpu, row)
    elif e == EV_ALLOC_PAGES_BULK:
        if s.nr_bulk < MAX_BULK:
            s.bulk[s.nr_bulk].pid = r.pid
            s.bulk[s.nr_bulk].cpu = cpu
            s.bulk[s.nr_bulk].taken = 0
            s.bulk[s.nr_bulk].migratetype = (r.a >> 3) & 3
            s.bulk[s.nr_bulk].nid = <int>r.c
            s.bulk[s.nr_bulk].row = row
            s.nr_bulk += 1
    elif e == EV_ALLOC_PAGES_BULK_RET:
        bulk_returned(s, row)
    elif e == EV_DECAY_PCP_HIGH or e == EV_DRAIN_ZONE_PAGES:
        f = &s.probes[r.probe * P_COLUMNS]
        x = find_set(s, <uint64_t>f[P_PCP])
        if x < 0:
            differ(s, row, D_PCP, -1, 0, f[P_PCP])
            return
        if s.sets[x].due and s.sets[x].due != DUE_COMMIT and s.sets[x].due_started == 0:
            missing_drain(s, x, row)
        check_fields(s, x, row, f, 0, 0)
        if e == EV_DECAY_PCP_HIGH:
            run.decays += 1
            before = s.sets[x].pcp
            n = decay_pcp_high(&s.sets[x].pcp, &s.rules, &work)
            if s.policies != NULL:
                ask_at_tick(s, x, row, before, n)
        else:
            n = remote_hold(&s.sets[x].pcp, &s.rules)
        if n > 0:
            make_due(s, x, DUE_DECAY if e == EV_DECAY_PCP_HIGH else DUE_REMOTE, n, 0, 0, row)
    elif e == EV_DRAIN_PAGES_ZONE:
        f = &s.probes[r.probe * P_COLUMNS]
        run.draining = -1
        for x in range(s.nr_sets):
            if s.sets[x].cpu == r.d and s.zones[s.sets[x].zone].name == f[P_ZONE] \
                    and s.zones[s.sets[x].zone].node == f[P_NODE]:
                run.draining = x
                p = s.zones[s.sets[x].zone].start - s.base
                note_work(s, WORK_DRAIN, p, 0, 0, <int>r.d, 0, row)
                break
    elif e == EV_RMQUEUE_BULK:
        f = &s.probes[r.probe * P_COLUMNS]
        for x in range(s.nr_sets):
            n = <int>(<uint64_t>f[P_PCP] - s.sets[x].addr) - s.p_lists
            if s.sets[x].cpu == cpu and 0 <= n < 16 * MAX_PCP_LISTS:
                if pindex_to_order(n >> 4) != r.b:
                    differ(s, row, D_REFILL_LIST, x, n >> 4, r.b)
                    break
                told = s.helped
                begin_refill(s, x, n >> 4, <int>r.b, row)
                run.told = s.helped != told
                if run.want != r.d:
                    differ(s, row, D_REFILL_SIZE, x, run.want, r.d)
                    run.bad = 1
                break
        else:
            differ(s, row, D_PCP, -1, 0, f[P_PCP])
    elif e == EV_WORK_START:
        if r.a:
            note_work(s, WORK_TICK, -1, 0, 0, cpu, 0, row)
            run.ticking = r.pid
            run.decays = 0
    elif e == EV_WORK_END:
        # refresh_cpu_vm_stats() goes through all zones with memory.
        if run.ticking == r.pid and r.pid:
            run.ticking = 0
            if s.decay_told and run.decays != s.nr_populated:
                differ(s, row, D_TICK, -1, s.nr_populated, run.decays)
    elif e == EV_SET_BLOCK_TYPE:
        p = index_of(s, <int64_t>(<uint64_t>r.a - s.vmemmap) >> 6)
        if p >= 0:
            s.block_type[p >> 9] = <int8_t>r.c


cdef void skip(_Replayer s, int32_t row) noexcept nogil:
    """Pass an event that the first dump contains."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = page_of(s, r), k
    if p >= 0 and r.event == EV_FREE_CONTIG:
        for k in range(p, min(p + r.d, s.nr_pages)):
            s.page[k].cursor = s.spans[s.link[row].chain + k - p]
    elif p >= 0:
        passed(s, p, row)


# -- binding --------------------------------------------------------------------------

#: Of struct per_cpu_pages, as a dump names them.
_FIELDS = ("count", "high", "batch", "high_min", "high_max", "alloc_factor", "free_count",
           "free_factor", "flags")
#: Names by the index that `ftrace.ZONES` gives them.
_ZONES = ("DMA", "DMA32", "Normal", "HighMem", "Movable", "Device")

cdef class _Replayer(PageLists):
    """The lists of one machine, and the trace that drives them."""

    cdef pcp_rules rules
    cdef zone_info zones[MAX_ZONES]
    cdef pageset *sets
    cdef const int64_t *probes
    cdef int p_lists
    cdef int nr_populated   # zones with memory
    cdef bint decay_told    # a probe shows decay_pcp_high()
    cdef int zone_flags     # that this kernel has
    cdef int large_blocks   # are asked for (-1 not known yet): tests for one fail early
    cdef cpu_run *runs
    cdef contig *contigs
    cdef bulk_call bulk[MAX_BULK]
    cdef int nr_bulk
    cdef delayed_free delayed[MAX_DELAYED]
    cdef int nr_delayed
    cdef tally t
    cdef bint hurried       # one difference that nothing explains is enough
    cdef int64_t effort     # of all searches yet, in log entries that are run again
    cdef int32_t cut_row    # at which there was none left, -1 not so far
    cdef outcome due_found  # what the last reconcile() found
    cdef log_entry *scratch
    cdef int scratch_cap
    cdef guess *layers      # two of MAX_GUESSES
    cdef step_back *trail   # MAX_TRAIL of all layers, each from trail_at[k] on
    cdef int32_t *trail_at
    cdef uint8_t *turns
    cdef int turns_cap
    cdef int16_t table[GUESS_SLOTS]
    cdef readonly int most_states   # followed side by side in one search
    cdef bint broken        # out of memory
    cdef work_row *work_rows
    cdef int work_ops       # bits of the kinds that somebody asked for
    cdef int64_t nr_work
    cdef int64_t work_cap
    cdef policy_state *all_policies
    cdef policy_state *policies  # per pageset; NULL without a policy, and once it has failed
    cdef policy_state *failed
    cdef decision *decided
    cdef int64_t nr_decisions
    cdef int64_t decisions_cap

    def __dealloc__(self):
        cdef int x
        if self.sets != NULL:
            for x in range(self.nr_sets):
                free(self.sets[x].log)
        free(self.sets)
        free(self.runs)
        free(self.contigs)
        free(self.scratch)
        free(self.work_rows)
        free(self.all_policies)
        free(self.decided)
        free(self.layers)
        free(self.trail)
        free(self.trail_at)
        free(self.turns)

    def __cinit__(self, release, int cpus, snapshot, events, reader, int p_lists, int32_t start):
        cdef int x, z
        cdef Py_ssize_t k
        cdef const int64_t[:, ::1] probes
        cdef const int64_t *told
        cdef const int8_t[::1] types
        zones = snapshot.zones
        self.spilled = events.spilled
        self.set_up(cpus, zones, events.rows)
        self.rules = rules_of(release)
        self.rules.nr_pcp_lists = lists_in_use(self.rules.nr_pcp_lists)
        self.p_lists = p_lists
        self.effort = MAX_EFFORT
        self.cut_row = -1
        self.most_states = 1
        self.nr_populated = sum(zone.managed > 0 for zone in zones)
        self.decay_told = bool(events.is_event("decay_pcp_high").any())
        self.zone_flags = ZONE_BOOSTED_WATERMARK | ZONE_RECLAIM_ACTIVE
        if self.rules.below_high:
            self.zone_flags |= ZONE_BELOW_HIGH
        self.large_blocks = -1
        self.vmemmap = reader.numbers["vmemmap"] or 0xFFFFEA0000000000
        self.sets = <pageset *>self.room(self.nr_sets, sizeof(pageset))
        self.runs = <cpu_run *>self.room(cpus, sizeof(cpu_run))
        self.contigs = <contig *>self.room(cpus, sizeof(contig))
        for z, zone in enumerate(zones):
            self.zones[z].start = zone.start_pfn
            self.zones[z].end = zone.end_pfn
            self.zones[z].node = zone.node
            self.zones[z].name = _ZONES.index(zone.name)
            self.zones[z].flags = zone.flags & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH)
            self.zones[z].told_flags = zone.flags
            for k in range(3):
                self.zones[z].cleared[k] = self.nr_rows if zone.flags >> k & 1 else start
            self.zones[z].unboosted = self.zones[z].doubted = self.zones[z].boosted = start
            self.zones[z].woken = self.zones[z].reclaiming = start
            self.zones[z].nr_free = self.zones[z].least_free = zone.nr_free
            self.zones[z].enough = enough(zone, zones, cpus)
            first, seen = snapshot.blocks[zone.key]
            types = seen[(zone.start_pfn >> 9) - (first >> 9):]
            for k in range(((zone.end_pfn + 511) >> 9) - (zone.start_pfn >> 9)):
                self.block_type[(self.zones[z].start >> 9) - (self.base >> 9) + k] = types[k]
        probes = np.ascontiguousarray(events.probes)
        self.keep.append(probes)
        if len(probes):
            self.probes = &probes[0, 0]
        for k in range(probes.shape[0]):
            told = &self.probes[k * P_COLUMNS]
            if told[P_ZONE_FLAGS] > 0:
                for z in range(self.nr_zones):
                    if self.zones[z].name == told[P_ZONE] and self.zones[z].node == told[P_NODE]:
                        self.zones[z].seen_flags |= told[P_ZONE_FLAGS] & (
                            ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH)
        self.follow_rows(start)
        for z, zone in enumerate(zones):
            for cpu in range(cpus):
                x = z * cpus + cpu
                self.sets[x].list = &self.lists[16 * x]
                self.sets[x].zone = z
                self.sets[x].cpu = cpu
                self.sets[x].agreed_flags = self.zones[z].flags
                self.runs[cpu].draining = -1
                pcp = snapshot.pcps.get((*zone.key, cpu))
                if pcp is not None:
                    self._load(x, pcp)

    cdef _load(self, int x, pcp):
        cdef pageset *set = &self.sets[x]
        cdef int i
        cdef const int64_t[::1] told
        cdef Py_ssize_t k
        cdef int32_t p
        set.addr = pcp.addr
        set.pcp.count = pcp.count
        set.pcp.high = pcp.high
        set.pcp.batch = max(pcp.batch, 1)
        self.resize(x, pcp.batch, pcp.high_min, pcp.high_max, pcp.high)
        set.pcp.flags = max(pcp.flags, 0)
        set.pcp.alloc_factor = min(max(pcp.alloc_factor, 0), 10)
        set.pcp.free_factor = min(max(pcp.free_factor, 0), 20)
        set.pcp.free_count = max(pcp.free_count, 0)
        for i, pfns in pcp.lists.items():
            told = pfns
            for k in range(told.shape[0]):
                p = <int32_t>(told[k] - self.base)
                tell_of(self, p)
                if self.page[p].where:
                    raise InputError(f"page {told[k]:#x} is on two lists of the first dump")
                push(self, x, i, p, -1, True)
                self.page[p].cached = <int8_t>pindex_to_type(i)

    def resize(self, int x, int batch, int high_min, int high_max, int high=-1):
        """zone_set_pageset_high_and_batch() for one CPU."""
        check_idle(self)
        resize_pcp(&self.sets[self.check_set(x)].pcp, self.rules.high_min_max, batch, high_min,
                   high_max, high)
        self.sets[x].log_n = 0

    def keep_work(self, ops):
        """Note from now on what the kernel was given to do of these kinds; see `work`."""
        if self.work_rows != NULL:
            raise ValueError("work is kept already")
        for op in ops:
            self.work_ops |= 1 << <int>WORK_OPS[op]
        self.work_rows = <work_row *>self.room(1 << 16, sizeof(work_row))
        self.work_cap = 1 << 16

    @property
    def work(self):
        """Work in the order in which the kernel did it: records of `WORK`."""
        cdef size_t size = self.nr_work * sizeof(work_row)
        check_idle(self)
        if self.broken:
            raise MemoryError
        if size == 0:
            return np.empty(0, WORK)
        return np.frombuffer((<char *>self.work_rows)[:size], WORK)

    def ask(self, policy):
        """Ask this policy at every decision; see `decisions`."""
        cdef int x
        if self.all_policies != NULL:
            raise ValueError("a policy is asked already")
        check_idle(self)
        self.all_policies = <policy_state *>self.room(self.nr_sets, sizeof(policy_state))
        self.policies = self.all_policies
        for x in range(self.nr_sets):
            policy_from(policy, &self.rules, &self.policies[x].policy)
            self.policies[x].cpu = self.sets[x].cpu
        self.keep.append(policy)

    @property
    def decisions(self):
        """Every decision that moved pages, the kernel's or the policy's: records of `DECISION`."""
        cdef size_t size = self.nr_decisions * sizeof(decision)
        check_idle(self)
        if self.broken:
            raise MemoryError
        raw = np.empty(0, _RAW_DECISION)
        if size:
            raw = np.frombuffer((<char *>self.decided)[:size], _RAW_DECISION)
        told = np.empty(len(raw), DECISION)
        for name in ("line", "kernel", "policy", "kernel_high", "policy_high"):
            told[name] = raw[name]
        told["kind"] = np.where(raw["kind"] == RUN_REFILL, "refill", "drain")
        zone, told["cpu"] = np.divmod(raw["set"], self.cpus)
        told["zone"] = np.array(
            [_ZONES[self.zones[z].name] for z in range(self.nr_zones)])[zone]
        told["node"] = np.array([self.zones[z].node for z in range(self.nr_zones)])[zone]
        return told

    def run(self, int32_t start, int32_t stop):
        """Apply the events of rows *start* ... *stop* - 1."""
        cdef int32_t row
        check_idle(self)
        self.pass_rows(start, stop)
        begin_use(self)
        with nogil:
            for row in range(start, stop):
                if row % STRETCH == 0:
                    let_go(self, row - 3 * STRETCH, row - STRETCH)
                if row + AHEAD < self.nr_rows:
                    fetch_page(self, &self.rows[row + AHEAD])
                step(self, row)
                if self.failed != NULL or (self.hurried and self.nr_unexplained > 0):
                    break
        end_use(self)
        if self.failed != NULL:
            policy_failed(self.failed)

    def hurry(self):
        """Stop at the first difference that nothing explains; see `stopped`."""
        self.hurried = True

    @property
    def stopped(self):
        return self.hurried and self.nr_unexplained > 0

    def first_dump(self, int32_t start, int32_t stop):
        """Events while the first dump was taken: those that it does not contain.

        Returns the number of events that leave the start in doubt.
        """
        cdef int32_t row
        cdef int doubtful = 0
        cdef const event_row *r
        cdef int64_t p
        check_idle(self)
        self.pass_rows(start, stop)
        for row in range(start, stop):
            r = &self.rows[row]
            p = index_of(self, r.a) if EV_ALLOC <= r.event <= EV_EXTFRAG else -1
            if r.event == EV_DECAY_PCP_HIGH or r.event == EV_FREE_PCPPAGES_BULK:
                # Its probe shows the fields before it: if they are the dump's, it came later.
                x = find_set(self, <uint64_t>self.probes[r.probe * P_COLUMNS + P_PCP])
                if x >= 0 and agrees(&self.sets[x].pcp, &self.probes[r.probe * P_COLUMNS]) and (
                        r.event == EV_DECAY_PCP_HIGH or self.sets[x].due):
                    step(self, row)
                else:
                    doubtful += 1
            elif r.event == EV_PCPU_DRAIN and self.runs[r.cpu].kind == RUN_DRAIN:
                step(self, row)
            elif p < 0:
                skip(self, row)
            elif r.event == EV_FREE or r.event == EV_ALLOC:
                if (self.page[p].where == 0) == (r.event == EV_FREE):
                    step(self, row)
                else:
                    skip(self, row)
            else:
                doubtful += 1
                skip(self, row)
        return doubtful

    def finish(self):
        """The trace is over; a drain that it cut short is no difference."""
        cdef int cpu
        check_idle(self)
        for cpu in range(self.cpus):
            if self.runs[cpu].kind == RUN_REFILL:
                finish_run(self, cpu, self.nr_rows - 1)

    def settle(self, int32_t row):
        """Complete what ran with interrupts off and has no further event."""
        cdef int cpu, e
        cdef int32_t j
        check_idle(self)
        if not 0 <= row < self.nr_rows:
            raise IndexError(f"row {row} is outside 0..{self.nr_rows - 1}")
        for cpu in range(self.cpus):
            for j in range(row, self.nr_rows):
                if self.rows[j].cpu == cpu:
                    e = self.rows[j].event
                    if e != EV_PCPU_DRAIN and e != EV_ZONE_LOCKED and e != EV_EXTFRAG:
                        finish_run(self, cpu, row)
                    break

    def run_until_touched(self, int32_t start, int32_t stop, sets):
        """`run`, until an event touches one of these pagesets: (row after it, those touched)."""
        cdef const int32_t[::1] watched = np.array([self.check_set(x) for x in sets], np.int32)
        cdef int64_t before = 0, now = 0
        cdef Py_ssize_t k
        check_idle(self)
        was = {x: self.sets[x].touched for x in watched}
        before = now = sum(was.values())
        self.pass_rows(start, start)
        if stop > self.nr_rows:
            raise IndexError(f"row {stop} is above {self.nr_rows}")
        begin_use(self)
        with nogil:
            while start < stop and now == before and self.failed == NULL:
                step(self, start)
                start += 1
                now = 0
                for k in range(watched.shape[0]):
                    now += self.sets[watched[k]].touched
        self.next_row = start
        end_use(self)
        if self.failed != NULL:
            policy_failed(self.failed)
        return start, [x for x in was if self.sets[x].touched != was[x]]

    def differing(self, int x, pcp, lists):
        """Which of these lists of a pageset are not those of a dump."""
        cdef int i
        cdef int32_t p
        cdef Py_ssize_t k, n
        cdef const int64_t[::1] told
        cdef bint same_list
        self.check_set(x)
        found = set()
        for i in lists:
            self.check_list(i)
            check_idle(self)
            p = self.sets[x].list[i].head
            if i not in pcp.lists:
                if p >= 0:
                    found.add(i)
                continue
            told = pcp.lists[i]
            n = told.shape[0]
            same_list = True
            for k in range(n):
                if p < 0 or told[k] != p + self.base:
                    same_list = False
                    break
                p = self.page[p].next
            if p >= 0 or not same_list:
                found.add(i)
        return found

    def fields_unlike(self, int x, pcp):
        """Names of the fields of a pageset that are not those of a dump."""
        cdef per_cpu_pages *p = &self.sets[self.check_set(x)].pcp
        check_idle(self)
        mine = (p.count, p.high, p.batch, p.high_min, p.high_max, p.alloc_factor, p.free_count,
                p.free_factor, p.flags)
        return {name for name, have in zip(_FIELDS, mine) if 0 <= getattr(pcp, name) != have}

    def tell_fields(self, int x, int row, pcp, int zone_flags):
        """`check_fields` for a dump."""
        cdef int64_t f[P_COLUMNS]
        cdef int flags, k
        self.check_set(x)
        check_idle(self)
        if not 0 <= row < self.nr_rows:
            raise IndexError(f"row {row} is outside 0..{self.nr_rows - 1}")
        for k in range(P_COLUMNS):
            f[k] = -1
        f[P_COUNT], f[P_HIGH], f[P_BATCH] = pcp.count, pcp.high, pcp.batch
        f[P_HIGH_MIN], f[P_HIGH_MAX] = pcp.high_min, pcp.high_max
        f[P_ALLOC_FACTOR], f[P_FREE_COUNT] = pcp.alloc_factor, pcp.free_count
        f[P_FREE_FACTOR], f[P_FLAGS] = pcp.free_factor, pcp.flags
        f[P_ZONE_FLAGS] = zone_flags
        flags = self.zones[self.sets[x].zone].flags
        check_fields(self, x, row, f, 0, 0)
        self.zones[self.sets[x].zone].flags = flags

    def count_of(self, int x):
        """Pages on the lists of a pageset."""
        check_idle(self)
        return self.sets[self.check_set(x)].pcp.count

    def explain_count(self, int x, int row, int moved):
        """``count`` was read of a pageset that moved meanwhile, last at row *moved*."""
        self.check_set(x)
        check_idle(self)
        if not 0 <= row < self.nr_rows or not 0 <= moved < self.nr_rows:
            raise IndexError(f"rows {row}, {moved} are not both in 0..{self.nr_rows - 1}")
        self.t.probes += 1
        self.t.probes_explained += 1
        explain(self, row, E_MOVED, x, moved)

    def count_fields(self, int64_t n):
        """So many pagesets of a dump have the model's fields."""
        check_idle(self)
        self.t.probes += n
        self.t.probes_foreseen += n

    def note_list(self, int x, int i, int row, told):
        """A list of a dump is not the model's: what explains it is a later mm_page_alloc."""
        cdef int32_t p, nxt
        self.check_set(x)
        self.check_list(i)
        if not 0 <= row < self.nr_rows:
            raise IndexError(f"row {row} is outside 0..{self.nr_rows - 1}")
        wanted = set(told.tolist())
        check_idle(self)
        p = self.sets[x].list[i].head
        while p >= 0:
            nxt = self.page[p].next
            if p + self.base not in wanted:
                if not in_flight(self, p, row):
                    break
                explain(self, row, E_IN_FLIGHT, x, self.page[p].cursor)
                take_shown(self, x, p, row)
            p = nxt
        if self.list_of(x, i) != told.tolist():
            differ(self, row, D_FINAL_LIST, x, i, len(told))

    def unlike(self, int x, int i, int row, int moved, pcp, before):
        """A list of a dump was never the model's while it was taken; is that explained?

        *before*: the list when the dump began.  If it moved since, whoever walked it
        saw pages of both states; what stayed must be there, and in its order.  A walk
        that was carried off to another list (torn) proves nothing.
        """
        told = pcp.lists.get(i, _NOTHING).tolist()
        now = self.list_of(x, i)
        if not all(0 <= p - self.base < self.nr_pages for p in before):
            raise IndexError("a page of the list is in no zone")
        was = self.nr_unexplained
        if before == now or not moved:
            self.note_list(x, i, row, pcp.lists.get(i, _NOTHING))
            return self.nr_unexplained == was
        stayed = [p for p in before if self.page[p - self.base].where == 1 + 16 * x + i
                  and self.page[p - self.base].pushed < row]
        kept = set(stayed)
        known = set(before) | set(now)
        seen = [p for p in told if p in kept]
        came = {p for p in told if index_of(self, p) >= 0 and self.told[(p - self.base) >> 9]
                and self.page[p - self.base].pushed >= row}
        if not pcp.torn and (not set(told) <= known | came or seen != stayed):
            differ(self, row, D_FINAL_LIST, x, len(now), len(told))
        else:
            explain(self, row, E_MOVED, x, moved)
        return self.nr_unexplained == was

    @property
    def cut(self):
        """Line at which searches had cost what they may, or None."""
        return None if self.cut_row < 0 else self.rows[self.cut_row].line

    @property
    def effort_left(self):
        return self.effort

    @property
    def tally(self):
        return self.t

_NOTHING = np.empty(0, np.int64)

#: `Exactness.decisions`: line of the trace, "refill" [blocks] or "drain" [pages], whose lists, and
#: what kernel and policy made of the same state: blocks or pages, and ``high`` afterwards [pages].
DECISION = np.dtype([("line", "i8"), ("kind", "U6"), ("node", "i4"), ("zone", "U8"), ("cpu", "i4"),
                     ("kernel", "i4"), ("policy", "i4"), ("kernel_high", "i4"),
                     ("policy_high", "i4")])
_RAW_DECISION = np.dtype([("line", "i8"), ("kind", "i4"), ("set", "i4"), ("kernel", "i4"),
                          ("policy", "i4"), ("kernel_high", "i4"), ("policy_high", "i4")])


def replay(recording, *, release=None, policy=None, progress=False):
    """Replay a recording and compare everything that its trace shows.

    Parameters
    ----------
    recording : str, path-like or Recording
        As `pcpmodel.recording` opens it.
    release : str or Release, optional
        Replay under other rules than those of the recorded kernel, or of the known release nearest
        to it (``notes`` says which).
    policy : optional
        A policy of one's own (`pcpmodel.cython_pcp`).  At every decision it is asked what it would
        do in the state that the kernel was in (`Exactness.decisions`); what it would have led to
        is for `what_if`.
    progress : bool
        Show a tqdm bar while the trace is read.

    Returns
    -------
    Exactness

    Raises
    ------
    InputError
        If the recording has neither a first dump nor the ``zoneinfo`` of its start, or it cannot
        be read.

    Notes
    -----
    Where the kernel showed no lists (no ``pcpstate.before``), what they held at the start is
    inferred from the trace (`Exactness.inferred`), and everything else is predicted as ever.
    """
    cap = open_recording(recording)
    cap.progress = progress
    if "before" not in cap.tags and cap.has("zoneinfo.before"):
        if policy is not None:
            raise InputError("a policy needs a recording with dumps of the lists", file=cap.path)
        state = cap.release if release is None else find_release(release)
        if state.policy is not None:
            raise InputError("a policy needs a capture with dumps of the lists", file=cap.path)
        found = replay_without_dump(cap, state)[0]
        if release is None and cap.assumed:
            found.notes.insert(0, cap.assumed)
        return found
    return replay_work(cap, release, policy, ("direct_free",))[0]


def replay_work(recording, release=None, policy=None, ops=WORK_OPS, whole=True):
    """`replay`, and the work that the kernel was given (`WORK`), and (row, fraction) resizes.

    *ops*: kinds of work to return.  Not *whole*: only until something is unexplained, for whoever
    asks whether there is anything; what is counted then ends there, as a note says.
    """
    cap = open_recording(recording)
    state = find_release(release) if release is not None else cap.release
    policy = state.policy if policy is None else policy
    events, reader = cap.trace
    if "before" not in cap.tags:
        raise InputError(
            "has no pcpstate.before; a replay starts from the contents of the lists, and not every "
            "kernel shows them", file=cap.path)
    dump = cap.snapshot("before")
    if dump.blocks is None:
        raise InputError("has no pageblocks.before; frees go by the blocks' types", file=cap.path)
    for zone in dump.zones:
        for cpu in range(cap.cpus):
            if (*zone.key, cpu) not in dump.pcps:
                raise InputError(f"no pcp line of node {zone.node}, zone {zone.name}, CPU {cpu}",
                                 file=cap.file("pcpstate.before"))
    markers = read_markers(cap)
    before = markers.state.get("before")
    if before is None or before.end is None:
        raise InputError("the trace has no marker state-before-end", file=cap.file("trace.txt"))
    begin, first = before.begin, before.end
    _check_dump(cap, dump, events.rows["cpu"][begin + 1:first])
    halts = stops(cap, markers)
    notes = [cap.assumed] if release is None and cap.assumed else []
    if reader.truncated:
        notes.append(f"the trace ends in an unfinished line: {reader.truncated[:60]!r}")
    if reader.missing:
        notes.append(f"{reader.missing} events of the trace's heading are not in the file")
    layout = cap.meta.get("struct_layout")
    p_lists = layout.get("p_lists", 24) if isinstance(layout, dict) else 24
    if not isinstance(p_lists, int) or not 0 <= p_lists < 4096:
        raise InputError(f"struct_layout p_lists={p_lists!r} is no offset", file=cap.path)
    r = _Replayer(state, cap.cpus, dump, events, reader, p_lists, begin)
    r.keep_work(ops)
    if policy is not None:
        r.ask(policy)
    if not whole:
        r.hurry()
    doubtful = r.first_dump(begin, first)
    if doubtful:
        notes.append(f"{doubtful} events while the first dump was taken leave the start in doubt")
    later = {s.tag: s for s in cap.series()}
    zones = [(z.key, z.start_pfn, z.spanned) for z in dump.zones]
    for tag in [*cap.tags, *later]:
        if tag not in markers.state:
            notes.append(f"dump {tag!r} is not compared: its markers are not in the trace")
    lists = lists_foreseen = lists_explained = page_blocks = 0
    misplaced = []
    at = first
    rows = list(halts)
    pos = bisect_left(rows, first + 1)
    while pos < len(rows):
        k = rows[pos]
        stop = halts[k]
        r.run(at, k)
        if r.stopped:
            break
        at = k
        pos += 1
        if stop[0] == "size":
            _resize(r, cap, dump, state.rules, stop[1], stop[2])
        elif stop[0] == "begin":
            tag, end = stop[1], markers.state[stop[1]].end
            if end is None or not (tag in cap.tags or tag in later):
                continue
            seen = cap.snapshot(tag) if tag in cap.tags else later[tag]
            if [(z.key, z.start_pfn, z.spanned) for z in seen.zones] != zones:
                raise InputError(
                    f"the zones of dump {tag!r} are not those of the first one",
                    file=cap.file("pcpstate." + (tag if tag in cap.tags else "series")))
            was = [r.types_of(z.start_pfn, z.end_pfn) for z in seen.zones]
            n, good, shown = _compare(
                r, cap, seen, lists_in_use(state.rules.nr_pcp_lists), k, end
            )
            if seen.blocks is not None:
                page_blocks, misplaced = _compare_blocks(r, seen, was)
                misplaced = [Difference(int(events.rows["line"][k]), *bad) for bad in misplaced]
            at = end
            lists += n
            lists_foreseen += good
            lists_explained += shown
            while pos < len(rows) and rows[pos] < end:
                pos += 1
    if not r.stopped:
        r.run(at, len(events))
        r.finish()
    t, work = r.tally, r.work
    bad, nr_bad, good, nr_good = r.notes()
    if r.cut is not None:
        notes.append(f"from line {r.cut} on no other order of operations was looked for to explain "
                     "a difference: what such searches may cost was spent")
    resizes = [(k, stop[2]) for k, stop in halts.items()
               if stop[0] == "size" and stop[1] == 0 and k >= first]
    counted = {kind + end: t[kind + end]
               for kind in ("allocations", "refills", "drains", "drained_pages", "probes")
               for end in ("", "_foreseen", "_explained")}
    if r.stopped:
        notes.append("ends where the first difference is that nothing explains")
    elif dump.free is None:
        notes.append("no buddylists.before: the blocks of refills are taken from the trace")
    else:
        followed, free_lists, free_lists_right, shown, cut = follow(
            cap, state, work, markers, bool(resizes), r.tells_of)
        counted |= {
            "blocks": followed.taken, "blocks_foreseen": followed.foreseen,
            "blocks_explained": len(followed.explained), "free_lists": free_lists,
            "free_lists_foreseen": free_lists_right - len(shown),
            "free_lists_explained": len(shown), "isolated": followed.isolated,
            "isolated_at_most": cap.compaction(),
        }
        if cut:
            notes.append("what left the free lists without a line was looked for no further: what "
                         "such searches may cost was spent")
        most = counted["isolated_at_most"]
        if most is not None and followed.isolated > most:
            bad.append(Difference(int(events.rows["line"][-1]),
                                  "pages that left the free lists unseen", "", most,
                                  followed.isolated))
            nr_bad += 1
        line, pfn = events.rows["line"], events.rows["a"]
        unseen = ASSUMPTIONS[E_UNSEEN].name
        good += [Explained(int(line[k]), unseen, "", int(line[why]))
                 for k, _, why in followed.explained]
        good += [Explained(int(line[k]), what, "", int(line[why])) for k, why, what in shown]
        nr_good += len(followed.explained) + len(shown)
        bad += [Difference(int(line[k]), "block taken from the buddy lists", "", named, int(pfn[k]))
                for k, named in followed.unforeseen]
        nr_bad += len(followed.unforeseen)
        if free_lists_right != free_lists:
            nr_bad += free_lists - free_lists_right
            notes.append(f"{free_lists - free_lists_right} free lists of the last dump differ")
    bad += misplaced
    nr_bad += len(misplaced)
    found = Exactness(
        recording=cap.name, release=state.name, events=len(events) - first, **counted, lists=lists,
        page_blocks=page_blocks, page_blocks_foreseen=page_blocks - len(misplaced),
        lists_foreseen=lists_foreseen, lists_explained=lists_explained, nr_unexplained=nr_bad,
        nr_explained=nr_good, unexplained=bad, explained=good, lost=cap.lost, notes=notes,
        states=r.most_states, decisions=None if policy is None else r.decisions)
    return found, work, resizes


def _check_dump(cap, dump, busy):
    """The first dump must not contradict itself; *busy*: CPUs of the events while it was taken."""
    for (node, zone, cpu), pcp in dump.pcps.items():
        if pcp.count != pcp.listed and not pcp.torn and cpu not in busy:
            raise InputError(
                f"count={pcp.count} of node {node}, zone {zone}, CPU {cpu}, but its lists hold "
                f"{pcp.listed} pages", file=cap.file(f"pcpstate.{dump.tag}"))


def _compare_blocks(r, seen, was):
    """Page blocks of a dump with memory, and (what, where, expected, got) of other types.

    *was*: the model's types when the dump began; they may have changed until now.
    """
    n, wrong = 0, []
    for zone, before in zip(seen.zones, was):
        first, told = seen.blocks[zone.key]
        skip = (zone.start_pfn >> 9) - (first >> 9)
        told = told[skip:skip + len(before)]
        now = r.types_of(zone.start_pfn, zone.end_pfn)
        n += int((told >= 0).sum())
        for k in np.flatnonzero((told >= 0) & (told != before) & (told != now)).tolist():
            pfn = ((zone.start_pfn >> 9) + k) << 9
            wrong.append(("migratetype of a page block", f"node {zone.node} {zone.name} {pfn:#x}",
                          int(now[k]), int(told[k])))
    return n, wrong


def _resize(r, cap, dump, rules, nth, fraction):
    populated = [z for z in dump.zones if z.managed]
    if not 0 <= nth < len(populated):
        return
    zone = populated[nth]
    z = dump.zones.index(zone)
    for cpu in range(cap.cpus):
        r.resize(z * cap.cpus + cpu, *sizes(cap, zone, rules, fraction))


def _compare(r, cap, seen, nr_lists, begin, end):
    """Go through the rows of a dump; lists and fields must be the model's at some moment of it.

    Returns the number of lists, of those that are so, and of the others that a line explains.
    """
    places = {(*z.key, cpu): x for x, (z, cpu) in enumerate(
        (z, cpu) for z in seen.zones for cpu in range(cap.cpus))}
    r.settle(begin)
    total = len(seen.pcps) * nr_lists
    open_, before = {}, {}
    for key, pcp in seen.pcps.items():
        x = places[key]
        left, fields = r.differing(x, pcp, range(nr_lists)), r.fields_unlike(x, pcp)
        if left or fields:
            open_[x] = pcp, left, fields
            before |= {(x, i): r.list_of(x, i) for i in left}
    moved = dict.fromkeys(open_, 0)
    counts = {x: {r.count_of(x)} for x in open_}
    row = begin
    while row < end:
        row, touched = r.run_until_touched(row, end, list(open_))
        for x in touched:
            moved[x] = row - 1
            counts[x].add(r.count_of(x))
            pcp, left, fields = open_[x]
            left &= r.differing(x, pcp, left)
            fields &= r.fields_unlike(x, pcp)
            if not left and not fields:
                del open_[x]
    wrong = shown = told = 0
    flags = [z.flags for z in seen.zones]
    for x, (pcp, left, fields) in open_.items():
        for i in sorted(left):
            wrong += 1
            shown += r.unlike(x, i, begin, moved[x], pcp, before[x, i])
        fields &= r.fields_unlike(x, pcp)
        if fields:
            told += 1
            counts[x].add(r.count_of(x))
            if moved[x] and fields == {"count"} and min(counts[x]) < pcp.count < max(counts[x]):
                r.explain_count(x, begin, moved[x])  # read in the middle of a refill or a drain
            else:
                r.tell_fields(x, begin, pcp, flags[x // cap.cpus])
    r.count_fields(len(seen.pcps) - told)
    return total, total - wrong, shown

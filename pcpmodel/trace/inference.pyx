# cython: auto_pickle=False, autotestdict=False
"""Replay of a trace whose start nobody saw: `/proc/zoneinfo` and kmem events alone.

A kernel without kprobes and `/proc/kcore` tells how many pages each CPU keeps, but
not which, and nothing of alloc_factor, free_count and flags.  Both follow from the
trace.  A page that leaves a list before any event put it there was on it at the
start: those that are allocated in the order of the head, those that are drained in
the order of the tail.  A list that is refilled was empty.  For the fields every value
is followed side by side; each refill and each free must go as some of them say, and
the others are dropped.

An event is *predicted* where all states that are left agree on it, and it is then
compared as in a replay with a dump.  Where they do not agree it serves to *infer*
which are right, and is not counted as exact.  Once one state is left nothing can be
inferred any more: whatever differs then is listed with its line.

What the trace tells late (an allocation that is reported after others, stacks of new
tasks that are taken in silence) makes further states, which are asked only when the
plain one is wrong, and then the line that tells is named.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from pcpmodel.kernel.pages cimport (
    MAX_PCP_LISTS,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    order_to_pindex,
    pcp_allowed_order,
    pindex_to_order,
)
from pcpmodel.kernel.pcp cimport (
    decay_pcp_high,
    nr_pcp_alloc,
    nr_pcp_free,
    nr_pcp_high,
    pcp_alloc_begin,
    pcp_alloc_end,
    pcp_commit,
    per_cpu_pages,
)
from pcpmodel.kernel.rules cimport pcp_rules, rules_of
from pcpmodel.trace.events cimport *

import numpy as np

from pcpmodel.errors import InputError

cdef enum:
    MAX_ZONES = 32
    MAX_NOTES = 1 << 16
    MAX_WAITING = 4     # pages of one pageset that may have left already
    MAX_BRANCHED = 256  # states above which no further assumption is made
    STACK_PAGES = 4     # that a new task takes in silence (until v6.18)

    IRQ = FL_SOFTIRQ | FL_HARDIRQ | FL_NMI

    # What a page is, as far as the trace told.
    UNSEEN = 0
    AWAY = 1
    FREED = 2           # its list is told by mm_page_free_batched; order in the high bits
    TAKEN = 3           # left its list; mm_page_alloc is to come

    RUN_NONE = 0
    RUN_REFILL = 1
    RUN_DRAIN = 2

    D_TIME = 1
    D_PAGE = 2
    D_NOT_HEAD = 3
    D_NOT_LISTED = 4
    D_REFILL_SIZE = 5
    D_DRAIN_UNEXPECTED = 6
    D_DRAIN_SIZE = 7
    D_DRAIN_PAGE = 8
    D_FREED_TWICE = 9
    D_BATCHED = 10
    D_TYPE = 11
    D_LOST_ALLOC = 12
    D_DRAIN_MISSING = 13
    D_COUNT = 14
    D_HIGH = 15

    E_OVERTAKEN = 1
    E_LATE = 2
    E_IN_FLIGHT = 3
    E_MIGRATED = 4
    E_TRYLOCK = 5
    E_DIRECT = 6
    E_DELAYED = 7
    E_SILENT = 8

cdef struct state:
    per_cpu_pages pcp
    int due
    int threshold
    int taken           # bits of the waiting pages that left already
    int cost            # assumptions made
    bint good

cdef struct waiting_page:
    int32_t page
    int32_t told        # row that tells
    int order
    bint silent

cdef struct pageset:
    int zone
    int cpu
    int32_t head[MAX_PCP_LISTS]
    int32_t tail[MAX_PCP_LISTS]
    bint open[MAX_PCP_LISTS]    # below the known pages there may be others, from before
    int32_t moved[MAX_PCP_LISTS]    # last row of a change
    bint used
    bint known          # one state is left
    int32_t known_row
    state *s
    int n
    int cap
    waiting_page w[MAX_WAITING]
    int nw
    per_cpu_pages first  # fields at the start, where /proc/zoneinfo tells them
    int *counts         # candidates of count at the start
    int nr_counts

cdef struct cpu_run:
    int kind
    int set
    int pindex
    int left
    bint bad
    int32_t last_pfn

cdef struct note:
    int64_t line
    int64_t evidence
    int64_t want
    int64_t got
    int32_t code
    int32_t set

cdef struct found_page:
    int32_t page
    int32_t set
    int32_t row
    int8_t pindex
    int8_t drained      # from the tail

cdef struct tally:
    int64_t allocations
    int64_t allocations_exact
    int64_t allocations_inferred
    int64_t refills
    int64_t refills_exact
    int64_t refills_inferred
    int64_t drains
    int64_t drains_exact
    int64_t drains_inferred
    int64_t drained_pages
    int64_t drained_pages_exact
    int64_t drained_pages_inferred
    int64_t quiet_inferred      # frees and ticks without a drain that told states apart
    int64_t direct_frees
    int64_t direct_allocations
    int64_t silent_pages
    int64_t guessed     # frees into blocks whose type nothing tells

cdef struct tracker:
    pcp_rules rules
    int cpus
    int nr_zones
    int nr_sets
    pageset *sets
    cpu_run *runs
    int64_t base
    int64_t nr_pages
    int32_t *next
    int32_t *prev
    int32_t *where
    int32_t *cursor
    int32_t *pushed
    uint8_t *status
    int8_t *zone_of
    int8_t *block_type
    const event_row *rows
    const int32_t *chain
    const int32_t *own_prev
    const int32_t *own_next
    const int32_t *next_cpu
    int32_t *later      # row -> row of a free that joins its list only then, or -1
    const int32_t *forks        # rows of new tasks, by CPU
    const int32_t *forks_of     # cpus + 1 places in it
    uint8_t *stacks             # pages that each of them may still have taken in silence
    int nr_rows
    int top_zone        # where stacks come from
    int64_t last_time
    tally t
    uint8_t *orders     # of a drain's blocks
    int nr_orders
    int orders_cap
    int32_t *table
    int table_cap
    bint broken
    note *unexplained
    int64_t nr_unexplained
    note *explained
    int64_t nr_explained
    found_page *found
    int64_t nr_found
    int64_t found_cap


# -- notes ----------------------------------------------------------------------------

cdef void differ(tracker *t, int32_t row, int code, int set, int64_t want,
                 int64_t got) noexcept nogil:
    cdef note *n
    if t.nr_unexplained < MAX_NOTES:
        n = &t.unexplained[t.nr_unexplained]
        n.line = t.rows[row].line
        n.evidence = 0
        n.code = code
        n.set = set
        n.want = want
        n.got = got
    t.nr_unexplained += 1


cdef void explain(tracker *t, int32_t row, int code, int set, int32_t evidence) noexcept nogil:
    cdef note *n
    if t.nr_explained < MAX_NOTES:
        n = &t.explained[t.nr_explained]
        n.line = t.rows[row].line
        n.evidence = t.rows[evidence].line
        n.code = code
        n.set = set
        n.want = 0
        n.got = 0
    t.nr_explained += 1


cdef void found(tracker *t, int32_t p, int x, int i, bint drained, int32_t row) noexcept nogil:
    """Remember that a page was on a list at the start."""
    cdef void *more
    if t.nr_found == t.found_cap:
        more = realloc(t.found, (2 * t.found_cap + 1024) * sizeof(found_page))
        if more == NULL:
            t.broken = True
            return
        t.found = <found_page *>more
        t.found_cap = 2 * t.found_cap + 1024
    t.found[t.nr_found].page = p
    t.found[t.nr_found].set = x
    t.found[t.nr_found].row = row
    t.found[t.nr_found].pindex = <int8_t>i
    t.found[t.nr_found].drained = drained
    t.nr_found += 1


# -- lists ----------------------------------------------------------------------------

cdef inline int64_t index_of(tracker *t, int64_t pfn) noexcept nogil:
    cdef int64_t p = pfn - t.base
    if p < 0 or p >= t.nr_pages or t.zone_of[p >> 9] < 0:
        return -1
    return p


cdef inline int set_of(tracker *t, int64_t p, int cpu) noexcept nogil:
    return t.zone_of[p >> 9] * t.cpus + cpu


cdef inline void push(tracker *t, int x, int i, int32_t p, int32_t row, bint tail) noexcept nogil:
    cdef pageset *set = &t.sets[x]
    t.pushed[p] = row
    t.where[p] = 1 + 16 * x + i
    set.moved[i] = row
    if tail:
        t.next[p] = -1
        t.prev[p] = set.tail[i]
        if set.tail[i] >= 0:
            t.next[set.tail[i]] = p
        else:
            set.head[i] = p
        set.tail[i] = p
    else:
        t.prev[p] = -1
        t.next[p] = set.head[i]
        if set.head[i] >= 0:
            t.prev[set.head[i]] = p
        else:
            set.tail[i] = p
        set.head[i] = p


cdef inline void unlink_page(tracker *t, int32_t p, int32_t row) noexcept nogil:
    cdef int place = t.where[p] - 1
    cdef pageset *set = &t.sets[place >> 4]
    cdef int i = place & 15
    if t.prev[p] >= 0:
        t.next[t.prev[p]] = t.next[p]
    else:
        set.head[i] = t.next[p]
    if t.next[p] >= 0:
        t.prev[t.next[p]] = t.prev[p]
    else:
        set.tail[i] = t.prev[p]
    t.where[p] = 0
    set.moved[i] = row


# -- states ---------------------------------------------------------------------------

cdef bint room(tracker *t, pageset *set, int n) noexcept nogil:
    cdef void *more
    if n <= set.cap:
        return True
    more = realloc(set.s, 2 * n * sizeof(state))
    if more == NULL:
        t.broken = True
        return False
    set.s = <state *>more
    set.cap = 2 * n
    return True


cdef void open_states(tracker *t, pageset *set, const per_cpu_pages *like) noexcept nogil:
    """Every value that the fields may have which nobody told."""
    cdef int scale = t.rules.batch_scale_max
    cdef int afs = scale + 1 if t.rules.alloc_scale else 1
    cdef int fcs = (like.batch << scale) + 8 if t.rules.free_count else 1
    cdef int ffs = 1 if t.rules.free_count else 7
    cdef int flags = 4 if t.rules.free_high_two_in_a_row else 1
    cdef int counts = set.nr_counts if like == &set.first else 1
    cdef int n = 0, c, a, f, k, g
    cdef state *v
    if not room(t, set, counts * afs * fcs * ffs * flags):
        return
    for c in range(counts):
        for a in range(afs):
            for f in range(fcs):
                for g in range(ffs):
                    for k in range(flags):
                        v = &set.s[n]
                        memset(v, 0, sizeof(state))
                        v.pcp = like[0]
                        if like == &set.first:
                            v.pcp.count = set.counts[c]
                        v.pcp.alloc_factor = a
                        v.pcp.free_count = f
                        v.pcp.free_factor = g
                        v.pcp.flags = k
                        n += 1
    set.n = n
    set.nw = 0
    set.used = True
    set.known = False


cdef inline bint same_state(const state *a, const state *b) noexcept nogil:
    return a.pcp.count == b.pcp.count and a.pcp.high == b.pcp.high \
        and a.pcp.free_count == b.pcp.free_count and a.pcp.alloc_factor == b.pcp.alloc_factor \
        and a.pcp.free_factor == b.pcp.free_factor and a.pcp.flags == b.pcp.flags \
        and a.taken == b.taken


cdef void merge_states(tracker *t, pageset *set) noexcept nogil:
    """States that have become the same are one; the fewest assumptions win."""
    cdef int size = 16, k, n = 0
    cdef uint64_t h
    cdef void *more
    cdef const state *v
    while size < 3 * set.n:
        size *= 2
    if size > t.table_cap:
        more = realloc(t.table, size * sizeof(int32_t))
        if more == NULL:
            t.broken = True
            return
        t.table = <int32_t *>more
        t.table_cap = size
    for k in range(size):
        t.table[k] = -1
    for k in range(set.n):
        v = &set.s[k]
        h = <uint64_t>v.pcp.high * <uint64_t>0x9E3779B97F4A7C15
        h ^= <uint64_t>(v.pcp.count * 16 + v.taken) * <uint64_t>0xC2B2AE3D27D4EB4F
        h ^= <uint64_t>(v.pcp.free_count * 1024 + v.pcp.alloc_factor * 64 + v.pcp.free_factor * 4
                        + v.pcp.flags) * <uint64_t>0xBF58476D1CE4E5B9
        h = (h >> 32) & (size - 1)
        while t.table[h] >= 0 and not same_state(&set.s[t.table[h]], v):
            h = (h + 1) & (size - 1)
        if t.table[h] < 0:
            t.table[h] = n
            set.s[n] = v[0]
            n += 1
        elif v.cost < set.s[t.table[h]].cost:
            set.s[t.table[h]].cost = v.cost
    set.n = n


cdef void settle(tracker *t, int x, int32_t row) noexcept nogil:
    """Merge; note when one state is left."""
    cdef pageset *set = &t.sets[x]
    cdef int k, least = 1 << 30, plain = 0
    if set.n > 1:
        merge_states(t, set)
    for k in range(set.n):
        least = min(least, set.s[k].cost)
    for k in range(set.n):
        plain += set.s[k].cost == least
    if plain == 1 and not set.known:
        set.known = True
        set.known_row = row


cdef void use(tracker *t, int x) noexcept nogil:
    if not t.sets[x].used:
        open_states(t, &t.sets[x], &t.sets[x].first)


cdef inline bint in_flight(tracker *t, int32_t q, int32_t row) noexcept nogil:
    """Whether a task can have taken this page by *row* and reports it later."""
    cdef int32_t j = t.cursor[q]
    return j > row and t.rows[j].event == EV_ALLOC and t.own_prev[j] < row


cdef inline bint goes_silently(tracker *t, int32_t q, int32_t row) noexcept nogil:
    """Whether the next that the trace tells of this page is that it is freed."""
    cdef int32_t j = t.cursor[q]
    return j > row and t.rows[j].event == EV_FREE and t.rows[j].b == 0


cdef void take_early(tracker *t, state *v, const waiting_page *w, int k) noexcept nogil:
    if not w.silent:
        pcp_alloc_begin(&v.pcp, &t.rules)
    pcp_alloc_end(&v.pcp, &t.rules, w.order)
    v.taken |= 1 << k
    v.cost += 1


cdef void assume(tracker *t, int x, int32_t row) noexcept nogil:
    """Before an operation: pages that may have left already, though the trace tells later."""
    cdef pageset *set = &t.sets[x]
    cdef int i, k, v, n
    cdef int32_t q
    cdef bint free_to_go[MAX_WAITING]
    cdef bint silent, here
    for k in range(MAX_WAITING):
        free_to_go[k] = False
    for i in range(t.rules.nr_pcp_lists):
        q = set.head[i]
        while q >= 0:
            silent = i < MIGRATE_PCPTYPES and goes_silently(t, q, row)
            if not silent and not in_flight(t, q, row):
                break
            here = False
            for k in range(set.nw):
                if set.w[k].page == q:
                    free_to_go[k] = True
                    here = True
            if not here:
                if set.nw == MAX_WAITING:
                    break
                set.w[set.nw].page = q
                set.w[set.nw].told = t.cursor[q]
                set.w[set.nw].order = pindex_to_order(i)
                set.w[set.nw].silent = silent
                free_to_go[set.nw] = True
                set.nw += 1
            q = t.next[q]
    if set.nw == 0 or set.n > MAX_BRANCHED:
        return
    for k in range(set.nw):
        if not free_to_go[k] or set.n > MAX_BRANCHED or not room(t, set, 2 * set.n):
            continue
        n = set.n
        for v in range(n):
            if not set.s[v].taken >> k & 1:
                set.s[set.n] = set.s[v]
                take_early(t, &set.s[set.n], &set.w[k], k)
                set.n += 1


cdef void leave(tracker *t, int x, int32_t p, int32_t row, int order, bint silent) noexcept nogil:
    """A block has left its list for a caller, in every state."""
    cdef pageset *set = &t.sets[x]
    cdef int k, v, at = -1, low
    for k in range(set.nw):
        if set.w[k].page == p:
            at = k
    for v in range(set.n):
        if at >= 0 and set.s[v].taken >> at & 1:
            continue
        if not silent:
            pcp_alloc_begin(&set.s[v].pcp, &t.rules)
        pcp_alloc_end(&set.s[v].pcp, &t.rules, order)
    if at >= 0:
        low = (1 << at) - 1
        for v in range(set.n):
            set.s[v].taken = (set.s[v].taken & low) | (set.s[v].taken >> 1 & ~low)
        set.nw -= 1
        for k in range(at, set.nw):
            set.w[k] = set.w[k + 1]
    if t.where[p]:
        unlink_page(t, p, row)
    settle(t, x, row)


# -- what was seen, and which states say so -------------------------------------------

cdef enum:
    SAID_NONE = 0       # no state says so
    SAID_ALL = 1        # all of the plain states do
    SAID_SOME = 2       # some of them: the others are wrong
    SAID_LATE = 3       # only one with an assumption

cdef int verdict(tracker *t, int x, int32_t row) noexcept nogil:
    """Keep the states that are `good`."""
    cdef pageset *set = &t.sets[x]
    cdef int k, n = 0, least = 1 << 30, of_least = 0, good_least = 0, best = 1 << 30, told = -1, j
    for k in range(set.n):
        least = min(least, set.s[k].cost)
    for k in range(set.n):
        if set.s[k].cost == least:
            of_least += 1
            good_least += set.s[k].good
        if set.s[k].good:
            best = min(best, set.s[k].cost)
    if best == 1 << 30:
        return SAID_NONE
    if good_least == 0:
        for k in range(set.n):
            if set.s[k].good and set.s[k].cost == best:
                for j in range(set.nw):
                    if set.s[k].taken >> j & 1:
                        told = set.w[j].told
                break
        explain(t, row, E_IN_FLIGHT, x, told if told >= 0 else row)
    for k in range(set.n):
        if set.s[k].good:
            set.s[n] = set.s[k]
            set.s[n].cost -= best
            n += 1
    set.n = n
    settle(t, x, row)
    if good_least == 0:
        return SAID_LATE
    return SAID_ALL if good_least == of_least else SAID_SOME


cdef void reopen(tracker *t, int x) noexcept nogil:
    """After a difference: the fields are unknown again, but for count and high."""
    cdef pageset *set = &t.sets[x]
    cdef int k, best = 0
    cdef per_cpu_pages like
    for k in range(set.n):
        if set.s[k].cost < set.s[best].cost:
            best = k
    like = set.s[best].pcp
    for k in range(set.nw):
        if set.s[best].taken >> k & 1:
            like.count += 1 << set.w[k].order
    open_states(t, set, &like)


cdef bint fits(tracker *t, const state *v, int chunk, bint while_high) noexcept nogil:
    """Whether the drain that was seen is the one that a state wants."""
    cdef int left = v.due, have = v.pcp.count, k = 0, n, got
    if v.due <= 0 or have <= 0:
        return t.nr_orders == 0
    while left > 0 and have > 0 and not (while_high and have < v.threshold):
        n = min(left, have)
        if chunk:
            n = min(n, chunk)
        got = 0
        while got < n and k < t.nr_orders:
            got += 1 << t.orders[k]
            k += 1
        if got < n:
            return False
        have -= got
        left -= n
    return k == t.nr_orders


cdef int32_t find_drain(tracker *t, int x, int32_t d) noexcept nogil:
    """The blocks of one drain, from row *d* on; returns the row after it."""
    cdef int zone = t.sets[x].zone
    cdef int cpu = t.sets[x].cpu
    cdef int64_t p
    cdef const event_row *r
    cdef void *more
    t.nr_orders = 0
    while d >= 0:
        r = &t.rows[d]
        if r.event != EV_PCPU_DRAIN or r.cpu != cpu:
            break
        p = index_of(t, r.a)
        if p < 0 or t.zone_of[p >> 9] != zone:
            break
        if t.nr_orders == t.orders_cap:
            more = realloc(t.orders, 2 * t.orders_cap + 4096)
            if more == NULL:
                t.broken = True
                break
            t.orders = <uint8_t *>more
            t.orders_cap = 2 * t.orders_cap + 4096
        t.orders[t.nr_orders] = <uint8_t>min(max(r.b, 0), 10)
        t.nr_orders += 1
        d = t.own_next[d]
    return d


cdef void hold_drain(tracker *t, int x, int32_t row, int chunk, bint while_high,
                     int pindex) noexcept nogil:
    """Compare the drain of `find_drain` with what the states want."""
    cdef pageset *set = &t.sets[x]
    cdef cpu_run *run = &t.runs[set.cpu]
    cdef int k, seen = 0, said, want = 0, last = -1
    cdef bint good = False
    for k in range(t.nr_orders):
        seen += 1 << t.orders[k]
    for k in range(set.n):
        # Most states want the same.
        if set.s[k].due != last or set.s[k].due > 0:
            good = fits(t, &set.s[k], chunk, while_high)
            last = set.s[k].due
        set.s[k].good = good
    for k in range(set.n):
        if set.s[k].cost == 0:
            want = set.s[k].due
            break
    said = verdict(t, x, row)
    if t.nr_orders:
        t.t.drains += 1
        t.t.drains_exact += said == SAID_ALL or said == SAID_LATE
        t.t.drains_inferred += said == SAID_SOME
        run.kind = RUN_DRAIN
        run.set = x
        run.pindex = pindex
        run.left = t.nr_orders
        run.bad = False
    else:
        t.t.quiet_inferred += said == SAID_SOME
    if said == SAID_NONE:
        differ(t, row, D_DRAIN_SIZE if want and seen else D_DRAIN_MISSING if want
               else D_DRAIN_UNEXPECTED, x, want, seen)
        reopen(t, x)


# -- operations -----------------------------------------------------------------------

cdef int list_type(tracker *t, int64_t p) noexcept nogil:
    """Migratetype of the list that a freed page goes to, as the trace tells of its block."""
    cdef int mt = t.block_type[p >> 9]
    cdef int32_t j
    if mt < 0:
        j = t.cursor[p]
        if j >= 0 and (t.rows[j].event == EV_ALLOC or t.rows[j].event == EV_PCPU_DRAIN) \
                and 0 <= t.rows[j].c < 6:
            mt = <int>t.rows[j].c
            t.block_type[p >> 9] = <int8_t>mt
        else:
            t.t.guessed += 1
            return MIGRATE_MOVABLE
    return mt if mt < MIGRATE_PCPTYPES else MIGRATE_MOVABLE


cdef void commit(tracker *t, int64_t p, int order, int cpu, int32_t row, int32_t d) noexcept nogil:
    """A freed block joins its list; the drain from row *d* on is its own."""
    cdef int x = set_of(t, p, cpu)
    cdef pageset *set = &t.sets[x]
    cdef int i = order_to_pindex(t.rules.nr_pcp_lists, list_type(t, p), order)
    cdef int k
    cdef bint free_high
    cdef state *v
    use(t, x)
    assume(t, x, row)
    push(t, x, i, <int32_t>p, row, False)
    t.status[p] = AWAY
    for k in range(set.n):
        v = &set.s[k]
        free_high = pcp_commit(&v.pcp, &t.rules, order)
        v.threshold = nr_pcp_high(&v.pcp, &t.rules, 0, free_high)
        v.due = 0
        if v.pcp.count >= v.threshold:
            v.due = nr_pcp_free(&v.pcp, &t.rules, v.threshold, free_high)
    find_drain(t, x, d)
    hold_drain(t, x, row, set.first.batch if t.rules.commit_drain else 0,
               t.rules.commit_drain == 1, i)


cdef void tick(tracker *t, int x, int32_t row) noexcept nogil:
    """decay_pcp_high(); its drain is the one of `find_drain`."""
    cdef pageset *set = &t.sets[x]
    cdef int k
    cdef bint work
    use(t, x)
    assume(t, x, row)
    for k in range(set.n):
        set.s[k].due = decay_pcp_high(&set.s[k].pcp, &t.rules, &work)
        set.s[k].threshold = 0
    hold_drain(t, x, row, set.first.batch if t.rules.decay_chunks else 0, False, 0)


cdef void vmstat_update(tracker *t, int32_t row) noexcept nogil:
    """The vmstat worker goes through the zones of its CPU."""
    cdef int cpu = t.rows[row].cpu
    cdef int z, k
    cdef int32_t d = t.own_next[row], j
    for z in range(t.nr_zones):
        k = z * t.cpus + cpu
        if t.sets[k].first.batch <= 0:
            continue
        j = find_drain(t, k, d)
        if t.nr_orders:
            t.later[d] = row    # when it comes to that row
            d = j
        else:
            tick(t, k, row)


cdef bint straight(tracker *t, int64_t p, int32_t row) noexcept nogil:
    """Whether a freed page goes straight to the buddy lists: the interrupted task had the locks.

    The preempt depth shows that locks are held below this interrupt.  What becomes of
    the page shows which; where nothing does, the next page of the same interrupt.
    """
    cdef const event_row *r = &t.rows[row]
    cdef int32_t j = t.chain[row], k = row
    cdef int _n
    cdef int64_t q
    if not r.flags & IRQ or not r.flags & FL_KNOWN or r.flags & FL_DEPTH < 2:
        return False
    for _n in range(512):
        if j >= 0:
            if t.rows[j].event == EV_ZONE_LOCKED or t.rows[j].event == EV_EXTFRAG:
                explain(t, row, E_TRYLOCK, set_of(t, p, r.cpu), j)
                return True
            if t.rows[j].event == EV_PCPU_DRAIN or t.rows[j].event == EV_ALLOC:
                return False
        k = t.own_next[k]
        if k < 0 or t.rows[k].event != EV_FREE or t.rows[k].flags != r.flags:
            return False
        q = index_of(t, t.rows[k].a)
        if q < 0 or t.zone_of[q >> 9] != t.zone_of[p >> 9]:
            return False
        j = t.chain[k]
    return False


cdef int32_t fork_between(tracker *t, int cpu, int32_t since, int32_t until,
                          int pages) noexcept nogil:
    """A new task on this CPU whose stack may be these pages (they are its own then), or -1."""
    cdef int32_t lo = t.forks_of[cpu], hi = t.forks_of[cpu + 1], mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if t.forks[mid] <= since:
            lo = mid + 1
        else:
            hi = mid
    while lo < t.forks_of[cpu + 1] and t.forks[lo] < until:
        if t.stacks[lo] >= pages:
            t.stacks[lo] -= <uint8_t>pages
            return t.forks[lo]
        lo += 1
    return -1


cdef bint stack_of_fork(tracker *t, int x, int i, int32_t row) noexcept nogil:
    """Four pages at the head that a new task on this CPU took without a line; takes them."""
    cdef pageset *set = &t.sets[x]
    cdef int32_t f, q, k
    cdef int n = 0, _n
    if i != 0:
        return False
    q = set.head[i]
    while q >= 0 and n < STACK_PAGES:
        k = t.cursor[q]
        if k >= 0 and t.rows[k].event != EV_FREE:
            return False
        q = t.next[q]
        n += 1
    # It is reported once the memory of its parent is copied.
    f = fork_between(t, set.cpu, set.moved[i], row + 20000, STACK_PAGES)
    if f < 0:
        return False
    for _n in range(STACK_PAGES):
        q = set.head[i]
        if q < 0:
            break
        explain(t, row, E_SILENT, x, t.cursor[q] if t.cursor[q] >= 0 else f)
        t.status[q] = AWAY
        t.t.silent_pages += 1
        leave(t, x, q, row, 0, True)
    return True


cdef inline bint still_on_its_way(tracker *t, int32_t q, int32_t row) noexcept nogil:
    """Whether the task that freed this page may have been stopped before the list until *row*."""
    cdef int32_t j = t.pushed[q]
    return j >= 0 and t.rows[j].event == EV_FREE and t.own_next[j] > row


cdef bint uncover(tracker *t, int x, int i, int32_t p, int32_t row, int32_t since) noexcept nogil:
    """Account for the pages above *p* (all of the list: -1); false if nothing does for one.

    Pages that joined after *since* came after the task that reports now had its own.
    """
    cdef pageset *set = &t.sets[x]
    cdef int32_t q = set.head[i], above, j
    cdef bint good = True
    while q >= 0 and q != p:
        above = q
        q = t.next[q]
        if p >= 0 and t.pushed[above] > t.pushed[p] and still_on_its_way(t, p, t.pushed[above]):
            # An interrupt came between mm_page_free of *p* and the list.
            explain(t, row, E_DELAYED, x, t.own_next[t.pushed[p]])
            continue
        if above == set.head[i] and stack_of_fork(t, x, i, row):
            q = set.head[i]
            continue
        if t.pushed[above] > since:
            continue
        if in_flight(t, above, row):
            explain(t, row, E_OVERTAKEN, x, t.cursor[above])
            t.status[above] = TAKEN
            leave(t, x, above, row, pindex_to_order(i), False)
            continue
        j = t.pushed[above]
        if still_on_its_way(t, above, row) and t.later[t.own_next[j]] < 0:
            # Its task was stopped between mm_page_free and the list.
            explain(t, row, E_DELAYED, x, t.own_next[j])
            unlink_page(t, above, row)
            take_back(t, x, pindex_to_order(i))
            t.later[t.own_next[j]] = j
            continue
        good = False
        differ(t, row, D_NOT_HEAD if p >= 0 else D_LOST_ALLOC, x, above + t.base, t.rows[row].a)
        leave(t, x, above, row, pindex_to_order(i), True)
    return good


cdef void take_back(tracker *t, int x, int order) noexcept nogil:
    """A free that had not happened yet."""
    cdef pageset *set = &t.sets[x]
    cdef int k
    for k in range(set.n):
        set.s[k].pcp.count -= 1 << order
        if t.rules.free_count and set.s[k].pcp.free_count >= 1 << order:
            set.s[k].pcp.free_count -= 1 << order


cdef void reported(tracker *t, int32_t row) noexcept nogil:
    """mm_page_alloc."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p
    cdef int order = <int>r.b
    cdef int x, i
    cdef bint unseen
    cdef pageset *set
    if r.a < 0:
        return
    t.t.allocations += 1
    p = index_of(t, r.a)
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    t.cursor[p] = t.chain[row]
    unseen = t.status[p] == UNSEEN
    if t.status[p] == TAKEN:
        t.status[p] = AWAY
        t.t.allocations_exact += 1
        return
    t.status[p] = AWAY
    if t.where[p]:
        x = (t.where[p] - 1) >> 4
        i = (t.where[p] - 1) & 15
        set = &t.sets[x]
        if pindex_to_order(i) != order or (i < 12 and i % 3 != r.c):
            differ(t, row, D_TYPE, x, i, order_to_pindex(t.rules.nr_pcp_lists, <int>r.c, order))
        elif set.head[i] == p:
            t.t.allocations_exact += 1
        elif uncover(t, x, i, <int32_t>p, row, t.own_prev[row]):
            if set.head[i] != p:
                explain(t, row, E_LATE, x, t.pushed[set.head[i]])
            t.t.allocations_exact += 1
        if set.cpu != r.cpu:
            explain(t, row, E_MIGRATED, x, row)
        assume(t, x, row)
        leave(t, x, <int32_t>p, row, order, False)
        return
    if not unseen or not pcp_allowed_order(order) or r.c >= MIGRATE_PCPTYPES:
        if pcp_allowed_order(order) or not unseen:
            differ(t, row, D_NOT_LISTED, -1, 0, r.a)
        return
    x = set_of(t, p, r.cpu)
    i = order_to_pindex(t.rules.nr_pcp_lists, <int>r.c, order)
    set = &t.sets[x]
    use(t, x)
    if not set.open[i]:
        differ(t, row, D_NOT_LISTED, x, 0, r.a)
        return
    uncover(t, x, i, -1, row, t.own_prev[row])
    t.t.allocations_inferred += 1
    found(t, <int32_t>p, x, i, False, row)
    set.moved[i] = row
    assume(t, x, row)
    leave(t, x, <int32_t>p, row, order, False)


cdef int run_length(tracker *t, int x, int pindex, int order, int32_t row) noexcept nogil:
    """Blocks that this CPU goes on taking for one list."""
    cdef int cpu = t.rows[row].cpu
    cdef int n = 0
    cdef int32_t j = row
    cdef int64_t p, last = -1
    cdef const event_row *r
    while j >= 0:
        r = &t.rows[j]
        if (r.event != EV_ZONE_LOCKED and r.event != EV_EXTFRAG) or r.b != order:
            break
        if not (r.event == EV_EXTFRAG and (t.rules.fallback == 0 or r.a == last)):
            p = index_of(t, r.a)
            if p < 0 or r.c >= MIGRATE_PCPTYPES or set_of(t, p, cpu) != x \
                    or order_to_pindex(t.rules.nr_pcp_lists, <int>r.c, order) != pindex:
                break
            last = r.a
            n += 1
        j = t.next_cpu[j]
    return n


cdef void begin_refill(tracker *t, int x, int i, int order, int32_t row) noexcept nogil:
    cdef pageset *set = &t.sets[x]
    cdef cpu_run *run = &t.runs[set.cpu]
    cdef int n = run_length(t, x, i, order, row), k, said, want = 0
    cdef int32_t told = t.chain[row]
    cdef bint silent = order == 0 and not (told >= 0 and t.rows[told].event == EV_ALLOC)
    use(t, x)
    uncover(t, x, i, -1, row, t.nr_rows)
    set.open[i] = False
    assume(t, x, row)
    for k in range(set.n):
        if not silent:
            pcp_alloc_begin(&set.s[k].pcp, &t.rules)
        set.s[k].due = nr_pcp_alloc(&set.s[k].pcp, &t.rules, 0, order)
        set.s[k].good = set.s[k].due == n
        if set.s[k].cost == 0:
            want = set.s[k].due
        set.s[k].pcp.count += n << order
        if not silent:
            pcp_alloc_end(&set.s[k].pcp, &t.rules, order)
    said = verdict(t, x, row)
    t.t.refills += 1
    t.t.refills_exact += said == SAID_ALL or said == SAID_LATE
    t.t.refills_inferred += said == SAID_SOME
    run.kind = RUN_REFILL
    run.set = x
    run.pindex = i
    run.left = n
    if said == SAID_NONE:
        differ(t, row, D_REFILL_SIZE, x, want, n)
        reopen(t, x)
    if not silent:
        run.left = -n   # the first page goes to the caller


cdef void from_buddy(tracker *t, int32_t row) noexcept nogil:
    """mm_page_alloc_zone_locked, or an extfrag whose page has no zone_locked of its own."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef int cpu = r.cpu
    cdef int order = <int>r.b
    cdef cpu_run *run = &t.runs[cpu]
    cdef int x, i
    cdef bint direct
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    t.cursor[p] = t.chain[row]
    run.last_pfn = <int32_t>p
    t.status[p] = TAKEN
    if t.where[p]:
        x = (t.where[p] - 1) >> 4
        differ(t, row, D_FREED_TWICE, x, 0, r.a)
        leave(t, x, <int32_t>p, row, pindex_to_order((t.where[p] - 1) & 15), True)
    if not pcp_allowed_order(order) or r.c >= MIGRATE_PCPTYPES:
        t.t.direct_allocations += 1
        return
    x = set_of(t, p, cpu)
    i = order_to_pindex(t.rules.nr_pcp_lists, <int>r.c, order)
    if run.kind != RUN_REFILL or run.set != x or run.pindex != i or run.left == 0:
        if r.flags & FL_KNOWN:
            # Under the locks of the lists and of the zone the preempt depth is 3 more.
            direct = (r.flags & FL_DEPTH) < 3
        else:
            direct = t.sets[x].head[i] >= 0
        if direct:
            t.t.direct_allocations += 1
            explain(t, row, E_DIRECT, x, row)
            return
        begin_refill(t, x, i, order, row)
    if run.left < 0:
        run.left = -run.left - 1
        return
    run.left -= 1
    t.status[p] = AWAY
    push(t, x, i, <int32_t>p, row, True)


cdef void drained(tracker *t, int32_t row) noexcept nogil:
    """mm_page_pcpu_drain."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef cpu_run *run = &t.runs[r.cpu]
    cdef pageset *set
    cdef int32_t q
    cdef int i, x, k, _k, order = <int>r.b, mt
    cdef bint unseen
    t.t.drained_pages += 1
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    unseen = t.status[p] == UNSEEN
    t.status[p] = AWAY
    t.cursor[p] = t.chain[row]
    if run.kind != RUN_DRAIN or run.left <= 0:
        # Nothing here made it: one note for all its pages.
        x = (t.where[p] - 1) >> 4 if t.where[p] else set_of(t, p, r.cpu)
        use(t, x)
        find_drain(t, x, row)
        differ(t, row, D_DRAIN_UNEXPECTED, x, 0, t.nr_orders)
        t.t.drains += 1
        run.kind = RUN_DRAIN
        run.set = x
        run.pindex = 0
        run.left = max(t.nr_orders, 1)
    run.left -= 1
    set = &t.sets[run.set]
    mt = <int>r.c if r.c < MIGRATE_PCPTYPES else MIGRATE_MOVABLE
    i = run.pindex
    for _k in range(t.rules.nr_pcp_lists):
        if set.tail[i] >= 0 and not set.open[i]:
            break
        if set.open[i]:
            if unseen and not t.where[p] and pindex_to_order(i) == order \
                    and (i % 3 == mt or i >= 12):
                break
            # What it drains now was not there before: below that page there is nothing.
            set.open[i] = False
            if set.tail[i] >= 0:
                break
        i = i + 1 if i + 1 < t.rules.nr_pcp_lists else 0
    run.pindex = i
    if set.open[i]:
        t.t.drained_pages_inferred += 1
        found(t, <int32_t>p, run.set, i, True, row)
        set.moved[i] = row
    else:
        q = set.tail[i]
        if q == p:
            t.t.drained_pages_exact += 1
        else:
            differ(t, row, D_DRAIN_PAGE, run.set, q + t.base if q >= 0 else -1, r.a)
    for k in range(set.n):
        set.s[k].pcp.count -= 1 << order
    if t.where[p]:
        unlink_page(t, <int32_t>p, row)
    if t.rules.drain_block_type:
        t.block_type[p >> 9] = <int8_t>r.c


cdef void fallback(tracker *t, int32_t row) noexcept nogil:
    """mm_page_alloc_extfrag."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef int order = <int>(r.d & 0xff)
    cdef int64_t b, n
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    if r.d >> 16 & 1:
        b = p >> 9
        n = 1
        if order > 9:
            n = <int64_t>1 << (order - 9)
            b &= ~(n - 1)
        while n > 0 and b < t.nr_pages >> 9:
            t.block_type[b] = <int8_t>r.c
            b += 1
            n -= 1
    if t.rules.fallback == 0 or t.runs[r.cpu].last_pfn == p:
        t.cursor[p] = t.chain[row]
        return
    from_buddy(t, row)


cdef void freed(tracker *t, int32_t row) noexcept nogil:
    """mm_page_free."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef int32_t j = t.chain[row], d = t.own_next[row]
    cdef int32_t f
    cdef int x, i
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    t.cursor[p] = row
    if t.where[p]:
        # It left its list without a line: as part of a stack, or not at all.
        x = (t.where[p] - 1) >> 4
        i = (t.where[p] - 1) & 15
        f = fork_between(t, t.sets[x].cpu, t.pushed[p], row, 1) if i == 0 else -1
        if f >= 0:
            explain(t, row, E_SILENT, x, f)
            t.t.silent_pages += 1
        else:
            differ(t, row, D_FREED_TWICE, x, 0, r.a)
        leave(t, x, <int32_t>p, row, pindex_to_order(i), True)
    if t.status[p] == TAKEN:
        differ(t, row, D_LOST_ALLOC, -1, 0, r.a)
    t.cursor[p] = j
    t.status[p] = AWAY
    if j >= 0 and t.rows[j].event == EV_FREE_BATCHED:
        t.status[p] = <uint8_t>(FREED | r.b << 4)
    elif not pcp_allowed_order(<int>r.b):
        pass
    elif straight(t, p, row):
        t.t.direct_frees += 1
    elif d >= 0 and d != t.next_cpu[row] and t.rows[d].event == EV_PCPU_DRAIN \
            and t.rows[d].cpu == r.cpu and t.later[d] < 0:
        t.later[d] = row
    else:
        commit(t, p, <int>r.b, r.cpu, row, d)


cdef void batched(tracker *t, int32_t row) noexcept nogil:
    """mm_page_free_batched: the page joins its list now."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef int order
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    t.cursor[p] = t.chain[row]
    order = t.status[p] >> 4
    if t.status[p] & 15 != FREED or not pcp_allowed_order(order):
        differ(t, row, D_BATCHED, -1, 0, r.a)
        order = 0
    if t.where[p]:
        return
    commit(t, p, order, r.cpu, row, t.own_next[row])


cdef void forked(tracker *t, int32_t row) noexcept nogil:
    """A new task: its stack may have come from what is not known of the list."""
    cdef int x = t.top_zone * t.cpus + t.rows[row].cpu, k, n
    cdef pageset *set = &t.sets[x]
    if not set.used or not set.open[0]:
        return
    n = set.n
    if not room(t, set, 2 * n):
        return
    for k in range(n):
        if set.s[k].pcp.count >= STACK_PAGES:
            set.s[set.n] = set.s[k]
            set.s[set.n].pcp.count -= STACK_PAGES
            set.n += 1
    merge_states(t, set)


cdef void step(tracker *t, int32_t row) noexcept nogil:
    """One event."""
    cdef const event_row *r = &t.rows[row]
    cdef const event_row *was
    cdef int e = r.event
    cdef int64_t p
    cdef int32_t k = t.later[row]
    cdef cpu_run *run = &t.runs[r.cpu]
    if r.time < t.last_time:
        differ(t, row, D_TIME, -1, t.last_time, r.time)
    t.last_time = r.time
    if run.kind == RUN_REFILL and e != EV_ZONE_LOCKED and e != EV_EXTFRAG:
        run.kind = RUN_NONE
    if k >= 0:
        was = &t.rows[k]
        if was.event == EV_WORK_START:
            p = index_of(t, r.a)
            find_drain(t, set_of(t, p, r.cpu), row)
            tick(t, set_of(t, p, r.cpu), row)
        else:
            p = index_of(t, was.a)
            commit(t, p, <int>was.b, was.cpu, row, row)
    if e == EV_ALLOC:
        reported(t, row)
    elif e == EV_FREE:
        freed(t, row)
    elif e == EV_FREE_BATCHED:
        batched(t, row)
    elif e == EV_ZONE_LOCKED:
        from_buddy(t, row)
    elif e == EV_PCPU_DRAIN:
        drained(t, row)
    elif e == EV_EXTFRAG:
        fallback(t, row)
    elif e == EV_WORK_START:
        if r.a:
            vmstat_update(t, row)
    elif e == EV_FORK:
        forked(t, row)


# -- binding --------------------------------------------------------------------------

_WHAT = {
    D_TIME: "time goes backwards [ns]",
    D_PAGE: "page outside every zone",
    D_NOT_HEAD: "page of an allocation is not at the head of its list",
    D_NOT_LISTED: "page of an allocation is on no list",
    D_REFILL_SIZE: "size of a refill [blocks]",
    D_DRAIN_UNEXPECTED: "drain that was not due [pages]",
    D_DRAIN_MISSING: "drain that was due did not come [pages]",
    D_DRAIN_SIZE: "size of a drain [pages]",
    D_DRAIN_PAGE: "page of a drain",
    D_FREED_TWICE: "page enters the lists that is there already",
    D_BATCHED: "page joins its list without mm_page_free",
    D_TYPE: "migratetype",
    D_LOST_ALLOC: "page left its list and no mm_page_alloc ever tells",
    D_COUNT: "count in /proc/zoneinfo",
    D_HIGH: "high in /proc/zoneinfo",
}
_WHY = {
    E_OVERTAKEN: "taken before, reported later",
    E_LATE: "reported after other pages had joined its list",
    E_IN_FLIGHT: "left the list at another moment than its line says",
    E_MIGRATED: "reported from another CPU",
    E_TRYLOCK: "lists were locked: freed straight to the buddy lists",
    E_DIRECT: "lists were locked: taken straight from the buddy lists",
    E_DELAYED: "freed, but joined its list later",
    E_SILENT: "stack of a new task, taken without a line",
}
_PAGES = {D_PAGE, D_NOT_HEAD, D_NOT_LISTED, D_DRAIN_PAGE, D_FREED_TWICE, D_BATCHED, D_LOST_ALLOC}


cdef class Tracker:
    """The lists of one machine as far as its trace has told of them."""

    cdef tracker t
    cdef dict keep
    cdef list names
    cdef int32_t start

    def __cinit__(self):
        self.keep = {}

    def __dealloc__(self):
        cdef int x
        if self.t.sets != NULL:
            for x in range(self.t.nr_sets):
                free(self.t.sets[x].s)
                free(self.t.sets[x].counts)
        free(self.t.sets)
        free(self.t.runs)
        free(self.t.orders)
        free(self.t.table)
        free(self.t.found)
        free(self.t.unexplained)
        free(self.t.explained)

    cdef void *_room(self, size_t n, size_t size) except NULL:
        cdef void *p = calloc(max(n, 1), size)
        if p == NULL:
            raise MemoryError
        return p

    cdef int32_t *_i32(self, str name, values) except NULL:
        cdef int32_t[::1] view
        self.keep[name] = np.ascontiguousarray(values, np.int32)
        if not len(values):
            self.keep[name] = np.zeros(1, np.int32)
        view = self.keep[name]
        return &view[0]

    cdef int8_t *_i8(self, str name, values) except NULL:
        cdef int8_t[::1] view
        self.keep[name] = np.ascontiguousarray(values, np.int8)
        view = self.keep[name]
        return &view[0]

    def __init__(self, release, int cpus, snapshot, rows, int start, links, block_types, counts):
        """*links*: (chain, own_prev, own_next, next_cpu, forks, forks_of) of the rows.

        *block_types*: migratetype of every block of 512 pages from the first zone's on, -1
        unknown; *counts*: (zone key, cpu) -> pages that the lists may have held at *start*.
        """
        cdef int x, z, i
        cdef const uint8_t[::1] raw
        cdef tracker *t = &self.t
        zones = snapshot.zones
        if len(zones) > MAX_ZONES:
            raise InputError(f"{len(zones)} zones; at most {MAX_ZONES} are replayed")
        t.rules = rules_of(release)
        t.cpus = cpus
        t.nr_zones = len(zones)
        t.nr_sets = len(zones) * cpus
        t.base = min(z.start_pfn for z in zones) & ~511
        t.nr_pages = 512 * len(block_types)
        t.nr_rows = len(rows)
        t.sets = <pageset *>self._room(t.nr_sets, sizeof(pageset))
        t.runs = <cpu_run *>self._room(cpus, sizeof(cpu_run))
        t.unexplained = <note *>self._room(MAX_NOTES, sizeof(note))
        t.explained = <note *>self._room(MAX_NOTES, sizeof(note))
        unset = np.full(t.nr_pages, -1, np.int32)
        t.next = self._i32("next", unset)
        t.prev = self._i32("prev", unset.copy())
        t.where = self._i32("where", np.zeros(t.nr_pages, np.int32))
        t.cursor = self._i32("cursor", unset.copy())
        t.pushed = self._i32("pushed", unset.copy())
        t.status = <uint8_t *>self._i8("status", np.zeros(t.nr_pages, np.int8))
        t.block_type = self._i8("block_type", block_types)
        zone_of = np.full(len(block_types), -1, np.int8)
        for z, zone in enumerate(zones):
            zone_of[(zone.start_pfn - t.base) >> 9:(zone.end_pfn - t.base + 511) >> 9] = z
            if zone.managed:
                t.top_zone = z
        t.zone_of = self._i8("zone_of", zone_of)
        self.keep["rows"] = np.ascontiguousarray(rows)
        if t.nr_rows:
            raw = self.keep["rows"].view(np.uint8)
            t.rows = <const event_row *>&raw[0]
        chain, own_prev, own_next, next_cpu, forks, forks_of = links
        t.chain = self._i32("chain", chain)
        t.own_prev = self._i32("own_prev", own_prev)
        t.own_next = self._i32("own_next", own_next)
        t.next_cpu = self._i32("next_cpu", next_cpu)
        t.forks = self._i32("forks", forks)
        t.forks_of = self._i32("forks_of", forks_of)
        t.stacks = <uint8_t *>self._i8("stacks", np.full(len(forks) + 1, STACK_PAGES, np.int8))
        t.later = self._i32("later", np.full(len(rows), -1, np.int32))
        self.start = start
        self.names = []
        for z, zone in enumerate(zones):
            for cpu in range(cpus):
                x = z * cpus + cpu
                self.names.append(f"node {zone.node} {zone.name} cpu {cpu}")
                t.sets[x].zone = z
                t.sets[x].cpu = cpu
                for i in range(MAX_PCP_LISTS):
                    t.sets[x].head[i] = t.sets[x].tail[i] = -1
                    t.sets[x].open[i] = True
                    t.sets[x].moved[i] = start
                pcp = snapshot.pcps.get((*zone.key, cpu))
                if pcp is None:
                    continue
                t.sets[x].first.count = pcp.count
                t.sets[x].first.batch = max(pcp.batch, 1)
                t.sets[x].first.high = pcp.high
                t.sets[x].first.high_min = pcp.high_min
                t.sets[x].first.high_max = pcp.high_max
                some = counts.get((*zone.key, cpu), [pcp.count])
                t.sets[x].nr_counts = len(some)
                t.sets[x].counts = <int *>self._room(len(some), sizeof(int))
                for i, n in enumerate(some):
                    t.sets[x].counts[i] = n

    def run(self, int32_t start, int32_t stop):
        """Apply the events of rows *start* ... *stop* - 1."""
        cdef int32_t row
        with nogil:
            for row in range(start, stop):
                step(&self.t, row)
        if self.t.broken:
            raise MemoryError

    @property
    def tally(self):
        return self.t.t

    def sets(self):
        """Per pageset: (zone index, cpu, used, row at which one state was left or -1, states).

        A state is (count, high, alloc_factor, free_count, free_factor, flags); only those of
        the fewest assumptions.
        """
        cdef int x, k
        cdef pageset *s
        answer = []
        for x in range(self.t.nr_sets):
            s = &self.t.sets[x]
            least = min([s.s[k].cost for k in range(s.n)], default=0)
            states = [
                (s.s[k].pcp.count, s.s[k].pcp.high, s.s[k].pcp.alloc_factor,
                 s.s[k].pcp.free_count, s.s[k].pcp.free_factor, s.s[k].pcp.flags)
                for k in range(min(s.n, 64)) if s.s[k].cost == least
            ]
            answer.append((s.zone, s.cpu, bool(s.used), s.known_row if s.known else -1, states))
        return answer

    def counts_and_highs(self, int x):
        """(count, high) of every state that a pageset may be in; None if it was never used."""
        cdef int k
        cdef pageset *s = &self.t.sets[x]
        if not s.used:
            return None
        return {(s.s[k].pcp.count, s.s[k].pcp.high) for k in range(s.n)}

    def unlike(self, int x, int32_t row, told, bint high):
        """/proc/zoneinfo tells another count, or another high."""
        cdef int k
        cdef pageset *s = &self.t.sets[x]
        near = min(
            (s.s[k].pcp.high if high else s.s[k].pcp.count for k in range(s.n)),
            key=lambda value: abs(value - told),
        )
        differ(&self.t, row, D_HIGH if high else D_COUNT, x, near, told)

    def list_of(self, int x, int i):
        """Pages known to be on a list, head first; whether others may be below."""
        pages = []
        cdef int32_t p = self.t.sets[x].head[i]
        while p >= 0:
            pages.append(p + self.t.base)
            p = self.t.next[p]
        return pages, bool(self.t.sets[x].open[i])

    def first_lists(self):
        """What the lists held at the start: {(set, pindex): (from the head, from the tail)}."""
        cdef int64_t k
        answer = {}
        for k in range(self.t.nr_found):
            f = self.t.found[k]
            ends = answer.setdefault((f.set, f.pindex), ([], []))
            ends[f.drained].append(f.page + self.t.base)
        return answer

    def notes(self):
        """(unexplained, explained) with their true numbers."""
        from pcpmodel.trace.replay import Difference, Explained

        def where(n):
            return self.names[n["set"]] if n["set"] >= 0 else ""

        bad = [
            Difference(n["line"], _WHAT[n["code"]], where(n),
                       hex(n["want"]) if n["code"] in _PAGES else n["want"],
                       hex(n["got"]) if n["code"] in _PAGES else n["got"])
            for n in [self.t.unexplained[k] for k in range(min(self.t.nr_unexplained, MAX_NOTES))]
        ]
        good = [
            Explained(n["line"], _WHY[n["code"]], where(n), n["evidence"])
            for n in [self.t.explained[k] for k in range(min(self.t.nr_explained, MAX_NOTES))]
        ]
        return bad, self.t.nr_unexplained, good, self.t.nr_explained

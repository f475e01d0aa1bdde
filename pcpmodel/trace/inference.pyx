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
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from pcpmodel.exclusive cimport begin_use, check_idle, end_use
from pcpmodel.kernel.lists cimport (
    MAX_PCP_LISTS,
    lists_in_use,
    order_to_pindex,
    pcp_allowed_order,
    pcp_migratetype,
    pindex_after,
    pindex_may_hold,
    pindex_to_only_type,
    pindex_to_order,
)
from pcpmodel.kernel.pages cimport (
    MIGRATE_ISOLATE,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    PAGE_ALLOC_COSTLY_ORDER,
    ZONE_BELOW_HIGH,
    ZONE_RECLAIM_ACTIVE,
)
from pcpmodel.kernel.pcp cimport (
    commit_goes_on,
    commit_hold,
    decay_hold,
    decay_pcp_high,
    nr_pcp_alloc,
    pcp_alloc_begin,
    pcp_alloc_end,
    pcp_commit_due,
    per_cpu_pages,
    remote_hold,
)
from pcpmodel.kernel.rules cimport pcp_rules, rules_of
from pcpmodel.trace.assumptions cimport *
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport *

import numpy as np

from pcpmodel.errors import InputError

cdef enum:
    MAX_WAITING = 12    # pages of one pageset that may have left already: three stacks
    MAX_BRANCHED = 256  # states above which no further assumption is made
    MAX_TURNS = 2       # of a zone's flags, unlikelier than what is known
    MAX_TURNED = 64     # states above which no turn is assumed
    SETTLED = 64        # up to so many states are merged after each operation
    SELDOM = 16         # more of them after so many operations
    EFFORT = 20_000_000  # states followed after a first difference: 2 s
    STACK_ORDER = 2     # of a task's stack, THREAD_SIZE_ORDER
    STACK_PAGES = 4     # that a new task takes in silence (until v6.18)

    RUN_NONE = 0
    RUN_REFILL = 1
    RUN_DRAIN = 2

# Values that the fields may have: those of ``pcp``, and free_count up to ``span`` more, which all
# have led to the same.
cdef struct state:
    per_cpu_pages pcp
    int span
    int due
    int threshold
    int taken           # bits of the waiting pages that left already
    int cost            # assumptions made
    int zone_flags
    int why             # the last of them (E_*), and the row that proves it
    int32_t told
    bint good

cdef struct waiting_page:
    int32_t page
    int32_t told        # row that tells
    int order
    bint silent

cdef struct pageset:
    int zone
    int cpu
    page_list *list
    bint open[MAX_PCP_LISTS]    # below the known pages there may be others, from before
    int32_t moved[MAX_PCP_LISTS]    # last row of a change
    bint used
    bint cut            # its states are followed no longer
    int rest            # blocks of a drain that are to come, and the list that it began with
    int rest_pindex
    int stack_left      # pages of a stack that come from the refill; -1: nobody knows how many
    int32_t stack_told
    int since_merged    # operations
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
    bint told           # another line explains it
    int32_t last_pfn

cdef struct found_page:
    int32_t page
    int32_t set
    int32_t row
    int8_t pindex
    int8_t drained      # from the tail

# A zone's flags, as far as plain events tell when they may turn.
cdef struct zone_state:
    int may             # flags that may be set now
    int32_t told[3]     # row that lets each be set, by its bit
    int64_t nr_free     # /proc/zoneinfo's, and what moved since [pages]
    int64_t enough      # no watermark test sets ZONE_BELOW_HIGH above [pages]

cdef struct tally:
    int64_t allocations
    int64_t allocations_foreseen
    int64_t allocations_explained
    int64_t allocations_inferred
    int64_t refills
    int64_t refills_foreseen
    int64_t refills_explained
    int64_t refills_inferred
    int64_t drains
    int64_t drains_foreseen
    int64_t drains_explained
    int64_t drains_inferred
    int64_t drained_pages
    int64_t drained_pages_foreseen
    int64_t drained_pages_explained
    int64_t drained_pages_inferred
    int64_t quiet_inferred      # frees and ticks without a drain that told states apart
    int64_t direct_frees
    int64_t direct_allocations
    int64_t silent_pages
    int64_t guessed     # frees into blocks whose type nothing tells

cdef class Tracker(PageLists)


# -- notes ----------------------------------------------------------------------------

cdef void found(Tracker t, int32_t p, int x, int i, bint drained, int32_t row) noexcept nogil:
    """Remember that a page was on a list at the start."""
    cdef void *more
    if t.nr_found == t.found_cap:
        more = realloc(t.found_pages, (2 * t.found_cap + 1024) * sizeof(found_page))
        if more == NULL:
            t.broken = True
            return
        t.found_pages = <found_page *>more
        t.found_cap = 2 * t.found_cap + 1024
    t.found_pages[t.nr_found].page = p
    t.found_pages[t.nr_found].set = x
    t.found_pages[t.nr_found].row = row
    t.found_pages[t.nr_found].pindex = <int8_t>i
    t.found_pages[t.nr_found].drained = drained
    t.nr_found += 1


# -- lists ----------------------------------------------------------------------------

cdef inline void put(Tracker t, int x, int i, int32_t p, int32_t row, bint tail) noexcept nogil:
    t.pagesets[x].moved[i] = row
    push(t, x, i, p, row, tail)


cdef inline void drop(Tracker t, int32_t p, int32_t row) noexcept nogil:
    cdef int place = t.page[p].where - 1
    t.pagesets[place >> 4].moved[place & 15] = row
    unlink_page(t, p)


# -- states ---------------------------------------------------------------------------

cdef bint room(Tracker t, pageset *set, int n) noexcept nogil:
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


cdef void open_states(Tracker t, pageset *set, const per_cpu_pages *like) noexcept nogil:
    """Every value that the fields may have which nobody told."""
    cdef int scale = t.rules.batch_scale_max
    cdef int afs = scale + 1 if t.rules.alloc_scale else 1
    cdef int span = (like.batch << scale) + 7 if t.rules.free_count else 0
    cdef int fcs = span + 1 if t.rules.tree else 1
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
                        v.span = 0 if t.rules.tree else span
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
        and a.taken == b.taken and a.zone_flags == b.zone_flags and a.span == b.span


cdef inline void begin_alloc(Tracker t, state *v) noexcept nogil:
    """pcp_alloc_begin()"""
    cdef int last = v.pcp.free_count + v.span
    pcp_alloc_begin(&v.pcp, &t.rules)
    if v.span:
        v.span = (last >> 1) - v.pcp.free_count


cdef void decide_commit(Tracker t, pageset *set, int order) noexcept nogil:
    """pcp_commit() and what it drains, in every state.

    What depends on free_count depends on it in steps: where its least and its greatest value lead
    to the same, so do those between, and a state that they do not is cut in two.
    """
    cdef int k = 0, due, threshold
    cdef state *v
    cdef per_cpu_pages least, most
    while k < set.n:
        v = &set.s[k]
        least = v.pcp
        v.due = pcp_commit_due(&least, &t.rules, v.zone_flags, order, &v.threshold)
        if v.span:
            most = v.pcp
            most.free_count += v.span
            due = pcp_commit_due(&most, &t.rules, v.zone_flags, order, &threshold)
            most.free_count -= v.span
            if due != v.due or threshold != v.threshold or most.free_count != least.free_count \
                    or most.high != least.high or most.flags != least.flags:
                if not room(t, set, set.n + 1):
                    return
                v = &set.s[k]
                set.s[set.n] = v[0]
                v.span >>= 1
                set.s[set.n].pcp.free_count += v.span + 1
                set.s[set.n].span -= v.span + 1
                set.n += 1
                continue
        v.pcp = least
        k += 1


cdef void merge_states(Tracker t, pageset *set) noexcept nogil:
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
        h ^= ((<uint64_t>v.pcp.count << MAX_WAITING | <uint64_t>v.taken) * 8
              + <uint64_t>v.zone_flags) * <uint64_t>0xC2B2AE3D27D4EB4F
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
            set.s[t.table[h]] = v[0]
    set.n = n


cdef void give_up(Tracker t, int x, int32_t row) noexcept nogil:
    """After a difference, when the search has taken long enough: follow the pages alone."""
    cdef pageset *set = &t.pagesets[x]
    if not set.cut:
        set.cut = True
        t.nr_cut += 1
        if t.cut_row < 0:
            t.cut_row = row
    set.n = 0
    set.nw = 0


cdef void settle(Tracker t, int x, int32_t row) noexcept nogil:
    """Merge; note when one state is left."""
    cdef pageset *set = &t.pagesets[x]
    cdef int k, least = 1 << 30, plain = 0
    if t.nr_unexplained:
        t.effort -= set.n
        if t.effort < 0 and set.n > 1:
            give_up(t, x, row)
            return
    if set.n == 1:
        if set.known:
            return
    elif set.n <= SETTLED or set.since_merged >= SELDOM:
        set.since_merged = 0
        if t.nr_unexplained:
            t.effort -= 8 * set.n
        merge_states(t, set)
    else:
        # Many states: the same ones come seldom.
        set.since_merged += 1
        return
    for k in range(set.n):
        least = min(least, set.s[k].cost)
    for k in range(set.n):
        if set.s[k].cost == least:
            plain += 1 + (set.s[k].span > 0)
    if plain == 1 and not set.known:
        set.known = True
        set.known_row = row


cdef void use(Tracker t, int x) noexcept nogil:
    if not t.pagesets[x].used:
        open_states(t, &t.pagesets[x], &t.pagesets[x].first)


cdef inline bint goes_silently(Tracker t, int32_t q, int32_t row) noexcept nogil:
    """Whether the next that the trace tells of this page is that it is freed."""
    cdef int32_t j = t.page[q].cursor
    return j > row and t.rows[j].event == EV_FREE and t.rows[j].b == 0


cdef void take_early(Tracker t, state *v, const waiting_page *w, int k) noexcept nogil:
    if not w.silent:
        begin_alloc(t, v)
    pcp_alloc_end(&v.pcp, &t.rules, w.order)
    v.taken |= 1 << k
    v.cost += 1
    v.why = E_IN_FLIGHT
    v.told = w.told


cdef void assume(Tracker t, int x, int32_t row) noexcept nogil:
    """Before an operation: pages that may have left already, though the trace tells later.

    A page leaves after those above it, which is what keeps the states few.
    """
    cdef pageset *set = &t.pagesets[x]
    cdef int i, j, k, v, n, m = 0, last
    cdef int32_t q
    cdef int may_go[MAX_WAITING]
    cdef int above[MAX_WAITING]
    cdef bint silent
    if set.cut:
        return
    for i in range(t.rules.nr_pcp_lists):
        q = set.list[i].head
        last = -1
        while q >= 0:
            silent = i < MIGRATE_PCPTYPES and goes_silently(t, q, row)
            if not silent and not in_flight(t, q, row):
                break
            k = 0
            while k < set.nw and set.w[k].page != q:
                k += 1
            if k == MAX_WAITING:
                break
            if k == set.nw:
                set.w[k].page = q
                set.w[k].told = t.page[q].cursor
                set.w[k].order = pindex_to_order(i)
                set.w[k].silent = silent
                set.nw += 1
            may_go[m] = k
            above[m] = last
            m += 1
            last = k
            q = t.page[q].next
    for j in range(m):
        n = set.n
        if n > MAX_BRANCHED or not room(t, set, 2 * n):
            continue
        k = may_go[j]
        for v in range(n):
            if set.s[v].taken >> k & 1 or (above[j] >= 0 and not set.s[v].taken >> above[j] & 1):
                continue
            set.s[set.n] = set.s[v]
            take_early(t, &set.s[set.n], &set.w[k], k)
            set.n += 1


cdef void turn_flags(Tracker t, int x) noexcept nogil:
    """Before a decision: the zone's flags may have turned since the last one."""
    cdef pageset *set = &t.pagesets[x]
    cdef int may = t.zones[set.zone].may, k, v, bit, n = set.n, least = 1 << 30
    cdef state *new
    if not may or set.cut:
        return
    if t.nr_unexplained:
        t.effort -= 4 * n
    for k in range(n):
        least = min(least, set.s[k].cost)
    for k in range(n):
        if set.s[k].cost >= least + MAX_TURNS or set.n + 3 > MAX_TURNED:
            continue
        for v in range(2, 8, 2):
            if v & ~may or not room(t, set, set.n + 1):
                continue
            new = &set.s[set.n]
            new[0] = set.s[k]
            new.zone_flags ^= v
            new.cost += 1
            new.why = E_ZONE_FLAGS
            bit = 1 if v & ZONE_RECLAIM_ACTIVE else 2
            new.told = t.zones[set.zone].told[bit]
            set.n += 1
    set.since_merged = SELDOM
    merge_states(t, set)


cdef void leave_all(
    Tracker t, int x, int32_t p, int32_t row, int order, bint silent
) noexcept nogil:
    """A block has left its list for a caller, in every state; `settle` is to follow."""
    cdef pageset *set = &t.pagesets[x]
    cdef int k, v, at = -1, low
    for k in range(set.nw):
        if set.w[k].page == p:
            at = k
    for v in range(set.n):
        if at >= 0 and set.s[v].taken >> at & 1:
            continue
        if not silent:
            begin_alloc(t, &set.s[v])
        pcp_alloc_end(&set.s[v].pcp, &t.rules, order)
    if at >= 0:
        low = (1 << at) - 1
        for v in range(set.n):
            set.s[v].taken = (set.s[v].taken & low) | (set.s[v].taken >> 1 & ~low)
        set.nw -= 1
        for k in range(at, set.nw):
            set.w[k] = set.w[k + 1]
    if t.page[p].where:
        drop(t, p, row)


cdef void leave(Tracker t, int x, int32_t p, int32_t row, int order, bint silent) noexcept nogil:
    leave_all(t, x, p, row, order, silent)
    settle(t, x, row)


# -- what was seen, and which states say so -------------------------------------------

cdef enum:
    SAID_NONE = 0       # no state says so
    SAID_ALL = 1        # all of the plain states do
    SAID_SOME = 2       # some of them: the others are wrong
    SAID_LATE = 3       # only one with an assumption
    SAID_NOTHING = 4    # nobody is asked any more

cdef int verdict(Tracker t, int x, int32_t row) noexcept nogil:
    """Keep the states that are `good`."""
    cdef pageset *set = &t.pagesets[x]
    cdef int k, n = 0, least = 1 << 30, of_least = 0, good_least = 0, best = 1 << 30
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
                explain(t, row, set.s[k].why, x, set.s[k].told)
                break
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


cdef void reopen(Tracker t, int x, int32_t row) noexcept nogil:
    """After a difference: the fields are unknown again, but for count and high."""
    cdef pageset *set = &t.pagesets[x]
    cdef int k, best = 0
    cdef per_cpu_pages like
    for k in range(set.n):
        if set.s[k].cost < set.s[best].cost:
            best = k
    like = set.s[best].pcp
    for k in range(set.nw):
        if set.s[best].taken >> k & 1:
            like.count += 1 << set.w[k].order
    if t.effort < 0:
        give_up(t, x, row)
    else:
        open_states(t, set, &like)


cdef bint fits(Tracker t, const state *v, bint decays) noexcept nogil:
    """Whether the drain that was seen is the one that a state wants."""
    cdef per_cpu_pages pcp = v.pcp
    cdef int left = v.due, k = 0, hold, n, got
    cdef bint more = True
    if v.due <= 0 or pcp.count <= 0:
        return t.nr_orders == 0
    while more:
        hold = decay_hold(&pcp, &t.rules, left) if decays else commit_hold(&pcp, &t.rules, left)
        n = min(hold, pcp.count)
        got = 0
        while got < n and k < t.nr_orders:
            got += 1 << t.orders[k]
            k += 1
        if got < n:
            return False
        pcp.count -= got
        left -= hold
        if decays:
            more = left > 0 and pcp.count > 0
        else:
            more = commit_goes_on(&pcp, &t.rules, left, v.threshold)
    return k == t.nr_orders


cdef int32_t find_drain(Tracker t, int x, int32_t d, int cpu) noexcept nogil:
    """The blocks of one drain by a CPU, from row *d* on; returns the row after it."""
    cdef int zone = t.pagesets[x].zone
    cdef int64_t p
    cdef const event_row *r
    cdef void *more
    t.nr_orders = 0
    while d > 0:
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
        t.last_drained = d
        d = t.link[d].own_next
    return d


cdef bint gives_a_batch(Tracker t, const state *v) noexcept nogil:
    """Whether the drain that was seen is a decay, and then a batch of a remote pageset."""
    cdef per_cpu_pages pcp = v.pcp
    cdef int due = max(v.due, 0), k = 0, got = 0, n
    while got < due and k < t.nr_orders:
        got += 1 << t.orders[k]
        k += 1
    pcp.count -= got
    n = remote_hold(&pcp, &t.rules)
    if got < due or n <= 0:
        return False
    got = 0
    while got < n and k < t.nr_orders:
        got += 1 << t.orders[k]
        k += 1
    return k == t.nr_orders and got >= n


cdef bint otherwise(Tracker t, int x, int32_t row, bint decays, int seen) noexcept nogil:
    """No state wants the drain of `find_drain`; does what no line announces account for it?"""
    cdef pageset *set = &t.pagesets[x]
    cdef int k
    cdef bint remote = decays and t.node_of_cpu[set.cpu] != t.node_of_zone[set.zone]
    for k in range(set.n):
        if remote:
            set.s[k].good = gives_a_batch(t, &set.s[k])
        else:
            set.s[k].good = set.s[k].due <= 0 and set.s[k].pcp.count == seen
    if verdict(t, x, row) == SAID_NONE:
        return False
    explain(t, t.last_drained if remote else row, E_REMOTE if remote else E_EMPTIED, x,
            row if remote else t.last_drained)
    return True


cdef void hold_drain(Tracker t, int x, int32_t row, bint decays, int pindex,
                     int cpu) noexcept nogil:
    """Compare the drain of `find_drain` with what the states want."""
    cdef pageset *set = &t.pagesets[x]
    cdef cpu_run *run = &t.runs[cpu]
    cdef int k, seen = 0, said, want = 0, last = -1
    cdef bint good = False
    for k in range(t.nr_orders):
        seen += 1 << t.orders[k]
    for k in range(set.n):
        # Most states want the same.
        if set.s[k].due != last or set.s[k].due > 0:
            good = fits(t, &set.s[k], decays)
            last = set.s[k].due
        set.s[k].good = good
    for k in range(set.n):
        if set.s[k].cost == 0:
            want = set.s[k].due
            break
    said = SAID_NOTHING if set.cut else verdict(t, x, row)
    if said == SAID_NONE and t.nr_orders and otherwise(t, x, row, decays, seen):
        said = SAID_LATE
        if not decays:
            pindex = 0
    if t.nr_orders:
        t.tally_.drains += 1
        t.tally_.drains_foreseen += said == SAID_ALL
        t.tally_.drains_explained += said == SAID_LATE
        t.tally_.drains_inferred += said == SAID_SOME
        run.kind = RUN_DRAIN
        run.set = x
        run.pindex = pindex
        run.left = t.nr_orders
        run.told = said == SAID_LATE
        set.rest = t.nr_orders
        set.rest_pindex = pindex
    else:
        t.tally_.quiet_inferred += said == SAID_SOME
    if said == SAID_NONE:
        differ(t, row, D_DRAIN_SIZE if want and seen else D_DRAIN_MISSING if want
               else D_DRAIN_UNEXPECTED, x, want, seen)
        reopen(t, x, row)


# -- operations -----------------------------------------------------------------------

cdef int list_type(Tracker t, int64_t p) noexcept nogil:
    """Migratetype of the list that a freed page goes to, as the trace tells of its block."""
    cdef int mt = t.block_type[p >> 9]
    cdef int32_t j
    if mt < 0:
        j = t.page[p].cursor
        if j and (t.rows[j].event == EV_ALLOC or t.rows[j].event == EV_PCPU_DRAIN) \
                and 0 <= t.rows[j].c < 6:
            mt = <int>t.rows[j].c
            t.block_type[p >> 9] = <int8_t>mt
        else:
            t.tally_.guessed += 1
            return MIGRATE_MOVABLE
    return pcp_migratetype(mt)


cdef void stacks_below(Tracker t, int x, int64_t p, int32_t row) noexcept nogil:
    """Before *p* joins the unmovable list: pages that must have left it in silence by now.

    A list gives what came last, and drains what came first.  A page below *p* whose next line is a
    free has left before *p* came, if *p* is drained, or still there when that line comes.
    """
    cdef int32_t q = t.pagesets[x].list[0].head, j = t.page[p].cursor
    if q < 0 or j <= row or not goes_silently(t, q, row):
        return
    if t.rows[j].event != EV_PCPU_DRAIN and (t.rows[j].event != EV_ALLOC
                                             or j < t.page[q].cursor):
        return
    while q >= 0 and goes_silently(t, q, row):
        q = t.page[q].next
    while t.pagesets[x].list[0].head != q:
        if not stack_of_fork(t, x, 0, q, row):
            return


cdef void commit(Tracker t, int64_t p, int order, int cpu, int32_t row, int32_t d) noexcept nogil:
    """A freed block joins its list; the drain from row *d* on is its own."""
    cdef int x = set_of(t, p, cpu)
    cdef pageset *set = &t.pagesets[x]
    cdef int i = order_to_pindex(t.rules.nr_pcp_lists, list_type(t, p), order)
    if t.page[p].where:
        # A free that was waiting for its task, of a page that has been freed again since.
        differ(t, row, D_FREED_TWICE, (t.page[p].where - 1) >> 4, 0, p + t.base)
        return
    use(t, x)
    if i == 0:
        stacks_below(t, x, p, row)
    assume(t, x, row)
    put(t, x, i, <int32_t>p, row, False)
    t.page[p].status = AWAY
    turn_flags(t, x)
    decide_commit(t, set, order)
    find_drain(t, x, d, cpu)
    hold_drain(t, x, row, False, i, cpu)


cdef void tick(Tracker t, int x, int32_t row) noexcept nogil:
    """decay_pcp_high(); its drain is the one of `find_drain`."""
    cdef pageset *set = &t.pagesets[x]
    cdef int k
    cdef bint work
    use(t, x)
    assume(t, x, row)
    for k in range(set.n):
        set.s[k].due = decay_pcp_high(&set.s[k].pcp, &t.rules, &work)
        set.s[k].threshold = 0
    hold_drain(t, x, row, True, 0, set.cpu)


cdef void vmstat_update(Tracker t, int32_t row) noexcept nogil:
    """The vmstat worker goes through the zones of its CPU."""
    cdef int cpu = t.rows[row].cpu
    cdef int z, k
    cdef int32_t d = t.link[row].own_next, j
    for z in range(t.nr_zones):
        k = z * t.cpus + cpu
        if t.pagesets[k].first.batch <= 0:
            continue
        j = find_drain(t, k, d, cpu)
        if t.nr_orders:
            t.later[d] = row    # when it comes to that row
            d = j
        else:
            tick(t, k, row)


cdef inline int32_t first_from(
    const int32_t *rows, int32_t lo, int32_t hi, int32_t row
) noexcept nogil:
    """The first place of ``rows[lo:hi]``, ascending, that is *row* or a later one; or *hi*."""
    cdef int32_t mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if rows[mid] < row:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef int32_t passed_over(Tracker t, int32_t row) noexcept nogil:
    """The allocation that took what lies below a page freed with *row*, were it on its list; or 0.
    """
    cdef int64_t q = index_of(t, t.rows[row].a)
    cdef int mt = t.block_type[q >> 9] if q >= 0 else -1
    cdef int32_t k
    if not 0 <= mt < MIGRATE_PCPTYPES:
        return 0
    k = first_from(t.passed, 0, t.nr_passed, row)
    if k == t.nr_passed or t.passed[k] != row:
        return 0
    return t.passed_by[MIGRATE_PCPTYPES * k + mt]


cdef bint straight(Tracker t, int64_t p, int32_t row) noexcept nogil:
    """Whether a freed page goes straight to the buddy lists: the interrupted task had the locks.

    The preempt depth shows that locks are held below this interrupt.  What becomes of
    the page shows which, or an allocation that takes what would lie below it; where nothing does,
    the next page of the same interrupt.
    """
    cdef const event_row *r = &t.rows[row]
    cdef int32_t j = t.link[row].chain, k = row
    cdef int _n
    cdef int64_t q
    if not r.flags & IRQ or not r.flags & FL_KNOWN or r.flags & FL_DEPTH < 2:
        return False
    for _n in range(512):
        if j:
            if t.rows[j].event == EV_ZONE_LOCKED or t.rows[j].event == EV_EXTFRAG:
                explain(t, row, E_TRYLOCK, set_of(t, p, r.cpu), j)
                return True
            if t.rows[j].event == EV_PCPU_DRAIN or t.rows[j].event == EV_ALLOC:
                return False
        j = passed_over(t, k)
        if j:
            explain(t, row, E_TRYLOCK, set_of(t, p, r.cpu), j)
            return True
        k = t.link[k].own_next
        if not k or t.rows[k].event != EV_FREE or t.rows[k].flags != r.flags:
            return False
        q = index_of(t, t.rows[k].a)
        if q < 0 or t.zone_of[q >> 9] != t.zone_of[p >> 9]:
            return False
        j = t.link[k].chain
    return False


cdef int32_t fork_between(Tracker t, int cpu, int32_t since, int32_t until,
                          int pages) noexcept nogil:
    """The new task on this CPU whose stack may have pages yet, -1 none; these are its own then."""
    cdef int32_t lo = first_from(t.forks, t.forks_of[cpu], t.forks_of[cpu + 1], since + 1)
    while lo < t.forks_of[cpu + 1] and t.forks[lo] < until:
        if t.stacks[lo] > 0 and t.stacks[lo] >= pages:
            t.stacks[lo] -= <uint8_t>pages
            return lo
        lo += 1
    return -1


cdef bint stack_of_fork(Tracker t, int x, int i, int32_t p, int32_t row) noexcept nogil:
    """Pages above *p* that a new task on this CPU took for its stack without a line; takes them.

    All at once, but where they are the last ones of the list (*p*: -1): the others come from the
    refill that follows.
    """
    cdef pageset *set = &t.pagesets[x]
    cdef int32_t f, k, told, q = set.list[i].head
    cdef int n = 0, most = set.stack_left
    cdef int32_t moved = set.moved[i]
    if i != 0:
        return False
    f = -1
    if most > 0 or (most < 0 and p >= 0):
        told = set.stack_told
        most = most if most > 0 else STACK_PAGES
    else:
        # It is reported once the memory of its parent is copied.
        f = fork_between(t, set.cpu, moved, row + 20000, 0)
        if f < 0:
            return False
        told = t.forks[f]
        most = t.stacks[f]
    while q >= 0 and q != p and n < most:
        k = t.page[q].cursor
        if k and t.rows[k].event != EV_FREE:
            return False
        q = t.page[q].next
        n += 1
    if n == 0 or (n < most and p >= 0 and set.stack_left >= 0):
        return False
    if f >= 0:
        t.stacks[f] = 0
        set.stack_left = most - n
        set.stack_told = told
    else:
        set.stack_left = 0
    while n:
        q = set.list[i].head
        explain(t, row, E_SILENT, x, t.page[q].cursor or told)
        t.page[q].status = AWAY
        t.tally_.silent_pages += 1
        leave(t, x, q, row, 0, True)
        n -= 1
    set.moved[i] = moved
    return True


cdef bint uncover(Tracker t, int x, int i, int32_t p, int32_t row, int32_t since) noexcept nogil:
    """Account for the pages above *p* (all of the list: -1); false if nothing does for one.

    Pages that joined after *since* came after the task that reports now had its own.
    """
    cdef pageset *set = &t.pagesets[x]
    cdef int32_t q = set.list[i].head, above, j
    cdef bint good = True, left = False
    while q >= 0 and q != p:
        above = q
        q = t.page[q].next
        if p >= 0 and t.page[above].pushed > t.page[p].pushed \
                and on_its_way(t, p, t.page[above].pushed):
            # An interrupt came between mm_page_free of *p* and the list.
            explain(t, row, E_DELAYED, x, t.link[t.page[p].pushed].own_next)
            continue
        if above == set.list[i].head and stack_of_fork(t, x, i, p, row):
            q = set.list[i].head
            continue
        if t.page[above].pushed > since:
            continue
        if in_flight(t, above, row):
            explain(t, row, E_OVERTAKEN, x, t.page[above].cursor)
            await_report(t, above, SHOWN, pindex_to_order(i), pindex_to_only_type(i))
            leave_all(t, x, above, row, pindex_to_order(i), False)
            left = True
            continue
        j = t.page[above].pushed
        if on_its_way(t, above, row) and not t.later[t.link[j].own_next]:
            # Its task was stopped between mm_page_free and the list.
            explain(t, row, E_DELAYED, x, t.link[j].own_next)
            drop(t, above, row)
            take_back(t, x, pindex_to_order(i))
            t.later[t.link[j].own_next] = j
            continue
        good = False
        differ(t, row, D_NOT_HEAD if p >= 0 else D_LOST_ALLOC, x, above + t.base, t.rows[row].a)
        leave_all(t, x, above, row, pindex_to_order(i), True)
        left = True
    if left:
        settle(t, x, row)
    return good


cdef void take_back(Tracker t, int x, int order) noexcept nogil:
    """A free that had not happened yet."""
    cdef pageset *set = &t.pagesets[x]
    cdef int k
    for k in range(set.n):
        set.s[k].pcp.count -= 1 << order
        if t.rules.free_count and set.s[k].pcp.free_count >= 1 << order:
            set.s[k].pcp.free_count -= 1 << order


cdef inline void large_asked(Tracker t, int64_t p, int32_t row) noexcept nogil:
    """A watermark test for a large block fails with memory enough, where none is free."""
    cdef zone_state *z = &t.zones[t.zone_of[p >> 9]]
    if t.rules.below_high and not z.may & ZONE_BELOW_HIGH:
        z.may |= ZONE_BELOW_HIGH
        z.told[2] = row


cdef void reported(Tracker t, int32_t row) noexcept nogil:
    """mm_page_alloc."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p
    cdef int order = <int>r.b
    cdef int x, i
    cdef int32_t k
    cdef bint unseen, shown, listed
    cdef int64_t told = t.helped
    cdef pageset *set
    if r.a < 0:
        return
    t.tally_.allocations += 1
    p = index_of(t, r.a)
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    passed(t, p, row)
    if order > PAGE_ALLOC_COSTLY_ORDER:
        large_asked(t, p, row)
    unseen = t.page[p].status == UNSEEN
    if t.page[p].status & 15 == TAKEN or t.page[p].status & 15 == SHOWN:
        shown = t.page[p].status & 15 == SHOWN
        i = t.page[p].status >> 4
        t.page[p].status = <uint8_t>(AWAY | order << 4)
        if i != order:
            differ(t, row, D_ORDER, -1, i, order)
        elif t.page[p].cached >= 0 and t.page[p].cached != r.c:
            differ(t, row, D_TYPE, -1, t.page[p].cached, r.c)
        else:
            t.tally_.allocations_explained += shown
            t.tally_.allocations_foreseen += not shown
        return
    t.page[p].status = <uint8_t>(AWAY | order << 4)
    if t.page[p].where:
        x = (t.page[p].where - 1) >> 4
        i = (t.page[p].where - 1) & 15
        set = &t.pagesets[x]
        if set.cpu != r.cpu:
            k = moved_from(t, row, set.cpu)
            if k:
                explain(t, row, E_MIGRATED, x, k)
            else:
                differ(t, row, D_MIGRATED, x, set.cpu, r.cpu)
        if not pindex_may_hold(i, <int>r.c, order):
            differ(t, row, D_TYPE, x, i, order_to_pindex(t.rules.nr_pcp_lists, <int>r.c, order))
        elif set.list[i].head == p:
            t.tally_.allocations_explained += t.helped != told
            t.tally_.allocations_foreseen += t.helped == told
        elif uncover(t, x, i, <int32_t>p, row, t.link[row].own_prev):
            if set.list[i].head != p:
                explain(t, row, E_LATE, x, t.page[set.list[i].head].pushed)
            t.tally_.allocations_explained += t.helped != told
            t.tally_.allocations_foreseen += t.helped == told
        assume(t, x, row)
        leave(t, x, <int32_t>p, row, order, False)
        return
    listed = pcp_allowed_order(t.rules.nr_pcp_lists, order)
    if not unseen or not listed or r.c >= MIGRATE_PCPTYPES:
        if listed or not unseen:
            differ(t, row, D_NOT_LISTED, -1, 0, r.a)
        return
    x = set_of(t, p, r.cpu)
    i = order_to_pindex(t.rules.nr_pcp_lists, <int>r.c, order)
    set = &t.pagesets[x]
    use(t, x)
    if not set.open[i]:
        differ(t, row, D_NOT_LISTED, x, 0, r.a)
        return
    uncover(t, x, i, -1, row, t.link[row].own_prev)
    t.tally_.allocations_inferred += 1
    found(t, <int32_t>p, x, i, False, row)
    set.moved[i] = row
    assume(t, x, row)
    leave(t, x, <int32_t>p, row, order, False)


cdef void fewer_pages(Tracker t, int x) noexcept nogil:
    """Up to three unknown pages have left."""
    cdef pageset *set = &t.pagesets[x]
    cdef int k, less, n = set.n
    if not room(t, set, STACK_PAGES * n):
        return
    for k in range(n):
        for less in range(1, STACK_PAGES):
            if set.s[k].pcp.count >= less:
                set.s[set.n] = set.s[k]
                set.s[set.n].pcp.count -= less
                set.n += 1
    merge_states(t, set)


cdef void begin_refill(Tracker t, int x, int i, int order, int32_t row) noexcept nogil:
    cdef pageset *set = &t.pagesets[x]
    cdef cpu_run *run = &t.runs[set.cpu]
    cdef int32_t last
    cdef int n = run_length(t, t.rules.fallback, t.rules.nr_pcp_lists, x, i, order, row, &last)
    cdef int k, said, want = 0
    cdef int32_t told = t.link[row].chain
    cdef int64_t before = t.helped
    cdef bint silent = order == 0 and not (told and t.rows[told].event == EV_ALLOC)
    use(t, x)
    uncover(t, x, i, -1, row, t.nr_rows)
    if silent and i == 0 and set.open[i] and not set.cut and fork_between(
            t, set.cpu, row, row + 20000, 0) >= 0:
        # The first pages of its stack may have been there already, and unknown.
        set.stack_left = -1
        set.stack_told = told or row
        fewer_pages(t, x)
    set.open[i] = False
    assume(t, x, row)
    turn_flags(t, x)
    for k in range(set.n):
        if not silent:
            begin_alloc(t, &set.s[k])
        set.s[k].due = nr_pcp_alloc(&set.s[k].pcp, &t.rules, set.s[k].zone_flags, order)
        set.s[k].good = set.s[k].due == n
        if set.s[k].cost == 0:
            want = set.s[k].due
        set.s[k].pcp.count += n << order
        if not silent:
            pcp_alloc_end(&set.s[k].pcp, &t.rules, order)
    said = SAID_NOTHING if set.cut else verdict(t, x, row)
    t.tally_.refills += 1
    t.tally_.refills_foreseen += said == SAID_ALL and t.helped == before
    t.tally_.refills_explained += said == SAID_LATE or (
        said == SAID_ALL and t.helped != before)
    t.tally_.refills_inferred += said == SAID_SOME
    run.kind = RUN_REFILL
    run.set = x
    run.pindex = i
    run.left = n
    if said == SAID_NONE:
        differ(t, row, D_REFILL_SIZE, x, want, n)
        reopen(t, x, row)
    run.told = said == SAID_LATE or t.helped != before
    if not silent:
        run.left = -n   # the first page goes to the caller


cdef void from_buddy(Tracker t, int32_t row) noexcept nogil:
    """mm_page_alloc_zone_locked, or an extfrag whose page has no zone_locked of its own."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef int cpu = r.cpu
    cdef int order = <int>r.b
    cdef int mt = <int>r.c
    cdef cpu_run *run = &t.runs[cpu]
    cdef int x, i
    cdef bint direct
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    passed(t, p, row)
    move_free(t, p, -(<int64_t>1 << order), row)
    run.last_pfn = <int32_t>p
    await_report(t, p, TAKEN, order, mt if mt < MIGRATE_PCPTYPES else -1)
    if t.page[p].where:
        x = (t.page[p].where - 1) >> 4
        differ(t, row, D_FREED_TWICE, x, 0, r.a)
        leave(t, x, <int32_t>p, row, pindex_to_order((t.page[p].where - 1) & 15), True)
    if not pcp_allowed_order(t.rules.nr_pcp_lists, order) or r.c >= MIGRATE_PCPTYPES:
        t.tally_.direct_allocations += 1
        return
    x = set_of(t, p, cpu)
    i = order_to_pindex(t.rules.nr_pcp_lists, <int>r.c, order)
    if run.kind != RUN_REFILL or run.set != x or run.pindex != i or run.left == 0:
        if r.flags & FL_KNOWN:
            # Under the locks of the lists and of the zone the preempt depth is 3 more.
            direct = (r.flags & FL_DEPTH) < 3
        else:
            direct = t.pagesets[x].list[i].head >= 0
        if direct:
            t.page[p].status = <uint8_t>(SHOWN | order << 4)
            t.tally_.direct_allocations += 1
            explain(t, row, E_DIRECT, x, t.link[row].chain or row)
            return
        begin_refill(t, x, i, order, row)
    if run.left < 0:
        run.left = -run.left - 1
        if run.told:
            t.page[p].status = <uint8_t>(SHOWN | order << 4)
        return
    run.left -= 1
    t.page[p].status = AWAY
    put(t, x, i, <int32_t>p, row, True)


cdef bint taken_by_then(Tracker t, int32_t q, int32_t row) noexcept nogil:
    """Whether a task took this page before what lies above it came, and reports it after *row*."""
    cdef int32_t above = t.page[q].prev
    return in_flight(t, q, row) and (
        above < 0 or t.page[above].pushed > t.link[t.page[q].cursor].own_prev
        or in_flight(t, above, row))


cdef inline bint drained_type(Tracker t, int64_t p, int i, const event_row *r) noexcept nogil:
    """Whether a drain tells the migratetype of the block, or (until v6.9) that of the list."""
    if t.rules.drain_block_type:
        return t.block_type[p >> 9] < 0 or t.block_type[p >> 9] == r.c
    return pindex_may_hold(i, pcp_migratetype(<int>r.c), <int>r.b)


cdef void drained(Tracker t, int32_t row) noexcept nogil:
    """mm_page_pcpu_drain."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef cpu_run *run = &t.runs[r.cpu]
    cdef pageset *set
    cdef int32_t q
    cdef int i, x, k, _k, order = <int>r.b, mt
    cdef bint unseen
    t.tally_.drained_pages += 1
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    unseen = t.page[p].status == UNSEEN
    t.page[p].status = AWAY
    passed(t, p, row)
    move_free(t, p, <int64_t>1 << order, row)
    if run.kind != RUN_DRAIN or run.left <= 0:
        x = (t.page[p].where - 1) >> 4 if t.page[p].where else set_of(t, p, r.cpu)
        use(t, x)
        if t.pagesets[x].rest > 0:
            # Its task was stopped between two holds of the lock.
            run.kind = RUN_DRAIN
            run.set = x
            run.pindex = t.pagesets[x].rest_pindex
            run.left = t.pagesets[x].rest
        else:
            # Nothing here made it: one note for all its pages.
            for k in range(t.pagesets[x].n):
                t.pagesets[x].s[k].due = 0
            find_drain(t, x, row, r.cpu)
            hold_drain(t, x, row, False, 0, r.cpu)
    run.left -= 1
    set = &t.pagesets[run.set]
    set.rest -= 1
    mt = pcp_migratetype(<int>r.c)
    i = run.pindex
    for _k in range(t.rules.nr_pcp_lists):
        while set.list[i].tail >= 0 and not set.open[i] and set.list[i].tail != p \
                and taken_by_then(t, set.list[i].tail, row):
            # An interrupt drains before the task below it reports.
            q = set.list[i].tail
            explain(t, row, E_OVERTAKEN, run.set, t.page[q].cursor)
            await_report(t, q, SHOWN, pindex_to_order(i), pindex_to_only_type(i))
            leave(t, run.set, q, row, pindex_to_order(i), False)
        if set.list[i].tail >= 0 and not set.open[i]:
            break
        if set.open[i]:
            if unseen and not t.page[p].where and pindex_may_hold(i, mt, order):
                break
            # What it drains now was not there before: below that page there is nothing.
            set.open[i] = False
            if set.list[i].tail >= 0:
                break
        i = pindex_after(t.rules.nr_pcp_lists, i)
    run.pindex = i
    if set.open[i]:
        t.tally_.drained_pages_inferred += 1
        found(t, <int32_t>p, run.set, i, True, row)
        set.moved[i] = row
    else:
        q = set.list[i].tail
        if q == p and not drained_type(t, p, i, r):
            differ(t, row, D_TYPE, run.set, t.block_type[p >> 9], r.c)
        elif q == p:
            t.tally_.drained_pages_explained += run.told
            t.tally_.drained_pages_foreseen += not run.told
        else:
            differ(t, row, D_DRAIN_PAGE, run.set, q + t.base if q >= 0 else -1, r.a)
    for k in range(set.n):
        set.s[k].pcp.count -= 1 << order
    if t.page[p].where:
        drop(t, <int32_t>p, row)
    if t.rules.drain_block_type:
        t.block_type[p >> 9] = <int8_t>r.c


cdef void fallback(Tracker t, int32_t row) noexcept nogil:
    """mm_page_alloc_extfrag."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    claim_blocks(t, p, r)
    if t.rules.fallback == 0 or t.runs[r.cpu].last_pfn == p:
        passed(t, p, row)
        return
    from_buddy(t, row)


cdef int joins_with(Tracker t, int64_t p, int32_t row, int32_t *told) noexcept nogil:
    """Order of the block that a page is the first of, if v7.2 gives its pages back together.

    vfree() prepares all pages (mm_page_free, each of order 0) before the first one joins a list.
    That the pages are one block then tells the line that allocated it, or the next one about it.
    0: not so; ``told``: that line, -1 if it came before.
    """
    cdef int order = t.page[p].status >> 4, k
    cdef bint never = False
    cdef int32_t j = row
    cdef int32_t then = t.link[row].chain
    if t.rows[row].b != 0 or t.rows[row].flags & IRQ or p & 1:
        return 0
    told[0] = -1
    if t.page[p].status & 15 != AWAY or order == 0:
        if not then and t.workers[t.rows[row].comm]:
            # vfree() of a stack is put off to a worker; no line tells of them one by one.
            order = STACK_ORDER
            never = True
        elif then and (t.rows[then].event == EV_ALLOC
                       or t.rows[then].event == EV_PCPU_DRAIN):
            order = <int>t.rows[then].b
            told[0] = then
    if order < 1 or order > 9 or p & ((1 << order) - 1):
        return 0
    for k in range(1, 1 << order):
        j = t.link[j].own_next
        if not j or t.rows[j].event != EV_FREE or t.rows[j].b != 0 \
                or t.rows[j].a != t.rows[row].a + k or t.rows[j].cpu != t.rows[row].cpu \
                or t.link[j].then == EV_FREE_BATCHED or (never and t.link[j].chain):
            return 0
    return order


cdef void freed(Tracker t, int32_t row) noexcept nogil:
    """mm_page_free."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef int32_t j = t.link[row].chain, d = t.link[row].own_next
    cdef int32_t f, told, moved
    cdef int x, i, order
    cdef int64_t k
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    t.page[p].cursor = row
    if t.page[p].where:
        # It left its list without a line: as part of a stack, or not at all.
        x = (t.page[p].where - 1) >> 4
        i = (t.page[p].where - 1) & 15
        f = fork_between(t, t.pagesets[x].cpu, t.page[p].pushed, row, 1) if i == 0 else -1
        if f >= 0:
            explain(t, row, E_SILENT, x, t.forks[f])
            t.tally_.silent_pages += 1
        else:
            differ(t, row, D_FREED_TWICE, x, 0, r.a)
        moved = t.pagesets[x].moved[i]
        leave(t, x, <int32_t>p, row, pindex_to_order(i), True)
        if f >= 0:
            t.pagesets[x].moved[i] = moved  # it left at some time before
    if t.page[p].status & 15 == TAKEN or t.page[p].status & 15 == SHOWN:
        differ(t, row, D_LOST_ALLOC, -1, 0, r.a)
    t.page[p].cursor = j
    order = 0
    if t.rules.free_coalesce:
        if t.page[p].status & 15 == TOGETHER:
            order = t.page[p].status >> 4
            t.page[p].status = AWAY
            k = (<int64_t>1 << order) - 1
            if p & k == k:
                # All of them are prepared: now the block joins its list.
                p &= ~k
                if pcp_allowed_order(t.rules.nr_pcp_lists, order):
                    commit(t, p, order, r.cpu, row, d)
            return
        order = joins_with(t, p, row, &told)
    t.page[p].status = AWAY
    if order:
        if told >= 0:
            explain(t, row, E_TOGETHER, set_of(t, p, r.cpu), told)
        for k in range(<int64_t>1 << order):
            t.page[p + k].status = <uint8_t>(TOGETHER | order << 4)
    elif t.link[row].then == EV_FREE_BATCHED:
        t.page[p].status = <uint8_t>(FREED | r.b << 4)
    elif not pcp_allowed_order(t.rules.nr_pcp_lists, <int>r.b):
        move_free(t, p, <int64_t>1 << r.b, row)
    elif straight(t, p, row):
        t.tally_.direct_frees += 1
    elif d and d != t.link[row].next_cpu and t.rows[d].event == EV_PCPU_DRAIN and not t.later[d]:
        # Its task was stopped, and may have been moved, before the page joined a list.
        t.later[d] = row
    else:
        commit(t, p, <int>r.b, r.cpu, row, d)


cdef void batched(Tracker t, int32_t row) noexcept nogil:
    """mm_page_free_batched: the page joins its list now."""
    cdef const event_row *r = &t.rows[row]
    cdef int64_t p = index_of(t, r.a)
    cdef int order
    if p < 0:
        differ(t, row, D_PAGE, -1, 0, r.a)
        return
    passed(t, p, row)
    order = t.page[p].status >> 4
    if t.page[p].status & 15 != FREED or not pcp_allowed_order(t.rules.nr_pcp_lists, order):
        differ(t, row, D_BATCHED, -1, 0, r.a)
        order = 0
    if t.page[p].where:
        return
    commit(t, p, order, r.cpu, row, t.link[row].own_next)


cdef void forked(Tracker t, int32_t row) noexcept nogil:
    """A new task: its stack may have come from what is not known of the list."""
    cdef int x = t.top_zone * t.cpus + t.rows[row].cpu, k, n
    cdef pageset *set = &t.pagesets[x]
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


cdef void move_free(Tracker t, int64_t p, int64_t pages, int32_t row) noexcept nogil:
    """So many pages joined the free lists of a zone, or left them."""
    cdef zone_state *z = &t.zones[t.zone_of[p >> 9]]
    z.nr_free += pages
    if not t.rules.below_high or z.nr_free > z.enough:
        return
    if not z.may & ZONE_BELOW_HIGH:
        z.may |= ZONE_BELOW_HIGH
        z.told[2] = row


cdef void kswapd(Tracker t, int32_t row, bint wakes) noexcept nogil:
    """The kswapd of a node wakes, or goes to sleep for good."""
    cdef int x, k
    for x in range(t.nr_sets):
        if t.rows[row].c >= 0 and t.rows[row].c != t.node_of_zone[t.pagesets[x].zone]:
            continue
        if wakes:
            t.zones[t.pagesets[x].zone].may |= ZONE_RECLAIM_ACTIVE
            t.zones[t.pagesets[x].zone].told[1] = row
        else:
            t.zones[t.pagesets[x].zone].may &= ~ZONE_RECLAIM_ACTIVE
            for k in range(t.pagesets[x].n):
                t.pagesets[x].s[k].zone_flags &= ~ZONE_RECLAIM_ACTIVE


cdef void step(Tracker t, int32_t row) noexcept nogil:
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
    if k:
        was = &t.rows[k]
        if was.event == EV_WORK_START:
            p = index_of(t, r.a)
            find_drain(t, set_of(t, p, r.cpu), row, r.cpu)
            tick(t, set_of(t, p, r.cpu), row)
        else:
            p = index_of(t, was.a)
            commit(t, p, <int>was.b, r.cpu, row, row)
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
    elif e == EV_KSWAPD_WAKE or e == EV_KSWAPD_SLEEP:
        kswapd(t, row, e == EV_KSWAPD_WAKE)


# -- binding --------------------------------------------------------------------------

cdef class Tracker(PageLists):
    """The lists of one machine as far as its trace has told of them."""

    cdef pcp_rules rules
    cdef pageset *pagesets
    cdef zone_state zones[MAX_ZONES]
    cdef cpu_run *runs
    cdef int32_t *later         # row -> row of a free that joins its list only then
    cdef const int32_t *passed      # rows of frees, ascending
    cdef const int32_t *passed_by   # of each by type: row of an allocation that took what lay below
    cdef int32_t nr_passed
    cdef uint8_t *workers       # index of a task's name -> whether it is a kworker's
    cdef const int32_t *forks       # rows of new tasks, by CPU
    cdef const int32_t *forks_of    # cpus + 1 places in it
    cdef uint8_t *stacks            # pages that each of them may still have taken in silence
    cdef int top_zone           # where stacks come from
    cdef tally tally_
    cdef uint8_t *orders        # of a drain's blocks
    cdef int nr_orders
    cdef int32_t last_drained   # its last row
    cdef int orders_cap
    cdef int *node_of_cpu
    cdef int *node_of_zone
    cdef int32_t *table
    cdef int table_cap
    cdef bint broken
    cdef int64_t effort     # states that may still be followed after a first difference
    cdef readonly int nr_cut    # pagesets that are not followed for that; the first time: cut_row
    cdef readonly int32_t cut_row
    cdef found_page *found_pages
    cdef int64_t nr_found
    cdef int64_t found_cap

    def __dealloc__(self):
        cdef int x
        if self.pagesets != NULL:
            for x in range(self.nr_sets):
                free(self.pagesets[x].s)
                free(self.pagesets[x].counts)
        free(self.pagesets)
        free(self.runs)
        free(self.later)
        free(self.workers)
        free(self.stacks)
        free(self.orders)
        free(self.node_of_cpu)
        free(self.node_of_zone)
        free(self.table)
        free(self.found_pages)

    cdef const int32_t *_kept(self, values) except NULL:
        cdef const int32_t[::1] view
        self.keep.append(np.append(values, 0).astype(np.int32))
        view = self.keep[-1]
        return &view[0]

    def __cinit__(self, release, int cpus, snapshot, rows, int start, forks, forks_of, counts,
                  enough, workers):
        """*forks*, *forks_of*: rows of new tasks by CPU, and every CPU's place in them.

        *counts*: (zone key, cpu) -> pages that the lists may have held at *start*.  *enough*: of
        each zone, free pages above which ZONE_BELOW_HIGH is not set.  *workers*: indices of the
        names of kworkers.
        """
        cdef int x, z, i
        self.set_up(cpus, snapshot.zones, rows)
        if len(forks_of) != cpus + 1 or np.any(np.diff([0, *forks_of, len(forks)]) < 0) \
                or np.any(np.less(forks, 0)) or np.any(np.greater_equal(forks, self.nr_rows)):
            raise InputError("forks are not rows by CPU")
        self.follow_rows(0)
        self.effort = EFFORT
        self.cut_row = -1
        self.rules = rules_of(release)
        if not self.rules.drain_by_list:
            raise InputError(
                f"release={release}: its drains take turns of the lists, which cannot be followed "
                f"without a dump of the lists before the trace; allowed: releases from v5.18 on"
            )
        self.rules.nr_pcp_lists = lists_in_use(self.rules.nr_pcp_lists)
        self.pagesets = <pageset *>self.room(self.nr_sets, sizeof(pageset))
        self.runs = <cpu_run *>self.room(cpus, sizeof(cpu_run))
        self.later = <int32_t *>self.room(self.nr_rows, sizeof(int32_t))
        self.node_of_cpu = <int *>self.room(cpus, sizeof(int))
        self.node_of_zone = <int *>self.room(self.nr_zones, sizeof(int))
        nodes = max(zone.node for zone in snapshot.zones) + 1
        for cpu in range(cpus):
            self.node_of_cpu[cpu] = cpu * nodes // cpus
        self.workers = <uint8_t *>self.room(1 << 16, 1)
        for i in workers:
            if not 0 <= i < 1 << 16:
                raise InputError(f"{i} is no index of a name")
            self.workers[i] = 1
        self.forks = self._kept(forks)
        self.forks_of = self._kept(forks_of)
        self.stacks = <uint8_t *>self.room(len(forks), 1)
        for i in range(len(forks)):
            self.stacks[i] = STACK_PAGES
        for z, zone in enumerate(snapshot.zones):
            self.node_of_zone[z] = zone.node
            self.zones[z].nr_free = zone.nr_free
            self.zones[z].enough = enough[z]
            if zone.managed:
                self.top_zone = z
            for cpu in range(cpus):
                x = z * cpus + cpu
                self.pagesets[x].list = &self.lists[16 * x]
                self.pagesets[x].zone = z
                self.pagesets[x].cpu = cpu
                for i in range(MAX_PCP_LISTS):
                    self.pagesets[x].open[i] = True
                    self.pagesets[x].moved[i] = start
                pcp = snapshot.pcps.get((*zone.key, cpu))
                if pcp is None:
                    continue
                self.pagesets[x].first.count = pcp.count
                self.pagesets[x].first.batch = max(pcp.batch, 1)
                self.pagesets[x].first.high = pcp.high
                self.pagesets[x].first.high_min = pcp.high_min
                self.pagesets[x].first.high_max = pcp.high_max
                some = counts.get((*zone.key, cpu), [pcp.count])
                self.pagesets[x].nr_counts = len(some)
                self.pagesets[x].counts = <int *>self.room(len(some), sizeof(int))
                for i, n in enumerate(some):
                    self.pagesets[x].counts[i] = n

    def run(self, int32_t start, int32_t stop):
        """Apply the events of rows *start* ... *stop* - 1."""
        cdef int32_t row
        check_idle(self)
        self.pass_rows(start, stop)
        begin_use(self)
        with nogil:
            for row in range(start, stop):
                step(self, row)
        end_use(self)
        if self.broken:
            raise MemoryError

    def resize(self, int x, int batch, int high_min, int high_max):
        """zone_set_pageset_high_and_batch() for one CPU."""
        cdef pageset *set = &self.pagesets[self.check_set(x)]
        cdef int k
        check_idle(self)
        resize_pcp(&set.first, self.rules.high_min_max, batch, high_min, high_max, -1)
        for k in range(set.n):
            resize_pcp(&set.s[k].pcp, self.rules.high_min_max, batch, high_min, high_max, -1)

    def next_of_page(self):
        """Row -> the next row about the same page, 0 none."""
        cdef size_t size = self.nr_rows * sizeof(row_link)
        check_idle(self)
        raw = (<char *>self.link)[:size] if size else b""
        return np.frombuffer(raw, np.int32).reshape(-1, sizeof(row_link) // 4)[:, 0]

    def set_block_types(self, const int8_t[::1] types):
        """Migratetype of every block of 512 pages from the first zone's on, -1 unknown."""
        cdef Py_ssize_t b
        if types.shape[0] > self.nr_pages >> 9:
            raise InputError(f"{types.shape[0]} types of {self.nr_pages >> 9} blocks")
        check_idle(self)
        for b in range(types.shape[0]):
            if not -1 <= types[b] <= MIGRATE_ISOLATE:
                raise InputError(f"block {b}: {types[b]} is no migratetype")
            self.block_type[b] = types[b]

    def set_passed_over(self, freed, taken):
        """Rows of frees, ascending, and by type of list allocations that took what lay below."""
        for name, values in (("frees", freed), ("allocations", taken)):
            if np.any(np.less(values, 0)) or np.any(np.greater_equal(values, self.nr_rows)):
                raise InputError(f"{name} are not rows")
        if np.shape(taken) != (len(freed), MIGRATE_PCPTYPES) or np.any(np.diff(freed) <= 0):
            raise InputError(f"{len(freed)} frees, allocations of {np.shape(taken)}")
        check_idle(self)
        self.passed, self.passed_by = self._kept(freed), self._kept(np.ravel(taken))
        self.nr_passed = len(freed)

    @property
    def tally(self):
        return self.tally_

    def sets(self):
        """Per pageset: (zone index, cpu, used, row at which one state was left or -1, states).

        A state is (count, high, alloc_factor, free_count, free_factor, flags); only those of
        the fewest assumptions.
        """
        cdef int x, k
        cdef pageset *s
        check_idle(self)
        answer = []
        for x in range(self.nr_sets):
            s = &self.pagesets[x]
            least = min([s.s[k].cost for k in range(s.n)], default=0)
            states = [
                (s.s[k].pcp.count, s.s[k].pcp.high, s.s[k].pcp.alloc_factor,
                 s.s[k].pcp.free_count, s.s[k].pcp.free_factor, s.s[k].pcp.flags)
                for k in range(min(s.n, 64)) if s.s[k].cost == least
            ]
            answer.append((s.zone, s.cpu, bool(s.used), s.known_row if s.known else -1, states))
        return answer

    def counts_and_highs(self, int x):
        """(count, high) of every state that a pageset may be in; None if it is not followed."""
        cdef int k
        cdef pageset *s = &self.pagesets[self.check_set(x)]
        check_idle(self)
        if not s.used or s.cut:
            return None
        return {(s.s[k].pcp.count, s.s[k].pcp.high) for k in range(s.n)}

    def unlike(self, int x, int32_t row, told, bint high):
        """/proc/zoneinfo tells another count, or another high."""
        cdef int k
        cdef pageset *s = &self.pagesets[self.check_set(x)]
        if not 0 <= row < self.nr_rows:
            raise IndexError(f"row {row} is outside 0..{self.nr_rows - 1}")
        check_idle(self)
        near = min(
            (s.s[k].pcp.high if high else s.s[k].pcp.count for k in range(s.n)),
            key=lambda value: abs(value - told), default=-1,
        )
        differ(self, row, D_TOLD_HIGH if high else D_TOLD_COUNT, x, near, told)

    def list_of(self, int x, int i):
        """Pages known to be on a list, head first; whether others may be below."""
        return PageLists.list_of(self, x, i), bool(self.pagesets[x].open[i])

    def first_lists(self):
        """What the lists held at the start: {(set, pindex): (from the head, from the tail)}."""
        cdef int64_t k
        check_idle(self)
        answer = {}
        for k in range(self.nr_found):
            f = self.found_pages[k]
            ends = answer.setdefault((f.set, f.pindex), ([], []))
            ends[f.drained].append(f.page + self.base)
        return answer

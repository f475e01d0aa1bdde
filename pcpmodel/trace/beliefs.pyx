# cython: auto_pickle=False, autotestdict=False
"""What is known of every pageset: the states that it may be in, and how it came to them.

A dump of the lists starts with one state, `/proc/zoneinfo` alone with all values of the fields that
it does not print.  What is done to a pageset is done in every state; what a line shows (a probe's
fields, the size of a refill, a drain or none) is asked of every one, and those that say otherwise
are dropped.  Where none is left, `search` goes through what was done again.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.limits cimport INT_MAX
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from pcpmodel.kernel.lists cimport lists_in_use
from pcpmodel.kernel.pages cimport ZONE_BELOW_HIGH, ZONE_RECLAIM_ACTIVE
from pcpmodel.kernel.pcp cimport commit_goes_on, commit_hold, decay_hold
from pcpmodel.kernel.rules cimport rules_of
from pcpmodel.trace.assumptions cimport E_HIDDEN, E_HIGH_MAX, E_SILENT
from pcpmodel.trace.events cimport *

import numpy as np

cdef enum:
    SELDOM = 16         # more of them after so many operations
    CHEAP = 4           # operations that cost what a state of a search does; of ends twice that
    CUT_COSTS = 8       # ... that cutting one in two does, which stays in memory
    MAX_KINDS = 256     # of states that go the same way
    AROUND = 4          # pages by which count may be off after a difference
    LOOKED_AT = 64      # states, for whether high may be at its greatest


# -- states --------------------------------------------------------------------------

cdef bint room(Beliefs s, state **states, int64_t *cap, int n) noexcept nogil:
    if not has_room(<void **>states, cap, n, sizeof(state)):
        s.broken = True
    return n <= cap[0]


cdef bint commit_free(
    const pcp_rules *r, state *v, int order, bint quiet, state *other
) noexcept nogil:
    """pcp_commit() and what it drains; or true, and *v* is cut in two, *other* the second half.

    What depends on free_count depends on it in steps: where its least and its greatest value lead
    to the same, so do those between, and one that is as large as it gets is met by the next smaller
    one.  Where both drain, so do all between: if nothing did (*quiet*) it does not matter how much
    each of them would, as none of them is to stay.
    """
    cdef int due, threshold, span
    cdef per_cpu_pages least = v.pcp, most
    v.due = pcp_commit_due(&least, r, v.zone_flags, order, &v.threshold)
    if v.span:
        most = v.pcp
        most.free_count += v.span
        due = pcp_commit_due(&most, r, v.zone_flags, order, &threshold)
        span = most.free_count - least.free_count
        if quiet and v.due > 0 and due > 0:
            pass
        elif due != v.due or threshold != v.threshold or most.high != least.high \
                or most.flags != least.flags or span != v.span and (order or span < 0):
            other[0] = v[0]
            v.span >>= 1
            other.pcp.free_count += v.span + 1
            other.span -= v.span + 1
            return True
        else:
            v.span = span
    v.pcp = least
    return False


cdef int take_blocks(Beliefs s, int pages, int *k) noexcept nogil:
    """Pages of the blocks from ``k`` on of the drain of `find_drain` that are at least so many, or
    all that there are."""
    cdef int got = 0
    while got < pages and k[0] < s.nr_orders:
        got += 1 << s.orders[k[0]]
        k[0] += 1
    return got


cdef int blocks_drained(Beliefs s, const state *v, bint decays, int cut=0) noexcept nogil:
    """How many blocks of the drain of `find_drain` are the one that a state wants, all its holds
    together; -1: there are too few.  *cut*: it may end with any of them; AT_ALL: or within."""
    cdef per_cpu_pages pcp = v.pcp
    cdef int left = v.due, k = 0, hold, n, got
    cdef bint more = v.due > 0 and pcp.count > 0
    while more:
        hold = decay_hold(&pcp, &s.rules, left) if decays else commit_hold(&pcp, &s.rules, left)
        n = min(hold, pcp.count)
        got = take_blocks(s, n, &k)
        if cut and k > 0 and got == 0:
            return k
        if got < n or hold <= 0:
            return k if cut == AT_ALL and k == s.nr_orders else -1
        pcp.count -= got
        left -= hold
        if decays:
            more = left > 0 and pcp.count > 0
        else:
            more = commit_goes_on(&pcp, &s.rules, left, v.threshold)
    return k


cdef inline int owner(Beliefs s, int64_t p, int32_t row, int x) noexcept nogil:
    """The pageset that has a page at a later row; *x* if nobody tells."""
    cdef int32_t k = s.page[p].cursor, then
    if k == row or k > row or k == 0:
        return (s.page[p].where - 1) >> 4 if s.page[p].where else x
    while True:
        then = s.link[k].chain
        if s.rows[k].event == EV_FREE_CONTIG:
            then = s.spans[then + p - page_of(s, &s.rows[k])]
        if not 0 < then < row:
            return set_of(s, p, s.rows[k].cpu)
        k = then


cdef int32_t find_drain(Beliefs s, int x, int32_t row, int cpu, int32_t last=0) noexcept nogil:
    """The blocks of one drain by a CPU, from *row* on; returns the row after it.

    *last*: its last row, if that was found before; the pages were on their lists then.
    """
    cdef int zone = s.sets[x].zone
    cdef int64_t p
    cdef const event_row *r
    s.orders_row = row
    s.nr_orders = 0
    while row > 0:
        r = &s.rows[row]
        if r.event != EV_PCPU_DRAIN or r.cpu != cpu:
            break
        p = index_of(s, r.a)
        if not last and (p < 0 or s.zone_of[p >> 9] != zone or owner(s, p, row, x) != x):
            break   # of other lists
        if not has_room(<void **>&s.orders, &s.orders_cap, s.nr_orders + 1, 1):
            s.broken = True
            break
        s.orders[s.nr_orders] = <uint8_t>min(max(r.b, 0), 10)
        s.nr_orders += 1
        s.last_drained = row
        row = s.link[row].own_next
        if s.last_drained == last:
            break
    return row


cdef bint decided(Beliefs s, int x, const state *v, const operation *e) noexcept nogil:
    """Whether an operation went in a state as the trace shows that it did."""
    if e.op == OP_REFILL:
        return v.due == e.got or (e.cut and v.due > e.got)
    if e.op == OP_EMPTIED:
        return v.due == 0
    if (e.op != OP_FREE and e.op != OP_TICK) or e.got == UNDECIDED:
        return True
    if e.got == NO_DRAIN:
        return v.due <= 0 or v.pcp.count <= 0
    if s.orders_row != e.got:
        find_drain(s, x, e.got, s.rows[e.got].cpu, e.since)
    return blocks_drained(s, v, e.op == OP_TICK, e.cut) == s.nr_orders


cdef bint clear_table(Beliefs s, int n) noexcept nogil:
    """A table for so many states."""
    s.slots = 16
    while s.slots < 3 * n:
        s.slots *= 2
    if not has_room(<void **>&s.table, &s.table_cap, s.slots, sizeof(int32_t)):
        s.broken = True
        return False
    memset(s.table, 255, s.slots * sizeof(int32_t))
    return True


cdef inline bint is_new(Beliefs s, const pageset *set, const state *v, int n) noexcept nogil:
    """Whether a state is not in the table, which it is then, as number *n*."""
    cdef uint64_t h = hash_of(v) & (s.slots - 1)
    while s.table[h] >= 0:
        if same_state(&set.s[s.table[h]], v):
            return False
        h = (h + 1) & (s.slots - 1)
    s.table[h] = n
    return True


cdef void merge_states(Beliefs s, pageset *set) noexcept nogil:
    """States that have become the same are one."""
    cdef int k, n = 0
    if not clear_table(s, set.n):
        return
    for k in range(set.n):
        if is_new(s, set, &set.s[k], n):
            set.s[n] = set.s[k]
            n += 1
    set.n = n


cdef inline bint alike(const state *a, const state *b) noexcept nogil:
    """Whether two states differ in their counts alone."""
    cdef state v = a[0]
    v.pcp.count, v.pcp.count_min = b.pcp.count, b.pcp.count_min
    return same_state(&v, b)


cdef void fold(Beliefs s, pageset *set) noexcept nogil:
    """Of states that differ in their counts alone follow those with the least and the greatest.

    Nobody tells how many pages the lists held at the start until they drain.  What the rules ask of
    count (pcp_commit() ... nr_pcp_alloc()) is whether it is above something: where both ends come
    to the same, so do those between.
    """
    cdef state v
    cdef state *least
    cdef uint64_t h
    cdef int k, f, n = 0
    # The functions of a tree may ask anything.
    if s.dumped or s.rules.tree or set.n < 2 \
            or not room(s, &set.ends, &set.ends_cap, 3 * MAX_KINDS):
        return
    if not has_room(<void **>&set.kind, &set.kind_cap, set.n, 1) or not clear_table(s, MAX_KINDS):
        s.broken = True
        return
    for k in range(set.n):
        v = set.s[k]
        v.pcp.count = v.pcp.count_min = 0
        h = hash_of(&v) & (s.slots - 1)
        while s.table[h] >= 0 and not alike(&v, &set.ends[2 * s.table[h]]):
            h = (h + 1) & (s.slots - 1)
        if s.table[h] < 0:
            if n == MAX_KINDS or 4 * n > set.n:
                return
            s.table[h] = n
            set.ends[2 * n] = set.ends[2 * n + 1] = set.s[k]
            n += 1
        f = s.table[h]
        least = &set.ends[2 * f]
        if set.s[k].pcp.count < least.pcp.count:
            least[0] = set.s[k]
        elif set.s[k].pcp.count > least[1].pcp.count:
            least[1] = set.s[k]
        set.kind[k] = <uint8_t>f
    for f in range(n):
        set.ends[2 * MAX_KINDS + f] = set.ends[2 * f]
        # From here on the least count that an allocation left.
        set.ends[2 * f].pcp.count_min = set.ends[2 * f + 1].pcp.count_min = INT_MAX
    set.nr_kinds = n


cdef void unfold(pageset *set) noexcept nogil:
    """Follow each state by itself: do to them what was done to the ends of their kinds."""
    cdef const state *end
    cdef state *v
    cdef int k, count, least, was
    for k in range(set.n if set.nr_kinds else 0):
        end = &set.ends[2 * set.kind[k]]
        was = set.ends[2 * MAX_KINDS + set.kind[k]].pcp.count
        v = &set.s[k]
        count, least = v.pcp.count, v.pcp.count_min
        if end.pcp.count_min < INT_MAX:
            least = min(least, count + end.pcp.count_min - was)
        v[0] = end[0]
        v.pcp.count, v.pcp.count_min = count + end.pcp.count - was, least
    set.nr_kinds = 0


cdef bint do_at_ends(Beliefs s, pageset *set, const operation *e) noexcept nogil:
    """Do an operation to the ends of each kind; false, and nothing is done, if they part."""
    cdef state now[2 * MAX_KINDS]
    cdef state other
    cdef int f
    if e.op == OP_TICK or e.op == OP_UNKNOWN or e.op == OP_MAYBE:
        return False    # asks for count_min; some leave their kind
    for f in range(2 * set.nr_kinds):
        now[f] = set.ends[f]
        if apply(&s.rules, &now[f], e, &other) or (f & 1 and not alike(&now[f - 1], &now[f])):
            return False
    memcpy(set.ends, now, 2 * set.nr_kinds * sizeof(state))
    return True


cdef bint kinds_met(const pageset *set) noexcept nogil:
    """Whether two kinds have become the same."""
    cdef int f, g
    for f in range(1, set.nr_kinds):
        for g in range(f):
            if alike(&set.ends[2 * f], &set.ends[2 * g]):
                return True
    return False


cdef void merge_some(Beliefs s, pageset *set) noexcept nogil:
    """After an operation; of many states the same ones come seldom."""
    cdef int followed = 2 * set.nr_kinds or set.n
    cdef bint seldom
    if followed > SETTLED:
        s.effort -= followed // (2 * CHEAP if set.nr_kinds else CHEAP)
    set.since_merged += 1
    seldom = set.since_merged >= SELDOM
    if seldom:
        set.since_merged = 0
    if seldom and kinds_met(set):
        unfold(set)
    if not set.nr_kinds and (set.n <= SETTLED or seldom):
        merge_states(s, set)
    if not set.nr_kinds and (set.n > SETTLED or seldom):
        fold(s, set)


cdef void settle(Beliefs s, int x, int32_t row) noexcept nogil:
    """Merge; note when one state is left."""
    cdef pageset *set = &s.sets[x]
    cdef int followed = 2 * set.nr_kinds or set.n
    if set.n > 1:
        if s.nr_unexplained:
            s.effort -= followed
        if s.effort < 0 and (s.nr_unexplained or followed > SETTLED):
            give_up(s, x, row)
            return
        merge_some(s, set)
        s.most_states = max(s.most_states, set.n)
    if set.n == 1 and set.known_row < 0 and not set.s[0].span:
        set.known_row = row


cdef void give_up(Beliefs s, int x, int32_t row) noexcept nogil:
    """When what is not known has cost enough: follow the pages alone.

    But where a probe will tell, one state is as good as another.
    """
    cdef pageset *set = &s.sets[x]
    unfold(set)
    if s.holds_told:
        set.n = min(set.n, 1)
        return
    if not set.cut:
        set.cut = True
        s.nr_cut += 1
        if s.cut_row < 0:
            s.cut_row = row
    set.n = 0
    set.log_n = 0
    set.undecided = False


cdef bint may_be_low(Beliefs s, int x, int32_t row) noexcept nogil:
    """Whether a watermark test may have failed by *row*.

    That for a large block came between the line before of the task that reports it and its own; a
    hidden task, or a high_max that no file tells, is a nearer cause than a block that the zone may
    not have had.
    """
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef int32_t j = s.large_row
    return row >= z.low or (
        j > 0 and row >= s.link[j].own_prev and max(set.hidden, set.capped) <= set.counted)


cdef void open_states(Beliefs s, int x, const per_cpu_pages *like, bint at_start,
                      int maybe) noexcept nogil:
    """Every value that the fields may have which nobody told; *maybe*: flags of the zone."""
    cdef pageset *set = &s.sets[x]
    cdef const pcp_rules *r = &s.rules
    cdef per_cpu_pages base = like[0]
    cdef int scale = r.batch_scale_max
    cdef int afs = scale + 1 if r.alloc_scale else 1
    cdef int span = (base.batch << scale) + 7 if r.free_count else 0
    cdef int fcs = span + 1 if r.tree else 1
    cdef int ffs = 1 if r.free_count else 7
    cdef int flags = 4 if r.free_high_two_in_a_row else 1
    cdef int counts = set.nr_counts if at_start else 2 * AROUND + 1
    cdef int n = 0, c, a, f, k, g
    cdef state *v
    set.used = True
    set.nr_kinds = 0
    if not room(s, &set.s, &set.cap, 4 * counts * afs * fcs * ffs * flags):
        return
    for c in range(counts):
        for a in range(afs):
            for f in range(fcs):
                for g in range(ffs):
                    for k in range(4 * flags):
                        if k // flags * ZONE_RECLAIM_ACTIVE & ~maybe:
                            continue
                        v = &set.s[n]
                        memset(v, 0, sizeof(state))
                        v.pcp = base
                        v.pcp.count = set.counts[c] if at_start else base.count + c - AROUND
                        v.pcp.alloc_factor = <int8_t>a
                        v.pcp.free_count = f
                        v.span = 0 if r.tree else span
                        v.pcp.free_factor = <int8_t>g
                        v.pcp.flags = <int8_t>(k % flags)
                        v.zone_flags = k // flags * ZONE_RECLAIM_ACTIVE
                        n += 1
    set.n = n
    set.known_row = -1
    set.undecided = False
    set.log_n = 0


cdef void reopen(Beliefs s, int x, int32_t row) noexcept nogil:
    """After a difference: the fields are unknown again, but for high, and for count about."""
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef per_cpu_pages like
    cdef int k, maybe = ZONE_RECLAIM_ACTIVE if z.woken > z.slept else 0
    if s.rules.below_high and may_be_low(s, x, row):
        maybe |= ZONE_BELOW_HIGH
    if set.cut or set.n == 0:
        return
    if s.effort < 0:
        give_up(s, x, row)
        return
    unfold(set)
    like = set.s[0].pcp
    # nr_pcp_high() lowers it under flags that were assumed, it seems, in error.
    like.high = max(like.high, set.high_before)
    set.high_before = 0
    set.borne = row
    for k in range(set.n):
        maybe |= set.s[k].zone_flags
    open_states(s, x, &like, False, maybe)
    set.was_row = row


# -- what no line tells ---------------------------------------------------------------

cdef void was_there(Beliefs s, int32_t p, int x, int i, bint drained) noexcept nogil:
    """Remember that a page was on a list at the start."""
    if not has_room(<void **>&s.there, &s.there_cap, s.nr_there + 1, sizeof(first_page)):
        s.broken = True
        return
    s.there[s.nr_there] = first_page(p, x, <int8_t>i, drained)
    s.nr_there += 1


cdef int64_t switches_until(Beliefs s, int32_t row) noexcept nogil:
    """Place after the last sched_switch that tells of the task of *row* before that row."""
    cdef int64_t at = <int64_t>s.rows[row].pid << 32 | row, lo = 0, hi = s.nr_switches, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if s.switches[mid] <= at:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef bint by_hidden(Beliefs s, int x, int32_t row, int32_t since) noexcept nogil:
    """Whether a task that writes no line had the CPU of these lists after row *since*; names it."""
    if s.sets[x].hidden <= max(since, 0):
        return False
    explain(s, row, E_HIDDEN, x, s.sets[x].hidden_by)
    return True


cdef bint taken_by_hidden(Beliefs s, int x, int32_t p, int32_t row) noexcept nogil:
    """Whether a task that writes no line may have taken a page off its list: it had the CPU when
    that lay at the head, or below others that it took."""
    cdef int32_t q = p
    for _ in range(TAKEN_AT_ONCE):
        if q < 0 or s.page[q].exposed:
            break
        q = s.page[q].prev
    return q >= 0 and s.page[q].exposed and by_hidden(s, x, row, s.page[p].pushed)


cdef bint sizes_unknown(Beliefs s, int x, int32_t row, bint told, bint soon,
                        int64_t pages=0) noexcept nogil:
    """Whether something shows why count and high are not as believed; *told*: the numbers are.

    *pages*: which a hidden task must have taken or given back.

    A refill of a hidden task raises high for good, and where high stops no file tells: not above
    what is believed, so that drains come too *soon*.  Where a drain bears out how many pages are
    missing to high, nobody knows high itself, of which a tick takes an eighth.
    """
    cdef pageset *set = &s.sets[x]
    cdef bint open = set.vague or (told and set.raised)
    if PAGE_NS * pages <= set.hidden_ns and by_hidden(s, x, row, 0 if open else set.counted):
        set.raised = True
    elif set.capped > (0 if open else set.counted) and (soon or set.raised):
        explain(s, row, E_HIGH_MAX, x, set.capped)
        set.raised = True
    else:
        return False
    return True


cdef void look_for_cap(Beliefs s, int x, int32_t row) noexcept nogil:
    """After a refill: has it raised high to where high_max may be?"""
    cdef pageset *set = &s.sets[x]
    cdef state *some = set.ends if set.nr_kinds else set.s
    cdef int k
    for k in range(min(2 * set.nr_kinds if set.nr_kinds else set.n, LOOKED_AT)):
        if some[k].pcp.high >= some[k].pcp.high_max - (some[k].pcp.high_max >> 6):
            set.capped = row
            return


cdef bint untold_since(Beliefs s, int64_t p, int32_t row, int32_t since) noexcept nogil:
    """Whether no line between rows *since* and *row* is about a page."""
    cdef int32_t j
    s.effort -= (row - since) >> 6
    for j in range(row - 1, since, -1):
        if s.rows[j].a == p + s.base and EV_ALLOC <= s.rows[j].event <= EV_EXTFRAG:
            return False
    return True


# -- new tasks -----------------------------------------------------------------------

cdef int32_t first_from(
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


cdef int32_t fork_between(Beliefs s, int cpu, int32_t since, int32_t row, int32_t until,
                          int pages) noexcept nogil:
    """A new task of this CPU that was begun before *row*, and told of after *since* and before
    *until*, whose stack may have pages yet, -1 none; these are its own then."""
    cdef uint8_t *left
    cdef int32_t lo
    if s.forks == NULL:
        return -1
    lo = first_from(s.forks, s.forks_of[cpu], s.forks_of[cpu + 1], since + 1)
    while lo < s.forks_of[cpu + 1] and s.forks[lo] < until:
        left = &s.stacks[s.stack_of[lo]]
        if left[0] > 0 and left[0] >= pages and s.made_since[s.stack_of[lo]] < row:
            left[0] -= <uint8_t>pages
            return lo
        lo += 1
    return -1


cdef bint off_by_stacks(Beliefs s, int x, int32_t row, int pages) noexcept nogil:
    """Whether there may be so many pages fewer than believed, as new tasks since count was known
    have had their stacks of them in silence; or more, as pages that were taken to be of stacks are
    still there."""
    cdef pageset *set = &s.sets[x]
    cdef int32_t begin, f, end, last = -1
    cdef int left = pages
    if s.forks == NULL or pages == 0 or pages % STACK_PAGES:
        return False
    if pages < 0:
        if -pages > set.silent:
            return False
        explain(s, row, E_SILENT, x, set.silent_by)
        return True
    end = s.forks_of[set.cpu + 1]
    begin = f = first_from(s.forks, s.forks_of[set.cpu], end, set.counted)
    # One that is told of later may have been begun.
    while f < end and left > 0 and (s.forks[f] < row or s.made_since[s.stack_of[f]] < row):
        if not s.thought_of[s.stack_of[f]]:
            left -= s.stacks[s.stack_of[f]]
            last = f
        f += 1
    if left > 0:
        return False
    for f in range(begin, last + 1):
        s.thought_of[s.stack_of[f]] = True
    explain(s, row, E_SILENT, x, s.forks[last])
    return True


# -- what was done -------------------------------------------------------------------

cdef void save(Beliefs s, pageset *set, state **to, int *nr, int64_t *cap) noexcept nogil:
    unfold(set)
    if room(s, to, cap, set.n):
        memcpy(to[0], set.s, set.n * sizeof(state))
        nr[0] = set.n


cdef void milestone(Beliefs s, int x) noexcept nogil:
    """Nobody will look back behind the milestone before."""
    cdef pageset *set = &s.sets[x]
    cdef state *states = set.was
    if set.log_n == 0:
        return
    if set.mid_at > 0:
        set.was_row = set.log[set.mid_at].row
        set.log_n -= set.mid_at
        memmove(set.log, set.log + set.mid_at, set.log_n * sizeof(operation))
        set.was, set.mid = set.mid, states
        set.nr_was, set.nr_mid = set.nr_mid, set.nr_was
        set.was_cap, set.mid_cap = set.mid_cap, set.was_cap
    save(s, set, &set.mid, &set.nr_mid, &set.mid_cap)
    set.mid_at, set.log_more = set.log_n, 0


cdef void make_room(Beliefs s, int x) noexcept nogil:
    """Room for another operation; nobody will look back farther than MAX_LOG of them."""
    cdef pageset *set = &s.sets[x]
    if set.log_n == 0:
        save(s, set, &set.was, &set.nr_was, &set.was_cap)
        set.mid_at = -1
    elif set.log_n - max(set.mid_at, 0) >= MAX_LOG // 2:
        milestone(s, x)
    if not has_room(<void **>&set.log, &set.log_cap, set.log_n + 1, sizeof(operation)):
        s.broken = True
        set.log_n = 0
    set.log_more = max(min(<int>set.log_cap, max(set.mid_at, 0) + MAX_LOG // 2) - 1, 0)


cdef void some_left(Beliefs s, pageset *set, int least, int end) noexcept nogil:
    """From *least* to *end* - 1 pages may have left, or none."""
    cdef int k, less, n
    cdef state v
    merge_states(s, set)
    n = set.n
    for k in range(n):
        for less in range(least, end):
            v = set.s[k]
            v.pcp.count -= less
            if v.pcp.count < 0:
                continue
            if 3 * set.n > 2 * s.slots:
                merge_states(s, set)    # for a larger table
            if s.broken or not room(s, &set.s, &set.cap, set.n + 1):
                return
            if is_new(s, set, &v, set.n):
                set.s[set.n] = v
                set.n += 1


cdef void do_op_slowly(Beliefs s, int x, const operation *e) noexcept nogil:
    """`do_op` where there are several states, or one that may have to be cut in two."""
    cdef pageset *set = &s.sets[x]
    cdef operation done
    cdef int k = 0
    if set.nr_kinds:
        if do_at_ends(s, set, e):
            return
        unfold(set)
    if e.op == OP_UNKNOWN:
        some_left(s, set, e.begin, e.got)
        return
    if e.op == OP_MAYBE:
        k = set.n
        if not room(s, &set.s, &set.cap, 2 * k):
            return
        memcpy(set.s + k, set.s, k * sizeof(state))
        set.n += k
        done = allocation(e)
        e = &done
    while k < set.n:
        if not room(s, &set.s, &set.cap, set.n + 1):
            return
        if apply(&s.rules, &set.s[k], e, &set.s[set.n]):
            set.n += 1
            s.effort -= CUT_COSTS
            if s.effort < 0 and set.n > SETTLED:
                return      # whoever wants to know how it went gives up
        else:
            k += 1


cdef void checkpoint(Beliefs s, int x, int32_t row) noexcept nogil:
    """Whatever comes, nothing before *row* was otherwise."""
    s.sets[x].log_n = 0
    s.sets[x].was_row = row


cdef void agree(Beliefs s, int x, int32_t row, int flags) noexcept nogil:
    """Model and kernel have the same fields at *row*, and a probe shows the zone's flags."""
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef int k
    checkpoint(s, x, row)
    set.undecided = False
    z.flags = flags & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH)
    z.told += 1
    set.zone_told = z.told
    for k in range(set.n):
        set.s[k].zone_flags = z.flags


# -- what is seen --------------------------------------------------------------------

cdef bint agrees(const per_cpu_pages *p, const int64_t *f) noexcept nogil:
    cdef int64_t mine[NR_FIELDS]
    cdef int k
    fields_of(p, mine)
    for k in range(NR_FIELDS):
        if f[P_COUNT + k] >= 0 and f[P_COUNT + k] != mine[k]:
            return False
    return True


cdef bint meets(Beliefs s, const pageset *set, const state *v, const operation *last,
                const sight *g) noexcept nogil:
    """Whether a state is as something shows; *last*: what was done last, or NULL."""
    if g.fields != NULL and not agrees(&v.pcp, g.fields):
        return False
    if g.hold == ANYTHING:
        return True
    if last == NULL or last.op != OP_FREE or last.got != UNDECIDED:
        return g.hold == 0
    if g.hold == 0:
        return v.due <= 0
    return v.due > 0 and commit_hold(&v.pcp, &s.rules, v.due) == g.hold \
        and last.pindex == g.pindex


cdef bint kinds_say(Beliefs s, int x, const operation *e, const sight *g) noexcept nogil:
    """Whether every kind of state is as something shows that goes by no count."""
    cdef pageset *set = &s.sets[x]
    cdef int f
    if g.fields != NULL or g.hold > 0 or (e.op != OP_REFILL and e.got > 0):
        return False
    for f in range(2 * set.nr_kinds):
        if not (meets(s, set, &set.ends[f], e, g) and decided(s, x, &set.ends[f], e)):
            return False
    return True


cdef int keep(Beliefs s, int x, int32_t row, const sight *g) noexcept nogil:
    """Keep the states that are as something shows; SAID_*."""
    cdef pageset *set = &s.sets[x]
    cdef const operation *last = &set.log[set.log_n - 1] if set.log_n else NULL
    cdef int k, n = 0, had = set.n
    if set.cut:
        return SAID_NOTHING
    if set.nr_kinds and last != NULL and kinds_say(s, x, last, g):
        settle(s, x, row)
        return SAID_ALL
    unfold(set)
    for k in range(had):
        if meets(s, set, &set.s[k], last, g) \
                and (last == NULL or decided(s, x, &set.s[k], last)):
            if n < k:
                set.s[n] = set.s[k]
            n += 1
    if n:
        set.n = n
        settle(s, x, row)
        return SAID_ALL if n == had else SAID_SOME
    return SAID_NONE


cdef bint goes_on(Beliefs s, const pageset *set) noexcept nogil:
    """After a hold: has the drain that is under way yet another one?"""
    if set.due.why == DUE_COMMIT:
        return commit_goes_on(&set.s[0].pcp, &s.rules, set.due.left, set.due.threshold)
    return set.due.left > 0 and set.s[0].pcp.count > 0


cdef int next_hold(Beliefs s, pageset *set) noexcept nogil:
    """Size of the next free_pcppages_bulk() of the drain that is under way."""
    # Of a tree: another task's free between two holds has put its own answer there.
    set.s[0].pcp.chunk = set.due.hold
    if set.due.why == DUE_COMMIT:
        return commit_hold(&set.s[0].pcp, &s.rules, set.due.left)
    if set.due.why == DUE_DECAY:
        return decay_hold(&set.s[0].pcp, &s.rules, set.due.left)
    return set.due.left


# -- binding -------------------------------------------------------------------------

cdef class Beliefs(PageLists):
    """The pagesets of one machine, each with the states that it may be in.

    Empty by itself, as `PageLists`; who derives from it calls `believe`.
    """

    def __dealloc__(self):
        cdef int x
        if self.sets != NULL:
            for x in range(self.nr_sets):
                free(self.sets[x].s)
                free(self.sets[x].ends)
                free(self.sets[x].kind)
                free(self.sets[x].was)
                free(self.sets[x].mid)
                free(self.sets[x].log)
                free(self.sets[x].counts)
        free(self.sets)
        free(self.orders)
        free(self.spare)
        free(self.layers)
        free(self.trail)
        free(self.table)
        free(self.turns)
        free(self.work_done.rows)
        free(self.workers)
        free(self.stacks)
        free(self.thought_of)

    cdef int believe(self, release, events) except -1:
        """Have pagesets under these rules; *events*: those of the trace, with their probes."""
        cdef int x
        cdef const int64_t[:, ::1] probes
        self.rules = rules_of(release)
        self.rules.nr_pcp_lists = lists_in_use(self.rules.nr_pcp_lists)
        self.sets = <pageset *>self.room(self.nr_sets, sizeof(pageset))
        for x in range(self.nr_sets):
            self.sets[x].list = &self.lists[16 * x]
            self.sets[x].zone = x // self.cpus
            self.sets[x].cpu = x % self.cpus
            self.sets[x].known_row = self.sets[x].mid_at = self.sets[x].due.doubt = -1
            self.sets[x].drainer = -1
        self.effort = EFFORT + ALL_ALONG * len(events.rows)
        self.cut_row = -1
        self.most_states = 1
        probes = np.ascontiguousarray(events.probes)
        self.keep.append(probes)
        if len(probes):
            self.probes = &probes[0, 0]
        return 0

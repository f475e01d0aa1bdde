# cython: auto_pickle=False, autotestdict=False
"""Drains, and the probes that show a pageset's fields.

Where a probe shows free_pcppages_bulk(), each hold of a drain is held against the rules by itself;
where none does, all holds together.  Nothing announces then that all lists of a CPU are emptied, or
that a remote pageset gives back a batch.  The blocks of a drain come from the ends of its lists.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.limits cimport INT_MAX
from libc.stdint cimport int8_t, uint8_t, uint64_t

from pcpmodel.kernel.lists cimport (
    drain_share, order_to_pindex, pcp_allowed_order, pcp_migratetype, pindex_after,
    pindex_may_hold, pindex_to_order,
)
from pcpmodel.kernel.pages cimport ZONE_BELOW_HIGH
from pcpmodel.kernel.pcp cimport (
    commit_hold, commit_is_whole, nr_pcp_free, nr_pcp_high, per_cpu_pages, remote_hold, zone_hold,
)
from pcpmodel.trace.asked cimport ASKED_TICK, ask
from pcpmodel.trace.assumptions cimport *
from pcpmodel.trace.beliefs cimport *
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport *
from pcpmodel.trace.search cimport *
from pcpmodel.trace.taking cimport (
    failed, join_late, leave, leave_hidden, stack_of_fork, take_shown,
)
from pcpmodel.trace.work cimport *
from pcpmodel.trace.zone_flags cimport move_free

cdef enum:
    MAX_SOON = 512      # rows between the lock of a drain and its first line


# -- probes of the fields ------------------------------------------------------------

cdef int find_set(Beliefs s, int32_t row) noexcept nogil:
    """The pageset whose address a probe prints, or -1."""
    cdef int64_t told = s.probes[s.rows[row].probe * P_COLUMNS + P_PCP]
    cdef int x
    for x in range(s.nr_sets):
        if s.sets[x].addr == <uint64_t>told:
            return x
    return -1


cdef void resync(Beliefs s, int x, const int64_t *f) noexcept nogil:
    """Go on with the fields that a probe shows."""
    cdef per_cpu_pages *p = &s.sets[x].s[0].pcp
    s.sets[x].n = 1
    s.sets[x].s[0].span = 0
    if f[P_COUNT] >= 0:
        p.count = <int>f[P_COUNT]
    if f[P_HIGH] >= 0:
        p.high = <int>f[P_HIGH]
        if not s.rules.high_min_max:
            p.high_min = p.high_max = p.high
    if f[P_ALLOC_FACTOR] >= 0:
        p.alloc_factor = <int8_t>f[P_ALLOC_FACTOR]
    if f[P_FREE_COUNT] >= 0:
        p.free_count = <int>f[P_FREE_COUNT]
    if f[P_FREE_FACTOR] >= 0:
        p.free_factor = <int8_t>f[P_FREE_FACTOR]
    if f[P_FLAGS] >= 0:
        p.flags = <int8_t>f[P_FLAGS]
    if f[P_HIGH_MIN] >= 0:
        p.high_min = <int>f[P_HIGH_MIN]
        p.high_max = <int>f[P_HIGH_MAX]
    if f[P_BATCH] >= 0:
        p.batch = <int>f[P_BATCH]


cdef bint see_fields(Beliefs s, int x, int32_t row, const int64_t *f, int hold,
                     int pindex) noexcept nogil:
    """Hold the struct's fields against those that a probe printed.

    *hold*: pages of the first hold of the last free's drain, 0 none, or ANYTHING.
    """
    cdef int64_t mine[NR_FIELDS]
    cdef sight g = sight(f, hold, pindex)
    cdef int k, said, flags = <int>f[P_ZONE_FLAGS] if f[P_ZONE_FLAGS] >= 0 else 0
    s.t.probes.total += 1
    said = observe(s, x, row, &g)
    if said != SAID_NONE:
        s.t.probes.foreseen += said == SAID_ALL
        s.t.probes.explained += said != SAID_ALL
        agree(s, x, row, flags)
        return True
    fields_of(&s.sets[x].s[0].pcp, mine)
    for k in range(NR_FIELDS):
        if f[P_COUNT + k] >= 0 and f[P_COUNT + k] != mine[k]:
            differ(s, row, D_COUNT + k, x, mine[k], f[P_COUNT + k])
    resync(s, x, f)
    agree(s, x, row, flags)
    return False


# -- drains that a probe shows -------------------------------------------------------

cdef void give_up_drain(Beliefs s, int x, int32_t row) noexcept nogil:
    """The rest of a drain in pieces does not come: the lists could not be locked again."""
    cdef pageset *set = &s.sets[x]
    if set.due.why == DUE_COMMIT and set.due.started and set.due.left > 0:
        if set.due.doubt >= 0:
            explain(s, row, E_RELOCK, x, set.due.doubt)
        else:
            differ(s, row, D_DRAIN_MISSING, x, set.due.left, 0)
    set.due.why = DUE_NONE


cdef void make_due(Beliefs s, int x, int why, int n, int32_t row) noexcept nogil:
    """A drain of *n* pages from the first list on must follow."""
    cdef pageset *set = &s.sets[x]
    if set.due.why:
        give_up_drain(s, x, row)
    set.due = drain(why, n, 0, set.s[0].pcp.chunk, 0, row, -1, False)


cdef void known_if_empty(Beliefs s, int x) noexcept nogil:
    """Lists that hold nothing are known again, whatever seemed to be on them."""
    cdef pageset *set = &s.sets[x]
    cdef int i, k
    if set.n == 0:
        return
    unfold(set)
    for k in range(set.n):
        if set.s[k].pcp.count:
            return
    for i in range(s.rules.nr_pcp_lists):
        set.open[i] = False
        while set.list[i].head >= 0:
            s.page[set.list[i].head].status = AWAY
            unlink_page(s, set.list[i].head)
    s.doubt[x] = 0


cdef void finish_run(Beliefs s, int cpu, int32_t row) noexcept nogil:
    """What ran with interrupts off on this CPU is over."""
    cdef cpu_run *run = &s.runs[cpu]
    cdef pageset *set = &s.sets[run.set]
    cdef int kind = run.kind
    run.kind = RUN_NONE
    if kind == RUN_DRAIN and s.doubt[run.set]:
        known_if_empty(s, run.set)
    if kind != RUN_DRAIN or not s.holds_told:
        return
    if run.left > 0 and set.s[0].pcp.count > 0:
        differ(s, run.row, D_DRAIN_SHORT, run.set, run.want, run.want - run.left)
        run.bad = 1
    if not run.bad:
        s.t.drains.explained += run.told
        s.t.drains.foreseen += not run.told
    checkpoint(s, run.set, row)
    if set.due.why and run.draining != run.set and not goes_on(s, set):
        set.due.why = DUE_NONE


cdef int first_hold(Beliefs s, int x, int32_t row, const int64_t *f, cpu_run *run) noexcept nogil:
    """free_pcppages_bulk() by a free: what that has to drain is known now; the size of this hold.
    """
    cdef pageset *set = &s.sets[x]
    cdef int pindex = 0
    if set.log_n:
        pindex = set.log[set.log_n - 1].pindex
    run.bad = not see_fields(s, x, row, f, <int>f[P_N], <int>f[P_PINDEX])
    if not run.bad:
        pindex = <int>f[P_PINDEX]
    if set.s[0].due <= 0:
        differ(s, row, D_DRAIN_UNEXPECTED, x, 0, f[P_N])
        run.bad = True
        return <int>f[P_N]
    make_due(s, x, DUE_COMMIT, set.s[0].due, row)
    set.due.threshold = set.s[0].threshold
    set.due.pindex = pindex
    return next_hold(s, set)


cdef bint is_due(Beliefs s, pageset *set, const int64_t *f) noexcept nogil:
    """Whether a hold is the one that the drain under way, or the last free, has next."""
    if set.due.why:
        return f[P_PINDEX] == set.due.pindex and f[P_N] == next_hold(s, set)
    if not set.undecided or set.s[0].due <= 0:
        return False
    return f[P_PINDEX] == set.log[set.log_n - 1].pindex \
        and f[P_N] == commit_hold(&set.s[0].pcp, &s.rules, set.s[0].due)


cdef void drain_begins(Beliefs s, int32_t row) noexcept nogil:
    """free_pcppages_bulk()."""
    cdef const event_row *r = &s.rows[row]
    cdef const int64_t *f = &s.probes[r.probe * P_COLUMNS]
    cdef int x = find_set(s, row)
    cdef pageset *set
    cdef cpu_run *run = &s.runs[r.cpu]
    cdef int want, pindex
    cdef int64_t told = s.helped
    if x < 0:
        differ(s, row, D_PCP, -1, 0, f[P_PCP])
        return
    set = &s.sets[x]
    s.t.drains.total += 1
    if run.draining == x and not (set.cpu == r.cpu and is_due(s, set, f)):
        if set.due.why and set.cpu != r.cpu:
            set.due.doubt = row
        elif set.due.why:
            give_up_drain(s, x, row)
        # drain_pages_zone() reads count under the lock, call by call, until nothing is left.
        run.bad = not see_fields(s, x, row, f, 0, 0)
        want = zone_hold(&set.s[0].pcp, &s.rules)
        pindex = 0
    else:
        if set.due.why and not set.undecided:
            run.bad = not see_fields(s, x, row, f, ANYTHING, 0)
            want = next_hold(s, set)
            pindex = set.due.pindex
        else:
            want = first_hold(s, x, row, f, run)
            pindex = set.due.pindex if set.due.why else <int>f[P_PINDEX]
        set.due.left -= want
        set.due.started = True
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
    run.want = <int>min(f[P_N], <int64_t>set.s[0].pcp.count)
    run.left = run.want
    run.pindex = 0
    run.share = 0
    if s.rules.drain_by_list and 0 <= f[P_PINDEX] < s.rules.nr_pcp_lists:
        run.pindex = <int>f[P_PINDEX]
    set.touched += 1


cdef void decays_or_expires(Beliefs s, int32_t row) noexcept nogil:
    """decay_pcp_high() or drain_zone_pages()."""
    cdef const event_row *r = &s.rows[row]
    cdef const int64_t *f = &s.probes[r.probe * P_COLUMNS]
    cdef int x = find_set(s, row), n
    cdef pageset *set
    cdef operation *e
    cdef per_cpu_pages before
    if x < 0:
        differ(s, row, D_PCP, -1, 0, f[P_PCP])
        return
    set = &s.sets[x]
    if set.due.why and not set.due.started:
        differ(s, row, D_DRAIN_MISSING, x, set.due.left, set.due.why)
        set.due.why = DUE_NONE
    see_fields(s, x, row, f, 0, 0)
    if r.event == EV_DRAIN_ZONE_PAGES:
        n = remote_hold(&set.s[0].pcp, &s.rules)
    else:
        s.runs[r.cpu].decays += 1
        before = set.s[0].pcp
        e = begin_op(s, x, row, OP_TICK, 0)
        set.ticked = row
        e.got = UNDECIDED
        do_op(s, x, e)
        n = set.s[0].due
        if s.asked.on:
            ask(&s.asked, &s.rules, ASKED_TICK, x, r.line, set.s[0].zone_flags, 0, before, n,
                set.s[0].pcp.high)
    if n > 0:
        make_due(s, x, DUE_DECAY if r.event == EV_DECAY_PCP_HIGH else DUE_REMOTE, n, row)


cdef void empties(Beliefs s, int32_t row) noexcept nogil:
    """drain_pages_zone()."""
    cdef const event_row *r = &s.rows[row]
    cdef const int64_t *f = &s.probes[r.probe * P_COLUMNS]
    cdef zone_info *z = zone_told(s, f)
    s.runs[r.cpu].draining = -1
    if z != NULL and r.d < s.cpus:
        s.runs[r.cpu].draining = <int>((z - &s.zones[0]) * s.cpus + r.d)
        work(s, WORK_DRAIN, z.start - s.base, 0, 0, <int>r.d, 0, row)


# -- drains that nothing announces ---------------------------------------------------

cdef inline int pages_of(Beliefs s) noexcept nogil:
    """Pages of the drain of `find_drain`."""
    cdef int k = 0
    return take_blocks(s, INT_MAX, &k)


cdef bint gives_a_batch(Beliefs s, const state *v) noexcept nogil:
    """Whether the drain that was seen is a decay, and then a batch of a remote pageset."""
    cdef per_cpu_pages pcp = v.pcp
    cdef int due = max(v.due, 0), k = 0, got, n
    got = take_blocks(s, due, &k)
    pcp.count -= got
    n = remote_hold(&pcp, &s.rules)
    return got >= due and n > 0 and take_blocks(s, n, &k) >= n and k == s.nr_orders


cdef bint gives_batch(Beliefs s, int x, int32_t row) noexcept nogil:
    """No state wants the drain of `find_drain`; is a batch of a remote pageset part of it?"""
    cdef pageset *set = &s.sets[x]
    cdef int k, n = 0
    for k in range(set.n):
        if gives_a_batch(s, &set.s[k]):
            set.s[n] = set.s[k]
            n += 1
    if n == 0:
        return False
    set.n = n
    checkpoint(s, x, row)
    explain(s, s.last_drained, E_REMOTE, x, s.link[row].own_prev or row)
    return True


cdef inline bint stays(Beliefs s, int x, const operation *e, int32_t row) noexcept nogil:
    """Whether the page of a free lies on these lists, and what comes next is no leaving them."""
    cdef int32_t then
    if e.op != OP_FREE or s.page[e.page].pushed != e.row or (s.page[e.page].where - 1) >> 4 != x \
            or e.page + s.base == s.rows[row].a:
        return False
    then = s.page[e.page].cursor
    return not then or (s.rows[then].event != EV_PCPU_DRAIN and s.rows[then].event != EV_ALLOC)


cdef void freed_under_lock(Beliefs s, int x, int32_t row, int seen) noexcept nogil:
    """Another CPU has these lists locked some time before its first block of them.

    A page that was freed shortly before, and is not drained with all that there is, was never on
    its list: if there are as many of these as the lists had too many for the *seen* ones.
    """
    cdef pageset *set = &s.sets[x]
    cdef operation e
    cdef int32_t last = s.last_drained
    cdef int k, too_many = -seen, first = max(set.log_n - MAX_SOON, 0)
    if set.n:
        too_many += set.s[0].pcp.count
    if too_many <= 0:
        return
    for k in range(first, set.log_n):
        if stays(s, x, &set.log[k], row):
            too_many -= 1 << set.log[k].order
    if too_many:
        return
    for k in range(set.log_n - 1, first - 1, -1):
        e = set.log[k]
        if stays(s, x, &e, row):
            explain(s, e.row, E_TRYLOCK, x, row)
            unlink_page(s, e.page)
            forget_op(s, x, k)
    rerun(s, x)
    find_drain(s, x, row, s.rows[row].cpu, last)


cdef bint emptied(Beliefs s, int x, int32_t row, int seen, bint search) noexcept nogil:
    """No state wants the drain of `find_drain`, of *seen* pages; is it all that there is?

    *search*: or was it, with something that the trace tells elsewhere?
    """
    cdef pageset *set = &s.sets[x]
    cdef int32_t last = s.last_drained
    cdef operation *e
    cdef sight g = sight(NULL, ANYTHING, 0)
    cdef bint all_ = False
    cdef int k
    if s.rows[row].cpu != set.cpu:
        freed_under_lock(s, x, row, seen)
    for k in range(set.n):
        all_ = all_ or (set.s[k].pcp.count == seen and set.s[k].due <= 0)
    if not (all_ or search):
        return False
    if set.log_n and set.log[set.log_n - 1].op == OP_FREE:
        set.log[set.log_n - 1].got = NO_DRAIN
    e = begin_op(s, x, row, OP_EMPTIED, 0)
    e.got = seen
    do_op(s, x, e)
    if all_:
        keep(s, x, row, &g)
        milestone(s, x)
    elif not reconsider(s, x, row, &g):
        set.log_n -= 1
        return False
    # Of a single page the next line of who drains shows that it was the last.
    explain(s, row, E_EMPTIED, x, last if last != row else s.link[row].own_next or row)
    return True


cdef bint given_back(Beliefs s, int x, const operation *last, int seen) noexcept nogil:
    """Whether the drain of `find_drain` is what a free drains once there are as many as high, and a
    hidden task may have given back what is missing to that."""
    cdef pageset *set = &s.sets[x]
    cdef per_cpu_pages pcp
    cdef int k, high, n
    if last.op != OP_FREE or set.hidden <= set.counted or s.rules.tree:
        return False
    for k in range(set.n):
        pcp = set.s[k].pcp
        high = nr_pcp_high(&pcp, &s.rules, set.s[k].zone_flags, False)
        n = nr_pcp_free(&pcp, &s.rules, high, False)
        if pcp.count < high and PAGE_NS * (high - pcp.count) <= set.hidden_ns \
                and n <= seen < n + (1 << s.rows[s.last_drained].b):
            return True
    return False


cdef bint end_drain(Beliefs s, int x, int32_t row) noexcept nogil:
    """Does what the last free drains end before the drain of `find_drain`, which goes on with all
    that there is?"""
    cdef pageset *set = &s.sets[x]
    cdef int k, n, pages = pages_of(s)
    for k in range(set.n):
        n = blocks_drained(s, &set.s[k], False)
        if 0 < n < s.nr_orders and set.s[k].pcp.count == pages:
            s.nr_orders = n
            s.last_drained = row
            while n > 1:
                s.last_drained = s.link[s.last_drained].own_next
                n -= 1
            return True
    return False


cdef int32_t emptied_soon(Beliefs s, int x, int32_t row) noexcept nogil:
    """The line with which another CPU begins to empty these lists, which it has locked; or 0."""
    cdef int32_t j
    cdef int64_t p
    for j in range(row + 1, min(row + MAX_SOON, s.nr_rows) if not s.dumped else 0):
        if s.rows[j].event == EV_PCPU_DRAIN and s.rows[j].cpu != s.sets[x].cpu:
            p = index_of(s, s.rows[j].a)
            if p >= 0 and (s.page[p].where - 1) >> 4 == x:
                return j
    return 0


cdef inline int32_t moved_on(Beliefs s, int32_t row) noexcept nogil:
    """The next line of the task of *row*, if it was moved to another CPU before that; else 0."""
    cdef int32_t then = s.link[row].own_next
    return then if s.rows[then].cpu != s.rows[row].cpu else 0


cdef void no_longer_low(zone_info *z, int32_t row) noexcept nogil:
    """free_frozen_page_commit() has drained: it clears ZONE_BELOW_HIGH where enough is free."""
    z.drained = row
    if z.flags & ZONE_BELOW_HIGH and z.nr_free > z.enough:
        z.flags &= ~<unsigned int>ZONE_BELOW_HIGH
        z.told += 1


cdef int32_t line_between(Beliefs s, int x, int32_t row) noexcept nogil:
    """The first line of another task of this CPU amid the drain of `find_drain`; or 0."""
    cdef int32_t then
    if commit_is_whole(&s.rules):
        return 0
    while row != s.last_drained:
        then = s.link[row].next_cpu
        if then and s.rows[then].event != EV_PCPU_DRAIN:
            return then
        row = s.link[row].own_next
        if not row:
            return 0
    return 0


cdef int rest_of(const pageset *set, int pid, bint begun) noexcept nogil:
    """Which rest of a drain is a task's, -1: it has *begun* none; or the place for a new one."""
    cdef int k
    for k in range(MAX_RESTS):
        if set.rest[k].left > 0 and set.rest[k].pid == pid:
            return k
    for k in range(MAX_RESTS):
        if set.rest[k].left <= 0 and not begun:
            return k
    return -1 if begun else 0


cdef bint ends_amid(Beliefs s, int32_t row) noexcept nogil:
    """Whether the recording may end amid a drain: its CPU and its task have no line after *row*.

    Nor has the task left the CPU since, which it does not amid a drain.
    """
    cdef int64_t k = switches_until(s, row)
    return not s.link[row].next_cpu and not s.link[row].own_next \
        and (k == s.nr_switches or s.switches[k] >> 32 != s.rows[row].pid)


cdef int off_at_drain(const operation *last, int want, int seen, int missing) noexcept nogil:
    """By how many pages of stacks count may be off: a tick drains down to high, a free once there
    are as many, or a few more of a block."""
    cdef int most = missing + (1 << last.order) - 1
    if last.op == OP_TICK:
        return want - seen
    if last.op != OP_FREE or want or most % STACK_PAGES >= 1 << last.order:
        return 0
    return -(most - most % STACK_PAGES)


cdef bint kept_if_cut(Beliefs s, int x, int32_t row, operation *last, uint8_t cut) noexcept nogil:
    """Whether the drain of the last free is as foreseen if it may have ended within (as of
    ``operation.cut``); then only the states stay that say so."""
    cdef sight g = sight(NULL, ANYTHING, 0)
    last.cut = cut
    if keep(s, x, row, &g) == SAID_NONE:
        last.cut = 0
        return False
    return True


cdef int said_of_drain(Beliefs s, int x, int32_t row, int32_t first,
                       operation *last) noexcept nogil:
    """What the states say of the drain of `find_drain` as that of the last free or tick: whole, or
    cut short."""
    cdef sight g = sight(NULL, ANYTHING, 0)
    cdef int said = keep(s, x, row, &g)
    cdef int32_t k
    if said == SAID_NONE and last.op == OP_FREE and end_drain(s, x, first):
        last.since = s.last_drained
        said = keep(s, x, row, &g)
    if said != SAID_NONE or last.op != OP_FREE or not s.nr_orders:
        return said
    # Between two holds another CPU locks the lists, or the task is moved.
    k = emptied_soon(s, x, s.last_drained) or moved_on(s, s.last_drained)
    if k and kept_if_cut(s, x, row, last, 1):
        explain(s, row, E_RELOCK, x, k)
        return SAID_LATE
    k = line_between(s, x, first)
    if k and kept_if_cut(s, x, row, last, AT_ALL):
        explain(s, row, E_BETWEEN, x, k)
        return SAID_LATE
    if ends_amid(s, s.last_drained) and kept_if_cut(s, x, row, last, AT_ALL):
        return SAID_SOME
    return SAID_NONE


cdef bint off_by_unseen(Beliefs s, int x, int32_t row, const operation *last, int want,
                        int seen) noexcept nogil:
    """Whether stacks, hidden tasks, or sizes that nobody told of, are why a drain is not as
    foreseen."""
    cdef pageset *set = &s.sets[x]
    cdef int k, missing = INT_MAX
    cdef bint early = last.op == OP_FREE and not want
    for k in range(set.n if early else 0):
        missing = min(missing, max(set.s[k].pcp.high - set.s[k].pcp.count, 0))
    missing = missing if missing < INT_MAX else 0
    if not (set.counted and seen
            and off_by_stacks(s, x, row, off_at_drain(last, want, seen, missing))) \
            and not sizes_unknown(s, x, row, False, seen > 0, missing):
        return False
    if early:
        # It gave back more than shows: a free drains once there are as many as high.
        for k in range(set.n):
            set.s[k].pcp.count = set.s[k].pcp.high
    return True


cdef void drain_began(Beliefs s, int x, int32_t row, int pages, int pindex, int said,
                      int cpu) noexcept nogil:
    """A drain of so many pages goes on with the rows that follow."""
    cdef pageset *set = &s.sets[x]
    cdef cpu_run *run = &s.runs[cpu]
    count_said(&s.t.drains, said)
    run.kind, run.set, run.row, run.pindex, run.left = RUN_DRAIN, x, row, pindex, pages
    run.share, run.bad, run.told = 0, False, said == SAID_LATE
    run.moved = set.moved[0]
    run.rest = rest_of(set, s.rows[row].pid, False)
    set.rest[run.rest] = drain_rest(s.rows[row].pid, pages, pindex)
    if cpu != set.cpu:
        set.drainer = cpu


cdef void see_drain(Beliefs s, int x, int32_t row, int32_t first, bint decays,
                    int cpu) noexcept nogil:
    """A drain from row *first* on (none: 0) is what the last free or tick makes, or should be.

    No probe shows its holds, so all of them are looked at together.  What a hidden task has made of
    count no search finds out.
    """
    cdef pageset *set = &s.sets[x]
    cdef operation *last = &set.log[set.log_n - 1] if set.log_n else &s.nowhere
    cdef int seen, said = SAID_NONE, want = 0, pindex = last.pindex
    cdef bint searched = cpu == set.cpu and not count_open(set)
    cdef int64_t p
    cdef sight g = sight(NULL, ANYTHING, 0)
    find_drain(s, x, first, cpu)
    set.undecided = False
    unfold(set)
    if set.n:
        want = max(set.s[0].due, 0)
    if last.op == OP_FREE or last.op == OP_TICK:
        last.got = first if s.nr_orders else NO_DRAIN
        last.since = s.last_drained
    if set.cut:
        # Only its pages are followed: it begins where its first one is.
        said = SAID_NOTHING
        p = index_of(s, s.rows[first].a)
        pindex = list_shown(s, x, p, &s.rows[first], 0) if p >= 0 else 0
    elif last.op == OP_FREE or last.op == OP_TICK:
        said = said_of_drain(s, x, row, first, last)
    seen = pages_of(s)
    if said == SAID_NONE and seen and (
            gives_batch(s, x, row) if decays and s.node_of_cpu[set.cpu] != s.zones[set.zone].node
            else not (cpu == set.cpu and given_back(s, x, last, seen))
            and emptied(s, x, row, seen, cpu != set.cpu)):
        said = SAID_LATE
        pindex = 0
    if said == SAID_NONE and (last.op == OP_FREE or last.op == OP_TICK) and searched \
            and reconsider(s, x, row, &g):
        said = SAID_LATE
    if said == SAID_NONE and seen and searched and not given_back(s, x, last, seen) \
            and emptied(s, x, row, seen, True):
        said = SAID_LATE
        pindex = 0
    if said == SAID_NONE:
        if off_by_unseen(s, x, row, last, want, seen):
            said = SAID_LATE
        else:
            differ(s, row, D_DRAIN_SIZE if want and seen else D_DRAIN_MISSING if want
                   else D_DRAIN_UNEXPECTED, x, want, seen)
        failed(s, x, row)
    if not seen:
        return
    if said == SAID_ALL:
        set.high_before = 0     # high is borne out, whatever it was assumed from
        if last.op == OP_FREE:  # a tick's has nothing to do with alloc_factor
            set.borne = row
    # High that was set far below shows that there are as many, not how many there are.
    set.above = set.above and (set.n == 0 or set.s[0].pcp.count > set.s[0].threshold)
    if said != SAID_NONE and last.op == OP_FREE and last.order == 0 and not set.above:
        set.counted, set.vague = row, False     # larger blocks show it only to their size
    if last.op == OP_FREE and pindex == last.pindex:
        no_longer_low(&s.zones[set.zone], s.last_drained)
    drain_began(s, x, row, seen, pindex, said, cpu)


cdef void tick(Beliefs s, int x, int32_t row) noexcept nogil:
    """decay_pcp_high(), whose drain, if there is one, begins with this row."""
    cdef operation *e = begin_op(s, x, row, OP_TICK, 0)
    cdef bint drains = s.rows[row].event == EV_PCPU_DRAIN
    s.sets[x].vague |= s.sets[x].raised
    s.sets[x].ticked = row
    e.got = UNDECIDED
    do_op(s, x, e)
    see_drain(s, x, row, row if drains else NO_DRAIN, True, s.sets[x].cpu)


cdef bint put_late(Beliefs s, int32_t row, int32_t told, int32_t page, int order) noexcept nogil:
    """Do something only with a later line, unless something else waits for that already."""
    cdef int k
    for k in range(s.nr_late):
        if s.late[k].row == row:
            return False
    if s.nr_late == MAX_LATE:
        return False
    s.late[s.nr_late] = late_act(row, told, page, order, -1)
    s.nr_late += 1
    return True


cdef void vmstat_update(Beliefs s, int32_t row) noexcept nogil:
    """The vmstat worker goes through the zones of its CPU; no probe shows decay_pcp_high()."""
    cdef int cpu = s.rows[row].cpu
    cdef int z, x
    cdef int32_t d = s.link[row].own_next, j
    for z in range(s.nr_zones):
        x = z * s.cpus + cpu
        if s.sets[x].first.batch <= 0:
            continue
        j = find_drain(s, x, d, cpu)
        if s.nr_orders:
            # When it comes to that row; any page tells the zone.
            put_late(s, d, row, <int32_t>-max(index_of(s, s.rows[d].a), 1), 0)
            d = j
        else:
            tick(s, x, row)


cdef bint empties_set(Beliefs s, int x, int32_t row) noexcept nogil:
    """Whether the drain from this row on is of all that a pageset holds."""
    cdef pageset *set = &s.sets[x]
    cdef int k, seen
    if not set.used:
        open_states(s, x, &set.first, True, s.zones[set.zone].maybe)
    unfold(set)
    find_drain(s, x, row, s.rows[row].cpu)
    seen = pages_of(s)
    for k in range(set.n):
        if set.s[k].pcp.count == seen:
            return True
    return False


cdef void drain_goes_on(Beliefs s, int64_t p, int32_t row) noexcept nogil:
    """A block is drained though nothing on this CPU drains, and no probe shows when one begins."""
    cdef cpu_run *run = &s.runs[s.rows[row].cpu]
    cdef int x = (s.page[p].where - 1) >> 4 if s.page[p].where else set_of(s, p, s.rows[row].cpu)
    cdef pageset *set = &s.sets[x]
    cdef int k, rest
    if not s.page[p].where and not set.undecided and not empties_set(s, x, row):
        for k in range(s.cpus):
            if empties_set(s, x - set.cpu + k, row):
                x += k - set.cpu
                break
        set = &s.sets[x]
    rest = rest_of(set, s.rows[row].pid, True)
    if rest >= 0 and not set.undecided:
        # Its task was stopped between two holds of the lock; each begins with the same list.
        run.kind, run.set, run.rest = RUN_DRAIN, x, rest
        run.pindex, run.left = set.rest[rest].pindex, set.rest[rest].left
        run.row, run.moved = row, set.moved[0]
        return
    if not set.used or not set.log_n or set.log[set.log_n - 1].got != UNDECIDED:
        do_op(s, x, begin_op(s, x, row, OP_DRAINED, 0))  # of none yet
    see_drain(s, x, row, row, False, s.rows[row].cpu)


# -- the blocks of a drain -----------------------------------------------------------

cdef bint taken_by_then(Beliefs s, int32_t q, int32_t row) noexcept nogil:
    """Whether a task took this page before what lies above it came, and reports it after *row*."""
    cdef int32_t above = s.page[q].prev
    return in_flight(s, q, row) and (
        above < 0 or s.page[above].pushed > s.link[s.page[q].cursor].own_prev
        or in_flight(s, above, row))


cdef inline int list_shown(Beliefs s, int x, int64_t p, const event_row *r, int i) noexcept nogil:
    """The list that a drain is at, as a page shows that does not come from list *i*."""
    if s.page[p].where and (s.page[p].where - 1) >> 4 == x:
        return (s.page[p].where - 1) & 15
    if not pcp_allowed_order(s.rules.nr_pcp_lists, <int>r.b):
        return i
    return order_to_pindex(s.rules.nr_pcp_lists, pcp_migratetype(<int>r.c), <int>r.b)


cdef void stacks_gone(Beliefs s, cpu_run *run, int32_t row) noexcept nogil:
    """A drain leaves the unmovable list with pages on it: new tasks may have had these."""
    cdef const page_list *lst = &s.sets[run.set].list[0]
    while lst.head >= 0 and stack_of_fork(s, run.set, lst.head, -1, row, run.row, run.moved):
        pass


cdef int next_list(Beliefs s, cpu_run *run, int64_t p, bint unseen, int32_t row) noexcept nogil:
    """The list that free_pcppages_bulk() takes the next block from, page *p* it seems."""
    cdef pageset *set = &s.sets[run.set]
    cdef const event_row *r = &s.rows[row]
    cdef int i = run.pindex, mt = pcp_migratetype(<int>r.c), shown
    cdef bint turn
    if s.rules.drain_by_list and set.list[i].tail == p and not set.open[i]:
        return i    # as it mostly is
    turn = not s.rules.drain_by_list and (run.share == 0 or set.list[i].head < 0)
    if turn:
        i = pindex_after(s.rules.nr_pcp_lists, i)
        run.share += 1
    if not (s.dumped or s.page[p].where):
        shown = list_shown(s, run.set, p, r, i)
        if not unseen or not set.open[shown] and set.hidden > set.shut[shown]:
            return shown    # no line brought it to a list, or to one that was known until then
    for _ in range(s.rules.nr_pcp_lists):
        while set.list[i].tail >= 0 and not set.open[i] and set.list[i].tail != p \
                and taken_by_then(s, set.list[i].tail, row):
            # An interrupt drains before the task below it reports.
            take_shown(s, run.set, set.list[i].tail, row)
        if i == 0 and set.list[0].tail >= 0 and not (s.holds_told or set.open[0]) \
                and s.page[p].where != 1 + 16 * run.set:
            stacks_gone(s, run, row)
        if set.open[i] and not (
                unseen and not s.page[p].where and pindex_may_hold(i, mt, <int>r.b)):
            # What it drains now was not there before: below that page there is nothing.
            set.open[i], set.shut[i] = False, row
        if set.open[i] or set.list[i].tail >= 0:
            break
        i = pindex_after(s.rules.nr_pcp_lists, i)
        run.share += 1
    if turn:
        run.share = drain_share(&s.rules, run.share, run.left)
    run.share -= 1
    return i


cdef void forget_below(Beliefs s, int x, int i, int32_t p, int32_t row) noexcept nogil:
    """A drain takes what came first: below a page that it takes there is nothing, unless the tail
    comes next, and this page was out of turn."""
    cdef page_list *lst = &s.sets[x].list[i]
    cdef int32_t then = s.link[row].own_next, q
    if s.rows[then].event == EV_PCPU_DRAIN and s.rows[then].a == lst.tail + s.base:
        return
    while s.page[p].where and lst.tail != p:   # a search may find that it had left before
        q = lst.tail
        s.page[q].status = SILENT
        if not has_room(<void **>&s.passed_pages, &s.passed_pages_cap, s.nr_passed_pages + 1,
                        sizeof(passed_page)):
            s.broken = True
            return
        s.passed_pages[s.nr_passed_pages] = passed_page(q, row)
        s.nr_passed_pages += 1
        if s.holds_told:
            unlink_page(s, q)   # a probe has told of count
        elif s.page[q].pushed < s.sets[x].hidden:
            leave_hidden(s, x, q, row)
        else:
            leave(s, x, q, row, OP_SILENT)


cdef void joined_later(Beliefs s, int x, int i, int32_t p, int32_t row) noexcept nogil:
    """A drain takes *p*, and not the tail: an interrupt had come between mm_page_free of that and
    its list, and freed *p*.  The tail's page lies above all that came before its task went on."""
    cdef page_list *lst = &s.sets[x].list[i]
    cdef int32_t q = lst.tail
    while q >= 0 and q != p and s.page[p].where == s.page[q].where \
            and s.page[p].pushed > s.page[q].pushed and on_its_way(s, q, s.page[p].pushed):
        join_late(s, x, i, q, row)
        q = lst.tail


cdef inline void drain_pages(Beliefs s, int x, int32_t row, int pages) noexcept nogil:
    """So many pages leave the lists for the buddy lists."""
    cdef pageset *set = &s.sets[x]
    cdef operation *e
    if set.log_n and set.log[set.log_n - 1].op == OP_DRAINED:
        set.log[set.log_n - 1].got += pages
        add_pages(set, -pages)
        return
    e = begin_op(s, x, row, OP_DRAINED, 0)
    e.got = pages
    do_op(s, x, e)


cdef void drained(Beliefs s, int32_t row) noexcept nogil:
    """mm_page_pcpu_drain."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = page_at(s, row)
    cdef cpu_run *run = &s.runs[r.cpu]
    cdef pageset *set
    cdef traced_page *page
    cdef int32_t q
    cdef int i, mt
    cdef bint unseen
    s.t.drained_pages.total += 1
    if p < 0:
        return
    page = &s.page[p]
    unseen = page.status == UNSEEN
    page.status = BUDDY
    move_free(s, p, <int64_t>1 << r.b, row)
    if run.kind != RUN_DRAIN or (not s.holds_told and (
            run.left <= 0 or s.sets[run.set].rest[run.rest].pid != r.pid)):
        if s.holds_told:
            differ(s, row, D_DRAIN_UNEXPECTED, -1, 0, r.a)
            if page.where:
                leave(s, (page.where - 1) >> 4, <int32_t>p, row, OP_SILENT)
            return
        drain_goes_on(s, p, row)
    set = &s.sets[run.set]
    if run.left <= 0:
        differ(s, row, D_DRAIN_LONG, run.set, run.want, r.a)
        run.bad = 1
    i = next_list(s, run, p, unseen and not s.dumped, row)
    run.pindex = i
    run.left -= 1 << r.b
    set.rest[run.rest].left -= 1 << r.b
    if run.left <= 0:
        set.drainer = -1
    if set.list[i].tail != p:
        joined_later(s, run.set, i, <int32_t>p, row)
    q = set.list[i].tail
    mt = s.block_type[p >> 9] if s.rules.drain_block_type else page.cached
    if set.open[i] and unseen:
        s.t.drained_pages.inferred += 1
        was_there(s, <int32_t>p, run.set, i, True)
    elif q != p or pindex_to_order(i) != r.b:
        # It may have been drained: a page at the end of its list need not have been at its head.
        if by_hidden(s, run.set, row, s.page[q].pushed if q >= 0 else s.nr_rows) \
                or (not page.where and untold_since(s, p, row, set.hidden)
                    and by_hidden(s, run.set, row, 0)):
            s.t.drained_pages.explained += 1
        else:
            differ(s, row, D_DRAIN_PAGE, run.set, q + s.base if q >= 0 else -1, r.a)
        run.bad = 1
        run.pindex = list_shown(s, run.set, p, r, i)
        if page.where == 1 + 16 * run.set + i:
            forget_below(s, run.set, i, <int32_t>p, row)
        elif not page.where and not s.holds_told and not 0 < set.hidden < set.counted:
            drain_pages(s, run.set, row, -(1 << r.b))   # it had joined without a line
    elif mt != r.c if mt >= 0 else not pindex_may_hold(i, pcp_migratetype(<int>r.c), <int>r.b):
        differ(s, row, D_TYPE, run.set, mt, r.c)
        run.bad = 1
    else:
        if run.told:
            s.t.drained_pages.explained += 1
        else:
            s.t.drained_pages.foreseen += 1
    set.moved[i] = row
    if page.where:
        unlink_page(s, <int32_t>p)
    if s.rules.drain_block_type and not s.dumped:
        s.block_type[p >> 9] = <int8_t>r.c
    drain_pages(s, run.set, row, 1 << r.b)

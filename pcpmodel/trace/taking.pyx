# cython: auto_pickle=False, autotestdict=False
"""What leaves a list, and what comes from the buddy lists: allocations and refills.

A list gives what came last.  mm_page_alloc is written after the lists were unlocked, so what lies
above the page that it tells of has to be accounted for (`uncover`).  Where no dump told of the
start, a page that no line told of before was on its list then.  alloc_pages_bulk() tells of none of
its pages: so the stacks of new tasks leave (until v6.18).
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int8_t, uint8_t, uint64_t

from pcpmodel.kernel.lists cimport (
    order_to_pindex, pcp_allowed_order, pindex_may_hold, pindex_to_only_type, pindex_to_order,
)
from pcpmodel.kernel.pages cimport (
    MIGRATE_MOVABLE, MIGRATE_PCPTYPES, MIGRATE_TYPES, ZONE_BELOW_HIGH, pages_unlikely,
)
from pcpmodel.kernel.pcp cimport pcp_alloc_begin, per_cpu_pages
from pcpmodel.trace.asked cimport ASKED_REFILL, ask
from pcpmodel.trace.assumptions cimport *
from pcpmodel.trace.beliefs cimport *
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport *
from pcpmodel.trace.search cimport *
from pcpmodel.trace.work cimport *
from pcpmodel.trace.zone_flags cimport move_free

cdef enum:
    # As `ftrace.ZONES` counts; few ask for the first.
    ZONE_DMA = 0
    ZONE_MOVABLE = 4
    MAX_STACKS = 64     # that left one after the other

# -- what leaves a list --------------------------------------------------------------

cdef int find_bulk(Beliefs s, int pid) noexcept nogil:
    cdef int i
    for i in range(s.nr_bulk):
        if s.bulk[i].pid == pid:
            return i
    return -1


cdef void leave(Beliefs s, int x, int32_t p, int32_t row, int op, int32_t until=0) noexcept nogil:
    """A block leaves its list; *until*: row before which it did, as it lies below what came then.
    """
    cdef int i = (s.page[p].where - 1) & 15
    cdef operation *e = begin_op(s, x, row, op, pindex_to_order(i))
    if not s.page[p].where:
        # It was found to have left earlier.
        s.sets[x].log_n -= e != &s.nowhere
        return
    s.sets[x].moved[i] = row
    e.page = p
    unlink_page(s, p)
    if until:
        do_earlier(s, x, until)
    else:
        do_op(s, x, e)
    settle(s, x, row)


cdef void leave_hidden(Beliefs s, int x, int32_t p, int32_t row) noexcept nogil:
    """A block left for a task of which no line tells; a drain may have borne count out since."""
    if s.page[p].next >= 0:
        s.page[s.page[p].next].exposed = True
    if s.sets[x].hidden < s.sets[x].counted:
        s.sets[x].moved[(s.page[p].where - 1) & 15] = row
        unlink_page(s, p)
    else:
        leave(s, x, p, row, OP_ALLOC)


cdef bint forked_since(Beliefs s, int cpu, int32_t since, int32_t row) noexcept nogil:
    """Whether a new task of this CPU was begun before *row* and told of after *since*."""
    cdef int32_t f = first_from(s.forks, s.forks_of[cpu], s.forks_of[cpu + 1], since + 1)
    return f < s.forks_of[cpu + 1] and s.made_since[s.stack_of[f]] < row


cdef void leave_for_stack(Beliefs s, int x, int32_t p, int32_t row, int32_t until,
                          int32_t f) noexcept nogil:
    """A page left for a new task's stack, that of fork *f* or (-1) of some one: before count was
    borne out, if no task began since."""
    cdef pageset *set = &s.sets[x]
    if s.forks != NULL and s.page[p].pushed < set.counted \
            and not forked_since(s, set.cpu, set.counted, row):
        unlink_page(s, p)
    elif f >= 0 and s.thought_of[s.stack_of[f]] and s.forks[f] > set.counted \
            and s.rows[s.forks[f]].cpu == set.cpu:
        unlink_page(s, p)   # see `forked`
    elif set.unnamed and s.page[p].pushed < set.counted:
        set.unnamed -= 1
        unlink_page(s, p)
    else:
        set.silent += 1
        set.silent_by = row
        leave(s, x, p, row, OP_SILENT, until)


cdef inline void take_one(Beliefs s, int x, int32_t p, int32_t row, int op, int32_t call,
                          int32_t until) noexcept nogil:
    """`take`, for who does so often."""
    cdef traced_page *page = &s.page[p]
    cdef int i = (page.where - 1) & 15
    cdef operation *e = begin_op(s, x, row, op, pindex_to_order(i))
    if until:
        explain(s, row, E_LATE, x, until)
    elif pages_unlikely(not page.where):
        # It was found to have left earlier.
        s.sets[x].log_n -= e != &s.nowhere
        differ(s, row, D_NOT_LISTED, x, 0, p + s.base)
        return
    e.page = p
    work(s, WORK_ALLOC if op == OP_ALLOC else WORK_BULK, p, pindex_to_order(i), i, s.sets[x].cpu,
         call, row)
    s.sets[x].moved[i] = row
    if page.where:
        unlink_page(s, p)
    if until:
        do_earlier(s, x, until)
    else:
        do_op(s, x, e)
    if until or s.sets[x].n != 1:
        settle(s, x, row)


cdef void take(Beliefs s, int x, int32_t p, int32_t row, int op, int32_t call,
               int32_t until) noexcept nogil:
    """A block leaves its list for the caller; *call*: row of the alloc_pages_bulk() it is for.

    *until*: row before which it did, when others were put above it; of both 0: none.
    """
    take_one(s, x, p, row, op, call, until)


cdef void take_shown(Beliefs s, int x, int32_t p, int32_t row) noexcept nogil:
    """A block left its list before *row*; its mm_page_alloc comes later."""
    cdef int i = (s.page[p].where - 1) & 15
    explain(s, row, E_OVERTAKEN, x, s.page[p].cursor)
    take(s, x, p, row, OP_ALLOC, 0, 0)
    await_report(s, p, SHOWN, pindex_to_order(i), pindex_to_only_type(i))


# -- stacks of new tasks -------------------------------------------------------------

cdef void take_stack(Beliefs s, int x, int32_t q, int n, int32_t row, int32_t until,
                     int32_t told, int32_t f) noexcept nogil:
    """So many pages from *q* on left in silence, for fork *f* or (-1) some one; *told*: a line for
    those that none tells of again."""
    cdef int32_t moved = s.sets[x].moved[0], p
    for _ in range(n):
        p = q
        if not s.page[p].where:
            break   # found to have left meanwhile
        q = s.page[q].next
        explain(s, row, E_SILENT, x, s.page[p].cursor or told)
        s.page[p].status = AWAY
        leave_for_stack(s, x, p, row, until, f)
    s.sets[x].moved[0] = moved


cdef int32_t fork_of_refill(Beliefs s, int cpu, int32_t row) noexcept nogil:
    """The new task for which a refill from *row* on is; -1: none, or another line comes before its.
    """
    cdef int32_t j = row, lo
    while j and s.rows[j].event == EV_ZONE_LOCKED:
        j = s.link[j].own_next
    lo = first_from(s.forks, s.forks_of[cpu], s.forks_of[cpu + 1], j)
    if j == row or lo == s.forks_of[cpu + 1] or s.forks[lo] != j or not s.stacks[s.stack_of[lo]]:
        return -1
    return lo


cdef bint has_stack(Beliefs s, int32_t q) noexcept nogil:
    """Whether a list has a whole stack from *q* on."""
    cdef int n = 0
    while q >= 0 and n < STACK_PAGES:
        n += 1
        q = s.page[q].next
    return n == STACK_PAGES


cdef uint8_t hold_back(Beliefs s, int32_t fork, uint8_t pages) noexcept nogil:
    """Say how many pages the stack of a new task (-1: none) may have yet; how many that were."""
    cdef uint8_t left = 0
    if fork >= 0:
        left = s.stacks[s.stack_of[fork]]
        s.stacks[s.stack_of[fork]] = pages
    return left


cdef int stack_of_fork(Beliefs s, int x, int32_t q, int32_t p, int32_t row,
                       int32_t until, int32_t since=-1) noexcept nogil:
    """Pages from *q* on, above *p*, that a new task on this CPU took for its stack without a line;
    takes them, before row *until* (0: now), and says how many.  It was forked after row *since*
    (-1: the last one of a change of the list).

    All at once, but where they are the last ones of the list (*p*: -1): the others come from the
    refill that follows.
    """
    cdef pageset *set = &s.sets[x]
    cdef int32_t f = -1, own, k, told = set.stack_told, j = q
    cdef int n = 0, most = set.stack_left, whole = 0, at = 0
    cdef uint8_t left
    if (s.page[q].where - 1) & 15 or s.forks == NULL:
        return 0
    k = s.page[q].cursor
    if k:
        if s.rows[k].event != EV_FREE:
            return 0
        if stack_from(s, q, p, &at):
            told = k
            whole = STACK_PAGES if at == 1 and (most <= 0 or place_of(s, k)) else 0
        elif place_of(s, k) > 1 and not rest_of_stack(s, k):
            return 0
        else:
            at = 0
    if at > 1:
        most = STACK_PAGES + 1 - at
    elif most < 0 and p >= 0 and not whole:
        most = STACK_PAGES
    elif most <= 0 or whole:
        # It is reported once the memory of its parent is copied.  What is freed next, or never told
        # of again, though nobody tells who took it, may have left before what came last.
        own = fork_of_refill(s, set.cpu, row) if p < 0 else -1
        if own >= 0 and not has_stack(s, q):
            f = own
        else:
            left = hold_back(s, own, 0)
            f = fork_between(
                s, set.cpu, set.moved[0] if since < 0 else since, row, row + COPIED, whole)
            if f < 0:
                f = fork_between(s, set.cpu, s.page[q].pushed, row, row + COPIED, whole)
            hold_back(s, own, left)
        if f < 0 and not (whole and place_of(s, s.page[q].cursor)):
            return 0
        if f >= 0:
            told = s.forks[f]
        most = whole or s.stacks[s.stack_of[f]]
    while j >= 0 and j != p and n < most:
        k = s.page[j].cursor
        if k and s.rows[k].event != EV_FREE:
            return 0
        j = s.page[j].next
        n += 1
    if n == 0 or (n < most and p >= 0 and set.stack_left >= 0):
        return 0
    set.stack_left = 0
    if f >= 0 and set.open[0]:
        # The others lay below, where nothing is known of the list yet: see `forked`.
        s.stacks[s.stack_of[f]] = <uint8_t>(most - n)
    elif f >= 0 or (p < 0 and not set.open[0]):
        set.stack_left = most - n
        set.stack_told = told
        if f >= 0:
            s.stacks[s.stack_of[f]] = 0
    take_stack(s, x, q, n, row, until, told, f)
    return n


cdef bint one_stack(Beliefs s, const int32_t *top) noexcept nogil:
    """Whether four pages, the last one first, may be of one stack: freed together, or never."""
    cdef int32_t k = s.page[top[0]].cursor
    cdef int n
    for n in range(STACK_PAGES):
        if s.page[top[-n]].cursor != k:
            return False
        if k:
            k = freed_after(s, k) or -1
    return True


cdef int plan_in_turn(Beliefs s, int x, int32_t p, int32_t row, int32_t *first,
                      int32_t *fork) noexcept nogil:
    """Stacks that have left of what lies above *p*, as they left: of each the page on top, and the
    new task; -1 unless that is all, and *fork* those that were found."""
    cdef int32_t left[STACK_PAGES * MAX_STACKS]
    cdef int32_t q = s.page[p].prev, f, since, until
    cdef int n = 0, stacks = 0
    while True:
        until = s.page[q].pushed if q >= 0 else row
        while n >= STACK_PAGES and one_stack(s, &left[n - 1]):
            since = s.page[left[n - 1]].pushed
            if s.link[since].next_cpu == until and s.rows[since].pid == s.rows[until].pid:
                break   # nobody else had the CPU
            f = fork_between(s, s.sets[x].cpu, since, until, until + COPIED, STACK_PAGES)
            if f < 0:
                break
            first[stacks], fork[stacks] = left[n - 1], f
            stacks += 1
            n -= STACK_PAGES
        fork[stacks] = -1
        if q < 0:
            return -1 if n else stacks
        if n + STACK_PAGES * stacks == STACK_PAGES * MAX_STACKS or s.page[q].pushed < 0 \
                or (s.page[q].cursor and not goes_silently(s, q, row)):
            return -1
        left[n] = q
        n += 1
        q = s.page[q].prev


cdef void stacks_in_turn(Beliefs s, int x, int32_t p, int32_t row) noexcept nogil:
    """If all that lies above *p* has left for stacks, each whole and of a task of its own: take it.

    What came after a stack had left lies above what had lain below that, and may be of one stack
    with it.  So the pages are gone through as they came, and the stacks as they left.
    """
    cdef pageset *set = &s.sets[x]
    cdef int32_t first[MAX_STACKS]
    cdef int32_t fork[MAX_STACKS + 1]
    cdef int stacks = plan_in_turn(s, x, p, row, first, fork), k = 0
    # Of one alone the lines show more (`stack_of_fork`), unless it has pages that are to be of
    # another one, which a refill brought the rest of.
    if stacks < 1 or stacks < 2 and not set.stack_left:
        while fork[k] >= 0:
            hold_back(s, fork[k], STACK_PAGES)
            k += 1
        return
    set.stack_left = 0
    for k in range(stacks):
        take_stack(s, x, first[k], STACK_PAGES, row, 0, s.forks[fork[k]], fork[k])


cdef void stacks_below(Beliefs s, int x, int64_t p, int32_t row) noexcept nogil:
    """Before *p* joins the unmovable list: pages that must have left it in silence by now.

    A list gives what came last, and drains what came first.  A page below *p* whose next line is a
    free has left before *p* came, if *p* is drained, or still there when that line comes.
    """
    cdef int32_t q = s.sets[x].list[0].head, j = s.page[p].cursor
    if q < 0 or j <= row or not goes_silently(s, q, row):
        return
    if s.rows[j].event != EV_PCPU_DRAIN and (s.rows[j].event != EV_ALLOC
                                             or j < s.page[q].cursor):
        return
    while q >= 0 and goes_silently(s, q, row):
        q = s.page[q].next
    while s.sets[x].list[0].head != q:
        if not stack_of_fork(s, x, s.sets[x].list[0].head, q, row, 0):
            return


cdef void unknown(Beliefs s, int x, int32_t row, int least, int most) noexcept nogil:
    """So many of the pages that no line told of yet may have left."""
    cdef operation *e = begin_op(s, x, row, OP_UNKNOWN, 0)
    e.begin = <uint8_t>least
    e.got = most + 1
    do_op(s, x, e)
    settle(s, x, row)


cdef void stack_before_refill(Beliefs s, int x, int32_t row) noexcept nogil:
    """Before what is not known of the unmovable list ends with a refill: a new task of which a line
    tells after it may have its stack from there."""
    cdef int32_t f = fork_between(s, s.sets[x].cpu, row, row, row + COPIED, 0)
    cdef int left = s.stacks[s.stack_of[f]] if f >= 0 else 0
    if left:
        unknown(s, x, row, left, left)
        s.thought_of[s.stack_of[f]] = True
    if 0 < left < STACK_PAGES:
        # Its others were on the list; the refill brought it none.
        s.stacks[s.stack_of[f]] = 0


cdef void stack_of_refill(Beliefs s, int x, int i, int32_t row) noexcept nogil:
    """A refill whose first page no line reports: is it for the stack of a new task?

    The first pages of that may have been there already, and unknown.
    """
    cdef pageset *set = &s.sets[x]
    cdef int32_t then = s.link[row].chain
    cdef int at
    if s.rows[then].event == EV_ZONE_LOCKED:
        then = s.link[then].chain   # of a fallback
    if i == 0 and set.open[i] and not set.cut \
            and fork_between(s, set.cpu, row, row, row + COPIED, 0) >= 0:
        set.stack_told = then or row
        at = place_of(s, then)
        if at:
            set.stack_left = STACK_PAGES + 1 - at
            if at > 1:
                unknown(s, x, row, at - 1, at - 1)
        else:
            set.stack_left = -1
            unknown(s, x, row, 1, STACK_PAGES - 1)


cdef void forked(Beliefs s, int zone, int32_t row) noexcept nogil:
    """A new task: what is left of its stack may have come from what is not known of the list."""
    cdef int cpu = s.rows[row].cpu, x = zone * s.cpus + cpu
    cdef int left
    cdef int32_t f
    if s.forks == NULL or not s.sets[x].used or not s.sets[x].open[0]:
        return
    f = first_from(s.forks, s.forks_of[cpu], s.forks_of[cpu + 1], row)
    if f < s.forks_of[cpu + 1] and s.stacks[s.stack_of[f]]:
        left = s.stacks[s.stack_of[f]]
        unknown(s, x, row, left, left)
        s.thought_of[s.stack_of[f]] = True


# -- allocations ---------------------------------------------------------------------

cdef inline bint may_have_gone_past(Beliefs s, int32_t q) noexcept nogil:
    """Whether a freed page may have gone straight to the buddy lists, and nothing shows it since.
    """
    cdef int32_t j = freed_at(s, q)
    return j >= 0 and not s.past_told and not s.page[q].cursor \
        and (under_locks(&s.rows[j]) or s.locks_sleep)


cdef inline bint in_one_interrupt(Beliefs s, int32_t j, int32_t k) noexcept nogil:
    """Whether row *k* is the next of its CPU, in the interrupt of row *j*: no task ran between.

    One that comes later may be of another interrupt, after which its task had gone on.
    """
    return j >= 0 and s.rows[j].flags & IRQ and s.link[j].next_cpu == k \
        and s.rows[k].flags == s.rows[j].flags and s.rows[k].pid == s.rows[j].pid \
        and s.rows[k].time - s.rows[j].time < AT_ONCE


cdef int32_t joined_by(Beliefs s, int32_t j) noexcept nogil:
    """The row by which what is freed with row *j*, before an interrupt came, has joined its list.

    Where preemption is off by then its task goes on before any other does.
    """
    cdef int32_t k = s.link[j].next_cpu
    cdef bint in_irq = s.rows[j].flags & IRQ != 0   # what is no deeper is of the same one
    if not interrupts(&s.rows[k], &s.rows[j]) or not s.rows[k].flags & FL_KNOWN \
            or s.rows[k].flags & FL_DEPTH <= (s.rows[j].flags & FL_DEPTH if in_irq else 0):
        return s.link[j].own_next
    for _ in range(MAX_BURST):
        if not interrupts(&s.rows[k], &s.rows[j]):
            break
        k = s.link[k].next_cpu
    return k or s.link[j].own_next


cdef bint joins_after(Beliefs s, int32_t p, int32_t row) noexcept nogil:
    """Whether a freed page may have joined its list after *row*, its task having been stopped."""
    cdef int32_t j = freed_at(s, p)
    return j >= 0 and joined_by(s, j) > row and not seen_over(s, j, row)


cdef void join_late(Beliefs s, int x, int i, int32_t q, int32_t row) noexcept nogil:
    """What is freed came to its list only when its task went on: above all that came before."""
    cdef int32_t then = joined_by(s, s.page[q].pushed), above = s.page[q].prev
    unlink_page(s, q)
    while above >= 0 and s.page[above].pushed < then:
        above = s.page[above].prev
    explain(s, s.page[q].pushed, E_DELAYED, x, then)
    insert_below(s, x, i, q, above)


cdef bint uncover(Beliefs s, int x, int i, int32_t p, int32_t row, int32_t *until) noexcept nogil:
    """Account for what lies above *p* (all of the list: -1); false if nothing does for one.

    ``until``: the first row with which one joined after the task that reports *p*, or a page below
    all that is known, was last seen; it has had that before, then.
    """
    cdef pageset *set = &s.sets[x]
    cdef int32_t q = set.list[i].head, above, stays = -1
    cdef int32_t since = s.link[row].own_prev
    cdef bint good = True
    if p < 0 and (s.rows[row].event != EV_ALLOC or not since):
        since = s.nr_rows
    until[0] = s.nr_rows
    if i == 0 and p >= 0 and q != p and s.forks != NULL:
        stacks_in_turn(s, x, p, row)
        q = set.list[i].head
    while q >= 0 and q != p:
        above = q
        q = s.page[q].next
        if not s.page[above].where:
            continue    # found to have left meanwhile
        if above == set.list[i].head and stack_of_fork(s, x, above, p, row, 0):
            q = set.list[i].head
        elif p >= 0 and s.page[above].pushed > s.page[p].pushed \
                and joins_after(s, p, s.page[above].pushed):
            # An interrupt came between mm_page_free of *p* and the list.
            explain(s, s.page[p].pushed, E_DELAYED, x, joined_by(s, s.page[p].pushed))
        elif s.page[above].pushed > since and not (
                q == p and p >= 0
                and in_one_interrupt(s, s.page[p].pushed, s.page[above].pushed)):
            until[0] = min(until[0], s.page[above].pushed)
            stays = above
        elif in_flight(s, above, row):
            take_shown(s, x, above, row)
        elif stays >= 0 and stack_of_fork(s, x, above, p, row, until[0]):
            q = s.page[stays].next if s.page[stays].where else set.list[i].head
        elif may_be_delayed(s, above, row):
            delay(s, above, row)
        elif p >= 0 and on_its_way(s, above, since) \
                and not s.rows[s.page[above].pushed].flags & IRQ \
                and s.link[s.page[above].pushed].own_next != row:
            # It came once its task, another one, went on, when *p* had left.
            until[0] = min(until[0], s.link[s.page[above].pushed].own_next)
            join_late(s, x, i, above, row)
            stays = above
        elif may_have_gone_past(s, above):
            went_past(s, above, row)
        elif taken_by_hidden(s, x, above, row):
            s.page[above].status = AWAY
            leave_hidden(s, x, above, row)
        else:
            differ(s, row, D_NOT_HEAD if p >= 0 else D_LOST_ALLOC, x, above + s.base,
                   s.rows[row].a if p >= 0 else above + s.base)
            good = False
            s.page[above].status = SILENT
            leave(s, x, above, row, OP_SILENT)
    return good or not s.dumped


cdef void count_report(Beliefs s, int32_t row, int64_t p, bint explained) noexcept nogil:
    """The mm_page_alloc of a block that has left already: of the order and type asked for?"""
    cdef const event_row *r = &s.rows[row]
    cdef int order = s.page[p].status >> 4
    cdef int mt = s.page[p].cached
    if order != r.b:
        differ(s, row, D_ORDER, -1, order, r.b)
    elif mt >= 0 and mt != r.c:
        differ(s, row, D_TYPE, -1, mt, r.c)
    else:
        s.t.allocations.explained += explained
        s.t.allocations.foreseen += not explained


cdef int64_t switched(Beliefs s, int32_t row, int cpu) noexcept nogil:
    """The line of the sched_switch with which a task left a CPU since its line before *row*, where
    it got that of *row* with the last one; or 0."""
    cdef int64_t task = s.rows[row].pid, since = task << 32 | line_before(s, row)
    cdef int64_t lo = switches_until(s, row)
    if lo == 0 or s.rows[row].flags & IRQ or s.switches[lo - 1] >> 32 != task \
            or cpu_of_switch(&s.rows[<int32_t>s.switches[lo - 1]], task) != s.rows[row].cpu:
        return 0
    while lo > 0 and s.switches[lo - 1] > since:
        lo -= 1
        if cpu_of_switch(&s.rows[<int32_t>s.switches[lo]], task) == ~cpu:
            return s.rows[<int32_t>s.switches[lo]].line
    return 0


cdef bint moved(Beliefs s, int32_t row, int x, int cpu, bint *explained_ret) noexcept nogil:
    """A page of this CPU is reported from another one: was its task moved meanwhile?"""
    cdef int32_t k = moved_from(s, row, cpu)
    cdef int64_t line = s.rows[k].line if k else switched(s, row, cpu)
    if line:
        explain_by(s, row, E_MIGRATED, x, line)
        explained_ret[0] = True
        return True
    differ(s, row, D_MIGRATED, x, cpu, s.rows[row].cpu)
    return False


cdef inline void reported_of_list(Beliefs s, int32_t row, int32_t p, bint explained) noexcept nogil:
    """The mm_page_alloc of a block that the model has on a list."""
    cdef const event_row *r = &s.rows[row]
    cdef traced_page *page = &s.page[p]
    cdef int x = (page.where - 1) >> 4, i = (page.where - 1) & 15
    cdef pageset *set = &s.sets[x]
    cdef int64_t told = s.helped - explained
    cdef bint good = True
    cdef int32_t k = s.nr_rows
    if pages_unlikely(set.cpu != r.cpu):
        good = moved(s, row, x, set.cpu, &explained)
    if pages_unlikely(not pindex_may_hold(i, <int>r.c, <int>r.b)):
        differ(s, row, D_TYPE, x, i, order_to_pindex(s.rules.nr_pcp_lists, <int>r.c, <int>r.b))
        good = False
    if pages_unlikely(set.list[i].head != p):
        good = uncover(s, x, i, p, row, &k) and good
    if pages_unlikely(k < s.nr_rows and page.where):
        take(s, x, p, row, OP_ALLOC, 0, k)
    else:
        take_one(s, x, p, row, OP_ALLOC, 0, 0)
    if s.helped != told:
        s.t.allocations.explained += good
    else:
        s.t.allocations.foreseen += good


cdef inline bint gives_unseen(Beliefs s, int x, int i, int32_t row) noexcept nogil:
    """Whether nothing is known of a list but that there may be more: what lies below comes next."""
    cdef int32_t head = s.sets[x].list[i].head
    return s.sets[x].open[i] and (head < 0 or in_flight(s, head, row))


cdef int32_t on_top(Beliefs s, int x, int i, int32_t row) noexcept nogil:
    """The row with which the head of a list joined it; 0: it has none."""
    cdef int32_t q = s.sets[x].list[i].head
    while q >= 0 and in_flight(s, q, row):
        q = s.page[q].next
    return max(s.page[q].pushed, 0) if q >= 0 else 0


cdef void taken_elsewhere(Beliefs s, int32_t p, int cpu, int32_t told, int32_t row) noexcept nogil:
    """A page that no line told of leaves the list of a CPU for a task that lost it then, and tells
    of it, with row *told*, on another one."""
    cdef const event_row *r = &s.rows[told]
    cdef int x = set_of(s, p, cpu), i
    cdef int64_t line = switched(s, told, cpu)
    cdef operation *e
    if not line or s.page[p].status != UNSEEN or s.page[p].where \
            or not pcp_allowed_order(s.rules.nr_pcp_lists, <int>r.b) or r.c >= MIGRATE_PCPTYPES:
        return
    i = order_to_pindex(s.rules.nr_pcp_lists, <int>r.c, <int>r.b)
    if not gives_unseen(s, x, i, row):
        return
    while s.sets[x].list[i].head >= 0:
        take_shown(s, x, s.sets[x].list[i].head, row)
        if not gives_unseen(s, x, i, row):
            return
    explain_by(s, told, E_MIGRATED, x, line)
    was_there(s, p, x, i, False)
    await_report(s, p, SHOWN, <int>r.b, <int>r.c)
    s.sets[x].moved[i] = row
    e = begin_op(s, x, row, OP_ALLOC, <int>r.b)
    do_op(s, x, e)
    settle(s, x, row)


cdef int first_set(Beliefs s, int x, int i, int32_t p, int32_t row) noexcept nogil:
    """The pageset of which a page is reported that no line told of before: *x*, of the CPU of that
    line, but where it would lie below what came since, or nothing unknown is there, and the task
    was moved meanwhile."""
    cdef int32_t before = line_before(s, row)
    cdef int y
    if not before or s.rows[before].cpu == s.rows[row].cpu or s.page[p].status != UNSEEN \
            or gives_unseen(s, x, i, row):
        return x
    y = set_of(s, p, s.rows[before].cpu)
    if not moved_from(s, row, s.rows[before].cpu) or not (
            gives_unseen(s, y, i, row) or (s.sets[y].open[i] and not s.sets[x].open[i])):
        return x
    explain(s, row, E_MIGRATED, y, before)
    return y


cdef void reported_unseen(Beliefs s, int32_t row, int32_t p) noexcept nogil:
    """The mm_page_alloc of a block of which no line has told: was it on its list at the start?"""
    cdef const event_row *r = &s.rows[row]
    cdef bint listed = pcp_allowed_order(s.rules.nr_pcp_lists, <int>r.b) and r.c < MIGRATE_PCPTYPES
    cdef int x, i
    cdef int32_t k
    cdef operation *e
    x = set_of(s, p, r.cpu)
    if not listed:
        if s.dumped or s.page[p].status != UNSEEN \
                or pcp_allowed_order(s.rules.nr_pcp_lists, <int>r.b):
            differ(s, row, D_NOT_LISTED, x, 0, r.a)
        return
    i = order_to_pindex(s.rules.nr_pcp_lists, <int>r.c, <int>r.b)
    x = first_set(s, x, i, p, row)
    k = s.nr_rows
    if s.page[p].status == UNSEEN and not s.sets[x].open[i] \
            and s.sets[x].shut[i] > s.link[row].own_prev:
        # It was there when the list was refilled first, if this task had not taken it by then.
        k = s.sets[x].shut[i]
        explain(s, k, E_OVERTAKEN, x, row)
        s.t.allocations.inferred += 1
        was_there(s, p, x, i, False)
    elif s.page[p].status != UNSEEN or not s.sets[x].open[i]:
        if untold_since(s, p, row, s.sets[x].hidden) and by_hidden(s, x, row, on_top(s, x, i, row)):
            s.t.allocations.explained += 1
            if s.sets[x].list[i].head < 0:
                s.sets[x].open[i] = True    # a refill of its own: there may be others
        else:
            differ(s, row, D_NOT_LISTED, x, 0, r.a)
        if not 0 < s.sets[x].hidden < s.sets[x].counted:
            e = begin_op(s, x, row, OP_DRAINED, 0)
            e.got = -(1 << r.b)     # it had joined without a line
            do_op(s, x, e)
    else:
        uncover(s, x, i, -1, row, &k)
        s.t.allocations.inferred += 1
        was_there(s, p, x, i, False)
    s.sets[x].moved[i] = row
    e = begin_op(s, x, row, OP_ALLOC, <int>r.b)
    if k < s.nr_rows:
        if k != s.sets[x].shut[i]:
            explain(s, row, E_LATE, x, k)
        do_earlier(s, x, k)
    else:
        do_op(s, x, e)
    settle(s, x, row)


cdef void doubt_it(Beliefs s, int x, int32_t row) noexcept nogil:
    """A page was said to have left before, as count showed.  If it is taken now, a hidden task has
    taken another one then; what comes will tell."""
    do_op(s, x, begin_op(s, x, row, OP_MAYBE, <int>s.rows[row].b))
    settle(s, x, row)


cdef void reported(Beliefs s, int32_t row, bint explained) noexcept nogil:
    """mm_page_alloc."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p
    cdef traced_page *page
    cdef int status, k
    cdef int32_t q
    if r.a < 0:
        return
    s.t.allocations.total += 1
    p = page_at(s, row)
    if p < 0:
        return
    page = &s.page[p]
    status = page.status & 15
    if TAKEN <= status <= DOUBTED:
        q = line_before(s, row)
        if status == TAKEN and q and EV_ALLOC <= s.rows[q].event <= EV_FREE_BATCHED:
            # Who has a block reports it before all else.
            differ(s, row, D_REPORTED, -1, 0, r.a)
        else:
            # Foreseen is that some page had to go to this task; ``blocks`` compares which.
            explained = status != TAKEN
            if status == TAKEN and q and s.rows[q].cpu != r.cpu \
                    and not moved(s, row, -1, s.rows[q].cpu, &explained):
                page.status = <uint8_t>(AWAY | r.b << 4)
                return
            count_report(s, row, p, explained)
            if status == DOUBTED:
                doubt_it(s, set_of(s, p, s.rows[page.pushed].cpu), row)
    elif page.where:
        reported_of_list(s, row, <int32_t>p, explained)
        status = TAKEN
    else:
        reported_unseen(s, row, <int32_t>p)
    page.status = <uint8_t>(AWAY | r.b << 4)
    if s.nr_bulk and status == TAKEN:
        k = find_bulk(s, r.pid)
        if k >= 0 and not r.flags & IRQ:
            s.bulk[k].taken += 1


# -- refills -------------------------------------------------------------------------

cdef bint more_follows(Beliefs s, int32_t row, int order) noexcept nogil:
    """Whether the same CPU goes on taking blocks of this order from the buddy lists."""
    cdef int32_t j = s.link[row].next_cpu
    if not j or s.rows[j].b != order:
        return False
    return s.rows[j].event == EV_ZONE_LOCKED \
        or (s.rows[j].event == EV_EXTFRAG and s.rows[j].a != s.rows[row].a)


cdef bint exhausted(Beliefs s, int x, operation *e, int want, int32_t last) noexcept nogil:
    """Whether a refill got less than it asked for because the zone had no more, as a probe tells.
    """
    cdef int32_t j = next_flags(s, x, last)
    cdef zone_info *z = &s.zones[s.sets[x].zone]
    cdef int64_t left = z.nr_free
    if s.holds_told:
        if j < 0:
            return False
        left = s.probes[s.rows[j].probe * P_COLUMNS + P_NR_FREE]
    elif z.low < e.row:
        j = z.low
        left -= e.got << e.order
    else:
        return False
    if not left < max(128, (want - e.got) << e.order):
        return False
    e.cut = 1
    explain(s, e.row, E_EXHAUSTED, x, j)
    return True


cdef bint some_want(pageset *set, int got) noexcept nogil:
    """Whether a state of the lists has just asked for so many blocks."""
    cdef int k
    unfold(set)
    for k in range(set.n):
        if set.s[k].due == got:
            return True
    return False


cdef void failed(Beliefs s, int x, int32_t row) noexcept nogil:
    """No state is as it was seen, and nothing explains it; go on."""
    if s.dumped:
        checkpoint(s, x, row)
    else:
        reopen(s, x, row)


cdef bint doubled(const pageset *set, int blocks) noexcept nogil:
    """Whether a refill asks for as much as alloc_factor says, and count has no part in it."""
    cdef int batch = set.s[0].pcp.batch
    while 0 < batch < blocks:
        batch <<= 1
    return batch == blocks


cdef int32_t borne_for(const pageset *set, int want, int got) noexcept nogil:
    """The last row that bore out what makes a refill ask for so much, and not for so much.

    Where it ends at high, that is count too, which drains of large blocks do not bear out.
    """
    if not count_open(set) and doubled(set, want) and doubled(set, got):
        return set.borne
    return set.counted


cdef void asks_for(Beliefs s, pageset *set, int want, int got) noexcept nogil:
    """nr_pcp_alloc() raises high by as many pages as it asks for: not *want*, but *got*."""
    cdef int k
    cdef per_cpu_pages *pcp
    unfold(set)
    for k in range(set.n):
        pcp = &set.s[k].pcp
        if s.rules.high_min_max and pcp.high < pcp.high_max \
                and not set.s[k].zone_flags & ZONE_BELOW_HIGH:
            pcp.high = min(pcp.high + got - want, pcp.high_max)


cdef void begin_refill(Beliefs s, int x, int i, int order, int32_t row, int asked) noexcept nogil:
    """A list is empty, or what is left on it has been taken already; *asked*: blocks, -1 not told.
    """
    cdef pageset *set = &s.sets[x]
    cdef cpu_run *run = &s.runs[set.cpu]
    cdef const event_row *r = &s.rows[row]
    cdef int32_t last, first = row if asked < 0 else s.link[row].next_cpu
    cdef int64_t told = s.helped
    cdef int said, want = 0
    cdef sight g = sight(NULL, 0, 0)
    cdef operation *e
    cdef per_cpu_pages before
    run.kind, run.set, run.pindex, run.order, run.row = RUN_REFILL, x, i, order, row
    run.bulk = find_bulk(s, r.pid)
    if run.bulk >= 0 and (order != 0 or s.bulk[run.bulk].cpu != set.cpu or r.flags & IRQ):
        run.bulk = -1
    while run.bulk >= 0 and set.list[i].head >= 0:
        s.page[set.list[i].head].status = SILENT
        s.bulk[run.bulk].taken += 1
        take(s, x, set.list[i].head, row, OP_SILENT, s.bulk[run.bulk].row, 0)
    uncover(s, x, i, -1, row, &last)
    run.silent = run.bulk >= 0
    if not s.dumped and order == 0 and not (
            s.link[row].chain and s.rows[s.link[row].chain].event == EV_ALLOC):
        run.silent = True
        stack_of_refill(s, x, i, row)
    elif i == 0 and set.open[i] and not set.cut:
        stack_before_refill(s, x, row)
    if set.open[i]:
        set.open[i], set.shut[i] = False, row
    e = begin_op(s, x, row, OP_REFILL, order)
    e.begin = not run.silent
    if first or asked < 0:
        e.got = run_length(s, s.rules.fallback, s.rules.nr_pcp_lists, x, i, order, first, &last)
    if set.n:
        before = set.s[0].pcp
        if e.begin:
            pcp_alloc_begin(&before, &s.rules)
    do_op(s, x, e)
    if set.n:
        want = set.ends.due if set.nr_kinds else set.s.due
    if run.bulk >= 0 and e.got > want and not some_want(set, e.got):
        # Another one for the same call follows.
        add_pages(set, want - e.got)
        e.got = want
    if s.asked.on:
        ask(&s.asked, &s.rules, ASKED_REFILL, x, r.line, set.s[0].zone_flags, order, before, want,
            set.s[0].pcp.high)
    run.left = e.got
    said = keep(s, x, row, &g)
    if said == SAID_NONE and e.got < want and exhausted(s, x, e, want, last):
        said = keep(s, x, row, &g)
    if said == SAID_NONE and reconsider(s, x, row, &g):
        said = SAID_LATE
    if said == SAID_NONE and asked < 0 and by_hidden(s, x, row, borne_for(set, want, e.got)):
        said = SAID_LATE
        if doubled(set, want) and doubled(set, e.got):
            asks_for(s, set, want, e.got)
        failed(s, x, row)
    if s.computed and s.rules.high_min_max:
        look_for_cap(s, x, row)
    run.told = s.helped != told
    if (said == SAID_ALL and run.told) or (said == SAID_SOME and s.dumped):
        count_said(&s.t.refills, SAID_LATE)
    else:
        count_said(&s.t.refills, said)
    if said == SAID_NONE or (asked >= 0 and asked != want):
        differ(s, row, D_REFILL_SIZE, x, want, run.left if asked < 0 else asked)
        failed(s, x, row)


cdef int depth_outside(Beliefs s, int32_t row) noexcept nogil:
    """Preempt depth at which a block is asked for, as its report tells: an interrupt shows what it
    stopped, too, which may hold the lists.
    """
    cdef int32_t j = s.link[row].own_next
    if j and s.rows[j].event == EV_EXTFRAG and s.rows[j].a == s.rows[row].a:
        j = s.link[j].own_next  # try_to_claim_block() tells of it in between (v6.16)
    if j and s.rows[j].event == EV_ALLOC and s.rows[j].a == s.rows[row].a:
        return s.rows[j].flags & FL_DEPTH
    return 0


cdef void taken_from_buddy(Beliefs s, int32_t row) noexcept nogil:
    """mm_page_alloc_zone_locked, or an extfrag whose page has no zone_locked of its own."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = page_at(s, row)
    cdef int cpu = r.cpu, order = <int>r.b, mt = asked_type(<int>r.c)
    cdef cpu_run *run = &s.runs[cpu]
    cdef int x, i
    cdef bint direct
    cdef traced_page *page
    if p < 0:
        return
    page = &s.page[p]
    move_free(s, p, -(<int64_t>1 << order), row)
    if pages_unlikely(page.where != 0):
        x = (page.where - 1) >> 4
        if taken_by_hidden(s, x, <int32_t>p, row):
            leave_hidden(s, x, <int32_t>p, row)
        else:
            differ(s, row, D_FREED_TWICE, x, 0, r.a)
            leave(s, x, <int32_t>p, row, OP_SILENT)
    if r.event == EV_ZONE_LOCKED and s.rules.drain_block_type and not s.dumped \
            and 0 <= r.c < MIGRATE_TYPES:
        # Free lists hold blocks of their own type (v6.10): __free_one_page() sets that of a buddy
        # which it merges with a block of another one, and tells of it with no line.
        s.block_type[p >> 9] = <int8_t>r.c
    x = set_of(s, p, cpu)
    run.last_pfn = <int32_t>p
    await_report(s, p, TAKEN, order, mt if mt < MIGRATE_PCPTYPES else -1)
    if not pcp_allowed_order(s.rules.nr_pcp_lists, order) or mt >= MIGRATE_PCPTYPES:
        work(s, WORK_DIRECT_ALLOC, p, order, mt, cpu, 0, row)
        return
    i = order_to_pindex(s.rules.nr_pcp_lists, mt, order)
    if run.kind != RUN_REFILL or run.set != x or run.pindex != i or run.left == 0:
        if r.flags & FL_KNOWN:
            # Under the locks of the lists and of the zone the preempt depth is 3 more.
            direct = (r.flags & FL_DEPTH) - depth_outside(s, row) < 3
        else:
            direct = s.sets[x].list[i].head >= 0 and not more_follows(s, row, order) \
                and find_bulk(s, r.pid) < 0
        if direct:
            # The lists were locked, so the block comes from the buddy lists.
            await_report(s, p, SHOWN, order, mt)
            work(s, WORK_DIRECT_ALLOC, p, order, mt, cpu, 0, row)
            explain(s, row, E_DIRECT, x, s.link[row].chain or row)
            return
        if s.refills_told:
            differ(s, row, D_UNPROBED, x, 0, s.rows[row].a)
        begin_refill(s, x, i, order, row, -1)
    run.left -= 1
    if not run.silent:
        # The first one goes to who waits for it.
        run.silent = True
        await_report(s, p, SHOWN if run.told else TAKEN, order, pindex_to_only_type(i))
        work(s, WORK_ALLOC, p, order, i, cpu, 0, row)
        return
    page.status = AWAY
    page.cached = <int8_t>mt
    s.sets[x].moved[i] = row
    push(s, x, i, <int32_t>p, row, True)


cdef void fallback(Beliefs s, int32_t row) noexcept nogil:
    """mm_page_alloc_extfrag."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = index_of(s, r.a)
    if p >= 0:
        claim_blocks(s, p, r)
        s.zones[s.zone_of[p >> 9]].boosted = row
        if s.rules.fallback == 0 or s.runs[r.cpu].last_pfn == p:
            passed(s, p, row)
            return
    taken_from_buddy(s, row)


cdef void refill_begins(Beliefs s, int32_t row) noexcept nogil:
    """rmqueue_bulk()."""
    cdef const event_row *r = &s.rows[row]
    cdef const int64_t *f = &s.probes[r.probe * P_COLUMNS]
    cdef int x, n
    for x in range(s.nr_sets):
        n = <int>(<uint64_t>f[P_PCP] - s.sets[x].addr) - s.p_lists
        if s.sets[x].cpu == r.cpu and 0 <= n < 16 * MAX_PCP_LISTS:
            if pindex_to_order(n >> 4) != r.b:
                differ(s, row, D_REFILL_LIST, x, n >> 4, r.b)
            else:
                begin_refill(s, x, n >> 4, <int>r.b, row, <int>r.d)
            return
    differ(s, row, D_PCP, -1, 0, f[P_PCP])


# -- alloc_pages_bulk() --------------------------------------------------------------

cdef void bulk_begins(Beliefs s, int32_t row) noexcept nogil:
    """alloc_pages_bulk()."""
    cdef const event_row *r = &s.rows[row]
    if s.nr_bulk < MAX_BULK:
        s.bulk[s.nr_bulk] = bulk_call(r.pid, r.cpu, 0, (r.a >> 3) & 3, <int>r.c, row)
        s.nr_bulk += 1


cdef int unknown_of_bulk(Beliefs s, int x, int32_t p, const bulk_call *call, int left,
                         int32_t row) noexcept nogil:
    """What alloc_pages_bulk() took of a list of which not all was known, *left* pages; says 0.

    If it was refilled meanwhile, the next lines of what came tell how many that had to give: from
    *p* on those that are freed without an allocation, or never seen again; of these some may have
    been left to the next call.
    """
    cdef int32_t q, shut = s.sets[x].shut[call.migratetype]
    cdef operation *e
    while left > 0 and p >= 0 and (not s.page[p].cursor
                                   or s.rows[s.page[p].cursor].event == EV_FREE):
        q = s.page[p].next
        take(s, x, p, row, OP_SILENT, call.row, 0)
        s.page[p].status = SILENT
        left -= 1
        p = q
    if left:
        s.sets[x].moved[call.migratetype] = row
        e = begin_op(s, x, row, OP_DRAINED, 0)  # of which count alone tells
        e.got = left
        if shut > call.row:
            s.sets[x].unsure[call.migratetype] = <int>s.rows[row].d - left
            do_earlier(s, x, shut)
        elif not s.sets[x].open[call.migratetype]:
            s.sets[x].unsure[call.migratetype] -= left
            do_op(s, x, e)
        else:
            do_op(s, x, e)
        settle(s, x, row)
    return 0


cdef void bulk_returned(Beliefs s, int32_t row) noexcept nogil:
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
            if (call.nid >= 0 and s.zones[z].node != call.nid) \
                    or (s.zones[z].name == ZONE_MOVABLE and call.migratetype != MIGRATE_MOVABLE):
                continue
            x = z * s.cpus + r.cpu
            p = s.sets[x].list[call.migratetype].head
            while p >= 0 and in_flight(s, p, row):
                q = s.page[p].next
                take_shown(s, x, p, row)
                p = q
            if p >= 0 and (not s.page[p].cursor or s.rows[s.page[p].cursor].event != EV_ALLOC):
                best = x
                break
            if s.zones[z].name != ZONE_DMA and (
                    s.sets[x].open[call.migratetype] or s.sets[x].shut[call.migratetype] > call.row
                    or s.sets[x].unsure[call.migratetype] >= left):
                left = unknown_of_bulk(s, x, p, call, left, row)
                break
        if left == 0:
            break
        if best < 0:
            differ(s, row, D_BULK, -1, r.d, r.d - left)
            break
        take(s, best, p, row, OP_SILENT, call.row, 0)
        s.page[p].status = SILENT
        left -= 1
    s.nr_bulk -= 1
    s.bulk[b] = s.bulk[s.nr_bulk]

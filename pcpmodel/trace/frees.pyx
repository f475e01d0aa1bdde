# cython: auto_pickle=False, autotestdict=False
"""What joins a list, or goes past it.

A free in an interrupt that finds the lists locked goes straight to the buddy lists.  vfree() gives
back neighbours as one block (v7.2).  Where a kernel has no probe for these, later lines tell.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int8_t, uint8_t

from pcpmodel.kernel.lists cimport order_to_pindex, pcp_allowed_order, pcp_migratetype
from pcpmodel.kernel.pages cimport (
    MIGRATE_MOVABLE, MIGRATE_PCPTYPES, PAGE_ALLOC_COSTLY_ORDER, pages_unlikely, run_order,
)
from pcpmodel.kernel.pcp cimport per_cpu_pages
from pcpmodel.trace.asked cimport ASKED_FREE, ask
from pcpmodel.trace.assumptions cimport *
from pcpmodel.trace.beliefs cimport *
from pcpmodel.trace.drains cimport *
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport *
from pcpmodel.trace.search cimport *
from pcpmodel.trace.taking cimport (
    leave,
    leave_for_stack,
    leave_hidden,
    stacks_below,
    taken_elsewhere,
)
from pcpmodel.trace.work cimport *
from pcpmodel.trace.zone_flags cimport move_free

cdef enum:
    STACK_ORDER = 2     # of a task's stack, THREAD_SIZE_ORDER
    ISOLATED_BATCH = 512    # folios that are moved together, NR_MAX_BATCHED_MIGRATION


# -- frees that go past the lists ----------------------------------------------------

cdef int32_t passed_over(Beliefs s, int32_t row) noexcept nogil:
    """The allocation that took what lies below a page freed with *row*, were it on its list; or 0.
    """
    cdef int64_t q = index_of(s, s.rows[row].a)
    cdef int mt = s.block_type[q >> 9] if q >= 0 else -1
    cdef int32_t k
    if not 0 <= mt < MIGRATE_PCPTYPES:
        return 0
    k = first_from(s.passed, 0, s.nr_passed, row)
    if k == s.nr_passed or s.passed[k] != row:
        return 0
    return s.passed_by[MIGRATE_PCPTYPES * k + mt]


cdef inline bint in_zone_of(Beliefs s, int64_t p, int32_t row) noexcept nogil:
    """Whether a row is about another page of the same zone."""
    cdef int64_t q = index_of(s, s.rows[row].a)
    return q >= 0 and s.zone_of[q >> 9] == s.zone_of[p >> 9]


cdef inline bint stopped_at(Beliefs s, int64_t p, int32_t row, int32_t j) noexcept nogil:
    """Whether the interrupt of *row* stopped its task at *j*, which has the lists of a page locked.

    It is as deep as lines about pages that go from or to the zone: their lock has just been given
    back, and interrupts let in, with preemption still off.  Or it is deeper than an
    mm_page_free_batched: it stopped the tracer there.
    """
    cdef const event_row *r = &s.rows[row]
    cdef const event_row *told = &s.rows[j]
    cdef int depth = r.flags & FL_DEPTH, shown = told.flags & FL_DEPTH
    if not j or told.cpu != r.cpu or told.pid != r.pid or not in_zone_of(s, p, j):
        return False
    if told.event == EV_PCPU_DRAIN or told.event == EV_ZONE_LOCKED:
        return depth >= shown and s.runs[r.cpu].set == set_of(s, p, r.cpu)
    return told.event == EV_FREE_BATCHED and depth > shown


cdef int32_t holds_lists(Beliefs s, int64_t p, int32_t row) noexcept nogil:
    """The line that shows that the task below an interrupt has the lists of this page locked; or 0.

    free_unref_folios() has, from its first mm_page_free_batched of a zone to the last one, and
    while one of these drains.
    """
    cdef int32_t j = s.link[row].next_cpu, before, k
    for _ in range(MAX_BURST):
        if not j or not s.rows[j].flags & IRQ:
            break
        j = s.link[j].next_cpu
    before = s.link[j].own_prev
    if s.rows[j].event == EV_FREE_BATCHED and stopped_at(s, p, row, j):
        return j
    if stopped_at(s, p, row, before):
        k = s.link[before].next_cpu
        while k != row and s.rows[k].flags & IRQ:
            k = s.link[k].next_cpu
        if k == row:
            return before
    while before and s.rows[before].event == EV_PCPU_DRAIN:
        before = s.link[before].own_prev
    if not j or s.rows[j].event != EV_FREE_BATCHED or s.rows[before].event != EV_FREE_BATCHED \
            or s.rows[before].cpu != s.rows[j].cpu:
        return 0
    return j if in_zone_of(s, p, j) and in_zone_of(s, p, before) else 0


cdef int32_t straight(Beliefs s, int64_t p, int32_t row) noexcept nogil:
    """The line that shows that a freed page goes straight to the buddy lists, as the interrupted
    task had the locks; or 0.

    The preempt depth shows that locks are held below this interrupt.  What becomes of
    the page shows which, or an allocation that takes what would lie below it; where nothing does,
    the next page of the same interrupt.
    """
    cdef const event_row *r = &s.rows[row]
    cdef int32_t j, k = row
    if not (under_locks(r) or s.locks_sleep):
        return 0
    j = holds_lists(s, p, row)
    if j:
        return j
    for _ in range(512):
        j = s.link[k].chain
        if j:
            if s.rows[j].event == EV_ZONE_LOCKED or s.rows[j].event == EV_EXTFRAG \
                    or (s.rows[j].b != s.rows[k].b and s.rows[j].event != EV_FREE_BATCHED):
                return j    # a block of another size was made of it there
            if s.rows[j].event == EV_ALLOC \
                    or (s.rows[j].event == EV_PCPU_DRAIN and s.rows[j].cpu == r.cpu):
                return 0
        j = passed_over(s, k)
        if j:
            return j
        k = s.link[k].own_next
        if not k or s.rows[k].event != EV_FREE or s.rows[k].flags != r.flags \
                or not in_zone_of(s, p, k):
            return 0
    return 0


cdef int32_t lists_locked(Beliefs s, int64_t p, int32_t row) noexcept nogil:
    """The line that shows that the lists are locked to who frees a page with *row*; or 0."""
    cdef int cpu = s.rows[row].cpu, x = set_of(s, p, cpu), then = s.link[row].then
    cdef int32_t j = 0
    if s.holds_told and s.runs[cpu].kind == RUN_DRAIN and s.runs[cpu].set == x:
        # The drain that this interrupt stopped.  (Within a probe's handler the kernel skips other
        # probes, so free_one_page is not seen.)
        return s.runs[cpu].row
    if not s.past_told:
        j = straight(s, p, row)
    if not j and s.sets[x].drainer >= 0 and then != EV_PCPU_DRAIN and then != EV_ALLOC:
        return s.runs[s.sets[x].drainer].row    # another CPU empties them
    return j


# -- frees that join a list ----------------------------------------------------------

cdef int list_type(Beliefs s, int64_t p) noexcept nogil:
    """Migratetype of the list that a freed page goes to, as the trace tells of its block."""
    cdef int mt = s.block_type[p >> 9]
    cdef int32_t j
    if mt < 0:
        j = s.page[p].cursor
        if not j or (s.rows[j].event != EV_ALLOC and s.rows[j].event != EV_PCPU_DRAIN) \
                or not 0 <= s.rows[j].c < 6:
            return MIGRATE_MOVABLE
        mt = <int>s.rows[j].c
        s.block_type[p >> 9] = <int8_t>mt
    return pcp_migratetype(mt)


cdef inline bint goes_on_otherwise(Beliefs s, int64_t p, int32_t row) noexcept nogil:
    """Whether a task that frees a page with *row* shows next that it did not drain: no interrupt is
    above it, and its line is of something else."""
    cdef int32_t j = s.link[row].own_next
    return j > 0 and s.rows[row].a == p + s.base and s.rows[j].cpu == s.rows[row].cpu \
        and s.rows[j].event != EV_PCPU_DRAIN and not (s.rows[j].flags ^ s.rows[row].flags) & IRQ


cdef void commit(Beliefs s, int64_t p, int order, int cpu, int32_t row) noexcept nogil:
    """A freed block joins its list; says whether a drain must follow."""
    cdef int x = set_of(s, p, cpu)
    cdef pageset *set = &s.sets[x]
    cdef int i = order_to_pindex(s.rules.nr_pcp_lists, list_type(s, p), order)
    cdef traced_page *page = &s.page[p]
    cdef operation *e
    cdef per_cpu_pages before
    if pages_unlikely(page.where != 0):
        differ(s, row, D_FREED_TWICE, x, 0, p + s.base)
        return
    if i == 0 and not s.dumped:
        stacks_below(s, x, p, row)
    e = begin_op(s, x, row, OP_FREE, order)
    e.pindex = <uint8_t>i
    e.page = <int32_t>p
    e.got = UNDECIDED
    if set.n != 1 or set.s[0].span:
        e.quiet = goes_on_otherwise(s, p, row)
    if page.status != TOGETHER:
        work(s, WORK_FREE, p, order, 0, cpu, 0, row)
    page.status = AWAY
    page.cached = s.block_type[p >> 9]
    set.moved[i] = row
    push(s, x, i, <int32_t>p, row, False)
    if pages_unlikely(s.asked.on):
        before = set.s[0].pcp
    do_op(s, x, e)
    set.undecided = some_due(set)
    if pages_unlikely(s.asked.on):
        ask(&s.asked, &s.rules, ASKED_FREE, x, s.rows[row].line, set.s[0].zone_flags, order, before,
            max(set.s[0].due, 0), set.s[0].pcp.high)
    if set.undecided and set.due.why:
        give_up_drain(s, x, row)
    if set.n != 1:
        settle(s, x, row)


cdef void commit_contig(Beliefs s, int cpu, bint shown) noexcept nogil:
    """Go on with a contiguous free (v7.2): aligned chunks, until one of them drains.

    *shown*: a line of the CPU does not go on with a drain, so the chunk before had none.
    """
    cdef contig *c = &s.runs[cpu].contig
    cdef int order, x
    cdef int64_t p
    cdef int32_t nxt
    while c.left > 0:
        order = run_order(c.pfn, c.left)
        p = c.pfn - s.base
        x = set_of(s, p, cpu)
        if (s.sets[x].undecided and not shown) or (s.sets[x].due.why and (
                not s.sets[x].due.started or s.runs[cpu].kind == RUN_DRAIN)):
            return
        c.pfn += <int64_t>1 << order
        c.left -= <int64_t>1 << order
        nxt = s.page[p].cursor
        if not pcp_allowed_order(s.rules.nr_pcp_lists, order) or (
                nxt and s.rows[nxt].b == order
                and (s.rows[nxt].event == EV_FREE_ONE_PAGE or s.rows[nxt].event == EV_PAGE_COMMIT)):
            continue
        commit(s, p, order, cpu, c.row)


cdef void complete(Beliefs s, int k, int32_t row) noexcept nogil:
    """A free that was under way joins its list now, or a tick comes to its drain."""
    cdef late_act d = s.late[k]
    cdef int cpu = d.cpu if d.cpu >= 0 else s.rows[row].cpu
    s.nr_late -= 1
    s.late[k] = s.late[s.nr_late]
    if d.page < 0:
        tick(s, set_of(s, -d.page, cpu), row)
    elif d.order < 0:
        taken_elsewhere(s, d.page, cpu, d.told, row)
    else:
        commit(s, d.page, d.order, cpu, row)


# -- mm_page_free and what follows ---------------------------------------------------

cdef bint is_of_batch(Beliefs s, int32_t row, int32_t first) noexcept nogil:
    """Whether the page with which a batch begins to join (*first*) was prepared before *row*, and
    only others between."""
    cdef int32_t j = s.link[row].own_prev
    while j and (s.rows[j].event == EV_FREE or s.rows[j].event == EV_FREE_ONE_PAGE):
        if s.rows[j].event == EV_FREE and s.link[j].chain == first:
            return True
        j = s.link[j].own_prev
    return j == 0   # the recording began amid it


cdef void check_batch(Beliefs s, int32_t row) noexcept nogil:
    """mm_page_free of a batch: free_unref_folios() prepares all, then frees them in that order.

    Until v6.9 free_unref_page_list() does so.  Its task does nothing else meanwhile, but that what
    no list may hold goes straight to the buddy lists.
    """
    cdef int32_t then = s.link[row].chain
    cdef int32_t nxt = s.link[row].own_next
    if s.rows[nxt].event == EV_FREE:
        if s.link[nxt].then == EV_FREE_BATCHED and s.link[nxt].chain < then:
            differ(s, row, D_BATCH_ORDER, -1, s.rows[s.link[nxt].chain].line, s.rows[then].line)
    elif s.rows[nxt].event == EV_FREE_BATCHED:
        if nxt != then and not is_of_batch(s, row, nxt):
            differ(s, row, D_BATCH_ORDER, -1, s.rows[nxt].line, s.rows[then].line)
    elif s.rows[nxt].event != EV_FREE_ONE_PAGE:
        differ(s, row, D_BATCH_ORDER, -1, s.rows[nxt].line, s.rows[then].line)


cdef bint in_batch(Beliefs s, int32_t row) noexcept nogil:
    """Whether a task that frees a page by itself is in the midst of a batch."""
    cdef int32_t nxt = s.link[row].own_next, last = s.link[row].own_prev
    if nxt and s.rows[nxt].event == EV_FREE_BATCHED:
        return True     # which it has prepared before
    return s.rows[last].event == EV_FREE and s.link[last].then == EV_FREE_BATCHED \
        and s.link[last].chain > row


cdef int32_t joins_elsewhere(Beliefs s, int32_t row) noexcept nogil:
    """The line that shows that a freed page joined a list of the CPU that its task went on at; 0.

    free_unref_page() asks for the lists of the CPU that it runs on after its mm_page_free.  Who has
    the page next was on that CPU before, too, and did not bring it along.
    """
    cdef int32_t then = s.link[row].own_next, k = s.link[row].chain, before
    if not then or k <= then or s.rows[k].event != EV_ALLOC or s.rows[row].flags & IRQ \
            or s.rows[then].cpu == s.rows[row].cpu or s.rows[then].cpu != s.rows[k].cpu:
        return 0
    before = line_before(s, k)
    return k if before and s.rows[before].cpu == s.rows[k].cpu else 0


cdef bint left_undone(Beliefs s, int32_t row) noexcept nogil:
    """Whether the recording ends in the midst of the batch that a page without a line is of.

    Its task has lines of this batch alone from there on, and pages before this one have joined.
    """
    cdef int32_t j = s.link[row].own_next, last = s.link[row].own_prev
    cdef cpu_run *run = &s.runs[s.rows[row].cpu]
    if last == 0 or (last != run.undone and (
            s.rows[last].event != EV_FREE or s.link[last].then != EV_FREE_BATCHED
            or s.link[last].chain <= row)):
        return False
    while j and s.rows[j].event == EV_FREE and s.link[j].then != EV_FREE_BATCHED:
        j = s.link[j].own_next
    if not j or s.rows[j].event != EV_FREE_BATCHED:
        return False
    while j and (s.rows[j].event == EV_FREE_BATCHED or s.rows[j].event == EV_PCPU_DRAIN
                 or s.rows[j].event == EV_FREE_PCPPAGES_BULK):
        j = s.link[j].own_next
    if j == 0:
        run.undone = row
    return j == 0


cdef bint commits_next(Beliefs s, int32_t row) noexcept nogil:
    """Whether a task that frees a page by itself has nothing else between that and its list.

    An interrupt of another kind may come between; vfree() prepares neighbours first (v7.2).
    """
    cdef int32_t j = s.link[row].own_next
    while j and j != s.link[row].chain and (
            s.rows[j].event == EV_FREE or (s.rows[j].flags ^ s.rows[row].flags) & IRQ):
        j = s.link[j].own_next
    return j == s.link[row].chain


cdef void freed_again(Beliefs s, int32_t row, int64_t p) noexcept nogil:
    """mm_page_free of a page that is on a list: it left that without a line, or not at all."""
    cdef int x = (s.page[p].where - 1) >> 4, i = (s.page[p].where - 1) & 15
    cdef int32_t moved = s.sets[x].moved[i]
    cdef int32_t f = -1
    if i == 0:
        f = fork_between(s, s.sets[x].cpu, s.page[p].pushed, row, row, 1)
    if f >= 0:
        explain(s, row, E_SILENT, x, s.forks[f])
    elif taken_by_hidden(s, x, <int32_t>p, row):
        leave_hidden(s, x, <int32_t>p, row)
        return
    else:
        differ(s, row, D_FREED_TWICE, x, 0, s.rows[row].a)
    if f >= 0:
        leave_for_stack(s, x, <int32_t>p, row, 0, f)
        s.sets[x].moved[i] = moved  # it left at some time before
    else:
        leave(s, x, <int32_t>p, row, OP_SILENT)


cdef int joins_with(Beliefs s, int64_t p, int32_t row, int32_t *told) noexcept nogil:
    """Order of the block that a page is the first of, if v7.2 gives its pages back together.

    vfree() prepares all pages (mm_page_free, each of order 0) before the first one joins a list.
    That the pages are one block then tells the line that allocated it, or the next one about it.
    0: not so; ``told``: that line, -1 if it came before.
    """
    cdef int order = s.page[p].status >> 4, k
    cdef bint never = False
    cdef int32_t j = row
    cdef int32_t then = s.link[row].chain
    if s.rows[row].b != 0 or s.rows[row].flags & IRQ or p & 1:
        return 0
    told[0] = -1
    if s.page[p].status & 15 != AWAY or order == 0:
        if not then and s.workers != NULL and s.workers[s.rows[row].comm]:
            # vfree() of a stack is put off to a worker; no line tells of them one by one.
            order = STACK_ORDER
            never = True
        elif then and (s.rows[then].event == EV_ALLOC
                       or s.rows[then].event == EV_PCPU_DRAIN):
            order = <int>s.rows[then].b
            told[0] = then
    if order < 1 or order > 9 or p & ((1 << order) - 1):
        return 0
    for k in range(1, 1 << order):
        j = s.link[j].own_next
        if not j or s.rows[j].event != EV_FREE or s.rows[j].b != 0 \
                or s.rows[j].a != s.rows[row].a + k or s.rows[j].cpu != s.rows[row].cpu \
                or s.link[j].then == EV_FREE_BATCHED or (never and s.link[j].chain):
            return 0
    return order


cdef bint freed_together(Beliefs s, int32_t row, int64_t p) noexcept nogil:
    """mm_page_free of a page that joins its list with its neighbours, when all are prepared."""
    cdef int order = s.page[p].status >> 4
    cdef int64_t k
    cdef int32_t told
    if s.page[p].status & 15 == TOGETHER:
        s.page[p].status = AWAY
        k = (<int64_t>1 << order) - 1
        if p & k == k and pcp_allowed_order(s.rules.nr_pcp_lists, order):
            commit(s, p & ~k, order, s.rows[row].cpu, row)
        return True
    order = joins_with(s, p, row, &told)
    if not order:
        return False
    if told >= 0:
        explain(s, row, E_TOGETHER, set_of(s, p, s.rows[row].cpu), told)
    for k in range(<int64_t>1 << order):
        s.page[p + k].status = <uint8_t>(TOGETHER | order << 4)
    s.page[p].status = AWAY
    return True


cdef inline bint nobody_took(Beliefs s, int32_t row) noexcept nogil:
    """Whether no line tells that a page was taken which a task frees by itself: the next one, if
    there is any, frees it so again."""
    return s.rows[row].event == EV_FREE and not s.rows[row].flags & IRQ and (
        not s.link[row].chain or (s.link[row].then == EV_FREE
                                  and s.rows[s.link[row].chain].b == s.rows[row].b))


cdef int32_t put_back(Beliefs s, int32_t row, int64_t p) noexcept nogil:
    """The line that shows that a compaction gets back a page that it had isolated; or 0.

    compaction_free() takes what a page could not be moved to, and compaction_alloc() gives out
    first what came last: the same again for the next try.  A batch comes back together.
    """
    cdef int32_t j = row, last = s.link[row].own_prev, shown
    cdef int status = s.page[p].status
    cdef bint again = s.rows[last].event == EV_FREE and s.link[last].chain == row
    if not nobody_took(s, row) or status != ISOLATED and not (
            s.isolated and (status == UNSEEN or status == BUDDY)):
        return 0
    for _ in range(ISOLATED_BATCH):
        if again or not nobody_took(s, j):
            break
        again = s.link[j].chain and s.link[j].own_next == s.link[j].chain
        j = s.link[j].own_next
    shown = s.link[row].chain if s.link[row].chain else passed_over(s, row)
    if not again or not shown:
        return 0
    s.isolated -= status != ISOLATED
    s.page[p].status = ISOLATED
    return shown


cdef void freed(Beliefs s, int32_t row) noexcept nogil:
    """mm_page_free."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = page_at(s, row)
    cdef traced_page *page
    cdef int n = s.link[row].then, status
    cdef int32_t d = s.link[row].own_next, k
    if p < 0:
        return
    page = &s.page[p]
    if page.where:
        freed_again(s, row, p)
    elif n == 0 or n == EV_FREE:
        k = put_back(s, row, p)
        if k:
            explain(s, row, E_PUT_BACK, set_of(s, p, r.cpu), k)
            return
    status = page.status & 15
    if status == FREED:
        differ(s, row, D_FREED_TWICE, -1, 0, r.a)
    elif TAKEN <= status <= DOUBTED and (r.b or not s.dumped):
        # alloc_pages_bulk() alone takes pages without a line, and only single ones.
        differ(s, row, D_LOST_ALLOC, -1, 0, r.a)
    if s.rules.free_coalesce and not s.dumped and n != EV_FREE_CONTIG \
            and freed_together(s, row, p):
        return
    if n == EV_FREE_BATCHED or n == EV_FREE_ONE_PAGE or n == EV_PAGE_COMMIT or n == EV_FREE_CONTIG:
        page.status = <uint8_t>(FREED | r.b << 4)
        if (r.flags & IRQ or not r.pid) and s.rows[s.link[row].chain].cpu != r.cpu \
                and n != EV_FREE_CONTIG:
            # Neither an interrupt nor an idle task is moved to another CPU.
            differ(s, row, D_BATCHED, -1, 0, r.a)
        if n == EV_FREE_BATCHED:
            check_batch(s, row)
        elif n == EV_PAGE_COMMIT and (in_batch(s, row) or not commits_next(s, row)):
            differ(s, row, D_IN_BATCH, -1, 0, r.a)
        return
    page.status = AWAY
    if not n and left_undone(s, row):
        return
    if not pcp_allowed_order(s.rules.nr_pcp_lists, <int>r.b):
        page.status = BUDDY
        work(s, WORK_DIRECT_FREE, p, <int>r.b, 0, r.cpu, 0, row)
        if not s.dumped:
            move_free(s, p, <int64_t>1 << r.b, row)
        return
    k = lists_locked(s, p, row)
    if k:
        page.status = BUDDY
        explain(s, row, E_TRYLOCK, set_of(s, p, r.cpu), k)
        work(s, WORK_DIRECT_FREE, p, <int>r.b, 0, r.cpu, 0, row)
        return
    if in_batch(s, row) and (s.dumped or s.link[row].chain):
        k = emptied_soon(s, set_of(s, p, r.cpu), row)
        if k:
            # Whoever finds the lists locked in a batch frees that page by itself.
            explain(s, row, E_TRYLOCK, set_of(s, p, r.cpu), k)
            return
        differ(s, row, D_IN_BATCH, -1, 0, r.a)
    if d and d != s.link[row].next_cpu and s.rows[d].event == EV_PCPU_DRAIN \
            and put_late(s, d, row, <int32_t>p, <int>r.b):
        return  # its task was stopped, and may have been moved, before the page joined a list
    k = joins_elsewhere(s, row)
    if k and put_late(s, d, row, <int32_t>p, <int>r.b):
        explain(s, row, E_DELAYED, set_of(s, p, s.rows[d].cpu), k)
        return
    if s.commits_told:
        differ(s, row, D_UNPROBED, -1, 0, r.a)
    commit(s, p, <int>r.b, r.cpu, row)


cdef void batched(Beliefs s, int32_t row) noexcept nogil:
    """mm_page_free_batched: the page joins its list now."""
    cdef int64_t p = page_at(s, row)
    cdef int order, status
    if p < 0:
        return
    status = s.page[p].status
    order = status >> 4
    if status & 15 != FREED:
        differ(s, row, D_BATCHED, -1, 0, s.rows[row].a)
        order = 0
    if not pcp_allowed_order(s.rules.nr_pcp_lists, order):
        differ(s, row, D_BATCHED, -1, 0, s.rows[row].a)
    elif s.link[row].then != EV_PAGE_COMMIT:
        if s.commits_told:
            differ(s, row, D_UNPROBED, -1, 0, s.rows[row].a)
        # Printed order is always 0; the order is that of its mm_page_free.
        commit(s, p, order, s.rows[row].cpu, row)


cdef int32_t freed_with(Beliefs s, int32_t row) noexcept nogil:
    """The mm_page_free after which a task does this with the page; in a batch others are between.
    """
    cdef int32_t j = s.link[row].own_prev
    for _ in range(MAX_BURST):
        if not j or (s.rows[j].event == EV_FREE and s.link[j].chain == row):
            break
        j = s.link[j].own_prev
    return j


cdef void freed_past(Beliefs s, int32_t row) noexcept nogil:
    """free_one_page()."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = page_at(s, row)
    if p < 0:
        return
    if s.page[p].status & 15 == FREED:
        work(s, WORK_DIRECT_FREE, p, <int>r.b, 0, r.cpu, 0, row)
        if r.b <= PAGE_ALLOC_COSTLY_ORDER:
            explain(s, freed_with(s, row) or row, E_TRYLOCK, -1, row)
    s.page[p].status = AWAY


cdef void freed_contig(Beliefs s, int32_t row) noexcept nogil:
    """free_prepared_contig_range()."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = page_of(s, r)
    cdef int n
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
    work(s, WORK_CONTIG, p, 0, 0, r.cpu, r.d, row)
    s.runs[r.cpu].contig = contig(p + s.base, r.d, row)
    commit_contig(s, r.cpu, False)


cdef void committed(Beliefs s, int32_t row) noexcept nogil:
    """A probe of free_frozen_page_commit(), before it does anything."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = page_of(s, r)
    cdef int x = find_set(s, row)
    if p < 0 or x < 0 or x != set_of(s, p, r.cpu):
        differ(s, row, D_PCP, x, 0, r.a)
        return
    passed(s, p, row)
    see_fields(s, x, row, &s.probes[r.probe * P_COLUMNS], 0, 0)
    if list_type(s, p) != r.c:
        differ(s, row, D_COMMIT_TYPE, x, list_type(s, p), r.c)
    # Who commits a block has freed it before (free_pages_prepare()), with its order; v7.2's
    # free_prepared_contig_range() makes larger blocks of what was freed by the page.
    if s.page[p].status & 15 != TOGETHER \
            and (s.page[p].status & 15 != FREED or s.page[p].status >> 4 != r.b):
        differ(s, row, D_BATCHED, x, 0, p + s.base)
    commit(s, p, <int>r.b, r.cpu, row)

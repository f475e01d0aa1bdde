# cython: auto_pickle=False, autotestdict=False
"""Which freed pages were the stack of a task, as the lines of who frees them show.

alloc_pages_bulk() takes the pages of a stack from the head of a list, one after the other, and
tells of none; vfree() gives them back in that order, each with the next line of its task, and a
worker one stack after the other.  So a run of such frees, of pages that no mm_page_alloc told of,
is one of stacks; now and then a page of something else is among them, such as slabs.  Where a
stack begins shows in how its pages came to their list: each lay right above the next one.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint8_t

from pcpmodel.trace.events cimport *

cdef enum:
    NEAR = 64           # rows in which the last page that came to a list is looked for
    # What it costs to say so.
    ALONE = 3           # a page is of no stack
    UNTOLD = 1          # ... of which no line tells before
    MIXED = 2           # it is of a stack with others that some line brought to their list
    PARTED = 9          # between two pages of it another task has the CPU

    IN_RUN = 8          # a row is of a run, though not of a stack that is known


cdef int32_t freed_after(PageLists s, int32_t j) noexcept nogil:
    """The next row of a task, but for the drains that a free brings; 0 none."""
    j = s.link[j].own_next
    while j and s.rows[j].event == EV_PCPU_DRAIN:
        j = s.link[j].own_next
    return j


cdef int32_t freed_before(PageLists s, int32_t j) noexcept nogil:
    """The last row of a task, but for the drains that a free brought; 0 none."""
    j = s.link[j].own_prev
    while j and s.rows[j].event == EV_PCPU_DRAIN:
        j = s.link[j].own_prev
    return j


cdef inline bint is_silent(PageLists s, const int32_t *before, int32_t j) noexcept nogil:
    """Whether a task frees with this row a single page that no line allocated."""
    return j > 0 and s.rows[j].event == EV_FREE and s.rows[j].b == 0 and not s.rows[j].flags & IRQ \
        and s.rows[before[j]].event != EV_ALLOC and s.link[j].then != EV_FREE_BATCHED


cdef bint other_below(PageLists s, int32_t a) noexcept nogil:
    """Whether what came to the list right before the page of row *a* is still there when that page
    leaves, and then goes to somebody who tells of it."""
    cdef int32_t c, t
    for c in range(a - 1, max(a - NEAR, 0), -1):
        if s.rows[c].event != EV_FREE or s.rows[c].cpu != s.rows[a].cpu or s.rows[c].b:
            continue
        t = s.link[c].chain
        if s.link[c].then == EV_ALLOC and s.rows[t].c == 0:
            return s.rows[t].b == 0 and s.rows[t].cpu == s.rows[a].cpu and s.link[t].own_prev > a
        if s.link[c].then == EV_FREE:
            return False
    return False


cdef bint lay_above(PageLists s, int32_t a, int32_t b) noexcept nogil:
    """Whether a page that row *a* brought to a list may have been the next one above that of *b*.

    What is freed comes to the head, and what a refill brings to the tail of a list that was empty.
    """
    cdef bint freed = s.rows[a].event == EV_FREE, then = s.rows[b].event == EV_FREE
    if not a or not b or not (freed or s.rows[a].event == EV_ZONE_LOCKED) \
            or not (then or s.rows[b].event == EV_ZONE_LOCKED):
        return True
    if s.rows[a].cpu != s.rows[b].cpu:
        return False
    if freed and other_below(s, a):
        return False
    return (freed and a > b) if then else (freed or a < b)


cdef bint parted(PageLists s, int32_t a, int32_t b) noexcept nogil:
    """Whether another task had the CPU between two rows of one: vfree() does not sleep."""
    cdef int32_t j = s.link[a].next_cpu
    while j and j != b and (s.rows[j].flags & IRQ or s.rows[j].pid == s.rows[a].pid):
        j = s.link[j].next_cpu
    return j != b


cdef int cost_of(PageLists s, const int32_t *before, const int32_t *run) noexcept nogil:
    """What it costs to say that the pages of a run's next rows are a stack; -1: they are none."""
    cdef int k, told = before[run[0]] > 0, cost = 0
    for k in range(1, STACK_PAGES):
        if not lay_above(s, before[run[k - 1]], before[run[k]]):
            return -1
        told += before[run[k]] > 0
        if parted(s, run[k - 1], run[k]):
            cost += PARTED
    return cost + MIXED if 0 < told < STACK_PAGES else cost


cdef void cut(PageLists s, const int32_t *before, const int32_t *run, int32_t *cost,
              int n) noexcept nogil:
    """Cut a run of *n* frees into stacks, at the least cost; ``cost``: that from each row on."""
    cdef int k, i, here
    cost[n] = 0
    for k in range(n - 1, -1, -1):
        cost[k] = cost[k + 1] + (ALONE if before[run[k]] else UNTOLD)
        here = cost_of(s, before, run + k) if k + STACK_PAGES <= n else -1
        if here >= 0 and here + cost[k + STACK_PAGES] <= cost[k]:
            cost[k] = here + cost[k + STACK_PAGES]
            s.link[run[k]].place = 1
    k = 0
    while k < n:
        if k + STACK_PAGES <= n and s.link[run[k]].place == 1:
            for i in range(1, STACK_PAGES):
                s.link[run[k + i]].place = <uint8_t>(i + 1)
            k += STACK_PAGES
        else:
            s.link[run[k]].place = IN_RUN
            k += 1


cdef inline void leave(PageLists s, const int32_t *before, int32_t row) noexcept nogil:
    """What was passed need not stay in memory."""
    cdef all_rows here
    if row & (STRETCH - 1) == 0 and s.spilled:
        here = rows_in(s)
        leave_links(s, row, 1)
        leave_by_row(&here, before, sizeof(int32_t), row, 1)


cdef void find_stacks_freed(PageLists s, int32_t *before) noexcept nogil:
    """Note for each row that frees a page of a stack which one it is, from 1.

    ``before``: three zeros for each row; then the first are, of each row that frees a single page,
    the one before about that page.
    """
    cdef int32_t row, j
    cdef int32_t *run = before + s.nr_rows  # the rows of a run, then their costs
    cdef int n
    for row in range(1, s.nr_rows):
        leave(s, before, row)
        j = s.link[row].chain
        if j and s.rows[row].event != EV_FREE_CONTIG and s.rows[j].event == EV_FREE \
                and s.rows[j].b == 0:
            before[j] = row
    for row in range(1, s.nr_rows):
        leave(s, before, row)
        if not is_silent(s, before, row) or is_silent(s, before, freed_before(s, row)):
            continue
        n = 0
        j = row
        while is_silent(s, before, j):
            run[n] = j
            n += 1
            j = freed_after(s, j)
        cut(s, before, run, run + n, n)


cdef int place_of(PageLists s, int32_t k) noexcept nogil:
    """Which page of a stack a row frees, from 1; 0: of none that is known."""
    return s.link[k].place & ~IN_RUN if s.rows[k].event == EV_FREE else 0


cdef bint rest_of_stack(PageLists s, int32_t k) noexcept nogil:
    """Whether the page that is freed before that of row *k* has been taken in silence by now."""
    cdef int32_t before = freed_before(s, k)
    cdef int64_t above
    if s.rows[before].event != EV_FREE or not s.link[before].place:
        return False
    above = index_of(s, s.rows[before].a)
    return above >= 0 and not s.page[above].where and s.page[above].cursor == before


cdef int stack_from(PageLists s, int32_t q, int32_t p, int *first) noexcept nogil:
    """So many pages of a stack are on the list from *q* on, above *p*, and all that may be, as the
    lines show that free it; 0: they show otherwise.  ``first``: which of its pages *q* is, from 1.

    Where its run is not cut into stacks, any four that follow each other may be one, or the last
    ones before another page follows.
    """
    cdef int32_t k = s.page[q].cursor, told = k
    cdef int at = place_of(s, k), n = 0
    while q >= 0 and q != p and s.page[q].cursor == k and max(at, 1) + n <= STACK_PAGES \
            and not (n and place_of(s, k) == 1):
        n += 1
        q = s.page[q].next
        k = freed_after(s, k)
    first[0] = at or (STACK_PAGES + 1 - n)
    if first[0] > 1 and not rest_of_stack(s, told):
        return 0
    if at == 0 and n < STACK_PAGES and not s.link[told].place:
        return 0
    return n if first[0] + n > STACK_PAGES or (q < 0 and p < 0) else 0

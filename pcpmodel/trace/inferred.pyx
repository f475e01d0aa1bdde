# cython: auto_pickle=False, autotestdict=False, boundscheck=False, wraparound=False
"""Where pages lay that no dump shows, as the lines tell that come later.

A list gives what came last, and a drain takes what came first.  So an allocation shows of pages
that were freed after its own, and a drain of those that were freed before, on which lists they were
not.  Each line is looked at once; of a page no more is kept than the line before.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memset

from pcpmodel.kernel.pages cimport MIGRATE_MOVABLE, MIGRATE_PCPTYPES, PAGE_ALLOC_COSTLY_ORDER
from pcpmodel.trace.arrays cimport has_room
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport (
    IRQ, MAX_PID, STRETCH, all_rows, by_row, check_cpu, is_heeded, leave_by_row, leave_rows,
    rows_of, untouched,
)

import numpy as np

cdef enum:
    ORDERS = PAGE_ALLOC_COSTLY_ORDER + 1

# A line that takes a page from a list, and since when that was there.
cdef struct mark:
    int32_t at
    int32_t since

# Of one list those of them that no later one outdoes, oldest first.
cdef struct marks:
    mark *of
    int64_t n
    int64_t cap
    int64_t kept        # the first ones, of which none goes any more

# A free, and by type of list a line that shows that its page was not there; 0: none.
cdef struct elsewhere:
    int32_t freed
    int32_t shown[MIGRATE_PCPTYPES]

cdef struct sweep:
    all_rows all_
    const event_row *rows
    int32_t nr_rows
    int32_t first
    int64_t base
    int64_t nr_pages
    const int64_t *starts   # of the zones, ascending
    int nr_starts
    int cpus
    bint forks          # tasks are made whose stacks no line tells
    uint64_t unheeded   # bits of events
    # By row, the next one of its CPU ...
    int32_t *line       # ... by which an interrupt before is over
    int32_t *alloc      # ... with which a task tells of an allocation
    int32_t *fork       # ... after which its task may be making a new one; ~ where this row is so
    int32_t *last       # by page, 1 + the line before about it, 0 none
    int32_t *freed      # ... 1 + that with which it was freed, and has been since; 0: it was not
    marks *taken        # by list and type
    marks *drained
    elsewhere *found
    int64_t nr_found
    int64_t cap
    bint broken         # out of memory


cdef void leave(sweep *s, int32_t row, int step) noexcept nogil:
    """`leave_rows`, and what is kept by row."""
    if s.all_.spilled and row & (STRETCH - 1) == 0:
        leave_rows(&s.all_, row, step)
        leave_by_row(&s.all_, s.line, sizeof(int32_t), row, step)
        leave_by_row(&s.all_, s.alloc, sizeof(int32_t), row, step)
        if s.forks:
            leave_by_row(&s.all_, s.fork, sizeof(int32_t), row, step)


cdef inline bint is_small(const sweep *s, const event_row *r) noexcept nogil:
    return r.b <= PAGE_ALLOC_COSTLY_ORDER and r.a >= s.starts[0]


cdef inline int64_t list_of(const sweep *s, const event_row *r) noexcept nogil:
    """A number for the CPU, zone and order of a row, and the first type of list."""
    cdef int zone = s.nr_starts
    while zone > 0 and s.starts[zone - 1] > r.a:
        zone -= 1
    return ((r.cpu * (s.nr_starts + 1) + zone) * ORDERS + r.b) * MIGRATE_PCPTYPES


cdef inline bint shows_over(const sweep *s, int32_t row, int32_t before) noexcept nogil:
    """Whether an interrupt before, on this CPU, is over: the line is of a task, or above another
    one."""
    return not s.rows[row].flags & IRQ \
        or (before >= 0 and s.rows[row].pid != s.rows[before].pid)


cdef int look_ahead(sweep *s, const int32_t[::1] forks, const int32_t[::1] since,
                    int32_t *fork_of, int32_t *next_) except -1 nogil:
    """Fill in which rows come next; ``fork_of``: zeros, by task; ``next_``: 4 of each CPU."""
    cdef int32_t *at
    cdef int32_t row, k, then
    cdef Py_ssize_t left = forks.shape[0] - 1
    cdef const event_row *r
    for k in range(4 * s.cpus):
        next_[k] = s.nr_rows
    for row in range(s.nr_rows - 1, -1, -1):
        leave(s, row, -1)
        r = &s.rows[row]
        check_cpu(r, s.cpus)
        if not is_heeded(s.unheeded, r.event):
            continue
        at = next_ + 4 * r.cpu  # row, and next line, allocation and fork
        then = at[0]
        if then < s.nr_rows:
            if shows_over(s, then, row):
                at[1] = then
                if s.forks and s.fork[then] < 0:
                    at[3] = then
            if s.rows[then].event == EV_ALLOC and not s.rows[then].flags & IRQ:
                at[2] = then
        at[0], s.line[row], s.alloc[row] = row, at[1], at[2]
        if s.forks:
            s.fork[row] = at[3]
            if 0 <= r.pid < MAX_PID:
                k = fork_of[r.pid]
                if k and since[k - 1] <= row:
                    s.fork[row] = ~at[3]
            if left >= 0 and forks[left] == row:
                if 0 <= r.pid < MAX_PID:
                    fork_of[r.pid] = left + 1
                left -= 1
    return 0


cdef inline void put(sweep *s, marks *m, int32_t at, int32_t since, bint latest) noexcept nogil:
    """One more line that takes a page; those that were there later (*latest*: earlier) show no
    more than this one."""
    while m.n > m.kept and ((m.of[m.n - 1].since < since) if latest
                            else (m.of[m.n - 1].since > since)):
        m.n -= 1
    if not has_room(<void **>&m.of, &m.cap, m.n + 1, sizeof(mark)):
        s.broken = True
        return
    m.of[m.n] = mark(at, since)
    m.n += 1


cdef inline const mark *first_from(const marks *m, int32_t row) noexcept nogil:
    """The first of these lines from a row on, or NULL."""
    cdef int64_t lo = 0, hi = m.n, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if m.of[mid].at < row:
            lo = mid + 1
        else:
            hi = mid
    return &m.of[lo] if lo < m.n else NULL


cdef inline int32_t line_after(const sweep *s, int32_t row, int cpu) noexcept nogil:
    """The next line of a CPU, which has one up to *row*, by which an interrupt before is over."""
    while s.rows[row].cpu != cpu or not is_heeded(s.unheeded, s.rows[row].event):
        row -= 1
    return s.line[row]


cdef void see_gone(sweep *s, int32_t f, int32_t joined, int32_t then) noexcept nogil:
    """The page of a free has lain where it was until its line *then*, if there is one.

    The first allocation that a task reports after the free may have come before it, interrupted
    before its line.  Unmovable pages may be gone as soon as a task makes another one: a new stack
    takes some in silence.
    """
    cdef const event_row *r = &s.rows[f]
    cdef int64_t here = list_of(s, r)
    cdef bint silent = s.forks and r.b == 0
    cdef elsewhere *found
    cdef const mark *m
    cdef int32_t there = line_after(s, joined, r.cpu)
    cdef int mt
    cdef bint stays = then == s.nr_rows or s.rows[then].event != EV_ALLOC
    if not has_room(<void **>&s.found, &s.cap, s.nr_found + 1, sizeof(elsewhere)):
        s.broken = True
        return
    found = &s.found[s.nr_found]
    found.freed = f
    for mt in range(MIGRATE_PCPTYPES):
        found.shown[mt] = 0
        m = first_from(&s.taken[here + mt], s.alloc[f] + 1)
        if m != NULL and m.since < f and not (silent and mt == 0 and m.at >= s.fork[f]):
            found.shown[mt] = m.at
        if not stays or (silent and mt == 0):
            continue
        m = first_from(&s.drained[here + mt], there)
        if m != NULL and m.since > there:
            found.shown[mt] = max(found.shown[mt], m.at)
    s.nr_found += (found.shown[0] | found.shown[1] | found.shown[2]) > 0


cdef void see_taken(sweep *s, int32_t row, int32_t before, int32_t f) noexcept nogil:
    """mm_page_alloc of a page that line *before* told of, or none (-1): since when was it there?

    A freed page is on its list for certain only with the next line of a task on its CPU, or of an
    interrupt above another task.
    """
    cdef const event_row *r = &s.rows[row]
    cdef const event_row *by = &s.rows[before]
    cdef int32_t since
    if not 0 <= r.c < MIGRATE_PCPTYPES:
        return
    if before < 0:
        if row == s.first or not is_small(s, r):
            return
        since = s.first
    elif f >= 0 and s.rows[f].b == r.b and by.cpu == r.cpu:
        since = s.line[before]
    elif by.event == EV_ZONE_LOCKED and is_small(s, by) and by.b == r.b and by.cpu == r.cpu:
        since = before
    else:
        return
    put(s, &s.taken[list_of(s, r) + r.c], row, since, False)


cdef void look_at(sweep *s, int32_t row) noexcept nogil:
    """A line about a page."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = r.a - s.base
    cdef int32_t before, f
    if not 0 <= p < s.nr_pages:
        return
    before, f = s.last[p] - 1, s.freed[p] - 1
    s.last[p] = row + 1
    if f >= 0:
        if r.event == EV_FREE_BATCHED and before == f:
            return  # it joins its list
        see_gone(s, f, before, row)
        s.freed[p] = 0
    if r.event == EV_FREE:
        if is_small(s, r):
            s.freed[p] = row + 1
    elif r.event == EV_ALLOC:
        see_taken(s, row, before, f)
    elif r.event == EV_PCPU_DRAIN and f >= 0 and 0 <= r.c < MIGRATE_PCPTYPES \
            and s.rows[before].cpu == r.cpu and s.rows[f].b == r.b:
        put(s, &s.drained[list_of(s, &s.rows[f]) + r.c], row, before, True)


cdef int look_at_all(sweep *s) except -1 nogil:
    cdef int32_t row, before
    cdef int64_t p
    cdef int zone
    cdef const event_row *r
    # By CPU 1 + its last row, and whether its last line's task may be making a new one.
    cdef int32_t *last = <int32_t *>calloc(2 * s.cpus, sizeof(int32_t))
    if last == NULL:
        raise MemoryError
    for row in range(s.nr_rows):
        leave(s, row, 1)
        r = &s.rows[row]
        if s.forks and is_heeded(s.unheeded, r.event):
            before = last[2 * r.cpu] - 1
            last[2 * r.cpu] = row + 1
            if shows_over(s, row, before):
                last[2 * r.cpu + 1] = s.fork[row] < 0
                for zone in range(s.nr_starts + 1 if s.fork[row] < 0 else 0):
                    p = (r.cpu * (s.nr_starts + 1) + zone) * ORDERS * MIGRATE_PCPTYPES
                    s.taken[p].kept = s.taken[p].n
            if s.fork[row] < 0:
                s.fork[row] = ~s.fork[row]
            if last[2 * r.cpu + 1]:
                s.fork[row] = row
        if row >= s.first and EV_ALLOC <= r.event <= EV_EXTFRAG:
            look_at(s, row)
    free(last)
    for p in range(s.nr_pages):
        if s.freed[p]:
            see_gone(s, s.freed[p] - 1, s.last[p] - 1, s.nr_rows)
    return 0


cdef int freed_first(const void *a, const void *b) noexcept nogil:
    return (<const elsewhere *>a).freed - (<const elsewhere *>b).freed


def lay_elsewhere(events, int cpus, int32_t first, starts, pages, forks, since,
                  uint64_t unheeded=0):
    """Frees to small lists whose pages were not on some of them, as later lines show.

    Where an allocation takes a page, those that joined the lists of its CPU after that page, and
    are still there, are on others, or on none; where a drain does, those that had joined before.
    Pages that are allocated next may have been gone by the time of the drain, and where there are
    *forks* unmovable single ones in silence.

    Parameters
    ----------
    events : Events
    cpus : int
    first : int
        Row from which on lists are followed.
    starts : sequence of int
        First page frames of the zones, ascending.
    pages : int
        From the first of these up to the end of the last zone.
    forks, since : sequences of int
        As of `made_since`.
    unheeded : int
        As of `Follower`.

    Returns
    -------
    (rows of frees, (frees, unmovable to reclaimable) rows that show it, 0 where none does)

    Raises
    ------
    InputError
        A row of another CPU.
    """
    cdef sweep s
    cdef list keep = []
    cdef const int64_t[::1] zones = np.array(starts, np.int64)
    cdef const int32_t[::1] made = np.array(forks, np.int32), begun = np.array(since, np.int32)
    cdef int32_t *fork_of
    cdef int32_t *next_
    cdef int64_t k, lists
    memset(&s, 0, sizeof(sweep))
    s.all_ = rows_of(events, keep)
    s.rows, s.nr_rows, s.first = s.all_.rows, s.all_.n, first
    s.base, s.nr_pages, s.unheeded = zones[0], pages, unheeded
    s.starts, s.nr_starts, s.forks = &zones[0], zones.shape[0], made.shape[0] > 0
    s.cpus = cpus
    lists = s.cpus * (s.nr_starts + 1) * ORDERS * MIGRATE_PCPTYPES
    try:
        s.line = <int32_t *>by_row(&s.all_, sizeof(int32_t), keep)
        s.alloc = <int32_t *>by_row(&s.all_, sizeof(int32_t), keep)
        if s.forks:
            s.fork = <int32_t *>by_row(&s.all_, sizeof(int32_t), keep)
        s.last = <int32_t *>untouched(pages * sizeof(int32_t), keep)
        s.freed = <int32_t *>untouched(pages * sizeof(int32_t), keep)
        s.taken = <marks *>untouched(lists * sizeof(marks), keep)
        s.drained = <marks *>untouched(lists * sizeof(marks), keep)
        fork_of = <int32_t *>untouched(MAX_PID * sizeof(int32_t), keep)
        next_ = <int32_t *>untouched(4 * cpus * sizeof(int32_t), keep)
        with nogil:
            look_ahead(&s, made, begun, fork_of, next_)
            look_at_all(&s)
        if s.broken:
            raise MemoryError
        for k in range(lists):
            free(s.taken[k].of)
            free(s.drained[k].of)
        keep.clear()
        if not s.nr_found:
            return np.empty(0, np.int32), np.empty((0, MIGRATE_PCPTYPES), np.int32)
        qsort(s.found, s.nr_found, sizeof(elsewhere), freed_first)
        found = np.asarray(<int32_t[:s.nr_found, :sizeof(elsewhere) // 4]><int32_t *>s.found)
        return found[:, 0].copy(), found[:, 1:].copy()
    finally:
        free(s.found)


def made_since(events, forks):
    """The last row before each new task was begun with, of who made it; 0 where there is none.

    copy_process() takes the stack, then copies, and takes no movable page; it makes one task, and
    who makes it was made before.
    """
    cdef list keep = []
    cdef all_rows s = rows_of(events, keep)
    cdef const event_row *r
    cdef int32_t *last = <int32_t *>untouched(MAX_PID * sizeof(int32_t), keep)
    cdef const int32_t[::1] made = np.array(forks, np.int32)
    cdef int32_t[::1] since = np.zeros(len(forks), np.int32)
    cdef int32_t row, end = max(forks, default=-1) + 1
    cdef Py_ssize_t k = 0
    for row in range(end):
        leave_rows(&s, row, 1)
        r = &s.rows[row]
        if not 0 <= r.pid < MAX_PID:
            continue
        if row == made[k]:
            since[k] = last[r.pid]
            k += 1
        if EV_FORK <= r.event <= EV_EXIT or (r.event == EV_ALLOC and not r.flags & IRQ
                                             and r.b == 0 and r.c == MIGRATE_MOVABLE):
            last[r.pid] = row
        if r.event == EV_FORK and 0 <= r.a < MAX_PID:
            last[r.a] = row
    return since.base


# Of a block: what shows its type first, each time that before which it is claimed for another one.
cdef struct block:
    int32_t claimed     # 1 + row, 0 none
    int8_t told[4]      # by kind of line, 1 + migratetype
    int8_t before       # by the last line before the start


cdef inline void see_type(block *b, int kind, const event_row *r, int32_t when) noexcept nogil:
    if 0 <= r.c < 6 and not b.told[kind] and (not b.claimed or when < b.claimed - 1):
        b.told[kind] = <int8_t>(1 + r.c)


cdef void see_types(const all_rows *s, int32_t first, int64_t base, int64_t blocks, block *of,
                    int32_t *last) noexcept nogil:
    """Look at each line once; ``last``: by page, 1 + the line before about it."""
    cdef int32_t row, before
    cdef int64_t p
    cdef const event_row *r
    cdef block *b
    for row in range(s.n):
        leave_rows(s, row, 1)
        r = &s.rows[row]
        p = r.a - base
        if not (EV_ALLOC <= r.event <= EV_EXTFRAG and 0 <= p < blocks << 9):
            continue
        b = &of[p >> 9]
        if row < first:
            if 0 <= r.c < 6 and (r.event == EV_ALLOC or r.event == EV_ZONE_LOCKED
                                 or r.event == EV_PCPU_DRAIN):
                b.before = <int8_t>(1 + r.c)
            continue
        before = last[p] - 1
        last[p] = row + 1
        if r.event == EV_EXTFRAG:
            if extfrag_claims(r) and not b.claimed:
                b.claimed = row + 1
        elif r.event == EV_ZONE_LOCKED:
            see_type(b, 1, r, row)
        elif r.event == EV_PCPU_DRAIN:
            see_type(b, 3, r, row)
        elif r.event == EV_ALLOC and before >= 0 and (
                s.rows[before].event == EV_FREE or s.rows[before].event == EV_FREE_BATCHED):
            see_type(b, 0, r, before)
            see_type(b, 2, r, before)
        elif r.event == EV_ALLOC:
            see_type(b, 0, r, row)


def types_told(events, int32_t first, int64_t base, int64_t blocks):
    """Migratetype of every block at the start, where a line shows it; else -1.

    A drain prints the block's own; a page that comes from a per-CPU list comes from the list of its
    block's; what comes from the buddy lists mostly does.  Only lines before the block is first
    claimed for another type count.  What no later line shows, the last one before the start does.
    """
    cdef list keep = []
    cdef all_rows s = rows_of(events, keep)
    cdef block *of = <block *>untouched(blocks * sizeof(block), keep)
    cdef int32_t *last = <int32_t *>untouched((blocks << 9) * sizeof(int32_t), keep)
    cdef int8_t[::1] types = np.empty(blocks, np.int8)
    cdef int64_t b
    cdef int kind
    with nogil:
        see_types(&s, first, base, blocks, of, last)
    for b in range(blocks):
        types[b] = of[b].before - 1
        for kind in range(4):
            if of[b].told[kind]:
                types[b] = of[b].told[kind] - 1
    return types.base

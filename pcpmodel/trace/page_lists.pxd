"""What a trace tells of a machine's pages: on which list each is, and what comes next."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from pcpmodel.exclusive cimport Exclusive
from pcpmodel.kernel.pages cimport MIGRATE_CMA, MIGRATE_MOVABLE, pages_prefetch, pages_unlikely
from pcpmodel.kernel.pcp cimport per_cpu_pages
from pcpmodel.trace.events cimport *

cdef enum:
    MAX_ZONES = 32
    MAX_CPUS = 8192
    MAX_PID = 1 << 22   # PID_MAX_LIMIT, include/linux/threads.h
    AHEAD = 12          # rows ahead whose pages are fetched
    TOLD_ORDER = 6      # of pages that are made known together: memory goes by it
    STRETCH = 1 << 18   # rows after which those behind may leave memory
    MAX_CHARGE = 4096   # rows within which a page that was taken is charged

    IRQ = FL_SOFTIRQ | FL_HARDIRQ | FL_NMI

    # What a page is, as far as the trace told.
    UNSEEN = 0          # nothing yet; where a dump tells of all lists: on none
    AWAY = 1            # in use, of the order in the high bits, or in the buddy lists
    FREED = 2           # mm_page_free was seen, its list not yet; the order in the high bits
    # Left its list, or the buddy lists; its mm_page_alloc is to come, of the order in the high
    # bits and the migratetype in ``cached`` (-1 any).
    TAKEN = 3           # as foreseen
    SHOWN = 4           # as a line shows
    DOUBTED = 5         # as SHOWN, by count alone, and a hidden task may have taken another one
    SILENT = 6          # taken by alloc_pages_bulk()
    DELAYED = 7         # mm_page_free was seen, and its task not since
    TOGETHER = 8        # given back with its neighbours, and joins a list with them
    BUDDY = 9           # came to the buddy lists with a line
    ISOLATED = 10       # compaction has it, or moved something there

    # Differences: `page_lists` says what each is.
    D_PAGE = 1, D_NOT_HEAD, D_NOT_LISTED, D_REFILL_SIZE, D_REFILL_LIST
    D_DRAIN_UNEXPECTED, D_DRAIN_MISSING, D_DRAIN_SIZE, D_DRAIN_LIST, D_DRAIN_PAGE
    D_DRAIN_SHORT, D_DRAIN_LONG
    # In the order of a probe's fields from P_COUNT on.
    D_COUNT, D_HIGH, D_BATCH, D_HIGH_MIN, D_HIGH_MAX, D_ALLOC_FACTOR, D_FREE_COUNT
    D_FLAGS, D_FREE_FACTOR
    # Others.
    D_FREED_TWICE, D_BATCHED, D_TYPE, D_PCP, D_BULK, D_LOST_ALLOC, D_FINAL_LIST
    D_COMMIT_TYPE, D_TOLD_COUNT, D_TOLD_HIGH, D_ORDER, D_CONTIG, D_MIGRATED, D_BATCH_ORDER
    D_IN_BATCH, D_TICK, D_ZONE_FLAGS, D_REPORTED, D_NO_PROOF, D_UNPROBED

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* What lies in a file and is not needed soon need not stay in memory: whole pages of these
       bytes, of any size that a system has. */
    static inline void leave_memory(const void *first, const void *last)
    {
    #if defined(MADV_DONTNEED)
        uintptr_t from = ((uintptr_t)first + 65535) & ~(uintptr_t)65535;
        uintptr_t to = (uintptr_t)last & ~(uintptr_t)65535;
        if (from < to)
            madvise((void *)from, to - from, MADV_DONTNEED);
    #endif
    }
    """
    void leave_memory(const void *first, const void *last) noexcept nogil

cdef struct traced_page:
    int32_t next
    int32_t prev
    int32_t where       # 0: on no list; else 1 + 16 * pageset + list
    int32_t cursor      # next row about it
    int32_t pushed      # row at which it joined its list; of DOUBTED ones, that shows it gone
    uint8_t status
    int8_t cached       # migratetype kept in it on a list (until v6.9)
    uint8_t event       # of the row at the cursor, before any has passed
    uint8_t exposed     # a task that writes no line had the CPU when it lay at the head of its list

cdef struct page_list:
    int32_t head
    int32_t tail

# Where to go on from a row; 0: nowhere, as nothing comes before row 0.
cdef struct row_link:
    int32_t chain       # next row about the same page; for contiguous frees a place in spans
    int32_t own_prev    # last row of the same task (or of the same CPU's softirq), or its fork's
    int32_t own_next
    int32_t next_cpu    # next row of the same CPU
    uint8_t then        # event at chain, 0 none: that row itself is far away
    uint8_t place       # which page of a stack the row frees, where somebody asked: see stacks.pyx

cdef struct note:
    int64_t line
    int64_t evidence
    int64_t want
    int64_t got
    int32_t code
    int32_t set
    int32_t cause       # of an unexplained one: its number, from 1

# The rows of a trace, for who looks at each once.
cdef struct all_rows:
    const event_row *rows
    int32_t n
    bint spilled            # they lie in a file

cdef class PageLists(Exclusive):
    cdef int cpus
    cdef int nr_zones
    cdef int nr_sets
    cdef page_list *lists   # 16 of each pageset
    cdef int64_t base       # pfn of page 0
    cdef int64_t nr_pages
    cdef traced_page *page  # only where the trace tells of them, or of pages about them
    cdef uint64_t page_0    # where that of page frame 0 would be
    cdef uint8_t *told      # by 1 << TOLD_ORDER pages
    cdef int8_t *zone_of
    cdef int8_t *block_type
    cdef const event_row *rows
    cdef int nr_rows
    cdef int next_row       # rows before it have passed, or come before the start
    cdef uint64_t unheeded  # bits of events that are passed over, hits of functions among them
    # First row of a block larger than those of PAGE_ALLOC_COSTLY_ORDER, which a zone may not have;
    # 0 none
    cdef int32_t large_row
    cdef row_link *link
    cdef bint spilled       # rows and links lie in files
    cdef int32_t *spans
    cdef int64_t spans_cap
    cdef uint64_t vmemmap
    cdef note *unexplained
    cdef int64_t nr_unexplained
    cdef readonly int nr_causes
    cdef int *doubt         # cause for which each pageset is not as believed, 0 none
    cdef note *explained
    cdef int64_t nr_explained
    cdef int64_t helped      # times that another line was needed to go on
    cdef list keep          # what the pointers above point to
    cdef list names

    cdef int set_up(self, int cpus, zones, events) except -1
    cdef void *room(self, size_t n, size_t size) except NULL
    cdef int check_set(self, int x) except -1
    cdef int check_list(self, int i) except -1
    cdef object pages_of(self, int x, int i)
    cdef object _of_pages(self, char *what, int order, int64_t start_pfn, int64_t end_pfn)
    cdef int pass_rows(self, int32_t start, int32_t stop) except -1
    cdef int follow_rows(self, int32_t start) except -1

cdef all_rows rows_of(events, list keep) except *
cdef int check_cpu(const event_row *r, int cpus) except -1 nogil
cdef void *untouched(size_t size, list keep) except NULL
cdef void *by_row(const all_rows *s, size_t size, list keep) except NULL
cdef void leave_by_row(const all_rows *s, const void *of, size_t size, int64_t row,
                       int step) noexcept nogil
cdef void differ(PageLists s, int32_t row, int code, int set, int64_t want,
                 int64_t got) noexcept nogil
cdef void explain_by(PageLists s, int32_t row, int code, int set, int64_t line) noexcept nogil
cdef void explain(PageLists s, int32_t row, int code, int set, int32_t evidence) noexcept nogil
cdef bint instead(PageLists s, int32_t row, int code, int other, int32_t evidence) noexcept nogil
cdef void claim_blocks(PageLists s, int64_t p, const event_row *r) noexcept nogil
cdef int run_length(PageLists s, int fallback, int nr_pcp_lists, int x, int pindex, int order,
                    int32_t row, int32_t *last_row) noexcept nogil


cdef inline void leave_rows(const all_rows *s, int32_t row, int step) noexcept nogil:
    """Rows that were passed need not stay in memory; *step*: 1 forwards, -1 backwards."""
    if pages_unlikely(row & (STRETCH - 1) == 0) and s.spilled:
        leave_by_row(s, s.rows, sizeof(event_row), row, step)


cdef inline all_rows rows_in(PageLists s) noexcept nogil:
    return all_rows(s.rows, s.nr_rows, s.spilled)


cdef inline void leave_links(PageLists s, int32_t row, int step) noexcept nogil:
    """`leave_rows`, and their links."""
    cdef all_rows here
    if pages_unlikely(row & (STRETCH - 1) == 0) and s.spilled:
        here = rows_in(s)
        leave_rows(&here, row, step)
        leave_by_row(&here, s.link, sizeof(row_link), row, step)


cdef inline int cpu_of_switch(const event_row *r, int64_t task) noexcept nogil:
    """The CPU that a task gets with a sched_switch, or ~ the one that it leaves."""
    return r.cpu if r.a == task else ~r.cpu


cdef inline void resize_pcp(per_cpu_pages *pcp, bint high_min_max, int batch, int high_min,
                            int high_max, int high) noexcept nogil:
    """zone_set_pageset_high_and_batch() for one CPU; ``high``: of a dump, -1 none."""
    pcp.batch = max(batch, 1)
    if high_min_max:
        pcp.high_min = high_min
        pcp.high_max = high_max
    else:
        # One high, which the kernel's own functions know as high_min.
        pcp.high_min = pcp.high_max = pcp.high = high if high >= 0 else high_min


cdef inline bint is_heeded(uint64_t unheeded, int event) noexcept nogil:
    """Whether a follower looks at such rows at all."""
    return not unheeded or (event < 64 and not unheeded >> event & 1)


cdef inline int64_t index_of(PageLists s, int64_t pfn) noexcept nogil:
    """Place of a page, or -1 if it is in no zone."""
    cdef int64_t p = pfn - s.base
    if pages_unlikely(<uint64_t>p >= <uint64_t>s.nr_pages or s.zone_of[p >> 9] < 0):
        return -1
    return p


cdef inline bint is_told(PageLists s, int64_t p) noexcept nogil:
    """Whether the trace is known to tell of a page, if it is one, or of pages about it."""
    return <uint64_t>p < <uint64_t>s.nr_pages and s.told[p >> TOLD_ORDER]


cdef inline void tell_of(PageLists s, int64_t p) noexcept nogil:
    """Something will happen to this page."""
    if pages_unlikely(not s.told[p >> TOLD_ORDER]):
        s.told[p >> TOLD_ORDER] = 1
        p = p >> TOLD_ORDER << TOLD_ORDER
        memset(&s.page[p], 0, sizeof(traced_page) << TOLD_ORDER)


cdef inline int64_t page_of(PageLists s, const event_row *r) noexcept nogil:
    """The page that an event is about, or -1."""
    if EV_ALLOC <= r.event <= EV_EXTFRAG or r.event == EV_FREE_ONE_PAGE:
        return index_of(s, r.a)
    if r.event == EV_FREE_CONTIG or r.event == EV_PAGE_COMMIT:
        return index_of(s, <int64_t>(<uint64_t>r.a - s.vmemmap) >> 6)
    return -1


cdef inline void fetch_page(PageLists s, const event_row *r) noexcept nogil:
    """Have the page of an event near when its turn comes; whatever it has instead does no harm.

    Without a branch on the row, which would wait for it.
    """
    pages_prefetch(<const void *>(s.page_0 + <uint64_t>r.a * sizeof(traced_page)))


cdef inline int set_of(PageLists s, int64_t p, int cpu) noexcept nogil:
    return s.zone_of[p >> 9] * s.cpus + cpu


cdef inline void passed(PageLists s, int64_t p, int32_t row) noexcept nogil:
    s.page[p].cursor = s.link[row].chain


cdef inline void await_report(PageLists s, int64_t p, int status, int order,
                              int mt) noexcept nogil:
    """A block has left: *status* is TAKEN, SHOWN or DOUBTED."""
    s.page[p].status = <uint8_t>(status | order << 4)
    s.page[p].cached = <int8_t>mt


cdef inline bint interrupts(const event_row *r, const event_row *j) noexcept nogil:
    """Whether *r*, later on the same CPU, is of an interrupt above the task of *j*.

    What a task frees before it has the CPU whole is given to the idle task, and keeps its name.
    """
    return r.flags & IRQ and (r.pid == j.pid or (j.pid == 0 and r.comm == j.comm))


cdef inline bint seen_over(PageLists s, int32_t j, int32_t row) noexcept nogil:
    """Whether *row*, or one before, shows that what freed a page with row *j* is over.

    Nothing else runs on the CPU of an interrupt before, nor of a task that then gives it up, or
    that has preemption off.
    """
    cdef int32_t k = s.link[j].next_cpu
    if not s.rows[j].flags & (IRQ | FL_DEPTH) and s.rows[j].d != 1:
        return False
    # A marker has no place among the rows of its CPU.
    if j < row and s.rows[row].cpu == s.rows[j].cpu and not s.rows[row].flags & IRQ:
        return True
    return 0 < k <= row and not (
        interrupts(&s.rows[k], &s.rows[j])
        and s.rows[k].flags & FL_DEPTH >= s.rows[j].flags & FL_DEPTH)


cdef inline int32_t freed_at(PageLists s, int32_t q) noexcept nogil:
    """The mm_page_free by which this page came to its list, or -1.

    A free that was put off has joined with the next line of its task, which may free another page.
    """
    cdef int32_t j = s.page[q].pushed
    return j if j >= 0 and s.rows[j].event == EV_FREE and s.rows[j].a == q + s.base else -1


cdef inline bint on_its_way(PageLists s, int32_t q, int32_t row) noexcept nogil:
    """Whether the task that freed this page may have been stopped before the list until *row*."""
    cdef int32_t j = freed_at(s, q)
    return j >= 0 and s.link[j].own_next > row and not seen_over(s, j, row)


cdef inline int32_t line_before(PageLists s, int32_t row) noexcept nogil:
    """The last row of the same task, 0 none: its fork's is another one's, maybe on another CPU."""
    cdef int32_t before = s.link[row].own_prev
    if s.rows[before].event == EV_FORK and s.rows[before].pid != s.rows[row].pid:
        return 0
    return before


cdef inline int32_t moved_from(PageLists s, int32_t row, int cpu) noexcept nogil:
    """The task's line before, if it was moved away from a CPU between that and *row*; else 0."""
    cdef int32_t before = line_before(s, row), then = s.link[row].own_next
    if not before or s.rows[before].cpu != cpu or (then and s.rows[then].cpu == cpu):
        return 0
    return before


cdef inline int asked_type(int mt) noexcept nogil:
    """The migratetype of the request that takes a block of this one from the buddy lists.

    Those of CMA are for movable pages (__rmqueue_cma_fallback(); CONFIG_CMA).
    """
    return MIGRATE_MOVABLE if mt == MIGRATE_CMA else mt


cdef inline bint under_locks(const event_row *r) noexcept nogil:
    """Whether the preempt depth shows that locks may be held below this interrupt."""
    return r.flags & IRQ and r.flags & FL_KNOWN and r.flags & FL_DEPTH >= 2


cdef inline bint in_flight(PageLists s, int32_t q, int32_t row) noexcept nogil:
    """Whether a task can have taken this page by *row* and reports it later.

    It may do other things between: a page for a memory cgroup at its limit is charged before it is
    reported, and who charges reclaims (__memcg_kmem_charge_page(), every release); as it does where
    it asks for pages with preemption off, to compress others.
    """
    cdef int32_t j = s.page[q].cursor
    return j > row and s.rows[j].event == EV_ALLOC and (s.link[j].own_prev < row or (
        s.rows[j].d == 1 and j - row < MAX_CHARGE and s.rows[j].pid == s.rows[row].pid
        and EV_ALLOC <= s.rows[row].event <= EV_EXTFRAG
        and s.rows[row].flags & FL_KNOWN and s.rows[row].flags & FL_DEPTH
        and not (s.rows[j].flags | s.rows[row].flags) & IRQ))


cdef inline void push(PageLists s, int x, int i, int32_t p, int32_t row, bint tail) noexcept nogil:
    cdef page_list *lst = &s.lists[16 * x + i]
    cdef traced_page *page = &s.page[p]
    page.pushed = row
    page.exposed = False
    page.where = 1 + 16 * x + i
    if tail:
        page.next = -1
        page.prev = lst.tail
        if lst.tail >= 0:
            s.page[lst.tail].next = p
        else:
            lst.head = p
        lst.tail = p
    else:
        page.prev = -1
        page.next = lst.head
        if lst.head >= 0:
            s.page[lst.head].prev = p
        else:
            lst.tail = p
        lst.head = p


cdef inline void insert_below(PageLists s, int x, int i, int32_t p, int32_t above) noexcept nogil:
    """Put a page back on a list, below another one of it; -1: at the head."""
    cdef page_list *lst = &s.lists[16 * x + i]
    cdef traced_page *page = &s.page[p]
    page.where = 1 + 16 * x + i
    page.prev = above
    page.next = s.page[above].next if above >= 0 else lst.head
    if above >= 0:
        s.page[above].next = p
    else:
        lst.head = p
    if page.next >= 0:
        s.page[page.next].prev = p
    else:
        lst.tail = p


cdef inline void unlink_page(PageLists s, int32_t p) noexcept nogil:
    cdef traced_page *page = &s.page[p]
    cdef page_list *lst = &s.lists[page.where - 1]
    if page.prev >= 0:
        s.page[page.prev].next = page.next
    else:
        lst.head = page.next
    if page.next >= 0:
        s.page[page.next].prev = page.prev
    else:
        lst.tail = page.prev
    page.where = 0

# cython: auto_pickle=False, autotestdict=False
"""What a trace tells of a machine's pages: on which list each is, and what comes next.

Shared by the replay that starts from a dump and the one that infers its start.  Of a
machine's pages only those cost time and memory in whose page blocks something happens.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from pcpmodel.exclusive cimport check_idle
from pcpmodel.kernel.lists cimport order_to_pindex
from pcpmodel.kernel.pages cimport MIGRATE_PCPTYPES, PAGE_ALLOC_COSTLY_ORDER, pages_unlikely
from pcpmodel.trace.arrays cimport has_room

import mmap
import tempfile
from dataclasses import dataclass

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.trace.assumptions import ASSUMPTIONS

cdef enum:
    MAX_NOTES = 1 << 16

    # What link_rows() comes to.
    LINKED = 0
    NO_TASK = 1
    NO_CPU = 2
    TOO_LONG = 3
    NO_ROOM = 4

#: Most pages of a machine that is replayed.
MAX_PAGES = 1 << 27
#: Most zones, and the largest process, that are followed.
MOST_ZONES = MAX_ZONES
LAST_PID = MAX_PID - 1


@dataclass(frozen=True)
class Difference:
    """The kernel did something else than the model."""

    line: int  #: of the trace
    what: str
    where: str  #: node, zone and CPU; empty where it is not known
    expected: int | str
    got: int | str
    cause: int = 0  #: the first difference with this number is the cause, the others follow from it

    def __str__(self):
        where = f" ({self.where})" if self.where else ""
        return f"line {self.line}: {self.what}{where}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True)
class Explained:
    """A difference that another line of the trace explains."""

    line: int
    why: str
    where: str
    evidence: int  #: the line that explains it


_WHAT = {
    D_PAGE: "page outside every zone",
    D_NOT_HEAD: "page of an allocation is not at the head of its list",
    D_NOT_LISTED: "page of an allocation is on no list",
    D_REFILL_SIZE: "size of a refill [blocks]",
    D_REFILL_LIST: "list of a refill",
    D_DRAIN_UNEXPECTED: "drain that the model does not expect",
    D_DRAIN_MISSING: "drain that did not come [pages]",
    D_DRAIN_SIZE: "size of a drain [pages]",
    D_DRAIN_LIST: "start list of a drain",
    D_DRAIN_PAGE: "page of a drain",
    D_DRAIN_SHORT: "drain that ended early [pages]",
    D_DRAIN_LONG: "drain that went on too long",
    D_COUNT: "count",
    D_HIGH: "high",
    D_BATCH: "batch",
    D_HIGH_MIN: "high_min",
    D_HIGH_MAX: "high_max",
    D_ALLOC_FACTOR: "alloc_factor",
    D_FREE_COUNT: "free_count",
    D_FLAGS: "flags",
    D_FREE_FACTOR: "free_factor",
    D_FREED_TWICE: "page enters the lists that is there already",
    D_BATCHED: "page joins its list without mm_page_free",
    D_TYPE: "migratetype",
    D_PCP: "address of a struct per_cpu_pages",
    D_BULK: "alloc_pages_bulk() took more pages than the lists have",
    D_LOST_ALLOC: "page left its list and no mm_page_alloc ever tells",
    D_FINAL_LIST: "list of a dump",
    D_COMMIT_TYPE: "migratetype of a commit",
    D_TOLD_COUNT: "count in /proc/zoneinfo",
    D_TOLD_HIGH: "high in /proc/zoneinfo",
    D_ORDER: "order of an allocation",
    D_CONTIG: "contiguous pages freed at once [pages]",
    D_MIGRATED: "CPU of an allocation",
    D_IN_BATCH: "page freed by itself in the midst of a batch",
    D_TICK: "decays of a vmstat tick [zones]",
    D_ZONE_FLAGS: "zone flags without a cause",
    D_REPORTED: "block of a refill reported after other work of its task",
    D_NO_PROOF: "only an assumption that no other line shows explains it [line]",
    D_UNPROBED: "refill or commit without the probe that tells of the others",
    D_BATCH_ORDER: "order of the frees of a batch [line of mm_page_free_batched]",
}
#: What is said where a page that is believed to lie on a list, `Difference.expected`, cannot.
NOT_THERE = {_WHAT[code] for code in (D_NOT_HEAD, D_DRAIN_PAGE, D_LOST_ALLOC)}
_PAGES = {D_PAGE, D_NOT_HEAD, D_NOT_LISTED, D_DRAIN_PAGE, D_DRAIN_LONG, D_FREED_TWICE, D_BATCHED,
          D_LOST_ALLOC, D_IN_BATCH, D_REPORTED, D_UNPROBED}


cdef void leave_by_row(const all_rows *s, const void *of, size_t size, int64_t row,
                       int step) noexcept nogil:
    """What an array has of rows that were passed before *row*, but for the last stretch of them."""
    cdef int64_t first = row - 3 * STRETCH if step > 0 else row + STRETCH
    cdef int64_t last = min(first + 2 * STRETCH, <int64_t>s.n)
    first = max(first, <int64_t>0)
    if first < last:
        leave_memory(<const char *>of + first * size, <const char *>of + last * size)


cdef int cause_of(PageLists s, int32_t row, int set) noexcept nogil:
    """Number of the cause of a difference: that for which a pageset that this is about is in doubt
    already, or another one.

    The line is about a page, and so about the lists that have it, and those that its CPU has.
    """
    cdef int64_t p = page_of(s, &s.rows[row])
    cdef int about[3]
    cdef int k, cause = 0
    about[0], about[1], about[2] = set, -1, -1
    if p >= 0:
        about[1] = set_of(s, p, s.rows[row].cpu)
        about[2] = (s.page[p].where - 1) >> 4
    for k in range(3):
        if about[k] >= 0 and s.doubt[about[k]] and not cause:
            cause = s.doubt[about[k]]
    if not cause:
        s.nr_causes += 1
        cause = s.nr_causes
    for k in range(3):
        if about[k] >= 0 and not s.doubt[about[k]]:
            s.doubt[about[k]] = cause
    return cause


cdef void differ(PageLists s, int32_t row, int code, int set, int64_t want,
                 int64_t got) noexcept nogil:
    cdef int cause = cause_of(s, row, set)
    if s.nr_unexplained < MAX_NOTES:
        s.unexplained[s.nr_unexplained] = note(s.rows[row].line, 0, want, got, code, set, cause)
    s.nr_unexplained += 1


cdef void explain_by(PageLists s, int32_t row, int code, int set, int64_t line) noexcept nogil:
    """`explain` by a line that is no row; it must be another one than that of the difference."""
    if line == s.rows[row].line:
        differ(s, row, D_NO_PROOF, set, 0, line)
        return
    if s.nr_explained < MAX_NOTES:
        s.explained[s.nr_explained] = note(s.rows[row].line, line, 0, 0, code, set, 0)
    s.nr_explained += 1
    s.helped += 1


cdef void explain(PageLists s, int32_t row, int code, int set, int32_t evidence) noexcept nogil:
    explain_by(s, row, code, set, s.rows[evidence].line)


cdef bint instead(PageLists s, int32_t row, int code, int other, int32_t evidence) noexcept nogil:
    """What was explained at a row has another cause, as later rows show.

    That is no more causes than before, but the row at hand is not foreseen either.
    """
    cdef int64_t k
    for k in range(min(s.nr_explained, <int64_t>MAX_NOTES) - 1, -1, -1):
        if s.explained[k].line == s.rows[row].line and s.explained[k].code == code:
            s.explained[k].code = other
            s.explained[k].evidence = s.rows[evidence].line
            s.helped += 1
            return True
    return False


cdef void claim_blocks(PageLists s, int64_t p, const event_row *r) noexcept nogil:
    """The page blocks that a fallback claims for another migratetype, if it does."""
    cdef int order = extfrag_order(r)
    cdef int64_t b = p >> 9, n = 1
    if not extfrag_claims(r):
        return
    if order > 9:
        n = <int64_t>1 << (order - 9)
        b &= ~(n - 1)
    while n > 0 and b < s.nr_pages >> 9:
        s.block_type[b] = <int8_t>r.c
        b += 1
        n -= 1


cdef int run_length(PageLists s, int fallback, int nr_pcp_lists, int x, int pindex, int order,
                    int32_t row, int32_t *last_row) noexcept nogil:
    """Blocks that this CPU goes on taking for one list.

    With PREEMPT_RT another task may follow, which found the list locked.
    """
    cdef int n = 0, pid = s.rows[row].pid, mt
    cdef int64_t p, last = -1
    cdef const event_row *r
    last_row[0] = row
    while True:
        r = &s.rows[row]
        if (r.event != EV_ZONE_LOCKED and r.event != EV_EXTFRAG) or r.b != order or r.pid != pid:
            return n
        if not (r.event == EV_EXTFRAG and (fallback == 0 or r.a == last)):
            p = index_of(s, r.a)
            mt = asked_type(<int>r.c)
            if p < 0 or mt >= MIGRATE_PCPTYPES or set_of(s, p, r.cpu) != x \
                    or order_to_pindex(nr_pcp_lists, mt, order) != pindex:
                return n
            last = r.a
            last_row[0] = row
            n += 1
        row = s.link[row].next_cpu
        if not row:
            return n


cdef int link_contig(PageLists s, const event_row *r, int32_t row, row_link *at,
                     int32_t *span) noexcept nogil:
    """Of free_prepared_contig_range(): each of its pages has a chain, in spans."""
    cdef int64_t k, p = page_of(s, r), room = span[0] + r.d
    if not 0 <= r.d <= s.nr_pages:
        return TOO_LONG
    if p < 0:
        return LINKED
    if room > max(s.spans_cap, s.nr_pages, <int64_t>1 << 24):
        return TOO_LONG
    if not has_room(<void **>&s.spans, &s.spans_cap, room, sizeof(int32_t)):
        return NO_ROOM
    at.chain = span[0]
    for k in range(p, min(p + r.d, s.nr_pages)):
        tell_of(s, k)
        s.spans[span[0]] = s.page[k].cursor
        s.page[k].cursor = row
        s.page[k].event = EV_FREE_CONTIG
        span[0] += 1
    return LINKED


cdef void link_child(PageLists s, const event_row *r, int32_t row, int32_t *seen) noexcept nogil:
    """Of sched_process_fork: the new task has no line before; whose was its number is another one.
    """
    cdef int32_t j
    if 0 < r.a < MAX_PID and r.a != r.pid:
        j = seen[r.a]
        s.link[j].own_prev = row
        seen[r.a] = 0


cdef int link_rows(PageLists s, int32_t start, int32_t *seen, int32_t *row_ret) noexcept nogil:
    """Links from every row on, and from every page to its first row.

    ``seen``: the row before which we are, of each task, softirq, idle task and CPU.  ``row_ret``:
    the row that is not one of this machine's trace, where that is so.
    """
    cdef int32_t row, j, task, span = 1, cpus = s.cpus, idle = MAX_PID + cpus
    cdef int32_t fetched = start + AHEAD
    cdef int32_t *seen_cpu = seen + idle + cpus
    cdef int64_t p
    cdef const event_row *rows = s.rows
    cdef const event_row *r
    cdef row_link *links = s.link
    cdef row_link *at
    cdef traced_page *page
    cdef int code
    for row in range(s.nr_rows - 1, start - 1, -1):
        r = &rows[row]
        leave_links(s, row, -1)
        if row >= fetched:
            fetch_page(s, r - AHEAD)
        if pages_unlikely(<uint32_t>r.pid >= MAX_PID):
            row_ret[0] = row
            return NO_TASK
        if pages_unlikely(r.cpu >= cpus):
            row_ret[0] = row
            return NO_CPU
        if pages_unlikely(not is_heeded(s.unheeded, r.event)):
            memset(&links[row], 0, sizeof(row_link))
            continue
        # Without a branch: whether an interrupt came is hard to predict.
        task = r.pid if r.pid else idle + r.cpu
        task = MAX_PID + r.cpu if r.flags & IRQ else task
        j = seen[task]
        seen[task] = row
        links[j].own_prev = row  # of row 0, which has none, it is put right at the end
        at = &links[row]
        at.own_next = j
        at.own_prev = 0
        at.next_cpu = seen_cpu[r.cpu]
        seen_cpu[r.cpu] = row
        at.chain = at.then = at.place = 0
        if pages_unlikely(r.b > PAGE_ALLOC_COSTLY_ORDER) and r.event == EV_ALLOC:
            s.large_row = row
        if pages_unlikely(r.event == EV_FREE_CONTIG):
            code = link_contig(s, r, row, at, &span)
            if code:
                return code
        elif r.event == EV_FORK:
            link_child(s, r, row, seen)
        else:
            p = r.a - s.base
            if not (EV_ALLOC <= r.event <= EV_EXTFRAG and is_told(s, p)):
                p = page_of(s, r)
                if p >= 0:
                    tell_of(s, p)
            if p >= 0:
                page = &s.page[p]
                at.chain = page.cursor
                at.then = page.event
                page.cursor = row
                page.event = <uint8_t>r.event
    links[0].own_prev = 0
    return LINKED


cdef void *untouched(size_t size, list keep) except NULL:
    """Zeros that cost memory, and time, only where they are touched; held by *keep*."""
    cdef uint8_t[::1] view
    keep.append(mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    view = keep[-1]
    return &view[0]


cdef void *_in_file(size_t size, list keep) except NULL:
    """Zeros that lie in a file of their own, which ends with *keep*."""
    cdef uint8_t[::1] view
    with tempfile.TemporaryFile(prefix="pcpmodel-") as file:
        file.truncate(max(size, 1))
        keep.append(mmap.mmap(file.fileno(), 0))
    view = keep[-1]
    return &view[0]


cdef void *by_row(const all_rows *s, size_t size, list keep) except NULL:
    """Zeros for each row, in memory if the rows are."""
    if s.spilled:
        return _in_file(s.n * size, keep)
    return untouched(s.n * size, keep)


cdef all_rows rows_of(events, list keep) except *:
    """The rows of `Events`; held by *keep*."""
    cdef const uint8_t[::1] raw
    cdef all_rows s = all_rows(NULL, 0, events.spilled)
    rows = events.rows
    if rows.dtype.itemsize != sizeof(event_row) or len(rows) >= 1 << 31:
        raise InputError(f"{len(rows)} rows of {rows.dtype} are not rows of a trace")
    s.n = len(rows)
    if s.n:
        raw = np.ascontiguousarray(rows).view(np.uint8)
        keep.append(raw)
        s.rows = <const event_row *>&raw[0]
    return s


cdef int check_cpu(const event_row *r, int cpus) except -1 nogil:
    """The CPU of a row, or an error: there are so many."""
    if pages_unlikely(r.cpu >= cpus):
        with gil:
            raise InputError(f"the trace tells of CPU {r.cpu}; there are {cpus}", row=r.line)
    return r.cpu


cdef class PageLists:
    """The pages of a machine's zones, the lists of every CPU, and the rows of its trace.

    Empty by itself; who derives from it calls `set_up` in its own ``__cinit__``.
    """

    def __cinit__(self, *_args, **_options):
        self.keep = []
        self.names = []

    def __dealloc__(self):
        free(self.page)
        free(self.told)
        free(self.unexplained)
        free(self.explained)
        free(self.lists)
        free(self.doubt)
        if not self.spilled:
            free(self.link)
        free(self.spans)
        free(self.zone_of)
        free(self.block_type)

    cdef void *room(self, size_t n, size_t size) except NULL:
        cdef void *p = calloc(max(n, 1), size)
        if p == NULL:
            raise MemoryError
        return p

    cdef int set_up(self, int cpus, zones, events) except -1:
        cdef all_rows all_ = rows_of(events, self.keep)
        cdef int x, z
        cdef int64_t b
        if not 1 <= len(zones) <= MAX_ZONES:
            raise InputError(f"{len(zones)} zones; 1 to {MAX_ZONES} are replayed")
        if not 1 <= cpus <= MAX_CPUS:
            raise InputError(f"{cpus} CPUs; 1 to {MAX_CPUS} are replayed")
        self.cpus = cpus
        self.nr_zones = len(zones)
        self.nr_sets = len(zones) * cpus
        self.base = min(z.start_pfn for z in zones) & ~511
        self.nr_pages = ((max(z.end_pfn for z in zones) + 511) & ~511) - self.base
        if self.nr_pages > MAX_PAGES:
            raise InputError(f"{self.nr_pages} pages; at most {MAX_PAGES} are replayed")
        self.rows, self.nr_rows, self.spilled = all_.rows, all_.n, all_.spilled
        self.page = <traced_page *>malloc(self.nr_pages * sizeof(traced_page))
        self.unexplained = <note *>malloc(MAX_NOTES * sizeof(note))
        self.explained = <note *>malloc(MAX_NOTES * sizeof(note))
        if self.spilled:
            self.link = <row_link *>_in_file(self.nr_rows * sizeof(row_link), self.keep)
        else:
            self.link = <row_link *>malloc(max(self.nr_rows, 1) * sizeof(row_link))
        if self.page == NULL or self.unexplained == NULL or self.explained == NULL \
                or self.link == NULL:
            raise MemoryError
        self.page_0 = <uint64_t>self.page - self.base * sizeof(traced_page)
        self.told = <uint8_t *>self.room(self.nr_pages >> TOLD_ORDER, 1)
        self.doubt = <int *>self.room(self.nr_sets, sizeof(int))
        self.lists = <page_list *>self.room(16 * self.nr_sets, sizeof(page_list))
        for x in range(16 * self.nr_sets):
            self.lists[x].head = self.lists[x].tail = -1
        self.zone_of = <int8_t *>self.room(self.nr_pages >> 9, 1)
        self.block_type = <int8_t *>self.room(self.nr_pages >> 9, 1)
        for b in range(self.nr_pages >> 9):
            self.zone_of[b] = -1
        for z, zone in enumerate(zones):
            for b in range((zone.start_pfn - self.base) >> 9,
                           (zone.end_pfn - self.base + 511) >> 9):
                self.zone_of[b] = z
        self.names = [f"node {zone.node} {zone.name} cpu {cpu}"
                      for zone in zones for cpu in range(cpus)]

    cdef int check_set(self, int x) except -1:
        """The number of a pageset, or IndexError."""
        if not 0 <= x < self.nr_sets:
            raise IndexError(f"pageset {x} is outside 0..{self.nr_sets - 1}")
        return x

    cdef int check_list(self, int i) except -1:
        if not 0 <= i < 16:
            raise IndexError(f"list {i} is outside 0..15")
        return i

    cdef int pass_rows(self, int32_t start, int32_t stop) except -1:
        """Rows *start* ... *stop* - 1 are next, each for the first time, or IndexError."""
        if not self.next_row <= start <= stop <= self.nr_rows:
            raise IndexError(f"rows {start}..{stop} are outside {self.next_row}..{self.nr_rows}")
        self.next_row = stop
        return 0

    cdef int follow_rows(self, int32_t start) except -1:
        """See in rows *start* and after what follows on what."""
        cdef int32_t row = 0, before
        cdef int code
        cdef list gone = []
        cdef int32_t *seen
        self.pass_rows(start, start)
        memset(self.link, 0, min(start + 1, self.nr_rows) * sizeof(row_link))
        seen = <int32_t *>untouched((MAX_PID + 3 * self.cpus) * sizeof(int32_t), gone)
        with nogil:
            code = link_rows(self, start, seen, &row)
            for before in range(start):
                if self.rows[before].event == EV_ALLOC \
                        and self.rows[before].b > PAGE_ALLOC_COSTLY_ORDER:
                    self.large_row = before
                    break
        if code == NO_ROOM:
            raise MemoryError
        if code == TOO_LONG:
            raise InputError("free_prepared_contig_range() of more pages than there are")
        if code == NO_CPU:
            check_cpu(&self.rows[row], self.cpus)
        if code == NO_TASK:
            raise InputError(f"process {self.rows[row].pid}; Linux has none above {MAX_PID - 1}",
                             row=self.rows[row].line)
        return 0

    def types_of(self, int64_t start_pfn, int64_t end_pfn):
        """Migratetype of each block of 512 pages that holds some of these page frames."""
        return self._of_pages(<char *>self.block_type, 9, start_pfn, end_pfn)

    def tells_of(self, int64_t start_pfn, int64_t end_pfn):
        """Whether the trace, or the first dump's per-CPU lists, tell of any of these pages."""
        return bool(self._of_pages(<char *>self.told, TOLD_ORDER, start_pfn, end_pfn).any())

    cdef object _of_pages(self, char *what, int order, int64_t start_pfn, int64_t end_pfn):
        """Of a table with one byte for each 1 << *order* pages those of these page frames."""
        cdef int64_t first = (start_pfn - self.base) >> order
        cdef int64_t last = (end_pfn - self.base + (1 << order) - 1) >> order
        if not 0 <= first <= last <= self.nr_pages >> order:
            raise IndexError(f"page frames {start_pfn}..{end_pfn} are not this machine's")
        return np.frombuffer(what[first:last], np.int8)

    def list_of(self, int x, int i):
        """Pages of a list, head first."""
        self.check_set(x)
        self.check_list(i)
        check_idle(self)
        return self.pages_of(x, i).tolist()

    cdef object pages_of(self, int x, int i):
        cdef int32_t p = self.lists[16 * x + i].head
        cdef Py_ssize_t n = 0
        cdef int64_t[::1] found
        while p >= 0:
            p = self.page[p].next
            n += 1
        pages = np.empty(n, np.int64)
        found = pages
        p, n = self.lists[16 * x + i].head, 0
        while p >= 0:
            found[n] = p + self.base
            p = self.page[p].next
            n += 1
        return pages

    def notes(self):
        """(unexplained, explained) with their true numbers."""
        cdef note *n
        cdef int64_t k
        bad, good = [], []
        check_idle(self)
        for k in range(min(self.nr_unexplained, MAX_NOTES)):
            n = &self.unexplained[k]
            numbers = (hex(n.want), hex(n.got)) if n.code in _PAGES else (n.want, n.got)
            bad.append(Difference(
                n.line, _WHAT[n.code], self.names[n.set] if n.set >= 0 else "", *numbers,
                n.cause))
        for k in range(min(self.nr_explained, MAX_NOTES)):
            n = &self.explained[k]
            good.append(Explained(
                n.line, ASSUMPTIONS[n.code].name, self.names[n.set] if n.set >= 0 else "",
                n.evidence))
        return bad, self.nr_unexplained, good, self.nr_explained

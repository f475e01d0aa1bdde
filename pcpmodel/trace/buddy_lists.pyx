# cython: auto_pickle=False, autotestdict=False
"""Are the pages that a recorded kernel took the ones that its buddy lists say?

The free lists of a recording's first dump are kept up to date by what the trace
shows under the zone lock (refills, drains, blocks past the per-CPU lists, in
the order of the lock), with the kernel's own functions (`kernel/buddy.pxd`).
Before every page that the kernel took, the model says which one it is.

Three things move blocks without a line at that moment.  Compaction isolates free
blocks in silence; it shows later, when such a page is freed that nobody had
allocated, or is in use in the last dump.  If that was half a page block or more, what is left
of the page block goes to the ends of its lists (__isolate_free_page(), since v6.10).
Its scanners also turn a list of movable blocks of order 3 or more, so that the one that they
stopped at is first or last (move_freelist_head(),
move_freelist_tail() in mm/compaction.c): a list may have turned if kcompactd was at work, or such
a page was freed, since its head was last the one to expect.  And a block past the per-CPU lists is
freed some time after its mm_page_free, so that others may come first; it was
under way if its task shows nothing else in between (interrupts apart), and it finds the
neighbours of the moment at which it comes.  Where one of the three may have happened
earlier or later than it shows, the trace is followed again with it there
(`_Course`).  Such a difference counts as explained, by that line.  After any other
the lists are put right with the real page, so that one event counts once.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from pcpmodel.exclusive cimport begin_use, check_idle, end_use
from pcpmodel.kernel.buddy cimport (
    ALLOC_NOFRAGMENT,
    CLAIM_ALWAYS,
    CLAIM_COMPUTE,
    CLAIM_NEVER,
    add_to_free_list,
    del_from_free_list,
    first_free,
    free_direct,
    free_kind,
    free_one,
    is_free_block,
    isolate_free_page,
    rmqueue,
    take_block,
    zone,
    zone_page,
)
from pcpmodel.kernel.memory cimport Memory
from pcpmodel.kernel.page_alloc cimport find_zone
from pcpmodel.kernel.pages cimport (
    MAX_PAGE_ORDER,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    MIGRATE_TYPES,
    NO_PAGE,
    NR_PAGE_ORDERS,
    PAGEBLOCK_ORDER,
    W_HELD,
    W_NONE,
    W_ORDER,
    W_TYPE_SHIFT,
    block_list,
    block_list_at,
    block_list_free,
    fill_words,
    pages_ctz,
)
from pcpmodel.kernel.rules cimport FALLBACK_CLAIM_OR_STEAL, FALLBACK_STEAL_THEN_RETRY
from pcpmodel.kernel.zone_state cimport free_list
from pcpmodel.trace.assumptions cimport E_COMPACTED, E_READ
from pcpmodel.trace.events cimport (
    EV_ALLOC,
    EV_EXTFRAG,
    EV_FREE,
    EV_FREE_BATCHED,
    EV_FREE_ONE_PAGE,
    EV_PCPU_DRAIN,
    EV_ZONE_LOCKED,
    FL_HARDIRQ,
    FL_NMI,
    FL_SOFTIRQ,
    event_row,
)
from pcpmodel.trace.page_lists cimport STRETCH, leave_memory
from pcpmodel.trace.work cimport WORK_DIRECT_FREE

from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from operator import itemgetter

import numpy as np

from pcpmodel.trace.assumptions import ASSUMPTIONS
from pcpmodel.trace.start import memory_at_start

cdef enum:
    RMQUEUE_NORMAL = 0
    RMQUEUE_STEAL = 3
    HALF = 1 << PAGEBLOCK_ORDER - 1
    COSTLY_ORDER = 3  # of the lists that fast_find_migrateblock() turns, the lowest
    # What has no line: a page leaves the lists, or its whole block; its list is turned.
    ALONE = 0
    TURNED = 1
    WHOLE = 2
    SCAN_NS = 10_000_000  # that kcompactd may scan before it shows a page, and after
    PAUSE_ROWS = 30  # of others that show that it scans again
    PLACES = 24  # that a trace is followed again from
    MAX_TRIES = 64  # moments at which what has no line may have happened
    ALL_TRIES = 3000  # in one trace
    ALL_ROWS = 100_000_000  # that these tries follow: about a second
    JOINS = 3  # latest times that pages of a block came to the lists
    MAX_UNFORESEEN = 64  # that are looked into one by one


COMPACTED = ASSUMPTIONS[E_COMPACTED].name
READ_MEANWHILE = ASSUMPTIONS[E_READ].name

# Blocks that fast_find_migrateblock() has seen when it gives up; they go to the end.
_SCANNED = 2, 3, 5, 9, 17


cdef uint32_t containing(const zone *z, uint32_t page, int order, int *order_ret) noexcept nogil:
    """The free block that holds a whole block, or NO_PAGE."""
    cdef uint32_t base
    cdef int o
    if z.page[page] != W_NONE and not z.page[page] & W_ORDER:  # in use
        return NO_PAGE
    for o in range(order, MAX_PAGE_ORDER + 1):
        base = page & ~((1U << o) - 1)
        if is_free_block(z, base, o):
            order_ret[0] = o
            return base
    return NO_PAGE


cdef void take_anyway(zone *z, uint32_t page, int order) noexcept nogil:
    """Take just this block, wherever it lies; what is split off stays on its lists."""
    cdef int o = 0, mt
    cdef uint32_t base = containing(z, page, order, &o), i
    if base == NO_PAGE:
        for i in range(1U << order):  # in smaller pieces, or not free at all
            if z.page[page + i] & W_ORDER:
                del_from_free_list(z, page + i)
        return
    mt = z.page[base] >> W_TYPE_SHIFT & 7
    del_from_free_list(z, base)
    while o > order:
        o -= 1
        if page & 1U << o:
            add_to_free_list(z, base, o, mt, False)
            base += 1U << o
        else:
            add_to_free_list(z, base + (1U << o), o, mt, False)


cdef bint turn(zone *z, uint32_t page, int order, int mt) noexcept nogil:
    """Move what is before this block to the end of its list; false if it is not on it."""
    cdef uint32_t head
    if not is_free_block(z, page, order) or z.page[page] >> W_TYPE_SHIFT & 7 != mt:
        return False
    head = first_free(z, order, mt)
    while head != page:
        del_from_free_list(z, head)
        add_to_free_list(z, head, order, mt, True)
        head = first_free(z, order, mt)
    return True


cdef int copy_lists(zone *to, const zone *of) except -1:
    """Give a zone the pages and free lists of another one of the same size."""
    cdef block_list *mine
    cdef const block_list *other
    cdef int o, mt
    memcpy(to.page, of.page, of.nr_words * sizeof(uint32_t))
    memcpy(to.block, of.block, of.nr_words >> PAGEBLOCK_ORDER)
    memcpy(to.isolated, of.isolated, of.nr_words >> PAGEBLOCK_ORDER)
    memcpy(to.nonempty, of.nonempty, sizeof(of.nonempty))
    to.nr_free, to.nr_free_cma = of.nr_free, of.nr_free_cma
    to.nr_free_highatomic, to.nr_reserved_highatomic = (
        of.nr_free_highatomic, of.nr_reserved_highatomic)
    to.watermark_boost, to.nr_isolated, to.flags = of.watermark_boost, of.nr_isolated, of.flags
    for o in range(NR_PAGE_ORDERS):
        for mt in range(MIGRATE_TYPES):
            mine, other = &to.free_area[o][mt], &of.free_area[o][mt]
            block_list_free(mine)
            if other.capacity:
                mine.slot = <uint32_t *>malloc(other.capacity * sizeof(uint32_t))
                if mine.slot == NULL:
                    raise MemoryError
                memcpy(mine.slot, other.slot, other.capacity * sizeof(uint32_t))
                mine.capacity, mine.live = other.capacity, other.live
                mine.head, mine.tail = other.head, other.tail
    return 0


cdef Py_ssize_t first_since(const int64_t[:, ::1] table, int64_t row) noexcept:
    """The first line of a table, ascending by its first column, that is not before a row."""
    cdef Py_ssize_t low = 0, high = table.shape[0], middle
    while low < high:
        middle = (low + high) // 2
        if table[middle, 0] < row:
            low = middle + 1
        else:
            high = middle
    return low


class _LastDump:
    """The last dump's row, and what is free in it: a search may ask, most recordings need none.

    Parameters
    ----------
    row : int
    lists : dict
        As `Snapshot.free`.
    """

    def __init__(self, row, lists):
        self.row = row
        self._lists = lists

    @cached_property
    def free(self):
        """(K, 2) ndarray of page frames: first, one past the last; ascending."""
        free = np.concatenate([np.empty((0, 2), np.int64)] + [
            np.stack([pfns, pfns + (1 << order)], 1)
            for lists in self._lists.values() for (order, _), pfns in lists.items()
        ])
        return free[np.argsort(free[:, 0])]


cdef class _Index:
    """Which rows are about each page block, and each row's next in its task: for searches.

    Made when the first one asks; most recordings need none.
    """

    cdef const event_row *rows
    cdef Py_ssize_t nr_rows
    cdef object keep
    cdef int64_t first_block
    cdef int64_t nr_blocks
    cdef bint made
    cdef int32_t[::1] begin  # by block: its place in about
    cdef int32_t[::1] about  # rows, ascending for each block
    cdef dict after  # row -> next_in_context

    def __cinit__(self, rows, Memory memory not None):
        cdef const uint8_t[::1] raw = rows.view("u1")
        cdef int z
        cdef int64_t last = 0
        self.keep = rows
        self.nr_rows = raw.shape[0] // sizeof(event_row)
        self.rows = <const event_row *>&raw[0] if raw.shape[0] else NULL
        self.first_block = memory.mm.zone[0].base_pfn >> PAGEBLOCK_ORDER
        for z in range(memory.mm.nr_zones):
            self.first_block = min(
                self.first_block, <int64_t>memory.mm.zone[z].base_pfn >> PAGEBLOCK_ORDER)
            last = max(last, <int64_t>(memory.mm.zone[z].base_pfn + memory.mm.zone[z].nr_words))
        self.nr_blocks = (last >> PAGEBLOCK_ORDER) - self.first_block
        self.after = {}

    cdef inline bint _span(self, const event_row *r, int64_t *first, int64_t *last) noexcept:
        """The blocks that a row is about; false if none."""
        if not EV_ALLOC <= r.event <= EV_EXTFRAG or r.event == EV_FREE_BATCHED or r.a < 0:
            return False
        first[0] = (r.a >> PAGEBLOCK_ORDER) - self.first_block
        if first[0] >= self.nr_blocks:
            return False
        last[0] = (r.a + (<int64_t>1 << (r.b & 15)) - 1 >> PAGEBLOCK_ORDER) - self.first_block
        first[0], last[0] = max(first[0], <int64_t>0), min(last[0], self.nr_blocks - 1)
        return first[0] <= last[0]

    cdef int make(self) except -1:
        cdef int64_t b, first = 0, last = 0
        cdef Py_ssize_t k
        cdef int32_t n = 0, some
        cdef int32_t[::1] at
        if self.made:
            return 0
        at = np.zeros(self.nr_blocks + 1, np.int32)
        for k in range(self.nr_rows):
            if self._span(&self.rows[k], &first, &last):
                for b in range(first, last + 1):
                    at[b] += 1
        for b in range(self.nr_blocks + 1):
            some = at[b]
            at[b] = n
            n += some
        self.about = np.empty(n, np.int32)
        self.begin = at.copy()
        self.made = True
        for k in range(self.nr_rows):
            if self._span(&self.rows[k], &first, &last):
                for b in range(first, last + 1):
                    self.about[at[b]] = <int32_t>k
                    at[b] += 1
        return 0

    cdef int32_t since(self, int64_t b, Py_ssize_t k) except -1:
        """The first place in ``about`` of a block's row that is not before row *k*."""
        cdef int32_t low = self.begin[b], high = self.begin[b + 1], middle
        while low < high:
            middle = (low + high) // 2
            if self.about[middle] < k:
                low = middle + 1
            else:
                high = middle
        return low

    cdef list between(self, int64_t pfn, int order, Py_ssize_t k, Py_ssize_t end):
        """Rows *k* ... *end* - 1 about the page blocks of these pages, ascending."""
        cdef int64_t b, first = max((pfn >> PAGEBLOCK_ORDER) - self.first_block, <int64_t>0)
        cdef int64_t last = (pfn + (<int64_t>1 << order) - 1 >> PAGEBLOCK_ORDER) - self.first_block
        self.make()
        found = set()
        for b in range(first, min(last + 1, self.nr_blocks)):
            found.update(self.about[self.since(b, k):self.since(b, end)])
        return sorted(found)

    cdef Py_ssize_t next_in_context(self, Py_ssize_t j) except -1:
        """The next row of the same task on the same CPU, in no interrupt more or less."""
        cdef Py_ssize_t i
        if j not in self.after:
            i = j + 1
            while i < self.nr_rows and not same_context(&self.rows[i], &self.rows[j]):
                i += 1
            self.after[j] = i
        return self.after[j]


cdef inline bint same_context(const event_row *a, const event_row *b) noexcept nogil:
    """Are two rows of one task on one CPU, neither in an interrupt of the other?"""
    return (
        a.cpu == b.cpu and a.pid == b.pid
        and not (a.flags ^ b.flags) & (FL_HARDIRQ | FL_SOFTIRQ | FL_NMI)
    )


cdef class BuddyLists:
    """Free lists that follow a trace.

    Parameters
    ----------
    memory : Memory
        Loaded with a recording's first dump; changed by `run`.
    rows : (N,) array of EVENT
        Rows of the trace.
    compactors : set of int
        Names (`event_row.comm`) of kcompactd.
    last : _LastDump, optional
    index : _Index, optional
        That others made of the same rows and zones.
    spilled : bool
        The rows lie in a file (`Events.spilled`).
    """

    cdef Memory memory
    cdef const event_row *rows
    cdef Py_ssize_t nr_rows
    cdef object _rows
    cdef object _last
    cdef readonly int64_t taken  #: blocks taken from the buddy lists
    cdef readonly int64_t foreseen  #: of them, those that the model named
    cdef readonly int64_t isolated  #: pages that left the lists without a line
    cdef readonly int64_t freed  #: blocks given back to the buddy lists
    cdef readonly list unforeseen  #: (row, pfn that the model named or -1)
    cdef readonly list explained  #: (row, pfn that the model named, row that explains it)
    cdef readonly list around  #: for each unforeseen: (pfn, order) of the model's blocks about it
    cdef const int64_t[:, ::1] direct
    cdef Py_ssize_t nr_direct  # of them, those that have been freed
    cdef Py_ssize_t compacted  # last row at which compaction showed, -1 none
    cdef bint spilled  # the rows lie in a file
    cdef _Index index
    cdef const uint8_t[::1] compactor  # by comm: is it kcompactd?
    cdef int64_t[:, ::1] agreed  # by zone and order: last row at which the movable head was right

    def __cinit__(
        self, Memory memory not None, rows, compactors=(), last=None, bint spilled=False,
        _Index index=None
    ):
        cdef const uint8_t[::1] raw = rows.view("u1")
        if rows.dtype.itemsize != sizeof(event_row):
            raise ValueError("rows are not event rows")
        self.memory = memory
        self._rows = rows
        self._last = last
        self.spilled = spilled
        self.index = _Index(rows, memory) if index is None else index
        if self.index.keep is not rows:
            raise ValueError("an index of other rows")
        self.nr_rows = raw.shape[0] // sizeof(event_row)
        self.rows = <const event_row *>&raw[0] if raw.shape[0] else NULL
        self.unforeseen = []
        self.explained = []
        self.around = []
        self.compacted = -1
        self.compactor = table = np.zeros(1 << 16, np.uint8)
        table[list(compactors)] = 1
        self.agreed = np.full((memory.mm.nr_zones, MAX_PAGE_ORDER + 1), -1, np.int64)

    cdef int _check_row(self, Py_ssize_t k) except -1:
        if not 0 <= k < self.nr_rows:
            raise IndexError(f"row {k} is outside 0..{self.nr_rows - 1}")
        return 0

    def resume(self, BuddyLists other not None):
        """Go on where *other* is, which follows the same trace."""
        cdef int z
        check_idle(self.memory)
        check_idle(other.memory)
        if other.memory is self.memory:
            raise ValueError("the very same memory")
        if other.memory.mm.nr_zones != self.memory.mm.nr_zones:
            raise ValueError("another machine")
        for z in range(self.memory.mm.nr_zones):
            if other.memory.mm.zone[z].nr_words != self.memory.mm.zone[z].nr_words:
                raise ValueError("another machine")
            copy_lists(&self.memory.mm.zone[z], &other.memory.mm.zone[z])
        self.taken, self.foreseen = other.taken, other.foreseen
        self.isolated, self.freed = other.isolated, other.freed
        self.unforeseen, self.explained = other.unforeseen[:], other.explained[:]
        self.around = other.around[:]
        self.compacted = other.compacted
        self.agreed = other.agreed.copy()
        return self

    def run(
        self, Py_ssize_t start, Py_ssize_t stop, const int64_t[:, ::1] direct,
        const int64_t[:, ::1] unseen, bint doubtful=False, most=None
    ):
        """Follow rows *start* ... *stop* - 1.

        Parameters
        ----------
        direct : (M, 4) ndarray
            Blocks freed past the per-CPU lists: row, pfn, order, row that announced it; ascending.
        unseen : (K, 3) ndarray
            What has no line: row before which it happens, pfn, and ALONE if the page leaves the
            lists, WHOLE if the block that it is in does, TURNED if the list of that block is
            turned so that it is first; ascending.
        doubtful : bool
            While the first dump was taken: leave out what it shows already.
        most : int, optional
            No further once more than so many blocks are unforeseen.

        Returns
        -------
        int
            Rows that were followed.
        """
        begin_use(self.memory)
        try:
            return self._run(start, stop, direct, unseen, doubtful,
                             self.nr_rows if most is None else most)
        finally:
            end_use(self.memory)

    cdef Py_ssize_t _run(
        self, Py_ssize_t start, Py_ssize_t stop, const int64_t[:, ::1] direct,
        const int64_t[:, ::1] unseen, bint doubtful, Py_ssize_t most
    ) except -1:
        cdef Py_ssize_t k, d, g, next_direct, next_unseen
        cdef const event_row *r
        cdef const uint8_t *compactor = &self.compactor[0]
        if not 0 <= start <= stop <= self.nr_rows:
            raise ValueError("rows are out of range")
        if direct.shape[1] != 4 or unseen.shape[1] != 3:
            raise ValueError("direct has 4 columns, unseen 3")
        self.direct = direct
        d = first_since(direct, start)
        g = first_since(unseen, start)
        next_direct = direct[d, 0] if d < direct.shape[0] else stop
        next_unseen = unseen[g, 0] if g < unseen.shape[0] else stop
        self.nr_direct = d
        for k in range(start, stop):
            if k % STRETCH == 0 and self.spilled and k >= 2 * STRETCH:
                leave_memory(self.rows + k - 2 * STRETCH, self.rows + k - STRETCH)
            r = &self.rows[k]
            while next_unseen == k:
                self._unseen(unseen[g, 1], <int>unseen[g, 2])
                g += 1
                next_unseen = unseen[g, 0] if g < unseen.shape[0] else stop
            if compactor[r.comm]:
                self.compacted = k
            if r.event == EV_FREE:
                if r.b == 0:
                    if self._leave(r.a):
                        self.compacted = k
                else:
                    self._isolated(k, r.a, <int>r.b)
            elif r.event == EV_PCPU_DRAIN:
                self._free(r.a, <int>r.b, <int>r.c)
            elif r.event == EV_ZONE_LOCKED or r.event == EV_EXTFRAG:
                self._take(k, doubtful)
                if len(self.unforeseen) > most:
                    stop = k + 1
                    break
            while next_direct == k:
                self._free(direct[d, 1], <int>direct[d, 2], -1)
                d += 1
                self.nr_direct = d
                next_direct = direct[d, 0] if d < direct.shape[0] else stop
        self.memory._check()
        return stop - start

    cdef int _free(self, int64_t pfn, int order, int mt) except -1:
        """To the lists; nothing if the pages are there already."""
        cdef int at = find_zone(&self.memory.mm, pfn), o = 0
        cdef zone *z
        cdef uint32_t page, i
        if at < 0 or not 0 <= order <= MAX_PAGE_ORDER or not -1 <= mt <= MIGRATE_PCPTYPES + 2:
            return 0
        z = &self.memory.mm.zone[at]
        page = zone_page(z, pfn)
        if page & ((1U << order) - 1) or page + (1U << order) > z.nr_words:
            return 0
        if containing(z, page, 0, &o) != NO_PAGE:
            return 0
        for i in range(1U << order):
            if z.page[page + i] & W_ORDER:
                return 0
        self.freed += 1
        if mt < 0:
            free_direct(z, page, order)
        else:
            fill_words(z.page + page, W_NONE, 1U << order)
            free_one(z, page, order, mt, False)
        return 0

    cdef uint32_t _free_block(self, int64_t pfn, zone **z, int *order) noexcept:
        """The free block that a page is in, or NO_PAGE."""
        cdef int at = find_zone(&self.memory.mm, pfn)
        if at < 0:
            return NO_PAGE
        z[0] = &self.memory.mm.zone[at]
        return containing(z[0], zone_page(z[0], pfn), 0, order)

    cdef bint _leave(self, int64_t pfn) noexcept:
        """Take a page off the free lists; false if it is not on them."""
        cdef zone *z = NULL
        cdef int o = 0
        cdef uint32_t page
        if self._free_block(pfn, &z, &o) == NO_PAGE:
            return False
        page = zone_page(z, pfn)
        take_anyway(z, page, 0)
        z.page[page] = W_HELD
        self.isolated += 1
        return True

    cdef void _unseen(self, int64_t pfn, int what) noexcept:
        """What has no line: see `run`."""
        cdef zone *z = NULL
        cdef int o = 0
        cdef uint32_t base
        if what == ALONE:
            self._leave(pfn)
            return
        base = self._free_block(pfn, &z, &o)
        if base == NO_PAGE:
            return
        if what == WHOLE:
            self.isolated += 1 << o
            isolate_free_page(z, base)
        elif o >= COSTLY_ORDER:
            turn(z, base, o, MIGRATE_MOVABLE)

    cdef void _isolated(self, Py_ssize_t k, int64_t pfn, int order) noexcept:
        """A page is freed: if it is on the free lists, it had left them without a line."""
        cdef int64_t i
        if not 0 <= order <= MAX_PAGE_ORDER:
            return
        for i in range(1 << order):
            if self._leave(pfn + i):
                self.compacted = k

    cdef int _take(self, Py_ssize_t k, bint doubtful) except -1:
        """A block that the kernel took: say which, then take the real one."""
        cdef const event_row *r = &self.rows[k]
        cdef int at = find_zone(&self.memory.mm, r.a), order = <int>r.b, mt = <int>r.c, o = 0
        cdef int mode = RMQUEUE_NORMAL
        cdef unsigned int flags = 0
        cdef Py_ssize_t j, why = -1, late = -1
        cdef zone *z
        cdef uint32_t page, said = NO_PAGE, orders, named = NO_PAGE, base, left
        cdef const event_row *steal = NULL
        if at < 0 or not 0 <= order <= MAX_PAGE_ORDER or not 0 <= mt <= MIGRATE_PCPTYPES:
            return 0
        z = &self.memory.mm.zone[at]
        page = zone_page(z, r.a)
        if page & ((1U << order) - 1):
            return 0
        if r.event == EV_EXTFRAG:
            if z.rules.fallback == FALLBACK_STEAL_THEN_RETRY:
                return 0  # its mm_page_alloc_zone_locked follows
            j = self._other(k, -1)
            if j >= 0 and self.rows[j].event == EV_ZONE_LOCKED and self.rows[j].a == r.a:
                return 0  # it came with that
            steal = r
        orders = <uint32_t>z.nonempty[mt] >> order
        if doubtful and containing(z, page, order, &o) == NO_PAGE:
            return 0
        if steal == NULL and orders:
            named = said = first_free(z, order + pages_ctz(orders), mt)
            if said != page:
                said = self._explain(k, z, page, order, mt, &why, &late)
            if said == page:
                if mt == MIGRATE_MOVABLE:
                    self.agreed[at, <int>(z.page[page] & W_ORDER) - 1] = k
                take_block(z, page, order, mt)
        if said == NO_PAGE and mt < MIGRATE_PCPTYPES:
            if steal == NULL:
                j = self._other(k, -1 if z.rules.fallback == FALLBACK_STEAL_THEN_RETRY else 1)
                if j >= 0 and self.rows[j].event == EV_EXTFRAG:
                    steal = &self.rows[j]
            if steal != NULL:
                z.claim = CLAIM_ALWAYS if steal.d >> 16 & 1 else CLAIM_NEVER
                if steal.d & 0xFF >= PAGEBLOCK_ORDER:
                    flags = ALLOC_NOFRAGMENT
                if z.rules.fallback == FALLBACK_CLAIM_OR_STEAL and not steal.d >> 16 & 1:
                    mode = RMQUEUE_STEAL
                    flags = 0
            while True:
                said = rmqueue(z, order, mt, flags, &mode)
                if said == page or said == NO_PAGE:
                    break
                if named == NO_PAGE:
                    named = said
                free_one(z, said, order, mt, False)
                j = self._left_unseen(k, z.base_pfn + said)
                if j < 0:
                    break
                why = j
                self.isolated += 1 << order
                take_anyway(z, said, order)
                fill_words(z.page + said, W_HELD, 1U << order)
            z.claim = CLAIM_COMPUTE
        self.taken += 1
        if why >= 0 and said == page:
            self.explained.append((k, <int64_t>(z.base_pfn + named), why))
        elif said == page:
            self.foreseen += 1
        else:
            self.unforeseen.append((k, -1 if named == NO_PAGE else <int64_t>(z.base_pfn + named)))
            blocks = []
            for left in (page, named):
                if left != NO_PAGE:
                    base = containing(z, left, 0, &o)
                    if base != NO_PAGE:
                        blocks.append((<int64_t>(z.base_pfn + base), o))
            self.around.append(blocks)
            o = order + pages_ctz(orders) if orders else -1
            if o >= 0 and turn(z, page, o, mt):
                take_block(z, page, order, mt)
            else:
                take_anyway(z, page, order)
        fill_words(z.page + page, W_HELD, 1U << order)
        if late >= 0:
            self._free(self.direct[late, 1], <int>self.direct[late, 2], -1)
        return 0

    cdef uint32_t _explain(
        self, Py_ssize_t k, zone *z, uint32_t page, int order, int mt, Py_ssize_t *why,
        Py_ssize_t *late
    ) except? 0xFFFFFFFE:
        """The page to expect, once what had left without a line is off the lists.

        ``late``: the direct free that has yet to come, -1 if none.
        """
        cdef uint32_t said, orders, freed
        cdef Py_ssize_t d, j, end
        cdef int o, at
        for d in range(self.nr_direct - 1, max(self.nr_direct - 64, 0) - 1, -1):
            j = self.direct[d, 3]
            self._check_row(j)
            at = find_zone(&self.memory.mm, self.direct[d, 1])
            if at < 0 or &self.memory.mm.zone[at] != z:
                continue
            end = self.index.next_in_context(j)
            o = <int>self.direct[d, 2]
            freed = zone_page(z, self.direct[d, 1])
            if not 0 <= o <= MAX_PAGE_ORDER:
                continue
            if containing(z, freed, o, &at) == NO_PAGE:
                continue
            if freed <= page < freed + (1U << o) and self._others_move_pages(j, min(end, k)):
                # It came to the lists after others that are ahead of it in the text.
                take_anyway(z, freed, o)
                add_to_free_list(z, freed, o, mt, False)
                orders = <uint32_t>z.nonempty[mt] >> order
                if first_free(z, order + pages_ctz(orders), mt) == page:
                    why[0] = j
                    return page
                continue
            if end < k:
                if self._comes_late(j, end, d, z, freed, page, order, mt):
                    why[0] = j
                    return page
                continue
            # It is not there yet.
            take_anyway(z, freed, o)
            fill_words(z.page + freed, W_HELD, 1U << o)
            orders = <uint32_t>z.nonempty[mt] >> order
            if orders and first_free(z, order + pages_ctz(orders), mt) == page:
                why[0] = j
                late[0] = d
                return page
            self._free(self.direct[d, 1], o, -1)
        while True:
            orders = <uint32_t>z.nonempty[mt] >> order
            if not orders:
                return NO_PAGE
            o = order + pages_ctz(orders)
            said = first_free(z, o, mt)
            if said == page:
                return said
            j = self._left_unseen(k, z.base_pfn + said)
            if j < 0:
                return self._turned(z, page, said, o, mt, why)
            why[0] = j
            self.isolated += 1 << o
            take_anyway(z, said, o)
            fill_words(z.page + said, W_HELD, 1U << o)

    cdef bint _comes_late(
        self, Py_ssize_t j, Py_ssize_t end, Py_ssize_t d, zone *z, uint32_t freed, uint32_t page,
        int order, int mt
    ) except -1:
        """Whether *page* is first once the block freed at row *j* came only by row *end*.

        The neighbours that others freed meanwhile say to which end of its list it goes.
        """
        cdef int o = <int>self.direct[d, 2]
        cdef uint32_t orders = <uint32_t>z.nonempty[mt] >> order
        if not orders or not is_free_block(z, freed, o) or is_free_block(z, freed ^ 1U << o, o):
            return False
        if first_free(z, order + pages_ctz(orders), mt) != freed:
            return False
        if not self._others_move_pages(j, end):
            return False
        del_from_free_list(z, freed)
        free_direct(z, freed, o)
        if first_free(z, order + pages_ctz(<uint32_t>z.nonempty[mt] >> order), mt) == page:
            return True
        del_from_free_list(z, freed)
        add_to_free_list(z, freed, o, mt, False)
        return False

    cdef uint32_t _turned(
        self, zone *z, uint32_t page, uint32_t said, int o, int mt, Py_ssize_t *why
    ) except? 0xFFFFFFFE:
        """Turn a list of movable blocks so that *page* is first, if compaction may have."""
        cdef Py_ssize_t at = find_zone(&self.memory.mm, z.base_pfn + page)
        if mt != MIGRATE_MOVABLE or o < COSTLY_ORDER or self.compacted <= self.agreed[at, o]:
            return said
        if turn(z, page, o, mt):
            why[0] = self.compacted
            return page
        return said

    cdef bint _others_move_pages(self, Py_ssize_t j, Py_ssize_t end) noexcept nogil:
        """Between two rows, does anyone else show that he moves pages?"""
        cdef Py_ssize_t i
        for i in range(j + 1, end):
            if self.rows[i].event in (
                EV_ZONE_LOCKED, EV_PCPU_DRAIN, EV_FREE_ONE_PAGE, EV_FREE
            ) and not same_context(&self.rows[i], &self.rows[j]):
                return True
        return False

    cdef Py_ssize_t _left_unseen(self, Py_ssize_t k, uint64_t pfn) except -2:
        """The row that shows in use a page which no row from here on allocates, or -1."""
        cdef Py_ssize_t j
        cdef const event_row *r
        cdef int32_t at
        cdef int64_t b = <int64_t>(pfn >> PAGEBLOCK_ORDER) - self.index.first_block
        self.index.make()
        for at in range(self.index.since(b, k), self.index.begin[b + 1]):
            j = self.index.about[at]
            r = &self.rows[j]
            if <uint64_t>r.a <= pfn < <uint64_t>r.a + (<uint64_t>1 << (r.b & 15)):
                if r.event == EV_FREE:
                    return j
                if r.event == EV_ZONE_LOCKED or r.event == EV_ALLOC or r.event == EV_EXTFRAG:
                    return -1
        if self._last is None:
            return -1
        free = self._last.free
        i = np.searchsorted(free[:, 0], pfn, side="right") - 1
        return -1 if i >= 0 and pfn < free[i, 1] else self._last.row

    def joined(self, Py_ssize_t k, int64_t pfn, int order):
        """Rows before *k* at which pages of a block came to the free lists, latest first."""
        cdef Py_ssize_t j, d = self.nr_direct - 1
        cdef const event_row *r
        cdef int64_t end = pfn + (<int64_t>1 << (order & 15))
        found = []
        for j in reversed([-1, *self.index.between(pfn, order & 15, 0, min(k, self.nr_rows))]):
            while d >= 0 and self.direct[d, 0] >= j:
                if self.direct[d, 0] < k and pfn <= self.direct[d, 1] < end:
                    found.append(self.direct[d, 0])
                d -= 1
            if j < 0:
                break
            r = &self.rows[j]
            if not pfn <= r.a < end:
                continue
            if r.event == EV_PCPU_DRAIN:
                found.append(j)
            elif r.event == EV_ZONE_LOCKED:
                break
        return found

    def gone(self, Py_ssize_t k, int64_t pfn, int order):
        """{page: row that shows that it left the free lists in silence}, from row *k* on."""
        cdef Py_ssize_t j
        cdef int64_t p, end = pfn + (<int64_t>1 << (order & 15))
        cdef const event_row *r
        waiting = set(range(pfn, end))
        shown = {}
        for j in self.index.between(pfn, order & 15, max(k, 0), self.nr_rows):
            r = &self.rows[j]
            if r.event not in (EV_FREE, EV_ZONE_LOCKED, EV_ALLOC, EV_EXTFRAG) \
                    or r.a >= end or r.a + (<int64_t>1 << (r.b & 15)) <= pfn:
                continue
            for p in range(max(pfn, r.a), min(end, r.a + (<int64_t>1 << (r.b & 15)))):
                if p in waiting:
                    waiting.discard(p)
                    if r.event == EV_FREE:
                        shown[p] = j
            if not waiting:
                break
        if self._last is not None and waiting:
            j, free = self._last.row, self._last.free
            left = np.array(sorted(waiting))
            i = np.searchsorted(free[:, 0], left, side="right") - 1
            held = (i < 0) | (left >= free[i, 1])
            shown.update(dict.fromkeys(left[held].tolist(), j))
        return shown

    def pfn(self, Py_ssize_t k):
        """The page frame of row *k*."""
        self._check_row(k)
        return self.rows[k].a

    def movable(self, int64_t pfn, int order):
        """The movable blocks of an order in a page's zone, head first."""
        cdef int at = find_zone(&self.memory.mm, pfn)
        if at < 0 or not 0 <= order <= MAX_PAGE_ORDER:
            return []
        check_idle(self.memory)
        return free_list(&self.memory.mm.zone[at], order, MIGRATE_MOVABLE)

    cdef Py_ssize_t _held_until(self, Py_ssize_t k) noexcept:
        """The row after the last of those that *k*'s hold of the zone lock shows."""
        cdef Py_ssize_t j = k
        while True:
            i = self._other(j, 1)
            if i < 0:
                return self.nr_rows - 1
            if self.rows[i].event not in (EV_ZONE_LOCKED, EV_EXTFRAG):
                return j + 1
            j = i

    def under_way(self, Py_ssize_t k):
        """(direct free announced before *k*, row by which it was done at the latest)."""
        cdef Py_ssize_t d, end
        found = []
        self._check_row(k)
        for d in range(max(self.nr_direct - 64, 0), self.nr_direct):
            self._check_row(self.direct[d, 3])
            end = self.index.next_in_context(self.direct[d, 3])
            found.append((d, self._held_until(k) if end > k else end - 1))
        return found

    cdef Py_ssize_t _other(self, Py_ssize_t k, int step) noexcept:
        """The row before or after on the same CPU, or -1."""
        cdef Py_ssize_t j = k + step
        while 0 <= j < self.nr_rows and self.rows[j].cpu != self.rows[k].cpu:
            j += step
        return j if 0 <= j < self.nr_rows else -1

    def settle(self, found):
        """Count as explained the blocks that are foreseen because of what *found* says."""
        known = {k for k, _, _ in self.explained} | {k for k, _ in self.unforeseen}
        more = [why for k, why in found.items() if k not in known]
        self.explained = sorted(self.explained + more)
        self.foreseen -= len(more)

    def free(self, n):
        """The free lists of a zone: (order, migratetype) -> pfns, head first."""
        cdef zone *z = &self.memory.mm.zone[self.memory._zone_number(n)]
        check_idle(self.memory)
        return {
            (order, mt): free_list(z, order, mt)
            for order in range(MAX_PAGE_ORDER + 1) for mt in range(MIGRATE_TYPES)
            if z.free_area[order][mt].live
        }

    def blocks(self, n, int order, int mt):
        """One of the lists of `free`."""
        cdef int at = self.memory._zone_number(n)
        if not 0 <= order <= MAX_PAGE_ORDER or not 0 <= mt < MIGRATE_TYPES:
            raise IndexError(f"no free list of order {order}, type {mt}")
        check_idle(self.memory)
        return free_list(&self.memory.mm.zone[at], order, mt)

    def differing(self, zones, free, among=None):
        """Free lists that are not those of a dump; of all, or *among* these.

        Returns
        -------
        dict
            (zone, (order, migratetype)) -> blocks that another one, or none, is to be before,
            and those that are not to be there.
        """
        cdef int order, mt
        cdef zone *z
        wrong = {}
        check_idle(self.memory)
        for n, spec in enumerate(zones):
            real = free.get(spec.key, {})
            z = &self.memory.mm.zone[self.memory._zone_number(n)]
            mine = {(order, mt): None for order in range(NR_PAGE_ORDERS)
                    for mt in range(MIGRATE_TYPES) if z.free_area[order][mt].live}
            for what in mine.keys() | real.keys():
                if among is None or (n, what) in among:
                    order, mt = what
                    told = real.get(what, _NO_BLOCKS)
                    if not is_list(z, order, mt, told):
                        wrong[n, what] = _misplaced(free_list(z, order, mt), told.tolist())
        return wrong


cdef bint is_list(const zone *z, int order, int mt, const int64_t[::1] told) except -1:
    """Does a free list hold just these page frames, head first?"""
    cdef const block_list *area = &z.free_area[order][mt]
    cdef uint32_t at = area.head, page
    cdef Py_ssize_t k = 0
    if told.shape[0] != area.live:
        return False
    while at != area.tail:
        page = block_list_at(area, z.page, free_kind(order, mt), at)
        if page != NO_PAGE:
            if <uint64_t>told[k] != z.base_pfn + page:
                return False
            k += 1
        at += 1
    return True


def _misplaced(has, real):
    """Blocks of a list that another one, or none, is to be before, and those not to be there."""
    before = dict(zip(has, [None, *has]))
    bad = [pfn for pfn, other in zip(real, [None, *real]) if before.get(pfn, -1) != other]
    return bad + list(before.keys() - set(real))


_NO_BLOCKS = np.empty(0, np.int64)


def _stints(rows, compactors):
    """When kcompactd had a CPU: (row that shows it, rows at which it may have turned lists).

    It scans before it shows pages, between those, and after, while nobody else shows on that CPU.
    """
    found = []
    if not compactors:
        return found
    mine = np.isin(rows["comm"], list(compactors))
    time = rows["time"]
    for cpu in sorted(set(rows["cpu"][mine].tolist())):
        here = np.flatnonzero(rows["cpu"] == cpu)
        edges = np.flatnonzero(np.diff(np.r_[False, mine[here], False]))
        for a, b in zip(edges[::2].tolist(), edges[1::2].tolist()):
            own = here[a:b]
            begin = bisect_left(time, time[own[0]] - SCAN_NS)
            end = bisect_left(time, time[own[-1]] + SCAN_NS) - 1
            if a:
                begin = max(begin, here[a - 1] + 1)
            if b < len(here):
                end = min(end, here[b])
            pause = np.flatnonzero(np.diff(own) > PAUSE_ROWS)
            drains = own[np.flatnonzero(np.diff(rows["event"][own] == EV_PCPU_DRAIN))]
            at = np.r_[begin, own[0], own[pause], own[pause + 1], drains, own[-1], end]
            found.append((int(own[-1]), at))
    return found


class _Course:
    """A trace that is followed again and again, with what has no line put elsewhere.

    A page that left the free lists in silence parts its neighbours from that moment on; a list
    that compaction turns is another one for whoever comes to it next; and a block that is freed
    past the per-CPU lists joins them only when its task has the lock.  All this shows later,
    when others are found in places that they could not have come to otherwise.  Whatever is
    put elsewhere must make foreseen the next block that was not, and spoil none before it.

    Parameters
    ----------
    fresh : callable
        Makes BuddyLists.
    start : BuddyLists
        At row *first*.
    stop : int
        The row after the last.
    direct : (M, 4) ndarray
    """

    def __init__(self, fresh, start, first, stop, direct):
        self.fresh = fresh
        self.spare = []  # BuddyLists that nobody needs any more
        self.kept = [(first, start)]  # to go on from
        self.stop = stop
        self.direct = direct
        self.unseen = set()
        self.sorted = None, [], None  # of `table`
        self.tries, self.effort = ALL_TRIES, ALL_ROWS
        self.cut = False  # that was not enough
        self.found = {}  # blocks that something unseen explains: row -> (row, named, evidence)

    def until(self, stop, direct, unseen, since, keep=0, most=None):
        """Follow up to row *stop* what differs from row *since* on; keep a place every so often."""
        n = max(bisect_right(self.kept, since, key=itemgetter(0)), 1)
        at, start = self.kept[n - 1]
        lists = self.copy(start)
        left = self.table(unseen)
        if keep:
            self.spare += [old for _, old in self.kept[n:]]
            del self.kept[n:]
            while at + keep < stop:
                lists.run(at, at + keep, direct, left)
                at += keep
                self.kept.append((at, self.copy(lists)))
        self.effort -= lists.run(at, stop, direct, left, most=most)
        return lists

    def table(self, unseen):
        """What has no line, as `BuddyLists.run` takes it.

        Of thousands that have been found a try has a few more or less.
        """
        known, order, table = self.sorted
        if known is not self.unseen:
            order = sorted(self.unseen)
            table = np.array(order, np.int64).reshape(-1, 3)
            self.sorted = self.unseen, order, table
        if unseen is self.unseen:
            return table
        gone = [bisect_left(order, what) for what in self.unseen - unseen]
        more = sorted(unseen - self.unseen)
        at = np.array([bisect_left(order, what) for what in more], np.int64)
        if gone:
            at -= np.searchsorted(np.sort(gone), at)
            table = np.delete(table, gone, 0)
        return np.insert(table, at, np.array(more, np.int64).reshape(-1, 3), 0)

    def copy(self, lists):
        """BuddyLists that go on where these are."""
        return (self.spare.pop() if self.spare else self.fresh()).resume(lists)

    @contextmanager
    def tried(self, stop, direct, unseen, since, most=None):
        """`until`, for a look."""
        lists = self.until(stop, direct, unseen, since, most=most)
        try:
            yield lists
        finally:
            self.spare.append(lists)

    def settled(self, stints):
        """Follow it to the end as well as can be; the lists, and the direct frees' new places."""
        first, stop = self.kept[0][0], self.stop
        keep = (stop - first) // PLACES + 1
        lists = self.until(stop, self.direct, self.unseen, first, keep)
        left = set()

        def unforeseen(since, direct, unseen, fewest):
            if since < first:
                return None
            with self.tried(k + 1, direct, unseen, since, len(left)) as tried:
                if not {j for j, _ in tried.unforeseen} <= left:
                    return None
                self.effort -= tried.run(
                    k + 1, stop, direct, self.table(unseen), most=fewest - 1)
                return len(tried.unforeseen)

        while len(lists.unforeseen) > len(left):
            bad, (k, named) = next(
                (n, row) for n, row in enumerate(lists.unforeseen) if row[0] not in left)
            with self.tried(k, self.direct, self.unseen, k) as before:
                best = self.best(
                    self.elsewhere(before, k, lists.around[bad], stints), unforeseen,
                    len(lists.unforeseen))
            if best is None:
                left.add(k)
                continue
            since, why, self.direct, self.unseen = best
            self.found[k] = k, named, why
            self.spare.append(lists)
            lists = self.until(stop, self.direct, self.unseen, since, keep)
        lists.settle(self.found)
        return lists, self.direct

    def best(self, groups, score, fewest):
        """What scores least, and less than so many, in the first group that has any; or None."""
        best = None
        for group in groups:
            for since, why, direct, unseen in group:
                if not self.tries or self.effort < 0:
                    self.cut = True
                    return best
                self.tries -= 1
                n = score(since, direct, unseen, fewest)
                if n is not None and n < fewest:
                    best, fewest = (since, why, direct, unseen), n
            if best is not None:
                break
        return best

    def elsewhere(self, before, k, around, stints):
        """What may have happened at another moment than it shows, the surest kind first.

        Yields
        ------
        iterable of (row from which all differs, row that is the evidence, direct, unseen)
        """
        direct, unseen = self.direct, self.unseen
        at = {row: why for why, rows in stints for row in rows.tolist() if row <= k}
        at |= {k: why for why, rows in stints if rows[0] <= k <= rows[-1]}
        scans = sorted(at, reverse=True)[:MAX_TRIES]
        yield self._freed_late(before, k)
        halves = {(pfn ^ HALF) & ~(HALF - 1) for pfn, _ in around}
        yield [
            self._half_isolated(row, at[row], half)
            for half in halves for row in scans
            if len(before.gone(row, half, PAGEBLOCK_ORDER - 1)) == HALF
        ]
        # The scanners of compaction go through a block of pages at a time.
        for wide in (2, PAGEBLOCK_ORDER):
            for pfn, order in around:
                wide = min(max(order + 2, wide), PAGEBLOCK_ORDER)
                for j in before.joined(k, pfn, order)[:JOINS]:
                    shown = before.gone(j, pfn & ~((1 << wide) - 1), wide)
                    if shown:
                        yield [(j, max(shown.values()), direct,
                                unseen | {(j, p, ALONE) for p in shown})]
        for row in scans:
            yield [(row, at[row], direct, unseen | {(row, before.pfn(k), TURNED)})]
        for row in scans:
            if row < self.kept[0][0]:
                continue
            with self.tried(row, direct, unseen, row) as there:
                lists = [there.movable(pfn, order) for pfn, order in around]
            for blocks in lists:
                yield [
                    (row, at[row], direct, unseen | {(row, blocks[n], TURNED)})
                    for n in _SCANNED if n < len(blocks)
                ]

    def agree(self, zones, free, stints):
        """Find what has no line and shows only in the free lists of the last dump.

        As in `settled`, it is put where it makes most blocks stand where the dump shows them,
        and none before it unforeseen.

        Returns
        -------
        BuddyLists
        dict
            (zone, (order, migratetype)) of a list that came out by that -> row that shows it.
        """
        first, stop = self.kept[0][0], self.stop
        keep = (stop - first) // PLACES + 1
        at = {row: why for why, rows in stints for row in rows.tolist() if first <= row < stop}
        lists = self.until(stop, self.direct, self.unseen, first, keep)
        wrong, shown = lists.differing(zones, free), {}

        def misplaced(since, direct, unseen, fewest):
            with self.tried(stop, direct, unseen, since, len(lists.unforeseen)) as tried:
                if len(tried.unforeseen) > len(lists.unforeseen):
                    return None
                return sum(map(len, tried.differing(zones, free).values()))

        while wrong:
            best = self.best(
                self.unlike(wrong, zones, free, at), misplaced, sum(map(len, wrong.values())))
            if best is None:
                break
            since, why, _, self.unseen = best
            self.spare.append(lists)
            lists = self.until(stop, self.direct, self.unseen, since, keep)
            before, wrong = wrong, lists.differing(zones, free)
            shown |= dict.fromkeys(before.keys() - wrong.keys(), why)
        lists.settle(self.found)
        return lists, shown

    def unlike(self, wrong, zones, free, at):
        """What may make the lists those of the dump; yields what `elsewhere` does."""
        rows = sorted(at, reverse=True)
        extra = {}
        for (n, (order, mt)), bad in wrong.items():
            real = set(free[zones[n].key].get((order, mt), ()))
            for pfn in bad:
                if pfn not in real:
                    extra.setdefault(pfn >> PAGEBLOCK_ORDER, (n, set()))[1].update(
                        _missing(free[zones[n].key], pfn, order))
        for block, (n, pages) in sorted(extra.items(), reverse=True):
            yield (self._taken(row, at[row], n, block, pages) for row in rows if pages)
        alone = sorted(what for what in self.unseen if what[2] == ALONE)
        for block in {pfn >> PAGEBLOCK_ORDER for bad in wrong.values() for pfn in bad}:
            mine = [what for what in alone if what[1] >> PAGEBLOCK_ORDER == block]
            for run in _runs(mine):
                others = self.unseen.difference(run)
                yield [
                    (min(row, run[0][0]), at[row], self.direct,
                     others | {(row, pfn, ALONE) for _, pfn, _ in run})
                    for row in rows
                ]
        for (n, (order, mt)), bad in wrong.items():
            if mt == MIGRATE_MOVABLE and order >= COSTLY_ORDER:
                real = [int(pfn) for pfn in free[zones[n].key].get((order, mt), ())]
                if real:
                    yield self._turns(order, real, bad, at)

    def _taken(self, row, why, n, block, pages):
        """These pages of a page block were isolated at this row, whole blocks if possible."""
        unseen = set()
        with self.tried(row, self.direct, self.unseen, row) as lists:
            there = lists.free(n)
        for (order, _), blocks in there.items():
            for pfn in blocks:
                if pfn >> PAGEBLOCK_ORDER == block:
                    here = pages.intersection(range(pfn, pfn + (1 << order)))
                    if len(here) == 1 << order:
                        unseen.add((row, pfn, WHOLE))
                    else:
                        unseen |= {(row, page, ALONE) for page in here}
        unseen |= {(self.stop - 1, page, ALONE) for page in pages}
        return row, why, self.direct, self.unseen | unseen

    def _turns(self, order, real, bad, at):
        """A list that was turned before a block joined it has that one elsewhere."""
        rows = sorted(at)
        place = {pfn: k for k, pfn in enumerate(real)}
        near = {place[pfn] - k for pfn in bad if pfn in place for k in (0, 1)}
        with self.tried(self.stop, self.direct, self.unseen, self.stop) as end:
            joins = [(0, self.stop - 1)] + [
                (k, j) for k in near for j in end.joined(self.stop, real[k], order)[:1]]
        for k, j in joins:
            with self.tried(j, self.direct, self.unseen, j) as lists:
                there = lists.movable(real[k], order)
            after = [(place[pfn] - k) % len(real) for pfn in there if pfn in place]
            after = [step for step in after if step or j == self.stop - 1]
            if after:
                head = real[(k + min(after)) % len(real)]
                for row in rows[:bisect_right(rows, j)]:
                    yield row, at[row], self.direct, self.unseen | {(row, head, TURNED)}

    def _freed_late(self, before, k):
        """A block past the per-CPU lists joins them once its task has the zone's lock."""
        for d, end in reversed(before.under_way(k)):
            later = self.direct.copy()
            later[d, 0] = end
            later = later[np.argsort(later[:, 0], kind="stable")]
            yield int(self.direct[d, 0]), int(self.direct[d, 3]), later, self.unseen

    def _half_isolated(self, row, why, pfn):
        """The half of a page block from this page on was isolated then, and not at another row."""
        other = {what for what in self.unseen if what[1:] == (pfn, WHOLE)}
        since = min((what[0] for what in other | {(row,)}))
        return since, why, self.direct, self.unseen - other | {(row, pfn, WHOLE)}


def _alike(free, other):
    """Whether two dumps of a zone have the same free lists."""
    return free.keys() == other.keys() and all(
        np.array_equal(pfns, other[what]) for what, pfns in free.items())


def _missing(free, pfn, order):
    """Pages of a block that are in none of the lists of a dump."""
    pages = set(range(pfn, pfn + (1 << order)))
    for (o, _), blocks in free.items():
        for base in blocks[(blocks > pfn - (1 << o)) & (blocks < pfn + (1 << order))].tolist():
            pages.difference_update(range(base, base + (1 << o)))
    return pages


class _Walk:
    """Somebody reads a list from its head on, block by block, and nobody holds the lock.

    What is read of a list that changes meanwhile was never all of it at one moment: but every block
    was followed by the next one read, at one moment after another.

    Parameters
    ----------
    blocks : sequence of int
        As read.
    torn : bool
        The reader did not come to the end: the last block left the list meanwhile.

    Attributes
    ----------
    over : int or None
        Row at which the end can have been read.
    """

    def __init__(self, blocks, torn):
        self.read = [None, *map(int, blocks)] + [None] * (not torn)
        self.torn = torn
        self.places = {0}  # where the reader may stand
        self.over = None

    def see(self, blocks, row):
        """The list as it is from this row on."""
        after = dict(zip([None, *blocks], [*blocks, None]))
        for k in sorted(self.places):
            while k + 1 < len(self.read) and after.get(self.read[k], -1) == self.read[k + 1]:
                k += 1
                self.places.add(k)
        there = len(self.read) - 1 in self.places
        if self.over is None and there and not (self.torn and self.read[-1] in after):
            self.over = row


def _runs(unseen):
    """Contiguous pages that leave at one row: lists of (row, pfn, what)."""
    runs = []
    for what in unseen:
        if runs and (what[0], what[1] - 1, what[2]) == runs[-1][-1]:
            runs[-1].append(what)
        else:
            runs.append([what])
    return runs


def follow(cap, state, work, markers, resized, touched):
    """Foresee every block that a recording's kernel took from its buddy lists.

    Parameters
    ----------
    cap : Recording
        With buddylists.before.
    state : Release
    work : (M,) array of WORK
        What `pcpmodel.trace.replay` found the kernel to have been given.
    markers : Markers
    resized : bool
        The lists' sizes changed on the way.
    touched : callable
        (first page frame, one past the last) -> whether the trace tells of any of these pages.

    Returns
    -------
    BuddyLists
    lists, lists_right : int
        Free lists of the dump ``after``, and how many were the model's at some moment of it, or as
        one reads them who walks them meanwhile.
    shown : list of (int, int, str)
        For each of these that is so only by what happened elsewhere: the last row before the dump,
        the row that shows it, and what it was.
    cut : bool
        What has no line was looked for no further: that had cost what it may.
    """
    whole, rows = cap.snapshot("before"), cap.trace[0].rows
    seen = cap.snapshot("after") if "after" in cap.tags else None
    after = markers.state.get("after")
    last = None
    if seen is None or seen.free is None or after is None or after.end is None:
        begin = len(rows)
        seen = None
    else:
        begin, end = after.begin, after.end
        last = _LastDump(begin, seen.free)
    names = cap.trace[1].comms
    compactors = {k for k, name in enumerate(names) if name.startswith("kcompactd")}
    past = work[work["op"] == WORK_DIRECT_FREE]
    past = past[np.argsort(past["row"], kind="stable")]
    direct = np.ascontiguousarray(
        np.stack([past[c] for c in ("row", "pfn", "order", "row")], 1), np.int64)
    start, first = markers.state["before"].begin, markers.state["before"].end

    # A zone of which the trace does not tell, and whose lists are as before, needs no following.
    dump = replace(whole, zones=[
        z for z in whole.zones if touched(z.start_pfn, z.end_pfn)
        or (seen is not None and not _alike(whole.free[z.key], seen.free[z.key]))
    ] or whole.zones[:1])

    index = None

    def fresh():
        nonlocal index
        memory = memory_at_start(state, dump, cap, resized=resized)
        index = _Index(rows, memory) if index is None else index
        return BuddyLists(memory, rows, compactors, last, cap.trace[0].spilled, index)

    def begun():
        lists = fresh()
        lists.run(start, first, direct, nothing, True)
        return lists

    nothing = np.empty((0, 3), np.int64)
    lists = begun()
    lists.run(first, begin, direct, nothing)
    course = stints = None
    if 0 < len(lists.unforeseen) <= MAX_UNFORESEEN:
        stints = _stints(rows, compactors)
        course = _Course(fresh, begun(), first, begin, direct)
        lists, direct = course.settled(stints)
    if seen is None:
        return lists, 0, 0, [], course is not None and course.cut
    total = sum(len(at) for at in seen.free.values())
    wrong = set(lists.differing(dump.zones, seen.free))
    walks = {}
    for n, what in wrong:
        key = dump.zones[n].key
        walks[n, what] = _Walk(seen.free[key].get(what, ()), (key, what) in seen.torn)
    at = begin
    while wrong and at < end:
        for n, what in wrong:
            walks[n, what].see(lists.blocks(n, *what), at)
        moved = lists.taken + lists.freed
        while at < end and lists.taken + lists.freed == moved:
            lists.run(at, at + 1, direct, nothing)
            at += 1
        wrong &= lists.differing(dump.zones, seen.free, wrong).keys()
    read = {what for what in wrong if walks[what].over is not None}
    shown = [(begin - 1, walks[what].over, READ_MEANWHILE) for what in sorted(read)]
    wrong -= read
    if wrong and stints is None:
        stints = _stints(rows, compactors)
    if wrong and stints:
        course = course or _Course(fresh, begun(), first, begin, direct)
        lists, found = course.agree(dump.zones, seen.free, stints)
        left = wrong & lists.differing(dump.zones, seen.free, wrong).keys()
        shown += [(begin - 1, found[what], COMPACTED) for what in sorted(wrong - left)]
        lists.run(begin, at, direct, nothing)
        wrong = left
    return lists, total, total - len(wrong), shown, course is not None and course.cut

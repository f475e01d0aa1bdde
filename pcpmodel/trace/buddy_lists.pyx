# cython: auto_pickle=False, autotestdict=False
"""Are the pages that a recorded kernel took the ones that its buddy lists say?

The free lists of a recording's first dump are kept up to date by what the trace shows under the
zone lock (refills, drains), and by acts (`ACT`): what happens to the lists where no line says
so.  All of it is done by the kernel's own functions (`kernel/buddy.pxd`).  Before every page that
the kernel took, the model says which one it is.

Acts are placed by `unseen`.  Two things are seen here, at the line where they show.  A page that is
freed while it is on the lists had left them in silence.  And where the kernel took a block that is
not the first of its list, those before it may not be there: a block past the per-CPU lists is freed
some time after the line that announces it, if its task shows nothing else in between (interrupts
apart), and not while another CPU holds the lock; a block may have left that nobody allocates until
it is freed, or is in use in the last dump; and the scanners of compaction move what is before the
block that they stopped at to the end of a list (fast_isolate_freepages(), mm/compaction.c).  Such a
block counts as explained, by that line.  After any other difference the lists are put right with
the real page, so that one event counts once.

One piece, though long: what is kept to go on from, and who looks back or reads along, know the
lists from inside.
"""

# SPDX-License-Identifier: GPL-2.0-only

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.stdlib cimport free as c_free
from libc.string cimport memcpy, memset

from pcpmodel.exclusive cimport begin_use, check_idle, end_use
from pcpmodel.kernel.buddy cimport (
    ALLOC_NOFRAGMENT, CLAIM_ALWAYS, CLAIM_COMPUTE, CLAIM_NEVER, add_to_free_list,
    del_from_free_list, first_free, free_direct, free_kind, free_one, is_free_block,
    isolate_free_page, rmqueue, take_block, zone, zone_page, zone_pfn, zone_spans,
)
from pcpmodel.kernel.memory cimport Memory
from pcpmodel.kernel.pages cimport (
    MAX_ORDER_NR_PAGES, MAX_PAGE_ORDER, MIGRATE_MOVABLE, MIGRATE_PCPTYPES, MIGRATE_TYPES, NO_PAGE,
    NR_PAGE_ORDERS, PAGE_ALLOC_COSTLY_ORDER, PAGEBLOCK_NR_PAGES, PAGEBLOCK_ORDER, W_HELD, W_NONE,
    W_ORDER, W_SLOT_MASK, W_SLOT_SHIFT, W_TYPE_SHIFT, W_WHAT, block_list, block_list_at,
    fill_words, pages_ctz, pages_likely, pages_unlikely,
)
from pcpmodel.kernel.rules cimport FALLBACK_CLAIM_OR_STEAL, FALLBACK_STEAL_THEN_RETRY
from pcpmodel.kernel.zone_state cimport free_list
from pcpmodel.trace.events cimport (
    EV_ALLOC, EV_EXTFRAG, EV_FREE, EV_FREE_BATCHED, EV_PCPU_DRAIN, EV_ZONE_LOCKED, event_row,
    extfrag_claims, extfrag_order,
)
from pcpmodel.trace.page_lists cimport STRETCH, leave_memory

import numpy as np

cdef enum:
    RMQUEUE_NORMAL = 0
    RMQUEUE_STEAL = 3

    # act.kind
    JOINS = 0     # a block comes to the lists, freed past the per-CPU lists
    LEAVES = 1    # a page is isolated, or taken in silence; what else is in its block stays
    ISOLATED = 2  # the free block that a page is in is isolated as a whole
    TURNED = 3    # the list of that block is turned, so that it is the first

    REGION_BYTES = MAX_ORDER_NR_PAGES * 4  # of the words of a largest block
    NR_UNDER_WAY = 64  # blocks past the per-CPU lists that may be on their way at once
    NEVER = 0x7FFFFFFFFFFFFFFF
    UNTOLD = -2

cdef struct act:
    int64_t row     # after which it happens, and before the next
    int64_t pfn
    int64_t proof   # row that shows it
    int32_t order   # of what joins
    int32_t kind

# One zone's lists.
cdef struct zone_lists:
    zone *z
    uint8_t *changed    # by largest block: since its words were kept
    int64_t agreed[NR_PAGE_ORDERS]  # last row at which the first movable block was the one taken

cdef act one_act
#: What happens to free lists without a line at that moment: the fields of an act.
ACT = np.asarray(<act[:1]>&one_act).dtype
UNDER_WAY = NR_UNDER_WAY
#: ``kind`` of an act.
KINDS = {"joins": JOINS, "leaves": LEAVES, "isolated": ISOLATED, "turned": TURNED}


cdef inline bint is_used(const zone *z, uint32_t page) noexcept nogil:
    """Whether the word of a page alone shows that it is in use."""
    return z.page[page] != W_NONE and not z.page[page] & W_ORDER


cdef uint32_t containing(const zone *z, uint32_t page, int order, int *order_ret) noexcept nogil:
    """The free block that holds a whole block, or NO_PAGE."""
    cdef uint32_t base
    cdef int o
    if is_used(z, page):
        return NO_PAGE
    for o in range(order, MAX_PAGE_ORDER + 1):
        base = page & ~((1U << o) - 1)
        if is_free_block(z, base, o):
            order_ret[0] = o
            return base
    return NO_PAGE


cdef inline int type_of_free(const zone *z, uint32_t page) noexcept nogil:
    """Migratetype of the list that a free block is on."""
    return z.page[page] >> W_TYPE_SHIFT & 7


cdef inline int order_of_free(const zone *z, uint32_t page) noexcept nogil:
    """Order of the free block that begins with a page; -1: none does."""
    return <int>(z.page[page] & W_ORDER) - 1


cdef void take_anyway(zone *z, uint32_t page, int order) noexcept nogil:
    """Take just this block, wherever it lies; what is split off stays on its lists."""
    cdef int o = 0, mt
    cdef uint32_t base = containing(z, page, order, &o), i
    if base == NO_PAGE:
        for i in range(1U << order):  # in smaller pieces, or not free at all
            if z.page[page + i] & W_ORDER:
                del_from_free_list(z, page + i)
    else:
        mt = type_of_free(z, base)
        del_from_free_list(z, base)
        while o > order:
            o -= 1
            if page & 1U << o:
                add_to_free_list(z, base, o, mt, False)
                base += 1U << o
            else:
                add_to_free_list(z, base + (1U << o), o, mt, False)
    fill_words(z.page + page, W_HELD, 1U << order)


cdef bint turn(zone *z, uint32_t page, int order, int mt) noexcept nogil:
    """Move what is before this block to the end of its list; false if it is not on it."""
    cdef uint32_t head
    if not is_free_block(z, page, order) or type_of_free(z, page) != mt:
        return False
    head = first_free(z, order, mt)
    while head != page:
        del_from_free_list(z, head)
        add_to_free_list(z, head, order, mt, True)
        head = first_free(z, order, mt)
    return True


cdef inline bint is_listed(const zone *z, int64_t pfn, uint32_t kind) noexcept nogil:
    """Whether a free block of this order and type begins with a page frame."""
    return zone_spans(z, pfn) and z.page[zone_page(z, pfn)] & W_WHAT == kind


cdef inline uint32_t place_of(const block_list *l, uint32_t page, uint32_t word) noexcept nogil:
    """Position of a block on its list; its page word has only the low bits."""
    cdef uint32_t at = l.head + ((word >> W_SLOT_SHIFT) - l.head & W_SLOT_MASK)
    while l.slot[at & (l.capacity - 1)] != page:
        at += W_SLOT_MASK + 1
    return at


cdef int64_t after(const zone *z, const block_list *l, uint32_t kind, int64_t pfn) noexcept nogil:
    """The page frame of the block after one that is on a list, or (-1) of the first; -1: none."""
    cdef uint32_t at = l.head, page
    if pfn >= 0:
        page = zone_page(z, pfn)
        at = place_of(l, page, z.page[page]) + 1
    while at != l.tail:
        page = block_list_at(l, z.page, kind, at)
        if page != NO_PAGE:
            return zone_pfn(z, page)
        at += 1
    return -1


cdef bint has_blocks(const zone *z, const block_list *l, uint32_t kind,
                     const int64_t[::1] told) noexcept:
    """Whether a list has these page frames, head first."""
    cdef uint32_t at = l.head, page
    cdef Py_ssize_t k = 0
    if <Py_ssize_t>l.live != told.shape[0]:
        return False
    while at != l.tail:
        page = block_list_at(l, z.page, kind, at)
        at += 1
        if page != NO_PAGE:
            if zone_pfn(z, page) != <uint64_t>told[k]:
                return False
            k += 1
    return True


cdef Py_ssize_t happened(const act[::1] acts, int64_t row) noexcept:
    """How many of them, ascending by row, come before a row."""
    cdef Py_ssize_t lo = 0, hi = acts.shape[0], mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if acts[mid].row < row:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef inline int64_t block_pages(const event_row *r) noexcept nogil:
    return <int64_t>1 << (r.b & 15)


cdef inline uint32_t *region(const zone_lists *zl, uint32_t n) noexcept nogil:
    """The words of a largest block."""
    return zl.z.page + (n << MAX_PAGE_ORDER)


cdef class Saved:
    """What free lists were at some row; made by `BuddyLists.save`, and only for that one."""

    cdef BuddyLists of
    cdef tuple counts
    cdef list zones


cdef list saved_lists(const zone *z):
    """The blocks of each list."""
    cdef const block_list *area
    cdef uint32_t at, page
    cdef uint32_t *out
    cdef int o, mt
    lists = []
    for o in range(NR_PAGE_ORDERS):
        for mt in range(MIGRATE_TYPES):
            area = &z.free_area[o][mt]
            lists.append(PyBytes_FromStringAndSize(NULL, area.live * sizeof(uint32_t)))
            out = <uint32_t *><char *>lists[-1]
            for at in range(area.tail - area.head):
                page = block_list_at(area, z.page, free_kind(o, mt), area.head + at)
                if page != NO_PAGE:
                    out[0] = page
                    out += 1
    return lists


cdef Py_ssize_t restore_lists(zone *z, list lists) except -1:
    """These blocks and no others; how many there are."""
    cdef const uint32_t *slot
    cdef block_list *area
    cdef Py_ssize_t i, n, blocks = 0
    cdef int o, mt
    for o in range(NR_PAGE_ORDERS):
        for mt in range(MIGRATE_TYPES):
            slots = lists[o * MIGRATE_TYPES + mt]
            slot, n = <const uint32_t *><const char *>slots, len(slots) // sizeof(uint32_t)
            area = &z.free_area[o][mt]
            area.head = area.tail = area.live = 0
            for i in range(n):
                add_to_free_list(z, slot[i], o, mt, True)
            blocks += n
    return blocks


cdef class BuddyLists:
    """Free lists that follow a trace.

    Parameters
    ----------
    memory : Memory
        Loaded with a recording's first dump; changed by `run`.
    rows : (N,) array of EVENT
        Rows of the trace.
    history : History, optional
        What the trace tells of a task elsewhere, and of pages at its end.
    spilled : bool
        The rows lie in a file (`Events.spilled`).
    """

    cdef Memory memory
    cdef const event_row *rows
    cdef Py_ssize_t nr_rows
    cdef object _rows
    cdef object history
    cdef bint spilled
    cdef int nr_zones
    cdef zone_lists *lists  # of each zone
    cdef list before  # of each, by largest block: its words before anything changed there, or None
    cdef list words  # ... and as last kept; where they have not changed since, those that it has
    cdef zone_lists *near  # of the last page frame
    cdef readonly int64_t taken  #: blocks taken from the buddy lists
    cdef public int64_t foreseen  #: of them, those that the model named
    cdef readonly int64_t isolated  #: pages that left the lists without a line
    cdef readonly int64_t freed  #: blocks given back to the buddy lists
    cdef readonly list unforeseen  #: (row, pfn that the model named or -1)
    cdef public list explained  #: (row, pfn that the model named, row that explains it)
    cdef readonly list around  #: for each unforeseen: (pfn, order) of the model's blocks about it
    cdef object given  # acts of the last run: how records are laid out takes time to find out
    cdef const act[::1] acts
    cdef Py_ssize_t nr_acts  # of them, those that have happened
    cdef object about  # rows that tell of pages, by page block; not before somebody asks
    cdef object about_of  # the page block of each
    cdef list late  # (row after which, pfn, order) of those that have to happen again
    cdef int64_t next_late
    cdef Py_ssize_t compacted  # last row at which a page was freed that was on the lists, -1 none

    def __cinit__(self, Memory memory not None, rows, history=None, bint spilled=False):
        cdef const uint8_t[::1] raw = rows.view("u1")
        cdef zone_lists *zl
        cdef int n, o
        if rows.dtype.itemsize != sizeof(event_row):
            raise ValueError("rows are not event rows")
        self.memory = memory
        self.lists = self.near = <zone_lists *>calloc(memory.mm.nr_zones, sizeof(zone_lists))
        if self.lists == NULL:
            raise MemoryError
        self.nr_zones = memory.mm.nr_zones
        self.before, self.words = [], []
        for n in range(self.nr_zones):
            zl = &self.lists[n]
            zl.z = &memory.mm.zone[n]
            for o in range(NR_PAGE_ORDERS):
                zl.agreed[o] = -1
            zl.changed = <uint8_t *>calloc(zl.z.nr_words >> MAX_PAGE_ORDER, 1)
            if zl.changed == NULL:
                raise MemoryError
            self.before.append([None] * (zl.z.nr_words >> MAX_PAGE_ORDER))
            self.words.append([None] * (zl.z.nr_words >> MAX_PAGE_ORDER))
        self._rows = rows
        self.history = history
        self.spilled = spilled
        self.nr_rows = raw.shape[0] // sizeof(event_row)
        self.rows = <const event_row *>&raw[0] if raw.shape[0] else NULL
        self.unforeseen = []
        self.explained = []
        self.around = []
        self.acts = self.given = np.empty(0, ACT)
        self.late = []
        self.next_late = NEVER
        self.compacted = -1

    def __dealloc__(self):
        for n in range(self.nr_zones):
            c_free(self.lists[n].changed)
        c_free(self.lists)

    cdef inline int _touch(self, zone_lists *zl, uint32_t page) except -1:
        """Something in a largest block will change."""
        if pages_unlikely(not zl.changed[page >> MAX_PAGE_ORDER]):
            self._change(zl, page >> MAX_PAGE_ORDER)
        return 0

    cdef int _change(self, zone_lists *zl, uint32_t i) except -1:
        zl.changed[i] = True
        if self.before[zl - self.lists][i] is None:
            self._keep(zl - self.lists, i)
            self.before[zl - self.lists][i] = self.words[zl - self.lists][i]
        return 0

    cdef int _keep(self, Py_ssize_t n, uint32_t i) except -1:
        self.words[n][i] = (<const char *>region(&self.lists[n], i))[:REGION_BYTES]
        return 0

    cdef tuple _save_zone(self, Py_ssize_t n):
        """A zone: its struct, types of its page blocks, lists, words where any changed."""
        cdef zone_lists *zl = &self.lists[n]
        cdef uint32_t i
        for i in range(zl.z.nr_words >> MAX_PAGE_ORDER):
            if zl.changed[i]:
                self._keep(n, i)
                zl.changed[i] = False
        return ((<const char *>zl.z)[:sizeof(zone)], (<const char *>zl.agreed)[:sizeof(zl.agreed)],
                (<const char *>zl.z.block)[:zl.z.nr_words >> PAGEBLOCK_ORDER],
                saved_lists(zl.z), self.words[n][:])

    cdef Py_ssize_t _restore_zone(self, Py_ssize_t n, tuple saved) except -1:
        """Undo it; how many words were copied."""
        cdef zone_lists *zl = &self.lists[n]
        cdef zone was = (<const zone *><const char *>saved[0])[0]
        cdef list before = self.before[n], words = self.words[n], then = saved[4]
        cdef uint32_t i
        cdef Py_ssize_t copied = 0
        memcpy(zl.agreed, <const char *>saved[1], sizeof(zl.agreed))
        memcpy(zl.z.block, <const char *>saved[2], zl.z.nr_words >> PAGEBLOCK_ORDER)
        for i in range(zl.z.nr_words >> MAX_PAGE_ORDER):
            had = before[i] if then[i] is None else then[i]
            if zl.changed[i] or words[i] is not had:
                memcpy(region(zl, i), <const char *>had, REGION_BYTES)
                words[i] = had
                copied += MAX_ORDER_NR_PAGES
        memset(zl.changed, 0, zl.z.nr_words >> MAX_PAGE_ORDER)
        copied += restore_lists(zl.z, saved[3])
        was.free_area = zl.z.free_area
        was.broken = zl.z.broken
        zl.z[0] = was
        return copied

    def save(self):
        """What the lists are now, for `restore`."""
        cdef Saved saved = Saved()
        check_idle(self.memory)
        saved.of = self
        saved.counts = (
            self.taken, self.foreseen, self.isolated, self.freed, self.compacted, self.next_late,
            self.unforeseen[:], self.explained[:], self.around[:], self.late[:])
        saved.zones = [self._save_zone(n) for n in range(self.nr_zones)]
        return saved

    def restore(self, Saved saved not None):
        """Go on where the lists were then; how many page words were copied."""
        check_idle(self.memory)
        if saved.of is not self:
            raise ValueError("saved of other free lists")
        (self.taken, self.foreseen, self.isolated, self.freed, self.compacted, self.next_late,
         unforeseen, explained, around, late) = saved.counts
        self.unforeseen, self.explained = unforeseen[:], explained[:]
        self.around, self.late = around[:], late[:]
        copied = sum([self._restore_zone(n, saved.zones[n]) for n in range(self.nr_zones)])
        self.memory._check()
        return copied

    def run(self, Py_ssize_t start, Py_ssize_t stop, acts not None, bint doubtful=False,
            most=None, bint until_moved=False):
        """Follow rows *start* ... *stop* - 1.

        Parameters
        ----------
        acts : (M,) ndarray of ACT
            Ascending by row.
        doubtful : bool
            While the first dump was taken: leave out what it shows already.
        most : int, optional
            No further once more than so many blocks are unforeseen.
        until_moved : bool
            No further once a block is taken or freed.

        Returns
        -------
        int
            Rows that were followed.
        """
        cdef int64_t moved = self.taken + self.freed
        cdef Py_ssize_t k = start
        if not 0 <= start <= stop <= self.nr_rows:
            raise ValueError("rows are out of range")
        begin_use(self.memory)
        try:
            if acts is not self.given:
                self.acts, self.given = acts, acts
            self.nr_acts = happened(self.acts, start)
            most = self.nr_rows if most is None else most
            if not until_moved:
                k = self._run(k, stop, doubtful, most)
            while until_moved and k < stop and self.taken + self.freed == moved:
                k = self._run(k, k + 1, doubtful, most)
            self.memory._check()
        finally:
            end_use(self.memory)
        return k - start

    cdef Py_ssize_t _run(self, Py_ssize_t k, Py_ssize_t stop, bint doubtful,
                         Py_ssize_t most) except -1:
        """Follow rows from *k* on; the row after the last."""
        cdef int64_t then
        while True:
            while self.next_late < k:
                _, pfn, order = self.late.pop(0)
                self.next_late = self.late[0][0] if self.late else NEVER
                self._free(pfn, order, -1)
            while self.nr_acts < self.acts.shape[0] and self.acts[self.nr_acts].row < k:
                self._do(&self.acts[self.nr_acts])
                self.nr_acts += 1
            if k >= stop:
                return k
            then = self.acts[self.nr_acts].row if self.nr_acts < self.acts.shape[0] else NEVER
            then = min(then, self.next_late, (k // STRETCH + 1) * STRETCH - 1, stop - 1)
            k = self._follow(k, then + 1, doubtful, most)
            if len(self.unforeseen) > most:
                return k
            if self.spilled and k % STRETCH == 0:
                leave_memory(self.rows + k - STRETCH, self.rows + k)

    cdef Py_ssize_t _follow(self, Py_ssize_t k, Py_ssize_t stop, bint doubtful,
                            Py_ssize_t most) except -1:
        """Follow rows *k* ... *stop* - 1, among which no act is; the row after the last."""
        cdef const event_row *r
        cdef const zone *z
        for k in range(k, stop):
            r = &self.rows[k]
            z = self.near.z
            if r.event == EV_FREE:
                # The one page of most frees is in use, and so on no list that it could leave.
                if r.b == 0 and zone_spans(z, r.a) and is_used(z, zone_page(z, r.a)):
                    continue
                if self._leaves(r.a, <int>r.b):
                    self.compacted = k
            elif r.event == EV_PCPU_DRAIN:
                self._free(r.a, <int>r.b, <int>r.c)
            elif r.event == EV_ZONE_LOCKED or r.event == EV_EXTFRAG:
                self._take(k, doubtful)
                # A block that was passed over just now comes once this hold of the zone lock ends,
                # for which free_one_page() waits (v6.1 to v7.3): that may be within these rows.
                if self.next_late < stop - 1 or len(self.unforeseen) > most:
                    return k + 1
        return stop

    cdef inline zone_lists *_lists_of(self, int64_t pfn) noexcept:
        """Those of a page frame's zone, or NULL."""
        if pages_likely(zone_spans(self.near.z, pfn)):
            return self.near
        return self._other_lists(pfn)

    cdef zone_lists *_other_lists(self, int64_t pfn) noexcept:
        cdef int n
        for n in range(self.nr_zones):
            if zone_spans(self.lists[n].z, pfn):
                self.near = &self.lists[n]
                return self.near
        return NULL

    cdef int _do(self, const act *a) except -1:
        """Something happens to the lists."""
        cdef zone_lists *zl
        cdef int o = 0
        cdef uint32_t base
        if a.kind == JOINS:
            return self._free(a.pfn, a.order, -1)
        if a.kind == LEAVES:
            return self._leaves(a.pfn, 0)
        zl = self._lists_of(a.pfn)
        base = NO_PAGE if zl == NULL else containing(zl.z, zone_page(zl.z, a.pfn), 0, &o)
        if base == NO_PAGE:
            return 0
        if a.kind == ISOLATED:
            self._touch(zl, base)
            self.isolated += 1 << o
            isolate_free_page(zl.z, base)
        elif a.kind == TURNED and o >= PAGE_ALLOC_COSTLY_ORDER:
            turn(zl.z, base, o, MIGRATE_MOVABLE)
        return 0

    cdef int _free(self, int64_t pfn, int order, int mt) except -1:
        """To the lists, of a type or (-1) that of the page block; not if it is there already."""
        cdef zone_lists *zl = self._lists_of(pfn)
        cdef zone *z
        cdef int o = 0
        cdef uint32_t page, i
        if zl == NULL or not 0 <= order <= MAX_PAGE_ORDER or not -1 <= mt <= MIGRATE_PCPTYPES + 2:
            return 0
        z = zl.z
        page = zone_page(z, pfn)
        if page & ((1U << order) - 1) or containing(z, page, 0, &o) != NO_PAGE:
            return 0
        for i in range(1U << order):
            if z.page[page + i] & W_ORDER:
                return 0
        self.freed += 1
        self._touch(zl, page)
        if mt < 0:
            free_direct(z, page, order)
        else:
            fill_words(z.page + page, W_NONE, 1U << order)
            free_one(z, page, order, mt, False)
        return 0

    cdef bint _leaves(self, int64_t pfn, int order) except -1:
        """Take what is free of a block off the lists; was anything?"""
        cdef zone_lists *zl = self._lists_of(pfn)
        cdef int o = 0
        cdef int64_t page, was = self.isolated
        if zl == NULL or not 0 <= order <= MAX_PAGE_ORDER:
            return False
        page = zone_page(zl.z, pfn)
        for page in range(page, min(page + (1 << order), <int64_t>zl.z.nr_words)):
            if containing(zl.z, <uint32_t>page, 0, &o) != NO_PAGE:
                self._touch(zl, <uint32_t>page)
                take_anyway(zl.z, <uint32_t>page, 0)
                self.isolated += 1
        return self.isolated != was

    cdef int _take(self, Py_ssize_t k, bint doubtful) except -1:
        """A block that the kernel took: say which, then take the real one."""
        cdef const event_row *r = &self.rows[k]
        cdef const event_row *claim = NULL
        cdef zone_lists *zl = self._lists_of(r.a)
        cdef zone *z
        cdef int order = <int>r.b, mt = <int>r.c, o = 0
        cdef uint32_t page, said = NO_PAGE, named = NO_PAGE, orders
        cdef Py_ssize_t why = -1
        if zl == NULL or not 0 <= r.b <= MAX_PAGE_ORDER or not 0 <= r.c <= MIGRATE_PCPTYPES:
            return 0
        z = zl.z
        page = zone_page(z, r.a)
        if page & ((1U << order) - 1):
            return 0
        if r.event == EV_EXTFRAG:
            if self._told_by_another(k, z):
                return 0
            claim = r
        if doubtful and containing(z, page, order, &o) == NO_PAGE:
            return 0
        self.taken += 1
        self._touch(zl, page)
        orders = 0 if claim != NULL else <uint32_t>z.nonempty[mt] >> order
        if orders:
            said = named = first_free(z, order + pages_ctz(orders), mt)
            if named != page:
                why = self._pass_over(k, zl, page, order, mt)
                said = page if why >= 0 else named
                orders = <uint32_t>z.nonempty[mt] >> order
        if orders and said == page:
            if mt == MIGRATE_MOVABLE:
                zl.agreed[order_of_free(z, page)] = k
            take_block(z, page, order, mt)
        elif not orders and mt < MIGRATE_PCPTYPES:
            said = self._fall_back(k, zl, page, order, mt, claim)
            named = said if named == NO_PAGE else named
        if said != page:
            self._unlike(k, z, page, order, mt, named)
        elif why >= 0:
            self.explained.append((k, <int64_t>(z.base_pfn + named), why))
        else:
            self.foreseen += 1
        fill_words(z.page + page, W_HELD, 1U << order)
        return 0

    cdef bint _told_by_another(self, Py_ssize_t k, const zone *z) noexcept:
        """Whether a mm_page_alloc_extfrag comes with a mm_page_alloc_zone_locked of its own."""
        cdef Py_ssize_t j
        if z.rules.fallback == FALLBACK_STEAL_THEN_RETRY:
            return True  # the one that follows
        j = self._other(k, -1)
        return j >= 0 and self.rows[j].event == EV_ZONE_LOCKED and self.rows[j].a == self.rows[k].a

    cdef uint32_t _fall_back(
        self, Py_ssize_t k, zone_lists *zl, uint32_t page, int order, int mt, const event_row *claim
    ) except? NO_PAGE:
        """A block of another type; what is not the page goes back."""
        cdef zone *z = zl.z
        cdef int mode = RMQUEUE_NORMAL, o, other
        cdef unsigned int flags = 0
        cdef uint32_t said
        cdef Py_ssize_t j
        if claim == NULL:
            j = self._other(k, -1 if z.rules.fallback == FALLBACK_STEAL_THEN_RETRY else 1)
            if j >= 0 and self.rows[j].event == EV_EXTFRAG:
                claim = &self.rows[j]
        if claim != NULL:
            z.claim = CLAIM_ALWAYS if extfrag_claims(claim) else CLAIM_NEVER
            if extfrag_order(claim) >= PAGEBLOCK_ORDER:
                flags = ALLOC_NOFRAGMENT
            if z.rules.fallback == FALLBACK_CLAIM_OR_STEAL and z.claim == CLAIM_NEVER:
                mode = RMQUEUE_STEAL
                flags = 0
        for o in range(order, NR_PAGE_ORDERS):
            for other in range(MIGRATE_TYPES):
                if z.free_area[o][other].live:
                    self._touch(zl, first_free(z, o, other))
        said = rmqueue(z, order, mt, flags, &mode)
        if said != page and said != NO_PAGE:
            free_one(z, said, order, mt, False)
        z.claim = CLAIM_COMPUTE
        return said

    cdef int _unlike(self, Py_ssize_t k, zone *z, uint32_t page, int order, int mt,
                     uint32_t named) except -1:
        """Nothing here explains this block: what is about it, and put the lists right."""
        cdef uint32_t orders = <uint32_t>z.nonempty[mt] >> order, base, other
        cdef int o = 0
        blocks = []
        for other in (page, named):
            if other != NO_PAGE:
                base = containing(z, other, 0, &o)
                if base != NO_PAGE:
                    blocks.append((<int64_t>(z.base_pfn + base), o))
        self.unforeseen.append((k, -1 if named == NO_PAGE else <int64_t>(z.base_pfn + named)))
        self.around.append(blocks)
        if orders and turn(z, page, order + pages_ctz(orders), mt):
            take_block(z, page, order, mt)
        else:
            take_anyway(z, page, order)
        return 0

    cdef Py_ssize_t _pass_over(self, Py_ssize_t k, zone_lists *zl, uint32_t page, int order,
                               int mt) except -2:
        """Take off the lists what may not be there, if only the page or nothing is left.

        The row that proves it, or -1.
        """
        cdef zone *z = zl.z
        cdef block_list *area
        cdef uint32_t at, block = NO_PAGE
        cdef int o
        cdef Py_ssize_t why = -1
        if self.history is None:
            return -1
        absent = []
        for o in range(order, NR_PAGE_ORDERS):
            area = &z.free_area[o][mt]
            at = area.head
            while at != area.tail and block != page:
                block = block_list_at(area, z.page, free_kind(o, mt), at)
                at += 1
                if block == NO_PAGE or block == page:
                    continue
                pfn = z.base_pfn + block
                d = self._under_way(k, pfn, o)
                j = self.acts[d].proof if d >= 0 else self.gone(k, pfn, 0).get(pfn, -1)
                if j >= 0:
                    why = j
                    absent.append((block, o, d >= 0))
                elif self._may_turn(k, zl, o, mt) and turn(z, page, o, mt):
                    return max(self.compacted, <Py_ssize_t>self.history.compacted(k))
                else:
                    return -1
            if block == page:
                break
        for block, o, late in absent:
            self._take_back(k, zl, block, o, late)
        return why

    cdef int _take_back(self, Py_ssize_t k, zone_lists *zl, uint32_t block, int o,
                        bint under_way) except -1:
        """This block is not there at row *k*; one that is under way comes once the lock is free."""
        self._touch(zl, block)
        del_from_free_list(zl.z, block)
        fill_words(zl.z.page + block, W_HELD, 1U << o)
        if under_way:
            self.freed -= 1
            self.late.append((self.held_until(k), zl.z.base_pfn + block, o))
            self.late.sort()
            self.next_late = self.late[0][0]
        else:
            self.isolated += 1 << o
        return 0

    cdef Py_ssize_t _under_way(self, Py_ssize_t k, uint64_t pfn, int order) except -2:
        """The act by which this block came to the lists, if it may not be there yet, or -1."""
        cdef Py_ssize_t d
        cdef int seen = 0
        for d in range(self.nr_acts - 1, -1, -1):
            seen += self.acts[d].kind == JOINS
            if seen > NR_UNDER_WAY:
                break
            if self.acts[d].kind == JOINS and <uint64_t>self.acts[d].pfn == pfn \
                    and self.acts[d].order == order:
                return d if self.history.until(self.acts[d].proof) > k else -1
        return -1

    def gone(self, Py_ssize_t k, int64_t pfn, int order):
        """{page: row that shows it in use} of a block's pages that no row from *k* on allocates."""
        cdef const uint8_t[::1] used
        cdef int64_t shown[PAGEBLOCK_NR_PAGES]
        cdef const event_row *r
        cdef Py_ssize_t i, n = <Py_ssize_t>1 << order, left = n, page
        cdef const int64_t[::1] about
        if not 0 <= order <= PAGEBLOCK_ORDER or pfn < 0 or pfn & (n - 1):
            raise ValueError(f"no block of order {order} in a page block: {pfn:#x}")
        if self.history is None:
            return {}
        for i in range(n):
            shown[i] = UNTOLD
        about = self._about(pfn >> PAGEBLOCK_ORDER, k, self.nr_rows)
        for i in range(about.shape[0]):
            r = &self.rows[about[i]]
            if r.event == EV_PCPU_DRAIN:
                continue
            for page in range(max(r.a - pfn, 0), min(r.a - pfn + block_pages(r), n)):
                if shown[page] == UNTOLD:
                    shown[page] = about[i] if r.event == EV_FREE else -1
                    left -= 1
            if left == 0:
                break
        if left:
            used = self.history.used_at_end(pfn, n)
            for page in range(n):
                if shown[page] == UNTOLD:
                    shown[page] = self.history.end if used[page] else -1
        return {pfn + page: shown[page] for page in range(n) if shown[page] >= 0}

    def joined(self, Py_ssize_t k, int64_t pfn, int order, const act[::1] acts):
        """The last row before *k* at which pages of a block came to the lists, and none was taken
        since; or -1."""
        cdef const int64_t[::1] about
        cdef const event_row *r
        cdef Py_ssize_t i
        cdef int64_t taken = -1, came = -1, end = pfn + (<int64_t>1 << order), block
        if not 0 <= order <= MAX_PAGE_ORDER:
            raise ValueError(f"no block of order {order}")
        for block in range(pfn >> PAGEBLOCK_ORDER, ((end - 1) >> PAGEBLOCK_ORDER) + 1):
            about = self._about(block, 0, k)
            for i in range(about.shape[0]):
                r = &self.rows[about[i]]
                if not pfn <= r.a < end or r.a >> PAGEBLOCK_ORDER != block:
                    continue
                if r.event == EV_ZONE_LOCKED:
                    taken = max(taken, about[i])
                elif r.event == EV_PCPU_DRAIN:
                    came = max(came, about[i])
        for i in range(acts.shape[0]):
            if acts[i].kind == JOINS and pfn <= acts[i].pfn < end and acts[i].row < k:
                came = max(came, acts[i].row)
        return came if came >= taken else -1

    cdef const int64_t[::1] _about(self, int64_t block, int64_t begin, int64_t end):
        """Rows from *begin* to *end* that tell where pages of a page block are, ascending."""
        rows = self._rows
        if self.about is None:
            event, pfn = rows["event"], rows["a"]
            k = np.flatnonzero((event >= EV_ALLOC) & (event <= EV_EXTFRAG)
                               & (event != EV_FREE_BATCHED) & (pfn >= 0))
            first = pfn[k] >> PAGEBLOCK_ORDER
            last = (pfn[k] + (1 << (rows["b"][k] & 15)) - 1) >> PAGEBLOCK_ORDER
            two = last > first  # of the largest order
            k, first = np.concatenate([k, k[two]]), np.concatenate([first, last[two]])
            order = np.lexsort((k, first))
            self.about, self.about_of = k[order], first[order]
        low, high = np.searchsorted(self.about_of, (block, block + 1))
        found = self.about[low:high]
        low, high = np.searchsorted(found, (begin, end))
        return found[low:high]

    cdef bint _may_turn(self, Py_ssize_t k, const zone_lists *zl, int order, int mt) except -1:
        """Whether compaction may have turned a list since its first block was the one taken."""
        if mt != MIGRATE_MOVABLE or order < PAGE_ALLOC_COSTLY_ORDER:
            return False
        return max(self.compacted, <Py_ssize_t>self.history.compacted(k)) > zl.agreed[order]

    cpdef Py_ssize_t held_until(self, Py_ssize_t k) except -1:
        """The last of the rows that *k*'s hold of the zone lock shows."""
        cdef Py_ssize_t j = k, i
        if not 0 <= k < self.nr_rows:
            raise IndexError(f"row {k} is outside 0..{self.nr_rows - 1}")
        while True:
            i = self._other(j, 1)
            if i < 0 or self.rows[i].event not in (EV_ZONE_LOCKED, EV_EXTFRAG):
                return j
            j = i

    cdef Py_ssize_t _other(self, Py_ssize_t k, int step) noexcept:
        """The row before or after on the same CPU, or -1."""
        cdef Py_ssize_t j = k + step
        while 0 <= j < self.nr_rows and self.rows[j].cpu != self.rows[k].cpu:
            j += step
        return j if 0 <= j < self.nr_rows else -1

    def zone_of(self, int64_t pfn):
        """The number of a page frame's zone, or -1."""
        cdef zone_lists *zl = self._lists_of(pfn)
        return -1 if zl == NULL else zl - self.lists

    cdef const block_list *_list(self, n, int order, int mt) except NULL:
        cdef int at = self.memory._zone_number(n)
        if not 0 <= order <= MAX_PAGE_ORDER or not 0 <= mt < MIGRATE_TYPES:
            raise IndexError(f"no free list of order {order}, type {mt}")
        check_idle(self.memory)
        return &self.memory.mm.zone[at].free_area[order][mt]

    def blocks(self, n, int order, int mt):
        """A free list of a zone: page frames, head first."""
        self._list(n, order, mt)
        return free_list(self.lists[n].z, order, mt)

    def free_in(self, n, uint64_t pfn):
        """The free blocks of a zone that begin in a page block: (page frame, order), ascending."""
        cdef const zone *z = self.lists[<int>self.memory._zone_number(n)].z
        cdef uint64_t begin = (pfn - z.base_pfn) & ~<uint64_t>(PAGEBLOCK_NR_PAGES - 1)
        cdef uint64_t page
        check_idle(self.memory)
        found = []
        if pfn < z.base_pfn or begin >= z.nr_words:
            return found
        for page in range(begin, begin + PAGEBLOCK_NR_PAGES):
            if z.page[page] & W_ORDER:
                found.append((z.base_pfn + page, order_of_free(z, <uint32_t>page)))
        return found

    def misplaced(self, n, int order, int mt, const int64_t[::1] told not None):
        """Of what a free list should be, the blocks that another one, or none, is to be before, and
        those that are not to be there."""
        cdef const block_list *area = self._list(n, order, mt)
        cdef const zone *z = self.lists[n].z
        cdef uint32_t kind = free_kind(order, mt)
        cdef int64_t follows = after(z, area, kind, -1)
        cdef Py_ssize_t k, there = 0
        wrong = []
        for k in range(told.shape[0]):
            if told[k] != follows:
                wrong.append(told[k])
            follows = -1
            if is_listed(z, told[k], kind):
                there += 1
                follows = after(z, area, kind, told[k])
        if there < <Py_ssize_t>area.live:
            wrong += set(free_list(z, order, mt)).difference(told)
        return wrong

    def is_list(self, n, int order, int mt, const int64_t[::1] told not None):
        """Whether a free list of a zone has these page frames, head first."""
        cdef const block_list *area = self._list(n, order, mt)
        return has_blocks(self.lists[n].z, area, free_kind(order, mt), told)


cdef class Walk:
    """Somebody reads a list from its head on, block by block, and nobody holds the lock.

    What is read of a list that changes meanwhile was never all of it at one moment: but every block
    was followed by the next one read, at one moment after another.

    Parameters
    ----------
    lists : BuddyLists
    n, order, mt : int
        A free list of a zone.
    blocks : (M,) ndarray of int64
        As read.
    torn : bool
        The reader did not come to the end: the last block left the list meanwhile.
    """

    cdef BuddyLists of
    cdef const zone *z
    cdef const block_list *area
    cdef uint32_t kind
    cdef const int64_t[::1] read
    cdef bint torn
    cdef Py_ssize_t reached     # blocks that can have been read, and then the end
    cdef readonly object over  #: row at which the end can have been read, or None

    def __cinit__(self, BuddyLists lists not None, n, int order, int mt,
                  const int64_t[::1] blocks not None, bint torn):
        self.area = lists._list(n, order, mt)
        self.of, self.z, self.kind = lists, lists.lists[n].z, free_kind(order, mt)
        self.read, self.torn = blocks, torn

    def see(self, row):
        """The list as it is from this row on."""
        cdef Py_ssize_t k = self.reached, n = self.read.shape[0], end = n + (not self.torn)
        cdef int64_t pfn
        check_idle(self.of.memory)
        while k < end:
            pfn = self.read[k - 1] if k else -1
            if (k and not is_listed(self.z, pfn, self.kind)) or (
                    after(self.z, self.area, self.kind, pfn) != (self.read[k] if k < n else -1)):
                break
            k += 1
        self.reached = k
        if self.over is None and k == end \
                and not (self.torn and (n == 0 or is_listed(self.z, self.read[n - 1], self.kind))):
            self.over = row

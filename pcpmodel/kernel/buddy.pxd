"""A zone: page frames, page blocks and the buddy lists of mm/page_alloc.c.

For modules that cimport this.  Pages are numbered within the zone: page =
pfn - zone.base_pfn; `zone_page` and `zone_pfn` convert.  Every function here
trusts its arguments: a page to free must be one that `zone_is_held` accepts,
orders are 0..10, request types 0..2.

    zone_init / zone_destroy      memory of a zone; fields as in struct zone below
    zone_copy                     pages and lists as another zone has them
    zone_free_range               put W_NONE pages on the lists, as at boot
    list_fresh                    write the words of free blocks that have none yet
    rmqueue_bulk                  one refill: n blocks to the tail of a PCP list
    rmqueue_buddy                 one block past the PCP lists
    free_direct                   free_one_page(): one block past the PCP lists
    free_one                      __free_one_page(): to the lists, merging
    rmqueue_smallest, add_to_free_list, del_from_free_list, expand
    zone_watermark_ok, zone_watermark_fast
    isolate_free_page             __isolate_free_page(): what compaction takes
    reserve_/unreserve_highatomic_pageblock, set_isolate, unset_isolate

None of them can fail; when memory for a list runs out the zone is marked
`broken`, its pages are no longer all listed, and the border raises.

Events (refilled, stolen and drained pages, and holds of the zone lock) are
appended to `zone.events` in the kernel's order while that is not NULL.

One thing the kernel knows and this model cannot: how many pages of a block
look movable.  Held pages carry that as a mark; `zone.claim` overrules it for a
replay that saw the kernel's decision.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc

from pcpmodel.kernel.lists cimport pcp_allowed_order
from pcpmodel.kernel.pages cimport (
    HPAGE_PMD_ORDER,
    MAX_ORDER_NR_PAGES,
    MAX_PAGE_ORDER,
    MIGRATE_CMA,
    MIGRATE_HIGHATOMIC,
    MIGRATE_ISOLATE,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    MIGRATE_TYPES,
    NR_PAGE_ORDERS,
    PAGEBLOCK_NR_PAGES,
    PAGEBLOCK_ORDER,
    W_HELD,
    W_NONE,
    W_ORDER,
    W_SLOT_MASK,
    W_TYPE_SHIFT,
    W_WHAT,
    block_list,
    block_list_del,
    block_list_first,
    block_list_grow,
    block_word,
    page_ring,
    pages_ctz,
    pages_likely,
    pages_unlikely,
)
from pcpmodel.kernel.rules cimport pcp_rules

cdef enum:
    # Allocation flags, as numbered in mm/internal.h of v6.12
    ALLOC_WMARK_MIN = 0
    ALLOC_WMARK_LOW = 1
    ALLOC_WMARK_HIGH = 2
    ALLOC_WMARK_MASK = 0x3
    ALLOC_NO_WATERMARKS = 0x4
    ALLOC_OOM = 0x8
    ALLOC_NON_BLOCK = 0x10
    ALLOC_MIN_RESERVE = 0x20
    ALLOC_CMA = 0x80
    ALLOC_NOFRAGMENT = 0x100
    ALLOC_HIGHATOMIC = 0x200
    ALLOC_KSWAPD = 0x800
    ALLOC_RESERVES = 0x238  # OOM, NON_BLOCK, MIN_RESERVE, HIGHATOMIC
    ALLOC_FLAGS = 0xFFF

    # zone.claim
    CLAIM_COMPUTE = 0
    CLAIM_ALWAYS = 1
    CLAIM_NEVER = 2

    # mm_event.kind
    EV_ZONE_LOCKED = 0  # mm_page_alloc_zone_locked: pfn, order, type, flag = percpu_refill
    EV_EXTFRAG = 1  # mm_page_alloc_extfrag: all fields; flag = change_ownership
    EV_PCPU_DRAIN = 2  # mm_page_pcpu_drain: pfn, order, type
    EV_HOLD = 3  # a hold of zone->lock ended: pfn = pages moved, order = HOLD_*

    HOLD_REFILL = 0
    HOLD_DRAIN = 1
    HOLD_ALLOC = 2
    HOLD_FREE = 3


cdef struct mm_event:
    uint64_t pfn
    uint8_t kind
    uint8_t order
    uint8_t type
    uint8_t fallback_order
    uint8_t fallback_type
    uint8_t flag


cdef struct event_buffer:
    mm_event *event
    size_t n
    size_t capacity


cdef struct zone:
    pcp_rules rules
    uint32_t *page  # a word per page frame, base_pfn on (pages.pxd)
    uint8_t *block  # migratetype per page block, base_pfn on; isolated ones read ISOLATE
    uint8_t *isolated  # per page block: 0, or 1 + the type underneath
    uint32_t nr_words  # page words; a multiple of the largest block
    uint32_t start, end  # first page and one past the last
    uint64_t base_pfn  # pfn of page 0; a multiple of the largest block
    uint16_t nonempty[MIGRATE_TYPES]  # bit per order
    block_list free_area[NR_PAGE_ORDERS][MIGRATE_TYPES]
    int64_t nr_free  # NR_FREE_PAGES: free pages outside isolated blocks
    int64_t nr_free_cma
    int64_t nr_free_highatomic
    int64_t nr_reserved_highatomic
    int64_t managed_pages
    int64_t watermark[3]  # min, low, high, without boost [pages]
    int64_t watermark_boost
    int64_t watermark_boost_factor  # 1/10000 of the high watermark; 0: none
    int64_t lowmem_reserve[4]  # by zone index of the request
    int nr_isolated  # isolated page blocks
    int node
    int index  # 0 DMA, 1 DMA32, 2 Normal, 3 Movable
    unsigned int flags  # ZONE_*
    int claim  # CLAIM_*: whether free + alike pages are enough to claim a block
    int broken  # no memory for a list: the zone is of no use any more
    event_buffer *events  # or NULL
    # Largest blocks that are free since boot, pages [fresh, fresh_end), are neither written nor
    # listed yet: they follow the movable ones that are, of which there is one at least.
    uint32_t fresh, fresh_end


cdef inline uint32_t zone_page(const zone *z, uint64_t pfn) noexcept nogil:
    return <uint32_t>(pfn - z.base_pfn)


cdef inline uint64_t zone_pfn(const zone *z, uint32_t page) noexcept nogil:
    return z.base_pfn + page


cdef inline bint zone_spans(const zone *z, uint64_t pfn) noexcept nogil:
    return z.base_pfn + z.start <= pfn < z.base_pfn + z.end


cdef inline bint zone_is_held(const zone *z, uint32_t page, int order) noexcept nogil:
    """Are all 2**order pages in use?  They must be words of the zone."""
    cdef uint32_t i
    for i in range(1U << order):
        if z.page[page + i] & W_WHAT != W_HELD:
            return False
    return True


cdef inline int block_type(const zone *z, uint32_t page) noexcept nogil:
    return z.block[page >> PAGEBLOCK_ORDER]


# Events


cdef inline mm_event *next_event(zone *z) noexcept nogil:
    """Room for an event; NULL if there is no memory."""
    cdef event_buffer *b = z.events
    cdef size_t capacity
    cdef mm_event *grown
    if b.n == b.capacity:
        capacity = max(2 * b.capacity, <size_t>1024)
        grown = <mm_event *>realloc(b.event, capacity * sizeof(mm_event))
        if grown == NULL:
            z.broken = 1
            return NULL
        b.event = grown
        b.capacity = capacity
    b.n += 1
    return &b.event[b.n - 1]


cdef inline void emit(
    zone *z, int kind, uint64_t pfn, int order, int type_, bint flag
) noexcept nogil:
    cdef mm_event *e
    if pages_unlikely(z.events != NULL):
        e = next_event(z)
        if e != NULL:
            e[0] = mm_event(pfn, kind, order, type_, 0, 0, flag)


# Free lists


cdef inline uint32_t free_kind(int order, int mt) noexcept nogil:
    """Word of a free block without its place in the list."""
    return <uint32_t>(order + 1) | <uint32_t>mt << W_TYPE_SHIFT


cdef inline void account(zone *z, int mt, int64_t pages) noexcept nogil:
    """Free pages of a type came (pages > 0) or went."""
    if pages_likely(mt < MIGRATE_PCPTYPES):
        z.nr_free += pages
        return
    if mt == MIGRATE_ISOLATE:
        return
    z.nr_free += pages
    if mt == MIGRATE_CMA:
        z.nr_free_cma += pages
    else:
        z.nr_free_highatomic += pages


cdef void list_fresh(zone *z, uint32_t end) noexcept nogil


cdef inline void add_to_free_list(
    zone *z, uint32_t page, int order, int mt, bint tail
) noexcept nogil:
    cdef block_list *area = &z.free_area[order][mt]
    cdef uint32_t at, kind = free_kind(order, mt)
    if pages_unlikely(order == MAX_PAGE_ORDER) and tail and mt == MIGRATE_MOVABLE:
        list_fresh(z, z.fresh_end)
    if (
        pages_unlikely(area.tail - area.head == area.capacity)
        and block_list_grow(area, z.page, kind) < 0
    ):
        z.broken = 1
        return
    at = area.tail if tail else area.head - 1  # no branch: which end is hard to predict
    area.tail += tail
    area.head -= not tail
    area.slot[at & (area.capacity - 1)] = page
    area.live += 1
    z.page[page] = block_word(kind, at)
    z.nonempty[mt] |= 1 << order
    account(z, mt, 1 << order)


cdef inline int del_from_free_list(zone *z, uint32_t page) noexcept nogil:
    """Take the free block at page off its list; returns its order."""
    cdef uint32_t word = z.page[page]
    cdef int order = <int>(word & W_ORDER) - 1, mt = word >> W_TYPE_SHIFT & 7
    cdef block_list *area = &z.free_area[order][mt]
    block_list_del(area, page, word)
    if area.live == 0:
        z.nonempty[mt] &= ~(1 << order)
    z.page[page] = W_NONE
    account(z, mt, -(1 << order))
    if pages_unlikely(order == MAX_PAGE_ORDER) and area.live == 0 and mt == MIGRATE_MOVABLE:
        list_fresh(z, z.fresh + MAX_ORDER_NR_PAGES)
    return order


cdef inline uint32_t first_free(zone *z, int order, int mt) noexcept nogil:
    """Head of a free list that is not empty."""
    return block_list_first(&z.free_area[order][mt], z.page, free_kind(order, mt))


cdef inline bint is_free_block(const zone *z, uint32_t page, int order) noexcept nogil:
    """Does a free block of exactly this order start at page?"""
    return z.page[page] & W_ORDER == <uint32_t>order + 1


cdef inline void expand(zone *z, uint32_t page, int low, int high, int mt) noexcept nogil:
    """Put the upper halves of a block of order ``high`` back, down to ``low``."""
    while high > low:
        high -= 1
        add_to_free_list(z, page + (1U << high), high, mt, False)


cdef inline uint32_t take_block(zone *z, uint32_t page, int order, int mt) noexcept nogil:
    """Take the first 2**order pages of the free block at page; the rest goes to type mt."""
    expand(z, page, order, del_from_free_list(z, page), mt)
    return page


cdef inline uint32_t rmqueue_smallest(zone *z, int order, int mt, int asked) noexcept nogil:
    """__rmqueue_smallest(); NO_PAGE if the type has no block.  ``asked``: type of the request."""
    cdef uint32_t orders = <uint32_t>z.nonempty[mt] >> order, page
    if orders == 0:
        return <uint32_t>-1
    page = take_block(z, first_free(z, order + pages_ctz(orders), mt), order, mt)
    if z.rules.zone_locked_list:
        emit(
            z, EV_ZONE_LOCKED, zone_pfn(z, page), order, mt,
            pcp_allowed_order(z.rules.nr_pcp_lists, order) and mt < MIGRATE_PCPTYPES,
        )
    else:
        emit(z, EV_ZONE_LOCKED, zone_pfn(z, page), order, asked, order == 0)
    return page


cdef inline uint32_t merge_within(zone *z, uint32_t page, int order) noexcept nogil:
    """Take the free buddy of a block, if there is one, off its list; was there?

    ``order`` is less than PAGEBLOCK_ORDER.  No branch on the answer: in an aged
    zone it is a coin toss.
    """
    cdef uint32_t buddy = page ^ 1U << order, word = z.page[buddy]
    cdef uint32_t yes = (word & W_ORDER) == <uint32_t>order + 1
    cdef uint32_t mt = word >> W_TYPE_SHIFT & 7 & (0 - yes)
    cdef block_list *area = &z.free_area[order][mt]
    if pages_unlikely(yes & (area.live == 1 or area.capacity - 1 > W_SLOT_MASK)):
        del_from_free_list(z, buddy)
        return 1
    area.live -= yes
    z.page[buddy] = word & (yes - 1)
    account(z, mt, -<int64_t>(yes << order))
    return yes


cdef inline void free_one(zone *z, uint32_t page, int order, int mt, bint tail) noexcept nogil:
    """__free_one_page(): merge with free buddies and list the result."""
    cdef uint32_t buddy, parent, merged
    cdef int other
    if order < PAGEBLOCK_ORDER:
        merged = merge_within(z, page, order)
        page &= ~(merged << order)
        order += merged
    while order < MAX_PAGE_ORDER:
        buddy = page ^ 1U << order
        if not is_free_block(z, buddy, order):
            break
        if pages_unlikely(order >= PAGEBLOCK_ORDER):
            other = block_type(z, buddy)
            if other != mt:
                if (mt >= MIGRATE_PCPTYPES or other >= MIGRATE_PCPTYPES) and (
                    # before v5.18 has_isolate_pageblock() alone keeps blocks apart
                    z.rules.merge_mergeable or mt == MIGRATE_ISOLATE or other == MIGRATE_ISOLATE
                ):
                    break
                # At this order the buddy is one page block: first block and all blocks agree.
                if z.rules.merge_retype:
                    z.block[buddy >> PAGEBLOCK_ORDER] = mt
        del_from_free_list(z, buddy)
        page &= buddy
        order += 1
    if not tail and order < MAX_PAGE_ORDER - 1:  # is a merge likely soon?
        parent = page & ~(1U << order)
        tail = is_free_block(z, parent ^ 2U << order, order + 1)
    add_to_free_list(z, page, order, mt, tail)


# buddy.pyx

cdef int zone_init(
    zone *z, const pcp_rules *rules, uint64_t start_pfn, uint64_t pages, uint32_t word
) noexcept nogil
cdef void zone_destroy(zone *z) noexcept nogil
cdef int zone_copy(zone *z, const zone *of) noexcept nogil
cdef void zone_free_range(zone *z, uint32_t page, uint32_t n) noexcept nogil
cdef uint32_t rmqueue(zone *z, int order, int mt, unsigned int flags, int *mode) noexcept nogil
cdef int rmqueue_bulk(
    zone *z, int order, int n, int mt, unsigned int flags, page_ring *list, int pindex, int cpu
) noexcept nogil
cdef uint32_t rmqueue_buddy(zone *z, int order, int mt, unsigned int flags) noexcept nogil
cdef void free_direct(zone *z, uint32_t page, int order) noexcept nogil
cdef int isolate_free_page(zone *z, uint32_t page) noexcept nogil
cdef bint zone_watermark_ok(
    const zone *z, int order, int64_t mark, int highest, unsigned int flags
) noexcept nogil
cdef bint zone_watermark_fast(
    const zone *z, int order, int which, int highest, unsigned int flags
) noexcept nogil
cdef void reserve_highatomic_pageblock(zone *z, uint32_t page, int order) noexcept nogil
cdef bint unreserve_highatomic_pageblock(zone *z, int mt, bint force) noexcept nogil
cdef bint set_isolate(zone *z, uint32_t page) noexcept nogil
cdef void unset_isolate(zone *z, uint32_t page, int mt) noexcept nogil

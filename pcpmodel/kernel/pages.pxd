"""Page frames and the two kinds of lists that hold them.

One 32-bit word per page frame of a zone, numbered from the zone's base (its
start rounded down to the largest block), so that XOR finds buddies:

    free block, head    order + 1 : 4 | list's migratetype : 3 | slot in the list : 25
    any other page              0 : 4 | what it is : 3         | ...
        W_NONE          inside a free block
        W_HELD          in use; bit 7: looks movable
        W_PCP           on a per-CPU list; cached migratetype : 3, pindex : 4, CPU : 16
        W_ABSENT        a hole, or outside the zone

Free lists (`block_list`) are rings.  An entry counts if the word of its page names
this list and this slot, so that a merge changes only the word, where a linked list
would touch two neighbours; what is left behind is passed over when the head comes
to it.  Per-CPU lists (`page_ring`) never lose an entry in the middle.  Both hold 4
bytes per entry and grow by doubling.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Memory for an array that is touched at random: on huge pages where there are any. */
    static inline void *pages_arena(size_t bytes)
    {
        const size_t huge = (size_t)2 << 20;
        void *arena;
        if (bytes < huge)
            return malloc(bytes ? bytes : 1);
        arena = aligned_alloc(huge, (bytes + huge - 1) & ~(huge - 1));
    #if defined(MADV_HUGEPAGE)
        if (arena)
            madvise(arena, bytes, MADV_HUGEPAGE);
    #endif
        return arena;
    }
    /* The same, of zeros, which take no memory until they are touched. */
    static inline void *pages_zeros(size_t bytes)
    {
        const size_t page = 4096;
        char *arena = calloc(bytes ? bytes : 1, 1);
    #if defined(MADV_HUGEPAGE)
        if (arena && bytes >= (size_t)2 << 20)
            madvise((void *)(((size_t)arena + page - 1) & ~(page - 1)), bytes - page,
                    MADV_HUGEPAGE);
    #endif
        return arena;
    }
    #define NO_PAGE UINT32_MAX
    #define pages_ctz(x) __builtin_ctz(x)
    #define pages_log2(x) (31 - __builtin_clz(x))
    static inline void pages_prefetch(const void *p)
    {
        __builtin_prefetch(p, 1);
        __asm__ volatile("");  /* or the compiler drops a function that does nothing else */
    }
    #define pages_barrier() __asm__ volatile("" ::: "memory")
    #define pages_likely(x) __builtin_expect(!!(x), 1)
    #define pages_unlikely(x) __builtin_expect(!!(x), 0)
    """
    const uint32_t NO_PAGE  # no page frame: the gap in a list
    void *pages_arena(size_t bytes) noexcept nogil
    void *pages_zeros(size_t bytes) noexcept nogil
    int pages_ctz(uint32_t x) noexcept nogil  # x != 0
    int pages_log2(uint32_t x) noexcept nogil  # x != 0
    void pages_prefetch(const void *p) noexcept nogil
    void pages_barrier() noexcept nogil
    bint pages_likely(bint x) noexcept nogil
    bint pages_unlikely(bint x) noexcept nogil


cdef enum:
    MAX_PAGE_ORDER = 10  # largest block: 2 ** 10 pages
    MAX_ORDER_NR_PAGES = 1024
    NR_PAGE_ORDERS = 11
    PAGE_ALLOC_COSTLY_ORDER = 3
    PAGEBLOCK_ORDER = 9
    PAGEBLOCK_NR_PAGES = 512
    HPAGE_PMD_ORDER = 9
    PAGES_PER_SECTION = 32768

    # enum migratetype, CONFIG_CMA and CONFIG_MEMORY_ISOLATION
    MIGRATE_UNMOVABLE = 0
    MIGRATE_MOVABLE = 1
    MIGRATE_RECLAIMABLE = 2
    MIGRATE_PCPTYPES = 3
    MIGRATE_HIGHATOMIC = 3
    MIGRATE_CMA = 4
    MIGRATE_ISOLATE = 5
    MIGRATE_TYPES = 6

    # zone->flags, as a mask
    ZONE_BOOSTED_WATERMARK = 1
    ZONE_RECLAIM_ACTIVE = 2
    ZONE_BELOW_HIGH = 4

    # Page words
    W_ORDER = 0xF  # mask: order + 1 of a free block's head, else 0
    W_TYPE_SHIFT = 4
    W_SLOT_SHIFT = 7
    W_SLOT_MASK = 0x1FFFFFF
    W_WHAT = 0x7F  # mask of a page that heads no free block
    W_NONE = 0x00
    W_HELD = 0x10
    W_PCP = 0x20
    W_ABSENT = 0x30
    W_MOVABLE = 0x80  # of a held page
    W_CACHED_SHIFT = 7  # of a page on a PCP list
    W_PINDEX_SHIFT = 10
    W_CPU_SHIFT = 16


cdef inline int run_order(uint64_t pfn, uint64_t n) noexcept nogil:
    """Order of the first block that free_prepared_contig_range() makes of n > 0 pages (v7.2)."""
    cdef uint32_t low = <uint32_t>(pfn & MAX_ORDER_NR_PAGES - 1)
    cdef int order = pages_ctz(low) if low else <int>MAX_PAGE_ORDER
    if n < 1U << order:
        order = pages_log2(<uint32_t>n)
    return order


cdef inline uint32_t pcp_word(int cached, int pindex, int cpu) noexcept nogil:
    return (
        W_PCP | <uint32_t>cached << W_CACHED_SHIFT | <uint32_t>pindex << W_PINDEX_SHIFT
        | <uint32_t>cpu << W_CPU_SHIFT
    )


cdef inline void fill_words(uint32_t *words, uint32_t value, uint32_t n) noexcept nogil:
    """Where n is small, one by one: after a wider store a load of one word has to wait."""
    cdef uint32_t i
    if n >= 16:
        for i in range(n):
            words[i] = value
    else:
        for i in range(n):
            words[i] = value
            pages_barrier()


# Free list of one order and migratetype


cdef struct block_list:
    uint32_t *slot  # ring of capacity slots; removed entries stay (or leave NO_PAGE)
    uint32_t capacity  # power of two, or 0
    uint32_t head  # no entry is before this position; positions wrap at 2 ** 32
    uint32_t tail  # no entry is here or after
    uint32_t live  # entries that count


cdef inline void block_list_free(block_list *l) noexcept nogil:
    free(l.slot)
    memset(l, 0, sizeof(block_list))


cdef inline uint32_t block_word(uint32_t kind, uint32_t position) noexcept nogil:
    """Word of a free block of this order and type (``kind``), listed at this position."""
    return kind | position << W_SLOT_SHIFT


cdef inline int block_list_grow(block_list *l, uint32_t *words, uint32_t kind) noexcept nogil:
    """Make room for one entry more at either end; -1 if there is no memory."""
    cdef uint32_t mask = l.capacity - 1, capacity = max(l.capacity, 16), at = l.head, i, page
    cdef uint32_t *slot = l.slot
    cdef uint32_t counts
    if l.live > l.capacity // 2 or l.capacity == 0:
        capacity = max(2 * l.capacity, 16)
        slot = <uint32_t *>pages_arena(<size_t>capacity * sizeof(uint32_t))
        if slot == NULL:
            return -1
    i = l.head
    while i != l.tail:  # leave out what was removed; no branch on that, it is a coin toss
        pages_prefetch(&words[l.slot[(i + 64) & mask]])
        page = l.slot[i & mask]
        counts = page != NO_PAGE
        page &= 0 - counts
        counts &= words[page] == block_word(kind, i)
        slot[at & (capacity - 1)] = page
        words[page] += (0 - counts) & (at - i) << W_SLOT_SHIFT
        at += counts
        i += 1
    l.tail = at
    if slot != l.slot:
        free(l.slot)
        l.slot = slot
        l.capacity = capacity
    return 0


cdef inline void block_list_del(block_list *l, uint32_t page, uint32_t word) noexcept nogil:
    """Remove an entry, given its page word, which the caller changes."""
    cdef uint32_t mask = l.capacity - 1, at
    l.live -= 1
    if l.live == 0:
        l.tail = l.head
    elif pages_unlikely(mask > W_SLOT_MASK):  # the word has only the low bits: leave a gap
        at = l.head + ((word >> W_SLOT_SHIFT) - l.head & W_SLOT_MASK)
        while l.slot[at & mask] != page:
            at += W_SLOT_MASK + 1
        l.slot[at & mask] = NO_PAGE


cdef inline uint32_t block_list_at(
    const block_list *l, const uint32_t *words, uint32_t kind, uint32_t position
) noexcept nogil:
    """The entry between head and tail at this position; NO_PAGE if it was removed."""
    cdef uint32_t page = l.slot[position & (l.capacity - 1)]
    return page if page != NO_PAGE and words[page] == block_word(kind, position) else NO_PAGE


cdef inline uint32_t block_list_first(
    block_list *l, const uint32_t *words, uint32_t kind
) noexcept nogil:
    """First entry of a list that is not empty."""
    cdef uint32_t page = block_list_at(l, words, kind, l.head)
    while page == NO_PAGE:
        l.head += 1
        page = block_list_at(l, words, kind, l.head)
    return page


# List of one pindex of a per-CPU pageset


cdef struct page_ring:
    uint32_t *slot  # ring of capacity slots
    uint32_t capacity  # power of two, or 0
    uint32_t head  # index of the first entry
    uint32_t len  # entries


cdef inline void page_ring_free(page_ring *r) noexcept nogil:
    free(r.slot)
    memset(r, 0, sizeof(page_ring))


cdef inline int page_ring_reserve(page_ring *r, uint32_t n) noexcept nogil:
    """Make room for n entries more; -1 if there is no memory."""
    cdef uint32_t capacity = max(r.capacity, 16), first
    cdef uint32_t *slot
    if r.capacity - r.len >= n:
        return 0
    if n > 0x80000000U - r.len:
        return -1
    while capacity - r.len < n:
        capacity *= 2
    slot = <uint32_t *>pages_arena(<size_t>capacity * sizeof(uint32_t))
    if slot == NULL:
        return -1
    first = min(r.len, r.capacity - r.head)
    if r.len:
        memcpy(slot, r.slot + r.head, first * sizeof(uint32_t))
        memcpy(slot + first, r.slot, (r.len - first) * sizeof(uint32_t))
    free(r.slot)
    r.slot = slot
    r.capacity = capacity
    r.head = 0
    return 0


cdef inline void page_ring_push_head(page_ring *r, uint32_t page) noexcept nogil:
    """Needs room."""
    r.head = (r.head - 1) & (r.capacity - 1)
    r.slot[r.head] = page
    r.len += 1


cdef inline void page_ring_push_tail(page_ring *r, uint32_t page) noexcept nogil:
    """Needs room."""
    r.slot[(r.head + r.len) & (r.capacity - 1)] = page
    r.len += 1


cdef inline uint32_t page_ring_pop_head(page_ring *r) noexcept nogil:
    """Needs an entry."""
    cdef uint32_t page = r.slot[r.head]
    r.head = (r.head + 1) & (r.capacity - 1)
    r.len -= 1
    return page


cdef inline uint32_t page_ring_pop_tail(page_ring *r) noexcept nogil:
    """Needs an entry."""
    r.len -= 1
    return r.slot[(r.head + r.len) & (r.capacity - 1)]


cdef inline void page_ring_swap_head(page_ring *r, uint32_t i) noexcept nogil:
    """Entry i, counted from the head, and the head change places."""
    cdef uint32_t at = (r.head + i) & (r.capacity - 1), page = r.slot[at]
    r.slot[at] = r.slot[r.head]
    r.slot[r.head] = page


cdef inline uint32_t page_ring_at(const page_ring *r, uint32_t i) noexcept nogil:
    """Entry i, counted from the head."""
    return r.slot[(r.head + i) & (r.capacity - 1)]

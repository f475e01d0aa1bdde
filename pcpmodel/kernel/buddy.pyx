# cython: cdivision=True
"""The buddy lists of a zone: refills, fallback, direct frees, watermarks, isolation.

Mirrors mm/page_alloc.c of v4.17 ... v7.3; where releases differ, the rules of
the zone choose.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pcpmodel.kernel.pages cimport (
    MAX_ORDER_NR_PAGES,
    MIGRATE_MOVABLE,
    MIGRATE_RECLAIMABLE,
    MIGRATE_UNMOVABLE,
    NO_PAGE,
    W_ABSENT,
    W_MOVABLE,
    W_SLOT_SHIFT,
    ZONE_BOOSTED_WATERMARK,
    block_list_free,
    block_word,
    fill_words,
    page_ring_push_tail,
    page_ring_reserve,
    pages_arena,
    pages_log2,
    pages_prefetch,
    pages_zeros,
    pcp_word,
)
from pcpmodel.kernel.rules cimport (
    FALLBACK_CLAIM_OR_STEAL,
    FALLBACK_STEAL_PAGE,
    FALLBACK_STEAL_THEN_RETRY,
)

# enum rmqueue_mode: what the last page of this refill needed
cdef enum:
    RMQUEUE_NORMAL = 0
    RMQUEUE_CMA = 1
    RMQUEUE_CLAIM = 2
    RMQUEUE_STEAL = 3

# Types that a request of each type falls back to, in order.
cdef int *FALLBACKS = [
    MIGRATE_RECLAIMABLE, MIGRATE_MOVABLE,
    MIGRATE_RECLAIMABLE, MIGRATE_UNMOVABLE,
    MIGRATE_UNMOVABLE, MIGRATE_MOVABLE,
]


cdef int zone_init(
    zone *z, const pcp_rules *rules, uint64_t start_pfn, uint64_t pages, uint32_t word
) noexcept nogil:
    """A zone of MOVABLE page blocks, every page with this word; -1 if there is no memory."""
    cdef uint64_t words, bytes
    memset(z, 0, sizeof(zone))
    z.rules = rules[0]
    z.base_pfn = start_pfn - start_pfn % MAX_ORDER_NR_PAGES
    z.start = <uint32_t>(start_pfn - z.base_pfn)
    z.end = <uint32_t>(z.start + pages)
    words = (<uint64_t>z.end + MAX_ORDER_NR_PAGES - 1) & ~<uint64_t>(MAX_ORDER_NR_PAGES - 1)
    z.nr_words = <uint32_t>words
    bytes = words * sizeof(uint32_t)
    # Of a large zone most words are never looked at: W_NONE is what fresh memory is of.
    z.page = <uint32_t *>(pages_arena(bytes) if word else pages_zeros(bytes))
    z.block = <uint8_t *>calloc(words >> PAGEBLOCK_ORDER, 1)
    z.isolated = <uint8_t *>calloc(words >> PAGEBLOCK_ORDER, 1)
    if z.page == NULL or z.block == NULL or z.isolated == NULL:
        zone_destroy(z)
        return -1
    fill_words(z.page, W_ABSENT, z.start)
    if word:
        fill_words(z.page + z.start, word, z.end - z.start)
    fill_words(z.page + z.end, W_ABSENT, z.nr_words - z.end)
    memset(z.block, MIGRATE_MOVABLE, words >> PAGEBLOCK_ORDER)
    return 0


cdef void zone_destroy(zone *z) noexcept nogil:
    cdef int order, mt
    for order in range(NR_PAGE_ORDERS):
        for mt in range(MIGRATE_TYPES):
            block_list_free(&z.free_area[order][mt])
    free(z.page)
    free(z.block)
    free(z.isolated)
    memset(z, 0, sizeof(zone))


cdef int zone_copy(zone *z, const zone *of) noexcept nogil:
    """Pages, page blocks and free lists of another zone with the same span.

    The rules, the watermarks and what is written down stay those of the zone.  -1 if there is no
    memory: it is unchanged then.
    """
    cdef block_list copies[NR_PAGE_ORDERS][MIGRATE_TYPES]
    cdef block_list *copy
    cdef const block_list *list
    cdef size_t bytes
    cdef int order, mt, enough = 1
    memset(copies, 0, sizeof(copies))
    for order in range(NR_PAGE_ORDERS):
        for mt in range(MIGRATE_TYPES):
            list, copy = &of.free_area[order][mt], &copies[order][mt]
            if list.live and enough:
                bytes = <size_t>list.capacity * sizeof(uint32_t)
                copy[0] = list[0]
                copy.slot = <uint32_t *>pages_arena(bytes)
                enough = copy.slot != NULL
                if enough:
                    memcpy(copy.slot, list.slot, bytes)
    for order in range(NR_PAGE_ORDERS):
        for mt in range(MIGRATE_TYPES):
            if enough:
                block_list_free(&z.free_area[order][mt])
                z.free_area[order][mt] = copies[order][mt]
            else:
                block_list_free(&copies[order][mt])
    if not enough:
        return -1
    memcpy(z.page, of.page, <size_t>z.nr_words * sizeof(uint32_t))
    memcpy(z.block, of.block, z.nr_words >> PAGEBLOCK_ORDER)
    memcpy(z.isolated, of.isolated, z.nr_words >> PAGEBLOCK_ORDER)
    memcpy(z.nonempty, of.nonempty, sizeof(z.nonempty))
    z.nr_free, z.nr_free_cma = of.nr_free, of.nr_free_cma
    z.nr_free_highatomic = of.nr_free_highatomic
    z.nr_reserved_highatomic = of.nr_reserved_highatomic
    z.nr_isolated = of.nr_isolated
    z.fresh, z.fresh_end = of.fresh, of.fresh_end
    return 0


cdef void zone_free_range(zone *z, uint32_t page, uint32_t n) noexcept nogil:
    """Put W_NONE pages on the lists as at boot: aligned blocks, ascending, to the tail.

    Of the largest blocks the first is listed; the others are when it is their turn, as most of a
    large zone is never asked for.
    """
    cdef uint32_t rest
    cdef int order
    while n:
        order = min(pages_ctz(page), MAX_PAGE_ORDER) if page else MAX_PAGE_ORDER
        order = min(order, pages_log2(n))
        free_one(z, page, order, MIGRATE_MOVABLE, True)
        page += 1U << order
        n -= 1U << order
        if order == MAX_PAGE_ORDER and not z.broken:
            rest = n & ~<uint32_t>(MAX_ORDER_NR_PAGES - 1)
            z.fresh, z.fresh_end = page, page + rest
            account(z, MIGRATE_MOVABLE, rest)
            page += rest
            n -= rest


cdef void list_fresh(zone *z, uint32_t end) noexcept nogil:
    """List the free blocks up to a page that nobody has asked for since boot, if there are any."""
    cdef uint32_t page = z.fresh, last = z.fresh_end
    end = min(end, last)
    z.fresh = last  # while blocks are listed there are none to be listed before them
    while page < end:
        account(z, MIGRATE_MOVABLE, -MAX_ORDER_NR_PAGES)
        add_to_free_list(z, page, MAX_PAGE_ORDER, MIGRATE_MOVABLE, True)
        page += MAX_ORDER_NR_PAGES
    z.fresh = page


# Fallback


cdef void emit_extfrag(
    zone *z, uint32_t page, int order, int fallback_order, int mt, int other
) noexcept nogil:
    cdef mm_event *e
    if z.events != NULL:
        e = next_event(z)
        if e != NULL:
            e[0] = mm_event(
                zone_pfn(z, page), EV_EXTFRAG, order, mt, fallback_order, other,
                block_type(z, page) == mt,
            )


cdef int fallback_type(const zone *z, int order, int mt) noexcept nogil:
    """First fallback type with a block of this order, or -1."""
    cdef int i
    for i in range(2):
        if z.nonempty[FALLBACKS[2 * mt + i]] >> order & 1:
            return FALLBACKS[2 * mt + i]
    return -1


cdef bint claimable(int order, int mt) noexcept nogil:
    """May a free block of this order make its page block change hands?"""
    return order >= PAGEBLOCK_ORDER // 2 or mt != MIGRATE_MOVABLE


cdef int lowest_claimed(int order, unsigned int flags) noexcept nogil:
    return PAGEBLOCK_ORDER if flags & ALLOC_NOFRAGMENT and order < PAGEBLOCK_ORDER else order


cdef void boost_watermark(zone *z, unsigned int flags) noexcept nogil:
    cdef int64_t most
    if z.watermark_boost_factor == 0 or z.managed_pages < 4 * PAGEBLOCK_NR_PAGES:
        return
    if not z.rules.boost_watermark:
        return
    most = z.watermark[ALLOC_WMARK_HIGH] * z.watermark_boost_factor // 10000
    if most == 0:
        return
    most = max(most, <int64_t>PAGEBLOCK_NR_PAGES)
    z.watermark_boost = min(z.watermark_boost + PAGEBLOCK_NR_PAGES, most)
    if flags & ALLOC_KSWAPD:
        z.flags |= ZONE_BOOSTED_WATERMARK


cdef bint pageblock_range(
    const zone *z, uint32_t page, uint32_t *start, uint32_t *end
) noexcept nogil:
    """Pages of the page block that may be moved; False at the edge of the zone."""
    start[0] = page & ~<uint32_t>(PAGEBLOCK_NR_PAGES - 1)
    end[0] = start[0] + PAGEBLOCK_NR_PAGES
    if z.rules.fallback == FALLBACK_STEAL_THEN_RETRY:
        if start[0] < z.start:
            start[0] = page
        return end[0] <= z.end
    return start[0] >= z.start and end[0] <= z.end


cdef uint32_t count_free(
    const zone *z, uint32_t start, uint32_t end, uint32_t *movable
) noexcept nogil:
    """Free pages in a range, and pages in use that look movable."""
    cdef uint32_t page = start, free_pages = 0, word
    movable[0] = 0
    while page < end:
        word = z.page[page]
        if word & W_ORDER:
            free_pages += 1U << (word & W_ORDER) - 1
            page += 1U << (word & W_ORDER) - 1
        else:
            movable[0] += word & (W_WHAT | W_MOVABLE) == W_HELD | W_MOVABLE
            page += 1
    return free_pages


cdef uint32_t move_freepages(zone *z, uint32_t start, uint32_t end, int mt) noexcept nogil:
    """Move the free blocks of a range, ascending, to the tails of a type's lists."""
    cdef uint32_t page = start, moved = 0
    cdef int order
    while page < end:
        if z.page[page] & W_ORDER:
            order = del_from_free_list(z, page)
            add_to_free_list(z, page, order, mt, True)
            moved += 1U << order
            page += 1U << order
        else:
            page += 1
    return moved


cdef int isolate_free_page(zone *z, uint32_t page) noexcept nogil:
    """__isolate_free_page(), its watermark test apart: order of the block that left the lists.

    At half a page block or more, its page blocks become movable; since v6.10 what
    else is free in them goes to the tails of the movable lists, even from there.
    """
    cdef int order = del_from_free_list(z, page), mt
    cdef uint32_t first = page >> PAGEBLOCK_ORDER, block, start, end
    fill_words(z.page + page, W_HELD | W_MOVABLE, 1U << order)
    if order < PAGEBLOCK_ORDER - 1:
        return order
    for block in range(first, first + (1U << max(order - PAGEBLOCK_ORDER, 0))):
        mt = z.block[block]
        if mt >= MIGRATE_PCPTYPES:
            continue
        if z.rules.fallback == FALLBACK_STEAL_THEN_RETRY:
            z.block[block] = MIGRATE_MOVABLE
        elif pageblock_range(z, block << PAGEBLOCK_ORDER, &start, &end):
            move_freepages(z, start, end, MIGRATE_MOVABLE)
            z.block[block] = MIGRATE_MOVABLE
    return order


cdef bint enough_alike(
    const zone *z, int mt, int from_type, uint32_t free_pages, uint32_t movable
) noexcept nogil:
    cdef uint32_t alike = 0
    if z.claim != CLAIM_COMPUTE:
        return z.claim == CLAIM_ALWAYS
    if mt == MIGRATE_MOVABLE:
        alike = movable
    elif from_type == MIGRATE_MOVABLE:
        alike = PAGEBLOCK_NR_PAGES - free_pages - movable
    return free_pages + alike >= PAGEBLOCK_NR_PAGES // 2


cdef void set_block_types(zone *z, uint32_t page, int order, int mt) noexcept nogil:
    """change_pageblock_range()"""
    memset(z.block + (page >> PAGEBLOCK_ORDER), mt, 1 << order - PAGEBLOCK_ORDER)


cdef int find_fallback(const zone *z, int order, int mt, unsigned int flags) noexcept nogil:
    """... v6.14: order of the block to take from, or -1."""
    cdef int o, lowest = lowest_claimed(order, flags)
    for o in range(MAX_PAGE_ORDER, lowest - 1, -1):
        if fallback_type(z, o, mt) < 0:
            continue
        if not claimable(o, mt) and o > order:
            o = order
            while fallback_type(z, o, mt) < 0:
                o += 1
        return o
    return -1


cdef bint steal_then_retry(zone *z, int order, int mt, unsigned int flags) noexcept nogil:
    """... v6.9 __rmqueue_fallback(): convert what a fallback type has."""
    cdef int o = find_fallback(z, order, mt, flags), other, from_type
    cdef uint32_t page, start, end, free_pages, movable, moved = 0
    if o < 0:
        return False
    other = fallback_type(z, o, mt)
    page = first_free(z, o, other)
    from_type = block_type(z, page)
    if from_type != MIGRATE_HIGHATOMIC:
        if o >= PAGEBLOCK_ORDER:
            set_block_types(z, page, o, mt)
        else:
            boost_watermark(z, flags)
            if claimable(o, mt) and pageblock_range(z, page, &start, &end):
                free_pages = count_free(z, start, end, &movable)
                moved = move_freepages(z, start, end, mt)
                if moved and enough_alike(z, mt, from_type, free_pages, movable):
                    z.block[page >> PAGEBLOCK_ORDER] = mt
    if not moved:
        del_from_free_list(z, page)
        add_to_free_list(z, page, o, mt, True)
    emit_extfrag(z, page, order, o, mt, other)
    return True


cdef uint32_t claim_block(
    zone *z, uint32_t page, int order, int o, int mt, int other, unsigned int flags
) noexcept nogil:
    """v6.10 on: take over the page block of a free block, if that is allowed."""
    cdef uint32_t start, end, free_pages, movable
    if o >= PAGEBLOCK_ORDER:
        set_block_types(z, page, o, mt)
        return take_block(z, page, order, mt)
    boost_watermark(z, flags)
    if not claimable(o, mt) or not pageblock_range(z, page, &start, &end):
        return NO_PAGE
    free_pages = count_free(z, start, end, &movable)
    if not enough_alike(z, mt, other, free_pages, movable):
        return NO_PAGE
    move_freepages(z, start, end, mt)
    z.block[page >> PAGEBLOCK_ORDER] = mt
    return rmqueue_smallest(z, order, mt, mt)


cdef uint32_t steal_page(zone *z, int order, int mt, unsigned int flags) noexcept nogil:
    """v6.10 ... v6.14 __rmqueue_fallback(): a page of a fallback type."""
    cdef int o = find_fallback(z, order, mt, flags), other
    cdef uint32_t block, page = NO_PAGE
    if o < 0:
        return NO_PAGE
    other = fallback_type(z, o, mt)
    block = first_free(z, o, other)
    if block_type(z, block) != MIGRATE_HIGHATOMIC:
        page = claim_block(z, block, order, o, mt, other, flags)
    if page == NO_PAGE:
        page = take_block(z, block, order, other)
    emit_extfrag(z, page, order, o, mt, other)
    return page


cdef uint32_t rmqueue_claim(zone *z, int order, int mt, unsigned int flags) noexcept nogil:
    """v6.15 on: __rmqueue_claim()"""
    cdef int o, other, lowest = lowest_claimed(order, flags)
    cdef uint32_t page
    for o in range(MAX_PAGE_ORDER, lowest - 1, -1):
        if not claimable(o, mt):
            break
        other = fallback_type(z, o, mt)
        if other < 0:
            continue
        page = claim_block(z, first_free(z, o, other), order, o, mt, other, flags)
        if page != NO_PAGE:
            emit_extfrag(z, page, order, o, mt, other)
            return page
    return NO_PAGE


cdef uint32_t rmqueue_steal(zone *z, int order, int mt) noexcept nogil:
    """v6.15 on: __rmqueue_steal()"""
    cdef int o, other
    cdef uint32_t page
    for o in range(order, NR_PAGE_ORDERS):
        other = fallback_type(z, o, mt)
        if other >= 0:
            page = take_block(z, first_free(z, o, other), order, other)
            emit_extfrag(z, page, order, o, mt, other)
            return page
    return NO_PAGE


# Allocation


cdef uint32_t rmqueue(zone *z, int order, int mt, unsigned int flags, int *mode) noexcept nogil:
    """__rmqueue(): one block, or NO_PAGE.  ``mode`` starts as 0 for every hold."""
    cdef uint32_t page
    cdef bint cma = (flags & ALLOC_CMA) != 0
    if cma and z.nr_free_cma > z.nr_free // 2 and z.rules.cma_balance:
        page = rmqueue_smallest(z, order, MIGRATE_CMA, mt)
        if page != NO_PAGE:
            return page

    if z.rules.fallback != FALLBACK_CLAIM_OR_STEAL:
        while True:
            page = rmqueue_smallest(z, order, mt, mt)
            if page == NO_PAGE and cma:
                page = rmqueue_smallest(z, order, MIGRATE_CMA, mt)
            if page != NO_PAGE:
                return page
            if z.rules.fallback == FALLBACK_STEAL_PAGE:
                return steal_page(z, order, mt, flags)
            if z.broken or not steal_then_retry(z, order, mt, flags):
                return NO_PAGE

    if mode[0] == RMQUEUE_NORMAL:
        page = rmqueue_smallest(z, order, mt, mt)
        if page != NO_PAGE:
            return page
    if mode[0] <= RMQUEUE_CMA and cma:
        page = rmqueue_smallest(z, order, MIGRATE_CMA, mt)
        if page != NO_PAGE:
            mode[0] = RMQUEUE_CMA
            return page
    if mode[0] <= RMQUEUE_CLAIM:
        page = rmqueue_claim(z, order, mt, flags)
        if page != NO_PAGE:
            mode[0] = RMQUEUE_NORMAL
            return page
    if not flags & ALLOC_NOFRAGMENT:
        page = rmqueue_steal(z, order, mt)
        if page != NO_PAGE:
            mode[0] = RMQUEUE_STEAL
            return page
    return NO_PAGE


cdef void link_blocks(
    zone *z, uint32_t page, uint32_t n, int order, int mt, uint32_t word, page_ring *list
) noexcept nogil:
    """Take n adjacent blocks to the tail of a PCP list that has room."""
    cdef uint32_t i, at = list.head + list.len, mask = list.capacity - 1
    fill_words(z.page + page, word, n << order)
    for i in range(n):
        list.slot[(at + i) & mask] = page + (i << order)
    list.len += n
    if z.events != NULL:
        for i in range(n):
            emit(
                z, EV_ZONE_LOCKED, zone_pfn(z, page + (i << order)), order, mt,
                order == 0 or z.rules.zone_locked_list,
            )


cdef uint32_t take_pages(
    zone *z, int mt, uint32_t n, uint32_t word, page_ring *list
) noexcept nogil:
    """Take up to n blocks of order 0 to the tail of a PCP list that has room; returns how many.

    In an aged zone every word is a cache miss, and whether an entry counts a coin
    toss: ask for the words to come, and do not branch on what they say.
    """
    cdef block_list *area = &z.free_area[0][mt]
    cdef uint32_t *words = z.page
    cdef const uint32_t *slot = area.slot
    cdef uint32_t *out = list.slot
    cdef uint32_t mask = area.capacity - 1, at = area.head, nr_words = z.nr_words
    cdef uint32_t first = list.head + list.len, out_mask = list.capacity - 1
    cdef uint32_t expected = block_word(free_kind(0, mt), at), i = 0, page, old, counts
    n = min(n, area.live)
    while i < n:
        page = slot[(at + 64) & mask]
        pages_prefetch(&words[page if page < nr_words else 0])
        page = slot[at & mask]
        counts = page < nr_words
        page &= 0 - counts
        old = words[page]
        counts &= old == expected
        words[page] = old ^ (old ^ word) & (0 - counts)
        out[(first + i) & out_mask] = page
        i += counts
        at += 1
        expected += 1 << W_SLOT_SHIFT
    area.head = at
    area.live -= n
    if area.live == 0:
        area.tail = at
        z.nonempty[mt] &= ~1
    account(z, mt, -<int64_t>n)
    list.len += n
    if z.events != NULL:
        for i in range(n):
            emit(z, EV_ZONE_LOCKED, zone_pfn(z, out[(first + i) & out_mask]), 0, mt, True)
    return n


cdef int rmqueue_bulk(
    zone *z, int order, int n, int mt, unsigned int flags, page_ring *list, int pindex, int cpu
) noexcept nogil:
    """One refill under one hold: up to n blocks to the tail of a PCP list; returns how many.

    Of a block of its own type a refill takes one piece after the other, always
    from what the last split left: here they are taken in one step.
    """
    cdef uint32_t orders, page, end, take
    cdef int got = 0, o, mode = RMQUEUE_NORMAL
    cdef uint32_t word = pcp_word(mt, pindex, cpu)
    if page_ring_reserve(list, n) < 0:
        z.broken = 1
        return 0
    while got < n:
        orders = <uint32_t>z.nonempty[mt] >> order
        if orders and mode == RMQUEUE_NORMAL and not (flags & ALLOC_CMA and z.nr_free_cma):
            o = pages_ctz(orders)
            if order + o == 0:
                got += <int>take_pages(z, mt, <uint32_t>(n - got), word, list)
                continue
            page = first_free(z, order + o, mt)
            del_from_free_list(z, page)
            end = page + (1U << order + o)
            take = min(1U << o, <uint32_t>(n - got))
            link_blocks(z, page, take, order, mt, word, list)
            got += take
            page += take << order
            while page < end:  # the aligned pieces that the splits left
                o = pages_ctz(page)
                add_to_free_list(z, page, o, mt, False)
                page += 1U << o
            continue
        page = rmqueue(z, order, mt, flags, &mode)
        if page == NO_PAGE:
            break
        got += 1
        page_ring_push_tail(list, page)
        # A page of a CMA area remembers that.
        fill_words(
            z.page + page,
            pcp_word(MIGRATE_CMA, pindex, cpu) if block_type(z, page) == MIGRATE_CMA else word,
            1U << order,
        )
    emit(z, EV_HOLD, <uint64_t>got << order, HOLD_REFILL, 0, False)
    return got


cdef uint32_t rmqueue_buddy(zone *z, int order, int mt, unsigned int flags) noexcept nogil:
    """One block past the PCP lists, or NO_PAGE; its words are W_NONE."""
    cdef uint32_t page = NO_PAGE
    cdef int mode = RMQUEUE_NORMAL
    if flags & ALLOC_HIGHATOMIC:
        page = rmqueue_smallest(z, order, MIGRATE_HIGHATOMIC, mt)
    if page == NO_PAGE:
        page = rmqueue(z, order, mt, flags, &mode)
    if page == NO_PAGE and (
        flags & ALLOC_OOM or (flags & ALLOC_NON_BLOCK and z.rules.highatomic_last_resort)
    ):
        page = rmqueue_smallest(z, order, MIGRATE_HIGHATOMIC, mt)
    emit(z, EV_HOLD, 0 if page == NO_PAGE else 1 << order, HOLD_ALLOC, 0, False)
    if (
        page != NO_PAGE and flags & ALLOC_HIGHATOMIC and z.rules.highatomic_in_buddy
        and (not z.rules.highatomic_fast_path or flags & ALLOC_WMARK_MASK == ALLOC_WMARK_MIN)
    ):
        reserve_highatomic_pageblock(z, page, order)
    return page


# Free


cdef void split_large(zone *z, uint32_t page, int order) noexcept nogil:
    """split_large_buddy(): free page block by page block, each with its own type."""
    cdef uint32_t end = page + (1U << order)
    order = min(order, <int>PAGEBLOCK_ORDER)
    while page < end:
        free_one(z, page, order, block_type(z, page), False)
        page += 1U << order


cdef void free_direct(zone *z, uint32_t page, int order) noexcept nogil:
    """free_one_page(): a block in use, past the PCP lists."""
    fill_words(z.page + page, W_NONE, 1U << order)
    if z.rules.free_split_blocks:
        split_large(z, page, order)
    else:
        free_one(z, page, order, block_type(z, page), False)
    emit(z, EV_HOLD, 1 << order, HOLD_FREE, 0, False)


# Watermarks


cdef int64_t unusable(const zone *z, int order, unsigned int flags) noexcept nogil:
    cdef int64_t pages = (1 << order) - 1
    if not flags & ALLOC_RESERVES:
        if z.rules.highatomic_free_counter:
            pages += z.nr_free_highatomic
        else:
            pages += z.nr_reserved_highatomic
    if not flags & ALLOC_CMA:
        pages += z.nr_free_cma
    return pages


cdef bint zone_watermark_ok(
    const zone *z, int order, int64_t mark, int highest, unsigned int flags
) noexcept nogil:
    """__zone_watermark_ok(); ``mark`` includes the boost."""
    cdef uint32_t orders
    if flags & ALLOC_RESERVES:
        if flags & ALLOC_MIN_RESERVE:
            mark -= mark // 2
            if flags & ALLOC_NON_BLOCK:
                mark -= mark // 4
        if flags & ALLOC_OOM:
            mark -= mark // 2
    if z.nr_free - unusable(z, order, flags) <= mark + z.lowmem_reserve[highest]:
        return False
    if order == 0:
        return True
    orders = (
        z.nonempty[MIGRATE_UNMOVABLE] | z.nonempty[MIGRATE_MOVABLE]
        | z.nonempty[MIGRATE_RECLAIMABLE]
    )
    if flags & ALLOC_CMA:
        orders |= z.nonempty[MIGRATE_CMA]
    if flags & (ALLOC_HIGHATOMIC | ALLOC_OOM):
        orders |= z.nonempty[MIGRATE_HIGHATOMIC]
    return orders >> order != 0


cdef bint zone_watermark_fast(
    const zone *z, int order, int which, int highest, unsigned int flags
) noexcept nogil:
    """zone_watermark_fast(); ``which`` is ALLOC_WMARK_MIN, _LOW or _HIGH."""
    cdef int64_t mark = z.watermark[which] + z.watermark_boost
    cdef int64_t usable
    if order == 0:
        usable = z.nr_free - min(z.nr_free, unusable(z, 0, flags))
        if usable > mark + z.lowmem_reserve[highest]:
            return True
    if zone_watermark_ok(z, order, mark, highest, flags):
        return True
    # Atomic requests of order 0 look past the boost of the min watermark.
    return (
        order == 0 and flags & ALLOC_MIN_RESERVE and z.watermark_boost
        and which == ALLOC_WMARK_MIN
        and zone_watermark_ok(z, order, z.watermark[which], highest, flags)
    )


# High-atomic reserve


cdef void reserve_highatomic_pageblock(zone *z, uint32_t page, int order) noexcept nogil:
    """Keep the page block of a high-atomic request for others of its kind."""
    cdef int64_t share = z.managed_pages // 100, most = share + PAGEBLOCK_NR_PAGES
    cdef uint32_t start, end
    cdef bint whole
    if z.rules.highatomic_limit_rounded:
        if share < PAGEBLOCK_NR_PAGES:
            return
        most = (share + PAGEBLOCK_NR_PAGES - 1) // PAGEBLOCK_NR_PAGES * PAGEBLOCK_NR_PAGES
    if z.nr_reserved_highatomic >= most or block_type(z, page) >= MIGRATE_PCPTYPES:
        return
    if z.rules.fallback != FALLBACK_STEAL_THEN_RETRY and order >= PAGEBLOCK_ORDER:
        set_block_types(z, page, order, MIGRATE_HIGHATOMIC)
        z.nr_reserved_highatomic += 1 << order
        return
    whole = pageblock_range(z, page, &start, &end)
    if whole:
        move_freepages(z, start, end, MIGRATE_HIGHATOMIC)
    if whole or z.rules.fallback == FALLBACK_STEAL_THEN_RETRY:
        z.block[page >> PAGEBLOCK_ORDER] = MIGRATE_HIGHATOMIC
        z.nr_reserved_highatomic += PAGEBLOCK_NR_PAGES


cdef bint unreserve_highatomic_pageblock(zone *z, int mt, bint force) noexcept nogil:
    """Give one high-atomic block of the zone back; did free pages move?"""
    cdef int order
    cdef uint32_t page, start, end, moved
    cdef int64_t size
    cdef bint whole, old = z.rules.fallback == FALLBACK_STEAL_THEN_RETRY
    if not force and z.nr_reserved_highatomic <= PAGEBLOCK_NR_PAGES:
        return False
    for order in range(NR_PAGE_ORDERS):
        if not z.nonempty[MIGRATE_HIGHATOMIC] >> order & 1:
            continue
        page = first_free(z, order, MIGRATE_HIGHATOMIC)
        if block_type(z, page) == MIGRATE_HIGHATOMIC:
            size = PAGEBLOCK_NR_PAGES
            if not old:
                size = max(size, <int64_t>(1 << order))
            z.nr_reserved_highatomic -= min(size, z.nr_reserved_highatomic)
        if order < PAGEBLOCK_ORDER or old:
            whole = pageblock_range(z, page, &start, &end)
            moved = move_freepages(z, start, end, mt) if whole else 0
            if whole or old:
                z.block[page >> PAGEBLOCK_ORDER] = mt
        else:
            del_from_free_list(z, page)
            add_to_free_list(z, page, order, mt, True)
            set_block_types(z, page, order, mt)
            moved = 1
        if moved:
            return True
    return False


# Isolation


cdef void retype_free_block(zone *z, uint32_t start, int mt) noexcept nogil:
    """Give a page block a type and move its free pages to that type's lists."""
    cdef uint32_t large = start & ~<uint32_t>(MAX_ORDER_NR_PAGES - 1), low, high
    if z.rules.free_split_blocks and is_free_block(z, large, MAX_PAGE_ORDER):
        del_from_free_list(z, large)
        z.block[start >> PAGEBLOCK_ORDER] = mt
        split_large(z, large, MAX_PAGE_ORDER)
        return
    if pageblock_range(z, start, &low, &high):
        move_freepages(z, low, high, mt)
    z.block[start >> PAGEBLOCK_ORDER] = mt


cdef bint set_isolate(zone *z, uint32_t page) noexcept nogil:
    """set_migratetype_isolate() for the page block of page, which is not isolated.

    False (EBUSY): the block sticks out of the zone, which v6.10 on refuses.
    """
    cdef uint32_t block = page >> PAGEBLOCK_ORDER, low, high
    list_fresh(z, z.fresh_end)
    if z.rules.free_split_blocks and not pageblock_range(z, page, &low, &high):
        return False
    z.isolated[block] = 1 + z.block[block]
    z.nr_isolated += 1
    retype_free_block(z, block << PAGEBLOCK_ORDER, MIGRATE_ISOLATE)
    return True


cdef void unset_isolate(zone *z, uint32_t page, int mt) noexcept nogil:
    """unset_migratetype_isolate(); ``mt`` < 0: the type from before."""
    cdef uint32_t block = page >> PAGEBLOCK_ORDER, start = block << PAGEBLOCK_ORDER
    cdef uint32_t buddy = start ^ PAGEBLOCK_NR_PAGES
    if mt < 0:
        mt = z.isolated[block] - 1
    z.isolated[block] = 0
    z.nr_isolated -= 1
    if (
        is_free_block(z, start, PAGEBLOCK_ORDER) and is_free_block(z, buddy, PAGEBLOCK_ORDER)
        and block_type(z, buddy) != MIGRATE_ISOLATE
    ):
        del_from_free_list(z, start)  # take it out and free it again, so that it merges
        z.block[block] = mt
        free_one(z, start, PAGEBLOCK_ORDER, mt, True)
        return
    retype_free_block(z, start, mt)

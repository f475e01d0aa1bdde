# cython: cdivision=True
"""Zones, nodes and CPUs: which zone serves a request, and every way to free.

Mirrors get_page_from_freelist(), rmqueue(), alloc_pages_bulk(), the free paths
and refresh_cpu_vm_stats() of v4.17 ... v7.3 for one task at a time: every lock
is free, except where a caller says otherwise by going past the per-CPU lists.
Nothing here is a Python object; what is given was checked (`memory.pyx`).
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.limits cimport INT_MAX
from libc.stdint cimport uint32_t

from pcpmodel.kernel.buddy cimport (
    ALLOC_CMA,
    ALLOC_HIGHATOMIC,
    ALLOC_KSWAPD,
    ALLOC_MIN_RESERVE,
    ALLOC_NOFRAGMENT,
    ALLOC_NON_BLOCK,
    ALLOC_NO_WATERMARKS,
    ALLOC_WMARK_HIGH,
    ALLOC_WMARK_LOW,
    ALLOC_WMARK_MASK,
    ALLOC_WMARK_MIN,
    block_type,
    reserve_highatomic_pageblock,
    zone,
    zone_is_held,
    zone_page,
    zone_pfn,
    zone_spans,
    zone_watermark_fast,
)
from pcpmodel.kernel.lists cimport order_to_pindex, pcp_allowed_order, pcp_migratetype
from pcpmodel.kernel.pages cimport (
    MAX_PAGE_ORDER,
    MIGRATE_ISOLATE,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    NO_PAGE,
    PAGEBLOCK_ORDER,
    W_HELD,
    W_MOVABLE,
    W_WHAT,
    ZONE_BELOW_HIGH,
    ZONE_BOOSTED_WATERMARK,
    fill_words,
    page_ring,
    page_ring_at,
    page_ring_reserve,
    pages_prefetch,
    pcp_word,
    run_order,
)
from pcpmodel.kernel.pcp cimport (
    EXPIRED,
    EXPIRE_COUNTS,
    decay_and_drain,
    drain_pages_zone,
    drain_zone_pages,
    free_prepared,
    pageset,
    pcp_alloc_hits,
    pcp_expire,
    pcp_free_hits,
    per_cpu_pages,
    rmqueue_past,
    rmqueue_pcplist,
    rmqueue_pcplist_locked,
)
from pcpmodel.kernel.rules cimport DECAY_NONE, pcp_rules


# Allocation


cdef int find_zone(const memory *mm, uint64_t pfn) noexcept nogil:
    cdef int z
    for z in range(mm.nr_zones):
        if zone_spans(&mm.zone[z], pfn):
            return z
    return -1


cdef inline int64_t hand_out(zone *z, uint32_t page, int order, int mt) noexcept nogil:
    """The caller has a block now."""
    if page == NO_PAGE:
        return -1
    fill_words(
        z.page + page, W_HELD | (W_MOVABLE if mt == MIGRATE_MOVABLE else 0), 1U << order
    )
    return zone_pfn(z, page)


cdef uint32_t rmqueue_zone(
    memory *mm, int z, int cpu, int order, int mt, unsigned int flags
) noexcept nogil:
    """rmqueue(): from the CPU's lists of a zone, else from its buddy lists."""
    cdef uint32_t page = NO_PAGE
    cdef const pcp_rules *r = &mm.zone[z].rules
    cdef bint listed = pcp_allowed_order(r.nr_pcp_lists, order)
    if listed:
        page = rmqueue_pcplist(&mm.zone[z], pageset_of(mm, z, cpu), order, mt, flags)
    if page == NO_PAGE and not (listed and not r.pcp_lock):  # else the lists have the last word
        page = rmqueue_past(&mm.zone[z], pageset_of(mm, z, cpu), order, mt, flags)
        if page == NO_PAGE and not r.pcp_lock:  # and what fails past them looks at no flag
            return page
    if mm.zone[z].flags & ZONE_BOOSTED_WATERMARK:
        if flags & ALLOC_KSWAPD or not r.boost_needs_kswapd:
            mm.zone[z].flags &= ~<unsigned int>ZONE_BOOSTED_WATERMARK
    return page


cdef uint32_t get_page_from_freelist(
    memory *mm, int cpu, int order, int mt, int highest, unsigned int flags,
    int *zone_ret, int *tried_ret
) noexcept nogil:
    """Walk the zones; a page number in ``zone_ret``, or NO_PAGE.

    ``tried_ret`` counts the zones that were asked for a page.
    """
    cdef const int *zonelist = mm.zonelist + mm.cpu_node[cpu] * mm.nr_zones
    cdef const pcp_rules *r = &mm.zone[0].rules
    cdef bint skip_busy = r.skip_busy_kswapd and mm.nr_nodes > 1
    cdef bint no_fallback, restart, skipped, take
    cdef int i, z, preferred = -1
    cdef zone *candidate
    cdef uint32_t page
    tried_ret[0] = 0
    while True:
        no_fallback = (flags & ALLOC_NOFRAGMENT) != 0
        restart = False
        skipped = False
        for i in range(mm.nr_zones):
            z = zonelist[i]
            candidate = &mm.zone[z]
            if candidate.index > highest:
                continue
            if preferred < 0:
                preferred = z
            if no_fallback and candidate.node != mm.zone[preferred].node:
                flags &= ~<unsigned int>ALLOC_NOFRAGMENT
                restart = True
                break
            if skip_busy and mm.kswapd_running[candidate.node]:
                skipped = True
                continue
            take = False
            if r.below_high and not candidate.flags & ZONE_BELOW_HIGH:
                take = zone_watermark_fast(candidate, order, ALLOC_WMARK_HIGH, highest, flags)
                if not take:
                    candidate.flags |= ZONE_BELOW_HIGH
            if not take:
                take = (flags & ALLOC_NO_WATERMARKS) != 0 or zone_watermark_fast(
                    candidate, order, flags & ALLOC_WMARK_MASK, highest, flags
                )
            if not take:
                continue
            tried_ret[0] += 1
            page = rmqueue_zone(mm, z, cpu, order, mt, flags)
            if page != NO_PAGE:
                if flags & ALLOC_HIGHATOMIC and not r.highatomic_in_buddy:
                    reserve_highatomic_pageblock(candidate, page, order)
                zone_ret[0] = z
                return page
        if restart:
            continue
        if skipped:
            skip_busy = False
        elif no_fallback:
            flags &= ~<unsigned int>ALLOC_NOFRAGMENT
        else:
            return NO_PAGE


cdef bint is_highatomic(const memory *mm, int order, int gfp) noexcept nogil:
    """May the request be served from, and reserve, high-atomic page blocks?"""
    if order == 0 or gfp == GFP_KERNEL:
        return False
    return gfp == GFP_ATOMIC or not mm.zone[0].rules.highatomic_needs_gfp_high


cdef unsigned int fast_flags(
    const memory *mm, int cpu, int order, int mt, int gfp, int highest
) noexcept nogil:
    """Allocation flags of the first attempt."""
    cdef unsigned int flags = ALLOC_WMARK_LOW | ALLOC_KSWAPD
    cdef const int *zonelist = mm.zonelist + mm.cpu_node[cpu] * mm.nr_zones
    cdef int i, z
    if mt == MIGRATE_MOVABLE:
        flags |= ALLOC_CMA
    if mm.zone[0].rules.highatomic_fast_path and is_highatomic(mm, order, gfp):
        flags |= ALLOC_HIGHATOMIC
    for i in range(mm.nr_zones):
        if mm.zone[zonelist[i]].index <= highest:
            if mm.zone[zonelist[i]].index != ZONE_NORMAL or not mm.zone[0].rules.alloc_nofragment:
                return flags
            if mm.nr_nodes == 1:
                return flags | ALLOC_NOFRAGMENT
            for z in range(mm.nr_zones):
                if mm.zone[z].index == ZONE_DMA32 and mm.zone[z].node == mm.zone[zonelist[i]].node:
                    return flags | ALLOC_NOFRAGMENT
            return flags
    return flags


cdef int64_t alloc_in(
    memory *mm, int cpu, int order, int mt, int gfp, int highest, int *zone_ret, int *tried_ret
) noexcept nogil:
    """One request; ``tried_ret`` is 1 if the first zone asked had a page at once."""
    cdef unsigned int flags = fast_flags(mm, cpu, order, mt, gfp, highest)
    cdef uint32_t page
    page = get_page_from_freelist(mm, cpu, order, mt, highest, flags, zone_ret, tried_ret)
    if page == NO_PAGE:
        flags = ALLOC_WMARK_MIN | ALLOC_KSWAPD
        if mt == MIGRATE_MOVABLE:
            flags |= ALLOC_CMA
        if gfp == GFP_ATOMIC:
            flags |= ALLOC_MIN_RESERVE
        if gfp == GFP_ATOMIC or gfp != GFP_KERNEL and mm.zone[0].rules.alloc_non_block:
            flags |= ALLOC_NON_BLOCK
        if is_highatomic(mm, order, gfp):
            flags |= ALLOC_HIGHATOMIC
        page = get_page_from_freelist(mm, cpu, order, mt, highest, flags, zone_ret, tried_ret)
        tried_ret[0] = 0
    if page == NO_PAGE:
        return -1
    return hand_out(&mm.zone[zone_ret[0]], page, order, mt)


cdef int64_t alloc_pages(
    memory *mm, int cpu, int order, int mt, int gfp, int highest
) noexcept nogil:
    cdef int z, tried
    return alloc_in(mm, cpu, order, mt, gfp, highest, &z, &tried)


cdef int64_t alloc_from(
    memory *mm, int z, int cpu, int order, int mt, unsigned int flags, bint direct
) noexcept nogil:
    cdef uint32_t page
    if direct:
        page = rmqueue_past(&mm.zone[z], pageset_of(mm, z, cpu), order, mt, flags)
    else:
        page = rmqueue_zone(mm, z, cpu, order, mt, flags)
    return hand_out(&mm.zone[z], page, order, mt)


cdef int64_t alloc_many(
    memory *mm, int cpu, int order, int mt, int gfp, int highest, int64_t n, int64_t *pfns
) noexcept nogil:
    """n requests in a row; returns how many were served.

    Once a request was served without taking the zone lock, the next one looks
    at the same watermarks and is served from the same list, as long as that
    has blocks.
    """
    cdef int64_t done = 0
    cdef long long holds = -1
    cdef int z, tried, hits, i, last = -1
    cdef pageset *ps
    cdef page_ring *list
    cdef zone *served
    while done < n:
        pfns[done] = alloc_in(mm, cpu, order, mt, gfp, highest, &z, &tried)
        if pfns[done] < 0:
            break
        done += 1
        if pageset_of(mm, z, cpu).policy.error:
            break
        ps = pageset_of(mm, z, cpu)
        if (
            tried != 1 or not pcp_allowed_order(mm.zone[z].rules.nr_pcp_lists, order)
            or z != last or ps.policy.holds != holds
        ):
            last = z
            holds = ps.policy.holds
            continue
        served = &mm.zone[z]
        list = &ps.lists[order_to_pindex(served.rules.nr_pcp_lists, mt, order)]
        hits = <int>min(<int64_t>list.len, n - done)
        if hits == 0:
            continue
        for i in range(hits):
            if i + 16 < hits:
                pages_prefetch(&served.page[page_ring_at(list, i + 16)])
            pfns[done + i] = hand_out(served, page_ring_at(list, i), order, mt)
        list.head = (list.head + hits) & (list.capacity - 1)
        list.len -= hits
        done += hits
        pcp_alloc_hits(&ps.pcp, &served.rules, hits, order)
    return done


cdef int64_t alloc_bulk(memory *mm, int cpu, int mt, int64_t n, int64_t *pfns) noexcept nogil:
    """alloc_pages_bulk(): up to n pages of order 0; returns how many."""
    cdef int highest = highest_zone(mt)
    cdef unsigned int flags = ALLOC_WMARK_LOW  # wakes no kswapd, and boosts nothing
    cdef const int *zonelist = mm.zonelist + mm.cpu_node[cpu] * mm.nr_zones
    cdef int i, z, preferred = -1
    cdef int64_t got = 0
    cdef uint32_t page
    cdef bint ok
    if mt == MIGRATE_MOVABLE:
        flags |= ALLOC_CMA
    if n > 1:
        for i in range(mm.nr_zones):
            z = zonelist[i]
            if mm.zone[z].index > highest:
                continue
            if preferred < 0:
                preferred = z
            if mm.zone[z].node != mm.zone[preferred].node:
                break
            mm.zone[z].watermark[ALLOC_WMARK_LOW] += n
            ok = zone_watermark_fast(
                &mm.zone[z], 0, ALLOC_WMARK_LOW, mm.zone[preferred].index, flags
            )
            mm.zone[z].watermark[ALLOC_WMARK_LOW] -= n
            if not ok:
                continue
            while got < n:
                page = rmqueue_pcplist_locked(&mm.zone[z], pageset_of(mm, z, cpu), 0, mt, flags)
                if page == NO_PAGE:
                    break
                pfns[got] = hand_out(&mm.zone[z], page, 0, mt)
                got += 1
            break
    if got == 0 and n > 0:
        pfns[0] = alloc_pages(mm, cpu, 0, mt, GFP_KERNEL, highest)
        got = pfns[0] >= 0
    return got


# Free


cdef int held_zone(const memory *mm, uint64_t pfn, int order) noexcept nogil:
    """Zone of an aligned block whose pages are all in use, or -1."""
    cdef int z = find_zone(mm, pfn)
    if z < 0 or pfn & (1U << order) - 1:
        return -1
    return z if zone_is_held(&mm.zone[z], zone_page(&mm.zone[z], pfn), order) else -1


cdef int free_pages(memory *mm, int cpu, uint64_t pfn, int order, bint nolock) noexcept nogil:
    cdef int z = held_zone(mm, pfn, order)
    if z < 0:
        return -1
    free_prepared(
        &mm.zone[z], pageset_of(mm, z, cpu), zone_page(&mm.zone[z], pfn), order, nolock
    )
    return 0


cdef int link_pages(
    zone *z, const int64_t *pfns, int64_t n, int64_t ahead, int mt, page_ring *list, uint32_t word
) noexcept nogil:
    """Free up to n pages to the head of a PCP list that has room; returns how many.

    Stops at a page that is not in use, of another type or of another zone.  Of the
    pages that are freed next there are ``ahead``, n or more.
    """
    cdef uint32_t mask = list.capacity - 1, head = list.head, page
    cdef uint32_t *slot = list.slot
    cdef uint32_t *words = z.page
    cdef const uint8_t *block = z.block
    cdef uint64_t first = z.base_pfn + z.start, span = z.end - z.start, pfn
    cdef int64_t i = 0
    while i < n:
        pfn = <uint64_t>pfns[i]
        if pfn - first >= span:
            break
        page = <uint32_t>(pfn - z.base_pfn)
        if words[page] & W_WHAT != W_HELD or block[page >> PAGEBLOCK_ORDER] != mt:
            break
        if i + 64 < ahead and <uint64_t>pfns[i + 64] - first < span:
            pages_prefetch(&words[<uint64_t>pfns[i + 64] - z.base_pfn])
        head = (head - 1) & mask
        slot[head] = page
        words[page] = word
        i += 1
    list.head = head
    list.len += <uint32_t>i
    return <int>i


cdef int64_t free_many(memory *mm, int cpu, const int64_t *pfns, int64_t n) noexcept nogil:
    """Free pages of order 0; returns how many: less than n if one was not in use."""
    cdef int64_t done = 0, left
    cdef int z = -1, mt, m, pindex, linked
    cdef per_cpu_pages after
    cdef zone *at
    cdef pageset *ps
    cdef page_ring *list
    while done < n:
        if z < 0 or not zone_spans(&mm.zone[z], pfns[done]):
            z = find_zone(mm, pfns[done])
            if z < 0:
                break
        at = &mm.zone[z]
        ps = pageset_of(mm, z, cpu)
        m = left = 0
        if ps.policy.policy == NULL:  # which may want to be asked about each of them
            after = ps.pcp
            left = pcp_free_hits(&after, &at.rules, at.flags, <int>min(n - done, INT_MAX))
        while m < left:  # pages of one type at a time
            if not zone_spans(at, pfns[done + m]):
                break
            mt = block_type(at, zone_page(at, pfns[done + m]))
            if mt == MIGRATE_ISOLATE:
                break
            pindex = order_to_pindex(at.rules.nr_pcp_lists, pcp_migratetype(mt), 0)
            list = &ps.lists[pindex]
            if page_ring_reserve(list, <uint32_t>(left - m)) < 0:
                at.broken = 1
                return done
            linked = link_pages(
                at, pfns + done + m, left - m, n - done - m, mt, list,
                pcp_word(mt, pindex, ps.cpu),
            )
            if linked == 0:
                break
            m += linked
        if m:
            done += m
            if m == left:
                ps.pcp = after
            else:
                pcp_free_hits(&ps.pcp, &at.rules, at.flags, m)
        if done < n and (m < left or left == 0):
            if free_pages(mm, cpu, pfns[done], 0, False) < 0:
                break
            done += 1
            if ps.policy.error:
                break
    return done


cdef int64_t run_ops(
    memory *mm, int64_t n, const uint8_t *op, const int32_t *cpu, const uint8_t *order,
    const uint8_t *mt, const int64_t *ref, int64_t *pfn, int *error_ret
) noexcept nogil:
    """Operations in a row, frees by the identity of their allocation; how many were done.

    ``pfn`` starts as -1 everywhere and is -2 - pfn once a block is freed.
    """
    cdef int64_t i
    cdef int z
    for i in range(n):
        error_ret[0] = 0
        if not 0 <= cpu[i] < mm.nr_cpus:
            error_ret[0] = RUN_BAD_CPU
        elif op[i] == OP_ALLOC:
            if order[i] > MAX_PAGE_ORDER:
                error_ret[0] = RUN_BAD_ORDER
            elif mt[i] >= MIGRATE_PCPTYPES:
                error_ret[0] = RUN_BAD_TYPE
            else:
                pfn[i] = alloc_pages(
                    mm, cpu[i], order[i], mt[i], GFP_KERNEL, highest_zone(mt[i])
                )
        elif op[i] == OP_FREE:
            if not 0 <= ref[i] < i or op[ref[i]] != OP_ALLOC or pfn[ref[i]] < -1:
                error_ret[0] = RUN_BAD_REF
            elif pfn[ref[i]] >= 0:
                if free_pages(mm, cpu[i], pfn[ref[i]], order[ref[i]], False) < 0:
                    error_ret[0] = RUN_BAD_REF
                else:
                    pfn[ref[i]] = -2 - pfn[ref[i]]
        elif op[i] == OP_TICK:
            refresh_cpu_vm_stats(mm, cpu[i])
        elif op[i] == OP_DRAIN:
            for z in range(mm.nr_zones):
                drain_pages_zone(&mm.zone[z], pageset_of(mm, z, cpu[i]))
        else:
            error_ret[0] = RUN_BAD_OP
        if mm.pageset[0].policy.policy != NULL and error_ret[0] == 0:
            for z in range(mm.nr_zones):
                if pageset_of(mm, z, cpu[i]).policy.error:
                    error_ret[0] = RUN_POLICY
        if error_ret[0]:
            return i
    return n


cdef void free_run(memory *mm, int z, int cpu, uint64_t pfn, uint64_t n) noexcept nogil:
    """free_prepared_contig_range(): a run as aligned blocks, v7.2."""
    cdef int order
    while n:
        order = run_order(pfn, n)
        free_prepared(
            &mm.zone[z], pageset_of(mm, z, cpu), zone_page(&mm.zone[z], pfn), order, False
        )
        pfn += 1U << order
        n -= 1U << order


# The vmstat worker


cdef bint refresh_cpu_vm_stats(memory *mm, int cpu) noexcept nogil:
    """One tick on a CPU; has the worker reason to come back?"""
    cdef bint changed = False, used
    cdef int z, expire
    cdef pageset *ps
    cdef const pcp_rules *r = &mm.zone[0].rules
    for z in range(mm.nr_zones):
        ps = pageset_of(mm, z, cpu)
        used = ps.stat_diff != 0
        ps.stat_diff = 0
        if used:
            changed = True
        if r.decay != DECAY_NONE and decay_and_drain(&mm.zone[z], ps):
            changed = True
        expire = pcp_expire(&ps.pcp, used, mm.zone[z].node == mm.cpu_node[cpu])
        if expire == EXPIRED:
            drain_zone_pages(&mm.zone[z], ps)
            changed = True
        elif expire == EXPIRE_COUNTS and r.remote_expire_is_change:
            changed = True
    return changed

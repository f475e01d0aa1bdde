# cython: cdivision=True
"""Zones, nodes and CPUs: which zone serves a request, and every way to free.

Mirrors get_page_from_freelist(), rmqueue(), alloc_pages_bulk(), the free paths
and refresh_cpu_vm_stats() of v6.1 ... v7.2 for one task at a time: every lock
is free, except where a caller says otherwise by going past the per-CPU lists.
"""

# SPDX-License-Identifier: GPL-2.0-only

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc
from libc.stdlib cimport free as c_free
from libc.string cimport memset

from pcpmodel.cython_pcp cimport pcp_policy
from pcpmodel.kernel.buddy cimport (
    ALLOC_CMA,
    ALLOC_FLAGS,
    ALLOC_HIGHATOMIC,
    ALLOC_KSWAPD,
    ALLOC_MIN_RESERVE,
    ALLOC_NO_WATERMARKS,
    ALLOC_NOFRAGMENT,
    ALLOC_NON_BLOCK,
    ALLOC_WMARK_HIGH,
    ALLOC_WMARK_LOW,
    ALLOC_WMARK_MASK,
    ALLOC_WMARK_MIN,
    CLAIM_NEVER,
    EV_EXTFRAG,
    EV_PCPU_DRAIN,
    EV_ZONE_LOCKED,
    add_to_free_list,
    block_type,
    free_kind,
    isolate_free_page,
    mm_event,
    reserve_highatomic_pageblock,
    set_isolate,
    unreserve_highatomic_pageblock,
    unset_isolate,
    zone_destroy,
    zone_free_range,
    zone_init,
    zone_is_held,
    zone_page,
    zone_pfn,
    zone_spans,
    zone_watermark_fast,
    zone_watermark_ok,
)
from pcpmodel.kernel.pages cimport (
    MAX_PAGE_ORDER,
    MAX_PCP_LISTS,
    MIGRATE_CMA,
    MIGRATE_ISOLATE,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    MIGRATE_TYPES,
    NO_PAGE,
    NR_PAGE_ORDERS,
    PAGEBLOCK_ORDER,
    PAGES_PER_SECTION,
    W_ABSENT,
    W_CACHED_SHIFT,
    W_HELD,
    W_MOVABLE,
    W_NONE,
    W_ORDER,
    W_WHAT,
    ZONE_BELOW_HIGH,
    ZONE_BOOSTED_WATERMARK,
    ZONE_RECLAIM_ACTIVE,
    block_list,
    block_list_at,
    fill_words,
    order_to_pindex,
    page_ring,
    page_ring_at,
    page_ring_push_tail,
    page_ring_reserve,
    pages_ctz,
    pages_log2,
    pages_prefetch,
    pcp_allowed_order,
    pcp_word,
    pindex_to_order,
)
from pcpmodel.kernel.pcp cimport (
    PCPF_FREE_HIGH_BATCH,
    PCPF_PREV_FREE_HIGH_ORDER,
    commit_begin,
    commit_end,
    decay_and_drain,
    drain_pages_zone,
    drain_plan,
    drain_step,
    drain_zone_pages,
    free_past,
    free_prepared,
    pageset_destroy,
    pcp_clamp,
    policy_failed,
    policy_from,
    rmqueue_past,
    rmqueue_pcplist,
    rmqueue_pcplist_locked,
)
from pcpmodel.kernel.rules cimport DECAY_NONE, pcp_rules, rules_of

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.zone import GFP, MAX_CPUS, integer, managed_pages, zonelists

cdef enum:
    ZONE_DMA32 = 1
    ZONE_NORMAL = 2
    ZONE_MOVABLE = 3

cdef tuple HOLDS = ("refill", "drain", "alloc", "free")


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
    if pcp_allowed_order(order):
        page = rmqueue_pcplist(&mm.zone[z], pageset_of(mm, z, cpu), order, mt, flags)
    if page == NO_PAGE:
        page = rmqueue_past(&mm.zone[z], pageset_of(mm, z, cpu), order, mt, flags)
    if flags & ALLOC_KSWAPD:
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


cdef unsigned int fast_flags(const memory *mm, int cpu, int mt, int highest) noexcept nogil:
    """Allocation flags of the first attempt."""
    cdef unsigned int flags = ALLOC_WMARK_LOW | ALLOC_KSWAPD
    cdef const int *zonelist = mm.zonelist + mm.cpu_node[cpu] * mm.nr_zones
    cdef int i, z
    if mt == MIGRATE_MOVABLE:
        flags |= ALLOC_CMA
    for i in range(mm.nr_zones):
        if mm.zone[zonelist[i]].index <= highest:
            if mm.zone[zonelist[i]].index != ZONE_NORMAL:
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
    cdef unsigned int flags = fast_flags(mm, cpu, mt, highest)
    cdef uint32_t page
    page = get_page_from_freelist(mm, cpu, order, mt, highest, flags, zone_ret, tried_ret)
    if page == NO_PAGE:
        flags = ALLOC_WMARK_MIN | ALLOC_KSWAPD
        if mt == MIGRATE_MOVABLE:
            flags |= ALLOC_CMA
        if gfp == GFP_ATOMIC:
            flags |= ALLOC_MIN_RESERVE
        if gfp != GFP_KERNEL:
            flags |= ALLOC_NON_BLOCK
            if order and (gfp == GFP_ATOMIC or not mm.zone[0].rules.highatomic_needs_gfp_high):
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
        if tried != 1 or not pcp_allowed_order(order) or z != last or ps.policy.holds != holds:
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
        ps.pcp.count -= hits << order
        if served.rules.free_count:
            ps.pcp.free_count >>= min(hits, 31)
        else:
            ps.pcp.free_factor >>= min(hits, 31)
        if served.rules.count_min:
            ps.pcp.count_min = min(ps.pcp.count_min, ps.pcp.count)
    return done


cdef int64_t alloc_bulk(memory *mm, int cpu, int mt, int64_t n, int64_t *pfns) noexcept nogil:
    """alloc_pages_bulk(): up to n pages of order 0; returns how many."""
    cdef int highest = ZONE_MOVABLE if mt == MIGRATE_MOVABLE else ZONE_NORMAL
    cdef unsigned int flags = ALLOC_WMARK_LOW | ALLOC_KSWAPD
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


cdef inline int quiet_high(const zone *z, const pageset *ps) noexcept nogil:
    """What nr_pcp_high() returns, if it would tune nothing but the bounds of high; else 0."""
    if ps.policy.policy != NULL:
        return 0
    if z.rules.auto_high:
        if z.flags & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH):
            return 0
        if ps.pcp.high_min > ps.pcp.high_max:  # then every clamp() gives another value
            return 0
        return pcp_clamp(ps.pcp.high, ps.pcp.high_min, ps.pcp.high_max)
    if z.flags & ZONE_RECLAIM_ACTIVE:
        return min(ps.pcp.high_min, 4 * ps.pcp.batch)
    return ps.pcp.high_min


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
    cdef int z = -1, mt, high, m, pindex, limit, linked
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
        high = quiet_high(at, ps)
        m = 0
        left = max(min(n - done, <int64_t>(high - ps.pcp.count - 1)), <int64_t>0)
        while m < left:  # pages of one type at a time
            if not zone_spans(at, pfns[done + m]):
                break
            mt = block_type(at, zone_page(at, pfns[done + m]))
            if mt == MIGRATE_ISOLATE:
                break
            pindex = mt if mt < MIGRATE_PCPTYPES else <int>MIGRATE_MOVABLE
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
        if m:  # what pcp_commit() does for each of them
            done += m
            ps.pcp.count += m
            if at.rules.auto_high:
                ps.pcp.high = high
            ps.pcp.flags &= ~PCPF_PREV_FREE_HIGH_ORDER
            if at.rules.alloc_scale:
                ps.pcp.alloc_factor >>= min(m, 31)
            limit = ps.pcp.batch << at.rules.batch_scale_max
            if at.rules.free_count and ps.pcp.free_count < limit:
                ps.pcp.free_count = min(ps.pcp.free_count + m, limit)
        if done < n and (m < left or left == 0):
            if free_pages(mm, cpu, pfns[done], 0, False) < 0:
                break
            done += 1
            if ps.policy.error:
                break
    return done


cdef enum:
    OP_ALLOC = 0
    OP_FREE = 1
    OP_TICK = 2
    OP_DRAIN = 3

    RUN_BAD_CPU = 1
    RUN_BAD_OP = 2
    RUN_BAD_ORDER = 3
    RUN_BAD_TYPE = 4
    RUN_BAD_REF = 5
    RUN_POLICY = 6


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
                    mm, cpu[i], order[i], mt[i], GFP_KERNEL,
                    ZONE_MOVABLE if mt[i] == MIGRATE_MOVABLE else ZONE_NORMAL,
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
        order = MAX_PAGE_ORDER
        if pfn & (1 << MAX_PAGE_ORDER) - 1:
            order = pages_ctz(<uint32_t>(pfn & (1 << MAX_PAGE_ORDER) - 1))
        if n < 1U << order:
            order = pages_log2(<uint32_t>n)
        free_prepared(
            &mm.zone[z], pageset_of(mm, z, cpu), zone_page(&mm.zone[z], pfn), order, False
        )
        pfn += 1U << order
        n -= 1U << order


# The vmstat worker


cdef bint refresh_cpu_vm_stats(memory *mm, int cpu) noexcept nogil:
    """One tick on a CPU; has the worker reason to come back?"""
    cdef bint changed = False
    cdef int z
    cdef pageset *ps
    cdef const pcp_rules *r = &mm.zone[0].rules
    for z in range(mm.nr_zones):
        ps = pageset_of(mm, z, cpu)
        if ps.stat_diff:
            ps.stat_diff = 0
            changed = True
            ps.pcp.expire = 3
        if r.decay != DECAY_NONE and decay_and_drain(&mm.zone[z], ps):
            changed = True
        if ps.pcp.expire == 0 or ps.pcp.count == 0:
            continue
        if mm.zone[z].node == mm.cpu_node[cpu]:
            ps.pcp.expire = 0
            continue
        ps.pcp.expire -= 1
        if ps.pcp.expire:
            if r.remote_expire_is_change:
                changed = True
            continue
        drain_zone_pages(&mm.zone[z], ps)
        changed = True
    return changed


# Binding.  Everything is checked here, once; the functions above trust it.


cdef inline int64_t whole(str name, value, int64_t low, int64_t high) except? -1:
    """`integer`, at once for an int in its range."""
    return value if type(value) is int and low <= value <= high else integer(
        name, value, low, high)


cdef class PageAllocator:
    """Zones, pagesets and CPUs; use it as `pcpmodel.kernel.memory.Memory`."""

    def __cinit__(
        self, release, zones, cpus=1, *, cpu_node=None, online=None, data_cache_bytes=0,
        watermark_boost_factor=15000, free=True, policy=None
    ):
        cdef const pcp_policy *asked
        cdef pcp_rules rules = rules_of(release)
        cdef memory *mm = &self.mm
        cdef int z, cpu, node
        cdef zone *at
        cdef list lists
        mm.nr_cpus = integer("cpus", cpus, 1, MAX_CPUS)
        factor = integer("watermark_boost_factor", watermark_boost_factor, 0, 1 << 30)
        nodes = [0] * cpus if cpu_node is None else list(cpu_node)
        if len(nodes) != cpus:
            raise InputError(f"cpu_node has {len(nodes)} entries for {cpus} CPUs")
        for node in nodes:
            integer("cpu_node", node, 0, 1023)
        policy_from(policy, &asked)
        self._policy = policy
        self._zones = tuple(zones)
        if not self._zones:
            raise InputError("zones is empty; give at least one Zone")
        spans = sorted((spec.start_pfn, spec.end_pfn) for spec in self._zones)
        for before, after in zip(spans, spans[1:]):
            if before[1] > after[0]:
                raise InputError(f"zones overlap: pfns {before} and {after}")
        mm.nr_nodes = 1 + max([spec.node for spec in self._zones] + nodes)
        lists = zonelists(self._zones, mm.nr_nodes)
        mm.zone = <zone *>calloc(len(self._zones), sizeof(zone))
        mm.pageset = <pageset *>calloc(len(self._zones) * <size_t>mm.nr_cpus, sizeof(pageset))
        mm.cpu_node = <int *>calloc(mm.nr_cpus, sizeof(int))
        mm.zonelist = <int *>calloc(<size_t>mm.nr_nodes * len(self._zones), sizeof(int))
        mm.kswapd_running = <uint8_t *>calloc(mm.nr_nodes, 1)
        if (
            mm.zone == NULL or mm.pageset == NULL or mm.cpu_node == NULL
            or mm.zonelist == NULL or mm.kswapd_running == NULL
        ):
            raise MemoryError
        for cpu in range(mm.nr_cpus):
            mm.cpu_node[cpu] = nodes[cpu]
        for node in range(mm.nr_nodes):
            for z in range(len(self._zones)):
                mm.zonelist[node * len(self._zones) + z] = lists[node][z]
        for z, spec in enumerate(self._zones):
            at = &mm.zone[z]
            mm.nr_zones = z + 1
            if free:
                zone_free(at, &rules, spec)
            else:
                zone_in_use(at, &rules, spec)
            at.node = spec.node
            at.index = spec.index
            at.managed_pages = managed_pages(spec)
            at.watermark_boost_factor = factor
            for i in range(3):
                at.watermark[i] = spec.watermarks[i]
            for i in range(4):
                at.lowmem_reserve[i] = spec.lowmem_reserve[i]
            for cpu in range(mm.nr_cpus):
                pageset_of(mm, z, cpu).cpu = cpu
                pageset_of(mm, z, cpu).pcp.batch = 1
                pageset_of(mm, z, cpu).policy.policy = asked
                pageset_of(mm, z, cpu).policy.cpu = cpu
        self._check()

    def __dealloc__(self):
        cdef int z
        for z in range(self.mm.nr_zones):
            zone_destroy(&self.mm.zone[z])
            for cpu in range(self.mm.nr_cpus):
                pageset_destroy(pageset_of(&self.mm, z, cpu))
        c_free(self.mm.zone)
        c_free(self.mm.pageset)
        c_free(self.mm.cpu_node)
        c_free(self.mm.zonelist)
        c_free(self.mm.kswapd_running)
        c_free(self.mm.events.event)

    cdef int _check(self) except -1:
        """After an operation: did the memory last, and did the policy answer?"""
        cdef int z
        for z in range(self.mm.nr_zones):
            if self.mm.zone[z].broken:
                raise MemoryError("no memory for the lists of a zone; its state is lost")
        if self._policy is not None:
            for z in range(self.mm.nr_zones * self.mm.nr_cpus):
                policy_failed(&self.mm.pageset[z].policy)
        return 0

    cdef int _cpu_number(self, cpu) except -1:
        return whole("cpu", cpu, 0, self.mm.nr_cpus - 1)

    cdef int _zone_number(self, object zone) except -1:
        return whole("zone", zone, 0, self.mm.nr_zones - 1)

    cdef int _held(self, pfn, int order) except -1:
        """Zone of a block in use, or InputError."""
        cdef int z
        whole("pfn", pfn, 0, (1 << 63) - 1)
        if pfn % (1 << order):
            raise InputError(f"pfn={pfn} is not aligned to order {order}")
        z = held_zone(&self.mm, pfn, order)
        if z < 0:
            raise InputError(f"pfn={pfn}, order={order}: not all of these pages are in use")
        return z

    # What Pagesets needs

    def _pageset_update(self, z, batch, high_min, high_max):
        cdef pageset *ps
        for cpu in range(self.mm.nr_cpus):
            ps = pageset_of(&self.mm, z, cpu)
            ps.pcp.batch = batch
            ps.pcp.high_min = high_min
            ps.pcp.high_max = high_max
            if not self.mm.zone[0].rules.high_min_max:
                ps.pcp.high = high_min

    def _free_high_batch(self, cpu, z, flag):
        cdef pageset *ps = pageset_of(&self.mm, z, cpu)
        ps.pcp.flags &= ~PCPF_FREE_HIGH_BATCH
        if flag:
            ps.pcp.flags |= PCPF_FREE_HIGH_BATCH

    def _watermark_boost(self, z):
        return self.mm.zone[<int>z].watermark_boost

    def _set_watermarks(self, z, lowest, low, high):
        cdef zone *at = &self.mm.zone[<int>z]
        at.watermark[0], at.watermark[1], at.watermark[2] = lowest, low, high
        at.watermark_boost = 0

    # Events and flags

    def record_events(self, on=True):
        """Start or stop to note events."""
        self.mm.events.n = 0
        for z in range(self.mm.nr_zones):
            self.mm.zone[z].events = &self.mm.events if on else NULL

    def take_events(self):
        """Events since the last call, in the kernel's order.

        Returns
        -------
        list of tuple
            ``("zone_locked", pfn, order, type, percpu_refill)``,
            ``("extfrag", pfn, order, fallback_order, type, fallback_type, change_ownership)``,
            ``("pcpu_drain", pfn, order, type)``, and ``("hold", reason, pages)`` at the end
            of a hold of the zone lock: "refill", "drain", "alloc" or "free".
        """
        cdef const mm_event *e
        cdef size_t i
        events = []
        for i in range(self.mm.events.n):
            e = &self.mm.events.event[i]
            if e.kind == EV_ZONE_LOCKED:
                events.append(("zone_locked", e.pfn, e.order, e.type, bool(e.flag)))
            elif e.kind == EV_EXTFRAG:
                events.append((
                    "extfrag", e.pfn, e.order, e.fallback_order, e.type, e.fallback_type,
                    bool(e.flag),
                ))
            elif e.kind == EV_PCPU_DRAIN:
                events.append(("pcpu_drain", e.pfn, e.order, e.type))
            else:
                events.append(("hold", HOLDS[e.order], e.pfn))
        self.mm.events.n = 0
        return events

    def set_flags(self, object zone, flags):
        """zone->flags: BOOSTED_WATERMARK 1, RECLAIM_ACTIVE 2, BELOW_HIGH 4."""
        self.mm.zone[self._zone_number(zone)].flags = integer("flags", flags, 0, 7)

    def set_watermark_boost(self, object zone, pages):
        """zone->watermark_boost, as kswapd lowers it."""
        self.mm.zone[self._zone_number(zone)].watermark_boost = integer(
            "pages", pages, 0, (1 << 31) - 1
        )

    def set_kswapd_running(self, node, running):
        """Whether kswapd of the node is at work."""
        cdef int n = integer("node", node, 0, self.mm.nr_nodes - 1)
        self.mm.kswapd_running[n] = bool(running)

    # Allocation

    def alloc(self, cpu=0, order=0, migratetype=MIGRATE_MOVABLE, *, gfp="kernel", highest=None):
        """One request, walking the zones of the CPU's node.

        Parameters
        ----------
        cpu : int
        order : int
            0..10.
        migratetype : int
            0 unmovable, 1 movable, 2 reclaimable.
        gfp : str
            ``"kernel"``, ``"atomic"`` or ``"nowait"``.
        highest : int, optional
            Highest zone index allowed; by default Movable for movable requests, else Normal.

        Returns
        -------
        int or None
            pfn; None where the kernel would start to reclaim, or fail.
        """
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef int top, how
        cdef int64_t pfn
        if gfp not in GFP:
            raise unknown_name("gfp", gfp, GFP)
        how = GFP.index(gfp)
        top = ZONE_MOVABLE if mt == MIGRATE_MOVABLE else ZONE_NORMAL
        if highest is not None:
            top = whole("highest", highest, 0, 3)
        with nogil:
            pfn = alloc_pages(&self.mm, c, o, mt, how, top)
        self._check()
        return None if pfn < 0 else pfn

    def alloc_from(
        self, object zone, cpu=0, order=0, migratetype=MIGRATE_MOVABLE, *, direct=False,
        alloc_flags=ALLOC_KSWAPD
    ):
        """One request served by one zone, without watermarks: rmqueue().

        ``direct``: past the per-CPU lists, as when their lock is taken.
        """
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef unsigned int flags = whole("alloc_flags", alloc_flags, 0, ALLOC_FLAGS)
        cdef int z = self._zone_number(zone)
        cdef uint32_t page
        if direct:
            page = rmqueue_past(&self.mm.zone[z], pageset_of(&self.mm, z, c), o, mt, flags)
        else:
            page = rmqueue_zone(&self.mm, z, c, o, mt, flags)
        self._check()
        return None if page == NO_PAGE else hand_out(&self.mm.zone[z], page, o, mt)

    def alloc_many(self, int64_t[::1] out, cpu=0, order=0, migratetype=MIGRATE_MOVABLE):
        """As many requests as ``out`` has room for, one after the other.

        Parameters
        ----------
        out : (N,) array of int64
            Filled with pfns.
        cpu, order, migratetype : int
            As for `alloc`.

        Returns
        -------
        int
            Requests served; the rest of ``out`` is untouched but for one -1.
        """
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef int top = ZONE_MOVABLE if mt == MIGRATE_MOVABLE else ZONE_NORMAL
        cdef int64_t n = out.shape[0], served = 0
        if n:
            with nogil:
                served = alloc_many(&self.mm, c, o, mt, GFP_KERNEL, top, n, &out[0])
            self._check()
        return served

    def alloc_pages_bulk(self, cpu, n, migratetype=MIGRATE_MOVABLE):
        """Up to n pages of order 0 in one go, without events of their own; list of pfns."""
        cdef int c = self._cpu_number(cpu)
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef int64_t want = integer("n", n, 0, (1 << 31) - 1), got, i
        cdef int64_t *pfns = <int64_t *>PyMem_Malloc(max(want, <int64_t>1) * sizeof(int64_t))
        if pfns == NULL:
            raise MemoryError
        try:
            got = alloc_bulk(&self.mm, c, mt, want, pfns)
            self._check()
            return [pfns[i] for i in range(got)]
        finally:
            PyMem_Free(pfns)

    # Free

    def free(self, cpu, pfn, order=0, *, nolock=False):
        """Free a block.

        Parameters
        ----------
        cpu : int
        pfn : int
            Aligned to the order; all its pages must be in use.
        order : int
            0..10; it need not be the order of the allocation.
        nolock : bool
            free_pages_nolock(): never drains.

        Raises
        ------
        InputError
            If a page is not in use (for example freed twice).
        """
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        self._held(pfn, o)
        free_pages(&self.mm, c, pfn, o, bool(nolock))
        self._check()

    def free_many(self, const int64_t[::1] pfns, cpu=0):
        """Free pages of order 0, one after the other.

        Parameters
        ----------
        pfns : (N,) array of int64
        cpu : int

        Raises
        ------
        InputError
            At the first page that is not in use; those before it are freed.
        """
        cdef int c = self._cpu_number(cpu)
        cdef int64_t n = pfns.shape[0], done = 0
        if n == 0:
            return
        with nogil:
            done = free_many(&self.mm, c, &pfns[0], n)
        self._check()
        if done < n:
            raise InputError(
                f"pfn={pfns[done]} is not in use; the {done} pages before it were freed",
                row=done, column="pfns",
            )

    def run(
        self, const uint8_t[::1] op, const int32_t[::1] cpu, const uint8_t[::1] order,
        const uint8_t[::1] migratetype, const int64_t[::1] ref, int64_t[::1] pfn
    ):
        """A whole trace of operations, frees by the identity of their allocation.

        Parameters
        ----------
        op : (N,) array of uint8
            0 alloc, 1 free, 2 vmstat tick, 3 drain of all lists of the CPU.
        cpu : (N,) array of int32
        order, migratetype : (N,) array of uint8
            Of allocations; a free takes those of its allocation.
        ref : (N,) array of int64
            Of a free: the row that allocated the block.  Nothing happens if that failed.
        pfn : (N,) array of int64
            Filled: the pfn of each allocation, -1 for one that failed and for other rows.

        Raises
        ------
        InputError
            With the row that cannot be; the rows before it were done.
        """
        cdef int64_t n = op.shape[0], done = 0, i
        cdef int error = 0
        for name, column in (
            ("cpu", cpu), ("order", order), ("migratetype", migratetype), ("ref", ref),
            ("pfn", pfn),
        ):
            if column.shape[0] != n:
                raise InputError(f"{name} has {column.shape[0]} rows, op has {n}")
        if n == 0:
            return
        with nogil:
            for i in range(n):
                pfn[i] = -1
            done = run_ops(
                &self.mm, n, &op[0], &cpu[0], &order[0], &migratetype[0], &ref[0], &pfn[0],
                &error,
            )
            for i in range(n):
                if pfn[i] < -1:
                    pfn[i] = -2 - pfn[i]
        self._check()
        if error:
            given, column, allowed = {
                RUN_BAD_CPU: (cpu[done], "cpu", f"0..{self.mm.nr_cpus - 1}"),
                RUN_BAD_OP: (op[done], "op", "0..3"),
                RUN_BAD_ORDER: (order[done], "order", f"0..{MAX_PAGE_ORDER}"),
                RUN_BAD_TYPE: (migratetype[done], "migratetype", "0..2"),
                RUN_BAD_REF: (ref[done], "ref", "an earlier allocation, not yet freed"),
            }[error]
            raise InputError(f"{given} is not {allowed}", row=done, column=column)

    def nbytes(self):
        """Memory of the page words, page blocks and lists [bytes]."""
        cdef size_t total = 0
        cdef int z, order, mt, i
        for z in range(self.mm.nr_zones):
            total += <size_t>self.mm.zone[z].nr_words * 4
            total += (self.mm.zone[z].nr_words >> PAGEBLOCK_ORDER) * 2
            for order in range(NR_PAGE_ORDERS):
                for mt in range(MIGRATE_TYPES):
                    total += <size_t>self.mm.zone[z].free_area[order][mt].capacity * 4
        for z in range(self.mm.nr_zones * self.mm.nr_cpus):
            for i in range(MAX_PCP_LISTS):
                total += <size_t>self.mm.pageset[z].lists[i].capacity * 4
        return total

    def free_direct(self, cpu, pfn, order=0):
        """Free a block past the per-CPU lists, as when their lock is taken."""
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef int z = self._held(pfn, o)
        free_past(&self.mm.zone[z], pageset_of(&self.mm, z, c), zone_page(&self.mm.zone[z], pfn), o)
        self._check()

    def free_batch(self, cpu, blocks):
        """Free (pfn, order) in this order: free_unref_page_list() or free_unref_folios()."""
        cdef int c = self._cpu_number(cpu), z, order, mt
        cdef uint32_t page
        cdef bint folios = self.mm.zone[0].rules.free_folios
        cdef drain_plan plan
        blocks = [(pfn, whole("order", order, 0, MAX_PAGE_ORDER)) for pfn, order in blocks]
        if not folios and any(order for _, order in blocks):
            raise InputError("free_unref_page_list() takes order 0 only")
        for pfn, order in blocks:
            self._held(pfn, order)
        seen = set()
        for pfn, order in blocks:
            pages = range(pfn, pfn + (1 << order))
            if not seen.isdisjoint(pages):
                raise InputError(f"pfn={pfn}, order={order}: a page occurs twice")
            seen.update(pages)
        second = []
        for pfn, order in blocks:
            z = find_zone(&self.mm, pfn)
            page = zone_page(&self.mm.zone[z], pfn)
            mt = block_type(&self.mm.zone[z], page)
            if not pcp_allowed_order(order) or (mt == MIGRATE_ISOLATE and not folios):
                free_past(&self.mm.zone[z], pageset_of(&self.mm, z, c), page, order)
            else:
                second.append((z, page, order, mt))
        for z, page, order, mt in second:
            if folios:
                free_prepared(&self.mm.zone[z], pageset_of(&self.mm, z, c), page, order, False)
                self._check()
                continue
            commit_begin(
                &self.mm.zone[z], pageset_of(&self.mm, z, c), page, order, mt, False, &plan
            )
            if plan.drained:
                while drain_step(&self.mm.zone[z], pageset_of(&self.mm, z, c), &plan):
                    pass
                commit_end(&self.mm.zone[z], &plan)
            self._check()
        self._check()

    def free_pages_bulk(self, cpu, pfns):
        """Free pages of order 0 as vfree() does; v7.2 merges runs of the sequence first."""
        cdef int c = self._cpu_number(cpu), z
        cdef uint64_t start, n
        pfns = list(pfns)
        for pfn in pfns:
            self._held(pfn, 0)
        if len(set(pfns)) < len(pfns):
            raise InputError("a page occurs twice")
        if not self.mm.zone[0].rules.free_coalesce:
            for pfn in pfns:
                free_pages(&self.mm, c, pfn, 0, False)
                self._check()
            return
        i = 0
        while i < len(pfns):
            start = pfns[i]
            z = find_zone(&self.mm, start)
            n = 1
            while (
                i + n < len(pfns) and pfns[i + n] == start + n
                and (start + n) % PAGES_PER_SECTION
                and zone_spans(&self.mm.zone[z], start + n)
            ):
                n += 1
            free_run(&self.mm, z, c, start, n)
            self._check()
            i += n

    def free_contig_range(self, cpu, pfn, n):
        """Free n pages from pfn on."""
        whole("pfn", pfn, 0, 1 << 62)
        integer("n", n, 0, (1 << 31) - 1)
        self.free_pages_bulk(cpu, range(pfn, pfn + n))

    # Drains and the vmstat worker

    def drain_pages_zone(self, cpu, object zone):
        """Empty a CPU's lists of a zone."""
        cdef int c = self._cpu_number(cpu), z = self._zone_number(zone)
        drain_pages_zone(&self.mm.zone[z], pageset_of(&self.mm, z, c))
        self._check()

    def drain_zone_pages(self, cpu, object zone):
        """Drain a batch."""
        cdef int c = self._cpu_number(cpu), z = self._zone_number(zone)
        drain_zone_pages(&self.mm.zone[z], pageset_of(&self.mm, z, c))
        self._check()

    def decay_pcp_high(self, cpu, object zone):
        """Lower high and drain the excess; whether there was work."""
        cdef int c = self._cpu_number(cpu), z = self._zone_number(zone)
        cdef bint work = decay_and_drain(&self.mm.zone[z], pageset_of(&self.mm, z, c))
        self._check()
        return bool(work)

    def refresh_cpu_vm_stats(self, cpu):
        """The vmstat worker's tick on a CPU; whether it has reason to come back.

        Of the zone counters only NR_FREE_PAGES is known here.
        """
        cdef int c = self._cpu_number(cpu)
        cdef bint changed = refresh_cpu_vm_stats(&self.mm, c)
        self._check()
        return bool(changed)

    # Reserve and isolation

    def unreserve_highatomic_pageblock(self, cpu=0, migratetype=MIGRATE_MOVABLE, *, force=False):
        """Give a high-atomic block back, in the order of the CPU's zones; did pages move?"""
        cdef int c = self._cpu_number(cpu), i, z
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        for i in range(self.mm.nr_zones):
            z = self.mm.zonelist[self.mm.cpu_node[c] * self.mm.nr_zones + i]
            if unreserve_highatomic_pageblock(&self.mm.zone[z], mt, bool(force)):
                return True
        return False

    cdef int _zone_at(self, pfn) except -1:
        cdef int z
        whole("pfn", pfn, 0, (1 << 63) - 1)
        z = find_zone(&self.mm, pfn)
        if z < 0:
            raise InputError(f"pfn={pfn} is in no zone")
        return z

    def isolate_free_page(self, pfn):
        """Take a free block off the lists without an event, as compaction does.

        Half a page block or more makes its page blocks movable; since v6.10 that moves
        whatever else is free in them to the ends of the movable lists.

        Parameters
        ----------
        pfn : int
            First page of a free block.

        Returns
        -------
        bool
            False if too few pages would be left (watermark min).

        Notes
        -----
        __isolate_free_page(), mm/page_alloc.c.
        """
        cdef zone *z = &self.mm.zone[self._zone_at(pfn)]
        cdef uint32_t page = zone_page(z, pfn)
        cdef int order = <int>(z.page[page] & W_ORDER) - 1
        if order < 0:
            raise InputError(f"no free block begins at pfn={pfn}")
        if block_type(z, page) != MIGRATE_ISOLATE and not zone_watermark_ok(
            z, 0, z.watermark[ALLOC_WMARK_MIN] + (1 << order), 0, ALLOC_CMA
        ):
            return False
        isolate_free_page(z, page)
        self._check()
        return True

    def set_isolate(self, pfn):
        """Isolate the page block of a page."""
        cdef zone *at = &self.mm.zone[self._zone_at(pfn)]
        cdef uint32_t page = zone_page(at, pfn)
        if block_type(at, page) == MIGRATE_ISOLATE:
            raise InputError(f"the page block of pfn={pfn} is isolated already")
        if not set_isolate(at, page):
            raise InputError(f"the page block of pfn={pfn} sticks out of its zone (EBUSY)")
        self._check()

    def unset_isolate(self, pfn, migratetype=None):
        """End the isolation; the block gets its type back, or another one."""
        cdef zone *at = &self.mm.zone[self._zone_at(pfn)]
        cdef uint32_t page = zone_page(at, pfn)
        cdef int mt = -1
        if migratetype is not None:
            mt = whole("migratetype", migratetype, 0, MIGRATE_CMA)
        if not at.isolated[page >> PAGEBLOCK_ORDER]:
            raise InputError(f"the page block of pfn={pfn} is not isolated")
        unset_isolate(at, page, mt)
        self._check()

    def set_claim(self, object zone, claim):
        """How page blocks are claimed: 0 by their pages, 1 always, 2 never."""
        self.mm.zone[self._zone_number(zone)].claim = integer("claim", claim, 0, CLAIM_NEVER)

    # State

    def state(self):
        """Everything, zone by zone.

        Returns
        -------
        list of dict
            ``free``: {(order, type): pfns in list order}; ``blocks``: type per page block;
            ``isolated``: (block, type underneath); ``held``: (pfn, pages, looks movable);
            ``pcp``: per CPU its scalars, ``lists``: {pindex: pfns, head first} and the
            ``cached`` types of these pages; and the zone's counters.
        """
        return [zone_state(&self.mm, z) for z in range(self.mm.nr_zones)]

    def load(self, object zone, state):
        """Put a zone into a state, as `state` returns it for one zone.

        Only ``free`` is needed.  Without ``held`` every other page is in use, and looks
        movable where its page block is MOVABLE.

        Raises
        ------
        InputError
            If the state is not one of this zone; the zone is unchanged then.
        """
        load_zone(&self.mm, self._zone_number(zone), self._zones[zone], state)


cdef int zone_in_use(zone *z, const pcp_rules *rules, spec) except -1:
    """A fresh zone whose pages are all in use."""
    if zone_init(z, rules, spec.start_pfn, spec.pages, W_HELD | W_MOVABLE) < 0:
        raise MemoryError
    for pfn, pages in spec.holes:
        fill_words(z.page + zone_page(z, pfn), W_ABSENT, <uint32_t>pages)
    return 0


cdef int zone_free(zone *z, const pcp_rules *rules, spec) except -1:
    """A fresh zone whose pages are all on the free lists."""
    cdef uint64_t start = spec.start_pfn, end
    if zone_init(z, rules, spec.start_pfn, spec.pages, W_ABSENT) < 0:
        raise MemoryError
    for pfn, pages in sorted(spec.holes) + [(spec.end_pfn, 0)]:
        end = pfn
        if end > start:
            zone_free_range(z, zone_page(z, start), <uint32_t>(end - start), MIGRATE_MOVABLE)
        start = max(start, <uint64_t>(pfn + pages))
    return 0


cdef list free_list(const zone *z, int order, int mt):
    cdef const block_list *area = &z.free_area[order][mt]
    cdef uint32_t at = area.head, page
    pfns = []
    while at != area.tail:
        page = block_list_at(area, z.page, free_kind(order, mt), at)
        if page != NO_PAGE:
            pfns.append(zone_pfn(z, page))
        at += 1
    return pfns


cdef dict zone_state(memory *mm, int number):
    cdef zone *z = &mm.zone[number]
    cdef pageset *ps
    cdef page_ring *ring
    cdef int order, mt, cpu
    cdef uint32_t i, page, word, first, skip = z.start >> PAGEBLOCK_ORDER
    cdef uint32_t nr_blocks = (z.end + (1U << PAGEBLOCK_ORDER) - 1) >> PAGEBLOCK_ORDER
    free_lists = {}
    for order in range(NR_PAGE_ORDERS):
        for mt in range(MIGRATE_TYPES):
            if z.free_area[order][mt].live:
                free_lists[order, mt] = free_list(z, order, mt)
    held = []
    page = z.start
    while page < z.end:
        word = z.page[page]
        if word & W_WHAT == W_HELD:
            first = page
            while page < z.end and z.page[page] == word:
                page += 1
            held.append((zone_pfn(z, first), page - first, bool(word & W_MOVABLE)))
        else:
            page += 1
    pcp = []
    for cpu in range(mm.nr_cpus):
        ps = pageset_of(mm, number, cpu)
        lists, cached = {}, {}
        for i in range(z.rules.nr_pcp_lists):
            ring = &ps.lists[i]
            if ring.len:
                lists[i] = [zone_pfn(z, page_ring_at(ring, k)) for k in range(ring.len)]
                cached[i] = [
                    z.page[page_ring_at(ring, k)] >> W_CACHED_SHIFT & 7 for k in range(ring.len)
                ]
        pcp.append({**ps.pcp, "lists": lists, "cached": cached})
    base_block = z.base_pfn >> PAGEBLOCK_ORDER
    return {
        "free": free_lists,
        "blocks": [z.block[i] for i in range(skip, nr_blocks)],
        "isolated": [
            (base_block + i, z.isolated[i] - 1) for i in range(skip, nr_blocks) if z.isolated[i]
        ],
        "held": held,
        "nr_free": z.nr_free,
        "nr_free_cma": z.nr_free_cma,
        "nr_free_highatomic": z.nr_free_highatomic,
        "nr_reserved_highatomic": z.nr_reserved_highatomic,
        "watermark_boost": z.watermark_boost,
        "flags": z.flags,
        "stat_diff": [pageset_of(mm, number, cpu).stat_diff for cpu in range(mm.nr_cpus)],
        "pcp": pcp,
    }


cdef int claim_words(zone *z, pfn, int order, str what) except -1:
    """Check that a block of a state is there and not listed twice; take it out of use."""
    whole("pfn", pfn, 0, 0x7FFFFFFFFFFFFFFF)
    if pfn % (1 << order) or not zone_spans(z, pfn):
        raise InputError(f"{what}: pfn={pfn} is outside the zone or not aligned to order {order}")
    if not zone_is_held(z, zone_page(z, pfn), order):
        raise InputError(f"{what}: pfn={pfn}, order={order} overlaps a hole or another block")
    fill_words(z.page + zone_page(z, pfn), W_NONE, 1U << order)
    return 0


cdef int load_zone(memory *mm, int number, spec, state) except -1:
    cdef zone *old = &mm.zone[number]
    cdef zone new
    cdef pageset *sets = <pageset *>calloc(mm.nr_cpus, sizeof(pageset))
    cdef int cpu
    memset(&new, 0, sizeof(zone))
    try:
        if sets == NULL:
            raise MemoryError
        zone_in_use(&new, &old.rules, spec)
        fill_zone(mm, number, &new, sets, spec, state)
        if new.broken:
            raise MemoryError
    except BaseException:
        zone_destroy(&new)
        if sets != NULL:
            for cpu in range(mm.nr_cpus):
                pageset_destroy(&sets[cpu])
        c_free(sets)
        raise
    zone_destroy(old)
    old[0] = new
    for cpu in range(mm.nr_cpus):
        pageset_destroy(pageset_of(mm, number, cpu))
        pageset_of(mm, number, cpu)[0] = sets[cpu]
    c_free(sets)
    return 0


cdef int fill_zone(memory *mm, int number, zone *z, pageset *sets, spec, state) except -1:
    cdef const zone *old = &mm.zone[number]
    cdef uint32_t skip = z.start >> PAGEBLOCK_ORDER, i, page, nr_blocks, k
    cdef int order, mt, cpu
    cdef pageset *ps
    cdef uint64_t base_block = z.base_pfn >> PAGEBLOCK_ORDER
    nr_blocks = (z.end + (1U << PAGEBLOCK_ORDER) - 1) >> PAGEBLOCK_ORDER
    z.node = old.node
    z.index = old.index
    z.managed_pages = old.managed_pages
    z.watermark = old.watermark
    z.watermark_boost_factor = old.watermark_boost_factor
    z.lowmem_reserve = old.lowmem_reserve
    z.claim = old.claim
    if "blocks" in state:
        blocks = state["blocks"]
        if len(blocks) != nr_blocks - skip:
            raise InputError(f"blocks has {len(blocks)} entries, the zone {nr_blocks - skip}")
        for i in range(nr_blocks - skip):
            z.block[skip + i] = whole("blocks", blocks[i], 0, MIGRATE_ISOLATE)
    for block, below in state.get("isolated", ()):
        k = integer("isolated", block, base_block + skip, base_block + nr_blocks - 1) - base_block
        z.isolated[k] = 1 + <int>integer("isolated type", below, 0, MIGRATE_CMA)
        z.nr_isolated += 1

    for (order_, type_), pfns in state["free"].items():
        order = integer("order", order_, 0, MAX_PAGE_ORDER)
        mt = integer("migratetype", type_, 0, MIGRATE_TYPES - 1)
        what = f"free list of order {order}, type {mt}"
        for pfn in pfns:
            claim_words(z, pfn, order, what)
            add_to_free_list(z, zone_page(z, pfn), order, mt, True)

    saved_sets = state.get("pcp", ())
    if len(saved_sets) not in (0, mm.nr_cpus):
        raise InputError(f"pcp has {len(saved_sets)} entries for {mm.nr_cpus} CPUs")
    for cpu in range(mm.nr_cpus):
        ps = &sets[cpu]
        ps.pcp = pageset_of(mm, number, cpu).pcp
        ps.policy = pageset_of(mm, number, cpu).policy
        ps.pcp.count = 0
        ps.cpu = cpu
        if saved_sets:
            load_pageset(z, ps, saved_sets[cpu])
    for cpu, diff in enumerate(state.get("stat_diff", ())):
        sets[integer("stat_diff", cpu, 0, mm.nr_cpus - 1)].stat_diff = diff

    if "held" in state:
        for page in range(z.start, z.end):
            if z.page[page] & W_WHAT == W_HELD:
                z.page[page] = W_HELD | 0x100  # not yet mentioned
        for pfn, pages, movable in state["held"]:
            integer("held pfn", pfn, spec.start_pfn, spec.end_pfn - 1)
            integer("held pages", pages, 0, spec.end_pfn - pfn)
            for page in range(zone_page(z, pfn), zone_page(z, pfn) + <uint32_t>pages):
                if z.page[page] != W_HELD | 0x100:
                    raise InputError(f"held: pfn={zone_pfn(z, page)} is listed elsewhere or absent")
                z.page[page] = W_HELD | (W_MOVABLE if movable else 0)
        for page in range(z.start, z.end):
            if z.page[page] == W_HELD | 0x100:
                raise InputError(f"pfn={zone_pfn(z, page)} is neither held nor on a list")
    else:
        for i in range(skip, nr_blocks):
            if block_type(z, i << PAGEBLOCK_ORDER) != MIGRATE_MOVABLE:
                for page in range(i << PAGEBLOCK_ORDER, (i + 1) << PAGEBLOCK_ORDER):
                    if z.page[page] & W_WHAT == W_HELD:
                        z.page[page] = W_HELD
    z.nr_reserved_highatomic = integer(
        "nr_reserved_highatomic", state.get("nr_reserved_highatomic", 0), 0, spec.pages
    )
    z.watermark_boost = integer(
        "watermark_boost", state.get("watermark_boost", 0), 0, (1 << 31) - 1
    )
    z.flags = integer("flags", state.get("flags", 0), 0, 7)
    z.events = old.events
    return 0


cdef int load_pageset(zone *z, pageset *ps, saved) except -1:
    cdef int pindex, order, mt, listed
    cdef page_ring *ring
    for pindex_, pfns in saved.get("lists", {}).items():
        pindex = integer("pindex", pindex_, 0, z.rules.nr_pcp_lists - 1)
        order = pindex_to_order(pindex)
        ring = &ps.lists[pindex]
        if page_ring_reserve(ring, len(pfns)) < 0:
            raise MemoryError
        types = saved.get("cached", {}).get(pindex)
        what = f"PCP list {pindex} of CPU {ps.cpu}"
        for k, pfn in enumerate(pfns):
            claim_words(z, pfn, order, what)
            mt = block_type(z, zone_page(z, pfn))
            if types is not None:
                mt = integer("cached", types[k], 0, MIGRATE_ISOLATE)
            page_ring_push_tail(ring, zone_page(z, pfn))
            fill_words(
                z.page + zone_page(z, pfn), pcp_word(mt, pindex, ps.cpu), 1U << order
            )
            ps.pcp.count += 1 << order
    listed = ps.pcp.count
    scalars = dict(ps.pcp)
    for name, value in saved.items():
        if name in scalars:
            scalars[name] = integer(name, value, 0, 1 << 26)
    if saved.get("count", listed) != listed:
        raise InputError(f"count={saved['count']} of CPU {ps.cpu}, but {listed} pages are listed")
    scalars["batch"] = integer("batch", scalars["batch"], 1, 1 << 16)
    ps.pcp = scalars
    ps.pcp.count = listed
    return 0

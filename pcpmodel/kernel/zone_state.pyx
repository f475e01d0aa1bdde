"""A zone's state: made, saved and loaded."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.stdlib cimport free as c_free
from libc.string cimport memset

from pcpmodel.errors cimport whole
from pcpmodel.kernel.buddy cimport (
    add_to_free_list,
    block_type,
    free_kind,
    list_fresh,
    zone,
    zone_destroy,
    zone_free_range,
    zone_init,
    zone_page,
    zone_pfn,
    zone_spans,
)
from pcpmodel.kernel.lists cimport pindex_to_order
from pcpmodel.kernel.page_alloc cimport memory, pageset_of
from pcpmodel.kernel.pages cimport (
    MAX_PAGE_ORDER,
    MIGRATE_CMA,
    MIGRATE_ISOLATE,
    MIGRATE_MOVABLE,
    MIGRATE_TYPES,
    NO_PAGE,
    NR_PAGE_ORDERS,
    PAGEBLOCK_ORDER,
    W_ABSENT,
    W_CACHED_SHIFT,
    W_HELD,
    W_MOVABLE,
    W_NONE,
    W_WHAT,
    block_list,
    block_list_at,
    fill_words,
    page_ring,
    page_ring_at,
    page_ring_push_tail,
    page_ring_reserve,
    pages_log2,
    pcp_word,
)
from pcpmodel.kernel.pcp cimport pageset, pageset_destroy, pcp_scalars
from pcpmodel.kernel.rules cimport pcp_rules

from array import array

from pcpmodel.errors import InputError


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
    if zone_init(z, rules, spec.start_pfn, spec.pages, W_NONE) < 0:
        raise MemoryError
    for pfn, pages in spec.holes:
        fill_words(z.page + zone_page(z, pfn), W_ABSENT, <uint32_t>pages)
    for pfn, pages in sorted(spec.holes) + [(spec.end_pfn, 0)]:
        end = pfn
        if end > start:
            zone_free_range(z, zone_page(z, start), <uint32_t>(end - start))
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
    list_fresh(z, z.fresh_end)
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
        pcp.append({**pcp_scalars(&ps.pcp), "lists": lists, "cached": cached})
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


cdef const int64_t[::1] page_frames(pfns):
    """Page frames of a state: an array of them, or whatever goes through integers."""
    try:
        return pfns
    except (TypeError, ValueError):
        return array("q", [whole("pfn", pfn, 0, 0x7FFFFFFFFFFFFFFF) for pfn in pfns])


cdef int claim_words(zone *z, int64_t pfn, int order, str what) except -1:
    """Check that a block of a state is there and not listed twice; take it out of use."""
    cdef uint32_t *words = z.page + zone_page(z, pfn)
    cdef uint32_t i, other = 0
    if pfn & ((1 << order) - 1) or not zone_spans(z, pfn):
        raise InputError(f"{what}: pfn={pfn} is outside the zone or not aligned to order {order}")
    for i in range(1U << order):  # all of them: several at once
        other |= (words[i] & W_WHAT) ^ W_HELD
    if other:
        raise InputError(f"{what}: pfn={pfn}, order={order} overlaps a hole or another block")
    fill_words(words, W_NONE, 1U << order)
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
    cdef const int64_t[::1] given
    cdef Py_ssize_t n
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
        k = whole("isolated", block, base_block + skip, base_block + nr_blocks - 1) - base_block
        z.isolated[k] = 1 + <int>whole("isolated type", below, 0, MIGRATE_CMA)
        z.nr_isolated += 1

    for (order_, type_), pfns in state["free"].items():
        order = whole("order", order_, 0, MAX_PAGE_ORDER)
        mt = whole("migratetype", type_, 0, MIGRATE_TYPES - 1)
        what = f"free list of order {order}, type {mt}"
        given = page_frames(pfns)
        for n in range(given.shape[0]):
            claim_words(z, given[n], order, what)
            add_to_free_list(z, zone_page(z, given[n]), order, mt, True)

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
        sets[whole("stat_diff", cpu, 0, mm.nr_cpus - 1)].stat_diff = diff

    if "held" in state:
        for page in range(z.start, z.end):
            if z.page[page] & W_WHAT == W_HELD:
                z.page[page] = W_HELD | 0x100  # not yet mentioned
        for pfn, pages, movable in state["held"]:
            whole("held pfn", pfn, spec.start_pfn, spec.end_pfn - 1)
            whole("held pages", pages, 0, spec.end_pfn - pfn)
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
                    z.page[page] = W_HELD if z.page[page] & W_WHAT == W_HELD else z.page[page]
    z.nr_reserved_highatomic = whole(
        "nr_reserved_highatomic", state.get("nr_reserved_highatomic", 0), 0, spec.pages
    )
    z.watermark_boost = whole(
        "watermark_boost", state.get("watermark_boost", 0), 0, (1 << 31) - 1
    )
    z.flags = whole("flags", state.get("flags", 0), 0, 7)
    z.events = old.events
    return 0


cdef int load_pageset(zone *z, pageset *ps, saved) except -1:
    cdef int pindex, order, mt, listed
    cdef page_ring *ring
    cdef const int64_t[::1] given
    cdef Py_ssize_t k
    cdef uint32_t page
    for pindex_, pfns in saved.get("lists", {}).items():
        pindex = whole("pindex", pindex_, 0, z.rules.nr_pcp_lists - 1)
        order = pindex_to_order(pindex)
        ring = &ps.lists[pindex]
        given = page_frames(pfns)
        if page_ring_reserve(ring, <uint32_t>given.shape[0]) < 0:
            raise MemoryError
        types = saved.get("cached", {}).get(pindex)
        what = f"PCP list {pindex} of CPU {ps.cpu}"
        for k in range(given.shape[0]):
            claim_words(z, given[k], order, what)
            page = zone_page(z, given[k])
            mt = block_type(z, page)
            if types is not None:
                mt = whole("cached", types[k], 0, MIGRATE_ISOLATE)
            page_ring_push_tail(ring, page)
            fill_words(z.page + page, pcp_word(mt, pindex, ps.cpu), 1U << order)
            ps.pcp.count += 1 << order
    listed = ps.pcp.count
    scalars = dict(ps.pcp)
    narrow = ("flags", "alloc_factor", "free_factor", "expire")
    for name, value in saved.items():
        if name == "own":
            scalars[name] = [whole(name, v, -(1 << 31), (1 << 31) - 1) for v in value]
        elif name in scalars:
            scalars[name] = whole(name, value, 0, 127 if name in narrow else 1 << 26)
    if saved.get("count", listed) != listed:
        raise InputError(f"count={saved['count']} of CPU {ps.cpu}, but {listed} pages are listed")
    scalars["batch"] = whole("batch", scalars["batch"], 1, 1 << 16)
    for name in ("alloc_factor", "free_factor"):  # by which batch is shifted
        whole(name, scalars[name], 0, 30 - pages_log2(<uint32_t>scalars["batch"]))
    ps.pcp = scalars
    ps.pcp.count = listed
    return 0

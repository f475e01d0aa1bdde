"""Page frames: orders, migratetypes, zone flags."""

# SPDX-License-Identifier: GPL-2.0-only

cdef enum:
    MAX_PAGE_ORDER = 10  # largest block: 2 ** 10 pages
    NR_PAGE_ORDERS = 11
    PAGE_ALLOC_COSTLY_ORDER = 3
    PAGEBLOCK_ORDER = 9
    PAGEBLOCK_NR_PAGES = 512
    HPAGE_PMD_ORDER = 9

    # enum migratetype, CONFIG_CMA and CONFIG_MEMORY_ISOLATION
    MIGRATE_UNMOVABLE = 0
    MIGRATE_MOVABLE = 1
    MIGRATE_RECLAIMABLE = 2
    MIGRATE_PCPTYPES = 3
    MIGRATE_HIGHATOMIC = 3
    MIGRATE_CMA = 4
    MIGRATE_ISOLATE = 5
    MIGRATE_TYPES = 6

    NR_LOWORDER_PCP_LISTS = 12
    MAX_PCP_LISTS = 14

    # zone->flags, as a mask
    ZONE_BOOSTED_WATERMARK = 1
    ZONE_RECLAIM_ACTIVE = 2
    ZONE_BELOW_HIGH = 4


cdef inline bint pcp_allowed_order(int order) noexcept nogil:
    return order <= PAGE_ALLOC_COSTLY_ORDER or order == HPAGE_PMD_ORDER


cdef inline int order_to_pindex(int nr_pcp_lists, int migratetype, int order) noexcept nogil:
    """PCP list of a block; ``migratetype`` is 0..2, ``order`` 0..3 or 9."""
    if order > PAGE_ALLOC_COSTLY_ORDER:
        return NR_LOWORDER_PCP_LISTS + (
            nr_pcp_lists == MAX_PCP_LISTS and migratetype == MIGRATE_MOVABLE
        )
    return MIGRATE_PCPTYPES * order + migratetype


cdef inline int pindex_to_order(int pindex) noexcept nogil:
    if pindex >= NR_LOWORDER_PCP_LISTS:
        return HPAGE_PMD_ORDER
    return pindex // MIGRATE_PCPTYPES

"""Which list of a pageset holds which blocks, and how free_pcppages_bulk() goes round the lists.

order_to_pindex(), pindex_to_order() and pcp_allowed_order() of mm/page_alloc.c.  How many lists
there are is a rule of the release: 3 where only single pages are kept (up to v5.13), 15 with a
list of huge pages for each type (v5.14), 13 with one for all (v6.0), 14 with one for movable ones
and one for the others (v6.10).
`pcpmodel.kernel.lists` is the same in Python.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t

from pcpmodel.kernel.pages cimport (
    HPAGE_PMD_ORDER,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    PAGE_ALLOC_COSTLY_ORDER,
)
from pcpmodel.kernel.rules cimport pcp_rules

cdef enum:
    NR_LOWORDER_PCP_LISTS = 12  # orders 0..3 of three migratetypes each
    MAX_PCP_LISTS = 15  # of a release
    PCP_LISTS_ROOM = 32  # of a user's kernel tree


cdef inline int pcp_migratetype(int migratetype) noexcept nogil:
    """Type of the list that pages of such a page block join: free_unref_page().

    What has no lists of its own is movable there; so is -1, a type that nobody told.
    """
    return migratetype if 0 <= migratetype < MIGRATE_PCPTYPES else <int>MIGRATE_MOVABLE


cdef inline bint pcp_allowed_order(int nr_pcp_lists, int order) noexcept nogil:
    """Have blocks of this order a list?"""
    if nr_pcp_lists == MIGRATE_PCPTYPES:
        return order == 0
    return order <= PAGE_ALLOC_COSTLY_ORDER or order == HPAGE_PMD_ORDER


cdef inline int order_to_pindex(int nr_pcp_lists, int migratetype, int order) noexcept nogil:
    """PCP list of a block; ``migratetype`` is 0..2, ``order`` one that has lists."""
    cdef int huge = nr_pcp_lists - NR_LOWORDER_PCP_LISTS
    if order > PAGE_ALLOC_COSTLY_ORDER:
        if huge == MIGRATE_PCPTYPES:
            return NR_LOWORDER_PCP_LISTS + migratetype
        return NR_LOWORDER_PCP_LISTS + (huge > 1 and migratetype == MIGRATE_MOVABLE)
    return MIGRATE_PCPTYPES * order + migratetype


cdef inline int lists_in_use(int nr_pcp_lists) noexcept nogil:
    """Lists that may have blocks: a tree that has more than any release leaves the rest empty."""
    if nr_pcp_lists > MAX_PCP_LISTS:
        return NR_LOWORDER_PCP_LISTS + 2
    return nr_pcp_lists


cdef inline int pindex_to_order(int pindex) noexcept nogil:
    if pindex >= NR_LOWORDER_PCP_LISTS:
        return HPAGE_PMD_ORDER
    return <unsigned int>pindex // MIGRATE_PCPTYPES


cdef inline int pindex_to_type(int pindex) noexcept nogil:
    """Migratetype of a list's blocks; of list 12, which may hold several, unmovable."""
    if pindex < NR_LOWORDER_PCP_LISTS:
        return <unsigned int>pindex % MIGRATE_PCPTYPES
    return pindex - NR_LOWORDER_PCP_LISTS


cdef inline int pindex_to_only_type(int pindex) noexcept nogil:
    """Migratetype of every block on a list; -1 of one of huge pages, which may hold several."""
    return pindex_to_type(pindex) if pindex < NR_LOWORDER_PCP_LISTS else -1


cdef inline bint pindex_may_hold(int pindex, int migratetype, int order) noexcept nogil:
    """May a block of 2**order pages, asked for as of this type, be on a list?"""
    if pindex_to_order(pindex) != order:
        return False
    return pindex >= NR_LOWORDER_PCP_LISTS or pindex_to_type(pindex) == migratetype


cdef inline int pindex_in(int nr_pcp_lists, int pindex) noexcept nogil:
    """The list of a release that has so many, for one of MAX_PCP_LISTS that has lists, too."""
    cdef int order = pindex_to_order(pindex)
    if not pcp_allowed_order(nr_pcp_lists, order):
        return pindex
    return order_to_pindex(nr_pcp_lists, pindex_to_type(pindex), order)


cdef inline int pindex_after(int nr_pcp_lists, int pindex) noexcept nogil:
    """The list that free_pcppages_bulk() looks at next."""
    return pindex + 1 if pindex + 1 < nr_pcp_lists else 0


cdef inline int drain_first(const pcp_rules *r, int pindex) noexcept nogil:
    """The list that free_pcppages_bulk() looks at first: that of the block freed, from v5.18 on."""
    return pindex if r.drain_by_list else 1


cdef inline int drain_share(const pcp_rules *r, int share, int n) noexcept nogil:
    """Most blocks that it takes off the next list that has any, with n pages to go.

    ``share``: the lists looked at since the last block was taken, and what then was left of this.
    Up to v5.17 fuller lists give more; from then on a list gives all it has.
    """
    return n if r.drain_by_list or share == r.nr_pcp_lists else share


cdef inline int drain_costs(
    int32_t *blocks, const pcp_rules *r, int n, int pindex, int *pages_ret,
    const int64_t *each, int64_t *cost_ret
) noexcept nogil:
    """drain_counts(), and what the blocks cost together where one of a list costs ``each``."""
    cdef int i = drain_first(r, pindex), order, take, freed = 0, pages = 0, share = 1
    cdef int64_t cost = 0
    while pages < n:
        while blocks[i] == 0:
            i = pindex_after(r.nr_pcp_lists, i)
            share += 1
        share = drain_share(r, share, n - pages)
        order = pindex_to_order(i)
        take = min(min(blocks[i], share), (n - pages + (1 << order) - 1) >> order)
        blocks[i] -= take
        freed += take
        if each != NULL:
            cost += take * each[i]
        pages += take << order
        i = pindex_after(r.nr_pcp_lists, i)
        share += 1 - take
    pages_ret[0] = pages
    if each != NULL:
        cost_ret[0] = cost
    return freed


cdef inline int drain_counts(
    int32_t *blocks, const pcp_rules *r, int n, int pindex, int *pages_ret
) noexcept nogil:
    """free_pcppages_bulk() by count: n pages, list by list from ``pindex`` on.

    The lists hold n pages or more.  Returns the blocks freed; ``pages_ret``: their pages, which
    are more than n where the last block is larger than what was left to free.
    """
    return drain_costs(blocks, r, n, pindex, pages_ret, NULL, NULL)

"""Which list of a pageset holds which blocks: `lists.pxd` in Python."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

__all__ = [
    "HPAGE_PMD_ORDER",
    "MAX_PCP_LISTS",
    "MIGRATETYPES",
    "PAGE_ALLOC_COSTLY_ORDER",
    "PCP_LISTS_ROOM",
    "PCP_ORDERS",
    "order_to_pindex",
    "pcp_orders",
    "pindex_to_order",
    "pindex_to_type",
]

#: Migratetypes that have lists of their own.
MIGRATETYPES = {"unmovable": 0, "movable": 1, "reclaimable": 2}

HPAGE_PMD_ORDER = 9

#: Largest order but that of huge pages: the last of 0..3.
PAGE_ALLOC_COSTLY_ORDER = 3

#: Orders that per-CPU lists may hold; of a release: `pcp_orders`.
PCP_ORDERS = (0, 1, 2, 3, HPAGE_PMD_ORDER)

#: Most lists of a release, and of a user's kernel tree.
MAX_PCP_LISTS = 15
PCP_LISTS_ROOM = 32

_LOWORDER = 12


def pcp_orders(nr_pcp_lists: int) -> tuple[int, ...]:
    """Orders that have lists, of a release that has so many: pcp_allowed_order()."""
    return PCP_ORDERS if nr_pcp_lists > len(MIGRATETYPES) else PCP_ORDERS[:1]


def order_to_pindex(nr_pcp_lists: int, migratetype: int, order: int) -> int:
    """List of a block of 2**order pages, of a release that has so many lists."""
    if order < HPAGE_PMD_ORDER:
        return 3 * order + migratetype
    huge = nr_pcp_lists - _LOWORDER
    return _LOWORDER + (migratetype if huge == len(MIGRATETYPES) else huge > 1 and migratetype == 1)


def pindex_to_order(pindex: int) -> int:
    """Order of the blocks on a list."""
    return pindex // 3 if pindex < _LOWORDER else HPAGE_PMD_ORDER


def pindex_to_type(pindex: int) -> int:
    """Migratetype of the blocks on a list; of list 12, which may hold several, unmovable."""
    return pindex % 3 if pindex < _LOWORDER else pindex - _LOWORDER

"""Which list of a pageset holds which blocks: twin of `lists.pxd`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from pcpmodel.kernel.reference.pages import MOVABLE
from pcpmodel.kernel.releases import Rules

COSTLY_ORDER = 3
THP_ORDER = 9


def order_to_pindex(rules: Rules, migratetype: int, order: int) -> int:
    """PCP list of a block."""
    if order == THP_ORDER:
        return 13 if rules.nr_pcp_lists >= 14 and migratetype == MOVABLE else 12
    return 3 * order + migratetype


def pindex_to_order(pindex: int) -> int:
    """Order of the blocks on a PCP list."""
    return pindex // 3 if pindex < 12 else THP_ORDER


def pcp_allowed(order: int) -> bool:
    """Whether blocks of this order go through the per-CPU lists."""
    return order <= COSTLY_ORDER or order == THP_ORDER

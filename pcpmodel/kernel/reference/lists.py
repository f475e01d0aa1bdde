"""Which list of a pageset holds which blocks: twin of `lists.pxd`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterator

from pcpmodel.kernel.reference.pages import MOVABLE
from pcpmodel.kernel.releases import Rules

COSTLY_ORDER = 3
THP_ORDER = 9


def order_to_pindex(rules: Rules, migratetype: int, order: int) -> int:
    """PCP list of a block."""
    if order == THP_ORDER:
        if rules.nr_pcp_lists == 15:
            return 12 + migratetype
        return 13 if rules.nr_pcp_lists >= 14 and migratetype == MOVABLE else 12
    return 3 * order + migratetype


def pindex_to_order(pindex: int) -> int:
    """Order of the blocks on a PCP list."""
    return pindex // 3 if pindex < 12 else THP_ORDER


def pcp_allowed(rules: Rules, order: int) -> bool:
    """Whether blocks of this order go through the per-CPU lists."""
    if rules.nr_pcp_lists == 3:
        return order == 0
    return order <= COSTLY_ORDER or order == THP_ORDER


def drain_sequence(rules: Rules, lengths: list[int], start: int, n: int) -> Iterator[int]:
    """Lists in the order in which a drain of n pages takes its blocks, one by one.

    ``lengths``: blocks on each list; they hold n pages or more.  It is used up.
    """
    i = start if rules.drain_by_list else 0
    batch_free = 0
    while n > 0:
        if rules.drain_by_list:
            while lengths[i] == 0:
                i = (i + 1) % len(lengths)
            batch_free = n
        else:
            while True:
                batch_free += 1
                i = (i + 1) % len(lengths)
                if lengths[i]:
                    break
            if batch_free == len(lengths):
                batch_free = n
        while n > 0 and batch_free > 0 and lengths[i] > 0:
            lengths[i] -= 1
            batch_free -= 1
            n -= 2 ** pindex_to_order(i)
            yield i

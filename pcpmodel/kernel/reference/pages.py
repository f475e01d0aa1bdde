"""Page blocks and runs of pages: twin of `pages.pxd`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

UNMOVABLE, MOVABLE, RECLAIMABLE, HIGHATOMIC, CMA, ISOLATE = range(6)
MERGEABLE = (UNMOVABLE, MOVABLE, RECLAIMABLE)
MAX_PAGE_ORDER = 10
PAGEBLOCK_ORDER = 9
PAGEBLOCK = 2**PAGEBLOCK_ORDER
SECTION = 2**15

BOOSTED_WATERMARK, RECLAIM_ACTIVE, BELOW_HIGH = 1, 2, 4


def runs(pages: Iterable[tuple[int, Any]]) -> list[tuple[int, int, Any]]:
    """Merge ascending (pfn, attribute) into (pfn, pages, attribute)."""
    merged: list[tuple[int, int, Any]] = []
    for pfn, attribute in pages:
        if merged:
            start, n, what = merged[-1]
            if start + n == pfn and what == attribute:
                merged[-1] = (start, n + 1, what)
                continue
        merged.append((pfn, 1, attribute))
    return merged


def aligned_blocks(pfn: int, pages: int) -> Iterable[tuple[int, int]]:
    """Cut a run of pages greedily into naturally aligned blocks (pfn, order)."""
    while pages:
        order = MAX_PAGE_ORDER
        while pfn % 2**order or 2**order > pages:
            order -= 1
        yield pfn, order
        pfn += 2**order
        pages -= 2**order

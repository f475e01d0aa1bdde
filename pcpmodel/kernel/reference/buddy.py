"""The free lists of a zone, one block at a time: twin of `buddy.pyx`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable

from pcpmodel.kernel.reference.lists import pcp_allowed
from pcpmodel.kernel.reference.pages import (
    BOOSTED_WATERMARK,
    CMA,
    HIGHATOMIC,
    ISOLATE,
    MAX_PAGE_ORDER,
    MERGEABLE,
    MOVABLE,
    PAGEBLOCK,
    PAGEBLOCK_ORDER,
    RECLAIMABLE,
    UNMOVABLE,
)
from pcpmodel.kernel.releases import Fallback, Rules
from pcpmodel.kernel.zone import Zone, managed_pages

WMARK_MIN, WMARK_LOW, WMARK_HIGH = range(3)
NO_WATERMARKS = 0x4
ALLOC_OOM = 0x8
NON_BLOCK = 0x10
MIN_RESERVE = 0x20
ALLOC_CMA = 0x80
NOFRAGMENT = 0x100
ALLOC_HIGHATOMIC = 0x200
ALLOC_KSWAPD = 0x800
RESERVES = ALLOC_OOM | NON_BLOCK | MIN_RESERVE | ALLOC_HIGHATOMIC
ALLOC_FLAGS = 0xFFF

#: Types that a request of each type falls back to, in order.
FALLBACKS = {
    UNMOVABLE: (RECLAIMABLE, MOVABLE),
    MOVABLE: (RECLAIMABLE, UNMOVABLE),
    RECLAIMABLE: (UNMOVABLE, MOVABLE),
}


class BuddyZone:
    """One struct zone."""

    def __init__(
        self,
        rules: Rules,
        spec: Zone,
        cpus: int,
        watermark_boost_factor: int,
        emit: Callable[..., None],
    ) -> None:
        self.rules = rules
        self.spec = spec
        self.watermark_boost_factor = watermark_boost_factor
        self.emit = emit
        self.start, self.end = spec.start_pfn, spec.end_pfn
        self.absent = {p for pfn, n in spec.holes for p in range(pfn, pfn + n)}
        self.free: dict[tuple[int, int], list[int]] = {
            (order, mt): [] for order in range(MAX_PAGE_ORDER + 1) for mt in range(6)
        }
        self.head: dict[int, tuple[int, int]] = {}  # free block -> (order, list)
        self.held: dict[int, bool] = {}  # page in use -> does it look movable?
        self.first_block = self.start // PAGEBLOCK
        self.blocks = [MOVABLE] * (-(-self.end // PAGEBLOCK) - self.first_block)
        self.isolated: dict[int, int] = {}  # isolated block -> type underneath
        self.managed = managed_pages(spec)
        self.watermarks = list(spec.watermarks)
        self.watermark_boost = 0
        self.nr_reserved_highatomic = 0
        self.flags = 0
        self.stat_diff = [0] * cpus

    # Page blocks

    def block_type(self, pfn: int) -> int:
        return self.blocks[pfn // PAGEBLOCK - self.first_block]

    def set_block_type(self, pfn: int, mt: int) -> None:
        self.blocks[pfn // PAGEBLOCK - self.first_block] = mt

    def set_block_types(self, pfn: int, order: int, mt: int) -> None:
        """change_pageblock_range()"""
        for block in range(pfn, pfn + 2**order, PAGEBLOCK):
            self.set_block_type(block, mt)

    # Counters

    def nr_free(self, *types: int) -> int:
        return sum(
            2**order * len(pfns)
            for (order, mt), pfns in self.free.items()
            if (mt in types if types else mt != ISOLATE)
        )

    def count_hold(self, cpu: int, reason: str, freed: int) -> None:
        """A hold of zone->lock ended in which so many pages went to the free lists."""
        self.stat_diff[cpu] += freed
        self.emit("hold", reason, abs(freed))

    # Free lists

    def add_to_free_list(self, pfn: int, order: int, mt: int, tail: bool) -> None:
        if tail:
            self.free[order, mt].append(pfn)
        else:
            self.free[order, mt].insert(0, pfn)
        self.head[pfn] = (order, mt)

    def del_from_free_list(self, pfn: int) -> tuple[int, int]:
        order, mt = self.head.pop(pfn)
        self.free[order, mt].remove(pfn)
        return order, mt

    def move_to_free_list(self, pfn: int, mt: int) -> None:
        order, _ = self.del_from_free_list(pfn)
        self.add_to_free_list(pfn, order, mt, tail=True)

    def expand(self, pfn: int, low: int, high: int, mt: int) -> None:
        while high > low:
            high -= 1
            self.add_to_free_list(pfn + 2**high, high, mt, tail=False)

    def take(self, pfn: int, order: int, remainders: int) -> int:
        """Take the first 2**order pages of a free block."""
        high, _ = self.del_from_free_list(pfn)
        self.expand(pfn, order, high, remainders)
        return pfn

    def free_block_over(self, pfn: int) -> int | None:
        """Head of the free block that a page frame lies in."""
        for order in range(MAX_PAGE_ORDER + 1):
            start = pfn - pfn % 2**order
            if start in self.head and start + 2 ** self.head[start][0] > pfn:
                return start
        return None

    # Allocation

    def rmqueue_smallest(self, order: int, mt: int, asked: int) -> int | None:
        """__rmqueue_smallest() for a request of a type"""
        for o in range(order, MAX_PAGE_ORDER + 1):
            if self.free[o, mt]:
                pfn = self.take(self.free[o, mt][0], order, mt)
                refill = pcp_allowed(self.rules, order) and mt in MERGEABLE
                told = (mt, refill) if self.rules.zone_locked_list else (asked, order == 0)
                self.emit("zone_locked", pfn, order, *told)
                return pfn
        return None

    def fallback_type(self, order: int, mt: int) -> int | None:
        """First fallback type with a block of this order."""
        for other in FALLBACKS[mt]:
            if self.free[order, other]:
                return other
        return None

    def boost_watermark(self, alloc_flags: int) -> None:
        factor = self.watermark_boost_factor
        if not self.rules.boost_watermark or factor == 0 or self.managed < 4 * PAGEBLOCK:
            return
        most = self.watermarks[WMARK_HIGH] * factor // 10000
        if most == 0:
            return
        self.watermark_boost = min(self.watermark_boost + PAGEBLOCK, max(PAGEBLOCK, most))
        if alloc_flags & ALLOC_KSWAPD:
            self.flags |= BOOSTED_WATERMARK

    def pageblock_range(self, pfn: int) -> tuple[int, int] | None:
        """Pages of the block that may be moved; None at the edge of the zone."""
        start = pfn - pfn % PAGEBLOCK
        end = start + PAGEBLOCK
        if self.rules.fallback == Fallback.STEAL_THEN_RETRY:
            if start < self.start:
                start = pfn
            return None if end > self.end else (start, end)
        return None if start < self.start or end > self.end else (start, end)

    def count_pages(self, start: int, end: int) -> tuple[int, int]:
        """Free pages, and pages in use that look movable."""
        free = movable = 0
        pfn = start
        while pfn < end:
            if pfn in self.head:
                size = 2 ** self.head[pfn][0]
                free += size
                pfn += size
            else:
                movable += self.held.get(pfn, False)
                pfn += 1
        return free, movable

    def move_freepages(self, start: int, end: int, mt: int) -> int:
        moved = 0
        pfn = start
        while pfn < end:
            if pfn in self.head:
                size = 2 ** self.head[pfn][0]
                self.move_to_free_list(pfn, mt)
                moved += size
                pfn += size
            else:
                pfn += 1
        return moved

    def enough_alike(self, mt: int, block_type: int, free: int, movable: int) -> bool:
        if mt == MOVABLE:
            alike = movable
        elif block_type == MOVABLE:
            alike = PAGEBLOCK - free - movable
        else:
            alike = 0
        return free + alike >= PAGEBLOCK // 2

    def emit_extfrag(self, pfn: int, order: int, fallback_order: int, mt: int, other: int) -> None:
        owns = self.block_type(pfn) == mt
        self.emit("extfrag", pfn, order, fallback_order, mt, other, owns)

    def lowest_claimed(self, order: int, alloc_flags: int) -> int:
        return PAGEBLOCK_ORDER if alloc_flags & NOFRAGMENT and order < PAGEBLOCK_ORDER else order

    def claimable(self, order: int, mt: int) -> bool:
        return order >= PAGEBLOCK_ORDER // 2 or mt in (UNMOVABLE, RECLAIMABLE)

    def find_fallback(self, order: int, mt: int, alloc_flags: int) -> tuple[int, int] | None:
        """... v6.14: the (order, type) to take from."""
        for o in range(MAX_PAGE_ORDER, self.lowest_claimed(order, alloc_flags) - 1, -1):
            if self.fallback_type(o, mt) is None:
                continue
            if not self.claimable(o, mt) and mt == MOVABLE and o > order:
                o = next(
                    x
                    for x in range(order, MAX_PAGE_ORDER + 1)
                    if self.fallback_type(x, mt) is not None
                )
            return o, self.fallback_type(o, mt)
        return None

    def steal_then_retry(self, order: int, mt: int, alloc_flags: int) -> bool:
        """... v6.9: convert what a fallback type has."""
        found = self.find_fallback(order, mt, alloc_flags)
        if found is None:
            return False
        o, other = found
        pfn = self.free[o, other][0]
        block_type = self.block_type(pfn)
        if block_type == HIGHATOMIC:
            self.move_to_free_list(pfn, mt)
        elif o >= PAGEBLOCK_ORDER:
            self.set_block_types(pfn, o, mt)
            self.move_to_free_list(pfn, mt)
        else:
            self.boost_watermark(alloc_flags)
            moved = 0
            if self.claimable(o, mt) and (span := self.pageblock_range(pfn)):
                free, movable = self.count_pages(*span)
                moved = self.move_freepages(*span, mt)
                if moved and self.enough_alike(mt, block_type, free, movable):
                    self.set_block_type(pfn, mt)
            if not moved:
                self.move_to_free_list(pfn, mt)
        self.emit_extfrag(pfn, order, o, mt, other)
        return True

    def claim_block(
        self, pfn: int, order: int, o: int, mt: int, other: int, alloc_flags: int
    ) -> int | None:
        """v6.10 on: take over the page block of a free block, if that is allowed."""
        if o >= PAGEBLOCK_ORDER:
            self.set_block_types(pfn, o, mt)
            return self.take(pfn, order, mt)
        self.boost_watermark(alloc_flags)
        if not self.claimable(o, mt):
            return None
        span = self.pageblock_range(pfn)
        if span is None or not self.enough_alike(mt, other, *self.count_pages(*span)):
            return None
        self.move_freepages(*span, mt)
        self.set_block_type(pfn, mt)
        return self.rmqueue_smallest(order, mt, mt)

    def steal_page(self, order: int, mt: int, alloc_flags: int) -> int | None:
        """v6.10 ... v6.14: a page of a fallback type."""
        found = self.find_fallback(order, mt, alloc_flags)
        if found is None:
            return None
        o, other = found
        pfn = self.free[o, other][0]
        page = None
        if self.block_type(pfn) != HIGHATOMIC:
            page = self.claim_block(pfn, order, o, mt, other, alloc_flags)
        if page is None:
            page = self.take(pfn, order, other)
        self.emit_extfrag(page, order, o, mt, other)
        return page

    def claim(self, order: int, mt: int, alloc_flags: int) -> int | None:
        """v6.15 on: __rmqueue_claim()"""
        for o in range(MAX_PAGE_ORDER, self.lowest_claimed(order, alloc_flags) - 1, -1):
            if not self.claimable(o, mt):
                break
            other = self.fallback_type(o, mt)
            if other is None:
                continue
            page = self.claim_block(self.free[o, other][0], order, o, mt, other, alloc_flags)
            if page is not None:
                self.emit_extfrag(page, order, o, mt, other)
                return page
        return None

    def steal(self, order: int, mt: int) -> int | None:
        """v6.15 on: __rmqueue_steal()"""
        for o in range(order, MAX_PAGE_ORDER + 1):
            other = self.fallback_type(o, mt)
            if other is not None:
                page = self.take(self.free[o, other][0], order, other)
                self.emit_extfrag(page, order, o, mt, other)
                return page
        return None

    def rmqueue(self, order: int, mt: int, alloc_flags: int, mode: list[str]) -> int | None:
        """__rmqueue(); ``mode`` remembers what the last page of this refill needed."""
        cma = bool(alloc_flags & ALLOC_CMA)
        if self.rules.cma_balance and cma and self.nr_free(CMA) > self.nr_free() // 2:
            page = self.rmqueue_smallest(order, CMA, mt)
            if page is not None:
                return page

        if self.rules.fallback != Fallback.CLAIM_OR_STEAL:
            while True:
                page = self.rmqueue_smallest(order, mt, mt)
                if page is None and cma:
                    page = self.rmqueue_smallest(order, CMA, mt)
                if page is not None:
                    return page
                if self.rules.fallback == Fallback.STEAL_PAGE:
                    return self.steal_page(order, mt, alloc_flags)
                if not self.steal_then_retry(order, mt, alloc_flags):
                    return None

        if mode[0] == "normal":
            page = self.rmqueue_smallest(order, mt, mt)
            if page is not None:
                return page
        if mode[0] in ("normal", "cma") and cma:
            page = self.rmqueue_smallest(order, CMA, mt)
            if page is not None:
                mode[0] = "cma"
                return page
        if mode[0] != "steal":
            page = self.claim(order, mt, alloc_flags)
            if page is not None:
                mode[0] = "normal"
                return page
        if not alloc_flags & NOFRAGMENT:
            page = self.steal(order, mt)
            if page is not None:
                mode[0] = "steal"
                return page
        return None

    def rmqueue_bulk(self, cpu: int, order: int, n: int, mt: int, alloc_flags: int) -> list[int]:
        """One refill, in the order of the PCP list."""
        mode = ["normal"]
        got: list[int] = []
        while len(got) < n:
            page = self.rmqueue(order, mt, alloc_flags, mode)
            if page is None:
                break
            got.append(page)
        self.count_hold(cpu, "refill", -len(got) * 2**order)
        return got

    def rmqueue_buddy(self, cpu: int, order: int, mt: int, alloc_flags: int) -> int | None:
        """Past the per-CPU lists."""
        page = None
        if alloc_flags & ALLOC_HIGHATOMIC:
            page = self.rmqueue_smallest(order, HIGHATOMIC, mt)
        if page is None:
            page = self.rmqueue(order, mt, alloc_flags, ["normal"])
        last = NON_BLOCK if self.rules.highatomic_last_resort else 0
        if page is None and alloc_flags & (ALLOC_OOM | last):
            page = self.rmqueue_smallest(order, HIGHATOMIC, mt)
        self.count_hold(cpu, "alloc", 0 if page is None else -(2**order))
        reserves = self.rules.highatomic_in_buddy and (
            not self.rules.highatomic_fast_path or alloc_flags & 3 == WMARK_MIN
        )
        if page is not None and alloc_flags & ALLOC_HIGHATOMIC and reserves:
            self.reserve_highatomic_pageblock(page, order)
        return page

    # Free

    def merge_likely(self, pfn: int, order: int) -> bool:
        if order >= MAX_PAGE_ORDER - 1:
            return False
        parent = pfn & ~(2**order)
        return self.is_free_block(parent ^ 2 ** (order + 1), order + 1)

    def is_free_block(self, pfn: int, order: int) -> bool:
        return pfn in self.head and self.head[pfn][0] == order

    def free_one(self, pfn: int, order: int, mt: int, to_tail: bool = False) -> None:
        """__free_one_page()"""
        while order < MAX_PAGE_ORDER:
            buddy = pfn ^ 2**order
            if not self.is_free_block(buddy, order):
                break
            if order >= PAGEBLOCK_ORDER:
                other = self.block_type(buddy)
                if other != mt:
                    both = {mt, other}
                    if self.rules.merge_mergeable and not both <= set(MERGEABLE):
                        break
                    if ISOLATE in both:
                        break
                    if self.rules.merge_retype:
                        self.set_block_types(buddy, order, mt)
            self.del_from_free_list(buddy)
            pfn &= buddy
            order += 1
        self.add_to_free_list(pfn, order, mt, to_tail or self.merge_likely(pfn, order))

    def split_large(self, pfn: int, order: int) -> None:
        """split_large_buddy(): free page block by page block, each with its own type."""
        size = min(order, PAGEBLOCK_ORDER)
        for start in range(pfn, pfn + 2**order, 2**size):
            self.free_one(start, size, self.block_type(start))

    def free_direct(self, cpu: int, pfn: int, order: int) -> None:
        """free_one_page()"""
        before = self.nr_free()
        if self.rules.free_split_blocks:
            self.split_large(pfn, order)
        else:
            self.free_one(pfn, order, self.block_type(pfn))
        self.stat_diff[cpu] += self.nr_free() - before
        self.emit("hold", "free", 2**order)

    # Watermarks

    def mark(self, which: int) -> int:
        return self.watermarks[which] + self.watermark_boost

    def unusable(self, order: int, alloc_flags: int) -> int:
        pages = 2**order - 1
        if not alloc_flags & RESERVES:
            if self.rules.highatomic_free_counter:
                pages += self.nr_free(HIGHATOMIC)
            else:
                pages += self.nr_reserved_highatomic
        if not alloc_flags & ALLOC_CMA:
            pages += self.nr_free(CMA)
        return pages

    def watermark_ok(self, order: int, mark: int, highest: int, alloc_flags: int) -> bool:
        """__zone_watermark_ok()"""
        free = self.nr_free() - self.unusable(order, alloc_flags)
        least = mark
        if alloc_flags & RESERVES:
            if alloc_flags & MIN_RESERVE:
                least -= least // 2
                if alloc_flags & NON_BLOCK:
                    least -= least // 4
            if alloc_flags & ALLOC_OOM:
                least -= least // 2
        if free <= least + self.spec.lowmem_reserve[highest]:
            return False
        if order == 0:
            return True
        types = list(MERGEABLE)
        if alloc_flags & ALLOC_CMA:
            types.append(CMA)
        if alloc_flags & (ALLOC_HIGHATOMIC | ALLOC_OOM):
            types.append(HIGHATOMIC)
        return any(self.free[o, mt] for o in range(order, MAX_PAGE_ORDER + 1) for mt in types)

    def watermark_fast(self, order: int, which: int, highest: int, alloc_flags: int) -> bool:
        """zone_watermark_fast()"""
        mark = self.mark(which)
        if order == 0:
            usable = self.nr_free()
            usable -= min(usable, self.unusable(0, alloc_flags))
            if usable > mark + self.spec.lowmem_reserve[highest]:
                return True
        if self.watermark_ok(order, mark, highest, alloc_flags):
            return True
        if order == 0 and alloc_flags & MIN_RESERVE and self.watermark_boost and which == WMARK_MIN:
            return self.watermark_ok(order, self.watermarks[WMARK_MIN], highest, alloc_flags)
        return False

    # High-atomic reserve and isolation

    def reserve_highatomic_pageblock(self, pfn: int, order: int) -> None:
        if self.rules.highatomic_limit_rounded:
            share = self.managed // 100
            if share < PAGEBLOCK:
                return
            most = -(-share // PAGEBLOCK) * PAGEBLOCK
        else:
            most = self.managed // 100 + PAGEBLOCK
        if self.nr_reserved_highatomic >= most or self.block_type(pfn) not in MERGEABLE:
            return
        if self.rules.fallback == Fallback.STEAL_THEN_RETRY:
            self.nr_reserved_highatomic += PAGEBLOCK
            self.set_block_type(pfn, HIGHATOMIC)
            if span := self.pageblock_range(pfn):
                self.move_freepages(*span, HIGHATOMIC)
        elif order < PAGEBLOCK_ORDER:
            if span := self.pageblock_range(pfn):
                self.move_freepages(*span, HIGHATOMIC)
                self.set_block_type(pfn, HIGHATOMIC)
                self.nr_reserved_highatomic += PAGEBLOCK
        else:
            self.set_block_types(pfn, order, HIGHATOMIC)
            self.nr_reserved_highatomic += 2**order

    def unreserve_highatomic_pageblock(self, mt: int, force: bool) -> bool:
        """Give one block back; whether pages became available."""
        if not force and self.nr_reserved_highatomic <= PAGEBLOCK:
            return False
        old = self.rules.fallback == Fallback.STEAL_THEN_RETRY
        for order in range(MAX_PAGE_ORDER + 1):
            if not self.free[order, HIGHATOMIC]:
                continue
            pfn = self.free[order, HIGHATOMIC][0]
            if self.block_type(pfn) == HIGHATOMIC:
                size = PAGEBLOCK if old else max(PAGEBLOCK, 2**order)
                self.nr_reserved_highatomic -= min(size, self.nr_reserved_highatomic)
            if order < PAGEBLOCK_ORDER or old:
                span = self.pageblock_range(pfn)
                moved = self.move_freepages(*span, mt) if span else 0
                if span or old:
                    self.set_block_type(pfn, mt)
            else:
                self.move_to_free_list(pfn, mt)
                self.set_block_types(pfn, order, mt)
                moved = 1
            if moved:
                return True
        return False

    def isolate_free_page(self, pfn: int) -> bool:
        """__isolate_free_page()"""
        order, mt = self.head[pfn][0], self.block_type(pfn)
        least = self.watermarks[WMARK_MIN] + 2**order
        if mt != ISOLATE and not self.watermark_ok(0, least, 0, ALLOC_CMA):
            return False
        self.del_from_free_list(pfn)
        self.held.update(dict.fromkeys(range(pfn, pfn + 2**order), True))
        if order >= PAGEBLOCK_ORDER - 1:
            for page in range(pfn, pfn + 2**order, PAGEBLOCK):
                if self.block_type(page) not in MERGEABLE:
                    continue
                if self.rules.fallback == Fallback.STEAL_THEN_RETRY:
                    self.set_block_type(page, MOVABLE)
                elif span := self.pageblock_range(page):
                    self.move_freepages(*span, MOVABLE)
                    self.set_block_type(page, MOVABLE)
        return True

    def set_isolate(self, pfn: int) -> None:
        """set_migratetype_isolate() for the page block of pfn."""
        start = pfn - pfn % PAGEBLOCK
        block = pfn // PAGEBLOCK
        self.isolated[block] = self.block_type(pfn)
        self.retype_free_block(start, ISOLATE)

    def unset_isolate(self, pfn: int, mt: int | None) -> None:
        """unset_migratetype_isolate()"""
        start = pfn - pfn % PAGEBLOCK
        below = self.isolated.pop(pfn // PAGEBLOCK)
        mt = below if mt is None else mt
        if self.is_free_block(start, PAGEBLOCK_ORDER):
            buddy = start ^ PAGEBLOCK
            if self.is_free_block(buddy, PAGEBLOCK_ORDER) and self.block_type(buddy) != ISOLATE:
                self.del_from_free_list(start)
                self.set_block_type(start, mt)
                self.free_one(start, PAGEBLOCK_ORDER, mt, to_tail=True)
                return
        self.retype_free_block(start, mt)

    def retype_free_block(self, start: int, mt: int) -> None:
        """Move the free pages of a page block to another type's lists."""
        large = self.free_block_over(start)
        if self.rules.free_split_blocks and large is not None:
            order = self.head[large][0]
            if order > PAGEBLOCK_ORDER:
                self.del_from_free_list(large)
                self.set_block_type(start, mt)
                self.split_large(large, order)
                return
        span = self.pageblock_range(start)
        if span:
            self.move_freepages(*span, mt)
        self.set_block_type(start, mt)

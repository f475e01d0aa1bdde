"""The slow twin: ``mm/page_alloc.c`` one page at a time, in plain Python.

Written from the kernel's behaviour with nothing in mind but being obvious; the
compiled core must agree with it on any sequence of operations.  Lists are
Python lists whose head is element 0.  Same names as the core.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.releases import CommitDrain, Decay, Fallback, Release, Rules, release
from pcpmodel.kernel.zone import GFP, Pagesets, Zone, integer, managed_pages, zonelists

__all__ = ["Memory", "PerCpuPages"]

UNMOVABLE, MOVABLE, RECLAIMABLE, HIGHATOMIC, CMA, ISOLATE = range(6)
MAX_PAGE_ORDER = 10
COSTLY_ORDER = 3
THP_ORDER = 9
PAGEBLOCK_ORDER = 9
PAGEBLOCK = 2**PAGEBLOCK_ORDER
SECTION = 2**15

PREV_FREE_HIGH_ORDER = 1
FREE_HIGH_BATCH = 2

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

BOOSTED_WATERMARK, RECLAIM_ACTIVE, BELOW_HIGH = 1, 2, 4

#: Types that a request of each type falls back to, in order.
FALLBACKS = {
    UNMOVABLE: (RECLAIMABLE, MOVABLE),
    MOVABLE: (RECLAIMABLE, UNMOVABLE),
    RECLAIMABLE: (UNMOVABLE, MOVABLE),
}
MERGEABLE = (UNMOVABLE, MOVABLE, RECLAIMABLE)


def clamp(value: int, lo: int, hi: int) -> int:
    """clamp() as the kernel evaluates it when ``lo > hi``."""
    return hi if value >= hi else max(value, lo)


def order_to_pindex(rules: Rules, migratetype: int, order: int) -> int:
    """PCP list of a block."""
    if order == THP_ORDER:
        return 13 if rules.nr_pcp_lists == 14 and migratetype == MOVABLE else 12
    return 3 * order + migratetype


def pindex_to_order(pindex: int) -> int:
    """Order of the blocks on a PCP list."""
    return pindex // 3 if pindex < 12 else THP_ORDER


class Pcp:
    """The scalars of struct per_cpu_pages and the decisions taken on them."""

    def __init__(self, rules: Rules, batch: int, high: int, high_min: int, high_max: int) -> None:
        self.rules = rules
        self.count = 0
        self.batch = batch
        self.high = high
        self.high_min = high_min
        self.high_max = high_max
        self.flags = 0
        self.alloc_factor = 0
        self.free_factor = 0
        self.free_count = 0
        self.count_min = 0
        self.expire = 0
        self.below_high = False
        self.reclaim_active = False

    def clamp_high(self) -> int:
        self.high = clamp(self.high, self.high_min, self.high_max)
        return self.high

    def alloc_begin(self) -> None:
        if self.rules.free_count:
            self.free_count //= 2
        else:
            self.free_factor //= 2

    def alloc_end(self, order: int) -> None:
        self.count -= 2**order
        if self.rules.count_min:
            self.count_min = min(self.count_min, self.count)

    def nr_pcp_alloc(self, order: int) -> int:
        """Blocks to refill."""
        rules, batch = self.rules, self.batch

        def in_blocks(pages: int) -> int:
            return max(pages // 2**order, 2) if pages > 1 else pages

        if not rules.alloc_scale and not rules.auto_high:
            return in_blocks(batch)

        high = self.clamp_high() if rules.auto_high else self.high_min
        if rules.alloc_scale and high < batch:
            return 1
        n = batch * 2**self.alloc_factor if rules.alloc_scale and order == 0 else batch
        may_grow = rules.auto_high and self.high_min != self.high_max
        inhibited = self.below_high if rules.below_high else self.reclaim_active
        if may_grow and not inhibited:
            self.high = high = min(high + n, self.high_max)
        if rules.alloc_scale and order == 0:
            cap = max(high - self.count - batch, batch)
            if n <= cap and self.alloc_factor < rules.batch_scale_max:
                self.alloc_factor += 1
            n = min(n, cap)
        return in_blocks(n)

    def commit(self, order: int) -> bool:
        """A block joins its list; is this a free_high?"""
        rules = self.rules
        if rules.alloc_scale:
            self.alloc_factor //= 2
        self.count += 2**order
        free_high = False
        if order in (1, 2, 3):
            if rules.free_count:
                half = self.high_min // 2 if rules.free_high_half_high_min else 0
                free_high = self.free_count >= self.batch + half
            else:
                free_high = self.free_factor != 0
            if rules.free_high_two_in_a_row:
                if not self.flags & PREV_FREE_HIGH_ORDER:
                    free_high = False
                self.flags |= PREV_FREE_HIGH_ORDER
            if rules.free_high_batch and self.flags & FREE_HIGH_BATCH and self.count < self.batch:
                free_high = False
        else:
            self.flags &= ~PREV_FREE_HIGH_ORDER
        if rules.free_count and self.free_count < self.batch * 2**rules.batch_scale_max:
            self.free_count += 2**order
        return free_high

    def nr_pcp_high(self, free_high: bool) -> int:
        """Threshold for this free; tunes high."""
        rules, batch = self.rules, self.batch
        if not rules.auto_high:
            if free_high or self.high_min == 0:
                return 0
            if self.reclaim_active:
                return min(4 * batch, self.high_min)
            return self.high_min

        high = self.clamp_high()
        if high == 0:
            return 0
        if free_high:
            self.high = max(high - batch * 2**rules.batch_scale_max, self.high_min)
            return 0
        freed = self.free_count if rules.free_count else batch * 2**self.free_factor
        decrement = max(freed, batch) if rules.high_decrement_batch else freed
        if self.reclaim_active:
            self.high = max(high - decrement, self.high_min)
            return min(4 * batch, self.high)
        if self.high_min == self.high_max:
            return high
        if rules.below_high and self.below_high:
            self.high = max(high - decrement, self.high_min)
            return max(self.count, self.high_min)
        if self.count >= high:
            need = freed + batch
            if self.high < need:
                self.high = clamp(need, self.high_min, self.high_max)
        return high

    def nr_pcp_free(self, high: int, free_high: bool) -> int:
        """Pages to drain."""
        rules, batch = self.rules, self.batch
        if free_high:
            if rules.free_high_limited:
                return min(self.count, batch * 2**rules.batch_scale_max)
            return self.count
        if high < batch:
            return 1
        most = high - batch
        if rules.free_count:
            return clamp(self.free_count, batch, most)
        n = batch * 2**self.free_factor
        fits = n <= most if rules.free_factor_inclusive else n < most
        capped = rules.free_factor_cap and self.free_factor >= rules.batch_scale_max
        if fits and not capped:
            self.free_factor += 1
        return clamp(n, batch, most)

    def decay_pcp_high(self) -> tuple[int, bool]:
        """Pages to drain at a vmstat tick, and whether there was work."""
        rules = self.rules
        if rules.decay == Decay.NONE:
            return 0, False
        work = False
        if self.high > self.high_min:
            if rules.decay == Decay.EIGHTH:
                step = self.high // 8
            elif rules.count_min:
                step = self.high // 5
            else:
                step = self.high - self.high * 4 // 5
            if rules.count_min:
                step = min(step, self.count_min)
            least = self.count - self.batch * 2**rules.batch_scale_max
            self.high = max(least, self.high - step, self.high_min)
            work = self.high > self.high_min
        excess = self.count - self.high
        return max(excess, 0), work or excess > 0

    def scalars(self) -> dict[str, int]:
        return {
            "count": self.count,
            "high": self.high,
            "high_min": self.high_min,
            "high_max": self.high_max,
            "batch": self.batch,
            "flags": self.flags,
            "alloc_factor": self.alloc_factor,
            "free_factor": self.free_factor,
            "free_count": self.free_count,
            "count_min": self.count_min,
            "expire": self.expire,
        }


class PerCpuPages(Pcp):
    """Counts of blocks on lists; twin of `pcpmodel.kernel.pcp.PerCpuPages`."""

    def __init__(
        self,
        release_: str | Release = "v6.7",
        *,
        batch: int = 63,
        high: int | None = None,
        high_min: int | None = None,
        high_max: int | None = None,
        flags: int = 0,
    ) -> None:
        rules = release(release_).rules
        if high_min is None:
            high_min = high_max = high
        if high_max is None or not rules.high_min_max:
            high_max = high_min
        if high is None or not rules.high_min_max:
            high = high_min
        super().__init__(rules, batch, high, high_min, high_max)
        self.flags = flags
        self.lists = [0] * rules.nr_pcp_lists

    def alloc(self, order: int = 0, migratetype: int = MOVABLE) -> int:
        """Returns the blocks of the refill, 0 if none."""
        i = order_to_pindex(self.rules, migratetype, order)
        refill = 0
        self.alloc_begin()
        if not self.lists[i]:
            refill = self.nr_pcp_alloc(order)
            self.lists[i] += refill
            self.count += refill * 2**order
        self.lists[i] -= 1
        self.alloc_end(order)
        return refill

    def free(self, order: int = 0, migratetype: int = MOVABLE) -> list[int]:
        """Returns the pages drained in each hold."""
        i = order_to_pindex(self.rules, migratetype, order)
        self.lists[i] += 1
        free_high = self.commit(order)
        high = self.nr_pcp_high(free_high)
        if self.count < high:
            return []
        n = self.nr_pcp_free(high, free_high)
        holds = []
        while n > 0 and self.count > 0:
            if self.rules.commit_drain == CommitDrain.CHUNKS_WHILE_HIGH and self.count < high:
                break
            chunk = n if self.rules.commit_drain == CommitDrain.WHOLE else min(n, self.batch)
            holds.append(self.free_pcppages_bulk(chunk, i))
            n -= chunk
        return holds

    def decay(self) -> list[int]:
        """Returns the pages drained in each hold of one vmstat tick."""
        excess, _ = self.decay_pcp_high()
        holds = []
        while excess > 0:
            chunk = min(excess, self.batch) if self.rules.decay_chunks else excess
            holds.append(self.free_pcppages_bulk(chunk, 0))
            excess -= chunk
        self.count_min = self.count
        return holds

    def drain_zone_pages(self) -> int:
        """Drain a batch."""
        return self.free_pcppages_bulk(self.batch, 0)

    def drain_pages_zone(self) -> list[int]:
        """Drain everything."""
        holds = []
        while self.count > 0:
            chunk = self.count
            if self.rules.drain_zone_chunks:
                chunk = min(chunk, self.batch * 2**self.rules.batch_scale_max)
            holds.append(self.free_pcppages_bulk(chunk, 0))
        return holds

    def free_pcppages_bulk(self, n: int, start: int) -> int:
        """Drain n pages from list ``start`` on; returns the pages that left."""
        n = min(n, self.count)
        before = self.count
        i = start
        while n > 0:
            if self.lists[i] == 0:
                i = (i + 1) % len(self.lists)
                continue
            size = 2 ** pindex_to_order(i)
            self.lists[i] -= 1
            self.count -= size
            n -= size
        return before - self.count

    def pageset_update(self, high_min: int, high_max: int, batch: int) -> None:
        """New sizes; ``high`` follows at its next use."""
        self.high_min, self.high_max, self.batch = high_min, high_max, batch
        if not self.rules.high_min_max:
            self.high = self.high_max = high_min

    def state(self) -> dict[str, object]:
        """Every scalar and list, for comparison."""
        return {**self.scalars(), "lists": list(self.lists)}


def pcp_allowed(order: int) -> bool:
    """Whether blocks of this order go through the per-CPU lists."""
    return order <= COSTLY_ORDER or order == THP_ORDER


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


class PcpLists(Pcp):
    """struct per_cpu_pages with the blocks on its lists, head first."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules, 1, 0, 0, 0)
        self.lists: list[list[int]] = [[] for _ in range(rules.nr_pcp_lists)]
        #: Migratetype written into the page: of its block when freed, of its list when refilled.
        self.cached: dict[int, int] = {}


class BuddyZone:
    """One struct zone."""

    def __init__(self, memory: Memory, spec: Zone, cpus: int) -> None:
        self.memory = memory
        self.rules = memory.release.rules
        self.spec = spec
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
        self.pcp = [PcpLists(self.rules) for _ in range(cpus)]
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
        self.memory.emit("hold", reason, abs(freed))

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

    def rmqueue_smallest(self, order: int, mt: int) -> int | None:
        """__rmqueue_smallest()"""
        for o in range(order, MAX_PAGE_ORDER + 1):
            if self.free[o, mt]:
                pfn = self.take(self.free[o, mt][0], order, mt)
                self.memory.emit(
                    "zone_locked", pfn, order, mt, pcp_allowed(order) and mt in MERGEABLE
                )
                return pfn
        return None

    def fallback_type(self, order: int, mt: int) -> int | None:
        """First fallback type with a block of this order."""
        for other in FALLBACKS[mt]:
            if self.free[order, other]:
                return other
        return None

    def boost_watermark(self, alloc_flags: int) -> None:
        factor = self.memory.watermark_boost_factor
        if factor == 0 or self.managed < 4 * PAGEBLOCK:
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
        self.memory.emit("extfrag", pfn, order, fallback_order, mt, other, owns)

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
        return self.rmqueue_smallest(order, mt)

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
        if cma and self.nr_free(CMA) > self.nr_free() // 2:
            page = self.rmqueue_smallest(order, CMA)
            if page is not None:
                return page

        if self.rules.fallback != Fallback.CLAIM_OR_STEAL:
            while True:
                page = self.rmqueue_smallest(order, mt)
                if page is None and cma:
                    page = self.rmqueue_smallest(order, CMA)
                if page is not None:
                    return page
                if self.rules.fallback == Fallback.STEAL_PAGE:
                    return self.steal_page(order, mt, alloc_flags)
                if not self.steal_then_retry(order, mt, alloc_flags):
                    return None

        if mode[0] == "normal":
            page = self.rmqueue_smallest(order, mt)
            if page is not None:
                return page
        if mode[0] in ("normal", "cma") and cma:
            page = self.rmqueue_smallest(order, CMA)
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
            page = self.rmqueue_smallest(order, HIGHATOMIC)
        if page is None:
            page = self.rmqueue(order, mt, alloc_flags, ["normal"])
        if page is None and alloc_flags & (ALLOC_OOM | NON_BLOCK):
            page = self.rmqueue_smallest(order, HIGHATOMIC)
        self.count_hold(cpu, "alloc", 0 if page is None else -(2**order))
        if page is not None and alloc_flags & ALLOC_HIGHATOMIC and self.rules.highatomic_in_buddy:
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
                    if mt not in MERGEABLE or other not in MERGEABLE:
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
        self.memory.emit("hold", "free", 2**order)

    def free_pcppages_bulk(self, cpu: int, n: int, start: int) -> None:
        """Drain n pages of a CPU's lists, from list ``start`` on."""
        pcp = self.pcp[cpu]
        n = min(n, pcp.count)
        i = start
        before, free_before = pcp.count, self.nr_free()
        while n > 0:
            if not pcp.lists[i]:
                i = (i + 1) % len(pcp.lists)
                continue
            order = pindex_to_order(i)
            pfn = pcp.lists[i].pop()
            pcp.count -= 2**order
            n -= 2**order
            mt = pcp.cached.pop(pfn)
            if self.rules.drain_block_type or self.isolated:
                mt = self.block_type(pfn)
            self.free_one(pfn, order, mt)
            self.memory.emit("pcpu_drain", pfn, order, mt)
        self.stat_diff[cpu] += self.nr_free() - free_before
        self.memory.emit("hold", "drain", before - pcp.count)

    def commit(
        self, cpu: int, pfn: int, order: int, list_type: int, block_type: int, nolock: bool
    ) -> None:
        """free_unref_page_commit(), free_frozen_page_commit()"""
        pcp = self.pcp_of(cpu)
        i = order_to_pindex(self.rules, list_type, order)
        pcp.lists[i].insert(0, pfn)
        pcp.cached[pfn] = block_type
        free_high = pcp.commit(order)
        if nolock:
            return
        high = pcp.nr_pcp_high(free_high)
        if pcp.count < high:
            return
        n = pcp.nr_pcp_free(high, free_high)
        if self.rules.commit_drain == CommitDrain.WHOLE:
            self.free_pcppages_bulk(cpu, n, i)
        else:
            if n == 0 and self.rules.commit_drain == CommitDrain.CHUNKS_WHILE_HIGH:
                return
            while n > 0 and pcp.count > 0:
                if self.rules.commit_drain == CommitDrain.CHUNKS_WHILE_HIGH and pcp.count < high:
                    break
                self.free_pcppages_bulk(cpu, min(n, pcp.batch), i)
                n -= pcp.batch
        if self.flags & BELOW_HIGH and self.watermark_ok(0, self.mark(WMARK_HIGH), 3, 0):
            self.flags &= ~BELOW_HIGH

    def pcp_of(self, cpu: int) -> PcpLists:
        """A CPU's lists, which see the zone's flags."""
        pcp = self.pcp[cpu]
        pcp.below_high = bool(self.flags & BELOW_HIGH)
        pcp.reclaim_active = bool(self.flags & RECLAIM_ACTIVE)
        return pcp

    # PCP allocation

    def rmqueue_pcplist_locked(self, cpu: int, order: int, mt: int, alloc_flags: int) -> int | None:
        """__rmqueue_pcplist()"""
        pcp = self.pcp_of(cpu)
        i = order_to_pindex(self.rules, mt, order)
        if not pcp.lists[i]:
            n = pcp.nr_pcp_alloc(order)
            if self.rules.highatomic_in_buddy and alloc_flags & ALLOC_HIGHATOMIC:
                return None
            for pfn in self.rmqueue_bulk(cpu, order, n, mt, alloc_flags):
                pcp.lists[i].append(pfn)
                pcp.count += 2**order
                # From a CMA area the page remembers that.
                pcp.cached[pfn] = CMA if self.block_type(pfn) == CMA else mt
            if not pcp.lists[i]:
                return None
        pfn = pcp.lists[i].pop(0)
        del pcp.cached[pfn]
        pcp.alloc_end(order)
        return pfn

    def rmqueue_pcplist(self, cpu: int, order: int, mt: int, alloc_flags: int) -> int | None:
        self.pcp[cpu].alloc_begin()
        return self.rmqueue_pcplist_locked(cpu, order, mt, alloc_flags)

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


class Memory(Pagesets):
    """Zones and CPUs; twin of `pcpmodel.kernel.memory.Memory`."""

    def __init__(
        self,
        release_: str | Release,
        zones: Sequence[Zone],
        cpus: int = 1,
        *,
        cpu_node: Sequence[int] | None = None,
        online: Sequence[int] | None = None,
        data_cache_bytes: int = 0,
        watermark_boost_factor: int = 15000,
        free: bool = True,
    ) -> None:
        self.release = release(release_)
        self.zones = tuple(zones)
        self.cpus = cpus
        self.cpu_node = (0,) * cpus if cpu_node is None else tuple(cpu_node)
        self.nodes = 1 + max((*(z.node for z in zones), *self.cpu_node))
        self.watermark_boost_factor = watermark_boost_factor
        self.events: list[tuple[Any, ...]] | None = None
        self.zone = [BuddyZone(self, spec, cpus) for spec in zones]
        self.zonelist = zonelists(zones, self.nodes)
        self.kswapd_running = [False] * self.nodes
        for zone in self.zone:
            for pfn, n, _ in runs(
                (p, None) for p in range(zone.start, zone.end) if p not in zone.absent
            ):
                if free:
                    for start, order in aligned_blocks(pfn, n):
                        zone.free_one(start, order, MOVABLE, to_tail=True)
                else:
                    zone.held.update(dict.fromkeys(range(pfn, pfn + n), True))
        self._setup_pagesets(online, data_cache_bytes)

    # What Pagesets needs

    def _pageset_update(self, z: int, batch: int, high_min: int, high_max: int) -> None:
        for pcp in self.zone[z].pcp:
            pcp.batch, pcp.high_min, pcp.high_max = batch, high_min, high_max
            if not self.release.rules.high_min_max:
                pcp.high = high_min

    def _free_high_batch(self, cpu: int, z: int, flag: bool) -> None:
        pcp = self.zone[z].pcp[cpu]
        pcp.flags = pcp.flags & ~FREE_HIGH_BATCH | (FREE_HIGH_BATCH if flag else 0)

    def _watermark_boost(self, z: int) -> int:
        return self.zone[z].watermark_boost

    def _set_watermarks(self, z: int, *marks: int) -> None:
        self.zone[z].watermarks = list(marks)
        self.zone[z].watermark_boost = 0

    def emit(self, *event: object) -> None:
        if self.events is not None:
            self.events.append(event)

    def record_events(self, on: bool = True) -> None:
        """Start or stop to note events."""
        self.events = [] if on else None

    def take_events(self) -> list[tuple[Any, ...]]:
        """Events since the last call."""
        events, self.events = self.events or [], None if self.events is None else []
        return events

    def set_flags(self, zone: int, flags: int) -> None:
        """zone->flags: BOOSTED_WATERMARK 1, RECLAIM_ACTIVE 2, BELOW_HIGH 4."""
        self.zone[self._zone(zone)].flags = integer("flags", flags, 0, 7)

    def set_watermark_boost(self, zone: int, pages: int) -> None:
        """zone->watermark_boost, as kswapd lowers it."""
        self.zone[self._zone(zone)].watermark_boost = integer("pages", pages, 0, 2**31 - 1)

    def set_kswapd_running(self, node: int, running: bool) -> None:
        """Whether kswapd of the node is at work."""
        self.kswapd_running[integer("node", node, 0, self.nodes - 1)] = bool(running)

    # Allocation

    def alloc(
        self,
        cpu: int = 0,
        order: int = 0,
        migratetype: int = MOVABLE,
        *,
        gfp: str = "kernel",
        highest: int | None = None,
    ) -> int | None:
        """One request, walking the zones; the pfn, or None."""
        integer("cpu", cpu, 0, self.cpus - 1)
        integer("order", order, 0, MAX_PAGE_ORDER)
        integer("migratetype", migratetype, 0, 2)
        if gfp not in GFP:
            raise unknown_name("gfp", gfp, GFP)
        if highest is None:
            highest = 3 if migratetype == MOVABLE else 2
        integer("highest", highest, 0, 3)
        zonelist = [
            self.zone[z]
            for z in self.zonelist[self.cpu_node[cpu]]
            if self.zones[z].index <= highest
        ]
        if not zonelist:
            return None
        request = (cpu, zonelist, order, migratetype, highest)
        common = ALLOC_KSWAPD | (ALLOC_CMA if migratetype == MOVABLE else 0)
        flags = WMARK_LOW | common
        preferred = zonelist[0].spec
        below = (s.node == preferred.node and s.name == "DMA32" for s in self.zones)
        if preferred.name == "Normal" and (self.nodes == 1 or any(below)):
            flags |= NOFRAGMENT
        page = self.get_page_from_freelist(*request, flags)
        if page is None:
            flags = WMARK_MIN | common
            if gfp == "atomic":
                flags |= MIN_RESERVE
            if gfp != "kernel":
                flags |= NON_BLOCK
                if order and (gfp == "atomic" or not self.release.rules.highatomic_needs_gfp_high):
                    flags |= ALLOC_HIGHATOMIC
            page = self.get_page_from_freelist(*request, flags)
        return page

    def get_page_from_freelist(
        self,
        cpu: int,
        zonelist: list[BuddyZone],
        order: int,
        mt: int,
        highest: int,
        flags: int,
    ) -> int | None:
        rules = self.release.rules
        skip_busy = rules.skip_busy_kswapd and self.nodes > 1
        while True:
            restart = skipped = False
            no_fallback = flags & NOFRAGMENT
            for zone in zonelist:
                if no_fallback and zone.spec.node != zonelist[0].spec.node:
                    flags &= ~NOFRAGMENT
                    restart = True
                    break
                if skip_busy and self.kswapd_running[zone.spec.node]:
                    skipped = True
                    continue
                take = False
                if rules.below_high and not zone.flags & BELOW_HIGH:
                    take = zone.watermark_fast(order, WMARK_HIGH, highest, flags)
                    if not take:
                        zone.flags |= BELOW_HIGH
                if not take:
                    take = zone.watermark_fast(order, flags & 3, highest, flags) or bool(
                        flags & NO_WATERMARKS
                    )
                if not take:
                    continue
                page = self.rmqueue(cpu, zone, order, mt, flags)
                if page is not None:
                    if flags & ALLOC_HIGHATOMIC and not rules.highatomic_in_buddy:
                        zone.reserve_highatomic_pageblock(page, order)
                    return page
            if restart:
                continue
            if skipped:
                skip_busy = False
            elif no_fallback:
                flags &= ~NOFRAGMENT
            else:
                return None

    def rmqueue(self, cpu: int, zone: BuddyZone, order: int, mt: int, flags: int) -> int | None:
        page = None
        if pcp_allowed(order):
            page = zone.rmqueue_pcplist(cpu, order, mt, flags)
        if page is None:
            page = zone.rmqueue_buddy(cpu, order, mt, flags)
        if flags & ALLOC_KSWAPD:
            zone.flags &= ~BOOSTED_WATERMARK
        return self.hand_out(zone, page, order, mt)

    def hand_out(self, zone: BuddyZone, page: int | None, order: int, mt: int) -> int | None:
        if page is not None:
            for pfn in range(page, page + 2**order):
                zone.held[pfn] = mt == MOVABLE
        return page

    def alloc_from(
        self,
        zone: int,
        cpu: int = 0,
        order: int = 0,
        migratetype: int = MOVABLE,
        *,
        direct: bool = False,
        alloc_flags: int = ALLOC_KSWAPD,
    ) -> int | None:
        """One request served by one zone: no watermarks; ``direct``: past the per-CPU lists."""
        integer("cpu", cpu, 0, self.cpus - 1)
        integer("order", order, 0, MAX_PAGE_ORDER)
        integer("migratetype", migratetype, 0, 2)
        integer("alloc_flags", alloc_flags, 0, ALLOC_FLAGS)
        where = self.zone[self._zone(zone)]
        if not direct:
            return self.rmqueue(cpu, where, order, migratetype, alloc_flags)
        page = where.rmqueue_buddy(cpu, order, migratetype, alloc_flags)
        return self.hand_out(where, page, order, migratetype)

    def alloc_pages_bulk(self, cpu: int, n: int, migratetype: int = MOVABLE) -> list[int]:
        """Up to n pages of order 0 in one go."""
        integer("cpu", cpu, 0, self.cpus - 1)
        integer("n", n, 0, 2**31 - 1)
        integer("migratetype", migratetype, 0, 2)
        highest = 3 if migratetype == MOVABLE else 2
        flags = WMARK_LOW | ALLOC_KSWAPD | (ALLOC_CMA if migratetype == MOVABLE else 0)
        zonelist = [z for z in self.zonelist[self.cpu_node[cpu]] if self.zones[z].index <= highest]
        got: list[int] = []
        if n > 1:
            for z in zonelist:
                zone = self.zone[z]
                if zone.spec.node != self.zones[zonelist[0]].node:
                    break
                mark = zone.mark(WMARK_LOW) + n
                usable = zone.nr_free()
                usable -= min(usable, zone.unusable(0, flags))
                reserve = zone.spec.lowmem_reserve[self.zones[zonelist[0]].index]
                if usable > mark + reserve:
                    while len(got) < n:
                        page = zone.rmqueue_pcplist_locked(cpu, 0, migratetype, flags)
                        if page is None:
                            break
                        self.hand_out(zone, page, 0, migratetype)
                        got.append(page)
                    break
        if not got and n:
            page = self.alloc(cpu, 0, migratetype)
            if page is not None:
                got.append(page)
        return got

    # Free

    def zone_of(self, pfn: int, order: int = 0) -> BuddyZone:
        """The zone of a block in use; InputError if it is not."""
        integer("order", order, 0, MAX_PAGE_ORDER)
        integer("pfn", pfn, 0, 2**63 - 1)
        if pfn % 2**order:
            raise InputError(f"pfn={pfn} is not aligned to order {order}")
        for zone in self.zone:
            if all(p in zone.held for p in range(pfn, pfn + 2**order)):
                return zone
        raise InputError(f"pfn={pfn}, order={order}: not all of these pages are in use")

    def release_pages(self, pfn: int, order: int) -> BuddyZone:
        zone = self.zone_of(pfn, order)
        for p in range(pfn, pfn + 2**order):
            del zone.held[p]
        return zone

    def free(self, cpu: int, pfn: int, order: int = 0, *, nolock: bool = False) -> None:
        """Free a block."""
        integer("cpu", cpu, 0, self.cpus - 1)
        zone = self.release_pages(pfn, order)
        self.free_prepared(cpu, zone, pfn, order, nolock)

    def free_prepared(
        self, cpu: int, zone: BuddyZone, pfn: int, order: int, nolock: bool = False
    ) -> None:
        mt = zone.block_type(pfn)
        if not pcp_allowed(order) or mt == ISOLATE:
            zone.free_direct(cpu, pfn, order)
        else:
            zone.commit(cpu, pfn, order, mt if mt in MERGEABLE else MOVABLE, mt, nolock)

    def free_direct(self, cpu: int, pfn: int, order: int = 0) -> None:
        """Free a block past the per-CPU lists, as when their lock is taken."""
        integer("cpu", cpu, 0, self.cpus - 1)
        self.release_pages(pfn, order).free_direct(cpu, pfn, order)

    def free_batch(self, cpu: int, blocks: Sequence[tuple[int, int]]) -> None:
        """Free (pfn, order) in this order: free_unref_page_list(), free_unref_folios()."""
        integer("cpu", cpu, 0, self.cpus - 1)
        folios = self.release.rules.free_folios
        if not folios and any(order for _, order in blocks):
            raise InputError("free_unref_page_list() takes order 0 only")
        for pfn, order in blocks:
            self.zone_of(pfn, order)
        pages = [p for pfn, order in blocks for p in range(pfn, pfn + 2**order)]
        if len(set(pages)) < len(pages):
            raise InputError("a page occurs twice")
        second = []
        for pfn, order in blocks:
            zone = self.release_pages(pfn, order)
            mt = zone.block_type(pfn)
            if not pcp_allowed(order) or (mt == ISOLATE and not folios):
                zone.free_direct(cpu, pfn, order)
            else:
                second.append((zone, pfn, order, mt))
        for zone, pfn, order, seen in second:
            mt = zone.block_type(pfn) if folios else seen
            if mt == ISOLATE:
                zone.free_direct(cpu, pfn, order)
            else:
                zone.commit(cpu, pfn, order, mt if mt in MERGEABLE else MOVABLE, mt, False)

    def free_pages_bulk(self, cpu: int, pfns: Sequence[int]) -> None:
        """Free pages of order 0 as vfree() does: v7.2 merges runs of the sequence first."""
        integer("cpu", cpu, 0, self.cpus - 1)
        zones = [self.zone_of(pfn) for pfn in pfns]
        if len(set(pfns)) < len(pfns):
            raise InputError("a page occurs twice")
        if not self.release.rules.free_coalesce:
            for pfn in pfns:
                self.free(cpu, pfn)
            return
        for pfn in pfns:
            self.release_pages(pfn, 0)
        i = 0
        while i < len(pfns):
            n = 1
            while (
                i + n < len(pfns)
                and pfns[i + n] == pfns[i] + n
                and (pfns[i] + n) % SECTION
                and zones[i + n] is zones[i]
            ):
                n += 1
            for pfn, order in aligned_blocks(pfns[i], n):
                self.free_prepared(cpu, zones[i], pfn, order)
            i += n

    def free_contig_range(self, cpu: int, pfn: int, n: int) -> None:
        """Free n pages from pfn on."""
        integer("pfn", pfn, 0, 2**62)
        integer("n", n, 0, 2**31 - 1)
        self.free_pages_bulk(cpu, range(pfn, pfn + n))

    # Drains and the vmstat worker

    def drain_pages_zone(self, cpu: int, zone: int) -> None:
        """Empty a CPU's lists of a zone."""
        integer("cpu", cpu, 0, self.cpus - 1)
        where = self.zone[self._zone(zone)]
        pcp = where.pcp[cpu]
        while pcp.count > 0:
            n = pcp.count
            if self.release.rules.drain_zone_chunks:
                n = min(n, pcp.batch * 2**self.release.rules.batch_scale_max)
            where.free_pcppages_bulk(cpu, n, 0)

    def drain_zone_pages(self, cpu: int, zone: int) -> None:
        """Drain a batch."""
        integer("cpu", cpu, 0, self.cpus - 1)
        where = self.zone[self._zone(zone)]
        n = min(where.pcp[cpu].count, where.pcp[cpu].batch)
        if n > 0:
            where.free_pcppages_bulk(cpu, n, 0)

    def decay_pcp_high(self, cpu: int, zone: int) -> bool:
        """Lower high and drain the excess; whether there was work."""
        integer("cpu", cpu, 0, self.cpus - 1)
        where = self.zone[self._zone(zone)]
        pcp = where.pcp[cpu]
        excess, work = pcp.decay_pcp_high()
        while excess > 0:
            chunk = min(excess, pcp.batch) if self.release.rules.decay_chunks else excess
            where.free_pcppages_bulk(cpu, chunk, 0)
            excess -= chunk
        if self.release.rules.decay != Decay.NONE:
            pcp.count_min = pcp.count
        return work

    def refresh_cpu_vm_stats(self, cpu: int) -> bool:
        """The vmstat worker's tick on a CPU; whether it has reason to come back."""
        integer("cpu", cpu, 0, self.cpus - 1)
        rules = self.release.rules
        changed = False
        for z, zone in enumerate(self.zone):
            pcp = zone.pcp[cpu]
            if zone.stat_diff[cpu]:
                zone.stat_diff[cpu] = 0
                changed = True
                pcp.expire = 3
            if rules.decay != Decay.NONE and self.decay_pcp_high(cpu, z):
                changed = True
            if pcp.expire == 0 or pcp.count == 0:
                continue
            if zone.spec.node == self.cpu_node[cpu]:
                pcp.expire = 0
                continue
            pcp.expire -= 1
            if pcp.expire:
                changed = changed or bool(rules.remote_expire_is_change)
                continue
            self.drain_zone_pages(cpu, z)
            changed = True
        return changed

    # Reserve and isolation

    def unreserve_highatomic_pageblock(
        self, cpu: int = 0, migratetype: int = MOVABLE, *, force: bool = False
    ) -> bool:
        """Give a high-atomic block back, in the order of the CPU's zones."""
        integer("cpu", cpu, 0, self.cpus - 1)
        integer("migratetype", migratetype, 0, 2)
        return any(
            self.zone[z].unreserve_highatomic_pageblock(migratetype, force)
            for z in self.zonelist[self.cpu_node[cpu]]
        )

    def isolate_free_page(self, pfn: int) -> bool:
        """Take a free block off the lists without an event, as compaction does."""
        zone = self.zone_at(pfn)
        if pfn not in zone.head:
            raise InputError(f"no free block begins at pfn={pfn}")
        return zone.isolate_free_page(pfn)

    def set_isolate(self, pfn: int) -> None:
        """Isolate the page block of a page."""
        zone = self.zone_at(pfn)
        if zone.block_type(pfn) == ISOLATE:
            raise InputError(f"the page block of pfn={pfn} is isolated already")
        if self.release.rules.free_split_blocks and zone.pageblock_range(pfn) is None:
            raise InputError(f"the page block of pfn={pfn} sticks out of its zone (EBUSY)")
        zone.set_isolate(pfn)

    def unset_isolate(self, pfn: int, migratetype: int | None = None) -> None:
        """End the isolation; the block gets its type back, or another one."""
        zone = self.zone_at(pfn)
        if migratetype is not None:
            integer("migratetype", migratetype, 0, 4)
        if pfn // PAGEBLOCK not in zone.isolated:
            raise InputError(f"the page block of pfn={pfn} is not isolated")
        zone.unset_isolate(pfn, migratetype)

    def zone_at(self, pfn: int) -> BuddyZone:
        for zone in self.zone:
            if zone.start <= integer("pfn", pfn, 0, 2**63 - 1) < zone.end:
                return zone
        raise InputError(f"pfn={pfn} is in no zone")

    # State

    def state(self) -> list[dict[str, Any]]:
        """Everything, zone by zone."""
        return [
            {
                "free": {k: list(v) for k, v in zone.free.items() if v},
                "blocks": list(zone.blocks),
                "isolated": sorted(zone.isolated.items()),
                "held": runs(sorted(zone.held.items())),
                "nr_free": zone.nr_free(),
                "nr_free_cma": zone.nr_free(CMA),
                "nr_free_highatomic": zone.nr_free(HIGHATOMIC),
                "nr_reserved_highatomic": zone.nr_reserved_highatomic,
                "watermark_boost": zone.watermark_boost,
                "flags": zone.flags,
                "stat_diff": list(zone.stat_diff),
                "pcp": [
                    {
                        **pcp.scalars(),
                        "lists": {i: list(pfns) for i, pfns in enumerate(pcp.lists) if pfns},
                        "cached": {
                            i: [pcp.cached[pfn] for pfn in pfns]
                            for i, pfns in enumerate(pcp.lists)
                            if pfns
                        },
                    }
                    for pcp in zone.pcp
                ],
            }
            for zone in self.zone
        ]

    def load(self, zone: int, state: Mapping[str, Any]) -> None:
        """Put a zone into a state, as `state` returns it for one zone.

        Only ``free`` is needed.  Without ``held`` every other page is in use, and looks
        movable where its page block is MOVABLE.
        """
        old = self.zone[self._zone(zone)]
        new = BuddyZone(self, old.spec, self.cpus)
        new.watermarks = old.watermarks
        new.blocks = list(state.get("blocks", new.blocks))
        new.isolated = dict(state.get("isolated", ()))
        for (order, mt), pfns in state["free"].items():
            for pfn in pfns:
                new.add_to_free_list(pfn, order, mt, tail=True)
        for cpu, saved in enumerate(state.get("pcp", ())):
            pcp = new.pcp[cpu]
            for i, pfns in saved.get("lists", {}).items():
                pcp.lists[i] = list(pfns)
                pcp.count += len(pfns) * 2 ** pindex_to_order(i)
                types = saved.get("cached", {}).get(i) or [new.block_type(pfn) for pfn in pfns]
                pcp.cached.update(zip(pfns, types, strict=True))
        for cpu, pcp in enumerate(new.pcp):
            saved = state["pcp"][cpu] if "pcp" in state else {}
            for name in pcp.scalars():
                if name != "count":
                    setattr(pcp, name, saved.get(name, getattr(old.pcp[cpu], name)))
        if "held" in state:
            for pfn, n, movable in state["held"]:
                new.held.update(dict.fromkeys(range(pfn, pfn + n), movable))
        else:
            listed = {p for pfn, (o, _) in new.head.items() for p in range(pfn, pfn + 2**o)}
            for pcp in new.pcp:
                for i, pfns in enumerate(pcp.lists):
                    size = 2 ** pindex_to_order(i)
                    listed.update(p for pfn in pfns for p in range(pfn, pfn + size))
            for pfn in range(new.start, new.end):
                if pfn not in listed and pfn not in new.absent:
                    new.held[pfn] = new.block_type(pfn) == MOVABLE
        for name in ("nr_reserved_highatomic", "watermark_boost", "flags"):
            setattr(new, name, state.get(name, 0))
        new.stat_diff = list(state.get("stat_diff", new.stat_diff))
        self.zone[zone] = new

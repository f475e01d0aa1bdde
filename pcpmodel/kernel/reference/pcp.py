"""struct per_cpu_pages, its decisions and its lists: twin of `pcp.pxd` and `pcp.pyx`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable

from pcpmodel.kernel.reference.buddy import ALLOC_HIGHATOMIC, WMARK_HIGH, BuddyZone
from pcpmodel.kernel.reference.lists import drain_sequence, order_to_pindex, pindex_to_order
from pcpmodel.kernel.reference.pages import BELOW_HIGH, CMA, MOVABLE, RECLAIM_ACTIVE
from pcpmodel.kernel.releases import CommitDrain, Decay, Release, Rules, release
from pcpmodel.kernel.zone import Zone

PREV_FREE_HIGH_ORDER = 1
FREE_HIGH_BATCH = 2


def clamp(value: int, lo: int, hi: int) -> int:
    """clamp() as the kernel evaluates it when ``lo > hi``."""
    return hi if value >= hi else max(value, lo)


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
                free_high = self.free_count >= (rules.free_high_pages or self.batch + half)
            else:
                free_high = rules.free_high and self.free_factor != 0
            if rules.free_high_two_in_a_row:
                if not self.flags & PREV_FREE_HIGH_ORDER:
                    free_high = False
                self.flags |= PREV_FREE_HIGH_ORDER
            if rules.free_high_batch and self.flags & FREE_HIGH_BATCH and self.count < self.batch:
                free_high = False
        else:
            self.flags &= ~PREV_FREE_HIGH_ORDER
        if rules.free_count and self.free_count < self.batch * 2**rules.batch_scale_max:
            self.free_count = (self.free_count + 2**order + 2**15) % 2**16 - 2**15  # a short
        return free_high

    def nr_pcp_high(self, free_high: bool) -> int:
        """Threshold for this free; tunes high."""
        rules, batch = self.rules, self.batch
        if not rules.auto_high:
            if free_high or self.high_min == 0:
                return 0
            if rules.reclaim_limit and self.reclaim_active:
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
        if rules.reclaim_limit and self.reclaim_active:
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
        if not rules.scaled_drains:
            return batch
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
        for i in drain_sequence(self.rules, self.lists, start, n):
            self.count -= 2 ** pindex_to_order(i)
        return before - self.count

    def pageset_update(self, high_min: int, high_max: int, batch: int) -> None:
        """New sizes; ``high`` follows at its next use."""
        self.high_min, self.high_max, self.batch = high_min, high_max, batch
        if not self.rules.high_min_max:
            self.high = self.high_max = high_min

    def state(self) -> dict[str, object]:
        """Every scalar and list, for comparison."""
        return {**self.scalars(), "lists": list(self.lists)}


class PcpLists(Pcp):
    """struct per_cpu_pages with the blocks on its lists, head first."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules, 1, 0, 0, 0)
        self.lists: list[list[int]] = [[] for _ in range(rules.nr_pcp_lists)]
        #: Migratetype written into the page: of its block when freed, of its list when refilled.
        self.cached: dict[int, int] = {}


class PcpZone(BuddyZone):
    """One struct zone, with every CPU's lists."""

    def __init__(
        self,
        rules: Rules,
        spec: Zone,
        cpus: int,
        watermark_boost_factor: int,
        emit: Callable[..., None],
    ) -> None:
        super().__init__(rules, spec, cpus, watermark_boost_factor, emit)
        self.pcp = [PcpLists(rules) for _ in range(cpus)]

    def free_pcppages_bulk(self, cpu: int, n: int, start: int) -> None:
        """Drain n pages of a CPU's lists, from list ``start`` on."""
        pcp = self.pcp[cpu]
        n = min(n, pcp.count)
        before, free_before = pcp.count, self.nr_free()
        for i in drain_sequence(self.rules, [len(pages) for pages in pcp.lists], start, n):
            order = pindex_to_order(i)
            pfn = pcp.lists[i].pop()
            pcp.count -= 2**order
            mt = pcp.cached.pop(pfn)
            if self.rules.drain_block_type or self.isolated:
                mt = self.block_type(pfn)
            self.free_one(pfn, order, mt)
            self.emit("pcpu_drain", pfn, order, mt)
        self.stat_diff[cpu] += self.nr_free() - free_before
        self.emit("hold", "drain", before - pcp.count)

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

"""Every way to allocate and to free: twin of `page_alloc.pyx` and `memory.pyx` in one.

In Python there is no border between the two.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pcpmodel.errors import InputError, integer, unknown_name
from pcpmodel.kernel.reference.buddy import (
    ALLOC_CMA,
    ALLOC_FLAGS,
    ALLOC_HIGHATOMIC,
    ALLOC_KSWAPD,
    MIN_RESERVE,
    NO_WATERMARKS,
    NOFRAGMENT,
    NON_BLOCK,
    WMARK_HIGH,
    WMARK_LOW,
    WMARK_MIN,
)
from pcpmodel.kernel.reference.lists import pcp_allowed
from pcpmodel.kernel.reference.pages import (
    BELOW_HIGH,
    BOOSTED_WATERMARK,
    ISOLATE,
    MAX_PAGE_ORDER,
    MERGEABLE,
    MOVABLE,
    PAGEBLOCK,
    SECTION,
    aligned_blocks,
    runs,
)
from pcpmodel.kernel.reference.pcp import FREE_HIGH_BATCH, PcpZone
from pcpmodel.kernel.reference.zone_state import fill_zone, zone_state
from pcpmodel.kernel.releases import Decay, Release, release
from pcpmodel.kernel.zone import GFP, Pagesets, Zone, zonelists


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
        self.zone = [self._new_zone(spec) for spec in zones]
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

    def _new_zone(self, spec: Zone) -> PcpZone:
        return PcpZone(self.release.rules, spec, self.cpus, self.watermark_boost_factor, self.emit)

    # What Pagesets needs

    def _pageset_update(self, z: int, batch: int, high_min: int, high_max: int) -> None:
        for pcp in self.zone[z].pcp:
            pcp.batch, pcp.high_min, pcp.high_max = batch, high_min, high_max
            if not self.release.rules.high_min_max:
                pcp.high = high_min

    def _cpu_vm_stats_fold(self, cpu: int) -> None:
        for zone in self.zone:
            zone.stat_diff[cpu] = 0

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
        rules = self.release.rules
        privileged = gfp == "atomic" or (gfp != "kernel" and not rules.highatomic_needs_gfp_high)
        highatomic = ALLOC_HIGHATOMIC if order and privileged else 0
        flags = WMARK_LOW | common
        if rules.highatomic_fast_path:
            flags |= highatomic
        preferred = zonelist[0].spec
        below = (s.node == preferred.node and s.name == "DMA32" for s in self.zones)
        if (
            rules.alloc_nofragment
            and preferred.name == "Normal"
            and (self.nodes == 1 or any(below))
        ):
            flags |= NOFRAGMENT
        page = self.get_page_from_freelist(*request, flags)
        if page is None:
            flags = WMARK_MIN | common | highatomic
            if gfp == "atomic":
                flags |= MIN_RESERVE
            if gfp == "atomic" or (gfp == "nowait" and rules.alloc_non_block):
                flags |= NON_BLOCK
            page = self.get_page_from_freelist(*request, flags)
        return page

    def get_page_from_freelist(
        self,
        cpu: int,
        zonelist: list[PcpZone],
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

    def rmqueue(self, cpu: int, zone: PcpZone, order: int, mt: int, flags: int) -> int | None:
        rules = self.release.rules
        page = None
        if pcp_allowed(rules, order):
            page = zone.rmqueue_pcplist(cpu, order, mt, flags)
        if page is None and (rules.pcp_lock or not pcp_allowed(rules, order)):
            page = zone.rmqueue_buddy(cpu, order, mt, flags)
            if page is None and not rules.pcp_lock:  # up to v5.19: goto failed
                return None
        if flags & ALLOC_KSWAPD or not rules.boost_needs_kswapd:
            zone.flags &= ~BOOSTED_WATERMARK
        return self.hand_out(zone, page, order, mt)

    def hand_out(self, zone: PcpZone, page: int | None, order: int, mt: int) -> int | None:
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
        flags = WMARK_LOW | (ALLOC_CMA if migratetype == MOVABLE else 0)
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

    def zone_of(self, pfn: int, order: int = 0) -> PcpZone:
        """The zone of a block in use; InputError if it is not."""
        integer("order", order, 0, MAX_PAGE_ORDER)
        integer("pfn", pfn, 0, 2**63 - 1)
        if pfn % 2**order:
            raise InputError(f"pfn={pfn} is not aligned to order {order}")
        for zone in self.zone:
            if all(p in zone.held for p in range(pfn, pfn + 2**order)):
                return zone
        raise InputError(f"pfn={pfn}, order={order}: not all of these pages are in use")

    def release_pages(self, pfn: int, order: int) -> PcpZone:
        zone = self.zone_of(pfn, order)
        for p in range(pfn, pfn + 2**order):
            del zone.held[p]
        return zone

    def free(self, cpu: int, pfn: int, order: int = 0, *, nolock: bool = False) -> None:
        """Free a block."""
        integer("cpu", cpu, 0, self.cpus - 1)
        if nolock:
            self._with_nolock()
        zone = self.release_pages(pfn, order)
        self.free_prepared(cpu, zone, pfn, order, nolock)

    def free_prepared(
        self, cpu: int, zone: PcpZone, pfn: int, order: int, nolock: bool = False
    ) -> None:
        mt = zone.block_type(pfn)
        if not pcp_allowed(self.release.rules, order) or mt == ISOLATE:
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
            if not pcp_allowed(self.release.rules, order) or (mt == ISOLATE and not folios):
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
        highest = 3 if migratetype == MOVABLE else 2
        return any(
            self.zone[z].unreserve_highatomic_pageblock(migratetype, force)
            for z in self.zonelist[self.cpu_node[cpu]]
            if self.zones[z].index <= highest
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

    def zone_at(self, pfn: int) -> PcpZone:
        for zone in self.zone:
            if zone.start <= integer("pfn", pfn, 0, 2**63 - 1) < zone.end:
                return zone
        raise InputError(f"pfn={pfn} is in no zone")

    # State

    def state(self) -> list[dict[str, Any]]:
        """Everything, zone by zone."""
        return [zone_state(zone) for zone in self.zone]

    def load(self, zone: int, state: Mapping[str, Any]) -> None:
        """Put a zone into a state, as `state` returns it for one zone.

        Only ``free`` is needed.  Without ``held`` every other page is in use, and looks
        movable where its page block is MOVABLE.
        """
        old = self.zone[self._zone(zone)]
        new = self._new_zone(old.spec)
        fill_zone(new, old, state)
        self.zone[zone] = new

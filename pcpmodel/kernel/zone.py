"""What a zone is before anything happens in it, and when its lists change size.

`Zone` describes; `Pagesets` holds the slow events of mm/page_alloc.c that both
the compiled core and its slow twin go through: sysctl, CPU hot-plug, disabling.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from pcpmodel.errors import InputError, integer, unknown_name
from pcpmodel.kernel import sizing
from pcpmodel.kernel.releases import Release, Rules

__all__ = [
    "GFP", "ZONE_FLAGS", "ZONE_NAMES", "Pagesets", "Zone", "flags_set", "managed_pages",
    "zonelists",
]  # fmt: skip

#: Zone types of x86-64, by zone index.
ZONE_NAMES = ("DMA", "DMA32", "Normal", "Movable")

#: zone->flags, from bit 0 on.
ZONE_FLAGS = ("BOOSTED_WATERMARK", "RECLAIM_ACTIVE", "BELOW_HIGH")

#: How a request may get its page: GFP_KERNEL, GFP_ATOMIC, GFP_NOWAIT.
GFP = ("kernel", "atomic", "nowait")

MAX_PFN = 1 << 40
MAX_ZONE_PAGES = 1 << 31
MAX_CPUS = 1 << 14
MAX_NODES = 1 << 10
# Larger than any zone's share and far from the end of a C int, so that sums and
# batch << batch_scale_max cannot overflow.
MAX_PAGES = 1 << 26
MAX_BATCH = 1 << 16


@dataclass(frozen=True)
class Zone:
    """A zone of a machine.

    Attributes
    ----------
    pages : int
        Spanned pages [pages].
    start_pfn : int
        First page frame.
    name : str
        ``"DMA"``, ``"DMA32"``, ``"Normal"`` or ``"Movable"``.
    node : int
        NUMA node.
    holes : tuple of (pfn, pages)
        Page frames of the span that are not in the zone.
    watermarks : (min, low, high)
        Without boost [pages].
    lowmem_reserve : tuple of int
        Pages kept from requests that may use a higher zone, by zone index of the request [pages].
    managed : int, optional
        Managed pages [pages]; by default all that are present.
    batch, high_min, high_max : int, optional
        Sizes of the per-CPU lists [pages]; by default computed, as at boot.
    """

    pages: int
    start_pfn: int = 0
    name: str = "Normal"
    node: int = 0
    holes: tuple[tuple[int, int], ...] = ()
    watermarks: tuple[int, int, int] = (0, 0, 0)
    lowmem_reserve: tuple[int, ...] = (0, 0, 0, 0)
    managed: int | None = None
    batch: int | None = None
    high_min: int | None = None
    high_max: int | None = None

    def __post_init__(self) -> None:
        integer("pages", self.pages, 1, MAX_ZONE_PAGES)
        integer("start_pfn", self.start_pfn, 0, MAX_PFN)
        integer("node", self.node, 0, MAX_NODES - 1)
        if not isinstance(self.name, str) or self.name not in ZONE_NAMES:
            raise unknown_name("zone", self.name, ZONE_NAMES)
        # Kept: what is checked here cannot change afterwards.
        try:
            holes = tuple((int(index(pfn)), int(index(n))) for pfn, n in self.holes)
            watermarks, reserve = tuple(self.watermarks), tuple(self.lowmem_reserve)
        except (TypeError, ValueError):
            raise InputError(
                f"holes={self.holes!r}, watermarks={self.watermarks!r}, "
                f"lowmem_reserve={self.lowmem_reserve!r}: give (pfn, pages) pairs and page numbers"
            ) from None
        for name, value in (
            ("holes", holes), ("watermarks", watermarks), ("lowmem_reserve", reserve)
        ):  # fmt: skip
            object.__setattr__(self, name, value)
        for pfn, pages in self.holes:
            integer("hole", pfn, self.start_pfn, self.end_pfn - 1)
            integer("pages of the hole", pages, 1, self.end_pfn - pfn)
        if len(self.watermarks) != 3:
            raise InputError(f"watermarks={self.watermarks!r} is not (min, low, high)")
        if len(self.lowmem_reserve) != len(ZONE_NAMES):
            raise InputError(f"lowmem_reserve={self.lowmem_reserve!r} needs {len(ZONE_NAMES)}")
        for mark in (*self.watermarks, *self.lowmem_reserve):
            integer("watermark or reserve", mark, 0, MAX_ZONE_PAGES)
        for name, most in (("batch", MAX_BATCH), ("high_min", MAX_PAGES), ("high_max", MAX_PAGES)):
            value = getattr(self, name)
            if value is not None:
                integer(name, value, 1 if name == "batch" else 0, most)
        if self.managed is not None:
            integer("managed", self.managed, 0, self.pages)

    @property
    def end_pfn(self) -> int:
        """First page frame after the zone."""
        return self.start_pfn + self.pages

    @property
    def index(self) -> int:
        """Zone index: 0 DMA, 1 DMA32, 2 Normal, 3 Movable."""
        return ZONE_NAMES.index(self.name)


def flags_set(flags: int) -> list[str]:
    """Names of the `ZONE_FLAGS` that are set."""
    return [name for bit, name in enumerate(ZONE_FLAGS) if flags >> bit & 1]


def managed_pages(zone: Zone) -> int:
    """Managed pages of a zone [pages]."""
    if zone.managed is not None:
        return zone.managed
    absent = {p for pfn, n in zone.holes for p in range(pfn, pfn + n)}
    return zone.pages - len(absent)


def zonelists(zones: Sequence[Zone], nodes: int) -> list[list[int]]:
    """Zones in the order that each node's requests try them, by position in ``zones``.

    Nodes are as far apart as their numbers, upwards and around; within a node
    higher zones come first.
    """
    lists = []
    for node in range(nodes):
        order = [(node + step) % nodes for step in range(nodes)]
        lists.append(
            [
                z
                for n in order
                for z in sorted(range(len(zones)), key=lambda z: -zones[z].index)
                if zones[z].node == n
            ]
        )
    return lists


def _first(*numbers: int | None) -> int:
    """The first that is given."""
    return next(number for number in numbers if number is not None)


class Pagesets:
    """The events that resize, disable and empty the per-CPU lists.

    Core and twin share them: `tests/kernel/test_pagesets.py` checks both by worked examples.
    """

    # What the class beside it has and can.
    release: Release
    zones: tuple[Zone, ...]
    cpus: int
    cpu_node: tuple[int, ...]
    drain_pages_zone: Callable[..., Any]  # cpu, zone
    _pageset_update: Callable[[int, int, int, int], None]  # zone, batch, high_min, high_max
    _free_high_batch: Callable[[int, int, bool], None]  # cpu, zone, flag
    _cpu_vm_stats_fold: Callable[[int], None]  # cpu
    _watermark_boost: Callable[[int], int]  # zone
    _set_watermarks: Callable[..., None]  # zone, min, low, high

    def _setup_pagesets(self, online: Sequence[int] | None, data_cache_bytes: int) -> None:
        self.online = set(range(self.cpus))
        if online is not None:
            self.online = {integer("online CPU", cpu, 0, self.cpus - 1) for cpu in online}
        if not self.online:
            raise InputError("online names no CPU")
        self.percpu_pagelist_high_fraction = 0
        self.data_cache_bytes = integer("data_cache_bytes", data_cache_bytes, 0, 1 << 40)
        self.disabled: set[int] = set()
        self._pageset: dict[int, tuple[int, int, int]] = {}
        self._watermarks = {z: zone.watermarks for z, zone in enumerate(self.zones)}
        for z in range(len(self.zones)):
            self._resize(z)
        self.update_cacheinfo()

    @property
    def _rules(self) -> Rules:
        return self.release.rules

    def _resize(self, z: int, cpu_online: int = 0) -> None:
        """zone_set_pageset_high_and_batch()."""
        zone = self.zones[z]
        size = sizing.zone_set_pageset_high_and_batch(
            managed_pages(zone),
            self._watermarks[z][1] + self._watermark_boost(z),
            self._rules,
            node_cpus=sum(self.cpu_node[cpu] == zone.node for cpu in self.online),
            online_cpus=len(self.online),
            cpu_online=cpu_online,
            high_fraction=self.percpu_pagelist_high_fraction,
            batch=zone.batch,
        )
        new = (
            size.batch,
            _first(zone.high_min, size.high_min, size.high),
            _first(zone.high_max, size.high_max, size.high),
        )
        if not self._rules.high_min_max:
            new = (new[0], new[1], new[1])
        if self._pageset.get(z) != new:
            self._pageset[z] = new
            if z not in self.disabled:
                self._pageset_update(z, *new)

    def set_percpu_pagelist_high_fraction(self, value: int) -> None:
        """Write sysctl ``vm.percpu_pagelist_high_fraction``: 0, or 8 and more.

        Zones described with sizes of their own keep them.
        """
        fraction = sizing.percpu_pagelist_high_fraction(value)
        if fraction == self.percpu_pagelist_high_fraction:
            return  # percpu_pagelist_high_fraction_sysctl_handler() looks no further
        self.percpu_pagelist_high_fraction = fraction
        for z in range(len(self.zones)):
            self._resize(z)

    def set_watermarks(self, zone: int, lowest: int, low: int, high: int) -> None:
        """New watermarks without boost [pages]; the boost ends and the lists are resized."""
        self._watermarks[self._zone(zone)] = (lowest, low, high)
        self._set_watermarks(zone, lowest, low, high)
        self._resize(zone)

    def cpu_online(self, cpu: int) -> None:
        """A CPU comes online: page_alloc_cpu_online()."""
        self._cpu(cpu)
        if cpu in self.online:
            raise InputError(f"cpu={cpu} is online already")
        for z in range(len(self.zones)):
            self._resize(z, cpu_online=1)
        self.online.add(cpu)
        self.update_cacheinfo()

    def cpu_dead(self, cpu: int) -> None:
        """A CPU went away: page_alloc_cpu_dead(); its lists are emptied."""
        self._cpu(cpu)
        if self.online <= {cpu}:
            raise InputError(f"cpu={cpu} is the last one online")
        if cpu not in self.online:
            raise InputError(f"cpu={cpu} is not online")
        self.online.discard(cpu)
        for z in range(len(self.zones)):
            self.drain_pages_zone(cpu, z)
        self._cpu_vm_stats_fold(cpu)
        for z in range(len(self.zones)):
            self._resize(z)

    def update_cacheinfo(self) -> None:
        """Set ``PCPF_FREE_HIGH_BATCH`` by the data cache of a CPU and the batch of now."""
        for z in range(len(self.zones)):
            batch = 1 if z in self.disabled else self._pageset[z][0]
            flag = sizing.holds_batches(batch, self.data_cache_bytes, self._rules)
            for cpu in self.online:
                self._free_high_batch(cpu, z, flag)

    def _with_nolock(self) -> None:
        """Refuse what free_pages_nolock() would do where there is none."""
        if not self._rules.nolock:
            name = self.release.name
            raise InputError(f"nolock: release {name!r} has no free_pages_nolock(); v6.15 has")

    def zone_pcp_disable(self, zone: int) -> None:
        """Make the lists of a zone keep nothing, and empty them."""
        if self._zone(zone) in self.disabled:
            raise InputError(f"zone={zone} is disabled already")
        self.disabled.add(zone)
        self._pageset_update(
            zone, sizing.BOOT_PAGESET_BATCH, sizing.BOOT_PAGESET_HIGH, sizing.BOOT_PAGESET_HIGH
        )
        self.drain_all_pages(zone)

    def zone_pcp_enable(self, zone: int) -> None:
        """Give a zone's lists their sizes back."""
        if self._zone(zone) not in self.disabled:
            raise InputError(f"zone={zone} is not disabled")
        self.disabled.discard(zone)
        self._pageset_update(zone, *self._pageset[zone])

    def drain_pages(self, cpu: int) -> None:
        """Empty the lists of a CPU, zone by zone."""
        for z in range(len(self.zones)):
            self.drain_pages_zone(cpu, z)

    def drain_all_pages(self, zone: int | None = None) -> None:
        """Empty the lists of every online CPU, of one zone or of all."""
        for cpu in sorted(self.online):
            if zone is None:
                self.drain_pages(cpu)
            else:
                self.drain_pages_zone(cpu, zone)

    def _zone(self, zone: int) -> int:
        return integer("zone", zone, 0, len(self.zones) - 1)

    def _cpu(self, cpu: int) -> int:
        return integer("cpu", cpu, 0, self.cpus - 1)

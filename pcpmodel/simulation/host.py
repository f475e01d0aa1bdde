"""The simulated machine: CPUs, nodes, zones and how large their per-CPU lists are."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from pcpmodel.arguments import checked_methods
from pcpmodel.cached import cached_property
from pcpmodel.errors import InputError, integer
from pcpmodel.kernel import sizing, zone_split
from pcpmodel.kernel.releases import Release

__all__ = ["LEAST_GIB", "Host", "ZoneSize"]

#: Memory that a node has at least [GiB].
LEAST_GIB = 0.0625


@cache  # of every CPU, by every run of a sweep
def _zonelist(
    cpu: int, home: int, nodes: int, memory: tuple[int, ...], per_node: int
) -> tuple[int, ...]:
    """find_next_best_node(), every other node as far away: headless ones, those above, the rest."""
    instances = [instance for _, instance in zone_split.zonelist(cpu, [per_node])]
    first = dict(zip(memory, range(0, len(memory) * per_node, per_node), strict=True))
    around = sorted(first, key=lambda node: (node != home, (node < home) + (node < nodes)))
    return tuple(first[node] + instance for node in around for instance in instances)


@dataclass(frozen=True)
class ZoneSize:
    """One zone (or zone instance) and the sizes of its per-CPU lists [pages]."""

    node: int
    managed: int
    watermarks: tuple[int, int, int]  # min, low, high
    batch: int
    high_min: int
    high_max: int


@checked_methods
@dataclass(frozen=True)
class Host:
    """CPUs, nodes and memory.

    Attributes
    ----------
    cpus : int
        Logical CPUs, node by node.
    nodes : int
        Those with CPUs.
    cpus_per_node : tuple of int
        CPUs of each of these; empty: as many on each.
    memory_gib : float
        Memory of these nodes together, all of it in ZONE_NORMAL [GiB].
    cpuless_nodes : int
        Nodes of memory alone, numbered behind the others.
    cpuless_gib : float
        Memory of these together [GiB].
    gib_per_node : tuple of float
        Memory of each node, those of memory alone last; 0 for one without, whose CPUs take that of
        others; empty: as much on each of a kind [GiB].
    zones_per_node : int
        Instances of ZONE_NORMAL per node: 1, or up to 4 as in the zone-splitting RFC.
    watermark_scale_factor : int
        vm.watermark_scale_factor [1/10000 of the zone], 1..3000.
    min_free_kbytes : int
        vm.min_free_kbytes, half of the memory at most; 0: what init_per_zone_wmark_min() makes of
        the memory.  khugepaged, where huge pages are enabled, raises that of small machines and of
        those with many nodes (`pcpmodel.kernel.sizing.khugepaged_min_free_kbytes`) [KiB].
    llc_slice_kib : float
        A CPU's share of its last-level cache [KiB].
    l2_kib : float
        Its private caches, for V2 of the series [KiB].
    page_size_kib : int
        Base page of the kernel: 4, 16 or 64 [KiB].
    threads_per_core : int
        Hardware threads that share a core: 1, or 2; the CPUs of a node are then first one thread of
        each core, then the other.
    """

    cpus: int
    nodes: int = 1
    memory_gib: float = 64.0
    zones_per_node: int = 1
    watermark_scale_factor: int = 10
    min_free_kbytes: int = 0
    llc_slice_kib: float = 1024.0
    l2_kib: float = 1024.0
    page_size_kib: int = 4
    threads_per_core: int = 1
    cpuless_nodes: int = 0
    cpuless_gib: float = 0.0
    cpus_per_node: tuple[int, ...] = ()
    gib_per_node: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, most in (
            ("nodes", 32),  # first: where cpus follows from it, it is to blame
            ("cpus", 8192),  # the most that a kernel is built for (NR_CPUS); tasks are fewer
            ("zones_per_node", zone_split.MAX_NR_ZONES_PER_TYPE),
            ("watermark_scale_factor", 3000),
            ("threads_per_core", 2),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise InputError(f"{name}={value!r} is not a whole number in 1..{most}")
        value = self.cpuless_nodes
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 16:
            raise InputError(f"cpuless_nodes={value!r} is not a whole number in 0..16")
        self._check_cpus_per_node()
        for cpus in self.node_cpus:
            if cpus % self.threads_per_core:
                raise InputError(
                    f"threads_per_core={self.threads_per_core}: {cpus} CPUs of a node are not pairs"
                )
        for name, most in (
            ("memory_gib", 65536),
            ("cpuless_gib", 65536),
            ("llc_slice_kib", 2**21),
            ("l2_kib", 2**21),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name}={value!r} is not a number")
            least = LEAST_GIB * self.nodes if name == "memory_gib" and not self.gib_per_node else 0
            if not least <= value <= most:
                raise InputError(f"{name}={value} is outside {least:g}..{most}")
        self._check_gib_per_node()
        if self.cpuless_gib < LEAST_GIB * self.cpuless_nodes or (
            self.cpuless_gib and not self.cpuless_nodes
        ):
            raise InputError(
                f"cpuless_gib={self.cpuless_gib} is not the memory of "
                f"cpuless_nodes={self.cpuless_nodes}"
            )
        sizing.page_shift(self.page_size_kib)
        integer("min_free_kbytes", self.min_free_kbytes, 0, self.memory_kib // 2)
        if self.zones > 32:
            raise InputError(f"{self.zones} zones; a machine has 32 at most")

    def _check_cpus_per_node(self) -> None:
        given = self.cpus_per_node
        if not isinstance(given, list | tuple) or not all(
            isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in given
        ):
            raise InputError(
                f"cpus_per_node={given!r} is not a list of whole numbers from 1, one for each node "
                "with CPUs"
            )
        object.__setattr__(self, "cpus_per_node", tuple(given))
        if given and (len(given), sum(given)) != (self.nodes, self.cpus):
            raise InputError(
                f"cpus_per_node={list(given)} are {sum(given)} CPUs on {len(given)} nodes; there "
                f"are cpus={self.cpus}, nodes={self.nodes}"
            )
        if not given and self.cpus % self.nodes:
            raise InputError(
                f"cpus={self.cpus} cannot be spread evenly over nodes={self.nodes}; "
                "cpus_per_node says how many each has"
            )

    def _check_gib_per_node(self) -> None:
        given, kinds = self.gib_per_node, (int, float)
        if not isinstance(given, list | tuple) or not all(
            isinstance(gib, kinds) and not isinstance(gib, bool) and (not gib or gib >= LEAST_GIB)
            for gib in given
        ):
            raise InputError(
                f"gib_per_node={given!r} is not a list of numbers, one for each node: 0, or "
                f"{LEAST_GIB} and more"
            )
        object.__setattr__(self, "gib_per_node", tuple(map(float, given)))
        if not given:
            return
        nodes = self.nodes + self.cpuless_nodes
        if len(given) != nodes or not any(given) or not all(given[self.nodes :]):
            raise InputError(
                f"gib_per_node={list(given)} is not the memory of nodes={self.nodes} with CPUs "
                f"and cpuless_nodes={self.cpuless_nodes} of memory alone"
            )
        for name, part in (
            ("memory_gib", given[: self.nodes]),
            ("cpuless_gib", given[self.nodes :]),
        ):
            if not math.isclose(sum(part), getattr(self, name)):
                raise InputError(
                    f"gib_per_node={list(given)} has {sum(part):g} GiB where "
                    f"{name}={getattr(self, name):g}"
                )

    @property
    def page_shift(self) -> int:
        """log2 of the page size in bytes."""
        return sizing.page_shift(self.page_size_kib)

    @property
    def pages(self) -> int:
        """Memory of the nodes with CPUs [pages]."""
        return int(self.memory_gib * (1 << 30 - self.page_shift))

    @cached_property
    def node_pages(self) -> tuple[int, ...]:
        """Memory of each node [pages]."""
        shift = 30 - self.page_shift
        if self.gib_per_node:
            return tuple(int(gib * (1 << shift)) for gib in self.gib_per_node)
        alone = int(self.cpuless_gib * (1 << shift)) // max(self.cpuless_nodes, 1)
        return (self.pages // self.nodes,) * self.nodes + (alone,) * self.cpuless_nodes

    @property
    def memory_kib(self) -> int:
        """Memory of all zones [KiB]."""
        each = (pages // self.zones_per_node * self.zones_per_node for pages in self.node_pages)
        return sum(each) * self.page_size_kib

    @cached_property
    def memory_nodes(self) -> tuple[int, ...]:
        """Nodes that have memory."""
        return tuple(node for node, pages in enumerate(self.node_pages) if pages)

    def __str__(self) -> str:
        def kinds(nodes: int, each: Sequence[Any]) -> str:
            apart = f" ({', '.join(f'{n:g}' for n in each)})" if len(set(each)) > 1 else ""
            return f"{nodes} node{'s' * (nodes > 1)}{apart}"

        cpus = f"{self.cpus} CPU{'s' * (self.cpus > 1)} on {kinds(self.nodes, self.node_cpus)}"
        apart = self.gib_per_node[: self.nodes]
        split = f" ({', '.join(f'{gib:g}' for gib in apart)})" if len(set(apart)) > 1 else ""
        alone = ""
        if self.cpuless_nodes:
            of = kinds(self.cpuless_nodes, self.gib_per_node[self.nodes :])
            alone = f", {self.cpuless_gib:g} GiB on {of} without CPUs"
        return f"{cpus}, {self.memory_gib:g} GiB{split}{alone}, pages of {self.page_size_kib} KiB"

    def mib(self, pages: Any) -> Any:
        """Pages, a number or an array or column of them, in MiB."""
        return pages * self.page_size_kib / 1024

    @property
    def node_cpus(self) -> tuple[int, ...]:
        """Number of CPUs of each node that has any."""
        return self.cpus_per_node or (self.cpus // self.nodes,) * self.nodes

    @cached_property
    def cpus_of(self) -> tuple[range, ...]:
        """The CPUs of each node that has any."""
        ends = list(accumulate(self.node_cpus, initial=0))
        return tuple(range(first, end) for first, end in pairwise(ends))

    @cached_property
    def _homes(self) -> tuple[int, ...]:
        return tuple(node for node, cpus in enumerate(self.cpus_of) for _ in cpus)

    def core(self, cpu: int) -> int:
        """Core of a CPU, counted on its node."""
        own = self.cpus_of[self.node_of(cpu)]
        return (cpu - own.start) % (len(own) // self.threads_per_core)

    @property
    def zones(self) -> int:
        return len(self.memory_nodes) * self.zones_per_node

    def node_of_zone(self, zone: int) -> int:
        """Node of a zone."""
        return self.memory_nodes[integer("zone", zone, 0, self.zones - 1) // self.zones_per_node]

    def node_of(self, cpu: int) -> int:
        """Node of a CPU."""
        return self._homes[integer("cpu", cpu, 0, self.cpus - 1)]

    def zonelist(self, cpu: int, home: int | None = None) -> list[int]:
        """Zones that a CPU tries, in order.

        Those of its own node, or of ``home`` where it prefers another one; then those of the
        other nodes, all as far away: without CPUs first, then those above, then those below.

        References
        ----------
        mm/page_alloc.c, find_next_best_node(); the load of nodes, which breaks ties by the order
        in which the lists were built at boot, is left out.
        """
        node = self.node_of(cpu)
        home = node if home is None else integer("home", home, 0, len(self.node_pages) - 1)
        return list(_zonelist(cpu, home, self.nodes, self.memory_nodes, self.zones_per_node))

    def free_high_batch(self, batch: int, release: Release) -> bool:
        """Whether the lists carry PCPF_FREE_HIGH_BATCH."""
        leaves = [
            sizing.CacheLeaf("Unified", int(self.l2_kib * 1024), 1),
            sizing.CacheLeaf("Unified", int(self.llc_slice_kib * 1024), 1),
        ]
        return sizing.free_high_batch(batch, leaves, release.rules, self.page_shift)

    def sizes(
        self,
        release: Release,
        *,
        batch: int | tuple[int, ...] | None = None,
        high_pages: int | tuple[int, ...] | None = None,
        high_min_pages: int | tuple[int, ...] | None = None,
        high_fraction: int = 0,
        online: Sequence[int] | None = None,
        coming: bool = False,
    ) -> tuple[ZoneSize, ...]:
        """Sizes of every zone, with what the user overrides: alike, or for each of `memory_nodes`.

        Parameters
        ----------
        release : Release
        batch : int or tuple of int, optional
            Instead of zone_batchsize() [pages].
        high_pages : int or tuple of int, optional
            A fixed ``high``: high_min and high_max alike, no tuning [pages].
        high_min_pages : int or tuple of int, optional
            ``high`` of releases without tuning, the lower bound of the others [pages].
        high_fraction : int
            sysctl vm.percpu_pagelist_high_fraction: 0, or 8 and more.
        online : sequence of int, optional
            Online CPUs of each node that has any; default: all.
        coming : bool
            Whether another CPU is just coming online.
        """
        online = [*(self.node_cpus if online is None else online), *[0] * self.cpuless_nodes]
        if high_pages is not None and (high_min_pages is not None or high_fraction):
            raise InputError("give one of high_pages, high_min_pages, high_fraction")
        nodes = [self.node_of_zone(zone) for zone in range(self.zones)]
        memory = [self.node_pages[node] // self.zones_per_node for node in nodes]
        marks = sizing.setup_per_zone_wmarks(
            [sizing.ZoneMemory(managed) for managed in memory],
            self.min_free_kbytes or sizing.min_free_kbytes_at_boot(self.memory_kib),
            self.watermark_scale_factor,
            self.page_shift,
        )
        given = [
            value if isinstance(value, tuple) else (value,) * len(self.memory_nodes)
            for value in (batch, high_pages, high_min_pages)
        ]
        own = dict(zip(self.memory_nodes, zip(*given, strict=True), strict=True))
        result = []
        for node, managed, mark in zip(nodes, memory, marks, strict=True):
            here, fixed, least = own[node]
            size = sizing.zone_set_pageset_high_and_batch(
                managed,
                mark.low,
                release.rules,
                node_cpus=online[node],
                online_cpus=sum(online),
                cpu_online=int(coming),
                high_fraction=high_fraction,
                page_shift=self.page_shift,
                batch=here,
            )
            low = size.high if size.high_min is None else size.high_min
            top = low if size.high_max is None else size.high_max
            assert low is not None
            assert top is not None
            if fixed is not None:
                low = top = fixed
            if least is not None:
                low = least
                top = max(top, low) if release.rules.high_min_max else low
            levels = (mark.min, mark.low, mark.high)
            result.append(ZoneSize(node, managed, levels, size.batch, low, top))
        return tuple(result)

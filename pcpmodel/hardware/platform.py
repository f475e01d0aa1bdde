"""CPUs, nodes, memory and caches of a machine, and this machine's per-CPU lists explained.

A `Platform` comes from a ``platform.json`` or from a running kernel's ``/proc`` and ``/sys``; the
root of these trees is an argument, so that a copy taken from another machine reads the same.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pcpmodel.errors import unknown_name
from pcpmodel.hardware.sizes_explained import Explanation, ZoneExplanation, explain
from pcpmodel.kernel.releases import Release, nearest_release
from pcpmodel.kernel.sizing import CacheLeaf, free_high_batch
from pcpmodel.proc.cpulist import cpu_list
from pcpmodel.proc.host import HostFiles, Node

__all__ = ["Platform", "ThisMachine", "explained", "this_machine"]


@dataclass(frozen=True)
class Platform:
    """What a machine is.

    Fields up to ``mitigations`` are those of ``platform.json``; None: not known, or not one
    number (cores of different kinds).  ``memory_gib`` [GiB], ``cpu_mhz`` [MHz], ``*_kib`` [KiB].

    Attributes
    ----------
    node_list : tuple of Node
        Empty where only ``platform.json`` is known, or the kernel knows no nodes.
    caches : mapping of int to tuple of CacheLeaf
        Caches of each online CPU in index order; a CPU without description has none.
    """

    name: str
    title: str | None = None
    kind: str | None = None
    microarchitecture: str | None = None
    cpu_model: str | None = None
    cpus: int | None = None
    sockets: int | None = None
    nodes: int | None = None
    cpus_per_node: str | None = None
    threads_per_core: int | None = None
    memory_gib: float | None = None
    gib_per_node: str | None = None
    cpuless_gib: float | None = None
    page_size_kib: int | None = None
    l1d_kib: int | None = None
    l2_kib: int | None = None
    llc_kib: int | None = None
    llc_cpus: int | None = None
    cpu_mhz: float | None = None
    kernel: str | None = None
    governor: str | None = None
    mitigations: str | None = None
    node_list: tuple[Node, ...] = ()
    caches: Mapping[int, tuple[CacheLeaf, ...]] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, name: str, record: Mapping[str, Any]) -> Platform:
        """Take the hardware's fields from a ``platform.json`` record.

        What was measured, how and by whom (``workload``, ``tool``, ``command``, ``sources``) stays
        with the measurement.

        Raises
        ------
        InputError
            For a field that ``platform.json`` does not have.
        """
        known = [f for f in cls.__dataclass_fields__ if f not in ("name", "node_list", "caches")]
        measurement = ("workload", "tool", "command", "sources")
        for key in record:
            if key not in known and key not in measurement:
                raise unknown_name("platform field", key, [*known, *measurement])
        values: dict[str, Any] = {key: record.get(key) for key in known}
        return cls(name, **values)

    @classmethod
    def of_host(cls, root: str | Path = "/") -> Platform:
        """Read the running machine, or a copy of its ``/proc`` and ``/sys`` under ``root``.

        Missing files leave their fields None; only a machine without any CPU is refused.

        Raises
        ------
        InputError
            If neither ``sys/devices/system/cpu/online`` nor ``proc/cpuinfo`` lists a CPU, or one
            of the files has what no kernel prints.
        """
        return _platform(HostFiles(Path(root)))

    def as_dict(self) -> dict[str, Any]:
        """Record as ``platform.json`` has it, without the measurement's fields."""
        record = asdict(self)
        for key in ("name", "node_list", "caches"):
            del record[key]
        return record

    def __str__(self) -> str:
        facts = [
            self.cpu_model,
            _count(self.cpus, "CPU"),
            _count(self.sockets, "socket"),
            _count(self.nodes, "node"),
            None if self.memory_gib is None else f"{self.memory_gib:g} GiB",
            None
            if self.llc_kib is None
            else f"LLC {self.llc_kib} KiB for {_count(self.llc_cpus, 'CPU')}",
            None if self.kernel is None else f"Linux {self.kernel}",
        ]
        return f"{self.title or self.name}: {', '.join(f for f in facts if f)}"


def _count(number: int | None, what: str) -> str | None:
    return None if number is None else f"{number} {what}{'' if number == 1 else 's'}"


def _one(values: Sequence[Any]) -> Any:
    """The value that all have; None if there is none or they differ."""
    return values[0] if len(set(values)) == 1 else None


def _leaves(host: HostFiles, cpu: int) -> tuple[CacheLeaf, ...]:
    """Caches of a CPU, as the kernel's rules take them."""
    return tuple(CacheLeaf(*cache) for cache in host.caches(cpu))


def _platform(host: HostFiles) -> Platform:
    caches = {cpu: _leaves(host, cpu) for cpu in host.online}
    nodes = host.nodes()
    memory_kib = host.kib(host.root / "proc/meminfo", "MemTotal")
    memory = [n.memory_kib for n in nodes] or [None]
    if None not in memory and memory_kib and abs(sum(memory) - memory_kib) > memory_kib / 20:
        memory = [None]  # part of it no node manages yet: a kernel may do so once it is used
    alone = [n.memory_kib for n in nodes if not n.cpus] if nodes else [None]
    zone_nodes = None
    if not nodes and "zoneinfo" in host.names(host.root / "proc"):
        zone_nodes = len(host.snapshots()[0].nodes)  # without CONFIG_NUMA sysfs has no nodes

    def level(index: int, kinds: Sequence[str]) -> int | None:
        """Size of the n-th data cache of every CPU [KiB]."""
        sizes = []
        for leaves in caches.values():
            data = [leaf.size_bytes >> 10 for leaf in leaves if leaf.type in kinds]
            sizes.append(data[index] if index < len(data) else None)
        return _one(sizes) or None

    last = _one([leaves[-1] if leaves else None for leaves in caches.values()])
    data = ("Data", "Unified")
    here = host.root == Path("/")
    return Platform(
        name="this-machine" if here else host.root.resolve().name,
        title="this machine" if here else host.root.resolve().name,  # a copy: of another, maybe
        kind="virtual" if "hypervisor" in " ".join(host.cpuinfo("flags")).split() else None,
        cpu_model=_one(host.cpuinfo("model name")),
        cpus=len(host.online),
        sockets=host.sockets(),
        nodes=len(nodes) or zone_nodes,
        cpus_per_node=",".join(str(len(n.cpus)) for n in nodes) or None,
        threads_per_core=host.threads_per_core(),
        memory_gib=None if memory_kib is None else round(memory_kib / (1 << 20), 3),
        gib_per_node=None if None in memory else ",".join(f"{n / (1 << 20):.3f}" for n in memory),
        cpuless_gib=None if None in alone else round(sum(alone) / (1 << 20), 3),
        page_size_kib=host.page_size_kib(),
        l1d_kib=level(0, data),
        l2_kib=level(1, data),
        llc_kib=last.size_bytes >> 10 or None if last else None,
        llc_cpus=last.shared_cpus if last else None,
        kernel=host.text(host.root / "proc/sys/kernel/osrelease"),
        governor=_one(
            [host.text(host.cpu_dir / f"cpu{c}/cpufreq/scaling_governor") for c in host.online]
        ),
        node_list=nodes,
        caches=caches,
    )


@dataclass(frozen=True, repr=False)
class ThisMachine:
    """This machine and its per-CPU lists, every number explained; prints as a report.

    Attributes
    ----------
    platform : Platform
    explanation : pcpmodel.hardware.sizes_explained.Explanation
        Sizes of every zone, recomputed and compared with what the kernel reports.
    free_high_batch : mapping of (node, zone) to tuple of int
        CPUs whose list of that zone should carry ``PCPF_FREE_HIGH_BATCH``.
    """

    platform: Platform
    explanation: Explanation
    free_high_batch: Mapping[tuple[int, str], tuple[int, ...]]

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        flags = [
            {"node": node, "zone": zone, "cpus": list(cpus)}
            for (node, zone), cpus in self.free_high_batch.items()
        ]
        return self.explanation.as_dict() | {
            "platform": self.platform.as_dict(),
            "free_high_batch": flags,
        }

    @property
    def zones(self) -> tuple[ZoneExplanation, ...]:
        """Populated zones, explained."""
        return self.explanation.zones

    @property
    def all_match(self) -> bool:
        """Whether every reported size is the one computed."""
        return self.explanation.all_match

    def _flags(self) -> list[str]:
        lines = ["PCPF_FREE_HIGH_BATCH expected (high-order frees keep up to a batch):"]
        for (node, zone), cpus in self.free_high_batch.items():
            some = "no CPU"
            if cpus:
                every = len(cpus) == self.platform.cpus
                some = "every CPU" if every else f"CPU {cpu_list(cpus)}"
            lines.append(f"  node {node} {zone}: {some}")
        return lines

    def __repr__(self) -> str:
        return "\n".join([str(self.platform), "", str(self.explanation), "", *self._flags()])

    def _repr_html_(self) -> str:
        flags = "<br>".join(map(html.escape, self._flags()))
        return (
            f"<p><b>{html.escape(str(self.platform))}</b></p>"
            f"{self.explanation._repr_html_()}<p>{flags}</p>"
        )


def this_machine(
    root: str | Path = "/",
    release: str | Release | None = None,
    cpus_per_node: int | Mapping[int, int] | Sequence[int] | None = None,
    high_fraction: int | None = None,
) -> ThisMachine:
    """Explain the per-CPU lists of the machine this runs on.

    Parameters
    ----------
    root : path
        Where ``proc`` and ``sys`` are: a copy of another machine's works as well.
    release : str or Release, optional
        Rules to apply; by default
        `pcpmodel.kernel.releases.nearest_release` of the running kernel.
    cpus_per_node, high_fraction : optional
        As in `pcpmodel.hardware.sizes_explained.explain`; by default what the kernel says, if it
        does.

    Returns
    -------
    ThisMachine

    Raises
    ------
    InputError
        If ``proc/zoneinfo`` cannot be read or does not parse.
    """
    return explained(HostFiles(Path(root)), release, cpus_per_node, high_fraction)


def explained(
    host: HostFiles,
    release: str | Release | None = None,
    cpus_per_node: int | Mapping[int, int] | Sequence[int] | None = None,
    high_fraction: int | None = None,
) -> ThisMachine:
    """Explain the per-CPU lists of a machine whose files are at hand; see `this_machine`."""
    snapshots = host.snapshots()
    platform = _platform(host)
    chosen = None
    if release is None and platform.kernel is not None:
        release = nearest_release(platform.kernel)
        chosen = f"release {release.name}, the nearest known to Linux {platform.kernel}"
    if cpus_per_node is None and platform.node_list:
        cpus_per_node = {n.node: len(n.cpus) for n in platform.node_list}
    if high_fraction is None:
        sysctl = host.root / "proc/sys/vm/percpu_pagelist_high_fraction"
        high_fraction = host.number(sysctl)
    known = platform.page_size_kib
    page_size_bytes = None if known is None else known << 10
    explanation = explain(snapshots, release, cpus_per_node, high_fraction, page_size_bytes)
    if chosen:
        explanation = replace(explanation, assumptions=(chosen, *explanation.assumptions))
    rules, shift = explanation.release.rules, explanation.page_size_bytes.bit_length() - 1
    flags = {
        (zone.node, zone.zone): tuple(
            cpu
            for cpu, leaves in platform.caches.items()
            if free_high_batch(zone.batch, leaves, rules, shift)
        )
        for zone in explanation.zones
    }
    return ThisMachine(platform, explanation, flags)

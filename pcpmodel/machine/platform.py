"""CPUs, nodes, memory and caches of a machine, and this machine's per-CPU lists explained.

A `Platform` comes from a ``platform.json`` or from a running kernel's ``/proc`` and ``/sys``; the
root of these trees is an argument, so that a copy taken from another machine reads the same.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.releases import Release, releases
from pcpmodel.kernel.sizing import CacheLeaf, free_high_batch
from pcpmodel.machine import zoneinfo

__all__ = ["Node", "Platform", "ThisMachine", "nearest_release", "this_machine"]


@dataclass(frozen=True)
class Node:
    """A NUMA node."""

    node: int
    cpus: tuple[int, ...]  #: online CPUs; none for a node of memory only
    memory_kib: int | None


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
    threads_per_core: int | None = None
    memory_gib: float | None = None
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
        return _Host(Path(root)).platform()

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
            None if self.llc_kib is None else f"LLC {self.llc_kib} KiB for {self.llc_cpus} CPUs",
            None if self.kernel is None else f"Linux {self.kernel}",
        ]
        return f"{self.title or self.name}: {', '.join(f for f in facts if f)}"


def _count(number: int | None, what: str) -> str | None:
    return None if number is None else f"{number} {what}{'' if number == 1 else 's'}"


def _one(values: Sequence[Any]) -> Any:
    """The value that all have; None if there is none or they differ."""
    return values[0] if len(set(values)) == 1 else None


def _cpu_list(text: str, file: Path) -> tuple[int, ...]:
    """Numbers of a list such as ``0-3,8,10-11``."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InputError(f"{part[:60]!r} is not a CPU or a range of CPUs", file=file)
        cpus += range(first, last + 1)
    return tuple(cpus)


def _size_kib(text: str | None, file: Path) -> int:
    """Cache size such as ``32K``; a kernel that does not know it counts 0."""
    if text is None:
        return 0
    match = re.fullmatch(r"([0-9]{1,12})K", text, re.ASCII)
    if not match:
        raise InputError(f"{text[:60]!r} is not a size such as '32K'", file=file)
    return int(match[1])


class _Host:
    """Reads one machine's trees; None for what is not there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cpu_dir = root / "sys/devices/system/cpu"
        online = self.text(self.cpu_dir / "online")
        if online is None:
            online = ",".join(self.cpuinfo("processor"))
        self.online = _cpu_list(online, self.cpu_dir / "online")
        if not self.online:
            raise InputError("no CPU is listed; expected the root of /proc and /sys", file=root)

    def text(self, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def number(self, path: Path) -> int | None:
        text = self.text(path)
        return int(text) if text and re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) else None

    def cpuinfo(self, key: str) -> list[str]:
        text = self.text(self.root / "proc/cpuinfo") or ""
        return re.findall(rf"^{key}\s*:\s*(.*?)\s*$", text, re.MULTILINE)

    def kib(self, path: Path, key: str) -> int | None:
        match = re.search(rf"\b{key}:\s+([0-9]{{1,15}}) kB", self.text(path) or "", re.ASCII)
        return int(match[1]) if match else None

    def leaves(self, cpu: int) -> tuple[CacheLeaf, ...]:
        found = []
        directory = self.cpu_dir / f"cpu{cpu}/cache"
        indexes = {int(p.name[5:]): p for p in directory.glob("index*") if p.name[5:].isdigit()}
        for _, index in sorted(indexes.items()):
            shared = self.text(index / "shared_cpu_list") or str(cpu)
            found.append(
                CacheLeaf(
                    self.text(index / "type") or "",
                    _size_kib(self.text(index / "size"), index / "size") << 10,
                    max(len(_cpu_list(shared, index / "shared_cpu_list")), 1),
                )
            )
        return tuple(found)

    def nodes(self) -> tuple[Node, ...]:
        found = []
        for path in self.root.glob("sys/devices/system/node/node*"):
            if path.name[4:].isdigit():
                cpulist = path / "cpulist"
                cpus = _cpu_list(self.text(cpulist) or "", cpulist)
                found.append(Node(int(path.name[4:]), cpus, self.kib(path / "meminfo", "MemTotal")))
        return tuple(sorted(found, key=lambda n: n.node))

    def threads_per_core(self) -> int | None:
        """Most threads that a core has."""
        lists = [self.cpu_dir / f"cpu{c}/topology/thread_siblings_list" for c in self.online]
        texts = [(t, p) for p in lists if (t := self.text(p)) is not None]
        return max((len(_cpu_list(t, p)) for t, p in texts), default=None)

    def sockets(self) -> int | None:
        packages = {
            self.number(self.cpu_dir / f"cpu{c}/topology/physical_package_id") for c in self.online
        }
        return None if None in packages else len(packages)

    def page_size_kib(self) -> int | None:
        if self.root == Path("/"):
            return os.sysconf("SC_PAGESIZE") >> 10
        # MemTotal is the sum of the managed pages of all zones.
        memory = self.kib(self.root / "proc/meminfo", "MemTotal")
        path = self.root / "proc/zoneinfo"
        if memory is None or not path.is_file():
            return None
        managed = sum(z.managed for z in zoneinfo.read(path)[0].zones)
        return next((k for k in (4, 16, 64) if 0.9 < managed * k / max(memory, 1) < 1.1), None)

    def platform(self) -> Platform:
        caches = {cpu: self.leaves(cpu) for cpu in self.online}
        nodes = self.nodes()
        memory_kib = self.kib(self.root / "proc/meminfo", "MemTotal")

        def level(index: int, kinds: Sequence[str]) -> int | None:
            """Size of the n-th data cache of every CPU [KiB]."""
            sizes = []
            for leaves in caches.values():
                data = [leaf.size_bytes >> 10 for leaf in leaves if leaf.type in kinds]
                sizes.append(data[index] if index < len(data) else None)
            return _one(sizes) or None

        last = _one([leaves[-1] if leaves else None for leaves in caches.values()])
        data = ("Data", "Unified")
        return Platform(
            name="this-machine",
            title="this machine",
            kind="virtual" if "hypervisor" in " ".join(self.cpuinfo("flags")).split() else None,
            cpu_model=_one(self.cpuinfo("model name")),
            cpus=len(self.online),
            sockets=self.sockets(),
            nodes=len(nodes) or None,
            threads_per_core=self.threads_per_core(),
            memory_gib=None if memory_kib is None else round(memory_kib / (1 << 20), 3),
            page_size_kib=self.page_size_kib(),
            l1d_kib=level(0, data),
            l2_kib=level(1, data),
            llc_kib=last.size_bytes >> 10 or None if last else None,
            llc_cpus=last.shared_cpus if last else None,
            kernel=self.text(self.root / "proc/sys/kernel/osrelease"),
            governor=_one(
                [self.text(self.cpu_dir / f"cpu{c}/cpufreq/scaling_governor") for c in self.online]
            ),
            node_list=nodes,
            caches=caches,
        )


def nearest_release(kernel: str) -> Release:
    """Known release nearest to a kernel, by its version.

    Of the known releases with the same two leading numbers (mainline counts as patch level 0,
    ``debian-6.12.107`` as 107: it has the stable tree's backports), the newest that is not
    newer, or else the oldest; if there is none, the newest older mainline release.  Kernels
    before 6.1 count as 6.1, and 6.2 ... 6.5 as 6.6.

    Parameters
    ----------
    kernel : str
        As ``uname -r`` prints it.

    Raises
    ------
    InputError
        If it does not start with a version.
    """
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,6}))?", kernel, re.ASCII)
    if not match:
        raise InputError(f"kernel release {kernel!r} does not start with a version such as 6.18.15")
    given = tuple(int(n or 0) for n in match.groups())
    known = []
    for state in releases():
        named = re.fullmatch(r"(v|debian-)([0-9.]+)", state.name, re.ASCII)
        if named:
            numbers = tuple(map(int, named[2].split(".")))
            known.append(((*numbers, 0)[:3], named[1] == "v", state))
    known.sort(key=lambda k: k[0])
    same = [k for k in known if k[0][:2] == given[:2]]
    older = [k for k in same if k[0] <= given]
    if same:
        return (older[-1] if older else same[0])[2]
    mainline = [k for k in known if k[1]]
    older = [k for k in mainline if k[0] < given]
    if older:
        return older[-1][2]
    return (mainline if given > known[0][0] else known)[0][2]


@dataclass(frozen=True, repr=False)
class ThisMachine:
    """This machine and its per-CPU lists, every number explained; prints as a report.

    Attributes
    ----------
    platform : Platform
    explanation : pcpmodel.machine.zoneinfo.Explanation
        Sizes of every zone, recomputed and compared with what the kernel reports.
    free_high_batch : mapping of (node, zone) to tuple of int
        CPUs whose list of that zone should carry ``PCPF_FREE_HIGH_BATCH``.
    """

    platform: Platform
    explanation: zoneinfo.Explanation
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
    def zones(self) -> tuple[zoneinfo.ZoneExplanation, ...]:
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
                some = "every CPU" if every else f"CPU {zoneinfo.cpu_list(cpus)}"
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
        Rules to apply; by default `nearest_release` of the running kernel.
    cpus_per_node, high_fraction : optional
        As in `pcpmodel.machine.zoneinfo.explain`; by default what the kernel says.

    Returns
    -------
    ThisMachine

    Raises
    ------
    InputError
        If ``proc/zoneinfo`` cannot be read or does not parse.
    """
    root = Path(root)
    snapshots = zoneinfo.read(root / "proc/zoneinfo")
    platform = Platform.of_host(root)
    chosen = None
    if release is None and platform.kernel is not None:
        release = nearest_release(platform.kernel)
        chosen = f"release {release.name}, the nearest known to Linux {platform.kernel}"
    if cpus_per_node is None and platform.node_list:
        cpus_per_node = {n.node: len(n.cpus) for n in platform.node_list}
    if high_fraction is None:
        sysctl = root / "proc/sys/vm/percpu_pagelist_high_fraction"
        high_fraction = _Host(root).number(sysctl) or 0
    page_kib = platform.page_size_kib or 4
    explanation = zoneinfo.explain(snapshots, release, cpus_per_node, high_fraction, page_kib << 10)
    if chosen:
        explanation = replace(explanation, assumptions=(chosen, *explanation.assumptions))
    rules, shift = explanation.release.rules, (page_kib << 10).bit_length() - 1
    flags = {
        (zone.node, zone.zone): tuple(
            cpu
            for cpu, leaves in platform.caches.items()
            if free_high_batch(zone.batch, leaves, rules, shift)
        )
        for zone in explanation.zones
    }
    return ThisMachine(platform, explanation, flags)

"""CPUs, nodes, memory and caches of a host, from ``/proc`` and ``/sys`` or a copy of them."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pcpmodel.cached import cached_property
from pcpmodel.errors import InputError
from pcpmodel.files import read_text
from pcpmodel.proc import zoneinfo
from pcpmodel.proc.cpulist import parse_cpu_list

__all__ = ["Cache", "HostFiles", "Node"]


@dataclass(frozen=True)
class Node:
    """A NUMA node."""

    node: int
    cpus: tuple[int, ...]  #: online CPUs; none for a node of memory only
    memory_kib: int | None


class Cache(NamedTuple):
    """A cache that a CPU sees, as /sys/devices/system/cpu/cpuN/cache/indexM has it."""

    type: str  #: "Data", "Instruction" or "Unified"
    size_bytes: int
    shared_cpus: int  #: online CPUs that share it, >= 1


def _size_kib(text: str | None, file: Path) -> int:
    """Cache size such as ``32K``; a kernel that does not know it counts 0."""
    if text is None:
        return 0
    match = re.fullmatch(r"([0-9]{1,12})K", text, re.ASCII)
    if not match:
        raise InputError(f"{text[:60]!r} is not a size such as '32K'", file=file)
    return int(match[1])


class HostFiles:
    """One machine's ``/proc`` and ``/sys``, or a copy of them; None for what is not there.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` are.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cpu_dir = root / "sys/devices/system/cpu"

    @cached_property
    def online(self) -> tuple[int, ...]:
        """Online CPUs.

        Raises
        ------
        InputError
            If neither ``sys/devices/system/cpu/online`` nor ``proc/cpuinfo`` lists one.
        """
        text = self.text(self.cpu_dir / "online")
        if text is None:
            text = ",".join(self.cpuinfo("processor"))
        cpus = parse_cpu_list(text, self.cpu_dir / "online")
        if not cpus:
            message = "no CPU is listed; expected the root of /proc and /sys"
            raise InputError(message, file=self.root)
        return cpus

    def text(self, path: Path) -> str | None:
        """Content of a file, without the space around it."""
        try:
            return read_text(path).strip() or None
        except InputError:
            return None

    def names(self, directory: Path) -> list[str]:
        """Names in a directory; none where it is not there."""
        return sorted(path.name for path in directory.glob("*"))

    def _numbered(self, directory: Path, name: str) -> list[int]:
        """Numbers of what is called ``name`` with one, rising."""
        known = (re.fullmatch(rf"{name}([0-9]{{1,9}})", n) for n in self.names(directory))
        return sorted(int(match[1]) for match in known if match)

    def snapshots(self) -> tuple[zoneinfo.Zoneinfo, ...]:
        """``/proc/zoneinfo``, parsed.

        Raises
        ------
        InputError
            As `pcpmodel.proc.zoneinfo.read`.
        """
        return zoneinfo.read(self.root / "proc/zoneinfo")

    def number(self, path: Path) -> int | None:
        """Number that is all of a file."""
        text = self.text(path)
        return int(text) if text and re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) else None

    def cpuinfo(self, key: str) -> list[str]:
        """Value of a key of ``/proc/cpuinfo``, once for each CPU."""
        text = self.text(self.root / "proc/cpuinfo") or ""
        return re.findall(rf"^{key}\s*:\s*(.*?)\s*$", text, re.MULTILINE)

    def kib(self, path: Path, key: str) -> int | None:
        """Value of a key of a ``meminfo`` [KiB]."""
        match = re.search(rf"\b{key}:\s+([0-9]{{1,15}}) kB", self.text(path) or "", re.ASCII)
        return int(match[1]) if match else None

    def caches(self, cpu: int) -> tuple[Cache, ...]:
        """Caches of a CPU in index order."""
        found = []
        directory = self.cpu_dir / f"cpu{cpu}/cache"
        for number in self._numbered(directory, "index"):
            index = directory / f"index{number}"
            shared = self.text(index / "shared_cpu_list") or str(cpu)
            found.append(
                Cache(
                    self.text(index / "type") or "",
                    _size_kib(self.text(index / "size"), index / "size") << 10,
                    max(len(parse_cpu_list(shared, index / "shared_cpu_list")), 1),
                )
            )
        return tuple(found)

    def nodes(self) -> tuple[Node, ...]:
        """NUMA nodes; none where the kernel knows of none."""
        found = []
        directory = self.root / "sys/devices/system/node"
        for number in self._numbered(directory, "node"):
            path = directory / f"node{number}"
            cpulist = path / "cpulist"
            cpus = parse_cpu_list(self.text(cpulist) or "", cpulist)
            found.append(Node(number, cpus, self.kib(path / "meminfo", "MemTotal")))
        return tuple(found)

    def _sharing(self, cpu: int, path: str) -> tuple[int, ...]:
        """CPUs that a file of a CPU lists."""
        file = self.cpu_dir / f"cpu{cpu}" / path
        return parse_cpu_list(self.text(file) or str(cpu), file)

    def distance(self, cpu: int, other: int) -> str:
        """How far a line goes between two CPUs: core, llc, socket or node, the nearest they share.

        ``node`` means that they are of different nodes, or of different sockets.
        """
        if other in self._sharing(cpu, "topology/thread_siblings_list"):
            return "core"
        indexes = self._numbered(self.cpu_dir / f"cpu{cpu}/cache", "index")
        if indexes and other in self._sharing(cpu, f"cache/index{indexes[-1]}/shared_cpu_list"):
            return "llc"
        packages = {
            self.number(self.cpu_dir / f"cpu{c}/topology/physical_package_id") for c in (cpu, other)
        }
        homes = {n.node for n in self.nodes() if {cpu, other} & set(n.cpus)}
        return "socket" if len(packages) == 1 and len(homes) < 2 else "node"

    def threads_per_core(self) -> int | None:
        """Most threads that a core has."""
        lists = [self.cpu_dir / f"cpu{c}/topology/thread_siblings_list" for c in self.online]
        texts = [(t, p) for p in lists if (t := self.text(p)) is not None]
        return max((len(parse_cpu_list(t, p)) for t, p in texts), default=None)

    def sockets(self) -> int | None:
        """Processor packages."""
        packages = {
            self.number(self.cpu_dir / f"cpu{c}/topology/physical_package_id") for c in self.online
        }
        return None if None in packages else len(packages)

    def page_size_kib(self) -> int | None:
        """Base page; of a copy the one that its memory and its zones agree with."""
        if self.root == Path("/"):
            return os.sysconf("SC_PAGESIZE") >> 10
        # MemTotal is the sum of the managed pages of all zones.
        memory = self.kib(self.root / "proc/meminfo", "MemTotal")
        if memory is None or "zoneinfo" not in self.names(self.root / "proc"):
            return None
        managed = sum(z.managed for z in self.snapshots()[0].zones)
        return next((k for k in (4, 16, 64) if 0.9 < managed * k / max(memory, 1) < 1.1), None)

"""A recording: a directory with one trace of one kernel and snapshots of its lists.

`recording` opens a directory; everything in it is read only when asked for, and
checked against the machine that the recording itself describes, since it may come
from a stranger: sizes, page numbers, names, references.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pcpmodel.datasets.packages import data_dir
from pcpmodel.errors import InputError, printable, unknown_name
from pcpmodel.files import read_json
from pcpmodel.kernel.lists import MAX_PCP_LISTS, pindex_to_order
from pcpmodel.kernel.releases import Release, nearest_release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.proc import zoneinfo

__all__ = ["PcpState", "Recording", "Snapshot", "ZoneState", "recording", "recording_names"]

MAX_STATE_BYTES = 1 << 28  #: largest snapshot file read [bytes]
MAX_META_BYTES = 1 << 22  #: largest meta.json read [bytes]
MAX_CPUS = 8192
MAX_PFN = 1 << 40

#: Pageblock characters -> migratetype; ``.`` no memory, ``I`` isolated.
BLOCK_TYPES = {**{str(n): n for n in range(6)}, ".": -1, "I": 5}


@dataclass(frozen=True)
class ZoneState:
    """A zone line: ``struct zone`` [pages where not said otherwise]."""

    node: int
    idx: int
    name: str
    addr: int
    nr_free: int
    flags: int
    wmark_min: int
    wmark_low: int
    wmark_high: int
    wmark_promo: int
    managed: int
    start_pfn: int
    spanned: int
    pageset_high_min: int  #: ``pageset_high`` on kernels with one ``high``
    pageset_high_max: int
    pageset_batch: int

    @property
    def key(self) -> tuple[int, str]:
        return self.node, self.name

    @property
    def end_pfn(self) -> int:
        return self.start_pfn + self.spanned


@dataclass
class PcpState:
    """One ``struct per_cpu_pages`` and its lists; -1: the kernel has no such field."""

    node: int
    zone: str
    cpu: int
    addr: int
    count: int
    high: int
    high_min: int
    high_max: int
    batch: int
    flags: int
    alloc_factor: int
    free_factor: int
    expire: int
    free_count: int
    #: pindex -> page frame numbers, head first
    lists: dict[int, np.ndarray] = field(default_factory=dict)
    #: a list moved while it was being read; what was seen until then is in ``lists``
    torn: bool = False

    @property
    def listed(self) -> int:
        """Base pages on the lists, to hold against ``count``."""
        return sum(len(p) << pindex_to_order(i) for i, p in self.lists.items())


@dataclass
class Snapshot:
    """State of all page lists at one moment (between its two markers).

    Attributes
    ----------
    tag : str
    zones : list of ZoneState
        In the order of the dump: by node, then DMA, DMA32, Normal.
    pcps : dict
        (node, zone name, cpu) -> `PcpState`.
    free : dict or None
        (node, zone name) -> {(order, migratetype): pfns, head first}.
    blocks : dict or None
        (node, zone name) -> (first pfn, int8 array of migratetypes, -1 no memory).
    torn : set
        ((node, zone name), (order, migratetype)) of buddy lists that were left before their end:
        the last block went elsewhere while it was being read.
    """

    tag: str
    zones: list[ZoneState]
    pcps: dict[tuple[int, str, int], PcpState]
    free: dict[tuple[int, str], dict[tuple[int, int], np.ndarray]] | None = None
    blocks: dict[tuple[int, str], tuple[int, np.ndarray]] | None = None
    torn: set[tuple[tuple[int, str], tuple[int, int]]] = field(default_factory=set)


def _read(path: Path, limit: int = MAX_STATE_BYTES) -> str:
    from pcpmodel.trace.ftrace import open_text

    data = b"".join(open_text(path, max_bytes=limit))
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise InputError("not ASCII text", file=path, row=row) from error


def _number(text: str, name: str, path: Path, row: int, lo: int, hi: int) -> int:
    try:
        value = int(text, 16 if text.startswith("0x") else 10) if len(text) < 24 else None
    except ValueError:
        value = None
    if value is None or not lo <= value <= hi:
        raise InputError(f"{name}={text[:40]!r} is not a number in {lo}..{hi}", file=path, row=row)
    return value


def _pairs(text: str, names: dict[str, tuple[int, int]], path: Path, row: int) -> dict[str, int]:
    """Exactly the ``name=value`` pairs of *names*, each within its range."""
    given = dict(part.split("=", 1) for part in text.split() if "=" in part)
    missing = [n for n in names if n not in given]
    if missing:
        raise InputError(f"{missing[0]}= is missing", file=path, row=row)
    return {n: _number(given[n], n, path, row, *ranges) for n, ranges in names.items()}


_WORD = (0, (1 << 64) - 1)
_INT = (-1, (1 << 31) - 1)
_ZONE_FIELDS = {
    **{f.name: (0, MAX_PFN) for f in fields(ZoneState) if f.name != "name"},
    "node": (0, 1023),
    "idx": (0, 15),
    "addr": _WORD,
    "flags": _WORD,
    "pageset_high_max": (-1, MAX_PFN),
}
_PCP_FIELDS = {
    "node": (0, 1023),
    "cpu": (0, MAX_CPUS - 1),
    "addr": _WORD,
    **{f.name: _INT for f in fields(PcpState)[4:-2]},
}
_LIST_FIELDS = {"node": (0, 1023), "cpu": (0, MAX_CPUS - 1), "idx": (0, MAX_PCP_LISTS - 1)}
#: Of a zone, in pages.
_COUNTED = ("nr_free", "wmark_min", "wmark_low", "wmark_high", "wmark_promo", "managed",
            "start_pfn", "spanned")  # fmt: skip
_ZONE_NAME = re.compile(r"\b(?:name|zone)=(\w{1,16})\b")


def _zone_name(line: str, path: Path, row: int) -> str:
    found = _ZONE_NAME.search(line)
    if not found:
        raise InputError("the zone's name is missing", file=path, row=row)
    return found[1]


def _pfns(text: str, zone: ZoneState, order: int, path: Path, row: int) -> tuple[np.ndarray, bool]:
    """Hexadecimal pfns of blocks of 2**order pages inside the zone; whether the list moved.

    Whoever dumps a list that moves ends up outside it, and writes ``!address``.
    """
    words = text.split()
    torn = bool(words) and words[-1].startswith("!")
    try:
        pfns = np.array([int(word, 16) for word in words[: len(words) - torn]], np.int64)
    except (ValueError, OverflowError):
        raise InputError("page numbers are not hexadecimal", file=path, row=row) from None
    wrong = (pfns < zone.start_pfn) | (pfns + (1 << order) > zone.end_pfn)
    wrong |= (pfns & ((1 << order) - 1)) != 0
    if wrong.any():
        raise InputError(
            f"pfn {int(pfns[wrong][0]):#x} is no block of order {order} in {zone.name}: "
            f"{zone.start_pfn:#x}..{zone.end_pfn - 1:#x}",
            file=path,
            row=row,
        )
    return pfns, torn


def _read_pcps(text: str, path: Path, tag: str, first_row: int = 1) -> Snapshot:
    zones: dict[tuple[int, str], ZoneState] = {}
    pcps: dict[tuple[int, str, int], PcpState] = {}
    for row, line in enumerate(text.splitlines(), first_row):
        kind, _, rest = line.partition(" ")
        if kind == "zone":
            values = _pairs(rest, _ZONE_FIELDS, path, row)
            zone = ZoneState(name=_zone_name(line, path, row), **values)
            if zone.key in zones:
                raise InputError(f"zone {zone.name} of node {zone.node} twice", file=path, row=row)
            if zone.managed > zone.spanned:
                raise InputError("managed exceeds spanned", file=path, row=row)
            zones[zone.key] = zone
            continue
        if kind not in ("pcp", "list"):
            raise InputError(f"unknown kind of line {kind[:20]!r}", file=path, row=row)
        name = _zone_name(line, path, row)
        if kind == "pcp":
            values = _pairs(rest, _PCP_FIELDS, path, row)
            pcp = PcpState(zone=name, **values)  # type: ignore[arg-type]
            key = (pcp.node, name, pcp.cpu)
            if (pcp.node, name) not in zones or key in pcps:
                raise InputError("pcp of an unknown zone, or twice", file=path, row=row)
            pcps[key] = pcp
            continue
        head, colon, tail = rest.partition(":")
        values = _pairs(head, _LIST_FIELDS, path, row)
        owner = pcps.get((values["node"], name, values["cpu"]))
        if not colon or owner is None or values["idx"] in owner.lists:
            raise InputError("list of an unknown pcp, or twice", file=path, row=row)
        order = pindex_to_order(values["idx"])
        zone = zones[values["node"], name]
        owner.lists[values["idx"]], torn = _pfns(tail, zone, order, path, row)
        owner.torn |= torn
    if not zones or not pcps:
        raise InputError("no zone and pcp lines", file=path)
    return Snapshot(tag, list(zones.values()), pcps)


def _read_free(text: str, path: Path, zones: dict[tuple[int, str], ZoneState]):
    free: dict[tuple[int, str], dict[tuple[int, int], np.ndarray]] = {k: {} for k in zones}
    moved = set()
    names = {"node": (0, 1023), "order": (0, 10), "mt": (0, 5)}
    for row, line in enumerate(text.splitlines(), 1):
        head, colon, tail = line.partition(":")
        if not colon or not head.startswith("free "):
            raise InputError("not a 'free node=... zone=...:' line", file=path, row=row)
        v = _pairs(head, names, path, row)
        key = (v["node"], _zone_name(line, path, row))
        if key not in zones or (v["order"], v["mt"]) in free[key]:
            raise InputError("free list of an unknown zone, or twice", file=path, row=row)
        pfns, torn = _pfns(tail, zones[key], v["order"], path, row)
        free[key][v["order"], v["mt"]] = pfns
        if torn:
            moved.add((key, (v["order"], v["mt"])))
    return free, moved


def _read_blocks(text: str, path: Path, zones: dict[tuple[int, str], ZoneState]):
    blocks: dict[tuple[int, str], tuple[int, np.ndarray]] = {}
    names = {"node": (0, 1023), "first_block_pfn": (0, MAX_PFN), "order": (9, 9)}
    for row, line in enumerate(text.splitlines(), 1):
        head, colon, tail = line.partition(":")
        if not colon or not head.startswith("pageblocks "):
            raise InputError("not a 'pageblocks node=... zone=...:' line", file=path, row=row)
        v = _pairs(head, names, path, row)
        key = (v["node"], _zone_name(line, path, row))
        if key not in zones or key in blocks:
            raise InputError("pageblocks of an unknown zone, or twice", file=path, row=row)
        try:
            types = np.array([BLOCK_TYPES[c] for c in tail.replace(" ", "")], np.int8)
        except KeyError as error:
            raise InputError(f"no migratetype: {error.args[0]!r}", file=path, row=row) from None
        first, zone = v["first_block_pfn"], zones[key]
        end = first + 512 * len(types)
        if first > zone.start_pfn or end < zone.end_pfn:
            raise InputError(
                f"page blocks {first:#x}..{end:#x} do not cover the zone, whose pcpstate says "
                f"{zone.start_pfn:#x}..{zone.end_pfn:#x}",
                file=path,
                row=row,
            )
        blocks[key] = first, types
    for key in zones.keys() - blocks.keys():
        raise InputError(f"no page blocks of node {key[0]}, zone {key[1]}", file=path)
    return blocks


def _read_zoneinfo(text: str, path: Path, tag: str) -> Snapshot:
    """/proc/zoneinfo: populated zones and their pagesets, without lists."""
    found = zoneinfo.parse(text, path)
    if len(found) > 1:
        raise InputError(f"holds {len(found)} snapshots; expected one", file=path)
    zones: list[ZoneState] = []
    pcps: dict[tuple[int, str, int], PcpState] = {}
    for zone in found[0].zones:
        if not zone.managed:
            continue
        state = ZoneState(
            node=zone.node,
            idx=len(zones),
            name=zone.name,
            addr=0,
            nr_free=zone.free,
            flags=0,
            wmark_min=zone.min,
            wmark_low=zone.low,
            wmark_high=zone.high,
            wmark_promo=zone.promo or 0,
            managed=zone.managed,
            start_pfn=0 if zone.start_pfn is None else zone.start_pfn,
            spanned=zone.spanned,
            pageset_high_min=-1,
            pageset_high_max=-1,
            pageset_batch=-1,
        )
        for name in _COUNTED:
            if getattr(state, name) > MAX_PFN:
                value = getattr(state, name)
                raise InputError(f"{name}={value} is not a number in 0..{MAX_PFN}", file=path,
                                 row=zone.row)  # fmt: skip
        if zone.managed > zone.spanned:
            raise InputError("managed exceeds spanned", file=path, row=zone.row)
        zones.append(state)
        for p in zone.pagesets:
            given = {k: getattr(p, k) for k in ("count", "high", "batch", "high_min", "high_max")}
            pcps[zone.node, zone.name, p.cpu] = PcpState(
                zone.node, zone.name, p.cpu, addr=0, flags=-1, alloc_factor=-1, free_factor=-1,
                expire=-1, free_count=-1,
                **{k: -1 if v is None else min(v, _INT[1]) for k, v in given.items()})  # fmt: skip
    if not zones or not pcps:
        raise InputError("no zones with pagesets", file=path)
    return Snapshot(tag, zones, pcps)


_TAG = re.compile(r"pcpstate\.([A-Za-z0-9][A-Za-z0-9._-]{0,40}?)(?:\.gz|\.zst)?$")


class Recording:
    """One recording; made by `recording`.

    Attributes
    ----------
    path : pathlib.Path
    name : str
    meta : dict
        ``meta.json``.
    kernel : str
        Version of the recorded kernel: "6.12.107".
    release : Release
        The kernel state that was recorded, as given or `nearest_release` of the kernel.
    assumed : str
        Empty, or which release stands for a kernel that none is named after.
    cpus, memory_mib, numa_nodes : int
        The machine.
    tags : list of str
        Snapshots, in the order in which they were taken as far as it is known.
    progress : bool
        Show a tqdm bar while the trace is read.
    """

    progress = False

    def __init__(self, path: Path, meta: dict, release: str | Release | None = None) -> None:
        self.path = path
        self.meta = meta
        self.name = str(meta["capture"])
        self.cpus: int = meta["cpus"]
        self.memory_mib: int = meta.get("memory_mib", 0)
        self.numa_nodes: int = meta.get("numa_nodes", 1)
        self.kernel = _kernel_of(meta)
        self.assumed = ""
        if release is not None:
            self.release = find_release(release)
        else:
            try:
                self.release = nearest_release(self.kernel)
            except InputError as error:
                raise InputError(str(error), file=path / "meta.json") from None
            if self.release.name not in (f"v{self.kernel}", f"debian-{self.kernel}"):
                self.assumed = (
                    f"release {self.release.name}, the nearest known to Linux {self.kernel}"
                )
        self._snapshots: dict[str, Snapshot] = {}
        self._series: tuple[Snapshot, ...] | None = None
        self.markers: Any = None  #: of the trace, once ``read_markers`` has read and checked them
        self.tags = sorted(
            (m[1] for p in path.iterdir() if (m := _TAG.match(p.name)) and m[1] != "series"),
            key=lambda t: (t != "before", t in ("after", "end"), t),
        )

    def __repr__(self) -> str:
        return (
            f"<Recording {self.name}: {self.release}, {self.cpus} CPUs, {self.memory_mib} MiB, "
            f"{self.numa_nodes} node{'s' * (self.numa_nodes > 1)}, "
            f"{printable(str(self.meta.get('workload', 'unknown workload')))[:200]}>"
        )

    def file(self, name: str) -> Path:
        """Path of a file of the recording, whether or not it is compressed.

        Raises
        ------
        InputError
            If there is none, or it leads out of the recording's directory.
        """
        if "/" in name or "\\" in name or name.startswith("."):
            raise InputError(f"{name!r} is not the name of a recording's file", file=self.path)
        root = self.path.resolve()
        for suffix in ("", ".gz", ".zst"):
            path = self.path / (name + suffix)
            if path.is_file():
                if path.resolve().parent != root:
                    raise InputError("leads out of the recording's directory", file=path)
                return path
        raise InputError(f"the recording has no {name}", file=self.path)

    def has(self, name: str) -> bool:
        """Whether `file` would find *name*."""
        return any((self.path / (name + suffix)).is_file() for suffix in ("", ".gz", ".zst"))

    def snapshot(self, tag: str) -> Snapshot:
        """The lists at one moment: PCP lists and, where dumped, buddy lists and blocks.

        Read once and kept, as the trace is: for all who ask, and so not to be changed.
        """
        if tag not in self.tags:
            raise unknown_name("snapshot", tag, self.tags)
        if tag not in self._snapshots:
            self._snapshots[tag] = self._read_snapshot(tag)
        return self._snapshots[tag]

    def _read_snapshot(self, tag: str) -> Snapshot:
        path = self.file(f"pcpstate.{tag}")
        found = self._check(_read_pcps(_read(path), path, tag), path)
        zones = {z.key: z for z in found.zones}
        if self.has(f"buddylists.{tag}"):
            path = self.file(f"buddylists.{tag}")
            found.free, found.torn = _read_free(_read(path), path, zones)
        if self.has(f"pageblocks.{tag}"):
            path = self.file(f"pageblocks.{tag}")
            found.blocks = _read_blocks(_read(path), path, zones)
        return found

    def zoneinfo(self, tag: str) -> Snapshot:
        """What /proc/zoneinfo told at one moment: sizes and counts, no lists."""
        path = self.file(f"zoneinfo.{tag}")
        return self._check(_read_zoneinfo(_read(path), path, tag), path)

    def compaction(self) -> int | None:
        """Pages that compaction isolated between the first and the last ``vmstat``; None: unknown.

        In use or free: ``compact_isolated`` counts both.
        """
        told = []
        for tag in ("before", "after"):
            if not self.has(f"vmstat.{tag}"):
                return None
            path = self.file(f"vmstat.{tag}")
            found = re.search(r"^compact_isolated (\d{1,18})$", _read(path), re.M)
            if found is None:
                return None
            told.append(int(found[1]))
        if told[1] < told[0]:
            raise InputError(
                f"compact_isolated={told[1]}, less than {told[0]} in vmstat.before", file=path
            )
        return told[1] - told[0]

    def series(self) -> tuple[Snapshot, ...]:
        """PCP lists of the one-per-second snapshots, if the recording has any; kept, as others."""
        if self._series is None:
            known = self.has("pcpstate.series")
            self._series = tuple(self._read_series()) if known else ()
        return self._series

    def _read_series(self) -> Iterator[Snapshot]:
        path = self.file("pcpstate.series")
        text = _read(path)
        row = 1
        for part in re.split(r"^=== ", text, flags=re.M):
            tag, _, body = part.partition("\n")
            if tag:
                row += 1
                yield self._check(_read_pcps(body, path, tag.strip(), row), path)
            row += body.count("\n")

    def _check(self, found: Snapshot, path: Path) -> Snapshot:
        beyond = max((p.cpu for p in found.pcps.values()), default=0)
        if beyond >= self.cpus:
            raise InputError(f"pcp of CPU {beyond}, but meta.json says cpus={self.cpus}", file=path)
        return found

    @property
    def high_fraction(self) -> int:
        """``vm.percpu_pagelist_high_fraction`` at the recording's end; 0 where it is not told."""
        from pcpmodel.kernel.sizing import percpu_pagelist_high_fraction

        if not self.has("high_fraction"):
            return 0
        path = self.file("high_fraction")
        value = _number(_read(path, 64).strip(), "high_fraction", path, 1, 0, (1 << 31) - 1)
        try:
            return percpu_pagelist_high_fraction(value)
        except InputError as error:
            raise InputError(error.message, file=path, row=1) from None

    @cached_property
    def trace(self):
        """All events and the reader with its counters: (Events, TraceReader)."""
        from pcpmodel.trace.ftrace import read_trace

        events, reader = read_trace(self.file("trace.txt"), progress=self.progress)
        numbers = reader.numbers
        if numbers["max_cpu"] >= self.cpus:
            raise InputError(
                f"an event of CPU {numbers['max_cpu']}, but meta.json says cpus={self.cpus}",
                file=self.file("trace.txt"),
            )
        return events, reader

    @property
    def lost(self) -> int:
        """Events lost by the kernel's own account: ring buffers, headings, LOST lines."""
        total = self.trace[1].lost + abs(self.trace[1].missing)
        stats = self.meta.get("ring_buffer_stats", {})
        by_ring = 0
        for ring in stats.values() if isinstance(stats, dict) else ():
            for key in ("overrun", "commit overrun", "dropped events"):
                text = str(ring.get(key, "0")) if isinstance(ring, dict) else "0"
                by_ring += int(text) if text.isdecimal() and len(text) < 19 else 0
        return max(total, by_ring, self.meta.get("lost_events", 0))


def _kernel_of(meta: dict) -> str:
    """Version of the recorded kernel: its package's, which has the point release, or its own."""
    series = meta["kernel_series"]
    for name, version in (
        ("debian_package", r"\s(\d+\.\d+\.\d+)(?:~\S*)?-\d"),
        ("kernel", r"^Linux version (\d+\.\d+(?:\.\d+)?)"),
    ):
        found = re.search(version, str(meta.get(name, "")), re.ASCII)
        if found and f"{found[1]}.".startswith(f"{series}."):
            return found[1]
    return series


def recording_names() -> tuple[str, ...]:
    """Return the names of the recordings in ``data/traces``, sorted.

    Raises
    ------
    InputError
        If they are not there.
    """
    where = data_dir() / "traces"
    if not where.is_dir():
        raise InputError("no recordings here; they come with a checkout, not the wheel", file=where)
    return tuple(sorted(p.name for p in where.iterdir() if (p / "meta.json").is_file()))


def recording(
    name: str | os.PathLike[str] | Recording, release: str | Release | None = None
) -> Recording:
    """Open a recording: a directory with ``meta.json`` and ``trace.txt`` (plain, gzip or zstd).

    Parameters
    ----------
    name : str, path-like or Recording
        The directory, or the name of one of ``data/traces``; a `Recording` is returned as it is.
    release : str or Release, optional
        Rules that the recorded kernel followed; by default those of the known release nearest to
        its version (its ``assumed`` says which if none is named after it).

    Returns
    -------
    Recording

    Raises
    ------
    InputError
        If there is none of that name (the nearest is offered), the directory is no recording, or
        its description is not believable.
    """
    if isinstance(name, Recording):
        return name
    path = Path(name)
    if not path.is_dir() and len(path.parts) == 1:
        if path.name not in recording_names():
            raise unknown_name("recording", path.name, recording_names())
        path = data_dir() / "traces" / path
    if not path.is_dir():
        raise InputError(
            "is not a directory; a recording is one, such as data/traces/6.12-tcp-4cpu", file=path
        )
    where = path / "meta.json"
    if not where.is_file():
        raise InputError("has no meta.json; is it a recording?", file=path)
    meta = read_json(where, MAX_META_BYTES)
    if not isinstance(meta, dict):
        raise InputError("is not a JSON object", file=where)
    for name, kind, lo, hi in (
        ("capture", str, 1, 200),
        ("kernel_series", str, 1, 20),
        ("cpus", int, 1, MAX_CPUS),
    ):
        value = meta.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"{name}={value!r} is not {kind.__name__}", file=where)
        if not lo <= (len(value) if isinstance(value, str) else value) <= hi:
            raise InputError(f"{name}={value!r} is not {kind.__name__} in {lo}..{hi}", file=where)
        if isinstance(value, str) and not value.isprintable():
            raise InputError(f"{name}={value!r} holds control characters", file=where)
    for name in ("memory_mib", "numa_nodes", "lost_events"):
        value = meta.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
            raise InputError(f"{name}={value!r} is not a count", file=where)
    return Recording(path, meta, release)

"""A capture: a directory with one trace of one kernel and snapshots of its lists.

`capture` opens a directory; everything in it is read only when asked for, and
checked against the machine that the capture itself describes, since it may come
from a stranger: sizes, page numbers, names, references.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.releases import Release, release, releases

__all__ = ["Capture", "PcpState", "Snapshot", "ZoneState", "capture"]

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
        return sum(len(p) << (i // 3 if i < 12 else 9) for i, p in self.lists.items())


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
    torn : bool
        Some buddy list moved while it was being read.
    """

    tag: str
    zones: list[ZoneState]
    pcps: dict[tuple[int, str, int], PcpState]
    free: dict[tuple[int, str], dict[tuple[int, int], np.ndarray]] | None = None
    blocks: dict[tuple[int, str], tuple[int, np.ndarray]] | None = None
    torn: bool = False


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
_LIST_FIELDS = {"node": (0, 1023), "cpu": (0, MAX_CPUS - 1), "idx": (0, 13)}
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
        order = values["idx"] // 3 if values["idx"] < 12 else 9
        zone = zones[values["node"], name]
        owner.lists[values["idx"]], torn = _pfns(tail, zone, order, path, row)
        owner.torn |= torn
    if not zones or not pcps:
        raise InputError("no zone and pcp lines", file=path)
    return Snapshot(tag, list(zones.values()), pcps)


def _read_free(text: str, path: Path, zones: dict[tuple[int, str], ZoneState]):
    free: dict[tuple[int, str], dict[tuple[int, int], np.ndarray]] = {k: {} for k in zones}
    moved = False
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
        moved |= torn
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
        if v["first_block_pfn"] > zones[key].start_pfn or (
            v["first_block_pfn"] + 512 * len(types) < zones[key].end_pfn
        ):
            raise InputError("page blocks do not cover the zone", file=path, row=row)
        blocks[key] = v["first_block_pfn"], types
    for key in zones.keys() - blocks.keys():
        raise InputError(f"no page blocks of node {key[0]}, zone {key[1]}", file=path)
    return blocks


_PAGESET = {"count": "count", "high": "high", "batch": "batch", "high_min": "high_min",
            "high_max": "high_max"}  # fmt: skip
_WATERMARKS = {"free": "nr_free", "min": "wmark_min", "low": "wmark_low", "high": "wmark_high",
               "promo": "wmark_promo", "spanned": "spanned", "managed": "managed"}  # fmt: skip


def _read_zoneinfo(text: str, path: Path, tag: str) -> Snapshot:
    """/proc/zoneinfo: populated zones and their pagesets, without lists."""
    zones: list[ZoneState] = []
    pcps: dict[tuple[int, str, int], PcpState] = {}
    values: dict[str, int] = {}
    node, name, cpu = -1, "", -1
    pagesets: dict[int, dict[str, int]] = {}

    def end_of_zone(row: int) -> None:
        if not name or not values.get("managed"):
            return
        missing = [k for k in ("start_pfn", *_WATERMARKS.values()) if k not in values]
        if missing and missing != ["wmark_promo"]:
            raise InputError(f"zone {name} has no {missing[0]}", file=path, row=row)
        if (node, name) in {z.key for z in zones}:
            raise InputError(f"zone {name} of node {node} twice", file=path, row=row)
        if values["managed"] > values["spanned"]:
            raise InputError("managed exceeds spanned", file=path, row=row)
        for n, given in pagesets.items():
            lacks = [k for k in ("count", "high", "batch") if k not in given]
            if lacks:
                raise InputError(f"pageset of CPU {n} has no {lacks[0]}", file=path, row=row)
            fields_ = {k: given.get(k, -1) for k in _PAGESET}
            pcps[node, name, n] = PcpState(
                node, name, n, addr=0, flags=-1, alloc_factor=-1, free_factor=-1, expire=-1,
                free_count=-1, **fields_)  # fmt: skip
        zones.append(
            ZoneState(
                node=node,
                idx=len(zones),
                name=name,
                addr=0,
                flags=0,
                **{k: values.get(k, 0) for k in _WATERMARKS.values()},
                start_pfn=values["start_pfn"],
                pageset_high_min=-1,
                pageset_high_max=-1,
                pageset_batch=-1,
            )
        )

    row = 0
    for row, line in enumerate(text.splitlines(), 1):
        head = re.fullmatch(r"Node (\d{1,4}), zone +(\w{1,16})", line)
        if head:
            end_of_zone(row)
            node, name, cpu, values, pagesets = int(head[1]), head[2], -1, {}, {}
            continue
        words = line.replace("pages free", "free", 1).replace(":", " ").split()
        if len(words) != 2 or not words[1].isdecimal():
            continue
        key, value = words[0], _number(words[1], words[0], path, row, 0, MAX_PFN)
        if key == "cpu":
            cpu = _number(words[1], "cpu", path, row, 0, MAX_CPUS - 1)
            pagesets[cpu] = {}
        elif cpu >= 0 and key in _PAGESET:
            pagesets[cpu][key] = min(value, (1 << 31) - 1)
        elif key == "start_pfn":
            values["start_pfn"] = value
        elif cpu < 0 and key in _WATERMARKS:
            values[_WATERMARKS[key]] = value
    end_of_zone(row)
    if not zones or not pcps:
        raise InputError("no zones with pagesets", file=path)
    return Snapshot(tag, zones, pcps)


_TAG = re.compile(r"pcpstate\.([A-Za-z0-9][A-Za-z0-9._-]{0,40}?)(?:\.gz|\.zst)?$")
#: Release of a kernel without a Debian package, by series.
_SERIES = {"6.1": "debian-6.1.192", "6.6": "v6.6", "6.7": "v6.7", "6.12": "v6.12"}


class Capture:
    """One recording; made by `capture`.

    Attributes
    ----------
    path : pathlib.Path
    name : str
    meta : dict
        ``meta.json``.
    release : Release
        The kernel state that was recorded.
    cpus, memory_mib, numa_nodes : int
        The machine.
    tags : list of str
        Snapshots, in the order in which they were taken as far as it is known.
    progress : bool
        Show a tqdm bar while the trace is read.
    """

    progress = False

    def __init__(self, path: Path, meta: dict) -> None:
        self.path = path
        self.meta = meta
        self.name = str(meta["capture"])
        self.cpus: int = meta["cpus"]
        self.memory_mib: int = meta.get("memory_mib", 0)
        self.numa_nodes: int = meta.get("numa_nodes", 1)
        self.release = _release_of(meta, path / "meta.json")
        self._snapshots: dict[str, Snapshot] = {}
        self.tags = sorted(
            (m[1] for p in path.iterdir() if (m := _TAG.match(p.name)) and m[1] != "series"),
            key=lambda t: (t != "before", t in ("after", "end"), t),
        )

    def __repr__(self) -> str:
        return (
            f"<Capture {self.name}: {self.release}, {self.cpus} CPUs, {self.memory_mib} MiB, "
            f"{self.numa_nodes} node{'s' * (self.numa_nodes > 1)}, "
            f"{self.meta.get('workload', 'unknown workload')}>"
        )

    def file(self, name: str) -> Path:
        """Path of a file of the capture, whether or not it is compressed.

        Raises
        ------
        InputError
            If there is none, or it leads out of the capture's directory.
        """
        if "/" in name or "\\" in name or name.startswith("."):
            raise InputError(f"{name!r} is not the name of a capture's file", file=self.path)
        root = self.path.resolve()
        for suffix in ("", ".gz", ".zst"):
            path = self.path / (name + suffix)
            if path.is_file():
                if path.resolve().parent != root:
                    raise InputError("leads out of the capture's directory", file=path)
                return path
        raise InputError(f"the capture has no {name}", file=self.path)

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

    def series(self) -> Iterator[Snapshot]:
        """PCP lists of the one-per-second snapshots, if the capture has any."""
        if not self.has("pcpstate.series"):
            return
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
        told = self.meta.get("lost_events", 0)
        return max(total, by_ring, told if isinstance(told, int) else 0)


def _release_of(meta: dict, path: Path) -> Release:
    known = {r.name for r in releases()}
    version = re.search(r"\b(\d+\.\d+)\.(\d+)(?:~\S*)?-\d", str(meta.get("debian_package", "")))
    series = meta["kernel_series"]
    if version and version[1] == series and f"debian-{series}.{version[2]}" in known:
        return release(f"debian-{series}.{version[2]}")
    if series == "6.18":
        # Stable took the decay in chunks before 6.18.15; v6.18.0 did not have it.
        point = re.search(r"\b6\.18\.(\d+)", str(meta.get("kernel", "")))
        chunks = point is not None and int(point[1]) >= 15
        return release("v6.18").plus("decay-chunks") if chunks else release("v6.18")
    name = _SERIES.get(series, f"v{series}")
    if name not in known:
        raise InputError(
            f"kernel_series {series[:20]!r} is not modelled; known: {', '.join(sorted(known))}",
            file=path,
        )
    return release(name)


def capture(path: str | Path) -> Capture:
    """Open a capture: a directory with ``meta.json`` and ``trace.txt`` (plain, gzip or zstd).

    Parameters
    ----------
    path : path-like

    Returns
    -------
    Capture

    Raises
    ------
    InputError
        If the directory is no capture, or its description is not believable.
    """
    path = Path(path)
    if not path.is_dir():
        raise InputError(
            "is not a directory; a capture is one, such as data/traces/6.12-tcp-4cpu", file=path
        )
    where = path / "meta.json"
    if not where.is_file():
        raise InputError("has no meta.json; is it a capture?", file=path)
    if where.stat().st_size > MAX_META_BYTES:
        raise InputError(f"larger than {MAX_META_BYTES} bytes", file=where)
    try:
        meta = json.loads(where.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", file=where) from None
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
    for name in ("memory_mib", "numa_nodes"):
        value = meta.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
            raise InputError(f"{name}={value!r} is not a count", file=where)
    return Capture(path, meta)

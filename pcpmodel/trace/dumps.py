# SPDX-License-Identifier: GPL-2.0-only
"""Dumps of a kernel's page lists: text to records, checked, since it may come from a stranger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.kernel.lists import MAX_PCP_LISTS, pindex_to_order
from pcpmodel.proc import zoneinfo

__all__ = ["MAX_CPUS", "PcpState", "Snapshot", "ZoneState", "number", "read_blocks", "read_free",
           "read_pcps", "read_zoneinfo", "read_zoneinfo_series"]  # fmt: skip

MAX_CPUS = 8192
MAX_PFN = 1 << 40
MAX_INT = (1 << 31) - 1

#: Pageblock characters -> migratetype; ``.`` no memory, ``I`` isolated.
BLOCK_TYPES = {**{str(n): n for n in range(6)}, ".": -1, "I": 5}

Key = tuple[int, str]  # node, zone name


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
    rows : dict
        Line of each zone and of each pageset in its file, by the keys above.
    row : int
        Line of the file with the tag, or the first.
    """

    tag: str
    zones: list[ZoneState]
    pcps: dict[tuple[int, str, int], PcpState]
    free: dict[tuple[int, str], dict[tuple[int, int], np.ndarray]] | None = None
    blocks: dict[tuple[int, str], tuple[int, np.ndarray]] | None = None
    torn: set[tuple[tuple[int, str], tuple[int, int]]] = field(default_factory=set)
    rows: dict[tuple[int, str] | tuple[int, str, int], int] = field(
        default_factory=dict, compare=False
    )
    row: int = field(default=1, compare=False)


_WORD = (0, (1 << 64) - 1)
#: Fields of each kind of line that are numbers, and their ranges.
_FIELDS: dict[str, dict[str, tuple[int, int]]] = {
    "zone": {f.name: (0, MAX_PFN) for f in fields(ZoneState) if f.name != "name"}
    | {"idx": (0, 15), "addr": _WORD, "flags": _WORD, "pageset_high_max": (-1, MAX_PFN)},
    "pcp": {"cpu": (0, MAX_CPUS - 1), "addr": _WORD}
    | {f.name: (-1, MAX_INT) for f in fields(PcpState)[4:-2]}
    | {"flags": (-1, 127)},
    "list": {"cpu": (0, MAX_CPUS - 1), "idx": (0, MAX_PCP_LISTS - 1)},
    "free": {"order": (0, 10), "mt": (0, 5)},
    "pageblocks": {"first_block_pfn": (0, MAX_PFN), "order": (9, 9)},
}
_ZONE_NAME = re.compile(r" (?:name|zone)=(\w{1,16})(?= |$)")


def number(text: str, name: str, path: Path, row: int, lo: int, hi: int) -> int:
    """The number that a field *name* is, or InputError."""
    try:
        value = int(text, 16 if text.startswith("0x") else 10) if len(text) < 24 else None
    except ValueError:
        value = None
    if value is None or not lo <= value <= hi:
        raise InputError(f"{name}={text[:40]!r} is not a number in {lo}..{hi}", file=path, row=row)
    return value


class _Line:
    """``KIND name=value name=value ...: REST`` of a dump.

    Attributes
    ----------
    values : dict
        The numbers that its kind has.
    key : (int, str)
        Node and name of the zone.
    rest : str or None
        What follows the colon, if there is one.
    """

    def __init__(self, text: str, path: Path, row: int, kinds: tuple[str, ...]) -> None:
        self.path, self.row = path, row
        head, colon, rest = text.partition(":")
        self.rest = rest if colon else None
        self.kind, _, pairs = head.partition(" ")
        if self.kind not in kinds:
            raise self.wrong(f"not a line of {' or '.join(kinds)}: {self.kind[:20]!r}")
        given = dict(part.split("=", 1) for part in pairs.split() if "=" in part)
        self.values = {}
        for name, (lo, hi) in ({"node": (0, 1023)} | _FIELDS[self.kind]).items():
            if name not in given:
                raise self.wrong(f"{name}= is missing")
            self.values[name] = number(given[name], name, path, row, lo, hi)
        found = _ZONE_NAME.search(head)
        if not found:
            raise self.wrong("the zone's name is missing")
        self.name = found[1]
        self.key: Key = self.values["node"], self.name

    def wrong(self, what: str) -> InputError:
        return InputError(what, file=self.path, row=self.row)

    def blocks(self, zone: ZoneState, order: int) -> tuple[np.ndarray, bool]:
        """Page frames of blocks of 2**order pages inside the zone; whether the list moved.

        Whoever dumps a list that moves ends up outside it, and writes ``!address``.
        """
        if self.rest is None:
            raise self.wrong("a list has a colon before its page frames")
        text, torn, _ = self.rest.partition("!")
        try:
            pfns = np.array([int(word, 16) for word in text.replace("_", "?").split()], np.int64)
        except (ValueError, OverflowError):
            raise self.wrong("page numbers are not hexadecimal") from None
        wrong = (pfns < zone.start_pfn) | (pfns + (1 << order) > zone.end_pfn)
        wrong |= (pfns & ((1 << order) - 1)) != 0
        if wrong.any():
            raise self.wrong(
                f"pfn {int(pfns[wrong][0]):#x} is no block of order {order} in {zone.name}: "
                f"{zone.start_pfn:#x}..{zone.end_pfn - 1:#x}"
            )
        return pfns, bool(torn)


def _lines(text: str, path: Path, *kinds: str, first_row: int = 1) -> Iterator[_Line]:
    for row, line in enumerate(text.splitlines(), first_row):
        yield _Line(line, path, row, kinds)


def read_pcps(text: str, path: Path, tag: str, first_row: int = 1) -> Snapshot:
    """Read a ``pcpstate``: zones, pagesets and their lists."""
    zones: dict[Key, ZoneState] = {}
    pcps: dict[tuple[int, str, int], PcpState] = {}
    rows: dict[tuple[int, str] | tuple[int, str, int], int] = {}
    for line in _lines(text, path, "zone", "pcp", "list", first_row=first_row):
        if line.kind == "zone":
            zone = ZoneState(name=line.name, **line.values)
            if line.key in zones:
                raise line.wrong(f"zone {zone.name} of node {zone.node} twice")
            if zone.managed > zone.spanned:
                raise line.wrong("managed exceeds spanned")
            zones[line.key] = zone
            rows[line.key] = line.row
            continue
        key = (*line.key, line.values["cpu"])
        if line.kind == "pcp":
            if line.key not in zones or key in pcps:
                raise line.wrong("pcp of an unknown zone, or twice")
            pcps[key] = PcpState(zone=line.name, **line.values)
            rows[key] = line.row
            continue
        pindex = line.values["idx"]
        if key not in pcps or pindex in pcps[key].lists:
            raise line.wrong("list of an unknown pcp, or twice")
        pfns, torn = line.blocks(zones[line.key], pindex_to_order(pindex))
        pcps[key].lists[pindex] = pfns
        pcps[key].torn |= torn
    if not zones or not pcps:
        raise InputError("no zone and pcp lines", file=path)
    return _disjoint(Snapshot(tag, list(zones.values()), pcps, rows=rows, row=first_row), path)


def _disjoint(found: Snapshot, path: Path) -> Snapshot:
    """Zones of a node do not overlap, but for the movable one (kernelcore=mirror)."""
    fixed = (z for z in found.zones if z.name != "Movable")
    ordered = sorted(fixed, key=lambda z: (z.node, z.start_pfn))
    for below, zone in pairwise(ordered):
        if below.node == zone.node and zone.start_pfn < below.end_pfn:
            raise InputError(
                f"zone {zone.name} of node {zone.node} begins at page {zone.start_pfn}, within "
                f"zone {below.name}: {below.start_pfn}..{below.end_pfn - 1}",
                file=path, row=found.rows[zone.key],
            )  # fmt: skip
    return found


def read_free(text: str, path: Path, zones: Mapping[Key, ZoneState]):
    """Read ``buddylists``: `Snapshot.free` and `Snapshot.torn`."""
    free: dict[Key, dict[tuple[int, int], np.ndarray]] = {k: {} for k in zones}
    moved = set()
    for line in _lines(text, path, "free"):
        what = line.values["order"], line.values["mt"]
        if line.key not in zones or what in free[line.key]:
            raise line.wrong("free list of an unknown zone, or twice")
        free[line.key][what], torn = line.blocks(zones[line.key], what[0])
        if torn:
            moved.add((line.key, what))
    return free, moved


def read_blocks(text: str, path: Path, zones: Mapping[Key, ZoneState]):
    """Read ``pageblocks``: `Snapshot.blocks`."""
    blocks: dict[Key, tuple[int, np.ndarray]] = {}
    for line in _lines(text, path, "pageblocks"):
        if line.key not in zones or line.key in blocks:
            raise line.wrong("pageblocks of an unknown zone, or twice")
        try:
            told = [BLOCK_TYPES[c] for c in (line.rest or "").replace(" ", "")]
        except KeyError as error:
            raise line.wrong(f"no migratetype: {error.args[0]!r}") from None
        first, zone = line.values["first_block_pfn"], zones[line.key]
        end = first + 512 * len(told)
        if first > zone.start_pfn or end < zone.end_pfn:
            raise line.wrong(
                f"page blocks {first:#x}..{end:#x} do not cover the zone, whose pcpstate says "
                f"{zone.start_pfn:#x}..{zone.end_pfn:#x}"
            )
        blocks[line.key] = first, np.array(told, np.int8)
    for key in zones.keys() - blocks.keys():
        raise InputError(f"no page blocks of node {key[0]}, zone {key[1]}", file=path)
    return blocks


def read_zoneinfo(text: str, path: Path, tag: str) -> Snapshot:
    """/proc/zoneinfo: populated zones and their pagesets, without lists."""
    found = zoneinfo.parse(text, path)
    if len(found) > 1:
        raise InputError(f"holds {len(found)} snapshots; expected one", file=path)
    return _snapshot_of(found[0], path, tag)


def read_zoneinfo_series(text: str, path: Path) -> Iterator[Snapshot]:
    """Several of them, each led by its tag."""
    seen: dict[str, int] = {}
    for found in zoneinfo.parse(text, path):
        snapshot = _snapshot_of(found, path, found.tag or "")
        snapshot.row = found.zones[0].row - 1
        if snapshot.tag in seen:
            raise InputError(
                f"tag {snapshot.tag!r} is there a second time, first in row {seen[snapshot.tag]}",
                file=path, row=snapshot.row,
            )  # fmt: skip
        seen[snapshot.tag] = snapshot.row
        yield snapshot


def _snapshot_of(found: zoneinfo.Zoneinfo, path: Path, tag: str) -> Snapshot:
    zones: list[ZoneState] = []
    pcps: dict[tuple[int, str, int], PcpState] = {}
    rows: dict[tuple[int, str] | tuple[int, str, int], int] = {}
    for zone in found.zones:
        if not zone.managed:
            continue
        # Without the boost, which comes and goes, as a dump has them.
        mark = {name: (getattr(zone, name) or zone.boost) - zone.boost
                for name in ("min", "low", "high", "promo")}  # fmt: skip
        counted = {
            "nr_free": zone.free, "managed": zone.managed,
            **{f"wmark_{name}": value for name, value in mark.items()},
            "start_pfn": zone.start_pfn or 0, "spanned": zone.spanned,
        }  # fmt: skip
        for name, value in counted.items():
            number(str(value), name, path, zone.row, 0, MAX_PFN)
        if zone.managed > zone.spanned:
            raise InputError("managed exceeds spanned", file=path, row=zone.row)
        zones.append(ZoneState(
            node=zone.node, idx=len(zones), name=zone.name, addr=0, flags=0, pageset_high_min=-1,
            pageset_high_max=-1, pageset_batch=-1, **counted))  # fmt: skip
        rows[zone.node, zone.name] = zone.row
        for p in zone.pagesets:
            values = dict.fromkeys(_FIELDS["pcp"], -1) | {"addr": 0, "cpu": p.cpu}
            for name in ("count", "high", "batch", "high_min", "high_max"):
                value = getattr(p, name)
                values[name] = -1 if value is None else min(value, MAX_INT)
            pcps[zone.node, zone.name, p.cpu] = PcpState(zone.node, zone.name, **values)
    if not zones or not pcps:
        raise InputError("no zones with pagesets", file=path)
    return _disjoint(Snapshot(tag, zones, pcps, rows=rows), path)

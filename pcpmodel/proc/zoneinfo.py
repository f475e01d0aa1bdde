"""``/proc/zoneinfo``: a strict reader, the only one.

It takes what kernels 4.19 ... 7.3 print (mm/vmstat.c, zoneinfo_show_print()): names of
statistics may come and go, the frame around them may not.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pcpmodel.errors import InputError
from pcpmodel.files import open_regular

__all__ = ["Pageset", "Zone", "Zoneinfo", "parse", "read"]

#: Largest file read [bytes]: a thousand CPUs on eight nodes print 6 MiB.
MAX_BYTES = 256 << 20

_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)
_HEADER = re.compile(r"Node ([0-9]{1,9}), zone +(\S+)", re.ASCII)
_PAIR = re.compile(r"( *)(pages free|[A-Za-z_][A-Za-z0-9_]*):? +([^\s(]\S*)", re.ASCII)
_PROTECTION = re.compile(r"        protection: \(([^()]*)\)")
_TAG = "=== "

_MARKS = ("min", "low", "high", "spanned", "present", "managed")
#: zoneinfo_show_print() prints cma from v5.12 on, boost from v5.16 on, and promo after them.
_LATER_MARKS = ("cma", "boost")
_PAGESET = ("count", "high", "batch")
_TAIL = ("node_unreclaimable", "start_pfn")


@dataclass(frozen=True, slots=True)
class Pageset:
    """One CPU's lists of one zone [pages]; None where the kernel does not print it."""

    cpu: int
    count: int
    high: int
    batch: int
    high_min: int | None
    high_max: int | None
    stat_threshold: int | None


@dataclass(frozen=True)
class Zone:
    """One zone as printed: pages, except ``start_pfn`` and ``node_unreclaimable``.

    ``min``, ``low``, ``high`` and ``promo`` include ``boost``, as the kernel prints them.
    An unpopulated zone has no statistics and no pagesets; ``extra`` has what only some
    kernels print (``reserved_highatomic``, ``free_highatomic``).
    """

    node: int
    name: str
    row: int
    free: int
    boost: int
    min: int
    low: int
    high: int
    promo: int | None
    spanned: int
    present: int
    managed: int
    cma: int
    protection: tuple[int, ...]
    stats: Mapping[str, int]
    pagesets: tuple[Pageset, ...]
    node_unreclaimable: int | None
    start_pfn: int | None
    extra: Mapping[str, int]

    @property
    def populated(self) -> bool:
        """Whether the zone has memory, and so lists."""
        return self.present > 0

    @property
    def low_wmark_pages(self) -> int:
        """Low watermark without the boost [pages]."""
        return self.low - self.boost


@dataclass(frozen=True)
class Zoneinfo:
    """One snapshot of ``/proc/zoneinfo``."""

    zones: tuple[Zone, ...]
    node_stats: Mapping[int, Mapping[str, int]]
    file: str | None = None
    tag: str | None = None  #: of a snapshot in a series

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node numbers, ascending."""
        return tuple(sorted({z.node for z in self.zones}))

    @property
    def populated(self) -> tuple[Zone, ...]:
        """Zones that have memory."""
        return tuple(z for z in self.zones if z.populated)

    @property
    def online_cpus(self) -> tuple[int, ...]:
        """CPUs that were online: those that every populated zone lists."""
        return tuple(p.cpu for p in self.populated[0].pagesets)


class _Parser:
    """Walks over the lines of one snapshot."""

    def __init__(self, lines: Sequence[str], file: object, first_row: int, tag: str | None) -> None:
        self.lines = lines
        self.file = file
        self.first_row = first_row
        self.tag = tag
        self.at = 0
        self.later_marks: tuple[str, ...] | None = None  # that this kernel prints

    @property
    def line(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def fail(self, message: str, at: int | None = None, column: str | None = None) -> NoReturn:
        row = self.first_row + (self.at if at is None else at)
        raise InputError(message, file=self.file, row=row, column=column)

    def expected(self, what: str) -> NoReturn:
        if self.line is None:
            self.fail(f"the file ends where {what} is due: it is cut off")
        shown = self.line if len(self.line) <= 60 else self.line[:60] + "..."
        self.fail(f"{shown!r} is not what /proc/zoneinfo prints here; expected {what}")

    def number(self, text: str, name: str) -> int:
        if not _NUMBER.fullmatch(text):
            self.fail(f"{text[:60]!r} is not a whole number from 0 on", column=name)
        return int(text)

    def pairs(self, indent: int) -> dict[str, int]:
        """``name value`` lines of one indentation, as many as there are."""
        found: dict[str, int] = {}
        lead = " " * indent
        while self.line is not None and self.line.startswith(lead):
            match = _PAIR.fullmatch(self.line)
            if not match or len(match[1]) != indent:
                break
            name = match[2]
            if name in found:
                self.fail(f"{name!r} is given twice", column=name)
            found[name] = self.number(match[3], name)
            self.at += 1
        return found

    def require(self, found: Mapping[str, int], names: Iterable[str], where: str) -> None:
        for name in names:
            if name not in found:
                if self.line is None:
                    self.expected(f"{name!r} of {where}")
                self.fail(f"{name!r} of {where} is missing", column=name)

    def literal(self, text: str) -> bool:
        if self.line != text:
            return False
        self.at += 1
        return True

    def snapshot(self) -> Zoneinfo:
        zones: dict[tuple[int, str], Zone] = {}
        node_stats: dict[int, dict[str, int]] = {}
        while self.line is not None:
            at = self.at
            zone = self.zone(node_stats)
            if (zone.node, zone.name) in zones:
                self.fail(f"node {zone.node}, zone {zone.name} is given twice", at)
            zones[zone.node, zone.name] = zone
        info = Zoneinfo(
            tuple(zones.values()),
            node_stats,
            None if self.file is None else str(self.file),
            self.tag,
        )
        self.check(info)
        return info

    def zone(self, node_stats: dict[int, dict[str, int]]) -> Zone:
        header = _HEADER.fullmatch(self.line or "")
        if not header:
            self.expected("'Node N, zone NAME'")
        row, node, name = self.first_row + self.at, int(header[1]), header[2]
        where = f"node {node}, zone {name}"
        self.at += 1
        if self.literal("  per-node stats"):
            node_stats[node] = self.pairs(6)
        pages = self.pairs(2)
        if list(pages) != ["pages free"]:
            self.expected(f"'pages free' of {where}")
        marks = self.pairs(8)
        self.require(marks, _MARKS, where)
        printed = tuple(name for name in _LATER_MARKS if name in marks)
        if self.later_marks is None:
            by_kernel = printed in ((), _LATER_MARKS[:1]) and "promo" not in marks
            self.later_marks = printed if by_kernel else _LATER_MARKS
        self.require(marks, self.later_marks, where)
        if len(printed) > len(self.later_marks):
            self.fail(f"{printed[-1]!r} is printed for some zones only", self.at - 1)
        marks |= dict.fromkeys(set(_LATER_MARKS) - set(printed), 0)
        if marks["boost"] > marks["low"]:
            self.fail(f"boost {marks['boost']} of {where} exceeds its low watermark", self.at - 1)
        protection = _PROTECTION.fullmatch(self.line or "")
        if not protection:
            self.expected(f"'protection: (...)' of {where}")
        reserve = tuple(self.number(v, "protection") for v in protection[1].split(", "))
        self.at += 1
        stats: dict[str, int] = {}
        tail: dict[str, int] = {}
        pagesets: tuple[Pageset, ...] = ()
        if marks["present"]:
            stats = self.pairs(6)
            if not self.literal("  pagesets"):
                self.expected(f"'pagesets' of {where}")
            pagesets = self.pagesets(where)
            tail = self.pairs(2)
            self.require(tail, _TAIL, where)
        return Zone(
            node=node,
            name=name,
            row=row,
            free=pages["pages free"],
            boost=marks["boost"],
            min=marks["min"],
            low=marks["low"],
            high=marks["high"],
            spanned=marks["spanned"],
            present=marks["present"],
            managed=marks["managed"],
            cma=marks["cma"],
            promo=marks.get("promo"),
            protection=reserve,
            stats=stats,
            pagesets=pagesets,
            node_unreclaimable=tail.pop("node_unreclaimable", None),
            start_pfn=tail.pop("start_pfn", None),
            extra=tail,
        )

    def pagesets(self, where: str) -> tuple[Pageset, ...]:
        found: list[Pageset] = []
        while self.line is not None and self.line.startswith("    cpu: "):
            cpu = self.number(self.line[9:], "cpu")
            if found and cpu <= found[-1].cpu:
                self.fail(f"cpu {cpu} of {where} follows cpu {found[-1].cpu}", column="cpu")
            self.at += 1
            values = self.pairs(14)
            here = f"{where}, cpu {cpu}"
            self.require(values, _PAGESET, here)
            if values["batch"] < 1:
                self.fail(f"batch of {here} is 0; it is 1 at least", self.at - 1, "batch")
            if ("high_min" in values) != ("high_max" in values):
                self.fail(f"one of 'high_min' and 'high_max' of {here} is missing", self.at - 1)
            threshold = None
            if self.line is not None and self.line.startswith("  vm stats threshold: "):
                threshold = self.number(self.line[22:], "vm stats threshold")
                self.at += 1
            found.append(
                Pageset(
                    cpu=cpu,
                    count=values["count"],
                    high=values["high"],
                    batch=values["batch"],
                    high_min=values.get("high_min"),
                    high_max=values.get("high_max"),
                    stat_threshold=threshold,
                )
            )
        if not found:
            self.expected(f"'cpu: N' among the pagesets of {where}")
        return tuple(found)

    def check(self, info: Zoneinfo) -> None:
        """Hold the zones against each other."""
        if not info.populated:
            raise InputError("no zone has memory: not a /proc/zoneinfo", file=self.file)
        for node in info.nodes:
            zones = [z for z in info.zones if z.node == node]
            # The kernel prints every zone of a node, and one reserve for each.
            for zone in zones:
                if len(zone.protection) != len(zones):
                    raise InputError(
                        f"node {node} has {len(zones)} zones, but zone {zone.name} protects "
                        f"against {len(zone.protection)}: the file is cut off or incomplete",
                        file=self.file,
                        row=zone.row,
                    )
        for zone in info.populated:
            cpus = tuple(p.cpu for p in zone.pagesets)
            if cpus != info.online_cpus:
                first = info.populated[0]
                raise InputError(
                    f"node {zone.node}, zone {zone.name} lists {len(cpus)} CPUs that are not the "
                    f"{len(info.online_cpus)} of node {first.node}, zone {first.name}; "
                    "every zone lists the online CPUs",
                    file=self.file,
                    row=zone.row,
                )
        if len({p.high_min is None for z in info.populated for p in z.pagesets}) > 1:
            raise InputError(
                "'high_min' and 'high_max' are printed for some CPUs only", file=self.file
            )


def parse(text: str, file: object = None) -> tuple[Zoneinfo, ...]:
    """Read the text of ``/proc/zoneinfo``, or of a series of snapshots.

    Parameters
    ----------
    text : str
        What the kernel prints; several of it may follow each other, each led by a line
        ``=== tag``.
    file : optional
        Name for error messages.

    Returns
    -------
    tuple of Zoneinfo
        One, or one per ``=== tag``.

    Raises
    ------
    InputError
        With file and row, for anything that the kernel would not print.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise InputError("the file is empty; expected the text of /proc/zoneinfo", file=file)
    starts = [i for i, line in enumerate(lines) if line.startswith(_TAG)]
    if not starts:
        return (_Parser(lines, file, 1, None).snapshot(),)
    if starts[0] != 0:
        raise InputError(f"a series starts with '{_TAG}tag'", file=file, row=1)
    found = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        tag = lines[start].removeprefix(_TAG)
        found.append(_Parser(lines[start + 1 : end], file, start + 2, tag).snapshot())
    return tuple(found)


def read(path: str | Path) -> tuple[Zoneinfo, ...]:
    """Read a file of ``/proc/zoneinfo``, or of a series; ``.gz`` is unpacked.

    Raises
    ------
    InputError
        If it cannot be read, is larger than 256 MiB, is not ASCII or does not parse.
    """
    path = Path(path)
    try:
        with open_regular(path, MAX_BYTES) as file:
            stream = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", file=path) from error
    if len(raw) > MAX_BYTES:
        raise InputError(f"larger than {MAX_BYTES >> 20} MiB: not a /proc/zoneinfo", file=path)
    try:
        text = raw.decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        row = raw.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{raw[error.start]:02x} is not ASCII text"
        raise InputError(message, file=path, row=row) from None
    return parse(text, path)

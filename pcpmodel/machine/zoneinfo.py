"""``/proc/zoneinfo``: a strict reader, and every batch and high in it recomputed.

The reader takes what kernels 6.1 ... 7.2 print (mm/vmstat.c, zoneinfo_show_print()): names of
statistics may come and go, the frame around them may not.  `explain` then applies the rules of
`pcpmodel.kernel.sizing` to each populated zone, spells the arithmetic out and compares.

Sizing happens at boot, when watermarks change, when a CPU comes or goes and when the sysctl is
written; it uses the managed pages, the watermark and the CPUs *of that moment*.  A value that
does not follow from what the file shows now is therefore reported as a mismatch, together
with what would have given it.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import gzip
import html
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pcpmodel.errors import InputError
from pcpmodel.kernel import sizing
from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.kernel.releases import release as _release

__all__ = [
    "Explanation",
    "Pageset",
    "Zone",
    "ZoneExplanation",
    "Zoneinfo",
    "cpu_list",
    "explain",
    "infer_release",
    "parse",
    "read",
]

#: Largest file read [bytes]: a thousand CPUs on eight nodes print 6 MiB.
MAX_BYTES = 256 << 20

_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)
_HEADER = re.compile(r"Node ([0-9]{1,9}), zone +(\S+)", re.ASCII)
_PAIR = re.compile(r"( *)(pages free|[A-Za-z_][A-Za-z0-9_]*):? +([^\s(]\S*)", re.ASCII)
_PROTECTION = re.compile(r"        protection: \(([^()]*)\)")
_TAG = "=== "

_MARKS = ("boost", "min", "low", "high", "spanned", "present", "managed", "cma")
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
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", file=path) from error
    if len(raw) > MAX_BYTES:
        raise InputError(f"larger than {MAX_BYTES >> 20} MiB: not a /proc/zoneinfo", file=path)
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError as error:
        row = raw.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{raw[error.start]:02x} is not ASCII text"
        raise InputError(message, file=path, row=row) from None
    return parse(text, path)


def infer_release(snapshots: Sequence[Zoneinfo]) -> tuple[Release, str]:
    """Guess the release from what the file prints, as far as sizing goes.

    Returns
    -------
    Release, str
        The oldest known release that prints these lines, and why.
    """
    zones = [z for info in snapshots for z in info.populated]
    if any("free_highatomic" in z.extra for z in zones):
        return _release("v6.19"), "it prints free_highatomic"
    if zones[0].pagesets[0].high_min is not None:
        return _release("v6.18"), "it prints high_min and high_max, but not free_highatomic"
    if zones[0].promo is not None:
        return _release("v6.12"), "it prints promo, but not high_min"
    if all(len({p.high for p in z.pagesets}) == 1 and z.pagesets[0].high for z in zones):
        return _release("v6.6"), "it prints no promo, and every CPU of a zone has the same high"
    return _release("v6.7"), "it prints no promo, and high differs or is 0: it is tuned"


@dataclass(frozen=True)
class ZoneExplanation:
    """One zone: sizes recomputed, how, and what the kernel reports.

    Attributes
    ----------
    snapshot : str or None
        Tag of the snapshot, in a series.
    node, zone, managed, low_wmark_pages : int, str, int, int
        The zone; the watermark is without boost [pages].
    cpus : int
        CPUs that share the zone's pages out.
    batch, high, high_min, high_max : int or None
        Recomputed [pages]; ``high`` for releases that have one fixed limit, the other two for
        those that tune it.
    reported : dict
        Batch, high, high_min, high_max as printed: the number that all CPUs have, the sorted
        numbers where they differ, None where the kernel does not print it.
    checked : tuple of str
        What could be compared.
    match : bool
        Whether all that could be compared agrees.
    formula : dict of str
        How each recomputed number comes about.
    why : tuple of str
        For each mismatch, what would have given the reported number.
    """

    snapshot: str | None
    node: int
    zone: str
    managed: int
    low_wmark_pages: int
    cpus: int
    batch: int
    high: int | None
    high_min: int | None
    high_max: int | None
    reported: Mapping[str, int | list[int] | None]
    checked: tuple[str, ...]
    match: bool
    formula: Mapping[str, str]
    why: tuple[str, ...]

    @property
    def title(self) -> str:
        """Zone by name, with its snapshot in a series."""
        tag = "" if self.snapshot is None else f"{self.snapshot}: "
        return f"{tag}node {self.node} {self.zone}"

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return vars(self) | {
            "reported": dict(self.reported),
            "checked": list(self.checked),
            "formula": dict(self.formula),
            "why": list(self.why),
        }


@dataclass(frozen=True)
class Explanation:
    """Every populated zone of a ``/proc/zoneinfo`` explained; prints as a table.

    Attributes
    ----------
    release : Release
        Rules that were applied.
    high_fraction : int
        ``vm.percpu_pagelist_high_fraction``.
    page_size_bytes : int
    zones : tuple of ZoneExplanation
    assumptions : tuple of str
        What was not given and could not be read.
    """

    release: Release
    high_fraction: int
    page_size_bytes: int
    zones: tuple[ZoneExplanation, ...]
    assumptions: tuple[str, ...]

    @property
    def all_match(self) -> bool:
        """Whether every zone matches."""
        return all(z.match for z in self.zones)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "release": self.release.name,
            "high_fraction": self.high_fraction,
            "page_size_bytes": self.page_size_bytes,
            "assumptions": list(self.assumptions),
            "zones": [z.as_dict() for z in self.zones],
            "all_match": self.all_match,
        }

    @property
    def _columns(self) -> tuple[str, ...]:
        limits = ("high_min", "high_max") if self.release.rules.high_min_max else ("high",)
        return ("batch", *limits)

    def _table(self) -> list[list[str]]:
        rows = [["zone", "managed", "low", "CPUs", *self._columns, ""]]
        for z in self.zones:
            cells = []
            for name in self._columns:
                mine, theirs = getattr(z, name), z.reported[name]
                if theirs is None:
                    cells.append(f"{mine} (not printed)")
                else:
                    many = theirs if isinstance(theirs, list) else [theirs]
                    cells.append(str(mine) if theirs == mine else f"{mine}, reported {_few(many)}")
            verdict = "ok" if z.match else "MISMATCH"
            rows.append(
                [z.title, f"{z.managed}", f"{z.low_wmark_pages}", f"{z.cpus}", *cells, verdict]
            )
        return rows

    def __str__(self) -> str:
        rows = self._table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"Rules of {self.release.name}, percpu_pagelist_high_fraction {self.high_fraction}, "
            f"{self.page_size_bytes >> 10} KiB pages; all numbers in pages.",
            *(f"Assumed: {a}." for a in self.assumptions),
            "",
        ]
        for row in rows:
            cells = [row[0].ljust(widths[0])]
            cells += [c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1], strict=True)]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
        for z in self.zones:
            lines += ["", z.title]
            lines += [f"  {name:9}{text}" for name, text in z.formula.items()]
            lines += [f"  ! {reason}" for reason in z.why]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        texts = [
            [f"{name}: {text}" for name, text in z.formula.items()] + [f"! {r}" for r in z.why]
            for z in self.zones
        ]

        def line(cells: Iterable[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{c}</{tag}>" for c in cells) + "</tr>"

        body = [
            line([*map(html.escape, row), "<br>".join(map(html.escape, text))], "td")
            for row, text in zip(rows, texts, strict=True)
        ]
        title = html.escape(str(self).partition("\n\n")[0]).replace("\n", "<br>")
        return (
            f"<table><caption>{title}</caption>"
            + line([*map(html.escape, head), "how"], "th")
            + "".join(body)
            + "</table>"
        )


def _cpus_of_nodes(
    info: Zoneinfo, given: int | Mapping[int, int] | Sequence[int] | None
) -> tuple[dict[int, int], str | None]:
    """Online CPUs of every node, and what was assumed."""
    nodes, online = info.nodes, len(info.online_cpus)
    assumed = None
    if given is None:
        if online % len(nodes):
            raise InputError(
                f"{online} CPUs on {len(nodes)} nodes: the file does not say which CPU is where. "
                "Give cpus_per_node (--cpus-per-node N,N,..., one number per node)",
                file=info.file,
            )
        given = online // len(nodes)
        if len(nodes) > 1:
            assumed = (
                f"{online} CPUs spread evenly over {len(nodes)} nodes, {given} each "
                "(the file does not say; --cpus-per-node does)"
            )
    if isinstance(given, int) and not isinstance(given, bool):
        per_node = dict.fromkeys(nodes, given)
    elif isinstance(given, Mapping):
        per_node = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(nodes):
            raise InputError(
                f"cpus_per_node={list(given)} has {len(given)} numbers; "
                f"the nodes are {', '.join(map(str, nodes))}",
                file=info.file,
            )
        per_node = dict(zip(nodes, given, strict=True))
    else:
        raise InputError(f"cpus_per_node={given!r} is not a number, one per node or a mapping")
    bad = [n for n in per_node.values() if isinstance(n, bool) or not isinstance(n, int) or n < 0]
    if bad or set(nodes) - set(per_node) or sum(per_node.values()) != online:
        shown = ", ".join(f"node {k}: {v}" for k, v in per_node.items())
        raise InputError(
            f"cpus_per_node ({shown}) does not add up; the file lists {online} online CPUs "
            f"and nodes {', '.join(map(str, nodes))}",
            file=info.file,
        )
    return per_node, assumed


def cpu_list(cpus: Sequence[int]) -> str:
    """Ascending CPU numbers as the kernel writes lists: ``0-3,8``."""
    starts = [c for i, c in enumerate(cpus) if not i or cpus[i - 1] != c - 1]
    ends = [c for i, c in enumerate(cpus) if i + 1 == len(cpus) or cpus[i + 1] != c + 1]
    runs = zip(starts, ends, strict=True)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _few(values: Sequence[int]) -> str:
    """Sorted numbers one by one, or their range where there are many."""
    if len(values) <= 8:
        return ", ".join(map(str, values))
    return f"{len(values)} values in {values[0]} ... {values[-1]}"


@dataclass(frozen=True)
class _Case:
    """A zone and the rules it is sized by."""

    info: Zoneinfo
    zone: Zone
    node_cpus: int
    release: Release
    high_fraction: int
    page_shift: int

    @property
    def rules(self) -> Rules:
        return self.release.rules

    @property
    def online(self) -> int:
        return len(self.info.online_cpus)

    @property
    def n(self) -> int:
        return sizing.highsize_divisor(self.node_cpus, self.online)

    def size(self) -> sizing.PagesetSize:
        return sizing.zone_set_pageset_high_and_batch(
            self.zone.managed,
            self.zone.low_wmark_pages,
            self.rules,
            node_cpus=self.node_cpus,
            online_cpus=self.online,
            high_fraction=self.high_fraction,
            page_shift=self.page_shift,
        )

    def fraction(self, name: str) -> int:
        """Divisor behind a limit; 0: the low watermark is behind it."""
        if name == "high_max":
            return self.high_fraction or sizing.MIN_PERCPU_PAGELIST_HIGH_FRACTION
        return self.high_fraction

    def total(self, name: str) -> int:
        return sizing.highsize_total(
            self.zone.managed, self.zone.low_wmark_pages, self.fraction(name)
        )

    # How a number comes about

    def batch_formula(self) -> str:
        managed = self.zone.managed
        raw = sizing.zone_batchsize(managed, self.rules, self.page_shift)
        if self.rules.batchsize_256k:
            most = (256 << 10) >> self.page_shift
            share = min(managed >> 12, most)
            text = f"min({managed} managed >> 12, {most}) = {share}"
            if share <= 1:
                return f"{text}, at most 1: batch 1"
        else:
            most = (1 << 20) >> self.page_shift
            quarter = min(managed >> 10, most) // 4
            share = max(quarter, 1)
            text = f"min({managed} managed >> 10, {most}) / 4 = {quarter}"
            text += "" if quarter else ", at least 1"
        text += f"; largest power of two up to {share} + {share // 2}, less 1 = {raw}"
        return text if raw else f"{text}, at least 1: batch 1"

    def high_formula(self, name: str, batch: int) -> str:
        zone, fraction, total = self.zone, self.fraction(name), self.total(name)
        if name == "high_max" and self.high_fraction:
            return "= high_min: the sysctl is set, nothing is tuned"
        if fraction:
            text = f"{zone.managed} managed / {fraction} = {total}"
        else:
            text = f"low watermark {total}"
            if zone.boost:
                text += f" ({zone.low} printed less boost {zone.boost})"
        cpus = f"CPUs of node {zone.node}" if self.node_cpus else "online CPUs (the node has none)"
        share, floor = total // self.n, 4 * batch
        text += f"; max({total} / {self.n} {cpus}, 4 * {batch}) = max({share}, {floor})"
        return f"{text} = {max(share, floor)}"

    def tuned_high(self, size: sizing.PagesetSize) -> str:
        """What the CPUs' own ``high`` are, where it is tuned; never wrong, so never checked."""
        lo, hi = size.high_min, size.high_max
        assert lo is not None
        assert hi is not None
        values = sorted({p.high for p in self.zone.pagesets})
        out = [v for v in values if v != sizing.clamp(v, lo, hi)]
        text = f"{_few(values)} reported: each CPU's own"
        if self.rules.auto_high:
            text += f", tuned within {lo} ... {hi}"
            if out:
                text += f"; {_few(out)}: clamped when that CPU next uses the list"
        return text

    # What would have given a number that does not follow

    def why(self, size: sizing.PagesetSize, checked: Sequence[str]) -> tuple[str, ...]:
        reasons = []
        boot = sizing.boot_pageset(self.rules)
        wrong = [
            p
            for p in self.zone.pagesets
            if any(getattr(p, name) != getattr(size, name) for name in checked)
        ]
        unsized = [
            p for p in wrong if all(getattr(p, name) == getattr(boot, name) for name in checked)
        ]
        if unsized:
            text = "batch 1 and no high: the lists were disabled, or not sized yet"
            reasons.append(text + self._some(unsized))
        skip = {p.cpu for p in unsized}
        for name in checked:
            sized: dict[int, list[Pageset]] = {}
            for p in wrong:
                if p.cpu not in skip and getattr(p, name) != getattr(size, name):
                    sized.setdefault(getattr(p, name), []).append(p)
            why = self.why_batch if name == "batch" else self.why_high
            for value, pagesets in sorted(sized.items()):
                some = self._some(pagesets)
                reasons.append(f"{name} {value}{some} {why(name, value, size.batch)}")
        return tuple(reasons)

    def _some(self, pagesets: Sequence[Pageset]) -> str:
        if len(pagesets) == self.online:
            return ""
        return f" (CPU {cpu_list([p.cpu for p in pagesets])})"

    def why_batch(self, name: str, value: int, batch: int) -> str:
        top = 1 << 18  # from here on both forms are constant, with pages of 4 KiB and more

        def used(managed: int) -> int:
            return sizing.used_batch(managed, self.rules, self.page_shift)

        first = bisect_left(range(top + 1), value, key=used)
        end = bisect_right(range(top + 1), value, key=used)
        if first == end:
            return "is what no zone of any size gets under these rules"
        span = f"{first} and more" if end > top else f"{first} ... {end - 1}"
        return f"is what {span} managed pages give; the zone has {self.zone.managed} now"

    def why_high(self, name: str, value: int, batch: int) -> str:
        floor, fraction, total = 4 * batch, self.fraction(name), self.total(name)
        if value < floor:
            return f"is under 4 * batch = {floor}, the least that a sized zone has"
        divisor = self.n * (fraction or 1)
        first, last = value * divisor, (value + 1) * divisor - 1
        if value == floor:
            first = 0
        what, now = (
            ("managed pages", self.zone.managed) if fraction else ("pages of low watermark", total)
        )
        text = f"is what {first} ... {last} {what} give; there are {now} now"
        cpus = [k for k in range(1, self.online + 2) if max(total // k, floor) == value]
        sysctl = self._sysctl(value, floor)
        if sysctl:
            text += f", and what percpu_pagelist_high_fraction {sysctl} gives"
        elif cpus and value > floor:
            text += f", which give it with {' or '.join(map(str, cpus))} CPUs instead of {self.n}"
            if self.n + 1 in cpus:
                text += " (a CPU that comes online counts in every node)"
        elif fraction:
            off = sorted((abs(now - first), abs(now - last)))
            text += (
                f": the zone was sized with {off[0]} ... {off[1]} pages "
                f"{'fewer' if last < now else 'more'} and not since; "
                "late boot and balloons change its pages without sizing it anew"
            )
        else:
            text += ": the watermark was another one, or boosted, when the zone was sized"
        return text

    def _sysctl(self, value: int, floor: int) -> str:
        """Settings of the sysctl that explain the limits, if it was taken to be 0."""
        tuned = any(p.high_min != p.high_max for p in self.zone.pagesets)
        if self.high_fraction or tuned:
            return ""
        first = self.zone.managed // ((value + 1) * self.n) + 1
        first = max(first, sizing.MIN_PERCPU_PAGELIST_HIGH_FRACTION)
        if value == floor:
            return f"{first} or more"
        last = self.zone.managed // (value * self.n)
        return "" if first > last else f"{first} ... {last}" if first < last else str(first)

    def explain(self) -> ZoneExplanation:
        zone, size = self.zone, self.size()
        reported: dict[str, int | list[int] | None] = {}
        for name in size._fields:
            printed = (getattr(p, name) for p in zone.pagesets)
            values = sorted({v for v in printed if v is not None})
            reported[name] = values[0] if len(values) == 1 else values or None
        sized = {name: value for name, value in size._asdict().items() if value is not None}
        checked = tuple(name for name in sized if reported[name] is not None)
        formula = {
            name: self.batch_formula() if name == "batch" else self.high_formula(name, size.batch)
            for name in sized
        }
        if self.rules.high_min_max:
            formula["high"] = self.tuned_high(size)
        return ZoneExplanation(
            snapshot=self.info.tag,
            node=zone.node,
            zone=zone.name,
            managed=zone.managed,
            low_wmark_pages=zone.low_wmark_pages,
            cpus=self.n,
            **size._asdict(),
            reported=reported,
            checked=checked,
            match=all(reported[name] == sized[name] for name in checked),
            formula=formula,
            why=self.why(size, checked),
        )


def explain(
    zoneinfo: Zoneinfo | Sequence[Zoneinfo],
    release: str | Release | None = None,
    cpus_per_node: int | Mapping[int, int] | Sequence[int] | None = None,
    high_fraction: int = 0,
    page_size_bytes: int = 4096,
) -> Explanation:
    """Recompute every batch and limit of a ``/proc/zoneinfo`` and compare.

    Parameters
    ----------
    zoneinfo : Zoneinfo or sequence of Zoneinfo
        One snapshot or a series of one machine, as `read` returns it.
    release : str or Release, optional
        Kernel state; without it the oldest known one that prints these lines.
    cpus_per_node : int, mapping or sequence of int, optional
        Online CPUs of each node: one number for all nodes, node -> number, or a number per
        node in ascending order; 0 for a node of memory only.  Without it, one node has
        all CPUs, and several nodes are assumed to have equally many.
    high_fraction : int
        sysctl ``vm.percpu_pagelist_high_fraction`` at that time: 0, or 8 and more.
    page_size_bytes : int
        4096, 16384 or 65536.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        For an unknown release, a fraction that the kernel refuses, a page size that no
        kernel has, or CPUs that do not add up to those that the file lists.
    """
    snapshots = [zoneinfo] if isinstance(zoneinfo, Zoneinfo) else list(zoneinfo)
    if not snapshots:
        raise InputError("no snapshot of /proc/zoneinfo is given")
    if page_size_bytes not in (4096, 16384, 65536):
        raise InputError(f"page_size_bytes={page_size_bytes!r}; allowed: 4096, 16384, 65536")
    sizing.percpu_pagelist_high_fraction(high_fraction)
    assumptions: dict[str, None] = {}
    if release is None:
        state, reason = infer_release(snapshots)
        text = f"release {state.name}, the oldest known that prints such a file: {reason}"
        assumptions[text] = None
    else:
        state = _release(release)
    page_shift = page_size_bytes.bit_length() - 1
    zones = []
    for info in snapshots:
        per_node, assumed = _cpus_of_nodes(info, cpus_per_node)
        if assumed:
            assumptions[assumed] = None
        zones += [
            _Case(info, zone, per_node[zone.node], state, high_fraction, page_shift).explain()
            for zone in info.populated
        ]
    return Explanation(state, high_fraction, page_size_bytes, tuple(zones), tuple(assumptions))

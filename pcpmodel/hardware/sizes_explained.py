"""Every batch and high of a ``/proc/zoneinfo`` recomputed and compared.

`explain` applies the rules of `pcpmodel.kernel.sizing` to each populated zone, spells the
arithmetic out (`pcpmodel.hardware.sizes_words`) and reports what does not follow as a mismatch.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.hardware.sizes_words import Case, few
from pcpmodel.kernel import sizing
from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.kernel.releases import release as _release
from pcpmodel.proc.zoneinfo import Zone, Zoneinfo

__all__ = [
    "Explanation",
    "ZoneExplanation",
    "cpus_of_nodes",
    "explain",
    "infer_high_fraction",
    "infer_page_size",
    "infer_release",
]


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
    lists = [p for z in zones for p in z.pagesets]
    six = {p.high == 6 * p.batch or (p.batch, p.high) == (1, 0) for p in lists}
    if six == {True} and max(p.batch for p in lists) > 1:
        newer, older = _release("v5.10"), _release("v4.17")
        given = [
            all(p.batch == sizing.used_batch(z.managed, r.rules) for z in zones for p in z.pagesets)
            for r in (newer, older)
        ]
        state = older if given == [False, True] else newer
        return state, "it prints no promo, and every high is six batches"
    if all(len({p.high for p in z.pagesets}) == 1 and z.pagesets[0].high for z in zones):
        return _release("v6.6"), "it prints no promo, and every CPU of a zone has the same high"
    return _release("v6.7"), "it prints no promo, and high differs or is 0: it is tuned"


def infer_page_size(snapshots: Sequence[Zoneinfo], rules: Rules) -> tuple[int, str | None]:
    """Guess the page size from the batches: 4 KiB unless more of them follow from another.

    Returns
    -------
    int, str or None
        Bytes, and why where it is not 4096.
    """
    zones = [z for info in snapshots for z in info.populated]
    sizes = sizing.PAGE_SIZES_KIB if rules.sizing is None else (4,)  # as trees are compiled
    agree = {
        kib: sum(
            p.batch == sizing.used_batch(z.managed, rules, sizing.page_shift(kib))
            for z in zones
            for p in z.pagesets
        )
        for kib in sizes
    }
    kib = max(agree, key=agree.__getitem__)  # of equals the first: 4
    lists = sum(len(z.pagesets) for z in zones)
    why = f"the batches of {agree[kib]} of {lists} lists follow from it, of {agree[4]} from 4 KiB"
    return kib << 10, None if kib == 4 else why


def infer_high_fraction(
    snapshots: Sequence[Zoneinfo],
    cpus: Sequence[Mapping[int, int]],
    rules: Rules,
) -> tuple[int, str | None]:
    """Least ``vm.percpu_pagelist_high_fraction`` that every limit follows from, and why.

    0 and None where it is not set, as far as the limits tell: they differ, follow from 0, or are
    not printed (v6.7 to v6.15; up to v6.6 ``high`` is the limit).

    Parameters
    ----------
    snapshots : sequence of Zoneinfo
        Of one machine.
    cpus : sequence of mapping
        Online CPUs of each node, at each.
    rules : Rules
    """
    found = [_high_fractions(info, at, rules) for info, at in zip(snapshots, cpus, strict=True)]
    first, last = max(least for least, _ in found), min(most for _, most in found)
    if first > last:
        return 0, None
    what = f"{first} to {last}" if first < last else str(first)
    if last == sizing.INT_MAX:
        what = f"at least {first}"
    return first, (
        f"the limits follow from vm.percpu_pagelist_high_fraction={what}, which is taken to be set "
        "(--high-fraction says otherwise)"
    )


def _high_fractions(info: Zoneinfo, cpus: Mapping[int, int], rules: Rules) -> tuple[int, int]:
    """Least and most fraction of `infer_high_fraction`; of none the least is larger.

    References
    ----------
    mm/page_alloc.c, zone_highsize() and zone_set_pageset_high_and_batch(), v5.14 on.
    """
    first, last, unset = sizing.MIN_PERCPU_PAGELIST_HIGH_FRACTION, sizing.INT_MAX, True
    none = last, 0
    if not rules.high_by_watermark or rules.sizing is not None:  # a tree may have rules of its own
        return none
    for zone in info.populated:
        pairs = {
            (p.high_min, p.high_max) if rules.high_min_max else (p.high, p.high)
            for p in zone.pagesets
        }
        (least, most) = pairs.pop() if len(pairs) == 1 else (0, 1)
        batch = zone.pagesets[0].batch
        if least != most or least is None or least < 4 * batch:
            return none
        n = sizing.highsize_divisor(cpus[zone.node], len(info.online_cpus))
        unset &= least == max(zone.low_wmark_pages // n, 4 * batch)
        some = sizing.high_fractions(zone.managed, n, least, batch)
        first, last = max(first, some[0]), min(last, some[1])
    return none if unset else (first, last)


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
                    cells.append(str(mine) if theirs == mine else f"{mine}, reported {few(many)}")
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


def _shares(zone: Zone, rules: Rules) -> dict[str, set[int]]:
    """What a zone's file tells of the share that each CPU got of it, by name; maybe several.

    v6.7 to v6.15 print neither limit: decay_pcp_high() ends at high_min, so the least high that was
    ever set is that of a CPU which has been idle, where there is one.
    """
    names = ("high_min", "high_max") if rules.high_min_max else ("high",)
    if zone.pagesets and rules.high_min_max and zone.pagesets[0].high_max is None:
        return {"high_min": {min((p.high for p in zone.pagesets if p.high), default=0)}}
    return {name: {getattr(p, name) for p in zone.pagesets} for name in names}


def _by_limits(info: Zoneinfo, rules: Rules, high_fraction: int) -> list[dict[int, int]]:
    """CPUs of each node as its largest zone's limit has them; none where the limits do not tell.

    zone_highsize() shares a zone's pages out among the CPUs of its node, or all that are online
    where the node has none (v5.14 on); while a CPU comes online every node counts it, so that a
    node without CPUs counts that one alone until the sizes are set the next time.  Of a node
    without memory nothing is printed: it has CPUs only where the others leave some.
    """
    online, counted, unknown = len(info.online_cpus), {}, []
    for node in info.nodes:
        zone = max((z for z in info.zones if z.node == node), key=lambda z: z.managed)
        name, limits = list(_shares(zone, rules).items())[-1]
        least = sizing.MIN_PERCPU_PAGELIST_HIGH_FRACTION * (name == "high_max")
        fraction = high_fraction or least
        total = sizing.highsize_total(zone.managed, zone.low_wmark_pages, fraction)
        limit = limits.pop() if len(limits) == 1 else None
        if limit and limit > sizing.least_high(zone.pagesets[0].batch, rules):
            counted[node] = min(max(round(total / limit), 1), online)
        else:
            unknown.append(node)
    bare = [n for n in unknown if not any(z.node == n for z in info.populated)]
    if not rules.high_by_watermark or len(unknown) - len(bare) > 1 or not counted:
        return []
    found = []
    settled = {node: n for node, n in counted.items() if n < online}
    rest = online - sum(settled.values())
    without = dict.fromkeys([n for n in (*counted, *bare) if n not in settled], 0)
    if rest == online and bare == unknown:
        found.append(without | {min(counted): online})
    if rest and len(unknown) == 1:
        found.append(settled | without | {unknown[0]: rest})
    elif not rest:
        found.append(settled | without | dict.fromkeys(unknown, 0))
    if not unknown and sum(counted.values()) - len(counted) + 1 == online:
        own = max(counted, key=counted.__getitem__)  # which the CPU that came is of
        found.append({node: n - (node != own) for node, n in counted.items()})
    return [cpus for cpus in found if min(cpus.values()) >= 0]


def _agree(
    info: Zoneinfo, state: Release, cpus: Mapping[int, int], high_fraction: int, page_shift: int
) -> tuple[int, int]:
    """Zones whose limits follow from these CPUs; and from one more that was coming online."""
    agree = [0, 0]
    for zone in info.populated:
        case = Case(info, zone, cpus[zone.node], state, high_fraction, page_shift)
        for coming in (0, 1):
            sized = case.size(coming)._asdict()
            shares = _shares(zone, state.rules).items()
            agree[coming] += all(values == {sized[name]} for name, values in shares)
    return agree[0], agree[1]


def cpus_of_nodes(
    info: Zoneinfo,
    given: int | Mapping[int, int] | Sequence[int] | None,
    state: Release,
    high_fraction: int = 0,
    page_shift: int = 12,
) -> tuple[dict[int, int], str | None]:
    """Online CPUs of every node, and what was assumed.

    Those given; else those that the limits of most zones follow from, and as many on each node
    where no others do better.
    """
    nodes, online = info.nodes, len(info.online_cpus)
    assumed = None
    if given is None and len(nodes) > 1:
        even = [dict.fromkeys(nodes, online // len(nodes))] if online % len(nodes) == 0 else []
        followed = {
            tuple(sorted(cpus.items())): _agree(info, state, cpus, high_fraction, page_shift)
            for cpus in [*even, *_by_limits(info, state.rules, high_fraction)]
        }
        best = max(followed, key=followed.__getitem__, default=())  # of equals the even spread
        # Most of a Grace's nodes have neither CPUs nor memory: no even spread is near it.
        bare = {z.node for z in info.zones} - {z.node for z in info.populated}
        known = bool(even) and not (bare and state.rules.high_by_watermark)
        if not (known or any(followed.get(best, ()))):
            raise InputError(
                f"{online} CPUs on {len(nodes)} nodes: the file does not say which CPU is where. "
                "Give cpus_per_node (--cpus-per-node N,N,..., one number per node)",
                file=info.file,
            )
        given = dict(best)
        agree, zones = max(followed[best]), len(info.populated)
        if [given] == even:
            assumed = (
                f"{online} CPUs spread evenly over {len(nodes)} nodes, {online // len(nodes)} each "
                + (
                    f"(the limits of {agree} of {zones} zones follow from it; --cpus-per-node says "
                    "otherwise)"
                    if agree
                    else "(the file does not say; --cpus-per-node does)"
                )
            )
        else:
            told = ", ".join(
                f"{n} on node {node}" if n else f"none on node {node}" for node, n in given.items()
            )
            assumed = (
                f"of {online} CPUs {told}, as the limits of {agree} of {zones} zones "
                "have it (--cpus-per-node says otherwise)"
            )
    elif given is None:
        given = online
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


def _explain_zone(case: Case) -> ZoneExplanation:
    zone, size = case.zone, case.size()
    reported: dict[str, int | list[int] | None] = {}
    for name in size._fields:
        printed = (getattr(p, name) for p in zone.pagesets)
        values = sorted({v for v in printed if v is not None})
        reported[name] = values[0] if len(values) == 1 else values or None
    sized = {name: value for name, value in size._asdict().items() if value is not None}
    checked = tuple(name for name in sized if reported[name] is not None)
    formula = {name: case.formula(name, size) for name in sized}
    if case.rules.high_min_max:
        formula["high"] = case.tuned_high(size)
    return ZoneExplanation(
        snapshot=case.info.tag,
        node=zone.node,
        zone=zone.name,
        managed=zone.managed,
        low_wmark_pages=zone.low_wmark_pages,
        cpus=case.n,
        **size._asdict(),
        reported=reported,
        checked=checked,
        match=all(reported[name] == sized[name] for name in checked),
        formula=formula,
        why=case.why(size, checked),
    )


def explain(
    zoneinfo: Zoneinfo | Sequence[Zoneinfo],
    release: str | Release | None = None,
    cpus_per_node: int | Mapping[int, int] | Sequence[int] | None = None,
    high_fraction: int | None = None,
    page_size_bytes: int | None = None,
) -> Explanation:
    """Recompute every batch and limit of a ``/proc/zoneinfo`` and compare.

    Parameters
    ----------
    zoneinfo : Zoneinfo or sequence of Zoneinfo
        One snapshot or a series of one machine, as `pcpmodel.proc.zoneinfo.read` returns it.
    release : str or Release, optional
        Kernel state; without it the oldest known one that prints these lines.
    cpus_per_node : int, mapping or sequence of int, optional
        Online CPUs of each node: one number for all nodes, node -> number, or a number per
        node in ascending order; 0 for a node of memory only.  Without it, one node has
        all CPUs, and several nodes have those that their limits follow from: equally many where
        that explains as much.
    high_fraction : int, optional
        sysctl ``vm.percpu_pagelist_high_fraction`` at that time: 0, or 8 and more; without it the
        one that all limits follow from, if they do from any but 0.
    page_size_bytes : int, optional
        4096, 16384 or 65536; without it the one that the batches follow from.

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
    if page_size_bytes not in (None, 4096, 16384, 65536):
        raise InputError(f"page_size_bytes={page_size_bytes!r}; allowed: 4096, 16384, 65536")
    given = sizing.percpu_pagelist_high_fraction(high_fraction or 0)
    assumptions: dict[str, None] = {}
    if release is None:
        state, reason = infer_release(snapshots)
        text = f"release {state.name}, the oldest known that prints such a file: {reason}"
        assumptions[text] = None
    else:
        state = _release(release)
    if page_size_bytes is None:
        page_size_bytes, why = infer_page_size(snapshots, state.rules)
        if why:
            assumptions[f"pages of {page_size_bytes >> 10} KiB: {why}"] = None
    page_shift = page_size_bytes.bit_length() - 1
    cpus = []
    for info in snapshots:
        per_node, assumed = cpus_of_nodes(info, cpus_per_node, state, given, page_shift)
        cpus.append(per_node)
        if assumed:
            assumptions[assumed] = None
    if high_fraction is None:
        given, assumed = infer_high_fraction(snapshots, cpus, state.rules)
        if assumed:
            assumptions[assumed] = None
    zones = [
        _explain_zone(Case(info, zone, at[zone.node], state, given, page_shift))
        for info, at in zip(snapshots, cpus, strict=True)
        for zone in info.populated
    ]
    return Explanation(state, given, page_size_bytes, tuple(zones), tuple(assumptions))

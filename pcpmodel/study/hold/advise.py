"""What to set on a machine: the batch scale and the high fraction, and at what price."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import operator
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd

from pcpmodel.errors import InputError
from pcpmodel.files import read_text
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.hardware.sizes_explained import (
    cpus_of_nodes,
    explain,
    infer_high_fraction,
    infer_page_size,
    infer_release,
)
from pcpmodel.hardware.sizes_words import few
from pcpmodel.kernel import sizing
from pcpmodel.kernel.releases import Release, releases
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.sizing import page_shift
from pcpmodel.proc import zoneinfo as zones_of
from pcpmodel.proc.host import HostFiles
from pcpmodel.proc.lscpu import Lscpu, read_cpus
from pcpmodel.proc.zoneinfo import Pageset, Zone, Zoneinfo
from pcpmodel.simulation.host import LEAST_GIB, Host
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.simulation.spec import MAX_CPUS, assumed_nodes, host_of
from pcpmodel.study.answer import Answer
from pcpmodel.study.hold.limit import RELEASE, SCALES, limit, positive
from pcpmodel.words import counted, decimals
from pcpmodel.workload.faults import MAPPING_KIB, page_fault1

__all__ = ["advise"]

#: CONFIG_PCP_BATCH_SCALE_MAX as the kernel is shipped (mm/Kconfig, v6.7 on).
SHIPPED_SCALE = 5
HERE = "/proc/zoneinfo"
#: Runs [s]: the worker that lowers high comes by once a second.
_SEEDS, _SECONDS = (1, 2, 3), 1.0
#: What is asked for.
_SCALE, _FRACTION = "CONFIG_PCP_BATCH_SCALE_MAX", "vm.percpu_pagelist_high_fraction"
_DOES_NOT_APPLY = (
    "memory that CPUs of another node keep on their lists of a zone",
    "a machine whose time goes into the LRU lock or the page cache instead",
    "memory kept from being freed by anything but the lists",
    "a kernel built with another CONFIG_PCP_BATCH_SCALE_MAX than 5, or older than v6.7",
)
_CONTENTION, _LISTS = "zone-lock contention", "memory on the lists in the runs"
#: Of the host, arguments of `simulate`.
_OF_HOST = ("cpus", "nodes", "cpus_per_node", "memory_gib", "cpuless_nodes", "cpuless_gib")
_OF_HOST += ("gib_per_node", "page_size_kib")
_NEAR = 0.05  # of a share, which is told to 0.1 [%]
_TOLD = 3  # zones whose sizes are told one by one


def _text(value: float, low: float | None, high: float | None, unit: str) -> str:
    digits = {"us": decimals(value), "MiB": 0}.get(unit, 1)
    text = f"{value:.{digits}f} {unit}"
    return text if low is None else f"{text} ({low:.{digits}f} ... {high:.{digits}f})"


def _figure(unit: str, value: float, among: list[float] | None = None) -> dict[str, Any]:
    low, high = (None, None) if among is None else (min(among), max(among))
    return {"value": value, "low": low, "high": high, "unit": unit}


@dataclass(frozen=True)
class _Memory:
    """What is known of a machine's CPUs, memory and lists."""

    host: Host
    managed: int  # pages
    held: int | None  # pages on the lists now
    most: int  # pages that their limits allow the CPUs that take from each zone first
    spread: float  # of those, to the CPUs that the limits are shared out among, by memory
    fraction: int  # vm.percpu_pagelist_high_fraction now
    source: str
    batch: int | None = None  # of the largest zone [pages]; None: as the release gives it
    lists: tuple[Pageset, ...] = ()  # of the largest zone of each node that has memory
    notes: tuple[str, ...] = ()  # what to know of the file

    @property
    def sizes(self) -> dict[str, Any]:
        """Options of a run with lists of these sizes."""
        if not self.lists:
            return {}
        batch = tuple(lists.batch for lists in self.lists)
        given = {"batch": batch}
        # A limit that is below the batch, or not printed, is the release's.
        least = tuple(lists.high_min or 0 for lists in self.lists)
        if all(map(operator.ge, least, batch)):
            fixed = all(lists.high_min == lists.high_max for lists in self.lists)
            given["high_pages" if self.fraction and fixed else "high_min_pages"] = least
        return {name: v[0] if len(set(v)) == 1 else v for name, v in given.items()}


def _sized(zone: Zone) -> Pageset | None:
    """A CPU's lists as the kernel has sized them; None where they all are disabled for now.

    zone_pcp_disable() leaves a batch of 1 and no high while memory goes offline.
    """
    boot = sizing.BOOT_PAGESET_BATCH, sizing.BOOT_PAGESET_HIGH
    for lists in zone.pagesets:
        high = lists.high if lists.high_max is None else lists.high_max
        if (lists.batch, high) != boot:
            return lists
    return None


def _has_no_lists(zone: Zone, own: Release, page_size_kib: int) -> bool:
    """Whether a zone of this size has none for good, as before v5.14."""
    if own.rules.high_by_watermark:
        return False
    none = sizing.BOOT_PAGESET_BATCH, sizing.BOOT_PAGESET_HIGH
    return sizing.fixed_size(zone.managed, own.rules, 0, page_shift(page_size_kib)) == none


def _largest(zones: Iterable[Zone]) -> Pageset | None:
    """A CPU's lists of the largest of these zones whose lists are not disabled."""
    by_size = sorted(zones, key=lambda zone: -zone.managed)
    return next(filter(None, map(_sized, by_size)), None)


def _kernel(info: Zoneinfo, given: Release | None) -> tuple[Release, str | None]:
    """The kernel that a file is advised for, and what to know where it is not the usual one."""
    own, why = infer_release([info])
    usual = find_release(RELEASE)
    if given is None:
        if not own.rules.auto_high or own == usual:
            return usual, None  # `_notes` tells of an older one
        same = f"{own.name} or a kernel that prints the same ({why})"
        return own, f"The file is of {same}: what is advised is for {own.name}."
    names = [state.name for state in releases()]
    newer = given.name in names[: names.index(own.name)]
    if own == usual or not newer:
        return given, None
    return given, (
        f"What is advised is for {given.name}, as asked; the file is of {own.name} or a kernel "
        f"that prints the same ({why})."
    )


def _notes(
    info: Zoneinfo, release: Release, cpus: Mapping[int, int], fraction: int, page_size_kib: int
) -> Iterator[str]:
    """What to know of a file's sizes, in sentences."""
    own, why = infer_release([info])
    off = {
        (zone.node, zone.name)
        for zone in info.populated
        if _sized(zone) is None and not _has_no_lists(zone, own, page_size_kib)
    }
    if off:
        names = ", ".join(f"node {node} {name}" for node, name in sorted(off))
        yield (
            f"The lists of {names} were disabled when the file was copied, as while memory goes "
            "offline: what they may take is not counted."
        )
    if not own.rules.auto_high:
        held = sum(p.high for zone in info.populated for p in zone.pagesets)
        yield (
            f"By what it prints the file may be of a kernel before v6.7 ({why}): such a one tunes "
            f"no high and scales no refill, and all its lists together take {held} pages at most; "
            f"what is advised is for {release.name} on that machine."
        )
    found = explain(info, release, cpus, fraction, page_size_kib << 10)
    wrong = [zone for zone in found.zones if not zone.match and (zone.node, zone.zone) not in off]
    told = []
    for zone in wrong[:_TOLD]:
        sizes = [
            f"{name} {few([v] if isinstance(v, int) else v)} ({getattr(zone, name)})"
            for name in zone.checked
            if (v := zone.reported[name]) is not None and v != getattr(zone, name)
        ]
        told.append(f"{zone.title} {', '.join(sizes)}")
    if wrong:
        more = f"; and {len(wrong) - _TOLD} more" * (len(wrong) > _TOLD)
        yield (
            f"{len(wrong)} of {counted(len(found.zones), 'zone')} "
            f"{'has' if len(wrong) == 1 else 'have'} sizes other than {release.name} gives "
            f"(in brackets), and the file's are taken: {'; '.join(told)}{more}."
        )


def _given_high_max(zone: Zone, node_cpus: int, online: int, fraction: int) -> int:
    """zone_highsize() of a limit that the kernel keeps and does not print (v6.7 ... v6.15)."""
    return sizing.zone_highsize(
        zone.managed,
        zone.low_wmark_pages,
        zone.pagesets[0].batch,
        node_cpus=node_cpus,
        online_cpus=online,
        high_fraction=fraction or sizing.MIN_PERCPU_PAGELIST_HIGH_FRACTION,
    )


def _cpus(
    info: Zoneinfo,
    given: int | Sequence[int] | None,
    lscpu: Lscpu | None,
    own: Release,
    high_fraction: int,
    page_size_kib: int,
) -> tuple[dict[int, int], str | None]:
    """Online CPUs of each node: given, as lscpu or this host's sysfs says, or by the limits."""
    known: int | Mapping[int, int] | Sequence[int] | None = given
    if known is None:
        listed = lscpu.nodes if lscpu else {}
        if info.file == HERE:
            listed = {n.node: len(n.cpus) for n in HostFiles(Path("/")).nodes()}
        if set(info.nodes) <= set(listed) and sum(listed.values()) == len(info.online_cpus):
            known = listed
    shift = page_shift(page_size_kib)
    return cpus_of_nodes(info, known, own, high_fraction, shift)


def _host(
    info: Zoneinfo, cpus: Mapping[int, int], page_size_kib: int
) -> tuple[Host, tuple[int, ...], str]:
    """The machine as it is simulated; the file's nodes in its order; in words, what is where."""
    memory = {
        node: sum(z.managed for z in info.populated if z.node == node) * page_size_kib / (1 << 20)
        for node in info.nodes
    }
    if max(memory.values()) < LEAST_GIB:
        raise InputError(
            f"lists {1024 * max(memory.values()):.0f} MiB on its largest node; allowed: at least "
            f"{1024 * LEAST_GIB:g} MiB, the least that is simulated",
            file=info.file,
        )
    memory = {node: gib if gib >= LEAST_GIB else 0.0 for node, gib in memory.items()}
    homes = tuple(n for n in memory if cpus[n])
    alone = tuple(n for n, gib in memory.items() if not cpus[n] and gib)
    behind = sum(memory[n] for n in alone)
    host = Host(
        sum(cpus.values()),
        len(homes),
        sum(memory[n] for n in homes),
        page_size_kib=page_size_kib,
        cpus_per_node=tuple(cpus[n] for n in homes),
        cpuless_nodes=len(alone),
        cpuless_gib=behind,
        gib_per_node=tuple(memory[n] for n in (*homes, *alone)),
    )
    words = ""
    if len(homes) > 1:
        each = (f"{memory[n]:.1f} GiB on node {n}" for n in homes if memory[n])
        words += f", {', '.join(each)}"
    if behind:
        words += f", {counted(len(alone), 'node')} without CPUs with {behind:.1f} GiB"
    if bare := sum(cpus[n] for n in homes if not memory[n]):
        words += f", {counted(bare, 'CPU')} on nodes without memory"
    if len(homes) + len(alone) > 1:
        words += " (to the run every other node is as far away: no file says how far)"
    return host, (*homes, *alone), words


def _takers(host: Host) -> dict[int, int]:
    """CPUs that take the memory of each node first; all where the node has none.

    zone_highsize() shares the pages of a node without CPUs out among all alike.
    """
    nodes = Counter(host.node_of_zone(host.zonelist(cpu)[0]) for cpu in range(host.cpus))
    return {n: nodes[n] if n < host.nodes else host.cpus for n in host.memory_nodes}


def _of_zoneinfo(
    info: Zoneinfo,
    release: Release,
    page_size_kib: int | None,
    cpus_per_node: int | Sequence[int] | None,
    lscpu: Lscpu | None,
    high_fraction: int | None,
) -> _Memory:
    sysctl = Path("/proc/sys/vm/percpu_pagelist_high_fraction")
    if high_fraction is None and info.file == HERE and sysctl.is_file():
        high_fraction = int(read_text(sysctl))
    now = sizing.percpu_pagelist_high_fraction(high_fraction or 0)
    own = infer_release([info])[0]
    pages = ""
    if page_size_kib is None and info.file == HERE:
        page_size_kib = os.sysconf("SC_PAGESIZE") >> 10
    elif page_size_kib is None:
        size, why = infer_page_size([info], release.rules)
        page_size_kib = size >> 10
        pages = f" ({why})" if why else " (assumed: its batches follow from it)"
    managed = sum(zone.managed for zone in info.populated)
    if lscpu is not None and lscpu.online != len(info.online_cpus):
        raise InputError(
            f"lists {len(info.online_cpus)} CPUs, but lscpu says {lscpu.online}", file=info.file
        )
    cpus, assumed = _cpus(info, cpus_per_node, lscpu, own, now, page_size_kib)
    notes = []
    if high_fraction is None:
        now, why = infer_high_fraction([info], [cpus], own.rules)
        notes += [f"{why[0].upper()}{why[1:]}."] if why else []
    host, nodes, words = _host(info, cpus, page_size_kib)
    takers = {nodes[i]: number for i, number in _takers(host).items()}
    lists = [p for zone in info.populated for p in zone.pagesets]
    most, shared = 0, 0.0
    for zone in info.populated:
        given = _given_high_max(zone, cpus[zone.node], host.cpus, now)
        limits = sum(given if p.high_max is None else p.high_max for p in zone.pagesets)
        own = cpus[zone.node] or host.cpus
        first = takers.get(zone.node, own)
        most += limits * first // host.cpus  # each CPU has a list of every zone
        shared += zone.managed * first / own
    own_memory = [zone for zone in info.populated if cpus[zone.node]] or list(info.populated)
    largest = _largest(own_memory)
    memory_nodes = [nodes[i] for i in host.memory_nodes]
    sized = [_largest(zone for zone in info.populated if zone.node == n) for n in memory_nodes]
    return _Memory(
        host,
        managed,
        sum(p.count for p in lists),
        most,
        shared / managed,
        now,
        f"{info.file}, {counted(host.cpus, 'CPU')}{words}, pages of {page_size_kib} KiB"
        + pages
        + f"; {assumed}" * bool(assumed)
        + f", which prints no high_max: limits as {release.name} sets them with {_FRACTION}={now}"
        * any(p.high_max is None for p in lists),
        largest and largest.batch,
        tuple(filter(None, (lists or largest for lists in sized))),
        (*notes, *_notes(info, release, cpus, now, page_size_kib)),
    )


def _listed(machine: Machine, lscpu: Lscpu | None) -> Machine:
    """The machine with the CPUs that lscpu printed there."""
    if lscpu is None:
        return machine
    known = machine.platform | {"cpus": lscpu.online}
    if lscpu.nodes:
        split = [n for _, n in sorted(lscpu.nodes.items())]
        told = known.get("nodes") or len(split)
        if told != len(split):
            raise InputError(
                f"nodes={len(split)} in what lscpu printed; allowed: those of platform.json of "
                f"{machine.name}, {told}"
            )
        known["cpus_per_node"] = ",".join(map(str, split))
    return replace(machine, platform=known)


def _missing(known: Mapping[str, Any]) -> list[str]:
    """What a platform.json has to say of CPUs and memory, and does not."""
    split, shares = known.get("cpus_per_node"), known.get("gib_per_node")
    said = {
        "memory": known.get("memory_gib") or shares,
        "nodes": known.get("nodes") or split or shares,
        "CPUs": known.get("cpus") or split,
    }
    return [name for name, value in said.items() if not value]


def _of_platform(machine: Machine, release: Release, page_size_kib: int) -> _Memory | None:
    """What platform.json says; None if CPUs, nodes or memory are missing."""
    known = machine.platform
    if _missing(known):
        return None
    host = host_of(machine, {"page_size_kib": page_size_kib})
    zones = host.sizes(release)
    takers = _takers(host)  # each has lists of all zones
    stated = "" if known.get("page_size_kib") else " (none is stated)"
    assumed = "".join(f", {what} (assumed)" for what in assumed_nodes(known, host))
    owns = [*host.node_cpus, *[host.cpus] * host.cpuless_nodes]
    managed = sum(zone.managed for zone in zones)
    gib, nodes = host.memory_gib + host.cpuless_gib, host.nodes + host.cpuless_nodes
    return _Memory(
        host,
        managed,
        None,
        sum(zone.high_max * takers[zone.node] for zone in zones),
        sum(z.managed * takers[z.node] / owns[z.node] for z in zones) / managed,
        0,
        f"platform.json of {machine.name}: {counted(host.cpus, 'CPU')}, {counted(nodes, 'node')}, "
        f"{gib:g} GiB"
        + f", {host.cpuless_gib:g} of these on nodes without CPUs"
        * bool(host.cpuless_nodes)
        + f"{assumed}, pages of {page_size_kib} KiB{stated}, with its memory in one zone per node "
        "and high_fraction 0",
    )


def _bound(answer: Mapping[str, Any], p99_us: float) -> str:
    """What keeps the scale from being larger still, the limit or Kconfig, as a sentence."""
    name, scale = answer["machine"], answer["batch_scale"]
    if scale is None:
        return f"no scale stays under {p99_us:g} us on {name}; 0 comes nearest."
    chance = f"with probability {answer['probability']:.2f}"
    if scale == SCALES[-1]:
        return (
            f"the p99 of {scale} stays under {p99_us:g} us, {chance}: what bounds it is Kconfig's "
            f"range, {SCALES[0]} to {SCALES[-1]}, and not the limit."
        )
    return f"{scale} is the largest whose p99 stays under {p99_us:g} us, {chance}."


def _weighed(
    now: Mapping[str, Mapping[str, Any]], then: Mapping[str, Mapping[str, Any]], to: int
) -> tuple[bool, str]:
    """Whether another scale is worth its price by the runs, and what it gives and takes."""
    before, after = now[_CONTENTION], then[_CONTENTION]
    falls = after["high"] < before["low"] and before["value"] - after["value"] > _NEAR
    rises = after["low"] > before["high"] and after["value"] - before["value"] > _NEAR
    how = "more, by more than they scatter" if rises else "as much, as far as they scatter"
    if falls:
        how = "less, by more than they scatter"
    runs = (
        f"In its runs the zone lock is contended {how}: {_text(**before)} now and "
        f"{_text(**after)} at {to}, with {_text(**now[_LISTS])} and {_text(**then[_LISTS])} on "
        "the lists"
    )
    if to < SHIPPED_SCALE:
        return True, f"{runs}."
    p99 = f"{_text(**then['p99 of a hold'])} in place of {_text(**now['p99 of a hold'])}"
    if falls:
        return True, f"{runs}; the price is a p99 of {p99}."
    return False, f"{runs}: nothing that pays for a p99 of {p99}, so {SHIPPED_SCALE} is left."


def _scales_elsewhere(
    release: Release, p99_us: float, batch: int | None, page_size_kib: int
) -> str:
    """What the measured machines allow, for one of which no hold was measured."""
    found = {
        m.name: limit(m, p99_us, release=release, page_size_kib=page_size_kib, batch=batch).facts[
            "batch_scale"
        ]
        for m in machines.load_machines()
    }
    return (
        "What a lock hold costs here is not known. The measured machines allow "
        + ", ".join(f"{k} ({m})" for m, k in found.items())
        + f" under {p99_us:g} us with pages of {page_size_kib} KiB"
        + (f" and a batch of {batch}" if batch else "")
        + "; measure yours and bring it in: pcpmodel data add latency."
    )


def _of_runs(runs: Sequence[Result], host: Host) -> dict[str, dict[str, Any]]:
    """What runs of a scale show: means over the seeds, which come first, and the ends of all."""
    found = {}
    for title, unit, values in (
        (_CONTENTION, "%", [100 * r.lock_contention for r in runs]),
        (_LISTS, "MiB", [float(host.mib(r.pages_in_pcp.mean())) for r in runs]),
    ):
        mean = sum(values[: len(_SEEDS)]) / len(_SEEDS)
        found[title] = _figure(unit, mean, values)
    return found


def _scale(
    machine: Machine | None,
    release: Release,
    p99_us: float,
    memory: _Memory | None,
    page_size_kib: int,
) -> tuple[dict[str, Any], list[str]]:
    host, batch = memory and memory.host, memory and memory.batch
    part: dict[str, Any] = {"now": SHIPPED_SCALE, "advice": "leave", "to": SHIPPED_SCALE}
    part["line"] = None
    if machine is None:
        why = _scales_elsewhere(release, p99_us, batch, page_size_kib)
        return part | {"why": why, "effect": {}}, ["the tables of data/hardware"]
    answer = limit(machine, p99_us, release=release, page_size_kib=page_size_kib, batch=batch).facts
    to = answer["batch_scale"] or 0
    used = host or host_of(machine, {"page_size_kib": page_size_kib})
    assumed = "" if host else ", ".join(assumed_nodes(machine.platform, used))
    processes = min(used.cpus, MAX_CPUS)
    pages = min(MAPPING_KIB // page_size_kib, sum(used.node_pages) // 2 // processes)
    rows = {row["batch_scale"]: row for row in answer["per_scale"]}
    figures: dict[int, dict[str, dict[str, Any]]] = {}
    unsettled: list[int] = []
    for k in dict.fromkeys((SHIPPED_SCALE, to)):
        p99, (low, high) = rows[k]["p99_us"], rows[k]["interval"]
        if not 1e-3 < low / p99 < high / p99 < 1e3:
            raise InputError(
                f"{machine.name}: the p99 of a hold of {rows[k]['batch']} pages is {low:.3g} to "
                f"{high:.3g} us by its table; that is no ground for advice. Measure again: "
                "pcpmodel data add latency --replace"
            )
        runs = [
            simulate(
                release=release,
                machine=machine.slower(times),
                workload=page_fault1(processes, pages=pages, page_size_kib=page_size_kib),
                batch_scale_max=k,
                seconds=_SECONDS,
                seed=seed,
                **{name: getattr(used, name) for name in _OF_HOST},
                **(memory.sizes if memory else {}),
            )
            for seed, times in (*((seed, 1.0) for seed in _SEEDS), (1, low / p99), (1, high / p99))
        ]
        unsettled += [k for run in runs if run.stands is False]
        figures[k] = {"p99 of a hold": _figure("us", p99, [low, high]), **_of_runs(runs, used)}
    part["why"] = f"Under {release.name} {_bound(answer, p99_us)}"
    if to < SHIPPED_SCALE:
        chance = rows[SHIPPED_SCALE]["probability"]
        part["why"] += f" That of the shipped {SHIPPED_SCALE} does so with {chance:.2f}."
    if to != SHIPPED_SCALE:
        worth, why = _weighed(figures[SHIPPED_SCALE], figures[to], to)
        part["why"] += f" {why}"
        part["to"] = to if worth else SHIPPED_SCALE
    changed = int(part["to"]) - SHIPPED_SCALE
    part["advice"] = ("leave", "raise", "lower")[(changed > 0) - (changed < 0)]
    if changed:
        part["line"] = f"CONFIG_PCP_BATCH_SCALE_MAX={to} (when it is built)"
    effect = {}
    for k, of in figures.items():
        when = "now" if k == SHIPPED_SCALE else "then" if changed else f"at {k} instead"
        for title, figure in of.items():
            at = f" ({k})" * (title == "p99 of a hold" and when in ("now", "then"))
            effect[f"{title}, {when}{at}"] = figure
    rests = [
        machine.derived
        or f"the measured table of {machine.name}, as fitted (pcpmodel fit {machine.name})",
        f"page_fault1 by {counted(processes, 'process', 'es')} under {release} on "
        f"{counted(used.cpus, 'CPU')}, {counted(used.nodes, 'node')}, {used.memory_gib:.1f} GiB, "
        f"pages of {page_size_kib} KiB"
        + ", as many as a run follows: more wait for each other more" * (processes < used.cpus)
        + f", and {used.cpuless_gib:.1f} GiB of nodes without CPUs" * bool(used.cpuless_nodes)
        + f" (assumed, not known of it: {assumed})" * bool(assumed),
        "what cold pages add to a hold there: lines that a short run counts, at the latencies of "
        "the machine's cost sheet (`simulate` names what nobody measured)",
        f"intervals: {len(_SEEDS)} seeds, and holds as short and as long as the fit allows",
    ]
    if unsettled:
        scales = " and ".join(map(str, dict.fromkeys(unsettled)))
        rests.append(f"runs at scale {scales} whose rates never became steady: they still change")
    rests += [answer["basis"], *answer["notes"]]
    return part | {"effect": effect}, rests


def _fraction(memory: _Memory | None, machine: Machine | None, percent: float) -> dict[str, Any]:
    if memory is None:
        assert machine is not None  # of this host all is known
        return {
            "now": None,
            "advice": None,
            "to": None,
            "why": f"Not known of {machine.name}: {', '.join(_missing(machine.platform))}. Give "
            "its /proc/zoneinfo (--zoneinfo FILE) or fill in its platform.json.",
            "line": None,
            "effect": {},
        }
    now, managed, most = memory.fraction, memory.managed, memory.most
    mib = memory.host.mib
    share = 100 * most / managed
    # Lists of small zones take four batches, whatever the fraction: the shipped 1/8 is a bit more.
    to = 0
    if share > percent + _NEAR:
        to = max(8, math.ceil(100 * memory.spread / percent))
    effect = {}
    if memory.held is not None:
        effect["memory on the lists in the file, now"] = _figure("MiB", mib(memory.held))
        effect["share on the lists in the file, now"] = _figure(
            "% of memory", 100 * memory.held / managed
        )
    effect["most that the limits allow, now"] = _figure("MiB", mib(most))
    effect["share that the limits allow, now"] = _figure("% of memory", share)
    why = f"The lists may take {share:.1f} % of memory; {percent:g} % was asked for."
    if to:
        then = memory.spread / to
        effect["most that the limits allow, then"] = _figure("MiB", mib(managed) * then)
        effect["share that the limits allow, then"] = _figure("% of memory", 100 * then)
        why += " Its price: high no longer tunes itself, so refills and drains come more often."
    return {
        "now": now,
        "advice": "leave" if to in (0, now) else "raise" if to > now else "lower",
        "to": to or now,
        "why": why,
        "line": f"sysctl vm.percpu_pagelist_high_fraction={to}" if to else None,
        "effect": effect,
    }


def advise(
    machine: str | Machine | None = None,
    *,
    zoneinfo: str | os.PathLike[str] | None = None,
    lscpu: str | os.PathLike[str] | None = None,
    cpus_per_node: int | Sequence[int] | None = None,
    high_fraction: int | None = None,
    p99_us: float = 100.0,
    stranded_percent: float = 12.5,
    release: str | Release | None = None,
    page_size_kib: int | None = None,
) -> Answer:
    """Advise on the batch scale and the high fraction of a machine.

    A scale whose p99 exceeds the limit is lowered; it is raised only where the runs are contended
    less by more than they scatter.

    Parameters
    ----------
    machine : str or Machine, optional
        A measured one, for what a lock hold costs; without it no change of the batch scale
        is advised.
    zoneinfo : path, optional
        A copy of the machine's ``/proc/zoneinfo``: CPUs, memory, and the sizes of its lists, which
        go before those that the release would give (where they differ it is said).  Without it
        the memory is that of the named machine's ``platform.json`` (not known where that does not
        say), or, where no machine is named, of this host.
    lscpu : path, optional
        What ``lscpu`` printed there; its number of online CPUs must be that of ``zoneinfo``.
    cpus_per_node : int or sequence of int, optional
        Online CPUs of each node, or of every node; 0 for one of memory only.  By default as
        ``lscpu`` or this host says, else those that the limits of ``zoneinfo`` follow from.
    high_fraction : int, optional
        vm.percpu_pagelist_high_fraction there; by default this host's, or the one that the limits
        of ``zoneinfo`` follow from.
    p99_us : float
        What the 99th percentile of a hold may take [us].
    stranded_percent : float
        Share of memory that the lists may take, above 0 and up to 100 [%]; by default 1/8, which
        is what the kernel allows since v6.7.
    release : str or Release, optional
        Kernel state: what scales under the limit, and of the simulated runs; one that tunes
        ``high``.  By default the one that ``zoneinfo`` is of, as far as what it prints tells that
        (it is said), else v6.18, the newest whose refills and drains both scale.
    page_size_kib : int, optional
        4, 16 or 64 [KiB]; by default this host's, the one that the batches of ``zoneinfo`` follow
        from, or that of the named machine (4 where its ``platform.json`` does not say).

    Returns
    -------
    Answer
        ``effects``: what is expected of each ``setting`` (``low``, ``high``: NaN where it is
        counted or computed, not estimated).  The facts of ``batch_scale_max`` and
        ``high_fraction`` are ``now``, ``advice`` (``raise``, ``leave`` or ``lower``; None: not
        known), ``to``, ``why``, ``line`` (what would set it) and the expected ``effect``.

    Raises
    ------
    InputError
        For an unknown machine or release, a file that cannot be read, a number out of range.
    """
    asked = None if release is None else find_release(release)
    state = asked or find_release(RELEASE)
    if not state.rules.auto_high:
        raise InputError(f"release {state.name!r} has no batch scale; give one from v6.7 on")
    positive("p99_us", p99_us)
    if not (isinstance(stranded_percent, Real) and 0 < stranded_percent <= 100):
        raise InputError(f"stranded_percent={stranded_percent!r} is outside 0..100 [%]")
    listed = None if lscpu is None else read_cpus(lscpu)
    if page_size_kib is not None:
        page_shift(page_size_kib)
    measured = None if machine is None else machines.machine(machine)
    if measured is not None and zoneinfo is None:
        page_size_kib = page_size_kib or measured.page_size_kib
        measured = _listed(measured, listed)
        if cpus_per_node is not None or high_fraction is not None:
            raise InputError("cpus_per_node and high_fraction go with zoneinfo")
        memory = _of_platform(measured, state, page_size_kib)
        notes = []
    else:
        info = zones_of.read(HERE if zoneinfo is None else zoneinfo)[-1]
        if sum(zone.managed for zone in info.populated) == 0:
            raise InputError("lists no zone with memory", file=info.file)
        state, of_kernel = _kernel(info, asked)
        memory = _of_zoneinfo(info, state, page_size_kib, cpus_per_node, listed, high_fraction)
        notes = [of_kernel] if of_kernel else []
        page_size_kib = memory.host.page_size_kib
    batch_scale_max, rests = _scale(measured, state, p99_us, memory, page_size_kib)
    facts = {
        "machine": measured and measured.name,
        "release": state.name,
        "batch_scale_max": batch_scale_max,
        "high_fraction": _fraction(memory, measured, stranded_percent),
        "rests_on": [*rests, *notes, memory.source, *memory.notes] if memory else rests,
        "does_not_apply": list(_DOES_NOT_APPLY),
    }
    settings = {_SCALE: batch_scale_max, _FRACTION: facts["high_fraction"]}
    effects = pd.DataFrame(
        [
            {"setting": setting, "figure": figure, **value}
            for setting, part in settings.items()
            for figure, value in part["effect"].items()
        ],
        columns=["setting", "figure", "value", "low", "high", "unit"],
    )
    said = {setting: _said(setting, part) for setting, part in settings.items()}
    for title in ("rests_on", "does_not_apply"):
        head = {"rests_on": "Rests on:", "does_not_apply": "Does not apply to:"}[title]
        said[title] = "\n".join([f"- {head}", *(f"  - {line}" for line in facts[title])])
    return Answer({"effects": effects.astype({"low": float, "high": float})}, said, facts)


def _said(title: str, part: Mapping[str, Any]) -> str:
    to = "" if part["advice"] in ("leave", None) else f" to {part['to']}"
    now = "unknown" if part["now"] is None else part["now"]
    lines = [f"- **{title} = {now}: {part['advice'] or 'no advice'}{to}.** {part['why']}"]
    lines += [f"  - {name}: {_text(**figure)}" for name, figure in part["effect"].items()]
    if part["line"]:
        lines.append(f"  - would be set by: {part['line']}")
    return "\n".join(lines)

"""What to set on a machine: the batch scale and the high fraction, and at what price."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcpmodel import machine as machines
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.machine import zoneinfo as zones_of
from pcpmodel.simulation.host import Host
from pcpmodel.simulation.run import MAX_CPUS, simulate
from pcpmodel.study.limit import limit
from pcpmodel.workload.faults import MAPPING_PAGES, page_fault1

__all__ = ["Advice", "advise"]

#: CONFIG_PCP_BATCH_SCALE_MAX as the kernel is shipped (mm/Kconfig, v6.7 on).
SHIPPED_SCALE = 5
HERE = "/proc/zoneinfo"
_SEEDS, _SECONDS = (1, 2, 3), 0.2
_ASSUMED = Host(224, 2, 512.0)  # where a machine's CPUs and memory are not known
_MIB = 1 << 8  # pages


@dataclass(frozen=True)
class Advice:
    """What `advise` says; prints as a report.

    Attributes
    ----------
    batch_scale_max, high_fraction : dict
        ``now``, ``advice`` (``raise``, ``leave`` or ``lower``; None: not known), ``to``, ``why``,
        ``line`` (what would set it) and the expected ``effect``: name -> ``value``, ``low``,
        ``high`` (None: counted or computed, not estimated) and ``unit``.
    rests_on, does_not_apply : tuple of str
    """

    machine: str | None
    release: str
    batch_scale_max: dict[str, Any]
    high_fraction: dict[str, Any]
    rests_on: tuple[str, ...]
    does_not_apply: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "machine": self.machine,
            "release": self.release,
            "batch_scale_max": self.batch_scale_max,
            "high_fraction": self.high_fraction,
            "rests_on": list(self.rests_on),
            "does_not_apply": list(self.does_not_apply),
        }

    def __str__(self) -> str:
        lines = []
        for title, part in (
            ("CONFIG_PCP_BATCH_SCALE_MAX", self.batch_scale_max),
            ("vm.percpu_pagelist_high_fraction", self.high_fraction),
        ):
            to = "" if part["advice"] in ("leave", None) else f" to {part['to']}"
            now = "unknown" if part["now"] is None else part["now"]
            lines.append(f"{title} = {now}: {part['advice'] or 'no advice'}{to}")
            lines.append(f"  {part['why']}")
            lines += [f"  {name}: {_text(**figure)}" for name, figure in part["effect"].items()]
            if part["line"]:
                lines.append(f"  would be set by: {part['line']}")
            lines.append("")
        lines += ["Rests on:", *(f"  {r}" for r in self.rests_on), "", "Does not apply to:"]
        return "\n".join([*lines, *(f"  {d}" for d in self.does_not_apply)])


def _text(value: float, low: float | None, high: float | None, unit: str) -> str:
    digits = 0 if unit in ("us", "MiB") else 1
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
    most: int  # pages that their limits allow the CPUs of each zone's own node
    fraction: int  # vm.percpu_pagelist_high_fraction now
    source: str


def _of_zoneinfo(zoneinfo: str | os.PathLike[str]) -> _Memory:
    own = Path("/proc/sys/vm/percpu_pagelist_high_fraction")
    now = int(own.read_text("ascii")) if zoneinfo == HERE and own.is_file() else 0
    info = zones_of.read(zoneinfo)[-1]
    managed = sum(zone.managed for zone in info.populated)
    if managed == 0:
        raise InputError("lists no zone with memory", file=zoneinfo)
    lists = [p for zone in info.populated for p in zone.pagesets]
    cpus, nodes = len(info.online_cpus), len({zone.node for zone in info.populated})
    return _Memory(
        Host(cpus, 1 if cpus % nodes else nodes, managed / (1 << 18)),
        managed,
        sum(p.count for p in lists),
        sum(p.high if p.high_max is None else p.high_max for p in lists) // nodes,
        now,
        f"{os.fspath(zoneinfo)}, {cpus} CPUs"
        + ", which prints no high_max: limits as they stood"
        * any(p.high_max is None for p in lists),
    )


def _of_platform(machine: str, release: Release, cpus: int | None) -> _Memory | None:
    """What platform.json says; None if CPUs, nodes or memory are missing."""
    known = machines.load(machine).platform
    cpus, nodes, gib = cpus or known.get("cpus"), known.get("nodes"), known.get("memory_gib")
    if None in (cpus, nodes, gib) or known.get("page_size_kib") not in (None, 4):
        return None
    host = Host(cpus, nodes, gib)
    zones = host.sizes(release)
    return _Memory(
        host,
        sum(zone.managed for zone in zones),
        None,
        sum(zone.high_max for zone in zones) * host.cpus_per_node,
        0,
        f"platform.json of {machine}: {host.cpus} CPUs, {nodes} nodes, {gib:g} GiB, with its "
        "memory in one zone per node and high_fraction 0",
    )


def _scale(
    machine: str | None, release: str, p99_us: float, host: Host | None
) -> tuple[dict[str, Any], list[str]]:
    part: dict[str, Any] = {"now": SHIPPED_SCALE, "advice": "leave", "to": SHIPPED_SCALE}
    if machine is None:
        found = {m: limit(m, p99_us=p99_us).batch_scale for m in machines.machines()}
        part["why"] = (
            "What a lock hold costs here is not known. The measured machines allow "
            + ", ".join(f"{k} ({m})" for m, k in found.items())
            + f" under {p99_us:g} us; measure yours and bring it in: pcpmodel data add latency."
        )
        return part | {"line": None, "effect": {}}, ["the tables of data/hardware"]
    answer = limit(machine, p99_us=p99_us)
    to = answer.batch_scale or 0
    used = host or _ASSUMED
    processes = min(used.cpus, MAX_CPUS)
    pages = min(MAPPING_PAGES, int(used.memory_gib * (1 << 17)) // processes)
    rows = {row["batch_scale"]: row for row in answer.as_dict()["per_scale"]}
    effect: dict[str, dict[str, Any]] = {}
    for name, k in {"now": SHIPPED_SCALE, "then": to}.items():
        p99, (low, high) = rows[k]["p99_us"], rows[k]["interval"]
        runs = [
            simulate(
                release=release,
                machine=machine,
                workload=page_fault1(processes=processes, pages=pages),
                cpus=used.cpus,
                nodes=used.nodes,
                memory_gib=used.memory_gib,
                batch_scale_max=k,
                hold_scale=scale,
                seconds=_SECONDS,
                warmup_s=_SECONDS,  # high tunes itself first
                seed=seed,
            )
            for seed, scale in (*((seed, 1.0) for seed in _SEEDS), (1, low / p99), (1, high / p99))
        ]
        effect[f"p99 of a hold, {name} ({k})"] = _figure("us", p99, [low, high])
        for title, unit, values in (
            ("zone-lock contention", "%", [100 * r.lock_contention for r in runs]),
            ("memory on the lists", "MiB", [float(r.pages_in_pcp.mean()) / _MIB for r in runs]),
        ):
            mean = sum(values[: len(_SEEDS)]) / len(_SEEDS)
            effect[f"{title}, {name}"] = _figure(unit, mean, values)
        if k == to:
            break
    if answer.batch_scale is None:
        part["why"] = f"No scale stays under {p99_us:g} us on {machine}; 0 comes nearest."
    else:
        chance = f"with probability {answer.probability:.2f}"
        part["why"] = f"{to} is the largest whose p99 stays under {p99_us:g} us, {chance}."
    advice = "leave" if to == SHIPPED_SCALE else "raise" if to > SHIPPED_SCALE else "lower"
    line = None if advice == "leave" else f"CONFIG_PCP_BATCH_SCALE_MAX={to} (when it is built)"
    rests = [
        f"the measured table of {machine}, as fitted (pcpmodel fit {machine})",
        f"page_fault1 by {processes} processes under {release} on {used.cpus} CPUs, {used.nodes} "
        f"nodes, {used.memory_gib:.1f} GiB" + ("" if host else " (assumed: not known of it)"),
        f"intervals: {len(_SEEDS)} seeds, and holds as short and as long as the fit allows",
    ]
    if rows[to]["measured"] is None:
        rests.append(f"an extrapolation: no measured batch is near scale {to}")
    return part | {"advice": advice, "to": to, "line": line, "effect": effect}, rests


def _fraction(memory: _Memory | None, machine: str | None, percent: float) -> dict[str, Any]:
    if memory is None:
        return {
            "now": None,
            "advice": None,
            "to": None,
            "why": f"Memory, nodes and CPUs of {machine} are not known: give its /proc/zoneinfo "
            "(--zoneinfo FILE) or fill in its platform.json.",
            "line": None,
            "effect": {},
        }
    now, managed, most = memory.fraction, memory.managed, memory.most
    share = 100 * most / managed
    to = 0 if share <= percent else max(8, math.ceil(100 / percent))
    effect = {}
    if memory.held is not None:
        effect["memory on the lists, now"] = _figure("MiB", memory.held / _MIB)
        effect["share on the lists, now"] = _figure("% of memory", 100 * memory.held / managed)
    effect["most that the limits allow, now"] = _figure("MiB", most / _MIB)
    effect["share that the limits allow, now"] = _figure("% of memory", share)
    why = f"The lists may take {share:.1f} % of memory; {percent:g} % was asked for."
    if to:
        effect["most that the limits allow, then"] = _figure("MiB", managed / to / _MIB)
        effect["share that the limits allow, then"] = _figure("% of memory", 100 / to)
        why += " Its price: high no longer tunes itself, so refills and drains come more often."
    return {
        "now": now,
        "advice": "leave" if to in (0, now) else "raise" if to > now else "lower",
        "to": to or now,
        "why": why,
        "line": f"sysctl vm.percpu_pagelist_high_fraction={to}" if to else None,
        "effect": effect,
    }


def _cpus(lscpu: str | os.PathLike[str]) -> int:
    try:
        text = Path(lscpu).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=lscpu) from None
    found = re.search(r"^CPU\(s\):\s+(\d{1,5})$", text, re.M)
    if found is None:
        raise InputError("has no line 'CPU(s): N'; is it what lscpu prints?", file=lscpu)
    return int(found[1])


def advise(
    machine: str | None = None,
    *,
    zoneinfo: str | os.PathLike[str] | None = None,
    lscpu: str | os.PathLike[str] | None = None,
    p99_us: float = 100.0,
    stranded_percent: float = 12.5,
    release: str = "v6.18",
) -> Advice:
    """Advise on the batch scale and the high fraction of a machine.

    Parameters
    ----------
    machine : str, optional
        A measured machine, for what a lock hold costs; without it no change of the batch scale
        is advised.
    zoneinfo : path, optional
        A copy of the machine's ``/proc/zoneinfo``.  Without it the memory is that of the named
        machine's ``platform.json`` (not known where that does not say), or, where no machine is
        named, of this host.
    lscpu : path, optional
        What ``lscpu`` printed there; its number of CPUs must be that of ``zoneinfo``.
    p99_us : float
        What the 99th percentile of a hold may take [us].
    stranded_percent : float
        Share of memory that the lists may take, above 0 and up to 100 [%]; by default 1/8, which
        is what the kernel allows since v6.7.
    release : str
        Kernel state of the simulated runs; one that tunes ``high``.

    Returns
    -------
    Advice

    Raises
    ------
    InputError
        For an unknown machine or release, a file that cannot be read, a number out of range.
    """
    state = find_release(release)
    if not state.rules.auto_high:
        raise InputError(f"release {release!r} has no batch scale; give one from v6.7 on")
    if not (isinstance(p99_us, int | float) and 0 < p99_us < 1e6):
        raise InputError(f"p99_us={p99_us!r} is outside 0..1e6 [us]")
    if not (isinstance(stranded_percent, int | float) and 0 < stranded_percent <= 100):
        raise InputError(f"stranded_percent={stranded_percent!r} is outside 0..100 [%]")
    cpus = None if lscpu is None else _cpus(lscpu)
    if machine is not None and zoneinfo is None:
        memory = _of_platform(machine, state, cpus)
    else:
        memory = _of_zoneinfo(HERE if zoneinfo is None else zoneinfo)
        if cpus is not None and cpus != memory.host.cpus:
            raise InputError(
                f"lists {memory.host.cpus} CPUs, but lscpu says {cpus}",
                file=HERE if zoneinfo is None else zoneinfo,
            )
    batch_scale_max, rests = _scale(machine, state.name, p99_us, memory and memory.host)
    return Advice(
        machine,
        state.name,
        batch_scale_max,
        _fraction(memory, machine, stranded_percent),
        (*rests, memory.source) if memory else tuple(rests),
        (
            "memory that CPUs of another node keep on their lists of a zone",
            "a machine whose time goes into the LRU lock or the page cache instead",
            "memory kept from being freed by anything but the lists",
            "pages of another size than 4 KiB",
            "a kernel built with another CONFIG_PCP_BATCH_SCALE_MAX than 5, or older than v6.7",
        ),
    )

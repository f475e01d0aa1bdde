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
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.machine import zoneinfo as zones_of
from pcpmodel.simulation.run import simulate
from pcpmodel.study.limit import limit
from pcpmodel.workload.faults import page_fault1

__all__ = ["Advice", "advise"]

#: CONFIG_PCP_BATCH_SCALE_MAX as the kernel is shipped (mm/Kconfig, v6.7 on).
SHIPPED_SCALE = 5
HERE = "/proc/zoneinfo"
_SEEDS, _SECONDS = (1, 2, 3), 0.2


@dataclass(frozen=True)
class Advice:
    """What `advise` says; prints as a report.

    Attributes
    ----------
    batch_scale_max, high_fraction : dict
        ``now``, ``advice`` (``raise``, ``leave`` or ``lower``), ``to``, ``why``, ``line`` (what
        would set it) and the expected ``effect``, each figure with its interval.
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
            to = "" if part["advice"] == "leave" else f" to {part['to']}"
            lines += [f"{title} = {part['now']}: {part['advice']}{to}", f"  {part['why']}"]
            lines += [f"  {name}: {text}" for name, text in part["effect"].items()]
            if part["line"]:
                lines.append(f"  would be set by: {part['line']}")
            lines.append("")
        lines += ["Rests on:", *(f"  {r}" for r in self.rests_on), "", "Does not apply to:"]
        return "\n".join([*lines, *(f"  {d}" for d in self.does_not_apply)])


def _range(values: list[float], unit: str, digits: int = 1) -> str:
    lo, hi = min(values), max(values)
    return f"{sum(values) / len(values):.{digits}f} {unit} ({lo:.{digits}f} ... {hi:.{digits}f})"


def _scale(machine: str | None, release: str, p99_us: float) -> tuple[dict[str, Any], list[str]]:
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
    to = SHIPPED_SCALE if answer.batch_scale is None else answer.batch_scale
    hardware = machines.load(machine)
    cpus = hardware.platform.get("cpus") or 224
    rows = {row["batch_scale"]: row for row in answer.as_dict()["per_scale"]}
    effect = {}
    for name, k in {"now": SHIPPED_SCALE, "then": to}.items():
        runs = [
            simulate(
                release=release,
                machine=hardware,
                workload=page_fault1(processes=cpus),
                batch_scale_max=k,
                seconds=_SECONDS,
                warmup_s=_SECONDS,  # high tunes itself first
                seed=seed,
            )
            for seed in _SEEDS
        ]
        lo, hi = rows[k]["interval"]
        effect[f"p99 of a hold, {name} ({k})"] = (
            f"{rows[k]['p99_us']:.0f} us ({lo:.0f} ... {hi:.0f})"
        )
        effect[f"zone-lock contention, {name}"] = _range(
            [100 * r.lock_contention for r in runs], "%"
        )
        effect[f"pages on the lists, {name}"] = _range(
            [float(r.pages_in_pcp.mean()) / 256 for r in runs], "MiB", 0
        )
        if k == to:
            break
    if answer.batch_scale is None:
        part["why"] = f"No scale stays under {p99_us:g} us on {machine}; 0 comes nearest."
        to = 0
    else:
        chance = f"with probability {answer.probability:.2f}"
        part["why"] = f"{to} is the largest whose p99 stays under {p99_us:g} us, {chance}."
    advice = "leave" if to == SHIPPED_SCALE else "raise" if to > SHIPPED_SCALE else "lower"
    line = None if advice == "leave" else f"CONFIG_PCP_BATCH_SCALE_MAX={to} (when it is built)"
    return (
        part | {"advice": advice, "to": to, "line": line, "effect": effect},
        [
            f"the measured table of {machine}, as fitted (pcpmodel fit {machine})",
            f"page_fault1 by {cpus} processes under {release}, {len(_SEEDS)} seeds, once high has "
            f"tuned itself ({_SECONDS} s)",
        ],
    )


def _fraction(
    zoneinfo: str | os.PathLike[str], cpus: int | None, stranded_percent: float
) -> tuple[dict[str, Any], list[str]]:
    own = Path("/proc/sys/vm/percpu_pagelist_high_fraction")
    now = int(own.read_text("ascii")) if zoneinfo == HERE and own.is_file() else 0
    info = zones_of.read(zoneinfo)[-1]
    managed = held = most = 0
    for zone in info.zones:
        if not zone.populated:
            continue
        managed += zone.managed
        held += sum(p.count for p in zone.pagesets)
        most += sum(p.high if p.high_max is None else p.high_max for p in zone.pagesets)
    if managed == 0:
        raise InputError("lists no zone with memory", file=zoneinfo)
    listed = max(len(zone.pagesets) for zone in info.zones)
    if cpus is not None and cpus != listed:
        raise InputError(f"lists {listed} CPUs, but lscpu says {cpus}", file=zoneinfo)
    share = 100 * most / managed
    to = 0 if share <= stranded_percent else max(8, math.ceil(100 / stranded_percent))
    effect = {
        "pages on the lists, now": f"{held / 256:.0f} MiB, {100 * held / managed:.2f} % of memory",
        "most that the limits allow, now": f"{most / 256:.0f} MiB, {share:.1f} % of memory",
    }
    if to:
        effect["most that the limits allow, then"] = (
            f"{managed / to / 256:.0f} MiB, {100 / to:.1f} % of memory"
        )
        effect["price"] = "high no longer tunes itself: more refills and drains"
    return {
        "now": now,
        "advice": "leave" if to in (0, now) else "raise" if to > now else "lower",
        "to": to or now,
        "why": f"The lists may take {share:.1f} % of memory; {stranded_percent:g} % was asked for.",
        "line": f"sysctl vm.percpu_pagelist_high_fraction={to}" if to else None,
        "effect": effect,
    }, [f"{os.fspath(zoneinfo)}, {listed} CPUs"]


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
        A copy of the machine's ``/proc/zoneinfo``; by default that of this host.
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
    high_fraction, files = _fraction(HERE if zoneinfo is None else zoneinfo, cpus, stranded_percent)
    batch_scale_max, tables = _scale(machine, state.name, p99_us)
    return Advice(
        machine,
        state.name,
        batch_scale_max,
        high_fraction,
        (*tables, *files),
        (
            "a machine whose time goes into the LRU lock or the page cache instead",
            "memory kept from being freed by anything but the lists",
            "a kernel built with another CONFIG_PCP_BATCH_SCALE_MAX than 5, or older than v6.7",
        ),
    )

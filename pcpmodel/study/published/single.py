"""Published tables of single figures: zone splitting, and chunks on three machines."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pcpmodel.datasets.packages import load_published
from pcpmodel.hardware.machines import Machine, machine
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.study.builds import busy_cycles, time_change
from pcpmodel.study.published.cases import hahn_machines, host, notes
from pcpmodel.study.published.model import REPEATS, ends
from pcpmodel.study.published.rows import Row, after, make_row
from pcpmodel.workload import Workload, kbuild, page_fault1

__all__ = ["BIG", "SINGLE", "ZONE_SPLIT", "Split", "one_zone"]

_Answer = tuple[list["Row"], str]


@dataclass(frozen=True)
class Split:
    """One workload of the zone splitting: its name in the figures, as published, as simulated."""

    step: str
    published: str
    make: Callable[[], Workload]


ZONE_SPLIT = (
    Split("page_fault1", "page_fault1, 16 processes", lambda: page_fault1(16, lru=True)),
    Split("kbuild -j224", "kernel build, make -j224", lambda: kbuild(224, lru=True)),
)
#: The machine of the RFC.
BIG = "224 CPUs, 2 TiB"
#: The oldest release here after v6.3, which the RFC is on top of, with the same page lists.
RELEASE = "v6.6"


def _figure(workload: str, quantity: str) -> Mapping[str, float] | None:
    """The row of a published figure whose quantity begins so; None if there is none."""
    frame = load_published("zone-split-rfc").tables["figures"]
    mine = frame["quantity"].str.startswith(quantity) & (frame["workload"] == workload)
    return None if not mine.any() else frame[mine].iloc[0]


def one_zone(split: Split, zones: int, seed: int, on: Machine | None = None) -> Result:
    """A run with so many zones per node."""
    given = host(BIG)
    return simulate(
        release=RELEASE,
        workload=split.make(),
        seed=seed,
        zones_per_node=zones,
        **given | {"machine": on or given["machine"]},
    )


def _zone_split(seed: int, rules: Mapping[str, Mapping[str, float]]) -> _Answer:
    """One zone against four instances per node (RFC of May 2023, on v6.3)."""
    note = notes("zone-split")
    rows = []
    allowed = ends(machine(host(BIG)["machine"]))
    for split in ZONE_SPLIT:
        contention = _figure(split.published, "zone lock contention")
        assert contention is not None
        before, after_it = float(contention["before"]), float(contention["after"])
        step = split.step
        one, four = ([one_zone(split, n, seed + i) for i in range(REPEATS)] for n in (1, 4))
        apart = [[one_zone(split, n, seed, on) for on in allowed] for n in (1, 4)]
        # The source says of the zone lock alone.
        spins = [[100 * busy_cycles(r) * r.lock_contention for r in runs] for runs in (one, four)]
        at_ends = [tuple(100 * busy_cycles(r) * r.lock_contention for r in runs) for runs in apart]
        cells = [
            make_row(
                "zone-split-rfc", "figures", f"{step}, {zones}", "lock_contention", measured,
                runs[0], rules,
            )
            for zones, measured, runs in (
                ("1 zone", before, spins[0]),
                ("4 zones", after_it, spins[1]),
            )
        ]  # fmt: skip
        rows += [
            replace(cells[0], runs=tuple(spins[0]), at_ends=at_ends[0]),
            replace(
                after(cells[1], spins[1], before=before, runs_before=spins[0], first=before),
                at_ends=at_ends[1],
            ),
        ]
        if (score := _figure(split.published, "score")) is not None:
            gains = [100 * (f.score / o.score - 1) for o, f in zip(one, four, strict=True)]
            change = make_row(
                "zone-split-rfc", "figures", f"{step}, 4 zones", "score change",
                float(score["change_pct"]), gains[0], rules, kind="change",
            )  # fmt: skip
            change = after(change, gains, before=0.0, runs_before=[0.0] * REPEATS, first=0.0)
            of_ends = (100 * (f.score / o.score - 1) for o, f in zip(*apart, strict=True))
            rows.append(replace(change, at_ends=tuple(of_ends)))
            waiting = 100 * ((1 - after_it / 100) / (1 - before / 100) - 1)
            note += (
                f" The published contention of {step} ({before:g} % before, {after_it:g} % "
                f"after) is worth {waiting:.1f} % of its score; what more it gained was not "
                "waiting."
            )
    return rows, note


def _hahn(seed: int, rules: Mapping[str, Mapping[str, float]]) -> _Answer:
    """Build time with and without the chunks of v4, on three machines."""
    frame = load_published("hahn-v4").tables["kbuild"]
    rows = []
    for name, (cpus, nodes, memory) in hahn_machines().items():

        def runs(kernel: str, cpus: int = cpus, nodes: int = nodes, gib: float = memory) -> list:
            return [
                simulate(
                    release=kernel,
                    workload=kbuild(cpus, nodes=nodes, lru=True),
                    seed=seed + i,
                    **host("224 CPUs")
                    | {"cpus": cpus, "nodes": nodes, "memory_gib": gib, "seconds": 15.0},
                )
                for i in range(REPEATS)
            ]

        changes = [
            time_change(whole, cut)
            for whole, cut in zip(runs("v6.18"), runs("v6.18+hahn-v4"), strict=True)
        ]
        measured = frame[(frame.machine == name) & (frame.metric == "real")]["delta_pct"].iloc[0]
        row = make_row(
            "hahn-v4", "kbuild", name, "build time change", float(measured), changes[0], rules,
            kind="change",
        )  # fmt: skip
        rows.append(after(row, changes, before=0.0, runs_before=[0.0] * REPEATS, first=0.0))
    return rows, notes("hahn")


#: Tables of single figures.
SINGLE: dict[str, Callable[..., _Answer]] = {
    "zone-split-rfc/figures": _zone_split,
    "hahn-v4/kbuild": _hahn,
}

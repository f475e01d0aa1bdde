"""Published tables of single figures: zone splitting, and chunks on three machines."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping

from pcpmodel.datasets.packages import load_published
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.study.published.cases import hahn_machines, host, notes
from pcpmodel.study.published.model import REPEATS
from pcpmodel.study.published.rows import Row, after, make_row
from pcpmodel.workload import Workload, kbuild, page_fault1
from pcpmodel.workload.calibration import calibration

__all__ = ["SINGLE", "ZONE_SPLIT", "one_zone"]

_Answer = tuple[list["Row"], dict[str, float], str]


#: Calibration -> name in the figures, workload as published, and as simulated.
ZONE_SPLIT: dict[str, tuple[str, str, Callable[[], Workload]]] = {
    "zone-split-rfc/page_fault1": (
        "page_fault1",
        "page_fault1, 16 processes",
        lambda: page_fault1(16, like=None),
    ),
    "zone-split-rfc/kbuild": (
        "kbuild -j224",
        "kernel build, make -j224",
        lambda: kbuild(224, like=None),
    ),
}
#: The machine of the RFC.
BIG = "224 CPUs, 2 TiB"


def _figure(workload: str, quantity: str) -> Mapping[str, float] | None:
    """The row of a published figure whose quantity begins so; None if there is none."""
    frame = load_published("zone-split-rfc").tables["figures"]
    mine = frame["quantity"].str.startswith(quantity) & (frame["workload"] == workload)
    return None if not mine.any() else frame[mine].iloc[0]


def one_zone(name: str) -> tuple[Callable[[int, float, int], Result], Mapping[str, float]]:
    """Runs by zones per node, cold_block_ns and seed; the contention that was published [%]."""
    _, published, make = ZONE_SPLIT[name]
    work = make()

    def run(zones: int, cold: float, seed: int) -> Result:
        return simulate(
            release="v6.6",
            workload=work,
            seed=seed,
            zones_per_node=zones,
            cold_block_ns=cold,
            **host(BIG),
        )

    found = _figure(published, "zone lock contention")
    assert found is not None
    return run, found


def _zone_split(seed: int, rules: Mapping[str, Mapping[str, float]]) -> _Answer:
    """One zone against four instances per node (RFC of May 2023, on v6.3)."""
    note = notes("zone-split")
    rows, fitted = [], {}
    for name, (step, published, _) in ZONE_SPLIT.items():
        run, contention = one_zone(name)
        before, split = float(contention["before"]), float(contention["after"])
        cold = calibration(name)["cold_block_ns"].value
        one, four = ([run(n, cold, seed + i) for i in range(REPEATS)] for n in (1, 4))
        fitted[step] = cold
        spins = [[100 * r.lock_contention for r in runs] for runs in (one, four)]
        cells = [
            make_row(
                "zone-split-rfc",
                "figures",
                f"{step}, {zones}",
                "lock_contention",
                measured,
                runs[0],
                rules,
                mark,
            )
            for zones, measured, runs, mark in (
                ("1 zone", before, spins[0], "cold_block_ns"),
                ("4 zones", split, spins[1], ""),
            )
        ]
        rows += [
            cells[0],
            after(cells[1], spins[1], before=before, runs_before=spins[0], first=before),
        ]
        if (score := _figure(published, "score")) is not None:
            gains = [100 * (f.score / o.score - 1) for o, f in zip(one, four, strict=True)]
            change = make_row(
                "zone-split-rfc",
                "figures",
                f"{step}, 4 zones",
                "score change",
                float(score["change_pct"]),
                gains[0],
                rules,
                kind="change",
            )
            rows.append(after(change, gains, before=0.0, runs_before=[0.0] * REPEATS, first=0.0))
            waiting = 100 * ((1 - split / 100) / (1 - before / 100) - 1)
            note += (
                f" The published contention of {step} ({before:g} % before, {split:g} % after) is "
                f"worth {waiting:.1f} % of its score; what more it gained was not waiting."
            )
    return rows, {f"cold_block_ns ({k})": v for k, v in fitted.items()}, note


def _hahn(seed: int, rules: Mapping[str, Mapping[str, float]]) -> _Answer:
    """Build time with and without the chunks of v4, on three machines; nothing fitted here."""
    frame = load_published("hahn-v4").tables["kbuild"]
    cold = calibration("pcp-auto-tuning-v2/kbuild")["cold_block_ns"].value
    rows = []
    for name, (cpus, nodes, memory) in hahn_machines().items():

        def runs(kernel: str, cpus: int = cpus, nodes: int = nodes, gib: float = memory) -> list:
            return [
                simulate(
                    release=kernel,
                    workload=kbuild(cpus, nodes=nodes, migrated_share=0.3, like=None),
                    seed=seed + i,
                    cold_block_ns=cold,
                    **host("224 CPUs")
                    | {"cpus": cpus, "nodes": nodes, "memory_gib": gib, "seconds": 15.0},
                ).score
                for i in range(REPEATS)
            ]

        changes = [
            100 * (whole / cut - 1)
            for whole, cut in zip(runs("v6.18"), runs("v6.18+hahn-v4"), strict=True)
        ]
        measured = frame[(frame.machine == name) & (frame.metric == "real")]["delta_pct"].iloc[0]
        row = make_row(
            "hahn-v4",
            "kbuild",
            name,
            "build time change",
            float(measured),
            changes[0],
            rules,
            kind="change",
        )
        rows.append(after(row, changes, before=0.0, runs_before=[0.0] * REPEATS, first=0.0))
    note = notes("hahn")
    return rows, {}, note


#: Tables of single figures.
SINGLE: dict[str, Callable[..., _Answer]] = {
    "zone-split-rfc/figures": _zone_split,
    "hahn-v4/kbuild": _hahn,
}

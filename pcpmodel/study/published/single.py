"""Published tables of single figures: zone splitting, and chunks on three machines."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pcpmodel.datasets.packages import load_published
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.study.published.cases import hahn_machines, host, notes
from pcpmodel.study.published.causes import of_run
from pcpmodel.study.published.model import REPEATS, thread_speed
from pcpmodel.study.published.rows import Row, after, make_row
from pcpmodel.workload import Workload, kbuild, page_fault1
from pcpmodel.workload.calibration import calibration

__all__ = ["SINGLE", "ZONE_SPLIT", "one_zone"]

_Answer = tuple[list["Row"], dict[str, float], str]


#: From the name of a workload and of a machine, names of parameters, and whether there are more
#: tasks than cores: values.
Chosen = Callable[[str, str, Sequence[str], bool], Mapping[str, float]]
_RUN = ("cold_block_ns", "jitter")
_BUILD = ("migrated_share", "slab_run_share")


@dataclass(frozen=True)
class Split:
    """One workload of the zone splitting: its name in the figures, as published, as simulated."""

    step: str
    published: str
    make: Callable[..., Workload]
    count: int
    own: tuple[str, ...] = ()


#: By calibration.
ZONE_SPLIT = {
    "zone-split-rfc/page_fault1": Split(
        "page_fault1", "page_fault1, 16 processes", page_fault1, 16
    ),
    "zone-split-rfc/kbuild": Split("kbuild -j224", "kernel build, make -j224", kbuild, 224, _BUILD),
}
#: The machine of the RFC.
BIG = "224 CPUs, 2 TiB"
#: The oldest release here after v6.3, which the RFC is on top of, with the same page lists.
RELEASE = "v6.6"


def _figure(workload: str, quantity: str) -> Mapping[str, float] | None:
    """The row of a published figure whose quantity begins so; None if there is none."""
    frame = load_published("zone-split-rfc").tables["figures"]
    mine = frame["quantity"].str.startswith(quantity) & (frame["workload"] == workload)
    return None if not mine.any() else frame[mine].iloc[0]


def one_zone(
    name: str,
) -> tuple[Callable[[int, Mapping[str, float], int], Result], Mapping[str, float]]:
    """Runs by zones per node, parameters and seed; the contention that was published [%]."""
    split = ZONE_SPLIT[name]

    def run(zones: int, parameters: Mapping[str, float], seed: int) -> Result:
        parameters = of_run(parameters, split.make.__name__, RELEASE)
        own = {k: v for k, v in parameters.items() if k in split.own}
        rest = {k: v for k, v in parameters.items() if k not in (*split.own, "smt_yield")}
        return simulate(
            release=RELEASE,
            workload=split.make(split.count, **own, like=None),
            seed=seed,
            zones_per_node=zones,
            **{**host(BIG), **rest},
        )

    found = _figure(split.published, "zone lock contention")
    assert found is not None
    return run, found


def _zone_split(
    seed: int, rules: Mapping[str, Mapping[str, float]], chosen: Chosen | None
) -> _Answer:
    """One zone against four instances per node (RFC of May 2023, on v6.3)."""
    note = notes("zone-split")
    rows, fitted = [], {}
    for name, split in ZONE_SPLIT.items():
        run, contention = one_zone(name)
        before, after_it = float(contention["before"]), float(contention["after"])
        step = split.step
        if chosen is None:
            values = {"cold_block_ns": calibration(name)["cold_block_ns"].value}
            fitted[step] = values["cold_block_ns"]
        else:
            big = host(BIG)
            values = dict(
                chosen(
                    split.make.__name__,
                    big["machine"],
                    _RUN + split.own,
                    2 * split.count > big["cpus"],
                )
            )
        one, four = ([run(n, values, seed + i) for i in range(REPEATS)] for n in (1, 4))
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
                ("1 zone", before, spins[0], "" if chosen else "cold_block_ns"),
                ("4 zones", after_it, spins[1], ""),
            )
        ]
        rows += [
            replace(cells[0], runs=tuple(spins[0])),
            after(cells[1], spins[1], before=before, runs_before=spins[0], first=before),
        ]
        if (score := _figure(split.published, "score")) is not None:
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
            waiting = 100 * ((1 - after_it / 100) / (1 - before / 100) - 1)
            note += (
                f" The published contention of {step} ({before:g} % before, {after_it:g} % "
                f"after) is worth {waiting:.1f} % of its score; what more it gained was not "
                "waiting."
            )
    return rows, {f"cold_block_ns ({k})": v for k, v in fitted.items()}, note


def _hahn(seed: int, rules: Mapping[str, Mapping[str, float]], chosen: Chosen | None) -> _Answer:
    """Build time with and without the chunks of v4, on three machines; nothing fitted here."""
    frame = load_published("hahn-v4").tables["kbuild"]
    if chosen is None:
        cold = calibration("pcp-auto-tuning-v2/kbuild")["cold_block_ns"].value
        values = {"cold_block_ns": cold, "migrated_share": 0.3}
    else:  # the machines are none of those that have a table: see the note
        values = dict(chosen("kbuild", "", _RUN + _BUILD, True))
    own = {k: v for k, v in values.items() if k in _BUILD}
    smt_yield = values.pop("smt_yield", None)
    rows = []
    for name, (cpus, nodes, memory) in hahn_machines().items():

        def runs(kernel: str, cpus: int = cpus, nodes: int = nodes, gib: float = memory) -> list:
            rest = of_run({k: v for k, v in values.items() if k not in _BUILD}, "kbuild", kernel)
            made = [
                simulate(
                    release=kernel,
                    workload=kbuild(cpus, nodes=nodes, **own, like=None),
                    seed=seed + i,
                    **host("224 CPUs")
                    | rest
                    | {"cpus": cpus, "nodes": nodes, "memory_gib": gib, "seconds": 15.0},
                )
                for i in range(REPEATS)
            ]
            return [result.score * thread_speed(result, smt_yield) for result in made]

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

"""Published tables of older kernels, on machines without a latency table.

A machine is taken to be like one that was measured (`pcpmodel.machine`, ``like``); nothing is
fitted to these tables.  What their sources leave out is the same for all of them: memory that is
never short, and the hold of the LRU lock that the simulator assumes everywhere.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.hardware.machines import Machine, machine
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.study.published.model import REPEATS
from pcpmodel.study.published.rows import Row, after, make_row
from pcpmodel.workload import page_fault1

__all__ = ["ASSUMED", "OLDER"]

_MEMORY_GIB = 192.0
#: A part of will-it-scale's mapping, longer than any list, so that a run has many rounds of it.
_PAGES = 4096
_TIMES = {"seconds": 0.04, "warmup_s": 0.03}
#: What a table of older kernels rests on.
ASSUMED = (
    "Nothing is fitted here. Assumed: holds of {like}, {memory:g} GiB, holds of the LRU lock of "
    "1,000 ns for each pagevec, and of a core's two threads that each does the work of one."
)


@dataclass(frozen=True)
class _Server:
    """A machine of a table: its CPUs, and which measured ones it is like."""

    cpus: int
    nodes: int
    like: tuple[str, ...]


#: Machines of batchsize-2018 whose CPUs are stated, there or (Broadwell) in numa-stat-2017.
_BATCHSIZE = {
    "skylake_ep_2s": _Server(112, 2, ("cascade-lake",)),
    "broadwell_ep_2s": _Server(88, 2, ("cascade-lake", "ice-lake", "sapphire-rapids")),
}
#: mmtests asks for up to four clients a CPU: 320 on 80.
_GORMAN = _Server(80, 2, ("cascade-lake",))

_Figures = Mapping[str, float]


def _runs(
    hardware: Machine, server: _Server, release: str, processes: int, **given: Any
) -> list[Result]:
    return [
        simulate(
            release,
            hardware,
            page_fault1(processes, pages=_PAGES, lru=True),
            cpus=server.cpus,
            nodes=server.nodes,
            memory_gib=_MEMORY_GIB,
            seed=seed,
            **_TIMES,
            **given,
        )
        for seed in range(1, REPEATS + 1)
    ]


def _table(
    source: str,
    table: str,
    steps: Sequence[tuple[str, _Figures, Sequence[_Figures]]],
    rules: Mapping[str, Mapping[str, float]],
) -> list[Row]:
    """Rows of steps: name, figures measured, figures by seed."""
    rows: list[Row] = []
    for i, (step, measured, said) in enumerate(steps):
        for quantity, value in measured.items():
            by_seed = [one[quantity] for one in said]
            kind = "score" if quantity == "score" else "lock_contention"
            row = make_row(source, table, step, quantity, value, by_seed[0], rules, kind=kind)
            if i == 0:
                if quantity != "score":  # 100 by definition
                    rows.append(replace(row, runs=tuple(by_seed)))
                continue
            _, before, said_before = steps[i - 1]
            rows.append(
                after(
                    row,
                    by_seed,
                    before=before[quantity],
                    runs_before=[one[quantity] for one in said_before],
                    first=steps[0][1][quantity],
                )
            )
    return rows


def _batchsize(rules: Mapping[str, Mapping[str, float]]) -> tuple[list[Row], str]:
    """Batches of 31 to 498 pages, high six times the batch: which lock waits, and the score."""
    frame = load_published("batchsize-2018").tables["page_fault1"]
    rows = []
    for name, server in _BATCHSIZE.items():
        mine = frame[frame.machine == name].sort_values("batch")
        hardware = machine(name.replace("_", "-"), like=server.like)
        base: list[Result] = []
        steps = []
        for line in mine.itertuples():
            runs = _runs(
                hardware,
                server,
                "v4.17",
                server.cpus,
                batch=int(line.batch),
                high_pages=int(line.pcp_high_6x_batch),
            )
            base = base or runs
            measured = {
                "score": 100 * line.page_fault1_score_per_s / mine.page_fault1_score_per_s.iloc[0],
                "lock_contention": float(line.zone_lock_pct),
                "lru_contention": float(line.lru_lock_pct),
            }
            said = [
                {
                    "score": 100 * run.score / first.score,
                    "lock_contention": 100 * run.lock_contention,
                    "lru_contention": 100 * run.lru_contention,
                }
                for run, first in zip(runs, base, strict=True)
            ]
            known = {k: v for k, v in measured.items() if not pd.isna(v)}
            steps.append((f"{name}, batch {line.batch}", known, said))
        rows += _table("batchsize-2018", "page_fault1", steps, rules)
    note = ASSUMED.format(like="other machines", memory=_MEMORY_GIB)
    return rows, note + " Desktops and Westmere are left out: their CPUs are not stated."


def _gorman(rules: Mapping[str, Mapping[str, float]]) -> tuple[list[Row], str]:
    """Score by processes, in % of that of two."""
    frame = load_published("high-order-pcp-2022").tables["page_fault1"]
    frame = frame[frame.processes <= _GORMAN.cpus]
    column = "vanilla_5.17rc3_hmean_score_per_s"
    hardware = machine("cascade-lake-2s-80", like=_GORMAN.like)
    base: list[Result] = []
    steps = []
    for processes, score in zip(frame.processes, frame[column], strict=True):
        runs = _runs(hardware, _GORMAN, "v5.17", int(processes))
        base = base or runs
        said = [{"score": 100 * r.score / b.score} for r, b in zip(runs, base, strict=True)]
        steps.append(
            (f"{processes} processes", {"score": 100 * score / frame[column].iloc[0]}, said)
        )
    note = ASSUMED.format(like="Cascade Lake", memory=_MEMORY_GIB)
    return (
        _table("high-order-pcp-2022", "page_fault1", steps, rules),
        note + " 80 CPUs are inferred from the 320 clients; more processes than CPUs are left out.",
    )


#: Table -> its rows and what is assumed.
OLDER: dict[str, Callable[[Mapping[str, Mapping[str, float]]], tuple[list[Row], str]]] = {
    "batchsize-2018/page_fault1": _batchsize,
    "high-order-pcp-2022/page_fault1": _gorman,
}

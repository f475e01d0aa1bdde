"""What the simulator says of a case's rows."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcpmodel.datasets.packages import load_published
from pcpmodel.hardware.machines import Machine, machine
from pcpmodel.simulation.pilot import pilot
from pcpmodel.simulation.spec import RunSpec, make_spec
from pcpmodel.study.builds import build_of
from pcpmodel.study.published.cases import Case, cache_miss_column, published_rows
from pcpmodel.study.published.null_models import change_of, sign_of
from pcpmodel.study.published.rows import Row, after, make_row
from pcpmodel.study.published.shared import Runs, Taken

__all__ = ["REPEATS", "Runner", "cache_miss_rows", "case_rows", "ends"]

REPEATS = 3  # seeds of every row, so that a change is told from the model's own scatter
#: Of the time of a hold nothing is left that anybody would wait for.
_NO_HOLDS = 1e-4


def ends(of: Machine) -> tuple[Machine, Machine]:
    """The machine with late lines as fast, and as slow, as its cost sheet allows."""
    sheet = of.sheet
    told = []
    for end in ("low", "high"):
        late = sheet.late_lines(end)
        values = {
            f"{name}.{distance}".rstrip("."): late.value(name, distance)
            for name, distance in late
            if late.value(name, distance) != sheet.value(name, distance)
        }
        told.append(of.with_costs(**values))
    return told[0], told[1]


def _figures(result: Taken, base: Taken, spec: RunSpec | None = None) -> dict[str, float]:
    """The columns of the published tables, of one run against the base run.

    *spec*: of either; with that of a build the figures are of whole builds.
    """

    def per_work(name: str) -> float:
        own, of_base = (getattr(r, name) / max(r.score, 1) for r in (result, base))
        return 100 * own / of_base if of_base else 0.0

    score = 100 * result.score / max(base.score, 1)
    time = 1e4 / score if score else math.inf
    contention = result.lock_contention + result.lru_contention
    if spec is not None and spec.workload.name == "kbuild":
        own, first = (
            build_of(spec, r.score, r.lock_contention + r.lru_contention) for r in (result, base)
        )
        time, contention = 100 * own.time_s / first.time_s, own.lock_contention
    return {
        "score": score,
        "build_time": time,
        "lock_contention": 100 * contention,
        "free_high": per_work("free_high"),
        "alloc_zone": per_work("alloc_zone_pages"),
    }


def cache_miss_rows(case: Case, runners: Sequence[Runner]) -> list[dict[str, Any]]:
    """The column of cache misses beside what the simulator knows of caches, row by row.

    That is the share that a run's time has in it, of its pilot: a page that another CPU of the
    node used last is in a cache, and no miss.
    """
    frame = load_published(case.source).tables[case.table]
    column = cache_miss_column()
    if column not in frame:
        return []
    rows: list[dict[str, Any]] = []
    known: list[float] | None = None
    before = math.nan
    for step, measured in zip(frame["step"], frame[column], strict=True):
        shares = [100 * pilot(run.spec(str(step)), run.seed).from_memory for run in runners]
        row: dict[str, Any] = {
            "source": case.source,
            "table": case.table,
            "step": str(step),
            "measured_rate": float(measured),
            "not_in_cache": float(np.mean(shares)),
        }
        change, error = (None, None) if known is None else change_of(known, shares)
        from_before = None if known is None else float(measured) - before
        rows.append(
            row
            | {
                "measured_change": from_before,
                "predicted_change": change,
                "change_error": error,
                "sign": sign_of(from_before, change, error),
            }
        )
        known, before = shares, float(measured)
    return rows


class Runner:
    """Runs a case's kernels.

    Parameters
    ----------
    case : Case
    seed : int
    runs : Runs, optional
        Where runs are kept.
    on : Machine, optional
        In place of the case's machine.
    """

    def __init__(
        self, case: Case, seed: int, runs: Runs | None = None, on: Machine | None = None
    ) -> None:
        self.case, self.seed = case, seed
        self.runs = runs or Runs()
        self.workload = case.workload()
        self.plain: dict[str, Taken] = {}  # rows as they are: each is also set against the base row
        self.on = machine(case.run["machine"]) if on is None else on

    def __call__(self, step: str, **options: Any) -> Taken:
        return self.runs(self.spec(step, **options))

    def spec(self, step: str, **options: Any) -> RunSpec:
        """The run of a row."""
        given = {**self.case.run, "machine": self.on, **options}
        return make_spec(
            release=self.case.releases[step], workload=self.workload, seed=self.seed, **given
        )

    def row(self, step: str) -> Taken:
        if step not in self.plain:
            self.plain[step] = self(step)
        return self.plain[step]

    def figures(self, step: str) -> dict[str, float]:
        return _figures(self.row(step), self.row("base"), self.spec("base"))

    def takings(self, step: str, contention: float) -> dict[str, float]:
        """The columns by the rules alone: ``contention`` of the base row [%] goes with the holds.

        No hold lasts and nobody waits, so that the counts are those of the rules and the work.
        """
        none = {"machine": self.on.slower(_NO_HOLDS).with_costs(smt_share=0.0), "warm": True}
        own, base = self(step, **none), self("base", **none)
        holds, of_base = ((r.refills + r.drains) / max(r.score, 1) for r in (own, base))
        waiting = contention * holds / of_base if of_base else 0.0
        score = 100 * (100 - waiting) / (100 - contention)
        counts = _figures(own, base)
        return {
            "score": score,
            "build_time": 1e4 / score if score > 0 else math.inf,
            "lock_contention": waiting,
            **{name: counts[name] for name in ("free_high", "alloc_zone")},
        }


def case_rows(
    case: Case,
    runners: Sequence[Runner],
    rules: Mapping[str, Mapping[str, float]],
    at_ends: Sequence[Runner] = (),
) -> list[Row]:
    """The cells of a table, its rows in order.

    Parameters
    ----------
    case : Case
    runners : sequence of Runner
        One per seed; the first one's figures are the prediction.
    rules : mapping
        `tolerances`.
    at_ends : sequence of Runner
        On the machine as its cost sheet allows it to be (`ends`).
    """
    measured = published_rows(case)
    by_seed = [{s: r.figures(s) for s in measured} for r in runners]
    allowed = [{s: r.figures(s) for s in measured} for r in at_ends]
    contention = measured["base"]["lock_contention"]
    takings = {step: runners[0].takings(step, contention) for step in measured}
    rows = []
    last = ""
    for step, figures in measured.items():
        for quantity, value in figures.items():
            if step == "base" and quantity != "lock_contention":
                continue  # 100 by definition
            of_seeds = [p[step][quantity] for p in by_seed]
            row = make_row(case.source, case.table, step, quantity, value, of_seeds[0], rules)
            if last:
                row = after(
                    row,
                    of_seeds,
                    before=measured[last][quantity],
                    runs_before=[p[last][quantity] for p in by_seed],
                    first=measured["base"][quantity],
                    takings=(takings[last][quantity], takings[step][quantity]),
                )
            rows.append(
                replace(
                    row, runs=tuple(of_seeds), at_ends=tuple(p[step][quantity] for p in allowed)
                )
            )
        last = step
    return rows

"""What the simulator says of a case's rows."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcpmodel.datasets.packages import load_published
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.spec import make_spec
from pcpmodel.study.published.cases import Case, cache_miss_column, published_rows
from pcpmodel.study.published.causes import of_run
from pcpmodel.study.published.null_models import (
    change_of,
    sign_of,
)
from pcpmodel.study.published.rows import Row, after, make_row
from pcpmodel.study.published.shared import Runs, Taken

__all__ = ["REPEATS", "Runner", "cache_miss_rows", "case_rows", "thread_speed"]


#: Of the time of a zone-lock hold nothing is left that anybody would wait for.
_NO_HOLDS = {"hold_scale": 1e-3, "cold_block_ns": 0.0, "handoff_ns": 0.0}


REPEATS = 3  # seeds of every row, so that a change is told from the model's own scatter


def _spins(result: Result | Taken) -> float:
    return result.lock_contention + result.lru_contention


def thread_speed(result: Result | Taken, smt_yield: float | None) -> float:
    """Of a thread's work, whose sibling is busy, or spins and leaves it the core.

    Parameters
    ----------
    result : Result or Taken
    smt_yield : float or None
        What a core does with two busy threads, one of them alone doing 1; None: each thread has
        a core of its own.
    """
    spins = _spins(result)
    return 1.0 if smt_yield is None else (1 - spins) * smt_yield / 2 + spins


def _figures(result: Taken, base: Taken, smt_yield: float | None) -> dict[str, float]:
    """The columns of the published tables, of one run against the base run."""

    def per_work(name: str) -> float:
        own, of_base = (getattr(r, name) / max(r.score, 1) for r in (result, base))
        return 100 * own / of_base if of_base else 0.0

    done, of_base = (r.score * thread_speed(r, smt_yield) for r in (result, base))
    score = 100 * done / max(of_base, 1)
    return {
        "score": score,
        "build_time": 1e4 / score if score else math.inf,
        "lock_contention": 100 * _spins(result),
        "free_high": per_work("free_high"),
        "alloc_zone": per_work("alloc_zone_pages"),
    }


def cache_miss_rows(
    case: Case, runners: Sequence[Runner], parameters: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The column of cache misses beside what the simulator knows of caches, row by row."""
    frame = load_published(case.source).tables[case.table]
    column = cache_miss_column()
    if column not in frame:
        return []
    with_caches = {**parameters, "identity": True, "caches": True}
    rows: list[dict[str, Any]] = []
    known: list[float] | None = None
    before = math.nan
    for step, measured in zip(frame["step"], frame[column], strict=True):
        rates = (run(str(step), with_caches).cache_miss_rate for run in runners)
        shares = [100 * rate for rate in rates if rate is not None]
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
    """Runs a case's kernels with given parameters."""

    def __init__(self, case: Case, seed: int, runs: Runs | None = None) -> None:
        self.case, self.seed = case, seed
        self.runs = runs or Runs()

    def __call__(self, step: str, parameters: Mapping[str, Any]) -> Taken:
        kernel = self.case.releases[step]
        if "miss_ns" in parameters:
            parameters = of_run(parameters, self.case.workload().name, kernel.name)
        own = {k: v for k, v in parameters.items() if k in self.case.own}
        rest = {k: v for k, v in parameters.items() if k not in self.case.own}
        return self.runs(
            make_spec(
                release=kernel,
                workload=self.case.workload(**own),
                seed=self.seed,
                **{**self.case.run, **rest},
            )
        )

    def figures(self, step: str, parameters: Mapping[str, float]) -> dict[str, float]:
        run = {k: v for k, v in parameters.items() if k != "smt_yield"}
        return _figures(self(step, run), self("base", run), parameters.get("smt_yield"))

    def takings(
        self, step: str, parameters: Mapping[str, float], contention: float
    ) -> dict[str, float]:
        """The columns by the rules alone: ``contention`` of the base row [%] goes with the holds.

        No hold lasts and nobody waits, so that the counts are those of the rules and the work.
        """
        run = {k: v for k, v in parameters.items() if k not in ("smt_yield", "miss_ns")}
        run |= _NO_HOLDS
        own, base = self(step, run), self("base", run)
        holds, of_base = ((r.refills + r.drains) / max(r.score, 1) for r in (own, base))
        waiting = contention * holds / of_base if of_base else 0.0
        score = 100 * (100 - waiting) / (100 - contention)
        counts = _figures(own, base, None)
        return {
            "score": score,
            "build_time": 1e4 / score if score > 0 else math.inf,
            "lock_contention": waiting,
            **{name: counts[name] for name in ("free_high", "alloc_zone")},
        }


def case_rows(
    case: Case,
    runners: Sequence[Runner],
    values: Mapping[str, float],
    rules: Mapping[str, Mapping[str, float]],
    fitted: Mapping[tuple[str, str], str],
) -> list[Row]:
    """The cells of a table, its rows in order.

    Parameters
    ----------
    case : Case
    runners : sequence of Runner
        One per seed; the first one's figures are the prediction.
    values : mapping of str to float
        Parameters.
    rules : mapping
        `tolerances`.
    fitted : mapping of (step, quantity) to str
        Parameter that was fitted to a cell.
    """
    measured = published_rows(case)
    by_seed = [{s: r.figures(s, values) for s in measured} for r in runners]
    predicted = by_seed[0]
    contention = measured["base"]["lock_contention"]
    takings = {step: runners[0].takings(step, values, contention) for step in measured}
    rows = []
    last = ""
    for step, figures in measured.items():
        for quantity, value in figures.items():
            if step == "base" and quantity != "lock_contention":
                continue  # 100 by definition
            of_seeds = [p[step][quantity] for p in by_seed]
            row = make_row(
                case.source,
                case.table,
                step,
                quantity,
                value,
                predicted[step][quantity],
                rules,
                fitted.get((step, quantity), ""),
            )
            if last:
                row = after(
                    row,
                    of_seeds,
                    before=measured[last][quantity],
                    runs_before=[p[last][quantity] for p in by_seed],
                    first=measured["base"][quantity],
                    takings=(takings[last][quantity], takings[step][quantity]),
                )
            rows.append(replace(row, runs=tuple(of_seeds)))
        last = step
    return rows

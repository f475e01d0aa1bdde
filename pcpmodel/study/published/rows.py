"""A cell of a published table, its tolerance, and what the null models say of it."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pcpmodel.datasets.packages import load_workload
from pcpmodel.study.published.null_models import (
    LARGE_CHANGE,
    best_constant,
    change_of,
    sign_of,
)

__all__ = ["Row", "after", "allowed", "make_row", "ranks", "tolerances", "with_constants"]


@dataclass(frozen=True)
class Row:
    """One cell of a published table.

    Attributes
    ----------
    source, table, step, quantity : str
        Which cell.
    measured, predicted : float
        free_high and alloc_zone are per unit of work, base = 100.
    tolerance : str
        In words.
    low, high : float
        What lies between these is within it.
    measured_change, predicted_change : float or None
        From the row before, the prediction as the mean over the seeds; None without such a row.
    change_error : float or None
        Half of the 95 % interval of the predicted change over the seeds.
    large_change : bool
        The measured change is more than 2 % of the row before.
    nulls : dict
        What the `NULL_MODELS` predict, and the change from the row before of those that have one.
    runs : tuple of float
        The prediction by seed, ``predicted`` first; ``mean`` is theirs, ``half_width`` half of its
        95 % interval, NaN for one.
    at_ends : tuple of float
        The prediction on a machine with late lines as fast and as slow as its sheet allows.
    """

    source: str
    table: str
    step: str
    quantity: str
    measured: float
    predicted: float
    tolerance: str
    low: float
    high: float
    measured_change: float | None = None
    predicted_change: float | None = None
    change_error: float | None = None
    large_change: bool = False
    nulls: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    runs: tuple[float, ...] = ()
    at_ends: tuple[float, ...] = ()

    @property
    def within(self) -> bool:
        return bool(self.low <= self.predicted <= self.high)

    @property
    def mean(self) -> float:
        return float(np.mean(self.runs or (self.predicted,)))

    @property
    def half_width(self) -> float:
        if len(self.runs) < 2:
            return math.nan
        return change_of(np.zeros(len(self.runs)), self.runs)[1]

    @property
    def interval(self) -> tuple[float, float]:
        """What the prediction may be: its seeds, and the intervals of the cost sheet."""
        width = 0.0 if math.isnan(self.half_width) else self.half_width
        ends = (self.mean - width, self.mean + width, *self.at_ends)
        return min(ends), max(ends)

    @property
    def ratio(self) -> float | None:
        return self.predicted / self.measured if self.measured else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "table": self.table,
            "step": self.step,
            "quantity": self.quantity,
            "measured": self.measured,
            "predicted": self.predicted,
            "mean": self.mean,
            "half_width": self.half_width if len(self.runs) > 1 else None,
            "ratio": self.ratio,
            "tolerance": self.tolerance,
            "tolerance_low": self.low,
            "tolerance_high": self.high,
            "within": self.within,
            "interval_low": self.interval[0],
            "interval_high": self.interval[1],
            "predicted_by": "cost sheet, workload and pilot",
            "measured_change": self.measured_change,
            "predicted_change": self.predicted_change,
            "change_error": self.change_error,
            "large_change": self.large_change,
            "sign": sign_of(self.measured_change, self.predicted_change, self.change_error),
            "null_models": {
                name: {
                    "predicted": value,
                    "within": bool(self.low <= value <= self.high),
                    "sign": sign_of(self.measured_change, change, 0.0),
                }
                for name, (value, change) in self.nulls.items()
            },
        }


def tolerances() -> dict[str, dict[str, float]]:
    frame = load_workload("answer-key").tables["tolerance"].set_index("quantity")
    return {str(name): dict(row) for name, row in frame.iterrows()}


def allowed(
    quantity: str, measured: float, rules: Mapping[str, Mapping[str, float]]
) -> tuple[str, float, float]:
    """The tolerance of a measured figure in words, and the range of predictions within it."""
    rule = rules[quantity]
    words, lows, highs = [], [measured], [measured]
    if not math.isnan(rule["factor"]):
        words.append(f"factor {rule['factor']:g}")
        lows.append(measured / rule["factor"])
        highs.append(measured * rule["factor"])
    if not math.isnan(rule["points"]):
        words.append(f"{rule['points']:g} points below {rule['points_below']:g}")
        if abs(measured) < rule["points_below"]:
            lows.append(measured - rule["points"])
            highs.append(measured + rule["points"])
    return " or ".join(words), float(min(lows)), float(max(highs))


def make_row(
    source: str,
    table: str,
    step: str,
    quantity: str,
    measured: float,
    predicted: float,
    rules: Mapping[str, Mapping[str, float]],
    kind: str | None = None,
) -> Row:
    tolerance = allowed(kind or quantity, measured, rules)
    return Row(source, table, step, quantity, measured, predicted, *tolerance)


def after(
    row: Row,
    runs: Sequence[float],
    *,
    before: float,
    runs_before: Sequence[float],
    first: float,
    takings: tuple[float, float] | None = None,
) -> Row:
    """The row with its change from the one before, and what the null models say of it.

    ``runs``, ``runs_before`` are the predictions by seed; ``takings`` is what the holds of the
    zone lock alone predict of the row before and of this one.
    """
    change, error = change_of(runs_before, runs)
    of = 100.0 if "change" in row.quantity else abs(before)  # a change is of a whole
    nulls = {"nothing changes": (first, 0.0), "row before": (before, 0.0)}
    if takings is not None:
        nulls["lock takings"] = (takings[1], takings[1] - takings[0])
    return replace(
        row,
        measured_change=row.measured - before,
        predicted_change=change,
        change_error=error,
        # Not NumPy's, as numbers of a table make it: JSON has no such thing.
        large_change=bool(abs(row.measured - before) > LARGE_CHANGE / 100 * of),
        nulls=nulls,
        runs=tuple(runs),
    )


def with_constants(rows: Sequence[Row]) -> list[Row]:
    """Rows of any tables with the best constant of each column among their null models."""
    columns: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in rows:
        if row.nulls:
            columns.setdefault((row.source, row.table, row.quantity), []).append(
                (row.low, row.high)
            )
    best = {column: best_constant(ranges) for column, ranges in columns.items()}
    return [
        replace(
            row,
            nulls={
                **row.nulls,
                "best constant": (best[row.source, row.table, row.quantity], 0.0),
            },
        )
        if row.nulls
        else row
        for row in rows
    ]


def ranks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Spearman's correlation of the rows of a table, by column; None where one does not move.

    A column without its base row is one of figures in % of it: 100, measured and predicted.
    """
    from scipy import stats  # takes as long as a small run

    columns: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        columns.setdefault((row.source, row.table, row.quantity), []).append(row)
    found = []
    for (source, table, quantity), cells in columns.items():
        first = [] if cells[0].step == "base" else [100.0]
        pair = [[*first, *(getattr(c, name) for c in cells)] for name in ("measured", "predicted")]
        found.append(
            {
                "source": source,
                "table": table,
                "quantity": quantity,
                "spearman": float(stats.spearmanr(*pair).statistic)
                if all(np.ptp(p) > 0 for p in pair)
                else None,
            }
        )
    return found

"""Every source predicted from the others: what the fitted constants are worth elsewhere.

A source is left out as a whole, with every version of its series, and each of its
parameters is the mean of what was fitted to, or set for, the other sources: those of the same
workload, else all.  What no other source has keeps the default that a workload without a
calibration has.  Nothing is chosen with the source in view but the forms of the workloads.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pcpmodel.datasets.packages import load_workload
from pcpmodel.study.published.cases import Case
from pcpmodel.study.published.causes import assumed, by_misses, latencies
from pcpmodel.study.published.null_models import NULL_MODELS
from pcpmodel.study.published.repeats import sign_stands
from pcpmodel.study.published.rows import Row
from pcpmodel.study.published.single import ZONE_SPLIT
from pcpmodel.workload.calibration import calibrations

__all__ = [
    "HOLDS", "Constants", "judged", "left_out_cells", "of_case", "said_of", "series_of", "without",
    "without_by_misses",
]  # fmt: skip

#: A contention below this [% of cycles] tells little, and is not asked to be within the factor.
CONTENTION_FROM = 5.0
CONTENTION_FACTOR = 1.5
_TIMES = ("score", "build_time")
#: Where the length of a hold comes from: constants fitted to the other sources, or misses counted
#: from the workload times the one latency of the other sources.
HOLDS = ("fitted", "misses")
#: The best constant of one or two cells is their answer.
_CELLS_OF_A_CONSTANT = 3


@dataclass(frozen=True)
class Constants:
    """Parameters of a table that come from other sources.

    Attributes
    ----------
    values : dict
        Parameter -> value; those that no other source has are left out.
    taken_from : dict
        Parameter -> calibrations whose mean it is; empty: the default, no other source has it.
    machine : str
        ``same`` if one of them was made on the machine of the table, else ``other``.
    """

    values: Mapping[str, float]
    taken_from: Mapping[str, tuple[str, ...]]
    machine: str


def _series() -> pd.DataFrame:
    return load_workload("answer-key").tables["series"].set_index(["source", "table"])


def series_of(source: str, table: str) -> str:
    """The source that a table is left out with."""
    return str(_series().loc[(source, table), "series"])


def _workloads() -> dict[str, str]:
    """Calibration -> name of the workload whose table it was fitted to."""
    stored = load_workload("answer-key").tables["cases"]
    names = {
        f"{r.source}/{r.table}": str(r.workload) for r in stored.itertuples()
    }  # every calibration but those of zone splitting is a case
    return names | {name: split.make.__name__ for name, split in ZONE_SPLIT.items()}


def without(series: str, workload: str, machine: str, parameters: Sequence[str]) -> Constants:
    """What the sources outside a series say of some parameters.

    Parameters
    ----------
    series : str
        Left out.
    workload, machine : str
        Of the table to be predicted: name of a ready-made workload, of a machine.
    parameters : sequence of str
        As in ``data/workload/calibration``.

    Returns
    -------
    Constants
    """
    frame = load_workload("calibration").tables["tables"].set_index("calibration")
    of = _workloads()
    others = {
        name: values
        for name, values in calibrations().items()
        if series_of(frame["source"][name], frame["table"][name]) != series
    }
    values: dict[str, float] = {}
    taken: dict[str, tuple[str, ...]] = {}
    for parameter in parameters:
        # Where a fit takes over another's value that value counts once, for its own workload.
        has = {
            name: known[parameter].value
            for name, known in others.items()
            if parameter in known and known[parameter].calibration == name
        }
        alike = {name: value for name, value in has.items() if of[name] == workload} or has
        taken[parameter] = tuple(alike)
        if alike:
            values[parameter] = float(np.mean(list(alike.values())))
    used = {name for names in taken.values() for name in names}
    return Constants(
        values, taken, "same" if machine in set(frame["machine"][list(used)]) else "other"
    )


def without_by_misses(series: str, machine: str, shares_cores: bool) -> Constants:
    """Parameters from causes, with the mean latency of the sources outside a series.

    A latency is a machine's: those of the same machine count, else all.

    Parameters
    ----------
    series, machine : str
        As of `without`.
    shares_cores : bool
        There are more tasks than cores.

    Returns
    -------
    Constants
        Taken from others: ``miss_ns`` alone.
    """
    frame = load_workload("calibration").tables["tables"].set_index("calibration")
    others = {
        name: value
        for name, value in latencies().items()
        if series_of(frame["source"][name], frame["table"][name]) != series
    }
    of_machine = {name: v for name, v in others.items() if frame["machine"][name] == machine}
    others = of_machine or others
    values = by_misses(float(np.mean(list(others.values()))), shares_cores=shares_cores)
    return Constants(
        values,
        {"miss_ns": tuple(others)},
        "same" if of_machine else "other",
    )


def of_case(case: Case, parameters: Sequence[str], hold: str = "fitted") -> Constants:
    """The constants of a table from the other sources; ``hold`` is one of `HOLDS`."""
    if hold == "misses":
        tasks = len(case.workload().tasks)
        found = without_by_misses(
            series_of(case.source, case.table),
            case.run["machine"],
            2 * tasks > case.run["cpus"],
        )
        own = {name: value for name, value in assumed().items() if name in case.own}
        return replace(found, values={**found.values, **own})
    return without(
        series_of(case.source, case.table), case.workload().name, case.run["machine"], parameters
    )


def left_out_cells(rows: Sequence[Row], machines: Mapping[str, str]) -> pd.DataFrame:
    """One line per predicted cell: errors of the model and of each null model.

    Parameters
    ----------
    rows : sequence of Row
        With their predictions by seed.
    machines : mapping of str to str
        Table -> ``same`` or ``other``, see `Constants`.

    Returns
    -------
    pandas.DataFrame
        ``predicted`` is the mean over the seeds and ``half_width`` half of its 95 % interval;
        ``error`` is in the cell's own unit (% of base, % of cycles, % of change),
        ``error_percent`` of the measured figure, NaN where that is 0; ``null: NAME`` what a null
        model says; ``as_good`` the null models whose error is not larger.  ``counted`` is False
        for tables that a later version of the series repeats.
    """
    again = _series()["posted_again"]
    sizes = Counter((row.source, row.table, row.quantity) for row in rows)
    lines = []
    for row in rows:
        predicted = row.mean
        error = predicted - row.measured
        nulls = {name: value for name, (value, _) in row.nulls.items() if np.isfinite(value)}
        if sizes[row.source, row.table, row.quantity] < _CELLS_OF_A_CONSTANT:
            nulls.pop("best constant", None)
        lines.append(
            {
                "source": row.source,
                "table": row.table,
                "step": row.step,
                "quantity": row.quantity,
                "machine": machines[f"{row.source}/{row.table}"],
                "counted": bool(pd.isna(again[row.source, row.table])),
                "measured": row.measured,
                "predicted": predicted,
                "half_width": row.half_width,
                "error": error,
                "error_percent": 100 * error / row.measured if row.measured else float("nan"),
                **{f"null: {name}": nulls.get(name, float("nan")) for name in NULL_MODELS},
                "as_good": ", ".join(
                    name for name, v in nulls.items() if abs(v - row.measured) <= abs(error)
                ),
                "change": row.measured_change,
                "predicted_change": row.predicted_change,
                "large_change": row.large_change,
                "sign": row.as_dict()["sign"],
            }
        )
    cells = pd.DataFrame(lines)
    cells["sign_stands"] = sign_stands(cells)
    return cells


def _skill(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Mean absolute error of the model and of the best null model, by quantity."""
    for quantity, part in cells.groupby("quantity", sort=False):
        nulls = {
            name: float((part[f"null: {name}"] - part["measured"]).abs().mean())
            for name in NULL_MODELS
            if part[f"null: {name}"].notna().all()
        }
        if not nulls:
            continue
        best = min(nulls, key=lambda name: nulls[name])
        mean = float(part["error"].abs().mean())
        yield {
            "quantity": quantity,
            "cells": len(part),
            "mean_abs_error": mean,
            "best_null": best,
            "null_mean_abs_error": nulls[best],
            "skill": 1 - mean / nulls[best] if nulls[best] else float("nan"),
            "not_as_good": int((part["as_good"] == "").sum()),
        }


def judged(cells: pd.DataFrame) -> dict[str, Any]:
    """The headline of leaving sources out.

    Parameters
    ----------
    cells : pandas.DataFrame
        As `left_out_cells` makes it; those not ``counted`` are left out, so that a series that
        was posted three times counts once.

    Returns
    -------
    dict
        ``times``: score and build time, by machine (``same``, ``other``): cells, mean and worst
        error [%]; ``contention``: cells of more than 5 % of the cycles, those within the factor
        1.5, and those of them that no null model has as well; ``signs``: changes of more than
        2 % and those with the measured sign, then the same of those whose sign ``stands`` and of
        those that went the other way when measured again (``turned``); ``skill``: by quantity,
        mean absolute error [the quantity's unit] beside that of the best null model, 1 - their
        ratio, and the cells in which no null model is as good.
    """
    cells = cells[cells["counted"]]
    times = cells[cells["quantity"].isin(_TIMES)]
    # What is 100 by definition is not predicted; it is no row of the tables.
    by_machine = {
        str(machine): {
            "cells": len(part),
            "mean_error_percent": float(part["error_percent"].abs().mean()),
            "max_error_percent": float(part["error_percent"].abs().max()),
        }
        for machine, part in times.groupby("machine")
    }
    waits = cells[(cells["quantity"] == "lock_contention") & (cells["measured"] > CONTENTION_FROM)]
    ratio = waits["predicted"] / waits["measured"]
    within = ratio.between(1 / CONTENTION_FACTOR, CONTENTION_FACTOR)
    large = cells[cells["large_change"] & cells["sign"].notna()]
    return {
        "cells": len(cells),
        "times": by_machine,
        "contention": {
            "cells": len(waits),
            "within": int(within.sum()),
            "within_and_no_null_as_good": int((within & (waits["as_good"] == "")).sum()),
        },
        "signs": {
            **_signs(large),
            "stands": _signs(large[large["sign_stands"].eq(True)]),
            "turned": _signs(large[large["sign_stands"].eq(False)]),
        },
        "skill": list(_skill(cells[cells["null: nothing changes"].notna()])),
    }


def _signs(changes: pd.DataFrame) -> dict[str, int]:
    return {"changes": len(changes), "same": int((changes["sign"] == "same").sum())}


def said_of(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The headline in sentences (Markdown)."""
    yield (
        "left out",
        f"- Every source predicted from the others, {facts['cells']} cells that no later version "
        "repeats:",
    )
    for machine, t in facts["times"].items():
        of = "the machine of another source" if machine == "same" else "a machine of none of them"
        yield (
            f"times, {machine} machine",
            f"- Times and scores on {of}: mean error {t['mean_error_percent']:.1f} %, worst "
            f"{t['max_error_percent']:.1f} % ({t['cells']} cells).",
        )
    c, s = facts["contention"], facts["signs"]
    yield (
        "contention",
        f"- Contention above {CONTENTION_FROM:g} % of the cycles: {c['within']} of {c['cells']} "
        f"within {CONTENTION_FACTOR:g} times; in {c['within_and_no_null_as_good']} of them no null "
        "model is as good.",
    )
    yield (
        "signs",
        f"- Changes of more than 2 % with the measured sign: {s['same']} of {s['changes']}; "
        f"{s['stands']['same']} of the {s['stands']['changes']} whose sign another posting or the "
        f"stated variation confirms; {s['turned']['changes']} have no sign that stands.",
    )
    if rows := facts.get("inputs"):
        sums = {kind: sum(row[kind] for row in rows) for kind in ("stated", "fitted", "assumed")}
        fewest, most = (of(row["assumed"] for row in rows) for of in (min, max))
        yield (
            "inputs",
            f"- Inputs of the {len(rows)} workloads: {sums['stated']} stated by their sources, "
            f"{sums['fitted']} from {facts['constants']} fits to other sources, {sums['assumed']} "
            f"assumed ({fewest} to {most} each); {facts['cells']} cells.",
        )
    for q in facts["skill"]:
        yield (
            f"skill: {q['quantity']}",
            f"- {q['quantity']}: mean absolute error {q['mean_abs_error']:.3g}, best null model "
            f"({q['best_null']}) {q['null_mean_abs_error']:.3g}: skill {q['skill']:+.2f}; no null "
            f"model is as good in {q['not_as_good']} of {q['cells']} cells.",
        )

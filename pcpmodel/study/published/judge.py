"""How well the published tables are predicted: errors, null models, skill, signs.

No table is fitted: what takes time comes from the machine's cost sheet, what is done from the
workload's recording and the kernel's rules.  So every source is left out of its own prediction.
What no source states is assumed, the same for all, and some of that was chosen with tables in
view: `pcpmodel.study.published.inputs` counts it.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pcpmodel.datasets.packages import load_workload
from pcpmodel.study.published.null_models import NULL_MODELS
from pcpmodel.study.published.repeats import sign_stands, stated_half_width
from pcpmodel.study.published.rows import Row
from pcpmodel.words import counted

__all__ = [
    "CONTENTION_FACTOR",
    "CONTENTION_FROM",
    "SKILL",
    "cells_of",
    "judged",
    "said_of",
]

#: A contention below this [% of cycles] tells little, and is not asked to be within the factor.
CONTENTION_FROM = 5.0
CONTENTION_FACTOR = 1.5
_TIMES = ("score", "build_time")
#: Sources that rows of the cost sheets are from, in part (tools/cost_sheets.py).
_IN_SHEETS = {"high-order-pcp-2022"}
#: The best constant of one or two cells is their answer.
_CELLS_OF_A_CONSTANT = 3
#: Machines: of a table of hold times, or like others that have one.
_MACHINES = {"own": "a machine with a latency table", "like": "a machine that is like others"}


def _series() -> pd.DataFrame:
    return load_workload("answer-key").tables["series"].set_index(["source", "table"])


def cells_of(rows: Sequence[Row], like: Sequence[str] = ()) -> pd.DataFrame:
    """One line per predicted cell: errors of the model and of each null model.

    Parameters
    ----------
    rows : sequence of Row
        With their predictions by seed.
    like : sequence of str
        Tables of machines that are only like a measured one.

    Returns
    -------
    pandas.DataFrame
        ``machine``: ``own`` or ``like``; ``predicted`` is the mean over the seeds, ``half_width``
        half of its 95 % interval, ``interval_low`` and ``interval_high`` what the prediction may be
        by the cost sheet as well, ``measured_half_width`` half of that of the measurement where its
        scatter is stated;
        ``error`` is in the cell's own unit (% of base, % of cycles, % of change),
        ``error_percent`` of the measured figure, NaN where that is 0; ``null: NAME`` what a null
        model says; ``as_good`` the null models whose error is not larger.  ``counted`` is False
        for tables that a later version of the series repeats.
    """
    again = _series()["posted_again"].to_dict()
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
                "machine": "like" if f"{row.source}/{row.table}" in like else "own",
                "counted": bool(pd.isna(again.get((row.source, row.table)))),
                "measured": row.measured,
                "predicted": predicted,
                "half_width": row.half_width,
                "interval_low": row.interval[0],
                "interval_high": row.interval[1],
                "measured_half_width": stated_half_width(row.source, row.table, row.step),
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


#: Of a quantity's skill.
SKILL = (
    "quantity", "cells", "mean_abs_error", "best_null", "null_mean_abs_error", "skill",
    "not_as_good",
)  # fmt: skip


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
    """The headline.

    Parameters
    ----------
    cells : pandas.DataFrame
        As `cells_of` makes it; those not ``counted`` are left out, so that a series that
        was posted three times counts once.

    Returns
    -------
    dict
        ``in_sheets``: sources that rows of the cost sheets are from; ``times``: score and build
        time, by machine (``own``, ``like``): cells, mean and worst error [%]; ``contention``:
        cells of more than 5 % of the cycles, those within the factor
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
        "in_sheets": sorted(_IN_SHEETS & set(cells["source"])),
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


def _said_of_cells(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    fitted = "Nothing is fitted to a table that is compared"
    if facts["in_sheets"]:
        fitted = f"Rows of the cost sheets are in part of {', '.join(facts['in_sheets'])} itself"
    yield (
        "cells",
        f"- {fitted}; {counted(facts['cells'], 'cell')} that no later version repeats:",
    )
    for machine, t in facts["times"].items():
        yield (
            f"times, {machine}",
            f"- Times and scores on {_MACHINES[machine]}: mean error "
            f"{t['mean_error_percent']:.1f} %, worst {t['max_error_percent']:.1f} % "
            f"({counted(t['cells'], 'cell')}).",
        )
    c, s = facts["contention"], facts["signs"]
    yield (
        "contention",
        f"- Contention above {CONTENTION_FROM:g} % of the cycles: "
        + (
            f"{c['within']} of {c['cells']} within {CONTENTION_FACTOR:g} times; in "
            f"{c['within_and_no_null_as_good']} of them no null model is as good."
            if c["cells"]
            else "in no cell."
        ),
    )
    yield (
        "signs that stand",
        f"- Changes of more than 2 % with the measured sign: {s['same']} of {s['changes']}"
        + (
            f"; {s['stands']['same']} of the {s['stands']['changes']} whose sign another posting "
            f"or the stated variation confirms; {s['turned']['changes']} have no sign that stands."
            if s["stands"]["changes"] or s["turned"]["changes"]
            else "; no other posting and no stated variation confirms any."
        ),
    )


def said_of(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The headline in sentences (Markdown)."""
    if facts["cells"]:
        yield from _said_of_cells(facts)
    else:  # all are posted again, and judged there
        yield "cells", "- Nothing is fitted to a table that is compared."
    if rows := facts.get("inputs"):
        kinds = ("stated", "recorded", "fitted", "assumed")
        sums = {kind: sum(row[kind] for row in rows) for kind in kinds}
        to = ", ".join(dict.fromkeys(row["fitted_to"] for row in rows if row["fitted"]))
        fewest, most = (of(row["assumed"] for row in rows) for of in (min, max))
        several = len(rows) > 1
        each = f" ({fewest} to {most} each)" if several else ""
        yield (
            "inputs",
            f"- Inputs of the {f'{len(rows)} workloads' if several else 'workload'}: "
            f"{sums['stated']} stated by {'their sources' if several else 'its source'}, "
            f"{sums['recorded']} recorded, measured or derived elsewhere, {sums['assumed']} "
            f"assumed{each}, {sums['fitted']} fitted" + (f", to figures of {to}." if to else "."),
        )
    for q in facts["skill"]:
        yield (
            f"skill: {q['quantity']}",
            f"- {q['quantity']}: mean absolute error {q['mean_abs_error']:.3g}, best null model "
            f"({q['best_null']}) {q['null_mean_abs_error']:.3g}: skill {q['skill']:+.2f}; no null "
            f"model is as good in {q['not_as_good']} of {counted(q['cells'], 'cell')}.",
        )

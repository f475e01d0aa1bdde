"""Measured changes that a second measurement has, too.

A series that is posted again measures the same change again, and a source may state how much its
figures vary.  A change that goes the other way the next time, or that lies within the variation,
has no sign that a prediction could have.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from functools import cache

import pandas as pd

from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.study.published.cases import Case, cases, published_rows
from pcpmodel.study.published.null_models import sign_of

__all__ = ["repeated_signs", "sign_stands", "stated_half_width"]

#: Standard deviations that a difference of two means of some runs is beyond its variation at
#: least: the sources do not state how many runs a mean is of.
_DEVIATIONS = 2.0
#: Tables that state how much their figures vary: table -> columns that name a row.
_STATED = {
    "hahn-v4/kbuild": ("machine",),
    "hahn-v1/stress_ng": ("machine", "workload", "metric"),
    "hahn-v2/stress_ng": ("machine", "workload", "metric"),
}


def repeated_signs(case: Case) -> dict[tuple[str, str, str], list[float]]:
    """What earlier postings of a table measured of the same changes.

    Parameters
    ----------
    case : Case

    Returns
    -------
    dict
        (row before, row, quantity), named as in this table -> changes, one of each posting that
        has both rows.
    """
    tables = load_workload("answer-key").tables
    again = tables["series"].set_index(["source", "table"])["posted_again"]
    kernels = tables["cases"].set_index(["source", "table"])["kernels"]
    same = tables["same_steps"]
    found: dict[tuple[str, str, str], list[float]] = {}
    for other in cases():
        if again[other.source, other.table] != case.name:
            continue
        mine = same[same["kernels"] == kernels[other.source, other.table]]
        later = dict(zip(mine["step"], mine["later"], strict=True))
        rows = {later[s]: figures for s, figures in published_rows(other).items() if s in later}
        for before, first in rows.items():
            for step, figures in rows.items():
                for quantity in figures.keys() & first.keys():
                    change = figures[quantity] - first[quantity]
                    found.setdefault((before, step, quantity), []).append(change)
    return found


def sign_stands(cells: pd.DataFrame) -> pd.Series[object]:
    """Whether a measured change has the same sign wherever it was measured again.

    Parameters
    ----------
    cells : pandas.DataFrame
        ``source``, ``table``, ``step``, ``quantity``, ``change`` (measured, from the row before),
        the rows of a table in order.

    Returns
    -------
    pandas.Series of object
        True or False; None where nothing was measured again and no variation is stated.
    """
    names = set(cells["source"] + "/" + cells["table"])
    repeated = {case.name: repeated_signs(case) for case in cases() if case.name in names}
    variation = _variation()
    before: dict[tuple[str, str, str], str] = {}
    told: list[bool | None] = []
    for row in cells.itertuples(index=False):
        column = (str(row.source), str(row.table), str(row.quantity))
        name, step = f"{row.source}/{row.table}", str(row.step)
        others = repeated.get(name, {}).get((before.get(column, "base"), step, column[2]), [])
        before[column] = step
        if others and pd.notna(row.change):
            told.append(all(sign_of(row.change, other, 0.0) == "same" for other in others))
        elif (name, step) in variation and pd.notna(row.change):
            told.append(abs(row.change) > _DEVIATIONS * variation[name, step])
        else:
            told.append(None)
    return pd.Series(told, index=cells.index, dtype=object)


def stated_half_width(source: str, table: str, step: str) -> float:
    """Half of the interval of a measured figure, at least, by its stated variation; NaN: none."""
    return _DEVIATIONS * _variation().get((f"{source}/{table}", step), math.nan)


@cache
def _variation() -> dict[tuple[str, str], float]:
    """Stated standard deviation of a figure [% of it], by table and row."""
    found = {}
    for name, columns in _STATED.items():
        source, table = name.split("/")
        frame = load_published(source).tables[table]
        if len(columns) == 1:
            frame = frame[frame["metric"] == "real"]
        for row in frame.to_dict("records"):
            step = ", ".join(str(row[column]) for column in columns)
            found[name, step] = float(row["variation_pct_cv"])
    return found

"""Figures of predictions beside what was measured afterwards."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pcpmodel.figures.style import COLUMN, SERIES, figure_style
from pcpmodel.words import counted

__all__ = ["predicted_measured", "rates_measured"]

_NAMES = {
    "rate": "rate",
    "refills": "refills",
    "drains": "drains",
    "drained": "pages drained",
    "refill_p50": "refill, median",
    "refill_p99": "refill, 99 %",
    "drain_p50": "drain, median",
    "drain_p99": "drain, 99 %",
    "waits": "waits",
    "wait_p50": "wait, median",
    "wait_p99": "wait, 99 %",
}
_MOST = 5.0  # ratio at the edge, either way


def _known(cells: pd.DataFrame) -> pd.DataFrame:
    known = cells.dropna(subset=["error_pct"])
    return known.assign(ratio=np.clip(1 + known["error_pct"] / 100, 1 / _MOST, _MOST))


def _predicted_measured(cells: pd.DataFrame) -> str:
    known = _known(cells)
    size = known["error_pct"].abs()
    hit = ((known["predicted"] >= known["low"]) & (known["predicted"] <= known["high"])).sum()
    outside = int(((1 + known["error_pct"] / 100 - known["ratio"]).abs() > 1e-9).sum())
    return (
        f"Predicted over measured for {counted(len(known), 'figure')} of "
        f"{known['workload'].nunique()} loads, with the 95 % intervals of what was measured: "
        f"{hit or 'none'} of the predictions lie in them. The mean error is {size.mean():.1f} %, "
        f"the median {size.median():.1f} %; {outside or 'none'} "
        f"beyond a factor of {_MOST:g}, drawn at the edge."
    )


@figure_style(size=(COLUMN, 3.8), caption=_predicted_measured)
def predicted_measured(cells: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Ratio of predicted to measured by quantity, a marker for each cell, with its interval.

    Parameters
    ----------
    cells : pandas.DataFrame
        ``workload``, ``quantity``, ``predicted``, ``measured``, ``low``, ``high`` (of the
        measured), ``error_pct`` [%]; NaN: not compared.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    known = _known(cells)
    rows = [q for q in _NAMES if (known["quantity"] == q).any()]
    ax.axvline(1, color="0.5", lw=0.8)
    loads = list(dict.fromkeys(known["workload"]))
    for number, load in enumerate(loads):
        colour, _, marker = SERIES[number % len(SERIES)]
        mine = known[known["workload"] == load]
        shift = 0.55 * ((number + 0.5) / len(loads) - 0.5)
        y = mine["quantity"].map({q: i for i, q in enumerate(rows)}) + shift
        ends = [
            np.clip(mine["ratio"] * mine["measured"] / end.where(end > 0), 1 / _MOST, _MOST)
            for end in (mine["high"], mine["low"])
        ]
        bars = [
            (mine["ratio"] - ends[0]).fillna(0.0).clip(lower=0.0),
            (ends[1].fillna(_MOST) - mine["ratio"]).clip(lower=0.0),
        ]
        look = {"marker": marker, "color": colour, "ms": 4, "ls": "none", "elinewidth": 0.7}
        ax.errorbar(mine["ratio"], y, xerr=bars, capsize=0, label=load, **look)
    ax.set_xscale("log")
    ax.set_xlim(1 / _MOST / 1.1, _MOST * 1.1)
    ax.xaxis.set_major_locator(FixedLocator([0.2, 0.5, 1, 2, 5]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.set_yticks(range(len(rows)), [_NAMES[q] for q in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel("Predicted / measured")
    return ax


def _rates_measured(cells: pd.DataFrame) -> str:
    rates = cells[cells["quantity"] == "rate"]
    inside = ((rates["low"] <= rates["predicted"]) & (rates["predicted"] <= rates["high"])).sum()
    return (
        f"Rates of {counted(len(rates), 'cell')} as a share of what each load does at first, "
        f"measured (with 95 % intervals) and predicted before: {inside or 'none'} of them in the "
        "interval."
    )


@figure_style(size=(COLUMN, 4.6), caption=_rates_measured)
def rates_measured(cells: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Rate of each cell, measured with its interval and predicted.

    Parameters
    ----------
    cells : pandas.DataFrame
        ``workload``, ``processes``, ``high_fraction``, ``quantity``, ``predicted``, ``measured``,
        ``low``, ``high`` [1/s].
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    rates = cells[cells["quantity"] == "rate"].sort_values(
        ["workload", "processes", "high_fraction"]
    )
    first = rates.groupby("workload", sort=False)["measured"].transform("first")
    y = np.arange(len(rates))
    measured = rates["measured"] / first
    error = [
        (rates["measured"] - rates["low"]) / first,
        (rates["high"] - rates["measured"]) / first,
    ]
    (colour, _, marker), (other, _, mark) = SERIES[:2]
    at = {"ls": "none", "ms": 4}
    ax.errorbar(measured, y, xerr=error, marker=marker, color=colour, label="measured", **at)
    ax.plot(rates["predicted"] / first, y, marker=mark, color=other, label="predicted", **at)
    ax.axvline(1, color="0.5", lw=0.8)
    names = [
        f"{row.workload} {row.processes:,}, {row.high_fraction:,}"
        for row in rates.itertuples(index=False)
    ]
    ax.set_yticks(y, names)
    ax.set_ylim(len(rates) - 0.5, -0.5)
    ax.set_xlabel("Rate / that of the load's first row")
    ax.set_ylabel("Load, processes, percpu_pagelist_high_fraction")
    return ax

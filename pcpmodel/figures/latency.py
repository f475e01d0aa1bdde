"""Figures of the cost of one zone-lock hold."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from pcpmodel.errors import InputError
from pcpmodel.figures.style import (
    COLUMN,
    SERIES,
    batch_axis,
    figure_style,
    listed,
    span,
    widen_x,
    widen_y,
)
from pcpmodel.words import counted

__all__ = ["hold_time", "residuals", "throughput_gain"]

_CURVES = {
    ("refill", "p99"): SERIES[0],
    ("drain", "p99"): SERIES[1],
    ("refill", "mean"): ("#56B4E9", "-.", "^"),
    ("drain", "mean"): ("#E69F00", ":", "D"),
}


def _of_machines(frame: pd.DataFrame) -> str:
    if "machine" not in frame or frame.empty:
        return ""
    return f" of {listed(dict.fromkeys(frame['machine']))}"


def _not_measured(points: pd.DataFrame) -> str:
    """A sentence about machines whose rows were made of what else is known."""
    made = points[points["made"].astype(bool)]
    return "" if made.empty else f" No hold{_of_machines(made)} was measured: those rows are made."


def _hold_time(points: pd.DataFrame, lines: pd.DataFrame, per_page: bool = False) -> str:
    said = []
    for batch in (points["batch"].min(), points["batch"].max()):
        at = points[points["batch"] == batch]
        unit = 1e3 / batch if per_page else 1.0
        mean, p99 = (
            span(unit * at.loc[at["statistic"] == s, "measured_us"], "ns" if per_page else "µs")
            for s in ("mean", "p99")
        )
        said.append(f"{batch:g} pages take {mean} in the mean and {p99} at the 99th percentile")
    what = "per page moved" if per_page else "of refills and drains"
    out, outside = points["outlier"].sum(), points["outside"].sum()
    made = _not_measured(points)
    both = "; thin lines are fits through all rows, and the intervals are of both" if out else ""
    return (
        f"Hold times of the zone lock {what}{_of_machines(points)}: {'; '.join(said)}"
        f"{' (all per page)' if per_page else ''}. Lines are fits without "
        f"{counted(out, 'outlier')} of {len(points)} rows{both}. "
        f"Markers are {'the rows' if made else 'measured'}; "
        f"{outside or 'none'} lies outside the prediction interval.{made}"
    )


@figure_style(size=(COLUMN, 3.6), caption=_hold_time)
def hold_time(
    points: pd.DataFrame, lines: pd.DataFrame, ax: Axes | None = None, per_page: bool = False
) -> Axes:
    """Measured hold times of one machine, the fitted curves and their intervals.

    Parameters
    ----------
    points : pandas.DataFrame
        ``side``, ``statistic``, ``batch`` [pages], ``measured_us`` [us], ``outlier``,
        ``outside``, ``made`` (not measured).
    lines : pandas.DataFrame
        ``side``, ``statistic``, ``pages``, ``fitted_us``, ``fitted_all_us``, ``low_us``,
        ``high_us`` [us].
    ax : Axes, optional
    per_page : bool
        Show hold time over pages [ns] in place of the hold time [us].

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        No row is of a curve that is drawn.
    """
    if not any(len(_of(points, *curve)) for curve in _CURVES):
        given = points[["side", "statistic"]].drop_duplicates().head(4).itertuples(index=False)
        raise InputError(
            f"points has no row of {', '.join(map(' '.join, _CURVES))}; given side and statistic: "
            f"{', '.join(f'{side} {statistic}' for side, statistic in given) or 'no rows'}"
        )
    left = points["batch"].min() / 2
    shown = []
    for (side, statistic), (colour, dash, marker) in _CURVES.items():
        line = _of(lines, side, statistic)
        line = line[line["pages"] >= left]
        rows = _of(points, side, statistic)
        unit = 1e3 / line["pages"] if per_page else 1.0
        measured = rows["measured_us"] * (1e3 / rows["batch"] if per_page else 1.0)
        shown += [measured, line["fitted_us"] * unit]
        ax.fill_between(
            line["pages"],
            line["low_us"] * unit,
            line["high_us"] * unit,
            color=colour,
            alpha=0.22,
            lw=0,
        )
        ax.plot(line["pages"], line["fitted_us"] * unit, color=colour, ls=dash)
        ax.plot([], [], color=colour, ls=dash, marker=marker, label=f"{side} {statistic}")
        out = rows["outlier"]
        if out.any():
            ax.plot(line["pages"], line["fitted_all_us"] * unit, color=colour, lw=0.6)
        at = {"marker": marker, "ls": "none", "zorder": 3}
        ax.plot(rows["batch"][~out], measured[~out], color=colour, mec="white", mew=0.5, **at)
        ax.plot(rows["batch"][out], measured[out], mec=colour, mfc="white", mew=1.2, ms=6, **at)
    marker = "made" if points["made"].all() else "measured"
    _explain(ax, "line: fit, band: interval", f"marker: {marker}, open: outlier")
    if points["outlier"].any():
        ax.plot([], [], color="0.3", lw=0.6, label="fit through outliers too")
    low, high = min(m.min() for m in shown), max(m.max() for m in shown)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:,g}")
    if per_page:
        ax.yaxis.set_minor_formatter("{x:,g}")
        ax.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
    widen_y(ax, low / 1.3, high * 1.3)
    batch_axis(ax, points["batch"])
    widen_x(ax, left, lines["pages"].max())
    ax.tick_params(axis="x", rotation=45)
    ax.set_xlabel("Pages moved in one hold")
    ax.set_ylabel("Hold time per page [ns]" if per_page else "Hold time [µs]")
    return ax


def _of(frame: pd.DataFrame, side: str, statistic: str) -> pd.DataFrame:
    return frame[(frame["side"] == side) & (frame["statistic"] == statistic)]


def _explain(ax: Axes, *words: str) -> None:
    """Words in the legend."""
    for line in words:
        ax.plot([], [], ls="none", label=line)


#: Part of an axis that a marker at the edge and its value take, and rows of them.
_EDGE_ROOM, _EDGE_LINES = 0.17, 6


def _residuals(points: pd.DataFrame, limit_percent: float = 12.0) -> str:
    kept = points.loc[~points["outlier"], "residual_percent"].abs()
    beyond = int((points["residual_percent"].abs() >= 0.9 * limit_percent).sum())
    out = counted(points["outlier"].sum(), "outlier")
    return (
        f"Residuals of the fitted hold times{_of_machines(points)}: {kept.median():.1f} % in the "
        f"median, {kept.max():.1f} % at most, without {out} of {len(points)} rows; "
        f"{beyond or 'none'} drawn at the edge with the value.{_not_measured(points)}"
    )


@figure_style(size=(COLUMN, 3.0), caption=_residuals)
def residuals(points: pd.DataFrame, ax: Axes | None = None, limit_percent: float = 12.0) -> Axes:
    """Relative residuals of the fitted curves; what lies beyond the edge with its value.

    Parameters
    ----------
    points : pandas.DataFrame
        ``side``, ``statistic``, ``batch`` [pages], ``residual_percent`` [%], ``outlier``,
        ``made`` (not measured).
    ax : Axes, optional
    limit_percent : float
        Range of the vertical axis [%].

    Returns
    -------
    Axes
    """
    ax.axhline(0, color="0.4", lw=0.8)
    at_edge: list[tuple[int, bool, float]] = []  # row of markers, which edge, place along it
    log_batch = np.log(points["batch"])
    for i, ((side, statistic), (colour, dash, marker)) in enumerate(_CURVES.items()):
        rows = _of(points, side, statistic)
        inside = rows[~rows["outlier"] & (rows["residual_percent"].abs() < 0.9 * limit_percent)]
        apart = 1.07 ** (i - 1.5)  # markers of one batch side by side
        at = {"marker": marker, "ls": "none", "label": f"{side} {statistic}"}
        x, y = inside["batch"] * apart, inside["residual_percent"]
        ax.vlines(x, 0, y, color=colour, lw=0.8, ls=dash)
        ax.plot(x, y, color=colour, **at)
        for row in rows.drop(inside.index).itertuples():
            above, place = row.residual_percent > 0, math.log(row.batch)
            beside = {
                line
                for line, edge, at_place in at_edge
                if edge == above and abs(at_place - place) <= _EDGE_ROOM * np.ptp(log_batch)
            }
            line = next((n for n in range(_EDGE_LINES) if n not in beside), _EDGE_LINES - 1)
            at_edge.append((line, above, place))
            edge = (0.92 - 0.15 * line) * limit_percent * (1 if above else -1)
            fill = "white" if row.outlier else colour
            ax.plot(row.batch, edge, mfc=fill, mec=colour, mew=1.2, ms=6, **at)
            ax.annotate(
                f"{row.residual_percent:+.0f}",
                (row.batch, edge),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=6,
            )
    _explain(ax, "open: outlier; at the edge: beyond it, with its value")
    batch_axis(ax, points["batch"])
    ax.tick_params(axis="x", rotation=45)
    ax.set_ylim(-limit_percent, limit_percent)
    ax.set_xlabel("Batch [pages]")
    ax.set_ylabel(f"Residual [% of {'made' if points['made'].all() else 'measured'}]")
    return ax


_UNMEASURED = "Throughput was measured with 0 batches: no gain over the smallest can be shown."


def _throughput_gain(rows: pd.DataFrame) -> str:
    if rows.empty:
        return _UNMEASURED
    best = rows.loc[rows["gain_percent"].idxmax()]
    of = f" on {best['machine']}" if "machine" in rows else ""
    return (
        f"Throughput gained over the smallest batch{_of_machines(rows)}: at most "
        f"{best['gain_percent']:.1f} ± {best['noise_percent']:.1f} %{of} with a batch of "
        f"{best['batch']:g} pages, of which shorter holds explain "
        f"{best['explained_percent']:.1f} %; {rows['falls'].astype(bool).sum() or 'none'} of "
        f"{len(rows)} rows behind a smaller batch."
    )


@figure_style(size=(COLUMN, 2.8), caption=_throughput_gain)
def throughput_gain(rows: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Gain of throughput over the smallest batch, measured and explained by the holds.

    Parameters
    ----------
    rows : pandas.DataFrame
        ``batch`` [pages], ``gain_percent``, ``explained_percent``, ``noise_percent`` [%],
        ``falls``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    if rows.empty:  # a sentence, no panel of nothing
        ax.set_axis_off()
        ax.set(xlabel="Batch [pages]", ylabel="Throughput gain [%]")
        ax.text(0.5, 0.5, _UNMEASURED, transform=ax.transAxes, ha="center", wrap=True)
        return ax
    (measured, _, marker), (explained, dash, _) = SERIES[:2]
    kept, falls = rows[~rows["falls"].astype(bool)], rows[rows["falls"].astype(bool)]
    ax.axhline(0, color="0.4", lw=0.8)
    ax.plot(
        rows["batch"],
        rows["explained_percent"],
        color=explained,
        ls=dash,
        label="by hold times alone",
    )
    bars = {"color": measured, "ls": "none", "marker": marker}
    ax.errorbar(
        kept["batch"],
        kept["gain_percent"],
        kept["noise_percent"],
        label="measured ± its error",
        **bars,
    )
    if len(falls):
        ax.errorbar(
            falls["batch"],
            falls["gain_percent"],
            falls["noise_percent"],
            label="falls back",
            **(bars | {"mfc": "white", "mew": 1.2, "ms": 6}),
        )
    batch_axis(ax, rows["batch"])
    ax.tick_params(axis="x", rotation=45)
    ax.margins(y=0.08)
    ax.set_xlabel("Batch [pages]")
    ax.set_ylabel("Throughput gain [%]")
    return ax

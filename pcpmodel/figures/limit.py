"""Figures of the batch scale factor under a latency limit."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from pcpmodel.figures.style import COLUMN, SERIES, figure_style, listed, span

__all__ = ["limit_probability", "scale_latency", "scale_probability"]


def _largest(rows: pd.DataFrame, p99_us: float) -> str:
    under = rows.loc[rows["p99_us"] <= p99_us, "batch_scale"]
    return f"{under.max():g}" if len(under) else "none"


def _as_slow(slowdown: float) -> str:
    return "as it is" if slowdown == 1 else f"taking {slowdown:g} times as long"


def _scale_latency(per_scale: pd.DataFrame, p99_us: float) -> str:
    least, most = (per_scale["slowdown"].agg(end) for end in ("min", "max"))
    also = f" (and {_as_slow(most)})" if most > least else ""
    said = []
    for name, rows in per_scale.groupby("machine", sort=False):
        first, slow = (_largest(rows[rows["slowdown"] == s], p99_us) for s in (least, most))
        said.append(f"{name} {first}" + (f" ({slow})" if also else ""))
    markers = ", markers are measured" * bool(per_scale["measured_p99_us"].notna().any())
    both = " Where a row is an outlier thin lines are the fits without it and through all rows."
    return (
        f"99th percentile of the slower side, refill or drain, under "
        f"{listed(dict.fromkeys(per_scale['release']))}. Largest batch scale factor under "
        f"{p99_us:g} µs {_as_slow(least)}{also}: {listed(said)}. Lines are medians with their "
        f"prediction intervals{markers}.{both * bool(_apart(per_scale).any())}"
    )


def _apart(per_scale: pd.DataFrame) -> pd.Series:
    """Where the fits without outliers and through all rows differ visibly."""
    return (per_scale["p99_fitted_all_us"] / per_scale["p99_fitted_us"] - 1).abs() > 0.01


@figure_style(size=(COLUMN, 3.2), caption=_scale_latency)
def scale_latency(per_scale: pd.DataFrame, p99_us: float, ax: Axes | None = None) -> Axes:
    """99th percentile of the slower side by batch scale factor, for slower and slower CPUs.

    Parameters
    ----------
    per_scale : pandas.DataFrame
        Of one machine and release: ``release``, ``slowdown``, ``batch_scale``, ``p99_us``,
        ``p99_low_us``, ``p99_high_us``, ``p99_fitted_us``, ``p99_fitted_all_us``,
        ``measured_p99_us`` [us], ``measured_outlier``.
    p99_us : float
        The limit [us].
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax.axhline(p99_us, color="0.25", lw=1.0, label=f"limit, {p99_us:g} µs")
    for i, (slowdown, rows) in enumerate(per_scale.groupby("slowdown")):
        colour, dash, marker = SERIES[i % len(SERIES)]
        scale = rows["batch_scale"]
        ax.fill_between(
            scale, rows["p99_low_us"], rows["p99_high_us"], color=colour, alpha=0.22, lw=0
        )
        ax.plot(scale, rows["p99_us"], color=colour, ls=dash)
        if _apart(rows).any():
            for fit in ("p99_fitted_us", "p99_fitted_all_us"):
                ax.plot(scale, rows[fit], color=colour, lw=0.6)
        drawn = rows["measured_p99_us"].notna().any()
        words = "as it is" if slowdown == 1 else f"CPU {slowdown:g}x slower"
        ax.plot([], [], color=colour, ls=dash, marker=marker if drawn else None, label=words)
        outlier = rows["measured_outlier"].astype(bool)
        at = {"ls": "none", "marker": marker, "zorder": 3}
        measured = rows["measured_p99_us"]
        ax.plot(scale[~outlier], measured[~outlier], color=colour, mec="white", mew=0.5, **at)
        ax.plot(scale[outlier], measured[outlier], mec=colour, mfc="white", mew=1.2, ms=6, **at)
    ax.plot([], [], ls="none", label="line: median, band: interval")
    if per_scale["measured_p99_us"].notna().any():
        ax.plot([], [], ls="none", label="marker: measured, open: outlier")
    if _apart(per_scale).any():
        ax.plot([], [], color="0.3", lw=0.6, label="fits with and without outliers")
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.set_xticks(sorted(set(per_scale["batch_scale"])))
    ax.set_xlabel("Batch scale factor k")
    ax.set_ylabel("p99 of the slower side [µs]")
    return ax


_ROW = 1.7  # of a table, in sizes of its letters
_AROUND = 1.0  # titles, axis and legend around it [inches]


def _scale_probability(per_scale: pd.DataFrame) -> str:
    said = []
    for slowdown, rows in per_scale.groupby("slowdown", sort=False):
        sure = rows[rows["probability"] >= 0.5].groupby("machine")["batch_scale"].max()
        found = span(sure) if len(sure) else "no factor"
        less = " on those that have one" * (len(sure) < rows["machine"].nunique())
        said.append(f"{found}{less} at {slowdown:g} times the measured times")
    return (
        f"Probability that the 99th percentile stays under the limit on "
        f"{per_scale['machine'].nunique()} machines. The largest batch scale factor that does so "
        f"more likely than not: {'; '.join(said)}."
    )


@figure_style(size=(COLUMN, 2.2), caption=_scale_probability, panel=2.2)
def scale_probability(per_scale: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Probability of staying under the limit, by machine and batch scale factor.

    Parameters
    ----------
    per_scale : pandas.DataFrame
        ``machine``, ``batch_scale``, ``probability``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    import seaborn  # with scipy.stats: longer than all other figures take to load

    machines = list(dict.fromkeys(per_scale["machine"]))
    grid = per_scale.pivot(index="machine", columns="batch_scale", values="probability")
    grid = grid.loc[machines]
    seaborn.heatmap(
        grid,
        ax=ax,
        annot=True,
        fmt=".2f",
        annot_kws={"size": 6.5},
        cmap="cividis",
        vmin=0,
        vmax=1,
        cbar=False,
        linewidths=0.5,
    )
    ax.plot([], [], ls="none", label="numbers: probability that the p99 stays under the limit")
    ax.tick_params(axis="y", rotation=0)
    ax.set(xlabel="Batch scale factor k", ylabel="")
    # A row of the figure is as high as its words, however many machines there are.
    spec = ax.get_subplotspec()
    panels = spec.get_gridspec().nrows if spec is not None else 1
    figure, row = ax.figure, _ROW * mpl.rcParams["font.size"] / 72
    figure.set_figheight(max(figure.get_figheight(), panels * (len(machines) * row + _AROUND)))
    return ax


_LABEL = 0.3  # the probability at which a curve carries its name


def _limit_probability(curve: pd.DataFrame, p99_us: float) -> str:
    at = {
        scale: rows.loc[(rows["limit_us"] - p99_us).abs().idxmin(), "probability"]
        for scale, rows in curve.groupby("batch_scale")
    }
    said = listed(f"{p:.2f} for k = {scale:g}" for scale, p in at.items())
    return (
        "Probability that the 99th percentile of a hold stays under a limit, by batch scale "
        f"factor k; under {p99_us:g} µs it is {said}."
    )


@figure_style(size=(COLUMN, 3.0), caption=_limit_probability)
def limit_probability(curve: pd.DataFrame, p99_us: float, ax: Axes | None = None) -> Axes:
    """Probability of staying under a limit against that limit, scale by scale.

    Parameters
    ----------
    curve : pandas.DataFrame
        ``batch_scale``, ``limit_us`` [us], ``probability``.
    p99_us : float
        The limit asked for [us].
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax.axvline(p99_us, color="0.25", lw=1.0, label=f"limit, {p99_us:g} µs")
    for i, (scale, rows) in enumerate(curve.groupby("batch_scale")):
        colour, dash, _ = SERIES[i % len(SERIES)]
        ax.plot(rows["limit_us"], rows["probability"], color=colour, ls=dash)
        if rows["probability"].min() < _LABEL < rows["probability"].max():
            at = np.interp(_LABEL, rows["probability"], np.log(rows["limit_us"]))
            box = {"fc": "white", "ec": "none", "pad": 0.6}
            ax.text(
                np.exp(at),
                _LABEL,
                f"{scale}",
                color=colour,
                ha="center",
                va="center",
                fontsize=7,
                bbox=box,
            )
    ax.plot([], [], ls="none", label="number: batch scale factor k")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:,g}")
    ax.set_xlim(curve["limit_us"].min(), curve["limit_us"].max())
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel("Limit of the p99 of one hold [µs]")
    ax.set_ylabel("Probability that it stays below")
    return ax

"""Figures of NUMA hint faults and their TLB shootdowns."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from pcpmodel.errors import unknown_name
from pcpmodel.figures.style import COLUMN, PAGE, SERIES, figure_style, listed, span
from pcpmodel.words import counted

__all__ = ["numa_gain_map", "numa_published", "numa_series", "numa_situations"]

_LABELS = {
    "accesses_per_second": "Page accesses per second [millions]",
    "migrated_pages": "Pages migrated [millions]",
    "remote_percent": "Accesses to the other node [%]",
    "shootdown_interrupts": "Shootdown interrupts so far",
}
_MILLIONS = ("accesses_per_second", "migrated_pages")
_VERDICTS = {"gain": SERIES[2], "neutral": SERIES[4], "loss": SERIES[1]}


def _numa_series(series: pd.DataFrame, quantity: str, measured: pd.DataFrame | None = None) -> str:
    unit = 1e6 if quantity in _MILLIONS else 1.0
    said = []
    for release, rows in series.groupby("release", sort=False):
        values = rows[quantity] / unit
        if quantity == "shootdown_interrupts":
            text = f"{release} has {values.iloc[-1]:,.0f} at the last sample"
            if measured is not None and "predicted" in measured:
                whole = measured.loc[measured["kernel"] == release, "predicted"] / unit
                text = "".join(f"{release} ends at {x:,.0f}" for x in whole) or text
        else:
            text = f"{release} {span(values)}, {values.mean():.3g} in the mean"
        if measured is not None:
            total = measured.loc[measured["kernel"] == release, "measured"] / unit
            text += "".join(f" (measured {x:,.0f})" for x in total.dropna())
        said.append(text)
    end = series["time_s"].max()
    return f"{_LABELS[quantity]} over {end:.3g} s: {'; '.join(said)}."


@figure_style(size=(COLUMN, 2.6), caption=_numa_series)
def numa_series(
    series: pd.DataFrame,
    quantity: str,
    measured: pd.DataFrame | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One quantity over the time of a run, one line per kernel.

    Parameters
    ----------
    series : pandas.DataFrame
        ``release``, ``time_s`` [s] and the quantity.
    quantity : str
        ``accesses_per_second``, ``migrated_pages``, ``remote_percent`` or
        ``shootdown_interrupts``.
    measured : pandas.DataFrame, optional
        ``kernel`` and ``measured``: totals at the end, drawn as markers; ``predicted``, if
        there: the run's, for the caption (the last sample lies before the end).
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        For another quantity, or a frame without its columns.
    """
    if quantity not in _LABELS:
        raise unknown_name("quantity", quantity, _LABELS)
    unit = 1e6 if quantity in _MILLIONS else 1.0
    for i, (release, rows) in enumerate(series.groupby("release", sort=False)):
        colour, dash, marker = SERIES[i]
        ax.plot(rows["time_s"], rows[quantity] / unit, color=colour, ls=dash, label=release)
        if measured is not None:
            total = measured.loc[measured["kernel"] == release, "measured"] / unit
            ax.plot(
                [rows["time_s"].max()] * len(total),
                total,
                color=colour,
                marker=marker,
                ls="none",
                clip_on=False,
                label=f"{release}, measured",
            )
    if quantity == "shootdown_interrupts":
        ax.set_yscale("log")
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.set_ylim(0, None)
    ax.set_xlabel("Time [s]")
    ax.set_ylabel(_LABELS[quantity])
    return ax


def _numa_published(rows: pd.DataFrame, scatter: pd.DataFrame | None = None) -> str:
    fitted = rows["fitted"].astype(bool)
    said = rows.loc[~fitted, "ratio"]
    bars = (
        " Bars are 95 % intervals over the seeds of smaller runs, wider than those of the whole."
        if scatter is not None
        else ""
    )
    rest = len(rows) - int(rows["measured"].notna().sum())
    lie = f"lie between {said.min():.2f} and {said.max():.2f} (median {said.median():.2f})"
    return (
        f"Model over measurement for {len(rows) - rest} published figures: {said.count()} "
        f"predictions {lie if said.count() else 'to compare'}, {fitted.sum()} were fitted "
        f"({span(rows.loc[fitted, 'ratio'])})."
        + f" {rest} were not measured." * bool(rest)
        + f"{bars} The source states no scatter."
    )


@figure_style(size=(COLUMN, 3.0), caption=_numa_published)
def numa_published(
    rows: pd.DataFrame, scatter: pd.DataFrame | None = None, ax: Axes | None = None
) -> Axes:
    """How far the model is from every published figure.

    Parameters
    ----------
    rows : pandas.DataFrame
        ``quantity``, ``kernel``, ``measured``, ``predicted``, ``ratio``, ``fitted``.
    scatter : pandas.DataFrame, optional
        Of runs with several seeds: ``quantity``, ``kernel``, ``predicted`` and
        ``predicted_error``, half of its 95 % interval; drawn in proportion.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    # Kernels that differ as little as noise may gain or save nothing, or the other way round.
    rows = rows.assign(ratio=rows["ratio"].where(np.isfinite(rows["ratio"]) & (rows["ratio"] > 0)))
    y = np.arange(len(rows))[::-1]
    ax.axvline(1, color="0.25", lw=1.0)
    fitted = rows["fitted"].to_numpy(bool)
    if scatter is not None:
        keys = ["quantity", "kernel"]
        of = scatter.set_index(keys).reindex(pd.MultiIndex.from_frame(rows[keys]))
        half = (of["predicted_error"] / of["predicted"]).abs().fillna(0.0).to_numpy()
        ax.errorbar(rows["ratio"], y, xerr=rows["ratio"] * np.minimum(half, 0.9), fmt="none",
                    ecolor="0.3", elinewidth=0.8, label="95 %, smaller runs")  # fmt: skip
    colour, _, marker = SERIES[0]
    ax.plot(rows["ratio"][~fitted], y[~fitted], color=colour, marker=marker, ls="none",
            label="predicted")  # fmt: skip
    colour, _, marker = SERIES[1]
    ax.plot(rows["ratio"][fitted], y[fitted], mec=colour, mfc="white", mew=1.2, marker=marker,
            ls="none", label="fitted")  # fmt: skip
    words = [
        f"{row.quantity.replace('_', ' ')}, {row.kernel}".replace("percent", "[%]")
        + ("" if np.isfinite(row.ratio) else f": {row.predicted:.3g} (not drawn)")
        for row in rows.itertuples()
    ]
    ax.set_yticks(y, words)
    ax.set_ylim(-0.7, len(rows) - 0.3)
    widest = np.nanmax([2.0, 1.3 * np.exp(np.abs(np.log(rows["ratio"])).max())])
    ax.set_xscale("log")
    ax.set_xlim(1 / widest, widest)
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10) if 1 / widest <= t <= widest]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("Model / measurement")
    return ax


def _numa_gain_map(grid: pd.DataFrame) -> str:
    best, worst = (grid.loc[getattr(grid["gain_percent"], f)()] for f in ("idxmax", "idxmin"))
    said = (
        f"{row['gain_percent']:+.1f} % ({counted(row['threads'], 'thread')} per process, "
        f"{row['pages_per_thread']:,.0f} pages per thread)"
        for row in (best, worst)
    )
    return f"Throughput gained by mapping late: from {listed(said).replace(' and ', ' to ')}."


@figure_style(size=(COLUMN, 2.9), caption=_numa_gain_map)
def numa_gain_map(grid: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Gain by threads per process and by how many threads meet on a page.

    Parameters
    ----------
    grid : pandas.DataFrame
        ``threads``, ``pages_per_thread``, ``gain_percent`` [%].
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    table = grid.pivot(index="pages_per_thread", columns="threads", values="gain_percent")
    table = table.sort_index(ascending=False)
    limit = max(1.0, float(np.nanmax(np.abs(table.to_numpy()))))
    map_ = ax.imshow(table, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
    for (row, column), gain in np.ndenumerate(table.to_numpy()):
        ax.text(
            column,
            row,
            f"{gain:+.1f}",
            ha="center",
            va="center",
            color="white" if abs(gain) > 0.7 * limit else "black",
            fontsize=7,
        )
    ax.grid(False)
    ax.set_xticks(range(table.shape[1]), [f"{n:g}" for n in table.columns])
    ax.set_yticks(range(table.shape[0]), [f"{n:,.0f}" for n in table.index])
    ax.set_xlabel("Threads per process")
    ax.set_ylabel("Pages per thread")
    bar = ax.figure.colorbar(map_, ax=ax, pad=0.02, aspect=30)
    bar.set_label("Gain of throughput [%]")
    bar.outline.set_visible(False)
    return ax


def _numa_situations(rows: pd.DataFrame) -> str:
    counts = rows["verdict"].value_counts()
    best, worst = rows["gain_percent"].idxmax(), rows["gain_percent"].idxmin()
    return (
        f"Throughput gained by mapping late in {len(rows)} situations: "
        f"{listed(f'{n} {verdict}' for verdict, n in counts.items())}; most, "
        f"{rows.loc[best, 'gain_percent']:+.2f} %: {best}; least, "
        f"{rows.loc[worst, 'gain_percent']:+.2f} %: {worst}. Bars are two standard errors."
    )


@figure_style(size=(PAGE, 3.6), caption=_numa_situations, narrow=6.2)
def numa_situations(rows: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Gain in each situation, with its error and its name.

    Parameters
    ----------
    rows : pandas.DataFrame
        Index: the situations; ``gain_percent``, ``gain_error`` (one standard
        error) [%], ``verdict``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    y = np.arange(len(rows))[::-1]
    ax.axvline(0, color="0.25", lw=1.0, zorder=1)
    for name, (colour, _, marker) in _VERDICTS.items():
        of = (rows["verdict"] == name).to_numpy()
        if of.any():
            ax.errorbar(
                rows["gain_percent"][of],
                y[of],
                xerr=2 * rows["gain_error"][of],
                color=colour,
                marker=marker,
                ls="none",
                label=f"{name} ± 2 std errors" + " (or 0.1 %)" * (name == "neutral"),
            )
    narrow = ax.figure.get_figwidth() < PAGE
    for at, name, gain in zip(y, rows.index, rows["gain_percent"], strict=True):
        beside = {"transform": ax.get_yaxis_transform(), "fontsize": 7}
        ax.text(1.01, at, f"{gain:+.2f}", va="center", **beside)
        if narrow:  # no room beside the axis: above the point
            beside |= {"zorder": 1.5, "bbox": {"fc": "white", "ec": "none", "pad": 0.4}}
            ax.text(0.01, at + 0.19, textwrap.fill(name, 44), va="bottom", **beside)
    ax.set_yticks(y, [""] * len(rows) if narrow else rows.index)
    ax.set_ylim(-0.7, len(rows) - (0 if narrow else 0.3))
    ax.margins(x=0.08)
    ax.set_xlabel("Gain of throughput by mapping late [%]")
    return ax

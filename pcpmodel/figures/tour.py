"""The tour's picture: one list's life above, what it costs many CPUs below."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcpmodel.figures.rules import page_list_life
from pcpmodel.figures.style import PAGE, SERIES, current_style, describe, inches, whole
from pcpmodel.words import number

__all__ = ["tour_picture"]

# The scales are fixed, so that one sees what a control moves.
_PRICES = {
    "p99_us": ("Refill or drain with its wait,\n99th percentile [µs]", (1, 1e5)),
    "list_mib": ("Pages on the lists of\nall CPUs, at most [MiB]", (1, 1e5)),
}


def tour_picture(
    steps: pd.DataFrame,
    events: pd.DataFrame,
    waiting: Mapping[str, pd.DataFrame],
    prices: pd.DataFrame,
    label: str = "",
) -> Figure:
    """One list through a piece of work, and three prices of its settings on many CPUs.

    Parameters
    ----------
    steps, events : pandas.DataFrame
        Of one list, as :func:`page_list_life` takes them.
    waiting : mapping of str to pandas.DataFrame
        Name of a setting to its ``cpus`` and ``waiting_percent``.
    prices : pandas.DataFrame
        A row for each of these settings, the last of which is the list's: ``setting``,
        ``cpus``, ``waiting_percent``, ``p99_us`` (NaN: nobody came to the lock), ``list_mib``.
    label : str
        Title of the list's life.

    Returns
    -------
    matplotlib.figure.Figure
        Not one of pyplot's: it does not show itself.
    """
    frames = {"steps": steps, "events": events, "prices": prices}
    frames |= {f"waiting[{name!r}]": frame for name, frame in waiting.items()}
    with mpl.rc_context(current_style()), whole(frames):
        looks = dict(zip(prices["setting"][::-1], SERIES, strict=False))
        wide, high = inches(PAGE, 4.6)
        narrow = wide < PAGE
        figure = Figure(figsize=(wide, 1.6 * high if narrow else high))
        # Fixed places: fitting them costs as much time as the drawing.
        if narrow:
            grid = figure.add_gridspec(
                4, 1, left=0.19, right=0.94, bottom=0.08, top=0.945, hspace=0.6
            )
            top, *rest = (grid[row, 0] for row in range(4))
        else:
            grid = figure.add_gridspec(
                2,
                3,
                left=0.1,
                right=0.98,
                bottom=0.14,
                top=0.94,
                hspace=0.45,
                wspace=0.5,
                height_ratios=(1.15, 1),
                width_ratios=(1.5, 1, 1),
            )
            top, *rest = grid[0, :], *(grid[1, column] for column in range(3))
        life = figure.add_subplot(top)
        page_list_life(steps, events, label=label, ax=life)
        life.legend(loc="upper center", ncols=2 if narrow else 5)
        room = 1.7 if narrow else 1.22
        life.set_ylim(0, room * max(steps["count"].max(), steps["high"].max()))
        queue, *priced = (figure.add_subplot(cell) for cell in rest)
        for name, at in prices.set_index("setting").iterrows():
            colour, dash, marker = looks[name]
            rows = waiting[name]
            queue.plot(rows["cpus"], rows["waiting_percent"], color=colour, ls=dash)
            queue.plot(
                [at["cpus"]],
                [at["waiting_percent"]],
                color=colour,
                ls=dash,
                marker=marker,
                ms=6,
                clip_on=False,
                label=name,
            )
        queue.set_xlim(0, 1.03 * max(rows["cpus"].max() for rows in waiting.values()))
        queue.set_ylim(0, 100)
        queue.set_xlabel("CPUs at work")
        queue.set_ylabel("CPU time waiting\nfor the zone lock [%]")
        queue.legend(loc="upper left")
        for ax, (column, (title, limits)) in zip(priced, _PRICES.items(), strict=True):
            _points(ax, prices[column], list(prices["setting"]), looks, limits)
            ax.set_xlabel(title)
        # So are the labels': looking for room would lay out every tick twice.
        lefts = (-0.2, -0.13) if narrow else (-0.085, -0.2)
        downs = (-0.21, -0.21, -0.21) if narrow else (-0.15, -0.17, -0.17)
        for ax, left in zip((life, queue), lefts, strict=True):
            ax.yaxis.set_label_coords(left, 0.5)
        for ax, down in zip((life, queue, *priced), (*downs, downs[-1]), strict=True):
            ax.xaxis.set_label_coords(0.5, down)
    describe(figure, f"{page_list_life.caption(steps, events, label)} {_prices(prices)}")
    return figure


def _prices(prices: pd.DataFrame) -> str:
    said = []
    for row in prices.to_dict("records"):
        visits = "there are no refills and drains"
        if np.isfinite(row["p99_us"]):
            visits = f"99 of 100 refills and drains take up to {number(row['p99_us'])} µs"
        said.append(
            f"{row['setting']}: {row['waiting_percent']:.2f} % of the time of {row['cpus']:g} CPUs "
            f"waits, {visits}, {number(row['list_mib'])} MiB "
            "are on the lists at most"
        )
    return f"{'; '.join(said)}."


def _points(
    ax: Axes,
    values: pd.Series,
    names: list[str],
    looks: Mapping[str, tuple[str, object, str]],
    limits: tuple[float, float],
) -> None:
    """Points with their names above and numbers beside; a missing one says "none"."""
    ax.set_xscale("log")
    ax.set_xlim(limits)
    ax.set_ylim(-0.5, len(names) - 0.15)
    # No powers of ten: setting them takes longer than all else in this corner.
    ax.set_xticks(np.geomspace(*limits, 6)[::2], ["1", "100", "10,000"])
    ax.set_xticks([], minor=True)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    for y, value, name in zip(range(len(names))[::-1], values, names, strict=True):
        words = f"{value:,.{int(value < 10)}f}" if np.isfinite(value) else "none"
        colour, _, marker = looks[name]
        at = np.fmax(value, limits[0])
        ax.axhline(y, color="0.85", lw=0.6)
        if np.isfinite(value):
            ax.plot([at], [y], marker, color=colour, ms=6, clip_on=False)
        left = at > np.sqrt(limits[0] * limits[1])  # where there is more room
        ax.annotate(
            words,
            (at, y),
            (-7 if left else 7, 0),
            textcoords="offset points",
            va="center",
            ha="right" if left else "left",
            fontsize=7,
        )
        ax.text(limits[0], y + 0.2, name, va="bottom", fontsize=7)

"""Figures of what the rules make of one per-CPU list."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib.axes import Axes

from pcpmodel.errors import unknown_name
from pcpmodel.figures.style import PAGE, SERIES, capital, figure_style, span
from pcpmodel.words import number

__all__ = ["ladder", "page_list_life"]

_X = {
    "refill": "Pages allocated in a row",
    "drain": "Pages freed in a row",
    "decay": "vmstat ticks idle",
}
_Y = {
    "pages": "Pages per {}",
    "holds": "Zone-lock holds per {}",
    "holds_so_far": "Zone-lock holds so far",
    "count": "On the list afterwards [pages]",
    "high": "high afterwards [pages]",
    "alloc_factor": "alloc_factor afterwards",
}


def _ladder(rungs: pd.DataFrame, kind: str = "", column: str = "pages") -> str:
    if not kind:
        return " ".join(_ladder(rows, *_of(rows)) for _, rows in rungs.groupby("kind", sort=False))
    what = _Y[column].format("tick" if kind == "decay" else kind)
    said = (
        f"{label}: {span(rows[column])} in {len(rows)} visits"
        for label, rows in rungs.groupby("releases", sort=False)
    )
    return (
        f"{capital(what)}, by {_X[kind][:1].lower()}{_X[kind][1:]}, of one list of one CPU. "
        f"{'; '.join(said)}. Counted, so without scatter."
    )


def _of(rungs: pd.DataFrame, kind: str = "", column: str = "pages") -> tuple[str, str]:
    """What is drawn of rungs that say themselves of which kind they are."""
    if not kind:
        (kind,) = rungs["kind"].unique()
        column = "high" if kind == "decay" else column
    if kind not in _X:
        raise unknown_name("kind", kind, _X)
    if column not in _Y:
        raise unknown_name("column", column, _Y)
    return kind, column


@figure_style(size=(PAGE, 3.2), caption=_ladder, narrow=3.4)
def ladder(
    rungs: pd.DataFrame, kind: str = "", column: str = "pages", ax: Axes | None = None
) -> Axes:
    """One quantity of every visit to the buddy lists, a line per group of releases.

    Parameters
    ----------
    rungs : pandas.DataFrame
        ``releases``, ``operation`` (ordinal, of pages or ticks) and ``column``.
    kind : str
        ``refill``, ``drain`` or ``decay``; empty: what the column ``kind`` says (a panel each by
        `panels`), and of a decay ``high``.
    column : str
        ``pages``, ``holds``, ``holds_so_far``, ``count``, ``high`` or ``alloc_factor``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    kind, column = _of(rungs, kind, column)
    for i, (label, rows) in enumerate(rungs.groupby("releases", sort=False)):
        colour, dash, marker = SERIES[i % len(SERIES)]
        ax.plot(
            rows["operation"],
            rows[column],
            color=colour,
            ls=dash,
            marker=marker,
            ms=max(6.5 - i, 2.5),  # where lines coincide, the earlier one shows around
            mfc="white",
            markevery=max(len(rows) // (8 if ax.figure.get_figwidth() < PAGE else 16), 1),
            drawstyle="steps-post" if column == "high" else "default",
            label=label,
        )
    if column in ("pages", "holds") and kind != "decay":
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter("{x:,g}")
    else:
        ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.set_xlabel(_X[kind])
    ax.set_ylabel(_Y[column].format("tick" if kind == "decay" else kind))
    return ax


def _page_list_life(steps: pd.DataFrame, events: pd.DataFrame, label: str = "") -> str:
    said = []
    for kind in ("refill", "drain"):
        pages = events.loc[events["kind"] == kind, "pages"]
        said.append(
            f"{len(pages)} {kind}s of {span(pages, 'pages')}" if len(pages) else f"no {kind}"
        )
    first, most = (number(pages) for pages in (steps["high"].iloc[0], steps["high"].max()))
    high = f"high stays at {first}" if most == first else f"high goes from {first} up to {most}"
    return (
        f"{label + ': ' if label else ''}{number(len(steps) - 1)} operations on one list take "
        f"{said[0]} and {said[1]}; {high}, and {number(steps['count'].iloc[-1])} pages are left "
        "at the end. Counted, so without scatter."
    )


@figure_style(size=(PAGE, 2.6), caption=_page_list_life)
def page_list_life(
    steps: pd.DataFrame, events: pd.DataFrame, label: str = "", ax: Axes | None = None
) -> Axes:
    """Pages on one list and its ``high`` through a piece of work, visits marked.

    Parameters
    ----------
    steps : pandas.DataFrame
        ``operation`` (ordinal), ``tick`` (whether a vmstat tick), ``count`` and ``high``
        [pages].  Ticks are drawn wider, or a burst would leave no room for them.
    events : pandas.DataFrame
        ``operation``, ``kind`` (``refill`` or ``drain``), ``count`` [pages].
    label : str
        Title, such as the release.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    (count, _, _), (drain, _, _), (refill, _, _) = SERIES[:3]
    ticks = steps["tick"]
    width = max((~ticks).sum() / 60, 1)
    x = steps["operation"] + ticks.cumsum() * (width - 1)
    x.index = steps["operation"]
    if ticks.any():
        ax.axvspan(x[ticks.idxmax()] - width, x.max(), color="0.93", lw=0)
        ax.plot([], [], color="0.93", lw=6, label=f"idle: {ticks.sum()} vmstat ticks")
    ax.plot(x, steps["high"], color="0.35", ls="--", lw=0.9, label="high")
    ax.plot(x, steps["count"], color=count, label="count")
    for kind, colour, marker in (("refill", refill, "^"), ("drain", drain, "v")):
        rows = events[events["kind"] == kind]
        ax.plot(
            x[rows["operation"]],
            rows["count"],
            ls="none",
            marker=marker,
            color=colour,
            mec="white",
            mew=0.5,
            ms=6,
            label=f"{kind} ({len(rows)})",
        )
    narrow = ax.figure.get_figwidth() < PAGE
    ax.set_title(textwrap.fill(label, 48) if narrow else label, loc="left")
    ax.set_xlim(0, 1.01 * x.max())
    ax.set_ylim(bottom=0)
    ax.set_xlabel("Blocks allocated and freed, in the order of the work")
    ax.set_ylabel("Pages")
    return ax

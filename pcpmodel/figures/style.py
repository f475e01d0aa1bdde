"""The house style of the figures, and the one way they get into files.

Colours are Okabe and Ito's, told apart with any colour vision; line style and
marker repeat what the colour says, so that print in grey loses nothing.  Lines
without markers are the model, markers without lines are measurements.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcpmodel import __version__
from pcpmodel.errors import InputError

__all__ = ["COLUMN", "PAGE", "SERIES", "STYLE", "figure_style", "panels", "save"]

# The backend is chosen at the first figure and then sets whether figures show
# themselves; chosen inside a style, that would be undone with the style.
plt.switch_backend(mpl.get_backend())

COLUMN, PAGE = 3.4, 7.0  # width of one printed column, and of a page of two [inches]

STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "errorbar.capsize": 2,
    "figure.dpi": 120,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same everywhere
    "font.size": 8,
    "grid.color": "0.88",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # whole glyphs, embedded
    "savefig.dpi": 200,
    "svg.fonttype": "path",  # outlines: nothing to be missing elsewhere
    "svg.hashsalt": "pcpmodel",  # ids that do not change from run to run
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}

#: (colour, line style, marker) of the first, second ... of several things.
SERIES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#000000", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#56B4E9", (0, (8, 2)), "P"),
    ("#E69F00", (0, (1, 1)), "X"),
)


def figure_style(
    draw: Callable[..., Axes] | None = None, *, size: tuple[float, float] = (COLUMN, 2.6)
) -> Any:
    """Draw in the house style, on a figure of its own where no axes are given."""
    if draw is None:
        return functools.partial(figure_style, size=size)

    @functools.wraps(draw)
    def styled(*data: Any, ax: Axes | None = None, **options: Any) -> Axes:
        with mpl.rc_context(STYLE):
            alone = ax is None
            if ax is None:
                _, ax = plt.subplots(figsize=size, layout="constrained")
            draw(*data, ax=ax, **options)
            if alone:
                machines = set(data[0]["machine"]) if "machine" in data[0] else set()
                if len(machines) == 1:
                    ax.set_title(*machines, loc="left")
                if ax.get_legend_handles_labels()[0]:
                    ax.figure.legend(*_entries([ax]), loc="outside lower center", ncols=2)
                ax.figure.draw_without_rendering()  # ticks take their style now
        return ax

    return styled


def _entries(axes: Iterable[Axes]) -> tuple[list[Any], list[str]]:
    """Legend entries of several axes, each label once."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    return list(entries.values()), list(entries)


def panels(
    draw: Callable[..., Axes],
    *frames: pd.DataFrame,
    by: str,
    columns: int = 3,
    height: float = 2.0,
    share: str = "xy",
    title: str = "{}",
    **options: Any,
) -> Figure:
    """Draw one panel per value of a column, with one legend.

    Parameters
    ----------
    draw : callable
        A function of this package.
    frames : pandas.DataFrame
        Its data; each has the column ``by``.
    by : str
        The column that tells the panels apart; they keep the order of the first frame.
    columns : int
        Panels side by side.
    height : float
        Of a row of panels [inches].
    share : str
        Axes that all panels share: any of ``x`` and ``y``.
    title : str
        Format of the panels' titles.
    options
        Passed to ``draw``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    values = list(dict.fromkeys(frames[0][by]))
    columns = min(columns, len(values)) or 1
    rows = max(-(-len(values) // columns), 1)
    with mpl.rc_context(STYLE):
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(PAGE, height * rows + 0.4),
            sharex="x" in share,
            sharey="y" in share,
            squeeze=False,
            layout="constrained",
        )
        # Spare cells end the first row, so that every column has its axis at the bottom.
        spare = list(grid[0, columns - (rows * columns - len(values)) :])
        used = [ax for ax in grid.flat if ax not in spare]
        for ax, value in zip(used, values, strict=True):
            draw(*(frame[frame[by] == value] for frame in frames), ax=ax, **options)
            ax.set_title(title.format(value), loc="left")
            if "x" in share and ax not in grid[-1]:
                ax.set_xlabel("")
                ax.tick_params(labelbottom=False)
            if ax not in grid[:, 0]:
                ax.set_ylabel("")
                ax.tick_params(labelleft="y" not in share)
        for ax in spare:
            ax.set_axis_off()
        handles, labels = _entries(used)
        if handles and spare:
            spare[0].legend(handles, labels, loc="center left")
        elif handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.draw_without_rendering()  # ticks take their style now
    return figure


def save(
    figure: Figure | Axes, name: str, directory: str | os.PathLike[str], *, digest: str
) -> None:
    """Write a figure as SVG, PDF and PNG, the same bytes from run to run.

    The files carry the package's version and the digest of the data.  Each is
    complete or absent: it is written beside and then renamed.

    Parameters
    ----------
    figure : Figure or Axes
        What to save.
    name : str
        File name without suffix: lower-case letters, digits and hyphens.
    directory : path
        Where to; made if missing.  Empty: nothing is written, the figure is only shown.
    digest : str
        Of the data shown.

    Raises
    ------
    InputError
        If the name is not of that form.
    OSError
        If the directory cannot be written.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise InputError(f"figure name {name!r}: lower-case letters, digits and hyphens only.")
    if not os.fspath(directory):
        return
    drawn = figure.figure if isinstance(figure, Axes) else figure
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    creator, data = f"pcpmodel {__version__}", f"data sha256 {digest}"
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Creator": creator, "Description": data, "Title": name, "Date": None},
        "pdf": {"Creator": creator, "Subject": data, "Title": name, "CreationDate": None},
        "png": {"Software": creator, "Description": data, "Title": name},
    }
    with (
        mpl.rc_context(STYLE),
        tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target) as beside,
    ):
        for kind, words in metadata.items():
            drawn.savefig(Path(beside) / kind, format=kind, metadata=words)
        for kind in metadata:
            os.replace(Path(beside) / kind, target / f"{name}.{kind}")


def batch_axis(ax: Axes, batches: Iterable[float]) -> None:
    """A logarithmic axis of pages whose ticks are the batches themselves."""
    ticks = np.unique(np.asarray(list(batches)))
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xticks([], minor=True)


def widen_y(ax: Axes, low: float, high: float) -> None:
    """Set the vertical range, or widen the one that another panel has set."""
    if not ax.get_autoscaley_on():
        low, high = min(low, ax.get_ylim()[0]), max(high, ax.get_ylim()[1])
    ax.set_ylim(low, high)

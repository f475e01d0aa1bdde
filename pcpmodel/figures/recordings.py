"""Figures of recorded kernels: pages on the lists over time, the same work by rules."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from pcpmodel.figures.style import COLUMN, SERIES, figure_style

__all__ = ["holds_by_release", "pages_over_time"]


@figure_style(size=(COLUMN, 2.3))
def pages_over_time(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Pages on all per-CPU lists: the model's line through the kernel's dumps.

    Parameters
    ----------
    table : pandas.DataFrame
        ``time_s`` [s], ``model``, ``kernel`` [pages]; NaN where there is no value.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    model, kernel = SERIES[0], SERIES[1]
    line = table.dropna(subset="model")
    ax.plot(line["time_s"], line["model"], color=model[0], ls=model[1], lw=0.8, label="model",
            drawstyle="steps-post")  # fmt: skip
    dots = table.dropna(subset="kernel")
    ax.plot(dots["time_s"], dots["kernel"], color=kernel[0], ls="none", marker=kernel[2],
            label="kernel, at a dump")  # fmt: skip
    ax.set_xlabel("time [s]")
    ax.set_ylabel("pages on all PCPs")
    ax.set_ylim(bottom=0)
    return ax


@figure_style(size=(COLUMN, 2.6))
def holds_by_release(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Zone-lock holds of the same work by rules, split in refills, drains and others.

    Parameters
    ----------
    table : pandas.DataFrame
        ``release``, ``refills``, ``drains``, ``zone_lock_holds``.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    at = np.arange(len(table))[::-1]
    left = np.zeros(len(table))
    others = table["zone_lock_holds"] - table["refills"] - table["drains"]
    parts = {"refills": table["refills"], "drains": table["drains"], "single blocks": others}
    for (name, width), hatch, series in zip(
        parts.items(), ("", "////", "...."), SERIES, strict=False
    ):
        ax.barh(at, width, left=left, height=0.7, color=series[0], hatch=hatch, edgecolor="white",
                lw=0.3, label=name)  # fmt: skip
        left += width.to_numpy(float)
    ax.set_yticks(at, table["release"])
    ax.set_xlabel("holds of the zone lock")
    ax.grid(False, axis="y")
    return ax

"""Figures of recorded kernels: pages on the lists over time, the same work by rules."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pcpmodel.figures.style import COLUMN, SERIES, figure_style, span

__all__ = ["foreseen", "holds_by_release", "pages_over_time"]


def _pages_over_time(table: pd.DataFrame) -> str:
    kernel, model = table["kernel"].dropna(), table["model"].dropna()
    seen = table["model"].ffill()[table["kernel"].notna()]
    off = (seen - kernel).abs().max()
    return (
        f"Pages on all per-CPU lists over {table['time_s'].max():.3g} s: the kernel has "
        f"{span(kernel, 'pages')} at its {len(kernel)} dumps, the model up to {model.max():,.0f}; "
        f"at the dumps they are at most {off:,.0f} pages apart."
    )


@figure_style(size=(COLUMN, 2.3), caption=_pages_over_time)
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
    ax.set_xlabel("Time [s]")
    ax.set_ylabel("On all per-CPU lists [pages]")
    ax.set_ylim(bottom=0)
    return ax


def _holds_by_release(table: pd.DataFrame) -> str:
    holds = table.set_index("release")["zone_lock_holds"]
    most, least = holds.idxmax(), holds.idxmin()
    return (
        f"Holds of the zone lock for the same recorded work under {len(table)} rules: most under "
        f"{most} ({holds[most]:,}), fewest under {least} ({holds[least]:,}, "
        f"{100 * holds[least] / holds[most]:.0f} % of these). Counted, so without scatter."
    )


@figure_style(size=(COLUMN, 2.6), caption=_holds_by_release)
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
        if not width.any():
            continue
        ax.barh(at, width, left=left, height=0.7, color=series[0], hatch=hatch, edgecolor="white",
                lw=0.3, label=name)  # fmt: skip
        left += width.to_numpy(float)
    ax.set_yticks(at, table["release"])
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("Holds of the zone lock")
    ax.grid(False, axis="y")
    ax.set_xlim(0, 1.03 * max(1, table["zone_lock_holds"].max()))
    return ax


def _ratios(table: pd.DataFrame, of: str) -> np.ndarray:
    """What was foreseen over what was recorded, refills and drains."""
    return np.concatenate(
        [table[f"{w}_{of}"] / table[f"{w}_second"] for w in ("refills", "drains")]
    )


def _off(table: pd.DataFrame, of: str) -> float:
    """By what factor, the geometric mean."""
    return float(np.exp(np.abs(np.log(_ratios(table, of))).mean()))


def _foreseen(table: pd.DataFrame) -> str:
    others, again = table[~table["repeated"]], table[table["repeated"]]
    noise = ""
    if len(again):
        noise = (
            f" The band is the factor of {_off(again, 'first'):.2f} by which recordings under one "
            f"kernel differ ({len(again)} pairs)."
        )
    return (
        f"Refills and drains per allocation over those really recorded, {len(others)} pairs of "
        f"kernels at the same work, either way round: what-if is typically off by a factor of "
        f"{_off(others, 'foreseen'):.2f}, no change by {_off(others, 'first'):.2f}.{noise}"
    )


@figure_style(size=(COLUMN, 3.4), caption=_foreseen)
def foreseen(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """What what-if foresees of another kernel over what that kernel did, pair by pair.

    Parameters
    ----------
    table : pandas.DataFrame
        ``workload``, ``repeated``, and of ``refills`` and ``drains`` ``*_first``, ``*_second``
        and ``*_foreseen`` [holds per 1000 allocations].
    ax : Axes, optional

    Returns
    -------
    Axes
        Filled: foreseen; open: the first kernel's counts taken for the second's.
    """
    others, again = table[~table["repeated"]], table[table["repeated"]]
    names = sorted(set(others["workload"]), reverse=True)
    place = others["workload"].map({name: k for k, name in enumerate(names)}).to_numpy()
    if len(again):
        noise = _off(again, "first")
        ax.axvspan(1 / noise, noise, color="0.88", lw=0, label="repetitions")
    ax.axvline(1, color="0.4", lw=0.6)
    for what, up, series in zip(("refills", "drains"), (0.17, -0.17), SERIES, strict=False):
        for of, off, face in (("foreseen", 0.07, series[0]), ("first", -0.07, "none")):
            ax.plot(others[f"{what}_{of}"] / others[f"{what}_second"], place + up + off, ls="none",
                    marker=series[2], ms=2.8, mew=0.6, color=series[0], mfc=face,
                    label=what if of == "foreseen" else f"{what}, no change")  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:,g}")
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("Expected / recorded holds per allocation")
    ax.grid(False, axis="y")
    return ax

"""Figures of simulated machines: answer keys, contention, latency, memory on the lists."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from pcpmodel.figures.style import COLUMN, PAGE, SERIES, capital, figure_style, listed, span

__all__ = ["answer_key", "by_release", "memory_on_lists", "misses", "tradeoff", "waterfall"]


def _answer_key(rows: pd.DataFrame) -> str:
    fitted = rows["fitted"].notna()
    said = rows[~fitted]
    tables = listed(dict.fromkeys(rows["source"] + "/" + rows["table"])) if len(rows) else "none"
    whole = (said["measured"] != 0) & ~said["quantity"].str.contains("change")
    ratio = (said["predicted"] / said["measured"])[whole]
    return (
        f"Measured and simulated figures of {tables}: {int(said['within'].sum())} of {len(said)} "
        f"predictions are within tolerance (bars), model over measurement is {ratio.median():.2f} "
        f"in the median ({span(ratio)}); {int(fitted.sum())} cells were fitted. The tables state "
        "no uncertainty."
    )


@figure_style(size=(COLUMN, 2.4), caption=_answer_key)
def answer_key(rows: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Measured and predicted figures of one column of a published table.

    Parameters
    ----------
    rows : pandas.DataFrame
        ``source``, ``table``, ``step``, ``quantity``, ``measured``, ``predicted``,
        ``tolerance_low``, ``tolerance_high``, ``within``, ``fitted`` (None: a prediction).
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    at = np.arange(len(rows))
    model, measured = SERIES[0], SERIES[1]
    tables = (rows["source"] + "/" + rows["table"]).to_numpy()
    for i, table in enumerate(dict.fromkeys(tables)):
        of = tables == table  # a line ends with its table
        label = "" if i else "model"
        ax.plot(at[of], rows["predicted"][of], color=model[0], ls=model[1], label=label)
    below, above = (
        (rows["measured"] - rows["tolerance_low"], rows["tolerance_high"] - rows["measured"])
        if len(rows)
        else ([], [])
    )
    ax.errorbar(
        at,
        rows["measured"],
        (below, above),
        color=measured[0],
        ls="none",
        marker="s",
        elinewidth=0.8,
        label="measured ± tolerance",
    )
    fitted = rows["fitted"].notna().to_numpy()
    missed = ~rows["within"].to_numpy(bool) & ~fitted
    ax.plot(
        at[fitted],
        rows["predicted"].to_numpy()[fitted],
        ls="none",
        marker="o",
        mfc="white",
        mec=model[0],
        zorder=3,
        label="fitted",
    )
    if missed.any():
        ax.plot(
            at[missed],
            rows["predicted"].to_numpy()[missed],
            ls="none",
            marker="x",
            color="black",
            ms=6,
            label="outside the tolerance",
        )
    ax.set_xticks(at, rows["step"], rotation=40, ha="right")
    drawn = rows[["predicted", "measured", "tolerance_low", "tolerance_high"]].to_numpy()
    low, high = drawn.min(initial=np.inf), drawn.max(initial=0.0)
    if low < 0.6 * high and rows["predicted"].min() >= 0 <= rows["measured"].min():
        ax.set_ylim(0, 1.1 * high)
    units = {
        "% of cycles" if q == "lock_contention" else "% change" if "change" in q else "% of base"
        for q in rows["quantity"]
    }
    ax.set_ylabel(" or ".join(sorted(units)))
    return ax


def _misses(rows: pd.DataFrame) -> str:
    if not len(rows):
        return "No prediction is outside its tolerance."
    cells = rows.groupby(["source", "table", "step", "quantity"], sort=False)
    moved = _moved(rows)
    words = [
        f"{name} {100 * part.median():.0f} %"
        for name, part in moved[moved > _STILL].groupby(rows["parameter"], sort=False)
    ]
    return (
        f"{len(cells)} predictions outside their tolerance, model over measurement "
        f"{span(cells['ratio'].first())}. Bars: the prediction with a fifth less to a quarter more "
        f"of one parameter; median length {', '.join(words)}."
    )


_STILL = 0.03  # a parameter that moves a prediction by less is not drawn


def _moved(rows: pd.DataFrame) -> pd.Series:
    return (rows["with_more"] - rows["with_less"]).abs() / rows["predicted"]


@figure_style(size=(COLUMN, 3.6), caption=_misses)
def misses(rows: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """What the predictions outside their tolerance hang on.

    Parameters
    ----------
    rows : pandas.DataFrame
        ``table``, ``step``, ``quantity``, ``measured``, ``predicted``, ``parameter``,
        ``with_less`` and ``with_more``: the prediction with a fifth less and a quarter more of
        the parameter.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    moving = rows[_moved(rows) > _STILL] if len(rows) else rows
    names = list(dict.fromkeys(moving["parameter"])) if len(rows) else []
    labels = []
    cells = rows.groupby(["source", "table", "step", "quantity"], sort=False) if len(rows) else ()
    for at, (cell, part) in enumerate(cells):
        source, table, step, quantity = cell
        labels.append(f"{source.rsplit('-', 1)[-1]} {table} {step}: {quantity}")
        ax.plot(part["predicted"].iloc[0] / part["measured"].iloc[0], at, "x", color="black", ms=5)
        part = part[_moved(part) > _STILL]
        for i, (_, row) in enumerate(part.iterrows()):
            colour, dash, _ = SERIES[names.index(row["parameter"]) % len(SERIES)]
            y = at + 0.7 * ((i + 1) / (len(part) + 1) - 0.5)
            ends = np.array([row["with_less"], row["with_more"]]) / row["measured"]
            ax.plot(ends, [y, y], color=colour, ls=dash, lw=1.4, label=row["parameter"])
    ax.axvline(1.0, color="0.5", lw=0.8)
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xticks([0.5, 0.7, 1.0, 1.4, 2.0], ["0.5", "0.7", "1", "1.4", "2"])
    ax.minorticks_off()
    ax.set_xlabel("model / measured")
    ax.grid(False, axis="y")
    return ax


def _by_release(
    table: pd.DataFrame,
    x: str,
    y: str,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    error: str | None = None,
) -> str:
    ends = "" if _words(table[x]) else f" ({span(table[x])})"
    said = [f"{release} {span(rows[y])}" for release, rows in table.groupby("release", sort=False)]
    scatter = "bars are the standard deviation over the seeds" if error else "one seed per point"
    return f"{capital(ylabel)} by {xlabel}{ends}: {'; '.join(said)}; {scatter}."


def _words(values: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(values)


@figure_style(size=(COLUMN, 2.6), caption=_by_release)
def by_release(
    table: pd.DataFrame,
    x: str,
    y: str,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    error: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One figure of the runs against another, a line per release.

    Parameters
    ----------
    table : pandas.DataFrame
        ``release``, and the columns named.
    x, y : str
        Columns; ``x`` may hold words.
    xlabel, ylabel : str
        Axis labels, with units.
    log : bool
        Logarithmic ``y``.
    error : str, optional
        Column with the standard deviation of ``y`` over the seeds.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    words = _words(table[x])
    order, releases = (list(dict.fromkeys(table[column])) for column in (x, "release"))
    for i, (release, rows) in enumerate(table.groupby("release", sort=False)):
        colour, dash, marker = SERIES[i % len(SERIES)]
        aside = 0.08 * (i - (len(releases) - 1) / 2)
        at = [order.index(v) + aside for v in rows[x]] if words else rows[x]
        ax.errorbar(
            at,
            rows[y],
            yerr=None if error is None else rows[error],
            color=colour,
            ls="none" if words else dash,
            marker=marker,
            label=str(release),
        )
    if words:
        ax.set_xticks(range(len(order)), [textwrap.fill(str(word), 10) for word in order])
    else:
        ax.set_xticks(order)
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(capital(xlabel))
    ax.set_ylabel(capital(ylabel))
    return ax


def _waterfall(causes: pd.DataFrame) -> str:
    parts = causes.set_index("cause")["ns_per_unit"]
    old, new, inner = parts.iloc[0], parts.iloc[-1], parts.iloc[1:-1]
    first = inner.abs().idxmax()
    return (
        f"CPU time per unit of work, {old:.1f} ns before and {new:.1f} ns after "
        f"({100 * (new / old - 1):+.1f} %; less is better). The largest cause is {first}, "
        f"{inner[first]:+.1f} ns; the bars add up. One seed."
    )


@figure_style(size=(PAGE, 2.6), caption=_waterfall)
def waterfall(causes: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """From the CPU time per unit of work of one run to that of another, cause by cause.

    Parameters
    ----------
    causes : pandas.DataFrame
        ``cause``, ``ns_per_unit`` [ns]; first and last row are the whole.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    values = causes["ns_per_unit"].to_numpy()
    start = np.concatenate([[0.0], values[0] + np.cumsum(values[1:-1]) - values[1:-1], [0.0]])
    whole = np.isin(np.arange(len(values)), (0, len(values) - 1))
    colours = np.where(whole, "0.6", np.where(values < 0, SERIES[2][0], SERIES[1][0]))
    hatch = [
        "" if w else ("/////" if v < 0 else ".....") for w, v in zip(whole, values, strict=True)
    ]
    at = np.arange(len(values))
    bars = ax.barh(at, values, left=start, color=colours, edgecolor="white")
    for bar, pattern in zip(bars, hatch, strict=True):
        bar.set_hatch(pattern)
    for y, value, left in zip(at, values, start, strict=True):
        end = max(left, left + value)
        ax.text(
            end, y, f" {value:+.1f}" if 0 < y < len(values) - 1 else f" {value:.1f}", va="center"
        )
    ax.set_yticks(at, causes["cause"])
    ax.grid(False, axis="y")
    ax.invert_yaxis()
    ax.set_xlim(0, 1.12 * max(values[0], values[-1], (start + values).max()))  # room for numbers
    ax.set_xlabel("CPU time per unit of work [ns]")
    return ax


def _tradeoff(table: pd.DataFrame, p99_us: float) -> str:
    under = table[table["hold_p99_us"] <= p99_us]
    text = (
        f"Throughput against the 99th percentile of a hold for {len(table)} settings, of which "
        f"{int(table['front'].sum())} are beaten by no other in throughput, latency and memory"
    )
    if under.empty:
        return f"{text}; none stays under {p99_us:g} µs. One seed per point."
    best = under.loc[under["score_per_s"].idxmax()]
    return (
        f"{text}. The fastest under {p99_us:g} µs has batch scale {best['batch_scale_max']:g}: "
        f"{best['score_per_s'] / 1e6:.2f} million units/s at {best['hold_p99_us']:.1f} µs with "
        f"{best['pages_in_pcp_mib']:,.0f} MiB on the lists. One seed per point."
    )


@figure_style(size=(COLUMN, 3.0), caption=_tradeoff)
def tradeoff(table: pd.DataFrame, p99_us: float, ax: Axes | None = None) -> Axes:
    """Throughput against the 99th percentile of a hold, with the front.

    Parameters
    ----------
    table : pandas.DataFrame
        ``batch_scale_max``, ``score_per_s`` [1/s], ``hold_p99_us`` [us],
        ``pages_in_pcp_mib`` [MiB], ``front``.
    p99_us : float
        The limit [us].
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    for i, (scale, rows) in enumerate(table.groupby("batch_scale_max")):
        colour, _, marker = SERIES[i % len(SERIES)]
        face = [colour if front else "white" for front in rows["front"]]
        ax.scatter(
            rows["hold_p99_us"],
            rows["score_per_s"] / 1e6,
            s=12 + np.sqrt(rows["pages_in_pcp_mib"]),
            marker=marker,
            facecolors=face,
            edgecolors=colour,
            linewidths=0.8,
        )
        ax.plot([], [], ls="none", color=colour, marker=marker, label=f"batch scale {scale:g}")
    ax.axvline(p99_us, color="0.25", lw=1.0, label=f"limit, {p99_us:g} µs")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.plot([], [], ls="none", label="filled: on the front")
    ax.plot([], [], ls="none", label="larger: more memory")
    ax.set_xlabel("p99 of one hold [µs]")
    ax.set_ylabel("Throughput [million units/s]")
    return ax


def _memory_on_lists(table: pd.DataFrame) -> str:
    keys = ["release", *(["nohz_idle"] if "nohz_idle" in table else [])]
    said = []
    for key, rows in table.groupby(keys, sort=False):
        gib = rows.sort_values("time_s")["mib"] / 1024
        sleep = ", CPUs asleep" if len(key) > 1 and key[1] else ""
        said.append(f"{key[0]}{sleep} {gib.max():.1f} down to {gib.iloc[-1]:.1f}")
    return (
        f"Memory on the per-CPU lists over {table['time_s'].max():.3g} s, from its peak to the end "
        f"[GiB]: {'; '.join(said)}. One seed."
    )


@figure_style(size=(COLUMN, 2.6), caption=_memory_on_lists)
def memory_on_lists(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Memory on the per-CPU lists over time, a line per release.

    Parameters
    ----------
    table : pandas.DataFrame
        ``release``, ``time_s`` [s], ``mib`` [MiB].
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    for i, (release, rows) in enumerate(table.groupby("release", sort=False)):
        colour, dash, _ = SERIES[i % len(SERIES)]
        width = max(2.4 - 0.5 * i, 0.9)  # where lines coincide, the earlier one shows around
        ax.plot(rows["time_s"], rows["mib"] / 1024, c=colour, ls=dash, lw=width, label=str(release))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("Time [s]")
    ax.set_ylabel("On per-CPU lists [GiB]")
    return ax

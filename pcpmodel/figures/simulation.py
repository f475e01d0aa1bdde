"""Figures of simulated machines: answer keys, contention, latency, memory on the lists."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullFormatter

from pcpmodel.figures.print import display
from pcpmodel.figures.style import COLUMN, PAGE, SERIES, capital, figure_style, listed, span

__all__ = [
    "answer_key",
    "by_release",
    "memory_on_lists",
    "misses",
    "tradeoff",
    "tradeoff_latency",
    "waterfall",
]


def _answer_key(rows: pd.DataFrame) -> str:
    fitted = rows["fitted"].notna()
    said = rows[~fitted]
    names = dict.fromkeys(rows["source"] + "/" + rows["table"]) if len(rows) else ()
    tables = listed(map(display, names)) if len(rows) else "none"
    whole = (said["measured"] != 0) & ~said["quantity"].str.contains("change")
    ratio = (said["predicted"] / said["measured"])[whole]
    return (
        f"Measured and simulated figures of {tables}: {int(said['within'].sum())} of {len(said)} "
        f"predictions are within tolerance (bars), model over measurement is {ratio.median():.2f} "
        f"in the median ({span(ratio)}); {int(fitted.sum())} cells were fitted. "
        f"{_nothing_changes(said)}The tables state no uncertainty."
    )


def _nothing_changes(said: pd.DataFrame) -> str:
    """How many predicted cells the first row has right, if the rows say it."""
    if "nothing changes" not in said or said["nothing changes"].isna().all():
        return ""
    told = said[said["nothing changes"].notna()]
    first = told["nothing changes"].astype(float)
    right = first.between(told["tolerance_low"], told["tolerance_high"])
    return (
        f"Of the {len(told)} with a row before, a prediction that nothing changes has "
        f"{int(right.sum())}. "
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
        f"{display(name)} {100 * part.median():.0f} %"
        for name, part in moved[moved > _STILL].groupby(rows["parameter"], sort=False)
    ]
    return (
        f"{len(cells)} predictions outside their tolerance, model over measurement "
        f"{span(cells['ratio'].first())}. Bars: the prediction with a fifth less to a quarter more "
        f"of one parameter; median length {', '.join(words)}."
    )


_RATIOS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
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
        said = f"{source.rsplit('-', 1)[-1]} {display(table)} {step}: {display(quantity)}"
        labels.append(textwrap.fill(said, 34, break_on_hyphens=False))
        ax.plot(part["predicted"].iloc[0] / part["measured"].iloc[0], at, "x", color="black", ms=5)
        part = part[_moved(part) > _STILL]
        for i, (_, row) in enumerate(part.iterrows()):
            colour, dash, _ = SERIES[names.index(row["parameter"]) % len(SERIES)]
            y = at + 0.7 * ((i + 1) / (len(part) + 1) - 0.5)
            ends = np.array([row["with_less"], row["with_more"]]) / row["measured"]
            ax.plot(ends, [y, y], color=colour, ls=dash, lw=1.4, label=display(row["parameter"]))
    ax.axvline(1.0, color="0.5", lw=0.8)
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xticks(_RATIOS, [f"{ratio:g}" for ratio in _RATIOS])
    ax.minorticks_off()
    if len(rows):  # as wide as what is drawn, and 1 in it
        drawn = rows[["with_less", "with_more", "predicted"]].div(rows["measured"], axis=0)
        low, high = min(1.0, drawn.to_numpy().min()), max(1.0, drawn.to_numpy().max())
        ax.set_xlim(low / 1.15, high * 1.15)
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
    bars: str = "the standard deviation over the seeds",
) -> str:
    ends = "" if _words(table[x]) else f" ({span(table[x])})"
    said = [f"{release} {span(rows[y])}" for release, rows in table.groupby("release", sort=False)]
    scatter = f"bars are {bars}" if error else "one seed per point"
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
    bars: str = "the standard deviation over the seeds",
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
        Column with the half length of the error bars.
    bars : str
        What they are, for the caption.
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
        ax.yaxis.set_major_formatter("{x:,g}")
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
    causes = _told(causes)
    values = causes["ns_per_unit"].to_numpy()
    old, new, at = values[0], values[-1], np.arange(len(values))
    ends = old + np.cumsum(values[1:-1])
    starts = ends - values[1:-1]
    for (colour, *_), hatch, words, of in (
        (SERIES[2], "/////", "takes less", values[1:-1] < 0),
        (SERIES[1], ".....", "takes more", values[1:-1] >= 0),
    ):
        if of.any():
            ax.barh(
                at[1:-1][of],
                values[1:-1][of],
                left=starts[of],
                color=colour,
                hatch=hatch,
                edgecolor="white",
                lw=0,
                label=words,
            )
    # The wholes are points: the axis shows the changes, and need not begin at 0.
    ax.plot(values[[0, -1]], at[[0, -1]], "D", color="0.3", ms=5, label="whole")
    ax.vlines(np.r_[old, ends], at[:-1], at[1:], color="0.5", lw=0.8)
    rights = np.r_[old, np.maximum(starts, ends), new]
    for y, value, right in zip(at, values, rights, strict=True):
        words = f"{value:+,.1f}" if 0 < y < len(values) - 1 else f"{value:,.1f}"
        ax.annotate(words, (right, y), (6, 0), textcoords="offset points", va="center", fontsize=7)
    ax.set_yticks(at, causes["cause"])
    ax.grid(False, axis="y")
    ax.invert_yaxis()
    low, high = np.r_[old, ends, new].min(), np.r_[old, ends, new].max()
    room = max(high - low, 0.02 * high)
    ax.set_xlim(low - 0.08 * room, high + 0.2 * room)  # room for numbers
    ax.set_xlabel("CPU time per unit of work [ns]")
    return ax


def _told(causes: pd.DataFrame) -> pd.DataFrame:
    """Causes that are nothing in print, to a tenth of a nanosecond, share one row."""
    inner = causes.iloc[1:-1]
    nothing = inner["ns_per_unit"].abs() < 0.05
    if nothing.sum() < 2:
        return causes
    rest = {
        "cause": f"{nothing.sum()} more, each under 0.05 ns",
        "ns_per_unit": inner.loc[nothing, "ns_per_unit"].sum(),
    }
    told = [causes.iloc[:1], inner[~nothing], pd.DataFrame([rest]), causes.iloc[-1:]]
    return pd.concat(told, ignore_index=True)


def _settings(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["asks"] == "what to set?"]


def _tradeoff(table: pd.DataFrame, p99_us: float) -> str:
    grid = _settings(table)
    words = [
        f"Throughput, 99th percentile of a hold and memory on the per-CPU lists of {len(grid)} "
        f"settings; {int(grid['front'].sum())} are beaten by no other by more than the noise"
    ]
    for mark in ("shipped", "recommended"):
        for _, row in grid[grid[mark]].iterrows():
            words.append(
                f"{mark} is {row['setting']}: {row['score_per_s'] / 1e6:.1f} ± "
                f"{row['score_per_s_half_width'] / 1e6:.1f} million pages/s, p99 "
                f"{row['hold_p99_us']:.0f} ± {row['hold_p99_us_half_width']:.0f} µs, "
                f"{row['pages_in_pcp_mib'] / 1024:.1f} GiB"
            )
    if not grid["recommended"].any():
        words.append(f"none stays under {p99_us:g} µs")
    return "; ".join(words) + ". Half widths of 95 % intervals over several seeds."


@figure_style(size=(PAGE, 3.6), caption=_tradeoff, panel=PAGE)
def tradeoff(table: pd.DataFrame, p99_us: float, ax: Axes | None = None) -> Axes:
    """Every setting a field: throughput (shade), p99 of a hold and memory on the lists.

    Parameters
    ----------
    table : pandas.DataFrame
        Of `pcpmodel.study.tradeoff`: the rows that ask what to set; ``high_pages`` NaN is the
        kernel's own.
    p99_us : float
        The limit [us]; times above it are in brackets.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    grid = _settings(table)
    highs = [*sorted(grid["high_pages"].dropna().unique()), np.nan]
    scales = sorted(grid["batch_scale_max"].unique())
    rate = np.full((len(scales), len(highs)), np.nan)
    most = grid["score_per_s"].max()
    for _, row in grid.iterrows():
        own = np.isnan(row["high_pages"])
        x = len(highs) - 1 if own else highs.index(row["high_pages"])
        y = scales.index(row["batch_scale_max"])
        rate[y, x] = row["score_per_s"] / 1e6
        us = f"{row['hold_p99_us']:.0f} µs" if row["hold_p99_us"] else "no hold"
        if row["hold_p99_us"] > p99_us:
            us = f"[{us}]"
        ax.text(
            x,
            y,
            f"{rate[y, x]:.0f} ± {row['score_per_s_half_width'] / 1e6:.1f}\n{us}\n"
            f"{row['pages_in_pcp_mib'] / 1024:.1f} GiB",
            ha="center",
            va="center",
            size=6,
            linespacing=1.05,
            color="black" if row["score_per_s"] > 0.55 * most else "white",
            weight="bold" if row["front"] else "normal",
        )
        for mark, (colour, dash, _), inset in (
            ("shipped", SERIES[1], 0.0),
            ("recommended", SERIES[0], 0.05),
        ):
            if row[mark]:
                at, side = (x - 0.48 + inset, y - 0.46 + inset), 0.96 - 2 * inset
                ax.add_patch(
                    Rectangle(at, side, side - 0.04, fill=False, ec=colour, ls=dash, lw=2.2)
                )
                ax.plot([], [], color=colour, ls=dash, lw=2.2, label=mark)
    image = ax.imshow(rate, cmap="cividis", vmin=0, aspect="auto")
    bar = ax.figure.colorbar(image, ax=ax, pad=0.01)
    bar.set_label("Million pages/s, ± half of the 95 % interval")
    bar.outline.set_visible(False)
    ax.plot([], [], ls="none", label=f"[ ]: p99 of a hold above {p99_us:g} µs")
    ax.plot([], [], ls="none", label="bold: on the front")
    ax.set_xticks(range(len(highs)), [*(f"{h:,.0f}" for h in highs[:-1]), "kernel's own"])
    ax.set_yticks(range(len(scales)), [f"{k:g}" for k in scales])
    ax.invert_yaxis()
    ax.grid(False)
    ax.set_xlabel("high [pages]")
    ax.set_ylabel("Batch scale")
    return ax


def _tradeoff_latency(table: pd.DataFrame, p99_us: float) -> str:
    rows = table[table["asks"] == "as measured"]
    last = rows.iloc[-1]
    return (
        f"99th percentile of a hold against the pages of one hold, measured with high = 2 x batch "
        f"and simulated likewise: at {last['batch']:,.0f} pages "
        f"{last['measured_alloc_p99_us']:.0f} µs (refill) and "
        f"{last['measured_free_p99_us']:.0f} µs (drain) measured, "
        f"{last['hold_p99_us']:.0f} ± {last['hold_p99_us_half_width']:.0f} µs simulated. With the "
        "kernel's own high the pages are cold, at a cost fitted to another table. The tables state "
        "no uncertainty."
    )


@figure_style(size=(COLUMN, 2.8), caption=_tradeoff_latency)
def tradeoff_latency(table: pd.DataFrame, p99_us: float, ax: Axes | None = None) -> Axes:
    """p99 of a hold against its pages: the measured table, the same simulated, the grid.

    Parameters
    ----------
    table : pandas.DataFrame
        Of `pcpmodel.study.tradeoff`.
    p99_us : float
        The limit [us].
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    rows = table[table["asks"] == "as measured"]
    grid = _settings(table)
    own = grid[grid["high_pages"].isna()]
    for i, (side, words) in enumerate((("alloc", "refill"), ("free", "drain"))):
        colour, _, marker = SERIES[i]
        ax.plot(
            rows["batch"],
            rows[f"measured_{side}_p99_us"],
            ls="none",
            marker=marker,
            color=colour,
            mfc="white",
            label=f"measured, {words}",
        )
    for (colour, dash, _), x, part, words in (
        (SERIES[2], rows["batch"], rows, "simulated as measured"),
        (
            SERIES[3],
            own["batch_pages"] * 2.0 ** own["batch_scale_max"],
            own,
            "simulated, kernel's own high",
        ),
    ):
        ax.errorbar(
            x,
            part["hold_p99_us"],
            part["hold_p99_us_half_width"],
            color=colour,
            ls=dash,
            label=words,
        )
    ax.axhline(p99_us, color="0.25", lw=1.0, label=f"limit, {p99_us:g} µs")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:,g}")
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.set_xlabel("Pages of one hold, batch << scale")
    ax.set_ylabel("p99 of a hold [µs]")
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

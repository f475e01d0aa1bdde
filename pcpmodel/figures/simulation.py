"""Figures of simulated machines: answer keys, contention, latency, memory on the lists."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator, NullFormatter

from pcpmodel.figures.print import display
from pcpmodel.figures.style import (
    COLUMN,
    PAGE,
    SERIES,
    beside,
    capital,
    figure_style,
    listed,
    span,
    widen_y,
)
from pcpmodel.words import counted, decimals, number

__all__ = [
    "answer_key",
    "by_release",
    "memory_on_lists",
    "tradeoff",
    "tradeoff_latency",
    "waterfall",
]


def _answer_key(said: pd.DataFrame) -> str:
    names = dict.fromkeys(said["source"] + "/" + said["table"]) if len(said) else ()
    tables = listed(map(display, names)) if len(said) else "none"
    whole = (said["measured"] != 0) & ~said["quantity"].str.contains("change")
    ratio = (said["mean"] / said["measured"])[whole]
    half = np.hypot(said["half_width"].fillna(0.0), said["measured_half_width"].fillna(0.0))
    inside = (said["mean"] - said["measured"]).abs() <= half
    stated = said["measured_half_width"].notna()
    scatter = (
        "bars of the measured are two standard deviations, as stated"
        if stated.all()
        else f"of {int((~stated).sum())} of {len(said)} measured figures no scatter is stated"
    )
    return (
        f"Measured and simulated figures of {tables}. Model over measurement is "
        f"{ratio.median():.2f} in the median ({span(ratio)}){_fitted(said)}. Bars of the "
        f"model are 95 % intervals over its seeds{_wider(said)}; {scatter}. The bars "
        f"over the seeds of {int(inside.sum())} of {len(said)} predictions reach the measured "
        f"figure, {int(said['within'].sum())} are within tolerance. {_nothing_changes(said)}"
    ).strip()


def _wider(said: pd.DataFrame) -> str:
    sheet = _sheet(said)
    if sheet is None:
        return ""
    inside = (sheet[0] <= said["measured"]) & (said["measured"] <= sheet[1])
    return (
        ", light ones what the cost sheet's intervals allow as well, which reach the measured "
        f"figure of {int(inside.sum())}"
    )


def _fitted(said: pd.DataFrame) -> str:
    """How many inputs of the tables were fitted, and to what, if the rows say it."""
    if "fitted" not in said or said["fitted"].isna().all():
        return ""
    tables = said.drop_duplicates(["source", "table"])
    tables = tables[tables["fitted"] > 0]
    inputs, others = int(tables["fitted"].sum()), tables["fitted_to"].unique()
    if not inputs:
        return "; nothing was fitted"
    return (
        f"; nothing was fitted to {'these' if len(said) > 1 else 'it'}, but "
        f"{counted(inputs, 'input')} to figures of {listed(map(display, others))}"
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


def _sheet(rows: pd.DataFrame) -> npt.NDArray[np.float64] | None:
    """Ends of what predictions may be by the cost sheet, low and high; None if no row has more."""
    if not {"interval_low", "interval_high"} <= set(rows.columns):
        return None
    mean, half = rows["mean"].to_numpy(float), rows["half_width"].fillna(0.0).to_numpy(float)
    low, high = (rows[f"interval_{end}"].to_numpy(float) for end in ("low", "high"))
    ends = np.array([np.fmin(low, mean - half), np.fmax(high, mean + half)])
    wider = (ends[0] < mean - half - 1e-9) | (ends[1] > mean + half + 1e-9)
    return ends if wider.any() else None


@figure_style(size=(COLUMN, 2.4), caption=_answer_key)
def answer_key(rows: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Measured and predicted figures of one column of a published table, with their intervals.

    Parameters
    ----------
    rows : pandas.DataFrame
        ``source``, ``table``, ``step``, ``quantity``, ``measured``, ``mean`` (of the prediction)
        and for both ``measured_half_width`` and ``half_width`` (NaN: not known), ``within``.
        ``fitted``, if there: inputs of the table that were fitted, to figures of ``fitted_to``.
        ``interval_low`` and ``interval_high``, if there: by the cost sheet as well, drawn lightly.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    at = np.arange(len(rows))
    (colour, dash, _), (other, _, square) = SERIES[:2]
    mean, measured = (rows[name].to_numpy(float) for name in ("mean", "measured"))
    half, stated = (
        rows[name].fillna(0.0).to_numpy(float) for name in ("half_width", "measured_half_width")
    )
    # A line ends with its table, and where the steps are of another workload.
    workloads = rows["step"].astype(str).str.rpartition(", ")[0]
    lines = (rows["source"] + "/" + rows["table"] + "/" + workloads).to_numpy()
    for i, line in enumerate(dict.fromkeys(lines)):
        of = lines == line
        ax.plot(at[of], mean[of], color=colour, ls=dash, label="" if i else "model")
    sheet = _sheet(rows)
    if sheet is not None:
        wide = np.abs(sheet - mean)
        ax.errorbar(at, mean, wide, ecolor=colour, alpha=0.35, fmt="none", elinewidth=3.0,
                    capsize=0, label="with the cost sheet's intervals")  # fmt: skip
    ax.errorbar(
        at, mean, half, ecolor=colour, fmt="none", elinewidth=1.0, label="95 % over the seeds"
    )
    ax.plot(at, measured, color=other, marker=square, ls="none", label="measured")
    if stated.any():
        ax.errorbar(
            at[stated > 0],
            measured[stated > 0],
            stated[stated > 0],
            ecolor=other,
            fmt="none",
            elinewidth=0.8,
            label="2 standard deviations, stated",
        )
    missed = ~rows["within"].to_numpy(bool)
    if missed.any():
        ax.plot(
            at[missed], mean[missed], "x", color="black", ms=6, zorder=3,
            label="outside the tolerance",
        )  # fmt: skip
    _name_ticks(ax, rows["step"])
    ends = np.r_[mean - half, mean + half, measured - stated, measured + stated]
    ends = ends if sheet is None else np.r_[ends, sheet.ravel()]
    low, high = ends.min(initial=np.inf), ends.max(initial=0.0)
    if low < 0.6 * high and min(mean.min(), measured.min()) >= 0:
        ax.set_ylim(0, 1.1 * high)
    units = {
        "% of cycles" if q == "lock_contention" else "% change" if "change" in q else "% of base"
        for q in rows["quantity"]
    }
    ax.set_ylabel(" or ".join(sorted(units)))
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
    # Panels of several quantities: no range is over two of them.
    several = "quantity" in table and table["quantity"].nunique() > 1
    said = []
    for what, part in table.groupby("quantity", sort=False) if several else [(ylabel, table)]:
        each = (
            f"{release} {span(rows[y])}" for release, rows in part.groupby("release", sort=False)
        )
        said.append(f"{capital(what) if several else what}: {'; '.join(each)}")
    scatter = f"bars are {bars}" if error else "one seed per point"
    if several:
        return f"{capital(ylabel)} by {xlabel}{ends}. {'. '.join(said)}. {capital(scatter)}."
    return f"{capital(ylabel)} by {xlabel}{ends}{said[0][len(ylabel) :]}; {scatter}."


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
    half = None if error is None else table[error].fillna(0.0)
    for i, (release, rows) in enumerate(table.groupby("release", sort=False)):
        colour, dash, marker = SERIES[i % len(SERIES)]
        aside = 0.08 * (i - (len(releases) - 1) / 2)
        at = [order.index(v) + aside for v in rows[x]] if words else rows[x]
        ax.errorbar(
            at,
            rows[y],
            yerr=None if half is None else _bars(rows[y], half[rows.index], log),
            color=colour,
            ls="none" if words else dash,
            marker=marker,
            label=str(release),
        )
    if words:
        _name_ticks(ax, order)
    else:
        ax.set_xticks(order)
    if log and (table[y] == 0).any():  # none of them has its place, too
        least = _least(ax, table[y])
        ax.set_yscale("symlog", linthresh=least)
        highest = float((table[y] + (0.0 if half is None else half)).max())
        widen_y(ax, -0.4 * least, 1.6 * max(highest, least))
    elif log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    if log:
        ax.yaxis.set_major_formatter("{x:,g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(capital(xlabel))
    ax.set_ylabel(capital(ylabel))
    return ax


def _name_ticks(ax: Axes, words: Iterable[object]) -> None:
    """Words below 0, 1, 2 ..., aslant or, if long, upright where they would run into each other."""
    names = [str(word) for word in words]
    at = range(len(names))
    side_by_side, upright = ([textwrap.fill(name, n) for name in names] for n in (10, 16))
    widest = max((len(line) for name in side_by_side for line in name.splitlines()), default=0)
    letter = 0.6 * ax.xaxis.get_major_ticks()[0].label1.get_fontsize()
    if widest * letter < ax.get_window_extent().width / ax.figure.dpi * 72 / max(len(names), 1):
        ax.set_xticks(at, side_by_side)
    elif max(map(len, names), default=0) <= 10:
        ax.set_xticks(at, names, rotation=40, ha="right")
    else:
        ax.set_xticks(at, upright, rotation=90, ma="center")


def _bars(values: pd.Series, half: pd.Series, log: bool) -> npt.NDArray[np.float64]:
    """Lengths of error bars down and up; on a logarithmic axis none goes below 0."""
    return np.array([np.minimum(half, values) if log else half, half], float)


def _least(ax: Axes, values: pd.Series) -> float:
    """Power of ten under which an axis is linear down to 0, for panels that share it, too."""
    some = values[values > 0]
    least = 10.0 ** np.ceil(np.log10(some.min())) if len(some) else 1.0
    if ax.get_yscale() == "symlog":
        least = min(least, ax.yaxis.get_transform().linthresh)
    return float(least)


def _half(causes: pd.DataFrame, cause: str) -> str:
    if "half_width" not in causes:
        return ""
    return f" ± {causes.set_index('cause')['half_width'][cause]:.1f}"


def _waterfall(causes: pd.DataFrame) -> str:
    parts = causes.set_index("cause")["ns_per_unit"]
    old, new, inner = parts.iloc[0], parts.iloc[-1], parts.iloc[1:-1]
    first = inner.abs().idxmax()
    return (
        f"CPU time per unit of work, {old:.1f} ns before and {new:.1f} ns after "
        f"({100 * (new / old - 1):+.1f} %; less is better). The largest cause is {first}, "
        f"{inner[first]:+.1f}{_half(causes, first)} ns; the bars add up. "
        + ("Lines are 95 % intervals over the seeds." if "half_width" in causes else "One seed.")
    )


@figure_style(size=(PAGE, 2.6), caption=_waterfall)
def waterfall(causes: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """From the CPU time per unit of work of one run to that of another, cause by cause.

    Parameters
    ----------
    causes : pandas.DataFrame
        ``cause``, ``ns_per_unit`` [ns]; first and last row are the whole.  ``half_width``, if
        there, is half of its 95 % interval.
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
    half = causes["half_width"].to_numpy() if "half_width" in causes else np.zeros(len(values))
    heads = np.r_[old, ends, new]
    if half.any():
        ax.errorbar(heads, at, xerr=half, fmt="none", ecolor="black", elinewidth=0.8, zorder=4)
    rights = np.maximum(np.r_[old, np.maximum(starts, ends), new], heads + half)
    for y, value, right in zip(at, values, rights, strict=True):
        words = f"{value:+,.1f}" if 0 < y < len(values) - 1 else f"{value:,.1f}"
        ax.annotate(words, (right, y), (6, 0), textcoords="offset points", va="center", fontsize=7)
    ax.set_yticks(at, causes["cause"])
    ax.grid(False, axis="y")
    ax.invert_yaxis()
    low, high = (heads - half).min(), (heads + half).max()
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
    if "half_width" in causes:
        rest["half_width"] = float(np.hypot.reduce(inner.loc[nothing, "half_width"]))
    told = [causes.iloc[:1], inner[~nothing], pd.DataFrame([rest]), causes.iloc[-1:]]
    return pd.concat(told, ignore_index=True)


def _settings(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["asks"] == "what to set?"]


def _within(value: float, half: float) -> str:
    """A value and half of its interval, to three digits of the value."""
    digits = decimals(value)
    return f"{value:.{digits}f} ± {half:.{digits}f}"


def _tradeoff(table: pd.DataFrame, p99_us: float) -> str:
    grid = _settings(table)
    words = [
        f"Throughput against the 99th percentile of a hold of {len(grid)} settings, k the batch "
        f"scale, memory on the per-CPU lists as colour; {int(grid['front'].sum())} "
        f"settings, with a thick edge and named as k / high where there is room, are beaten by no "
        f"other by more than the noise"
    ]
    for mark in ("shipped", "recommended"):
        for _, row in grid[grid[mark]].iterrows():
            words.append(
                f"{mark} is {row['setting']}: "
                f"{_within(row['score_per_s'] / 1e6, row['score_per_s_half_width'] / 1e6)} "
                "million pages/s, "
                + (
                    f"p99 {_within(row['hold_p99_us'], row['hold_p99_us_half_width'])} µs, "
                    if row["hold_p99_us"] > 0
                    else "no hold, "
                )
                + f"{number(row['pages_in_pcp_mib'] / 1024)} GiB"
            )
    if not grid["recommended"].any():
        words.append(f"none stays under {p99_us:g} µs")
    return "; ".join(words) + ". Bars are 95 % intervals over several seeds."


@figure_style(size=(PAGE, 4.6), caption=_tradeoff, narrow=4.6, panel=PAGE)
def tradeoff(table: pd.DataFrame, p99_us: float, ax: Axes | None = None) -> Axes:
    """Throughput against the p99 of a hold, every setting a point, memory as colour.

    Parameters
    ----------
    table : pandas.DataFrame
        Of `pcpmodel.study.tradeoff`: the rows that ask what to set; ``high_pages`` NaN is the
        kernel's own.
    p99_us : float
        The limit [us].
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    grid = _settings(table)
    rows = pd.DataFrame(
        {
            "k": grid["batch_scale_max"],
            "high": grid["high_pages"].fillna(np.inf),
            "x": grid["hold_p99_us"],
            "x_half": grid["hold_p99_us_half_width"],
            "y": grid["score_per_s"] / 1e6,
            "y_half": grid["score_per_s_half_width"] / 1e6,
            "gib": grid["pages_in_pcp_mib"] / 1024,
        }
    ).sort_values(["high", "k"])
    held = rows["x"] > 0
    none = 0.6 * min([*rows["x"][held], p99_us])  # where no hold is drawn
    rows["x"] = rows["x"].where(held, none)
    ax.axvline(p99_us, color="0.25", lw=1.0, label=f"limit, {p99_us:g} µs")
    for _, part in rows.groupby("high"):
        ax.plot(part["x"], part["y"], color="0.75", lw=0.7, zorder=1)
    ax.errorbar(
        rows["x"],
        rows["y"],
        np.minimum(rows["y_half"], 0.9 * rows["y"]),
        np.minimum(rows["x_half"].where(held, 0.0), 0.9 * rows["x"]),
        fmt="none",
        ecolor="0.6",
        elinewidth=0.5,
        capsize=1.2,
        zorder=2,
    )
    scale = LogNorm(max(rows["gib"].min(), 0.01), max(rows["gib"].max(), 0.02))
    for i, (k, part) in enumerate(rows.groupby("k")):
        marker = SERIES[i % len(SERIES)][2]
        edges = np.where(grid["front"][part.index], 1.2, 0.3)  # the front stands out
        look = {"marker": marker, "edgecolors": "black", "linewidths": edges, "zorder": 3}
        points = ax.scatter(part["x"], part["y"], 26, part["gib"], cmap="cividis_r", norm=scale,
                            **look)  # fmt: skip
        ax.plot([], [], ls="none", marker=marker, mfc="white", mec="0.2", ms=5, label=f"k = {k:g}")
    bar = ax.figure.colorbar(points, ax=ax, pad=0.01, aspect=35)
    bar.ax.yaxis.set_major_formatter("{x:g}")
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.set_label("On the per-CPU lists [GiB]")
    bar.outline.set_visible(False)
    for mark, (colour, dash, _), size in (
        ("shipped", SERIES[1], 110),
        ("recommended", SERIES[0], 110),
    ):
        at = rows.loc[grid.index[grid[mark]]]
        if len(at):
            ring = {"facecolors": "none", "edgecolors": colour, "linestyles": [dash]}
            ax.scatter(at["x"], at["y"], s=size, linewidths=1.6, zorder=4, label=mark, **ring)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:,g}")
        axis.set_minor_formatter(NullFormatter())
    ax.margins(x=0.08, y=0.08)
    if not held.all():
        ax.axvline(none, color="0.85", lw=0.6, zorder=0)
        ax.annotate("no hold", (none, 0), (0, 3), xycoords=("data", "axes fraction"),
                    textcoords="offset points", ha="center", fontsize=6.5)  # fmt: skip
    ax.set_xlabel("99th percentile of a hold [µs]")
    ax.set_ylabel("Million pages/s")
    _name_settings(ax, rows, grid["front"])
    return ax


def _name_settings(ax: Axes, rows: pd.DataFrame, front: pd.Series) -> None:
    """Settings of the front as k / high, one name for those in one place; lines by their high."""

    def several(values: pd.Series) -> str:
        words = ["own" if np.isinf(v) else f"{v:,.0f}" for v in sorted(set(values))]
        return words[0] if len(words) == 1 else f"{words[0]} .. {words[-1]}"

    narrow = ax.figure.get_figwidth() < PAGE  # no room for all these names
    named = rows.loc[front.index[front]][: 0 if narrow else None]
    place = (100 * np.log(named[["x", "y"]])).round()
    parts = [part for _, part in named.groupby([place["x"], place["y"]], sort=False)]
    ends = rows.loc[rows.groupby("high", sort=False)["x"].idxmax()]
    names = [f"{several(part['k'])} / {several(part['high'])}" for part in parts]
    at = [*(part[["x", "y"]].mean() for part in parts)]
    for end in ends.itertuples():
        if not any(end.Index in part.index for part in parts):
            names.append("own high" if np.isinf(end.high) else f"high {end.high:,.0f}")
            at.append((end.x, end.y))
    beside(ax, np.asarray(at, float).reshape(-1, 2), names, rows[["x", "y"]].to_numpy())


def _tradeoff_latency(table: pd.DataFrame, p99_us: float) -> str:
    rows = table[table["asks"] == "as measured"]
    last = rows.iloc[-1]
    measured, stated = "none was measured", ""
    if _was_measured(rows):
        measured = (
            f"{last['measured_alloc_p99_us']:.0f} µs (refill) and "
            f"{last['measured_free_p99_us']:.0f} µs (drain) measured"
        )
        stated = (
            " Bars of the measured are what the table states."
            if rows["measured_alloc_p99_low_us"].notna().any()
            else " The table states no uncertainty."
        )
    return (
        f"99th percentile of a hold against the pages of one hold, with high = 2 x batch as tables "
        f"are measured, and simulated likewise: at {last['batch']:,.0f} pages {measured}, "
        f"{last['hold_p99_us']:.0f} ± {last['hold_p99_us_half_width']:.0f} µs simulated. With the "
        f"kernel's own high the pages are where a pilot finds them.{stated}"
    )


def _was_measured(rows: pd.DataFrame) -> bool:
    return bool(rows["measured_alloc_p99_us"].notna().any())


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
        if not _was_measured(rows):
            break
        colour, _, marker = SERIES[i]
        at, low, high = (rows[f"measured_{side}_p99_{end}us"] for end in ("", "low_", "high_"))
        ax.errorbar(
            rows["batch"],
            at,
            [at - low, high - at],
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

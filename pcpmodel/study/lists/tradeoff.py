"""What to set: batch scale and ``high`` against throughput, latency and memory."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtrit

from pcpmodel.errors import InputError
from pcpmodel.files import digest_of
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import BATCH_SCALE_MAX_RANGE, Release
from pcpmodel.simulation.host import Host
from pcpmodel.simulation.pilot import mean_line_ns
from pcpmodel.simulation.run import simulate
from pcpmodel.simulation.spec import MAX_CPUS, RunSpec, assumed_nodes, host_of, make_spec
from pcpmodel.study.answer import Answer
from pcpmodel.study.hold.limit import bounds_drains, limit, positive
from pcpmodel.study.sweep.grid import figures
from pcpmodel.study.sweep.run import sweep
from pcpmodel.words import decimals
from pcpmodel.workload import page_fault1

__all__ = ["tradeoff"]

#: What is as it was when the latency tables were measured: `tradeoff`.
_AS_MEASURED = {"release": "v6.6", "batch_scale_max": 0, "cpus": 2, "nodes": 1, "memory_gib": 64.0}

_GOODS = (("score_per_s", 1), ("hold_p99_us", -1), ("pages_in_pcp_mib", -1))


def _of_the_table(machine: Machine, seeds: Sequence[int], host: Host) -> pd.DataFrame:
    """The settings that the latency table was measured with, what was measured beside."""
    rows = _over_seeds(
        pd.DataFrame(_runs_of_the_table(machine, seeds)),
        ["setting", "batch", "batch_scale_max", "high_pages"],
        host,
    )
    rows["asks"] = "as measured"
    return rows.merge(_measured(machine), on="batch", how="left")


def _runs_of_the_table(machine: Machine, seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Runs with ``high`` = 2 x batch."""
    kib = machine.page_size_kib
    fault_ns = page_fault1(1, page_size_kib=kib).params["fault_ns"]
    for batch in machine.latency["batch"]:
        for seed in seeds:
            result = simulate(
                machine=machine,
                workload=page_fault1(1, fault_ns=fault_ns, page_size_kib=kib),
                warm=True,
                batch=int(batch),
                high_pages=2 * int(batch),
                seed=seed,
                **_AS_MEASURED,
            )
            yield {"setting": f"batch {batch}, high {2 * batch}", "batch": int(batch),
                   "batch_scale_max": 0, "high_pages": 2 * int(batch), "seed": seed,
                   **figures(result)}  # fmt: skip


def _over_seeds(runs: pd.DataFrame, keys: list[str], host: Host) -> pd.DataFrame:
    """Means over seeds, and what of them is noise: half of a 95 % interval.

    The larger of batch means within the runs, pooled, and of the scatter between them.
    """
    runs = runs.assign(
        hold_p99_us=runs["hold_p99_ns"] / 1e3,
        pages_in_pcp_mib=host.mib(runs["pages_in_pcp_mean"]),
    )
    grouped = runs.groupby(keys, sort=False, dropna=False)
    table = grouped.mean(numeric_only=True).drop(columns="seed")
    n = grouped.size()
    t = stdtrit(np.maximum(n - 1, 1), 0.975)
    for name in ("score_per_s", "lock_contention", "hold_p99_us", "pages_in_pcp_mib"):
        between = (t * grouped[name].std() / np.sqrt(n)).fillna(0.0)
        within = 0.0
        if f"{name}_half_width" in runs:
            within = grouped[f"{name}_half_width"].apply(lambda h: np.sqrt((h**2).mean())) / n**0.5
        table[f"{name}_half_width"] = np.maximum(between, within).where(table[name].notna())
    table["stands"] = grouped["stands"].min()
    return table.reset_index()


def _beaten(table: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Points that another beats: better by more than the noise in one good, worse in none."""
    better = []
    for name, sign in _GOODS:
        # No hold at all is the shortest.
        value, half = (table[c].fillna(0.0).to_numpy() for c in (name, f"{name}_half_width"))
        better.append(sign * (value[:, None] - value) > np.hypot(half[:, None], half))
    some, worse = np.any(better, axis=0), np.any([b.T for b in better], axis=0)
    return (some & ~worse).any(axis=0)


def tradeoff(
    machine: str | Machine = "sapphire-rapids",
    *,
    release: str | Release = "v6.7",
    processes: int | None = None,
    batch_scale_max: Sequence[int] = (0, 1, 2, 3, 4, 5, 6),
    high_pages: Sequence[int] = (252, 1000, 5000, 10_000, 20_000, 40_000, 70_000),
    p99_us: float = 100.0,
    seeds: Sequence[int] = (1, 2, 3),
    seconds: float = 2.0,
) -> Answer:
    """Throughput, latency and memory against batch scale and ``high``; what to recommend.

    Parameters
    ----------
    machine : str or Machine
        Whose hold times, CPUs and memory are used; 224 CPUs, two nodes and 512 GiB where its
        platform does not state them.
    release : str
        Kernel state.
    processes : int, optional
        Processes of page_fault1; by default one for each CPU.
    batch_scale_max : sequence of int
        CONFIG_PCP_BATCH_SCALE_MAX.  The release's own is added.
    high_pages : sequence of int
        Fixed ``high`` (percpu_pagelist_high_fraction) [pages].  The kernel's own, which tunes
        itself from v6.7 on, is added.
    p99_us : float
        Limit of the 99th percentile of one hold [us].
    seeds : sequence of int
        Of the simulations, two or more.
    seconds : float
        Simulated time of each run [s], after its warm-up.

    Returns
    -------
    Answer
        ``settings``: a row per setting, means over the seeds with ``*_half_width``, half of a 95 %
        interval.  ``asks``: "what to set?", or "as measured" for the settings of the machine's
        latency table (one process, ``high`` = 2 x batch, one batch per hold, warm pages), with
        ``measured_per_s``, ``measured_alloc_p99_us`` and ``measured_free_p99_us`` beside and, where
        the table states them, their ends ``*_low_us`` and ``*_high_us``; all NaN for a machine of
        which no hold was measured.  ``hold_p99_us`` and waits are NaN where
        no hold is taken.  ``shipped`` and ``recommended`` mark
        a row each; ``front`` marks those that no other beats by more than the noise in
        throughput, p99 of a hold or memory.  ``choice``: shipped and recommended side by side.

    Notes
    -----
    Recommended is, of the settings whose p99 stays under the limit and whose throughput the noise
    does not tell from the best of them, the shipped one if it is among them, else the one with
    the kernel's own ``high`` before a fixed one, the scale nearest to the shipped one first.

    Raises
    ------
    InputError
        For less than two seeds.
    """
    if len(seeds) < 2:
        raise InputError(f"seeds={list(seeds)!r}: give two or more, for what is noise")
    positive("p99_us", p99_us)
    hardware = machines.machine(machine)
    host = host_of(hardware, {})
    processes = min(host.cpus, MAX_CPUS) if processes is None else processes
    spec = make_spec(
        release=release,
        machine=hardware,
        workload=page_fault1(processes, page_size_kib=host.page_size_kib),
        seconds=seconds,
    )
    shipped = spec.release.batch_scale_max
    scales = sorted({*batch_scale_max, shipped})
    data = sweep(
        spec,
        batch_scale_max=scales,
        high_pages=[None, *high_pages],
        seed=list(seeds),
        progress=False,
    )
    grid = _marked(
        _over_seeds(data.to_dataframe().reset_index(), ["batch_scale_max", "high_pages"], host),
        spec,
    )
    equal = _as_fast(_under(grid, p99_us))
    if len(equal):
        grid.loc[_least_change(equal, shipped), "recommended"] = True
    seed_rows = _of_the_table(hardware, seeds, host)
    table = pd.concat([grid, seed_rows], ignore_index=True)
    for mark in ("shipped", "recommended", "front"):
        table[mark] = table[mark].eq(True)
    said = dict(_what_to_set(grid, spec, scales, high_pages, p99_us)) | {
        "runs": f"- Runs: {runs_on(spec)}."
        + f" A scale changes nothing: {spec.release} has no batch scale factor."
        * (not spec.release.uses_batch_scale_max),
        "front": f"- {int(grid['front'].sum())} of {len(grid)} settings are on the front: no "
        "other beats "
        "them by more than the noise in throughput, p99 of a hold or memory.",
        "as measured": _as_measured(seed_rows),
        "cold pages": f"- The p99 of these runs has {mean_line_ns(spec):.1f} ns a page in it for "
        f"lines that are not at hand, counted in a pilot{_beside(spec)}; the measured tables are "
        "of warm pages." + _by_table(hardware, spec.release, p99_us),
    }
    unsettled = table[table["stands"] == 0]
    if len(unsettled):
        said["rates"] = (
            f"- Rates that never became steady: {', '.join(unsettled['setting'])}; their figures "
            "are of runs that still change."
        )
    return Answer(
        {"settings": table, "choice": table[table["shipped"] | table["recommended"]]},
        said,
        digest=digest_of(data.attrs, table.to_dict("list"), hardware.digest),
        shown=("choice",),
    )


def _what_to_set(
    grid: pd.DataFrame,
    spec: RunSpec,
    scales: Sequence[int],
    high_pages: Sequence[int],
    p99_us: float,
) -> Iterator[tuple[str, str]]:
    """What is recommended, beside what is shipped and what is as fast or faster."""
    now, under = grid[grid["shipped"]].iloc[0], _under(grid, p99_us)
    shipped = f"- As shipped ({now['setting']}): {_said(now)}."
    if not len(under):
        yield "recommended", f"- No setting of the grid stays under {p99_us:g} us."
        yield "shipped", shipped
    else:
        pick, equal = grid[grid["recommended"]].iloc[0], _as_fast(under)
        yield (
            "recommended",
            f"- Recommended under {p99_us:g} us (p99 of a hold): "
            f"{_recommendation(pick, now)}{_near(pick, p99_us)}",
        )
        yield "shipped", shipped
        yield (
            "as fast",
            f"- {len(equal)} of the {len(under)} settings under the limit are as fast as the best "
            f"of them, as far as the noise tells: {_by_high(equal)}. "
            + _inside(pick, equal, scales if spec.release.uses_batch_scale_max else (), high_pages),
        )
    yield "faster", f"- {_faster(grid, now)}"
    yield from _fixed(grid[grid["high_pages"].notna()], spec.workload.params["pages"])


def _under(settings: pd.DataFrame, p99_us: float) -> pd.DataFrame:
    """Those whose p99 stays under the limit; so does that of no hold."""
    return settings[~(settings["hold_p99_us"] > p99_us)]


def runs_on(spec: RunSpec) -> str:
    """What runs on which machine, and what of that its platform does not state."""
    assumed = ", ".join(assumed_nodes(spec.machine.platform, spec.host))
    return (
        f"{spec.workload.name} on {len(spec.workload.tasks)} of {spec.host}"
        + f"; assumed: {assumed}" * bool(assumed)
    )


def _beside(spec: RunSpec) -> str:
    """What else makes the runs' holds longer than the table's: threads of one core."""
    threads = spec.host.threads_per_core
    if threads == 1 or len(spec.workload.tasks) * threads <= spec.host.cpus:
        return ""
    pace = spec.machine.sheet.value("smt_share", "core")
    return f", and a hold beside a thread at work on its core takes {1 / pace:.2g} times as long"


def _marked(grid: pd.DataFrame, spec: RunSpec) -> pd.DataFrame:
    """The settings that were asked for, with their names and marks; none is recommended yet."""
    own = grid["high_pages"].isna()
    names = [
        f"scale {scale}, {'own high' if auto else f'high {high:.0f}'}"
        for scale, high, auto in zip(grid["batch_scale_max"], grid["high_pages"], own, strict=True)
    ]
    return grid.assign(
        setting=names,
        asks="what to set?",
        batch_pages=spec.host.sizes(spec.release)[0].batch,
        shipped=own & (grid["batch_scale_max"] == spec.release.batch_scale_max),
        front=~_beaten(grid),
        recommended=False,
    )


def _as_fast(settings: pd.DataFrame) -> pd.DataFrame:
    """Those whose throughput the noise does not tell from the best of them."""
    if not len(settings):
        return settings
    best = settings.loc[settings["score_per_s"].idxmax()]
    noise = np.hypot(settings["score_per_s_half_width"], best["score_per_s_half_width"])
    return settings[best["score_per_s"] - settings["score_per_s"] <= noise]


def _least_change(settings: pd.DataFrame, shipped: int) -> Any:
    """Index of the setting that changes the least of what is shipped."""
    order = pd.DataFrame(
        {
            "fixed": settings["high_pages"].notna(),
            "far": (settings["batch_scale_max"] - shipped).abs(),
            "mib": settings["pages_in_pcp_mib"],
        }
    )
    return order.sort_values(["fixed", "far", "mib"]).index[0]


def _recommendation(pick: pd.Series, now: pd.Series) -> str:
    """What is recommended, against what is shipped."""
    if pick["shipped"]:
        return f"{pick['setting']}, as shipped."
    change = 100 * (pick["score_per_s"] / now["score_per_s"] - 1)
    noise = 100 * float(
        np.hypot(pick["score_per_s_half_width"], now["score_per_s_half_width"]) / now["score_per_s"]
    )
    told = "inside the noise, which is" if abs(change) <= noise else "±"
    said = (
        f"{pick['setting']}: {_said(pick)}; throughput against the shipped one {change:+.2f} %, "
        f"{told} {noise:.2f} %."
    )
    if pick["front"]:
        return said
    return (
        f"{said} It is the least change from what is shipped, not on the front: settings "
        "that hold the lock for less time are as fast here."
    )


def _near(pick: pd.Series, p99_us: float) -> str:
    """What the seeds leave open of a recommendation's being under the limit."""
    if not pick["hold_p99_us"] + pick["hold_p99_us_half_width"] > p99_us:
        return ""
    return f" The limit of {p99_us:g} us lies inside that interval: other seeds may pass it."


def _by_high(settings: pd.DataFrame) -> str:
    """Which settings, in words."""
    return "; ".join(
        f"{'own high' if np.isnan(high) else f'high {high:.0f}'} at scale "
        + ", ".join(f"{scale:.0f}" for scale in part["batch_scale_max"])
        for high, part in settings.groupby("high_pages", dropna=False)
    )


def _faster(grid: pd.DataFrame, now: pd.Series) -> str:
    gain = grid["score_per_s"] - now["score_per_s"]
    noise = np.hypot(grid["score_per_s_half_width"], now["score_per_s_half_width"])
    return (
        "Faster than the shipped setting by more than the noise: "
        + (", ".join(grid["setting"][gain > noise]) or "none")
        + f" of {len(grid) - 1}; slower: {int((-gain > noise).sum())}."
    )


def _by_table(machine: Machine, state: Release, p99_us: float) -> str:
    """What the holds alone answer; nothing for a release whose drains no scale bounds."""
    if not bounds_drains(state):
        return ""
    answer = limit(machine, p99_us=p99_us, release=state)["answers"].iloc[0]
    alone = "table alone" if machine.derived is None else "machine's holds alone, not measured,"
    if pd.isna(answer["batch_scale"]):
        return f" By the {alone} no scale stays under {p99_us:g} us."
    return (
        f" By the {alone} scale {answer['batch_scale']} stays under {p99_us:g} us, with "
        f"probability {answer['probability']:.2f} (notebook 02)."
    )


def _said(row: pd.Series) -> str:
    return (
        f"{_millions(row)} ± {row['score_per_s_half_width'] / 1e6:.{_digits(row)}f} million "
        f"pages/s, contention {100 * row['lock_contention']:.2f} ± "
        f"{100 * row['lock_contention_half_width']:.2f} %, {_p99(row)}, "
        f"{row['pages_in_pcp_mib']:,.0f} ± {row['pages_in_pcp_mib_half_width']:,.0f} MiB "
        "on the lists"
    )


def _digits(row: pd.Series) -> int:
    return max(decimals(row["score_per_s"] / 1e6), 1)


def _millions(row: pd.Series) -> str:
    return f"{row['score_per_s'] / 1e6:.{_digits(row)}f}"


def _p99(row: pd.Series) -> str:
    """The p99 of a hold; that of none is no number."""
    if np.isnan(row["hold_p99_us"]):
        return "no hold is taken"
    return f"p99 {row['hold_p99_us']:.1f} ± {row['hold_p99_us_half_width']:.1f} us"


def _inside(
    pick: pd.Series, equal: pd.DataFrame, scales: Sequence[int], high_pages: Sequence[int]
) -> str:
    """Whether the grid holds the answer, or may go on getting better beyond its edge.

    A scale has no other beyond the ends of what CONFIG_PCP_BATCH_SCALE_MAX may be.  *scales*: none
    where the kernel does not look at it.
    """
    least, most = BATCH_SCALE_MAX_RANGE
    scale, high = pick["batch_scale_max"], pick["high_pages"]
    edges = []
    if scales and (scale == scales[0] > least or scale == scales[-1] < most):
        edges.append(f"scale {scale:.0f}")
    if not np.isnan(high):
        # One shorter than the shortest may be as fast, and one longer than the longest faster.
        at = {high} & {min(high_pages)} | {equal["high_pages"].max()} & {max(high_pages)}
        edges += [f"high {pages:.0f}" for pages in sorted(at)]
    if edges:
        return f"The answer is at the edge of the grid ({', '.join(edges)}): it may lie beyond."
    return "The answer lies inside the grid" + (
        f"; no scale may be {'less' if scale == least else 'more'} than {scale:.0f}."
        if scales and scale in (least, most)
        else "."
    )


def _fixed(fixed: pd.DataFrame, mapped: int) -> Iterator[tuple[str, str]]:
    """What a fixed ``high`` does to throughput; *mapped*: pages of a mapping."""
    if len(fixed) < 2:
        return
    fast = fixed.loc[fixed["score_per_s"].idxmax()]
    slow = fixed.loc[fixed["score_per_s"].idxmin()]
    said = (
        f"from {_millions(slow)} ({slow['setting']}) to "
        f"{_millions(fast)} million pages/s ({fast['setting']})"
    )
    noise = np.hypot(fast["score_per_s_half_width"], slow["score_per_s_half_width"])
    if fast["score_per_s"] - slow["score_per_s"] <= noise:
        said = f"With a fixed high throughput goes {said}, inside the noise."
    elif fast["high_pages"] <= slow["high_pages"]:
        said = f"With a fixed high throughput goes {said}."
    else:
        said = (
            f"A fixed high has to be long enough: {said}; a mapping has {mapped:,} pages, and "
            "lists that take it up never touch the lock again."
        )
    yield "fixed high", f"- {said}"


def _measured(machine: Machine) -> pd.DataFrame:
    """What was measured of each batch; of a machine whose table was made nothing."""
    table, interval = machine.latency, machine.latency_interval
    found = pd.DataFrame(
        {"batch": table["batch"], "measured_per_s": table["throughput_pages_per_s"]}
    )
    for side in ("free", "alloc"):
        found[f"measured_{side}_p99_us"] = table[f"{side}_latency_p99_us"]
        for end in ("low", "high"):
            stated = np.nan if interval is None else interval[f"{side}_latency_p99_{end}_us"]
            found[f"measured_{side}_p99_{end}_us"] = stated
    if machine.derived is not None:
        found.loc[:, found.columns != "batch"] = np.nan
    return found


def _as_measured(rows: pd.DataFrame) -> str:
    """What the settings of the latency table gain, simulated and, if it was, measured."""
    first, last = rows.iloc[0], rows.iloc[-1]
    said = (
        f"- As tables are measured (one process, high = 2 x batch, warm pages), from "
        f"{first['setting']} to {last['setting']}: throughput "
        f"{100 * (last['score_per_s'] / first['score_per_s'] - 1):+.1f} % simulated"
    )
    if np.isfinite(gain := 100 * (last["measured_per_s"] / first["measured_per_s"] - 1)):
        said += f", {gain:+.1f} % measured"
    said += f"; p99 of a hold {last['hold_p99_us']:.1f} us simulated, "
    refill, drain = last["measured_alloc_p99_us"], last["measured_free_p99_us"]
    if np.isfinite(refill):
        said += f"{refill:.1f} (refill) and {drain:.1f} us (drain) measured"
    else:
        said += "none measured"
    return (
        f"{said}. These rows say what a long hold costs, not what to set: there one batch is one "
        "hold, and nobody waits."
    )

"""Where mapping late gains, where it does not, and what its review said of that."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.errors import InputError
from pcpmodel.numa.others import regroup
from pcpmodel.numa.pairs import AFTER, BEFORE, PATCH, Comparison, as_published, pair_of
from pcpmodel.numa.parameters import Experiment, experiment
from pcpmodel.study.answer import Answer

if TYPE_CHECKING:
    import xarray

__all__ = ["gain_map", "objections", "situations", "verdict"]


def gain_map(
    given: Experiment | None = None,
    *,
    threads: Sequence[int] = (1, 2, 4, 8, 16),
    scales: Sequence[float] = (1e-2, 1e-3, 1e-4),
    **changes: Any,
) -> xarray.Dataset:
    """Gain of v5.13 over v5.12 by threads per process and by how hot the pages are.

    Fewer pages under the same threads are touched more often, so that more
    threads meet in the time between a fault and its migration.  The total number of
    threads stays as it is (fewer processes when they have more threads).

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    threads : sequence of int
        Threads per process; must divide their total number.
    scales : sequence of float
        Sizes of the memory as shares of the full one: fewer pages, hotter pages.
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    xarray.Dataset
        Dimensions ``threads`` and ``scale``; ``gain_percent``, ``met`` (accesses by
        other threads between fault and migration, per migrated page, v5.12),
        ``interrupts_before`` and ``interrupts_after`` per migrated page,
        ``waits`` and ``refused`` per migrated page (v5.13).
    """
    import xarray

    given = (given or experiment()).with_(**changes)
    total = given.processes * given.threads
    shape = (len(threads), len(scales))
    names = ("gain_percent", "met", "interrupts_before", "interrupts_after", "waits", "refused")
    values = {name: np.full(shape, np.nan) for name in names}
    for i, n in enumerate(threads):
        group = regroup(given, n)
        for j, scale in enumerate(scales):
            pair = pair_of(group.with_(scale=scale))
            one, two = pair.before.counts, pair.after.counts
            moved = max(1, one["migrated_pages"]), max(1, two["migrated_pages"])
            values["gain_percent"][i, j] = pair.gain_percent
            values["met"][i, j] = one["window_hits"] / moved[0]
            values["interrupts_before"][i, j] = one["unmap_interrupts"] / moved[0]
            values["interrupts_after"][i, j] = two["unmap_interrupts"] / moved[1]
            values["waits"][i, j] = two["waits"] / moved[1]
            values["refused"][i, j] = two["refused"] / moved[1]
    units = {"gain_percent": "%"}
    return xarray.Dataset(
        {
            name: (("threads", "scale"), value, {"units": units.get(name, "per migrated page")})
            for name, value in values.items()
        },
        coords={
            "threads": list(threads),
            "scale": list(scales),
            "pages_per_thread": (
                "scale",
                [given.with_(scale=x).pages * given.processes / total for x in scales],
            ),
        },
        attrs={"before": BEFORE, "after": AFTER, "seed": given.seed},
    )


#: Situations of `situations`: what differs from the published experiment.
SITUATIONS: Mapping[str, Mapping[str, Any]] = {
    "as published": {},
    "1 thread per process": {"threads": 1},
    "2 threads per process": {"threads": 2},
    "4 threads per process": {"threads": 4},
    "16 threads per process": {"threads": 16},
    "32 threads per process": {"threads": 32},
    "half of the pages refused": {"refused_share": 0.5},
    "all pages refused": {"refused_share": 1.0},
    "all refused, lock taken again 10x slower": {"refused_share": 1.0, "relock_ns": 1000},
    "half given up after the unmap": {"unmap_failed_share": 0.5},
    "all given up after the unmap": {"unmap_failed_share": 1.0},
    "scans 60x rarer": {"scan_period_min_ms": 60000},
    "scanner 3x slower": {"scan_pte_ns": 87},
    "pages 100x hotter": {"hotter": 100},
    "pages 100x hotter, 32 threads per process": {"hotter": 100, "threads": 32},
    "flush without interrupts": {"flush_base_ns": 0, "flush_target_ns": 0, "ipi_ns": 0},
    "flush without interrupts, pages 100x hotter, 32 threads, slow isolation": {
        "flush_base_ns": 0, "flush_target_ns": 0, "ipi_ns": 0, "hotter": 100, "threads": 32,
        "isolate_ns": 20000,
    },
}  # fmt: skip


def _with_error(rows: pd.DataFrame, which: str) -> str:
    row = rows.loc[getattr(rows["gain_percent"], which)()]
    return f"{row['gain_percent']:+.2f} ± {2 * row['gain_error']:.2f} % ({row.name})"


def _said(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """The findings in sentences (Markdown)."""
    gains, neutral, losses = (table[table["verdict"] == v] for v in ("gain", "neutral", "loss"))
    most = least = ""
    if len(gains):
        most = f", by {_with_error(gains, 'idxmin')} to {_with_error(gains, 'idxmax')}"
    if len(losses):
        least = f", at most {_with_error(losses, 'idxmin')}"
    yield (
        "count",
        f"* Mapping late gains in {len(gains)} of {len(table)} situations{most}; it makes no "
        f"difference in {len(neutral)} and loses in {len(losses)}{least}.",
    )
    for name, words in (
        ("gain", "It gains"),
        ("neutral", "It makes no difference"),
        ("loss", "It loses: threads stall that did not before, or a lock is taken twice"),
    ):
        rows = table[table["verdict"] == name]
        if len(rows):
            cases = "; ".join(
                f"{row.Index} ({row.gain_percent:+.2f} ± {2 * row.gain_error:.2f} %)"
                for row in rows.itertuples()
            )
            yield name, f"* **{words}**: {cases}."


def objections(compared: Comparison, cases: Answer, first: Answer) -> Answer:
    """What was said of the patch in its review, each beside what the model has.

    Parameters
    ----------
    compared : Comparison
        The published experiment.
    cases : Answer
        As `situations` answers.
    first : Answer
        As `first_version` answers.

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    rows, pair = cases.table, compared.pair
    gains, losses = (rows[rows["verdict"] == v] for v in ("gain", "loss"))
    neutral = rows[rows["verdict"] == "neutral"]
    few = gains[gains["met"] <= 0.002]
    published = compared["rows"].set_index("quantity")["measured"]
    measured = float(published["throughput_gain"])
    by_met, by_cpus = (
        gains["gain_percent"].corr(gains[c], method="spearman")
        for c in ("met", "interrupts_before")
    )
    low, high = few["gain_percent"].min(), few["gain_percent"].max()
    above = gains[gains["gain_percent"] > 5.0]
    more = gains[gains["gain_percent"] > pair.gain_percent + 0.5]
    worst = losses["gain_percent"].idxmin() if len(losses) else ""
    left = pair.after.counts
    by_scan = 100 * left["pending_flushes"] / max(1, left["unmap_flushes"])
    met = rows["met"].get("as published", rows["met"].iloc[0])
    alone = rows.loc["1 thread per process"] if "1 thread per process" in rows.index else None
    said = {
        "parallel threads": "* *Gorman: it gains where accesses occur in parallel threads "
        "between when a page is marked accessible and when it is migrated.* "
        + (
            f"Not needed: {len(few)} of the {len(gains)} situations that gain do so by "
            f"{low:.1f} to {high:.1f} % with at most {few['met'].max():.4f} such accesses per page."
            if len(few)
            else "No situation gains without them."
        )
        + " Rank correlation of the gain with "
        f"the interrupts per page, which are the CPUs to interrupt, {by_cpus:+.2f}; with the "
        f"threads that meet {by_met:+.2f}.",
        "neutral": "* *Gorman: neutral for other workloads.* "
        + "; ".join(f"{r.Index} {r.gain_percent:+.2f} %" for r in neutral.itertuples())
        + ".",
        "size of gains": "* *Gorman: gains are small, 1-5 %, and the changelog's load a best "
        "case.* "
        f"{len(above)} of {len(gains)} gains are above 5 %"
        + (
            f", and {len(more)} are more than the changelog's load has in the model "
            f"({pair.gain_percent:.1f} %): "
            + "; ".join(f"{r.Index} {r.gain_percent:+.1f} %" for r in more.itertuples())
            + f". The changelog's load gains {measured:.1f} % measured and "
            f"{pair.gain_percent:.1f} % in the model, whose gains are rather too "
            f"{'large' if pair.gain_percent > measured else 'small'}."
            if as_published(pair.before.release, pair.after.release)
            else f". What the changelog's load gains {pair.before.release} and "
            f"{pair.after.release} do not tell."
        ),
        "stalls": "* *Gorman: some workloads may stall slightly longer.* "
        + (
            f"{len(losses)} situations lose, {losses['gain_percent'].min():.2f} % at most "
            f"({worst})."
            if len(losses)
            else "None here."
        ),
        "version 1": "* *Gorman: version 1 did not reduce interrupts as advertised.* The model "
        "has one rule for "
        f"both versions and cannot tell them apart; {first.text} With one thread per process "
        "there are no interrupts to save, which is one way not to see a reduction.",
        "rare": "* *Huang: that two threads access one page at the same time is rare.* "
        f"{met:.4f} "
        f"accesses per migrated page as published; {rows['met'].max():.2f} where everything is "
        f"made for it ({rows['met'].idxmax()}).",
        "surprise": "* *What would surprise us.* Are the shootdowns that remain caused by "
        f"threads that meet? {'No' if by_scan > 50 else 'Yes'}: {100 - by_scan:.0f} % are, "
        f"{by_scan:.0f} % come from scans under way. {_much_more(compared)} In the model "
        f"{pair.before.interrupted_percent:.1f} % of the old kernel's time goes into answering "
        "interrupts."
        + (
            ""
            if alone is None
            else " Does a process with one thread gain anything? "
            f"{'Yes' if alone['verdict'] == 'gain' else 'No'}: {alone['gain_percent']:+.2f} %."
        ),
    }
    return Answer({}, said)


def _much_more(compared: Comparison) -> str:
    """Whether the gain is over 1.2 times the time saved, as measured and in the model."""
    pair, said, answers = compared.pair, [], []
    rows = compared["rows"].set_index(["quantity", "kernel"])
    for how, column in (("measured", "measured"), ("in the model", "predicted")):
        gain = rows.xs("throughput_gain")[column].iloc[0]
        below = rows.xs("try_to_unmap_percent")[column]
        saved = below[pair.before.release] - below[pair.after.release]
        if math.isfinite(gain) and math.isfinite(saved):
            answers.append(bool(gain > 1.2 * saved))
            yes = "yes" if answers[-1] else "no"
            said.append(f"{how} {yes}, {gain:.1f} % against {saved:.2f} points")
    text = "; ".join(said)
    return (
        "Is the gain of throughput much more (1.2 times) than the CPU time saved below "
        f"`try_to_unmap()`? {text[:1].upper()}{text[1:]}"
        + "; the two disagree" * (len(set(answers)) > 1)
        + "."
    )


def situations(
    given: Experiment | None = None,
    *,
    cases: Mapping[str, Mapping[str, Any]] = SITUATIONS,
    seeds: int = 3,
    **changes: Any,
) -> Answer:
    """Gain of v5.13 over v5.12 where the patch helps, does nothing, or stalls.

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    cases : mapping
        Name to parameters that differ.  ``threads`` regroups the same threads; ``hotter``
        divides the scale, so that the same threads meet on fewer pages.
    seeds : int
        Pairs of runs per case, at least 2; the error comes from their spread.
    **changes
        Parameters for all cases.

    Returns
    -------
    Answer
        ``situations``, index ``situation``: ``gain_percent`` with its standard error
        ``gain_error``, ``verdict`` (``gain``, ``loss``, or ``neutral``: within two errors
        or 0.1 %); per unmapped page: ``interrupts_before``, ``interrupts_after``, ``met``
        (accesses of other threads between fault and unmap that went through in v5.12),
        ``waits`` (sleeps of other threads, v5.13); ``failed_percent`` of the migrations
        tried (v5.13), those tried while the node was still full included.

    Raises
    ------
    InputError
        If a name or a value is not allowed.
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 2:
        raise InputError(f"seeds={seeds!r} is not a whole number of at least 2")
    given = (given or experiment()).with_(**changes)
    rows = []
    for name, case in cases.items():
        case = dict(case)
        mine = given.with_(scale=given.scale / case.pop("hotter", 1))
        if "threads" in case:
            mine = regroup(mine, case.pop("threads"))
        mine = mine.with_(**case)
        pairs = [pair_of(mine.with_(seed=given.seed + i)) for i in range(seeds)]
        gains = np.array([pair.gain_percent for pair in pairs])
        keys = ("unmaps", "unmap_interrupts", "window_hits", "waits", "refused", "unmap_failed")
        one, two = (
            {key: sum(getattr(pair, side).counts[key] for pair in pairs) for key in keys}
            for side in ("before", "after")
        )
        unmaps = max(1, one["unmaps"]), max(1, two["unmaps"])
        failed = two["refused"] + two["unmap_failed"]
        error = gains.std(ddof=1) / math.sqrt(seeds)
        rows.append(
            {
                "situation": name,
                "gain_percent": gains.mean(),
                "gain_error": error,
                "verdict": verdict(gains.mean(), error),
                "interrupts_before": one["unmap_interrupts"] / unmaps[0],
                "interrupts_after": two["unmap_interrupts"] / unmaps[1],
                "met": one["window_hits"] / unmaps[0],
                "waits": two["waits"] / unmaps[1],
                "failed_percent": 100 * failed / max(1, two["unmaps"] + two["refused"]),
            }
        )
    table = pd.DataFrame(rows).set_index("situation")
    return Answer({"situations": table}, dict(_said(table)), digest=load_published(PATCH).digest)


def verdict(gain_percent: float, error_percent: float = 0.0) -> str:
    """Name a gain: ``gain``, ``loss``, or ``neutral`` within two errors or 0.1 %."""
    if abs(gain_percent) <= max(0.1, 2 * error_percent):
        return "neutral"
    return "gain" if gain_percent > 0 else "loss"

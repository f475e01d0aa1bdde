"""Runs of the experiment, side by side, against what was published.

Which figures were fitted is decided here, once (`FITTED`): three of the
figures of v5.12 fix the three numbers that the publication does not give (CPUs
of the node, length of the run, cost of a shootdown).  Everything said of
v5.13, of the first version of the patch and of migrate_pages() is predicted.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import special

from pcpmodel.data_package import load_published
from pcpmodel.errors import InputError
from pcpmodel.numa.engine import Engine
from pcpmodel.numa.machine import Machine
from pcpmodel.numa.nodes import nodes
from pcpmodel.numa.parameters import RELEASES, Experiment, experiment

if TYPE_CHECKING:
    import xarray

__all__ = [
    "Comparison",
    "FirstVersion",
    "MigratePages",
    "Run",
    "Situations",
    "compare",
    "first_version",
    "fit",
    "gain_map",
    "migrate_pages",
    "parameter_table",
    "regroup",
    "run",
    "situations",
    "weights",
]

BEFORE, AFTER = "v5.12", "v5.13"
PATCH = "numa-delay-mapping-v2"
PATCH_V1 = "numa-delay-mapping-v1"
BATCHED = "migrate-pages-batch-v3"
#: Quantity of the first kernel that a parameter was fitted to.
FITTED = {
    "migrated_pages": "seconds",
    "shootdown_interrupts": "cpus",
    "try_to_unmap_percent": "flush_base_ns",
}


def parameter_table() -> pd.DataFrame:
    """Every parameter with its default, unit, range and origin.

    Returns
    -------
    pandas.DataFrame
        Index: the parameters; ``type``, ``default``, ``unit``, ``origin``, ``low``, ``high``.
    """
    return pd.DataFrame(Experiment.describe()).set_index("name")


def weights(pattern: str, pages: int) -> np.ndarray:
    """Probability of each page of a process in one access.

    Parameters
    ----------
    pattern : {"normal", "uniform"}
        ``normal``: mean in the middle, standard deviation ``pages / 12``, cut at
        six of them (pmbench's ``normal_ih``).
    pages : int
        Pages of the process.

    Returns
    -------
    (pages,) ndarray of float64
        Sum 1.
    """
    if pattern == "uniform":
        return np.full(pages, 1 / pages)
    weight = np.diff(special.ndtr(np.linspace(-6, 6, pages + 1)))
    return weight / weight.sum()


@dataclass(frozen=True, eq=False)
class Run:
    """One kernel, one run.

    Attributes
    ----------
    release : str
    experiment : Experiment
    counts : dict
        Every counter of the engine, as counted at the experiment's scale.
    series : pandas.DataFrame
        Index ``time_s``; ``accesses_per_second``, ``remote_percent`` (of the
        accesses), ``migrated_pages`` and ``shootdown_interrupts`` so far.
    """

    release: str
    experiment: Experiment
    counts: dict[str, Any]
    series: pd.DataFrame

    @property
    def migrated_pages(self) -> float:
        """Pages migrated; divided by the scale."""
        return self.counts["migrated_pages"] / self.experiment.scale

    @property
    def shootdown_interrupts(self) -> float:
        """IPIs of unmaps, divided by the scale, and of scans (as many ranges at any scale)."""
        c = self.counts
        return c["unmap_interrupts"] / self.experiment.scale + c["scan_interrupts"]

    @property
    def accesses_per_second(self) -> float:
        """Page accesses of all threads per second, mean of the run."""
        return self.counts["accesses"] / self.experiment.end_s

    @property
    def try_to_unmap_percent(self) -> float:
        """Share of the busy CPU time spent in try_to_unmap(), flushes included [%]."""
        return 100 * self.counts["unmap_ns"] / self.counts["busy_ns"]

    @property
    def interrupted_percent(self) -> float:
        """Share of the busy CPU time spent answering shootdowns [%]."""
        return 100 * self.counts["interrupt_ns"] / self.counts["busy_ns"]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, the four published ones first."""
        return {
            "release": self.release,
            "migrated_pages": self.migrated_pages,
            "shootdown_interrupts": self.shootdown_interrupts,
            "accesses_per_second": self.accesses_per_second,
            "try_to_unmap_percent": self.try_to_unmap_percent,
            "interrupted_percent": self.interrupted_percent,
            "counts": self.counts,
        }


def run(release: str, given: Experiment | None = None, **changes: Any) -> Run:
    """Run the experiment once.

    Parameters
    ----------
    release : str
        One of `RELEASES`: who maps when.
    given : Experiment, optional
        Default: the published one.
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    Run
        Counters, and series over time.

    Raises
    ------
    InputError
        If a name or a value is not allowed.
    """
    given = (given or experiment()).with_(**changes)
    config = given.config(release)
    try:
        engine = Engine(config, weights(given.pattern, given.pages), nodes(config))
    except ValueError as error:
        raise InputError(f"scale={given.scale:g}: {error}; too few pages are left") from None
    counts = engine.run()
    rows = np.array(counts.pop("series")).reshape(-1, 5)
    step = config["sample_ns"] / 1e9
    time = step * np.arange(1, len(rows) + 1)
    series = pd.DataFrame(
        {
            "accesses_per_second": np.diff(rows[:, 0], prepend=0) / step,
            "remote_percent": 100 * rows[:, 1],
            "migrated_pages": rows[:, 2] / given.scale,
            "shootdown_interrupts": rows[:, 3] / given.scale + rows[:, 4],
        },
        index=pd.Index(time / given.scale, name="time_s"),
    )
    return Run(release, given, counts, series)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The same work before and after.

    Attributes
    ----------
    before, after : Run
    digest : str
        Of the published tables.
    """

    before: Run
    after: Run
    digest: str

    @property
    def gain_percent(self) -> float:
        """Throughput of ``after`` over ``before`` [%]."""
        return 100 * (self.after.accesses_per_second / self.before.accesses_per_second - 1)

    @property
    def interrupts_change_percent(self) -> float:
        """Change of the shootdown interrupts [%]; NaN if there were none."""
        if not self.before.shootdown_interrupts:
            return math.nan
        return 100 * (self.after.shootdown_interrupts / self.before.shootdown_interrupts - 1)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Published figure, figure of the model, and whether the model was fitted to it.

        Columns ``source``, ``quantity``, ``kernel``, ``unit``, ``measured``,
        ``predicted`` (of the model, fitted or not), ``ratio``, ``fitted``.
        """
        before, after = self.before, self.after
        figures = load_published(PATCH).tables["figures"].set_index("quantity")
        rows = []

        def add(quantity: str, kernel: Run, unit: str, measured: float, model: float) -> None:
            fitted = self.published and kernel.release == BEFORE and quantity in FITTED
            rows.append(
                (PATCH, quantity, kernel.release, unit, measured, model, model / measured, fitted)
            )

        names = {
            "migrated_pages": ("pages migrated, about", "pages"),
            "shootdown_interrupts": ("TLB shootdown interrupts, about", "interrupts"),
            "try_to_unmap_percent": ("try_to_unmap() and its callees", "% of cycles"),
        }
        for quantity, (published, unit) in names.items():
            row = figures.loc[published]
            # One figure of migrated pages for both kernels.
            first = row["after"] if quantity == "migrated_pages" else row["before"]
            add(quantity, before, unit, first, getattr(before, quantity))
            add(quantity, after, unit, row["after"], getattr(after, quantity))
        interrupts = figures.loc[names["shootdown_interrupts"][0], "change_pct"]
        add("shootdown_interrupts_change", after, "%", interrupts, self.interrupts_change_percent)
        gain = figures.loc["throughput", "change_pct"]
        add("throughput_gain", after, "%", gain, self.gain_percent)
        columns = [
            "source", "quantity", "kernel", "unit", "measured", "predicted", "ratio", "fitted",
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    @property
    def series(self) -> pd.DataFrame:
        """Both time series below each other, with the column ``release``."""
        both = [r.series.reset_index().assign(release=r.release) for r in (self.before, self.after)]
        return pd.concat(both, ignore_index=True)

    @property
    def interrupts(self) -> pd.DataFrame:
        """The rows of the published totals of interrupts."""
        return self.rows[self.rows["quantity"] == "shootdown_interrupts"]

    def as_dict(self) -> dict[str, Any]:
        """Return what ``pcpmodel numa --json`` prints."""
        return {
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "throughput_gain_percent": self.gain_percent,
            "shootdown_interrupts_change_percent": (
                None
                if math.isnan(self.interrupts_change_percent)
                else self.interrupts_change_percent
            ),
            "fitted": [
                {
                    "figure": f"before.{row.quantity}",
                    "parameter": FITTED[row.quantity],
                    "value": getattr(self.before.experiment, FITTED[row.quantity]),
                }
                for row in self.rows.itertuples()
                if row.fitted
            ],
            "published": self.rows.to_dict("records") if self.published else [],
            "parameters": self.before.experiment.as_dict(),
        }

    @property
    def published(self) -> bool:
        """Is this the published experiment, up to its scale and seed?"""
        mine = self.before.experiment
        return mine == Experiment(scale=mine.scale, seed=mine.seed)

    def table(self) -> str:
        """Text for a terminal."""
        fitted = set(self.rows.loc[self.rows["fitted"], "quantity"])
        lines = [f"{'':28}{self.before.release:>14}{self.after.release:>14}"]
        for name in (
            "migrated_pages", "shootdown_interrupts", "accesses_per_second",
            "try_to_unmap_percent", "interrupted_percent",
        ):  # fmt: skip
            one, two = getattr(self.before, name), getattr(self.after, name)
            mark = "   (before: fitted)" if name in fitted else ""
            lines.append(f"{name:28}{one:14.5g}{two:14.5g}{mark}")
        lines.append(f"{'throughput gain [%]':28}{'':14}{self.gain_percent:14.3g}")
        return "\n".join(lines)

    def summary(self) -> str:
        """The findings in sentences (Markdown)."""
        words = {
            "migrated_pages": "Pages migrated",
            "shootdown_interrupts": "Shootdown interrupts",
            "try_to_unmap_percent": "Cycles below `try_to_unmap()` [%]",
            "shootdown_interrupts_change": "Change of the interrupts [%]",
            "throughput_gain": "Gain of throughput [%]",
        }
        lines = []
        for row in self.rows.itertuples():
            how = f"fitted by `{FITTED[row.quantity]}`" if row.fitted else "predicted"
            lines.append(
                f"* {words[row.quantity]}, {row.kernel}: {_number(row.measured)} measured, "
                f"{_number(row.predicted)} by the model (**{how}**)."
            )
        c = self.after.counts
        if c["unmap_flushes"]:
            lines.append(
                f"* Shootdowns left with {self.after.release}: "
                f"{100 * c['unmap_flushes'] / max(1, c['unmaps']):.2f} % of the unmaps; "
                f"{100 * c['pending_flushes'] / c['unmap_flushes']:.0f} % because a scan of the "
                "process was under way, the others because another thread had mapped the page "
                "meanwhile (**predicted**)."
            )
        return "\n".join(lines)


def compare(
    given: Experiment | None = None,
    *,
    before: str = BEFORE,
    after: str = AFTER,
    **changes: Any,
) -> Comparison:
    """Run the experiment on two kernels, at the same time.

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    before, after : str
        Names in `RELEASES`.
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    Comparison
        Series over time, and every published figure beside its prediction.

    Raises
    ------
    InputError
        If a name or a value is not allowed.
    """
    given = (given or experiment()).with_(**changes)
    for name in (before, after):
        given.config(name)
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda release: run(release, given), (before, after)))
    return Comparison(runs[0], runs[1], load_published(PATCH).digest)


def fit(given: Experiment | None = None, rounds: int = 2) -> Experiment:
    """Find the three numbers that the publication does not give.

    ``cpus`` from the interrupts per migrated page of v5.12, ``seconds`` from its
    migrated pages, ``flush_base_ns`` from its share of try_to_unmap(); nothing of
    v5.13 is used.  Each round is two runs of v5.12.

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    rounds : int
        Rounds over the three numbers.

    Returns
    -------
    Experiment
        ``given`` with the three replaced (rounded to 1 CPU, 1 s, 100 ns).
    """
    given = given or experiment()
    figures = load_published(PATCH).tables["figures"].set_index("quantity")
    pages = figures.loc["pages migrated, about", "after"]
    per_page = figures.loc["TLB shootdown interrupts, about", "before"] / pages
    share = figures.loc["try_to_unmap() and its callees", "before"] / 100
    found = given.with_(
        cpus=min(
            range(2, given.processes * given.threads + 1),
            key=lambda cpus: abs(_targets(given.with_(cpus=cpus)) - per_page),
        )
    )
    for _ in range(rounds):
        # Long enough to see the wanted number of pages go by.
        moved = run(BEFORE, found.with_(seconds=1.25 * found.seconds)).series["migrated_pages"]
        if moved.iloc[-1] < pages:
            found = found.with_(seconds=1.25 * found.seconds)
            continue
        time = float(np.interp(pages, moved, moved.index))
        found = found.with_(seconds=max(1.0, float(round(time))))
        # The missing cycles go to the flushes.
        once = run(BEFORE, found)
        missing_ns = (share - once.try_to_unmap_percent / 100) * once.counts["busy_ns"]
        flush_ns = found.flush_base_ns + missing_ns / max(1, once.counts["unmap_flushes"])
        found = found.with_(flush_base_ns=max(0, round(float(flush_ns) / 100) * 100))
    return found


def _number(x: float) -> str:
    """Three digits, or all of a large number: ``0.47``, ``9,200,000``."""
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def _targets(given: Experiment) -> float:
    """CPUs that a thread interrupts on average, from who shares a CPU with whom."""
    n, p = given.processes * given.threads, given.processes
    on_cpu = np.bincount(np.arange(n) % given.cpus)
    share = 1 / on_cpu[np.arange(n) % given.cpus]  # of the time each thread runs
    total = 0.0
    for mm in range(p):
        mine = share[mm::p]
        total += (mine * (mine.sum() - mine)).sum()
    return float(total / share.sum())


# Where it gains, where it does not ---------------------------------------------


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
            pair = compare(group.with_(scale=scale))
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


def regroup(given: Experiment, threads: int) -> Experiment:
    """Spread the same threads and the same memory over processes of ``threads`` each.

    Raises
    ------
    InputError
        If ``threads`` does not divide the number of all threads.
    """
    total = given.processes * given.threads
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1 or total % threads:
        raise InputError(f"threads={threads!r} does not divide the {total} threads in all")
    part = given.working_set_mb * given.processes * threads / total
    return given.with_(threads=threads, processes=total // threads, working_set_mb=part)


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


@dataclass(frozen=True, eq=False)
class Situations:
    """Answer of `situations`.

    Attributes
    ----------
    rows : pandas.DataFrame
    digest : str
    """

    rows: pd.DataFrame
    digest: str

    def summary(self) -> str:
        """The findings in sentences (Markdown)."""
        lines = []
        for name, words in (
            ("gain", "It gains"),
            ("neutral", "It makes no difference"),
            ("loss", "It loses: threads stall that did not before, or a lock is taken twice"),
        ):
            rows = self.rows[self.rows["verdict"] == name]
            if len(rows):
                cases = "; ".join(
                    f"{row.Index} ({row.gain_percent:+.2f} ± {2 * row.gain_error:.2f} %)"
                    for row in rows.itertuples()
                )
                lines.append(f"* **{words}**: {cases}.")
        return "\n".join(lines)


def situations(
    given: Experiment | None = None,
    *,
    cases: Mapping[str, Mapping[str, Any]] = SITUATIONS,
    seeds: int = 3,
    **changes: Any,
) -> Situations:
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
    Situations
        Its ``rows`` have the index ``situation``; ``gain_percent`` with its standard error
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
        pairs = [compare(mine.with_(seed=given.seed + i)) for i in range(seeds)]
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
    return Situations(pd.DataFrame(rows).set_index("situation"), load_published(PATCH).digest)


def verdict(gain_percent: float, error_percent: float = 0.0) -> str:
    """Name a gain: ``gain``, ``loss``, or ``neutral`` within two errors or 0.1 %."""
    if abs(gain_percent) <= max(0.1, 2 * error_percent):
        return "neutral"
    return "gain" if gain_percent > 0 else "loss"


@dataclass(frozen=True, eq=False)
class FirstVersion:
    """Answer of `first_version`.

    Attributes
    ----------
    rows : pandas.DataFrame
    """

    rows: pd.DataFrame

    def summary(self) -> str:
        """The findings in sentences (Markdown)."""
        found = self.rows.loc["published"]
        model = self.rows.drop(index="published")
        near = (model["interrupts_per_page"] - found["interrupts_per_page"]).abs().idxmin()
        best = model.loc[near]
        return (
            f"Version 1 reported {found['interrupts_per_page']:.2f} interrupts per migrated page "
            f"and {found['interrupts_left_percent']:.2f} % of them left; its set-up is not known. "
            f"The model comes nearest with {near} threads per process: "
            f"{best['interrupts_per_page']:.2f} interrupts per page, "
            f"{best['interrupts_left_percent']:.2f} % left (**predicted**)."
        )


def first_version(
    given: Experiment | None = None, *, threads: Sequence[int] = (1, 2, 4, 8), **changes: Any
) -> FirstVersion:
    """Predict the figures of version 1 of the patch, whose set-up was not published.

    It reports 0.68 interrupts per migrated page, so its threads had fewer others to
    interrupt; the same threads and memory are regrouped into more processes.

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    threads : sequence of int
        Threads per process.
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    FirstVersion
        Its ``rows`` have the index ``threads``, and the published row ``published``:
        ``interrupts_per_page`` (v5.12), ``interrupts_left_percent`` (v5.13 over v5.12).
    """
    given = (given or experiment()).with_(**changes)
    table = load_published(PATCH_V1).tables["tlb"]
    shot, moved = table.iloc[0], table.iloc[1]
    rows = {
        "published": {
            "interrupts_per_page": shot["before"] / moved["after"],
            "interrupts_left_percent": 100 * shot["after"] / shot["before"],
        }
    }
    for n in threads:
        pair = compare(regroup(given, n))
        before = pair.before.shootdown_interrupts
        rows[str(n)] = {
            "interrupts_per_page": before / max(1, pair.before.migrated_pages),
            "interrupts_left_percent": (
                100 * pair.after.shootdown_interrupts / before if before else math.nan
            ),
        }
    return FirstVersion(pd.DataFrame.from_dict(rows, orient="index").rename_axis("threads"))


# migrate_pages() with a batched flush ----------------------------------------------


@dataclass(frozen=True)
class MigratePages:
    """migrate_pages() of accessible pages: one flush per page, or one per batch.

    Attributes
    ----------
    pages, batch, targets : int
        Pages moved; pages per flush; CPUs interrupted by one flush.
    interrupts, interrupts_batched : int
    pages_per_second, pages_per_second_batched : float
        Of one thread.
    """

    pages: int
    batch: int
    targets: int
    interrupts: int
    interrupts_batched: int
    pages_per_second: float
    pages_per_second_batched: float
    rows: pd.DataFrame

    def summary(self) -> str:
        """The findings in sentences (Markdown)."""
        return "\n".join(
            f"* {row.quantity}: {row.measured:+.1f} % measured, {row.predicted:+.1f} % by the "
            "model (**predicted**)."
            for row in self.rows.itertuples()
        )


def migrate_pages(
    given: Experiment | None = None, *, pages: int = 8192, batch: int = 512, **changes: Any
) -> MigratePages:
    """Move a process's pages to the other node, page by page and in batches.

    Mirrors migrate_pages() (mm/migrate.c): up to v6.2 each page is unmapped,
    flushed, copied and mapped in turn; from v6.3 on ("migrate_pages: batch flushing
    TLB") up to 512 pages (NR_MAX_BATCHED_MIGRATION) share one flush.  All
    threads of the process run.

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    pages : int
        Pages to move [pages].
    batch : int
        Pages that share one flush [pages].
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    MigratePages
        Both ways beside the published change.

    Raises
    ------
    InputError
        If a number is not allowed.
    """
    given = (given or experiment()).with_(**changes)
    for name, value in {"pages": pages, "batch": batch}.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**20:
            raise InputError(f"{name}={value!r} is not a whole number from 1 to {2**20}")
    single, time = _move(given, pages, 1)
    batched, time_batched = _move(given, pages, batch)
    published = load_published(BATCHED).tables["tlb"]
    rows = pd.DataFrame(
        {
            "source": BATCHED,
            "quantity": ["shootdown interrupts", "pages migrated per second"],
            "unit": "%",
            "measured": published["change_pct"].to_numpy(),
            "predicted": [
                100 * (batched / single - 1) if single else math.nan,
                100 * (time / time_batched - 1),
            ],
            "fitted": False,
        }
    )
    rows["ratio"] = rows["predicted"] / rows["measured"]
    return MigratePages(
        pages, batch, given.threads - 1, single, batched,
        1e9 * pages / time, 1e9 * pages / time_batched, rows,
    )  # fmt: skip


def _move(given: Experiment, pages: int, batch: int) -> tuple[int, float]:
    """Interrupts, and nanoseconds of the migrating thread."""
    machine = Machine(RELEASES["v7.2"], 1, given.threads, pages, pages, pages)
    machine.run(0, given.threads)
    for g in range(pages):
        machine.place(g, 0)
    spent = 0.0
    for first in range(0, pages, batch):
        machine.batch_begin(0, 1)
        for g in range(first, min(pages, first + batch)):
            machine.batch_unmap(g)
            spent += given.isolate_ns + given.unmap_ns + given.copy_ns
        targets = machine.batch_flush()
        if targets > 0:
            spent += given.flush_base_ns + targets * given.flush_target_ns
        elif targets == 0:
            spent += given.flush_local_ns
        machine.batch_finish()
    return machine.counts["unmap_interrupts"], spent

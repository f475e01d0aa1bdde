"""The experiment on two kernels, side by side, against what was published.

Which figures were fitted is decided here, once (`FITTED`): three of the
figures of v5.12 fix the three numbers that the publication does not give (CPUs
of the node, length of the run, cost of a shootdown).  Everything said of
v5.13, of the first version of the patch and of migrate_pages() is predicted.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from pcpmodel.cached import cached_property
from pcpmodel.datasets.packages import load_published
from pcpmodel.files import digest_of
from pcpmodel.numa.parameters import Experiment, experiment
from pcpmodel.numa.runs import Run, run
from pcpmodel.study.answer import Answer, exact_records
from pcpmodel.study.contention.runs import half_width
from pcpmodel.words import number

__all__ = [
    "AFTER", "BEFORE", "FITTED", "PATCH", "Comparison", "Pair", "compare", "fit", "pair_of",
    "repeated",
]  # fmt: skip

BEFORE, AFTER = "v5.12", "v5.13"


PATCH = "numa-delay-mapping-v2"


#: Quantity of the first kernel that a parameter was fitted to.
FITTED = {
    "migrated_pages": "seconds",
    "shootdown_interrupts": "cpus",
    "try_to_unmap_percent": "flush_base_ns",
}


@dataclass(frozen=True, eq=False)
class Pair:
    """The same work before and after.

    Attributes
    ----------
    before, after : Run
    """

    before: Run
    after: Run

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
        ``predicted`` (of the model, fitted or not), ``ratio``, ``fitted``, ``null_model`` (of who
        knows what was measured of v5.12 alone, and lets all that it spends below
        ``try_to_unmap()`` be saved); NaN where nothing
        was measured: of another kernel than v5.12 and v5.13, or their change the other way round.
        The ratio of the
        change of the interrupts is that of what is left of them: -98 and -99.5 % look alike.
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
            measured = {BEFORE: first, AFTER: row["after"]}
            for kernel in (before, after):
                of = measured.get(kernel.release, math.nan)
                add(quantity, kernel, unit, of, getattr(kernel, quantity))
        changes = figures["change_pct"]
        if not as_published(before.release, after.release):
            changes = changes * math.nan
        interrupts = changes[names["shootdown_interrupts"][0]]
        add("shootdown_interrupts_change", after, "%", interrupts, self.interrupts_change_percent)
        gain = changes["throughput"]
        left = (100 + self.interrupts_change_percent) / (100 + interrupts)
        rows[-1] = (*rows[-1][:6], left, *rows[-1][7:])
        add("throughput_gain", after, "%", gain, self.gain_percent)
        columns = [
            "source", "quantity", "kernel", "unit", "measured", "predicted", "ratio", "fitted",
        ]  # fmt: skip
        table = pd.DataFrame(rows, columns=columns)
        unmap = float(figures.loc[names["try_to_unmap_percent"][0], "before"])
        null = {
            "migrated_pages": float(figures.loc[names["migrated_pages"][0], "after"]),
            "shootdown_interrupts": 0.0,
            "try_to_unmap_percent": 0.0,
            "shootdown_interrupts_change": -100.0,
            "throughput_gain": 100 * unmap / (100 - unmap),
        }
        of_after = (table["kernel"] == AFTER) & table["measured"].notna()
        table["null_model"] = table["quantity"].map(null).where(of_after)
        return table

    @property
    def series(self) -> pd.DataFrame:
        """Both time series below each other, with the column ``release``."""
        both = [r.series.reset_index().assign(release=r.release) for r in (self.before, self.after)]
        return pd.concat(both, ignore_index=True)

    def lost(self) -> dict[str, float]:
        """What ``before`` loses while pages come home, in the ten seconds after the kill.

        Returns
        -------
        dict
            ``mean_percent``: accesses fewer than the median rate before the memory eater is
            killed; ``low_percent``: what is left of that rate at the lowest sample; ``below_s``:
            time below half of it [s]; ``after_percent``: the mean loss of ``after``.
        """
        kill = self.before.experiment.eater_kill_s

        def rates(run: Run) -> tuple[pd.Series, float]:
            rate = run.series["accesses_per_second"]
            return rate[(rate.index > kill) & (rate.index <= kill + 10)], float(
                rate[rate.index <= kill].median()
            )

        (old, base), (new, base_new) = rates(self.before), rates(self.after)
        step = float(np.diff(self.before.series.index[:2])[0])
        return {
            "mean_percent": 100 * (1 - old.mean() / base),
            "low_percent": 100 * old.min() / base,
            "below_s": step * float((old < base / 2).sum()),
            "after_percent": 100 * (1 - new.mean() / base_new),
        }

    @property
    def interrupts(self) -> pd.DataFrame:
        """The rows of the published totals of interrupts, of the kernels that have one."""
        rows = self.rows.dropna(subset="measured")
        return rows[rows["quantity"] == "shootdown_interrupts"]

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
            "published": exact_records(self.rows) if self.published else [],
            "parameters": self.before.experiment.as_dict(),
        }

    @property
    def published(self) -> bool:
        """Is this the published experiment, up to its scale and seed?"""
        mine = self.before.experiment
        return mine == Experiment(scale=mine.scale, seed=mine.seed)


def as_published(before: str, after: str) -> bool:
    """Whether these are the kernels that were measured, in this order."""
    return (before, after) == (BEFORE, AFTER)


def pair_of(given: Experiment, before: str = BEFORE, after: str = AFTER) -> Pair:
    """Both kernels, at the same time.

    Raises
    ------
    InputError
        If a name is not allowed.
    """
    for name in (before, after):
        given.config(name)
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda release: run(release, given), (before, after)))
    return Pair(*runs)


@dataclass(frozen=True, eq=False)
class Comparison(Answer):
    """What `compare` found; ``pair`` has the runs.

    Attributes
    ----------
    pair : Pair
    """

    pair: Pair = field(default=None, repr=False)  # type: ignore[assignment]


def _other_setup(mine: Experiment) -> str:
    """What differs from the experiment that was measured, up to its scale and seed."""
    measured = Experiment(scale=mine.scale, seed=mine.seed).as_dict()
    return ", ".join(
        f"{name}={value} ({measured[name]})"
        for name, value in mine.as_dict().items()
        if value != measured[name]
    )


def _said(pair: Pair) -> Iterator[tuple[str, str]]:
    """The findings in sentences (Markdown)."""
    words = {
        "migrated_pages": "Pages migrated",
        "shootdown_interrupts": "Shootdown interrupts",
        "try_to_unmap_percent": "Cycles below `try_to_unmap()` [%]",
        "shootdown_interrupts_change": "Change of the interrupts [%]",
        "throughput_gain": "Gain of throughput [%]",
    }
    if other := _other_setup(pair.before.experiment):
        yield (
            "set-up",
            f"* Another set-up than the one that was measured: {other}. The measured figures are "
            "of that one, and say nothing of the model here.",
        )
    for row in pair.rows.itertuples():
        how = f"fitted by `{FITTED[row.quantity]}`" if row.fitted else "predicted"
        known = math.isfinite(row.measured)
        yield (
            f"{row.quantity}, {row.kernel}",
            f"* {words[row.quantity]}, {row.kernel}: "
            f"{f'{number(row.measured)} measured' if known else 'not measured'}, "
            f"{number(row.predicted)} by the model (**{how}**).",
        )
    change = pair.rows.set_index("quantity").loc["shootdown_interrupts_change"]
    if as_published(pair.before.release, pair.after.release) and not other:
        counts = pair.interrupts["measured"]
        yield (
            "interrupts left",
            f"* The two changes of the interrupts look alike, what is left does not: "
            f"{100 * counts.iloc[1] / counts.iloc[0]:.1f} % by the published counts, "
            f"{100 + change['predicted']:.2f} % in the model (run at scale "
            f"{pair.before.experiment.scale:g}).",
        )
        gain = pair.rows.set_index("quantity").loc["throughput_gain"]
        errors = {k: abs(gain[k] - gain["measured"]) for k in ("null_model", "predicted")}
        yield (
            "null model",
            f"* Who has no model, and takes all cycles of {pair.before.release} below "
            f"`try_to_unmap()` for saved, says {gain['null_model']:+.1f} %, which is "
            f"{'nearer to' if errors['null_model'] < errors['predicted'] else 'farther from'} the "
            f"published {gain['measured']:+.1f} % than the model's {gain['predicted']:+.1f} %; and "
            "that no interrupts are left.",
        )
    figures = load_published(PATCH).tables["figures"].set_index("quantity")["after"]
    pages, size = float(figures["pages migrated, about"]), float(figures["memory migrated, about"])
    gb, gib = 4096 * pages / 1e9, pages / 2**18
    yield (
        "pages published",
        f"* The published {pages:,.0f} pages are {gb:.1f} GB or {gib:.1f} GiB and not the "
        f"published {size:g} GB: {100 * (gb / size - 1):+.0f} % or "
        f"{100 * (gib / size - 1):+.0f} %. The model has the pages, not the bytes.",
    )
    lost = pair.lost()
    yield (
        "after the kill",
        f"* In the ten seconds after the memory eater is killed {pair.before.release} does "
        f"{lost['mean_percent']:.0f} % fewer accesses than before, {pair.after.release} "
        f"{lost['after_percent']:.0f} %; {pair.before.release} is below half of its rate for "
        f"{lost['below_s']:.1f} s, {lost['low_percent']:.0f} % of it at the lowest.",
    )
    c = pair.after.counts
    if c["unmap_flushes"]:
        yield (
            "shootdowns left",
            f"* Shootdowns left with {pair.after.release}: "
            f"{100 * c['unmap_flushes'] / max(1, c['unmaps']):.2f} % of the unmaps; "
            f"{100 * c['pending_flushes'] / c['unmap_flushes']:.0f} % because a scan of the "
            "process was under way, the others because another thread had mapped the page "
            "meanwhile (**predicted**).",
        )


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
        ``kernels``: what both did; ``rows``: every published figure beside its prediction;
        ``series`` over time; ``interrupts``: the rows of the published totals of them.

    Raises
    ------
    InputError
        If a name or a value is not allowed.
    """
    found = pair_of((given or experiment()).with_(**changes), before, after)
    fitted = set(found.rows.loc[found.rows["fitted"], "quantity"])
    names = ("migrated_pages", "shootdown_interrupts", "accesses_per_second")
    names += ("try_to_unmap_percent", "interrupted_percent")
    kernels = pd.DataFrame(
        {
            "quantity": name,
            before: getattr(found.before, name),
            after: getattr(found.after, name),
            "fitted": "before" if name in fitted else "",
        }
        for name in names
    )
    return Comparison(
        {
            "kernels": kernels,
            "rows": found.rows,
            "series": found.series,
            "interrupts": found.interrupts,
        },
        dict(_said(found)),
        found.as_dict(),
        load_published(PATCH).digest,
        ("kernels", "rows"),
        pair=found,
    )


def repeated(
    given: Experiment | None = None,
    *,
    before: str = BEFORE,
    after: str = AFTER,
    seeds: Sequence[int] = (1, 2, 3),
    **changes: Any,
) -> Answer:
    """`compare` with several seeds: what of its figures is the model's own scatter.

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    before, after : str
        Names in `RELEASES`.
    seeds : sequence of int
        At least two.
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    Answer
        ``rows``: by ``quantity`` and ``kernel`` what was ``measured``, the mean that is
        ``predicted`` with half of its 95 % interval, and their ``ratio``.

    Raises
    ------
    InputError
        With fewer than two seeds, or if a name or a value is not allowed.
    """
    half = half_width(seeds)
    base = (given or experiment()).with_(**changes)
    runs = pd.concat(pair_of(base.with_(seed=seed), before, after).rows for seed in seeds)
    grouped = runs.groupby(["quantity", "kernel"], sort=False)
    table = grouped[["measured", "predicted", "ratio"]].mean()
    table.insert(2, "predicted_error", half * grouped["predicted"].std())
    left, gain = table.loc[("shootdown_interrupts", after)], table.xs("throughput_gain").iloc[0]
    outside = abs(gain.predicted - gain.measured) > gain.predicted_error
    asked = as_published(before, after) and not _other_setup(base)
    said = (
        f"* Over {len(seeds)} seeds, at scale {base.scale:g}: shootdown interrupts of {after} "
        f"{left.predicted:,.0f} ± {left.predicted_error:,.0f}"
        + f" ({left.ratio:.2f} of the published ones)" * asked
        + f", gain of throughput {gain.predicted:.2f} ± {gain.predicted_error:.2f} %."
    )
    if asked:
        said += (
            f" The published gain of {gain.measured:g} % lies {'outside' if outside else 'inside'}:"
            f" its distance is {'an error of the model' if outside else 'within its scatter'}."
        )
    made_of = digest_of(load_published(PATCH).digest, runs.to_dict("list"))
    return Answer({"rows": table.reset_index()}, {"scatter": said}, digest=made_of)


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

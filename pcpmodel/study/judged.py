"""Was what `pcpmodel.what_if` foresees of another kernel what that kernel did?"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import numpy as np
import pandas as pd

from pcpmodel.study.answer import Answer
from pcpmodel.trace.judged import COUNTS, factor, off, pairs

__all__ = ["what_if_judged"]

#: Samples of the kinds of work behind an interval.  Chosen.
_SAMPLES = 2000


def _interval(table: pd.DataFrame, what: str) -> tuple[float, float]:
    """95 % interval of how many times better than "nothing changes", kinds of work drawn anew."""
    dice = np.random.default_rng(1)
    gain = off(table, what, "first") - off(table, what)
    by_work = gain.groupby(table["workload"]).agg(["sum", "count"])
    drawn = dice.integers(len(by_work), size=(_SAMPLES, len(by_work)))
    means = by_work["sum"].to_numpy()[drawn].sum(1) / by_work["count"].to_numpy()[drawn].sum(1)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return float(low), float(high)


def what_if_judged() -> Answer:
    """Hold what-if against every pair of recorded kernels that did the same work.

    The work recorded under the first kernel is done again under the rules of the second, and its
    refills and drains per allocation are compared with those that the second really made.

    Returns
    -------
    Answer
        ``by_workload``: ``pairs`` of kernels, and for ``refills`` and ``drains`` by what factor
        they are off (geometric mean): ``*_model``; ``*_unchanged``, the null model that the
        second kernel does as the first was recorded; ``*_repeated``, two recordings under one
        kernel [1].  ``pairs``: each pair [holds per 1000 allocations].
    """
    table = pairs()
    others = table[~table["repeated"]]
    rows = []
    for name in [*sorted(set(others["workload"])), "all"]:
        mine = table if name == "all" else table[table["workload"] == name]
        changed, again = mine[~mine["repeated"]], mine[mine["repeated"]]
        row: dict[str, object] = {"workload": name, "pairs": len(changed)}
        for what in COUNTS:
            row |= {
                f"{what}_model": factor(changed, what),
                f"{what}_unchanged": factor(changed, what, "first"),
                f"{what}_repeated": factor(again, what, "first"),
            }
        rows.append(row)
    by_workload = pd.DataFrame(rows)
    total = by_workload.iloc[-1]
    said = {}
    for what in COUNTS:
        low, high = _interval(others, what)
        model, null = off(others, what), off(others, what, "first")
        better, worse = int((model < null).sum()), int((model > null).sum())
        verdict = (
            "what-if is better than to expect no change" if low > 1
            else "to expect no change is better than what-if" if high < 1
            else "these recordings do not tell which of the two is better"
        )  # fmt: skip
        said[what] = (
            f"Over {len(others)} pairs of recordings, each either way round, {what} are off by a "
            f"factor of {total[f'{what}_model']:.2f}; with the counts of the first kernel left "
            f"as they are, by {total[f'{what}_unchanged']:.2f}; two recordings under one kernel by "
            f"{total[f'{what}_repeated']:.2f}. What-if is nearer in {better} pairs and farther in "
            f"{worse}; the ratio of the two factors is between {low:.2f} and {high:.2f} (95 %, "
            f"kinds of work drawn anew): {verdict}."
        )
    return Answer({"by_workload": by_workload, "pairs": table}, said)

"""How well `what_if` foresees another kernel: its counts against those of kernels that ran.

``data/workload/what-if`` has the counts of recordings of the same work under several kernels, and
what the work of each comes to under the rules of the others (``tools/judge_what_if.py``).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pcpmodel.datasets.packages import load_workload

if TYPE_CHECKING:
    import pandas

__all__ = ["COUNTS", "factor", "judgement", "off", "pairs", "work_of"]

#: What is foreseen [holds of the zone lock].
COUNTS = ("refills", "drains")
#: Added to every count, so that none is a factor of infinity [holds].  Chosen.
_HALF = 0.5
#: Below so many pairs a kind of work has no figure of its own.  Chosen.
_FEWEST = 4


def work_of(name: str) -> str:
    """The kind of work in the name of a recording: ``7.2-tcp-4cpu-r2`` is ``tcp``."""
    found = re.fullmatch(r"\d+\.\d+-(.+)-\d+cpu(?:-r\d+)?", name)
    return found[1] if found else ""


@cache
def pairs() -> pandas.DataFrame:
    """Every pair of recordings of the same work: the second is foreseen from the first.

    Returns
    -------
    pandas.DataFrame
        ``workload``, ``first`` and ``second`` (recordings), ``first_release`` and
        ``second_release``; ``repeated``: both are of one kernel; for ``refills`` and ``drains``
        ``*_first`` and ``*_second`` as recorded and ``*_foreseen`` [holds per 1000 allocations].
    """
    import pandas as pd

    tables = load_workload("what-if").tables
    recorded, predicted = tables["recorded"], tables["predicted"]
    rows = []
    alike = ["workload", "cpus", "memory_mib"]
    both = recorded.merge(recorded, on=alike, suffixes=("", "_2"))
    both = both[both["recording"] != both["recording_2"]]
    told = predicted.set_index(["recording", "release"])
    for row in both.to_dict("records"):
        foreseen = told.loc[(row["recording"], row["release_2"])]
        kernel = [row[k].split("-")[0] for k in ("recording", "recording_2")]
        found = {
            "workload": row["workload"], "first": row["recording"], "second": row["recording_2"],
            "first_release": row["release"], "second_release": row["release_2"],
            "repeated": kernel[0] == kernel[1],
        }  # fmt: skip
        for what in COUNTS:
            first, second = row["allocations"] / 1000, row["allocations_2"] / 1000
            found |= {
                f"{what}_first": (row[what] + _HALF) / first,
                f"{what}_second": (row[f"{what}_2"] + _HALF) / second,
                f"{what}_foreseen": (foreseen[what] + _HALF) / first,
            }
        rows.append(found)
    table = pd.DataFrame(rows)
    return table.sort_values(["workload", "first", "second"], ignore_index=True)


def off(table: pandas.DataFrame, what: str, of: str = "foreseen") -> pandas.Series:
    """By how much one of `COUNTS` is off for each pair [natural logarithm of the factor].

    *of*: ``"foreseen"``; ``"first"``: the counts that were recorded under the first kernel are
    taken for those of the second.
    """
    return np.abs(np.log(table[f"{what}_{of}"] / table[f"{what}_second"]))


def factor(table: pandas.DataFrame, what: str, of: str = "foreseen") -> float:
    """By what factor one of `COUNTS` is off, the geometric mean over pairs; *of* as in `off`."""
    return math.exp(off(table, what, of).mean()) if len(table) else math.nan


def judgement(name: str) -> str:
    """How far the counts of other rules may be off for the work of the recording *name*."""
    table = pairs()
    others, again = table[~table["repeated"]], table[table["repeated"]]
    work = work_of(name)
    mine = others[others["workload"] == work]
    if len(mine) < _FEWEST:
        mine, work = others, "all kinds of work"
    told = ", ".join(
        f"{what} by a factor of {factor(mine, what):.2f} "
        f"({factor(mine, what, 'first'):.2f} if nothing were to change)"
        for what in COUNTS
    )
    noise = " and ".join(f"{factor(again, what, 'first'):.2f}" for what in COUNTS)
    return (
        f"held against {len(mine)} pairs of kernels that did such work ({work}), counts per "
        f"allocation are off: {told}; by chance, in repetitions under one kernel: {noise}.  Time "
        "is not replayed: nobody waits longer or shorter here"
    )

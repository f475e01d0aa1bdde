"""Figures of contended runs, and whether the pages of their holds are warm."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from scipy.special import stdtrit

from pcpmodel.errors import InputError, integer
from pcpmodel.files import digest_of
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel import sizing
from pcpmodel.kernel.releases import Release, release
from pcpmodel.simulation.result import Result
from pcpmodel.study.answer import Answer
from pcpmodel.study.sweep.grid import figures

__all__ = [
    "HOLDS",
    "RELEASES",
    "answered",
    "before_and_after",
    "half_width",
    "known",
    "over_seeds",
    "run_figures",
]

#: Name -> whether the pages that a hold moves are warm.  The latency tables were measured on such;
#: what lines of others take follows from the cost sheet and a pilot.
HOLDS = {"warm pages": True, "pages as they come": False}
#: Before "Batch callers of free_pcppages_bulk", its version 4, and as merged.
RELEASES = ("v6.18", "v6.18+hahn-v4", "v6.19")


def half_width(seeds: Sequence[int]) -> float:
    """Half of a 95 % interval, over the standard deviation of so many seeds.

    Raises
    ------
    InputError
        For fewer than two, or one twice, or one that no run takes.
    """
    for seed in seeds:
        integer("seed", seed, 0, 2**63 - 1)
    if len(seeds) < 2:
        raise InputError(f"seeds={list(seeds)} has no scatter; give two or more")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"seeds={list(seeds)} has one twice, whose runs have no scatter")
    return float(stdtrit(len(seeds) - 1, 0.975)) / math.sqrt(len(seeds))


def known(releases: Sequence[str | Release]) -> None:
    """Refuse a kernel state that there is not, before the runs of those named before it.

    Raises
    ------
    InputError
    """
    for name in releases:
        release(name)


def before_and_after(releases: Sequence[str]) -> None:
    """Refuse fewer than two kernel states, or one twice: nothing to compare.

    Raises
    ------
    InputError
    """
    known(releases)
    names = [str(name) for name in releases]
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"releases={names} has nothing to compare; give two or more, each once")


def cuts_drains(releases: Sequence[str | Release]) -> bool:
    """Whether the last of some kernel states holds the lock for less of a drain, not of a refill.

    What is asked for is the largest that either moves in a hold by the scale of a batch.
    """
    first, last = (release(releases[i]).rules for i in (0, -1))
    refills, drains = (
        [limit(63, rules) for rules in (first, last)]
        for limit in (sizing.refill_limit, sizing.drain_hold_limit)
    )
    less = drains[1] is not None and (drains[0] is None or drains[1] < drains[0])
    return less and refills[0] == refills[1]


def over_seeds(runs: pd.DataFrame, keys: Sequence[str], half: float, **errors: str) -> pd.DataFrame:
    """Means over the seeds; *errors*: half of a 95 % interval, by name, and of which column."""
    grouped = runs.groupby(list(keys), sort=False)
    table = grouped.mean(numeric_only=True).drop(columns="seed")
    for name, column in errors.items():
        table[name] = half * grouped[column].std()
    return table.reset_index()


def answered(
    name: str, table: pd.DataFrame, runs: pd.DataFrame, said: Mapping[str, str], machine: Machine
) -> Answer:
    """Answer with a table over the seeds, which is shown, and the runs by seed."""
    made_of = digest_of(runs.to_dict("list"), machine.digest)
    return Answer({name: table, "seeds": runs}, said, digest=made_of, shown=(name,))


def run_figures(result: Result, **labels: Any) -> dict[str, Any]:
    drain, refill = result.latency_hist["drain"], result.latency_hist["refill"]
    return {
        **labels,
        **figures(result),
        "refill_p99_us": refill.quantile_ns(0.99) / 1e3,
        "drain_p99_us": drain.quantile_ns(0.99) / 1e3,
        "drain_over_100us": result.over_probability("drain")[100],
        "drain_over_1ms": result.over_probability("drain")[1000],
    }

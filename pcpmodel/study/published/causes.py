"""Holds from causes: misses counted from the workload, times one latency of the machine.

``cold_block_ns`` is then no number of a table but misses per block (`pcpmodel.simulation.misses`, a
pilot with page identity under the same kernel) times what a miss takes; handing a lock over takes
some such misses as well.  A page whose data have left the caches of the socket costs its user a
miss for each of its lines, as many at once as a core can wait for.  What nobody states is the
same for all (``assumed`` in ``data/workload/answer-key``).  The latency is fitted to the first row
of each table that states its contention (``miss_ns``), and is the same on one machine if the causes
are right.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_workload
from pcpmodel.files import parse_json
from pcpmodel.simulation.misses import Misses, misses
from pcpmodel.simulation.spec import make_spec
from pcpmodel.workload import make

__all__ = ["TIMES_OF", "assumed", "by_misses", "latencies", "of_run", "pilot"]

#: Parameters of a run that one of a table is made into.
TIMES_OF = {"miss_ns": ("cold_block_ns", "handoff_ns", "cold_page_ns")}


_LINES_OF_A_PAGE = 64


def _pilots() -> pd.DataFrame:
    return load_workload("answer-key").tables["pilots"].set_index("workload")


@cache
def pilot(workload: str, release: str) -> Misses:
    """The misses of a ready-made workload under a kernel; the run is in the answer key."""
    row = _pilots().loc[workload]
    return misses(
        make_spec(
            release=release,
            machine=str(row["machine"]),
            workload=make(workload, **parse_json(row["arguments"]), like=None),
            cpus=int(row["cpus"]),
            nodes=int(row["nodes"]),
            memory_gib=float(row["memory_gib"]),
            high_min_pages=int(row["high_min_pages"]),
            l2_kib=float(row["l2_kib"]),
            llc_slice_kib=float(row["llc_slice_kib"]),
            aged=float(row["aged"]),
            warmup_s=float(row["warmup_s"]),
            seconds=float(row["seconds"]),
            samples=0,
        )
    )


def assumed() -> dict[str, float]:
    """What no source states, by parameter; the same for every table."""
    frame = load_workload("answer-key").tables["assumed"]
    return dict(zip(frame["parameter"], frame["value"].astype(float), strict=True))


def latencies() -> dict[str, float]:
    """What a miss takes by each table [ns]: calibration -> value."""
    frame = load_workload("answer-key").tables["miss_ns"]
    return dict(zip(frame["calibration"], frame["miss_ns"].astype(float), strict=True))


def by_misses(miss_ns: float, *, shares_cores: bool) -> dict[str, float]:
    """Parameters of a table from causes.

    Parameters
    ----------
    miss_ns : float
        What a miss takes [ns].
    shares_cores : bool
        There are more tasks than cores.

    Returns
    -------
    dict
        ``miss_ns``, which `of_run` makes times of, ``jitter``, and ``smt_yield`` where cores are
        shared.
    """
    same = assumed()
    found = {"miss_ns": miss_ns, "jitter": same["jitter"]}
    return found | ({"smt_yield": same["smt_yield"]} if shares_cores else {})


def of_run(values: Mapping[str, Any], workload: str, release: str) -> dict[str, Any]:
    """Parameters of a run: what a miss takes, if it is among them, becomes times of holds.

    Parameters
    ----------
    values : mapping
        Parameters of a table.
    workload, release : str
        Of the run: a ready-made workload that has a pilot, and the kernel.

    Returns
    -------
    dict
        ``cold_block_ns``, ``handoff_ns`` and ``cold_page_ns`` [ns] in place of ``miss_ns``; the
        rest as given.
    """
    found = dict(values)
    miss_ns = found.pop("miss_ns", None)
    if miss_ns is None:
        return found
    same, counted = assumed(), pilot(workload, release)
    colder = max(counted.from_memory - float(_pilots()["recorded"][workload]), 0.0)
    return found | {
        "cold_block_ns": miss_ns * counted.per_block,
        "handoff_ns": miss_ns * same["handoff_lines"],
        "cold_page_ns": miss_ns * colder * _LINES_OF_A_PAGE / same["lines_at_once"],
    }

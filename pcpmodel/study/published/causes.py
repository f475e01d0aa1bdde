"""Holds from causes: misses counted from the workload, times one latency for all.

``cold_block_ns`` is then no number of a table but misses per block (`pcpmodel.simulation.misses`, a
pilot with page identity) times what a miss takes; handing a lock over takes some such misses as
well.  What nobody states is the same for all (``assumed`` in ``data/workload/answer-key``).  The
latency is fitted to the first row of each table that states its contention (``miss_ns``), and is
the same everywhere if the causes are right.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from functools import cache

from pcpmodel.datasets.packages import load_workload
from pcpmodel.files import parse_json
from pcpmodel.simulation.misses import Misses, misses
from pcpmodel.simulation.spec import make_spec
from pcpmodel.workload import make

__all__ = ["assumed", "by_misses", "latencies", "pilot"]

_RELEASE = "v6.6"


@cache
def pilot(workload: str) -> Misses:
    """The misses of a ready-made workload, from the run that the answer key describes."""
    row = load_workload("answer-key").tables["pilots"].set_index("workload").loc[workload]
    return misses(
        make_spec(
            release=_RELEASE,
            machine=str(row["machine"]),
            workload=make(workload, **parse_json(row["arguments"]), like=None),
            cpus=int(row["cpus"]),
            nodes=int(row["nodes"]),
            memory_gib=float(row["memory_gib"]),
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


def by_misses(workload: str, miss_ns: float, *, shares_cores: bool) -> dict[str, float]:
    """Parameters of a run from causes.

    Parameters
    ----------
    workload : str
        Name of a ready-made workload that has a pilot.
    miss_ns : float
        What a miss takes [ns].
    shares_cores : bool
        There are more tasks than cores.

    Returns
    -------
    dict
        ``cold_block_ns``, ``handoff_ns``, ``jitter``, and ``smt_yield`` where cores are shared.
    """
    same = assumed()
    found = {
        "cold_block_ns": miss_ns * pilot(workload).per_block,
        "handoff_ns": miss_ns * same["handoff_lines"],
        "jitter": same["jitter"],
    }
    return found | ({"smt_yield": same["smt_yield"]} if shares_cores else {})

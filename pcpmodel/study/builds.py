"""A build from its first command to its last.

`kbuild` is CPUs that compile without end.  A build is not always busy: it is configured, its last
objects are waited for, and it is linked, by few commands at once or one.  ``data/workload/
build-phases`` has how many commands of a build of Linux run at once, each on a CPU of its own.
What a kernel is worth to a build is worth it while all jobs run alone: with few of them nobody
waits for the zone lock.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pcpmodel.datasets.packages import load_workload
from pcpmodel.errors import InputError, integer
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.spec import RunSpec

__all__ = ["WholeBuild", "build_of", "busy_cycles", "time_change", "whole_build"]

#: Share of the jobs from which on all count as busy: an assumption.  What eight builds of 28 jobs
#: gain hardly hangs on it, what one of 224 waits does (documentation, limits).
_ALL = 0.75


@dataclass(frozen=True)
class WholeBuild:
    """Builds, of which a run is the part in which all their jobs are busy.

    Attributes
    ----------
    time_s : float
        The build, were it the recorded one [s].  Others last otherwise: what two runs' differ by,
        in percent, is what is told.
    busy : float
        Share of that time in which all jobs run.
    cycles : float
        Share of the busy CPU time that falls into it.
    lock_contention : float
        Share of the busy CPU time of the whole build that is spent waiting for the zone lock, or
        the LRU lock.
    """

    time_s: float
    busy: float
    cycles: float
    lock_contention: float


@cache
def _running(jobs: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Commands at once, and how long [s], of ``make`` with as many jobs, or the next more tried."""
    frame = load_workload("build-phases").tables["running"]
    tried = sorted(set(frame["jobs"]))
    mine = frame[frame["jobs"] == next((n for n in tried if n >= jobs), tried[-1])]
    return mine["running"].to_numpy(), mine["time_s"].to_numpy()


def whole_build(run: Result, builds: int | None = None) -> WholeBuild:
    """How long builds last of which a run of `pcpmodel.workload.kbuild` is the busy part.

    Parameters
    ----------
    run : Result
        Of `pcpmodel.workload.kbuild`.
    builds : int, optional
        Builds at the same time, that have as many jobs each; by default one in each cgroup.

    Returns
    -------
    WholeBuild

    Raises
    ------
    InputError
        For another workload, or jobs that cannot be divided among the builds.
    """
    return build_of(run.spec, run.score, run.lock_contention + run.lru_contention, builds)


def busy_cycles(run: Result, builds: int | None = None) -> float:
    """Share of a whole run's busy CPU time that a run is of: of a build less than 1."""
    return whole_build(run, builds).cycles if run.spec.workload.name == "kbuild" else 1.0


def time_change(before: Result, after: Result, builds: int | None = None) -> float:
    """By how much a build takes longer, from its first command to its last, or other work [%]."""
    if before.spec.workload.name != "kbuild":
        return 100 * (before.score / after.score - 1)
    return 100 * (whole_build(after, builds).time_s / whole_build(before, builds).time_s - 1)


def build_of(spec: RunSpec, score: int, contention: float, builds: int | None = None) -> WholeBuild:
    """`whole_build` of a run's score [pages], and of the share of its CPU time that it waits."""
    work = spec.workload
    if work.name != "kbuild":
        raise InputError(f"{work.name} is not a build: workload kbuild is")
    all_jobs = int(work.params["jobs"])
    if builds is None:
        builds = work.params.get("memcgs") or 1
    builds = integer("builds", builds, 1, all_jobs)
    if all_jobs % builds:
        raise InputError(f"builds={builds}: {all_jobs} jobs cannot be divided among them")
    jobs = all_jobs // builds
    running, time = _running(jobs)
    few = running < _ALL * jobs
    # What more jobs would have done at once, these do one after the other.
    rest = float((running * time)[~few].sum())
    # A job's pace: of its work in a second of a CPU of its own.
    pace = score / spec.seconds * work.params["page_us"] / 1e6 / all_jobs
    alone = time[few] / np.array([_pace_of(int(n) * builds, spec) for n in running[few]])
    full = rest / (jobs * max(pace, 1e-12))
    cycles = full * jobs / (full * jobs + float((running[few] * alone).sum()))
    whole = full + float(alone.sum())
    return WholeBuild(whole, full / whole, cycles, contention * cycles)


def _pace_of(busy: int, spec: RunSpec) -> float:
    """Pace of each of some busy CPUs, nobody waiting: threads of a core share it."""
    threads = spec.host.threads_per_core
    cores = max(spec.host.cpus // threads, 1)
    if threads == 1 or busy <= cores:
        return 1.0
    shared = 2 * min(busy - cores, cores)
    share = spec.machine.sheet.value("smt_share", "core")
    return (max(busy - shared, 0) + share * shared) / max(busy, 1)

"""Kernel builds: every CPU does what a CPU of a recorded build did, from another moment on.

``data/workload/native-kbuild`` has three seconds of a build with ``-j2`` on two CPUs (Sapphire
Rapids class, at native speed), run after run with the time that each took: whose pages were freed
when, how many processes shared a CPU, and how unevenly pages are asked for all stay as they were.
Scaled to a large machine by these steps, and no others:

1. Each CPU runs one of the two recorded courses in a loop, and begins at any of 64 places of it
   with what the course holds there.
2. CPU time per page is the recorded busy time per page of a minute without tracing.
3. Blocks of order 1..3 freed in a row, slabs, are rarer than three seconds show: where processes
   have exited, runs of them as long and as often as in forty seconds.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pcpmodel.datasets.packages import load_workload
from pcpmodel.errors import InputError
from pcpmodel.workload.faults import UNMAP_NS
from pcpmodel.workload.program import Program, Register, _count, _tasks
from pcpmodel.workload.tasks import Made, Task, Workload

__all__ = ["kbuild"]

_SLAB_ORDER = 2  # 3.4 pages a block: 154, 153 and 30 were freed of order 1, 2 and 3
#: Pages after which they are counted.
_SCORE_PAGES = 256
#: Places of a course, of equal time from one to the next, at which a CPU may begin.
_BEGINS = 64
_TYPES = ("unmovable", "movable", "reclaimable")
#: Share of what a machine that has been up for a while holds in single pages, anywhere: the
#: recorded one had 21 to 39 % of its refilled pages beside the one before.
MIXED = 0.3


class _Recorded(NamedTuple):
    """The recording: rows of each CPU, what it says of time, and lengths of runs of slabs."""

    courses: tuple[tuple[tuple[str, int, int, int, float], ...], ...]
    page_us: float
    recorded_us: float
    slab_runs: npt.NDArray[np.int64]  # equally likely lengths where processes exit


@cache
def _recorded() -> _Recorded:
    read = load_workload("native-kbuild").read
    figures = dict(zip(read["figures"]["quantity"], read["figures"]["value"], strict=True))
    rows = [tuple(r.values()) for r in read["timeline"].records()]
    courses = tuple(
        tuple(row[1:] for row in rows if row[0] == cpu) for cpu in sorted({row[0] for row in rows})
    )
    pages = sum(n << order for course in courses for what, order, _, n, _ in course
                if what == "alloc")  # fmt: skip
    time_us = sum(row[4] for course in courses for row in course)
    runs = read["high_order_runs"]
    lengths = np.repeat(runs["length"], runs["runs"])
    share = len(lengths) / figures["processes seen from fork to exit"]
    slab_runs = np.zeros(1000, dtype=np.int64)
    some = round(1000 * share)
    slab_runs[:some] = lengths[((np.arange(some) + 0.5) * len(lengths) / some).astype(int)]
    page_us = figures["busy CPU time per page allocated"]
    return _Recorded(courses, page_us, time_us / pages, slab_runs)


@lru_cache(maxsize=32)
def _course(cpu: int, times: float, root: int, lru: bool) -> tuple[Program, int]:
    """A recorded CPU's program, and the most pages it holds.

    Every kbuild() gets a copy of the program: it is long, and making and checking it takes as long
    as a run.
    """
    rows, slab_runs = _recorded().courses[cpu], _recorded().slab_runs
    round_us = sum(us for *_, us in rows)
    # What is freed before it was allocated in the recording is held from the start; what is left
    # at its end is freed there, so that every round begins alike.
    left: dict[tuple[int, int], int] = {}
    low: dict[tuple[int, int], int] = {}
    begins: list[tuple[int, dict[tuple[int, int], int]]] = []  # row, and what is left before it
    held = most = 0
    gone_us = 0.0
    for at, (what, order, mt, n, us) in enumerate(rows):
        if gone_us * _BEGINS >= round_us * len(begins):
            begins.append((at, left.copy()))
        gone_us += us
        if what != "exit":
            by = n if what == "alloc" else -n
            left[order, mt] = left.get((order, mt), 0) + by
            low[order, mt] = min(low.get((order, mt), 0), left[order, mt])
            held += by << order
            most = max(most, held)
    most -= sum(n << order for (order, _), n in low.items())
    p = Program()

    def process() -> None:
        p.draw(slab_runs, 0)
        p.alloc(1, order=root, migratetype="unmovable", ns=UNMAP_NS)
        p.alloc(1, order=0, migratetype="unmovable", ns=UNMAP_NS)
        p.alloc(slabs, order=_SLAB_ORDER, migratetype="unmovable", ns=UNMAP_NS)

    def amid(left: dict[tuple[int, int], int]) -> None:
        for (order, mt), least in low.items():
            n = left.get((order, mt), 0) - least
            if n:
                p.alloc(n, order=order, migratetype=_TYPES[mt], ns=UNMAP_NS)
        process()

    slabs = Register(0)
    jumps = p.enter([partial(amid, left) for _, left in begins])
    begin = {at: jump for (at, _), jump in zip(begins, jumps, strict=True)}
    done = 0
    with p.forever():
        for at, (what, order, mt, n, us) in enumerate(rows):
            if at in begin:
                p.land(begin[at])
            if what == "exit":  # of 192 recorded roots of order 1 two come before another block
                p.free(1, order=root, migratetype="unmovable", ns=UNMAP_NS)
                p.free(1, order=0, migratetype="unmovable", ns=UNMAP_NS)
                p.free(slabs, order=_SLAB_ORDER, migratetype="unmovable", ns=UNMAP_NS)
                process()
                continue
            ns = max(1000 * us * times / n, 1.0)
            page = lru and order == 0 and _TYPES[mt] == "movable"
            if what == "alloc":
                p.alloc(n, order=order, migratetype=_TYPES[mt], ns=ns, lru=page)
                done += n << order
                if done >= _SCORE_PAGES:
                    p.score(done)
                    done = 0
            else:
                p.free(n, order=order, migratetype=_TYPES[mt], ns=ns, lru=page)
        p.score(done)
        for (order, mt), n in left.items():
            put = p.free if n > 0 else p.alloc
            if n:
                put(abs(n), order=order, migratetype=_TYPES[mt], ns=UNMAP_NS)
    p.compiled()
    return p, most + (1 << _SLAB_ORDER) * int(slab_runs.max())


def kbuild(
    jobs: int,
    *,
    page_us: float | None = None,
    page_table_isolation: bool | None = None,
    lru: bool = False,
    nodes: int | None = None,
) -> Workload:
    """CPUs that compile, one job each, without end.

    What runs differ by is what a build does while all its jobs are busy:
    `pcpmodel.study.whole_build` tells what a build gains from its first command to its last.

    Parameters
    ----------
    jobs : int
        Jobs at once, one per CPU.
    page_us : float, optional
        Busy CPU time per page [us]; by default as recorded.
    page_table_isolation : bool, optional
        The root of a process's page table is a block of order 1 rather than a page.  By default as
        in the kernel that it is simulated on (``Release.pgd_allocation_order``), until then a page.
    lru : bool
        Also take the LRU lock, of the node or of the memcg.
    nodes : int, optional
        Bind the jobs to so many nodes, in turn; by default they are spread over all of the machine
        that it is simulated on.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For ``page_us`` outside 0.2..10000.
    """
    jobs = _tasks("jobs", jobs)
    given = {"nodes": nodes, "page_table_isolation": page_table_isolation}
    spread = 2 if nodes is None else _count("nodes", nodes, 1)
    recorded = _recorded()
    page_us = recorded.page_us if page_us is None else page_us
    if not 0.2 <= page_us <= 10_000:
        raise InputError(f"page_us={page_us} is outside 0.2..10000 us")
    times, root = page_us / recorded.recorded_us, 1 if page_table_isolation else 0
    courses = [_course(cpu, times, root, bool(lru)) for cpu in range(len(recorded.courses))]
    programs = [program.copy() for program, _ in courses]
    tasks = tuple(  # both courses on every node
        Task(programs[i // spread % len(courses)], None if nodes is None else i % spread)
        for i in range(jobs)
    )
    params: dict[str, Any] = {
        "jobs": jobs,
        "page_us": page_us,
        "page_table_isolation": bool(page_table_isolation),
        "lru": lru,
        "nodes": spread,
    }
    return Workload(
        "kbuild",
        tasks,
        unit="pages allocated",
        pages=jobs * max(most for _, most in courses),
        params=params,
        mixed=MIXED,
        made=Made(kbuild, params | given),
    )

"""Kernel builds: process life cycles as a real build was seen to have them.

Sizes, rates and runs come from ``data/workload/native-kbuild`` (make -j2 on two
CPUs).  Scaled to a large machine by these steps, and no others:

1. Every CPU runs what one CPU of the recording ran: a chain of short processes
   (shell, driver, assembler, ...) and the compiler proper, sizes drawn from
   those recorded.
2. CPU time per page is the recorded busy time per page, the frees included.
3. A process frees all its pages when it exits, then its page-table root, of
   order 1 with page-table isolation; a share of the compiler processes exit on
   the next CPU of their node (3 % of the pages were freed on another CPU).
4. Slabs, blocks of order 1..3 allocated as a compiler process begins, are freed in
   a row right behind the page-table root when it exits, in runs as long as those
   recorded; how often is a parameter: the recording machine had few of them.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pcpmodel.datasets.packages import load_workload
from pcpmodel.errors import InputError
from pcpmodel.workload.calibration import calibration
from pcpmodel.workload.faults import UNMAP_NS
from pcpmodel.workload.program import ALL, Program, _count
from pcpmodel.workload.tasks import Channel, Task, Workload

__all__ = ["kbuild"]

#: Bursts of allocation into which a compiler process is cut by small frees.
_ROUNDS = 8
#: Compilations by which a CPU may be ahead of its neighbour.
_AHEAD = 8
_SLAB_ORDER = 2  # 3.4 pages a block: 154, 153 and 30 were freed of order 1, 2 and 3


@cache
def _recorded() -> tuple[dict[str, float], dict[str, npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    """Figures, process sizes [pages] and lengths of runs of slabs [blocks] of the recording."""
    read = load_workload("native-kbuild").read
    figures = dict(zip(read["figures"]["quantity"], read["figures"]["value"], strict=True))
    group, pages = (np.array(read["process_pages"][name]) for name in ("group", "pages"))
    sizes = {str(name): pages[group == name] for name in np.unique(group)}
    runs = read["high_order_runs"]
    return figures, sizes, np.repeat(runs["length"], runs["runs"])


def kbuild(
    jobs: int,
    *,
    page_us: float | None = None,
    slab_run_share: float | None = None,
    migrated_share: float | None = None,
    page_table_isolation: bool = True,
    lru: bool = False,
    nodes: int = 2,
    like: str | None = "pcp-auto-tuning-v2/kbuild",
) -> Workload:
    """CPUs that compile, one job each, without end.

    Parameters
    ----------
    jobs : int
        Jobs at once, one per CPU.
    page_us : float, optional
        Busy CPU time per page [us]; by default as recorded.
    slab_run_share : float, optional
        Share of compiler processes whose exit frees a run of slabs right behind the root of
        the page table, 0..1; by default as calibrated, else as many as there were runs of two
        and more.
    migrated_share : float, optional
        Share of compiler processes whose pages are freed on another CPU than they were
        allocated on, 0..1; by default as calibrated, else the recorded share of pages.
    page_table_isolation : bool
        The root of the page table is a block of order 1 rather than a page.
    lru : bool
        Also take the node's LRU lock (builds outside cgroups).
    nodes : int
        Nodes over which the jobs are spread; processes migrate within one.
    like : str or None
        Calibration (`pcpmodel.workload.calibration`) that ``slab_run_share``,
        ``migrated_share`` and what `pcpmodel.simulate` adds to a hold are taken from;
        "pcp-auto-tuning-v1/kbuild_j224" has a hold of the LRU lock for ``lru=True``.  None: all
        as recorded, on warm pages.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For a share outside 0..1, or ``page_us`` outside 0.2..10000.
    """
    jobs = _count("jobs", jobs, 1)
    figures, sizes, runs = _recorded()
    calibrated = calibration(like)
    calibrated.pop("smt_yield", None)  # of the build time alone, which a run does not say
    page_us = figures["busy CPU time per page allocated"] if page_us is None else page_us
    if not 0.2 <= page_us <= 10_000:
        raise InputError(f"page_us={page_us} is outside 0.2..10000 us")
    children = figures["processes per compiler process"]
    if slab_run_share is None and "slab_run_share" in calibrated:
        slab_run_share = calibrated["slab_run_share"].value
    elif slab_run_share is not None:
        calibrated.pop("slab_run_share", None)
    else:
        compilers = figures["processes seen from fork to exit"] / children
        slab_run_share = float((runs > 1).sum() / compilers)
    if not 0 <= slab_run_share <= 1:
        raise InputError(f"slab_run_share={slab_run_share} is outside 0..1")
    if migrated_share is None and "migrated_share" in calibrated:
        migrated_share = calibrated["migrated_share"].value
    elif migrated_share is not None:
        calibrated.pop("migrated_share", None)
    else:
        migrated_share = 1 - figures["pages freed on the CPU that allocated them"]
    ns = page_us * 1000 - UNMAP_NS
    root = 1 if page_table_isolation else 0
    slab_runs = np.zeros(1000, dtype=np.int64)
    some = round(1000 * slab_run_share)
    slab_runs[:some] = runs[((np.arange(some) + 0.5) * len(runs) / max(some, 1)).astype(int)]
    mean_pages = float(sizes["cc1"].mean())
    unmovable = figures["unmovable share of pages allocated"]

    p = Program()

    def begin(pages: float) -> None:
        p.alloc(1, order=root, migratetype="unmovable", ns=ns)
        p.alloc(max(1, round(unmovable * pages)), migratetype="unmovable", ns=ns)

    def exits() -> None:
        p.free(ALL, ns=UNMAP_NS, lru=lru)
        p.free(ALL, migratetype="unmovable", ns=UNMAP_NS)
        p.free(1, order=root, migratetype="unmovable", ns=UNMAP_NS)

    def compiles(receives: bool) -> None:
        with p.repeat(round(children)):
            size = p.draw(sizes["other"], 0)
            begin(float(sizes["other"].mean()))
            p.alloc(size, ns=ns, lru=lru)
            exits()
        begin(mean_pages)
        slabs = p.draw(slab_runs, 1)
        p.alloc(slabs, order=_SLAB_ORDER, migratetype="unmovable", ns=UNMAP_NS)
        with p.repeat(_ROUNDS):
            part = p.draw(sizes["cc1"] // _ROUNDS, 2)
            p.alloc(part, ns=ns, lru=lru)
            p.free(32, ns=UNMAP_NS, lru=lru)
        if jobs > 1:
            with p.maybe(migrated_share):
                p.give(ALL)
            p.send(0)
            if receives:
                p.recv(1, movable_0=ALL)
                p.free(ALL, ns=UNMAP_NS, lru=lru, of="peer")
        exits()
        p.free(slabs, order=_SLAB_ORDER, migratetype="unmovable", ns=UNMAP_NS)
        p.score()

    # The first arrivals from the CPU before are met a few compilations later, so that no CPU
    # ever waits for another.
    if jobs > 1:
        with p.repeat(_AHEAD):
            compiles(receives=False)
    with p.forever():
        compiles(receives=jobs > 1)
    # A ring on each node.
    nodes = _count("nodes", nodes, 1)
    groups = [list(range(k, jobs, nodes)) for k in range(min(nodes, jobs))]
    after = {g[i]: g[(i + 1) % len(g)] for g in groups for i in range(len(g))}
    before = {b: a for a, b in after.items()}
    tasks = tuple(
        Task(p, i % nodes, (i, before[i]) if jobs > 1 else (), before[i]) for i in range(jobs)
    )
    channels = tuple(Channel(i, after[i], room=4 * _AHEAD) for i in range(jobs))
    params: dict[str, Any] = {
        "jobs": jobs,
        "page_us": page_us,
        "slab_run_share": slab_run_share,
        "migrated_share": migrated_share,
        "page_table_isolation": page_table_isolation,
        "lru": lru,
        "nodes": nodes,
        "like": like,
    }
    return Workload(
        "kbuild",
        tasks,
        unit="files compiled",
        pages=int(jobs * sizes["cc1"].max() * 1.2),
        channels=channels if jobs > 1 else (),
        params=params,
        calibrated=calibrated,
    )

"""What work takes on a machine, beside the zone and LRU locks: from its cost sheet, before the run.

A fault fills a page with zeros: alone as fast as a core can, together as fast as the node's memory
takes it.  Threads of one process write the line of a lock at every fault, tasks of a memcg the line
of its counter at every 64 pages.  All of these are servers that the CPUs of a node, of a process
or of a memcg share, and what one waits at them is the closed network's (`mva`).  They are taken
one after the other, and as if nobody waited for the zone lock meanwhile: where one does, the wait
at them is overstated.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pcpmodel.hardware.costs import Sheet
from pcpmodel.kernel.releases import Release
from pcpmodel.simulation.analytic import mva
from pcpmodel.simulation.host import Host
from pcpmodel.workload.builds import kbuild
from pcpmodel.workload.common import again, as_made
from pcpmodel.workload.faults import FILE_OVER_ANONYMOUS, page_fault1, page_fault2
from pcpmodel.workload.recorded import containers, recorded
from pcpmodel.workload.tasks import Workload

__all__ = ["CHARGE_PAGES", "charge_ns", "fault_ns", "on_kernel", "on_machine"]

#: Pages that a CPU charges to a memcg at once: MEMCG_CHARGE_BATCH, since v5.16; 32 before.
CHARGE_PAGES = 64
_FAULTS = (page_fault1, page_fault2)
#: Spread over two nodes where nobody says over how many.
_SPREAD = (kbuild, recorded, containers)


def _shared_ns(sharers: int, think_ns: float, service_ns: float) -> float:
    """What a visit to a server takes that so many share; 0 for one that takes no time."""
    if service_ns <= 0:
        return 0.0
    return mva(sharers, think_ns, service_ns).wait_ns + service_ns


def fault_ns(
    sheet: Sheet,
    *,
    on_node: int,
    unmap_ns: float = 0.0,
    threads: int = 1,
    in_memcg: int = 0,
    page_size_kib: int = 4,
    lru: bool = True,
    pace: float = 1.0,
) -> float:
    """What a fault on anonymous memory takes without the zone and LRU locks [ns].

    Parameters
    ----------
    sheet : Sheet
    on_node : int
        CPUs of a node that fault at the same time.
    unmap_ns : float
        What a page takes between two faults [ns].
    threads : int
        Threads of the process.
    in_memcg : int
        Tasks that charge the same memcg; 0: nobody charges any.
    page_size_kib : int
        Base page [KiB].
    lru : bool
        The LRU lock is taken apart; else a page's work on its lists is part of the fault, and
        nobody waits for it.
    pace : float
        What a CPU keeps of its own pace beside its core's other thread, by which a run lengthens
        what is returned: work, and not what waits for memory or for a line.
    """
    times = page_size_kib // 4
    rate = sheet.value("clear_rate")
    alone = sheet.value("fault_entry") + times * sheet.value("clear_page")
    if not lru:  # to the lists and off them
        alone += 2 * sheet.value("lru_page")
    work, waits = (alone + unmap_ns) / pace, 0.0
    if rate > 0:  # what clearing takes longer than alone
        served = times * 1e9 / rate
        waits += _shared_ns(on_node, work, served) - served
    if threads > 1:
        waits += _shared_ns(threads, work + waits, sheet.value("mmap_lock"))
    waits += charge_ns(sheet, in_memcg, work + waits)
    return alone + pace * waits


def charge_ns(sheet: Sheet, tasks: int, page_ns: float) -> float:
    """A page's share of charging it to a memcg that so many tasks charge [ns]."""
    if not tasks:
        return 0.0
    visit = _shared_ns(tasks, CHARGE_PAGES * page_ns, sheet.value("page_counter"))
    return visit / CHARGE_PAGES


def on_machine(workload: Workload, sheet: Sheet, host: Host) -> Workload:
    """The workload with times and nodes of a machine, where they are that and none were given."""
    workload = _in_pages(workload, host.page_size_kib)
    made = workload.made
    if made is not None and made.make in _SPREAD:
        # None: as for two, which of jobs is in turn over all nodes.
        alike = host.nodes != 2 and len(set(host.node_cpus)) == 1
        nodes = host.nodes if alike else None
        if made.given["nodes"] is not None or made.here.get("nodes") == nodes:
            return workload
        return _made_here(workload, nodes=nodes) if as_made(workload) else workload
    if made is None or made.make not in _FAULTS or "fault_ns" in made.given:
        return workload
    if not as_made(workload):
        return workload  # somebody's own operations; they are looked at as they are
    given, number = made.given, len(workload.tasks)
    tasks: dict[str, Any] = {
        "lru": given["lru"],
        "pace": _pace(sheet, host, number),
        "on_node": -(-number * max(host.node_cpus) // host.cpus),  # of the largest
        "threads": number if given["threads"] else 1,
        "in_memcg": -(-number // made.common["memcgs"]) if "memcgs" in made.common else 0,
    }
    unmap = given["unmap_ns"]
    fault = fault_ns(sheet, unmap_ns=unmap, page_size_kib=workload.page_size_kib, **tasks)
    if made.make is page_fault2:
        fault += (FILE_OVER_ANONYMOUS - 1) * (fault + unmap)
    return _made_here(workload, fault_ns=fault)


def _pace(sheet: Sheet, host: Host, tasks: int) -> float:
    """What so many tasks keep of their pace in the mean, if those of a core's both threads work."""
    share, cores = sheet.value("smt_share", "core"), -(-host.cpus // host.threads_per_core)
    paired = 2 * max(min(tasks, host.cpus) - cores, 0) / tasks
    return 1 / (1 - paired + paired / share) if 0 < share < 1 else 1.0


def _in_pages(workload: Workload, kib: int) -> Workload:
    """The workload in pages of the machine, where that was left to it (`Made`)."""
    made = workload.made
    if made is None or "page_size_kib" not in made.left or workload.page_size_kib == kib:
        return workload
    if not as_made(workload):
        return workload
    fresh = again(workload, here={"page_size_kib": kib})
    before, now = (made.make(processes=1, page_size_kib=k) for k in (workload.page_size_kib, kib))
    return replace(fresh, unit=now.unit) if workload.unit == before.unit else fresh


def on_kernel(workload: Workload, release: Release) -> Workload:
    """The workload with the blocks that a kernel takes, where none were given."""
    made = workload.made
    if made is None or made.make is not kbuild or made.given["page_table_isolation"] is not None:
        return workload
    order_1 = release.pgd_allocation_order == 1
    if bool(made.here.get("page_table_isolation")) == order_1 or not as_made(workload):
        return workload
    return _made_here(workload, page_table_isolation=order_1)


def _made_here(workload: Workload, **here: Any) -> Workload:
    """Made anew with what a machine or kernel gives it, which another one may give otherwise."""
    return replace(again(workload, here=here), pages=workload.pages)

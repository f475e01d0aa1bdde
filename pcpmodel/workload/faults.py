"""will-it-scale page_fault1 and page_fault2: fault in a mapping, unmap it, again."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from pcpmodel.errors import InputError
from pcpmodel.workload.program import Program, Task, Workload, _count

__all__ = ["page_fault1", "page_fault2"]

#: Mapping of one process [pages]: 128 MiB (will-it-scale, tests/page_fault1.c).
MAPPING_PAGES = 32768
#: Time per page of a fault and of an unmap, the refill and drain included, at one process
#: [ns]: data/workload/native-kbuild, rates.csv.
FAULT_NS = 1441.2
UNMAP_NS = 77.8
#: Pages after which the score is counted [pages]: 2 MiB, what one page table maps.
_PART_PAGES = 512


def _faults(
    name: str, processes: int, pages: int, fault_ns: float, unmap_ns: float, lru: bool
) -> Workload:
    processes = _count("processes", processes, 1)
    pages = _count("pages", pages, 1)
    if fault_ns <= 0:
        raise InputError(f"fault_ns={fault_ns} is not above 0 ns")
    p = Program()
    whole, rest = divmod(pages, _PART_PAGES)
    with p.forever():
        if whole:
            with p.repeat(whole):
                p.alloc(_PART_PAGES, ns=fault_ns, lru=lru)
                p.score(_PART_PAGES)
        if rest:
            p.alloc(rest, ns=fault_ns, lru=lru)
            p.score(rest)
        p.free(pages, ns=unmap_ns, lru=lru)
    return Workload(
        name,
        (Task(p),) * processes,
        unit="pages faulted",
        pages=processes * pages,
        params={
            "processes": processes,
            "pages": pages,
            "fault_ns": fault_ns,
            "unmap_ns": unmap_ns,
            "lru": lru,
        },
    )


def page_fault1(
    processes: int,
    *,
    pages: int = MAPPING_PAGES,
    fault_ns: float = FAULT_NS,
    unmap_ns: float = UNMAP_NS,
    lru: bool = False,
) -> Workload:
    """Processes that each fault in anonymous memory page by page and unmap it.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    pages : int
        Pages of the mapping [pages].
    fault_ns, unmap_ns : float
        Time per page of fault and unmap without the zone lock [ns].
    lru : bool
        Also take the node's LRU lock once per pagevec.

    Returns
    -------
    Workload
    """
    return _faults("page_fault1", processes, pages, fault_ns, unmap_ns, lru)


def page_fault2(
    processes: int,
    *,
    pages: int = MAPPING_PAGES,
    fault_ns: float = 1.5 * FAULT_NS,
    unmap_ns: float = UNMAP_NS,
    lru: bool = False,
) -> Workload:
    """`page_fault1` on a private file mapping: every fault also copies a page.

    The copy is taken as half of the time of an anonymous fault; an assumption.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    pages : int
        Pages of the mapping [pages].
    fault_ns, unmap_ns : float
        Time per page of fault and unmap without the zone lock [ns].
    lru : bool
        Also take the node's LRU lock once per pagevec.

    Returns
    -------
    Workload
    """
    return _faults("page_fault2", processes, pages, fault_ns, unmap_ns, lru)

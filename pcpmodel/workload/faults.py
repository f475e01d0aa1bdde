"""will-it-scale page_fault1 and page_fault2: fault in a mapping, unmap it, again."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable

from pcpmodel.errors import InputError
from pcpmodel.kernel.sizing import page_shift
from pcpmodel.workload.program import Program, _count, _tasks
from pcpmodel.workload.tasks import Made, Task, Workload

__all__ = ["page_fault1", "page_fault2"]

#: Mapping of one process [KiB]: 128 MiB (will-it-scale, tests/page_fault1.c).
MAPPING_KIB = 128 << 10
#: Time per page of a fault and of an unmap, the refill and drain included, at one process
#: [ns]: data/workload/native-kbuild, rates.csv.
FAULT_NS = 1441.2
UNMAP_NS = 77.8
#: Time to zero 4 KiB, part of the fault [ns]: at 10 GB/s, an assumption.  What a page of another
#: size takes beside it is taken not to depend on the size.
ZERO_NS = 4096 / 10.0
#: Pages of page_fault1 in the time of one of page_fault2, where locks take at most 5 %: 1.69 on a
#: Skylake desktop, 1.59 on two sockets of Westmere, 2.07 on a Sandy Bridge desktop, all CPUs busy
#: (data/published/batchsize-2018, batch 31); the middle one.
FILE_OVER_ANONYMOUS = 1.69
#: What a fault on a private file mapping takes longer, a copy of 4 KiB and the file's part [ns].
COPY_NS = (FILE_OVER_ANONYMOUS - 1) * (FAULT_NS + UNMAP_NS)
#: Memory after which the score is counted [KiB]: 2 MiB, what one page table of 4 KiB pages maps.
_PART_KIB = 2 << 10


def _faults(
    make: Callable[..., Workload],
    processes: int,
    pages: int | None,
    fault_ns: float | None,
    unmap_ns: float,
    lru: bool,
    threads: bool,
    page_size_kib: int,
    copy_ns: float = 0.0,
) -> Workload:
    times = (1 << page_shift(page_size_kib)) // 4096  # as large as a page of 4 KiB
    processes = _tasks("processes", processes)
    pages = _count("pages", MAPPING_KIB // page_size_kib if pages is None else pages, 1)
    usual = fault_ns is None
    if fault_ns is None:
        fault_ns = FAULT_NS + (times - 1) * ZERO_NS + times * copy_ns
    if not isinstance(fault_ns, int | float) or not fault_ns > 0:
        raise InputError(f"fault_ns={fault_ns!r} is not above 0 ns")
    p = Program()
    part = _PART_KIB // page_size_kib
    whole, rest = divmod(pages, part)
    with p.forever():
        if whole:
            with p.repeat(whole):
                p.alloc(part, ns=fault_ns, lru=lru)
                p.score(part)
        if rest:
            p.alloc(rest, ns=fault_ns, lru=lru)
            p.score(rest)
        p.free(pages, ns=unmap_ns, lru=lru)
    params = {
        "processes": processes,
        "pages": pages,
        "fault_ns": fault_ns,
        "unmap_ns": unmap_ns,
        "lru": lru,
        "threads": threads,
    }
    given = params | {"page_size_kib": page_size_kib}
    if usual:
        del given["fault_ns"]
    four = page_size_kib == 4
    return Workload(
        make.__name__,
        (Task(p),) * processes,
        unit="pages faulted" if four else f"pages of {page_size_kib} KiB faulted",
        pages=processes * pages,
        params=params if four else params | {"page_size_kib": page_size_kib},
        page_size_kib=page_size_kib,
        made=Made(make, given),
    )


def page_fault1(
    processes: int,
    *,
    pages: int | None = None,
    fault_ns: float | None = None,
    unmap_ns: float = UNMAP_NS,
    lru: bool = False,
    threads: bool = False,
    page_size_kib: int = 4,
) -> Workload:
    """Processes that each fault in anonymous memory page by page and unmap it.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    pages : int, optional
        Pages of the mapping [pages]; by default 128 MiB.
    fault_ns, unmap_ns : float, optional
        Time per page of fault and unmap without the locks [ns].  A fault's by default that of the
        machine it is simulated on (its cost sheet: `pcpmodel.simulation.work`), until then as
        recorded for pages of 4 KiB, and for larger ones what zeroing the rest takes more, at 10
        GB/s (an assumption).
    lru : bool
        Also take the node's LRU lock once per batch of folios.
    threads : bool
        Threads of one process, which share the line of a lock at every fault.
    page_size_kib : int
        Size of a page: 4, 16 or 64 [KiB].

    Returns
    -------
    Workload
    """
    return _faults(page_fault1, processes, pages, fault_ns, unmap_ns, lru, threads, page_size_kib)


def page_fault2(
    processes: int,
    *,
    pages: int | None = None,
    fault_ns: float | None = None,
    unmap_ns: float = UNMAP_NS,
    lru: bool = False,
    threads: bool = False,
    page_size_kib: int = 4,
) -> Workload:
    """`page_fault1` on a private file mapping: every fault also copies a page.

    It takes 1.69 times as long as an anonymous page, as published of a machine whose locks do
    not wait.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    pages : int, optional
        Pages of the mapping [pages]; by default 128 MiB.
    fault_ns, unmap_ns : float, optional
        Time per page of fault and unmap without the locks [ns]; by default as for
        `page_fault1`, and the copy.
    lru : bool
        Also take the node's LRU lock once per batch of folios.
    threads : bool
        Threads of one process, which share the line of a lock at every fault.
    page_size_kib : int
        Size of a page: 4, 16 or 64 [KiB].

    Returns
    -------
    Workload
    """
    return _faults(
        page_fault2, processes, pages, fault_ns, unmap_ns, lru, threads, page_size_kib, COPY_NS
    )

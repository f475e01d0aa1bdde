"""will-it-scale's tests by name, those that touch the page allocator; the others say why not.

`page_fault1` and `page_fault2` are in `pcpmodel.workload.faults`.  What a test asks for follows
from its source (tests/*.c of will-it-scale): sizes are exact.  How long it takes without locks is
recorded, published or assumed, as each says.  All are separate processes; threads of one process
also wait for its mmap_lock, which is not modelled here.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.workload.faults import COPY_NS, FAULT_NS, MAPPING_KIB, UNMAP_NS, ZERO_NS
from pcpmodel.workload.program import Program, _count, _tasks
from pcpmodel.workload.tasks import Task, Workload

__all__ = ["REFUSED", "fallocate1", "malloc1", "page_fault3", "tlb_flush1", "tlb_flush2"]

#: Pages that one page table maps (x86-64: 512 entries of 8 bytes), and of the mapping.
_TABLE_PAGES = 512
_MAPPING_PAGES = MAPPING_KIB // 4
#: Time of a fault on a shared file mapping and its part of the unmap, and of a malloc() and free()
#: of 128 MiB, over that of an anonymous page (page_fault1), where locks take at most 5 %: on a
#: Westmere of two sockets 0.29 and 2.30, on a Sandy Bridge desktop 0.46 and 2.96, on a Skylake
#: desktop 0.51 and 2.65, all CPUs busy (data/published/batchsize-2018, batch 31); the middle ones.
_SHARED_OVER_ANONYMOUS = 0.46
_MALLOC_OVER_ANONYMOUS = 2.65

_CACHED = "the pages of its file stay in the page cache: none is allocated or freed"
_SLABS = "objects of slabs that come and go: no page as long as a slab is there"
_NOTHING = "no memory is allocated"
#: Tests without a workload here, and why.
REFUSED = {
    **dict.fromkeys(("brk1", "brk2"), "the page by which the heap grows is never touched"),
    **dict.fromkeys(("mmap1", "mmap2"), "nothing of the mapping is ever touched"),
    "malloc2": "1 kB of a heap that stays: no page is allocated or freed",
    "page_fault4": "the pages of the file stay in the page cache and only page tables come and go, "
    "as in page_fault3; how long such a fault takes nobody published",
    "tlb_flush3": "the pages of the file stay in the page cache and only page tables come and go; "
    "how long a flush takes is not known here",
    "fallocate2": "what its file system does in /tmp: pages on tmpfs, as fallocate1 has them, else "
    "blocks of a disk",
    "pipe1": "a byte in a page that the pipe keeps for the next one (tmp_page)",
    "threadspawn1": "a kernel stack, of which each CPU keeps two, and " + _SLABS,
    "context_switch1": "a byte in a page that the pipe keeps for the next one (tmp_page)",
    **dict.fromkeys(
        ("pread1", "pread2", "pread3", "pwrite1", "pwrite2", "pwrite3", "read1", "read2", "read3",
         "read4", "readseek", "readseek1", "readseek2", "readseek3", "write1", "writeseek",
         "writeseek1", "writeseek2", "writeseek3"),
        _CACHED,
    ),
    **dict.fromkeys(("dup1", "open1", "open2", "open3", "unix1", "unlink1", "unlink2"), _SLABS),
    **dict.fromkeys(("lock1", "lock2", "poll1", "poll2", "signal1"), _SLABS),
    **dict.fromkeys(
        ("access1", "access2", "eventfd1", "fstat1", "fstat2", "futex1", "futex2", "futex3",
         "futex4", "getppid1", "lseek1", "lseek2", "posix_semaphore1", "pthread_mutex1",
         "pthread_mutex2", "pthread_mutex3", "pthread_mutex4", "pthread_mutex5", "sched_yield",
         "stat1", "stat2"),
        _NOTHING,
    ),
}  # fmt: skip


def _time(name: str, value: float | None, default: float) -> float:
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9:
        raise InputError(f"{name}={value!r} is not a number of ns above 0, up to 1e9")
    return float(value)


def _made(name: str, p: Program, processes: int, unit: str, held: int, **params: Any) -> Workload:
    params = {"processes": processes, **params}
    return Workload(name, (Task(p),) * processes, unit, processes * held, params=params)


def page_fault3(
    processes: int,
    *,
    pages: int = _MAPPING_PAGES,
    fault_ns: float | None = None,
    unmap_ns: float | None = None,
) -> Workload:
    """Processes that write to every page of a shared mapping of a file of their own, and unmap it.

    The file's pages come once and stay in the page cache; each round takes and frees the page
    tables alone, one for 512 pages.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    pages : int
        Pages of the mapping [pages]; by default 128 MiB.
    fault_ns, unmap_ns : float, optional
        Time per page of fault and unmap [ns]; by default 0.46 of what `page_fault1` takes, as
        published of three machines whose locks do not wait (0.29 to 0.51).

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For a number out of range.
    """
    processes, pages = _tasks("processes", processes), _count("pages", pages, 1)
    fault_ns = _time("fault_ns", fault_ns, _SHARED_OVER_ANONYMOUS * FAULT_NS)
    unmap_ns = _time("unmap_ns", unmap_ns, _SHARED_OVER_ANONYMOUS * UNMAP_NS)
    whole, rest = divmod(pages, _TABLE_PAGES)
    p = Program()
    p.alloc(pages, ns=FAULT_NS, lru=True)
    with p.forever():
        for times, part in ((whole, _TABLE_PAGES), (min(rest, 1), rest)):
            if times:
                with p.repeat(times):
                    p.alloc(1, migratetype="unmovable")
                    p.work(part * fault_ns)
                    p.score(part)
        p.work(pages * unmap_ns)
        p.free(whole + (rest > 0), migratetype="unmovable")
    return _made(
        "page_fault3", p, processes, "pages faulted", pages + whole + 1,
        pages=pages, fault_ns=fault_ns, unmap_ns=unmap_ns,
    )  # fmt: skip


def malloc1(
    processes: int,
    *,
    iteration_ns: float | None = None,
    lru: bool = True,
    rcu_rounds: int = 0,
) -> Workload:
    """Processes that malloc() 128 MiB and free() it, of which they touch the first page.

    That is an anonymous page and the page table over it, taken and freed in every round.  The page
    goes on the LRU alone, before it is unmapped, and off it alone: two holds of its lock a round.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    iteration_ns : float, optional
        Time of a round without locks [ns]; by default 2.65 times what a page of `page_fault1`
        takes, as published of three machines whose locks do not wait (2.30 to 2.96).
    lru : bool
        Take the LRU lock.
    rcu_rounds : int
        Rounds after which the page tables of all of them come back at once, where RCU frees them
        (MMU_GATHER_RCU_TABLE_FREE); each round then also takes a page that lists its table.  0:
        they come back in their round.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For a time that is less than that of the fault and the unmap.
    """
    processes = _tasks("processes", processes)
    least = FAULT_NS + UNMAP_NS
    iteration_ns = _time("iteration_ns", iteration_ns, _MALLOC_OVER_ANONYMOUS * least)
    if iteration_ns < least:
        raise InputError(f"iteration_ns={iteration_ns} is less than fault and unmap, {least:g} ns")
    rcu_rounds = _count("rcu_rounds", rcu_rounds)
    tables = 2 if rcu_rounds else 1
    p = Program()
    with p.forever():
        with p.repeat(max(rcu_rounds, 1)):
            p.work(iteration_ns - least)
            p.alloc(tables, migratetype="unmovable")
            p.alloc(1, ns=FAULT_NS, lru=lru)
            p.free(1, ns=UNMAP_NS, lru=lru)
            p.score()
        p.free(migratetype="unmovable")
    return _made(
        "malloc1", p, processes, "rounds", 1 + tables * max(rcu_rounds, 1),
        iteration_ns=iteration_ns, lru=lru, rcu_rounds=rcu_rounds,
    )  # fmt: skip


def _flushed(
    name: str, processes: int, fault_ns: float, pages: int, of_a_file: bool, lru: bool
) -> Workload:
    """Page after page: write to it, MADV_DONTNEED, read it again."""
    processes = _tasks("processes", processes)
    p = Program()
    if of_a_file:  # its own pages, which are read, come once
        p.alloc(pages, ns=FAULT_NS, lru=lru)
    tables = -(-pages // _TABLE_PAGES)
    with p.forever():
        with p.repeat(tables):
            p.alloc(1, migratetype="unmovable")
            with p.repeat(pages // tables):
                p.alloc(1, ns=fault_ns, lru=lru, migratetype="movable")
                p.free(1, ns=UNMAP_NS, lru=lru, sequence="reversed")
                p.work(_SHARED_OVER_ANONYMOUS * FAULT_NS)
                p.score()
        p.free(tables, migratetype="unmovable")
    held = (pages if of_a_file else 1) + tables
    return _made(name, p, processes, "pages flushed", held, fault_ns=fault_ns, lru=lru)


def tlb_flush1(processes: int, *, fault_ns: float | None = None, lru: bool = True) -> Workload:
    """Processes that write a page of a private file mapping, drop it and read it again.

    Every write takes a page and every drop frees it, so that the per-CPU list alone serves; the
    LRU lock is taken for each on its way on and off.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    fault_ns : float, optional
        Time of the write [ns]; by default that of `page_fault2`.  The read is assumed to take that
        of `page_fault3`, the drop and its flush that of an unmap.
    lru : bool
        Take the LRU lock.

    Returns
    -------
    Workload
    """
    fault_ns = _time("fault_ns", fault_ns, FAULT_NS + COPY_NS)
    return _flushed("tlb_flush1", processes, fault_ns, _MAPPING_PAGES, True, lru)


def tlb_flush2(processes: int, *, fault_ns: float | None = None, lru: bool = True) -> Workload:
    """`tlb_flush1` in 1 MiB of anonymous memory.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    fault_ns : float, optional
        Time of the write [ns]; by default that of `page_fault1`.  The read, of the zero page, and
        the drop are assumed to take what they take in `tlb_flush1`.
    lru : bool
        Take the LRU lock.

    Returns
    -------
    Workload
    """
    fault_ns = _time("fault_ns", fault_ns, FAULT_NS)
    return _flushed("tlb_flush2", processes, fault_ns, 256, False, lru)


def fallocate1(processes: int, *, page_ns: float | None = None, lru: bool = True) -> Workload:
    """Processes that have 1 MiB of a file in tmpfs allocated, 8 KiB at a time, and truncate it.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    page_ns : float, optional
        Time per page of fallocate() [ns]; by default that of a fault without zeroing, and of
        truncation that of an unmap: both are assumptions.
    lru : bool
        Take the LRU lock, once per batch of folios.

    Returns
    -------
    Workload
    """
    processes = _tasks("processes", processes)
    page_ns = _time("page_ns", page_ns, FAULT_NS - ZERO_NS)
    p = Program()
    with p.forever():
        with p.repeat(128):
            p.alloc(2, ns=page_ns, lru=lru)
            p.score()
        p.free(256, ns=UNMAP_NS, lru=lru)
    return _made("fallocate1", p, processes, "calls", 256, page_ns=page_ns, lru=lru)

"""Memory that comes slowly and goes at once: exits, unlinks, the end of a burst.

Each tells its phases apart: faults and exit, writes and unlinks, the burst (`Result.phases`).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math

from pcpmodel.datasets.packages import load_workload
from pcpmodel.errors import InputError, integer
from pcpmodel.workload.faults import FAULT_NS, UNMAP_NS
from pcpmodel.workload.program import ALL, ORDERS, Program, _count, _tasks
from pcpmodel.workload.tasks import Channel, Task, Workload

__all__ = ["exit_storm", "file_churn", "idle_after_burst"]

#: Pages that one page table maps (x86-64: 512 entries of 8 bytes).
_TABLE_PAGES = 512
#: Files of the recorded writers, ``data/workload/6-12-tmpfs``: 8 files of 512 KiB each.
_FILE_PAGES, _FILES = 128, 8
#: The recorded burst (recording 7.2-idle-decay-4cpu): 24 MiB twice, then 10 s of rest.
_BURST_PAGES, _BURSTS, _REST_S = 6144, 2, 10.0


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"{name}={value!r} is not a finite number above 0")
    return value


def exit_storm(
    processes: int,
    *,
    pages: int = 1 << 18,
    spread: bool = False,
    fault_ns: float = FAULT_NS,
    unmap_ns: float = UNMAP_NS,
    lru: bool = True,
) -> Workload:
    """One big process on several CPUs that exits, again and again.

    Its threads fault in anonymous memory, each its part; then all pages and after them the
    page tables are freed, by one CPU (exit_mmap() by the last thread) or by all.

    Parameters
    ----------
    processes : int
        Threads of the process, one per CPU, all on node 0 and in one zone.
    pages : int
        Pages of the process [pages]; by default 1 GiB, which no per-CPU list takes up.
    spread : bool
        Every thread frees its own part (each unmaps before it ends) instead of the last one all.
    fault_ns, unmap_ns : float
        Time per page of fault and exit without the zone lock [ns]; as recorded natively.
    lru : bool
        The pages are on the LRU list, whose lock is taken once per batch of folios.

    Returns
    -------
    Workload
    """
    threads = _tasks("processes", processes)
    pages = _count("pages", pages, threads * _TABLE_PAGES)
    _positive("fault_ns", fault_ns)
    _positive("unmap_ns", unmap_ns)
    tables = pages // threads // _TABLE_PAGES
    everything = {"movable_0": ALL, "unmovable_0": ALL}

    def thread(number: int) -> Program:
        """The last one frees; the others pass on what they have and have got, and wait."""
        p = Program()
        first, last = number == 0, number == threads - 1
        with p.forever():
            with p.phase("fault"), p.repeat(tables):
                p.alloc(1, migratetype="unmovable", ns=fault_ns)
                p.alloc(_TABLE_PAGES, ns=fault_ns, lru=lru)
            if not (spread or last):
                p.recv(1, **everything)
            if spread or first:
                with p.phase("exit"):
                    for of in ("home", "peer"):  # one zone, unless the threads are but two
                        p.free(ALL, ns=unmap_ns, lru=lru, of=of)
                    for of in ("home", "peer"):
                        p.free(ALL, migratetype="unmovable", ns=unmap_ns, of=of)
                p.score()
            else:
                p.give(ALL, of="peer")
                p.give(ALL, migratetype="unmovable", of="peer")
                p.send(0, **everything)
                p.recv(2)  # the next process begins
            if not (spread or last):
                p.send(3)
        return p

    # Channels i: pages from thread i + 1 to thread i; behind them, the word to go on, back.
    links = 0 if spread else threads - 1
    channels = [Channel(i + 1, i, 1) for i in range(links)]
    channels += [Channel(i, i + 1, 1) for i in range(links)]
    programs = {kind: thread(kind) for kind in {0, min(1, threads - 1), threads - 1}}
    tasks = []
    for i in range(threads):
        ends = (max(i - 1, 0), min(i, links - 1))  # below and above
        slots = (*ends, *(links + end for end in ends)) if links else ()
        program = programs.get(i, programs[min(1, threads - 1)])
        tasks.append(Task(program, 0, slots, min(i + 1, threads - 1)))
    return Workload(
        "exit_storm",
        tuple(tasks),
        "exits" if not spread else "exits of a thread",
        threads * tables * (_TABLE_PAGES + 1),
        tuple(channels),
        {
            "processes": threads,
            "pages": pages,
            "spread": spread,
            "fault_ns": fault_ns,
            "unmap_ns": unmap_ns,
            "lru": lru,
        },
    )


def file_churn(
    processes: int,
    *,
    file_pages: int = _FILE_PAGES,
    files: int = _FILES,
    order: int = 0,
    copy_ns: float | None = None,
    unlink_ns: float = UNMAP_NS,
    lru: bool = True,
) -> Workload:
    """Writers that fill the page cache and unlink their files.

    Parameters
    ----------
    processes : int
        Writers, one per CPU.
    file_pages, files : int
        Length of a file [pages], and files written before all are unlinked; as recorded
        (``6.12-tmpfs``).
    order : int
        Order of the folios, 0..10; pages come and go in blocks of that order.
    copy_ns : float, optional
        Time to write one page [ns]; by default that of 4 KiB at the recorded throughput of
        64 KiB writes to a socket, which copy the same way.
    unlink_ns : float
        Time to drop one folio without the zone lock [ns]; by default that of an unmap.
    lru : bool
        The pages are on the LRU list; truncation takes its lock once per batch of folios.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For files that are no multiple of the folios, or a number out of range.
    """
    processes = _tasks("processes", processes)
    file_pages, files = _count("file_pages", file_pages, 1), _count("files", files, 1)
    if copy_ns is None:
        rates = load_workload("native-kbuild").tables["rates"].set_index("workload")
        row = rates.loc["af_unix_stream_65536_byte_writes"]
        mib_per_s = float(row[row["unit"] == "MiB/s"]["value"].iloc[0])
        copy_ns = 4096 / 2**20 / mib_per_s * 1e9
    _positive("copy_ns", copy_ns)
    _positive("unlink_ns", unlink_ns)
    if file_pages % (1 << integer("order", order, 0, max(ORDERS))):
        raise InputError(f"file_pages={file_pages} is no multiple of folios of order {order}")
    p = Program()
    with p.forever():
        with p.phase("write"):
            p.alloc(files * file_pages >> order, order=order, ns=copy_ns * (1 << order), lru=lru)
        with p.phase("unlink"), p.repeat(files):
            p.free(file_pages >> order, order=order, ns=unlink_ns, lru=lru)
            p.score()
    return Workload(
        "file_churn",
        (Task(p),) * processes,
        "files",
        processes * files * file_pages,
        params={
            "processes": processes,
            "file_pages": file_pages,
            "files": files,
            "order": order,
            "copy_ns": copy_ns,
            "unlink_ns": unlink_ns,
            "lru": lru,
        },
    )


def idle_after_burst(
    processes: int,
    *,
    pages: int = _BURST_PAGES,
    bursts: int = _BURSTS,
    idle_s: float = _REST_S,
    wake_s: float | None = None,
    fault_ns: float = FAULT_NS,
    unmap_ns: float = UNMAP_NS,
) -> Workload:
    """Processes that fault in and unmap memory, then sleep while their lists decay.

    How fast the lists empty is the vmstat worker's doing: see ``stat_interval_s`` and
    ``nohz_idle`` of `simulate`.

    Parameters
    ----------
    processes : int
        Processes, one per CPU.
    pages : int
        Pages of the mapping [pages].
    bursts : int
        Times that it is filled and unmapped before the rest.
    idle_s : float
        Rest [s].  This and the two before are as in the recording 7.2-idle-decay-4cpu.
    wake_s : float, optional
        From one wake-up during the rest to the next [s], each taking and freeing one page; by
        default none.
    fault_ns, unmap_ns : float
        Time per page of fault and unmap without the zone lock [ns].

    Returns
    -------
    Workload
    """
    processes = _tasks("processes", processes)
    pages, bursts = _count("pages", pages, 1), _count("bursts", bursts, 1)
    _positive("fault_ns", fault_ns)
    _positive("unmap_ns", unmap_ns)
    _positive("idle_s", idle_s)
    p = Program()
    with p.forever():
        with p.phase("burst"), p.repeat(bursts):
            p.alloc(pages, ns=fault_ns)
            p.free(pages, ns=unmap_ns)
            p.score(pages)
        if wake_s is None:
            p.idle(idle_s * 1e9)
        else:
            with p.repeat(max(1, round(idle_s / _positive("wake_s", wake_s)))):
                p.idle(wake_s * 1e9)
                p.alloc(1, ns=fault_ns)
                p.free(1, ns=unmap_ns)
    return Workload(
        "idle_after_burst",
        (Task(p),) * processes,
        "pages faulted",
        processes * pages,
        params={
            "processes": processes,
            "pages": pages,
            "bursts": bursts,
            "idle_s": idle_s,
            "wake_s": wake_s,
            "fault_ns": fault_ns,
            "unmap_ns": unmap_ns,
        },
        steady=False,
    )

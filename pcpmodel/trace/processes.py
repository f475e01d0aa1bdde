"""What each process of a recording did with its pages, for `pcpmodel.workload.recorded`.

A page belongs to the process that allocated it; who frees it does not matter,
when and on which CPU does.  The time since the page event before on the same CPU
is an event's CPU time.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcpmodel.kernel.lists import MIGRATETYPES, PCP_ORDERS
from pcpmodel.trace.ftrace import EVENT_IDS, Events, TraceReader

__all__ = ["Processes"]

_TYPES = tuple(MIGRATETYPES)
#: Processes kept, evenly spaced in the order of their first page, and runs kept of each, from
#: its middle.
_MOST_PROCESSES, _MOST_RUNS = 512, 800

#: Fields of each table: name, type, unit, what it is.
_FIELDS = {
    "processes": [
        ("process", "integer", "1", "number in this recording"),
        ("command", "string", "", "its name at its first allocation"),
        ("weight", "integer", "1", "how many times the runs kept it had"),
        ("allocated_pages", "integer", "pages", "pages allocated"),
        ("freed_pages", "integer", "pages", "of these freed on the same CPU"),
        ("sent_pages", "integer", "pages", "of these freed on another CPU"),
        ("lifetime_ns", "integer", "ns", "from its first page to its last"),
    ],
    "scripts": [
        ("process", "integer", "1", "number in this recording"),
        ("what", "string", "", "alloc; free; send: freed on another CPU"),
        ("order", "integer", "1", "blocks of 2 ** order pages"),
        ("migratetype", "string", "", "of the request"),
        ("blocks", "integer", "blocks", "one after the other"),
        ("ns", "integer", "ns", "CPU time of all, by the recording's clock"),
    ],
    "orders": [
        ("order", "integer", "1", "blocks of 2 ** order pages"),
        ("migratetype", "string", "", "of the request"),
        ("allocations", "integer", "blocks", "in the whole recording"),
    ],
    "run_lengths": [
        ("what", "string", "", "alloc, free or send"),
        ("from_blocks", "integer", "blocks", "shortest run of this class"),
        ("to_blocks", "integer", "blocks", "longest run of this class"),
        ("runs", "integer", "1", "in the whole recording, of one process each"),
    ],
    "figures": [
        ("quantity", "string", "", "what"),
        ("value", "number", "as in the column unit", "how much"),
        ("unit", "string", "", "of the value"),
    ],
}


@dataclass
class Process:
    """What one process did with its pages.

    Attributes
    ----------
    command : str
        Its name at its first allocation.
    begin, end : int
        First and last event of its pages [ns].
    runs : list
        ``[what, order, migratetype, blocks, ns]``; what is "alloc", "free" or "send", freed on
        another CPU.
    """

    command: str
    begin: int = 0
    end: int = 0
    runs: list[list[Any]] = field(default_factory=list)

    def add(self, what: str, order: int, migratetype: int, ns: int) -> None:
        """One more block."""
        kind = [what, order, migratetype]
        if self.runs and self.runs[-1][:3] == kind:
            self.runs[-1][3] += 1
            self.runs[-1][4] += ns
        else:
            self.runs.append([*kind, 1, ns])

    def window(self) -> list[list[Any]]:
        """Of a long process the middle; only pages allocated there are freed there."""
        over = len(self.runs) - _MOST_RUNS
        if over <= 0:
            return self.runs
        held: Counter[tuple[int, int]] = Counter()
        kept = []
        for what, order, migratetype, blocks, ns in self.runs[over // 2 : over // 2 + _MOST_RUNS]:
            n = blocks if what == "alloc" else min(blocks, held[order, migratetype])
            held[order, migratetype] += n if what == "alloc" else -n
            if n:
                kept.append([what, order, migratetype, n, ns * n // blocks])
        return kept


class Processes:
    """The processes of one trace, and its figures.

    Parameters
    ----------
    trace : tuple of Events and TraceReader
        As `pcpmodel.trace.ftrace.read_trace` returns them.
    longest_gap_ns : int, optional
        A longer time without a page event on a CPU is cut to this [ns]: the CPU slept.
    """

    def __init__(
        self, trace: tuple[Events, TraceReader], longest_gap_ns: int | None = 1_000_000
    ) -> None:
        events, reader = trace
        rows = events.rows
        allocs, frees = EVENT_IDS["mm_page_alloc"], EVENT_IDS["mm_page_free"]
        rows = rows[np.isin(rows["event"], (allocs, frees))]
        comms = reader.comms
        self._processes: dict[tuple[int, int], Process] = {}
        self._orders: Counter[tuple[int, int]] = Counter()
        self._far_ns = self._far = self._near = self._skipped = 0
        owner: dict[int, tuple[Process, int, int, int]] = {}
        last: dict[int, int] = {}
        for time, pid, cpu, event, pfn, order, migratetype, comm in zip(
            *(rows[c].tolist() for c in ("time", "pid", "cpu", "event", "a", "b", "c", "comm")),
            strict=True,
        ):
            gap = max(0, time - last.get(cpu, time))
            if longest_gap_ns is not None:
                gap = min(gap, longest_gap_ns)
            if event == allocs:
                if order not in PCP_ORDERS or not 0 <= migratetype < len(_TYPES):
                    self._skipped += 1
                    continue
                # The idle tasks of all CPUs have number 0.
                process = self._processes.setdefault(
                    (pid, cpu if pid == 0 else -1), Process(comms[comm], begin=time)
                )
                process.add("alloc", order, migratetype, gap)
                process.end = time
                owner[pfn] = (process, cpu, order, migratetype)
                self._orders[order, migratetype] += 1
            elif pfn in owner:
                process, home, order, migratetype = owner.pop(pfn)
                far = cpu != home
                process.add("send" if far else "free", order, migratetype, 0 if far else gap)
                process.end = max(process.end, time)
                self._far_ns += gap * far
                self._far += far
                self._near += not far
            else:
                continue  # allocated before: its time goes to the event that follows
            last[cpu] = time
        self._kept = len(owner)

    def page_us(self) -> float:
        """CPU time per page allocated [us]; 0 if no page was."""
        near = sum(run[4] for p in self._processes.values() for run in p.runs)
        pages = sum(n << order for (order, _), n in self._orders.items())
        return (near + self._far_ns) / max(1, pages) / 1000

    def _run_lengths(self) -> list[tuple[str, int, int, int]]:
        classes: dict[str, Counter[int]] = defaultdict(Counter)
        for process in self._processes.values():
            for what, _, _, blocks, _ in process.runs:
                classes[what][blocks.bit_length() - 1] += 1
        return [
            (what, 1 << k, (2 << k) - 1, n)
            for what in ("alloc", "free", "send")
            for k, n in sorted(classes[what].items())
        ]

    def tables(self, page_us: float) -> dict[str, tuple[list[tuple[str, ...]], list[Any]]]:
        """Fields and rows of each table of the package.

        Parameters
        ----------
        page_us : float
            CPU time per page at native speed [us].
        """
        everyone = list(self._processes.values())
        step = max(1.0, len(everyone) / _MOST_PROCESSES)
        chosen = [everyone[int(k * step)] for k in range(min(len(everyone), _MOST_PROCESSES))]
        processes, runs = [], []
        for i, process in enumerate(chosen):
            window = process.window()
            pages: Counter[str] = Counter()
            for what, order, _, blocks, _ in process.runs:
                pages[what] += blocks << order
            weight = max(1, round(len(process.runs) / max(1, len(window))))
            moved = (pages["alloc"], pages["free"], pages["send"])
            processes.append((i, process.command, weight, *moved, process.end - process.begin))
            runs += [(i, w, o, _TYPES[m], n, ns) for w, o, m, n, ns in window]
        freed = self._far + self._near
        figures = [
            ("CPU time per page as recorded", round(self.page_us(), 4), "us"),
            ("CPU time per page at native speed", round(page_us, 4), "us"),
            ("blocks freed on another CPU", round(self._far / max(1, freed), 5), "1"),
            (
                "CPU time of a block freed on another CPU",
                round(self._far_ns / max(1, self._far)),
                "ns",
            ),
            (
                "blocks not freed in the recording",
                round(self._kept / max(1, self._kept + freed), 5),
                "1",
            ),
            ("blocks that no per-CPU list holds", self._skipped, "blocks"),
        ]
        rows = {
            "processes": processes,
            "scripts": runs,
            "orders": [(o, _TYPES[m], n) for (o, m), n in sorted(self._orders.items())],
            "run_lengths": self._run_lengths(),
            "figures": figures,
        }
        return {name: (fields, rows[name]) for name, fields in _FIELDS.items()}

"""Summarise recorded workloads into ``data/workload/``, a process at a time.

``python tools/summarise_recorded.py ../shared/traces`` reads the recordings at
native speed from there and the others from ``data/traces``.  It writes what each
process did with its pages: runs of allocations, when those pages were freed, and
on which CPU.  `pcpmodel.workload.recorded` plays them back.

A page belongs to the process that allocated it; who frees it does not matter,
when and on which CPU does.  The time since the page event before on the same CPU
is an event's CPU time.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from summarise_native import FIGURE, OUT, write

from pcpmodel.data_package import load_workload
from pcpmodel.trace.ftrace import EVENT_IDS, read_trace

#: Recorded at native speed -> file below the directory given.
NATIVE = {
    "native-build": "native-kbuild/trace.txt.gz",
    "native-unix": "native-streams/unix.trace.txt.gz",
    "native-tcp": "native-streams/tcp.trace.txt.gz",
}
#: Recorded in an emulated guest -> whose native time per page it takes.
EMULATED = {
    "6.1-unixpair": "native-unix",
    "6.12-build": "native-build",
    "6.12-mixed": "page_fault1",
    "6.12-tcp": "native-tcp",
    "6.12-thp": "page_fault1",
    "6.12-tmpfs": "page_fault1",
    "6.18-exitstorm": "page_fault1",
    "6.18-unixpair": "native-unix",
    "7.2-build": "native-build",
    "7.2-exitstorm": "page_fault1",
}
#: Orders that per-CPU lists hold.
ORDERS = (0, 1, 2, 3, 9)
#: Runs kept of one process, from its middle; its weight says how many it had.
MOST_RUNS = 800
#: A longer time without a page event is cut to this, but not in the native build, which was
#: busy all the time [ns].
LONGEST_GAP_NS = 1_000_000
TYPES = ("unmovable", "movable", "reclaimable")


@dataclass
class Process:
    """What one process did with its pages: [what, order, migratetype, blocks, ns]."""

    command: str
    runs: list[list] = field(default_factory=list)
    begin: int = 0
    end: int = 0

    def add(self, what: str, order: int, migratetype: int, ns: int) -> None:
        kind = [what, order, migratetype]
        if self.runs and self.runs[-1][:3] == kind:
            self.runs[-1][3] += 1
            self.runs[-1][4] += ns
        else:
            self.runs.append([*kind, 1, ns])

    def window(self) -> list[list]:
        """The middle of a long process; only pages allocated there are freed there."""
        over = len(self.runs) - MOST_RUNS
        if over <= 0:
            return self.runs
        held: Counter[tuple[int, int]] = Counter()
        kept = []
        for what, order, migratetype, blocks, ns in self.runs[over // 2 : over // 2 + MOST_RUNS]:
            n = blocks if what == "alloc" else min(blocks, held[order, migratetype])
            held[order, migratetype] += n if what == "alloc" else -n
            if n:
                kept.append([what, order, migratetype, n, ns * n // blocks])
        return kept


class Recording:
    """The processes of one capture, and its figures."""

    def __init__(self, path: Path, sleeps: bool) -> None:
        events, reader = read_trace(path)
        rows = events.rows
        rows = rows[
            (rows["event"] == EVENT_IDS["mm_page_alloc"])
            | (rows["event"] == EVENT_IDS["mm_page_free"])
        ]
        self.processes: dict[tuple[int, int], Process] = {}
        self.orders: Counter[tuple[int, int]] = Counter()
        self.far_ns = self.far = self.near = self.skipped = 0
        owner: dict[int, tuple[Process, int, int, int]] = {}
        last: dict[int, int] = {}
        allocs = EVENT_IDS["mm_page_alloc"]
        for time, pid, cpu, event, pfn, order, migratetype, comm in zip(
            *(rows[c].tolist() for c in ("time", "pid", "cpu", "event", "a", "b", "c", "comm")),
            strict=True,
        ):
            gap = time - last.get(cpu, time)
            if sleeps:
                gap = min(gap, LONGEST_GAP_NS)
            if event == allocs:
                if order not in ORDERS or migratetype > 2:
                    self.skipped += 1
                    continue
                # The idle tasks of all CPUs have number 0.
                process = self.processes.setdefault(
                    (pid, cpu if pid == 0 else -1), Process(reader.comms[comm], begin=time)
                )
                process.add("alloc", order, migratetype, gap)
                process.end = time
                owner[pfn] = (process, cpu, order, migratetype)
                self.orders[order, migratetype] += 1
            elif pfn in owner:
                process, home, order, migratetype = owner.pop(pfn)
                far = cpu != home
                process.add("send" if far else "free", order, migratetype, 0 if far else gap)
                process.end = max(process.end, time)
                self.far_ns += gap * far
                self.far += far
                self.near += not far
            else:
                continue  # allocated before: its time goes to the event that follows
            last[cpu] = time
        self.kept = len(owner)

    @property
    def pages(self) -> int:
        return sum(n << order for (order, _), n in self.orders.items())

    @property
    def page_us(self) -> float:
        """CPU time per page allocated [us]."""
        near = sum(run[4] for p in self.processes.values() for run in p.runs)
        return (near + self.far_ns) / self.pages / 1000

    def run_lengths(self) -> list[tuple[str, int, int, int]]:
        classes: dict[str, Counter[int]] = defaultdict(Counter)
        for process in self.processes.values():
            for what, _, _, blocks, _ in process.runs:
                classes[what][blocks.bit_length() - 1] += 1
        return [
            (what, 1 << k, (2 << k) - 1, n)
            for what in ("alloc", "free", "send")
            for k, n in sorted(classes[what].items())
        ]


def summarise(name: str, path: Path, source: str, native_us: dict[str, float]) -> None:
    """Write the package of one recording."""
    like = EMULATED.get(name, name)
    recording = Recording(path, sleeps=name != "native-build")
    if name in NATIVE:
        native_us[name] = recording.page_us
    processes, runs = [], []
    for i, process in enumerate(recording.processes.values()):
        window = process.window()
        pages: Counter[str] = Counter()
        for what, order, _, blocks, _ in process.runs:
            pages[what] += blocks << order
        weight = max(1, round(len(process.runs) / max(1, len(window))))
        moved = (pages["alloc"], pages["free"], pages["send"])
        processes.append((i, process.command, weight, *moved, process.end - process.begin))
        runs += [(i, w, o, TYPES[m], n, ns) for w, o, m, n, ns in window]
    freed = recording.far + recording.near
    far_ns = round(recording.far_ns / max(1, recording.far))
    kept = round(recording.kept / (recording.kept + freed), 5)
    figures = [
        ("CPU time per page as recorded", round(recording.page_us, 4), "us"),
        ("CPU time per page at native speed", round(native_us[like], 4), "us"),
        ("blocks freed on another CPU", round(recording.far / freed, 5), "1"),
        ("CPU time of a block freed on another CPU", far_ns, "ns"),
        ("blocks not freed in the recording", kept, "1"),
        ("blocks that no per-CPU list holds", recording.skipped, "blocks"),
    ]
    speed = "at native speed" if name in NATIVE else f"in an emulated guest; time of {like}"
    write(
        name.replace(".", "-"),
        f"What each process of the recording {name} did with its pages",
        {
            "title": source,
            "note": f"Recorded {speed}.  kmem events; a page belongs to the process that "
            "allocated it, whoever freed it.",
        },
        {
            "processes": (
                [
                    ("process", "integer", "1", "number in this recording"),
                    ("command", "string", "", "its name at its first allocation"),
                    ("weight", "integer", "1", "how many times the runs kept it had"),
                    ("allocated_pages", "integer", "pages", "pages allocated"),
                    ("freed_pages", "integer", "pages", "of these freed on the same CPU"),
                    ("sent_pages", "integer", "pages", "of these freed on another CPU"),
                    ("lifetime_ns", "integer", "ns", "from its first page to its last"),
                ],
                processes,
            ),
            "scripts": (
                [
                    ("process", "integer", "1", "number in this recording"),
                    ("what", "string", "", "alloc; free; send: freed on another CPU"),
                    ("order", "integer", "1", "blocks of 2 ** order pages"),
                    ("migratetype", "string", "", "of the request"),
                    ("blocks", "integer", "blocks", "one after the other"),
                    ("ns", "integer", "ns", "CPU time of all, by the recording's clock"),
                ],
                runs,
            ),
            "orders": (
                [
                    ("order", "integer", "1", "blocks of 2 ** order pages"),
                    ("migratetype", "string", "", "of the request"),
                    ("allocations", "integer", "blocks", "in the whole recording"),
                ],
                [(o, TYPES[m], n) for (o, m), n in sorted(recording.orders.items())],
            ),
            "run_lengths": (
                [
                    ("what", "string", "", "alloc, free or send"),
                    ("from_blocks", "integer", "blocks", "shortest run of this class"),
                    ("to_blocks", "integer", "blocks", "longest run of this class"),
                    ("runs", "integer", "1", "in the whole recording, of one process each"),
                ],
                recording.run_lengths(),
            ),
            "figures": (FIGURE, figures),
        },
    )


def native_rates() -> dict[str, float]:
    """CPU time per page of the recorded page_fault1 [us]."""
    rates = load_workload("native-kbuild").tables["rates"].set_index("parameter")["value"]
    return {"page_fault1": float(rates["fault_per_page"] + rates["unmap_per_page"]) / 1000}


def main() -> None:
    native_us = native_rates()
    for name, path in NATIVE.items():
        summarise(name, Path(sys.argv[1]) / path, path, native_us)
    for name in EMULATED:
        path = f"data/traces/{name}-4cpu/trace.txt.zst"
        summarise(name, OUT.parents[1] / path, path, native_us)


if __name__ == "__main__":
    main()

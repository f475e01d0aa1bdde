"""Summarise the natively recorded workloads into ``data/workload/``.

``python tools/summarise_native.py ../shared/traces`` reads ``native-kbuild`` and
``native-streams`` and writes what the simulated workloads start from.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from pcpmodel.datasets.store import store_package, table_files
from pcpmodel.trace.ftrace import read_trace

OUT = Path(__file__).resolve().parents[1] / "data"
NOTE = "Summary of recordings made for this project; under its licence."


def write(name: str, title: str, source: dict[str, str], tables: dict[str, tuple]) -> None:
    files = table_files(name, title, NOTE, source, tables)
    store_package(OUT, "workload", name, files, replace=True)


#: Holds of the zone lock: event of each block, and the side.
SIDES = {"mm_page_alloc_zone_locked": "refill", "mm_page_pcpu_drain": "drain"}
#: Longer than any hold; an interrupt, or the host, came between.
DISTURBED_NS = 30_000
#: Pages of a run in the timeline at most: about a batch.
RUN_PAGES = 64
#: A gap in which its CPU did something else than the build [ns].
PAUSE_NS = 200_000_000

HOLD = [
    ("side", "string", "", "refill or drain"),
    ("order", "integer", "1", "of the block"),
    ("beside", "integer", "1", "1: its struct page is beside that of the block before, else 0"),
    ("blocks", "integer", "blocks", "how many"),
    ("mean", "number", "ns", "from the event of the block before to its own, the event included"),
    ("error", "number", "ns", "standard error of the mean"),
]


def holds_of(trace: Path) -> list[tuple]:
    """What a block of a hold takes, from the events of a hold that follow each other on a CPU.

    The clock of the trace counts whole us; of many the mean is right all the same.
    """
    events, _ = read_trace(trace)
    rows = events.rows
    found = []
    for cpu in np.unique(rows["cpu"]):
        mine = rows[rows["cpu"] == cpu]
        for event, side in SIDES.items():
            is_one = events.is_event(event)[rows["cpu"] == cpu]
            pair = is_one[1:] & is_one[:-1] & (np.diff(mine["pid"]) == 0)
            gap = np.diff(mine["time"])[pair]
            beside = np.abs(np.diff(mine["a"])[pair]) <= 1
            order = mine["b"][1:][pair]
            found.append(pd.DataFrame({"side": side, "order": order, "beside": beside, "gap": gap}))
    frame = pd.concat(found)
    frame = frame[frame["gap"] < DISTURBED_NS]
    told = []
    for (side, order, beside), part in frame.groupby(["side", "order", "beside"]):
        if len(part) >= 100:
            error = part["gap"].std() / len(part) ** 0.5
            told.append(
                (side, int(order), int(beside), len(part),
                 round(float(part["gap"].mean()), 1), round(float(error), 1))
            )  # fmt: skip
    return told


def timeline_of(trace: Path) -> list[tuple]:
    """What each CPU allocated and freed, run after run with the time that it took, and exits."""
    events, _ = read_trace(trace)
    names = ("mm_page_alloc", "mm_page_free", "sched_process_exit")
    kinds = np.select([events.is_event(name) for name in names], [1, 2, 3], 0)
    wanted = (kinds > 0) & ((kinds == 3) | (events.rows["b"] <= 3))
    rows, kinds = events.rows[wanted], kinds[wanted]
    types: dict[int, int] = {}
    told = []
    for cpu in np.unique(rows["cpu"]):
        mine = rows["cpu"] == cpu
        columns = [rows[name][mine].tolist() for name in ("time", "a", "b", "c", "pid")]
        here = kinds[mine].tolist()
        # do_exit() of v6.18 has its event before exit_mm(), which first allocates and then frees;
        # the root of the page table goes after the last page, by whoever is scheduled next.
        ends: dict[int, int] = {}
        for i, (kind, pid) in enumerate(zip(here, columns[-1], strict=True)):
            if kind == 3 or (kind == 2 and pid in ends):
                ends[pid] = i
        ended = set(ends.values())
        runs: list[list] = []
        before = None
        for i, (kind, time, pfn, order, mt, _) in enumerate(zip(here, *columns, strict=True)):
            if kind != 3:
                gap = 0 if before is None else time - before
                before = time
                gap = gap if gap < PAUSE_NS else 0
            if kind == 1:
                types[pfn] = mt
            if kind != 3:
                what = ("alloc", "free")[kind - 1], order, mt if kind == 1 else types.get(pfn, 1)
                if runs and tuple(runs[-1][:3]) == what and runs[-1][3] < RUN_PAGES >> order:
                    runs[-1][3] += 1
                    runs[-1][4] += gap
                else:
                    runs.append([*what, 1, gap])
            if i in ended:
                runs.append(["exit", 0, 0, 1, 0])
        told += [
            (int(cpu), what, order, mt, blocks, round(ns / 1000))
            for what, order, mt, blocks, ns in runs
        ]
    return told


FIGURE = [
    ("quantity", "string", "", "what"),
    ("value", "number", "as in the column unit", "how much"),
    ("unit", "string", "", "of the value"),
]


def kbuild(directory: Path) -> None:
    summary = json.loads((directory / "summary.json").read_text())
    processes = pd.read_csv(directory / "processes.csv")
    whole = processes[(processes.complete == 1) & (processes.allocated_pages > 0)]
    cc1 = whole[whole.command == "cc1"]
    other = whole[(whole.command != "cc1") & (whole.lifetime_ms < 10_000)]
    trace, untraced = summary["trace"], summary["untraced"]
    at = [i / 200 for i in range(1, 200, 2)]
    sizes = [
        (group, round(q, 3), int(frame.allocated_pages.quantile(q)))
        for group, frame in (("cc1", cc1), ("other", other))
        for q in at
    ]
    runs = [
        (what, 1 << int(k), (2 << int(k)) - 1, n)
        for what in ("alloc", "free")
        for k, n in trace[f"{what}_run_length_log2"].items()
    ]
    high = [(int(k), n) for k, n in trace["consecutive_order1to3_frees"].items()]
    by_type = trace["alloc_by_migratetype"]
    figures = [
        ("busy CPU time per page allocated", untraced["us_per_allocated_page"], "us"),
        ("processes per compiler process", round(len(other) / len(cc1), 4), "1"),
        (
            "unmovable share of pages allocated",
            round(by_type["0"] / sum(by_type.values()), 5),
            "1",
        ),
        ("processes seen from fork to exit", len(whole), "processes"),
        (
            "frees of order 1..3 per process",
            round(sum(k * n for k, n in high) / len(whole), 4),
            "frees",
        ),
        (
            "of these following another one per process",
            round(sum((k - 1) * n for k, n in high) / len(whole), 4),
            "frees",
        ),
        (
            "pages freed on the CPU that allocated them",
            round(
                trace["freed_on_allocating_cpu"]
                / (trace["freed_on_allocating_cpu"] + trace["freed_on_other_cpu"]),
                4,
            ),
            "1",
        ),
    ]
    rates = pd.read_csv(directory / "rates.csv")
    write(
        "native-kbuild",
        "What a kernel build asks of the page allocator",
        {
            "title": "make -j2 of Linux 6.12 (defconfig) on kernel 6.18.44, 2 CPUs, steady state",
            "note": "Recorded at native speed with kmem events; process sizes from 40 s.",
        },
        {
            "process_pages": (
                [
                    ("group", "string", "", "cc1 (the compiler proper), or every other command"),
                    ("quantile", "number", "1", "share of processes with fewer pages"),
                    ("pages", "integer", "pages", "pages allocated over the life of a process"),
                ],
                sizes,
            ),
            "runs": (
                [
                    ("what", "string", "", "alloc or free"),
                    ("from_pages", "integer", "pages", "shortest run of this class"),
                    ("to_pages", "integer", "pages", "longest run of this class"),
                    ("runs", "integer", "1", "runs without an event of the other kind, per CPU"),
                ],
                runs,
            ),
            "high_order_runs": (
                [
                    ("length", "integer", "frees", "frees of order 1..3 in a row on one CPU"),
                    ("runs", "integer", "1", "how often"),
                ],
                high,
            ),
            "figures": (FIGURE, figures),
            "holds": (HOLD, holds_of(directory / "trace.txt.gz")),
            "timeline": (
                [
                    ("cpu", "integer", "1", "of the recording"),
                    ("what", "string", "", "alloc, free, or exit of processes"),
                    ("order", "integer", "1", "of the blocks"),
                    ("migratetype", "integer", "1", "0 unmovable, 1 movable, 2 reclaimable"),
                    (
                        "blocks",
                        "integer",
                        "1",
                        "blocks without another kind between them; processes",
                    ),
                    ("time", "integer", "us", "since the run before"),
                ],
                timeline_of(directory / "trace.txt.gz"),
            ),
            "rates": (
                [
                    ("workload", "string", "", "what ran"),
                    ("processes", "integer", "1", "how many at once"),
                    ("parameter", "string", "", "what was measured"),
                    ("value", "number", "as in the column unit", "how much"),
                    ("unit", "string", "", "of the value"),
                ],
                rates.itertuples(index=False),
            ),
        },
    )


def times_of_a_write(trace: Path) -> tuple[list[tuple], list[tuple]]:
    """Time from one block of a write to the next, on the sender's and the receiver's CPU.

    The mean of the middle half: a sleeping peer makes a few intervals long, and the clock of
    the trace counts whole us, which a median would keep.  Then mean and spread of all periods
    from write to write, those sleeps included.
    """
    events, _ = read_trace(trace)
    rows, periods = [], []
    for side, event in (("sender", "mm_page_alloc"), ("receiver", "mm_page_free")):
        mine = events.rows[events.is_event(event)]
        mine = mine[mine["cpu"] == np.bincount(mine["cpu"]).argmax()]
        gaps, orders = np.diff(mine["time"]) / 1000, mine["b"]
        for order, following in ((3, 2), (2, 1), (1, 0), (0, 3)):
            some = np.sort(gaps[(orders[:-1] == order) & (orders[1:] == following)])
            middle = some[len(some) // 4 : len(some) - len(some) // 4]
            rows.append(("unix", side, order, following, round(float(middle.mean()), 2)))
        whole = np.diff(mine["time"][orders == 3]) / 1000
        periods.append(
            ("unix", side, round(float(whole.mean()), 2), round(float(whole.std()), 2), len(whole))
        )
    return rows, periods


def streams(directory: Path) -> None:
    summary = json.loads((directory / "summary.json").read_text())
    rows = []
    for name, one in summary.items():
        writes = max(one["alloc_by_order"].values())
        for order, n in one["alloc_by_order"].items():
            rows.append((name, int(order), n, round(n / writes, 5)))
    moves = [
        (name, int(k[0]), int(k[-1]), n)
        for name, one in summary.items()
        for k, n in one["free_order_transitions"].items()
    ]
    places = [
        (name, one["freed_on_allocating_cpu"], one["freed_on_other_cpu"], one["seconds"])
        for name, one in summary.items()
    ]
    times, periods = times_of_a_write(directory / "unix.trace.txt.gz")
    write(
        "native-streams",
        "What stream sockets ask of the page allocator",
        {
            "title": "AF_UNIX and TCP streams of 64 KiB writes, kernel 6.18.44, 2 CPUs",
            "note": "Recorded at native speed with kmem events, one second each; sender and "
            "receiver on CPUs of their own.",
        },
        {
            "blocks": (
                [
                    ("stream", "string", "", "unix or tcp"),
                    ("order", "integer", "1", "blocks of 2 ** order pages"),
                    ("allocations", "integer", "blocks", "in the recording"),
                    ("per_write", "number", "blocks", "relative to the most frequent order"),
                ],
                rows,
            ),
            "free_transitions": (
                [
                    ("stream", "string", "", "unix or tcp"),
                    ("from_order", "integer", "1", "order of one free"),
                    ("to_order", "integer", "1", "order of the next free on the same CPU"),
                    ("count", "integer", "1", "how often"),
                ],
                moves,
            ),
            "places": (
                [
                    ("stream", "string", "", "unix or tcp"),
                    ("freed_on_allocating_cpu", "integer", "blocks", "freed where allocated"),
                    ("freed_on_other_cpu", "integer", "blocks", "freed on another CPU"),
                    ("seconds", "number", "s", "length of the recording"),
                ],
                places,
            ),
            "writes": (
                [
                    ("stream", "string", "", "unix"),
                    ("side", "string", "", "sender (allocates) or receiver (frees)"),
                    ("from_order", "integer", "1", "order of one block"),
                    ("to_order", "integer", "1", "order of the next one on the same CPU"),
                    ("time", "number", "us", "from one to the next, mean of the middle half"),
                ],
                times,
            ),
            "holds": (HOLD, holds_of(directory / "unix.trace.txt.gz")),
            "periods": (
                [
                    ("stream", "string", "", "unix"),
                    ("side", "string", "", "sender (allocates) or receiver (frees)"),
                    ("mean", "number", "us", "from the first block of a write to the next one's"),
                    ("sd", "number", "us", "standard deviation; waits for the peer are included"),
                    ("writes", "integer", "1", "how many"),
                ],
                periods,
            ),
        },
    )


def main() -> None:
    traces = Path(sys.argv[1])
    kbuild(traces / "native-kbuild")
    streams(traces / "native-streams")


if __name__ == "__main__":
    main()

"""Published tables of small loops on many CPUs: page_bench, and parallel page faults (pft)."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping

from pcpmodel.datasets.packages import load_published
from pcpmodel.study.published.cases import notes
from pcpmodel.study.published.question import (
    ASSUMED,
    Answer,
    Rules,
    Server,
    Step,
    hardware_of,
    rows_of,
    runs_of,
)
from pcpmodel.study.published.rows import Row
from pcpmodel.workload import Program, Task, Workload, page_fault1

__all__ = ["LOOPS"]

_DESKTOPS = ("coffee-lake", "comet-lake")
_XEONS = ("cascade-lake", "ice-lake", "sapphire-rapids")
_ALL = ("amd-epyc-vm", *_DESKTOPS, *_XEONS)
_DESKTOP = Server(8, 1, _DESKTOPS)
#: Machines of pft: CPUs as clients go, nodes where stated.
_PFT = {
    "2S EPYC 7601 64c 8 NUMA": Server(128, 8, ("amd-epyc-vm",)),
    "POWER9": Server(128, 2, _ALL),
    "Dell R430 2S E5-2640 v3": Server(32, 2, _XEONS),
    "Raspberry Pi 4": Server(4, 1, _ALL),
}
#: Two sockets of Broadwell, 88 threads: cycles per ns, and what a line takes from another CPU [ns],
#: half of the way from the same socket's 52 to another one's 144 (Platinum 8269CY).
_BROADWELL_GHZ = 2.2
_LINE_NS = 98.0


def _loop(cpus: int, order: int, pair_ns: float) -> Workload:
    """A block of one order allocated and freed at once, over and over."""
    p = Program()
    with p.forever():
        p.alloc(1, order=order, migratetype="unmovable", ns=pair_ns / 2)
        p.free(1, order=order, migratetype="unmovable", ns=pair_ns / 2)
        p.score()
    return Workload("page_bench", (Task(p),) * cpus, "blocks", cpus << order)


def _page_bench(rules: Rules) -> tuple[list[Row], str]:
    """Cycles of an allocation and a free by CPUs, in % of one CPU's: a list, and the zone lock."""
    frame = load_published("page-bench-2016").tables["parallel"]
    column = "cycles_alloc_free_4.6rc1"
    hardware = hardware_of("page-bench-desktop", _DESKTOP)
    alone = frame[frame["cpus"] == 1].set_index("order")[column]
    rows: list[Row] = []
    # Of a block that no list holds what a page from a list takes is outside of the lock; the rest
    # is two holds.
    holds = hardware.hold_time.refill(1).mean_ns + hardware.hold_time.drain(1).mean_ns
    pair_ns = holds * alone[0] / (alone[3] - alone[0])
    for order in (0, 3):
        mine = frame[frame["order"] == order].sort_values("cpus")
        first: list[float] = []
        steps: list[Step] = []
        for line in mine.itertuples():
            runs = runs_of(
                hardware, _DESKTOP, "v4.17", _loop(int(line.cpus), order, pair_ns),
                memory_gib=16.0, warmup_s=0.001, seconds=0.01,
            )  # fmt: skip
            times = [int(line.cpus) / run.score_per_s for run in runs]
            first = first or times
            measured = {"time": 100 * line._3 / alone[order]}
            said = [{"time": 100 * t / f} for t, f in zip(times, first, strict=True)]
            steps.append((f"order {order}, {line.cpus} CPUs", measured, said))
        rows += rows_of("page-bench-2016", "parallel", steps, rules, ("time",))
    note = ASSUMED.format(like="two desktops", memory=16)
    return rows, note + " " + notes("page-bench")


def _pft(rules: Rules) -> tuple[list[Row], str]:
    """Pages per second of parallel page faults by clients, in % of one client's."""
    frame = load_published("remote-drain-2022").tables["pft"]
    rows: list[Row] = []
    for name, server in _PFT.items():
        mine = frame[frame["machine"] == name].sort_values("clients")
        hardware = hardware_of(name.lower().replace(" ", "-"), server)
        alone = float(mine["elapsed_s"].iloc[0])
        first: list[float] = []
        steps: list[Step] = []
        for line in mine.itertuples():
            clients = int(line.clients)
            workload = page_fault1(clients, lru=True)
            runs = runs_of(hardware, server, "v5.17", workload, memory_gib=max(32, server.cpus))
            scores = [run.score_per_s for run in runs]
            first = first or scores
            said = [{"score": 100 * s / f} for s, f in zip(scores, first, strict=True)]
            measured = {"score": 100 * alone / float(line.elapsed_s)}
            steps.append((f"{name}, {clients} clients", measured, said))
        rows += rows_of("remote-drain-2022", "pft", steps, rules, ("score",))
    return rows, ASSUMED.format(like="other machines", memory=128) + " " + notes("pft")


def _numa_stat(rules: Rules) -> tuple[list[Row], str]:
    """Cycles of a page by the threshold of the NUMA counters, in % of those without counters.

    The counters are no part of the page lists.  A counter that has come to its threshold is added
    to one that all CPUs share: a visit to a line, first come, first served, which the run has as a
    lock of its own (that of the LRU), held for as long as the line takes to come.
    """
    frame = load_published("numa-stat-2017").tables["threshold"]
    server = Server(88, 2, _XEONS)
    hardware = hardware_of("broadwell-ep-2s-88", server).with_costs(
        lru_hold=_LINE_NS, lru_page=0.0, lru_lines=0.0, handover=0.0
    )
    without = frame["threshold"].isna()  # no statistics
    base = float(frame[without]["cycles_per_page"].iloc[0])
    counted = frame[~without].sort_values("threshold", ascending=False)
    steps: list[Step] = [("no statistics", {"time": 100.0}, [{"time": 100.0}] * 3)]
    for line in counted.itertuples():
        pages = max(int(line.threshold) // 2, 1)  # two counters: of hits, of local pages
        p = Program()
        with p.forever():
            p.work(pages * base / _BROADWELL_GHZ)
            p.score(pages)
            p.alloc(1, lru=True)
            p.lru_drain()
            p.free(1)
        workload = Workload("page_bench03", (Task(p, 0),) * server.cpus, "pages", server.cpus)
        runs = runs_of(
            hardware, Server(server.cpus, 1, server.like), "v4.17", workload,
            seconds=max(0.01, 2e-4 * pages / 16),
        )  # fmt: skip
        cycles = [1e9 * _BROADWELL_GHZ * server.cpus / run.score_per_s for run in runs]
        times = [{"time": 100 * each / base} for each in cycles]
        steps.append(
            (f"threshold {line.threshold}", {"time": 100 * line.cycles_per_page / base}, times)
        )
    rows = rows_of("numa-stat-2017", "threshold", steps, rules, ("time",))
    return rows, notes("numa-stat").format(base=base, ghz=_BROADWELL_GHZ, line=_LINE_NS)


#: Table -> its rows and what is assumed.
LOOPS: Mapping[str, Answer] = {
    "page-bench-2016/parallel": _page_bench,
    "remote-drain-2022/pft": _pft,
    "numa-stat-2017/threshold": _numa_stat,
}

"""Published tables of page_fault1 and its kin under older kernels."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.hardware.machines import Machine
from pcpmodel.simulation.result import Result
from pcpmodel.study.published.cases import notes
from pcpmodel.study.published.question import (
    ASSUMED,
    MEMORY_GIB,
    OWN_SHEET,
    Answer,
    Rules,
    Server,
    Step,
    figures_of,
    hardware_of,
    rows_of,
    runs_of,
)
from pcpmodel.study.published.rows import Row
from pcpmodel.workload import Workload, malloc1, page_fault1, page_fault2, page_fault3

__all__ = ["OLDER"]

_XEONS = ("cascade-lake", "ice-lake", "sapphire-rapids")
#: Machines of batchsize-2018 whose CPUs are stated, there or (Broadwell) in numa-stat-2017.
_BATCHSIZE = {
    "skylake_ep_2s": Server(112, 2, ("cascade-lake",)),
    "broadwell_ep_2s": Server(88, 2, _XEONS),
}
#: 40 cores, 80 CPUs (20220217002227.5739-6).
_GORMAN = Server(80, 2, ("cascade-lake",))


def _twice(server: Server) -> Server:
    """Four sockets for two."""
    return replace(server, cpus=2 * server.cpus, nodes=2 * server.nodes)


#: Those of 2018 and 2022: four sockets have twice the CPUs of two.
_ZONE_LOCK = {
    "2S Broadwell": _BATCHSIZE["broadwell_ep_2s"],
    "2S Skylake": _BATCHSIZE["skylake_ep_2s"],
    "4S Broadwell": _twice(_BATCHSIZE["broadwell_ep_2s"]),
    "4S Skylake": _twice(_BATCHSIZE["skylake_ep_2s"]),
}
_CONTENTION = {"4S Cooper Lake": _twice(_GORMAN), "2S Cascade Lake": _GORMAN}


def _faults(
    hardware: Machine, server: Server, release: str, processes: int, **given: Any
) -> list[Result]:
    return runs_of(hardware, server, release, page_fault1(processes, lru=True), **given)


def _batchsize(rules: Rules) -> tuple[list[Row], str]:
    """Batches of 31 to 498 pages, high six times the batch: which lock waits, and the score."""
    frame = load_published("batchsize-2018").tables["page_fault1"]
    rows = []
    for name, server in _BATCHSIZE.items():
        mine = frame[frame.machine == name].sort_values("batch")
        hardware = hardware_of(name.replace("_", "-"), server)
        base: list[Result] = []
        steps: list[Step] = []
        for line in mine.itertuples():
            runs = _faults(
                hardware,
                server,
                "v4.17",
                server.cpus,
                batch=int(line.batch),
                high_pages=int(line.pcp_high_6x_batch),
            )
            base = base or runs
            measured = {
                "score": 100 * line.page_fault1_score_per_s / mine.page_fault1_score_per_s.iloc[0],
                "lock_contention": float(line.zone_lock_pct),
                "lru_contention": float(line.lru_lock_pct),
            }
            said = [
                {"score": 100 * run.score / first.score, **figures_of(run)}
                for run, first in zip(runs, base, strict=True)
            ]
            known = {k: v for k, v in measured.items() if not pd.isna(v)}
            steps.append((f"{name}, batch {line.batch}", known, said))
        rows += rows_of("batchsize-2018", "page_fault1", steps, rules, ("score",))
    note = ASSUMED.format(like="other machines", memory=MEMORY_GIB)
    return rows, note + " Desktops and Westmere are left out: their CPUs are not stated."


def _gorman(rules: Rules) -> tuple[list[Row], str]:
    """Score by processes, in % of that of two."""
    frame = load_published("high-order-pcp-2022").tables["page_fault1"]
    frame = frame[frame.processes <= _GORMAN.cpus]
    column = "vanilla_5.17rc3_hmean_score_per_s"
    hardware = hardware_of("cascade-lake-2s-80", _GORMAN)
    base: list[Result] = []
    steps: list[Step] = []
    for processes, score in zip(frame.processes, frame[column], strict=True):
        runs = _faults(hardware, _GORMAN, "v5.17", int(processes))
        base = base or runs
        said = [{"score": 100 * r.score / b.score} for r, b in zip(runs, base, strict=True)]
        steps.append(
            (f"{processes} processes", {"score": 100 * score / frame[column].iloc[0]}, said)
        )
    note = OWN_SHEET.format(like="Cascade Lake", memory=MEMORY_GIB)
    return (
        rows_of("high-order-pcp-2022", "page_fault1", steps, rules, ("score",)),
        note + " More processes than CPUs are left out.",
    )


def _contention(rules: Rules) -> tuple[list[Row], str]:
    """Who waits for which lock with every CPU faulting, v5.17."""
    frame = load_published("high-order-pcp-2022").tables["contention"].set_index("machine")
    steps: list[Step] = []
    for name, server in _CONTENTION.items():
        line = frame.loc[name]
        hardware = hardware_of(name.lower().replace(" ", "-"), server)
        runs = _faults(hardware, server, "v5.17", server.cpus)
        alloc, free = float(line["alloc_path_pct"]), float(line["free_path_pct"])
        measured = {
            "waiting to allocate": alloc,
            "waiting to free": free,
            "lru_contention": float(line["lock_share_pct"]) - alloc - free,
        }
        steps.append((name, measured, [figures_of(run) for run in runs]))
    note = OWN_SHEET.format(like="Cascade Lake", memory=MEMORY_GIB)
    return (
        rows_of("high-order-pcp-2022", "contention", steps, rules),
        note + " " + notes("contention-2022 twice"),
    )


def _zone_lock(rules: Rules) -> tuple[list[Row], str]:
    """Rates on four machines; what picking pages outside the lock and prefetching are worth."""
    frame = load_published("zone-lock-2018-v4").tables["page_fault1"].set_index("machine")
    steps: list[Step] = []
    for name, server in _ZONE_LOCK.items():
        line = frame.loc[name]
        hardware = hardware_of(name.lower().replace(" ", "-"), server)
        base = _faults(hardware, server, "v4.17", server.cpus)
        warm = _faults(hardware, server, "v4.17", server.cpus, warm=True)
        gains = [100 * (w.score / b.score - 1) for w, b in zip(warm, base, strict=True)]
        steps += [
            (
                f"{name}, base",
                {"rate": float(line["base_score_per_s"])},
                [{"rate": run.score_per_s} for run in base],
            ),
            (
                f"{name}, pages picked outside the lock",
                {"score change": float(line["change_pct"])},
                [{"score change": 0.0} for _ in base],
            ),
            (
                f"{name}, buddies prefetched as well",
                {"score change": float(line["further_change_pct"])},
                [{"score change": gain} for gain in gains],
            ),
        ]
    note = ASSUMED.format(like="other machines", memory=MEMORY_GIB)
    return (
        rows_of("zone-lock-2018-v4", "page_fault1", steps, rules),
        note + " " + notes("zone-lock twice"),
    )


def _no_merge(rules: Rules) -> tuple[list[Row], str]:
    """Who waits for which lock before the RFC of October 2018."""
    frame = load_published("no-merge-2018-rfc4").tables["contention"]
    frame = frame[frame["machine"] == "2S Skylake 112 CPU"].set_index("metric")["before"]
    server = _BATCHSIZE["skylake_ep_2s"]
    runs = _faults(hardware_of("skylake-2s-112", server), server, "v4.17", server.cpus)
    measured = {
        "lock_contention": float(frame["cycles spinning on zone lock"]),
        "waiting to free": float(frame["free path on zone lock"]),
        "lru_contention": float(frame["lru_lock"]),
    }
    steps: list[Step] = [("2S Skylake, before", measured, [figures_of(run) for run in runs])]
    note = ASSUMED.format(like="Cascade Lake", memory=MEMORY_GIB)
    return (
        rows_of("no-merge-2018-rfc4", "contention", steps, rules),
        note + " " + notes("no-merge"),
    )


def _kin(rules: Rules) -> tuple[list[Row], str]:
    """page_fault2 and 3 and malloc1 with batches of 31, 63 and 127."""
    frame = load_published("batchsize-2018").tables["other_workloads"]
    makers = {
        "page_fault2 processes": lambda n: page_fault2(n, lru=True),
        "page_fault3 processes": lambda n: page_fault3(n),
        "malloc1 processes": malloc1,
    }
    boxes = {"skylake_ep_2s": "lkp-skl-2sp2", "broadwell_ep_2s": "lkp-bdw-ep2"}
    steps: list[Step] = []
    for work, make in makers.items():
        for name, box in boxes.items():
            server = _BATCHSIZE[name]
            line = frame[(frame["workload"] == work) & (frame["testbox"] == box)].iloc[0]
            hardware, workload = hardware_of(name.replace("_", "-"), server), make(server.cpus)
            runs = {b: _batched(hardware, server, workload, b) for b in (31, 63, 127)}
            where = f"{work}, {name}"
            rate = [{"rate": run.score_per_s} for run in runs[31]]
            steps.append((f"{where}, batch 31", {"rate": float(line["batch31"])}, rate))
            for batch in (63, 127):
                gains = [
                    {"score change": 100 * (b.score / a.score - 1)}
                    for a, b in zip(runs[31], runs[batch], strict=True)
                ]
                change = {"score change": float(line[f"change{batch}_pct"])}
                steps.append((f"{where}, batch {batch}", change, gains))
    rows = rows_of(
        "batchsize-2018", "other_workloads", steps, rules, group=lambda name: name.split(",")[0]
    )
    note = ASSUMED.format(like="other machines", memory=MEMORY_GIB)
    return rows, note + " " + notes("batchsize-kin")


def _batched(hardware: Machine, server: Server, workload: Workload, batch: int) -> list[Result]:
    return runs_of(
        hardware, server, "v4.17", workload, batch=batch, high_pages=6 * batch,
        warmup_s=0.1, seconds=0.1,
    )  # fmt: skip


#: Table -> its rows and what is assumed.
OLDER: Mapping[str, Answer] = {
    "batchsize-2018/page_fault1": _batchsize,
    "batchsize-2018/other_workloads": _kin,
    "high-order-pcp-2022/page_fault1": _gorman,
    "high-order-pcp-2022/contention": _contention,
    "zone-lock-2018-v4/page_fault1": _zone_lock,
    "no-merge-2018-rfc4/contention": _no_merge,
}

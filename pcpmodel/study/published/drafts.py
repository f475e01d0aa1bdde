"""Published tables of versions that were posted, and of robots' reports."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.hardware.machines import Machine, machine
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.work import fault_ns
from pcpmodel.study.builds import busy_cycles, time_change
from pcpmodel.study.published.cases import notes
from pcpmodel.study.published.model import REPEATS
from pcpmodel.study.published.question import (
    Answer,
    Rules,
    Server,
    Step,
    figures_of,
    hardware_of,
    rows_of,
    runs_of,
)
from pcpmodel.study.published.repeats import stated_half_width
from pcpmodel.study.published.rows import Row
from pcpmodel.workload import (
    Workload,
    kbuild,
    malloc1,
    page_fault1,
    recorded,
    sctp_stream,
    unix_stream,
)
from pcpmodel.workload.faults import UNMAP_NS

__all__ = ["DRAFTS"]

_BIG = Server(224, 2, ("sapphire-rapids",))
_STREAMS = Server(128, 2, ("ice-lake",))
_BUILD = {"warmup_s": 3.0, "seconds": 3.0}


def _free_trace(rules: Rules) -> tuple[list[Row], str]:
    """Pages of every drain of a long row of frees: exact."""
    frame = load_published("pcp-high-2021").tables["free_trace"]
    kernels = {"vanilla": "v5.10", "scaled": "v5.17"}
    steps: list[Step] = []
    for variant, kernel in kernels.items():
        mine = frame[frame["variant"] == variant]
        pages = PerCpuPages(kernel, high=int(mine["high_pages"].iloc[0]))
        # After an allocation the first drain is one batch: the trace of the scaled ones begins
        # behind it.
        drains = [sum(held) for _ in range(40_000) if (held := pages.free())]
        drains = drains[1:] if variant == "scaled" else drains
        steps += [
            (
                f"{variant}, drain {call}",
                {"drained": float(freed)},
                [{"drained": float(said)}] * REPEATS,
            )
            for call, freed, said in zip(mine["call"], mine["pages_freed"], drains, strict=False)
        ]
    rows = rows_of(
        "pcp-high-2021", "free_trace", steps, rules, group=lambda name: name.split(",")[0]
    )
    return rows, notes("free-trace")


def _rfc(rules: Rules) -> tuple[list[Row], str]:
    """Waiting of a build outside of cgroups, before the RFC."""
    frame = load_published("pcp-auto-tuning-rfc").tables["kbuild_sctp"].set_index("metric")["base"]
    runs = runs_of(
        machine("sapphire-rapids"), _BIG, "v6.6", kbuild(224, lru=True), memory_gib=512.0, **_BUILD
    )
    said = [
        {
            "spinning": 100 * busy_cycles(run) * (run.lock_contention + run.lru_contention),
            "lru_contention": 100 * busy_cycles(run) * run.lru_contention,
        }
        for run in runs
    ]
    measured = {
        "spinning": float(frame["spinlock contention cycles"]),
        "lru_contention": float(frame["folio_lruvec_lock_irqsave cycles"]),
    }
    rows = rows_of("pcp-auto-tuning-rfc", "kbuild_sctp", [("kbuild, base", measured, said)], rules)
    return rows, notes("auto-tuning-rfc")


def _report_2023(rules: Rules) -> tuple[list[Row], str]:
    """A build in cgroups before and after automatic high; SCTP before and after patch 3."""
    frame = load_published("lkp-reports-2023").tables["reports"]
    kernels = load_workload("answer-key").tables["kernels"]
    kernel = kernels[kernels["kernels"] == "v3"].set_index("step")["release"]
    builds = 8
    build = frame[frame["workload"] == "kbuild allyesconfig in 8 cgroups"].set_index("metric")
    names = {
        "lock_contention": "native_queued_spin_lock_slowpath",
        "refill": "rmqueue_bulk",
        "drain": "free_pcppages_bulk",
    }
    runs = {
        when: runs_of(
            machine("sapphire-rapids"), _BIG, kernel[step], kbuild(224), memory_gib=512.0, **_BUILD
        )
        for when, step in (("before", "patch6"), ("after", "patch7"))
    }
    steps: list[Step] = [
        (
            f"kbuild, {when} patch 7",
            {quantity: float(build[when][metric]) for quantity, metric in names.items()},
            [_of_whole(run, builds) for run in each],
        )
        for when, each in runs.items()
    ]
    losses = [
        time_change(before, after, builds)
        for before, after in zip(runs["before"], runs["after"], strict=True)
    ]
    took = {"time change": float(build["change_pct"]["buildtime"])}
    steps.append(("kbuild, patch 7", took, [{"time change": loss} for loss in losses]))
    sctp = frame[
        (frame["report"] == "202310271441.71ce0a9") & (frame["metric"] == "Throughput_Mbps")
    ]
    streams = {
        step: runs_of(
            machine("ice-lake"), _STREAMS, kernel[step], sctp_stream(64), memory_gib=256.0,
            warmup_s=1.0, seconds=1.0,
        )
        for step in ("patch2", "patch3")
    }  # fmt: skip
    gains = _changes(streams["patch2"], streams["patch3"])
    won = {"score change": float(sctp["change_pct"].iloc[0])}
    steps.append(("SCTP, patch 3", won, [{"score change": gain} for gain in gains]))
    return rows_of("lkp-reports-2023", "reports", steps, rules), notes("robot-2023")


def _report_2025(rules: Rules) -> tuple[list[Row], str]:
    """malloc1 on all CPUs of a Skylake server."""
    frame = load_published("lkp-reports-2025").tables["reports"]
    mine = frame[frame["workload"] == "will-it-scale malloc1"].set_index("metric")["before"]
    server = Server(104, 2, ("cascade-lake",))
    runs = runs_of(
        hardware_of("skylake-2s-104", server), server, "v6.12", malloc1(104, rcu_rounds=300)
    )
    said = [{"rate": r.score_per_s / 104, **figures_of(r)} for r in runs]
    measured = {
        "rate": float(mine["per process"]),
        "waiting to free": float(mine["spin in free_pcppages_bulk from RCU frees"]),
    }
    rows = rows_of("lkp-reports-2025", "reports", [("malloc1, before", measured, said)], rules)
    return rows, notes("robot-2025")


def _of_whole(run: Result, builds: int) -> dict[str, float]:
    """`figures_of` a build from its first command to its last."""
    cycles = busy_cycles(run, builds)
    return {name: cycles * share for name, share in figures_of(run).items()}


def _changes(before: Sequence[Result], after: Sequence[Result]) -> list[float]:
    return [100 * (a.score / b.score - 1) for b, a in zip(before, after, strict=True)]


def _dhama(rules: Rules) -> tuple[list[Row], str]:
    """The two of fourteen workloads that moved, in % of v6.6."""
    frame = load_published("dhama-v1").tables["workloads"].set_index("workload")
    server = Server(256, 2, ("amd-epyc-vm",))
    makers: Mapping[str, Callable[[], Workload]] = {
        "lmbench3 UNIX": lambda: unix_stream(16),
        "iperf3": lambda: recorded("native-tcp", 32),
    }
    kernels = {
        "v6.6_pct": "v6.6",
        "v6.7_pct": "v6.7",
        "v6.7_with_patch_pct": "v6.7+free-high-threshold",
    }
    hardware: Machine = hardware_of("amd-2-nodes", server)
    steps: list[Step] = []
    for work, make in makers.items():
        first: list[Result] = []
        for column, kernel in kernels.items():
            runs = runs_of(hardware, server, kernel, make(), memory_gib=512.0, seconds=0.1)
            first = first or runs
            said = [{"score": 100 + gain} for gain in _changes(first, runs)]
            steps.append((f"{work}, {kernel}", {"score": float(frame[column][work])}, said))
    rows = rows_of(
        "dhama-v1", "workloads", steps, rules, ("score",), lambda name: name.split(",")[0]
    )
    return rows, notes("dhama-v1")


#: What stress-ng itself does with a page of each mapping [ns]: 13.6 us of user time a fault with
#: 34 MiB, 13.4 with 102 (``--vm 1``, 0.15.06, its 35 methods in turn; a guest of an AMD EPYC).
_STRESS_NG_NS = 13_500.0
#: Mappings that each worker makes while it is looked at, and before.
_ROUNDS = (8, 2)


def _stress_ng(workers: int, gib: int, server: Server) -> tuple[Workload, dict[str, float]]:
    """``stress-ng --vm WORKERS --vm-bytes GIBg``, and how long to look at it.

    The workers share ``--vm-bytes`` (stress-vm.c: ``vm_bytes /= args->num_instances``); each maps
    its part, goes over it by one method, and unmaps it.
    """
    pages = (gib << 18) // workers
    fault = fault_ns(
        machine(server.like[0]).sheet, on_node=workers, unmap_ns=UNMAP_NS + _STRESS_NG_NS
    )
    of_page = fault + _STRESS_NG_NS
    counted, before = (pages * (of_page + UNMAP_NS) * rounds / 1e9 for rounds in _ROUNDS)
    workload = page_fault1(workers, pages=pages, fault_ns=of_page, lru=True)
    return workload, {"seconds": counted, "warmup_s": before}


def _hahn(version: str) -> Answer:
    def answer(rules: Rules) -> tuple[list[Row], str]:
        """stress-ng's memory workers with and without chunks: what is within its variation."""
        source = f"hahn-{version}"
        frame = load_published(source).tables["stress_ng"]
        steps: list[Step] = []
        none = 0
        for (size, work), mine in frame.groupby(["machine", "workload"], sort=False):
            workers, gib = (
                int(n) for n in work.removeprefix("stress-ng vm ").rstrip("G").split("x")
            )
            line = mine.iloc[0]
            server = Server(int(line["cpus"]), 1, ("sapphire-rapids",))
            workload, times = _stress_ng(workers, gib, server)
            runs = [
                runs_of(
                    machine("sapphire-rapids"), server, kernel, workload,
                    memory_gib=float(line["memory_gib"]), **times,
                )
                for kernel in ("v6.18", "v6.18+hahn-v4")
            ]  # fmt: skip
            gains = [{"score change": gain} for gain in _changes(*runs)]
            for metric, delta in zip(mine["metric"], mine["delta_pct"], strict=True):
                step = f"{size}, {work}, {metric}"
                none += abs(delta) <= stated_half_width(source, "stress_ng", step)
                steps.append((step, {"score change": float(delta)}, gains))
        rows = [
            # A change within its variation has no sign that a prediction could have.
            replace(row, measured_change=0.0, large_change=False)
            if abs(row.measured) <= stated_half_width(source, "stress_ng", row.step)
            else row
            for row in rows_of(source, "stress_ng", steps, rules)
        ]
        silent = sum(abs(row.mean) <= max(row.half_width, 0.05) for row in rows)
        return rows, notes("stress-ng").format(none=none, silent=silent, all=len(rows))

    return answer


#: Table -> its rows and what is assumed.
DRAFTS: Mapping[str, Answer] = {
    "pcp-high-2021/free_trace": _free_trace,
    "pcp-auto-tuning-rfc/kbuild_sctp": _rfc,
    "lkp-reports-2023/reports": _report_2023,
    "lkp-reports-2025/reports": _report_2025,
    "dhama-v1/workloads": _dhama,
    "hahn-v1/stress_ng": _hahn("v1"),
    "hahn-v2/stress_ng": _hahn("v2"),
}

"""All CPUs of a node give back memory at once: who waits how long for the lock."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import Release
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.simulation.spec import SPINLOCKS
from pcpmodel.study.answer import Answer
from pcpmodel.study.contention.runs import (
    HOLDS,
    RELEASES,
    answered,
    cuts_drains,
    half_width,
    known,
    over_seeds,
)
from pcpmodel.study.published.cases import hahn_machines
from pcpmodel.workload import exit_storm

__all__ = ["lock_starvation", "unfair_lock"]


def lock_starvation(
    machine: str | Machine = "sapphire-rapids",
    *,
    hosts: dict[str, Sequence[float]] | None = None,
    releases: Sequence[str | Release] = RELEASES,
    pages: int = 40_000,
    seeds: Sequence[int] = (1, 2, 3),
    seconds: float = 4.0,
) -> Answer:
    """All CPUs of a node take and give back memory at once: who waits how long for the lock?

    Parameters
    ----------
    machine : str or Machine
        Whose hold times are used.
    hosts : dict
        Name -> CPUs, nodes, memory [GiB]; by default the three machines of Hahn's v4.
    releases : sequence of str or Release
        The first is the kernel before the change, of which the reported stall was.
    pages : int
        Pages that every CPU of the node takes, then frees [pages].
    seeds : sequence of int
        Repetitions, at least two.
    seconds : float
        Simulated time of a run [s].

    Returns
    -------
    Answer
        ``hosts``: by ``holds`` (see `bulk_free`), host and release the waits for the zone lock
        [ms], the share of holds that ended over 10 ms after they were asked for, and the time in
        which a CPU gives back a million pages while all others do [s]: means over the seeds,
        these three with half of their 95 % intervals; ``seeds``: by seed.

    Raises
    ------
    InputError
        With fewer than two seeds.

    Notes
    -----
    The lock is first come, first served (kernel/locking/qspinlock.c): nobody is overtaken.
    """
    half = half_width(seeds)
    known(releases)
    hardware = machines.machine(machine)
    rows = []
    for holds, warm in HOLDS.items():
        for name, host in (hosts or hahn_machines()).items():
            on_node = int(host[0]) // int(host[1])
            for kernel, seed in product(releases, seeds):
                result = _storm(
                    host, on_node, pages,
                    release=kernel, machine=hardware, seconds=seconds, seed=seed, warm=warm,
                )  # fmt: skip
                count = {name: int(values.sum()) for name, values in result.per_cpu.items()}
                moved = count["refill_pages"] + count["drain_pages"]
                rows.append(
                    {
                        "holds": holds,
                        "host": name,
                        "release": kernel,
                        "seed": seed,
                        "wait_p99_ms": result.wait_ns["p99"] / 1e6,
                        "wait_max_ms": result.longest_starvation_ns / 1e6,
                        "refill_over_10ms": result.over_probability("refill")[10_000],
                        "drain_over_10ms": result.over_probability("drain")[10_000],
                        # The lock lets one CPU in at a time: a page's share of a hold, in turn.
                        "s_per_million_pages": count["hold_ps"] / moved * on_node / 1e6,
                    }
                )
    runs = pd.DataFrame(rows)
    table = over_seeds(
        runs,
        ("holds", "host", "release"),
        half,
        wait_max_error_ms="wait_max_ms",
        drain_over_10ms_error="drain_over_10ms",
        s_per_million_error="s_per_million_pages",
    )
    return answered("hosts", table, runs, dict(_said_of_stall(table, releases)), hardware)


def _storm(host: Sequence[float], processes: int, pages: int, **spec: Any) -> Result:
    """So many CPUs of a host (CPUs, nodes, memory) take and free so many pages each."""
    cpus, nodes, memory = host
    return simulate(
        workload=exit_storm(processes, pages=processes * pages, spread=True, lru=False),
        cpus=int(cpus),
        nodes=int(nodes),
        memory_gib=memory,
        warmup_s=0.0,
        **spec,
    )


def _said_of_stall(
    table: pd.DataFrame, releases: Sequence[str | Release]
) -> Iterator[tuple[str, str]]:
    """The waits of `lock_starvation`, beside the stall that was reported."""
    stall = load_published("hahn-v4").tables["rcu_stall"].set_index("quantity")["value"]
    jiffies = float(stall["length of the stall"])  # of 1 ms: the CPU times are of half of them
    for holds, of in table.groupby("holds", sort=False):
        worst = of.loc[of["wait_max_ms"].idxmax()]
        first = of[of["release"] == releases[0]]  # the stall was before the change
        slow = first.loc[first["s_per_million_pages"].idxmax()]
        million, error = float(slow["s_per_million_pages"]), float(slow["s_per_million_error"])
        gib = jiffies / million * 1e3 * 4096 / 2**30
        lines = [
            f"- {str(holds).capitalize()}: the longest wait is {worst['wait_max_ms']:.1f} ± "
            f"{worst['wait_max_error_ms']:.1f} ms ({worst['host']}, {worst['release']}), a queue "
            "of all CPUs of the node with a full refill or drain each; the soft-lockup watchdog "
            "asks for 20 s. A fair lock alone starves nobody for so long.",
            *(
                f"  - {name}: longest wait "
                + ", ".join(
                    f"{r.wait_max_ms:.1f} ± {r.wait_max_error_ms:.1f} ms ({r.release})"
                    for r in part.itertuples()
                )
                + "; drains over 10 ms "
                + ", ".join(f"{100 * r.drain_over_10ms:.2f} %" for r in part.itertuples())
                + "."
                for name, part in of.groupby("host", sort=False)
            ),
            f"  - What lasts is the work: while the lock is never free, a CPU of the "
            f"{slow['host']} machine gives back a million pages (3.8 GiB) in {million:.2f} ± "
            f"{error:.2f} s under {slow['release']}, so {gib:.1f} ± {gib * error / million:.1f} "
            f"GiB without a rest take the {jiffies / 1e3:.0f} s of the stall that was reported.",
        ]
        yield str(holds), "\n".join(lines)
    softirq = stall["CPU time in softirqs"] / stall["time that the CPU times were taken over"]
    if cuts_drains(releases):
        yield (
            "refills",
            "- The change cuts drains only: a refill still holds the lock for as many pages as the "
            "list asks for, and sets the longest wait.",
        )
    yield (
        "stall",
        f"- The stall that was reported ({stall['length of the stall']:.0f} jiffies) spent "
        f"{100 * softirq:.1f} % of its time in softirqs, with "
        f"{stall['callbacks queued'] / 1e6:.2f} million RCU callbacks queued: the frees probably "
        "came from callbacks that run one after the other, not from tasks that exit as here. The "
        "lock is the same; who frees, and how long without a rest, is not modelled.",
    )


def unfair_lock(
    machine: str | Machine = "sapphire-rapids",
    *,
    releases: Sequence[str | Release] = RELEASES,
    pages: int = 40_000,
    seeds: Sequence[int] = (1, 2, 3),
    seconds: float = 4.0,
) -> Answer:
    """The storm of `lock_starvation` at a queued lock and at one that nobody queues for.

    The cover letter says that letting go of the zone lock helps others only if the lock of the
    lists is let go with it, unless the system has queued spinlocks.

    Parameters
    ----------
    machine : str or Machine
        Whose hold times are used, as measured alone.
    releases : sequence of str or Release
        The first is the kernel before the change.
    pages : int
        Pages that every CPU takes, then frees [pages].
    seeds : sequence of int
        Repetitions, at least two.
    seconds : float
        Simulated time of a run [s].

    Returns
    -------
    Answer
        ``hosts``: by ``host``, ``spinlock`` (see `pcpmodel.simulate`) and ``release`` the longest
        wait and the 99th percentile of a wait [ms], and within what time 90 % of the holds of a
        drain are over, the wait included [us]: means over the seeds, the longest wait with half
        of its 95 % interval; ``seeds``: by seed.

    Raises
    ------
    InputError
        With fewer than two seeds.
    """
    half = half_width(seeds)
    known(releases)
    hardware = machines.machine(machine)
    rows = []
    for (name, host), lock, kernel, seed in product(
        hahn_machines().items(), SPINLOCKS, releases, seeds
    ):
        result = _storm(
            host, host[0], pages,
            release=kernel, machine=hardware, seconds=seconds, seed=seed, warm=True, spinlock=lock,
        )  # fmt: skip
        rows.append(
            {
                "host": name,
                "spinlock": lock,
                "release": kernel,
                "seed": seed,
                "wait_max_ms": result.longest_starvation_ns / 1e6,
                "wait_p99_ms": result.wait_ns["p99"] / 1e6,
                "drain_p90_us": result.latency_hist["drain"].quantile_ns(0.9) / 1e3,
                "score": result.score,
            }
        )
    runs = pd.DataFrame(rows)
    keys = ("host", "spinlock", "release")
    table = over_seeds(runs, keys, half, wait_max_error_ms="wait_max_ms")
    said = _said_of_unfairness(table, runs, half, releases)
    return answered("hosts", table, runs, said, hardware)


def _said_of_unfairness(
    table: pd.DataFrame, runs: pd.DataFrame, half: float, releases: Sequence[str | Release]
) -> dict[str, str]:
    """What the lock that nobody queues for adds to the longest wait, and what the cut takes."""
    indexed = table.set_index(["spinlock", "host", "release"])
    by, error = indexed["wait_max_ms"], indexed["wait_max_error_ms"]
    fair, unfair = (by[lock] for lock in SPINLOCKS)
    worst = unfair.idxmax()
    lines = []
    for name in table["host"].unique():
        each = "; ".join(
            f"{lock} "
            + ", ".join(f"{by[lock, name, r]:.1f} ± {error[lock, name, r]:.1f}" for r in releases)
            for lock in SPINLOCKS
        )
        lines.append(f"  - {name}: longest wait [ms] under {', '.join(releases)}: {each}.")
    last, first = releases[-1], releases[0]
    paired = runs[runs["spinlock"] == SPINLOCKS[1]].pivot(
        index="seed", columns=["host", "release"], values="wait_max_ms"
    )
    shorter = [
        name
        for name in table["host"].unique()
        for change in [paired[name, last] - paired[name, first]]
        if change.mean() + half * change.std() < 0
    ]
    return {
        "longest wait": "\n".join(
            [
                "- A lock that nobody queues for (test-and-set; measured holds alone): the longest "
                f"wait is {unfair.max():.1f} ms ({worst[0]}, {worst[1]}) instead of "
                f"{fair.max():.1f}, "
                f"{20e3 / unfair.max():,.0f} times less than the 20 s of the soft-lockup watchdog.",
                *lines,
            ]
        ),
        "cut": (
            "  - The change shortens it at the unfair lock, beyond the scatter of the seeds, on "
            + (", ".join(shorter) if shorter else "no machine")
            + ": a refill may still hold it for as many pages as before" * cuts_drains(releases)
            + "."
        ),
        "who comes back": (
            f"  - Of the holds of a drain under {last} 90 % have been waited for and are over "
            f"after {_between(table, last, SPINLOCKS[1])} us at the unfair lock, after "
            f"{_between(table, last, SPINLOCKS[0])} us at the queued one: who lets go and comes "
            "back at once is there before those that wait have seen it, as the clause says. No "
            "time passes between two chunks in the model, which is the extreme of it."
        ),
    }


def _between(table: pd.DataFrame, kernel: str, lock: str) -> str:
    part = table[(table["release"] == kernel) & (table["spinlock"] == lock)]["drain_p90_us"]
    return f"{part.min():.1f} to {part.max():.1f}"

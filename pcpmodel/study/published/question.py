"""A published table as a question that is asked for by name: its machines, its runs, its rows.

Nothing is fitted to such a table.  Its machines have no latency table of their own: each is taken
to be like measured ones (`pcpmodel.machine`, ``like``).  What a source states is input; what it
does not state is assumed, the same for all: `ASSUMED`, and what the note of a table adds.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pcpmodel.hardware.machines import Machine, machine
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.study.published.model import REPEATS
from pcpmodel.study.published.rows import Row, after, make_row
from pcpmodel.workload import Workload

__all__ = [
    "ASSUMED",
    "MEMORY_GIB",
    "OWN_SHEET",
    "TIMES",
    "Answer",
    "Figures",
    "Rules",
    "Server",
    "Step",
    "figures_of",
    "hardware_of",
    "rows_of",
    "runs_of",
]

Figures = Mapping[str, float]
#: Name, figures measured, figures predicted by seed.
Step = tuple[str, Figures, Sequence[Figures]]
Rules = Mapping[str, Mapping[str, float]]
#: Rows of a table, and what is assumed.
Answer = Callable[[Rules], tuple[list[Row], str]]

MEMORY_GIB = 192.0
#: With all CPUs of a server at it a round of will-it-scale's mapping takes up to 0.4 s.
TIMES = {"seconds": 1.0, "warmup_s": 0.5}
ASSUMED = "Nothing is fitted here. Assumed: holds and cost sheet of {like}, {memory:g} GiB."
#: The same of high-order-pcp-2022, of which the sheets are in part (tools/cost_sheets.py).
OWN_SHEET = ASSUMED.replace(
    "Nothing is fitted here.",
    "What a fault takes is from this source's rate of 2 processes and, with a guest's samples, a "
    "folio of the LRU lock from that of 48.",
)

#: Tolerance of a quantity that has none of its own.
_KINDS = {
    "rate": "score",
    "time": "score",
    "lru_contention": "lock_contention",
    "spinning": "lock_contention",
    "waiting to allocate": "lock_contention",
    "waiting to free": "lock_contention",
    "refill": "lock_contention",
    "drain": "lock_contention",
}


@dataclass(frozen=True)
class Server:
    """A machine of a table: its CPUs, and which measured ones it is like."""

    cpus: int
    nodes: int
    like: tuple[str, ...]


def hardware_of(name: str, server: Server) -> Machine:
    """The machine, by any name that no measured one has, or the measured one itself."""
    if server.like == (name,):
        return machine(name)
    return machine(name, like=server.like)


def runs_of(
    hardware: Machine, server: Server, release: str, workload: Workload, **given: Any
) -> list[Result]:
    """Runs of a workload with as many seeds as every prediction has."""
    run = {"memory_gib": MEMORY_GIB, **TIMES, **given}
    return [
        simulate(
            release, hardware, workload, cpus=server.cpus, nodes=server.nodes, seed=seed, **run
        )
        for seed in range(1, REPEATS + 1)
    ]


def figures_of(run: Result) -> dict[str, float]:
    """Shares of busy cycles [%]: waiting for each lock, and for the zone's by who waits."""
    waits = {k: 100 * ps / run.busy_ps for k, ps in run.by_kind["wait"].items()}
    holds = {k: 100 * ps / run.busy_ps for k, ps in run.by_kind["hold"].items()}
    return {
        "lock_contention": 100 * run.lock_contention,
        "lru_contention": 100 * run.lru_contention,
        "waiting to allocate": waits["refill"],
        "waiting to free": waits["drain"],
        "refill": waits["refill"] + holds["refill"],
        "drain": waits["drain"] + holds["drain"],
    }


def rows_of(
    source: str,
    table: str,
    steps: Sequence[Step],
    rules: Rules,
    relative: Sequence[str] = (),
    group: Callable[[str], str] = lambda name: "",
) -> list[Row]:
    """Rows of the steps of a table, each with its change from the step before and null models.

    Parameters
    ----------
    source, table : str
    steps : sequence of Step
        A step may leave out what nobody measured.
    rules : mapping
        Tolerances (`pcpmodel.study.published.rows.tolerances`).
    relative : sequence of str
        Quantities in % of the first step, which therefore says nothing of them.
    group : callable
        What a step belongs to, by its name: null models look at no other's.
    """
    rows: list[Row] = []
    seen: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        name, measured, said = step
        for quantity, value in measured.items():
            by_seed = [one[quantity] for one in said]
            kind = "change" if "change" in quantity else _KINDS.get(quantity, quantity)
            row = make_row(source, table, name, quantity, value, by_seed[0], rules, kind=kind)
            before = seen.setdefault((quantity, group(name)), [])
            before.append(step)
            if kind == "change":
                rows.append(
                    after(row, by_seed, before=0.0, runs_before=[0.0] * len(by_seed), first=0.0)
                )
            elif len(before) == 1:
                if quantity not in relative:
                    rows.append(replace(row, runs=tuple(by_seed)))
            else:
                rows.append(
                    after(
                        row,
                        by_seed,
                        before=before[-2][1][quantity],
                        runs_before=[one[quantity] for one in before[-2][2]],
                        first=before[0][1][quantity],
                    )
                )
    return rows

"""Which engine runs a spec, and what it says if it cannot."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from pcpmodel.errors import InputError
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.spec import RunSpec
from pcpmodel.simulation.state import Failure, State
from pcpmodel.workload.ops import OPS
from pcpmodel.workload.program import BLOCKS, MIGRATETYPES

__all__ = ["check_end", "runner_of"]


def _types_change(spec: RunSpec) -> bool:
    """Whether page blocks in which CPUs hold pages may be taken for another migratetype.

    That takes one that is not movable, as all of them are at first, and a lack of page blocks that
    are free as a whole.  What is taken, and to which list a page is freed, then depends on what
    other CPUs do while one waits for a lock: only the per-page engine knows that.
    """
    if not spec.identity:
        return False
    tasks, smallest = spec.workload.tasks, min(size.managed for size in spec.sizes)
    crowded = spec.aged or spec.page_cache or 2 * spec.workload.pages > smallest
    programs = {id(task.program): task.program for task in tasks}.values()
    asked = {op.pindex for program in programs for op in program.ops if op.code == OPS["alloc"]}
    return bool(crowded) and any(BLOCKS[i][1] != MIGRATETYPES["movable"] for i in asked)


def check_end(spec: RunSpec, state: State) -> None:
    """Raise what a run failed of."""
    if state.failed is Failure.LISTS_DISAGREE:
        raise AssertionError("lists of pages and their counts disagree; this is a bug")
    if state.failed is Failure.NO_TIME:
        raise InputError(
            f"workload {spec.workload.name!r}: a loop goes round in no time; a free of what is not "
            "held takes none"
        )
    if state.failed is not Failure.NONE:
        raise InputError(
            f"workload {spec.workload.name!r} ran out of memory, or of blocks as large as it asks "
            f"for, on {spec.host.memory_gib} GiB"
        )


def runner_of(spec: RunSpec, state: State, engine: str = "event") -> Engine | PerPage:
    """The engine that runs a spec: the one asked for, or the oracle where only that knows."""
    return PerPage(state) if engine == "per-page" or _types_change(spec) else Engine(state)

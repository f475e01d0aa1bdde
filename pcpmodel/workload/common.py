"""What every ready-made workload takes beside its own arguments."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pcpmodel.errors import unknown_name
from pcpmodel.workload.ops import OPS, SEQUENCES
from pcpmodel.workload.program import Op, Program
from pcpmodel.workload.tasks import Task, Workload

__all__ = ["COMMON", "adapted"]

#: Arguments of `adapted`.
COMMON = ("frees",)


def _rewritten(tasks: tuple[Task, ...], change: Callable[[Op], Op]) -> tuple[Task, ...]:
    """The tasks with every operation changed; who shared a program still does."""
    made: dict[int, Program] = {}
    for task in tasks:
        if id(task.program) not in made:
            made[id(task.program)] = task.program.rewritten(change)
    return tuple(replace(task, program=made[id(task.program)]) for task in tasks)


def adapted(workload: Workload, *, frees: str | None = None) -> Workload:
    """The same workload under other circumstances.

    Parameters
    ----------
    workload : Workload
        Any; the ready-made ones take the other arguments as their own.
    frees : str, optional
        Order in which blocks held are freed: "allocated", "reversed" or "shuffled", see
        `Program.free`; by default as the workload says, which is as allocated.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For what is impossible; an unknown name with the nearest.
    """
    given: dict[str, Any] = {}
    tasks = workload.tasks
    if frees is not None:
        if not isinstance(frees, str) or frees not in SEQUENCES:
            raise unknown_name("order of frees", frees, SEQUENCES)
        given["frees"] = frees
        sequence = SEQUENCES[frees]
        tasks = _rewritten(
            tasks, lambda op: op._replace(target=sequence) if op.code == OPS["free"] else op
        )
    return replace(workload, tasks=tasks, params=workload.params | given)

"""What every ready-made workload takes beside its own arguments: numactl's words, memcgs, frees."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pcpmodel.arguments import checked
from pcpmodel.errors import InputError, integer, unknown_name
from pcpmodel.proc.cpulist import parse_cpu_list
from pcpmodel.workload.ops import OPS, SEQUENCES
from pcpmodel.workload.program import Op, Program
from pcpmodel.workload.tasks import Made, Task, Workload

__all__ = ["COMMON", "adapted", "again", "as_made"]

#: Arguments of `adapted`.
COMMON = ("cpunodebind", "physcpubind", "membind", "preferred", "memcgs", "busy", "frees")
_PLACES = COMMON[:4]
_LAST_CPU = 8191  # of the largest machine


def _numbers(name: str, value: int | str | Sequence[int]) -> tuple[int, ...]:
    """CPUs or nodes: one, several, or as numactl and the kernel write them: "0-3,8"."""
    try:
        if isinstance(value, str):
            found = parse_cpu_list(value, Path(name))
        elif isinstance(value, int) and not isinstance(value, bool):
            found = (integer(name, value, 0, _LAST_CPU),)
        else:
            found = tuple(integer(name, n, 0, _LAST_CPU) for n in value)
    except (InputError, TypeError):
        found = ()
    if not found or len(set(found)) < len(found):
        raise InputError(
            f"{name}={value!r} is not a number in 0..{_LAST_CPU}, a list of different ones, or "
            "text such as '0-3,8'"
        )
    return found


def _changed(tasks: Sequence[Task], change: Callable[[Program], Program]) -> list[Task]:
    """The tasks with changed programs; who shared one still does."""
    made: dict[int, Program] = {}
    for task in tasks:
        if id(task.program) not in made:
            made[id(task.program)] = change(task.program)
    return [replace(task, program=made[id(task.program)]) for task in tasks]


@checked
def adapted(
    workload: Workload,
    *,
    cpunodebind: int | str | Sequence[int] | None = None,
    physcpubind: int | str | Sequence[int] | None = None,
    membind: int | str | Sequence[int] | None = None,
    preferred: int | None = None,
    memcgs: int | None = None,
    busy: float | None = None,
    frees: str | None = None,
) -> Workload:
    """The same workload under other circumstances.

    Parameters
    ----------
    workload : Workload
        Any; the ready-made ones take the other arguments as their own.
    cpunodebind, physcpubind : int, str or sequence of int, optional
        Nodes whose CPUs the tasks run on, in turn, or the very CPUs, the first task on the first;
        one of the two.  As numactl takes them: 0, "0-3,8", [0, 1].
    membind : int, str or sequence of int, optional
        Nodes that all memory comes from, and no other: MPOL_BIND.  Once they have none left above
        the min watermark the tasks wait for kswapd, or the run ends.
    preferred : int, optional
        Node that memory comes from as long as it has any: MPOL_PREFERRED.
    memcgs : int, optional
        Memory cgroups that the tasks are divided among, neighbours together: each has an LRU lock
        of its own on every node.
    busy : float, optional
        Share of the time that a task has something to do, 0.001..1: it rests at the end of every
        round (`Program.rest`), for times of an exponential law.  By default always.
    frees : str, optional
        Order in which blocks held are freed: "allocated", "reversed" or "shuffled", see
        `Program.free`; what the workload itself frees in another order than as allocated stays.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For what is impossible; an unknown name with the nearest.
    """
    given: dict[str, Any] = {}
    tasks = list(workload.tasks)
    if cpunodebind is not None and physcpubind is not None:
        raise InputError("give one of cpunodebind and physcpubind")
    if cpunodebind is not None:
        nodes = _numbers("cpunodebind", cpunodebind)
        given["cpunodebind"] = list(nodes)
        tasks = [
            replace(t, node=nodes[i % len(nodes)], near=None, cpu=None) for i, t in enumerate(tasks)
        ]
    if physcpubind is not None:
        cpus = _numbers("physcpubind", physcpubind)
        if len(cpus) < len(tasks):
            raise InputError(
                f"physcpubind: {len(cpus)} CPUs for {len(tasks)} tasks; each needs one of its own"
            )
        given["physcpubind"] = list(cpus[: len(tasks)])
        tasks = [replace(t, cpu=cpu) for t, cpu in zip(tasks, cpus, strict=False)]
    if membind is not None and preferred is not None:
        raise InputError("give one of membind and preferred")
    if membind is not None:
        given["membind"] = list(bound := _numbers("membind", membind))
        tasks = [replace(t, membind=bound, preferred=None) for t in tasks]
    if preferred is not None:
        given["preferred"] = integer("preferred", preferred, 0, 1023)
        tasks = [replace(t, membind=(), preferred=given["preferred"]) for t in tasks]
    if memcgs is not None:
        given["memcgs"] = integer("memcgs", memcgs, 1, len(tasks))
        tasks = [replace(t, memcg=i * memcgs // len(tasks)) for i, t in enumerate(tasks)]
    if frees is not None:
        if not isinstance(frees, str) or frees not in SEQUENCES:
            raise unknown_name("order of frees", frees, SEQUENCES)
        given["frees"] = frees
        sequence = SEQUENCES[frees]

        def freeing(op: Op) -> Op:
            return op if op.code != OPS["free"] or op.target else op._replace(target=sequence)

        tasks = _changed(tasks, lambda program: program.rewritten(freeing))
    if busy is not None:
        given["busy"] = busy
        tasks = _changed(tasks, lambda program: program.resting(busy))
    made, changed = workload.made, tuple(tasks)
    if made is not None:
        made = replace(made, common={**made.common, **given}, tasks=changed)
    return replace(workload, tasks=changed, params=workload.params | given, made=made)


def again(
    workload: Workload,
    *,
    placed: bool = True,
    here: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Workload:
    """The workload, made anew with other arguments; as it is where nobody knows what made it.

    Parameters
    ----------
    workload : Workload
    placed : bool
        CPUs and nodes as it has them; False: as if nobody had said.
    here : mapping, optional
        What a machine or a kernel gives it, see `Made`.
    **changes
        Arguments of what made it.

    Returns
    -------
    Workload
    """
    made = workload.made
    if made is None:
        return workload
    given = {**made.given, **changes}
    left = {k: v for k, v in {**made.here, **(here or {})}.items() if k not in changes}
    open_ = made.left - changes.keys()  # found anew: one follows from another
    fresh = made.make(**({k: v for k, v in given.items() if k not in open_} | left))
    fresh = replace(fresh, made=Made(made.make, given, here=left, left=open_))
    common = {k: v for k, v in made.common.items() if placed or k not in _PLACES}
    if "memcgs" in common:
        common["memcgs"] = min(common["memcgs"], len(fresh.tasks))
    if common:
        fresh = adapted(fresh, **common)
    # No argument says these: a user may have.
    names = ("name", "unit", "start_s", "mixed", "from_memory", "steady")
    return replace(fresh, **{name: getattr(workload, name) for name in names})


def as_made(workload: Workload) -> bool:
    """Whether its programs and channels are those that its arguments make.

    A program can be changed, and a channel be put in the place of another.
    """
    fresh = again(workload)
    pairs = {
        (id(mine.program), id(made.program)): (mine.program, made.program)
        for mine, made in zip(workload.tasks, fresh.tasks, strict=True)
    }
    return (
        workload.made is not None
        and workload.channels == fresh.channels
        and all(
            np.array_equal(mine.compiled(), made.compiled())
            and len(mine.tables) == len(made.tables)
            and all(map(np.array_equal, mine.tables, made.tables))
            for mine, made in pairs.values()
        )
    )

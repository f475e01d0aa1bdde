"""Which CPU runs which program: tasks, what they send each other, and all of it as a workload."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pcpmodel.arguments import checked
from pcpmodel.errors import InputError, integer
from pcpmodel.kernel.sizing import page_shift
from pcpmodel.workload.ops import LIMITS, OPS
from pcpmodel.workload.program import _MAX_OP_NS, Program, _count, _ps

__all__ = ["Channel", "Made", "Task", "Workload"]


@checked
@dataclass(frozen=True)
class Channel:
    """Messages from one task to another, in order.

    Attributes
    ----------
    producer, consumer : int
        Tasks, by their place in the workload.
    room : int
        Messages in flight before the producer waits.
    latency_ns : float
        From sending to the earliest receipt [ns].
    """

    producer: int
    consumer: int
    room: int = 16
    latency_ns: float = 0.0


@checked
@dataclass(frozen=True)
class Task:
    """One process on a CPU of its own.

    Attributes
    ----------
    program : Program
    node : int or None
        NUMA node of its CPU; None spreads tasks evenly.
    channels : tuple of int
        Channels of the workload that the program calls 0, 1, ...
    peer : int or None
        Task whose zone the program calls "peer".
    near : int or None
        A task before this one, on whose node it runs as long as that has a CPU left; ``node`` is
        None then.
    cpu : int or None
        This very CPU, whatever the node says.
    membind : tuple of int
        Nodes that its memory comes from, and no other: MPOL_BIND; empty: any, its own first.
    preferred : int or None
        Node that its memory comes from as long as there is any: MPOL_PREFERRED.
    memcg : int
        Memory cgroup that its pages are charged to, 0..1023: each has an LRU lock on every node.
    """

    program: Program
    node: int | None = None
    channels: Sequence[int] = ()
    peer: int | None = None
    near: int | None = None
    cpu: int | None = None
    membind: Sequence[int] = ()
    preferred: int | None = None
    memcg: int = 0

    def __post_init__(self) -> None:
        for name in ("channels", "membind"):
            object.__setattr__(self, name, tuple(map(int, getattr(self, name))))


@dataclass(frozen=True)
class Made:
    """What made a workload.

    Attributes
    ----------
    make : callable
    given : mapping
        Its arguments, those that were left to it aside.
    common : mapping
        Those of `pcpmodel.workload.adapted` since.
    here : mapping
        Those that a machine or a kernel gave where none was given, which another one may give
        otherwise.
    tasks : tuple of Task
        What came of it; empty: nothing yet.
    left : frozenset of str
        Those of ``given`` that the machine says: the workload was asked for by its name, without
        them, and its pages are those of the machine.
    """

    make: Callable[..., Workload]
    given: Mapping[str, Any]
    common: Mapping[str, Any] = field(default_factory=dict)
    here: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ()
    left: frozenset[str] = frozenset()


@checked
@dataclass(frozen=True)
class Workload:
    """What the machine is asked to do.

    Attributes
    ----------
    name : str
    tasks : tuple of Task
        One per CPU used.
    unit : str
        What one unit of the score is.
    pages : int
        Pages that the tasks hold together at most [pages]; a machine with less memory is
        refused before the run.
    channels : tuple of Channel
    params : dict
        What it was made from, for the record.
    page_size_kib : int
        Size of the pages that it counts, and that its times are for: 4, 16 or 64 [KiB]; a machine
        with others is refused before the run.
    start_s : float
        Tasks begin at any time within it [s].
    mixed : float
        Share of the memory that others hold in single pages at random places on a machine that does
        this: what a pilot (`pcpmodel.simulation.pilot`) begins with, 0..0.95.
    from_memory : float
        Share of the pages that came from memory when its times were recorded, 0..1; of less, the
        rest of those that do so here takes more.
    made : Made, optional
        What makes it again, for other times or fewer tasks; None once its tasks are others.
    steady : bool
        It goes on at the same rates for ever, once it has warmed up; False for a course of
        events.
    """

    name: str
    tasks: tuple[Task, ...]
    unit: str
    pages: int
    channels: tuple[Channel, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    page_size_kib: int = 4
    start_s: float = 1e-3
    mixed: float = 0.0
    from_memory: float = 1.0
    made: Made | None = None
    steady: bool = True

    def __repr__(self) -> str:
        n = len(self.tasks)
        return f"<Workload {self.name}: {n} task{'s' * (n > 1)}, score in {self.unit}>"

    @property
    def endless(self) -> bool:
        """Whether all tasks go on at the same rates for as long as anybody looks."""
        return self.steady and all(p.endless for p in self._programs())

    @property
    def takes_pages(self) -> bool:
        """Whether any task allocates."""
        return any(op.code == OPS["alloc"] for p in self._programs() for op in p.ops)

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of the phases that its programs tell apart; the first, "", is outside of all."""
        names = (name for program in self._programs() for name in program.names())
        return tuple(dict.fromkeys(["", *names]))

    def _programs(self) -> Collection[Program]:
        """Those of the tasks, each once."""
        return {id(task.program): task.program for task in self.tasks}.values()

    def __post_init__(self) -> None:
        if self.made is not None and self.made.tasks is not self.tasks:
            mine = None if self.made.tasks else replace(self.made, tasks=self.tasks)
            object.__setattr__(self, "made", mine)
        page_shift(self.page_size_kib)
        if not self.tasks:
            raise InputError(f"workload {self.name!r} has no tasks")
        integer("pages", self.pages, 0, 1 << 53)
        for name, most in (("start_s", _MAX_OP_NS / 1e9), ("mixed", 0.95), ("from_memory", 1.0)):
            value = getattr(self, name)
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not number or not 0 <= value <= most:
                raise InputError(
                    f"workload {self.name!r}: {name}={value!r} is not a number in 0..{most:g}"
                )
        if len(self.phases) > LIMITS["phases"]:
            raise InputError(
                f"workload {self.name!r} has {len(self.phases) - 1} phases, "
                f"{LIMITS['phases'] - 1} at most"
            )
        n = len(self.tasks)
        for i, channel in enumerate(self.channels):
            _count(f"channel {i}: room", channel.room, 1)
            _ps(f"channel {i}: latency_ns", channel.latency_ns, _MAX_OP_NS)
            for end in (channel.producer, channel.consumer):
                if end not in range(n):
                    raise InputError(f"channel {i} names task {end}; there are {n}")
        at = {"send": "n", "recv": "n", "give": "target", "take": "target"}
        slots = {OPS[code]: field for code, field in at.items()}
        used_by = {  # many tasks share a program
            place: {getattr(op, slots[op.code]) for op in program.ops if op.code in slots}
            for place, program in {id(t.program): t.program for t in self.tasks}.items()
        }
        for i, task in enumerate(self.tasks):
            if _count(f"task {i}: memcg", task.memcg) > 1023:
                raise InputError(f"task {i}: memcg={task.memcg} is outside 0..1023")
            if task.peer is not None and task.peer not in range(n):
                raise InputError(f"task {i}: peer={task.peer}; there are {n} tasks")
            if task.near is not None and (task.near not in range(i) or task.node is not None):
                raise InputError(
                    f"task {i}: near={task.near!r}, node={task.node!r}; allowed: a task before it, "
                    "and no node"
                )
            for slot, channel in enumerate(task.channels):
                if channel not in range(len(self.channels)):
                    raise InputError(f"task {i}: channel {channel} is not in the workload")
                ends = self.channels[channel]
                both = {"producer": ("send", "give"), "consumer": ("recv", "take")}
                doers = {OPS[c]: (c, getattr(ends, end)) for end, cs in both.items() for c in cs}
                for op in task.program.ops:
                    if op.code in doers and getattr(op, slots[op.code]) == slot:
                        code, end = doers[op.code]
                        if end != i:
                            raise InputError(
                                f"task {i} cannot {code} on channel {channel}: task {end} does"
                            )
            used = used_by[id(task.program)]
            if used - set(range(len(task.channels))):
                raise InputError(
                    f"task {i} uses channel slot {max(used)}, has {len(task.channels)}"
                )

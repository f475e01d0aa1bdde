"""What a CPU does, written in a few lines of Python and run in C.

A program is a list of operations with at most a few nested loops::

    p = Program()
    with p.forever():
        p.alloc(32768, ns=1400)
        p.score(32768)
        p.free(ns=80)

The engines interpret the compiled form; nothing here runs inside a simulation.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pcpmodel.arguments import checked
from pcpmodel.errors import InputError, integer, truth, unknown_name
from pcpmodel.kernel.lists import (
    MAX_PCP_LISTS,
    MIGRATETYPES,
    PCP_ORDERS,
    order_to_pindex,
    pindex_to_order,
    pindex_to_type,
)
from pcpmodel.workload.ops import LIMITS, OPS, SEQUENCES

__all__ = ["ALL", "BLOCKS", "MIGRATETYPES", "ORDERS", "Program", "Register", "check_ops"]

#: Free everything held of that order and migratetype.
ALL = -1
#: Orders of blocks: MAX_PAGE_ORDER is 10.
ORDERS = range(11)
#: Order and migratetype of every kind of block: by list, as if each type had one of every order
#: that has any (the engine takes the lists of the release), then those that no list holds.
BLOCKS = [(pindex_to_order(i), pindex_to_type(i)) for i in range(MAX_PCP_LISTS)] + [
    (order, mt) for order in ORDERS if order not in PCP_ORDERS for mt in MIGRATETYPES.values()
]
_ZONES = {"home": 0, "peer": 1}
_MAX_COUNT = 1 << 30
_MAX_TASKS = 1024  # each needs a CPU of its own, and no machine has more
_MAX_BLOCK_NS = 100_000_000.0  # 0.1 s
_MAX_OP_NS = 9e12  # 2.5 hours, as long as a run may be


@dataclass(frozen=True)
class Register:
    """A number drawn while the program runs; stands for a count."""

    index: int


def _zone(of: str) -> int:
    if not isinstance(of, str) or of not in _ZONES:
        raise unknown_name("zone", of, _ZONES)
    return _ZONES[of]


def _count(name: str, value: object, least: int = 0) -> int:
    return integer(name, value, least, _MAX_COUNT)


def _count_or_all(name: str, value: object) -> int:
    return ALL if isinstance(value, int | np.integer) and value == ALL else _count(name, value, 1)


def _tasks(name: str, value: object) -> int:
    return integer(name, value, 1, _MAX_TASKS)


def _ps(name: str, ns: object, most: float) -> int:
    if (
        isinstance(ns, bool)
        or not isinstance(ns, int | float | np.number)
        or not -math.inf < ns < math.inf
    ):
        raise InputError(f"{name}={ns!r} is not a finite number of ns")
    if not 0 <= ns <= most:
        raise InputError(f"{name}={ns} ns is outside 0..{most:g} ns")
    return round(float(ns) * 1000)


def _kind(order: int, migratetype: str) -> int:
    """Place in `BLOCKS`."""
    mt = MIGRATETYPES[migratetype]
    if order in PCP_ORDERS:
        return order_to_pindex(MAX_PCP_LISTS, mt, order)
    return BLOCKS.index((order, mt), MAX_PCP_LISTS)


_NAMES = {number: name for name, number in OPS.items()}


class Op(NamedTuple):
    """One operation as the engines take it; ``pcpmodel/workload/ops.pxd`` says what of which."""

    ps: int
    code: int
    n: int
    reg: int = -1
    pindex: int = 0
    order: int = 0
    zone: int = 0
    target: int = 0
    depth: int = 0


def _is_timed(op: Op) -> bool:
    """Whether an operation surely takes its time: of blocks, at least one of a fixed number."""
    return op.code in (OPS["work"], OPS["idle"]) or (
        op.code in (OPS["alloc"], OPS["free"]) and op.n not in (0, ALL)
    )


def _check_time(ops: Sequence[Op], start: int, stop: int) -> None:
    """Refuse a loop over these operations that may go round in no time."""
    body, sure = [], start
    for i in range(start, stop):  # what a maybe() may skip does not count
        if ops[i].code == OPS["maybe"]:
            sure = max(sure, ops[i].target)
        if ops[i].code == OPS["pick"]:
            sure = max(sure, ops[i].depth)
        if i >= sure:
            body.append(ops[i])
    # A drawn count may be 0: only what surely takes time counts.
    if not any(op.ps > 0 and op.reg < 0 and _is_timed(op) for op in body):
        raise InputError(
            "a loop takes no time: give it an alloc or free of a fixed count, a work or an idle "
            "with ns above 0"
        )


#: Digests of programs that were found sound: every run of a sweep, and its pilot, ask again.
_SOUND: set[bytes] = set()
_MAX_SOUND = 4096


def check_ops(
    code: npt.NDArray[np.int64], tables: npt.NDArray[np.int32], phases: int = LIMITS["phases"]
) -> None:
    """Check all that the engines trust of a compiled program.

    Parameters
    ----------
    code : (n, 9) int64
        Operations, as `Program.compiled` returns them.
    tables : (tables, TABLE) int32
        What ``draw`` and ``pick`` refer to.
    phases : int
        Names that ``phase`` refers to.

    Raises
    ------
    InputError
        With the operation, its field, and what is allowed.
    """
    if code.ndim != 2 or code.shape[1] != len(Op._fields) or not len(code):
        raise InputError(f"a program of shape {code.shape} is not operations of {Op._fields}")
    shape = f"{code.dtype} {code.shape} {tables.dtype} {tables.shape} {phases}".encode()
    digest = hashlib.sha256(shape + code.tobytes() + tables.tobytes()).digest()
    if digest in _SOUND:
        return
    ops, last = [Op(*row) for row in code.tolist()], len(code) - 1
    for i, op in enumerate(ops):
        name = _NAMES.get(op.code, "")
        counted = name in ("alloc", "free", "score")
        registers = (0 if name == "draw" else -1, LIMITS["registers"] - 1)
        slots = (0, LIMITS["channels"] - 1)
        allowed = {
            "ps": (0, round(1000 * (_MAX_BLOCK_NS if counted else _MAX_OP_NS))),
            "code": (0, max(OPS.values())),
            "n": slots if name in ("send", "recv") else (ALL, _MAX_COUNT),
            "reg": registers if counted or name in ("draw", "work", "idle") else (-1, -1),
            "pindex": (0, len(BLOCKS) - 1),
            "order": (0, max(ORDERS)),
            "zone": (0, 1),
            "target": {
                "loop": (0, i),
                "maybe": (i + 1, last),
                "draw": (0, len(tables) - 1),
                "pick": (0, len(tables) - 1),
                "rest": (0, len(tables) - 1),
                "free": (0, max(SEQUENCES.values())),
                "give": slots,
                "take": slots,
            }.get(name, (0, 0)),
            "depth": {"loop": (0, LIMITS["loops"] - 1), "pick": (i + 1, last)}.get(name, (0, 1)),
        }
        if name == "pick":
            allowed["n"] = (1, LIMITS["table"])
        elif name == "barrier":
            allowed["n"] = (0, LIMITS["barriers"] - 1)
        elif name == "phase":
            allowed["n"] = (0, phases - 1)
        elif name in ("alloc", "loop", "score", "kswapd", "rest"):
            allowed["n"] = (0, _MAX_COUNT)
        for field_, value in zip(Op._fields, op, strict=True):
            low, high = allowed[field_]
            if not low <= value <= high:
                raise InputError(
                    f"operation {i} ({name or op.code}): {field_}={value} is outside {low}..{high}"
                )
        if name in ("alloc", "free", "give", "take") and op.order != BLOCKS[op.pindex][0]:
            raise InputError(f"operation {i} ({name}): kind {op.pindex} is not of order {op.order}")
        if name == "loop":
            _check_time(ops, op.target, i)
        if name == "pick":
            places = tables[op.target, : op.n]
            if places.min() <= i or places.max() > last:
                raise InputError(f"operation {i} (pick): leads to {places.min()}..{places.max()}")
        if (name == "end") != (i == last):
            raise InputError(f"operation {i}: a program has one end, its last operation")
    if len(tables) and not 0 <= tables.min() <= tables.max() <= _MAX_COUNT:
        raise InputError(f"tables: {tables.min()}..{tables.max()} leaves 0..{_MAX_COUNT}")
    if len(_SOUND) >= _MAX_SOUND:
        _SOUND.clear()
    _SOUND.add(digest)


class Program:
    """Operations of one kind of process.

    Times are mean values: the engine jitters work (`simulate(jitter=...)`).
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.tables: list[npt.NDArray[np.int32]] = []
        self.phases: list[str] = [""]
        self._phase = 0
        self._depth = 0
        self._open: set[int] = set()  # choices that have not landed
        self._checked: tuple[list[Op], list[Any], list[str], npt.NDArray[np.int64]] | None = None
        self._registers = 0

    def copy(self) -> Program:
        """A program of the same operations; what becomes of the one leaves the other alone."""
        other = Program()
        vars(other).update(vars(self), ops=[*self.ops], tables=[*self.tables])
        other.phases, other._open = [*self.phases], {*self._open}
        return other

    @checked
    def rewritten(self, change: Callable[[Op], Op]) -> Program:
        """A program of the same operations, each as ``change`` gives it back."""
        other = self.copy()
        other.ops = [change(op) for op in self.ops]
        return other

    @checked
    def resting(self, busy: float) -> Program:
        """A program that does the same and rests (`rest`) at the end of every endless round."""
        other = self.copy()
        if other.endless:
            loop = other.ops.pop()
            other.rest(busy)
            other.ops.append(loop)
        return other

    @property
    def endless(self) -> bool:
        """Whether it ends with a loop that never does."""
        return bool(self.ops) and self.ops[-1].code == OPS["loop"] and self.ops[-1].n == 0

    def _add(self, code: str, ps: int = 0, n: int = 0, reg: int = -1, **more: int) -> None:
        if self.endless:
            raise InputError("nothing can follow a loop that never ends")
        self.ops.append(Op(ps, OPS[code], n, reg, **more))

    def _set(self, at: int, **fields: int) -> None:
        self.ops[at] = self.ops[at]._replace(**fields)

    def _pages(
        self,
        code: str,
        blocks: int | Register,
        order: int,
        migratetype: str,
        ns: float,
        lru: bool,
        of: str,
        sequence: str = "allocated",
    ) -> None:
        if not isinstance(order, int | np.integer) or order not in ORDERS:
            raise InputError(f"order={order!r} is not a whole number in 0..{max(ORDERS)}")
        for what, name, names in (
            ("migratetype", migratetype, MIGRATETYPES),
            ("sequence", sequence, SEQUENCES),
        ):
            if not isinstance(name, str) or name not in names:
                raise unknown_name(what, name, names)
        zone = _zone(of)
        n, reg = (0, blocks.index) if isinstance(blocks, Register) else (blocks, -1)
        if reg < 0:
            n = _count_or_all("blocks", n) if code == "free" else _count("blocks", n, 1)
        ps = _ps("ns", ns, _MAX_BLOCK_NS)
        if truth("lru", lru) and code == "free":
            # lru_add_drain(), by free_pages_and_swap_cache(), __pagevec_release(), an unmap
            self.lru_drain()
        self._add(
            code,
            ps,
            n,
            reg,
            pindex=_kind(order, migratetype),
            order=order,
            zone=zone,
            target=SEQUENCES[sequence],
            depth=int(truth("lru", lru)),
        )

    def alloc(
        self,
        blocks: int | Register,
        *,
        order: int = 0,
        migratetype: str = "movable",
        ns: float = 0.0,
        lru: bool = False,
        of: str = "home",
    ) -> None:
        """Allocate blocks one after the other.

        Parameters
        ----------
        blocks : int or Register
            How many blocks.
        order : int
            0..10: blocks of ``2**order`` pages.  What no per-CPU list of the release holds (4..8
            and 10; up to v5.13 all but 0) is taken and freed block by block under the zone lock.
        migratetype : str
            "unmovable", "movable" or "reclaimable".
        ns : float
            Time from one block to the next, the allocation and what is done with the
            block, without refills [ns].
        lru : bool
            The pages go to the LRU lists, whose lock is taken once per folio batch.
        of : str
            Zone: "home", or "peer" for that of the task's peer.
        """
        self._pages("alloc", blocks, order, migratetype, ns, lru, of)

    def free(
        self,
        blocks: int | Register = ALL,
        *,
        order: int = 0,
        migratetype: str = "movable",
        ns: float = 0.0,
        lru: bool = False,
        of: str = "home",
        sequence: str = "allocated",
    ) -> None:
        """Free blocks one after the other; never more than the program holds.

        Parameters are those of `alloc`; ``ALL`` frees everything held of that order,
        migratetype and zone.  With ``lru`` they leave the LRU lists in holds of as many pages as
        release_pages() has of one, and what is left at the end of the operation in one more; first
        go to the lists what waits to (`lru_drain`).

        Parameters
        ----------
        sequence : str
            Which of the blocks held go, and in what order: "allocated", the oldest first (a
            mapping that was touched from end to end and is unmapped), "reversed", the newest
            first (a stack), or "shuffled" (pages touched at random).  By count they are all
            alike; with page identity these very pages go.  What another CPU is to free is sent
            there: `send`.
        """
        self._pages("free", blocks, order, migratetype, ns, lru, of, sequence)

    def work(self, ns: float, *, times: Register | None = None) -> None:
        """Compute for ``ns`` [ns] without touching the allocator.

        Parameters
        ----------
        ns : float
            Up to 2.5 hours.
        times : Register, optional
            A drawn number of as many; 0 takes no time.
        """
        self._lasts("work", ns, times)

    def idle(self, ns: float, *, times: Register | None = None) -> None:
        """Sleep for ``ns`` [ns]; parameters are those of `work`."""
        self._lasts("idle", ns, times)

    def _lasts(self, code: str, ns: float, times: Register | None) -> None:
        if times is not None and not isinstance(times, Register):
            raise InputError(f"times={times!r} is not a Register: draw() one")
        reg = -1 if times is None else times.index
        self._add(code, _ps("ns", ns, _MAX_OP_NS), reg=reg)

    def rest(self, busy: float) -> None:
        """Sleep so long that the task is busy for a share ``busy`` of the time, 0.001..1.

        It is the time since it last rested that counts, or since it began; how long the rest lasts
        around its mean is drawn from an exponential law: jobs that come and go.
        """
        if isinstance(busy, bool) or not isinstance(busy, int | float) or not 0.001 <= busy <= 1:
            raise InputError(f"busy={busy!r} is not a number in 0.001..1")
        size = LIMITS["table"]
        law = -np.log1p(-(np.arange(size) + 0.5) / size)
        self.tables.append(np.rint(65536 * law / law.mean()).astype(np.int32))
        self._add("rest", n=round(65536 * (1 / busy - 1)), target=len(self.tables) - 1)

    def lru_drain(self, *, of: str = "home") -> None:
        """Take the LRU lock for the pages that wait to go to its lists, if there are any.

        Otherwise they wait until a batch is full, or pages leave the lists: lru_add_drain() does
        so then.
        """
        self._add("lru_drain", zone=_zone(of))

    def barrier(self, number: int = 0, *, ns: float = 0.0) -> None:
        """Sleep until all tasks have come to this barrier that have it in their program.

        Parameters
        ----------
        number : int
            Which barrier of the workload, 0..1023.
        ns : float
            From the arrival of the last task until this one goes on [ns].
        """
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise InputError(f"barrier {number!r} is not a whole number")
        if number not in range(LIMITS["barriers"]):
            raise InputError(f"barrier {number}; a workload has 0..{LIMITS['barriers'] - 1}")
        self._add("barrier", _ps("ns", ns, _MAX_OP_NS), int(number))

    def send(self, channel: int = 0, **blocks: int) -> None:
        """Send a message on one of the task's channels; wait while it is full.

        Blocks travel with it: ``send(0, movable_0=1, unmovable_3=2)`` hands over one
        movable page and two unmovable order-3 blocks, which the receiver names alike.  With
        ``ALL`` everything held of a kind goes, however much that is.
        """
        self._move("give", blocks, "home", self._slot(channel))
        self._add("send", n=channel)

    def recv(self, channel: int = 0, **blocks: int) -> None:
        """Wait for a message; its blocks are then held, of zone "peer".

        What is not named stays with the channel until a later ``recv`` takes it.
        """
        self._add("recv", n=self._slot(channel))
        self._move("take", blocks, "peer", channel)

    @staticmethod
    def _slot(channel: int) -> int:
        if not isinstance(channel, int) or channel not in range(LIMITS["channels"]):
            raise InputError(f"channel={channel!r}; a task has {LIMITS['channels']} at most")
        return channel

    def _move(self, code: str, blocks: dict[str, int], of: str, channel: int) -> None:
        for name, n in blocks.items():
            migratetype, _, order = name.partition("_")
            known = [f"{m}_{o}" for m in MIGRATETYPES for o in ORDERS]
            if name not in known:
                raise unknown_name("kind of block", name, known)
            self._add(
                code,
                n=_count_or_all(name, n),
                pindex=_kind(int(order), migratetype),
                order=int(order),
                zone=_zone(of),
                target=channel,
            )

    def give(
        self,
        blocks: int,
        channel: int = 0,
        *,
        order: int = 0,
        migratetype: str = "movable",
        of: str = "home",
    ) -> None:
        """Put blocks (or ``ALL``) to a channel's next message; mostly `send` does that."""
        self._move("give", {f"{migratetype}_{order}": blocks}, of, self._slot(channel))

    def draw(
        self, values: Sequence[int] | npt.NDArray[Any], register: int | None = None
    ) -> Register:
        """Draw a number, each of ``values`` equally likely, at this point of every round.

        A long list is taken at equally spaced quantiles.  ``register`` 0..3 names the place
        where the number is kept; by default a new one.
        """
        try:
            table = np.asarray(values)
        except ValueError:  # lists of different lengths
            table = np.empty(0)
        if table.ndim != 1 or not len(table) or table.dtype.kind not in "iu":
            raise InputError("draw() needs a non-empty list of whole numbers")
        table = np.sort(table)
        if table[0] < 0 or table[-1] > _MAX_COUNT:
            raise InputError(f"draw(): {table[0]}..{table[-1]} leaves 0..{_MAX_COUNT}")
        if register is None:
            register = self._registers
        register = integer("register", register, 0, LIMITS["registers"] - 1)
        self._registers = max(self._registers, register + 1)
        size = LIMITS["table"]
        at = ((np.arange(size) + 0.5) * len(table) / size).astype(int)
        self.tables.append(table[at].astype(np.int32))
        self._add("draw", reg=register, target=len(self.tables) - 1)
        return Register(register)

    def score(self, units: int | Register = 1) -> None:
        """Count units of work done."""
        if isinstance(units, Register):
            self._add("score", reg=units.index)
        else:
            self._add("score", n=_count("units", units, 1))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what follows under a name of its own: `pcpmodel.simulation.result.Result.phases`.

        Inside another phase it counts as of this one alone.  A workload has up to 15 names.
        """
        if not isinstance(name, str) or not name:
            raise InputError(f"phase {name!r} has no name")
        if name not in self.phases:
            if len(self.phases) == LIMITS["phases"]:
                raise InputError(f"phase {name!r}: a workload has {LIMITS['phases'] - 1} at most")
            self.phases.append(name)
        outside, self._phase = self._phase, self.phases.index(name)
        self._add("phase", n=self._phase)
        yield
        self._phase = outside
        if not self.endless:
            self._add("phase", n=outside)

    @contextmanager
    def maybe(self, share: float) -> Iterator[None]:
        """Do what follows with a chance of ``share``, 0..1, drawn every time.

        The chance is the nearest multiple of 2**-30.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InputError(f"share={share!r} is not a number in 0..1")
        at = len(self.ops)
        self._add("maybe", n=round(_MAX_COUNT * share))
        yield
        self._set(at, target=len(self.ops))

    def one_of(
        self, choices: Sequence[Callable[[], None]], weights: Sequence[int] | None = None
    ) -> None:
        """Do one of several things, drawn every time.

        Parameters
        ----------
        choices : sequence of callable
            Each adds its operations.
        weights : sequence of int, optional
            How likely each is; by default all are equally likely.  Their sum is at most 1024.
        """
        for jump in self.enter(choices, weights):
            self.land(jump)

    def enter(
        self, choices: Sequence[Callable[[], None]], weights: Sequence[int] | None = None
    ) -> list[int]:
        """Do one of several things, drawn, and go on where `land` says, each elsewhere.

        Parameters are those of `one_of`.  A process may so be amid a round of its loop when the run
        begins, and have done before what it would have by then.

        Returns
        -------
        list of int
            What `land` takes, for each choice.
        """
        if not isinstance(choices, Sequence) or not all(map(callable, choices)):
            raise InputError("one_of() and enter() need a list of functions")
        weights = [1] * len(choices) if weights is None else weights
        if not isinstance(weights, Sequence):
            raise InputError(f"weights={weights!r} is not a list of whole numbers")
        if len(weights) != len(choices):
            raise InputError(f"{len(choices)} choices have {len(weights)} weights")
        total = sum(_count("weight", w, 1) for w in weights)
        if not 1 <= total <= LIMITS["table"]:
            raise InputError(f"the weights of choices add up to {total}, not 1..{LIMITS['table']}")
        pick, table = len(self.ops), np.zeros(LIMITS["table"], dtype=np.int32)
        self._add("pick", n=total, target=len(self.tables))
        self.tables.append(table)
        leave, at = [], 0
        for choice, weight in zip(choices, weights, strict=True):
            table[at : at + weight] = len(self.ops)
            at += weight
            choice()
            leave.append(len(self.ops))
            self._add("maybe")  # never: on to where it lands
        self._set(pick, depth=len(self.ops))
        self._open |= {*leave}
        return leave

    def land(self, jump: int) -> None:
        """Here goes on who did this choice of `enter`, in the phase that it ended in.

        Parameters
        ----------
        jump : int
            What `enter` returned for the choice; it lands once.
        """
        if _count("jump", jump) not in self._open:
            raise InputError(f"land({jump!r}): no choice of enter() that has yet to land")
        self._open.remove(jump)
        self._set(jump, target=len(self.ops))

    @contextmanager
    def repeat(self, times: int) -> Iterator[None]:
        """Go round ``times`` times."""
        with self._loop(_count("times", times, 1)):
            yield

    @contextmanager
    def forever(self) -> Iterator[None]:
        """Go round until the run ends; must be the last thing in a program."""
        if self._depth:
            raise InputError("a loop that never ends cannot be inside another one")
        with self._loop(0):
            yield

    @contextmanager
    def _loop(self, times: int) -> Iterator[None]:
        if self._depth == LIMITS["loops"]:
            raise InputError(f"loops nest at most {LIMITS['loops']} deep")
        start, depth = len(self.ops), self._depth
        self._depth += 1
        yield
        self._depth -= 1
        _check_time(self.ops, start, len(self.ops))
        self._add("loop", n=times, target=start, depth=depth)

    def names(self) -> list[str]:
        """Names of its phases, a public attribute, once they are known to be such."""
        names = self.phases
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"Program.phases={names!r} is not a list of names")
        return names

    def compiled(self) -> npt.NDArray[np.int64]:
        """Operations as `pcpmodel.simulation.state.State` takes them."""
        if self._depth:
            raise InputError("a loop of the program is still open")
        if self._open:
            raise InputError(f"enter(): {len(self._open)} of its choices do not land()")
        if self._checked is not None:
            ops, tables, phases, code = self._checked
            pairs = (ops, self.ops), (tables, self.tables), (phases, self.phases)
            if all(len(was) == len(now) and all(map(is_, was, now)) for was, now in pairs):
                return code.copy()
        ops = [*self.ops, Op(0, OPS["end"], 0)]
        for i, op in enumerate(ops):
            if not isinstance(op, Op) or any(type(number) is not int for number in op):
                raise InputError(f"operation {i}, {op!r}, is not an Op of whole numbers")
        if not isinstance(self.tables, list | tuple):
            raise InputError(f"Program.tables={self.tables!r} is not a list of arrays")
        for i, table in enumerate(self.tables):
            if not isinstance(table, np.ndarray) or table.shape != (LIMITS["table"],):
                raise InputError(
                    f"Program.tables: {i} is not an array of {LIMITS['table']} numbers"
                )
        names = self.names()
        try:
            code = np.array(ops, dtype=np.int64)
            tables = np.array(self.tables, dtype=np.int32).reshape(-1, LIMITS["table"])
        except (OverflowError, ValueError) as error:
            raise InputError(f"program: {error}") from None
        check_ops(code, tables, min(len(names), LIMITS["phases"]))
        self._checked = [*self.ops], [*self.tables], [*names], code
        return code.copy()

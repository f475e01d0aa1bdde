"""How many cache lines of struct pages a hold misses, computed from what the CPUs do.

The tables of ``data/hardware`` were measured with one process that maps, touches and unmaps the
same memory: each page that a hold moved had just been used, or its line came ahead (`PageLines`
finds 0.02 misses a block there).  Elsewhere a page was freed by another CPU, or long ago, or stands
beside no page that was freed with it, and the hold waits for its line.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import dataclass, replace

from pcpmodel.errors import InputError
from pcpmodel.hardware.lines import LINE_PLACES, PageLines
from pcpmodel.simulation.run import runner_of
from pcpmodel.simulation.setup import setup
from pcpmodel.simulation.spec import RunSpec
from pcpmodel.simulation.state import Failure, State

__all__ = ["Misses", "misses"]

_PS = 10**12
_BLOCK_PAGES = 1024
_EVENTS = 500
#: Places from which a line does not come in time.
_LATE = ("llc", "dirty", "memory")


@dataclass(frozen=True)
class Misses:
    """Lines per block that holds moved, by where they were.

    Attributes
    ----------
    refill, drain : dict
        Place (`LINE_PLACES`) -> lines per block; a refill writes the line of each block, a drain
        also looks at its buddy's.
    refill_blocks, drain_blocks : int
        Blocks that were counted.
    """

    refill: dict[str, float]
    drain: dict[str, float]
    refill_blocks: int
    drain_blocks: int

    @property
    def per_block(self) -> float:
        """Lines that a hold waits for, per block moved: mean of refill and drain."""
        return sum(side[place] for side in (self.refill, self.drain) for place in _LATE) / 2


def misses(spec: RunSpec) -> Misses:
    """Count the misses of a run, with page identity.

    Parameters
    ----------
    spec : RunSpec
        Its ``warmup_s`` is not counted, and has to be given: in fresh memory free pages stand in
        order, and it takes a while until the work has mixed them.

    Returns
    -------
    Misses

    Raises
    ------
    InputError
        Without a warm-up, or if nothing was refilled or drained after it.

    Notes
    -----
    Not counted are the lines beside a block in its free list and those of blocks split or merged;
    private and last-level cache are ``l2_kib`` and ``llc_slice_kib`` of the host.  `Misses` of the
    same spec are the same on every machine.
    """
    if spec.warmup_s is None:
        raise InputError("warmup_s: give it; misses are counted after it")
    spec = replace(spec, identity=True)
    begins = setup(spec)
    managed = [-(-size.managed // _BLOCK_PAGES) * _BLOCK_PAGES for size in spec.sizes]
    lines = PageLines(
        len(begins.tasks), managed, float(spec.host.l2_kib), float(spec.host.llc_slice_kib)
    )
    state = State(replace(begins, lines=lines))
    engine = runner_of(spec, state)
    warm_ps = round(spec.warmup_s * _PS)
    done = False
    while not done and engine.now_ps < warm_ps:
        done = engine.run(_EVENTS)
    before = lines.counts()
    while not done:
        done = engine.run(100 * _EVENTS)
    if state.failed is not Failure.NONE:
        raise InputError(f"workload {spec.workload.name!r}: {state.failed.name} before its end")
    after = lines.counts()
    sides = {}
    blocks = {}
    for side in ("refill", "drain"):
        blocks[side] = after[side]["blocks"] - before[side]["blocks"]
        if not blocks[side]:
            raise InputError(
                f"workload {spec.workload.name!r}: no {side} in {spec.seconds} s after a warm-up "
                f"of {spec.warmup_s} s"
            )
        sides[side] = {
            place: (after[side][place] - before[side][place]) / blocks[side]
            for place in LINE_PLACES
        }
    return Misses(sides["refill"], sides["drain"], blocks["refill"], blocks["drain"])

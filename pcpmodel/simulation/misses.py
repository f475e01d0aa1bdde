"""How many cache lines of struct pages a hold misses, and how many pages come from memory.

The tables of ``data/hardware`` were measured with one process that maps, touches and unmaps the
same memory: each page that a hold moved had just been used, or its line came ahead (`PageLines`
finds 0.02 misses a block there).  Elsewhere a page was freed by another CPU, or long ago, or stands
beside no page that was freed with it, and the hold waits for its line.  Whoever is handed
a page whose data have left the caches of its socket waits for them as well, outside the hold.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import dataclass, replace

from pcpmodel.errors import InputError
from pcpmodel.hardware.cache import PageCache
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
    """Lines per block that holds moved, by where they were, and pages that were in no cache.

    Attributes
    ----------
    refill, drain : dict
        Place (`LINE_PLACES`) -> lines per block; a refill writes the line of each block, a drain
        also looks at its buddy's.
    refill_blocks, drain_blocks : int
        Blocks that were counted.
    from_memory : float
        Share of the pages allocated whose data were in no cache of the socket, 0..1.
    """

    refill: dict[str, float]
    drain: dict[str, float]
    refill_blocks: int
    drain_blocks: int
    from_memory: float

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
    private cache and share of the last-level cache are ``l2_kib`` and ``llc_slice_kib`` of the
    host.  The data of pages lie in one last-level cache of each node, ``llc_slice_kib`` for each of
    its CPUs, as if CPUs used them in the order in which the engine comes to them.  `Misses` of
    the same spec are the same on every machine.
    """
    if spec.warmup_s is None:
        raise InputError("warmup_s: give it; misses are counted after it")
    spec = replace(spec, identity=True)
    begins = setup(spec)
    managed = [-(-size.managed // _BLOCK_PAGES) * _BLOCK_PAGES for size in spec.sizes]
    lines = PageLines(
        len(begins.tasks), managed, float(spec.host.l2_kib), float(spec.host.llc_slice_kib)
    )
    state = State(replace(begins, lines=lines, caches=_shared(spec)))
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
    found = [
        sum(cpu[f"found_{where}"] for cpu in state.counters())
        for where in ("private", "llc", "memory")
    ]
    from_memory = found[-1] / max(sum(found), 1)
    return Misses(sides["refill"], sides["drain"], blocks["refill"], blocks["drain"], from_memory)


def _shared(spec: RunSpec) -> PageCache:
    """Private caches, and one last-level cache of each node."""
    host, cpus = spec.host, spec.cpus
    llc_kib = host.llc_slice_kib * host.cpus_per_node
    nodes = [cpu // host.cpus_per_node for cpu in cpus]
    return PageCache(len(cpus), int(host.l2_kib) // 4, int(llc_kib) // 4, nodes)

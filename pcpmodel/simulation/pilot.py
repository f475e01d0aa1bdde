"""What a run by count cannot know of single pages: counted in a short run that follows them.

With page identity each hold takes what the lines take that it finds (`pcpmodel.hardware.lines`).  A
run by count takes the same from averages: where the line of a block was, by order, and how many
pages' data had left the caches.  A *pilot* finds them: the same
work under the same rules, list sizes and costs, on fewer CPUs of one node, for so many blocks
that moved.  It is the same every time and for every seed, and is made once for a workload, rules,
machine and sizes.

The latency tables of ``data/hardware`` were measured with one process that maps, touches and unmaps
the same memory: each page that a hold moved had just been used, or its line came ahead.  That much
is in a hold's warm part.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcpmodel.hardware.cache import PageCache
from pcpmodel.hardware.lines import LINE_PLACES
from pcpmodel.simulation.engines import check_end, runner_of
from pcpmodel.simulation.once import Once
from pcpmodel.simulation.setup import LATE, Lines, line_ns, setup
from pcpmodel.simulation.spec import RunSpec
from pcpmodel.simulation.state import LISTS_ROOM, Failure, State
from pcpmodel.workload.common import again, as_made
from pcpmodel.workload.program import BLOCKS

__all__ = ["Pilot", "lines_of", "mean_line_ns", "pilot", "pilot_spec", "prepare"]

#: CPUs of a pilot at most, where the workload can be made smaller.
CPUS = 16
#: Memory at most, above what the work holds [GiB].
MEMORY_GIB = 8.0
#: Blocks that move before it counts, and at least while it does: all that the work holds comes and
#: goes then.  Of a build's course they would be a part, and which it is a matter of chance.
BLOCKS_BEFORE = 150_000
BLOCKS_COUNTED = 150_000
#: Blocks of refills, and of drains, that a pilot goes on for.
FEWEST = 5_000
#: The longest stretch that is simulated for them [s], and the pages allocated after which it is
#: left at those that moved: a workload may hardly ask the zone.  They are more than the memory, all
#: of which a workload may take before it frees any.  And events: it may hardly take any, either.
SECONDS = 16.0
PAGES = 3_000_000
EVENTS = 10_000_000
#: Events after which it is looked at what has moved, and between which Ctrl-C is heard.
_STEP = 20
_EVENTS = 200_000
_LINES_OF_A_PAGE = 64
_COUNTS = {"kbuild": "jobs", "page_fault1": "processes", "page_fault2": "processes",
           "sctp_stream": "pairs", "unix_stream": "pairs"}  # fmt: skip
#: What is the same in all pilots, whatever the runs that ask for them.
_ALIKE: dict[str, Any] = {
    "seconds": SECONDS, "warmup_s": 0.0, "seed": 1, "samples": 0, "identity": True, "caches": False,
}  # fmt: skip
_PILOTS: Once[Pilot] = Once()
#: Which pilot a run has: to make its spec takes as long as to make that of the run.
_PILOT_OF: Once[Pilot] = Once()


@dataclass(frozen=True)
class Pilot:
    """Averages over the holds of a pilot.

    Attributes
    ----------
    refill, drain : mapping
        Order of a block -> lines per block by where they were (`LINE_PLACES`), and ``blocks``; a
        refill writes the line of each block, a drain also looks at the buddy's, and where it merges
        at those of the buddy's neighbours and at the next buddy's.
    refill_blocks, drain_blocks : int
        Blocks counted.
    from_memory : float
        Share of the pages allocated whose data were in no cache of the socket, 0..1.
    """

    refill: Mapping[int, Mapping[str, float]]
    drain: Mapping[int, Mapping[str, float]]
    refill_blocks: int
    drain_blocks: int
    from_memory: float

    def places(self, side: str) -> dict[str, float]:
        """Lines per block of any order, by where they were."""
        orders = getattr(self, side).values()
        blocks = max(sum(found["blocks"] for found in orders), 1.0)
        return {
            place: sum(found[place] * found["blocks"] for found in orders) / blocks
            for place in LINE_PLACES
        }

    def late(self, side: str, order: int | None = None) -> float:
        """Lines per block, of an order or of all, that do not come in time."""
        orders = getattr(self, side)
        some = orders if order is None else {order: orders[order]}
        blocks = sum(found["blocks"] for found in some.values())
        if not blocks:
            return 0.0
        lines = sum(found[place] * found["blocks"] for found in some.values() for place in LATE)
        return float(lines / blocks)


def pilot_spec(spec: RunSpec) -> RunSpec:
    """The run that finds out, with page identity.

    Ready-made workloads have up to 16 CPUs there, on one node with a share of the memory in
    proportion, lists as large as in the zone that most tasks take from, and its hardware threads
    only where CPUs share cores; others, and those whose programs or channels somebody changed, are
    run as they are.
    """
    host, workload, cpus = spec.host, spec.workload, len(spec.workload.tasks)
    (busiest, _), *_ = Counter(zones[0] for zones in spec.zonelists).most_common()
    sizes = spec.sizes[busiest]
    smaller: dict[str, Any] = {}
    made = workload.made
    name = None if made is None else _COUNTS.get(made.make.__name__)
    if (
        made is not None
        and name is not None
        and not made.given.get("cross_node")
        and as_made(workload)
    ):
        of_one = cpus // made.given[name]  # CPUs for each of what is counted
        here = min(-(-cpus // host.nodes), CPUS, max(host.node_cpus))
        fewer: dict[str, Any] = {name: max(here // of_one, 1)}
        if "nodes" in made.given:
            fewer["nodes"] = 1
        workload = again(workload, placed=False, **fewer)
        here = len(workload.tasks)
        shares = cpus * host.threads_per_core > host.cpus
        least = workload.pages / (1 << 18) * 1.5 + 1
        held = (workload.pages + sizes.high_min * here) / (1 - max(spec.aged, workload.mixed))
        full = held / (1 << 18) * 1.25  # with lists as long as they may be
        own = host.memory_gib / host.cpus * here
        host = replace(
            host,
            cpus=here if shares and here % 2 == 0 else 2 * here,
            nodes=1,
            cpus_per_node=(),
            gib_per_node=(),
            cpuless_nodes=0,
            cpuless_gib=0.0,
            min_free_kbytes=0,
            memory_gib=float(math.ceil(max(min(own, MEMORY_GIB), least, full))),
            threads_per_core=host.threads_per_core if shares and here % 2 == 0 else 1,
        )
        fixed = sizes.high_min == sizes.high_max
        smaller = {
            "batch": sizes.batch,
            "high_pages": sizes.high_min if fixed else None,
            "high_min_pages": None if fixed else sizes.high_min,
            "high_fraction": 0,
        }
    return replace(
        spec,
        workload=workload,
        host=host,
        **smaller,
        changes=(),
        page_cache=0.0,
        aged=max(spec.aged, workload.mixed),
        **_ALIKE,
    )


def pilot(spec: RunSpec, seed: int = _ALIKE["seed"]) -> Pilot:
    """Averages for a run; made once for all that have the same.

    Parameters
    ----------
    spec : RunSpec
    seed : int
        Of the pilot, by default that of the pilot of every run: others tell how far it scatters.

    Raises
    ------
    InputError
        If a loop of the workload goes round in no time.
    """

    def made() -> Pilot:
        small = replace(pilot_spec(spec), seed=seed)
        llc_kib = _node_llc_kib(spec) * _on_a_node(small) / _on_a_node(spec)
        return _PILOTS(small, lambda: _counted(small, llc_kib), node_llc_kib=llc_kib)

    return _PILOT_OF(spec, made, **_ALIKE | {"seed": seed})


def _on_a_node(spec: RunSpec) -> int:
    """Tasks of the node that has most of them."""
    return max(Counter(map(spec.host.node_of, spec.cpus)).values())


def _node_llc_kib(spec: RunSpec) -> float:
    """Last-level cache of a node, also of its CPUs without a task."""
    return spec.host.llc_slice_kib * spec.host.cpus / spec.host.nodes


def _counted(spec: RunSpec, llc_kib: float) -> Pilot:
    """Averages of a pilot, from its start on; each node has so large a last-level cache."""
    begins = setup(spec)
    lines = begins.page_lines
    assert lines is not None
    follow = spec.workload.from_memory < 1
    state = State(replace(begins, caches=_shared(spec, llc_kib) if follow else None))
    engine = runner_of(spec, state)
    told = []

    done, left = False, EVENTS
    for wanted in (BLOCKS_BEFORE, max(BLOCKS_COUNTED, 2 * spec.workload.pages)):
        until = lines.blocks + wanted
        told.append((lines.counts(), _found(state)))
        while not done and lines.blocks < until:
            done = engine.run_until(_EVENTS, _STEP, until, PAGES) or lines.pages_used >= PAGES
            done |= (left := left - _EVENTS) <= 0
    # A workload may take pages for long before it frees any.
    while not done and not _both(told[-1][0], lines.counts()):
        done = engine.run(100 * _STEP) or lines.pages_used >= PAGES
        done |= (left := left - 100 * _STEP) <= 0
    told.append((lines.counts(), _found(state)))
    if state.failed is not Failure.OUT_OF_MEMORY:  # what happened until then counts
        check_end(spec, state)
    # What ended before the second half is counted from its beginning.
    first, last = told[1 if _blocks(told[1][0]) < _blocks(told[2][0]) else 0], told[2]
    sides: dict[str, dict[int, dict[str, float]]] = {}
    for side, orders in last[0].items():
        sides[side] = {}
        for order, counts in orders.items():
            before = first[0][side].get(order, {})
            blocks = counts["blocks"] - before.get("blocks", 0)
            if blocks:
                sides[side][order] = {
                    place: (counts[place] - before.get(place, 0)) / blocks for place in LINE_PLACES
                } | {"blocks": float(blocks)}
    moved = {s: int(sum(found["blocks"] for found in o.values())) for s, o in sides.items()}
    pages = [after - before for before, after in zip(first[1], last[1], strict=True)]
    from_memory = pages[-1] / max(sum(pages), 1) if follow else spec.workload.from_memory
    return Pilot(sides["refill"], sides["drain"], moved["refill"], moved["drain"], from_memory)


def _both(first: Mapping[str, Mapping[int, Any]], last: Mapping[str, Mapping[int, Any]]) -> bool:
    """Whether enough blocks of either side were counted between two moments."""
    moved = [
        sum(found["blocks"] for found in last[side].values())
        - sum(found["blocks"] for found in first[side].values())
        for side in ("refill", "drain")
    ]
    return min(moved) >= FEWEST


def _blocks(counts: Mapping[str, Mapping[int, Mapping[str, int]]]) -> int:
    return sum(found["blocks"] for orders in counts.values() for found in orders.values())


def _found(state: State) -> list[int]:
    """Pages allocated by where their data were: private cache, last-level cache, memory."""
    return [
        sum(cpu.get(f"found_{where}", 0) for cpu in state.counters())
        for where in ("private", "llc", "memory")
    ]


def _shared(spec: RunSpec, llc_kib: float) -> PageCache:
    """Private caches, and one last-level cache of each node.

    The data of pages lie there in the order in which the engine comes to CPUs.
    """
    host, cpus = spec.host, spec.cpus
    nodes = [host.node_of(cpu) for cpu in cpus]
    return PageCache(len(cpus), int(host.l2_kib) // 4, int(llc_kib) // 4, nodes)


def lines_of(spec: RunSpec) -> Lines | None:
    """What the blocks of a run take beside what is warm, from a pilot; None: nothing is known.

    That is so of warm pages, of base pages that are not of 4 KiB, whose buddy lists the model
    does not have, and of a workload that takes no pages.
    """
    if spec.warm or spec.host.page_size_kib != 4 or not spec.workload.takes_pages:
        return None
    told = pilot(spec)
    sheet = spec.machine.sheet
    at = line_ns(spec)
    block_ns = np.zeros((2, LISTS_ROOM))
    for side, orders in enumerate((told.refill, told.drain)):
        by_order = {
            order: sum(at[place] * found[place] for place in LATE)
            for order, found in orders.items()
        }
        blocks = sum(found["blocks"] for found in orders.values())
        mean = sum(ns * orders[o]["blocks"] for o, ns in by_order.items()) / max(blocks, 1)
        block_ns[side] = mean
        for kind, (order, _) in enumerate(BLOCKS):
            block_ns[side, kind] = by_order.get(order, mean)
    colder = max(told.from_memory - spec.workload.from_memory, 0.0)
    page_ns = colder * _LINES_OF_A_PAGE * at["memory"] / max(sheet.value("lines_at_once"), 1.0)
    return Lines(block_ns, page_ns)


def mean_line_ns(spec: RunSpec) -> float:
    """What a block takes in a hold beside what is warm, refills and drains as they are [ns]."""
    lines = lines_of(spec)
    if lines is None:
        return 0.0
    told = pilot(spec)
    total = blocks = 0.0
    for side, orders in enumerate((told.refill, told.drain)):
        for order, found in orders.items():
            blocks += found["blocks"]
            kind = next(kind for kind, block in enumerate(BLOCKS) if block[0] == order)
            total += found["blocks"] * float(lines.block_ns[side, kind])
    return total / blocks if blocks else 0.0


def prepare(spec: RunSpec) -> State:
    """Make the initial state of a run."""
    return State(setup(spec, lines_of(spec)))

"""What a load does on this machine, and what a machine's model says that it would do.

A *cell* is a kind of load (`pcpmodel.hardware.load.KINDS`), a number of processes and a value of
vm.percpu_pagelist_high_fraction.  `observe` measures one and `predict` simulates one; both give
the same quantities (`QUANTITIES`).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pcpmodel.errors import InputError
from pcpmodel.hardware.load import KINDS, Load, most_pages
from pcpmodel.hardware.machines import Machine
from pcpmodel.hardware.probe import median_interval
from pcpmodel.kernel.releases import Release
from pcpmodel.proc.host import HostFiles
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.simulation.spec import make_spec
from pcpmodel.study.page_lines import (
    LINE_ROWS,
    Places,
    at_random,
    page_lines,
    random_buddies,
    shifted,
)
from pcpmodel.trace.hold_tracer import SIDES, HoldTracer, Traced
from pcpmodel.workload.program import ALL, Program
from pcpmodel.workload.tasks import Channel, Task, Workload

__all__ = [
    "QUANTITIES",
    "Cell",
    "Observed",
    "ZoneHere",
    "event_ns",
    "levels",
    "measured_lines",
    "observe",
    "pairs_of",
    "predict",
    "zone_here",
]

#: Quantity -> (unit, what it is).
QUANTITIES = {
    "rate": ("1/s", "units per second of CPU time"),
    "refills": ("1", "refills per 1,000 pages allocated"),
    "drains": ("1", "drains per 1,000 pages freed"),
    "drained": ("1", "pages given back to the zone per page freed"),
    "refill_p50": ("us", "median hold of a refill"),
    "refill_p99": ("us", "99th percentile of a refill's holds"),
    "drain_p50": ("us", "median hold of a drain"),
    "drain_p99": ("us", "99th percentile of a drain's holds"),
    "waits": ("1", "waits per 1,000 holds of the zone lock"),
    "wait_p50": ("us", "median wait of those who waited"),
    "wait_p99": ("us", "99th percentile of the waits of those who waited"),
}
#: Holds or waits that a quantile needs: 1 in 100 must be there more than once.
ENOUGH_FOR = {"p50": 30, "p99": 300}
_ORDERS = range(4)  # of the lists that loads use
_SIDE_NAMES = {"alloc": "refill", "free": "drain"}
#: Messages of a stream on their way: what a socket buffer of 208 KiB holds.
_ROOM = 3
#: Columns of rates.csv without which nothing is predicted.
_NEEDED = ("rate", "refills", "refilled", "drains", "drained", *(f"blocks_{o}" for o in _ORDERS))
#: Spread of the pace of a load that was measured as a whole; an assumption.
_JITTER = 0.2
#: Parts of a region that a simulated load counts one by one.
_PARTS = 16
# Pages of the kernel's own that a region takes, unmovable and on the same lists.
#: Pages that a page of a page table maps (PTRS_PER_PTE).
_PER_TABLE = 512
#: Pages that a page lists while they are unmapped, and how many such pages there are at most
#: (MAX_GATHER_BATCH, MAX_GATHER_BATCH_COUNT); they are freed when unmapping is over.
_PER_BATCH, _BATCHES = 510, 10000 // 510
#: From unmapping until the page tables are freed, a grace period of RCU (tlb_remove_table): some 19
#: ms in a trace of these loads under Linux 6.18 [ns].
_GRACE_NS = 20e6


class Cell(NamedTuple):
    """A load and a setting."""

    kind: str
    processes: int
    fraction: int


def levels(kind: str, cpus: Sequence[int]) -> list[int]:
    """Numbers of processes of a kind of load: 1, 2, 4 .. as many as there are CPUs for."""
    most = len(cpus) // KINDS[kind].cpus
    return sorted({1 << k for k in range(most.bit_length())} | {most}) if most else []


def pairs_of(kind: str, processes: int, cpus: Sequence[int]) -> list[tuple[int, int]]:
    """CPUs of each process."""
    if KINDS[kind].cpus == 1:
        return [(cpu, cpu) for cpu in cpus[:processes]]
    return [(cpus[2 * i], cpus[2 * i + 1]) for i in range(processes)]


# ----------------------------------------------------------------- measured


@dataclass
class Observed:
    """What the rounds of one cell did.

    Attributes
    ----------
    samples : dict of str to list of float
        A value of every round: rates, counts, blocks of each order per unit.
    holds : dict of (str, int) to list of (ndarray, ndarray)
        By side and number of instances that traced it: of each hold of order-0 pages how many, and
        the time from the first to the last [ns].
    wait_us : list of ndarray
        Waits for the zone lock, in rounds where nothing else was traced [us].
    sees_waits : bool
        Whether the kernel has events of waits.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    holds: dict[tuple[str, int], list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = field(
        default_factory=dict
    )
    wait_us: list[NDArray[np.float64]] = field(default_factory=list)
    sees_waits: bool = True

    def _add(self, **values: float) -> None:
        for name, value in values.items():
            self.samples.setdefault(name, []).append(value)

    def add(
        self,
        free: Sequence[Mapping[str, float]],
        traced: Sequence[Mapping[str, float]],
        seen: Traced,
    ) -> None:
        """Take in what a round without tracing did, and one with."""
        units, cpu_s = _sum(free, "units"), _sum(free, "cpu_s")
        self._add(rate=units / cpu_s, first_share=_sum(free, "first_s") / cpu_s)
        done = _sum(traced, "units")
        self._add(traced_rate=done / _sum(traced, "cpu_s"))
        orders = 1 << np.arange(len(seen.allocated))
        allocated, freed = float(seen.allocated @ orders), float(seen.freed @ orders)
        if not seen.lost:  # else what was seen is not of the whole round
            self._add(**{f"blocks_{o}": float(seen.allocated[o]) / done for o in _ORDERS})
            self._add(holds=sum(seen.holds.values()) / done)
        self._add(refills=1e3 * seen.holds["alloc"] / max(allocated, 1.0))
        self._add(refilled=seen.moved["alloc"] / max(allocated, 1.0))
        self._add(drains=1e3 * seen.holds["free"] / max(freed, 1.0))
        self._add(drained=seen.moved["free"] / max(freed, 1.0))
        self.add_holds(seen, 1)

    def add_holds(self, seen: Traced, instances: int) -> None:
        """Take in the holds of a round that so many instances traced."""
        for side in SIDES:
            one = seen.pages[side], seen.span_ns[side]
            self.holds.setdefault((side, instances), []).append(one)

    def added_ns(self, side: str) -> list[float]:
        """What a second instance added to a page of a hold, a value of every round [ns]."""
        once, twice = (
            [
                span.sum() / (pages - 1).sum() if len(pages) else math.nan
                for pages, span in self.holds.get((side, instances), [])
            ]
            for instances in (1, 2)
        )
        return [b - a for a, b in zip(once, twice, strict=False) if b == b and a == a]

    def _hold_us(self, side: str, event_ns: float) -> list[NDArray[np.float64]]:
        """Holds without the cost of tracing, by round [us]."""
        return [
            pages * (span / np.maximum(pages - 1, 1) - event_ns) / 1e3
            for pages, span in self.holds.get((side, 1), [])
        ]

    def add_waits(self, did: Sequence[Mapping[str, float]], seen: Traced) -> None:
        """Take in a round in which only waits were traced."""
        if seen.wait_ns is None:
            self.sees_waits = False
            return
        holds = float(np.median(self.samples.get("holds", [math.nan]))) * _sum(did, "units")
        self.wait_us.append(seen.wait_ns / 1e3)
        if holds >= 1:
            self._add(waits=1e3 * len(seen.wait_ns) / holds)

    def figure(
        self,
        name: str,
        event_ns: Mapping[str, tuple[float, float, float]] = MappingProxyType({}),
    ) -> tuple[float, float, float]:
        """One of `QUANTITIES`, or of the samples, with its 95 % interval; NaN: too little.

        Of holds what tracing a page adds to them must be told, by side (`event_ns`) [ns]; their
        interval takes in that loads differ in it.
        """
        if name in self.samples:
            return median_interval(self.samples[name])
        what, _, rank = name.partition("_")
        sides = {short: side for side, short in _SIDE_NAMES.items()}
        three = [self.wait_us] * 3
        if what in sides:
            # The dearer tracing is, the shorter was the hold.
            added, least, most = event_ns.get(sides[what], (math.nan,) * 3)
            three = [self._hold_us(sides[what], ns) for ns in (added, most, least) if ns == ns]
        values = [np.concatenate(parts) for parts in three if parts]
        n = len(values[0]) if values else 0
        if n < ENOUGH_FOR.get(rank, math.inf):
            return (math.nan,) * 3
        share = float(rank[1:]) / 100
        # Order statistics around the quantile, no distribution assumed.
        half = 1.96 * math.sqrt(share * (1 - share) / n)
        points = np.clip([share, share - half, share + half], 0, 1)
        middle, low, high = map(np.quantile, values, points)
        return float(middle), float(low), float(high)


def event_ns(observed: Iterable[Observed]) -> dict[str, tuple[float, float, float]]:
    """What tracing a page adds to a hold, by side [ns]: what a second instance added.

    The median of all rounds of all loads, as of a single load's few rounds it is known worse than a
    page; and between what it comes to in 95 % of the loads.  The events of `pcpmodel.measure`,
    which traces all processes, are cheaper.
    """
    found = {}
    for side in SIDES:
        loads = [ns for each in observed if (ns := each.added_ns(side))]
        if loads:
            ends = np.quantile([np.median(ns) for ns in loads], (0.025, 0.975))
            added = np.maximum([np.median(np.concatenate(loads)), *ends], 0.0).tolist()
            found[side] = added[0], min(added), max(added)
    return found


def _sum(did: Iterable[Mapping[str, float]], name: str) -> float:
    return float(sum(each[name] for each in did))


def observe(
    load: Load,
    tracer: HoldTracer,
    cell: Cell,
    seconds: float,
    rounds: int,
    warm_up_s: float = 0.0,
    *,
    times_holds: bool = False,
) -> Observed:
    """Measure one cell; the setting is as it should be.

    Parameters
    ----------
    load : Load
        Of the cell's processes.
    tracer : HoldTracer
    cell : Cell
    seconds : float
        Of each part of a round: without tracing, with the events of every page, with those of
        waits alone, and, of ``times_holds``, with the events of every page twice [s].
    rounds : int
        1 or more; 6 make an interval of 95 %.
    warm_up_s : float
        Of the load before the first round [s].
    times_holds : bool
        Whether to find out what tracing adds to a hold, without which its time is not known.
    """
    found = Observed()
    if warm_up_s:
        load.run(warm_up_s, kind=cell.kind)
    for _ in range(rounds):
        free = load.run(seconds, kind=cell.kind)
        traced: list[dict[str, float]] = []
        seen = tracer.trace(
            lambda into=traced: into.extend(load.run(seconds, kind=cell.kind)), pids=load.pids
        )
        found.add(free, traced, seen)
        if times_holds:
            seen = tracer.trace(lambda: load.run(seconds, kind=cell.kind), 2, pids=load.pids)
            found.add_holds(seen, 2)
        if tracer.sees_waits:
            did: list[dict[str, float]] = []
            seen = tracer.trace(
                lambda into=did: into.extend(load.run(seconds, kind=cell.kind)),
                pids=load.pids,
                only_waits=True,
            )
            found.add_waits(did, seen)
        else:
            found.sees_waits = False
    return found


# ---------------------------------------------------------------- predicted


@dataclass(frozen=True)
class ZoneHere:
    """The zone that the loads use.

    Attributes
    ----------
    name : str
    node : int
    managed : int
        [pages].
    high_min, high_max : int
        As the kernel has them at the setting of now [pages].
    cpus : int
        CPUs that share it.
    """

    name: str
    node: int
    managed: int
    high_min: int
    high_max: int
    cpus: int


def zone_here(host: HostFiles) -> ZoneHere:
    """Find the zone that the loads of this machine use.

    The highest that has their pages above its high watermark, as the kernel prefers it
    (build_zonerefs_node); of several nodes the first with one.
    """
    zones = [zone for zone in host.snapshots()[0].zones if zone.pagesets and zone.managed]
    need = most_pages(len(host.online))
    enough = [zone for zone in zones if zone.free - zone.high >= need]
    first = [zone for zone in enough if zone.node == enough[0].node]
    zone = first[-1] if first else max(zones, key=lambda each: each.managed)
    here = next((n.cpus for n in host.nodes() if n.node == zone.node), host.online)
    lists = zone.pagesets[0]
    if lists.high_min is None or lists.high_max is None:
        raise InputError("has no high_min and high_max: needs v6.7 or later", file="/proc/zoneinfo")
    return ZoneHere(
        zone.name, zone.node, zone.managed, lists.high_min, lists.high_max, len(here) or 1
    )


def _blocks(program: Program, row: Mapping[str, Any], ns: float, side: str) -> None:
    """The blocks of a write, each for its share of the bytes; a part of one is one now and then."""
    counts = {order: float(row[f"blocks_{order}"]) for order in _ORDERS}
    pages = sum(n * (1 << order) for order, n in counts.items())
    for order, n in counts.items():
        whole, part = divmod(n, 1.0)
        if part > 0.98:
            whole, part = whole + 1, 0.0
        each = ns * (1 << order) / pages
        if side == "free":
            if whole or part > 0.005:
                program.free(ALL, order=order, migratetype="unmovable", ns=each, of="peer")
            continue
        if whole:
            program.alloc(int(whole), order=order, migratetype="unmovable", ns=each)
        if part > 0.005:
            with program.maybe(part):
                program.alloc(1, order=order, migratetype="unmovable", ns=each)


def _stream(processes: int, row: Mapping[str, Any], unit_ns: float) -> Workload:
    kinds = {f"unmovable_{o}": ALL for o in _ORDERS if float(row[f"blocks_{o}"]) > 0.005}
    first = float(row["first_share"])
    writer, reader = Program(), Program()
    with writer.forever():
        writer.work(1.0)  # a write takes its time whatever it allocates
        _blocks(writer, row, unit_ns * first, "alloc")
        writer.send(0, **kinds)
    with reader.forever():
        reader.recv(0, **kinds)
        reader.work(1.0)
        _blocks(reader, row, unit_ns * (1 - first), "free")
        reader.score()
    tasks, channels = [], []
    for i in range(processes):
        tasks += [
            Task(writer, channels=(i,), peer=2 * i + 1),
            Task(reader, channels=(i,), peer=2 * i),
        ]
        channels.append(Channel(2 * i, 2 * i + 1, _ROOM))
    pages = processes * (_ROOM + 2) * 64
    return Workload("stream", tuple(tasks), "writes", pages, tuple(channels))


def _hand_over(processes: int, row: Mapping[str, Any], unit_ns: float) -> Workload:
    most, few = KINDS["hand-over"].pages, 64
    pages = 3 * most // 4  # of a region, on average
    tables, batches = pages // _PER_TABLE, _batches(pages)
    first = float(row["first_share"])
    # Blocks of order 0 per page touched, beside those that are said below.
    more = max(float(row["blocks_0"]) - (tables + batches + few + 1) / pages, 1.0)
    there, here = Program(), Program()
    with there.forever():
        there.recv(1, movable_0=ALL)  # the few that go the other way before each burst
        there.alloc(1, migratetype="unmovable")
        there.free(ALL, ns=unit_ns * (1 - first), of="peer")
        there.free(1, migratetype="unmovable")
        there.alloc(tables, migratetype="unmovable")
        n = there.draw(np.rint(np.arange(most // 2, most + 1) * more).astype(int))
        there.alloc(n, ns=unit_ns * first / more)
        there.work(1.0)
        there.score(n)
        there.send(0, movable_0=ALL, unmovable_0=ALL)
    with here.forever():
        here.alloc(few, ns=unit_ns * first)
        here.send(1, movable_0=ALL)
        here.free(ALL, migratetype="unmovable", of="peer")  # after the grace period, while it waits
        here.recv(0, movable_0=ALL, unmovable_0=ALL)
        here.alloc(batches, migratetype="unmovable")
        here.free(ALL, ns=unit_ns * (1 - first) / more, of="peer")
        here.free(batches, migratetype="unmovable")
    tasks, channels = [], []
    for i in range(processes):
        tasks += [
            Task(there, channels=(2 * i, 2 * i + 1), peer=2 * i + 1),
            Task(here, channels=(2 * i, 2 * i + 1), peer=2 * i),
        ]
        channels += [Channel(2 * i, 2 * i + 1, 1), Channel(2 * i + 1, 2 * i, 1)]
    return Workload("hand-over", tuple(tasks), "pages", processes * 3 * most, tuple(channels))


def _region(kind: str, processes: int, row: Mapping[str, Any], unit_ns: float) -> Workload:
    pages = KINDS[kind].pages
    tables, batches = pages // _PER_TABLE, _batches(pages)
    blocks = max(round(pages * float(row["blocks_0"])) - tables - batches, pages)
    first = float(row["first_share"])
    # In parts, so that a run that ends within a region has counted most of it.
    part_ns = unit_ns * first * pages / _PARTS
    graced = min(round(_GRACE_NS / part_ns), _PARTS - 1) if part_ns else 0
    program = Program()
    with program.forever():
        for part, size in enumerate(np.diff(np.linspace(0, blocks, _PARTS + 1).astype(int))):
            if part == graced:  # those of the region before
                program.free(tables, migratetype="unmovable", of="peer")
            program.alloc(tables // _PARTS, migratetype="unmovable", of="peer")
            program.alloc(int(size), ns=unit_ns * first * pages / blocks)
            program.score(pages // _PARTS)
        program.alloc(batches, migratetype="unmovable")
        program.free(blocks, ns=unit_ns * (1 - first) * pages / blocks)
        program.free(batches, migratetype="unmovable")
    return Workload(kind, (Task(program),) * processes, "pages", processes * blocks)


def _batches(pages: int) -> int:
    """Pages that list the pages of a region that is unmapped (mm/mmu_gather.c, tlb_next_batch)."""
    return min(pages // _PER_BATCH, _BATCHES)


def _workload(kind: str, processes: int, row: Mapping[str, Any], unit_ns: float) -> Workload:
    if kind == "stream":
        return _stream(processes, row, unit_ns)
    if kind == "hand-over":
        return _hand_over(processes, row, unit_ns)
    return _region(kind, processes, row, unit_ns)


def _without_holds_ns(row: Mapping[str, Any], costs: Mapping[str, float]) -> float:
    """What a unit takes beside the holds that it had when it was measured [ns]."""
    orders = np.array([float(row[f"blocks_{o}"]) for o in _ORDERS])
    pages = float(orders @ (1 << np.arange(len(orders))))
    holds = pages * (float(row["refills"]) + float(row["drains"])) / 1e3
    held = (
        pages * float(row["refilled"]) * costs["hold_page_alloc"]
        + pages * float(row["drained"]) * costs["hold_page_free"]
        + holds * costs["hold_fixed"]
    )
    # Blocks of higher orders move many pages for the time of one.
    held *= float(orders.sum()) / pages if pages else 1.0
    unit_ns = 1e9 / float(row["rate"])
    return max(unit_ns - held, 0.1 * unit_ns)


def predict(
    machine: Machine,
    rates: pd.DataFrame,
    costs: Mapping[str, float],
    release: Release,
    zone: ZoneHere,
    cell: Cell,
    seconds: float = 4.0,
    measured: Places | None = None,
) -> dict[str, float]:
    """Simulate one cell from what `pcpmodel.measure` wrote.

    Parameters
    ----------
    machine : Machine
        Whose table of holds is used.
    rates : DataFrame
        ``rates.csv``: what a unit takes with as many processes, and its blocks.
    costs : mapping of str to float
        ``costs.csv`` by operation [ns].
    release : Release
    zone : ZoneHere
        At the setting that the machine has by itself, `cell` may have another.
    cell : Cell
    seconds : float
        Simulated [s].
    measured : Places, optional
        Where the lines of the table's pages were (`measured_lines`): a page of a hold then takes as
        much more or less as its lines are elsewhere.  Default: it takes what it took there.

    Returns
    -------
    dict of str to float
        By name of `QUANTITIES`; NaN where there is nothing to say.
    """
    rows = rates[(rates.workload == cell.kind) & (rates.processes == cell.processes)]
    if rows.empty:
        raise InputError(
            f"{cell.processes} processes of {cell.kind}: not in rates.csv; measure anew"
        )
    row = rows.iloc[0].to_dict()
    if unknown := [name for name, value in row.items() if value != value and name in _NEEDED]:
        raise InputError(f"{cell.kind}: {', '.join(unknown)} not in rates.csv; measure anew")
    given = _given(machine, costs, zone, cell, row)
    if measured is not None and set(LINE_ROWS.values()) <= set(costs):
        here = _lines(release, machine, cell, given)
        machine = machine if here is None else shifted(machine, measured, here, costs)
    # What its lines take is in its holds by now, or as measured.
    return _figures(
        simulate(release, machine, seconds=seconds, warm=True, jitter=_JITTER, **given), cell.kind
    )


def _given(
    machine: Machine,
    costs: Mapping[str, float],
    zone: ZoneHere,
    cell: Cell,
    row: Mapping[str, Any],
) -> dict[str, Any]:
    """Arguments of `simulate` for a cell."""
    # A unit took what it took with as many processes, two threads of a core or not.
    host = {"cpus": zone.cpus, "nodes": 1, "threads_per_core": 1}
    host["memory_gib"] = zone.managed * (machine.page_size_kib / (1 << 20))
    workload = _workload(cell.kind, cell.processes, row, _without_holds_ns(row, costs))
    if cell.fraction:
        return {"workload": workload, **host, "high_fraction": cell.fraction}
    return {"workload": workload, **host, "high_min_pages": zone.high_min}


def _lines(
    release: Release, machine: Machine, cell: Cell, given: Mapping[str, Any]
) -> Places | None:
    """Where the lines of pages are in the holds of a cell; None: it has none."""
    spec = make_spec(release=release, machine=machine, **given)
    found = page_lines(spec)
    if found is None or cell.kind != "faults-random":
        return found
    host = spec.host
    buddies = random_buddies(KINDS[cell.kind].pages, host.l2_kib, host.llc_slice_kib)
    return at_random(found, buddies)


def measured_lines(
    machine: Machine,
    rates: pd.DataFrame,
    costs: Mapping[str, float],
    release: Release,
    zone: ZoneHere,
) -> Places | None:
    """Where the lines of pages were in the holds that `pcpmodel.measure` made its table of.

    Parameters are those of `predict`; None: the sheet has not what lines take, or the load no hold.
    """
    cell = Cell("hand-over", 1, 0)
    rows = rates[(rates.workload == cell.kind) & (rates.processes == 1)]
    if rows.empty or not set(LINE_ROWS.values()) <= set(costs):
        return None
    row = rows.iloc[0].to_dict()
    return _lines(release, machine, cell, _given(machine, costs, zone, cell, row))


def _figures(result: Result, kind: str) -> dict[str, float]:
    allocated, freed, drained, by_tick = (
        float(result.per_cpu[name].sum())
        for name in ("alloc_pages", "free_pages", "drain_pages", "tick_pages")
    )
    found = {
        "rate": result.score / (result.busy_ps / 1e12),
        "refills": 1e3 * result.refills / max(allocated, 1.0),
        "drains": 1e3 * result.drains / max(freed, 1.0),
        "drained": (drained - by_tick) / max(freed, 1.0),
    }
    waits = result.zone_histogram("wait")
    waited = _waited(waits.counts)
    for side in ("refill", "drain"):
        held = result.hold_hist[side]
        for rank, least in ENOUGH_FOR.items():
            known = held.total >= least and kind != "stream"
            share = float(rank[1:]) / 100
            found[f"{side}_{rank}"] = held.quantile_ns(share) / 1e3 if known else math.nan
    found["waits"] = 1e3 * float(waited.sum()) / max(waits.total, 1)
    only = type(waits)(waited, waits.edges_ns)
    for rank, least in ENOUGH_FOR.items():
        known = only.total >= least
        found[f"wait_{rank}"] = only.quantile_ns(float(rank[1:]) / 100) / 1e3 if known else math.nan
    return found


def _waited(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Waits that were some: not those that found the lock free."""
    some = counts.copy()
    some[0] = 0
    return some

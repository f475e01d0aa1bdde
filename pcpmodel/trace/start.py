"""The memory that a recording starts from: from its dump, or from what its trace tells."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from pcpmodel.kernel import sizing
from pcpmodel.kernel.lists import (
    MIGRATETYPES,
    PAGE_ALLOC_COSTLY_ORDER,
    PCP_ORDERS,
    pindex_to_order,
)
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.kernel.zone import Zone
from pcpmodel.trace.ftrace import EVENT_IDS, INTERRUPT
from pcpmodel.trace.recording import Recording, Snapshot, ZoneState

__all__ = [
    "block_types", "counts_at_start", "drained_past", "enough", "made_since", "memory_at_start",
    "passed_over", "sizes",
]  # fmt: skip

#: The fields of a trace's rows, each side by side; in the rows they are 64 bytes apart.
Columns = Mapping[str, np.ndarray]

#: LLC slice that the guests of the recordings show each CPU [bytes]; enough for
#: PCPF_FREE_HIGH_BATCH in every zone.
_SLICE_BYTES = 4 << 20

#: pageblock_order
_BLOCK = 9
#: What else a task does than making a new one.
_ENDS = ("fork", "exec", "exit")

#: Rules that sizes follow from, beside watermarks and CPUs.
_SIZING = attrgetter("high_min_max", "high_by_watermark", "batchsize_1m")


def _holes(first: int, types: np.ndarray, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Page frames of the zone without memory, from its page blocks."""
    edges = np.flatnonzero(np.diff(np.r_[False, types < 0, False])).reshape(-1, 2)
    holes = np.clip(first + 512 * edges, start, end).tolist()
    return tuple((a, b - a) for a, b in holes if b > a)


def memory_at_start(
    state: Release,
    dump: Snapshot,
    cap: Recording,
    policy: object = None,
    resized: bool = False,
    batch: int | None = None,
    high_pages: int | None = None,
) -> Any:  # fmt: skip
    """The memory of the recording's machine, as its first dump shows it."""
    assert dump.free is not None
    assert dump.blocks is not None
    auto = state.rules.high_min_max
    recorded_auto = cap.release.rules.high_min_max
    same_sizes = _SIZING(state.rules) == _SIZING(cap.release.rules)
    zones = []
    for z in dump.zones:
        first, types = dump.blocks[z.key]
        limits: dict[str, int] = {}
        if same_sizes and not resized:
            # The very sizes that this kernel had; else those that it computes.
            limits = {"batch": z.pageset_batch, "high_min": z.pageset_high_min}
            if auto:
                limits["high_max"] = z.pageset_high_max
        if batch is not None:
            limits["batch"] = batch
        if high_pages is not None:
            limits |= {"high_min": high_pages, "high_max": high_pages}
        zones.append(
            Zone(
                z.spanned,
                start_pfn=z.start_pfn,
                name=z.name,
                node=z.node,
                holes=_holes(first, types, z.start_pfn, z.end_pfn),
                watermarks=(z.wmark_min, z.wmark_low, z.wmark_high),
                managed=z.managed,
                **limits,
            )
        )
    nodes = max(z.node for z in zones) + 1
    memory = Memory(
        state,
        zones,
        cap.cpus,
        cpu_node=[cpu * nodes // cap.cpus for cpu in range(cap.cpus)],
        data_cache_bytes=_SLICE_BYTES,
        free=False,
        policy=policy,
    )
    nr_lists = state.rules.nr_pcp_lists
    for n, z in enumerate(dump.zones):
        first, types = dump.blocks[z.key]
        pcp = []
        for cpu in range(cap.cpus):
            have = dump.pcps[(*z.key, cpu)]
            values: dict[str, Any] = {
                "lists": {i: p for i, p in have.lists.items() if i < nr_lists},
                "count": sum(
                    len(p) << pindex_to_order(i) for i, p in have.lists.items() if i < nr_lists
                ),
            }
            if auto and recorded_auto:
                values |= {
                    "high": have.high,
                    "alloc_factor": have.alloc_factor,
                    "free_count": have.free_count,
                    "flags": have.flags,
                }
            pcp.append(values)
        blocks = types[: (z.end_pfn + 511) // 512 - z.start_pfn // 512]
        memory.load(
            n,
            {
                "free": {k: p for k, p in dump.free[z.key].items() if len(p)},
                "blocks": np.where(blocks >= 0, blocks, 1).tolist(),
                "pcp": pcp,
            },
        )
    return memory


def passed_over(
    rows: Columns, chain: np.ndarray, first: int, starts: np.ndarray, forks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Frees to small lists, and by type an allocation that shows each was not on that list.

    A list gives what came last.  Where an allocation takes a page, those that joined the lists of
    its CPU after that page, and are still there, are on others, or on none.  The first allocation
    that a task reports after a page was freed may have come before it, interrupted before its line,
    and a freed page is on its list for certain only with the next line of a task on its CPU, or of
    an interrupt above another task.
    Unmovable pages may be gone as soon as a task of *forks* runs: a new stack takes some in
    silence.

    Returns
    -------
    (rows of frees, (frees, unmovable to reclaimable) rows of allocations, 0 where none shows it)
    """
    event, numbers, types = rows["event"], np.arange(len(chain)), len(MIGRATETYPES)
    small = (rows["b"] <= PAGE_ALLOC_COSTLY_ORDER) & (rows["a"] >= starts[0])
    freed = np.flatnonzero((event == EVENT_IDS["mm_page_free"]) & small & (numbers >= first))
    then = chain[freed]
    second = (then > 0) & (event[then] == EVENT_IDS["mm_page_free_batched"])
    joined, then = np.where(second, then, freed), np.where(second, chain[then], then)
    until = np.where(then > 0, then, len(event))  # it is there up to then
    refilled = (event == EVENT_IDS["mm_page_alloc_zone_locked"]) & small & (numbers >= first)
    came = np.flatnonzero(refilled)
    allocated, tasks = event == EVENT_IDS["mm_page_alloc"], rows["flags"] & INTERRUPT == 0
    told = np.zeros(len(event), bool)
    told[chain] = True
    told[:1] = False  # 0: no row
    old = np.flatnonzero(allocated & ~told & small & (numbers > first))
    # What was taken, since when it was there, and whether that needs no task's next line.
    took = np.concatenate([then, chain[came], old])
    put = np.concatenate([joined, came, np.full(len(old), first)])
    # mm_page_free_batched prints order 0, whatever the block has.
    orders = np.concatenate([rows["b"][some] for some in (freed, came, old)])
    sure = numbers[: len(took)] >= len(freed)
    k = (took > 0) & allocated[took] & (rows["c"][took] >= 0) & (rows["c"][took] < types)
    k &= (rows["cpu"][took] == rows["cpu"][put]) | (put == first)
    k &= rows["b"][took] == orders
    k = np.flatnonzero(k)
    lists = _numbers_of_lists(rows, took[k], starts) * types + rows["c"][took[k]]
    k, lists = k[np.lexsort((took[k], lists))], np.sort(lists)
    took, put, sure = took[k], put[k], sure[k]
    before_fork = _before_fork(rows, forks)
    lines_of, allocations_of = (
        _by_cpu(rows, which) for which in (_after_interrupts(rows), tasks & allocated)
    )
    shown = np.zeros((len(freed), types), np.int64)
    theirs = _numbers_of_lists(rows, freed, starts)
    grouped = np.argsort(theirs, kind="stable")
    groups = np.split(grouped, np.flatnonzero(np.diff(theirs[grouped])) + 1)
    for own in groups if len(freed) else ():
        cpu, order = int(rows["cpu"][freed[own[0]]]), int(rows["b"][freed[own[0]]])
        lines = np.append(lines_of.get(cpu, freed[:0]), len(event))
        allocations = np.append(allocations_of.get(cpu, freed[:0]), len(event))
        may_fork = np.append(before_fork[lines[:-1]], False)
        forking = np.append(lines[:-1][may_fork[:-1]], len(event))
        since = allocations[np.searchsorted(allocations[:-1], freed[own], "right")]
        before = np.searchsorted(lines[:-1], freed[own], "right") - 1
        gone = forking[np.searchsorted(forking[:-1], freed[own], "right")]
        gone = np.where(may_fork[before], freed[own], gone)
        for migratetype in range(types):
            number = theirs[own[0]] * types + migratetype
            some = slice(*np.searchsorted(lists, (number, number + 1)))
            at, of = took[some], put[some]
            there = np.where(sure[some], of, lines[np.searchsorted(lines[:-1], of, "right")])
            # Of what was taken between two moments, what had come first.
            end = until[own]
            if migratetype == 0 and order == 0:
                end = np.minimum(end, gone)
            low, high = np.searchsorted(at, since, "right"), np.searchsorted(at, end)
            earliest = _least_between(there * len(at) + np.arange(len(at)), low, high)
            below = np.flatnonzero(earliest < freed[own] * len(at))
            shown[own[below], migratetype] = at[earliest[below] % max(len(at), 1)]
    return freed, shown


def drained_past(
    rows: Columns, chain: np.ndarray, starts: np.ndarray, freed: np.ndarray, forks: np.ndarray
) -> np.ndarray:
    """By type a drain that shows that a page freed to a small list was not on that list; or 0.

    As `passed_over`: a drain takes what came first.  Where it takes a page, those that had joined
    the lists of its CPU before that page, and are still there, are on others.  Pages that are
    allocated next may have been gone by then, and where there are *forks* unmovable single ones in
    silence.
    """
    event, end, types = rows["event"], len(chain), len(MIGRATETYPES)
    then = chain[freed]
    second = (then > 0) & (event[then] == EVENT_IDS["mm_page_free_batched"])
    joined, then = np.where(second, then, freed), np.where(second, chain[then], then)
    until = np.where(then > 0, then, end)
    goes = (then > 0) & (event[then] == EVENT_IDS["mm_page_pcpu_drain"])
    goes &= (rows["cpu"][then] == rows["cpu"][joined]) & (rows["b"][then] == rows["b"][freed])
    stays = (then == 0) | (event[then] != EVENT_IDS["mm_page_alloc"])
    lines_of = _by_cpu(rows, _after_interrupts(rows))
    shown = np.zeros((len(freed), types), np.int64)
    lists = _numbers_of_lists(rows, freed, starts)
    for number in np.unique(lists[goes]):
        own = lists == number
        some = np.flatnonzero(own & stays)
        cpu, order = int(rows["cpu"][freed[some[0]]]), int(rows["b"][freed[some[0]]])
        lines = np.append(lines_of.get(cpu, freed[:0]), end)
        there = lines[np.searchsorted(lines[:-1], joined[some], "right")]
        for migratetype in range(order == 0 and len(forks) > 0, types):
            k = np.flatnonzero(own & goes & (rows["c"][then] == migratetype))
            k = k[np.argsort(then[k])]
            # Of what was drained between two moments, what had come last.
            low, high = (np.searchsorted(then[k], at) for at in (there, until[some]))
            latest = _least_between((end - joined[k]) * len(k) + np.arange(len(k)), low, high)
            above = np.flatnonzero(latest < (end - there) * len(k))
            shown[some[above], migratetype] = then[k][latest[above] % max(len(k), 1)]
    return shown


def _numbers_of_lists(rows: Columns, some: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """A number for the CPU, zone and order of each of some rows."""
    zones = np.searchsorted(starts, rows["a"][some], "right")
    numbers = rows["cpu"][some].astype(np.int64) * (len(starts) + 1) + zones
    return numbers * (PAGE_ALLOC_COSTLY_ORDER + 1) + rows["b"][some]


def _after_interrupts(rows: Columns) -> np.ndarray:
    """Lines by which an interrupt before on their CPU is over: of a task, or above another one."""
    by_cpu = np.argsort(rows["cpu"], kind="stable")
    after = rows["flags"] & INTERRUPT == 0
    task, cpu = rows["pid"][by_cpu], rows["cpu"][by_cpu]
    after[by_cpu[1:]] |= (task[1:] != task[:-1]) & (cpu[1:] == cpu[:-1])
    return after


def _by_cpu(rows: Columns, which: np.ndarray) -> dict[int, np.ndarray]:
    """Rows of each CPU."""
    found = np.flatnonzero(which)
    found = found[np.argsort(rows["cpu"][found], kind="stable")]
    edges = np.flatnonzero(np.diff(rows["cpu"][found])) + 1
    return {int(rows["cpu"][some[0]]): some for some in np.split(found, edges) if len(some)}


def made_since(rows: Columns, forks: np.ndarray) -> np.ndarray:
    """The last row before each new task was begun with, of who made it; 0 where there is none.

    copy_process() takes the stack, then copies, and takes no movable page; it makes one task, and
    who makes it was made before.
    """
    event = rows["event"]
    ends = (event == EVENT_IDS["mm_page_alloc"]) & (rows["flags"] & INTERRUPT == 0)
    ends &= (rows["b"] == 0) & (rows["c"] == MIGRATETYPES["movable"])
    ends |= np.isin(event, [EVENT_IDS[f"sched_process_{what}"] for what in _ENDS])
    at, born = np.flatnonzero(ends), np.flatnonzero(event == EVENT_IDS["sched_process_fork"])
    tasks = np.concatenate([rows["pid"][at], rows["a"][born]]).astype(np.int64)
    keys = np.sort(tasks << 32 | np.concatenate([at, born]))
    task = rows["pid"][forks].astype(np.int64) << 32
    before = np.append(0, keys)[np.searchsorted(keys, task | forks)]
    return np.where(before >> 32 << 32 == task, before & 0xFFFFFFFF, 0)


def _before_fork(rows: Columns, forks: np.ndarray) -> np.ndarray:
    """After which lines their task may be making a new one, of which *forks* tell."""
    found = np.zeros(len(rows["pid"]), bool)
    # Of tasks that make others alone.
    lines = np.flatnonzero(np.isin(rows["pid"], rows["pid"][forks]))
    task = rows["pid"][lines].astype(np.int64) << 32
    order = np.argsort(task, kind="stable")
    keys = task[order] | lines[order]
    own = rows["pid"][forks].astype(np.int64) << 32
    begin = np.searchsorted(keys, own | made_since(rows, forks))
    change = np.zeros(len(lines) + 1, np.int64)
    np.add.at(change, begin, 1)
    np.add.at(change, np.searchsorted(keys, own | forks), -1)
    found[lines[order]] = np.cumsum(change[:-1]) > 0
    return found


def _least_between(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The least of ``values[low:high]`` of each pair; the largest integer where there is none."""
    none = np.iinfo(np.int64).max
    found = np.full(len(low), none)
    length = np.maximum(high - low, 0)
    span, least = 1, values.astype(np.int64)  # least[i]: of values[i:i + span]
    while span <= length.max(initial=0):
        some = (length >= span) & (length < 2 * span)
        found[some] = np.minimum(least[low[some]], least[high[some] - span])
        least = np.minimum(least[:-span], least[span:])
        span *= 2
    return found


def block_types(
    rows: Columns,
    chain: np.ndarray,
    base: int,
    blocks: int,
    first: int,
    frees: np.ndarray,
    elsewhere: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Migratetype of every block at the start, where an event shows it; else -1.

    What no later event shows, the last one before the start does.

    A drain prints the block's own; a page that comes from a per-CPU list comes from the list of
    its block's; what comes from the buddy lists mostly does.  Only events before the block is
    first claimed for another type count.  Where nothing shows it, and pages freed into it were not
    on the movable list, it is unmovable or reclaimable.  *frees*, *elsewhere*: of `passed_over`
    and `drained_past`.

    Returns
    -------
    (migratetypes, of which blocks no line tells it)
    """
    event, types = rows["event"], np.full(blocks, -1, np.int8)
    place = (rows["a"] - base) >> 9
    inside = (place >= 0) & (place < blocks) & (np.arange(len(event)) >= first) & (rows["a"] >= 0)
    claims = np.flatnonzero(
        inside & (event == EVENT_IDS["mm_page_alloc_extfrag"]) & (rows["d"] >> 16 & 1 != 0)
    )
    claimed = np.full(blocks, len(event), np.int64)
    np.minimum.at(claimed, place[claims], claims)
    listed = np.zeros(len(event), bool)
    freed = np.flatnonzero(
        (event == EVENT_IDS["mm_page_free"]) | (event == EVENT_IDS["mm_page_free_batched"])
    )
    then = chain[freed]
    again = (then > 0) & (event[then] == EVENT_IDS["mm_page_alloc"])
    listed[then[again]] = True
    when = np.arange(len(event))
    when[then[again]] = freed[again]
    for shows in (
        inside & (event == EVENT_IDS["mm_page_alloc"]),
        inside & (event == EVENT_IDS["mm_page_alloc_zone_locked"]),
        inside & listed,
        inside & (event == EVENT_IDS["mm_page_pcpu_drain"]),
    ):
        k = np.flatnonzero(shows)
        k = k[(when[k] < claimed[place[k]]) & (rows["c"][k] >= 0) & (rows["c"][k] < 6)][::-1]
        types[place[k]] = rows["c"][k]  # the first one, being written last
    before = (place[:first] >= 0) & (place[:first] < blocks) & (rows["a"][:first] >= 0)
    kinds = ("mm_page_alloc", "mm_page_alloc_zone_locked", "mm_page_pcpu_drain")
    before &= np.isin(event[:first], [EVENT_IDS[name] for name in kinds])
    before &= (rows["c"][:first] >= 0) & (rows["c"][:first] < 6)
    k = np.flatnonzero(before)
    k = k[types[place[k]] < 0]
    types[place[k]] = rows["c"][k]  # the last one
    # What nothing shows is taken for movable, then for unmovable, then for reclaimable; if it was
    # none, for what held out longest: who leaves no line may have taken the page by then.
    held = np.full((blocks, elsewhere.shape[1]), len(event), np.int64)
    known = place[frees] < blocks
    rows_out = np.where(elsewhere[known] > 0, elsewhere[known], len(event))
    np.minimum.at(held, place[frees[known]], rows_out)
    guessed = types < 0
    order = np.array([1, 0, 2])
    wrong = guessed & (held[:, 1] < len(event))
    types[wrong] = order[held[wrong][:, order].argmax(axis=1)]
    return types, guessed


def sizes(cap: Recording, zone: ZoneState, rules: Rules, fraction: int) -> tuple[int, int, int]:
    """``batch``, ``high_min`` and ``high_max`` of a zone's lists; before v6.7 one high, twice."""
    size = sizing.zone_set_pageset_high_and_batch(
        zone.managed,
        zone.wmark_low,
        rules,
        node_cpus=max(1, cap.cpus // max(1, cap.numa_nodes)),
        online_cpus=cap.cpus,
        high_fraction=fraction,
    )
    if rules.high_min_max:
        assert size.high_min is not None
        assert size.high_max is not None
        return size.batch, size.high_min, size.high_max
    assert size.high is not None
    return size.batch, size.high, size.high


#: Pages by which NR_FREE_PAGES may be off on each CPU: calculate_normal_threshold() at most.
_VMSTAT_THRESHOLD = 125


def enough(zone: ZoneState, zones: list[ZoneState], cpus: int) -> int:
    """Free pages above which no test of the high watermark for small blocks fails.

    As shipped: a boost of half as much again at most (watermark_boost_factor), or a page block; and
    a 256th (32nd) of what the higher zones have is kept from who may have theirs
    (lowmem_reserve_ratio).
    """
    higher = sum(z.managed for z in zones if z.node == zone.node and z.start_pfn > zone.start_pfn)
    reserve = higher // (256 if zone.name.startswith("DMA") else 32)
    high = max(zone.wmark_high, 0)
    return high + max(high * 3 // 2, 512) + reserve + _VMSTAT_THRESHOLD * cpus


def counts_at_start(
    rows: np.ndarray, begin: int, end: int, snapshot: Snapshot
) -> dict[tuple[int, str, int], list[int]]:
    """Pages that the lists may have held at the end of a snapshot.

    Its counts were read at some moment of it; whatever came between that and the end is in the
    trace, though not at which of the events it was read.
    """
    signs = {
        EVENT_IDS["mm_page_alloc"]: -1,
        EVENT_IDS["mm_page_free"]: 1,
        EVENT_IDS["mm_page_alloc_zone_locked"]: 1,
        EVENT_IDS["mm_page_pcpu_drain"]: -1,
    }
    since: dict[tuple[int, str, int], list[int]] = {}
    for row in rows[begin:end][::-1]:
        sign, order = signs.get(int(row["event"]), 0), int(row["b"])
        if not sign or order not in PCP_ORDERS:
            continue
        for zone in snapshot.zones:
            if zone.start_pfn <= row["a"] < zone.end_pfn:
                sums = since.setdefault((*zone.key, int(row["cpu"])), [0])
                sums.append(sums[-1] + (sign << order))
    return {
        key: sorted({snapshot.pcps[key].count + n for n in sums})
        for key, sums in since.items()
        if key in snapshot.pcps
    }

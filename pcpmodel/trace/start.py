"""The memory that a capture starts from: from its dump, or from what its trace tells."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from typing import Any

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import Release
from pcpmodel.trace.state import Capture, Snapshot

__all__ = ["memory_at_start", "replay_without_dump"]

#: LLC slice that the guests of the recordings show each CPU [bytes]; enough for
#: PCPF_FREE_HIGH_BATCH in every zone.
_SLICE_BYTES = 4 << 20


#: What every kernel with tracing shows.
_FOLLOWED = (
    "mm_page_alloc", "mm_page_free", "mm_page_free_batched", "mm_page_alloc_zone_locked",
    "mm_page_pcpu_drain", "mm_page_alloc_extfrag", "tracing_mark_write", "workqueue_execute_start",
    "workqueue_execute_end", "sched_process_fork", "sched_process_exec", "sched_process_exit",
)  # fmt: skip


def _holes(first: int, types: np.ndarray, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Page frames of the zone without memory, from its page blocks."""
    absent = np.flatnonzero(types < 0)
    holes = []
    for run in np.split(absent, np.flatnonzero(np.diff(absent) != 1) + 1):
        if len(run):
            a = max(start, first + 512 * int(run[0]))
            b = min(end, first + 512 * (int(run[-1]) + 1))
            if b > a:
                holes.append((a, b - a))
    return tuple(holes)


def memory_at_start(
    state: Release,
    dump: Snapshot,
    cap: Capture,
    policy: object = None,
    resized: bool = False,
    batch: int | None = None,
    high_pages: int | None = None,
) -> Any:  # fmt: skip
    """The memory of the capture's machine, as its first dump shows it."""
    from pcpmodel.kernel.memory import Memory
    from pcpmodel.kernel.zone import Zone

    assert dump.free is not None
    assert dump.blocks is not None
    auto = state.rules.high_min_max
    recorded_auto = cap.release.rules.high_min_max
    zones = []
    for z in dump.zones:
        first, types = dump.blocks[z.key]
        limits: dict[str, int] = {}
        if auto == recorded_auto and not resized:
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
                "lists": {i: p.tolist() for i, p in have.lists.items() if i < nr_lists},
                "count": sum(
                    len(p) << (i // 3 if i < 12 else 9)
                    for i, p in have.lists.items()
                    if i < nr_lists
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
                "free": {k: p.tolist() for k, p in dump.free[z.key].items() if len(p)},
                "blocks": np.where(blocks >= 0, blocks, 1).tolist(),
                "pcp": pcp,
            },
        )
    return memory


def _block_types(
    rows: np.ndarray, chain: np.ndarray, base: int, blocks: int, first: int
) -> np.ndarray:
    """Migratetype of every block at the start, where an event shows it; else -1.

    A drain prints the block's own; a page that comes from a per-CPU list comes from the list of
    its block's; what comes from the buddy lists mostly does.  Only events before the block is
    first claimed for another type count.
    """
    from pcpmodel.trace.ftrace import EVENT_IDS

    event, types = rows["event"], np.full(blocks, -1, np.int8)
    place = (rows["a"] - base) >> 9
    inside = (place >= 0) & (place < blocks) & (np.arange(len(rows)) >= first) & (rows["a"] >= 0)
    claims = np.flatnonzero(
        inside & (event == EVENT_IDS["mm_page_alloc_extfrag"]) & (rows["d"] >> 16 & 1 != 0)
    )
    claimed = np.full(blocks, len(rows), np.int64)
    np.minimum.at(claimed, place[claims], claims)
    listed = np.zeros(len(rows), bool)
    freed = np.flatnonzero(
        (event == EVENT_IDS["mm_page_free"]) | (event == EVENT_IDS["mm_page_free_batched"])
    )
    then = chain[freed]
    again = (then > 0) & (event[then] == EVENT_IDS["mm_page_alloc"])
    listed[then[again]] = True
    when = np.arange(len(rows))
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
    return types


def _sized(snapshot: Snapshot, state: Release, cap: Capture) -> None:
    """Fill in high_min and high_max where this kernel's /proc/zoneinfo does not print them."""
    from pcpmodel.kernel import sizing

    for zone in snapshot.zones:
        size = sizing.zone_set_pageset_high_and_batch(
            zone.managed,
            zone.wmark_low,
            state.rules,
            node_cpus=max(1, cap.cpus // max(1, cap.numa_nodes)),
            online_cpus=cap.cpus,
        )
        for cpu in range(cap.cpus):
            pcp = snapshot.pcps.get((*zone.key, cpu))
            if pcp is None:
                continue
            if not state.rules.high_min_max:
                pcp.high_min = pcp.high_max = pcp.high
            elif pcp.high_min < 0:
                pcp.high_min, pcp.high_max = size.high_min, size.high_max


def _counts(
    rows: np.ndarray, begin: int, end: int, snapshot: Snapshot, state: Release
) -> dict[tuple[int, str, int], list[int]]:
    """Pages that the lists may have held at the end of a snapshot.

    Its counts were read at some moment of it; whatever came between that and the end is in the
    trace, though not at which of the events it was read.
    """
    from pcpmodel.trace.ftrace import EVENT_IDS

    signs = {
        EVENT_IDS["mm_page_alloc"]: -1,
        EVENT_IDS["mm_page_free"]: 1,
        EVENT_IDS["mm_page_alloc_zone_locked"]: 1,
        EVENT_IDS["mm_page_pcpu_drain"]: -1,
    }
    since: dict[tuple[int, str, int], list[int]] = {}
    for row in rows[begin:end][::-1]:
        sign, order = signs.get(int(row["event"]), 0), int(row["b"])
        if not sign or not (order <= 3 or order == 9):
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


def _compare(tracker: Any, told: Snapshot, first: Snapshot, cpus: int, begin: int, end: int) -> int:
    """Run through a later snapshot; its counts must be the model's at some moment of it."""
    places = {
        (*z.key, cpu): n * cpus + cpu for n, z in enumerate(first.zones) for cpu in range(cpus)
    }
    sets = {
        places[key]: pcp
        for key, pcp in told.pcps.items()
        if key in places and tracker.counts_and_highs(places[key]) is not None
    }
    had: dict[int, set[tuple[int, int]]] = {x: tracker.counts_and_highs(x) for x in sets}
    # Everything that happens takes one row; of a long snapshot both ends must do.
    for row in range(begin, end) if end - begin <= 2000 else [end - 1]:
        tracker.run(begin if end - begin > 2000 else row, row + 1)
        for x, some in had.items():
            some |= tracker.counts_and_highs(x)
    for x, pcp in sets.items():
        if pcp.count not in {count for count, _ in had[x]}:
            tracker.unlike(x, end, pcp.count, False)
        if pcp.high not in {high for _, high in had[x]}:
            tracker.unlike(x, end, pcp.high, True)
    return len(sets)


def replay_without_dump(
    cap: Capture,
    state: Release,
    snapshot: Snapshot | None = None,
    first: int | None = None,
    stop: int | None = None,
) -> Any:
    """Replay a capture that shows no lists; what they held at the start follows from its trace.

    Parameters
    ----------
    cap : Capture
    state : Release
    snapshot : Snapshot, optional
        Counts and sizes at the start; by default the capture's ``zoneinfo.before``.
    first, stop : int, optional
        Rows to start from and to end before; by default from the first snapshot on.

    Returns
    -------
    (Exactness, Tracker)
    """
    from pcpmodel.trace.ftrace import EVENT_IDS
    from pcpmodel.trace.inference import Tracker
    from pcpmodel.trace.replay import Exactness

    events, reader = cap.trace
    rows = events.rows
    if snapshot is None:
        snapshot = cap.zoneinfo("before")
    notes = ["no dump of the lists: what they held at the start is inferred from the trace"]
    _sized(snapshot, state, cap)
    marks = {
        reader.markers[int(rows["a"][k])].removeprefix("pcpmodel: "): int(k)
        for k in np.flatnonzero(events.is_event("tracing_mark_write"))[::-1]
    }
    begin = first
    if first is None:
        begin, first = marks.get("snapshot-before"), marks.get("snapshot-before-end")
        if begin is None or first is None:
            raise InputError(
                "the trace has no markers of its first snapshot", file=cap.file("trace.txt")
            )
        first += 1
    base = min(z.start_pfn for z in snapshot.zones) & ~511
    blocks = ((max(z.end_pfn for z in snapshot.zones) + 511) & ~511) - base >> 9
    end = len(rows) if stop is None else stop
    # Probes and function hits are for those who have a dump.
    kept = np.flatnonzero(np.isin(rows["event"], [EVENT_IDS[name] for name in _FOLLOWED]))
    begin, first, end = (int(np.searchsorted(kept, k)) for k in (begin, first, end))
    rows = rows[kept]
    new = np.flatnonzero(rows["event"] == EVENT_IDS["sched_process_fork"])
    new = new[np.argsort(rows["cpu"][new], kind="stable")]
    places = np.searchsorted(rows["cpu"][new], np.arange(cap.cpus + 1))
    counts = _counts(rows, begin, first, snapshot, state)
    tracker = Tracker(state, cap.cpus, snapshot, rows, first, new, places, counts)
    tracker.set_block_types(_block_types(rows, tracker.next_of_page(), base, blocks, first))
    probes = 0
    after = marks.get("snapshot-after"), marks.get("snapshot-after-end")
    if stop is None and None not in after and cap.has("zoneinfo.after"):
        a, b = (int(np.searchsorted(kept, k)) for k in after)
        tracker.run(first, a)
        probes = _compare(tracker, cap.zoneinfo("after"), snapshot, cap.cpus, a, b)
        first_left = b
    else:
        first_left = first
    tracker.run(first_left, end)
    if reader.truncated:
        notes.append(f"the trace ends in an unfinished line: {reader.truncated[:60]!r}")
    if reader.missing:
        notes.append(f"{reader.missing} events of the trace's heading are not in the file")
    t = tracker.tally
    bad, nr_bad, good, nr_good = tracker.notes()
    kinds = ("allocations", "refills", "drains", "drained_pages")
    found = Exactness(
        capture=cap.name, release=state.name, events=end - first,
        **{k: t[k] for k in kinds}, **{f"{k}_exact": t[f"{k}_exact"] for k in kinds},
        probes=probes, lists=0, lists_exact=0, blocks=0, blocks_exact=0, free_lists=0,
        free_lists_exact=0, nr_unexplained=nr_bad, nr_explained=nr_good, unexplained=bad,
        explained=good, lost=cap.lost, notes=notes,
        inferred={k: t[f"{k}_inferred"] for k in kinds},
    )  # fmt: skip
    return found, tracker

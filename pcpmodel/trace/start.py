"""The memory that a recording starts from: from its dump, or from what its trace tells."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np

from pcpmodel.kernel import sizing
from pcpmodel.kernel.lists import pindex_to_order
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.kernel.zone import Zone
from pcpmodel.trace.recording import Recording, Snapshot, ZoneState

__all__ = ["enough", "guess_types", "memory_at_start", "sizes"]

#: LLC slice that the guests of the recordings show each CPU [bytes]; enough for
#: PCPF_FREE_HIGH_BATCH in every zone.
_SLICE_BYTES = 4 << 20

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
    # Which pages are free `load` says: of a fresh zone most words are not even written.
    memory = Memory(
        state,
        zones,
        cap.cpus,
        cpu_node=[cpu * nodes // cap.cpus for cpu in range(cap.cpus)],
        data_cache_bytes=_SLICE_BYTES,
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
                # What no dump tells (-1) is as after boot.
                told = ("high", "alloc_factor", "free_count", "flags")
                values |= {name: has for name in told if (has := getattr(have, name)) >= 0}
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


def guess_types(told: np.ndarray, blocks: np.ndarray, shown: np.ndarray, end: int) -> np.ndarray:
    """Migratetype of every block, guessed where no line tells it (-1).

    Where pages freed into one were not on the movable list, it is unmovable or reclaimable.

    Parameters
    ----------
    told : (N,) ndarray of int8
    blocks : (M,) ndarray of int
        Into which pages were freed ...
    shown : (M, 3) ndarray of int
        ... and rows that show that these were not on a list; of `lay_elsewhere`.
    end : int
        Number of rows.
    """
    types = told.copy()
    # What nothing shows is taken for movable, then for unmovable, then for reclaimable; if it was
    # none, for what held out longest: who leaves no line may have taken the page by then.
    held = np.full((len(types), shown.shape[1]), end, shown.dtype)
    known = blocks < len(types)
    # One type after the other, and of the same width: all at once take five times as long.
    for first, at in zip(held.T, np.where(shown[known] > 0, shown[known], end).T, strict=True):
        np.minimum.at(first, blocks[known], at)
    order = np.array([1, 0, 2])
    wrong = (types < 0) & (held[:, 1] < end)
    types[wrong] = order[held[wrong][:, order].argmax(axis=1)]
    return types


def sizes(cap: Recording, zone: ZoneState, rules: Rules, fraction: int) -> tuple[int, int, int]:
    """``batch``, ``high_min`` and ``high_max`` of a zone's lists; before v6.7 one high, twice."""
    size = sizing.zone_set_pageset_high_and_batch(
        zone.managed,
        zone.wmark_low,
        rules,
        node_cpus=max(1, cap.online_cpus // max(1, cap.numa_nodes)),
        online_cpus=cap.online_cpus,
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

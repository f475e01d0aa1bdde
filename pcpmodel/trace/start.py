"""The memory that a capture starts from, as the model's."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from typing import Any

import numpy as np

from pcpmodel.kernel.releases import Release
from pcpmodel.trace.state import Capture, Snapshot

__all__ = ["memory_at_start"]

#: LLC slice that the guests of the recordings show each CPU [bytes]; enough for
#: PCPF_FREE_HIGH_BATCH in every zone.
_SLICE_BYTES = 4 << 20


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
                "blocks": [int(t) if t >= 0 else 1 for t in blocks],
                "pcp": pcp,
            },
        )
    return memory

"""A zone's state, saved and loaded: twin of `zone_state.pyx`."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pcpmodel.kernel.reference.lists import pindex_to_order
from pcpmodel.kernel.reference.pages import CMA, HIGHATOMIC, MOVABLE, runs
from pcpmodel.kernel.reference.pcp import PcpZone


def zone_state(zone: PcpZone) -> dict[str, Any]:
    """Everything about a zone."""
    return {
        "free": {k: list(v) for k, v in zone.free.items() if v},
        "blocks": list(zone.blocks),
        "isolated": sorted(zone.isolated.items()),
        "held": runs(sorted(zone.held.items())),
        "nr_free": zone.nr_free(),
        "nr_free_cma": zone.nr_free(CMA),
        "nr_free_highatomic": zone.nr_free(HIGHATOMIC),
        "nr_reserved_highatomic": zone.nr_reserved_highatomic,
        "watermark_boost": zone.watermark_boost,
        "flags": zone.flags,
        "stat_diff": list(zone.stat_diff),
        "pcp": [
            {
                **pcp.scalars(),
                "lists": {i: list(pfns) for i, pfns in enumerate(pcp.lists) if pfns},
                "cached": {
                    i: [pcp.cached[pfn] for pfn in pfns] for i, pfns in enumerate(pcp.lists) if pfns
                },
            }
            for pcp in zone.pcp
        ],
    }


def fill_zone(new: PcpZone, old: PcpZone, state: Mapping[str, Any]) -> None:
    """Put a fresh zone into a state; what the state does not say is as in the old one."""
    new.watermarks = old.watermarks
    new.blocks = list(state.get("blocks", new.blocks))
    new.isolated = dict(state.get("isolated", ()))
    for (order, mt), pfns in state["free"].items():
        for pfn in pfns:
            new.add_to_free_list(pfn, order, mt, tail=True)
    for cpu, saved in enumerate(state.get("pcp", ())):
        pcp = new.pcp[cpu]
        for i, pfns in saved.get("lists", {}).items():
            pcp.lists[i] = list(pfns)
            pcp.count += len(pfns) * 2 ** pindex_to_order(i)
            types = saved.get("cached", {}).get(i) or [new.block_type(pfn) for pfn in pfns]
            pcp.cached.update(zip(pfns, types, strict=True))
    for cpu, pcp in enumerate(new.pcp):
        saved = state["pcp"][cpu] if "pcp" in state else {}
        for name in pcp.scalars():
            if name != "count":
                setattr(pcp, name, saved.get(name, getattr(old.pcp[cpu], name)))
    if "held" in state:
        for pfn, n, movable in state["held"]:
            new.held.update(dict.fromkeys(range(pfn, pfn + n), movable))
    else:
        listed = {p for pfn, (o, _) in new.head.items() for p in range(pfn, pfn + 2**o)}
        for pcp in new.pcp:
            for i, pfns in enumerate(pcp.lists):
                size = 2 ** pindex_to_order(i)
                listed.update(p for pfn in pfns for p in range(pfn, pfn + size))
        for pfn in range(new.start, new.end):
            if pfn not in listed and pfn not in new.absent:
                new.held[pfn] = new.block_type(pfn) == MOVABLE
    for name in ("nr_reserved_highatomic", "watermark_boost", "flags"):
        setattr(new, name, state.get(name, 0))
    new.stat_diff = list(state.get("stat_diff", new.stat_diff))

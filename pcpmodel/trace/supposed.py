"""A first dump as a recording without dumps lets one suppose it, to do its work again from.

What the first line about a page says tells where it was: on a per-CPU list, if that is an
allocation or a drain; in use, if it is a free; free, if it is a refill.  Which other pages were
free, or on the lists, no line tells: as many as /proc/zoneinfo counts, the free ones in the
largest blocks that there can be.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcpmodel.kernel.lists import MIGRATETYPES, order_to_pindex, pindex_to_order
from pcpmodel.trace.ftrace import EVENT_IDS
from pcpmodel.trace.recording import PcpState, Recording, Snapshot, ZoneState
from pcpmodel.trace.work import WORK_OPS

__all__ = ["supposed_dump"]

_MAX_ORDER = 10
_LARGEST = 1 << _MAX_ORDER
_ALLOC, _FREE, _BATCHED, _LOCKED, _DRAIN = (
    EVENT_IDS[f"mm_page_{name}"]
    for name in ("alloc", "free", "free_batched", "alloc_zone_locked", "pcpu_drain")
)
_ABOUT = (_ALLOC, _FREE, _BATCHED, _LOCKED, _DRAIN)
_MOVABLE = MIGRATETYPES["movable"]
#: Rows within which a refill is over on its CPU.
_LONGEST = 1 << 16
#: Lists of single pages, in the order in which more is supposed to be on one.
_FILLED = (_MOVABLE, MIGRATETYPES["unmovable"], MIGRATETYPES["reclaimable"])


def _first_rows(rows: np.ndarray, base: int, pages: int) -> np.ndarray:
    """The first row about every page; as many as there are rows: none."""
    found = np.full(pages, len(rows), np.int64)
    about = np.flatnonzero(np.isin(rows["event"], _ABOUT))
    page = rows["a"][about] - base
    order = np.where((page >= 0) & (page < pages), rows["b"][about], -1)
    for n in range(_MAX_ORDER + 1):
        of = np.flatnonzero(order == n)
        heads, at = np.unique(page[of], return_index=True)
        mine = about[of[at]]
        for i in range(1 << n):
            there = heads + i < pages
            part = heads[there] + i
            found[part] = np.minimum(found[part], mine[there])
    return found


class _Pages:
    """Where every page was, by its place from *base* on."""

    def __init__(self, cap: Recording, sizes: Snapshot, work: np.ndarray, base: int,
                 types: np.ndarray, first: int) -> None:  # fmt: skip
        self.base, self.zones, self.nr_lists = base, sizes.zones, cap.release.rules.nr_pcp_lists
        self.most_factor = cap.release.rules.batch_scale_max
        self.types = np.where(types < 0, _MOVABLE, types).astype(np.int8)
        self.rows = cap.trace[0].rows[first:]
        self.first = _first_rows(self.rows, base, len(types) << 9)
        self.kind = np.append(self.rows["event"], 0)[self.first]
        self.unknown = self.kind == 0
        self.free = self.kind == _LOCKED
        past = work[work["op"] == WORK_OPS["direct_alloc"]]
        for pfn, order in zip(past["pfn"] - base, past["order"].tolist(), strict=True):
            part = slice(pfn, pfn + (1 << order))
            self.free[part] |= self.kind[part] == _ALLOC
        #: (zone, CPU, list) -> page frames, head first.
        self.lists = self._lists(work)
        refills = np.flatnonzero((self.rows["event"] == _LOCKED) & (self.rows["b"] == 0))
        rows = self.rows[refills]
        zones, cpus = self._zone_of(rows["a"]), rows["cpu"].tolist()
        self.refilled = set(zip(zones, cpus, rows["c"].tolist(), strict=True))
        #: (zone, CPU) -> row of the first refill.
        self.refill: dict[tuple[int, int], int] = {}
        for key, row in zip(zip(zones, cpus, strict=True), refills.tolist(), strict=True):
            self.refill.setdefault(key, row)
        self.frees = work[work["op"] == WORK_OPS["free"]]
        self.start = first

    def _zone_of(self, pfns: np.ndarray) -> list[int]:
        starts = np.array([z.start_pfn for z in self.zones])
        order = np.argsort(starts)
        return order[np.searchsorted(starts[order], pfns, "right") - 1].tolist()

    def _lists(self, work: np.ndarray) -> dict[tuple[int, int, int], list[int]]:
        """What lay on lists: what was taken first lay at the head, what was drained at the tail."""
        found: dict[tuple[int, int, int], list[int]] = {}
        taken = work[np.isin(work["op"], [WORK_OPS["alloc"], WORK_OPS["bulk"]])]
        taken = taken[self.kind[taken["pfn"] - self.base] == _ALLOC]
        seen = np.zeros(len(self.kind), bool)
        fields = ["pfn", "order", "zone", "cpu", "pindex"]
        for pfn, order, zone, cpu, pindex in taken[fields].tolist():
            part = slice(pfn - self.base, pfn - self.base + (1 << order))
            if not seen[part].any() and (self.kind[part] == _ALLOC).all():
                seen[part] = True
                found.setdefault((zone, cpu, pindex), []).append(pfn)
        drained: dict[tuple[int, int, int], list[int]] = {}
        drains = np.flatnonzero(self.rows["event"] == _DRAIN)
        place = self.rows["a"][drains] - self.base
        drains = drains[inside := (place >= 0) & (place < len(self.kind))]
        drains = drains[self.first[place[inside]] == drains]
        rows = self.rows[drains]
        for row, zone, (pfn, order, mt, cpu) in zip(
            drains, self._zone_of(rows["a"]), rows[["a", "b", "c", "cpu"]].tolist(), strict=True
        ):
            part = slice(pfn - self.base, pfn - self.base + (1 << order))
            # Of a block of which another line told a part before no list is known.
            if (self.first[part] == row).all():
                mt = mt if mt < len(MIGRATETYPES) else _MOVABLE
                pindex = order_to_pindex(self.nr_lists, mt, order)
                drained.setdefault((zone, cpu, pindex), []).append(pfn)
        for key, pfns in drained.items():
            found.setdefault(key, []).extend(reversed(pfns))
        return found

    def _part(self, zone: ZoneState) -> slice:
        return slice(zone.start_pfn - self.base, zone.end_pfn - self.base)

    def pcp(self, n: int, zone: ZoneState, have: PcpState) -> PcpState:
        """One pageset, with as many pages as were counted, as far as that can be."""
        lists = {key[2]: pfns for key, pfns in self.lists.items() if key[:2] == (n, have.cpu)}
        held = sum(len(pfns) << pindex_to_order(i) for i, pfns in lists.items())
        more = have.count - held
        if more < 0:  # what nobody told of had been refilled: the pages that were taken last
            late = sorted(
                (int(self.first[p - self.base]), i, p) for i, q in lists.items() for p in q
            )
            while more < 0:
                _, i, pfn = late.pop()
                lists[i].remove(pfn)
                more += 1 << pindex_to_order(i)
                self.free[pfn - self.base : pfn - self.base + (1 << pindex_to_order(i))] = True
        # On a list that was refilled lay no more than was taken before.
        pindex = next((i for i in _FILLED if (n, have.cpu, i) not in self.refilled), None)
        if more and pindex is not None:
            part = self._part(zone)
            some = np.flatnonzero(self.unknown[part])[-more:] + part.start
            self.unknown[some] = False
            lists.setdefault(pindex, []).extend((some + self.base).tolist())
        return replace(
            have, lists={i: np.array(p, np.int64) for i, p in lists.items() if p},
            alloc_factor=self._alloc_factor(n, have),
        )  # fmt: skip

    def _alloc_factor(self, n: int, have: PcpState) -> int:
        """alloc_factor as the first refill shows it; a free halves the batch before that."""
        row = self.refill.get((n, have.cpu))
        if row is None:
            return -1
        own = self.rows[row : row + _LONGEST]
        own = own[own["cpu"] == have.cpu]
        blocks = int(np.argmax(own["event"] != _LOCKED)) or len(own)
        since = (self.frees["zone"] == n) & (self.frees["cpu"] == have.cpu)
        frees = int((since & (self.frees["row"] < row + self.start)).sum())
        factor = max((blocks // max(have.batch, 1)).bit_length() - 1, 0)
        return min(factor << min(frees, self.most_factor), self.most_factor)

    def free_lists(self, zone: ZoneState) -> dict[tuple[int, int], np.ndarray]:
        """(order, migratetype) -> first page frames of the free blocks of a zone."""
        part, start = self._part(zone), zone.start_pfn & ~(_LARGEST - 1)
        before = zone.start_pfn - start
        pad = -(before + zone.spanned) & (_LARGEST - 1)
        free, unknown = (np.pad(of[part], (before, pad)) for of in (self.free, self.unknown))
        whole = np.flatnonzero(unknown.reshape(-1, _LARGEST).all(axis=1))
        whole = whole[: max(0, zone.nr_free - int(free.sum())) >> _MAX_ORDER]
        free.reshape(-1, _LARGEST)[whole] = True
        rest = np.flatnonzero(unknown & ~free)
        free[rest[: max(0, zone.nr_free - int(free.sum()))]] = True
        found: dict[tuple[int, int], np.ndarray] = {}
        for order in range(_MAX_ORDER, -1, -1):
            blocks = free.reshape(-1, 1 << order)
            at = np.flatnonzero(blocks.all(axis=1))
            blocks[at] = False
            pfns = (at << order) + start
            types = self.types[(pfns >> 9) - (self.base >> 9)]
            found |= {(order, int(mt)): pfns[types == mt] for mt in np.unique(types)}
        return found

    def blocks(self, zone: ZoneState) -> tuple[int, np.ndarray]:
        first, end = zone.start_pfn >> 9, (zone.end_pfn + 511) >> 9
        return first << 9, self.types[first - (self.base >> 9) : end - (self.base >> 9)]


def supposed_dump(
    cap: Recording, sizes: Snapshot, work: np.ndarray, base: int, types: np.ndarray, first: int
) -> Snapshot:
    """What a dump of the lists at row *first* would have shown.

    Parameters
    ----------
    cap : Recording
        Without dumps.
    sizes : Snapshot
        Counts and sizes of all lists then, as /proc/zoneinfo has them.
    work : ndarray of WORK
        What was done from row *first* on.
    base : int
        The first page frame, a multiple of 512.
    types : ndarray of int8
        Migratetype of every block of 512 pages from there on; -1 not known, which is movable.
    first : int

    Returns
    -------
    Snapshot
    """
    pages = _Pages(cap, sizes, work, base, types, first)
    zones, pcps = [], {}
    for n, zone in enumerate(sizes.zones):
        mine = [pcp for key, pcp in sizes.pcps.items() if key[:2] == zone.key]
        zones.append(
            replace(zone, pageset_batch=mine[0].batch, pageset_high_min=mine[0].high_min,
                    pageset_high_max=mine[0].high_max)
            if mine else zone
        )  # fmt: skip
        for cpu in range(cap.cpus):
            have = sizes.pcps.get((*zone.key, cpu))
            if have is None and mine:
                have = replace(mine[0], cpu=cpu, count=0, high=mine[0].high_min)
            if have is not None:
                pcps[(*zone.key, cpu)] = pages.pcp(n, zone, have)
    return replace(
        sizes, zones=zones, pcps=pcps,
        free={zone.key: pages.free_lists(zone) for zone in zones},
        blocks={zone.key: pages.blocks(zone) for zone in zones},
    )  # fmt: skip

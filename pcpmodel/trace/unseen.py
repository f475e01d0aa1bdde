# SPDX-License-Identifier: GPL-2.0-only
"""What happens to free lists without a line: one table of acts, and one search that places them.

A page that left the free lists in silence parts its neighbours from that moment on; a list that
compaction turns is another one for whoever comes to it next; and a block that is freed past the
per-CPU lists joins them only when its task has the lock.  Each shows later, when others are found
in places that they could not have come to otherwise: its moment is looked for among those of
`ACTS`, by following the trace again with it elsewhere.  What is accepted makes foreseen the next
block that was not (or stand right the lists of the last dump), and spoils none before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcpmodel.cached import cached_property
from pcpmodel.kernel.lists import MIGRATETYPES, PAGE_ALLOC_COSTLY_ORDER
from pcpmodel.trace.buddy_lists import ACT, KINDS, UNDER_WAY, BuddyLists, Saved
from pcpmodel.trace.history import History

__all__ = ["ACTS", "Search", "Unseen", "lists_of", "unlike"]

_JOINS, _LEAVES, _ISOLATED, _TURNED = (KINDS[k] for k in ("joins", "leaves", "isolated", "turned"))
_TYPES = 6  # MIGRATE_TYPES
_MOVABLE = MIGRATETYPES["movable"]
_BLOCK = 9  # order of a page block
_LARGEST = 10  # largest order
_NO_BLOCKS = np.empty(0, np.int64)
_HALF = 1 << _BLOCK - 1
#: Blocks that fast_find_migrateblock() has seen when it gives up; they go to the end.
_SCANNED = 2, 3, 5, 9, 17

#: Places that the trace is followed again from.
_PLACES = 24
#: Moments of kcompactd, the last ones, at which an act may have happened.
_MOMENTS = 64
#: An act as so many bytes: NumPy copies records field by field.
_RAW = np.dtype((np.void, ACT.itemsize))
#: Rows that all tries follow; a row stands for 8 page words that are copied.  About two seconds.
_EFFORT = 400_000_000


class Change(NamedTuple):
    """Acts that are put elsewhere."""

    since: int  #: row after which all differs
    proof: int
    less: tuple[int, ...]  #: places in the acts
    more: list[tuple[int, ...]]  #: as ACT


def _act(row: int, kind: int, pfn: int, proof: int, order: int = 0) -> tuple[int, ...]:
    return row, pfn, proof, order, kind


class Search:
    """A trace that is followed again and again, with acts put elsewhere.

    Parameters
    ----------
    lists : BuddyLists
    start : Saved
        What they were at row *first*.
    first, stop : int
    acts : (M,) ndarray of ACT
        What is known without a search.
    history : History

    Attributes
    ----------
    acts : ndarray of ACT
        With what was found.
    cut : bool
        The search has cost what it may.
    """

    def __init__(
        self,
        lists: BuddyLists,
        start: Saved,
        first: int,
        stop: int,
        acts: NDArray[Any],
        history: History,
    ) -> None:
        self.lists = lists
        self.kept = [(first, start)]  # to go on from
        self.first, self.stop = first, stop
        self.acts = acts
        self.history = history
        self.effort = _EFFORT
        self.cut = False
        self.found: dict[int, tuple[int, int, int]] = {}  # row -> (row, named, evidence)

    def follow(
        self, stop: int, since: int, acts: NDArray[Any] | None = None, most: int | None = None
    ) -> BuddyLists:
        """The lists at row *stop* with other acts after row *since*."""
        at, saved = self.kept[max(bisect_right(self.kept, since, key=itemgetter(0)), 1) - 1]
        self.effort -= self.lists.restore(saved) // 8
        acts = self.acts if acts is None else acts
        self.effort -= self.lists.run(at, max(stop, at), acts, most=most)
        return self.lists

    def accept(self, since: int) -> None:
        """Follow what differs after row *since* to the end; keep a place every so often."""
        n = max(bisect_right(self.kept, since, key=itemgetter(0)), 1)
        del self.kept[n:]
        at, saved = self.kept[-1]
        self.lists.restore(saved)
        keep = (self.stop - self.first) // _PLACES + 1
        while at + keep < self.stop:
            self.lists.run(at, at + keep, self.acts)
            at += keep
            self.kept.append((at, self.lists.save()))
        self.lists.run(at, self.stop, self.acts)

    def put(self, proof: int, more: list[tuple[int, ...]], less: Collection[int] = ()) -> Change:
        """These acts, in place of those at some places."""
        rows = [act[0] for act in more] + self.acts["row"][list(less)].tolist()
        return Change(min(rows), proof, tuple(less), more)

    def changed(self, change: Change) -> NDArray[Any]:
        """The acts, with some of them elsewhere."""
        acts = self.acts.view(_RAW)
        acts = np.delete(acts, change.less) if change.less else acts
        more = np.array(sorted(change.more), ACT)
        at = np.searchsorted(acts.view(ACT)["row"], more["row"], side="right")
        return np.insert(acts, at, more.view(_RAW)).view(ACT)

    def best(
        self,
        groups: Iterable[Iterable[Change]],
        score: Callable[[Change, int], int | None],
        fewest: int,
    ) -> Change | None:
        """What scores least, and less than so many, in the first group that has any; or None."""
        best = None
        for group in groups:
            for change in group:
                if self.effort < 0:
                    self.cut = True
                    return best
                if change.since < self.first:
                    continue
                n = score(change, fewest)
                if n is not None and n < fewest:
                    best, fewest = change, n
            if best is not None:
                break
        return best

    # So that the next block is foreseen.

    def settled(self) -> None:
        """Follow it to the end as well as can be."""
        self.accept(self.first)
        left: set[int] = set()
        while len(self.lists.unforeseen) > len(left):
            known, around = self.lists.unforeseen, self.lists.around
            n = next(n for n, (k, _) in enumerate(known) if k not in left)
            k, named = known[n]

            def unforeseen(change: Change, fewest: int, k: int = k) -> int | None:
                acts = self.changed(change)
                there = self.follow(k + 1, change.since, acts, len(left))
                if {j for j, _ in there.unforeseen} - left:
                    return None
                self.effort -= there.run(k + 1, self.stop, acts, most=fewest - 1)
                return len(there.unforeseen)

            best = self.best(self.elsewhere(k, around[n]), unforeseen, len(known))
            if best is None:
                left.add(k)
                self.follow(self.stop, self.stop)
            else:
                self.acts = self.changed(best)
                self.found[k] = k, named, best.proof
                self.accept(best.since)
        self._count()

    def _count(self) -> None:
        """Blocks that are foreseen because of what was found are explained by it."""
        lists = self.lists
        known = {k for k, _, _ in lists.explained} | {k for k, _ in lists.unforeseen}
        more = [why for k, why in self.found.items() if k not in known]
        lists.explained = sorted(lists.explained + more)
        lists.foreseen -= len(more)

    def elsewhere(self, k: int, around: list[tuple[int, int]]) -> Iterator[Iterable[Change]]:
        """What may have happened at another moment than it shows, the surest kind first."""
        for kind in ACTS.values():
            yield from kind.moments(self, k, around)

    @cached_property
    def stints(self) -> dict[int, int]:
        """Rows before which compaction may have been at work -> its proof."""
        return {row: why for why, rows in self.history.stints for row in rows.tolist()}

    def _scans(self, k: int) -> dict[int, int]:
        """The last rows up to *k* before which compaction may have been at work -> its proof."""
        at = {row: why for row, why in self.stints.items() if row <= k}
        for why, rows in self.history.stints:
            if rows[0] <= k <= rows[-1]:
                at[k] = why
        return {
            row: at[row] for row in sorted(at, reverse=True)[:_MOMENTS] if row > self.first
        }  # fmt: skip

    def joins(self, k: int, around: list[tuple[int, int]]) -> Iterator[Iterable[Change]]:
        """One that is part of a block about row *k* joins it once its task has the lock."""
        near = {p >> _LARGEST for p in (int(self.history.rows["a"][k]), *(p for p, _ in around))}
        came = np.flatnonzero((self.acts["kind"] == _JOINS) & (self.acts["row"] < k))
        later = []
        for d in came[: -UNDER_WAY - 1 : -1].tolist():
            row, pfn, proof, order, _ = self.acts[d].tolist()
            if pfn >> _LARGEST in near:
                end = self.history.until(proof)
                then = self.lists.held_until(k) if end > k else end - 1
                if then == row and self.acts["row"][d + 1 : d + 2].tolist() != [row]:
                    continue  # as it is
                later.append(self.put(proof, [_act(then, _JOINS, pfn, proof, order)], [d]))
        yield later

    def isolated(self, k: int, around: list[tuple[int, int]]) -> Iterator[Iterable[Change]]:
        """The other half of a page block was isolated then, and at no other moment."""
        for half in {(p ^ _HALF) & ~(_HALF - 1) for p, _ in around}:
            same = (self.acts["kind"] == _ISOLATED) & (self.acts["pfn"] == half)
            less = np.flatnonzero(same).tolist()
            yield [
                self.put(why, [_act(row - 1, _ISOLATED, half, why)], less)
                for row, why in self._scans(k).items()
                if len(self.lists.gone(row, half, _BLOCK - 1)) == _HALF
            ]

    def leaves(self, k: int, around: list[tuple[int, int]]) -> Iterator[Iterable[Change]]:
        """Pages beside had left already; the scanners go through a block at a time."""
        for wide in (2, _BLOCK):
            for p, order in around:
                wide = min(max(order + 2, wide), _BLOCK)
                j = self.lists.joined(k, p, order, self.acts)
                shown = self.lists.gone(j, p & ~((1 << wide) - 1), wide) if j >= 0 else {}
                if shown:
                    left = [_act(j - 1, _LEAVES, page, why) for page, why in shown.items()]
                    yield [self.put(max(shown.values()), left)]

    def turned(self, k: int, around: list[tuple[int, int]]) -> Iterator[Iterable[Change]]:
        """The page was the first then, or the one after those that had been scanned."""
        scans, pfn = self._scans(k), int(self.history.rows["a"][k])
        for row, why in scans.items():
            yield [self.put(why, [_act(row - 1, _TURNED, pfn, why)])]
        for row, why in scans.items():
            there = self.follow(row, row - 1)
            lists = [there.blocks(there.zone_of(p), order, _MOVABLE) for p, order in around]
            for blocks in lists:
                yield [
                    self.put(why, [_act(row - 1, _TURNED, blocks[n], why)])
                    for n in _SCANNED if n < len(blocks)
                ]  # fmt: skip

    # So that the free lists are those of the last dump.

    def agree(self, zones: Any, free: Any) -> dict[Any, int]:
        """Find what has no line and shows only in the free lists of the last dump.

        As in `settled`, it is put where it makes most blocks stand where the dump shows them,
        and none before it unforeseen.

        Returns
        -------
        dict
            (zone, (order, migratetype)) of a list that came out by that -> row that shows it.
        """
        self.accept(self.stop)
        told, shown = lists_of(zones, free), {}
        most = len(self.lists.unforeseen)

        def blocks() -> dict[Any, list[int]]:
            found = {(n, what): self.lists.misplaced(n, *what, told[n, what]) for n, what in told}
            return {at: bad for at, bad in found.items() if bad}

        def misplaced(change: Change, fewest: int) -> int | None:
            there = self.follow(self.stop, change.since, self.changed(change), most)
            if len(there.unforeseen) > most:
                return None
            return sum(map(len, blocks().values()))

        wrong = blocks()
        while wrong:
            groups = self.moments(wrong, zones, free)
            best = self.best(groups, misplaced, sum(map(len, wrong.values())))
            if best is None:
                self.follow(self.stop, self.stop)
                break
            self.acts = self.changed(best)
            self.accept(best.since)
            before, wrong = wrong, blocks()
            shown |= dict.fromkeys(before.keys() - wrong.keys(), best.proof)
        self._count()
        return shown

    def moments(self, wrong: Mapping[Any, list[int]], zones: Any, free: Any):
        """What may make the lists those of the dump; yields what `elsewhere` does."""
        at = {row: why for row, why in self.stints.items() if self.first < row < self.stop}
        rows = sorted(at, reverse=True)
        extra: dict[int, tuple[int, set[int]]] = {}
        for (n, (order, mt)), bad in wrong.items():
            real = set(free[zones[n].key].get((order, mt), ()))
            for pfn in bad:
                if pfn not in real:
                    extra.setdefault(pfn >> _BLOCK, (n, set()))[1].update(
                        _missing(free[zones[n].key], pfn, order))  # fmt: skip
        for block, (n, pages) in sorted(extra.items(), reverse=True):
            yield (self._taken(row, at[row], n, block, pages) for row in rows if pages)
        alone = np.flatnonzero(self.acts["kind"] == _LEAVES)
        where = self.acts["pfn"][alone]
        for block in {pfn >> _BLOCK for bad in wrong.values() for pfn in bad}:
            for run in self._runs(alone[where >> _BLOCK == block]):
                pages = self.acts["pfn"][run].tolist()
                yield [
                    self.put(at[row], [_act(row - 1, _LEAVES, p, at[row]) for p in pages], run)
                    for row in rows
                ]
        for (n, (order, mt)), bad in wrong.items():
            if mt == _MOVABLE and order >= PAGE_ALLOC_COSTLY_ORDER:
                real = [int(pfn) for pfn in free[zones[n].key].get((order, mt), ())]
                if real:
                    yield self._turns(order, real, bad, at)

    def _runs(self, places: NDArray[np.int64]) -> list[list[int]]:
        """Contiguous pages that leave after one row: places in the acts."""
        rows, pfns = (self.acts[name][places] for name in ("row", "pfn"))
        cuts = np.flatnonzero((np.diff(rows) != 0) | (np.diff(pfns) != 1)) + 1
        return [run.tolist() for run in np.split(places, cuts) if len(run)]

    def _taken(self, row: int, why: int, n: int, block: int, pages: set[int]) -> Change:
        """These pages of a page block were isolated before this row, whole blocks if possible."""
        more = [(self.stop - 1, page, why, 0, _LEAVES) for page in pages]
        there = self.follow(row, row - 1)
        for pfn, order in there.free_in(n, block << _BLOCK):
            here = pages.intersection(range(pfn, pfn + (1 << order)))
            if len(here) == 1 << order:
                more.append(_act(row - 1, _ISOLATED, pfn, why))
            else:
                more += [_act(row - 1, _LEAVES, page, why) for page in here]
        return self.put(why, more)

    def _turns(self, order: int, real: list[int], bad: Collection[int], at: Mapping[int, int]):
        """A list that was turned before a block joined it has that one elsewhere."""
        rows = sorted(at)
        place = {pfn: k for k, pfn in enumerate(real)}
        near = {place[pfn] - k for pfn in bad if pfn in place for k in (0, 1)}
        came = [(k, self.lists.joined(self.stop, real[k], order, self.acts)) for k in near]
        for k, j in [(0, self.stop - 1), *(at for at in came if at[1] >= 0)]:
            lists = self.follow(j, j - 1)
            there = lists.blocks(lists.zone_of(real[k]), order, _MOVABLE)
            after = [(place[pfn] - k) % len(real) for pfn in there if pfn in place]
            after = [step for step in after if step or j == self.stop - 1]
            if after:
                head = real[(k + min(after)) % len(real)]
                for row in rows[: bisect_right(rows, j)]:
                    yield self.put(at[row], [_act(row - 1, _TURNED, head, at[row])])


@dataclass(frozen=True)
class Unseen:
    """One row of `ACTS`."""

    does: str  #: to the lists
    when: str  #: it may have happened
    proof: str  #: the line that shows it
    bound: str  #: how often, at most
    #: (search, row of a block that is not as foreseen, (pfn, order) about it) -> groups of changes
    moments: Callable[[Search, int, list[tuple[int, int]]], Iterator[Iterable[Change]]]


#: What happens to free lists without a line at that moment, the surest kind first.
ACTS = {
    "joins": Unseen(
        "a block freed past the per-CPU lists comes to the lists",
        "from the line that announces it to the next one of its task, while nobody else holds the "
        "zone's lock",
        "the line that announces it",
        "each once",
        Search.joins,
    ),
    "isolated": Unseen(
        "compaction isolates half a page block or more, and what else is free in that page block "
        "goes to the ends of its lists (__isolate_free_page(), since v6.10)",
        "while kcompactd has a CPU",
        "kcompactd's line; each page is then freed without an allocation, or not free at the end",
        "compact_isolated",
        Search.isolated,
    ),
    "leaves": Unseen(
        "a page is isolated or taken in silence, and parts its neighbours",
        "from when the block that it was in came to the lists",
        "the line that frees it without an allocation, or the last dump",
        "compact_isolated",
        Search.leaves,
    ),
    "turned": Unseen(
        "a list of movable blocks of order 3 or more begins with another one: the scanners of "
        "compaction move what they have seen to its end (move_freelist_head(), "
        "move_freelist_tail())",
        "while kcompactd has a CPU",
        "kcompactd's line",
        "each time that it has a CPU",
        Search.turned,
    ),
}


def _missing(free: Mapping[Any, NDArray[np.int64]], pfn: int, order: int) -> set[int]:
    """Pages of a block that are in none of the lists of a dump."""
    pages = set(range(pfn, pfn + (1 << order)))
    for (o, _), blocks in free.items():
        for base in blocks[(blocks > pfn - (1 << o)) & (blocks < pfn + (1 << order))].tolist():
            pages.difference_update(range(base, base + (1 << o)))
    return pages


def lists_of(zones: Sequence[Any], free: Any) -> dict[Any, NDArray[np.int64]]:
    """The free lists of a dump, (zone, (order, migratetype)) -> page frames, empty ones too."""
    return {
        (n, what): free.get(zone.key, {}).get(what, _NO_BLOCKS)
        for n, zone in enumerate(zones)
        for what in product(range(_LARGEST + 1), range(_TYPES))
    }


def unlike(lists: BuddyLists, told: Mapping[Any, NDArray[np.int64]]) -> dict[Any, Any]:
    """Those of some free lists that are others now."""
    return {
        (n, what): pfns for (n, what), pfns in told.items() if not lists.is_list(n, *what, pfns)
    }

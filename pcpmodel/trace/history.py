# SPDX-License-Identifier: GPL-2.0-only
"""What a trace tells elsewhere of a page, a task or kcompactd: for who looks for an explanation.

Nothing is looked up before somebody asks; most recordings need none of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcpmodel.trace.ftrace import EVENT_IDS, FLAGS

__all__ = ["History"]

_DRAIN, _LOCKED = (EVENT_IDS[f"mm_page_{n}"] for n in ("pcpu_drain", "alloc_zone_locked"))
#: Events that tell where a page is.
_TOLD = (_DRAIN, _LOCKED, *(EVENT_IDS[f"mm_page_{n}"] for n in ("alloc", "free", "alloc_extfrag")))
_INTERRUPT = FLAGS["hardirq"] | FLAGS["softirq"] | FLAGS["nmi"]

_BLOCK = 9  # order of a page block
#: Rows looked at in one step for a task's next one, which is mostly near.
_NEAR = 256
#: That kcompactd may scan before it shows a page, and after [ns].
_SCAN_NS = 10_000_000
#: Rows of others that show that it scans again.
_PAUSE = 30


class History:
    """The rows of a trace by page block, by task and by kcompactd's time on a CPU.

    Parameters
    ----------
    rows : (N,) ndarray of EVENT
    compactors : collection of int
        Names (``comm``) of kcompactd.
    last : tuple, optional
        Row of the last dump, and its free lists (`Snapshot.free`).
    """

    def __init__(
        self,
        rows: NDArray[Any],
        compactors: Collection[int],
        last: tuple[int, Mapping[Any, Mapping[Any, NDArray[np.int64]]]] | None = None,
    ) -> None:
        self.rows = rows
        self._compactors = list(compactors)
        self._last = last
        #: row of the last dump, or -1
        self.end = -1 if last is None else last[0]
        #: (row) -> the next row of the same task on the same CPU, in no interrupt more or less
        self.until = cache(self._until)
        #: (page block) -> rows that tell of pages in it, ascending
        self.about = cache(self._about)

    @cached_property
    def _free(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Page frames that are free in the last dump: first of each block, one past its last."""
        assert self._last is not None
        lists = [(np.array([-1]), 0)]  # before all pages
        for free in self._last[1].values():
            lists += [(pfns, 1 << order) for (order, _), pfns in free.items()]
        first = np.concatenate([pfns for pfns, _ in lists])
        end = np.concatenate([pfns + pages for pfns, pages in lists])
        order = np.argsort(first)
        return first[order], end[order]

    @cached_property
    def _by_block(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(blocks, rows): each page block that a row tells of, and that row; sorted."""
        rows = self.rows
        at = np.flatnonzero(np.isin(rows["event"], _TOLD) & (rows["a"] >= 0))
        first = rows["a"][at] >> _BLOCK
        last = (rows["a"][at] + (np.int64(1) << (rows["b"][at] & 15)) - 1) >> _BLOCK
        times = last - first + 1
        begin = np.cumsum(times) - times
        block = np.arange(times.sum()) - np.repeat(begin - first, times)
        at = np.repeat(at, times)
        order = np.argsort(block, kind="stable")
        return block[order], at[order]

    def _about(self, block: int) -> NDArray[np.int64]:
        blocks, rows = self._by_block
        return rows[np.searchsorted(blocks, block) : np.searchsorted(blocks, block + 1)]

    def used_at_end(self, pfn: int, n: int) -> NDArray[np.uint8]:
        """Which of *n* pages the last dump shows in use."""
        if self._last is None:
            return np.zeros(n, np.uint8)
        first, end = self._free
        pages = np.arange(pfn, pfn + n)
        return (pages >= end[np.searchsorted(first, pages, "right") - 1]).view(np.uint8)

    def joined(self, k: int, pfn: int, order: int, joins: NDArray[Any]) -> list[int]:
        """Rows before *k* at which pages of a block came to the lists, latest first.

        *joins*: the acts by which blocks did so past the per-CPU lists.
        """
        end = pfn + (1 << order)
        at = np.unique(np.concatenate([
            self.about(block) for block in range(pfn >> _BLOCK, (end - 1 >> _BLOCK) + 1)
        ]))  # fmt: skip
        at = at[: np.searchsorted(at, k)]
        within = (self.rows["a"][at] >= pfn) & (self.rows["a"][at] < end)
        at, event = at[within], self.rows["event"][at[within]]
        taken = at[event == _LOCKED][-1:]
        since = int(taken[0]) if len(taken) else -1
        mine = joins[(joins["pfn"] >= pfn) & (joins["pfn"] < end) & (joins["row"] < k)]["row"]
        came = np.concatenate([at[event == _DRAIN], mine])
        return sorted(came[came >= since].tolist(), reverse=True)

    def _until(self, j: int) -> int:
        rows, one = self.rows, self.rows[j]
        for at in range(j + 1, len(rows), _NEAR):
            some = rows[at : at + _NEAR]
            same = (some["cpu"] == one["cpu"]) & (some["pid"] == one["pid"])
            same &= (some["flags"] ^ one["flags"]) & _INTERRUPT == 0
            if same.any():
                return at + int(same.argmax())
        return len(rows)

    @cached_property
    def _kcompactd(self) -> list[int]:
        return np.flatnonzero(np.isin(self.rows["comm"], self._compactors)).tolist()

    def compacted(self, k: int) -> int:
        """The last row up to *k* that kcompactd shows, or -1."""
        n = bisect_right(self._kcompactd, k)
        return self._kcompactd[n - 1] if n else -1

    @cached_property
    def stints(self) -> list[tuple[int, NDArray[np.int64]]]:
        """When kcompactd had a CPU: (row that shows it, rows at which it may have turned lists).

        It scans before it shows pages, between those, and after, while nobody else shows on that
        CPU.
        """
        rows, mine = self.rows, np.zeros(len(self.rows), bool)
        mine[self._kcompactd] = True
        time, found = rows["time"], []
        for cpu in sorted(set(rows["cpu"][mine].tolist())):
            here = np.flatnonzero(rows["cpu"] == cpu)
            edges = np.flatnonzero(np.diff(np.r_[False, mine[here], False]))
            for a, b in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                own = here[a:b]
                begin = bisect_left(time, time[own[0]] - _SCAN_NS)
                end = bisect_left(time, time[own[-1]] + _SCAN_NS) - 1
                if a:
                    begin = max(begin, here[a - 1] + 1)
                if b < len(here):
                    end = min(end, here[b])
                pause = np.flatnonzero(np.diff(own) > _PAUSE)
                drains = own[np.flatnonzero(np.diff(rows["event"][own] == _DRAIN))]
                at = np.r_[begin, own[0], own[pause], own[pause + 1], drains, own[-1], end]
                found.append((int(own[-1]), at))
        return found

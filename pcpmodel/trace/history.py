# SPDX-License-Identifier: GPL-2.0-only
"""What a trace tells elsewhere of a task, kcompactd or its end: for who looks for an explanation.

Nothing is looked up before somebody asks; most recordings need none of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcpmodel.cached import cached_property
from pcpmodel.trace.ftrace import EVENT_IDS, INTERRUPT

__all__ = ["History"]

_DRAIN = EVENT_IDS["mm_page_pcpu_drain"]
#: Rows looked at in one step for a task's next one, which is mostly near.
_NEAR = 256
#: That kcompactd may scan before it shows a page, and after [ns].
_SCAN_NS = 10_000_000
#: Rows of others that show that it scans again.
_PAUSE = 30


class History:
    """The rows of a trace by task and by kcompactd's time on a CPU, and what is free at its end.

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
        #: (first page frame, how many) -> which of them the last dump shows in use
        self.used_at_end = cache(self._used_at_end)

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

    def _used_at_end(self, pfn: int, n: int) -> NDArray[np.uint8]:
        if self._last is None:
            return np.zeros(n, np.uint8)
        first, end = self._free
        pages = np.arange(pfn, pfn + n)
        return (pages >= end[np.searchsorted(first, pages, "right") - 1]).view(np.uint8)

    def _until(self, j: int) -> int:
        rows, one = self.rows, self.rows[j]
        for at in range(j + 1, len(rows), _NEAR):
            some = rows[at : at + _NEAR]
            same = (some["cpu"] == one["cpu"]) & (some["pid"] == one["pid"])
            same &= (some["flags"] ^ one["flags"]) & INTERRUPT == 0
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

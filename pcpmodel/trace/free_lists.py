# SPDX-License-Identifier: GPL-2.0-only
"""The free lists of a recording, from its first dump to its last: what of them is foreseen."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcpmodel.kernel.releases import Release
from pcpmodel.trace.assumptions import COMPACTED, READ_MEANWHILE
from pcpmodel.trace.buddy_lists import ACT, KINDS, BuddyLists, Walk
from pcpmodel.trace.history import History
from pcpmodel.trace.markers import Markers
from pcpmodel.trace.recording import Recording
from pcpmodel.trace.start import memory_at_start
from pcpmodel.trace.unseen import Search, lists_of, unlike
from pcpmodel.trace.work import WORK_OPS

__all__ = ["follow"]

#: Blocks that are looked into one by one; where more are not foreseen the rules are others.
_MOST = 64


class _Followed:
    """The free lists of one recording; `follow` says what the arguments are."""

    def __init__(self, cap, state, work, markers, resized, touched) -> None:
        events, reader = cap.trace
        self.rows = events.rows
        self.start, self.first = markers.state["before"].begin, markers.state["before"].end
        after = markers.state.get("after")
        seen = cap.snapshot("after") if "after" in cap.tags else None
        if seen is None or seen.free is None or after is None or after.end is None:
            self.seen, self.begin, self.end = None, len(self.rows), len(self.rows)
        else:
            self.seen, self.begin, self.end = seen, after.begin, after.end
        whole = cap.snapshot("before")
        # A zone of which the trace does not tell, and whose lists are as before, is not followed.
        self.dump = replace(whole, zones=[
            z for z in whole.zones if touched(z.start_pfn, z.end_pfn)
            or (self.seen is not None and not _alike(whole.free[z.key], self.seen.free[z.key]))
        ] or whole.zones[:1])  # fmt: skip
        past = work[work["op"] == WORK_OPS["direct_free"]]
        past = past[np.argsort(past["row"], kind="stable")]
        self.acts = np.zeros(len(past), ACT)
        for mine, other in (("row", "row"), ("pfn", "pfn"), ("order", "order"), ("proof", "row")):
            self.acts[mine] = past[other]
        self.acts["kind"] = KINDS["joins"]
        names = {k for k, name in enumerate(reader.comms) if name.startswith("kcompactd")}
        self.history = History(
            self.rows, names, None if self.seen is None else (self.begin, self.seen.free)
        )

        memory = memory_at_start(state, self.dump, cap, resized=resized)
        self.lists = BuddyLists(memory, self.rows, self.history, events.spilled)
        self.lists.run(self.start, self.first, np.empty(0, ACT), True)
        self.search = Search(
            self.lists, self.lists.save(), self.first, self.begin, self.acts, self.history
        )

    def blocks(self) -> None:
        """Up to the last dump."""
        self.lists.run(self.first, self.begin, self.acts)
        if 0 < len(self.lists.unforeseen) <= _MOST:
            self.search.settled()

    def free_lists(self) -> tuple[Collection[Any], list[tuple[int, int, str]]]:
        """Lists that are at no moment of the last dump as it shows them, and `follow`'s *shown*."""
        lists, zones, free = self.lists, self.dump.zones, self.seen.free
        wrong = unlike(lists, lists_of(zones, free))
        walks = {
            (n, what): Walk(lists, n, *what, pfns, (zones[n].key, what) in self.seen.torn)
            for (n, what), pfns in wrong.items()
        }
        at = self.begin
        while wrong and at < self.end:
            for what in wrong:
                walks[what].see(at)
            at += lists.run(at, self.end, self.search.acts, until_moved=True)
            wrong = unlike(lists, wrong)
        read = {what: walks[what].over for what in wrong if walks[what].over is not None}
        shown = [(self.begin - 1, read[what], READ_MEANWHILE) for what in sorted(read)]
        wrong = {what: pfns for what, pfns in wrong.items() if what not in read}
        if wrong and self.history.stints:
            found = self.search.agree(zones, free)
            left = unlike(lists, wrong)
            right = sorted(wrong.keys() - left.keys())
            shown += [(self.begin - 1, found[what], COMPACTED) for what in right]
            lists.run(self.begin, at, self.search.acts)
            wrong = left
        return wrong, shown


def _alike(free, other) -> bool:
    """Whether two dumps of a zone have the same free lists."""
    return free.keys() == other.keys() and all(
        np.array_equal(pfns, other[what]) for what, pfns in free.items()
    )


def follow(
    cap: Recording,
    state: Release,
    work: NDArray[Any],
    markers: Markers,
    resized: bool,
    touched: Callable[[int, int], bool],
) -> tuple[BuddyLists, int, int, list[tuple[int, int, str]], bool]:
    """Foresee every block that a recording's kernel took from its buddy lists.

    Parameters
    ----------
    cap : Recording
        With buddylists.before.
    state : Release
    work : (M,) array of WORK
        What `pcpmodel.trace.replay` found the kernel to have been given.
    markers : Markers
    resized : bool
        The lists' sizes changed on the way.
    touched : callable
        (first page frame, one past the last) -> whether the trace tells of any of these pages.

    Returns
    -------
    BuddyLists
    lists, lists_right : int
        Free lists of the dump ``after``, and how many were the model's at some moment of it, or as
        one reads them who walks them meanwhile.
    shown : list of (int, int, str)
        For each of these that is so only by what happened elsewhere: the last row before the dump,
        the row that shows it, and what it was.
    cut : bool
        What has no line was looked for no further: that had cost what it may.
    """
    mine = _Followed(cap, state, work, markers, resized, touched)
    mine.blocks()
    if mine.seen is None:
        return mine.lists, 0, 0, [], mine.search.cut
    total = sum(len(at) for at in mine.seen.free.values())
    wrong, shown = mine.free_lists()
    return mine.lists, total, total - len(wrong), shown, mine.search.cut

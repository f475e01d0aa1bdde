"""What probes tell, as meta.json says, and which pages an address is of."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import numpy as np

from pcpmodel.trace.ftrace import EVENT_IDS, INTERRUPT, Events
from pcpmodel.trace.recording import Recording

__all__ = ["CONTIG", "first_page", "probed", "tells_bulk"]

#: Which pages vfree() gives back as larger blocks (v7.2).
CONTIG = "free_prepared_contig_range"


def probed(cap: Recording, function: str) -> list[str]:
    """The probes of a function, as meta.json says.

    A recording that is followed without the dumps that it has is followed without its probes too.
    """
    probes = cap.meta.get("probes")
    listed = probes if isinstance(probes, list) and not cap.tags else []
    return [str(p) for p in listed if function in str(p)]


def tells_bulk(cap: Recording) -> bool:
    """Whether probes told of every call of alloc_pages_bulk(), as meta.json says."""
    told = probed(cap, "alloc_pages_bulk")
    return any("nr=" in p for p in told) and any("$retval" in p for p in told)


def first_page(events: Events, followed: list[int]) -> int | None:
    """Where the first struct page is, by `free_prepared_contig_range`; None: nobody knows.

    A probe prints addresses of struct page; the pages were freed by the same task just before.  It
    is what most of them agree on.  *followed*: the events that a follower looks at.
    """
    rows = events.rows
    contigs = np.flatnonzero(events.is_event(CONTIG))
    firsts = []
    for k in contigs[rows["flags"][contigs] & INTERRUPT == 0][:1000].tolist():
        n = int(rows["d"][k])
        before = _own_before(rows, k, n, followed)
        pfn = before["a"].min(initial=1 << 40)
        if (
            len(before) == n > 0
            and (np.ptp(before["a"]) == len(before) - 1)
            and (before["event"] == EVENT_IDS["mm_page_free"]).all()
        ):
            firsts.append(int(rows["a"][k]) - 64 * int(pfn))
    return max(set(firsts), key=firsts.count) & (1 << 64) - 1 if firsts else None


def _own_before(rows: np.ndarray, k: int, n: int, followed: list[int]) -> np.ndarray:
    """Up to *n* lines before row *k* of its task, in no interrupt."""
    reach = 2 * n + 64
    while True:
        start = max(k - reach, 0)
        near = rows[start:k]
        own = (near["pid"] == rows["pid"][k]) & (near["flags"] & INTERRUPT == 0)
        at = np.flatnonzero(own & np.isin(near["event"], followed))[-max(n, 1) :]
        if len(at) >= n or start == 0:
            return near[at]
        reach *= 4

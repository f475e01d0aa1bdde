"""Traces of kernels with ``CONFIG_PREEMPT_RT``, read as those of others.

There the locks of the lists and of a zone may sleep.  Who holds one has migration off, and
preemption on: so many levels of the one show what so many of the other show elsewhere.  Another
task may get the CPU in the midst of a refill or a drain, whose lines stand apart then.  It can take
neither lock (``pcp_spin_trylock()`` fails, a zone's lock is waited for), so what was begun is put
before what came between.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import numpy as np

from pcpmodel.trace.ftrace import DEPTH, EVENT_IDS, INTERRUPT, MIGRATE_SHIFT

__all__ = ["in_one_piece"]

#: Lines that are written under both locks, by what they belong to.
_UNDER_LOCKS = {
    "mm_page_alloc_zone_locked": 1, "mm_page_alloc_extfrag": 1,
    "free_pcppages_bulk": 2, "mm_page_pcpu_drain": 2,
}  # fmt: skip


def in_one_piece(rows: np.ndarray) -> np.ndarray:
    """The rows of a trace with each refill and drain in one piece, and the depth of migration.

    What is moved has the time of its first line; none moves over a marker.
    """
    rows = rows.copy()
    rows["flags"] = rows["flags"] & ~np.uint16(DEPTH) | rows["flags"] >> MIGRATE_SHIFT
    kind = np.zeros(len(rows), np.int8)
    for name, number in _UNDER_LOCKS.items():
        kind[rows["event"] == EVENT_IDS[name]] = number
    place = np.arange(len(rows))
    own = (rows["event"] != EVENT_IDS["sched_switch"]) & (rows["flags"] & INTERRUPT == 0)
    by_task = np.argsort(rows["pid"], kind="stable")
    by_task = by_task[own[by_task]]
    follows = np.zeros(len(rows), bool)  # the line before of its task, with which it is one piece
    before, then = by_task[:-1], by_task[1:]
    marks = np.cumsum(rows["event"] == EVENT_IDS["tracing_mark_write"])
    follows[then] = (
        (kind[then] > 0) & (kind[then] == kind[before])
        & (rows["event"][then] != EVENT_IDS["free_pcppages_bulk"])
        & (rows["pid"][then] == rows["pid"][before]) & (rows["cpu"][then] == rows["cpu"][before])
        & (marks[then] == marks[before])
    )  # fmt: skip
    # The first line of each piece, at the lines of all of it.
    first = np.where(follows[by_task], 0, np.arange(len(by_task)))
    first = by_task[np.maximum.accumulate(first)]
    piece = place.copy()
    piece[by_task] = first
    # Only pieces with a line of somebody else on that CPU between are put together.
    by_cpu = np.argsort(rows["cpu"], kind="stable")
    apart = np.zeros(len(rows), bool)
    apart[by_cpu[1:]] = piece[by_cpu[1:]] != piece[by_cpu[:-1]]
    broken = np.zeros(len(rows), bool)
    broken[piece[follows & apart]] = True
    to = np.where(broken[piece], piece, place)
    rows["time"] = rows["time"][to]
    return rows[np.argsort(to, kind="stable")]

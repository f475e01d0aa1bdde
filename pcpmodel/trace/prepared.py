"""Rows of a trace, before they are followed: what a line of them means depends on others.

Which frees are not for the task that writes them; what probes tell, as meta.json says, and which
pages an address is of.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import numpy as np

from pcpmodel.trace.ftrace import DEPTH, EVENT_IDS, HIDDEN, HIT, INTERRUPT
from pcpmodel.trace.recording import Recording

__all__ = [
    "CONTIG", "first_page", "freed_in_switch", "probed", "switches",
    "taken_on_the_way", "tells_bulk",
]  # fmt: skip

#: Which pages vfree() gives back as larger blocks (v7.2).
CONTIG = "free_prepared_contig_range"
#: What may come of a free that joins a list, or does not.
_OF_A_FREE = [
    EVENT_IDS[name]
    for name in (
        "page_commit", "free_one_page", "free_pcppages_bulk", "mm_page_pcpu_drain",
    )
]  # fmt: skip


def freed_in_switch(rows: np.ndarray) -> np.ndarray:
    """Rows of frees by finish_task_switch(), which are for the task that had the CPU before.

    With its last reference a memory map goes: __mmdrop() frees the page directory with preemption
    off, before the task that gets the CPU goes on where it was stopped, which may be in an
    allocation and on another CPU (every release).  They are followed as the idle task's, and so
    are the drains that they lead to.
    """
    at = np.flatnonzero(rows["event"] == EVENT_IDS["sched_switch"])
    if not len(at):
        return at
    order = np.argsort(rows["cpu"], kind="stable")
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows))
    row = order[np.minimum(place[at] + 1, len(rows) - 1)]
    told = rows.take(row)
    like = (told["event"] == EVENT_IDS["mm_page_free"]) & (told["cpu"] == rows["cpu"][at])
    like &= (told["pid"] == rows["a"][at]) & (row > at)
    like &= told["flags"] & (INTERRUPT | DEPTH) == 1
    found = []
    for k in row[like].tolist():
        end = place[k] + 1
        while end < len(order) and _goes_on(rows[k], rows[order[end]]):
            end += 1
        # What is freed in a batch is the task's own.
        if end == len(order) or rows["event"][order[end]] != EVENT_IDS["mm_page_free_batched"]:
            found += order[place[k] : end].tolist()
    return np.array(found, np.int64)


def switches(rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """(task, row, CPU, line, running) of sched_switch, by task.

    Of who leaves a CPU it is the complement of that CPU, and whether it goes on where it was
    stopped.
    """
    at = np.flatnonzero((rows["event"] == EVENT_IDS["sched_switch"]) | (rows["event"] == HIDDEN))
    told = rows.take(at)
    tasks = np.concatenate([told["c"], told["a"]])
    cpus = told["cpu"].astype(np.int64)
    cpus = np.concatenate([~cpus, cpus])
    lines = np.tile(told["line"], 2)
    order = np.lexsort((lines, tasks))
    order = order[tasks[order] > 0]  # each CPU has an idle task of its own
    running = np.tile(told["b"] > 0, 2)
    return tasks[order], np.tile(at, 2)[order], cpus[order], lines[order], running[order]


def taken_on_the_way(
    rows: np.ndarray, switched: tuple[np.ndarray, ...], first: int, followed: list[int]
) -> list[tuple[int, int, int]]:
    """Pages that their tasks may have taken on another CPU than on that which they tell of it.

    (row of its mm_page_alloc, row with which the task lost the CPU, that CPU): no line told of
    the page before, and since its last line the task was stopped, ready to go on, and moved.
    *followed*: the events that a follower looks at.
    """
    tasks, before, cpus, _, running = switched
    own = (rows["flags"] & INTERRUPT == 0) & np.isin(rows["event"], followed)
    if not len(tasks) or not own.any():
        return []
    about = np.flatnonzero(rows["event"] <= EVENT_IDS["mm_page_alloc_extfrag"])
    new = about[np.unique(rows["a"][about], return_index=True)[1]]
    new = new[(rows["event"][new] == EVENT_IDS["mm_page_alloc"]) & own[new] & (new >= first)]
    new = new[rows["a"][new] >= 0]  # no failed request
    order = np.flatnonzero(own)
    order = order[np.argsort(rows["pid"][order], kind="stable")]
    same = np.r_[False, rows["pid"][order[1:]] == rows["pid"][order[:-1]]]
    last = np.full(len(rows), -1)  # the line before of the same task
    last[order[same]] = order[np.flatnonzero(same) - 1]
    key = tasks << 32 | before
    at = np.searchsorted(key, rows["pid"][new].astype(np.int64) << 32 | new, side="right") - 1
    some = (at > 0) & (tasks[at] == rows["pid"][new]) & (before[at] > last[new])
    found = []
    for row, k in zip(new[some].tolist(), at[some].tolist(), strict=True):
        cpu = int(rows["cpu"][row])
        seen = {cpu}
        while k > 0 and tasks[k - 1] == tasks[k] and cpus[k] >= 0 and before[k - 1] > last[row]:
            left = int(~cpus[k - 1])
            if left < 0 or not running[k - 1]:
                break
            if left not in seen:
                found.append((row, int(before[k - 1]), left))
                seen.add(left)
            k -= 2
    return found


def _goes_on(free: np.void, row: np.void) -> bool:
    """Whether the next line of a CPU is another free like *free*, or one of what that leads to."""
    if row["cpu"] != free["cpu"] or row["pid"] != free["pid"]:
        return False
    if row["event"] % HIT in _OF_A_FREE:  # a probe without a pageset's fields is a hit
        return row["flags"] & INTERRUPT == free["flags"] & INTERRUPT
    same = INTERRUPT | DEPTH
    return row["event"] == free["event"] and row["flags"] & same == free["flags"] & same


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


def first_page(rows: np.ndarray, followed: list[int]) -> int | None:
    """Where the first struct page is, by `free_prepared_contig_range`; None: nobody knows.

    A probe prints addresses of struct page; the pages were freed by the same task just before.  It
    is what most of them agree on.  *followed*: the events that a follower looks at.
    """
    contigs = np.flatnonzero(rows["event"] == EVENT_IDS[CONTIG])
    if not len(contigs):
        return None
    own = np.flatnonzero((rows["flags"] & INTERRUPT == 0) & np.isin(rows["event"], followed))
    own = own[np.argsort(rows["pid"][own], kind="stable")]
    place = np.zeros(len(rows), np.int64)
    place[own] = np.arange(len(own))
    firsts = []
    for k in contigs[rows["flags"][contigs] & INTERRUPT == 0][:1000].tolist():
        before = rows[own[max(place[k] - rows["d"][k], 0) : place[k]]]
        pfn = before["a"].min(initial=1 << 40)
        if (
            len(before) == rows["d"][k]
            and (np.ptp(before["a"]) == len(before) - 1)
            and (before["event"] == EVENT_IDS["mm_page_free"]).all()
        ):
            firsts.append(int(rows["a"][k]) - 64 * int(pfn))
    return max(set(firsts), key=firsts.count) & (1 << 64) - 1 if firsts else None

"""How many pages /proc/zoneinfo says that lists hold, and at which row that was.

It is read in a few microseconds, between two markers, while other CPUs work.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcpmodel.kernel.lists import PCP_ORDERS
from pcpmodel.trace.ftrace import DEPTH, EVENT_IDS
from pcpmodel.trace.recording import Snapshot

__all__ = ["AMID", "counts_amid", "counts_at_start"]

#: What an event does to a count.
_SIGNS = {
    EVENT_IDS["mm_page_alloc"]: -1,
    EVENT_IDS["mm_page_free"]: 1,
    EVENT_IDS["mm_page_alloc_zone_locked"]: 1,
    EVENT_IDS["mm_page_pcpu_drain"]: -1,
}
_FREE, _BATCHED = EVENT_IDS["mm_page_free"], EVENT_IDS["mm_page_free_batched"]
_REFILL, _ALLOC = EVENT_IDS["mm_page_alloc_zone_locked"], EVENT_IDS["mm_page_alloc"]
_SWITCH = EVENT_IDS["sched_switch"]
#: Lines amid a refill or a drain.
AMID = (EVENT_IDS["mm_page_pcpu_drain"], _REFILL)
#: Rows among which what was under way begins and ends.
_NEAR = 1024
#: ... and in which a task that waits for a CPU gets one; so many of these are thought of.
_LONG, _WAITING = 1 << 16, 4


def counts_at_start(
    rows: np.ndarray, begin: int, end: int, snapshot: Snapshot
) -> dict[tuple[int, str, int], list[int]]:
    """Pages that the lists may have held at the end of a snapshot.

    Its counts were read at some moment of it; whatever came between that and the end is in the
    trace, though not at which of the events it was read.
    """
    since: dict[tuple[int, str, int], list[int]] = {}
    for row in rows[begin:end][::-1]:
        sign, order = _SIGNS.get(int(row["event"]), 0), int(row["b"])
        if not sign or order not in PCP_ORDERS:
            continue
        for zone in snapshot.zones:
            if zone.start_pfn <= row["a"] < zone.end_pfn:
                sums = since.setdefault((*zone.key, int(row["cpu"])), [0])
                sums.append(sums[-1] + (sign << order))
    return {
        key: sorted({snapshot.pcps[key].count + n for n in sums})
        for key, sums in since.items()
        if key in snapshot.pcps
    }


def counts_amid(
    rows: np.ndarray, begin: int, end: int, snapshot: Snapshot
) -> dict[tuple[int, str, int], list[int]]:
    """`counts_at_start` for lists that are followed: what they hold at the end, by their lines.

    A line comes after a page was taken, and before one joins a list or a refill is counted, so
    that what a task was at when the count was read is not in both.  That is a task that has the
    CPU, or had it before whoever read.  Amid a refill or a drain nothing is known.
    """
    reader = int(rows["cpu"][begin])
    first = max(begin - _NEAR, 0)
    near = rows[first : end + _NEAR]
    found: dict[tuple[int, str, int], list[int]] = {}
    for cpu in sorted({key[2] for key in snapshot.pcps}):
        if cpu != reader and _amid(rows, end, cpu):
            continue
        own, stopped = near["cpu"] == cpu, -1
        if cpu == reader:
            before = near[: begin - first]
            tasks = before["pid"][(before["cpu"] == cpu) & (before["pid"] != rows["pid"][begin])]
            stopped = int(tasks[-1]) if len(tasks) else -1
            late = np.arange(len(near)) >= end - first
            own = (own & ~late) | (late & (near["pid"] == stopped))
        at = np.flatnonzero(own)
        acts = _acts(near[at], _refilled_before(rows, first, near[at[:1]]), cpu == reader)
        waiting = _taken_by_waiting(rows, first, begin, cpu, stopped)
        i0, i1 = np.searchsorted(at, [begin - first, end - first]) - 1
        for zone in snapshot.zones:
            key = (*zone.key, cpu)
            if key in snapshot.pcps:
                mine = [act for act in acts if zone.start_pfn <= act.page < zone.end_pfn]
                differ = {
                    n for k in range(int(i0), int(i1) + 1) for n in _not_in_both(mine, k, int(i1))
                }
                for page, pages in waiting:
                    if zone.start_pfn <= page < zone.end_pfn:
                        differ |= {n + pages for n in differ or {0}}
                found[key] = sorted(snapshot.pcps[key].count + n for n in differ or {0})
    return found


class _Act(NamedTuple):
    """What a line tells of: *pages* more, or fewer, some time between two lines.

    A refill is one: rmqueue_bulk() tells of its blocks, and they are counted once it is over.
    """

    line: int
    since: int
    by: int
    page: int
    pages: int


def _acts(own: np.ndarray, refilled: int, reads: bool) -> list[_Act]:
    """Of lines of a CPU, and of the task that was stopped there, in order.

    *refilled*: blocks of a refill, of which they begin with others; *reads*: it is the CPU at which
    the count was read, where that comes after what was freed with preemption off.
    """
    pids, pages = own["pid"].tolist(), own["a"].tolist()
    events, orders, types = own["event"].tolist(), own["b"].tolist(), own["c"].tolist()
    flags = own["flags"].tolist()
    then = [len(own)] * len(own)  # the task's next line
    before = [-1] * len(own)
    last: dict[int, int] = {}
    for k, pid in enumerate(pids):
        before[k] = last.get(pid, -1)
        if before[k] >= 0:
            then[before[k]] = k
        last[pid] = k

    def same_refill(k: int, other: int) -> bool:
        return 0 <= other < len(own) and (events[other], orders[other], types[other]) == (
            events[k], orders[k], types[k],
        )  # fmt: skip

    # Of a batch, each page joins with a line of its own.
    batched = {(pids[k], pages[k]): k for k in range(len(own)) if events[k] == _BATCHED}
    blocks = [1] * len(own)
    begun = list(range(len(own)))
    found = []
    for k, event in enumerate(events):
        sign = 1 if event == _BATCHED else _SIGNS.get(event, 0)
        later = event == _FREE and batched.get((pids[k], pages[k]), k) > k
        if not sign or later or orders[k] not in PCP_ORDERS:
            continue
        if event == _REFILL:
            if same_refill(k, before[k]):
                blocks[k], begun[k] = blocks[before[k]] + 1, begun[before[k]]
            elif k == 0:
                blocks[k] += refilled
            if same_refill(k, then[k]):
                continue
        since, by = (before[k], k) if sign < 0 else (k, then[k])
        if reads and event == _FREE and flags[k] & DEPTH:
            by = k
        found.append(_Act(begun[k], since, by, pages[k], sign * blocks[k] << orders[k]))
    return found


def _refilled_before(rows: np.ndarray, first: int, begins: np.ndarray) -> int:
    """Blocks of a refill before row *first* that its CPU's lines begin amid."""
    blocks = 0
    if len(begins) == 0 or begins["event"][0] != _REFILL:
        return blocks
    for end in range(first, 0, -_NEAR):
        part = rows[max(end - _NEAR, 0) : end]
        own = part[(part["cpu"] == begins["cpu"][0]) & (part["pid"] == begins["pid"][0])]
        others = np.ones(len(own), bool)
        for column in ("event", "b", "c"):
            others &= own[column] == begins[column][0]
        others = np.flatnonzero(~others)
        blocks += len(own) - (int(others[-1]) + 1 if len(others) else 0)
        if len(others):
            break
    return blocks


def _not_in_both(acts: list[_Act], k: int, end: int) -> set[int]:
    """By how much lines up to *end* may exceed what had been done after line *k*."""
    known = sum(act.pages for act in acts if act.line <= end)
    known -= sum(act.pages for act in acts if act.by <= k)
    found = {known}
    for act in acts:
        if act.since <= k < act.by:
            found |= {n - act.pages for n in found}
    return found


def _taken_by_waiting(
    rows: np.ndarray, first: int, begin: int, cpu: int, stopped: int
) -> list[tuple[int, int]]:
    """Page and pages of what tasks that wait for this CPU tell of with their next line.

    Who lost the CPU and still runs may have been stopped after it took them.
    """
    past = rows[first:begin]
    switched = past[(past["event"] == _SWITCH) & (past["cpu"] == cpu)]
    waiting: dict[int, None] = {}
    for lost, gets, runs in zip(*(switched[k].tolist() for k in "cab"), strict=True):
        waiting.pop(gets, None)
        if runs and lost > 0:
            waiting[lost] = None
    found = []
    then = rows[begin : begin + _LONG]
    for task in waiting:
        own = np.flatnonzero(then["pid"] == task)
        if task != stopped and len(own) and then["event"][own[0]] == _ALLOC:
            row = then[own[0]]
            if int(row["b"]) in PCP_ORDERS:
                found.append((int(row["a"]), 1 << int(row["b"])))
    return found[:_WAITING]


def _amid(rows: np.ndarray, end: int, cpu: int) -> bool:
    """Whether a refill or a drain goes on, or begins, which may have changed high before."""
    then = rows[end : end + _NEAR]
    own = then["event"][then["cpu"] == cpu]
    return len(own) > 0 and int(own[0]) in AMID

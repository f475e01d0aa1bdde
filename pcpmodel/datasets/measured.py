"""Does a batch latency table say how long holds of the zone lock take, or nothing at all?

A tool with too coarse a clock, a wrong unit or a batch that was never changed print numbers
too.  They are known by what must be so on every machine, not by a list of tools:

* **Time per page.**  In the five tables of Huang Ying's mail of 2023-09-20 (``data/hardware``)
  the mean hold takes 19.2 to 56.0 ns a page, at 63 pages at most 3.53 us.  From there a factor
  of `FACTOR` is allowed, the square root of 1000: the middle between a right table and one in
  the next unit (ns, us, ms).  rmqueue_bulk() of an EPYC 7W83 guest, its wait for the lock
  included, had at least 223 ns a page (linux-mm, msg395237).
* **A tail.**  One hold in a hundred takes the 99th percentile or longer, so that the mean is at
  least a hundredth of it (Markov's inequality).
* **Growth.**  Every page costs something, so the mean rises with the batch: over a range of 8
  and more that ends at 504 pages (63 << 3) or more, and counting batches from 1/32 of the largest
  on, at least as batch^0.05.  With 3 us for each hold of the tracer's own and 3 ns a page, less
  than any machine has, it would still be batch^0.11.  Below that a fixed cost may hide it.  A
  99th percentile that is the same to 1 % at every batch, while the mean at least doubles, is one
  bucket of a histogram.
* **Waits.**  A wait for a lock ends with a cache line's way from another CPU, tens of ns, and a CPU
  that spins for a tenth of a second is one that the kernel reports as stuck.  A mean outside of
  `WAIT_US` is of another unit.  The longest wait is no shorter than the mean and no longer than
  the sum.
* **Place.**  Where the table comes with intervals, two rows at least must say where a figure is
  to a factor of `FACTOR`; the least hold allowed and the mean bound it from below.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "COST_UNITS",
    "FACTOR",
    "KERNEL_FUNCTIONS",
    "Doubt",
    "command",
    "cost_doubt",
    "doubts",
    "wait_doubt",
]

#: Between the published tables and the next unit.
FACTOR = math.sqrt(1000)
#: Mean of one hold over its pages in the published tables: least and largest [ns].
NS_PER_PAGE = (19.2, 56.0)
#: Largest mean of a hold of the smallest published batch, 63 pages [us].
SMALLEST_HOLD_US = 3.53
#: Side of a table -> the kernel's function of that side, or how its name begins.
KERNEL_FUNCTIONS = {"free": "free_pcppages_bulk", "alloc": "rmqueue_bulk"}

#: Rows that a cost sheet may have, those that runs take and what is measured beside them, and the
#: unit of each.
COST_UNITS = dict.fromkeys(
    (
        "line_l2", "line_ahead", "line_beside", "line_llc", "line_dirty", "line_memory", "handover",
        "hold_fixed", "hold_block", "hold_page_alloc", "hold_page_free", "tracer", "lru_hold",
        "lru_page", "fault_entry", "clear_page", "clear_page_all", "mmap_lock", "page_counter",
        "trace_event_alloc", "trace_event_free",
    ),
    "ns",
) | {
    "zone_lines": "1",
    "lru_lines": "1",
    "clear_rate": "pages/s",
    "smt_share": "1",
    "lines_at_once": "1",
}  # fmt: skip
#: Rows of a cost sheet that are a share of a whole.
COST_SHARES = ("smt_share",)

#: Least and largest mean of waits for a lock [us].
WAIT_US = (0.01, 1e5)

# Batches of which growth can be told from noise and a fixed cost.
_WIDE_RANGE, _LARGE_BATCH, _NEAR_LARGEST = 8, 504, 32
_LEAST_GROWTH = 0.05  # exponent of batch
_SAME = 1.01
_ROUNDING_US = 0.01  # tables are printed to this
_WHAT = {"avg": "mean", "p99": "99th percentile"}


@dataclass(frozen=True)
class Doubt:
    """Why a figure is no measurement.

    Attributes
    ----------
    message : str
        What was given, and what every machine has.
    side : str
        ``free`` or ``alloc``.
    column : str
        Column of the table.
    row : int or None
        Row of the table, from 0; None: the whole column.
    """

    message: str
    side: str
    column: str
    row: int | None = None


def doubts(
    table: Mapping[str, Sequence[float]],
    interval: Mapping[str, Sequence[float]] | None = None,
    unit: str | None = None,
) -> list[Doubt]:
    """Say what makes a batch latency table none.

    Parameters
    ----------
    table : mapping
        Columns of ``batch_latency.csv``: batch [pages], rising, and
        ``{free,alloc}_latency_{avg,p99}_us`` [us], each above 0.
    interval : mapping, optional
        Columns of ``batch_latency_interval.csv`` for the same batches.
    unit : {"ns", "us", "ms"}, optional
        What ``--unit`` said of them: another one is what helps if that is wrong.

    Returns
    -------
    list of Doubt
        At most one for each side; empty: a measurement.
    """
    found = (next(_doubts(side, table, interval, unit), None) for side in KERNEL_FUNCTIONS)
    return [doubt for doubt in found if doubt is not None]


def cost_doubt(operation: str, unit: str, high: float) -> tuple[str, str] | None:
    """What is wrong with a row of a cost sheet, and its column.

    Parameters
    ----------
    operation, unit : str
        Of the row.
    high : float
        High end of its value.
    """
    if operation not in COST_UNITS:  # no run would take it, but the class's value
        return f"given {operation!r}; allowed: {', '.join(sorted(COST_UNITS))}", "operation"
    wanted = COST_UNITS[operation]
    if unit != wanted:
        return f"given {unit!r}; allowed: {wanted!r}, in which {operation} is counted", "unit"
    if operation in COST_SHARES and high > 1:
        return f"given {high:g}; allowed: at most 1, as {operation} is a share", "high"
    return None


def _doubts(
    side: str,
    table: Mapping[str, Sequence[float]],
    interval: Mapping[str, Sequence[float]] | None,
    unit: str | None,
) -> Iterator[Doubt]:
    batch = table["batch"]
    avg, p99 = (table[f"{side}_latency_{what}_us"] for what in _WHAT)
    least = [NS_PER_PAGE[0] / FACTOR * n / 1e3 for n in batch]  # us

    def doubt(what: str, message: str, row: int | None = None) -> Doubt:
        return Doubt(message, side, f"{side}_latency_{what}_us", row)

    ends = {}
    if interval is not None:
        for what in _WHAT:
            ends[what] = [interval[f"{side}_latency_{what}_{end}_us"] for end in ("low", "high")]
        for what, floors in (("avg", least), ("p99", avg)):
            low, high = ends[what]
            known = [h <= FACTOR * max(a, f) for a, h, f in zip(low, high, floors, strict=True)]
            if sum(known) < 2:
                row = known.index(False)
                yield doubt(
                    what,
                    f"the {_WHAT[what]} is not measured: it is anywhere from {low[row]:g} to "
                    f"{high[row]:g} us, and no better known at any other batch"
                    f"{' but one' if any(known) else ''}",
                    row,
                )
    for row, (n, mean) in enumerate(zip(batch, avg, strict=True)):
        most = FACTOR * max(SMALLEST_HOLD_US, NS_PER_PAGE[1] * n / 1e3)
        if not least[row] <= mean <= most:
            low, high = NS_PER_PAGE
            long = mean > most
            yield doubt(
                "avg",
                f"given a mean of {mean:g} us for {n} pages, {1e3 * mean / n:,.1f} ns a page; "
                f"measured machines take {low:g} to {high:g} ns, allowed here are {least[row]:.2g} "
                f"to {most:.4g} us{_in_another(unit, long)}",
                row,
            )
    for row, (mean, tail) in enumerate(zip(avg, p99, strict=True)):
        if ends:
            mean, tail = ends["avg"][1][row], ends["p99"][0][row]
        if tail > 100 * (mean + _ROUNDING_US):
            yield doubt(
                "p99",
                f"given a 99th percentile of {tail:g} us, and a mean of {mean:g} us; one hold in "
                f"100 takes that long, so that the mean is {tail / 100:g} us or more",
                row,
            )
    if batch[-1] >= max(_WIDE_RANGE * batch[0], _LARGE_BATCH):
        rows = [row for row, n in enumerate(batch) if _NEAR_LARGEST * (n + 1) >= batch[-1]]
        if _exponent([batch[r] for r in rows], [avg[r] for r in rows]) < _LEAST_GROWTH:
            yield doubt(
                "avg",
                f"the mean does not grow with the batch: {avg[0]:g} us for {batch[0]} pages, "
                f"{avg[-1]:g} us for {batch[-1]}; the batch was not set anew before each run, or "
                "one run stands for several",
            )
    if max(p99) <= _SAME * min(p99) and avg[-1] >= 2 * avg[0]:
        yield doubt(
            "p99",
            f"the 99th percentile is {p99[0]:g} us at every batch, while the mean goes from "
            f"{avg[0]:g} to {avg[-1]:g} us: one bucket of a histogram, no measurement",
        )


def wait_doubt(waits: int, total_us: float, max_us: float | None) -> str | None:
    """Say what makes a sum of waits for a lock none; None: a measurement.

    Parameters
    ----------
    waits : int
        How many, 1 or more.
    total_us, max_us : float
        Sum and longest [us]; None: not known.
    """
    mean = total_us / waits
    low, high = WAIT_US
    if not low <= mean <= high:
        return (
            f"given a mean wait of {mean:g} us; allowed are {low:g} to {high:g} us. If they are "
            f"{'nano' if mean > high else 'milli'}seconds, "
            f"{'divide' if mean > high else 'multiply'} by 1000"
        )
    if max_us is not None and not 0.98 * mean <= max_us <= 1.02 * total_us:
        return f"given {waits} waits of {mean:g} us in the mean and a longest of {max_us:g} us"
    return None


def _in_another(unit: str | None, long: bool) -> str:
    """What may be wrong with the unit of a time that is too long, or too short."""
    if unit is None:
        many, do = ("nano", "divide") if long else ("milli", "multiply")
        return f". If they are {many}seconds, {do} by 1000"
    units = ("ns", "us", "ms")
    other = units.index(unit) + (-1 if long else 1)
    return f". If they are {units[other]}, give --unit {units[other]}" * (0 <= other < 3)


def _exponent(batch: Sequence[float], time: Sequence[float]) -> float:
    """Slope of log time over log batch, by least squares."""
    x, y = ([math.log(value) for value in values] for values in (batch, time))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    square = sum((a - mean_x) ** 2 for a in x) or 1.0  # one batch: 0
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / square


def command(function: str, tool: str | None = None) -> str:
    """Return the command that measures the holds of a kernel function in nanoseconds.

    Parameters
    ----------
    function : str
        Name of the function.
    tool : str, optional
        What measured before: bpftrace or function_graph; for any other, funclatency.
    """
    if "bpftrace" in (tool or ""):
        return (
            f"bpftrace -e 'kprobe:{function} {{ @start[tid] = nsecs; }} kretprobe:{function} "
            "/@start[tid]/ { @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }'"
        )
    if "function_graph" in (tool or ""):
        return f"trace-cmd record -p function_graph -l {function} sleep 10"
    return f"funclatency -d 10 {function}"

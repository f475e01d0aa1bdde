"""A machine without a latency table: its holds from its cost sheet, or from machines like it.

Both become a table of the form that is measured, with intervals as wide as what is known allows, so
that whatever takes a machine takes this one.  How far one machine is from another is read off the
machines that were measured: the ratio of their fitted holds, pair by pair.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcpmodel.datasets.packages import INTERVAL_RESOURCE, LATENCY_RESOURCE
from pcpmodel.datasets.schema import Table
from pcpmodel.errors import InputError
from pcpmodel.hardware.costs import Known
from pcpmodel.hardware.hold_time import COLUMNS, SIDES, HoldTime

__all__ = ["COLD_LINES", "HOLD_ROWS", "class_holds", "of_class", "of_sheet"]

#: Pages of a hold in the rows that are made.
BATCHES = np.array([63 << k for k in range(6)])
#: Side of a hold -> row of the sheet with what a page of it takes.
PAGE_ROWS = {"refill": "hold_page_alloc", "drain": "hold_page_free"}
#: Rows that holds follow from.
HOLD_ROWS = ("hold_fixed", *PAGE_ROWS.values())
_FEWEST = 2  # machines that tell how far one is from another


#: Lines of struct pages that a hold waits for, per block of pages that are in no cache: that of the
#: block itself.  The interval is what is counted for pages freed on another CPU (AF_UNIX under
#: v6.6, `pcpmodel.simulation.pilot`), without and with the neighbours in the free lists.
COLD_LINES = Known(1.0, 0.78, 1.48, "the block's own; AF_UNIX's counts")


def of_sheet(costs: Table, measured: Sequence[HoldTime]) -> tuple[Table, Table]:
    """Latency table and intervals from a cost sheet.

    Parameters
    ----------
    costs : Table
        ``costs.csv``; needs the `HOLD_ROWS`.
    measured : sequence of HoldTime
        Their 99th percentiles, as multiples of the mean, are taken over.

    Raises
    ------
    InputError
        If a row is missing, or no machine was measured.
    """
    found = {row["operation"]: row for row in costs.records() if not row["distance"]}
    for name in HOLD_ROWS:
        if name not in found:
            raise InputError(
                f"has no {name}: measure it as root (pcpmodel measure), or name a machine that it "
                "is like",
                file=costs.path,
            )
        if found[name]["unit"] != "ns" or (name != "hold_fixed" and not found[name]["low"] > 0):
            raise InputError(
                f"{name} is {found[name]['low']} to {found[name]['high']} {found[name]['unit']}; "
                "allowed: above 0 ns",
                file=costs.path,
            )
    if not measured:
        raise InputError("no machine was measured; 99th percentiles are theirs", file=costs.path)

    def mean_ns(side: str, end: str) -> NDArray[np.float64]:
        return found["hold_fixed"][end] + BATCHES * found[PAGE_ROWS[side]][end]

    value, low, high = {}, {}, {}
    for side in SIDES:
        ratios = np.array([_fits(m, side, "p99") / _fits(m, side, "mean") for m in measured])
        for end, into, ratio in (
            ("value", value, np.median(ratios, axis=0)),
            ("low", low, ratios.min(axis=0)),
            ("high", high, ratios.max(axis=0)),
        ):
            into[side, "mean"] = mean_ns(side, end)
            into[side, "p99"] = mean_ns(side, end) * ratio
    return _tables(costs.path, value, low, high)


def of_class(
    path: Path, alike: Sequence[HoldTime], measured: Sequence[HoldTime]
) -> tuple[Table, Table, float]:
    """Latency table and intervals of a machine that is like others.

    Parameters
    ----------
    path : Path
        For the messages.
    alike : sequence of HoldTime
        Their geometric mean is taken.
    measured : sequence of HoldTime
        How far these are from each other is the interval.

    Returns
    -------
    tuple of (Table, Table, float)
        The tables, and the ratio of two machines' holds (root mean square, all columns).
    """
    if len(measured) < _FEWEST:
        raise InputError(
            f"{len(measured)} machines were measured; how far one is from another takes {_FEWEST}",
            file=path,
        )
    value, low, high, apart = {}, {}, {}, []
    for side, statistic in COLUMNS:
        logs = [np.log(_fits(m, side, statistic)) for m in measured]
        squares = np.concatenate([(a - b) ** 2 for a, b in combinations(logs, 2)])
        apart.append(squares)
        at = np.exp(np.mean([np.log(_fits(m, side, statistic)) for m in alike], axis=0))
        # Evenly over the log between the two ends, which has this standard deviation.
        factor = math.exp(math.sqrt(3 * squares.mean()))
        value[side, statistic] = at
        low[side, statistic], high[side, statistic] = at / factor, at * factor
    return (
        *_tables(path, value, low, high),
        math.exp(math.sqrt(float(np.concatenate(apart).mean()))),
    )


def class_holds(measured: Sequence[HoldTime]) -> dict[str, tuple[float, float, float]]:
    """`HOLD_ROWS` of a machine of which nothing is known [ns]: median, least, largest."""
    rows: dict[str, list[float]] = {name: [] for name in HOLD_ROWS}
    for holds in measured:
        for side in SIDES:
            at = _fits(holds, side, "mean")
            rows[PAGE_ROWS[side]].append(float((at[-1] - at[0]) / (BATCHES[-1] - BATCHES[0])))
            chosen = holds.curves[side, "mean"].chosen
            rows["hold_fixed"].append(max(chosen.a_ns, 0.0))
    return {name: (float(np.median(v)), min(v), max(v)) for name, v in rows.items()}


def _fits(holds: HoldTime, side: str, statistic: str) -> NDArray[np.float64]:
    return holds.curves[side, statistic].fits_ns(BATCHES)[0]


def _tables(
    path: Path, *ends: Mapping[tuple[str, str], NDArray[np.float64]]
) -> tuple[Table, Table]:
    """The two tables from value, low and high [ns]."""
    value, low, high = ends
    latency: dict[str, Any] = {"batch": BATCHES.tolist()}
    interval: dict[str, Any] = {"batch": BATCHES.tolist()}
    for key, column in COLUMNS.items():
        latency[column] = (value[key] / 1e3).tolist()
        for end, of in (("low", low), ("high", high)):
            interval[column.replace("_us", f"_{end}_us")] = (of[key] / 1e3).tolist()
    return tuple(
        Table(
            path,
            resource["schema"],
            {
                field["name"]: columns.get(field["name"], [None] * len(BATCHES))
                for field in resource["schema"]["fields"]
            },
            [],
            [],
        )
        for resource, columns in ((LATENCY_RESOURCE, latency), (INTERVAL_RESOURCE, interval))
    )

"""What a page of a hold takes where its line is, against where the lines were that `measure` saw.

A hold of the zone lock writes the line of each page that it moves, and a drain looks at the line of
the page's buddy as well.  `pcpmodel.simulation.pilot` says where these lines are under a load;
``costs.csv`` what a line takes from there.  `measure` has a page of its own load, pages handed
over; one of another takes as much more or less as its lines do (`shifted`).  Nothing is fitted.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pcpmodel.files import digest_of
from pcpmodel.hardware.hold_time import COLUMNS
from pcpmodel.hardware.lines import LINE_PLACES
from pcpmodel.hardware.machines import Machine
from pcpmodel.simulation.pilot import pilot
from pcpmodel.simulation.spec import RunSpec

__all__ = ["LINE_ROWS", "Places", "at_random", "page_lines", "random_buddies", "shifted"]

#: Where a line is -> the row of the cost sheet that says what a load of it takes.  One in the
#: CPU's own cache is taken as one of its second level.
LINE_ROWS = dict(
    zip(
        LINE_PLACES,
        ("line_l2", "line_ahead", "line_ahead", "line_llc", "line_dirty", "line_memory"),
        strict=True,
    )
)
#: Lines per page that a hold moved, by side (refill, drain) and place.
Places = Mapping[str, Mapping[str, float]]
#: Lines of a page that its first touch writes: the struct page's and the page's own.
_TOUCHED = 1 + 64
#: Lines that unmapping a page writes or reads, its own and, in the drain, its buddy's.
_UNMAPPED = 2
_BYTES = 64


def page_lines(spec: RunSpec) -> Places | None:
    """Where the lines are that holds of a run write; None: it has no holds.

    Parameters
    ----------
    spec : RunSpec
        Its host has the caches.
    """
    found = pilot(spec)
    if not found.refill_blocks or not found.drain_blocks:
        return None
    return {side: found.places(side) for side in ("refill", "drain")}


def random_buddies(pages: int, l2_kib: float, llc_kib: float) -> dict[str, float]:
    """Where a page's buddy is when a region that was touched at random is unmapped.

    Pages are allocated in order of their numbers and freed at random, where the program of a
    simulated load frees them in order.  A buddy's line was written last when it was unmapped, if
    it was, else when it was touched; by the rule of `pcpmodel.hardware.lines.PageLines` it is where
    as many other lines have followed it.

    Parameters
    ----------
    pages : int
        Of the region, 2 or more.
    l2_kib, llc_kib : float
        Private cache, and the CPU's share of the last-level cache [KiB].

    Returns
    -------
    dict
        Place -> share of the pages.
    """
    pages -= pages % 2
    when = np.random.default_rng(1).permutation(pages)
    buddy = np.arange(pages) ^ 1
    since = when - when[buddy]
    age = np.where(since > 0, _UNMAPPED * since, _TOUCHED * (pages - buddy) + _UNMAPPED * when)
    own, both = (int(1024 * kib) // _BYTES for kib in (l2_kib, l2_kib + llc_kib))
    return {
        "own": float((age <= own).mean()),
        "llc": float(((age > own) & (age <= both)).mean()),
        "memory": float((age > both).mean()),
    }


def at_random(places: Places, buddies: Mapping[str, float]) -> Places:
    """Where the lines are if pages are freed at random: none comes ahead of its turn.

    What would have come ahead in order is in the last-level cache; the buddies are where they are.
    """
    ahead = min(places["drain"]["ahead"] + places["drain"]["beside"], 1.0)
    drain = {**buddies, "own": buddies["own"] + 1 - ahead, "llc": buddies["llc"] + ahead}
    return {**places, "drain": drain}


def _ns(places: Mapping[str, float], costs: Mapping[str, float]) -> float:
    return sum(lines * costs[LINE_ROWS[place]] for place, lines in places.items())


def shifted(
    machine: Machine, measured: Places, here: Places, costs: Mapping[str, float]
) -> Machine:
    """Give the machine holds whose lines are elsewhere.

    Parameters
    ----------
    machine : Machine
        Its table is of a load whose lines were ``measured``.
    measured, here : Places
        There, and in the load that is asked about.
    costs : mapping of str to float
        ``costs.csv`` by operation [ns], with all `LINE_ROWS`.

    Returns
    -------
    Machine
        A page of it takes as much more as its lines do, but no less than lines in the CPU's own
        cache would; its 99th percentiles stay the same multiples of the mean.
    """
    as_measured = replace(machine, times=1.0)  # what takes longer it does with other holds, too
    table = as_measured.latency.copy()
    interval = as_measured.latency_interval
    interval = None if interval is None else interval.copy()
    batch = table["batch"].to_numpy(dtype=float)
    for side in ("refill", "drain"):
        more = _ns(here[side], costs) - _ns(measured[side], costs)
        least = sum(here[side].values()) * costs[LINE_ROWS["own"]]
        mean = table[COLUMNS[side, "mean"]].to_numpy(dtype=float)
        ratio = np.maximum(mean + batch * more / 1e3, batch * least / 1e3) / mean
        for statistic in ("mean", "p99"):
            column = COLUMNS[side, statistic]
            table[column] *= ratio
            for end in ("low", "high") if interval is not None else ():
                interval[column.replace("_us", f"_{end}_us")] *= ratio
    digest = digest_of(machine.digest, measured, here, [costs[row] for row in LINE_ROWS.values()])
    return replace(machine, measured=table, measured_interval=interval, digest=digest)

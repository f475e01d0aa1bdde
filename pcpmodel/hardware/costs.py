"""A machine's cost sheet: what its operations take, each with its interval and its origin.

``data/hardware/<machine>/costs.csv`` has the rows; what a sheet lacks comes from the machines of
its class (``kind`` of the platform: server, desktop, virtual), with an interval over all of
theirs, and is called assumed.  Everything that takes time in a simulation beside the holds of a
latency table is a row: set one to 0 (`pcpmodel.hardware.machines.Machine.with_costs`) and it takes
none.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pcpmodel.datasets.measured import COST_UNITS
from pcpmodel.errors import InputError, unknown_name

__all__ = [
    "OPERATIONS",
    "Known",
    "Operation",
    "Sheet",
    "class_rows",
    "rows_of",
    "scale_of",
    "table_rows",
]

#: Distances between two CPUs, or to memory: the nearest that the two share; "node": neither.
DISTANCES = ("core", "llc", "socket", "node")


class Known(NamedTuple):
    """A figure with its 95 % interval, and where it is from."""

    value: float
    low: float
    high: float
    source: str
    origin: str = "assumed"

    @property
    def log_sd(self) -> float:
        """Standard error of its logarithm."""
        return math.log(self.high / self.low) / (2 * 1.96)

    def at(self, end: str) -> float:
        """``value``, ``low`` or ``high``."""
        return float(getattr(self, end))


class Operation(NamedTuple):
    """A row of every sheet.

    Attributes
    ----------
    distances : tuple of str
        For each of which there is a row; empty: one row without.
    what : str
    late : bool
        It grows with the latency of lines that are not at hand: what is varied together where an
        interval of a prediction is asked for.
    """

    distances: tuple[str, ...]
    what: str
    late: bool = False


#: Rows that a simulation takes, of those that a sheet may have (`COST_UNITS`, with their units).
OPERATIONS: Mapping[str, Operation] = {
    "line_beside": Operation((), "a line beside one at hand, as a drain waits for it", True),
    "line_llc": Operation((), "a line in the last-level cache, as a hold waits for it", True),
    "line_dirty": Operation(DISTANCES, "a line in another CPU's cache, so far away", True),
    "line_memory": Operation((), "a line in memory, as a hold waits for it", True),
    "handover": Operation(DISTANCES, "a lock handed to a CPU that waits", True),
    "zone_lines": Operation((), "lines of the zone that a hold begins with: list, counters"),
    "hold_fixed": Operation((), "a hold of the zone lock without its pages, as traced"),
    "hold_block": Operation((), "a hold of the zone lock for a block past the lists"),
    "tracer": Operation((), "of a traced hold, what the tracer itself takes"),
    "hold_page_alloc": Operation((), "a warm page of a refill"),
    "hold_page_free": Operation((), "a warm page of a drain"),
    "lru_lines": Operation((), "lines of the LRU that a hold begins with: lists, counters"),
    "lru_hold": Operation((), "a hold of the LRU lock without its folios"),
    "lru_page": Operation((), "a folio of a hold of the LRU lock"),
    "fault_entry": Operation((), "a page fault beside clearing, lists and locks"),
    "clear_page": Operation((), "a page filled with zeros, alone"),
    "clear_rate": Operation((), "pages that all CPUs of a node fill together"),
    "mmap_lock": Operation((), "the line of a lock at a fault, that threads share"),
    "page_counter": Operation((), "a charge of 64 pages to a memcg's counters"),
    "smt_share": Operation(("core",), "speed of a thread beside another of its core"),
    "lines_at_once": Operation((), "lines that a core waits for at the same time"),
}  # fmt: skip


def rows_of(names: Iterable[str] = OPERATIONS) -> Iterator[tuple[str, str]]:
    """(operation, distance) of every row."""
    for name in names:
        for distance in OPERATIONS[name].distances or ("",):
            yield name, distance


class Sheet(Mapping[tuple[str, str], Known]):
    """The rows of a cost sheet, by operation and distance ("" where there is none).

    Parameters
    ----------
    rows : mapping of (str, str) to Known
        Every row of `OPERATIONS`, and any others.
    """

    def __init__(self, rows: Mapping[tuple[str, str], Known]) -> None:
        missing = [f"{name} {distance}".strip() for name, distance in rows_of()
                   if (name, distance) not in rows]  # fmt: skip
        if missing:
            raise InputError(f"a cost sheet lacks {', '.join(missing)}")
        self._rows = dict(rows)

    def __getitem__(self, row: tuple[str, str]) -> Known:
        return self._rows[row]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def value(self, name: str, distance: str = "") -> float:
        """A row's value, in its unit."""
        return self._rows[name, distance].value

    def changed(self, values: Mapping[str, float]) -> Sheet:
        """The sheet with other values of some rows.

        Parameters
        ----------
        values : mapping of str to float
            Operation -> value, for all its distances; ``"line_dirty.node"`` for one.

        Raises
        ------
        InputError
            For an unknown row, or a value below 0.
        """
        rows = dict(self._rows)
        for given, value in values.items():
            name, _, distance = given.partition(".")
            mine = [row for row in rows if row[0] == name and distance in ("", row[1])]
            if not mine:
                known = {*OPERATIONS, *(f"{n}.{d}" for n, d in rows if d)}
                raise unknown_name("row of a cost sheet", given, sorted(known))
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not number or not 0 <= value < math.inf:
                raise InputError(f"{given}={value!r} is not a number of 0 and more")
            for row in mine:
                rows[row] = Known(float(value), float(value), float(value), "given", "given")
        return Sheet(rows)

    def late_lines(self, end: str) -> Sheet:
        """The sheet with all rows that grow with the latency of lines at one end of theirs.

        Parameters
        ----------
        end : str
            ``low`` or ``high``.
        """
        rows = {
            row: known._replace(value=known.at(end))
            if row[0] in OPERATIONS and OPERATIONS[row[0]].late
            else known
            for row, known in self._rows.items()
        }
        return Sheet(rows)

    def slower(self, factor: float) -> Sheet:
        """The sheet of a machine on which all takes ``factor`` times as long."""
        rows = {}
        for row, known in self._rows.items():
            by = scale_of(row[0], factor)
            rows[row] = known._replace(
                value=known.value * by, low=known.low * by, high=known.high * by
            )
        return Sheet(rows)

    @property
    def assumed(self) -> list[str]:
        """Rows that nobody measured, derived or published, by name."""
        return [
            f"{name} {distance}".strip()
            for name, distance in rows_of()
            if self._rows[name, distance].origin == "assumed"
        ]


def scale_of(row: str, factor: float) -> float:
    """By what a row, ``line_dirty`` or ``line_dirty.node``, grows if all takes that much longer."""
    unit = COST_UNITS.get(row.partition(".")[0])
    return {"ns": factor, "pages/s": 1 / factor}.get(unit, 1.0)


def class_rows(alike: Iterable[Mapping[tuple[str, str], Known]]) -> dict[tuple[str, str], Known]:
    """Rows of a machine that is like others: the geometric mean, an interval over all of theirs.

    Parameters
    ----------
    alike : iterable of mapping
        Their rows; one that some of them lack is the others'.
    """
    found: dict[tuple[str, str], list[Known]] = {}
    for rows in alike:
        for row, known in rows.items():
            found.setdefault(row, []).append(known)
    return {
        row: Known(
            float(np.exp(np.mean([math.log(max(k.value, 1e-9)) for k in each]))),
            min(k.low for k in each),
            max(k.high for k in each),
            f"class value: {len(each)} machines",
            "assumed",
        )
        for row, each in found.items()
    }


def table_rows(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Known]:
    """The rows of a ``costs.csv``."""
    return {
        (r["operation"], r["distance"] or ""): Known(
            r["value"], r["low"], r["high"], r["source"], r["origin"]
        )
        for r in records
    }

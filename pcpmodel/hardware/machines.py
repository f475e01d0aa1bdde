"""A machine: its measured table, its platform, and what one zone-lock hold costs on it."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pcpmodel.arguments import checked_methods
from pcpmodel.cached import cached_property
from pcpmodel.datasets.packages import (
    check_name,
    data_dir,
    hardware_names,
    load_hardware,
    machine_is_there,
    own_data,
)
from pcpmodel.datasets.schema import Table
from pcpmodel.errors import InputError
from pcpmodel.hardware.costs import Known, Sheet, class_rows, rows_of, scale_of, table_rows

if TYPE_CHECKING:
    import pandas as pd

    from pcpmodel.hardware.hold_time import HoldTime

__all__ = ["Machine", "digest", "load_machines", "machine", "machines"]

_LOG = logging.getLogger(__name__)


@checked_methods
@dataclass(frozen=True, eq=False)
class Machine:
    """One machine of ``data/hardware/``.

    Attributes
    ----------
    name : str
        Name of the directory under ``data/hardware/``.
    measured, measured_interval : Table or pandas.DataFrame
        Columns by name of the two tables below, which are frames made when they are asked for, as
        they were measured, whatever ``times`` says.
    latency : pandas.DataFrame
        The measured table, one row per batch; its columns name their units.
    latency_interval : pandas.DataFrame or None
        The range of each figure of the table, where the measurement states one.
    platform : dict
        What is known of the hardware (``platform.json``).
    digest : str
        Digest of the machine's data: two machines with one digest are the same data.
    costs : Table or None
        Its cost sheet, where there is one (``costs.csv``).
    derived : str or None
        What the table follows from, in a sentence; None: it was measured.
    alike : tuple of Machine
        Machines that it is said to be like.
    changes : tuple of (str, float)
        Rows of its sheet that are not as stored; see `with_costs`.
    times : float
        How many times as long everything takes as on the machine; see `slower`.
    """

    name: str
    measured: Table | pd.DataFrame
    measured_interval: Table | pd.DataFrame | None
    platform: dict[str, Any]
    digest: str
    costs: Table | None = None
    derived: str | None = None
    alike: tuple[Machine, ...] = ()
    changes: tuple[tuple[str, float], ...] = ()
    times: float = 1.0

    @cached_property
    def sheet(self) -> Sheet:
        """What its operations take; rows that its own sheet lacks are those of its class."""
        sheet = _sheet_of(self)
        return (sheet if self.times == 1.0 else sheet.slower(self.times)).changed(
            dict(self.changes)
        )

    @property
    def assumed(self) -> list[str]:
        """Rows of its sheet that nobody measured, derived or published, by name.

        Those of holds are left out where the holds follow from a table: its own, or that of the
        machines that it is like.
        """
        from pcpmodel.hardware.sheet import HOLD_ROWS

        by_table = self.derived is None or self.alike
        return [row for row in self.sheet.assumed if not (by_table and row in HOLD_ROWS)]

    def with_costs(self, **values: float) -> Machine:
        """The machine with other values of some rows of its cost sheet.

        Parameters
        ----------
        **values : float
            Operation -> value, in its unit; a dictionary with ``"line_dirty.node"`` for one of
            several distances.  Those are the values, also of a machine that is `slower`.

        Raises
        ------
        InputError
            For an unknown row, or one that holds follow from (``hold_fixed``, ...): they are those
            of the latency table, or were made when the machine was loaded.

        Examples
        --------
        >>> machine("ice-lake").with_costs(handover=0.0).sheet.value("handover", "llc")
        0.0
        """
        from pcpmodel.hardware.sheet import HOLD_ROWS

        for row in HOLD_ROWS:
            if row in values:
                raise InputError(
                    f"{row}: holds are those of the table of {self.name}, whatever its cost sheet "
                    "says; slower() changes them, and everything else"
                )
        kept = {row: old for row, old in self.changes if row.partition(".")[0] not in values}
        changes = {**kept, **values}
        self.sheet.changed(values)  # or an error
        told = hashlib.sha256(f"{self.digest} {sorted(changes.items())}".encode()).hexdigest()
        return replace(self, changes=tuple(sorted(changes.items())), digest=told)

    def slower(self, factor: float) -> Machine:
        """A machine on which everything takes ``factor`` times as long, holds included."""
        number = isinstance(factor, int | float | np.number) and not isinstance(factor, bool)
        if not number or not 1e-6 <= factor <= 1e6:
            raise InputError(f"factor={factor!r} is outside 1e-6..1e6")
        told = hashlib.sha256(f"{self.digest} times {factor}".encode()).hexdigest()
        changes = tuple((row, value * scale_of(row, factor)) for row, value in self.changes)
        return replace(self, times=self.times * factor, changes=changes, digest=told)

    @cached_property
    def latency(self) -> pd.DataFrame:
        return _slower(_frame(self.measured), self.times)

    @cached_property
    def latency_interval(self) -> pd.DataFrame | None:
        interval = self.measured_interval
        return None if interval is None else _slower(_frame(interval), self.times)

    @cached_property
    def hold_time(self) -> HoldTime:
        """Cost of one zone-lock hold, fitted to the measured table at first use."""
        tables = (self.measured, self.measured_interval)
        fit = _hold_time(self.name, *(None if t is None else _contents(t) for t in tables))
        return fit if self.times == 1.0 else fit.slower(self.times)

    @property
    def page_size_kib(self) -> int:
        """Base page of its kernel [KiB].

        Where platform.json does not state it that of the machines it is like, if they have one in
        common, else 4.
        """
        of_alike = {one.page_size_kib for one in self.alike}
        common = of_alike.pop() if len(of_alike) == 1 else 4
        return self.platform.get("page_size_kib") or common

    @property
    def _pages_of_holds(self) -> tuple[list[int], bool]:
        """Sizes of the pages that its holds are of [KiB], and whether somebody states one."""
        whose = self.alike or (self,)
        stated = any(one.platform.get("page_size_kib") for one in whose)
        return sorted({one.page_size_kib for one in whose}), stated

    @cached_property
    def line_memory(self) -> Known:
        """A load from the memory of a CPU's own node [ns]: its sheet's, else its class's."""
        known = self.sheet["line_memory", ""]
        return known._replace(source=f"{known.origin}: {known.source}")

    @property
    def notes(self) -> list[str]:
        """What to know before using it."""
        slow = f"Everything is said to take {self.times:g} times as long as on {self.name}."
        return [*([self.derived] if self.derived else []), *([slow] if self.times != 1.0 else [])]

    def page_size_note(self, page_size_kib: int) -> str | None:
        """What to know before using the table for pages of another size; None for the same."""
        sizes, stated = self._pages_of_holds
        if sizes == [page_size_kib]:
            return None
        table = (
            f"{' and '.join(map(str, sizes))} KiB pages"
            if stated
            else "pages whose size platform.json does not state, taken as 4 KiB"
        )
        holds = "table of {} was measured with" if self.derived is None else "holds of {} are for"
        used = "it is" if self.derived is None else "they are"
        return (
            f"The {holds.format(self.name)} {table}; {used} used for {page_size_kib} KiB "
            "pages as if a hold of as many pages took as long."
        )

    def __repr__(self) -> str:
        rows = f"{len(self.measured['batch'])} {'made' if self.derived else 'measured'} batches"
        slow = "" if self.times == 1.0 else f", {self.times:g} times as long"
        return f"<Machine {self.name}: {rows}{slow}>"


_Columns = tuple[tuple[str, tuple[Any, ...]], ...]


def _contents(table: Table | pd.DataFrame) -> _Columns:
    return tuple((name, tuple(table[name])) for name in table.columns)


@lru_cache(maxsize=64)
def _hold_time(name: str, latency: _Columns, interval: _Columns | None) -> HoldTime:
    """The fit to a table; the same machine with other costs, or loaded anew, has the same."""
    from pcpmodel.hardware.hold_time import HoldTime

    return HoldTime.fit(name, dict(latency), None if interval is None else dict(interval))


def _sheet_of(machine: Machine) -> Sheet:
    """Its own rows; those that it lacks are of the machines it is like, of its kind, or of all."""
    own = {} if machine.costs is None else table_rows(machine.costs.records())
    if all(row in own for row in rows_of()):
        return Sheet(own)
    others = [m for m in _with_sheets() if m.name != machine.name]
    kind = machine.platform.get("kind")
    rows: dict[tuple[str, str], Known] = {}
    for some in (
        others,
        [m for m in others if kind and m.platform.get("kind") == kind],
        machine.alike,
    ):
        rows |= class_rows(table_rows(m.costs.records()) for m in some if m.costs is not None)
    _split_memory(rows, machine.platform)
    return Sheet(rows | own)


def _split_memory(rows: dict[tuple[str, str], Known], platform: dict[str, Any]) -> None:
    """Give a node its part of what a socket's memory takes, where a socket is several nodes.

    Other machines' rows are of nodes that are a socket with all its channels (their sources);
    with NPS4, a node for each cache, or SNC a socket's channels are shared out among its nodes.  A
    guest's sockets say nothing of channels.
    """
    row, sockets = ("clear_rate", ""), platform.get("sockets")
    nodes = sum(n != "0" for n in (platform.get("cpus_per_node") or "").split(",") if n)
    nodes = nodes or platform.get("nodes") or 0
    if row not in rows or not sockets or nodes <= sockets or platform.get("kind") == "virtual":
        return
    known, part = rows[row], sockets / nodes
    rows[row] = known._replace(
        value=known.value * part,
        low=known.low * part,
        high=known.high * part,
        source=f"{known.source}, shared out: {nodes} nodes on {sockets} sockets",
    )


def _with_sheets() -> Iterator[Machine]:
    """The machines that came with the package, wherever the user's own are; sound ones alone."""
    data = own_data()
    for name in hardware_names(data):
        with suppress(InputError):  # `pcpmodel data check` names it; no other machine depends on it
            found = load_hardware(name, data)
            costs = found.tables.get("costs")
            yield Machine(name, {}, None, found.platform, found.digest, costs)


def _frame(table: Table | pd.DataFrame) -> pd.DataFrame:
    return table.frame() if isinstance(table, Table) else table


def _slower(table: pd.DataFrame, factor: float) -> pd.DataFrame:
    """A latency table in which everything takes ``factor`` times as long."""
    if factor == 1.0:
        return table
    by = {"us": factor, "s": 1 / factor}  # times, and rates, by the end of their names
    return table.assign(
        **{name: table[name] * by[end] for name in table if (end := name.split("_")[-1]) in by}
    )


def machine(
    name: str | Machine, *, like: str | Machine | Iterable[str | Machine] | None = None
) -> Machine:
    """Load a machine by name; a :class:`Machine` is returned as it is.

    Parameters
    ----------
    name : str or Machine
        Name of a directory under ``data/hardware/``; with ``like`` any name without a table there.
    like : str, Machine or iterable of these, optional
        Measured machines that one without a latency table is like: its holds are theirs (the
        geometric mean of several), with intervals as wide as measured machines differ.

    Returns
    -------
    Machine
        Of one with a cost sheet and no table, the holds follow from the sheet.

    Raises
    ------
    InputError
        If there is no such machine (the nearest name is offered), its data are faulty, or it has
        a table and is said to be like another.
    """
    if isinstance(name, Machine):
        if like is not None:
            raise InputError(f"{name.name} has holds of its own; like= is for one that has none")
        return name
    if not isinstance(name, str):
        raise InputError(f"machine={name!r} is not a name; give a str or a Machine.")
    if like is not None and not machine_is_there(name):
        return _like(Machine(check_name(name), {}, None, {}, ""), like)
    data = load_hardware(name)
    table, interval = (data.tables.get(k) for k in ("batch_latency", "batch_latency_interval"))
    found = Machine(
        data.name, table or {}, interval, data.platform, data.digest, data.tables.get("costs")
    )
    if table is not None and like is not None:
        raise InputError(f"{name} has a latency table; like= is for a machine that has none")
    if table is not None:
        return found
    return _of_sheet(found) if like is None else _like(found, like)


def _of_sheet(bare: Machine) -> Machine:
    """The machine with holds from its cost sheet."""
    from pcpmodel.hardware.sheet import of_sheet

    assert bare.costs is not None  # a package has one or the other
    measured = _sound_machines()
    table, interval = of_sheet(bare.costs, [m.hold_time for m in measured])
    derived = (
        f"No hold of {bare.name} was measured: its holds follow from its cost sheet, their 99th "
        f"percentiles from those of {len(measured)} measured machines."
    )
    return _with(bare, table, interval, derived, bare.digest, digest(measured))


def _like(bare: Machine, like: str | Machine | Iterable[str | Machine]) -> Machine:
    """The machine with the holds of others."""
    from pcpmodel.hardware.sheet import of_class

    alike, measured = load_machines(like), _sound_machines()
    path = data_dir() / "hardware" / bare.name
    table, interval, factor = of_class(
        path, [m.hold_time for m in alike], [m.hold_time for m in measured]
    )
    names = ", ".join(m.name for m in alike)
    derived = (
        f"No hold of {bare.name} was measured: its holds are those of {names}, with intervals as "
        f"wide as {len(measured)} measured machines differ (by a factor of {factor:.2f})."
    )
    like_them = replace(bare, alike=alike)
    return _with(
        like_them, table, interval, derived, bare.name, bare.digest, digest(alike), digest(measured)
    )


def _with(bare: Machine, table: Table, interval: Table, derived: str, *data: str) -> Machine:
    """The machine with holds that follow from ``data``, digests or names."""
    return replace(
        bare,
        measured=table,
        measured_interval=interval,
        digest=hashlib.sha256("\n".join(data).encode()).hexdigest(),
        derived=derived,
    )


def load_machines(
    names: str | Machine | Iterable[str | Machine] | None = None,
) -> tuple[Machine, ...]:
    """Load the machines named: one, several, or (None) every measured one that is no guest.

    Parameters
    ----------
    names : str, Machine, iterable of these, optional
        Which machines; all if not given.  Of these a guest is left out (its host is in its times;
        where there are only guests they stay), and a faulty one, so that it spoils no answer
        about the others: a warning on the standard error says so.

    Returns
    -------
    tuple of Machine

    Raises
    ------
    InputError
        If a machine is unknown, or none is named, or of all that there are none can be used.
    """
    if names is None:
        return _sound_machines()
    if isinstance(names, str | bytes | Machine) or not isinstance(names, Iterable):
        names = (names,)
    found = tuple(machine(name) for name in names)
    if not found:
        raise InputError("no machine is named; give at least one.")
    return found


def _sound_machines() -> tuple[Machine, ...]:
    found, fault = [], None
    for name in machines():
        try:
            found.append(machine(name))
        except InputError as error:
            fault = error
            # Not warnings.warn(): that names a place in the notebook, another in each run.
            _LOG.warning("machine %s is left out: %s", name, error.message)
    found = [m for m in found if m.platform.get("kind") != "virtual"] or found
    if not found:
        raise fault or InputError("there is no machine; pcpmodel data add latency brings one in.")
    return tuple(found)


def digest(of: Iterable[Machine]) -> str:
    """Return one digest for the data of several machines, whatever their order.

    Parameters
    ----------
    of : iterable of Machine

    Returns
    -------
    str
        SHA-256.
    """
    lines = sorted(f"{machine.name} {machine.digest}\n" for machine in of)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def machines() -> tuple[str, ...]:
    """Return the names of the machines in ``data/hardware/``, sorted.

    Returns
    -------
    tuple of str
    """
    return tuple(sorted(hardware_names()))

"""A machine: its measured table, its platform, and what one zone-lock hold costs on it."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pcpmodel.datasets.packages import hardware_names, load_hardware
from pcpmodel.datasets.schema import Table
from pcpmodel.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from pcpmodel.hardware.hold_time import HoldTime

__all__ = ["Machine", "digest", "load_machines", "machine", "machines"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Machine:
    """One machine of ``data/hardware/``.

    Attributes
    ----------
    name : str
        Name of the directory under ``data/hardware/``.
    measured, measured_interval : Table or pandas.DataFrame
        Columns by name of the two tables below, which are frames made when they are asked for.
    latency : pandas.DataFrame
        The measured table, one row per batch; its columns name their units.
    latency_interval : pandas.DataFrame or None
        The range of each figure of the table, where the measurement states one.
    platform : dict
        What is known of the hardware (``platform.json``).
    digest : str
        Digest of the machine's data: two machines with one digest are the same data.
    """

    name: str
    measured: Table | pd.DataFrame
    measured_interval: Table | pd.DataFrame | None
    platform: dict[str, Any]
    digest: str

    @cached_property
    def latency(self) -> pd.DataFrame:
        return _frame(self.measured)

    @cached_property
    def latency_interval(self) -> pd.DataFrame | None:
        return None if self.measured_interval is None else _frame(self.measured_interval)

    @cached_property
    def hold_time(self) -> HoldTime:
        """Cost of one zone-lock hold, fitted to the measured table at first use."""
        from pcpmodel.hardware.hold_time import HoldTime

        return HoldTime.fit(self.name, self.measured, self.measured_interval)

    @property
    def page_size_kib(self) -> int:
        """Base page of its kernel, 4 where platform.json does not state it [KiB]."""
        return self.platform.get("page_size_kib") or 4

    def page_size_note(self, page_size_kib: int) -> str | None:
        """What to know before using the table for pages of another size; None for the same."""
        if page_size_kib == self.page_size_kib:
            return None
        unknown = self.platform.get("page_size_kib") is None
        table = (
            "with pages whose size platform.json does not state, taken as 4 KiB"
            if unknown
            else f"with {self.page_size_kib} KiB pages"
        )
        return (
            f"The table of {self.name} was measured {table}; it is used for {page_size_kib} KiB "
            "pages as if a hold of as many pages took as long."
        )

    def __repr__(self) -> str:
        return f"<Machine {self.name}: {len(self.measured['batch'])} measured batches>"


def _frame(table: Table | pd.DataFrame) -> pd.DataFrame:
    return table.frame() if isinstance(table, Table) else table


def machine(name: str | Machine) -> Machine:
    """Load a machine by name; a :class:`Machine` is returned as it is.

    Parameters
    ----------
    name : str or Machine
        Name of a directory under ``data/hardware/``.

    Returns
    -------
    Machine

    Raises
    ------
    InputError
        If there is no such machine (the nearest name is offered) or its data are faulty.
    """
    if isinstance(name, Machine):
        return name
    if not isinstance(name, str):
        raise InputError(f"machine={name!r} is not a name; give a str or a Machine.")
    data = load_hardware(name)
    table, interval = (data.tables.get(k) for k in ("batch_latency", "batch_latency_interval"))
    return Machine(data.name, table, interval, data.platform, data.digest)


def load_machines(
    names: str | Machine | Iterable[str | Machine] | None = None,
) -> tuple[Machine, ...]:
    """Load the machines named: one, several, or (None) every one whose data have no fault.

    Parameters
    ----------
    names : str, Machine, iterable of these, optional
        Which machines; all if not given.  Of these a faulty one is left out, so that it spoils
        no answer about the others, and a warning on the standard error says so.

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
    if isinstance(names, str | Machine):
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

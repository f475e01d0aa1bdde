"""Hardware: what a machine is, and what one zone-lock hold costs on it.

The package is itself what a user calls: ``pcpmodel.machine("sapphire-rapids")``
returns that :class:`Machine`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pcpmodel.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from pcpmodel.machine.hold_time import HoldTime

__all__ = ["Machine", "digest", "load", "load_machines", "machines"]


@dataclass(frozen=True, eq=False)
class Machine:
    """One machine of ``data/hardware/``.

    Attributes
    ----------
    name : str
        Name of the directory under ``data/hardware/``.
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
    latency: pd.DataFrame
    latency_interval: pd.DataFrame | None
    platform: dict[str, Any]
    digest: str

    @cached_property
    def hold_time(self) -> HoldTime:
        """Cost of one zone-lock hold, fitted to the measured table at first use."""
        from pcpmodel.machine.hold_time import HoldTime

        return HoldTime.fit(self.name, self.latency, self.latency_interval)

    def __repr__(self) -> str:
        return f"<Machine {self.name}: {len(self.latency)} measured batches>"


def load(name: str | Machine) -> Machine:
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
    from pcpmodel.data_package import load_hardware

    data = load_hardware(name)
    return Machine(data.name, data.latency, data.latency_interval, data.platform, data.digest)


def load_machines(
    names: str | Machine | Iterable[str | Machine] | None = None,
) -> tuple[Machine, ...]:
    """Load the machines named: one, several, or (None) every one there is.

    Parameters
    ----------
    names : str, Machine, iterable of these, optional
        Which machines; all if not given.

    Returns
    -------
    tuple of Machine

    Raises
    ------
    InputError
        If a machine is unknown, or none is named.
    """
    if names is None:
        names = machines()
    elif isinstance(names, str | Machine):
        names = (names,)
    found = tuple(load(name) for name in names)
    if not found:
        raise InputError("no machine is named; give at least one.")
    return found


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
    from pcpmodel.data_package import hardware_names

    return tuple(sorted(hardware_names()))


class _CallableModule(ModuleType):
    """``pcpmodel.machine`` is a package by layout and a function by use.

    Importing any submodule binds the package to ``pcpmodel.machine``, so a
    function of that name in the parent would be overwritten at some import.
    A module may change its ``__class__`` (Python data model, "Customizing
    module attribute access"); that makes the package callable for good.
    """

    def __call__(self, name: str | Machine) -> Machine:
        return load(name)


sys.modules[__name__].__class__ = _CallableModule

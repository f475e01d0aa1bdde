"""Changes of the machine while a run is under way: sysctls, CPU hot-plug, drain_all_pages()."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from pcpmodel.errors import InputError, unknown_name

__all__ = ["Change", "change", "changes_from"]

_SIZES = ("batch", "high_pages", "high_min_pages", "high_fraction")
_CPUS = ("offline", "online", "drain_all")


@dataclass(frozen=True)
class Change:
    """What happens at one moment; see `change`."""

    at_s: float
    batch: int | None = None
    high_pages: int | None = None
    high_min_pages: int | None = None
    high_fraction: int | None = None
    offline: int | None = None
    online: int | None = None
    drain_all: int | None = None

    def __post_init__(self) -> None:
        at = self.at_s
        if isinstance(at, bool) or not isinstance(at, int | float) or not 0 < at < math.inf:
            raise InputError(f"change: at_s={at!r} is not a number of seconds above 0")
        for name in (*_SIZES, *_CPUS):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**24:
                raise InputError(f"change at {at} s: {name}={value!r} is not a whole number from 0")
        given = self.given
        if not given:
            known = ", ".join((*_SIZES, *_CPUS))
            raise InputError(f"change at {at} s changes nothing; give one of {known}")
        if len(given) > 1 and set(given) & set(_CPUS):
            raise InputError(
                f"change at {at} s: {' and '.join(given)} do not happen at once; give two changes"
            )

    @property
    def given(self) -> dict[str, int]:
        """What is given but the time."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "at_s"}
        return {name: value for name, value in values.items() if value is not None}

    def as_dict(self) -> dict[str, float]:
        """As a description of a run writes it down."""
        return {"at_s": self.at_s, **self.given}

    def sizes(self, before: dict[str, Any]) -> dict[str, Any]:
        """Arguments of ``Host.sizes`` after the change.

        Each of ``high_pages``, ``high_min_pages``, ``high_fraction`` takes the place of the
        others.
        """
        new = {name: value for name, value in self.given.items() if name in _SIZES}
        if set(new) - {"batch"}:
            before = {"batch": before["batch"], **dict.fromkeys(_SIZES[1:3]), "high_fraction": 0}
        return {**before, **new}


def change(
    at_s: float,
    *,
    batch: int | None = None,
    high_pages: int | None = None,
    high_min_pages: int | None = None,
    high_fraction: int | None = None,
    offline: int | None = None,
    online: int | None = None,
    drain_all: int | None = None,
) -> Change:
    """Something that happens to the machine during a run.

    Parameters
    ----------
    at_s : float
        Simulated time, the warm-up included [s].
    batch, high_pages, high_min_pages : int, optional
        New sizes of the per-CPU lists, as in `simulate` [pages].
    high_fraction : int, optional
        sysctl vm.percpu_pagelist_high_fraction is written: 0, or 8 and more.
    offline, online : int, optional
        This CPU goes offline (its lists are drained, its task rests) or comes back; the limits
        of all lists follow where the release shares a zone out among CPUs.
    drain_all : int, optional
        This CPU calls drain_all_pages(): it empties the lists of all CPUs, one after the other;
        whoever uses a list that it has in hand goes to the zone directly.

    Returns
    -------
    Change
        For ``simulate(changes=[...])``.

    Raises
    ------
    InputError
        For anything but sizes together, or one of the others alone.

    Notes
    -----
    A CPU takes new sizes over as soon as it is out of the operation or hold that is under way.

    References
    ----------
    mm/page_alloc.c: percpu_pagelist_high_fraction_sysctl_handler(), page_alloc_cpu_dead(),
    page_alloc_cpu_online(), drain_all_pages(); v5.14 ... v7.3.

    Examples
    --------
    >>> import pcpmodel as pm
    >>> run = pm.simulate(release="v6.7", machine="ice-lake", cpus=4, memory_gib=8, seconds=0.02,
    ...                   workload=pm.workload.page_fault1(4),
    ...                   changes=[pm.change(0.01, high_fraction=8)])
    >>> run.spec.changes[0].as_dict()
    {'at_s': 0.01, 'high_fraction': 8}
    """
    return Change(
        at_s, batch, high_pages, high_min_pages, high_fraction, offline, online, drain_all
    )


def changes_from(given: Iterable[Change | dict[str, Any]]) -> tuple[Change, ...]:
    """Changes as a run takes them: in the order of time, from objects or their records."""
    if isinstance(given, Change | dict | str) or not isinstance(given, Iterable):
        raise InputError(f"changes={given!r} is not a list of changes")
    known = [f.name for f in fields(Change)]
    result = []
    for item in given:
        if isinstance(item, dict):
            for name in item:
                if name not in known:
                    raise unknown_name("part of a change", name, known)
            if "at_s" not in item:
                raise InputError(f"change {item!r} has no at_s")
            item = Change(**item)
        if not isinstance(item, Change):
            raise InputError(f"changes: {item!r} is not what pcpmodel.change() returns")
        result.append(item)
    return tuple(sorted(result, key=lambda c: c.at_s))

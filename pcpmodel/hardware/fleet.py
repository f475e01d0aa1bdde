"""Several machines' per-CPU lists explained in one table: from sosreports, tarballs or folders."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.hardware.platform import ThisMachine, explained
from pcpmodel.kernel.releases import Release
from pcpmodel.proc.sos import open_host

__all__ = ["Machines", "explain_machines"]

_HEAD = ("machine", "kernel", "rules", "CPUs", "nodes", "zone", "managed", "batch")


@dataclass(frozen=True, repr=False)
class Machines:
    """Machines and their zones, every number explained; prints as one table.

    Attributes
    ----------
    machines : dict of str to ThisMachine
        By the path that was given.
    """

    machines: dict[str, ThisMachine]

    @property
    def all_match(self) -> bool:
        """Whether every reported size is the one computed."""
        return all(machine.all_match for machine in self.machines.values())

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "machines": [{"path": p, **m.as_dict()} for p, m in self.machines.items()],
            "all_match": self.all_match,
        }

    def rows(self) -> list[tuple[str, ...]]:
        """Cells of the table: a zone a row, below a header."""
        rows = [(*_HEAD, "high or high_min", "high_max", "")]
        for path, machine in self.machines.items():
            known, rules = machine.platform, machine.explanation.release.name
            for zone in machine.zones:
                high = zone.high if zone.high_min is None else zone.high_min
                cells = (
                    *(Path(path).name, known.kernel, rules, known.cpus, known.nodes, zone.title),
                    *(zone.managed, zone.batch, high, zone.high_max),
                    "ok" if zone.match else "MISMATCH",
                )
                rows.append(tuple("" if cell is None else str(cell) for cell in cells))
        return rows

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
        why = (
            f"{Path(path).name}, {zone.title}: {reason}"
            for path, machine in self.machines.items()
            for zone in machine.zones
            for reason in zone.why
        )
        return "\n".join([*(line.rstrip() for line in lines), *why])

    def _repr_html_(self) -> str:
        head, *rows = ([html.escape(cell) for cell in row] for row in self.rows())
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
        return f"<table><tr><th>{'</th><th>'.join(head)}</th></tr>{body}</table>"


def explain_machines(
    paths: Sequence[str | Path],
    release: str | Release | None = None,
    cpus_per_node: int | Sequence[int] | None = None,
    high_fraction: int | None = None,
) -> Machines:
    """Explain the per-CPU lists of machines of which sosreports are at hand.

    Parameters
    ----------
    paths : sequence of path
        Tarballs (plain, gzip or xz; nothing is unpacked to disk) or folders; "/" is this machine.
    release : str, Release or Tree, optional
        Rules to apply to all of them; default: those nearest to each one's kernel.
    cpus_per_node : int or sequence of int, optional
        Online CPUs of each node; default: what each report says.
    high_fraction : int, optional
        ``vm.percpu_pagelist_high_fraction``; default: what each report says, else as its limits
        have it.

    Returns
    -------
    Machines

    Raises
    ------
    InputError
        If one cannot be read (`pcpmodel.proc.sos.SosFiles`), is given twice, or none is.
    """
    if not paths:
        raise InputError("given no machine; allowed: one or more, each once")
    first: dict[str, str | Path] = {}
    for path in paths:
        if (place := os.path.realpath(path)) in first:
            raise InputError(f"is {first[place]} again; allowed: each machine once", file=path)
        first[place] = path
    return Machines(
        {str(p): explained(open_host(p), release, cpus_per_node, high_fraction) for p in paths}
    )

"""What every compared table takes in: stated by its source, from other sources, or assumed.

A prediction is worth what it was given.  The inputs of a table are those of its machine, of its
workload, and what a run adds to a hold; which of them a source states is data
(``stated`` in ``data/workload/answer-key``), the rest is counted here and named.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_workload
from pcpmodel.simulation.spec import UNCALIBRATED
from pcpmodel.study.published.cases import cases
from pcpmodel.study.published.single import ZONE_SPLIT
from pcpmodel.workload import Workload, kbuild

__all__ = ["inputs", "inputs_of", "stated"]

_OF_MACHINE = ("machine", "cpus", "nodes", "memory_gib")
#: What a run adds to the work: `UNCALIBRATED`, and what two threads of a core do.
_OF_RUN = (*UNCALIBRATED, "cold_page_ns", "smt_yield")


def _workloads() -> dict[str, Workload]:
    """Table, with the workload's name where a table has several -> workload."""
    found = {case.name: case.workload() for case in cases()}
    for split in ZONE_SPLIT.values():
        made = split.make(split.count, like=None)
        found[f"zone-split-rfc/figures: {made.name}"] = made
    return found | {"hahn-v4/kbuild: kbuild": kbuild(2, like=None)}


def stated() -> dict[str, tuple[str, ...]]:
    """Table, as `inputs_of` names it -> inputs that its source states."""
    frame = load_workload("answer-key").tables["stated"]
    return {str(r.name): tuple(str(r.inputs).split()) for r in frame.itertuples(index=False)}


def inputs_of() -> dict[str, tuple[str, ...]]:
    """Every compared table -> the names of its inputs, of machine, workload and run."""
    return {
        name: (*_OF_MACHINE, *(p for p in made.params if p not in (*_OF_MACHINE, "like")), *_OF_RUN)
        for name, made in _workloads().items()
    }


def inputs(
    tables: Iterable[str], taken: Mapping[str, Sequence[str]], cells: Mapping[str, int]
) -> pd.DataFrame:
    """Count the inputs of some tables by where they come from.

    Parameters
    ----------
    tables : iterable of str
        Source/table.
    taken : mapping of str to sequence of str
        Table, as `inputs_of` names it -> inputs that were fitted to tables.
    cells : mapping of str to int
        Source/table -> predicted cells.

    Returns
    -------
    pandas.DataFrame
        One row per table and workload: ``inputs``; ``stated`` by the source; ``fitted`` to this or
        to other tables; ``assumed``: all others, whose names are ``which``; ``cells`` of the table.
    """
    asked = set(tables)
    known = stated()
    rows: list[dict[str, Any]] = []
    for name, every in inputs_of().items():
        table = name.split(":")[0]
        if table not in asked:
            continue
        given = [one for one in every if one in known[name]]
        fitted = [one for one in every if one in taken.get(name, ()) and one not in given]
        others = [one for one in every if one not in (*given, *fitted)]
        rows.append(
            {
                "table": name,
                "inputs": len(every),
                "stated": len(given),
                "fitted": len(fitted),
                "assumed": len(others),
                "which": " ".join(others),
                "cells": cells.get(table, 0),
            }
        )
    return pd.DataFrame(rows)

"""What every compared table takes in: stated by its source, known from elsewhere, or assumed.

A prediction is worth what it was given.  The inputs of a table are those of its machine and of its
workload, the rows of the cost sheet, and the pace of work.  Which of them a source states is data
(``stated`` in ``data/workload/answer-key``); of a cost sheet each row says whether it was
measured, derived or published; the rest is counted here and named.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_workload
from pcpmodel.hardware.machines import machine
from pcpmodel.study.published.cases import cases, host
from pcpmodel.study.published.single import BIG, ZONE_SPLIT
from pcpmodel.workload import Workload, kbuild

__all__ = ["inputs", "inputs_of", "stated"]

_OF_MACHINE = ("machine", "cpus", "nodes", "memory_gib")
#: What of the workloads was recorded (``data/workload/native-*``) or is the kernel's own.
_RECORDED = ("phases", "page_us", "page_table_isolation", "send_us", "recv_us", "unmap_ns", "room")
#: Workload -> what was chosen for a run to come to figures of another source than the table, and
#: that source (`pcpmodel.workload.streams.SEND_US`).
_FITTED = {"sctp_stream": (("send_us", "recv_us", "latency_us"), "pcp-auto-tuning-rfc")}
_RUN = ("jitter", "mixed memory")


def _workloads() -> dict[str, tuple[Workload, str]]:
    """Table, with the workload's name where a table has several -> workload, machine."""
    found = {case.name: (case.workload(), case.run["machine"]) for case in cases()}
    for split in ZONE_SPLIT:
        made = split.make()
        found[f"zone-split-rfc/figures: {made.name}"] = made, host(BIG)["machine"]
    return found | {"hahn-v4/kbuild: kbuild": (kbuild(2), "sapphire-rapids")}


def stated() -> dict[str, tuple[str, ...]]:
    """Table, as `inputs_of` names it -> inputs that its source states."""
    frame = load_workload("answer-key").tables["stated"]
    return {str(r.name): tuple(str(r.inputs).split()) for r in frame.itertuples(index=False)}


def inputs_of() -> dict[str, tuple[str, ...]]:
    """Every compared table -> the names of its inputs, of machine, workload and run."""
    return {
        name: (
            *_OF_MACHINE,
            *(p for p in made.params if p not in _OF_MACHINE),
            *(("phases",) if made.name == "kbuild" else ()),
            *(f"{row} {distance}".strip() for row, distance in machine(on).sheet),
            *_RUN,
        )
        for name, (made, on) in _workloads().items()
    }


def inputs(tables: Iterable[str], cells: Mapping[str, int]) -> pd.DataFrame:
    """Count the inputs of some tables by where they come from.

    Parameters
    ----------
    tables : iterable of str
        Source/table.
    cells : mapping of str to int
        Source/table -> predicted cells.

    Returns
    -------
    pandas.DataFrame
        One row per table and workload: ``inputs``; ``stated`` by the source; ``recorded``,
        measured, derived or published elsewhere; ``fitted`` to figures of another source,
        ``fitted_to``; ``assumed``: all others, whose names are ``which``; ``cells`` of the table.
    """
    asked = set(tables)
    known, made = stated(), _workloads()
    rows: list[dict[str, Any]] = []
    for name, every in inputs_of().items():
        table = name.split(":")[0]
        if table not in asked:
            continue
        assumed = machine(made[name][1]).sheet.assumed
        given = [one for one in every if one in known[name]]
        fitted, source = _FITTED.get(made[name][0].name, ((), ""))
        of_sheet = {f"{row} {distance}".strip() for row, distance in machine(made[name][1]).sheet}
        elsewhere = [
            one
            for one in every
            if one not in (*given, *fitted)
            and (one in _RECORDED or (one in of_sheet and one not in assumed))
        ]
        others = [one for one in every if one not in (*given, *elsewhere, *fitted)]
        rows.append(
            {
                "table": name,
                "inputs": len(every),
                "stated": len(given),
                "recorded": len(elsewhere),
                "fitted": len(fitted),
                "fitted_to": source,
                "assumed": len(others),
                "which": ", ".join(others),
                "cells": cells.get(table, 0),
            }
        )
    return pd.DataFrame(rows)

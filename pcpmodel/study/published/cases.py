"""The published tables that are modelled: workload, machine, kernels.

All of it is data, ``data/workload/answer-key``; nothing is fitted to any of them.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.errors import unknown_name
from pcpmodel.files import parse_json
from pcpmodel.kernel.releases import Release, release
from pcpmodel.workload import Workload, kbuild, sctp_stream, unix_stream

__all__ = [
    "Case", "cache_miss_column", "cases", "columns", "find", "hahn_machines", "host", "notes",
    "published_rows",
]  # fmt: skip

_CACHE_MISSES = "cache_miss_rate"


_WORKLOADS: dict[str, Callable[..., Workload]] = {
    "kbuild": kbuild,
    "sctp_stream": sctp_stream,
    "unix_stream": unix_stream,
}


@dataclass(frozen=True)
class Case:
    """One published table.

    Attributes
    ----------
    source, table : str
        Where it is in ``data/published``.
    workload : callable
        Makes the workload.
    releases : mapping of str to Release
        By row name.
    run : dict
        Arguments of `simulate`.
    note : str
        What the model is known to lack here.
    fixed_work : bool
        free_high and alloc_zone were counted over the same work in every row, whatever the
        score; otherwise over the same time.
    """

    source: str
    table: str
    workload: Callable[[], Workload]
    releases: Mapping[str, Release]
    run: Mapping[str, Any]
    note: str = ""
    fixed_work: bool = False

    @property
    def name(self) -> str:
        return f"{self.source}/{self.table}"


def _tables() -> Mapping[str, pd.DataFrame]:
    return load_workload("answer-key").tables


def columns() -> dict[str, str]:
    """Column of the published tables -> quantity, the rate of cache misses left out."""
    frame = _tables()["columns"]
    known = dict(zip(frame["column"], frame["quantity"], strict=True))
    return {column: quantity for column, quantity in known.items() if quantity != _CACHE_MISSES}


def cache_miss_column() -> str:
    """The column of cache misses.

    The simulator counts where allocated pages are found, not what the CPUs' counters count: it is
    set beside this column, and compared in the signs of its changes alone.
    """
    frame = _tables()["columns"]
    return str(frame["column"][frame["quantity"] == _CACHE_MISSES].iloc[0])


def notes(names: str) -> str:
    """What the model lacks: texts by their names, with blanks between."""
    return _notes(_tables()["notes"], names)


def _notes(frame: pd.DataFrame, names: str) -> str:
    text = frame.set_index("note")["text"]
    return " ".join(str(text[name]) for name in names.split())


def host(name: str) -> dict[str, Any]:
    """The arguments of `simulate` that are a machine's, and how long a run on it is."""
    return _host(_tables()["hosts"], name)


def _host(frame: pd.DataFrame, name: str) -> dict[str, Any]:
    row = frame.set_index("host").loc[name]
    given = {
        "machine": str(row["machine"]),
        "cpus": int(row["cpus"]),
        "nodes": int(row["nodes"]),
        "memory_gib": float(row["memory_gib"]),
    }
    return given | {"seconds": float(row["seconds"]), "warmup_s": float(row["warmup_s"])}


def cases() -> tuple[Case, ...]:
    """Every published table that is modelled row by row."""
    tables = _tables()  # read once: the files are looked at anew by every call
    kernels = tables["kernels"]
    found = []
    for row in tables["cases"].to_dict("records"):
        steps = kernels[kernels["kernels"] == row["kernels"]]
        found.append(
            Case(
                row["source"],
                row["table"],
                partial(_WORKLOADS[row["workload"]], **parse_json(row["arguments"])),
                {s.step: release(s.release) for s in steps.itertuples()},
                _host(tables["hosts"], row["host"]),
                _notes(tables["notes"], row["notes"]),
                row["counts"] == "same work",
            )
        )
    return tuple(found)


def published_rows(case: Case) -> dict[str, dict[str, float]]:
    """Row -> quantity -> figure; free_high and alloc_zone per unit of work."""
    frame = load_published(case.source).tables[case.table]
    rows = {}
    for _, line in frame.iterrows():
        figures = {q: float(line[c]) for c, q in columns().items() if c in frame}
        if "score" in figures and not case.fixed_work:
            for q in ("free_high", "alloc_zone"):
                figures[q] *= 100 / figures["score"]
        rows[str(line["step"])] = figures
    return rows


def find(name: str) -> Case:
    """A case by its name, source/table."""
    for case in cases():
        if case.name == name:
            return case
    raise unknown_name("published table", name, [c.name for c in cases()])


def hahn_machines() -> dict[str, tuple[int, int, float]]:
    """Machines of Hahn's v4: name -> (CPUs, nodes, memory [GiB]).

    Each is onlined in one node, hence one zone (Hahn's answer to Danton, 14 Oct 2025); which
    CPUs they have is not stated.
    """
    frame = load_published("hahn-v4").tables["kbuild"].drop_duplicates("machine")
    return {m.machine: (int(m.cpus), 1, float(m.memory_gib)) for m in frame.itertuples()}

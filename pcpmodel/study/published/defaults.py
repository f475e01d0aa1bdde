"""What `pcpmodel.simulate` says with no further option, beside what is published for that machine.

`compare` gives every table what its source states.  Who has a new question types a workload, a
machine and a kernel; what that is worth is judged here: each cell of ``data/workload/defaults`` is
one run with its CPUs and memory, where the source states them, and nothing else.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.files import parse_json
from pcpmodel.hardware.machines import machine
from pcpmodel.simulation.run import simulate
from pcpmodel.study.published.judge import CONTENTION_FACTOR, CONTENTION_FROM
from pcpmodel.study.published.null_models import best_constant
from pcpmodel.workload import make

__all__ = ["Said", "asked", "by_default", "judged", "markdown", "said_of"]

_CELL = ["source", "table", "row", "column"]
_PERCENT = 100.0


class Said(NamedTuple):
    """What one run with no further option says.

    Attributes
    ----------
    value, half_width : float
        In the unit of the cell, with half of the run's 95 % interval.
    """

    value: float
    half_width: float


def asked() -> pd.DataFrame:
    """The cells, with what was ``measured``: contention [% of cycles] or a rate [1/s]."""
    frame = load_workload("defaults").tables["asked"].copy()
    frame["measured"] = [_measured(row) for row in frame.to_dict("records")]
    return frame


def _measured(row: Mapping[str, Any]) -> float:
    table = load_published(row["source"]).tables[row["table"]]
    for column, value in parse_json(row["row"]).items():
        table = table[table[column] == value]
    (value,) = table[row["column"]]
    return float(value)


def by_default(row: Mapping[str, Any]) -> Said:
    """Run one cell of `asked`."""
    like = None if pd.isna(row["like"]) else row["like"].split()
    hardware = machine(row["machine"], like=like)
    run = simulate(
        row["release"],
        hardware,
        make(row["workload"], **parse_json(row["arguments"])),
        cpus=None if pd.isna(row["cpus"]) else int(row["cpus"]),
        memory_gib=None if pd.isna(row["memory_gib"]) else float(row["memory_gib"]),
    )
    # Waiting for either lock is one figure in the sources, but for workloads that take one alone.
    names = [row["quantity"]]
    if row["quantity"] == "lock_contention":
        names.append("lru_contention")
    times = _PERCENT if len(names) > 1 else 1.0
    widths = [run.half_width(name) for name in names if getattr(run, name)]
    return Said(
        times * sum(getattr(run, name) for name in names),
        times * math.hypot(*widths),
    )


def judged() -> pd.DataFrame:
    """Every cell: measured, as stored in ``data/workload/defaults``, and by null models.

    Returns
    -------
    pandas.DataFrame
        The columns of `asked` and `Said`; ``ratio`` of predicted to measured and whether it is
        ``within`` 1.5 times; ``small``: a contention below 5 %, of which a ratio says little;
        ``null: nothing changes``, the first row of the table again, for a rate in proportion to the
        tasks; ``null: best constant``, for each workload and quantity the number that is within 1.5
        times of the most cells; ``as_good``: the null models that are no farther off, as a factor.
    """
    said = load_workload("defaults").tables["said"]
    cells = asked().merge(said, on=_CELL, validate="1:1")
    cells["ratio"] = cells["value"] / cells["measured"]
    cells["within"] = cells["ratio"].between(1 / CONTENTION_FACTOR, CONTENTION_FACTOR)
    waits = cells["quantity"] == "lock_contention"
    cells["small"] = waits & (cells["measured"] <= CONTENTION_FROM)
    cells["null: nothing changes"] = np.nan
    cells["null: best constant"] = np.nan
    tasks = [float(next(iter(parse_json(a).values()))) for a in cells["arguments"]]
    per_task = (cells["measured"] / tasks).where(~waits, cells["measured"])
    times = pd.Series(tasks, index=cells.index).where(~waits, 1.0)
    keys = [cells["source"], cells["table"], cells["machine"], cells["workload"], cells["quantity"]]
    first = per_task.groupby(keys, sort=False).transform("first")
    at_first = ~cells.duplicated(["source", "table", "machine", "workload", "quantity"])
    cells["null: nothing changes"] = (first * times).mask(at_first)
    for _, part in cells.groupby(["workload", "quantity"], sort=False):
        if len(part) > 2:  # else it is their answer
            ends = ((m / CONTENTION_FACTOR, m * CONTENTION_FACTOR) for m in part["measured"])
            cells.loc[part.index, "null: best constant"] = best_constant(ends)
    off = {
        name: np.abs(np.log(cells[name].astype(float) / cells["measured"]))
        for name in cells
        if name.startswith("null: ")
    }
    own = np.abs(np.log(cells["ratio"].clip(lower=1e-9)))
    cells["as_good"] = [
        ", ".join(n.removeprefix("null: ") for n, far in off.items() if far[i] <= own[i])
        for i in cells.index
    ]
    return cells


def said_of(cells: pd.DataFrame) -> Iterator[str]:
    """The headline of `judged` in sentences (Markdown), by kind of cell."""
    waits = cells["quantity"] == "lock_contention"
    for kind, part in (
        ("contention above 5 %", cells[waits & ~cells["small"]]),
        ("contention below 5 %", cells[cells["small"]]),
        ("rates", cells[~waits]),
    ):
        nulls = []
        for name in (n for n in cells if n.startswith("null: ")):
            known = part[part[name].notna()]
            right = (known[name] / known["measured"]).between(
                1 / CONTENTION_FACTOR, CONTENTION_FACTOR
            )
            nulls.append(f"{name.removeprefix('null: ')} {int(right.sum())} of {len(known)}")
        yield (
            f"- {kind}: {int(part['within'].sum())} of {len(part)} within {CONTENTION_FACTOR:g} "
            f"times; null models: {', '.join(nulls)}."
        )


def markdown(cells: pd.DataFrame) -> str:
    """The cells of `judged` as a table (Markdown)."""
    lines = [
        "| published | run | measured | predicted | ratio | nothing changes | best constant |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in cells.to_dict("records"):
        number = "{:.3g}" if cell["quantity"] == "lock_contention" else "{:.2e}"
        unit = " %" if cell["quantity"] == "lock_contention" else " /s"
        row = ", ".join(f"{value}" for value in parse_json(cell["row"]).values())
        tasks = next(iter(parse_json(cell["arguments"]).values()))
        base, patched, _ = cell["release"].partition("+")
        release = f"{base} + patches" if patched else base
        nulls = ["-" if pd.isna(cell[n]) else number.format(cell[n]) for n in cells if "null" in n]
        lines.append(
            f"| {cell['source']}/{cell['table']}: {row} "
            f"| {cell['workload']}, {tasks}, {release}, {cell['machine']} "
            f"| {number.format(cell['measured'])}{unit} "
            f"| {number.format(cell['value'])} ± {number.format(cell['half_width'])} "
            f"| {cell['ratio']:.2f}{'' if cell['within'] else ' (!)'} | {' | '.join(nulls)} |"
        )
    return "\n".join(lines)

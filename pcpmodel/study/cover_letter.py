"""Simulated patches as the table of a cover letter: base, patch 1 .. n, by workload."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.study.sweep import make_grid, sweep

__all__ = ["FORMATS", "CoverLetter", "cover_letter", "read_spec"]

FORMATS = ("text", "csv", "latex")
#: Figure of a sweep -> heading, what a reviewer wants of it.  All are in per cent of the
#: first row but contention, which is in per cent of the busy cycles.
COLUMNS = {
    "score_per_s": ("score", "higher"),
    "lock_contention": ("lock%", "lower"),
    "free_high": ("free_high", "lower"),
    "alloc_zone_pages": ("alloc_zone", "lower"),
    "wait_p99_ns": ("wait p99", "lower"),
    "hold_p99_ns": ("hold p99", "lower"),
    "pages_in_pcp_mean": ("pcp pages", "lower"),
}
_PER_UNIT = ("free_high", "alloc_zone_pages")
_WIDTH, _CELL = 72, 14


@dataclass(frozen=True)
class CoverLetter:
    """The tables, one per workload.

    Attributes
    ----------
    tables : dict
        Heading -> pandas.DataFrame: ``rules`` and, for each figure, ``<figure>`` (mean) and
        ``<figure>_sd`` (standard deviation over the seeds), both in % of the first row's mean;
        ``lock_contention`` in % of the busy cycles.  NaN where the first row has none.
    runs : int
        Seeds per row.
    about : str
        What was simulated, in one sentence.
    """

    tables: dict[str, pd.DataFrame]
    runs: int
    about: str

    def text(self) -> str:
        """Aligned with blanks, at most 72 columns."""
        parts = [_wrapped(self.about)]
        for heading, table in self.tables.items():
            figures = [c for c in COLUMNS if c in table]
            wide = max(8, *(len(r) for r in table["rules"]))
            rows = [" " * wide + "".join(f"{COLUMNS[c][0]:>{_CELL}}" for c in figures)]
            for row in table.to_dict("records"):
                cells = "".join(f"{_cell(row, c):>{_CELL}}" for c in figures)
                rows.append(f"{row['rules']:<{wide}}{cells}".rstrip())
            parts.append("\n".join([heading, "", *rows]))
        shown = [c for c in COLUMNS if any(c in t for t in self.tables.values())]
        best = {
            side: ", ".join(COLUMNS[c][0] for c in shown if COLUMNS[c][1] == side)
            for side in ("higher", "lower")
        }
        parts.append(
            _wrapped(
                f"Mean and standard deviation of {self.runs} runs, in % of the first row; lock% "
                "in % of the busy cycles; free_high and alloc_zone per unit of work. "
                f"Positive (more) is better: {best['higher'] or 'none'}. Negative (less) is "
                f"better: {best['lower'] or 'none'}. Simulated, not measured."
            )
        )
        return "\n\n".join(parts)

    def csv(self) -> str:
        """One row per workload and rules."""
        out = io.StringIO()
        write = csv.writer(out, lineterminator="\n")
        for i, (heading, table) in enumerate(self.tables.items()):
            if i == 0:
                write.writerow(["workload", *table.columns])
            for row in table.itertuples(index=False):
                write.writerow([heading, *(f"{v:.6g}" if isinstance(v, float) else v for v in row)])
        return out.getvalue().rstrip("\n")

    def latex(self) -> str:
        """A tabular per workload (booktabs)."""
        parts = []
        for heading, table in self.tables.items():
            figures = [c for c in COLUMNS if c in table]
            lines = [
                f"% {heading}",
                r"\begin{tabular}{l" + "r" * len(figures) + "}",
                r"\toprule",
                " & ".join(["rules", *(_tex(COLUMNS[c][0]) for c in figures)]) + r" \\",
                r"\midrule",
            ]
            for row in table.to_dict("records"):
                cells = [_tex(row["rules"]), *(_tex(_cell(row, c)) for c in figures)]
                lines.append(" & ".join(cells) + r" \\")
            parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        clean = {
            k: t.astype(object).where(t.notna(), None).to_dict("records")
            for k, t in self.tables.items()
        }
        return {"about": self.about, "runs": self.runs, "tables": clean}


def _cell(row: Mapping[str, Any], figure: str) -> str:
    value, sd = row[figure], row[figure + "_sd"]
    return "-" if np.isnan(value) else f"{value:.1f} ±{sd:.1f}"


def _tex(text: str) -> str:
    for mark in "%_&#$":
        text = text.replace(mark, "\\" + mark)
    return text.replace("±", r"$\pm$")


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, _WIDTH)


def read_spec(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `cover_letter` takes from JSON.

    Raises
    ------
    InputError
        If the file is not an object with these names alone.
    """
    from pcpmodel.data_package import parse_json, raise_first, read_bytes

    faults: list[InputError] = []
    given = parse_json(read_bytes(path), path, faults)
    raise_first(faults)
    known = ("releases", "workloads", "machine", "labels", "seeds", "figures", "options")
    if not isinstance(given, dict):
        raise InputError("is not a JSON object", file=path)
    for name in given:
        if name not in known:
            raise InputError(unknown_name("name", name, known).message, file=path)
    for name, kind in {"releases": list, "workloads": list, "machine": str}.items():
        if not isinstance(given.get(name), kind):
            raise InputError(
                f"needs {name!r}, a {'text' if kind is str else 'list'}", file=path, column=name
            )
    return given


def cover_letter(
    releases: Sequence[str],
    workloads: Sequence[Mapping[str, Any]],
    machine: str,
    *,
    labels: Sequence[str] = (),
    seeds: int = 3,
    figures: Sequence[str] = ("score_per_s", "lock_contention", "free_high", "alloc_zone_pages"),
    options: Mapping[str, Any] | None = None,
) -> CoverLetter:
    """Simulate base and patches and lay the results out as mm developers post them.

    Parameters
    ----------
    releases : sequence of str
        Kernel states, base first: ``["v6.6", "v6.6+p1", ...]``.
    workloads : sequence of mapping
        ``{"name": "page_fault1", "processes": 224}`` and so on; one table each.
    machine : str
        Whose hold times are used.
    labels : sequence of str, optional
        Names of the rows; by default the releases'.
    seeds : int
        Runs per row, 2..100.
    figures : sequence of str
        Columns, of `COLUMNS`, up to four.
    options : mapping, optional
        Further arguments of `pcpmodel.simulate`, such as ``seconds``.

    Returns
    -------
    CoverLetter

    Raises
    ------
    InputError
        For an argument that is out of range or unknown, before anything is run.
    """
    if not releases or not workloads:
        raise InputError("releases and workloads must not be empty")
    if len(figures) > 4:
        raise InputError(f"{len(figures)} figures do not fit into {_WIDTH} columns; give up to 4")
    if labels and len(labels) != len(releases):
        raise InputError(f"{len(labels)} labels for {len(releases)} releases")
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 2 <= seeds <= 100:
        raise InputError(f"seeds={seeds!r} is not a number in 2..100")
    for figure in figures:
        if figure not in COLUMNS:
            raise unknown_name("figure", figure, COLUMNS)
    asked = []
    for workload in workloads:
        if not isinstance(workload, Mapping) or "name" not in workload:
            raise InputError(f"workload {workload!r} is not an object with a name")
        asked.append(
            {
                "machine": machine,
                "workload": dict(workload),
                "release": list(releases),
                "seed": list(range(1, seeds + 1)),
                **(options or {}),
            }
        )
        make_grid(**asked[-1])  # refuses what is wrong before anything runs
    tables = {}
    for workload, arguments in zip(workloads, asked, strict=True):
        grid = sweep(progress=False, **arguments)
        table = pd.DataFrame({"rules": list(labels or releases)})
        for figure in figures:
            values = grid[figure].transpose("release", "seed").to_numpy().astype(float)
            if figure in _PER_UNIT:
                values = values / grid["score_per_s"].transpose("release", "seed").to_numpy()
            whole = 1.0 if figure == "lock_contention" else values[0].mean()
            scaled = 100 * values / whole if whole else np.full_like(values, np.nan)
            table[figure] = scaled.mean(axis=1)
            table[figure + "_sd"] = scaled.std(axis=1, ddof=1)
        rest = ", ".join(f"{k}={v}" for k, v in workload.items() if k != "name")
        tables[f"{workload['name']}" + (f" ({rest})" if rest else "")] = table
    more = "".join(f", {k}={v}" for k, v in (options or {}).items())
    return CoverLetter(tables, seeds, f"Simulated with the lock holds of {machine}{more}.")

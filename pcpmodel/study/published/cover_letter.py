"""The table of a cover letter: base, patch 1 .. n, by workload, simulated or as published."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.errors import InputError, integer, printable, unknown_name
from pcpmodel.files import read_json
from pcpmodel.hardware.machines import Machine
from pcpmodel.hardware.machines import machine as find_machine
from pcpmodel.kernel.policies import Policy, with_policy
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.simulation.spec import RunSpec, assumed_nodes, host_of
from pcpmodel.study.answer import Answer, exact_records
from pcpmodel.study.published.cases import cases
from pcpmodel.study.published.compare import compare
from pcpmodel.study.sweep.grid import make_grid
from pcpmodel.study.sweep.run import sweep
from pcpmodel.workload import WORKLOADS

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["FORMATS", "CoverLetter", "cover_letter", "on_every_cpu", "read_spec"]

FORMATS = ("text", "csv", "latex")


class Column(NamedTuple):
    """What a figure is in these tables, which have none in its own unit."""

    heading: str
    wanted: str  #: by a reviewer: "higher" or "lower"
    quantity: str
    whole: str = "first"  #: what it is a percentage of: the first row, or the CPUs' cycles

    @property
    def name(self) -> str:
        return f"{self.quantity}_percent_of_{self.whole}"

    @property
    def unit(self) -> str:
        return f"% of {self.whole}"


#: By the figure of a run.
COLUMNS = {
    "score_per_s": Column("score", "higher", "score"),
    "build_time": Column("build time", "lower", "build_time"),
    "lock_contention": Column("lock%", "lower", "lock_contention", "cycles"),
    "free_high": Column("free_high", "lower", "free_high"),
    "alloc_zone_pages": Column("alloc_zone", "lower", "alloc_zone"),
    "wait_p99_ns": Column("wait p99", "lower", "wait_p99"),
    "hold_p99_ns": Column("hold p99", "lower", "hold_p99"),
    "pages_in_pcp_mean": Column("pcp pages", "lower", "pages_in_pcp"),
}
#: Quantity of a published table -> figure.
_PUBLISHED = {
    "score": "score_per_s",
    "build_time": "build_time",
    "lock_contention": "lock_contention",
    "free_high": "free_high",
    "alloc_zone": "alloc_zone_pages",
}
_PER_UNIT = ("free_high", "alloc_zone_pages")
_SIMULATED, _MEASURED = "simulated", "measured"
_WIDTH, _CELL = 72, 13


@dataclass(frozen=True, eq=False)
class CoverLetter(Answer):
    """The tables, one per workload.

    Attributes
    ----------
    tables : dict
        Heading -> pandas.DataFrame: ``rules``, ``kind`` (``simulated`` or ``measured``) and, for
        each figure, the `Column.name` (mean) and the same with ``_sd`` (standard deviation over
        the seeds; NaN for a measured figure, whose source states none):
        ``wait_p99_percent_of_first`` is in % of the first row's mean,
        ``lock_contention_percent_of_cycles`` in % of the cycles; free_high and alloc_zone are per
        unit of work.  NaN where the first row has none, and for percentiles where the lock was
        never taken.
    runs : int
        Seeds per row.
    notes : mapping of str to str
        Heading -> what to know of that table's runs, in sentences: whose lock holds, warm-up,
        intervals.
    """

    runs: int = 0
    notes: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Aligned with blanks, at most 72 columns."""
        parts = [_wrapped(self.text)]
        for heading, table in self.tables.items():
            figures = _columns(table)
            both = table["kind"].nunique() > 1
            wide = max(8, *(len(r) + 1 for r in table["rules"]))
            kinds = f"{'':<{len(_SIMULATED)}}" if both else ""
            rows = [" " * wide + kinds + "".join(f"{c.heading:>{_CELL}}" for c in figures)]
            for row in table.to_dict("records"):
                cells = "".join(f"{_cell(row, c):>{_CELL}}" for c in figures)
                first = "" if both and row["kind"] == _SIMULATED else row["rules"]
                kind = f"{row['kind']:<{len(_SIMULATED)}}" if both else ""
                rows.append(f"{first:<{wide}}{kind}{cells}".rstrip())
            parts.append("\n".join([heading, "", *rows]))
        parts.append(_wrapped(_legend(pd.concat(list(self.tables.values())), self.runs)))
        return "\n\n".join(parts)

    def csv(self) -> str:
        """One row per workload and rules."""
        whole = pd.concat(self.tables, names=["workload"]).reset_index(level=0)
        return whole.to_csv(index=False, float_format="%.6g").rstrip("\n")

    def latex(self) -> str:
        """A table per workload (booktabs): heading as caption, what the numbers are below."""
        parts = [r"% \usepackage{booktabs}"]
        for heading, table in self.tables.items():
            figures = _columns(table)
            both = table["kind"].nunique() > 1
            names = ["rules", "kind"] if both else ["rules"]
            lines = [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_tex(heading)}}}",
                r"\begin{tabular}{" + "l" * len(names) + "r" * len(figures) + "}",
                r"\toprule",
                " & ".join([*names, *(_tex(c.heading) for c in figures)]) + r" \\",
                " & ".join([*("" for _ in names), *(_tex(c.unit) for c in figures)]) + r" \\",
                r"\midrule",
            ]
            for row in table.to_dict("records"):
                cells = [*(_tex(row[n]) for n in names), *(_tex(_cell(row, c)) for c in figures)]
                lines.append(" & ".join(cells) + r" \\")
            notes = " ".join(filter(None, [self.notes.get(heading), _legend(table, self.runs)]))
            lines += [r"\bottomrule", r"\end{tabular}", r"\par\smallskip"]
            lines += [r"\parbox{\linewidth}{\footnotesize " + _tex(notes) + "}", r"\end{table}"]
            parts.append("\n".join(lines))
        return "\n\n".join(parts)


def _legend(rows: pd.DataFrame, runs: int) -> str:
    """What the numbers of these rows are, and which way each is better, of their columns alone."""
    columns = _columns(rows)
    measured = _MEASURED in set(rows["kind"])
    wholes = ["In % of the first row" if any(c.whole == "first" for c in columns) else ""]
    wholes += [f"{c.heading} in % of the cycles" for c in columns if c.whole == "cycles"]
    each = [COLUMNS[figure].heading for figure in _PER_UNIT if COLUMNS[figure] in columns]
    wholes += [f"{' and '.join(each)} per unit of work"] if each else []
    wholes = [*filter(None, wholes)]
    better = [
        (words, [c.heading for c in columns if c.wanted == side])
        for side, words in (("higher", "Positive (more)"), ("lower", "Negative (less)"))
    ]
    said = [
        f"Simulated rows: mean and standard deviation of {runs} runs.",
        "Measured rows are published figures, whose source states no variation." * measured,
        f"{'; '.join(wholes)}." if wholes else "",
        *(f"{words} is better: {', '.join(names)}." for words, names in better if names),
        "" if measured else "Simulated, not measured.",
    ]
    return " ".join(filter(None, said))


def _columns(table: pd.DataFrame) -> list[Column]:
    return [column for column in COLUMNS.values() if column.name in table]


def _cell(row: Mapping[str, Any], column: Column) -> str:
    value, sd = row[column.name], row[column.name + "_sd"]
    if np.isnan(value):
        return "-"
    return f"{value:.1f}" + ("" if np.isnan(sd) else f" ±{sd:.1f}")


#: What TeX takes for a command or a mark of its own -> how it prints it.
_TEX = str.maketrans(
    {
        **{mark: "\\" + mark for mark in "%_&#${}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "±": r"$\pm$",
        **dict.fromkeys(map(chr, (*range(32), 127, 0x2028, 0x2029)), " "),
    }
)


def _tex(text: str) -> str:
    """Text as it is to be printed: nothing in it is a command, a comment or a line end."""
    return printable(text).translate(_TEX)


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, _WIDTH, break_on_hyphens=False)


def read_spec(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `cover_letter` takes from JSON.

    Raises
    ------
    InputError
        If the file is not an object with these names alone.
    """
    given = read_json(path)
    known = ("releases", "workloads", "machine", "labels", "seeds", "figures", "options")
    if not isinstance(given, dict):
        raise InputError("is not a JSON object", file=path)
    for name in given:
        if name not in known:
            raise InputError(unknown_name("name", name, known).message, file=path)
    for name, kind in {"workloads": list, "releases": list, "machine": str}.items():
        wanted = name == "workloads" or name in given or _any_simulated(given["workloads"])
        if wanted and not isinstance(given.get(name), kind):
            raise InputError(
                f"needs {name!r}, a {'text' if kind is str else 'list'}", file=path, column=name
            )
    return {"releases": [], **given}


def _any_simulated(workloads: Sequence[Any]) -> bool:
    return any(not isinstance(w, Mapping) or "published" not in w for w in workloads)


def _published_name(workload: Mapping[str, Any]) -> str:
    """The published table that an entry names, ``source/table``."""
    for key in workload:
        if key not in ("published", "table"):
            raise unknown_name("name", str(key), ("published", "table"))
    for key, value in workload.items():
        if not isinstance(value, str):
            raise InputError(f"{key}={value!r} is not a text")
    source = workload["published"]
    tables = load_published(source).tables  # refuses an unknown source
    name = f"{source}/{workload.get('table')}"
    known = [c.name for c in cases()]
    if name not in known:
        if workload.get("table") not in tables:
            raise unknown_name("published table", name, known)
        raise InputError(f"{name} has no rows of patches that are modelled; {', '.join(known)} do")
    return name


def _published(name: str, seeds: int) -> pd.DataFrame:
    """A published table, every measured row followed by the simulated one."""
    cells = pd.DataFrame([{**r, "seed": s} for s in range(1, seeds + 1)
                          for r in compare(name, seed=s).facts["rows"]])  # fmt: skip
    found = cells.groupby(["step", "quantity"], sort=False).agg(
        measured=("measured", "first"),
        mean=("predicted", "mean"),
        sd=("predicted", "std"),
    )
    quantities = [q for q in _PUBLISHED if q in set(cells["quantity"])]
    rows = []
    for step in dict.fromkeys(cells["step"]):
        measured = {"rules": step, "kind": _MEASURED}
        simulated = {"rules": step, "kind": _SIMULATED}
        for quantity in quantities:
            name, key = COLUMNS[_PUBLISHED[quantity]].name, (step, quantity)
            one = found.loc[key] if key in found.index else None  # the base row is 100
            measured |= {name: one["measured"] if one is not None else 100.0}
            measured |= {name + "_sd": np.nan}
            simulated |= {name: one["mean"] if one is not None else 100.0}
            simulated |= {name + "_sd": one["sd"] if one is not None else 0.0}
        rows += [measured, simulated]
    return pd.DataFrame(rows)


def _simulated(grid: xr.Dataset, rules: Sequence[str], figures: Sequence[str]) -> pd.DataFrame:
    """A row for each release: means over the seeds, and their scatter."""
    table = pd.DataFrame({"rules": rules, "kind": _SIMULATED})
    for figure in figures:
        values = grid[figure].transpose("release", "seed").to_numpy().astype(float)
        if figure in _PER_UNIT:
            values = values / grid["score_per_s"].transpose("release", "seed").to_numpy()
        column = COLUMNS[figure]
        whole = values[0].mean() if column.whole == "first" else 1.0
        scaled = 100 * values / (whole if whole else np.nan)
        table[column.name] = scaled.mean(axis=1)
        table[column.name + "_sd"] = scaled.std(axis=1, ddof=1)
    return table


def _machine_of(run: RunSpec) -> str:
    """CPUs and memory of a run, and what of these nobody states."""
    assumed = ", ".join(assumed_nodes(run.machine.platform, run.host, run.given))
    return f"{run.host}" + f" (assumed: {assumed})" * bool(assumed)


def _told(grid: xr.Dataset, workload: Mapping[str, Any]) -> str:
    """Warm-up and intervals of one workload's runs, in words."""
    said = f"{workload['name']}: nothing fitted"
    stands = grid["stands"].to_numpy()
    if (stands == 0).any():
        said += "; its rates never became steady, the figures are of runs that still change"
    elif (stands == 1).all():
        said += "; counted once the rates were steady"
    score = float((grid["score_per_s_half_width"] / grid["score_per_s"]).max())
    lock = float(grid["lock_contention_half_width"].max())
    if np.isfinite(score) and np.isfinite(lock):
        said += (
            f"; within a run the 95 % interval (batch means) is up to ±{100 * score:.1f} % of the "
            f"score and ±{100 * lock:.2f} points of lock%"
        )
    return said + "."


def on_every_cpu(name: str, cpus: int) -> dict[str, Any]:
    """Describe a workload with a process for each CPU; how many is what each takes first.

    Parameters
    ----------
    name : str
        One of `pcpmodel.workload.WORKLOADS`.
    cpus : int
        Of the machine.

    Raises
    ------
    InputError
        For a name that is unknown, or that says too little by itself.
    """
    if name not in WORKLOADS:
        raise unknown_name("workload", name, WORKLOADS)
    first = next(iter(inspect.signature(WORKLOADS[name]).parameters))
    if first == "recording":
        raise InputError(f'workload {name!r} needs more: {{"name": {name!r}, "recording": ...}}')
    return {"name": name, first: cpus // 2 if first == "pairs" else cpus}


def _refuse_other_kinds(
    releases: object, workloads: object, labels: object, figures: object, options: object
) -> None:
    """Refuse arguments of `cover_letter` that are no lists of what they should be lists of."""
    for name, kind, given in (
        ("releases", (str, Release), releases),
        ("workloads", (str, Mapping), workloads),
        ("labels", str, labels),
        ("figures", str, figures),
    ):
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InputError(f"{name}={given!r} is not a list")
        for item in given:
            if not isinstance(item, kind):
                what = "a name or an object with one" if name == "workloads" else "a text"
                raise InputError(f"{name}: {item!r} is not {what}")
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"options={options!r} is not an object of arguments of simulate")


def _arguments_of(
    workload: str | Mapping[str, Any],
    machine: str | Machine | None,
    releases: Sequence[str | Release],
    seeds: int,
    options: dict[str, Any],
) -> tuple[dict[str, Any], str]:
    """Arguments of the sweep that simulates a workload's table, and what it runs on."""
    if not isinstance(workload, Mapping) or "name" not in workload:
        raise InputError(f"workload {workload!r} is not an object with a name")
    arguments = {
        "machine": machine,
        "workload": dict(workload),
        "release": list(releases),
        "seed": list(range(1, seeds + 1)),
    }
    for name in sorted(options.keys() & arguments):
        own = name if name == "machine" else f"{name}s"
        raise InputError(f"options: {name} is not one of them; give {own}")
    arguments |= options
    grid = make_grid(**arguments)
    for name in sorted(grid.axes.keys() & options):
        raise InputError(f"options: {name}={options[name]!r} are several; give one")
    return arguments, _machine_of(grid.specs[0])


def cover_letter(
    releases: Sequence[str | Release],
    workloads: Sequence[str | Mapping[str, Any]],
    machine: str | Machine | None = "sapphire-rapids",
    *,
    labels: Sequence[str] = (),
    seeds: int = 3,
    figures: Sequence[str] = ("score_per_s", "lock_contention", "wait_p99_ns", "hold_p99_ns"),
    options: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
) -> CoverLetter:
    """Lay base and patches out as mm developers post them.

    Parameters
    ----------
    releases : sequence of str, Release or Tree
        Kernel states of the simulated tables, base first: ``["v6.6", "v6.6+p1", ...]``, or kernel
        trees (`pcpmodel.tree`); may be empty where all tables are published ones.
    workloads : sequence of str or mapping
        One table each: ``{"name": "page_fault1", "processes": 224}`` and so on is simulated, a
        name alone, ``"page_fault1"``, with as many processes as the machine has CPUs;
        ``{"published": "pcp-auto-tuning-v2", "table": "kbuild"}`` is a table of
        ``data/published``, each measured row above what `pcpmodel.compare` simulates.
    machine : str or Machine
        Whose hold times the simulated tables use.
    labels : sequence of str, optional
        Names of the rows; by default the releases'.
    seeds : int
        Runs per row, 2..100.
    figures : sequence of str
        Columns of the simulated tables, of `COLUMNS`, up to four.  By default the 99th
        percentiles of wait and hold are among them: they show what a cap on drains changes.
    options : mapping, optional
        Further arguments of `pcpmodel.simulate`, such as ``seconds``.
    policy : Policy, optional
        A rule of one's own (`pcpmodel.policy`): one more row, over the last release.

    Returns
    -------
    CoverLetter

    Raises
    ------
    InputError
        For an argument that is out of range or unknown, before anything is run.
    """
    if isinstance(releases, Sequence) and not isinstance(releases, str):
        releases = [find_release(r) if hasattr(r, "as_release") else r for r in releases]
        if policy is not None and releases:
            releases = [*releases, with_policy(releases[-1], policy)]
    _refuse_other_kinds(releases, workloads, labels, figures, options)
    options = dict(options or {})
    simulated = _any_simulated(workloads)
    if not workloads or (simulated and not (releases and machine)):
        raise InputError("workloads, releases and machine must not be empty")
    if len(figures) > 4:
        raise InputError(f"{len(figures)} figures do not fit into {_WIDTH} columns; give up to 4")
    if labels and len(labels) != len(releases):
        raise InputError(f"{len(labels)} labels for {len(releases)} releases")
    seeds = integer("seeds", seeds, 2, 100)
    for figure in figures:
        if figure not in COLUMNS or figure == "build_time":
            raise unknown_name("figure", figure, [c for c in COLUMNS if c != "build_time"])
    if any(isinstance(w, str) for w in workloads):
        split = ("cpus", "nodes", "cpus_per_node")
        given = {k: v for k, v in options.items() if k in split}
        cpus = host_of(find_machine(machine), given).cpus
        workloads = [on_every_cpu(w, cpus) if isinstance(w, str) else w for w in workloads]
    asked, on = [], ""
    for workload in workloads:  # refuse what is wrong before anything runs
        if isinstance(workload, Mapping) and "published" in workload:
            asked.append(_published_name(workload))
        else:
            arguments, on = _arguments_of(workload, machine, releases, seeds, options)
            asked.append(arguments)
    tables, told, notes = {}, [], {}
    more = "".join(f", {k}={v}" for k, v in options.items())
    whose = f"Simulated with the lock holds of {machine}{more}, on {on}."
    for arguments in asked:
        if isinstance(arguments, str):
            tables[f"{arguments}, published and simulated"] = _published(arguments, seeds)
            continue
        grid = sweep(progress=False, **arguments)
        table = _simulated(grid, list(labels) or [str(r) for r in releases], figures)
        told.append(_told(grid, arguments["workload"]))
        workload = arguments["workload"]
        rest = ", ".join(f"{k}={v}" for k, v in workload.items() if k != "name")
        heading = f"{workload['name']}" + (f" ({rest})" if rest else "") + ", simulated"
        tables[heading], notes[heading] = table, f"{whose} {told[-1]}"
    about = (
        " ".join([whose, *told])
        if simulated
        else "Published tables and what pcpmodel simulates for them."
    )
    facts = {
        "about": about,
        "runs": seeds,
        "tables": {k: exact_records(t) for k, t in tables.items()},
    }
    return CoverLetter(tables, {"about": about}, facts, runs=seeds, notes=notes)

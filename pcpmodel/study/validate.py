"""The model held to the machine that it runs on: predicted first, then measured.

What `pcpmodel.measure` wrote of a machine, and the rules of the kernel that runs, are all that the
prediction knows.  It is in its file, with its digest, before the first load starts.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from pcpmodel.datasets import packages
from pcpmodel.datasets.packages import (
    DESCRIPTOR,
    PREDICTION_RESOURCE,
    VALIDATION_RESOURCE,
)
from pcpmodel.datasets.store import changing, dump_csv, dump_json, store_package
from pcpmodel.errors import InputError, integer
from pcpmodel.files import digest_of, parse_json, read_bytes
from pcpmodel.hardware.load import KINDS, Load
from pcpmodel.hardware.machines import Machine
from pcpmodel.hardware.platform import Platform
from pcpmodel.kernel.releases import nearest_release
from pcpmodel.proc.host import HostFiles
from pcpmodel.signals import Shield, shielded
from pcpmodel.study.answer import Answer, exact_records
from pcpmodel.study.loads import (
    QUANTITIES,
    Cell,
    Observed,
    event_ns,
    levels,
    measured_lines,
    observe,
    pairs_of,
    predict,
    zone_here,
)
from pcpmodel.study.measure import may_use, refuse_busy
from pcpmodel.study.measured_files import rows_of
from pcpmodel.study.page_lines import LINE_ROWS
from pcpmodel.trace import setting
from pcpmodel.trace.hold_tracer import HoldTracer, hold_tracer, other_tracers

__all__ = ["FRACTIONS", "checked_or_stored", "validate", "validation"]

_TRACEFS = Path("/sys/kernel/tracing")
#: Values of vm.percpu_pagelist_high_fraction: the kernel's own tuning, and two fixed sizes.
FRACTIONS = (0, 128, 2048)
ROUNDS = 6
#: A fraction that leaves no list more than four batches, and what lets high come down to it: at
#: most so many times as many refreshes.
_LEAST, _TIMES, _REFRESHES = 2**31 - 1, 100, 32
_STAT_REFRESH = Path("/proc/sys/vm/stat_refresh")
#: Below these a count is none: a hold or two of a round, or of others.
FLOOR = {"refills": 0.05, "drains": 0.05, "drained": 0.005, "waits": 1.0}
NULLS = ("nothing changes", "first cell", "best constant")
#: Counts by which cells do the same work, and how near each other they are then.
SAME, ALIKE = ("refills", "drains", "drained"), 0.05
_KEY = ["workload", "processes", "high_fraction", "quantity"]
_ASSUMED = (
    "A unit of work takes, beside its holds, what rates.csv says of as many processes.",
    "The holds of measure are taken off that and added again by the model. A page of them takes as "
    "much more or less as its lines are elsewhere than in measure's own load, by these rows of "
    f"costs.csv: {', '.join(dict.fromkeys(LINE_ROWS.values()))}; without them, the same whatever "
    "the load.",
    "All loads are in one zone, the highest with room for them; its lists are as large as the "
    "rules say.",
    "hold_fixed is assumed, from the tables of other machines.",
    "Waits for the LRU lock and for memory are not predicted, nor what else runs.",
    "Page tables come back to the lists 20 ms after unmapping. Pages of other kinds beside them, "
    "and of others, are not on the lists, which are empty when a load starts: they make refills "
    "smaller.",
    "Exiting takes the share of the time that unmapping takes.",
)


def validate(
    name: str,
    minutes: float = 3.0,
    *,
    fractions: Sequence[int] = FRACTIONS,
    cpus: Sequence[int] | None = None,
    dry_run: bool = False,
    force: bool = False,
    data: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Predict what loads do on this machine, then measure it.

    Parameters
    ----------
    name : str
        This machine, as `pcpmodel.measure` stored it in ``data/hardware``.
    minutes : float
        How long to measure, about, 0.2..60.
    fractions : sequence of int
        Values of vm.percpu_pagelist_high_fraction: 0, or 8 and more.
    cpus : sequence of int, optional
        CPUs to use, by default all that this process may.
    dry_run : bool
        Only predict: nothing is touched and nothing stored.
    force : bool
        Measure although the machine is busy, short of memory, or another than the one measured.
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.
    progress : callable, optional
        Is told what comes next.

    Returns
    -------
    Answer
        As `validation`; of a dry run ``prediction`` and ``touched``.

    Raises
    ------
    InputError
        If an argument is out of range, the machine has no ``rates.csv`` or is another, it is too
        busy, or tracing or the setting is not permitted.
    Ended
        On SIGTERM or SIGHUP; everything is put back.  What a killed one left is put back by the
        next that traces.
    """
    if isinstance(minutes, bool) or not 0.2 <= minutes <= 60:
        raise InputError(f"minutes={minutes!r} is outside 0.2..60")
    for value in fractions:
        if integer("fraction", value, 0, 2**31 - 1) in range(1, 8):
            raise InputError(f"fraction={value}: 0, or 8 and more")
    root = packages.data_root(data)
    path = root / "hardware" / packages.check_name(name)
    known, rates, costs = _measured(path)
    host = HostFiles(Path("/"))
    used, memory = may_use(host, cpus)
    _refuse_other(path, force)
    cells = _grid(used, fractions)
    setting.sweep()  # what a killed one changed is not the machine's own
    prediction = _predict(known, rates, costs, cells, host, progress)
    if dry_run:
        return Answer(
            {"prediction": prediction, "touched": touched(used, memory, fractions)},
            {"dry run": "Nothing was touched or stored."},
            facts={"machine": name, "prediction": exact_records(prediction)},
        )
    refuse_busy(host, used, memory, force)
    if os.geteuid():
        raise InputError("needs root: it traces, and changes vm.percpu_pagelist_high_fraction")
    digest = _store(path, PREDICTION_RESOURCE, prediction, "prediction", "before any load ran")
    progress(f"predicted {len(prediction)} figures, sha256 {digest}")
    seconds = max(60 * minutes / max(len(cells), 1) / (4 * ROUNDS + 2), 0.02)
    with shielded() as shield:
        observed = _measure(cells, used, seconds, host, shield, progress)
    said = f"of prediction.csv with sha256 {digest}"
    _store(path, VALIDATION_RESOURCE, _figures_of(observed), "validation", said)
    return validation(name, data)


def touched(cpus: Sequence[int], memory: int, fractions: Sequence[int]) -> pd.DataFrame:
    """Say what `validate` touches of this machine."""
    rows = [
        ("CPUs", f"{len(cpus)}", "busy with loads, pinned"),
        ("memory", f"{memory >> 20} MiB", "at most; given back"),
        ("tracing", "instances of its own", "removed; no setting of others changes"),
        (str(setting.HIGH_FRACTION), ", ".join(map(str, (*fractions, _LEAST))), "put back"),
        ("per-CPU lists", "all CPUs", "emptied into the zones before each load"),
    ]
    return pd.DataFrame(rows, columns=["what", "how much", "how"])


def _measured(path: Path) -> tuple[Machine, pd.DataFrame, dict[str, float]]:
    """The machine, and rates and costs [ns] that its own measurement left."""
    if not path.is_dir():
        raise InputError("is not there; pcpmodel measure makes it", file=path)
    faults: list[InputError] = []
    package = packages.read_package(path, "hardware", faults)
    packages.raise_first(faults)
    for table in ("rates", "costs"):
        if table not in package.tables:
            raise InputError(f"has no {table}.csv; pcpmodel measure --replace makes it", file=path)
    costs = package.tables["costs"].columns
    # The nearest of several distances, which stands first.
    pairs = reversed(list(zip(costs["operation"], costs["value"], strict=True)))
    known: dict[str, float] = dict(pairs)
    for operation in ("hold_page_alloc", "hold_page_free", "hold_fixed"):
        if operation not in known:
            raise InputError(f"has no {operation}; measure it with root", file=path / "costs.csv")
    interval = package.tables.get("batch_latency_interval")
    here = Machine(
        path.name,
        package.tables["batch_latency"].frame(),
        None if interval is None else interval.frame(),
        package.documents["platform"],
        package.digest,
    )
    return here, package.tables["rates"].frame(), known


def _refuse_other(path: Path, force: bool) -> None:
    here = Platform.of_host("/")
    file = path / "platform.json"
    there = parse_json(read_bytes(file, follow=False), file)
    for key in ("cpu_model", "cpus", "kernel"):
        if there.get(key) != getattr(here, key) and not force:
            raise InputError(
                f"{key} is {there.get(key)!r}, here it is {getattr(here, key)!r}; validate runs on "
                "the machine itself (--force: all the same)",
                file=file,
            )


def _grid(cpus: Sequence[int], fractions: Sequence[int]) -> list[Cell]:
    return [
        Cell(kind, processes, fraction)
        for fraction in dict.fromkeys(fractions)
        for kind in KINDS
        for processes in levels(kind, cpus)
    ]


def _predict(
    known: Machine,
    rates: pd.DataFrame,
    costs: Mapping[str, float],
    cells: Sequence[Cell],
    host: HostFiles,
    progress: Callable[[str], None],
) -> pd.DataFrame:
    """``prediction.csv``."""
    share = rates.loc[rates.workload == "faults", "first_share"].iloc[0]
    rates = rates.assign(first_share=rates.first_share.mask(rates.workload == "exits", share))
    release, zone = nearest_release(os.uname().release), zone_here(host)
    measured = measured_lines(known, rates, costs, release, zone)
    rows = []
    for cell in cells:
        progress(f"predict {cell.kind}, {cell.processes} processes, fraction {cell.fraction}")
        found = predict(known, rates, costs, release, zone, cell, measured=measured)
        rows += [(*cell, q, unit, found[q]) for q, (unit, _) in QUANTITIES.items()]
    return pd.DataFrame(rows, columns=[*_KEY, "unit", "predicted"])


def _store(
    path: Path, resource: Mapping[str, Any], table: pd.DataFrame, what: str, note: str
) -> str:
    """Add a table to the machine's package; its SHA-256."""
    content = dump_csv(resource, rows_of(table))
    digest = hashlib.sha256(content).hexdigest()
    with changing(path.parent.parent):
        files = {
            file.name: read_bytes(file, follow=False)
            for file in sorted(path.iterdir())
            if not file.name.startswith(".")
        }
        descriptor = parse_json(files[DESCRIPTOR], path / DESCRIPTOR)
        stale = {what, "validation"}  # what was measured is of the prediction before
        for name in stale:
            files.pop(f"{name}.csv", None)
        descriptor["resources"] = [r for r in descriptor["resources"] if r["name"] not in stale]
        descriptor["resources"].append(dict(resource))
        descriptor["sources"] = [
            s for s in descriptor["sources"] if s.get("title") not in {f"{n}.csv" for n in stale}
        ]
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        descriptor["sources"].append(
            {"title": f"{what}.csv", "sha256": digest, "note": f"written {when}, {note}"}
        )
        files[f"{what}.csv"] = content
        files[DESCRIPTOR] = dump_json(descriptor).encode()
        store_package(path.parent.parent, "hardware", path.name, files, replace=True)
    return digest


# ----------------------------------------------------------------- measured


def _measure(
    cells: Sequence[Cell],
    cpus: Sequence[int],
    seconds: float,
    host: HostFiles,
    shield: Shield,
    progress: Callable[[str], None],
) -> dict[Cell, Observed]:
    found: dict[Cell, Observed] = {}
    with (
        hold_tracer(_TRACEFS) as tracer,
        setting.changed([_LEAST, *(cell.fraction for cell in cells)]) as set_fraction,
    ):
        for cell in cells:
            if others := other_tracers(_TRACEFS):
                raise InputError(f"{', '.join(others)} trace the same events")
            progress(f"measure {cell.kind}, {cell.processes} processes, fraction {cell.fraction}")
            set_fraction(_LEAST)
            _empty_lists(host)
            set_fraction(cell.fraction)
            found[cell] = _cell(cell, cpus, tracer, seconds, shield)
    return found


def _empty_lists(host: HostFiles) -> None:
    """Bring the lists of all CPUs down to what the setting of now allows.

    What others have left there counts against ``high``, and stays: a drain begins with the list of
    the page that is freed, and does not come to others as long as that one lasts
    (free_pcppages_bulk()).  Whatever the list, decay_pcp_high() (v6.7 on) drains what is above
    ``high``, which comes down by an eighth each time that the statistics of a CPU are refreshed
    (and is not raised, as high_min and high_max are one).
    """
    for _ in range(_TIMES):
        for _ in range(_REFRESHES):
            read_bytes(_STAT_REFRESH)
        lists = [each for zone in host.snapshots()[0].zones for each in zone.pagesets]
        if all(each.high <= (each.high_min or 0) for each in lists):
            read_bytes(_STAT_REFRESH)  # what is above the last high
            return
    raise InputError("does not let high come down to high_min", file=_STAT_REFRESH)


def _cell(
    cell: Cell,
    cpus: Sequence[int],
    tracer: HoldTracer,
    seconds: float,
    shield: Shield,
) -> Observed:
    with Load(pairs_of(cell.kind, cell.processes, cpus)) as load, shield.lifted():
        return observe(load, tracer, cell, seconds, ROUNDS, 2 * seconds, times_holds=True)


def _figures_of(observed: Mapping[Cell, Observed]) -> pd.DataFrame:
    """``validation.csv``."""
    added = event_ns(list(observed.values()))
    rows = [
        (*cell, q, unit, *(float(v) for v in np.maximum(seen.figure(q, added), 0.0)))
        for cell, seen in observed.items()
        for q, (unit, _) in QUANTITIES.items()
    ]
    return pd.DataFrame(rows, columns=[*_KEY, "unit", "measured", "low", "high"])


# ------------------------------------------------------------------- answer


def validation(name: str, data: str | os.PathLike[str] | None = None) -> Answer:
    """Show the session of `pcpmodel.validate` that is stored of a machine.

    Parameters
    ----------
    name : str
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.

    Returns
    -------
    Answer
        Tables ``errors`` (by quantity: of how many cells, mean and largest error of the model and
        of three null models, and how far cells that do the same work are from each other [%]),
        ``cells`` (predicted, measured, its 95 % interval, error [%])
        and ``assumed``.

    Raises
    ------
    InputError
        If there is no such session, or the prediction is not the one that was measured against.
    """
    path = packages.data_root(data) / "hardware" / packages.check_name(name)
    if not path.is_dir():
        raise InputError("is not there; pcpmodel measure makes it", file=path)
    faults: list[InputError] = []
    package = packages.read_package(path, "hardware", faults)
    packages.raise_first(faults)
    for table in ("rates", "prediction", "validation"):
        if table not in package.tables:
            verb = "measure" if table == "rates" else "validate"
            have = ", ".join(p.parent.name for p in sorted(path.parent.glob("*/validation.csv")))
            # A notebook that is run sees no other machine.
            others = f". Machines of which a session is stored: {have}" * bool(have)
            raise InputError(f"has no {table}.csv; pcpmodel {verb} makes it{others}", file=path)
    digest = hashlib.sha256(read_bytes(path / "prediction.csv", follow=False)).hexdigest()
    notes = {s["title"]: s for s in package.sources}
    for file in ("prediction.csv", "validation.csv"):
        told = notes.get(file, {})
        if digest not in (told.get("sha256"), *str(told.get("note")).split()):
            raise InputError(f"has another sha256 than {DESCRIPTOR} says", file=path / file)
    tables = {name: table.frame() for name, table in package.tables.items()}
    cells = _compared(tables["prediction"], tables["validation"], tables["rates"])
    errors = _errors(cells)
    said = _say(cells, errors)
    said["prediction"] = (
        f"The prediction, sha256 {digest[:16]}.., was {notes['prediction.csv']['note']}."
    )
    shown = cells.drop(columns=[*NULLS])
    known = cells["error_pct"].dropna().abs()
    return Answer(
        {"errors": errors, "cells": shown, "assumed": pd.DataFrame({"assumed": _ASSUMED})},
        said,
        facts={
            "machine": name,
            "prediction_sha256": digest,
            "rows": exact_records(_rows(shown)),
            "mean_error_percent": None if known.empty else float(known.mean()),
            "max_error_percent": None if known.empty else float(known.max()),
            "errors": exact_records(errors),
            "cells": exact_records(shown),
            "assumed": list(_ASSUMED),
        },
        digest=digest_of(name, package.digest),
        shown=("errors", "assumed"),
    )


def checked_or_stored(name: str, minutes: float = 0.0) -> Answer:
    """Measure where that can be, else show what is stored; says which.

    Parameters
    ----------
    name : str
        Machine of ``data/hardware``.
    minutes : float
        How long to measure, as `pcpmodel.validate` has it; 0: only show.

    Returns
    -------
    Answer
        As `validation`.
    """
    why = "nothing was to be measured"
    if minutes:
        try:
            return validate(name, minutes)
        except InputError as error:
            why = error.message
    found = validation(name)
    said = {**found.said, "session": f"This is the session that is stored: {why}."}
    return Answer(found.tables, said, found.facts, found.digest, found.shown)


def _rows(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells by one name for each experiment."""
    names = zip(cells["workload"], cells["processes"], cells["high_fraction"], strict=True)
    rows = cells[["quantity", "unit", "measured", "predicted"]].copy()
    rows.insert(0, "experiment", [f"{w} {n}, high_fraction {f}" for w, n, f in names])
    return rows.assign(error_percent=cells["error_pct"])


def _error_pct(said: pd.Series, measured: pd.Series, quantity: pd.Series) -> pd.Series:
    """Error [%]; NaN where either is not known, or there is nothing on both sides."""
    floor = quantity.map(FLOOR).fillna(0.0)
    error = 100 * (said - measured) / np.maximum(measured, floor)
    return error.where(np.maximum(said, measured) >= floor).replace([np.inf, -np.inf], np.nan)


def _best_constant(measured: pd.Series, floor: float) -> float:
    """The constant with the smallest mean error, in hindsight."""
    values = measured.dropna().to_numpy()
    if not len(values):
        return math.nan
    means = [np.mean(np.abs(c - values) / np.maximum(values, floor or 1e-12)) for c in values]
    return float(values[int(np.argmin(means))])


def _compared(
    prediction: pd.DataFrame, measured: pd.DataFrame, rates: pd.DataFrame
) -> pd.DataFrame:
    """Each figure with its error, and those of the null models."""
    cells = prediction.merge(measured.drop(columns="unit"), on=_KEY, validate="one_to_one")
    before = rates.set_index(["workload", "processes"])
    said = pd.DataFrame(index=cells.index, columns=list(NULLS), dtype=float)
    for row in cells.itertuples():
        if row.quantity in before.columns and (row.workload, row.processes) in before.index:
            said.loc[row.Index, NULLS[0]] = before.loc[(row.workload, row.processes), row.quantity]
    for (_, quantity), group in cells.groupby(["workload", "quantity"], sort=False):
        known = group.measured.dropna()
        if known.empty:
            continue
        said.loc[group.index, NULLS[1]] = known.iloc[0]
        said.loc[known.index[0], NULLS[1]] = math.nan  # it says nothing of itself
        constant = _best_constant(group.measured, FLOOR.get(str(quantity), 0.0))
        said.loc[group.index, NULLS[2]] = constant
    cells["error_pct"] = _error_pct(cells.predicted, cells.measured, cells.quantity)
    for null in NULLS:
        cells[null] = _error_pct(said[null], cells.measured, cells.quantity)
    return cells


def _again(cells: pd.DataFrame) -> pd.Series:
    """How far cells are from each other that do the same work [%], mean by quantity.

    They are of one load and as many processes; their lists have other sizes, but the counts of
    holds and pages are the same, predicted and measured: the machine did the same work again.
    """
    apart: dict[str, list[float]] = {}
    for _, group in cells.groupby(["workload", "processes"], sort=False):
        tables = [
            each.set_index("quantity")[["measured", "predicted"]]
            for _, each in group.groupby("high_fraction", sort=False)
        ]
        for one, other in combinations(tables, 2):
            two = pd.concat([one, other], axis=1, keys=["one", "other"])
            counts = two.reindex(list(SAME)).to_numpy(dtype=float)
            size = np.maximum(counts[:, :2], counts[:, 2:])
            if not ((size > 0) & (np.abs(counts[:, :2] - counts[:, 2:]) <= ALIKE * size)).all():
                continue
            for quantity, a, b in zip(
                two.index, two["one", "measured"], two["other", "measured"], strict=True
            ):
                if min(a, b) > 0:
                    apart.setdefault(str(quantity), []).append(100 * (max(a, b) / min(a, b) - 1))
    return pd.Series(
        {quantity: float(np.mean(each)) for quantity, each in apart.items()}, dtype=float
    )


def _errors(cells: pd.DataFrame) -> pd.DataFrame:
    """Mean and largest error by quantity, and of all."""
    rows = []
    again = _again(cells)
    groups = [(q, cells[cells.quantity == q]) for q in QUANTITIES]
    for quantity, group in [*groups, ("all", cells)]:
        known = group.dropna(subset=["error_pct"])
        if known.empty:
            continue
        size = known.error_pct.abs()
        worst = known.loc[size.idxmax()]
        half = stdtrit(len(size) - 1, 0.975) * size.sem() if len(size) > 1 else math.nan
        inside = (known.low <= known.predicted) & (known.predicted <= known.high)
        rows.append(
            {
                "quantity": quantity,
                "cells": len(known),
                "mean_error_pct": size.mean(),
                "half_width_95": half,
                "median_error_pct": size.median(),
                "worst_pct": worst.error_pct,
                "worst_cell": f"{worst.workload} {worst.processes}, {worst.high_fraction}"
                + (f", {worst.quantity}" if quantity == "all" else ""),
                "inside_interval": int(inside.sum()),
                **{f"{null} [%]": known[null].abs().mean() for null in NULLS},
                "same work again [%]": again.get(quantity, math.nan),
            }
        )
    return pd.DataFrame(rows)


def _say(cells: pd.DataFrame, errors: pd.DataFrame) -> dict[str, str]:
    by = errors.set_index("quantity")
    said = {}
    for quantity, words in (("rate", "The rate"), ("all", "All quantities together")):
        if quantity not in by.index:
            continue
        row = by.loc[quantity]
        known = {null: row[f"{null} [%]"] for null in NULLS}
        nulls = ", ".join(f"{null} {pct:.1f} %" for null, pct in known.items() if pct == pct)
        verb = "is" if quantity == "rate" else "are"
        said[quantity] = (
            f"{words} {verb} predicted with a mean error of **{row.mean_error_pct:.1f} ± "
            f"{row.half_width_95:.1f} %** in {row.cells} cells, at most {abs(row.worst_pct):.0f} % "
            f"({row.worst_cell}). Null models: {nulls}."
        )
    none = cells.measured.notna() & cells.predicted.notna() & cells.error_pct.isna()
    said["none"] = (
        f"{int(none.sum())} further figures are none on both sides, and "
        f"{int((cells.measured.isna() | cells.predicted.isna()).sum())} had too few holds or waits."
    )
    again = {
        row.quantity: row._asdict()["again"]
        for row in errors.rename(columns={"same work again [%]": "again"}).itertuples(index=False)
        if row.again == row.again and row.quantity not in SAME
    }
    if again:
        parts = ", ".join(f"{quantity} {pct:.0f} %" for quantity, pct in again.items())
        said["again"] = (
            "Cells that do the same work, with the same counts of holds and pages, are measured so "
            f"far from each other: {parts}. What the machine does not do again, nobody foresees."
        )
    better = [
        f"{row.quantity}"
        for row in errors.itertuples(index=False)
        if row.quantity != "all"
        and row.mean_error_pct + row.half_width_95 < _best_null(row, errors)
    ]
    worse = [
        f"{row.quantity}"
        for row in errors.itertuples(index=False)
        if row.quantity != "all"
        and row.mean_error_pct - row.half_width_95 > _best_null(row, errors)
    ]
    rest = [q for q in errors.quantity if q not in (*better, *worse, "all")]
    said["nulls"] = (
        f"The model is nearer than every null model, by more than its interval, in "
        f"{_listed(better)}; a null model is nearer than the model, by more than that, in "
        f"{_listed(worse)}; in {_listed(rest)} one of them may be as near."
    )
    return said


def _best_null(row: Any, errors: pd.DataFrame) -> float:
    at = errors.quantity == row.quantity
    return float(errors.loc[at, [f"{null} [%]" for null in NULLS]].min(axis=1).iloc[0])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"

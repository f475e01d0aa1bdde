"""Published tables as an answer key: what was measured, what the simulator says.

A *case* is one published table: a workload on a machine under a row of kernels.
What the sources do not state of a machine is one or two named parameters, each
fitted to the base row or to at most one further row; everything else is
predicted and marked so.  Predicted means that no number was fitted to that cell:
the forms of the workloads were chosen with the tables in view.  The fitted values
(``data/workload/calibration``, which the ready-made workloads use too;
`pcpmodel.study.published.refit` makes them anew) and the tolerances
(``data/workload/answer-key``) are data.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.study.answer import Answer, digest_of, records
from pcpmodel.study.published.asked import ASKED
from pcpmodel.study.published.cases import Case, cases, stored
from pcpmodel.study.published.causes import TIMES_OF
from pcpmodel.study.published.inputs import inputs
from pcpmodel.study.published.left_out import (
    HOLDS,
    Constants,
    judged,
    left_out_cells,
    of_case,
    said_of,
    series_of,
    without,
    without_by_misses,
)
from pcpmodel.study.published.model import REPEATS, Runner, cache_miss_rows, case_rows
from pcpmodel.study.published.null_models import (
    NULL_MODELS,
    score_null_models,
)
from pcpmodel.study.published.repeats import stated_half_width
from pcpmodel.study.published.report import is_report, report_rows
from pcpmodel.study.published.rows import Row, ranks, tolerances, with_constants
from pcpmodel.study.published.shared import Runs
from pcpmodel.study.published.single import SINGLE

__all__ = ["compare"]

_PROBE = (0.8, 1.25)  # of a parameter, to see what a miss hangs on


def compare(
    source: str | Sequence[str] | None = None,
    *,
    seed: int = 1,
    left_out: bool = False,
    hold: str = "fitted",
    releases: Sequence[str | Release] | None = None,
    machine: str | Machine | None = None,
    progress: Callable[[str], None] | None = None,
) -> Answer:
    """Set the published tables against the simulator.

    Parameters
    ----------
    source : str or sequence of str, optional
        A source of ``data/published`` ("pcp-auto-tuning-v2") or one table of it
        ("pcp-auto-tuning-v2/unix"), or several; None for all of machines that have a latency
        table.  Those of older kernels, on machines that are only like one that was measured
        (`pcpmodel.study.published.asked`), are asked for by name.
    seed : int
        Of every run; changes from row to row are also run with the next two.
    left_out : bool
        Predict every source by the parameters of the others alone, and judge that:
        `pcpmodel.study.published.left_out`.  The answer then has ``cells``, by source, table,
        step and quantity (`left_out_cells`), ``skill``, ``rank``, ``inputs`` of every table by
        where they come from, and ``parameters``, with the calibrations that each was taken from;
        its facts are those of `judged`, and ``rows``.
    hold : str
        With ``left_out``: "fitted" constants of the other sources, or "misses", holds from causes
        (`pcpmodel.study.published.causes`) with one latency from the other sources.
    releases : sequence of two str or Release, optional
        For a report that was brought in (`pcpmodel data add report`), which needs them: what its
        commits stand for, before and after.
    machine : str or Machine, optional
        For a report: whose holds are used; by default the measured machine that it names.
    progress : callable, optional
        Called with the name of every table begun.

    Returns
    -------
    Answer
        ``cells``: by source, table, step and quantity what was measured, predicted (``fitted``
        names the parameter that was fitted to this very cell) and changed from the row before,
        whether that has the measured ``sign``, and what each null model predicts; ``rows``: the
        same with the tolerances, one row per cell, with the ``mean`` of the prediction over the
        seeds, half of its 95 % interval (``half_width``) and that of the measurement where the
        source states its variation (``measured_half_width``).  ``null_models``: per table, column
        and predictor the cells and signs that are right (`score_null_models`), summed in
        ``predictors`` and ``by_table``.  ``cache_misses``: the published rate [% of accesses]
        beside the share of allocated pages that no cache held [%].  ``fitted``: parameters per
        table, ``sensitivity``: what a tenth more of one does to the base row; ``rank``: Spearman
        correlation of the rows per column; ``misses``: each prediction outside its tolerance,
        with a fifth less and a quarter more of each parameter; ``elsewhere`` and
        ``not_modelled``: the published tables that are not compared, and the reason.

    Raises
    ------
    InputError
        For a source without a modelled table.
    """
    asked = None if source is None else [source] if isinstance(source, str) else list(source)
    names = [c.name for c in cases()] + list(SINGLE) + ([] if left_out else list(ASKED))
    reports = [] if left_out else [name for name in asked or () if is_report(name)]
    if reports and (releases is None or isinstance(releases, str) or len(releases) != 2):
        raise InputError(
            f"{reports[0]}: name two releases that its commits stand for (releases=, --before and "
            f"--after), given {releases!r}"
        )
    if not reports and (releases is not None or machine is not None):
        raise InputError("releases and machine go with a report that was brought in alone")
    states = [find_release(each) for each in releases or ()]
    known = sorted({n.split("/")[0] for n in names} | set(names) | set(reports))
    for name in asked or ():
        if name not in known:
            raise unknown_name("published source", name, known)

    def wanted(name: str) -> bool:
        return asked is None or not {name, name.split("/")[0]}.isdisjoint(asked)

    asked_cases = [c for c in cases() if wanted(c.name)]
    singles = [n for n in SINGLE if wanted(n)]
    by_name = [n for n in ASKED if asked is not None and wanted(n)]
    rules = tolerances()
    if hold not in HOLDS:
        raise unknown_name("hold", hold, HOLDS)
    if left_out:
        return _left_out(asked_cases, singles, seed, hold, progress)
    if hold != "fitted":
        raise InputError(f"hold={hold!r} goes with left_out=True alone")
    fitted: dict[str, dict[str, float]] = {}
    rows: list[Row] = []
    rank: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    sensitivity: list[dict[str, Any]] = []
    misses: list[dict[str, Any]] = []
    cache_misses: list[dict[str, Any]] = []

    def parameters(case: Case) -> dict[str, float]:
        if case.name not in fitted:
            fitted[case.name] = stored(case)
        return fitted[case.name]

    runs = Runs()
    for case in asked_cases:
        if progress is not None:
            progress(case.name)
        values = parameters(case)
        runners = [Runner(case, seed + i, runs) for i in range(REPEATS)]
        run = runners[0]
        at = {(f.step, f.quantity): f.parameter for f in case.fits}
        cache_misses += cache_miss_rows(case, runners, values)  # its runs serve for the cells
        cells = case_rows(case, runners, values, rules, at)
        rows += cells
        rank += ranks(cells)
        now = run.figures("base", values)["lock_contention"]
        for name, value in values.items():
            # What a tenth more of the parameter does to the base row's contention.
            more = run.figures("base", {**values, name: 1.1 * value})["lock_contention"]
            sensitivity.append(
                {
                    "source": case.source,
                    "table": case.table,
                    "parameter": name,
                    "value": value,
                    "points_of_base_contention_per_tenth": more - now,
                }
            )
        for row in cells:
            if row.within or row.fitted:
                continue
            for name, value in {**values, **case.given}.items():
                less, more = (
                    run.figures(row.step, {**values, name: factor * value})[row.quantity]
                    for factor in _PROBE
                )
                misses.append(
                    {
                        **row.as_dict(),
                        "parameter": name,
                        "value": value,
                        "with_less": less,
                        "with_more": more,
                    }
                )
        if case.note:
            notes[case.name] = case.note
    for name in singles:
        if progress is not None:
            progress(name)
        answers, fitted[name], notes[name] = SINGLE[name](seed, rules, None)
        rows += answers
    for name in by_name:
        if progress is not None:
            progress(name)
        answers, notes[name] = ASKED[name](rules)
        rows += answers
        rank += ranks(answers)
    for name in reports:
        if progress is not None:
            progress(name)
        answers, notes[name] = report_rows(name, states, rules, seed, machine)
        rows += answers
    predictions = [r for r in rows if not r.fitted]
    told = [r.as_dict() for r in with_constants(rows)]
    facts = {
        "rows": told,
        "null_models": score_null_models(told),
        "cache_misses": cache_misses,
        "fitted": {n: fitted[n] for n in [*(c.name for c in asked_cases), *singles]},
        "rank": rank,
        "sensitivity": sensitivity,
        "misses": misses,
        "predictions": len(predictions),
        "within": sum(r.within for r in predictions),
        "notes": notes,
        **_accounted(asked),
    }
    return _answer(facts)


def _left_out(
    asked: Sequence[Case],
    singles: Sequence[str],
    seed: int,
    hold: str,
    progress: Callable[[str], None] | None,
) -> Answer:
    """Every table by the constants of the other sources."""
    rules = tolerances()
    runs = Runs()
    rows: list[Row] = []
    rank: list[dict[str, Any]] = []
    used: dict[str, Constants] = {}
    for case in asked:
        if progress is not None:
            progress(case.name)
        used[case.name] = of_case(case, stored(case), hold)
        runners = [Runner(case, seed + i, runs) for i in range(REPEATS)]
        cells = case_rows(case, runners, used[case.name].values, rules, {})
        rows += cells
        rank += ranks(cells)
    for name in singles:
        if progress is not None:
            progress(name)
        series = series_of(*name.split("/"))

        def constants(
            workload: str,
            machine: str,
            parameters: Sequence[str],
            shares_cores: bool,
            series: str = series,
        ) -> Mapping[str, float]:
            found = (
                without(series, workload, machine, parameters)
                if hold == "fitted"
                else without_by_misses(series, machine, shares_cores)
            )
            used[f"{name}: {workload}"] = found  # noqa: B023
            return found.values

        rows += SINGLE[name](seed, rules, constants)[0]
    machines = {name.split(":")[0]: found.machine for name, found in used.items()}
    told = left_out_cells(with_constants(rows), machines)
    parameters = [
        {
            "table": table,
            "parameter": parameter,
            "value": found.values.get(parameter),
            "taken_from": ", ".join(found.taken_from.get(parameter, ())),
        }
        for table, found in used.items()
        for parameter in dict.fromkeys([*found.taken_from, *found.values])
    ]
    facts = judged(told)
    counted = inputs(
        machines,
        {
            name: [
                parameter
                for name_, others in found.taken_from.items()
                for parameter in TIMES_OF.get(name_, (name_,))
                if others
            ]
            for name, found in used.items()
        },
        told.groupby(told["source"] + "/" + told["table"]).size().to_dict(),
    )
    constants = len(
        {name for found in used.values() for names in found.taken_from.values() for name in names}
    )
    facts = facts | {
        "constants": constants,
        "inputs": records(counted),
        "rows": records(told),
        "rank": rank,
        "parameters": parameters,
    }
    keys = ["source", "table", "step", "quantity"]
    return Answer(
        {
            "cells": told.set_index(keys),
            "skill": pd.DataFrame(facts["skill"]),
            "inputs": counted,
            "parameters": pd.DataFrame(parameters),
            "rank": pd.DataFrame(rank),
        },
        dict(said_of(facts)),
        facts,
        digest_of(facts),
    )


def _accounted(sources: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    """The published tables that are not compared cell by cell, and why."""
    lists: dict[str, list[dict[str, Any]]] = {"elsewhere": [], "not_modelled": []}
    frame = load_workload("answer-key").tables["accounted"]
    for row in frame.to_dict("records"):
        if sources is None or row["source"] in sources:
            table = load_published(row["source"]).tables[row["table"]]
            lists[row["how"].replace(" ", "_")].append(
                {
                    "source": row["source"],
                    "table": row["table"],
                    "rows": len(table),
                    "reason": row["reason"],
                    **({"place": row["place"]} if row["how"] == "elsewhere" else {}),
                }
            )
    return lists


def _answer(facts: Mapping[str, Any]) -> Answer:
    """The frames and sentences of what was compared."""
    rows = pd.DataFrame(
        {k: v for k, v in row.items() if k != "null_models"}
        | {name: row["null_models"].get(name, {}).get("predicted") for name in NULL_MODELS}
        for row in facts["rows"]
    )
    if len(rows):
        rows["measured_half_width"] = [
            stated_half_width(*cell)
            for cell in zip(rows["source"], rows["table"], rows["step"], strict=True)
        ]
    counts = pd.DataFrame(facts["null_models"])
    summed = counts.groupby("predictor").sum(numeric_only=True) if len(counts) else counts
    by = rows.set_index(["source", "table", "step", "quantity"])
    seen = ["measured", "predicted", "within", "fitted", "measured_change", "predicted_change"]
    predictors = summed.reindex([n for n in ("model", *NULL_MODELS) if n in summed.index])
    keys = ["source", "table", "predictor"]
    fitted = [
        {"table": name, "parameter": parameter, "value": value}
        for name, values in facts["fitted"].items()
        for parameter, value in values.items()
    ]
    others = ("cache_misses", "rank", "sensitivity", "misses", "elsewhere", "not_modelled")
    return Answer(
        {
            "cells": by[[*seen, "change_error", "sign", *NULL_MODELS]],
            "rows": rows,
            "predictors": predictors,
            "by_table": counts.groupby(keys, sort=False).sum(numeric_only=True)
            if len(counts)
            else counts,
            "null_models": counts,
            "fitted": pd.DataFrame(fitted),
            **{name: pd.DataFrame(facts[name]) for name in others},
        },
        dict(_said(rows, predictors, facts["notes"])),
        facts,
        digest_of(facts),
        ("cells", "predictors", "fitted", "cache_misses", "rank", "elsewhere", "not_modelled"),
    )


def _said(
    rows: pd.DataFrame, predictors: pd.DataFrame, notes: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """How many predictions are right, beside the null models; which are not (Markdown)."""
    said = rows[rows["fitted"].isna()]
    yield "within", f"- {said['within'].sum()} of {len(said)} predictions are within tolerance."
    if len(predictors):
        yield from _of_null_models(predictors)
    for (source, table), part in said.groupby(["source", "table"], sort=False):
        wrong = part[~part["within"]]
        missed = "; ".join(
            f"{quantity} of {', '.join(rows['step'])}"
            for quantity, rows in wrong.groupby("quantity", sort=False)
        )
        right = f"{part['within'].sum()} of {len(part)}"
        yield (
            f"{source}/{table}",
            f"- {source}/{table}: {right}" + (f"; outside: {missed}." if missed else "."),
        )
    yield from _against(rows)
    lacking: dict[str, list[str]] = {}
    for name, note in notes.items():
        lacking.setdefault(note, []).append(name)
    for note, names in lacking.items():
        yield (
            f"lacking: {', '.join(names)}",
            f"- Known to be lacking in {', '.join(names)}: {note}",
        )


def _of_null_models(counts: pd.DataFrame) -> Iterator[tuple[str, str]]:
    model = counts.loc["model"]
    others = ", ".join(
        f"{name} {row['within']} of {row['cells']}"
        for name, row in counts.drop(index="model").iterrows()
    )
    yield (
        "null models",
        f"- Of the {model['cells']} that have a row before, {model['within']} are within; with "
        f'the same tolerances {others}. Where neither "nothing changes" nor the row before '
        f"is within, and a prediction can tell something, the model has "
        f"{model['telling_within']} of {model['telling']}.",
    )
    takings = counts.loc["lock takings"] if "lock takings" in counts.index else None
    yield (
        "signs",
        f"- The change from the row before has the measured sign, beyond the model's scatter, "
        f"in {model['signs']} of {model['changes']} cells; of those that changed by more than "
        f"2 % in {model['large_signs']} of {model['large_changes']}"
        + (
            ""
            if takings is None
            else f" (lock takings {takings['large_signs']} of {takings['large_changes']}; the "
            "other null models know no change)"
        )
        + ".",
    )


def _against(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Where the model goes the other way, or nowhere, and the table by more than 2 %."""
    wrong = rows[rows["large_change"] & rows["sign"].isin(["opposite", "none"])]
    for (source, table, quantity), part in wrong.groupby(
        ["source", "table", "quantity"], sort=False
    ):
        cells = "; ".join(
            f"{r.step} {r.measured_change:+.1f} measured, {r.predicted_change:+.1f} "
            f"modelled (scatter {r.change_error:.1f})"
            for r in part.itertuples()
        )
        yield (
            f"sign: {source}/{table}, {quantity}",
            f"- {source}/{table}, {quantity} does not move as measured: {cells}.",
        )

"""Published tables as an answer key: what was measured, what the simulator says.

A *case* is one published table: a workload on a machine under a row of kernels.  Nothing is fitted
to any of them: times come from the machine's cost sheet, pages from the workload's recording, and
what no source states is assumed, the same for all.  The forms of the workloads, and some
assumptions, were chosen with the tables in view.  Tolerances are data
(``data/workload/answer-key``).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.errors import InputError, integer, unknown_name
from pcpmodel.files import digest_of
from pcpmodel.hardware.machines import Machine
from pcpmodel.hardware.machines import machine as find_machine
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.study.answer import Answer, records
from pcpmodel.study.published.asked import ASKED
from pcpmodel.study.published.cases import cases
from pcpmodel.study.published.inputs import inputs
from pcpmodel.study.published.judge import SKILL, cells_of, judged, said_of
from pcpmodel.study.published.model import REPEATS, Runner, cache_miss_rows, case_rows, ends
from pcpmodel.study.published.null_models import NULL_MODELS, score_null_models
from pcpmodel.study.published.repeats import stated_half_width
from pcpmodel.study.published.report import is_report, report_rows
from pcpmodel.study.published.rows import Row, ranks, tolerances, with_constants
from pcpmodel.study.published.shared import Runs
from pcpmodel.study.published.single import SINGLE

__all__ = ["compare"]


def compare(
    source: str | Sequence[str] | None = None,
    *,
    seed: int = 1,
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
        Of every run; each row is also run with the next two.
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
        ``cells``: by source, table, step and quantity what was measured and predicted, its
        interval (seeds, and what the cost sheet allows), its error, what each null model predicts
        and which of them is as good (`cells_of`); ``skill``: by quantity, mean error beside that of
        the best null model; ``rows``: one row per cell with its tolerance, and whether its change
        from the row before has the measured ``sign``, how many inputs of its table were ``fitted``,
        to figures of ``fitted_to``.  ``null_models``: per table, column and
        predictor the cells and signs that are right (`score_null_models`), summed in ``predictors``
        and ``by_table``.  ``inputs`` of every table by where they come from; ``rank``: Spearman
        correlation of the rows per column; ``cache_misses``: the published rate [% of accesses]
        beside the share of allocated pages that no cache of the node held [%]; ``elsewhere`` and
        ``not_modelled``: the published tables that are not compared, and the reason.  Its facts
        are those of `judged`, and the tables.

    Raises
    ------
    InputError
        For a source without a modelled table.
    """
    asked = None if source is None else [source] if isinstance(source, str) else list(source)
    if asked == []:
        raise InputError(
            f"source={source!r} names nothing to compare; allowed: None (all), or sources of "
            "data/published or their tables"
        )
    integer("seed", seed, 0, 2**63 - REPEATS)
    reports = [name for name in asked or () if is_report(name)]
    states = _before_and_after(reports, releases, machine)
    names = [*(c.name for c in cases()), *SINGLE, *ASKED]
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
    begun = progress or (lambda name: None)
    rows: list[Row] = []
    rank: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    cache_misses: list[dict[str, Any]] = []
    runs = Runs()
    for case in asked_cases:
        begun(case.name)
        runners = [Runner(case, seed + i, runs) for i in range(REPEATS)]
        cache_misses += cache_miss_rows(case, runners)
        allowed = ends(find_machine(case.run["machine"]))
        rows += case_rows(case, runners, rules, [Runner(case, seed, runs, on) for on in allowed])
        if case.note:
            notes[case.name] = case.note
    for name in singles:
        begun(name)
        answers, notes[name] = SINGLE[name](seed, rules)
        rows += answers
    for name in by_name:
        begun(name)
        answers, notes[name] = ASKED[name](rules)
        rows += answers
    rank += ranks([row for row in rows if f"{row.source}/{row.table}" not in singles])
    for name in reports:
        begun(name)
        answers, notes[name] = report_rows(name, states, rules, seed, machine)
        rows += answers
    rows = with_constants(rows)
    told = [row.as_dict() for row in rows]
    cells = cells_of(rows, by_name)
    facts = judged(cells)
    counted = inputs(
        [*(c.name for c in asked_cases), *singles],
        cells.groupby(cells["source"] + "/" + cells["table"]).size().to_dict(),
    )
    facts |= {
        "rows": told,
        "null_models": score_null_models(told),
        "inputs": records(counted),
        "cache_misses": cache_misses,
        "rank": rank,
        "predictions": len(rows),
        "within": sum(r.within for r in rows),
        "notes": notes,
        **_accounted(asked),
    }
    return _answer(facts, cells, counted)


def _before_and_after(
    reports: Sequence[str],
    releases: Sequence[str | Release] | None,
    machine: str | Machine | None,
) -> list[Release]:
    """What the commits of reports stand for; nothing where there is none."""
    if reports and (releases is None or isinstance(releases, str) or len(releases) != 2):
        raise InputError(
            f"{reports[0]}: name two releases that its commits stand for (releases=, --before and "
            f"--after), given {releases!r}"
        )
    if not reports and (releases is not None or machine is not None):
        raise InputError("releases and machine go with a report that was brought in alone")
    return [find_release(each) for each in releases or ()]


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


def _with_fitted(rows: pd.DataFrame, counted: pd.DataFrame) -> pd.DataFrame:
    """How many inputs of each row's table were fitted, over its workloads, and to what."""
    if not len(counted):
        return rows
    tables = counted.groupby(counted["table"].str.partition(":")[0])[["fitted", "fitted_to"]]
    known = tables.agg({"fitted": "sum", "fitted_to": "max"})
    names = rows["source"] + "/" + rows["table"]
    return rows.assign(**{column: names.map(known[column]) for column in known})


def _answer(facts: Mapping[str, Any], cells: pd.DataFrame, counted: pd.DataFrame) -> Answer:
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
        rows = _with_fitted(rows, counted)
    counts = pd.DataFrame(facts["null_models"])
    summed = counts.groupby("predictor").sum(numeric_only=True) if len(counts) else counts
    predictors = summed.reindex([n for n in ("model", *NULL_MODELS) if n in summed.index])
    keys = ["source", "table", "predictor"]
    named = ["source", "table"]
    others = {
        "cache_misses": [*named, "step", "measured_rate", "not_in_cache"],
        "rank": [*named, "quantity", "spearman"],
        "elsewhere": named,
        "not_modelled": named,
    }
    return Answer(
        {
            "cells": cells.set_index(["source", "table", "step", "quantity"]),
            "skill": pd.DataFrame(facts["skill"], columns=[*SKILL]),
            "rows": rows,
            "predictors": predictors,
            "by_table": counts.groupby(keys, sort=False).sum(numeric_only=True)
            if len(counts)
            else counts,
            "null_models": counts,
            "inputs": counted,
            # One without rows has its columns all the same.
            **{
                name: pd.DataFrame(facts[name], columns=None if facts[name] else columns)
                for name, columns in others.items()
            },
        },
        dict(_said(rows, predictors, facts)),
        facts,
        digest_of(facts),
        ("cells", "skill", "predictors", "inputs", *others),
    )


def _said(
    rows: pd.DataFrame, predictors: pd.DataFrame, facts: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """How many predictions are right, beside the null models; which are not (Markdown)."""
    said = rows
    yield "within", f"- {said['within'].sum()} of {len(said)} predictions are within tolerance."
    yield from said_of(facts)
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
    for name, note in facts["notes"].items():
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
        f"the same tolerances {others}."
        + (
            ' Where neither "nothing changes" nor the row before is within, and a prediction can '
            f"tell something, the model has {model['telling_within']} of {model['telling']}."
            if model["telling"]
            else ""
        ),
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

"""How well the hold-time curves fit, over one machine or many."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from pcpmodel.hardware.hold_time import LEVEL, SIDES, STATISTICS
from pcpmodel.hardware.machines import Machine, digest, load_machines
from pcpmodel.study.answer import Answer, exact_records

__all__ = ["fit"]

#: Columns of the outliers that it shows.
_OUTLIERS = ["machine", "side", "statistic", "batch", "measured_us", "expected_us"]
_OUTLIERS += ["fitted_us", "fitted_all_us", "low_us", "high_us"]


def fit(machine: str | Machine | Iterable[str | Machine] | None = None) -> Answer:
    """Fit the cost of one zone-lock hold on one machine, several, or all (None).

    Parameters
    ----------
    machine : str, Machine, iterable of these, optional
        Which machines; all if not given.

    Returns
    -------
    Answer
        ``chosen``: the form chosen for every curve, ``forms``: every candidate, with its
        evidence; ``points``: measured and fitted time [us] (``fitted_us`` without the outliers,
        ``fitted_all_us`` through all rows), interval [us], residual of the former [%],
        ``outlier`` mark, and whether the row is ``outside`` its interval, or was ``made`` of what
        else is known, for a machine of which no hold was measured; ``outliers``: the rows
        that the others do not expect, with what these say of them; ``lines``: fitted curves and
        their intervals [us] over 1..8192 pages; ``measured``: the measured tables, as they are;
        ``curves`` and ``doubts``: form and residuals of each curve, and the outliers, in short.

    Raises
    ------
    InputError
        If a machine is unknown or its table is too short.
    """
    machines = load_machines(machine)
    points = pd.concat(
        [m.hold_time.points.assign(made=m.derived is not None) for m in machines],
        ignore_index=True,
    )
    forms = pd.DataFrame(
        {
            "machine": machine.name,
            "kind": machine.platform.get("kind") or "kind not known",
            "side": side,
            "statistic": statistic,
            "form": candidate.form.name,
            "chosen": candidate is curve.chosen,
            "a_ns": candidate.a_ns,
            "b_ns": candidate.b_ns,
            "c": candidate.exponent,
            "weight": candidate.weight,
            "elpd_loo": candidate.elpd,
            "aicc": candidate.aicc,
            "loo_rms_percent": candidate.loo_percent,
            "max_residual_percent": candidate.max_residual_percent,
        }
        for machine in machines
        for (side, statistic), curve in machine.hold_time.curves.items()
        for candidate in curve.candidates
    )
    chosen = forms[forms["chosen"]].drop(columns="chosen").reset_index(drop=True)
    outliers = points[points["outlier"]].drop(columns=["outlier", "made"]).reset_index(drop=True)
    measured = pd.concat({m.name: m.latency for m in machines}, names=["machine"])
    residuals = (
        points[~points["outlier"]]
        .groupby(["machine", "side", "statistic"], sort=False)["residual_percent"]
        .agg(lowest_percent="min", highest_percent="max")
    )
    names = ["machine", "side", "statistic", "form", "a_ns", "b_ns", "c", "weight"]
    each = [_facts(m, points, outliers) for m in machines]
    return Answer(
        {
            "chosen": chosen,
            "forms": forms,
            "points": points,
            "outliers": outliers,
            "lines": pd.concat([m.hold_time.lines() for m in machines], ignore_index=True),
            "measured": measured.droplevel(1).reset_index(),
            "curves": chosen[names].merge(residuals.reset_index()).round(3),
            "doubts": outliers[_OUTLIERS].round(2),
        },
        {
            f"note {i}: {m.name}": f"- {note}"
            + " The curves are of rows made so: how near they come to them says nothing of the "
            "machine." * (note == m.derived)
            for m in machines
            for i, note in enumerate(m.notes, 1)
        }
        | dict(_said(forms, chosen, points, outliers)),
        each[0] if len(each) == 1 else {"machines": each},
        digest(machines),
        ("curves", "doubts"),
    )


def _facts(machine: Machine, points: pd.DataFrame, outliers: pd.DataFrame) -> dict[str, Any]:
    """The fit of one machine."""
    curves = machine.hold_time.curves
    rows, beside = (
        t[t["machine"] == machine.name] for t in (points.drop(columns="made"), outliers)
    )
    return {
        "machine": machine.name,
        "digest": machine.digest,
        "interval_level": LEVEL,
        **{side: {s: curves[side, s].as_dict() for s in STATISTICS} for side in SIDES},
        "residuals": exact_records(rows.drop(columns="machine")),
        "outliers": exact_records(beside.drop(columns="machine")),
    }


def _said(
    forms: pd.DataFrame, chosen: pd.DataFrame, points: pd.DataFrame, outliers: pd.DataFrame
) -> Iterator[tuple[str, str]]:
    means = forms[forms["statistic"] == "mean"]
    drain = means[(means["side"] == "drain") & (means["form"] == "affine")]
    refill = means[means["side"] == "refill"]
    yield (
        "drains",
        f"- **Drains:** affine, `a + b n`, misses the mean by at most "
        f"{drain['max_residual_percent'].max():.1f} % "
        f"({_range(drain['a_ns'], '.0f')} ns a hold, "
        f"{_range(drain['b_ns'], '.1f')} ns a page).",
    )
    for kind, rows in refill.groupby("kind"):
        by_form = dict(iter(rows.groupby("form")))
        power, affine = by_form["power"], by_form["affine"]
        yield (
            f"refills, {kind}",
            f"- **Refills, {kind}:** exponent "
            f"{_range(power['c'], '.2f')} as a power law; affine misses by up to "
            f"{affine['max_residual_percent'].max():.1f} % and has "
            f"{_range(100 * affine['weight'], '.0f')} % of the evidence; the chosen forms "
            f"miss by up to {rows[rows['chosen']]['max_residual_percent'].max():.1f} %.",
        )
    missed = chosen.groupby("statistic")["max_residual_percent"].max()
    yield (
        "99th percentiles",
        f"- **99th percentiles** are {'' if missed['p99'] > missed['mean'] else 'no '}rougher: the "
        f"chosen forms miss by up to {missed['p99']:.1f} %.",
    )
    for row in outliers.itertuples():
        yield (
            f"both ways: {row.machine}, {row.side} {row.statistic} at {row.batch}",
            f"- **Read both ways:** {row.machine}, {row.side} {row.statistic} at batch "
            f"{row.batch}: {row.measured_us:.2f} us measured; {row.fitted_us:.2f} us by the "
            f"fit without such rows, {row.fitted_all_us:.2f} us through all. The interval, "
            f"{row.low_us:.2f} to {row.high_us:.2f} us, is of both: the table alone does not "
            "tell a disturbed row from a bend of the curve.",
        )
    for row in points[points["outside"]].itertuples():
        yield (
            f"outside: {row.machine}, {row.side} {row.statistic} at {row.batch}",
            f"- **Outside its interval:** {row.machine}, {row.side} {row.statistic} at batch "
            f"{row.batch}: {row.measured_us:.2f} us measured, {row.low_us:.2f} to "
            f"{row.high_us:.2f} us stated. One row in twenty is expected to be.",
        )


def _range(values: pd.Series, spec: str) -> str:
    low, high = format(values.min(), spec), format(values.max(), spec)
    return low if low == high else f"{low} to {high}"

"""How well the hold-time curves fit, over one machine or many."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from pcpmodel.machine import Machine, digest, load_machines
from pcpmodel.machine.hold_time import LEVEL, SIDES, STATISTICS

__all__ = ["Fit", "fit"]


class Fit:
    """Hold-time curves of some machines, as frames.

    Attributes
    ----------
    machines : tuple of Machine
    points : pandas.DataFrame
        Measured and fitted time [us], residual [%] and outlier mark of every row.
    lines : pandas.DataFrame
        Fitted curves and their intervals [us] over 1..8192 pages.
    forms : pandas.DataFrame
        Every candidate form of every curve, with its evidence.
    digest : str
        Of the data behind all this.
    """

    def __init__(self, machines: tuple[Machine, ...]) -> None:
        self.machines = machines
        self.points = pd.concat([m.hold_time.points for m in machines], ignore_index=True)
        self.lines = pd.concat([m.hold_time.lines() for m in machines], ignore_index=True)
        self.forms = pd.DataFrame(
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
        self.digest = digest(machines)

    @property
    def measured(self) -> pd.DataFrame:
        """The measured tables, as they are, one below the other."""
        tables = {machine.name: machine.latency for machine in self.machines}
        return pd.concat(tables, names=["machine"]).droplevel(1).reset_index()

    @property
    def chosen(self) -> pd.DataFrame:
        """The form chosen for every curve."""
        return self.forms[self.forms["chosen"]].drop(columns="chosen").reset_index(drop=True)

    @property
    def outliers(self) -> pd.DataFrame:
        """The rows left out, with what the other rows say of them."""
        return self.points[self.points["outlier"]].drop(columns="outlier").reset_index(drop=True)

    def as_dict(self) -> dict[str, Any]:
        """The fit of the one machine, ready for JSON."""
        (machine,) = self.machines
        curves = machine.hold_time.curves
        return {
            "machine": machine.name,
            "digest": machine.digest,
            "interval_level": LEVEL,
            **{side: {s: curves[side, s].as_dict() for s in STATISTICS} for side in SIDES},
            "residuals": _records(self.points),
            "outliers": _records(self.outliers),
        }

    def table(self) -> str:
        """Forms chosen, residuals and outliers as text."""
        forms = self.chosen[
            ["machine", "side", "statistic", "form", "a_ns", "b_ns", "c", "weight"]
        ].merge(
            self.points[~self.points["outlier"]]
            .groupby(["machine", "side", "statistic"], sort=False)["residual_percent"]
            .agg(lowest_percent="min", highest_percent="max")
            .reset_index()
        )
        blocks = [f"Hold time a + b n^c\n{forms.round(3).to_string(index=False)}"]
        if len(self.outliers):
            columns = ["machine", "side", "statistic", "batch", "measured_us", "expected_us"]
            left_out = self.outliers[columns].round(2).to_string(index=False)
            blocks.append(f"Outliers, left out of the fit\n{left_out}")
        return "\n\n".join(blocks)

    def summary(self) -> str:
        """The findings in sentences (Markdown)."""
        means = self.forms[self.forms["statistic"] == "mean"]
        drain = means[(means["side"] == "drain") & (means["form"] == "affine")]
        refill = means[means["side"] == "refill"]
        lines = [
            f"**Drains:** affine, `a + b n`, misses the mean by at most "
            f"{drain['max_residual_percent'].max():.1f} % "
            f"({_range(drain['a_ns'], '.0f')} ns a hold, "
            f"{_range(drain['b_ns'], '.1f')} ns a page)."
        ]
        for kind, rows in refill.groupby("kind"):
            by_form = dict(iter(rows.groupby("form")))
            power, affine = by_form["power"], by_form["affine"]
            lines.append(
                f"**Refills, {kind}:** exponent "
                f"{_range(power['c'], '.2f')} as a power law; affine misses by up to "
                f"{affine['max_residual_percent'].max():.1f} % and has "
                f"{_range(100 * affine['weight'], '.0f')} % of the evidence; the chosen forms "
                f"miss by up to {rows[rows['chosen']]['max_residual_percent'].max():.1f} %."
            )
        p99 = self.chosen[self.chosen["statistic"] == "p99"]
        lines.append(
            f"**99th percentiles** are rougher: the chosen forms miss by up to "
            f"{p99['max_residual_percent'].max():.1f} %."
        )
        for row in self.outliers.itertuples():
            lines.append(
                f"**Left out:** {row.machine}, {row.side} {row.statistic} at batch {row.batch}: "
                f"{row.measured_us:.2f} us measured, {row.expected_us:.2f} us by the other rows "
                f"({row.residual_percent:+.0f} % of the measured)."
            )
        return "\n".join(f"- {line}" for line in lines)


def _records(points: pd.DataFrame) -> list[dict[str, Any]]:
    plain = points.drop(columns="machine").astype(object)
    return plain.where(plain.notna(), None).to_dict("records")


def _range(values: pd.Series, spec: str) -> str:
    low, high = format(values.min(), spec), format(values.max(), spec)
    return low if low == high else f"{low} to {high}"


def fit(machines: str | Machine | Iterable[str | Machine] | None = None) -> Fit:
    """Fit the cost of one zone-lock hold on one machine, several, or all (None).

    Parameters
    ----------
    machines : str, Machine, iterable of these, optional
        Which machines; all if not given.

    Returns
    -------
    Fit
        Tables of the curves, their residuals and outliers, and a summary.

    Raises
    ------
    InputError
        If a machine is unknown or its table is too short.
    """
    return Fit(load_machines(machines))

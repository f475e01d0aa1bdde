"""The service-level question: how far may a batch be scaled up?

A hold of the zone lock that moves ``batch << k`` pages must end within a limit.
The batch is that of a zone of 1 GB or more (zone_batchsize(), 63 pages with 4 KiB
pages), k the batch scale factor that CONFIG_PCP_BATCH_SCALE_MAX bounds (v6.7).

*Slower side*: the larger of refill and drain.  Its predictive distribution is the
product of the two sides' (:class:`~pcpmodel.machine.hold_time.Prediction`),
as if their errors were independent; where they go together, as in a disturbed
measurement, the true probability is higher.  The time given is the median of that
distribution, so a scale is inside the limit when its probability exceeds one half.
What it predicts is another measured table of the machine.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from pcpmodel.errors import InputError
from pcpmodel.machine import Machine, digest, load, load_machines
from pcpmodel.machine.hold_time import LEVEL, SIDES, Floats

__all__ = ["BATCH", "SCALES", "Limit", "Limits", "limit", "limits"]

BATCH = 63
SCALES = range(7)  # CONFIG_PCP_BATCH_SCALE_MAX, "range 0 6"
KERNEL_SCALE = 5  # its default
NOT_RULED_OUT = 0.05  # probability from which a scale beyond the answer is mentioned
SMALLEST, LARGEST = 1e-6, 1e9  # of a limit [us] and of a slowdown
BESIDE = 0.05  # a measured row stands beside a batch that it is this near to


@dataclass(frozen=True, eq=False)
class Limit:
    """Answer of :func:`limit`.

    Attributes
    ----------
    machine, p99_us, slowdown
        The question.
    batch_scale : int or None
        Largest scale whose 99th percentile stays under the limit; None if not even 0.
    probability : float
        That it does (of scale 0 where ``batch_scale`` is None).
    mean_batch_scale : int or None
        The same for the mean in place of the 99th percentile.
    per_scale : pandas.DataFrame
        One row per scale: times and intervals of the slower side [us],
        probabilities, and the measured row beside it (NaN where none is near).
    curve : pandas.DataFrame
        Probability against the limit, for every scale.
    digest : str
    """

    machine: str
    p99_us: float
    slowdown: float
    batch_scale: int | None
    probability: float
    mean_batch_scale: int | None
    per_scale: pd.DataFrame
    curve: pd.DataFrame
    digest: str

    @property
    def notes(self) -> list[str]:
        """What to know before using the answer."""
        notes = []
        if self.batch_scale is None:
            first = self.per_scale.iloc[0]
            notes.append(
                f"Not even the unscaled batch stays under {self.p99_us:g} us: "
                f"{first['p99_us']:.2f} us for {first['batch']} pages."
            )
        beyond = 0 if self.batch_scale is None else self.batch_scale + 1
        if beyond in SCALES and self.per_scale["probability"][beyond] > NOT_RULED_OUT:
            row = self.per_scale.iloc[beyond]
            notes.append(
                f"Scale {beyond} is not ruled out: probability {row['probability']:.2f}, "
                f"{row['p99_us']:.1f} us ({row['p99_low_us']:.1f} to {row['p99_high_us']:.1f} us)."
            )
        for row in self.per_scale.itertuples():
            over = row.measured_p99_us >= self.p99_us
            if np.isfinite(row.measured_p99_us) and over != (row.probability <= 0.5):
                notes.append(
                    f"At batch {row.measured_batch:.0f} the measured {row.measured_p99_us:.2f} us"
                    f"{' (an outlier, left out of the fit)' if row.measured_outlier else ''} is "
                    f"{'over' if over else 'under'} the limit, the fitted {row.p99_us:.2f} us for "
                    f"{row.batch} pages is not."
                )
        if (
            self.batch_scale is not None
            and self.per_scale["measured_batch"].isna()[self.batch_scale]
        ):
            notes.append(
                f"Batch {BATCH << self.batch_scale} was not measured: its time is extrapolated."
            )
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "machine": self.machine,
            "digest": self.digest,
            "p99_us": self.p99_us,
            "slowdown": self.slowdown,
            "batch_scale": self.batch_scale,
            "probability": self.probability,
            "mean_batch_scale": self.mean_batch_scale,
            "interval_level": LEVEL,
            "per_scale": [
                {
                    "batch_scale": int(row.batch_scale),
                    "batch": int(row.batch),
                    "p99_us": row.p99_us,
                    "interval": [row.p99_low_us, row.p99_high_us],
                    "probability": row.probability,
                    "slower_side": row.slower_side,
                    "mean_us": row.mean_us,
                    "mean_interval": [row.mean_low_us, row.mean_high_us],
                    "mean_probability": row.mean_probability,
                    "measured": {
                        "batch": int(row.measured_batch),
                        "p99_us": row.measured_p99_us,
                        "mean_us": row.measured_mean_us,
                        "outlier": bool(row.measured_outlier),
                    }
                    if np.isfinite(row.measured_batch)
                    else None,
                }
                for row in self.per_scale.itertuples()
            ],
            "notes": self.notes,
        }

    def table(self) -> str:
        """The answer and every scale as text."""
        columns = [
            *("batch_scale", "batch", "p99_us", "p99_low_us", "p99_high_us", "probability"),
            *("slower_side", "measured_batch", "measured_p99_us", "mean_us", "mean_probability"),
        ]
        rows = self.per_scale[columns].round(3)
        rows["measured_batch"] = [
            f"{b:g}" if np.isfinite(b) else "-" for b in rows["measured_batch"]
        ]
        return (
            f"{self.machine}: {_answer(self.per_scale, self.batch_scale, 'p99', 'probability')}\n"
            f"{rows.to_string(index=False, na_rep='-')}" + "".join(f"\n* {n}" for n in self.notes)
        )

    def summary(self) -> str:
        """The answer in sentences (Markdown)."""
        slower = "" if self.slowdown == 1 else f" on a CPU {self.slowdown:g}x slower"
        lines = [
            f"**{self.machine}{slower}, p99 under {self.p99_us:g} us:** "
            + _answer(self.per_scale, self.batch_scale, "p99", "probability"),
            "**By the mean** in place of the 99th percentile: "
            + _answer(self.per_scale, self.mean_batch_scale, "mean", "mean_probability"),
        ]
        return "\n".join(f"- {line}" for line in [*lines, *self.notes])


def _answer(per_scale: pd.DataFrame, scale: int | None, statistic: str, probability: str) -> str:
    if scale is None:
        return "no batch scale factor stays under it."
    row = per_scale.iloc[scale]
    measured = row[f"measured_{statistic}_us"]
    return (
        f"largest batch scale factor {scale} ({row['batch']} pages), probability "
        f"{row[probability]:.2f}; {row[f'{statistic}_us']:.1f} us "
        f"({row[f'{statistic}_low_us']:.1f} to {row[f'{statistic}_high_us']:.1f} us)"
        + (
            f", measured {measured:.2f} us at batch {row['measured_batch']:.0f}."
            if np.isfinite(measured)
            else ", not measured."
        )
    )


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real | np.number):
        raise InputError(
            f"{name}={value!r} is not a number; give one from {SMALLEST:g} to {LARGEST:g}."
        )
    number = float(value)
    if not SMALLEST <= number <= LARGEST:
        raise InputError(f"{name}={value!r}: give a number from {SMALLEST:g} to {LARGEST:g}.")
    return number


class _Slower:
    """The slower of the two sides for ``pages``, in one statistic."""

    def __init__(self, machine: Machine, statistic: str, pages: int, slowdown: float) -> None:
        curves = machine.hold_time.curves
        self.sides = [curves[side, statistic].predict(pages) for side in SIDES]
        self.us_per_ns = slowdown / 1e3

    @property
    def name(self) -> str:
        """Which side it is."""
        return SIDES[int(np.argmax([side.location[0] for side in self.sides]))]

    def probability(self, time_us: ArrayLike) -> Floats:
        """That both sides stay under ``time_us``."""
        at_ns = np.atleast_1d(time_us) / self.us_per_ns
        return np.prod([side.probability_under(at_ns) for side in self.sides], axis=0)

    def quantile_us(self, q: float) -> float:
        """Time that the slower side stays under with probability ``q`` [us]."""
        # Each side is under it with at least q, and one of them with at most sqrt(q).
        low, high = (
            self.us_per_ns * off * max(float(side.quantile_ns(p)[0]) for side in self.sides)
            for p, off in ((q, 1 - 1e-6), (math.sqrt(q), 1 + 1e-6))  # and rounding
        )
        return brentq(lambda us: self.probability(us)[0] - q, low, high, rtol=1e-10)


def _largest(inside: Iterable[bool]) -> int | None:
    """Largest scale such that it and every smaller one are inside."""
    largest = None
    for scale, ok in zip(SCALES, inside, strict=True):
        if not ok:
            break
        largest = scale
    return largest


def limit(machine: str | Machine, p99_us: float = 100.0, slowdown: float = 1.0) -> Limit:
    """Find the largest batch scale factor that keeps a hold under a limit.

    Parameters
    ----------
    machine : str or Machine
        The machine measured.
    p99_us : float
        Limit of the 99th percentile of one hold of the zone lock [us]; > 0.
    slowdown : float
        Times of the machine measured are multiplied by this (2: a CPU half as fast); > 0.

    Returns
    -------
    Limit

    Raises
    ------
    InputError
        If the machine is unknown, its table too short, or a number not above 0.
    """
    p99_us, slowdown = _positive("p99_us", p99_us), _positive("slowdown", slowdown)
    machine = load(machine)
    rows, curve = [], []
    at_us = np.geomspace(p99_us / 10, p99_us * 10, 201)
    for scale in SCALES:
        pages = BATCH << scale
        p99, mean = (_Slower(machine, s, pages, slowdown) for s in ("p99", "mean"))
        row: dict[str, Any] = {"machine": machine.name, "slowdown": slowdown}
        row |= {"batch_scale": scale, "batch": pages, "slower_side": p99.name}
        for name, slower in (("p99", p99), ("mean", mean)):
            row |= {
                f"{name}_us": slower.quantile_us(0.5),
                f"{name}_low_us": slower.quantile_us((1 - LEVEL) / 2),
                f"{name}_high_us": slower.quantile_us((1 + LEVEL) / 2),
            }
        row["probability"] = p99.probability(p99_us)[0]
        row["mean_probability"] = mean.probability(p99_us)[0]
        rows.append(row | _measured(machine, pages, slowdown))
        probability = p99.probability(at_us)
        curve.append(
            pd.DataFrame(
                {
                    "machine": machine.name,
                    "batch_scale": scale,
                    "limit_us": at_us,
                    "probability": probability,
                }
            )
        )
    per_scale = pd.DataFrame(rows)
    batch_scale = _largest(per_scale["probability"] > 0.5)
    return Limit(
        machine=machine.name,
        p99_us=p99_us,
        slowdown=slowdown,
        batch_scale=batch_scale,
        probability=float(per_scale["probability"][batch_scale or 0]),
        mean_batch_scale=_largest(per_scale["mean_probability"] > 0.5),
        per_scale=per_scale,
        curve=pd.concat(curve, ignore_index=True),
        digest=machine.digest,
    )


def _measured(machine: Machine, pages: int, slowdown: float) -> dict[str, Any]:
    """The measured row nearest to ``pages``, scaled by the slowdown."""
    table = machine.latency
    at = int(np.abs(np.log(table["batch"] / pages)).to_numpy().argmin())
    row = table.iloc[at]
    near = abs(row["batch"] / pages - 1) <= BESIDE
    p99 = {
        s: row[c] for s, c in (("refill", "alloc_latency_p99_us"), ("drain", "free_latency_p99_us"))
    }
    side = max(p99, key=p99.__getitem__)
    mean = max(row["alloc_latency_avg_us"], row["free_latency_avg_us"])
    return {
        "measured_batch": row["batch"] if near else np.nan,
        "measured_p99_us": slowdown * p99[side] if near else np.nan,
        "measured_mean_us": slowdown * mean if near else np.nan,
        "measured_outlier": bool(near and machine.hold_time.curves[side, "p99"].outlier[at]),
    }


@dataclass(frozen=True, eq=False)
class Limits:
    """Answer of :func:`limits`.

    Attributes
    ----------
    answers : pandas.DataFrame
        One row per limit, slowdown and machine: ``batch_scale`` and
        ``mean_batch_scale`` (<NA>: not even 0), ``probability``, and ``needed_us``, the
        limit that the kernel's default scale of 5 would need, with its interval.
    per_scale : pandas.DataFrame
        The rows of :attr:`Limit.per_scale`, with ``limit_us``.
    notes : tuple of str
    digest : str
    """

    answers: pd.DataFrame
    per_scale: pd.DataFrame
    notes: tuple[str, ...]
    digest: str

    @property
    def scales(self) -> pd.DataFrame:
        """``batch_scale`` of every slowdown and machine (rows) by limit (columns)."""
        return self.answers.pivot(
            index=["slowdown", "machine"], columns="limit_us", values="batch_scale"
        )

    def summary(self) -> str:
        """The answers in sentences (Markdown)."""
        lines = []
        for (limit_us, slowdown), rows in self.answers.groupby(["limit_us", "slowdown"]):
            cpu = "as measured" if slowdown == 1 else f"on CPUs {slowdown:g}x slower"
            lines.append(
                f"**p99 under {limit_us:g} us, {cpu}:** "
                + ", ".join(
                    f"{row.machine} {_scale(row.batch_scale)} ({row.probability:.2f})"
                    for row in rows.itertuples()
                )
                + f"; by the mean: {', '.join(_scale(k) for k in rows['mean_batch_scale'])}. "
                f"Scale {KERNEL_SCALE} would need a limit of {rows['needed_us'].min():.0f} to "
                f"{rows['needed_us'].max():.0f} us."
            )
        return "\n".join(f"- {line}" for line in [*lines, *self.notes])


def _scale(scale: Any) -> str:
    return "none" if pd.isna(scale) else str(scale)


def limits(
    machines: str | Machine | Iterable[str | Machine] | None = None,
    p99_us: float | Iterable[float] = 100.0,
    slowdown: float | Iterable[float] = (1.0, 2.0, 4.0),
) -> Limits:
    """Ask :func:`limit` of several machines, limits and slower CPUs.

    Parameters
    ----------
    machines : str, Machine, iterable of these, optional
        Which machines; all if not given.
    p99_us : float or iterable of float
        Limits of the 99th percentile [us]; > 0.
    slowdown : float or iterable of float
        Factors on the measured times; > 0.

    Returns
    -------
    Limits
        One row per machine, limit and factor, and per batch scale factor.

    Raises
    ------
    InputError
        As :func:`limit`.
    """
    loaded = load_machines(machines)
    asked, factors = (
        list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        for given in (p99_us, slowdown)
    )
    found = [limit(m, us, factor) for us in asked for factor in factors for m in loaded]
    if not found:
        raise InputError("p99_us and slowdown: give at least one of each.")
    answers = pd.DataFrame(
        {
            "machine": one.machine,
            "limit_us": one.p99_us,
            "slowdown": one.slowdown,
            "batch_scale": one.batch_scale,
            "probability": one.probability,
            "mean_batch_scale": one.mean_batch_scale,
            "needed_us": one.per_scale["p99_us"][KERNEL_SCALE],
            "needed_low_us": one.per_scale["p99_low_us"][KERNEL_SCALE],
            "needed_high_us": one.per_scale["p99_high_us"][KERNEL_SCALE],
        }
        for one in found
    )
    return Limits(
        answers=answers.astype({"batch_scale": "Int64", "mean_batch_scale": "Int64"}),
        per_scale=pd.concat(
            [one.per_scale.assign(limit_us=one.p99_us) for one in found], ignore_index=True
        ),
        notes=tuple(
            f"{one.machine}, {one.p99_us:g} us, {one.slowdown:g}x: {note}"
            for one in found
            for note in one.notes
        ),
        digest=digest(loaded),
    )

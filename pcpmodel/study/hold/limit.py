"""The service-level question: how far may a batch be scaled up?

A hold of the zone lock must end within a limit.  What a hold moves is ``batch << k``
pages, k the batch scale factor that CONFIG_PCP_BATCH_SCALE_MAX bounds (v6.7 on), of a
zone of 1 GiB or more (zone_batchsize(): 63 pages of 4 KiB, 15 of 16 KiB, 3 of 64 KiB).
Up to v6.18 refills and drains both move that many; since v6.19 a drain is cut and moves
one batch per hold, so only refills scale.

*Slower side*: the larger of refill and drain.  Its predictive distribution is the
product of the two sides' (:class:`~pcpmodel.hardware.hold_time.Prediction`),
as if their errors were independent; where they go together, as in a disturbed
measurement, the true probability is higher.  The time given is the median of that
distribution, so a scale is inside the limit when its probability exceeds one half.
What it predicts is another measured table of the machine.

Such tables are of pages that had just been used.  Of pages that no cache has any more each block
costs the lines of its struct page in addition: how many, and what one takes, is
:data:`~pcpmodel.hardware.sheet.COLD_LINES` and the machine's own
:attr:`~pcpmodel.hardware.machines.Machine.line_memory`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import stdtr, stdtrit

from pcpmodel.errors import InputError, integer, unknown_name
from pcpmodel.hardware.hold_time import COLUMNS, LEVEL, SIDES, STATISTICS, Floats, exp
from pcpmodel.hardware.machines import Machine, digest, load_machines
from pcpmodel.hardware.sheet import COLD_LINES
from pcpmodel.kernel import sizing
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.study.answer import Answer

__all__ = ["KERNEL_SCALE", "PAGES", "RELEASE", "SCALES", "bounds_drains", "limit", "positive"]

RELEASE = "v6.18"  # the newest whose refills and drains both scale: the strictest reading
SCALES = range(7)  # CONFIG_PCP_BATCH_SCALE_MAX, "range 0 6"
_KCONFIG = f"{SCALES[-1]} is Kconfig's bound, not the limit's."
KERNEL_SCALE = 5  # its default
PAGES = ("warm", "cold")  # as measured, just used; or in no cache any more
NOT_RULED_OUT = 0.05  # probability from which a scale beyond the answer is mentioned
SMALLEST, LARGEST = 1e-6, 1e9  # of a limit [us] and of a slowdown
_POINTS = 9  # of the law of what cold pages add
MAX_BATCH = 4096  # of one that is given [pages]
BESIDE = 0.05  # a measured row stands beside a batch that it is this near to


@dataclass(frozen=True, eq=False)
class _Limit:
    """The answer for one machine, limit and slowdown.

    Attributes
    ----------
    machine, p99_us, slowdown, release, pages
        The question.
    scaled : tuple of str
        The sides of which a hold grows with the scale under that release; a hold of the
        other moves one batch.
    page_size_kib : int
        Of the kernel asked about [KiB]; the unscaled batch follows from it.
    table_page_size_kib : int or None
        Of the machine measured, as platform.json states it [KiB].
    page_size_note : str or None
        Said where the two are not the same.
    pages_basis : str
        What the times rest on, by ``pages``.
    machine_notes : list of str
        What to know of the machine.
    table_batches : (int, int) or None
        Smallest and largest batch measured [pages]; None if none was.
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
    release: str
    pages: str
    pages_basis: str
    scaled: tuple[str, ...]
    page_size_kib: int
    table_page_size_kib: int | None
    page_size_note: str | None
    machine_notes: list[str]
    table_batches: tuple[int, int] | None
    batch_scale: int | None
    probability: float
    mean_batch_scale: int | None
    per_scale: pd.DataFrame
    curve: pd.DataFrame
    digest: str

    @property
    def basis(self) -> str:
        """What a hold moves under the release asked about, in a sentence."""
        one, kib = self.per_scale["batch"].iloc[0], self.page_size_kib
        moved = f"batch << k pages, batch {one}" + f" of {kib} KiB each" * (kib != 4)
        by_side = {side: self.per_scale[f"{side}_pages"].tolist() for side in SIDES}
        usual = (self.per_scale["batch"].tolist(), [one] * len(SCALES))
        if not self.scaled or any(pages not in usual for pages in by_side.values()):  # of a tree
            told = "; ".join(f"{s} {', '.join(map(str, p))}" for s, p in by_side.items())
            return f"Under {self.release} a hold moves at most, by k [pages]: {told}."
        if len(self.scaled) == len(SIDES):
            return f"Under {self.release} a refill and a drain each move {moved}, in one hold."
        (side,) = self.scaled
        other = next(s for s in SIDES if s != side)
        return (
            f"Under {self.release} a {side} moves {moved}, in one hold; a hold of a {other} moves "
            "one batch, whatever k."
        )

    @property
    def notes(self) -> list[str]:
        """What to know before using the answer."""
        notes = [*self.machine_notes]
        if self.page_size_note:
            notes.append(self.page_size_note)
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
            if not np.isfinite(row.measured_batch):
                continue
            times = "" if self.slowdown == 1 else f" (times {self.slowdown:g})"
            at_batch = f"At batch {row.measured_batch:.0f} the measured"
            measured = f"{at_batch} {row.measured_p99_us:.2f} us{times}"
            if row.measured_outlier:
                notes.append(
                    f"{measured} is an outlier: for {row.batch} pages the fit without it says "
                    f"{row.p99_fitted_us:.2f} us, the fit through all rows "
                    f"{row.p99_fitted_all_us:.2f} us, and {row.p99_low_us:.2f} to "
                    f"{row.p99_high_us:.2f} us is the interval of both."
                )
            for statistic in STATISTICS:
                at, low, high = (
                    getattr(row, f"measured_{statistic}{of}_us") for of in ("", "_low", "_high")
                )
                if not low <= at <= high:
                    notes.append(
                        f"{at_batch} {statistic}, {at:.2f} us{times}, is outside its interval, "
                        f"{low:.2f} to {high:.2f} us."
                    )
            over = row.measured_p99_us >= self.p99_us
            if over != (row.probability <= 0.5):
                notes.append(
                    f"{measured} is {'over' if over else 'under'} the limit, the predicted "
                    f"{row.p99_us:.2f} us for {row.batch} pages is not."
                )
        crossed = self.per_scale.loc[self.per_scale["p99_us"] < self.per_scale["mean_us"], "batch"]
        if len(crossed):
            notes.append(
                f"Up to batch {crossed.max()} the curves are extrapolated so far that the p99 "
                "falls below the mean: neither is known there."
            )
        if self.batch_scale is not None and self.pages == "warm" and self.table_batches:
            row = self.per_scale.iloc[self.batch_scale]
            if not np.isfinite(row["measured_batch"]):
                low, high = self.table_batches
                inside = low <= row[f"{row['slower_side']}_pages"] <= high
                notes.append(
                    f"Batch {row['batch']} was not measured: its time is "
                    f"{'interpolated' if inside else 'extrapolated'} (measured: {low} to {high})."
                )
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "machine": self.machine,
            "digest": self.digest,
            "p99_us": self.p99_us,
            "slowdown": self.slowdown,
            "release": self.release,
            "pages": self.pages,
            "pages_basis": self.pages_basis,
            "scaled": list(self.scaled),
            "page_size_kib": self.page_size_kib,
            "table_page_size_kib": self.table_page_size_kib,
            "batch_scale": self.batch_scale,
            "probability": self.probability,
            "mean_batch_scale": self.mean_batch_scale,
            "interval_level": LEVEL,
            "per_scale": [
                {
                    "batch_scale": int(row.batch_scale),
                    "batch": int(row.batch),
                    "pages_per_hold": {
                        "refill": int(row.refill_pages),
                        "drain": int(row.drain_pages),
                    },
                    "p99_us": row.p99_us,
                    "interval": [row.p99_low_us, row.p99_high_us],
                    "p99_fitted_us": {
                        "without_outliers": row.p99_fitted_us,
                        "through_all_rows": row.p99_fitted_all_us,
                    },
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
            "basis": self.basis,
            "notes": self.notes,
        }

    def said(self) -> dict[str, str]:
        """The answer in sentences (Markdown)."""
        slower = "" if self.slowdown == 1 else f" on a CPU {self.slowdown:g}x slower"
        return {
            "p99": f"- **{self.machine}{slower}, p99 under {self.p99_us:g} us:** "
            + _answer(self.per_scale, self.batch_scale, "p99", "probability"),
            "mean": "- **By the mean** in place of the 99th percentile: "
            + _answer(self.per_scale, self.mean_batch_scale, "mean", "mean_probability"),
            "basis": f"- {self.basis}",
            "pages_basis": f"- {self.pages_basis}",
        } | {f"note {i}": f"- {note}" for i, note in enumerate(self.notes, 1)}


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
        + f" {_KCONFIG}" * (scale == SCALES[-1])
    )


def positive(name: str, value: object) -> float:
    """A limit [us] or a slowdown as a number that an answer can be given for, or InputError."""
    if isinstance(value, bool) or not isinstance(value, Real | np.number):
        raise InputError(
            f"{name}={value!r} is not a number; give one from {SMALLEST:g} to {LARGEST:g}."
        )
    try:
        number = float(value)
    except OverflowError:  # of a whole number
        number = math.inf
    if not SMALLEST <= number <= LARGEST:
        raise InputError(f"{name}={value!r}: give a number from {SMALLEST:g} to {LARGEST:g}.")
    return number


_VIEW = 1000.0  # how far from the limit a probability is of interest, as a ratio


class _Slower:
    """The slower of the two sides, in one statistic; pages of a hold by side."""

    def __init__(
        self,
        machine: Machine,
        statistic: str,
        pages: Mapping[str, int],
        slowdown: float,
        cold: bool,
    ) -> None:
        curves = [machine.hold_time.curves[side, statistic] for side in SIDES]
        moved = [pages[side] for side in SIDES]
        #: Both sides' distributions by what cold pages may add, and the share of each of these.
        self.cases = [
            (
                share,
                [
                    curve.predict(n).plus(n * block_ns) if block_ns else curve.predict(n)
                    for curve, n in zip(curves, moved, strict=True)
                ],
            )
            for share, block_ns in (_cold_ns(machine) if cold else [(1.0, 0.0)])
        ]
        parts = [side for _, sides in self.cases for side in sides]
        self._location, self._scale, self._dof = (
            np.concatenate([getattr(side, name) for side in parts])
            for name in ("location", "scale", "dof")
        )
        self._parts = np.array([len(side.location) for side in parts])[:, None]
        self._starts = np.cumsum(self._parts) - self._parts[:, 0]
        self._shares = np.array([[share] for share, _ in self.cases])
        self.us_per_ns = slowdown / 1e3
        middle_ns = COLD_LINES.value * machine.line_memory.value if cold else 0.0
        fits = [
            [ns + n * middle_ns for ns in curve.fits_ns(n)]
            for curve, n in zip(curves, moved, strict=True)
        ]
        #: Slower side by the fits without outliers and through all rows [us].
        self.fits_us = [
            self.us_per_ns * max(float(ns[0]) for ns in of) for of in zip(*fits, strict=True)
        ]

    @property
    def name(self) -> str:
        """Which side it is."""
        _, sides = self.cases[len(self.cases) // 2]
        return SIDES[int(np.argmax([side.median_ns[0] for side in sides]))]

    def probability(self, time_us: ArrayLike) -> Floats:
        """That both sides stay under ``time_us``."""
        log_ns = np.log(np.atleast_1d(time_us) / self.us_per_ns)
        # All at once: an answer asks thousands of times, and each has twenty distributions.
        under = stdtr(self._dof, (log_ns - self._location) / self._scale)
        of_sides = np.add.reduceat(under, self._starts) / self._parts
        of_cases = of_sides.reshape(len(self.cases), len(SIDES), -1).prod(axis=1)
        return np.add.reduce(self._shares * of_cases)

    def quantile_us(self, q: float) -> float:
        """Time that the slower side stays under with probability ``q`` [us]."""
        # Each side is under it with at least q, and one of them with at most sqrt(q): in every
        # case, so that it lies between those of the cases.  A side's lies between its parts'.
        low, high = (
            self.us_per_ns * off * float(exp(of_cases(self._slower(of_parts, p))))
            for of_parts, of_cases, p, off in (
                (np.minimum, np.min, q, 1 - 1e-6),  # and rounding
                (np.maximum, np.max, math.sqrt(q), 1 + 1e-6),
            )
        )

        def beyond(us: float) -> float:
            return self.probability(us)[0] - q

        # A side's quantile that no number holds is cut at the last one: then so is this.
        if beyond(low) >= 0:
            return low
        if beyond(high) <= 0:
            return high
        # Over the log, for a table of wide intervals spans many powers of ten.
        at = brentq(lambda at: beyond(math.exp(at)), math.log(low), math.log(high), xtol=1e-12)
        return math.exp(at)

    def _slower(self, end: np.ufunc, q: float) -> Floats:
        """The slower side's ``end`` of what its parts stay under with ``q``, by case [ln ns]."""
        parts = self._location + self._scale * stdtrit(self._dof, q)
        of_sides = end.reduceat(parts, self._starts)
        return of_sides.reshape(len(self.cases), len(SIDES)).max(axis=1)


def _cold_ns(machine: Machine) -> list[tuple[float, float]]:
    """What a block of cold pages may add to a hold [ns]: shares, and values.

    It is the same for both sides, and not known: the logarithm is normal, taken at a few points.
    """
    line = machine.line_memory
    if line.high == 0:
        return [(1.0, 0.0)]  # it takes no time, as somebody says
    if line.low == 0:
        raise InputError(
            f"{machine.name}: line_memory is {line.low:g} to {line.high:g} ns; for cold pages "
            "allowed: above 0"
        )
    points, shares = np.polynomial.hermite_e.hermegauss(_POINTS)
    spread = np.exp(math.hypot(COLD_LINES.log_sd, line.log_sd) * points)
    values = COLD_LINES.value * line.value * spread
    return list(zip((shares / shares.sum()).tolist(), values.tolist(), strict=True))


def _pages_basis(machine: Machine, pages: str) -> str:
    # What `pcpmodel.measure` times are pages that another CPU has touched.
    by_measure = machine.sheet["hold_page_alloc", ""].origin == "measured"
    handed = by_measure and machine.derived is None
    if pages == "warm":
        if handed:
            return "Pages are as in its table: another CPU had just used them."
        return "Pages are warm: they had just been used, as where the tables were measured."
    line, lines = machine.line_memory, COLD_LINES
    return (
        "Pages are cold, in no cache any more: to the time of the table comes, for each block, "
        f"{lines.value:g} line ({lines.low:g} to {lines.high:g}; {lines.source}) of "
        f"{line.value:.0f} ns ({line.low:.0f} to {line.high:.0f}; {line.source})."
        + " Its table is of pages that another CPU had used, whose lines count twice then."
        * handed
    )


def _largest(inside: Iterable[bool]) -> int | None:
    """Largest scale such that it and every smaller one are inside."""
    largest = None
    for scale, ok in zip(SCALES, inside, strict=True):
        if not ok:
            break
        largest = scale
    return largest


def bounds_drains(state: Release) -> bool:
    """Whether a batch scale factor bounds its drains: from v6.7 on, and in Debian's 6.1.192."""
    return state.uses_batch_scale_max and sizing.drain_hold_limit(1, state.rules) is not None


def _hold_pages(state: Release, page_size_kib: int, batch: int | None) -> list[dict[str, int]]:
    """Most pages that one hold moves, by scale: the batch, and each side's."""
    if state.rules.sizing is not None and not state.uses_batch_scale_max:
        raise InputError(
            f"release {state.name!r}: what was compiled of the tree does not ask for "
            f"CONFIG_PCP_BATCH_SCALE_MAX, of which the limit is to be found"
        )
    if not bounds_drains(state):
        raise InputError(
            f"release {state.name!r} has no batch scale factor that bounds a drain; give one from "
            "v6.7 on"
        )
    own = sizing.large_zone_batch(state.rules, sizing.page_shift(page_size_kib))
    batch = own if batch is None else batch
    found = []
    for scale in SCALES:
        scaled = state.with_batch_scale_max(scale)
        refill = sizing.refill_limit(batch, scaled.rules)
        drain = sizing.drain_hold_limit(batch, scaled.rules)
        assert drain is not None
        if scaled.rules.sizing is not None:
            refill, drain = _holds_of_tree(scaled, batch)
        found.append({"batch": batch << scale, "refill": refill, "drain": drain})
    return found


@cache
def _holds_of_tree(state: Release, batch: int) -> tuple[int, int]:
    """Most pages of one hold of a refill and of a drain, counted under a kernel tree.

    One CPU's lists are used until neither grows any more, under a fixed ``high`` that is no bound.
    """
    high = 4 * (batch << SCALES[-1])
    pcp = PerCpuPages(state, batch=batch, high_min=high, high_max=high)
    refill = max(max(pcp.refill_holds) for _ in range(high) if pcp.alloc())
    drain = max(max(pcp.free(), default=0) for _ in range(2 * high))
    return refill, drain


def _limit(
    machine: Machine,
    p99_us: float,
    slowdown: float,
    state: Release,
    page_size_kib: int | None,
    pages: str,
    batch: int | None,
) -> _Limit:
    page_size_kib = machine.page_size_kib if page_size_kib is None else page_size_kib
    per_hold = _hold_pages(state, page_size_kib, batch)
    rows, curve = [], []
    cold = pages == "cold"
    sides = [
        [_Slower(machine, s, moved, slowdown, cold) for s in ("p99", "mean")] for moved in per_hold
    ]
    # All scales are in view, as far as they go, and a factor of ten around the limit.
    lowest, highest = sides[0][0].quantile_us(0.001) / 1.5, sides[-1][0].quantile_us(0.999) * 1.5
    lowest, highest = np.clip((lowest, highest), p99_us / _VIEW, p99_us * _VIEW)
    at_us = np.geomspace(min(lowest, p99_us / 10), max(highest, p99_us * 10), 401)
    at_us = np.unique(np.append(at_us, p99_us))
    for scale, moved, (p99, mean) in zip(SCALES, per_hold, sides, strict=True):
        row: dict[str, Any] = {"machine": machine.name, "slowdown": slowdown, "pages": pages}
        row |= {"release": state.name, "batch_scale": scale, "batch": moved["batch"]}
        row |= {f"{side}_pages": moved[side] for side in SIDES} | {"slower_side": p99.name}
        for name, slower in (("p99", p99), ("mean", mean)):
            row |= {f"{name}_us": slower.quantile_us(0.5), **_interval(name, slower)}
        row["p99_fitted_us"], row["p99_fitted_all_us"] = p99.fits_us
        row["probability"] = p99.probability(p99_us)[0]
        row["mean_probability"] = mean.probability(p99_us)[0]
        rows.append(row | _measured(machine, moved, slowdown, cold))
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
    return _Limit(
        machine=machine.name,
        p99_us=p99_us,
        slowdown=slowdown,
        release=state.name,
        pages=pages,
        pages_basis=_pages_basis(machine, pages),
        scaled=tuple(side for side in SIDES if per_hold[0][side] < per_hold[-1][side]),
        page_size_kib=page_size_kib,
        table_page_size_kib=machine.platform.get("page_size_kib"),
        page_size_note=machine.page_size_note(page_size_kib),
        machine_notes=machine.notes,
        table_batches=None
        if machine.derived
        else (int(machine.latency["batch"].min()), int(machine.latency["batch"].max())),
        batch_scale=batch_scale,
        probability=float(per_scale["probability"][batch_scale or 0]),
        mean_batch_scale=_largest(per_scale["mean_probability"] > 0.5),
        per_scale=per_scale,
        curve=pd.concat(curve, ignore_index=True),
        digest=machine.digest,
    )


def _interval(name: str, slower: _Slower) -> dict[str, float]:
    return {
        f"{name}_low_us": slower.quantile_us((1 - LEVEL) / 2),
        f"{name}_high_us": slower.quantile_us((1 + LEVEL) / 2),
    }


def _measured(
    machine: Machine, pages: Mapping[str, int], slowdown: float, cold: bool
) -> dict[str, Any]:
    """The measured rows nearest to the pages of each side, scaled by the slowdown.

    With the intervals of their own batches: a row of 511 pages says nothing against that of 496.
    """
    table, batches = machine.latency, machine.latency["batch"].to_numpy()
    nearest = {side: int(np.abs(np.log(batches / pages[side])).argmin()) for side in SIDES}
    near = not cold and machine.derived is None  # else nothing was measured of it
    near &= all(abs(batches[at] / pages[side] - 1) <= BESIDE for side, at in nearest.items())
    p99, mean = (
        {s: slowdown * table[COLUMNS[s, what]].iloc[at] for s, at in nearest.items()}
        for what in ("p99", "mean")
    )
    side = max(p99, key=p99.__getitem__)
    at = nearest[side]
    own = {side: int(batches[row]) for side, row in nearest.items()}
    columns = [f"measured_{name}_{end}_us" for name in STATISTICS for end in ("low", "high")]
    intervals = dict.fromkeys(columns, np.nan)
    for name in STATISTICS if near else ():
        intervals |= _interval(f"measured_{name}", _Slower(machine, name, own, slowdown, cold))
    return intervals | {
        "measured_batch": batches[at] if near else np.nan,
        "measured_p99_us": p99[side] if near else np.nan,
        "measured_mean_us": max(mean.values()) if near else np.nan,
        "measured_outlier": bool(near and machine.hold_time.curves[side, "p99"].outlier[at]),
    }


def _said_of_all(answers: pd.DataFrame, found: Sequence[_Limit]) -> Iterator[tuple[str, str]]:
    """The answers of several machines in sentences (Markdown), and what they rest on."""
    for (limit_us, slowdown), rows in answers.groupby(["limit_us", "slowdown"]):
        cpu = "as they are" if slowdown == 1 else f"on CPUs {slowdown:g}x slower"
        yield (
            f"{limit_us:g} us, {slowdown:g}x",
            f"- **p99 under {limit_us:g} us, {cpu}, under {rows['release'].iloc[0]}:** "
            + ", ".join(
                f"{row.machine} {_scale(row.batch_scale)} ({row.probability:.2f})"
                for row in rows.itertuples()
            )
            + f"; by the mean: {', '.join(_scale(k) for k in rows['mean_batch_scale'])}. "
            f"Scale {KERNEL_SCALE} would need a limit of {rows['needed_us'].min():.0f} to "
            f"{rows['needed_us'].max():.0f} us ({rows['needed_low_us'].min():.0f} to "
            f"{rows['needed_high_us'].max():.0f} us by the intervals; "
            f"{_span(rows['measured_us'], slowdown)})."
            + f" {_KCONFIG}"
            * bool((rows[["batch_scale", "mean_batch_scale"]] == SCALES[-1]).any(axis=None)),
        )
    for what in ("basis", "pages_basis"):
        for i, basis in enumerate(_bases(found, what), 1):
            yield f"{what} {i}", f"- {basis}"
    notes = [(one, note) for one in found for note in one.notes]
    for i, (one, note) in enumerate(notes, 1):
        yield f"note {i}", f"- {one.machine}, {one.p99_us:g} us, {one.slowdown:g}x: {note}"


def _span(measured: pd.Series, slowdown: float) -> str:
    known = measured.dropna()
    if known.empty:
        return "not measured"
    where = "" if len(known) == len(measured) else f" on {len(known)} of {len(measured)} machines"
    times = "" if slowdown == 1 else f", times {slowdown:g}"
    ends = dict.fromkeys(f"{us:.0f}" for us in (known.min(), known.max()))
    return f"measured{times}: {' to '.join(ends)} us{where}"


def _bases(found: Iterable[_Limit], what: str) -> tuple[str, ...]:
    """What a hold moves, or its pages are; of which machines, where it is not the same for all."""
    machines: dict[str, dict[str, None]] = {}
    for one in found:
        machines.setdefault(getattr(one, what), {})[one.machine] = None
    if len(machines) == 1:
        return tuple(machines)
    return tuple(f"{', '.join(names)}: {basis}" for basis, names in machines.items())


def _scale(scale: Any) -> str:
    return "none" if pd.isna(scale) else str(scale)


def limit(
    machine: str | Machine | Iterable[str | Machine] | None = None,
    p99_us: float | Iterable[float] = 100.0,
    slowdown: float | Iterable[float] = 1.0,
    release: str | Release = RELEASE,
    page_size_kib: int | None = None,
    pages: str = "warm",
    batch: int | None = None,
) -> Answer:
    """Find the largest batch scale factor that keeps a hold under a limit.

    Parameters
    ----------
    machine : str, Machine, iterable of these, optional
        The machines measured; all if not given.
    p99_us : float or iterable of float
        Limits of the 99th percentile of one hold of the zone lock [us]; 1e-06 to 1e+09.
    slowdown : float or iterable of float
        Times of the machine measured are multiplied by this (2: a CPU half as fast); 1e-06 to
        1e+09.
    release : str or Release
        Kernel state, which says what scales: refills and drains up to v6.18 (the default),
        refills alone since v6.19.  A kernel tree (`pcpmodel.tree`) is compiled with each scale,
        and what it moves is counted.
    page_size_kib : int, optional
        4, 16 or 64 [KiB]; by default the machine's, or 4 where platform.json does not say.
    pages : str
        "warm", just used, as the tables were measured; or "cold", of a working set that fits no
        cache: a line of each block comes from memory, which no table shows.
    batch : int, optional
        ``pcp->batch`` as a machine has it, 1 to 4096 [pages]; by default the release's for a zone
        of 1 GiB or more.

    Returns
    -------
    Answer
        ``answers``: one row per machine, limit and slowdown: ``batch_scale`` (<NA>: not even 0),
        ``probability`` that its 99th percentile stays under the limit (of scale 0 where there is
        none), ``mean_batch_scale``: the same for the mean, and ``needed_us``, the limit that the
        kernel's default scale of 5 would need, with its interval and what was measured there
        (NaN: nothing).  ``per_scale``: times and intervals of the slower side [us],
        probabilities, and the measured row beside each scale (NaN where none is near).
        ``curve``: probability against the limit, for every scale.  ``scales``: ``batch_scale`` of
        every slowdown and machine (rows) by limit (columns).

    Raises
    ------
    InputError
        If the machine or release is unknown, the release has no batch scale factor that bounds a
        drain (before v6.7), the table is too short, or a number out of range.

    Notes
    -----
    Pages per hold are those of ordinary allocations and frees. drain_pages_zone(), for a CPU
    that goes offline or memory that is short, moves ``batch << k`` pages per hold under every
    release from v6.10 on.

    References
    ----------
    mm/page_alloc.c: nr_pcp_alloc(), nr_pcp_free(), free_frozen_page_commit(),
    drain_pages_zone(); v6.7 ... v7.3.
    """
    asked, factors = (
        [positive(name, one) for one in (given if isinstance(given, Iterable) else [given])]
        for name, given in (("p99_us", p99_us), ("slowdown", slowdown))
    )
    if not (asked and factors):
        raise InputError(
            f"p99_us={p99_us!r}, slowdown={slowdown!r}: one of them is empty; allowed: a number "
            "or a list of at least one"
        )
    state = find_release(release)
    if pages not in PAGES:
        raise unknown_name("kind of pages", pages, PAGES)
    batch = None if batch is None else integer("batch", batch, 1, MAX_BATCH)
    loaded = load_machines(machine)
    found = [
        _limit(m, us, factor, state, page_size_kib, pages, batch)
        for us in asked
        for factor in factors
        for m in loaded
    ]
    rows = pd.DataFrame(
        {
            "machine": one.machine,
            "release": one.release,
            "page_size_kib": one.page_size_kib,
            "pages": one.pages,
            "limit_us": one.p99_us,
            "slowdown": one.slowdown,
            "batch_scale": one.batch_scale,
            "probability": one.probability,
            "mean_batch_scale": one.mean_batch_scale,
            "needed_us": one.per_scale["p99_us"][KERNEL_SCALE],
            "needed_low_us": one.per_scale["p99_low_us"][KERNEL_SCALE],
            "needed_high_us": one.per_scale["p99_high_us"][KERNEL_SCALE],
            "measured_us": one.per_scale["measured_p99_us"][KERNEL_SCALE],
        }
        for one in found
    )
    answers = rows.astype({"batch_scale": "Int64", "mean_batch_scale": "Int64"})
    scales = answers.drop_duplicates(["slowdown", "machine", "limit_us"]).pivot(
        index=["slowdown", "machine"], columns="limit_us", values="batch_scale"
    )
    if len(found) == 1:
        (one,) = found
        said, facts = one.said(), one.as_dict()
    else:
        said = dict(_said_of_all(answers, found))
        facts = {"limits": [one.as_dict() for one in found]}
    columns = ["machine", "batch_scale", "batch", "p99_us", "p99_low_us", "p99_high_us"]
    columns += ["probability", "slower_side", "measured_p99_us", "mean_us", "mean_probability"]
    per_scale = pd.concat(
        [one.per_scale.assign(limit_us=one.p99_us) for one in found], ignore_index=True
    )
    return Answer(
        {
            "answers": answers,
            "per_scale": per_scale,
            "curve": pd.concat(
                [one.curve.assign(slowdown=one.slowdown, asked_us=one.p99_us) for one in found],
                ignore_index=True,
            ),
            "scales": scales,
            "by scale": per_scale[columns].round(3),
        },
        said,
        facts,
        loaded[0].digest if len(found) == 1 else digest(loaded),
        ("by scale",) if len(found) == 1 else ("scales",),
    )

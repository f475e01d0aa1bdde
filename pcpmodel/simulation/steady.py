"""Steady state: how much of a run to leave out, and how sure the rest is.

The truncation rule is MSER (K. P. White, An effective truncation heuristic for bias
reduction in simulation output, Simulation 69, 1997; comparison in Hoad, Robinson and
Davies, J. Oper. Res. Soc. 61, 2010): leave out the first ``d`` batches, where ``d``
makes the squared standard error of the mean of the rest smallest; if it is smallest at
half of the series, the series is too short.  A rate that first stands at one value and then at
another, of which the second begins beyond half of the series, escapes this rule: what is left is
therefore also looked at in two halves.

Confidence intervals are those of batch means (A. M. Law, Simulation Modeling and
Analysis, section 9.5.3) of the counted time, for ratios of sums.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

__all__ = ["BATCHES", "half_width", "truncation"]

#: Batches of the counted time that an interval is made of.
BATCHES = 20
_CONFIDENCE = 0.95
#: Batches of each half of what is left, and by how much the halves have to differ to be called
#: different: standard errors, and share of the larger mean.  Chosen: with less, chance and drifts
#: that nobody asks about would make every run long.
_OF_A_HALF = 8
_ERRORS_APART = 3.0
_SHARE_APART = 0.1


def truncation(series: npt.NDArray[np.integer]) -> int | None:
    """How many batches to leave out at the beginning, by MSER; None if it is too short.

    Too short is also a series whose rest is not steady: its halves differ.

    Parameters
    ----------
    series : (n,) ndarray of int
        Means, or sums, of batches of equal length.

    Notes
    -----
    Sums run from the end to the front, one after the other: the same on every machine.
    """
    n = len(series)
    values = (series - series[-1])[::-1].astype(float)
    left = np.arange(1, n + 1)
    squares = np.cumsum(values**2) - np.cumsum(values) ** 2 / left
    spread = (np.maximum(squares, 0.0) / left**2)[::-1]  # [d]: without the first d
    half = n // 2
    best = int(np.argmin(spread[: half + 1]))
    return best if best < half and not _moves(series[best:]) else None


def _moves(series: npt.NDArray[np.integer]) -> bool:
    """Whether the second half of a series stands elsewhere than the first."""
    each = len(series) // (2 * _OF_A_HALF)
    if not each:
        return False
    last = series[len(series) - 2 * _OF_A_HALF * each :].astype(float)
    batches = last.reshape(2, _OF_A_HALF, each).mean(axis=2)
    first, second = batches.mean(axis=1)
    apart = abs(second - first)
    error = math.sqrt(float(batches.var(axis=1, ddof=1).sum()) / _OF_A_HALF)
    return bool(
        apart > _ERRORS_APART * error and apart > _SHARE_APART * max(abs(first), abs(second))
    )


def half_width(
    part: npt.NDArray[np.integer], whole: npt.NDArray[np.integer] | npt.NDArray[np.float64]
) -> float:
    """Half of the 95 % confidence interval of ``part.sum() / whole.sum()``.

    Parameters
    ----------
    part, whole : (n,) ndarray
        Sums over stretches of equal length, one after the other; NaN for fewer than `BATCHES`.

    Notes
    -----
    Neighbouring batches that resemble each other say less than as many independent ones: with
    their first autocorrelation ``r`` above 0 the variance is larger by (1 + r) / (1 - r).
    """
    if len(part) < BATCHES or not whole.sum():
        return math.nan
    each = len(part) // BATCHES
    first = len(part) - each * BATCHES
    a, b = (x[first:].reshape(BATCHES, each).sum(axis=1).astype(float) for x in (part, whole))
    rest = a - a.sum() / b.sum() * b
    square = float((rest**2).sum())
    if not square:
        return 0.0
    r = min(max(float((rest[1:] * rest[:-1]).sum()) / square, 0.0), 0.9)
    error = math.sqrt(BATCHES / (BATCHES - 1) * square * (1 + r) / (1 - r)) / float(b.sum())
    return float(stdtrit(BATCHES - 1, (1 + _CONFIDENCE) / 2)) * error

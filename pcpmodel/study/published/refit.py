"""The fitted parameters of ``data/workload/calibration``, fitted anew."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping

from pcpmodel.study.published.cases import Fit, find, published_rows, stored
from pcpmodel.study.published.causes import by_misses
from pcpmodel.study.published.model import Runner
from pcpmodel.study.published.single import ZONE_SPLIT, one_zone

__all__ = ["refitted", "refitted_miss_ns"]

_FIT_STEPS = 7


def _fit(
    run: Runner, measured: Mapping[str, Mapping[str, float]], fixed: Mapping[str, float]
) -> dict[str, float]:
    """Bisect for every parameter in turn, the later ones inside the earlier ones."""

    def solve(fits: tuple[Fit, ...], known: dict[str, float]) -> dict[str, float]:
        if not fits:
            return known
        first, *others = fits
        target = measured[first.step][first.quantity]
        low, high = first.low, first.high
        found = known
        for _ in range(_FIT_STEPS):
            middle = (low + high) / 2
            found = solve(tuple(others), {**known, first.parameter: middle})
            if run.figures(first.step, found)[first.quantity] < target:
                low = middle
            else:
                high = middle
        return found

    # Parameters that hardly touch each other are fitted one after the other.
    if run.case.fits[0].step == "base":
        known = dict(fixed)
        for fit in run.case.fits:
            known = solve((fit,), known)
        return known
    return solve(run.case.fits, dict(fixed))


def refitted(name: str, seed: int = 1) -> dict[str, float]:
    """Fit the parameters of a calibration anew; those taken over are as stored.

    Parameters
    ----------
    name : str
        As in ``data/workload/calibration``.
    seed : int
        Of every run; the stored values are those of seed 1.

    Returns
    -------
    dict
        Parameter -> value, of those fitted to this table.
    """
    if name in ZONE_SPLIT:
        run, contention = one_zone(name)
        return {
            "cold_block_ns": _bisect(
                lambda v: 100 * run(1, {"cold_block_ns": v}, seed).lock_contention,
                contention["before"],
                0.0,
                200.0,
            )
        }
    case = find(name)
    fixed = stored(find(case.like)) if case.like else {}
    found = _fit(Runner(case, seed), published_rows(case), fixed)
    return {fit.parameter: found[fit.parameter] for fit in case.fits}


def _bisect(run: Callable[[float], float], target: float, low: float, high: float) -> float:
    for _ in range(_FIT_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if run(middle) < target else (low, middle)
    return (low + high) / 2


def refitted_miss_ns(name: str, seed: int = 1) -> float:
    """What a miss takes if the contention of a table's first row is to be met, by causes [ns].

    Parameters
    ----------
    name : str
        As in ``miss_ns`` of ``data/workload/answer-key``.
    seed : int
        Of every run; the stored values are those of seed 1.
    """
    if name in ZONE_SPLIT:
        run, contention = one_zone(name)

        def waits(miss_ns: float) -> float:
            values = by_misses(miss_ns, shares_cores=False)
            return 100 * run(1, values, seed).lock_contention

        return _bisect(waits, contention["before"], 0.0, 500.0)
    case = find(name)
    runner = Runner(case, seed)

    def waits_of(miss_ns: float) -> float:
        values = by_misses(miss_ns, shares_cores=False)
        return runner.figures("base", values)["lock_contention"]

    return _bisect(waits_of, published_rows(case)["base"]["lock_contention"], 0.0, 500.0)

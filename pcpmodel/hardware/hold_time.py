"""Cost of one hold of the zone lock as a function of the pages moved.

A table of measured batches becomes four curves: mean and 99th percentile of a
refill (rmqueue_bulk()) and of a drain (free_pcppages_bulk()).  Each curve is

    t(n) = a + b n^c

with one of three sets of free parameters (:data:`FORMS`), fitted to relative
residuals.  With five or six rows to a table the choice needs care, so:

* **form**: by leave-one-out log predictive density, which charges a form both for
  its errors and for false confidence; among forms within one nat of the best,
  the one with fewest parameters.  AICc is reported beside it.
* **outliers**: a row is an outlier if the curve through the *other* rows misses it by
  more than a factor of 1.2 and by more than three standard errors of prediction; at
  most one row in four.  Whether such a row is a disturbed measurement or the place
  where the curve bends the table alone cannot tell, so it is read both ways: a fit
  without the outliers, and one through all rows, whose scatter then says how badly
  one curve goes through them.
* **interval**: Student's t over log time, its scale made of residual scatter, the
  covariance of the parameters and the disagreement between the forms (each
  weighted by its evidence), so that it widens away from the measured rows.  Where
  there are outliers the distribution is the mixture of both readings, half and half.
  A measured row outside the interval stated for its own number of pages is named
  (:attr:`Curve.outside`).

The tables were measured with the function_graph tracer, whose own cost is in them.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares
from scipy.special import gammaln, stdtr, stdtrit

from pcpmodel.datasets.measured import FACTOR
from pcpmodel.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from pcpmodel.datasets.schema import Table

__all__ = [
    "COLUMNS",
    "FORMS",
    "LEVEL",
    "SIDES",
    "STATISTICS",
    "Cost",
    "Curve",
    "Form",
    "HoldTime",
    "check_pages",
    "exp",
]

LEVEL = 0.95  # of every interval
OUTLIER_FACTOR = 1.2  # least ratio, up or down, that makes a row an outlier
OUTLIER_ERRORS = 3.0  # and least distance [standard errors of prediction]
TIE_NATS = 1.0  # evidence below which the simpler form is taken
RESOLUTION_NS = 10.0  # the tables are printed to 0.01 us
MIN_ROWS = 4
MANY_ROWS = 12
_STEPS = 30  # of Newton's, at most, once the least is found
_NEAR = 1e-4  # log time: no farther from there
_HALVINGS = 40  # of the distance between two quantiles, to find one of their mixture
LONGEST = 230.0  # natural log of 1e100 ns: no time, nor its inverse, is told beyond

SIDES = ("refill", "drain")
STATISTICS = ("mean", "p99")
COLUMNS = {
    ("refill", "mean"): "alloc_latency_avg_us",
    ("refill", "p99"): "alloc_latency_p99_us",
    ("drain", "mean"): "free_latency_avg_us",
    ("drain", "p99"): "free_latency_p99_us",
}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Form:
    """A shape of the cost curve: which parameters of ``a + b n^c`` are free."""

    name: str
    formula: str
    free: tuple[bool, bool, bool]  # a, b, c; where not free a = 0, c = 1


FORMS = (
    Form("affine", "a + b n", (True, True, False)),
    Form("power", "b n^c", (False, True, True)),
    Form("affine-power", "a + b n^c", (True, True, True)),
)


@dataclass(frozen=True, eq=False)
class _Solution:
    """Least-squares solution of one form over one set of rows; lengths are logs."""

    theta: Floats  # a / unit, log(b unit), c in scaled pages
    cov: Floats  # (3, 3); zero where fixed
    sd: float  # residual scatter of log time, rounding of the table included
    dof: int

    def log_time(self, x: Floats) -> Floats:
        """Log time at log pages ``x`` (both scaled)."""
        a, log_b, c = self.theta
        return np.log(a + np.exp(log_b + c * x))

    def gradient(self, x: Floats) -> Floats:
        """Derivative of :meth:`log_time` by each parameter, (N, 3)."""
        return _gradient(self.theta, x)

    def scale(self, x: Floats) -> Floats:
        """Standard error of predicting one more row at ``x``."""
        g = self.gradient(x)
        return np.sqrt(self.sd**2 + np.einsum("ni,ij,nj->n", g, self.cov, g))

    def slower(self, factor: float) -> _Solution:
        """Times that are all ``factor`` times as long."""
        a, log_b, c = self.theta
        by = np.array([factor, 1.0, 1.0])
        theta = np.array([a * factor, log_b + np.log(factor), c])
        return replace(self, theta=theta, cov=self.cov * np.outer(by, by))


def _gradient(theta: Floats, x: Floats) -> Floats:
    a, log_b, c = theta
    power = np.exp(log_b + c * x)
    return np.stack([np.ones_like(x), power, power * x], axis=-1) / (a + power)[:, None]


def _solve(form: Form, x: Floats, y: Floats, rounding: Floats) -> _Solution:
    """Fit a form to log times ``y`` at log pages ``x``."""
    free = np.array(form.free)
    theta = np.where(free, [0.3 * np.exp(y.min()), y.mean(), 0.95], [0.0, 0.0, 1.0])

    def full(values: Floats) -> Floats:
        at = theta.copy()
        at[free] = values
        return at

    def residual(values: Floats) -> Floats:
        a, log_b, c = full(values)
        return np.log(a + np.exp(log_b + c * x)) - y

    def jacobian(values: Floats) -> Floats:
        return _gradient(full(values), x)[:, free]

    # A fixed cost is not negative, and no trial goes to where exp() has no number, or 0.
    bounds = (
        np.array([0.0, -LONGEST, 0.1])[free],
        np.array([np.inf, LONGEST, 2.0])[free],
    )
    found = least_squares(
        residual,
        theta[free],
        jac=jacobian,
        bounds=bounds,
        method="dogbox",
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
        max_nfev=200,  # a flat table leaves b without a value; it may creep no longer
    )
    best = np.clip(_to_the_last_digits(residual, jacobian, found), *bounds)
    dof = len(x) - int(free.sum())
    variance = 2 * found.cost / dof + np.mean(rounding**2)
    # A parameter at its bound keeps its column: it may still be wrong inwards.
    jac = jacobian(best)
    cov = np.zeros((3, 3))
    cov[np.ix_(free, free)] = np.linalg.pinv(jac.T @ jac) * variance
    return _Solution(full(best), cov, float(np.sqrt(variance)), dof)


def _to_the_last_digits(
    residual: Callable[[Floats], Floats], jacobian: Callable[[Floats], Floats], found: Any
) -> Floats:
    """The same least squares, where its gradient is zero.

    A cost is flat at its least: told by the cost alone, half of the digits hang on the last bit of
    an exp(), and that on the vector instructions of the processor.  A simulation would carry such
    a bit into each of its counts.
    """
    inside = found.active_mask == 0
    values: Floats = found.x.copy()
    size = _NEAR
    for _ in range(_STEPS):
        jac = jacobian(values)[:, inside]
        unit = np.linalg.norm(jac, axis=0)
        unit[unit == 0] = 1
        step = np.linalg.lstsq(jac / unit, -residual(values), rcond=None)[0]
        if not np.linalg.norm(step) < size / 2:  # no longer nearer: rounding, or a flat table
            break
        size = float(np.linalg.norm(step))  # as far as it moves log times
        values[inside] += step / unit
    return values


@dataclass(frozen=True, eq=False)
class Candidate:
    """One form fitted to a curve, with its evidence."""

    form: Form
    a_ns: float
    b_ns: float
    exponent: float
    elpd: float  # leave-one-out log predictive density [nats]; larger is better
    aicc: float  # corrected Akaike criterion; smaller is better; inf = too few rows
    weight: float  # share of the evidence among the candidates
    loo_percent: float  # rms error of the rows when each is left out [%]
    max_residual_percent: float  # largest residual of the rows fitted [%]
    solution: _Solution

    def as_dict(self) -> dict[str, Any]:
        return {
            "form": self.form.name,
            "formula": self.form.formula,
            "parameters": {"a_ns": self.a_ns, "b_ns": self.b_ns, "c": self.exponent},
            "elpd_loo": self.elpd,
            "aicc": self.aicc if np.isfinite(self.aicc) else None,
            "weight": self.weight,
            "loo_rms_percent": self.loo_percent,
            "max_residual_percent": self.max_residual_percent,
        }

    def slower(self, factor: float) -> Candidate:
        """Times that are all ``factor`` times as long."""
        a_ns, b_ns = self.a_ns * factor, self.b_ns * factor
        return replace(self, a_ns=a_ns, b_ns=b_ns, solution=self.solution.slower(factor))


def _log_density_t(error: float, dof: int, scale: float) -> float:
    """As `scipy.stats.t.logpdf` has it, whose import takes as long as a small run."""
    norm = gammaln((dof + 1) / 2) - gammaln(dof / 2) - np.log(dof * np.pi) / 2 - np.log(scale)
    return float(norm - (dof + 1) / 2 * np.log1p((error / scale) ** 2 / dof))


def exp(log_time: Floats) -> Floats:
    """Time [ns] of its logarithm; what no number holds is the last one."""
    return np.exp(np.clip(log_time, -LONGEST, LONGEST))


@dataclass(frozen=True, eq=False)
class Prediction:
    """Distribution of a measured time: of its logarithm, a mixture of Student's t.

    The M parts weigh the same: one, or two where the rows can be read in two ways.

    Attributes
    ----------
    location, scale : (M, N) ndarray of float
        Of log time [ln ns].
    dof : (M, 1) ndarray of int
        Degrees of freedom of each fit.
    """

    location: Floats
    scale: Floats
    dof: NDArray[np.int64]

    @property
    def median_ns(self) -> Floats:
        """Time that is as likely exceeded as not [ns]; where there is one fit, its curve."""
        return self.quantile_ns(0.5)

    def quantile_ns(self, q: float) -> Floats:
        """Time that is not exceeded with probability ``q``, above 0 and below 1 [ns]."""
        low, high = self._ends(q)
        if len(self.location) > 1:
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                under = self._probability_under(middle) < q
                low, high = np.where(under, middle, low), np.where(under, high, middle)
        return exp((low + high) / 2)

    def _ends(self, q: float) -> tuple[Floats, Floats]:
        """Between the parts' quantiles lies the mixture's [ln ns]."""
        parts = self.location + self.scale * stdtrit(self.dof, q)
        return parts.min(axis=0), parts.max(axis=0)

    def plus(self, ns: float) -> Prediction:
        """Of a time with so much more in it [ns]."""
        without = exp(self.location)
        return Prediction(np.log(without + ns), without * self.scale / (without + ns), self.dof)

    def probability_under(self, time_ns: ArrayLike) -> Floats:
        """Probability of a time below ``time_ns`` [ns]."""
        return self._probability_under(np.log(time_ns))

    def _probability_under(self, log_time: Floats) -> Floats:
        under: Floats = stdtr(self.dof, (log_time - self.location) / self.scale)
        return np.add.reduce(under, axis=0) / len(under)

    @property
    def interval_ns(self) -> tuple[Floats, Floats]:
        """Low and high end of the interval at :data:`LEVEL` [ns]."""
        return self.quantile_ns((1 - LEVEL) / 2), self.quantile_ns((1 + LEVEL) / 2)


class Curve:
    """One statistic of one side against the pages moved.

    Parameters
    ----------
    side, statistic : str
        One of :data:`SIDES` and :data:`STATISTICS`.
    pages : (N,) array of int
        Pages moved in one hold [pages]; all different, N >= 4.
    measured_ns : (N,) array of float
        Measured time [ns]; > 0.
    error_ns : (N,) array of float, optional
        Standard error of each measured time [ns], where the table states one.

    Attributes
    ----------
    candidates : tuple of Candidate
        Every form that the rows can support, with its evidence.
    chosen : Candidate
        The form the curve follows, the outliers left out.
    through_all : Candidate
        The form through all rows; ``chosen`` where there is no outlier.
    outlier : (N,) ndarray of bool
        Rows that the others do not expect.
    expected_ns : (N,) ndarray of float
        What the other rows say of each row [ns].
    """

    def __init__(
        self,
        side: str,
        statistic: str,
        pages: ArrayLike,
        measured_ns: ArrayLike,
        error_ns: ArrayLike | None = None,
    ) -> None:
        self.side, self.statistic = side, statistic
        self.pages = np.asarray(pages, dtype=np.int64)
        self.measured_ns = np.asarray(measured_ns, dtype=np.float64)
        rounding = RESOLUTION_NS / np.sqrt(12) / self.measured_ns
        if error_ns is not None:
            rounding = np.hypot(rounding, np.asarray(error_ns, dtype=np.float64) / self.measured_ns)
        self._log_unit = float(np.log(self.pages).mean())
        x, y = np.log(self.pages) - self._log_unit, np.log(self.measured_ns)

        @cache
        def solve(form: Form, rows: tuple[int, ...]) -> _Solution:
            keep = list(rows)
            return _solve(form, x[keep], y[keep], rounding[keep])

        def supported(rows: tuple[int, ...]) -> list[Form]:
            return [form for form in FORMS if len(rows) >= sum(form.free) + 2]

        def left_out(form: Form, rows: tuple[int, ...]) -> tuple[float, Floats]:
            """Log predictive density of each row given the others, and their errors."""
            elpd, errors = 0.0, []
            for row in rows:
                others = solve(form, tuple(r for r in rows if r != row))
                at = x[[row]]
                error = y[row] - others.log_time(at)[0]
                elpd += _log_density_t(error, others.dof, others.scale(at)[0])
                errors.append(error)
            return elpd, np.array(errors)

        @cache
        def best(rows: tuple[int, ...]) -> Form:
            forms = supported(rows)
            elpd = {form: left_out(form, rows)[0] for form in forms}
            ties = [f for f in forms if elpd[f] >= max(elpd.values()) - TIE_NATS]
            fewest = min(sum(f.free) for f in ties)
            return max((f for f in ties if sum(f.free) == fewest), key=elpd.__getitem__)

        rows = tuple(range(len(x)))
        flagged: list[int] = []
        expected = np.full(len(x), np.nan)
        for _ in range((len(rows) - 1) // 4 + 1):
            worst = (0.0, -1)
            for row in rows:
                others = tuple(r for r in rows if r != row)
                if len(others) < MIN_ROWS:
                    continue
                # One row among many does not decide the form, and asking costs N^2 fits.
                form = best(others) if len(others) < MANY_ROWS else best(rows)
                solution = solve(form, others)
                off = y[row] - float(solution.log_time(x[[row]])[0])
                expected[row] = np.exp(y[row] - off)
                errors = abs(off) / float(solution.scale(x[[row]])[0])
                if abs(off) > np.log(OUTLIER_FACTOR) and errors > max(OUTLIER_ERRORS, worst[0]):
                    worst = (errors, row)
            if worst[1] < 0 or len(flagged) == (len(x) - 1) // 4:
                break
            flagged.append(worst[1])
            rows = tuple(r for r in rows if r != worst[1])

        self.outlier = np.isin(np.arange(len(x)), flagged)
        self.expected_ns = expected

        def reading(rows: tuple[int, ...]) -> tuple[tuple[Candidate, ...], Candidate]:
            candidates = self._weigh(
                [(form, solve(form, rows), *left_out(form, rows)) for form in supported(rows)],
                x[list(rows)],
                y[list(rows)],
            )
            return candidates, next(c for c in candidates if c.form is best(rows))

        self._readings = [reading(rows)]
        if flagged:
            self._readings.append(reading(tuple(range(len(x)))))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return self._readings[0][0]

    @property
    def chosen(self) -> Candidate:
        return self._readings[0][1]

    @property
    def through_all(self) -> Candidate:
        return self._readings[-1][1]

    def slower(self, factor: float) -> Curve:
        """The curve of times that are all ``factor`` times as long; the rows say as much."""
        other = copy(self)
        other.measured_ns = self.measured_ns * factor
        other.expected_ns = self.expected_ns * factor
        other._readings = []
        for candidates, chosen in self._readings:
            slow = tuple(candidate.slower(factor) for candidate in candidates)
            other._readings.append((slow, slow[candidates.index(chosen)]))
        return other

    def _weigh(
        self, fits: list[tuple[Form, _Solution, float, Floats]], x: Floats, y: Floats
    ) -> tuple[Candidate, ...]:
        elpds = np.array([elpd for _, _, elpd, _ in fits])
        weights = np.exp(elpds - elpds.max())
        weights /= weights.sum()
        candidates = []
        for (form, solution, elpd, errors), weight in zip(fits, weights, strict=True):
            residual = y - solution.log_time(x)
            n, k = len(x), sum(form.free) + 1
            aicc = n * np.log(max(np.mean(residual**2), 1e-24)) + 2 * k
            aicc = aicc + 2 * k * (k + 1) / (n - k - 1) if n - k > 1 else np.inf
            a, log_b, c = solution.theta
            candidates.append(
                Candidate(
                    form=form,
                    a_ns=float(a),
                    b_ns=float(np.exp(log_b - c * self._log_unit)),
                    exponent=float(c),
                    elpd=elpd,
                    aicc=float(aicc),
                    weight=float(weight),
                    loo_percent=float(100 * np.sqrt(np.mean(errors**2))),
                    max_residual_percent=float(100 * np.abs(np.expm1(-residual)).max()),
                    solution=solution,
                )
            )
        return tuple(candidates)

    def predict(self, pages: ArrayLike) -> Prediction:
        """What another measured table would say of holds that move ``pages`` [pages]."""
        x = self._log_pages(pages)
        locations, scales, dofs = [], [], []
        for candidates, chosen in self._readings:
            fit = chosen.solution
            location = fit.log_time(x)
            apart = sum(c.weight * (c.solution.log_time(x) - location) ** 2 for c in candidates)
            locations.append(location)
            scales.append(np.sqrt(fit.scale(x) ** 2 + apart))
            dofs.append([fit.dof])
        return Prediction(np.array(locations), np.array(scales), np.array(dofs))

    def fits_ns(self, pages: ArrayLike) -> tuple[Floats, Floats]:
        """The curve without the outliers, and the one through all rows [ns]."""
        x = self._log_pages(pages)
        without, through_all = (
            exp(c.solution.log_time(x)) for c in (self.chosen, self.through_all)
        )
        return without, through_all

    def _log_pages(self, pages: ArrayLike) -> Floats:
        return np.log(np.atleast_1d(np.asarray(pages, dtype=np.float64))) - self._log_unit

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Measured rows that the interval at their own number of pages does not hold."""
        low_ns, high_ns = self.predict(self.pages).interval_ns
        return (self.measured_ns < low_ns) | (self.measured_ns > high_ns)

    @property
    def residual_percent(self) -> Floats:
        """(measured - fitted) / measured [%], fitted without the outliers; of these too."""
        return 100 * (1 - self.fits_ns(self.pages)[0] / self.measured_ns)

    def as_dict(self) -> dict[str, Any]:
        """Form chosen, evidence of every candidate, outliers; ready for JSON."""
        return {
            **self.chosen.as_dict(),
            "degrees_of_freedom": self.chosen.solution.dof,
            "scatter_percent": 100 * self.chosen.solution.sd,
            "candidates": [c.as_dict() for c in self.candidates],
            "outlier_batches": self.pages[self.outlier].tolist(),
            "through_all_rows": self.through_all.as_dict(),
            "outside_batches": self.pages[self.outside].tolist(),
        }


@dataclass(frozen=True)
class Cost:
    """Cost of one hold of the zone lock.

    Attributes
    ----------
    pages : int or (N,) ndarray of int
        Pages moved [pages].
    mean_ns, p99_ns : float or (N,) ndarray of float
        Mean and 99th percentile [ns], as fitted without outliers; the latter never below the
        former.
    interval : mapping
        ``mean_ns`` and ``p99_ns`` -> (low, high) [ns] at :data:`LEVEL`.
    """

    pages: Any
    mean_ns: Any
    p99_ns: Any
    interval: Mapping[str, tuple[Any, Any]]


def check_pages(pages: ArrayLike) -> NDArray[np.int64]:
    """Return ``pages`` as integers; refuse what is not a whole number >= 1."""
    given = np.asarray(pages)
    if given.dtype.kind not in "iu" or given.size == 0 or given.min() < 1:
        raise InputError(f"pages={pages!r}: give whole numbers of pages, 1 or more.")
    return given.astype(np.int64)


class HoldTime:
    """Cost of one zone-lock hold on one machine, both sides.

    Attributes
    ----------
    name : str
        The machine.
    curves : dict of (side, statistic) -> Curve
        The four fitted curves.
    """

    def __init__(self, name: str, curves: Mapping[tuple[str, str], Curve]) -> None:
        self.name = name
        self.curves = dict(curves)

    @classmethod
    def fit(
        cls,
        name: str,
        latency: Table | pd.DataFrame | Mapping[str, Sequence[float]],
        latency_interval: Table | pd.DataFrame | Mapping[str, Sequence[float]] | None = None,
    ) -> HoldTime:
        """Fit the four curves to a measured table.

        Parameters
        ----------
        name : str
            The machine, for messages.
        latency : Table, pandas.DataFrame or mapping
            Columns ``batch`` [pages] and ``{alloc,free}_latency_{avg,p99}_us`` [us].
        latency_interval : Table, pandas.DataFrame or mapping, optional
            Columns ``..._{low,high}_us`` for each of these [us], row by row: the
            figure lies anywhere between, as in the bucket of a histogram.

        Raises
        ------
        InputError
            If the table has fewer than 4 batches.
        """
        if len(latency["batch"]) < MIN_ROWS:
            raise InputError(
                f"machine {name!r} has {len(latency['batch'])} measured batches; "
                f"a fit needs at least {MIN_ROWS}. Measure more batch settings."
            )

        def error_ns(column: str) -> ArrayLike | None:
            if latency_interval is None:
                return None
            low, high = (
                np.asarray(latency_interval[column.replace("_us", f"_{end}_us")], float)
                for end in ("low", "high")
            )
            # Evenly over the interval, or, where it is wider than its figure, over its log: an
            # error of the log is what the fit wants.  Below, nothing is believed that would make
            # the figure wrong by more than the table may be.
            value = np.asarray(latency[column], float)
            wide = value * np.log(high / np.maximum(low, value / FACTOR))
            return 1e3 * np.minimum(high - low, wide) / np.sqrt(12)

        return cls(
            name,
            {
                (side, statistic): Curve(
                    side,
                    statistic,
                    latency["batch"],
                    1e3 * np.asarray(latency[column], float),
                    error_ns(column),
                )
                for (side, statistic), column in COLUMNS.items()
            },
        )

    def slower(self, factor: float) -> HoldTime:
        """Holds that all take ``factor`` times as long."""
        return HoldTime(self.name, {k: curve.slower(factor) for k, curve in self.curves.items()})

    def refill(self, pages: ArrayLike) -> Cost:
        """Cost of one rmqueue_bulk() of ``pages`` [pages, >= 1]."""
        return self._cost("refill", pages)

    def drain(self, pages: ArrayLike) -> Cost:
        """Cost of one free_pcppages_bulk() of ``pages`` [pages, >= 1]."""
        return self._cost("drain", pages)

    def _cost(self, side: str, pages: ArrayLike) -> Cost:
        given = check_pages(pages)

        def shaped(values: Floats) -> Any:
            return values.reshape(given.shape) if given.ndim else float(values[0])

        mean, p99 = (
            np.array([curve.fits_ns(given.ravel())[0], *curve.predict(given.ravel()).interval_ns])
            for curve in (self.curves[side, s] for s in STATISTICS)
        )
        # Far below the smallest measured batch the two curves may cross.
        p99 = np.maximum(p99, mean)
        return Cost(
            pages=given if given.ndim else int(given),
            mean_ns=shaped(mean[0]),
            p99_ns=shaped(p99[0]),
            interval={
                "mean_ns": (shaped(mean[1]), shaped(mean[2])),
                "p99_ns": (shaped(p99[1]), shaped(p99[2])),
            },
        )

    @property
    def points(self) -> pd.DataFrame:
        """Every measured value with its fits: one row per side, statistic and batch."""
        import pandas as pd

        frames = []
        for curve in self.curves.values():
            without, through_all = curve.fits_ns(curve.pages)
            low_ns, high_ns = curve.predict(curve.pages).interval_ns
            frames.append(
                pd.DataFrame(
                    {
                        "machine": self.name,
                        "side": curve.side,
                        "statistic": curve.statistic,
                        "batch": curve.pages,
                        "measured_us": curve.measured_ns / 1e3,
                        "fitted_us": without / 1e3,
                        "fitted_all_us": through_all / 1e3,
                        "low_us": low_ns / 1e3,
                        "high_us": high_ns / 1e3,
                        "residual_percent": curve.residual_percent,
                        "expected_us": curve.expected_ns / 1e3,
                        "outlier": curve.outlier,
                        "outside": curve.outside,
                    }
                )
            )
        return pd.concat(frames).reset_index(drop=True)

    def lines(self, pages: ArrayLike | None = None) -> pd.DataFrame:
        """The fitted curves, without and through outliers, and intervals.

        Over ``pages``, by default 1..8192, even in log.
        """
        import pandas as pd

        at = check_pages(
            np.unique(np.geomspace(1, 8192, 105).round().astype(int)) if pages is None else pages
        ).ravel()
        frames = []
        for (side, statistic), curve in self.curves.items():
            without, through_all = curve.fits_ns(at)
            low_ns, high_ns = curve.predict(at).interval_ns
            frames.append(
                pd.DataFrame(
                    {
                        "machine": self.name,
                        "side": side,
                        "statistic": statistic,
                        "pages": at,
                        "fitted_us": without / 1e3,
                        "fitted_all_us": through_all / 1e3,
                        "low_us": low_ns / 1e3,
                        "high_us": high_ns / 1e3,
                    }
                )
            )
        return pd.concat(frames, ignore_index=True)

    def __repr__(self) -> str:
        forms = ", ".join(
            f"{side} {statistic} {curve.chosen.form.name}"
            for (side, statistic), curve in self.curves.items()
        )
        return f"<HoldTime {self.name}: {forms}>"

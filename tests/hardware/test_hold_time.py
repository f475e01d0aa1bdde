"""Cost of one zone-lock hold: forms, outliers, intervals."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pcpmodel as pm
from pcpmodel.errors import InputError
from pcpmodel.hardware.hold_time import SIDES, STATISTICS, Curve, HoldTime, _log_density_t
from pcpmodel.hardware.machines import Machine

BATCHES = np.array([63, 127, 255, 511, 1023, 2047])
MACHINES = ("cascade-lake", "coffee-lake", "comet-lake", "ice-lake", "sapphire-rapids")
ENDS = {"low": 0.7, "high": 1.4}
SERVERS = ("cascade-lake", "ice-lake", "sapphire-rapids")


@cache
def hold_time(machine):
    """One fit for all the tests."""
    return pm.machine(machine).hold_time


def curve(measured_ns, pages=BATCHES, **kwargs):
    return Curve("refill", "mean", pages, measured_ns, **kwargs)


def candidate(machine, side, form):
    found = hold_time(machine).curves[side, "mean"].candidates
    return next(c for c in found if c.form.name == form)


COLUMNS = [f"{side}_latency_{what}" for side in ("free", "alloc") for what in ("avg", "p99")]


def table():
    return pd.DataFrame({"batch": BATCHES} | {f"{c}_us": BATCHES * 0.03 + 1 for c in COLUMNS})


# ---------------------------------------------------------------- the machine


def test_a_machine_is_taken_as_it_is_and_fitted_once():
    machine = pm.machine("ice-lake")
    assert pm.machine(machine) is machine
    assert machine.hold_time is machine.hold_time


@pytest.mark.parametrize("name", ["ice-lke", "", "../ice-lake", "Ice-Lake", 3, None])
def test_unknown_machines_are_refused(name):
    with pytest.raises(InputError):
        pm.machine(name)


def test_the_nearest_machine_is_offered():
    with pytest.raises(InputError, match="did you mean 'ice-lake'"):
        pm.machine("ice-lke")


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize(
    ("form", "a", "b", "c"),
    [("affine", 700.0, 30.0, 1.0), ("power", 0.0, 60.0, 0.87), ("affine-power", 3000.0, 50.0, 0.8)],
)
def test_the_form_that_made_the_rows_is_found_again(form, a, b, c):
    fitted = curve(a + b * BATCHES**c).chosen
    assert fitted.form.name == form
    assert (fitted.a_ns, fitted.b_ns, fitted.exponent) == pytest.approx((a, b, c), rel=2e-3, abs=1)


def test_rows_may_come_in_any_order():
    measured = pm.machine("sapphire-rapids").latency["alloc_latency_avg_us"].to_numpy() * 1e3
    turned = curve(measured[::-1], BATCHES[::-1])
    assert turned.predict(BATCHES).median_ns == pytest.approx(
        curve(measured).predict(BATCHES).median_ns, rel=1e-9
    )


def test_predictions_scale_with_the_unit_of_time():
    measured = pm.machine("coffee-lake").latency["free_latency_p99_us"].to_numpy() * 1e3
    slow = curve(4 * measured).predict([63, 1008, 4032]).median_ns
    assert slow == pytest.approx(4 * curve(measured).predict([63, 1008, 4032]).median_ns, rel=1e-6)


@pytest.mark.long
def test_a_fit_does_not_hang_on_the_last_bit_of_an_exp(monkeypatch):
    """A processor with other vector instructions has another one."""
    rng = np.random.default_rng()

    def noisy(exact):
        def of(x):
            y = exact(x)
            return np.where(rng.random(np.shape(y)) < 0.3, np.nextafter(y, np.inf), y)

        return of

    curves = [c for name in MACHINES for c in hold_time(name).curves.values()]
    for name in ("exp", "log"):
        monkeypatch.setattr(np, name, noisy(getattr(np, name)))
    for c in curves:
        again = Curve(c.side, c.statistic, c.pages, c.measured_ns)
        for one, other in zip(c.candidates, again.candidates, strict=True):
            np.testing.assert_allclose(other.solution.theta, one.solution.theta, rtol=1e-10)


@pytest.mark.parametrize(
    ("pages", "falling_ns"),
    [
        ([1, 1023, 2047, 4095, 8191, 65536], [655360, 81910, 40950, 20470, 10230, 10]),
        ([1, 2, 3, 15, 8191, 1 << 20], [1048576000, 8191000, 15000, 3000, 2000, 1000]),
        ([3, 255, 1023, 65536, 1 << 20], [1048576000, 65536000, 1023000, 255000, 3000]),
    ],
)
def test_a_table_that_no_hold_can_have_is_fitted_without_a_warning(pages, falling_ns):
    """Trials of the fit went to where exp() has no number."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curve = Curve("refill", "mean", pages, falling_ns)
        low, high = curve.predict(pages).interval_ns
    assert np.isfinite([*low, *high, *curve.fits_ns(pages)[0]]).all()


@pytest.mark.parametrize("machine", MACHINES)
def test_affine_misses_no_mean_drain_by_three_percent(machine):
    assert candidate(machine, "drain", "affine").max_residual_percent < 3


@pytest.mark.parametrize("machine", SERVERS)
def test_refills_of_servers_are_concave_not_affine(machine):
    assert candidate(machine, "refill", "power").exponent == pytest.approx(0.85, abs=0.03)
    assert candidate(machine, "refill", "affine").max_residual_percent > 6
    assert candidate(machine, "refill", "affine").weight < 0.2
    chosen = hold_time(machine).curves["refill", "mean"].chosen
    assert chosen.form.name != "affine"
    assert chosen.exponent < 0.95


@pytest.mark.parametrize("machine", MACHINES)
def test_weights_are_shares_and_the_chosen_form_is_within_one_nat(machine):
    for fitted in hold_time(machine).curves.values():
        assert sum(c.weight for c in fitted.candidates) == pytest.approx(1)
        assert fitted.chosen.elpd >= max(c.elpd for c in fitted.candidates) - 1


# ---------------------------------------------------------------- outliers


def test_the_outliers_of_the_published_tables_are_flagged():
    assert {
        (row.machine, row.side, row.statistic, row.batch)
        for row in pm.fit()["outliers"].itertuples()
    } == {
        ("sapphire-rapids", "refill", "p99", 2047),
        ("cascade-lake", "refill", "p99", 2047),
        ("comet-lake", "refill", "p99", 511),
        ("comet-lake", "drain", "p99", 511),
    }


@pytest.mark.parametrize("row", range(len(BATCHES)))
@pytest.mark.parametrize("factor", [0.7, 1.5])
def test_an_outlier_is_flagged_and_does_not_bend_the_fit(row, factor):
    clean = (500 + 30 * BATCHES) * np.exp([0.004, -0.006, 0.003, 0.005, -0.004, 0.002])
    bent = clean.copy()
    bent[row] *= factor
    fitted = curve(bent)
    assert BATCHES[fitted.outlier].tolist() == [BATCHES[row]]
    others = np.delete(BATCHES, row)
    assert fitted.predict(others).median_ns == pytest.approx(np.delete(clean, row), rel=0.02)
    assert fitted.expected_ns[row] == pytest.approx(clean[row], rel=0.05)
    without = curve(np.delete(bent, row), others)
    assert fitted.fits_ns(BATCHES)[0] == pytest.approx(without.fits_ns(BATCHES)[0], rel=1e-3)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_an_interval_holds_the_row_measured_there_or_names_it(machine, side, statistic):
    fitted = hold_time(machine).curves[side, statistic]
    low_ns, high_ns = fitted.predict(fitted.pages).interval_ns
    inside = (low_ns <= fitted.measured_ns) & (fitted.measured_ns <= high_ns)
    assert fitted.outside.tolist() == (~inside).tolist()
    assert inside.all()  # of the published tables, outliers included
    assert fitted.as_dict()["outside_batches"] == []


def test_a_row_outside_its_interval_is_named_wherever_intervals_are_stated():
    rng = np.random.default_rng(3)
    pages = np.arange(31, 1000, 31)  # so many rows that one in twenty lies outside
    latency = pd.DataFrame({"batch": pages, "throughput_pages_per_s": np.nan})
    for column in COLUMNS:
        latency[f"{column}_us"] = (1 + 0.03 * pages) * rng.lognormal(0, 0.04, len(pages))
    for what in ("free", "alloc"):
        latency[f"{what}_latency_p99_us"] = 2 * latency[f"{what}_latency_p99_us"]
    fitted = pm.fit(Machine("many", latency, None, {}, "0" * 64))
    outside = fitted["points"][fitted["points"]["outside"]]
    assert len(outside)
    for row in outside.itertuples():
        assert not row.low_us <= row.measured_us <= row.high_us
        assert f"{row.side} {row.statistic} at batch {row.batch}" in fitted.text
        assert f"{row.measured_us:.2f} us measured" in fitted.text


@pytest.mark.parametrize(
    ("machine", "flattened"), [("sapphire-rapids", 140.81), ("cascade-lake", 106.08)]
)
def test_the_last_row_is_read_as_a_bend_as_well_as_a_disturbance(machine, flattened):
    fitted = hold_time(machine).curves["refill", "p99"]
    without, through_all = (ns[0] / 1e3 for ns in fitted.fits_ns(2047))
    low, high = (ns[0] / 1e3 for ns in fitted.predict(2047).interval_ns)
    assert low < flattened < through_all < without < high
    probability = fitted.predict(2047).probability_under(1e3 * flattened)[0]
    assert 0.025 < probability < 0.25  # half of what the fit through all rows says


def test_scatter_of_a_few_percent_flags_nothing():
    rng = np.random.default_rng(20231017)
    flagged = [
        curve((500 + 30 * BATCHES) * rng.lognormal(0, 0.03, 6)).outlier.sum() for _ in range(20)
    ]
    assert sum(flagged) <= 1


def test_no_row_of_four_is_left_out():
    measured = 1e3 * np.array([2.0, 4.0, 8.0, 40.0])
    assert not curve(measured, BATCHES[:4]).outlier.any()


# ---------------------------------------------------------------- intervals


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_interval_widens_away_from_the_rows(machine, side, statistic):
    fitted = hold_time(machine).curves[side, statistic]
    at = np.array([1, 8, 63, 255, 2047, 4032, 32256])
    width = fitted.predict(at).quantile_ns(0.975) / fitted.predict(at).quantile_ns(0.025)
    assert (np.diff(width[:4]) < 0).all()
    assert (np.diff(width[3:]) > 0).all()


@pytest.mark.long
def test_the_interval_covers_rows_not_yet_measured():
    rng = np.random.default_rng(7)
    pages, inside = np.array([90, 700, 4032]), []
    for _ in range(40):
        fitted = curve((500 + 30 * BATCHES) * rng.lognormal(0, 0.03, 6))
        again = (500 + 30 * pages) * rng.lognormal(0, 0.03, 3)
        low, high = (fitted.predict(pages).quantile_ns(q) for q in (0.025, 0.975))
        inside += ((low < again) & (again < high)).tolist()
    # 120 draws at 0.95: fewer than 106 inside has a chance below one in 500.
    assert sum(inside) >= 106


def test_quantile_and_probability_are_inverse():
    predicted = hold_time("ice-lake").curves["refill", "p99"].predict([63, 2016])
    for q in (0.01, 0.5, 0.9):
        assert predicted.probability_under(predicted.quantile_ns(q)) == pytest.approx([q, q])
    assert predicted.quantile_ns(0.5) == pytest.approx(predicted.median_ns)


def test_a_stated_measurement_interval_widens_the_prediction():
    interval = pd.DataFrame(
        {f"{c}_{end}_us": table()[f"{c}_us"] * f for c in COLUMNS for end, f in ENDS.items()}
    )
    exact = HoldTime.fit("m", table()).refill(1008).interval["p99_ns"]
    loose = HoldTime.fit("m", table(), interval).refill(1008).interval["p99_ns"]
    assert loose[1] / loose[0] > 1.5 > exact[1] / exact[0]


# ---------------------------------------------------------------- cost


@pytest.mark.parametrize("machine", MACHINES)
def test_p99_is_never_below_the_mean_and_cost_grows_with_pages(machine):
    hold = hold_time(machine)
    for side in (hold.refill, hold.drain):
        cost = side(np.arange(1, 4097))
        assert (cost.p99_ns >= cost.mean_ns).all()
        assert (np.diff(cost.mean_ns) > 0).all()
        assert (np.diff(cost.p99_ns) > 0).all()
        assert (cost.interval["mean_ns"][0] < cost.mean_ns).all()
        assert (cost.interval["p99_ns"][1] > cost.p99_ns).all()


def test_a_number_gives_numbers_and_an_array_its_shape():
    hold = hold_time("sapphire-rapids")
    one, many = hold.refill(63), hold.refill(np.array([[63, 126], [252, 504]]))
    assert isinstance(one.mean_ns, float)
    assert many.mean_ns.shape == many.interval["p99_ns"][1].shape == (2, 2)
    assert many.mean_ns[0, 0] == one.mean_ns
    assert one.mean_ns == pytest.approx(2670, rel=0.05)  # measured


@pytest.mark.parametrize("pages", [0, -1, 1.5, 63.0, float("nan"), True, "63", None, [], [63, 0]])
def test_what_is_no_number_of_pages_is_refused(pages):
    with pytest.raises(InputError, match="pages"):
        hold_time("ice-lake").refill(pages)


def test_a_table_too_short_is_refused():
    with pytest.raises(InputError, match="at least 4"):
        HoldTime.fit("short", table().head(3))


def test_the_density_of_student_s_t_is_scipy_s() -> None:
    for error, dof, scale in [(0.0, 1, 1.0), (0.3, 4, 0.05), (-2.0, 9, 0.7), (12.0, 2, 3.0)]:
        expected = stats.t.logpdf(error, dof, scale=scale)
        assert _log_density_t(error, dof, scale) == pytest.approx(expected, rel=1e-12)


def test_a_small_run_imports_no_frames() -> None:
    """Importing them takes as long as the run and all else together."""
    code = (
        "import sys, pcpmodel as pm\n"
        "run = pm.simulate('v6.18', 'ice-lake', pm.workload.kbuild(2), seconds=0.001, warmup_s=0)\n"
        "run.summary()\n"
        "assert not {'matplotlib', 'pandas', 'scipy.stats', 'xarray'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_table_is_fitted_once_whatever_else_changes():
    """A machine loaded anew, or with other costs, has the fit of the first."""
    fit = pm.machine("ice-lake").hold_time
    assert pm.machine("ice-lake").hold_time is fit
    assert pm.machine("ice-lake").with_costs(handover=0.0).hold_time is fit


@pytest.mark.parametrize("name", ["sapphire-rapids", "amd-epyc-vm"])  # with an outlier, intervals
def test_all_that_follows_from_the_table_of_a_slower_machine_is_slower(name):
    """Also what is asked of the machine alone, without a run."""
    known = pm.machine(name)
    slow = known.slower(4.0).slower(0.5)
    plain, longer = known.hold_time.points, slow.hold_time.points
    for column in plain.columns:
        by = 2.0 if column.endswith("_us") else 1
        if column in ("machine", "side", "statistic"):
            assert (plain[column] == longer[column]).all()
        else:
            np.testing.assert_allclose(longer[column], by * plain[column], rtol=1e-12, atol=1e-9)
    for frame, other in (
        (known.latency, slow.latency),
        (known.latency_interval, slow.latency_interval),
    ):
        if frame is not None:
            for column in frame:
                by = {"us": 2.0, "s": 0.5}.get(column.rpartition("_")[2], 1.0)
                np.testing.assert_allclose(other[column], by * frame[column], rtol=1e-15)
    for pages in ("warm", "cold"):
        asked, told = (
            pm.limit(known, 100.0, slowdown=2.0, pages=pages),
            pm.limit(slow, 100.0, pages=pages),
        )
        assert told.facts["batch_scale"] == asked.facts["batch_scale"]
        assert told.facts["probability"] == pytest.approx(asked.facts["probability"], abs=1e-9)
        assert "2 times as long" in " ".join(told.facts["notes"])
        assert told.digest != asked.digest
    other = pm.machine("its-sister", like=slow)
    same = pm.machine("its-sister", like=known)
    np.testing.assert_allclose(
        other.hold_time.refill(100).mean_ns, 2 * same.hold_time.refill(100).mean_ns, rtol=1e-3
    )


def test_another_table_of_the_same_name_has_a_fit_of_its_own():
    known = pm.machine("ice-lake")
    longer = known.latency.copy()
    longer["alloc_latency_avg_us"] *= 2
    other = replace(known, measured=longer)
    assert other.hold_time.refill(63).mean_ns == pytest.approx(
        2 * known.hold_time.refill(63).mean_ns, rel=0.01
    )

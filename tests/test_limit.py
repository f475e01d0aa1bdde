"""Largest batch scale factor under a latency limit."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.machine import Machine

MACHINES = ("cascade-lake", "coffee-lake", "comet-lake", "ice-lake", "sapphire-rapids")


@cache
def machine_of(name):
    """One fit for all the tests."""
    return pm.machine(name)


def run(*arguments):
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("machine", "slowdown", "strict", "mean"),
    [
        *(("sapphire-rapids", f, k, m) for f, k, m in ((1, 4, 5), (2, 3, 4), (4, 1, 3))),
        *(("ice-lake", f, k, m) for f, k, m in ((1, 5, 5), (2, 3, 4), (4, 2, 3))),
        *(("cascade-lake", f, k, m) for f, k, m in ((1, 4, 5), (2, 3, 4), (4, 2, 3))),
        *(("comet-lake", f, k, m) for f, k, m in ((1, 5, 5), (2, 4, 4), (4, 3, 3))),
        *(("coffee-lake", f, k, m) for f, k, m in ((1, 4, 5), (2, 3, 4), (4, 2, 3))),
    ],
)
def test_the_hundred_microsecond_question(machine, slowdown, strict, mean):
    found = pm.limit(machine_of(machine), p99_us=100, slowdown=slowdown)
    assert (found.batch_scale, found.mean_batch_scale) == (strict, mean)
    assert found.probability > 0.5


@pytest.mark.parametrize("machine", MACHINES)
def test_scales_cost_more_and_are_less_likely_one_by_one(machine):
    rows = pm.limit(machine_of(machine)).per_scale
    assert rows["batch"].tolist() == [63, 126, 252, 504, 1008, 2016, 4032]
    assert (np.diff(rows["p99_us"]) > 0).all()
    assert (np.diff(rows["probability"]) < 1e-4).all()
    assert (rows["p99_low_us"] < rows["p99_us"]).all()
    assert (rows["p99_us"] < rows["p99_high_us"]).all()


@pytest.mark.parametrize("machine", MACHINES)
def test_time_interval_and_probability_are_of_one_distribution(machine):
    row = pm.limit(machine_of(machine)).per_scale.iloc[5]
    for time_us, probability in (
        (row["p99_us"], 0.5),
        (row["p99_low_us"], 0.025),
        (row["p99_high_us"], 0.975),
    ):
        found = pm.limit(machine_of(machine), p99_us=float(time_us)).per_scale["probability"][5]
        assert found == pytest.approx(probability, abs=1e-6)


def test_a_higher_limit_never_gives_a_smaller_scale():
    limits = np.geomspace(2, 1000, 25)
    scales = [pm.limit(machine_of("ice-lake"), p99_us=float(us)).batch_scale for us in limits]
    ordered = [-1 if k is None else k for k in scales]
    assert ordered == sorted(ordered)
    assert {-1, 0, 3, 6} <= set(ordered)


def test_a_slower_cpu_is_a_lower_limit():
    slow, fast = (
        pm.limit(machine_of("coffee-lake"), 100, slowdown=2),
        pm.limit(machine_of("coffee-lake"), 50),
    )
    assert slow.batch_scale == fast.batch_scale
    assert slow.probability == pytest.approx(fast.probability)
    assert slow.per_scale["p99_us"].to_numpy() == pytest.approx(2 * fast.per_scale["p99_us"])
    assert slow.per_scale["measured_p99_us"][3] == 2 * fast.per_scale["measured_p99_us"][3]


def test_the_measured_row_stands_beside():
    measured = [
        row["measured"] for row in pm.limit(machine_of("sapphire-rapids")).as_dict()["per_scale"]
    ]
    assert [m and m["batch"] for m in measured] == [63, 127, 255, 511, 1023, 2047, None]
    assert measured[4] == {"batch": 1023, "p99_us": 94.88, "mean_us": 30.25, "outlier": False}
    assert measured[5] == {"batch": 2047, "p99_us": 140.81, "mean_us": 59.39, "outlier": True}
    assert pm.limit(machine_of("comet-lake")).as_dict()["per_scale"][5]["measured"] is None


def test_disagreement_of_fit_and_measured_row_is_said():
    (note,) = pm.limit(machine_of("comet-lake"), 25).notes
    assert "batch 511" in note
    assert "outlier" in note
    assert "over the limit" in note


def test_extrapolation_and_a_near_miss_are_said():
    assert pm.limit(machine_of("comet-lake")).notes == [
        "Batch 2016 was not measured: its time is extrapolated."
    ]
    assert (
        pm.limit(machine_of("coffee-lake"))
        .notes[0]
        .startswith("Scale 5 is not ruled out: probability 0.4")
    )


def test_nothing_fits_is_null_with_a_reason():
    result = run("limit", "ice-lake", "--p99-us", "1", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert answer["batch_scale"] is None
    assert answer["mean_batch_scale"] is None
    assert answer["probability"] < 0.5
    assert "Not even the unscaled batch" in answer["notes"][0]


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "100", None, True, [100]])
@pytest.mark.parametrize("name", ["p99_us", "slowdown"])
def test_what_is_no_positive_number_is_refused(name, value):
    with pytest.raises(InputError, match=name):
        pm.limit(machine_of("ice-lake"), **{name: value})


@pytest.mark.parametrize(
    "arguments",
    [
        *(("limit", "ice-lake", "--p99-us", bad) for bad in ("0", "-5", "nan", "inf", "many", "")),
        ("limit", "ice-lake", "--p99-us", "100", "--slowdown", "0"),
        ("limit", "ice-lake"),
        ("limit", "ice-lke", "--p99-us", "100"),
        ("fit", "ice-lke"),
        ("fit", "../ice-lake"),
    ],
)
def test_bad_arguments_exit_with_two_and_print_no_result(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.strip()


def test_json_of_limit_has_the_contract_keys_and_repeats():
    first, second = (run("limit", "ice-lake", "--p99-us", "100", "--json").stdout for _ in "ab")
    assert first == second
    answer = json.loads(first)
    assert {"batch_scale", "probability", "per_scale"} <= set(answer)
    for row in answer["per_scale"]:
        assert {"batch_scale", "batch", "p99_us", "interval", "measured"} <= set(row)


@pytest.mark.parametrize("machine", MACHINES)
def test_json_of_fit_has_the_contract_keys(machine):
    answer = json.loads(run("fit", machine, "--json").stdout)
    for side in ("refill", "drain"):
        for statistic in ("mean", "p99"):
            curve = answer[side][statistic]
            assert {"form", "parameters", "candidates", "outlier_batches"} <= set(curve)
            assert {c["form"] for c in curve["candidates"]} >= {"affine", "power"}
    rows = len(machine_of(machine).latency)
    assert len(answer["residuals"]) == 4 * rows
    assert all(np.isfinite(row["residual_percent"]) for row in answer["residuals"])


def test_text_of_both_verbs_names_the_answer():
    assert (
        "largest batch scale factor 4" in run("limit", "sapphire-rapids", "--p99-us", "100").stdout
    )
    assert "Outliers, left out of the fit" in run("fit", "sapphire-rapids").stdout


def test_all_machines_and_slower_cpus_in_one_table():
    found = pm.limits(map(machine_of, MACHINES), p99_us=100)
    assert len(found.answers) == 3 * len(MACHINES)
    one = found.answers.set_index(["machine", "slowdown"]).loc[("coffee-lake", 2.0)]
    alone = pm.limit(machine_of("coffee-lake"), 100, 2)
    assert one["batch_scale"] == alone.batch_scale
    assert one["needed_us"] == alone.per_scale["p99_us"][5]
    assert "coffee-lake 4" in found.summary()


def test_order_of_machines_does_not_change_the_digest():
    two = [machine_of("ice-lake"), machine_of("comet-lake")]
    assert pm.limits(two).digest == pm.limits(two[::-1]).digest != pm.limits(two[0]).digest


def test_several_limits_give_one_row_each():
    found = pm.limits(machine_of("ice-lake"), p99_us=[10.0, 100.0], slowdown=1)
    assert found.scales.loc[1, "ice-lake"].tolist() == [1, 5]
    assert found.per_scale["limit_us"].value_counts().to_dict() == {10.0: 7, 100.0: 7}
    with pytest.raises(InputError, match="at least one"):
        pm.limits(machine_of("ice-lake"), p99_us=[])
    with pytest.raises(InputError, match="p99_us"):
        pm.limits(machine_of("ice-lake"), p99_us="100")


STD = [63, 127, 255, 511, 1023, 2047]


@pytest.mark.parametrize(
    ("batch", "time_us"),
    [
        (STD, lambda n: 5.0 + 0 * n),
        (STD, lambda n: 0.001 + 0 * n),
        (STD, lambda n: 1 + 0.03 * n),
        (STD, lambda n: 1e5 + 30.0 * n),
        (STD, lambda n: 1000 / n),
        (STD, lambda n: 0.001 * n**2.5),
        (STD, lambda n: (1 + 0.03 * n) * np.array([1, 3, 1, 0.3, 1, 1])),
        ([1, 2, 3, 4], lambda n: 1 + 0.03 * n),
        ([1, 10, 100, 65535], lambda n: 1 + 0.03 * n),
        ([100, 101, 102, 103, 104], lambda n: (1 + 0.03 * n) * np.array([1, 1.1, 0.9, 1, 1])),
        (range(31, 1000, 40), lambda n: 1 + 0.03 * n),
    ],
    ids=[
        *("flat", "flat-tiny", "perfect", "huge", "falling", "steep", "wild", "four", "wide"),
        *("close", "many"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_any_table_that_is_allowed_gets_an_answer(batch, time_us):
    batch = np.array(batch)
    columns = [f"{s}_latency_{w}_us" for s in ("alloc", "free") for w in ("avg", "p99")]
    latency = pd.DataFrame({c: time_us(batch) for c in columns}).assign(
        batch=batch, throughput_pages_per_s=np.nan
    )
    machine = Machine("odd", latency, None, {}, "0" * 64)
    for p99_us, slowdown in ((100.0, 1.0), (1e-6, 1e9), (1e9, 1e-6)):
        answer = pm.limit(machine, p99_us, slowdown)
        assert 0 <= answer.probability <= 1
        assert answer.summary()
        json.dumps(answer.as_dict(), allow_nan=False)
    json.dumps(pm.fit(machine).as_dict(), allow_nan=False)
    assert pm.fit(machine).table()
    assert pm.fit(machine).summary()
    assert pm.throughput_gain(machine).unmeasured == ("odd",)

"""Largest batch scale factor under a latency limit."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.hardware.machines import Machine

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
    assert (found.facts["batch_scale"], found.facts["mean_batch_scale"]) == (strict, mean)
    assert found.facts["probability"] > 0.5


@pytest.mark.parametrize("machine", MACHINES)
def test_scales_cost_more_and_are_less_likely_one_by_one(machine):
    rows = pm.limit(machine_of(machine))["per_scale"]
    assert rows["batch"].tolist() == [63, 126, 252, 504, 1008, 2016, 4032]
    assert (np.diff(rows["p99_us"]) > 0).all()
    assert (np.diff(rows["probability"]) < 1e-4).all()
    assert (rows["p99_low_us"] < rows["p99_us"]).all()
    assert (rows["p99_us"] < rows["p99_high_us"]).all()


@pytest.mark.parametrize("p99_us", [1.0, 100.0, 2e3])
def test_the_curves_of_all_scales_are_in_view(p99_us):
    """A factor of ten around the limit left out those that are shorter or longer."""
    found = pm.limit("ice-lake", p99_us=p99_us)
    curve = found["curve"]
    ends = curve.groupby("batch_scale")["probability"].agg(["min", "max"])
    assert (ends["min"] < 0.01).all()
    assert (ends["max"] > 0.99).all()
    assert curve["limit_us"].min() <= p99_us / 10 < p99_us * 10 <= curve["limit_us"].max()
    at = curve[curve["limit_us"] == p99_us].set_index("batch_scale")["probability"]
    told = found["per_scale"].set_index("batch_scale")["probability"]
    assert list(at) == pytest.approx(list(told))


@pytest.mark.parametrize("machine", MACHINES)
def test_time_interval_and_probability_are_of_one_distribution(machine):
    row = pm.limit(machine_of(machine))["per_scale"].iloc[5]
    for time_us, probability in (
        (row["p99_us"], 0.5),
        (row["p99_low_us"], 0.025),
        (row["p99_high_us"], 0.975),
    ):
        found = pm.limit(machine_of(machine), p99_us=float(time_us))["per_scale"]["probability"][5]
        assert found == pytest.approx(probability, abs=1e-6)


def test_a_higher_limit_never_gives_a_smaller_scale():
    limits = np.geomspace(2, 1000, 25)
    scales = [
        pm.limit(machine_of("ice-lake"), p99_us=float(us)).facts["batch_scale"] for us in limits
    ]
    ordered = [-1 if k is None else k for k in scales]
    assert ordered == sorted(ordered)
    assert {-1, 0, 3, 6} <= set(ordered)


def test_what_bounds_the_largest_scale_of_all_is_kconfig():
    bound = "6 is Kconfig's bound, not the limit's."
    loose, usual, several = (
        str(pm.limit(*given))
        for given in (("ice-lake", 1e9), ("ice-lake", 100), (None, [100, 400]))
    )
    assert loose.count(bound) == 2
    assert bound not in usual
    assert several.count(bound) == 1


def test_a_slower_cpu_is_a_lower_limit():
    slow, fast = (
        pm.limit(machine_of("coffee-lake"), 100, slowdown=2),
        pm.limit(machine_of("coffee-lake"), 50),
    )
    assert slow.facts["batch_scale"] == fast.facts["batch_scale"]
    assert slow.facts["probability"] == pytest.approx(fast.facts["probability"])
    assert slow["per_scale"]["p99_us"].to_numpy() == pytest.approx(2 * fast["per_scale"]["p99_us"])
    assert slow["per_scale"]["measured_p99_us"][3] == 2 * fast["per_scale"]["measured_p99_us"][3]


def test_the_measured_row_stands_beside():
    measured = [
        row["measured"] for row in pm.limit(machine_of("sapphire-rapids")).as_dict()["per_scale"]
    ]
    assert [m and m["batch"] for m in measured] == [63, 127, 255, 511, 1023, 2047, None]
    assert measured[4] == {"batch": 1023, "p99_us": 94.88, "mean_us": 30.25, "outlier": False}
    assert measured[5] == {"batch": 2047, "p99_us": 140.81, "mean_us": 59.39, "outlier": True}
    assert pm.limit(machine_of("comet-lake")).as_dict()["per_scale"][5]["measured"] is None


def test_disagreement_of_fit_and_measured_row_is_said():
    outlier, over = pm.limit(machine_of("comet-lake"), 25).facts["notes"]
    assert "At batch 511 the measured 30.31 us is an outlier" in outlier
    assert "At batch 511 the measured 30.31 us is over the limit" in over


@pytest.mark.parametrize("release", ["v6.18", "v7.2"])
@pytest.mark.parametrize("machine", MACHINES)
def test_no_interval_excludes_the_row_measured_there_without_a_word(machine, release):
    found = pm.limit(machine_of(machine), release=release)
    for row in found.as_dict()["per_scale"]:
        if (measured := row["measured"]) is None:
            continue
        for statistic, interval in (("p99", row["interval"]), ("mean", row["mean_interval"])):
            at = measured[f"{statistic}_us"]
            if not interval[0] <= at <= interval[1]:
                said = f"At batch {measured['batch']} the measured {statistic}, {at:.2f} us"
                assert any(note.startswith(said) for note in found.facts["notes"]), row


def test_both_readings_of_an_outlier_stand_beside_the_measured_row():
    found = pm.limit(machine_of("sapphire-rapids"))
    row = found.as_dict()["per_scale"][5]
    fits = row["p99_fitted_us"]
    assert row["interval"][0] < 140.81 < fits["through_all_rows"] < fits["without_outliers"]
    assert fits["without_outliers"] < row["interval"][1]
    (note,) = found.facts["notes"]
    for number in ("140.81", *(f"{fit:.2f}" for fit in fits.values())):
        assert number in note
    assert "measured: 141 us" in pm.limit(machine_of("sapphire-rapids"), slowdown=[1, 2]).text


def test_extrapolation_and_a_near_miss_are_said():
    assert pm.limit(machine_of("comet-lake")).facts["notes"][-1] == (
        "Batch 2016 was not measured: its time is extrapolated (measured: 63 to 1023)."
    )
    assert (
        pm.limit(machine_of("coffee-lake"))
        .facts["notes"][0]
        .startswith("Scale 5 is not ruled out: probability 0.4")
    )


# ---------------------------------------------------------------- release


def test_since_v6_19_only_refills_scale():
    before, since = (pm.limit(machine_of("coffee-lake"), release=r) for r in ("v6.18", "v7.2"))
    assert (before.facts["batch_scale"], since.facts["batch_scale"]) == (4, 5)
    assert (before.facts["scaled"], since.facts["scaled"]) == (["refill", "drain"], ["refill"])
    assert since["per_scale"]["drain_pages"].tolist() == 7 * [63]
    assert since["per_scale"]["refill_pages"].tolist() == before["per_scale"]["batch"].tolist()
    row = since["per_scale"].iloc[5]
    assert (row["slower_side"], row["measured_p99_us"]) == ("refill", 81.74)
    assert row["p99_us"] == pytest.approx(85.3, abs=0.1)
    assert row["probability"] == pytest.approx(0.93, abs=0.01)


@pytest.mark.parametrize(
    ("release", "scaled"),
    [
        *((r, ["refill", "drain"]) for r in ("v6.7", "v6.12", "debian-6.18.15")),
        *((r, ["refill"]) for r in ("v6.18+hahn-v4", "v6.19", "v6.12+commit-chunks@v5")),
        *((r, ["drain"]) for r in ("v6.6+p4", "debian-6.1.192")),
    ],
)
def test_what_scales_is_the_release_s_rule_and_is_said(release, scaled):
    result = run("limit", "ice-lake", "--p99-us", "100", "--release", release, "--json")
    answer = json.loads(result.stdout)
    assert (answer["release"], answer["scaled"]) == (release, scaled)
    assert f"Under {release} a " in answer["basis"]
    text = run("limit", "ice-lake", "--p99-us", "100", "--release", release).stdout
    assert answer["basis"] in text


def test_the_default_release_is_stated():
    assert "- Under v6.18 a refill and a drain" in run("limit", "ice-lake", "--p99-us", "9").stdout
    assert "- Under v6.18 a refill and a drain" in pm.limit(machine_of("ice-lake")).text
    assert "- Under v6.18 a refill and a drain" in pm.limit(MACHINES).text


@pytest.mark.parametrize(
    "release", ["v4.17", "v5.10", "v5.17", "v6.6", "v6.6+p3", "v6.6+alloc-scale", "v6.6.6", ""]
)
def test_a_release_that_bounds_no_drain_is_refused(release):
    with pytest.raises(InputError, match="release"):
        pm.limit(machine_of("ice-lake"), release=release)


# ---------------------------------------------------------------- page size


@pytest.mark.parametrize(("kib", "batch"), [(4, 63), (16, 15), (64, 3)])
def test_the_batch_follows_from_the_page_size(kib, batch):
    found = pm.limit(machine_of("ice-lake"), page_size_kib=kib)
    assert found["per_scale"]["batch"].tolist() == [batch << k for k in range(7)]
    assert (found.facts["page_size_kib"], found.facts["table_page_size_kib"]) == (kib, None)
    told = any("used for" in note and f"{kib} KiB pages" in note for note in found.facts["notes"])
    assert told == (kib != 4)
    assert (f"batch {batch} of {kib} KiB each" in found.facts["basis"]) == (kib != 4)


def test_a_machine_of_64_kib_pages_has_their_batch_by_default():
    latency = pd.DataFrame({"batch": [3, 7, 15, 31, 63, 127]})
    for side in ("free", "alloc"):
        latency[f"{side}_latency_avg_us"] = 0.5 + 0.03 * latency["batch"]
        latency[f"{side}_latency_p99_us"] = 1.0 + 0.05 * latency["batch"]
    machine = Machine("altra-64k", latency, None, {"page_size_kib": 64}, "0" * 64)
    found = pm.limit(machine)
    assert found["per_scale"]["batch"].tolist()[:2] == [3, 6]
    assert found["per_scale"]["measured_batch"][0] == 3
    assert not any("used for" in note for note in found.facts["notes"])
    smaller = pm.limit(machine, page_size_kib=4)
    assert any(
        note.startswith("The table of altra-64k was measured with 64 KiB")
        for note in smaller.facts["notes"]
    )
    both = pm.limit([machine, machine_of("ice-lake")])["answers"]
    assert both["page_size_kib"][:2].tolist() == [64, 4]
    said = pm.limit([machine, machine_of("ice-lake")]).said
    bases = [text for name, text in said.items() if name.startswith("basis")]
    assert [basis.partition(": Under")[0].removeprefix("- ") for basis in bases] == [
        "altra-64k",
        "ice-lake",
    ]


@pytest.mark.parametrize("batch", [31, 62])
def test_a_measured_row_is_held_against_the_interval_of_its_own_batch(batch):
    """That of 496 pages is below what 511 take, that of 1984 below what 2047 do."""
    found = pm.limit(machine_of("ice-lake"), batch=batch)
    (row,) = found["per_scale"].query("measured_batch == 511").itertuples()
    assert row.mean_high_us < row.measured_mean_us < row.measured_mean_high_us
    assert not any("outside its interval" in note for note in found.facts["notes"])


def test_only_the_side_that_decides_is_extrapolated():
    """Since v6.19 a drain moves 3 pages of 64 KiB, which no table has, and takes no time."""
    found = pm.limit(machine_of("ice-lake"), release="v7.2", page_size_kib=64)
    last = "Batch 192 was not measured: its time is interpolated (measured: 63 to 2047)."
    assert found.facts["notes"][-1] == last


def test_what_lies_far_below_the_table_is_said_to_be_unknown():
    notes = pm.limit(machine_of("coffee-lake"), page_size_kib=64).facts["notes"]
    assert any("p99 falls below the mean" in note for note in notes)
    assert "Batch 192 was not measured: its time is interpolated (measured: 63 to 2047)." in notes


@pytest.mark.parametrize("value", [8, 0, -4, "64", 4096, True, 64.5])
def test_another_page_size_is_refused(value):
    with pytest.raises(InputError, match="page_size_kib"):
        pm.limit(machine_of("ice-lake"), page_size_kib=value)
    assert run("limit", "ice-lake", "--p99-us", "9", "--page-size", "64").exit_code == 2


def test_nothing_fits_is_null_with_a_reason():
    result = run("limit", "ice-lake", "--p99-us", "1", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert answer["batch_scale"] is None
    assert answer["mean_batch_scale"] is None
    assert answer["probability"] < 0.5
    assert "Not even the unscaled batch" in answer["notes"][0]


def test_json_has_cold_pages_beside_warm_ones():
    warm, cold = (
        json.loads(run("limit", "ice-lake", "--p99-us", "100", *more, "--json").stdout)["per_scale"]
        for more in ([], ["--pages", "cold"])
    )
    for row, other in zip(warm, cold, strict=True):
        assert row["p99_us"] < row["cold"]["p99_us"] == other["p99_us"]
        assert row["cold"] == other["cold"]


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "100", None, True, [[100]]])
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
    assert "Read both ways: sapphire-rapids" in run("fit", "sapphire-rapids").stdout


def test_all_machines_and_slower_cpus_in_one_table():
    found = pm.limit(map(machine_of, MACHINES), p99_us=100, slowdown=[1.0, 2.0, 4.0])
    assert len(found["answers"]) == 3 * len(MACHINES)
    one = found["answers"].set_index(["machine", "slowdown"]).loc[("coffee-lake", 2.0)]
    alone = pm.limit(machine_of("coffee-lake"), 100, 2)
    assert one["batch_scale"] == alone.facts["batch_scale"]
    assert one["needed_us"] == alone["per_scale"]["p99_us"][5]
    assert "coffee-lake 4" in found.text


def test_order_of_machines_does_not_change_the_digest():
    two = [machine_of("ice-lake"), machine_of("comet-lake")]
    assert pm.limit(two).digest == pm.limit(two[::-1]).digest != pm.limit(two[0]).digest


def test_several_limits_give_one_row_each():
    found = pm.limit(machine_of("ice-lake"), p99_us=[10.0, 100.0], slowdown=1)
    assert found["scales"].loc[1, "ice-lake"].tolist() == [1, 5]
    assert found["per_scale"]["limit_us"].value_counts().to_dict() == {10.0: 7, 100.0: 7}
    with pytest.raises(InputError, match="at least one"):
        pm.limit(machine_of("ice-lake"), p99_us=[])
    with pytest.raises(InputError, match="p99_us"):
        pm.limit(machine_of("ice-lake"), p99_us="100")


@pytest.mark.parametrize(
    "given", [{"p99_us": [100, 0]}, {"slowdown": [1, -1]}, {"batch": 0}, {"pages": "cool"}]
)
def test_all_numbers_are_looked_at_before_anything_is_computed(given, monkeypatch):
    monkeypatch.setattr("pcpmodel.study.hold.limit.load_machines", None)
    ((name, _),) = given.items()
    with pytest.raises(InputError, match=f"{name}"):
        pm.limit("ice-lake", **given)


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
        assert 0 <= answer.facts["probability"] <= 1
        assert answer.text
        json.dumps(answer.as_dict(), allow_nan=False)
    json.dumps(pm.fit(machine).as_dict(), allow_nan=False)
    assert str(pm.fit(machine))
    assert pm.fit(machine).text
    assert "odd" in pm.study.throughput_gain(machine).said


def test_a_table_whose_intervals_say_nothing_gets_an_answer():
    # All holds in one bucket of 0 to 2 ms, and a total of 0 ms: what funclatency -m prints of them.
    batch = np.array([63, 127, 255, 511, 1023, 2047])
    latency = pd.DataFrame({"batch": batch, "throughput_pages_per_s": np.nan})
    interval = pd.DataFrame({"batch": batch})
    for side in ("alloc", "free"):
        for what, value, high in (("avg", 0.013, 0.025), ("p99", 1979.975, 2000.0)):
            column = f"{side}_latency_{what}"
            latency[f"{column}_us"] = value
            interval[f"{column}_low_us"], interval[f"{column}_high_us"] = 0.0, high
    machine = Machine("nothing", latency, interval, {}, "0" * 64)
    for p99_us, slowdown in ((100.0, 1.0), (1e-6, 1e9), (1e9, 1e-6)):
        answer = pm.limit(machine, p99_us, slowdown)
        assert 0 <= answer.facts["probability"] <= 1
        json.dumps(answer.as_dict(), allow_nan=False)


def test_advice_is_not_given_on_a_p99_that_is_not_known():
    batch = np.array([63, 127, 255, 511])
    latency = pd.DataFrame({"batch": batch, "throughput_pages_per_s": np.nan})
    interval = pd.DataFrame({"batch": batch})
    for side in ("alloc", "free"):
        for what, value in (("avg", 0.03 * batch), ("p99", 0.06 * batch)):
            latency[f"{side}_latency_{what}_us"] = value
            interval[f"{side}_latency_{what}_low_us"] = 0.0
            interval[f"{side}_latency_{what}_high_us"] = value * [30, 30, 3000, 3000]
    machine = Machine("vague", latency, interval, {}, "0" * 64)
    with pytest.raises(InputError, match="that is no ground for advice"):
        pm.advise(machine)


@pytest.mark.slow
@settings(max_examples=5 if settings().derandomize else 20)  # a fit takes most of a second
@given(st.data())
def test_limit_answers_for_every_table_that_its_schema_allows(data):
    number = st.floats(0.001, 1e6)
    batch = sorted(data.draw(st.sets(st.integers(1, 65535), min_size=4, max_size=8)))
    latency = pd.DataFrame({"batch": batch, "throughput_pages_per_s": np.nan})
    interval = pd.DataFrame({"batch": batch})
    for side in ("alloc", "free"):
        drawn = data.draw(st.lists(st.tuples(number, number), min_size=len(batch), max_size=8))
        figures = {"avg": [min(d) for d in drawn], "p99": [max(d) for d in drawn]}
        for what, values in figures.items():
            values = np.array(values[: len(batch)])
            wide = data.draw(st.sampled_from([0.0, 0.1, 3.0, 1e3, 1e6]))
            latency[f"{side}_latency_{what}_us"] = values
            interval[f"{side}_latency_{what}_low_us"] = values * max(0.0, 1 - wide)
            interval[f"{side}_latency_{what}_high_us"] = values * (1 + wide)
    answer = pm.limit(Machine("odd", latency, interval, {}, "0" * 64))
    assert 0 <= answer.facts["probability"] <= 1
    json.dumps(answer.as_dict(), allow_nan=False)


def test_a_line_of_memory_that_takes_no_time_adds_nothing():
    """It is what Machine.with_costs() allows; an interval from 0 has no logarithm."""
    free = pm.machine("ice-lake").with_costs(line_memory=0)
    warm, cold = (pm.limit(free, p99_us=100, pages=pages) for pages in ("warm", "cold"))
    assert cold["per_scale"]["p99_us"].tolist() == warm["per_scale"]["p99_us"].tolist()


def test_a_line_of_memory_of_perhaps_no_time_is_refused_for_cold_pages(monkeypatch):
    machine = pm.machine("ice-lake")
    known = machine.line_memory._replace(low=0.0)
    monkeypatch.setitem(machine.__dict__, "line_memory", known)
    with pytest.raises(InputError, match=r"line_memory is 0 to 198.2 ns; .* allowed: above 0"):
        pm.limit(machine, p99_us=100, pages="cold")


def test_a_fit_to_rows_that_nobody_measured_says_so():
    made = pm.fit(pm.machine("new", like="ice-lake")).text
    assert "No hold of new was measured" in made
    assert "how near they come to them says nothing of the machine" in made
    assert "nothing of the machine" not in pm.fit("ice-lake").text


def test_99th_percentiles_are_rougher_where_they_are():
    assert "percentiles** are rougher" in pm.fit("ice-lake").text
    table = pm.machine("ice-lake").latency
    smooth = {f"{side}_latency_p99_us": 1.5 * table[f"{side}_latency_avg_us"]
              for side in ("alloc", "free")}  # fmt: skip
    even = Machine("even", table.assign(**smooth), None, {}, "")
    assert "percentiles** are no rougher" in pm.fit(even).text

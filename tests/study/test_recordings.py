"""The notebooks' questions on recorded kernels."""

# SPDX-License-Identifier: GPL-2.0-only

import pandas as pd
import pytest

import pcpmodel as pm
from pcpmodel.errors import InputError
from pcpmodel.trace.judged import factor, judgement, work_of


def test_exactness_is_one_row_per_recording():
    found = pm.study.recordings(["6.18-pf1-2cpu", "6.1-unixpair-4cpu"])
    assert list(found.table["recording"]) == ["6.18-pf1-2cpu", "6.1-unixpair-4cpu"]
    assert list(found.table["kernel"]) == ["debian-6.18.15", "debian-6.1.192"]
    assert (found.table["blocks"] == found.table["blocks_foreseen"]).all()
    # Two pages were taken before others and reported later.
    assert list(found.table["allocations_explained"]) == [4, 0]
    assert (found.table["allocations_unexplained"] == 0).all()
    assert "37,080 of 37,084 allocations (4 more explained)" in found.text
    assert found.text.startswith("Recordings: 2, kernels: 2")
    assert found.text.endswith("none is without.")
    with pytest.raises(InputError, match=r"6\.18-pf1-2cpu"):
        pm.study.recordings(["6.18-pf1-2cp"])


def test_the_model_counts_what_the_kernel_counts():
    found = pm.study.pages_over_time("7.2-idle-decay-4cpu")
    table = found.table
    assert table["time_s"].is_monotonic_increasing
    kernel = table["kernel"].dropna()
    model = table["model"].ffill()[kernel.index].fillna(0)
    assert len(kernel) > 10
    # While a dump walks the lists the machine works on.  It is idle at most of these dumps, and
    # there the counts are equal; at the others they differ by what moves meanwhile, below.
    equal = (model - kernel).abs() <= 1
    assert equal.sum() > (~equal).sum()
    assert ((model - kernel).abs() < 0.05 * kernel.max()).all()


def test_recorded_work_is_one_row_per_rules():
    releases = ["v6.6", "v6.6+p2", "v6.6+p3"]
    found = pm.study.recorded_work("6.18-unixpair-4cpu", releases)
    assert list(found.table["release"]) == releases
    base, patch2, patch3 = found.table["zone_lock_holds"]
    assert base > patch2 > 3 * patch3
    again = pm.study.recorded_work("6.18-unixpair-4cpu", releases)
    assert again.digest == found.digest
    pd.testing.assert_frame_equal(again.table, found.table)
    assert f"{base:,} times under v6.6" in found.text
    assert "; a refill or drain then moves " in found.text


def test_rules_that_take_the_lock_as_often_are_not_set_against_each_other():
    """It was "182 times under v6.6 and 182 times under v6.6", with 89 pages "instead of" 89."""
    same = pm.study.recorded_work("6.18-pf1-2cpu", ["v6.6", "v6.6+p1"]).said["holds"]
    assert same.endswith("take the zone lock 182 times under v6.6 and v6.6+p1.")
    alone = pm.study.recorded_work("6.18-pf1-2cpu", ["v6.6"]).said["holds"]
    assert alone.endswith("182 times under v6.6.")


def test_what_shipped_kernels_do_and_how_far_such_counts_are_off_is_said_with_the_extremes():
    """Patch 8's holds under memory pressure stood without what replay --what-if always prints."""
    rules = ["v6.6", "v6.6+p7", "v6.6+p8", "v6.6+p10", "v6.7", "v7.2"]
    work = pm.study.recorded_work("6.1-pressure-4cpu", rules)
    holds = work.table.set_index("release")["zone_lock_holds"]
    shipped = ", ".join(f"{name} {holds[name]:,}" for name in ("v6.6", "v6.7", "v7.2"))
    assert f"Of kernels as released: {shipped}." in work.said["holds"]
    caveat = pm.what_if("6.1-pressure-4cpu", ["v6.6"]).judged
    assert "drains by a factor of" in caveat
    assert caveat in work.text
    told = pm.study.patch_surprise([work], work, []).said["patch 8"]
    assert told.endswith(f"Judged: {caveat}.")


def test_what_if_is_held_against_the_kernels_that_ran():
    found = pm.study.what_if_judged()
    table = found["pairs"]
    assert found.table["pairs"].iloc[-1] == found.table["pairs"].iloc[:-1].sum()
    assert found.table["pairs"].iloc[-1] == (~table["repeated"]).sum()
    # Both ways round, with the same counts.
    pairs = set(zip(table["first"], table["second"], strict=True))
    assert pairs == {(second, first) for first, second in pairs}
    total = found.table.iloc[-1]
    assert total["drains_model"] < total["drains_unchanged"]
    assert f"{total['drains_model']:.2f}" in found.said["drains"]
    # The table under it is what these recordings give today.
    for first, second in (
        ("6.18-unixpair-4cpu", "7.3-unixpair-4cpu"),
        ("6.12-mixed-4cpu", "6.19-mixed-4cpu"),
    ):
        row = table[(table["first"] == first) & (table["second"] == second)].iloc[0]
        done = pm.what_if(first, [row["second_release"]])
        there = pm.replay(second)
        for what in ("refills", "drains"):
            foreseen = (getattr(done.outcomes[0], what) + 0.5) / done.allocations * 1000
            recorded = (done.recorded[what] + 0.5) / done.allocations * 1000
            real = (getattr(there, what) + 0.5) / there.allocations * 1000
            assert row[f"{what}_foreseen"] == pytest.approx(foreseen)
            assert row[f"{what}_first"] == pytest.approx(recorded)
            assert row[f"{what}_second"] == pytest.approx(real)


def test_a_factor_is_the_geometric_mean_of_how_far_off():
    table = pd.DataFrame(
        {"drains_second": [1.0, 8.0], "drains_foreseen": [2.0, 4.0], "drains_first": [8.0, 8.0]}
    )
    assert factor(table, "drains") == pytest.approx(2)
    assert factor(table, "drains", "first") == pytest.approx(8**0.5)
    assert work_of("7.2-exitstorm-pti-4cpu-r2") == "exitstorm-pti"
    assert work_of("mine") == ""


def test_a_what_if_says_how_far_it_may_be_off():
    tcp, mine = judgement("6.12-tcp-4cpu"), judgement("mine")
    assert "(tcp)" in tcp
    assert "(all kinds of work)" in mine
    row = pm.study.what_if_judged().table.set_index("workload").loc["tcp"]
    assert f"drains by a factor of {row['drains_model']:.2f}" in tcp
    assert f"({row['drains_unchanged']:.2f} if nothing" in tcp
    assert "Time is not replayed" in tcp

"""The questions of the notebooks, zone splitting, and why one run differs from another."""

# SPDX-License-Identifier: GPL-2.0-only

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

import pcpmodel as pm
from helpers.simulation import MACHINE
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import release
from pcpmodel.simulation.host import Host
from pcpmodel.study.answer import Answer
from pcpmodel.study.contention.zone_splitting import _growth
from pcpmodel.study.lists.stranded import _back_at_the_end, _time_until
from pcpmodel.study.lists.tradeoff import (
    _as_measured,
    _beaten,
    _fixed,
    _inside,
    _measured,
    _said,
)


def test_cpus_prefer_instances_in_turn():
    host = Host(16, 2, 64.0, zones_per_node=4)
    assert host.zonelist(6)[0] == 2  # node 0, 6 mod 4
    assert host.zonelist(8 + 5)[0] == 4 + 1
    assert {host.zonelist(cpu)[0] for cpu in range(8)} == {0, 1, 2, 3}


def test_an_instance_is_sized_by_its_own_memory_and_all_cpus_of_the_node():
    whole = Host(224, 2, 2048.0).sizes(release("v6.7"))[0]
    part = Host(224, 2, 2048.0, zones_per_node=4).sizes(release("v6.7"))
    assert len(part) == 8
    assert part[0].managed == whole.managed // 4
    assert part[0].high_max == pytest.approx(whole.high_max / 4, rel=0.01)


def test_published_pcp_size_follows_from_the_memory_assumed():
    """361 pages with 112 CPUs per node, from which the memory of that server was inferred."""
    assert Host(224, 2, 247.5).sizes(release("v6.6"))[0].high_min == 361


def small(kernel, **options):
    return pm.simulate(
        release=kernel,
        machine=MACHINE,
        workload=pm.workload.page_fault1(8, pages=2000, fault_ns=400.0),
        cpus=8,
        nodes=1,
        memory_gib=16,
        seconds=0.05,
        **options,
    )


def test_causes_add_up_to_the_difference():
    before, after = small("v6.6"), small("v6.7")
    causes = pm.study.explain(before, after).table
    values = causes["ns_per_unit"].to_numpy()
    assert values[:-1].sum() == pytest.approx(values[-1])
    by = causes.set_index("cause")["ns_per_unit"]
    assert by["waiting for the zone lock"] < 0
    assert by["number of zone-lock holds"] < 0
    assert by["asleep"] == 0
    same = pm.study.explain(before, small("v6.6")).table["ns_per_unit"]
    assert (same[1:-1] == 0).all()


def test_runs_of_different_work_are_not_compared():
    other = pm.simulate(
        release="v6.6",
        machine=MACHINE,
        workload=pm.workload.kbuild(2, page_us=1.0),
        cpus=2,
        nodes=2,
        memory_gib=16,
        seconds=0.05,
    )
    with pytest.raises(InputError, match="different work"):
        pm.study.explain(small("v6.6"), other)


def test_drains_are_cut_and_the_tail_with_them():
    answer = pm.study.bulk_free(hosts={"one": (16, 1, 32.0)}, seeds=[1, 2], seconds=1.0)
    assert len(answer.table) == 6
    assert len(answer["seeds"]) == 12
    tails = answer.table.set_index(["holds", "release"])["drain_p99_us"]
    for holds in ("warm pages", "pages as they come"):
        assert tails[holds, "v6.19"] < 0.2 * tails[holds, "v6.18"]
    # What a cold block costs is no measurement of a hold, and decides the tail.
    assert tails["pages as they come", "v6.18"] > 3 * tails["warm pages", "v6.18"]
    assert (answer.table["gain_error_percent"][answer.table["release"] != "v6.18"] > 0).all()
    assert "drain p99" in answer.text
    assert len(answer.digest) == 64


def test_the_dip_is_judged_by_the_stated_variations():
    said = pm.study.bulk_free(hosts={"one": (4, 1, 16.0)}, seeds=[1, 2], seconds=0.2).text
    # 1.4865 + 0.0351 over sqrt(2) times hypot(0.807, 0.2806)
    assert "medium and large differ by 1.52 points of build time, 1.3 standard errors" in said
    assert "beyond chance from 3 runs" in said
    assert "+0.5 in real, +1.0 in sys and -0.5 in user time" in said
    # An order that fits one of three looked at is less than one that fits.
    assert "the fitting one once in 6 times, and 3 kinds of time had that chance." in said
    assert "-11.9 %, with a variation of 5.0 %: 1.7 standard errors" in said
    with pytest.raises(InputError, match="scatter"):
        pm.study.bulk_free(seeds=[1])


def test_gains_within_their_noise_have_no_order():
    from pcpmodel.study.contention.bulk_free import _gain_order

    table = pd.DataFrame(
        {
            "release": "v",
            "gib_per_cpu": [1.0, 2.0, 3.0],
            "gain_percent": [0.1, 0.3, 0.2],
            "gain_error_percent": 0.2,
        }
    )
    assert "no order to explain" in _gain_order(table, "v")
    told = _gain_order(table.assign(gain_percent=[0.0, 1.0, 2.0]), "v")
    assert "rank correlation with memory per CPU +1.00" in told


def test_a_fair_lock_starves_nobody_longer_than_its_queue():
    hosts = {"one": (16, 1, 32.0), "two": (32, 1, 64.0)}
    answer = pm.study.lock_starvation(
        hosts=hosts, releases=["v6.18", "v6.19"], seeds=[1, 2], seconds=1.0
    )
    table = answer.table.set_index(["holds", "host", "release"])
    before, after = (table.loc[("pages as they come", "two", r)] for r in ("v6.18", "v6.19"))
    assert after["wait_p99_ms"] <= before["wait_p99_ms"]
    longest = table["wait_max_ms"].unstack()["v6.18"].loc["pages as they come"]
    assert 1.0 < longest["two"] / longest["one"] < 2.5
    assert "98.6 % of its time in softirqs" in answer.text


def test_splitting_zones_takes_contention_away():
    answer = pm.study.zone_splitting(instances=[1, 2, 4], seeds=[1, 2], seconds=1.0)
    rows = answer.table[answer.table["workload"].str.startswith("page_fault1")]
    contention = rows.set_index(["release", "instances"])["contention_percent"]
    assert contention["v6.6", 4] < 0.2 * contention["v6.6", 1]
    assert answer["waterfall"]["cause"].iloc[0] == "before"


@pytest.mark.long
def test_a_build_does_not_gain_all_the_time_that_it_stops_to_wait():
    """Its spinning threads leave their cores to others."""
    answer = pm.study.zone_splitting(instances=[1, 2, 4], seeds=[1, 2])
    build = answer.table[answer.table["workload"].str.startswith("kbuild")]
    build = build.set_index(["release", "instances"])
    waits = build["contention_percent"]["v6.6", 1]
    most = 100 / (1 - waits / 100) - 100  # were it all lost work: 22 % here
    for kernel in (("v6.6", 4), ("v6.7", 1)):
        assert 0.4 * most < build["score_percent"][kernel] - 100 < 0.7 * most
    said = answer.text
    assert "Do splitting and auto-tuning add up? No" in said
    assert '"up to" 18.2 % more' in said
    assert "two per node, which are four in all" in said
    with pytest.raises(InputError, match="no scatter"):
        pm.study.zone_splitting(seeds=[1])


QUICK = {"seeds": [1, 2], "seconds": 0.1}


@pytest.mark.long
def test_splitting_is_set_beside_what_was_published_only_where_that_was_asked():
    of = {"instances": [2, 1], **QUICK}
    both = pm.study.zone_splitting(releases=["v6.6", "v6.7"], **of).text
    assert "from 1 to 2 instances" in both
    assert "Published" not in both  # of up to four instances
    assert "Do splitting and auto-tuning add up?" in both
    tuned = pm.study.zone_splitting(releases=["v6.18", "v7.2"], **of).text
    assert "add up" not in tuned
    with pytest.raises(InputError, match="lacks 1, with which"):
        pm.study.zone_splitting(instances=[2, 3], **QUICK)
    assert (
        "v6.18, unsplit: contention 0.0"
        in pm.study.zone_splitting(instances=[1], releases=["v6.18"], **QUICK).text
    )


def test_growth_with_cpus_is_what_the_runs_say():
    said = {
        "is ": [4.0],
        "grows with the CPUs: ": [1.0, 2.0],
        "grows with the CPUs, worse and worse: ": [1.0, 2.0, 5.0],
        "does not grow with the CPUs throughout: ": [1.0, 3.0, 2.0],
    }
    for words, percent in said.items():
        assert _growth(pd.Series(percent, index=[56, 112, 224][: len(percent)])) == words
    of = {"cpus": [16], "memory_gib": [2048.0], **QUICK}
    assert "gains nothing" not in pm.study.contention_by_cpus(**of).text
    assert "1 instance per node and gains nothing" in (
        pm.study.contention_by_cpus(**of | {"memory_gib": [512.0]}).text
    )


def test_one_kernel_is_not_set_beside_itself_nor_no_machine_asked():
    of = {"release": "v6.18", "tuned": "v6.18", "memory_gib": [512.0], **QUICK}
    assert "; with v6.18" not in pm.study.contention_by_cpus(cpus=[16], **of).text
    with pytest.raises(InputError, match=r"cpus=\[\]; allowed: .* at least one"):
        pm.study.contention_by_cpus(cpus=[], **of)


@pytest.mark.parametrize("releases", [["v6.18"], ["v6.18", "v6.18"]])
def test_one_kernel_has_nothing_to_compare(releases):
    for question in (pm.study.bulk_free, pm.study.stream_price):
        with pytest.raises(InputError, match="has nothing to compare; give two or more"):
            question(releases=releases, **QUICK)


def test_a_seed_given_twice_has_no_scatter():
    with pytest.raises(InputError, match="has one twice"):
        pm.study.stream_price(seeds=[1, 1])


@pytest.mark.long
def test_contention_grows_with_cpus_and_memory_is_no_measure_of_them():
    answer = pm.study.contention_by_cpus(
        cpus=[56, 448], memory_gib=[512.0, 2048.0], seeds=[1, 2], seconds=0.5
    )
    at = answer.table.set_index(["memory_gib", "release", "cpus"])
    contention = at["contention_percent"]
    assert contention[2048.0, "v6.6, one zone", 448] > 8 * contention[2048.0, "v6.6, one zone", 56]
    assert at["instances"][512.0, "v6.6, split by memory", 448] == 1
    assert contention[512.0, "v6.6, split by CPUs", 448] < 3
    assert contention[2048.0, "v6.6, split by memory", 448] < 3


TRADE = {"processes": 32, "seconds": 0.5, "seeds": [1, 2]}


def test_the_shipped_setting_is_a_row_of_every_grid_and_nothing_slower_is_recommended():
    """high 10000 was recommended, three times slower than v6.7 as it is."""
    answer = pm.study.tradeoff(batch_scale_max=[0, 6], high_pages=[300, 3000], p99_us=1e6, **TRADE)
    grid = answer.table[answer.table["asks"] == "what to set?"]
    assert len(grid) == 3 * 3  # scale 5 and the kernel's own high come with it
    (shipped,) = (row for _, row in grid.iterrows() if row["shipped"])
    assert (shipped["batch_scale_max"], np.isnan(shipped["high_pages"])) == (5, True)
    (pick,) = (row for _, row in grid.iterrows() if row["recommended"])
    noise = np.hypot(pick["score_per_s_half_width"], shipped["score_per_s_half_width"])
    assert pick["score_per_s"] > shipped["score_per_s"] - noise
    slow = grid[grid["high_pages"] == 300]
    assert (slow["score_per_s"] + slow["score_per_s_half_width"] < shipped["score_per_s"]).all()
    assert (answer["choice"]["shipped"] | answer["choice"]["recommended"]).all()
    assert ", as shipped." in answer.text
    assert "inside the grid" in answer.text
    assert "Faster than the shipped setting by more than the noise: none of 8; slower: " in (
        answer.text
    )
    # It is what a single run of that setting says.
    run = pm.simulate(
        "v6.7", "sapphire-rapids", pm.workload.page_fault1(32), cpus=224, nodes=2,
        memory_gib=512, seconds=0.5,
    )  # fmt: skip
    assert run.score_per_s == pytest.approx(shipped["score_per_s"], rel=0.03)


def test_a_kernel_without_a_batch_scale_factor_has_no_answer_by_the_table():
    answer = pm.study.tradeoff(
        release="v5.10", batch_scale_max=[5], high_pages=[300], processes=4, seconds=0.02,
        seeds=[1, 2],
    )  # fmt: skip
    assert "the table alone" not in answer.text
    assert "A scale changes nothing: v5.10 has no batch scale factor." in answer.text
    # Lists of 4 MiB were told as 0.0 GiB.
    said = pm.figures.caption(pm.figures.tradeoff(answer.table, 100.0))
    assert re.search(r"p99 \d{1,2}\.\d+ ± [\d.]+ µs, 0\.00\d+ GiB", said)


def test_a_limit_inside_the_interval_of_what_is_recommended_is_told():
    """99.4 +- 7.5 us was recommended under 100, and nothing said that it may be above."""
    given = {"batch_scale_max": [5], "high_pages": [300], **TRADE}
    far = pm.study.tradeoff(p99_us=1e6, **given)
    assert "lies inside that interval" not in far.text
    pick = far["choice"].query("recommended").iloc[0]
    assert pick["hold_p99_us_half_width"] > 0
    p99_us = pick["hold_p99_us"] + 0.5 * pick["hold_p99_us_half_width"]
    near = pm.study.tradeoff(p99_us=p99_us, **given)
    assert near["choice"].query("recommended")["setting"].item() == pick["setting"]
    assert f"The limit of {p99_us:g} us lies inside that interval" in near.text


def test_settings_as_measured_stand_beside_what_was_measured():
    answer = pm.study.tradeoff(batch_scale_max=[5], high_pages=[300], **TRADE)
    # Cold pages were fitted to another table; the measured one alone allows a longer batch.
    assert "By the table alone scale 4 stays under 100 us, with probability 0.9" in answer.text
    rows = answer.table[answer.table["asks"] == "as measured"].set_index("batch")
    latency = pm.machine("sapphire-rapids").latency.set_index("batch")
    assert list(rows.index) == list(latency.index)
    assert (rows["high_pages"] == 2 * rows.index).all()
    assert list(rows["measured_per_s"]) == list(latency["throughput_pages_per_s"])
    assert (
        rows["hold_p99_us"]
        .iloc[:-1]
        .between(
            0.7 * rows["measured_free_p99_us"].iloc[:-1],
            1.5 * rows["measured_alloc_p99_us"].iloc[:-1],
        )
        .all()
    )
    assert not (rows["front"] | rows["recommended"]).any()
    assert "% measured" in answer.text


def test_of_a_machine_without_a_table_no_table_is_told():
    guest = pm.machine("guest", like="ice-lake")
    text = pm.study.tradeoff(guest, batch_scale_max=[5], high_pages=[300], **TRADE).text
    assert "By the table alone" not in text
    assert re.search(r"By the machine's holds alone, not measured, scale \d stays under", text)
    assert "The holds of guest are for pages" in guest.page_size_note(64)


def test_what_a_table_states_of_its_figures_stands_beside_and_made_rows_are_not_measured():
    guest = pm.machine("amd-epyc-vm")
    rows = _measured(guest)
    stated = guest.latency_interval
    for side in ("alloc", "free"):
        assert list(rows[f"measured_{side}_p99_us"]) == list(
            guest.latency[f"{side}_latency_p99_us"]
        )
        for end in ("low", "high"):
            column = f"{side}_latency_p99_{end}_us"
            assert list(rows[f"measured_{side}_p99_{end}_us"]) == list(stated[column])
    made = _measured(pm.machine("new", like="ice-lake"))
    assert made.drop(columns="batch").isna().all(axis=None)
    simulated = made.assign(setting="batch", score_per_s=1.0, hold_p99_us=2.0)
    assert "p99 of a hold 2.0 us simulated, none measured." in _as_measured(simulated)


@pytest.mark.parametrize(
    ("scores", "half", "says"),
    [
        ([1e6], 0.0, None),
        (
            [1e6, 2e6],
            0.0,
            "- A fixed high has to be long enough: from 1.00 (high 300) to 2.00 million",
        ),
        (
            [2e6, 1e6],
            0.0,
            "- With a fixed high throughput goes from 1.00 (high 3000) to 2.00 million",
        ),
        ([1e6, 2e6], 1e6, "to 2.00 million pages/s (high 3000), inside the noise."),
    ],
)
def test_a_fixed_high_has_to_be_long_enough_only_if_longer_ones_are_faster(scores, half, says):
    """Of one alone it was "from 19.8 (high 300) to 19.8 million pages/s (high 300)"."""
    fixed = pd.DataFrame({"high_pages": [300, 3000][: len(scores)], "score_per_s": scores})
    fixed = fixed.assign(score_per_s_half_width=half)
    fixed["setting"] = [f"high {high}" for high in fixed["high_pages"]]
    told = dict(_fixed(fixed, 32_768))
    assert told == {} if says is None else says in told["fixed high"]
    assert dict(_fixed(fixed[:0], 32_768)) == {}


def on(**platform):
    made = pm.machine("ice-lake")
    return replace(made, platform=made.platform | platform)


def test_settings_are_tried_on_the_cpus_and_pages_of_the_machine():
    """They were on 224 CPUs and 512 GiB whatever it has, which nothing said; 64 KiB was refused."""
    given = {"batch_scale_max": [5], "high_pages": [300], "seeds": [1, 2], "seconds": 0.1}
    small = {"cpus": 8, "nodes": 1, "memory_gib": 16, "threads_per_core": 1}
    told = pm.study.tradeoff(on(**small), **given)
    assert "- Runs: page_fault1 on 8 of 8 CPUs on 1 node, 16 GiB, pages of 4 KiB." in told.text
    assert "beside a thread" not in told.text
    large = pm.study.tradeoff(on(**small, page_size_kib=64), **given)
    assert "on 8 of 8 CPUs on 1 node, 16 GiB, pages of 64 KiB." in large.text
    own = large.table[large.table["shipped"]].iloc[0]
    assert own["pages_in_pcp_mib"] == pytest.approx(own["pages_in_pcp_mean"] / 16)
    usual = pm.study.tradeoff(processes=224, **given)
    assert "on 224 of 224 CPUs on 2 nodes, 512 GiB, pages of 4 KiB; assumed: 224 CPUs, " in (
        usual.text
    )
    # What makes these holds longer than the table's are threads of one core, not lines.
    assert "and a hold beside a thread at work on its core takes 1.6 times as long" in usual.text
    assert "1.6 times" not in pm.study.tradeoff(processes=112, **given).text
    left = pm.study.stranded(on(**small), releases=["v6.7"], pages=2000, seconds=2.0, idle_s=1.0)
    assert "- Runs: idle_after_burst on 8 of 8 CPUs on 1 node, 16 GiB" in left.text
    assert left["ends"]["peak_mib"].max() < 56 * 2000 / 256


def test_throughputs_that_differ_are_not_told_as_one_number():
    """ "from 3.2 (scale 0, high 252) to 3.2 million pages/s (scale 2, high 1000)"."""
    fixed = pd.DataFrame({"high_pages": [252, 1000], "score_per_s": [3.16e6, 3.24e6]})
    fixed = fixed.assign(score_per_s_half_width=1e3, setting=["high 252", "high 1000"])
    assert "from 3.16 (high 252) to 3.24 million pages/s" in dict(_fixed(fixed, 2048))["fixed high"]


def test_where_no_hold_is_taken_none_has_a_percentile():
    """Lists that take a whole mapping up never come to the lock: that was a p99 of 0.0 us."""
    answer = pm.study.tradeoff(
        processes=2, batch_scale_max=[5], high_pages=[70_000], seconds=0.2, seeds=[1, 2]
    )
    row = answer.table[answer.table["high_pages"] == 70_000].iloc[0]
    assert row["refills"] + row["drains"] == 0
    assert np.isnan([row["hold_p99_us"], row["hold_p99_us_half_width"], row["wait_p99_ns"]]).all()
    assert row["front"]  # no hold is the shortest there is
    assert "no hold is taken" in _said(row)
    assert "p99 0.0" not in answer.text
    held = answer.table[answer.table["hold_p99_us"].notna()].iloc[0]
    assert ", p99 " in _said(held)
    marked = answer.table.assign(shipped=answer.table["high_pages"] == 70_000)
    said = pm.figures.caption(pm.figures.tradeoff(marked, 100.0))
    assert "million pages/s, no hold, " in said


def test_a_release_that_drained_nothing_has_no_longest_drain():
    answer = pm.study.bulk_free(
        hosts={"large": (2, 1, 512.0), "medium": (2, 1, 512.0)}, seeds=[1, 2], seconds=0.01
    )
    none = answer["hosts"][answer["hosts"]["drains"] == 0]
    assert len(none)
    assert none["drain_p99_us"].isna().all()
    assert "no drain" in answer.text
    assert "drain p99 0 " not in answer.text


def test_no_setting_under_the_limit_is_said_and_one_seed_refused():
    given = TRADE | {"processes": 32, "p99_us": 1e-6}
    answer = pm.study.tradeoff(batch_scale_max=[5], high_pages=[300], **given)
    assert "No setting of the grid stays under 1e-06 us" in answer.text
    assert not answer.table["recommended"].any()
    with pytest.raises(InputError, match="two or more"):
        pm.study.tradeoff(seeds=[1])


@pytest.mark.parametrize(
    ("scale", "high", "longest", "scales", "says"),
    [
        (5, 500.0, 500.0, [0, 5, 6], "edge of the grid (high 500): it may lie beyond."),
        (5, 300.0, 400.0, [0, 5, 6], "edge of the grid (high 300): it may lie beyond."),
        (5, 300.0, 500.0, [0, 5, 6], "edge of the grid (high 300, high 500): it may lie beyond."),
        (5, 400.0, 400.0, [0, 5, 6], "inside the grid."),
        (5, np.nan, 500.0, [0, 5, 6], "inside the grid."),
        (5, np.nan, np.nan, [2, 3, 5], "edge of the grid (scale 5): it may lie beyond."),
        (2, 400.0, 500.0, [2, 3, 5], "edge of the grid (scale 2, high 500): it may lie beyond."),
        (6, np.nan, np.nan, [0, 5, 6], "inside the grid; no scale may be more than 6."),
        (0, 400.0, 400.0, [0, 5, 6], "inside the grid; no scale may be less than 0."),
        (5, np.nan, np.nan, (), "inside the grid."),  # a kernel that looks at no scale
    ],
)
def test_an_answer_is_at_the_edge_of_a_grid_that_could_go_on(scale, high, longest, scales, says):
    """Scales 0 and 6, the least and the most that a kernel may have, were edges, too."""
    pick = pd.Series({"batch_scale_max": scale, "high_pages": high})
    equal = pd.DataFrame({"high_pages": [high, longest]})
    assert _inside(pick, equal, scales, [300, 400, 500]).endswith(says)


def test_the_front_counts_what_differs_by_more_than_its_noise():
    points = pd.DataFrame(
        {
            "score_per_s": [100.0, 100.5, 90.0, 70.0],
            "hold_p99_us": [50.0, 50.0, 20.0, 50.0],
            "pages_in_pcp_mib": [10.0, 10.0, 10.0, 10.0],
        }
    )
    for name in list(points):
        points[f"{name}_half_width"] = 1.0
    assert list(_beaten(points)) == [False, False, False, True]
    points["score_per_s_half_width"] = 0.1  # now the second is faster than the first
    assert list(_beaten(points)) == [True, False, False, True]


def _scatters(ax):
    return [drawn for drawn in ax.collections if isinstance(drawn, PathCollection)]


def test_every_setting_is_a_point_the_front_has_names_and_the_tables_are_beside():
    answer = pm.study.tradeoff(batch_scale_max=[0, 5], high_pages=[300, 3000], **TRADE)
    ax = pm.figures.tradeoff(answer.table, 100.0)
    points = [at for drawn in _scatters(ax) for at in drawn.get_offsets()]
    marked = ("shipped", "recommended")
    rings = {drawn.get_label() for drawn in _scatters(ax)} & set(marked)
    assert rings == {mark for mark in marked if answer.table[mark].any()}
    assert len(points) == 2 * 3 + len(rings)
    names = {text.get_text() for text in ax.texts if "/" in text.get_text()}
    front = answer.table[answer.table["front"]]
    own = front["high_pages"].isna()
    assert names == {
        f"{k:g} / {'own' if auto else f'{high:,.0f}'}"
        for k, high, auto in zip(front["batch_scale_max"], front["high_pages"], own, strict=True)
    }
    assert "95 % intervals" in pm.figures.caption(ax)
    assert "shipped is scale 5, own high" in pm.figures.caption(ax)
    drawn = pm.figures.tradeoff_latency(answer.table, 100.0)
    (measured,) = (bars for bars in drawn.containers if bars.get_label() == "measured, refill")
    latency = pm.machine("sapphire-rapids").latency
    assert list(measured[0].get_ydata()) == list(latency["alloc_latency_p99_us"])
    assert pm.figures.caption(drawn).endswith("The table states no uncertainty.")
    none = answer.table.assign(
        **{name: np.nan for name in answer.table if name.startswith("measured_")}
    )
    drawn = pm.figures.tradeoff_latency(none, 100.0)
    assert "measured, refill" not in drawn.get_legend_handles_labels()[1]
    assert "at 2,047 pages none was measured" in pm.figures.caption(drawn)


def test_sleeping_cpus_keep_their_pages_longer():
    answer = pm.study.stranded(releases=["v6.6", "v6.7"], pages=2000, seconds=8.0, idle_s=4.0)
    ends = answer["ends"].set_index(["release", "nohz_idle"])
    assert ends.loc[("v6.7", True), "end_mib"] > ends.loc[("v6.7", False), "end_mib"]
    assert ends.loc[("v6.6", False), "end_mib"] == ends.loc[("v6.6", False), "peak_mib"]
    most = answer.table.groupby("release")["mib"].max()
    assert most.to_dict() == answer["ends"].groupby("release")["peak_mib"].max().to_dict()
    said = answer.text
    assert "Would it surprise us" in said
    assert "back at the base level at the end" in said


def test_half_of_a_peak_is_given_back_so_long_after_it():
    time_s, mib = np.array([1.0, 2.0, 3.0, 7.0]), np.array([5.0, 10.0, 6.0, 5.0])
    assert _time_until(time_s, mib, 5.0) == 5.0
    assert _time_until(time_s, mib, 4.0) == np.inf


def test_what_everything_is_that_an_idle_machine_gives_back_a_fixed_high_tells():
    """A tuned list that nothing had left by the end was held to be a fixed one, of any size."""

    def told(*runs, seconds=20.0):
        parts, ends = [], []
        for name, mib in runs:
            time_s = np.arange(len(mib)) * seconds / (len(mib) - 1)
            table = {"release": name, "nohz_idle": False, "time_s": time_s, "mib": mib}
            parts.append(pd.DataFrame(table))
            half = _time_until(time_s, np.array(mib), max(mib) / 2)
            row = {"release": name, "nohz_idle": False, "peak_mib": max(mib)}
            ends.append(row | {"end_mib": mib[-1], "half_s": half})
        return dict(_back_at_the_end(pd.DataFrame(ends), pd.concat(parts), seconds))

    base, kept = ("v6.6", [4.0, 4.0, 4.0, 4.0, 4.0]), ("v7.2", [40.0, 40.0, 40.0, 40.0, 40.0])
    assert told(base) == {}
    said = told(base, kept)
    assert "It does not: half of the peak is back not in 20 s (v7.2, awake)." in said["surprise"]
    assert "against 4 MiB of v6.6: 40 MiB (v7.2, awake)" in said["claim"]
    soon, late = ("v7.2", [40.0, 4.0, 4.0, 4.0, 4.0]), ("v7.2", [40.0, 18.0, 18.0, 5.0, 4.0])
    assert "It does: half of the peak is back after 5.0 s" in told(base, soon)["surprise"]
    assert "It does not: half of the peak is back after 5.0 s" in told(base, late)["surprise"]
    alone = told(soon)
    assert list(alone) == ["surprise"]
    assert "No release with a fixed high is here" in alone["surprise"]


def test_figures_of_the_questions_are_drawn():
    rows = pd.DataFrame(
        {
            "source": "pcp-auto-tuning-v2",
            "table": "unix",
            "step": ["base", "patch1"],
            "quantity": "score",
            "measured": [100.0, 110.0],
            "mean": [100.0, 130.0],
            "half_width": [np.nan, 4.0],
            "measured_half_width": [np.nan, 2.0],
            "tolerance_low": [90.0, 100.0],
            "tolerance_high": [110.0, 121.0],
            "within": [True, False],
        }
    )
    ax = pm.figures.answer_key(rows)
    assert ax.get_ylim()[1] > 134
    said = pm.figures.caption(ax)
    assert "The bars over the seeds of 1 of 2 predictions reach the measured figure, 1 are" in said
    assert "of 1 of 2 measured figures no scatter is stated" in said
    told = rows.assign(**{"nothing changes": [None, 100.0]})
    caption = pm.figures.caption(pm.figures.answer_key(told))
    assert "Of the 1 with a row before, a prediction that nothing changes has 1." in caption
    assert "fitted" not in said
    assert "cost sheet" not in said
    wide = pm.figures.answer_key(
        rows.assign(interval_low=[100.0, 60.0], interval_high=[100.0, 190.0])
    )
    assert "light ones what the cost sheet's intervals allow as well" in pm.figures.caption(wide)
    assert "which reach the measured figure of 2;" in pm.figures.caption(wide)
    assert wide.get_ylim()[1] > 190
    assert "with the cost sheet's intervals" in wide.get_legend_handles_labels()[1]
    fitted = told.assign(fitted=3, fitted_to="pcp-auto-tuning-rfc")
    caption = pm.figures.caption(pm.figures.answer_key(fitted))
    assert "nothing was fitted to these, but 3 inputs to figures of pcp-auto-tuning-rfc." in caption
    caption = pm.figures.caption(pm.figures.answer_key(fitted.assign(fitted=0)))
    assert "; nothing was fitted." in caption
    assert ax.get_ylabel() == "% of base"
    two = pd.concat([rows, rows.assign(source="pcp-auto-tuning-v3", quantity="score change")])
    ax = pm.figures.answer_key(two.assign(mean=[1.0, -3.0] * 2))
    drawn = [line.get_xdata().tolist() for line in ax.lines if line.get_linestyle() == "-"]
    assert [x for x in drawn if len(x) == 2] == [[0, 1], [2, 3]], "a line per table"
    assert ax.get_ylim()[0] < -3
    assert ax.get_ylabel() == "% change or % of base"
    figure = pm.figures.panels(
        pm.figures.answer_key, two, by=["source", "quantity"], share="", title="{}: {}"
    )
    titles = [" ".join(ax.get_title(loc="left").split()) for ax in figure.axes if ax.axison]
    assert titles == ["pcp-auto-tuning-v2: score", "pcp-auto-tuning-v3: score change"]
    assert "One panel per source and quantity." in pm.figures.caption(figure)
    mixed = pd.DataFrame(
        {"quantity": ["drains", "drains", "contention [%]", "contention [%]"], "kernel": "v6.6",
         "release": ["on", "off"] * 2, "value": [243.0, 59.0, 17.0, 14.3]}
    )  # fmt: skip
    figure = pm.figures.panels(
        pm.figures.by_release, mixed, by="quantity", share="",
        x="kernel", y="value", xlabel="release", ylabel="mean of the seeds",
    )  # fmt: skip
    caption = pm.figures.caption(figure)
    assert "Drains: on 243; off 59. Contention [%]: on 17; off 14.3." in caption
    causes = pd.DataFrame(
        {"cause": ["before", "a", "b", "after"], "ns_per_unit": [10.0, -3.0, 1.0, 8.0]}
    )
    ax = pm.figures.waterfall(causes)
    assert [b.get_x() for b in ax.patches] == [10.0, 7.0]
    assert np.allclose([b.get_width() for b in ax.patches], [-3.0, 1.0])
    wholes = next(line for line in ax.lines if line.get_label() == "whole")
    assert list(wholes.get_xdata()) == [10.0, 8.0]
    assert "One seed." in pm.figures.caption(ax)
    ax = pm.figures.waterfall(causes.assign(half_width=[1.0, 0.5, 0.1, 1.0]))
    assert "a, -3.0 ± 0.5 ns" in pm.figures.caption(ax)
    assert "95 % intervals over the seeds" in pm.figures.caption(ax)


def test_whether_the_scale_should_be_a_setting_follows_from_the_answers():
    def said(p99_us, slowdown=(1.0,), releases=("v6.18", "v7.2")):
        of = {"p99_us": p99_us, "slowdown": [*slowdown]}
        before, since = (pm.limit(release=r, **of) for r in releases)
        return pm.study.limit_surprise(before, since).text

    assert "answers go from 4 to 5 as measured; a number per machine needs" in said(100.0)
    assert "answers go from none to 0 as measured" in said(4.3)
    assert "and 6 is the answer of all of them as measured: none needs a number" in said(1e5)
    assert "no scale is the answer of any as measured" in said(0.5)
    slower = said(100.0, (2.0, 4.0))
    assert "everywhere, on CPUs 2x slower? No: on 0 of 5 machines" in slower
    assert "answers go from 3 to 4 on CPUs 2x slower" in slower
    # What cutting changes two kernels tell only if one of them does it, whichever comes first.
    assert "It does: coffee-lake 4 to 5." in said(100.0, releases=("v7.2", "v6.18"))
    assert "v6.12 and v6.18 do not cut them" in said(100.0, releases=("v6.12", "v6.18"))


def works(**rows):
    """As `recorded_work` answers: holds by release, of a quiet work and of one under pressure."""
    return [
        Answer(
            {
                "releases": pd.DataFrame(
                    [{"release": n, "zone_lock_holds": h, "pages_in_pcp_max": 9} for n, h in of]
                )
            },
            {},
        )
        for of in rows.values()
    ]


def test_a_preparation_that_changes_another_number_than_the_holds_is_said_to_change_that():
    quiet, pressed = works(quiet=[("v6.6+p1", 5), ("v6.6+p2", 5)], pressed=[("v6.6+p8", 1)])
    quiet.table.loc[1, "pages_in_pcp_max"] = 1234
    told = pm.study.patch_surprise([quiet], pressed, []).text
    assert "Yes: v6.6+p2 has 1,234 pages_in_pcp_max instead of 9." in told


@pytest.mark.parametrize(
    ("quiet", "said"),
    [
        ([("v6.6", 5), ("v7.2", 3)], "They are not asked here: the state before"),
        ([("v6.6+p1", 5), ("v6.6+p2", 5)], "Not v6.6+p2, and the others are not asked here"),
        ([("v6.6+p1", 5), ("v6.6+p2", 4)], "Yes: v6.6+p2 takes the lock 4 times instead of 5."),
        ([(f"v6.6+p{n}", 5) for n in range(1, 9)], "No, none of them."),
        ([(f"v6.6+p{n}", 5) for n in range(7, 9)], "Rows p7 and p8 are equal above. Patch 8 acts"),
        ([("v6.6+p7", 5), ("v6.6+p8", 4)], "Rows p7 and p8 differ above. Patch 8 acts"),
    ],
)
def test_patches_that_no_run_asked_about_are_not_answered_for(quiet, said):
    work, pressed = works(quiet=quiet, pressed=quiet)
    assert said in pm.study.patch_surprise([work], pressed, []).text


def test_a_rule_beats_no_tuned_kernel_where_none_was_asked():
    (work,) = works(of=[("v6.6", 5), ("policy", 3)])
    assert (
        "both holds and memory? None is among the releases: " in pm.study.policy_surprise(work).text
    )
    (alone,) = works(of=[("policy", 3)])
    assert pm.study.policy_surprise(alone).text.endswith("pages on the lists up to 9.")


def test_no_rule_is_called_right_where_differences_are_left():
    exact = pm.study.recordings(["6.18-pf1-2cpu"])
    assert "No rule is known to be wrong" in pm.study.replay_surprise(exact).text
    exact.table["unexplained"] = 3
    said = pm.study.replay_surprise(exact).text
    assert "3 are not. What no recording exercises is not tested" in said


def test_a_cost_per_page_that_rises_is_not_said_to_fall():
    fit = pm.fit("ice-lake")
    assert "measured? Yes: refills by" in pm.study.latency_surprise(fit).text
    rising = fit["measured"].assign(
        alloc_latency_avg_us=lambda t: t["batch"] * 0.03 + t["batch"] ** 2 * 1e-6
    )
    other = Answer({"measured": rising}, {})
    said = pm.study.latency_surprise(other).text
    assert "Not everywhere (less than 0 % is a rise: ice-lake refill): refills by -7" in said


@pytest.mark.parametrize(
    ("ask", "given", "said"),
    [
        ("bulk_free", {"releases": ["v6.18", "v9"]}, "unknown release 'v9'"),
        ("contention_by_cpus", {"tuned": "v9"}, "unknown release 'v9'"),
        ("lock_starvation", {"seeds": [1, -1]}, "seed=-1 is outside"),
        ("lock_starvation", {"releases": ["v6.18", "v9"]}, "unknown release 'v9'"),
        ("rules_surprise", {"ladders": []}, "none of kind decay, drain, refill"),
        ("stranded", {"releases": ["v6.6", "v9"]}, "unknown release 'v9'"),
        ("stranded", {"seconds": math.inf}, "idle_s=inf"),
        ("tradeoff", {"p99_us": math.nan}, "p99_us=nan"),
        ("trajectory", {"release": "v6.6", "work": iter([3])}, "work=3 is not"),
        ("try_patch", {"seeds": 1}, r"seeds=1 is outside 2\.\.100"),
        ("try_patch", {"cpus": 3}, "cpus=3 cannot be spread"),
        ("unfair_lock", {"releases": ["v6.18", "v9"]}, "unknown release 'v9'"),
        ("zone_splitting", {"releases": ["v6.6", "v9"]}, "unknown release 'v9'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(ask, given, said, monkeypatch):
    """Not after the runs of what was named before it."""
    for work in ("simulation.run.prepare", "study.patch.tree"):
        monkeypatch.setattr(f"pcpmodel.{work}", None)
    with pytest.raises(InputError, match=said):
        getattr(pm.study, ask)(**given)


def test_the_last_seed_of_a_comparison_is_one_of_a_run():
    with pytest.raises(InputError, match=r"seed=.* is outside"):
        pm.compare("hahn-v4", seed=2**63 - 1)

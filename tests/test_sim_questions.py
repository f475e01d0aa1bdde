"""The questions of the notebooks, zone splitting, and why one run differs from another."""

# SPDX-License-Identifier: GPL-2.0-only

import numpy as np
import pandas as pd
import pytest
from test_sim_engine import MACHINE

import pcpmodel as pm
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import release
from pcpmodel.simulation.host import Host


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
    causes = pm.explain_runs(before, after)
    values = causes["ns_per_unit"].to_numpy()
    assert values[:-1].sum() == pytest.approx(values[-1])
    by = causes.set_index("cause")["ns_per_unit"]
    assert by["waiting for the zone lock"] < 0
    assert by["number of zone-lock holds"] < 0
    assert by["asleep"] == 0
    same = pm.explain_runs(before, small("v6.6"))["ns_per_unit"]
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
        pm.explain_runs(small("v6.6"), other)


def test_drains_are_cut_and_the_tail_with_them():
    answer = pm.bulk_free(hosts={"one": (16, 1, 32.0)}, seeds=[1, 2], seconds=1.0)
    assert len(answer.table) == 3
    assert len(answer.more) == 6
    tail = answer.table.set_index("release")["drain_p99_us"]
    assert tail["v6.19"] < 0.2 * tail["v6.18"]
    assert "drain p99" in answer.summary()
    assert len(answer.digest) == 64


def test_the_dip_is_judged_by_the_stated_variations():
    said = pm.bulk_free(hosts={"one": (4, 1, 16.0)}, seeds=[1, 2], seconds=0.2).summary()
    # 1.4865 + 0.0351 over sqrt(2) times hypot(0.807, 0.2806)
    assert "medium and large differ by 1.52 points of build time, 1.3 standard errors" in said
    assert "beyond chance from 3 runs" in said


def test_a_fair_lock_starves_nobody_longer_than_its_queue():
    hosts = {"one": (16, 1, 32.0), "two": (32, 1, 64.0)}
    answer = pm.lock_starvation(hosts=hosts, releases=["v6.18", "v6.19"], seconds=1.0)
    table = answer.table.set_index(["host", "release"])
    before, after = (table.loc["two"].loc[r] for r in ("v6.18", "v6.19"))
    assert after["wait_p99_ms"] <= before["wait_p99_ms"]
    longest = table["wait_max_ms"].unstack()["v6.18"]
    assert 1.5 < longest["two"] / longest["one"] < 2.5
    assert "Longest wait" in answer.summary()


def test_splitting_zones_takes_contention_away():
    answer = pm.zone_splitting(instances=[1, 4], releases=["v6.6"], seconds=0.3)
    rows = answer.table[answer.table["workload"].str.startswith("page_fault1")]
    contention = rows.set_index("instances")["contention_percent"]
    assert contention[4] < 0.2 * contention[1]
    assert answer.more["cause"].iloc[0] == "before"


def test_front_holds_what_no_other_point_beats():
    answer = pm.tradeoff(
        processes=16, batch_scale_max=[0, 3], high_pages=[300, 3000], seconds=0.05, p99_us=1e6
    )
    table = answer.table
    assert len(table) == 4
    assert table["front"].any()
    best = table.loc[table["score_per_s"].idxmax()]
    assert best["front"]
    assert answer.more["score_per_s"].iloc[0] == best["score_per_s"]
    assert (
        "No point"
        in pm.tradeoff(
            processes=2, batch_scale_max=[0], high_pages=[300], seconds=0.02, p99_us=0.001
        ).summary()
    )


def test_sleeping_cpus_keep_their_pages_longer():
    answer = pm.stranded(releases=["v6.6", "v6.7"], pages=2000, seconds=8.0, idle_s=4.0)
    ends = answer.more.set_index(["release", "nohz_idle"])
    assert ends.loc[("v6.7", True), "end_mib"] > ends.loc[("v6.7", False), "end_mib"]
    assert ends.loc[("v6.6", False), "end_mib"] == ends.loc[("v6.6", False), "peak_mib"]
    assert (answer.table.groupby("release")["mib"].max() > 0).all()


def test_figures_of_the_questions_are_drawn():
    rows = pd.DataFrame(
        {
            "source": "pcp-auto-tuning-v2",
            "table": "unix",
            "step": ["base", "patch1"],
            "quantity": "score",
            "measured": [100.0, 110.0],
            "predicted": [100.0, 130.0],
            "tolerance_low": [90.0, 100.0],
            "tolerance_high": [110.0, 121.0],
            "within": [True, False],
            "fitted": ["x", None],
        }
    )
    ax = pm.figures.answer_key(rows)
    assert ax.get_ylim()[1] > 130
    assert ax.get_ylabel() == "% of base"
    two = pd.concat([rows, rows.assign(source="pcp-auto-tuning-v3", quantity="score change")])
    ax = pm.figures.answer_key(two.assign(predicted=[1.0, -3.0] * 2))
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
    causes = pd.DataFrame(
        {"cause": ["before", "a", "b", "after"], "ns_per_unit": [10.0, -3.0, 1.0, 8.0]}
    )
    bars = pm.figures.waterfall(causes).patches
    assert [b.get_x() for b in bars] == [0.0, 10.0, 7.0, 0.0]
    assert np.allclose([b.get_width() for b in bars], [10.0, -3.0, 1.0, 8.0])

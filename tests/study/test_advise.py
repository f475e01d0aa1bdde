"""Advice: what follows from a machine's tables and its zoneinfo."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import DATA
from helpers.zoneinfo import kernel_text
from pcpmodel.cli import main
from pcpmodel.errors import InputError

ZONEINFO = DATA / "traces" / "7.2-pf1-8cpu" / "zoneinfo.after"


def test_a_measured_machine_is_told_its_scale_and_the_price():
    told = pm.advise("coffee-lake", zoneinfo=ZONEINFO, release="v6.18").as_dict()["batch_scale_max"]
    assert (told["now"], told["advice"], told["to"]) == (5, "lower", 4)
    assert told["line"].startswith("CONFIG_PCP_BATCH_SCALE_MAX=4")
    now, then = (figure for name, figure in told["effect"].items() if name.startswith("p99"))
    assert then["value"] < now["value"]
    assert then["value"] < 100
    for what in ("p99 of a hold", "zone-lock contention", "memory on the lists"):
        figures = [f for name, f in told["effect"].items() if name.startswith(what)]
        assert len(figures) == 2
        assert all(f["low"] <= f["value"] <= f["high"] for f in figures)
        assert all(f["low"] < f["high"] for f in figures)


def test_a_looser_limit_alone_raises_nothing():
    """At 6 the runs' lock is contended as much as at 5, and the p99 of a hold is twice as long."""
    strict, usual, loose = (
        pm.advise("ice-lake", zoneinfo=ZONEINFO, p99_us=us, release="v6.18").facts[
            "batch_scale_max"
        ]
        for us in (20, 100, 1000)
    )
    assert [t["advice"] for t in (strict, usual, loose)] == ["lower", "leave", "leave"]
    assert (loose["to"], loose["line"]) == (5, None)
    assert "what bounds it is Kconfig's range, 0 to 6, and not the limit" in loose["why"]
    assert "nothing that pays for a p99 of 179 us" in loose["why"]
    assert "zone-lock contention, at 6 instead" in loose["effect"]
    assert "Kconfig" not in usual["why"] + strict["why"]


@pytest.mark.parametrize(
    ("at_6", "advice"),
    [(0.001, "raise"), (0.02, "leave"), (0.0045, "leave")],  # of 0.005 and a tenth more by seed
)
def test_a_scale_is_raised_where_its_runs_are_contended_less(monkeypatch, at_6, advice):
    def simulate(**options):
        share = at_6 if options["batch_scale_max"] == 6 else 0.005
        share *= 1 + 0.1 * (options["seed"] - 1)
        held = np.array([1000.0])
        return SimpleNamespace(stands=True, lock_contention=share, pages_in_pcp=held)

    monkeypatch.setattr("pcpmodel.study.hold.advise.simulate", simulate)
    told = pm.advise("ice-lake", zoneinfo=ZONEINFO, p99_us=1000).facts["batch_scale_max"]
    assert told["advice"] == advice
    if advice == "raise":
        assert told["line"].startswith("CONFIG_PCP_BATCH_SCALE_MAX=6")
        assert "contended less, by more than they scatter" in told["why"]
        assert "the price is a p99 of" in told["why"]


def test_without_a_table_nothing_is_advised_for_the_scale():
    told = pm.advise(zoneinfo=ZONEINFO).facts["batch_scale_max"]
    assert (told["advice"], told["line"], told["effect"]) == ("leave", None, {})
    assert "data add latency" in told["why"]
    assert "ice-lake" in told["why"]


def test_a_release_whose_drains_are_cut_is_not_told_to_lower_for_them():
    before, since = (
        pm.advise("coffee-lake", zoneinfo=ZONEINFO, release=r) for r in ("v6.18", "v7.2")
    )
    assert before.facts["batch_scale_max"]["advice"] == "lower"
    told = since.facts["batch_scale_max"]
    assert (told["advice"], told["to"]) == ("leave", 5)
    assert told["effect"]["p99 of a hold, now (5)"]["value"] == pytest.approx(85.3, abs=0.1)
    assert any(line.startswith("Under v7.2 a refill moves") for line in since.facts["rests_on"])


def test_a_file_is_advised_for_the_kernel_that_wrote_it(saved):
    """v6.19 cuts drains: what holds of v6.18 ask to lower is left there."""
    told = pm.advise("coffee-lake", zoneinfo=ZONEINFO).facts
    assert told["release"] == "v6.19"
    assert told["batch_scale_max"]["advice"] == "leave"
    assert "Under v6.19" in told["batch_scale_max"]["why"]
    (said,) = (line for line in told["rests_on"] if line.startswith("The file is of"))
    assert "v6.19 or a kernel that prints the same (it prints free_highatomic)" in said
    done = CliRunner().invoke(main, ["advise", "--zoneinfo", str(ZONEINFO), "--json"])
    assert json.loads(done.stdout)["release"] == "v6.19"
    asked = pm.advise("coffee-lake", zoneinfo=ZONEINFO, release="v6.18").facts
    assert asked["release"] == "v6.18"
    assert any("for v6.18, as asked; the file is of v6.19" in r for r in asked["rests_on"])
    newer = pm.advise(zoneinfo=ZONEINFO, release="v7.2").facts["rests_on"]
    assert not any("the file is of" in line.lower() for line in newer)
    usual = pm.advise(zoneinfo=saved([zone(0, 64, 4)], 4)).facts
    assert usual["release"] == "v6.18"
    assert not any("file is of" in line for line in usual["rests_on"])


@pytest.fixture
def large_pages(tmp_path, monkeypatch):
    """Ice Lake's table on a machine of 80 CPUs, 256 GiB and pages of that size."""
    shutil.copytree(DATA, tmp_path / "data", symlinks=True, ignore=lambda *_: ["traces"])
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path / "data"))
    file = tmp_path / "data" / "hardware" / "ice-lake" / "platform.json"
    known = json.loads(file.read_text()) | {"cpus": 80, "nodes": 1, "memory_gib": 256}

    def stated(kib):
        file.write_text(json.dumps(known | {"page_size_kib": kib}))

    return stated


@pytest.mark.parametrize(("kib", "batch"), [(16, 15), (64, 3)])
def test_a_machine_with_large_pages_is_known_and_advised_as_it_is(large_pages, kib, batch):
    large_pages(kib)
    told = pm.advise("ice-lake")
    most = told.facts["high_fraction"]["effect"]["most that the limits allow, now"]["value"]
    assert most == pytest.approx(256 * 1024 / 8, rel=0.01)
    rests = " ".join(told.facts["rests_on"])
    assert "not known" not in rests + told.facts["high_fraction"]["why"]
    assert f"on 80 CPUs, 1 node, 256.0 GiB, pages of {kib} KiB" in rests
    assert f"batch {batch} of {kib} KiB each" in rests
    allowed = pm.limit("ice-lake").facts["batch_scale"]
    assert f" {allowed} " in told.facts["batch_scale_max"]["why"]
    spread = told.facts["batch_scale_max"]["effect"]["memory on the lists in the runs, now"][
        "value"
    ]
    assert 0 < spread < most
    assert re.search(r"now \(5\): \d{1,2}\.\d+ us \(\d+\.\d+ \.\.\. \d+\.\d+\)", told.text)


def test_the_page_size_of_a_zoneinfo_is_the_one_its_batches_follow_from(tmp_path):
    text = re.sub(r"batch: +63", "batch: 3", ZONEINFO.read_text())
    (tmp_path / "zoneinfo").write_text(text)
    told = pm.advise("coffee-lake", zoneinfo=tmp_path / "zoneinfo")
    small = pm.advise("coffee-lake", zoneinfo=ZONEINFO)
    name = "most that the limits allow, now"
    large, as_it_is = (t.facts["high_fraction"]["effect"][name]["value"] for t in (told, small))
    assert large == 16 * as_it_is
    rests = " ".join(told.facts["rests_on"])
    assert "pages of 64 KiB (the batches of" in rests
    assert "used for 64 KiB pages as if" in rests  # the table's are not stated
    assert "the p99 of 6 stays under 100 us" in told.facts["batch_scale_max"]["why"]


def test_memory_of_the_runs_and_of_the_file_have_names_of_their_own():
    told = pm.advise("coffee-lake", zoneinfo=ZONEINFO)
    effects = told["effects"]
    assert not effects["figure"].duplicated().any()
    of = {name: set(rows) for name, rows in effects.groupby("setting")["figure"]}
    assert "memory on the lists in the runs, now" in of["CONFIG_PCP_BATCH_SCALE_MAX"]
    assert "memory on the lists in the file, now" in of["vm.percpu_pagelist_high_fraction"]


def test_the_fraction_follows_from_the_share_of_memory():
    left = pm.advise(zoneinfo=ZONEINFO).facts["high_fraction"]
    assert (left["advice"], left["line"]) == ("leave", None)
    told = pm.advise(zoneinfo=ZONEINFO, stranded_percent=5).facts["high_fraction"]
    assert (told["advice"], told["to"]) == ("raise", 20)
    assert told["line"] == "sysctl vm.percpu_pagelist_high_fraction=20"
    assert "price" in told["why"]
    assert pm.advise(zoneinfo=ZONEINFO, stranded_percent=12.4).facts["high_fraction"]["to"] == 9


def test_the_shipped_limits_are_left_as_they_are_on_a_machine_of_two_nodes():
    path = DATA / "traces" / "7.2-numa2-4cpu" / "zoneinfo.after"
    told = pm.advise(zoneinfo=path, stranded_percent=13).facts["high_fraction"]
    assert told["advice"] == "leave"
    share = told["effect"]["share that the limits allow, now"]["value"]
    assert share == pytest.approx(12.5, abs=0.5)


def zone(node, gib, n, batch=63, fraction=8, low=None):
    """One zone as `kernel_text` takes it, n CPUs of which share its pages."""
    managed = gib << 18
    low = managed // 900 if low is None else low
    limits = [max(total // n, 4 * batch) for total in (low, managed // fraction)]
    return (node, "Normal", managed, low, 0, batch, *limits)


@pytest.fixture
def saved(tmp_path):
    def made(zones, cpus, **options):
        path = tmp_path / "zoneinfo"
        path.write_text(kernel_text(zones, cpus, **options))
        return path

    return made


def share_of(told):
    return told.facts["high_fraction"]["effect"]["share that the limits allow, now"]["value"]


@pytest.mark.parametrize(
    ("zones", "cpus"),
    [
        ([zone(0, 64, 4), zone(1, 192, 4)], 4),
        ([zone(0, 64, 4), zone(1, 64, 4), zone(2, 192, 8)], 8),
        ([zone(0, 64, 6), zone(1, 192, 2)], 8),
    ],
)
def test_of_a_node_without_cpus_the_lists_of_every_cpu_count(saved, zones, cpus):
    path = saved(zones, cpus)
    told = pm.advise(zoneinfo=path, stranded_percent=13)
    assert share_of(told) == pytest.approx(12.5, abs=0.01)
    assert told.facts["high_fraction"]["advice"] == "leave"
    assert "as the limits of" in told.facts["rests_on"][-1]


@pytest.mark.parametrize("limits", [True, False])
def test_nodes_without_cpus_and_memory_leave_the_cpus_to_the_others(saved, limits):
    """A Grace: CPUs with their memory, that of a GPU, and nodes that have neither."""
    zones = [zone(0, 480, 72), zone(1, 96, 72), *((n, "Normal", *[0] * 6) for n in range(2, 9))]
    path = saved(zones, 72, limits=limits)
    told = pm.advise(zoneinfo=path)
    assert share_of(told) == pytest.approx(12.5, abs=0.01)
    assert told.facts["high_fraction"]["advice"] == "leave"
    assert "of 72 CPUs 72 on node 0, none on node 1" in told.facts["rests_on"][-1]
    path = saved([zone(0, 64, 4), zone(8, 64, 4), (250, "Normal", *[0] * 6)], 8, limits=limits)
    rests = pm.advise(zoneinfo=path).facts["rests_on"][-1]
    assert "of 8 CPUs 4 on node 0, 4 on node 8, none" in rests


def test_cpus_are_not_spread_over_nodes_without_memory(saved):
    path = saved([zone(0, 64, 4), (1, "Normal", *[0] * 6)], 4, limits=False)
    path.write_text(re.sub(r"(high: +)(\d+)$", r"\g<1>9\2", path.read_text(), flags=re.M))
    with pytest.raises(pm.InputError, match="4 CPUs on 2 nodes: the file does not say"):
        pm.advise(zoneinfo=path)
    assert share_of(pm.advise(zoneinfo=path, cpus_per_node=[4, 0])) == pytest.approx(12.5, abs=0.01)


def test_memory_without_cpus_is_simulated_as_such(saved):
    path = saved([zone(0, 16, 4), zone(1, 48, 4)], 4)
    rests = " ".join(pm.advise("coffee-lake", zoneinfo=path).facts["rests_on"])
    assert "on 4 CPUs, 1 node, 16.0 GiB, pages of 4 KiB, and 48.0 GiB of nodes without" in rests
    assert "4 CPUs, 1 node without CPUs with 48.0 GiB" in rests


def test_a_machine_of_more_cpus_than_a_run_has_tasks_is_advised(saved):
    path = saved([zone(0, 64, 516), zone(1, 64, 516)], 1032)
    told = pm.advise("coffee-lake", zoneinfo=path)
    assert share_of(told) == pytest.approx(12.5, abs=0.01)
    assert "by 1024 processes under v6.18 on 1032 CPUs" in " ".join(told.facts["rests_on"])
    assert "as many as a run follows" in " ".join(told.facts["rests_on"])


@pytest.fixture
def runs(monkeypatch):
    """What `pcpmodel.simulate` is asked for."""
    asked = []

    def simulate(**options):
        asked.append(options)
        return pm.simulate(**options)

    monkeypatch.setattr("pcpmodel.study.hold.advise.simulate", simulate)
    return asked


def test_cpus_are_simulated_on_the_nodes_that_have_them(saved, runs):
    path = saved([zone(0, 16, 3), zone(1, 16, 1)], 4)
    rests = " ".join(pm.advise("coffee-lake", zoneinfo=path).facts["rests_on"])
    assert "3 on node 0, 1 on node 1" in rests
    assert "in the run" not in rests
    assert {(h["nodes"], *h["cpus_per_node"]) for h in runs} == {(2, 3, 1)}


def test_the_batch_of_the_file_goes_before_the_releases(tmp_path):
    (tmp_path / "zoneinfo").write_text(re.sub(r"batch: +63", "batch: 31", ZONEINFO.read_text()))
    told, usual = (
        pm.advise("coffee-lake", zoneinfo=f, release="v6.18").facts
        for f in (tmp_path / "zoneinfo", ZONEINFO)
    )
    now = told["batch_scale_max"]["effect"]["p99 of a hold, now (5)"]["value"]
    then = usual["batch_scale_max"]["effect"]["p99 of a hold, then (4)"]["value"]
    assert now == pytest.approx(then, rel=0.02)  # 992 pages and 1,008
    allowed = pm.limit("coffee-lake", batch=31).facts["batch_scale"]
    assert f"the p99 of {allowed} stays under 100 us" in told["batch_scale_max"]["why"]
    assert any("move batch << k pages, batch 31, in one hold" in r for r in told["rests_on"])
    (said,) = (r for r in told["rests_on"] if "sizes other than" in r)
    assert "2 of 3 zones have sizes other than v6.18 gives" in said
    assert "node 0 DMA32 batch 31 (63); node 0 Normal batch 31 (63)" in said
    assert not any("sizes other than" in r for r in usual["rests_on"])
    none = pm.advise(zoneinfo=tmp_path / "zoneinfo").facts["batch_scale_max"]
    assert "6 (coffee-lake)" in none["why"]
    assert "and a batch of 31" in none["why"]


def test_runs_have_the_sizes_of_the_file(saved, runs):
    rows = [zone(0, 16, 4, low=99_000), zone(1, 48, 4, batch=31)]
    pm.advise("coffee-lake", zoneinfo=saved(rows, 4))
    sizes = {(run["batch"], run["high_min_pages"]) for run in runs}
    assert sizes == {((63, 31), (99_000 // 4, (48 << 18) // 900 // 4))}  # of each node


def test_a_run_has_the_memory_and_the_lists_of_each_node(saved, runs):
    path = saved([zone(0, 16, 4), zone(1, 256, 2)], 6)
    rests = " ".join(
        pm.advise("coffee-lake", zoneinfo=path, cpus_per_node=[4, 2]).facts["rests_on"]
    )
    assert "16.0 GiB on node 0, 256.0 GiB on node 1" in rests
    assert "every other node is as far away" in rests
    even = saved([zone(0, 16, 3), zone(1, 256, 3)], 6)
    told = " ".join(pm.advise(zoneinfo=even).facts["rests_on"])
    assert "3 each (the limits of 2 of 2 zones follow from it;" in told
    (run,) = {(r["gib_per_node"], r["cpus_per_node"], r["high_min_pages"]) for r in runs}
    lows = [(gib << 18) // 900 for gib in (16, 256)]
    assert run == ((16.0, 256.0), (4, 2), (lows[0] // 4, lows[1] // 2))


def test_cpus_of_a_node_without_memory_take_that_of_others(saved, runs):
    """They are on no other node in the run, and their lists count where they take from."""
    empty = (1, "Normal", 0, 0, 0, 1, 0, 0)
    told = pm.advise(
        "coffee-lake", zoneinfo=saved([zone(0, 64, 5), empty], 8), cpus_per_node=[5, 3]
    )
    assert {(r["gib_per_node"], r["cpus_per_node"]) for r in runs} == {((64.0, 0.0), (5, 3))}
    assert "3 CPUs on nodes without memory" in " ".join(told.facts["rests_on"])
    assert share_of(told) == pytest.approx(12.5 * 8 / 5, abs=0.01)
    # The fraction is of what the node's own CPUs keep: 8 of 5 keep more.
    advised = told.facts["high_fraction"]
    assert advised["to"] == 13
    then = advised["effect"]["share that the limits allow, then"]["value"]
    assert then == pytest.approx(100 / 13 * 8 / 5, abs=0.01)


def test_runs_are_counted_once_their_rates_stand(saved, runs):
    """Of 512 CPUs lists had a tenth of their pages after a warm-up of 0.2 s."""
    path = saved([zone(0, 1024, 256), zone(1, 1024, 256)], 512)
    told = pm.advise("ice-lake", zoneinfo=path)
    assert not any("warmup_s" in run for run in runs)
    held = told.facts["batch_scale_max"]["effect"]["memory on the lists in the runs, now"]["value"]
    assert held > 20_000


def test_lists_that_are_disabled_for_now_are_told_from_small_ones(saved):
    off = (0, "Normal", 16 << 18, 4000, 0, 1, 0, 0)
    rests = pm.advise(zoneinfo=saved([off, zone(1, 4, 4)], 8), cpus_per_node=4).facts["rests_on"]
    assert "The lists of node 0 Normal were disabled" in rests[-1]
    told = pm.advise(zoneinfo=saved([off], 4))
    assert "a batch of" not in told.facts["batch_scale_max"]["why"]


def test_a_zone_too_small_for_lists_before_v5_14_is_not_disabled_for_now(saved):
    """Its batch is rounded down to nothing, and it has no lists ever (`sizing.fixed_size`)."""
    small, large = (0, "DMA", 3840, 30, 0, 1, 0, 0), (0, "Normal", 1 << 20, 9000, 0, 63, 378, 378)
    path = saved([small, large], 4, limits=False)
    path.write_text(re.sub(r" +promo .*\n", "", path.read_text()))
    rests = " ".join(pm.advise(zoneinfo=path).facts["rests_on"])
    assert "every high is six batches" in rests
    assert "were disabled" not in rests


@pytest.mark.parametrize("batch", [0, 4097, 1.5, True, "63"])
def test_a_batch_that_no_list_has_is_refused(batch):
    with pytest.raises(InputError, match=r"batch=.*( 1\.\.4096|; allowed: int)"):
        pm.limit("coffee-lake", batch=batch)


@pytest.mark.parametrize("fraction", [8, 16, 1000])
def test_a_fraction_that_is_set_is_known_by_the_limits(saved, fraction):
    node, name, managed, low, boost, batch, _, most = zone(0, 64, 4, fraction=fraction)
    path = saved([(node, name, managed, low, boost, batch, most, most)], 4)
    answer = pm.advise(zoneinfo=path)
    told = answer.facts["high_fraction"]
    assert (told["now"], told["advice"]) == (fraction, "leave")
    assert share_of(answer) == pytest.approx(100 / fraction, rel=0.01)
    assert not any("sizes other than" in r for r in answer.facts["rests_on"])
    given = pm.advise(zoneinfo=path, high_fraction=0).facts  # it is not: then the sizes differ
    assert given["high_fraction"]["now"] == 0
    assert any("sizes other than" in r for r in given["rests_on"])
    done = CliRunner().invoke(main, ["advise", "--zoneinfo", str(path), "--high-fraction", "7"])
    assert (done.exit_code, "EINVAL" in done.output) == (2, True)


def test_limits_that_a_kernel_does_not_print_are_computed(saved):
    """v6.7 ... v6.15 keep high_max and print high alone, which lies far below it."""
    told = pm.advise(zoneinfo=saved([zone(0, 64, 4), zone(1, 64, 4)], 8, limits=False))
    assert share_of(told) == pytest.approx(12.5, abs=0.01)
    assert any("limits as v6.12 sets them" in line for line in told.facts["rests_on"])
    assert told.facts["release"] == "v6.12"
    old = saved([zone(0, 64, 4)], 4, limits=False).read_text()
    path = saved([zone(0, 64, 4)], 4)
    path.write_text(re.sub(r" +promo .*\n", "", old))
    assert any("before v6.7" in r for r in pm.advise(zoneinfo=path).facts["rests_on"])


def test_the_shipped_eighth_is_not_told_to_become_the_same_eighth(saved):
    path = saved([(0, "DMA", 40, 10, 0, 1, 4, 4), zone(0, 64, 4)], 4)
    told = pm.advise(zoneinfo=path).facts["high_fraction"]
    assert (told["advice"], told["line"]) == ("leave", None)


def test_lscpu_and_the_caller_say_which_node_has_no_cpus(saved, tmp_path):
    # v6.12 prints no limits, and no CPU of this file has been idle: nothing tells.
    path = saved([zone(0, 64, 4), zone(1, 192, 4)], 4, limits=False)
    path.write_text(re.sub(r"(high: +)(\d+)$", r"\g<1>9\2", path.read_text(), flags=re.M))
    (tmp_path / "lscpu").write_text(
        "CPU(s):                8\nOn-line CPU(s) list:   0-2,7\nOff-line CPU(s) list:  3-6\n"
        "NUMA node(s):          2\nNUMA node0 CPU(s):     0-2,7\nNUMA node1 CPU(s):     \n"
    )
    flat = (tmp_path / "lscpu").read_text()
    (tmp_path / "sections").write_text(re.sub("^(On|Off|NUMA)", r"  \1", flat, flags=re.M))
    for known in (
        {"lscpu": tmp_path / "lscpu"},
        {"lscpu": tmp_path / "sections"},  # as a terminal shows it
        {"cpus_per_node": [4, 0]},
    ):
        assert "1 node without CPUs" in pm.advise(zoneinfo=path, **known).facts["rests_on"][-1]
    assert "spread evenly over 2 nodes" in pm.advise(zoneinfo=path).facts["rests_on"][-1]
    done = CliRunner().invoke(main, ["advise", "--zoneinfo", str(path), "--cpus-per-node", "4,0"])
    assert "1 node without CPUs with 192.0 GiB" in done.stdout


def test_the_verb_reports_and_needs_no_root(tmp_path):
    lscpu = tmp_path / "lscpu"
    lscpu.write_text("Architecture: x86_64\nCPU(s):                8\n")
    args = ["advise", "--zoneinfo", str(ZONEINFO), "--lscpu", str(lscpu)]
    done = CliRunner().invoke(main, [*args, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {"batch_scale_max", "high_fraction", "rests_on", "does_not_apply"} <= set(told)
    text = CliRunner().invoke(main, args).stdout
    assert "CONFIG_PCP_BATCH_SCALE_MAX = 5: leave" in text
    assert "Does not apply to:" in text
    here = CliRunner().invoke(main, ["advise"])
    assert here.exit_code == 0, here.output


def test_what_is_known_of_a_machine_is_taken_where_the_rest_is_not(tmp_path):
    """Of 64 CPUs and no memory all was said not to be known, and 224 CPUs were simulated."""
    known = pm.machine("ice-lake")
    told = pm.advise(replace(known, platform=known.platform | {"cpus": 64, "nodes": 1}))
    assert "Not known of ice-lake: memory. Give " in told.facts["high_fraction"]["why"]
    rests = " ".join(told.facts["rests_on"])
    assert "on 64 CPUs, 1 node, 512.0 GiB" in rests
    assert "(assumed, not known of it: 512 GiB)" in rests
    (tmp_path / "lscpu").write_text(
        "CPU(s): 48\nNUMA node0 CPU(s): 0-31\nNUMA node1 CPU(s): 32-47\n"
    )
    listed = pm.advise(known, lscpu=tmp_path / "lscpu")
    assert "Not known of ice-lake: memory. Give " in listed.facts["high_fraction"]["why"]
    assert "on 48 CPUs, 2 nodes, 512.0 GiB" in " ".join(listed.facts["rests_on"])


def test_the_memory_of_a_named_machine_is_never_this_hosts(tmp_path, monkeypatch):
    told = pm.advise("ice-lake")
    assert told.facts["high_fraction"]["advice"] is None
    assert told.facts["high_fraction"]["effect"] == {}
    assert "Not known of ice-lake: memory, nodes, CPUs." in told.facts["high_fraction"]["why"]
    assert "vm.percpu_pagelist_high_fraction = unknown: no advice. " in str(told)
    assert not any("/proc/zoneinfo" in line for line in told.facts["rests_on"])
    assumed = "(assumed, not known of it: 224 CPUs, 2 nodes, as many CPUs on each node, 512 GiB, "
    assert any(assumed in line for line in told.facts["rests_on"])

    shutil.copytree(DATA, tmp_path / "data", symlinks=True, ignore=lambda *_: ["traces"])
    file = tmp_path / "data" / "hardware" / "ice-lake" / "platform.json"
    platform = json.loads(file.read_text()) | {"cpus": 64, "nodes": 2, "memory_gib": 128}
    file.write_text(json.dumps(platform))
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path / "data"))
    told = pm.advise("ice-lake")
    most = told.facts["high_fraction"]["effect"]["most that the limits allow, now"]["value"]
    assert most == pytest.approx(128 * 1024 / 8, rel=0.01)
    assert told.facts["high_fraction"]["advice"] == "leave"
    assert any("64 CPUs, 2 nodes, 128" in line for line in told.facts["rests_on"])
    assert not any("not known of it" in line for line in told.facts["rests_on"])
    split = "as many CPUs on each node (assumed), as much memory on each node (assumed)"
    assert any(split in line for line in told.facts["rests_on"])
    lscpu = tmp_path / "lscpu"
    lscpu.write_text("CPU(s): 64\nNUMA node0 CPU(s): 0-47\nNUMA node1 CPU(s): 48-63\n")
    file.write_text(json.dumps(platform | {"gib_per_node": "96,32"}))
    told = pm.advise("ice-lake", lscpu=lscpu)
    assert not any("(assumed)" in line for line in told.facts["rests_on"])
    lscpu.write_text("CPU(s): 64\nNUMA node0 CPU(s): 0-63\n")
    with pytest.raises(InputError, match=r"nodes=1 in what lscpu .*platform\.json of ice-lake, 2"):
        pm.advise("ice-lake", lscpu=lscpu)
    file.write_text(json.dumps(platform | {"cpus_per_node": "64,0", "cpuless_gib": 96}))
    told = pm.advise("ice-lake")
    most = told.facts["high_fraction"]["effect"]["most that the limits allow, now"]["value"]
    assert most == pytest.approx(128 * 1024 / 8, rel=0.01)
    rests = " ".join(told.facts["rests_on"])
    assert "64 CPUs, 2 nodes, 128 GiB, 96 of these on nodes without CPUs" in rests
    assert "on 64 CPUs, 1 node, 32.0 GiB, pages of 4 KiB, and 96.0 GiB of nodes without" in rests


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"machine": "ice-lak"}, "ice-lake"),
        ({"release": "v6.6"}, r"v6\.6"),
        ({"p99_us": 0}, "p99_us=0"),
        ({"p99_us": float("nan")}, "p99_us=nan"),
        ({"stranded_percent": 101}, "stranded_percent=101"),
        ({"zoneinfo": "/no/such/file"}, "/no/such/file"),
        ({"zoneinfo": __file__}, "test_advise"),
        ({"lscpu": __file__}, "what lscpu prints"),
    ],
)
def test_what_is_wrong_is_named(change, match):
    with pytest.raises(InputError, match=match):
        pm.advise(**({"zoneinfo": ZONEINFO} | change))


def test_a_machine_of_less_memory_than_is_simulated_is_named_with_its_file(saved):
    tiny = (0, "Normal", 8000, 178, 0, 1, 4, 250)
    with pytest.raises(InputError, match=r"zoneinfo.*31 MiB .*at least 64 MiB"):
        pm.advise(zoneinfo=saved([tiny], 4))


def test_lscpu_of_another_machine_is_noticed(tmp_path):
    (tmp_path / "lscpu").write_text("CPU(s): 4\n")
    with pytest.raises(InputError, match="lists 8 CPUs, but lscpu says 4"):
        pm.advise(zoneinfo=ZONEINFO, lscpu=tmp_path / "lscpu")

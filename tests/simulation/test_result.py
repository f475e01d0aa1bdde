"""What a run reports: figures, histograms, labelled arrays, refusals; engine and closed forms."""

# SPDX-License-Identifier: GPL-2.0-only

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel import sizing
from pcpmodel.simulation.analytic import chain, mva
from pcpmodel.simulation.once import what_decides
from pcpmodel.simulation.result import Histogram, bucket_edges_ns
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.spec import make_spec, varied
from pcpmodel.simulation.state import HISTOGRAM
from pcpmodel.study.sweep.grid import figures, make_grid
from pcpmodel.workload.faults import FAULT_NS, UNMAP_NS
from pcpmodel.workload.program import Program
from pcpmodel.workload.tasks import Channel, Task, Workload

MACHINE = pm.machine("sapphire-rapids")
#: Nothing but holds takes time at its locks, and no core has two threads.
ALONE = MACHINE.with_costs(zone_lines=0.0, lru_lines=0.0, handover=0.0, smt_share=0.0)


def run(**options):
    options = {
        "release": "v6.6",
        "machine": MACHINE,
        "workload": pm.workload.page_fault1(16, pages=2000),
        "cpus": 16,
        "nodes": 1,
        "memory_gib": 16,
        "seconds": 0.05,
    } | options
    return pm.simulate(**options)


def test_of_no_holds_there_is_no_percentile_and_no_mean():
    """A run in which pages stay on the lists, counted from when they do: 0.0 would be a time."""
    work = pm.workload.page_fault1(2, pages=100)
    result = run(workload=work, cpus=2, high_pages=5000, warmup_s=0.2, stat_interval_s=0.0)
    assert result.refills + result.drains == 0
    assert np.isnan([*result.wait_ns.values(), *result.hold_ns.values()]).all()
    assert set(result.summary()["wait_ns"].values()) == {None}
    json.dumps(result.summary(), allow_nan=False)
    found = figures(result)
    assert np.isnan([v for name, v in found.items() if name.startswith(("wait_", "hold_"))]).all()
    assert result.longest_starvation_ns == result.per_cpu["lru_wait_max_ps"].max() / 1000


def one_lock(cpus, think_ns, **options):
    """A closed network: every CPU moves a batch of 63 pages per hold, in or out.

    Returns the result and what the closed forms need: work and hold per hold [ns].
    """
    work = pm.workload.page_fault1(cpus, pages=6300, fault_ns=think_ns / 63, unmap_ns=think_ns / 63)
    result = pm.simulate(
        release="v6.6",
        workload=work,
        cpus=cpus,
        nodes=1,
        memory_gib=64,
        high_pages=126,
        stat_interval_s=0,
        warmup_s=0.02,
        **({"seconds": 1.0, "hold": "exponential", "warm": True, "machine": ALONE} | options),
    )
    holds = result.refills + result.drains
    hold = result.per_cpu["hold_ps"].sum() / holds / 1000
    wait = result.per_cpu["wait_ps"].sum() / holds / 1000
    return result, result.busy_ps / holds / 1000 - wait - hold, hold


HOLD = (MACHINE.hold_time.refill(63).mean_ns + MACHINE.hold_time.drain(63).mean_ns) / 2


@pytest.mark.parametrize("load", [0.2, 0.6, 0.9, 1.5])
def test_engine_and_mean_value_analysis_agree_within_a_point_of_wait_share(load):
    result, work, hold = one_lock(24, HOLD * 24 / load)
    assert result.lock_contention == pytest.approx(mva(24, work, hold).wait_share, abs=0.01)


def test_engine_and_load_dependent_chain_agree_where_a_lock_is_handed_over():
    result, work, hold = one_lock(
        16, 45_000.0, jitter=1.0, machine=ALONE.with_costs(handover=600.0)
    )
    expected = chain(16, work, hold, 600.0)
    assert expected.wait_share > 0.1
    assert result.lock_contention == pytest.approx(expected.wait_share, abs=0.02)


def test_closed_forms_overstate_waiting_where_holds_hardly_vary():
    """Why the engine is needed: holds that are all alike wait less than exponential ones."""
    result, work, hold = one_lock(24, HOLD * 24 / 0.6, hold="mean")
    assert mva(24, work, hold).wait_share > 1.3 * result.lock_contention


def test_histogram_buckets_tile_the_axis():
    edges = bucket_edges_ns(HISTOGRAM)
    assert edges[0] == 0
    assert (np.diff(edges) > 0).all()
    assert (np.diff(edges)[8:] * 8 <= edges[8:-1]).all()


def test_histogram_quantiles():
    edges = bucket_edges_ns(HISTOGRAM)
    counts = np.zeros(HISTOGRAM, dtype=np.int64)
    for ns in [5, 5, 100, 1000]:
        counts[np.searchsorted(edges, ns, side="right") - 1] += 1
    hist = Histogram(counts, edges)
    assert hist.total == 4
    assert 5 <= hist.quantile_ns(0.4) <= 6
    assert 96 <= hist.quantile_ns(0.7) <= 104
    assert hist.quantile_ns(1.0) <= 1024


@pytest.mark.parametrize("release", ["v5.10", "v5.17", "v7.2"])
def test_pages_of_the_zone_are_those_of_refills_and_those_past_the_lists(release):
    p = pm.workload.Program()
    with p.forever(), p.phase("both"):
        p.alloc(2, order=5, ns=400)
        p.alloc(64, ns=10)
        p.free(order=5, ns=400)
        p.free(ns=10)
    tasks = (pm.workload.Task(p, 0),) * 4
    work = pm.workload.Workload("mixed", tasks, "units", 4 * 128)
    result = pm.simulate(
        release=release, machine="ice-lake", workload=work, cpus=4, nodes=1, seconds=0.01,
        warmup_s=0.001, trylock_failure=0.2,
    )  # fmt: skip
    count = {name: int(values.sum()) for name, values in result.per_cpu.items()}
    assert result.alloc_zone_pages == count["refill_pages"] + count["direct_pages"]
    assert result.summary()["alloc_zone_pages"] == result.alloc_zone_pages
    # All of the 64 in blocks of 32; of as many single ones a fifth find their list locked.
    locked = count["direct_pages"] - count["alloc_pages"] / 2
    assert locked / (count["alloc_pages"] / 2) == pytest.approx(0.2, abs=0.02)
    phased = sum(phase.alloc_zone_pages for phase in result.phases.values())
    assert phased == pytest.approx(result.alloc_zone_pages, abs=4 * 128)


def test_figures_belong_together():
    result = run()
    assert 0 < result.lock_contention < 1
    assert result.wait_hist["refill"].total == result.refills
    assert result.hold_hist["drain"].total == result.drains
    assert result.alloc_zone_pages == 63 * result.refills
    w = result.wait_ns
    assert w["p50"] <= w["p90"] <= w["p99"] <= w["p99.9"] <= w["max"]
    over = result.over_probability()
    assert over[100] >= over[1_000] >= over[10_000]
    assert result.score == result.per_cpu["score"].sum()
    assert len(result.time_s) == len(result.pages_in_pcp) == 100
    # No list is above its high, and a CPU that allocates has what is left of a refill.
    assert (
        63
        <= result.pages_in_pcp.max()
        <= result.spec.host.cpus
        * max(
            size.high_max
            for size in result.spec.sizes  # of each CPU
        )
    )


def test_every_wait_and_hold_has_its_quantiles_and_every_cpu_its_pages():
    result = run(
        workload=pm.workload.page_fault1(16, pages=2000, lru=True), release="v6.7", warmup_s=0.0
    )
    for times in (result.wait_ns, result.hold_ns, result.lru_wait_ns, result.lru_hold_ns):
        assert 0 <= times["p50"] <= times["p90"] <= times["p99"] <= times["p99.9"]
    assert 0 < result.lru_hold_ns["p50"] < result.hold_ns["p50"]
    assert result.lru_wait_ns["max"] == result.per_cpu["lru_wait_max_ps"].max() / 1000 > 0
    assert result.longest_starvation_ns == max(result.wait_ns["max"], result.lru_wait_ns["max"])
    assert (result.pages_in_pcp == result.pcp_pages_by_cpu.sum(axis=0)).all()
    assert (result.pcp_pages_by_cpu.max(axis=1) > 0).all()
    whole = int(result.spec.host.memory_gib * 2**18)
    # At the last sample nothing is under way but what the locks' holders move.
    assert result.used_memory_pages[-1] == pytest.approx(
        whole - sum(result.zone_free_pages), abs=63 * 32 * 16
    )
    data = result.to_dataset()
    assert data.used_memory.equals(data.pages_in_pcp + data.pages_held)
    assert data.lru_wait_quantiles.sel(quantile=0.999) == result.lru_wait_ns["p99.9"]
    assert (
        data.over_probability.sel(kind="lru", threshold_us=100)
        == (result.over_probability("lru")[100])
    )
    assert all("units" in v.attrs for v in data.data_vars.values())
    slow = run(
        workload=pm.workload.page_fault1(16, pages=2000, lru=True),
        release="v6.7",
        engine="per-page",
        warmup_s=0.0,
    )
    assert slow.to_dataset().identical(data)


def test_pages_that_come_back_at_once_are_still_in_a_cache():
    """A short mapping is refilled with warm pages, one beyond the caches with cold ones."""
    follow = {"identity": True, "caches": True, "l2_kib": 1024.0, "llc_slice_kib": 4096.0}
    small, medium, large = (
        run(
            workload=pm.workload.page_fault1(8, pages=pages, fault_ns=200.0),
            release="v6.7",
            warmup_s=0.02,
            high_min_pages=3000,
            **follow,
        )
        for pages in (60, 350, 2500)
    )
    assert small.per_cpu["found_private"].sum() > 0.99 * small.per_cpu["alloc_pages"].sum()
    assert small.cache_miss_rate < 0.01
    assert medium.per_cpu["found_llc"].sum() > medium.per_cpu["found_memory"].sum()
    assert large.cache_miss_rate > 0.5
    found = sum(large.per_cpu[f"found_{where}"].sum() for where in ("private", "llc", "memory"))
    assert found == large.per_cpu["alloc_pages"].sum()
    assert large.to_dataset().total_cache_miss_rate == large.cache_miss_rate
    assert np.isnan(run().cache_miss_rate)
    assert run().summary()["cache_miss_rate"] is None
    with pytest.raises(InputError, match="needs identity"):
        run(caches=True)
    with pytest.raises(InputError, match="private_pages"):
        run(identity=True, caches=True, l2_kib=0.0)


def test_dataset_is_labelled_and_the_same_for_the_same_seed():
    a, b, c = run().to_dataset(), run().to_dataset(), run(seed=2).to_dataset()
    assert a.identical(b)
    assert not a.identical(c)
    assert a.refill_pages.attrs["units"] == "pages"
    assert json.loads(a.attrs["spec"])["workload"]["processes"] == 16
    assert a.attrs["seed"] == 1


def test_warmup_is_left_out_of_the_figures():
    whole, counted = run(warmup_s=0.0), run(seconds=0.04, warmup_s=0.01)
    assert counted.refills < whole.refills
    assert counted.events == whole.events
    assert counted.wait_hist["refill"].total == pytest.approx(counted.refills, abs=16)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"cpus": 224, "nodes": 2},
        {"memory_gib": 23.541, "l2_kib": 512.0},
        {"batch_scale_max": 2},
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        {"machine": "amd-epyc-vm"},
        {"machine": "amd-epyc-vm", "cpus": 4},
        {"nodes": 4},
        {"release": "v7.2"},
        {"release": "v6.18", "batch_scale_max": 3},
        {"workload": pm.workload.page_fault1(1, threads=True)},
        {"seed": 3},
    ],
)
def test_a_varied_run_is_the_one_that_its_arguments_make(given, change):
    """What machine or release bring, another one brings anew, fault times and memory included."""
    args = {"release": "v6.7", "machine": "ice-lake", "workload": pm.workload.page_fault1(2)}
    args |= given
    made, alone = varied(make_spec(**args), **change), make_spec(**args | change)
    assert what_decides(made) == what_decides(alone)
    assert made.given == alone.given
    (cell,) = make_grid(make_spec(**args), **change).specs
    if "release" not in change:  # of which a sweep keeps the scale
        assert what_decides(cell) == what_decides(alone)


def test_what_somebody_replaced_in_a_run_is_given_by_hand():
    made = make_spec(release="v6.7", machine="ice-lake", workload=pm.workload.page_fault1(2))
    by_hand = replace(made, host=replace(made.host, cpus=8, l2_kib=4096.0))
    assert (by_hand := varied(by_hand, machine="amd-epyc-vm")).host.cpus == 8
    assert (by_hand.host.l2_kib, by_hand.host.nodes) == (4096.0, 1)


def test_spec_can_be_varied_by_name():
    spec = run().spec
    assert varied(spec, release="v6.7", zones_per_node=2, seed=5).host.zones_per_node == 2
    assert varied(spec, batch_scale_max=3).release.batch_scale_max == 3
    with pytest.raises(InputError, match="did you mean 'high_pages'"):
        varied(spec, high_page=3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cpus": 0}, "cpus=0"),
        ({"nodes": 0}, "nodes=0"),
        ({"cpus": 15, "nodes": 2}, "evenly"),
        ({"cpus": 8}, "16 tasks"),
        ({"release": "v6.8"}, "unknown release"),
        ({"machine": "saphire-rapids"}, "did you mean 'sapphire-rapids'"),
        ({"high_pages": 30}, "below batch"),
        ({"high_fraction": 3}, "EINVAL"),
        ({"memory_gib": 0.07}, "holds up to"),
        ({"memory_gib": -1}, "memory_gib"),
        ({"seconds": 0}, "seconds=0"),
        ({"seconds": float("nan")}, "finite"),
        ({"seconds": "1"}, "seconds='1'; allowed: float"),
        ({"seed": 1.5}, "seed=1.5; allowed: int"),
        ({"jitter": -0.1}, "jitter"),
        ({"hold": "drwan"}, "did you mean 'drawn'"),
        ({"engine": "fast"}, "unknown engine"),
        ({"batch_scale_max": 7}, "0..6"),
        ({"highpages": 100}, "did you mean 'high_pages'"),
        ({"workload": "page_fault1"}, "allowed: Workload"),
        ({"zones_per_node": 5}, "1..4"),
        ({"batch": True}, "batch"),
    ],
)
def test_bad_input_is_refused_before_the_run(wrong, message):
    with pytest.raises(InputError, match=message):
        run(**wrong)


def large_page_machine(kib):
    known = {"page_size_kib": kib, "cpus": 80, "nodes": 1, "memory_gib": 256}
    return Machine("altra", MACHINE.latency, None, known, "1" * 64)


@pytest.mark.parametrize(("kib", "batch"), [(16, 15), (64, 3)])
def test_a_machine_with_large_pages_has_their_batch_and_as_many_pages(kib, batch):
    machine = large_page_machine(kib)
    work = pm.workload.page_fault1(80, page_size_kib=kib)
    spec = make_spec(release="v6.18", machine=machine, workload=work, seconds=0.05)
    (size,) = spec.host.sizes(spec.release)
    assert (size.batch, size.managed) == (batch, 256 << 20 >> kib.bit_length() - 1)
    assert size.high_max == size.managed // 8 // 80
    marks = sizing.setup_per_zone_wmarks(
        [sizing.ZoneMemory(size.managed)],
        sizing.min_free_kbytes_at_boot(256 << 20),
        page_shift=sizing.page_shift(kib),
    )
    assert size.watermarks == (marks[0].min, marks[0].low, marks[0].high)
    result = execute(spec)
    assert result.summary()["score_unit"] == f"pages of {kib} KiB faulted"
    assert (result.summary()["page_size_kib"], result.summary()["notes"]) == (kib, [])
    assert result.hold_hist["refill"].total
    assert result.refills >= result.alloc_zone_pages / (batch << 5)


def test_a_fault_of_a_large_page_zeroes_all_of_it():
    times = {
        kib: pm.workload.page_fault1(1, page_size_kib=kib).params["fault_ns"] for kib in (4, 16, 64)
    }
    assert times[4] == FAULT_NS
    assert times[16] - times[4] == pytest.approx(3 * 409.6)
    assert times[64] - times[4] == pytest.approx(15 * 409.6)
    assert pm.workload.page_fault1(1, page_size_kib=64).pages == (128 << 20) // (64 << 10)
    copied = {
        kib: pm.workload.page_fault2(1, page_size_kib=kib).params["fault_ns"] for kib in (4, 64)
    }
    assert copied[4] + UNMAP_NS == pytest.approx(1.69 * (FAULT_NS + UNMAP_NS))
    assert copied[64] - times[64] == pytest.approx(16 * (copied[4] - times[4]))


def test_what_is_known_of_small_pages_alone_is_refused_for_large_ones():
    large = {"machine": large_page_machine(64), "release": "v6.18"}
    order9 = Program()
    with order9.forever():
        order9.alloc(1, order=9, ns=100)
        order9.free(1, order=9, ns=100)
    thp = Workload("thp", (Task(order9),), "blocks", 8192, page_size_kib=64)
    for work, options, said in (
        (pm.workload.kbuild(8), {}, "'kbuild' counts pages of 4 KiB.*pages of 64 KiB"),
        (pm.workload.page_fault1(8), {}, "page_fault1.*take page_size_kib=64"),
        (pm.workload.page_fault1(8, page_size_kib=64), {"identity": True}, "identity=True needs"),
        (pm.workload.page_fault1(8, page_size_kib=64), {"page_size_kib": 4}, "pages of 4 KiB"),
        (thp, {}, "order 9"),
        (pm.workload.page_fault1(8), {"page_size_kib": 8}, "allowed: 4, 16, 64"),
    ):
        with pytest.raises(InputError, match=said):
            make_spec(workload=work, **large, **options)


def test_a_workload_asked_for_by_name_has_the_pages_of_the_machine():
    machine = large_page_machine(64)
    named = {"name": "page_fault1", "processes": 8}
    grid = make_grid(release="v6.18", machine=machine, workload=named, seed=[1, 2])
    assert "page_size_kib" not in grid.base["workload"]
    by_hand = pm.workload.page_fault1(8, page_size_kib=64)
    spec = make_spec(release="v6.18", machine=machine, workload=by_hand)
    assert grid.specs[0].as_dict() == spec.as_dict()
    assert grid.specs[0].workload.unit == "pages of 64 KiB faulted"
    work = pm.workload.make("page_fault1", processes=8)
    first = make_spec(release="v6.18", machine=machine, workload=work)
    assert first.as_dict() == spec.as_dict()
    again = varied(first, machine=MACHINE)  # and those of another one
    assert (again.workload.page_size_kib, again.workload.unit) == (4, "pages faulted")
    assert again.workload.pages == pm.workload.page_fault1(8).pages
    refused = [
        named | {"page_size_kib": 4},
        {"name": "kbuild", "jobs": 8},
        pm.workload.page_fault1(8),
    ]
    for work in refused:
        with pytest.raises(InputError, match="counts pages of 4 KiB"):
            make_grid(release="v6.18", machine=machine, workload=work)
    pages = make_grid(release="v6.18", machine=machine, workload=named | {"pages": 100}).specs[0]
    assert (pages.workload.pages, pages.workload.page_size_kib) == (800, 64)


def test_cover_letter_and_tour_take_a_machine_with_large_pages():
    machine = large_page_machine(64)
    work = {"name": "page_fault1", "processes": 4}
    options = {"seconds": 0.01, "warmup_s": 0.0, "memory_gib": 8.0}
    letter = pm.cover_letter(["v6.7", "v6.18"], [work], machine, seeds=2, options=options)
    assert len(letter.table) == 2
    tour = pm.Tour(machine=machine, cpus=2)
    assert tour.prices()["list_mib"].min() > 0


def test_a_table_measured_with_other_pages_is_said_to_be():
    work = pm.workload.page_fault1(16, page_size_kib=64)
    result = run(workload=work, page_size_kib=64, seconds=0.01)
    (note,) = result.summary()["notes"]
    assert "does not state, taken as 4 KiB; it is used for 64 KiB pages" in note
    assert run(seconds=0.01, high_pages=2000).summary()["notes"] == []
    args = ["--release", "v6.6", "--workload", "page_fault1", "--machine", "sapphire-rapids"]
    args += ["--processes", "16", "--cpus", "16", "--nodes", "1", "--seconds", "0.01"]
    done = CliRunner().invoke(main, ["simulate", *args, "--set", "page_size_kib=64"])
    assert done.exit_code == 0, done.output
    assert "pages of 64 KiB" in done.stdout
    assert f"* {note}" in done.stdout


def test_a_sweep_takes_the_machine_s_page_size():
    grid = make_grid(
        release="v6.18",
        machine=large_page_machine(64),
        workload=pm.workload.page_fault1(8, page_size_kib=64),
        batch_scale_max=[4, 5],
    )
    assert {spec.host.page_size_kib for spec in grid.specs} == {64}


def test_workloads_are_made_by_name():
    assert pm.workload.make("page_fault1", processes=3).params["processes"] == 3
    with pytest.raises(InputError, match="did you mean 'page_fault1'"):
        pm.workload.make("page_fualt1", processes=3)
    with pytest.raises(InputError, match="needs processes"):
        pm.workload.make("page_fault1")
    with pytest.raises(InputError, match="did you mean 'processes'"):
        pm.workload.make("page_fault1", process=3)


def simulate(*args):
    base = ["simulate", "--release", "v6.7", "--machine", "sapphire-rapids", "--workload"]
    return CliRunner().invoke(main, [*base, "page_fault1", *args])


def test_command_line_prints_the_contract():
    done = simulate("--processes", "8", "--cpus", "8", "--seconds", "0.02", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert {
        "lock_contention",
        "refills",
        "drains",
        "free_high",
        "alloc_zone_pages",
        "wait_ns",
        "real_time_factor",
    } <= set(answer)
    assert "lock contention" in simulate("--processes", "2", "--seconds", "0.01").stdout


@pytest.mark.parametrize(
    "args",
    [
        ["--processes", "9", "--cpus", "8"],
        ["--processes", "8", "--set", "high_pages=10"],
        ["--processes", "8", "--set", "seconds=3"],
        ["--processes", "8", "--param", "pages"],
        ["--processes", "8", "--param", "pages=1", "--param", "pages=2"],
        ["--processes", "8", "--set", "nonsense=1"],
        [],
    ],
)
def test_command_line_refuses_with_exit_code_2(args):
    assert simulate(*args).exit_code == 2


def test_processes_of_a_workload_that_has_none_are_refused_by_what_it_takes():
    asked = ["--release", "v6.6", "--machine", "ice-lake", "--workload", "kbuild"]
    done = CliRunner().invoke(main, ["simulate", *asked, "--processes", "8"])
    assert done.exit_code == 2
    assert "kbuild has no --processes; with --param it takes jobs," in done.output


@pytest.mark.parametrize(
    ("workload", "more", "said"),
    [
        ("kbuild", [], "kbuild needs --param jobs=..."),
        ("page_fault1", [], "page_fault1 needs --processes N"),
        ("recorded", ["--processes", "2"], "recorded needs --param recording=..."),
        ("kbuild", ["--param", "job=2"], "did you mean 'jobs'?"),
    ],
)
def test_what_a_workload_needs_is_said_as_it_is_typed(workload, more, said):
    done = simulate("--workload", workload, *more)
    assert (done.exit_code, said in done.output) == (2, True), done.output


@pytest.mark.parametrize("make", [lambda: pm.workload.unix_stream(2), lambda: queue(12, 100)])
@pytest.mark.parametrize("identity", [False, True])
def test_pages_in_messages_are_no_free_memory(make, identity):
    """Every page is free, on a list, held by a task or on its way from one to another."""
    size = {"cpus": 4, "nodes": 1, "memory_gib": 1, "seconds": 0.01, "warmup_s": 0.0, "warm": True}
    run = pm.simulate("v6.12", "ice-lake", make(), identity=identity, **size)
    whole = sum(zone.managed for zone in run.spec.sizes)
    assert run.pages_in_messages.max() > 0
    assert run.pages_in_messages.min() >= 0
    assert whole - run.used_memory_pages[-1] == sum(run.zone_free_pages)
    there = run.per_cpu["alloc_pages"].sum() - run.per_cpu["free_pages"].sum()
    assert run.pages_held[-1] == there


def queue(messages, pages):
    """A task that gives pages faster than another one takes them."""
    give, take = Program(), Program()
    with give.forever():
        give.alloc(pages, ns=10)
        give.send(0, movable_0=pages)
    with take.forever():
        take.work(100_000)
        take.recv(0, movable_0=pages)
        take.free(pages, ns=10, of="peer")
        take.score()
    tasks = Task(give, 0, (0,), 1), Task(take, 0, (0,), 0)
    channel = Channel(0, 1, messages)
    return Workload("queue", tasks, "messages", (messages + 2) * pages, (channel,))


def test_a_bound_that_the_kernel_has_not_is_said_to_change_nothing():
    for release in pm.releases():
        said = run_spec(release, batch_scale_max=2).notes, run_spec(release).notes
        runs = [outcome(run_spec(release, batch_scale_max=k, seconds=0.02)) for k in (0, 6)]
        assert (runs[0] == runs[1]) == ("batch_scale_max changes nothing" in " ".join(said[0]))
        assert "batch_scale_max" not in " ".join(said[1])


def run_spec(release, **options):
    """One process whose pages come and go: both sides scale where anything does."""
    work = pm.workload.page_fault1(1, pages=20_000)
    size = {"cpus": 1, "nodes": 1, "memory_gib": 1, "high_pages": 4000, "warmup_s": 0.0}
    return make_spec(
        release=release, machine="ice-lake", workload=work, warm=True, **size, **options
    )


def outcome(spec):
    counted = execute(spec).per_cpu
    return {name: values.tolist() for name, values in counted.items()}


@pytest.mark.parametrize("seed", range(12))
def test_what_is_counted_begins_at_one_moment(seed):
    """A hold at the end of the warm-up is in counters and histograms, or in neither."""
    run = pm.simulate(
        "v6.12", "ice-lake", pm.workload.exit_storm(1), seed=seed, cpus=2, nodes=1, memory_gib=4,
        seconds=0.002, warmup_s=0.01, hold="exponential", spinlock="test-and-set", warm=True,
        trylock_failure=0.1,
    )  # fmt: skip
    count = {name: int(values.sum()) for name, values in run.per_cpu.items()}
    assert run.hold_hist["lru"].total == count["lru_holds"]
    assert run.by_kind["hold"]["lru"] == count["lru_hold_ps"]
    zone = ("refill", "drain", "direct")
    assert sum(run.by_kind["hold"][kind] for kind in zone) == count["hold_ps"]
    assert sum(run.by_kind["wait"][kind] for kind in zone) == count["wait_ps"]


def test_a_phase_waits_for_a_share_of_the_time_that_it_is_busy():
    """Of the time that it also sleeps in, it would be another share."""
    asked = ["--release", "v6.6", "--machine", "ice-lake", "--workload", "idle_after_burst"]
    asked += ["--processes", "4", "--cpus", "4", "--memory-gib", "8", "--seconds", "0.5"]
    text, told = (
        CliRunner().invoke(main, ["simulate", *asked, *j]).stdout for j in ([], ["--json"])
    )
    for name, of in json.loads(told)["phases"].items():
        share = 100 * of["wait_s"] / of["busy_s"] if of["busy_s"] else 0
        assert (
            f"{name or 'outside'}: busy for {of['busy_s']:.3g} s of CPU time, {share:.2f} %" in text
        )


def test_what_a_rule_of_ones_own_raises_is_one_sentence(tmp_path):
    rule = tmp_path / "rule.pyx"
    rule.write_text(
        "from pcpmodel.cython_pcp cimport pcp_abi, pcp_policy, pcp_policy_object, pcp_view\n"
        "cdef int drain(pcp_view *v, void *ctx) except -1 nogil:\n"
        "    return v.batch // (v.count - v.count)\n"
        "cdef pcp_policy rule\nrule.abi = pcp_abi()\nrule.nr_pcp_free = drain\n"
        "policy = pcp_policy_object(&rule)\n"
    )
    args = ("--processes", "2", "--seconds", "0.05", "--set", "high_pages=500", "--policy")
    done = simulate(*args, str(rule))
    assert done.exit_code == 2
    assert "rule.pyx: ZeroDivisionError: " in done.output
    assert "Traceback" not in done.output


def test_progress_reaches_the_end():
    seen = []
    execute(
        make_spec(
            release="v6.6",
            machine=MACHINE,
            workload=pm.workload.page_fault1(224, fault_ns=500.0),
            seconds=2.0,
            warmup_s=0.0,
        ),
        progress=seen.append,
    )
    assert seen == sorted(seen)
    assert len(seen) >= 2
    assert seen[-1] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "name",
    ["seconds", "warmup_s", "seed", "cpus", "nodes", "memory_gib", "release", "machine", "workload",
     "policy", "host"],
)  # fmt: skip
def test_what_simulate_is_told_otherwise_cannot_be_set(name):
    asked = ["--release", "v6.19", "--machine", "ice-lake", "--workload", "page_fault1"]
    done = CliRunner().invoke(main, ["simulate", *asked, "--processes", "1", "--set", f"{name}=1"])
    assert done.exit_code == 2
    if name == "host":
        assert "unknown argument 'host'" in done.output
    else:
        option = {"warmup_s": "warmup"}.get(name, name.replace("_", "-"))
        assert f"--set {name}: use --{option}" in done.output


@pytest.mark.parametrize("pages", [200, 50])
def test_a_thread_that_sleeps_leaves_the_core_to_its_sibling(pages):
    """Of two threads of a core one works; the other works as much, or sleeps for most of its time.

    Both come to the lock now and then, where each sees what the other has done since; or the one
    that works has all its pages on its lists, and looks by itself.
    """

    def faults(sleep_ns):
        work, beside = Program(), Program()
        for p, blocks, idle in ((work, pages, 0.0), (beside, 200, sleep_ns)):
            with p.forever():
                p.alloc(blocks, ns=500.0)
                p.free(blocks, ns=500.0)
                p.score()
                if idle:
                    p.idle(idle)
        return Workload("two", (Task(work, cpu=0), Task(beside, cpu=1)), "batches", 400)

    def rate(sleep_ns, **costs):
        result = run(
            workload=faults(sleep_ns), cpus=2, threads_per_core=2, seconds=0.5, warmup_s=0.05,
            high_pages=126,
            machine=MACHINE.with_costs(zone_lines=0.0, lru_lines=0.0, **costs),
        )  # fmt: skip
        assert (result.per_cpu["refills"][0] > 0) == (pages == 200)
        return result.per_cpu["score"][0]

    alone = rate(5e6, smt_share=0.0)
    share = MACHINE.sheet.value("smt_share", "core")
    assert rate(0.0) / alone == pytest.approx(share, rel=0.03)
    # Asleep for all but 0.2 of 5.2 ms.
    assert rate(5e6) / alone == pytest.approx(1.0, abs=0.06)


def test_a_thread_whose_program_ends_leaves_the_core_to_its_sibling():
    """Whether that one comes to locks or not."""

    def rate(pages, ends):
        work, beside = Program(), Program()
        with work.forever():
            work.alloc(pages, ns=500.0)
            work.free(pages, ns=500.0)
            work.score()
        beside.alloc(10, ns=500.0)
        if not ends:
            with beside.forever():
                beside.work(1000.0)
        two = Workload("two", (Task(work, cpu=0), Task(beside, cpu=1)), "batches", 400)
        result = run(
            workload=two, cpus=2, threads_per_core=2, seconds=0.5, warmup_s=0.05, high_pages=126,
            machine=MACHINE.with_costs(zone_lines=0.0, lru_lines=0.0),
        )  # fmt: skip
        return result.per_cpu["score"][0]

    share = MACHINE.sheet.value("smt_share", "core")
    for pages in (50, 200):
        assert rate(pages, False) / rate(pages, True) == pytest.approx(share, rel=0.03)


def test_what_the_tracer_takes_is_off_every_hold():
    def hold(tracer_ns):
        machine = ALONE.with_costs(tracer=tracer_ns)
        result = run(machine=machine, hold="mean", warm=True, high_pages=126)
        return {kind: result.kind_ns(kind)["hold"] for kind in ("refill", "drain")}

    traced, untraced, short = (hold(ns) for ns in (0.0, 100.0, 1e6))
    for kind in ("refill", "drain"):
        assert traced[kind]["mean"] - untraced[kind]["mean"] == pytest.approx(100.0, abs=1.0)
        # Never more than half of a hold, however slow a tracer is.
        assert short[kind]["mean"] == pytest.approx(traced[kind]["mean"] / 2, rel=1e-3)


@pytest.mark.parametrize("name", ["sapphire-rapids", "ice-lake", "cascade-lake"])
@pytest.mark.parametrize("identity", [False, True])
def test_the_latency_tables_own_process_has_its_holds(name, identity):
    """What a hold is made of comes to what was traced of such a process, less the tracer's part."""
    machine = pm.machine(name)
    traced = {"refill": machine.hold_time.refill, "drain": machine.hold_time.drain}
    for batch in (63, 255):
        result = pm.simulate(
            "v6.6", machine, pm.workload.page_fault1(1), cpus=16, nodes=1, memory_gib=64.0,
            batch=batch, high_pages=2 * batch, seconds=0.1, warmup_s=0.2, hold="mean",
            identity=identity,
        )  # fmt: skip
        for kind, hold in traced.items():
            measured = hold(batch).mean_ns - machine.sheet.value("tracer")
            mean = result.kind_ns(kind)["hold"]["mean"]
            assert mean == pytest.approx(measured, rel=0.02), (batch, kind)


def test_a_dataset_can_be_saved_and_is_the_same(tmp_path):
    """Times in ps have no place in the 32 bits of NetCDF-3."""
    data = run(seconds=0.01).to_dataset()
    data.to_netcdf(tmp_path / "run.nc", engine="scipy")
    saved = xr.load_dataset(tmp_path / "run.nc", engine="scipy")
    for name, values in data.variables.items():
        np.testing.assert_array_equal(saved[name].values, values.values, name)
    assert saved.attrs == data.attrs
    assert saved["wait_ps"].attrs["units"] == "ps"


@pytest.mark.parametrize("jitter", [1e-7, 1e-160, 1e-200])
def test_hardly_any_jitter_is_as_none(jitter):
    """No program went on with 1e-160."""
    assert run(seconds=0.01, jitter=jitter).score == pytest.approx(
        run(seconds=0.01, jitter=0.0).score, rel=0.2
    )


def test_an_unknown_kind_of_hold_is_refused_by_name():
    with pytest.raises(InputError, match="kind of hold"):
        run(seconds=0.01).over_probability("refil")

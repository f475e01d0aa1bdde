"""Zones that are short of pages: watermarks, the next zone, kswapd."""

# SPDX-License-Identifier: GPL-2.0-only

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pcpmodel as pm
from helpers.simulation import MACHINE, assert_same, faults, life_cycle, outcome, prepare, spec
from pcpmodel.kernel.releases import releases
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.engines import _types_change
from pcpmodel.simulation.host import Host
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.state import Failure
from pcpmodel.workload import ALL, Program, Task, Workload

NODE = 65536  # pages of a node of half the 0.5 GiB


def grows(pages, tasks=1, node=0, rests=True):
    """Allocate, rest, give everything back."""
    p = Program()
    p.alloc(pages, ns=100)
    if rests:
        p.idle(1e9)
    p.free(ALL, ns=60)
    return Workload("grows", (Task(p, node),) * tasks, "nothing", pages * tasks)


def small(workload, **options):
    return spec(workload, **{"memory_gib": 0.5, "high_pages": 200, **options})


def marks(run):
    return [size.watermarks for size in run.host.sizes(run.release)]


def breathes(pages, tasks, node, mixed):
    """Grow in steps, shrink, grow a little, exit; with ``mixed`` a tenth is not movable."""
    p = Program()
    with p.forever():
        with p.repeat(max(pages // 500, 1)):
            p.alloc(450 if mixed else 500, ns=100)
            if mixed:
                p.alloc(50, migratetype="unmovable", ns=90)
            p.work(3000)
        p.free(pages // 3 + 1, ns=60)
        p.alloc(pages // 5 + 1, ns=100)
        p.free(ALL, ns=60)
        if mixed:
            p.free(ALL, migratetype="unmovable", ns=60)
        p.score()
    return Workload("breathes", (Task(p, node),) * tasks, "exits", pages * tasks)


@settings(max_examples=80, deadline=None)
@given(
    release=st.sampled_from([r.name for r in releases()]),
    seed=st.integers(0, 2**31),
    tasks=st.sampled_from([1, 3, 6]),
    node=st.sampled_from([None, 0]),
    used=st.sampled_from([0.2, 0.5, 0.8, 0.95]),
    gib=st.sampled_from([0.25, 0.5]),
    page_cache=st.sampled_from([0.0, 0.3, 0.9]),
    reclaim=st.sampled_from([50.0, 3000.0]),
    aged=st.sampled_from([0.0, 0.05]),
    factor=st.sampled_from([10, 300, 1000]),
    zones=st.integers(1, 2),
    high=st.sampled_from([63, 200, 500]),
    jitter=st.sampled_from([0.0, 0.2]),
    tick=st.sampled_from([0.0, 0.001]),
    identity=st.booleans(),
    nohz=st.booleans(),
    drains=st.booleans(),
    mixed=st.booleans(),
)
def test_engines_agree_when_memory_is_short(
    release, seed, tasks, node, used, gib, page_cache, reclaim, aged, factor, zones, high, jitter,
    tick, identity, nohz, drains, mixed,
):  # fmt: skip
    tasks = min(tasks, 8 // 2 - 1) if node == 0 else tasks
    try:
        run = spec(
            breathes(int(gib * 2**18 * (1 - aged) * used / tasks), tasks, node, mixed),
            release=release,
            seed=seed,
            memory_gib=gib,
            page_cache=page_cache,
            reclaim_page_ns=reclaim,
            aged=aged,
            watermark_scale_factor=factor,
            zones_per_node=zones,
            high_pages=high,
            jitter=jitter,
            stat_interval_s=tick,
            identity=identity,
            nohz_idle=nohz,
            changes=[pm.change(0.006, drain_all=0)] if drains else [],
            seconds=0.012,
        )
    except pm.InputError:
        return  # does not fit
    if _types_change(run):
        return  # both are the per-page engine
    ends = []
    for engine in (Engine, PerPage):
        state = prepare(run)
        assert engine(state).run()
        ends.append((state.failed, None if state.failed else outcome(state)))
    assert ends[0] == ends[1]


def test_where_types_mix_in_crowded_zones_pages_go_one_by_one():
    """An unmovable page comes from a movable block and goes back to the list of that block."""
    run = spec(life_cycle(6), identity=True, warm=True, aged=0.5, memory_gib=2, warmup_s=0.0)
    event = execute(run)
    state = prepare(run)
    assert PerPage(state).run()
    assert event.order_digests == tuple(state.order_digests)
    counted = execute(spec(life_cycle(6), aged=0.5, memory_gib=2, warmup_s=0.0))
    assert counted.order_digests != event.order_digests


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    release=st.sampled_from([r.name for r in releases()]),
    migratetype=st.sampled_from(["unmovable", "reclaimable"]),
)
@example(seed=1, release="v7.2", migratetype="unmovable")
def test_pages_go_one_by_one_where_those_of_one_type_come_from_movable_blocks(
    seed, release, migratetype
):
    """Which list such a page was freed to hung on the engine."""
    p = Program()
    with p.forever():
        size = p.draw([20, 300, 900])
        with p.repeat(3):
            p.alloc(size, migratetype=migratetype, ns=200)
            p.work(3000)
        p.free(200, migratetype=migratetype, ns=50)
        p.free(migratetype=migratetype, ns=50)
    work = Workload("one type", (Task(p),) * 6, "none", 6 * 2700)
    run = spec(work, release=release, seed=seed, identity=True, warm=True, aged=0.5, memory_gib=1)
    event = execute(run)
    state = prepare(run)
    assert PerPage(state).run()
    assert event.order_digests == tuple(state.order_digests)
    assert event.zone_free_pages == tuple(state.zone_free())
    counters = {k: [c[k] for c in state.counters()] for k in event.per_cpu}
    assert {k: v.tolist() for k, v in event.per_cpu.items()} == counters


@pytest.mark.parametrize("identity", [False, True])
def test_a_cpu_whose_zone_is_short_goes_to_the_next_and_frees_to_both(identity):
    run = small(grows(80_000), identity=identity)
    held = assert_same(run)
    (_, low, _), _ = marks(run)
    assert low - 252 < held["zone_free"][0] <= low  # the last refill took it there
    assert held["held"][1] > 80_000 - NODE
    assert sum(held["held"]) == 80_000
    freed = assert_same(small(grows(80_000, rests=False), identity=identity, seconds=0.03))
    assert freed["held"] == [0, 0]
    for zone in range(2):
        lists = sum(cpu[zone]["count"] for cpu in freed["pcps"])
        assert freed["zone_free"][zone] + lists == NODE


def test_zones_are_tried_from_the_cpus_own_instance_on_then_those_of_the_nodes_above():
    host = Host(12, 3, 3.0, zones_per_node=2)
    assert host.zonelist(0) == [0, 1, 2, 3, 4, 5]
    assert host.zonelist(5) == [3, 2, 5, 4, 1, 0]


def test_zones_of_a_node_are_used_up_before_another_node():
    run = small(grows(60_000), zones_per_node=2)
    held = assert_same(run)["held"]
    assert held[0] > 30_000
    assert held[1] > 25_000
    assert held[2:] == [0, 0]


@pytest.mark.parametrize("release", ["debian-6.1.192", "v6.6+p7", "v6.7", "v7.2"])
def test_kswapd_frees_page_cache_up_to_the_high_watermark_and_sleeps(release):
    run = small(grows(60_000), release=release, page_cache=0.6, seconds=0.05, high_pages=None)
    result = assert_same(run)
    task, *kswapds = result["counters"]
    assert task["alloc_pages"] == 60_000
    assert sum(result["held"]) == 60_000 + 2 * round(0.6 * NODE) - sum(
        k["free_pages"] for k in kswapds
    )
    for node, kswapd in enumerate(kswapds):
        assert kswapd["free_pages"] > 1000
        assert kswapd["alloc_pages"] == 0
        assert kswapd["idle_ps"] > 0
        *_, high = marks(run)[node]
        assert result["zone_free"][node] > high
        # ZONE_RECLAIM_ACTIVE: four batches and no more stay on a list.
        batch = result["pcps"][1 + node][node]["batch"]
        assert result["pcps"][1 + node][node]["count"] < 4 * batch


def test_who_is_faster_than_kswapd_sleeps_until_it_has_freed_something():
    p = Program()
    p.alloc(60_000, ns=100)
    p.work(1e9)
    hog, slept = Workload("hog", (Task(p),), "nothing", 60_000), []
    for reclaim_ns in (50.0, 2000.0):
        run = small(hog, page_cache=0.6, reclaim_page_ns=reclaim_ns, seconds=0.1)
        counters = assert_same(run)["counters"]
        assert counters[0]["alloc_pages"] == 60_000
        slept.append(counters[0]["idle_ps"])
    assert slept[1] > 100 * slept[0]
    assert slept[1] > 1e9  # 1 ms


@pytest.mark.parametrize("trylock", [0.0, 0.01])
def test_who_comes_to_an_empty_zone_looks_for_another(trylock):
    """Several CPUs in the queue saw the zone above its mark; the first of them empty it."""
    run = small(
        faults(6, 14_000, lru=False), page_cache=0.5, high_pages=None, release="v7.2",
        machine=MACHINE.slower(20.0), seconds=0.1, trylock_failure=trylock,
    )  # fmt: skip
    result = assert_same(run)
    counters = result["counters"]
    assert result["histograms"]["hold"]["refill"][0] > 0  # holds that brought nothing
    assert sum(c["alloc_pages"] for c in counters) > 6 * 14_000
    assert min(c["alloc_pages"] for c in counters[:6]) > 0


def test_without_anything_to_reclaim_the_run_fails():
    p = Program()
    p.alloc(200_000, ns=10)
    hog = Workload("hog", (Task(p),), "nothing", 1000)
    for engine in (Engine, PerPage):
        state = prepare(small(hog, page_cache=0.3, seconds=1.0))
        assert engine(state).run()
        assert state.failed is Failure.OUT_OF_MEMORY
        assert state.counters()[0]["alloc_pages"] > 100_000


def test_impossible_page_caches_are_refused():
    with pytest.raises(pm.InputError, match="8 tasks and 2 kswapd, the machine 8 CPUs"):
        small(faults(8, 100), page_cache=0.5)
    with pytest.raises(pm.InputError, match=r"leave less than 0\.05"):
        small(faults(2, 100), page_cache=0.5, aged=0.5)
    with pytest.raises(pm.InputError, match=r"page_cache=-1"):
        small(faults(2, 100), page_cache=-1)
    with pytest.raises(pm.InputError, match="bound to node 0; it has 4 CPUs"):
        small(grows(100, tasks=4), page_cache=0.5)

"""The event engine against the per-page engine, bit for bit, and its own rules."""

# SPDX-License-Identifier: GPL-2.0-only

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.simulation import (
    MACHINE,
    WHOLE,
    WORKLOADS,
    assert_same,
    both,
    faults,
    outcome,
    pairs,
    prepare,
    spec,
)
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import releases
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.run import execute, simulate
from pcpmodel.simulation.spec import SPINLOCKS
from pcpmodel.simulation.state import Failure
from pcpmodel.workload import (
    Channel,
    Program,
    Task,
    Workload,
    exit_storm,
    page_fault1,
)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("release", [r.name for r in releases()])
def test_engines_agree_on_every_workload_and_release(name, release):
    result = assert_same(spec(WORKLOADS[name], release=release, machine=WHOLE))
    assert result["events"] > 15


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("release", ["v6.6", "v6.7", "v6.19"])
@pytest.mark.parametrize("handover", [0.0, 50.0])
def test_engines_agree_at_test_and_set_locks(name, release, handover):
    run = {"spinlock": "test-and-set", "release": release}
    at = MACHINE.with_costs(handover=handover)
    unfair = assert_same(spec(WORKLOADS[name], machine=at, **run))
    assert unfair["events"] > 15
    assert_same(spec(WORKLOADS[name], jitter=0.0, hold="mean", machine=at.slower(30.0), **run))


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    jitter=st.sampled_from([0.0, 0.5]),
    spinlock=st.sampled_from(SPINLOCKS),
    blocks=st.lists(st.sampled_from([20, 60, 300]), min_size=8, max_size=8),
    asleep=st.lists(st.sampled_from([0.0, 2e5, 3e7]), min_size=8, max_size=8),
    ends=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_engines_agree_where_threads_of_a_core_look_what_it_leaves_to_them(
    seed, jitter, spinlock, blocks, asleep, ends
):
    """Some come to locks, some have all on their lists, sleep for long, or are done."""
    tasks = []
    for cpu in range(8):
        p = Program()
        with p.repeat(40) if ends[cpu] else p.forever():
            p.alloc(blocks[cpu], ns=900.0)
            p.work(300_000.0)
            p.free(blocks[cpu], ns=400.0)
            if asleep[cpu]:
                p.idle(asleep[cpu])
            p.score()
        tasks.append(Task(p, cpu=cpu))
    work = Workload("threads", tuple(tasks), "rounds", 1)
    run = {"threads_per_core": 2, "high_pages": 126, "seconds": 0.05}
    run["machine"] = WHOLE.with_costs(zone_lines=0.0, lru_lines=0.0)
    assert_same(spec(work, seed=seed, jitter=jitter, spinlock=spinlock, **run))


def test_who_waits_long_at_a_test_and_set_lock_waits_longer_and_the_mean_is_the_same():
    """Service in random order: the queue is as long, some are served late (Kingman 1962)."""
    work = page_fault1(8, pages=700, fault_ns=300.0, unmap_ns=60.0)
    runs = {
        lock: execute(
            spec(work, release="v6.6", spinlock=lock, high_pages=126, nodes=1, seconds=1.0,
                 machine=MACHINE.slower(8.0).with_costs(handover=0.0))
        )
        for lock in SPINLOCKS
    }  # fmt: skip
    queued, unfair = runs["queued"], runs["test-and-set"]
    assert queued.lock_contention > 0.2
    assert unfair.lock_contention == pytest.approx(queued.lock_contention, rel=0.02)
    assert unfair.longest_starvation_ns > 1.5 * queued.longest_starvation_ns


def test_who_comes_back_at_once_takes_a_test_and_set_lock_again():
    """The chunks of a drain: a queue lets somebody else in between, a race does not."""
    work = exit_storm(32, pages=32 * 20_000, spread=True, lru=False)
    host = {"cpus": 32, "nodes": 1, "memory_gib": 64}
    p90 = {}
    for lock in SPINLOCKS:
        run = spec(work, release="v6.19", spinlock=lock, seconds=0.5, **host)
        p90[lock] = execute(run).latency_hist["drain"].quantile_ns(0.9)
    assert p90["test-and-set"] < p90["queued"] / 3


RINGS = ("exit of a big process",)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(WORKLOADS)),
    release=st.sampled_from([r.name for r in releases()]),
    seed=st.integers(0, 2**31),
    high=st.sampled_from([None, 63, 64, 100, 361, 5000]),
    scale=st.integers(0, 6),
    jitter=st.sampled_from([0.0, 0.2, 1.0]),
    hold=st.sampled_from(["mean", "drawn", "exponential"]),
    warmup=st.sampled_from([0.0, 0.003]),
    tick=st.sampled_from([0.0, 0.0005, 0.01]),
    nohz=st.booleans(),
    zones=st.integers(1, 2),
    batch=st.sampled_from([None, 1, 7]),
    identity=st.booleans(),
    spinlock=st.sampled_from(SPINLOCKS),
)
@example(  # sleepers that are woken just before their timers
    name="one-message channel",
    release="debian-6.1.192",
    seed=0,
    high=None,
    scale=0,
    jitter=0.0,
    hold="mean",
    warmup=0.0,
    tick=0.0,
    nohz=False,
    zones=1,
    batch=None,
    identity=False,
    spinlock="queued",
)
def test_engines_agree_on_anything(
    name,
    release,
    seed,
    high,
    scale,
    jitter,
    hold,
    warmup,
    tick,
    nohz,
    zones,
    batch,
    identity,
    spinlock,
):
    with_options = partial(
        spec,
        WORKLOADS[name],
        release=release,
        seed=seed,
        high_pages=high,
        batch_scale_max=scale,
        jitter=jitter,
        hold=hold,
        warmup_s=warmup,
        stat_interval_s=tick,
        nohz_idle=nohz,
        zones_per_node=zones,
        batch=batch,
        identity=identity,
        spinlock=spinlock,
        seconds=0.008,
    )
    if zones == 2 and name in RINGS:  # each hands pages to the next, which has another zone
        with pytest.raises(InputError, match="on a channel whose blocks are of zone"):
            with_options()
    else:
        assert_same(with_options())


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("release", ["debian-6.1.192", "v6.6", "v6.6+p9", "v6.7", "v6.19", "v7.2"])
def test_engines_agree_page_by_page_and_with_the_counts(name, release):
    """Every page allocated, every list in order; and what is only counted is the same.

    Where pages are not warm a hold takes what its lines take: then only the engines agree.
    """
    assert_same(spec(WORKLOADS[name], release=release, identity=True, machine=WHOLE))
    result = assert_same(spec(WORKLOADS[name], release=release, identity=True, warm=True))
    assert len(set(result["pages"])) > 1
    for pcps, lists in zip(result["pcps"], result["lists"], strict=True):
        for pcp, of_zone in zip(pcps, lists, strict=True):
            assert [len(pages) for pages in of_zone] == pcp["blocks"][: len(of_zone)]
    state = prepare(spec(WORKLOADS[name], release=release, warm=True))
    Engine(state).run()
    counted = outcome(state)
    for what in set(result) - {"pages", "lists"}:
        assert counted[what] == result[what], what


@pytest.mark.parametrize(
    "name", ["page_fault1", "page_fault1-lru", "long mapping", "large folios", "rest after bursts"]
)
@pytest.mark.parametrize("release", ["debian-6.1.192", "v6.7", "v6.12", "v7.2"])
def test_engines_agree_in_aged_zones_page_by_page_and_with_the_counts(name, release):
    run = {"release": release, "aged": 0.5, "memory_gib": 2, "seconds": 0.01}
    assert_same(spec(WORKLOADS[name], identity=True, machine=WHOLE, **run))
    run["warm"] = True
    result = assert_same(spec(WORKLOADS[name], identity=True, **run))
    assert sum(result["zone_free"]) < 2**18
    state = prepare(spec(WORKLOADS[name], **run))
    Engine(state).run()
    counted = outcome(state)
    for what in set(result) - {"pages", "lists"}:
        assert counted[what] == result[what], what


def test_an_aged_zone_has_pages_but_no_large_blocks():
    steps = {}
    for aged in (0.0, 0.9):
        state = prepare(spec(faults(4), identity=True, aged=aged, memory_gib=1, high_pages=300))
        assert Engine(state).run()
        lists = [pages for cpu in state.page_lists() for zone in cpu for pages in zone]
        steps[aged] = np.median(np.abs(np.diff(max(lists, key=len))))
    assert steps[0.0] == 1
    assert steps[0.9] > 1000
    state = prepare(spec(pairs(4), identity=True, aged=0.9, memory_gib=1, high_pages=300))
    assert Engine(state).run()
    assert state.failed is Failure.OUT_OF_MEMORY


def test_no_page_is_in_two_places():
    state = prepare(spec(WORKLOADS["pairs across nodes"], identity=True))
    Engine(state).run()
    for zone in range(2):
        listed = [p for cpu in state.page_lists() for pages in cpu[zone] for p in pages]
        assert len(set(listed)) == len(listed) > 0


def test_engines_agree_when_the_zone_is_below_its_high_watermark():
    """With little memory the flag comes and goes, and every free lowers ``high``."""
    for release in ("v6.6+p8", "v6.7", "v6.18", "v7.2"):
        refills = []
        for factor in (10, 3000):
            result = assert_same(
                spec(
                    faults(8, 13_000),
                    release=release,
                    memory_gib=0.75,
                    watermark_scale_factor=factor,
                    high_min_pages=300,
                    seconds=0.06,
                )
            )
            refills.append(sum(c["refills"] for c in result["counters"]))
        assert refills[1] > refills[0], release


def test_simultaneous_arrivals_are_served_by_cpu_number():
    """Without jitter all CPUs fault in step: the first holds go in order of CPU number."""
    run = spec(faults(4, 63), jitter=0.0, hold="mean", nodes=1)
    state = prepare(run)
    Engine(state).run(4)
    waits = [c["wait_ps"] for c in state.counters()]
    hold = state.counters()[0]["hold_ps"]
    assert waits == [i * (hold + 50_000) for i in range(4)]
    assert_same(run)


def test_pages_are_conserved():
    for name, workload in WORKLOADS.items():
        run = spec(workload)
        state = prepare(run)
        Engine(state).run()
        on_lists = sum(p["count"] for cpu in state.pcps() for p in cpu)
        managed = int(run.host.memory_gib * 2**18)
        moved = sum(c["alloc_pages"] - c["free_pages"] for c in state.counters())
        assert sum(state.zone_free()) + on_lists + moved == managed, name
        for cpu in state.pcps():
            for p in cpu:
                assert p["count"] == sum(
                    n << (i // 3 if i < 12 else 9) for i, n in enumerate(p["blocks"])
                )


def test_running_in_pieces_changes_nothing():
    run = spec(WORKLOADS["life cycle"])
    whole, pieces = prepare(run), prepare(run)
    Engine(whole).run()
    engine, rounds = Engine(pieces), 0
    while not engine.run(7):
        rounds += 1
    assert rounds > 10
    assert outcome(whole) == outcome(pieces)


@pytest.mark.parametrize("options", [{}, {"identity": True}, {"trylock_failure": 1e-6}])
def test_who_hardly_needs_a_lock_is_looked_at_meanwhile_too(options):
    """A page from its list and back, over and over: one refill is enough for all."""
    p = Program()
    with p.forever():
        p.alloc(1, ns=50.0)
        p.free(1, ns=50.0)
        p.score()
    run = spec(Workload("pairs", (Task(p),) * 2, "pages", 2), stat_interval_s=1.0, **options)
    result = assert_same(run)
    assert sum(c["alloc_pages"] for c in result["counters"]) > 300_000
    assert sum(c["refills"] for c in result["counters"]) <= 2
    engine, rounds = Engine(prepare(run)), 0
    while not engine.run(100):
        rounds += 1
    assert rounds > 5


@pytest.mark.parametrize("nohz_idle", [False, True])
@pytest.mark.parametrize("word", ["work", "idle"])
def test_who_has_many_ticks_in_one_operation_is_looked_at_meanwhile_too(word, nohz_idle):
    """All ticks of one operation were one event: Ctrl-C was heard once it was over."""
    p = Program()
    getattr(p, word)(1e12)
    work = Workload("long", (Task(p),), "none", 0)
    run = spec(work, stat_interval_s=1e-7, nohz_idle=nohz_idle)  # 200,000 of them
    assert_same(run)
    ticks = word == "work" or not nohz_idle
    assert Engine(prepare(run)).run(1) is not ticks


def test_who_reclaims_as_kswapd_does_needs_page_cache():
    # Else its look at the zones counted as a hold of a kind that no table of holds has.
    p = Program()
    with p.forever():
        p._add("kswapd")
        p.free(32, ns=100)
    work = Workload("looks", (Task(p),), "pages", 32)
    with pytest.raises(InputError, match="a program reclaims as kswapd does; there is no page"):
        prepare(spec(work))


def test_another_seed_gives_another_run_and_the_same_seed_the_same():
    results = [both(spec(faults(), seed=seed))[0] for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0]["order"] != results[2]["order"]


def test_running_out_of_memory_is_an_error_of_the_state():
    p = Program()
    with p.forever():
        p.alloc(1000, ns=10)
    hog = Workload("hog", (Task(p),), "nothing", 1000)
    run = spec(hog, memory_gib=0.5)
    state = prepare(run)
    assert Engine(state).run()
    assert state.failed is Failure.OUT_OF_MEMORY
    marks = [size.watermarks[0] for size in run.host.sizes(run.release)]
    for free, mark in zip(state.zone_free(), marks, strict=True):
        assert mark - 2016 <= free <= mark


def test_a_page_fault_run_does_what_the_program_says():
    """One CPU, no jitter, no contention: time and counts by hand."""
    run = spec(
        faults(1, 630),
        release="v6.6",
        warm=True,
        high_pages=361,
        jitter=0.0,
        hold="mean",
        stat_interval_s=0.0,
        seconds=0.01,
    )
    state = prepare(run)
    Engine(state).run()
    n = state.counters()[0]
    assert n["wait_ps"] == 0
    assert n["alloc_pages"] * 300_000 + n["free_pages"] * 60_000 + n["hold_ps"] == pytest.approx(
        1e10, abs=1e6
    )
    assert n["refill_pages"] == 63 * n["refills"]
    assert n["refills"] <= np.ceil(n["alloc_pages"] / 63)


@pytest.mark.parametrize("engine", ["event", "per-page"])
@pytest.mark.parametrize("warmup_s", [None, 0.0])
def test_a_loop_that_comes_to_take_no_time_ends(engine, warmup_s):
    """Frees take time as long as there is what to free: no check of the program knows."""
    p = Program()
    p.alloc(700, ns=300)
    with p.forever():
        with p.repeat(3):
            p.free(64, ns=60)
        p.score()
    workload = Workload("frees", (Task(p),), "rounds", 700)
    with pytest.raises(InputError, match="'frees': a loop goes round in no time"):
        simulate(
            "v7.2", "ice-lake", workload, cpus=2, nodes=1, memory_gib=2, seconds=0.1,
            warmup_s=warmup_s, engine=engine,
        )  # fmt: skip


def test_bad_programs_are_refused():
    p = Program()
    with pytest.raises(InputError, match=r"order=11 is not a whole number in 0\.\.10"):
        p.alloc(1, order=11)
    with pytest.raises(InputError, match="did you mean 'movable'"):
        p.alloc(1, migratetype="moveable")
    with pytest.raises(InputError, match="blocks"):
        p.alloc(0)
    with pytest.raises(InputError, match=r"blocks=1\.5 is not an integer"):
        p.alloc(1.5)
    with pytest.raises(InputError, match="takes no time"), p.forever():
        p.alloc(1)
    with pytest.raises(InputError, match="finite"):
        p.work(float("nan"))
    with pytest.raises(InputError, match="non-empty"):
        p.draw([])
    q = Program()
    with q.forever():
        q.work(10)
    with pytest.raises(InputError, match="never ends"):
        q.work(1)
    with pytest.raises(InputError, match="no tasks"):
        Workload("empty", (), "nothing", 0)
    r = Program()
    r.send(0)
    with pytest.raises(InputError, match="channel slot"):
        Workload("x", (Task(r),), "nothing", 0)
    with pytest.raises(InputError, match="cannot send"):
        Workload("x", (Task(r, channels=(0,)), Task(q)), "nothing", 0, (Channel(1, 0),))

"""The event engine against the per-page engine, bit for bit, and its own rules."""

# SPDX-License-Identifier: GPL-2.0-only

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pcpmodel import machine
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import releases
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.run import make_spec, prepare
from pcpmodel.workload import (
    ALL,
    Channel,
    Program,
    Task,
    Workload,
    exit_storm,
    file_churn,
    idle_after_burst,
    page_fault1,
    recorded,
)

MACHINE = machine("sapphire-rapids")


def outcome(state):
    """Everything that a run leaves behind."""
    return {
        "counters": state.counters(),
        "histograms": state.histograms(),
        "over": state.over(),
        "series": state.series(),
        "pcps": state.pcps(),
        "held": state.held(),
        "zone_free": state.zone_free(),
        "order": state.order_digests,
        "events": state.events,
        "times": state.times_ps(),
        "pages": state.page_digests(),
        "lists": state.page_lists(),
    }


def both(spec):
    states = []
    for engine in (Engine, PerPage):
        state = prepare(spec)
        assert engine(state).run()
        assert not state.failed
        states.append(outcome(state))
    return states


def assert_same(spec):
    event, page = both(spec)
    for what in event:
        assert event[what] == page[what], what
    return event


def faults(processes=6, pages=700, **more):
    return page_fault1(processes, pages=pages, fault_ns=300.0, unmap_ns=60.0, **more)


def life_cycle(processes):
    """Grow in bursts, shrink now and then, exit: all at once, then an order-1 PGD."""
    p = Program()
    with p.forever():
        p.alloc(1, order=1, migratetype="unmovable", ns=200)
        p.alloc(4, migratetype="unmovable", ns=150)
        with p.repeat(5):
            size = p.draw([3, 40, 900, 2500])
            p.alloc(size, ns=400)
            p.work(20_000)
            p.free(300, ns=90)
        p.free(ALL, ns=90)
        p.free(ALL, migratetype="unmovable", ns=90)
        p.free(1, order=1, migratetype="unmovable", ns=90)
        p.score()
        p.idle(30_000)
    return Workload("life", (Task(p),) * processes, "processes", processes * 13_000)


def pairs(n, room=4, cross=False):
    """Blocks of order 3..0 allocated here, freed there."""
    tx, rx = Program(), Program()
    blocks = {"unmovable_3": 1, "unmovable_2": 1, "unmovable_1": 1, "unmovable_0": 1}
    with tx.forever():
        for order in (3, 2, 1, 0):
            tx.alloc(1, order=order, migratetype="unmovable", ns=900)
        tx.send(0, **blocks)
    with rx.forever():
        rx.recv(0, **blocks)
        for order in (3, 2, 1, 0):
            rx.free(1, order=order, migratetype="unmovable", ns=700, of="peer")
        rx.score()
    tasks, channels = [], []
    for i in range(n):
        channels.append(Channel(2 * i, 2 * i + 1, room=room, latency_ns=2000))
        node = (i % 2, 1 - i % 2) if cross else (i % 2, i % 2)
        tasks += [
            Task(tx, node[0], channels=(i,), peer=2 * i + 1),
            Task(rx, node[1], channels=(i,), peer=2 * i),
        ]
    return Workload("pairs", tuple(tasks), "messages", n * 16 * (room + 2), tuple(channels))


WORKLOADS = {
    "page_fault1": faults(),
    "page_fault1-lru": faults(lru=True),
    "long mapping": faults(4, 20_000),
    "life cycle": life_cycle(6),
    "pairs": pairs(4),
    "pairs across nodes": pairs(4, cross=True),
    "one-message channel": pairs(3, room=1),
    "exit of a big process": exit_storm(4, pages=2400, fault_ns=200.0),
    "large folios": file_churn(6, order=2),
    "rest after bursts": idle_after_burst(6, pages=1500, idle_s=0.005, fault_ns=300.0),
    "recorded processes": recorded("6.18-exitstorm", 6, page_us=0.4),
}


def spec(workload, **options):
    options = {
        "release": "v6.7",
        "machine": MACHINE,
        "cpus": 8,
        "nodes": 2,
        "memory_gib": 16,
        "seconds": 0.02,
        "samples": 7,
        "stat_interval_s": 0.004,
        "handoff_per_waiter_ns": 3.0,
    } | options
    return make_spec(workload=workload, **options)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("release", [r.name for r in releases()])
def test_engines_agree_on_every_workload_and_release(name, release):
    result = assert_same(spec(WORKLOADS[name], release=release))
    assert result["events"] > 15


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
)
def test_engines_agree_on_anything(
    name, release, seed, high, scale, jitter, hold, warmup, tick, nohz, zones, batch, identity
):
    assert_same(
        spec(
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
            seconds=0.008,
        )
    )


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("release", ["debian-6.1.192", "v6.6", "v6.6+p9", "v6.7", "v6.19", "v7.2"])
def test_engines_agree_page_by_page_and_with_the_counts(name, release):
    """Every page allocated, every list in order; and what is only counted is the same."""
    result = assert_same(spec(WORKLOADS[name], release=release, identity=True))
    assert len(set(result["pages"])) > 1
    for pcps, lists in zip(result["pcps"], result["lists"], strict=True):
        for pcp, of_zone in zip(pcps, lists, strict=True):
            assert [len(pages) for pages in of_zone] == pcp["blocks"][: len(of_zone)]
    state = prepare(spec(WORKLOADS[name], release=release))
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
    assert state.failed == 1


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
    run = spec(faults(4, 63), jitter=0.0, hold="mean", nodes=1, handoff_per_waiter_ns=0.0)
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
    assert state.failed == 1
    marks = [size.watermarks[0] for size in run.host.sizes(run.release)]
    for free, mark in zip(state.zone_free(), marks, strict=True):
        assert mark - 2016 <= free <= mark


def test_a_page_fault_run_does_what_the_program_says():
    """One CPU, no jitter, no contention: time and counts by hand."""
    run = spec(
        faults(1, 630),
        release="v6.6",
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


def test_bad_programs_are_refused():
    p = Program()
    with pytest.raises(InputError, match="order"):
        p.alloc(1, order=4)
    with pytest.raises(InputError, match="did you mean 'movable'"):
        p.alloc(1, migratetype="moveable")
    with pytest.raises(InputError, match="blocks"):
        p.alloc(0)
    with pytest.raises(InputError, match="not a whole number"):
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

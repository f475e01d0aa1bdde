"""Lines of struct pages under the zone lock: who wrote them last decides where they are."""

# SPDX-License-Identifier: GPL-2.0-only

from dataclasses import replace

import pytest

from pcpmodel.errors import InputError
from pcpmodel.hardware.lines import LINE_PLACES, PageLines
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.misses import misses
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.setup import setup
from pcpmodel.simulation.spec import make_spec
from pcpmodel.simulation.state import State
from pcpmodel.workload import page_fault1, unix_stream
from pcpmodel.workload.program import Program
from pcpmodel.workload.tasks import Task, Workload


def spec(workload, **given):
    options = {
        "release": "v6.6", "machine": "ice-lake", "cpus": 4, "nodes": 1, "memory_gib": 4.0,
        "warmup_s": 0.1, "seconds": 0.1, "samples": 0,
    }  # fmt: skip
    return make_spec(**{**options, **given}, workload=workload)


ALONE = page_fault1(1, pages=4096)
STREAM = unix_stream(2, nodes=1)


def test_who_maps_and_unmaps_alone_finds_its_lines_in_order():
    """As the latency tables were measured: warm."""
    found = misses(spec(ALONE))
    assert found.refill["ahead"] > 0.95
    assert found.drain["own"] > 0.9
    assert found.per_block < 0.05


def test_a_refill_writes_a_line_per_block_and_a_drain_one_or_two():
    for found in (misses(spec(ALONE)), misses(spec(STREAM))):
        assert set(found.refill) == set(found.drain) == set(LINE_PLACES)
        assert sum(found.refill.values()) == pytest.approx(1)
        assert 1 <= sum(found.drain.values()) <= 2


def test_a_page_that_another_cpu_freed_is_dirty_there():
    found = misses(spec(STREAM))
    assert found.refill["dirty"] > 0.6
    assert found.refill["own"] < 0.1
    assert found.per_block > 10 * misses(spec(ALONE)).per_block


def test_mixed_memory_has_no_line_beside_the_one_before():
    """A single page at a random place each: no stream to run ahead of."""
    found = misses(spec(ALONE, aged=0.5))
    assert found.refill["ahead"] < 0.1
    assert found.per_block > 0.4


def test_a_page_that_lies_longer_on_a_list_has_left_the_socket():
    """Refills of 2016 pages (auto-tuning) hand out what a cache of a few MiB has lost by then."""
    stream = unix_stream(4, nodes=2)
    few, many = (
        misses(spec(stream, cpus=8, nodes=2, release=release, high_min_pages=500, l2_kib=256,
                    llc_slice_kib=2048))
        for release in ("v6.6+p5", "v6.6+p7")
    )  # fmt: skip
    assert few.from_memory < 0.01
    assert 0.01 < many.from_memory < 2 / 15  # single pages, one of the fifteen of a write
    kept = misses(spec(stream, cpus=8, nodes=2, release="v6.6+p7", llc_slice_kib=2**15))
    assert kept.from_memory < 0.01


def test_the_time_of_cold_pages_is_the_same_in_both_engines():
    """Outside of any hold, with every page of a block."""
    block = Program()
    with block.forever():
        block.alloc(8, order=3, ns=1000.0)
        block.free(8, order=3, ns=1000.0)
        block.score()
    for workload, pages in ((ALONE, 1), (Workload("blocks", (Task(block),), "rounds", 64), 64)):
        told = []
        for ns in (0.0, 400.0):
            work = spec(
                workload, seconds=0.02, warmup_s=0.0, jitter=0.0, hold="mean", cold_page_ns=ns
            )
            states = [State(setup(work)) for _ in range(2)]
            for engine, state in zip((Engine, PerPage), states, strict=True):
                runner = engine(state)
                while not runner.run(10**6):
                    pass
            assert states[0].counters() == states[1].counters()
            told.append(sum(cpu["score"] for cpu in states[0].counters()))
        slower = 0.02 / told[1] - 0.02 / told[0]
        assert slower == pytest.approx(pages * 400e-9, rel=0.1)


def test_what_a_cache_does_not_hold_any_more_is_farther_away():
    small, large = (misses(spec(STREAM, l2_kib=64, llc_slice_kib=kib)) for kib in (64, 2**20))
    assert small.refill["memory"] > large.refill["memory"]
    assert large.refill["llc"] > 0
    held = misses(spec(STREAM, l2_kib=2**20))
    assert held.refill["dirty"] > small.refill["dirty"]


def test_lines_are_looked_at_and_change_nothing():
    work = spec(STREAM, identity=True, seconds=0.02, warmup_s=0.0)
    told, counts = [], []
    for engine in (Engine, PerPage):
        for watched in (False, True):
            begins = setup(work)
            lines = PageLines(4, [2**20], 1024.0, 1024.0)
            state = State(replace(begins, lines=lines) if watched else begins)
            runner = engine(state)
            while not runner.run(10**6):
                pass
            told.append((state.order_digests, state.page_digests(), state.counters()))
            if watched:
                counts.append(lines.counts())
    assert told[0] == told[1] == told[2] == told[3]
    assert counts[0]["refill"]["blocks"] == counts[1]["refill"]["blocks"] > 0


def test_misses_are_the_same_every_time():
    work = spec(STREAM)
    assert misses(work) == misses(work)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(InputError, match="warmup_s: give it"):
        misses(spec(ALONE, warmup_s=None))
    with pytest.raises(InputError, match="no refill in 1e-05 s"):
        misses(spec(ALONE, warmup_s=0.0, seconds=1e-5))
    lines = PageLines(1, [2**20], 1024.0, 1024.0)  # of one CPU, not four
    begins = setup(spec(STREAM, identity=True))
    with pytest.raises(InputError, match="those of its CPUs and zones"):
        State(replace(begins, lines=lines))
    with pytest.raises(InputError, match="at least 1"):
        PageLines(0, [1024], 64.0, 64.0)

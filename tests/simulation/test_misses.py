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

"""Where the lines of pages are, and what a page of a hold takes for it."""

# SPDX-License-Identifier: GPL-2.0-only

import numpy as np
import pandas as pd
import pytest

import pcpmodel as pm
from pcpmodel.hardware.load import KINDS
from pcpmodel.hardware.machines import Machine
from pcpmodel.study.loads import Cell, ZoneHere, measured_lines, predict
from pcpmodel.study.page_lines import LINE_ROWS, at_random, random_buddies, shifted

COSTS = {"line_l2": 5.0, "line_ahead": 10.0, "line_llc": 40.0, "line_dirty": 80.0}
COSTS |= {"line_memory": 100.0, "hold_page_alloc": 60.0, "hold_page_free": 60.0, "hold_fixed": 0.0}
ZONE = ZoneHere("Normal", 0, 1_605_000, 8073, 157_696, 2)


def places(**lines):
    return dict.fromkeys(LINE_ROWS, 0.0) | lines


@pytest.fixture
def machine():
    """One whose pages take 60 ns in either hold, its 99th percentile twice that."""
    batch = np.array([63 << k for k in range(6)])
    columns = {"batch": batch}
    for side in ("alloc", "free"):
        columns[f"{side}_latency_avg_us"] = batch * 0.06
        columns[f"{side}_latency_p99_us"] = batch * 0.12
    return Machine("it", pd.DataFrame(columns), None, {}, "digest")


def test_a_page_takes_more_by_what_its_lines_take_more(machine):
    measured = {"refill": places(ahead=1.0), "drain": places(own=1.0, ahead=1.0)}
    here = {"refill": places(dirty=1.0), "drain": places(own=2.0)}
    found = shifted(machine, measured, here, COSTS)
    per_page = found.latency.div(found.latency.batch, axis=0)
    assert list(per_page.alloc_latency_avg_us) == pytest.approx([0.06 + 0.08 - 0.01] * 6)
    assert list(per_page.free_latency_avg_us) == pytest.approx([0.06 + 0.005 - 0.01] * 6)
    assert list(per_page.free_latency_p99_us) == pytest.approx([2 * 0.055] * 6)
    assert found.digest != machine.digest  # fits are kept by digest
    same = shifted(machine, measured, measured, COSTS)
    pd.testing.assert_frame_equal(same.latency, machine.latency)


def test_a_page_takes_no_less_than_its_lines_in_the_own_cache(machine):
    measured = {"refill": places(memory=1.0), "drain": places(memory=2.0)}
    here = {"refill": places(own=1.0), "drain": places(own=2.0)}
    table = shifted(machine, measured, here, COSTS).latency
    assert list(table.alloc_latency_avg_us / table.batch) == pytest.approx([0.005] * 6)
    assert list(table.free_latency_avg_us / table.batch) == pytest.approx([0.010] * 6)


def test_buddies_of_a_region_unmapped_at_random_are_where_the_rule_has_them():
    # Of each pair one page is unmapped before the other: its line is as old as that.
    small = random_buddies(64, 1024, 0)
    assert small["own"] == 1.0  # 64 pages of 65 lines fit 16,384
    large = random_buddies(32768, 1024, 16384)
    assert sum(large.values()) == pytest.approx(1.0)
    # The half that is still mapped was touched some 65 lines a page ago; of the other half, all
    # whose pages are fewer than 8,192 apart, 1 - (1 - 1/4)^2 of them, are in the own cache.
    assert large["own"] == pytest.approx(0.5 * (1 - 0.75**2), abs=0.02)
    assert large["memory"] > 0.35


def test_freed_at_random_nothing_comes_ahead():
    found = {"refill": places(ahead=1.0), "drain": places(own=1.0, ahead=0.9, llc=0.1)}
    drain = at_random(found, {"own": 0.2, "llc": 0.3, "memory": 0.5})["drain"]
    assert drain == pytest.approx({"own": 0.3, "llc": 1.2, "memory": 0.5})
    assert sum(drain.values()) == pytest.approx(2.0)


def rates(*kinds):
    row = {"processes": 1, "rate": 5e5, "first_share": 0.8, "blocks_0": 1.0, "blocks_1": 0.0}
    row |= dict.fromkeys(("blocks_2", "blocks_3", "refills", "refilled", "drains", "drained"), 0.0)
    return pd.DataFrame([{"workload": kind, "unit": KINDS[kind].unit, **row} for kind in kinds])


def test_a_cell_has_its_own_lines(machine):
    table, release = rates("hand-over", "faults", "faults-random"), pm.release("v6.18")
    given = (machine, table, COSTS, release, ZONE)
    measured = measured_lines(*given)
    assert sum(measured["drain"].values()) == pytest.approx(2.0, abs=0.05)  # and its buddy's
    assert sum(measured["refill"].values()) == pytest.approx(1.0, abs=0.02)
    took = {
        kind: predict(*given, Cell(kind, 1, 2048), 1.0, measured)["drain_p50"]
        for kind in ("faults", "faults-random")
    }
    assert took["faults-random"] > 1.3 * took["faults"]
    without = {k: v for k, v in COSTS.items() if k != "line_ahead"}
    assert measured_lines(machine, table, without, release, ZONE) is None
    same = predict(machine, table, without, release, ZONE, Cell("faults-random", 1, 2048), 1.0)
    assert took["faults-random"] > same["drain_p50"]

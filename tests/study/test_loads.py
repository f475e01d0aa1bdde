"""What a load does, measured and simulated: the figures are those that were put in."""

# SPDX-License-Identifier: GPL-2.0-only

import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pcpmodel as pm
from helpers.paths import TRACES
from pcpmodel.errors import InputError
from pcpmodel.hardware.load import KINDS
from pcpmodel.proc.host import HostFiles
from pcpmodel.study import loads
from pcpmodel.study.loads import (
    QUANTITIES,
    Cell,
    Observed,
    ZoneHere,
    event_ns,
    levels,
    pairs_of,
    predict,
)
from pcpmodel.trace.hold_tracer import ORDERS, Traced

COSTS = {"hold_page_alloc": 20.0, "hold_page_free": 20.0, "hold_fixed": 200.0}
ZONE = ZoneHere("Normal", 0, 2_523_136, 8073, 157_696, 2)


def rates(kind, processes=1, **more):
    row = {"workload": kind, "processes": processes, "unit": KINDS[kind].unit, "rate": 5e5}
    row |= {"first_share": 0.8, "blocks_0": 1.0, "blocks_1": 0.0, "blocks_2": 0.0, "blocks_3": 0.0}
    row |= {"refills": 0.0, "refilled": 0.0, "drains": 0.0, "drained": 0.0}
    return pd.DataFrame([row | more])


def said(kind, fraction, processes=1, **more):
    machine = pm.machine("ice-lake")
    cell = Cell(kind, processes, fraction)
    table = rates(kind, processes, **more)
    return predict(machine, table, COSTS, pm.release("v6.18"), ZONE, cell, 1.0)


def test_processes_have_cpus_of_their_own():
    assert levels("faults", [0, 1, 2, 3, 4, 5]) == [1, 2, 4, 6]
    assert levels("stream", [0, 1, 2, 3, 4, 5]) == [1, 2, 3]
    assert levels("stream", [3]) == []
    assert pairs_of("faults", 2, [4, 7]) == [(4, 4), (7, 7)]
    assert pairs_of("hand-over", 2, [1, 2, 5, 6]) == [(1, 2), (5, 6)]


def test_what_the_lists_hold_needs_no_hold():
    found = said("faults", 8)  # high is 157,696 pages, the region 32,768
    assert found["drains"] == found["refills"] == found["drained"] == found["waits"] == 0
    assert found["rate"] == pytest.approx(5e5, rel=0.02)
    assert math.isnan(found["drain_p50"])


def test_small_lists_pay_for_their_holds():
    found = said("faults", 2048)  # high is 616 pages: all but those go through the zone
    assert found["drained"] == pytest.approx(1.0, abs=0.03)
    assert 1e3 / 616 < found["drains"] < 1e3 / 63
    assert found["rate"] < 0.99 * 5e5
    assert 0 < found["drain_p50"] <= found["drain_p99"]


def test_holds_that_it_had_are_taken_off_and_added_again():
    again = said("faults", 2048, refills=2.0, refilled=1.0, drains=2.0, drained=1.0)
    assert again["rate"] > said("faults", 2048)["rate"]
    assert again["rate"] == pytest.approx(5e5, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "blocks"), [("faults", 1.00256), ("exits", 1.0417), ("hand-over", 1.01457)]
)
def test_pages_of_the_kernel_itself_are_among_those_that_were_seen(kind, blocks):
    row = rates(kind, blocks_0=blocks).iloc[0]
    workload = loads._workload(kind, 1, row, 2000.0)
    result = pm.simulate("v6.18", "ice-lake", workload, cpus=2, memory_gib=8, seconds=20.0)
    allocated = float(result.per_cpu["alloc_pages"].sum())
    assert allocated / result.score == pytest.approx(blocks, rel=1e-3)


def test_page_tables_that_come_back_later_make_refills_smaller(monkeypatch):
    # high is 252: a refill takes at most 189 pages, fewer by those of other kinds on the lists.
    few = replace(ZONE, managed=589_824, high_min=5_972, high_max=48_307)
    monkeypatch.setattr(__name__ + ".ZONE", few)
    found = said("faults", 2048, blocks_0=1.00256)
    assert 1e3 / 126 < found["refills"] < 1e3 / 63
    assert found["drains"] == pytest.approx(1e3 / 189, rel=0.02)
    # With a page of tables in a region, and one that lists what is unmapped, it is almost that.
    monkeypatch.setattr(loads, "_PER_TABLE", KINDS["faults"].pages // 16)
    monkeypatch.setattr(loads, "_BATCHES", 1)
    assert said("faults", 2048)["refills"] < 0.8 * found["refills"]


def test_a_burst_from_the_other_side_begins_with_small_batches():
    found = said("hand-over", 0)
    # 63, 126 .. 2,016 and 2,016 again for 4,032 to 8,064 pages.
    assert 1e3 * 6 / 8064 < found["refills"] < 1e3 * 9 / 4032
    assert found["drained"] > 0.9


def test_a_stream_moves_the_blocks_that_were_seen():
    found = said("stream", 0, rate=3e4, blocks_0=0.02, blocks_1=1.0, blocks_2=1.0, blocks_3=1.0)
    assert found["rate"] == pytest.approx(3e4, rel=0.1)
    assert found["refills"] > 10  # of 7, 15 or 31 blocks
    assert math.isnan(found["refill_p50"])  # holds of other orders than 0


def test_rates_that_were_not_measured_are_said():
    with pytest.raises(InputError, match="2 processes of faults: not in"):
        predict(
            pm.machine("ice-lake"), rates("faults"), COSTS, pm.release("v6.18"), ZONE,
            Cell("faults", 2, 0),
        )  # fmt: skip


def seen(holds=10, pages=63, waits=(), lost=False, instances=1):
    allocated = np.zeros(ORDERS, np.int64)
    allocated[0] = 10_000
    many = np.full(holds, pages)
    span = (many - 1) * (100 + 170 * instances)
    return Traced(
        {"alloc": many, "free": many},
        {"alloc": span, "free": span},
        {},
        lost,
        {"alloc": holds, "free": holds},
        {"alloc": holds * pages, "free": holds * pages},
        allocated,
        allocated,
        np.array(waits, np.int64),
    )


def test_what_was_observed_comes_out():
    did = [{"units": 10_000, "cpu_s": 0.01, "first_s": 0.008}]
    slow = [{"units": 10_000, "cpu_s": 0.02, "first_s": 0.016}]
    found = Observed()
    for _ in range(6):
        found.add(did, slow, seen(holds=40))
        found.add_holds(seen(holds=40, instances=2), 2)
        found.add_waits(did, seen(waits=[2000] * 8))
    assert found.figure("rate") == pytest.approx((1e6,) * 3)
    assert found.figure("traced_rate")[0] == pytest.approx(5e5)
    assert found.figure("first_share")[0] == pytest.approx(0.8)
    assert found.figure("refills")[0] == pytest.approx(4.0)
    assert found.figure("drained")[0] == pytest.approx(0.252)
    assert found.figure("blocks_0")[0] == pytest.approx(1.0)
    added = event_ns([found, Observed()])
    assert added == {"alloc": pytest.approx((170.0,) * 3), "free": pytest.approx((170.0,) * 3)}
    assert found.figure("drain_p50", added)[0] == pytest.approx(6.3)  # 63 pages of 100 ns
    assert math.isnan(found.figure("drain_p50")[0])  # what tracing adds is not known
    assert found.figure("waits")[0] == pytest.approx(100.0)  # 8 of 80 holds
    assert found.figure("wait_p50")[0] == pytest.approx(2.0)
    assert math.isnan(found.figure("wait_p99")[0])  # 48 waits are too few
    assert set(QUANTITIES) >= {"rate", "refills", "waits"}


def test_the_interval_of_a_hold_takes_in_what_tracing_adds_in_other_loads():
    did = [{"units": 10_000, "cpu_s": 0.01, "first_s": 0.008}]
    cheap, dear = Observed(), Observed()
    for _ in range(6):
        for load, more in ((cheap, seen(holds=40)), (dear, seen(holds=40, instances=2))):
            load.add(did, did, seen(holds=40))
            load.add_holds(more, 2)
    added = event_ns([cheap, dear])
    assert added["free"] == pytest.approx((85.0, 4.25, 165.75))  # 0 and 170, 95 % of the loads
    middle, low, high = dear.figure("drain_p50", added)
    assert middle == pytest.approx(11.655)  # 63 pages of 185 ns
    assert (low, high) == pytest.approx((6.56775, 16.74225))


def test_a_torn_round_says_no_blocks_per_unit():
    found = Observed()
    did = [{"units": 100, "cpu_s": 0.01, "first_s": 0.0}]
    found.add(did, did, seen(lost=True))
    assert "blocks_0" not in found.samples
    assert found.figure("refills")[0] == pytest.approx(1.0)


def test_the_zone_of_a_machine_has_lists_of_its_own_size(tmp_path):
    (tmp_path / "proc").mkdir()
    shutil.copy(TRACES / "7.3-unixpair-4cpu" / "zoneinfo.after", tmp_path / "proc" / "zoneinfo")
    cpus = tmp_path / "sys/devices/system/cpu"
    cpus.mkdir(parents=True)
    (cpus / "online").write_text("0-3\n")
    host = HostFiles(tmp_path)
    zone = loads.zone_here(host)
    assert zone.managed > zone.high_max >= zone.high_min > 0
    zones = [each for each in host.snapshots()[0].zones if each.pagesets and each.managed]
    assert len(zones) > 1
    # The kernel takes the highest zone, however small, until its watermarks are reached.
    assert zone.name == zones[-1].name


@pytest.mark.parametrize("free", [400_000, 30_000])
def test_a_low_zone_is_used_only_when_the_high_one_is_short(tmp_path, monkeypatch, free):
    zone = SimpleNamespace(node=0, high=10_938, pagesets=[SimpleNamespace(high_min=1, high_max=2)])
    low = SimpleNamespace(**{**vars(zone), "name": "DMA32", "managed": 772_917, "free": 772_917})
    high = SimpleNamespace(**{**vars(zone), "name": "Normal", "managed": 589_824, "free": free})
    host = SimpleNamespace(
        snapshots=lambda: [SimpleNamespace(zones=[low, high])], nodes=list, online=(0, 1)
    )
    assert loads.zone_here(host).name == ("Normal" if free > 65_536 + 10_938 else "DMA32")

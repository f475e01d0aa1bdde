# SPDX-License-Identifier: GPL-2.0-only
"""Holds of the zone lock where nobody traced them (data/workload/lock-shares)."""

import numpy as np
import pytest

import pcpmodel as pm
from pcpmodel.datasets.packages import load_workload
from pcpmodel.workload import Program, Task, Workload

MACHINE = pm.machine("sapphire-rapids")  # of whose class the guest was
TABLES = load_workload("lock-shares").tables
TAKINGS = 2
HERE = {"cpus": 2, "nodes": 1, "threads_per_core": 1, "memory_gib": 24.0}


def measured_holds():
    """(pause of CPU 0, of CPU 1) -> mean hold of either [ns]: the share that the other found."""
    holds = {}
    for pauses, rows in TABLES["calls"].groupby(["pause_0", "pause_1"]):
        found = []
        for cpu in (0, 1):
            mine, other = (rows[rows["cpu"] == i].set_index("round") for i in (cpu, 1 - cpu))
            share = other["contended"] / (TAKINGS * other["calls"])
            found.append(float(np.median(share * mine["call_ns"] / TAKINGS)))
        holds[pauses] = tuple(found)
    return holds


def calls(pause_ns):
    p = Program()
    with p.forever():
        p.alloc(1, order=4, migratetype="unmovable", ns=1900)  # and fills it with zeros
        p.free(1, order=4, migratetype="unmovable", ns=100 + pause_ns)
        p.score()
    return Task(p)


def simulated_holds(took_ns, machine=MACHINE):
    """Mean hold of two CPUs whose calls take as long [ns]."""
    work = Workload("calls", tuple(calls(max(ns - 2000, 0)) for ns in took_ns), "calls", 64)
    run = pm.simulate("v6.18", machine, work, seconds=0.5, warmup_s=0.05, identity=True, **HERE)
    return tuple(run.per_cpu["hold_ps"] / run.per_cpu["score"] / TAKINGS / 1000)


@pytest.mark.parametrize("pauses", list(measured_holds()))
def test_a_hold_of_one_block_takes_what_another_cpu_sees_of_it(pauses):
    rows = TABLES["calls"].set_index(["pause_0", "pause_1"]).loc[pauses]
    took = [float(rows.loc[rows["cpu"] == cpu, "call_ns"].median()) for cpu in (0, 1)]
    for measured, simulated in zip(measured_holds()[pauses], simulated_holds(took), strict=True):
        assert simulated == pytest.approx(measured, rel=0.25, abs=20)


def test_the_sheet_has_what_was_measured():
    # Who calls thirty times as often has all at hand, and the other one nothing.
    own, far = measured_holds()[0, 60_000]
    block, line = MACHINE.sheet["hold_block", ""], MACHINE.sheet["line_dirty", "llc"]
    assert block.low <= own <= block.high
    assert block.value == pytest.approx(own, rel=0.1)
    assert 1 <= (far - own) / line.value <= MACHINE.sheet["zone_lines", ""].high


def test_a_process_that_maps_and_unmaps_holds_the_lock_as_long_as_another_cpu_sees():
    rows = TABLES["faults"].set_index("mib").loc[128]
    share = rows["contended"] / (TAKINGS * rows["calls"])
    measured = float(np.median(share * rows["page_ns"]))  # for each page
    work = pm.workload.page_fault1(1, pages=128 * 256)
    run = pm.simulate("v6.18", MACHINE, work, seconds=0.2, high_pages=252, **HERE)
    held = run.per_cpu["hold_ps"].sum() / run.per_cpu["score"].sum() / 1000
    assert held == pytest.approx(measured, rel=0.2)

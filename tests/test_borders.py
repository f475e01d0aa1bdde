"""No wrong call of the compiled core ends in a crash, and no two threads meet in one object.

tools/fuzz_api.py is the long run.
"""

# SPDX-License-Identifier: GPL-2.0-only

import sys
import threading
import time

import numpy as np
import pytest

import pcpmodel as pm
from helpers.paths import ROOT
from pcpmodel.errors import InputError
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.zone import Zone

sys.path.insert(0, str(ROOT / "tools"))

import fuzz_api

TYPES = sorted(fuzz_api.MADE)


def test_every_extension_type_is_known_to_the_tests() -> None:
    assert set(fuzz_api.compiled_types()) == set(TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_an_object_that_was_never_made_does_not_crash(name: str) -> None:
    cls = fuzz_api.compiled_types()[name]
    assert list(fuzz_api.run({name: lambda: fuzz_api.never_made(cls)}, seconds=300.0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_no_member_crashes_whatever_it_is_given(name: str) -> None:
    make = fuzz_api.MADE[name]
    fuzz_api.recorded()
    assert list(fuzz_api.run({name: lambda: fuzz_api.every_member(make())}, seconds=300.0)) == []


def test_the_engines_refuse_what_is_no_state() -> None:
    from pcpmodel.simulation.engine import Engine
    from pcpmodel.simulation.per_page import PerPage

    for engine in (Engine, PerPage):
        with pytest.raises(TypeError):
            engine()
        with pytest.raises(TypeError):
            engine(None)
        state = fuzz_api.MADE["pcpmodel.simulation.state.State"]()
        engine(state)
        with pytest.raises(InputError, match="by another engine"):
            engine(state)


@pytest.mark.parametrize(
    "call",
    [
        ("place", 0, -1),
        ("place", 0, 2**31 - 1),
        ("scan_begin", -(2**31)),
        ("scan_end", 2),
        ("scan_flush", 2, True),
        ("batch_begin", 0, 2),
        ("run", -1, 1),
    ],
)
def test_numa_refuses_nodes_and_processes_that_are_not_there(call: tuple) -> None:
    machine = fuzz_api.MADE["pcpmodel.numa.faults.Machine"]()
    before = machine.state
    with pytest.raises(IndexError):
        getattr(machine, call[0])(*call[1:])
    assert machine.state == before


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (6, 100, r"operation 0 \(alloc\): zone=100 is outside 0..1"),
        (3, 13, r"reg=13 is outside -1..3"),
        (3, 0, "a loop takes no time"),
        (1, 99, "code=99 is outside 0..18"),
        (4, 13, "kind 13 is not of order 0"),
        (2, 2**31, "n=2147483648 is outside"),
        (0, "now", "is not an Op of whole numbers"),
    ],
)
def test_operations_changed_behind_the_program_s_back_are_refused(
    field: int, value: object, said: str
) -> None:
    workload = pm.workload.page_fault1(2)
    ops = workload.tasks[0].program.ops
    ops[0] = ops[0]._replace(**{ops[0]._fields[field]: value})
    with pytest.raises(InputError, match=said):
        pm.simulate(
            release="v6.18", machine="ice-lake", workload=workload, seconds=0.001, cpus=2,
            memory_gib=2,
        )  # fmt: skip


# -- threads ----------------------------------------------------------------------------------

SIZES = {"batch": 63, "high_min": 500, "high_max": 5000}


def memory() -> Memory:
    return Memory("v6.18", [Zone(1 << 20, **SIZES)], 2)


class Busy:
    """Another thread that has its object for itself for a while."""

    def __init__(self) -> None:
        self.mem = memory()
        self.rows = 3_000_000
        self.until = threading.Thread(target=self.run)

    def run(self) -> None:
        n = self.rows
        op = np.zeros(n, np.uint8)
        op[1::2] = 1
        zeros, ones = np.zeros(n, np.uint8), np.ones(n, np.uint8)
        ref = np.arange(n, dtype=np.int64) - 1
        self.began = True
        work = op, np.zeros(n, np.int32), zeros, ones, ref, np.empty(n, np.int64)
        while True:
            try:
                self.mem.run(*work)
                break
            except RuntimeError as error:  # who tries to be refused is at it at this very moment
                if "in use" not in str(error):
                    raise

    def __enter__(self) -> Memory:
        self.began = False
        self.until.start()
        while not self.began:
            time.sleep(0.001)
        return self.mem

    def __exit__(self, *_: object) -> None:
        self.until.join()


def refused(act) -> bool:
    """Try until it is refused, while the other thread is at it."""
    for _ in range(2000):
        try:
            act()
        except RuntimeError as error:
            return "in use" in str(error)
        time.sleep(0)
    return False


@pytest.mark.parametrize(
    "act",
    [
        lambda m: m.alloc(1),
        lambda m: m.drain_all_pages(),
        lambda m: m.load(0, {"free": {}}),
        lambda m: m.state(),
        lambda m: m.take_events(),
        lambda m: m.set_flags(0, 0),
        lambda m: m.nbytes(),
    ],
)
def test_a_memory_that_another_thread_is_at_says_so(act) -> None:
    with Busy() as busy:
        assert refused(lambda: act(busy))
    busy.load(0, {"free": {(10, 1): [0]}})  # and is whole afterwards
    assert busy.alloc() == 0
    assert busy.state()[0]["nr_free"] == 1024 - 63


def test_threads_that_use_a_memory_each_run_side_by_side() -> None:
    """While one thread is inside the core for a second or so, this one gets on with its own."""
    busy, served = Busy(), 0
    mine = memory()
    with busy:
        out = np.empty(100, np.int64)
        while busy.until.is_alive():
            assert mine.alloc_many(out) == 100
            mine.free_many(out)
            served += 1
    assert served > 50


@pytest.mark.slow
@pytest.mark.parametrize("case", range(18))
def test_wrong_calls_end_in_an_error(case: int) -> None:
    assert list(fuzz_api.run({case: lambda: fuzz_api.run_case(case)})) == []

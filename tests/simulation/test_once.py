"""What many runs ask for is made once, whoever asks first."""

# SPDX-License-Identifier: GPL-2.0-only

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

import pcpmodel as pm
from helpers.simulation import MACHINE
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import releases
from pcpmodel.simulation import pilot as pilots
from pcpmodel.simulation import run as runs
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.once import Once, what_decides
from pcpmodel.simulation.pilot import pilot, prepare
from pcpmodel.simulation.run import settle
from pcpmodel.simulation.spec import make_spec
from pcpmodel.workload.tasks import Task, Workload


def spec(**options):
    given = {"cpus": 4, "nodes": 1, "memory_gib": 4.0, "seconds": 0.02, **options}
    given.setdefault("workload", pm.workload.page_fault1(4, pages=3000))
    given.setdefault("release", "v6.7")
    return make_spec(machine=MACHINE, **given)


@pytest.fixture
def made(monkeypatch):
    """How often each was made, with nothing known before."""
    counts = {"setups": 0, "warm-ups": 0}

    def counting(module, name, what, *known):
        real = getattr(module, name)

        def count(*args):
            counts[what] += 1
            return real(*args)

        monkeypatch.setattr(module, name, count)
        for answers in known:
            monkeypatch.setattr(module, answers, Once())

    counting(pilots, "setup", "setups", "_PILOTS", "_PILOT_OF")
    counting(runs, "_settled", "warm-ups", "_WARM_UPS")
    return counts


def test_whoever_asks_while_another_makes_it_waits_for_it():
    known, begun, go_on, calls = Once(), Event(), Event(), []

    def make():
        calls.append(None)
        begun.set()
        assert go_on.wait(60)
        return object()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(known, spec(), make)
        assert begun.wait(60)
        second = threads.submit(known, spec(), make)
        go_on.set()
        assert first.result(60) is second.result(60)
    assert len(calls) == 1


def test_what_failed_is_made_by_the_next_that_asks():
    known, one = Once(), spec()

    def fail():
        raise InputError("no")

    with pytest.raises(InputError):
        known(one, fail)
    assert known(one, lambda: 1) == known(one, fail) == 1


def test_another_run_has_an_answer_of_its_own():
    known = Once()
    others = [
        spec(), spec(seed=2), spec(memory_gib=8.0), spec(batch_scale_max=0),
        spec(workload=pm.workload.page_fault1(4, pages=3001)),
    ]  # fmt: skip
    for number, one in enumerate(others):
        assert known(one, lambda number=number: number) == number
    assert [known(one, lambda: -1) for one in others] == [0, 1, 2, 3, 4]


def test_kernels_of_the_same_rules_may_have_another_page_table_root():
    """A build frees that at each exit; up to v6.15 it is of order 1."""
    old, new = pm.release("v6.12"), pm.release("v6.16")
    same = dataclasses.replace(new, patches=old.patches)
    assert same.as_dict() == old.as_dict()
    work = pm.workload.kbuild(4, nodes=1)
    runs = [spec(release=release, workload=work) for release in (old, same)]
    assert what_decides(runs[0])[0] != what_decides(runs[1])[0]


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": 3}, {"node": 1}, {"membind": (1,)}, {"preferred": 1}, {"memcg": 2}, {"near": 0},
        {"pages": 4097}, {"start_s": 0.5}, {"mixed": 0.3}, {"from_memory": 0.5}, {"steady": False},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_works_of_one_name_differ_in_where_and_how_long_they_run(change):
    """Else one would have the other's warm-up, pilot, or place in an interrupted sweep."""
    program = pm.workload.Program()
    with program.forever():
        program.alloc(512, ns=200.0)
        program.free(512, ns=50.0)
    task = Task(program)
    one = Workload("own", (task, task), "rounds", 4096)
    other = (
        dataclasses.replace(one, **change)
        if hasattr(one, next(iter(change)))
        else (dataclasses.replace(one, tasks=(task, dataclasses.replace(task, **change))))
    )
    runs = [spec(workload=work, nodes=2) for work in (one, one, other)]
    assert what_decides(runs[0]) == what_decides(runs[1])
    assert what_decides(runs[0]) != what_decides(runs[2])


def test_seeds_share_the_length_of_the_warm_up(made):
    """Runs of one question are counted from the same moment."""
    lengths = {settle(replace(spec(), seed=seed)) for seed in (7, 1, 2)}
    assert lengths == {settle(spec(seconds=0.5))}
    assert made["warm-ups"] == 1
    settle(spec(seconds=3.0))  # counted for longer than is looked at otherwise
    settle(spec(memory_gib=8.0))
    assert made["warm-ups"] == 3


def test_a_pilot_goes_on_until_enough_was_counted_and_begins_once(made):
    """A build moves few blocks: what a sixteenth of a second shows of it is not enough."""
    rare = spec(workload=pm.workload.kbuild(4, nodes=1))
    found = pilot(rare)
    assert made["setups"] == 1
    counted = found.refill_blocks + found.drain_blocks
    assert counted >= max(pilots.BLOCKS_COUNTED, 2 * rare.workload.pages)
    assert pilot(replace(rare, seed=3)) is found
    assert made["setups"] == 1


def test_the_threads_of_a_sweep_make_nothing_twice(made):
    grid = pm.sweep(spec(), high_pages=[400, 800], seed=[1, 2, 3, 4], workers=4, progress=False)
    assert grid["warmup_s"].size == 8
    assert made["warm-ups"] == 2
    # Two pilots, two runs that look for the end of the warm-up, and the eight themselves.
    assert made["setups"] == 2 + 2 + 8
    assert (grid["warmup_s"] == grid["warmup_s"].isel(seed=0)).all()


@pytest.mark.parametrize("name", [r.name for r in releases()])
def test_the_scale_of_a_batch_decides_where_a_rule_looks_at_it(name):
    work = pm.workload.page_fault1(4, pages=3000)
    runs = [spec(release=name, workload=work, batch_scale_max=scale) for scale in (0, 6)]
    told = []
    for run in runs:
        state = prepare(replace(run, warmup_s=0.0))
        Engine(state).run()
        told.append(state.counters())
    if what_decides(runs[0]) == what_decides(runs[1]):
        assert told[0] == told[1]
    else:
        assert pm.release(name).uses_batch_scale_max
        assert told[0] != told[1]

"""Where tasks run, where their memory comes from, and what it is charged to."""

# SPDX-License-Identifier: GPL-2.0-only

from dataclasses import replace

import numpy as np
import pytest

import pcpmodel as pm
from helpers.simulation import MACHINE, assert_same, faults, outcome, prepare, spec
from pcpmodel.errors import InputError
from pcpmodel.kernel import sizing
from pcpmodel.kernel.releases import release
from pcpmodel.simulation.changes import change
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.host import Host
from pcpmodel.simulation.pilot import pilot_spec
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.setup import setup
from pcpmodel.simulation.spec import make_spec, timeline, varied
from pcpmodel.study.sweep.grid import make_grid
from pcpmodel.workload import (
    ALL,
    Channel,
    Program,
    Task,
    Workload,
    adapted,
    containers,
    kbuild,
    page_fault1,
    recorded,
)


def taken(result, gib=8.0):
    """Pages that are no longer on the buddy lists of each zone."""
    return [int(gib * 2**18) - free for free in result["zone_free"]]


def holder(pages=5000, **where):
    """One task that takes pages and keeps them."""
    p = Program()
    p.alloc(pages, ns=100)
    p.idle(1e9)
    return Workload("holder", (Task(p, **where),), "nothing", pages)


# Memory


@pytest.mark.parametrize("identity", [False, True])
def test_bound_memory_comes_from_these_nodes(identity):
    for node in (0, 1):
        for bound in ((0,), (1,), (1, 0), ()):
            run = spec(holder(node=node, membind=bound), identity=identity)
            pages = taken(assert_same(run))
            zone = bound[0] if len(bound) == 1 else node  # the nearest of those allowed
            assert pages[zone] >= 5000
            assert pages[1 - zone] == 0


def test_preferred_memory_is_followed_by_the_others_and_bound_memory_by_nothing():
    """What is above the min watermark goes first; then the next node, or the end."""
    small = {"memory_gib": 0.25, "cpus": 2, "seconds": 0.02, "release": "v6.12"}
    for identity in (False, True):
        preferred = assert_same(
            spec(holder(45_000, node=0, preferred=1), identity=identity, **small)
        )
        away, at_home = taken(preferred, 0.125)[::-1]
        assert away > 30_000
        assert 10_000 < at_home < 16_000
    with pytest.raises(InputError, match="ran out of memory"):
        execute(spec(holder(45_000, node=0, membind=(1,)), **small))


def test_who_is_bound_and_frees_what_it_does_not_hold_frees_nothing():
    """It has pages of both nodes that it may use; there is no third one to look for any on."""
    p = Program()
    p.alloc(30_000, ns=100)
    p.free(ALL, ns=50)
    p.free(ALL, ns=50)
    p.score()
    p.idle(1e9)
    keeps = holder(node=2).tasks[0]
    work = Workload("both", (keeps, Task(p, 0, membind=(0, 1))), "units", 35_000)
    run = spec(work, cpus=6, nodes=3, memory_gib=0.3, high_pages=200, seconds=0.02)
    result = assert_same(run)
    assert result["counters"][1]["score"] == 1
    assert result["held"] == [0, 0, 5000]


def test_a_list_of_another_nodes_zone_expires():
    """refresh_cpu_vm_stats(): by the node of the CPU, not by what its memory is bound to."""
    p = Program()
    p.alloc(300, ns=100)
    p.free(ns=50)
    with p.forever():  # busy, so that its vmstat worker goes on
        p.work(100_000)
    kept = {}
    for bound in ((0,), (1,)):
        work = Workload("once", (Task(p, 0, membind=bound),), "nothing", 300)
        result = assert_same(spec(work, release="v6.6", stat_interval_s=0.001, seconds=0.06))
        kept[bound] = [zone["count"] for zone in result["pcps"][0]]
    assert kept[(0,)][0] >= 300
    assert kept[(0,)][1] == kept[(1,)][0] == 0
    assert kept[(1,)][1] == 0  # a batch at every third tick


def test_messages_carry_pages_of_where_the_sender_has_them():
    p, q = Program(), Program()
    with p.forever():
        p.alloc(10, ns=100)
        p.send(0, movable_0=10)
    with q.forever():
        q.recv(0, movable_0=10)
        q.free(10, ns=50, of="peer")
        q.score()
    pair = Workload(
        "pair", (Task(p, 0, (0,)), Task(q, 1, (0,), 0)), "messages", 200, (Channel(0, 1),)
    )
    far = adapted(pair, membind=1)
    result = assert_same(spec(far))
    assert result["counters"][1]["score"] > 100
    assert [zone["count"] > 0 for zone in result["pcps"][1]] == [False, True]


# Nodes without CPUs


def test_a_node_without_cpus_has_lists_for_all_cpus():
    host = Host(8, 2, 16.0, cpuless_nodes=1, cpuless_gib=64.0)
    kernel = release("v6.12")
    sizes = host.sizes(kernel)
    assert [s.node for s in sizes] == [0, 1, 2]
    assert [s.managed for s in sizes] == [2 << 20, 2 << 20, 16 << 20]
    low = sizes[2].watermarks[1]
    expected = sizing.zone_set_pageset_high_and_batch(
        16 << 20, low, kernel.rules, node_cpus=0, online_cpus=8
    )
    assert (sizes[2].batch, sizes[2].high_min) == (expected.batch, expected.high_min)
    assert sizes[2].high_min == low // 8  # as of a node with all of them
    whole = sizing.min_free_kbytes_at_boot(80 << 20)
    assert sum(s.watermarks[0] for s in sizes) == pytest.approx(whole / 4, abs=3)


def test_a_node_without_cpus_comes_before_others_as_far_away():
    host = Host(4, 2, 8.0, cpuless_nodes=2, cpuless_gib=4.0)
    assert host.zonelist(0) == [0, 2, 3, 1]
    assert host.zonelist(2) == [1, 2, 3, 0]
    assert host.zonelist(0, 2) == [2, 3, 0, 1]
    split = Host(4, 2, 8.0, zones_per_node=2, cpuless_nodes=1, cpuless_gib=4.0)
    assert split.zonelist(1) == [1, 0, 5, 4, 3, 2]


@pytest.mark.parametrize("identity", [False, True])
def test_memory_of_a_node_without_cpus_is_used(identity):
    run = {"cpuless_nodes": 1, "cpuless_gib": 1.0, "identity": identity}
    bound = assert_same(spec(holder(node=0, membind=(2,)), **run))
    assert [pages > 0 for pages in taken(bound)[:2]] == [False, False]
    assert (1 << 18) - bound["zone_free"][2] >= 5000
    work = adapted(faults(4), membind=2)
    result = assert_same(spec(work, release="v7.2", **run))
    assert all(zone[2]["count"] > 0 for zone in result["pcps"])


def test_a_node_without_cpus_has_a_kswapd_that_runs_on_another():
    run = spec(
        adapted(page_fault1(2, pages=60_000, fault_ns=100.0), membind=1),
        release="v6.12", memory_gib=1.0, nodes=1, cpus=8, cpuless_nodes=1, cpuless_gib=0.5,
        page_cache=0.5, reclaim_page_ns=100.0, seconds=0.03,
    )  # fmt: skip
    assert [zones[0] for zones in run.zonelists] == [1, 1, 0, 1]
    result = assert_same(run)
    freed = [c["free_pages"] for c in result["counters"]]
    assert freed[3] > 10_000 > freed[2] == 0  # of the node that is short


# CPUs


UNEVEN = {"cpus_per_node": [6, 2], "threads_per_core": 2}


def test_nodes_may_have_different_numbers_of_cpus():
    work = faults(7)
    run = spec(work, **{"cpus": 8, "nodes": 2} | UNEVEN)
    host, kernel = run.host, run.release
    assert [host.node_of(cpu) for cpu in range(8)] == [0] * 6 + [1] * 2
    assert [host.core(cpu) for cpu in range(8)] == [0, 1, 2, 0, 1, 2, 0, 0]
    assert run.cpus == [0, 6, 1, 2, 3, 7, 4]  # where the smallest share of the CPUs is taken
    assert setup(run).tasks["node"].tolist() == [0, 1, 0, 0, 0, 1, 0]
    for size, cpus in zip(run.sizes, (6, 2), strict=True):
        expected = sizing.zone_set_pageset_high_and_batch(
            size.managed, size.watermarks[1], kernel.rules, node_cpus=cpus, online_cpus=8
        )
        assert size.high_min == (expected.high_min or expected.high)
    gone = spec(work, **{"cpus": 8, "nodes": 2} | UNEVEN, changes=[change(0.001, offline=7)])
    after = next(timeline(gone))[1]
    assert after[0].high_min == run.sizes[0].high_min
    assert after[1].high_min == pytest.approx(2 * run.sizes[1].high_min, abs=2)
    assert pilot_spec(run).host.nodes == 1


@pytest.mark.parametrize("identity", [False, True])
def test_engines_agree_on_uneven_nodes(identity):
    run = spec(faults(8), **{"cpus": 8, "nodes": 2} | UNEVEN, identity=identity)
    used = [[zone["count"] > 0 for zone in zones] for zones in assert_same(run)["pcps"]]
    assert used == [[cpu < 6, cpu >= 6] for cpu in run.cpus]


def test_how_many_cpus_each_node_has_says_how_many_there_are():
    args = {"release": "v6.7", "machine": "ice-lake", "workload": faults(2)}
    assert make_spec(cpus_per_node=[3, 1], **args).host == Host(4, 2, 512.0, cpus_per_node=(3, 1))
    (made,) = make_grid(cpus_per_node=[3, 1], **args).specs
    (again,) = make_grid(made, seed=2).specs
    assert made.host == again.host == make_spec(cpus_per_node=[3, 1], **args).host


def on(**platform):
    return replace(pm.machine("ice-lake"), platform=platform)


def made_on(machine, **options):
    return make_spec(release="v6.7", machine=machine, workload=faults(2), **options).host


def test_a_run_has_the_nodes_of_the_platform():
    """Two of them with CPUs, though not as many, and one of memory alone."""
    machine = on(cpus=8, nodes=3, cpus_per_node="6,2,0", threads_per_core=2, memory_gib=96.0,
                 cpuless_gib=64.0)  # fmt: skip
    whole = Host(8, 2, 32.0, cpus_per_node=(6, 2), threads_per_core=2, cpuless_nodes=1,
                 cpuless_gib=64.0)  # fmt: skip
    assert made_on(machine) == whole
    assert [size.managed >> 18 for size in whole.sizes(release("v6.7"))] == [16, 16, 64]
    # What is given takes the place of what is stated; the rest stays.
    assert made_on(machine, memory_gib=8.0) == replace(
        whole, memory_gib=8.0, cpuless_nodes=0, cpuless_gib=0.0
    )
    assert made_on(machine, cpus=4) == replace(whole, cpus=4, cpus_per_node=())
    assert made_on(machine, cpus_per_node=[2, 2, 2]) == replace(
        whole, cpus=6, nodes=3, cpus_per_node=(2, 2, 2)
    )
    run = make_spec(release="v6.7", machine=machine, workload=faults(2))
    assert varied(run, cpus=4).host == made_on(machine, cpus=4)


def test_what_a_platform_does_not_say_of_its_nodes_is_assumed():
    told = made_on(on(cpus=8, nodes=4, cpus_per_node="4,4,0,0", memory_gib=64.0))
    assert told == Host(8, 2, 32.0, threads_per_core=2, cpuless_nodes=2, cpuless_gib=32.0)
    assert made_on(on(cpus_per_node="4,4,0", cpuless_gib=0.0)).cpuless_nodes == 0


UNEQUAL = {"nodes": 3, "cpus": 6, "memory_gib": 1.5, "gib_per_node": [0.5, 0, 1.0]}


def test_nodes_may_have_different_memory_and_none():
    host = Host(6, 3, 1.5, gib_per_node=(0.5, 0, 1.0))
    assert [(size.node, size.managed) for size in host.sizes(release("v6.12"))] == [
        (0, 1 << 17),
        (2, 1 << 18),
    ]
    # find_next_best_node(): a node without memory has no zone; those above come first.
    assert [host.zonelist(cpu) for cpu in (0, 2, 4)] == [[0, 1], [1, 0], [1, 0]]
    alone = Host(4, 2, 0.0, cpuless_nodes=1, cpuless_gib=4.0, gib_per_node=(0, 0, 4.0))
    assert [alone.zonelist(cpu) for cpu in (0, 3)] == [[0], [0]]
    run = spec(faults(6), **UNEQUAL, batch=[63, 31], high_min_pages=(252, 400))
    assert [(s.batch, s.high_min) for s in run.sizes] == [(63, 252), (31, 400)]
    busiest = pilot_spec(run)  # where CPUs of two nodes take from
    assert (busiest.batch, busiest.high_min_pages, busiest.host.nodes) == (31, 400, 1)


@pytest.mark.parametrize("identity", [False, True])
def test_engines_agree_on_a_node_without_memory(identity):
    run = spec(faults(6), **UNEQUAL, identity=identity)
    result = assert_same(run)
    used = [[zone["count"] > 0 for zone in zones] for zones in result["pcps"]]
    assert used == [[run.host.node_of(cpu) == 0, run.host.node_of(cpu) > 0] for cpu in run.cpus]


def test_each_node_with_memory_has_a_kswapd():
    work = adapted(page_fault1(2, pages=60_000, fault_ns=100.0), membind=2)
    run = spec(
        work, release="v6.12", page_cache=0.5, reclaim_page_ns=100.0, seconds=0.03,
        **UNEQUAL | {"memory_gib": 1.0, "gib_per_node": [0.5, 0, 0.5]},
    )  # fmt: skip
    assert [zones[0] for zones in run.zonelists] == [1, 1, 0, 1]
    freed = [c["free_pages"] for c in assert_same(run)["counters"]]
    assert freed[3] > 10_000 > freed[2] == 0


def test_a_run_has_the_memory_of_the_platforms_nodes():
    machine = on(cpus_per_node="4,0,2", gib_per_node="16,512,256", threads_per_core=1)
    whole = Host(6, 2, 272.0, cpus_per_node=(4, 2), cpuless_nodes=1, cpuless_gib=512.0,
                 gib_per_node=(16.0, 256.0, 512.0))  # fmt: skip
    assert made_on(machine) == whole
    assert made_on(machine, nodes=1, cpus_per_node=[6]).gib_per_node == ()
    # A pilot is on one node: half a terabyte that it does not touch would be mixed page by page.
    made = make_spec(release="v6.7", machine=machine, workload=page_fault1(6))
    assert pilot_spec(made).host.cpuless_gib == 0
    assert made_on(machine, memory_gib=8.0).node_pages == (1 << 20, 1 << 20)
    given = {"gib_per_node": [1, 3], "cpus_per_node": [2, 4]}
    assert made_on(machine, **given) == Host(
        6, 2, 4.0, cpus_per_node=(2, 4), gib_per_node=(1.0, 3.0)
    )
    run = make_spec(release="v6.7", machine=machine, workload=faults(2), **given)
    assert varied(run, seed=2).host == run.host
    assert make_grid(run, seed=[1, 2]).specs[1].host == run.host


def test_a_run_says_what_machine_it_is_on():
    host = Host(6, 2, 272.0, cpus_per_node=(4, 2), cpuless_nodes=1, cpuless_gib=512.0,
                gib_per_node=(16.0, 256.0, 512.0))  # fmt: skip
    told = "6 CPUs on 2 nodes (4, 2), 272 GiB (16, 256), 512 GiB on 1 node without CPUs, pages of "
    assert str(host) == told + "4 KiB"
    assert str(Host(1, memory_gib=0.5)) == "1 CPU on 1 node, 0.5 GiB, pages of 4 KiB"


def test_what_nobody_says_of_the_nodes_is_assumed_in_words():
    machines_own = [*pm.machine("ice-lake").assumed, "jitter"]

    def told(machine, **given):
        made = make_spec(release="v6.7", machine=machine, workload=faults(2), **given)
        return made.assumed[len(machines_own) :]

    assert told("ice-lake") == [
        "224 CPUs", "2 nodes", "as many CPUs on each node", "512 GiB", "as much memory on each node"
    ]  # fmt: skip
    assert told("ice-lake", cpus=4, nodes=2, memory_gib=4) == []
    stated = {"cpus": 8, "nodes": 2, "memory_gib": 16}
    assert told(on(**stated)) == ["as many CPUs on each node", "as much memory on each node"]
    assert told(on(**stated, cpus_per_node="4,4", gib_per_node="8,8")) == []


@pytest.mark.parametrize("threads", [4, 8])
def test_more_than_two_threads_of_a_core_are_taken_as_pairs_and_it_is_said(threads):
    machine = on(cpus=160, nodes=2, memory_gib=256.0, threads_per_core=threads)
    run = make_spec(release="v6.7", machine=machine, workload=faults(2))
    assert run.host.threads_per_core == 2
    (said,) = [note for note in run.notes if "core" in note]
    assert said.startswith("two CPUs share a core: ")
    assert f"has {threads} to a core, which the model does not know" in said


@pytest.mark.parametrize("given", [{}, {"cpus": 7, "nodes": 1}])
def test_that_the_threads_of_a_core_are_not_those_of_the_platform_is_said(given):
    machine = on(cpus_per_node="3,1", threads_per_core=2)
    run = make_spec(release="v6.7", machine=machine, workload=faults(2), **given)
    assert run.host.threads_per_core == 1
    cpus = "7" if given else "3, 1"
    assert f"2 to a core, which nodes of {cpus} CPUs are not made of" in " ".join(run.notes)
    for chosen in ({"threads_per_core": 1}, {"cpus": 4, "nodes": 1, "cpus_per_node": ()}):
        assert "to a core" not in " ".join(varied(run, **chosen).notes)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({"cpus": 8, "nodes": 1}, [6]),
        ({"cpus": 8, "nodes": 2}, [3, 3]),
        ({"cpus": 8, "nodes": 4}, [2, 2, 1, 1]),
        ({"cpus": 8, "nodes": 2, "cpus_per_node": [6, 2]}, [4, 2]),
    ],
)
def test_a_build_is_on_all_nodes_of_the_machine(nodes, expected):
    """Also where it was made for another one; nodes of one size have both courses."""
    asked = {"memory_gib": 16, "release": "v6.12", "machine": "ice-lake"}
    other = make_spec(workload=kbuild(6), cpus=16, nodes=4, **asked)
    for run in (
        make_spec(workload=kbuild(6), **nodes, **asked),
        varied(other, **nodes),
    ):
        on = [run.host.node_of(cpu) for cpu in run.cpus]
        assert [on.count(node) for node in range(run.host.nodes)] == expected
        courses = {(node, id(task.program)) for node, task in zip(on, run.tasks, strict=True)}
        if "cpus_per_node" not in nodes:
            assert len(courses) == sum(min(number, 2) for number in expected)
    bound = make_spec(workload=kbuild(4, nodes=1), cpus=16, nodes=4, **asked)
    assert {bound.host.node_of(cpu) for cpu in bound.cpus} == {0}


@pytest.mark.parametrize(
    "work",
    [
        lambda **given: recorded("native-unix", 8, **given),
        lambda **given: recorded("6.18-exitstorm", 8, **given),
        lambda **given: containers(8, **given),
    ],
)
def test_recorded_processes_are_on_all_nodes_of_the_machine(work):
    asked = {"memory_gib": 32, "release": "v6.12", "machine": "ice-lake", "seconds": 0.001}
    for nodes in (1, 2, 4):
        run = make_spec(workload=work(), cpus=16, nodes=nodes, warmup_s=0.0, **asked)
        on = [run.host.node_of(cpu) for cpu in run.cpus]
        assert [on.count(node) for node in range(nodes)] == [8 // nodes] * nodes
        assert execute(run).cpu_ps > 0
    bound = make_spec(workload=work(nodes=2), cpus=16, nodes=4, **asked)
    assert {bound.host.node_of(cpu) for cpu in bound.cpus} == {0, 1}


def test_tasks_run_where_they_are_pinned():
    work = faults(3)
    run = {"cpus": 8, "nodes": 2}
    assert spec(work, **run).cpus == [0, 4, 1]
    assert spec(adapted(work, cpunodebind=1), **run).cpus == [4, 5, 6]
    assert spec(adapted(work, cpunodebind="0-1"), **run).cpus == [0, 4, 1]
    assert spec(adapted(work, physcpubind=[6, 0, 3]), **run).cpus == [6, 0, 3]
    for last in (8191, "8191", [8191]):
        assert spec(faults(1, physcpubind=last), cpus=8192, memory_gib=64).cpus == [8191]
    mixed = (*work.tasks, Task(work.tasks[0].program, cpu=0), Task(work.tasks[0].program, 0))
    assert spec(Workload("mixed", mixed, "pages", 10_000), **run).cpus == [4, 5, 1, 0, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: adapted(faults(3), cpunodebind=0, physcpubind=0), "one of cpunodebind and"),
        (lambda: adapted(faults(3), membind=0, preferred=0), "one of membind and preferred"),
        (lambda: adapted(faults(3), physcpubind="0-1"), "2 CPUs for 3 tasks"),
        (lambda: adapted(faults(3), membind="0-"), "membind='0-' is not a number"),
        (lambda: adapted(faults(3), membind=[1, 1]), "a list of different ones"),
        (lambda: adapted(faults(3), membind=True), "membind=True"),
        (lambda: adapted(faults(3), preferred="1"), r"preferred='1'; allowed: int \| None"),
        (lambda: adapted(faults(3), memcgs=4), r"memcgs=4 is outside 1\.\.3"),
        (lambda: spec(adapted(faults(3), membind=2)), "node 2; nodes with memory are 0, 1"),
        (lambda: spec(adapted(faults(3), cpunodebind=2)), r"on node 2; allowed: 0\.\.1 of nodes=2"),
        (lambda: spec(adapted(faults(1), physcpubind=8)), r"on CPU 8; allowed: 0\.\.7"),
        (lambda: spec(Workload("two", (Task(faults().tasks[0].program, cpu=1),) * 2, "x", 9)),
         "several tasks are to run on CPU 1"),
        (lambda: spec(adapted(faults(5), cpunodebind=1)),
         "5 tasks are bound to node 1; it has 4 CPUs"),
        (lambda: spec(adapted(faults(1), cpunodebind=2), cpuless_nodes=1, cpuless_gib=1),
         "the others have no CPUs"),
        (lambda: Host(4, 3), "spread evenly over nodes=3; cpus_per_node says"),
        (lambda: Host(4, 2, cpus_per_node=(3, 2)), r"\[3, 2\] are 5 CPUs on 2 nodes; there are"),
        (lambda: Host(4, 2, cpus_per_node=(4, 0)), "is not a list of whole numbers from 1"),
        (lambda: Host(4, 2, cpus_per_node="3,1"), "is not a list of whole numbers from 1"),
        (lambda: Host(4, 2, cpus_per_node=(3, 1), threads_per_core=2), "3 CPUs of a node are not"),
        (lambda: make_spec(release="v6.7", machine="ice-lake", workload=faults(2), cpus_per_node=4),
         "cpus_per_node=4 is not a list"),
        (lambda: Host(4, 2, 4.0, gib_per_node=(4,)), r"\[4\] is not the memory of nodes=2"),
        (
            lambda: make_spec(
                release="v6.7", machine="ice-lake", workload=faults(1), nodes=1, gib_per_node=[1, 2]
            ),
            r"gib_per_node=\[1, 2\] is not the memory of nodes=1",
        ),
        (lambda: Host(4, 2, 4.0, gib_per_node=(1, 2)), r"has 3 GiB where memory_gib=4"),
        (lambda: Host(4, 2, 4.0, gib_per_node=(4, -1)), "0, or 0.0625 and more"),
        (lambda: Host(4, 2, 4.0, gib_per_node="4,0"), "is not a list of numbers"),
        (lambda: spec(adapted(faults(1), membind=1), **UNEQUAL), "nodes with memory are 0, 2"),
        (lambda: spec(faults(2), **UNEQUAL, batch=(63, 63, 63)), "3 numbers; allowed: one, or"),
        (lambda: spec(faults(2), batch=(63, 0), nodes=2, cpus=2), r"batch=\(63, 0\) is outside"),
        (lambda: Host(4, 2, cpuless_nodes=1), "is not the memory of cpuless_nodes=1"),
        (lambda: Host(4, 2, cpuless_gib=1), "is not the memory of cpuless_nodes=0"),
        (lambda: Host(4, 2, cpuless_nodes=17, cpuless_gib=99), r"whole number in 0\.\.16"),
        (lambda: Host(8193), r"whole number in 1\.\.8192"),
        (lambda: Host(66, 33), r"nodes=33 is not a whole number in 1\.\.32"),
        (lambda: spec(replace(faults(1), tasks=faults(1).tasks * 1025), cpus=1536, nodes=32),
         "1025 tasks, kswapds among them; allowed: at most 1024"),
    ],
)  # fmt: skip
def test_what_is_impossible_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_machine_may_have_more_cpus_and_nodes_than_a_run_has_tasks():
    """32 sockets; a node for each last-level cache of two EPYC 9654: 24."""
    host = Host(1536, 32, 24576.0)
    sizes = {(z.high_max, z.managed) for z in host.sizes(release("v6.7"))}
    assert sizes == {((768 << 18) // 8 // 48, 768 << 18)}
    made = spec(faults(48), cpus=384, nodes=24, memory_gib=1536.0)
    assert sorted(map(made.host.node_of, made.cpus)) == sorted([*range(24)] * 2)
    assert_same(spec(faults(48), cpus=1536, nodes=32, memory_gib=2048.0))


# Memcgs


def test_each_memcg_has_an_lru_lock_on_every_node():
    plain = faults(8, lru=True)
    lru = MACHINE.with_costs(lru_hold=4000.0, lru_page=0.0)
    runs = {}
    for memcgs in (1, 2, 8):
        run = spec(adapted(plain, memcgs=memcgs), machine=lru)
        state = prepare(run)
        assert Engine(state).run()
        runs[memcgs] = outcome(state)
        assert state.nlocks == 2 + 2 * memcgs
        assert_same(run)
    waits = {m: sum(c["lru_wait_ps"] for c in r["counters"]) for m, r in runs.items()}
    assert waits[1] > 2 * waits[2] > 0 == waits[8]
    one = prepare(spec(plain, machine=lru))
    assert Engine(one).run()
    assert outcome(one) == runs[1]  # the root memcg alone is no memcg
    used = [digest != 0 for digest in runs[2]["order"]]
    assert used == [True, True] + [True] * 4  # tasks of both on both nodes


def test_a_page_belongs_to_the_lru_of_the_memcg_that_it_was_charged_to():
    """Also where a task of another one frees it."""
    p, q = Program(), Program()
    with p.forever():
        p.alloc(30, ns=100)
        p.send(0, movable_0=30)
    with q.forever():
        q.recv(0, movable_0=30)
        q.free(30, ns=50, of="peer", lru=True)
        q.alloc(15, ns=50, lru=True)
        q.free(15, ns=50, lru=True)
        q.score()
    tasks = (Task(p, 0, (0,), memcg=1), Task(q, 0, (0,), 0, memcg=3))
    pair = Workload("pair", tasks, "messages", 500, (Channel(0, 1),))
    result = assert_same(spec(pair, nodes=1, pagevec=15))
    assert len(result["order"]) == 1 + 4
    assert [digest != 0 for digest in result["order"][1:]] == [False, True, False, True]
    locks = {k: n["lru_holds"] for k, n in enumerate(result["counters"])}
    assert locks[0] == 0
    assert locks[1] == pytest.approx(3 * result["counters"][1]["score"], abs=3)


def test_a_memcg_out_of_range_is_refused():
    with pytest.raises(InputError, match=r"memcg=1024 is outside 0\.\.1023"):
        Workload("x", (Task(faults().tasks[0].program, memcg=1024),), "x", 1)


# From the command line on


def test_a_run_says_where_it_ran():
    work = page_fault1(4, pages=900, cpunodebind=0, membind="1", memcgs=2, frees="reversed")
    run = pm.simulate("v7.2", MACHINE, work, cpus=8, nodes=2, memory_gib=16, seconds=0.01)
    told = run.spec.as_dict()["workload"]
    assert (told["cpunodebind"], told["membind"], told["memcgs"]) == ([0], [1], 2)
    assert run.zone_free_pages[0] == 8 << 18 > run.zone_free_pages[1]
    assert ALL == -1


def test_the_pace_of_a_crowd_that_is_over_does_not_stay():
    """It was what waiting siblings had left of the core when the lists were filled."""
    given = {"cpus": 32, "nodes": 1, "memory_gib": 64.0, "high_pages": 40000, "jitter": 0.0}
    rates = []
    for scale in (0, 5):
        run = pm.simulate(
            "v6.7",
            "sapphire-rapids",
            pm.workload.page_fault1(32),
            warmup_s=0.5,
            seconds=1.0,
            batch_scale_max=scale,
            **given,
        )
        assert run.refills + run.drains == 0  # so how much a drain moves makes no difference
        rates.append(run.score_per_s)
    assert rates[0] == pytest.approx(rates[1], rel=0.005)


@pytest.mark.parametrize("release", ["v5.17", "v6.6", "v6.12", "v7.3"])
@pytest.mark.parametrize("migratetype", ["unmovable", "reclaimable", "movable"])
def test_huge_pages_are_freed_to_the_list_that_they_are_taken_from(release, migratetype):
    """Where unmovable ones have a list of their own its refills were of movable page blocks."""
    work = Program()
    with work.forever():
        work.alloc(1, order=9, migratetype=migratetype, ns=100.0)
        work.free(order=9, migratetype=migratetype, ns=50.0)
        work.work(5000.0)
        work.score()
    rings = Workload("rings", (Task(work),) * 2, "rounds", 20_000)
    given = {"cpus": 2, "nodes": 1, "memory_gib": 4.0, "seconds": 0.01, "warmup_s": 0.0}
    told = []
    for identity in (False, True):
        run = pm.simulate(release, MACHINE, rings, identity=identity, warm=True, **given)
        told.append((run.refills, run.drains, run.alloc_zone_pages, run.score))
    assert told[0] == told[1]
    assert told[0][0] == 2


def test_a_machine_says_its_min_free_kbytes_or_what_khugepaged_makes_of_it():
    small = {"cpus": 2, "nodes": 1, "memory_gib": 16.0}
    work = pm.workload.page_fault1(2, pages=1000)
    boot = make_spec(release="v6.6", machine=MACHINE, workload=work, **small)
    raised = make_spec(
        release="v6.6", machine=MACHINE, workload=work, min_free_kbytes=67584, **small
    )
    (note,) = (note for note in boot.notes if "khugepaged" in note)
    assert "min_free_kbytes=16384" in note
    assert "67584" in note
    assert not any("khugepaged" in note for note in raised.notes)
    assert raised.sizes[0].watermarks[0] == 67584 // 4
    assert raised.sizes[0].high_min > 2.5 * boot.sizes[0].high_min
    large = make_spec(release="v6.6", machine=MACHINE, workload=work)
    assert not any("khugepaged" in note for note in large.notes)
    with pytest.raises(InputError, match=r"min_free_kbytes=8388609"):
        pm.simulate("v6.6", MACHINE, work, min_free_kbytes=(8 << 20) + 1, **small)


def test_numbers_of_nodes_may_be_numpys():
    work = pm.workload.page_fault1(2, pages=1000)
    given = {"seconds": 0.001, "warmup_s": 0.0, "warm": True}
    told = []
    for cpus, gib in (
        ([2, 4], [8.0, 16.0]),
        (np.array([2, 4]), np.array([8.0, 16.0])),
        ([np.int64(2), 4], (np.float64(8.0), 16)),
    ):
        run = pm.simulate("v6.6", MACHINE, work, cpus_per_node=cpus, gib_per_node=gib, **given)
        told.append((run.summary()["host"], run.score, run.pages_in_pcp.tolist()))
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("costs", [{"clear_rate": 5e6}, {"clear_rate": 0.0, "mmap_lock": 200.0}])
@pytest.mark.parametrize("threads_per_core", [1, 2])
def test_what_all_wait_for_is_as_fast_beside_a_thread_of_the_same_core(costs, threads_per_core):
    """Work is slowed by the core's other thread, memory and a lock's line are not."""
    run = pm.simulate(
        "v7.2", pm.machine("ice-lake").with_costs(**costs),
        page_fault1(32, threads="mmap_lock" in costs), cpus=32, nodes=1, memory_gib=64.0,
        threads_per_core=threads_per_core, seconds=0.3, warmup_s=0.3,
    )  # fmt: skip
    assert run.score_per_s == pytest.approx(5e6, rel=0.05)

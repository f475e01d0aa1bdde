"""The workloads of the published tables: what they ask for, and that both engines agree."""

# SPDX-License-Identifier: GPL-2.0-only

from dataclasses import replace

import numpy as np
import pytest

import pcpmodel as pm
from helpers.simulation import MACHINE, assert_same
from pcpmodel.datasets.packages import load_workload
from pcpmodel.errors import InputError
from pcpmodel.simulation.pilot import pilot_spec
from pcpmodel.simulation.spec import make_spec, place, varied
from pcpmodel.workload import ALL, Channel, Program, Task, Workload
from pcpmodel.workload.faults import FAULT_NS
from pcpmodel.workload.ops import OPS, SEQUENCES
from pcpmodel.workload.program import Op
from pcpmodel.workload.streams import PACKETS

RUN = {"machine": MACHINE, "cpus": 8, "nodes": 2, "memory_gib": 16}


def run(workload, **options):
    return pm.simulate(workload=workload, **{"release": "v6.6", "seconds": 0.1, **RUN} | options)


@pytest.mark.parametrize("name", sorted(pm.workload.WORKLOADS))
def test_more_tasks_than_any_machine_has_cpus_are_refused_before_they_are_made(name):
    before = ("native-build",) if name == "recorded" else ()
    for number in (1025, 10**9):
        with pytest.raises(InputError, match=rf"={number} is outside 1\.\.1024"):
            pm.workload.WORKLOADS[name](*before, number)


def test_a_workload_is_shown_in_a_line():
    assert repr(pm.workload.kbuild(224)) == (
        "<Workload kbuild: 224 tasks, score in pages allocated>"
    )
    p = Program()
    p.alloc(1)
    one = Workload("one", (Task(p),), unit="blocks", pages=1)
    assert repr([one]) == "[<Workload one: 1 task, score in blocks>]"


@pytest.mark.parametrize("release", ["v6.6", "v6.6+p3", "v6.6+p9", "v6.7", "v7.2"])
@pytest.mark.parametrize(
    "workload",
    [
        pm.workload.kbuild(8, page_us=0.4),
        pm.workload.unix_stream(4),
        pm.workload.sctp_stream(4),
        pm.workload.sctp_stream(4, swap_after=60),
    ],
    ids=lambda w: f"{w.name}-{w.params.get('swap_after', 0)}",
)
def test_engines_agree(workload, release):
    result = assert_same(make_spec(workload=workload, release=release, seconds=0.1, **RUN))
    assert result["events"] > 15


def test_a_write_on_a_unix_stream_moves_one_block_of_each_order():
    result = run(pm.workload.unix_stream(4), warmup_s=0.05)
    # 15 pages per write, all allocated by senders and freed by receivers.
    assert result.per_cpu["free_pages"].sum() == pytest.approx(15 * result.score, rel=0.01)
    sends, receives = result.per_cpu["alloc_pages"] > 0, result.per_cpu["free_pages"] > 0
    assert sends.sum() == receives.sum() == 4
    assert not (sends & receives).any()


def test_seven_messages_of_sctp_take_a_packet_past_the_lists_and_one_of_order_3():
    result = run(pm.workload.sctp_stream(4), warmup_s=0.05)
    sends = np.arange(8) % 2 == 0
    counts = {name: result.per_cpu[name] / result.score for name in result.per_cpu}
    assert counts["direct_allocs"][sends].sum() == pytest.approx(1 / 7, rel=0.01)
    assert counts["direct_frees"][~sends].sum() == pytest.approx(1 / 7, rel=0.01)
    # Messages come back to the sender's own lists: 28 of 52 pages; receivers free the packets.
    assert counts["free_pages"][sends].sum() == pytest.approx(28 / 7, rel=0.01)
    assert counts["free_pages"][~sends].sum() == pytest.approx(24 / 7, rel=0.01)


def test_a_message_of_sctp_takes_the_blocks_that_were_recorded():
    """Of the last parts of the recording, of which packets of one message are all but gone."""
    blocks = load_workload("emulated-streams").tables["blocks"]
    last = blocks[blocks["part"] >= 11].groupby(["order", "side"])["blocks"].mean().round()
    assert last.to_dict() == {
        (2, "receiver"): 0,
        (2, "sender"): sum(PACKETS.values()),
        **{(order, "receiver"): 1 for order in PACKETS},
    }
    # What fits in a packet: whole messages, with their headers, in a block of its order.
    for order, inside in PACKETS.items():
        assert 4096 << order - 1 < inside * 10_256 < 4096 << order


def test_pairs_stay_on_the_node_where_they_were_forked():
    def nodes(workload, cpus):
        host = make_spec(workload=workload, release="v6.6", **{**RUN, "cpus": cpus}).host
        at = [host.node_of(cpu) for cpu in place(workload.tasks, host)]
        assert all(a == b for a, b in zip(at[::2], at[1::2], strict=True))
        return at[::2]

    assert nodes(pm.workload.unix_stream(16), 128) == [0] * 14 + [1] * 2
    assert nodes(pm.workload.unix_stream(3), 128) == [0] * 3
    # A node that is full has no room for more.
    assert nodes(pm.workload.unix_stream(4), 8) == [0, 0, 1, 1]
    assert nodes(pm.workload.unix_stream(4, nodes=2), 128) == [0, 1, 0, 1]


def test_patch_1_leaves_two_thirds_of_the_high_order_drains_of_a_unix_stream():
    """Orders 3, 2, 1, 0 in turn: two of three high-order frees follow another one."""
    base, patched = (
        run(pm.workload.unix_stream(4), release=r, warmup_s=0.1) for r in ("v6.6", "v6.6+p1")
    )
    ratio = patched.free_high / patched.score / (base.free_high / base.score)
    assert ratio == pytest.approx(2 / 3, abs=0.02)


def test_a_pair_that_changes_places_reuses_pages_only_where_they_are_kept():
    """Auto-tuning keeps them; a list drained at a batch has none to give."""
    work = pm.workload.sctp_stream(4, latency_us=1.0, swap_after=10_000)
    reused = {}
    for kernel in ("v6.6+p3", "v6.6+p7"):
        run = pm.simulate(release=kernel, workload=work, seconds=1.0, warmup_s=1.0, **RUN)
        reused[kernel] = 1 - run.per_cpu["refill_pages"].sum() / (8 / 7 * run.score)
    assert reused["v6.6+p3"] < 0.02 < 0.1 < reused["v6.6+p7"]


def test_keeping_a_batch_divides_the_drains_of_order_3_by_eight():
    base, patched = (
        run(pm.workload.sctp_stream(4), release=r, warmup_s=0.1) for r in ("v6.6", "v6.6+p3")
    )
    ratio = patched.free_high / patched.score / (base.free_high / base.score)
    assert ratio == pytest.approx(1 / 8, rel=0.05)


def test_a_build_drains_at_exits_until_two_in_a_row_are_asked_for():
    jobs = pm.workload.kbuild(8, page_us=1.0)
    base, patched = (run(jobs, release=r, seconds=8.0) for r in ("v6.6", "v6.6+p1"))
    assert base.free_high > 300
    assert patched.free_high / patched.score < 0.5 * base.free_high / base.score


def test_a_build_has_the_page_table_root_of_its_kernel():
    def isolated(jobs, *kernels):
        made = make_spec(workload=jobs, release=kernels[0], **RUN)
        for kernel in kernels[1:]:
            made = varied(made, release=kernel)
        return made.workload.params["page_table_isolation"]

    jobs = pm.workload.kbuild(8)
    assert isolated(jobs, "v6.6")
    assert not isolated(jobs, "v6.18")
    assert not isolated(jobs, "v6.6", "v6.18")
    assert isolated(jobs, "v6.18", "v6.18", "v6.7")
    assert isolated(pm.workload.kbuild(8, page_table_isolation=True), "v6.18")
    assert not isolated(pm.workload.kbuild(8, page_table_isolation=False), "v6.6")
    # The pilot does the same.
    assert pilot_spec(make_spec(workload=jobs, release="v6.6", **RUN)).workload.params[
        "page_table_isolation"
    ]


def test_a_build_that_was_changed_by_hand_keeps_its_root():
    jobs = pm.workload.kbuild(8)
    for program in {id(task.program): task.program for task in jobs.tasks}.values():
        program.ops[0] = program.ops[0]._replace(ps=1)
    made = make_spec(workload=jobs, release="v6.6", **RUN)
    assert not made.workload.params["page_table_isolation"]


@pytest.mark.parametrize("values", [[], [1, 2]])
@pytest.mark.parametrize("checked", [False, True])
def test_an_array_among_the_operations_is_refused(values, checked):
    faults = pm.workload.page_fault1(1)
    program = faults.tasks[0].program
    if checked:
        program.compiled()
    program.ops[0] = np.array(values, dtype=int)
    with pytest.raises(InputError, match=r"operation 0, .*is not an Op of whole numbers"):
        pm.simulate("v6.6", "ice-lake", faults, seconds=0.0005)


def test_a_cpu_of_a_build_frees_in_a_round_what_it_took():
    """So that every round begins alike, however long the run."""
    result = run(pm.workload.kbuild(8, page_us=1.0), seconds=4.0, warmup_s=1.0)
    taken, given = result.per_cpu["alloc_pages"], result.per_cpu["free_pages"]
    assert given == pytest.approx(taken, rel=0.05)
    assert result.per_cpu["idle_ps"].sum() == 0
    # Two recorded courses, each from another moment on.
    assert len(set(taken.tolist())) == 8


def test_a_build_is_at_all_places_of_its_course_from_the_start():
    """So that what is counted does not hang on when."""
    jobs = pm.workload.kbuild(64)
    size = {"cpus": 64, "memory_gib": 64}
    result = run(jobs, release="v6.7", seconds=6.0, warmup_s=0.5, jitter=0.0, samples=12, **size)
    halves = result.batch_sums["score"] / result.batch_sums["score"].mean()
    assert halves.min() > 0.85  # 0.64 where all begin with the first row
    assert halves.max() < 1.12


@pytest.mark.parametrize("cpu", [0, 1])
def test_who_begins_amid_a_course_of_a_build_holds_what_is_held_there(cpu):
    program = pm.workload.kbuild(4, nodes=1).tasks[cpu].program
    pick, ops = program.ops[0], program.ops
    assert pick.code == OPS["pick"]
    assert pick.n == 64
    at_the_end = set()
    for start in program.tables[pick.target][: pick.n]:
        held, at = {}, int(start)
        while ops[at].code != OPS["loop"]:
            op = ops[at]
            if op.code in (OPS["alloc"], OPS["free"]) and op.reg < 0:  # a slab's number is drawn
                by = op.n if op.code == OPS["alloc"] else -op.n
                held[op.pindex] = held.get(op.pindex, 0) + by
                assert held[op.pindex] >= 0
            at = op.target if op.code == OPS["maybe"] else at + 1
        at_the_end.add(tuple(sorted(held.items())))
    assert len(at_the_end) == 1
    # As much as whoever begins with the first row holds there.
    first = ops[int(program.tables[pick.target][0]) :]
    first = first[: [op.code for op in first].index(OPS["maybe"])]
    asked = {op.pindex: 0 for op in first}
    for op in first:
        asked[op.pindex] += op.n * (op.code == OPS["alloc"] and op.reg < 0)
    assert {kind: n for kind, n in asked.items() if n} == {k: n for k, n in at_the_end.pop() if n}


def test_a_build_uses_the_recorded_time_per_page():
    result = run(pm.workload.kbuild(4), seconds=4.0, jitter=0.0)
    work = result.busy_ps - result.per_cpu["wait_ps"].sum() - result.per_cpu["hold_ps"].sum()
    figures = pm.datasets.load_workload("native-kbuild").tables["figures"].set_index("quantity")
    expected = figures.loc["busy CPU time per page allocated", "value"]
    # Slabs and page tables beyond those of the course take no more than their frees.
    assert work / 1e6 / result.per_cpu["alloc_pages"].sum() == pytest.approx(expected, rel=0.03)


def test_maybe_skips_by_chance_and_messages_carry_what_was_given():
    p, q = Program(), Program()
    with p.forever():
        p.alloc(10, ns=100)
        with p.maybe(0.25):
            p.give(ALL)
        p.send(0)
        p.free(ALL, ns=10)
    with q.forever():
        q.recv(0, movable_0=ALL)
        q.free(ALL, ns=10, of="peer")
        q.work(1000)
        q.score()
    pair = Workload(
        "chance", (Task(p, channels=(0,)), Task(q, channels=(0,), peer=0)), "messages", 200,
        (Channel(0, 1),),
    )  # fmt: skip
    spec = make_spec(workload=pair, release="v6.7", seconds=0.02, **RUN)
    counters = assert_same(spec)["counters"]
    rounds = counters[0]["alloc_pages"] / 10
    assert counters[1]["free_pages"] / 10 / rounds == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pm.workload.kbuild(0), "jobs=0"),
        (lambda: pm.workload.kbuild(4, page_us=0.0), "page_us"),
        (lambda: pm.workload.kbuild(4, nodes=0), "nodes=0"),
        (lambda: pm.workload.unix_stream(0), "pairs=0"),
        (lambda: pm.workload.unix_stream(1, send_us=0), "send_us"),
        (lambda: pm.workload.unix_stream(1, room=0), "room"),
        (lambda: pm.workload.sctp_stream(1, latency_us=-1), "latency_us"),
        (lambda: pm.workload.page_fault2(1, fault_ns=0), "fault_ns"),
        (lambda: pm.workload.file_churn(2, order=-1), "order=-1"),
        (lambda: pm.workload.file_churn(2, order=2**64), "order=18446744073709551616"),
        (lambda: Program().give(ALL, order=11), "kind of block"),
        (lambda: Program().draw([1], np.arange(2)), "register=array"),
        (lambda: Program().draw([1], 4), r"register=4 is outside 0\.\.3"),
        (lambda: Program().one_of([print], 1), "weights=1"),
        (lambda: Channel(0, "1"), "consumer='1'"),
    ],
)
def test_impossible_workloads_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


ALL_OF_THEM = {
    "containers": {"processes": 4},
    "exit_storm": {"processes": 4, "pages": 4096},
    "file_churn": {"processes": 4},
    "fallocate1": {"processes": 4},
    "idle_after_burst": {"processes": 4},
    "kbuild": {"jobs": 4},
    "malloc1": {"processes": 4},
    "page_fault1": {"processes": 4},
    "page_fault2": {"processes": 4},
    "page_fault3": {"processes": 4, "pages": 4000},
    "recorded": {"recording": "6.18-unixpair", "processes": 4},
    "sctp_stream": {"pairs": 2},
    "tlb_flush1": {"processes": 4},
    "tlb_flush2": {"processes": 4},
    "unix_stream": {"pairs": 2},
}


def test_what_holds_for_all_is_tried_on_all():
    assert set(ALL_OF_THEM) == set(pm.workload.WORKLOADS)


@pytest.mark.parametrize("name", ALL_OF_THEM)
def test_every_workload_frees_in_the_order_that_is_asked_for(name):
    plain = pm.workload.make(name, **ALL_OF_THEM[name])
    shuffled = pm.workload.make(name, frees="shuffled", **ALL_OF_THEM[name])
    free = OPS["free"]
    assert shuffled.params == plain.params | {"frees": "shuffled"}
    for before, after in zip(plain.tasks, shuffled.tasks, strict=True):
        ops = before.program.compiled(), after.program.compiled()
        frees = ops[0][:, 1] == free
        target = Op._fields.index("target")
        oldest = frees & (ops[0][:, target] == SEQUENCES["allocated"])
        assert oldest.any() == frees.any()
        assert (ops[1][oldest, target] == SEQUENCES["shuffled"]).all()
        ops[1][oldest, target] = 0
        assert (ops[0] == ops[1]).all()
    programs = [len({id(t.program) for t in w.tasks}) for w in (plain, shuffled)]
    assert programs[0] == programs[1]  # whoever shared one still does
    with pytest.raises(InputError, match="did you mean 'shuffled'"):
        pm.workload.make(name, frees="shufled", **ALL_OF_THEM[name])


@pytest.mark.parametrize("name", ALL_OF_THEM)
def test_every_workload_is_placed_as_numactl_does_it_and_charged_to_memcgs(name):
    given = {"cpunodebind": 1, "membind": 0, "memcgs": 2}
    made = pm.workload.make(name, **given, **ALL_OF_THEM[name])
    assert {task.node for task in made.tasks} == {1}
    assert {task.membind for task in made.tasks} == {(0,)}
    assert {task.memcg for task in made.tasks} == {0, 1}
    run = {"memory_gib": 4, "seconds": 0.02, "warmup_s": 0.0, "release": "v7.2"}
    spec = make_spec(workload=made, **RUN | run)
    assert spec.cpus == [4, 5, 6, 7]
    result = assert_same(spec)
    assert result["zone_free"][1] == 1 << 19  # nothing was ever taken from the node's own
    pinned = pm.workload.make(name, physcpubind="2-5", preferred=1, **ALL_OF_THEM[name])
    spec = make_spec(workload=pinned, release="v7.2", **RUN)
    assert spec.cpus == [2, 3, 4, 5]
    assert {zones[0] for zones in spec.zonelists} == {1}


@pytest.mark.parametrize("name", ["kbuild", "page_fault1", "file_churn", "malloc1"])
def test_jobs_come_and_go(name):
    given = {"kbuild": {"page_us": 0.3}, "page_fault1": {"pages": 2000}}.get(name, {})
    made = pm.workload.make(name, busy=0.6, **ALL_OF_THEM[name], **given)
    seconds = 10.0 if name == "kbuild" else 2.0  # rounds of a build are long
    result = run(made, seconds=seconds, warmup_s=0.2)
    assert result.busy_ps / result.cpu_ps == pytest.approx(0.6, abs=0.03)
    plain = pm.workload.make(name, **ALL_OF_THEM[name], **given)
    always = run(plain, seconds=seconds, warmup_s=0.2)
    # Who rests leaves its core and the locks to the others.
    assert result.score / always.score == pytest.approx(0.6, abs=0.08 if name == "kbuild" else 0.04)
    assert_same(make_spec(workload=made, release="v7.2", seconds=0.02, **RUN))


def test_what_no_argument_says_is_kept_where_a_workload_is_made_anew():
    """For the kernel's page table root, and by the pilot with fewer tasks."""
    jobs = replace(pm.workload.kbuild(8), start_s=0.25, mixed=0.5, from_memory=0.5)
    spec = make_spec(workload=jobs, release="v6.6", **RUN)
    assert spec.workload.params["page_table_isolation"]
    pilot = pilot_spec(spec)
    assert pilot.aged == 0.5
    for workload in (spec.workload, pilot.workload):
        assert (workload.start_s, workload.mixed, workload.from_memory) == (0.25, 0.5, 0.5)
    mine = replace(pm.workload.page_fault1(8), name="mine", unit="faults", pages=9, params={})
    found = make_spec(workload=mine, release="v6.6", **RUN)
    assert (found.workload.name, found.workload.unit, found.workload.pages) == ("mine", "faults", 9)
    assert found.workload.made.here["fault_ns"] != FAULT_NS  # it has the machine's time
    assert pilot_spec(found).workload.name == "mine"


def test_what_somebody_changed_by_hand_is_what_the_pilot_runs():
    """Not what its arguments make."""
    faults = pm.workload.page_fault1(8, pages=512)
    program = faults.tasks[0].program
    at = next(i for i, op in enumerate(program.ops) if op.order == 0 and op.n == 512)
    program.ops[at] = program.ops[at]._replace(n=2048)
    pairs = pm.workload.unix_stream(4)
    pairs = replace(pairs, channels=tuple(replace(c, room=9) for c in pairs.channels))
    for changed in (faults, pairs):
        small = pilot_spec(make_spec(workload=changed, release="v6.6", **RUN)).workload
        assert small.channels == changed.channels
        assert np.array_equal(
            small.tasks[0].program.compiled(), changed.tasks[0].program.compiled()
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_s": -1.0}, "start_s=-1.0"),
        ({"start_s": float("nan")}, "start_s=nan"),
        ({"start_s": "1"}, "start_s='1'"),
        ({"mixed": 0.99}, "mixed=0.99"),
        ({"from_memory": -1}, "from_memory=-1"),
        ({"pages": -5}, "pages=-5"),
        ({"pages": 1.5}, "pages=1.5"),
        ({"membind": 0}, "membind=0"),
        ({"channels": 0}, "channels=0"),
        ({"program": 7}, "program=7"),
        ({"node": np.arange(2)}, "node=array"),
        ({"cpu": True}, "cpu=True"),
        ({"peer": 0.5}, r"peer=0\.5"),
    ],
    ids=str,
)
def test_what_is_no_part_of_a_workload_is_refused_by_name(change, message):
    """Some were taken as if they meant something, others ended in a traceback."""
    work = pm.workload.page_fault1(1)
    of_a_task = set(change) <= {"membind", "channels", "program", "node", "cpu", "peer"}
    with pytest.raises(InputError, match=message):
        replace(work.tasks[0] if of_a_task else work, **change)

"""What a program can say, word by word: both engines take it alike, and it does what it says."""

# SPDX-License-Identifier: GPL-2.0-only

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.programs import random_workload
from helpers.simulation import MACHINE, WHOLE, WORKLOADS, assert_same, outcome, prepare, spec
from pcpmodel.errors import InputError
from pcpmodel.kernel.lists import pcp_orders
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.releases import releases
from pcpmodel.kernel.zone import Zone
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.result import KINDS, ZONE_KINDS
from pcpmodel.simulation.run import execute, simulate
from pcpmodel.simulation.spec import SPINLOCKS
from pcpmodel.workload import ALL, Channel, Program, Task, Workload
from pcpmodel.workload.ops import LIMITS, OPS
from pcpmodel.workload.program import BLOCKS, MIGRATETYPES, ORDERS

#: What is known of single pages only.
OF_PAGES = ("pages", "lists")


def one(write, pages=4096, tasks=1, **more):
    """A workload of one program, which ``write`` writes."""
    p = Program()
    write(p)
    return Workload("one", (Task(p, 0),) * tasks, "units", tasks * pages, **more)


def run_of(workload, **options):
    state = prepare(spec(workload, **options))
    assert Engine(state).run()
    return state


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    release=st.sampled_from([r.name for r in releases()]),
    high=st.sampled_from([None, 63, 100, 361]),
    jitter=st.sampled_from([0.0, 0.2, 1.0]),
    hold=st.sampled_from(["mean", "drawn"]),
    warmup=st.sampled_from([0.0, 0.002]),
    tick=st.sampled_from([0.0, 0.0005]),
    nohz=st.booleans(),
    trylock=st.sampled_from([0.0, 0.02]),
    spinlock=st.sampled_from(SPINLOCKS),
    types=st.sampled_from([("movable",), ("movable", "unmovable", "reclaimable")]),
)
def test_engines_agree_on_random_programs_and_pages_with_counts(
    seed, release, high, jitter, hold, warmup, tick, nohz, trylock, spinlock, types
):
    """Where all blocks are of one type, a page is freed to the list that it came from."""

    def with_options(identity):
        return spec(
            random_workload(seed, types=types), release=release, seed=seed % 97, high_pages=high,
            jitter=jitter, hold=hold, warmup_s=warmup, stat_interval_s=tick, nohz_idle=nohz,
            trylock_failure=trylock, spinlock=spinlock, identity=identity, seconds=0.004, warm=True,
        )  # fmt: skip

    counted, followed = (assert_same(with_options(identity)) for identity in (False, True))
    for what in counted:
        if what not in OF_PAGES and len(types) == 1:
            assert counted[what] == followed[what], what


def random_moves(rng):
    """Allocations and frees of one CPU: (word, blocks, order, migratetype, sequence)."""
    orders = rng.choice([(0, 1, 2, 3), (0, 0, 0, 2, 5, 9, 10), (0, 9)])
    for _ in range(rng.randint(3, 80)):
        order, migratetype = rng.choice(orders), rng.choice(list(MIGRATETYPES))
        blocks = rng.randint(1, 500 if order == 0 else 40 if order < 5 else 3)
        sequence = rng.choice(["allocated", "reversed"])
        if rng.random() < 0.55:
            yield "alloc", blocks, order, migratetype, sequence
        else:
            yield "free", rng.choice([blocks, ALL]), order, migratetype, sequence


@settings(max_examples=60, deadline=None)
@given(
    rng=st.randoms(use_true_random=False),
    release=st.sampled_from([r.name for r in releases()]),
    high=st.sampled_from([None, 100, 361, 3000]),
)
def test_pages_are_those_that_the_kernel_takes_one_after_the_other(rng, release, high):
    """Of huge pages on one list for all types movable ones were asked for, whatever the type."""
    moves = list(random_moves(rng))
    p = Program()
    for word, blocks, order, migratetype, sequence in moves:
        more = {"sequence": sequence} if word == "free" else {}
        getattr(p, word)(blocks, order=order, migratetype=migratetype, ns=1, **more)
    run = spec(
        Workload("moves", (Task(p),), "none", 1), release=release, identity=True, warm=True,
        cpus=2, nodes=1, memory_gib=2, seconds=1.0, stat_interval_s=0.0, jitter=0.0,
        high_pages=high, l2_kib=1.0, llc_slice_kib=1.0,
    )  # fmt: skip
    found = assert_same(run)
    [size] = run.sizes
    sizes = {"batch": size.batch, "high_min": size.high_min, "high_max": size.high_max}
    memory = Memory(release, [Zone(size.managed, watermarks=size.watermarks, **sizes)])
    held, digest = {}, 0
    for word, blocks, order, migratetype, sequence in moves:
        mine = held.setdefault((order, migratetype), [])
        if word == "alloc":
            for _ in range(blocks):
                mine.append(memory.alloc(0, order, MIGRATETYPES[migratetype], highest=2))
                digest = (digest ^ mine[-1]) * 0x100000001B3 % (1 << 64)
        else:
            for _ in range(len(mine) if blocks == ALL else min(blocks, len(mine))):
                memory.free(0, mine.pop(0 if sequence == "allocated" else -1), order)
    assert found["pages"] == [digest]
    lists = memory.state()[0]["pcp"][0]["lists"]
    assert {i: pages for i, pages in enumerate(found["lists"][0][0]) if pages} == lists


# The order of frees


@pytest.mark.parametrize("release", ["v6.6", "v7.2"])
def test_pages_go_to_their_list_in_the_order_that_the_free_says(release):
    """A list is put together at its head: what was freed last stands first."""

    def lists(sequence):
        def write(p):
            p.alloc(200, ns=10)
            p.free(150, ns=10, sequence=sequence)
            p.idle(1e9)

        state = run_of(one(write), release=release, identity=True, high_pages=4000)
        return max((pages for zone in state.page_lists()[0] for pages in zone), key=len)

    found = {sequence: lists(sequence) for sequence in ("allocated", "reversed", "shuffled")}
    # Those that a refill brought and nobody asked for stay where they are, behind.
    kept = len(found["allocated"]) - 150
    assert {len(pages) for pages in found.values()} == {150 + kept}
    order = found["allocated"][:150][::-1]  # as they were taken
    assert order == sorted(order)
    newest = found["reversed"][:150][::-1]
    assert newest == sorted(newest, reverse=True)
    assert newest[-1] == order[50]
    mixed = found["shuffled"][:150][::-1]
    assert len(set(mixed)) == 150
    assert mixed not in (sorted(mixed), sorted(mixed, reverse=True))
    steps = sum(abs(a - b) for a, b in pairwise(mixed)) / 149
    assert 45 < steps < 90  # a third of the range of 200, of numbers drawn without return
    assert {pages[150] for pages in found.values()} == {found["allocated"][150]}


def test_by_count_the_order_of_frees_makes_no_difference():
    results = []
    for sequence in ("allocated", "reversed", "shuffled"):

        def write(p, sequence=sequence):
            with p.forever():
                p.alloc(700, ns=200)
                p.free(ns=30, sequence=sequence)

        results.append(outcome(run_of(one(write, tasks=4))))
    assert results[0] == results[1] == results[2]


def test_an_unknown_order_of_frees_is_refused():
    with pytest.raises(InputError, match="did you mean 'reversed'"):
        Program().free(ALL, sequence="reverse")


# Orders


@pytest.mark.parametrize("release", ["v5.10", "v5.17", "v6.6", "v7.2"])
@pytest.mark.parametrize("order", range(11))
def test_what_no_list_holds_is_taken_and_freed_under_the_zone_lock(release, order):
    def write(p):
        with p.forever():
            p.alloc(3, order=order, ns=400)
            p.free(2, order=order, ns=300)
            p.free(1, order=order, ns=300)
            p.score()

    run = {"release": release, "identity": True, "seconds": 0.001, "memory_gib": 4}
    result = assert_same(spec(one(write, tasks=3), **run))
    n = result["counters"][0]
    rounds = n["score"]
    assert rounds > 20
    listed = order in pcp_orders(find_release(release).rules.nr_pcp_lists)
    if listed:
        assert n["direct_allocs"] == n["direct_frees"] == 0
        assert 1 <= n["refills"] < 3 * rounds
    else:
        assert n["refills"] == n["drains"] == 0
        assert n["direct_allocs"] == pytest.approx(3 * rounds, abs=3)
        assert n["direct_frees"] == pytest.approx(3 * rounds, abs=3)
    assert n["direct_pages"] == n["direct_allocs"] << order
    assert n["alloc_pages"] == pytest.approx(3 * rounds << order, abs=3 << order)
    pages = sum(result["zone_free"]) + sum(p["count"] for cpu in result["pcps"] for p in cpu)
    pages += sum(c["alloc_pages"] - c["free_pages"] for c in result["counters"])
    assert pages == 4 << 18


def test_messages_carry_blocks_of_every_order():
    def giver(p):
        with p.forever():
            for order in ORDERS:
                p.alloc(1, order=order, migratetype="unmovable", ns=300)
            p.send(0, **{f"unmovable_{order}": 1 for order in ORDERS})

    def taker(p):
        with p.forever():
            p.work(100)
            p.recv(0, **{f"unmovable_{order}": ALL for order in ORDERS})
            for order in ORDERS:
                p.free(order=order, migratetype="unmovable", ns=200, of="peer")
            p.score()

    tx, rx = Program(), Program()
    giver(tx)
    taker(rx)
    pair = Workload(
        "orders", (Task(tx, 0, (0,)), Task(rx, 0, (0,), 0)), "messages", 20_000, (Channel(0, 1, 2),)
    )
    for identity in (False, True):
        result = assert_same(spec(pair, identity=identity, seconds=0.002))
        sent, got = result["counters"]
        assert got["score"] > 50
        assert got["free_pages"] == pytest.approx(2047 * got["score"], abs=2048)
        assert 0 <= sent["alloc_pages"] - got["free_pages"] <= 4 * 2047


def test_a_kind_is_of_every_order_and_type():
    assert len(BLOCKS) == LIMITS["kinds"]
    assert {(o, m) for o, m in BLOCKS} == {(o, m) for o in ORDERS for m in MIGRATETYPES.values()}


@pytest.mark.parametrize("identity", [False, True])
@pytest.mark.parametrize("release", [r.name for r in releases()])
def test_a_free_takes_blocks_of_its_own_type_where_types_share_a_list(release, identity):
    """v6.6 has one list for all huge pages: all that were held of any type were freed."""

    def write(p):
        for n, migratetype in enumerate(MIGRATETYPES, 1):
            p.alloc(n, order=9, migratetype=migratetype, ns=100)
        p.free(order=9, migratetype="movable", ns=100)
        p.send(0, unmovable_9=ALL)
        p.idle(1e9)

    p, q = Program(), Program()
    write(p)
    q.recv(0, unmovable_9=ALL)
    q.idle(1e9)
    work = Workload("huge", (Task(p, 0, (0,)), Task(q, 0, (0,), 0)), "", 6 << 9, (Channel(0, 1),))
    sent, _ = assert_same(spec(work, release=release, identity=identity))["counters"]
    of = {name: n for n, name in enumerate(MIGRATETYPES, 1)}
    assert sent["free_pages"] == of["movable"] << 9
    result = execute(spec(work, release=release, identity=identity, warm=True))
    held = [of["reclaimable"] << 9, of["unmovable"] << 9]
    assert result.held_pages_by_cpu[:, -1].tolist() == held


# Barriers


def three(write):
    """Three tasks with the programs that ``write`` makes of their numbers, each on its own CPU."""
    programs = []
    for number in range(3):
        p = Program()
        write(p, number)
        programs.append(p)
    return Workload("three", tuple(Task(p, 0) for p in programs), "rounds", 3 * 4096)


def test_at_a_barrier_all_wait_for_the_last():
    """Without jitter the rounds are as long as the longest work, and what is left is sleep."""

    def write(p, number):
        with p.forever():
            p.work(10_000 * (number + 1))
            p.barrier(7, ns=2_000)
            p.score()

    exact = {"jitter": 0.0, "seconds": 0.00321, "stat_interval_s": 0.0}
    result = assert_same(spec(three(write), **exact))
    for number, n in enumerate(result["counters"]):
        assert n["score"] == 100
        assert n["idle_ps"] == 100 * (30_000 - 10_000 * (number + 1) + 2_000) * 1000


def test_a_barrier_is_of_the_tasks_that_have_it_in_their_program():
    def write(p, number):
        with p.forever():
            p.work(1_000 * (number + 1))
            if number < 2:
                p.barrier(0)
            p.score()

    run = {"jitter": 0.0, "seconds": 0.0030005, "stat_interval_s": 0.0}
    scores = [c["score"] for c in assert_same(spec(three(write), **run))["counters"]]
    assert scores == [1500, 1500, 1000]


def test_who_is_offline_is_waited_for():
    def write(p, number):
        with p.forever():
            p.alloc(3, ns=300 * (number + 1))
            p.free(ns=50)
            p.barrier(0, ns=100 * number)
            p.score()

    changes = [{"at_s": 0.005, "offline": 1}, {"at_s": 0.008, "online": 1}]
    run = {"seconds": 0.011, "samples": 3}  # they begin within the first ms
    result = assert_same(spec(three(write), changes=changes, **run))
    steady = assert_same(spec(three(write), **run))
    scores = [[c["score"] for c in r["counters"]] for r in (result, steady)]
    assert 0.69 < scores[0][0] / scores[1][0] < 0.74
    assert max(scores[0]) - min(scores[0]) <= 1


def test_a_barrier_without_a_place_is_refused():
    for number in (-1, 1024):
        with pytest.raises(InputError, match=r"a workload has 0\.\.1023"):
            Program().barrier(number)
    with pytest.raises(InputError, match="not a whole number"):
        Program().barrier("start")
    p = Program()
    with pytest.raises(InputError, match="takes no time"), p.forever():
        p.barrier(0)


# Phases


def phased(p):
    with p.forever():
        with p.phase("fill"):
            p.alloc(900, ns=300, lru=True)
            with p.phase("think"):
                p.work(200_000)
            p.score(3)
        p.idle(1_000)
        with p.phase("exit"):
            p.free(ns=60, lru=True)


@pytest.mark.parametrize("warmup", [0.0, 0.004])
def test_the_phases_of_a_program_add_up_to_the_run(warmup):
    run = spec(one(phased, tasks=4), warmup_s=warmup, seconds=0.02, high_pages=300)
    result = execute(run)
    assert list(result.phases) == ["", "fill", "think", "exit"]
    for name, total in result.per_cpu.items():
        parts = [phase.per_cpu.get(name) for phase in result.phases.values()]
        if name.startswith("found") or parts[0] is None:
            assert name.startswith(("found", "start", "end")) or "max" in name
        else:
            assert (sum(parts) == total).all(), name
    assert sum(phase.cpu_ps for phase in result.phases.values()) == result.cpu_ps
    fill, think, exit_ = (result.phases[name] for name in ("fill", "think", "exit"))
    assert fill.score == result.score
    assert fill.per_cpu["free_pages"].sum() == exit_.per_cpu["alloc_pages"].sum() == 0
    assert fill.refills > 0 == exit_.refills
    assert exit_.drains > 0 == fill.drains
    assert think.lock_contention == think.lru_contention == 0
    assert fill.lock_contention > 0
    assert result.phases[""].busy_ps == 0
    assert {len(c) for c in prepare(run).phases()} == {16}


def test_a_copy_s_phases_are_not_the_program_s():
    program = Program()
    with program.phase("fill"):
        program.alloc(100, ns=10)
    copy = program.copy()
    with copy.phase("more"):
        copy.work(1_000)
    assert program.names() == ["", "fill"]
    assert copy.names() == ["", "fill", "more"]


def test_phases_are_in_the_record_of_a_run():
    result = execute(spec(one(phased, tasks=2), seconds=0.01))
    told = result.summary()["phases"]
    assert told["fill"]["score"] == result.score
    assert sum(p["cpu_s"] for p in told.values()) == pytest.approx(result.cpu_ps / 1e12)
    data = result.to_dataset()
    assert data["phase_refills"].sel(phase="fill").sum() == result.refills
    assert data["phase_time_ps"].attrs["units"] == "ps"
    plain = execute(spec(WORKLOADS["page_fault1"], seconds=0.002))
    assert plain.phases == plain.summary()["phases"] == {}


def test_phases_of_several_programs_are_told_by_name():
    def write(p, number):
        with p.forever(), p.phase("same" if number else "other"):
            p.work(1000)

    workload = three(write)
    assert workload.phases == ("", "other", "same")
    result = execute(spec(workload, seconds=0.002))
    busy = {name: phase.per_cpu["time_ps"] > 1e9 for name, phase in result.phases.items()}
    assert busy["other"].tolist() == [True, False, False]
    assert busy["same"].tolist() == [False, True, True]


def test_too_many_phases_are_refused():
    p = Program()
    for number in range(15):
        with p.phase(str(number)):
            p.work(1)
    with pytest.raises(InputError, match="15 at most"), p.phase("one more"):
        p.work(1)
    q = Program()
    with q.phase("one more"):
        q.work(1)
    with pytest.raises(InputError, match="16 phases, 15 at most"):
        Workload("many", (Task(p), Task(q)), "units", 1)
    with pytest.raises(InputError, match="no name"), p.phase(""):
        p.work(1)


# Waits and holds by kind


def test_every_hold_is_of_one_kind():
    def write(p):
        with p.forever():
            p.alloc(300, ns=100, lru=True)
            p.alloc(2, order=4, ns=500)
            p.free(ns=40, lru=True)
            p.free(order=4, ns=40)

    run = spec(one(write, tasks=4), trylock_failure=0.01, seconds=0.02, high_pages=100)
    result = execute(run)
    holds = {kind: result.hold_hist[kind].total for kind in KINDS}
    assert holds["refill"] == result.refills
    assert holds["drain"] == result.drains
    assert holds["lru"] == result.per_cpu["lru_holds"].sum()
    direct = result.per_cpu["direct_allocs"].sum() + result.per_cpu["direct_frees"].sum()
    assert holds["direct"] == direct > 0
    for what in ("wait", "hold"):
        of = result.by_kind[what]
        assert sum(of[k] for k in ZONE_KINDS) == result.per_cpu[f"{what}_ps"].sum()
        assert of["lru"] == result.per_cpu[f"lru_{what}_ps"].sum()
        assert result.zone_histogram(what).total == sum(holds[k] for k in ZONE_KINDS)
    # one block in a hold takes less time than the many of a refill
    assert result.kind_ns("direct")["hold"]["mean"] < result.kind_ns("refill")["hold"]["mean"] / 2
    told = result.summary()["by_kind"]
    assert told["direct"]["holds"] == direct
    assert told["drain"]["wait_ns"] == result.kind_ns("drain")["wait"]
    data = result.to_dataset()
    assert data["hold_ps_by_kind"].sel(kind="direct") == result.by_kind["hold"]["direct"]
    with pytest.raises(InputError, match="did you mean 'drain'"):
        result.kind_ns("drains")


# Times


def test_a_drawn_number_makes_a_time_longer_or_nothing():
    def write(p):
        with p.forever():
            nap = p.draw([0, 1, 5])
            p.idle(2_000, times=nap)
            p.work(1_000, times=nap)
            p.work(500)
            p.score()

    run = spec(one(write), jitter=0.0, seconds=0.5, stat_interval_s=0.0, nodes=1)
    n = assert_same(run)["counters"][0]
    assert n["idle_ps"] / n["score"] == pytest.approx(2 * 2_000_000, rel=0.02)
    assert (n["end_ps"] - n["idle_ps"]) / n["score"] == pytest.approx(2_500_000, rel=0.01)
    with pytest.raises(InputError, match="is not a Register"):
        Program().idle(100, times=3)


def test_a_program_may_sleep_for_hours_and_work_for_hours():
    """Asleep with NOHZ nothing decays; a vmstat worker that goes on empties the lists."""
    kept = {}
    for nohz in (True, False):

        def write(p):
            p.alloc(3000, ns=100)
            p.free(ns=50)
            p.idle(2.4 * 3600e9)

        run = spec(
            one(write), release="v6.7", seconds=9000.0, samples=10, stat_interval_s=1.0,
            nohz_idle=nohz,
        )  # fmt: skip
        kept[nohz] = execute(run).pages_in_pcp
    assert kept[True][0] == kept[True][-1] > 3 * run.sizes[0].high_min
    assert kept[False][-1] <= run.sizes[0].high_min

    def toil(p):
        with p.forever():
            p.work(3600e9)
            p.score()

    n = assert_same(spec(one(toil), jitter=2.0, seconds=8000.0, stat_interval_s=0.0))["counters"]
    assert n[0]["idle_ps"] == 0
    with pytest.raises(InputError, match=r"outside 0\.\.9e\+12 ns"):
        Program().idle(9.1e12)


def test_who_rests_is_busy_for_a_share_of_the_time():
    def write(p):
        with p.forever():
            p.work(2_000)
            p.rest(0.8)

    run = spec(one(write, tasks=4), seconds=0.4, stat_interval_s=0.0)
    result = execute(run)
    assert result.busy_ps / result.cpu_ps == pytest.approx(0.8, abs=0.01)
    n = assert_same(spec(one(write), jitter=0.0, seconds=0.01))["counters"][0]
    assert n["idle_ps"] % 500_000 != 0  # not each as long as the mean
    with pytest.raises(InputError, match=r"busy=0 is not a number in 0\.001\.\.1"):
        Program().rest(0)


@pytest.mark.parametrize("pagevec", [15, 31])
def test_pages_that_wait_for_the_lru_lock_go_at_once_where_the_program_says_so(pagevec):
    def write(p):
        with p.forever():
            p.alloc(20, ns=100, lru=True)
            p.lru_drain()
            p.lru_drain()  # of nothing
            p.free(ns=50)
            p.score()

    lru = MACHINE.with_costs(lru_hold=1000.0, lru_page=0.0)
    run = spec(one(write), pagevec=pagevec, nodes=1, hold="mean", machine=lru)
    n = assert_same(run)["counters"][0]
    holds = 1 + 20 // pagevec
    assert n["lru_holds"] == pytest.approx(holds * n["score"], abs=2)
    with pytest.raises(InputError, match="unknown zone"):
        Program().lru_drain(of="somewhere")


@pytest.mark.parametrize(("release", "most"), [("v6.6", 32), ("v6.7", 32), ("v6.12", 31)])
@pytest.mark.parametrize("pages", [1, 31, 32, 70])
def test_pages_leave_the_lru_in_holds_of_as_many_as_the_kernel_releases_at_once(
    release, most, pages
):
    """And what is left of an operation in one more: release_pages() is given no more."""

    def write(p):
        with p.forever():
            p.alloc(pages, ns=100)
            p.free(pages, ns=50, lru=True)
            p.score()

    n = assert_same(spec(one(write), release=release, nodes=1))["counters"][0]
    assert n["lru_holds"] == pytest.approx(-(-pages // most) * n["score"], abs=3)


def test_lines_of_the_lru_make_a_hold_longer_that_another_cpu_had_before():
    def write(p):
        with p.forever():
            p.alloc(15, ns=1000, lru=True)
            p.free(15, ns=1000)

    hold = {}
    for lines in (0.0, 4.0):
        machine = WHOLE.with_costs(lru_lines=lines, smt_share=0.0)
        run = spec(one(write, tasks=8), machine=machine, nodes=1, hold="mean", release="v6.6")
        counters = execute(run).per_cpu
        hold[lines] = counters["lru_hold_ps"].sum() / counters["lru_holds"].sum() / 1000
    line = WHOLE.sheet.value("line_dirty", "llc")
    assert 0.8 * 4 * line < hold[4.0] - hold[0.0] <= 4 * line + 1


def test_pages_that_wait_go_to_the_lru_before_any_leave_it():
    def write(p, lru):
        with p.forever():
            p.alloc(7, ns=100, lru=True)
            p.free(7, ns=50, lru=lru)
            p.score()

    for lru, holds in ((True, 2), (False, 7 / 15)):
        n = assert_same(spec(one(lambda p, lru=lru: write(p, lru)), release="v6.6", nodes=1))
        count = n["counters"][0]
        assert count["lru_holds"] == pytest.approx(holds * count["score"], abs=3)
    program = Program()
    with pytest.raises(InputError, match="ns="):
        program.free(1, ns=-1, lru=True)
    assert program.ops == []


@pytest.mark.parametrize("names", [["", "one"], [], ["", 7], None])
def test_a_phase_that_a_program_has_no_name_for_is_refused(names):
    program = Program()
    with program.phase("one"):
        program.work(100)
    program.compiled()
    if names == ["", "one"]:
        program.ops = [op._replace(n=12) if op.n == 1 else op for op in program.ops]
        wrong = r"operation 0 \(phase\): n=12 is outside 0..1$"
    else:
        wrong = r"operation 0 \(phase\): n=1 is outside|Program.phases"
    program.phases = names
    with pytest.raises(InputError, match=wrong):
        execute(spec(Workload("odd", (Task(program),), "units", 1), seconds=0.001))


@pytest.mark.parametrize("code", ["send", "give", "recv", "take"])
def test_who_is_not_at_that_end_of_a_channel_is_refused(code):
    programs = {name: Program() for name in ("send", "recv", "give", "take")}
    programs["send"].send(0)
    programs["recv"].recv(0)
    programs["give"].give(1)
    programs["take"].recv(0, movable_0=1)
    programs["take"].ops = [op for op in programs["take"].ops if op.code != OPS["recv"]]
    still = Program()
    still.work(100)
    wrong = Task(programs[code], channels=(0,))
    ends = (0, 1) if code in ("recv", "take") else (1, 0)
    with pytest.raises(InputError, match=f"task 0 cannot {code} on channel 0: task 1 does"):
        Workload("ends", (wrong, Task(still, channels=(0,))), "units", 1, (Channel(*ends, 4),))


@pytest.mark.parametrize("identity", [False, True])
def test_what_is_given_to_a_channel_goes_with_its_own_next_message(identity):
    """By count it went with the next message of any channel, with page identity with its own."""
    giver, first, second = Program(), Program(), Program()
    giver.alloc(5)
    giver.give(5, channel=0)
    giver.send(1)
    giver.send(0)
    second.recv(0)
    second.score()
    first.recv(0, movable_0=5)
    first.free(5, of="peer")
    first.score()
    tasks = (
        Task(giver, channels=(0, 1)),
        Task(first, peer=0, channels=(0,)),
        Task(second, channels=(1,)),
    )
    channels = Channel(0, 1, 4), Channel(0, 2, 4)
    found = execute(
        spec(Workload("two", tasks, "units", 1, channels), seconds=0.001, identity=identity)
    )
    allocated, freed = found.per_cpu["alloc_pages"], found.per_cpu["free_pages"]
    assert freed[1] > 0
    assert freed[[0, 2]].tolist() == [0, 0]
    assert 0 <= allocated[0] - freed[1] <= 5 * 10


@pytest.mark.parametrize("identity", [False, True])
@pytest.mark.parametrize("takes", [(None, 3), (1, ALL), (2, 2), (0, 9)])
def test_what_a_message_brought_and_nobody_took_can_still_be_taken(takes, identity):
    """The next message put its own in the place of it, and nobody had these blocks."""
    giver, taker = Program(), Program()
    with giver.forever():
        giver.alloc(2, ns=300)
        giver.send(0, movable_0=2)
    with taker.forever():
        for blocks in takes:
            taker.recv(0, **{"movable_0": blocks} if blocks else {})
            taker.free(ns=50, of="peer")
        taker.work(10)
        taker.score()
    tasks = Task(giver, 0, (0,)), Task(taker, 0, (0,), peer=0)
    work = Workload("parts", tasks, "rounds", 20_000, (Channel(0, 1, 2),))
    _, got = assert_same(spec(work, identity=identity, seconds=0.002, warm=True))["counters"]
    each = min(4, sum(4 if n == ALL else n or 0 for n in takes))
    assert got["score"] > 50
    assert got["free_pages"] == pytest.approx(each * got["score"], abs=4)


def test_what_seldom_happens_happens_as_often_as_it_is_said_to():
    """A chance of 5e-6 was one of 0, and 1e-5 one of 1.5e-5."""
    p = Program()
    with p.forever():
        p.work(10)
        with p.maybe(1e-5):
            p.score()
    work = Workload("rare", (Task(p),) * 2, "times", 1)
    result = simulate(
        "v6.7", "ice-lake", work, cpus=2, memory_gib=1, seconds=0.5, warmup_s=0, jitter=0
    )
    assert result.score == pytest.approx(2 * 0.5 / 10e-9 * 1e-5, abs=4 * 1000**0.5)

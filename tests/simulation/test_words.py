"""What a program can say, word by word: both engines take it alike, and it does what it says."""

# SPDX-License-Identifier: GPL-2.0-only

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.programs import random_workload
from helpers.simulation import assert_same, outcome, spec
from pcpmodel.errors import InputError
from pcpmodel.kernel.lists import pcp_orders
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.releases import releases
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.setup import prepare
from pcpmodel.simulation.spec import SPINLOCKS
from pcpmodel.workload import ALL, Channel, Program, Task, Workload
from pcpmodel.workload.ops import LIMITS
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
            trylock_failure=trylock, spinlock=spinlock, identity=identity, seconds=0.004,
        )  # fmt: skip

    counted, followed = (assert_same(with_options(identity)) for identity in (False, True))
    for what in counted:
        if what not in OF_PAGES and len(types) == 1:
            assert counted[what] == followed[what], what


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

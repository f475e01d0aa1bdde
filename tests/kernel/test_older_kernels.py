"""v4.17, v5.10 and v5.17: fixed batches, lists that take turns, and lists of high orders."""

import pytest

import pcpmodel as pm
from helpers.paths import SHARED
from pcpmodel.kernel import sizing
from pcpmodel.kernel.lists import order_to_pindex, pcp_orders, pindex_to_order, pindex_to_type
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.reference import PerCpuPages as Twin
from pcpmodel.kernel.zone import Zone

OLD, MIDDLE, NEW = (pm.release(n).rules for n in ("v4.17", "v5.10", "v5.17"))
GIB = 1 << 18


# Sizing


def size(rules, managed, low=0, n=4, fraction=0):
    return sizing.zone_set_pageset_high_and_batch(
        managed, low, rules, node_cpus=n, online_cpus=n, high_fraction=fraction
    )


def test_the_batch_was_31_and_63_and_the_limit_six_of_them():
    assert size(OLD, 16 * GIB) == (31, 186, None, None)
    assert size(MIDDLE, 16 * GIB) == (63, 378, None, None)
    # v5.14: low watermark by CPUs, at least four batches
    assert size(NEW, 16 * GIB, low=12_000, n=8) == (63, 1500, None, None)
    assert size(NEW, 16 * GIB, low=100, n=8) == (63, 252, None, None)


@pytest.mark.parametrize(
    ("managed", "old", "middle"),
    # M/1024, at most 128 or 256, by 4; 2**floor(log2(b + b/2)) - 1
    [(8191, 0, 0), (12288, 3, 3), (98304, 31, 31), (131072, 31, 31), (196608, 31, 63)],
)
def test_batches_by_the_size_of_the_zone(managed, old, middle):
    assert sizing.zone_batchsize(managed, OLD) == old
    assert sizing.zone_batchsize(managed, MIDDLE) == middle
    assert size(OLD, managed) == (max(old, 1), 6 * old, None, None)


def test_a_fraction_of_the_zone_gives_limit_and_batch():
    assert size(MIDDLE, 4096, fraction=8) == (96, 512, None, None)
    assert size(MIDDLE, 1024, fraction=8) == (32, 128, None, None)
    assert size(MIDDLE, 16, fraction=8) == (1, 2, None, None)
    assert size(NEW, 98304, fraction=8) == (31, 3072, None, None)


# Lists


@pytest.mark.parametrize("name", ["v4.17", "v5.10"])
def test_three_lists_hold_single_pages_alone(name):
    rules = pm.release(name).rules
    assert pcp_orders(rules.nr_pcp_lists) == (0,)
    for make in (PerCpuPages, Twin):
        pages = make(name, high=378)
        for mt in range(3):
            pages.free(0, mt)
        assert pages.lists == [1, 1, 1]
    with pytest.raises(pm.InputError, match=r"order=1 never enters a PCP list of v\d.\d+; .*: 0$"):
        PerCpuPages(name, high=378).free(1)


def test_fifteen_lists_have_one_for_every_type_of_huge_pages():
    nr = NEW.nr_pcp_lists
    found = [order_to_pindex(nr, mt, o) for o in pcp_orders(nr) for mt in range(3)]
    assert found == list(range(15))
    assert [pindex_to_order(i) for i in (11, 12, 13, 14)] == [3, 9, 9, 9]
    assert [pindex_to_type(i) for i in (12, 13, 14)] == [0, 1, 2]


# Refills and drains


@pytest.mark.parametrize("make", [PerCpuPages, Twin])
@pytest.mark.parametrize(("name", "batch"), [("v4.17", 31), ("v5.10", 63)])
def test_refills_and_drains_are_always_a_batch(make, name, batch):
    pages = make(name, batch=batch, high=6 * batch)
    assert [pages.alloc() for _ in range(2 * batch + 1)] == [
        batch if i % batch == 0 else 0 for i in range(2 * batch + 1)
    ]
    pages = make(name, batch=batch, high=6 * batch)
    drained = {n: holds for n in range(1, 12 * batch) if (holds := pages.free())}
    assert drained == {n * batch: [batch] for n in range(6, 12)}


@pytest.mark.parametrize("make", [PerCpuPages, Twin])
def test_v5_10_knows_no_reclaim_and_v5_17_doubles_without_a_cap(make):
    old, new = make("v5.10", high=1000), make("v5.17", high=1000)
    for pages in (old, new):
        pages.reclaim_active = True
    assert [bool(old.free()) for _ in range(252)] == [False] * 252
    assert [new.free() for _ in range(252)][-1] == [63]  # at 4 batches
    new = make("v5.17", high=10_000)
    seen = [holds[0] for _ in range(40_000) if (holds := new.free())]
    assert seen == [63, 126, 252, 504, 1008, 2016, 4032, 8064, 9937, 9937][: len(seen)]
    assert len(seen) >= 9


@pytest.mark.parametrize("make", [PerCpuPages, Twin])
def test_v5_17_keeps_high_order_blocks_after_a_drain_and_v6_6_does_not(make):
    def after(name):
        pages = make(name, high=1000)
        for _ in range(1000):
            pages.free()
        return pages.free(1)

    assert after("v5.17") == []
    assert after("v6.6") == [939]


def by_hand(lengths, n):
    """free_pcppages_bulk() of v5.10 as its text reads."""
    taken, i, batch_free = [], 0, 0
    while n:
        while True:
            batch_free += 1
            i = (i + 1) % 3
            if lengths[i]:
                break
        if batch_free == 3:
            batch_free = n
        while True:
            lengths[i] -= 1
            taken.append(i)
            n -= 1
            batch_free -= 1
            if not (n and batch_free and lengths[i]):
                break
    return taken


@pytest.mark.parametrize(
    ("lengths", "n", "left"),
    [
        ((5, 5, 5), 3, (4, 4, 4)),
        ((5, 5, 5), 4, (4, 3, 4)),  # it begins with list 1
        ((9, 0, 9), 3, (8, 0, 7)),  # two of list 2: list 1 was looked at, too
        ((3, 0, 1), 3, (1, 0, 0)),  # list 2 had one of the two, which are left for list 0
        ((0, 0, 9), 4, (0, 0, 5)),
        ((4, 1, 1), 5, (1, 0, 0)),  # all three were looked at: the last gives the rest
    ],
)
@pytest.mark.parametrize("make", [PerCpuPages, Twin])
def test_lists_take_turns_and_fuller_ones_give_more(make, lengths, n, left):
    expected = list(lengths)
    for i in by_hand(list(lengths), n):
        expected[i] -= 1
    assert tuple(expected) == left
    pages = make("v5.10", batch=n, high=10_000)
    for mt, blocks in enumerate(lengths):
        for _ in range(blocks):
            pages.free(0, mt)
    assert pages.drain_zone_pages() == n
    assert pages.lists == expected


def test_high_orders_go_past_the_lists():
    memory = Memory("v5.10", [Zone(4096)], 1)
    memory.record_events()
    pfn = memory.alloc(0, 3)
    memory.free(0, pfn, 3)
    holds = [e for e in memory.take_events() if e[0] == "hold"]
    assert holds == [("hold", "alloc", 8), ("hold", "free", 8)]
    assert memory.state()[0]["pcp"][0]["count"] == 0
    assert memory.state()[0]["nr_free"] == 4096


def test_the_published_trace_of_large_frees():
    """Gorman, 25 May 2021: v5.13 and what became v5.14, whose first drain is not in the trace."""
    trace = pm.datasets.load_published("pcp-high-2021").tables["free_trace"]
    for variant, name, before in (("vanilla", "v5.10", []), ("scaled", "v5.17", [63])):
        rows = trace[trace["variant"] == variant]
        pages = PerCpuPages(name, high=int(rows["high_pages"].iloc[0]))
        expected = [*before, *rows["pages_freed"]]
        seen = []
        while len(seen) < len(expected):
            count = pages.count + 1
            if holds := pages.free():
                seen += holds
                assert count == pages.high
        assert seen == expected
    assert size(MIDDLE, 16 * GIB).high == trace["high_pages"].iloc[0]


# Names


@pytest.mark.parametrize(
    ("kernel", "release"),
    [
        ("4.6.0", "v4.17"),
        ("4.18.20", "v4.17"),
        ("4.19.300", "v5.10"),
        ("5.10.262", "v5.10"),
        ("5.13.0", "v5.10"),
        ("5.14.21", "v5.17"),
        ("5.15.167-generic", "v5.17"),
        ("5.17.4", "v5.17"),
        ("5.19.17", "v6.6"),
    ],
)
def test_kernels_between_are_known_by_what_they_decide_as(kernel, release):
    from pcpmodel.kernel.releases import nearest_release

    assert nearest_release(kernel).name == release


def test_without_lists_of_high_orders_there_are_none_of_huge_pages():
    assert pm.release("v6.7-high-order-lists").rules.nr_pcp_lists == 3
    assert pm.release("v5.10+high-order-lists").rules.nr_pcp_lists == 15


# 5.10's own functions

TREE = SHARED / "kernel-trees" / "5.10.262"


@pytest.mark.skipif(not TREE.exists(), reason="real kernel sources are not at hand")
def test_the_functions_of_5_10_decide_as_v5_10(tmp_path, monkeypatch):
    from pcpmodel.kernel.tree import open_tree
    from pcpmodel.kernel.tree_pages import compare

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tree = open_tree(TREE)
    done, found = compare(tree, "v5.10", 300_000)
    assert (done, found) == (300_000, [])
    steps = pm.release(tree)
    assert steps.base == "v5.10"
    assert compare(tree, steps, 300_000) == (300_000, [])
    wrong = pm.release("v5.10+scaled-drains"), pm.release("v5.10+drain-by-list")
    assert all(compare(tree, other, 300_000)[1] for other in wrong)
    for managed in (100, 12_288, 98_304, 196_608, 1 << 24):
        for fraction in (0, 8, 100):
            ours = size(MIDDLE, managed, fraction=fraction)
            assert size(steps.rules, managed, fraction=fraction) == ours

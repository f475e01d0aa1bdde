"""Buddy lists, fallback and drains against worked examples, in the core and in its twin."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pcpmodel as pm
from helpers.examples_pcp import BASE, K61, V67_ON, V612
from pcpmodel.kernel import memory, reference
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.zone import Zone

ALL = [r.name for r in pm.releases()]
UNMOVABLE, MOVABLE, RECLAIMABLE = range(3)


def trace(mem):
    """Refill and fallback events as 'zl PFN' and 'ef PFN,ORDER'; drains as 'dr PFN'."""
    text = []
    for kind, *fields in mem.take_events():
        if kind == "zone_locked":
            text.append(f"zl{fields[0]}")
        elif kind == "extfrag":
            text.append(f"ef({fields[0]},{fields[2]})")
        elif kind == "pcpu_drain":
            text.append(f"dr{fields[0]}")
    return " ".join(text)


def free_lists(mem):
    return mem.state()[0]["free"]


def pcp_list(mem, pindex, cpu=0):
    return mem.state()[0]["pcp"][cpu]["lists"].get(pindex, [])


def test_t22_the_first_page_of_a_block_comes_first(make):
    for name in [*K61, *V67_ON]:
        mem = make(name, {(10, MOVABLE): [0]}, batch=7)
        assert [mem.alloc_from(0) for _ in range(3)] == [0, 1, 2]
        assert trace(mem) == "zl0 zl1 zl2 zl3 zl4 zl5 zl6"
        assert pcp_list(mem, 1) == [3, 4, 5, 6]
        remainders = {0: 7, **{o: 1 << o for o in range(3, 10)}}
        assert free_lists(mem) == {(o, MOVABLE): [pfn] for o, pfn in remainders.items()}
        mem.free(0, 1)
        mem.free(0, 0)
        assert pcp_list(mem, 1) == [0, 1, 3, 4, 5, 6]
        assert [mem.alloc_from(0) for _ in range(2)] == [0, 1]


A = ["v4.17", "v5.10", "v5.17", *K61, *BASE, *(f"v6.6+p{n}" for n in range(1, 11)), "v6.7"]
B = ["v6.12"]
C = [name for name in ALL if name not in A + B]

LOWER = {(o, UNMOVABLE): [1 << o] for o in range(3, 10)}
X1 = {"free": {(10, MOVABLE): [0]}, "blocks": [1, 1], "request": UNMOVABLE}
X2 = {"free": {(3, MOVABLE): [0], (2, MOVABLE): [16]}, "blocks": [1], "request": UNMOVABLE}
X3 = {
    "free": {(3, UNMOVABLE): [0], (2, UNMOVABLE): [16], (5, UNMOVABLE): [32]},
    "blocks": [0],
    "request": MOVABLE,
}
X4 = {"free": {(8, MOVABLE): [0]}, "blocks": [1], "request": UNMOVABLE}

# (start, releases, events, free lists after, block types after)
FALLBACK = [
    ("X1", X1, A, "ef(0,10) zl0 zl1 zl2", {(0, 0): [3], (2, 0): [4], **LOWER}, [0, 0]),
    ("X1", X1, B + C, "ef(0,10) zl1 zl2", {(0, 0): [3], (2, 0): [4], **LOWER}, [0, 0]),
    ("X2", X2, A, "ef(0,3) zl16 zl17 zl18", {(0, 0): [19], (3, 0): [0]}, [1]),
    (
        "X2",
        X2,
        B,
        "ef(0,3) ef(4,2) ef(16,2)",
        {(0, 1): [17, 5, 1], (1, 1): [18, 6, 2]},
        [1],
    ),
    ("X2", X2, C, "ef(16,2) ef(17,0) ef(18,1)", {(0, 1): [19], (3, 1): [0]}, [1]),
    (
        "X3",
        X3,
        A,
        "ef(32,5) zl16 zl17 zl18",
        {(0, 1): [19], (3, 1): [0], (5, 1): [32]},
        [0],
    ),
    ("X3", X3, B, "ef(32,5) ef(48,4) ef(49,0)", None, [0]),
    (
        "X3",
        X3,
        C,
        "ef(16,2) ef(17,0) ef(18,1)",
        {(0, 0): [19], (3, 0): [0], (5, 0): [32]},
        [0],
    ),
    ("X4", X4, A, "ef(0,8) zl0 zl1 zl2", None, [0]),
    ("X4", X4, B + C, "zl0 ef(0,8) zl1 zl2", None, [0]),
]


@pytest.mark.parametrize(
    ("start", "name", "events", "after", "blocks"),
    [
        pytest.param(start, name, *rest, id=f"{x}-{name}")
        for x, start, names, *rest in FALLBACK
        for name in names
    ],
)
def test_fallback_of_a_refill_of_three(make, start, name, events, after, blocks):
    pages = 512 * len(start["blocks"])
    mem = make(name, start["free"], pages=pages, blocks=start["blocks"])
    first = mem.alloc_from(0, migratetype=start["request"])
    state = mem.state()[0]
    assert trace(mem) == events
    refill = [
        int(p)
        for p in events.replace("ef(", "zl").replace(")", "").split("zl")[1:]
        for p in [p.split(",")[0]]
    ]
    assert [first, *pcp_list(mem, start["request"])] == refill[-3:]
    assert state["blocks"] == blocks
    if after is not None:
        assert state["free"] == after


T50 = {
    "free": {},
    "pages": 2048,
    "blocks": [0, 1, 2, 1],
    "batch": 4,
}


def t50_lists(*unmovable):
    return [{"lists": {0: list(unmovable), 1: [515, 513], 2: [1025], 3: [8]}}]


# Older drains take turns of the lists: test_older_kernels.py.
@pytest.mark.parametrize("name", [n for n in ALL if "drain-by-list" in release(n).patches])
def test_t50_order_of_removal(make, name):
    mem = make(name, **T50, pcp=t50_lists(5, 3, 1))
    assert mem.state()[0]["pcp"][0]["count"] == 8
    mem.drain_zone_pages(0, 0)
    assert trace(mem) == "dr1 dr3 dr5 dr513"
    assert free_lists(mem) == {(0, 0): [5, 3, 1], (0, 1): [513]}
    mem.drain_pages_zone(0, 0)
    assert trace(mem) == "dr515 dr1025 dr8"
    assert free_lists(mem)[0, 0] == [5, 3, 1]
    assert free_lists(mem)[0, 1] == [515, 513]
    assert mem.state()[0]["pcp"][0]["count"] == 0


@pytest.mark.parametrize("name", V67_ON)
def test_t51_a_drain_starts_with_the_list_of_the_page_just_freed(make, name):
    mem = make(name, **T50, high=8, pcp=t50_lists(3, 1))
    mem.set_flags(0, 0)
    mem.free(0, 517)
    assert trace(mem) == "dr513 dr515 dr517 dr1025"
    assert mem.state()[0]["pcp"][0]["lists"] == {0: [3, 1], 3: [8]}


@pytest.mark.parametrize("name", ALL)
def test_t52_a_likely_merge_goes_to_the_tail(make, name):
    mem = make(name, {(0, MOVABLE): [20], (1, MOVABLE): [10]})
    mem.free_direct(0, 8)
    assert free_lists(mem) == {(0, MOVABLE): [20, 8], (1, MOVABLE): [10]}
    mem.free_direct(0, 9)
    assert free_lists(mem) == {(0, MOVABLE): [20], (2, MOVABLE): [8]}
    mem.free_direct(0, 40)
    mem.free_direct(0, 44)
    assert free_lists(mem)[0, MOVABLE] == [44, 40, 20]


@pytest.mark.parametrize("name", ALL)
def test_t53_the_lower_half_is_kept(make, name):
    mem = make(name, {(2, MOVABLE): [16]}, batch=1)
    assert mem.alloc_from(0) == 16
    assert free_lists(mem) == {(1, MOVABLE): [18], (0, MOVABLE): [17]}


@pytest.mark.parametrize("name", ALL)
def test_t54_a_merged_block_starts_at_the_lower_buddy(make, name):
    mem = make(name, {(2, MOVABLE): [8], (3, MOVABLE): [0]})
    mem.free_direct(0, 12, 2)
    assert free_lists(mem) == {(4, MOVABLE): [0]}


@pytest.mark.parametrize("name", V612)
def test_below_high_ends_with_a_drain_that_lifts_the_zone_over_its_mark(make, name):
    mem = make(name, {(10, MOVABLE): [1024]}, pages=2048, high=100, batch=31)
    mem.set_watermarks(0, 0, 0, 1060)
    mem.set_flags(0, 4)
    flags = []
    for pfn in range(0, 260, 2):  # no two are buddies
        mem.free(0, pfn)
        flags.append(mem.state()[0]["flags"])
    drained = [i for i, event in enumerate(flags) if event == 0]
    assert drained[0] == 99
    assert mem.state()[0]["nr_free"] > 1060


def test_bulk_frees_clamp_high_as_often_as_single_ones(make):
    # With high_min > high_max every clamp() of high gives another value.
    mem = make("v6.7", {(10, MOVABLE): [1024]}, pages=2048)
    mem._pageset_update(0, 63, 86, 85)
    for pfn in (0, 2):
        if hasattr(mem, "free_many"):
            mem.free_many(np.array([pfn]))
        else:
            mem.free(0, pfn)
    assert mem.state()[0]["pcp"][0]["high"] == 85


def test_t48_a_remote_pcp_expires(make):
    # Made here: make() has one node.
    cls = type(make("v6.7", {(10, MOVABLE): [0]}))
    zones = [Zone(1024), Zone(1024, start_pfn=1024, node=1, batch=63, high_min=500, high_max=999)]
    for name, keeps_worker in (("v6.7", True), ("v6.6", False)):
        mem = cls(name, zones, cpus=1, free=False)
        pages = range(1024, 1024 + 200, 2)
        for pfn in pages:
            mem.free(0, pfn)
        mem.free_direct(0, 2047)  # a counter differs
        count = []
        changed = []
        for _ in range(6):
            changed.append(mem.refresh_cpu_vm_stats(0))
            pcp = mem.state()[1]["pcp"][0]
            count.append((pcp["count"], pcp["expire"]))
        assert count == [(100, 2), (100, 1), (37, 0), (37, 2), (37, 1), (0, 0)]
        assert changed == [True, keeps_worker, True, True, keeps_worker, True]


def test_pages_not_in_use_are_refused(make):
    mem = make("v6.18", {(10, MOVABLE): [0]}, pages=2048)
    mem.free(0, 1024)
    for pfn, order, said in (
        (1024, 0, "not all of these pages are in use"),
        (0, 0, "not all"),
        (1024, 10, "not all"),
        (1537, 1, "not aligned to order 1"),
        (2048, 0, "not all"),
        (1 << 50, 0, "not all"),
        (-1, 0, "outside"),
        (1026, 11, "order=11 is outside"),
        (1026.0, 0, "is not an integer"),
        (True, 0, "is not an integer"),
    ):
        with pytest.raises(pm.InputError, match=said):
            mem.free(0, pfn, order)
    with pytest.raises(pm.InputError, match="cpu=1 is outside"):
        mem.free(1, 1026)
    with pytest.raises(pm.InputError, match="occurs twice"):
        mem.free_pages_bulk(0, [1026, 1026])
    with pytest.raises(pm.InputError, match="did you mean"):
        mem.alloc(gfp="atomi")


def test_coalescing_frees_of_7_2_use_higher_orders(make):
    mem = make("v7.2", {(10, MOVABLE): [0]}, pages=2048, blocks=[1, 1, 0, 0])
    mem.free_pages_bulk(0, [1028, 1029, 1030, 1031, 1033, 1036, 1037])
    lists = mem.state()[0]["pcp"][0]["lists"]
    assert lists == {6: [1028], 0: [1033], 3: [1036]}
    old = make("v6.19", {(10, MOVABLE): [0]}, pages=2048, blocks=[1, 1, 0, 0])
    old.free_pages_bulk(0, [1028, 1029, 1030, 1031])
    assert old.state()[0]["pcp"][0]["lists"] == {0: [1031, 1030, 1029, 1028]}


@pytest.mark.parametrize(("name", "reserved"), [("v6.6", 1024 - 8), ("v6.18", 0)])
def test_a_high_atomic_request_reserves_its_block(make, name, reserved):
    # v6.12 on: nothing is reserved where one hundredth is less than a page block.
    mem = make(name, {(10, MOVABLE): [0]}, pages=2048)
    mem.set_watermarks(0, 1200, 1300, 1400)
    assert mem.alloc(0, 3, UNMOVABLE) is None
    pfn = mem.alloc(0, 3, UNMOVABLE, gfp="atomic")
    state = mem.state()[0]
    assert pfn == 0
    assert (3 in state["blocks"]) == bool(reserved)
    assert state["nr_reserved_highatomic"] == (512 if reserved else 0)


@pytest.mark.parametrize("name", ["v7.0", "v7.2", "v7.3"])
def test_high_atomic_requests_from_v7_1_and_v7_3_on(make, name):
    # v7.1 on: they do not refill the list; v7.3: not on the first attempt either, and a page
    # block is reserved only where the request came down to the min watermark.
    pages = 1 << 16
    mem = make(name, {(10, MOVABLE): [*range(0, pages, 1024)]}, pages=pages)
    assert mem.alloc(0, 3, UNMOVABLE, gfp="atomic") == 0
    first = mem.state()[0]
    assert len(pcp_list(mem, 9)) == (0 if name == "v7.3" else 1)
    assert first["nr_reserved_highatomic"] == 0
    mem.set_watermarks(0, 1000, pages, pages)  # nothing is above low, all above min
    assert mem.alloc(0, 2, UNMOVABLE, gfp="atomic") is not None
    assert len(pcp_list(mem, 6)) == (1 if name == "v7.0" else 0)
    assert mem.state()[0]["nr_reserved_highatomic"] == 512
    reserved = min(pfn for (_, mt), at in free_lists(mem).items() if mt == 3 for pfn in at)
    mem.set_watermarks(0, 10, 20, 30)
    again = mem.alloc(0, 1, UNMOVABLE, gfp="atomic")
    # Of the reserve only who has the flag on the first attempt takes.
    assert (again // 512 == reserved // 512) == (name == "v7.3")


def bad_states():
    free = {"free": {(10, MOVABLE): [0]}}
    return [
        ({"free": {(10, MOVABLE): [0, 0]}}, "overlaps a hole or another block"),
        ({"free": {(10, MOVABLE): [0], (0, MOVABLE): [5]}}, "overlaps"),
        ({"free": {(10, MOVABLE): [512]}}, "not aligned"),
        ({"free": {(10, MOVABLE): [2048]}}, "outside the zone"),
        ({"free": {(11, MOVABLE): [0]}}, "order=11 is outside"),
        ({"free": {(0, 6): [0]}}, "migratetype=6 is outside"),
        ({**free, "blocks": [1]}, "blocks has 1 entries, the zone 4"),
        ({**free, "blocks": [1, 1, 1, 9]}, "blocks=9 is outside"),
        ({**free, "pcp": [{"lists": {0: [1]}}]}, "overlaps"),
        ({**free, "pcp": [{"lists": {14: [1024]}}]}, "pindex=14 is outside"),
        ({**free, "pcp": [{"lists": {0: [1024]}, "count": 3}]}, "count=3"),
        ({**free, "pcp": [{"batch": 0}]}, "batch=0 is outside"),
        ({**free, "pcp": [{}, {}]}, "2 entries for 1 CPUs"),
        ({**free, "pcp": [{"batch": 1 << 16, "free_factor": 15}]}, "free_factor=15 is outside"),
        ({**free, "pcp": [{"batch": 63, "alloc_factor": 26}]}, "alloc_factor=26 is outside"),
        ({**free, "held": []}, "neither held nor on a list"),
        ({**free, "held": [(0, 2048, True)]}, "listed elsewhere"),
        ({**free, "flags": 8}, "flags=8 is outside"),
    ]


@pytest.mark.parametrize(("state", "said"), bad_states())
def test_a_state_that_cannot_be_is_refused_and_changes_nothing(state, said):
    mem = memory.Memory("v6.18", [Zone(2048)])
    mem.alloc()
    before = mem.state()
    with pytest.raises(pm.InputError, match=said):
        mem.load(0, state)
    assert mem.state() == before


@pytest.mark.parametrize(
    ("make_zones", "said"),
    [
        (list, "zones is empty"),
        (lambda: [Zone(0)], "pages=0 is outside"),
        (lambda: [Zone(10, name="normal")], "did you mean 'Normal'"),
        (lambda: [Zone(10), Zone(10, start_pfn=9)], "zones overlap"),
        (lambda: [Zone(10, holes=((8, 4),))], "pages of the hole=4 is outside"),
        (lambda: [Zone(10, watermarks=(1, 2))], r"is not \(min, low, high\)"),
        (lambda: [Zone(10, batch=0)], "batch=0"),
    ],
)
def test_zones_that_cannot_be_are_refused(make_zones, said):
    with pytest.raises(pm.InputError, match=said):
        memory.Memory("v6.18", make_zones())


def test_a_run_of_operations_is_the_same_as_one_by_one():
    rng = np.random.default_rng(3)
    n = 4000
    op = np.zeros(n, np.uint8)
    order = rng.choice(np.array([0, 0, 0, 1, 3, 5, 9], np.uint8), n)
    migratetype = rng.integers(0, 3, n).astype(np.uint8)
    cpu = rng.integers(0, 2, n).astype(np.int32)
    ref = np.full(n, -1, np.int64)
    live = []
    for i in range(n):
        if live and rng.random() < 0.5:
            op[i], ref[i] = 1, live.pop(int(rng.integers(len(live))))
        elif rng.random() < 0.02:
            op[i] = rng.integers(2, 4)
        else:
            live.append(i)
    zones = [Zone(1 << 15)]
    whole, single = (memory.Memory("v7.2", zones, 2) for _ in range(2))
    pfn = np.zeros(n, np.int64)
    whole.run(op, cpu, order, migratetype, ref, pfn)
    for i in range(n):
        c = int(cpu[i])
        if op[i] == 0:
            got = single.alloc(c, int(order[i]), int(migratetype[i]))
            assert pfn[i] == (-1 if got is None else got)
        elif op[i] == 1:
            if pfn[ref[i]] >= 0:
                single.free(c, int(pfn[ref[i]]), int(order[ref[i]]))
        elif op[i] == 2:
            single.refresh_cpu_vm_stats(c)
        else:
            single.drain_pages(c)
    assert whole.state() == single.state()


@pytest.mark.parametrize(
    ("rows", "row", "column"),
    [
        ([(0, 0, 0, 1, -1), (7, 0, 0, 1, -1)], 1, "op"),
        ([(0, 1, 0, 1, -1)], 0, "cpu"),
        ([(0, 0, 11, 1, -1)], 0, "order"),
        ([(0, 0, 0, 3, -1)], 0, "migratetype"),
        ([(1, 0, 0, 1, 0)], 0, "ref"),
        ([(0, 0, 0, 1, -1), (1, 0, 0, 1, 0), (1, 0, 0, 1, 0)], 2, "ref"),
    ],
)
def test_a_row_that_cannot_be_is_named(rows, row, column):
    kinds = (np.uint8, np.int32, np.uint8, np.uint8, np.int64)
    columns = [np.array(c, kind) for c, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    mem = memory.Memory("v7.2", [Zone(4096)])
    with pytest.raises(pm.InputError) as error:
        mem.run(*columns, np.zeros(len(rows), np.int64))
    assert (error.value.row, error.value.column) == (row, column)


def test_memory_per_page_is_bounded():
    # Every second page free: as many list entries as there can be.
    pages = 1 << 18
    mem = memory.Memory("v6.18", [Zone(pages, batch=63, high_min=500, high_max=500)])
    assert mem.nbytes() <= 4.1 * pages
    pfns = np.zeros(pages - 2048, np.int64)
    assert mem.alloc_many(pfns) == len(pfns)
    mem.free_many(np.sort(pfns)[::2].copy())
    mem.drain_pages(0)
    assert mem.nbytes() <= 8 * pages + 4 * 2048


def test_a_refill_may_send_the_next_request_to_another_zone(make):
    cls = type(make("v6.6", {(10, MOVABLE): [0]}))
    zones = [
        Zone(1024, name="DMA32", batch=63, high_min=500),
        Zone(1024, start_pfn=1024, watermarks=(900, 1000, 1010), batch=63, high_min=500),
    ]
    mem = cls("v6.6", zones)
    if hasattr(mem, "alloc_many"):
        pfns = np.zeros(3, np.int64)
        mem.alloc_many(pfns)
        pfns = pfns.tolist()
    else:
        pfns = [mem.alloc() for _ in range(3)]
    assert pfns == [1024, 0, 1]


@pytest.mark.parametrize(("name", "refused"), [("v6.7", False), ("v6.12", True), ("v6.18", True)])
def test_isolating_a_block_at_the_edge_of_the_zone(make, name, refused):
    mem = make(name, {(9, MOVABLE): [0]}, pages=1000)
    if refused:
        with pytest.raises(pm.InputError, match="EBUSY"):
            mem.set_isolate(600)
    else:
        mem.set_isolate(600)
    mem.set_isolate(0)
    assert free_lists(mem) == {(9, 5): [0]}
    mem.unset_isolate(0)
    assert free_lists(mem) == {(9, MOVABLE): [0]}


@pytest.mark.parametrize("name", ALL)
def test_isolating_half_a_page_block_moves_its_other_free_blocks_last(make, name):
    """__isolate_free_page(): move_freepages_block(), until v6.9 set_pageblock_migratetype()."""
    mem = make(name, {(8, MOVABLE): [0], (1, MOVABLE): [256, 260, 520]})
    assert mem.isolate_free_page(0)
    moved = pm.release(name).rules.fallback != 0
    left = [520, 256, 260] if moved else [256, 260, 520]
    assert free_lists(mem) == {(1, MOVABLE): left}
    assert mem.isolate_free_page(256)
    assert free_lists(mem) == {(1, MOVABLE): [pfn for pfn in left if pfn != 256]}
    with pytest.raises(pm.InputError, match="no free block begins at pfn=1"):
        mem.isolate_free_page(1)
    assert mem.take_events() == []


def test_isolating_a_block_keeps_to_the_watermark(make):
    mem = make("v6.18", {(1, MOVABLE): [0, 4, 8]})
    mem.set_watermarks(0, 3, 4, 5)
    assert mem.isolate_free_page(0)
    assert not mem.isolate_free_page(4)
    assert free_lists(mem) == {(1, MOVABLE): [4, 8]}


@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(["v6.6", "v7.3"]))
@settings(max_examples=6)
def test_blocks_that_nobody_has_asked_for_are_there_in_their_turn(seed, name):
    """The largest blocks of a fresh zone are listed when it is their turn: nobody sees that."""
    holes = ((3 * 1024, 100), (9 * 1024 + 512, 512))
    made = [
        kind(name, [Zone(16 * 1024 + 300, holes=holes, batch=31, high_min=300, high_max=300)])
        for kind in (memory.Memory, reference.Memory)
    ]
    rng = np.random.default_rng(seed)
    told = [[], []]
    held = []
    for step in range(700):
        if rng.random() < 0.6 or not held:
            order, mt = int(rng.choice([0, 0, 3, 9, 10])), int(rng.integers(3))
            for mem, pfns in zip(made, told, strict=True):
                pfns.append(mem.alloc(0, order, mt))
            if told[0][-1] is not None:
                held.append((told[0][-1], order))
        else:
            pfn, order = held.pop(int(rng.integers(len(held))))
            for mem in made:
                mem.free(0, pfn, order)
        if step == 350:
            for mem in made:
                mem.set_isolate(15 * 1024)
    assert told[0] == told[1]
    assert made[0].state() == made[1].state()


def test_what_is_free_since_boot_can_be_isolated_and_is_in_use_for_nobody():
    for ask in ("isolate_free_page", "set_isolate"):
        mem = memory.Memory("v7.3", [Zone(8 * 1024)])
        with pytest.raises(pm.InputError, match="in use"):
            mem.free(0, 5 * 1024)
        getattr(mem, ask)(5 * 1024)
        assert 5 * 1024 not in mem.state()[0]["free"][10, MOVABLE]


def test_all_releases_leave_a_zone_alike_of_which_others_hold_pages():
    """Lists drain in the order in which pages are freed: setup() copies such a zone for all."""
    pages = np.random.default_rng(2).permutation(5 * 1024 + 77)[1500:]
    alike = None
    for name in ALL:
        mem = memory.Memory(name, [Zone(5 * 1024 + 77)], free=False)
        mem.free_many(pages)
        mem.drain_pages_zone(0, 0)
        (state,) = mem.state()
        del state["pcp"], state["stat_diff"]
        alike = alike or state
        assert state == alike


def test_a_copied_zone_is_like_the_other_and_on_its_own():
    source = memory.Memory("v6.6", [Zone(512), Zone(3000, start_pfn=1024)], free=False)
    source.free_many(1024 + np.random.default_rng(3).permutation(3000)[:2000])
    source.drain_pages_zone(0, 1)
    other = memory.Memory("v7.3", [Zone(3000, start_pfn=4096)], 2)
    with pytest.raises(pm.InputError, match="cannot be as one of pages"):
        other.copy_zone(0, source, 0)
    other.free(1, other.alloc(1))
    with pytest.raises(pm.InputError, match="on the lists of a CPU"):
        other.copy_zone(0, source, 1)
    other.drain_pages_zone(1, 0)
    other.copy_zone(0, source, 1)
    assert other.state()[0]["nr_free"] == source.state()[1]["nr_free"] == 2000
    moved = [(pfn - 3072, n, movable) for pfn, n, movable in other.state()[0]["held"]]
    assert moved == source.state()[1]["held"]
    before = source.state()
    source.copy_zone(1, source, 1)  # a zone is as it is
    blocks = [other.alloc(0, order) for order in (0, 1, 2)]
    assert source.state() == before
    again = memory.Memory("v7.3", [Zone(3000, start_pfn=1024)], 2)
    again.copy_zone(0, source, 1)
    assert [again.alloc(0, order) + 3072 for order in (0, 1, 2)] == blocks


RESERVED = {"free": {(9, 3): [0]}, "blocks": [3] + [1] * 7, "nr_reserved_highatomic": 512}


@pytest.mark.parametrize(
    ("name", "gfp", "given"),
    [
        ("v6.6", "nowait", True),  # gfp_to_alloc_flags() of v6.3 on: all that cannot reclaim
        ("v6.7", "nowait", True),
        ("v6.12", "nowait", True),
        ("debian-6.1.192", "atomic", True),
        ("debian-6.1.192", "nowait", False),  # with __GFP_HIGH alone, as from v6.18 on
        ("v6.6", "kernel", False),
        ("v5.10", "nowait", False),
    ],
)
def test_who_takes_high_atomic_blocks_of_higher_orders(make, name, gfp, given):
    mem = make(name, {}, pages=4096, batch=7, high=28)
    mem.load(0, RESERVED)
    assert (mem.alloc(0, 2, 0, gfp=gfp) is not None) == given


@pytest.mark.parametrize("gfp", ["atomic", "nowait"])
@pytest.mark.parametrize("name", ["v5.10", "v6.6", "v6.7", "debian-6.1.192", "v6.12", "v7.3"])
def test_the_last_resort_of_order_0(make, name, gfp):
    """281dd25c1a01: v6.12 and stable 6.1.y; before, ALLOC_OOM alone."""
    mem = make(name, {}, pages=4096, batch=7, high=28)
    mem.load(0, RESERVED)
    late = name in ("debian-6.1.192", "v6.12", "v7.3")
    assert mem.alloc(0, 0, 1, gfp=gfp) == (0 if late else None)


@pytest.mark.parametrize("kind", [memory.Memory, reference.Memory])
@pytest.mark.parametrize("migratetype", [UNMOVABLE, MOVABLE])
def test_a_reserve_is_given_back_from_zones_that_the_request_may_use(kind, migratetype):
    """unreserve_highatomic_pageblock(): up to ac->highest_zoneidx."""
    mem = kind("v6.12", [Zone(8192), Zone(8192, start_pfn=8192, name="Movable")], free=False)
    mem.load(1, {"free": {(9, 3): [8192]}, "blocks": [3] + [1] * 15,
                 "nr_reserved_highatomic": 512})  # fmt: skip
    assert mem.unreserve_highatomic_pageblock(0, migratetype, force=True) == (
        migratetype == MOVABLE
    )


def test_a_bulk_allocation_boosts_no_watermark(make):
    """Its ALLOC_WMARK_LOW has no ALLOC_KSWAPD."""
    mem = make("v7.2", {(5, 1): [0]}, pages=4096, blocks=[1] * 8, batch=7, high=28)
    mem.set_watermarks(0, 10, 20, 30)
    assert mem.alloc_pages_bulk(0, 2, UNMOVABLE)
    assert mem.state()[0]["flags"] == 0

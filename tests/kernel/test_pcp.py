"""The decisions of the per-CPU lists against worked examples, in the core and in its twin."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest

import pcpmodel as pm
from helpers.examples_pcp import (
    AUTO,
    BASE,
    CHUNKS,
    DECAYS,
    FREE_HIGH,
    FREES,
    HIGH_ORDER_REFILLS,
    K61,
    P7_P10,
    PINDEX,
    REFILLS,
    V67_ON,
    V612,
    V619,
)
from pcpmodel.kernel import pcp, reference
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.rules import as_dict
from pcpmodel.kernel.zone import Zone


@pytest.fixture(params=[pcp.PerCpuPages, reference.PerCpuPages], ids=["core", "twin"])
def make(request):
    return request.param


def by_release(rows):
    """One test for every row and every release that the row names."""
    return [
        pytest.param(name, *row[2:], id=f"{row[0]}-{name}-{n}")
        for n, row in enumerate(rows)
        for name in row[1]
    ]


def empty(pages, order=0):
    """Take what is left on the list, so that the next allocation refills."""
    while pages.count:
        assert pages.alloc(order) == 0


def drains(pages, frees, order=0):
    """Free so many blocks; which of them drained, and how much."""
    return {n: sum(holds) for n in range(1, frees + 1) if (holds := pages.free(order))}


def test_core_and_releases_hold_the_same_rules():
    for release in pm.releases():
        rules = as_dict(release)
        assert rules == {k: int(v) for k, v in asdict(release.rules).items()}
        assert list(rules) == list(asdict(release.rules))


@pytest.mark.parametrize(("name", "sizes", "refills", "high", "factors"), by_release(REFILLS))
def test_refills_when_the_list_is_empty_each_time(make, name, sizes, refills, high, factors):
    pages = make(name, **sizes)
    seen = []
    for _ in refills:
        seen.append((pages.alloc(), pages.high, pages.alloc_factor))
        empty(pages)
    assert [n for n, _, _ in seen] == refills
    if high:
        assert [h for _, h, _ in seen] == high
    if factors:
        assert [f for _, _, f in seen] == factors


@pytest.mark.parametrize("name", [r for r in P7_P10 + V67_ON if r != "v6.6+p7"])
def test_t14_below_high_stops_the_growth_of_high(make, name):
    pages = make(name, **AUTO)
    pages.below_high = True
    seen = []
    for _ in range(5):
        seen.append(pages.alloc())
        empty(pages)
    assert seen == [63, 126, 252, 437, 437]
    assert pages.high == 500


@pytest.mark.parametrize("name", V67_ON)
def test_t13_a_free_between_two_refills_halves_alloc_factor(make, name):
    pages = make(name, **AUTO)
    for _ in range(5):
        pages.alloc()
        empty(pages)
    pages.free()
    assert pages.alloc_factor == 2
    empty(pages)
    assert pages.alloc() == 252


@pytest.mark.parametrize(
    ("name", "sizes", "order", "blocks", "high"), by_release(HIGH_ORDER_REFILLS)
)
def test_refills_of_higher_orders(make, name, sizes, order, blocks, high):
    pages = make(name, **sizes)
    assert pages.alloc(order) == blocks
    assert pages.high == high
    assert pages.alloc_factor == 0
    assert pages.count == (blocks - 1) << order


@pytest.mark.parametrize(("migratetype", "order", "thirteen", "fourteen"), PINDEX)
def test_t23_list_of_a_block(make, migratetype, order, thirteen, fourteen):
    for name, index, length in (("v6.7", thirteen, 13), ("v6.12", fourteen, 14)):
        pages = make(name, high=10000)
        pages.free(order, migratetype)
        assert pages.lists == [int(i == index) for i in range(length)]


@pytest.mark.parametrize(("name", "sizes", "events", "state"), by_release(FREES))
def test_frees_from_an_empty_pcp(make, name, sizes, events, state):
    pages = make(name, **sizes)
    seen = []
    values = {field: [] for field in state}
    for n in range(1, events[-1][0] + 1):
        holds = pages.free()
        if holds:
            seen.append((n, sum(holds)))
            for field in state:
                values[field].append(getattr(pages, field))
    assert seen == events
    assert values == state


@pytest.mark.parametrize("name", V619)
@pytest.mark.parametrize(("sizes", "expected"), [row[1:] for row in CHUNKS], ids=["T30", "T34"])
def test_chunks_of_a_drain(make, name, sizes, expected):
    pages = make(name, **sizes)
    holds = (pages.free() for _ in itertools.count())
    assert list(itertools.islice(filter(None, holds), len(expected))) == expected


@pytest.mark.parametrize("name", V67_ON)
def test_t35_one_allocation_between_frees(make, name):
    pages = make(name, **AUTO)
    assert not drains(pages, 499)
    assert (pages.free_count, pages.count) == (499, 499)
    assert pages.alloc() == 0
    assert (pages.free_count, pages.count) == (249, 498)
    assert drains(pages, 2) == {2: 251}
    assert (pages.high, pages.count) == (500, 249)


@pytest.mark.parametrize("name", K61 + BASE)
def test_t36_one_allocation_halves_free_factor(make, name):
    pages = make(name, high=500)
    drains(pages, 941)
    assert pages.free_factor == 3
    pages.alloc()
    assert pages.free_factor == 1
    needed = 500 - pages.count
    assert drains(pages, needed) == {needed: 126}


@pytest.mark.parametrize("batch", [1, 63])
def test_a_factor_that_frees_reach_can_be_set(batch):
    """nr_pcp_free() of v6.6 has no cap but high - batch: 63 << 10 is the first above 40,000."""
    name, high = "v6.6", 40_000
    pages = pcp.PerCpuPages(name, batch=batch, high=high)
    while batch << pages.free_factor < high - batch:
        drains(pages, high)
    reached = pages.free_factor
    assert reached == {63: 10, 1: 16}[batch]
    again = pcp.PerCpuPages(name, batch=batch, high=high)
    again.free_factor = reached
    assert again.free_factor == reached
    with pytest.raises(pm.InputError, match="free_factor"):
        again.free_factor = 28
    capped = pcp.PerCpuPages("debian-6.1.192", batch=batch, high=high)
    with pytest.raises(pm.InputError, match="free_factor"):
        capped.free_factor = 6


@pytest.mark.parametrize(
    ("name", "flags", "frees", "last", "expected", "more"), by_release(FREE_HIGH)
)
def test_free_high(make, name, flags, frees, last, expected, more):
    pages = make(name, flags=flags, **({"high": 500} if name in K61 else AUTO))
    assert drains(pages, frees) == ({frees: last} if last else {})
    assert drains(pages, more, order=1) == expected


@pytest.mark.parametrize("name", V612)
def test_t40_an_order_0_free_breaks_the_row(make, name):
    pages = make(name, **AUTO)
    drains(pages, 100)
    assert drains(pages, 2, order=1) == {2: 104}
    assert pages.free(0) == []
    assert pages.free(1) == []
    assert sum(pages.free(1)) == 5


@pytest.mark.parametrize(("name", "sizes", "count", "count_min", "ticks"), by_release(DECAYS))
def test_decay(make, name, sizes, count, count_min, ticks):
    pages = make(name, **sizes)
    assert not drains(pages, count)
    if count_min is not None:
        pages.count_min = count_min
    seen = [(holds, pages.high) for _ in ticks for holds in [pages.decay()]]
    assert [(high, sum(holds)) for holds, high in seen] == ticks
    if as_dict(name)["decay_chunks"]:
        assert all(set(holds[:-1]) <= {63} and holds[-1] <= 63 for holds, _ in seen if holds)
    else:
        assert all(len(holds) <= 1 for holds, _ in seen)


def test_t42_first_tick_takes_fourteen_holds(make):
    pages = make("v6.19", high=8192, **AUTO)
    drains(pages, 8000)
    assert pages.decay() == [63] * 13 + [13]


@pytest.mark.parametrize("name", V67_ON)
def test_t45_the_whole_excess_goes_when_high_is_at_its_floor(make, name):
    pages = make(name, high_min=1000, high_max=1000)
    drains(pages, 638)
    pages.pageset_update(565, 565, 63)
    assert pages.alloc(migratetype=0) == 63  # clamps high
    assert (pages.high, pages.count) == (565, 700)
    chunked = as_dict(name)["decay_chunks"]
    assert pages.decay() == ([63, 63, 9] if chunked else [135])
    assert (pages.high, pages.count) == (565, 565)
    assert pages.decay() == []


def test_t46_reclaim_lowers_the_threshold_of_one_high(make):
    pages = make("debian-6.1.192", high=2000)
    pages.reclaim_active = True
    assert drains(pages, 252 + 63 + 126 + 189 + 189) == {
        252: 63,
        315: 126,
        441: 189,
        630: 189,
        819: 189,
    }


@pytest.mark.parametrize("name", V67_ON)
def test_t46_reclaim_lowers_high_at_every_free(make, name):
    pages = make(name, high=2000, **AUTO)
    pages.reclaim_active = True
    pages.free()
    assert pages.high == 2000 - 63
    assert drains(pages, 251 + 189 + 189) == {251: 189, 440: 189, 629: 189}
    assert pages.high == 500


@pytest.mark.parametrize("name", V67_ON)
def test_t47_below_high_lowers_high_until_the_zone_recovers(make, name):
    pages = make(name, high=2000, **AUTO)
    pages.below_high = True
    assert drains(pages, 937) == {500: 437, 937: 437}
    assert pages.high == 500
    pages.below_high = False
    assert drains(pages, 437) == {437: 437}
    assert pages.high == 1437


@pytest.mark.parametrize("name", K61 + BASE + V67_ON)
def test_t49_a_disabled_pcp_keeps_nothing(make, name):
    pages = make(name, batch=1, high=0)
    assert pages.free(0) == [1]
    assert pages.free(2) == [4]
    assert pages.count == 0
    if name in V67_ON:
        assert pages.free_count == 5
    assert pages.alloc(0) == 1
    assert pages.alloc(2) == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pcp.PerCpuPages("v6.7"), "give high"),
        (lambda: pcp.PerCpuPages("v6.8", high=1), "did you mean"),
        (lambda: pcp.PerCpuPages("v6.7", high=500, batch=0), r"batch=0 is outside 1\.\."),
        (lambda: pcp.PerCpuPages("v6.7", high=-1), "high=-1 is outside"),
        (lambda: pcp.PerCpuPages("v6.7", high=5e2), "is not an integer"),
        (lambda: pcp.PerCpuPages("v6.7", high=True), "is not an integer"),
        (lambda: pcp.PerCpuPages("v6.7", high=500).alloc(4), "order=4 never enters"),
        (lambda: pcp.PerCpuPages("v6.7", high=500).free(10), "order=10 is outside 0..9"),
        (lambda: pcp.PerCpuPages("v6.7", high=500).free(0, 3), "migratetype=3 is outside 0..2"),
        (lambda: pcp.PerCpuPages("v6.7", high=500).free(0, "1"), "is not an integer"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, said):
    with pytest.raises(pm.InputError, match=said):
        call()


@pytest.mark.parametrize("batch", [1024, 2047])
def test_free_count_is_a_short(make, batch):
    """struct per_cpu_pages of v6.7 and later: it wraps, and the next drain takes a batch alone."""
    pages = make("v7.2", batch=batch, high_min=40000, high_max=40000)
    found = drains(pages, 40000)
    assert found == {40000: batch}
    assert pages.free_count == 40000 - 65536


def test_a_short_that_wraps_amid_many_frees_at_once():
    """`pcp_free_hits` leaps as single frees go."""
    many, single = (
        Memory("v7.2", [Zone(1 << 17, batch=1024, high_min=42000, high_max=42000)])
        for _ in range(2)
    )
    pfns = np.empty(41000, np.int64)
    for memory in (many, single):
        assert memory.alloc_many(pfns) == len(pfns)
    for some in np.split(pfns, [30000, 35000, 39000]):
        many.free_many(some)
        for pfn in some:
            single.free(0, int(pfn))
        assert many.state() == single.state()
    assert many.state()[0]["pcp"][0]["free_count"] < 0

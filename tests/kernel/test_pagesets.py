"""What the core shares with its slow twin, which therefore cannot check it.

`managed_pages`, `zonelists` and `Pagesets` of `pcpmodel.kernel.zone`: the expected numbers are
worked out by hand from the rules of mm/page_alloc.c, v6.1 ... v7.2, one line each.
"""

# SPDX-License-Identifier: GPL-2.0-only

import pytest

import pcpmodel as pm
from pcpmodel.errors import InputError
from pcpmodel.kernel import reference
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.zone import Zone, managed_pages, zonelists

BOTH = pytest.mark.parametrize("kind", [Memory, reference.Memory], ids=["core", "twin"])
FLAG = 2  # PCPF_FREE_HIGH_BATCH


def sizes(memory, cpu=0, zone=0):
    """(batch, high_min, high_max) of a CPU's lists."""
    pcp = memory.state()[zone]["pcp"][cpu]
    return pcp["batch"], pcp["high_min"], pcp["high_max"]


def flags(memory, zone=0):
    return [pcp["flags"] & FLAG for pcp in memory.state()[zone]["pcp"]]


@pytest.mark.parametrize(
    ("holes", "managed", "pages"),
    [
        ((), None, 4096),
        (((0, 100), (200, 50)), None, 4096 - 150),
        (((0, 100), (50, 100)), None, 4096 - 150),  # overlap: pages 0..149 are absent, once
        (((0, 100),), 3000, 3000),  # what is said goes before what is counted
    ],
)
def test_managed_pages(holes, managed, pages):
    assert managed_pages(Zone(4096, holes=holes, managed=managed)) == pages


def test_zonelists_go_through_the_own_node_first_and_through_its_zones_from_the_top():
    zones = [
        Zone(512, 0, name="DMA"),
        Zone(512, 512, name="DMA32"),
        Zone(512, 1024, name="Normal"),
        Zone(512, 2048, name="Normal", node=1),
        Zone(512, 4096, name="Movable", node=1),
        Zone(512, 8192, name="Normal", node=2),
    ]
    # Node 0: Normal, DMA32, DMA; then node 1: Movable, Normal; then node 2.
    assert zonelists(zones, 3) == [[2, 1, 0, 4, 3, 5], [4, 3, 5, 2, 1, 0], [5, 2, 1, 0, 4, 3]]


@BOTH
@pytest.mark.parametrize(
    ("release", "pages", "expected"),
    [
        ("v6.7", 190, FLAG),  # > 3 * 63 = 189
        ("v6.7", 189, 0),
        ("v7.2", 190, FLAG),
        ("v6.6+p3", 253, FLAG),  # V2 of the series: > 4 * 63 = 252
        ("v6.6+p3", 252, 0),
        ("v6.6", 1 << 20, 0),  # no such flag
    ],
)
def test_a_cpu_whose_cache_holds_some_batches_keeps_one(kind, release, pages, expected):
    memory = kind(release, [Zone(4096, batch=63)], 2, data_cache_bytes=pages << 12)
    assert flags(memory) == [expected, expected]


@BOTH
def test_the_flag_is_set_when_a_cpu_comes_and_by_the_batch_of_then(kind):
    memory = kind("v6.18", [Zone(4096, batch=63)], 2, online=[0], data_cache_bytes=150 << 12)
    assert flags(memory) == [0, 0]
    memory.zone_pcp_disable(0)  # batch 1: 150 > 3, but nothing asks yet
    assert flags(memory) == [0, 0]
    memory.cpu_online(1)
    assert flags(memory) == [FLAG, FLAG]
    memory.zone_pcp_enable(0)
    assert flags(memory) == [FLAG, FLAG]


@BOTH
def test_a_free_that_tries_its_locks_is_of_the_releases_that_have_it(kind):
    """free_pages_nolock(), v6.15."""
    for release in ("v6.16", pm.release("v6.12").plus("nolock")):
        memory = kind(release, [Zone(4096, batch=7)], 1)
        memory.free(0, memory.alloc(0), nolock=True)
    memory = kind("v6.12", [Zone(4096, batch=7)], 1)
    pfn = memory.alloc(0)
    with pytest.raises(InputError, match=r"'v6\.12' has no free_pages_nolock\(\); v6\.15 has"):
        memory.free(0, pfn, nolock=True)
    memory.free(0, pfn)  # nothing had been freed


@BOTH
def test_sizes_when_cpus_come_and_go(kind):
    """zone_highsize(): the low watermark over the CPUs of the node, the one that comes included."""
    zone = Zone(8192, watermarks=(800, 1200, 1600), batch=7, high_max=2000)
    memory = kind("v6.18", [zone], 4, online=[0, 1])
    assert sizes(memory) == (7, 600, 2000)  # 1200 / 2
    memory.cpu_online(2)
    assert sizes(memory) == sizes(memory, cpu=3) == (7, 400, 2000)  # 1200 / 3, of all CPUs
    memory.alloc(2)
    assert memory.state()[0]["pcp"][2]["count"] > 0
    memory.cpu_dead(2)
    assert sizes(memory) == (7, 600, 2000)
    assert memory.state()[0]["pcp"][2]["count"] == 0
    with pytest.raises(InputError, match="is not online"):
        memory.cpu_dead(2)


@BOTH
def test_the_fraction_and_new_watermarks_resize_and_high_follows_at_its_next_use(kind):
    memory = kind("v6.18", [Zone(8192, watermarks=(800, 1200, 1600), batch=7)], 2)
    before = memory.state()[0]["pcp"][0]["high"]
    memory.set_percpu_pagelist_high_fraction(8)
    assert sizes(memory) == (7, 512, 512)  # 8192 / 8 / 2 CPUs
    assert memory.state()[0]["pcp"][0]["high"] == before
    memory.alloc()
    assert memory.state()[0]["pcp"][0]["high"] == 512
    memory.set_percpu_pagelist_high_fraction(0)
    assert sizes(memory) == (7, 600, 512)  # 1200 / 2; a share of 8 is the most there is
    memory.set_watermarks(0, 800, 1000, 1600)
    assert sizes(memory)[1] == 500


@BOTH
def test_lists_that_are_disabled_keep_nothing_and_get_their_sizes_back(kind):
    memory = kind("v6.18", [Zone(4096, batch=7, high_min=28, high_max=512)], 2)
    pfn = memory.alloc()
    memory.zone_pcp_disable(0)
    assert sizes(memory) == sizes(memory, cpu=1) == (1, 0, 0)
    assert memory.state()[0]["pcp"][0]["count"] == 0
    memory.free(0, pfn)  # drained at once
    assert memory.state()[0]["pcp"][0]["count"] == 0
    with pytest.raises(InputError, match="is disabled already"):
        memory.zone_pcp_disable(0)
    memory.zone_pcp_enable(0)
    assert sizes(memory) == (7, 28, 512)
    with pytest.raises(InputError, match="is not disabled"):
        memory.zone_pcp_enable(0)


@BOTH
@pytest.mark.parametrize(("batch", "high"), [(7, 28), (15, 60), (31, 124), (None, 252)])
def test_a_batch_of_ones_own_gives_its_own_least_high(kind, batch, high):
    """zone_highsize(): max(total / CPUs, 4 batches), of the batch in use."""
    mem = kind("v7.2", [Zone(1 << 18, batch=batch, watermarks=(50, 60, 70))], 112)
    assert sizes(mem)[1] == high


@BOTH
def test_a_fraction_that_is_there_already_resizes_nothing(kind):
    """percpu_pagelist_high_fraction_sysctl_handler(): no change, no new sizes."""
    mem = kind("v7.2", [Zone(1 << 18, watermarks=(100, 4000, 4100))], 2)
    before = sizes(mem)
    mem.set_watermark_boost(0, 2000)
    mem.set_percpu_pagelist_high_fraction(0)
    assert sizes(mem) == before
    with pytest.raises(InputError, match="8 to 2147483647"):
        mem.set_percpu_pagelist_high_fraction(1 << 31)


@BOTH
def test_the_statistics_of_a_cpu_that_went_away_are_folded(kind):
    """page_alloc_cpu_dead(): cpu_vm_stats_fold(); the first tick after it comes finds nothing."""
    mem = kind("v7.2", [Zone(1 << 14, batch=7, high_min=28, high_max=28)], 2, cpu_node=[0, 1])
    mem.alloc(1)
    mem.cpu_dead(1)
    mem.cpu_online(1)
    assert not mem.refresh_cpu_vm_stats(1)

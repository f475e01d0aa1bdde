"""The page-granular caches against dictionaries that remember an order."""

# SPDX-License-Identifier: GPL-2.0-only

from collections import OrderedDict

import numpy as np
import pytest

from pcpmodel.errors import InputError
from pcpmodel.hardware.cache import PageCache


class SlowCache:
    """The same by the book: a dictionary per set, oldest first."""

    def __init__(self, cpus, own_sets, llc_sets, llc_cpus):
        self.llc_cpus = llc_cpus
        self.own = [[OrderedDict() for _ in range(own_sets)] for _ in range(cpus)]
        groups = (cpus - 1) // llc_cpus + 1
        self.llc = [[OrderedDict() for _ in range(llc_sets)] for _ in range(groups)]

    @staticmethod
    def look(sets, index, page, ways):
        lru = sets[index % len(sets)]
        hit = lru.pop(page, None) is not None
        lru[page] = True
        if len(lru) > ways:
            lru.popitem(last=False)
        return hit

    def touch(self, cpu, page):
        at = page * 2654435761 % 2**32
        own = self.look(self.own[cpu], at >> 12, page, 8)
        llc = self.look(self.llc[cpu // self.llc_cpus], at >> 8, page, 16)
        return 0 if own else (1 if llc else 2)


def test_agrees_with_the_slow_twin():
    rng = np.random.default_rng(1)
    fast, slow = PageCache(6, 64, 512, 3), SlowCache(6, 8, 32, 3)
    for _ in range(400):
        cpu = int(rng.integers(6))
        pages = (rng.zipf(1.2, 50) % 3000).astype(np.uint32)
        expected = [0, 0, 0]
        for page in pages:
            expected[slow.touch(cpu, int(page))] += 1
        assert fast.touch(cpu, pages) == tuple(expected)


def test_a_small_working_set_stays_and_a_large_one_does_not():
    cache = PageCache(2, 512, 16384, 2)
    small, large = np.arange(100, dtype=np.uint32), np.arange(100_000, dtype=np.uint32)
    assert cache.touch(0, small) == (0, 0, 100)
    own, _, memory = cache.touch(0, small)
    assert memory == 0
    assert own > 90
    cache.touch(0, large)
    assert cache.touch(0, small)[2] > 90


def test_a_neighbour_finds_pages_in_the_shared_cache_and_a_stranger_does_not():
    cache = PageCache(4, 64, 4096, 2)
    pages = np.arange(1000, dtype=np.uint32)
    cache.touch(0, pages)
    assert cache.touch(1, pages)[1] == 1000
    assert cache.touch(2, pages)[2] == 1000


def test_sizes_are_rounded_down_to_a_power_of_two_sets():
    cache = PageCache(1, 300, 1000, 1)
    assert (cache.private_pages, cache.llc_pages) == (256, 512)


@pytest.mark.parametrize(
    "bad",
    [(0, 64, 512, 1), (1, 4, 512, 1), (1, 64, 1 << 25, 1), (1, 64.0, 512, 1), (1, 64, 512, 0)],
)
def test_impossible_caches_are_refused(bad):
    with pytest.raises(InputError):
        PageCache(*bad)
    with pytest.raises(InputError, match="outside"):
        PageCache(1, 64, 512, 1).touch(1, np.zeros(1, np.uint32))

"""The page-granular caches against dictionaries that remember an order."""

# SPDX-License-Identifier: GPL-2.0-only

from collections import OrderedDict

import numpy as np
import pytest

from pcpmodel.errors import InputError
from pcpmodel.hardware.cache import PageCache


class SlowCache:
    """The same by the book: a dictionary per set, oldest first."""

    def __init__(self, cpus, own_sets, llc_sets, llc_of):
        self.llc_of = llc_of
        self.own = [[OrderedDict() for _ in range(own_sets)] for _ in range(cpus)]
        self.llc = [[OrderedDict() for _ in range(llc_sets)] for _ in set(llc_of)]

    @staticmethod
    def look(sets, index, page, ways, cpu):
        lru = sets[index * len(sets) >> 32]
        hit = lru.pop(page, None)
        lru[page] = cpu
        if len(lru) > ways:
            lru.popitem(last=False)
        return hit

    def touch(self, cpu, page):
        at = page * 2654435761 % 2**32
        own = self.look(self.own[cpu], at, page, 8, cpu)
        llc = self.look(self.llc[self.llc_of[cpu]], at, page, 16, cpu)
        if own is not None and llc in (None, cpu):
            return 0
        return 2 if llc is None else 1


def test_agrees_with_the_slow_twin():
    rng = np.random.default_rng(1)
    llc_of = [0, 1, 0, 1, 1, 0]
    fast, slow = PageCache(6, 72, 560, llc_of), SlowCache(6, 9, 35, llc_of)
    for _ in range(400):
        cpu = int(rng.integers(6))
        pages = (rng.zipf(1.2, 50) % 3000).astype(np.uint32)
        expected = [0, 0, 0]
        for page in pages:
            expected[slow.touch(cpu, int(page))] += 1
        assert fast.touch(cpu, pages) == tuple(expected)


def test_a_small_working_set_stays_and_a_large_one_does_not():
    cache = PageCache(2, 512, 16384, [0, 0])
    small, large = np.arange(100, dtype=np.uint32), np.arange(100_000, dtype=np.uint32)
    assert cache.touch(0, small) == (0, 0, 100)
    own, _, memory = cache.touch(0, small)
    assert memory == 0
    assert own > 90
    cache.touch(0, large)
    assert cache.touch(0, small)[2] > 90


def test_a_neighbour_finds_pages_in_the_shared_cache_and_a_stranger_does_not():
    cache = PageCache(4, 64, 4096, [0, 0, 1, 1])
    pages = np.arange(1000, dtype=np.uint32)
    cache.touch(0, pages)
    assert cache.touch(1, pages)[1] == 1000
    assert cache.touch(2, pages)[2] == 1000


def test_what_a_neighbour_has_used_since_is_in_no_private_cache():
    cache = PageCache(3, 64, 4096, [0, 0, 1])
    pages = np.arange(8, dtype=np.uint32)
    cache.touch(0, pages)
    assert cache.touch(0, pages)[0] == 8
    cache.touch(1, pages)
    assert cache.touch(0, pages) == (0, 8, 0)


def test_sizes_are_rounded_down_to_whole_sets():
    cache = PageCache(1, 300, 1000, [0])
    assert (cache.private_pages, cache.llc_pages) == (296, 992)


@pytest.mark.parametrize(
    "bad",
    [
        (0, 64, 512, []),
        (1, 4, 512, [0]),
        (1, 64, 1 << 25, [0]),
        (1, 64.0, 512, [0]),
        (1, 64, 512, [1]),
        (2, 64, 512, [0]),
    ],
)
def test_impossible_caches_are_refused(bad):
    with pytest.raises(InputError):
        PageCache(*bad)
    with pytest.raises(InputError, match="outside"):
        PageCache(1, 64, 512, [0]).touch(1, np.zeros(1, np.uint32))


def test_pages_have_numbers_that_leave_room_for_none():
    with pytest.raises(InputError, match="outside"):
        PageCache(1, 64, 512, [0]).touch(0, np.array([1, 2**32 - 1], np.uint32))
    assert PageCache(1, 64, 512, [0]).touch(0, np.array([2**32 - 2] * 2, np.uint32)) == (1, 0, 1)

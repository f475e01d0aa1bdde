"""Allocations and frees through the per-CPU lists: core, twin, and plain dicts and deques.

Every benchmark reports ``ns_per_page`` of an allocation or free, by CPU time.
The peers see the same zone, the same bursts and the same release, so that
their ratio to the core is of one run.
"""

import time
from collections import deque

import numpy as np
import pytest

from pcpmodel.kernel import memory, reference
from pcpmodel.kernel.zone import Zone

RELEASES = ["debian-6.1.192", "v6.18", "v7.2"]
BURST = 16384
GIB = 1 << 18  # pages


class DequeModel:
    """What one would write in an afternoon: PCP and free lists as deques, merges by a dict.

    One type, order 0, fixed batch and high; free list entries are deleted lazily.
    """

    def __init__(self, pages, batch, high):
        self.batch, self.high = batch, high
        self.pcp = deque()
        self.lists = [deque() for _ in range(11)]
        self.order = {}
        for pfn in range(0, pages, 1024):
            self.lists[10].append(pfn)
            self.order[pfn] = 10

    def alloc(self):
        if not self.pcp:
            self.pcp.extend(self.take() for _ in range(self.batch))
        return self.pcp.popleft()

    def take(self):
        for order in range(11):
            blocks = self.lists[order]
            while blocks:
                pfn = blocks.popleft()
                if self.order.get(pfn) == order:
                    del self.order[pfn]
                    while order:
                        order -= 1
                        self.put(pfn + (1 << order), order)
                    return pfn
        raise MemoryError

    def put(self, pfn, order):
        self.order[pfn] = order
        self.lists[order].appendleft(pfn)

    def free(self, pfn):
        self.pcp.appendleft(pfn)
        if len(self.pcp) >= self.high:
            for _ in range(self.batch):
                self.merge(self.pcp.pop())

    def merge(self, pfn):
        order = 0
        while order < 10 and self.order.get(pfn ^ 1 << order) == order:
            del self.order[pfn ^ 1 << order]
            pfn &= ~(1 << order)
            order += 1
        self.put(pfn, order)


def report(benchmark, run, pages, rounds):
    """Time ``run``, which allocates and frees ``pages`` pages each."""
    benchmark.pedantic(run, rounds=rounds, warmup_rounds=2)
    benchmark.extra_info["ns_per_page"] = benchmark.stats.stats.median / (2 * pages) * 1e9


cpu_time = pytest.mark.benchmark(timer=time.process_time)


@cpu_time
@pytest.mark.parametrize("release", RELEASES)
def test_fresh_zone_core(benchmark, release):
    mem = memory.Memory(release, [Zone(4 * GIB)])
    pfns = np.zeros(BURST, np.int64)

    def run():
        mem.alloc_many(pfns)
        mem.free_many(pfns)

    report(benchmark, run, BURST, 50)


@cpu_time
@pytest.mark.parametrize("release", RELEASES)
def test_fresh_zone_core_one_call_per_page(benchmark, release):
    mem = memory.Memory(release, [Zone(4 * GIB)])

    def run():
        for pfn in [mem.alloc() for _ in range(2000)]:
            mem.free(0, pfn)

    report(benchmark, run, 2000, 10)


@cpu_time
@pytest.mark.parametrize("release", RELEASES)
def test_fresh_zone_twin(benchmark, release):
    mem = reference.Memory(release, [Zone(8192, batch=63, high_min=500, high_max=2000)])

    def run():
        for pfn in [mem.alloc() for _ in range(2000)]:
            mem.free(0, pfn)

    report(benchmark, run, 2000, 5)


@cpu_time
def test_fresh_zone_deques(benchmark):
    mem = DequeModel(4 * GIB, 63, 565)

    def run():
        for pfn in [mem.alloc() for _ in range(BURST)]:
            mem.free(pfn)

    report(benchmark, run, BURST, 10)


def aged_bursts(mem, alloc, free, gib):
    """Half of the memory free in single pages; then bursts of frees of random pages."""
    pages = gib * GIB - 4096
    held = alloc(pages)
    np.random.default_rng(1).shuffle(held)
    free(held[: pages // 2])
    held = held[pages // 2 :]
    at = 0

    def run():
        nonlocal at
        new = alloc(BURST)
        old = held[at : at + BURST].copy()
        held[at : at + BURST] = new
        at = (at + BURST) % (len(held) - BURST)
        free(old)

    return run


@cpu_time
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("fixed", [False, True], ids=["tuned high", "every page drained"])
@pytest.mark.parametrize("gib", [1, 64])
def test_aged_zone_core(benchmark, release, gib, fixed):
    sizes = {"batch": 63, "high_min": 500, "high_max": 500} if fixed else {}
    mem = memory.Memory(release, [Zone(gib * GIB, managed=gib * GIB, **sizes)])

    def alloc(n):
        pfns = np.zeros(n, np.int64)
        assert mem.alloc_many(pfns) == n
        return pfns

    report(benchmark, aged_bursts(mem, alloc, mem.free_many, gib), BURST, 60)


@cpu_time
def test_aged_zone_deques(benchmark):
    mem = DequeModel(GIB, 63, 500)

    def alloc(n):
        return np.array([mem.alloc() for _ in range(n)])

    def free(pfns):
        for pfn in pfns.tolist():
            mem.free(pfn)

    report(benchmark, aged_bursts(mem, alloc, free, 1), BURST, 5)

"""Speed of the page-granular caches: nanoseconds per touch."""

# SPDX-License-Identifier: GPL-2.0-only

import time

import numpy as np
import pytest

from pcpmodel.hardware.cache import PageCache

pytestmark = pytest.mark.benchmark(timer=time.process_time, group="machine: cache touches")


@pytest.mark.parametrize("pages", [200, 5_000, 1_000_000], ids=["private", "shared", "memory"])
def test_touch(benchmark, pages):
    cache = PageCache(112, 256, 26880, [0] * 112)
    touched = np.tile(np.arange(pages, dtype=np.uint32), max(1, 1_000_000 // pages))
    benchmark.pedantic(lambda: cache.touch(0, touched), rounds=5, warmup_rounds=1)
    ns = 1e9 * benchmark.stats["median"] / len(touched)
    benchmark.extra_info["ns_per_touch"] = ns
    print(f"\n{ns:.1f} ns per touch")

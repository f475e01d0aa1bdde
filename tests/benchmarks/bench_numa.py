"""Speed of the hint-fault engine: nanoseconds per fault, and the ratio to its twin.

Both run the same work, drawn from the same numbers; the published experiment
at full size (37 million faults, 9 million migrations, 64 threads) is timed once.
"""

# SPDX-License-Identifier: GPL-2.0-only

import time

import pytest

from pcpmodel.kernel.reference import Memory as SlowMemory
from pcpmodel.numa import clock, experiment, reference
from pcpmodel.numa.nodes import nodes
from pcpmodel.numa.runs import weights

KERNEL = "v5.13"
pytestmark = pytest.mark.benchmark(timer=time.process_time)


def prepared(kind, scale, memory=None):
    """A run that is ready to start."""
    given = experiment(scale=scale)
    config = given.config(KERNEL)
    pages = nodes(config) if memory is None else nodes(config, memory)
    return kind(config, weights(given.pattern, given.pages), pages)


def timed(benchmark, kind, scale, rounds, memory=None):
    benchmark.group = "numa: hint faults"
    counts = benchmark.pedantic(
        lambda run: run.run(),
        setup=lambda: ((prepared(kind, scale, memory),), {}),
        rounds=rounds,
    )
    faults = counts["hint_faults"]
    benchmark.extra_info["hint_faults"] = faults
    benchmark.extra_info["ns_per_fault"] = 1e9 * benchmark.stats["min"] / faults
    return counts


def test_engine(benchmark):
    timed(benchmark, clock.Engine, 0.002, 5)


def test_twin(benchmark):
    timed(benchmark, reference.Engine, 0.0005, 1, SlowMemory)


def test_engine_at_the_twins_size(benchmark):
    timed(benchmark, clock.Engine, 0.0005, 5)
    fast = benchmark.stats["min"]
    slow = prepared(reference.Engine, 0.0005, SlowMemory)
    start = time.process_time()
    slow.run()
    ratio = (time.process_time() - start) / fast
    benchmark.extra_info["ratio_to_twin"] = ratio
    print(f"\n{benchmark.extra_info['ns_per_fault']:.0f} ns per fault, {ratio:.0f}x the twin")
    assert ratio > 20


def test_full_size(benchmark):
    """The published experiment: less than a minute on one core."""
    benchmark.group = "numa: published experiment"
    counts = benchmark.pedantic(
        lambda run: run.run(), setup=lambda: ((prepared(clock.Engine, 1.0),), {}), rounds=1
    )
    assert counts["migrated_pages"] == pytest.approx(9.2e6, rel=0.02)
    benchmark.extra_info["ns_per_fault"] = 1e9 * benchmark.stats["min"] / counts["hint_faults"]

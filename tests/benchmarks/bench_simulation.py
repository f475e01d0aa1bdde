"""Speed of the simulator: nanoseconds per lock event, and the ratios to slower ways.

One model throughout: 224 CPUs over two zones, page_fault1 under v6.6 with a fixed
``high``.  The event engine is set against the per-page engine, the same events in
pure Python, and SimPy, all in this run.  Times are CPU times of this process.
"""

# SPDX-License-Identifier: GPL-2.0-only

import heapq
import multiprocessing
import random
import re
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import simpy

import pcpmodel as pm
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.pilot import prepare
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.spec import make_spec

pytestmark = pytest.mark.benchmark(timer=time.process_time)

CPUS, ZONES, BATCH, HIGH, PAGES = 224, 2, 63, 361, 32768
FAULT_NS, UNMAP_NS = 1441.2, 77.8
MACHINE = pm.machine("sapphire-rapids")


def spec(**options):
    return make_spec(
        **{
            "release": "v6.6",
            "machine": MACHINE,
            "workload": pm.workload.page_fault1(CPUS, fault_ns=FAULT_NS, unmap_ns=UNMAP_NS),
            "cpus": CPUS,
            "nodes": ZONES,
            "memory_gib": 512.0,
            "seconds": 1.0,
            "high_pages": HIGH,
            **options,
        }
    )


def timed(benchmark, kind, run, rounds):
    benchmark.group = "simulation: counts only, 224 CPUs, 2 zones"
    states = []

    def setup():
        states.append(prepare(run))
        return (kind(states[-1]),), {}

    benchmark.pedantic(lambda engine: engine.run(), setup=setup, rounds=rounds)
    took, events = benchmark.stats["median"], states[-1].events
    benchmark.extra_info |= {
        "events": events,
        "ns_per_event": 1e9 * took / events,
        "real_time_factor": run.seconds / took,
    }
    return took / events


class PythonCpu:
    """The lists of one CPU by count, as v6.6 has them, and what it does next."""

    def __init__(self, number):
        self.zone = number % ZONES
        self.count = self.free_factor = self.done = 0
        self.allocating = True

    def next_hold(self, cost):
        """Run on to the next lock hold: (work before it, how long it takes) [ns]."""
        work = 0.0
        while True:
            if self.allocating:
                hits = min(self.count, PAGES - self.done)
                self.count -= hits
                self.done += hits
                work += hits * FAULT_NS
                if hits:
                    self.free_factor >>= min(hits, 31)
                if self.done < PAGES:
                    self.count = BATCH
                    self.free_factor >>= 1
                    return work, cost[0][BATCH]
                self.allocating, self.done = False, 0
            frees = min(HIGH - self.count, PAGES - self.done)
            self.count += frees
            self.done += frees
            work += frees * UNMAP_NS
            if self.count >= HIGH:
                pages = BATCH << self.free_factor
                if pages < HIGH - BATCH:
                    self.free_factor += 1
                pages = max(min(pages, HIGH - BATCH), BATCH)
                self.count -= pages
                return work, cost[1][pages]
            self.allocating, self.done = True, 0


def costs():
    hold = MACHINE.hold_time
    return [[side(max(n, 1)).mean_ns for n in range(HIGH)] for side in (hold.refill, hold.drain)]


def in_python(end_ns, cost):
    """The same events with a heap; returns how many."""
    rng = random.Random(1)
    free_at, events, heap = [0.0] * ZONES, 0, []
    cpus = [PythonCpu(i) for i in range(CPUS)]
    for i, cpu in enumerate(cpus):
        work, hold = cpu.next_hold(cost)
        heap.append((work * rng.gammavariate(25, 0.04), i, hold))
    heapq.heapify(heap)
    while heap[0][0] < end_ns:
        now, i, hold = heap[0]
        cpu = cpus[i]
        done = max(now, free_at[cpu.zone]) + hold * rng.lognormvariate(-0.02, 0.2)
        free_at[cpu.zone] = done
        work, hold = cpu.next_hold(cost)
        heapq.heapreplace(heap, (done + work * rng.gammavariate(25, 0.04), i, hold))
        events += 1
    return events


def in_simpy(end_ns, cost):
    """The same model as processes and resources; returns the lock holds."""
    rng, env, holds = random.Random(1), simpy.Environment(), [0]
    locks = [simpy.Resource(env) for _ in range(ZONES)]

    def run(cpu):
        while True:
            work, hold = cpu.next_hold(cost)
            yield env.timeout(work * rng.gammavariate(25, 0.04))
            with locks[cpu.zone].request() as request:
                yield request
                yield env.timeout(hold * rng.lognormvariate(-0.02, 0.2))
            holds[0] += 1

    for i in range(CPUS):
        env.process(run(PythonCpu(i)))
    env.run(until=end_ns)
    return holds[0]


def test_event_engine(benchmark):
    per_event = timed(benchmark, Engine, spec(), 7)
    ratios = {}
    cost = costs()
    for name, model, seconds in (("python", in_python, 0.05), ("simpy", in_simpy, 0.02)):
        start = time.process_time()
        events = model(seconds * 1e9, cost)
        ratios[name] = (time.process_time() - start) / events / per_event
    state = prepare(spec(seconds=0.1))
    engine = PerPage(state)
    start = time.process_time()
    engine.run()
    ratios["per_page"] = (time.process_time() - start) / state.events / per_event
    benchmark.extra_info |= {f"ratio_to_{name}": ratio for name, ratio in ratios.items()}
    print(
        f"\n{1e9 * per_event:.1f} ns per lock event, "
        f"{benchmark.extra_info['real_time_factor']:.1f}x real time; "
        + ", ".join(f"{ratio:.0f}x {name}" for name, ratio in ratios.items())
    )
    assert ratios["simpy"] > 50
    assert ratios["per_page"] > 5


@pytest.mark.parametrize("release", ["v6.7", "v6.19", "v7.2"])
def test_event_engine_by_release(benchmark, release):
    timed(benchmark, Engine, spec(release=release, high_pages=1000), 5)


@pytest.mark.parametrize("aged", [0.0, 0.5], ids=["fresh", "aged"])
def test_event_engine_with_page_identity(benchmark, aged):
    """Per page operation: every page of every allocation and free is moved."""
    benchmark.group = "simulation: page identity, 224 CPUs, 2 zones"
    run = spec(
        release="v6.7", high_pages=None, seconds=0.2, identity=True, aged=aged, memory_gib=128.0
    )
    states = []

    def setup():
        states.append(prepare(run))
        return (Engine(states[-1]),), {}

    benchmark.pedantic(lambda engine: engine.run(), setup=setup, rounds=3)
    pages = sum(c["alloc_pages"] + c["free_pages"] for c in states[-1].counters())
    took = benchmark.stats["median"]
    benchmark.extra_info |= {
        "page_operations": pages,
        "ns_per_page_operation": 1e9 * took / pages,
        "real_time_factor": run.seconds / took,
    }
    print(f"\n{1e9 * took / pages:.1f} ns per page operation, {run.seconds / took:.2f}x real time")


def test_per_page_engine(benchmark):
    timed(benchmark, PerPage, spec(seconds=0.1), 1)


def test_thousand_cells(benchmark):
    """1000 runs of 224 CPUs, one simulated second each, on the threads of this host."""
    benchmark.group = "simulation: sweep"
    grid = {
        "release": ["v6.6", "v6.6+p3", "v6.7", "v6.18", "v6.19"],
        "high_pages": [361, 600, 1000, 2000, 5000],
        "batch_scale_max": [0, 2, 4, 5, 6],
        "seed": list(range(1, 9)),
    }
    start = time.perf_counter()
    data = benchmark.pedantic(lambda: pm.sweep(spec(), **grid), rounds=1)
    took = time.perf_counter() - start
    assert data["refills"].size == 1000
    benchmark.extra_info["wall_s"] = took
    print(f"\n1000 runs in {took:.1f} s")


def peak_mib(identity):
    """Peak memory of a process in which one run is all that is done [MiB].

    ``ru_maxrss`` would be that of the process that started it, too.
    """
    execute(spec(memory_gib=1024.0, identity=identity, seconds=0.1))
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.M)[1]) / 1024


@pytest.mark.benchmark(timer=time.perf_counter)
@pytest.mark.parametrize("identity", [False, True])
def test_memory(benchmark, identity):
    """Memory of one run with 224 CPUs and 1 TiB, by count and by page, the interpreter included."""
    benchmark.group = "simulation: memory"
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        used = benchmark.pedantic(lambda: alone.submit(peak_mib, identity).result(), rounds=1)
    benchmark.extra_info["peak_rss_mib"] = used
    print(f"\n{used:.0f} MiB at the peak")

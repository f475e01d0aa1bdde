"""The compiled allocator and its slow twin agree on any mix of operations, state and events."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import pcpmodel as pm
from helpers.kernels import kernels
from pcpmodel.kernel import memory, reference
from pcpmodel.kernel.zone import Zone

orders = st.sampled_from([0, 0, 0, 0, 1, 2, 3, 4, 5, 8, 9, 10])
types = st.sampled_from([0, 1, 1, 2])
CPUS = 3
cpus = st.integers(0, CPUS - 1)
ODD = {"pages": 1037, "start_pfn": 0x1003}
SHAPES = [
    [{"pages": 2048, "start_pfn": 1024}],
    [{"pages": 4096, "start_pfn": 0, "watermarks": (40, 60, 200)}],
    [
        {**ODD, "name": "DMA32", "holes": ((0x1100, 5), (0x1200, 64))},
        {"pages": 1536, "start_pfn": 4096 + 2048},
    ],
    [
        {"pages": 1024, "start_pfn": 0, "name": "DMA32"},
        {"pages": 1536, "start_pfn": 1024, "watermarks": (300, 400, 500)},
        {"pages": 1024, "start_pfn": 4096, "node": 1, "lowmem_reserve": (9, 9, 9, 9)},
        {"pages": 512, "start_pfn": 8192, "node": 1, "name": "Movable"},
    ],
]


@st.composite
def machines(draw):
    """Zones and sizes of a small machine."""
    sizes = {
        "batch": draw(st.sampled_from([1, 3, 7, 15, 31])),
        "high_min": draw(st.sampled_from([0, 4, 28, 60, 124])),
        "high_max": draw(st.sampled_from([60, 124, 400, 1500])),
    }
    sized = draw(st.booleans())
    zones = []
    for shape in draw(st.sampled_from(SHAPES)):
        low = draw(st.integers(0, shape["pages"]))
        marks = {} if draw(st.booleans()) else {"watermarks": (low // 2, low, low * 2)}
        zones.append(Zone(**{**shape, **marks, **(sizes if sized else {})}))
    nodes = max(zone.node for zone in zones) + 1
    return zones, [cpu % nodes for cpu in range(CPUS)]


class Twins(RuleBasedStateMachine):
    """Every rule does the same to both."""

    def __init__(self):
        super().__init__()
        self.blocks = []

    @initialize(
        kernel=kernels(),
        machine=machines(),
        cache=st.sampled_from([0, 1 << 20]),
        online=st.sampled_from([None, [0], [0, 2]]),
        holders=st.integers(0, 3),
        data=st.data(),
    )
    def boot(self, kernel, machine, cache, online, holders, data):
        zones, cpu_node = machine
        self.pair = [
            make(kernel, zones, CPUS, cpu_node=cpu_node, data_cache_bytes=cache, online=online)
            for make in (memory.Memory, reference.Memory)
        ]
        self.core, self.twin = self.pair
        self.zones = zones
        self.total = sum(zone.pages - sum(n for _, n in zone.holes) for zone in zones)
        for mem in self.pair:
            mem.record_events()
        # Age the memory: take everything, give some of it back.
        seed = data.draw(st.integers(0, 2**32 - 1))
        rng = np.random.default_rng(seed)
        for _ in range(holders):
            held = []
            for _ in range(60):
                order = int(rng.integers(0, 7))
                pfn = self.both("alloc", 0, order, int(rng.integers(0, 3)))
                if pfn is not None:
                    held.append((pfn, order))
            rng.shuffle(held)
            for pfn, order in held[:45]:
                self.both("free", int(rng.integers(0, CPUS)), int(pfn), int(order))
            self.blocks += [(int(p), int(o)) for p, o in held[45:]]

    def both(self, name, *args, **kwargs):
        """Call both; the same result, or the same refusal."""
        results = []
        for mem in self.pair:
            try:
                results.append(getattr(mem, name)(*args, **kwargs))
            except pm.InputError as error:
                results.append(str(error))
        assert results[0] == results[1]
        return results[0]

    def got(self, pfn, order=0):
        if pfn is not None:
            self.blocks.append((pfn, order))

    def pick(self, data, most=1):
        """Some of the blocks in use."""
        n = min(len(self.blocks), data.draw(st.integers(1, most), label="blocks"))
        start = data.draw(st.integers(0, len(self.blocks) - n), label="from")
        picked = self.blocks[start : start + n]
        del self.blocks[start : start + n]
        if data.draw(st.booleans(), label="backwards"):
            picked.reverse()
        return picked

    @rule(cpu=cpus, order=orders, mt=types, gfp=st.sampled_from(["kernel", "atomic", "nowait"]))
    def alloc(self, cpu, order, mt, gfp):
        self.got(self.both("alloc", cpu, order, mt, gfp=gfp), order)

    @rule(cpu=cpus, order=st.sampled_from([0, 0, 1, 2, 3, 4]), mt=types, n=st.integers(1, 400))
    def alloc_many(self, cpu, order, mt, n):
        n >>= order
        out = np.zeros(n, np.int64)
        served = self.core.alloc_many(out, cpu, order, mt)
        expected = [self.twin.alloc(cpu, order, mt) for _ in range(min(n, served + 1))]
        assert out[:served].tolist() == expected[:served]
        assert expected[served:] in ([], [None])
        self.blocks += [(pfn, order) for pfn in expected[:served]]

    @rule(
        cpu=cpus,
        order=orders,
        mt=types,
        direct=st.booleans(),
        flags=st.sampled_from([0, 0x800, 0x100, 0x200, 0xA00, 0x10, 0x8, 0x880]),
        data=st.data(),
    )
    def alloc_from(self, cpu, order, mt, direct, flags, data):
        zone = data.draw(st.integers(0, len(self.zones) - 1))
        pfn = self.both("alloc_from", zone, cpu, order, mt, direct=direct, alloc_flags=flags)
        self.got(pfn, order)

    @rule(cpu=cpus, n=st.integers(0, 90), mt=types)
    def alloc_pages_bulk(self, cpu, n, mt):
        for pfn in self.both("alloc_pages_bulk", cpu, n, mt):
            self.got(pfn)

    @precondition(lambda self: self.blocks)
    @rule(cpu=cpus, nolock=st.booleans(), data=st.data())
    def free(self, cpu, nolock, data):
        for pfn, order in self.pick(data, 30):
            there = nolock and self.core.release.rules.nolock
            assert self.both("free", cpu, pfn, order, nolock=there) is None

    @precondition(lambda self: self.blocks)
    @rule(cpu=cpus, data=st.data())
    def free_many(self, cpu, data):
        pages = [p for pfn, o in self.pick(data, 150) for p in range(pfn, pfn + 2**o)][:700]
        self.core.free_many(np.array(pages, np.int64), cpu)
        for pfn in pages:
            self.twin.free(cpu, pfn)

    @precondition(lambda self: self.blocks)
    @rule(cpu=cpus, data=st.data())
    def free_past_the_lists(self, cpu, data):
        for pfn, order in self.pick(data, 10):
            assert self.both("free_direct", cpu, pfn, order) is None

    @precondition(lambda self: self.blocks)
    @rule(cpu=cpus, data=st.data())
    def free_batch(self, cpu, data):
        picked = self.pick(data, 31)
        refused = self.both("free_batch", cpu, picked)
        if refused is not None:
            assert "order 0 only" in refused
            self.both("free_batch", cpu, [(pfn, 0) for pfn, order in picked if order == 0])

    @precondition(lambda self: self.blocks)
    @rule(cpu=cpus, data=st.data())
    def free_pages_bulk(self, cpu, data):
        pages = [p for pfn, o in self.pick(data, 40) for p in range(pfn, pfn + 2**o)]
        assert self.both("free_pages_bulk", cpu, pages) is None

    @rule(cpu=cpus, data=st.data(), order=orders)
    def free_any(self, cpu, data, order):
        """A block that may or may not be in use, as the caller thinks or not."""
        zone = data.draw(st.sampled_from(self.zones))
        pfn = data.draw(st.integers(zone.start_pfn, zone.end_pfn)) >> order << order
        if self.both("free", cpu, pfn, order) is None:
            self.blocks = [(p, o) for p, o in self.blocks if p + 2**o <= pfn or p >= pfn + 2**order]

    @rule(cpu=cpus, data=st.data())
    def tick(self, cpu, data):
        for _ in range(data.draw(st.integers(1, 5))):
            self.both("refresh_cpu_vm_stats", cpu)

    @rule(cpu=cpus, data=st.data(), how=st.sampled_from(["pages_zone", "zone_pages"]))
    def drain(self, cpu, data, how):
        self.both(f"drain_{how}", cpu, data.draw(st.integers(0, len(self.zones) - 1)))

    @rule(data=st.data(), flags=st.sampled_from([0, 0, 2, 4, 6]))
    def zone_events(self, data, flags):
        zone = data.draw(st.integers(0, len(self.zones) - 1))
        self.both("set_flags", zone, flags)
        if data.draw(st.booleans()):
            self.both("set_watermark_boost", zone, 0)
        self.both("set_kswapd_running", self.zones[zone].node, data.draw(st.booleans()))

    @rule(data=st.data(), low=st.integers(0, 600))
    def new_watermarks(self, data, low):
        zone = data.draw(st.integers(0, len(self.zones) - 1))
        self.both("set_watermarks", zone, low // 2, low, low * 2)

    @rule(fraction=st.sampled_from([0, 7, 8, 100]))
    def fraction(self, fraction):
        self.both("set_percpu_pagelist_high_fraction", fraction)

    @rule(cpu=cpus, event=st.sampled_from(["cpu_online", "cpu_dead"]))
    def hotplug(self, cpu, event):
        self.both(event, cpu)

    @rule(data=st.data(), event=st.sampled_from(["zone_pcp_disable", "zone_pcp_enable"]))
    def disable(self, data, event):
        self.both(event, data.draw(st.integers(0, len(self.zones) - 1)))

    @rule(data=st.data(), event=st.sampled_from(["set_isolate", "unset_isolate"]))
    def isolate(self, data, event):
        zone = data.draw(st.sampled_from(self.zones))
        self.both(event, data.draw(st.integers(zone.start_pfn, zone.end_pfn - 1)))

    @rule(data=st.data())
    def compact(self, data):
        heads = [
            pfn for state in self.twin.state() for pfns in state["free"].values() for pfn in pfns
        ]
        if heads:
            self.both("isolate_free_page", data.draw(st.sampled_from(sorted(heads))))

    @rule(cpu=cpus, mt=types, force=st.booleans())
    def unreserve(self, cpu, mt, force):
        self.both("unreserve_highatomic_pageblock", cpu, mt, force=force)

    @rule(data=st.data())
    def save_and_load(self, data):
        zone = data.draw(st.integers(0, len(self.zones) - 1))
        saved = self.twin.state()[zone]
        for mem in self.pair:
            mem.load(zone, saved)

    @invariant()
    def same_events(self):
        if hasattr(self, "core"):
            core, twin = (mem.take_events() for mem in self.pair)
            assert core == twin

    @invariant()
    def same_state(self):
        if not hasattr(self, "core"):
            return
        core, twin = (mem.state() for mem in self.pair)
        assert core == twin
        pages = []
        for zone, state in zip(self.zones, core, strict=True):
            check_lists(zone, state, self.core.release.rules)
            pages += list(listed(state))
            pages += [p for pfn, n, _ in state["held"] for p in range(pfn, pfn + n)]
        assert len(pages) == len(set(pages)) == self.total


def listed(state):
    """Every page on a free list or PCP list."""
    for (order, _), pfns in state["free"].items():
        for pfn in pfns:
            yield from range(pfn, pfn + 2**order)
    for pcp in state["pcp"]:
        for i, pfns in pcp["lists"].items():
            for pfn in pfns:
                yield from range(pfn, pfn + 2 ** (i // 3 if i < 12 else 9))


def check_lists(zone, state, rules):
    """Counts, orders and types of one zone."""
    for pcp in state["pcp"]:
        blocks = {i: len(pfns) << (i // 3 if i < 12 else 9) for i, pfns in pcp["lists"].items()}
        assert pcp["count"] == sum(blocks.values())
    assert state["nr_free"] == sum(
        len(pfns) << order for (order, mt), pfns in state["free"].items() if mt != 5
    )
    heads = {(pfn, order) for (order, _), pfns in state["free"].items() for pfn in pfns}
    for pfn, order in heads:
        assert pfn % 2**order == 0
        if order < 9:
            assert (pfn ^ 2**order, order) not in heads, "two free buddies did not merge"
    if rules.drain_block_type and not state["isolated"]:
        first = zone.start_pfn // 512
        for (_, mt), pfns in state["free"].items():
            assert {state["blocks"][pfn // 512 - first] for pfn in pfns} <= {mt}


@pytest.mark.hypothesis
def test_core_and_twin_agree_on_any_mix():
    run_state_machine_as_test(
        Twins,
        settings=settings(
            max_examples=80,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.hypothesis
@pytest.mark.long
@pytest.mark.slow
def test_core_and_twin_agree_on_many_mixes():
    run_state_machine_as_test(
        Twins,
        settings=settings(
            max_examples=800,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

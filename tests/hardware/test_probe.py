"""Probes: what they time is what they say, and what cannot be measured is named."""

# SPDX-License-Identifier: GPL-2.0-only

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from pcpmodel.errors import InputError
from pcpmodel.hardware import probe
from pcpmodel.hardware.probe import Probes, median_interval
from pcpmodel.hardware.probes import bounce, chase, clear, link, touch
from pcpmodel.proc.host import HostFiles

MIB = 1 << 20


@pytest.fixture
def host(tmp_path):
    """Two sockets of two cores of two threads: 0 and 4 are of one core, 0..3 of different ones."""
    cpu_dir = tmp_path / "sys/devices/system/cpu"

    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    write(cpu_dir / "online", "0-7")
    for cpu in range(8):
        core, socket = cpu % 4, cpu % 4 // 2
        cores = {2 * socket, 2 * socket + 1}
        topology, cache = cpu_dir / f"cpu{cpu}/topology", cpu_dir / f"cpu{cpu}/cache"
        write(topology / "thread_siblings_list", f"{core},{core + 4}")
        write(topology / "physical_package_id", socket)
        shared = ",".join(str(c + k) for c in sorted(cores) for k in (0, 4))
        for index, (kind, size, who) in enumerate(
            [("Data", 32, core), ("Unified", 1024, core), ("Unified", 32768, shared)]
        ):
            write(cache / f"index{index}/type", kind)
            write(cache / f"index{index}/size", f"{size}K")
            write(cache / f"index{index}/shared_cpu_list", who)
    for node in (0, 1):
        cpus = f"{2 * node},{2 * node + 1},{2 * node + 4},{2 * node + 5}"
        write(tmp_path / f"sys/devices/system/node/node{node}/cpulist", cpus)
    return HostFiles(tmp_path)


def test_distances(host):
    assert [host.distance(0, cpu) for cpu in (4, 1, 5, 2, 6)] == [
        "core", "llc", "llc", "node", "node",
    ]  # fmt: skip


def test_a_server_has_every_step_and_one_cpu_says_what_it_lacks(host):
    all_of_it = Probes(host, host.online, 256 * MIB)
    assert all_of_it.steps == [
        ("line_l2", ""),
        ("line_llc", ""),
        ("line_ahead", ""),
        ("line_memory", ""),
        ("line_memory", "node"),
        *(("line_dirty", d) for d in ("llc", "node", "core")),
        *(("handover", d) for d in ("llc", "node", "core")),
        ("clear_page", ""),
        ("clear_page_all", ""),
        ("smt_share", "core"),
        ("fault_entry", ""),
    ]
    assert [m.name for m in all_of_it.missing] == ["line_dirty, handover socket"]
    alone = Probes(host, [0], 64 * MIB)
    assert ("handover", "llc") not in alone.steps
    assert {m.name for m in alone.missing} >= {
        "line_memory", "clear_page_all", "smt_share", "line_dirty, handover core",
    }  # fmt: skip


def test_a_chase_visits_every_line_once_in_the_order_given():
    memory = np.zeros(8 * 100, dtype=np.uint64)
    order = np.random.default_rng(3).permutation(100)
    link(memory, order)
    at, seen = int(order[0]), []
    for _ in order:
        seen.append(at)
        _, at = chase(memory, at, 1)
    assert seen == list(order)
    assert at == order[0]
    assert chase(memory, int(order[0]), 100)[1] == order[0]
    with pytest.raises(InputError, match=r"outside 0\.\.99"):
        link(memory, np.array([0, 100]))


def test_two_sides_hand_a_line_over_and_one_alone_gives_up():
    line = np.zeros(8, dtype=np.uint64)
    got = {}
    sides = [
        threading.Thread(target=lambda s=side: got.update({s: bounce(line, s, 50, 20.0)}))
        for side in (0, 1)
    ]
    for side in sides:
        side.start()
    for side in sides:
        side.join()
    assert line[0] == 100
    assert min(got.values()) > 0
    assert bounce(np.zeros(8, dtype=np.uint64), 1, 1, 0.01) is None


def test_pages_are_touched_and_cleared():
    memory = np.full(4 * 4096, 7, dtype=np.uint8)
    assert touch(memory, np.array([2, 0]), 4096, True) > 0
    assert list(memory[::4096]) == [1, 7, 1, 7]
    assert clear(memory, 4096, 0.001) > 0
    assert not memory.any()
    with pytest.raises(InputError, match=r"outside 0\.\.3"):
        touch(memory, np.array([4]), 4096, False)


def test_the_interval_holds_the_median_of_most_samples_drawn():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        _, low, high = median_interval(rng.exponential(size=15))
        inside += low <= np.log(2) <= high
    assert 0.94 <= inside / 400 < 1
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)


def test_passes_that_do_not_agree_widen_the_interval_and_say_so(host):
    probes = Probes(host, host.online, 256 * MIB)
    steady, drifted = ("line_l2", ""), ("fault_entry", "")
    rounds = list(np.linspace(10, 11, probe.ROUNDS))
    probes._samples = {steady: [rounds, rounds], drifted: [rounds, [r + 5 for r in rounds]]}
    rows, unsteady = probes.costs()
    assert unsteady == ["fault_entry"]
    first, second = (r for r in rows if (r.operation, r.distance) in (steady, drifted))
    assert first.high - first.low < 1
    assert second.low < 11
    assert second.high > 15
    assert "do not agree" in second.source
    assert len(probes.missing) == 1 + len(probes.steps) - 2  # nothing was sampled of the others


def test_this_machine_orders_its_caches():
    """A load from the cache is quicker than one from memory; affinity is put back."""
    before = os.sched_getaffinity(0)
    probes = Probes(HostFiles(Path("/")), sorted(before)[:1], 64 * MIB)
    for _ in range(10):  # a busy machine leaves few rounds alone
        probes.run()
        assert os.sched_getaffinity(0) == before
        took = {(row.operation, row.distance): row for row in probes.costs()[0]}
        if ("fault_entry", "") in took:
            break
    fault = took["fault_entry", ""]
    assert 10 < fault.low <= fault.value <= fault.high < 1e6
    if ("line_l2", "") in took and ("line_llc", "") in took:
        assert took["line_l2", ""].value < took["line_llc", ""].value

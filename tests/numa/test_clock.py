"""The clock around the hint-fault rules: fast against slow, and against arithmetic."""

# SPDX-License-Identifier: GPL-2.0-only

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpmodel.kernel.reference import Memory as SlowMemory
from pcpmodel.numa import clock, experiment, reference
from pcpmodel.numa.nodes import nodes
from pcpmodel.numa.parameters import RELEASES
from pcpmodel.numa.runs import weights


def tiny(release="v5.13", **changes):
    """A few thousand pages; every path is taken within a fraction of a second."""
    config = {
        "rules": RELEASES[release], "processes": 2, "threads": 4, "cpus": 6, "pages": 1500,
        "node0_pages": 4500, "node1_pages": 3000, "eater_pages": 2000,
        "page_release": "v6.6", "watermarks": (5, 10, 20), "eater_kill_ns": 50_000_000,
        "end_ns": 150_000_000, "sample_ns": 10_000_000,
        "fault_ns": 1000, "relock_ns": 100, "isolate_ns": 500, "unmap_ns": 250, "copy_ns": 1500,
        "wake_ns": 2000, "flush_base_ns": 2000, "flush_target_ns": 1000, "flush_local_ns": 200,
        "ipi_ns": 700, "scan_pte_ns": 29, "scan_skip_ns": 2, "access_ns": 20_000.0,
        "remote_extra_ns": 6000.0, "slice_ns": 4_000_000, "tick_ns": 1_000_000,
        "scan_pages": 300, "scan_period_min_ns": 3_000_000, "scan_period_max_ns": 100_000_000,
        "refused_share": 0.0, "unmap_failed_share": 0.0, "seed": 1,
    }  # fmt: skip
    return config | changes


def fast_engine(config, weight):
    return clock.Engine(config, weight, nodes(config))


def both(config):
    weight = weights("normal", config["pages"])
    fast = fast_engine(config, weight)
    slow = reference.Engine(config, weight, nodes(config, SlowMemory))
    return (fast, fast.run()), (slow, slow.run())


@pytest.mark.parametrize("release", sorted(RELEASES))
@settings(max_examples=10)
@given(data=st.data())
def test_twin_draws_and_counts_the_same(release, data):
    pages = data.draw(st.integers(2, 400), label="pages")
    config = tiny(
        release,
        processes=data.draw(st.integers(1, 3), label="processes"),
        threads=data.draw(st.integers(1, 6), label="threads"),
        cpus=data.draw(st.integers(1, 12), label="cpus"),
        pages=pages,
        node0_pages=3 * pages + 200,
        node1_pages=3 * pages + 100,
        eater_pages=data.draw(st.integers(0, 3 * pages)),
        access_ns=data.draw(st.sampled_from([200.0, 5000.0, 100_000.0]), label="access_ns"),
        end_ns=data.draw(st.sampled_from([1_000_000, 7_000_000, 20_000_000]), label="end_ns"),
        eater_kill_ns=data.draw(st.integers(0, 10_000_000), label="kill"),
        scan_pages=data.draw(st.integers(1, 900), label="scan_pages"),
        scan_period_min_ns=data.draw(st.integers(10_000, 3_000_000), label="period"),
        slice_ns=data.draw(st.sampled_from([20_000, 500_000]), label="slice"),
        flush_base_ns=data.draw(st.sampled_from([0, 20_000]), label="flush"),
        unmap_failed_share=data.draw(st.sampled_from([0.0, 0.3, 1.0]), label="failed"),
        refused_share=data.draw(st.sampled_from([0.0, 0.3]), label="refused"),
        seed=data.draw(st.integers(0, 2**63 - 1), label="seed"),
    )
    (fast, one), (slow, two) = both(config)
    assert one == two
    assert fast.state() == slow.state()


def test_twin_agrees_where_threads_meet():
    """Few hot pages: waits, retries, refaults and hits in the window all happen."""
    seen = {}
    for release in RELEASES:
        config = tiny(
            release, pages=40, node0_pages=200, node1_pages=100, eater_pages=90, scan_pages=20,
            eater_kill_ns=20_000_000, end_ns=60_000_000, access_ns=400.0, cpus=5,
            scan_period_min_ns=300_000, scan_period_max_ns=300_000, unmap_failed_share=0.9,
        )  # fmt: skip
        (fast, one), (slow, two) = both(config)
        assert one == two
        assert fast.state() == slow.state()
        seen[release] = one
    assert all(run["waits"] and run["refaults"] and run["retries"] for run in seen.values())
    assert seen["v5.12"]["window_hits"] > 0
    assert seen["v5.12"]["unmap_flushes"] > seen["v5.13"]["unmap_flushes"] > 0


def test_same_seed_same_result_other_seed_another():
    weight = weights("normal", 1500)
    runs = [fast_engine(tiny(seed=s), weight).run() for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("release", sorted(RELEASES))
def test_every_page_has_its_own_frame_at_the_end(release):
    config = tiny(release)
    memory = nodes(config)
    e = clock.Engine(config, weights("normal", 1500), memory)
    counts = e.run()
    words, frames = e.state()
    assert counts["migrated_pages"] > 500
    assert len(set(frames)) == len(frames) == 3000
    on_target = [bool(word & 8) for word in words]
    assert on_target == [frame >= memory[1].zones[0].start_pfn for frame in frames]
    # The kernel core has the others: on its free lists, or with a CPU.
    for node, pages in zip(memory, (4500, 3000), strict=True):
        zone = node.state()[0]
        held = sum(node.zones[0].start_pfn <= f < node.zones[0].end_pfn for f in frames)
        assert zone["nr_free"] + sum(pcp["count"] for pcp in zone["pcp"]) + held == pages


def test_accesses_without_scanning_are_time_over_cost():
    """Nothing faults before the first scan: 8 threads on 8 CPUs, all pages local."""
    config = tiny(
        cpus=8, eater_pages=0, node1_pages=4000, scan_period_min_ns=10**12,
        scan_period_max_ns=10**12,
    )  # fmt: skip
    counts = fast_engine(config, weights("uniform", 1500)).run()
    assert counts["hint_faults"] == 0
    assert counts["accesses"] == pytest.approx(8 * 150e6 / 20_000.0, rel=1e-12)
    assert counts["busy_ns"] == pytest.approx(8 * 150e6, rel=1e-12)


def test_remote_pages_slow_all_accesses_down():
    config = tiny(cpus=8, eater_pages=2990, scan_period_min_ns=10**12, scan_period_max_ns=10**12,
                  eater_kill_ns=10**12)  # fmt: skip
    counts = fast_engine(config, weights("uniform", 1500)).run()
    assert counts["remote_share"] == pytest.approx(1)
    assert counts["accesses"] == pytest.approx(8 * 150e6 / 26_000.0, rel=1e-12)


def test_interrupts_per_page_follow_from_who_runs():
    """One process of 8 threads on 8 CPUs: 7 others to interrupt at every migration."""
    config = tiny("v5.12", processes=1, threads=8, cpus=8, node0_pages=2000)
    counts = fast_engine(config, weights("normal", 1500)).run()
    assert counts["unmaps"] == counts["unmap_flushes"] > 100
    assert counts["unmap_interrupts"] <= 7 * counts["unmaps"]
    # The only threads not running are those asleep on a migration entry.
    assert counts["unmap_interrupts"] >= 7 * counts["unmaps"] - 8 * counts["waits"]


def test_single_thread_never_interrupts_anybody():
    config = tiny("v5.12", processes=3, threads=1, cpus=3, node0_pages=6000)
    counts = fast_engine(config, weights("normal", 1500)).run()
    assert counts["migrated_pages"] > 100
    assert counts["unmap_interrupts"] == counts["scan_interrupts"] == 0


def test_faults_of_uniform_accesses_have_the_exponential_delay():
    """A scanned page is touched within t with probability 1 - exp(-rate t).

    One pass of the scanner, all pages local; the number of faults is binomial.
    """
    rate = 8 / 400_000.0 / 3000  # accesses of one page per ns
    config = tiny(
        processes=1, threads=8, cpus=8, pages=3000, node0_pages=10, node1_pages=4000,
        eater_pages=0, scan_pages=3000, scan_period_min_ns=10**9, scan_period_max_ns=10**9,
        access_ns=400_000.0, end_ns=10**9 + 100_000_000, fault_ns=1, scan_pte_ns=0, scan_skip_ns=0,
    )  # fmt: skip
    faults = []
    for seed in range(20):
        counts = fast_engine(config | {"seed": seed}, weights("uniform", 3000)).run()
        assert counts["scans"] in (1, 2)
        if counts["scans"] == 1:
            faults.append(counts["hint_faults"])
    # The scan starts at a uniform time in the first period: average over it.
    start = np.linspace(0, 1e9, 20_001)
    p = 1 - np.exp(-rate * (config["end_ns"] - start))
    assert len(faults) >= 10
    expected = 3000 * p.mean()
    spread = np.sqrt(3000 * p.mean() * (1 - p.mean()) + 3000**2 * p.var()) / np.sqrt(len(faults))
    assert abs(np.mean(faults) - expected) < 5 * spread


def test_scan_flush_and_pending_window():
    """v5.13 flushes only while the process is being scanned: never if scans take no time."""
    config = tiny("v5.13", access_ns=500.0, scan_pte_ns=0, scan_skip_ns=0, flush_base_ns=0,
                  flush_target_ns=0, flush_local_ns=0, refused_share=0.0)  # fmt: skip
    quick = fast_engine(config, weights("normal", 1500)).run()
    slow = fast_engine(config | {"scan_pte_ns": 5000}, weights("normal", 1500)).run()
    share = [c["unmap_flushes"] / c["unmaps"] for c in (quick, slow)]
    assert share[0] < 0.01 < 0.2 < share[1]


def test_weight_of_another_length_is_refused():
    with pytest.raises(ValueError, match="weight has 3 entries"):
        fast_engine(tiny(), weights("uniform", 3))


def test_scale_leaves_shares_as_they_are():
    """A tenth of the memory in a tenth of the time: same pages per page, same shares."""
    given_ = experiment(working_set_mb=896, node_gb=6.4, reserved_mb=200, eater_gb=4, scale=0.1)
    runs = []
    for scale in (0.1, 0.02):
        given = given_.with_(scale=scale)
        weight = weights("normal", given.pages)
        runs.append((fast_engine(given.config("v5.12"), weight).run(), scale))
    a, b = ([run[k] / s for k in ("migrated_pages", "hint_faults", "accesses", "unmap_ns")]
            for run, s in runs)  # fmt: skip
    assert a == pytest.approx(b, rel=0.05)

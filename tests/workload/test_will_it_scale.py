"""will-it-scale's tests: what they ask for, and which are refused, with the reason."""

# SPDX-License-Identifier: GPL-2.0-only

import re

import numpy as np
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.simulation import MACHINE, assert_same
from pcpmodel.cli import main
from pcpmodel.datasets.packages import load_published
from pcpmodel.errors import InputError
from pcpmodel.simulation.spec import make_spec
from pcpmodel.workload.will_it_scale import REFUSED

#: tests/*.c of will-it-scale, without those of another processor (ppc-...).
TESTS = re.findall(
    r"\w+",
    """
    access1 access2 brk1 brk2 context_switch1 dup1 eventfd1 fallocate1 fallocate2 fstat1
    fstat2 futex1 futex2 futex3 futex4 getppid1 lock1 lock2 lseek1 lseek2 malloc1 malloc2
    mmap1 mmap2 open1 open2 open3 page_fault1 page_fault2 page_fault3 page_fault4 pipe1
    poll1 poll2 posix_semaphore1 pread1 pread2 pread3 pthread_mutex1 pthread_mutex2
    pthread_mutex3 pthread_mutex4 pthread_mutex5 pwrite1 pwrite2 pwrite3 read1 read2 read3
    read4 readseek readseek1 readseek2 readseek3 sched_yield signal1 stat1 stat2
    threadspawn1 tlb_flush1 tlb_flush2 tlb_flush3 unix1 unlink1 unlink2 write1 writeseek
    writeseek1 writeseek2 writeseek3
    """,
)
RUN = {"machine": MACHINE, "cpus": 4, "nodes": 1, "memory_gib": 4, "release": "v7.2"}
RUN |= {"warmup_s": 0.06, "seconds": 0.02}


def test_every_test_has_a_workload_or_a_reason():
    assert len(TESTS) == 70
    made = set(TESTS) & set(pm.workload.WORKLOADS)
    assert made == {
        "fallocate1", "malloc1", "page_fault1", "page_fault2", "page_fault3", "tlb_flush1",
        "tlb_flush2",
    }  # fmt: skip
    assert set(TESTS) - made == set(REFUSED)


def test_what_is_refused_says_why():
    with pytest.raises(InputError, match="brk1 has no workload here: the page by which the heap"):
        pm.workload.make("brk1", processes=2)
    with pytest.raises(AttributeError, match="malloc2 has no workload here: 1 kB of a heap"):
        pm.workload.malloc2(4)
    arguments = "simulate --release v7.2 --machine ice-lake --workload pread2 --processes 2"
    wrong = CliRunner().invoke(main, arguments.split())
    assert wrong.exit_code == 2
    assert "stay in the page cache" in wrong.stderr
    with pytest.raises(InputError, match="did you mean 'malloc1'"):
        pm.workload.make("maloc1")


def counted(name, *, warmup_s=RUN["warmup_s"], **given):
    """Counters of all CPUs together, of a run that both engines agree on."""
    work = pm.workload.make(name, processes=4, **given)
    result = assert_same(make_spec(workload=work, **RUN | {"warmup_s": warmup_s}))
    return {k: sum(c[k] for c in result["counters"]) for k in result["counters"][0]}


def test_page_fault3_takes_and_frees_page_tables_alone():
    n = counted("page_fault3", pages=5000)
    assert n["alloc_blocks"] == pytest.approx(n["score"] / 500, rel=0.05)  # ten for 5000
    assert n["free_pages"] == pytest.approx(n["alloc_pages"], rel=0.1)
    assert n["lru_holds"] == 0


def test_malloc1_takes_a_page_and_its_table_and_the_lru_lock_twice():
    n = counted("malloc1")
    assert n["alloc_blocks"] == pytest.approx(2 * n["score"], abs=8)
    assert n["free_pages"] == pytest.approx(2 * n["score"], abs=8)
    assert n["lru_holds"] == pytest.approx(2 * n["score"], abs=8)
    assert n["refills"] + n["drains"] < n["score"] / 20  # the lists serve
    assert counted("malloc1", lru=False)["lru_holds"] == 0
    rcu = counted("malloc1", rcu_rounds=300)
    assert rcu["alloc_blocks"] == pytest.approx(3 * rcu["score"], abs=12)
    rcu = counted("malloc1", rcu_rounds=300, warmup_s=0)  # from an empty machine
    assert 4 * 100 < rcu["alloc_pages"] - rcu["free_pages"] < 4 * 600  # they wait for each other
    with pytest.raises(InputError, match="is less than fault and unmap"):
        pm.workload.malloc1(1, iteration_ns=1000)


@pytest.mark.parametrize("name", ["tlb_flush1", "tlb_flush2"])
def test_a_flushed_page_comes_from_the_list_and_goes_there(name):
    n = counted(name)
    assert n["alloc_blocks"] == pytest.approx(n["score"] * (1 + 1 / 512), rel=0.01)
    assert n["free_pages"] == pytest.approx(n["alloc_pages"], abs=400)
    assert n["lru_holds"] == pytest.approx(2 * n["score"], abs=8)
    assert n["refills"] <= 8
    assert n["drains"] == 0


def test_fallocate1_allocates_two_pages_a_call_and_frees_them_at_once():
    n = counted("fallocate1")
    assert n["alloc_pages"] == pytest.approx(2 * n["score"], abs=8)
    assert n["free_pages"] == pytest.approx(n["alloc_pages"], rel=0.05)
    # v7.2: of 256 pages eight batches of 31 and the rest, to the lists and off them.
    assert n["lru_holds"] == pytest.approx(18 * n["alloc_pages"] / 256, rel=0.01)


def test_a_page_takes_as_much_longer_or_shorter_as_published_where_locks_do_not_wait():
    published = load_published("batchsize-2018").tables
    faults, others = published["page_fault1"], published["other_workloads"]
    boxes = {
        "skylake_desktop": "lkp-skl-d01",
        "westmere_ep_2s": "lkp-wsm-ep2",
        "sandybridge_desktop": "lkp-sb02",
    }
    middle = {}
    for test in ("page_fault2", "page_fault3", "malloc1"):
        scores = others[others["workload"] == f"{test} processes"].set_index("testbox")["batch31"]
        ratios = []
        for machine, box in boxes.items():
            row = faults[(faults["machine"] == machine) & (faults["batch"] == 31)].iloc[0]
            assert row["total_lock_pct"] <= 5
            ratios.append(row["page_fault1_score_per_s"] / scores[box])
        middle[test] = np.median(ratios)
    made = {name: pm.workload.make(name, processes=1).params for name in (*middle, "page_fault1")}
    time = {k: p["fault_ns"] + p["unmap_ns"] for k, p in made.items() if "fault_ns" in p}
    time["malloc1"] = made["malloc1"]["iteration_ns"]
    for test, ratio in middle.items():
        assert time[test] / time["page_fault1"] == pytest.approx(ratio, abs=0.01), test

# SPDX-License-Identifier: GPL-2.0-only
"""Builds from their first command to their last (data/workload/build-phases)."""

import pytest

import pcpmodel as pm
from pcpmodel.study import whole_build
from pcpmodel.study.builds import _ALL, _running, build_of

HERE = {"seconds": 0.2, "warmup_s": 0.1}


def run(jobs, cpus, threads=1, **given):
    return pm.simulate(
        "v6.6", "sapphire-rapids", pm.workload.kbuild(jobs, nodes=min(cpus, 2), **given),
        cpus=cpus, nodes=min(cpus, 2), threads_per_core=threads, memory_gib=64.0, **HERE,
    )  # fmt: skip


def test_fewer_jobs_do_one_after_the_other_what_more_do_at_once():
    """What 224 jobs show foretells how long 28 take: recorded apart, with a smaller multiple."""
    running, time = _running(224)
    few = running < _ALL * 28
    foretold = time[few].sum() + (running * time)[~few].sum() / 28
    assert foretold == pytest.approx(_running(28)[1].sum(), rel=0.1)


def test_a_build_with_a_job_is_busy_all_the_time():
    build = whole_build(run(1, 2))
    assert build.busy == pytest.approx(1.0, abs=1e-3)
    assert build.lock_contention == 0.0


def test_more_jobs_are_busy_for_less_of_the_time():
    shares = [whole_build(run(jobs, jobs)).busy for jobs in (4, 16, 64)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9


def test_eight_builds_are_busy_for_more_of_the_time_than_one_of_as_many_jobs():
    result = run(64, 64)
    one, eight = whole_build(result), whole_build(result, builds=8)
    assert one.busy < eight.busy < 1
    assert whole_build(run(64, 64, memcgs=8)).busy == pytest.approx(eight.busy, rel=0.05)


def test_a_build_gains_in_part_what_its_jobs_gain():
    """And it waits in the part of its cycles in which it runs them all."""
    jobs = run(64, 64)
    waits = jobs.lock_contention + jobs.lru_contention
    before = whole_build(jobs)
    after = build_of(jobs.spec, int(1.2 * jobs.score), waits)
    gained = before.time_s / after.time_s - 1
    assert gained == pytest.approx(after.busy * 0.2, rel=0.01)
    assert 0.05 < gained < 0.1
    assert before.lock_contention == pytest.approx(before.cycles * waits)


def test_few_jobs_have_a_core_each_and_many_share_it():
    alone, shared = run(64, 64), run(64, 64, threads=2)
    builds = whole_build(alone), whole_build(shared)
    paces = alone.score / shared.score
    assert paces > 1.4
    # As long as few commands run, two threads of a core are no slower than two cores.
    assert 1 < builds[1].time_s / builds[0].time_s < paces


@pytest.mark.parametrize(("builds", "words"), [(3, "cannot be divided"), (0, "builds=0")])
def test_jobs_that_cannot_be_divided_are_refused(builds, words):
    with pytest.raises(pm.InputError, match=words):
        whole_build(run(4, 4), builds=builds)


def test_another_workload_is_no_build():
    result = pm.simulate("v6.6", "sapphire-rapids", pm.workload.page_fault1(2), cpus=2, **HERE)
    with pytest.raises(pm.InputError, match="page_fault1 is not a build"):
        whole_build(result)

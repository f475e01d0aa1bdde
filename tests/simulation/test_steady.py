"""Warm-up until the rates stand, and intervals by batch means."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.simulation import MACHINE
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.simulation.run import execute, settle
from pcpmodel.simulation.spec import make_spec
from pcpmodel.simulation.steady import half_width, truncation
from pcpmodel.workload import Program, Task, Workload

RUN = {"release": "v6.18", "machine": MACHINE, "cpus": 16, "nodes": 1, "memory_gib": 32}


def work(**options):
    return pm.workload.page_fault1(16, pages=4000, **options)


def noise(n, seed=0):
    return np.random.default_rng(seed).integers(0, 1000, n)


def test_truncation_leaves_out_the_beginning_and_nothing_more():
    level = 100_000 + noise(128)
    assert truncation(level) < 20
    assert truncation(np.zeros(128, dtype=int)) == 0
    ramp = level.copy()
    ramp[:30] -= np.linspace(90_000, 0, 30).astype(int)
    assert 20 <= truncation(ramp) <= 40
    step = level.copy()
    step[:50] = 0
    assert truncation(step) == 50


def test_a_series_that_still_changes_in_its_second_half_is_too_short():
    assert truncation(np.arange(128) * 1000 + noise(128)) is None
    step = 100_000 + noise(128)
    step[:70] = 0
    assert truncation(step) is None


def test_a_step_that_noise_hides_from_the_rule_is_seen_between_the_halves():
    """A build waits little until the first pages of its neighbours come, for 2.5 of 4 s."""
    draws = np.random.default_rng(3)
    level = draws.gamma(4.0, 25.0, 128).astype(int)  # noise as large as half of the mean
    step = level.copy()
    step[80:] *= 3
    half = len(step) // 2
    spread = [step[d:].var() / (len(step) - d) for d in range(half + 1)]
    assert np.argmin(spread) < half  # the rule alone would begin before the step
    assert truncation(step) is None
    assert truncation(level) is not None
    for rare in range(40):  # a wait now and then is no change
        assert truncation((np.random.default_rng(rare).random(128) < 0.03).astype(int)) is not None


def test_an_interval_of_batch_means_holds_the_mean_as_often_as_it_says():
    """Independent, and correlated so that neighbours resemble each other for five samples."""
    draws = np.random.default_rng(1)
    for keep in (0.0, 0.8):
        inside = 0
        for _ in range(400):
            steps = draws.normal(size=300)
            series = np.zeros(300)
            for i in range(1, 300):
                series[i] = keep * series[i - 1] + steps[i]
            values = np.rint(1e6 + 1e4 * series[100:]).astype(np.int64)
            whole = np.ones(200)
            inside += abs(values.sum() / 200 - 1e6) <= half_width(values, whole)
        assert 0.90 <= inside / 400 <= 0.99


def test_few_samples_have_no_interval():
    assert math.isnan(half_width(noise(19), np.ones(19)))
    assert math.isnan(half_width(noise(100), np.zeros(100)))
    assert half_width(np.full(40, 7), np.ones(40)) == 0.0
    run = pm.simulate(workload=work(), seconds=0.02, samples=5, **RUN)
    assert math.isnan(run.half_width("lock_contention"))
    assert run.summary()["half_width_95"]["lock_contention"] is None
    with pytest.raises(InputError, match="did you mean 'lock_contention'"):
        run.half_width("lock_contentoin")


def test_the_same_question_has_the_same_answer_however_long_it_is_counted():
    """v6.18: lists grow once, under the lock; 7.71 % in 0.5 s, 1.93 % in 2 s, then nothing."""
    cold = [
        pm.simulate(workload=work(), warmup_s=0.0, seconds=s, **RUN).lock_contention
        for s in (0.02, 0.2)
    ]
    assert cold[0] > 3 * cold[1] > 0
    runs = [pm.simulate(workload=work(), seconds=s, **RUN) for s in (0.02, 0.2)]
    assert all(run.stands for run in runs)
    assert all(run.lock_contention < 0.1 * cold[1] for run in runs)


def test_an_automatic_warm_up_is_the_one_that_is_said():
    """Found once, it may be given: the same run, byte for byte, on either engine."""
    spec = make_spec(workload=work(), seconds=0.02, **RUN)
    found, stands = settle(spec)
    assert stands
    assert 0 < found < 4
    auto, again = execute(spec), execute(spec, engine="per-page")
    given = pm.simulate(workload=work(), seconds=0.02, warmup_s=found, **RUN)
    for run in (again, given):
        assert run.warmup_s == auto.warmup_s == found
        assert run.order_digests == auto.order_digests
        assert run.summary()["lock_contention"] == auto.summary()["lock_contention"]
        assert (run.pages_in_pcp == auto.pages_in_pcp).all()
        for name, sums in auto.batch_sums.items():
            assert (run.batch_sums[name] == sums).all(), name
    assert (auto.stands, given.stands) == (True, None)
    assert auto.to_dataset().attrs["warmup_s"] == found


def test_batches_add_up_to_the_counters_of_the_counted_time():
    run = pm.simulate(workload=work(lru=True), seconds=0.1, **{**RUN, "release": "v6.6"})
    assert run.warmup_s > 0
    for name, sums in run.batch_sums.items():
        # What a CPU was at as the run ended is in the counters alone.
        assert sums.sum() == pytest.approx(run.per_cpu[name].sum(), rel=0.02), name
    assert run.time_s[0] == pytest.approx(run.warmup_s + 0.001)
    assert run.time_s[-1] == pytest.approx(run.warmup_s + 0.1)


def test_courses_of_events_are_counted_from_their_beginning():
    once = Program()
    once.alloc(1000, ns=100)
    once.score()
    ends = Workload("once", (Task(once),), "times", 1000)
    rest = pm.workload.idle_after_burst(2, pages=500, bursts=1, idle_s=0.01)
    changes = [pm.change(at_s=0.01, high_fraction=8)]
    for options in (
        {"workload": ends},
        {"workload": rest},
        {"workload": work(), "changes": changes},
    ):
        run = pm.simulate(seconds=0.02, **{**RUN, **options})
        assert run.warmup_s == 0.0
        assert run.stands is None
    assert pm.simulate(workload=ends, seconds=0.02, **RUN).score == 1


def grows():
    """Takes for every page that it takes one more the next time: no rate stands."""
    p = Program()
    with p.forever():
        p.alloc(1, ns=50_000)
        p.score()
    return Workload("grows", (Task(p),) * 2, "pages", 10)


def test_rates_that_never_stand_are_said_to_be_no_steady_state():
    """Pages that are never freed: memory ends before the rates can be looked at."""
    spec = make_spec(workload=grows(), seconds=0.01, **{**RUN, "memory_gib": 0.25, "cpus": 2})
    assert settle(spec) == (0.0, False)
    assert execute(spec).stands is False


def test_command_line_says_warm_up_interval_and_what_is_assumed():
    def said(*options):
        done = CliRunner().invoke(
            main,
            ["simulate", "--release", "v6.6", "--machine", "ice-lake", "--workload", "page_fault1",
             "--processes", "4", "--cpus", "4", "--nodes", "1", "--seconds", "0.05", *options],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        return done.stdout

    text = said()
    assert "until the rates were steady" in text
    assert "(95 %: ±" in text
    assert "assumed               line_llc of ice-lake; " in text
    assert "jitter 0.5" in text
    assert "warm-up               0.01 s\n" in said("--warmup", "0.01")
    assert "jitter" not in said("--set", "jitter=0.2", "--warmup", "0.01")
    told = json.loads(said("--json"))
    assert told["stands"] is True
    assert told["half_width_95"]["score_per_s"] > 0
    assert {"line_memory of ice-lake", "jitter 0.5"} < set(told["assumed"])

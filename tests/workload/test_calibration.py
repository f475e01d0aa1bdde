"""Fitted parameters: stored once, used by the ready-made workloads, said in the result."""

# SPDX-License-Identifier: GPL-2.0-only

import re
from pathlib import Path

import numpy as np
import pytest

import pcpmodel as pm
from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.errors import InputError
from pcpmodel.simulation.spec import UNCALIBRATED, make_spec, varied
from pcpmodel.study.published import cases, refit, single
from pcpmodel.workload.calibration import calibration, calibrations

TABLES = load_workload("calibration").tables
NAMES = TABLES["tables"]["calibration"].tolist()
CASES = {case.name: case for case in cases.cases() if case.fits}


def test_every_fit_of_the_answer_key_is_stored_and_no_other():
    fitted = TABLES["fitted"][TABLES["fitted"]["how"] == "fitted"]
    stored = set(zip(fitted["calibration"], fitted["parameter"], strict=True))
    asked = {(name, fit.parameter) for name, case in CASES.items() for fit in case.fits}
    assert stored == asked | {(name, "cold_block_ns") for name in single.ZONE_SPLIT}


@pytest.mark.parametrize("name", NAMES)
def test_a_calibration_belongs_to_the_table_and_the_machine_that_it_names(name):
    row = TABLES["tables"].set_index("calibration").loc[name]
    assert load_published(row["source"]).digest == row["digest"], "python tools/fit_calibration.py"
    assert row["table"] in load_published(row["source"]).tables
    run = CASES[name].run if name in CASES else cases.host(single.BIG)
    assert {k: row[k] for k in ("machine", "cpus", "nodes", "memory_gib")} == {
        k: run[k] for k in ("machine", "cpus", "nodes", "memory_gib")
    }
    for parameter, value in calibration(name).items():
        if value.calibration != name or value.how == "set":
            continue
        if name in CASES:
            (fit,) = (f for f in CASES[name].fits if f.parameter == parameter)
            assert (fit.step, fit.quantity) == (value.step, value.quantity)
            measured = cases.published_rows(CASES[name])[fit.step][fit.quantity]
        else:
            measured = single.one_zone(name)[1]["before"]
        assert value.measured == pytest.approx(measured)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_new_fit_finds_the_stored_value(name):
    """Else: python tools/fit_calibration.py, and look at what else moved."""
    for parameter, value in refit.refitted(name).items():
        assert value == calibration(name)[parameter].value, parameter


def test_no_fitted_number_is_written_down_a_second_time():
    """82.0, 24.2 and 74.2 stood in the questions of the notebooks, in one of them rounded."""
    root = Path(pm.__file__).parent
    values = TABLES["fitted"][TABLES["fitted"]["how"] == "fitted"]["value"]
    forms = {f"{v:.{n}f}" for v in values for n in (1, 2, 3) if v > 10} | {"82.0", "74.2", "24.2"}
    pattern = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, sorted(forms))) + r")(?![\d])")
    for path in root.rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "cold" in line or "lru_hold" in line or "handoff" in line or "swap" in line:
                assert not pattern.search(line), f"{path}: {line}"


@pytest.mark.slow
def test_a_build_contends_as_published_without_further_options():
    """It said 0.17 % where 13.5 to 16.8 % is published."""
    run = pm.simulate("v6.6", "sapphire-rapids", pm.workload.kbuild(224), seconds=4.0)
    assert run.stands
    half = run.half_width("lock_contention")
    assert half < 0.02
    assert 0.125 < run.lock_contention < 0.168
    assert abs(run.lock_contention - 0.135) < half + 0.01


@pytest.mark.slow
def test_streams_contend_as_published_without_further_options():
    unix = pm.simulate(
        "v6.6", "ice-lake", pm.workload.unix_stream(16), cpus=128, nodes=2, seconds=0.2
    )
    assert unix.lock_contention == pytest.approx(0.50, abs=0.01)
    sctp = pm.simulate(
        "v6.6", "ice-lake", pm.workload.sctp_stream(64), cpus=128, nodes=2, seconds=0.2
    )
    assert sctp.lock_contention == pytest.approx(0.02, abs=0.002)


def test_page_faults_contend_as_published_on_the_machine_of_the_table():
    run = pm.simulate("v6.6", "sapphire-rapids", pm.workload.page_fault1(16), memory_gib=2048)
    assert run.lock_contention == pytest.approx(0.1301, abs=0.015)


def test_what_the_user_gives_comes_before_what_is_calibrated():
    def spec(workload, **options):
        return make_spec(release="v6.6", machine="ice-lake", workload=workload, **options)

    plain = spec(pm.workload.unix_stream(4))
    fitted = calibration("pcp-auto-tuning-v2/unix")
    assert {n: plain.cost(n) for n in fitted} == {n: c.value for n, c in fitted.items()}
    assert plain.cost("lru_hold_ns") == UNCALIBRATED["lru_hold_ns"]
    assert set(plain.calibrated) == set(fitted)
    own = spec(pm.workload.unix_stream(4), handoff_ns=0.0)
    assert own.cost("handoff_ns") == 0.0
    assert "handoff_ns" not in own.calibrated
    assert "handoff_ns" in varied(own, handoff_ns=None).calibrated
    warm = spec(pm.workload.unix_stream(4, like=None))
    assert {n: warm.cost(n) for n in UNCALIBRATED} == UNCALIBRATED
    assert not warm.calibrated
    # Another workload in the same spec has its own.
    assert varied(plain, workload=pm.workload.exit_storm(4)).cost("jitter") == 0.2
    given = pm.workload.kbuild(4, migrated_share=0.1)
    assert given.params["migrated_share"] == 0.1
    assert "migrated_share" not in given.calibrated
    assert (
        given.params["slab_run_share"]
        == calibrations()[given.params["like"]]["slab_run_share"].value
    )


def test_recorded_values_are_there_for_who_wants_no_fit():
    build = pm.workload.kbuild(4, like=None)
    assert build.params["migrated_share"] == pytest.approx(0.03, abs=0.01)
    assert not build.calibrated
    with pytest.raises(InputError, match="did you mean 'pcp-auto-tuning-v2/kbuild'"):
        pm.workload.kbuild(4, like="pcp-auto-tuning-v2/kbild")


def test_calibrated_runs_of_a_sweep_are_those_of_a_call():
    given = {"machine": "ice-lake", "cpus": 8, "nodes": 2, "seconds": 0.02, "memory_gib": 16}
    grid = pm.sweep(release=["v6.6"], workload=pm.workload.unix_stream(4), progress=False, **given)
    run = pm.simulate("v6.6", workload=pm.workload.unix_stream(4), **given)
    assert grid.lock_contention.item() == run.lock_contention
    assert grid.warmup_s.item() == run.warmup_s
    assert grid.stands.item() == 1
    assert grid.lock_contention_half_width.item() == run.half_width("lock_contention")
    again = pm.sweep(run, release=["v6.6"], progress=False)
    assert np.array_equal(again.lock_contention, grid.lock_contention)


def test_unknown_workloads_and_their_arguments_are_met_with_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'kbuild'"):
        _ = pm.workload.kbild
    with pytest.raises(InputError, match="did you mean 'jobs'"):
        pm.workload.kbuild(job=8)
    with pytest.raises(InputError, match="workload kbuild needs jobs"):
        pm.workload.kbuild()

"""Predicted, then measured: the errors are those put in, and the machine is left as it was."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import ROOT
from pcpmodel.cli import main
from pcpmodel.datasets import packages
from pcpmodel.errors import InputError
from pcpmodel.hardware.load import Load
from pcpmodel.proc.host import HostFiles
from pcpmodel.study import validate as module
from pcpmodel.study.page_lines import LINE_ROWS
from pcpmodel.trace import setting
from pcpmodel.trace.tracefs import instance

STORED = "amd-epyc-vm"


def cells(**values):
    """A cell for each value: quantity -> (predicted, measured)."""
    key = {"workload": "faults", "processes": 1, "high_fraction": 0}
    said = [{**key, "quantity": q, "unit": "1", "predicted": p} for q, (p, _) in values.items()]
    seen = [
        {**key, "quantity": q, "unit": "1", "measured": m, "low": 0.9 * m, "high": 1.1 * m}
        for q, (_, m) in values.items()
    ]
    return pd.DataFrame(said), pd.DataFrame(seen)


RATES = pd.DataFrame(
    [["faults", 1, 100.0, 2.0, 1.0, 0.0]],
    columns=["workload", "processes", "rate", "refills", "drains", "drained"],
)


def test_errors_are_relative_to_what_was_measured():
    found = module._compared(
        *cells(
            rate=(110.0, 100.0),
            refills=(0.01, 0.02),  # none on both sides
            drains=(0.0, 2.0),
            drained=(0.02, 0.0),  # of the floor
            refill_p50=(math.nan, 3.0),
            waits=(3.0, 2.0),
        ),
        RATES,
    ).set_index("quantity")
    error = found.error_pct
    assert error.rate == pytest.approx(10.0)
    assert math.isnan(error.refills)
    assert error.drains == pytest.approx(-100.0)
    assert error.drained == pytest.approx(400.0)
    assert math.isnan(error.refill_p50)
    assert error.waits == pytest.approx(50.0)
    assert found["nothing changes"].rate == pytest.approx(0.0)
    assert found["nothing changes"].drains == pytest.approx(-50.0)
    assert math.isnan(found["nothing changes"].waits)  # rates.csv has no waits
    assert math.isnan(found["first cell"].rate)  # it is the first


def test_null_models_say_what_they_can():
    said, seen = zip(*(cells(rate=(p, m)) for p, m in ((95, 100), (95, 50), (95, 40))), strict=True)
    for number, frames in enumerate(zip(said, seen, strict=True)):
        for frame in frames:
            frame["high_fraction"] = (0, 128, 2048)[number]
    found = module._compared(pd.concat(said), pd.concat(seen), RATES)
    assert found["nothing changes"].tolist() == pytest.approx([0, 100, 150])
    assert math.isnan(found["first cell"].iloc[0])
    assert found["first cell"].iloc[1:].tolist() == pytest.approx([100, 150])
    best = found["best constant"].abs().mean()
    assert best == pytest.approx(np.mean([50, 0, 25]))
    errors = module._errors(found).set_index("quantity")
    row = errors.loc["rate"]
    assert row.cells == 3
    assert row.mean_error_pct == pytest.approx(np.mean([5, 90, 137.5]))
    assert row.worst_cell == "faults 1, 2048"
    assert row.inside_interval == 1
    assert (
        "by more than its interval, in none" in module._say(found, module._errors(found))["nulls"]
    )


def test_a_null_model_that_is_nearer_is_said_to_be():
    """13.2 ± 7.6 % beside null models of 3.1 and 4.5 % was "may be as near"."""

    def row(quantity, error, half, *nulls):
        return {
            "quantity": quantity, "cells": 9, "mean_error_pct": error, "half_width_95": half,
            "worst_pct": 50.0, "worst_cell": "faults 1, 0", "same work again [%]": math.nan,
        } | {f"{null} [%]": pct for null, pct in zip(module.NULLS, nulls, strict=True)}  # fmt: skip

    errors = pd.DataFrame(
        [
            row("rate", 13.2, 7.6, 12.1, 4.5, 3.1),
            row("refills", 24.5, 14.8, 68.0, 66.7, 54.4),
            row("drain_p99", 38.7, 12.3, math.nan, 860.3, 49.7),
            row("wait_p99", 214.7, 147.6, math.nan, math.nan, 31.2),
        ]
    )
    cells = pd.DataFrame({"measured": [1.0], "predicted": [1.0], "error_pct": [0.0]})
    assert module._say(cells, errors)["nulls"] == (
        "The model is nearer than every null model, by more than its interval, in refills; a null "
        "model is nearer than the model, by more than that, in rate, wait_p99; in drain_p99 one of "
        "them may be as near."
    )


def test_cells_that_do_the_same_work_say_how_far_the_machine_is_from_itself():
    def figures(fraction, refills, rate, waits):
        known = {"refills": refills, "drains": 2.0, "drained": 1.0, "rate": rate, "waits": waits}
        return [
            {"workload": "faults", "processes": 1, "high_fraction": fraction, "quantity": name,
             "measured": value, "predicted": 9.0 if name == "rate" else value}
            for name, value in known.items()
        ]  # fmt: skip

    cells = [*figures(0, 1.0, 100.0, 0.0), *figures(128, 1.04, 150.0, 5.0)]
    again = module._again(pd.DataFrame([*cells, *figures(2048, 7.0, 900.0, 5.0)]))
    assert again["rate"] == pytest.approx(50.0)  # 2048 does other work
    assert again["refills"] == pytest.approx(4.0)
    assert "waits" not in again  # of nothing there is no share
    assert module._again(pd.DataFrame(figures(0, 1.0, 100.0, 1.0))).empty


# ------------------------------------------------------- the session that is stored


def test_the_stored_session_answers():
    answer = pm.study.validation(STORED)
    facts = answer.as_dict()
    assert facts["cells"]
    json.dumps(facts, allow_nan=False)
    errors = answer["errors"].set_index("quantity")
    known = answer["cells"].error_pct.dropna().abs()
    assert errors.loc["all", "mean_error_pct"] == pytest.approx(known.mean())
    assert f"{known.mean():.1f}" in answer.text
    assert facts["mean_error_percent"] == pytest.approx(known.mean())
    assert facts["max_error_percent"] == pytest.approx(known.max())
    asked = {"experiment", "quantity", "measured", "predicted", "error_percent"}
    assert asked <= facts["rows"][0].keys()
    assert len({(r["experiment"], r["quantity"]) for r in facts["rows"]}) == len(facts["cells"])
    assert facts["prediction_sha256"][:16] in answer.text


@pytest.fixture
def data(tmp_path):
    shutil.copytree(ROOT / "data/hardware" / STORED, tmp_path / "hardware" / STORED)
    return tmp_path


def test_a_prediction_that_was_changed_afterwards_is_refused(data):
    path = data / "hardware" / STORED / "prediction.csv"
    text = path.read_text()
    line = next(line for line in text.splitlines() if ",rate," in line)
    head, _, value = line.rpartition(",")
    path.write_text(text.replace(line, f"{head},{1.1 * float(value):.5g}"))
    with pytest.raises(InputError, match="another sha256"):
        pm.study.validation(STORED, data)


def test_a_new_prediction_takes_what_was_measured_away(data):
    path = data / "hardware" / STORED
    prediction = packages.read_package(path, "hardware", []).tables["prediction"].frame()
    module._store(path, packages.PREDICTION_RESOURCE, prediction, "prediction", "again")
    assert packages.check(data) == []
    assert not (path / "validation.csv").exists()
    with pytest.raises(InputError, match=r"has no validation\.csv"):
        pm.study.validation(STORED, data)


def test_what_makes_a_missing_table_is_named(data):
    """ "no rates.csv; pcpmodel validate makes it. Machines of which a session is stored: none"."""
    shutil.copytree(ROOT / "data" / "hardware" / "ice-lake", data / "hardware" / "ice-lake")
    others = rf"Machines of which a session is stored: {STORED}$"
    with pytest.raises(InputError, match=rf"rates\.csv; pcpmodel measure makes it\. {others}"):
        pm.study.validation("ice-lake", data)
    shutil.rmtree(data / "hardware" / STORED)
    with pytest.raises(InputError, match=r"rates\.csv; pcpmodel measure makes it$"):
        pm.study.validation("ice-lake", data)


def test_without_a_session_it_is_said(tmp_path):
    with pytest.raises(InputError, match="pcpmodel measure makes it"):
        pm.study.validation("nobody", tmp_path)


def test_rows_that_are_said_to_be_used_are_those_of_the_cost_sheet():
    shown = pm.study.validation(STORED)
    said = " ".join(shown.facts["assumed"])
    costs = {row["operation"] for row in pm.machine(STORED).costs.records()}
    named = set(re.findall(r"line_\w+", said))
    assert named == set(LINE_ROWS.values())
    assert named <= costs


def test_on_another_machine_the_stored_session_is_shown():
    shown = pm.study.checked_or_stored(STORED, 0.2) if not is_here() else None
    assert shown is None or "that is stored: " in shown.text
    assert "nothing was to be measured" in pm.study.checked_or_stored(STORED).text


def is_here():
    path = ROOT / "data/hardware" / STORED
    try:
        module._refuse_other(path, False)
    except InputError:
        return False
    return True


# ------------------------------------------------------------------- what is refused


def known(data):
    """The stored machine, as if it were this one."""
    path = data / "hardware" / STORED / "platform.json"
    here = module.Platform.of_host("/").as_dict()
    platform = json.loads(path.read_text())
    platform |= {key: here[key] for key in ("cpu_model", "cpus", "kernel")}
    path.write_text(json.dumps(platform))
    return data


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"minutes": 0.0}, r"outside 0\.2\.\.60"),
        ({"fractions": [7]}, "0, or 8 and more"),
        ({"fractions": [-1]}, "fraction"),
        ({"name": "nobody"}, "pcpmodel measure makes it"),
        ({"name": "No"}, "not allowed"),
        ({"cpus": [1 << 20]}, "only CPUs that this process may use"),
    ],
)
def test_what_is_wrong_is_said(data, change, match):
    with pytest.raises(InputError, match=match):
        pm.validate(**({"name": STORED, "data": known(data)} | change))


def test_a_machine_whose_rates_are_not_known_is_refused():
    with pytest.raises(InputError, match=r"has no rates\.csv"):
        pm.validate("ice-lake")


def test_another_machine_is_refused(data):
    path = data / "hardware" / STORED / "platform.json"
    path.write_text(path.read_text().replace('"cpus": 2', '"cpus": 1000'))
    with pytest.raises(InputError, match="runs on the machine itself"):
        pm.validate(STORED, data=data)


def test_a_busy_machine_is_left_alone(data, monkeypatch):
    monkeypatch.setattr(module, "_predict", lambda *_: pd.DataFrame())
    monkeypatch.setattr("pcpmodel.study.measure._busy", lambda _: 90.0)
    with pytest.raises(InputError, match="CPUs are busy 90 %"):
        pm.validate(STORED, data=known(data))


def test_without_root_nothing_is_touched(data, monkeypatch):
    monkeypatch.setattr(module, "_predict", lambda *_: pd.DataFrame())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    before = {p.name: p.read_bytes() for p in (data / "hardware" / STORED).iterdir()}
    with pytest.raises(InputError, match="needs root"):
        pm.validate(STORED, data=known(data), force=True)
    before["platform.json"] = (data / "hardware" / STORED / "platform.json").read_bytes()
    assert {p.name: p.read_bytes() for p in (data / "hardware" / STORED).iterdir()} == before


# ---------------------------------------------------------- on the kernel that runs here

RUN = """\
from pcpmodel.study import validate as module
module.ROUNDS = 2
module.KINDS = {{"faults": module.KINDS["faults"]}}
module.predict = lambda *_, **__: dict.fromkeys(module.QUANTITIES, 1.0)
module.measured_lines = lambda *_: None
print("begun", flush=True)
module.validate({name!r}, 0.2, fractions=[2048, 64], force=True, data={data!r})
"""


def fraction():
    return setting.HIGH_FRACTION.read_text().strip()


def instances(tracing):
    return {p for p in (tracing / "instances").iterdir() if p.name.startswith("pcpmodel_")}


def run(data):
    return subprocess.Popen(
        [sys.executable, "-c", RUN.format(name=STORED, data=str(data))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def ended_at(data, tracing, number, moment):
    """End a run then; nothing of it is left but, after SIGKILL, what the next start removes."""
    before, was = instances(tracing), fraction()
    begun = run(data)
    assert begun.stdout.readline() == "begun\n"
    time.sleep(moment)
    assert begun.poll() is None  # it is at work
    begun.send_signal(number)
    begun.communicate(timeout=60)
    changed = fraction() != was
    if number == signal.SIGKILL:
        with instance(tracing, []):  # the next start
            pass
    else:
        assert not changed
    assert fraction() == was
    assert instances(tracing) <= before
    assert not list(setting.NOTES.glob("*")) if setting.NOTES.is_dir() else True
    assert packages.check(data) == []
    return changed


@pytest.mark.slow
def test_the_prediction_is_there_before_the_first_load(data, tracing, monkeypatch):
    known(data)
    was, seen = fraction(), []
    monkeypatch.setattr(module, "ROUNDS", 2)
    monkeypatch.setattr(module, "KINDS", {"faults": module.KINDS["faults"]})
    path = data / "hardware" / STORED

    def observed(which, cpus, tracer, _, *rest):
        seen.append((fraction(), (path / "prediction.csv").read_bytes()))
        return cell(which, cpus, tracer, 0.1, *rest)

    cell = module._cell
    monkeypatch.setattr(module, "_cell", observed)
    answer = pm.validate(STORED, 0.2, fractions=[2048, 0], force=True, data=data)
    assert fraction() == was
    assert {value for value, _ in seen} == {"2048", "0"}
    assert {content for _, content in seen} == {(path / "prediction.csv").read_bytes()}
    drained = answer["cells"].query("quantity == 'drained' and high_fraction == 2048")
    assert (drained.measured > 0.5).all()  # 616 pages on a list, or so, do not hold a region
    assert packages.check(data) == []


@pytest.mark.slow
def test_lists_are_empty_before_a_load(tracing):
    host = HostFiles(Path("/"))

    def most():
        """Pages on one CPU's lists of a zone, at most."""
        return max(lists.count for zone in host.snapshots()[0].zones for lists in zone.pagesets)

    batch = max(lists.batch for zone in host.snapshots()[0].zones for lists in zone.pagesets)
    with setting.changed([8, module._LEAST]) as set_to:
        set_to(8)
        with Load([(cpu, cpu) for cpu in sorted(os.sched_getaffinity(0))[:1]]) as load:
            load.run(0.2, kind="faults")
        assert most() > 16 * batch  # a region that was given back
        set_to(module._LEAST)
        module._empty_lists(host)
        assert most() < 8 * batch  # four, and what a tick has yet to take


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_end_leaves_the_machine_as_it_was(data, tracing, number):
    ended_at(known(data), tracing, number, 1.0)


@pytest.mark.long
@pytest.mark.slow
def test_a_kill_at_thirty_moments_leaves_the_machine_as_it_was(data, tracing):
    known(data)
    changed = [
        ended_at(data, tracing, signal.SIGKILL, moment) for moment in np.linspace(0.02, 1.0, 30)
    ]
    assert any(changed)  # else no kill came while the setting was another


def test_a_dry_run_predicts_and_touches_nothing(data):
    known(data)
    before = {p.name: p.read_bytes() for p in (data / "hardware" / STORED).iterdir()}
    two = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))  # as many as the stored has
    arguments = ["validate", STORED, "--dry-run", "--json", "--fraction", "2048", "--cpus", two]
    done = CliRunner().invoke(main, [*arguments, "--data", str(data)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["prediction"]
    assert {p.name: p.read_bytes() for p in (data / "hardware" / STORED).iterdir()} == before


def test_the_command_shows_what_is_stored():
    done = CliRunner().invoke(main, ["validate", STORED, "--stored"])
    assert done.exit_code == 0
    assert "Null models" in done.stdout

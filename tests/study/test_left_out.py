"""Sources predicted from the others: nothing leaks, and the score is what it says."""

# SPDX-License-Identifier: GPL-2.0-only

import json
from dataclasses import replace

import pandas as pd
import pytest
from click.testing import CliRunner

from pcpmodel.cli import main
from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.errors import InputError
from pcpmodel.study.published import cases, causes, inputs, left_out, refit, repeats
from pcpmodel.study.published import compare as study
from pcpmodel.study.published import rows as cells
from pcpmodel.study.published.compare import compare
from pcpmodel.study.published.single import SINGLE
from pcpmodel.workload import unix_stream
from pcpmodel.workload.calibration import calibration, calibrations

RULES = cells.tolerances()
TABLE_OF = {
    row.calibration: (row.source, row.table)
    for row in load_workload("calibration").tables["tables"].itertuples()
}
NAMES = {case.name for case in cases.cases()} | set(SINGLE)


def test_every_compared_table_has_a_series_and_versions_are_counted_once():
    frame = load_workload("answer-key").tables["series"]
    names = (frame["source"] + "/" + frame["table"]).tolist()
    assert set(names) == NAMES
    again = dict(zip(names, frame["posted_again"], strict=True))
    series = dict(zip(names, frame["series"], strict=True))
    for name, later in again.items():
        if isinstance(later, str):
            assert series[later] == series[name]
            assert later > name
            assert not isinstance(again[later], str)  # that one is counted


@pytest.mark.parametrize("case", cases.cases(), ids=lambda case: case.name)
def test_no_constant_of_a_table_comes_from_its_own_series(case):
    stored = cases.stored(case)
    found = left_out.of_case(case, stored)
    assert set(found.taken_from) == set(stored)
    assert set(found.values) == {p for p, names in found.taken_from.items() if names}
    mine = left_out.series_of(case.source, case.table)
    frame = load_workload("calibration").tables["tables"].set_index("calibration")
    for name in {name for names in found.taken_from.values() for name in names}:
        assert left_out.series_of(frame["source"][name], frame["table"][name]) != mine


def test_a_constant_is_that_of_the_same_workload_else_the_mean_of_all():
    zone = {n: calibration(f"zone-split-rfc/{n}")["cold_block_ns"].value
            for n in ("kbuild", "page_fault1")}  # fmt: skip
    build = left_out.without("pcp-auto-tuning", "kbuild", "sapphire-rapids", ["cold_block_ns"])
    assert build.values == {"cold_block_ns": zone["kbuild"]}
    assert build.taken_from == {"cold_block_ns": ("zone-split-rfc/kbuild",)}
    assert build.machine == "same"
    names = ["cold_block_ns", "handoff_ns"]
    unix = left_out.without("pcp-auto-tuning", "unix_stream", "ice-lake", names)
    assert unix.values == {"cold_block_ns": pytest.approx(sum(zone.values()) / 2)}
    assert unix.taken_from["handoff_ns"] == ()  # no other source has one
    assert unix.machine == "other"


class Fixed:
    per_block = 0.5
    from_memory = 0.3


def cell(step, measured, runs, before, *, quantity="lock_contention", takings=None, table="unix"):
    row = cells.make_row("pcp-auto-tuning-v3", table, step, quantity, measured, runs[0], RULES)
    return cells.after(row, runs, before=before, runs_before=[before] * len(runs), first=50.0,
                       takings=takings)  # fmt: skip


def told(rows):
    machines = {f"{r.source}/{r.table}": "other" for r in rows}
    return left_out.left_out_cells(cells.with_constants(rows), machines)


def test_a_cell_that_a_null_model_has_as_well_is_no_success():
    rows = [
        cell("patch1", 40.0, [44.0, 45.0, 46.0], 50.0),  # 5 off; nothing changes: 10 off
        cell("patch3", 20.0, [29.0, 29.0, 29.0], 22.0),  # the row before is 2 off
        cell("patch5", 10.0, [30.0, 30.0, 30.0], 20.0),
        cell("patch7", 3.0, [9.0, 9.0, 9.0], 10.0),  # too small to be asked
    ]
    frame = told(rows)
    assert frame["predicted"].tolist() == [45.0, 29.0, 30.0, 9.0]  # the mean of the seeds
    assert frame["half_width"][0] == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert frame["error_percent"].tolist() == pytest.approx([12.5, 45.0, 200.0, 200.0])
    assert frame["as_good"][0] == ""
    assert "row before" in frame["as_good"][1]
    facts = left_out.judged(frame)
    assert facts["contention"] == {"cells": 3, "within": 2, "within_and_no_null_as_good": 1}
    counts = {"changes": 4, "same": 2}  # 29 after 22, measured 20
    assert {k: facts["signs"][k] for k in counts} == counts
    (skill,) = facts["skill"]
    assert skill["mean_abs_error"] == pytest.approx((5 + 9 + 20 + 6) / 4)
    nulls = {"row before": (10 + 2 + 10 + 7) / 4, "nothing changes": (10 + 30 + 40 + 47) / 4}
    assert skill["null_mean_abs_error"] <= nulls["row before"] < nulls["nothing changes"]
    assert skill["skill"] == pytest.approx(1 - 10 / skill["null_mean_abs_error"])
    assert skill["not_as_good"] == 2  # patch1 and patch7


def test_the_best_constant_of_two_cells_is_their_answer_and_no_null_model():
    two = [cell("a", 40.0, [41.0] * 3, 50.0), cell("b", 40.0, [41.0] * 3, 50.0)]
    assert told(two)["null: best constant"].isna().all()
    assert told([*two, cell("c", 40.0, [41.0] * 3, 50.0)])["null: best constant"].notna().all()


def test_a_table_that_is_posted_again_is_not_counted_twice():
    one = cell("patch1", 150.0, [165.0] * 3, 100.0, quantity="score")
    twice = told([one, replace(one, source="pcp-auto-tuning-v2")])
    assert twice["counted"].tolist() == [True, False]
    facts = left_out.judged(twice)
    assert facts["cells"] == 1
    assert facts["times"] == {
        "other": {
            "cells": 1,
            "mean_error_percent": pytest.approx(10.0),
            "max_error_percent": pytest.approx(10.0),
        }
    }


def test_a_left_out_table_is_predicted_without_its_own_fits(monkeypatch):
    case = next(c for c in cases.cases() if c.name == "pcp-auto-tuning-v3/unix")
    quick = replace(
        case,
        workload=lambda **own: unix_stream(4, **own, like=None),
        run={**case.run, "cpus": 8, "memory_gib": 16, "seconds": 0.02},
    )
    monkeypatch.setattr(study, "cases", lambda: (quick,))
    found = compare("pcp-auto-tuning-v3", left_out=True)
    steps = len(cases.published_rows(quick))
    assert len(found["cells"]) == 4 * (steps - 1) + 1  # the base row: contention alone
    taken = found["parameters"].set_index("parameter")["taken_from"]
    assert taken["handoff_ns"] == ""
    assert "pcp-auto-tuning" not in " ".join(taken)
    assert "Every source predicted from the others" in found.text
    done = CliRunner().invoke(main, ["compare", "pcp-auto-tuning-v3", "--left-out", "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts == json.loads(json.dumps(found.as_dict()))
    assert {"cells", "times", "contention", "signs", "skill", "rows", "parameters"} <= set(facts)


def test_a_miss_takes_what_it_takes_by_the_others_on_the_same_machine():
    machine = load_workload("calibration").tables["tables"].set_index("calibration")["machine"]
    series = {name: left_out.series_of(*TABLE_OF[name]) for name in causes.latencies()}
    assert len(set(series.values())) > 1  # else nothing could be left out
    for leave in set(series.values()):
        others = {n: v for n, v in causes.latencies().items() if series[n] != leave}
        alike = [v for n, v in others.items() if machine[n] == "sapphire-rapids"]
        found = left_out.without_by_misses(leave, "sapphire-rapids", True)
        assert found.values == {
            "miss_ns": pytest.approx(sum(alike) / len(alike)),
            "jitter": causes.assumed()["jitter"],
            "smt_yield": causes.assumed()["smt_yield"],
        }
        assert found.machine == "same"
        assert all(series[name] != leave for name in found.taken_from["miss_ns"])
        unknown = left_out.without_by_misses(leave, "", False)
        assert unknown.machine == "other"
        assert set(unknown.taken_from["miss_ns"]) == set(others)
        assert "smt_yield" not in unknown.values


def test_what_a_miss_takes_becomes_times_of_holds(monkeypatch):
    asked = []
    monkeypatch.setattr(causes, "pilot", lambda *run: asked.append(run) or Fixed())
    found = causes.of_run({"miss_ns": 80.0, "jitter": 0.5}, "kbuild", "v6.6+p1")
    assert asked == [("kbuild", "v6.6+p1")]  # each kernel has its own misses
    assert found == {
        "jitter": 0.5,
        "cold_block_ns": 40.0,
        "handoff_ns": 80.0 * causes.assumed()["handoff_lines"],
        "cold_page_ns": 0.0,  # the recorded build had its pages from memory as well
    }
    stream = causes.of_run({"miss_ns": 80.0}, "unix_stream", "v6.7")
    assert stream["cold_page_ns"] == 80.0 * 0.3 * 64 / causes.assumed()["lines_at_once"]
    assert causes.of_run({"cold_block_ns": 1.0}, "kbuild", "v6.6") == {"cold_block_ns": 1.0}


def test_a_sign_that_another_posting_turns_does_not_stand():
    kbuild = next(c for c in cases.cases() if c.name == "pcp-auto-tuning-v3/kbuild")
    repeated = repeats.repeated_signs(kbuild)
    # Version 2: 10.6 to 11.7 % of the cycles; version 3: 12.8 to 12.6.
    assert repeated["patch1", "patch3", "lock_contention"] == [pytest.approx(1.1)]
    assert len(repeated["base", "patch5", "lock_contention"]) == 2  # and version 1
    frame = load_published("pcp-auto-tuning-v3").tables["kbuild"]
    column = "lock_contend_cycles_pct"
    table = pd.DataFrame(
        {
            "source": "pcp-auto-tuning-v3",
            "table": "kbuild",
            "step": frame["step"],
            "quantity": "lock_contention",
            "change": frame[column].diff(),
        }
    )
    stands = dict(zip(table["step"], repeats.sign_stands(table), strict=True))
    assert stands == {
        "base": None, "patch1": True, "patch3": False, "patch5": True, "patch7": True,
        "patch9": True,
    }  # fmt: skip


def test_a_change_within_the_stated_variation_has_no_sign():
    frame = load_published("hahn-v4").tables["kbuild"]
    real = frame[frame["metric"] == "real"]
    table = pd.DataFrame(
        {
            "source": "hahn-v4",
            "table": "kbuild",
            "step": real["machine"],
            "quantity": "build time change",
            "change": real["delta_pct"],
        }
    )
    stands = dict(zip(table["step"], repeats.sign_stands(table), strict=True))
    assert stands == {"large": False, "medium": False, "small": True}
    one_zone = table.assign(source="zone-split-rfc", table="figures")
    assert repeats.sign_stands(one_zone).tolist() == [None] * 3  # nobody measured it again


def test_every_input_is_stated_fitted_or_assumed():
    known, every = inputs.stated(), inputs.inputs_of()
    assert set(known) == set(every)
    assert {name.split(":")[0] for name in every} == NAMES
    for name, given in known.items():
        assert set(given) <= set(every[name]), name
    taken = {"pcp-auto-tuning-v3/unix": ["jitter", "pairs"]}  # pairs: stated, so not fitted
    frame = inputs.inputs(NAMES, taken, {"pcp-auto-tuning-v3/unix": 21}).set_index("table")
    assert (frame[["stated", "fitted", "assumed"]].sum(axis=1) == frame["inputs"]).all()
    unix = frame.loc["pcp-auto-tuning-v3/unix"]
    assert (unix["stated"], unix["fitted"], unix["cells"]) == (3, 1, 21)
    assert "memory_gib" in unix["which"].split()
    assert "jitter" not in unix["which"].split()


def test_what_is_assumed_lies_in_its_range():
    frame = load_workload("answer-key").tables["assumed"]
    assert (frame["low"] < frame["value"]).all()
    assert (frame["value"] < frame["high"]).all()


def test_one_latency_serves_every_table():
    """Fitted constants of a block differ sixfold; what a miss takes by a quarter."""
    values = list(causes.latencies().values())
    assert max(values) / min(values) < 1.25
    blocks = [known["cold_block_ns"].value for known in calibrations().values()]
    assert max(blocks) / min(blocks) > 6


def test_misses_go_with_leaving_out_alone():
    with pytest.raises(InputError, match="goes with left_out=True alone"):
        compare("hahn-v4", hold="misses")
    with pytest.raises(InputError, match="did you mean 'misses'"):
        compare("hahn-v4", left_out=True, hold="mises")


@pytest.mark.long
@pytest.mark.parametrize("name", causes.latencies())
def test_a_new_fit_finds_the_stored_latency(name):
    """Else: python tools/fit_calibration.py."""
    assert refit.refitted_miss_ns(name) == causes.latencies()[name]

"""How predictions are judged: the score is what it says, and nothing of a table leaks."""

# SPDX-License-Identifier: GPL-2.0-only

from dataclasses import replace

import pandas as pd
import pytest

from pcpmodel.datasets.packages import load_published, load_workload
from pcpmodel.hardware.machines import machine
from pcpmodel.study.published import cases, inputs, judge, model, repeats
from pcpmodel.study.published import compare as study
from pcpmodel.study.published import rows as cells
from pcpmodel.study.published.compare import compare
from pcpmodel.study.published.single import SINGLE
from pcpmodel.workload import unix_stream

RULES = cells.tolerances()
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


def cell(step, measured, runs, before, *, quantity="lock_contention", takings=None, table="unix"):
    row = cells.make_row("pcp-auto-tuning-v3", table, step, quantity, measured, runs[0], RULES)
    return cells.after(row, runs, before=before, runs_before=[before] * len(runs), first=50.0,
                       takings=takings)  # fmt: skip


def told(rows):
    return judge.cells_of(cells.with_constants(rows), [f"{r.source}/{r.table}" for r in rows])


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
    facts = judge.judged(frame)
    assert facts["contention"] == {"cells": 3, "within": 2, "within_and_no_null_as_good": 1}
    counts = {"changes": 4, "same": 2}  # 29 after 22, measured 20
    assert {k: facts["signs"][k] for k in counts} == counts
    (skill,) = facts["skill"]
    assert skill["mean_abs_error"] == pytest.approx((5 + 9 + 20 + 6) / 4)
    nulls = {"row before": (10 + 2 + 10 + 7) / 4, "nothing changes": (10 + 30 + 40 + 47) / 4}
    assert skill["null_mean_abs_error"] <= nulls["row before"] < nulls["nothing changes"]
    assert skill["skill"] == pytest.approx(1 - 10 / skill["null_mean_abs_error"])
    assert skill["not_as_good"] == 2  # patch1 and patch7
    said = dict(judge.said_of(facts))
    assert "2 of 3 within 1.5 times" in said["contention"]
    assert "Changes of more than 2 % with the measured sign: 2 of 4" in said["signs that stand"]
    nothing = dict(judge.said_of(judge.judged(frame.assign(counted=False))))
    assert "0 of 0" not in " ".join(nothing.values())


def test_one_is_told_as_one():
    facts = judge.judged(told([cell("patch1", 40.0, [44.0, 45.0, 46.0], 50.0)]))
    row = {"stated": 3, "recorded": 2, "assumed": 5, "fitted": 0, "fitted_to": ""}
    said = dict(judge.said_of(facts | {"inputs": [row]}))
    assert "Inputs of the workload: 3 stated by its source, " in said["inputs"]
    assert "5 assumed, 0 fitted." in said["inputs"]
    assert "; 1 cell that no later" in said["cells"]
    few = dict(judge.said_of(judge.judged(told([cell("patch7", 3.0, [9.0, 9.0, 9.0], 10.0)]))))
    assert few["contention"].endswith("of the cycles: in no cell.")
    assert "0 of the 0" not in few["signs that stand"]
    assert (
        "Inputs of the 2 workloads" in dict(judge.said_of(facts | {"inputs": 2 * [row]}))["inputs"]
    )


def test_the_best_constant_of_two_cells_is_their_answer_and_no_null_model():
    two = [cell("a", 40.0, [41.0] * 3, 50.0), cell("b", 40.0, [41.0] * 3, 50.0)]
    assert told(two)["null: best constant"].isna().all()
    assert told([*two, cell("c", 40.0, [41.0] * 3, 50.0)])["null: best constant"].notna().all()


def test_a_table_that_is_posted_again_is_not_counted_twice():
    one = cell("patch1", 150.0, [165.0] * 3, 100.0, quantity="score")
    twice = told([one, replace(one, source="pcp-auto-tuning-v2")])
    assert twice["counted"].tolist() == [True, False]
    facts = judge.judged(twice)
    assert facts["cells"] == 1
    assert facts["times"] == {
        "like": {
            "cells": 1,
            "mean_error_percent": pytest.approx(10.0),
            "max_error_percent": pytest.approx(10.0),
        }
    }


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


def test_every_input_is_stated_known_from_elsewhere_or_assumed():
    known, every = inputs.stated(), inputs.inputs_of()
    assert set(known) == set(every)
    assert {name.split(":")[0] for name in every} == NAMES
    for name, given in known.items():
        assert set(given) <= set(every[name]), name
    frame = inputs.inputs(NAMES, {"pcp-auto-tuning-v3/unix": 21}).set_index("table")
    assert (frame[["stated", "recorded", "fitted", "assumed"]].sum(axis=1) == frame["inputs"]).all()
    unix = frame.loc["pcp-auto-tuning-v3/unix"]
    assert (unix["stated"], unix["cells"]) == (3, 21)
    which = unix["which"].split(", ")
    assert len(which) == unix["assumed"]
    assert {"memory_gib", "jitter", "lru_hold", "moved"} <= set(which)
    assert not {"send_us", "line_dirty llc"} & set(which)
    # What a run was made to come to another source's figures by is neither known nor assumed.
    assert unix["fitted"] == 0
    sctp = frame.loc["pcp-auto-tuning-v3/sctp_stream_many"]
    assert (sctp["fitted"], sctp["fitted_to"]) == (3, "pcp-auto-tuning-rfc")
    assert not {"send_us", "recv_us", "latency_us"} & set(sctp["which"].split(", "))


def test_nothing_is_fitted_to_a_table(monkeypatch):
    """What is measured can be anything: the prediction is the same."""
    case = next(c for c in cases.cases() if c.name == "pcp-auto-tuning-v3/unix")
    quick = replace(
        case,
        workload=lambda: unix_stream(4),
        run={**case.run, "cpus": 8, "memory_gib": 16, "seconds": 0.02},
    )
    monkeypatch.setattr(study, "cases", lambda: (quick,))
    found = compare("pcp-auto-tuning-v3")
    steps = len(cases.published_rows(quick))
    assert len(found["cells"]) == 4 * (steps - 1) + 1  # the base row: contention alone
    told = {
        step: {k: 2 * v for k, v in row.items()}
        for step, row in cases.published_rows(quick).items()
    }
    monkeypatch.setattr(model, "published_rows", lambda case: told)
    other = compare("pcp-auto-tuning-v3")
    assert (other["cells"]["predicted"] == found["cells"]["predicted"]).all()
    assert (other["cells"]["measured"] == 2 * found["cells"]["measured"]).all()


def test_the_intervals_of_a_prediction_hold_what_the_sheet_allows():
    slow, fast = model.ends(machine("ice-lake"))[::-1]
    for row in (("line_dirty", "llc"), ("line_memory", ""), ("handover", "node")):
        known = machine("ice-lake").sheet[row]
        assert fast.sheet.value(*row) == known.low < known.high == slow.sheet.value(*row)
    assert slow.sheet.value("smt_share", "core") == fast.sheet.value("smt_share", "core")

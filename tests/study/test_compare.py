"""Published tables against the simulator: what counts, what is fitted, what is told."""

# SPDX-License-Identifier: GPL-2.0-only

import dataclasses
import json
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from count_verification import SEED, tally

import pcpmodel as pm
from helpers.paths import ROOT
from helpers.reports import of_every_notebook, runs_of
from pcpmodel.cli import main
from pcpmodel.datasets.packages import load_published, load_workload, published_names
from pcpmodel.errors import InputError
from pcpmodel.simulation.once import what_decides
from pcpmodel.simulation.pilot import pilot
from pcpmodel.simulation.spec import make_spec
from pcpmodel.study.published import cases, shared
from pcpmodel.study.published import compare as study
from pcpmodel.study.published import rows as cells
from pcpmodel.study.published.compare import compare
from pcpmodel.study.published.model import Runner, cache_miss_rows
from pcpmodel.study.published.null_models import (
    NULL_MODELS,
    best_constant,
    change_of,
    score_null_models,
    sign_of,
)
from pcpmodel.study.published.rows import allowed
from pcpmodel.workload import unix_stream

RULES = cells.tolerances()


@pytest.mark.parametrize(
    ("quantity", "measured", "predicted", "within"),
    [
        ("free_high", 20.0, 29.9, True),
        ("free_high", 20.0, 30.1, False),
        ("free_high", 20.0, 13.4, True),
        ("free_high", 20.0, 13.3, False),
        ("free_high", 3.0, 0.0, False),
        ("lock_contention", 1.0, 2.9, True),
        ("lock_contention", 1.0, 3.1, False),
        ("lock_contention", 10.0, 14.9, True),
        ("lock_contention", 10.0, 6.6, False),
        ("score", 100.0, 109.0, True),
        ("score", 100.0, 111.0, False),
    ],
)
def test_tolerance_is_what_the_data_say(quantity, measured, predicted, within):
    _, low, high = allowed(quantity, measured, RULES)
    assert (low <= predicted <= high) is within


def test_every_quantity_has_its_tolerance():
    assert set(cases.columns().values()) <= set(RULES)
    assert "not a blind one" in load_workload("answer-key").sources[0]["note"]


def test_no_table_at_all_is_refused():
    with pytest.raises(InputError, match=r"source=\[\] names nothing .* allowed: None \(all\)"):
        pm.compare([])


def test_every_row_of_a_table_has_a_kernel_of_its_own():
    for case in cases.cases():
        rules = [case.releases[step].rules for step in cases.published_rows(case)]
        assert len({repr(rule) for rule in rules}) == len(rules), case.name


def test_counts_of_a_timed_test_are_taken_per_unit_of_work():
    sctp, unix, build = (
        cases.published_rows(cases.find(f"pcp-auto-tuning-v2/{table}"))["patch1"]["free_high"]
        for table in ("sctp_stream_many", "unix", "kbuild")
    )
    assert sctp == pytest.approx(99.7 / 0.997)
    assert unix == 72.6  # of the same work, whatever the score
    assert build == 19.2


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_drains_per_page_tell_that_the_unix_tables_count_the_same_work(version):
    """The orders of a write give 2/3 and 1/15; no reading of the score is in that."""
    rows = cases.published_rows(cases.find(f"pcp-auto-tuning-{version}/unix"))
    for step, share in {"patch1": 2 / 3, "patch3": 1 / 15, "patch5": 1 / 15}.items():
        row = rows[step]
        assert row["free_high"] / row["alloc_zone"] == pytest.approx(share, rel=0.02)


def small(monkeypatch):
    """The builds on a small machine for a moment: quick, and of no other use."""
    case = next(c for c in cases.cases() if c.name == "pcp-auto-tuning-v3/unix")
    quick = cases.Case(
        case.source,
        case.table,
        lambda: unix_stream(4),
        case.releases,
        {**case.run, "cpus": 8, "memory_gib": 16, "seconds": 0.02},
        note="small",
    )
    monkeypatch.setattr(study, "cases", lambda: (quick,))


def test_no_column_of_a_compared_table_is_dropped():
    for case in cases.cases():
        frame = load_published(case.source).tables[case.table]
        told = {"step", "source", cases.cache_miss_column(), *cases.columns()}
        assert set(frame.columns) <= told, case.name


def test_machines_of_hahn_are_those_of_the_table_in_one_node_each():
    """ "Each machine is onlined in one node (zone)": 14 Oct 2025, to Danton."""
    assert cases.hahn_machines() == {
        "large": (316, 1, 754.0),
        "medium": (176, 1, 251.0),
        "small": (36, 1, 62.0),
    }


@pytest.mark.parametrize(
    ("measured", "predicted", "error", "sign"),
    [
        (-7.7, 1.7, 0.5, "opposite"),
        (-7.7, 1.1, 1.4, "none"),  # its own scatter is larger
        (-7.7, -0.01, 0.0, "none"),  # less than a digit of the tables
        (17.1, 23.1, 0.1, "same"),
        (0.0, 5.0, 0.1, None),
        (None, None, None, None),
    ],
)
def test_a_change_has_a_sign_only_beyond_its_noise(measured, predicted, error, sign):
    assert sign_of(measured, predicted, error) == sign


def test_the_interval_of_a_change_is_that_of_paired_runs():
    change, error = change_of([1.0, 2.0, 3.0], [2.0, 3.0, 5.0])
    assert change == pytest.approx(4 / 3)
    assert error == pytest.approx(4.302653 * (1 / 3) ** 0.5 / 3**0.5)
    assert change_of([1.0], [2.0]) == (1.0, float("inf"))


def test_the_best_constant_lies_in_most_ranges():
    assert best_constant([(0, 4), (3, 6), (10, 12)]) == 3.5
    assert best_constant([(90, 110), (95, 105)]) == 100
    assert math.isnan(best_constant([]))


def test_a_tolerance_that_nothing_changes_passes_tells_nothing():
    """The review's count by hand: build times move by 5 % at most, within their tolerance."""

    def cell(measured, predicted, before):
        row = cells.make_row("s", "t", "p", "build_time", measured, predicted, RULES)
        row = cells.after(row, [predicted] * 3, before=before, runs_before=[100] * 3, first=100.0)
        return row

    rows = cells.with_constants([cell(99.2, 98.0, 100.0), cell(94.9, 90.0, 99.2)])
    (model, same, before, constant) = score_null_models([r.as_dict() for r in rows])
    assert [c["predictor"] for c in (model, same, before, constant)] == [
        "model",
        "nothing changes",
        "row before",
        "best constant",
    ]
    assert all(c["within"] == c["cells"] == 2 for c in (model, same, before, constant))
    assert model["telling"] == model["telling_within"] == 0
    assert (model["signs"], same["signs"], model["changes"]) == (2, 0, 2)
    assert (model["large_signs"], model["large_changes"]) == (1, 1)


def test_rows_and_null_models_of_numbers_out_of_an_array_are_ready_for_json():
    one, other = np.float64(100.0), np.float64(94.9)
    row = cells.make_row("s", "t", "p", "rate", other, one, RULES, kind="score")
    row = cells.after(row, [one] * 3, before=one, runs_before=[one] * 3, first=one).as_dict()
    assert json.loads(json.dumps(row))["large_change"] is True
    json.dumps(score_null_models([row]))


def test_every_row_of_an_answer_key_is_predicted(monkeypatch):
    small(monkeypatch)
    found = compare("pcp-auto-tuning-v3")
    answer = found.facts
    rows = answer["rows"]
    assert (rows[0]["step"], rows[0]["quantity"]) == ("base", "lock_contention")
    assert answer["predictions"] == len(rows)
    assert answer["within"] == sum(r["within"] for r in rows)
    said = [key for key, _ in study._said(found["rows"], found["predictors"], answer)]
    assert len(said) == len(set(said))  # no sentence stands in the place of another
    assert {"signs", "signs that stand"} <= set(said)
    assert all(r["interval_low"] <= r["predicted"] <= r["interval_high"] for r in rows)
    assert {r["predicted_by"] for r in rows} == {"cost sheet, workload and pilot"}
    assert {r["source"] for r in rows} == {"pcp-auto-tuning-v3"}
    assert all(r["ratio"] == pytest.approx(r["predicted"] / r["measured"]) for r in rows)
    assert [r["sign"] is None for r in rows][:2] == [True, False]  # base has no row before
    counts = {c["predictor"]: 0 for c in answer["null_models"]}
    assert list(counts) == ["model", *NULL_MODELS]
    for count in answer["null_models"]:
        counts[count["predictor"]] += count["cells"]
    assert set(counts.values()) == {len(rows) - 1}
    base, patch1 = answer["cache_misses"][:2]
    assert (base["measured_rate"], base["sign"]) == (0.2, None)
    assert patch1["predicted_change"] == pytest.approx(
        patch1["not_in_cache"] - base["not_in_cache"]
    )
    text = str(found)
    assert "Nothing is fitted to a table that is compared" in text
    assert "nothing changes" in text
    assert "measured_change  predicted_change" in text
    assert f"- {answer['within']} of {answer['predictions']} predictions are within" in text
    assert found["rows"]["within"].tolist() == [r["within"] for r in rows]
    (order,) = [r for r in answer["rank"] if r["quantity"] == "score"]
    assert (found["rank"]["spearman"] == order["spearman"]).any()


@pytest.mark.long
def test_the_same_run_of_two_tables_or_two_notebooks_is_made_once(monkeypatch, tmp_path):
    small(monkeypatch)
    (quick,) = study.cases()
    older = cases.find("pcp-auto-tuning-v2/unix")
    later = {"base": "v6.6", "patch1": "v6.6+p1"}  # rules of the same patches, other names
    again = dataclasses.replace(
        quick,
        source="pcp-auto-tuning-v2",
        releases={step: pm.release(later.get(step, "v6.7")) for step in older.releases},
    )
    monkeypatch.setattr(study, "cases", lambda: (quick, again))
    made = []
    execute = shared.execute
    monkeypatch.setattr(shared, "execute", lambda spec: made.append(spec) or execute(spec))
    tables = [[case.name for case in some] for some in ((quick,), (again,), (quick, again))]
    apart = [compare(names).as_dict() for names in tables[:2]]
    of_each = len(made)
    made.clear()
    together = compare(tables[2]).as_dict()
    assert len(made) == len({what_decides(spec) for spec in made}) < of_each
    assert together["rows"] == apart[0]["rows"] + apart[1]["rows"]
    # And from one process to the next.
    monkeypatch.setenv(shared.SHARED_RUNS, str(tmp_path))
    assert compare(tables[0]).as_dict() == apart[0]
    made.clear()
    assert compare(tables[2]).as_dict() == together
    left = {what_decides(spec) for spec in made}
    assert left
    assert compare(tables[2]).as_dict() == together
    assert len(made) == len(left)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}


def test_what_decides_a_run_is_in_its_digest(monkeypatch):
    small(monkeypatch)
    (quick,) = study.cases()
    args = {**quick.run, "workload": unix_stream(4), "release": "v6.7", "seed": 1}
    specs = [
        make_spec(**{**args, **change})
        for change in (
            {},
            {"seed": 2},
            {"release": "v6.6"},
            {"batch_scale_max": 3},
            {"workload": unix_stream(4, send_us=3.0)},
            {"cpus": 12},
            {"machine": pm.machine("ice-lake").with_costs(handover=1.0)},
            {"machine": "coffee-lake"},
            {"identity": True, "caches": True},
        )
    ]
    digests = [what_decides(spec) for spec in specs]
    assert len(set(digests)) == len(specs)
    same = make_spec(**{**args, "release": quick.releases["patch9"].plus("remote-drain")})
    assert what_decides(same) == digests[0]  # v6.7 by another name


def test_command_line_prints_every_row(monkeypatch):
    small(monkeypatch)
    done = CliRunner().invoke(main, ["compare", "pcp-auto-tuning-v3", "--json"])
    assert done.exit_code == 0, done.output
    keys = {"source", "quantity", "measured", "predicted", "ratio", "tolerance", "within"}
    keys |= {"measured_change", "predicted_change", "sign", "null_models"}
    answer = json.loads(done.stdout)
    assert all(keys <= set(row) for row in answer["rows"])
    assert {c["predictor"] for c in answer["null_models"]} == {"model", *NULL_MODELS}


def test_unknown_tables_are_refused():
    with pytest.raises(InputError, match="did you mean 'pcp-auto-tuning-v2/unix'"):
        compare("pcp-auto-tuning-v2/unx")
    assert CliRunner().invoke(main, ["compare", "nonsense"]).exit_code == 2


@pytest.mark.notebook
@of_every_notebook
def test_the_series_tables_keep_their_share_of_right_cells(reported, monkeypatch):
    # The runs of the series are those of notebook 13, made by the same code a moment ago.
    monkeypatch.setenv(shared.SHARED_RUNS, str(runs_of(reported[0])))
    made = []
    execute = shared.execute
    monkeypatch.setattr(shared, "execute", lambda spec: made.append(spec) or execute(spec))
    answer = compare(seed=SEED).facts
    assert made == []
    told = json.loads((ROOT / "docs" / "verification.json").read_text(encoding="utf-8"))
    assert tally(answer) == told  # else: python tools/count_verification.py
    for key in ("predictions", "within"):
        assert sum(table[key] for table in told["tables"]) == answer[key]
    right: Counter[str] = Counter()
    for row in answer["null_models"]:
        right[row["predictor"]] += row["within"]
    assert right == {name: each["within"] for name, each in told["null_models"].items()}
    assert right["model"] >= right["row before"] > right["nothing changes"]


def test_every_published_table_is_compared_or_accounted_for():
    from pcpmodel.study.published.compare import _accounted
    from pcpmodel.study.published.single import SINGLE

    published = {
        (name, table) for name in published_names() for table in load_published(name).tables
    }
    compared = {(c.source, c.table) for c in cases.cases()} | {tuple(n.split("/")) for n in SINGLE}
    lists = _accounted(None)
    told = [(r["source"], r["table"]) for part in lists.values() for r in part]
    assert len(told) == len(set(told))
    assert not compared & set(told)
    assert compared | set(told) == published
    assert all(len(r["reason"]) > 20 and r["rows"] > 0 for part in lists.values() for r in part)


def test_rows_know_how_many_inputs_of_their_table_were_fitted():
    """The captions of answer keys said "nothing was fitted", whatever `inputs` counted."""
    rows = pd.DataFrame(
        {"source": "pcp-auto-tuning-v2", "table": ["unix", "sctp_stream_many", "x"]}
    )
    counted = pd.DataFrame(
        {
            "table": [f"pcp-auto-tuning-v2/{name}" for name in ("unix:8 pairs", "unix:16", "x")],
            "fitted": [1, 2, 0],
            "fitted_to": ["pcp-auto-tuning-rfc", "", ""],
        }
    )
    found = study._with_fitted(rows, counted)
    assert found["fitted"].iloc[[0, 2]].tolist() == [3, 0]
    assert math.isnan(found["fitted"].iloc[1])  # a report's inputs are not counted
    assert found["fitted_to"].iloc[0] == "pcp-auto-tuning-rfc"
    assert study._with_fitted(rows, counted.iloc[:0]).equals(rows)


def test_the_limits_say_how_many_pages_the_caches_have_lost():
    """It was 27 % of SCTP's, long after pilots had become other ones."""
    found = {}
    for case in cases.cases():
        if case.source == "pcp-auto-tuning-v3" and case.table in ("unix", "sctp_stream_many"):
            for step in ("patch5", "patch7"):
                spec = make_spec(release=case.releases[step], workload=case.workload(), **case.run)
                found[case.table, step] = pilot(spec).from_memory
    assert len(found) == 4
    assert {round(100 * share) for (_, step), share in found.items() if step == "patch5"} == {0}
    (lost,) = {round(100 * share) for (_, step), share in found.items() if step == "patch7"}
    page = " ".join((ROOT / "docs" / "limits.md").read_text(encoding="utf-8").split())
    assert f"of AF_UNIX's and SCTP's {lost} % under patch 7, next to none before it" in page


def test_pages_that_the_caches_have_lost_turn_as_the_misses_of_the_streams_do():
    """Each CPU had its share of the last-level cache to itself, and 84 % of a stream's pages, which
    another CPU had just used, were counted as lost: they went the other way."""
    unix, sctp = (cases.find(f"pcp-auto-tuning-v2/{t}") for t in ("unix", "sctp_stream_many"))
    rows = {r["step"]: r for r in cache_miss_rows(unix, [Runner(unix, s) for s in (1, 2, 3)])}
    assert rows["patch5"]["not_in_cache"] < 0.5 < 3 < rows["patch7"]["not_in_cache"] < 8
    assert rows["patch7"]["sign"] == "same"
    assert rows["patch10"]["sign"] != "opposite"
    five, seven, ten = (
        pilot(Runner(sctp, 1).spec(step)).from_memory for step in ("patch5", "patch7", "patch10")
    )
    assert max(five, ten) < 0.001 < 0.03 < seven  # measured: 1.3, 7.6 and 1.2 % of the accesses

"""Published tables against the simulator: what counts, what is fitted, what is told."""

# SPDX-License-Identifier: GPL-2.0-only

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from pcpmodel import figures
from pcpmodel.cli import main
from pcpmodel.data_package import load_published, load_workload, published_names
from pcpmodel.errors import InputError
from pcpmodel.study import compare as study
from pcpmodel.study.compare import CASES, allowed, as_text, compare

RULES = study._tolerances()


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
    assert set(study._COLUMNS.values()) <= set(RULES)
    assert "not a blind one" in load_workload("answer-key").sources[0]["note"]


def test_only_the_base_row_and_one_more_are_fitted():
    for case in CASES:
        rows = {fit.step for fit in case.fits}
        assert len(rows - {"base"}) <= 1, case.name


def test_every_row_of_a_table_has_a_kernel():
    for case in CASES:
        for step in study._measured(case):
            assert case.kernel(step).patches is not None


def test_counts_of_a_timed_test_are_taken_per_unit_of_work():
    sctp, unix, build = (
        study._measured(study._find(f"pcp-auto-tuning-v2/{table}"))["patch1"]["free_high"]
        for table in ("sctp_stream_many", "unix", "kbuild")
    )
    assert sctp == pytest.approx(99.7 / 0.997)
    assert unix == 72.6  # of the same work, whatever the score
    assert build == 19.2


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_drains_per_page_tell_that_the_unix_tables_count_the_same_work(version):
    """The orders of a write give 2/3 and 1/15; no reading of the score is in that."""
    rows = study._measured(study._find(f"pcp-auto-tuning-{version}/unix"))
    for step, share in {"patch1": 2 / 3, "patch3": 1 / 15, "patch5": 1 / 15}.items():
        row = rows[step]
        assert row["free_high"] / row["alloc_zone"] == pytest.approx(share, rel=0.02)


def test_a_core_whose_thread_spins_works_faster_on_the_other():
    class Run:
        score, free_high, alloc_zone_pages, lru_contention = 100, 1, 1, 0.0

        def __init__(self, lock_contention):
            self.lock_contention = lock_contention

    spinning, free = Run(0.2), Run(0.0)
    assert study._figures(free, spinning, None)["build_time"] == 100
    # Nobody spins: both threads of a core do half of its yield.
    slower = study._figures(free, spinning, 1.5)["build_time"]
    assert slower == pytest.approx(100 * (0.8 * 0.75 + 0.2) / 0.75)


def small(monkeypatch):
    """The builds on a small machine for a moment: quick, and of no other use."""
    case = next(c for c in CASES if c.name == "pcp-auto-tuning-v3/unix")
    quick = study.Case(
        case.source,
        case.table,
        lambda **own: study.unix_stream(4, **own),
        case.kernel,
        {**case.run, "cpus": 8, "memory_gib": 16, "seconds": 0.02},
        (study.Fit("handoff_ns", "base", "lock_contention", 0.0, 9000.0),),
        note="small",
    )
    monkeypatch.setattr(study, "CASES", (quick,))


def test_answer_key_tells_fitted_from_predicted(monkeypatch):
    small(monkeypatch)
    answer = compare("pcp-auto-tuning-v3")
    rows = answer["rows"]
    fitted = [r for r in rows if r["fitted"]]
    assert [(r["step"], r["quantity"]) for r in fitted] == [("base", "lock_contention")]
    assert fitted[0]["predicted"] == pytest.approx(fitted[0]["measured"], rel=0.2)
    assert answer["predictions"] == len(rows) - 1
    assert answer["within"] == sum(r["within"] for r in rows if not r["fitted"])
    assert {r["source"] for r in rows} == {"pcp-auto-tuning-v3"}
    assert all(r["ratio"] == pytest.approx(r["predicted"] / r["measured"]) for r in rows)
    assert answer["sensitivity"][0]["points_of_base_contention_per_tenth"] > 0
    text = as_text(answer)
    assert "fitted: handoff_ns" in text
    assert "predictions within tolerance" in text
    scores = [r["within"] for r in rows if r["quantity"] == "score" and not r["fitted"]]
    assert f"score {sum(scores):16} of {len(scores)}" in text
    (order,) = [r for r in answer["rank"] if r["quantity"] == "score"]
    assert f"score {order['spearman']:.2f}" in text


def test_command_line_prints_every_row(monkeypatch):
    small(monkeypatch)
    done = CliRunner().invoke(main, ["compare", "pcp-auto-tuning-v3", "--json"])
    assert done.exit_code == 0, done.output
    keys = {"source", "quantity", "measured", "predicted", "ratio", "tolerance", "within", "fitted"}
    assert all(keys <= set(row) for row in json.loads(done.stdout)["rows"])


def test_unknown_tables_are_refused():
    with pytest.raises(InputError, match="did you mean 'pcp-auto-tuning-v2/unix'"):
        compare("pcp-auto-tuning-v2/unx")
    assert CliRunner().invoke(main, ["compare", "nonsense"]).exit_code == 2


@pytest.mark.long
def test_the_series_tables_keep_their_share_of_right_cells():
    answer = compare()
    assert answer["within"] >= 0.9 * answer["predictions"]
    told = Path(__file__).parents[1] / "docs" / "verification.json"
    tables = json.loads(told.read_text(encoding="utf-8"))["tables"]
    for key in ("predictions", "within"):  # else: python tools/count_verification.py
        assert sum(table[key] for table in tables) == answer[key]


def test_every_published_table_is_compared_or_accounted_for():
    from pcpmodel.study.compare import _FIGURES, _accounted

    published = {
        (name, table) for name in published_names() for table in load_published(name).tables
    }
    compared = {(c.source, c.table) for c in CASES} | {tuple(n.split("/")) for n in _FIGURES}
    lists = _accounted(None)
    told = [(r["source"], r["table"]) for part in lists.values() for r in part]
    assert len(told) == len(set(told))
    assert not compared & set(told)
    assert compared | set(told) == published
    assert all(len(r["reason"]) > 20 and r["rows"] > 0 for part in lists.values() for r in part)


def test_a_miss_is_shown_with_what_it_hangs_on(monkeypatch):
    small(monkeypatch)
    monkeypatch.setattr(study, "_PROBE", (0.5, 2.0))
    strict = {"factor": 1.0001, "points": 0.0, "points_below": 0.0}
    monkeypatch.setattr(
        study, "_tolerances", lambda: dict.fromkeys(study._COLUMNS.values(), strict)
    )
    answer = compare("pcp-auto-tuning-v3/unix")
    missed = {
        (r["step"], r["quantity"]) for r in answer["rows"] if not r["within"] and not r["fitted"]
    }
    assert missed
    assert {(m["step"], m["quantity"]) for m in answer["misses"]} == missed
    assert {m["parameter"] for m in answer["misses"]} == {"handoff_ns"}
    score = next(m for m in answer["misses"] if m["quantity"] == "score")
    assert score["with_less"] < score["with_more"]  # the patches save waiting
    ax = figures.misses(pd.DataFrame(answer["misses"]))
    assert len(ax.get_yticklabels()) == len(missed)
    assert f"{len(missed)} predictions" in figures.caption(ax)

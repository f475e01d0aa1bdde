"""The table of a cover letter, from simulated patches."""

# SPDX-License-Identifier: GPL-2.0-only

import csv
import io
import json
import re

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import ROOT
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.study.published import cases
from pcpmodel.study.published.cover_letter import read_spec

SPEC = {
    "releases": ["v6.6", "v6.6+p4", "v6.7"],
    "labels": ["base", "patch4", "patch10"],
    "workloads": [
        {"name": "page_fault1", "processes": 224},
        {"name": "sctp_stream", "pairs": 112},
    ],
    "machine": "sapphire-rapids",
    "seeds": 2,
    "options": {"seconds": 0.02, "warmup_s": 0.0},
}

LOCK, WAIT, HOLD = (
    "lock_contention_percent_of_cycles", "wait_p99_percent_of_first", "hold_p99_percent_of_first"
)  # fmt: skip


def run(tmp_path, spec, *more):
    path = tmp_path / "spec.json"
    path.write_text(spec if isinstance(spec, str) else json.dumps(spec))
    return CliRunner().invoke(main, ["cover-letter", str(path), *more])


def test_text_fits_a_mail_and_says_what_is_better(tmp_path):
    done = run(tmp_path, SPEC)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 72
    rows = [line.split() for line in lines if line.startswith(("base", "patch"))]
    assert [r[0] for r in rows] == ["base", "patch4", "patch10"] * 2
    assert rows[0][1] == "100.0"
    text = " ".join(done.stdout.split())
    on = "on 224 CPUs on 2 nodes, 512 GiB, pages of 4 KiB (assumed: 224 CPUs, 2 nodes, as many "
    assert f"sapphire-rapids, seconds=0.02, warmup_s=0.0, {on}" in text
    assert "Positive (more) is better: score." in text
    assert "Negative (less) is better: lock%, wait p99, hold p99." in text
    assert "Simulated, not measured." in text
    starts = {line.index("±") for line in lines if line.startswith(("base", "patch"))}
    assert len(starts) == 1, "columns are aligned"


def test_a_tree_is_one_more_row_beside_those_with_labels(tmp_path):
    tree = pm.study.example_tree(tmp_path / "four-batches")
    small = SPEC | {"workloads": [{"name": "page_fault1", "processes": 4}]}
    done = run(tmp_path, small, "--tree", str(tree), "--format", "csv")
    assert done.exit_code == 0, done.output
    for row in ("base", "patch4", "patch10", str(tree)):
        assert row in done.stdout


def test_a_name_alone_is_a_workload_on_every_cpu():
    options = {"seconds": 0.01, "warmup_s": 0.0, "cpus": 8}
    letter = pm.cover_letter(
        ["v7.2", "v7.3"], workloads=["page_fault1", "sctp_stream"], seeds=2, options=options
    )
    assert [*letter.tables] == [
        "page_fault1 (processes=8), simulated", "sctp_stream (pairs=4), simulated"
    ]  # fmt: skip
    assert "the lock holds of sapphire-rapids" in letter.text
    for name, said in (("kbild", "did you mean 'kbuild'?"), ("recorded", "'recorded' needs more")):
        with pytest.raises(InputError, match=re.escape(said)):
            pm.cover_letter(["v7.2"], [name], "ice-lake")


def test_warm_up_and_intervals_are_said():
    letter = pm.cover_letter(
        ["v6.6", "v6.7"],
        [{"name": "page_fault1", "processes": 8}, {"name": "file_churn", "processes": 2}],
        "ice-lake",
        seeds=2,
        options={"seconds": 0.1, "cpus": 16, "memory_gib": 32},
    )
    page_fault1, file_churn = letter.text.split(". ")[1:]
    assert "page_fault1: nothing fitted" in page_fault1
    assert "counted once the rates were steady" in page_fault1
    assert "within a run the 95 % interval (batch means) is up to ±" in page_fault1
    assert "file_churn: nothing fitted" in file_churn
    assert max(map(len, str(letter).splitlines())) <= 72


def test_all_forms_hold_the_same_numbers(tmp_path):
    told = json.loads(run(tmp_path, SPEC, "--json").stdout)
    heading, table = next(iter(told["tables"].items()))
    assert heading == "page_fault1 (processes=224), simulated"
    rows = list(csv.DictReader(io.StringIO(run(tmp_path, SPEC, "--format", "csv").stdout)))
    assert [r["rules"] for r in rows[:3]] == [r["rules"] for r in table]
    assert float(rows[2][LOCK]) == pytest.approx(table[2][LOCK], rel=1e-5)
    latex = run(tmp_path, SPEC, "--format", "latex").stdout
    assert latex.count(r"\begin{tabular}") == 2
    assert f"{table[2][LOCK]:.1f} $\\pm$" in latex
    assert table[2][LOCK] < table[0][LOCK]
    assert {WAIT, HOLD} <= set(table[0]), "what a cap on drains changes"
    # No column has the name of a figure in ns, per second or as a share.
    named = ["rules", "kind", "score_percent_of_first", LOCK, WAIT, HOLD]
    assert [c for c in table[0] if not c.endswith("_sd")] == named
    assert [c for c in rows[0] if not c.endswith("_sd")] == ["workload", *named]
    assert r"& \% of first & \% of cycles & \% of first & \% of first \\" in latex


def test_latex_says_what_its_numbers_are_and_no_form_explains_a_column_that_it_has_not(tmp_path):
    latex = run(tmp_path, SPEC, "--format", "latex").stdout
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 2
    assert r"\caption{page\_fault1 (processes=224), simulated}" in latex
    text = run(tmp_path, SPEC).stdout
    for said in (
        "Simulated with the lock holds of",
        "mean and standard deviation of",
        "within a run the 95",
        "Simulated, not measured.",
        "is better: lock",
    ):
        assert latex.count(said) == 2, said
        assert said in " ".join(text.split())
    assert "per unit of work" not in latex + text
    of = SPEC | {"figures": ["score_per_s", "free_high"]}
    text = " ".join(run(tmp_path, of).stdout.split())
    assert "In % of the first row; free_high per unit of work." in text
    assert "alloc_zone" not in text
    assert "of the cycles" not in text


def test_a_figure_of_which_the_first_row_has_none_is_null(tmp_path):
    told = json.loads(run(tmp_path, SPEC | {"figures": ["free_high"]}, "--json").stdout)
    table = next(iter(told["tables"].values()))
    assert table[0]["free_high_percent_of_first"] is None, "page faults free no high-order block"


def test_a_lock_that_is_never_taken_has_no_percentile(tmp_path):
    still = {
        "releases": ["v6.6", "v6.7"],
        "labels": ["base", "patch10"],
        "options": {"seconds": 0.02},
    }
    spec = SPEC | still | {"workloads": [{"name": "page_fault1", "processes": 4}]}
    table = next(iter(json.loads(run(tmp_path, spec, "--json").stdout)["tables"].values()))
    before, after = table
    assert (before[HOLD], before[WAIT]) == pytest.approx((100, 100))
    assert after["score_percent_of_first"] > 100
    assert after[HOLD] is after[WAIT] is None
    last = run(tmp_path, spec).stdout.rpartition("patch10")[2].split("\n")[0]
    assert last.split()[-2:] == ["-", "-"]


@pytest.mark.long
def test_the_example_has_a_published_table_above_its_simulation(monkeypatch):
    # What the table's runs say is looked at elsewhere: here they are short.
    whole = cases._host
    short = {"seconds": 0.05, "warmup_s": 0.05}
    monkeypatch.setattr(cases, "_host", lambda *given: whole(*given) | short)
    path = ROOT / "examples" / "cover-letter.json"
    letter = pm.cover_letter(**(read_spec(path) | {"seeds": 2, "options": {"seconds": 0.01}}))
    assert [len(t) for t in letter.tables.values()] == [5, 5, 14]
    heading, rows = list(letter.as_dict()["tables"].items())[-1]
    assert heading == "pcp-auto-tuning-v2/sctp_stream_many, published and simulated"
    assert [r["kind"] for r in rows] == ["measured", "simulated"] * 7
    published = pm.datasets.load_published("pcp-auto-tuning-v2").tables["sctp_stream_many"]
    measured = [r for r in rows if r["kind"] == "measured"]
    assert [r[LOCK] for r in measured] == [*published["lock_contend_cycles_pct"]]
    assert [r["score_percent_of_first"] for r in measured] == [*published["score_pct"]]
    assert {r[LOCK + "_sd"] for r in measured} == {None}
    assert all(r[LOCK + "_sd"] is not None for r in rows if r not in measured)
    assert all("fitted" not in r for r in rows)
    text = str(letter)
    assert max(map(len, text.splitlines())) <= 72
    said = " ".join(text.split())
    assert "whose source states no variation" in said
    assert "fitted, not predicted" not in said
    assert "not measured" not in said
    assert re.search(r"^base +measured +100\.0 +2\.0 ", text, re.M)
    assert r"base & measured & 100.0 & 2.0 &" in letter.latex()
    table = list(csv.DictReader(io.StringIO(letter.csv())))[-14:]
    assert [r["kind"] for r in table] == [r["kind"] for r in rows]
    assert table[0][LOCK + "_sd"] == ""


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"releases": []}, "must not be empty"),
        ({"workloads": []}, "must not be empty"),
        ({"workloads": [{"published": "pcp-auto-tunig-v2", "table": "unix"}]}, "auto-tuning-v2"),
        ({"workloads": [{"published": "pcp-auto-tuning-v2", "table": "unit"}]}, "v2/unix"),
        ({"workloads": [{"published": "pcp-auto-tuning-v2", "table": "setup"}]}, "no rows of pat"),
        ({"workloads": [{"published": "pcp-auto-tuning-v2", "tables": "unix"}]}, "'table'"),
        ({"figures": ["build_time"]}, "figure 'build_time'"),
        ({"releases": ["v6.99"], "labels": []}, r"v6\.99"),
        ({"releases": "v6.6"}, "needs 'releases', a list"),
        ({"labels": ["one"]}, "1 labels for 3 releases"),
        ({"workloads": [{"name": "page_fault9"}]}, "page_fault1"),
        ({"workloads": [3]}, "not a name or an object with one"),
        ({"machine": "sapphire"}, "sapphire-rapids"),
        ({"seeds": 1}, "seeds=1"),
        ({"figures": ["scores"]}, "score_per_s"),
        ({"figures": ["score_per_s"] * 5}, "5 figures"),
        ({"option": {}}, "options"),
        ({"options": {"machine": "coffee-lake"}}, "machine is not one of them; give machine"),
        ({"options": {"seed": 3}}, "seed is not one of them; give seeds"),
        ({"options": {"release": "v6.6"}}, "release is not one of them; give releases"),
        ({"options": {"workload": {"name": "kbuild", "jobs": 2}}}, "give workloads"),
        ({"options": {"samples": [20, 40]}}, r"samples=\[20, 40\] are several"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(tmp_path, change, match):
    done = run(tmp_path, SPEC | change)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert re.search(match, done.output), done.output
    assert "spec.json" in done.output


def test_no_json_is_bad_input(tmp_path):
    assert run(tmp_path, "{").exit_code == 2
    assert run(tmp_path, "[]").exit_code == 2


def test_a_figure_that_there_is_not_is_named():
    with pytest.raises(InputError, match="free_hihg"):
        pm.cover_letter(["v6.6"], [{"name": "page_fault1", "processes": 8}], "ice-lake",
                        figures=["free_hihg"])  # fmt: skip

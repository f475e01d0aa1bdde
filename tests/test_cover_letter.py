"""The table of a cover letter, from simulated patches."""

# SPDX-License-Identifier: GPL-2.0-only

import csv
import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError

SPEC = {
    "releases": ["v6.6", "v6.6+p4", "v6.7"],
    "labels": ["base", "patch4", "patch10"],
    "workloads": [
        {"name": "page_fault1", "processes": 224},
        {"name": "sctp_stream", "pairs": 112},
    ],
    "machine": "sapphire-rapids",
    "seeds": 2,
    "options": {"seconds": 0.02},
}


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
    assert "Positive (more) is better: score." in text
    assert "Negative (less) is better: lock%, free_high, alloc_zone." in text
    assert "Simulated, not measured." in text
    starts = {line.index("±") for line in lines if line.startswith(("base", "patch"))}
    assert len(starts) == 1, "columns are aligned"


def test_all_forms_hold_the_same_numbers(tmp_path):
    told = json.loads(run(tmp_path, SPEC, "--json").stdout)
    heading, table = next(iter(told["tables"].items()))
    assert heading == "page_fault1 (processes=224)"
    rows = list(csv.DictReader(io.StringIO(run(tmp_path, SPEC, "--format", "csv").stdout)))
    assert [r["rules"] for r in rows[:3]] == [r["rules"] for r in table]
    assert float(rows[2]["lock_contention"]) == pytest.approx(table[2]["lock_contention"], rel=1e-5)
    latex = run(tmp_path, SPEC, "--format", "latex").stdout
    assert latex.count(r"\begin{tabular}") == 2
    assert f"{table[2]['lock_contention']:.1f} $\\pm$" in latex
    assert table[2]["lock_contention"] < table[0]["lock_contention"]
    assert table[0]["free_high"] is None, "page faults free no high-order block"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"releases": []}, "must not be empty"),
        ({"releases": ["v6.99"], "labels": []}, r"v6\.99"),
        ({"releases": "v6.6"}, "needs 'releases', a list"),
        ({"labels": ["one"]}, "1 labels for 3 releases"),
        ({"workloads": [{"name": "page_fault9"}]}, "page_fault1"),
        ({"workloads": ["page_fault1"]}, "not an object with a name"),
        ({"machine": "sapphire"}, "sapphire-rapids"),
        ({"seeds": 1}, "seeds=1"),
        ({"figures": ["scores"]}, "score_per_s"),
        ({"figures": ["score_per_s"] * 5}, "5 figures"),
        ({"option": {}}, "options"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(tmp_path, change, match):
    done = run(tmp_path, SPEC | change)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert re.search(match, done.output), done.output


def test_no_json_is_bad_input(tmp_path):
    assert run(tmp_path, "{").exit_code == 2
    assert run(tmp_path, "[]").exit_code == 2


def test_the_example_is_a_letter():
    from pcpmodel.study.cover_letter import read_spec

    path = Path(__file__).parents[1] / "examples" / "cover-letter.json"
    letter = pm.cover_letter(**(read_spec(path) | {"seeds": 2, "options": {"seconds": 0.01}}))
    assert [len(t) for t in letter.tables.values()] == [5, 5]
    with pytest.raises(InputError, match="free_hihg"):
        pm.cover_letter(["v6.6"], [{"name": "page_fault1", "processes": 8}], "ice-lake",
                        figures=["free_hihg"])  # fmt: skip

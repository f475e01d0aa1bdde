"""The published figures by name, drawn from their notebooks."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.paths import ROOT
from helpers.reports import of_every_notebook
from pcpmodel.cli import main

FILES = ("json", "pdf", "png", "svg", "tex")


def run(*words):
    return CliRunner().invoke(main, ["figures", *map(str, words), "--project", str(ROOT)])


def listed(*words):
    done = run(*words, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["figures"]


def test_every_figure_that_a_notebook_saves_is_published():
    found = listed()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        code = "".join(
            "".join(c["source"])
            for c in json.loads(path.read_bytes())["cells"]
            if c["cell_type"] == "code"
        )
        saved = set(re.findall(r'figures\.save\(\s*[\w.()]+,\s*"([a-z0-9-]+)"', code))
        assert len(saved) == code.count("figures.save(")
        own = [f for f in found if f["notebook"] == f"notebooks/{path.name}"]
        assert {f["name"].rpartition("/")[2] for f in own} == saved
    from pcpmodel import figures

    assert {f["function"] for f in found} <= {*figures.__all__, "tour.figure()"}
    assert all(f["files"] == [] and f["caption"] is None for f in found)


def test_a_figure_is_asked_for_by_any_of_its_names():
    path = "03-new-hardware/ice-lake/residuals"
    assert [f["name"] for f in listed(path)] == [path]
    assert [f["name"] for f in listed("ice-lake/residuals")] == [path]
    both = [f["name"] for f in listed("residuals")]
    assert path in both
    assert "01-batch-latency/all/residuals" in both
    assert len(listed("03-new-hardware/ice-lake")) == 6
    (one,) = listed(path)
    assert one["reads"] == ["hardware/ice-lake"]
    assert one["function"] == "residuals"


@pytest.mark.long
def test_files_have_caption_alt_text_and_the_same_bytes_again(tmp_path):
    names = ("ice-lake/residuals", "01-batch-latency/hold-time")
    made = [tmp_path / place for place in ("one", "two")]
    for out in made:
        done = run(*names, "--size", "one-column", "--out", out, "--json")
        assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)["figures"]
    assert [f["name"] for f in told] == [
        "01-batch-latency/all/hold-time", "03-new-hardware/ice-lake/residuals"]  # fmt: skip
    for figure in told:
        assert [Path(f).suffix[1:] for f in figure["files"]] == ["svg", "pdf", "png"]
        assert re.search(r"\d", figure["caption"])
        assert figure["alt"]
        for kind in FILES:
            first, second = (out / f"{figure['name']}.{kind}" for out in made)
            assert first.read_bytes() == second.read_bytes(), kind
    assert "Parameters of 03-new-hardware: machine = ice-lake; p99_us = 100.0" in told[1]["caption"]
    assert {p.name for p in made[0].rglob("*.*")} == {
        *(f"{stem}.{kind}" for stem in ("residuals", "hold-time") for kind in FILES),
        "references.bib",
    }
    about = json.loads((made[0] / f"{told[1]['name']}.json").read_text(encoding="utf-8"))
    program, verb, *words = shlex.split(about["again"])
    assert (program, verb) == ("pcpmodel", "figures")
    words[words.index("--out") + 1] = str(tmp_path / "again")
    assert run(*words).exit_code == 0
    for kind in FILES:
        first, again = (out / f"{told[1]['name']}.{kind}" for out in (made[0], tmp_path / "again"))
        assert first.read_bytes() == again.read_bytes(), kind
    assert about["notebook"] == "03-new-hardware"
    assert about["parameters"]["machine"] == "ice-lake"
    tex = (made[0] / f"{told[1]['name']}.tex").read_text(encoding="utf-8")
    assert tex.startswith(f"% made by: {about['again']}\n")
    assert "\\label{fig:03-new-hardware/ice-lake/residuals}" in tex
    assert not re.search(r"(?<!\\)[%&#_](?!.*made by)", tex.partition("caption{")[2])
    bibtex = (made[0] / "references.bib").read_text(encoding="utf-8")
    assert set(re.findall(r"@\w+\{([^,]+),", bibtex)) >= {"pcpmodel", "ice-lake"}
    assert bibtex.count("{") == bibtex.count("}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_a_paper_takes_the_floats_of_two_machines_as_the_readme_says(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (where,) = re.findall(r"`(\\graphicspath\{\{(.*?)/\}\})`", readme)
    (shown,) = re.findall(r"`\\input\{(.*?)\}`,\s+with\s+the\s+label\s+`fig:(.*?)`", readme)
    assert shown == (f"{where[1]}/{shown[1]}", shown[1])
    assert shown[1] in {figure["name"] for figure in listed()}
    names = [f"03-new-hardware/{machine}/scale-latency" for machine in ("ice-lake", "coffee-lake")]
    assert run(*names, "--format", "pdf", "--out", tmp_path / where[1]).exit_code == 0
    floats = "".join(f"\\input{{{where[1]}/{name}}}\\ref{{fig:{name}}}\n" for name in names)
    (tmp_path / "paper.tex").write_text(
        f"\\documentclass{{article}}\\usepackage{{graphicx}}{where[0]}\n"
        f"\\begin{{document}}\n{floats}\\end{{document}}\n"
    )
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    for _ in range(2):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout[-2000:]
    said = "".join(done.stdout.split()).replace("//", "/")  # its lines are cut
    assert all(f"{where[1]}/{name}.pdf" in said for name in names)
    assert "multiplydefined" not in said
    assert "undefined" not in said


def test_size_in_inches_and_font(tmp_path):
    name = "03-new-hardware/ice-lake/residuals"
    words = ("--size", "3.5,2.25", "--format", "pdf", "--out", tmp_path)
    assert run(name, *words, "--font", "DejaVu Serif").exit_code == 0
    assert json.loads((tmp_path / f"{name}.json").read_text())["inches"] == [3.5, 2.25]
    assert b"DejaVuSerif" in (tmp_path / f"{name}.pdf").read_bytes()


def test_parameters_change_what_is_drawn_and_said(tmp_path):
    done = run("refill-ladder", "--param", "pages=2000", "--format", "svg", "--out", tmp_path,
               "--size", "slide", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    (figure,) = json.loads(done.stdout)["figures"]
    assert "pages = 2000" in figure["caption"]
    assert "63 in 32 visits" in figure["caption"]
    assert [Path(f).name for f in figure["files"]] == ["refill-ladder.svg"]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["hold-tim"], "did you mean 'hold-time'"),
        (["residuals", "--size", "huge"], "unknown size 'huge'"),
        (["residuals", "--size", "3,nan"], "allowed: W,H"),
        (["residuals", "--size", "0.5,3"], "each from 1 to 40"),
        (["residuals", "--font", "DejaVu San"], "did you mean 'DejaVu Sans'"),
        (["residuals", "--format", "gif"], "unknown format 'gif'"),
        (["refill-ladder", "--param", "page=1"], "did you mean 'pages'"),
        (["refill-ladder", "--param", "pages=1.5"], "parameter pages is int"),
        (["refill-ladder", "--param", "pages"], "not NAME=VALUE"),
        (["refill-ladder", "--param", "pages=0"], r"number=0 is outside 1\.\."),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_left(tmp_path, words, match):
    done = run(*words, "--out", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert re.search(match, done.output), done.output
    assert not (tmp_path / "out").exists()
    assert run(words[0]).exit_code == 2, "neither --out nor --dry-run"


@pytest.mark.notebook
@of_every_notebook
def test_the_gallery_shows_every_figure_with_notebook_data_digest_and_alt_text(reported):
    out, runs = reported
    page = (out / "index.html").read_text(encoding="utf-8")
    shown = re.findall(r'<img src="([^"]+)\.svg" alt="([^"]*)"', page)
    assert sorted(name for name, _ in shown) == sorted(f["name"] for f in listed())
    assert all(alt.endswith(".") and len(alt) > 40 for _, alt in shown)
    for name, _ in shown:
        about = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        assert f"figure data {about['digest'][:12]}" in page
        assert re.search(r"\d", about["caption"])
    for run in runs:
        assert run.data_digest[:12] in page
        assert f'href="{run.name}/{run.notebook.path.name}"' in page

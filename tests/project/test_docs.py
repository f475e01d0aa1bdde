"""The documentation: every command and example runs, every public name is there, no warning."""

# SPDX-License-Identifier: GPL-2.0-only

import ast
import doctest
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from datetime import date
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import pcpmodel as pm
from helpers.paths import ROOT
from pcpmodel.reports.references import references

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PROGRAMS = [ROOT / "docs" / "workloads.md"]
START = "from pcpmodel.cli import main; main()"


def blocks(page: Path, kind: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.stem)
def test_commands_of_the_tutorial_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    sessions = blocks(page, "console")
    assert sessions
    shutil.copytree(ROOT / "data/hardware", tmp_path / "data/hardware")
    (tmp_path / "data/traces").symlink_to(ROOT / "data/traces")
    tool = tmp_path / "bin/pcpmodel"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{START}" "$@"\n')
    tool.chmod(0o755)
    env = os.environ | {
        "PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}",
        "PCPMODEL_DATA": str(tmp_path / "data"),
    }
    for command, shown in re.findall(r"^\$ (.+)\n((?:[^$].*\n)*)", "".join(sessions), re.M):
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        same = doctest.OutputChecker().check_output(
            shown, done.stdout, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
        assert same, f"{command}\n{done.stdout}"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.stem)
def test_examples_of_the_tutorial_print_what_is_shown(page: Path) -> None:
    for number, text in enumerate(blocks(page, "{doctest}")):
        test = doctest.DocTestParser().get_doctest(text, {"pm": pm}, page.stem, page.name, number)
        assert test.examples
        assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda p: p.stem)
def test_programs_of_the_page_run(page: Path) -> None:
    for text in blocks(page, "python"):
        names: dict[str, object] = {}
        exec(text, names)
        for line, said in re.findall(r"^(run\.\S.*?)  # ([\d.e]+)", text, re.M):
            assert eval(line, names) == pytest.approx(float(said), rel=0.02), line


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in pm._PUBLIC if not getattr(pm, name).__doc__] == []


def documented() -> dict[str, object]:
    """Path and object of every public name, those of public modules included."""
    found = {}
    for name, where in pm._PUBLIC.items():
        thing = getattr(pm, name)
        inside = {n: getattr(thing, n) for n in thing.__all__} if inspect.ismodule(thing) else {}
        found |= {f"{thing.__name__}.{n}": o for n, o in inside.items()} or {
            f"{where}.{name}": thing
        }
    return {path: thing for path, thing in found.items() if callable(thing)}


@pytest.mark.parametrize("path", documented())
def test_what_a_public_name_takes_returns_and_raises_is_documented(path: str) -> None:
    from numpydoc.validate import validate

    thing = documented()[path]
    wanted = {"GL08"}
    if not isinstance(thing, type):  # a class may say what it is made of as attributes
        wanted |= {"PR01", "PR02", "PR04", "RT01"}
    assert [e for e in validate(path)["errors"] if e[0] in wanted] == []
    if inspect.isfunction(thing):
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
        if any(isinstance(node, ast.Raise) for node in ast.walk(tree)):
            assert re.search(r"^ *Raises\n *------$", thing.__doc__ or "", re.M)


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What makes pages of the documentation."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return import_module("generate")


def test_the_page_of_facts_has_every_change_of_mainline_once(
    generate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = {"6.18-pf1-2cpu": pm.replay(ROOT / "data/traces/6.18-pf1-2cpu")}
    monkeypatch.setattr(generate, "replays", lambda root: (replayed, 0))
    page = generate.facts(ROOT)
    sections = dict(re.findall(r"^## (v\S+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert list(sections) == [r.name for r in generate.mainline()]
    before: set[str] = set()
    for name, text in sections.items():
        has = set(pm.release(name).patches)
        assert set(re.findall(r"; here `(\S+)`$", text, re.M)) == has - before, name
        before = has
    assert "**1 of 1** recordings" in sections["v6.18"]
    assert "No recording" in sections["v6.19"]
    assert "largest drain moves 2,016 pages in 1 hold." in sections["v6.18"]  # batch 63 << 5
    assert "largest drain moves 2,016 pages in 32 holds." in sections["v6.19"]


def test_the_worked_examples_are_counted_by_number(generate: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('("T2", 2), ("T2", 3), pytest.param(4, id="T12")')
    (tmp_path / "b.py").write_text('("T12", 5), ("X3", 6), "XT4", "T"')
    assert generate.worked_examples(tmp_path) == 3
    assert generate.worked_examples(ROOT / "tests") > 30


@pytest.mark.long
def test_the_published_cells_are_counted_as_they_are_today() -> None:
    """Run tools/count_verification.py if this fails."""
    from count_verification import SEED, tally

    from pcpmodel.study.published import cases, compare, single

    counted = json.loads((ROOT / "docs" / "verification.json").read_text(encoding="utf-8"))
    tables = {table["table"]: table for table in counted["tables"]}
    assert set(tables) == {case.name for case in cases.cases()} | set(single.SINGLE)
    for case in cases.cases():
        measured = cases.published_rows(case)
        cells = sum(len(row) for row in measured.values())
        cells -= len(measured["base"]) - (
            "lock_contention" in measured["base"]
        )  # 100 by definition
        assert tables[case.name]["predictions"] == cells, case.name
    # The quick one is counted again; all of them where the runs of every notebook are at hand.
    answer = compare.compare("hahn-v4", seed=SEED).facts
    for table in tally(answer)["tables"]:
        assert tables[table["table"]] == table
    rest = compare._accounted(None)
    assert {kind: counted[kind] for kind in rest} == {kind: len(rest[kind]) for kind in rest}


def test_the_limits_count_recordings_rows_and_cells_as_they_are() -> None:
    page = " ".join((ROOT / "docs" / "limits.md").read_text(encoding="utf-8").split())
    told = json.loads((ROOT / "docs" / "told-apart.json").read_text(encoding="utf-8"))
    held = json.loads((ROOT / "tests" / "data" / "replayed.json").read_text(encoding="utf-8"))
    n, here = len(told["recordings"]), len(held)
    assert set(held) <= set(told["recordings"])
    assert f"0 differences in {n} recordings of eight kernels" in page
    assert f"of which {here} are in `data/traces`, where the tests hold it, and {n - here}" in page
    assert f"Of the {n} recordings ({here} in `data/traces`)" in page
    sheets = {len(pm.machine(name).sheet) for name in ("cascade-lake", "comet-lake")}
    assert [f"cost sheet ({rows} rows" in page for rows in sheets] == [True]


def test_the_citation_names_the_version_of_the_package() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {pm.__version__}\n" in text


def test_the_deposit_says_what_the_citation_says() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    said = dict(re.findall(r"^(\S+): \"?(.*?)\"?$", citation, re.M))
    deposit = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    assert deposit["title"] == said["title"]
    assert deposit["version"] == said["version"] == pm.__version__
    assert deposit["publication_date"] == said["date-released"]
    assert deposit["license"] == said["license"].lower()
    assert [c["name"] for c in deposit["creators"]] == re.findall(
        r"^  - name: (.+)$", citation, re.M
    )


def test_the_entry_of_the_program_says_what_the_citation_says() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    said = dict(re.findall(r"^(\S+): \"?(.*?)\"?$", citation, re.M))
    entry, fields = references([], ROOT), {}
    for name, text in re.findall(r"^  (\w+) = (.*),$", entry, re.M):
        fields[name] = text.strip("{}")
    assert entry.startswith("@misc{pcpmodel,\n")  # which every style knows
    assert fields["title"] == said["title"]
    assert [fields["author"]] == re.findall(r"^  - name: (.+)$", citation, re.M)
    released = date.fromisoformat(said["date-released"])
    assert (fields["year"], fields["month"]) == (f"{released:%Y}", f"{released:%b}".lower())
    assert fields["note"] == f"Version {said['version']}"
    # None is known yet; one that comes to the citation comes to the entry.
    assert fields.get("url") == said.get("url", said.get("repository-code"))


@pytest.mark.long
def test_the_documentation_builds_without_a_warning_and_its_examples_hold(tmp_path: Path) -> None:
    build = [sys.executable, str(ROOT / "docs" / "build_docs.py"), str(tmp_path)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    page = (tmp_path / "docs" / "reference.html").read_text(encoding="utf-8")
    missing = [n for n, where in pm._PUBLIC.items() if f'id="{where}.{n}"' not in page]
    assert [n for n in missing if f'id="module-{pm._PUBLIC[n]}"' not in page] == []
    counted = (tmp_path / "doctest" / "output.txt").read_text(encoding="utf-8")
    assert re.search(r"[1-9]\d* tests\n +0 failures in tests", counted)

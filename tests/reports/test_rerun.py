"""Reruns: what is stale and why, and what is left behind whatever happens."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner, Result

import pcpmodel
import pcpmodel.reports.pages as report_module
import pcpmodel.reports.plan as plan_module
import pcpmodel.reports.rerun as rerun_module
from helpers.paths import ROOT
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.reports.notebook import Parameter, read_notebook
from pcpmodel.reports.plan import plan

COMMAND = [sys.executable, "-c", "from pcpmodel.cli import main; main()", "rerun"]
FIGURE = """\
from pathlib import Path
import matplotlib.pyplot as plt
plt.rcParams["svg.hashsalt"] = "fixed"
fig, ax = plt.subplots()
ax.plot([1, 2])
fig.savefig(Path(report_dir, "line.svg"), metadata={"Date": None})
fig.savefig(Path(report_dir, "line.pdf"), metadata={"CreationDate": None})
fig.savefig(Path(report_dir, "line.png"))
"""


def write_notebook(
    project: Path,
    name: str,
    code: str,
    inputs: list[str],
    for_each: str | None = None,
    parameters: str | None = 'report_dir: str = "."',
) -> None:
    cells = [nbformat.v4.new_markdown_cell(f"# About {name}")]
    if parameters is not None:
        cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    cells.append(nbformat.v4.new_code_cell(code))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["pcpmodel"] = {"inputs": inputs}
    if for_each:
        notebook.metadata["pcpmodel"]["for_each"] = for_each
    (project / "notebooks").mkdir(exist_ok=True)
    nbformat.write(notebook, project / "notebooks" / f"{name}.ipynb")


def write_machine(project: Path, name: str, text: str = "batch\n63\n") -> None:
    (project / "data/hardware" / name).mkdir(parents=True)
    (project / "data/hardware" / name / "table.csv").write_text(text)


PER_MACHINE = """\
report_dir: str = "."
machine: str = "ice"  # directory name under data/hardware
p99_us: float = 100.0  # limit [us]
scale: int = 3
strict: bool = True
note: str = ""
batches: list[int] = [63, 126]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two machines, a notebook across them, one for each, one without data."""
    monkeypatch.delenv("PCPMODEL_DATA", raising=False)
    project = tmp_path / "project"
    write_machine(project, "ice")
    write_machine(project, "lake")
    write_notebook(project, "01-across", "print('across')", ["hardware/*"])
    write_notebook(
        project,
        "02-machine",
        "print(machine, p99_us, repr(note))",
        ["hardware/{machine}"],
        "machine",
        PER_MACHINE,
    )
    write_notebook(project, "03-rules", "print('rules')", [])
    return project


@pytest.fixture
def papermill_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but kernels, execution and page, which cost seconds."""
    import papermill

    import pcpmodel.reports.pages

    def execute(notebook: Any, path: str, parameters: dict[str, Any], **_: Any) -> None:
        nbformat.write(notebook, path)

    none = SimpleNamespace(manager=lambda *_: None, stop=lambda: None)
    monkeypatch.setattr(rerun_module, "Kernels", lambda *_: nullcontext(none))
    monkeypatch.setattr(papermill, "execute_notebook", execute)
    monkeypatch.setattr(pcpmodel.reports.pages, "html", lambda notebook, title: title * 1000)


def run(project: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["rerun", "--project", str(project), *arguments])


def rows(project: Path, *arguments: str) -> dict[str, tuple[str, str]]:
    """Status and reason of each run, from ``--json``."""
    result = run(project, "--json", *arguments)
    assert result.exit_code == 0, result.output
    listed = json.loads(result.stdout)["runs"]
    return {f"{r['notebook']}/{r['data']}": (r["status"], r["reason"]) for r in listed}


def stale(project: Path, *arguments: str) -> dict[str, str]:
    """Reason of each run that is not up to date."""
    planned = rows(project, "--dry-run", *arguments)
    return {name: reason for name, (status, reason) in planned.items() if status == "planned"}


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


# --------------------------------------------------------- what is stale


def test_first_every_run_is_planned_and_nothing_is_written(project: Path) -> None:
    before = contents(project)
    assert stale(project) == dict.fromkeys(
        ["01-across/all", "02-machine/ice", "02-machine/lake", "03-rules/all"], "never run"
    )
    assert contents(project) == before
    assert not (project / "reports").exists()


@pytest.fixture
def fresh(project: Path, papermill_stub: None) -> Path:
    """The project with all its reports up to date."""
    assert {status for status, _ in rows(project).values()} == {"done"}
    assert rows(project, "--dry-run") == dict.fromkeys(
        ["01-across/all", "02-machine/ice", "02-machine/lake", "03-rules/all"],
        ("up-to-date", "nothing changed"),
    )
    return project


def test_new_machine_makes_its_own_and_the_cross_machine_runs_stale(fresh: Path) -> None:
    write_machine(fresh, "new")
    assert stale(fresh) == {
        "01-across/all": "data hardware/new added",
        "02-machine/new": "never run",
    }
    assert {n for n, (status, _) in rows(fresh).items() if status == "done"} == {
        "01-across/all",
        "02-machine/new",
    }
    assert stale(fresh) == {}


def test_changed_table_makes_stale_what_reads_it(fresh: Path) -> None:
    (fresh / "data/hardware/lake/table.csv").write_text("batch\n64\n")
    reason = "data hardware/lake changed"
    assert stale(fresh) == {"01-across/all": reason, "02-machine/lake": reason}


def test_removed_machine_makes_only_the_cross_machine_run_stale(fresh: Path) -> None:
    (fresh / "data/hardware/lake").rename(fresh / "data/hardware/.put-away")
    assert stale(fresh) == {"01-across/all": "data hardware/lake removed"}


def test_reports_of_a_removed_machine_leave_at_the_next_rerun_of_anything(fresh: Path) -> None:
    failed = fresh / "reports/02-machine/lake.failed"
    failed.mkdir()
    (failed / "error.txt").write_text("ZeroDivisionError: division by zero\n")
    (fresh / "reports/02-machine/notes").mkdir()  # the user's own
    (fresh / "data/hardware/lake").rename(fresh / "data/hardware/.put-away")
    gone = ["02-machine/lake", "02-machine/lake.failed"]
    planned = run(fresh, "--dry-run")
    assert [line for line in planned.stdout.splitlines() if line.startswith("to remove")] == [
        f"to remove  {name}: its data are gone" for name in gone
    ]
    assert "02-machine/lake" in (fresh / "reports/index.html").read_text()
    done = run(fresh, "03-rules", "--json")
    assert json.loads(done.stdout)["removed"] == gone
    assert sorted(p.name for p in (fresh / "reports/02-machine").iterdir()) == ["ice", "notes"]
    index = (fresh / "reports/index.html").read_text()
    assert "02-machine/ice" in index
    assert "02-machine/lake" not in index
    assert json.loads(run(fresh, "--json").stdout)["removed"] == []


def test_a_file_that_went_or_came_changes_its_package(fresh: Path) -> None:
    ice = fresh / "data/hardware/ice"
    (ice / "interval.csv").write_text("x")
    assert stale(fresh)["02-machine/ice"] == "data hardware/ice changed"
    rows(fresh)
    (ice / "table.csv").write_text("batch\n99\n")
    (ice / "interval.csv").unlink()
    assert stale(fresh)["01-across/all"] == "data hardware/ice changed"


def test_dates_do_not_matter_but_contents_of_the_same_date_do(fresh: Path) -> None:
    table = fresh / "data/hardware/ice/table.csv"
    os.utime(table, (1, 1))
    assert stale(fresh) == {}
    (fresh / "data/hardware/ice/table.csv").write_text("batch\n99\n")
    os.utime(table, (1, 1))
    assert set(stale(fresh)) == {"01-across/all", "02-machine/ice"}


def test_moved_checkout_stays_up_to_date(fresh: Path) -> None:
    assert stale(fresh.rename(fresh.with_name("elsewhere"))) == {}


def test_changed_cell_makes_its_notebook_stale_and_stored_outputs_do_not(fresh: Path) -> None:
    path = fresh / "notebooks/02-machine.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].execution_count = 7
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="run by hand")]
    nbformat.write(notebook, path)
    assert stale(fresh) == {}
    notebook.cells[-1].source += "\nprint(scale)"
    nbformat.write(notebook, path)
    assert stale(fresh) == dict.fromkeys(["02-machine/ice", "02-machine/lake"], "notebook changed")


def test_given_parameters_make_stale_and_so_does_leaving_them_away(fresh: Path) -> None:
    asked = ("02-machine/ice", "--param", "p99_us=50")
    assert stale(fresh, *asked) == {"02-machine/ice": "parameter p99_us added"}
    rows(fresh, *asked)
    assert stale(fresh, *asked) == {}
    assert stale(fresh, "02-machine/ice", "--param", "p99_us=60") == {
        "02-machine/ice": "parameter p99_us changed"
    }
    assert stale(fresh) == {"02-machine/ice": "parameter p99_us removed"}


def test_changed_package_makes_all_stale(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = dict(plan_module._package_digests())
    assert "__init__.py" in digests  # and with it the version
    assert "datasets/schemas/batch_latency.json" in digests
    monkeypatch.setattr(
        plan_module, "_package_digests", lambda: (digests | {"errors.py": "other"}).items()
    )
    assert set(stale(fresh).values()) == {"package errors.py changed"}
    assert len(stale(fresh)) == 4


def test_changed_environment_makes_all_stale(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str, real: Callable[[str], str] = plan_module.metadata.version) -> str:
        return "99" if name == "matplotlib" else real(name)

    monkeypatch.setattr(plan_module.metadata, "version", version)
    assert set(stale(fresh).values()) == {"environment matplotlib changed"}


def test_missing_output_and_unreadable_record_are_made_again(fresh: Path) -> None:
    (fresh / "reports/01-across/all/01-across.html").unlink()
    (fresh / "reports/03-rules/all/inputs.json").write_text("{")
    assert stale(fresh) == {
        "01-across/all": "output 01-across.html missing",
        "03-rules/all": "inputs.json is unreadable",
    }
    rows(fresh)
    assert stale(fresh) == {}


def test_names_choose_notebooks_and_data_sets(fresh: Path) -> None:
    assert set(rows(fresh, "--dry-run", "02-machine")) == {"02-machine/ice", "02-machine/lake"}
    assert set(rows(fresh, "--dry-run", "02-machine/ice", "03-rules")) == {
        "02-machine/ice",
        "03-rules/all",
    }


def test_why_says_everything_that_changed(fresh: Path) -> None:
    for name in ("new-a", "new-b", "new-c", "new-d", "new-e"):
        write_machine(fresh, name)
    short = run(fresh, "--dry-run", "01-across").stdout
    assert short.count("added") == 3
    assert "2 more" in short
    told = run(fresh, "--dry-run", "--why", "01-across").stdout.splitlines()
    assert told == ["planned    01-across/all:"] + [
        f"{'':13}data hardware/new-{letter} added" for letter in "abcde"
    ]


def test_data_named_by_the_environment_is_the_data_that_is_read(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_machine(tmp_path, "elsewhere")
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path / "data"))
    assert "02-machine/elsewhere" in stale(fresh)


def test_what_a_killed_process_left_is_put_right(fresh: Path) -> None:
    before = contents(fresh / "reports")
    home = fresh / "reports/02-machine"
    (home / "ice").rename(home / ".ice.old")  # killed between the two renames
    (home / ".ice.new").mkdir()
    (home / ".lake.old").mkdir()  # killed before the old one was removed
    assert rows(fresh)["02-machine/ice"] == ("up-to-date", "nothing changed")
    assert contents(fresh / "reports") == before
    assert {path.name for path in home.iterdir()} == {"ice", "lake"}


def test_index_shows_every_report_with_its_data_digest(fresh: Path) -> None:
    index = (fresh / "reports/index.html").read_text()
    for listed in plan(project=fresh):
        assert f"{listed.name}/{listed.notebook.name}.html" in index
        assert listed.data_digest[:12] in index
    assert "About 01-across" in index


def test_notebook_on_one_machine_is_stale_by_that_machine_alone(fresh: Path) -> None:
    write_notebook(fresh, "04-one", "1", ["hardware/{machine}"], None, 'machine: str = "ice"')
    rows(fresh)
    write_machine(fresh, "new")
    (fresh / "data/hardware/lake/table.csv").write_text("batch\n64\n")
    assert stale(fresh, "04-one") == {}
    assert stale(fresh, "04-one", "--param", "machine=lake") == {
        "04-one/all": "data hardware/ice removed; data hardware/lake added; parameter machine added"
    }
    (fresh / "data/hardware/ice/table.csv").write_text("batch\n64\n")
    assert stale(fresh, "04-one") == {"04-one/all": "data hardware/ice changed"}
    for elsewhere in ("../ice", "*", "nowhere", ".", ""):
        assert run(fresh, "04-one", "--param", f"machine={elsewhere}").exit_code == 2


# --------------------------------------------------------------- refused


def test_parameters_are_read_with_their_types(project: Path) -> None:
    parameters = read_notebook(project / "notebooks/02-machine.ipynb").parameters
    assert parameters["batches"] == Parameter("batches", "list", "int", [63, 126])
    assert parameters["p99_us"] == Parameter("p99_us", "float", None, 100.0)
    assert parameters["p99_us"].parse("50") == 50.0
    assert parameters["note"].parse("7") == "7"
    assert parameters["strict"].parse("false") is False
    assert parameters["batches"].parse("[]") == []


@pytest.mark.parametrize(
    "given",
    [
        "scale=1.0",
        "scale=True",
        "scale=three",
        "scale=",
        "scale=1_000",
        "scale='3'",
        "p99_us=NaN",
        "p99_us=Infinity",
        "p99_us=1e999",
        "p99_us=true",
        "p99_us=100 us",
        "strict=1",
        "strict=True",
        "strict=yes",
        "batches=63",
        "batches=[63, 1.5]",
        "batches=[true]",
        'batches=["63"]',
        "batches=[63",
        "batches={}",
        "batches=__import__('os').getpid()",
        "p99us=50",  # unknown
        "report_dir=/tmp",  # ours to give
        "machine=lake",  # comes with the data set
        "p99_us",  # no value
        "=50",
    ],
)
def test_mistyped_or_unknown_parameter_is_refused(project: Path, given: str) -> None:
    before = contents(project)
    result = run(project, "02-machine", "--param", given)
    assert result.exit_code == 2
    assert given.partition("=")[0] in result.stderr
    assert contents(project) == before


def test_nearest_names_are_offered(project: Path) -> None:
    assert "did you mean '02-machine'?" in run(project, "02-machin").stderr
    assert "did you mean '02-machine/lake'?" in run(project, "02-machine/lak").stderr
    assert "did you mean 'p99_us'?" in run(project, "02-machine", "--param", "p99us=1").stderr
    refused = run(project, "02-machine", "--param", "machine=lake").stderr
    assert "ask for 02-machine/lake" in refused


def broken(project: Path, text: str) -> None:
    (project / "notebooks/04-broken.ipynb").write_text(text)


def with_parameters(text: str | None) -> Callable[[Path], None]:
    return lambda project: write_notebook(project, "04-bad", "1", [], None, text)


def with_inputs(inputs: Any, for_each: Any = None) -> Callable[[Path], None]:
    return lambda project: write_notebook(
        project, "04-bad", "1", inputs, for_each, 'machine: str = ""'
    )


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: broken(p, ""), "is not a notebook"),
        (lambda p: broken(p, "{'cells': []}"), "is not a notebook"),
        (lambda p: broken(p, "[]"), "is not a notebook"),
        (lambda p: broken(p, '{"cells": [], "metadata": {"pcpmodel": 1}}'), "TypeError"),
        (lambda p: broken(p, '{"cells": 5, "metadata": {"pcpmodel": {"inputs": []}}}'), "TypeErr"),
        (with_parameters(None), "0 cells tagged 'parameters'"),
        (with_parameters("scale = 3"), "line 1: 'scale = 3'"),
        (with_parameters("a: int = 1\nscale: int"), "line 2: 'scale: int'"),
        (with_parameters("scale: int = 3.0"), "'name: type = value'"),
        (with_parameters("scale: int = 1 + 2"), "'name: type = value'"),
        (with_parameters("scale: complex = 3"), "'name: type = value'"),
        (with_parameters("scale: list[complex] = []"), "'name: type = value'"),
        (with_parameters("x.scale: int = 3"), "'name: type = value'"),
        (with_parameters("import os"), "'name: type = value'"),
        (with_parameters("scale: int = "), "line 1"),
        (with_inputs("hardware/*"), "list of patterns"),
        (with_inputs([1]), "list of patterns"),
        (with_inputs(["../secrets/*"]), "leads out of data/"),
        (with_inputs(["hardware/../../*"]), "leads out of data/"),
        (with_inputs(["/etc/*"]), "leads out of data/"),
        (with_inputs([""]), "leads out of data/"),
        (with_inputs(["hardwere/*"]), "matches nothing"),
        (with_inputs(["hardware/{machine}"]), "data set '' must match"),
        (with_inputs(["hardware/*"], "machine"), "needs one input /{machine}"),
        (with_inputs(["hardware/{machine}/x"], "machine"), "does not end in /{name}"),
        (with_inputs(["hardware/{other}"], "other"), "does not end in /{name}"),
        (lambda p: write_machine(p, "Has Space"), "data set 'Has Space' must match"),
        (lambda p: write_machine(p, "ice.failed"), "data set 'ice.failed' must match"),
        (lambda p: write_machine(p, "a\nb"), "data set 'a\\nb' must match"),
        (lambda p: write_machine(p, "$(reboot)"), "data set '$(reboot)' must match"),
        (lambda p: (p / "notebooks").rename(p / "books"), "holds no notebook"),
        (lambda p: (p / "reports").write_text("in the way"), "reports"),
    ],
)
def test_bad_project_is_refused_before_anything_is_written(
    project: Path, spoil: Callable[[Path], None], says: str
) -> None:
    spoil(project)
    before = contents(project)
    result = run(project)
    assert result.exit_code == 2
    assert says in result.stderr
    assert contents(project) == before


def test_a_notebook_that_is_no_report_is_left_out_unless_it_is_named(project: Path) -> None:
    before = set(rows(project, "--dry-run"))
    own = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])
    nbformat.write(own, project / "notebooks/Untitled.ipynb")
    said = "left out: Untitled, whose metadata has no 'pcpmodel' (docs/data-format.md, A notebook"
    for verb in ("rerun", "figures"):
        done = CliRunner().invoke(main, [verb, "--project", str(project), "--dry-run"])
        assert done.exit_code == 0, done.output
        assert done.stderr.startswith(said)
        assert done.stderr.count("\n") == 1
        named = CliRunner().invoke(main, [verb, "--project", str(project), "--dry-run", "Untitled"])
        assert named.exit_code == 2
        assert "Untitled.ipynb: is no report: its metadata has no 'pcpmodel'. Add" in named.stderr
    assert set(rows(project, "--dry-run")) == before
    assert "left out" not in run(project, "--dry-run", "03-rules").output


def test_a_notebook_of_ones_own_is_made_as_the_documentation_says(project: Path) -> None:
    page = (ROOT / "docs/data-format.md").read_text(encoding="utf-8")
    section = page.partition("## A notebook of your own\n")[2].partition("\n## ")[0]
    (metadata,) = re.findall(r"^```json\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    (cell,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    says = json.loads(metadata)["pcpmodel"]
    write_notebook(project, "mine", "1", says["inputs"], says["for_each"], cell)
    (project / "data/published/batchsize-2018").mkdir(parents=True)
    parameters = read_notebook(project / "notebooks/mine.ipynb").parameters
    assert {p.type for p in parameters.values()} == {"str", "float", "list"}
    assert set(rows(project, "--dry-run", "mine")) == {"mine/ice", "mine/lake"}
    assert run(project, "--dry-run", "mine", "--param", "p99_us=50").exit_code == 0
    assert "`bool`, `int`, `float`, `str` and `list`" in section


@pytest.mark.parametrize("name", ["../02-machine", "02-machine/../ice", "/etc/passwd", ""])
def test_names_that_lead_elsewhere_are_unknown(project: Path, name: str) -> None:
    result = run(project, name)
    assert result.exit_code == 2
    assert "unknown" in result.stderr


def test_missing_project_and_unwritable_output_are_refused(project: Path) -> None:
    assert run(project / "nowhere").exit_code == 2
    (project / "file").write_text("")
    for out in (project / "file", project / "file/below", Path("/proc/reports")):
        assert run(project, "--out", str(out)).exit_code == 2


def test_full_disk_leaves_the_earlier_report_and_nothing_half_written(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(fresh)
    (fresh / "data/hardware/lake/table.csv").write_text("batch\n64\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # less than a page needs
    try:
        result = run(fresh)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.exit_code == 2
    assert "cannot write the report: File too large" in result.stderr
    (fresh / "data/hardware/lake/table.csv").write_text("batch\n63\n")
    assert contents(fresh) == before
    assert not list((fresh / "reports").glob("*/.*"))


# ----------------------------------------------------------- really run


def start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def waits_for(path: Path) -> str:
    """Code of a cell that goes on once ``path`` is there."""
    return (
        f"import pathlib, time\nwhile not pathlib.Path({str(path)!r}).exists(): time.sleep(0.05)\n"
    )


def outputs(project: Path, name: str, data: str = "all") -> str:
    notebook = nbformat.read(project / f"reports/{name}/{data}/{name}.ipynb", as_version=4)
    return "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))


@pytest.mark.notebook
def test_equal_inputs_give_equal_bytes_that_need_nothing_from_elsewhere(project: Path) -> None:
    write_notebook(project, "01-across", FIGURE, ["hardware/*"])
    assert rows(project)["01-across/all"] == ("done", "never run")
    first = contents(project / "reports")
    assert {"line.svg", "line.pdf", "line.png", "01-across.html", "01-across.ipynb"} <= {
        path.name for path in (project / "reports/01-across/all").iterdir()
    }
    rows(project, "--out", str(project / "again"))
    assert contents(project / "again") == first
    for page in (project / "reports").rglob("*.html"):
        text = page.read_text()
        for fetch in ('src="http', "src='http", 'href="http', "url(http", "import http", "cdn"):
            assert fetch not in text, f"{page.name} fetches {fetch}"
    assert "line.svg" in (project / "reports/index.html").read_text()
    report = project / "reports/01-across/all"
    crate = json.loads((report / "ro-crate-metadata.json").read_text())
    things = {thing["@id"]: thing for thing in crate["@graph"]}
    assert len(things) == len(crate["@graph"])
    named = re.findall(r'\{"@id": "([^"]+)"\}', json.dumps(crate))
    assert set(named) - {"https://w3id.org/ro/crate/1.1"} <= set(things)
    files = {at for at, thing in things.items() if thing["@type"] == "File"}
    assert files == {p.name for p in report.iterdir()} - {"inputs.json", "ro-crate-metadata.json"}
    for name in files:
        assert things[name]["sha256"] == hashlib.sha256((report / name).read_bytes()).hexdigest()
    (read,) = (t for t in things if t.endswith("ice/table.csv"))
    assert {"@id": read} in things["#run"]["object"]


@pytest.mark.notebook
def test_pages_and_index_carry_what_figures_and_notebooks_say(project: Path) -> None:
    code = (
        "import pcpmodel as pm\n"
        'rungs = pm.study.ladder("refill", number=300)\n'
        'ax = pm.figures.ladder(rungs.rungs, "refill")\n'
        'pm.figures.save(ax, "steps", report_dir, digest=rungs.digest)'
    )
    write_notebook(project, "03-rules", code, [])
    path = project / "notebooks/03-rules.ipynb"
    notebook = nbformat.read(path, as_version=4)
    said = "from IPython.display import Markdown\nMarkdown('- It moves **63** pages. More.')"
    notebook.cells += [
        nbformat.v4.new_markdown_cell("## Conclusion", id="heading"),
        nbformat.v4.new_code_cell(said, id="said"),
    ]
    nbformat.write(notebook, path)
    assert rows(project, "03-rules")["03-rules/all"][0] == "done"
    report = project / "reports/03-rules/all"
    about = json.loads((report / "steps.json").read_text())
    page = (report / "03-rules.html").read_text()
    for words in (about["alt"], about["caption"], about["again"]):
        assert html.escape(words) in page
    assert about["again"].startswith("pcpmodel figures 03-rules/all/steps")
    index = (project / "reports/index.html").read_text()
    assert "It moves 63 pages. More." in index
    assert "03-rules/all</b>: done for the first time" in index
    assert "prefers-color-scheme: dark" in index
    assert "prefers-color-scheme: dark" in page
    notebook.cells[-1].source = said.replace("63", "64")
    nbformat.write(notebook, path)
    rows(project, "03-rules")
    index = " ".join((project / "reports/index.html").read_text().split())
    assert "Before: It moves 63 pages. More. <br>Now: It moves 64" in index.replace("<br>", " <br>")


def test_the_index_counts_what_was_made_for_the_first_time(
    project: Path, papermill_stub: None
) -> None:
    made = len(rows(project))
    index = (project / "reports/index.html").read_text()
    assert f"<li>{made} reports done for the first time.</li>" in index
    assert "</b>: done for the first time" not in index
    write_notebook(project, "04-later", "print('later')", [])
    assert rows(project)["04-later/all"][0] == "done"
    index = (project / "reports/index.html").read_text()
    assert "04-later/all</b>: done for the first time" in index


@pytest.mark.notebook
def test_failing_notebook_keeps_the_earlier_report_and_the_others_run_on(project: Path) -> None:
    rows(project)
    good = contents(project / "reports/02-machine/lake")
    write_notebook(
        project,
        "02-machine",
        "import os\nif machine == 'lake': 1 / 0\n"
        "if machine == 'ice':\n"
        "    os.mkdir('.drawn.pcpmodel-abcdefgh'); os.write(2, b'last words'); os._exit(1)\n"
        "print('well')",
        ["hardware/{machine}"],
        "machine",
        PER_MACHINE,
    )
    write_machine(project, "new")
    result = run(project, "--json")
    assert result.exit_code == 1
    assert "2 of 5 runs failed: 02-machine/ice, 02-machine/lake" in result.stderr
    listed = {(r["notebook"], r["data"]): r for r in json.loads(result.stdout)["runs"]}
    assert {key: r["status"] for key, r in listed.items()} == {
        ("01-across", "all"): "done",
        ("02-machine", "ice"): "failed",
        ("02-machine", "lake"): "failed",
        ("02-machine", "new"): "done",
        ("03-rules", "all"): "up-to-date",
    }
    assert listed["02-machine", "lake"]["error"] == "ZeroDivisionError: division by zero"
    assert listed["02-machine", "ice"]["error"] == "the kernel died"
    died = project / "reports/02-machine/ice.failed"
    assert "last words" in (died / "error.txt").read_text()
    assert not list(died.glob(".*"))  # what it was drawing
    assert contents(project / "reports/02-machine/lake") == good
    apart = Path(listed["02-machine", "lake"]["output"])
    assert apart == project / "reports/02-machine/lake.failed"
    assert "ZeroDivisionError" in (apart / "02-machine.html").read_text()
    assert "division by zero" in (project / "reports/index.html").read_text()
    assert set(stale(project).values()) == {"notebook changed"}

    write_notebook(
        project, "02-machine", "print(1)", ["hardware/{machine}"], "machine", PER_MACHINE
    )
    rows(project)
    assert {p.name for p in (project / "reports/02-machine").iterdir()} == {"ice", "lake", "new"}
    assert "division by zero" not in (project / "reports/index.html").read_text()


@pytest.mark.notebook
def test_no_kernel_to_be_had(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcpmodel.reports.kernels._SERVE", "raise SystemExit('no room for it')")
    result = run(project, "03-rules", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)["runs"][0]["error"]
    assert said == "no kernel could be started: no room for it"
    monkeypatch.undo()
    assert rows(project, "03-rules")["03-rules/all"][0] == "done"


@pytest.mark.notebook
def test_a_kernel_that_dies_before_it_answers(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = (
        "import sys; from pathlib import Path; from pcpmodel.reports import kernels\n"
        "kernels._become_kernel = lambda log, **rest: Path(log).write_text('died young')\n"
        "kernels.serve(int(sys.argv[1]))"
    )
    monkeypatch.setattr("pcpmodel.reports.kernels._SERVE", dies)
    result = run(project, "03-rules", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["runs"][0]["error"] == "the kernel died"
    assert "died young" in (project / "reports/03-rules/all.failed/error.txt").read_text()


@pytest.mark.notebook
def test_parameter_strings_are_data_and_nothing_else(project: Path) -> None:
    texts = [
        '"; import os; os._exit(3) #',
        "'''\nraise SystemExit\n'''",
        'a\\"b\\\\" + str(1/0) + "',
        "{machine} {0} %s $HOME `id`",
        "∅ \N{RIGHT-TO-LEFT OVERRIDE} \x1b[31m </script><script>alert(1)</script>",
    ]
    write_notebook(
        project, "03-rules", "print([note, *notes])", [], None, 'note: str = ""\nnotes: list = []'
    )
    given = [f"note={texts[0]}", f"notes={json.dumps(texts)}"]
    rows(project, "03-rules", "--param", given[0], "--param", given[1])
    assert outputs(project, "03-rules").strip() == repr([texts[0], *texts])
    assert "<script>alert" not in (project / "reports/03-rules/all/03-rules.html").read_text()


@pytest.mark.notebook
@pytest.mark.long
def test_killed_in_the_middle_it_finishes_the_rest(project: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    write_notebook(project, "03-rules", f"import os; print(os.getpid(), flush=True)\n"
                   f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
                   + waits_for(go), [])  # fmt: skip
    first = start(project)
    reports = [project / f"reports/{name}" for name in ("01-across/all", "02-machine/ice")]
    reports += [project / "reports/02-machine/lake", tmp_path / "pid"]
    wait_for(lambda: all(path.exists() for path in reports))
    first.kill()
    first.communicate()
    kernel = Path("/proc", (tmp_path / "pid").read_text())
    wait_for(lambda: not kernel.exists() or "Z" in (kernel / "stat").read_text().split()[2])
    assert not (project / "reports/03-rules/all").exists()
    go.touch()
    assert {name: status for name, (status, _) in rows(project).items()} == {
        "01-across/all": "up-to-date",
        "02-machine/ice": "up-to-date",
        "02-machine/lake": "up-to-date",
        "03-rules/all": "done",
    }
    assert not list((project / "reports").glob("*/.*"))


@pytest.mark.notebook
def test_interrupted_it_stops_its_kernels_and_leaves_nothing_half_written(
    project: Path, tmp_path: Path
) -> None:
    code = f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    write_notebook(project, "03-rules", code + waits_for(tmp_path / "never"), [])
    process = start(project, "03-rules")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "pcpmodel: interrupted" in said
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
    assert not list((project / "reports/03-rules").iterdir())


@pytest.mark.notebook
@pytest.mark.long
def test_two_reruns_at_once_wait_for_each_other(project: Path, tmp_path: Path) -> None:
    write_notebook(project, "03-rules", waits_for(tmp_path / "go"), [])
    first = start(project, "03-rules", "--json")
    wait_for(lambda: (project / "reports/.lock").exists())
    wait_for(lambda: (project / "reports/.lock").read_text() == str(first.pid))
    second = start(project, "03-rules", "--json")
    assert second.stderr is not None
    assert (
        second.stderr.readline() == f"waiting for process {first.pid}, which is writing reports\n"
    )
    (tmp_path / "go").touch()
    statuses = [
        json.loads(process.communicate(timeout=60)[0])["runs"][0]["status"]
        for process in (first, second)
    ]
    assert statuses == ["done", "up-to-date"]


@pytest.mark.notebook
@pytest.mark.long
def test_a_notebook_prints_alone_what_it_prints_beside_others(project: Path) -> None:
    code = "import pandas as pd\nimport pcpmodel\nprint(pd.DataFrame([range(100, 140)]))\n"
    options = "print([pd.get_option(f'display.{n}') for n in ('max_columns', 'max_rows', 'width')])"
    write_notebook(project, "03-rules", code + options, [])
    pages = []
    for names in (["03-rules"], ["03-rules", "01-across"]):
        result = run(project, *names)
        assert result.exit_code == 0, result.output
        pages.append((project / "reports/03-rules/all/03-rules.ipynb").read_text())
        (project / "reports/03-rules/all/inputs.json").unlink()
    assert pages[0] == pages[1]
    assert "[20, 60, 80]" in pages[0]


@pytest.mark.notebook
def test_kernel_is_this_interpreter_with_this_package_whatever_is_installed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "jupyter/kernels/python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": ["/bin/false"], "display_name": "other", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    write_notebook(
        project,
        "03-rules",
        "import os, sys, pcpmodel\nprint(sys.executable, pcpmodel.__file__, os.getcwd())",
        [],
    )
    rows(project, "03-rules")
    executable, package, cwd = outputs(project, "03-rules").split()
    assert executable == sys.executable
    assert package == pcpmodel.__file__
    assert Path(cwd).parent == project / "reports/03-rules"


@pytest.mark.notebook
def test_run_sees_of_the_data_only_what_its_notebook_declares(project: Path) -> None:
    code = "import os, pathlib\nprint(*pathlib.Path(os.environ['PCPMODEL_DATA']).glob('*/*'))"
    parameters = 'machine: str = "lake"'
    write_notebook(project, "02-machine", code, ["hardware/{machine}"], "machine", parameters)
    write_notebook(project, "03-rules", code, ["hardware/{machine}"], None, parameters)
    rows(project, "02-machine/ice", "03-rules")
    assert Path(outputs(project, "02-machine", "ice").strip()).name == "ice"
    assert Path(outputs(project, "03-rules").strip()).name == "lake"


@pytest.mark.notebook
def test_notebooks_of_one_rerun_leave_each_other_their_runs(project: Path) -> None:
    code = (
        "import os, pathlib\nruns = pathlib.Path(os.environ['PCPMODEL_SHARED_RUNS'])\n"
        "pathlib.Path(runs, 'one').touch()\nprint(runs)"
    )
    write_notebook(project, "01-across", code, [])
    write_notebook(project, "03-rules", code, [])
    rows(project, "01-across", "03-rules")
    one, two = (outputs(project, name).strip() for name in ("01-across", "03-rules"))
    assert one == two
    assert not Path(one).exists()


def test_input_errors_name_the_notebook(project: Path) -> None:
    write_notebook(project, "04-bad", "1", [], None, None)
    with pytest.raises(InputError) as refused:
        plan(project=project)
    assert refused.value.file == str(project / "notebooks/04-bad.ipynb")


def test_data_that_changes_meanwhile_is_not_what_the_report_was_made_from(
    project: Path, tmp_path: Path
) -> None:
    """A -> start -> B while it runs -> A again: the report holds A, or nothing is recorded."""
    table = project / "data/hardware/ice/table.csv"
    code = (
        f"open({str(tmp_path / 'runs')!r}, 'w').close()\n"
        + waits_for(tmp_path / "go")
        + "import os; print(open(os.environ['PCPMODEL_DATA'] + '/hardware/ice/table.csv').read())"
    )
    write_notebook(project, "03-rules", code, ["hardware/*"])
    before = table.read_text()
    process = start(project, "03-rules")
    wait_for((tmp_path / "runs").exists)
    table.write_text("batch\n4242\n")
    (tmp_path / "go").touch()
    process.communicate(timeout=120)
    assert process.returncode == 0
    table.write_text(before)
    report = (project / "reports/03-rules/all/03-rules.ipynb").read_text()
    assert "4242" not in report
    assert [run.status for run in plan(["03-rules"], project=project)] == ["up-to-date"]


def test_data_that_changed_before_it_was_copied_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = rerun_module._copy_data

    def late(runs: Any, place: Path) -> None:
        (project / "data/hardware/ice/table.csv").write_text("batch\n4242\n")
        copy(runs, place)

    monkeypatch.setattr(rerun_module, "_copy_data", late)
    with pytest.raises(InputError, match=r"table\.csv: has changed since the runs were planned"):
        rerun_module.rerun(["02-machine/ice"], project=project)
    assert not (project / "reports/02-machine/ice").exists()


RECORDS = {
    "empty": b"",
    "null": b"null",
    "object": b"{}",
    "list": b"[1]",
    "foreign": b'{"run": "02-machine/lake", "inputs": {}, "outputs": [], "title": "",'
    b' "version": "", "data_digest": ""}',
    "cut": b'{"run": "02-machine/ice", "inputs": {"noteb',
    "deep": b"[" * 100_000,
    "binary": b"\xff\0\x1b",
    "types": b'{"run": "02-machine/ice", "inputs": {"a": 1}, "outputs": [[]], "title": "",'
    b' "version": "", "data_digest": ""}',
    "surrogate": b'{"run": "02-machine/ice", "inputs": {}, "outputs": ["\\ud800"], "title": "",'
    b' "version": "", "data_digest": ""}',
    "leads-out": b'{"run": "02-machine/ice", "inputs": {}, "outputs": ["../../x.svg"],'
    b' "title": "", "version": "", "data_digest": ""}',
}


@pytest.mark.parametrize("record", RECORDS)
def test_a_damaged_record_makes_its_own_report_stale_and_no_other(fresh: Path, record: str) -> None:
    (fresh / "reports/02-machine/ice/inputs.json").write_bytes(RECORDS[record])
    runs = {run.name: run.changes for run in plan(project=fresh)}
    assert runs.pop("02-machine/ice") == ["inputs.json is unreadable"]
    assert not any(runs.values())
    report_module.write_index(fresh / "reports")
    index = (fresh / "reports/index.html").read_text()
    assert all(name in index for name in runs)


def test_links_in_the_place_of_lock_and_leftovers_are_not_followed(
    fresh: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_text("mine")
    (fresh / "reports/02-machine/.ice.new").symlink_to(victim)
    rerun_module._mend(fresh / "reports")
    assert (victim / "x").read_text() == "mine"
    assert not (fresh / "reports/02-machine/.ice.new").is_symlink()
    (fresh / "reports/.lock").unlink()
    (fresh / "reports/.lock").symlink_to(victim / "x")
    with pytest.raises(InputError, match=r"\.lock: is a symbolic link"):
        rerun_module.rerun(project=fresh)
    assert (victim / "x").read_text() == "mine"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_by_a_signal_it_leaves_no_scratch(
    project: Path, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tempfile.mkdtemp()  # tmp_path may be too long for a socket
    monkeypatch.setenv("TMPDIR", short)
    code = f"open({str(tmp_path / 'runs')!r}, 'w').close()\n" + waits_for(tmp_path / "never")
    write_notebook(project, "03-rules", code, [])
    process = start(project, "03-rules")
    wait_for(lambda: (tmp_path / "runs").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.splitlines()[-1] == f"pcpmodel: ended by {number.name}"
    assert not os.listdir(short)
    os.rmdir(short)


def test_a_folder_too_long_for_sockets_is_refused(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    said = start(project, "03-rules").communicate(timeout=60)[1]
    assert "choose a shorter TMPDIR" in said.splitlines()[-1]
    assert not list(deep.glob("pcpmodel-*"))


def test_a_machine_with_a_cost_sheet_alone_reads_those_with_tables(tmp_path: Path) -> None:
    sets = [tmp_path / "hardware" / name for name in ("bare", "one", "other")]
    for path in sets:
        path.mkdir(parents=True)
    for path in sets[1:]:
        (path / "batch_latency.csv").touch()
    assert plan_module._needed_by(sets[0], sets) == sets[1:]
    assert plan_module._needed_by(sets[1], sets) == []
    assert plan_module._needed_by(tmp_path / "published" / "x", sets) == []


def test_a_headline_is_of_whole_sentences_without_the_dashes_of_its_list():
    """Notebook 10's was cut inside its second item, with the dashes of both."""
    item = "large: throughput +0.02 %, drain p99 10 us (before: 170), over 100 us 0.03 % (28.35)."
    text = f"- Warm pages:\n  - {item}\n  - medium: {'x, ' * 100}.\n- Pages as they come:"
    found = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_markdown_cell("## Conclusion"),
        nbformat.v4.new_code_cell(
            "text",
            outputs=[nbformat.v4.new_output("display_data", data={"text/markdown": text})],
        ),
    ])  # fmt: skip
    assert report_module.conclusion(found) == f"Warm pages: {item}"


def test_conclusions_begin_with_an_answer():
    """What an index of reports shows of them is their first sentences."""
    limits = pcpmodel.limit(["ice-lake", "coffee-lake"])
    assert limits.text.startswith("- **p99 under 100 us, as they are, under v6.18:** ice-lake 5")
    cases = pcpmodel.numa.situations(
        cases={"as published": {}, "1 thread per process": {"threads": 1}}, seeds=2, scale=1e-3
    )
    assert cases.text.startswith("* Mapping late gains in 1 of 2 situations, by ")
    assert "it makes no difference in 1 and loses in 0." in cases.text
    cells = [c["source"] for c in nbformat.read(ROOT / "notebooks/14-numa-delayed-mapping.ipynb", 4)
             .cells if c["source"].startswith("## Conclusion")]  # fmt: skip
    assert cells[0] == "## Conclusion: when is it not a win?"

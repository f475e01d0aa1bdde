"""The project's notebooks: stored clean, no logic of their own, each runs."""

# SPDX-License-Identifier: GPL-2.0-only

import ast
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest

from helpers.paths import ROOT
from pcpmodel.reports.notebook import read_notebook
from pcpmodel.reports.plan import Run

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LOGIC = (
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.For,
    ast.FunctionDef,
    ast.Lambda,
    ast.Try,
    ast.While,
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_there_are_notebooks_numbered_in_reading_order() -> None:
    assert NOTEBOOKS
    numbers = [path.stem.partition("-")[0] for path in NOTEBOOKS]
    assert all(len(number) == 2 and number.isdigit() for number in numbers)
    assert len(set(numbers)) == len(numbers)


@each_notebook
def test_stored_without_what_a_run_adds(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert set(notebook.metadata) <= {"kernelspec", "language_info", "pcpmodel"}
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@each_notebook
def test_declares_typed_parameters_and_what_it_reads(path: Path) -> None:
    declared = read_notebook(path)  # refuses an untyped parameters cell
    assert declared.title != path.stem, "the first heading is its title"
    assert declared.parameters["report_dir"].type == "str"


@each_notebook
def test_code_cells_call_the_package_and_hold_no_logic(path: Path) -> None:
    for cell in read(path).cells:
        if cell.cell_type != "code" or cell.source.startswith("%%cython"):
            continue
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, LOGIC), cell.source
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} == {"pcpmodel"}, cell.source
            if isinstance(node, ast.ImportFrom):
                assert node.module == "IPython.display", cell.source


@each_notebook
def test_narrative_reads_without_a_formula_renderer(path: Path) -> None:
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    for mark in ("$", "\\(", "\\[", "```mermaid", "](http"):
        assert mark not in text, f"reports are read without a network; found {mark}"


@pytest.mark.parametrize("release", ["v4.17", "v6.6", "v6.7"])
def test_a_kernel_without_a_batch_scale_factor_is_told_as_one(release: str) -> None:
    (path,) = (path for path in NOTEBOOKS if path.stem == "03-new-hardware")
    names: dict[str, Any] = {}
    for cell in read(path).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
        if "parameters" in cell.metadata.get("tags", []):
            names["release_before"] = release
    plt.close("all")  # a kernel of Jupyter closes what it has shown
    assert (f"Under {release} " in names["limit"].text) == (release == "v6.7")
    assert names["no_scale"].startswith(f"- {release} has no batch scale factor")


@pytest.mark.notebook
def test_each_runs_and_leaves_its_figures_in_three_formats(
    reported: tuple[Path, list[Run]], request: pytest.FixtureRequest
) -> None:
    out, runs = reported
    assert [f"{run.name}: {run.error}" for run in runs if run.status != "done"] == []
    asked = request.node.callspec.params["reported"] or [path.stem for path in NOTEBOOKS]
    assert {run.notebook.name for run in runs} == set(asked)
    drawn = {path.with_suffix("") for path in out.rglob("*.svg")}
    assert drawn
    for figure in drawn:
        for suffix in (".svg", ".pdf", ".png"):
            assert Path(f"{figure}{suffix}").stat().st_size > 0

"""The published figures by name: drawn from the notebook that publishes them.

A notebook is where a figure is defined: whatever it passes to `pcpmodel.figures.save` is
published, under that name.  To draw one in another size, the notebook's code cells are run
here as they stand, with its own parameters or others, up to the figure asked for.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcpmodel.errors import CheckError, InputError
from pcpmodel.files import read_json, scratch, write_whole
from pcpmodel.reports.notebook import Notebook, saved_figures
from pcpmodel.reports.plan import Run, left_out, made_from, plan, project_data
from pcpmodel.reports.references import references

__all__ = ["Published", "publish", "published"]


@dataclass(frozen=True)
class Published:
    """One figure of one notebook with one data set.

    Attributes
    ----------
    name : str
        As `pcpmodel.figures.save` has it.
    run : Run
        Notebook, data set and parameters.
    function : str
        Of `pcpmodel.figures`, which draws it; or the call that does.
    cell : int
        Code cell that saves it.
    """

    name: str
    run: Run
    function: str
    cell: int

    @property
    def path(self) -> str:
        """Notebook, data set and name: where it is below the output directory."""
        return f"{self.run.name}/{self.name}"

    @property
    def names(self) -> set[str]:
        """All that it may be asked for by."""
        notebook, data = self.run.notebook.name, self.run.data
        return {self.name, notebook, self.run.name, f"{notebook}/{self.name}", self.path} | (
            {f"{data}/{self.name}"} if self.run.notebook.for_each else set()
        )

    def as_dict(self, out: Path) -> dict[str, Any]:
        """For JSON: what it is, and of a drawn one its caption, alt text, digest and files."""
        base = out / self.path
        about = base.with_name(f"{base.name}.json")
        drawn = read_json(about) if about.is_file() else {}
        files = [base.with_name(f"{base.name}.{kind}") for kind in ("svg", "pdf", "png")]
        return {
            "name": self.path,
            "notebook": f"notebooks/{self.run.notebook.path.name}",
            "function": self.function,
            "reads": [pattern.format(**self.run.values) for pattern in self.run.notebook.inputs],
            "caption": drawn.get("caption"),
            "alt": drawn.get("alt"),
            "digest": drawn.get("digest"),
            "files": [str(file) for file in files if file.is_file()],
        }


def _cells(notebook: Notebook) -> list[tuple[str, bool]]:
    """Source of every code cell, and whether it holds the parameters."""
    return [
        ("".join(cell["source"]), "parameters" in cell["metadata"].get("tags", []))
        for cell in notebook.content["cells"]
        if cell["cell_type"] == "code"
    ]


def published(
    names: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    *,
    project: Path = Path(),
) -> list[Published]:
    """List the published figures, in the order of the notebooks.

    Parameters
    ----------
    names : sequence of str
        ``FIGURE``, ``NOTEBOOK``, ``NOTEBOOK/DATA``, ``NOTEBOOK/FIGURE``, ``DATA/FIGURE`` or
        ``NOTEBOOK/DATA/FIGURE``; none: all.
    parameters : mapping of str to str, optional
        Values for the notebooks' parameters cells, as typed on a command line.
    project : path
        Directory with ``notebooks/``.

    Returns
    -------
    list of Published

    Raises
    ------
    InputError
        If a name or a parameter is unknown (the nearest one is offered), or a notebook that is
        named is no report.
    """
    saved: dict[Path, list[tuple[int, str, str]]] = {}
    found = []
    runs = plan(project=project)
    for run in runs:
        path = run.notebook.path
        if path not in saved:
            saved[path] = [
                (cell, name, function)
                for cell, (source, _) in enumerate(_cells(run.notebook))
                for name, function in saved_figures(source, path).items()
            ]
        found += [Published(name, run, function, cell) for cell, name, function in saved[path]]
    known = sorted(set().union(*(figure.names for figure in found)))
    own = left_out(project)
    for name in names:
        if (notebook := name.partition("/")[0]) in own:
            plan([notebook], project=project)  # which says what it lacks
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise InputError(
                f"unknown figure {name!r}{hint} pcpmodel figures --dry-run lists all of them"
            )
    chosen = [figure for figure in found if not names or figure.names & set(names)]
    if parameters:
        # Checked, and read again: what a notebook reads may follow from them.
        wanted = sorted({figure.run.notebook.name for figure in chosen})
        given = {run.name: run for run in plan(wanted, parameters, project=project)}
        chosen = [
            Published(figure.name, given[figure.run.name], figure.function, figure.cell)
            for figure in chosen
        ]
    return chosen


def publish(
    figures: Sequence[Published],
    *,
    out: Path,
    size: str | None = None,
    formats: Sequence[str] = ("svg", "pdf", "png"),
    font: str | None = None,
    project: Path = Path(),
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Draw figures into files below ``out``.

    Parameters
    ----------
    figures : sequence of Published
        From `published`.
    out : path
        Files are ``out/NOTEBOOK/DATA/FIGURE.svg`` and so on, each complete or absent;
        ``out/references.bib`` names the sources of what they show.
    size : str, optional
        ``one-column``, ``two-column``, ``slide`` or ``W,H`` [inches]; by default as in the
        notebook.
    formats : sequence of str
        Of ``svg``, ``pdf`` and ``png``.
    font : str, optional
        Family that is installed.
    project : path
        Directory with ``notebooks/`` and, unless ``$PCPMODEL_DATA`` says otherwise, ``data/``.
    progress : callable
        Gets the name of every notebook begun.

    Raises
    ------
    InputError
        For an unknown size, format or font.
    CheckError
        If a cell of a notebook fails.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from pcpmodel.figures import output

    with output(size, formats, font=font):
        pass  # refuses what is wrong before anything runs
    by_run: dict[str, list[Published]] = {}
    for figure in figures:
        by_run.setdefault(figure.run.name, []).append(figure)
    for name, wanted in by_run.items():
        progress(f"{name}: {', '.join(figure.name for figure in wanted)}")
        run = wanted[0].run
        note = "; ".join(f"{p} = {v}" for p, v in run.values.items() if p != "report_dir")
        only = [figure.name for figure in wanted]
        with (
            _data(project),
            output(
                size,
                formats,
                only,
                f"Parameters of {run.notebook.name}: {note or 'none'}.",
                font,
                made_from(run, size=size, font=font),
            ),
        ):
            last = max(figure.cell for figure in wanted)
            _execute(run, _cells(run.notebook)[: last + 1], out / run.name)
    text = references([figure.run for figure in figures], project)
    write_whole(out / "references.bib", text.encode())


@contextmanager
def _data(project: Path) -> Any:
    """Let the package read the project's data, as a report does."""
    before = os.environ.get("PCPMODEL_DATA")
    os.environ["PCPMODEL_DATA"] = str(project_data(project).resolve())
    try:
        yield
    finally:
        del os.environ["PCPMODEL_DATA"]
        if before is not None:
            os.environ["PCPMODEL_DATA"] = before


def _execute(run: Run, cells: Sequence[tuple[str, bool]], out: Path) -> None:
    import matplotlib.pyplot as plt
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    quiet = Config({"HistoryManager": {"enabled": False}})
    with scratch() as place:
        shell = InteractiveShell(config=quiet, ipython_dir=str(place), user_ns={})
        shell.showtraceback = lambda *_, **__: None  # the error is raised below
        try:
            for source, parameters in cells:
                with capture_output():
                    done = shell.run_cell(source)
                error = done.error_before_exec or done.error_in_exec
                if isinstance(error, InputError):
                    raise error
                if error is not None:
                    raise CheckError(f"{run.name}: {type(error).__name__}: {error}") from error
                if parameters:
                    shell.user_ns.update({**run.parameters, "report_dir": str(out)})
        finally:
            plt.close("all")

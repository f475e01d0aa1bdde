"""Which notebook is stale for which data, and why."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pcpmodel.datasets.packages import LATENCY_RESOURCE, data_dir
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.files import open_regular
from pcpmodel.reports.notebook import (
    NoReportError,
    Notebook,
    notebooks,
    placeholder,
    read_notebook,
)
from pcpmodel.reports.record import RECORD, changes

__all__ = [
    "Run",
    "code_date",
    "commit",
    "decide",
    "file_digest",
    "files_of",
    "gone",
    "left_out",
    "made_from",
    "orphans",
    "plan",
    "project_data",
]

#: Packages whose version may change a figure or its page.
ENVIRONMENT = (
    "ipykernel",
    "ipywidgets",
    "matplotlib",
    "nbconvert",
    "numpy",
    "pandas",
    "papermill",
    "scipy",
    "seaborn",
    "xarray",
)

_LABEL = re.compile(r"(?!.*\.failed$)[a-z0-9][a-z0-9.-]{0,63}")


@dataclass
class Run:
    """One notebook with one data set."""

    notebook: Notebook
    data: str
    parameters: dict[str, Any]
    inputs: dict[str, str]  # what it comes from -> digest
    reads: dict[str, Path]  # path under data/ -> where that is
    report: Path
    changes: list[str] = field(default_factory=list)  # why it is stale, one by one
    status: str = "up-to-date"
    error: str | None = None

    @property
    def name(self) -> str:
        return f"{self.notebook.name}/{self.data}"

    @property
    def values(self) -> dict[str, Any]:
        """Every parameter of the notebook, as given or by default."""
        return {p: d.default for p, d in self.notebook.parameters.items()} | self.parameters

    @property
    def failed_report(self) -> Path:
        return self.report.with_name(f"{self.data}.failed")

    @property
    def reason(self) -> str:
        """Why it runs, in one line."""
        shown = self.changes[:3] + [f"{len(self.changes) - 3} more"] * (len(self.changes) > 3)
        return "; ".join(shown) or "nothing changed"

    @property
    def data_digest(self) -> str:
        """Digest of all data that the run reads."""
        read = sorted(item for item in self.inputs.items() if item[0].startswith("data "))
        return hashlib.sha256(json.dumps(read).encode()).hexdigest()

    def as_dict(self) -> dict[str, str]:
        """Give what ``pcpmodel rerun --json`` prints."""
        result = {
            "notebook": self.notebook.name,
            "data": self.data,
            "reason": self.reason,
            "status": self.status,
            "output": str(self.failed_report if self.status == "failed" else self.report),
        }
        return result | ({"error": self.error} if self.error else {})


def plan(
    names: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    *,
    project: Path = Path(),
    out: Path | None = None,
) -> list[Run]:
    """List the runs of the named notebooks, each with what makes it stale.

    Parameters
    ----------
    names : sequence of str
        ``NOTEBOOK`` or ``NOTEBOOK/DATA``; none: all but those `left_out`.
    parameters : mapping of str to str, optional
        Values for the parameters cells, as typed on a command line.
    project : path
        Directory with ``notebooks/`` and, unless ``$PCPMODEL_DATA`` says
        otherwise, ``data/``.
    out : path, optional
        Where the reports are; ``project / "reports"`` unless given.

    Raises
    ------
    InputError
        If a name or parameter is unknown, a value is not of the declared type,
        or a notebook that is named does not declare what it reads.
    """
    known = notebooks(project)
    for name in names:
        if name.partition("/")[0] not in known:
            raise unknown_name("notebook", name, known)
    wanted = {name.partition("/")[0] for name in names} or set(known) - set(left_out(project))
    common = {f"package {name}": digest for name, digest in _package_digests()}
    common["environment python"] = platform.python_version()
    common |= {f"environment {name}": metadata.version(name) for name in ENVIRONMENT}

    data, digest = project_data(project), cache(file_digest)
    runs = []
    for name in sorted(wanted):
        notebook = read_notebook(known[name])
        given = _given(notebook, parameters or {})
        for label, reads in _data_sets(notebook, data, given):
            files = [file for path in reads for file in files_of(path)]
            runs.append(
                Run(
                    notebook,
                    label,
                    given | ({notebook.for_each: label} if notebook.for_each else {}),
                    {
                        "notebook": notebook.digest,
                        **common,
                        **{f"parameter {key}": json.dumps(value) for key, value in given.items()},
                        **{f"data {file.relative_to(data)}": digest(file) for file in files},
                    },
                    {str(path.relative_to(data)): path.resolve() for path in reads},
                    (project / "reports" if out is None else out) / notebook.name / label,
                )
            )
    labels = {run.name for run in runs} | wanted
    for name in names:
        if name not in labels:
            raise unknown_name("data set", name, sorted(labels - wanted))
    runs = [run for run in runs if not names or {run.name, run.notebook.name} & set(names)]
    for run in runs:
        decide(run)
    return runs


def left_out(project: Path) -> list[str]:
    """Return the notebooks that are no reports, as their metadata does not say what they read.

    Parameters
    ----------
    project : Path
        Directory with ``notebooks/``.

    Returns
    -------
    list of str
        Their names, sorted.
    """
    found = []
    for name, path in notebooks(project).items():
        try:
            read_notebook(path)
        except NoReportError:
            found.append(name)
        except InputError:  # of one that is to be a report; said where that is read
            pass
    return found


def made_from(run: Run, **options: Any) -> dict[str, Any]:
    """Say what the figures of a run are made from, and by which command, for their files.

    Parameters
    ----------
    run : Run
    **options : str or None
        Of ``pcpmodel figures``: ``size``, ``font``.

    Returns
    -------
    dict
        ``run``, ``notebook``, ``parameters``, ``commit`` (None: not known) and ``again``.
    """
    notebook = run.notebook
    values = {name: value for name, value in run.values.items() if name != "report_dir"}
    words = ["pcpmodel", "figures", f"{run.name}/FIGURE", "--out", "figures"]
    words += [word for key, said in options.items() if said for word in (f"--{key}", said)]
    for name, value in sorted(run.parameters.items()):
        if name not in (notebook.for_each, "report_dir"):
            text = value if notebook.parameters[name].type == "str" else json.dumps(value)
            words += ["--param", f"{name}={text}"]
    return {
        "run": run.name,
        "notebook": notebook.name,
        "parameters": values,
        "commit": commit(),
        "again": shlex.join(words),
    }


@cache
def commit() -> str | None:
    """Commit of the checkout that the package lies in, ``-dirty`` if files differ from it."""
    top = Path(__file__).resolve().parents[2]
    if not ((top / "pyproject.toml").is_file() and (top / ".git").exists()):
        return None
    words = ["git", "-C", str(top), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@cache
def code_date() -> str:
    """Day from which the code is: of its commit, else of its installation."""
    top = Path(__file__).resolve().parents[2]
    if commit() is not None:
        words = ["git", "-C", str(top), "show", "-s", "--format=%cs", "HEAD"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        if re.fullmatch(r"\d{4}-\d\d-\d\d", done.stdout.strip()):
            return done.stdout.strip()
    return date.fromtimestamp(Path(__file__).stat().st_mtime).isoformat()


def project_data(project: Path) -> Path:
    """Where the project's notebooks read: its own ``data/``, or what ``$PCPMODEL_DATA`` says."""
    own = project / "data"
    return own if own.is_dir() and not os.environ.get("PCPMODEL_DATA") else data_dir()


def _given(notebook: Notebook, parameters: Mapping[str, str]) -> dict[str, Any]:
    given = {}
    for name, text in parameters.items():
        if name == notebook.for_each:
            raise InputError(
                f"parameter {name} of {notebook.name} comes with the data set; "
                f"ask for {notebook.name}/{text} instead"
            )
        if name not in notebook.parameters or name == "report_dir":
            settable = set(notebook.parameters) - {notebook.for_each, "report_dir"}
            raise unknown_name(f"parameter of {notebook.name}", name, sorted(settable))
        given[name] = notebook.parameters[name].parse(text)
    return given


def _data_sets(
    notebook: Notebook, data: Path, given: Mapping[str, Any]
) -> Iterator[tuple[str, list[Path]]]:
    """Yield each data set's label and what the run may read of ``data``."""
    reads: list[Path] = []
    sets: list[Path] = []
    for pattern in notebook.inputs:
        name = placeholder(pattern)
        if name is not None and name == notebook.for_each:
            sets = _set_paths(notebook, data)
            continue
        if name is not None:
            value = given.get(name, notebook.parameters[name].default)
            pattern = pattern.replace(f"{{{name}}}", _label(value, notebook.path))
        found = _visible(data.glob(pattern))
        if not found:
            raise InputError(f"input {pattern!r} matches nothing in {data}", file=notebook.path)
        reads += found
    if notebook.for_each is None:
        yield "all", reads
    for path in sets:
        yield _label(path.name, path), [*reads, *_needed_by(path, sets), path]


def _needed_by(path: Path, sets: Sequence[Path]) -> list[Path]:
    """Machines whose tables a machine with a cost sheet alone has its 99th percentiles from."""
    table = LATENCY_RESOURCE["path"]
    if path.parent.name != "hardware" or (path / table).exists():
        return []
    return [other for other in sets if (other / table).exists()]


def _set_paths(notebook: Notebook, data: Path) -> list[Path]:
    """Return the directories of the data sets that a notebook runs for, one by one."""
    pattern = next(p for p in notebook.inputs if placeholder(p) == notebook.for_each)
    return [p for p in _visible(data.glob(f"{pattern.rpartition('/')[0]}/*")) if p.is_dir()]


def _label(name: str, file: Path) -> str:
    if not _LABEL.fullmatch(name):
        raise InputError(f"data set {name!r} must match {_LABEL.pattern}", file=file)
    return name


def _visible(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if not path.name.startswith("."))


def files_of(path: Path) -> list[Path]:
    """Return the file, or all files below the directory; none that is hidden."""
    if path.is_dir():
        return [file for entry in _visible(path.iterdir()) for file in files_of(entry)]
    return [path]


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open_regular(path, limit=None) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _package_digests() -> Iterator[tuple[str, str]]:
    here = Path(__file__).parents[1]
    for path in sorted(here.rglob("*")):
        name = path.relative_to(here)
        # data/ lies here where the package was installed; its files count for who reads them.
        if path.suffix in (".json", ".py", ".pxd", ".so") and name.parts[0] != "data":
            yield str(name), file_digest(path)


def decide(run: Run) -> None:
    """Compare a run with what its report was made from."""
    run.changes = changes(run.report, run.inputs)
    run.status = "planned" if run.changes else "up-to-date"


def orphans(project: Path = Path(), out: Path | None = None) -> list[str]:
    """List the reports that the next :func:`rerun` takes away: their data set is gone.

    Parameters
    ----------
    project, out : path
        As in :func:`plan`.

    Returns
    -------
    list of str
        ``NOTEBOOK/DATA``.
    """
    out = project / "reports" if out is None else out
    return [f"{report.parent.name}/{report.name}" for report in gone(project, out)]


def gone(project: Path, out: Path) -> list[Path]:
    """Find the reports, failed ones too, of data sets that are there no more."""
    data = project_data(project)
    found = []
    for name, path in notebooks(project).items():
        made = {file.parent for file in (out / name).glob(f"[!.]*/{RECORD}")}
        made |= {file.parent for file in (out / name).glob("[!.]*.failed/error.txt")}
        if not made:
            continue
        try:
            notebook = read_notebook(path)
        except InputError:  # whatever it reads, nothing says that it is gone
            continue
        if notebook.for_each is None:
            continue
        labels = {path.name for path in _set_paths(notebook, data)}
        found += [report for report in made if report.name.removesuffix(".failed") not in labels]
    return sorted(found)

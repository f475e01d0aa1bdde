"""Which notebook is stale for which data, and why; papermill runs those.

A notebook says in its metadata what it reads under ``data/``::

    "pcpmodel": {"inputs": ["hardware/*"]}                                one run, ``all``
    "pcpmodel": {"inputs": ["hardware/{machine}"], "for_each": "machine"}  one run per machine
    "pcpmodel": {"inputs": ["hardware/{machine}"]}                         the one in its parameter

It sees nothing else of ``data/`` while it runs.  A run is stale when the
digest of anything that it came from differs from the one recorded beside its
report: data, notebook, package, parameters, environment.  doit keeps that
record and compares.  It lies inside the report's own directory, which is
written beside and renamed into place as a whole, so that a report and its
record never disagree, whenever the work is killed.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import logging
import math
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from doit.dependency import DatabaseException, Dependency, FileChangedChecker, JsonDB
from doit.task import Task

from pcpmodel.data_package import data_dir
from pcpmodel.errors import InputError, unknown_name

__all__ = [
    "Notebook",
    "Parameter",
    "Run",
    "notebooks",
    "plan",
    "project_data",
    "read_notebook",
    "rerun",
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
#: What a report was made from; doit's store, one beside each report.
RECORD = "inputs.json"

_TYPES = {"bool": bool, "float": float, "int": int, "list": list, "str": str}
_LABEL = re.compile(r"(?!.*\.failed$)[a-z0-9][a-z0-9.-]{0,63}")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


# ------------------------------------------------------------- notebooks


@dataclass(frozen=True)
class Parameter:
    """One line of a notebook's parameters cell: ``name: type = default``."""

    name: str
    type: str
    element: str | None  # of list[element]
    default: Any

    def accepts(self, value: Any) -> bool:
        """Tell whether ``value`` is of this type; nothing is converted."""
        if self.type == "list":
            elements = [self.element] if self.element else ["bool", "float", "int", "str"]
            return isinstance(value, list) and all(
                any(_is(element, item) for element in elements) for item in value
            )
        return _is(self.type, value)

    def parse(self, text: str) -> Any:
        """Read a value typed on the command line; strings are taken as they are."""
        if self.type == "str":
            return text
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if self.type == "float" and _is("int", value):
            value = float(value)
        if not self.accepts(value):
            wanted = self.type if self.element is None else f"{self.type}[{self.element}]"
            example = {"bool": "true", "list": '["a", "b"]', "float": "0.5"}.get(self.type, "5")
            raise InputError(f"parameter {self.name} is {wanted}, such as {example}; got {text!r}")
        return value


def _is(type_: str, value: Any) -> bool:
    """Compare exactly: True is no int, NaN no float."""
    return type(value) is _TYPES[type_] and (type_ != "float" or math.isfinite(value))


@dataclass(frozen=True)
class Notebook:
    """A notebook of the project, as far as it can be known without running it."""

    path: Path
    title: str
    inputs: tuple[str, ...]  # patterns under data/
    for_each: str | None  # the parameter that names the data set
    parameters: Mapping[str, Parameter]
    digest: str  # of what decides its result: cells and metadata, no outputs

    @property
    def name(self) -> str:
        return self.path.stem


def notebooks(project: Path) -> dict[str, Path]:
    """Return the project's notebooks by name, sorted.

    Raises
    ------
    InputError
        If the project has none.
    """
    found = {path.stem: path for path in sorted((project / "notebooks").glob("*.ipynb"))}
    if not found:
        raise InputError("holds no notebook; name the project directory", file=project)
    return found


def read_notebook(path: Path) -> Notebook:
    """Read what a notebook declares: inputs and typed parameters.

    Raises
    ------
    InputError
        If it is not a notebook, or declares nothing, or something else.
    """
    try:
        content = json.loads(path.read_bytes())
        cells = [(c["cell_type"], "".join(c["source"]), _tags(c)) for c in content["cells"]]
        declared = content["metadata"]["pcpmodel"]
        patterns, for_each = declared["inputs"], declared.get("for_each")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            "is not a notebook whose metadata has 'pcpmodel': {'inputs': [...]} "
            f"({type(error).__name__}: {error})",
            file=path,
        ) from None
    parameters = _parameters(path, [source for _, source, tags in cells if "parameters" in tags])
    _check_inputs(path, patterns, for_each, parameters)
    headings = (
        line.lstrip("# ").strip()
        for kind, source, _ in cells
        for line in source.splitlines()
        if kind == "markdown" and line.startswith("# ")
    )
    return Notebook(
        path=path,
        title=next(headings, path.stem),
        inputs=tuple(patterns),
        for_each=for_each,
        parameters=parameters,
        digest=hashlib.sha256(json.dumps([cells, declared], sort_keys=True).encode()).hexdigest(),
    )


def _tags(cell: Mapping[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])


def _check_inputs(
    path: Path, patterns: Any, for_each: Any, parameters: Mapping[str, Parameter]
) -> None:
    if not isinstance(patterns, list) or not all(isinstance(p, str) for p in patterns):
        raise InputError(f"inputs are a list of patterns under data/, not {patterns!r}", file=path)
    for pattern in patterns:
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise InputError(f"input {pattern!r} leads out of data/", file=path)
        name = _placeholder(pattern)
        if "{" in pattern and (name not in parameters or parameters[name].type != "str"):
            raise InputError(
                f"input {pattern!r} does not end in /{{name}} of a str of the parameters cell",
                file=path,
            )
    if for_each is not None and [_placeholder(p) for p in patterns].count(for_each) != 1:
        raise InputError(f"for_each {for_each!r} needs one input /{{{for_each}}}", file=path)


def _placeholder(pattern: str) -> str | None:
    """Return the parameter that names the last part of an input, if one does."""
    found = re.fullmatch(r"[^{}]*/\{(\w+)\}", pattern)
    return found and found[1]


def _parameters(path: Path, sources: Sequence[str]) -> dict[str, Parameter]:
    if len(sources) != 1:
        raise InputError(f"has {len(sources)} cells tagged 'parameters'; needs one", file=path)
    try:
        lines = ast.parse(sources[0]).body
    except SyntaxError as error:
        raise InputError(f"parameters cell, line {error.lineno}: {error.msg}", file=path) from None
    found = {}
    for line in lines:
        match line:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr()):
                pass
            case _:
                name = ""
        type_, _, element = ast.unparse(annotation).partition("[") if name else ("", "", "")
        element = element.removesuffix("]")
        parameter = Parameter(name, type_, element or None, None)
        try:
            default = ast.literal_eval(line.value) if name else None
            typed = type_ in _TYPES and (not element or (type_ == "list" and element in _TYPES))
            if not (typed and parameter.accepts(default)):
                raise ValueError
        except ValueError:
            raise InputError(
                f"parameters cell, line {line.lineno}: {ast.unparse(line)!r} is not "
                f"'name: type = value' with a type of {', '.join(_TYPES)} and a value of it",
                file=path,
            ) from None
        found[name] = Parameter(name, type_, element or None, default)
    return found


# ------------------------------------------------------------------ plan


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
        ``NOTEBOOK`` or ``NOTEBOOK/DATA``; none: all.
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
        or a notebook does not declare what it reads.
    """
    known = notebooks(project)
    for name in names:
        if name.partition("/")[0] not in known:
            raise unknown_name("notebook", name, known)
    wanted = {name.partition("/")[0] for name in names} or set(known)
    common = {f"package {name}": digest for name, digest in _package_digests()}
    common["environment python"] = platform.python_version()
    common |= {f"environment {name}": metadata.version(name) for name in ENVIRONMENT}

    data, digest = project_data(project), cache(_file_digest)
    runs = []
    for name in sorted(wanted):
        notebook = read_notebook(known[name])
        given = _given(notebook, parameters or {})
        for label, reads in _data_sets(notebook, data, given):
            files = [file for path in reads for file in _files(path)]
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
        _decide(run)
    return runs


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
        name = _placeholder(pattern)
        if name is not None and name == notebook.for_each:
            sets = [p for p in _visible(data.glob(f"{pattern.rpartition('/')[0]}/*")) if p.is_dir()]
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
        yield _label(path.name, path), [*reads, path]


def _label(name: str, file: Path) -> str:
    if not _LABEL.fullmatch(name):
        raise InputError(f"data set {name!r} must match {_LABEL.pattern}", file=file)
    return name


def _visible(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if not path.name.startswith("."))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for entry in _visible(path.iterdir()) for file in _files(entry)]
    return [path]


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _package_digests() -> Iterator[tuple[str, str]]:
    here = Path(__file__).parent
    for path in sorted(here.rglob("*")):
        if path.suffix in (".py", ".pxd", ".so"):
            yield str(path.relative_to(here)), _file_digest(path)


class _Digests(FileChangedChecker):
    """What doit asks about an input: here it has a name and a digest, no date."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        self.digests = digests

    def info(self, file_path: str) -> str:
        return self.digests[file_path]

    def check_modified(self, file_path: str, file_stat: str, state: str) -> bool:
        return file_stat != state

    def get_state(self, dep: str, current_state: object) -> str:
        return self.digests[dep]


class _Codec:
    """Equal records as equal bytes; doit keeps the list of inputs in set order."""

    decode = staticmethod(json.loads)

    @staticmethod
    def encode(store: dict[str, dict[str, Any]]) -> str:
        for entry in store.values():
            entry["deps:"] = sorted(entry["deps:"])
        return json.dumps(store, indent=1, sort_keys=True)


def _record(run: Run, directory: Path) -> Dependency:
    return Dependency(
        JsonDB, str(directory / RECORD), lambda: _Digests(run.inputs), codec_cls=_Codec
    )


def _decide(run: Run) -> None:
    run.changes = _changes(run)
    run.status = "planned" if run.changes else "up-to-date"


def _changes(run: Run) -> list[str]:
    """Ask doit what changed since the report was made."""
    if not (run.report / RECORD).is_file():
        return ["never run"]
    try:
        record = _record(run, run.report)
    except DatabaseException:
        return [f"{RECORD} is unreadable"]
    made = record.get_values(run.name).get("outputs", [])
    task = Task(
        run.name, None, file_dep=list(run.inputs), targets=[str(run.report / name) for name in made]
    )
    why = record.get_status(task, {}, get_log=True).reasons
    added, removed = set(why["added_file_dep"]), set(why["removed_file_dep"])
    changes = {
        _thing(name, added, removed): None
        for name in sorted(run.inputs.keys() | removed)
        if name in added | removed | set(why["changed_file_dep"])
    }
    missing = (f"output {Path(path).name} missing" for path in why["missing_target"])
    return [*changes, *missing]


def _thing(name: str, added: set[str], removed: set[str]) -> str:
    """Say what happened to an input; of data, the package is enough to name."""
    kind, _, rest = name.partition(" ")
    verb = "added" if name in added else "removed" if name in removed else "changed"
    return " ".join([kind, "/".join(rest.split("/")[:2]), verb] if rest else [kind, verb])


# --------------------------------------------------------------- execute


def rerun(
    names: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    *,
    project: Path = Path(),
    out: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Run]:
    """Bring the reports up to date and say for each run what was done and why.

    Parameters and errors are those of :func:`plan`; ``progress`` gets a line
    whenever something starts or ends.  Every report is replaced as a whole or
    not at all.  A run whose notebook fails has status ``failed``; its report
    is kept apart, the earlier one stays.
    """
    from pcpmodel.report import write_index

    out = project / "reports" if out is None else out
    runs = plan(names, parameters, project=project, out=out)
    with _alone(out, progress):
        _mend(out)
        for run in runs:  # again: others may have been at work
            _decide(run)
        stale = [run for run in runs if run.changes]
        if stale:
            _run_all(stale, progress)
        write_index(out)
    return runs


@contextmanager
def _alone(out: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold the reports for this process; the kernel lets go if it is killed."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            progress(f"waiting for process {lock.read()}, which is writing {out}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _mend(out: Path) -> None:
    """Clear up after a process that was killed, at whatever point."""
    for old in out.glob("*/.*.old"):
        final = old.with_name(old.name[1:].removesuffix(".old"))
        if final.exists():
            shutil.rmtree(old)
        else:
            old.rename(final)
    for new in out.glob("*/.*.new"):
        shutil.rmtree(new)


def _put(new: Path, final: Path) -> None:
    """Put a directory in the place of another."""
    old = final.with_name(f".{final.name}.old")
    if final.exists():
        final.rename(old)
    new.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _run_all(runs: Sequence[Run], progress: Callable[[str], None]) -> None:
    # Imported here, before the threads: it takes seconds, and only a stale run needs it.
    import papermill  # noqa: F401

    from pcpmodel import report  # noqa: F401

    kernels = _Kernels()

    def one(run: Run) -> None:
        start = time.monotonic()
        progress(f"{run.name}: running ({run.reason})")
        _execute(run, kernels)
        progress(f"{run.name}: {run.error or 'done'} [{time.monotonic() - start:.1f} s]")

    workers = min(4, len(os.sched_getaffinity(0)), len(runs))
    with ThreadPoolExecutor(workers) as pool:
        # The later notebooks simulate more: begun first, they leave no CPU idle at the end.
        futures = [pool.submit(one, run) for run in reversed(runs)]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            kernels.stop()
            raise


@dataclass
class _Kernels:
    """The kernels at work, so that an interrupt can end them."""

    managers: list[Any] = field(default_factory=list)
    stopped: bool = False

    def stop(self) -> None:
        self.stopped = True
        for manager in self.managers:
            if manager.has_kernel:
                manager.provisioner.process.kill()


def _execute(run: Run, kernels: _Kernels) -> None:
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from pcpmodel.report import html, tidy

    logging.getLogger("papermill").setLevel(logging.ERROR)  # its guesses at the parameters
    new = run.report.with_name(f".{run.data}.new")
    details = ""
    parameters = dict(run.parameters)
    if "report_dir" in run.notebook.parameters:
        parameters["report_dir"] = "."
    try:
        new.mkdir(parents=True)
        executed = new / run.notebook.path.name
        with tempfile.TemporaryDirectory(prefix="pcpmodel-") as scratch:
            Path(scratch, "data").mkdir()
            for name, path in run.reads.items():
                shown = Path(scratch, "data", name)
                shown.parent.mkdir(parents=True, exist_ok=True)
                shown.symlink_to(path)
            try:
                papermill.execute_notebook(
                    nbformat.read(run.notebook.path, as_version=4),
                    # papermill fills in {} of a path.
                    re.sub(r"([{}])", r"\1\1", str(executed.absolute())),
                    parameters,
                    kernel_name="python3",
                    language="python",
                    progress_bar=False,
                    request_save_on_cell_execute=False,
                    kernel_manager_class=_kernel(scratch, kernels),
                    resources={"metadata": {"path": str(new)}},
                )
            except PapermillExecutionError as error:
                run.error = f"{error.ename}: {error.evalue}" if error.evalue else error.ename
            except DeadKernelError:
                if kernels.stopped:
                    raise
                run.error = "the kernel died"
                details = Path(scratch, "kernel.log").read_text(errors="replace")
        if executed.exists():
            notebook = tidy(nbformat.read(executed, as_version=4))
            nbformat.write(notebook, executed)
            title = f"{run.notebook.title} ({run.data})"
            executed.with_suffix(".html").write_text(html(notebook, title), encoding="utf-8")
        if run.error:
            run.status = "failed"
            (new / "error.txt").write_text(f"{run.error}\n{details}", encoding="utf-8")
            _put(new, run.failed_report)
            return
        _remember(run, new)
        _put(new, run.report)
        run.status = "done"
        shutil.rmtree(run.failed_report, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write the report: {error.strerror}", file=run.report) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _remember(run: Run, directory: Path) -> None:
    """Let doit record what the report was made from."""
    from pcpmodel import __version__

    task = Task(run.name, None, file_dep=list(run.inputs))
    made = sorted(_files(directory), key=lambda path: path.stat().st_mtime_ns)  # as they appeared
    task.values = {
        "outputs": [str(path.relative_to(directory)) for path in made],
        "title": run.notebook.title,
        "version": __version__,
        "data_digest": run.data_digest,
    }
    record = _record(run, directory)
    record.save_success(task)
    record.close()


def _kernel(scratch: str, kernels: _Kernels) -> type:
    """Make the kernel manager: this interpreter, this package, nobody's profile."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    path = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {
        "IPYTHONDIR": scratch,
        "LC_ALL": "C.UTF-8",
        "PCPMODEL_DATA": f"{scratch}/data",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "TZ": "UTC",
        **dict.fromkeys(_THREADS, "1"),  # how a sum is split changes its last bits
    }
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]

    class Kernel(AsyncKernelManager):
        kernel_spec = KernelSpec(
            argv=argv, env=env, display_name="Python 3", language="python", resource_dir=scratch
        )

        def __init__(self, **options: Any) -> None:
            # Sockets are files of ours: no port for others to find or to race for.
            place = {"transport": "ipc", "ip": f"{scratch}/kernel"}
            super().__init__(connection_file=f"{scratch}/kernel.json", **place, **options)
            kernels.managers.append(self)

        async def start_kernel(self, **options: Any) -> None:
            with open(f"{scratch}/kernel.log", "wb") as log:
                await super().start_kernel(stdout=log, stderr=log, **options)

    return Kernel

"""The stale notebooks are run by papermill; their reports and the index brought up to date.

A notebook says in its metadata what it reads under ``data/``::

    "pcpmodel": {"inputs": ["hardware/*"]}                                one run, ``all``
    "pcpmodel": {"inputs": ["hardware/{machine}"], "for_each": "machine"}  one run per machine
    "pcpmodel": {"inputs": ["hardware/{machine}"]}                         the one in its parameter

It sees nothing else of ``data/`` while it runs.  A run is stale when the
digest of anything that it came from differs from the one recorded beside its
report: data, notebook, package, parameters, environment.  The record
lies inside the report's own directory, which is
written beside and renamed into place as a whole, so that a report and its
record never disagree, whenever the work is killed.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pcpmodel.errors import InputError
from pcpmodel.files import open_lock, open_regular, scratch, sync, sync_tree
from pcpmodel.reports.crate import CRATE, write_crate
from pcpmodel.reports.kernels import Kernels, last_words
from pcpmodel.reports.pages import conclusion, remember_last, write_index
from pcpmodel.reports.plan import (
    Run,
    code_date,
    decide,
    file_digest,
    files_of,
    gone,
    made_from,
    plan,
)
from pcpmodel.reports.record import Record, remember
from pcpmodel.reports.record import made_from as made_from_record
from pcpmodel.reports.references import sources

__all__ = ["rerun"]

#: What most of a report's notebooks come to import.
_MODULES = (
    "pcpmodel.figures",
    "pcpmodel.study.hold.limit",
    "pcpmodel.study.contention.runs",
    "matplotlib.backends.backend_pdf",
)
#: Longest scratch folder [characters]: with a folder of the kernel's and the socket's name, 30, its
#: path fits into the 107 of a sockaddr_un.
_MOST_OF_A_SOCKET = 77


def rerun(
    names: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    *,
    project: Path = Path(),
    out: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Run]:
    """Bring the reports up to date and say for each run what was done and why.

    Parameters and errors are those of :func:`pcpmodel.reports.plan.plan`; ``progress`` gets a line
    whenever something starts or ends.  Reports of a data set that is there no
    more are removed.  Every other report is replaced as a whole or not at all.
    A run whose notebook fails has status ``failed``; its report is kept apart,
    the earlier one stays.
    """
    out = project / "reports" if out is None else out
    runs = plan(names, parameters, project=project, out=out)
    with _alone(out, progress):
        _mend(out)
        for report in gone(project, out):
            shutil.rmtree(report)
            progress(f"{report.parent.name}/{report.name}: removed, as its data are")
        for run in runs:  # again: others may have been at work
            decide(run)
        stale = [run for run in runs if run.changes]
        if stale:
            with scratch() as place:
                if len(os.fspath(place)) > _MOST_OF_A_SOCKET:
                    raise InputError(
                        f"TMPDIR: the sockets of kernels in {place} would have names of more than "
                        "107 characters, which Linux does not take; choose a shorter TMPDIR"
                    )
                _copy_data(stale, place / "data")
                (place / "runs").mkdir()
                before = {run.name: _conclusion(run) for run in stale}
                _run_all(stale, place, progress)
                remember_last(out, [_told(run, before[run.name]) for run in stale])
        write_index(out)
    return runs


def _conclusion(run: Run) -> str:
    record = made_from_record(run.report)
    return "" if record is None else record.conclusion


def _told(run: Run, before: str) -> dict[str, str]:
    """What the index says of a run that was made."""
    return {
        "name": run.name,
        "status": run.status,
        "why": run.reason,
        "before": before,
        "now": _conclusion(run),
    }


def _copy_data(runs: Sequence[Run], copy: Path) -> None:
    """Copy what the runs read, so that they read what was recorded, whatever is written meanwhile.

    Raises
    ------
    InputError
        If a file is no longer what it was when the runs were planned.
    """
    for shown, source, inputs in (
        (*read, run.inputs) for run in runs for read in run.reads.items()
    ):
        (copy / shown if source.is_dir() else (copy / shown).parent).mkdir(
            parents=True, exist_ok=True
        )
        for file in files_of(source):
            name = str(Path(shown, file.relative_to(source)))
            target = copy / name
            if target.exists():
                continue  # another run reads it too
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open_regular(file, limit=None) as original, target.open("xb") as sink:
                    shutil.copyfileobj(original, sink)
            except OSError as error:
                raise InputError(f"cannot be copied: {error.strerror}", file=file) from None
            if file_digest(target) != inputs.get(f"data {name}"):
                raise InputError("has changed since the runs were planned; run again", file=file)


@contextmanager
def _alone(out: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold the reports for this process; the kernel lets go if it is killed."""
    out.mkdir(parents=True, exist_ok=True)
    with open_lock(out / ".lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read(20).decode("ascii", "replace")
            progress(f"waiting for process {holder}, which is writing {out}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(b"%d" % os.getpid())
        lock.flush()
        yield


def _mend(out: Path) -> None:
    """Clear up after a process that was killed, at whatever point."""
    for old in out.glob("*/.*.old"):
        final = old.with_name(old.name[1:].removesuffix(".old"))
        if final.exists():
            _remove(old)
        else:
            old.rename(final)
    for new in out.glob("*/.*.new"):
        _remove(new)


def _remove(path: Path) -> None:
    """Remove what stands in the way, whatever it is; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _put(new: Path, final: Path) -> None:
    """Put a directory in the place of another; after a power cut one of the two is there."""
    sync_tree(new)
    old = final.with_name(f".{final.name}.old")
    if final.exists():
        final.rename(old)
    new.rename(final)
    sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _run_all(runs: Sequence[Run], place: Path, progress: Callable[[str], None]) -> None:
    def one(run: Run) -> None:
        start = time.monotonic()
        progress(f"{run.name}: running ({run.reason})")
        _execute(run, place, kernels)
        progress(f"{run.name}: {run.error or 'done'} [{time.monotonic() - start:.1f} s]")

    workers = min(4, len(os.sched_getaffinity(0)), len(runs))
    modules = _MODULES if len(runs) > 1 and any(map(_asks_the_model, runs)) else ()
    with Kernels(place, modules) as kernels, ThreadPoolExecutor(workers) as pool:
        # Imported here, before the threads and beside the kernels' imports: it takes seconds, and
        # only a stale run needs it.
        import papermill  # noqa: F401

        from pcpmodel.reports import pages  # noqa: F401

        # The later notebooks simulate more: begun first, they leave no CPU idle at the end.
        futures = [pool.submit(one, run) for run in reversed(runs)]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            kernels.stop()
            raise


def _asks_the_model(run: Run) -> bool:
    return "import pcpmodel" in json.dumps(run.notebook.content)


def _execute(run: Run, place: Path, kernels: Kernels) -> None:
    import nbformat
    import papermill
    from papermill.exceptions import PapermillExecutionError

    from pcpmodel.reports.pages import describe, html, tidy

    logging.getLogger("papermill").setLevel(logging.ERROR)  # its guesses at the parameters
    new = run.report.with_name(f".{run.data}.new")
    details = ""
    parameters = dict(run.parameters)
    if "report_dir" in run.notebook.parameters:
        parameters["report_dir"] = "."
    try:
        new.mkdir(parents=True)
        executed = new / run.notebook.path.name
        with tempfile.TemporaryDirectory(dir=place) as own:
            Path(own, "data").mkdir()
            for name in run.reads:
                shown = Path(own, "data", name)
                shown.parent.mkdir(parents=True, exist_ok=True)
                shown.symlink_to(place / "data" / name)
            environment = {
                "PCPMODEL_DATA": f"{own}/data",
                "PCPMODEL_MADE_FROM": json.dumps(made_from(run)),
                "PCPMODEL_SHARED_RUNS": str(place / "runs"),
            }
            try:
                papermill.execute_notebook(
                    nbformat.reads(json.dumps(run.notebook.content), as_version=4),
                    # papermill fills in {} of a path.
                    re.sub(r"([{}])", r"\1\1", str(executed.absolute())),
                    parameters,
                    kernel_name="python3",
                    language="python",
                    progress_bar=False,
                    request_save_on_cell_execute=False,
                    kernel_manager_class=kernels.manager(own, environment),
                    resources={"metadata": {"path": str(new)}},
                )
            except PapermillExecutionError as error:
                run.error = f"{error.ename}: {error.evalue}" if error.evalue else error.ename
            except RuntimeError as error:  # DeadKernelError, or one that never answered
                if kernels.stopped:
                    raise
                run.error = "the kernel died" if "died" in str(error) else str(error)
                details = last_words(own)
        if executed.exists():
            notebook = describe(tidy(nbformat.read(executed, as_version=4)), new)
            nbformat.write(notebook, executed)
            title = f"{run.notebook.title} ({run.data})"
            executed.with_suffix(".html").write_text(html(notebook, title), encoding="utf-8")
        if run.error:
            run.status = "failed"
            (new / "error.txt").write_text(f"{run.error}\n{details}", encoding="utf-8")
            for left in new.glob(".*.pcpmodel-*"):  # of a kernel that died while it drew
                shutil.rmtree(left, ignore_errors=True)
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
    """Record what the report was made from."""
    import nbformat

    from pcpmodel import __version__

    said = conclusion(nbformat.read(directory / run.notebook.path.name, as_version=4))
    made = sorted(files_of(directory), key=lambda path: path.stat().st_mtime_ns)  # as they appeared
    outputs = [str(path.relative_to(directory)) for path in made]
    write_crate(
        directory,
        outputs,
        run=run.name,
        title=run.notebook.title,
        conclusion=said,
        date=code_date(),
        version=__version__,
        inputs=run.inputs,
        made_from=made_from(run),
        sources=sources(run),
    )
    record = Record(
        run=run.name,
        inputs=run.inputs,
        outputs=[*outputs, CRATE],
        title=run.notebook.title,
        version=__version__,
        data_digest=run.data_digest,
        conclusion=said,
    )
    remember(directory, record)

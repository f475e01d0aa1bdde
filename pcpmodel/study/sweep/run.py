"""Grids of runs on any ``concurrent.futures`` executor, with resume.

All runs are checked before the first one starts.  Every finished run is at once a
line of ``<out>.cells``; a sweep that was interrupted or killed goes on where it was.
The result does not depend on who computed what, or in which order.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import io
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import (
    CancelledError,
    Executor,
)
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from pcpmodel import __version__
from pcpmodel.errors import InputError, note
from pcpmodel.files import read_bytes, write_whole
from pcpmodel.simulation.once import what_decides
from pcpmodel.simulation.pilot import prepare
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import first_look
from pcpmodel.simulation.spec import RunSpec
from pcpmodel.study.sweep.grid import FIGURES, SCHEMA, Grid, as_label, as_machine, make_grid
from pcpmodel.study.sweep.journal import MAX_RESULT_BYTES, Journal
from pcpmodel.study.sweep.workers import compute, computing

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["run_grid", "sweep"]

#: The pilot runs of an estimate, and how long each may take [s].
_PILOTS, _PILOT_S = 8, 0.05


def _second_s(spec: RunSpec, engine: str) -> float:
    """Time that a simulated second of a run takes [s], from its start."""
    prepare(spec)  # what only the first run of a machine costs
    simulated_s = 0.0
    began = time.perf_counter()

    def watch(now_s: float) -> None:
        nonlocal simulated_s
        simulated_s = now_s
        if time.perf_counter() - began > _PILOT_S:
            raise CancelledError

    with suppress(CancelledError):
        compute(spec, engine, watch)
    return (time.perf_counter() - began) / simulated_s


def _run_s(spec: RunSpec, engine: str, looks: float) -> float:
    """Time that a run needs [s]; ``looks``: its share of a look for its warm-up."""
    if not spec.settles:
        return _second_s(spec, engine) * (spec.seconds + (spec.warmup_s or 0.0))
    look = replace(spec, **first_look(spec))
    second_s = look_s = _second_s(replace(spec, warmup_s=0.0), engine)
    if engine != "event" or spec.identity:  # which a look has not
        look_s = _second_s(look, "event")
    # A look is often not the last one, and what is found is often short.
    found_s = look.seconds / 8
    return second_s * (found_s + spec.seconds) + look_s * 1.5 * looks * look.seconds


def _estimate_s(grid: Grid, todo: list[int]) -> float:
    """Time that one worker needs for the runs that are left [s], from a few of them."""
    settling = [spec for spec in (grid.specs[run] for run in todo) if spec.settles]
    looks = {what_decides(spec, **first_look(spec)) for spec in settling}
    share = len(looks) / max(len(settling), 1)
    sample = np.random.default_rng(0).permutation(todo)[:_PILOTS].tolist()
    total = 0.0
    for run in sample:
        with grid.at(run):
            total += _run_s(grid.specs[run], grid.engines[run], share)
    return total / len(sample) * len(todo)


def _alike(grid: Grid, todo: list[int]) -> list[list[int]]:
    """Runs in the order in which they are done, those together that have one outcome.

    First those with the first seed: others with another would only wait for the end of the
    warm-up that these look for.
    """
    found: dict[object, list[int]] = {}
    for run in todo:
        key = what_decides(grid.specs[run]), grid.engines[run]
        found.setdefault(key, []).append(run)
    return sorted(found.values(), key=lambda runs: grid.place(runs[0], "seed"))


def _run(
    grid: Grid,
    done: Mapping[int, dict[str, float]],
    add: Callable[[int, dict[str, float]], None],
    executor: Executor | None,
    workers: int,
    progress: bool | Callable[[int, int], None],
) -> None:
    """Do the runs that are not done yet, after saying how much that is."""
    size = len(grid.specs)
    todo = [i for i in range(size) if i not in done]
    alike = {runs[0]: runs for runs in _alike(grid, todo)}
    if progress is True:
        axes = " x ".join(f"{name} {len(values)}" for name, values in grid.axes.items())
        text = f"sweep: {size} run{'s' * (size > 1)}" + (f" ({axes})" if axes else "")
        if todo:
            took = _estimate_s(grid, list(alike)) / min(workers, len(alike))
            text += f", {len(done)} of them done before" if done else ""
            text += f"; about {took:.2g} s on {workers} workers"
        note(text)
    elif progress:
        progress(len(done), size)
    with (
        tqdm(
            total=size,
            initial=len(done),
            unit="run",
            leave=False,
            disable=None if progress is True else True,
        ) as bar,
        closing(computing(grid, list(alike), executor, workers)) as computed,
    ):
        for first, values in computed:
            for run in alike[first]:
                add(run, values)
                bar.update()
                if callable(progress):
                    progress(len(done), size)


def _unit(name: str) -> str:
    """Unit of an argument: its name says it."""
    known = {"ns": "ns", "s": "s", "seconds": "s", "pages": "pages", "gib": "GiB", "kib": "KiB"}
    known |= {"batch": "pages", "pagevec": "pages"}
    return known.get(name.rsplit("_", 1)[-1], "1")


def _coordinate(name: str, values: list[Any]) -> tuple[str, Any, dict[str, str]]:
    """An axis in a type that NetCDF-3 has; None is NaN."""
    labels = [as_label(v) for v in values]
    if all(isinstance(v, str) for v in labels):
        return name, labels, {}
    if all(isinstance(v, bool) for v in labels):
        return name, np.array(labels), {}
    attrs = {"units": _unit(name)}
    if all(isinstance(v, int) and abs(v) < 2**31 for v in labels):
        return name, np.array(labels, dtype=np.int32), attrs
    if None in labels:
        attrs["comment"] = "NaN: not given, the kernel's or the machine's own value"
    return name, np.array([math.nan if v is None else v for v in labels], dtype=float), attrs


def _dataset(grid: Grid, runs: Mapping[int, dict[str, float]]) -> xr.Dataset:
    import xarray as xr

    def text(value: Any) -> str:
        return json.dumps(value, default=str)

    machines = {spec.machine.digest: spec.machine for spec in grid.specs}
    return xr.Dataset(
        {
            name: (
                tuple(grid.axes),
                np.array([runs[i][name] for i in range(len(grid.specs))]).reshape(grid.shape),
                {"units": unit, "long_name": meaning},
            )
            for name, (unit, meaning) in FIGURES.items()
            if name not in grid.axes  # warmup_s, which is then given
        },
        coords={name: _coordinate(name, values) for name, values in grid.axes.items()},
        attrs={
            "title": "pcpmodel sweep",
            "pcpmodel_version": __version__,
            "schema_version": SCHEMA,
            "sweep": grid.digest,
            "spec": text({"base": grid.base, "grid": grid.axes}),
            "inputs": text(
                {as_label(as_machine(machine)[1]): machine.digest for machine in machines.values()}
            ),
            "seed": text(sorted({spec.seed for spec in grid.specs})),
            "seeds": "each run has the seed that the spec gives it: runs of one seed that differ "
            "in other arguments share their random numbers",
        },
    )


def _finished(path: Path, grid: Grid) -> xr.Dataset | None:
    """Read the result of this very sweep, if it is there."""
    import xarray as xr

    if not path.exists():
        return None
    raw = read_bytes(path, MAX_RESULT_BYTES)
    try:
        found = xr.load_dataset(io.BytesIO(raw), engine="scipy")
    except Exception:  # on a file of another kind SciPy raises whatever comes first
        raise InputError(
            "exists and is not the result of a sweep; remove it or give another output file",
            file=path,
        ) from None
    if found.attrs.get("sweep") != grid.digest:
        raise InputError(
            "exists and is the result of another sweep or version; remove it or give another "
            "output file",
            file=path,
        )
    return found


def _save(data: xr.Dataset, path: Path) -> None:
    """Write the result; the lock of the journal keeps other sweeps away."""
    write_whole(path, bytes(data.to_netcdf(engine="scipy")), replace=False)


def run_grid(
    grid: Grid,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = True,
) -> xr.Dataset:
    """Run a grid; see `sweep`."""
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers={workers!r} is not a whole number above 0")
    if out is None:
        done: dict[int, dict[str, float]] = {}
        _run(grid, done, done.__setitem__, executor, workers, progress)
        return _dataset(grid, done)
    path = Path(out)
    if os.path.lexists(path) and not path.is_file():
        what = "a directory" if path.is_dir() else "no regular file"
        raise InputError(f"is {what}; name a file", file=path)
    if not path.parent.is_dir():
        raise InputError("is not a directory: make it first", file=path.parent)
    journal = Journal(path.with_name(f"{path.name}.cells"), grid)
    finished = False
    try:
        data = _finished(path, grid)
        if data is None:
            _run(grid, journal.done, journal.add, executor, workers, progress)
            data = _dataset(grid, journal.done)
            _save(data, path)
        elif progress is True:
            note(f"sweep: {path} is finished, nothing to do")
        finished = True
    finally:
        journal.close(finished)
        if not finished and journal.done:
            note(
                f"sweep: {len(journal.done)} of {len(grid.specs)} runs are kept in "
                f"{journal.path}; start the same sweep again to go on from there"
            )
    return data


def sweep(
    base: RunSpec | Result | None = None,
    /,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = True,
    **arguments: Any,
) -> xr.Dataset:
    """Run every combination of some arguments.

    Parameters
    ----------
    base : RunSpec or Result, optional
        A run, whose arguments hold where none is given here.
    executor : concurrent.futures.Executor, optional
        Where to run; by default threads (the engine runs without the GIL).  With Dask:
        ``Client(...).get_executor()``.
    workers : int, optional
        Threads, or how many runs an executor does at once; default: CPUs of this host.
    out : path, optional
        NetCDF file; finished runs are kept in ``<out>.cells`` until all are done, and the
        same call goes on from there.  A finished sweep is read and not run again.
    progress : bool or callable
        True: say on stderr how many runs there are and how long they take, then how far they
        are.  A callable gets the number of runs done and of all.
    **arguments
        Those of `simulate`: one value for all runs, or a list, tuple, range or array of values,
        which makes an axis (but ``changes``, which all runs share); at most 100 000 runs.
        Besides, ``patch`` puts patches on the release and takes them off:
        ``patch=["", "alloc-scale", "-auto-high+count-min"]``.

    Returns
    -------
    xarray.Dataset
        One variable per entry of `FIGURES`, one dimension per axis; the same for the same
        arguments on any executor.  The attribute ``spec`` is a description that
        ``pcpmodel sweep`` takes to repeat it; it refuses one of a workload of your own, or one that
        was "changed by hand".

    Raises
    ------
    InputError
        For anything impossible, or an ``out`` that is there and not of this sweep, before
        anything is run; if a run is out of memory.

    Notes
    -----
    Every run has the seed that is given (common random numbers): runs that differ in a
    setting start from the same draws, so that their difference varies less than either.  They
    are therefore not independent; for an error of a figure make ``seed`` an axis.

    Examples
    --------
    >>> import pcpmodel as pm
    >>> grid = pm.sweep(release=["v6.6", "v6.7"], machine="ice-lake", seconds=0.01, cpus=4,
    ...                 workload=pm.workload.page_fault1(4), memory_gib=8, progress=False)
    >>> dict(grid.refills.sizes)
    {'release': 2}
    """
    grid = make_grid(base, **arguments)
    return run_grid(grid, executor=executor, workers=workers, out=out, progress=progress)

"""Grids of runs on any ``concurrent.futures`` executor, with resume.

Every finished run is at once a line of ``<out>.cells``; a sweep that was killed
starts again where it was.  The result does not depend on who computed what, or
in which order.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pcpmodel import __version__
from pcpmodel.errors import InputError
from pcpmodel.machine import Machine
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import RunSpec, execute, make_spec, varied
from pcpmodel.workload import Workload, make

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["FIGURES", "estimate", "read_spec", "sweep"]

#: Figure of a run -> (unit, what it is).
FIGURES: dict[str, tuple[str, str]] = {
    "score_per_s": ("1/s", "units of work per second"),
    "lock_contention": ("1", "share of busy cycles waiting for the zone lock"),
    "lru_contention": ("1", "share of busy cycles waiting for the LRU lock"),
    "refills": ("1", "zone-lock holds that filled a list"),
    "drains": ("1", "zone-lock holds that emptied lists"),
    "free_high": ("1", "drains because of consecutive high-order frees"),
    "alloc_zone_pages": ("pages", "pages taken from the zone"),
    "wait_mean_ns": ("ns", "wait for the zone lock, mean"),
    "wait_p50_ns": ("ns", "wait for the zone lock, median"),
    "wait_p99_ns": ("ns", "wait for the zone lock, 99th percentile"),
    "wait_p99_9_ns": ("ns", "wait for the zone lock, 99.9th percentile"),
    "wait_max_ns": ("ns", "wait for the zone lock, longest"),
    "hold_p99_ns": ("ns", "hold of the zone lock, 99th percentile"),
    "over_100us": ("1", "share of refills and drains that take more than 100 us"),
    "pages_in_pcp_mean": ("pages", "pages on per-CPU lists, mean over time"),
    "pages_in_pcp_max": ("pages", "pages on per-CPU lists, most"),
}
#: In flight per worker: enough to keep it busy, few enough to stop soon.
_AHEAD = 4
_MAX_CELLS = 1_000_000


def figures(result: Result) -> dict[str, float]:
    """The `FIGURES` of one run."""
    w = result.wait_ns
    holds = result.hold_hist["refill"] + result.hold_hist["drain"]
    total = result.latency_hist["refill"].total + result.latency_hist["drain"].total
    pcp = result.pages_in_pcp
    values = {
        "wait_mean_ns": w["mean"],
        "wait_p50_ns": w["p50"],
        "wait_p99_ns": w["p99"],
        "wait_p99_9_ns": w["p99.9"],
        "wait_max_ns": w["max"],
        "hold_p99_ns": holds.quantile_ns(0.99) if holds.total else 0.0,
        "over_100us": (result.over["refill"][0] + result.over["drain"][0]) / max(total, 1),
        "pages_in_pcp_mean": float(pcp.mean()) if len(pcp) else 0.0,
        "pages_in_pcp_max": float(pcp.max()) if len(pcp) else 0.0,
    }
    return {n: float(values[n] if n in values else getattr(result, n)) for n in FIGURES}


def _cell(spec: RunSpec) -> dict[str, float]:
    """One run, on whatever worker."""
    return figures(execute(spec))


def _label(value: Any) -> Any:
    """How a value of an axis is written down."""
    if isinstance(value, Workload):
        params = ", ".join(f"{k}={v}" for k, v in value.params.items())
        return f"{value.name}({params})"
    if isinstance(value, Machine):
        return value.name
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | int | float | bool):
        return "" if value is None else value
    return str(value)


def _cells(base: RunSpec, grid: dict[str, list[Any]]) -> list[RunSpec]:
    """Every run of the grid, checked."""
    specs = []
    for point in itertools.product(*grid.values()):
        changes = dict(zip(grid, point, strict=True))
        try:
            specs.append(varied(base, **changes))
        except InputError as error:
            where = ", ".join(f"{k}={_label(v)!r}" for k, v in changes.items())
            raise InputError(f"run {where}: {error}") from None
    return specs


def estimate(specs: Sequence[RunSpec], workers: int) -> float:
    """Guess how long the runs take [s], from a fiftieth of a few of them."""
    probes = [specs[i] for i in sorted({0, len(specs) // 2, len(specs) - 1})]
    began = time.perf_counter()
    for spec in probes:
        execute(replace(spec, seconds=max(spec.seconds / 50, 1e-6), warmup_s=spec.warmup_s / 50))
    took = time.perf_counter() - began
    # Making a run ready does not scale with its length: an upper bound.
    return 50 * took / len(probes) * len(specs) / max(workers, 1)


class _Journal:
    """Finished runs on disk, one JSON line each, whole or not at all."""

    def __init__(self, path: Path | None, digest: str) -> None:
        self.path, self.done = path, dict[int, dict[str, float]]()
        self._file = None
        if path is None:
            return
        kept = 0
        if path.exists():
            kept = self._read(path, digest)
        self._file = open(path, "ab")  # noqa: SIM115
        self._file.truncate(kept)
        if kept == 0:
            self._write({"sweep": digest, "version": __version__})

    def _read(self, path: Path, digest: str) -> int:
        """Take over finished runs; returns the length of the whole lines."""
        kept = 0
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break  # the line that was being written when the sweep was killed
            try:
                entry = json.loads(line)
            except ValueError:
                raise InputError("is not a journal of a sweep", file=path, row=number) from None
            if number == 1:
                if entry != {"sweep": digest, "version": __version__}:
                    raise InputError(
                        "belongs to another sweep or version; give another output file or "
                        "remove it",
                        file=path,
                    )
            else:
                self.done[int(entry["run"])] = entry["figures"]
            kept += len(line)
        return kept

    def _write(self, entry: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def add(self, run: int, values: dict[str, float]) -> None:
        self.done[run] = values
        if self._file is not None:
            self._write({"run": run, "figures": values})

    def close(self, remove: bool) -> None:
        if self._file is not None:
            self._file.close()
            if remove and self.path is not None:
                self.path.unlink()


@contextmanager
def _workers(executor: Executor | None, workers: int) -> Iterator[Executor]:
    if executor is not None:
        yield executor
        return
    own = ThreadPoolExecutor(workers)
    try:
        yield own
    finally:
        own.shutdown(wait=True, cancel_futures=True)


def _digest(specs: Sequence[RunSpec]) -> str:
    text = hashlib.sha256()
    for spec in specs:
        text.update(json.dumps(spec.as_dict(), sort_keys=True, default=str).encode())
        for task in spec.workload.tasks:
            text.update(repr((task.node, task.channels, task.peer)).encode())
        for program in {id(t.program): t.program for t in spec.workload.tasks}.values():
            text.update(program.compiled().tobytes())
            for table in program.tables:
                text.update(table.tobytes())
    return text.hexdigest()


def sweep(
    base: RunSpec | Result,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **grid: Any,
) -> xr.Dataset:
    """Run every combination of some arguments.

    Parameters
    ----------
    base : RunSpec or Result
        What all runs share.
    executor : concurrent.futures.Executor, optional
        Where to run; by default threads (the engine runs without the GIL).  With Dask:
        ``Client(...).get_executor()``.
    workers : int, optional
        Threads, or how many runs an executor does at once; default: CPUs of this host.
    out : path, optional
        NetCDF file; finished runs are kept in ``<out>.cells`` until all are done.
    progress : callable, optional
        Called with the number of runs done and of all.
    **grid
        Argument of `simulate` -> values; also ``patch`` (see `varied`).

    Returns
    -------
    xarray.Dataset
        One variable per entry of `FIGURES`, one dimension per axis; the same for the same
        arguments on any executor.

    Raises
    ------
    InputError
        For an impossible grid, before anything is run; for an ``out`` of another sweep.
    """
    spec = base.spec if isinstance(base, Result) else base
    axes: dict[str, list[Any]] = {}
    for name, values in grid.items():
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise InputError(f"{name}={values!r}: give a list of values")
        axes[name] = [v.item() if isinstance(v, np.generic) else v for v in values]
        labels = [_label(v) for v in axes[name]]
        if not labels or len(set(map(repr, labels))) < len(labels):
            raise InputError(f"{name}: give at least one value, and none twice")
    size = int(np.prod([len(v) for v in axes.values()], dtype=np.int64)) if axes else 1
    if size > _MAX_CELLS:
        raise InputError(f"the grid has {size} runs; at most {_MAX_CELLS}")
    if workers is None:
        workers = os.cpu_count() or 1
    if workers < 1:
        raise InputError(f"workers={workers} is below 1")
    specs = _cells(spec, axes)
    digest = _digest(specs)
    path = None if out is None else Path(out)
    if path is not None and not path.parent.is_dir():
        raise InputError("is not a directory", file=path.parent)
    journal = _Journal(None if path is None else path.with_name(path.name + ".cells"), digest)
    finished = False
    try:
        if progress is not None:
            progress(len(journal.done), size)
        with _workers(executor, workers) as pool:
            waiting = iter([i for i in range(size) if i not in journal.done])
            running: dict[Future[dict[str, float]], int] = {}
            try:
                for i in itertools.islice(waiting, _AHEAD * workers):
                    running[pool.submit(_cell, specs[i])] = i
                while running:
                    ready = wait(running, return_when=FIRST_COMPLETED).done
                    for future in ready:
                        if future.exception() is None:
                            journal.add(running[future], future.result())
                    for future in ready:
                        future.result()  # what was done beside a failure is kept
                        del running[future]
                        for i in itertools.islice(waiting, 1):
                            running[pool.submit(_cell, specs[i])] = i
                    if progress is not None:
                        progress(len(journal.done), size)
            finally:
                for future in running:
                    future.cancel()
        data = _dataset(spec, axes, [journal.done[i] for i in range(size)], digest)
        if path is not None:
            fresh = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                data.to_netcdf(fresh, engine="scipy")
                os.replace(fresh, path)
            finally:
                fresh.unlink(missing_ok=True)
        finished = True
    finally:
        journal.close(remove=finished)
    return data


def _dataset(
    spec: RunSpec, axes: dict[str, list[Any]], runs: list[dict[str, float]], digest: str
) -> xr.Dataset:
    import xarray as xr

    shape = tuple(len(v) for v in axes.values())
    coords = {name: [_label(v) for v in values] for name, values in axes.items()}
    return xr.Dataset(
        {
            name: (
                tuple(axes),
                np.array([run[name] for run in runs]).reshape(shape),
                {"units": unit, "long_name": meaning},
            )
            for name, (unit, meaning) in FIGURES.items()
        },
        coords=coords,
        attrs={
            "pcpmodel_version": __version__,
            "schema_version": 1,
            "sweep": digest,
            "spec": json.dumps(spec.as_dict(), sort_keys=True, default=str),
        },
    )


def read_spec(path: str | os.PathLike[str]) -> tuple[RunSpec, dict[str, list[Any]]]:
    """Read the description of a sweep.

    Parameters
    ----------
    path : path
        JSON: ``{"base": {"release": ..., "machine": ..., "workload": {"name": ..., ...},
        ...}, "grid": {argument: [values]}}``.

    Raises
    ------
    InputError
        For anything that is not such a description.
    """
    from pcpmodel.data_package import parse_json, raise_first, read_bytes

    faults: list[InputError] = []
    given = parse_json(read_bytes(path), path, faults)
    raise_first(faults)
    if not isinstance(given, dict) or set(given) - {"base", "grid"} or "base" not in given:
        raise InputError('expected an object with "base" and "grid"', file=path)

    def workload(value: Any, column: str) -> Workload:
        if not isinstance(value, dict) or "name" not in value:
            raise InputError("a workload is an object with a name", file=path, column=column)
        return make(**value)

    base, grid = given["base"], given.get("grid", {})
    if not isinstance(base, dict):
        raise InputError("expected an object", file=path, column="base")
    for need in ("release", "machine", "workload"):
        if need not in base:
            raise InputError(f"{need!r} is missing", file=path, column="base")
    if not isinstance(grid, dict) or not all(isinstance(v, list) for v in grid.values()):
        raise InputError("expected lists of values by argument", file=path, column="grid")
    spec = make_spec(**{**base, "workload": workload(base["workload"], "base.workload")})
    if "workload" in grid:
        grid = {**grid, "workload": [workload(v, "grid.workload") for v in grid["workload"]]}
    return spec, grid

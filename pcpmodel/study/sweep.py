"""Grids of runs on any ``concurrent.futures`` executor, with resume.

All runs are checked before the first one starts.  Every finished run is at once a
line of ``<out>.cells``; a sweep that was interrupted or killed goes on where it was.
The result does not depend on who computed what, or in which order.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import fcntl
import hashlib
import inspect
import itertools
import json
import math
import os
import sys
import time
import types
import typing
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

import numpy as np
from tqdm import tqdm

from pcpmodel import __version__
from pcpmodel import machine as machines
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.simulation.changes import changes_from
from pcpmodel.simulation.host import Host
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import (
    ENGINES,
    RunSpec,
    execute,
    make_spec,
    prepare,
    simulate,
)
from pcpmodel.workload import WORKLOADS, Workload, make

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["FIGURES", "Grid", "cluster", "make_grid", "read_grid", "run_grid", "sweep"]

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
_MAX_CELLS = 100_000
#: The pilot runs of an estimate, and how long each may take [s].
_PILOTS, _PILOT_S = 8, 0.2
#: What a float64 holds exactly; NetCDF-3 has no 64-bit integers.
_MAX_INT = 2**53
_SCHEMA = 2


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


def _cell(
    spec: RunSpec, engine: str, halt: Callable[[float], None] | None = None
) -> dict[str, float]:
    """One run, on whatever worker."""
    return figures(execute(spec, engine=engine, progress=halt))


# What is asked for ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Grid:
    """The runs of a sweep, checked.

    Attributes
    ----------
    base : dict of str -> value
        Arguments that all runs share, as a description of a sweep writes them.
    axes : dict of str -> list
        Values of the others, likewise.
    specs : list of RunSpec
        Every run; the last axis varies fastest.
    engines : list of str
        What executes each.
    digest : str
        Of everything that the outcome depends on.
    """

    base: dict[str, Any]
    axes: dict[str, list[Any]]
    specs: list[RunSpec]
    engines: list[str]
    digest: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.axes.values()))

    def where(self, run: int) -> str:
        """Name a run by its coordinates."""
        at = np.unravel_index(run, self.shape) if self.axes else ()
        return _where({k: v[i] for (k, v), i in zip(self.axes.items(), at, strict=True)})

    @contextmanager
    def at(self, run: int) -> Iterator[None]:
        """Let errors say which run they come from."""
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.where(run)}: {error.message}") from None
        except Exception as error:
            error.add_note(self.where(run))
            raise


def _label(value: Any) -> Any:
    """How a value of an axis is written down."""
    if isinstance(value, dict):
        params = ", ".join(f"{k}={v}" for k, v in value.items() if k != "name")
        return f"{value['name']}({params})"
    return value


def _where(at: Mapping[str, Any]) -> str:
    return "run " + ", ".join(f"{k}={_label(v)!r}" for k, v in at.items()) if at else "the run"


@cache
def _hints() -> dict[str, Any]:
    """Arguments of `simulate`, those behind ``**options`` included, and their types."""
    known = {
        **typing.get_type_hints(Host),
        **typing.get_type_hints(RunSpec),
        **typing.get_type_hints(simulate),
        "patch": str,
    }
    return {
        k: v
        for k, v in known.items()
        if k not in ("host", "options", "policy", "progress", "return")
    }


def _defaults() -> dict[str, Any]:
    """What `simulate` takes where nothing is given, as far as no machine decides it."""
    fields = {**Host.__dataclass_fields__, **RunSpec.__dataclass_fields__}
    given = {k: f.default for k, f in fields.items() if k not in ("cpus", "nodes", "memory_gib")}
    given["batch_scale_max"] = Release.__dataclass_fields__["batch_scale_max"].default
    given["engine"] = ENGINES[0]
    given["patch"] = ""
    return {k: v for k, v in given.items() if isinstance(v, str | int | float)}


def _typed(name: str, value: Any) -> Any:
    """The value in its own type; nothing is converted but a whole number to float."""
    hint = _hints()[name]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(value) is int and float in kinds and abs(value) <= _MAX_INT:
        value = float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        allowed = " or ".join("None" if k is types.NoneType else k.__name__ for k in kinds)
        raise InputError(f"{name}={value!r} is not {allowed}")
    return value


def _value(name: str, given: Any) -> tuple[Any, Any]:
    """A value as it is used, and as it is written down."""
    if isinstance(given, np.generic):
        given = given.item()
    if name == "workload":
        if isinstance(given, dict) and isinstance(given.get("name"), str):
            try:
                given = make(**given)
            except TypeError as error:
                raise InputError(f"workload={given!r}: {error}") from None
        if not isinstance(given, Workload):
            raise InputError(
                f'workload={given!r} is neither a Workload nor {{"name": ..., argument: value}}'
            )
        # What the name alone says is no argument of `make`.
        known = (
            inspect.signature(WORKLOADS[given.name]).parameters if given.name in WORKLOADS else ()
        )
        params = {k: v for k, v in given.params.items() if not known or k in known}
        return given, {"name": given.name, **params}
    if name == "changes":
        given = changes_from(given)
        return given, [change.as_dict() for change in given]
    _typed(name, given)
    if name == "machine":
        found = machines.load(given)
        return found, found.name
    if name == "release":
        state = find_release(given)
        if state != find_release(state.name):
            raise InputError(
                f"release {state.name} is not what its name says (batch_scale_max="
                f"{state.batch_scale_max}); give batch_scale_max as an argument of its own"
            )
        return state, state.name
    if name == "engine" and given not in ENGINES:
        raise unknown_name("engine", given, ENGINES)
    value = _typed(name, given)
    return value, value


def _axis(name: str, given: Any) -> list[tuple[Any, Any]]:
    """Values of one axis, no two alike."""
    values = [_value(name, v) for v in (np.asarray(given).tolist() if _array(given) else given)]
    if not values:
        raise InputError(f"{name}: give at least one value")
    seen = set()
    for _, record in values:
        label = _label(record)
        if label in seen:
            raise InputError(f"{name}: {label!r} is there twice; give no value twice")
        seen.add(label)
        if isinstance(label, int) and abs(label) > _MAX_INT:
            raise InputError(f"{name}={label} is above 2**53, the most that NetCDF-3 can say")
    return values


def _array(given: Any) -> bool:
    return bool(getattr(given, "ndim", 0))


def _spec(arguments: dict[str, Any]) -> RunSpec:
    """One run, checked."""
    args = {k: v for k, v in arguments.items() if k not in ("engine", "patch")}
    if patch := arguments["patch"]:
        sign = "" if patch[0] in "+-" else "+"
        args["release"] = find_release(f"{args['release'].name}{sign}{patch}")
    spec = make_spec(**args)
    for name in Host.__dataclass_fields__:
        if args.get(name) is not None and getattr(spec.host, name) != args[name]:
            raise InputError(f"{name}={args[name]!r} is impossible")
    return spec


def _work_digest(workload: Workload) -> str:
    """Digest of what the tasks do: two workloads may have the same name."""
    programs = {id(task.program): task.program for task in workload.tasks}
    numbers = {key: i for i, key in enumerate(programs)}
    found = hashlib.sha256()
    for program in programs.values():
        found.update(program.compiled().tobytes())
        found.update(b"".join(table.tobytes() for table in program.tables))
    tasks = [(numbers[id(t.program)], t.node, t.channels, t.peer) for t in workload.tasks]
    found.update(repr((tasks, workload.channels)).encode())
    return found.hexdigest()


def _digest(axes: dict[str, list[Any]], specs: list[RunSpec], engines: list[str]) -> str:
    head = [__version__, _SCHEMA, list(FIGURES), axes]
    found = hashlib.sha256(json.dumps(head, default=str).encode())
    works: dict[int, str] = {}
    for spec, engine in zip(specs, engines, strict=True):
        if id(spec.workload) not in works:
            works[id(spec.workload)] = _work_digest(spec.workload)
        record = [spec.as_dict(), engine, works[id(spec.workload)]]
        found.update(json.dumps(record, sort_keys=True, default=str).encode())
    return found.hexdigest()


def make_grid(base: RunSpec | Result | None = None, /, **arguments: Any) -> Grid:
    """Make and check every run of a sweep; see `sweep` for the arguments.

    Raises
    ------
    InputError
        For anything impossible.
    """
    if arguments.get("policy") or getattr(getattr(base, "spec", base), "policy", None):
        raise InputError(
            "policy: a sweep writes its runs down and sends them to other processes, which a "
            "compiled rule cannot follow; call simulate(policy=...) once for each run"
        )
    for name in arguments:
        if name not in _hints():
            raise unknown_name("argument", name, sorted(_hints()))
    given = _defaults()
    if base is not None:
        spec = base.spec if isinstance(base, Result) else base
        if not isinstance(spec, RunSpec):
            raise InputError(f"base={base!r} is neither the spec nor the result of a run")
        given |= {k: getattr(spec, k) for k in spec.__dataclass_fields__}
        given |= vars(given.pop("host"))
        del given["policy"]
        given["release"] = spec.release.with_batch_scale_max(given["batch_scale_max"])
        given["batch_scale_max"] = spec.release.batch_scale_max
    given |= arguments
    if not given.get("changes", True):
        del given["changes"]
    for name in ("release", "machine", "workload"):
        if name not in given:
            raise InputError(f"a sweep needs {name}")

    axes = {
        k: v
        for k, v in arguments.items()
        if k != "changes" and (isinstance(v, list | tuple | range) or _array(v))
    }
    # Nothing is expanded before; a very long range has no len().
    size = math.prod(len(v[: _MAX_CELLS + 1]) for v in axes.values())
    if size > _MAX_CELLS:
        raise InputError(f"the grid has more than {_MAX_CELLS} runs, which is the most")
    swept = {name: _axis(name, values) for name, values in axes.items()}
    shared = {name: _value(name, v) for name, v in given.items() if name not in axes}
    specs, engines = [], []
    for point in itertools.product(*swept.values()):
        at = dict(zip(swept, point, strict=True))
        chosen = {name: value for name, (value, _) in {**shared, **at}.items()}
        try:
            specs.append(_spec(chosen))
        except InputError as error:
            where = _where({name: record for name, (_, record) in at.items()})
            raise InputError(f"{where}: {error.message}") from None
        engines.append(chosen["engine"])
    records = {name: [record for _, record in values] for name, values in swept.items()}
    return Grid(
        {name: shared[name][1] for name in sorted(shared) if shared[name][1] is not None},
        records,
        specs,
        engines,
        _digest(records, specs, engines),
    )


def read_grid(path: str | os.PathLike[str]) -> Grid:
    """Read the description of a sweep.

    Parameters
    ----------
    path : path
        JSON: ``{"base": {"release": ..., "machine": ..., "workload": {"name": ..., ...},
        ...}, "grid": {argument: [values]}}``.

    Raises
    ------
    InputError
        For anything that is not such a description, or that `make_grid` refuses.
    """
    from pcpmodel.data_package import parse_json, raise_first, read_bytes

    faults: list[InputError] = []
    given = parse_json(read_bytes(path), path, faults)
    raise_first(faults)
    if not isinstance(given, dict) or set(given) - {"base", "grid"} or "base" not in given:
        raise InputError('expected an object with "base" and "grid"', file=path)
    base, grid = given["base"], given.get("grid", {})
    if not isinstance(base, dict) or any(
        isinstance(v, list) and k != "changes" for k, v in base.items()
    ):
        raise InputError("expected an object, one value for each name", file=path, column="base")
    if not isinstance(grid, dict) or not all(isinstance(v, list) for v in grid.values()):
        raise InputError("expected lists of values by argument", file=path, column="grid")
    try:
        return make_grid(**{k: v for k, v in base.items() if k not in grid}, **grid)
    except InputError as error:
        raise InputError(error.message, file=path) from None


# Running -------------------------------------------------------------------------------------


def _pilot_s(spec: RunSpec, engine: str) -> float:
    """Time that a run needs [s], from its start."""
    prepare(spec)  # what only the first run of a machine costs
    simulated_s = 0.0
    began = time.perf_counter()

    def watch(now_s: float) -> None:
        nonlocal simulated_s
        simulated_s = now_s
        if time.perf_counter() - began > _PILOT_S:
            raise CancelledError

    with suppress(CancelledError):
        _cell(spec, engine, watch)
    took = time.perf_counter() - began
    return took * (spec.seconds + spec.warmup_s) / simulated_s


def _estimate_s(grid: Grid, todo: list[int]) -> float:
    """Time that one worker needs for the runs that are left [s], from a few of them."""
    sample = np.random.default_rng(0).permutation(todo)[:_PILOTS].tolist()
    total = 0.0
    for run in sample:
        with grid.at(run):
            total += _pilot_s(grid.specs[run], grid.engines[run])
    return total / len(sample) * len(todo)


class _Journal:
    """Finished runs on disk, one JSON line each; nobody else writes them meanwhile."""

    _open: ClassVar[WeakSet[_Journal]] = WeakSet()

    def __init__(self, path: Path, grid: Grid) -> None:
        self.path, self.done = path, dict[int, dict[str, float]]()
        if path.exists() and not path.is_file():
            raise InputError("is in the way: finished runs are kept there", file=path)
        self._file = open(path, "a+b")  # noqa: SIM115
        self._open.add(self)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self._file.fileno()).st_nlink:
                raise BlockingIOError  # the other one has just finished and removed it
            self._read(grid)
        except BlockingIOError:
            self._file.close()
            raise InputError("another sweep is writing it now", file=path) from None
        except InputError:
            self._file.close()
            raise

    def _read(self, grid: Grid) -> None:
        """Take over finished runs; changes nothing in a file that is not of this sweep."""
        head = json.dumps({"sweep": grid.digest, "version": __version__}).encode()
        self._file.seek(0)
        # Behind the last line end is what was being written when the sweep was killed.
        *lines, torn = self._file.read().split(b"\n")
        if not lines and not head.startswith(torn):
            lines = [torn]
        if lines and lines[0] != head:
            known = lines[0].startswith(b'{"sweep": ')
            raise InputError(
                "belongs to another sweep or version; give another output file or remove it"
                if known
                else "is not a journal of a sweep; give another output file or remove it",
                file=self.path,
                row=1,
            )
        for row, line in enumerate(lines[1:], start=2):
            try:
                entry = json.loads(line)
                run, values = entry["run"], entry["figures"]
                if type(run) is not int or run not in range(len(grid.specs)):
                    raise ValueError
                if list(values) != list(FIGURES):
                    raise ValueError
                self.done[run] = {name: float(v) for name, v in values.items()}
            except (ValueError, LookupError, TypeError, AttributeError):
                raise InputError(
                    "is damaged; remove this line to do that run again", file=self.path, row=row
                ) from None
        self._file.truncate(self._file.tell() - len(torn))
        if not lines:
            self._write(head)

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._file.flush()

    def add(self, run: int, values: dict[str, float]) -> None:
        self._write(json.dumps({"run": run, "figures": values}).encode())
        self.done[run] = values

    def close(self, finished: bool) -> None:
        if finished or not self.done:
            self.path.unlink(missing_ok=True)
        self._file.close()

    @classmethod
    def forked(cls) -> None:
        """Let go of the lock in a worker process: it may outlive a sweep that is killed."""
        for journal in cls._open:
            journal._file.close()


os.register_at_fork(after_in_child=_Journal.forked)


@contextmanager
def _threads(workers: int) -> Iterator[tuple[Executor, Callable[[float], None]]]:
    """Threads, and what stops their runs half-way once it is over."""
    over = Event()

    def halt(_: float) -> None:
        if over.is_set():
            raise CancelledError

    own = ThreadPoolExecutor(workers)
    try:
        yield own, halt
    finally:
        over.set()
        own.shutdown(wait=True, cancel_futures=True)


@contextmanager
def cluster(address: str | None) -> Iterator[tuple[Executor | None, int | None]]:
    """Executor of a Dask scheduler and its number of threads; None without an address.

    Raises
    ------
    InputError
        If nobody answers there, there are no workers, or Dask is not installed.
    """
    if address is None:
        yield None, None
        return
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--scheduler needs pcpmodel[cluster]") from None
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler at {address!r}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=30)
        except TimeoutError:
            raise InputError(f"the Dask scheduler at {address!r} has no workers") from None
        yield client.get_executor(), sum(client.nthreads().values())


def _computed(
    grid: Grid, todo: list[int], executor: Executor | None, workers: int
) -> Generator[tuple[int, dict[str, float]]]:
    """Runs and their figures, as they come."""
    waiting = iter(todo)
    running: dict[Future[dict[str, float]], int] = {}
    with _threads(workers) if executor is None else nullcontext((executor, None)) as (pool, halt):
        try:
            while True:
                for run in itertools.islice(waiting, _AHEAD * workers - len(running)):
                    future = pool.submit(_cell, grid.specs[run], grid.engines[run], halt)
                    running[future] = run
                if not running:
                    return
                ready = wait(running, return_when=FIRST_COMPLETED).done
                # What was done beside a failure is kept.
                for future in sorted(ready, key=lambda f: f.cancelled() or bool(f.exception())):
                    run = running.pop(future)
                    with grid.at(run):
                        values = future.result()
                    yield run, values
        finally:
            for future in running:
                future.cancel()


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
    if progress is True:
        axes = " x ".join(f"{name} {len(values)}" for name, values in grid.axes.items())
        text = f"sweep: {size} runs" + (f" ({axes})" if axes else "")
        if todo:
            took = _estimate_s(grid, todo) / min(workers, len(todo))
            text += f", {len(done)} of them done before" if done else ""
            text += f"; about {took:.2g} s on {workers} workers"
        print(text, file=sys.stderr, flush=True)
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
        closing(_computed(grid, todo, executor, workers)) as computed,
    ):
        for run, values in computed:
            add(run, values)
            bar.update()
            if callable(progress):
                progress(len(done), size)


# The result ----------------------------------------------------------------------------------


def _unit(name: str) -> str:
    """Unit of an argument: its name says it."""
    known = {"ns": "ns", "s": "s", "seconds": "s", "pages": "pages", "gib": "GiB", "kib": "KiB"}
    known |= {"batch": "pages", "pagevec": "pages"}
    return known.get(name.rsplit("_", 1)[-1], "1")


def _coordinate(name: str, values: list[Any]) -> tuple[str, Any, dict[str, str]]:
    """An axis in a type that NetCDF-3 has; None is NaN."""
    labels = [_label(v) for v in values]
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

    return xr.Dataset(
        {
            name: (
                tuple(grid.axes),
                np.array([runs[i][name] for i in range(len(grid.specs))]).reshape(grid.shape),
                {"units": unit, "long_name": meaning},
            )
            for name, (unit, meaning) in FIGURES.items()
        },
        coords={name: _coordinate(name, values) for name, values in grid.axes.items()},
        attrs={
            "title": "pcpmodel sweep",
            "pcpmodel_version": __version__,
            "schema_version": _SCHEMA,
            "sweep": grid.digest,
            "spec": text({"base": grid.base, "grid": grid.axes}),
            "inputs": text({spec.machine.name: spec.machine.digest for spec in grid.specs}),
            "seeds": "each run has the seed that the spec gives it: runs of one seed that differ "
            "in other arguments share their random numbers",
        },
    )


def _finished(path: Path, grid: Grid) -> xr.Dataset | None:
    """Read the result of this very sweep, if it is there."""
    import xarray as xr

    if not path.exists():
        return None
    try:
        found = xr.load_dataset(path, engine="scipy")
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
    """Write beside, then rename: the file is whole or not there."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(fresh, "xb") as file:
        try:
            file.write(bytes(data.to_netcdf(engine="scipy")))
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                raise InputError("has appeared during the sweep; remove it", file=path)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)


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
    if path.is_dir():
        raise InputError("is a directory; name a file", file=path)
    if not path.parent.is_dir():
        raise InputError("is not a directory", file=path.parent)
    journal = _Journal(path.with_name(f"{path.name}.cells"), grid)
    finished = False
    try:
        data = _finished(path, grid)
        if data is None:
            _run(grid, journal.done, journal.add, executor, workers, progress)
            data = _dataset(grid, journal.done)
            _save(data, path)
        elif progress is True:
            print(f"sweep: {path} is finished, nothing to do", file=sys.stderr)
        finished = True
    finally:
        journal.close(finished)
        if not finished and journal.done:
            print(
                f"sweep: {len(journal.done)} of {len(grid.specs)} runs are kept in "
                f"{journal.path}; start the same sweep again to go on from there",
                file=sys.stderr,
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
        ``pcpmodel sweep`` takes to repeat it.

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

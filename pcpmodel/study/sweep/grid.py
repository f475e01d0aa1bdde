"""What a sweep asks for: every run checked before the first one starts."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import math
import os
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pcpmodel import __version__
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.files import read_json
from pcpmodel.hardware import machines
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel.policies import Policy, RuledRelease, with_policy
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.simulation.changes import changes_from
from pcpmodel.simulation.host import Host
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import ENGINES, simulate
from pcpmodel.simulation.spec import RunSpec, given_by_hand, make_spec, work_digest
from pcpmodel.workload import WORKLOADS, Workload, make
from pcpmodel.workload.common import COMMON, again

__all__ = ["FIGURES", "Grid", "as_label", "as_machine", "figures", "make_grid", "read_grid"]

#: Figure of a run -> (unit, what it is).
FIGURES: dict[str, tuple[str, str]] = {
    "score_per_s": ("1/s", "units of work per second"),
    "score_per_s_half_width": ("1/s", "half of its 95 % interval, by batch means"),
    "lock_contention": ("1", "share of busy cycles waiting for the zone lock"),
    "lock_contention_half_width": ("1", "half of its 95 % interval, by batch means"),
    "lru_contention": ("1", "share of busy cycles waiting for the LRU lock"),
    "refills": ("1", "zone-lock holds that filled a list"),
    "drains": ("1", "zone-lock holds that emptied lists"),
    "free_high": ("1", "drains because of consecutive high-order frees"),
    "alloc_zone_pages": ("pages", "pages taken from the zone, by refills and past the lists"),
    "wait_mean_ns": ("ns", "wait for the zone lock, mean"),
    "wait_p50_ns": ("ns", "wait for the zone lock, median"),
    "wait_p99_ns": ("ns", "wait for the zone lock, 99th percentile"),
    "wait_p99_9_ns": ("ns", "wait for the zone lock, 99.9th percentile"),
    "wait_max_ns": ("ns", "wait for the zone lock, longest"),
    "hold_p99_ns": ("ns", "hold of the zone lock, 99th percentile"),
    "over_100us": ("1", "share of refills and drains that take more than 100 us"),
    "pages_in_pcp_mean": ("pages", "pages on per-CPU lists, mean over time; NaN: no samples"),
    "pages_in_pcp_max": ("pages", "pages on per-CPU lists, most; NaN: no samples"),
    "warmup_s": ("s", "simulated time before counting starts"),
    "stands": ("1", "1: the rates were steady after that, 0: they never were, NaN: not looked at"),
}


_MAX_CELLS = 100_000


#: Arguments that are lists themselves, and so no axes.
LISTS = ("changes", "cpus_per_node", "gib_per_node")


#: What a float64 holds exactly; NetCDF-3 has no 64-bit integers.
MAX_INT = 2**53


SCHEMA = 5  # of a journal: what figures are of, and which of them a run may lack


def figures(result: Result) -> dict[str, float]:
    """The `FIGURES` of one run."""
    w = result.wait_ns
    holds = result.zone_histogram("hold")
    of_lists = result.refills + result.drains
    over = result.over["refill"][0] + result.over["drain"][0]
    pcp = result.pages_in_pcp
    values = {
        "score_per_s_half_width": result.half_width("score_per_s"),
        "lock_contention_half_width": result.half_width("lock_contention"),
        "stands": math.nan if result.stands is None else result.stands,
        "wait_mean_ns": w["mean"],
        "wait_p50_ns": w["p50"],
        "wait_p99_ns": w["p99"],
        "wait_p99_9_ns": w["p99.9"],
        "wait_max_ns": w["max"],
        "hold_p99_ns": holds.quantile_ns(0.99),
        "over_100us": over / max(of_lists, 1),
        "pages_in_pcp_mean": pcp.mean() if len(pcp) else math.nan,
        "pages_in_pcp_max": pcp.max() if len(pcp) else math.nan,
    }
    return {n: float(values[n] if n in values else getattr(result, n)) for n in FIGURES}


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

    def _places(self, run: int) -> dict[str, int]:
        at = np.unravel_index(run, self.shape) if self.axes else ()
        return {name: int(i) for name, i in zip(self.axes, at, strict=True)}

    def place(self, run: int, name: str) -> int:
        """Which value of an axis a run has; 0 where there is no such axis."""
        return self._places(run).get(name, 0)

    def where(self, run: int) -> str:
        """Name a run by its coordinates."""
        return _where({name: self.axes[name][i] for name, i in self._places(run).items()})

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


def as_label(value: Any) -> Any:
    """How a value of an axis is written down."""
    if isinstance(value, dict):
        params = ", ".join(f"{k}={v}" for k, v in value.items() if k != "name")
        return f"{value['name']}({params})"
    return value


def _where(at: Mapping[str, Any]) -> str:
    return "run " + ", ".join(f"{k}={as_label(v)!r}" for k, v in at.items()) if at else "the run"


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
        if k not in ("given", "host", "options", "policy", "progress", "return")
    }


def _defaults() -> dict[str, Any]:
    """What `simulate` takes where nothing is given, as far as no machine decides it."""
    fields = {**Host.__dataclass_fields__, **RunSpec.__dataclass_fields__}
    of_machine = (
        "cpus", "nodes", "cpus_per_node", "memory_gib", "page_size_kib", "threads_per_core",
        "llc_slice_kib", "l2_kib", "cpuless_nodes", "cpuless_gib", "gib_per_node",
    )  # fmt: skip
    given = {k: f.default for k, f in fields.items() if k not in of_machine}
    given["batch_scale_max"] = Release.__dataclass_fields__["batch_scale_max"].default
    given["engine"] = ENGINES[0]
    given["patch"] = ""
    return {k: v for k, v in given.items() if isinstance(v, str | int | float)}


def _typed(name: str, value: Any) -> Any:
    """The value in its own type; nothing is converted but a whole number to float."""
    hint = _hints()[name]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(k for k in kinds if isinstance(k, type))  # a list is an axis
    if type(value) is int and float in kinds and abs(value) <= MAX_INT:
        value = float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        allowed = " or ".join("None" if k is types.NoneType else k.__name__ for k in kinds)
        raise InputError(f"{name}={value!r} is not {allowed}")
    return value


def _makes(work: Workload, params: dict[str, Any]) -> bool:
    """Whether arguments make a workload again: somebody may have changed it by hand."""
    try:
        plain = make(work.name, **params)
    except InputError:
        return False
    if work.made is not None:
        plain = again(plain, here=work.made.here)
    return work_digest(plain) == work_digest(work)


def as_machine(given: Any) -> tuple[Machine, Any]:
    """A machine, and its name, or what else makes it again."""
    if isinstance(given, dict):
        keys = {"name", "like", "costs", "times"}
        costs, times = given.get("costs", {}), given.get("times", 1.0)
        if not {"name"} < set(given) <= keys or not isinstance(costs, dict):
            raise InputError(
                f'machine={given!r} is neither a name nor {{"name": ...}} with "like", '
                '"costs" (row of its sheet: value) or "times" (as long)'
            )
        found = machines.machine(given["name"], like=given.get("like"))
        found = found if times == 1.0 else found.slower(times)
        return (found.with_costs(**costs) if costs else found), given
    found = machines.machine(given)
    record: dict[str, Any] = {"name": found.name}
    if found.alike:
        record["like"] = [other.name for other in found.alike]
    if found.times != 1.0:
        record["times"] = found.times
    if found.changes:
        record["costs"] = dict(found.changes)
    return found, record if len(record) > 1 else found.name


def _value(name: str, given: Any) -> tuple[Any, Any]:
    """A value as it is used, and as it is written down."""
    if isinstance(given, np.generic):
        given = given.item()
    if name == "workload":
        if isinstance(given, dict) and isinstance(given.get("name"), str):
            params = {str(k): v for k, v in given.items() if k != "name"}
            given = make(given["name"], **params)
        if not isinstance(given, Workload):
            raise InputError(
                f'workload={given!r} is neither a Workload nor {{"name": ..., argument: value}}'
            )
        # What the name alone says is no argument of `make`.
        known = (
            inspect.signature(WORKLOADS[given.name]).parameters if given.name in WORKLOADS else ()
        )
        # Times that a machine gave it are no arguments either.
        said = given.params if given.made is None else {**given.made.given, **given.made.common}
        if given.made is not None:
            said = {k: v for k, v in said.items() if k not in given.made.left}
        params = {k: v for k, v in said.items() if not known or k in known or k in COMMON}
        changed = known and not _makes(given, params)
        return given, {"name": given.name + (", changed by hand" if changed else ""), **params}
    if name == "machine" and isinstance(given, dict):
        return as_machine(given)
    if name == "changes":
        given = changes_from(given)
        return given, [change.as_dict() for change in given]
    if name in ("cpus_per_node", "gib_per_node"):
        return (tuple(given), list(given)) if isinstance(given, list | tuple) else (given, given)
    if name == "release":
        given = find_release(given) if hasattr(given, "as_release") else given
    _typed(name, given)
    if name == "release" and isinstance(given, RuledRelease) and not given.policy_digest:
        raise InputError(f"release {given.name}: give its rule as pcpmodel.policy(FILE)")
    if name == "machine":
        return as_machine(given)
    if name == "release":
        state = find_release(given)
        if not state.recorded and state != find_release(state.name):
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
        label = as_label(record)
        if label in seen:
            raise InputError(f"{name}: {label!r} is there twice; give no value twice")
        seen.add(label)
        if isinstance(label, int) and abs(label) > MAX_INT:
            raise InputError(f"{name}={label} is above 2**53, the most that NetCDF-3 can say")
    return values


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def _is_tree(release: Any) -> bool:
    return hasattr(release, "as_release") or "tree" in getattr(release, "recorded", {})


def _array(given: Any) -> bool:
    return bool(getattr(given, "ndim", 0))


def _spec(arguments: dict[str, Any]) -> RunSpec:
    """One run, checked."""
    args = {k: v for k, v in arguments.items() if k not in ("engine", "patch")}
    if patch := arguments["patch"]:
        sign = "" if patch[0] in "+-" else "+"
        state = args["release"]
        if isinstance(state, RuledRelease):
            patched = find_release(f"{state.release_name}{sign}{patch}")
            args["release"] = with_policy(patched, state.policy)
        else:
            if state.recorded:
                state.plus(patch)  # refuses
            args["release"] = find_release(f"{state.name}{sign}{patch}")
    spec = make_spec(**args)
    for name in Host.__dataclass_fields__:
        if args.get(name) is not None and getattr(spec.host, name) != args[name]:
            raise InputError(f"{name}={args[name]!r} is impossible")
    return spec


def _digest(axes: dict[str, list[Any]], specs: list[RunSpec], engines: list[str]) -> str:
    head = [__version__, SCHEMA, list(FIGURES), axes]
    found = hashlib.sha256(json.dumps(head, default=str).encode())
    works: dict[int, str] = {}
    for spec, engine in zip(specs, engines, strict=True):
        if id(spec.workload) not in works:
            works[id(spec.workload)] = work_digest(spec.workload)
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
    spec = base.spec if isinstance(base, Result) else base
    if not isinstance(spec, RunSpec | None):
        raise InputError(f"base={base!r} is neither the spec nor the result of a run")
    rule = arguments.pop("policy", None) or (spec and spec.policy)
    if rule is not None:
        if not isinstance(rule, Policy):
            raise InputError(
                "policy: a sweep writes its runs down and sends them to other processes, which a "
                "rule made in this one cannot follow; put it into a file for pcpmodel.policy(FILE)"
            )
        states = arguments.get("release", spec.release if spec else "")
        several = isinstance(states, list | tuple)
        ruled = [with_policy(r, rule) for r in (states if several else [states])]
        arguments["release"] = ruled if several else ruled[0]
    for name in arguments:
        if name not in _hints():
            raise unknown_name("argument", name, sorted(_hints()))
    given = _defaults()
    if spec is not None:
        options = [k for k in spec.__dataclass_fields__ if k not in ("given", "host", "policy")]
        given |= {k: getattr(spec, k) for k in options}
        state = spec.release
        if "tree" not in state.recorded:  # whose name says its scale
            state = state.with_batch_scale_max(given["batch_scale_max"])
        given["release"] = state
        # Of what the machine brought another one has another.
        given |= {"batch_scale_max": spec.release.batch_scale_max} | given_by_hand(spec)
    elif any(_is_tree(r) for r in _listed(arguments.get("release"))):
        del given["batch_scale_max"]  # each has its own
    given |= arguments
    if not given.get("changes", True):
        del given["changes"]
    for name in ("release", "machine", "workload"):
        if name not in given:
            raise InputError(f"a sweep needs {name}")

    axes = {
        k: v
        for k, v in arguments.items()
        if k not in LISTS and (isinstance(v, list | tuple | range) or _array(v))
    }
    # Nothing is expanded before; a very long range has no len().
    size = math.prod(len(v[: _MAX_CELLS + 1]) for v in axes.values())
    if size > _MAX_CELLS:
        raise InputError(f"the grid has more than {_MAX_CELLS} runs, which is the most")
    if "machine" not in axes:  # said in the record, where it is one
        given.setdefault("page_size_kib", _value("machine", given["machine"])[0].page_size_kib)
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


_EXAMPLE = (
    '{"base": {"machine": "sapphire-rapids", "workload": {"name": "page_fault1", "processes": 64}},'
    ' "grid": {"release": ["v6.6", "v6.7"]}}; pcpmodel sweep --help says more'
)


def read_grid(path: str | os.PathLike[str], *, policy: Policy | None = None) -> Grid:
    """Read the description of a sweep.

    Parameters
    ----------
    path : path
        JSON: ``{"base": {"release": ..., "machine": ..., "workload": {"name": ..., ...},
        ...}, "grid": {argument: [values]}}``.
    policy : Policy, optional
        A rule of one's own on every release; no file can name one.

    Raises
    ------
    InputError
        For anything that is not such a description, or that `make_grid` refuses.
    """
    given = read_json(path)
    if not isinstance(given, dict) or set(given) - {"base", "grid"} or "base" not in given:
        raise InputError(f'expected an object with "base" and "grid": {_EXAMPLE}', file=path)
    base, grid = given["base"], given.get("grid", {})
    if not isinstance(base, dict) or any(
        isinstance(v, list) and k not in LISTS for k, v in base.items()
    ):
        raise InputError("expected an object, one value for each name", file=path, column="base")
    if not isinstance(grid, dict) or not all(isinstance(v, list) for v in grid.values()):
        raise InputError("expected lists of values by argument", file=path, column="grid")
    try:
        rule = {} if policy is None else {"policy": policy}
        return make_grid(**{k: v for k, v in base.items() if k not in grid}, **grid, **rule)
    except InputError as error:
        raise InputError(error.message, file=path) from None

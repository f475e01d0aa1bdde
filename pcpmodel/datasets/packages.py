"""``data/``: measured tables, each with types, units, ranges and its source.

A *package* is a directory with a ``datapackage.json`` (Data Package, Table
Schema) and the files that it names::

    data/hardware/<machine>/    batch_latency.csv, platform.json
    data/published/<source>/    the tables of one publication
    data/workload/<name>/       a recorded workload, the key of `compare`

The reader refuses what the schema forbids and says where; see
`pcpmodel.datasets.schema`.  A UTF-8
byte order mark and CRLF line ends, as spreadsheets write them, are accepted;
every other departure from plain UTF-8 comma-separated text is a fault.

What every machine's files have stands in ``schemas/``: the descriptors of its
tables as they stand in its ``datapackage.json``, and the fields of ``platform.json``.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcpmodel.cached import cached_property
from pcpmodel.datasets import measured
from pcpmodel.datasets.schema import (
    Fault,
    Table,
    check_rules,
    check_schema,
    is_text,
    kind_of,
    parse_table,
    wrong_value,
)
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.files import parse_json, read_bytes, read_json

if TYPE_CHECKING:
    import pandas

__all__ = [
    "COSTS_RESOURCE",
    "INTERVAL_RESOURCE",
    "LATENCY_RESOURCE",
    "PLATFORM_FIELDS",
    "PLATFORM_RESOURCE",
    "PREDICTION_RESOURCE",
    "RATES_RESOURCE",
    "VALIDATION_RESOURCE",
    "WAIT_RESOURCE",
    "WORKSPACE",
    "Dataset",
    "Hardware",
    "Package",
    "check",
    "check_name",
    "check_platform",
    "data_dir",
    "data_root",
    "doubtful",
    "hardware_names",
    "load_hardware",
    "load_published",
    "load_workload",
    "machine_is_there",
    "own_data",
    "published_names",
    "raise_first",
    "read_package",
    "workspace",
]

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
#: File of a package that describes the others.
DESCRIPTOR = "datapackage.json"
#: Directories of packages below the data directory.
KINDS = ("hardware", "published", "workload")
#: Marks the top of a workspace.
WORKSPACE = "pcpmodel-workspace.json"


def _schema(name: str) -> dict[str, Any]:
    return read_json(Path(__file__).parent / "schemas" / f"{name}.json")


#: Descriptor of ``batch_latency.csv``, the same for every machine.
LATENCY_RESOURCE: Mapping[str, Any] = _schema("batch_latency")
#: Descriptor of ``batch_latency_interval.csv``, which machines that came in as
#: raw tool output have: the range that holds each figure of the table.
INTERVAL_RESOURCE: Mapping[str, Any] = _schema("batch_latency_interval")
#: Descriptor of ``lock_wait.csv``, which machines have where waits for the zone lock were measured.
WAIT_RESOURCE: Mapping[str, Any] = _schema("lock_wait")
#: Descriptor of ``costs.csv``, the cost sheet of machines that have one.
COSTS_RESOURCE: Mapping[str, Any] = _schema("costs")
#: Descriptor of ``rates.csv``: what loads of its own did on a machine that was measured.
RATES_RESOURCE: Mapping[str, Any] = _schema("rates")
#: Descriptors of ``prediction.csv`` and ``validation.csv``: what was said of a machine before it
#: was measured, and what was measured.
PREDICTION_RESOURCE: Mapping[str, Any] = _schema("prediction")
VALIDATION_RESOURCE: Mapping[str, Any] = _schema("validation")

_PLATFORM = _schema("platform")
#: Fields of ``platform.json``; each may be null: not known.
PLATFORM_FIELDS: Mapping[str, Mapping[str, Any]] = {
    column["name"]: column for column in _PLATFORM.pop("schema")["fields"]
}
#: Descriptor of ``platform.json``; what is no table has no schema in a package.
PLATFORM_RESOURCE: Mapping[str, Any] = _PLATFORM


# ------------------------------------------------------------------ public


@dataclass(frozen=True)
class Hardware:
    """A measured machine.

    Attributes
    ----------
    name : str
        Directory below ``data/hardware``.
    path : Path
        That directory.
    tables : dict of str to Table
        As read, by resource name; the frames below are made of them when they are asked for.
    latency : pandas.DataFrame or None
        ``batch_latency.csv``: batch [pages], throughput_pages_per_s (NaN: not
        measured), {free,alloc}_latency_{avg,p99}_us; batch rises.  None: only a cost sheet.
    latency_interval : pandas.DataFrame or None
        Range of each latency and number of samples, where it is known.
    lock_wait : pandas.DataFrame or None
        Waits for the zone lock by function, where they were measured: ``lock_wait.csv``.
    costs : pandas.DataFrame or None
        Cost sheet, each figure with interval and origin, where there is one: ``costs.csv``.
    platform : dict
        ``platform.json``; the keys of `PLATFORM_FIELDS`, None where not known.
    units : dict
        Unit of each column of ``latency``.
    sources : tuple of dict
        title, message_id, date ...
    digest : str
        SHA-256 over the package's files.
    """

    name: str
    path: Path
    tables: Mapping[str, Table]
    platform: dict[str, Any]
    units: dict[str, str]
    sources: tuple[dict[str, Any], ...]
    digest: str

    @cached_property
    def latency(self) -> pandas.DataFrame | None:
        return self._frame("batch_latency")

    @cached_property
    def latency_interval(self) -> pandas.DataFrame | None:
        return self._frame("batch_latency_interval")

    @cached_property
    def lock_wait(self) -> pandas.DataFrame | None:
        return self._frame("lock_wait")

    @cached_property
    def costs(self) -> pandas.DataFrame | None:
        return self._frame("costs")

    def _frame(self, name: str) -> pandas.DataFrame | None:
        return self.tables[name].frame() if name in self.tables else None


@dataclass(frozen=True)
class Dataset:
    """Tables that belong together: of one publication, or of one workload.

    Attributes
    ----------
    name : str
        Directory below ``data/published`` or ``data/workload``.
    path : Path
        That directory.
    title : str
        Of the publication, or what the tables are.
    read : dict of str to Table
        As read, by resource name.
    tables : dict of str to pandas.DataFrame
        The same as frames, made when they are asked for.
    units : dict of str to dict
        Per table: column to unit, numeric columns only.
    sources : tuple of dict
        title, message_id, date ...
    digest : str
        SHA-256 over the package's files.
    """

    name: str
    path: Path
    title: str
    read: Mapping[str, Table]
    units: dict[str, dict[str, str]]
    sources: tuple[dict[str, Any], ...]
    digest: str

    @cached_property
    def tables(self) -> dict[str, pandas.DataFrame]:
        return {key: table.frame() for key, table in self.read.items()}


def data_dir() -> Path:
    """Return the directory that holds ``hardware/`` and ``published/``.

    ``$PCPMODEL_DATA`` if set; else that of the `workspace` around the working
    directory; else `own_data`.

    Raises
    ------
    InputError
        If it is not a directory.
    """
    given = os.environ.get("PCPMODEL_DATA")
    if given:
        if not Path(given).is_dir():
            raise InputError("PCPMODEL_DATA is not a directory", file=given)
        return Path(given)
    top = workspace()
    if top is None:
        return own_data()
    if not (top / "data").is_dir():
        raise InputError("is not there, but its workspace is", file=top / "data")
    return top / "data"


def workspace() -> Path | None:
    """Top of the workspace (``pcpmodel init``) that the working directory lies in, if it does."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed meanwhile
        return None
    return next((top for top in (here, *here.parents) if (top / WORKSPACE).is_file()), None)


def own_data() -> Path:
    """``data/`` of the checkout that the package lies in; else what was installed with it.

    Raises
    ------
    InputError
        If there is none.
    """
    here = Path(__file__).resolve().parents[1]
    checkout = here.parent / "data"
    if (here.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    if (here / "data").is_dir():
        return here / "data"
    raise InputError("no data found; set PCPMODEL_DATA to the directory", file=here / "data")


def data_root(directory: str | Path | None = None) -> Path:
    """Return a data directory given by the user, or else `data_dir`.

    Raises
    ------
    InputError
        If it is not a directory.
    """
    if directory is None:
        return data_dir()
    if not (str(directory) and Path(directory).is_dir()):
        there = Path(directory).exists() and str(directory)
        what = "is not a directory" + (
            "" if there else ": nothing is there; make it first (mkdir -p)"
        )
        raise InputError(what, file=repr(directory))
    return Path(directory)


def hardware_names(data: Path | None = None) -> tuple[str, ...]:
    """Return the names of the machines whose holds were measured, sorted; in `data_dir`."""
    root = (data or data_dir()) / "hardware"
    # Those with a cost sheet alone are left out; those with neither are faulty, and named.
    return tuple(
        name
        for name in _names(root)
        if (root / name / LATENCY_RESOURCE["path"]).exists()
        or not (root / name / COSTS_RESOURCE["path"]).exists()
    )


def machine_is_there(name: str) -> bool:
    """Whether the data directory has a machine of that name, measured or not."""
    return name in _names(data_dir() / "hardware")


def published_names() -> tuple[str, ...]:
    """Return the names of the published sources, sorted.

    Returns
    -------
    tuple of str
    """
    return _names(data_dir() / "published")


def load_hardware(name: str, data: Path | None = None) -> Hardware:
    """Load a measured machine.

    Parameters
    ----------
    name : str
        One of `hardware_names`.
    data : Path, optional
        Where it is; by default in `data_dir`.

    Raises
    ------
    InputError
        If the name is unknown or the package has a fault.
    """
    package = _load("hardware", "machine", name, data)
    return Hardware(
        name,
        package.path,
        package.tables,
        package.documents["platform"],
        package.tables["batch_latency"].units if "batch_latency" in package.tables else {},
        package.sources,
        package.digest,
    )


def load_published(source: str) -> Dataset:
    """Load the tables of one publication.

    Parameters
    ----------
    source : str
        One of `published_names`.

    Returns
    -------
    Dataset
        Its ``tables`` by name, with their units and sources.

    Raises
    ------
    InputError
        If the name is unknown or the package has a fault.
    """
    return _dataset("published", source)


def load_workload(name: str) -> Dataset:
    """Load the summary of a recorded workload, or the key of `pcpmodel compare`.

    What a data directory of the user's own does not have comes from the package's.

    Parameters
    ----------
    name : str
        A directory below ``data/workload``.

    Returns
    -------
    Dataset
        Its ``tables`` by name, with their units and sources.

    Raises
    ------
    InputError
        If the name is unknown or the package has a fault.
    """
    there = name in _names(data_dir() / "workload")
    return _dataset("workload", name, data_dir() if there else own_data())


#: Packages as they were read last, beside the digest of all that lay there then.
_READ: dict[Path, tuple[str, Package]] = {}


def _dataset(kind: str, name: str, root: Path | None = None) -> Dataset:
    """A package, parsed anew only where its files are others than before."""
    root = root or data_dir()
    try:
        found = _lies_there(root / kind / name) if name in _names(root / kind) else ""
    except InputError:
        found = ""
    if found and _READ.get(root / kind / name, ("",))[0] == found:
        package = _READ[root / kind / name][1]
    else:
        package = _load(kind, "source", name, root)  # or what is wrong
        _READ[root / kind / name] = found, package
    return Dataset(
        name,
        package.path,
        package.title,
        dict(package.tables),
        {key: table.units for key, table in package.tables.items()},
        deepcopy(package.sources),
        package.digest,
    )


def _lies_there(directory: Path) -> str:
    """Digest of the files of a directory."""
    found = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if not path.name.startswith("."):
            content = read_bytes(path, follow=False)
            found.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def check(directory: str | Path | None = None) -> list[InputError]:
    """Return every fault of every package below a data directory.

    Parameters
    ----------
    directory : path, optional
        Holds ``hardware/`` or ``published/`` or both; default `data_dir`.

    Raises
    ------
    InputError
        If there is no such directory, or neither of the two in it.
    """
    root = data_root(directory)
    kinds = [kind for kind in KINDS if (root / kind).is_dir()]
    if not kinds:
        raise InputError("holds neither hardware/ nor published/", file=root)
    faults: list[InputError] = []
    for kind in kinds:
        for path in sorted((root / kind).iterdir()):
            if path.name.startswith("."):
                continue
            if NAME.fullmatch(path.name) and path.is_dir():
                read_package(path, kind, faults)
            else:
                faults.append(
                    InputError(f"expected a directory whose name matches {_NAME_RULE}", file=path)
                )
    return faults


_NAME_RULE = "[a-z0-9][a-z0-9-]*, at most 64 characters"


def check_name(name: str, what: str = "machine") -> str:
    """Return ``name`` if a machine or a workload may be called so.

    Raises
    ------
    InputError
        If it does not match ``[a-z0-9][a-z0-9-]*``.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{what} name {name!r} is not allowed; it must match {_NAME_RULE}")
    return name


# ---------------------------------------------------------------- packages


@dataclass
class Package:
    """A package as read; what has faults is left out."""

    path: Path
    title: str = ""
    sources: tuple[dict[str, Any], ...] = ()
    tables: dict[str, Table] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)
    added: bool = False  # by `pcpmodel data add`
    digest: str = ""


def _names(directory: Path) -> tuple[str, ...]:
    if not directory.is_dir():
        return ()
    return tuple(
        sorted(p.name for p in directory.iterdir() if NAME.fullmatch(p.name) and p.is_dir())
    )


def _load(kind: str, what: str, name: str, root: Path | None = None) -> Package:
    root = (root or data_dir()) / kind
    known = _names(root)
    if name not in known:
        raise unknown_name(what, name, known)
    faults: list[InputError] = []
    package = read_package(root / name, kind, faults)
    raise_first(faults)
    return package


def raise_first(faults: list[InputError]) -> None:
    """Raise the first fault, saying how many more there are."""
    if not faults:
        return
    first = faults[0]
    rest = len(faults) - 1
    more = f" (and {rest} more fault{'s' * (rest > 1)})" if rest else ""
    raise InputError(first.message + more, file=first.file, row=first.row, column=first.column)


def read_package(directory: Path, kind: str, faults: list[InputError]) -> Package:
    """Read a package, appending its faults; what has faults is left out."""
    package = Package(directory)
    digest = hashlib.sha256()

    def contents(name: str) -> bytes | None:
        try:
            content = read_bytes(directory / name, follow=False)
        except InputError as error:
            faults.append(error)
            return None
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return content

    path = directory / DESCRIPTOR
    raw = contents(DESCRIPTOR)
    if raw is None:
        return package
    descriptor = _json(raw, path, faults)
    if descriptor is None:
        return package
    before = len(faults)
    _check_descriptor(descriptor, directory, kind, faults)
    if len(faults) > before:
        return package

    package.title = descriptor["title"]
    package.added = "added_by" in descriptor
    package.sources = tuple(descriptor["sources"])
    resources = sorted(descriptor["resources"], key=lambda resource: resource["path"])
    for resource in resources:
        raw = contents(resource["path"])
        if raw is None:
            continue
        path = directory / resource["path"]
        if "schema" in resource:
            before = len(faults)
            table = parse_table(raw, path, resource["schema"], resource.get("rules", {}), faults)
            if len(faults) == before:
                package.tables[resource["name"]] = table
        else:
            document = _json(raw, path, faults)
            if document is not None:
                if kind == "hardware":
                    document = check_platform(document, path, faults)
                package.documents[resource["name"]] = document
    package.digest = digest.hexdigest()

    named = {DESCRIPTOR, *(resource["path"] for resource in resources)}
    for extra in sorted(directory.iterdir()):
        if extra.name not in named and not extra.name.startswith("."):
            faults.append(InputError(f"is not named in {DESCRIPTOR}", file=extra))
    if kind == "hardware":
        _check_intervals(package, faults)
        _check_measured(package, faults)
    return package


def _check_intervals(package: Package, faults: list[InputError]) -> None:
    table = package.tables.get("batch_latency")
    interval = package.tables.get("batch_latency_interval")
    if table is None or interval is None:
        return
    if table.columns["batch"] != interval.columns["batch"]:
        faults.append(
            InputError(
                f"batches {interval.columns['batch']} differ from {table.columns['batch']} "
                f"of {table.path.name}",
                file=interval.path,
                column="batch",
            )
        )


def _check_measured(package: Package, faults: list[InputError]) -> None:
    waits = package.tables.get("lock_wait")
    if waits is not None:
        sums = (waits.columns[name] for name in ("waits", "wait_total_us", "wait_max_us"))
        for row, sums_of_row in zip(waits.rows, zip(*sums, strict=True), strict=True):
            if doubt := measured.wait_doubt(*sums_of_row):
                faults.append(InputError(doubt, file=waits.path, row=row))
    costs = package.tables.get("costs")
    if costs is not None:
        given = (costs.columns[name] for name in ("operation", "unit", "high"))
        for row, of_row in zip(costs.rows, zip(*given, strict=True), strict=True):
            if wrong := measured.cost_doubt(*of_row):
                faults.append(InputError(wrong[0], file=costs.path, row=row, column=wrong[1]))
    table = package.tables.get("batch_latency")
    if table is not None:
        interval = package.tables.get("batch_latency_interval")
        tool = package.documents.get("platform", {}).get("tool")
        faults += doubtful(table, interval, tool if is_text(tool) else None)


def doubtful(table: Table, interval: Table | None, tool: str | None = None) -> list[InputError]:
    """Say what makes a machine's table no measurement, and what would measure.

    Parameters
    ----------
    table : Table
        ``batch_latency.csv`` without a fault.
    interval : Table, optional
        ``batch_latency_interval.csv``; left out if its batches are others.
    tool : str, optional
        What measured.
    """
    ranges = None
    if interval is not None and interval.columns["batch"] == table.columns["batch"]:
        ranges = interval.columns
    return [
        InputError(
            f"{doubt.message}. Measure anew: "
            f"{measured.command(measured.KERNEL_FUNCTIONS[doubt.side], tool)}",
            file=table.path,
            row=None if doubt.row is None else table.rows[doubt.row],
            column=doubt.column,
        )
        for doubt in measured.doubts(table.columns, ranges)
    ]


def _check_descriptor(given: Any, directory: Path, kind: str, faults: list[InputError]) -> None:
    path = directory / DESCRIPTOR

    def fault(message: str, where: str | None = None) -> None:
        faults.append(InputError(message, file=path, column=where))

    if not isinstance(given, dict):
        return fault(f"expected an object, given {kind_of(given)}")
    if given.get("name") != directory.name:
        fault(f"{given.get('name')!r} differs from the directory, {directory.name!r}", "name")
    if not is_text(given.get("title")):
        fault(f"expected a text, given {given.get('title')!r}", "title")
    sources = given.get("sources")
    if not (isinstance(sources, list) and sources):
        fault("expected a list of at least one source", "sources")
    else:
        for number, source in enumerate(sources):
            if not (isinstance(source, dict) and is_text(source.get("title"))):
                fault("expected an object with a title", f"sources[{number}]")
    resources = given.get("resources")
    if not (isinstance(resources, list) and resources):
        return fault("expected a list of at least one resource", "resources")
    names: set[str] = set()
    for number, resource in enumerate(resources):
        where = f"resources[{number}]"
        if not isinstance(resource, dict):
            fault(f"expected an object, given {kind_of(resource)}", where)
            continue
        name, file = resource.get("name"), resource.get("path")
        if not is_text(name) or name in names:
            fault(f"expected a name of its own, given {name!r}", f"{where}.name")
        names.add(str(name))
        if not (is_text(file) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", file)):
            fault(f"expected a file name of this directory, given {file!r}", f"{where}.path")
        if "schema" in resource:
            check_schema(resource["schema"], f"{where}.schema", fault)
            check_rules(resource, f"{where}.rules", fault)
        elif resource.get("format") != "json":
            fault(f"expected a schema or format json, given {resource.get('format')!r}", where)
    if kind == "hardware":
        _check_hardware_descriptor(resources, fault)


def _check_hardware_descriptor(resources: list, fault: Fault) -> None:
    """Hold a machine's descriptor to the schemas that every machine has."""
    own = (RATES_RESOURCE, PREDICTION_RESOURCE, VALIDATION_RESOURCE)
    optional = (INTERVAL_RESOURCE, WAIT_RESOURCE, COSTS_RESOURCE, *own)
    known = (LATENCY_RESOURCE, PLATFORM_RESOURCE, *optional)
    expected = {r["name"]: r for r in known}
    given = {r["name"]: r for r in resources if isinstance(r, dict) and is_text(r.get("name"))}
    if "platform" not in given:
        fault("resource 'platform' is missing", "resources")
    if not {"batch_latency", "costs"} & set(given):
        fault("resource 'batch_latency' is missing, and 'costs', which may stand in", "resources")
    for name, resource in given.items():
        if name not in expected:
            fault(f"unknown resource {name!r}; allowed: {', '.join(expected)}", "resources")
            continue
        for key in ("path", "schema", "rules"):
            if resource.get(key) != expected[name].get(key):
                fault(f"differs from what every machine's {name} has", f"{name}.{key}")


def check_platform(
    given: Any, path: Path | str, faults: list[InputError], sources: bool = True
) -> dict[str, Any]:
    """Return a platform record with every key of `PLATFORM_FIELDS` and ``sources``.

    Parameters
    ----------
    given : object
        What the JSON file holds.
    path : path
        For the messages.
    faults : list of InputError
        Gets every fault.
    sources : bool
        Whether the key ``sources`` must be there.
    """
    if not isinstance(given, dict):
        faults.append(InputError(f"expected an object, given {kind_of(given)}", file=path))
        return {}
    platform: dict[str, Any] = {}
    before = len(faults)
    for key in given:
        if key != "sources" and key not in PLATFORM_FIELDS:
            error = unknown_name("field", key, [*PLATFORM_FIELDS, "sources"])
            faults.append(InputError(error.message, file=path, column=key))
    for key, column in PLATFORM_FIELDS.items():
        value = given.get(key)
        platform[key] = value
        if value is not None:
            message = wrong_value(value, column)
            if message:
                faults.append(InputError(message, file=path, column=key))
    if len(faults) == before:
        _check_nodes(platform, path, faults)
    listed = given.get("sources", None if sources else [])
    if not (isinstance(listed, list) and all(isinstance(s, dict) for s in listed)):
        faults.append(
            InputError("expected a list of objects, one per source", file=path, column="sources")
        )
    platform["sources"] = listed
    return platform


def _check_nodes(platform: Mapping[str, Any], path: Path | str, faults: list[InputError]) -> None:
    """Tell what does not add up of a machine's nodes."""

    def listed(key: str) -> list[float]:
        return [float(n) for n in platform[key].split(",")] if platform[key] else []

    def fault(key: str, given: str, allowed: str) -> None:
        message = f"given {given}; allowed: {allowed}"
        faults.append(InputError(message, file=path, column=key))

    cpus, gib = listed("cpus_per_node"), listed("gib_per_node")
    total, behind = platform["memory_gib"], platform["cpuless_gib"]
    for key, values in (("cpus_per_node", cpus), ("gib_per_node", gib)):
        if values and not any(values):
            fault(key, repr(platform[key]), "above 0 for one node at least")
            return
    for key, what, found in (
        ("cpus_per_node", "cpus", int(sum(cpus))),
        ("cpus_per_node", "nodes", len(cpus)),
        ("gib_per_node", "nodes", len(gib)),
    ):
        known = platform[what]
        if found and known not in (None, found):
            fault(key, f"{platform[key]!r}, which are {found} {what}", f"those of {what}, {known}")
    if cpus and gib and len(cpus) != len(gib):
        fault("gib_per_node", f"{len(gib)} nodes", f"those of cpus_per_node, {len(cpus)}")
        return
    alone = [here for n, here in zip(cpus, gib, strict=False) if not n]
    for what, known, found in (
        ("memory_gib", total, sum(gib) if gib else None),
        ("cpuless_gib", behind, sum(alone) if cpus and gib else None),
    ):
        # One may be what is installed, the other what the kernel manages of it.
        if None not in (known, found) and not math.isclose(known, found, rel_tol=0.05, abs_tol=0.1):
            fault("gib_per_node", f"{found:g} GiB", f"those of {what}, {known:g}, within 5 %")
    if behind is not None and total is not None and behind >= total:
        fault("cpuless_gib", f"{behind:g}", f"less than memory_gib, {total:g}")
    shared, online = platform["llc_cpus"], platform["cpus"]
    if None not in (shared, online) and shared > online:
        fault("llc_cpus", f"{shared}", f"at most cpus, {online}")
    if behind and 0 not in cpus:
        fault("cpuless_gib", f"{behind:g}", "0 where cpus_per_node names no node without CPUs")


def _json(raw: bytes, path: Path, faults: list[InputError]) -> Any:
    """Parse JSON; None and a fault if it cannot be."""
    try:
        return parse_json(raw, path)
    except InputError as error:
        faults.append(error)
        return None

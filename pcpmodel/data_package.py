"""``data/``: measured tables, each with types, units, ranges and its source.

A *package* is a directory with a ``datapackage.json`` (Data Package, Table
Schema) and the files that it names::

    data/hardware/<machine>/    batch_latency.csv, platform.json
    data/published/<source>/    the tables of one publication

The reader refuses what the schema forbids and says where: file, row (line of
the file, header included), column, what was given, what is allowed.  A UTF-8
byte order mark and CRLF line ends, as spreadsheets write them, are accepted;
every other departure from plain UTF-8 comma-separated text is a fault.

Beside Table Schema a resource may carry ``rules``: ``min_rows`` (int),
``ascending`` (columns that rise from row to row) and ``at_least`` (pairs of
columns of which the first is nowhere below the second).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import copy
import csv
import ctypes
import difflib
import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pcpmodel.errors import InputError, unknown_name

if TYPE_CHECKING:
    import pandas

__all__ = [
    "INTERVAL_RESOURCE",
    "LATENCY_RESOURCE",
    "PLATFORM_FIELDS",
    "PLATFORM_RESOURCE",
    "Hardware",
    "Published",
    "Table",
    "check",
    "check_name",
    "check_platform",
    "data_dir",
    "data_root",
    "dump_json",
    "hardware_descriptor",
    "hardware_names",
    "load_hardware",
    "load_published",
    "load_workload",
    "open_regular",
    "parse_json",
    "parse_table",
    "published_names",
    "raise_first",
    "read_bytes",
    "store_package",
    "table_files",
]

#: Largest file of a package [bytes].
MAX_BYTES = 16 << 20
#: Faults reported for one file; a file of another kind altogether has millions.
MAX_FAULTS = 100
#: Longest numeral [characters].
MAX_NUMERAL = 40

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_DESCRIPTOR = "datapackage.json"
#: Directories of packages below the data directory.
KINDS = ("hardware", "published", "workload")


def _field(name: str, type_: str, unit: str | None, description: str, **limits: Any) -> dict:
    made: dict[str, Any] = {"name": name, "type": type_}
    if unit is not None:
        made["unit"] = unit
    made["description"] = description
    if limits:
        made["constraints"] = limits
    return made


def _table(name: str, fields: list[dict], rules: dict[str, Any]) -> dict[str, Any]:
    """Return the descriptor of a table with one row per batch."""
    limits = {"required": True, "minimum": 1, "maximum": 65535}
    what = "PCP batch: pages moved under one hold of the zone lock"
    return {
        "name": name,
        "type": "table",
        "path": f"{name}.csv",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "schema": {
            "fields": [_field("batch", "integer", "pages", what, **limits), *fields],
            "missingValues": [""],
            "primaryKey": ["batch"],
        },
        "rules": {"min_rows": 4, "ascending": ["batch"], **rules},
    }


_SIDES = {"free": "free_pcppages_bulk()", "alloc": "rmqueue_bulk()"}
_FIGURES = {"avg": "mean", "p99": "99th percentile of the"}

#: Descriptor of ``batch_latency.csv``, the same for every machine.
LATENCY_RESOURCE: Mapping[str, Any] = _table(
    "batch_latency",
    [
        _field(
            "throughput_pages_per_s",
            "number",
            "pages/s",
            "page allocation and freeing throughput of the workload; empty: not measured",
            minimum=0.001,
            maximum=1e12,
        ),
        *(
            _field(
                f"{side}_latency_{figure}_us",
                "number",
                "us",
                f"{words} time of one hold of the zone lock in {function}",
                required=True,
                minimum=0.001,
                maximum=1000000,
            )
            for side, function in _SIDES.items()
            for figure, words in _FIGURES.items()
        ),
    ],
    {"at_least": [[f"{side}_latency_p99_us", f"{side}_latency_avg_us"] for side in _SIDES]},
)

#: Descriptor of ``batch_latency_interval.csv``, which machines that came in as
#: raw tool output have: the range that holds each figure of the table.
INTERVAL_RESOURCE: Mapping[str, Any] = _table(
    "batch_latency_interval",
    [
        made
        for side, function in _SIDES.items()
        for made in (
            _field(
                f"{side}_samples",
                "integer",
                "count",
                f"holds measured in {function}",
                required=True,
                minimum=1,
            ),
            *(
                _field(
                    f"{side}_latency_{figure}_{end}_us",
                    "number",
                    "us",
                    f"{end} end of the interval of {side}_latency_{figure}_us",
                    required=True,
                    minimum=0,
                    maximum=1e9,
                )
                for figure in _FIGURES
                for end in ("low", "high")
            ),
        )
    ],
    {
        "at_least": [
            [f"{side}_latency_{figure}_high_us", f"{side}_latency_{figure}_low_us"]
            for side in _SIDES
            for figure in _FIGURES
        ]
    },
)

#: Descriptor of ``platform.json``.
PLATFORM_RESOURCE: Mapping[str, Any] = {
    "name": "platform",
    "type": "json",
    "path": "platform.json",
    "format": "json",
    "mediatype": "application/json",
    "encoding": "utf-8",
}

_COUNT = {"minimum": 1, "maximum": 1 << 20}
#: Fields of ``platform.json``; each may be null: not known.
PLATFORM_FIELDS: Mapping[str, Mapping[str, Any]] = {
    made["name"]: made
    for made in (
        _field("title", "string", None, "the machine in words"),
        _field(
            "kind", "string", None, "what it is", enum=["server", "desktop", "laptop", "virtual"]
        ),
        _field("microarchitecture", "string", None, "core design"),
        _field("cpu_model", "string", None, "model name as /proc/cpuinfo prints it"),
        _field("cpus", "integer", "CPUs", "logical CPUs", **_COUNT),
        _field("sockets", "integer", "sockets", "processor packages", **_COUNT),
        _field("nodes", "integer", "nodes", "NUMA nodes", **_COUNT),
        _field("threads_per_core", "integer", "threads", "1: no SMT", minimum=1, maximum=16),
        _field("memory_gib", "number", "GiB", "main memory", minimum=0.001, maximum=1 << 24),
        _field("page_size_kib", "integer", "KiB", "base page", enum=[4, 16, 64]),
        _field("l1d_kib", "integer", "KiB", "level 1 data cache of one core", **_COUNT),
        _field("l2_kib", "integer", "KiB", "level 2 cache of one core", **_COUNT),
        _field("llc_kib", "integer", "KiB", "one last-level cache", minimum=1, maximum=1 << 32),
        _field("llc_cpus", "integer", "CPUs", "logical CPUs that share it", **_COUNT),
        _field("cpu_mhz", "number", "MHz", "core clock", minimum=1, maximum=100000),
        _field("kernel", "string", None, "kernel release measured"),
        _field("governor", "string", None, "cpufreq governor"),
        _field("mitigations", "string", None, "state of the CPU mitigations"),
        _field("workload", "string", None, "what ran"),
        _field("tool", "string", None, "what measured"),
        _field("command", "string", None, "command line of the measurement"),
    )
}

_TYPES = ("string", "integer", "number")
_CONSTRAINTS = ("required", "unique", "minimum", "maximum", "enum", "pattern")
_RULES = ("min_rows", "ascending", "at_least")


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
    latency : pandas.DataFrame
        ``batch_latency.csv``: batch [pages], throughput_pages_per_s (NaN: not
        measured), {free,alloc}_latency_{avg,p99}_us; batch rises.
    latency_interval : pandas.DataFrame or None
        Range of each latency and number of samples, where it is known.
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
    latency: pandas.DataFrame
    latency_interval: pandas.DataFrame | None
    platform: dict[str, Any]
    units: dict[str, str]
    sources: tuple[dict[str, Any], ...]
    digest: str


@dataclass(frozen=True)
class Published:
    """The tables of one publication.

    Attributes
    ----------
    source : str
        Directory below ``data/published``.
    path : Path
        That directory.
    title : str
        Title of the publication.
    tables : dict of str to pandas.DataFrame
        By resource name.
    units : dict of str to dict
        Per table: column to unit, numeric columns only.
    sources : tuple of dict
        title, message_id, date ...
    digest : str
        SHA-256 over the package's files.
    """

    source: str
    path: Path
    title: str
    tables: dict[str, pandas.DataFrame]
    units: dict[str, dict[str, str]]
    sources: tuple[dict[str, Any], ...]
    digest: str


def data_dir() -> Path:
    """Return the directory that holds ``hardware/`` and ``published/``.

    ``$PCPMODEL_DATA`` if set; else ``data/`` of the checkout that the package
    lies in; else the copy that was installed with the package.

    Raises
    ------
    InputError
        If it is not a directory.
    """
    given = os.environ.get("PCPMODEL_DATA")
    here = Path(__file__).resolve().parent
    checkout = here.parent / "data"
    if given:
        if not Path(given).is_dir():
            raise InputError("PCPMODEL_DATA is not a directory", file=given)
        return Path(given)
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
        raise InputError("is not a directory", file=repr(directory))
    return Path(directory)


def hardware_names() -> tuple[str, ...]:
    """Return the names of the measured machines, sorted."""
    return _names(data_dir() / "hardware")


def published_names() -> tuple[str, ...]:
    """Return the names of the published sources, sorted.

    Returns
    -------
    tuple of str
    """
    return _names(data_dir() / "published")


def load_hardware(name: str) -> Hardware:
    """Load a measured machine.

    Parameters
    ----------
    name : str
        One of `hardware_names`.

    Raises
    ------
    InputError
        If the name is unknown or the package has a fault.
    """
    package = _load("hardware", "machine", name)
    tables = {key: table.frame() for key, table in package.tables.items()}
    return Hardware(
        name,
        package.path,
        tables["batch_latency"],
        tables.get("batch_latency_interval"),
        package.documents["platform"],
        package.tables["batch_latency"].units,
        package.sources,
        package.digest,
    )


def load_published(source: str) -> Published:
    """Load the tables of one publication.

    Parameters
    ----------
    source : str
        One of `published_names`.

    Returns
    -------
    Published
        Its ``tables`` by name, with their units and sources.

    Raises
    ------
    InputError
        If the name is unknown or the package has a fault.
    """
    return _tables("published", source)


def load_workload(name: str) -> Published:
    """Load the summary of a recorded workload, or the key of `pcpmodel compare`.

    Parameters
    ----------
    name : str
        A directory below ``data/workload``.

    Returns
    -------
    Published
        Its ``tables`` by name, with their units and sources.

    Raises
    ------
    InputError
        If the name is unknown or the package has a fault.
    """
    return _tables("workload", name)


def _tables(kind: str, source: str) -> Published:
    package = _load(kind, "source", source)
    return Published(
        source,
        package.path,
        package.title,
        {key: table.frame() for key, table in package.tables.items()},
        {key: table.units for key, table in package.tables.items()},
        package.sources,
        package.digest,
    )


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
                _read_package(path, kind, faults)
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
class _Package:
    path: Path
    title: str = ""
    sources: tuple[dict[str, Any], ...] = ()
    tables: dict[str, Table] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)
    digest: str = ""


def _names(directory: Path) -> tuple[str, ...]:
    if not directory.is_dir():
        return ()
    return tuple(
        sorted(p.name for p in directory.iterdir() if NAME.fullmatch(p.name) and p.is_dir())
    )


def _load(kind: str, what: str, name: str) -> _Package:
    root = data_dir() / kind
    known = _names(root)
    if name not in known:
        raise unknown_name(what, name, known)
    faults: list[InputError] = []
    package = _read_package(root / name, kind, faults)
    raise_first(faults)
    return package


def raise_first(faults: list[InputError]) -> None:
    """Raise the first fault, saying how many more there are."""
    if not faults:
        return
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    raise InputError(first.message + more, file=first.file, row=first.row, column=first.column)


def _read_package(directory: Path, kind: str, faults: list[InputError]) -> _Package:
    """Read a package, appending its faults; what has faults is left out."""
    package = _Package(directory)
    digest = hashlib.sha256()

    def contents(name: str) -> bytes | None:
        try:
            content = read_bytes(directory / name, follow=False)
        except InputError as error:
            faults.append(error)
            return None
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return content

    path = directory / _DESCRIPTOR
    raw = contents(_DESCRIPTOR)
    if raw is None:
        return package
    descriptor = parse_json(raw, path, faults)
    if descriptor is None:
        return package
    before = len(faults)
    _check_descriptor(descriptor, directory, kind, faults)
    if len(faults) > before:
        return package

    package.title = descriptor["title"]
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
            document = parse_json(raw, path, faults)
            if document is not None:
                if kind == "hardware":
                    document = check_platform(document, path, faults)
                package.documents[resource["name"]] = document
    package.digest = digest.hexdigest()

    named = {_DESCRIPTOR, *(resource["path"] for resource in resources)}
    for extra in sorted(directory.iterdir()):
        if extra.name not in named and not extra.name.startswith("."):
            faults.append(InputError(f"is not named in {_DESCRIPTOR}", file=extra))
    if kind == "hardware":
        _check_intervals(package, faults)
    return package


def _check_intervals(package: _Package, faults: list[InputError]) -> None:
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


def _check_descriptor(given: Any, directory: Path, kind: str, faults: list[InputError]) -> None:
    path = directory / _DESCRIPTOR

    def fault(message: str, where: str | None = None) -> None:
        faults.append(InputError(message, file=path, column=where))

    if not isinstance(given, dict):
        return fault(f"expected an object, given {_kind(given)}")
    if given.get("name") != directory.name:
        fault(f"{given.get('name')!r} differs from the directory, {directory.name!r}", "name")
    if not _text(given.get("title")):
        fault(f"expected a text, given {given.get('title')!r}", "title")
    sources = given.get("sources")
    if not (isinstance(sources, list) and sources):
        fault("expected a list of at least one source", "sources")
    else:
        for number, source in enumerate(sources):
            if not (isinstance(source, dict) and _text(source.get("title"))):
                fault("expected an object with a title", f"sources[{number}]")
    resources = given.get("resources")
    if not (isinstance(resources, list) and resources):
        return fault("expected a list of at least one resource", "resources")
    names: set[str] = set()
    for number, resource in enumerate(resources):
        where = f"resources[{number}]"
        if not isinstance(resource, dict):
            fault(f"expected an object, given {_kind(resource)}", where)
            continue
        name, file = resource.get("name"), resource.get("path")
        if not _text(name) or name in names:
            fault(f"expected a name of its own, given {name!r}", f"{where}.name")
        names.add(str(name))
        if not (_text(file) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", file)):
            fault(f"expected a file name of this directory, given {file!r}", f"{where}.path")
        if "schema" in resource:
            _check_schema(resource["schema"], f"{where}.schema", fault)
            _check_rules(resource, f"{where}.rules", fault)
        elif resource.get("format") != "json":
            fault(f"expected a schema or format json, given {resource.get('format')!r}", where)
    if kind == "hardware":
        _check_hardware_descriptor(resources, fault)


def _check_hardware_descriptor(resources: list, fault: Any) -> None:
    """Hold a machine's descriptor to the schemas that every machine has."""
    expected = {r["name"]: r for r in (LATENCY_RESOURCE, PLATFORM_RESOURCE, INTERVAL_RESOURCE)}
    given = {r["name"]: r for r in resources if isinstance(r, dict) and _text(r.get("name"))}
    for name in ("batch_latency", "platform"):
        if name not in given:
            fault(f"resource {name!r} is missing", "resources")
    for name, resource in given.items():
        if name not in expected:
            fault(f"unknown resource {name!r}; allowed: {', '.join(expected)}", "resources")
            continue
        for key in ("path", "schema", "rules"):
            if resource.get(key) != expected[name].get(key):
                fault(f"differs from what every machine's {name} has", f"{name}.{key}")


def _check_schema(schema: Any, where: str, fault: Any) -> None:
    if not (isinstance(schema, dict) and isinstance(schema.get("fields"), list)):
        return fault("expected an object with a list of fields", where)
    for key in schema.keys() - {"fields", "missingValues", "primaryKey"}:
        fault("not supported; allowed: fields, missingValues, primaryKey", f"{where}.{key}")
    missing = schema.get("missingValues", [""])
    if not (isinstance(missing, list) and all(isinstance(text, str) for text in missing)):
        fault("expected a list of texts", f"{where}.missingValues")
    names = []
    for number, column in enumerate(schema["fields"]):
        at = f"{where}.fields[{number}]"
        if not (isinstance(column, dict) and _text(column.get("name"))):
            fault("expected an object with a name", at)
            continue
        names.append(column["name"])
        if column.get("type") not in _TYPES:
            fault(f"{column.get('type')!r} is not one of {', '.join(_TYPES)}", f"{at}.type")
        elif column["type"] != "string" and not _text(column.get("unit")):
            fault("a numeric field states its unit", f"{at}.unit")
        if not _text(column.get("description")):
            fault("a field is described in words", f"{at}.description")
        limits = column.get("constraints", {})
        if not isinstance(limits, dict):
            fault("expected an object", f"{at}.constraints")
            continue
        for key, value in limits.items():
            if not _constraint_ok(key, value, column.get("type")):
                fault(
                    f"{value!r} not supported; allowed keys: {', '.join(_CONSTRAINTS)}",
                    f"{at}.constraints.{key}",
                )
    for name in sorted({name for name in names if names.count(name) > 1}):
        fault(f"field {name!r} is there twice", where)
    key = schema.get("primaryKey", [])
    if not (isinstance(key, list) and set(key) <= set(names)):
        fault(f"expected a list of fields, given {key!r}", f"{where}.primaryKey")


def _constraint_ok(key: str, value: Any, type_: Any) -> bool:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if key in ("required", "unique"):
        return isinstance(value, bool)
    if key in ("minimum", "maximum"):
        return numeric and type_ != "string"
    if key == "enum":
        return isinstance(value, list) and bool(value)
    if key == "pattern" and isinstance(value, str) and type_ == "string":
        try:
            re.compile(value)
        except re.error:
            return False
        return True
    return False


def _check_rules(resource: dict, where: str, fault: Any) -> None:
    rules = resource.get("rules", {})
    schema = resource["schema"]
    if not isinstance(rules, dict):
        return fault("expected an object", where)
    fields = schema.get("fields", []) if isinstance(schema, dict) else []
    numeric = {
        column.get("name")
        for column in fields
        if isinstance(column, dict) and column.get("type") in ("integer", "number")
    }
    for key, value in rules.items():
        at = f"{where}.{key}"
        if key == "min_rows":
            ok = isinstance(value, int) and not isinstance(value, bool) and value > 0
        elif key == "ascending":
            ok = isinstance(value, list) and set(map(str, value)) <= numeric
        elif key == "at_least":
            ok = isinstance(value, list) and all(
                isinstance(pair, list) and len(pair) == 2 and set(map(str, pair)) <= numeric
                for pair in value
            )
        else:
            ok = False
        if not ok:
            fault(f"{value!r} not supported; allowed rules: {', '.join(_RULES)}", at)


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
        faults.append(InputError(f"expected an object, given {_kind(given)}", file=path))
        return {}
    platform: dict[str, Any] = {}
    for key in given:
        if key != "sources" and key not in PLATFORM_FIELDS:
            error = unknown_name("field", key, [*PLATFORM_FIELDS, "sources"])
            faults.append(InputError(error.message, file=path, column=key))
    for key, column in PLATFORM_FIELDS.items():
        value = given.get(key)
        platform[key] = value
        if value is not None:
            message = _wrong_type(value, column["type"]) or _out_of_limits(value, column)
            if message:
                faults.append(InputError(message, file=path, column=key))
    listed = given.get("sources", None if sources else [])
    if not (isinstance(listed, list) and all(isinstance(s, dict) for s in listed)):
        faults.append(
            InputError("expected a list of objects, one per source", file=path, column="sources")
        )
    platform["sources"] = listed
    return platform


def _wrong_type(value: Any, type_: str) -> str | None:
    right = {
        "string": isinstance(value, str) and bool(value.strip()),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }[type_]
    return None if right else f"given {value!r}; allowed: {_ALLOWED[type_]} or null"


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a text", type(None): "null"}.get(
        type(value), f"{value!r}"
    )


# ------------------------------------------------------------------- files


def open_regular(path: str | Path, limit: int = MAX_BYTES, follow: bool = True) -> BinaryIO:
    """Open a regular file of at most ``limit`` bytes for reading.

    Never blocks: a FIFO or a device is refused.

    Parameters
    ----------
    path : path
        The file.
    limit : int
        Largest size allowed [bytes].
    follow : bool
        Whether it may be a symbolic link.

    Raises
    ------
    InputError
        If it is missing, unreadable, no regular file or too large.
    """
    if not follow and os.path.islink(path):
        raise InputError("is a symbolic link; expected a regular file", file=path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from None
    except ValueError as error:
        raise InputError(f"cannot be read: {error}", file=repr(path)) from None
    state = os.fstat(handle)
    wrong = None
    if stat.S_ISDIR(state.st_mode):
        wrong = "is a directory; expected a regular file"
    elif not stat.S_ISREG(state.st_mode):
        wrong = "is not a regular file"
    elif state.st_size > limit:
        wrong = f"holds {state.st_size} bytes; allowed: at most {limit}"
    if wrong:
        os.close(handle)
        raise InputError(wrong, file=path)
    return os.fdopen(handle, "rb")


def read_bytes(path: str | Path, limit: int = MAX_BYTES, follow: bool = True) -> bytes:
    """Read a regular file; see `open_regular`."""
    with open_regular(path, limit, follow) as file:
        return file.read(limit)


def decode(raw: bytes, path: str | Path) -> str:
    """Turn the bytes of a text file into text with LF line ends.

    Raises
    ------
    InputError
        If it is not UTF-8, has NUL bytes, or CR alone ends its lines.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16; save it as UTF-8", file=path, row=1)
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    nul = raw.find(b"\0")
    if nul >= 0:
        row = raw.count(b"\n", 0, nul) + 1
        raise InputError("has a NUL byte; expected UTF-8 text", file=path, row=row)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        row = raw.count(b"\n", 0, error.start) + 1
        given = f"byte {raw[error.start]:#04x}"
        raise InputError(f"{given} is not UTF-8; save it as UTF-8", file=path, row=row) from None
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        row = text.count("\n", 0, text.index("\r")) + 1
        raise InputError("a lone CR; lines must end with LF or CRLF", file=path, row=row)
    return text


def parse_json(raw: bytes, path: str | Path, faults: list[InputError]) -> Any:
    """Parse JSON strictly: no duplicate keys, no NaN, no infinity.

    Returns None and appends a fault if it cannot.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"key {twice!r} is there twice in one object")
        return made

    def constant(text: str) -> None:
        raise ValueError(f"{text} is not a JSON number")

    def number(text: str) -> float:
        value = float(text)
        if math.isinf(value):
            raise ValueError(f"{text} is out of range")
        return value

    try:
        return json.loads(
            decode(raw, path), object_pairs_hook=pairs, parse_constant=constant, parse_float=number
        )
    except InputError as error:
        faults.append(error)
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg} (character {error.colno})"
        faults.append(InputError(message, file=path, row=error.lineno))
    except (ValueError, RecursionError) as error:
        faults.append(InputError(f"not valid JSON: {error}", file=path))
    return None


# ------------------------------------------------------------------ tables


@dataclass
class Table:
    """A table as read: typed columns, the cells' text, and where each row stood."""

    path: Path
    schema: Mapping[str, Any]
    columns: dict[str, list[Any]]
    cells: list[list[str]]
    rows: list[int]

    @property
    def units(self) -> dict[str, str]:
        """Column to unit, where a unit is stated."""
        return {f["name"]: f["unit"] for f in self.schema["fields"] if "unit" in f}

    def frame(self) -> pandas.DataFrame:
        """Return the typed table: int64 (Int64 where cells are missing), float64, str."""
        import pandas

        made = {}
        for column in self.schema["fields"]:
            values = self.columns[column["name"]]
            dtype = {"string": "object", "number": "float64"}.get(column["type"])
            if dtype is None:
                dtype = "Int64" if None in values else "int64"
            made[column["name"]] = pandas.Series(values, dtype=dtype)
        return pandas.DataFrame(made)


def parse_table(
    raw: bytes,
    path: str | Path,
    schema: Mapping[str, Any],
    rules: Mapping[str, Any],
    faults: list[InputError],
) -> Table:
    """Parse a CSV file strictly against a Table Schema and table rules.

    Parameters
    ----------
    raw : bytes
        Content of the file.
    path : path
        For the messages.
    schema, rules : dict
        Table Schema descriptor and the resource's ``rules``.
    faults : list of InputError
        Gets every fault, at most `MAX_FAULTS`; the table is of use only if
        there is none.
    """
    path = Path(path)
    fields = schema["fields"]
    table = Table(path, schema, {f["name"]: [] for f in fields}, [], [])
    found: list[InputError] = []

    def fault(message: str, row: int | None = None, column: str | None = None) -> None:
        found.append(InputError(message, file=path, row=row, column=column))

    try:
        text = decode(raw, path)
    except InputError as error:
        faults.append(error)
        return table
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    row = 1
    try:
        header = next(reader, None)
        if not header:
            fault(f"has no header; expected {','.join(table.columns)}", 1)
        elif _check_header(header, list(table.columns), fault):
            seen: dict[str, dict[Any, int]] = {}
            row = reader.line_num + 1
            for cells in reader:
                if len(found) >= MAX_FAULTS:
                    fault("more faults follow; none of them is listed", row)
                    break
                _read_row(table, cells, row, seen, fault)
                row = reader.line_num + 1
            if len(found) < MAX_FAULTS:
                _check_table(table, rules, fault)
    except csv.Error as error:
        fault(f"quotes are not balanced or not doubled ({error})", row)
    faults.extend(found)
    return table


_UNITS = {"ns", "us", "ms", "s", "usec", "nsec", "msec", "sec", "min", "h"}


def _stem(name: str) -> str:
    head, _, tail = name.rpartition("_")
    return head if tail.lower().rstrip("s") in {u.rstrip("s") for u in _UNITS} else name


def _check_header(header: list[str], expected: list[str], fault: Any) -> bool:
    """Hold a header to the schema's; report how it differs."""
    if header == expected:
        return True
    if len(header) == 1 < len(expected):
        for mark, name in ((";", "semicolon"), ("\t", "tab"), ("|", "bar")):
            if mark in header[0]:
                fault(f"columns are separated by {mark!r} ({name}); allowed: comma", 1)
                return False
    missing = [name for name in expected if name not in header]
    for name in dict.fromkeys(header):
        if header.count(name) > 1:
            fault("column is there twice", 1, name)
        if name in expected:
            continue
        unit = [other for other in missing if _stem(other) == _stem(name)]
        near = unit or difflib.get_close_matches(name, missing, n=1)
        if unit:
            fault(f"unit in the header differs: expected {unit[0]!r}", 1, name)
        else:
            hint = f"did you mean {near[0]!r}? " if near else ""
            fault(f"unknown column; {hint}Allowed: {', '.join(expected)}", 1, name)
        missing = [other for other in missing if other not in near]
    for name in missing:
        fault(f"column is missing; expected {','.join(expected)}", 1, name)
    if sorted(header) == sorted(expected):
        fault(f"columns in another order; expected {','.join(expected)}", 1)
    return False


def _read_row(
    table: Table, cells: list[str], row: int, seen: dict[str, dict[Any, int]], fault: Any
) -> None:
    fields = table.schema["fields"]
    if len(cells) != len(fields):
        if not cells:
            return fault("line is empty", row)
        hint = "; a decimal comma?" if len(cells) > len(fields) else ""
        return fault(f"has {len(cells)} cells; expected {len(fields)}{hint}", row)
    missing = table.schema.get("missingValues", [""])
    table.cells.append(cells)
    table.rows.append(row)
    for column, cell in zip(fields, cells, strict=True):
        name, limits = column["name"], column.get("constraints", {})
        value: Any = None
        if cell in missing:
            if limits.get("required"):
                fault(f"is empty; allowed: {_allowed(column)}", row, name)
        else:
            value, message = _parse_cell(cell, column)
            message = message or _out_of_limits(value, column, cell)
            if message:
                fault(message, row, name)
                value = None
        table.columns[name].append(value)
        if limits.get("unique") and value is not None:
            _check_twice(seen.setdefault(name, {}), value, row, name, fault)
    key = table.schema.get("primaryKey", [])
    if key:
        values = tuple(table.columns[name][-1] for name in key)
        if None not in values or len(key) > 1:
            _check_twice(seen.setdefault("", {}), values, row, ", ".join(key), fault)


def _check_twice(seen: dict[Any, int], value: Any, row: int, name: str, fault: Any) -> None:
    if value in seen:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        fault(f"{shown} is there twice, first in row {seen[value]}", row, name)
    else:
        seen[value] = row


_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ALLOWED = {"integer": "a whole number", "number": "a number with a point", "string": "a text"}


def _parse_cell(cell: str, column: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return (value, None) or (None, what is wrong)."""
    type_ = column["type"]
    if type_ == "string":
        return cell, None
    shown = repr(cell if len(cell) <= MAX_NUMERAL else cell[:MAX_NUMERAL] + "...")
    given = f"given {shown}; allowed: {_allowed(column)}"
    pattern = _INTEGER if type_ == "integer" else _NUMBER
    if len(cell) > MAX_NUMERAL or not pattern.fullmatch(cell):
        if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", cell):
            given += " (a decimal point, not a comma)"
        return None, given
    value = int(cell) if type_ == "integer" else float(cell)
    if math.isinf(value) or (type_ == "integer" and abs(value) >= 1 << 63):
        return None, given
    return value, None


def _out_of_limits(value: Any, column: Mapping[str, Any], cell: str | None = None) -> str | None:
    """Return what is wrong with a typed value, or None."""
    if value is None:
        return None
    limits = column.get("constraints", {})
    wrong = (
        ("minimum" in limits and value < limits["minimum"])
        or ("maximum" in limits and value > limits["maximum"])
        or ("enum" in limits and value not in limits["enum"])
        or ("pattern" in limits and not re.fullmatch(limits["pattern"], value))
    )
    shown = repr(value) if cell is None or column["type"] == "string" else cell
    return f"given {shown}; allowed: {_allowed(column)}" if wrong else None


def _allowed(column: Mapping[str, Any]) -> str:
    limits = column.get("constraints", {})
    if "enum" in limits:
        return "one of " + ", ".join(map(str, limits["enum"]))
    words = _ALLOWED[column["type"]]
    if "minimum" in limits:
        words += f" from {limits['minimum']:g}"
    if "maximum" in limits:
        words += f" to {limits['maximum']:.15g}"
    if "pattern" in limits:
        words += f" that matches {limits['pattern']}"
    unit = column.get("unit")
    return f"{words} [{unit}]" if unit else words


def _check_table(table: Table, rules: Mapping[str, Any], fault: Any) -> None:
    """Hold a whole table to its rules."""
    least = rules.get("min_rows", 1)
    if len(table.rows) < least:
        fault(f"has {len(table.rows)} rows below the header; allowed: at least {least}")
    for name in rules.get("ascending", ()):
        last = None
        for row, value in zip(table.rows, table.columns[name], strict=True):
            if value is None:
                continue
            # An equal one is reported as there twice.
            if last is not None and value < last:
                fault(f"given {value} after {last}; allowed: rising from row to row", row, name)
            last = value
    for upper, lower in rules.get("at_least", ()):
        pairs = zip(table.rows, table.columns[upper], table.columns[lower], strict=True)
        for row, high, low in pairs:
            if high is not None and low is not None and high < low:
                fault(f"given {high:g}; allowed: at least {lower} = {low:g}", row, upper)


# ---------------------------------------------------------------- describe


def hardware_descriptor(
    name: str,
    title: str,
    sources: Iterable[Mapping[str, Any]],
    *,
    interval: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Return the ``datapackage.json`` of a machine; ``more`` are further top-level keys."""
    resources = [LATENCY_RESOURCE, *([INTERVAL_RESOURCE] if interval else []), PLATFORM_RESOURCE]
    return {
        "name": name,
        "title": title,
        **more,
        "sources": [dict(source) for source in sources],
        "resources": copy.deepcopy(resources),
    }


def table_files(
    name: str,
    title: str,
    licence_note: str,
    source: Mapping[str, str],
    tables: Mapping[str, tuple[Sequence[tuple[str, ...]], Iterable[Iterable[Any]]]],
) -> dict[str, bytes]:
    """Make the files of a package of tables.

    Parameters
    ----------
    name, title, licence_note : str
    source : mapping
        ``title`` and ``note`` of where the numbers come from.
    tables : mapping
        Table -> fields, each (name, type, unit or "", description), and rows.

    Returns
    -------
    dict of str to bytes
        File name to content.
    """
    files, resources = {}, []
    for table, (fields, rows) in tables.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field[0] for field in fields])
        writer.writerows(rows)
        files[f"{table}.csv"] = text.getvalue().encode()
        resources.append(
            {
                "name": table,
                "type": "table",
                "path": f"{table}.csv",
                "format": "csv",
                "mediatype": "text/csv",
                "encoding": "utf-8",
                "schema": {
                    "fields": [
                        {"name": n, "type": t, **({"unit": u} if u else {}), "description": d}
                        for n, t, u, d in fields
                    ],
                    "missingValues": [""],
                },
            }
        )
    descriptor = {
        "name": name,
        "title": title,
        "licence_note": licence_note,
        "sources": [dict(source)],
        "resources": resources,
    }
    files[_DESCRIPTOR] = dump_json(descriptor).encode()
    return files


def store_package(
    root: str | Path, kind: str, name: str, files: Mapping[str, bytes], *, replace: bool = False
) -> Path:
    """Write a package below ``root``: all of it or nothing.

    Parameters
    ----------
    root : path
        Data directory; it must exist.
    kind : str
        "hardware", "published" or "workload".
    name : str
        See `check_name`.
    files : dict of str to bytes
        File name to content, ``datapackage.json`` among them.
    replace : bool
        Whether a package of that name may be there already.

    Returns
    -------
    Path
        The package's directory.

    Raises
    ------
    InputError
        If the package is there and ``replace`` is false, or it cannot be written.
    """
    parent = data_root(root) / kind
    what = "machine" if kind == "hardware" else kind
    target = parent / check_name(name, what)
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError("is there and is not a directory", file=target)
    if target.exists() and not replace:
        raise InputError(f"{what} {name!r} is there already; --replace overwrites it", file=target)
    fresh = parent / f".{name}.{secrets.token_hex(8)}"
    made_parent = False
    try:
        if not parent.exists():
            parent.mkdir()
            made_parent = True
        fresh.mkdir()
        for file, content in files.items():
            with (fresh / file).open("xb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
        if target.exists():
            _exchange(fresh, target)
        else:
            fresh.rename(target)
    except BaseException as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if made_parent:
            with contextlib.suppress(OSError):
                parent.rmdir()
        if isinstance(error, OSError):
            raise InputError(f"cannot be written: {error.strerror}", file=target) from None
        raise
    shutil.rmtree(fresh, ignore_errors=True)
    return target


def _exchange(fresh: Path, target: Path) -> None:
    """Let two directories change names in one step."""
    at_fdcwd, rename_exchange = -100, 2  # fcntl.h, linux/fs.h
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    paths = at_fdcwd, os.fsencode(fresh), at_fdcwd, os.fsencode(target)
    if renameat2 is not None and renameat2(*paths, rename_exchange) == 0:
        return
    # No such call here, or the file system cannot: two steps, undone on failure.
    old = fresh.with_name(f"{fresh.name}.old")
    target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        old.rename(target)
        raise
    old.rename(fresh)


def dump_json(value: Any) -> str:
    """Return JSON text as the files of ``data/`` have it."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

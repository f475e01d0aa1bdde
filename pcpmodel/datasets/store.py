"""What lies in ``data/``: listed, brought in, taken out, corrected.

Every change is made as a whole or not at all: a directory is made beside and the two change
names, or it gets a hidden name before its files go.  One process at a time makes one; what one
that was killed left beside goes before the next.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import copy
import csv
import ctypes
import errno
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcpmodel.datasets import packages
from pcpmodel.datasets.packages import (
    COSTS_RESOURCE,
    DESCRIPTOR,
    INTERVAL_RESOURCE,
    KINDS,
    LATENCY_RESOURCE,
    PLATFORM_FIELDS,
    PLATFORM_RESOURCE,
    WAIT_RESOURCE,
    check_name,
    data_root,
)
from pcpmodel.datasets.schema import read_value
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.files import held, parse_json, read_bytes

__all__ = [
    "Entry",
    "changing",
    "cited",
    "dump_csv",
    "dump_json",
    "entries",
    "find",
    "hardware_descriptor",
    "remove",
    "store_package",
    "table_files",
    "update_platform",
]


@dataclass(frozen=True)
class Entry:
    """One package of a data directory.

    Attributes
    ----------
    kind : str
        Directory that it lies in: hardware, published or workload.
    name, title : str
    path : Path
    tables : dict of str to int
        Table -> rows below its header; without those that have faults.
    sources : tuple of str
        Where its numbers come from.
    added : bool
        Whether ``data add`` brought it in.
    faults : tuple of InputError
        What ``data check`` says of it.
    """

    kind: str
    name: str
    title: str
    path: Path
    tables: dict[str, int]
    sources: tuple[str, ...]
    added: bool
    faults: tuple[InputError, ...]

    @property
    def rows(self) -> int:
        """Rows of all its tables."""
        return sum(self.tables.values())

    def refuse_unless(self, force: bool) -> None:
        """Refuse to remove what ``data add`` did not bring in, unless told to.

        Raises
        ------
        InputError
            If it is such a one and ``force`` is false.
        """
        if not (self.added or force):
            raise InputError(
                f"{self.name!r} was not brought in by pcpmodel data add, but came with the data; "
                "--force removes it all the same",
                file=self.path,
            )

    def as_dict(self) -> dict[str, Any]:
        """Give what ``pcpmodel data list --json`` prints."""
        return {
            "kind": self.kind,
            "name": self.name,
            "title": self.title,
            "path": str(self.path),
            "tables": [{"name": name, "rows": rows} for name, rows in self.tables.items()],
            "rows": self.rows,
            "sources": list(self.sources),
            "added": self.added,
            "faults": [str(fault) for fault in self.faults],
        }


def cited(sources: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sources of a package in words, each once, sorted."""
    return sorted(
        {
            f"{source['author']} {source.get('date') or ''}".rstrip()
            if source.get("author")
            else str(source["title"])
            for source in sources
        }
    )


def entries(data: str | Path | None = None) -> list[Entry]:
    """List the packages of a data directory, whatever faults they have.

    Parameters
    ----------
    data : path, optional
        Default `pcpmodel.datasets.packages.data_dir`.

    Returns
    -------
    list of Entry
        By kind and name.

    Raises
    ------
    InputError
        If there is no such directory.
    """
    return [_entry(path) for path in _paths(data)]


def _paths(data: str | Path | None) -> list[Path]:
    root = data_root(data)
    return [
        path
        for kind in KINDS
        if (root / kind).is_dir()
        for path in sorted((root / kind).iterdir())
        if packages.NAME.fullmatch(path.name) and path.is_dir()
    ]


def _entry(path: Path) -> Entry:
    faults: list[InputError] = []
    package = packages.read_package(path, path.parent.name, faults)
    return Entry(
        path.parent.name,
        path.name,
        package.title,
        path,
        {name: len(table.rows) for name, table in package.tables.items()},
        tuple(cited(package.sources)),
        package.added,
        tuple(faults),
    )


def find(name: str, data: str | Path | None = None) -> Entry:
    """Find a package by NAME, or by KIND/NAME where several kinds have one of that name.

    Raises
    ------
    InputError
        If there is none, or more than one.
    """
    known = {f"{path.parent.name}/{path.name}": path for path in _paths(data)}
    found = [path for key, path in known.items() if name in (key, path.name)]
    if not found:
        raise unknown_name("name", name, sorted({path.name for path in known.values()}))
    if len(found) > 1:
        kinds = ", ".join(f"{path.parent.name}/{path.name}" for path in found)
        raise InputError(f"{name!r} is the name of several; say which: {kinds}")
    return _entry(found[0])


#: A directory that is made, or goes, beside the package of that name.
_BESIDE = re.compile(rf"\.({packages.NAME.pattern})\.[0-9a-f]{{16}}(\.old)?")


@contextlib.contextmanager
def changing(root: Path) -> Iterator[None]:
    """Hold a data directory, from what is read of it to what is written for that.

    Another process that is to change it waits.  What processes that were killed left goes first.

    Parameters
    ----------
    root : Path
        Data directory; it must exist.
    """
    with held(root) as alone:
        if alone:  # and so nobody is at work in what is found
            for kind in KINDS:
                _sweep(root / kind)
        yield


def _sweep(parent: Path) -> None:
    """Remove what lies beside packages of a kind, or put it back where nothing else is."""
    with contextlib.suppress(OSError):
        for path in sorted(parent.iterdir(), reverse=True):  # .old before what was to replace it
            left = _BESIDE.fullmatch(path.name)
            if left is None or path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            if left[2] and not os.path.lexists(parent / left[1]):
                path.rename(parent / left[1])
            else:
                shutil.rmtree(path, ignore_errors=True)


def remove(name: str, *, data: str | Path | None = None, force: bool = False) -> Entry:
    """Take a package out: its directory and every file in it.

    Reports of it go at the next ``pcpmodel rerun``.

    Parameters
    ----------
    name : str
        NAME, or KIND/NAME.
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.
    force : bool
        Whether it may be one that ``data add`` did not bring in, such as those that come with
        the package.

    Returns
    -------
    Entry
        What it was.

    Raises
    ------
    InputError
        If there is none of that name, it was not brought in by ``data add`` and ``force`` is
        false, or it cannot be removed.
    """
    with changing(data_root(data)):
        entry = find(name, data)
        entry.refuse_unless(force)
        if entry.path.is_symlink():
            raise InputError("is a symbolic link; expected a directory", file=entry.path)
        gone = entry.path.with_name(f".{entry.name}.{secrets.token_hex(8)}")
        try:
            entry.path.rename(gone)
            shutil.rmtree(gone)
        except OSError as error:
            raise InputError(f"cannot be removed: {error.strerror}", file=entry.path) from None
        return entry


def update_platform(
    machine: str, values: Mapping[str, str], *, data: str | Path | None = None
) -> dict[str, tuple[Any, Any]]:
    """Set fields of a machine's ``platform.json``; the others, and its tables, stay.

    Parameters
    ----------
    machine : str
    values : mapping of str to str
        Field -> value as typed: a text, a number, or ``null`` for not known.
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.

    Returns
    -------
    dict of str to (object, object)
        Field -> what it was and what it is.

    Raises
    ------
    InputError
        If there is no such machine, no such field, or a value is not of the field's type and
        range; then nothing has changed.
    """
    root = data_root(data)
    with changing(root):
        known = [path.name for path in _paths(root) if path.parent.name == "hardware"]
        if machine not in known:
            raise unknown_name("machine", machine, known)
        if not values:
            raise InputError(
                f"nothing to set; give KEY=VALUE with a KEY of {', '.join(PLATFORM_FIELDS)}"
            )
        typed = {key: _typed(key, text) for key, text in values.items()}
        directory = root / "hardware" / machine
        path = directory / PLATFORM_RESOURCE["path"]
        faults: list[InputError] = []
        before = parse_json(read_bytes(path, follow=False), path)
        if not isinstance(before, dict):
            raise InputError("expected an object", file=path)
        platform = packages.check_platform(before | typed, path, faults)
        packages.raise_first(faults)
        files = {
            file.name: read_bytes(file, follow=False)
            for file in sorted(directory.iterdir())
            if not file.name.startswith(".")
        }
        files[path.name] = dump_json(platform).encode()
        store_package(root, "hardware", machine, files, replace=True)
    return {key: (before.get(key), value) for key, value in typed.items()}


def _typed(key: str, text: str) -> Any:
    """Read the value of a field as it is typed on a command line."""
    if key not in PLATFORM_FIELDS:
        raise unknown_name("field", key, PLATFORM_FIELDS)
    if text == "null":
        return None
    value, wrong = read_value(text, PLATFORM_FIELDS[key])
    if wrong:
        raise InputError(f"{key}: {wrong} or null")
    return value


# --------------------------------------------------------------- bring in


def hardware_descriptor(
    name: str,
    title: str,
    sources: Iterable[Mapping[str, Any]],
    *,
    latency: bool = True,
    interval: bool = False,
    waits: bool = False,
    costs: bool = False,
    others: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    """Return the ``datapackage.json`` of a machine, with ``others`` of the resources it may have.

    ``more`` are further top-level keys.
    """
    resources = [LATENCY_RESOURCE] if latency else []
    resources += [*([INTERVAL_RESOURCE] if interval else []), PLATFORM_RESOURCE]
    resources += [WAIT_RESOURCE] if waits else []
    resources += [*([COSTS_RESOURCE] if costs else []), *others]
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
    **more: Any,
) -> dict[str, bytes]:
    """Make the files of a package of tables.

    Parameters
    ----------
    name, title, licence_note : str
    source : mapping
        ``title`` and ``note`` of where the numbers come from.
    tables : mapping
        Table -> fields, each (name, type, unit or "", description), and rows.
    **more
        Further top-level keys.

    Returns
    -------
    dict of str to bytes
        File name to content.
    """
    files, resources = {}, []
    for table, (fields, rows) in tables.items():
        resource = {
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
        resources.append(resource)
        files[resource["path"]] = dump_csv(resource, rows)
    descriptor = {
        "name": name,
        "title": title,
        "licence_note": licence_note,
        **more,
        "sources": [dict(source)],
        "resources": resources,
    }
    files[DESCRIPTOR] = dump_json(descriptor).encode()
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
    with changing(data_root(root)):
        return _stored(data_root(root) / kind, kind, name, files, replace)


def _stored(parent: Path, kind: str, name: str, files: Mapping[str, bytes], replace: bool) -> Path:
    what = "machine" if kind == "hardware" else kind
    target = parent / check_name(name, what)
    taken = InputError(f"{what} {name!r} is there already; --replace overwrites it", file=target)
    there = os.path.lexists(target)
    if there and (target.is_symlink() or not target.is_dir()):
        raise InputError("is there and is not a directory", file=target)
    if there and not replace:
        raise taken
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
        if there:
            for hidden in target.glob(".*"):  # the user's own
                if hidden.is_symlink() or hidden.is_file():
                    shutil.copy2(hidden, fresh, follow_symlinks=False)
                elif hidden.is_dir():
                    shutil.copytree(hidden, fresh / hidden.name, symlinks=True)
            _exchange(fresh, target)
        else:
            fresh.rename(target)
    except BaseException as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if made_parent:
            with contextlib.suppress(OSError):
                parent.rmdir()
        if isinstance(error, OSError):
            if not there and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                raise taken from None  # meanwhile: on a file system without locks
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


def dump_csv(resource: Mapping[str, Any], rows: Iterable[Iterable[Any]]) -> bytes:
    """Return a table as the files of ``data/`` have it, its columns named by the descriptor."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column["name"] for column in resource["schema"]["fields"]])
    writer.writerows(rows)
    return text.getvalue().encode()


def dump_json(value: Any) -> str:
    """Return JSON text as the files of ``data/`` have it."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

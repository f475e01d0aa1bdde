"""Tool output or a finished table -> a machine below ``data/hardware``."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pcpmodel.datasets import measured, packages, store
from pcpmodel.datasets.measured import KERNEL_FUNCTIONS
from pcpmodel.datasets.packages import (
    COSTS_RESOURCE,
    INTERVAL_RESOURCE,
    LATENCY_RESOURCE,
    PLATFORM_RESOURCE,
    WAIT_RESOURCE,
)
from pcpmodel.datasets.schema import Table, parse_table
from pcpmodel.errors import InputError
from pcpmodel.files import open_regular, read_bytes, read_json
from pcpmodel.hardware.latency_input.estimates import Estimate
from pcpmodel.hardware.latency_input.raw import MAX_RAW_BYTES, bare_name, read_by_pages, read_raw
from pcpmodel.hardware.latency_input.waits import read_waits

__all__ = ["Added", "add_latency", "add_waits"]

#: What a duration of a function holds, with the zone lock taken in it.
_WHOLE = "the function from entry to return: the hold, the wait before it and the tool's own cost"


class Added(NamedTuple):
    """What `add_latency` did.

    Attributes
    ----------
    path : Path
        The machine's directory.
    rows : int
        Of its table.
    kept, dropped : tuple of str
        Files of the machine that was replaced: those that stay, and those that went with its
        table although nothing came in their place.
    left_out : dict of int to dict of str to int
        Of files keyed by pages: numbers of pages with too few samples on a side
        (`pcpmodel.hardware.latency_input.raw.MIN_SAMPLES`) -> side -> samples.
    """

    path: Path
    rows: int
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    left_out: Mapping[int, Mapping[str, int]]


def add_latency(
    machine: str,
    *,
    table: str | Path | None = None,
    raw: Mapping[str, Mapping[int | None, str | Path]] | None = None,
    throughput: Mapping[int, str] | None = None,
    functions: Mapping[str, str] | None = None,
    unit: str | None = None,
    platform: str | Path | None = None,
    data: str | Path | None = None,
    replace: bool = False,
) -> Added:
    """Bring in the batch latency table of a machine, or a revision of it.

    Parameters
    ----------
    machine : str
        Its name, ``[a-z0-9][a-z0-9-]*``.
    table : path, optional
        ``batch_latency.csv``; or else ``raw``.
    raw : dict, optional
        ``{"free": {batch: file}, "alloc": {batch: file}}``, tool output; the batch None: a file of
        bpftrace maps keyed by pages, which has them all
        (`pcpmodel.hardware.latency_input.raw.read_by_pages`).  Numbers of pages without enough
        samples on both sides are left out.
    throughput : dict, optional
        Batch to throughput as text [pages/s], with ``raw``.
    functions : dict, optional
        Side to the function or histogram to read, where a file has several.
    unit : {"ns", "us", "ms"}, optional
        Unit of histograms that do not name it (bpftrace).
    platform : path, optional
        ``platform.json``, or some of its fields; the others are as they were, or null.
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.
    replace : bool
        Whether a machine of that name may be there.  Its table is replaced.  Its platform stays
        where ``platform`` says nothing else; so do its intervals where ``table`` has the same
        batches and every figure lies in them.

    Returns
    -------
    Added
        Directory, rows, and what stayed of the machine before.

    Raises
    ------
    InputError
        If anything is not as it must be, or the figures measured nothing
        (`pcpmodel.datasets.measured`); then nothing has changed on disk.
    """
    packages.check_name(machine)
    root = packages.data_root(data)
    target = root / "hardware" / machine
    if target.exists() and not replace:
        # Said before hours of trace are read; store_package() holds to it.
        raise InputError(f"machine {machine!r} is there already; --replace overwrites it",
                         file=target)  # fmt: skip
    given: Any = {} if platform is None else read_json(platform)
    _known(target, given, platform)
    content, traced = b"", None
    if table is None:
        traced = _rows_from_raw(raw or {}, throughput or {}, functions or {}, unit)
    else:
        content = read_bytes(table)
    with store.changing(root):
        before, known = _known(target, given, platform)  # again: others may have been at work
        faults: list[InputError] = []
        files: dict[str, bytes] = {}
        kept = [PLATFORM_RESOURCE["path"]] if "platform" in before.documents else []
        dropped = []
        left_out: Mapping[int, Mapping[str, int]] = {}
        if traced is None:
            parsed = _parse(content, table, LATENCY_RESOURCE, faults)
            packages.raise_first(faults)
            sources = [_source(table, content, "as given")]
            rows = parsed.cells
            interval = before.tables.get(INTERVAL_RESOURCE["name"])
            if interval is not None and _inside(parsed, interval):
                kept.append(INTERVAL_RESOURCE["path"])
                files[INTERVAL_RESOURCE["path"]] = store.dump_csv(INTERVAL_RESOURCE, interval.cells)
                sources += [source for source in before.sources if source not in sources]
            elif interval is not None:
                dropped.append(INTERVAL_RESOURCE["path"])
                interval = None
            packages.raise_first(packages.doubtful(parsed, interval, known["tool"]))
        else:
            rows, ranges, sources, tools, left_out = traced
            files[INTERVAL_RESOURCE["path"]] = store.dump_csv(INTERVAL_RESOURCE, ranges)
            if given.get("tool") is None:
                known["tool"] = tools
        files[LATENCY_RESOURCE["path"]] = store.dump_csv(LATENCY_RESOURCE, rows)
        for resource in (WAIT_RESOURCE, COSTS_RESOURCE):
            # Of the machine as its platform is, whatever its holds are now.
            if beside := before.tables.get(resource["name"]):
                kept.append(resource["path"])
                files[resource["path"]] = store.dump_csv(resource, beside.cells)
        if WAIT_RESOURCE["path"] in files:
            sources += [s for s in before.sources if s not in sources and _of_waits(s)]
        files[PLATFORM_RESOURCE["path"]] = store.dump_json(known).encode()
        descriptor = store.hardware_descriptor(
            machine,
            f"Batch latency, {known['title'] or machine}",
            sources,
            interval=INTERVAL_RESOURCE["path"] in files,
            waits=WAIT_RESOURCE["path"] in files,
            costs=COSTS_RESOURCE["path"] in files,
            added_by="pcpmodel data add latency",
        )
        files["datapackage.json"] = store.dump_json(descriptor).encode()
        path = store.store_package(root, "hardware", machine, files, replace=replace)
        return Added(path, len(rows), tuple(kept), tuple(dropped), left_out)


def _known(
    target: Path, given: Any, platform: str | Path | None
) -> tuple[packages.Package, dict[str, Any]]:
    """Return a machine as it is, and its platform with what is ``given`` of it."""
    before = packages.Package(target)
    if target.is_dir() and not target.is_symlink():
        before = _before(target, platform is None)
    known = dict.fromkeys(packages.PLATFORM_FIELDS) | {"sources": []}
    known |= before.documents.get("platform", {})
    if platform is not None:
        faults: list[InputError] = []
        checked = packages.check_platform(given, platform, faults, sources=False)
        packages.raise_first(faults)
        known |= {key: checked[key] for key in given}
    return before, known


_WAITS = "waits for the zone lock: "


def _of_waits(source: Mapping[str, Any]) -> bool:
    return str(source.get("note", "")).startswith(_WAITS)


def add_waits(
    machine: str,
    path: str | Path,
    *,
    zone_locks: Sequence[str] = (),
    data: str | Path | None = None,
) -> Added:
    """Bring in what tasks waited for the zone lock on a machine that is there.

    They stand beside its batch latency table, in ``lock_wait.csv``: a wait is no hold, and no
    figure of the table changes.  Waits that the machine had before are replaced.

    Parameters
    ----------
    machine : str
        A machine below ``data/hardware``.
    path : path
        As in `pcpmodel.hardware.latency_input.waits.read_waits`, with ``zone_locks``.
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.

    Returns
    -------
    Added
        Directory and rows of waits; ``kept`` is every other file of the machine.

    Raises
    ------
    InputError
        If the file or the machine has a fault; then nothing has changed on disk.
    """
    packages.check_name(machine)
    root = packages.data_root(data)
    target = root / "hardware" / machine
    if not target.is_dir() or target.is_symlink():
        raise InputError(
            f"machine {machine!r} is not there; bring in its batch latencies with the waits, or "
            "before",
            file=target,
        )
    found, tool, others = read_waits(path, zone_locks)
    with store.changing(root):
        faults: list[InputError] = []
        before = packages.read_package(target, "hardware", faults)
        packages.raise_first(faults)
        rows = [
            [
                *(w.side, w.caller, str(w.waits), f"{w.total_us:.3f}", f"{w.avg_us:.3f}"),
                *("" if us is None else f"{us:.3f}" for us in (w.p99_us, w.max_us)),
            ]
            for w in found
        ]
        files = {
            resource["path"]: read_bytes(target / resource["path"], follow=False)
            for resource in (LATENCY_RESOURCE, INTERVAL_RESOURCE, PLATFORM_RESOURCE, COSTS_RESOURCE)
            if resource["name"] in (*before.tables, *before.documents)
        }
        kept = tuple(files)
        files[WAIT_RESOURCE["path"]] = store.dump_csv(WAIT_RESOURCE, rows)
        _parse(files[WAIT_RESOURCE["path"]], path, WAIT_RESOURCE, faults)
        packages.raise_first(faults)
        note = f"{_WAITS}{tool}; {others} waits for other locks are left out"
        sources = [s for s in before.sources if not _of_waits(s)]
        more = {"added_by": "pcpmodel data add latency"} if before.added else {}
        descriptor = store.hardware_descriptor(
            machine,
            before.title,
            [*sources, _source(path, _digest(path), note)],
            interval=INTERVAL_RESOURCE["path"] in files,
            waits=True,
            costs=COSTS_RESOURCE["path"] in files,
            **more,
        )
        files["datapackage.json"] = store.dump_json(descriptor).encode()
        stored = store.store_package(root, "hardware", machine, files, replace=True)
        return Added(stored, len(rows), kept, (), {})


def _before(target: Path, needed: bool) -> packages.Package:
    """Read the machine that is to be replaced, whatever faults its table has.

    Raises
    ------
    InputError
        If its platform is ``needed`` and cannot be kept.
    """
    faults: list[InputError] = []
    package = packages.read_package(target, "hardware", faults)
    path = target / PLATFORM_RESOURCE["path"]
    wrong = [fault for fault in faults if fault.file == str(path)]
    if wrong:
        package.documents.pop("platform", None)
    if needed and (wrong or ("platform" not in package.documents and path.exists())):
        why = wrong[0] if wrong else faults[0]
        raise InputError(
            f"{why.message}; it would be lost: mend it, or give --platform",
            file=why.file,
            row=why.row,
            column=why.column,
        )
    return package


def _inside(table: Table, interval: Table) -> bool:
    """Whether every figure of a table lies in the interval that an earlier one had."""
    if table.columns["batch"] != interval.columns["batch"]:
        return False
    for side in KERNEL_FUNCTIONS:
        for what in ("avg", "p99"):
            names = (f"{side}_latency_{what}{end}_us" for end in ("_low", "", "_high"))
            low, value, high = next(names), next(names), next(names)
            ends = zip(
                interval.columns[low], table.columns[value], interval.columns[high], strict=True
            )
            if not all(a <= v <= b for a, v, b in ends):
                return False
    return True


def _parse(content: bytes, path: Any, resource: Mapping[str, Any], faults: list) -> Any:
    return parse_table(content, path, resource["schema"], resource["rules"], faults)


def _source(path: str | Path, content_or_digest: bytes | str, note: str) -> dict[str, Any]:
    digest = content_or_digest
    if isinstance(digest, bytes):
        digest = hashlib.sha256(digest).hexdigest()
    return {"title": Path(path).name, "sha256": digest, "note": note}


def _rows_from_raw(
    raw: Mapping[str, Mapping[int | None, str | Path]],
    throughput: Mapping[int, str],
    functions: Mapping[str, str],
    unit: str | None,
) -> tuple[list[list[str]], list[list[str]], list[dict], str, dict[int, dict[str, int]]]:
    """Return rows of table and of intervals, sources, tools, and the pages that are left out."""
    files, got, left_out = _read_all(raw, functions, unit)
    batches = sorted(batch for side, batch in files if side == "free")
    for batch in throughput:
        if batch not in batches:
            raise InputError(f"--throughput {batch}: no such batch; given: {batches}")
    least = LATENCY_RESOURCE["rules"]["min_rows"]
    words = ""
    if None in raw.get("free", {}):
        words = f" (of {len(left_out)} more numbers of pages a side has too few samples)"
    for batch in batches:
        if not 1 <= batch <= 65535:
            raise InputError(f"batch: given {batch}; allowed: a whole number from 1 to 65535")
    if len(batches) < least:
        raise InputError(
            f"--free and --alloc files of {len(batches)} batches{words}; allowed: at least {least}."
            " Measure more batch settings"
        )
    _refuse_doubts(got, batches, files, unit)
    rows, ranges, sources = [], [], []
    digests: dict[str | Path, str] = {}
    for batch in batches:
        row, interval = [str(batch), throughput.get(batch, "")], [str(batch)]
        for side in KERNEL_FUNCTIONS:
            one = got[side, batch]
            row += [f"{one.avg_us:.3f}", f"{one.p99_us:.3f}"]
            interval.append(str(one.samples))
            for what in ("avg", "p99"):
                low, high = (getattr(one, f"{what}_{end}_us") for end in ("low", "high"))
                interval += [
                    f"{math.floor(low * 1e3) / 1e3:.3f}",
                    f"{math.ceil(high * 1e3) / 1e3:.3f}",
                ]
            what = f"{side} at batch {batch}: {one.tool}, {one.name or 'one histogram'}; {_WHOLE}"
            path = files[side, batch]
            if path not in digests:
                digests[path] = _digest(path)
            sources.append(_source(path, digests[path], what))
        rows.append(row)
        ranges.append(interval)
    faults: list[InputError] = []
    for resource, lines in ((LATENCY_RESOURCE, rows), (INTERVAL_RESOURCE, ranges)):
        _parse(store.dump_csv(resource, lines), resource["path"], resource, faults)
    for fault in faults:
        # Say it of the file or the option that the figure came from: the user made no table.
        side = (fault.column or "").split("_")[0]
        if fault.row is not None:
            batch = batches[fault.row - 2]
            if side in KERNEL_FUNCTIONS:
                raise InputError(fault.message, file=files[side, batch], column=fault.column)
            raise InputError(f"--{side} {batch}: {fault.message}")
    packages.raise_first(faults)
    tools = " and ".join(sorted({one.tool for one in got.values()}))
    return rows, ranges, sources, tools, left_out


def _read_all(
    raw: Mapping[str, Mapping[int | None, str | Path]],
    functions: Mapping[str, str],
    unit: str | None,
) -> tuple[
    dict[tuple[str, int], str | Path],
    dict[tuple[str, int], Estimate],
    dict[int, dict[str, int]],
]:
    """Return file and estimate by side and batch; and samples by pages and side left out."""
    files: dict[tuple[str, int], str | Path] = {}
    got: dict[tuple[str, int], Estimate] = {}
    curves = [side for side in KERNEL_FUNCTIONS if None in raw.get(side, {})]
    if curves and (len(curves) < 2 or any(len(raw[side]) > 1 for side in curves)):
        raise InputError(
            "a --free or --alloc FILE without BATCH= has every number of pages; give one for "
            "either side, and none with BATCH="
        )
    if not curves:
        batches = sorted({batch for by_batch in raw.values() for batch in by_batch})  # type: ignore[type-var]
        for batch in batches:
            for side in KERNEL_FUNCTIONS:
                if batch not in raw.get(side, {}):
                    raise InputError(f"batch {batch} has no --{side} {batch}=FILE")
        for batch in batches:
            for side in KERNEL_FUNCTIONS:
                files[side, batch] = path = raw[side][batch]
                got[side, batch] = read_raw(path, side, name=functions.get(side), unit=unit)
        return files, got, {}
    found = {
        side: read_by_pages(raw[side][None], side, name=functions.get(side), unit=unit)
        for side in curves
    }
    both = set.intersection(*(set(enough) for enough, _ in found.values()))
    for side, (enough, _) in found.items():
        for pages in both:
            files[side, pages], got[side, pages] = raw[side][None], enough[pages]
    samples = {
        side: few | {pages: one.samples for pages, one in enough.items()}
        for side, (enough, few) in found.items()
    }
    left = sorted(set().union(*samples.values()) - both)
    return files, got, {n: {side: of.get(n, 0) for side, of in samples.items()} for n in left}


def _refuse_doubts(
    got: Mapping[tuple[str, int], Estimate],
    batches: Sequence[int],
    files: Mapping[tuple[str, int], str | Path],
    unit: str | None,
) -> None:
    """Refuse files that measured nothing, with the command that would have."""

    def columns(ends: Sequence[str]) -> dict[str, list[float]]:
        return {
            f"{side}_latency_{what}": [getattr(got[side, batch], what) for batch in batches]
            for side in KERNEL_FUNCTIONS
            for what in ends
        }

    table = columns(("avg_us", "p99_us")) | {"batch": list(batches)}
    interval = columns([f"{what}_{end}_us" for what in ("avg", "p99") for end in ("low", "high")])
    for doubt in measured.doubts(table, interval, unit):
        batch = batches[doubt.row or 0]
        one = got[doubt.side, batch]
        name = bare_name(one.name)
        if not name.startswith(KERNEL_FUNCTIONS[doubt.side]):
            name = KERNEL_FUNCTIONS[doubt.side]
        raise InputError(
            f"{doubt.message}. Measure anew: {measured.command(name, one.tool)}",
            file=files[doubt.side, batch],
        )


def _digest(path: str | Path) -> str:
    with open_regular(path, MAX_RAW_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

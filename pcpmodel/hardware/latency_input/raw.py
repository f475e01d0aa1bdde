"""One file of tool output: which tool wrote it, and what the function of a side took."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pcpmodel.datasets.measured import KERNEL_FUNCTIONS
from pcpmodel.errors import InputError
from pcpmodel.files import decode, open_regular
from pcpmodel.hardware.latency_input.bpftrace import Bpftrace, by_pages
from pcpmodel.hardware.latency_input.contention import Contention
from pcpmodel.hardware.latency_input.estimates import MIN_SAMPLES, Estimate
from pcpmodel.hardware.latency_input.funclatency import Funclatency
from pcpmodel.hardware.latency_input.function_graph import FunctionGraph
from pcpmodel.hardware.latency_input.lock_table import LockTable

__all__ = ["MAX_RAW_BYTES", "bare_name", "lines", "read_by_pages", "read_raw"]

#: Largest file of tool output [bytes].
MAX_RAW_BYTES = 1 << 30
#: Longest line of one [bytes].
MAX_LINE = 1 << 16
#: And of bpftrace -f json, which has all keys of a map in one [bytes].
MAX_JSON_LINE = 1 << 22

_UNUSUAL = re.compile(rb"[\0\r]")


def read_raw(
    path: str | Path, side: str, *, name: str | None = None, unit: str | None = None
) -> Estimate:
    """Estimate mean and 99th percentile from one file of tool output.

    Parameters
    ----------
    path : path
        function_graph text, funclatency or bpftrace output.
    side : {"free", "alloc"}
        Which function to look for; see `pcpmodel.datasets.measured.KERNEL_FUNCTIONS`.
    name : str, optional
        Function or histogram to read instead.
    unit : {"ns", "us", "ms"}, optional
        Unit of a histogram that does not name it.

    Raises
    ------
    InputError
        If the text is of no known kind, is damaged, or has too few samples.
    """
    found = _read(path, unit).found()
    chosen = _choose(found, side, name, path)
    estimate = found[chosen]
    if estimate.samples < MIN_SAMPLES:
        raise InputError(
            f"has {estimate.samples} samples of {chosen or 'the histogram'}; "
            f"allowed: at least {MIN_SAMPLES}, for a 99th percentile",
            file=path,
        )
    return estimate.estimate(chosen)


def read_by_pages(
    path: str | Path, side: str, *, name: str | None = None, unit: str | None = None
) -> tuple[dict[int, Estimate], dict[int, int]]:
    """Estimate mean and 99th percentile for every number of pages in one bpftrace file.

    Parameters
    ----------
    path, side, unit
        As in `read_raw`.
    name : str, optional
        Map to read; default: the one whose name begins with ``side``, or the only one.

    Returns
    -------
    dict of int to Estimate, dict of int to int
        By number of pages; and numbers with less than `MIN_SAMPLES` samples, which are left out.

    Raises
    ------
    InputError
        As `read_raw`; if no map is keyed by pages.
    """
    reader = _read(path, unit)
    maps = by_pages(reader.found()) if isinstance(reader, Bpftrace) else {}
    shown = ", ".join(sorted(maps)) or "none"
    own = [key for key in maps if key.startswith((f"@{side}_", f"@{KERNEL_FUNCTIONS[side]}"))]
    if name is not None:
        own = [key for key in maps if name in (key, key.lstrip("@"))]
    elif len(maps) == 1 and not any(key.startswith(("@free_", "@alloc_")) for key in maps):
        own = list(maps)
    if len(own) != 1:
        raise InputError(
            f"which map, keyed by pages, is the {side} side? Found: {shown}; a file of one batch "
            f"is --{side} BATCH=FILE, another map --{side}-function NAME",
            file=path,
        )
    few = {pages: h.samples for pages, h in maps[own[0]].items() if h.samples < MIN_SAMPLES}
    enough = {
        pages: histogram.estimate(f"{own[0]}[{pages}]")
        for pages, histogram in maps[own[0]].items()
        if pages not in few
    }
    if not enough:
        raise InputError(
            f"has at most {max(few.values())} samples of one number of pages in {own[0]}; allowed: "
            f"at least {MIN_SAMPLES}, for a 99th percentile. Measure longer",
            file=path,
        )
    return enough, few


def _read(path: str | Path, unit: str | None) -> FunctionGraph | Funclatency | Bpftrace:
    """Read a file with the reader that it calls for."""
    reader: FunctionGraph | Funclatency | Bpftrace | None = None
    row = 0
    for row, line in lines(path):
        if reader is None:
            reader = _sniff(line, row, path, unit)
        if reader is not None:
            reader.line(line, row)
    if reader is None:
        what = "is empty" if row == 0 else "has no durations and no histogram"
        raise InputError(
            f"{what}; allowed: ftrace function_graph text, funclatency, bpftrace hist()",
            file=path,
        )
    reader.end(row)
    return reader


def lines(path: str | Path, longest: int = MAX_LINE) -> Iterator[tuple[int, str]]:
    """Yield the rows of a text file, numbered from 1; none is longer than ``longest`` bytes."""
    with open_regular(path, MAX_RAW_BYTES) as file:
        row = 0
        while raw := file.readline(MAX_JSON_LINE):
            row += 1
            most = MAX_JSON_LINE if raw.startswith(b'{"type"') else longest
            if len(raw) >= most:
                raise InputError(
                    f"line is longer than {most} bytes; expected text", file=path, row=row
                )
            if raw.isascii() and not _UNUSUAL.search(raw):
                text = raw.decode("ascii")
            else:
                try:
                    text = decode(raw, path)
                except InputError as error:
                    raise InputError(error.message, file=path, row=row) from None
            yield row, text.rstrip("\n")


def _sniff(
    line: str, row: int, path: Any, unit: str | None
) -> FunctionGraph | Funclatency | Bpftrace | None:
    """Return the reader that a line calls for, if it is telling."""
    if tracer := re.match(r"# tracer: (\S+)", line):
        if tracer[1] == "nop":  # events only; which ones the lines below say
            return None
        if tracer[1] != "function_graph":
            raise InputError(
                f"given tracer {tracer[1]!r}; allowed: function_graph", file=path, row=row
            )
        return FunctionGraph(path)
    if Contention.begins(line) or LockTable.begins(line):
        raise InputError("has waits for locks, and no holds; give it as --waits FILE",
                         file=path, row=row)  # fmt: skip
    if Funclatency.begins(line):
        return Funclatency(path)
    if Bpftrace.begins(line):
        return Bpftrace(path, unit)
    return FunctionGraph(path) if FunctionGraph.begins(line) else None


def _choose(found: Mapping[str, Any], side: str, wanted: str | None, path: Any) -> str:
    """Return the name among those found that a side's figures are read from."""
    names = sorted(found)
    shown = ", ".join(name or "(no name)" for name in names) or "none"
    if wanted is not None:
        near = [name for name in names if wanted in (name, bare_name(name))]
        if len(near) == 1:
            return near[0]
        raise InputError(f"--{side}-function {wanted!r} is not there; found: {shown}", file=path)
    own = [name for name in names if bare_name(name).startswith(KERNEL_FUNCTIONS[side])]
    others = [begin for other, begin in KERNEL_FUNCTIONS.items() if other != side]
    if len(own) == 1:
        return own[0]
    if len(names) == 1 and not bare_name(names[0]).startswith(tuple(others)):
        return names[0]
    raise InputError(
        f"which one is the {side} side? Found: {shown}; say --{side}-function NAME", file=path
    )


def bare_name(name: str) -> str:
    """Return the function in ``@ns[function]``, ``@function`` or ``function [pid]``."""
    found = re.match(r"@(\w*)(?:\[(.+)\])?$|([\w.]+)", name)
    return (found[2] or found[1] or found[3] or "") if found else name

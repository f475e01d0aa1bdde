"""One file of waits for locks: which tool wrote it, and what was waited for the zone lock."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from pcpmodel.datasets import measured
from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input.contention import Contention, Wait
from pcpmodel.hardware.latency_input.lock_table import LockTable
from pcpmodel.hardware.latency_input.raw import lines

__all__ = ["Wait", "read_waits"]

#: Longest line of a trace or of a table [bytes].
_MAX_LINE = 4096


def read_waits(path: str | Path, zone_locks: Collection[str] = ()) -> tuple[list[Wait], str, int]:
    """Read what tasks waited for the zone lock.

    Parameters
    ----------
    path : path
        ftrace or perf script text with contention_begin and contention_end, or what
        ``perf lock contention`` printed, with ``-x`` or without.
    zone_locks : collection of str
        Addresses of zone locks [hexadecimal], for text without stacks or callers.

    Returns
    -------
    list of Wait, str, int
        By function; the tool; waits for other locks, which are left out.

    Raises
    ------
    InputError
        If the text is of no known kind, damaged, or has no wait for the zone lock.
    """
    for lock in zone_locks:
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{6,16}", lock):
            raise InputError(
                f"--zone-lock {lock!r}: allowed: an address such as 0xffff8881000004c0"
            )
    reader: Contention | LockTable | None = None
    row = 0
    for row, line in lines(path, _MAX_LINE):
        if reader is None:
            kind = next((kind for kind in (Contention, LockTable) if kind.begins(line)), None)
            if kind is None:
                continue
            reader = kind(path, zone_locks)
        reader.line(line, row)
    if reader is None:
        raise InputError(
            "is empty"
            if row == 0
            else "has no lock contention events and no table of them; "
            "allowed: ftrace or perf script text, perf lock contention",
            file=path,
        )
    found = reader.end(row)
    if not found:
        raise InputError(
            f"{reader.others} waits, and none of them in a function that takes the zone lock: it "
            "was not waited for, or the stacks are too short",
            file=path,
        )
    for wait in found:
        if doubt := measured.wait_doubt(wait.waits, wait.total_us, wait.max_us):
            raise InputError(f"{wait.caller}: {doubt}", file=path)
    return found, reader.tool, reader.others

"""A setting of the kernel that is changed for a while, and is as it was afterwards.

What it was stands in a file below `NOTES` before it changes.  A process that was killed leaves
that file; whoever traces or changes a setting next puts the value back (`sweep`), unless somebody
else has set another meanwhile.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pcpmodel.errors import InputError
from pcpmodel.files import read_json
from pcpmodel.trace.owner import is_dead, own_name

__all__ = ["HIGH_FRACTION", "changed", "sweep"]

#: Files of those who have changed something; gone with a boot, as the settings are.
NOTES = Path("/run/pcpmodel")
HIGH_FRACTION = Path("/proc/sys/vm/percpu_pagelist_high_fraction")


def _read(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


def _put_back(note: Path) -> None:
    said = read_json(note)
    path = Path(said["path"])
    if path == HIGH_FRACTION and _read(path) in said["used"]:  # of a note, only this is believed
        path.write_text(f"{said['was']}\n", encoding="ascii")
    note.unlink()


def sweep() -> None:
    """Put back what those changed who were killed with SIGKILL."""
    for note in NOTES.glob("pcpmodel_*"):
        if is_dead(note.name):
            with suppress(OSError, ValueError, KeyError, TypeError):
                _put_back(note)
    for begun in NOTES.glob(".pcpmodel_*"):  # who was killed while writing has changed nothing
        if is_dead(begun.name.removeprefix(".")):
            begun.unlink(missing_ok=True)


@contextmanager
def changed(values: Sequence[int]) -> Iterator[Callable[[int], None]]:
    """Let vm.percpu_pagelist_high_fraction change; it is as it was afterwards, whatever happens.

    Parameters
    ----------
    values : sequence of int
        What it will be set to.

    Yields
    ------
    callable
        Sets one of ``values``.

    Raises
    ------
    InputError
        If it cannot be set, or somebody else changes it too.
    """
    sweep()
    path = HIGH_FRACTION
    others = [note.name for note in NOTES.glob("pcpmodel_*")]
    if others:
        raise InputError(f"{others[0]} changes it as well; wait for its end", file=path)
    note = NOTES / own_name()
    try:
        was = _read(path)
        NOTES.mkdir(mode=0o755, exist_ok=True)
        said = {"path": str(path), "was": was, "used": sorted(set(values) - {was})}
        fresh = note.with_name(f".{note.name}")
        fresh.write_text(json.dumps(said), encoding="ascii")
        os.replace(fresh, note)
        path.write_text(f"{was}\n", encoding="ascii")  # what is not permitted shows at once
    except (OSError, ValueError) as error:
        with suppress(OSError):
            note.unlink()
        raise InputError(f"cannot be set: {error}", file=path) from None

    def set_to(value: int) -> None:
        if value != was and value not in said["used"]:
            raise InputError(f"{value} was not announced; allowed: {sorted(values)}", file=path)
        path.write_text(f"{value}\n", encoding="ascii")

    try:
        yield set_to
    finally:
        path.write_text(f"{was}\n", encoding="ascii")
        note.unlink()

"""Names that no other process has, before or after: who made what, and whether that one is gone."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re

from pcpmodel.errors import InputError
from pcpmodel.files import read_text

__all__ = ["is_dead", "own_name", "start_time"]


def start_time(pid: int) -> str | None:
    """When a process began, in ticks since boot; None if there is none."""
    try:
        stat = read_text(f"/proc/{pid}/stat")
    except InputError:
        return None
    return stat.rpartition(")")[2].split()[19]


def own_name() -> str:
    """Name of what this process makes; no other process has it, before or after."""
    pids = os.stat("/proc/self/ns/pid").st_ino
    return f"pcpmodel_{pids}_{os.getpid()}_{start_time(os.getpid())}"


def is_dead(name: str) -> bool:
    """Whether the process of `own_name` is gone; those of another PID namespace are not seen."""
    found = re.fullmatch(r"pcpmodel_(\d+)_(\d+)_(\d+)(?:_\d+)?", name)
    return (
        found is not None
        and int(found[1]) == os.stat("/proc/self/ns/pid").st_ino
        and start_time(int(found[2])) != found[3]
    )

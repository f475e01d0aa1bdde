"""Lists of CPUs as the kernel writes them: ``0-3,8,10-11``."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pcpmodel.errors import InputError

__all__ = ["cpu_list", "parse_cpu_list"]


def parse_cpu_list(text: str, file: Path) -> tuple[int, ...]:
    """Numbers of a list such as ``0-3,8,10-11``."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InputError(f"{part[:60]!r} is not a CPU or a range of CPUs", file=file)
        cpus += range(first, last + 1)
    return tuple(cpus)


def cpu_list(cpus: Sequence[int]) -> str:
    """Ascending CPU numbers as the kernel writes lists: ``0-3,8``."""
    starts = [c for i, c in enumerate(cpus) if not i or cpus[i - 1] != c - 1]
    ends = [c for i, c in enumerate(cpus) if i + 1 == len(cpus) or cpus[i + 1] != c + 1]
    runs = zip(starts, ends, strict=True)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)

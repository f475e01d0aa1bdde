"""What ``lscpu`` prints."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pcpmodel.errors import InputError
from pcpmodel.files import read_text
from pcpmodel.proc.cpulist import parse_cpu_list

__all__ = ["Lscpu", "read_cpus"]


class Lscpu(NamedTuple):
    """CPUs as ``lscpu`` counts them."""

    online: int
    nodes: Mapping[int, int]  #: online CPUs of each node; empty where it names none


def read_cpus(path: str | os.PathLike[str]) -> Lscpu:
    """Return the CPUs in a file of what ``lscpu`` printed.

    Raises
    ------
    InputError
        If it cannot be read, or says no such number.
    """
    text, file = read_text(path), Path(path)
    # To a terminal it prints sections, whose lines stand further in (util-linux 2.37 on).
    found = re.search(r"^[ \t]*CPU\(s\):\s+(\d{1,5})$", text, re.M)
    if found is None:
        raise InputError("has no line 'CPU(s): N'; is it what lscpu prints?", file=path)
    # CPU(s) counts those that are offline, too.
    online = re.search(r"^[ \t]*On-line CPU\(s\) list:[ \t]*(\S*)$", text, re.M)
    count = len(parse_cpu_list(online[1], file)) if online else int(found[1])
    nodes = re.findall(r"^[ \t]*NUMA node(\d{1,5}) CPU\(s\):[ \t]*(\S*)$", text, re.M)
    return Lscpu(count, {int(node): len(parse_cpu_list(cpus, file)) for node, cpus in nodes})

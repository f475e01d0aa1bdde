"""What ``lscpu`` prints."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re

from pcpmodel.errors import InputError
from pcpmodel.files import read_text

__all__ = ["read_cpus"]


def read_cpus(path: str | os.PathLike[str]) -> int:
    """Return the number of CPUs in a file of what ``lscpu`` printed.

    Raises
    ------
    InputError
        If it cannot be read, or says no such number.
    """
    found = re.search(r"^CPU\(s\):\s+(\d{1,5})$", read_text(path), re.M)
    if found is None:
        raise InputError("has no line 'CPU(s): N'; is it what lscpu prints?", file=path)
    return int(found[1])

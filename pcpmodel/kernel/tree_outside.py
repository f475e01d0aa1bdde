"""What the functions of a kernel tree keep outside of what they are called with."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from bisect import bisect_right
from pathlib import Path

from pcpmodel.files import read_text

__all__ = ["Outside"]


class Outside:
    """Variables of a compiled tree, as they are now.

    Parameters
    ----------
    library : Path
        Is loaded.
    """

    def __init__(self, library: Path) -> None:
        self.library = library
        self._loaded = ctypes.CDLL(str(library))
        self._base, self._spans = _mapped(library)
        self._before = self._bytes()

    def changed(self) -> list[str]:
        """Names of those that are otherwise than they were."""
        symbols = _symbols(self.library)
        found = set()
        for (begin, _), before, now in zip(self._spans, self._before, self._bytes(), strict=True):
            for k in (k for k, (a, b) in enumerate(zip(before, now, strict=True)) if a != b):
                at = bisect_right(symbols, (begin + k - self._base, "~")) - 1
                found.add(re.sub(r"\.\d+$", "", symbols[at][1]) if at >= 0 else "variables")
        return sorted(found - {"this_call"})

    def _bytes(self) -> list[bytes]:
        return [ctypes.string_at(begin, end - begin) for begin, end in self._spans]


def _mapped(library: Path) -> tuple[int, list[tuple[int, int]]]:
    """Where a library is, and its parts that can be written to, what is zero at first included."""
    base, spans, last = 0, [], 0
    for line in read_text(Path("/proc/self/maps")).splitlines():
        span, mode, _, _, _, *name = line.split(None, 5)
        begin, end = (int(n, 16) for n in span.split("-"))
        if name == [str(library)]:
            base = base or begin
            last = end
        elif name or begin != last:  # else: behind the file's own
            continue
        if mode.startswith("rw"):
            spans.append((begin, end))
    return base, spans


def _symbols(library: Path) -> list[tuple[int, str]]:
    tool = shutil.which("nm")  # comes with the compiler
    if tool is None:
        return []
    done = subprocess.run(
        [tool, library], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    found = (line.split() for line in done.stdout.splitlines())
    return sorted((int(f[0], 16), f[2]) for f in found if len(f) == 3 and f[1] in "bBdD")

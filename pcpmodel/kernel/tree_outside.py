"""What the functions of a kernel tree keep outside of what they are called with."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from pcpmodel.errors import InputError

__all__ = ["Outside"]


class Outside:
    """Variables of a compiled tree, as they are now.

    Parameters
    ----------
    library : Path
        Is loaded.

    Raises
    ------
    InputError
        Where the compiler has come without nm, which says what they are.
    """

    def __init__(self, library: Path) -> None:
        self._loaded = ctypes.CDLL(str(library))
        symbols = _symbols(library)
        known = next(s for s in symbols if s.kind == "T")
        base = ctypes.cast(self._loaded[known.name], ctypes.c_void_p).value
        assert base is not None
        self._at = base - known.address
        self._variables = [s for s in symbols if s.kind in "bBdD" and s.size]
        self._before = self._bytes()

    def changed(self) -> list[str]:
        """Names of those that are otherwise than they were."""
        pairs = zip(self._variables, self._before, self._bytes(), strict=True)
        found = {re.sub(r"\.\d+$", "", v.name) for v, before, now in pairs if before != now}
        return sorted(found - {"this_call"})

    def _bytes(self) -> list[bytes]:
        return [ctypes.string_at(self._at + v.address, v.size) for v in self._variables]


class _Symbol(NamedTuple):
    """One of a library: where, how large [bytes], and nm's letter for what it is."""

    address: int
    size: int
    kind: str
    name: str


def _symbols(library: Path) -> list[_Symbol]:
    tool = shutil.which("nm")  # comes with the linker
    if tool is None:
        raise InputError("nm is not installed; it belongs to the compiler (binutils)")
    done = subprocess.run(
        [tool, "-S", library], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return [_Symbol(int(f[0], 16), int(f[1], 16), f[2], f[3]) for f in lines if len(f) == 4]

"""Finished runs on disk: a sweep that was killed goes on where it was."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import fcntl
import json
import math
import os
from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

from pcpmodel import __version__
from pcpmodel.errors import InputError
from pcpmodel.files import open_lock, parse_json, writing
from pcpmodel.study.sweep.grid import FIGURES, Grid

__all__ = ["MAX_RESULT_BYTES", "Journal"]

#: Largest result of an earlier sweep that is read [bytes]; that of most runs has 13 MB.
MAX_RESULT_BYTES = 256 << 20


class Journal:
    """Finished runs on disk, one JSON line each; nobody else writes them meanwhile."""

    _open: ClassVar[WeakSet[Journal]] = WeakSet()

    def __init__(self, path: Path, grid: Grid) -> None:
        self.path, self.done = path, dict[int, dict[str, float]]()
        self._file = open_lock(path)
        self._open.add(self)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self._file.fileno()).st_nlink:
                raise BlockingIOError  # the other one has just finished and removed it
            self._read(grid)
        except BlockingIOError:
            self._file.close()
            raise InputError("another sweep is writing it now", file=path) from None
        except InputError:
            self._file.close()
            raise

    def _read(self, grid: Grid) -> None:
        """Take over finished runs; changes nothing in a file that is not of this sweep."""
        head = json.dumps({"sweep": grid.digest, "version": __version__}).encode()
        if os.fstat(self._file.fileno()).st_size > MAX_RESULT_BYTES:
            raise InputError("is too large for a journal of a sweep", file=self.path)
        self._file.seek(0)
        # Behind the last line end is what was being written when the sweep was killed.
        *lines, torn = self._file.read().split(b"\n")
        if not lines and not head.startswith(torn):
            lines = [torn]
        if lines and lines[0] != head:
            known = lines[0].startswith(b'{"sweep": ')
            raise InputError(
                "belongs to another sweep or version; give another output file or remove it"
                if known
                else "is not a journal of a sweep; give another output file or remove it",
                file=self.path,
                row=1,
            )
        for row, line in enumerate(lines[1:], start=2):
            try:
                entry = parse_json(line)
                run, values = entry["run"], entry["figures"]
                if type(run) is not int or run not in range(len(grid.specs)):
                    raise ValueError
                if list(values) != list(FIGURES):
                    raise ValueError
                if not all(v is None or type(v) in (int, float) for v in values.values()):
                    raise ValueError
                self.done[run] = {n: math.nan if v is None else float(v) for n, v in values.items()}
            except (ValueError, LookupError, TypeError, AttributeError):
                raise InputError(
                    "is damaged; remove this line to do that run again", file=self.path, row=row
                ) from None
        self._file.truncate(self._file.tell() - len(torn))
        if not lines:
            self._write(head)

    def _write(self, line: bytes) -> None:
        left = line + b"\n"
        with writing(self.path):
            while left:
                left = left[self._file.write(left) :]

    def add(self, run: int, values: dict[str, float]) -> None:
        known = {name: None if math.isnan(v) else v for name, v in values.items()}
        self._write(json.dumps({"run": run, "figures": known}, allow_nan=False).encode())
        self.done[run] = values

    def close(self, finished: bool) -> None:
        if finished or not self.done:
            self.path.unlink(missing_ok=True)
        self._file.close()

    @classmethod
    def forked(cls) -> None:
        """Let go of the lock in a worker process: it may outlive a sweep that is killed."""
        for journal in cls._open:
            journal._file.close()


os.register_at_fork(after_in_child=Journal.forked)

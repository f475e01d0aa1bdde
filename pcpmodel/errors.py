"""Errors that are the user's to mend, and how they are worded."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["CheckError", "InputError", "unknown_name"]


class InputError(ValueError):
    """Bad input: says what was given, what is allowed and where (exit code 2).

    Parameters
    ----------
    message : str
        What was given and what is allowed.
    file, row, column : optional
        Where; ``row`` counts lines of the file from 1, the header included.
    """

    def __init__(
        self,
        message: str,
        *,
        file: object = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        self.message = message
        self.file = None if file is None else str(file)
        self.row = row
        self.column = column
        where = [] if self.file is None else [self.file]
        if row is not None:
            where.append(f"row {row}")
        if column is not None:
            where.append(f"column {column!r}")
        super().__init__(": ".join([", ".join(where), message]) if where else message)


class CheckError(Exception):
    """A check ran and its answer is no (exit code 1)."""


def unknown_name(what: str, given: object, known: Iterable[str]) -> InputError:
    """Make the error for an unknown name, offering the nearest known one."""
    names = list(known)
    near = difflib.get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return InputError(f"unknown {what} {given!r}{hint} Known: {', '.join(names)}")

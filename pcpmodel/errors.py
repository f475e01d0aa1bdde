"""Errors that are the user's to mend, and how they are worded."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable
from operator import index

__all__ = [
    "CheckError",
    "InputError",
    "NotHeldError",
    "integer",
    "note",
    "printable",
    "truth",
    "unknown_name",
]

#: What a terminal would obey instead of showing it, and what no encoding can write.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: Longest message [characters]; what was given may be megabytes.
_MAX_MESSAGE = 4000


def printable(text: str) -> str:
    """Show control characters, as of terminal escapes, by their codes; line ends and tabs stay.

    Parameters
    ----------
    text : str
        May come from a file of a stranger.

    Returns
    -------
    str
    """
    return _UNPRINTABLE.sub(lambda m: m[0].encode("unicode_escape").decode("ascii"), text)


def note(text: str) -> None:
    """Say on stderr how far something is, or what is wrong: where that is full, nothing is said.

    Parameters
    ----------
    text : str
        Shown by `printable`.

    Raises
    ------
    BrokenPipeError
        If nobody reads it any more.
    """
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:  # what is left of it would fail again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class InputError(ValueError):
    """Bad input: says what was given, what is allowed and where (exit code 2).

    Parameters
    ----------
    message : str
        What was given and what is allowed; shown by `printable`, and cut where it is very long.
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
        message = printable(message)
        if len(message) > _MAX_MESSAGE:
            half = _MAX_MESSAGE // 2
            message = f"{message[:half]} ... {message[-half:]}"
        self.message = message
        self.file = None if file is None else printable(str(file))
        self.row = row
        self.column = column
        where = [] if self.file is None else [self.file]
        if row is not None:
            where.append(f"row {row}")
        if column is not None:
            where.append(f"column {column[:200]!r}")
        super().__init__(": ".join([", ".join(where), message]) if where else message)


class NotHeldError(InputError):
    """A page that is to be freed is not in use."""


class CheckError(Exception):
    """A check ran and its answer is no (exit code 1)."""


def integer(name: str, value: object, low: int, high: int) -> int:
    """An argument as an integer in a range, or InputError.

    Parameters
    ----------
    name : str
        What the error calls it.
    value : object
        An int or what stands for one (`operator.index`); no bool, no float.
    low, high : int
        Both are allowed.

    Returns
    -------
    int
    """
    if isinstance(value, bool):
        raise InputError(f"{name}={value!r} is not an integer")
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name}={value!r} is not an integer") from None
    if not low <= number <= high:
        raise InputError(f"{name}={number} is outside {low}..{high}")
    return number


def truth(name: str, value: object) -> bool:
    """An argument as a truth value, or InputError: a text such as "no" would be true."""
    try:
        if value in (False, True):  # 0 and 1 are equal to these
            return bool(value)
    except (TypeError, ValueError):  # of an array
        pass
    raise InputError(f"{name}={value!r} is neither True nor False")


def unknown_name(what: str, given: object, known: Iterable[str]) -> InputError:
    """Make the error for an unknown name, offering the nearest known one."""
    names = list(known)
    near = difflib.get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return InputError(f"unknown {what} {given!r}{hint} Known: {', '.join(names)}")

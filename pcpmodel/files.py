"""Every file that the package reads or puts in place, and every JSON text that it parses.

What comes from a file or from a command line may be anything: a FIFO that blocks for ever, a
device that never ends, a link that leads elsewhere, text of another encoding, JSON a thousand
levels deep.  All of that ends here, in one `InputError`; nothing else in the package opens a
file to read it (tests/test_files.py names the exceptions).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pcpmodel.errors import InputError

__all__ = [
    "MAX_BYTES",
    "decode",
    "digest_of",
    "has_surrogate",
    "held",
    "home_of",
    "open_lock",
    "open_regular",
    "open_stream",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_sealed",
    "read_text",
    "scratch",
    "sync",
    "sync_tree",
    "write_sealed",
    "write_whole",
    "writing",
]

#: Largest file read as a whole, unless a reader says otherwise [bytes].
MAX_BYTES = 16 << 20
#: Deepest nesting of a JSON text.
MAX_DEPTH = 64
#: Longest numeral of a JSON text [characters]; floats printed exactly stay far below.
MAX_NUMERAL = 400
_MAX_INT = 1 << 64
_PIECE = 1 << 16
#: How files begin that people take for text.
_BEGINNINGS = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip, as spreadsheets are",
}
_SURROGATE = re.compile("[\ud800-\udfff]")


# ---------------------------------------------------------------- reading


def home_of(path: str | os.PathLike[str]) -> Path:
    """A path in which ``~`` and ``~USER`` are that home; of nobody's it is a name as any other."""
    return Path(os.path.expanduser(path))


def _opened(path: str | os.PathLike[str], flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if flags & os.O_NOFOLLOW and os.path.islink(path):
            raise InputError("is a symbolic link; expected a regular file", file=path) from None
        asked = "read" if flags & os.O_ACCMODE == os.O_RDONLY else "written"
        raise InputError(f"cannot be {asked}: {error.strerror}", file=path) from None
    except ValueError as error:  # a NUL character in the name
        raise InputError(f"cannot be read: {error}", file=repr(path)) from None


def _only_regular(handle: int, path: str | os.PathLike[str], limit: int | None) -> None:
    """Close what is no regular file, or too large, and say so."""
    state = os.fstat(handle)
    wrong = None
    if stat.S_ISDIR(state.st_mode):
        wrong = "is a directory; expected a regular file"
    elif not stat.S_ISREG(state.st_mode):
        wrong = "is not a regular file"
    elif limit is not None and state.st_size > limit:
        wrong = f"holds {state.st_size} bytes; allowed: at most {limit}"
    if wrong:
        os.close(handle)
        raise InputError(wrong, file=path)


def open_regular(
    path: str | os.PathLike[str], limit: int | None = MAX_BYTES, follow: bool = True
) -> BinaryIO:
    """Open a regular file of at most ``limit`` bytes for reading.

    Never blocks: a FIFO or a device is refused.

    Parameters
    ----------
    path : path-like
        The file.
    limit : int or None
        Largest size allowed [bytes]; None where the reader itself counts.
    follow : bool
        Whether it may be a symbolic link.

    Raises
    ------
    InputError
        If it is missing, unreadable, no regular file or too large.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    handle = _opened(path, flags)
    _only_regular(handle, path, limit)
    return os.fdopen(handle, "rb")


def open_stream(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file, or a pipe that somebody is to write: only for what is read piece by piece.

    Raises
    ------
    InputError
        If it is missing or unreadable.
    """
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def read_bytes(path: str | os.PathLike[str], limit: int = MAX_BYTES, follow: bool = True) -> bytes:
    """Read a regular file; see `open_regular`.

    Raises
    ------
    InputError
        As there; also for a file of /proc, whose size is not known before, that is too large.
    """
    got, size = [], 0
    with open_regular(path, limit, follow) as file:
        try:
            # In pieces: the kernel would find room for all that is asked of a file of /proc/sys.
            pieces = iter(lambda: file.read(_PIECE), b"")
            while size <= limit and (piece := next(pieces, b"")):
                got.append(piece)
                size += len(piece)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", file=path) from None
    if size > limit:
        raise InputError(f"holds more than {limit} bytes, which is the most allowed", file=path)
    return b"".join(got)


def decode(raw: bytes, path: str | os.PathLike[str]) -> str:
    """Turn the bytes of a text file into text with LF line ends.

    Raises
    ------
    InputError
        If it is compressed or not UTF-8, has NUL bytes, or CR alone ends its lines.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("is UTF-16; save it as UTF-8", file=path, row=1)
    for beginning, kind in _BEGINNINGS.items():
        if raw.startswith(beginning) and not raw.isascii():  # a word may begin like bzip2
            raise InputError(f"is compressed ({kind}); expected UTF-8 text", file=path, row=1)
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    nul = raw.find(b"\0")
    if nul >= 0:
        row = raw.count(b"\n", 0, nul) + 1
        raise InputError("has a NUL byte; expected UTF-8 text", file=path, row=row)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        row = raw.count(b"\n", 0, error.start) + 1
        given = f"byte {raw[error.start]:#04x}"
        raise InputError(f"{given} is not UTF-8; save it as UTF-8", file=path, row=row) from None
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        row = text.count("\n", 0, text.index("\r")) + 1
        raise InputError("a lone CR; lines must end with LF or CRLF", file=path, row=row)
    return text


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a regular UTF-8 text file; see `read_bytes` and `decode`."""
    return decode(read_bytes(path), path)


# ------------------------------------------------------------------- JSON


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(items)
    if len(made) < len(items):
        seen: set[str] = set()
        twice = next(key for key, _ in items if key in seen or seen.add(key))
        raise ValueError(f"key {twice[:100]!r} is there twice in one object")
    return made


def _constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _int(text: str) -> int:
    value = int(text) if len(text) <= 21 else _MAX_INT
    if not -_MAX_INT < value < _MAX_INT:
        raise ValueError(f"{text[:40]} is out of range: whole numbers stay below 2**64")
    return value


def _float(text: str) -> float:
    value = float(text) if len(text) <= MAX_NUMERAL else math.inf
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is out of range")
    return value


def has_surrogate(text: str) -> bool:
    """Whether a text has half a surrogate pair, as bytes leave that are not UTF-8."""
    return _SURROGATE.search(text) is not None


def _check(value: Any) -> None:
    """Refuse what would trip up whoever walks, prints or stores the value later."""
    level, depth = [value], 0
    while level:
        depth += 1
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.keys()
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            elif isinstance(item, str) and has_surrogate(item):
                raise ValueError(f"{item[:40]!r} holds half a surrogate pair, which is no text")
        if depth > MAX_DEPTH and any(isinstance(item, dict | list) for item in level):
            raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
        level = inner


def digest_of(*parts: Any) -> str:
    """SHA-256 of what an answer was made of: values that JSON has, others as text."""
    text = json.dumps(parts, sort_keys=True, default=str).encode()
    return hashlib.sha256(text).hexdigest()


def parse_json(text: str | bytes, file: object = None, *, row: int | None = None) -> Any:
    """Parse JSON strictly.

    Parameters
    ----------
    text : str or bytes
        Bytes are taken as UTF-8.
    file, row : optional
        For the messages.

    Returns
    -------
    object
        No object has a key twice; no number is NaN, infinite or, if whole, 2**64 or more away
        from 0; no text has half a surrogate pair; nothing is nested over `MAX_DEPTH` levels.

    Raises
    ------
    InputError
        For anything else.
    """
    if isinstance(text, bytes):
        text = decode(text, file)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_pairs,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
        _check(value)
        return value
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg} (character {error.colno})"
        line = error.lineno if row is None else row
        raise InputError(message, file=file, row=line) from None
    except RecursionError:
        message = f"not valid JSON: is nested deeper than {MAX_DEPTH} levels"
    except ValueError as error:
        message = f"not valid JSON: {error}"
    raise InputError(message, file=file, row=row)


def read_json(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> Any:
    """Read and parse a regular JSON file; see `read_bytes` and `parse_json`."""
    return parse_json(read_bytes(path, limit), path)


# ---------------------------------------------------------------- writing


def sync(path: str | os.PathLike[str]) -> None:
    """Let a file, or the names in a directory, reach the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(directory: Path) -> None:
    """Let everything below a directory reach the disk: before it is renamed into place.

    A rename may reach the disk before the contents; after a power cut the file would be there,
    and empty.
    """
    for here, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(here, name)
            if not os.path.islink(path):
                sync(path)
        sync(here)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say which file could not be written; of a full disk the kernel's own error does not.

    Parameters
    ----------
    path : path-like
        What is written meanwhile.

    Raises
    ------
    InputError
        For an OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", file=path) from None


def write_whole(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file beside, then rename: it is whole or not there, also after a power cut.

    Only one process at a time may write ``path``; what an earlier one left beside it is removed.

    Parameters
    ----------
    path : Path
    content : bytes
    replace : bool
        Whether ``path`` may be there already.

    Raises
    ------
    InputError
        If it cannot be written, or is there and ``replace`` is false.
    """
    with writing(path):
        _put(path, path, content, replace)


def _put(path: Path, target: Path, content: bytes, replace: bool = True) -> None:
    """Write a file beside ``path`` and let it take the place of ``target``."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        with open(fresh, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not replace and os.path.lexists(target):
            raise InputError("has appeared meanwhile; remove it", file=target)
        os.replace(fresh, target)
        sync(target.parent)
    finally:
        fresh.unlink(missing_ok=True)


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file that `read_sealed` knows from a damaged one: bytes, then a line of their digest.

    Any number of processes may write it at once; who reads it finds what one of them wrote.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    with writing(path), tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as own:
        _put(Path(own, path.name), path, content + _seal(content))


def read_sealed(path: Path) -> bytes | None:
    """What `write_sealed` wrote; None if that is not there, or not whole."""
    try:
        raw = read_bytes(path)
    except InputError:
        return None
    content = raw[: -len(_seal(b""))]
    return content if raw == content + _seal(content) else None


def _seal(content: bytes) -> bytes:
    return f"\n{hashlib.sha256(content).hexdigest()}\n".encode()


def open_lock(path: Path) -> io.FileIO:
    """Open a file for reading and writing that is made if it is not there, to be locked.

    Nothing is kept back that a forked process, or closing it on a full disk, would write again.

    Raises
    ------
    InputError
        If it is a symbolic link (whose target would be written), or no regular file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = _opened(path, flags)
    _only_regular(handle, path, None)
    return io.FileIO(handle, "a+b")


@contextlib.contextmanager
def scratch(
    prefix: str = "pcpmodel-", parent: str | os.PathLike[str] | None = None
) -> Iterator[Path]:
    """Make a directory that is gone afterwards; remove those of processes that were killed.

    Parameters
    ----------
    prefix : str
        How its name begins; no other directory's may.
    parent : path-like, optional
        Where it lies; by default where temporary files do.

    Yields
    ------
    Path
    """
    where = Path(tempfile.gettempdir() if parent is None else parent)
    _sweep(where, prefix)
    path, handle = _claimed(where, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


_holds = threading.local()


@contextlib.contextmanager
def held(directory: Path) -> Iterator[bool]:
    """Hold a directory: whoever else asks for it so waits, in this process or another.

    A thread that holds it already goes on.  The kernel lets go of it if the process dies.

    Parameters
    ----------
    directory : Path

    Yields
    ------
    bool
        Whether it is held; not where it cannot be opened, or its file system has no locks.
    """
    handle, key = None, (-1, -1)
    mine: set[tuple[int, int]] = _holds.__dict__.setdefault("mine", set())
    with contextlib.suppress(OSError):  # of these alone, not of what is done while it is held
        state = os.stat(directory)
        key = (state.st_dev, state.st_ino)
        if key not in mine:
            handle = _locked(Path(os.path.realpath(directory)), wait=True)
    if handle is None:
        yield key in mine
        return
    mine.add(key)
    try:
        yield True
    finally:
        mine.discard(key)
        os.close(handle)


def _locked(path: Path, wait: bool) -> int | None:
    """Lock a directory as its owner does, until it dies; None if that cannot be done."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


def _claimed(where: Path, prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        handle = _locked(path, wait=True)
        # Between the two lines above another process may have taken it for a dead one's.
        if handle is None:
            if not path.is_dir():
                continue
            # A file system without locks: nobody can sweep it either.
            return path, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return path, handle
        os.close(handle)


def _sweep(where: Path, prefix: str) -> None:
    mine = re.compile(re.escape(prefix) + "[a-z0-9_]{8}")
    with contextlib.suppress(OSError):
        for name in [name for name in os.listdir(where) if mine.fullmatch(name)]:
            handle = _locked(where / name, wait=False)
            if handle is None:
                continue
            if os.fstat(handle).st_uid == os.geteuid():
                shutil.rmtree(where / name, ignore_errors=True)
            os.close(handle)

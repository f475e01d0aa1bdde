# SPDX-License-Identifier: GPL-2.0-only
"""Text of a file or pipe, plain or compressed, piece by piece."""

from __future__ import annotations

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.files import open_stream

__all__ = ["SUFFIXES", "open_text"]

#: What the name of a file has at its end, plain or compressed.
SUFFIXES = ("", ".gz", ".zst", ".xz", ".bz2")
#: Bytes read at a time; a larger piece left the L2 cache and was slower.
PIECE = 1 << 22
#: A compressed file may grow this many times; trace text reaches about 20.
MAX_RATIO = 400
#: ... once it has reached this size [bytes].
RATIO_FROM = 1 << 26
_CUT = "the file ends early"


def _gunzip(raw: Any) -> Iterator[bytes]:
    """Pieces of a gzip file.

    Larger ones than those of the library, with which a trace takes an eighth longer to read.
    """
    member = None
    while data := raw.read(1 << 18):
        while data:
            if member is None:
                data = data.lstrip(b"\0")  # up to a whole block of a tape
                if not data:
                    break
                member = zlib.decompressobj(31)
            yield member.decompress(data, PIECE)
            data = member.unconsumed_tail
            if member.eof:
                data, member = member.unused_data, None
    if member is not None:
        yield member.flush()
        if not member.eof:
            raise zlib.error(_CUT)


def _unzstd(raw: Any) -> Iterator[bytes]:
    import zstandard

    # The library does not tell a frame that ends early; one more after it is not read then.
    last = zstandard.ZstdCompressor(write_checksum=True).compress(b"\0")
    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        _Followed(raw, last), read_across_frames=True
    )
    piece = b""
    try:
        while then := stream.read(PIECE):
            if piece:
                yield piece
            piece = then
    except zstandard.ZstdError as error:
        raise zlib.error(error) from None
    if not piece.endswith(b"\0"):
        raise zlib.error(_CUT)
    yield piece[:-1]


def _by_module(opened: Callable[[Any], Any], raw: Any) -> Iterator[bytes]:
    try:
        with opened(raw) as stream:
            while piece := stream.read(PIECE):
                yield piece
    except EOFError:
        raise zlib.error(_CUT) from None
    except (lzma.LZMAError, OSError) as error:
        raise zlib.error(error) from None


#: How a file is unpacked that begins so.
_UNPACK: dict[bytes, Callable[[Any], Iterator[bytes]]] = {
    b"\x1f\x8b": _gunzip,
    b"\x28\xb5\x2f\xfd": _unzstd,
    b"\xfd7zX": partial(_by_module, lzma.open),
    b"BZh": partial(_by_module, bz2.open),
}


class _Followed:
    """A file or pipe with more bytes after its end."""

    def __init__(self, raw: Any, more: bytes) -> None:
        self.raw, self.more = raw, more

    def read(self, size: int = -1) -> bytes:
        data = self.raw.read(size)
        if not data:
            data, self.more = self.more, b""
        return data


class _Counted:
    """A file or pipe that knows how much of it was read."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        data = self.raw.read(size)
        self.bytes += len(data)
        return data


def open_text(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Iterator[bytes]:
    """Open a plain, gzip, zstd, xz or bzip2 file for reading, whatever its name says.

    Parameters
    ----------
    path : path-like
        It may be a pipe.
    max_bytes : int, optional
        Refuse a file that expands beyond this size [bytes].

    Yields
    ------
    bytes
        Pieces of the text.

    Raises
    ------
    InputError
        For damaged compression, as of a file that ends early, or one that expands suspiciously.
    """
    path = Path(path)
    with open_stream(path) as raw:
        magic = raw.peek(4)
        source = _Counted(raw)
        unpack = next((how for begin, how in _UNPACK.items() if magic.startswith(begin)), None)
        pieces = unpack(source) if unpack else iter(lambda: raw.read(PIECE), b"")
        total = 0
        while True:
            try:
                piece = next(pieces, None)
            except zlib.error as error:
                raise InputError(f"damaged compression: {error}", file=path) from None
            if piece is None:
                return
            total += len(piece)
            if unpack and total > RATIO_FROM and total > MAX_RATIO * source.bytes:
                raise InputError(
                    f"{source.bytes} bytes expand to more than {total}; trace text is never "
                    f"compressed over {MAX_RATIO} times",
                    file=path,
                )
            if max_bytes is not None and total > max_bytes:
                raise InputError(f"expands to more than {max_bytes} bytes", file=path)
            yield piece

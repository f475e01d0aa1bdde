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


def _gunzip(raw: Any) -> Iterator[bytes]:
    """Pieces of a gzip file, up to where it was cut.

    Larger ones than those of the library, with which a trace takes an eighth longer to read.
    """
    member = zlib.decompressobj(31)
    while data := raw.read(1 << 18):
        while data:
            yield member.decompress(data, PIECE)
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data.lstrip(b"\0")
                member = zlib.decompressobj(31)


def _unzstd(raw: Any) -> Iterator[bytes]:
    import zstandard

    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        raw, read_across_frames=True
    )
    try:
        while piece := stream.read(PIECE):
            yield piece
    except zstandard.ZstdError as error:
        raise zlib.error(error) from None


def _up_to_the_cut(opened: Callable[[Any], Any], raw: Any) -> Iterator[bytes]:
    """What there is at a time, not whole pieces: these are lost with the end of a file."""
    try:
        with opened(raw) as stream:
            while piece := stream.read1(PIECE):
                yield piece
    except EOFError:
        return
    except (lzma.LZMAError, OSError) as error:
        raise zlib.error(error) from None


#: How a file is unpacked that begins so.
_UNPACK: dict[bytes, Callable[[Any], Iterator[bytes]]] = {
    b"\x1f\x8b": _gunzip,
    b"\x28\xb5\x2f\xfd": _unzstd,
    b"\xfd7zX": partial(_up_to_the_cut, lzma.open),
    b"BZh": partial(_up_to_the_cut, bz2.open),
}


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
        Pieces of the text.  A compressed file that ends early ends the pieces
        and sets nothing: the caller sees an unfinished line.

    Raises
    ------
    InputError
        For damaged compression, or one that expands suspiciously.
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

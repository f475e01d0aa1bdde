# SPDX-License-Identifier: GPL-2.0-only
"""Text of a file or pipe, plain or compressed, piece by piece."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.files import open_stream

__all__ = ["open_text"]

#: Bytes read at a time; a larger piece left the L2 cache and was slower.
PIECE = 1 << 22
#: A compressed file may grow this many times; trace text reaches about 20.
MAX_RATIO = 400
#: ... once it has reached this size [bytes].
RATIO_FROM = 1 << 26


def _gunzip(raw: Any) -> Iterator[bytes]:
    """Pieces of a gzip file, up to where it was cut."""
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
    """Open a plain, gzip or zstd file for reading, whatever its name says.

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
        magic = raw.peek(4)[:4]
        source = _Counted(raw)
        packed = True
        if magic[:2] == b"\x1f\x8b":
            pieces = _gunzip(source)
        elif magic == b"\x28\xb5\x2f\xfd":
            pieces = _unzstd(source)
        else:
            packed = False
            pieces = iter(lambda: raw.read(PIECE), b"")
        total = 0
        while True:
            try:
                piece = next(pieces, None)
            except zlib.error as error:
                raise InputError(f"damaged compression: {error}", file=path) from None
            if piece is None:
                return
            total += len(piece)
            if packed and total > RATIO_FROM and total > MAX_RATIO * source.bytes:
                raise InputError(
                    f"{source.bytes} bytes expand to more than {total}; trace text is never "
                    f"compressed over {MAX_RATIO} times",
                    file=path,
                )
            if max_bytes is not None and total > max_bytes:
                raise InputError(f"expands to more than {max_bytes} bytes", file=path)
            yield piece

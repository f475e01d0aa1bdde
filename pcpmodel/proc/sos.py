"""A machine's ``/proc`` and ``/sys`` in a sosreport: a tarball that is never unpacked, or a folder.

sosreport copies files under their own names and keeps what commands printed in ``sos_commands/``.
The kernel's release is in ``uname -a``'s output, the sysctl in ``sysctl -a``'s.  Of the archive
only `_WANTED` is kept, in memory; what else is in it (names, addresses, logs) is passed over.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import gzip
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pcpmodel.errors import InputError
from pcpmodel.files import decode, open_regular, read_bytes
from pcpmodel.proc import zoneinfo
from pcpmodel.proc.host import HostFiles

__all__ = ["SosFiles", "open_host"]

_NUMBER = r"\d{1,6}"
_WANTED = re.compile(
    r"proc/(zoneinfo|meminfo|cpuinfo)$|proc/sys/(kernel/osrelease|vm/percpu_pagelist_high_fraction)$"
    r"|sys/devices/system/cpu/online$"
    rf"|sys/devices/system/cpu/cpu{_NUMBER}/(topology/(thread_siblings_list|physical_package_id)"
    rf"|cache/index\d/(type|size|shared_cpu_list)|cpufreq/scaling_governor)$"
    rf"|sys/devices/system/node/node{_NUMBER}/(cpulist|meminfo)$"
    r"|sos_commands/kernel/(uname_-a|sysctl_-a)$"
)
#: Limits: of the file, of what is unpacked of it, of one file in it that is read, of all of them
#: [bytes], and of its members.
_PACKED, _UNPACKED, _ONE, _ALL = 4 << 30, 16 << 30, 64 << 20, 256 << 20
_MEMBERS = 1_000_000
#: A tar header that wants more than this read at once is made up [bytes].
_AT_ONCE = _ONE
#: Memory that unpacking xz may take; xz -9 needs 65 MiB [bytes].
_XZ_MEMORY = 128 << 20
_PIECE = 1 << 18


class _Xz:
    """Unpacks xz with bounded memory, forward only."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.unpack: lzma.LZMADecompressor | None = None

    def read(self, size: int) -> bytes:
        got = b""
        while not got:
            if self.unpack is None or self.unpack.eof:
                rest = self.unpack.unused_data.lstrip(b"\0") if self.unpack else b""
                rest = rest or self.file.read(_PIECE).lstrip(b"\0")
                if not rest:
                    break
                self.unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
            elif self.unpack.needs_input:
                rest = self.file.read(_PIECE)
                if not rest:
                    raise EOFError("it ends too early: cut off?")
            else:
                rest = b""
            got = self.unpack.decompress(rest, size)
        return got


class _Forward:
    """A stream that tarfile reads: forward only, counted, and never much at once."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.at = 0

    def tell(self) -> int:
        return self.at

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _AT_ONCE:
            raise ValueError(f"a header asks for {size} bytes at once; allowed: {_AT_ONCE}")
        got = []
        while size and (piece := self.stream.read(min(size, _PIECE))):
            got.append(piece)
            size -= len(piece)
            self.at += len(piece)
            if self.at > _UNPACKED:
                raise ValueError(f"unpacks to more than {_UNPACKED >> 30} GiB, the most allowed")
        return b"".join(got)

    def seek(self, to: int) -> None:
        if to < self.at or to > _UNPACKED:
            raise ValueError(f"a header points to byte {to}, from {self.at}")
        while self.at < to and self.read(min(to - self.at, _PIECE)):
            pass


def _inside(name: str, path: Any) -> str | None:
    """Return a member's name below the report's own folder; None: the folder itself."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise InputError(f"member {name[:80]!r} leads out of the archive", file=path)
    if parts and parts[0] not in ("proc", "sys", "sos_commands"):
        parts = parts[1:]
    return "/".join(parts) or None


def _packed(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with open_regular(path, _PACKED) as file:
        magic = file.read(6)
        file.seek(0)
        stream: Any = file
        if magic.startswith(b"\x1f\x8b"):
            stream = gzip.GzipFile(fileobj=file)
        elif magic == b"\xfd7zXZ\0":
            stream = _Xz(file)
        try:
            tar = tarfile.TarFile(fileobj=_Forward(stream), mode="r")  # type: ignore[arg-type]
            size, members = 0, 0
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # one a time, however many there are
                members += 1
                if members > _MEMBERS:
                    raise ValueError(f"holds more than {_MEMBERS} members")
                name = _inside(member.name, path)
                if name is None or not _WANTED.match(name):
                    continue
                if not member.isreg() or member.sparse is not None:
                    raise InputError(f"{name} is a link or no regular file in it", file=path)
                size += member.size
                if member.size > _ONE or size > _ALL:
                    raise ValueError(f"{name} has {member.size} bytes; allowed: {_ONE}")
                if name in found:
                    raise ValueError(f"{name} is in it twice")
                held = tar.extractfile(member)
                found[name] = held.read() if held else b""
        except (
            tarfile.TarError,
            lzma.LZMAError,
            zlib.error,
            OSError,
            EOFError,
            ValueError,
        ) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"is no sound tarball: {reason}; expected a sosreport. "
                "A copy of /proc/zoneinfo goes with --zoneinfo",
                file=path,
            ) from None
    return found


def _folder(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    top = path
    if not (top / "proc").is_dir():
        # A folder around the report's own, as tar leaves it.
        inner = [p for p in path.iterdir() if (p / "proc").is_dir() and not p.is_symlink()]
        top = inner[0] if len(inner) == 1 else top
    for part in (
        "proc",
        "sys/devices/system/cpu",
        "sys/devices/system/node",
        "sos_commands/kernel",
    ):
        for here, folders, names in os.walk(top / part):  # does not follow links
            folders.sort()
            for name in names:
                file = Path(here, name)
                inside = file.relative_to(top).as_posix()
                if _WANTED.match(inside):
                    found[inside] = read_bytes(file, _ONE, follow=False)
    return found


class SosFiles(HostFiles):
    """What a sosreport has of a machine.

    Parameters
    ----------
    path : Path
        Tarball (plain, gzip or xz), or folder.

    Raises
    ------
    InputError
        If it has no ``proc/zoneinfo``, is damaged, larger than allowed, or has links or names that
        lead out where the files are that are read.
    """

    def __init__(self, path: Path) -> None:
        self.files: Mapping[str, bytes] = _folder(path) if path.is_dir() else _packed(path)
        if "proc/zoneinfo" not in self.files:
            raise InputError("has no proc/zoneinfo; expected a sosreport", file=path)
        self._commands()
        super().__init__(path)

    def _commands(self) -> None:
        """Take from commands' output what the report has no file of."""
        made = dict(self.files)
        words = self.files.get("sos_commands/kernel/uname_-a", b"").split()
        if len(words) > 2 and words[0] == b"Linux":
            made.setdefault("proc/sys/kernel/osrelease", words[2])
        sysctl = self.files.get("sos_commands/kernel/sysctl_-a", b"")
        if known := re.search(rb"(?m)^vm\.percpu_pagelist_high_fraction = (\d{1,9})$", sysctl):
            made.setdefault("proc/sys/vm/percpu_pagelist_high_fraction", known[1])
        self.files = made

    def text(self, path: Path) -> str | None:
        """Content of a file, without the space around it."""
        raw = self.files.get(path.relative_to(self.root).as_posix())
        try:
            return None if raw is None else decode(raw, path).strip() or None
        except InputError:
            return None

    def names(self, directory: Path) -> list[str]:
        """Names in a directory."""
        under = directory.relative_to(self.root).as_posix() + "/"
        inside = (name for name in self.files if name.startswith(under))
        return sorted({name.removeprefix(under).split("/")[0] for name in inside})

    def snapshots(self) -> tuple[zoneinfo.Zoneinfo, ...]:
        """``/proc/zoneinfo``, parsed."""
        path = self.root / "proc/zoneinfo"
        return zoneinfo.parse(decode(self.files["proc/zoneinfo"], path), path)


def open_host(path: str | Path) -> HostFiles:
    """Open the running machine ("/"), or a sosreport's tarball or folder.

    Raises
    ------
    InputError
        As `SosFiles` and `pcpmodel.proc.host.HostFiles`.
    """
    path = Path(path)
    return HostFiles(path) if path == Path("/") else SosFiles(path)

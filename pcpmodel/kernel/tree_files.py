"""Files of a kernel tree: read from folders and commits, patched, and its options.

A patch is taken as git am takes it: alone or several in mails, encoded or not, whatever stands
before the names of files.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import email
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pcpmodel.errors import InputError
from pcpmodel.files import read_bytes, read_text
from pcpmodel.kernel.tree_source import Source

__all__ = ["FILES", "KCONFIG", "MAX_SECONDS", "config_of", "defaults_of", "patched", "tree_files"]

#: Files that are looked at, as far as the tree has them.
FILES = (
    "mm/page_alloc.c",
    "include/linux/mmzone.h",
    "mm/page_alloc.h",
    "mm/internal.h",
    "mm/vmstat.c",
    "mm/mm_init.c",
    "include/linux/gfp.h",
)

#: Has the defaults of options.
KCONFIG = "mm/Kconfig"

MAX_SECONDS = 60  # of git or a compiler

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def tree_files(name: str, more: Iterable[str] = ()) -> dict[str, bytes]:
    """Files of a tree by their name in it: those that are looked at, and more."""
    try:
        return _files(name, (*FILES, KCONFIG, *more))
    except OSError as error:  # of looking for them; reading says so itself
        raise InputError(f"{name}: {error.strerror}") from None


def _files(name: str, wanted: Sequence[str]) -> dict[str, bytes]:
    where, _, ref = name.rpartition("@")
    if where and Path(where).expanduser().is_dir() and not Path(name).expanduser().exists():
        return _at_commit(Path(where).expanduser(), ref, wanted)
    path = Path(name).expanduser()
    if path.is_file():
        found = {"mm/page_alloc.c": path}
        beside = path.parent.parent / "include/linux/mmzone.h"
        if path.parent.name == "mm" and beside.is_file():
            return _files(os.fspath(path.parent.parent), wanted)
    elif path.is_dir():
        found = {f: path / f for f in wanted if (path / f).is_file()}
        if "mm/page_alloc.c" not in found:
            found = {f: path / Path(f).name for f in wanted if (path / Path(f).name).is_file()}
    else:
        raise InputError(f"{name}: there is no such tree")
    if "mm/page_alloc.c" not in found:
        raise InputError(f"{name} is no kernel tree: it has no mm/page_alloc.c")
    return {f: read_bytes(p) for f, p in found.items()}


def _at_commit(tree: Path, ref: str, wanted: Iterable[str]) -> dict[str, bytes]:
    """Files as a commit has them; nothing is checked out."""
    git = shutil.which("git")
    if git is None:
        raise InputError(f"{tree}@{ref}: git is not there")
    if not ref or ref.startswith("-"):
        raise InputError(f"{tree}@{ref}: {ref!r} is no commit")
    found = {}
    for name in wanted:
        done = subprocess.run(
            [git, "-C", os.fspath(tree), "show", f"{ref}:{name}"],
            capture_output=True, stdin=subprocess.DEVNULL, timeout=MAX_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            found[name] = done.stdout
        elif name == "mm/page_alloc.c":
            why = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InputError(f"{tree}@{ref}: git show: {why[0] if why else 'failed'}")
    return found


def patched(
    tree: str, files: Mapping[str, bytes], patch: Path
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files after a patch, with those of C that it changes, and which others it changes."""
    git = shutil.which("git")
    if git is None:
        raise InputError(f"{patch}: applying a patch needs git")
    parts = _parts(_decoded(read_bytes(patch)))
    if not parts:
        raise InputError(f"{patch}: is no patch: has no '--- FILE' with '+++ FILE' below it")
    files = _with_others(tree, files, parts)
    if not any("\r\n" in data.decode("utf-8", "replace") for data in files.values()):
        parts = [(p, hunks.replace(b"\r\n", b"\n")) for p, hunks in parts]  # as git am
    about, unread = [], []
    for paths, hunks in parts:
        name = next((f for p in paths for f in files if f"/{p}".endswith(f"/{f}")), None)
        if name is None:
            unread.append(re.sub(r"^[ab]/", "", paths[0]))
        elif hunks:
            about.append(f"--- a/{name}\n+++ b/{name}\n".encode() + hunks)
    if not about:
        raise InputError(f"{patch}: changes none of {', '.join(files)}")
    with tempfile.TemporaryDirectory(prefix="pcpmodel-") as folder:
        for name, data in files.items():
            at = Path(folder, name)
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(data)
        apply = partial(
            subprocess.run, input=b"".join(about), cwd=folder, capture_output=True,
            timeout=MAX_SECONDS, check=False,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(folder)},
        )  # fmt: skip
        done = apply([git, "apply", "-p1", "-"])
        if done.returncode:
            if apply([git, "apply", "-p1", "-R", "--check", "-"]).returncode == 0:
                raise InputError(f"{patch}: is in {tree} already")
            why = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InputError(
                f"{patch}: does not apply: {why[0] if why else 'git apply failed'} (every line of "
                f"context must be there)"
            )
        after = {name: read_bytes(Path(folder, name)) for name in files}
    if after == files:
        raise InputError(f"{patch}: leaves {', '.join(files)} as they are")
    return after, tuple(dict.fromkeys(unread))


def _with_others(
    tree: str, files: Mapping[str, bytes], parts: Iterable[tuple[list[str], bytes]]
) -> dict[str, bytes]:
    """The files with those that a patch changes or adds, as far as functions may come from them."""
    wanted: dict[str, bool] = {}
    for paths, hunks in parts:
        for path in (re.sub(r"^/*[^/]+/(?=mm/|include/)", "", p) for p in paths):
            if re.match(r"(mm|include)/.*\.[ch]$", path) and path not in files:
                wanted[path] = hunks.startswith(b"@@ -0,0 ")
    there = tree_files(tree, wanted) if wanted else {}
    found = dict(files)
    for path, new in wanted.items():
        if new and path not in there:
            found[path] = b""
        elif path in there:
            with contextlib.suppress(InputError):  # of C that is not understood: not read
                Source(path, there[path])
                found[path] = there[path]
    return found


def _decoded(text: bytes) -> bytes:
    """A patch, or mails of patches, as they were before mail encoded them."""
    if not re.search(rb"(?im)^content-transfer-encoding:\s*(?:quoted-printable|base64)", text):
        return text
    first, *others = re.split(rb"(?m)^From \S+ .*\n", text)
    payloads = [
        part.get_payload(decode=True)
        for mail in (first, *others)
        for part in email.message_from_bytes(mail).walk()
        if part.get_content_maintype() == "text"
    ]
    return b"\n".join(p for p in payloads if isinstance(p, bytes))


def _parts(text: bytes) -> list[tuple[list[str], bytes]]:
    """Of a patch, the names of each file as they stand there, and the hunks.

    Whatever stands before the names: nothing, a/ and b/, folders of somebody's own.
    """
    lines = text.splitlines(keepends=True)
    found = []
    k = 0
    while k < len(lines):
        old, new = (re.match(rb"(?:---|\+\+\+) ([^\t\r\n]*)", s) for s in (*lines[k:], b"")[:2])
        if not (lines[k].startswith(b"--- ") and old and new and lines[k + 1][:4] == b"+++ "):
            k += 1
            continue
        paths = [m[1].decode("utf-8", "replace").strip() for m in (new, old)]
        begin = k = k + 2
        while k < len(lines) and (head := _HUNK.match(lines[k])):
            left = [int(n) if n is not None else 1 for n in head.groups()]
            k += 1
            while k < len(lines) and (max(left) > 0 or lines[k].startswith(b"\\")):
                sign = lines[k][:1]
                left[0] -= sign not in (b"+", b"\\")
                left[1] -= sign not in (b"-", b"\\")
                k += 1
        found.append(([p for p in paths if p != "/dev/null"] or [""], b"".join(lines[begin:k])))
    return found


def config_of(path: Path) -> tuple[dict[str, str], set[str]]:
    """CONFIG_ values of a .config, and which options it says are off."""
    found = {}
    off = set()
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line or line.startswith("#"):
            off.update(re.findall(r"^# CONFIG_(\w+) is not set", line))
            continue
        option = re.fullmatch(r"CONFIG_(\w+)=(.*)", line)
        if option is None:
            raise InputError(f"{path}: line {number}: {line[:60]!r} is not CONFIG_NAME=value")
        name, value = option.groups()
        if value in ("y", "m"):
            found[name] = "1"
        elif re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", value):
            found[name] = value
    return found, off


def defaults_of(kconfig: bytes, options: Mapping[str, str]) -> dict[str, str]:
    """Defaults of mm/Kconfig that do not depend on anything else than options that are set."""
    found = {}
    text = kconfig.decode("utf-8", "replace")
    for entry in re.split(r"(?m)^(?:menu)?config[ \t]+", text)[1:]:
        name = entry.split(None, 1)[0]
        needed = " && ".join(re.findall(r"(?m)^[ \t]+depends on[ \t]+(.*)", entry))
        value = re.search(r"(?m)^[ \t]+(?:default|def_bool)[ \t]+(y|-?\d+|0x[0-9a-fA-F]+)$", entry)
        if value and all(n in options for n in re.split(r"\s*&&\s*", needed) if n):
            found[name] = "1" if value[1] == "y" else value[1]
    return found

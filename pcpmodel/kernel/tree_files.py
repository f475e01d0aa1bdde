"""Files of a kernel tree: read from folders and commits, patched, and its options.

A patch is taken as git am takes it: alone or several in mails, encoded or not, whatever stands
before the names of files.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import email
import os
import posixpath
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pcpmodel.errors import InputError
from pcpmodel.files import read_bytes, read_text
from pcpmodel.kernel.tree_source import Source

__all__ = [
    "FILES", "KCONFIG", "MAX_SECONDS", "config_of", "defaults_of", "files_with", "patched",
    "tree_files",
]  # fmt: skip

#: Files that are looked at first, as far as the tree has them.
FILES = (
    "mm/page_alloc.c",
    "include/linux/mmzone.h",
    "mm/page_alloc.h",
    "mm/internal.h",
    "mm/vmstat.c",
    "mm/mm_init.c",
    "include/linux/gfp.h",
)

#: Where else what these do not have may be.
_ELSEWHERE = ("mm/*.c", "mm/*.h", "include/linux/*.h")

#: Has the defaults of options.
KCONFIG = "mm/Kconfig"

MAX_SECONDS = 60  # of git or a compiler

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")

#: Lines that a line of a hunk stands for, before and after it, by its first character.
_LINES = {b" ": (1, 1), b"\n": (1, 1), b"\r": (1, 1), b"-": (1, 0), b"+": (0, 1), b"\\": (0, 0)}

#: Ends what belongs to a file of a patch: the next one, a signature, the next mail.
_NEXT = re.compile(rb"diff |Index: |--- |-- ?[\r\n]|From ")

#: What only hunks have; a line that begins with -- may be mail's.
_STRAY = re.compile(rb"@@|@ -|[ +]|-(?!-)")


def tree_files(name: str, more: Iterable[str] = ()) -> dict[str, bytes]:
    """Files of a tree by their name in it: those that are looked at, and more."""
    try:
        return _files(name, (*FILES, KCONFIG, *more))
    except OSError as error:  # of looking for them; reading says so itself
        raise InputError(f"{name}: {error.strerror}") from None


def files_with(name: str, words: Collection[str], but: Container[str]) -> dict[str, bytes]:
    """Other files of mm/ and include/linux/ in which one of some words stands."""
    if not words:
        return {}
    word = re.compile(rf"\b(?:{'|'.join(sorted(words))})\b")
    tree, ref = _tree_at(name)
    if ref:
        done = _git(tree, "grep", "-l", "-P", word.pattern, ref, "--", *_ELSEWHERE)
        paths = [line.partition(":")[2] for line in done.stdout.decode("utf-8").splitlines()]
    else:
        folder = tree.parent if tree.is_file() else tree
        folder = folder.parent if folder.name == "mm" else folder
        whole = (folder / "mm/page_alloc.c").is_file()
        if tree.is_file() and not whole:
            return {}
        paths = [
            f"{posixpath.dirname(glob)}/{path.name}"
            for glob in _ELSEWHERE
            for path in sorted(folder.glob(glob if whole else posixpath.basename(glob)))
        ]
    found = tree_files(name, (p for p in paths if p not in but))
    return {
        f: data for f, data in found.items()
        if f in paths and f not in but and word.search(data.decode("utf-8", "replace"))
    }  # fmt: skip


def _tree_at(name: str) -> tuple[Path, str]:
    """Where a tree is, and which commit of it is meant, if one is."""
    where, _, ref = name.rpartition("@")
    if where and Path(where).expanduser().is_dir() and not Path(name).expanduser().exists():
        return Path(where).expanduser(), ref
    return Path(name).expanduser(), ""


def _git(tree: Path, *command: str) -> subprocess.CompletedProcess[bytes]:
    git = shutil.which("git")
    if git is None:
        raise InputError(f"{tree}: git is not there")
    return subprocess.run(
        [git, "-C", os.fspath(tree), *command],
        capture_output=True, stdin=subprocess.DEVNULL, timeout=MAX_SECONDS, check=False,
    )  # fmt: skip


def _files(name: str, wanted: Sequence[str]) -> dict[str, bytes]:
    path, ref = _tree_at(name)
    if path != Path(name).expanduser():
        return _at_commit(path, ref, wanted)
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
    if not ref or ref.startswith("-"):
        raise InputError(f"{tree}@{ref}: {ref!r} is no commit")
    found = {}
    for name in wanted:
        done = _git(tree, "show", f"{ref}:{name}")
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
    parts = _parts(patch, _decoded(read_bytes(patch)))
    if not parts:
        raise InputError(f"{patch}: is no patch: has no '--- FILE' with '+++ FILE' below it")
    files = _with_others(tree, files, parts)
    if not any("\r\n" in data.decode("utf-8", "replace") for data in files.values()):
        parts = [(p, hunks.replace(b"\r\n", b"\n")) for p, hunks in parts]  # as git am
    about, unread = [], []
    for paths, hunks in parts:
        name = next((p for p in paths if p in files), None)
        if name is None:
            unread.append(paths[0])
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
        for path in paths:
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


def _parts(patch: Path, text: bytes) -> list[tuple[list[str], bytes]]:
    """Of a patch, the names of each file in the tree, new and old, and the hunks."""
    lines = text.splitlines(keepends=True)
    names: list[list[str]] = []
    hunks = []
    k = 0
    while k < len(lines):
        old, new = (re.match(rb"(?:---|\+\+\+) ([^\t\r\n]*)", s) for s in (*lines[k:], b"")[:2])
        if not (lines[k].startswith(b"--- ") and old and new and lines[k + 1][:4] == b"+++ "):
            k += 1
            continue
        sides = [m[1].decode("utf-8", "replace").strip() for m in (new, old)]
        names.append(["" if side == "/dev/null" else side for side in sides])
        begin = k = k + 2
        while k < len(lines) and (head := _HUNK.match(lines[k])):
            k = _behind(patch, lines, k, [int(n) if n is not None else 1 for n in head.groups()])
        hunks.append(b"".join(lines[begin:k]))
        _nothing_more(patch, lines, k)
    named = zip(*(_in_tree(side) for side in zip(*names, strict=True)), strict=True)
    return [([p for p in paths if p] or [""], of) for paths, of in zip(named, hunks, strict=True)]


def _behind(patch: Path, lines: Sequence[bytes], at: int, left: list[int]) -> int:
    """Where the hunk that begins at a line ends, of so many lines before and after it."""
    k = at + 1
    while any(left) or b"".join(lines[k : k + 1]).startswith(b"\\"):
        counts = _LINES.get(lines[k][:1]) if k < len(lines) else None
        left = [n - c for n, c in zip(left, counts or (0, 0), strict=True)]
        if counts is None or min(left) < 0:
            raise InputError(
                f"{patch}: line {at + 1}: {_shown(lines[at])} does not have as many lines as it "
                f"says (up to line {k + 1})"
            )
        k += 1
    return k


def _nothing_more(patch: Path, lines: Sequence[bytes], begin: int) -> None:
    """Refuse what may be a hunk, or the rest of one, where the hunks of a file have ended."""
    for k in range(begin, len(lines)):
        if _NEXT.match(lines[k]):
            break
        if _STRAY.match(lines[k]) and (k == begin or lines[k].startswith(b"@")):
            raise InputError(
                f"{patch}: line {k + 1}: {_shown(lines[k])} belongs to no hunk; each begins with "
                f"'@@ -LINE,COUNT +LINE,COUNT @@', directly behind the one before it"
            )


def _shown(line: bytes) -> str:
    return repr(line.decode("utf-8", "replace").rstrip()[:60])


def _in_tree(paths: Sequence[str]) -> list[str]:
    """Names of files in the tree, of those of a patch.

    Whatever stands before them: nothing, a/ and b/ or another letter of git's, folders of
    somebody's own, as many as before the one that has the fewest.
    """
    named = [re.sub(r"^[abciow]/", "", p) for p in paths]
    own = [p for p, n in zip(paths, named, strict=True) if p == n]
    known = (re.match(r"((?:.*?/)?)(?:mm/[^/]+|include/.+)$", p) for p in own)
    deep = min((m[1].count("/") for m in known if m), default=0)
    return [n.split("/", deep)[-1] if p == n else n for p, n in zip(paths, named, strict=True)]


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


class _Entry(NamedTuple):
    """An option of a Kconfig file, or one of a choice."""

    name: str
    needs: tuple[str, ...]  #: expressions that all must hold
    defaults: list[tuple[str, str]]  #: each with the expression that it needs
    choice: tuple[str, ...] = ()  #: of which it is one


def defaults_of(
    kconfig: bytes, options: Mapping[str, str], off: Container[str] = ()
) -> dict[str, str]:
    """Defaults of mm/Kconfig by options that are set, or off; what neither says is off."""
    found: dict[str, str] = {}
    entries = _entries(kconfig.decode("utf-8", "replace"))
    for _ in entries:  # one may need another that stands behind it
        before = dict(found)
        for entry in entries:
            given = {**found, **options}
            chosen = any(n in options for n in entry.choice)
            if entry.name in off or chosen or not all(_holds(e, given) for e in entry.needs):
                found.pop(entry.name, None)
                continue
            value = next((v for v, needed in entry.defaults if _holds(needed, given)), "n")
            if re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", value):
                found[entry.name] = value
            elif _holds(value, given):
                found[entry.name] = "1"
            else:
                found.pop(entry.name, None)
        if found == before:
            break
    return found


def _entries(text: str) -> list[_Entry]:
    """Options, with what blocks and choices around them need."""
    entries: list[_Entry] = []
    around: list[list[str]] = []  # expressions of each block
    choice: list[tuple[str, str]] | None = None  # defaults of the one around
    begins = 0  # its first option
    inside: list[tuple[str, str]] | None = None  # defaults of what lines are about
    needs: list[str] = []
    helps: int | None = None  # indentation of the help that lines may be of; 0: its first line's
    for line in re.sub(r"\\\n", " ", text).splitlines():
        deep = len(line.expandtabs()) - len(line.expandtabs().lstrip())
        word, rest = (*line.split(None, 1), "", "")[:2]
        rest = rest.partition("#")[0].strip()
        if not word or (helps is not None and deep >= (helps := helps or deep) > 0):
            continue
        helps = 0 if word in ("help", "---help---") else None
        if word in ("config", "menuconfig"):
            inside, needs = [], []
            entries.append(_Entry(rest, (), inside))
        elif word in ("if", "menu", "choice"):
            around.append([rest] if word == "if" else [])
            needs = around[-1]
            inside = [] if word == "choice" else None
            if word == "choice":
                choice, begins = inside, len(entries)
        elif word in ("endif", "endmenu", "endchoice") and around:
            around.pop()
            inside, needs = None, []
            if word == "endchoice" and choice is not None:
                members = entries[begins:]
                chosen = [*choice, *((m.name, "") for m in members)]
                names = tuple(m.name for m in members)
                entries[begins:] = [
                    m._replace(
                        defaults=[("y" if n == m.name else "n", e) for n, e in chosen], choice=names
                    )
                    for m in members
                ]
                choice = None
        elif word == "depends":
            needs.append(rest.removeprefix("on").strip())
        elif word in ("default", "def_bool", "def_tristate") and inside is not None:
            value, _, needed = rest.partition(" if ")
            inside.append((value.strip(), needed.strip()))
        if entries and word in ("config", "menuconfig", "depends"):
            last = entries[-1]
            if inside is last.defaults:
                entries[-1] = last._replace(needs=(*(e for b in around for e in b), *needs))
    return entries


def _holds(expression: str, values: Mapping[str, str]) -> bool:
    """Whether an expression of Kconfig is y; an empty one is."""
    tokens = re.findall(r'"[^"]*"|\w+|&&|\|\||!=|[=!()]', expression)

    def either() -> bool:
        return joined("||", both, any)

    def both() -> bool:
        return joined("&&", one, all)

    def joined(
        mark: str, part: Callable[[], bool], together: Callable[[Iterable[bool]], bool]
    ) -> bool:
        found = [part()]
        while tokens[:1] == [mark]:
            del tokens[0]
            found.append(part())
        return together(found)

    def one() -> bool:
        token = tokens.pop(0) if tokens else "n"
        if token == "!":
            return not one()
        if token == "(":
            found = either()
            del tokens[:1]
            return found
        left = of(token)
        if tokens[:1] in (["="], ["!="]):
            same = tokens.pop(0) == "="
            right = of(tokens.pop(0)) if tokens else ""
            return (left == right) == same
        return left == "y"

    def of(token: str) -> str:
        if token[0] == '"' or token in ("y", "m", "n") or token.isdigit():
            return token.strip('"')
        value = values.get(token, "n")
        return "y" if value == "1" else value

    return not tokens or either()

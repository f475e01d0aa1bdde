"""Files of a kernel tree: read from folders and commits, patched, and its options.

A patch is taken as git am takes it: alone or several in mails, encoded or not, whatever stands
before the names of files.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import email
import math
import operator
import os
import posixpath
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.files import home_of, read_bytes, read_text
from pcpmodel.kernel.tree_source import Source

__all__ = [
    "FILES", "KCONFIG", "MAX_SECONDS", "Defaults", "config_of", "files_with", "patched",
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

#: Splits hunks of a file, but for that of a new file, and finds one that has no context.
_HEAD = re.compile(rb"(?m)^@@ -(?!0,0 ).*\n")
_BARE = re.compile(rb"\A(?:[-+\\].*\n)*\Z")

#: Lines that a line of a hunk stands for, before and after it, by its first character.
_LINES = {b" ": (1, 1), b"\n": (1, 1), b"\r": (1, 1), b"-": (1, 0), b"+": (0, 1), b"\\": (0, 0)}

#: Ends what belongs to a file of a patch: the next one, a signature, the next mail.
_NEXT = re.compile(rb"diff |Index: |--- |-- ?[\r\n]|From ")

#: Folders of a tree itself.
_TOP = re.compile(
    r"(?:arch|block|certs|crypto|Documentation|drivers|fs|include|init|io_uring|ipc|kernel|lib"
    r"|LICENSES|mm|net|rust|samples|scripts|security|sound|tools|usr|virt)/"
)

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
        folder = _around(tree)
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
    if where and home_of(where).is_dir() and not home_of(name).exists():
        return home_of(where), ref
    return home_of(name), ""


def _around(path: Path) -> Path:
    """The tree that a file or folder of mm/ is in, or else its folder; also of ``.`` in mm/."""
    folder = path.parent if path.is_file() else path
    return folder.absolute().parent if folder.absolute().name == "mm" else folder


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
    if path != home_of(name):
        return _at_commit(path, ref, wanted)
    around = _around(path)
    if around != path and (around / "include/linux/mmzone.h").is_file():
        return _files(os.fspath(around), wanted)
    if path.is_file():
        found = {"mm/page_alloc.c": path}
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
) -> tuple[dict[str, bytes], dict[str, bytes], tuple[str, ...]]:
    """The files before and after a patch, with those of C that it changes, and which others it
    changes."""
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
            if any(_BARE.search(hunk) for _, hunks in parts for hunk in _HEAD.split(hunks)[1:]):
                raise InputError(
                    f"{patch}: has hunks without a line of context (git diff -U0), so that nothing "
                    f"says where they belong; git diff without -U0 makes one that can be applied"
                )
            why = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InputError(
                f"{patch}: does not apply: {why[0] if why else 'git apply failed'} (every line of "
                f"context must be there)"
            )
        after = {name: read_bytes(Path(folder, name)) for name in files}
    if after == files:
        raise InputError(f"{patch}: leaves {', '.join(files)} as they are")
    return files, after, tuple(dict.fromkeys(unread))


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
    if not text.endswith(b"\n"):
        text += b"\n"  # as of a mail that was cut there
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
    somebody's own (also behind a letter, where the tree lies in a repository's folder), as many as
    before the one that has the fewest.
    """
    named = [re.sub(r"^[abciow]/", "", p) for p in paths]
    both = list(zip(paths, named, strict=True))
    of_git = [n for p, n in both if p != n]
    deep = _deep([p for p, n in both if p == n])
    deep_of_git = 0 if any(_TOP.match(n) for n in of_git) else _deep(of_git)
    return [n.split("/", deep if p == n else deep_of_git)[-1] for p, n in both]


def _deep(paths: Iterable[str]) -> int:
    """Folders before mm/ or include/ of the name that has the fewest."""
    known = (re.match(r"((?:.*?/)?)(?:mm/[^/]+|include/.+)$", p) for p in paths)
    return min((m[1].count("/") for m in known if m), default=0)


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


@dataclass
class _Entry:
    """An option of a Kconfig file, or a block or choice around some."""

    name: str = ""
    around: tuple[_Entry, ...] = ()
    number: bool = False
    prompt: bool = False  #: somebody is asked for it
    choice: tuple[str, ...] = ()  #: of which it is one
    depends: list[str] = field(default_factory=list)  #: expressions that all must hold
    #: Each with the expression that it needs; bounds of a range are one word after the other.
    default: list[tuple[str, str]] = field(default_factory=list)
    range: list[tuple[str, str]] = field(default_factory=list)
    select: list[tuple[str, str]] = field(default_factory=list)
    imply: list[tuple[str, str]] = field(default_factory=list)

    @property
    def needs(self) -> str:
        return " && ".join(f"({e})" for of in (*self.around, self) for e in of.depends)


class Defaults:
    """What mm/Kconfig makes of options that are set, or off.

    Parameters
    ----------
    kconfig : bytes
    where : str
        The options are from; for messages.
    options : mapping of str to str
        That are set.
    off : container of str
        That are not.
    whole : bool
        There are no others.

    Attributes
    ----------
    values : dict of str to str
        Of further options, by name; what nothing sets is off.
    undecided : dict of str to frozenset of str
        Options that it would take to be sure of one, by its name.

    Raises
    ------
    InputError
        For an option that is set to a number outside of its range.
    """

    def __init__(
        self,
        kconfig: bytes,
        where: str,
        options: Mapping[str, str],
        off: Container[str] = (),
        whole: bool = False,
    ) -> None:
        self.options, self.off, self.whole = options, off, whole
        self.values: dict[str, str] = {}
        self.undecided: dict[str, frozenset[str]] = {}
        entries = _entries(kconfig.decode("utf-8", "replace"))
        self.names = {e.name for e in entries}
        self.by_others: dict[str, dict[str, list[str]]] = {"select": {}, "imply": {}}
        for way, names in self.by_others.items():
            for entry in entries:
                for name, needed in getattr(entry, way):
                    names.setdefault(name, []).append(f"{entry.name} && ({needed or 'y'})")
        for _ in entries:  # one may need another that stands behind it
            before = dict(self.values), dict(self.undecided)
            for entry in entries:
                if entry.name in options:
                    continue
                value, undecided = self._value(entry)
                for now, found in ((self.values, value), (self.undecided, undecided)):
                    now.pop(entry.name, None)
                    if found:
                        now[entry.name] = found
            if before == (self.values, self.undecided):
                break
        for entry in entries:
            given = options.get(entry.name, "")
            low, high = self._range(entry)
            if _NUMBER.fullmatch(given) and not low <= int(given, 0) <= high:
                raise InputError(
                    f"{where}: CONFIG_{entry.name}={given} is outside {low}..{high}, its range in "
                    f"{KCONFIG}"
                )

    def _value(self, entry: _Entry) -> tuple[str, frozenset[str]]:
        """Of an option that nobody gave, and what it would take to be sure; empty: off."""
        name = entry.name
        selected, undecided = self._any(self.by_others["select"].get(name, ()))
        if selected:
            return "1", undecided
        if name in self.off or any(n in self.options for n in entry.choice):
            return "", undecided
        if not (entry.prompt or entry.default or self.whole or entry.choice):
            undecided |= {name}  # others may select it
        holds, more = self._holds(entry.needs)
        undecided |= more
        if not holds:
            return "", undecided
        implied, more = self._any(self.by_others["imply"].get(name, ()))
        undecided |= more
        value = "n"
        for default, needed in [("y", "")] if implied else entry.default:
            holds, more = self._holds(needed)
            undecided |= more
            if holds:
                value = default
                break
        if entry.number:
            value, more = self._of(value)
            if not _NUMBER.fullmatch(value):
                return "", undecided | more | {name}
            low, high = self._range(entry)
            return str(min(max(int(value, 0), low), high)), undecided | more
        holds, more = self._holds(value)
        return "1" if holds else "", undecided | more

    def _any(self, expressions: Iterable[str]) -> tuple[bool, frozenset[str]]:
        return self._holds(" || ".join(expressions) or "n")

    def _range(self, entry: _Entry) -> tuple[float, float]:
        for bounds, needed in entry.range:
            low, high = (self._of(word)[0] for word in (bounds.split() * 2)[:2])
            if self._holds(needed)[0] and _NUMBER.fullmatch(low) and _NUMBER.fullmatch(high):
                return int(low, 0), int(high, 0)
        return -math.inf, math.inf

    def _of(self, word: str) -> tuple[str, frozenset[str]]:
        """What an option or a constant is, and what it would take to be sure; y is 1."""
        if word[:1] == '"' or word in ("y", "m", "n") or _NUMBER.fullmatch(word):
            return "1" if word == "y" else word.strip('"'), frozenset()
        if word in self.options or word in self.names:
            given = {**self.values, **self.options}.get(word, "n")
            return given, self.undecided.get(word, frozenset())
        return "n", frozenset(() if self.whole or word in self.off else (word,))

    def _holds(self, expression: str) -> tuple[bool, frozenset[str]]:
        """Whether an expression is y, an empty one is, and what it would take to be sure."""
        tokens = re.findall(r'"[^"]*"|-?\w+|&&|\|\||[<>!]=|[<>=!()]', expression)

        def either() -> tuple[bool, frozenset[str]]:
            return joined("||", both, True)

        def both() -> tuple[bool, frozenset[str]]:
            return joined("&&", one, False)

        def joined(
            mark: str, part: Callable[[], tuple[bool, frozenset[str]]], enough: bool
        ) -> tuple[bool, frozenset[str]]:
            found = [part()]
            while tokens[:1] == [mark]:
                del tokens[0]
                found.append(part())
            if (enough, frozenset()) in found:
                return enough, frozenset()
            holds = any(h for h, _ in found) if enough else all(h for h, _ in found)
            return holds, frozenset().union(*(more for _, more in found))

        def one() -> tuple[bool, frozenset[str]]:
            token = tokens.pop(0) if tokens else "n"
            if token == "!":
                holds, more = one()
                return not holds, more
            if token == "(":
                found = either()
                del tokens[:1]
                return found
            left, more = self._of(token)
            if tokens and tokens[0] in _COMPARED:
                sign, other = tokens.pop(0), tokens.pop(0) if tokens else "n"
                right, of_other = self._of(other)
                more |= of_other
                if all(_NUMBER.fullmatch(side) for side in (left, right)):
                    return _COMPARED[sign](int(left, 0), int(right, 0)), more
                if sign[0] in "<>" or any(_NUMBER.fullmatch(w) for w in (token, other)):
                    more |= {w for w, side in ((token, left), (other, right)) if side == "n" != w}
                return sign[0] not in "<>" and _COMPARED[sign](left, right), more
            return left == "1", more

        return (True, frozenset()) if not tokens else either()


_NUMBER = re.compile(r"-?\d+|0[xX][0-9a-fA-F]+")
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge,
}  # fmt: skip


def _entries(text: str) -> list[_Entry]:
    """Options, with what blocks and choices around them need."""
    entries: list[_Entry] = []
    around: list[_Entry] = []
    begins = 0  # the first option of the choice around
    of = _Entry()  # that lines are about
    helps: int | None = None  # indentation of the help that lines may be of; 0: its first line's
    for line in re.sub(r"\\\n", " ", text).splitlines():
        deep = len(line.expandtabs()) - len(line.expandtabs().lstrip())
        word, rest = (*line.split(None, 1), "", "")[:2]
        rest = rest.partition("#")[0].strip()
        if not word or (helps is not None and deep >= (helps := helps or deep) > 0):
            continue
        helps = 0 if word in ("help", "---help---") else None
        if word in ("config", "menuconfig"):
            of = _Entry(rest, tuple(around))
            entries.append(of)
        elif word in ("if", "menu", "choice"):
            of = _Entry(depends=[rest] if word == "if" else [])
            around.append(of)
            begins = len(entries)
        elif word in ("endif", "endmenu", "endchoice") and around:
            block, of = around.pop(), _Entry()
            if word == "endchoice":
                members = entries[begins:]
                names = tuple(m.name for m in members)
                chosen = [*block.default, *((n, "") for n in names)]
                for m in members:
                    m.default = [("y" if n == m.name else "n", e) for n, e in chosen]
                    m.choice = names
        elif word in ("comment", "source"):
            of = _Entry()
        elif word == "depends":
            of.depends.append(rest.removeprefix("on").strip())
        elif word in ("bool", "tristate", "int", "hex", "string", "prompt"):
            of.number = of.number or word in ("int", "hex")
            of.prompt = of.prompt or bool(rest)
        elif word in ("default", "def_bool", "def_tristate", "range", "select", "imply"):
            value, _, needed = re.sub(r"\s+if\s+", " if ", rest).partition(" if ")
            known = getattr(of, "default" if word.startswith("def") else word)
            known.append((value.strip(), needed.strip()))
    return entries

"""C definitions in files of a kernel tree: what is defined where, under which conditions.

Functions, structs and enums are found with tree-sitter's C grammar; macros and the conditions
around a line are lines of the preprocessor and read as such.  Kernel files are more than C: where
a macro keeps the grammar from seeing a definition, it is looked at by itself.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pcpmodel.cached import cached_property
from pcpmodel.errors import InputError
from pcpmodel.files import read_bytes

__all__ = ["MAX_BYTES", "Item", "Source", "closed", "cut", "members", "segments"]

#: Larger than any file of mm/ [bytes], and than any function that decides.
MAX_BYTES = 4 << 20
MAX_FUNCTION_LINES = 2000

# What the grammar takes for a name behind a macro that it does not understand.
_KEYWORDS = {"struct", "enum", "union", "void", "int", "long", "char", "unsigned", "static", "bool"}
_WORD = re.compile(r"[A-Za-z_]\w*")
_BRACE = re.compile(r"[{}]")
_DIRECTIVE = re.compile(
    r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|undef|include)\b[ \t]*(.*)"
)
_IF_0 = re.compile(r"(?m)^[ \t]*#[ \t]*if[ \t]+0[ \t]*$")
_CONDITION = re.compile(r"(?m)^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(?:.*\\\n)*.*")
_COMMENT_OR_LITERAL = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S
)


# Where the linker puts a variable, and whether it is used: the grammar takes these for its name.
_PLACED = re.compile(
    r"\b(?:__read_mostly|__ro_after_init|__(?:mem)?init(?:data|const)|__refdata|__latent_entropy"
    r"|__maybe_unused|__always_unused|__used|_{2,4}cacheline_(?:internode)?aligned(?:_in_smp)?)\b"
)
_VARIABLE = re.compile(r"^[A-Za-z_][^(){}=;#]*(?=[=;])", re.M)
# At file level: what a macro may make definitions of, up to where its arguments begin.
_CALL = re.compile(r"^((?:static|extern|inline|__always_inline)[ \t]+)*(\w+)(?=[ \t]*\()", re.M)
_PARENTHESIS = re.compile(r"[()]")


@dataclass(frozen=True)
class Item:
    """One definition.

    Attributes
    ----------
    kind : str
        ``"function"``, ``"macro"``, ``"struct"``, ``"enum"``, ``"typedef"``, ``"variable"``, or
        ``"made"`` by a macro and not a variable alone.
    name : str
    text : str
        Without comments.
    file : str
        As in error messages.
    line : int
        First line in the file.
    conditions : tuple of str
        Lines of the preprocessor that its place depends on, each closed by one ``#endif``.
    defines : tuple of str
        Enumerators, or the name alone.
    """

    kind: str
    name: str
    text: str
    file: str
    line: int
    conditions: tuple[str, ...]
    defines: tuple[str, ...]

    @property
    def declares(self) -> bool:
        """Whether it only says that there is something of its name, or that there is not."""
        return self.undefines or (
            self.kind == "variable"
            and re.match(r"extern\b|(?:static\s+)?DECLARE_", self.text) is not None
        )

    @property
    def undefines(self) -> bool:
        """Whether it ends what a macro was before."""
        return self.kind == "macro" and self.text.lstrip("# \t").startswith("undef")

    @property
    def asks(self) -> list[str]:
        """Conditions around it and in it."""
        inside = [] if self.kind == "macro" else _CONDITION.findall(self.text)
        return [*self.conditions, *inside]

    @cached_property
    def words(self) -> frozenset[str]:
        """Identifiers that stand in it."""
        return frozenset(_WORD.findall(self.text))

    @cached_property
    def digest(self) -> str:
        """Of its text without white space and comments: the same in trees that agree on it."""
        words = re.findall(r"\w+|[^\w\s]", self.text)
        return hashlib.sha256("\x00".join(words).encode()).hexdigest()[:16]

    def parameters(self) -> list[tuple[str, str]]:
        """Type and name of each parameter of a function; of a macro the names alone."""
        head = self.text.partition(")" if self.kind == "macro" else "{")[0]
        begins = re.search(rf"\b{self.name}\s*\(", head)
        if begins is None:
            return []
        inside = head[begins.end() :].rpartition(")")[0]
        if self.kind == "macro":
            return [("macro argument", name) for name in _WORD.findall(head[begins.end() :])]
        found = []
        for part in inside.split(","):
            words = part.replace("*", " * ").split()
            if words in ([], ["void"]):
                continue
            found.append((" ".join(words[:-1]), words[-1]))
        return found


def _blank(match: re.Match[str]) -> str:
    """A comment as the white space that it is; a literal stays."""
    text = match.group(0)
    return text if text[0] in "\"'" else re.sub(r"[^\n]+", " ", text)


def _without_if_0(text: str) -> str:
    """Without the lines between ``#if 0`` and what ends that, which nobody compiles."""
    if not _IF_0.search(text):
        return text
    lines = text.split("\n")
    depth = 0  # conditions in such a part, and the one that it begins with
    for number, line in enumerate(lines):
        directive = _DIRECTIVE.match(line)
        word = directive.group(1) if directive else ""
        if not depth:
            depth = int(_IF_0.match(line) is not None)
            continue
        depth += (word in ("if", "ifdef", "ifndef")) - (word == "endif")
        if depth == 1 and word in ("else", "elif"):
            depth = 0
        if depth:
            lines[number] = ""
    return "\n".join(lines)


class Source:
    """One file of a tree.

    Parameters
    ----------
    name : str
        As in error messages.
    data : bytes
    """

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        if len(data) > MAX_BYTES:
            raise InputError(f"{name}: has {len(data):,} bytes; allowed: up to {MAX_BYTES:,}")
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        if "\0" in text:
            raise InputError(f"{name}: is not C source: has a zero byte")
        text = _COMMENT_OR_LITERAL.sub(_blank, text)
        text = _without_if_0(text)
        self.text = _VARIABLE.sub(lambda v: _PLACED.sub(lambda m: " " * len(m[0]), v[0]), text)
        self.lines = self.text.split("\n")
        self._balanced()

    def _balanced(self) -> None:
        """Refuse braces that do not match; of branches of the preprocessor the last counts."""
        opened: list[int] = []
        before: list[list[int]] = []
        directive = False
        for number, line in enumerate(self.lines, 1):
            goes_on, directive = directive, line.endswith("\\") and directive
            if line.lstrip().startswith("#") or goes_on:
                directive = line.endswith("\\")
                word = _DIRECTIVE.match(line) if not goes_on else None
                if word and word.group(1) in ("if", "ifdef", "ifndef"):
                    before.append(opened[:])
                elif word and before and word.group(1) in ("elif", "else"):
                    opened = before[-1][:]
                elif word and before and word.group(1) == "endif":
                    before.pop()
                continue
            for brace in _BRACE.findall(_COMMENT_OR_LITERAL.sub("", line)):
                if brace == "{":
                    opened.append(number)
                elif opened:
                    opened.pop()
                else:
                    raise InputError(f"{self.name}: line {number}: '}}' without '{{'")
        if opened:
            raise InputError(f"{self.name}: line {opened[-1]}: '{{' without '}}'")

    @cached_property
    def conditions(self) -> list[tuple[str, ...]]:
        """For each line, the conditions around it."""
        stack: list[str] = []
        found = []
        for number, line in enumerate(self.lines, 1):
            directive = _DIRECTIVE.match(line)
            word = directive.group(1) if directive else ""
            if word in ("if", "ifdef", "ifndef"):
                found.append(tuple(stack))
                stack.append(self._whole(number))
                continue
            if word in ("elif", "else", "endif"):
                if not stack:
                    raise InputError(f"{self.name}: line {number}: #{word} without #if")
                if word == "endif":
                    stack.pop()
                else:
                    stack[-1] += "\n" + self._whole(number)
            found.append(tuple(stack))
        if stack:
            raise InputError(f"{self.name}: {stack[-1].splitlines()[0]!r} has no #endif")
        return found

    def _whole(self, number: int) -> str:
        """A line with those that it is continued on."""
        text = self.lines[number - 1]
        while text.endswith("\\") and number < len(self.lines):
            text = text[:-1] + " " + self.lines[number]
            number += 1
        return text.strip()

    def directives(self) -> Iterator[tuple[int, str, str]]:
        """Lines of the preprocessor that matter here: number, word, and the whole of it."""
        for number, line in enumerate(self.lines, 1):
            directive = _DIRECTIVE.match(line)
            if directive:
                yield number, directive.group(1), self._whole(number)

    def includes(self) -> dict[int, str]:
        """Files that are included, as the tree names them, by line."""
        found = {}
        folder = posixpath.dirname(self.name)
        for number, word, text in self.directives():
            path = re.search(r'"([^"]+)"|<([^>]+)>', text) if word == "include" else None
            if path and path[1]:
                found[number] = posixpath.normpath(posixpath.join(folder, path[1]))
            elif path:
                found[number] = f"include/{path[2]}"
        return found

    def macros(self) -> Iterator[Item]:
        """What is defined, and what is so no more."""
        for number, line in enumerate(self.lines, 1):
            directive = _DIRECTIVE.match(line)
            if directive and directive.group(1) in ("define", "undef"):
                name = _WORD.match(directive.group(2))
                if name:
                    yield Item(
                        "macro", name.group(0), self._whole(number), self.name, number,
                        self.conditions[number - 1], (name.group(0),),
                    )  # fmt: skip

    def made_by_macros(self) -> Iterator[Item]:
        """What macros make at file level: variables of each CPU, locks, guards, functions."""
        macros = {**_kernel_macros(), **{m.name: m.text for m in self.macros()}}
        for call in _CALL.finditer(self.text):
            if call[2] not in macros:
                continue
            end = closed(self.text, self.text.index("(", call.end()) + 1)
            ends = re.compile(r"\s*(?:[^;(){}]*=[^;]*|[^;(){}\n]*);|(?!\s*[({])").match(
                self.text, end
            )
            if not end or ends is None:
                continue
            text = self.text[call.start() : ends.end()]
            made = [_what(n) for n in self._parse(_expanded(text, macros)).children]
            names = [name for kind, some in made if kind for name in some]
            if names:
                number = self.text.count("\n", 0, call.start()) + 1
                kind = "variable" if {k for k, _ in made if k} == {"variable"} else "made"
                yield Item(
                    kind, names[0], text, self.name, number, self.conditions[number - 1],
                    tuple(names),
                )  # fmt: skip

    @cached_property
    def items(self) -> dict[str, list[Item]]:
        """What is defined, by each name that it defines; several where conditions choose."""
        found: dict[str, list[Item]] = {}
        made, left = list(self.made_by_macros()), self.text
        for item in made:  # which the grammar would take for a part of what follows
            left = left.replace(item.text, re.sub(r"[^\n]", " ", item.text), 1)
        for item in [*self.macros(), *made, *self._definitions(self._parse(left), 0)]:
            for name in item.defines:
                found.setdefault(name, []).append(item)
        return found

    @cached_property
    def _heads(self) -> dict[str, list[int]]:
        """Lines, from 0, that may begin a function, by each name that a parenthesis follows."""
        found: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines):
            if line and not re.match(r"\s|#|typedef", line):
                before = re.split(r"[;{}]", line, maxsplit=1)[0]
                for name in dict.fromkeys(re.findall(r"(\w+)\(", before)):
                    found.setdefault(name, []).append(number)
        return found

    def defined(self, name: str) -> list[Item]:
        """Definitions of a name; a function also where the grammar lost its way before it."""
        if name in self.items:
            return self.items[name]
        found: list[Item] = []
        for number in self._heads.get(name, []):
            rest = "\n".join(self.lines[number : number + MAX_FUNCTION_LINES])
            for item in self._definitions(self._parse(rest), number):
                if item.kind == "function" and item.name == name and item.line == number + 1:
                    found.append(item)
                break
        return found

    @staticmethod
    def _parse(text: str) -> Any:
        import tree_sitter_c
        from tree_sitter import Language, Parser

        return Parser(Language(tree_sitter_c.language())).parse(text.encode()).root_node

    def _definitions(self, node: Any, above: int) -> Iterator[Item]:
        """Definitions below a node of the grammar; ``above``: lines before the text parsed."""
        for child in node.children:
            kind, names = _what(child)
            if kind:
                line = child.start_point[0] + above
                text = child.text.decode()
                if kind == "function" and text.count("\n") > MAX_FUNCTION_LINES:
                    raise InputError(
                        f"{self.name}: line {line + 1}: {names[0]}() has more than "
                        f"{MAX_FUNCTION_LINES} lines"
                    )
                if kind in ("struct", "enum") and not text.endswith(";"):
                    text += ";"
                yield Item(
                    kind, names[0], text, self.name, line + 1, self.conditions[line], tuple(names)
                )
            elif child.type.startswith("preproc_") or child.type == "ERROR":
                yield from self._definitions(child, above)


_ATTRIBUTE = re.compile(r"\b__\w+\b(?:\s*\((?:[^()]|\([^()]*\))*\))?")
_POINTER = re.compile(r"\(\s*\*\s*(\w+)\s*\)\s*\([^()]*\)")
_MEMBER = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?::\s*\w+\s*)?[,;]")
_NOTHING = re.compile(  # between conditions
    r"^[ \t]*#[ \t]*if(?:.*\\\n)*.*\n(?:\s*(?:#[ \t]*el(?:.*\\\n)*.*)?\n)*[ \t]*#[ \t]*endif.*$",
    re.M,
)
_INNER = re.compile(r"\b(?:struct|union)\b[^{};]*\{([^{}]*)\}\s*(\w*)")


def members(struct: str) -> Iterator[tuple[list[str], int, int]]:
    """Names that each declaration in a structure adds to it, and where the declaration stands."""
    begin = at = struct.index("{") + 1
    depth = 0
    for mark in re.compile(r"[{};]|^[ \t]*#(?:.*\\\n)*.*$", re.M).finditer(struct, at):
        if mark[0] == "{":
            depth += 1
        elif mark[0] == "}":
            depth -= 1
            if depth < 0:
                return
        elif mark[0] != ";":
            if not depth:
                begin = mark.end()
        elif not depth:
            declared = struct[begin : mark.end()]
            text = re.sub(r"(?m)^[ \t]*#(?:.*\\\n)*.*$", "", declared)
            text = _POINTER.sub(r"\1", _ATTRIBUTE.sub("", text))
            while _INNER.search(text):  # without a name, what stands in it is a member
                text = _INNER.sub(lambda m: f"int {m[2]}" if m[2] else m[1], text)
            space = len(declared) - len(declared.lstrip())
            yield _MEMBER.findall(text), begin + space, mark.end()
            begin = mark.end()


def cut(struct: str, kept: Container[str], first: str) -> str:
    """A structure with something in it first, and of its own members some: each on its line."""
    begin = struct.index("{") + 1
    end = struct.rindex("}")
    left = list(re.sub(r"[^\n]", " ", struct[begin:end]))
    directives = [m.span() for m in re.finditer(r"^[ \t]*#(?:.*\\\n)*.*$", struct, re.M)]
    spans = [(a, b) for names, a, b in members(struct) if any(n in kept for n in names)]
    for a, b in (*directives, *spans):
        left[a - begin : b - begin] = struct[a:b]
    body = "".join(left)
    while _NOTHING.search(body):
        body = _NOTHING.sub(lambda m: "\n" * m[0].count("\n"), body)
    tail = re.sub(r"\s", " ", _ATTRIBUTE.sub("", struct[end:]))
    return f"{struct[:begin]} {first} {body}{tail}"


def closed(text: str, at: int) -> int:
    """Behind the parenthesis that closes one before ``at``; 0 if none does."""
    depth = 1
    for parenthesis in _PARENTHESIS.finditer(text, at):
        depth += 1 if parenthesis[0] == "(" else -1
        if not depth:
            return parenthesis.end()
    return 0


@cache
def _kernel_macros() -> dict[str, str]:
    """Macros of the surroundings, as they stand there."""
    files = (Path(__file__).with_name(f"tree_{n}.h") for n in ("library", "surroundings"))
    return {m.name: m.text for f in files for m in Source("", read_bytes(f)).macros()}


def _expanded(text: str, macros: Mapping[str, str]) -> str:
    """A call of a macro as what it stands for, and so on while that begins with one."""
    for _ in range(8):
        call = _CALL.match(text)
        macro = re.match(
            r"\s*#\s*define\s+\w+(\([^)]*\))?(.*)", macros.get(call[2], "") if call else "", re.S
        )
        if call is None or macro is None:
            break
        body, end = macro[2].strip(), call.end()
        if macro[1]:
            begin = text.index("(", end) + 1
            end = closed(text, begin)
            names = [n.strip() for n in macro[1][1:-1].split(",")]
            given = _arguments(text[begin : end - 1])
            if names[-1] == "...":
                names[-1] = "__VA_ARGS__"
                given[len(names) - 1 :] = [",".join(given[len(names) - 1 :])]
            body = _with(body, dict(zip(names, given, strict=False)))
        text = text[: call.start(2)] + re.sub(r"\s*##\s*", "", body) + text[end:]
    return text


def _with(text: str, words: Mapping[str, str]) -> str:
    """A text with others in place of some of its words."""
    return re.sub(r"\w+", lambda word: words.get(word[0], word[0]), text)


def _arguments(text: str) -> list[str]:
    """Arguments between the parentheses of a call."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [f.strip() for f in found]


def segments(sources: Sequence[Source]) -> list[tuple[Source, int, int]]:
    """Lines of mm/page_alloc.c and of its headers as the preprocessor comes to them.

    Headers that are included by files that nobody gave stand where the first such file is.
    """
    main = sources[0]
    files = {s.name: s for s in sources}
    found: list[tuple[Source, int, int]] = []
    done: set[str] = set()

    def reach(source: Source) -> set[str]:
        reached, todo = {source.name}, [source]
        while todo:
            new = {*todo.pop().includes().values()} & files.keys() - reached
            reached |= new
            todo += (files[n] for n in new)
        return reached

    reached = reach(main)
    headers = [s for s in sources if s.name.endswith(".h") and s.name not in reached]
    inner = {path for s in headers for path in s.includes().values()}
    left: list[Source] = []
    placed: set[str] = set()
    for header in sorted(headers, key=lambda s: s.name in inner):
        if header.name not in placed:
            left.append(header)
            placed |= reach(header)

    def visit(source: Source) -> None:
        done.add(source.name)
        begin = 1
        for line, path in source.includes().items():
            inner = [h for h in ([files[path]] if path in files else left) if h.name not in done]
            if inner:
                found.append((source, begin, line))
                begin = line + 1
            for header in inner:
                if header.name not in done:
                    visit(header)
        found.append((source, begin, len(source.lines)))

    if all(path in files for n in reached for path in files[n].includes().values()):
        for header in left:
            visit(header)
    visit(main)
    return found


def _named(node: Any, *kinds: str) -> Any:
    """The first descendant of one of these kinds."""
    todo = [node]
    while todo:
        node = todo.pop(0)
        if node.type in kinds:
            return node
        todo += node.children
    return None


def _what(node: Any) -> tuple[str, list[str]]:
    """Kind of a definition and the names that it defines; an empty kind for anything else."""
    if node.type == "function_definition":
        declarator = _named(node.child_by_field_name("declarator") or node, "function_declarator")
        name = declarator and _named(declarator, "identifier")
        return ("function", [name.text.decode()]) if name else ("", [])
    if node.type in ("struct_specifier", "enum_specifier"):
        return _tagged(node)
    if node.type == "type_definition":
        declarator = node.child_by_field_name("declarator")
        name = declarator and _named(declarator, "type_identifier")
        return ("typedef", [name.text.decode()]) if name else ("", [])
    if node.type == "declaration":
        of = node.child_by_field_name("type")
        names = map(_declared, node.children_by_field_name("declarator"))
        found = [n.text.decode() for n in names if n]
        found = [n for n in found if n and n not in _KEYWORDS and not _PLACED.fullmatch(n)]
        if of is not None and of.child_by_field_name("body") is not None:
            kind, tagged = _tagged(of)
            return (kind or ("variable" if found else ""), [*tagged, *found])
        return ("variable", found) if found else ("", [])
    return "", []


def _declared(declarator: Any) -> Any:
    """The name of a variable; of a function none, but of a pointer to one."""
    node, function = declarator, False
    while node is not None and node.type != "identifier":
        if node.type == "parenthesized_declarator":
            node, function = node.named_children[0], False
            continue
        function = function or node.type == "function_declarator"
        node = node.child_by_field_name("declarator")
    return None if function else node


def _tagged(node: Any) -> tuple[str, list[str]]:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if body is None:
        return "", []
    names = [name.text.decode()] if name else []
    if node.type == "struct_specifier":
        return ("struct", names) if names else ("", [])
    names += [
        e.child_by_field_name("name").text.decode() for e in body.children if e.type == "enumerator"
    ]
    todo = [c for c in body.children if c.type.startswith("preproc_")]
    while todo:
        inner = todo.pop()
        if inner.type == "enumerator":
            names.append(inner.child_by_field_name("name").text.decode())
        todo += inner.children
    return ("enum", names) if names else ("", [])

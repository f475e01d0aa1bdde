"""What of a kernel tree stands beside the functions that are compiled: other files, other code."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pcpmodel.errors import InputError
from pcpmodel.kernel.tree_files import KCONFIG, files_with
from pcpmodel.kernel.tree_names import PCPF, flags_in
from pcpmodel.kernel.tree_source import Item, Source

__all__ = ["begin_at_0", "changed", "defining"]

#: Where a function begins.
_HEAD = re.compile(r"(?m)^(?!\s|#|typedef)[^;{}()\n]*\b(\w+)\(")


def begin_at_0(
    name: str,
    fields: Mapping[str, str],
    sources: Sequence[Source],
    compiled: Iterable[Item],
    only_written: Container[str] = (),
) -> None:
    """Refuse fields and flags of the tree's own that get a value where nothing is compiled.

    Of a name that other structures have, too, what stands before it tells: a variable of that
    type, or no variable.  What is counted there and nobody asks for (``only_written``) decides
    nothing.
    """
    compiled = list(compiled)
    ours = {(i.file, i.line + n) for i in compiled for n in range(i.text.count("\n") + 1)}
    for source, own in ((s, f) for s in sources for f in fields if f in s.text):
        for of, value, at in _values(own, source.text, own not in only_written):
            line = source.text.count("\n", 0, at) + 1
            if value in ("0", "NULL", "false") or (source.name, line) in ours:
                continue
            kind = f"struct {fields[own]}".replace(
                "struct pglist_data", "(?:struct pglist|pg)_data\\w*"
            )
            typed = re.compile(rf"\b{kind}\b[^;,(){{}}]*\b{re.escape(of)}\b")
            if of in ")]" or any(typed.search(s.text) for s in sources):
                raise InputError(
                    f"{name}: {source.name}: line {line}: {own} gets a value where nothing is "
                    f"compiled; fields of a tree's own begin at 0"
                )
    flags = {w for i in compiled if i.kind == "function" for w in flags_in(i.text)}
    for source, flag in ((s, f) for s in sources for f in sorted(flags - {*PCPF})):
        for given in re.finditer(rf"(?<![=!<>])=(?!=)[^;{{}}]*\b{flag}\b[^;]*;", source.text):
            line = source.text.count("\n", 0, given.start()) + 1
            if (source.name, line) not in ours and not given[0].startswith(("= ~", "=~")):
                raise InputError(
                    f"{name}: {source.name}: line {line}: {flag} is set where nothing is compiled; "
                    f"flags of a tree's own are clear until a compiled function sets them"
                )


def _values(own: str, text: str, counted: bool) -> Iterator[tuple[str, str, int]]:
    """What stands before a field that gets a value, the value, and where; "" for a changed one."""
    place = rf"(?P<of>\w+|[)\]])\s*(?:->|\.)\s*{own}\b(?:\s*\[[^\]]*\]|\.\w+)*"
    ways = [
        rf"{place}\s*=(?!=)\s*(?P<value>[^;,]+)[;,]",
        rf"\w*(?:_set|WRITE_ONCE|_write)\([^;{{}}]*?{place}\s*,\s*(?P<value>[^;]+)\);",
    ]
    if counted:
        ways += [
            rf"{place}\s*(?:\+\+|--|(?:[-+*/%|&^]|<<|>>)=)(?P<value>)",
            rf"(?:\+\+|--)\s*{place}(?P<value>)",
            rf"\w*_(?:inc|dec|add|sub|or|xor|xchg|inc_return|add_return)\([^;{{}}]*?{place}"
            rf"(?P<value>)",
        ]
    for way in ways:
        for given in re.finditer(way, text):
            yield given["of"], given["value"].strip(), given.start("of")


def defining(tree: str, names: Iterable[str], sources: Sequence[Source]) -> list[Source]:
    """Other files of a tree that define names which none that is read does.

    Of several that define one, and are no header, nobody knows which is meant.
    """
    missing = {n for n in names if not any(_defines(s, n) for s in sources)}
    if not missing:
        return []
    found = []
    for file, data in files_with(tree, missing, {s.name for s in sources}).items():
        with contextlib.suppress(InputError):  # of C that is not understood
            source = Source(file, data)
            found += [(n, source) for n in sorted(missing) if _defines(source, n)]
    both: dict[str, list[Source]] = {}
    for name, source in found:
        both.setdefault(name, []).append(source)
    alone = [
        s for some in both.values()
        if len({s.name.endswith(".h") for s in some}) == len(some) for s in some
    ]  # fmt: skip
    return list({s.name: s for s in alone}.values())


def _defines(source: Source, name: str) -> bool:
    return any(not i.declares for i in source.defined(name))


def changed(before: Mapping[str, bytes], sources: Iterable[Source]) -> tuple[str, ...]:
    """Names of definitions that are otherwise than before, or new."""
    found: dict[str, None] = {}
    then = [Source(n, data) for n, data in before.items() if n != KCONFIG]
    texts = {s.name: s.text for s in then}
    for now in sources:
        if texts.get(now.name) == now.text:
            continue
        for name, items in _all(now):
            if all(i.text.split()[1:] == [name] for i in items if i.kind == "macro") and any(
                i.kind == "macro" for i in items
            ):
                continue  # keeps a header from being read twice
            known = {_alone(i).digest for s in then for i in s.defined(name)}
            # The grammar may have lost its way in one of them: what stands there is not new.
            if any(
                i.digest not in known and not any(i.text in t for t in texts.values())
                for i in map(_alone, items)
            ):
                found[name] = None
    return tuple(found)


def _alone(item: Item) -> Item:
    """A function up to its end, where the grammar took what follows for a part of it."""
    end = item.text.find("\n}") + 2
    return item if item.kind != "function" or end < 2 else replace(item, text=item.text[:end])


def _all(source: Source) -> Iterator[tuple[str, list[Item]]]:
    """Definitions of a file by name, with functions that the grammar took for a part of others."""
    yield from source.items.items()
    behind = (i.text[len(_alone(i).text) :] for some in source.items.values() for i in some)
    names = {name for text in behind for name in _HEAD.findall(text)} - source.items.keys()
    for name in sorted(names):
        yield name, source.defined(name)

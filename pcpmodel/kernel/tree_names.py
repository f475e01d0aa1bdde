"""What a kernel tree calls otherwise than every known kernel, and is the same.

Fields of struct per_cpu_pages, flags of it and of zones, and the functions that decide are known by
their names: a field of another name would be taken for one of the tree's own, which begins at 0 and
which nothing outside of the compiled functions sets.  Where the known name in its place makes the
text of a function one that a known kernel has, it is that.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from pcpmodel.kernel.tree_source import Source, members
from pcpmodel.kernel.zone import ZONE_FLAGS

__all__ = ["PCPF", "by_known_names", "flags_in"]

_STRUCT = "per_cpu_pages"
_PCPF = re.compile(r"\bPCPF_\w+")
_ZONE_BIT = re.compile(r"_bit\(\s*(ZONE_\w+)\s*,")
#: Flags of a zone in known kernels.
_ZONE = tuple(f"ZONE_{flag}" for flag in ZONE_FLAGS)
#: Flags of struct per_cpu_pages in known kernels.
PCPF = ("PCPF_PREV_FREE_HIGH_ORDER", "PCPF_FREE_HIGH_BATCH")

#: Names of a function that may be of its own, up to which every combination is tried.
_MOST = 5


@dataclass(frozen=True)
class _Rename:
    """A name of the tree, and the known one that may stand in its place."""

    name: str
    of: str
    is_field: bool

    def put(self, text: str, struct: bool = False) -> str:
        """A text with the known name; of a field where it is asked for, or the structure has it."""
        if self.is_field and not struct:
            return re.sub(rf"((?:->|\.)\s*){self.name}\b", rf"\g<1>{self.of}", text)
        return re.sub(rf"\b{self.name}\b", self.of, text)


def flags_in(text: str) -> set[str]:
    """PCPF_* that stand in a text."""
    return set(_PCPF.findall(text))


def by_known_names(
    sources: Sequence[Source],
    fields: Collection[str],
    texts: Mapping[str, Container[str]],
    known: Collection[str],
) -> tuple[list[Source], dict[str, str]]:
    """Files with the known names in the place of the tree's, and which those are.

    Parameters
    ----------
    sources : sequence of Source
    fields : collection of str
        Of struct per_cpu_pages in known kernels.
    texts : mapping
        Digests of the texts that each function has in known kernels.
    known : collection of str
        Functions that are called by their names.

    Returns
    -------
    sources : list of Source
    names : dict
        Known name by the tree's.
    """
    found: dict[str, str] = {}
    now = list(sources)
    while renames := _renames(now, fields, texts, known):
        found |= {r.name: r.of for r in renames}
        now = [_renamed(s, renames) for s in now]
    return now, found


def _renames(
    sources: Sequence[Source],
    fields: Collection[str],
    texts: Mapping[str, Container[str]],
    known: Collection[str],
) -> list[_Rename]:
    """Of one function those that make its text one of known kernels; none: no function has any."""
    may_be = _fields_and_flags(sources, fields)
    missing = [
        n for n in known if n in texts and not any(re.search(rf"\b{n}\b", s.text) for s in sources)
    ]
    for item in (i for s in sources for some in s.items.values() for i in some):
        if item.kind != "function":
            continue
        of_its_own = [some for name, some in may_be.items() if name in item.words][:_MOST]
        for target in [item.name] if item.name in texts else missing:
            itself = [_Rename(item.name, target, False)] if target != item.name else []
            for chosen in product(*([None, *some] for some in of_its_own)):
                renames = [r for r in chosen if r] + itself
                text = item.text
                for rename in renames:
                    text = rename.put(text)
                if (
                    renames and len({r.of for r in renames}) == len(renames)
                    and replace(item, text=text).digest in texts[target]
                ):  # fmt: skip
                    return renames
    return []


def _fields_and_flags(
    sources: Sequence[Source], fields: Collection[str]
) -> dict[str, list[_Rename]]:
    """Each field and flag that no known kernel has: those that this one does not have instead."""
    structs = [i for s in sources for i in s.defined(_STRUCT) if i.kind == "struct"]
    have = {name for i in structs[-1:] for names, _, _ in members(i.text) for name in names}
    flags = {w for s in sources for w in flags_in(s.text)}
    bits = {w for s in sources for w in _ZONE_BIT.findall(s.text)}
    found = {}
    for names, all_of, is_field in (
        (have, fields, True), (flags, PCPF, False), (bits, _ZONE, False),
    ):  # fmt: skip
        instead = [of for of in all_of if of not in names]
        for name in sorted(names - {*all_of, "lock", "lists"}):
            found[name] = [_Rename(name, of, is_field) for of in instead]
    return found


def _renamed(source: Source, renames: Sequence[_Rename]) -> Source:
    """A file with the known names; its lines stay where they are."""
    text = source.text
    structs = [i.text for i in source.defined(_STRUCT) if i.kind == "struct"]
    for rename in renames:
        text = rename.put(text)
        for i, struct in enumerate(structs):
            before, structs[i] = rename.put(struct), rename.put(struct, struct=True)
            text = text.replace(before, structs[i], 1)
    return source if text == source.text else Source(source.name, text.encode())

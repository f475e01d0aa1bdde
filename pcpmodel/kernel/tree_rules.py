"""A kernel tree as a release: what the engines need to know of it beside its functions.

The functions of a tree are whole operations (rmqueue_pcplist(), the commit of a free with its
drains); the engines go in the steps of `pcp.pxd`, between which locks are waited for.  Whether
the steps come to the same as the whole operations is tried by random operations when a tree is
used for the first time.  So is, of allocations and of frees that take no lock, whether they may be
done many at once by the rules of the release that is nearest, or, if not, by the tree in leaps
(tree_glue.h).  Where neither may, every page asks the tree.

What lies outside the page lists (buddy lists, watermarks, the vmstat step with its ``expire``) is
that of the nearest release.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, Protocol

from pcpmodel.cached import cached_property
from pcpmodel.errors import InputError
from pcpmodel.files import parse_json, read_json, read_sealed, write_sealed
from pcpmodel.kernel.lists import PCP_LISTS_ROOM
from pcpmodel.kernel.releases import CommitDrain, Decay, Release, Rules, release, releases
from pcpmodel.kernel.tree_pages import (
    FIELDS,
    compare,
    engine_lists,
    lists_correspond,
    lists_of_tree,
    sizing,
    steps_of_tree,
)
from pcpmodel.kernel.tree_source import Item

__all__ = [
    "Compiled", "Hits", "TreeRelease", "known_texts", "lacks", "near", "nearest", "release_of",
]  # fmt: skip

#: Random operations in which steps and whole operations must come to the same; those of them that
#: take no lock are many in a row where that is to be shown.
OPERATIONS = 4_000_000
ROWS = 200_000
TRY_SECONDS = 60  # takes a fraction of one

#: Numbers of lists that the engines know: beyond two of huge pages more stay empty.
_LISTS = (3, *range(13, PCP_LISTS_ROOM + 1))


class Compiled(Protocol):
    """What is asked of a `pcpmodel.kernel.tree.Tree` here; each is explained there."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def library(self) -> Path: ...
    @property
    def text(self) -> str: ...
    @property
    def functions(self) -> Mapping[str, Item]: ...
    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def outside(self) -> tuple[str, ...]: ...
    @property
    def state(self) -> tuple[str, ...]: ...
    @property
    def new_fields(self) -> tuple[str, ...]: ...
    @property
    def caveats(self) -> list[str]: ...
    @property
    def batch_scale_max(self) -> int: ...
    def with_batch_scale_max(self, batch_scale_max: int) -> Compiled: ...


class Hits(IntFlag):
    """How the engines do what takes no lock, of allocations and of frees; and refills."""

    EACH = 0  #: page by page
    ALLOCS_AS_RULES = 1  #: allocations by the rules of the nearest release
    FREES_AS_RULES = 2
    ALLOCS_SKIP = 4  #: by the tree, leaping over what goes on as it began
    FREES_SKIP = 8
    ALLOCS_ADD = 16  #: with ALLOCS_AS_RULES: the tree's own fields change by the same each time
    FREES_ADD = 32
    REFILLS_IN_HOLDS = 64  #: rmqueue_bulk() may drop zone->lock on its way: it is asked each time


@dataclass(frozen=True)
class TreeRelease(Release):
    """A kernel state whose page-list decisions are the compiled functions of a tree.

    Attributes
    ----------
    name, patches, batch_scale_max
        As of `Release`; the patches are those of the nearest release.
    digest : str
        Of what was compiled.
    base : str
        The nearest release, whose rules hold outside the page lists.
    commit_drain : int
        What lets a commit's drain go on after a hold (`CommitDrain`), as it was found.
    hits : Hits
        How operations that take no lock are done, each way as it was found to come to the same.
    """

    digest: str = ""
    base: str = ""
    commit_drain: int = CommitDrain.CHUNKS
    hits: Hits = Hits.EACH
    tree: Any = field(default=None, compare=False, repr=False)

    @cached_property
    def rules(self) -> Rules:
        """Rules of the nearest release, as far as the tree leaves them."""
        base = Release(self.base, self.patches, self.batch_scale_max)
        rules = base.rules
        lists = engine_lists(self.tree, base)
        decay = rules.decay or Decay.EIGHTH
        made = replace(
            rules,
            nr_pcp_lists=lists if lists in _LISTS else rules.nr_pcp_lists,
            high_min_max="high_min" in self.tree.fields,
            decay=decay if "decay_pcp_high" in self.tree.functions else Decay.NONE,
            commit_drain=self.commit_drain,
        )
        object.__setattr__(made, "sizing", partial(sizing, self.tree))
        return made

    def steps(self) -> dict[str, int]:
        """Where the compiled functions are; they are loaded."""
        if read_sealed(self.tree.library) is None:
            raise InputError(
                f"{self.name}: what was compiled of it is not on this machine any more "
                f"({self.tree.library}); open the tree here"
            )
        return {"tree": steps_of_tree(self.tree), "tree_hits": int(self.hits)}

    @property
    def notes(self) -> list[str]:
        """What to know before using a result."""
        found = [
            f"{self.name}: the page lists go by the tree's own functions (digest {self.digest}); "
            f"all else is that of {self.base}."
        ]
        if self.tree is not None and self.rules.nr_pcp_lists != lists_of_tree(self.tree):
            found.append(
                f"{self.name}: of its {lists_of_tree(self.tree)} lists those that "
                f"{self.base} does not have stay empty."
            )
        if self.tree is not None:
            said = [*self.tree.caveats, *lacks(self.tree, Release(self.base, self.patches))]
            found += [f"{self.name}: {what}" for what in said]
        each = [
            what
            for what, ways in (
                ("allocation", Hits.ALLOCS_AS_RULES | Hits.ALLOCS_SKIP),
                ("free", Hits.FREES_AS_RULES | Hits.FREES_SKIP),
            )
            if not self.hits & ways
        ]
        if each:
            found.append(
                f"{self.name}: every {' and every '.join(each)} asks the tree: many at once do not "
                f"come to the same."
            )
        return found

    @property
    def recorded(self) -> dict[str, str]:
        """Digest of the tree and the release that stands in for what is not taken of it."""
        return {"tree": self.digest, "tree_base": self.base}

    def plus(self, *names: str | int) -> NoReturn:
        """Refuse: a patch of a tree is put on the tree."""
        raise InputError(
            f"{self.name} is a kernel tree: patch the tree itself, or pm.tree(path, patch=FILE)"
        )

    without = plus

    @property
    def uses_batch_scale_max(self) -> bool:
        """Whether what was compiled looks at CONFIG_PCP_BATCH_SCALE_MAX."""
        return "CONFIG_PCP_BATCH_SCALE_MAX" in self.tree.text

    def _since(self, *version: int) -> bool:
        """Of the nearest release: a tree is named by its folder, which says no version."""
        return Release(self.base, self.patches)._since(*version)

    def with_batch_scale_max(self, batch_scale_max: int) -> TreeRelease:
        """The tree compiled with another CONFIG_PCP_BATCH_SCALE_MAX.

        Raises
        ------
        InputError
            If its functions do not ask for it, so that nothing would change.
        """
        if batch_scale_max != self.batch_scale_max and not self.uses_batch_scale_max:
            raise InputError(
                f"batch_scale_max={batch_scale_max}: what was compiled of {self.name} does not ask "
                f"for CONFIG_PCP_BATCH_SCALE_MAX, and would do the same"
            )
        tree = self.tree.with_batch_scale_max(batch_scale_max)
        return self if tree.digest == self.digest else release_of(tree)


@cache
def known_texts() -> dict[str, dict[str, list[str]]]:
    """Digest of a function's text -> releases that have it, by function."""
    known: dict[str, dict[str, list[str]]] = read_json(Path(__file__).with_name("tree_texts.json"))
    return known


def lacks(tree: Compiled, base: Release) -> list[str]:
    """A sentence where a tree has fields of its own and not all of a release's: which is which?"""
    rules = base.rules
    expected = {
        "high_min": rules.high_min_max, "high_max": rules.high_min_max,
        "alloc_factor": rules.alloc_scale, "free_count": rules.free_count,
        "count_min": rules.count_min,
        "flags": rules.free_high_two_in_a_row or rules.free_high_batch,
    }  # fmt: skip
    missing = [name for name, there in expected.items() if there and name not in tree.fields]
    if not missing or not tree.new_fields:
        return []
    return [
        f"struct per_cpu_pages has no {', '.join(missing)}, as {base.name} has, but "
        f"{', '.join(tree.new_fields)}: if one of these is one of those under another name, what "
        f"else sets it is missed here, and the results are wrong."
    ]


def nearest(tree: Compiled) -> str:
    """The newest of the nearest releases."""
    return near(tree)[-1]


def near(tree: Compiled) -> list[str]:
    """The releases whose texts most functions of a tree have, of those with as many lists.

    Where none has a known text, the newest mainline release with the same fields in struct
    per_cpu_pages.  Where none has as many lists, of those that the tree has a list for each of, or
    else of all.
    """
    lists = lists_of_tree(tree)
    alike = (
        [r for r in releases() if r.rules.nr_pcp_lists == lists]
        or [r for r in releases() if lists_correspond(tree, r)]
        or releases()
    )
    names = {r.name for r in alike}
    votes: dict[str, int] = {}
    for name, item in tree.functions.items():
        for known in known_texts().get(name, {}).get(item.digest, ()):
            if known in names:
                votes[known] = votes.get(known, 0) + 1
    if votes:
        return sorted(name for name, n in votes.items() if n == max(votes.values()))
    mainline = [r for r in alike if r.name[0] == "v" and "+" not in r.name]
    newest = max(
        enumerate(mainline),
        key=lambda n: (
            (n[1].rules.free_count == ("free_count" in tree.fields))
            + (n[1].rules.high_min_max == ("high_min" in tree.fields))
            + (n[1].rules.alloc_scale == ("alloc_factor" in tree.fields)),
            n[0],
        ),
    )[1]
    return [newest.name]


def release_of(tree: Compiled) -> TreeRelease:
    """A tree as the release that the engines take.

    Raises
    ------
    InputError
        If its functions do something that does not fall into the engines' steps: which.
    """
    steps_of_tree(tree)  # refuses what the engines cannot carry
    refused = ""
    for base in _bases(tree):
        state = TreeRelease(
            name=f"{Path(tree.name).name or tree.name}#{tree.digest[:8]}",
            patches=base.patches,
            batch_scale_max=tree.batch_scale_max,
            digest=tree.digest,
            base=base.name,
            commit_drain=int(base.rules.commit_drain),
            tree=tree,
        )
        found = _tried_once(state)
        if not found["refused"]:
            break
        refused = refused or found["refused"]
    else:
        apart = ", ".join([*tree.outside, *tree.state])
        part = f"; what is kept outside of struct per_cpu_pages has a part in it: {apart}"
        raise InputError(f"{tree.name}: {refused}{part if apart else ''}")
    return replace(state, commit_drain=found["commit_drain"], hits=Hits(found["hits"]))


def _bases(tree: Compiled) -> Iterator[Release]:
    """The nearest release, and the same with lists drained the other way.

    v5.18 and v5.19 have as many lists as v5.17 and empty one after the other, as v6.6 does.
    """
    base = release(nearest(tree))
    yield base
    change = base.without if base.rules.drain_by_list else base.plus
    with contextlib.suppress(InputError):  # other patches need it
        yield change("drain-by-list")


def _tried_once(state: TreeRelease) -> dict[str, Any]:
    """What `_tried` finds, in a process of its own; remembered beside the compiled tree."""
    tree = state.tree
    kept = tree.library.with_name(f"{tree.digest}.{state.base}.json")
    before = read_sealed(kept)
    if before is not None:
        known: dict[str, Any] = parse_json(before, kept)
        if known["operations"] == [OPERATIONS, ROWS, *FIELDS]:
            return known
    given = {
        "fields": tree.fields, "digest": tree.digest, "functions": sorted(tree.functions),
        "base": state.base, "patches": state.patches, "batch_scale_max": state.batch_scale_max,
    }  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY, tree.name, tree.library], input=json.dumps(given),
            capture_output=True, text=True, timeout=TRY_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{tree.name}: its functions do not come to an end within {TRY_SECONDS} s where lists "
            f"are not looked at"
        ) from None
    if done.returncode:
        if done.returncode == _FAILED:
            raise InputError(done.stderr.strip())
        why = (done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"])[-1]
        raise InputError(f"{tree.name}: its functions fail where lists are not looked at: {why}")
    found: dict[str, Any] = parse_json(done.stdout)
    write_sealed(kept, json.dumps(found).encode())
    return found


_FAILED = 3  # of a function of the tree, which was told
_TRY = "from pcpmodel.kernel.tree_rules import _try; _try()"


def _try() -> None:
    """Child of `_tried_once`."""
    given = parse_json(sys.stdin.read())
    name, library = sys.argv[1:]  # which may be no text, as names of files are
    tree = SimpleNamespace(
        name=name, library=Path(library), fields=tuple(given["fields"]),
        functions=dict.fromkeys(given["functions"]), new_fields=(), caveats=[],
    )  # fmt: skip
    state = TreeRelease(
        "tree", tuple(given["patches"]), given["batch_scale_max"], digest=given["digest"],
        base=given["base"], tree=tree,
    )  # fmt: skip
    try:
        found = _tried(state)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(_FAILED)
    json.dump(found, sys.stdout)


def _tried(state: TreeRelease) -> dict[str, Any]:
    """Which steps come to the same as the tree's whole operations."""
    first = int(Release(state.base, state.patches).rules.commit_drain)
    ways = [first, *(d for d in (CommitDrain.CHUNKS, CommitDrain.CHUNKS_WHILE_HIGH) if d != first)]
    told = {"commit_drain": first, "hits": 0, "operations": [OPERATIONS, ROWS, *FIELDS]}
    refused = ""
    for way, refills in product(ways, (Hits.EACH, Hits.REFILLS_IN_HOLDS)):
        tried = replace(state, commit_drain=int(way), hits=refills)
        _, found = compare(state.tree, tried, OPERATIONS, 3, lists=False)
        if not found:
            break
        refused = refused or _why(found[0])
    else:
        return {**told, "refused": refused}
    hits = refills
    for ways_of_one in (
        (Hits.ALLOCS_AS_RULES, Hits.ALLOCS_AS_RULES | Hits.ALLOCS_ADD, Hits.ALLOCS_SKIP),
        (Hits.FREES_AS_RULES, Hits.FREES_AS_RULES | Hits.FREES_ADD, Hits.FREES_SKIP),
    ):
        hits |= next(
            (
                hit
                for hit in ways_of_one
                if not compare(
                    state.tree,
                    replace(tried, hits=refills | hit),
                    ROWS,
                    4,
                    length=ROWS // 12,
                    rows=True,
                    lists=False,
                )[1]
            ),
            Hits.EACH,
        )
    return {**told, "commit_drain": int(way), "hits": int(hits), "refused": ""}


_PARTS = {
    "alloc": "what rmqueue_pcplist() does",
    "free": "how the commit of a free drains",
    "decay": "how decay_pcp_high() drains",
    "drain_zone_pages": "how drain_zone_pages() drains",
    "drain_pages_zone": "how drain_pages_zone() drains",
}


def _why(example: Mapping[str, Any]) -> str:
    """In one sentence, why the engines cannot take a tree."""
    if example["op"] not in _PARTS:
        lists = example["tree"].get("lists")
        if lists is not None:
            return (
                f"NR_PCP_LISTS is {lists}; the engines know 3 lists and 13..{PCP_LISTS_ROOM}, "
                f"so that the tree can be compared and not run"
            )
        return "order_to_pindex() puts blocks on other lists than any known release"
    ours, theirs = example["release"], example["tree"]
    unlike = ", ".join(
        f"{k} {theirs[k]} where the steps come to {ours[k]}"
        for k in ours
        if k in ("count", "holds", *example["compared"]) and _told(ours[k]) != _told(theirs[k])
    )  # fmt: skip
    if not unlike and ours["lists"] != theirs["lists"]:
        unlike = "it moves blocks of other lists"
    elif not unlike:
        unlike = "its own fields come to something else where no block is moved"
    return (
        f"{_PARTS[example['op']]} (order {example['order']}) does not fall into the engines' steps"
        + (f": {unlike}" if unlike else "")
    )


def _told(value: Any) -> Any:
    """Holds as they are told apart: by their pages and blocks."""
    if isinstance(value, list):
        return [(h["pages"], h["asked"]) for h in value if h["pages"] or h["asked"]]
    return value

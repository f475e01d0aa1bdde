"""What a kernel tree decides: `pcpmodel.kernel.tree`, asked."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from pcpmodel.errors import InputError
from pcpmodel.kernel import tree as kernel_tree
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.tree_compare import OPERATIONS, Difference, closest, decides_as, differences
from pcpmodel.kernel.tree_rules import known_texts, lacks
from pcpmodel.study.answer import Answer
from pcpmodel.study.lists.ladder import Ladder, ladder

__all__ = ["KernelTree", "TreeCompared", "tree"]

MAX_OPERATIONS = 10**9


LADDERS = ("refill", "drain", "decay")


@dataclass(frozen=True, eq=False)
class TreeCompared(Answer):
    """A kernel tree beside a release: where it decides otherwise, and what that makes of lists.

    Attributes
    ----------
    tables, said, facts, digest
        As of `Answer`: tables ``functions``, ``differences``, ``ladders`` (the first visits of
        both kernels) and ``rungs`` (all of them, with their ``kind``; as a figure
        ``pm.figures.panels(pm.figures.ladder, answer["rungs"], by="kind", share="")``).
    ladders : mapping of str to Ladder
        Both kernels, by kind: refill, drain, decay.  None of a tree that cannot be run.
    """

    ladders: Mapping[str, Ladder] = field(default_factory=dict, repr=False)


class KernelTree(kernel_tree.Tree):
    """A kernel tree whose page-list functions are compiled: what `tree` returns."""

    def compare(
        self,
        release: str | Release | kernel_tree.Tree | None = None,
        *,
        operations: int = OPERATIONS,
        seed: int = 1,
    ) -> TreeCompared:
        """Where the tree decides otherwise than a release.

        Parameters
        ----------
        release : str, Release or Tree, optional
            By default all are tried, and where none decides alike the differences to the one
            whose functions most of its texts are, of several the one with the fewest differences.
        operations : int
            Random operations that are tried, 1 .. 10**9.
        seed : int

        Returns
        -------
        TreeCompared
            Tables ``functions``, ``differences``, ``ladders`` and ``rungs``.

        Raises
        ------
        InputError
            For an unknown release, a tree to compare with that cannot be run, or an argument out of
            its range.
        """
        if isinstance(operations, bool) or not isinstance(operations, int):
            raise InputError(f"operations={operations!r} is not an integer")
        if not 1 <= operations <= MAX_OPERATIONS:
            raise InputError(f"operations={operations} is outside 1..{MAX_OPERATIONS}")
        functions = _functions(self)
        found: list[Difference] = []
        equal: list[Release] = []
        base = find_release(release) if release is not None else None
        if base is None:
            equal, done = decides_as(self, operations, seed)
            if not equal:
                base = closest(self, min(operations, 500_000), seed)
        else:
            done = 0
        if base is not None:
            found, compared = differences(self, base, operations, seed)
            done += compared
            if not found:
                equal = [base]
        names = [r.name for r in equal]
        ladders, why_not = _ladders(self, base or equal[-1])
        first = [{"kind": k, "quantity": _COLUMN.get(k, "pages"), "kernel": label,
                  "visit": int(visit), "pages": int(pages)}
                 for k, found_ in ladders.items()
                 for label, row in found_.first(_COLUMN.get(k, "pages")).iterrows()
                 for visit, pages in row.dropna().items()]  # fmt: skip
        facts = {
            "tree": self.name,
            "functions": functions,
            "equal_to": names,
            "against": base.name if base else names[-1],
            "differences": [d.as_dict() for d in found],
            "operations": done,
            "new_fields": list(self.new_fields),
            "struct_given": not self.borrowed,
            "notes": [*self.caveats, *lacks(self, base or equal[-1])],
            "cannot_run": why_not,
            "ladders": first,
        }
        tables = {
            "functions": pd.DataFrame(
                [
                    {
                        "function": f["name"],
                        "line": f["line"],
                        "text of": ", ".join(f["same_text_as"]) or ("-" if f["found"] else ""),
                    }
                    for f in functions
                    if f["found"]
                ]
            ),
            "differences": pd.DataFrame(
                [
                    {"function": d.function, "operation": d.operation, "quantity": name,
                     facts["against"]: d.ours[name], "tree": d.theirs.get(name)}
                    for d in found for name in d.ours
                ]
            ),
        }  # fmt: skip
        if ladders:
            tables["ladders"] = pd.DataFrame(first).pivot_table(
                index=["kind", "kernel"], columns="visit", values="pages", sort=False
            ).astype("Int64")  # fmt: skip
            tables["rungs"] = pd.concat(
                [found_.rungs.assign(kind=kind) for kind, found_ in ladders.items()],
                ignore_index=True,
            )
        return TreeCompared(
            tables, {"decides": _text(self, facts, found)}, facts,
            ladders=ladders,
            shown=tuple(name for name in tables if name != "rungs"),
        )  # fmt: skip


def tree(
    path: str | os.PathLike[str],
    *,
    patch: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    batch_scale_max: int | None = None,
) -> KernelTree:
    """Take the page-list functions of a kernel tree and compile them.

    This runs code of the tree: open only trees that you would build.

    Parameters
    ----------
    path : str or path
        A kernel tree; ``TREE@REF``, a commit of it (nothing is checked out); a folder with files
        of mm/; or one page_alloc.c.
    patch : path, optional
        A patch, or mails with patches, applied to it first, in a copy.
    config : path, optional
        A kernel's .config; by default what distributions set on x86-64.  What neither says goes by
        the defaults of the tree's mm/Kconfig.
    batch_scale_max : int, optional
        CONFIG_PCP_BATCH_SCALE_MAX, 0..6.

    Returns
    -------
    KernelTree

    Raises
    ------
    InputError
        If it is no tree, a function is missing, or one cannot be compiled: which function, which
        line, which name.

    Examples
    --------
    >>> from pcpmodel.kernel.tree import EXCERPT
    >>> mine = pm.tree(EXCERPT)
    >>> mine.compare("v7.2").as_dict()["differences"]
    []
    """
    opened = kernel_tree.open_tree(
        path, patch=patch, config=config, batch_scale_max=batch_scale_max
    )
    return KernelTree(**vars(opened))


# What the table of ladders shows, if not the pages of a visit.
_COLUMN = {"decay": "high"}


def _ladders(opened: kernel_tree.Tree, base: Release) -> tuple[dict[str, Ladder], str]:
    """Both kernels' ladders, or why the tree cannot be run."""
    try:
        states = [base, find_release(opened)]
    except InputError as error:
        return {}, error.message
    return {kind: ladder(kind, names=states) for kind in LADDERS}, ""


def _functions(opened: kernel_tree.Tree) -> list[dict[str, Any]]:
    names = dict.fromkeys(
        [*(n for some in kernel_tree.NEEDED.values() for n in some), *kernel_tree.KNOWN,
         *kernel_tree.BESIDE]
    )  # fmt: skip
    rows = []
    for name in names:
        item = opened.functions.get(name)
        rows.append(
            {
                "name": name,
                "found": item is not None,
                "file": item.file if item else "",
                "line": item.line if item else 0,
                "compiled": name in opened.taken,
                "same_text_as": known_texts().get(name, {}).get(item.digest, []) if item else [],
            }
        )
    return rows


def _text(opened: kernel_tree.Tree, facts: dict[str, Any], found: list[Difference]) -> str:
    operations = f"{facts['operations']:,} random operations"
    lines = []
    if facts["equal_to"]:
        lines.append(f"It decides as {', '.join(facts['equal_to'])} ({operations}).")
    else:
        n = len({d.function for d in found})
        lines.append(
            f"Against {facts['against']} {n} function{'s decide' if n > 1 else ' decides'} "
            f"otherwise ({operations}):"
        )
    for d in found:
        state = ", ".join(
            f"{k} {v}" for k, v in d.state.items()
            if (v not in (0, [], {}) or k == "count") and d.function != "order_to_pindex"
        )  # fmt: skip
        sides = "; ".join(
            f"{name} {d.ours[name]} under {facts['against']}, {d.theirs[name]} in the tree"
            for name in d.ours
        )
        lines.append(f"- {d.function}(): {d.operation}{f', with {state}' * bool(state)}: {sides}.")
    known = [f for f in facts["functions"] if f["same_text_as"]]
    alike = [
        f["name"] for f in facts["functions"]
        if f["compiled"] and not f["same_text_as"] and f["name"] not in {d.function for d in found}
        and not f["file"].startswith("tree_")  # which stands in for it
    ]  # fmt: skip
    if known and alike:
        lines.append(
            f"These have the text of no known release and did the same in these operations, which "
            f"do not come to all that a kernel does (limits of the model, kernel trees): "
            f"{', '.join(alike)}."
        )
    lines += facts["notes"]
    if facts["ladders"]:
        lines.append(
            "The ladders are of one CPU's list: pages of each refill and drain in a row of "
            "allocations or frees, and `high` after each idle vmstat tick."
        )
    if facts["cannot_run"]:
        lines.append(f"It can be compared, and not run: {facts['cannot_run']}.")
    if facts["new_fields"]:
        lines.append(
            f"struct per_cpu_pages has fields of its own: {', '.join(facts['new_fields'])}."
        )
    if not facts["struct_given"]:
        lines.append("struct per_cpu_pages was not given: that of v7.3 stands in for it.")
    return "\n".join(lines)

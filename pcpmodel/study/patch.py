"""From a patch to its cover letter: what a kernel tree changes, tried in one go."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pcpmodel.errors import InputError, integer
from pcpmodel.files import read_text
from pcpmodel.hardware.machines import Machine
from pcpmodel.kernel import tree as kernel_tree
from pcpmodel.kernel.releases import Release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.simulation.result import Result
from pcpmodel.simulation.run import simulate
from pcpmodel.simulation.spec import make_spec
from pcpmodel.study.answer import Answer, exact_records
from pcpmodel.study.lists.ladder import Ladder
from pcpmodel.study.published.cover_letter import CoverLetter, cover_letter, on_every_cpu
from pcpmodel.study.recorded import recorded_work
from pcpmodel.study.tree import KernelTree, TreeCompared, tree
from pcpmodel.trace.recording import Recording
from pcpmodel.workload import make

__all__ = ["PatchTried", "example_tree", "try_patch"]

#: What the example changes: no drain of more than four batches.
_EXAMPLE = (
    "return clamp_t(int, pcp->free_count, batch, high - batch);",
    "return min(clamp_t(int, pcp->free_count, batch, high - batch), 4 * batch);",
)

#: Columns of the cover letter: what a cap on drains changes, too.
_FIGURES = ("score_per_s", "lock_contention", "wait_p99_ns", "hold_p99_ns")


def example_tree(folder: str | os.PathLike[str]) -> Path:
    """Write a kernel tree to try things on: an excerpt in words of its own, with one rule changed.

    It has the functions of mm/page_alloc.c that decide about per-CPU page lists, by their names,
    with the rules of v7.2, but that no drain frees more than four batches.  No kernel source is
    needed.

    Parameters
    ----------
    folder : path
        Where ``mm/page_alloc.c`` is written.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If there is a mm/page_alloc.c already.
    """
    at = Path(folder, "mm/page_alloc.c")
    if at.exists():
        raise InputError("is there already; give another folder", file=at)
    text = read_text(kernel_tree.EXCERPT / "mm/page_alloc.c")
    before, after = _EXAMPLE
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text.replace(before, after))
    return Path(folder)


@dataclass(frozen=True, eq=False)
class PatchTried(Answer):
    """What a patch does, asked everywhere.

    Attributes
    ----------
    tables, said, facts, digest
        As of `Answer`: tables ``runs`` (of all CPUs, with 95 % intervals) and ``recorded`` (the
        same work under both); what is said is the paragraph for the commit message.
    tree : KernelTree
    differences : TreeCompared
        Where the tree decides otherwise than the base.
    ladders : mapping of str to Ladder
        Those of ``differences``: both kernels, by kind (refill, drain, decay).
    letter : CoverLetter
    """

    tree: KernelTree = field(kw_only=True, repr=False)
    differences: TreeCompared = field(kw_only=True, repr=False)
    ladders: Mapping[str, Ladder] = field(kw_only=True, repr=False)
    letter: CoverLetter = field(kw_only=True, repr=False)


def try_patch(
    path: str | os.PathLike[str] | KernelTree = "",
    base: str | Release | kernel_tree.Tree = "v7.3",
    *,
    workloads: Sequence[str] = ("page_fault1", "kbuild"),
    machine: str | Machine = "sapphire-rapids",
    recording: str | Path | Recording = "7.2-pf1-8cpu",
    cpus: int = 224,
    seconds: float = 1.0,
    seeds: int = 3,
    operations: int = 500_000,
) -> PatchTried:
    """Try a patched kernel tree: from what it decides otherwise to the table of its cover letter.

    This runs code of the tree: open only trees that you would build.

    Parameters
    ----------
    path : path or KernelTree
        A kernel tree as for `pcpmodel.tree`; empty: `example_tree`.
    base : str, Release or Tree
        What it is compared with.
    workloads : sequence of str
        Names of workloads, run with as many processes as CPUs.
    machine : str or Machine
        Whose hold times are used.
    recording : str
        A recorded work that is done again under both.
    cpus : int
        Of the simulated machine, of two nodes.
    seconds : float
        Simulated time that is counted [s].
    seeds : int
        Runs per row of the cover letter, 2..100.
    operations : int
        Random operations for `pcpmodel.study.tree.KernelTree.compare`.

    Returns
    -------
    PatchTried

    Raises
    ------
    InputError
        For a tree that cannot be taken, and any other argument that cannot be used.
    """
    old = find_release(base)
    integer("seeds", seeds, 2, 100)
    works = [on_every_cpu(name, cpus) for name in workloads]
    options = {"cpus": cpus, "nodes": 2, "seconds": seconds}
    made = [make(w["name"], **{k: v for k, v in w.items() if k != "name"}) for w in works]
    for work in made:  # what cannot be run is refused before anything is
        make_spec(release=old, machine=machine, workload=work, **options)
    mine = _opened(path)
    state = find_release(mine)
    differences = mine.compare(base, operations=operations)
    recorded = recorded_work(recording, [old, state])
    rows = []
    for work in made:
        for rules in (old, state):
            rows.append(_row(simulate(rules, machine, work, **options)))
    runs = pd.DataFrame(rows)
    letter = cover_letter(
        [old, state], works, machine, seeds=seeds, figures=_FIGURES, options=options
    )
    table = recorded.table
    facts = {
        "tree": state.name,
        "digest": state.digest,
        "base": old.name,
        "differences": differences.facts["differences"],
        "recorded": {"recording": recording, "rows": table.to_dict("records")},
        "runs": exact_records(runs),
        "cover_letter": letter.as_dict(),
        "notes": state.notes,
    }
    return PatchTried(
        {"runs": runs, "recorded": table},
        _paragraph(differences, table, runs, recording, machine, cpus),
        facts,
        tree=mine,
        differences=differences,
        ladders=differences.ladders,
        letter=letter,
    )


def _opened(path: str | os.PathLike[str] | KernelTree) -> KernelTree:
    if isinstance(path, KernelTree):
        return path
    if os.fspath(path):
        return tree(path)
    with tempfile.TemporaryDirectory(prefix="pcpmodel-") as folder:
        return tree(example_tree(Path(folder, "four-batches")))


def _row(run: Result) -> dict[str, Any]:
    drain = run.hold_hist["drain"]
    return {
        "workload": run.spec.workload.name,
        "rules": str(run.spec.release),
        "score_per_s": run.score_per_s,
        "score_half_width": run.half_width("score_per_s"),
        "lock_contention_percent": 100 * run.lock_contention,
        "contention_half_width": 100 * run.half_width("lock_contention"),
        "wait_p99_us": run.wait_ns["p99"] / 1000,
        "drain_hold_p99_us": drain.quantile_ns(0.99) / 1000,
    }


def _told_apart(a: float, b: float, error: float) -> str:
    """A change with its 95 % interval, or that there is none to be told."""
    change, wide = 100 * (b / a - 1), 100 * error / a
    if math.isnan(wide):  # too few samples for an interval
        return f"{change:+.1f} %"
    if abs(change) <= wide:
        return f"no change that could be told from noise (± {wide:.1f} %)"
    return f"{change:+.1f} % (± {wide:.1f})"


def _paragraph(
    differences: Answer, recorded: pd.DataFrame, runs: pd.DataFrame, recording: str, machine: str,
    cpus: int,
) -> dict[str, str]:  # fmt: skip
    """For a commit message."""
    names = sorted({d["function"] for d in differences.facts["differences"]})
    against = differences.facts["against"]
    operations = f"{differences.facts['operations']:,} random operations"
    if names:
        calls = ", ".join(f"{n}()" for n in names)
        said = {"decides": f"Against {against} {calls} decide{'s' * (len(names) == 1)} otherwise "
                f"({operations})."}  # fmt: skip
    else:
        said = {"decides": f"No decision differs from {against}'s ({operations})."}
    old, new = recorded.iloc[0], recorded.iloc[1]
    said["recorded"] = (
        f"The recorded work {recording} takes the zone lock {new['zone_lock_holds']:,} times "
        f"for {old['zone_lock_holds']:,}, the largest hold moves {new['largest_hold']:,} "
        f"pages for {old['largest_hold']:,}, and up to {new['pages_in_pcp_max']:,} pages "
        f"sit on the lists for {old['pages_in_pcp_max']:,}."
    )
    for name, pair in runs.groupby("workload", sort=False):
        a, b = pair.iloc[0], pair.iloc[1]
        error = (a["score_half_width"] ** 2 + b["score_half_width"] ** 2) ** 0.5
        said[str(name)] = (
            f"{name} on {cpus} CPUs: score {_told_apart(a['score_per_s'], b['score_per_s'], error)}"
            f", zone-lock contention {a['lock_contention_percent']:.2f} "
            f"± {a['contention_half_width']:.2f} -> {b['lock_contention_percent']:.2f} "
            f"± {b['contention_half_width']:.2f} % of cycles."
        )
    said["kind"] = f"Simulated with the lock holds of {machine}, not measured."
    return said

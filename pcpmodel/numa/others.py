"""The first version of the patch, and migrate_pages() with a batched flush."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from pcpmodel.datasets.packages import load_published
from pcpmodel.errors import InputError
from pcpmodel.numa.faults import Machine
from pcpmodel.numa.pairs import pair_of
from pcpmodel.numa.parameters import RELEASES, Experiment, experiment
from pcpmodel.study.answer import Answer

__all__ = ["first_version", "migrate_pages", "regroup"]

PATCH_V1 = "numa-delay-mapping-v1"


BATCHED = "migrate-pages-batch-v3"


def regroup(given: Experiment, threads: int) -> Experiment:
    """Spread the same threads and the same memory over processes of ``threads`` each.

    Raises
    ------
    InputError
        If ``threads`` does not divide the number of all threads.
    """
    total = given.processes * given.threads
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1 or total % threads:
        raise InputError(f"threads={threads!r} does not divide the {total} threads in all")
    part = given.working_set_mb * given.processes * threads / total
    return given.with_(threads=threads, processes=total // threads, working_set_mb=part)


def _nearest(table: pd.DataFrame) -> str:
    found = table.loc["published"]
    model = table.drop(index="published")
    near = (model["interrupts_per_page"] - found["interrupts_per_page"]).abs().idxmin()
    best = model.loc[near]
    return (
        f"Version 1 reported {found['interrupts_per_page']:.2f} interrupts per migrated page "
        f"and {found['interrupts_left_percent']:.2f} % of them left; its set-up is not known. "
        f"The model comes nearest with {near} threads per process: "
        f"{best['interrupts_per_page']:.2f} interrupts per page (**the threads are chosen by "
        f"it**), {best['interrupts_left_percent']:.2f} % left (**predicted**)."
    )


def first_version(
    given: Experiment | None = None, *, threads: Sequence[int] = (1, 2, 4, 8), **changes: Any
) -> Answer:
    """Predict the figures of version 1 of the patch, whose set-up was not published.

    It reports 0.68 interrupts per migrated page, so its threads had fewer others to
    interrupt; the same threads and memory are regrouped into more processes.

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    threads : sequence of int
        Threads per process.
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    Answer
        ``threads``, index ``threads``, and the published row ``published``:
        ``interrupts_per_page`` (v5.12), ``interrupts_left_percent`` (v5.13 over v5.12).
    """
    given = (given or experiment()).with_(**changes)
    table = load_published(PATCH_V1).tables["tlb"]
    shot, moved = table.iloc[0], table.iloc[1]
    rows = {
        "published": {
            "interrupts_per_page": shot["before"] / moved["after"],
            "interrupts_left_percent": 100 * shot["after"] / shot["before"],
        }
    }
    for n in threads:
        pair = pair_of(regroup(given, n))
        before = pair.before.shootdown_interrupts
        rows[str(n)] = {
            "interrupts_per_page": before / max(1, pair.before.migrated_pages),
            "interrupts_left_percent": (
                100 * pair.after.shootdown_interrupts / before if before else math.nan
            ),
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("threads")
    return Answer({"threads": table}, {"nearest": _nearest(table)})


def migrate_pages(
    given: Experiment | None = None, *, pages: int = 8192, batch: int = 512, **changes: Any
) -> Answer:
    """Move a process's pages to the other node, page by page and in batches.

    Mirrors migrate_pages() (mm/migrate.c): up to v6.2 each page is unmapped,
    flushed, copied and mapped in turn; from v6.3 on ("migrate_pages: batch flushing
    TLB") up to 512 pages (NR_MAX_BATCHED_MIGRATION) share one flush.  All
    threads of the process run.

    Parameters
    ----------
    given : Experiment, optional
        Default: the published one.
    pages : int
        Pages to move [pages].
    batch : int
        Pages that share one flush [pages].
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    Answer
        ``rows``: the changes, published and of the model; the ``ratio`` of that of the interrupts
        is of what is left of them, as in `compare`.  Its facts: ``pages`` moved, ``batch``
        pages per flush, ``targets`` CPUs interrupted by one flush, and of both ways
        ``interrupts`` and ``pages_per_second`` of one thread (``*_batched``).

    Raises
    ------
    InputError
        If a number is not allowed.
    """
    given = (given or experiment()).with_(**changes)
    for name, value in {"pages": pages, "batch": batch}.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**20:
            raise InputError(f"{name}={value!r} is not a whole number from 1 to {2**20}")
    single, time = _move(given, pages, 1)
    batched, time_batched = _move(given, pages, batch)
    published = load_published(BATCHED).tables["tlb"]
    rows = pd.DataFrame(
        {
            "source": BATCHED,
            "quantity": ["shootdown interrupts", "pages migrated per second"],
            "unit": "%",
            "measured": published["change_pct"].to_numpy(),
            "predicted": [
                100 * (batched / single - 1) if single else math.nan,
                100 * (time / time_batched - 1),
            ],
            "fitted": False,
        }
    )
    rows["ratio"] = rows["predicted"] / rows["measured"]
    left = 100 + rows.loc[0, ["measured", "predicted"]].astype(float)
    rows.loc[0, "ratio"] = left["predicted"] / left["measured"]  # of what went they look alike
    said = {
        row.quantity: f"* {row.quantity}: {row.measured:+.1f} % measured, {row.predicted:+.1f} % "
        "by the model (**predicted**)."
        for row in rows.itertuples()
    }
    if single:
        said["interrupts left"] = (
            f"* {left['measured']:.1f} % of the interrupts are left as measured, "
            f"{left['predicted']:.2f} % in the model, which has no others than one flush for "
            f"{batch} pages."
        )
    facts = {
        "pages": pages,
        "batch": batch,
        "targets": given.threads - 1,
        "interrupts": single,
        "interrupts_batched": batched,
        "pages_per_second": 1e9 * pages / time,
        "pages_per_second_batched": 1e9 * pages / time_batched,
    }
    return Answer({"rows": rows}, said, facts)


def _move(given: Experiment, pages: int, batch: int) -> tuple[int, float]:
    """Interrupts, and nanoseconds of the migrating thread."""
    machine = Machine(RELEASES["v7.2"], 1, given.threads, pages, pages, pages)
    machine.run(0, given.threads)
    for g in range(pages):
        machine.place(g, 0)
    spent = 0.0
    for first in range(0, pages, batch):
        machine.batch_begin(0, 1)
        for g in range(first, min(pages, first + batch)):
            machine.batch_unmap(g)
            spent += given.isolate_ns + given.unmap_ns + given.copy_ns
        targets = machine.batch_flush()
        if targets > 0:
            spent += given.flush_base_ns + targets * given.flush_target_ns
        elif targets == 0:
            spent += given.flush_local_ns
        machine.batch_finish()
    return machine.counts["unmap_interrupts"], spent

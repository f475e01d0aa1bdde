"""What one per-CPU list goes through: counts only, one CPU, nothing else running.

What a release decides, free of what the machine adds.  The decisions are
`pcpmodel.kernel.pcp.PerCpuPages`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pandas as pd

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.policies import with_policy
from pcpmodel.kernel.releases import Release
from pcpmodel.study.answer import Answer

__all__ = ["Trajectory", "digest_of_frames", "trajectory"]

OPERATIONS = ("alloc", "free", "decay")


MAX_OPERATIONS = 10_000_000


STATE = ("count", "high", "alloc_factor", "free_factor", "free_count")


@dataclass(frozen=True, eq=False)
class Trajectory(Answer):
    """What one list went through.

    Attributes
    ----------
    release : str
    batch, high_min, high_max : int
        Sizes of the list [pages].
    """

    release: str = ""
    batch: int = 0
    high_min: int = 0
    high_max: int = 0

    @property
    def steps(self) -> pd.DataFrame:
        """One row per operation, and row 0 before the first.

        ``operation`` ordinal, ``tick`` (whether it was a vmstat tick), ``count`` and ``high``
        [pages] after it.
        """
        return self.tables["steps"]

    @property
    def events(self) -> pd.DataFrame:
        """One row per visit to the buddy lists.

        ``operation``, ``kind`` (``refill`` or ``drain``), ``pages``, zone-lock ``holds``, and the
        list's scalars after it.
        """
        return self.tables["events"]


def several(number: int, thing: str) -> str:
    """``1 hold`` or ``2 holds``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _said(name: str, steps: pd.DataFrame, events: pd.DataFrame) -> str:
    by_kind = events.groupby("kind")
    holds, pages = by_kind["holds"].sum(), by_kind["pages"].sum()
    parts = [
        f"{several(pages[kind], 'page')} in {several(count, 'hold')} to {kind}"
        for kind, count in holds.items()
        if count
    ]
    return (
        f"{name}: {several(holds.sum(), 'zone-lock hold')} for "
        f"{several(len(steps) - 1, 'operation')} ({'; '.join(parts) or 'none needed'}); "
        f"{several(steps['count'].iloc[-1], 'page')} left on the list."
    )


def digest_of_frames(*frames: pd.DataFrame) -> str:
    """Digest of the names and values of some tables; their text would take longer than they did."""
    digest = sha256()
    for frame in frames:
        digest.update(json.dumps(list(frame.columns)).encode())
        digest.update(pd.util.hash_pandas_object(frame).to_numpy().astype("<u8").tobytes())
    return digest.hexdigest()


def trajectory(
    release: str | Release,
    work: Iterable[Sequence[str | int]],
    *,
    batch: int = 63,
    high_min: int = 500,
    high_max: int = 8192,
    high: int | None = None,
    policy: object = None,
) -> Trajectory:
    """Follow one per-CPU list through allocations, frees and vmstat ticks.

    Parameters
    ----------
    release : str or Release
        Kernel state.
    work : sequence of (operation, number) or (operation, number, order)
        ``("alloc", n)`` and ``("free", n)`` for n blocks of 2**order pages (order 0
        if not given), ``("decay", n)`` for n ticks; at most 10 million in all.
    batch, high_min, high_max : int
        Sizes of the list [pages]; ``high_min`` is the fixed ``high`` of a kernel
        without auto-tuning.
    high : int, optional
        Tuned ``high`` to start from [pages]; ``high_min`` by default.
    policy : optional
        A rule of one's own on it (`pcpmodel.policy`).

    Returns
    -------
    Trajectory

    Raises
    ------
    InputError
        For an unknown operation, a number below 1, or impossible sizes.

    Examples
    --------
    >>> pm.study.trajectory("v6.7", [("alloc", 400)]).events["pages"].tolist()
    [63, 126, 252]
    """
    state = with_policy(release, policy)
    if not batch <= high_min <= high_max:
        raise InputError(
            f"batch={batch}, high_min={high_min}, high_max={high_max}: "
            "a list in use has batch <= high_min <= high_max [pages]"
        )
    pcp = PerCpuPages(state, batch=batch, high_min=high_min, high_max=high_max, high=high)
    steps = [(0, False, pcp.count, pcp.high)]
    events = []
    for operation, number, order in _checked_work(work):
        for _ in range(number):
            at = len(steps)
            if operation == "alloc":
                refill = pcp.alloc(order) << order
                visits = [("refill", refill, len(pcp.refill_holds))] if refill else []
            else:
                drains = pcp.free(order) if operation == "free" else pcp.decay()
                visits = [("drain", sum(drains), len(drains))] if drains else []
            steps.append((at, operation == "decay", pcp.count, pcp.high))
            events.extend((at, *visit, *(getattr(pcp, name) for name in STATE)) for visit in visits)
    names = ["operation", "tick", "count", "high"]
    made = pd.DataFrame(np.array(steps), columns=names).astype({"tick": bool})
    visited = pd.DataFrame(events, columns=["operation", "kind", "pages", "holds", *STATE])
    return Trajectory(
        {"events": visited, "steps": made},
        {"holds": _said(state.name, made, visited)},
        digest=digest_of_frames(made, visited),
        shown=("events",),
        release=state.name,
        batch=batch,
        high_min=high_min,
        high_max=high_max,
    )


def _checked_work(work: Iterable[Sequence[str | int]]) -> list[tuple[str, int, int]]:
    checked: list[tuple[str, int, int]] = []
    for entry in work:
        if not isinstance(entry, list | tuple) or len(entry) not in (2, 3):
            raise InputError(f"work={entry!r} is not (operation, number) or (..., order)")
        operation, number, order = (*entry, 0)[:3]
        if operation not in OPERATIONS:
            raise unknown_name("operation", operation, OPERATIONS)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InputError(f"work={entry!r}: the number must be an integer of 1 or more")
        checked.append((str(operation), number, order))
    total = sum(number for _, number, _ in checked)
    if total > MAX_OPERATIONS:
        raise InputError(f"work has {total} operations; at most {MAX_OPERATIONS}")
    return checked

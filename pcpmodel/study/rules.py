"""How the rules of the per-CPU lists evolve: the same work under several kernel states.

Counts only, one CPU, nothing else running: what a release decides, free of what
the machine adds.  The decisions are `pcpmodel.kernel.pcp.PerCpuPages`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import pandas as pd

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.releases import Release, release, releases

__all__ = ["Ladder", "Trajectory", "ladder", "trajectory"]

OPERATIONS = ("alloc", "free", "decay")
MAX_OPERATIONS = 10_000_000
STATE = ("count", "high", "alloc_factor", "free_factor", "free_count")


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What one list went through.

    Attributes
    ----------
    release : str
    batch, high_min, high_max : int
        Sizes of the list [pages].
    steps : pandas.DataFrame
        One row per operation, and row 0 before the first: ``operation`` ordinal,
        ``tick`` (whether it was a vmstat tick), ``count`` and ``high`` [pages] after it.
    events : pandas.DataFrame
        One row per visit to the buddy lists: ``operation``, ``kind`` (``refill`` or
        ``drain``), ``pages``, zone-lock ``holds``, and the list's scalars after it.
    """

    release: str
    batch: int
    high_min: int
    high_max: int
    steps: pd.DataFrame
    events: pd.DataFrame

    @property
    def digest(self) -> str:
        """SHA-256 of steps and events, for the figures made of them."""
        return _digest(self.steps, self.events)

    def summary(self) -> str:
        """One sentence with the numbers."""
        by_kind = self.events.groupby("kind")
        holds, pages = by_kind["holds"].sum(), by_kind["pages"].sum()
        parts = [
            f"{pages[kind]} pages in {count} holds to {kind}"
            for kind, count in holds.items()
            if count
        ]
        return (
            f"{self.release}: {holds.sum()} zone-lock holds for "
            f"{len(self.steps) - 1} operations ({'; '.join(parts) or 'none needed'}); "
            f"{self.steps['count'].iloc[-1]} pages left on the list."
        )


def _digest(*frames: pd.DataFrame) -> str:
    return sha256("".join(frame.to_csv() for frame in frames).encode()).hexdigest()


def trajectory(
    release_name: str | Release,
    work: Iterable[Sequence[str | int]],
    *,
    batch: int = 63,
    high_min: int = 500,
    high_max: int = 8192,
    high: int | None = None,
) -> Trajectory:
    """Follow one per-CPU list through allocations, frees and vmstat ticks.

    Parameters
    ----------
    release_name : str or Release
        Kernel state.
    work : sequence of (operation, number) or (operation, number, order)
        ``("alloc", n)`` and ``("free", n)`` for n blocks of 2**order pages (order 0
        if not given), ``("decay", n)`` for n ticks; at most 10 million in all.
    batch, high_min, high_max : int
        Sizes of the list [pages]; ``high_min`` is the fixed ``high`` of a kernel
        without auto-tuning.
    high : int, optional
        Tuned ``high`` to start from [pages]; ``high_min`` by default.

    Returns
    -------
    Trajectory

    Raises
    ------
    InputError
        For an unknown operation, a number below 1, or impossible sizes.

    Examples
    --------
    >>> trajectory("v6.7", [("alloc", 400)]).events["pages"].tolist()
    [63, 126, 252]
    """
    state = release(release_name)
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
                visits = [("refill", refill, 1)] if refill else []
            else:
                drains = pcp.free(order) if operation == "free" else pcp.decay()
                visits = [("drain", sum(drains), len(drains))] if drains else []
            steps.append((at, operation == "decay", pcp.count, pcp.high))
            events.extend((at, *visit, *(getattr(pcp, name) for name in STATE)) for visit in visits)
    return Trajectory(
        release=state.name,
        batch=batch,
        high_min=high_min,
        high_max=high_max,
        steps=pd.DataFrame(steps, columns=["operation", "tick", "count", "high"]),
        events=pd.DataFrame(events, columns=["operation", "kind", "pages", "holds", *STATE]),
    )


def _checked_work(work: Iterable[Sequence[str | int]]) -> list[tuple[str, int, int]]:
    checked: list[tuple[str, int, int]] = []
    for entry in work:
        if isinstance(entry, str) or len(entry) not in (2, 3):
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


@dataclass(frozen=True, eq=False)
class Ladder:
    """How long runs of one operation are served, by groups of releases that agree.

    Attributes
    ----------
    kind : str
        ``refill``, ``drain`` or ``decay``.
    batch, high_min, high_max : int
        Sizes of the list [pages].
    rungs : pandas.DataFrame
        One row per group and visit to the buddy lists (``decay``: per tick):
        ``releases`` (label of the group), ``visit`` (ordinal), ``operation`` [pages
        asked for or freed so far; ticks], ``pages``, ``holds``, ``holds_so_far``,
        ``count``, ``high`` and the scale factors after it.
    groups : dict of str to tuple of str
        Label of each group and the releases in it.
    """

    kind: str
    batch: int
    high_min: int
    high_max: int
    rungs: pd.DataFrame
    groups: dict[str, tuple[str, ...]]

    @property
    def digest(self) -> str:
        """SHA-256 of the rungs, for the figures made of them."""
        return _digest(self.rungs)

    def table(self, column: str = "pages", visits: int = 8) -> pd.DataFrame:
        """First values of one column, a row per group of releases."""
        wide = self.rungs.pivot_table(index="releases", columns="visit", values=column, sort=False)
        wide = wide.reindex([label for label in self.groups if label in wide.index])
        return wide.iloc[:, :visits].astype("Int64")

    def summary(self) -> str:
        """The numbers, a line per group (Markdown)."""
        largest = self.rungs.groupby("releases", sort=False)["pages"].max()
        holds = self.rungs.groupby("releases", sort=False)["holds"].sum()
        parts = [
            f"- {label}: up to {largest.get(label, 0):,} pages a "
            f"{'tick' if self.kind == 'decay' else self.kind}, "
            f"{holds.get(label, 0)} zone-lock holds in all."
            for label in self.groups
        ]
        return "\n".join(parts)


def ladder(
    kind: str,
    *,
    names: Iterable[str] | None = None,
    number: int | None = None,
    batch: int = 63,
    high_min: int = 500,
    high_max: int = 8192,
) -> Ladder:
    """Let every release serve the same long run, and group those that agree.

    Parameters
    ----------
    kind : str
        ``"refill"``: allocations from an empty list; ``"drain"``: frees to an empty
        list; ``"decay"``: vmstat ticks on a list whose ``high`` was raised to
        ``high_max`` and that holds ``high_max - 3 * batch`` freed pages (as many as
        its release lets stay).
    names : iterable of str, optional
        Releases; all named ones by default.
    number : int, optional
        Pages allocated or freed (12,000 by default), or ticks (22).
    batch, high_min, high_max : int
        Sizes of the list [pages].

    Returns
    -------
    Ladder

    Raises
    ------
    InputError
        For an unknown kind or release, or impossible sizes.
    """
    works = {
        "refill": [("alloc", 12_000 if number is None else number)],
        "drain": [("free", 12_000 if number is None else number)],
        "decay": [
            ("free", max(high_max - 3 * batch, 1)),
            ("decay", 22 if number is None else number),
        ],
    }
    if kind not in works:
        raise unknown_name("ladder", kind, works)
    order = [r.name for r in releases()] if names is None else [release(n).name for n in names]
    found: dict[bytes, tuple[list[str], pd.DataFrame]] = {}
    for name in order:
        tuned = kind == "decay" and release(name).rules.auto_high
        run = trajectory(
            name,
            works[kind],
            batch=batch,
            high_min=high_min,
            high_max=high_max,
            high=high_max if tuned else None,
        )
        rungs = _decay_rungs(run, works[kind][0][1]) if kind == "decay" else run.events
        found.setdefault(rungs.to_csv().encode(), ([], rungs))[0].append(name)
    groups = {_label(names_, order): tuple(names_) for names_, _ in found.values()}
    frames = [
        rungs.assign(
            releases=label,
            visit=range(1, len(rungs) + 1),
            holds_so_far=rungs["holds"].cumsum(),
        )
        for label, (_, rungs) in zip(groups, found.values(), strict=True)
        if len(rungs)
    ]
    return Ladder(kind, batch, high_min, high_max, pd.concat(frames, ignore_index=True), groups)


def _decay_rungs(run: Trajectory, freed: int) -> pd.DataFrame:
    """One row per tick, drained or not."""
    ticks = run.steps.iloc[freed + 1 :].assign(operation=lambda steps: steps["operation"] - freed)
    drains = run.events[run.events["operation"] > freed]
    pages, holds = (
        pd.Series(drains[name].to_numpy(), index=drains["operation"] - freed)
        .reindex(ticks["operation"], fill_value=0)
        .to_numpy()
        for name in ("pages", "holds")
    )
    return ticks.assign(pages=pages, holds=holds).reset_index(drop=True)


def _label(names: Sequence[str], order: Sequence[str]) -> str:
    """Shorten three or more neighbours to ``first ... last``."""
    runs: list[list[str]] = []
    for name in names:
        if runs and order.index(name) == order.index(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{r[0]} … {r[-1]}" if len(r) > 2 else ", ".join(r) for r in runs)

"""How the rules evolve: the same long run under several kernel states, in groups that agree."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from pcpmodel.errors import InputError, integer, unknown_name
from pcpmodel.kernel.policies import with_policy
from pcpmodel.kernel.releases import Release, releases
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.study.answer import Answer
from pcpmodel.study.lists.trajectory import (
    MAX_OPERATIONS,
    Trajectory,
    digest_of_frames,
    several,
    trajectory,
)

__all__ = ["Ladder", "ladder"]


@dataclass(frozen=True, eq=False)
class Ladder(Answer):
    """How long runs of one operation are served, by groups of releases that agree.

    Attributes
    ----------
    kind : str
        ``refill``, ``drain`` or ``decay``.
    batch, high_min, high_max : int
        Sizes of the list [pages].
    groups : dict of str to tuple of str
        Label of each group and the releases in it.
    """

    kind: str = ""
    batch: int = 0
    high_min: int = 0
    high_max: int = 0
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def rungs(self) -> pd.DataFrame:
        """One row per group and visit to the buddy lists (``decay``: per tick).

        ``releases`` (label of the group), ``visit`` (ordinal), ``operation`` [pages asked for or
        freed so far; ticks], ``pages``, ``holds``, ``holds_so_far``, ``count``, ``high`` and the
        scale factors after it.
        """
        return self.tables["rungs"]

    def first(self, column: str = "pages", visits: int = 8) -> pd.DataFrame:
        """First values of one column, a row per group of releases."""
        return _first(self.rungs, self.groups, column, visits)


def _first(
    rungs: pd.DataFrame, groups: Mapping[str, object], column: str, visits: int
) -> pd.DataFrame:
    wide = rungs.pivot_table(index="releases", columns="visit", values=column, sort=False)
    wide = wide.reindex([label for label in groups if label in wide.index])
    return wide.iloc[:, :visits].astype("Int64")


def ladder(
    kind: str,
    *,
    names: Iterable[str | Release] | None = None,
    policy: object = None,
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
    names : iterable of str, Release or Tree, optional
        Releases; all named ones by default.
    policy : optional
        A rule of one's own (`pcpmodel.policy`): one more, over the last of them.
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
        For an unknown kind or release, impossible sizes, or work so short that nothing happens.
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
    if number is not None:
        integer("number", number, 1, MAX_OPERATIONS)
    states = list(releases()) if names is None else [find_release(n) for n in names]
    states += [with_policy(states[-1], policy)] if policy is not None and states else []
    order = [state.name for state in states]
    found: dict[bytes, tuple[list[str], pd.DataFrame]] = {}
    for name, state in zip(order, states, strict=True):
        tuned = kind == "decay" and state.rules.auto_high
        run = trajectory(
            state,
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
    if not frames:
        raise InputError(f"number={works[kind][0][1]} pages make no {kind} under any; give more")
    rungs = pd.concat(frames, ignore_index=True)
    by_group = rungs.groupby("releases", sort=False)
    largest, holds = by_group["pages"].max(), by_group["holds"].sum()
    visit = "tick" if kind == "decay" else kind
    return Ladder(
        {"rungs": rungs, "pages": _first(rungs, groups, "pages", 8)},
        {
            label: f"- {label}: up to {largest.get(label, 0):,} pages a {visit}, "
            f"{several(holds.get(label, 0), 'zone-lock hold')} in all."
            for label in groups
        },
        digest=digest_of_frames(rungs),
        shown=("pages",),
        kind=kind,
        batch=batch,
        high_min=high_min,
        high_max=high_max,
        groups=groups,
    )


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

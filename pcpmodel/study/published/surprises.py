"""What would have surprised us: each notebook's own question, answered with its number.

Notebooks about measured hold times, rules and recordings; those that simulate
answer in `pcpmodel.study.contention.autotuning` and beside their runs.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pandas as pd

from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import release
from pcpmodel.study.answer import Answer
from pcpmodel.study.hold.limit import KERNEL_SCALE
from pcpmodel.study.lists.ladder import Ladder
from pcpmodel.trace.recording import recording as open_recording

__all__ = [
    "latency_surprise",
    "limit_surprise",
    "patch_surprise",
    "policy_surprise",
    "replay_surprise",
    "rules_surprise",
]

_SIDES = {"alloc": "refill", "free": "drain"}


def latency_surprise(fit: Answer) -> Answer:
    """Notebook 01: cost per page that falls or rises, p99 that leaves its mean.

    Parameters
    ----------
    fit : Answer
        As `pcpmodel.fit` answers

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    table = fit["measured"].set_index(["machine", "batch"])
    falls, rises, ratios = {}, [], []
    for prefix, side in _SIDES.items():
        mean, p99 = (table[f"{prefix}_latency_{s}_us"] for s in ("avg", "p99"))
        per_page = 1e3 * mean / mean.index.get_level_values("batch")
        by = per_page.groupby("machine")
        change = 100 * (by.last() / by.first() - 1)
        falls[side] = -change
        steps = 100 * by.pct_change().dropna()
        rises += [
            f"{m} {side} at {b} ({step:+.1f} %)" for (m, b), step in steps.items() if step > 1
        ]
        ratios.append((p99 / mean).rename(side))
    ratio = pd.concat(ratios)
    every = pd.concat(falls)
    fall = ", ".join(f"{side}s by {x.min():.0f} to {x.max():.0f} %" for side, x in falls.items())
    if (every > 0).all():
        fall = f"Yes: {fall}. So something is shared between pages of a batch."
    else:
        rising = ", ".join(f"{m} {side}" for (side, m), x in every.items() if x <= 0)
        fall = f"Not everywhere (less than 0 % is a rise: {rising}): {fall}."
    return Answer(
        {},
        {
            "falls": "- Does the cost per page fall with the batch, from the smallest to the "
            "largest "
            f"measured? {fall}",
            "rises": "- Does it rise anywhere by more than 1 % from one row to the next? "
            + (f"Yes: {', '.join(rises)}." if rises else "No: a batch still fits the caches."),
            "p99": "- Does the 99th percentile leave its mean? It is "
            f"{ratio.min():.2f} to {ratio.max():.2f} times the mean; the extremes are "
            f"{' '.join(map(str, ratio.idxmin()))} and {' '.join(map(str, ratio.idxmax()))}. "
            "So other things than pages decide some of the slowest holds.",
        },
    )


def limit_surprise(before: Answer, since: Answer) -> Answer:
    """Notebook 02: does the default pass everywhere, and does cutting drains matter?.

    Parameters
    ----------
    before, since : Answer
        As `pcpmodel.limit` answers: of a kernel whose refills and drains scale, and of one whose
        refills alone do.  Of two that do alike, what cutting drains changes is not told.

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    # As measured; else of the CPUs nearest to those measured that were asked about.
    slowdown = min(before["answers"]["slowdown"], key=lambda factor: abs(math.log(factor)))
    old, new = (
        x["answers"][x["answers"]["slowdown"] == slowdown]
        .set_index("machine")[["batch_scale", "mean_batch_scale"]]
        .fillna(-1)
        for x in (before, since)
    )
    strict, mean = (old[name] >= KERNEL_SCALE for name in ("batch_scale", "mean_batch_scale"))
    least, most = old["batch_scale"].min(), old["batch_scale"].max()
    cut = [bool((rows["drain_pages"] < rows["refill_pages"]).any())
           for rows in (before["per_scale"], since["per_scale"])]  # fmt: skip
    uncut, so = (new, old) if cut[0] else (old, new)
    moved = [
        f"{m} {_scale(a)} to {_scale(b)}"
        for m, a, b in zip(old.index, uncut["batch_scale"], so["batch_scale"], strict=True)
        if a != b
    ]
    if cut[0] == cut[1]:
        names = " and ".join(x["answers"]["release"].iloc[0] for x in (before, since))
        drains = f"{names} {'both' if cut[0] else 'do not'} cut them: these two do not tell."
    else:
        drains = f"It does: {', '.join(moved)}." if moved else "It changes none."
    of = "as measured" if slowdown == 1 else f"on CPUs {slowdown:g}x slower"
    if least != most:
        kernel = (
            f"whose answers go from {_scale(least)} to {_scale(most)} {of}; a number per machine "
            "needs a run-time setting, which no release has; what can be set there is "
            "vm.percpu_pagelist_high_fraction, which bounds high and so what one hold can move. "
            "`pcpmodel advise` names both for a machine."
        )
    elif most >= 0:
        kernel = f"and {most} is the answer of all of them {of}: none needs a number of its own."
    else:
        kernel = f"and no scale is the answer of any {of}: no setting of it would do."
    return Answer(
        {},
        {
            "default": f"- Does the default of {KERNEL_SCALE} pass the strict reading everywhere"
            f"{'' if slowdown == 1 else f', {of}'}? "
            f"{'Yes' if strict.all() else 'No'}: on {strict.sum()} of {len(strict)} machines. "
            f"Does it fail the mean reading anywhere? {'No' if mean.all() else 'Yes'}: it passes "
            f"on {mean.sum()} of {len(mean)}.",
            "drains": f"- Does cutting the drains change no machine's answer? {drains}",
            "setting": "- Should the limit be a setting at run time? It is one of the build "
            "(CONFIG_PCP_BATCH_SCALE_MAX). A distribution has one kernel for all its machines, "
            f"{kernel}",
        },
    )


def _scale(scale: int) -> str:
    return "none" if scale < 0 else str(scale)


def rules_surprise(ladders: Iterable[Ladder], scale: int = KERNEL_SCALE) -> Answer:
    """Notebook 04: does any visit pass the bound, and do kernels without decay give back?

    Parameters
    ----------
    ladders : iterable of Ladder
        Of refills, drains and idle ticks.
    scale : int
        CONFIG_PCP_BATCH_SCALE_MAX.

    Returns
    -------
    Answer
        No table; the answers by name.

    Raises
    ------
    InputError
        If there is no ladder of one of the kinds.
    """
    kinds: Mapping[str, Ladder] = {ladder.kind: ladder for ladder in ladders}
    if missing := {"refill", "drain", "decay"} - kinds.keys():
        raise InputError(f"ladders: there is none of kind {', '.join(sorted(missing))}")
    visits = pd.concat([kinds["refill"].rungs, kinds["drain"].rungs])
    bound = kinds["refill"].batch << scale
    over = sorted(visits[visits["pages"] > bound]["releases"].unique())
    decay = kinds["decay"]
    last = decay.rungs.groupby("releases", sort=False).agg({"count": ["first", "last"]})["count"]
    rows = {
        name: last.loc[label]
        for label, names in decay.groups.items()
        for name in names
        if label in last.index
    }
    without = {n: r for n, r in rows.items() if not release(n).rules.auto_high}
    kept = [n for n, r in without.items() if r["first"] == r["last"]]
    gave = {n: r for n, r in rows.items() if n not in without}
    return Answer(
        {},
        {
            "bound": f"- Does any visit move more than batch << {scale} ({bound:,} pages)? "
            f"{'Yes, ' + ', '.join(over) if over else 'No'}: the largest refill has "
            f"{kinds['refill'].rungs['pages'].max():,} pages, the largest drain "
            f"{kinds['drain'].rungs['pages'].max():,}.",
            "decay": "- Does a kernel without auto-tuning give anything back while it is idle? "
            f"{'No' if len(kept) == len(without) else 'Yes'}: {len(kept)} of {len(without)} keep "
            "every page. Those with it are left with at most "
            f"{max(r['last'] for r in gave.values()):,.0f} pages of "
            f"{max(r['first'] for r in gave.values()):,.0f}.",
            "scatter": "- The counts have no interval: the same rules and work give the same "
            "numbers every time. What a visit takes has one, on every machine its own "
            "(`02-batch-scale-limit`).",
        },
    )


def replay_surprise(exact: Answer) -> Answer:
    """Notebook 05: is it right by accident?.

    Parameters
    ----------
    exact : Answer
        As `pcpmodel.study.recorded` answers.

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    total = exact.table.sum(numeric_only=True)
    seen, foreseen = int(total["allocations"]), int(total["allocations_foreseen"])
    said = (
        "- Does a model that is wrong somewhere get a hundred thousand page numbers right? Of "
        f"{seen:,} allocations the page was foreseen in {foreseen:,} "
        f"({100 * foreseen / seen:.2f} %); {int(total['explained']):,} differences are explained "
        f"and {int(total['unexplained']):,} are not. "
        + ("What" if total["unexplained"] else "No rule is known to be wrong; what")
        + " no recording exercises is not tested by this."
    )
    return Answer({}, {"accident": said})


def patch_surprise(works: Iterable[Answer], pressed: Answer, recordings: Iterable[str]) -> Answer:
    """Notebook 06: does a clean-up or a preparation change a number?.

    Parameters
    ----------
    works : iterable of Answer
        As `pcpmodel.study.recorded_work` answers, for all patches.
    pressed : Answer
        The same of a recording under memory pressure.
    recordings : iterable of str
        Those of ``works``: how far their zones were from the high watermark is read there.

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    quiet = {"v6.6+p2": "v6.6+p1", "v6.6+p4": "v6.6+p3", "v6.6+p6": "v6.6+p5"}
    tables = [work.table.set_index("release") for work in works]
    asked = [p for p, base in quiet.items() if any({p, base} <= set(t.index) for t in tables)]
    moved = []
    for patch, base in quiet.items():
        for table in tables:
            if {patch, base} <= set(table.index) and not table.loc[patch].equals(table.loc[base]):
                one, two = table.loc[base], table.loc[patch]
                moved.append(f"{patch} {_how_else(one, two)}")
    said = {
        "preparation": "- Does a patch that prepares (2: cache sizes, 4: a configuration option, "
        "6: high_min and "
        "high_max) change a number? "
        + (f"Yes: {'; '.join(moved)}." if moved else _none_of(asked, list(quiet)))
    }
    room = []
    for name in recordings:
        cap = open_recording(name)
        zones = [z for tag in cap.tags for z in cap.snapshot(tag).zones if z.wmark_high]
        least = min(zones, key=lambda z: z.nr_free / z.wmark_high)
        room.append(f"{least.nr_free:,} free pages, high watermark {least.wmark_high:,} ({name})")
    at = pressed.table.set_index("release")
    if {"v6.6+p7", "v6.6+p8"} <= set(at.index):
        p7, p8 = at.loc["v6.6+p7"], at.loc["v6.6+p8"]
        same = all(t.loc["v6.6+p7"].equals(t.loc["v6.6+p8"]) for t in tables)
        said["patch 8"] = (
            f"- Rows p7 and p8 {'are equal' if same else 'differ'} above. Patch 8 acts in a zone "
            "below its high watermark only; in the dumps the zones nearest to it had "
            f"{'; '.join(room)}. Under memory pressure it takes the lock "
            f"{p8['zone_lock_holds']:,.0f} times instead of {p7['zone_lock_holds']:,.0f}, with up "
            f"to {p8['pages_in_pcp_max']:,.0f} pages on the lists instead of "
            f"{p7['pages_in_pcp_max']:,.0f}."
            + (f" {pressed.said['judged']}" if "judged" in pressed.said else "")
        )
    return Answer({}, said)


def _how_else(one: pd.Series, two: pd.Series) -> str:
    """The first number in which two rows differ, the holds before all others."""
    name = next(n for n in ["zone_lock_holds", *one.index] if one[n] != two[n])
    if name == "zone_lock_holds":
        return f"takes the lock {two[name]:,.0f} times instead of {one[name]:,.0f}"
    return f"has {two[name]:,g} {name} instead of {one[name]:,g}"


def _none_of(asked: list[str], patches: list[str]) -> str:
    if asked == patches:
        return "No, none of them."
    said = f"Not {', '.join(asked)}, and the others" if asked else "They"
    return f"{said} are not asked here: the state before has to be among the releases, too."


def policy_surprise(work: Answer) -> Answer:
    """Notebook 07: would the simpler rule have done, and does it beat the tuned ones?

    Parameters
    ----------
    work : Answer
        As `pcpmodel.study.recorded_work` answers with a policy, whose row is the last.

    Returns
    -------
    Answer
        No table; the answers by name.
    """
    table = work.table.set_index("release")
    mine = table.iloc[-1]
    others, wins = [], []
    for name, row in table.iloc[:-1].iterrows():
        better = [c for c in ("zone_lock_holds", "pages_in_pcp_max") if mine[c] < row[c]]
        if len(better) == 2 and release(str(name)).rules.auto_high:
            wins.append(str(name))
        others.append(f"{name} {row['zone_lock_holds']:,.0f} and {row['pages_in_pcp_max']:,.0f}")
    tuned = [str(n) for n in table.index[:-1] if release(str(n)).rules.auto_high]
    done, than = [], []
    for column, what in (("zone_lock_holds", "holds"), ("pages_in_pcp_max", "pages on the lists")):
        if tuned:
            best = table.loc[tuned, column].astype(float)
            change = 100 * (float(mine[column]) / best.min() - 1) if best.min() else 0.0
            than.append(f"{change:+.0f} % {what} against {best.idxmin()}")
            done += [what] if change <= 0 else []
    verdict = {0: "No", 1: f"In {done[0] if done else ''} alone", 2: "Yes"}[len(done)]
    answer = (
        f"- Would the simpler rule have done for this work? {verdict}: {', '.join(than)}, of the "
        "tuned kernels the one with the fewest of each.\n"
    )
    beaten = "Yes, " + ", ".join(wins) if wins else "No" if tuned else "None is among the releases"
    own = (
        f"zone-lock holds {mine['zone_lock_holds']:,.0f}, pages on the lists up to "
        f"{mine['pages_in_pcp_max']:,.0f}"
    )
    said = (answer if tuned else "") + (
        f"- Does the rule beat a tuned one in both holds and memory? {beaten}: "
        f"{'; '.join([own, *others])}."
    )
    return Answer({}, {"rule": said})

"""The questions of the notebooks on recorded kernels, each one call."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcpmodel.kernel.releases import Release, releases
from pcpmodel.study.answer import Answer
from pcpmodel.trace.recording import Recording, recording_names
from pcpmodel.trace.recording import recording as open_recording
from pcpmodel.trace.replay import replay
from pcpmodel.trace.what_if import what_if

__all__ = ["pages_over_time", "recorded_work", "recordings"]


def _digest(table: pd.DataFrame) -> str:
    text = json.dumps(table.to_dict("list"), default=str).encode()
    return hashlib.sha256(text).hexdigest()


def recordings(names: Sequence[str] = ()) -> Answer:
    """Replay recordings and say how exact the model is on each.

    Parameters
    ----------
    names : sequence of str, optional
        Recordings under data/traces, or paths; by default all of data/traces that have the
        contents of the lists at their start.

    Returns
    -------
    Answer
        ``recordings``: ``recording``, ``kernel``, ``workload``, ``events``; for each thing
        counted, such as
        ``refills``, how many were ``refills_foreseen``, ``refills_explained`` and
        ``refills_unexplained`` (see `pcpmodel.replay`); ``isolated`` [pages]; ``explained``,
        ``unexplained``: differences.

    Raises
    ------
    InputError
        If a recording is unknown or cannot be read.
    """
    opened = [open_recording(n) for n in names or recording_names()]
    if not names:
        opened = [cap for cap in opened if "before" in cap.tags]
    what = ("allocations", "refills", "blocks", "drains", "drained_pages", "lists", "free_lists")
    ends = ("foreseen", "explained", "unexplained")
    rows: list[dict[str, Any]] = []
    for cap in opened:
        found = replay(cap)
        row: dict[str, Any] = {
            "recording": cap.name,
            "kernel": cap.release.name,
            "workload": cap.name.split("-")[1],
            "events": found.events,
        }
        for name in what:
            row[name] = getattr(found, name)
            for n, end in zip(found.count(name)[1:], ends, strict=True):
                row[f"{name}_{end}"] = n
        row["isolated"] = found.isolated
        rows.append(row | {"explained": found.nr_explained, "unexplained": found.nr_unexplained})
    table = pd.DataFrame(rows)
    total = table.drop(columns=["recording", "kernel", "workload"]).sum()
    shares = ", ".join(
        f"{total[n + '_foreseen']:,} of {total[n]:,} {n.replace('_', ' ')}"
        + (f" ({total[n + '_explained']:,} more explained)" if total[n + "_explained"] else "")
        for n in what
    )
    left = table[table["unexplained"] > 0]
    said = {
        "foreseen": f"Recordings: {len(table)}, kernels: {table['kernel'].nunique()}, "
        f"{total['events']:,} events: the model foresaw {shares}.",
        "left": f"{total['explained']:,} differences have a line of the trace that explains them; "
        + (
            f"{total['unexplained']:,} have none, all in {', '.join(left['recording'])}."
            if len(left)
            else "none is without."
        ),
    }
    return Answer({"recordings": table}, said, digest=_digest(table))


def pages_over_time(recording: str | Path | Recording) -> Answer:
    """Pages on all per-CPU lists over time: the model's, and the kernel's at every dump.

    Parameters
    ----------
    recording : str, path-like or Recording

    Returns
    -------
    Answer
        ``pages``: ``time_s`` since the first dump [s], ``model`` and ``kernel`` [pages]; NaN where
        one of
        them has no value.  The model starts from the first dump and is never told of another.
    """
    cap = open_recording(recording)
    (model,) = what_if(cap).outcomes
    events, reader = cap.trace
    rows = events.rows
    marks = {
        reader.markers[int(rows["a"][k])]: int(rows["time"][k])
        for k in np.flatnonzero(events.is_event("tracing_mark_write"))
    }
    dumps = {s.tag: s for s in cap.series()} | {
        tag: cap.snapshot(tag) for tag in cap.tags if tag != "start"
    }
    kernel = {
        marks[f"pcpmodel: state-{tag}-begin"]: sum(p.count for p in dump.pcps.values())
        for tag, dump in dumps.items()
        if f"pcpmodel: state-{tag}-begin" in marks
    }
    start = min(kernel)
    table = pd.concat(
        [
            pd.DataFrame({"time_s": (model.time_ns - start) / 1e9, "model": model.pages_in_pcp}),
            pd.DataFrame(
                {"time_s": (np.array([*kernel]) - start) / 1e9, "kernel": [*kernel.values()]}
            ),
        ]
    ).sort_values("time_s", kind="stable", ignore_index=True)
    seen = table["model"].ffill()[table["kernel"].notna()]
    off = (seen - table["kernel"].dropna()).abs().dropna()
    return Answer(
        {"pages": table},
        {
            "distance": f"{cap.name}: at the {len(off)} dumps after the first the model's count "
            "is off by "
            f"{off.median():.0f} pages in the median and by {off.max():,.0f} at most, of up to "
            f"{table['kernel'].max():,.0f}."
        },
        digest=_digest(table),
    )


def recorded_work(
    recording: str | Path | Recording,
    releases: Sequence[str | Release],
    policy: object = None,
    **settings: Any,
) -> Answer:
    """One recorded workload under several rules, side by side.

    Parameters
    ----------
    recording : str, path-like or Recording
    releases : sequence of str or Release
        As for `pcpmodel.what_if`.
    policy : object, optional
        As for `pcpmodel.what_if`.
    **settings
        As for `pcpmodel.what_if`.

    Returns
    -------
    Answer
        ``releases``: by rules ``release``, ``refills``, ``drains``, ``zone_lock_holds``,
        ``pages_per_hold`` (in the mean) and ``largest_hold`` of refills and drains [pages],
        ``pages_in_pcp_max`` [pages].  It says how far such counts were off where they were
        recorded, too (`pcpmodel.study.what_if_judged`).
    """
    found = what_if(recording, releases, policy, **settings)
    rows = []
    for o in found.outcomes:
        holds = max(1, o.refills + o.drains)
        rows.append(
            {
                "release": o.release,
                "refills": o.refills,
                "drains": o.drains,
                "zone_lock_holds": o.zone_lock_holds,
                "pages_per_hold": (o.refilled_pages + o.drained_pages) / holds,
                "largest_hold": max(o.pages_per_hold, default=0),
                "pages_in_pcp_max": o.pages_in_pcp_max,
            }
        )
    table = pd.DataFrame(rows)
    return Answer(
        {"releases": table},
        {
            "holds": f"{found.recording}: {found.allocations:,} allocations and {found.frees:,} "
            f"frees take the zone lock {_most_and_least(table)}."
            + _shipped(table)
            + "".join(f" Note: {n}." for n in found.notes)
        }
        | ({"judged": f"Judged: {found.judged}."} if found.judged else {}),
        digest=_digest(table),
    )


def _shipped(table: pd.DataFrame) -> str:
    """What kernels as they are released do, where neither most nor least is told of them."""
    holds = table.set_index("release")["zone_lock_holds"]
    known = {state.name for state in releases() if "+" not in state.name}
    kernels = [f"{name} {n:,}" for name, n in holds.items() if name in known]
    told = {holds.idxmax(), holds.idxmin()}
    if holds.min() == holds.max() or not (set(holds.index) & known) - told:
        return ""
    return f" Of kernels as released: {', '.join(kernels)}."


def _most_and_least(table: pd.DataFrame) -> str:
    """The rules that take the lock most often beside those that do least, if any differ."""
    holds = table["zone_lock_holds"]
    most, least = table.loc[holds.idxmax()], table.loc[holds.idxmin()]
    if holds.max() == holds.min():
        return f"{holds.max():,} times under {' and '.join(table['release'])}"
    return (
        f"{most['zone_lock_holds']:,} times under {most['release']} and "
        f"{least['zone_lock_holds']:,} times under {least['release']}; a refill or drain then "
        f"moves {least['pages_per_hold']:.0f} pages instead of {most['pages_per_hold']:.0f}, the "
        f"largest {least['largest_hold']:,} instead of {most['largest_hold']:,}, and up to "
        f"{least['pages_in_pcp_max']:,} pages sit on the lists instead of "
        f"{most['pages_in_pcp_max']:,}"
    )

"""The questions of the notebooks on recorded kernels, each one call."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pcpmodel.data_package import data_dir
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.releases import Release
from pcpmodel.trace.replay import replay
from pcpmodel.trace.state import Capture, capture
from pcpmodel.trace.what_if import what_if

__all__ = ["Recordings", "pages_over_time", "recorded_work", "recordings"]


@dataclass(frozen=True)
class Recordings:
    """A table about recordings, and what it comes to.

    Attributes
    ----------
    table : pandas.DataFrame
    conclusion : str
        One paragraph with the numbers.
    digest : str
        Of the table.
    """

    table: pd.DataFrame
    conclusion: str
    digest: str


def _answer(table: pd.DataFrame, conclusion: str) -> Recordings:
    text = json.dumps(table.to_dict("list"), default=str).encode()
    return Recordings(table, conclusion, hashlib.sha256(text).hexdigest())


def _directory() -> Path:
    where = data_dir() / "traces"
    if not where.is_dir():
        raise InputError("no recordings here; they come with a checkout, not the wheel", file=where)
    return where


def _open(recording: str | Path | Capture) -> Capture:
    """A recording by its path, or by its name under data/traces."""
    if isinstance(recording, Capture):
        return recording
    if Path(recording).is_dir():
        return capture(recording)
    known = sorted(p.name for p in _directory().iterdir() if (p / "meta.json").is_file())
    if str(recording) not in known:
        raise unknown_name("recording", str(recording), known)
    return capture(_directory() / str(recording))


def recordings(names: Sequence[str] = ()) -> Recordings:
    """Replay recordings and say how exact the model is on each.

    Parameters
    ----------
    names : sequence of str, optional
        Recordings under data/traces, or paths; by default all of data/traces that have the
        contents of the lists at their start.

    Returns
    -------
    Recordings
        ``capture``, ``kernel``, ``workload``, ``events``, and pairs such as ``refills``,
        ``refills_exact`` (see `pcpmodel.replay`); ``explained``, ``unexplained``.

    Raises
    ------
    InputError
        If a recording is unknown or cannot be read.
    """
    captures = [_open(n) for n in names or sorted(p.name for p in _directory().iterdir())
                if names or (_directory() / n / "meta.json").is_file()]  # fmt: skip
    if not names:
        captures = [c for c in captures if "before" in c.tags]
    what = ("allocations", "refills", "blocks", "drains", "drained_pages", "lists", "free_lists")
    rows: list[dict[str, Any]] = []
    for cap in captures:
        found = replay(cap)
        row: dict[str, Any] = {
            "capture": cap.name,
            "kernel": cap.release.name,
            "workload": cap.name.split("-")[1],
            "events": found.events,
        }
        for name in what:
            row[name] = getattr(found, name)
            row[name + "_exact"] = getattr(found, name + "_exact")
        rows.append(row | {"explained": found.nr_explained, "unexplained": found.nr_unexplained})
    table = pd.DataFrame(rows)
    total = table.drop(columns=["capture", "kernel", "workload"]).sum()
    shares = ", ".join(
        f"{total[n + '_exact']:,} of {total[n]:,} {n.replace('_', ' ')}" for n in what
    )
    left = table[table["unexplained"] > 0]
    text = (
        f"Recordings: {len(table)}, kernels: {table['kernel'].nunique()}, {total['events']:,} "
        f"events: the model did what the kernel did in {shares}. {total['explained']:,} "
        "differences have a line of the trace that explains them; "
    )
    if len(left):
        text += f"{total['unexplained']:,} have none, all in {', '.join(left['capture'])}."
    else:
        text += "none is without."
    return _answer(table, text)


def pages_over_time(recording: str | Path | Capture) -> Recordings:
    """Pages on all per-CPU lists over time: the model's, and the kernel's at every dump.

    Parameters
    ----------
    recording : str, path-like or Capture

    Returns
    -------
    Recordings
        ``time_s`` since the first dump [s], ``model`` and ``kernel`` [pages]; NaN where one of
        them has no value.  The model starts from the first dump and is never told of another.
    """
    cap = _open(recording)
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
    return _answer(
        table,
        f"{cap.name}: at the {len(off)} dumps after the first the model's count is off by "
        f"{off.median():.0f} pages in the median and by {off.max():,.0f} at most, of up to "
        f"{table['kernel'].max():,.0f}.",
    )


def recorded_work(
    recording: str | Path | Capture,
    releases: Sequence[str | Release],
    policy: object = None,
    **settings: Any,
) -> Recordings:
    """One recorded workload under several rules, side by side.

    Parameters
    ----------
    recording : str, path-like or Capture
    releases : sequence of str or Release
        As for `pcpmodel.what_if`.
    policy : object, optional
        As for `pcpmodel.what_if`.
    **settings
        As for `pcpmodel.what_if`.

    Returns
    -------
    Recordings
        By rules: ``release``, ``refills``, ``drains``, ``zone_lock_holds``, ``pages_per_hold``,
        ``largest_hold`` [pages], ``pages_in_pcp_max`` [pages].
    """
    found = what_if(_open(recording), releases, policy, **settings)
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
    most = table.loc[table["zone_lock_holds"].idxmax()]
    least = table.loc[table["zone_lock_holds"].idxmin()]
    return _answer(
        table,
        f"{found.capture}: {found.allocations:,} allocations and {found.frees:,} frees take the "
        f"zone lock {most['zone_lock_holds']:,} times under {most['release']} and "
        f"{least['zone_lock_holds']:,} times under {least['release']}; a hold then moves "
        f"{least['pages_per_hold']:.0f} pages instead of {most['pages_per_hold']:.0f}, the largest "
        f"{least['largest_hold']:,} instead of {most['largest_hold']:,}, and up to "
        f"{least['pages_in_pcp_max']:,} pages sit on the lists instead of "
        f"{most['pages_in_pcp_max']:,}.",
    )

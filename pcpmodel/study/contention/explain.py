"""Why one run is faster than another: CPU time per unit of work, cause by cause."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import textwrap

import pandas as pd

from pcpmodel.errors import InputError
from pcpmodel.simulation.pilot import lines_of, mean_line_ns
from pcpmodel.simulation.result import ZONE_KINDS, Result
from pcpmodel.study.answer import Answer

__all__ = ["explain"]

_WIDTH = 72
_SMALL = 0.01  # share of the old time below which a cause is not named


def explain(before: Result, after: Result, *, page_fetch_ns: float | None = None) -> Answer:
    """Say why one run is faster than another.

    Parameters
    ----------
    before, after : Result
        Runs of the same workload.
    page_fetch_ns : float, optional
        Time to fetch a page from memory that the tasks expected in a cache [ns], for runs that
        followed caches (``simulate(identity=True, caches=True)``).  By default nothing is added.

    Returns
    -------
    Answer
        ``causes``: ``cause``, ``ns_per_unit`` [ns of CPU time per unit of work]: first the whole
        of ``before``, then what each cause adds or takes, last the whole of ``after``, of which
        they are the sum.  Said in words that a commit message can use, at most 72 columns: the
        CPU time per unit of work of both, the 95 % interval of the difference (by batch means of
        either run), and each cause of at least 1 % of the old time, the largest first; the rest
        in one sum.  A difference within its interval is called that, and no causes are given.

    Raises
    ------
    InputError
        If the runs did different work, or none.

    Notes
    -----
    Holds of the zone lock change by their number (valued at the old mean) and by their mean
    length (valued at the new number), both without what fetching cold pages adds.

    "Colder pages" has two parts.  In the simulation a page is cold where it passes through the
    zone, the lines of its hold for every block moved: that many blocks times what a pilot says,
    an expectation, since holds are drawn as a whole; the length of holds takes up the
    difference.  In the tasks' own work pages cost time whose data a pilot finds in no cache of the
    node: as much as the program takes longer for it, at the pace of a CPU with a core of its own.
    With ``page_fetch_ns`` the pages allocated that were outside of a CPU's private cache and its
    slice of the last-level cache cost that much each on top, an estimate that is then part of
    "before" and "after" too.  Either way the causes add up.
    """
    names = [run.spec.workload.name for run in (before, after)]
    if names[0] != names[1]:
        raise InputError(f"the runs did different work: {names[0]} and {names[1]}")
    if not (before.score and after.score):
        raise InputError("a run without a finished unit of work cannot be explained")

    if page_fetch_ns is not None:
        if not 0 <= page_fetch_ns <= 1e6:
            raise InputError(f"page_fetch_ns={page_fetch_ns} is outside 0..1e6 ns")
        if not (before.spec.caches and after.spec.caches):
            raise InputError("page_fetch_ns needs runs with identity=True, caches=True")

    def per_unit(run: Result) -> dict[str, float]:
        total = {k: int(v.sum()) for k, v in run.per_cpu.items()}
        ns = {k: total[k] / 1000 / run.score for k in total if k.endswith("_ps")}
        holds = {k: h.total / run.score for k, h in run.hold_hist.items()}
        cold = mean_line_ns(run.spec) * total["moved_blocks"] / run.score
        fetch = (page_fetch_ns or 0.0) * total["found_memory"] / run.score
        lines = lines_of(run.spec)
        data = 0.0 if lines is None else lines.page_ns * total["alloc_pages"] / run.score
        whole = run.cpu_ps / 1000 / run.score
        known = ("wait_ps", "hold_ps", "lru_wait_ps", "lru_hold_ps", "idle_ps")
        return {
            "whole": whole + fetch,
            "holds": sum(holds[kind] for kind in ZONE_KINDS),
            "cold": cold + data + fetch,
            "hold": ns["hold_ps"] - cold,
            "wait": ns["wait_ps"],
            "lru": ns["lru_wait_ps"] + ns["lru_hold_ps"],
            "idle": ns["idle_ps"],
            "work": whole - data - sum(ns[k] for k in known),
        }

    a, b = per_unit(before), per_unit(after)
    mean = a["hold"] / a["holds"] if a["holds"] else 0.0
    number = (b["holds"] - a["holds"]) * mean
    rows = [
        ("before", a["whole"]),
        ("number of zone-lock holds", number),
        ("length of zone-lock holds", b["hold"] - a["hold"] - number),
        ("colder pages", b["cold"] - a["cold"]),
        ("waiting for the zone lock", b["wait"] - a["wait"]),
        ("the LRU lock", b["lru"] - a["lru"]),
        ("asleep", b["idle"] - a["idle"]),
        ("work between holds", b["work"] - a["work"]),
        ("after", b["whole"]),
    ]
    causes = pd.DataFrame(rows, columns=["cause", "ns_per_unit"])
    return Answer({"causes": causes}, {"paragraph": _paragraph(before, after, causes)})


def _unit(ns: float) -> tuple[float, str]:
    """What to divide times by that are about as long as this, and what they are in then."""
    return next(((d, u) for d, u in ((1e6, "ms"), (1e3, "us")) if ns >= 10 * d), (1.0, "ns"))


def _both(one: object, other: object) -> str:
    return f"{one}" if one == other else f"{one} and {other}"


def _paragraph(before: Result, after: Result, table: pd.DataFrame) -> str:
    causes = table.set_index("cause")["ns_per_unit"]
    old, new = causes["before"], causes["after"]
    change = new - old
    noise = math.hypot(*(r.half_width("cpu_ns_per_unit") for r in (before, after)))
    by, unit = _unit(old)
    a, b = before.spec, after.spec
    text = (
        f"In a simulation of {b.workload.name} on {_both(a.machine.name, b.machine.name)} "
        f"({_both(a.host.cpus, b.host.cpus)} CPUs, {_both(f'{a.seconds:g}', f'{b.seconds:g}')} s "
        f"after {_both(f'{before.warmup_s:.3g}', f'{after.warmup_s:.3g}')} s of warm-up, "
        f"seed{'s' * (a.seed != b.seed)} {_both(a.seed, b.seed)}), CPU time per unit of work "
        f"({b.workload.unit}) goes from {old / by:.1f} {unit} with {a.rules} to {new / by:.1f} "
        f"{unit} with {b.rules}, {100 * change / old:+.1f}%"
    )
    if math.isnan(noise):
        text += " (its noise is not known: less than 20 samples)"
    elif abs(change) <= noise:
        text += (
            f": inside the noise, which is {100 * noise / old:.1f}% (95 %, batch means). No "
            "difference is shown."
        )
        return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    else:
        text += f" ± {100 * noise / old:.1f}% (95 %, batch means)"
    parts = causes.drop(["before", "after"]).sort_values(key=abs, ascending=False, kind="stable")
    named = parts[parts.abs() >= _SMALL * old]
    rest = parts.drop(named.index).sum()
    words = [f"{cause} {ns / by:+.1f} {unit}" for cause, ns in named.items()]
    words.append(f"{'everything else' if words else 'all causes together'} {rest / by:+.1f} {unit}")
    text += f"; negative is better. Of the {change / by:+.1f} {unit}: {', '.join(words)}."
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)

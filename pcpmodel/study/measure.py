"""A machine's cost sheet and latency table, from the machine itself: one boot, a few minutes.

Since v6.7 a running kernel refills and drains anything from a batch to ``batch << 5`` pages, so
that one trace of one load has the whole curve.  What a page takes beside its tracing comes from
tracing the same load by one, two and three instances (`pcpmodel.trace.hold_tracer`).  Where the
kernel offers other sources of holds (`pcpmodel.study.hold_sources`), the best one says what a page
takes, and the others whether it is so.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from pcpmodel.datasets import measured, packages
from pcpmodel.datasets.packages import (
    COSTS_RESOURCE,
    INTERVAL_RESOURCE,
    LATENCY_RESOURCE,
    RATES_RESOURCE,
)
from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input.estimates import MIN_SAMPLES, p99_ranks
from pcpmodel.hardware.load import KINDS, Load, most_pages
from pcpmodel.hardware.machines import load_machines
from pcpmodel.hardware.probe import Cost, Missing, Probes
from pcpmodel.hardware.sheet import HOLD_ROWS, class_holds
from pcpmodel.kernel.releases import nearest_release
from pcpmodel.kernel.sizing import drain_hold_limit, drain_limit
from pcpmodel.proc.cpulist import cpu_list
from pcpmodel.proc.host import HostFiles
from pcpmodel.signals import Shield, shielded
from pcpmodel.study.answer import Answer
from pcpmodel.study.hold_sources import compared
from pcpmodel.study.loads import Cell, Observed, levels, observe, pairs_of
from pcpmodel.study.measured_files import store
from pcpmodel.trace.hold_tracer import COPIES, SIDES, HoldTracer, Traced, hold_tracer, other_tracers

__all__ = ["may_use", "measure", "refuse_busy", "touched"]

_TRACEFS = Path("/sys/kernel/tracing")
#: Largest busy share of the CPUs and of time stalled for memory [%], and of free memory to be used.
MAX_BUSY, MAX_STALLED, SHARE = 50.0, 5.0, 0.25
#: How long the CPUs are looked at [s]; a load average would still hold a measurement just ended.
LOOK_S = 0.5
#: Pages of the largest region of the load, and seconds of a traced round.
PAGES, ROUND_S = 8064, 0.6
#: Holds from here on say what a page takes: the time outside of the pages is small beside.
LONG = 200
#: Numbers of pages of the table; holds of each that do, a fifth more than a 99th percentile needs.
TARGETS = tuple(63 << k for k in range(6))
ENOUGH = MIN_SAMPLES * 6 // 5
#: Instances that trace a round, in turn, and how many rounds there are at least.
CYCLE = (1, 0, 1, 2, 1, 3)
LEAST_ROUNDS = 3 * len(CYCLE)
#: Rounds with long holds that a line is laid through at least, and how well it should tell a page.
LEAST_POINTS = 12
SURE = 0.1
#: Rounds of each load for its rates, and the share of the time that all of them have.
RATE_ROUNDS, RATE_SHARE = 6, 0.3
#: Share of the time that all sources of holds but the kmem events have.
SOURCE_SHARE = 0.1


class _Round(NamedTuple):
    """A round of the load."""

    copies: int  #: instances that traced it
    pages: int  #: of a region, at most
    traced: Traced | None
    did: dict[str, float]


def measure(
    name: str,
    minutes: float = 3.0,
    *,
    cpus: Sequence[int] | None = None,
    dry_run: bool = False,
    force: bool = False,
    replace: bool = False,
    data: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Measure this machine and store it in ``data/hardware/NAME``.

    Parameters
    ----------
    name : str
        What to call it, ``[a-z0-9][a-z0-9-]*``.
    minutes : float
        How long at most, about, 0.2..60.
    cpus : sequence of int, optional
        CPUs to use, by default all that this process may.
    dry_run : bool
        Only say what would be touched.
    force : bool
        Measure although the machine is busy or short of memory.
    replace : bool
        Whether a machine of that name may be there; intervals then take in what is stored.
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.
    progress : callable, optional
        Is told what comes next.

    Returns
    -------
    Answer
        Tables ``costs``, ``holds`` (the latency table), ``tracing`` (its cost by two ways),
        ``sources`` (holds by the other sources that the kernel offers, and what each costs),
        ``rates`` (what loads do, without tracing and with), ``not measured`` and ``touched``.
        Facts: machine, path (None: nothing was stored), costs, unsteady (what two passes or
        sessions do not agree on), not_measured.  Without root no hold is measured: the cost sheet
        then has those of other machines, and replaces no machine whose holds were measured.

    Raises
    ------
    InputError
        If an argument is out of range, the name is taken, or the machine is too busy.
    Ended
        On SIGTERM or SIGHUP; everything is put back.  What a killed one left of tracing is removed
        by the next.
    """
    packages.check_name(name)
    root = packages.data_root(data)
    if isinstance(minutes, bool) or not 0.2 <= minutes <= 60:
        raise InputError(f"minutes={minutes!r} is outside 0.2..60")
    if not replace and (root / "hardware" / name).exists():
        raise InputError(
            f"machine {name!r} is there already; --replace measures it again",
            file=root / "hardware" / name,
        )
    if not os.access(next(p for p in (root / "hardware", root) if p.exists()), os.W_OK | os.X_OK):
        raise InputError("cannot be written; --data names another place", file=root / "hardware")
    host = HostFiles(Path("/"))
    used, memory = may_use(host, cpus)
    plan = touched(name, used, data)
    if dry_run:
        return Answer(
            {"touched": plan},
            {"dry run": "Nothing was touched."},
            facts={"machine": name, "path": None, "touched": plan.to_dict("records")},
        )
    refuse_busy(host, used, memory, force)
    end = time.monotonic() + 60 * minutes
    probes = Probes(host, used, max(memory, 64 << 20))
    missing: list[Missing] = []
    rounds, sources, observed = _all_measured(probes, used, end, missing, progress)
    rows, unsteady = probes.costs()
    missing = [*probes.missing, *missing]
    frames: dict[str, pd.DataFrame] = {}
    table = interval = None
    said = {}
    path = root / "hardware" / name
    if rounds:
        sheet, table, interval, frames["tracing"] = _evaluate(rounds, missing, unsteady)
        rows += _best(sheet, sources, unsteady)
        if len(sources):
            frames["sources"] = sources
        frames["rates"] = _rates_beside(_rate_table(observed), _rates_before(path), unsteady)
        if interval is not None:
            interval = _interval_beside(interval, _interval_before(path), unsteady)
    own_pages = any(row.operation.startswith("hold_page") for row in rows)
    if table is not None:  # without the events' own cost
        rows.append(Cost("tracer", "", 0.0, "ns", 0.0, 0.0, "derived", "taken off, page by page"))
    rows = _beside([*rows, *_assumed(rows, missing)], _costs_before(path), unsteady)
    if table is not None:
        frames["holds"] = table
        said["holds"] = _say_holds(table)
    if table is None and (path / LATENCY_RESOURCE["path"]).exists():
        stored = None
        said["stored"] = f"Nothing was stored: {path} has holds, and these are none."
    else:
        traced = [(each.copies, each.traced) for each in rounds if each.traced is not None]
        rates = frames.get("rates")
        stored = store(root, name, rows, table, interval, used, traced, replace, rates)
        said["stored"] = f"Stored in {stored}."
        if table is None:
            said["stored"] += (
                " Too few holds were measured for a table: it follows from costs.csv."
                if own_pages
                else " No hold was measured: what they take is that of other machines."
            )
    if unsteady:
        said["unsteady"] = (
            f"Two passes or sessions do not agree on {', '.join(dict.fromkeys(unsteady))}: "
            "something else ran, and the intervals take in both."
        )
    costs = pd.DataFrame(rows, columns=Cost._fields)
    facts = {
        "machine": name,
        "path": None if stored is None else str(stored),
        "costs": [_told(row) for row in rows],
        "unsteady": list(dict.fromkeys(unsteady)),
        "not_measured": [{"name": m.name, "why": m.why} for m in missing],
    }
    tables = {"costs": costs, **frames, "not measured": pd.DataFrame(missing), "touched": plan}
    return Answer(tables, said, facts=facts, shown=("costs", *frames, "not measured"))


def _all_measured(
    probes: Probes,
    used: list[int],
    end: float,
    missing: list[Missing],
    progress: Callable[[str], None],
) -> tuple[list[_Round], pd.DataFrame, dict[tuple[str, int], Observed]]:
    """Rounds of the load, holds by other sources and rates; the probes run before and after."""
    with shielded() as shield:
        began = time.monotonic()
        with shield.lifted():
            probes.run(progress)
        again = time.monotonic() - began
        left_s = max(end - again - time.monotonic(), 0.0)
        rates_s, sources_s = RATE_SHARE * left_s, SOURCE_SHARE * left_s
        rounds = _holds(used, end - again - rates_s - sources_s, shield, missing, progress)
        sources = _sources(used, sources_s, rounds, shield, missing, progress)
        observed = _rates(used, rates_s, shield, missing, progress)
        with shield.lifted():
            probes.run(progress)
    return rounds, sources, observed


def _told(row: Cost) -> dict[str, Any]:
    """A row of the sheet, as the facts of `measure` have it."""
    return {
        "name": f"{row.operation} {row.distance}".rstrip(),
        "value": row.value,
        "low": row.low,
        "high": row.high,
        "unit": row.unit,
        "origin": row.origin,
        "how": row.source,
    }


def may_use(host: HostFiles, cpus: Sequence[int] | None) -> tuple[list[int], int]:
    """CPUs to use, and memory [bytes]."""
    allowed = os.sched_getaffinity(0)
    used = sorted(allowed if cpus is None else set(cpus))
    if not used or not set(used) <= allowed:
        raise InputError(f"cpus={used}: only CPUs that this process may use, {sorted(allowed)}")
    available = host.kib(host.root / "proc/meminfo", "MemAvailable") or 0
    return used, int(SHARE * available) << 10


def touched(
    name: str, cpus: Sequence[int] | None = None, data: str | os.PathLike[str] | None = None
) -> pd.DataFrame:
    """Say what `measure` touches of this machine; the arguments are its own."""
    packages.check_name(name)
    used, memory = may_use(HostFiles(Path("/")), cpus)
    rows = [
        ("CPUs", cpu_list(used), "busy with probes and load, pinned"),
        ("memory", f"{memory >> 20} MiB", "at most; given back"),
        ("tracing", f"{COPIES} instances of its own", "removed; no setting of others changes"),
        ("sysctl", "none", ""),
        (str(packages.data_root(data) / "hardware" / name), "written", "the result"),
    ]
    return pd.DataFrame(rows, columns=["what", "how much", "how"])


def refuse_busy(host: HostFiles, cpus: Sequence[int], memory: int, force: bool) -> None:
    """Refuse where other work would be disturbed, and would disturb."""
    if force:
        return
    busy = _busy(host)
    stalled = host.text(host.root / "proc/pressure/memory") or ""
    share = float(stalled.partition("avg10=")[2].split()[0]) if "avg10=" in stalled else 0.0
    needed = max(64 << 20, most_pages(len(cpus)) * os.sysconf("SC_PAGESIZE"))
    for wrong in (
        f"the CPUs are busy {busy:.0f} % of the time, allowed is {MAX_BUSY:g} %"
        * (busy > MAX_BUSY),
        f"tasks wait for memory {share} % of the time, allowed is {MAX_STALLED} %"
        * (share > MAX_STALLED),
        f"{memory >> 20} MiB may be used, needed are {needed >> 20}" * (memory < needed),
    ):
        if wrong:
            raise InputError(f"{wrong}; --force measures all the same, less well")


def _busy(host: HostFiles) -> float:
    """Share of the CPUs' time that other work takes now [%]; what the host steals is part of it."""

    def spent() -> tuple[int, int]:
        line = (host.text(host.root / "proc/stat") or "").partition("\n")[0]
        ticks = [int(word) for word in line.split()[1:9]]  # user .. steal; proc(5)
        return sum(ticks), sum(ticks[3:5])  # idle and waiting for a disk

    total, idle = spent()
    time.sleep(LOOK_S)
    after, idle_after = spent()
    return 100 * (1 - (idle_after - idle) / (after - total)) if after > total else 0.0


# ------------------------------------------------------------------- holds


def _holds(
    cpus: Sequence[int],
    end: float,
    shield: Shield,
    missing: list[Missing],
    progress: Callable[[str], None],
) -> list[_Round]:
    """Rounds of the load: instances that traced it, what they saw, what the load did."""
    if len(cpus) < 2:
        missing.append(Missing("holds", "the load needs two CPUs: one refills, one drains"))
        return []
    rounds: list[_Round] = []
    try:
        # Only what is between may be interrupted, not what makes and removes the instances.
        with (
            Load([(cpus[0], cpus[1])]) as load,
            hold_tracer(_TRACEFS) as tracer,
            shield.lifted(),
        ):
            _until_enough(load, tracer, end, rounds, progress)
    except InputError as error:
        missing.append(Missing("holds", error.message))
        return []
    kernel = nearest_release(os.uname().release)
    if drain_hold_limit(1, kernel.rules) != drain_limit(1, kernel.rules):
        why = f"{kernel.name} cuts a drain into holds; the figures are of whole drains"
        missing.append(Missing("holds, free", why))
    return rounds


def _until_enough(
    load: Load,
    tracer: HoldTracer,
    end: float,
    rounds: list[_Round],
    progress: Callable[[str], None],
) -> None:
    """Make rounds until every number of pages has enough and a page is known, or time is over."""
    load.run(ROUND_S, PAGES)
    counts = dict.fromkeys(((side, n) for side in SIDES for n in TARGETS), 0)
    while len(rounds) < LEAST_ROUNDS or (
        time.monotonic() < end and (min(counts.values()) < ENOUGH or not _sure(rounds))
    ):
        if others := other_tracers(_TRACEFS):
            raise InputError(f"{', '.join(others)} traced the same events meanwhile")
        for copies in CYCLE:
            # Bursts for the number of pages of which there are the fewest holds.
            fewest = min(TARGETS, key=lambda n: min(counts[side, n] for side in SIDES))
            pages = 2 * fewest if copies == 1 and fewest < TARGETS[-1] else PAGES
            progress(f"holds of {fewest} pages, round {len(rounds) + 1}")
            rounds.append(_round(load, tracer, copies, pages))
            traced = rounds[-1].traced
            if copies == 1 and traced is not None:
                for side, n in counts:
                    counts[side, n] += int(_near(traced.pages[side], n).sum())


def _sure(rounds: Sequence[_Round]) -> bool:
    """Whether both sides have a page's time to within `SURE`."""
    for side in SIDES:
        points = _points(rounds, side)
        if len(points) < LEAST_POINTS:
            return False
        _, page, _, half = _line(points)
        if half > SURE * page:
            return False
    return True


def _round(load: Load, tracer: HoldTracer, copies: int, pages: int) -> _Round:
    did: list[dict[str, float]] = []

    def work() -> None:
        did.extend(load.run(ROUND_S, pages))

    traced = None
    if copies:
        traced = tracer.trace(work, copies)
    else:
        work()
    return _Round(copies, pages, traced, did[0])


def _sources(
    cpus: Sequence[int],
    seconds: float,
    rounds: Sequence[_Round],
    shield: Shield,
    missing: list[Missing],
    progress: Callable[[str], None],
) -> pd.DataFrame:
    """Holds by the other sources that are there; empty where none is, or no event's cost known."""
    event_ns = {}
    for side in SIDES:
        points = _points(rounds, side)
        if len(points) < LEAST_POINTS:
            return pd.DataFrame()
        slope, _, half, _ = _line(points)
        event_ns[side] = slope, half
    return compared(_TRACEFS, cpus, seconds, event_ns, shield, missing, progress)


def _best(sheet: Sequence[Cost], sources: pd.DataFrame, unsteady: list[str]) -> list[Cost]:
    """Let the source that knows a page best say what it takes.

    The interval takes in every source that it does not meet, and this is said.  What a source
    takes of a hold without pages has a row of its own.
    """
    rows = {row.operation: row for row in sheet}
    for each in sources.itertuples():
        low, high = (each.empty_hold_ns + k * each.empty_half_width_95 for k in (-1, 1))
        if high > 0:  # NaN: holds of too few sizes
            name = f"hold_empty_{each.source}_{each.side}"
            how = f"a hold without pages by {each.source}: its own part, and the taking of the lock"
            ends = max(each.empty_hold_ns, 0.0), "ns", max(low, 0.0), high, "derived", how
            rows[name] = Cost(name, "", *ends)
    for side in SIDES:
        name = f"hold_page_{side}"
        found = [rows[name]] if name in rows else []
        for each in sources.itertuples():
            low, high = each.page_ns - each.half_width_95, each.page_ns + each.half_width_95
            if each.side == side and low > 0:
                how = (
                    f"a page of a hold of {measured.KERNEL_FUNCTIONS[side]}, order 0, by "
                    f"{each.source} in {each.holds} holds"
                )
                found.append(Cost(name, "", each.page_ns, "ns", low, high, "derived", how))
        if len(found) < 2:
            rows |= {row.operation: row for row in found}
            continue
        best = min(found, key=lambda row: row.high / row.low)
        apart = [row for row in found if row.low > best.high or row.high < best.low]
        if apart:
            unsteady.append(f"{name} by its sources")
        others = "; ".join(
            f"{row.value:.4g} ({row.low:.4g} to {row.high:.4g}): {row.source}"
            for row in found
            if row is not best
        )
        rows[name] = best._replace(
            low=min(row.low for row in (best, *apart)),
            high=max(row.high for row in (best, *apart)),
            source=f"{best.source}; beside it {others}",
        )
    return list(rows.values())


def _rates(
    cpus: Sequence[int],
    seconds: float,
    shield: Shield,
    missing: list[Missing],
    progress: Callable[[str], None],
) -> dict[tuple[str, int], Observed]:
    """What every kind of load does with 1, 2, 4 .. all CPUs, without tracing and with."""
    cells = [(kind, n) for kind in KINDS for n in levels(kind, cpus)]
    found: dict[tuple[str, int], Observed] = {}
    if not cells:
        return found
    part_s = max(seconds / len(cells) / (3 * RATE_ROUNDS + 2), 0.02)
    try:
        with hold_tracer(_TRACEFS) as tracer:
            if others := other_tracers(_TRACEFS):
                raise InputError(f"{', '.join(others)} trace the same events")
            for kind, processes in cells:
                progress(f"rate of {kind}, {processes} processes")
                with Load(pairs_of(kind, processes, cpus)) as load, shield.lifted():
                    found[kind, processes] = observe(
                        load,
                        tracer,
                        Cell(kind, processes, 0),
                        part_s,
                        RATE_ROUNDS,
                        2 * part_s,
                    )
    except InputError as error:
        missing.append(Missing("rates", error.message))
    return found


def _rate_table(observed: Mapping[tuple[str, int], Observed]) -> pd.DataFrame:
    """``rates.csv``: medians of the rounds."""
    names = [column["name"] for column in RATES_RESOURCE["schema"]["fields"]]
    rows = []
    for (kind, processes), seen in observed.items():
        middle, low, high = seen.figure("rate")
        row = {
            "workload": kind,
            "processes": processes,
            "unit": KINDS[kind].unit,
            "rate": middle,
            "rate_low": low,
            "rate_high": high,
        }
        rows.append([row[n] if n in row else seen.figure(n)[0] for n in names])
    return pd.DataFrame(rows, columns=names)


def _near(pages: NDArray[np.int64], target: int) -> NDArray[np.bool_]:
    """Which holds count for this number of pages: it is the nearest, on a log scale."""
    return np.abs(np.log(pages / target)) < np.log(2) / 2


def _per_page(traced: Traced, side: str) -> float | None:
    """Median time from page to page in the long holds of a round [ns]."""
    pages, span = traced.pages[side], traced.span_ns[side]
    long = pages >= LONG
    return float(np.median(span[long] / (pages[long] - 1))) if long.any() else None


def _points(rounds: Sequence[_Round], side: str) -> list[tuple[int, float]]:
    """Instances that traced a round, and what a page of its long holds took [ns]."""
    return [
        (each.copies, ns)
        for each in rounds
        if each.traced is not None
        and each.pages == PAGES
        and (ns := _per_page(each.traced, side)) is not None
    ]


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float, float, float]:
    """Slope and intercept through (instances, ns), with 95 % half-widths."""
    x, y = np.array(points, dtype=float).T
    off = x - x.mean()
    slope = float(off @ y / (off @ off))
    page = float(y.mean() - slope * x.mean())
    left = y - page - slope * x
    error = np.sqrt(left @ left / (len(x) - 2) / (off @ off))
    half = float(stdtrit(len(x) - 2, 0.975) * error)
    return slope, page, half, half * float(np.sqrt((x @ x) / len(x)))


def _evaluate(
    rounds: Sequence[_Round], missing: list[Missing], unsteady: list[str]
) -> tuple[list[Cost], pd.DataFrame | None, pd.DataFrame | None, pd.DataFrame]:
    """Cost rows, latency table, its intervals, and what tracing costs by two ways."""
    rows, columns, tracing = [], {}, []
    for side in SIDES:
        points = _points(rounds, side)
        if len(points) < LEAST_POINTS:
            missing.append(Missing(f"holds, {side}", f"{len(points)} rounds had long holds"))
            continue
        slope, page, slope_half, page_half = _line(points)
        # Both halves of the session must agree; where they do not, the interval takes in both.
        halves = [_line(half) for half in (points[: len(points) // 2], points[len(points) // 2 :])]
        apart = abs(halves[0][1] - halves[1][1])
        if apart > halves[0][3] + halves[1][3]:
            unsteady.append(f"hold_page_{side}")
            page_half = max(page_half, *(abs(half[1] - page) + half[3] for half in halves))
            slope_half = max(slope_half, *(abs(half[0] - slope) + half[2] for half in halves))
        tracing.append((f"{side}: one, two, three instances", slope, slope_half, len(points)))
        rows.append(
            Cost(
                f"trace_event_{side}",
                "",
                slope,
                "ns",
                max(slope - slope_half, 0.0),
                slope + slope_half,
                "measured",
                f"more per page of a hold with each further instance that traces it, 1 to {COPIES}",
            )
        )
        if page - page_half <= 0:
            missing.append(Missing(f"holds, {side}", "the cost of tracing hides that of a page"))
            continue
        what = measured.KERNEL_FUNCTIONS[side]
        rows.append(
            Cost(
                f"hold_page_{side}",
                "",
                page,
                "ns",
                page - page_half,
                page + page_half,
                "derived",
                f"a page of a hold of {what}, order 0, from kmem events traced by 1 to {COPIES} "
                f"instances in {len(points)} rounds, carried to none",
            )
        )
        columns[side] = _figures(rounds, side, slope, slope_half)
    tracing.append(_by_load(rounds))
    cost = pd.DataFrame(tracing, columns=["how", "ns_per_event", "half_width_95", "rounds"])
    if len(columns) < len(SIDES):
        return rows, None, None, cost
    both = sorted(set(columns["free"]) & set(columns["alloc"]))
    if len(both) < LATENCY_RESOURCE["rules"]["min_rows"]:
        why = f"{len(both)} numbers of pages have {MIN_SAMPLES} holds a side; more --minutes"
        missing.append(Missing("latency table", why))
        return rows, None, None, cost
    table = pd.DataFrame({"batch": both, "throughput_pages_per_s": ""})
    interval = pd.DataFrame({"batch": both})
    for side in ("free", "alloc"):
        interval[f"{side}_samples"] = [int(columns[side][n]["samples"]) for n in both]
        for figure in ("avg", "p99"):
            table[f"{side}_latency_{figure}_us"] = [columns[side][n][figure] for n in both]
            for bound in ("low", "high"):
                interval[f"{side}_latency_{figure}_{bound}_us"] = [
                    columns[side][n][f"{figure}_{bound}"] for n in both
                ]
    return rows, table, interval, cost


def _figures(
    rounds: Iterable[_Round],
    side: str,
    event_ns: float,
    event_half_ns: float,
) -> dict[int, dict[str, float]]:
    """Mean and 99th percentile by number of pages [us], without tracing, with their intervals."""
    ones = [each.traced for each in rounds if each.traced is not None and each.copies == 1]
    pages = np.concatenate([one.pages[side] for one in ones])
    span = np.concatenate([one.span_ns[side] for one in ones])
    found = {}
    for target in TARGETS:
        near = _near(pages, target)
        if near.sum() >= MIN_SAMPLES:
            # From the first page to the last are pages - 1 pages, and as many events.
            whole = span[near] / (pages[near] - 1) * target / 1e3
            found[target] = _estimate(whole, target * event_ns / 1e3, target * event_half_ns / 1e3)
    return {n: f for n, f in found.items() if f["avg_low"] > 0}


def _estimate(us: NDArray[np.float64], tracing: float, half: float) -> dict[str, float]:
    values = np.sort(us)
    rank, low, high = p99_ranks(len(values))
    error = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    avg, p99 = float(values.mean()) - tracing, float(values[rank - 1]) - tracing
    spread = float(np.hypot(error, half))
    return {
        "samples": len(values),
        "avg": avg,
        "avg_low": avg - spread,
        "avg_high": avg + spread,
        "p99": p99,
        "p99_low": float(values[low - 1]) - tracing - half,
        "p99_high": float(values[high - 1]) - tracing + half,
    }


def _by_load(
    rounds: Sequence[_Round],
) -> tuple[str, float, float, int]:
    """Cost of an event from the load's own CPU time, with tracing and without."""
    alike = [each for each in rounds if each.pages == PAGES]
    ns = {
        k: [1e9 * each.did["cpu_s"] / each.did["pages"] for each in alike if each.copies == k]
        for k in (0, 1)
    }
    events = [
        sum(each.traced.events.values()) / each.did["pages"]
        for each in alike
        if each.copies == 1 and each.traced is not None
    ]
    per_page = float(np.median(events))
    more = float(np.mean(ns[1]) - np.mean(ns[0]))
    error = np.hypot(
        *(np.std(v, ddof=1) / np.sqrt(len(v)) if len(v) > 1 else np.nan for v in ns.values())
    )
    how = f"CPU time of the load with and without, {per_page:.1f} events a page"
    return how, more / per_page, float(1.96 * error / per_page), len(ns[1])


_FITTED = dict.fromkeys(HOLD_ROWS, "what a page more takes") | {"hold_fixed": "constant term"}


def _assumed(rows: Sequence[Cost], missing: list[Missing]) -> list[Cost]:
    """What of a hold was not measured, from the machines whose tables are known."""
    measured = load_machines()
    missing.append(Missing("hold_fixed", "a hold's first event is that of its first page"))
    have = {row.operation for row in rows}
    of = f"of the fits of {len(measured)} machines"
    return [
        Cost(name, "", value, "ns", low, high, "assumed", f"{_FITTED[name]}, {of}")
        for name, (value, low, high) in class_holds([m.hold_time for m in measured]).items()
        if name not in have
    ]


_OWN = ("measured", "derived")  # origins of what the machine itself has shown


def _takes_in(
    low: NDArray[np.float64], high: NDArray[np.float64], *before: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Intervals that take in those of the session before, and which of the two did not meet.

    They never become narrower: what a host does to its guests changes from session to session.
    NaN: there was none before.
    """
    was_low, was_high = before
    apart = np.maximum(low, was_low) > np.minimum(high, was_high)
    return np.fmin(low, was_low), np.fmax(high, was_high), apart


def _costs_before(path: Path) -> dict[tuple[str, str], Cost]:
    """What the machine's own measurement before had; nothing where there is no such one."""
    if not path.is_dir():
        return {}
    sheet = packages.read_package(path, "hardware", []).tables.get(COSTS_RESOURCE["name"])
    rows = (
        (Cost(**{**row, "distance": row["distance"] or ""}) for row in sheet.records())
        if sheet
        else ()
    )
    return {(row.operation, row.distance): row for row in rows if row.origin in _OWN}


def _beside(
    rows: Sequence[Cost], before: Mapping[tuple[str, str], Cost], unsteady: list[str]
) -> list[Cost]:
    """Widen each interval until it takes in the measurement before.

    What was measured before and is not now stays.
    """
    own = {(row.operation, row.distance) for row in rows if row.origin in _OWN}
    kept = [row for key, row in before.items() if key not in own]
    again = {(row.operation, row.distance) for row in kept}
    found = [row for row in rows if (row.operation, row.distance) not in again]
    for i, row in enumerate(found):
        was = before.get((row.operation, row.distance))
        if was is None:
            continue
        ends = (np.array([v]) for v in (row.low, row.high, was.low, was.high))
        (low,), (high,), (apart,) = _takes_in(*ends)
        if apart:
            unsteady.append(f"{row.operation} {row.distance}".rstrip())
        if any(f"{a:.4g}" != f"{b:.4g}" for a, b in ((low, row.low), (high, row.high))):
            how = f"{row.source}; measured before: {was.low:.4g} to {was.high:.4g} {row.unit}"
            found[i] = row._replace(low=float(low), high=float(high), source=how)
    return found + kept


def _interval_before(path: Path) -> pd.DataFrame | None:
    """Intervals of the latency table that the machine's own measurement before had."""
    if not path.is_dir():
        return None
    table = packages.read_package(path, "hardware", []).tables.get(INTERVAL_RESOURCE["name"])
    return None if table is None else table.frame()


def _interval_beside(
    interval: pd.DataFrame, before: pd.DataFrame | None, unsteady: list[str]
) -> pd.DataFrame:
    """Widen the intervals of the latency table as `_beside` does."""
    if before is None:
        return interval
    both = interval.set_index("batch")
    was = before.set_index("batch").reindex(both.index)
    for column in [name for name in both if name.endswith("_low_us")]:
        ends = [column, column.replace("_low_us", "_high_us")]
        *widened, apart = _takes_in(*both[ends].to_numpy().T, *was[ends].to_numpy().T)
        both[ends] = np.column_stack(widened)
        figure = column.removesuffix("_low_us")
        unsteady += [f"{figure} of {batch} pages" for batch in both.index[apart]]
    return both.reset_index()


def _rates_before(path: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """Intervals of the rates that the machine's own measurement before had."""
    if not path.is_dir():
        return {}
    table = packages.read_package(path, "hardware", []).tables.get(RATES_RESOURCE["name"])
    if table is None:
        return {}
    names = ("workload", "processes", "rate_low", "rate_high")
    rows = zip(*(table.columns[name] for name in names), strict=True)
    return {(kind, processes): (low, high) for kind, processes, low, high in rows}


def _rates_beside(
    rates: pd.DataFrame,
    before: Mapping[tuple[str, int], tuple[float, float]],
    unsteady: list[str],
) -> pd.DataFrame:
    """Widen the interval of a rate that does not agree with the one before, as `_beside`."""
    rates = rates.copy()
    ends = ["rate_low", "rate_high"]
    keys = list(zip(rates.workload, rates.processes, strict=True))
    was = np.array([before.get(key, (np.nan, np.nan)) for key in keys]).reshape(-1, 2)
    *widened, apart = _takes_in(*rates[ends].to_numpy(dtype=float).T, *was.T)
    rates[ends] = np.column_stack(widened)
    unsteady += [
        f"rate of {kind}, {n} processes" for (kind, n), no in zip(keys, apart, strict=True) if no
    ]
    return rates


def _say_holds(table: pd.DataFrame) -> str:
    last = table.iloc[-1]
    return (
        f"A hold of {last.batch:g} pages takes {last.alloc_latency_avg_us:.1f} us in a refill and "
        f"{last.free_latency_avg_us:.1f} us in a drain, 99 % of them at most "
        f"{last.alloc_latency_p99_us:.1f} and {last.free_latency_p99_us:.1f} us. "
        "The cost of tracing is taken off."
    )

"""A machine's cost sheet and latency table, from the machine itself: one boot, a few minutes.

Since v6.7 a running kernel refills and drains anything from a batch to ``batch << 5`` pages, so
that one trace of one load has the whole curve.  What a page takes beside its tracing comes from
tracing the same load by one, two and three instances (`pcpmodel.trace.hold_tracer`).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from pcpmodel.datasets import measured, packages
from pcpmodel.datasets.packages import (
    COSTS_RESOURCE,
    LATENCY_RESOURCE,
    RATES_RESOURCE,
)
from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input.estimates import MIN_SAMPLES, p99_ranks
from pcpmodel.hardware.load import KINDS, Load, most_pages
from pcpmodel.hardware.machines import load_machines
from pcpmodel.hardware.probe import Cost, Missing, Probes
from pcpmodel.kernel.releases import nearest_release
from pcpmodel.kernel.sizing import drain_hold_limit, drain_limit
from pcpmodel.proc.cpulist import cpu_list
from pcpmodel.proc.host import HostFiles
from pcpmodel.signals import Shield, shielded
from pcpmodel.study.answer import Answer
from pcpmodel.study.loads import Cell, Observed, levels, observe, pairs_of
from pcpmodel.study.measured_files import store
from pcpmodel.trace.hold_tracer import COPIES, SIDES, HoldTracer, Traced, hold_tracer, other_tracers

__all__ = ["may_use", "measure", "refuse_busy", "touched"]

_TRACEFS = Path("/sys/kernel/tracing")
#: Largest load average per CPU, share of stalled time [%], and share of the available memory used.
MAX_LOAD, MAX_STALLED, SHARE = 0.5, 5.0, 0.25
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
#: Rounds with long holds that a line is laid through at least.
LEAST_POINTS = 12
#: Rounds of each load for its rates, and the share of the time that all of them have.
RATE_ROUNDS, RATE_SHARE = 6, 0.3


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
        Whether a machine of that name may be there.
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.
    progress : callable, optional
        Is told what comes next.

    Returns
    -------
    Answer
        Tables ``costs``, ``holds`` (the latency table), ``tracing`` (its cost by two ways),
        ``rates`` (what loads do, without tracing and with), ``not measured`` and ``touched``.
        Facts: machine, path (None: nothing was stored), costs, unsteady (what two passes or
        sessions do not agree on), not_measured.  Without root the holds are not measured and
        nothing is stored.

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
            f"machine {name!r} is there already; --replace overwrites it",
            file=root / "hardware" / name,
        )
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
    with shielded() as shield:
        began = time.monotonic()
        with shield.lifted():
            probes.run(progress)
        again = time.monotonic() - began
        rates_s = RATE_SHARE * max(end - again - time.monotonic(), 0.0)
        rounds = _holds(used, end - again - rates_s, shield, missing, progress)
        observed = _rates(used, rates_s, shield, missing, progress)
        with shield.lifted():
            probes.run(progress)
    rows, unsteady = probes.costs()
    missing = [*probes.missing, *missing]
    frames: dict[str, pd.DataFrame] = {}
    path = None
    said = {}
    rows += _assumed(missing)
    if rounds:
        sheet, table, interval, tracing = _evaluate(rounds, missing, unsteady)
        rows += sheet
        frames["tracing"] = tracing
        rows = _beside(rows, _costs_before(root / "hardware" / name), unsteady)
        frames["rates"] = _rates_beside(
            _rate_table(observed), _rates_before(root / "hardware" / name), unsteady
        )
        if table is not None and interval is not None:
            frames["holds"] = table
            traced = [(each.copies, each.traced) for each in rounds if each.traced is not None]
            path = store(root, name, rows, table, interval, used, traced, replace, frames["rates"])
            said["holds"] = _say_holds(table)
    if path is not None:
        said["stored"] = f"Stored in {path}."
    else:
        said["stored"] = "Nothing was stored: a machine needs its holds."
    if unsteady:
        said["unsteady"] = (
            f"Two passes or sessions do not agree on {', '.join(dict.fromkeys(unsteady))}: "
            "something else ran, and the intervals take in both."
        )
    costs = pd.DataFrame(rows, columns=Cost._fields)
    facts = {
        "machine": name,
        "path": None if path is None else str(path),
        "costs": [
            {
                "name": f"{row.operation} {row.distance}".rstrip(),
                "value": row.value,
                "low": row.low,
                "high": row.high,
                "unit": row.unit,
                "origin": row.origin,
                "how": row.source,
            }
            for row in rows
        ],
        "unsteady": list(dict.fromkeys(unsteady)),
        "not_measured": [{"name": m.name, "why": m.why} for m in missing],
    }
    tables = {"costs": costs, **frames, "not measured": pd.DataFrame(missing), "touched": plan}
    return Answer(tables, said, facts=facts, shown=("costs", *frames, "not measured"))


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
    load = os.getloadavg()[0] / len(host.online)
    stalled = host.text(host.root / "proc/pressure/memory") or ""
    share = float(stalled.partition("avg10=")[2].split()[0]) if "avg10=" in stalled else 0.0
    needed = max(64 << 20, most_pages(len(cpus)) * os.sysconf("SC_PAGESIZE"))
    for wrong in (
        f"the load average is {load:.2f} per CPU, allowed is {MAX_LOAD}" * (load > MAX_LOAD),
        f"tasks wait for memory {share} % of the time, allowed is {MAX_STALLED} %"
        * (share > MAX_STALLED),
        f"{memory >> 20} MiB may be used, needed are {needed >> 20}" * (memory < needed),
    ):
        if wrong and not force:
            raise InputError(f"{wrong}; --force measures all the same, less well")


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
    for name, why in (("function_graph", "the kmem events of a hold are used instead"),):
        missing.append(Missing(name, why))
    return rounds


def _until_enough(
    load: Load,
    tracer: HoldTracer,
    end: float,
    rounds: list[_Round],
    progress: Callable[[str], None],
) -> None:
    """Make rounds until the table has enough of every number of pages, or the time is over."""
    load.run(ROUND_S, PAGES)
    counts = dict.fromkeys(((side, n) for side in SIDES for n in TARGETS), 0)
    while len(rounds) < LEAST_ROUNDS or (time.monotonic() < end and min(counts.values()) < ENOUGH):
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
                        dict.fromkeys(SIDES, 0.0),
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


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float, float, float]:
    """Slope and intercept through (instances, ns), with 95 % half-widths."""
    x, y = np.array(points, dtype=float).T
    fit = stats.linregress(x, y)
    t = stats.t.ppf(0.975, len(x) - 2)
    return fit.slope, fit.intercept, t * fit.stderr, t * fit.intercept_stderr


def _evaluate(
    rounds: Sequence[_Round], missing: list[Missing], unsteady: list[str]
) -> tuple[list[Cost], pd.DataFrame | None, pd.DataFrame | None, pd.DataFrame]:
    """Cost rows, latency table, its intervals, and what tracing costs by two ways."""
    rows, columns, tracing = [], {}, []
    for side in SIDES:
        points = [
            (each.copies, ns)
            for each in rounds
            if each.traced is not None
            and each.pages == PAGES
            and (ns := _per_page(each.traced, side)) is not None
        ]
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
    error = np.hypot(*(stats.sem(v) if len(v) > 1 else np.nan for v in ns.values()))
    how = f"CPU time of the load with and without, {per_page:.1f} events a page"
    return how, more / per_page, float(1.96 * error / per_page), len(ns[1])


def _assumed(missing: list[Missing]) -> list[Cost]:
    """What the events of a hold cannot show, from the machines whose tables are known."""
    missing.append(Missing("hold_fixed", "a hold's first event is that of its first page"))
    fixed_ns = [
        max(machine.hold_time.curves[side, "mean"].chosen.a_ns, 0.0)
        for machine in load_machines()
        for side in ("refill", "drain")
    ]
    source = f"constant term of the fits of {len(fixed_ns) // 2} machines, refills and drains"
    middle, low, high = float(np.median(fixed_ns)), min(fixed_ns), max(fixed_ns)
    return [Cost("hold_fixed", "", middle, "ns", low, high, "assumed", source)]


def _costs_before(path: Path) -> dict[tuple[str, str], tuple[float, float]]:
    """Intervals that the machine's own measurement before had; none where there is no such one."""
    if not path.is_dir():
        return {}
    sheet = packages.read_package(path, "hardware", []).tables.get(COSTS_RESOURCE["name"])
    if sheet is None:
        return {}
    column = sheet.columns
    return {
        (operation, distance or ""): (low, high)
        for operation, distance, low, high, origin in zip(
            *(column[c] for c in ("operation", "distance", "low", "high", "origin")), strict=True
        )
        if origin in ("measured", "derived")
    }


def _beside(
    rows: Sequence[Cost],
    before: Mapping[tuple[str, str], tuple[float, float]],
    unsteady: list[str],
) -> list[Cost]:
    """Widen what does not agree with the measurement before until it takes in both."""
    found = []
    for row in rows:
        low, high = before.get((row.operation, row.distance), (row.low, row.high))
        if max(low, row.low) > min(high, row.high) and row.origin in ("measured", "derived"):
            unsteady.append(f"{row.operation} {row.distance}".rstrip())
            how = f"{row.source}; measured before: {low:.4g} to {high:.4g} {row.unit}"
            row = row._replace(low=min(low, row.low), high=max(high, row.high), source=how)
        found.append(row)
    return found


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
    for row in rates.itertuples():
        low, high = before.get((row.workload, row.processes), (row.rate_low, row.rate_high))
        if max(low, row.rate_low) > min(high, row.rate_high):
            unsteady.append(f"rate of {row.workload}, {row.processes} processes")
            rates.loc[row.Index, ["rate_low", "rate_high"]] = (
                min(low, row.rate_low),
                max(high, row.rate_high),
            )
    return rates


def _say_holds(table: pd.DataFrame) -> str:
    last = table.iloc[-1]
    return (
        f"A hold of {last.batch:g} pages takes {last.alloc_latency_avg_us:.1f} us in a refill and "
        f"{last.free_latency_avg_us:.1f} us in a drain, 99 % of them at most "
        f"{last.alloc_latency_p99_us:.1f} and {last.free_latency_p99_us:.1f} us. "
        "The cost of tracing is taken off."
    )

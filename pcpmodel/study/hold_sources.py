"""Holds of the zone lock from other sources than the kmem events alone, each with its own cost.

`SOURCES` are those that a kernel may offer: function_graph in an instance of tracefs, the end of a
wait and ``contended_release``, bpftrace.  Each says of every hold how many pages it moved and how
long the whole of it took; the line through these is what a page takes, and what a hold takes that
moves none (`through`).  The latter is the source's own part and the taking of the lock, which no
source can tell apart.  What a source costs besides is the CPU time of the same load with it and
without.  Which holds there were, a source must say as the kmem events beside it do (`alike`).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from pcpmodel.errors import InputError
from pcpmodel.files import read_text
from pcpmodel.hardware.latency_input import SCRIPTS
from pcpmodel.hardware.latency_input.bpftrace import Bpftrace, by_pages
from pcpmodel.hardware.latency_input.function_graph import FunctionGraph
from pcpmodel.hardware.latency_input.raw import lines
from pcpmodel.hardware.load import Load, tied_to
from pcpmodel.hardware.probe import Missing
from pcpmodel.signals import Shield
from pcpmodel.trace.hold_tracer import COPIES, RELEASE, SIDES, HoldTracer, hold_tracer
from pcpmodel.trace.tracefs import instance, lost_events, text_of, tries, write

__all__ = ["SOURCES", "Counted", "alike", "compared", "counted", "through"]

#: Functions that hold the lock, in the order of preference: the first may be inlined in the second.
FUNCTIONS = {"alloc": ("rmqueue_bulk", "__rmqueue_pcplist"), "free": ("free_pcppages_bulk",)}
#: Rounds of the load without a source, with it, and with the kmem events beside it.
ROUNDS = 4
#: Longest round [s]: function_graph's text has a line a page.
ROUND_S = 0.4
#: Sizes that a line needs, and holds that one of them needs to count.
LEAST_SIZES, LEAST_HOLDS = 3, 5
#: How long bpftrace may take to attach its probes [s], and how often that is looked at.
ATTACH_S, LOOK_S = 60.0, 0.1
_BUFFER_KB = 16384


class Counted(NamedTuple):
    """Holds by number of pages."""

    pages: NDArray[np.int64]
    holds: NDArray[np.int64]
    mean_ns: NDArray[np.float64]


#: What a source says of the holds while some work ran, by side; the processes are the work's.
Trace = Callable[[Callable[[], object], Sequence[int]], dict[str, Counted]]


def counted(pages: ArrayLike, ns: ArrayLike) -> Counted:
    """Sum up holds of which each is known."""
    sizes, at = np.unique(np.asarray(pages, dtype=np.int64), return_inverse=True)
    holds = np.bincount(at, minlength=len(sizes))
    total = np.bincount(at, np.asarray(ns, dtype=float), len(sizes))
    return Counted(sizes, holds, total / np.maximum(holds, 1))


def _together(parts: Sequence[Counted]) -> Counted:
    """All holds of several rounds."""
    if not parts:
        return counted([], [])
    pages, holds, mean_ns = (np.concatenate(column) for column in zip(*parts, strict=True))
    sizes, at = np.unique(pages, return_inverse=True)
    sums = np.bincount(at, holds, len(sizes)).astype(np.int64)
    return Counted(sizes, sums, np.bincount(at, holds * mean_ns, len(sizes)) / np.maximum(sums, 1))


def through(seen: Counted) -> tuple[float, float, float, float]:
    """Time of a page, and of a hold without any, with 95 % half-widths [ns]; NaN: too few sizes.

    The spread of holds grows with their pages: each size counts as its holds over its square.
    """
    enough = seen.holds >= LEAST_HOLDS
    n, y = seen.pages[enough].astype(float), seen.mean_ns[enough]
    if len(n) < LEAST_SIZES:
        return (np.nan,) * 4
    weight = seen.holds[enough] / n**2
    design = np.column_stack((n, np.ones_like(n)))
    inverse = np.linalg.inv(design.T @ (weight[:, None] * design))
    page, fixed = inverse @ design.T @ (weight * y)
    left = y - design @ (page, fixed)
    spread = left @ (weight * left) / (len(n) - 2)
    half = stdtrit(len(n) - 2, 0.975) * np.sqrt(spread * np.diag(inverse))
    return float(page), float(half[0]), float(fixed), float(half[1])


def alike(one: Counted, other: Counted) -> float:
    """Share of the holds of two or more pages that both know, of those that either knows."""

    def sizes(seen: Counted) -> dict[int, int]:
        pairs = zip(seen.pages.tolist(), seen.holds.tolist(), strict=True)
        return {pages: holds for pages, holds in pairs if pages > 1}

    a, b = sizes(one), sizes(other)
    both = sum(min(holds, b.get(pages, 0)) for pages, holds in a.items())
    either = sum(max(a.get(pages, 0), b.get(pages, 0)) for pages in {*a, *b})
    return both / either if either else np.nan


# ----------------------------------------------------------------- sources


@contextmanager
def _function_graph(tracefs: Path, _: HoldTracer) -> Iterator[Trace]:
    """The functions' durations and the events of pages within them, from an instance's text."""
    with instance(tracefs, tuple(SIDES.values()), COPIES) as here:
        if "function_graph" not in text_of(here / "available_tracers").split():
            everywhere = text_of(tracefs / "available_tracers").split()
            why = "this kernel has no such tracer"
            if "function_graph" in everywhere:
                why = "this kernel has it for all of tracefs alone, where it would disturb others"
            raise InputError(why)
        write(here / "tracing_on", "0")
        chosen = {
            side: next((f for f in names if tries(here / "set_ftrace_filter", f"{f}\n")), None)
            for side, names in FUNCTIONS.items()
        }
        if not any(chosen.values()):  # an empty filter is every function of the kernel
            raise InputError("the functions that hold the lock cannot be traced: inlined")
        if not tries(here / "buffer_size_kb", str(_BUFFER_KB)):
            raise InputError(f"no memory for ring buffers of {_BUFFER_KB} KiB on every CPU")

        def trace(work: Callable[[], object], _: Sequence[int]) -> dict[str, Counted]:
            texts = []
            try:
                write(here / "current_tracer", "function_graph")  # which empties the buffer
                for event in SIDES.values():
                    write(here / "events" / event / "enable", "1")
                write(here / "tracing_on", "1")
                work()
            finally:
                tries(here / "tracing_on", "0")
                tries(here / "events" / "enable", "0")
                texts = [text_of(path) for path in sorted(here.glob("per_cpu/cpu*/trace"))]
                lost = sum(lost_events(here).values())
                tries(here / "current_tracer", "nop")
            if lost:
                raise InputError(f"{lost} events were lost")
            return graphed(texts, chosen)

        yield trace


def graphed(texts: Sequence[str], functions: Mapping[str, str | None]) -> dict[str, Counted]:
    """Holds by side in function_graph's text of each CPU; calls that moved no page are none."""
    found: dict[str, list[Counted]] = {side: [] for side in functions}
    for text in texts:
        reader = FunctionGraph("function_graph")
        for row, line in enumerate(text.splitlines(), 1):
            reader.line(line, row)
        for side, name in functions.items():
            if name in reader.durations:
                pages = np.array(reader.pages[name])
                ns = 1e3 * np.array(reader.durations[name].us)
                found[side].append(counted(pages[pages > 0], ns[pages > 0]))
    return {side: _together(parts) for side, parts in found.items()}


@contextmanager
def _contention(_: Path, tracer: HoldTracer) -> Iterator[Trace]:
    """From the end of a wait to the release that somebody else waits for."""
    if not tracer.sees_releases:
        raise InputError(f"this kernel has no event {RELEASE}")

    def trace(work: Callable[[], object], pids: Sequence[int]) -> dict[str, Counted]:
        seen = tracer.trace(work, pids=pids)
        return {s: counted(seen.contended_pages[s], seen.contended_ns[s]) for s in SIDES}

    yield trace


@contextmanager
def _bpftrace(_: Path, __: HoldTracer) -> Iterator[Trace]:
    """`pcpmodel measure --script bpftrace`, for as long as the work takes."""
    if shutil.which("bpftrace") is None:
        raise InputError("bpftrace is not installed")
    script = SCRIPTS["bpftrace"].replace("interval:s:10 { exit(); }\n", "")
    parent = os.getpid()

    def trace(work: Callable[[], object], _: Sequence[int]) -> dict[str, Counted]:
        with TemporaryDirectory() as scratch:
            out = Path(scratch) / "bpftrace.txt"
            with open(out, "wb") as file:
                running = subprocess.Popen(
                    ["sh", "-c", script, "pages.sh"],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                    preexec_fn=lambda: tied_to(parent),
                )
            try:
                _attached(running, out)
                work()
            finally:
                running.send_signal(signal.SIGINT)  # it prints its maps
                try:
                    running.wait(ATTACH_S)
                except subprocess.TimeoutExpired:
                    running.kill()
                    running.wait()
            if running.returncode:
                raise InputError(_last(out))
            return mapped(out)

    yield trace


def _attached(running: subprocess.Popen[bytes], out: Path) -> None:
    """Wait until it says that its probes are there."""
    until = time.monotonic() + ATTACH_S
    while "ttach" not in read_text(out):
        if running.poll() is not None:
            raise InputError(_last(out))
        if time.monotonic() > until:
            raise InputError(f"attaches no probes within {ATTACH_S:g} s")
        time.sleep(LOOK_S)
    time.sleep(LOOK_S)


def _last(out: Path) -> str:
    said = read_text(out).split("\n")
    return next((line.strip() for line in reversed(said) if line.strip()), "ended at once")


def mapped(out: Path) -> dict[str, Counted]:
    """Holds by side in bpftrace's maps."""
    reader, row = Bpftrace(out, None), 0
    for row, line in lines(out):
        reader.line(line, row)
    reader.end(row)
    maps = by_pages(reader.found())
    found = {}
    for side in SIDES:
        sizes = sorted(maps.get(f"@{side}_ns", {}).items())
        means = [1e3 * each.estimate("").avg_us for _, each in sizes]
        holds = [each.samples for _, each in sizes]
        found[side] = Counted(
            np.array([pages for pages, _ in sizes], np.int64),
            np.array(holds, np.int64),
            np.array(means, float),
        )
    return found


class _Source(NamedTuple):
    """A source."""

    begin: Callable[[Path, HoldTracer], AbstractContextManager[Trace]]
    events: int  #: of pages, that are in the time of each page
    beside: bool  #: whether the kmem events beside it are another source


#: By name, in the order in which they are tried.
SOURCES = {
    "function_graph": _Source(_function_graph, 1, True),
    "contended_release": _Source(_contention, 1, False),
    "bpftrace": _Source(_bpftrace, 0, True),
}


# ----------------------------------------------------------------- session


def compared(
    tracefs: Path,
    cpus: Sequence[int],
    seconds: float,
    event_ns: Mapping[str, tuple[float, float]],
    shield: Shield,
    missing: list[Missing],
    progress: Callable[[str], None],
) -> pd.DataFrame:
    """Measure holds by every source that the kernel offers, under one load.

    Parameters
    ----------
    tracefs : Path
    cpus : sequence of int
        Two or more: each hands pages over to the next.
    seconds : float
        For all sources, about [s].
    event_ns : mapping of str to (float, float)
        By side: what an event adds to a page, and its 95 % half-width [ns].
    shield : Shield
    missing : list of Missing
        Takes in which sources are not there, and why.
    progress : callable

    Returns
    -------
    DataFrame
        By source and side: holds, what a page takes and a hold without pages with their 95 %
        half-widths [ns], what the source costs the load [ns a page], the pages that its holds moved
        of those that the kmem events count beside it [%], and how many of the holds both see with
        as many pages [%]: fewer where drains follow each other without an event between, or are
        cut into holds (v6.19), which the events see as one.
    """
    ring = [(cpu, cpus[(i + 1) % len(cpus)]) for i, cpu in enumerate(cpus)]
    part_s = min(seconds / len(SOURCES) / (3 * ROUNDS), ROUND_S)
    rows = []
    for name, source in SOURCES.items():
        progress(f"holds by {name}")
        try:
            with (
                Load(ring) as load,
                hold_tracer(tracefs) as tracer,
                source.begin(tracefs, tracer) as trace,
                shield.lifted(),
            ):
                found = _session(name, source, load, tracer, trace, part_s, event_ns)
            for side in sorted(set(SIDES) - {row[1] for row in found}):
                missing.append(Missing(f"{name}, {side}", "no hold was seen"))
            rows += found
        except InputError as error:
            missing.append(Missing(name, error.message))
    columns = ["source", "side", "holds", "page_ns", "half_width_95", "empty_hold_ns",
               "empty_half_width_95", "load_ns_per_page", "pages_pct", "alike_pct"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _session(
    name: str,
    source: _Source,
    load: Load,
    tracer: HoldTracer,
    trace: Trace,
    part_s: float,
    event_ns: Mapping[str, tuple[float, float]],
) -> list[tuple]:
    """Rows of one source."""
    alone: dict[str, list[Counted]] = {side: [] for side in SIDES}
    its: dict[str, list[Counted]] = {side: [] for side in SIDES}
    kmem: dict[str, list[Counted]] = {side: [] for side in SIDES}
    moved = dict.fromkeys(SIDES, 0)
    cost: dict[bool, list[float]] = {False: [], True: []}
    did: list[dict[str, float]] = []

    def work() -> None:
        did[:] = load.run(part_s)

    def page_ns() -> float:
        return 1e9 * sum(d["cpu_s"] for d in did) / max(sum(d["pages"] for d in did), 1)

    work()
    for _ in range(ROUNDS):
        work()
        cost[False].append(page_ns())
        for side, holds in trace(work, load.pids).items():
            alone[side].append(holds)
        cost[True].append(page_ns())
        if not source.beside:
            continue
        both: dict[str, Counted] = {}
        seen = tracer.trace(lambda into=both: into.update(trace(work, load.pids)))
        if not seen.lost:
            for side in SIDES:
                its[side].append(both[side])
                kmem[side].append(counted(seen.pages[side], seen.span_ns[side]))
                moved[side] += seen.moved[side]
    more = float(np.median(cost[True]) - np.median(cost[False]))
    rows = []
    for side in SIDES:
        holds = _together(alone[side])
        if not len(holds.pages):
            continue
        page, half, fixed, fixed_half = through(holds)
        off, off_half = (source.events * v for v in event_ns[side])
        half = float(np.hypot(half, off_half))
        beside = _together(its[side])
        pages = 100 * float(beside.pages @ beside.holds) / moved[side] if moved[side] else np.nan
        both = pages, 100 * alike(beside, _together(kmem[side]))
        n = int(holds.holds.sum())
        rows.append((name, side, n, page - off, half, fixed, fixed_half, more, *both))
    return rows

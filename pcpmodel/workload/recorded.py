"""Recorded processes, drawn anew on any number of CPUs.

A summary in ``data/workload/`` says what each process of a recording did with its
pages; ``pcpmodel data add workload`` makes one of any recording.  Every CPU draws
one process after the other and repeats its runs of allocations and frees, with
the recorded CPU time.  Three things are not as recorded:

* Pages freed on another CPU go to one neighbour.  Where most are (streams), CPUs
  come in pairs, and the second one does nothing but free what the first sends;
  elsewhere they go round a ring, with the end of the process.
* Pages that outlived the recording (page cache) are freed with their process; blocks of order
  1..3 that did (slabs) are left out, for freed one after the other they would drain the list.
* Blocks of orders that no per-CPU list holds are left out.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from pcpmodel.datasets.packages import data_root, load_workload
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.lists import PAGE_ALLOC_COSTLY_ORDER
from pcpmodel.workload.ops import LIMITS
from pcpmodel.workload.program import ALL, Program, _count, _tasks
from pcpmodel.workload.tasks import Channel, Made, Task, Workload

__all__ = ["containers", "recorded", "recordings"]

#: Processes by which a CPU of a ring may be ahead of its neighbour, and messages under way.
_AHEAD, _ROOM = 64, 256
#: Share of blocks freed on another CPU above which CPUs form a ring, and pairs.
_RING, _PAIRS = 0.001, 0.5

_Kind = tuple[int, str]  # order, migratetype
_Run = tuple[str, _Kind, int, float]  # what, kind, blocks, ns per block


@dataclass(frozen=True)
class _Summary:
    """One summary, ready to be played."""

    scripts: list[list[_Run]]
    weights: list[int]
    free_ns: float  # of a block freed at home
    far_ns: float  # of a block freed on another CPU
    native_us: float  # CPU time per page
    far: float  # share of blocks freed on another CPU

    @property
    def sent(self) -> dict[str, int]:
        """What messages carry, in the order in which it is freed."""
        kinds = {kind for s in self.scripts for what, kind, *_ in s if what == "send"}
        return {f"{m}_{o}": ALL for o, m in sorted(kinds, reverse=True)}

    def page_us(self) -> float:
        """CPU time per page of the scripts, by the recording's clock [us]."""
        ns = pages = 0.0
        for script, weight in zip(self.scripts, self.weights, strict=True):
            held = 0
            for what, (order, _), blocks, each in script:
                ns += weight * blocks * (self.far_ns if what == "send" else each)
                pages += weight * blocks * (what == "alloc") * 2**order
                held += blocks if what == "alloc" else -blocks
            ns += weight * held * (self.far_ns if self.far > _PAIRS else self.free_ns)
        return ns / pages / 1000

    def sent_pages(self) -> float:
        """Pages that the mean process sends."""
        sent = sum(
            w * sum(r[2] << r[1][0] for r in s if r[0] == "send")
            for s, w in zip(self.scripts, self.weights, strict=True)
        )
        return sent / sum(self.weights)

    def peak_pages(self) -> int:
        """Most pages that one process holds."""
        most = 0
        for script in self.scripts:
            now = 0
            for what, (order, _), blocks, _ in script:
                if what != "send" or self.far > _PAIRS:  # a ring sends at the end
                    now += (blocks if what == "alloc" else -blocks) << order
                most = max(most, now)
        return most


def recordings() -> tuple[str, ...]:
    """Names of the recordings that `recorded` knows.

    Returns
    -------
    tuple of str
    """
    return tuple(
        re.sub(r"^(\d+)-(\d+)-", r"\1.\2-", path.parent.name)
        for path in sorted((data_root() / "workload").glob("*/scripts.csv"))
    )


def _without_slabs(script: list[_Run]) -> list[_Run]:
    """The script without blocks of order 1..3 that are never freed: the last ones allocated."""
    kept: Counter[_Kind] = Counter()
    for what, kind, blocks, _ in script:
        if 1 <= kind[0] <= PAGE_ALLOC_COSTLY_ORDER:
            kept[kind] += blocks if what == "alloc" else -blocks
    shorter = []
    for what, kind, blocks, ns in reversed(script):
        gone = min(blocks, kept[kind]) if what == "alloc" else 0
        kept[kind] -= gone
        if blocks > gone:
            shorter.append((what, kind, blocks - gone, ns))
    return shorter[::-1]


def _load(name: str) -> _Summary:
    if name not in recordings():
        raise unknown_name("recording", name, recordings())
    directory = name.replace(".", "-")
    # Read again after `pcpmodel data add workload --replace`.
    written = (data_root() / "workload" / directory / "scripts.csv").stat()
    return _read(directory, written.st_ino, written.st_mtime_ns)


@cache
def _read(directory: str, *_version: int) -> _Summary:
    tables = load_workload(directory).tables
    figures = tables["figures"].set_index("quantity")["value"]
    runs = tables["scripts"]
    scripts: dict[int, list] = {}
    for process, what, order, migratetype, blocks, ns in runs.itertuples(index=False):
        run = (what, (order, migratetype), blocks, ns / blocks)
        scripts.setdefault(process, []).append(run)
    scripts = {i: s for i, s in ((i, _without_slabs(s)) for i, s in scripts.items()) if s}
    weight = tables["processes"].set_index("process")["weight"]
    far = float(figures["blocks freed on another CPU"])
    if far < _RING:
        scripts = {
            i: [("free" if r[0] == "send" else r[0], *r[1:]) for r in s] for i, s in scripts.items()
        }
    if far > _PAIRS:  # only those who send; the receivers' part is to free
        scripts = {
            i: s
            for i, s in scripts.items()
            if sum(r[2] for r in s if r[0] == "send") > sum(r[2] for r in s if r[0] == "free")
        }
    if not scripts:
        raise InputError(f"the recording {directory} has no process to draw")
    weights = np.array([int(weight[i]) for i in scripts])
    if weights.sum() > LIMITS["table"]:  # at most half of that many processes are kept
        weights = np.maximum(1, weights * (LIMITS["table"] // 2) // weights.sum())
    frees = runs[runs["what"] == "free"]
    return _Summary(
        list(scripts.values()),
        weights.tolist(),
        float(frees["ns"].sum() / max(1, frees["blocks"].sum())),
        float(figures["CPU time of a block freed on another CPU"]),
        float(figures["CPU time per page at native speed"]),
        far,
    )


def _play(
    p: Program,
    script: list[_Run],
    pace: float,
    free_ns: float,
    ring: bool,
) -> None:
    """One process, its end included; without a ring it frees all by itself."""
    held: Counter[_Kind] = Counter()
    sent: Counter[_Kind] = Counter()
    for what, kind, blocks, ns in script:
        order, migratetype = kind
        if what == "send":
            sent[kind] += blocks * ring
        elif what == "alloc":
            p.alloc(blocks, order=order, migratetype=migratetype, ns=ns * pace)
            held[kind] += blocks
        else:
            p.free(blocks, order=order, migratetype=migratetype, ns=ns * pace)
            held[kind] -= blocks
    for (order, migratetype), blocks in sorted((+sent).items(), reverse=True):
        p.give(blocks, order=order, migratetype=migratetype)
    for kind, blocks in sorted((held - sent).items()):
        p.free(blocks, order=kind[0], migratetype=kind[1], ns=free_ns * pace)


def _pace(recording: _Summary, page_us: float | None) -> float:
    if page_us is None:
        page_us = recording.native_us
    elif not 0.01 <= page_us <= 100_000:
        raise InputError(f"page_us={page_us} is outside 0.01..100000 us")
    return page_us / recording.page_us()


def _choices(p: Program, recording: _Summary, pace: float, ring: bool) -> list[Callable[[], None]]:
    return [
        lambda s=s: _play(p, s, pace, recording.free_ns, ring)  # type: ignore[misc]
        for s in recording.scripts
    ]


def _ring(
    name: str,
    processes: int,
    mix: list[tuple[_Summary, float, int]],
    nodes: int,
    params: dict[str, object],
) -> Workload:
    """CPUs that draw recordings by weight and processes of these; (recording, pace, weight)."""
    kinds: dict[str, int] = {}
    for recording, _, _ in mix:
        kinds |= recording.sent
    kinds = dict(sorted(kinds.items(), reverse=True))
    far = [(c.far_ns * pace, weight * c.far) for c, pace, weight in mix]
    far_ns = sum(ns * w for ns, w in far) / max(sum(w for _, w in far), 1e-9)
    ring = bool(kinds) and processes > 1
    p = Program()
    if ring:
        with p.repeat(_AHEAD):
            p.work(1)
            p.send(0)
    with p.forever():
        p.work(1)  # a drawn process may take no time
        p.one_of(
            [
                lambda c=c, pace=pace: p.one_of(_choices(p, c, pace, ring), c.weights)  # type: ignore[misc]
                for c, pace, _ in mix
            ],
            [weight for *_, weight in mix],
        )
        if ring:
            p.send(0)
            p.recv(1, **kinds)
            for kind in kinds:
                migratetype, _, order = kind.partition("_")
                p.free(ALL, order=int(order), migratetype=migratetype, ns=far_ns, of="peer")
        p.score()
    groups = [list(range(k, processes, nodes)) for k in range(min(nodes, processes))]
    before = {g[i]: g[i - 1] for g in groups for i in range(len(g))}
    after = {a: b for b, a in before.items()}
    tasks = tuple(
        Task(p, i % nodes, (i, before[i]) if ring else (), before[i]) for i in range(processes)
    )
    channels = tuple(Channel(i, after[i], _ROOM) for i in range(processes if ring else 0))
    under_way = max(c.sent_pages() for c, *_ in mix) * _AHEAD * 2 if ring else 0
    peak = max(c.peak_pages() for c, *_ in mix)
    pages = processes * round(peak + under_way)
    return Workload(name, tasks, "processes", pages, channels, params)


def _pairs(recording: _Summary, processes: int, pace: float, nodes: int, params: dict) -> Workload:
    """CPUs in pairs: a message is a run of blocks freed on the other CPU."""
    p, q = Program(), Program()

    def play(script: list[_Run]) -> None:
        held: Counter[_Kind] = Counter()
        for what, kind, blocks, ns in script:
            order, migratetype = kind
            if what == "alloc":
                p.alloc(blocks, order=order, migratetype=migratetype, ns=ns * pace)
                held[kind] += blocks
                continue
            held[kind] -= blocks
            if what == "free":
                p.free(blocks, order=order, migratetype=migratetype, ns=ns * pace)
            else:
                p.send(0, **{f"{migratetype}_{order}": blocks})
        for (order, migratetype), blocks in sorted((+held).items(), reverse=True):
            p.send(0, **{f"{migratetype}_{order}": blocks})

    with p.forever():
        p.work(1)
        p.one_of([lambda s=s: play(s) for s in recording.scripts], recording.weights)  # type: ignore[misc]
    kinds = {
        f"{m}_{o}": ALL
        for o, m in sorted({kind for s in recording.scripts for _, kind, *_ in s}, reverse=True)
    }
    with q.forever():
        q.recv(0, **kinds)
        q.work(1)
        for kind in kinds:
            migratetype, _, order = kind.partition("_")
            q.free(
                ALL,
                order=int(order),
                migratetype=migratetype,
                ns=recording.far_ns * pace,
                of="peer",
            )
        q.score()
    pairs = processes // 2
    block = max(1 << kind[0] for s in recording.scripts for _, kind, *_ in s)
    tasks = [
        Task(program, i % nodes, (i,), peer)
        for i in range(pairs)
        for program, peer in ((p, 2 * i + 1), (q, 2 * i))
    ]
    return Workload(
        "recorded",
        tuple(tasks),
        "messages",
        pairs * (recording.peak_pages() + _ROOM * block),
        tuple(Channel(2 * i, 2 * i + 1, _ROOM) for i in range(pairs)),
        params,
    )


def recorded(
    recording: str, processes: int, *, page_us: float | None = None, nodes: int | None = None
) -> Workload:
    """Processes of a recording, drawn by seed.

    Parameters
    ----------
    recording : str
        One of `recordings`: "native-build", "6.18-exitstorm", ...
    processes : int
        Processes at once, one per CPU; even for streams, which come in pairs.
    page_us : float, optional
        CPU time per page allocated, all of it, without the zone lock [us].  By default as
        recorded at native speed; of emulated guests, whose clock means nothing as a duration,
        that of the native recording of the same work, or else of page_fault1.
    nodes : int, optional
        Nodes over which the processes are spread; pages stay on theirs.  By default those of the
        machine that it is simulated on, if all have as many CPUs, else 2.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For an unknown recording (the nearest is offered) or a number out of range.
    """
    found = _load(recording)
    processes = _tasks("processes", processes)
    given = {"recording": recording, "processes": processes, "page_us": page_us, "nodes": nodes}
    nodes = 2 if nodes is None else _count("nodes", nodes, 1)
    pace = _pace(found, page_us)
    params: dict[str, object] = {
        "recording": recording,
        "processes": processes,
        "page_us": found.native_us if page_us is None else page_us,
        "nodes": nodes,
    }
    if found.far > _PAIRS:
        if processes % 2:
            raise InputError(
                f"processes={processes}: {recording} has pairs, an even number of them"
            )
        work = _pairs(found, processes, pace, nodes, params)
    else:
        work = _ring("recorded", processes, [(found, pace, 1)], nodes, params)
    return replace(work, made=Made(recorded, given))


#: One kind of each that was recorded: compiling, starting many small processes, writing files.
_MIX = {"native-build": 1 / 3, "6.18-exitstorm": 1 / 3, "6.12-tmpfs": 1 / 3}


def containers(
    processes: int, *, shares: Mapping[str, float] | None = None, nodes: int | None = None
) -> Workload:
    """Short life cycles of several kinds side by side on every CPU.

    Parameters
    ----------
    processes : int
        Processes at once, one per CPU.
    shares : mapping of str to float, optional
        Recording -> share of the processes drawn from it; they add up to 1.  No host of
        containers was recorded: by default builds, storms of small processes and writers of
        files have a third each.
    nodes : int, optional
        Nodes over which the processes are spread; by default as for `recorded`.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For unknown recordings, streams, and shares that do not add up to 1.
    """
    processes = _tasks("processes", processes)
    given = {"processes": processes, "shares": shares, "nodes": nodes}
    nodes = 2 if nodes is None else _count("nodes", nodes, 1)
    shares = dict(_MIX if shares is None else shares)
    mix = []
    for name, share in shares.items():
        recording = _load(name)
        if recording.far > _PAIRS:
            raise InputError(f"{name} is a stream between two CPUs; see recorded()")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise InputError(f"the share {share!r} of {name} is not a number above 0, up to 1")
        mix.append((recording, _pace(recording, None), max(1, round(1000 * share))))
    if not mix or abs(sum(shares.values()) - 1) > 1e-6:
        raise InputError(f"shares add up to {sum(shares.values()):g}, not 1")
    params = {"processes": processes, "shares": shares, "nodes": nodes}
    return replace(_ring("containers", processes, mix, nodes, params), made=Made(containers, given))

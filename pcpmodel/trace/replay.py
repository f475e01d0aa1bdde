"""Replay: does the model do, page for page, what a recorded kernel did?

A recording with a dump of its lists starts from that; of another one, `/proc/zoneinfo` says how
many pages each CPU keeps, and the rest follows from the trace.  Both are followed by the same loop
(`follower`).  Here is what it starts from, where it stops to look at a later dump, and the result.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.kernel.lists import MIGRATETYPES, PAGE_ALLOC_COSTLY_ORDER
from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.trace.assumptions import UNSEEN
from pcpmodel.trace.counts import AMID, counts_amid, counts_at_start
from pcpmodel.trace.exactness import Exactness
from pcpmodel.trace.follower import Follower
from pcpmodel.trace.free_lists import follow
from pcpmodel.trace.ftrace import EVENT_IDS, FLAGS, HIDDEN, Events
from pcpmodel.trace.inferred import lay_elsewhere, made_since, types_told
from pcpmodel.trace.markers import Markers, read_markers, stops
from pcpmodel.trace.page_lists import MAX_PAGES, NOT_THERE, Difference, Explained
from pcpmodel.trace.prepared import CONTIG, first_page, probed, tells_bulk
from pcpmodel.trace.readings import check_readings
from pcpmodel.trace.recording import PcpState, Recording, Snapshot
from pcpmodel.trace.recording import recording as open_recording
from pcpmodel.trace.resized import Resized, changes_of_size
from pcpmodel.trace.start import guess_types, sizes
from pcpmodel.trace.supposed import supposed_dump
from pcpmodel.trace.switched import switches, taken_on_the_way, untold
from pcpmodel.trace.work import WORK_OPS

__all__ = ["replay", "replay_without_dump", "replay_work"]

#: Pages by which a count of /proc/zoneinfo may be off where no marker says when it was read: some
#: come and go before the tracer's first line.  Chosen: what is
#: followed at first grows with it.
_SLACK = 4

#: Up to it vmalloc() fills a stack by alloc_pages_bulk(), which no line tells; then it asks for a
#: larger block first.
_LAST_SILENT = (6, 18)

#: What every kernel with tracing shows.
_FOLLOWED = (
    "mm_page_alloc", "mm_page_free", "mm_page_free_batched", "mm_page_alloc_zone_locked",
    "mm_page_pcpu_drain", "mm_page_alloc_extfrag", "tracing_mark_write", "workqueue_execute_start",
    "workqueue_execute_end", "sched_process_fork", "sched_process_exec", "sched_process_exit",
    "mm_vmscan_kswapd_wake", "mm_vmscan_kswapd_sleep",
)  # fmt: skip

#: Of these those without which hardly anything comes out.
_NEEDED = _FOLLOWED[:5]

_MOVABLE = MIGRATETYPES["movable"]

#: Times that a recording without dumps is followed again, with other guesses.
_GUESSES = 8
#: ... with a page that a task took before it was moved, at most; and rows that these times follow.
_TRIES = 8
_TRIED_ROWS = 20_000_000
#: Pages of which one of these times goes by at most; the others mostly follow from the first.
_LEARNED = 100
#: ... with other sizes of the lists before what first differs.
_RESIZES = 8
#: ... and rows that these times follow, all in all.
_RESIZED_ROWS = 200_000_000
#: Rows that come while /proc/zoneinfo is read, at most.
_LONG = 1000
#: What brings a page to its list.
_FREES = (EVENT_IDS["mm_page_free"], EVENT_IDS["mm_page_free_batched"])
#: Lines of a refill or a drain are of one as long as no more time is between them [ns].
_APART = 5000
#: Rows that are looked at together.
_PIECE = 1 << 16

#: With both, every call of alloc_pages_bulk() is told.
_BULK = ("alloc_pages_bulk", "alloc_pages_bulk_ret")

_KINDS = ("allocations", "refills", "drains", "drained_pages")
#: How `Exactness.counted` names of a kind what a follower's tally does.
_ENDS = {"": "total", "_foreseen": "foreseen", "_explained": "explained"}


def replay(
    recording: Recording | str | PathLike[str],
    *,
    release: str | Release | None = None,
    policy: object = None,
    progress: bool = False,
) -> Exactness:
    """Replay a recording and compare everything that its trace shows.

    Parameters
    ----------
    recording : str, path-like or Recording
        As `pcpmodel.recording` opens it.
    release : str or Release, optional
        Replay under other rules than those of the recorded kernel, or of the known release nearest
        to it (``notes`` says which).
    policy : optional
        A policy of one's own (`pcpmodel.cython_pcp`).  At every decision it is asked what it would
        do in the state that the kernel was in (`Exactness.decisions`); what it would have led to
        is for `what_if`.
    progress : bool
        Show a tqdm bar while the trace is read.

    Returns
    -------
    Exactness

    Raises
    ------
    InputError
        If the recording has neither a first dump nor the ``zoneinfo`` of its start, or it cannot
        be read.

    Notes
    -----
    Where the kernel showed no lists (no ``pcpstate.before``), what they held at the start is
    inferred from the trace (`Exactness.inferred`), and everything else is predicted as ever.
    """
    cap = open_recording(recording)
    cap.progress = progress
    if "before" in cap.tags or not cap.has("zoneinfo.before"):
        return replay_work(cap, release, policy, ("direct_free",))[0]
    state = cap.release if release is None else find_release(release)
    if policy is not None or state.policy is not None:
        raise InputError("a policy needs a recording with dumps of the lists", file=cap.path)
    found = replay_without_dump(cap, state)[0]
    if release is None and cap.assumed:
        found.notes.insert(0, cap.assumed)
    return found


# -- with dumps -----------------------------------------------------------------------


def replay_work(
    recording: Recording | str | PathLike[str],
    release: str | Release | None = None,
    policy: object = None,
    ops: Iterable[str] = WORK_OPS,
    whole: bool = True,
) -> tuple[Exactness, np.ndarray, list[tuple[int, int]]]:
    """`replay`, and the work that the kernel was given (`WORK`), and (row, fraction) resizes.

    *ops*: kinds of work to return.  Not *whole*: only until something is unexplained, for whoever
    asks whether there is anything; what is counted then ends there, as a note says.
    """
    cap = open_recording(recording)
    state = find_release(release) if release is not None else cap.release
    policy = state.policy if policy is None else policy
    events, reader = cap.trace
    dump = _first_dump(cap)
    markers = read_markers(cap)
    before = markers.state.get("before")
    if before is None or before.end is None:
        raise InputError("the trace has no marker state-before-end", file=cap.file("trace.txt"))
    begin, first = before.begin, before.end
    _check_dump(cap, dump, events.rows["cpu"][begin + 1 : first])
    halts = stops(cap, markers)
    notes = [cap.assumed] if release is None and cap.assumed else []
    notes += _notes_of(cap)
    r = Follower(
        state, cap.cpus, dump, events, begin,
        vmemmap=reader.numbers["vmemmap"] or 0, p_lists=_p_lists(cap),
        isolated=cap.compaction or 0, hurried=not whole,
    )  # fmt: skip
    r.keep_work(ops)
    if policy is not None:
        r.ask(policy)
    doubtful = r.first_dump(begin, first)
    if doubtful:
        notes.append(f"{doubtful} events while the first dump was taken leave the start in doubt")
    later = {s.tag: s for s in cap.series()}
    for tag in [*cap.tags, *later]:
        if tag not in markers.state:
            notes.append(f"dump {tag!r} is not compared: its markers are not in the trace")
    for tag in markers.state:
        if tag not in cap.tags and tag not in later:
            notes.append(f"dump {tag!r}, of which the trace tells, is not in the recording")
    counted, misplaced = _run(r, cap, state, dump, later, markers, halts, first)
    t, work = r.tally, r.work
    bad, nr_bad, good, nr_good = r.notes()
    if r.cut is not None:
        notes.append(
            f"from line {r.cut} on no other order of operations was looked for to explain "
            "a difference: what such searches may cost was spent"
        )
    resizes: list[tuple[int, int]] = []
    for k, stop in halts.items():
        # A zone whose lists keep their size is passed over, the first one too.
        if stop[0] == "size" and k >= first and (not resizes or resizes[-1][1] != stop[2]):
            resizes.append((k, stop[2]))
    counted |= {
        kind + end: t[kind][which] for kind in (*_KINDS, "probes") for end, which in _ENDS.items()
    }
    if r.stopped:
        notes.append("ends where the first difference is that nothing explains")
    elif dump.free is None:
        notes.append("no buddylists.before: the blocks of refills are taken from the trace")
    else:
        more, more_bad, more_good, wrong_lists = _free_lists(
            cap, state, work, markers, bool(resizes), r, counted, notes
        )
        misplaced += more_bad
        nr_bad += wrong_lists
        good, nr_good = good + more_good, nr_good + len(more_good)
        counted |= more
    # Blocks, free lists and page blocks go by what the lists did: what differed there is the cause.
    first_bad = bad[0].cause if bad else r.nr_causes + 1
    bad += [replace(d, cause=first_bad) for d in misplaced]
    nr_bad += len(misplaced)
    found = Exactness(
        recording=cap.name, release=state.name, events=len(events) - first,
        isolated=counted.pop("isolated", 0), isolated_at_most=counted.pop("isolated_at_most", None),
        counted=counted, nr_unexplained=nr_bad, nr_causes=max(r.nr_causes, int(nr_bad > 0)),
        nr_explained=nr_good, unexplained=bad, explained=good, lost=cap.lost, notes=notes,
        states=r.most_states, decisions=None if policy is None else r.decisions,
    )  # fmt: skip
    return found, work, resizes


def _first_dump(cap: Recording) -> Snapshot:
    """The dump that a replay starts from."""
    if "before" not in cap.tags and not cap.has("zoneinfo.before"):
        raise InputError(
            "has no zoneinfo.before, by which a replay infers what lists held that no "
            "pcpstate.before shows",
            file=cap.path,
        )
    if "before" not in cap.tags:
        raise InputError(
            "has no pcpstate.before; a replay starts from the contents of the lists, and not every "
            "kernel shows them",
            file=cap.path,
        )
    dump = cap.snapshot("before")
    if dump.blocks is None:
        raise InputError("has no pageblocks.before; frees go by the blocks' types", file=cap.path)
    file = cap.file("pcpstate.before")
    _check_whole(dump, cap.cpus, file)
    _check_span(dump, file)
    return dump


def _check_whole(dump: Snapshot, cpus: int, file: Path) -> None:
    """A dump has the lists of every CPU in every zone."""
    for key in _places(dump, cpus):
        if key not in dump.pcps:
            raise InputError(
                "no pcp line of node {}, zone {}, CPU {}".format(*key),
                file=file, row=dump.rows.get(key[:2]),
            )  # fmt: skip


def _check_span(snapshot: Snapshot, file: Path) -> None:
    """No more page frames, holes included, than are followed."""
    last = max(snapshot.zones, key=lambda z: z.end_pfn)
    first = min(z.start_pfn for z in snapshot.zones)
    if last.end_pfn - first > MAX_PAGES:
        raise InputError(
            f"zone {last.name} of node {last.node} ends {last.end_pfn - first} pages after the "
            f"first zone begins; at most {MAX_PAGES} are replayed",
            file=file, row=snapshot.rows[last.key],
        )  # fmt: skip


def _places(dump: Snapshot, cpus: int) -> dict[tuple[int, str, int], int]:
    """(node, zone, CPU) -> the number that a follower has for these lists."""
    keys = ((*zone.key, cpu) for zone in dump.zones for cpu in range(cpus))
    return {key: n for n, key in enumerate(keys)}


def _check_dump(cap: Recording, dump: Snapshot, busy: np.ndarray) -> None:
    """The first dump must not contradict itself; *busy*: CPUs of the events while it was taken."""
    file = cap.file(f"pcpstate.{dump.tag}")
    zones = {z.key: z for z in dump.zones}
    for key, zone in zones.items():
        if not zone.wmark_min <= zone.wmark_low <= zone.wmark_high:
            raise InputError(
                f"wmark_min={zone.wmark_min}, wmark_low={zone.wmark_low} and wmark_high="
                f"{zone.wmark_high} of node {zone.node}, zone {zone.name} do not ascend",
                file=file, row=dump.rows[key],
            )  # fmt: skip
    for key, pcp in dump.pcps.items():
        zone, row = zones[key[:2]], dump.rows[key]
        where = "node {}, zone {}, CPU {}".format(*key)
        if pcp.count != pcp.listed and not pcp.torn and pcp.cpu not in busy:
            raise InputError(
                f"count={pcp.count} of {where}, but its lists hold {pcp.listed} pages",
                file=file, row=row,
            )  # fmt: skip
        name_least, least = ("high", pcp.high) if pcp.high_min < 0 else ("high_min", pcp.high_min)
        # zone_pcp_disable() leaves the zone's own sizes as they are.
        disabled = (least, pcp.batch) == (0, 1)
        for name, value, expected in (
            ("batch", pcp.batch, zone.pageset_batch),
            (name_least, least, zone.pageset_high_min),
            ("high_max", pcp.high_max, zone.pageset_high_max),
        ):
            if value != expected and not disabled:
                raise InputError(
                    f"{name}={value} of {where}, but its zone has {expected} for all CPUs",
                    file=file, row=row,
                )  # fmt: skip


def _p_lists(cap: Recording) -> int:
    """Offset of the lists in struct per_cpu_pages [bytes]."""
    layout = cap.meta.get("struct_layout")
    p_lists = layout.get("p_lists", 24) if isinstance(layout, dict) else 24
    if not isinstance(p_lists, int) or not 0 <= p_lists < 4096:
        raise InputError(f"struct_layout p_lists={p_lists!r} is no offset", file=cap.path)
    return p_lists


def _notes_of(cap: Recording) -> list[str]:
    """What is missing of the trace."""
    notes, reader = [], cap.trace[1]
    if reader.truncated:
        notes.append(f"the trace ends in an unfinished line: {reader.truncated[:60]!r}")
    if reader.missing > 0:
        notes.append(f"{reader.missing} events of the trace's heading are not in the file")
    elif reader.missing < 0:
        notes.append(
            f"the file has {-reader.missing} events more than its heading says: tracing went on "
            "while it was read, it was edited, or it was put together of several, and then the "
            "heading need not tell of all events that were lost"
        )
    if cap.missing > 0:
        notes.append(f"{cap.missing} events of which meta.json tells are not in the trace")
    elif cap.missing < 0:
        notes.append(f"the trace has {-cap.missing} events more than meta.json tells of")
    rows = cap.trace[0].rows
    had = set(np.unique(rows["event"]).tolist())
    if absent := [name for name in _NEEDED if EVENT_IDS[name] not in had]:
        notes.append(
            f"no line of the trace is of {' or '.join(absent)}: if such events were not recorded, "
            "what they would have told of is not as foreseen"
        )
    if not (rows["flags"] & FLAGS["known"]).any():
        notes.append(
            "no line of the trace has flags: an interrupt amid other work is not told from that"
        )
    return notes


def _run(
    r: Follower,
    cap: Recording,
    state: Release,
    dump: Snapshot,
    later: dict[str, Snapshot],
    markers: Markers,
    halts: dict[int, tuple],
    first: int,
) -> tuple[dict[str, int], list[Difference]]:
    """Follow the trace from row *first* on, with a look at every later dump on the way.

    Returns what was counted of the dumps' lists and page blocks, and the page blocks that differ.
    """
    events = cap.trace[0]
    lists = foreseen = explained = blocks = 0
    misplaced: list[Difference] = []
    at = first
    rows = list(halts)
    pos = bisect_left(rows, first + 1)
    while pos < len(rows):
        k = rows[pos]
        stop = halts[k]
        r.run(at, k)
        if r.stopped:
            break
        at = k
        pos += 1
        if stop[0] == "size":
            _resize(r, cap, dump, state.rules, stop[1], stop[2])
        elif stop[0] == "begin":
            tag, end = stop[1], markers.state[stop[1]].end
            if end is None or not (tag in cap.tags or tag in later):
                continue
            seen = cap.snapshot(tag) if tag in cap.tags else later[tag]
            file = cap.file("pcpstate." + (tag if tag in cap.tags else "series"))
            _check_whole(seen, cap.cpus, file)
            was = [r.types_of(z.start_pfn, z.end_pfn) for z in seen.zones]
            places = _places(seen, cap.cpus)
            pcps = {places[key]: pcp for key, pcp in seen.pcps.items()}
            n, good, shown = r.compare(pcps, k, end, [z.flags for z in seen.zones])
            if seen.blocks is not None:
                blocks, wrong = _compare_blocks(r, seen, was)
                misplaced = [Difference(int(events.rows["line"][k]), *bad) for bad in wrong]
            at = end
            lists += n
            foreseen += good
            explained += shown
            while pos < len(rows) and rows[pos] < end:
                pos += 1
    if not r.stopped:
        r.run(at, len(events))
    return {
        "lists": lists, "lists_foreseen": foreseen, "lists_explained": explained,
        "page_blocks": blocks, "page_blocks_foreseen": blocks - len(misplaced),
    }, misplaced  # fmt: skip


def _resize(
    r: Follower, cap: Recording, dump: Snapshot, rules: Rules, nth: int, fraction: int
) -> None:
    """zone_set_pageset_high_and_batch() of the nth zone with memory."""
    populated = [z for z in dump.zones if z.managed]
    if not 0 <= nth < len(populated):
        return
    zone = populated[nth]
    z = dump.zones.index(zone)
    for cpu in range(cap.cpus):
        r.resize(z * cap.cpus + cpu, *sizes(cap, zone, rules, fraction))


def _compare_blocks(
    r: Follower, seen: Snapshot, was: Sequence[np.ndarray]
) -> tuple[int, list[tuple[str, str, int, int]]]:
    """Page blocks of a dump with memory, and (what, where, expected, got) of other types.

    *was*: the model's types when the dump began; they may have changed until now.
    """
    assert seen.blocks is not None
    n, wrong = 0, []
    for zone, before in zip(seen.zones, was, strict=True):
        first, told = seen.blocks[zone.key]
        skip = (zone.start_pfn >> 9) - (first >> 9)
        told = told[skip : skip + len(before)]
        now = r.types_of(zone.start_pfn, zone.end_pfn)
        n += int((told >= 0).sum())
        for k in np.flatnonzero((told >= 0) & (told != before) & (told != now)).tolist():
            pfn = ((zone.start_pfn >> 9) + k) << 9
            where = f"node {zone.node} {zone.name} {pfn:#x}"
            wrong.append(("migratetype of a page block", where, int(now[k]), int(told[k])))
    return n, wrong


def _free_lists(
    cap: Recording,
    state: Release,
    work: np.ndarray,
    markers: Markers,
    resized: bool,
    r: Follower,
    counted: dict[str, Any],
    notes: list[str],
) -> tuple[dict[str, Any], list[Difference], list[Explained], int]:
    """Which blocks of the buddy lists the kernel took, and its free lists at the end.

    Returns what was counted, what differs, what is explained, and the free lists that differ.
    """
    rows = cap.trace[0].rows
    lists, total, right, shown, cut = follow(cap, state, work, markers, resized, r.tells_of)
    most = cap.compaction
    counted = {
        "blocks": lists.taken, "blocks_foreseen": lists.foreseen,
        "blocks_explained": len(lists.explained), "free_lists": total,
        "free_lists_foreseen": right - len(shown), "free_lists_explained": len(shown),
        "isolated": lists.isolated, "isolated_at_most": most,
    }  # fmt: skip
    if cut:
        notes.append(
            "what left the free lists without a line was looked for no further: what "
            "such searches may cost was spent"
        )
    line, pfn = rows["line"], rows["a"]
    bad = []
    if most is not None and lists.isolated > most:
        what = "pages that left the free lists unseen"
        bad.append(Difference(int(line[-1]), what, "", most, lists.isolated))
    bad += [
        Difference(int(line[k]), "block taken from the buddy lists", "", named, int(pfn[k]))
        for k, named in lists.unforeseen
    ]
    good = [Explained(int(line[k]), UNSEEN, "", int(line[why])) for k, _, why in lists.explained]
    good += [Explained(int(line[k]), what, "", int(line[why])) for k, why, what in shown]
    if right != total:
        notes.append(f"{total - right} free lists of the last dump differ")
    return counted, bad, good, total - right


# -- without ------------------------------------------------------------------------


def replay_without_dump(
    cap: Recording,
    state: Release,
    snapshot: Snapshot | None = None,
    first: int | None = None,
    stop: int | None = None,
) -> tuple[Exactness, Follower]:
    """Replay a recording that shows no lists; what they held at the start follows from its trace.

    Parameters
    ----------
    cap : Recording
    state : Release
    snapshot : Snapshot, optional
        Counts and sizes at the start; by default the recording's ``zoneinfo.before``.
    first, stop : int, optional
        Rows to start from and to end before; by default from the first snapshot on.

    Returns
    -------
    (Exactness, Follower)
    """
    found, tried = _infer(cap, state, snapshot, first, stop)
    return found, tried.follower


def work_without_dump(
    cap: Recording,
) -> tuple[Exactness, np.ndarray, list[tuple[int, int]], Snapshot]:
    """As `replay_work`, of a recording that shows no lists, and what they may have held at first.

    Returns
    -------
    (Exactness, ndarray of WORK, list of (row, fraction), Snapshot)
        The last as of `supposed_dump`.
    """
    found, tried = _infer(cap, cap.release, ops=WORK_OPS)
    work = tried.follower.work
    return found, work, tried.resizes(), tried.supposed(work)


def _infer(
    cap: Recording,
    state: Release,
    snapshot: Snapshot | None = None,
    first: int | None = None,
    stop: int | None = None,
    ops: Iterable[str] = (),
) -> tuple[Exactness, _Inferred]:
    """`replay_without_dump`, and all that was thought; *ops*: kinds of work to keep."""
    notes = ["no dump of the lists: what they held at the start is inferred from the trace"]
    if snapshot is None:
        snapshot = cap.zoneinfo("before")
        _check_span(snapshot, cap.file("zoneinfo.before"))
        notes += check_readings(cap, read_markers(cap))
    if first is None and not read_markers(cap).snapshot:
        notes.append(
            "no markers: zoneinfo.before is taken for the moment of the trace's first line, its "
            f"counts to {_SLACK} pages; a later zoneinfo is not compared"
        )
    tried = _Inferred(cap, state, snapshot, first, stop, ops)
    r = tried.best()
    notes += tried.resized()
    bad, nr_bad, good, nr_good = r.notes()
    if r.nr_cut:
        notes.append(
            f"what to find out the states costs was spent at line {r.cut}: of {r.nr_cut} "
            f"pageset{'s' if r.nr_cut > 1 else ''} "
            "only the pages are followed from there on, which is never exact"
        )
    notes += _notes_of(cap)
    t = r.tally
    found = Exactness(
        recording=cap.name, release=state.name, events=r.nr_heeded(tried.first, tried.end),
        counted={
            **{kind + end: t[kind][which] for kind in _KINDS for end, which in _ENDS.items()},
            **{f"probes{end}": n for end, n in zip(_ENDS, tried.probes, strict=True)},
        },
        nr_unexplained=nr_bad, nr_causes=r.nr_causes, nr_explained=nr_good, unexplained=bad,
        explained=good, lost=cap.lost, notes=notes, states=r.most_states, cut=r.nr_cut,
        inferred={k: t[k]["inferred"] for k in _KINDS},
        not_followed={k: t[k]["cut"] for k in ("refills", "drains")} if r.nr_cut else {},
    )  # fmt: skip
    return found, tried


def _moment(cap: Recording, markers: Markers) -> tuple[int, int]:
    """Rows at which the first snapshot began, and after which it was over."""
    if not markers.snapshot:
        return 0, 0
    before = markers.snapshot.get("before")
    if before is None or before.end is None:
        raise InputError(
            "the trace has no markers of its first snapshot", file=cap.file("trace.txt")
        )
    return before.begin, before.end + 1


def _followed(cap: Recording, events: Events) -> tuple[list[int], int]:
    """Events to go by, and the address of the first struct page where one of them prints such.

    Probes and function hits are for those who have a dump.
    """
    names = _FOLLOWED + (_BULK if tells_bulk(cap) else ())
    followed = [HIDDEN, *(EVENT_IDS[name] for name in names)]
    vmemmap = first_page(events, [*followed, EVENT_IDS[CONTIG]]) if probed(cap, CONTIG) else None
    return followed + [EVENT_IDS[CONTIG]] * (vmemmap is not None), vmemmap or 0


class _Inferred:
    """A recording that is followed again and again, with what is thought of its start.

    That is what the lists may have held, the types of page blocks, and which tasks are new, as the
    trace tells.

    Attributes
    ----------
    first, end : int
        Rows that are followed.
    probes : tuple of int
        As of `_as_told`, all in all, of the last time.
    """

    def __init__(
        self,
        cap: Recording,
        state: Release,
        snapshot: Snapshot,
        first: int | None,
        stop: int | None,
        ops: Iterable[str],
    ) -> None:
        self._ops = ops
        events, reader = cap.trace
        rows = events.rows
        self._events, self._rows, self._markers = events, rows, read_markers(cap)
        self._computed = any(pcp.high_max < 0 for pcp in snapshot.pcps.values())
        snapshot = _sized(snapshot, state, cap, self._markers)
        self._cap, self._state, self._snapshot = cap, state, snapshot
        begin, first = _moment(cap, self._markers) if first is None else (first, first)
        self.end = len(events) if stop is None else stop
        after = self._markers.snapshot.get("after")
        self._after = None if stop is not None or not cap.has("zoneinfo.after") else after
        followed, self._vmemmap = _followed(cap, events)
        self._unheeded = ~sum(1 << event for event in followed) & (1 << 64) - 1
        while first < self.end and rows["event"][first] not in followed:
            first += 1
        self.first = first
        self.probes = 0, 0, 0
        new = np.flatnonzero(events.is_event("sched_process_fork"))
        if _version(cap.kernel) > _LAST_SILENT or tells_bulk(cap):
            new = new[:0]
        self._forks = new
        self._kworkers = [k for k, name in enumerate(reader.comms) if name.startswith("kworker")]
        counts = counts_at_start(rows, begin, first, snapshot)
        if not self._markers.snapshot:
            slack = sorted(range(-_SLACK, _SLACK + 1), key=abs)
            counts = {
                key: [max(pcp.count + n, 0) for n in slack] for key, pcp in snapshot.pcps.items()
            }
        self._places = places = _places(snapshot, cap.cpus)
        self._counts = {places[key]: n for key, n in counts.items() if key in places}
        starts = np.sort([z.start_pfn for z in snapshot.zones])
        end = max(z.end_pfn for z in snapshot.zones)
        self._made_since = made_since(events, self._forks)
        self._freed, self._shown = lay_elsewhere(
            events, cap.cpus, first, starts, end - starts[0], self._forks, self._made_since,
            self._unheeded,
        )  # fmt: skip
        # The machine's page frames: the first, and how many.
        self._base = int(starts[0]) & ~511
        self._pages = ((end + 511) & ~511) - self._base
        self._told = types_told(events, first, self._base, self._pages >> 9)
        self._moved: list[tuple[int, int, int]] = []
        self._switched, self._untold = switches(events), untold(events, cap.cpus)
        self._resized_rows = self._cut_at = 0
        self._changes = changes_of_size(cap, state, snapshot, self._markers)

    def resized(self) -> list[str]:
        """Says that sizes changed, and of which those of start and end differ untold."""
        if self._cut_at:
            return [f"from line {self._cut_at} on it was not looked for where exactly the sizes of "
                    "the lists changed: what such searches may cost was spent"]  # fmt: skip
        if self._changes:
            texts = self._markers.texts
            silent = sum(not texts.get(c.latest, "").startswith("sysctl ") for c in self._changes)
            more = f", of these {silent} times where no sysctl was written" if silent else ""
            times = f"{len(self._changes)} time{'s' * (len(self._changes) > 1)}"
            return [f"the sizes of the lists changed {times} while it was recorded{more}"]
        if not self._after:
            return []
        before, after = self._cap.zoneinfo("before").pcps, self._cap.zoneinfo("after").pcps
        found = [
            f"{name} of node {key[0]} {key[1]} is {then} at the end and was {was} at the start"
            for key, pcp in before.items() if key[2] == 0 and key in after
            for name in ("batch", "high_min", "high_max")
            if (was := getattr(pcp, name)) != (then := getattr(after[key], name))
        ]  # fmt: skip
        if found:
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            found = [f"{found[0]}{more}: from where that changed, which no line tells, "
                     "decisions are not as foreseen"]  # fmt: skip
        return found

    @property
    def follower(self) -> Follower:
        """The one that followed last."""
        return self._r

    def resizes(self) -> list[tuple[int, int]]:
        """From which row on which fraction was in force."""
        rows = {change.latest: change.row for change in self._changes}
        return [(rows.get(k, k), fraction) for k, fraction in self._markers.fractions.items()]

    def supposed(self, work: np.ndarray) -> Snapshot:
        """What a dump at the start would have shown; *work*: what was done since."""
        return supposed_dump(
            self._cap, self._snapshot, work, self._base, self._types, self.first
        )  # fmt: skip

    def best(self) -> Follower:
        """The follower with which most is as the model says, of those that were tried."""
        self._follow()
        for change in self._changes:
            self._resizes_before(change)
        for _ in range(_GUESSES):
            if not self._learns(self._r.notes()[0], self._r.gone_past()):
                break
            self._follow()
        if self._r.notes()[1]:
            self._moves()
        return self._r

    def _follow(self, end: int | None = None) -> None:
        """Follow the recording with all that is thought of it now; only up to row *end*."""
        cap, events = self._cap, self._events
        end = self.end if end is None else min(end, self.end)
        self._r: Any = None  # two at a time would take twice the memory
        self._r = r = Follower(
            self._state, cap.cpus, self._snapshot,
            Events(self._rows, events.probes[:0], events.spilled), self.first,
            vmemmap=self._vmemmap, unheeded=self._unheeded, isolated=cap.compaction or 0,
            locks_sleep=cap.preempt_rt, computed=self._computed,
        )  # fmt: skip
        r.keep_work(self._ops)
        r.set_switches(self._switched)
        r.set_untold(self._untold)
        r.set_forks(self._forks, self._made_since, self._kworkers)
        for place, counts in self._counts.items():
            r.set_counts(place, counts)
        blocks = self._rows["a"][self._freed] - self._base >> 9
        self._types = guess_types(self._told, blocks, self._shown, len(self._rows))
        r.set_block_types(self._types)
        r.set_passed_over(self._freed, self._shown)
        r.set_moved(self._moved)
        r.free_under_way(self.first)
        self._to_come = sorted(self._changes, key=attrgetter("row"))
        left, after, told = self.first, self._after, []
        for tag, seen in cap.zoneinfo_series.items():
            at = self._markers.snapshot.get(tag)
            # Of one whose reader lost the CPU meanwhile no moment is known.
            if (
                at and at.end is not None and left < at.begin and at.end < end
                and at.end - at.begin < _LONG
            ):  # fmt: skip
                self._run(left, at.begin)
                told.append(self._see_counts(seen, at.begin, at.end))
                left = at.end
        if after and after.end is not None and after.end < end:
            self._run(left, after.begin)
            left = after.end
            sets = self._comparable(cap.zoneinfo("after"))
            told.append(_as_told(sets, *r.compare_counts(sets, after.begin, left)))
        self._run(left, end)
        self.probes = tuple(map(sum, zip(*told, strict=True))) if told else (0, 0, 0)

    def _comparable(self, seen: Snapshot) -> dict[int, PcpState]:
        """What a later /proc/zoneinfo tells of those lists of which there are states."""
        # The other fields were never compared with what this prints.
        return {
            x: replace(seen.pcps[key], batch=-1, high_min=-1, high_max=-1)
            for key, x in self._places.items()
            if key in seen.pcps and self._r.is_followed(x)
        }

    def _see_counts(self, seen: Snapshot, begin: int, end: int) -> tuple[int, int, int]:
        """Hold against it what was told amid the recording, which goes on with that."""
        may_be = counts_amid(self._rows, begin, end, seen)
        counts = {self._places[key]: n for key, n in may_be.items() if key in self._places}
        sets = {x: pcp for x, pcp in self._comparable(seen).items() if x in counts}
        return _as_told(sets, *self._r.see_counts(sets, counts, begin, end))

    def _run(self, at: int, until: int) -> None:
        """Follow some rows; where sizes changed by then, lists have the new ones.

        What lies amid a reading of /proc/zoneinfo, whose rows are followed with it, comes after.
        """
        r = self._r
        while self._to_come and self._to_come[0].row <= until:
            change = self._to_come.pop(0)
            r.run(at, max(at, change.row))
            at = max(at, change.row)
            for key, size in change.sizes.items():
                if key in self._places:
                    r.resize(self._places[key], *size)
        r.run(at, until)

    def _learns(self, differences: Sequence[Difference], passed: Sequence[tuple[int, int]]) -> bool:
        """Whether a page lay on a list only as the type of its block was guessed.

        Where a follower finds that nothing can have taken a page from a list, or that a drain went
        past it (*passed*), and no line tells the type of its block, it was on another one.
        """
        learned = 0
        wrong = [
            (int(difference.expected, 16), difference.line)
            for difference in differences
            if difference.what in NOT_THERE and isinstance(difference.expected, str)
        ]
        for pfn, line in sorted({*wrong, *passed}, key=itemgetter(1, 0)):
            block = pfn - self._base >> 9
            if not (0 <= block < len(self._told) and self._told[block] < 0):
                continue
            row = bisect_left(self._rows["line"], line)
            guess = _MOVABLE if self._types[block] < 0 else int(self._types[block])
            learned += self._show(self._last_free(pfn, row), guess, row)
            if learned == _LEARNED:
                break
        return learned > 0

    def _last_free(self, pfn: int, row: int) -> int:
        """The last row before *row* that frees this page to a small list, or -1."""
        for end in range(row, self.first, -_PIECE):
            start = max(end - _PIECE, self.first)
            rows = self._rows[start:end]
            own = (rows["a"] == pfn) & (rows["event"] == EVENT_IDS["mm_page_free"])
            found = np.flatnonzero(own & (rows["b"] <= PAGE_ALLOC_COSTLY_ORDER))
            if len(found):
                return start + int(found[-1])
        return -1

    def _show(self, freed: int, guess: int, row: int) -> bool:
        """A row shows that a page was not on a list; whether none before did."""
        if freed < 0:
            return False
        k = int(np.searchsorted(self._freed, freed))
        if k == len(self._freed) or self._freed[k] != freed:
            self._freed = np.insert(self._freed, k, freed)
            self._shown = np.insert(self._shown, k, 0, axis=0)
        if 0 < self._shown[k, guess] <= row:
            return False
        self._shown[k, guess] = row
        return True

    def _resizes_before(self, change: Resized) -> None:
        """Lists had other sizes from that line on which is the first to show it.

        Where something differs between the earliest row at which that may have been and the end of
        what was read then, the sizes changed before what was done there began, if then less
        differs.
        """
        rows, tried = self._rows, False
        first, last, end = rows["line"][[change.earliest, change.latest, change.read]]
        for _ in range(_RESIZES):
            wrong = [d.line for d in self._r.notes()[0] if first < d.line <= end]
            if not wrong:
                break
            begins = self._begins if wrong[0] <= last else self._last_begins
            was = change.row
            for begin in begins(bisect_left(rows["line"], min(wrong[0], last)), change.earliest):
                if self._resized_rows > _RESIZED_ROWS:
                    self._cut_at = self._cut_at or int(wrong[0])
                    break
                change.row, tried = begin, True
                self._resized_rows += change.read
                self._follow(change.read + 1)
                if sum(first < d.line <= end for d in self._r.notes()[0]) < len(wrong):
                    was = begin
                    break
            if change.row != was or self._cut_at:
                change.row = was
                break
        if tried:
            self._resized_rows += self.end
            self._follow()

    def _begins(self, row: int, earliest: int) -> list[int]:
        """Rows before which what *row* shows may have begun: a refill's first, or the free of a
        drain and that of its page."""
        rows, own = self._rows, []
        cpu = rows["cpu"][row]
        while row > earliest and len(own) < 2:
            if rows["cpu"][row] == cpu and rows["event"][row] not in AMID:
                own.append(row)
            row -= 1
        if own and rows["event"][own[0]] == EVENT_IDS["mm_page_free_batched"]:
            freed = self._last_free(int(rows["a"][own[0]]), own[0])
            own += [freed] if freed > earliest else []
        return own

    def _last_begins(self, row: int, earliest: int) -> list[int]:
        """Rows at which the last few refills and drains before *row* began, and the last frees of
        each CPU, in which nr_pcp_high() brings high to what it may be; the last one first."""
        part = self._rows[earliest:row]
        amid = np.flatnonzero(np.isin(part["event"], AMID))
        begins = amid[np.diff(part["time"][amid], prepend=0) > _APART][-_RESIZES:]
        frees = np.flatnonzero(np.isin(part["event"], _FREES))[::-1]
        frees = frees[np.unique(part["cpu"][frees], return_index=True)[1]]
        return [earliest + int(at) for at in np.union1d(begins, frees)[::-1]]

    def _moves(self) -> None:
        """Follow again with pages that tasks had taken before they were moved.

        What makes foreseen the first difference, and spoils none before it, was so: large blocks
        first, then who was moved last.  Not where it comes out because less is followed.
        """
        found = taken_on_the_way(
            self._events, self._switched, self.first, self._unheeded, self._base, self._pages
        )
        reached = _reached(self._r)
        tries = min(_TRIES, _TRIED_ROWS // max(len(self._rows), 1))
        large = {row: int(self._rows["b"][row]) for row, _, _ in found}
        good = True
        while good and reached[1] < np.inf:
            at = bisect_left(self._rows["line"], reached[1])
            done = {row for row, _, _ in self._moved}
            left = [move for move in found if move[0] not in done and move[1] <= at]
            for move in sorted(left, key=lambda move: (large[move[0]], move), reverse=True)[:tries]:
                tries -= 1
                self._moved.append(move)
                self._follow()
                then = _reached(self._r)
                good = then[0] <= reached[0] and then[1:] > reached[1:]
                if good:
                    reached = then
                    break
                self._moved.pop()
            else:
                break
        if not good:
            self._follow()


def _reached(r: Follower) -> tuple[int, float, int]:
    """How far all was foreseen: pagesets that were followed no further, the line of the first
    difference, and how few that line has."""
    lines = [difference.line for difference in r.notes()[0]]
    least = min(lines, default=np.inf)
    return r.nr_cut, least, -lines.count(least)


def _version(kernel: str) -> tuple[int, int]:
    major, minor = kernel.split(".")[:2]
    return int(major), int(re.sub(r"\D.*", "", minor) or 0)


def _sized(snapshot: Snapshot, state: Release, cap: Recording, markers: Markers) -> Snapshot:
    """With high_min and high_max filled in where this kernel's /proc/zoneinfo prints none.

    And with the lists of CPUs that were offline when it was read, and have lines.
    """
    pcps = dict(snapshot.pcps)
    late = set(np.unique(cap.trace[0]["cpu"]).tolist()) - {key[2] for key in pcps}
    # The sysctl is known at the end, and so at the start unless the recording tells of a change.
    fraction = 0 if markers.fractions else cap.high_fraction
    for zone in snapshot.zones:
        _, low, top = sizes(cap, zone, state.rules, fraction)
        told = next((pcp for pcp in snapshot.pcps.values() if pcp.zone == zone.name
                     and pcp.node == zone.node), None)  # fmt: skip
        for cpu in range(cap.cpus):
            key = (*zone.key, cpu)
            pcp = pcps.get(key)
            if pcp is None and told is not None and cpu in late:
                # page_alloc_cpu_dead() empties the lists, and every CPU's are of their zone's size
                # from the start; nr_pcp_high() brings high to what it may be.
                high = 0 if state.rules.high_min_max else told.high
                pcps[key] = pcp = replace(told, cpu=cpu, count=0, high=high)
            if pcp is None:
                continue
            if not state.rules.high_min_max:
                pcps[key] = replace(pcp, high_min=pcp.high, high_max=pcp.high)
            elif pcp.high_min < 0:
                pcps[key] = replace(pcp, high_min=low, high_max=top)
    return replace(snapshot, pcps=pcps)


def _as_told(sets: dict[int, PcpState], wrong: int, shown: int) -> tuple[int, int, int]:
    """How many pagesets were compared, are so, and are not though the trace tells why."""
    return len(sets), len(sets) - wrong, shown

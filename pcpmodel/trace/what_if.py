"""What if the same work had met other rules?

The allocations and frees of a recording, by the identity of their pages, are done
again on the memory that the recording starts from, as its dump shows it or its trace
lets one suppose it, under other releases, patches or a policy of the user's own.  Only
the rules differ: the same CPU asks for the same order and type from the same zone, and
gives back the page that it got.  What a kernel does out of turn (a request that finds
the lists locked) stays as recorded.  Work does not react: nothing is faster or slower
here.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from pcpmodel.errors import InputError, NotHeldError
from pcpmodel.files import digest_of
from pcpmodel.kernel.lists import PAGE_ALLOC_COSTLY_ORDER, pcp_orders, pindex_to_type
from pcpmodel.kernel.releases import Release, release
from pcpmodel.kernel.sizing import percpu_pagelist_high_fraction
from pcpmodel.trace.exactness import Exactness
from pcpmodel.trace.judged import judgement
from pcpmodel.trace.recording import Recording
from pcpmodel.trace.recording import recording as open_recording
from pcpmodel.trace.replay import replay_work, work_without_dump
from pcpmodel.trace.start import memory_at_start
from pcpmodel.trace.work import WORK_OPS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Outcome", "WhatIf", "what_if"]


#: Of so many pieces of work one leaves its count in the series, hold or not.
_EVERY = 16


@dataclass(frozen=True)
class Outcome:
    """What one set of rules made of the work.

    Attributes
    ----------
    release : str
    refills, drains : int
        Holds of the zone lock that filled or emptied per-CPU lists.
    zone_lock_holds : int
        All holds: also of blocks past the lists.
    draining : int
        Frees, ticks and so on that drained a zone's lists, in one hold each or in several.
    high_order_drains : int
        Drains by a free of order 1..3.
    refilled_pages, drained_pages : int
        Pages moved in them [pages].
    pages_per_hold : dict
        Pages moved -> number of refills and drains that moved so many.
    pages_in_pcp_max : int
        Most pages on all per-CPU lists at once [pages].
    time_ns, pages_in_pcp : (N,) ndarray
        Pages on all per-CPU lists after each hold, and now and then between [pages], by the
        trace's clock [ns].
    failed : int
        Allocations for which there was no page.
    unknown : int
        Pages given back that compaction had isolated, which no event tells [pages].
    """

    release: str
    refills: int
    drains: int
    zone_lock_holds: int
    draining: int
    high_order_drains: int
    refilled_pages: int
    drained_pages: int
    pages_per_hold: dict[int, int]
    pages_in_pcp_max: int
    time_ns: np.ndarray
    pages_in_pcp: np.ndarray
    failed: int
    unknown: int

    def as_dict(self) -> dict[str, Any]:
        """The numbers, without the series."""
        sizes = {str(k): v for k, v in sorted(self.pages_per_hold.items())}
        numbers = {k: v for k, v in vars(self).items() if not isinstance(v, dict | np.ndarray)}
        return numbers | {"pages_per_hold": sizes}


@dataclass(frozen=True)
class WhatIf:
    """The same work under several rules, side by side; with the parts of an answer.

    Attributes
    ----------
    recording : str
    allocations, frees : int
        Blocks asked for and given back.
    outcomes : list of Outcome
    recorded : dict
        What the recorded kernel did: ``refills``, and ``drains`` or, where no line tells in how
        many holds one was done, ``draining``.
    notes : list of str
        What the recorded kernel is taken for, if no release is named after it; that the recording
        does not replay exactly, as where events were lost; by how much its own rules do not come to
        what it did.
    judged : str
        How far counts foreseen for another kernel were off where that kernel was recorded at such
        work (`pcpmodel.study.what_if_judged`).
    """

    recording: str
    allocations: int
    frees: int
    outcomes: list[Outcome]
    recorded: dict[str, int]
    notes: list[str] = field(default_factory=list)
    judged: str = ""

    def __getitem__(self, name: str) -> Outcome:
        for outcome in self.outcomes:
            if outcome.release == name:
                return outcome
        raise KeyError(name)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: one entry per release."""
        return {
            "capture": self.recording,
            "allocations": self.allocations,
            "frees": self.frees,
            "recorded": self.recorded,
            "releases": [o.as_dict() for o in self.outcomes],
            "notes": self.notes,
            "judged": self.judged,
        }

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """By name: ``releases``, what each would have done, after ``as recorded``.

        ``refills``, ``drains``, ``zone_lock_holds``, ``refilled_pages`` and so on, as `Outcome`
        has them; what the recorded kernel did is known of ``refills``, and of ``drains`` or
        ``draining``, alone.
        """
        import pandas as pd

        rows = [o.as_dict() for o in self.outcomes]
        for row in rows:
            del row["pages_per_hold"]
        told = {"release": "as recorded", **self.recorded}
        return {"releases": pd.DataFrame([told, *rows]).set_index("release").convert_dtypes()}

    @property
    def text(self) -> str:
        """The conclusion, in numbers."""
        refills, drains = self.recorded
        counts = [
            f"{o.refills} refills and {getattr(o, drains)} drains under {o.release}"
            for o in self.outcomes
        ]
        did = f"{self.recorded[refills]} and {self.recorded[drains]} as recorded"
        head = f"{self.recording}, {self.allocations} allocations: {'; '.join([*counts, did])}."
        return "\n".join([head, *self.notes, *([self.judged] if self.judged else [])])

    @property
    def digest(self) -> str:
        """SHA-256 of `as_dict`."""
        return digest_of(self.as_dict())

    def __repr__(self) -> str:
        head = f"{self.recording}: {self.allocations} allocations, {self.frees} frees"
        refills, drains = self.recorded
        rows = [
            f"  {'rules':28} {refills:>8} {drains:>8} {'holds':>8} {'pages/hold':>10} "
            f"{'max pages in PCPs':>18}",
            f"  {'as recorded':28} {self.recorded[refills]:8} {self.recorded[drains]:8}",
        ]
        for o in self.outcomes:
            moved = (o.refilled_pages + o.drained_pages) / max(1, o.refills + o.drains)
            rows.append(
                f"  {o.release:28} {o.refills:8} {getattr(o, drains):8} {o.zone_lock_holds:8} "
                f"{moved:10.1f} {o.pages_in_pcp_max:18}"
            )
        judged = [f"  judged: {self.judged}"] if self.judged else []
        return "\n".join([head, *rows, *(f"  note: {n}" for n in self.notes), *judged])


_OPS = {number: name for name, number in WORK_OPS.items()}


class _Redone:
    """The work of a recording, done again on the memory that it started from."""

    def __init__(self, memory: Any, work: np.ndarray, starts: list[int]) -> None:
        self.memory, self.work = memory, work
        self.starts = starts  # first page frames of the zones
        self.drained: set[int] = set()  # zones of which the piece at hand drained lists
        self.where: dict[int, int] = {}  # recorded page -> the page that it is here
        self.gone: set[int] = set()  # recorded pages for which there was none
        self.listed = pcp_orders(memory.release.rules.nr_pcp_lists)
        self.count = self.most = sum(p["count"] for z in memory.state() for p in z["pcp"])
        self.failed = self.unknown = self.high_order = self.draining = 0
        self.holds: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.sizes: Counter[int] = Counter()
        self.series: list[tuple[int, int]] = []
        self.bulk_left: dict[int, list[int]] = {}
        self.bulk_sizes = Counter(work["n"][work["op"] == WORK_OPS["bulk"]].tolist())
        memory.record_events()

    def add(self, pages: int) -> None:
        """So many pages join the per-CPU lists."""
        self.count += pages
        self.most = max(self.most, self.count)

    def see_holds(self, row: int) -> None:
        """Holds of the zone lock since the last look."""
        pfn = 0
        for event in self.memory.take_events():
            if event[0] == "pcpu_drain":
                pfn = event[1]
            elif event[0] == "hold":
                if event[1] == "drain":
                    self.drained.add(bisect_right(self.starts, pfn))
                self.holds[event[1]] += 1
                self.moved[event[1]] += event[2]
                if event[1] in ("refill", "drain"):
                    self.add(event[2] if event[1] == "refill" else -event[2])
                    self.sizes[event[2]] += 1
                    self.series.append((row, self.count))

    def got(self, pfn: int, order: int, mine: int | None) -> None:
        """The block that a request has here."""
        self.failed += mine is None
        for i in range(1 << order):
            if mine is None:
                self.gone.add(pfn + i)
                self.where.pop(pfn + i, None)
            else:
                self.gone.discard(pfn + i)
                self.where[pfn + i] = mine + i

    def free(self, cpu: int, pfn: int, order: int, direct: bool) -> None:
        where, gone, memory = self.where, self.gone, self.memory
        if pfn in gone:
            return
        mine = where.get(pfn, pfn)
        pages = range(pfn, pfn + (1 << order))
        if order and (
            mine % (1 << order)
            or any(where.get(p, p) - mine != p - pfn or p in gone for p in pages)
        ):
            for page in pages:  # it is no block here
                self.free(cpu, page, 0, direct)
            return
        try:
            (memory.free_direct if direct else memory.free)(cpu, mine, order)
        except NotHeldError:
            # Compaction had taken it without a word, and does not here.
            self.unknown += 1 << order
        else:
            if not direct and order in self.listed:
                self.add(1 << order)
        for page in pages:
            where.pop(page, None)

    def do(self, piece: tuple[int, ...]) -> None:
        """One piece of work, as `WORK` has it."""
        self.drained.clear()
        self._do(piece)
        self.see_holds(piece[2])
        self.draining += len(self.drained)

    def _do(self, piece: tuple[int, ...]) -> None:
        pfn, n, row, cpu, number, order, pindex, zone = piece
        memory, op = self.memory, _OPS.get(number)
        if op in ("alloc", "direct_alloc"):
            direct = op == "direct_alloc"
            mt = pindex if direct else pindex_to_type(pindex)
            mine = memory.alloc_from(zone, cpu, order, mt, direct=direct)
            if mine is None:
                mine = memory.alloc(cpu, order, mt)
            self.see_holds(row)
            if mine is not None and not direct and order in self.listed:
                self.count -= 1 << order
            self.got(pfn, order, mine)
        elif op == "bulk":
            if n not in self.bulk_left:
                pages = memory.alloc_pages_bulk(cpu, self.bulk_sizes[n], pindex_to_type(pindex))
                self.count -= len(pages)
                self.bulk_left[n] = pages[::-1]
            left = self.bulk_left[n]
            self.got(pfn, 0, left.pop() if left else None)
        elif op in ("free", "direct_free"):
            before = self.holds["drain"]
            self.free(cpu, pfn, order, op == "direct_free")
            self.see_holds(row)
            if 1 <= order <= PAGE_ALLOC_COSTLY_ORDER:
                self.high_order += self.holds["drain"] - before
        elif op == "contig":
            there = [p for p in range(pfn, pfn + n) if p not in self.gone]
            pages = [self.where.pop(p, p) for p in there]
            memory.free_pages_bulk(cpu, pages)
            self.add(len(pages))
        elif op == "tick":
            memory.refresh_cpu_vm_stats(cpu)
        elif op == "drain":
            memory.drain_pages_zone(cpu, zone)

    def outcome(self, resizes: list[tuple[int, int]], time: np.ndarray, name: str) -> Outcome:
        """Do it all; *resizes*: (row, fraction) at which the sysctl is written."""
        pending = list(resizes)
        rows = self.work["row"].tolist()
        for i, (row, piece) in enumerate(zip(rows, self.work.tolist(), strict=True)):
            if i % _EVERY == 0:
                self.series.append((row, self.count))
            while pending and pending[0][0] <= row:
                self.memory.set_percpu_pagelist_high_fraction(pending.pop(0)[1])
            self.do(piece)
        at = np.array([r for r, _ in self.series], np.int64)
        return Outcome(
            release=name,
            refills=self.holds["refill"],
            drains=self.holds["drain"],
            zone_lock_holds=sum(self.holds.values()),
            draining=self.draining,
            high_order_drains=self.high_order,
            refilled_pages=self.moved["refill"],
            drained_pages=self.moved["drain"],
            pages_per_hold=dict(self.sizes),
            pages_in_pcp_max=self.most,
            time_ns=time[at] if len(at) else np.empty(0, np.int64),
            pages_in_pcp=np.array([c for _, c in self.series], np.int64),
            failed=self.failed,
            unknown=self.unknown,
        )


def _is_blind(cap: Recording) -> bool:
    """Whether nothing shows the lists at the start, but /proc/zoneinfo tells of them."""
    return "before" not in cap.tags and cap.has("zoneinfo.before")


def _notes(
    cap: Recording, exactness: Exactness, own: list[Outcome], recorded: dict[str, int]
) -> list[str]:
    """What there is to say of a recording; *own*: of its own rules, to be held against it."""
    notes = [f"recorded under {cap.assumed}"] if cap.assumed else []
    if _is_blind(cap):
        notes.append(
            "no dump of the lists: what they held at the start is supposed, by the trace and "
            "/proc/zoneinfo"
        )
        notes.append(
            "no line tells in how many holds a drain was done: draining counts each once, in "
            "however many"
        )
    if not exactness.exact:
        notes.append(
            f"the recording does not replay exactly ({exactness.lost} events lost, "
            f"{exactness.nr_unexplained} unexplained differences, {exactness.nr_explained} of "
            f"{exactness.events} events explained): the work is not all of it known"
        )
    for outcome in own:
        here = {kind: getattr(outcome, kind) for kind in recorded}
        if here != recorded:
            # An operation is done as a whole here; there, others had the lists in its midst, or
            # reclaim had them drained.
            notes.append(
                f"{outcome.release}, the recording's own rules, comes to "
                + " and ".join(
                    f"{here[k]} {said} for {recorded[k]}"
                    for k, said in zip(recorded, ("refills", "drains"), strict=True)
                )
                + " as recorded: so far off may other rules be, too"
            )
    return notes


def what_if(
    recording: Recording | str | PathLike[str],
    releases: Sequence[str | Release] = (),
    policy: object = None,
    *,
    batch: int | None = None,
    high_pages: int | None = None,
    high_fraction: int | None = None,
) -> WhatIf:
    """Do a recording's allocations and frees again under other rules.

    Parameters
    ----------
    recording : str, path-like or Recording
        As `pcpmodel.recording` opens it.
    releases : sequence of str or Release
        Rules to compare; the recording's own if empty.
    policy : optional
        A policy of one's own (`pcpmodel.cython_pcp`): one more outcome, named
        ``policy``, over the recording's own release.
    batch : int, optional
        Pages per refill and drain of every zone [pages]; by default as recorded.
    high_pages : int, optional
        A fixed threshold of every zone [pages], in place of the recorded sizes.
    high_fraction : int, optional
        ``vm.percpu_pagelist_high_fraction`` from the start on, in place of what the recorded
        machine was told: 0, or 8 and more.  The batch scale is of the release
        (`Release.with_batch_scale_max`).

    Returns
    -------
    WhatIf

    Raises
    ------
    InputError
        For a recording whose first dump has no buddy lists, or one that does not replay; for
        ``high_pages`` together with ``high_fraction``; for an answer of the policy that is not
        allowed, naming the callback.
    """
    if high_fraction is not None:
        percpu_pagelist_high_fraction(high_fraction)
        if high_pages is not None:
            raise InputError(
                f"high_pages={high_pages} fixes what high_fraction={high_fraction} would compute; "
                "give one of them"
            )
    cap = open_recording(recording)
    states = [release(r) for r in releases] or ([] if policy is not None else [cap.release])
    for name, times in Counter(state.name for state in states).items():
        if times > 1:
            raise InputError(f"releases: {name!r} is there {times} times; give each once")
    if _is_blind(cap):
        exactness, work, resizes, dump = work_without_dump(cap)
    else:
        exactness, work, resizes = replay_work(cap)
        dump = cap.snapshot("before")
    if exactness.nr_unexplained > 0.01 * exactness.allocations:
        raise InputError(
            f"does not replay ({exactness.nr_unexplained} unexplained differences), so its work "
            "is not known",
            file=cap.path,
        )
    if dump.free is None:
        raise InputError("has no buddylists.before; the pages to start with", file=cap.path)
    if high_fraction is not None:
        resizes = [(0, high_fraction)]
    elif high_pages is not None:
        resizes = []
    time = cap.trace[0].rows["time"]
    starts = sorted(z.start_pfn for z in dump.zones)
    rules: list[tuple[str, Release, object]] = [(s.name, s, s.policy) for s in states]
    if policy is not None:
        rules.append(("policy", cap.release, policy))

    def outcome(name: str, state: Release, mine: object) -> Outcome:
        memory = memory_at_start(state, dump, cap, mine, bool(resizes), batch, high_pages)
        return _Redone(memory, work, starts).outcome(resizes, time, name)

    outcomes = [outcome(*rule) for rule in rules]
    drains = "draining" if _is_blind(cap) else "drains"
    recorded = {"refills": exactness.refills, drains: exactness.drains}
    asked = (batch, high_pages, high_fraction) != (None, None, None)
    own = [
        found for found, (_, state, mine) in zip(outcomes, rules, strict=True)
        if state.rules == cap.release.rules and mine is None and not asked
    ]  # fmt: skip
    if _is_blind(cap) and not own and not asked:
        # Where the start is supposed somebody has to say how well.
        own = [outcome(cap.release.name, cap.release, None)]
    return WhatIf(
        recording=cap.name,
        allocations=exactness.allocations,
        frees=int(
            np.isin(work["op"], [WORK_OPS["free"], WORK_OPS["direct_free"]]).sum()
            + work["n"][work["op"] == WORK_OPS["contig"]].sum()
        ),
        outcomes=outcomes,
        recorded=recorded,
        notes=_notes(cap, exactness, own, recorded),
        judged=judgement(cap.name),
    )

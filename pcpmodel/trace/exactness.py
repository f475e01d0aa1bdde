"""What a replay found: how much the model foresaw, what another line explains, what is left."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pcpmodel.arguments import checked_methods
from pcpmodel.files import digest_of
from pcpmodel.trace.page_lists import Difference, Explained

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COUNTED", "EVENTS_PER_EXPLAINED", "Exactness"]

#: Events of which one may need another line, or else the replay is no proof.  Chosen: two and a
#: half times as many as any recording of data/traces needs (6.18-exitstorm-4cpu: one in 265).
EVENTS_PER_EXPLAINED = 100

#: What is counted, in the order of the report.
COUNTED = (
    "allocations", "refills", "blocks", "drains", "drained_pages", "probes", "lists", "free_lists",
    "page_blocks",
)  # fmt: skip
_WHICH = {"foreseen": 1, "exact": 1, "explained": 2, "unexplained": 3}


@checked_methods
@dataclass(frozen=True)
class Exactness:
    """What `replay` found, with the parts of an answer: tables, text, digest.

    Each of nine kinds of things is counted, and how many of them are

    foreseen
        The model did as the kernel, from the lines before alone: the same page at the same moment,
        the same size and start list, the same pages in order.
    explained
        The model would have done otherwise; another line of the trace, or a dump, shows why the
        kernel did so (``explained`` names it).
    unexplained
        The rest, but for what was ``inferred``.

    Beside ``allocations`` there are ``allocations_foreseen``, ``allocations_explained`` and
    ``allocations_unexplained``, and so of the others; ``allocations_exact`` is the number of those
    foreseen.

    Attributes
    ----------
    recording, release : str
    events : int
        Events replayed, from the first dump on.
    allocations : int
        mm_page_alloc [blocks].  Of a block that a refill brought or that went past the per-CPU
        lists, order and migratetype are compared here and its page in ``blocks``.
    refills : int
        By rmqueue_bulk() [holds of the zone lock].
    drains, drained_pages : int
        By free_pcppages_bulk() [holds; blocks].  Those of a drain whose moment or size had to be
        explained count as explained.
    probes : int
        Times that a probe, or a later dump, printed the struct's fields.
    lists : int
        Per-CPU lists of later dumps.
    blocks : int
        Taken from the buddy lists, refills included: foreseen where the model's own buddy lists
        name them.  0 where the recording has no buddy lists to start from (``notes``).
    free_lists : int
        Of the last dump.
    page_blocks : int
        With memory, in the last dump: their migratetypes.
    isolated : int
        Pages that left the free lists without a line, as compaction's do, and so were taken off
        the model's: when they were freed again, or when another line showed them in use [pages].
    isolated_at_most : int or None
        What ``vmstat`` says that compaction isolated meanwhile; more is unexplained.  None: there
        is no ``vmstat``.
    nr_unexplained, nr_explained : int
    nr_causes : int
        Of those unexplained.  What is not as believed of a pageset counts under its first
        difference, until a dump or an empty list shows what it is.
    unexplained : list of Difference
    explained : list of Explained
        One line may be in both numbers of two kinds, and explain many differences.
    lost : int
        Events that the kernel lost, or that the trace should have and has not; a trace with losses
        is never exact.
    states : int
        States of one pageset that were followed side by side at most, where the trace leaves open
        in which order things were done or when a zone's flags turned; 1: never more than one.
    notes : list of str
    cut : int
        Pagesets of a recording without a first dump of which, from some line on (``notes``), only
        the pages were followed: what may have been had cost what it may.  With any nothing is
        exact.
    inferred : dict
        Of a recording without a first dump: how many of the allocations, refills, drains and
        drained pages served to find out what the lists held.  They were not predicted.
    not_followed : dict
        With ``cut``: how many of the refills and drains are of pagesets of which only the pages
        were followed by then.
    decisions : ndarray or None
        With a policy, every refill and drain of the kernel or of the policy (``DECISION``): each is
        asked of the policy in the state in which the kernel decided.
    """

    recording: str
    release: str
    events: int
    counted: dict[str, int]
    nr_unexplained: int
    nr_explained: int
    unexplained: list[Difference]
    explained: list[Explained]
    lost: int
    notes: list[str]
    nr_causes: int = 0
    isolated: int = 0
    isolated_at_most: int | None = None
    states: int = 1
    cut: int = 0
    inferred: dict[str, int] = field(default_factory=dict)
    not_followed: dict[str, int] = field(default_factory=dict)
    decisions: np.ndarray | None = field(default=None, compare=False)

    def __getattr__(self, name: str) -> int:
        """How many of a kind there are, and ``*_foreseen`` and so on."""
        kind, _, which = name.rpartition("_")
        if name in COUNTED:
            return self.count(name)[0]
        if kind in COUNTED and which in _WHICH:
            return self.count(kind)[_WHICH[which]]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def count(self, kind: str) -> tuple[int, int, int, int]:
        """(all, foreseen, explained, unexplained) of one kind, such as ``"refills"``."""
        total, foreseen, explained = (
            self.counted.get(kind + end, 0) for end in ("", "_foreseen", "_explained")
        )
        left = total - foreseen - explained
        left -= self.inferred.get(kind, 0) + self.not_followed.get(kind, 0)
        return total, foreseen, explained, left

    @property
    def policy(self) -> dict[str, int]:
        """How often a policy decided as the kernel did: {"refills": .., "refills_same": .., ...}.

        ``high_same``: decisions after which ``high`` is the same, too.  Empty without a policy.
        """
        if self.decisions is None:
            return {}
        same = self.decisions["kernel"] == self.decisions["policy"]
        answer = {}
        for kind in ("refill", "drain"):
            mine = self.decisions["kind"] == kind
            answer |= {f"{kind}s": int(mine.sum()), f"{kind}s_same": int((mine & same).sum())}
        high = self.decisions["kernel_high"] == self.decisions["policy_high"]
        return answer | {"high_same": int(high.sum())}

    @property
    def exact(self) -> bool:
        """Nothing unexplained, lost or cut, and little that had to be explained.

        Little: at most one in `EVENTS_PER_EXPLAINED` events.
        """
        return not (self.nr_unexplained or self.lost or self.cut or self.strained)

    @property
    def strained(self) -> bool:
        """More is explained than `EVENTS_PER_EXPLAINED` allows."""
        return self.nr_explained * EVENTS_PER_EXPLAINED > self.events

    def first_of_causes(self) -> list[tuple[Difference, int]]:
        """The first difference of each cause, and how many others follow from it."""
        first = {d.cause: d for d in reversed(self.unexplained)}
        n = Counter(d.cause for d in self.unexplained)
        return [(first[cause], n[cause] - 1) for cause in n]

    def causes(self) -> dict[str, int]:
        """Explained differences by cause."""
        return dict(Counter(e.why for e in self.explained).most_common())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = {"capture": self.recording, **asdict(self)}
        del told["decisions"], told["recording"], told["counted"]
        for kind in COUNTED:
            told[kind] = getattr(self, kind)
            for which in ("foreseen", "explained", "exact"):
                told[f"{kind}_{which}"] = getattr(self, f"{kind}_{which}")
        told |= {"explained": self.causes(), "exact": self.exact}
        return told | ({"policy": self.policy} if self.decisions is not None else {})

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """By name, the numbers of the report.

        ``counted``, by kind of thing: ``all``, ``foreseen``, ``explained``, ``unexplained``;
        ``explained`` and ``unexplained``: a row for each difference, with its line.
        """
        import pandas as pd

        counts = {kind: self.count(kind) for kind in COUNTED}
        counted = pd.DataFrame.from_dict(
            counts, orient="index", columns=["all", "foreseen", "explained", "unexplained"]
        ).rename_axis("kind")
        return {
            "counted": counted,
            "explained": pd.DataFrame(
                [asdict(e) for e in self.explained], columns=["line", "why", "where", "evidence"]
            ),
            "unexplained": pd.DataFrame(
                [asdict(d) for d in self.unexplained],
                columns=["line", "what", "where", "expected", "got", "cause"],
            ),
        }

    @property
    def text(self) -> str:
        """The conclusion, in numbers."""
        counts = {kind.replace("_", " "): self.count(kind) for kind in COUNTED}
        foreseen = ", ".join(f"{n[1]} of {n[0]} {kind}" for kind, n in counts.items() if n[0])
        against = [
            why
            for why, so in (
                (f"{self.nr_unexplained} differences are unexplained", self.nr_unexplained),
                (f"more than one in {EVENTS_PER_EXPLAINED} events is explained", self.strained),
                (f"{self.lost} events were lost", self.lost),
                (f"of {self.cut} pagesets only the pages were followed", self.cut),
            )
            if so
        ]
        return (
            f"{self.recording} replayed as {self.release}, {self.events} events: {foreseen} "
            f"foreseen, {self.nr_explained} differences explained by other lines; "
            + (f"not exact: {'; '.join(against)}." if against else "exact.")
        )

    @property
    def digest(self) -> str:
        """SHA-256 of `as_dict`."""
        return digest_of(self.as_dict())

    def __repr__(self) -> str:
        head = f"{self.recording} replayed as {self.release}: {self.events} events"
        lines = [head, f"  {'':14} {'all':>9} {'foreseen':>9} {'explained':>9} {'unexplained':>11}"]
        beside = {"inferred": self.inferred, "not followed": self.not_followed}
        beside = {name: numbers for name, numbers in beside.items() if numbers}
        lines[-1] += "".join(f" {name:>{max(len(name), 9)}}" for name in beside)
        for kind in COUNTED:
            total, foreseen, explained, left = self.count(kind)
            row = f"  {kind.replace('_', ' '):14} {total:9} {foreseen:9} {explained:9} {left:11}"
            lines.append(row + "".join(
                f" {numbers.get(kind, 0):{max(len(name), 9)}}" for name, numbers in beside.items()
            ))  # fmt: skip
        if self.isolated:
            lines.append(f"  isolated       {self.isolated:9} pages left the free lists unseen")
            if self.isolated_at_most is not None:
                lines[-1] += f" (vmstat: compaction isolated {self.isolated_at_most})"
        for why, n in self.causes().items():
            by = len({e.evidence for e in self.explained if e.why == why})
            lines.append(f"  explained      {n:9} {why}, by {by} line{'s' * (by > 1)}")
        lines.append(f"  unexplained    {self.nr_unexplained:9}")
        if self.nr_causes:
            lines[-1] += f" of {self.nr_causes} cause{'s' * (self.nr_causes > 1)}"
        for d, n in self.first_of_causes()[:10]:
            lines.append(f"    {d}" + (f"; {n} more follow{'s' * (n == 1)} from it" if n else ""))
        if self.nr_causes > 10:
            lines.append(f"    ... and {self.nr_causes - 10} more causes")
        if self.states > 1:
            lines.append(f"  at most {self.states} states of a pageset were followed side by side")
        if self.strained:
            lines.append(
                f"  more than one in {EVENTS_PER_EXPLAINED} events is explained: not exact"
            )
        if self.decisions is not None:
            p = self.policy
            lines.append(
                f"  the policy: {p['refills_same']} of {p['refills']} refills and "
                f"{p['drains_same']} of {p['drains']} drains as the kernel"
            )
        if self.lost:
            lines.append(f"  {self.lost} events were lost: not exact")
        return "\n".join(lines + [f"  note: {n}" for n in self.notes])

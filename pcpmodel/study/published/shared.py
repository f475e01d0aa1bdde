"""Each run of a comparison made once, whichever table or notebook asks for it."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pcpmodel.files import read_json
from pcpmodel.simulation.once import what_decides
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.spec import RunSpec

__all__ = ["SHARED_RUNS", "Runs", "Taken"]

#: Environment variable: a folder of runs that others of the same `pcpmodel rerun` made.
SHARED_RUNS = "PCPMODEL_SHARED_RUNS"


@dataclass(frozen=True)
class Taken:
    """What the columns of published tables are made of: figures of a `Result`."""

    score: int
    free_high: int
    alloc_zone_pages: int
    refills: int
    drains: int
    lock_contention: float
    lru_contention: float
    pcp_pages: float  #: on the lists, in the mean
    most_pcp_pages: int
    held_pages: float  #: by the processes, in the mean

    @classmethod
    def of(cls, spec: RunSpec) -> Taken:
        """Run a spec."""
        result = execute(spec)
        counted = result.time_s > result.warmup_s
        listed, held = result.pages_in_pcp[counted], result.pages_held[counted]
        told = result.summary() | {
            "pcp_pages": float(listed.mean()),
            "most_pcp_pages": int(listed.max()),
            "held_pages": float(held.mean()),
        }
        return cls(**{f.name: told[f.name] for f in fields(cls)})


class Runs:
    """Makes each run once: tables of a series share most of their rows.

    `pcpmodel rerun` names a folder in which the kernels of its notebooks leave theirs for each
    other: the tables of one notebook are part of another's.
    """

    def __init__(self) -> None:
        self.done: dict[str, Taken] = {}
        self.shared = os.environ.get(SHARED_RUNS)

    def __call__(self, spec: RunSpec) -> Taken:
        key, _ = what_decides(spec)
        taken = self._known(key)
        if taken is None:
            taken = Taken.of(spec)
            self._share(key, taken)
        self.done[key] = taken
        return taken

    def _known(self, key: str) -> Taken | None:
        """A run that was made here, or by another notebook."""
        if key not in self.done and self.shared:
            path = Path(self.shared, f"{key}.json")
            if path.exists():
                self.done[key] = Taken(**read_json(path))
        return self.done.get(key)

    def _share(self, key: str, taken: Taken) -> None:
        if self.shared:
            own = Path(self.shared, f"{key}.{os.getpid()}")  # others may be making the same run
            own.write_text(json.dumps(asdict(taken)), encoding="utf-8")
            own.replace(own.with_suffix(".json"))

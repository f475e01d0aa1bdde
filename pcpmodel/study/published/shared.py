"""Each run of a comparison made once, whichever table or notebook asks for it."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pcpmodel.files import read_json
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.spec import RunSpec
from pcpmodel.study.sweep.grid import work_digest

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
    cache_miss_rate: float | None  #: None where caches were not followed

    @classmethod
    def of(cls, spec: RunSpec) -> Taken:
        """Run a spec."""
        told = execute(spec).summary()
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
        key = _digest(spec)
        if key not in self.done:
            self.done[key] = self._shared(key, spec) if self.shared else Taken.of(spec)
        return self.done[key]

    def _shared(self, key: str, spec: RunSpec) -> Taken:
        path = Path(str(self.shared), f"{key}.json")
        if path.exists():
            return Taken(**read_json(path))
        taken = Taken.of(spec)
        own = path.with_suffix(f".{os.getpid()}")  # others may be making the same run
        own.write_text(json.dumps(asdict(taken)), encoding="utf-8")
        own.replace(path)
        return taken


def _digest(spec: RunSpec) -> str:
    """Digest of all that decides a run: kernels of two names may have the same rules."""
    decides = spec.as_dict() | {
        "release": spec.release.as_dict(),
        "workload": work_digest(spec.workload),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

"""What many runs ask for and what is the same for all of them: made once in a process."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from threading import RLock
from typing import Generic, TypeVar

from pcpmodel.simulation.spec import RunSpec, work_digest

__all__ = ["Once", "what_decides"]

T = TypeVar("T")


def what_decides(spec: RunSpec, **fields: object) -> tuple[str, object]:
    """Everything that decides a run of a spec: specs of which it is the same have one outcome.

    CONFIG_PCP_BATCH_SCALE_MAX is left out where none of the release's rules looks at it.  With
    ``fields``: of the spec with these in place of its own.
    """
    record = spec.as_dict() | {
        "release": spec.release.as_dict(),
        "workload": work_digest(spec.workload),
        # By the release's name, which is not among its rules.
        "pgd_allocation_order": spec.release.pgd_allocation_order,
        **fields,
    }
    if spec.rule is None and not spec.release.uses_batch_scale_max:
        del record["batch_scale_max"], record["release"]["batch_scale_max"]
    text = json.dumps(record, sort_keys=True, default=str)
    # The policy itself: its number would be another's once it is gone.
    return hashlib.sha256(text.encode()).hexdigest(), spec.rule


class Once(Generic[T]):
    """Answers to what was asked of specs, each made once.

    A thread that asks for what another one is making waits for it; what fails is made anew by the
    next that asks.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, object], T] = {}
        self._making: dict[tuple[str, object], RLock] = {}
        # Nobody in a forked process goes on with what a thread was making.
        os.register_at_fork(after_in_child=self._making.clear)

    def __call__(self, spec: RunSpec, make: Callable[[], T], **fields: object) -> T:
        """The answer for a spec, by everything that decides a run of it; see `what_decides`."""
        key = what_decides(spec, **fields)
        with self._making.setdefault(key, RLock()):
            if key not in self._known:
                self._known[key] = make()
        return self._known[key]

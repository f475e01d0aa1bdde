from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from pcpmodel.kernel.releases import Release
from pcpmodel.trace.page_lists import Difference as Difference
from pcpmodel.trace.page_lists import Explained as Explained
from pcpmodel.trace.state import Capture

WORK: np.dtype[np.void]
WORK_OPS: dict[str, int]
DECISION: np.dtype[np.void]

@dataclass(frozen=True)
class Exactness:
    capture: str
    release: str
    events: int
    allocations: int
    allocations_exact: int
    refills: int
    refills_exact: int
    drains: int
    drains_exact: int
    drained_pages: int
    drained_pages_exact: int
    probes: int
    lists: int
    lists_exact: int
    blocks: int
    blocks_exact: int
    free_lists: int
    free_lists_exact: int
    nr_unexplained: int
    nr_explained: int
    unexplained: list[Difference]
    explained: list[Explained]
    lost: int
    notes: list[str]
    inferred: dict[str, int] = ...
    decisions: np.ndarray | None = ...

    @property
    def policy(self) -> dict[str, int]: ...
    @property
    def exact(self) -> bool: ...
    def causes(self) -> dict[str, int]: ...
    def as_dict(self) -> dict[str, Any]: ...

def replay(
    cap: Capture | str | PathLike[str],
    *,
    release: str | Release | None = None,
    policy: object = None,
    progress: bool = False,
) -> Exactness: ...
def replay_work(
    cap: Capture | str | PathLike[str],
    release: str | Release | None = None,
    policy: object = None,
    ops: Iterable[str] = ...,
) -> tuple[Exactness, np.ndarray, list[tuple[int, int]]]: ...

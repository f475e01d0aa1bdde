from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import disjoint_base

from pcpmodel.kernel.page_alloc import PageAllocator
from pcpmodel.kernel.releases import Release
from pcpmodel.trace.state import Capture, ZoneState

@disjoint_base
class BuddyLists:
    taken: int
    foreseen: int
    isolated: int
    freed: int
    unforeseen: list[tuple[int, int]]
    explained: list[tuple[int, int, int]]
    def __init__(
        self,
        memory: PageAllocator,
        rows: np.ndarray,
        compactors: Collection[int] = (),
        last: tuple[int, np.ndarray] | None = None,
    ) -> None: ...
    around: list[list[tuple[int, int]]]
    def resume(self, other: BuddyLists) -> BuddyLists: ...
    def run(
        self,
        start: int,
        stop: int,
        direct: np.ndarray,
        unseen: np.ndarray,
        doubtful: bool = False,
    ) -> None: ...
    def joined(self, k: int, pfn: int, order: int) -> list[int]: ...
    def gone(self, k: int, pfn: int, order: int) -> dict[int, int]: ...
    def pfn(self, k: int) -> int: ...
    def movable(self, pfn: int, order: int) -> list[int]: ...
    def under_way(self, k: int) -> list[tuple[int, int]]: ...
    def settle(self, found: Mapping[int, tuple[int, int, int]]) -> None: ...
    def free(self, n: int) -> dict[tuple[int, int], list[int]]: ...
    def differing(
        self, zones: Sequence[ZoneState], free: Mapping[tuple[int, str], Any]
    ) -> dict[tuple[int, tuple[int, int]], list[int]]: ...

def follow(
    cap: Capture,
    state: Release,
    work: np.ndarray,
    stops: Mapping[int, tuple[Any, ...]],
    resized: bool,
) -> tuple[BuddyLists, int, int, list[int]]: ...

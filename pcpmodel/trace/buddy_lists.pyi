from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
from typing_extensions import disjoint_base

from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.releases import Release
from pcpmodel.trace.assumptions import ASSUMPTIONS as ASSUMPTIONS
from pcpmodel.trace.markers import Markers
from pcpmodel.trace.recording import Recording, ZoneState

COMPACTED: str
READ_MEANWHILE: str

@disjoint_base
class BuddyLists:
    taken: int
    foreseen: int
    isolated: int
    freed: int
    unforeseen: list[tuple[int, int]]
    explained: list[tuple[int, int, int]]
    def __new__(
        cls,
        memory: Memory,
        rows: np.ndarray,
        compactors: Collection[int] = (),
        last: tuple[int, np.ndarray] | None = None,
    ) -> Self: ...
    around: list[list[tuple[int, int]]]
    def resume(self, other: BuddyLists) -> BuddyLists: ...
    def run(
        self,
        start: int,
        stop: int,
        direct: np.ndarray,
        unseen: np.ndarray,
        doubtful: bool = False,
        most: int | None = None,
    ) -> int: ...
    def joined(self, k: int, pfn: int, order: int) -> list[int]: ...
    def gone(self, k: int, pfn: int, order: int) -> dict[int, int]: ...
    def pfn(self, k: int) -> int: ...
    def movable(self, pfn: int, order: int) -> list[int]: ...
    def under_way(self, k: int) -> list[tuple[int, int]]: ...
    def settle(self, found: Mapping[int, tuple[int, int, int]]) -> None: ...
    def free(self, n: int) -> dict[tuple[int, int], list[int]]: ...
    def blocks(self, n: int, order: int, mt: int) -> list[int]: ...
    def differing(
        self,
        zones: Sequence[ZoneState],
        free: Mapping[tuple[int, str], Any],
        among: Collection[tuple[int, tuple[int, int]]] | None = None,
    ) -> dict[tuple[int, tuple[int, int]], list[int]]: ...

def follow(
    cap: Recording,
    state: Release,
    work: np.ndarray,
    markers: Markers,
    resized: bool,
    touched: Callable[[int, int], bool],
) -> tuple[BuddyLists, int, int, list[tuple[int, int, str]], bool]: ...

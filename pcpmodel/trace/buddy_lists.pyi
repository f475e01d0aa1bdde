from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from typing_extensions import disjoint_base

from pcpmodel.kernel.memory import Memory
from pcpmodel.trace.assumptions import ASSUMPTIONS as ASSUMPTIONS

ACT: np.dtype
KINDS: dict[str, int]
COMPACTED: str
READ_MEANWHILE: str

@disjoint_base
class Saved: ...

@disjoint_base
class BuddyLists:
    taken: int
    foreseen: int
    isolated: int
    freed: int
    unforeseen: list[tuple[int, int]]
    explained: list[tuple[int, int, int]]
    around: list[list[tuple[int, int]]]
    def __new__(
        cls, memory: Memory, rows: np.ndarray, history: Any = None, spilled: bool = False
    ) -> Self: ...
    def save(self) -> Saved: ...
    def restore(self, saved: Saved) -> int: ...
    def run(
        self,
        start: int,
        stop: int,
        acts: np.ndarray,
        doubtful: bool = False,
        most: int | None = None,
    ) -> int: ...
    def held_until(self, k: int) -> int: ...
    def left(self, k: int, pfn: int) -> int: ...
    def gone(self, k: int, pfn: int, order: int) -> dict[int, int]: ...
    def under_way(self) -> list[int]: ...
    def settle(self, found: Mapping[int, tuple[int, int, int]]) -> None: ...
    def free(self, n: int) -> dict[tuple[int, int], list[int]]: ...
    def blocks(self, n: int, order: int, mt: int) -> list[int]: ...
    def movable(self, pfn: int, order: int) -> list[int]: ...
    def differing(
        self,
        zones: Sequence[Any],
        free: Mapping[tuple[int, str], Any],
        among: Any = None,
    ) -> dict[tuple[int, tuple[int, int]], list[int]]: ...

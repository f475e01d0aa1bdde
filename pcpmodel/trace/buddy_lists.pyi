from typing import Any, Self

import numpy as np
from typing_extensions import disjoint_base

from pcpmodel.kernel.memory import Memory

ACT: np.dtype
KINDS: dict[str, int]
UNDER_WAY: int

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
        until_moved: bool = False,
    ) -> int: ...
    def held_until(self, k: int) -> int: ...
    def joined(self, k: int, pfn: int, order: int, acts: np.ndarray) -> int: ...
    def gone(self, k: int, pfn: int, order: int) -> dict[int, int]: ...
    def zone_of(self, pfn: int) -> int: ...
    def blocks(self, n: int, order: int, mt: int) -> list[int]: ...
    def free_in(self, n: int, pfn: int) -> list[tuple[int, int]]: ...
    def misplaced(self, n: int, order: int, mt: int, told: np.ndarray) -> list[int]: ...
    def is_list(self, n: int, order: int, mt: int, told: np.ndarray) -> bool: ...

@disjoint_base
class Walk:
    over: int | None
    def __new__(
        cls, lists: BuddyLists, n: int, order: int, mt: int, blocks: np.ndarray, torn: bool
    ) -> Self: ...
    def see(self, row: int) -> None: ...

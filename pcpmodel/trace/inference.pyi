from typing import Any

import numpy as np
from typing_extensions import disjoint_base

from pcpmodel.kernel.releases import Release
from pcpmodel.trace.state import Snapshot

@disjoint_base
class Tracker:
    def __init__(
        self,
        release: Release,
        cpus: int,
        snapshot: Snapshot,
        rows: np.ndarray,
        start: int,
        links: tuple[np.ndarray, ...],
        block_types: np.ndarray,
        counts: dict[tuple[int, str, int], list[int]],
    ) -> None: ...
    def run(self, start: int, stop: int) -> None: ...
    @property
    def tally(self) -> dict[str, int]: ...
    def sets(self) -> list[tuple[int, int, bool, int, list[tuple[int, ...]]]]: ...
    def counts_and_highs(self, x: int) -> set[tuple[int, int]] | None: ...
    def unlike(self, x: int, row: int, told: int, high: bool) -> None: ...
    def list_of(self, x: int, i: int) -> tuple[list[int], bool]: ...
    def first_lists(self) -> dict[tuple[int, int], tuple[list[int], list[int]]]: ...
    def notes(self) -> tuple[list[Any], int, list[Any], int]: ...

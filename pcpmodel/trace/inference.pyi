from typing import Self

import numpy as np
from typing_extensions import disjoint_base

from pcpmodel.kernel.releases import Release
from pcpmodel.trace.page_lists import PageLists
from pcpmodel.trace.recording import Snapshot

@disjoint_base
class Tracker(PageLists):
    def __new__(
        cls,
        release: Release,
        cpus: int,
        snapshot: Snapshot,
        rows: np.ndarray,
        start: int,
        forks: np.ndarray,
        forks_of: np.ndarray,
        counts: dict[tuple[int, str, int], list[int]],
        enough: list[int],
        workers: list[int],
    ) -> Self: ...
    nr_cut: int
    cut_row: int
    def run(self, start: int, stop: int) -> None: ...
    def resize(self, x: int, batch: int, high_min: int, high_max: int) -> None: ...
    def next_of_page(self) -> np.ndarray: ...
    def set_block_types(self, types: np.ndarray) -> None: ...
    @property
    def tally(self) -> dict[str, int]: ...
    def sets(self) -> list[tuple[int, int, bool, int, list[tuple[int, ...]]]]: ...
    def counts_and_highs(self, x: int) -> set[tuple[int, int]] | None: ...
    def unlike(self, x: int, row: int, told: int, high: bool) -> None: ...
    def list_of(self, x: int, i: int) -> tuple[list[int], bool]: ...
    def first_lists(self) -> dict[tuple[int, int], tuple[list[int], list[int]]]: ...

from enum import IntEnum
from typing import Any, Self, final

import numpy as np

from pcpmodel.exclusive import Exclusive
from pcpmodel.simulation.setup import Setup

__all__ = [
    "CHANGE",
    "CHANGES",
    "CHANNEL",
    "COSTS_MAX",
    "DISTANCE_NAMES",
    "FREE_HIGH_BATCH",
    "HISTOGRAM",
    "LISTS_ROOM",
    "SIZES",
    "TASK",
    "ZONE",
    "Failure",
    "State",
]

COSTS_MAX: int
DISTANCE_NAMES: tuple[str, ...]
LISTS_ROOM: int
FREE_HIGH_BATCH: int
HISTOGRAM: int
ZONE: np.dtype[np.void]
SIZES: np.dtype[np.void]
TASK: np.dtype[np.void]
CHANNEL: np.dtype[np.void]
CHANGE: np.dtype[np.void]
CHANGES: dict[str, int]

class Failure(IntEnum):
    NONE = 0
    OUT_OF_MEMORY = 1
    LISTS_DISAGREE = 2
    POLICY_FAILED = 3
    NO_TIME = 4
    TREE_FAILED = 5

@final
class State(Exclusive):
    def __new__(cls, setup: Setup) -> Self: ...
    @property
    def nlocks(self) -> int: ...
    @property
    def failed(self) -> Failure: ...
    @property
    def events(self) -> int: ...
    @property
    def order_digests(self) -> tuple[int, ...]: ...
    def counters(self) -> list[dict[str, int]]: ...
    def histograms(self) -> dict[str, dict[str, list[int]]]: ...
    def phases(self) -> list[list[dict[str, int]]]: ...
    def by_kind(self) -> dict[str, dict[str, int]]: ...
    def over(self) -> dict[str, list[int]]: ...
    def series(self) -> bytes: ...
    def pcps(self) -> list[list[dict[str, Any]]]: ...
    def held(self) -> list[int]: ...
    def page_digests(self) -> list[int]: ...
    def page_lists(self) -> list[list[list[list[int]]]]: ...
    def zone_free(self) -> list[int]: ...
    def times_ps(self) -> list[int]: ...

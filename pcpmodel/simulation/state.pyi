from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from pcpmodel.kernel.page_alloc import PageAllocator
from pcpmodel.kernel.releases import Release
from pcpmodel.machine.cache import PageCache

__all__ = ["COSTS_MAX", "HISTOGRAM", "State"]

COSTS_MAX: int
HISTOGRAM: int

@final
class State:
    def __new__(
        cls,
        release: str | Release,
        pcps: npt.NDArray[np.int32],
        zones: npt.NDArray[np.int64],
        cpus: npt.NDArray[np.int32],
        zonelists: npt.NDArray[np.int32],
        cpu_channels: npt.NDArray[np.int32],
        cpu_times: npt.NDArray[np.int64],
        programs: Sequence[npt.NDArray[np.int64]],
        channels: npt.NDArray[np.int64],
        tables: npt.NDArray[np.int32],
        speed: npt.NDArray[np.uint32],
        spread: npt.NDArray[np.uint32],
        costs: npt.NDArray[np.int64],
        handoffs: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64],
        seed: int,
        nohz_idle: bool,
        pagevec: int,
        pages: PageAllocator | None = None,
        policy: object = None,
        changes: npt.NDArray[np.int64] | None = None,
        sizes: npt.NDArray[np.int32] | None = None,
        fails: npt.NDArray[np.int32] | None = None,
        caches: PageCache | None = None,
        cached: Sequence[tuple[int, int, int | npt.NDArray[np.int64]]] = (),
    ) -> Self: ...
    @property
    def nlocks(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def order_digests(self) -> tuple[int, ...]: ...
    def counters(self) -> list[dict[str, int]]: ...
    def histograms(self) -> dict[str, dict[str, list[int]]]: ...
    def over(self) -> dict[str, list[int]]: ...
    def series(self) -> bytes: ...
    def pcps(self) -> list[list[dict[str, Any]]]: ...
    def held(self) -> list[int]: ...
    def page_digests(self) -> list[int]: ...
    def page_lists(self) -> list[list[list[list[int]]]]: ...
    def zone_free(self) -> list[int]: ...
    def times_ps(self) -> list[int]: ...

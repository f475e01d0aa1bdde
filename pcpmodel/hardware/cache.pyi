from collections.abc import Sequence
from typing import Self, final

import numpy as np
import numpy.typing as npt

from pcpmodel.exclusive import Exclusive

__all__ = ["PageCache"]

@final
class PageCache(Exclusive):
    def __new__(
        cls, cpus: int, private_pages: int, llc_pages: int, llc_of: Sequence[int]
    ) -> Self: ...
    @property
    def cpus(self) -> int: ...
    @property
    def private_pages(self) -> int: ...
    @property
    def llc_pages(self) -> int: ...
    def touch(self, cpu: int, pages: npt.NDArray[np.uint32]) -> tuple[int, int, int]: ...

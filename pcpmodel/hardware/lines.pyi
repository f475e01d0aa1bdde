from collections.abc import Sequence
from typing import Self, final

from pcpmodel.exclusive import Exclusive

__all__ = ["LINE_PLACES", "PageLines"]

LINE_PLACES: tuple[str, ...]

@final
class PageLines(Exclusive):
    def __new__(
        cls, cpus: int, pages: Sequence[int], private_kib: float, llc_kib: float
    ) -> Self: ...
    @property
    def cpus(self) -> int: ...
    @property
    def zones(self) -> int: ...
    @property
    def pages(self) -> tuple[int, ...]: ...
    def counts(self) -> dict[str, dict[int, dict[str, int]]]: ...
    @property
    def blocks(self) -> int: ...
    @property
    def pages_used(self) -> int: ...

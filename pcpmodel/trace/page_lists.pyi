from dataclasses import dataclass
from typing import Self

import numpy as np
from typing_extensions import disjoint_base

from pcpmodel.exclusive import Exclusive
from pcpmodel.trace.assumptions import ASSUMPTIONS as ASSUMPTIONS

MAX_PAGES: int
MOST_ZONES: int
LAST_PID: int
NOT_THERE: set[str]

@dataclass(frozen=True)
class Difference:
    line: int
    what: str
    where: str
    expected: int | str
    got: int | str
    cause: int = ...

@dataclass(frozen=True)
class Explained:
    line: int
    why: str
    where: str
    evidence: int

@disjoint_base
class PageLists(Exclusive):
    nr_causes: int
    def __new__(cls, *_args: object, **_options: object) -> Self: ...
    def tells_of(self, start_pfn: int, end_pfn: int) -> bool: ...
    def types_of(self, start_pfn: int, end_pfn: int) -> np.ndarray: ...
    def list_of(self, x: int, i: int) -> list[int]: ...
    def notes(self) -> tuple[list[Difference], int, list[Explained], int]: ...

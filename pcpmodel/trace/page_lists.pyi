from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import disjoint_base

from pcpmodel.trace.state import ZoneState

MAX_PAGES: int

@dataclass(frozen=True)
class Difference:
    line: int
    what: str
    where: str
    expected: int | str
    got: int | str

@dataclass(frozen=True)
class Explained:
    line: int
    why: str
    where: str
    evidence: int

@disjoint_base
class PageLists:
    def __init__(self, cpus: int, zones: Sequence[ZoneState], rows: np.ndarray) -> None: ...
    def list_of(self, x: int, i: int) -> list[int]: ...
    def notes(self) -> tuple[list[Difference], int, list[Explained], int]: ...

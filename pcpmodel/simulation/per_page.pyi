from typing import Self, final

from pcpmodel.simulation.state import State

__all__ = ["PerPage"]

@final
class PerPage:
    def __new__(cls, state: State) -> Self: ...
    @property
    def steps(self) -> int: ...
    @property
    def now_ps(self) -> int: ...
    def run(self, max_steps: int = 9223372036854775807) -> bool: ...

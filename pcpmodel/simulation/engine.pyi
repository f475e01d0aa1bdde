from typing import Self, final

from pcpmodel.simulation.state import State

__all__ = ["MAX_CPUS", "MAX_SECONDS", "Engine"]

MAX_CPUS: int
MAX_SECONDS: int

@final
class Engine:
    def __new__(cls, state: State) -> Self: ...
    @property
    def now_ps(self) -> int: ...
    def run(self, max_events: int = 9223372036854775807) -> bool: ...
    def run_until(self, max_events: int, step: int, blocks: int, pages: int) -> bool: ...

from typing import Self, final

__all__ = ["FifoLock"]

@final
class FifoLock:
    def __new__(cls, handover_ps: int = 0) -> Self: ...
    def acquire(self, now_ps: int, hold_ps: int) -> int: ...

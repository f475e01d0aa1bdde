from typing import Self, final

__all__ = ["FifoLock"]

@final
class FifoLock:
    def __new__(cls, cpus: int, handoff_ps: int = 0, handoff_per_waiter_ps: int = 0) -> Self: ...
    def acquire(self, now_ps: int, hold_ps: int) -> int: ...

from os import PathLike
from typing import Any, Self

import numpy as np
from typing_extensions import disjoint_base

__all__ = [
    "DEPTH",
    "EVENT",
    "EVENT_IDS",
    "FLAGS",
    "HIDDEN",
    "HIT",
    "INTERRUPT",
    "MIGRATE_SHIFT",
    "PROBE_COLUMNS",
    "ZONES",
    "Events",
    "TraceReader",
    "read_trace",
]

DEF_EVENTS: tuple[tuple[bytes, int], ...]
DEF_KEYS: tuple[bytes, ...]
DEPTH: int
EVENT: np.dtype[np.void]
EVENT_IDS: dict[str, int]
FLAGS: dict[str, int]
HIDDEN: int
HIT: int
INTERRUPT: int
MIGRATE_SHIFT: int
PROBE_COLUMNS: tuple[str, ...]
ZONES: tuple[str, ...]

class Events:
    rows: np.ndarray
    probes: np.ndarray
    spilled: bool
    def __init__(
        self,
        rows: np.ndarray,
        probes: np.ndarray,
        spilled: bool = False,
        event: np.ndarray | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, column: str) -> np.ndarray: ...
    def is_event(self, name: str) -> np.ndarray: ...
    def turn_into(self, rows: np.ndarray, number: int) -> None: ...

@disjoint_base
class TraceReader:
    markers: list[str]
    truncated: str | None
    def __new__(
        cls,
        source: str | PathLike[str] | bytes | bytearray | memoryview,
        *,
        progress: bool = False,
    ) -> Self: ...
    @property
    def comms(self) -> list[str]: ...
    @property
    def lost(self) -> int: ...
    @property
    def missing(self) -> int: ...
    @property
    def backwards(self) -> tuple[int, int, int] | None: ...
    @property
    def numbers(self) -> dict[str, Any]: ...

def read_trace(
    source: str | PathLike[str] | bytes | bytearray | memoryview,
    *,
    progress: bool = False,
) -> tuple[Events, TraceReader]: ...

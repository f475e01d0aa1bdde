from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np

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
    "open_text",
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

class TraceReader:
    truncated: str | None
    def __init__(
        self,
        source: str | PathLike[str] | bytes | bytearray | memoryview,
        *,
        progress: bool = False,
        max_bytes: int | None = None,
    ) -> None: ...
    @property
    def comms(self) -> list[str]: ...
    @property
    def markers(self) -> list[str]: ...
    @property
    def lost(self) -> int: ...
    @property
    def missing(self) -> int: ...
    @property
    def backwards(self) -> tuple[int, int, int] | None: ...
    @property
    def numbers(self) -> dict[str, Any]: ...

def open_text(path: str | PathLike[str], *, max_bytes: int | None = None) -> Iterator[bytes]: ...
def read_trace(
    source: str | PathLike[str] | bytes | bytearray | memoryview,
    *,
    progress: bool = False,
    max_bytes: int | None = None,
) -> tuple[Events, TraceReader]: ...

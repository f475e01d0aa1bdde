from collections.abc import Sequence

import numpy as np

def lay_elsewhere(
    rows: np.ndarray,
    first: int,
    starts: Sequence[int] | np.ndarray,
    pages: int,
    forks: Sequence[int] | np.ndarray,
    since: Sequence[int] | np.ndarray,
    unheeded: int = 0,
) -> tuple[np.ndarray, np.ndarray]: ...
def made_since(rows: np.ndarray, forks: Sequence[int] | np.ndarray) -> np.ndarray: ...
def types_told(rows: np.ndarray, first: int, base: int, blocks: int) -> np.ndarray: ...

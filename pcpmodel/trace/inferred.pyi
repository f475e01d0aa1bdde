from collections.abc import Sequence

import numpy as np

from pcpmodel.trace.ftrace import Events

def lay_elsewhere(
    events: Events,
    cpus: int,
    first: int,
    starts: Sequence[int] | np.ndarray,
    pages: int,
    forks: Sequence[int] | np.ndarray,
    since: Sequence[int] | np.ndarray,
    unheeded: int = 0,
) -> tuple[np.ndarray, np.ndarray]: ...
def made_since(events: Events, forks: Sequence[int] | np.ndarray) -> np.ndarray: ...
def types_told(events: Events, first: int, base: int, blocks: int) -> np.ndarray: ...

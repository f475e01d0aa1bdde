from collections.abc import Mapping
from typing import Any, Self, final

import numpy as np

from pcpmodel.exclusive import Exclusive
from pcpmodel.kernel.memory import Memory

@final
class Engine(Exclusive):
    """One run; ``weight`` is (pages,) float64, C-contiguous.

    Raises ValueError if the weights do not fit the configuration, a number is out of its range, the
    run is repeated, or memory runs out.
    """

    def __new__(
        cls, config: Mapping[str, Any], weight: np.ndarray, nodes: tuple[Memory, Memory]
    ) -> Self: ...
    def run(self) -> dict[str, Any]: ...
    def state(self) -> tuple[list[int], list[int]]: ...

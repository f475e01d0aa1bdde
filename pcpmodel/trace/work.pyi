import numpy as np

__all__ = ["WORK", "WORK_OPS"]

WORK: np.dtype[np.void]
WORK_OPS: dict[str, int]

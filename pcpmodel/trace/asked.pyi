import numpy as np

__all__ = ["DECISION"]

DECISION: np.dtype[np.void]

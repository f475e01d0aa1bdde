import numpy as np
import numpy.typing as npt

__all__ = ["read_pages"]

def read_pages(
    raw: bytes, page_bytes: int, order_at: int
) -> tuple[
    npt.NDArray[np.int64], npt.NDArray[np.uint16], npt.NDArray[np.uint32], npt.NDArray[np.bool_]
]: ...

# cython: auto_pickle=False, autotestdict=False
"""The work that a recorded kernel was given, as records: what a replay finds and others redo."""

# SPDX-License-Identifier: GPL-2.0-only

import numpy as np

__all__ = ["WORK", "WORK_OPS"]

#: A piece of recorded work: allocations and frees by page frame, ticks, drains.
WORK = np.dtype([("pfn", "i8"), ("n", "i8"), ("row", "i4"), ("cpu", "i4"), ("op", "u1"),
                 ("order", "u1"), ("pindex", "u1"), ("zone", "u1")], align=True)
if WORK.itemsize != sizeof(work_row):
    raise ImportError("WORK is not struct work_row; run: make env")
#: Kinds of work, in the ``op`` column.
WORK_OPS = {"alloc": WORK_ALLOC, "bulk": WORK_BULK, "free": WORK_FREE,
            "direct_alloc": WORK_DIRECT_ALLOC, "direct_free": WORK_DIRECT_FREE,
            "contig": WORK_CONTIG, "tick": WORK_TICK, "drain": WORK_DRAIN}

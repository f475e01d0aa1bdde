# cython: auto_pickle=False, autotestdict=False
"""The work that a recorded kernel was given, as records: what a replay finds and others redo."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.trace.arrays cimport has_room

import numpy as np

__all__ = ["WORK", "WORK_OPS"]

cdef work_row one_row
#: A piece of recorded work: allocations and frees by page frame, ticks, drains.
WORK = np.asarray(<work_row[:1]>&one_row).dtype
#: Kinds of work, in the ``op`` column.
WORK_OPS = {"alloc": WORK_ALLOC, "bulk": WORK_BULK, "free": WORK_FREE,
            "direct_alloc": WORK_DIRECT_ALLOC, "direct_free": WORK_DIRECT_FREE,
            "contig": WORK_CONTIG, "tick": WORK_TICK, "drain": WORK_DRAIN}


cdef void note_work(work_log *log, int op, int64_t pfn, int order, int pindex, int zone, int cpu,
                    int64_t n, int32_t row) noexcept nogil:
    """Note a piece of work, for whoever wants to do it again under other rules."""
    if not has_room(<void **>&log.rows, &log.cap, log.nr + 1, sizeof(work_row)):
        log.broken = True
        return
    log.rows[log.nr] = work_row(pfn, n, row, cpu, <uint8_t>op, <uint8_t>order, <uint8_t>pindex,
                                <uint8_t>zone)
    log.nr += 1


cdef void forget_free(work_log *log, int64_t pfn, int32_t since) noexcept nogil:
    """The free of this page, noted at row *since* or after, was not done yet."""
    cdef int64_t w = log.nr - 1
    while w >= 0 and log.rows[w].row >= since:
        if log.rows[w].op == WORK_FREE and log.rows[w].pfn == pfn:
            log.rows[w].op = 0
            return
        w -= 1


cdef object work_of(const work_log *log):
    """Records of `WORK`, in the order in which the kernel did it."""
    if log.broken:
        raise MemoryError
    if log.nr == 0:
        return np.empty(0, WORK)
    return np.frombuffer((<const char *>log.rows)[:log.nr * sizeof(work_row)], WORK)

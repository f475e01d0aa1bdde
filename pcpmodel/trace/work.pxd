"""The work that a recorded kernel was given, in the order in which it did it."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    WORK_ALLOC = 1
    WORK_BULK = 2       # one page of alloc_pages_bulk(); n says which call
    WORK_FREE = 3
    WORK_DIRECT_ALLOC = 4   # past the per-CPU lists
    WORK_DIRECT_FREE = 5
    WORK_CONTIG = 6     # n pages at once (v7.2)
    WORK_TICK = 7       # the vmstat worker of this CPU
    WORK_DRAIN = 8      # drain_pages_zone() of this CPU's lists

cdef struct work_row:
    int64_t pfn
    int64_t n
    int32_t row
    int32_t cpu
    uint8_t op
    uint8_t order
    uint8_t pindex      # of the list; migratetype of what went past it
    uint8_t zone

cdef struct work_log:
    work_row *rows
    int64_t nr
    int64_t cap
    int ops             # bits of the kinds that somebody asked for
    bint broken         # out of memory

cdef void note_work(work_log *log, int op, int64_t pfn, int order, int pindex, int zone, int cpu,
                    int64_t n, int32_t row) noexcept nogil
cdef void forget_free(work_log *log, int64_t pfn, int32_t since) noexcept nogil
cdef object work_of(const work_log *log)

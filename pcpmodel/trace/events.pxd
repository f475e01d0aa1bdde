# SPDX-License-Identifier: GPL-2.0-only
"""One parsed event, as ftrace.pyx writes it and follower.pyx reads it."""

from libc.stdint cimport int32_t, int64_t, uint16_t

cdef enum:
    # kmem tracepoints
    EV_ALLOC = 1            # mm_page_alloc
    EV_FREE = 2             # mm_page_free
    EV_FREE_BATCHED = 3     # mm_page_free_batched
    EV_ZONE_LOCKED = 4      # mm_page_alloc_zone_locked
    EV_PCPU_DRAIN = 5       # mm_page_pcpu_drain
    EV_EXTFRAG = 6          # mm_page_alloc_extfrag
    EV_MARKER = 7           # tracing_mark_write
    # Probes on functions; EV_HIT is added for a hit of the function tracer.
    EV_FREE_PCPPAGES_BULK = 8
    EV_DRAIN_PAGES_ZONE = 9
    EV_DRAIN_ZONE_PAGES = 10
    EV_DECAY_PCP_HIGH = 11
    EV_FREE_ONE_PAGE = 12
    EV_ALLOC_PAGES_BULK = 13
    EV_ALLOC_PAGES_BULK_RET = 14
    EV_FREE_CONTIG = 15     # free_prepared_contig_range
    EV_PAGE_COMMIT = 16
    EV_RMQUEUE_BULK = 17
    EV_SET_BLOCK_TYPE = 18  # set_pageblock_migratetype
    # Functions that are only traced
    EV_REFRESH_CPU_VM_STATS = 19
    EV_DRAIN_LOCAL_PAGES = 20
    EV_DRAIN_ALL_PAGES = 21
    EV_DRAIN_ALL_PAGES_INNER = 22   # __drain_all_pages
    EV_ZONE_PCP_DISABLE = 23
    EV_ZONE_PCP_ENABLE = 24
    EV_SET_PAGESET = 25             # zone_set_pageset_high_and_batch
    EV_SET_PAGESET_INNER = 26       # __zone_set_pageset_high_and_batch
    EV_SETUP_WMARKS = 27            # setup_per_zone_wmarks
    EV_FREE_PAGES_OK = 28           # __free_pages_ok
    EV_UNRESERVE_HIGHATOMIC = 29
    # Other tracepoints
    EV_WORK_START = 30
    EV_WORK_END = 31
    EV_FORK = 32            # sched_process_fork; a = the new task
    EV_EXEC = 33
    EV_EXIT = 34
    EV_KSWAPD_WAKE = 35
    EV_KSWAPD_SLEEP = 36
    EV_RECLAIM_BEGIN = 37
    EV_RECLAIM_END = 38
    EV_SWITCH = 39          # sched_switch; a = who gets the CPU, b = whether who had it still runs
    EV_HIDDEN = 40          # ... with which a task gets it that writes no line; see `switched`
    EV_HIT = 64

    # Bits of event_row.flags; the low four bits are the preempt depth.
    FL_DEPTH = 15
    FL_IRQS_OFF = 16
    FL_BH_OFF = 32
    FL_NEED_RESCHED = 64
    FL_RESCHED_LAZY = 128
    FL_HARDIRQ = 256
    FL_SOFTIRQ = 512
    FL_NMI = 1024
    FL_MIGRATE_DISABLED = 2048
    FL_KNOWN = 4096         # the line had a flags column
    FL_MIGRATE_SHIFT = 13   # how often migration is off, up to 7, from this bit on

    # Columns of the probe table.
    P_N = 0
    P_PINDEX = 1
    P_PCP = 2
    P_ZONE = 3
    P_NODE = 4
    P_ZONE_FLAGS = 5
    P_NR_FREE = 6
    P_COUNT = 7
    P_HIGH = 8
    P_BATCH = 9
    P_HIGH_MIN = 10
    P_HIGH_MAX = 11
    P_ALLOC_FACTOR = 12
    P_FREE_COUNT = 13
    P_FLAGS = 14
    P_FREE_FACTOR = 15
    P_COLUMNS = 16

# 64 bytes: an event is one cache line, for the reader that writes it and for
# the replay that reads it.
cdef struct event_row:
    int64_t time        # ns, or ticks of the trace's own clock
    int64_t line        # line of the file, from 1
    int64_t a           # pfn; struct page address where a probe prints no pfn
    int64_t b           # order
    int64_t c           # migratetype; node of alloc_pages_bulk
    # percpu_refill, count or owner CPU; __GFP_ACCOUNT of an allocation, where told; whether who
    # frees a page then gave up its CPU; packed for extfrag
    int64_t d
    int32_t pid
    int32_t probe       # row of the probe table, or -1
    uint16_t comm       # index in TraceReader.comms
    uint16_t flags      # FL_*
    uint16_t cpu
    uint16_t event      # EV_*


# What EV_EXTFRAG packs into d.

cdef inline int64_t pack_extfrag(int64_t order, int64_t migratetype, int64_t owns) noexcept nogil:
    return order | migratetype << 8 | (owns & 1) << 16


cdef inline int extfrag_order(const event_row *r) noexcept nogil:
    """fallback_order: of the block that is broken up."""
    return r.d & 0xFF


cdef inline bint extfrag_claims(const event_row *r) noexcept nogil:
    """change_ownership: the page block is the request's now."""
    return r.d >> 16 & 1

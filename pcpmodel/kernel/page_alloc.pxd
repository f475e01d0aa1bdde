"""Zones, nodes and CPUs: the entry points of mm/page_alloc.c.

For modules that cimport this: `memory` is the whole state (`Memory.mm` of
`memory.pxd`); take a zone with ``&mm.zone[z]`` and a CPU's lists with
`pageset_of` and go on with `buddy.pxd` and `pcp.pxd`.  Page numbers here are pfns.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pcpmodel.kernel.buddy cimport event_buffer, zone
from pcpmodel.kernel.pages cimport MIGRATE_MOVABLE
from pcpmodel.kernel.pcp cimport pageset

cdef enum:
    GFP_KERNEL = 0
    GFP_ATOMIC = 1
    GFP_NOWAIT = 2

    ZONE_DMA32 = 1
    ZONE_NORMAL = 2
    ZONE_MOVABLE = 3

    # Operations of `run_ops`, and why it stopped.
    OP_ALLOC = 0
    OP_FREE = 1
    OP_TICK = 2
    OP_DRAIN = 3

    RUN_BAD_CPU = 1
    RUN_BAD_OP = 2
    RUN_BAD_ORDER = 3
    RUN_BAD_TYPE = 4
    RUN_BAD_REF = 5
    RUN_POLICY = 6


cdef struct memory:
    int nr_zones
    int nr_cpus
    int nr_nodes
    zone *zone
    pageset *pageset  # of zone z and CPU c: [z * nr_cpus + c]
    int *cpu_node
    int *zonelist  # zones that requests of node n try, in order: [n * nr_zones ...]
    uint8_t *kswapd_running  # per node
    event_buffer events


cdef inline pageset *pageset_of(memory *mm, int z, int cpu) noexcept nogil:
    return &mm.pageset[z * mm.nr_cpus + cpu]


cdef inline int highest_zone(int mt) noexcept nogil:
    """Highest zone index that a request of this type may use, unless it says otherwise."""
    return ZONE_MOVABLE if mt == MIGRATE_MOVABLE else ZONE_NORMAL


cdef int find_zone(const memory *mm, uint64_t pfn) noexcept nogil  # -1: in no zone
cdef int64_t alloc_pages(
    memory *mm, int cpu, int order, int mt, int gfp, int highest
) noexcept nogil  # pfn, or -1
cdef int64_t alloc_from(
    memory *mm, int z, int cpu, int order, int mt, unsigned int flags, bint direct
) noexcept nogil  # rmqueue() of one zone, or, direct, past its per-CPU lists; pfn, or -1
cdef int64_t alloc_many(
    memory *mm, int cpu, int order, int mt, int gfp, int highest, int64_t n, int64_t *pfns
) noexcept nogil
cdef int64_t alloc_bulk(memory *mm, int cpu, int mt, int64_t n, int64_t *pfns) noexcept nogil
cdef int held_zone(const memory *mm, uint64_t pfn, int order) noexcept nogil
cdef int free_pages(
    memory *mm, int cpu, uint64_t pfn, int order, bint nolock
) noexcept nogil  # -1: not all of the block is in use
cdef int64_t free_many(memory *mm, int cpu, const int64_t *pfns, int64_t n) noexcept nogil
cdef void free_run(memory *mm, int z, int cpu, uint64_t pfn, uint64_t n) noexcept nogil
cdef int64_t run_ops(
    memory *mm, int64_t n, const uint8_t *op, const int32_t *cpu, const uint8_t *order,
    const uint8_t *mt, const int64_t *ref, int64_t *pfn, int *error_ret
) noexcept nogil
cdef bint refresh_cpu_vm_stats(memory *mm, int cpu) noexcept nogil

"""Zones, nodes and CPUs: the entry points of mm/page_alloc.c.

For modules that cimport this: `PageAllocator.mm` is the whole state; take a
zone with ``&mm.zone[z]`` and a CPU's lists with `pageset_of` and go on with
`buddy.pxd` and `pcp.pxd`.  Page numbers here are pfns.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from pcpmodel.kernel.buddy cimport event_buffer, zone
from pcpmodel.kernel.pcp cimport pageset

cdef enum:
    GFP_KERNEL = 0
    GFP_ATOMIC = 1
    GFP_NOWAIT = 2


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


cdef int find_zone(const memory *mm, uint64_t pfn) noexcept nogil  # -1: in no zone
cdef int64_t alloc_pages(
    memory *mm, int cpu, int order, int mt, int gfp, int highest
) noexcept nogil  # pfn, or -1
cdef int free_pages(
    memory *mm, int cpu, uint64_t pfn, int order, bint nolock
) noexcept nogil  # -1: not all of the block is in use
cdef list free_list(const zone *z, int order, int mt)  # pfns, head first

cdef class PageAllocator:
    cdef memory mm
    cdef object _zones
    cdef object _policy

    cdef int _check(self) except -1
    cdef int _cpu_number(self, cpu) except -1
    cdef int _zone_number(self, object zone) except -1
    cdef int _held(self, pfn, int order) except -1
    cdef int _zone_at(self, pfn) except -1

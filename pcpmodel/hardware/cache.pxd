# SPDX-License-Identifier: GPL-2.0-only
from libc.stdint cimport uint32_t
from libc.string cimport memmove

from pcpmodel.exclusive cimport Exclusive


cdef enum:
    IN_PRIVATE = 0  # found in the CPU's own cache
    IN_LLC = 1  # found in the last-level cache that it shares
    IN_MEMORY = 2
    PRIVATE_WAYS = 8
    LLC_WAYS = 16


cdef struct page_cache:
    # Sets of page numbers + 1, most recently used first; 0: empty way.
    uint32_t *own  # [cpu][own_mask + 1][PRIVATE_WAYS]
    uint32_t *llc  # [group][llc_mask + 1][LLC_WAYS]
    uint32_t own_mask  # sets - 1; a power of two sets
    uint32_t llc_mask
    int llc_cpus  # CPUs that share one


cdef inline bint cache_set(uint32_t *way, int ways, uint32_t key) noexcept nogil:
    """Look ``key`` up in a set and make it the most recent; was it there?"""
    cdef int i
    cdef bint hit
    if way[0] == key:
        return True
    i = 1
    while i < ways - 1 and way[i] != key:
        i += 1
    hit = way[i] == key
    memmove(way + 1, way, i * sizeof(uint32_t))
    way[0] = key
    return hit


cdef inline int cache_touch(page_cache *c, int cpu, uint32_t page) noexcept nogil:
    """A CPU uses a page: where it was found; afterwards it is in both caches."""
    cdef uint32_t key = page + 1, at = page * 2654435761U
    cdef bint own = cache_set(
        c.own + (<size_t> cpu * (c.own_mask + 1) + (at >> 12 & c.own_mask)) * PRIVATE_WAYS,
        PRIVATE_WAYS, key,
    )
    cdef bint llc = cache_set(
        c.llc
        + (<size_t> (cpu // c.llc_cpus) * (c.llc_mask + 1) + (at >> 8 & c.llc_mask)) * LLC_WAYS,
        LLC_WAYS, key,
    )
    return IN_PRIVATE if own else (IN_LLC if llc else IN_MEMORY)


cdef class PageCache(Exclusive):
    cdef page_cache cache
    cdef readonly int cpus

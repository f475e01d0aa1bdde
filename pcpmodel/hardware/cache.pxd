# SPDX-License-Identifier: GPL-2.0-only
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memmove

from pcpmodel.exclusive cimport Exclusive


cdef enum:
    IN_PRIVATE = 0  # found in the CPU's own cache
    IN_LLC = 1  # found in the last-level cache that it shares, or in a cache of who shares it
    IN_MEMORY = 2
    PRIVATE_WAYS = 8
    LLC_WAYS = 16


cdef struct page_cache:
    # Sets of page numbers + 1, most recently used first; 0: empty way.  Above them, in the
    # last-level cache, the CPU that used the page last.
    uint64_t *own  # [cpu][own_sets][PRIVATE_WAYS]
    uint64_t *llc  # [group][llc_sets][LLC_WAYS]
    int *group  # [cpu]: its last-level cache
    uint32_t own_sets
    uint32_t llc_sets


cdef inline uint64_t cache_set(uint64_t *way, int ways, uint64_t entry) noexcept nogil:
    """Make a page the most recent of its set; its entry there before, 0 if it had none."""
    cdef uint64_t before
    cdef int i = 0
    while i < ways - 1 and <uint32_t> way[i] != <uint32_t> entry:
        i += 1
    before = way[i] if <uint32_t> way[i] == <uint32_t> entry else 0
    memmove(way + 1, way, i * sizeof(uint64_t))
    way[0] = entry
    return before


cdef inline int cache_touch(page_cache *c, int cpu, uint32_t page) noexcept nogil:
    """A CPU uses a page: where it was found; afterwards it is in both caches, and there alone."""
    cdef uint64_t key = page + 1, at = page * 2654435761U
    cdef uint64_t own = cache_set(
        c.own + (<size_t> cpu * c.own_sets + (at * c.own_sets >> 32)) * PRIVATE_WAYS,
        PRIVATE_WAYS, key,
    )
    cdef uint64_t llc = cache_set(
        c.llc + (<size_t> c.group[cpu] * c.llc_sets + (at * c.llc_sets >> 32)) * LLC_WAYS,
        LLC_WAYS, <uint64_t> cpu << 32 | key,
    )
    if own and (llc == 0 or llc >> 32 == <uint64_t> cpu):
        return IN_PRIVATE
    return IN_LLC if llc else IN_MEMORY


cdef class PageCache(Exclusive):
    cdef page_cache cache
    cdef readonly int cpus

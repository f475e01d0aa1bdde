# SPDX-License-Identifier: GPL-2.0-only
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from pcpmodel.exclusive cimport Exclusive


cdef enum:
    IN_PRIVATE = 0  # found in the CPU's own cache
    IN_LLC = 1  # found in the last-level cache that it shares, or in a cache of who shares it
    IN_MEMORY = 2
    PRIVATE_WAYS = 8
    LLC_WAYS = 16


cdef struct page_cache:
    # Sets of page numbers + 1, 0: empty way; each a ring that begins with the most recently used.
    uint32_t *own  # [cpu][own_sets][PRIVATE_WAYS]
    uint32_t *llc  # [group][llc_sets][LLC_WAYS]
    uint32_t *user  # of each page of `llc`: the CPU that used it last
    uint8_t *own_first  # of each set: the way that its ring begins with
    uint8_t *llc_first
    int *group  # [cpu]: its last-level cache
    uint32_t own_sets
    uint32_t llc_sets


cdef extern from *:
    """
    typedef uint32_t pcpmodel_ways __attribute__((vector_size(16)));
    typedef uint64_t pcpmodel_halves __attribute__((vector_size(16)));
    /* The way of a set in which an entry is, -1: in none.  Four are looked at at once: that most
       pages are in none takes all ways, and compilers unroll the loop before they see that. */
    static inline int pcpmodel_cache_way(const uint32_t *set, int ways, uint32_t entry)
    {
        const pcpmodel_ways *four = (const pcpmodel_ways *)set;
        const pcpmodel_ways entries = {entry, entry, entry, entry};
        pcpmodel_ways number = {1, 2, 3, 4}, found = {0, 0, 0, 0};
        for (int i = 0; i < ways / 4; i++, number += 4)
            found |= (pcpmodel_ways)(four[i] == entries) & number;
        const pcpmodel_halves halves = (pcpmodel_halves)found;
        const uint64_t both = halves[0] | halves[1];
        return (int)(uint32_t)(both | both >> 32) - 1;
    }
    """
    int cache_way "pcpmodel_cache_way"(const uint32_t *set, int ways, uint32_t entry) noexcept nogil


cdef inline int cache_front(uint32_t *set, uint8_t *first, int ways, int way,
                            uint32_t *user) noexcept nogil:
    """Room for a page before all others of its set, in place of what was in a way; -1: the oldest.

    ``user``, if it is not NULL, has a number for each page.
    """
    cdef int begins = first[0], to
    if way < 0:
        way = begins = (begins - 1) & (ways - 1)
        first[0] = <uint8_t> begins
    while way != begins:  # those used since move by one
        to = way
        way = (way - 1) & (ways - 1)
        set[to] = set[way]
        if user != NULL:
            user[to] = user[way]
    return way


cdef inline int cache_touch(page_cache *c, int cpu, uint32_t page) noexcept nogil:
    """A CPU uses a page: where it was found; afterwards it is in both caches, and there alone.

    ``page`` is less than 2**32 - 1.
    """
    cdef uint64_t at = page * 2654435761U
    cdef uint32_t entry = page + 1
    cdef size_t own = <size_t> cpu * c.own_sets + (at * c.own_sets >> 32)
    cdef size_t llc = <size_t> c.group[cpu] * c.llc_sets + (at * c.llc_sets >> 32)
    cdef uint32_t *set = c.own + own * PRIVATE_WAYS
    cdef uint32_t *user = c.user + llc * LLC_WAYS
    cdef int way = cache_way(set, PRIVATE_WAYS, entry), found
    cdef bint mine = way >= 0
    set[cache_front(set, &c.own_first[own], PRIVATE_WAYS, way, NULL)] = entry
    set = c.llc + llc * LLC_WAYS
    way = cache_way(set, LLC_WAYS, entry)
    found = IN_MEMORY if way < 0 else IN_LLC
    if mine and (way < 0 or user[way] == <uint32_t> cpu):
        found = IN_PRIVATE
    way = cache_front(set, &c.llc_first[llc], LLC_WAYS, way, user)
    set[way] = entry
    user[way] = <uint32_t> cpu
    return found


cdef class PageCache(Exclusive):
    cdef page_cache cache
    cdef readonly int cpus

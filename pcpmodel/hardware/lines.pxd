# SPDX-License-Identifier: GPL-2.0-only
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pcpmodel.exclusive cimport Exclusive


cdef enum:
    LINE_OWN = 0  # in the CPU's private cache
    LINE_AHEAD = 1  # beside the line before it: the prefetcher has asked for it
    LINE_LLC = 2  # written back to the last-level cache
    LINE_DIRTY = 3  # in the private cache of the CPU that wrote it last
    LINE_MEMORY = 4
    LINE_STATES = 5
    CPU_SHIFT = 48


cdef struct page_lines:
    # By page: the CPU that wrote its line last + 1, and how many lines that CPU had used then.
    uint64_t **last  # [zone][page]
    uint64_t *used  # [cpu]: cache lines used so far
    uint64_t *found  # [cpu][refill, drain][LINE_STATES]
    uint64_t *blocks  # [cpu][refill, drain]
    uint64_t own  # lines that a private cache holds
    uint64_t both  # and the CPU's share of the last-level cache with it


cdef inline int line_write(page_lines *l, int cpu, int zone, uint32_t page) noexcept nogil:
    """A CPU writes the line of a page: where it was."""
    cdef uint64_t *at = &l.last[zone][page]
    cdef uint64_t now = at[0], age, one = 1
    cdef int owner = <int> (now >> CPU_SHIFT) - 1, where
    if owner < 0:
        where = LINE_MEMORY
    else:
        age = l.used[owner] - (now & ((one << CPU_SHIFT) - 1))
        if age > l.both:
            where = LINE_MEMORY
        elif age > l.own:
            where = LINE_LLC
        else:
            where = LINE_OWN if owner == cpu else LINE_DIRTY
    l.used[cpu] += where != LINE_OWN
    at[0] = <uint64_t> (cpu + 1) << CPU_SHIFT | l.used[cpu]
    return where


cdef inline void line_count(page_lines *l, int cpu, int zone, int side, uint32_t page,
                            uint32_t before) noexcept nogil:
    """The same under the zone lock, after the line of page ``before``, and counted."""
    cdef int where = line_write(l, cpu, zone, page)
    if where != LINE_OWN and page - before + 1 <= 2:  # the line beside it
        where = LINE_AHEAD
    l.found[(2 * cpu + side) * LINE_STATES + where] += 1


cdef class PageLines(Exclusive):
    cdef page_lines lines
    cdef readonly int cpus
    cdef readonly int zones
    cdef readonly tuple pages

# SPDX-License-Identifier: GPL-2.0-only
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pcpmodel.exclusive cimport Exclusive


cdef enum:
    LINE_OWN = 0  # in the CPU's private cache
    LINE_AHEAD = 1  # beside the line before it, which was asked for: it comes with that one
    LINE_BESIDE = 2  # beside the line before it, which was at hand
    LINE_LLC = 3  # written back to the last-level cache
    LINE_DIRTY = 4  # in the private cache of the CPU that wrote it last
    LINE_MEMORY = 5
    LINE_STATES = 6
    LINE_ORDERS = 11  # of the blocks that were moved
    CPU_SHIFT = 48
    LINES_OF_A_PAGE = 64  # that a program uses, from end to end


cdef struct page_lines:
    # By page: the CPU that wrote its line last under the zone lock + 1, and how many lines that CPU
    # had used then; how many its CPU had when it freed the page to its lists (low 32 bits).
    uint64_t **last  # [zone][page]
    uint32_t **freed  # [zone][page]
    uint64_t *used  # [cpu]: cache lines used so far
    uint64_t *seen  # [cpu][zone]: the same at the CPU's last hold of the zone's lock
    uint64_t *found  # [cpu][refill, drain][LINE_ORDERS][LINE_STATES]
    uint64_t *blocks  # [cpu][refill, drain][LINE_ORDERS]
    int64_t moved  # all of these
    uint64_t own  # lines that a private cache holds
    uint64_t both  # and the CPU's share of the last-level cache with it
    int cpus
    int zones


cdef inline int64_t pages_used(const page_lines *l) noexcept nogil:
    """Pages that the CPUs have allocated, about: all lines that they have used."""
    cdef int64_t found = 0
    cdef int i
    for i in range(l.cpus):
        found += <int64_t> l.used[i]
    return found // LINES_OF_A_PAGE


cdef inline bint lines_reach(const page_lines *l, int64_t blocks, int64_t pages) noexcept nogil:
    """Whether so many blocks have moved under the zone lock, or so many pages been used."""
    return l.moved >= blocks or pages_used(l) >= pages


cdef inline int line_at(page_lines *l, uint64_t age, bint mine) noexcept nogil:
    """Where a line is that its last writer has followed by so many others."""
    if age > l.both:
        return LINE_MEMORY
    if age > l.own:
        return LINE_LLC
    return LINE_OWN if mine else LINE_DIRTY


cdef inline int line_write(page_lines *l, int cpu, int zone, uint32_t page, uint32_t before,
                           bint listed, bint at_hand) noexcept nogil:
    """A CPU writes the line of a page under the zone lock, after that of ``before``: where it was.

    ``listed``: the page is on the CPU's own lists, so that the CPU wrote it when it freed it;
    ``at_hand``: that of ``before`` was, and nothing was asked for.
    """
    cdef uint64_t *at = &l.last[zone][page]
    cdef uint64_t now = at[0], one = 1
    cdef int owner = <int> (now >> CPU_SHIFT) - 1, where
    if listed:
        where = line_at(l, <uint32_t> l.used[cpu] - l.freed[zone][page], True)
    elif owner < 0:
        where = LINE_MEMORY
    else:
        now &= (one << CPU_SHIFT) - 1
        if owner == cpu:
            where = line_at(l, l.used[cpu] - now, True)
        else:
            where = line_at(l, l.seen[owner * l.zones + zone] - now, False)
    if where != LINE_OWN:
        l.used[cpu] += 1
        if page - before + 1 <= 2:  # the line beside it
            where = LINE_BESIDE if at_hand else LINE_AHEAD
    at[0] = <uint64_t> (cpu + 1) << CPU_SHIFT | l.used[cpu]
    return where


cdef class PageLines(Exclusive):
    cdef page_lines lines
    cdef readonly int cpus
    cdef readonly int zones
    cdef readonly tuple pages

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


# The lines that one hold of a zone's lock writes.  What changes with every line is in here, and
# what it is looked up by: a store to the line of a page changes nothing that the next one needs.
cdef struct lines_held:
    page_lines *all
    uint64_t *last  # [page] of the zone
    const uint32_t *freed  # [page]
    const uint64_t *seen  # of the zone: [cpu * zones]
    uint64_t *found  # [LINE_ORDERS][LINE_STATES], as the next of the CPU and what it does
    uint64_t *blocks  # [LINE_ORDERS]
    const int64_t *cost  # [LINE_STATES]: what a line takes by where it was [ps]
    int64_t late  # what they took so far [ps]
    int64_t moved  # blocks so far
    uint64_t used
    uint64_t own
    uint64_t both
    int cpu
    int zones
    int zone


cdef inline lines_held lines_begin(page_lines *l, int cpu, int zone, int kind,
                                   const int64_t *cost) noexcept nogil:
    """A CPU has a zone's lock for a refill (0) or a drain (1)."""
    cdef lines_held h
    cdef size_t at = (2 * cpu + kind) * LINE_ORDERS
    h.all, h.last, h.freed, h.seen = l, l.last[zone], l.freed[zone], l.seen + zone
    h.found, h.blocks, h.cost = l.found + at * LINE_STATES, l.blocks + at, cost
    h.late = h.moved = 0
    h.used, h.own, h.both = l.used[cpu], l.own, l.both
    h.cpu, h.zones, h.zone = cpu, l.zones, zone
    return h


cdef inline int64_t lines_end(const lines_held *h) noexcept nogil:
    """The hold is over: what its lines took [ps]."""
    h.all.used[h.cpu] = h.all.seen[h.cpu * h.zones + h.zone] = h.used
    h.all.moved += h.moved
    return h.late


cdef inline void lines_moved(lines_held *h, int order, int blocks) noexcept nogil:
    """The hold has moved as many blocks of an order."""
    h.blocks[order] += blocks
    h.moved += blocks


cdef inline int line_at(const lines_held *h, uint64_t age, bint mine) noexcept nogil:
    """Where a line is that its last writer has followed by so many others."""
    if age > h.both:
        return LINE_MEMORY
    if age > h.own:
        return LINE_LLC
    return LINE_OWN if mine else LINE_DIRTY


cdef inline bint line_write(lines_held *h, int order, uint32_t page, uint32_t before, bint listed,
                            bint at_hand) noexcept nogil:
    """A hold that moves a block of an order writes the line of a page, after that of ``before``.

    ``listed``: the page is on the CPU's own lists, so that the CPU wrote it when it freed it;
    ``at_hand``: that of ``before`` was, and nothing was asked for.  Returns whether this one is.
    """
    cdef uint64_t now, one = 1
    cdef int owner, where
    if listed:
        where = line_at(h, <uint32_t> h.used - h.freed[page], True)
    else:
        now = h.last[page]
        owner = <int> (now >> CPU_SHIFT) - 1
        now &= (one << CPU_SHIFT) - 1
        if owner < 0:
            where = LINE_MEMORY
        elif owner == h.cpu:
            where = line_at(h, h.used - now, True)
        else:
            where = line_at(h, h.seen[owner * h.zones] - now, False)
    if where != LINE_OWN:
        h.used += 1
        if page - before + 1 <= 2:  # the line beside it
            where = LINE_BESIDE if at_hand else LINE_AHEAD
    h.last[page] = <uint64_t> (h.cpu + 1) << CPU_SHIFT | h.used
    h.found[order * LINE_STATES + where] += 1
    h.late += h.cost[where]
    return where == LINE_OWN


cdef class PageLines(Exclusive):
    cdef page_lines lines
    cdef readonly int cpus
    cdef readonly int zones
    cdef readonly tuple pages

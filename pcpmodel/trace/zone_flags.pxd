"""When the flags of a zone can have turned, as far as lines tell."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t

from pcpmodel.trace.beliefs cimport Beliefs

cdef void check_zone_flags(Beliefs s, int32_t row) noexcept nogil
cdef void kswapd(Beliefs s, int32_t row, bint wakes) noexcept nogil


cdef inline void move_free(Beliefs s, int64_t p, int64_t pages, int32_t row) noexcept nogil:
    """So many pages joined the free lists of a zone, or left them."""
    cdef int z = s.zone_of[p >> 9]
    s.zones[z].nr_free += pages
    if s.zones[z].nr_free < s.zones[z].least_free:
        s.zones[z].least_free = s.zones[z].nr_free
        if s.zones[z].nr_free <= s.zones[z].enough and s.zones[z].low > row:
            s.zones[z].low = row

"""Drains, and the probes that show a pageset's fields."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t

from pcpmodel.trace.beliefs cimport *

cdef int find_set(Beliefs s, int32_t row) noexcept nogil
cdef void resync(Beliefs s, int x, const int64_t *f) noexcept nogil
cdef bint see_fields(Beliefs s, int x, int32_t row, const int64_t *f, int hold,
                     int pindex) noexcept nogil
cdef void give_up_drain(Beliefs s, int x, int32_t row) noexcept nogil
cdef void finish_run(Beliefs s, int cpu, int32_t row) noexcept nogil
cdef void drain_begins(Beliefs s, int32_t row) noexcept nogil
cdef void decays_or_expires(Beliefs s, int32_t row) noexcept nogil
cdef void empties(Beliefs s, int32_t row) noexcept nogil
cdef int32_t emptied_soon(Beliefs s, int x, int32_t row) noexcept nogil
cdef void tick(Beliefs s, int x, int32_t row) noexcept nogil
cdef bint put_late(Beliefs s, int32_t row, int32_t told, int32_t page, int order) noexcept nogil
cdef void vmstat_update(Beliefs s, int32_t row) noexcept nogil
cdef void drained(Beliefs s, int32_t row) noexcept nogil

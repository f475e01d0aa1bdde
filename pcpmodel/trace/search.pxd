"""What may have happened otherwise."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t, uint64_t

from pcpmodel.kernel.pages cimport pages_unlikely
from pcpmodel.trace.beliefs cimport *

cdef int observe(Beliefs s, int x, int32_t row, const sight *g) noexcept nogil
cdef bint rerun(Beliefs s, int x) noexcept nogil
cdef void do_earlier(Beliefs s, int x, int32_t until) noexcept nogil
cdef void forget_op(Beliefs s, int x, int k) noexcept nogil
cdef void delay(Beliefs s, int32_t page, int32_t row) noexcept nogil
cdef void went_past(Beliefs s, int32_t page, int32_t row) noexcept nogil
cdef int32_t next_flags(Beliefs s, int x, int32_t row) noexcept nogil
cdef bint reconsider(Beliefs s, int x, int32_t row, const sight *g) noexcept nogil
cdef operation *begin_op_slowly(Beliefs s, int x, int32_t row, int op, int order) noexcept nogil


cdef inline operation *begin_op(Beliefs s, int x, int32_t row, int op, int order) noexcept nogil:
    """Something is to be done to a pageset (`do_op`): note it."""
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef operation *e
    if pages_unlikely(
            <unsigned int>(set.log_n - 1) >= set.log_more
            or set.undecided | set.due.why | (set.zone_told ^ z.told)):
        return begin_op_slowly(s, x, row, op, order)
    set.touched += 1
    e = &set.log[set.log_n]
    if e[-1].got == UNDECIDED:
        e[-1].got = NO_DRAIN
    set.log_n += 1
    fill_op(e, row, op, order, z.flags)
    return e

"""What leaves a list, and what comes from the buddy lists."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t, uint64_t

from pcpmodel.trace.beliefs cimport *

cdef void leave_for_stack(Beliefs s, int x, int32_t p, int32_t row, int32_t until,
                          int32_t f) noexcept nogil
cdef void leave(Beliefs s, int x, int32_t p, int32_t row, int op, int32_t until=*) noexcept nogil
cdef void leave_hidden(Beliefs s, int x, int32_t p, int32_t row) noexcept nogil
cdef void take(Beliefs s, int x, int32_t p, int32_t row, int op, int32_t call,
               int32_t until) noexcept nogil
cdef void take_shown(Beliefs s, int x, int32_t p, int32_t row) noexcept nogil
cdef void join_late(Beliefs s, int x, int i, int32_t q, int32_t row) noexcept nogil
cdef int stack_of_fork(Beliefs s, int x, int32_t q, int32_t p, int32_t row,
                       int32_t until, int32_t since=*) noexcept nogil
cdef void stacks_below(Beliefs s, int x, int64_t p, int32_t row) noexcept nogil
cdef void forked(Beliefs s, int zone, int32_t row) noexcept nogil
cdef void reported(Beliefs s, int32_t row, bint explained) noexcept nogil
cdef void taken_elsewhere(Beliefs s, int32_t p, int cpu, int32_t told, int32_t row) noexcept nogil
cdef void failed(Beliefs s, int x, int32_t row) noexcept nogil
cdef void taken_from_buddy(Beliefs s, int32_t row) noexcept nogil
cdef void fallback(Beliefs s, int32_t row) noexcept nogil
cdef void refill_begins(Beliefs s, int32_t row) noexcept nogil
cdef void bulk_begins(Beliefs s, int32_t row) noexcept nogil
cdef void bulk_returned(Beliefs s, int32_t row) noexcept nogil

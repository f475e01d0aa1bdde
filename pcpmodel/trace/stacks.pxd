"""Which freed pages were the stack of a task, as the lines of who frees them show."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t

from pcpmodel.trace.page_lists cimport *

cdef enum:
    STACK_PAGES = 4     # that a new task takes in silence (until v6.18)

cdef int32_t freed_after(PageLists s, int32_t j) noexcept nogil
cdef void find_stacks_freed(PageLists s, int32_t *before) noexcept nogil
cdef int place_of(PageLists s, int32_t k) noexcept nogil
cdef bint rest_of_stack(PageLists s, int32_t k) noexcept nogil
cdef int stack_from(PageLists s, int32_t q, int32_t p, int *first) noexcept nogil

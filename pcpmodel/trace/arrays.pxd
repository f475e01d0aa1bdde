# SPDX-License-Identifier: GPL-2.0-only
"""Arrays that grow."""

from libc.stdint cimport int64_t
from libc.stdlib cimport realloc


cdef inline bint has_room(void **rows, int64_t *cap, int64_t n, size_t size) noexcept nogil:
    """Have room for *n* rows; false where memory is out, and all is as it was."""
    cdef void *more
    if n <= cap[0]:
        return True
    more = realloc(rows[0], (2 * n + 64) * size)
    if more == NULL:
        return False
    rows[0] = more
    cap[0] = 2 * n + 64
    return True

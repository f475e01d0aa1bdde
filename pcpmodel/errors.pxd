"""`pcpmodel.errors.integer` for compiled modules: at once for an int in its range."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t


cdef inline int64_t whole(str name, object value, int64_t low, int64_t high) except? -1:
    """An argument as an integer in a range, or InputError."""
    if type(value) is int and low <= value <= high:
        return value
    from pcpmodel.errors import integer
    return integer(name, value, low, high)

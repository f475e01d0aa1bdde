"""Compiled objects that one caller at a time may use: see exclusive.pyx.

A method that releases the GIL, or runs Python code while its object is between two states,
is between `begin_use` and `end_use`.  One that does neither asks `check_idle` alone: nobody else
runs meanwhile.
"""

# SPDX-License-Identifier: GPL-2.0-only

cdef class Exclusive:
    cdef bint in_use

cdef int refuse(Exclusive it) except -1


cdef inline int check_idle(Exclusive it) except -1:
    """Raise if somebody is at it."""
    if it.in_use:
        refuse(it)
    return 0


cdef inline int begin_use(Exclusive it) except -1:
    """Have it for oneself up to `end_use`, or raise."""
    if it.in_use:
        refuse(it)
    it.in_use = True
    return 0


cdef inline void end_use(Exclusive it) noexcept:
    it.in_use = False

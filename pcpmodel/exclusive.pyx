"""One caller at a time.

The core computes without the GIL, so a second thread, or a callback of a policy, may reach an
object in the middle of an operation.  It is refused: to wait would be a deadlock for the callback,
and hide from threads that what they do has no order.  Each thread takes an object of its own; those
run side by side.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython


@cython.auto_pickle(False)
cdef class Exclusive:
    """Base of the compiled classes that are not for two callers at once."""


cdef int refuse(Exclusive it) except -1:
    raise RuntimeError(
        f"this {type(it).__name__} is in use: by another thread, or by the call that asks a "
        "policy; give each thread an object of its own"
    )

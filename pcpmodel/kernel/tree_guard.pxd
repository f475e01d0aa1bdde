"""Calls of a kernel tree's functions, which end whatever the functions do.

A call that divides by zero, touches what is not mapped, or runs for seconds, ends where it began
(tree_guard.h, tree_glue.h), and so do all that follow in its thread, with answers that are
harmless, until `tree_failed` tells at the end of the operation.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t

from pcpmodel.kernel.rules cimport pcp_rules

cdef extern from "tree_abi.h":
    struct tree_fields:
        int count
        int high
        int high_min
        int high_max
        int batch
        int flags
        int alloc_factor
        int free_factor
        int free_count
        int count_min
        int expire

    struct tree_call:
        const char *function
        const void *of
        tree_fields state
        unsigned int zone_flags
        int order
        int failed
        long answer
        void *pc
        int32_t *stop
        int why

cdef tree_call *this_call() noexcept nogil  # of the thread
cdef void known(const void *of, str name) noexcept  # functions at an address are of this tree
cdef int tell_failed() except -1


cdef inline int tree_failed(const pcp_rules *r) except -1:
    """After an operation: raise what a function of a tree did wrong."""
    return tell_failed() if r.tree else 0

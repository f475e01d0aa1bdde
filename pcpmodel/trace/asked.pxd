"""A policy of the user's, asked at every decision of a recorded kernel."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t

from pcpmodel.kernel.pcp cimport per_cpu_pages, policy_state
from pcpmodel.kernel.rules cimport pcp_rules

cdef enum:
    ASKED_REFILL = 1
    ASKED_FREE = 2
    ASKED_TICK = 3

cdef struct decision:
    int64_t line
    int32_t kind
    int32_t set
    int32_t kernel
    int32_t policy
    int32_t kernel_high
    int32_t policy_high

cdef struct interview:
    policy_state *of        # per pageset
    policy_state *failed    # the first one that did; nobody is asked after it
    bint on
    bint broken             # out of memory
    decision *rows
    int64_t nr
    int64_t cap

cdef void ask(
    interview *w, const pcp_rules *r, int kind, int x, int64_t line, unsigned int flags, int order,
    per_cpu_pages mine, int kernel, int kernel_high
) noexcept nogil
cdef object decisions_of(const interview *w, int cpus, zones)

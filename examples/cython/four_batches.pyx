"""The kernel's rule, but for a cap: no drain frees more than four batches."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.cython_pcp cimport pcp_abi, pcp_policy, pcp_policy_object, pcp_view


cdef int drain(pcp_view *v, void *ctx) except -1 nogil:
    return min(v.kernel(v), 4 * v.batch)


cdef pcp_policy rule
rule.abi = pcp_abi()
rule.nr_pcp_free = drain

policy = pcp_policy_object(&rule)

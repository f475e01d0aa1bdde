"""The rule of v6.7 ... v7.3, restated as a policy: a place to start from.

Restates nr_pcp_alloc(), nr_pcp_high(), nr_pcp_free() and decay_pcp_high() of
mm/page_alloc.c; under releases v6.7 to v7.3 it changes nothing.  When high-order
pages come in bulk, which differs between them, it leaves to the kernel, and how a
drain is cut into holds is no decision of a policy.
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.cython_pcp cimport pcp_abi, pcp_policy, pcp_policy_object, pcp_view

cdef enum:
    RECLAIM_ACTIVE = 2
    BELOW_HIGH = 4


cdef int clamp(int value, int lo, int hi) noexcept nogil:
    if value >= hi:
        return hi
    return lo if value <= lo else value


cdef int refill(pcp_view *v, void *ctx) except -1 nogil:
    cdef int n = v.batch, cap
    v.high = clamp(v.high, v.high_min, v.high_max)
    if v.high < v.batch:
        return 1
    if v.order == 0:
        n <<= v.alloc_factor
    if v.high_min != v.high_max and not v.zone_flags & BELOW_HIGH:
        v.high = min(v.high + n, v.high_max)
    if v.order == 0:
        cap = max(v.high - v.count - v.batch, v.batch)
        if n <= cap and v.alloc_factor < v.batch_scale_max:
            v.alloc_factor += 1
        n = min(n, cap)
    return max(n >> v.order, 2) if n > 1 else n


cdef int threshold(pcp_view *v, void *ctx) except -1 nogil:
    cdef int high = clamp(v.high, v.high_min, v.high_max)
    v.high = high
    if high == 0:
        return 0
    if v.free_high:
        v.high = max(high - (v.batch << v.batch_scale_max), v.high_min)
        return 0
    if v.zone_flags & RECLAIM_ACTIVE:
        v.high = max(high - max(v.free_count, v.batch), v.high_min)
        return min(4 * v.batch, v.high)
    if v.high_min == v.high_max:
        return high
    if v.zone_flags & BELOW_HIGH:
        v.high = max(high - max(v.free_count, v.batch), v.high_min)
        return max(v.count, v.high_min)
    if v.count >= high and high < v.free_count + v.batch:
        v.high = clamp(v.free_count + v.batch, v.high_min, v.high_max)
    return high


cdef int drain(pcp_view *v, void *ctx) except -1 nogil:
    if v.free_high:
        return min(v.count, v.batch << v.batch_scale_max)
    if v.threshold < v.batch:
        return 1
    return clamp(v.free_count, v.batch, v.threshold - v.batch)


cdef int decay(pcp_view *v, void *ctx) except -1 nogil:
    if v.high > v.high_min:
        v.high = max(
            v.count - (v.batch << v.batch_scale_max), v.high - (v.high >> 3), v.high_min
        )
    return max(v.count - v.high, 0)


cdef int in_bulk(pcp_view *v, void *ctx) except -1 nogil:
    return v.kernel(v)  # v.free_high


cdef pcp_policy rule
rule.abi = pcp_abi()
rule.nr_pcp_alloc = refill
rule.nr_pcp_high = threshold
rule.nr_pcp_free = drain
rule.decay_pcp_high = decay
rule.free_high = in_bulk

policy = pcp_policy_object(&rule)

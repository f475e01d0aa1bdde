"""A length that misses drive, in the manner of TCMalloc's thread caches.

The allowed length starts at one page.  A miss (an empty list) raises it: by
one page up to a batch, then by a batch, up to high_max.  A list that becomes
too long gives a batch back, and lowers the length by a batch when that has
happened more than three times without a miss.  After tcmalloc's
thread_cache.cc, FetchFromCentralCache() and ListTooLong().

user[0]: allowed length - 1 [pages]; user[1]: times too long.
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.cython_pcp cimport pcp_abi, pcp_policy, pcp_policy_object, pcp_view

cdef enum:
    MAX_OVERAGES = 3


cdef int refill(pcp_view *v, void *ctx) except -1 nogil:
    cdef long long length = v.user[0] + 1
    cdef int n = <int>min(length, v.batch)
    v.user[1] = 0
    if length < v.batch:
        length += 1
    else:
        length = min(length + v.batch, max(v.high_max, v.batch))
        length -= length % v.batch
    v.user[0] = length - 1
    return max(n >> v.order, 1)


cdef int threshold(pcp_view *v, void *ctx) except -1 nogil:
    return <int>v.user[0] + 2  # one more than the allowed length


cdef int drain(pcp_view *v, void *ctx) except -1 nogil:
    cdef long long length = v.user[0] + 1
    if length < v.batch:
        v.user[0] += 1
    elif length > v.batch:
        v.user[1] += 1
        if v.user[1] > MAX_OVERAGES:
            v.user[0] -= v.batch
            v.user[1] = 0
    return v.batch


cdef pcp_policy tcmalloc
tcmalloc.abi = pcp_abi()
tcmalloc.nr_pcp_alloc = refill
tcmalloc.nr_pcp_high = threshold
tcmalloc.nr_pcp_free = drain

policy = pcp_policy_object(&tcmalloc)

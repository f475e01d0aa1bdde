"""Buckets that grow where the lock is contended, in the manner of FreeBSD's UMA.

A CPU moves pages in buckets.  The bucket starts at one batch and grows each
time that the zone lock had to be waited for, up to batch << batch_scale_max;
a CPU that never waits never hoards.  A CPU keeps two buckets, as UMA keeps one
to allocate from and one to free to.  After sys/vm/uma_core.c, zone_alloc_bucket()
and zone_free_bucket(), which grow a zone's bucket size when its lock is busy.

user[0]: bucket [pages]; user[1]: waits seen so far.
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.cython_pcp cimport pcp_abi, pcp_policy, pcp_policy_object, pcp_view


cdef int bucket(pcp_view *v) noexcept nogil:
    """Pages per bucket, grown by half for every wait since the last look."""
    cdef long long most = <long long>v.batch << v.batch_scale_max
    if v.user[0] == 0:
        v.user[0] = v.batch
    while v.user[1] < v.waits:
        v.user[1] += 1
        v.user[0] = min(v.user[0] + (v.user[0] + 1) // 2, most)
    return <int>v.user[0]


cdef int refill(pcp_view *v, void *ctx) except -1 nogil:
    return max(bucket(v) >> v.order, 1)


cdef int threshold(pcp_view *v, void *ctx) except -1 nogil:
    return 2 * bucket(v)


cdef int drain(pcp_view *v, void *ctx) except -1 nogil:
    return bucket(v)


cdef pcp_policy uma
uma.abi = pcp_abi()
uma.nr_pcp_alloc = refill
uma.nr_pcp_high = threshold
uma.nr_pcp_free = drain

policy = pcp_policy_object(&uma)

"""A per-CPU list policy of your own, in C speed: the public C interface.

Fill a `pcp_policy` and hand it over; a callback that stays NULL leaves that
decision to the kernel's rule.  In a ``%%cython`` cell::

    from pcpmodel.cython_pcp cimport pcp_abi, pcp_policy, pcp_policy_object, pcp_view

    cdef int always_a_batch(pcp_view *view, void *ctx) except -1 nogil:
        return view.batch

    cdef pcp_policy policy
    policy.abi = pcp_abi()
    policy.nr_pcp_free = always_a_batch
    mine = pcp_policy_object(&policy)

and ``pm.Memory("v6.18", zones, policy=mine)``.  A callback may raise
(``with gil: raise ...``): the exception comes out of the Python call that
drove the allocator.

The kernel's own answer is there for the asking, so that a rule may say only what it changes::

    cdef int at_most_four_batches(pcp_view *view, void *ctx) except -1 nogil:
        return min(view.kernel(view), 4 * view.batch)

Append only: what is released here never changes.
"""

# SPDX-License-Identifier: GPL-2.0-only

cdef struct pcp_view:
    # What the decision is about.  Read only.
    int order  # of the allocation or free
    int free_high  # nr_pcp_high, nr_pcp_free: high-order pages come in bulk
    int threshold  # nr_pcp_free: what nr_pcp_high returned [pages]
    int zone_flags  # BOOSTED_WATERMARK 1, RECLAIM_ACTIVE 2, BELOW_HIGH 4
    int batch_scale_max  # CONFIG_PCP_BATCH_SCALE_MAX
    int cpu
    int count  # base pages on the lists, this free included [pages]
    int batch  # [pages]
    int high_min  # [pages]
    int high_max  # [pages]
    int flags  # PREV_FREE_HIGH_ORDER 1, FREE_HIGH_BATCH 2
    # State of struct per_cpu_pages.  A callback may change it.
    int high  # [pages]
    int alloc_factor
    int free_factor
    int free_count  # [pages]
    int count_min  # [pages]
    # How often the zone lock was taken for these lists, and how often that had to wait
    # (0 where nobody else runs).  Read only.
    long long holds
    long long waits
    # Yours: one copy per CPU and zone, zero at first.  What is kept elsewhere (ctx, globals)
    # outlives a run, and its pilot and other threads' runs change it: the same run then differs.
    long long user[4]
    # What the kernel's rule answers to this very question, from the state that the view has now;
    # what the rule changes (high, the factors) it changes in the view.
    int (*kernel)(pcp_view *view) noexcept nogil
    const void *rules  # of the release; for kernel()
    int question  # likewise


cdef struct pcp_policy:
    int abi  # fill with pcp_abi()
    # Blocks of 2 ** order pages to refill an empty list with: 1 .. 2 ** 20.
    int (*nr_pcp_alloc)(pcp_view *view, void *ctx) except -1 nogil
    # A free drains if count >= this: 0 .. 2 ** 30 [pages].
    int (*nr_pcp_high)(pcp_view *view, void *ctx) except -1 nogil
    # Pages that it drains: 0 .. 2 ** 30; never more than there are.  For 0 the kernel takes the
    # zone lock all the same: a what-if counts that hold, a simulation does not.
    int (*nr_pcp_free)(pcp_view *view, void *ctx) except -1 nogil
    # Pages to drain at a vmstat tick: 0 .. 2 ** 30.
    int (*decay_pcp_high)(pcp_view *view, void *ctx) except -1 nogil
    void *ctx  # yours; handed to every callback, never freed
    # Do high-order pages come in bulk, so that this free of order 1..3 drains: 0 or 1.  Asked once
    # the block is counted; view.free_high is what the kernel says.
    int (*free_high)(pcp_view *view, void *ctx) except -1 nogil


cdef enum:
    PCP_ABI = 2


# Compiled into what uses it, so that it says with which structs that was built; what was built
# with others, a %%cython cell from IPython's cache for one, is refused.
cdef inline int pcp_abi() noexcept nogil:
    return PCP_ABI


# A Python object for ``policy=``.  The struct must live as long as the object.
cdef object pcp_policy_object(const pcp_policy *policy)

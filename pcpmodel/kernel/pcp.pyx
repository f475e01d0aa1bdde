# cython: cdivision=True
"""per_cpu_pages: refill, commit of a free, drain, decay.

Mirrors mm/page_alloc.c of v4.17 ... v7.3.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from cpython.exc cimport PyErr_CheckSignals, PyErr_Occurred
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport INT16_MAX, INT16_MIN, int8_t, int32_t, int64_t, uint32_t
from libc.string cimport memset

from pcpmodel.errors cimport whole
from pcpmodel.exclusive cimport Exclusive, begin_use, check_idle, end_use
from pcpmodel.kernel.buddy cimport (
    ALLOC_HIGHATOMIC,
    ALLOC_WMARK_HIGH,
    EV_HOLD,
    EV_PCPU_DRAIN,
    HOLD_DRAIN,
    block_type,
    emit,
    free_direct,
    free_one,
    rmqueue_buddy,
    rmqueue_bulk,
    zone,
    zone_pfn,
    zone_watermark_ok,
)
from pcpmodel.kernel.lists cimport (
    PCP_LISTS_ROOM,
    drain_counts,
    drain_first,
    drain_share,
    order_to_pindex,
    pcp_allowed_order,
    pcp_migratetype,
    pindex_after,
    pindex_to_order,
)
from pcpmodel.kernel.pages cimport (
    HPAGE_PMD_ORDER,
    MIGRATE_ISOLATE,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    NO_PAGE,
    PAGEBLOCK_ORDER,
    W_CACHED_SHIFT,
    W_NONE,
    ZONE_BELOW_HIGH,
    ZONE_RECLAIM_ACTIVE,
    fill_words,
    page_ring,
    page_ring_at,
    page_ring_free,
    page_ring_pop_head,
    page_ring_push_head,
    page_ring_reserve,
    pages_ctz,
    pages_log2,
    pages_prefetch,
    pcp_word,
)
from pcpmodel.kernel.rules cimport (
    COMMIT_CHUNKS_WHILE_HIGH,
    COMMIT_WHOLE,
    DECAY_NONE,
    pcp_rules,
    rules_of,
)
from pcpmodel.kernel.tree_guard cimport this_call, tree_failed

from pcpmodel.errors import InputError, truth
from pcpmodel.kernel.lists import pcp_orders
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.zone import MAX_BATCH, MAX_PAGES

cdef extern from "policy_call.h":
    ctypedef int (*pcp_rule)(void *view, void *ctx) noexcept nogil
    void pcp_watch_interrupts()
    int pcp_call(pcp_rule rule, void *view, void *ctx, int *stopped) noexcept nogil


# A user's policy


# As C has them.
cdef int most_pages = MAX_PAGES
cdef int most_batch = MAX_BATCH


cdef int most_free_factor(int batch, const pcp_rules *r) noexcept nogil:
    """What nr_pcp_free() raises free_factor to: its cap, or while a drain is under the limit."""
    cdef int most = 0
    if r.free_factor_cap:
        return r.batch_scale_max
    # Up to v6.6 only high - batch stops it, and any high does.
    while batch << most < most_pages:
        most += 1
    return most


cdef void state_of_view(
    per_cpu_pages *pcp, const pcp_view *view, const pcp_rules *r
) noexcept nogil:
    """What a callback may change, held to what the kernel's own fields come to."""
    pcp.high = min(max(view.high, 0), 1 << 30)
    pcp.alloc_factor = <int8_t>min(max(view.alloc_factor, 0), r.batch_scale_max)
    pcp.free_factor = <int8_t>min(max(view.free_factor, 0), most_free_factor(pcp.batch, r))
    pcp.free_count = min(max(view.free_count, INT16_MIN), INT16_MAX)
    pcp.count_min = min(max(view.count_min, 0), most_pages)


cdef int kernel_answer(pcp_view *view) noexcept nogil:
    """What the kernel's rule answers to the question of a view; it tunes what the view holds."""
    cdef const pcp_rules *r = <const pcp_rules *>view.rules
    cdef per_cpu_pages pcp
    cdef bint work
    cdef int answer
    memset(&pcp, 0, sizeof(pcp))
    pcp.count, pcp.batch, pcp.flags = view.count, min(max(view.batch, 1), most_batch), view.flags
    pcp.high_min, pcp.high_max = view.high_min, view.high_max
    state_of_view(&pcp, view, r)
    if view.question == POLICY_ALLOC:
        answer = nr_pcp_alloc(&pcp, r, view.zone_flags, view.order)
    elif view.question == POLICY_HIGH:
        answer = nr_pcp_high(&pcp, r, view.zone_flags, view.free_high)
    elif view.question == POLICY_FREE:
        answer = nr_pcp_free(&pcp, r, view.threshold, view.free_high)
    elif view.question == POLICY_DECAY:
        answer = decay_pcp_high(&pcp, r, &work)
    else:
        answer = view.free_high
    view.high, view.free_count, view.count_min = pcp.high, pcp.free_count, pcp.count_min
    view.alloc_factor, view.free_factor = pcp.alloc_factor, pcp.free_factor
    return answer


cdef int ask_policy(
    policy_state *s, int which, policy_callback callback, per_cpu_pages *pcp,
    const pcp_rules *r, unsigned int zone_flags, int order, bint free_high, int threshold
) noexcept nogil:
    """Ask a callback; an answer outside its range counts as a failure."""
    cdef pcp_view view
    cdef int answer, i, stopped
    if s.error:
        return QUIET[which - 1]
    view.order = order
    view.free_high = free_high
    view.threshold = threshold
    view.zone_flags = <int>zone_flags
    view.batch_scale_max = r.batch_scale_max
    view.cpu = s.cpu
    view.count = pcp.count
    view.batch = pcp.batch
    view.high_min = pcp.high_min
    view.high_max = pcp.high_max
    view.flags = pcp.flags
    view.high = pcp.high
    view.alloc_factor = pcp.alloc_factor
    view.free_factor = pcp.free_factor
    view.free_count = pcp.free_count
    view.count_min = pcp.count_min
    view.holds = s.holds
    view.waits = s.waits
    for i in range(4):
        view.user[i] = s.user[i]
    view.kernel = kernel_answer
    view.rules = r
    view.question = which
    answer = pcp_call(<pcp_rule>callback, &view, s.policy.ctx, &stopped)
    if stopped:
        s.error = POLICY_STOPPED
        return QUIET[which - 1]
    if answer < LEAST[which - 1] or answer > MOST[which - 1]:
        s.error = which
        s.answer = answer
        return QUIET[which - 1]
    state_of_view(pcp, &view, r)
    for i in range(4):
        s.user[i] = view.user[i]
    return answer


# By POLICY_* - 1: allowed answers, and the one that stops everything.
cdef int *LEAST = [1, 0, 0, 0, 0]
cdef int *MOST = [1 << 20, 1 << 30, 1 << 30, 1 << 30, 1]
cdef int *QUIET = [1, (1 << 31) - 1, 0, 0, 0]
cdef tuple CALLBACKS = (
    "nr_pcp_alloc", "nr_pcp_high", "nr_pcp_free", "decay_pcp_high", "free_high"
)


cdef int policy_failed(policy_state *s) except -1:
    """After an operation: raise what a callback raised, or what it did wrong."""
    cdef int which = s.error - 1
    if which < 0:
        return 0
    s.error = 0
    if which == POLICY_STOPPED - 1:
        PyErr_CheckSignals()  # the signal's own handler says what it raises
        raise KeyboardInterrupt
    if PyErr_Occurred():
        return -1
    raise InputError(
        f"policy: {CALLBACKS[which]} returned {s.answer}; "
        f"allowed: {LEAST[which]}..{MOST[which]}"
    )


cdef int policy_from(
    object policy, const pcp_rules *r, const pcp_policy **policy_ret
) except -1:
    """The struct behind a ``policy=`` argument; NULL for None."""
    policy_ret[0] = NULL
    if policy is None:
        return 0
    if r != NULL and r.tree:
        raise InputError(
            "policy=: the rules are those of a kernel tree, whose functions are called whole; "
            "change the tree, or put the policy on a release"
        )
    policy = getattr(policy, "capsule", policy)
    if not PyCapsule_IsValid(policy, "pcpmodel.pcp_policy"):
        raise InputError(
            f"policy={policy!r} is not what pcp_policy_object() of pcpmodel.cython_pcp returns, "
            f"or pcpmodel.policy(FILE)"
        )
    pcp_watch_interrupts()
    policy_ret[0] = <const pcp_policy *>PyCapsule_GetPointer(policy, "pcpmodel.pcp_policy")
    return 0


def policy_callbacks(policy):
    """Names of the decisions that a policy takes itself."""
    cdef const pcp_policy *asked
    policy_from(policy, NULL, &asked)
    if asked == NULL:
        return ()
    given = (
        asked.nr_pcp_alloc != NULL,
        asked.nr_pcp_high != NULL,
        asked.nr_pcp_free != NULL,
        asked.decay_pcp_high != NULL,
        asked.free_high != NULL,
    )
    return tuple([name for name, there in zip(CALLBACKS, given, strict=True) if there])


cdef dict pcp_scalars(const per_cpu_pages *pcp):
    """What a struct per_cpu_pages is between two operations, by name."""
    scalars = dict(pcp[0])
    del scalars["due"], scalars["chunk"]
    if not any(scalars["own"]):
        del scalars["own"]
    return scalars


# Page frames on the lists


cdef void pageset_destroy(pageset *ps) noexcept nogil:
    cdef int i
    for i in range(PCP_LISTS_ROOM):
        page_ring_free(&ps.lists[i])


cdef int pcp_refill(
    zone *z, pageset *ps, int order, int mt, int n, unsigned int flags
) noexcept nogil:
    """One refill of up to n blocks; returns how many came."""
    cdef int pindex = order_to_pindex(z.rules.nr_pcp_lists, mt, order), got = 0, came, chunk
    cdef int64_t before = z.nr_free
    while True:
        chunk = refill_hold(&ps.pcp, &z.rules, n)
        came = rmqueue_bulk(z, order, chunk, mt, flags, &ps.lists[pindex], pindex, ps.cpu)
        ps.policy.holds += 1
        got += came
        n -= chunk
        if n <= 0 or came < chunk:
            break
    ps.stat_diff += z.nr_free - before
    ps.pcp.count += got << order
    return got


cdef uint32_t pcp_take(zone *z, pageset *ps, int pindex) noexcept nogil:
    """Head of a list that is not empty; its words are the caller's to set."""
    pcp_alloc_end(&ps.pcp, &z.rules, pindex_to_order(pindex))
    return page_ring_pop_head(&ps.lists[pindex])


cdef uint32_t rmqueue_pcplist_locked(
    zone *z, pageset *ps, int order, int mt, unsigned int flags
) noexcept nogil:
    """__rmqueue_pcplist(): a block, refilling an empty list; NO_PAGE if there is none."""
    cdef int pindex = order_to_pindex(z.rules.nr_pcp_lists, mt, order), n
    if ps.lists[pindex].len == 0:
        n = decide_alloc(&ps.policy, &ps.pcp, &z.rules, z.flags, order)
        if flags & ALLOC_HIGHATOMIC and z.rules.highatomic_in_buddy:
            return NO_PAGE
        if pcp_refill(z, ps, order, mt, n, flags) == 0:
            return NO_PAGE
    return pcp_take(z, ps, pindex)


cdef uint32_t rmqueue_pcplist(
    zone *z, pageset *ps, int order, int mt, unsigned int flags
) noexcept nogil:
    pcp_alloc_begin(&ps.pcp, &z.rules)
    return rmqueue_pcplist_locked(z, ps, order, mt, flags)


cdef uint32_t rmqueue_past(
    zone *z, pageset *ps, int order, int mt, unsigned int flags
) noexcept nogil:
    """rmqueue_buddy() on behalf of a CPU."""
    cdef int64_t before = z.nr_free
    cdef uint32_t page = rmqueue_buddy(z, order, mt, flags)
    ps.stat_diff += z.nr_free - before
    return page


cdef void free_past(zone *z, pageset *ps, uint32_t page, int order) noexcept nogil:
    """free_one_page() on behalf of a CPU."""
    cdef int64_t before = z.nr_free
    free_direct(z, page, order)
    ps.stat_diff += z.nr_free - before


cdef inline uint32_t aligned_run(
    const zone *z, const page_ring *list, uint32_t limit, int order, bint same_word
) noexcept nogil:
    """Blocks at the tail of a list that leave one after the other and make up one larger block.

    A naturally aligned run of 2**k blocks merges with nothing outside itself
    before the last of them is freed, so that freeing it as one block gives the
    same lists.  Returns 2**k, at most ``limit`` and within a page block.
    """
    cdef uint32_t last = list.len - 1, page = page_ring_at(list, last), run = 1, most, top, k
    cdef uint32_t step = page_ring_at(list, last - 1) - page
    if step == 1U << order:
        top = page >> order
    elif step == 0U - (1U << order):
        top = (page >> order) + 1
    else:
        return 1
    most = min(1U << pages_ctz(top | 1U << PAGEBLOCK_ORDER - order), limit)
    for k in range(2, most):
        if page_ring_at(list, last - k) != page + k * step:
            most = k
            break
    run = 1U << pages_log2(most)
    if same_word:
        for k in range(1, run):
            if z.page[page + k * step] != z.page[page]:
                return 1
    return run


cdef void free_pcppages_bulk(zone *z, pageset *ps, int n, int pindex) noexcept nogil:
    """Drain n pages under one hold, from list ``pindex`` on, tail first."""
    cdef int64_t before = z.nr_free
    cdef int count = ps.pcp.count, order, mt, i = drain_first(&z.rules, pindex), share = 0
    cdef uint32_t page, low, run, limit, k
    cdef bint by_block = z.rules.drain_block_type or z.nr_isolated
    cdef page_ring *list
    n = min(n, ps.pcp.count)
    while n > 0:
        list = &ps.lists[i]
        order = pindex_to_order(i)
        share += 1
        if list.len:
            share = drain_share(&z.rules, share, n)
        while n > 0 and list.len and share:
            page = page_ring_at(list, list.len - 1)
            if list.len > 64:  # in an aged zone every word is a cache miss
                pages_prefetch(&z.page[page_ring_at(list, list.len - 64)])
            limit = min(list.len, (<uint32_t>n + (1U << order) - 1) >> order)
            limit = min(limit, <uint32_t>share)
            run = aligned_run(z, list, limit, order, not by_block) if limit > 1 else 1
            low = page
            if run > 1:
                low = min(page, page_ring_at(list, list.len - run))
            mt = block_type(z, page) if by_block else z.page[page] >> W_CACHED_SHIFT & 7
            list.len -= run
            share -= run
            ps.pcp.count -= run << order
            n -= run << order
            fill_words(z.page + low, W_NONE, run << order)
            free_one(z, low, order + pages_log2(run), mt, False)
            if z.events != NULL:
                for k in range(run):
                    emit(
                        z, EV_PCPU_DRAIN,
                        zone_pfn(z, page_ring_at(list, list.len + run - 1 - k)), order, mt, False,
                    )
        i = pindex_after(z.rules.nr_pcp_lists, i)
    ps.stat_diff += z.nr_free - before
    ps.policy.holds += 1
    emit(z, EV_HOLD, count - ps.pcp.count, HOLD_DRAIN, 0, False)


cdef void commit_begin(
    zone *z, pageset *ps, uint32_t page, int order, int type_, bint nolock, drain_plan *plan
) noexcept nogil:
    """A block freed joins its list; what it makes drain.

    ``type_`` is that of its page block, not ISOLATE.
    """
    cdef int pindex = order_to_pindex(z.rules.nr_pcp_lists, pcp_migratetype(type_), order), n
    cdef bint free_high
    plan.pages = 0
    plan.pindex = pindex
    plan.drained = False
    if page_ring_reserve(&ps.lists[pindex], 1) < 0:
        z.broken = 1
        return
    page_ring_push_head(&ps.lists[pindex], page)
    fill_words(z.page + page, pcp_word(type_, pindex, ps.cpu), 1U << order)
    free_high = pcp_commit(&ps.pcp, &z.rules, order)
    if nolock:  # a tree is not asked, and the free counts as the next operation's
        return
    free_high = decide_free_high(&ps.policy, &ps.pcp, &z.rules, z.flags, order, free_high)
    plan.high = decide_high(&ps.policy, &ps.pcp, &z.rules, z.flags, order, free_high)
    if ps.pcp.count >= plan.high:
        n = decide_free(
            &ps.policy, &ps.pcp, &z.rules, z.flags, order, free_high, plan.high
        )
        plan.pages = n
        plan.drained = n > 0 or z.rules.commit_drain != COMMIT_CHUNKS_WHILE_HIGH


cdef bint drain_step(zone *z, pageset *ps, drain_plan *plan) noexcept nogil:
    """One hold of a commit's drain; is there another to come?

    Between two steps the kernel drops both locks.
    """
    cdef int chunk = commit_hold(&ps.pcp, &z.rules, plan.pages)
    if chunk == 0 and z.rules.commit_drain != COMMIT_WHOLE:
        return False
    free_pcppages_bulk(z, ps, chunk, plan.pindex)
    plan.pages -= chunk
    return commit_goes_on(&ps.pcp, &z.rules, plan.pages, plan.high)


cdef void commit_end(zone *z, const drain_plan *plan) noexcept nogil:
    """After a drain: has the zone recovered?"""
    if (
        plan.drained and z.flags & ZONE_BELOW_HIGH
        and zone_watermark_ok(z, 0, z.watermark[ALLOC_WMARK_HIGH] + z.watermark_boost, 3, 0)
    ):
        z.flags &= ~<unsigned int>ZONE_BELOW_HIGH


cdef void free_prepared(
    zone *z, pageset *ps, uint32_t page, int order, bint nolock
) noexcept nogil:
    """Free a held block on a CPU: to its PCP list, or past it."""
    cdef int mt = block_type(z, page)
    cdef drain_plan plan
    if not pcp_allowed_order(z.rules.nr_pcp_lists, order) or mt == MIGRATE_ISOLATE:
        free_past(z, ps, page, order)
        return
    commit_begin(z, ps, page, order, mt, nolock, &plan)
    if plan.drained:
        while drain_step(z, ps, &plan):
            pass
        commit_end(z, &plan)


cdef void drain_pages_zone(zone *z, pageset *ps) noexcept nogil:
    """Empty a CPU's lists of a zone."""
    while ps.pcp.count > 0:
        free_pcppages_bulk(z, ps, zone_hold(&ps.pcp, &z.rules), 0)


cdef void drain_zone_pages(zone *z, pageset *ps) noexcept nogil:
    """Drain a batch of a remote pageset."""
    cdef int n = remote_hold(&ps.pcp, &z.rules)
    if n > 0:
        free_pcppages_bulk(z, ps, n, 0)


cdef bint decay_and_drain(zone *z, pageset *ps) noexcept nogil:
    """decay_pcp_high() with its drain; was there work?"""
    cdef bint work
    cdef int excess = decide_decay(&ps.policy, &ps.pcp, &z.rules, z.flags, &work), chunk
    while excess > 0:
        chunk = decay_hold(&ps.pcp, &z.rules, excess)
        free_pcppages_bulk(z, ps, chunk, 0)
        excess -= chunk
    if z.rules.decay != DECAY_NONE:
        ps.pcp.count_min = ps.pcp.count
    return work


# Counts of blocks

@cython.final
cdef class PerCpuPages(Exclusive):
    """A PCP whose lists hold counts of blocks, not page frames.

    For teaching and for tests: every refill is fully served, every chunk of a
    drain gets its locks back.

    Parameters
    ----------
    release : str or Release
        Kernel state.
    batch : int
        Pages per refill and drain [pages], 1..65536.
    high, high_min, high_max : int, optional
        [pages], 0..2**26.  Give ``high`` alone for a fixed threshold, or
        ``high_min`` and ``high_max`` (and ``high``, the tuned value to start
        from; by default ``high_min``).  A kernel without ``high_min`` takes
        ``high_min``, else ``high``, as its only ``high``.
    flags : int
        ``PCPF_PREV_FREE_HIGH_ORDER`` (1) and ``PCPF_FREE_HIGH_BATCH`` (2).
    policy : optional
        A policy of your own (`pcpmodel.cython_pcp`).

    Raises
    ------
    InputError
        For an argument out of its range.

    Examples
    --------
    >>> pcp = PerCpuPages("v6.7", high_min=500, high_max=8192)
    >>> pcp.alloc(), pcp.count, pcp.high, pcp.alloc_factor
    (63, 62, 563, 1)
    """

    cdef per_cpu_pages pcp
    cdef pcp_rules rules
    cdef unsigned int zone_flags
    cdef int32_t nr[PCP_LISTS_ROOM]
    cdef policy_state policy
    cdef int refill, per_hold  # blocks of the last refill, and of each of its holds but the last
    cdef object _policy
    cdef readonly object release

    def __cinit__(
        self, release="v6.7", *, batch=63, high=None, high_min=None, high_max=None, flags=0,
        policy=None
    ):
        self.release = find_release(release)
        self.rules = rules_of(self.release)
        if high_min is None:
            high_min = high_max if high is None else high
        if high_min is None:
            raise InputError("give high, or high_min and high_max [pages]")
        if high_max is None or not self.rules.high_min_max:
            high_max = high_min
        if high is None or not self.rules.high_min_max:
            high = high_min
        self.pcp.batch = whole("batch", batch, 1, MAX_BATCH)
        self.pcp.high = whole("high", high, 0, MAX_PAGES)
        self.pcp.high_min = whole("high_min", high_min, 0, MAX_PAGES)
        self.pcp.high_max = whole("high_max", high_max, 0, MAX_PAGES)
        self.pcp.flags = whole("flags", flags, 0, 3)
        policy = self.release.policy if policy is None else policy
        policy_from(policy, &self.rules, &self.policy.policy)
        self._policy = policy

    # Scalars under their kernel names; alloc_factor .. flags may be set.

    @property
    def count(self):
        return self.pcp.count

    @property
    def batch(self):
        return self.pcp.batch

    @property
    def high(self):
        return self.pcp.high

    @property
    def high_min(self):
        return self.pcp.high_min

    @property
    def high_max(self):
        return self.pcp.high_max

    @property
    def alloc_factor(self):
        return self.pcp.alloc_factor

    @alloc_factor.setter
    def alloc_factor(self, value):
        self.pcp.alloc_factor = whole("alloc_factor", value, 0, self.rules.batch_scale_max)

    @property
    def free_factor(self):
        return self.pcp.free_factor

    @free_factor.setter
    def free_factor(self, value):
        most = most_free_factor(self.pcp.batch, &self.rules)
        self.pcp.free_factor = whole("free_factor", value, 0, most)

    @property
    def free_count(self):
        return self.pcp.free_count

    @free_count.setter
    def free_count(self, value):
        self.pcp.free_count = whole("free_count", value, INT16_MIN, INT16_MAX)

    @property
    def count_min(self):
        return self.pcp.count_min

    @count_min.setter
    def count_min(self, value):
        self.pcp.count_min = whole("count_min", value, 0, MAX_PAGES)

    @property
    def flags(self):
        return self.pcp.flags

    @flags.setter
    def flags(self, value):
        self.pcp.flags = whole("flags", value, 0, 3)

    @property
    def waits(self):
        """How often the zone lock had to be waited for, as a policy sees it."""
        return self.policy.waits

    @waits.setter
    def waits(self, value):
        self.policy.waits = whole("waits", value, 0, MAX_PAGES)

    @property
    def refill_holds(self):
        """Blocks that each hold of the zone lock brought in the last refill; one by any release."""
        if not self.refill:
            return []
        full, rest = divmod(self.refill, self.per_hold)
        return [self.per_hold] * full + [rest] * (rest > 0)

    @property
    def below_high(self):
        """ZONE_BELOW_HIGH of the zone."""
        return bool(self.zone_flags & ZONE_BELOW_HIGH)

    @below_high.setter
    def below_high(self, value):
        cdef bint on = truth("below_high", value)
        self.zone_flags = self.zone_flags & ~ZONE_BELOW_HIGH | (ZONE_BELOW_HIGH if on else 0)

    @property
    def reclaim_active(self):
        """ZONE_RECLAIM_ACTIVE of the zone."""
        return bool(self.zone_flags & ZONE_RECLAIM_ACTIVE)

    @reclaim_active.setter
    def reclaim_active(self, value):
        cdef bint on = truth("reclaim_active", value)
        self.zone_flags = (
            self.zone_flags & ~ZONE_RECLAIM_ACTIVE | (ZONE_RECLAIM_ACTIVE if on else 0)
        )

    @property
    def lists(self):
        """Blocks on each list, by pindex."""
        return [self.nr[i] for i in range(self.rules.nr_pcp_lists)]

    def alloc(self, order=0, migratetype=MIGRATE_MOVABLE):
        """Allocate a block of 2**order pages.

        Parameters
        ----------
        order : int
            0..3 or 9; 0 alone up to v5.13.
        migratetype : int
            0 unmovable, 1 movable, 2 reclaimable.

        Returns
        -------
        int
            Blocks that the refill brought; 0 if the list had one.
        """
        cdef int o = self._order(order), n = 0
        cdef int i = order_to_pindex(self.rules.nr_pcp_lists, self._type(migratetype), o)
        begin_use(self)
        pcp_alloc_begin(&self.pcp, &self.rules)
        if self.nr[i] == 0:
            n = decide_alloc(&self.policy, &self.pcp, &self.rules, self.zone_flags, o)
            self._answered()
            self.refill, self.per_hold = n, refill_hold(&self.pcp, &self.rules, n)
            self.policy.holds += len(self.refill_holds)
            self.nr[i] = n
            self.pcp.count += n << o
        self.nr[i] -= 1
        pcp_alloc_end(&self.pcp, &self.rules, o)
        self._answered()
        end_use(self)
        return n

    def free(self, order=0, migratetype=MIGRATE_MOVABLE):
        """Free a block of 2**order pages.

        Parameters
        ----------
        order, migratetype : int
            As for `alloc`.

        Returns
        -------
        list of int
            Pages drained in each hold of the zone lock; empty if none was needed.
        """
        cdef int o = self._order(order), high, n, chunk
        cdef int i = order_to_pindex(self.rules.nr_pcp_lists, self._type(migratetype), o)
        cdef bint free_high
        if self.pcp.count > MAX_PAGES:
            raise InputError(f"count={self.pcp.count} is above {MAX_PAGES} pages already")
        begin_use(self)
        self.nr[i] += 1
        free_high = pcp_commit(&self.pcp, &self.rules, o)
        free_high = decide_free_high(
            &self.policy, &self.pcp, &self.rules, self.zone_flags, o, free_high
        )
        high = decide_high(&self.policy, &self.pcp, &self.rules, self.zone_flags, o, free_high)
        self._answered()
        if self.pcp.count < high:
            end_use(self)
            return []
        n = decide_free(
            &self.policy, &self.pcp, &self.rules, self.zone_flags, o, free_high, high
        )
        self._answered()
        end_use(self)
        holds = []
        more = n > 0
        while more:
            chunk = commit_hold(&self.pcp, &self.rules, n)
            holds.append(self._bulk(chunk, i))
            n -= chunk
            more = commit_goes_on(&self.pcp, &self.rules, n, high)
        return holds

    def decay(self):
        """One vmstat tick: decay_pcp_high().

        Returns
        -------
        list of int
            Pages drained in each hold of the zone lock.
        """
        cdef bint work
        cdef int n, chunk
        begin_use(self)
        n = decide_decay(&self.policy, &self.pcp, &self.rules, self.zone_flags, &work)
        self._answered()
        end_use(self)
        holds = []
        while n > 0:
            chunk = decay_hold(&self.pcp, &self.rules, n)
            holds.append(self._bulk(chunk, 0))
            n -= chunk
        self.pcp.count_min = self.pcp.count
        return holds

    def drain_zone_pages(self):
        """Drain a batch from list 0 on; returns the pages drained."""
        cdef int n
        check_idle(self)
        n = remote_hold(&self.pcp, &self.rules)
        self._answered()
        return self._bulk(n, 0)

    def drain_pages_zone(self):
        """Drain everything; returns the pages of each hold."""
        cdef int n
        check_idle(self)
        holds = []
        while self.pcp.count > 0:
            n = zone_hold(&self.pcp, &self.rules)
            self._answered()
            holds.append(self._bulk(n, 0))
        return holds

    def pageset_update(self, high_min, high_max, batch):
        """New sizes, as a sysctl or CPU hot-plug writes them; ``high`` follows at its next use.

        A kernel without ``high_min`` takes it as ``high``.
        """
        cdef int least = whole("high_min", high_min, 0, MAX_PAGES)
        cdef int most = whole("high_max", high_max, 0, MAX_PAGES)
        cdef int pages = whole("batch", batch, 1, MAX_BATCH)
        check_idle(self)
        self.pcp.high_min, self.pcp.high_max, self.pcp.batch = least, most, pages
        if not self.rules.high_min_max:
            self.pcp.high = self.pcp.high_max = self.pcp.high_min

    def state(self):
        """Every scalar and list, for comparison."""
        return {**pcp_scalars(&self.pcp), "lists": self.lists}

    cdef int _answered(self) except -1:
        """After a decision: raise what the policy raised, or what it or a tree did wrong."""
        if self.policy.error or self.rules.tree and this_call().failed:
            end_use(self)
            policy_failed(&self.policy)
            tree_failed(&self.rules)
        return 0

    cdef int _order(self, object order) except -1:
        cdef int o = whole("order", order, 0, HPAGE_PMD_ORDER)
        if not pcp_allowed_order(self.rules.nr_pcp_lists, o):
            allowed = ", ".join(map(str, pcp_orders(self.rules.nr_pcp_lists)))
            raise InputError(
                f"order={o} never enters a PCP list of {self.release}; allowed: {allowed}"
            )
        return o

    cdef int _type(self, object migratetype) except -1:
        return whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)

    cdef int _bulk(self, int n, int pindex) noexcept:
        """free_pcppages_bulk() on counts; returns base pages freed."""
        cdef int pages
        drain_counts(self.nr, &self.rules, min(n, self.pcp.count), pindex, &pages)
        self.policy.holds += 1
        self.pcp.count -= pages
        return pages

"""struct per_cpu_pages: the decisions taken on it, and its lists (v4.17 ... v7.3).

For modules that cimport this.  First the decisions: inline functions of the
struct, the rules (`rules.pxd`) and the zone's flags that change nothing but the
struct and cannot fail.  One allocation of a block is

    pcp_alloc_begin(pcp, rules)                      # once per successful trylock
    if the list is empty:
        n = nr_pcp_alloc(pcp, rules, flags, order)   # blocks to ask rmqueue_bulk() for
        pcp.count += got << order
    pcp_alloc_end(pcp, rules, order)                 # a block left its list

and one free is

    free_high = pcp_commit(pcp, rules, order)        # a block joined its list
    high = nr_pcp_high(pcp, rules, flags, free_high)
    if pcp.count >= high:
        n = nr_pcp_free(pcp, rules, high, free_high) # pages to drain, from its own list on
        do:                                          # one hold of the zone's lock each
            chunk = commit_hold(pcp, rules, n)
            n -= chunk
        while commit_goes_on(pcp, rules, n, high)

`pcp_alloc_hits` and `pcp_free_hits` are many of them at once that take no lock.

The rules may be those of a user's kernel tree: then `pcp_rules.tree` is its compiled functions,
which decide (`tree_steps`), and where every one of these steps stands is known here alone.  What
has no lock to take goes by the rules, too, or is not done each time, if it was seen that this
comes to the same (`pcp_rules.tree_hits`, tree_rules.py).

A user's policy (`cython_pcp.pxd`) may take these decisions; `decide_alloc`, `decide_free_high`,
`decide_high`, `decide_free` and `decide_decay` ask it, or the rule where it is NULL.
A callback that fails sets `policy_state.error`; from then on nothing is
asked and nothing drains, and the border raises (`policy_failed`).

Then the same with page frames: a `pageset` is one CPU's lists of one zone
(zone and page numbers as in `buddy.pxd`).

    rmqueue_pcplist               allocate: refills when the list is empty
    pcp_refill                    one refill of a given size, whatever the rules say
    pcp_take                      the head of a list, without a refill
    free_prepared                 free a held block: to its PCP list or past it
    commit_begin, drain_step, commit_end
                                  the same free in steps, for a simulator that lets
                                  others in where the kernel drops the locks
    free_pcppages_bulk            drain n pages from a given list on, under one hold
    drain_pages_zone, drain_zone_pages, decay_and_drain
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.limits cimport INT_MAX
from libc.stdint cimport INT16_MAX, int8_t, int16_t, int64_t, uint16_t, uint32_t

from pcpmodel.cython_pcp cimport pcp_policy, pcp_view
from pcpmodel.kernel.buddy cimport zone
from pcpmodel.kernel.lists cimport PCP_LISTS_ROOM
from pcpmodel.kernel.pages cimport (
    MAX_PAGE_ORDER,
    PAGE_ALLOC_COSTLY_ORDER,
    ZONE_BELOW_HIGH,
    ZONE_RECLAIM_ACTIVE,
    page_ring,
)
from pcpmodel.kernel.rules cimport (
    COMMIT_CHUNKS_WHILE_HIGH,
    COMMIT_WHOLE,
    DECAY_FIFTH,
    DECAY_NONE,
    TREE_FREES_ADD,
    TREE_FREES_AS_RULES,
    TREE_FREES_SKIP,
    TREE_HITS_ADD,
    TREE_HITS_AS_RULES,
    TREE_HITS_SKIP,
    TREE_REFILLS_IN_HOLDS,
    pcp_rules,
)

cdef enum:
    PCPF_PREV_FREE_HIGH_ORDER = 1  # the previous free had order 1..3
    PCPF_FREE_HIGH_BATCH = 2  # the cache is large: keep a batch of high-order pages


cdef struct per_cpu_pages:
    int own[16]  # bytes of the fields that only a tree has; first, for what follows to be one line
    int count  # base pages on the lists; == sum of the blocks' sizes between calls
    int high  # drain once count >= high [pages]; tuned lazily if rules.auto_high
    int high_min  # bounds of high [pages]; all three are equal in a kernel
    int high_max  # without rules.high_min_max
    int batch  # pages per refill or drain, >= 1 [pages]
    int free_count  # pages freed since the allocations stopped (rules.free_count); as a short
    int count_min  # smallest count since the last decay (rules.count_min)
    # Of a tree: what it was told (> 0: 1 + what an allocation that has begun halves; < 0: ~order
    # of a free), or what it is to drain yet [pages]; blocks of each hold of a refill, or pages of
    # each of a drain, less than 0 if high-order pages came in bulk.
    int due
    int chunk
    int8_t flags  # PCPF_*
    int8_t alloc_factor  # refill batch << alloc_factor; 0 .. batch_scale_max
    int8_t free_factor  # drain batch << free_factor (kernels without rules.free_count)
    int8_t expire  # vmstat ticks until a remote pageset is drained


# Functions of a tree as decisions on a struct per_cpu_pages (tree_glue.h).
cdef struct tree_steps:
    # Blocks that a refill asks for; all of rmqueue_pcplist() on an empty list but count.  Sets
    # chunk; ``holds``: by what rmqueue_bulk() does, which else is one hold.
    int (*refill)(
        per_cpu_pages *pcp, unsigned int zone_flags, int order, bint holds
    ) noexcept nogil
    # k times rmqueue_pcplist() on a list that has a block.  ``skip``: not each of them, where they
    # go on as they began (tree_glue.h).
    void (*hits)(per_cpu_pages *pcp, int order, int k, bint skip) noexcept nogil
    # Up to k times the free of a page, until one would drain; how many.
    int (*frees)(per_cpu_pages *pcp, unsigned int zone_flags, int k, bint skip) noexcept nogil
    # What k of either add to the fields that only the tree has, if that is the same each time.
    void (*own_add)(per_cpu_pages *pcp, int order, int k, bint frees) noexcept nogil
    # The commit of a free whose block is counted; sets due and chunk.  Returns what nr_pcp_high()
    # said, if that is above count just where nothing is to drain.
    int (*commit)(per_cpu_pages *pcp, unsigned int zone_flags, int order) noexcept nogil
    # decay_pcp_high(): pages that it drains; sets chunk.
    int (*decay)(per_cpu_pages *pcp, int *work) noexcept nogil
    # Pages of the first hold of drain_pages_zone() and of drain_zone_pages().
    int (*zone_hold)(per_cpu_pages *pcp) noexcept nogil
    int (*remote_hold)(per_cpu_pages *pcp) noexcept nogil


cdef inline const tree_steps *steps_of(const pcp_rules *r) noexcept nogil:
    return <const tree_steps *>r.tree


cdef inline int tree_refill(
    per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, int order
) noexcept nogil:
    """nr_pcp_alloc(): from the state before pcp_alloc_begin(), or without what that does."""
    cdef int count = pcp.free_count, n
    cdef int8_t factor = pcp.free_factor
    cdef bint begun = pcp.due > 0
    if begun:
        if r.free_count:
            pcp.free_count = <int16_t>(pcp.due - 1)
        else:
            pcp.free_factor = <int8_t>(pcp.due - 1)
    n = steps_of(r).refill(pcp, zone_flags, order, r.tree_hits & TREE_REFILLS_IN_HOLDS)
    if not begun:
        pcp.free_count, pcp.free_factor = count, factor
    pcp.due = 0
    return n


cdef inline int pcp_clamp(int value, int lo, int hi) noexcept nogil:
    """clamp() as the kernel evaluates it when ``lo > hi``."""
    if value >= hi:
        return hi
    return lo if value <= lo else value


cdef inline void pcp_alloc_begin(per_cpu_pages *pcp, const pcp_rules *r) noexcept nogil:
    """rmqueue_pcplist(): an allocation halves what consecutive frees built up."""
    if r.tree:
        pcp.due = 1 + (<uint16_t>pcp.free_count if r.free_count else pcp.free_factor)
        if not r.tree_hits & TREE_HITS_AS_RULES:
            return
    if r.free_count:
        pcp.free_count >>= 1
    else:
        pcp.free_factor >>= 1


cdef inline void pcp_alloc_end(per_cpu_pages *pcp, const pcp_rules *r, int order) noexcept nogil:
    """A block of 2**order pages leaves its list for the caller."""
    if r.tree and pcp.due > 0:
        pcp.due = 0
        if not r.tree_hits & TREE_HITS_AS_RULES:
            steps_of(r).hits(pcp, order, 1, False)
            return
        if r.tree_hits & TREE_HITS_ADD:
            steps_of(r).own_add(pcp, order, 1, False)
    pcp.count -= 1 << order
    if r.count_min and pcp.count < pcp.count_min:
        pcp.count_min = pcp.count


cdef inline int nr_pcp_alloc(
    per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, int order
) noexcept nogil:
    """Blocks of 2**order pages that a refill asks for; grows high and alloc_factor."""
    cdef int n = pcp.batch, high = pcp.high_min, cap, inhibit
    if r.tree:
        return tree_refill(pcp, r, zone_flags, order)
    if r.auto_high:
        high = pcp.high = pcp_clamp(pcp.high, pcp.high_min, pcp.high_max)
    if r.alloc_scale:
        if high < pcp.batch:  # disabled or boot pageset
            return 1
        if order == 0:
            n = pcp.batch << pcp.alloc_factor
    if r.auto_high and pcp.high_min != pcp.high_max:
        inhibit = ZONE_BELOW_HIGH if r.below_high else ZONE_RECLAIM_ACTIVE
        if not zone_flags & inhibit:
            high = pcp.high = min(high + n, pcp.high_max)
    if r.alloc_scale and order == 0:
        cap = max(high - pcp.count - pcp.batch, pcp.batch)
        if n <= cap and pcp.alloc_factor < r.batch_scale_max:
            pcp.alloc_factor += 1
        n = min(n, cap)
    return max(n >> order, 2) if n > 1 else n


cdef inline int refill_hold(const per_cpu_pages *pcp, const pcp_rules *r, int n) noexcept nogil:
    """Blocks of the next hold of a refill that has n to take yet: all of them, by every release.

    Between two holds of a tree's rmqueue_bulk() pcp->lock is kept.
    """
    return min(n, pcp.chunk) if r.tree else n


cdef inline int most_refilled(int batch, const pcp_rules *r) noexcept nogil:
    """Pages that no refill exceeds, of whatever order, by the rules of a release."""
    cdef int n = batch << r.batch_scale_max if r.alloc_scale else batch
    return max(n, 2 << MAX_PAGE_ORDER)


cdef inline bint pcp_commit(per_cpu_pages *pcp, const pcp_rules *r, int order) noexcept nogil:
    """Account a block of 2**order pages freed to its list; returns free_high.

    free_unref_page_commit(), from v6.15 on free_frozen_page_commit().
    """
    cdef bint free_high = False
    cdef int threshold
    pcp.count += 1 << order
    if r.tree:
        pcp.due = ~order
        return False
    if r.alloc_scale:
        pcp.alloc_factor >>= 1
    if 1 <= order <= PAGE_ALLOC_COSTLY_ORDER:
        if r.free_count:
            threshold = pcp.batch
            if r.free_high_pages:
                threshold = r.free_high_pages
            elif r.free_high_half_high_min:
                threshold += pcp.high_min // 2
            free_high = pcp.free_count >= threshold
        elif r.free_high:
            free_high = pcp.free_factor != 0
        if r.free_high_two_in_a_row:
            free_high = free_high and pcp.flags & PCPF_PREV_FREE_HIGH_ORDER
            pcp.flags |= PCPF_PREV_FREE_HIGH_ORDER
        if r.free_high_batch and pcp.flags & PCPF_FREE_HIGH_BATCH:
            free_high = free_high and pcp.count >= pcp.batch
    else:
        pcp.flags &= ~PCPF_PREV_FREE_HIGH_ORDER
    if r.free_count and pcp.free_count < pcp.batch << r.batch_scale_max:
        pcp.free_count = <int16_t>(pcp.free_count + (1 << order))  # wraps
    return free_high


cdef inline int nr_pcp_high(
    per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, bint free_high
) noexcept nogil:
    """Pages from which the free drains; tunes high."""
    cdef int high, freed, drop
    if r.tree:
        return steps_of(r).commit(pcp, zone_flags, ~pcp.due) if pcp.due < 0 else INT_MAX
    if not r.auto_high:
        high = pcp.high_min
        if high == 0 or free_high:
            return 0
        if r.reclaim_limit and zone_flags & ZONE_RECLAIM_ACTIVE:
            return min(4 * pcp.batch, high)
        return high

    high = pcp.high = pcp_clamp(pcp.high, pcp.high_min, pcp.high_max)
    if high == 0:
        return 0
    if free_high:
        pcp.high = max(high - (pcp.batch << r.batch_scale_max), pcp.high_min)
        return 0
    freed = pcp.free_count if r.free_count else pcp.batch << pcp.free_factor
    drop = max(freed, pcp.batch) if r.high_decrement_batch else freed
    if r.reclaim_limit and zone_flags & ZONE_RECLAIM_ACTIVE:
        pcp.high = max(high - drop, pcp.high_min)
        return min(4 * pcp.batch, pcp.high)
    if pcp.high_min == pcp.high_max:
        return high
    if r.below_high and zone_flags & ZONE_BELOW_HIGH:
        pcp.high = max(high - drop, pcp.high_min)
        return max(pcp.count, pcp.high_min)
    if pcp.count >= high and pcp.high < freed + pcp.batch:
        # Room for the next burst; this free still goes by the old value.
        pcp.high = pcp_clamp(freed + pcp.batch, pcp.high_min, pcp.high_max)
    return high


@cython.cdivision(True)
cdef inline int nr_pcp_free(
    per_cpu_pages *pcp, const pcp_rules *r, int high, bint free_high
) noexcept nogil:
    """Base pages that a free with count >= high drains; grows free_factor."""
    cdef int limit, n
    if r.tree:
        n, pcp.due = pcp.due, 0
        return n
    if free_high:
        if r.free_high_limited:
            return min(pcp.count, pcp.batch << r.batch_scale_max)
        return pcp.count
    if not r.scaled_drains:
        return pcp.batch
    if high < pcp.batch:  # disabled or boot pageset
        return 1
    limit = high - pcp.batch  # leave a batch on the lists
    if r.free_count:
        return pcp_clamp(pcp.free_count, pcp.batch, limit)
    n = pcp.batch << pcp.free_factor
    if n < limit + r.free_factor_inclusive:
        if not r.free_factor_cap or pcp.free_factor < r.batch_scale_max:
            pcp.free_factor += 1
    return pcp_clamp(n, pcp.batch, limit)


@cython.cdivision(True)
cdef inline int decay_pcp_high(
    per_cpu_pages *pcp, const pcp_rules *r, bint *work_ret
) noexcept nogil:
    """Lower high at a vmstat tick; returns the base pages to drain from list 0 on.

    ``work_ret`` tells whether the worker has reason to come back.  After the
    drain the caller sets ``count_min = count``.
    """
    cdef int lowered, step, excess
    work_ret[0] = False
    if r.decay == DECAY_NONE:
        return 0
    if r.tree:
        return steps_of(r).decay(pcp, <int *>work_ret)
    if pcp.high > pcp.high_min:
        if r.count_min:
            step = pcp.high // 5 if r.decay == DECAY_FIFTH else pcp.high >> 3
            lowered = pcp.high - min(pcp.count_min, step)
        elif r.decay == DECAY_FIFTH:
            lowered = pcp.high * 4 // 5
        else:
            lowered = pcp.high - (pcp.high >> 3)
        pcp.high = max(pcp.count - (pcp.batch << r.batch_scale_max), lowered, pcp.high_min)
        work_ret[0] = pcp.high > pcp.high_min
    excess = max(pcp.count - pcp.high, 0)
    if excess > 0:
        work_ret[0] = True
    return excess


# What happens between two decisions


cdef inline int pcp_commit_due(
    per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, int order, int *high_ret
) noexcept nogil:
    """A block joined its list: the pages that its free drains by the kernel's rules, or 0.

    ``high_ret``: what nr_pcp_high() said, for `commit_goes_on`.
    """
    cdef bint free_high = pcp_commit(pcp, r, order)
    high_ret[0] = nr_pcp_high(pcp, r, zone_flags, free_high)
    return nr_pcp_free(pcp, r, high_ret[0], free_high) if pcp.count >= high_ret[0] else 0


cdef enum:
    VMSTAT_EXPIRE = 3  # ticks until a remote pageset that was not used is drained

    EXPIRE_IDLE = 0  # nothing to drain, or nothing to wait for
    EXPIRE_COUNTS = 1  # some ticks to go
    EXPIRED = 2  # drain_zone_pages() now


cdef inline void pcp_alloc_hits(
    per_cpu_pages *pcp, const pcp_rules *r, int k, int order
) noexcept nogil:
    """k times pcp_alloc_begin() and pcp_alloc_end() with no refill between them."""
    if r.tree and not r.tree_hits & TREE_HITS_AS_RULES:
        steps_of(r).hits(pcp, order, k, r.tree_hits & TREE_HITS_SKIP)
        return
    if r.tree_hits & TREE_HITS_ADD:
        steps_of(r).own_add(pcp, order, k, False)
    if r.free_count:
        pcp.free_count >>= min(k, 31)
    else:
        pcp.free_factor >>= min(k, 31)
    pcp.count -= k << order
    if r.count_min and pcp.count < pcp.count_min:
        pcp.count_min = pcp.count


cdef inline void pcp_alloc_rest(
    per_cpu_pages *pcp, const pcp_rules *r, int k, int order
) noexcept nogil:
    """After a refill: pcp_alloc_end() of the block that it was for, then k - 1 hits."""
    if r.tree:
        pcp_alloc_end(pcp, r, order)
        pcp_alloc_hits(pcp, r, k - 1, order)
        return
    if r.free_count:
        pcp.free_count >>= min(k - 1, 31)
    else:
        pcp.free_factor >>= min(k - 1, 31)
    pcp.count -= k << order
    if r.count_min and pcp.count < pcp.count_min:
        pcp.count_min = pcp.count


cdef inline int quiet_high(
    const per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags
) noexcept nogil:
    """What nr_pcp_high() returns, if it would tune nothing but the bounds of high; else 0."""
    if r.auto_high:
        if zone_flags & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH):
            return 0
        if pcp.high_min > pcp.high_max:  # then every clamp() gives another value
            return 0
        return pcp_clamp(pcp.high, pcp.high_min, pcp.high_max)
    if r.reclaim_limit and zone_flags & ZONE_RECLAIM_ACTIVE:
        return min(pcp.high_min, 4 * pcp.batch)
    return pcp.high_min


cdef inline int pcp_free_hits(
    per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, int k
) noexcept nogil:
    """Up to k times pcp_commit() and nr_pcp_high() of a page, as long as that drains nothing.

    Returns how many: less than k, or 0, where the next one has to be asked for by itself.
    """
    cdef int full = pcp.batch << r.batch_scale_max, high
    if r.tree and not r.tree_hits & TREE_FREES_AS_RULES:
        return steps_of(r).frees(pcp, zone_flags, k, r.tree_hits & TREE_FREES_SKIP)
    high = quiet_high(pcp, r, zone_flags)
    k = min(k, high - 1 - pcp.count)
    if k <= 0:
        return 0
    if r.alloc_scale:
        pcp.alloc_factor >>= min(k, 31)
    pcp.count += k
    pcp.flags &= ~PCPF_PREV_FREE_HIGH_ORDER
    if r.free_count and pcp.free_count < full:
        pcp.free_count += k
        pcp.free_count = min(pcp.free_count, full) if full <= INT16_MAX else <int16_t>pcp.free_count
    if r.auto_high:
        pcp.high = high
    if r.tree_hits & TREE_FREES_ADD:
        steps_of(r).own_add(pcp, 0, k, True)
    return k


cdef inline bint commit_is_whole(const pcp_rules *r) noexcept nogil:
    """A commit drains in one hold, whatever it drains."""
    return r.commit_drain == COMMIT_WHOLE and not r.tree


cdef inline int commit_hold(const per_cpu_pages *pcp, const pcp_rules *r, int n) noexcept nogil:
    """Pages of the next hold of a commit that has n to drain yet."""
    if r.tree:
        return min(n, abs(pcp.chunk))
    return n if commit_is_whole(r) else min(n, pcp.batch)


cdef inline bint commit_goes_on(
    const per_cpu_pages *pcp, const pcp_rules *r, int n, int high
) noexcept nogil:
    """After a hold: has a commit that had n pages to drain yet another one?

    ``high`` is what nr_pcp_high() said.  Between two holds both locks are free.
    """
    if n <= 0 or commit_is_whole(r):
        return False
    return pcp.count >= (max(high, 1) if r.commit_drain == COMMIT_CHUNKS_WHILE_HIGH else 1)


cdef inline bint commit_in_bulk(
    const per_cpu_pages *pcp, const pcp_rules *r, bint free_high
) noexcept nogil:
    """Whether a commit drains because high-order pages came in bulk, once nr_pcp_high() is asked.

    ``free_high`` is what pcp_commit() said.
    """
    return pcp.chunk < 0 if r.tree else free_high


cdef inline int decay_hold(const per_cpu_pages *pcp, const pcp_rules *r, int n) noexcept nogil:
    """Pages of the next hold of a decay that has n to drain yet."""
    if r.tree:
        return min(n, pcp.chunk)
    return min(n, pcp.batch) if r.decay_chunks else n


cdef inline int zone_hold(per_cpu_pages *pcp, const pcp_rules *r) noexcept nogil:
    """Pages of the next hold of drain_pages_zone()."""
    if r.tree:
        return steps_of(r).zone_hold(pcp)
    if r.drain_zone_chunks:
        return min(pcp.count, pcp.batch << r.batch_scale_max)
    return pcp.count


cdef inline int remote_hold(per_cpu_pages *pcp, const pcp_rules *r) noexcept nogil:
    """Pages that drain_zone_pages() takes of a remote pageset."""
    if r.tree:
        return steps_of(r).remote_hold(pcp)
    return min(pcp.count, pcp.batch)


cdef inline int pcp_expire(per_cpu_pages *pcp, bint used, bint local) noexcept nogil:
    """refresh_cpu_vm_stats() on a pageset: EXPIRE_IDLE, EXPIRE_COUNTS or EXPIRED.

    ``used``: the zone's counters changed on this CPU since the last tick; ``local``: the zone is
    on the CPU's node.
    """
    if used:
        pcp.expire = VMSTAT_EXPIRE
    if pcp.expire == 0 or pcp.count == 0:
        return EXPIRE_IDLE
    if local:
        pcp.expire = 0
        return EXPIRE_IDLE
    pcp.expire -= 1
    return EXPIRE_COUNTS if pcp.expire else EXPIRED


# A user's policy


cdef enum:
    POLICY_ALLOC = 1
    POLICY_HIGH = 2
    POLICY_FREE = 3
    POLICY_DECAY = 4
    POLICY_FREE_HIGH = 5
    POLICY_STOPPED = 6  # of `error`: Ctrl-C ended a callback


cdef struct policy_state:
    const pcp_policy *policy  # NULL: the kernel's rules alone
    int error  # 0, or POLICY_*: the callback that failed, or that one was stopped
    int answer  # what it returned
    int cpu
    long long holds  # these three as in pcp_view
    long long waits
    long long user[4]


ctypedef int (*policy_callback)(pcp_view *view, void *ctx) noexcept nogil

cdef int ask_policy(
    policy_state *s, int which, policy_callback callback, per_cpu_pages *pcp,
    const pcp_rules *r, unsigned int zone_flags, int order, bint free_high, int threshold
) noexcept nogil
cdef int policy_failed(policy_state *s) except -1
cdef int policy_from(
    object policy, const pcp_rules *r, const pcp_policy **policy_ret
) except -1
cdef dict pcp_scalars(const per_cpu_pages *pcp)


cdef inline int decide_alloc(
    policy_state *s, per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, int order
) noexcept nogil:
    if s.policy == NULL or s.policy.nr_pcp_alloc == NULL:
        return nr_pcp_alloc(pcp, r, zone_flags, order)
    return ask_policy(
        s, POLICY_ALLOC, <policy_callback>s.policy.nr_pcp_alloc, pcp, r, zone_flags, order, 0, 0
    )


cdef inline bint decide_free_high(
    policy_state *s, per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, int order,
    bint free_high
) noexcept nogil:
    """After pcp_commit(), which says ``free_high``."""
    if s.policy == NULL or s.policy.free_high == NULL:
        return free_high
    if not 1 <= order <= PAGE_ALLOC_COSTLY_ORDER:
        return free_high
    return ask_policy(
        s, POLICY_FREE_HIGH, <policy_callback>s.policy.free_high, pcp, r, zone_flags, order,
        free_high, 0
    )


cdef inline int decide_high(
    policy_state *s, per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, int order,
    bint free_high
) noexcept nogil:
    if s.policy == NULL or s.policy.nr_pcp_high == NULL:
        return nr_pcp_high(pcp, r, zone_flags, free_high)
    return ask_policy(
        s, POLICY_HIGH, <policy_callback>s.policy.nr_pcp_high, pcp, r, zone_flags, order,
        free_high, 0
    )


cdef inline int decide_free(
    policy_state *s, per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags, int order,
    bint free_high, int threshold
) noexcept nogil:
    if s.policy == NULL or s.policy.nr_pcp_free == NULL:
        return nr_pcp_free(pcp, r, threshold, free_high)
    return ask_policy(
        s, POLICY_FREE, <policy_callback>s.policy.nr_pcp_free, pcp, r, zone_flags, order,
        free_high, threshold
    )


cdef inline int decide_decay(
    policy_state *s, per_cpu_pages *pcp, const pcp_rules *r, unsigned int zone_flags,
    bint *work_ret
) noexcept nogil:
    cdef int excess
    if s.policy == NULL or s.policy.decay_pcp_high == NULL:
        return decay_pcp_high(pcp, r, work_ret)
    excess = min(
        pcp.count,
        ask_policy(
            s, POLICY_DECAY, <policy_callback>s.policy.decay_pcp_high, pcp, r, zone_flags, 0, 0, 0
        ),
    )
    work_ret[0] = excess > 0 or pcp.high > pcp.high_min
    return excess


# Page frames on the lists: pcp.pyx


cdef struct pageset:
    per_cpu_pages pcp
    policy_state policy
    page_ring lists[PCP_LISTS_ROOM]  # local page numbers, head first
    int cpu
    int64_t stat_diff  # change of NR_FREE_PAGES by this CPU since the last vmstat tick


cdef struct drain_plan:
    int pages  # still to drain [pages]; 0: nothing (more) to do
    int pindex  # list that every hold starts with
    int high  # threshold in force
    bint drained  # this commit drains


cdef void pageset_destroy(pageset *ps) noexcept nogil
cdef int pcp_refill(
    zone *z, pageset *ps, int order, int mt, int n, unsigned int flags
) noexcept nogil
cdef uint32_t pcp_take(zone *z, pageset *ps, int pindex) noexcept nogil
cdef uint32_t rmqueue_pcplist_locked(
    zone *z, pageset *ps, int order, int mt, unsigned int flags
) noexcept nogil
cdef uint32_t rmqueue_pcplist(
    zone *z, pageset *ps, int order, int mt, unsigned int flags
) noexcept nogil
cdef void free_pcppages_bulk(zone *z, pageset *ps, int n, int pindex) noexcept nogil
cdef void commit_begin(
    zone *z, pageset *ps, uint32_t page, int order, int type_, bint nolock, drain_plan *plan
) noexcept nogil
cdef bint drain_step(zone *z, pageset *ps, drain_plan *plan) noexcept nogil
cdef void commit_end(zone *z, const drain_plan *plan) noexcept nogil
cdef void free_prepared(
    zone *z, pageset *ps, uint32_t page, int order, bint nolock
) noexcept nogil
cdef void free_past(zone *z, pageset *ps, uint32_t page, int order) noexcept nogil
cdef uint32_t rmqueue_past(
    zone *z, pageset *ps, int order, int mt, unsigned int flags
) noexcept nogil
cdef void drain_pages_zone(zone *z, pageset *ps) noexcept nogil
cdef void drain_zone_pages(zone *z, pageset *ps) noexcept nogil
cdef bint decay_and_drain(zone *z, pageset *ps) noexcept nogil

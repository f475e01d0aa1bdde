"""What the event engine does at once: all that a CPU does up to its next interaction.

A run of PCP hits or of frees below ``high`` is a handful of integer operations whatever its
length.  `pcpmodel.simulation.per_page` has none of these short cuts.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from pcpmodel.hardware.lock cimport lock_grant
from pcpmodel.kernel.pages cimport ZONE_BELOW_HIGH, ZONE_RECLAIM_ACTIVE
from pcpmodel.kernel.pcp cimport (
    nr_pcp_alloc,
    pcp_alloc_begin,
    pcp_alloc_hits,
    pcp_alloc_rest,
    pcp_free_hits,
)
from pcpmodel.simulation.books cimport count_hold
from pcpmodel.simulation.cpu cimport granted, meet, scaled
from pcpmodel.simulation.lists cimport put_pages, take_pages
from pcpmodel.simulation.locks cimport drawn_hold, lru_batch, released
from pcpmodel.simulation.program cimport (
    arrive_direct,
    arrive_refill,
    control,
    free_block,
    lru_counts,
    past_its_list,
)
from pcpmodel.simulation.structs cimport (
    ARRIVED,
    BY_NEED,
    LRU,
    REFILL,
    RUNNING,
    STRETCH,
    apart,
    count_t,
    cpu_t,
    handover,
    lock_t,
    op_t,
    pcp_of,
    pcp_t,
    state_t,
    zone_t,
)
from pcpmodel.simulation.zones cimport blocks_drained, drained, refilled
from pcpmodel.workload.ops cimport OP_ALLOC


cdef inline bint counts_alone(const state_t *s) noexcept nogil:
    """Whether a run has nothing but counts: no pages, no rule or tree of a user's, no careful CPU.

    Most runs have not, and `hold_at_once` is for them.
    """
    return (
        s.pages.mm == NULL and s.lists.policy == NULL and not s.lists.trylock
        and not s.rules.tree and s.changes.careful_from == INT64_MAX
    )


cdef enum:
    STRETCH_EVENTS = 1000  # as which it counts where it was not over then


@cython.cdivision(True)
cdef inline int fitting(int64_t k, int64_t ps, int64_t room) noexcept nogil:
    """How many of ``k`` steps of ``ps`` begin before ``room`` has passed."""
    if k * ps <= room:
        return <int> k
    return <int> ((room + ps - 1) // ps)


cdef inline void skip_allocs(state_t *s, cpu_t *c, bint alone) noexcept nogil:
    """As many PCP hits as there are blocks, or arrive for a refill."""
    cdef op_t *op = c.task.pc
    cdef pcp_t *p = pcp_of(c, c.task.zone[op.zone])
    cdef int k
    cdef int64_t ps = scaled(op.ps, c.task.factor)
    cdef bint trylock = not alone and s.lists.trylock
    if past_its_list(s, c, trylock):
        arrive_direct(c)
        return
    k = min(c.task.left, p.blocks[op.pindex])
    if k == 0:
        arrive_refill(c)
        return
    if trylock:
        k = min(k, c.quiet)
    if op.depth:
        k = min(k, c.task.lru_left[0])
    k = fitting(k, ps, c.timer - c.time)
    pcp_alloc_hits(&p.pcp, &s.rules, k, op.order)
    p.blocks[op.pindex] -= k
    take_pages(s, c, c.task.zone[op.zone], op.pindex, k)
    c.task.left -= k
    c.time += k * ps
    lru_counts(s, c, k)
    if trylock:
        c.quiet -= k
    elif c.task.left > 0 and p.blocks[op.pindex] == 0 and c.time < c.timer and c.state == RUNNING:
        arrive_refill(c)


cdef inline void skip_frees(state_t *s, cpu_t *c, bint alone) noexcept nogil:
    """As many order-0 frees as stay below ``high``; the next one goes step by step."""
    cdef op_t *op = c.task.pc
    cdef pcp_t *p = pcp_of(c, c.task.zone[op.zone])
    cdef int k, n
    cdef int64_t ps
    cdef bint trylock = not alone and s.lists.trylock
    if past_its_list(s, c, trylock):
        arrive_direct(c)
        return
    if op.order or not alone and s.lists.asks_high:
        free_block(s, c)
        return
    k = c.task.left
    if trylock:
        k = min(k, c.quiet)
    if op.depth:
        k = min(k, c.task.lru_left[1])
    ps = scaled(op.ps, c.task.factor)
    k = fitting(k, ps, c.timer - c.time)
    n = pcp_free_hits(&p.pcp, &s.rules, p.view, k)
    if n == 0:
        free_block(s, c)
        return
    put_pages(s, c, c.task.zone[op.zone], op.pindex, n)
    c.task.left -= n
    c.time += n * ps
    lru_counts(s, c, n)
    if trylock:
        c.quiet -= n
    elif n < k:
        free_block(s, c)


cdef inline void advance(state_t *s, cpu_t *c, bint alone) noexcept nogil:
    """Run a CPU up to its next interaction, or until it blocks or finishes.

    Not past `careful_from`: from then on all go step by step, in the order of time.  Nor for ever:
    one that hardly needs a lock is RUNNING after a stretch, and goes on with its next event.
    ``alone``: `counts_alone`, where nobody is careful and nothing fails.
    """
    cdef int left = STRETCH
    while c.state == RUNNING and left and (
        alone or c.time < s.changes.careful_from and not s.failed
    ):
        left -= 1
        # With blocks left of an operation and nothing else to do there is nothing to control.
        if (c.task.left <= 0 or c.chore.kind or c.timer <= c.time) and control(s, c):
            return
        if c.task.pc.code == OP_ALLOC:
            skip_allocs(s, c, alone)
        else:
            skip_frees(s, c, alone)


cdef inline bint take_at_once(state_t *s, cpu_t *c, pcp_t *p) noexcept nogil:
    """After a refill: the block that it was for and all others, up to the next one or the LRU lock.

    Then the CPU is at a lock again, or, at the end of the operation, RUNNING.  False, and nothing
    is done, where a timer comes between.
    """
    cdef op_t *op = c.task.pc
    cdef int k = min(p.blocks[op.pindex], c.task.left)
    cdef int64_t ps
    if op.depth:
        k = min(k, c.task.lru_left[0])
    ps = k * scaled(op.ps, c.task.factor)
    if ps >= c.timer - c.time:
        return False
    pcp_alloc_rest(&p.pcp, &s.rules, k, op.order)
    p.blocks[op.pindex] -= k
    c.task.left -= k
    c.time += ps
    if c.task.left == 0:
        c.state = RUNNING
    lru_counts(s, c, k)
    return True


cdef inline bint at_once(const state_t *s, const cpu_t *c) noexcept nogil:
    """Whether `lru_at_once` or `hold_at_once` do what a CPU comes for.

    It comes to a lock for itself, and the zone has plenty of pages.
    """
    if c.state != ARRIVED or c.ask.why != BY_NEED:
        return False
    if c.ask.kind == LRU:
        return True
    return c.ask.kind < LRU and s.zones.zone[c.ask.zone].free > s.zones.zone[c.ask.zone].plenty


cdef inline void held_at_once(state_t *s, cpu_t *c, int kind, int far, int64_t grant,
                              int64_t blocks) noexcept nogil:
    """How long a hold of a queued lock takes, and the books, as `account` has them."""
    cdef lock_t *lock = &s.lock[c.ask.lock]
    cdef int64_t hold = drawn_hold(s, c, lock, kind, far, blocks)
    granted(c, grant)
    count_hold(s, c, lock, kind, c.time, grant - c.time, hold)
    c.time = lock.queue.free_at = grant + hold


cdef inline void lru_at_once(state_t *s, cpu_t *c) noexcept nogil:
    """A hold of a queued LRU lock: what `interact`, `account` and `released` do."""
    cdef lock_t *lock = &s.lock[c.ask.lock]
    cdef int far = apart(lock, c), pages = lru_batch(s, c)
    cdef int64_t grant = lock_grant(&lock.queue, c.time, handover(s, LRU, far))
    meet(s, c)
    s.holds.late = 0
    held_at_once(s, c, LRU, far, grant, pages)
    c.state = RUNNING


cdef inline bint hold_at_once(state_t *s, cpu_t *c, int kind) noexcept nogil:
    """A refill, or a drain of a commit, by count at a queued lock, and what follows it.

    What `interact`, `account` and `released` do, without what cannot be: the zone has plenty of
    pages and the CPU comes for itself.
    """
    cdef op_t *op = c.task.pc
    cdef pcp_t *p = pcp_of(c, c.ask.zone)
    cdef zone_t *zone = &s.zones.zone[c.ask.zone]
    cdef count_t *n = c.count
    cdef lock_t *lock = &s.lock[c.ask.lock]
    cdef int far = apart(lock, c), flags = zone.flags | (p.view & ZONE_RECLAIM_ACTIVE), pages
    cdef int64_t blocks, grant = lock_grant(&lock.queue, c.time, handover(s, kind, far))
    meet(s, c)
    if kind == REFILL:
        pcp_alloc_begin(&p.pcp, &s.rules)
        blocks = nr_pcp_alloc(&p.pcp, &s.rules, flags, op.order)
        refilled(p, zone, n, c.ask.pindex, op.order, <int> blocks)
        s.holds.late = blocks * s.holds.block[REFILL][c.ask.pindex]
    else:
        blocks = blocks_drained(s, p, c.plan.drain, c.ask.pindex, &pages)
        drained(p, zone, n, pages)
        zone.flags &= ~ZONE_BELOW_HIGH
        flags &= ~ZONE_BELOW_HIGH
    p.touched = 1
    p.view = flags
    n.moved_blocks += blocks
    held_at_once(s, c, kind, far, grant, blocks)
    if kind == REFILL and take_at_once(s, c, p):
        return True
    c.plan.got = <int> blocks
    return False

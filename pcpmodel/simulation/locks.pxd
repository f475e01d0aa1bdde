"""A hold of a zone or LRU lock: what is done, how long it takes, what comes before and after.

How long a hold takes is said in one place, `hold_ps`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint32_t, uint64_t

from pcpmodel.kernel.pages cimport ZONE_BELOW_HIGH, ZONE_RECLAIM_ACTIVE, pages_unlikely
from pcpmodel.kernel.pcp cimport commit_goes_on, commit_hold, most_refilled, pcp_alloc_end
from pcpmodel.simulation.books cimport count_hold
from pcpmodel.simulation.cpu cimport look_beside, paced, scaled
from pcpmodel.simulation.lists cimport take_pages, trylock_fails, unlock_pcp
from pcpmodel.simulation.program cimport has_list, stepped
from pcpmodel.simulation.structs cimport (
    ABOVE_HIGH,
    BY_COMMIT,
    BY_NEED,
    BY_REMOTE,
    BY_TICK,
    COSTS,
    DIRECT,
    DRAIN,
    LOOK,
    LOOK_BESIDE,
    LRU,
    PAST,
    REFILL,
    RUNNING,
    count_t,
    cpu_t,
    lock_t,
    pcp_of,
    pcp_t,
    policy_of,
    state_t,
    zone_t,
)
from pcpmodel.simulation.zones cimport (
    balance_pgdat,
    drain_lists,
    past_lists,
    refill_list,
    stays,
    tell,
)
from pcpmodel.splitmix cimport draw
from pcpmodel.workload.ops cimport HOME, TABLE


cdef inline int64_t hold_ps(state_t *s, cpu_t *c, lock_t *lock, int kind, int far, int64_t blocks,
                            uint64_t bits) noexcept nogil:
    """How long a hold takes that moves as many blocks; ``bits`` (10) are its luck.

    A fixed part and what is warm, at the pace of the core; then the lines that come from elsewhere:
    of the pages that it moves, and of the lock and its lists from who had them last, so far away.
    """
    cdef int64_t *cost = s.holds.cost[kind]
    cdef int64_t mean
    if pages_unlikely(c.ask.why == DIRECT):  # rmqueue_buddy(), free_one_page(): not in bulk
        mean = s.holds.direct
    elif blocks <= COSTS:
        mean = cost[blocks]
    else:
        mean = cost[COSTS] + (blocks - COSTS) * (cost[COSTS] - cost[COSTS - 1])
    mean = paced(c, mean) + s.holds.late + s.holds.first[kind][far]
    lock.seat = c.seat
    return max(scaled(mean, s.holds.spread[kind][bits]), 1)


cdef inline int64_t drawn_hold(state_t *s, cpu_t *c, lock_t *lock, int kind, int far,
                               int64_t blocks) noexcept nogil:
    """How long this hold takes; the pace of the work that follows is drawn, too."""
    cdef uint64_t bits = draw(&c.rng)
    c.task.factor = paced(c, s.programs.speed[bits >> 44 & (TABLE - 1)])
    return hold_ps(s, c, lock, kind, far, blocks, bits >> 54)


cdef inline int64_t quickest_refill(state_t *s) noexcept nogil:
    """No hold that takes pages from a zone is shorter [ps]."""
    cdef int64_t mean = s.holds.direct, luck = s.holds.spread[REFILL][0]
    cdef int i
    if s.holds.cost[REFILL][COSTS] < s.holds.cost[REFILL][COSTS - 1]:
        return 1  # and so of as many blocks as one likes
    for i in range(1, COSTS + 1):
        mean = min(mean, s.holds.cost[REFILL][i])
    for i in range(TABLE):
        luck = min(luck, <int64_t> s.holds.spread[REFILL][i])
    return max(scaled(mean, <uint32_t> luck), 1)


cdef inline int64_t most_of_a_refill(state_t *s) noexcept nogil:
    """No hold takes more pages from a zone, before or after any change of the machine."""
    cdef int i, z, batch = 1
    for z in range(s.nr_zones):
        batch = max(batch, s.lists.pcp[z].pcp.batch)
        for i in range(s.changes.number):
            batch = max(batch, s.changes.size[i * s.nr_zones + z].batch)
    return most_refilled(batch, &s.rules)


cdef inline int lru_batch(state_t *s, cpu_t *c) noexcept nogil:
    """Pages that go to the LRU lists, or off them, in the hold that begins."""
    cdef int off = c.ask.off, pages = s.holds.folios[off] - c.task.lru_left[off]
    c.task.lru_left[off] = s.holds.folios[off]
    c.count.lru_holds += 1
    return pages


cdef inline int64_t interact(state_t *s, cpu_t *c, int far) noexcept nogil:
    """What a CPU does with the lock, in lock order; returns how long it holds it.

    ``far`` is how far it is from the last holder.
    """
    cdef pcp_t *p
    cdef zone_t *zone
    cdef cpu_t *owner
    cdef count_t *n = c.count
    cdef int64_t blocks
    cdef uint64_t before
    s.holds.late = 0
    if c.ask.kind == LRU:
        blocks = lru_batch(s, c)
    else:
        p = pcp_of(c, c.ask.zone)
        zone = &s.zones.zone[c.ask.zone]
        if pages_unlikely(c.ask.why == DIRECT):
            blocks = past_lists(s, c, zone)
        elif pages_unlikely(c.ask.why == BY_REMOTE):
            blocks = drain_lists(s, c, c.chore.owner, zone)
        elif c.ask.kind == REFILL:
            blocks = refill_list(s, c, p, zone)
        else:
            before = n.drain_pages
            blocks = drain_lists(s, c, c.id, zone)
            if c.ask.why == BY_TICK:
                n.tick_pages += n.drain_pages - before
            elif (c.ask.why == BY_COMMIT and zone.flags & ZONE_BELOW_HIGH
                    and zone.free > zone.high_wmark):
                zone.flags &= ~ZONE_BELOW_HIGH
        if pages_unlikely(s.lists.policy != NULL) and c.ask.why != DIRECT:
            owner = &s.cpu[c.chore.owner] if c.ask.why == BY_REMOTE else c
            policy_of(s, owner, c.ask.zone).holds += 1
        p.touched = 1
        p.view = zone.flags | (p.view & ZONE_RECLAIM_ACTIVE)
        n.moved_blocks += blocks
    return drawn_hold(s, c, &s.lock[c.ask.lock], c.ask.kind, far, blocks)


cdef inline void account(state_t *s, cpu_t *c, int64_t arrival, int64_t grant,
                         int64_t hold) noexcept nogil:
    """A hold is over: what others see of it, and the books."""
    cdef zone_t *zone
    cdef int kind
    if c.ask.kind != LRU:
        zone = &s.zones.zone[c.ask.zone]
        if pages_unlikely(zone.free <= zone.high_wmark or zone.level < ABOVE_HIGH):
            tell(s, zone, grant + hold)
        if pages_unlikely(s.lists.policy != NULL) and grant > arrival and c.ask.why < BY_REMOTE:
            policy_of(s, c, c.ask.zone).waits += 1
    kind = PAST if pages_unlikely(c.ask.why == DIRECT) else c.ask.kind
    count_hold(s, c, &s.lock[c.ask.lock], kind, arrival, grant - arrival, hold)


cdef inline bint may_turn_back(const state_t *s, const cpu_t *c) noexcept nogil:
    return (c.waiter | s.zones.watch) != 0 or c.ask.kind > LRU


cdef inline bint turns_back(state_t *s, cpu_t *c) noexcept nogil:
    """What a CPU sees as it comes to a lock; whether it goes on without the lock.

    Between two chunks of a commit the PCP lock is free.  Another CPU that spins for it has it
    before a trylock can succeed, and the rest stays on the lists.
    """
    cdef pcp_t *p
    if c.ask.kind == LOOK:
        balance_pgdat(s, c)
        return True
    if c.ask.kind == LOOK_BESIDE:
        look_beside(s, c)
        return True
    if c.ask.kind == LRU:
        return False
    if c.waiter and c.ask.kind == DRAIN and c.ask.why == BY_COMMIT and c.ask.relocks:
        c.state = RUNNING
        c.ask.relocks = 0
        unlock_pcp(s, c)
        stepped(s, c)
        return True
    p = pcp_of(c, c.ask.zone)
    p.view = (p.view & ~ZONE_RECLAIM_ACTIVE) | s.zones.zone[c.ask.zone].reclaims
    if not s.zones.watch or c.ask.kind != REFILL or c.ask.relocks or c.task.pc.zone != HOME:
        return False
    if stays(s, c):
        return False
    unlock_pcp(s, c)  # which it does not even have
    return True


cdef inline void released(state_t *s, cpu_t *c) noexcept nogil:
    """The lock has just been released at ``c.time``: what the CPU does about it."""
    cdef pcp_t *p
    cdef bint commit = c.ask.kind == DRAIN and c.ask.why == BY_COMMIT
    if commit:
        p = pcp_of(c, c.ask.zone)
        if commit_goes_on(&p.pcp, &s.rules, c.plan.rest, c.plan.high):
            c.plan.drain = commit_hold(&p.pcp, &s.rules, c.plan.rest)
            c.plan.rest -= c.plan.drain
            c.ask.relocks = 1
            return
        c.ask.relocks = 0
    elif pages_unlikely(s.rules.tree != 0) and c.ask.kind == REFILL and c.ask.why == BY_NEED:
        c.ask.relocks = c.plan.rest > 0
        if c.ask.relocks:
            return
    c.state = RUNNING
    unlock_pcp(s, c)
    if pages_unlikely(c.ask.kind == REFILL and c.plan.got == 0):
        return  # looks for another zone
    if commit:
        stepped(s, c)
    elif pages_unlikely(c.ask.why == BY_REMOTE):
        pcp_of(&s.cpu[c.chore.owner], c.ask.zone).remote = c.time
    elif pages_unlikely(c.ask.why == DIRECT):
        if has_list(s, c) and trylock_fails(c, s.lists.trylock):
            c.quiet = s.lists.fails[draw(&c.rng) >> 54]
        stepped(s, c)
    elif c.ask.kind == REFILL:
        c.quiet -= s.lists.trylock
        p = pcp_of(c, c.ask.zone)
        p.blocks[c.ask.pindex] -= 1
        take_pages(s, c, c.ask.zone, c.ask.pindex, 1)
        pcp_alloc_end(&p.pcp, &s.rules, c.task.pc.order)
        stepped(s, c)

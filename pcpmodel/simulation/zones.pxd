"""Zones: what moves under their lock, what CPUs know of their free pages, who goes where, kswapd.

Who takes pages learns at the end of a hold what it left (`tell`); others see it from then on
(`level_seen`).
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t

from pcpmodel.kernel.buddy cimport free_direct, rmqueue_buddy
from pcpmodel.kernel.lists cimport drain_costs, pindex_to_order
from pcpmodel.kernel.pages cimport (
    MIGRATE_MOVABLE,
    NO_PAGE,
    W_HELD,
    W_MOVABLE,
    ZONE_BELOW_HIGH,
    ZONE_RECLAIM_ACTIVE,
    fill_words,
    page_ring,
    page_ring_push_tail,
    page_ring_reserve,
    pages_unlikely,
)
from pcpmodel.kernel.pcp cimport pcp_alloc_begin, refill_hold
from pcpmodel.simulation.cpu cimport doze, next_op, wake
from pcpmodel.simulation.lists cimport (
    drain_pages,
    next_to_free,
    one_block_line,
    refill_blocks,
    refill_pages,
    use_pages,
)
from pcpmodel.simulation.structs cimport (
    ABOVE_HIGH,
    ABOVE_LOW,
    ABOVE_MIN,
    BLOCKED,
    DRAIN,
    OUT_OF_MEMORY,
    REFILL,
    RUNNING,
    count_t,
    cpu_t,
    held_of,
    mine_of,
    notice_t,
    pcp_of,
    pcp_t,
    state_t,
    zone_t,
)
from pcpmodel.workload.ops cimport HOME


cdef inline int level_of(const zone_t *zone) noexcept nogil:
    return (
        (zone.free > zone.min_wmark) + (zone.free > zone.low_wmark)
        + (zone.free > zone.high_wmark)
    )


cdef inline void watch(state_t *s) noexcept nogil:
    """From now on CPUs look at the free pages of zones."""
    cdef int i
    s.zones.watch = 1
    for i in range(s.nr_zones):
        s.zones.zone[i].plenty = INT64_MAX


cdef inline void tell(state_t *s, zone_t *zone, int64_t at) noexcept nogil:
    """From ``at`` on, the end of a hold, all CPUs see what it has done to the zone."""
    cdef notice_t *notice
    cdef int level = level_of(zone)
    if level == zone.level:
        return
    watch(s)
    zone.level = level
    # There are more places than CPUs, each in one hold: with none left the oldest is past.
    if zone.tail - zone.head > <uint32_t> zone.mask:
        zone.seen = zone.notice[zone.head & zone.mask].level
        zone.head += 1
    notice = &zone.notice[zone.tail & zone.mask]
    notice.at, notice.level = at, level
    zone.tail += 1


cdef inline int level_seen(zone_t *zone, int64_t now) noexcept nogil:
    while zone.head != zone.tail and zone.notice[zone.head & zone.mask].at <= now:
        zone.seen = zone.notice[zone.head & zone.mask].level
        zone.head += 1
    return zone.seen


cdef inline void nothing_left(state_t *s, cpu_t *c, zone_t *zone) noexcept nogil:
    """No block for a CPU that has the lock: others had been there before it, or it is the end."""
    if level_of(zone) >= ABOVE_MIN or c.task.pc.zone != HOME:
        s.failed = OUT_OF_MEMORY


cdef inline int past_lists(state_t *s, cpu_t *c, zone_t *zone) noexcept nogil:
    """rmqueue_buddy() or free_one_page() under the zone lock; returns the blocks moved."""
    cdef count_t *n = c.count
    cdef int order = c.task.pc.order, mt = s.programs.type_of[c.task.pc.kind]
    cdef page_ring *mine
    cdef uint32_t page
    s.holds.late = s.holds.block[c.ask.kind][c.ask.pindex]
    if s.pages.mm != NULL:
        mine = mine_of(s, c, c.ask.zone, c.task.pc.kind)
    if c.ask.kind == DRAIN:
        zone.free += 1 << order
        n.direct_frees += 1
        if s.pages.mm != NULL:
            page = next_to_free(s, c, mine)
            one_block_line(s, c, order, page)
            free_direct(&s.pages.mm.zone[c.ask.zone], page, order)
        return 1
    c.plan.got = zone.free >= 1 << order
    if not c.plan.got:
        nothing_left(s, c, zone)
        return 0
    zone.free -= 1 << order
    n.direct_allocs += 1
    n.direct_pages += 1 << order
    if s.pages.mm != NULL:
        page = rmqueue_buddy(&s.pages.mm.zone[c.ask.zone], order, mt, 0)
        if page == NO_PAGE or page_ring_reserve(mine, 1) < 0:
            s.failed = OUT_OF_MEMORY
            return 1
        fill_words(
            s.pages.mm.zone[c.ask.zone].page + page,
            W_HELD | W_MOVABLE if mt == MIGRATE_MOVABLE else W_HELD, 1 << order,
        )
        page_ring_push_tail(mine, page)
        one_block_line(s, c, order, page)
        s.pages.digest[c.id] = (s.pages.digest[c.id] ^ page) * <uint64_t> 0x100000001B3
        if s.pages.cache != NULL:
            use_pages(s, c, c.ask.zone, page, order, True)
    return 1


cdef inline void drained(pcp_t *p, zone_t *zone, count_t *n, int pages) noexcept nogil:
    """Pages have gone from the lists to the zone; which ones see to it themselves."""
    p.pcp.count -= pages
    zone.free += pages
    n.drains += 1
    n.drain_pages += pages


cdef inline void refilled(pcp_t *p, zone_t *zone, count_t *n, int pindex, int order,
                          int blocks) noexcept nogil:
    """Blocks have come from the zone to a list."""
    zone.free -= blocks << order
    p.pcp.count += blocks << order
    p.blocks[pindex] += blocks
    n.refills += 1
    n.refill_pages += blocks << order


cdef inline int64_t blocks_drained(state_t *s, pcp_t *p, int drain, int pindex,
                                   int *pages) noexcept nogil:
    """drain_counts() of so many pages, and what the lines of these blocks take."""
    return drain_costs(
        p.blocks, &s.rules, min(drain, p.pcp.count), pindex, pages, s.holds.block[DRAIN],
        &s.holds.late,
    )


cdef inline int64_t drain_lists(state_t *s, cpu_t *c, int owner, zone_t *zone) noexcept nogil:
    """free_pcppages_bulk(): ``plan.drain`` pages of a CPU's lists; returns the blocks freed."""
    cdef pcp_t *p = pcp_of(&s.cpu[owner], c.ask.zone)
    cdef int before = p.pcp.count, pages
    cdef int64_t blocks = blocks_drained(s, p, c.plan.drain, c.ask.pindex, &pages)
    drained(p, zone, c.count, pages)
    if s.pages.mm != NULL:
        drain_pages(s, c, owner, before, p.pcp.count)
    return blocks


cdef inline int64_t refill_list(state_t *s, cpu_t *c, pcp_t *p, zone_t *zone) noexcept nogil:
    """A hold of rmqueue_bulk() of what nr_pcp_alloc() says; returns the blocks that it got."""
    cdef int order = pindex_to_order(c.ask.pindex), chunk, got
    if not c.ask.relocks:
        if s.rules.below_high and zone.free <= zone.high_wmark:
            zone.flags |= ZONE_BELOW_HIGH
        pcp_alloc_begin(&p.pcp, &s.rules)
        c.plan.rest = refill_blocks(s, c, p, zone.flags | (p.view & ZONE_RECLAIM_ACTIVE), order)
        c.plan.got = 0
    got = chunk = refill_hold(&p.pcp, &s.rules, c.plan.rest)
    if got > zone.free >> order:
        got = <int> (zone.free >> order)
    if s.pages.mm != NULL:
        got = refill_pages(s, c, order, got)
    c.plan.rest = c.plan.rest - chunk if got == chunk else 0
    c.plan.got += got
    if c.plan.got == 0:
        nothing_left(s, c, zone)
    refilled(p, zone, c.count, c.ask.pindex, order, got)
    s.holds.late += got * s.holds.block[REFILL][c.ask.pindex]
    return got


cdef inline int find_zone(state_t *s, cpu_t *c, int level) noexcept nogil:
    """get_page_from_freelist(): the first zone with as many free pages; -1: none."""
    cdef int32_t *zonelist = &s.zones.zonelist[c.id * s.nr_zones]
    cdef zone_t *zone
    cdef int i, busy
    for busy in range(not s.rules.skip_busy_kswapd, 2):
        for i in range(s.nr_zones):
            if zonelist[i] < 0:
                break
            zone = &s.zones.zone[zonelist[i]]
            if (busy or not zone.reclaims) and level_seen(zone, c.time) >= level:
                return zonelist[i]
    return -1


cdef inline void feed(state_t *s, cpu_t *c, int64_t now) noexcept nogil:
    """A CPU that sleeps for want of memory, or of work for kswapd, goes on."""
    c.task.starved = 0
    if c.state == BLOCKED:
        doze(s, c, now)
        wake(s, c.id)


cdef inline bint takes_from(state_t *s, cpu_t *c, int node) noexcept nogil:
    """Whether a node is one that the CPU's memory may come from."""
    cdef int32_t *zonelist = &s.zones.zonelist[c.id * s.nr_zones]
    cdef int i
    for i in range(s.nr_zones):
        if zonelist[i] < 0:
            break
        if s.zones.zone[zonelist[i]].node == node:
            return True
    return False


cdef inline bint stays(state_t *s, cpu_t *c) noexcept nogil:
    """A CPU needs a block: whether it takes it from the zone that it has in mind.

    If not, it goes on with another one, or sleeps.  Zones above the low watermark come first;
    if there are none, kswapd is woken and the min watermark counts.
    """
    cdef int zone = find_zone(s, c, ABOVE_LOW), node
    cdef int64_t cached
    cdef bint hope = False
    cdef cpu_t *kswapd
    if c.task.starved:
        c.task.starved = 0
        s.zones.starving -= 1
    if zone < 0:
        for node in range(s.zones.nodes):
            if s.zones.kswapd[node] < 0 or not takes_from(s, c, node):
                continue
            kswapd = &s.cpu[s.zones.kswapd[node]]
            cached = 0
            for zone in range(s.nr_zones):
                cached += held_of(s, kswapd, zone)[MIGRATE_MOVABLE]
            if cached and kswapd.task.starved:
                feed(s, kswapd, c.time)
            hope |= cached > 0
        zone = find_zone(s, c, ABOVE_MIN)
    if zone < 0:
        if not hope:
            s.failed = OUT_OF_MEMORY
        c.task.starved = 1
        s.zones.starving += 1
        c.state = BLOCKED
        return False
    if zone == c.ask.zone:
        return True
    # They were booked when the operation began.
    held_of(s, c, c.ask.zone)[c.task.pc.kind] -= c.task.left
    held_of(s, c, zone)[c.task.pc.kind] += c.task.left
    c.task.zone[HOME] = zone
    c.task.strayed = 1
    c.state = RUNNING
    return False


cdef inline void balance_pgdat(state_t *s, cpu_t *c) noexcept nogil:
    """kswapd goes on to free another cluster of its node's pages, or to sleep."""
    cdef int i, level, lowest = ABOVE_HIGH, node = s.zones.zone[c.task.zone[HOME]].node
    cdef bint balanced = False, active
    for i in range(s.nr_zones):
        if s.zones.zone[i].node != node:
            continue
        level = level_seen(&s.zones.zone[i], c.time)
        balanced |= level == ABOVE_HIGH
        if level < lowest and held_of(s, c, i)[MIGRATE_MOVABLE]:
            lowest = level
            c.task.zone[HOME] = i
    active = not c.task.starved and not balanced and lowest < ABOVE_HIGH
    for i in range(s.nr_zones):
        if s.zones.zone[i].node == node:
            s.zones.zone[i].reclaims = ZONE_RECLAIM_ACTIVE if active else 0
    if not c.task.starved and s.zones.starving:
        for i in range(s.nr_cpus):
            if (
                s.cpu[i].task.starved and s.cpu[i].task.program != c.task.program
                and takes_from(s, &s.cpu[i], node)
            ):
                s.zones.starving -= 1
                feed(s, &s.cpu[i], c.time)
    if active:
        pcp_of(c, c.task.zone[HOME]).view |= ZONE_RECLAIM_ACTIVE
        c.state = RUNNING
        next_op(c)
    else:
        c.task.starved = 1
        c.state = BLOCKED

"""What a CPU does beside its program: vmstat tick, hot-plug, drain_all_pages(); and when.

A chore goes on step by step until it has to stop for a lock; afterwards it is taken up where it
was.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT64_MAX, uint64_t
from libc.string cimport memset

from pcpmodel.kernel.pcp cimport (
    EXPIRED,
    PCPF_FREE_HIGH_BATCH,
    decay_hold,
    pcp_expire,
    per_cpu_pages,
    remote_hold,
    zone_hold,
)
from pcpmodel.kernel.rules cimport DECAY_NONE
from pcpmodel.simulation.books cimport end_phase, mark_phase, sample
from pcpmodel.simulation.cpu cimport arrive_drain, count_blocks, set_timer
from pcpmodel.simulation.lists cimport locked_out, pages_to_decay, pcp_busy, waits_for_zone
from pcpmodel.simulation.structs cimport (
    ARRIVED,
    BLOCKED,
    BY_DEATH,
    BY_REMOTE,
    BY_TICK,
    CPU_OFFLINE,
    CPU_ONLINE,
    DEATH,
    DRAIN_ALL,
    DRAIN_PAGES,
    FINISHED,
    LRU,
    NO_CHORE,
    OFFLINE,
    TICK,
    WAITING,
    count_t,
    cpu_t,
    is_local,
    pcp_of,
    pcp_t,
    sizes_t,
    state_t,
)
from pcpmodel.workload.ops cimport PHASES


cdef inline bint tick_step(state_t *s, cpu_t *c) noexcept nogil:
    """refresh_cpu_vm_stats(), zone by zone; True if it stops for a lock."""
    cdef pcp_t *p
    cdef bint used
    while c.chore.zone < s.nr_zones:
        p = pcp_of(c, c.chore.zone)
        if locked_out(s, c, p):
            return True
        if c.chore.rest > 0:
            c.plan.drain = c.chore.rest
            if c.chore.phase == 1:
                c.plan.drain = decay_hold(&p.pcp, &s.rules, c.chore.rest)
            c.chore.rest -= c.plan.drain
            arrive_drain(c, c.chore.zone, 0, BY_TICK)
            return True
        if c.chore.phase == 0:
            c.chore.phase = 1
            c.chore.rest = pages_to_decay(s, c, p, c.chore.zone)
        elif c.chore.phase == 1:
            c.chore.phase = 2
            if s.rules.decay != DECAY_NONE:
                p.pcp.count_min = p.pcp.count
            used = p.touched != 0
            p.touched = 0
            if pcp_expire(&p.pcp, used, is_local(s, c, c.chore.zone)) == EXPIRED:
                c.chore.rest = remote_hold(&p.pcp, &s.rules)
        else:
            c.chore.zone += 1
            c.chore.phase = 0
    c.chore.kind = NO_CHORE
    return False


cdef inline void whole_zone(state_t *s, cpu_t *c, pcp_t *p, int why) noexcept nogil:
    """One hold of drain_pages_zone()."""
    c.plan.drain = zone_hold(&p.pcp, &s.rules)
    arrive_drain(c, c.chore.zone, 0, why)


cdef inline bint death_step(state_t *s, cpu_t *c) noexcept nogil:
    """page_alloc_cpu_dead(): the lists of a CPU that goes offline; True if it stops for a lock.

    The kernel does this on another CPU; here it costs no program time of any.
    """
    cdef pcp_t *p
    while c.chore.zone < s.nr_zones:
        p = pcp_of(c, c.chore.zone)
        if locked_out(s, c, p):
            return True
        if p.pcp.count:
            whole_zone(s, c, p, BY_DEATH)
            return True
        c.chore.zone += 1
    c.chore.kind = OFFLINE
    return False


cdef inline void drain_all_over(state_t *s) noexcept nogil:
    cdef int i
    s.changes.careful_from = INT64_MAX
    for i in range(s.changes.number):
        if s.changes.change[i].kind == DRAIN_PAGES and not s.changes.change[i].done:
            s.changes.careful_from = min(s.changes.careful_from, s.changes.change[i].at)


cdef inline bint drain_all_step(state_t *s, cpu_t *c) noexcept nogil:
    """drain_all_pages(): the lists of all CPUs, in order; True if it stops for a lock."""
    cdef cpu_t *owner
    cdef pcp_t *p
    while c.chore.owner < s.nr_cpus:
        owner = &s.cpu[c.chore.owner]
        while s.changes.last[owner.id].marked and c.chore.zone < s.nr_zones:
            p = pcp_of(owner, c.chore.zone)
            if owner != c and pcp_busy(s, owner, c.chore.zone, c.time):
                if waits_for_zone(owner):
                    owner.waiter = c.id + 1
                    c.state = WAITING
                else:
                    c.time = s.changes.last[owner.id].release_at
                return True
            if p.pcp.count:
                if owner != c:
                    p.remote = INT64_MAX
                    p.locked = p.pcp.count
                whole_zone(s, c, p, BY_REMOTE)
                return True
            c.chore.zone += 1
        s.changes.last[owner.id].marked = 0
        c.chore.owner += 1
        c.chore.zone = 0
    s.changes.drainer = -1
    c.chore.kind = NO_CHORE
    s.changes.change[c.chore.change].done = 1
    drain_all_over(s)
    return False


cdef inline void drain_all_begin(state_t *s, cpu_t *c, int change) noexcept nogil:
    cdef cpu_t *owner
    cdef int i, z
    if s.changes.drainer >= 0:  # only one at a time; the other returns
        s.changes.change[change].done = 1
        drain_all_over(s)
        return
    s.changes.drainer = c.id
    c.chore.kind = DRAIN_ALL
    c.chore.change = change
    c.chore.owner = c.chore.zone = 0
    for i in range(s.nr_cpus):
        owner = &s.cpu[i]
        for z in range(s.nr_zones):
            if pcp_busy(s, owner, z, c.time) or pcp_of(owner, z).pcp.count:
                s.changes.last[owner.id].marked = 1


cdef inline bint chore_step(state_t *s, cpu_t *c) noexcept nogil:
    """Go on with what the CPU does beside its program; True if it stops for a lock."""
    if c.chore.kind == TICK:
        return tick_step(s, c)
    if c.chore.kind == DEATH:
        return death_step(s, c)
    if c.chore.kind == DRAIN_ALL:
        return drain_all_step(s, c)
    return False


cdef inline void change(state_t *s, cpu_t *c) noexcept nogil:
    """The next change of the machine, as far as it concerns this CPU.

    pageset_update() for its lists; the tuned ``high`` follows at its next use.
    """
    cdef int k = c.timers.change, after = k + 1, z
    cdef per_cpu_pages *pcp
    cdef sizes_t *size
    c.timers.change = after
    c.timers.change_at = s.changes.change[after].at if after < s.changes.number else INT64_MAX
    for z in range(s.nr_zones):
        pcp = &pcp_of(c, z).pcp
        size = &s.changes.size[k * s.nr_zones + z]
        pcp.batch, pcp.high_min, pcp.high_max = size.batch, size.high_min, size.high_max
        if not s.rules.high_min_max:
            pcp.high = pcp.high_min
        if size.flags >= 0:
            pcp.flags = (pcp.flags & ~PCPF_FREE_HIGH_BATCH) | size.flags
    if s.changes.change[k].cpu != c.id:
        return
    if s.changes.change[k].kind == CPU_OFFLINE:
        c.chore.kind = DEATH
        c.chore.zone = 0
    elif s.changes.change[k].kind == CPU_ONLINE:
        c.chore.kind = NO_CHORE
    elif s.changes.change[k].kind == DRAIN_PAGES:
        drain_all_begin(s, c, k)


cdef inline bint on_time(state_t *s, cpu_t *c) noexcept nogil:
    """Do what is due at ``c.time``: samples, warm-up end, run end, tick.

    Returns True if the CPU cannot go on: it stops for a lock or has finished.
    """
    if c.chore.kind and chore_step(s, c):
        return True
    while c.timer <= c.time:
        if not c.warm and s.course.warm <= c.time:
            c.warm = 1
            count_blocks(c)
            memset(c.count, 0, sizeof(count_t))
            c.slept = 0
            if s.pages.cache != NULL:
                memset(&s.pages.found[3 * c.id], 0, 3 * sizeof(uint64_t))
            c.count.start_ps = c.time
            if s.books.phase != NULL:
                mark_phase(s, c)
                memset(&s.books.phase[c.id * PHASES], 0, PHASES * sizeof(count_t))
        if c.timers.sample_at <= c.time:
            sample(s, c)
        if s.course.end <= c.time:
            count_blocks(c)
            if s.books.phase != NULL:
                end_phase(s, c)
            c.count.end_ps = c.time
            c.state = FINISHED
            return True
        if c.timers.change_at <= c.time:
            change(s, c)
            set_timer(s, c)
            if chore_step(s, c):
                return True
        if s.course.tick and c.timers.tick_at <= c.time:
            # A late tick (asleep with NOHZ) is done once; the next is an interval later.
            c.timers.tick_at += s.course.tick
            if c.timers.tick_at <= c.time:
                c.timers.tick_at = c.time + s.course.tick
            set_timer(s, c)
            if c.chore.kind != OFFLINE:
                c.chore.kind = TICK
                c.chore.zone = c.chore.phase = c.chore.rest = 0
                if tick_step(s, c):
                    return True
        set_timer(s, c)
    if c.chore.kind == OFFLINE:
        c.state = BLOCKED
        return True
    return False

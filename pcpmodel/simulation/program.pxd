"""The programs of the tasks: operation by operation up to the next block, and block by block."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pcpmodel.kernel.lists cimport pcp_allowed_order
from pcpmodel.kernel.pages cimport page_ring, page_ring_at, pages_unlikely
from pcpmodel.kernel.pcp cimport (
    commit_hold,
    commit_in_bulk,
    pcp_alloc_begin,
    pcp_alloc_end,
    pcp_commit,
)
from pcpmodel.simulation.books cimport end_phase
from pcpmodel.simulation.chores cimport on_time
from pcpmodel.simulation.cpu cimport (
    arrive,
    arrive_beside,
    arrive_drain,
    arrive_lru,
    count_blocks,
    draw_pace,
    jump,
    lasts,
    looks_beside,
    next_op,
    scaled,
    times,
    wake,
)
from pcpmodel.simulation.lists cimport (
    LINES_OF_A_PAGE,
    drain_from,
    in_bulk,
    pages_to_drain,
    pass_pages,
    put_pages,
    take_pages,
    trylock_fails,
    use_pages,
)
from pcpmodel.simulation.structs cimport (
    ARRIVED,
    BLOCKED,
    BY_COMMIT,
    BY_NEED,
    DIRECT,
    DRAIN,
    LOOK,
    NO_TIME,
    REFILL,
    ROUNDS,
    STRETCH,
    barrier_t,
    carried_by,
    carry_of,
    channel_t,
    cpu_t,
    held_of,
    hold_more,
    mine_of,
    op_t,
    pcp_of,
    pcp_t,
    state_t,
)
from pcpmodel.splitmix cimport draw
from pcpmodel.workload.ops cimport (
    ALL,
    BLOCK_KINDS,
    HOME,
    OP_ALLOC,
    OP_BARRIER,
    OP_DRAW,
    OP_FREE,
    OP_GIVE,
    OP_IDLE,
    OP_KSWAPD,
    OP_LOOP,
    OP_LRU,
    OP_MAYBE,
    OP_PHASE,
    OP_PICK,
    OP_RECV,
    OP_REST,
    OP_SCORE,
    OP_SEND,
    OP_TAKE,
    OP_WORK,
    TABLE,
)


cdef inline void next_part(state_t *s, cpu_t *c) noexcept nogil:
    """Blocks to free of one zone: where the CPU has strayed, the first that it holds any of."""
    cdef op_t *op = c.task.pc
    cdef int32_t *zonelist
    cdef int i, zone
    if pages_unlikely(c.task.strayed != 0) and op.zone == HOME:
        zonelist = &s.zones.zonelist[c.id * s.nr_zones]
        for i in range(s.nr_zones):
            if zonelist[i] < 0:
                break
            if held_of(s, c, zonelist[i])[op.kind]:
                c.task.zone[HOME] = zonelist[i]
                break
    zone = c.task.zone[op.zone]
    c.task.left = min(c.task.wanted, held_of(s, c, zone)[op.kind])
    hold_more(s, c, zone, op.kind, op.order, -c.task.left)
    c.task.wanted -= c.task.left
    c.task.counted = c.task.left


cdef inline void lru_counts(state_t *s, cpu_t *c, int blocks) noexcept nogil:
    """Pages on their way to or from the LRU; a full batch of them asks for the LRU lock.

    Each node has one, or one for every memcg: that which the pages are charged to.
    """
    cdef bint off = c.task.pc.code == OP_FREE
    if c.task.pc.depth:
        c.task.lru_left[off] -= blocks
        if c.task.lru_left[off] == 0:
            arrive_lru(s, c, off)


cdef inline void stepped(state_t *s, cpu_t *c) noexcept nogil:
    """One block has left its list for the program, or is freed and what had to be drained is."""
    c.task.left -= 1
    c.time += scaled(c.task.pc.ps, c.task.factor)
    lru_counts(s, c, 1)


cdef inline void arrive_refill(cpu_t *c) noexcept nogil:
    cdef int zone = c.task.zone[c.task.pc.zone]
    arrive(c, REFILL, zone, BY_NEED)
    c.ask.pindex = c.task.pc.pindex


cdef inline void arrive_direct(cpu_t *c) noexcept nogil:
    """One block past the lists."""
    cdef int zone = c.task.zone[c.task.pc.zone]
    arrive(c, REFILL if c.task.pc.code == OP_ALLOC else DRAIN, zone, DIRECT)
    c.ask.pindex = c.task.pc.pindex


cdef inline bint has_list(const state_t *s, const cpu_t *c) noexcept nogil:
    """Whether the release has a list for blocks of the operation at hand."""
    return pcp_allowed_order(s.rules.nr_pcp_lists, c.task.pc.order)


cdef inline bint past_its_list(const state_t *s, const cpu_t *c, bint trylock) noexcept nogil:
    """Whether a block goes past the lists: there is none of its order, or the trylock fails."""
    return not has_list(s, c) or trylock_fails(c, trylock)


cdef inline void free_block(state_t *s, cpu_t *c) noexcept nogil:
    """One block to its list; arrives at the zone lock if that calls for a drain."""
    cdef op_t *op = c.task.pc
    cdef int zone = c.task.zone[op.zone]
    cdef pcp_t *p = pcp_of(c, zone)
    cdef bint free_high
    cdef int n, pindex = put_pages(s, c, zone, op.pindex, 1)
    c.quiet -= s.lists.trylock
    free_high = in_bulk(s, c, p, zone, op.order, pcp_commit(&p.pcp, &s.rules, op.order))
    c.plan.high = drain_from(s, c, p, zone, op.order, free_high)
    if p.pcp.count < c.plan.high:
        stepped(s, c)
        return
    n = pages_to_drain(s, c, p, zone, op.order, c.plan.high, free_high)
    if n <= 0:
        stepped(s, c)
        return
    if commit_in_bulk(&p.pcp, &s.rules, free_high):
        c.count.free_high += 1
    c.plan.drain = commit_hold(&p.pcp, &s.rules, n)
    c.plan.rest = n - c.plan.drain
    arrive_drain(c, zone, pindex, BY_COMMIT)


cdef inline void step_block(state_t *s, cpu_t *c) noexcept nogil:
    """One block of the operation under way."""
    cdef op_t *op = c.task.pc
    cdef pcp_t *p = pcp_of(c, c.task.zone[op.zone])
    if past_its_list(s, c, s.lists.trylock) or p.remote > c.time:
        arrive_direct(c)
    elif op.code == OP_FREE:
        free_block(s, c)
    elif p.blocks[op.pindex] == 0:
        arrive_refill(c)
    else:
        c.quiet -= s.lists.trylock
        pcp_alloc_begin(&p.pcp, &s.rules)
        p.blocks[op.pindex] -= 1
        take_pages(s, c, c.task.zone[op.zone], op.pindex, 1)
        pcp_alloc_end(&p.pcp, &s.rules, op.order)
        stepped(s, c)


cdef inline bint at_barrier(state_t *s, cpu_t *c) noexcept nogil:
    """Whether a CPU that has come to a barrier stays there.

    The last one to come need not be the last one to be looked at: who goes on does so when the
    latest has come, and nobody can be two rounds ahead.  It takes a picosecond, so that what one
    does at that time is over before another does anything.
    """
    cdef barrier_t *b = &s.programs.barrier[c.task.pc.n]
    cdef int i
    if c.vars.work_left < 0:
        c.vars.work_left = b.rounds
        b.latest = max(b.latest, c.time)
        b.here += 1
        if b.here == b.members:
            b.open_at[b.rounds & 1] = b.latest
            b.rounds += 1
            b.here = 0
            b.latest = 0
            for i in range(b.members):
                wake(s, s.programs.member[c.task.pc.n * s.nr_cpus + i])
    if b.rounds == c.vars.work_left:
        c.state = BLOCKED
        return True
    if jump(s, c, max(c.time, b.open_at[c.vars.work_left & 1] + max(c.task.pc.ps, 1))):
        next_op(c)
    return False


cdef inline bint control(state_t *s, cpu_t *c) noexcept nogil:
    """Run the program up to its next block of pages; True if the CPU cannot go on.

    On False the operation is OP_ALLOC or OP_FREE, blocks are left of it and no timer is due.  On
    True it may be that time has passed and others have to do what they do before.
    """
    cdef op_t *op
    cdef channel_t *ch
    cdef int32_t *carry
    cdef int32_t *carried
    cdef page_ring *mine
    cdef int64_t ps, start = c.time, seen = -1
    cdef int code, moved, given, zone, rounds = 0
    cdef uint32_t i
    while True:
        if c.time != seen:  # most operations take none, and nothing is due that was not before
            seen = c.time
            if seen >= s.changes.careful_from and seen != start:
                return True
            if c.chore.kind or c.timer <= seen:
                rounds += 1
                if on_time(s, c) or rounds > STRETCH:
                    return True
        op = c.task.pc
        code = op.code
        if code <= OP_FREE:
            if c.task.left < 0:
                if looks_beside(c):
                    return True
                draw_pace(s, c)
                c.task.left = op.n if op.reg < 0 else c.vars.regs[op.reg]
                if code == OP_FREE:
                    c.task.wanted = c.task.left if c.task.left != ALL else INT32_MAX
                    next_part(s, c)
                else:
                    if pages_unlikely(c.task.strayed != 0):
                        c.task.zone[HOME] = s.zones.zonelist[c.id * s.nr_zones]
                    zone = c.task.zone[op.zone]
                    hold_more(s, c, zone, op.kind, op.order, c.task.left)
                    c.task.counted = c.task.left
            elif pages_unlikely(c.task.strayed != 0) and c.task.left == 0 and code == OP_FREE:
                count_blocks(c)
                next_part(s, c)
            if c.task.left > 0:
                return False
            count_blocks(c)
            if code == OP_FREE and op.depth and c.task.lru_left[1] < s.holds.folios[1]:
                arrive_lru(s, c, True)  # release_pages() is given no more
            next_op(c)
            if c.state == ARRIVED:
                return True
        elif code == OP_WORK:
            if c.vars.work_left < 0:
                if looks_beside(c):
                    return True
                draw_pace(s, c)
                c.vars.work_left = lasts(c, c.task.factor)
            ps = min(c.vars.work_left, c.timer - c.time)
            c.time += ps
            c.vars.work_left -= ps
            if c.vars.work_left == 0:
                next_op(c)
        elif code == OP_IDLE:
            if c.vars.work_left < 0:
                c.vars.work_left = c.time + lasts(c, 1 << 16)  # wakes then
            if jump(s, c, c.vars.work_left):
                next_op(c)
        elif code == OP_SEND:
            ch = &s.programs.channel[c.vars.channel[op.n]]
            if ch.nsent - ch.nreceived == ch.size:
                c.state = BLOCKED
                return True
            ps = ch.received[ch.nsent - ch.size & ch.mask]  # when there was room again
            if ch.nsent < ch.size or jump(s, c, max(c.time, ps)):
                ch.sent[ch.nsent & ch.mask] = c.time
                carry = carry_of(s, c.vars.channel[op.n], False)
                memcpy(carried_by(ch, ch.nsent), carry, BLOCK_KINDS * sizeof(int32_t))
                memset(carry, 0, BLOCK_KINDS * sizeof(int32_t))
                ch.nsent += 1
                wake(s, ch.consumer)
                next_op(c)
        elif code == OP_RECV:
            ch = &s.programs.channel[c.vars.channel[op.n]]
            if ch.nsent == ch.nreceived:
                c.state = BLOCKED
                return True
            ps = ch.sent[ch.nreceived & ch.mask] + ch.latency
            if jump(s, c, max(c.time, ps)):
                ch.received[ch.nreceived & ch.mask] = c.time
                carry = carry_of(s, c.vars.channel[op.n], True)
                carried = carried_by(ch, ch.nreceived)
                for i in range(BLOCK_KINDS):
                    carry[i] += carried[i]
                ch.nreceived += 1
                wake(s, ch.producer)
                next_op(c)
        elif code == OP_GIVE or code == OP_TAKE:
            zone = c.task.zone[op.zone]
            carry = &carry_of(s, c.vars.channel[op.target], code == OP_TAKE)[op.kind]
            moved = held_of(s, c, zone)[op.kind] if code == OP_GIVE else carry[0]
            if op.n != ALL:
                moved = min(moved, op.n)
            given = moved if code == OP_GIVE else -moved
            hold_more(s, c, zone, op.kind, op.order, -given)
            s.lists.passed[c.id] += <int64_t> given << op.order
            carry[0] += given
            if s.pages.mm != NULL:
                ch = &s.programs.channel[c.vars.channel[op.target]]
                mine = mine_of(s, c, zone, op.kind)
                if code == OP_TAKE:
                    pass_pages(s, &ch.pages, mine, moved)
                    if s.pages.cache != NULL:
                        for i in range(mine.len - moved, mine.len):
                            use_pages(s, c, zone, page_ring_at(mine, i), op.order, False)
                    if s.pages.lines != NULL:
                        s.pages.lines.used[c.id] += moved * LINES_OF_A_PAGE << op.order
                else:
                    pass_pages(s, mine, &ch.pages, moved)
            next_op(c)
        elif code == OP_MAYBE:
            if <int> (draw(&c.rng) >> 34) < op.n:
                next_op(c)
            else:
                next_op(c)
                c.task.pc = c.task.program + op.target
        elif code == OP_PICK:
            moved = op.target * TABLE + <int> ((draw(&c.rng) >> 32) * <uint64_t> op.n >> 32)
            next_op(c)
            c.task.pc = c.task.program + s.programs.table[moved]
        elif code == OP_DRAW:
            c.vars.regs[op.reg] = s.programs.table[op.target * TABLE + <int> (draw(&c.rng) >> 54)]
            next_op(c)
        elif code == OP_LOOP:
            # What has no more blocks to free takes no time; the program is known to end otherwise.
            rounds += 1
            if rounds > ROUNDS and c.time == start:
                s.failed = NO_TIME
                return True
            if rounds > STRETCH and c.time > start:
                return True
            c.task.loops[op.depth] += 1
            if op.n == 0 or c.task.loops[op.depth] < op.n:
                next_op(c)
                c.task.pc = c.task.program + op.target
            else:
                c.task.loops[op.depth] = 0
                next_op(c)
        elif code == OP_SCORE:
            c.count.score += op.n if op.reg < 0 else c.vars.regs[op.reg]
            next_op(c)
        elif code == OP_REST:
            if c.vars.work_left < 0:
                moved = op.target * TABLE + <int> (draw(&c.rng) >> 54)
                ps = times(c.time - s.programs.rested[c.id], op.n, 16)
                c.vars.work_left = c.time + times(ps, s.programs.table[moved], 16)
            if jump(s, c, c.vars.work_left):
                s.programs.rested[c.id] = c.time
                next_op(c)
        elif code == OP_LRU:
            if c.task.lru_left[0] < s.holds.folios[0]:
                arrive_lru(s, c, False)
            next_op(c)
            if c.state == ARRIVED:
                return True
        elif code == OP_PHASE:
            end_phase(s, c)
            s.books.phase_of[c.id] = op.n
            next_op(c)
        elif code == OP_BARRIER:
            if at_barrier(s, c):
                return True
        elif code == OP_KSWAPD:
            arrive(c, LOOK, c.task.zone[HOME], BY_NEED)
            return True
        else:  # OP_END: asleep for the rest of the run
            if c.thread != NULL and c.vars.work_left < 0:
                c.vars.work_left = 0  # which its sibling has been told
                arrive_beside(c)
                return True
            jump(s, c, s.course.end)

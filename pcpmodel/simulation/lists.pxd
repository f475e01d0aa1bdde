"""The lists of one CPU and zone: what the kernel decides about them, blocks in and out, their lock.

Decisions are the kernel's (`pcpmodel.kernel.pcp`) or those of a user's policy; once a callback has
failed none is asked.  Blocks are counted and, with page identity, moved.  Knows no zone and no
zone lock: what needs either is in `zones`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from pcpmodel.hardware.cache cimport cache_touch
from pcpmodel.hardware.lines cimport (
    LINES_OF_A_PAGE,
    line_write,
    lines_begin,
    lines_end,
    lines_held,
    lines_moved,
)
from pcpmodel.kernel.buddy cimport block_type, free_kind, is_free_block, rmqueue_bulk
from pcpmodel.kernel.buddy cimport zone as buddy_zone
from pcpmodel.kernel.lists cimport (
    order_to_pindex,
    pindex_after,
    pindex_to_order,
)
from pcpmodel.kernel.page_alloc cimport pageset_of
from pcpmodel.kernel.pages cimport (
    MIGRATE_MOVABLE,
    MAX_PAGE_ORDER,
    MIGRATE_PCPTYPES,
    NO_PAGE,
    W_CPU_SHIFT,
    W_HELD,
    W_MOVABLE,
    W_PCP,
    W_SLOT_MASK,
    W_SLOT_SHIFT,
    W_TYPE_SHIFT,
    W_WHAT,
    block_list,
    block_list_at,
    fill_words,
    page_ring,
    page_ring_at,
    page_ring_pop_head,
    page_ring_pop_tail,
    page_ring_push_head,
    page_ring_push_tail,
    page_ring_reserve,
    page_ring_swap_head,
    pages_unlikely,
    pcp_word,
)
from pcpmodel.kernel.pcp cimport (
    decay_pcp_high,
    decide_alloc,
    decide_decay,
    decide_free,
    decide_free_high,
    decide_high,
    free_pcppages_bulk,
    nr_pcp_alloc,
    nr_pcp_free,
    nr_pcp_high,
    pageset,
    policy_state,
)
from pcpmodel.simulation.structs cimport (
    ARRIVED,
    BY_REMOTE,
    LISTS_DISAGREE,
    LRU,
    OUT_OF_MEMORY,
    POLICY_FAILED,
    RUNNING,
    WAITING,
    cpu_t,
    mine_of,
    pcp_of,
    pcp_t,
    policy_of,
    state_t,
)
from pcpmodel.splitmix cimport draw
from pcpmodel.workload.ops cimport AS_ALLOCATED, REVERSED


cdef inline int answered(state_t *s, policy_state *policy, int answer) noexcept nogil:
    if policy.error:
        s.failed = POLICY_FAILED
    return answer


cdef inline int refill_blocks(state_t *s, cpu_t *c, pcp_t *p, int flags, int order) noexcept nogil:
    cdef policy_state *policy
    if s.lists.policy == NULL:
        return nr_pcp_alloc(&p.pcp, &s.rules, flags, order)
    if s.failed:
        return 1
    policy = policy_of(s, c, c.ask.zone)
    return answered(s, policy, decide_alloc(policy, &p.pcp, &s.rules, flags, order))


cdef inline bint in_bulk(state_t *s, cpu_t *c, pcp_t *p, int zone, int order,
                         bint free_high) noexcept nogil:
    cdef policy_state *policy
    if s.lists.policy == NULL or s.failed:
        return free_high
    policy = policy_of(s, c, zone)
    return answered(
        s, policy, decide_free_high(policy, &p.pcp, &s.rules, p.view, order, free_high)
    )


cdef inline int drain_from(state_t *s, cpu_t *c, pcp_t *p, int zone, int order,
                           bint free_high) noexcept nogil:
    cdef policy_state *policy
    if s.lists.policy == NULL:
        return nr_pcp_high(&p.pcp, &s.rules, p.view, free_high)
    if s.failed:
        return p.pcp.count + 1
    policy = policy_of(s, c, zone)
    return answered(
        s, policy, decide_high(policy, &p.pcp, &s.rules, p.view, order, free_high)
    )


cdef inline int pages_to_drain(state_t *s, cpu_t *c, pcp_t *p, int zone, int order, int high,
                               bint free_high) noexcept nogil:
    cdef policy_state *policy
    if s.lists.policy == NULL:
        return nr_pcp_free(&p.pcp, &s.rules, high, free_high)
    if s.failed:
        return 0
    policy = policy_of(s, c, zone)
    return answered(
        s, policy, decide_free(policy, &p.pcp, &s.rules, p.view, order, free_high, high)
    )


cdef inline int pages_to_decay(state_t *s, cpu_t *c, pcp_t *p, int zone) noexcept nogil:
    cdef policy_state *policy
    cdef bint work
    if s.lists.policy == NULL:
        return decay_pcp_high(&p.pcp, &s.rules, &work)
    if s.failed:
        return 0
    policy = policy_of(s, c, zone)
    return answered(s, policy, decide_decay(policy, &p.pcp, &s.rules, p.view, &work))


cdef inline bint trylock_fails(const cpu_t *c, bint trylock) noexcept nogil:
    """Of a run in which trylocks fail now and then."""
    return trylock and c.quiet == 0


cdef inline bint locked_out(state_t *s, cpu_t *c, pcp_t *p) noexcept nogil:
    """Another CPU has the lock of these lists; True if it has, and the CPU waits."""
    if p.remote <= c.time:
        return False
    if p.remote == INT64_MAX:
        s.cpu[s.changes.drainer].waiter = c.id + 1
        c.state = WAITING
    else:
        c.time = p.remote
    return True


cdef inline bint waits_for_zone(const cpu_t *c) noexcept nogil:
    """Whether a CPU waits for a zone lock.

    The event engine may know already that it comes to the LRU lock after a hold that lasts.
    """
    return c.state == ARRIVED and c.ask.kind < LRU


cdef inline bint pcp_busy(state_t *s, cpu_t *owner, int zone, int64_t now) noexcept nogil:
    """Whether a CPU is at the zone lock with the PCP lock of its lists in hand."""
    if waits_for_zone(owner):
        return owner.ask.why < BY_REMOTE and owner.ask.zone == zone
    return s.changes.last[owner.id].release_at > now and s.changes.last[owner.id].zone == zone


cdef inline void unlock_pcp(state_t *s, cpu_t *c) noexcept nogil:
    """Who waits for a PCP lock that the CPU had goes on."""
    cdef cpu_t *waiter
    if pages_unlikely(c.waiter != 0):
        waiter = &s.cpu[c.waiter - 1]
        waiter.time = max(waiter.time, c.time)
        waiter.state = RUNNING
        s.woken[s.nwoken] = waiter.id
        s.nwoken += 1
        c.waiter = 0


cdef inline void use_pages(state_t *s, cpu_t *c, int zone, uint32_t page, int order,
                           bint count) noexcept nogil:
    """The program uses a block, whose pages are then in the CPU's caches."""
    cdef uint32_t i
    cdef int where
    for i in range(<uint32_t> 1 << order):
        where = cache_touch(s.pages.cache, c.id, (page + i) ^ <uint32_t> zone << 26)
        s.pages.found[3 * c.id + where] += count


cdef inline void take_pages(state_t *s, cpu_t *c, int zone, int pindex, int n) noexcept nogil:
    """With page identity: n blocks go from the head of a list to the program."""
    cdef page_ring *list
    cdef page_ring *mine
    cdef page_ring source, target  # of their own, so that a store to a word changes neither
    cdef uint32_t *words
    cdef uint32_t page, word = W_HELD
    cdef uint64_t digest
    cdef int _i, order
    cdef bint cached
    if s.pages.mm == NULL:
        return
    cached, order = s.pages.cache != NULL, pindex_to_order(pindex)
    list = &pageset_of(s.pages.mm, zone, c.id).lists[pindex]
    mine = mine_of(s, c, zone, c.task.pc.kind)
    if list.len < <uint32_t> n or page_ring_reserve(mine, n) < 0:
        s.failed = LISTS_DISAGREE
        return
    source, target = list[0], mine[0]
    if s.programs.type_of[c.task.pc.kind] == MIGRATE_MOVABLE:
        word |= W_MOVABLE
    words, digest = s.pages.mm.zone[zone].page, s.pages.digest[c.id]
    for _i in range(n):
        page = page_ring_pop_head(&source)
        if order:
            fill_words(words + page, word, 1 << order)
        else:
            words[page] = word
        page_ring_push_tail(&target, page)
        digest = (digest ^ page) * <uint64_t> 0x100000001B3
        if pages_unlikely(cached):
            use_pages(s, c, zone, page, order, True)
    list[0], mine[0] = source, target
    s.pages.digest[c.id] = digest
    if s.pages.lines != NULL:
        s.pages.lines.used[c.id] += <uint64_t> n * LINES_OF_A_PAGE << order


cdef inline uint32_t next_to_free(state_t *s, cpu_t *c, page_ring *mine) noexcept nogil:
    """Of the blocks that the program holds, the one that its free takes next."""
    cdef int sequence = c.task.pc.target
    if sequence == AS_ALLOCATED:
        return page_ring_pop_head(mine)
    if sequence == REVERSED:
        return page_ring_pop_tail(mine)
    page_ring_swap_head(
        mine, <uint32_t> ((draw(&s.pages.dice[c.id]) >> 32) * <uint64_t> mine.len >> 32)
    )
    return page_ring_pop_head(mine)


cdef inline int put_pages(state_t *s, cpu_t *c, int zone, int pindex, int n) noexcept nogil:
    """n blocks go from the program to the heads of their lists; returns the last one's list.

    By count that is the list that they came from; with page identity the one of their page
    block's type, as free_unref_page() chooses it.
    """
    cdef pcp_t *p = pcp_of(c, zone)
    cdef page_ring *mine
    cdef page_ring source, target  # as in take_pages()
    cdef pageset *ps
    cdef buddy_zone *z
    cdef uint32_t *words
    cdef uint32_t *freed = NULL
    cdef uint32_t page, word = 0, used = 0
    cdef int i, mt = -1, at = pindex, order, counted = 0
    if s.pages.mm == NULL:
        p.blocks[pindex] += n
        return pindex
    z = &s.pages.mm.zone[zone]
    words = z.page
    order = pindex_to_order(pindex)
    mine = mine_of(s, c, zone, c.task.pc.kind)
    ps = pageset_of(s.pages.mm, zone, c.id)
    if mine.len < <uint32_t> n:
        s.failed = LISTS_DISAGREE
        return pindex
    if s.pages.lines != NULL:
        freed, used = s.pages.lines.freed[zone], <uint32_t> s.pages.lines.used[c.id]
    source, target = mine[0], ps.lists[at]
    for i in range(n):
        page = next_to_free(s, c, &source)
        if pages_unlikely(block_type(z, page) != mt):
            mt = block_type(z, page)
            ps.lists[at] = target
            p.blocks[at] += i - counted
            counted = i
            at = order_to_pindex(
                s.rules.nr_pcp_lists, mt if mt < MIGRATE_PCPTYPES else <int> MIGRATE_MOVABLE, order
            )
            if page_ring_reserve(&ps.lists[at], n - i) < 0:
                s.failed = OUT_OF_MEMORY
                mine[0] = source
                return at
            target = ps.lists[at]
            word = pcp_word(mt, at, c.id)
        if order:
            fill_words(words + page, word, 1 << order)
        else:
            words[page] = word
        page_ring_push_head(&target, page)
        if freed != NULL:
            freed[page] = used
    mine[0], ps.lists[at] = source, target
    p.blocks[at] += n - counted
    return at


cdef inline void pass_pages(state_t *s, page_ring *source, page_ring *target,
                            int n) noexcept nogil:
    """n blocks go from a program to a message or back."""
    cdef int _i
    if source.len < <uint32_t> n or page_ring_reserve(target, n) < 0:
        s.failed = LISTS_DISAGREE
        return
    for _i in range(n):
        page_ring_push_tail(target, page_ring_pop_head(source))


cdef inline lines_held lines_of_hold(state_t *s, cpu_t *c) noexcept nogil:
    return lines_begin(
        s.pages.lines, c.id, c.ask.zone, c.ask.kind, s.holds.line[c.ask.kind]
    )


cdef inline void one_block_line(state_t *s, cpu_t *c, int order, uint32_t page) noexcept nogil:
    """A hold moves this block alone."""
    cdef lines_held held
    if s.pages.lines != NULL:
        held = lines_of_hold(s, c)
        line_write(&held, order, page, NO_PAGE, False, False)
        lines_moved(&held, order, 1)
        s.holds.late += lines_end(&held)


cdef inline bint is_listed(uint32_t word, int cpu) noexcept nogil:
    """Whether a page is on a CPU's lists, by its word."""
    return word & W_WHAT == W_PCP and word >> W_CPU_SHIFT == <uint32_t> cpu


cdef inline void neighbour_lines(lines_held *held, int order, const buddy_zone *z, uint32_t page,
                                 int at_order) noexcept nogil:
    """A free block is going to leave its list: the lines of those beside it are written."""
    cdef uint32_t word = z.page[page], beside, at
    cdef int mt = word >> W_TYPE_SHIFT & 7
    cdef const block_list *list = &z.free_area[at_order][mt]
    at = list.head + ((word >> W_SLOT_SHIFT) - list.head & W_SLOT_MASK)
    if at != list.head:
        beside = block_list_at(list, z.page, free_kind(at_order, mt), at - 1)
        if beside != NO_PAGE:
            line_write(held, order, beside, NO_PAGE, False, False)
    if at + 1 != list.tail:
        beside = block_list_at(list, z.page, free_kind(at_order, mt), at + 1)
        if beside != NO_PAGE:
            line_write(held, order, beside, NO_PAGE, False, False)


cdef inline int refill_pages(state_t *s, cpu_t *c, int order, int n) noexcept nogil:
    """rmqueue_bulk() with page identity; returns the blocks it found."""
    cdef page_ring *list = &pageset_of(s.pages.mm, c.ask.zone, c.id).lists[c.ask.pindex]
    cdef lines_held held
    cdef uint32_t i, page, before = NO_PAGE
    cdef int got = rmqueue_bulk(
        &s.pages.mm.zone[c.ask.zone], order, n, s.programs.type_of[c.task.pc.kind], 0,
        list, c.ask.pindex, c.id,
    )
    if s.pages.lines != NULL:
        held = lines_of_hold(s, c)
        for i in range(list.len - got, list.len):
            page = page_ring_at(list, i)
            line_write(&held, order, page, before, False, False)
            before = page
        lines_moved(&held, order, got)
        s.holds.late += lines_end(&held)
    return got


cdef inline void drained_lines(state_t *s, cpu_t *c, pageset *ps, int n, bint mine) noexcept nogil:
    """The lines that a drain of n pages is going to write.

    Each block's and its buddy's; where __free_one_page() merges also those of the buddy's
    neighbours in its list, and the next larger buddy's.  What the blocks of one drain merge with
    each other is at hand.
    """
    cdef const page_ring *list
    cdef const buddy_zone *z = &s.pages.mm.zone[c.ask.zone]
    cdef lines_held held = lines_of_hold(s, c)
    cdef uint32_t i, page, buddy, before = NO_PAGE
    cdef int pindex = c.ask.pindex, order, k
    cdef bint at_hand
    while n > 0:
        list = &ps.lists[pindex]
        order = pindex_to_order(pindex)
        i = list.len
        while n > 0 and i:
            i -= 1
            n -= 1 << order
            page = page_ring_at(list, i)
            at_hand = line_write(&held, order, page, before, mine, False)
            before = page
            for k in range(order, MAX_PAGE_ORDER):
                buddy = page ^ <uint32_t> 1 << k
                if buddy >= z.end:
                    break
                line_write(
                    &held, order, buddy, page, mine and is_listed(z.page[buddy], c.id), at_hand
                )
                if not is_free_block(z, buddy, k):
                    break
                neighbour_lines(&held, order, z, buddy, k)
                page &= buddy
            lines_moved(&held, order, 1)
        pindex = pindex_after(s.rules.nr_pcp_lists, pindex)
    s.holds.late += lines_end(&held)


cdef inline void drain_pages(state_t *s, cpu_t *c, int owner, int before,
                             int after) noexcept nogil:
    cdef pageset *ps = pageset_of(s.pages.mm, c.ask.zone, owner)
    ps.pcp.count = before
    if s.pages.lines != NULL:
        drained_lines(s, c, ps, min(c.plan.drain, before), owner == c.id)
    free_pcppages_bulk(&s.pages.mm.zone[c.ask.zone], ps, c.plan.drain, c.ask.pindex)
    if ps.pcp.count != after:
        s.failed = LISTS_DISAGREE

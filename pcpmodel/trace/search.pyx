# cython: auto_pickle=False, autotestdict=False
"""What may have happened otherwise: `assumptions` put where they make what is seen come out.

Where no state of a pageset is as a line shows, what was done to it is gone through again, and now
whatever may be assumed is, at its cost: the flags of the zone turned; a page left its list before
the task that took it reported it; one that was reported left later; a free had not come to its list
yet; a new task took its stack in silence.  All states are followed side by side, with
few assumptions first; the cheapest that lead to what is seen are what is known from there on, and
each assumption on the way is named with the line that proves it.

One piece, though long: whoever goes through operations again may put one off, and that goes through
them again.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.limits cimport INT_MAX
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memmove

from pcpmodel.kernel.lists cimport (
    order_to_pindex, pcp_allowed_order, pindex_to_only_type, pindex_to_order,
)
from pcpmodel.kernel.pages cimport (
    MAX_PAGE_ORDER, MIGRATE_PCPTYPES, ZONE_BELOW_HIGH, ZONE_RECLAIM_ACTIVE,
)
from pcpmodel.kernel.pcp cimport commit_hold
from pcpmodel.trace.assumptions cimport *
from pcpmodel.trace.beliefs cimport *
from pcpmodel.trace.events cimport *
from pcpmodel.trace.work cimport WORK_ALLOC, forget_free

cdef enum:
    MAX_GUESSES = 4096  # states followed side by side
    MAX_TRAIL = 1 << 23     # states followed in one search
    MAX_COST = 6        # assumptions on one way
    MAX_FLOATS = 2      # of them, operations at another moment
    MAX_SPLIT = 16
    MAX_CANDIDATES = 64
    MAX_DEPTH = 2048    # pages of a list that are looked at
    SHARE = 3           # ... and of it in one search
    AHEAD_OF = 2048     # rows of a CPU within which a task tells of what it has taken
    BEFORE = 500        # rows before a checkpoint of which it may not know yet

    # What is assumed costs 1, but a free whose task shows nothing else.
    WAIT_FREE = 2

    # How a state came from the one before.
    ACT_PLAIN = 0
    ACT_TURN = 1        # the zone's flags turned; what: which
    ACT_GONE = 2        # a candidate left; what: which
    ACT_SKIP = 3        # an operation was not done yet

    # What find_turns() says, beside the flags that may have been set: those that may be clear.
    CLEAR = 3           # shifted by
    ASLEEP = 1 << 6     # kswapd is
    WAITS = 1           # the operation may have been done only after those that come next


# -- what is done, and what shows how it went ----------------------------------------

cdef operation *begin_op_slowly(Beliefs s, int x, int32_t row, int op, int order) noexcept nogil:
    """`begin_op` where there is more to do than to note it."""
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef operation *e = &s.nowhere
    cdef int k
    set.touched += 1
    if set.undecided:
        no_drain(s, x, row)
    elif set.log_n and set.log[set.log_n - 1].got == UNDECIDED:
        set.log[set.log_n - 1].got = NO_DRAIN
    if set.due.why and not set.due.started:
        differ(s, row, D_DRAIN_MISSING, x, set.due.left, set.due.why)
        set.due.why = DUE_NONE
    if not set.used:
        open_states(s, x, &set.first, True, z.maybe)
    if not set.cut:
        make_room(s, x)
        if set.log_cap:
            e = &set.log[set.log_n]
            set.log_n += 1
    if set.zone_told != z.told:
        set.zone_told = z.told
        unfold(set)
        for k in range(set.n):
            set.s[k].zone_flags = z.flags
    fill_op(e, row, op, order, z.flags)
    return e


cdef void no_drain(Beliefs s, int x, int32_t row) noexcept nogil:
    """Something else comes to a pageset: its last free did not drain."""
    cdef pageset *set = &s.sets[x]
    cdef sight none = sight(NULL, 0, 0)
    cdef bint open = count_open(set), stacks    # that count is not known, is
    cdef int k, want, above = INT_MAX - STACK_PAGES
    set.undecided = False
    if set.log_n == 0:
        return
    unfold(set)
    want = commit_hold(&set.s[0].pcp, &s.rules, max(set.s[0].due, 0))
    set.log[set.log_n - 1].got = NO_DRAIN
    if (keep(s, x, row, &none) if open else observe(s, x, row, &none)) != SAID_NONE:
        return
    for k in range(set.n):
        above = min(above, set.s[k].pcp.count - set.s[k].pcp.high)
    above += STACK_PAGES - above % STACK_PAGES
    stacks = set.counted and 0 < above <= set.s[0].pcp.count and off_by_stacks(s, x, row, above)
    if stacks:
        add_pages(set, -above)
    elif sizes_unknown(s, x, row, False, False):
        # It took more pages than shows.
        add_pages(set, -min(want, set.s[0].pcp.count))
    else:
        differ(s, row, D_DRAIN_MISSING, x, want, DUE_COMMIT)
    if not s.holds_told and not open and not stacks:
        reopen(s, x, row)
        return
    for k in range(set.n):
        set.s[k].due = 0
    checkpoint(s, x, row)


cdef int observe(Beliefs s, int x, int32_t row, const sight *g) noexcept nogil:
    """`keep`; if none is left, those that something told elsewhere leads to."""
    cdef int said = keep(s, x, row, g)
    if said == SAID_NONE and reconsider(s, x, row, g):
        return SAID_LATE
    return said


cdef bint go_through(Beliefs s, int x, int end) noexcept nogil:
    """What the states at the checkpoint have become by operation *end*, into `spare`.

    False if none of them can have gone as the trace shows.
    """
    cdef pageset *set = &s.sets[x]
    cdef pageset now
    cdef const operation *e
    cdef sight g = sight(NULL, ANYTHING, 0)
    cdef int k, i, n
    unfold(set)
    now = set[0]
    set.s, set.cap = s.spare, s.spare_cap
    set.n = set.nr_was
    if room(s, &set.s, &set.cap, set.n):
        memcpy(set.s, set.was, set.n * sizeof(state))
    for k in range(end):
        e = &set.log[k]
        if k == 0 or e.zone_flags != e[-1].zone_flags:
            unfold(set)
            for i in range(set.n):
                set.s[i].zone_flags = e.zone_flags
        do_op(s, x, e)
        if s.effort < 0 and set.n > SETTLED:
            set.n = 0
            break
        if e.op == OP_ALLOC or e.op == OP_DRAINED:
            continue
        if not set.nr_kinds or not kinds_say(s, x, e, &g):
            unfold(set)
            n = 0
            for i in range(set.n):
                if decided(s, x, &set.s[i], e):
                    if n < i:
                        set.s[n] = set.s[i]
                    n += 1
            set.n = n
            if n == 0:
                break
        if set.n > 1:
            merge_some(s, set)
    unfold(set)
    if set.n > SETTLED:
        merge_states(s, set)
    s.spare, s.spare_cap, s.nr_spare = set.s, set.cap, set.n
    set.s, set.n, set.cap = now.s, now.n, now.cap
    return s.nr_spare > 0


cdef bint rerun(Beliefs s, int x) noexcept nogil:
    """Go through the noted operations again, as they are; false if none of the states can have
    done so."""
    cdef pageset *set = &s.sets[x]
    cdef state *was = set.s
    cdef int64_t cap = set.cap
    if not go_through(s, x, set.log_n):
        return False
    set.s, set.n, set.cap = s.spare, s.nr_spare, s.spare_cap
    s.spare, s.spare_cap = was, cap
    set.undecided = set.undecided and some_due(set)
    return True


cdef void do_earlier(Beliefs s, int x, int32_t until) noexcept nogil:
    """The last operation noted, which is not done yet, was done before row *until*."""
    cdef pageset *set = &s.sets[x]
    cdef int n = set.log_n - 1, at = n
    cdef operation e
    if n <= 0:
        do_op(s, x, &s.nowhere if n < 0 else &set.log[n])
        return
    e = set.log[n]
    while at > 0 and set.log[at - 1].row >= until:
        at -= 1
    memmove(set.log + at + 1, set.log + at, (n - at) * sizeof(operation))
    set.log[at] = e
    if set.mid_at > at:
        set.mid_at, set.log_more = -1, 0
    if rerun(s, x):
        return
    # Not there, then; a probe will tell.
    memmove(set.log + at, set.log + at + 1, (n - at) * sizeof(operation))
    set.log[n] = e
    do_op(s, x, &e)


cdef void forget_op(Beliefs s, int x, int k) noexcept nogil:
    """An operation that was noted was not done; `rerun` is to follow."""
    cdef pageset *set = &s.sets[x]
    set.log_n -= 1
    memmove(set.log + k, set.log + k + 1, (set.log_n - k) * sizeof(operation))
    set.mid_at, set.log_more = -1, 0
    if k == set.log_n:
        set.undecided = False


cdef int joins_at(Beliefs s, int32_t page, int cpu) noexcept nogil:
    """The CPU whose list a free comes to that was stopped on its way to that of *cpu*.

    free_unref_page() asks for the lists of the CPU that it runs on after its mm_page_free: the
    task may have been moved until then, or afterwards; who has the page next tells.
    """
    cdef int32_t then = s.link[s.page[page].pushed].own_next, k = s.page[page].cursor
    return cpu if not then or not k or s.rows[k].cpu == cpu else s.rows[then].cpu


cdef void put_off(Beliefs s, int x, int32_t page, int32_t row) noexcept nogil:
    """A free had not come to its list by *row*: it will with its task's next line."""
    cdef int32_t j = s.page[page].pushed
    explain(s, j, E_DELAYED, x, s.link[j].own_next or row)
    s.late[s.nr_late] = late_act(s.link[j].own_next, j, page,
                                 pindex_to_order((s.page[page].where - 1) & 15),
                                 joins_at(s, page, s.sets[x].cpu))
    s.nr_late += 1
    unlink_page(s, page)
    s.page[page].status = DELAYED
    forget_free(&s.work_done, page + s.base, j)


cdef void delay(Beliefs s, int32_t page, int32_t row) noexcept nogil:
    """A free that the kernel had not completed by *row*."""
    cdef int x = (s.page[page].where - 1) >> 4
    cdef int order = pindex_to_order((s.page[page].where - 1) & 15)
    put_off(s, x, page, row)
    take_back(s, x, s.page[page].pushed, order)


cdef void went_past(Beliefs s, int32_t page, int32_t row) noexcept nogil:
    """A free never came to its list, as an allocation shows that takes what would lie below it."""
    cdef int x = (s.page[page].where - 1) >> 4
    cdef int order = pindex_to_order((s.page[page].where - 1) & 15)
    cdef int32_t j = s.page[page].pushed
    explain(s, j, E_TRYLOCK, x, row)
    unlink_page(s, page)
    forget_free(&s.work_done, page + s.base, j)
    take_back(s, x, j, order)


cdef void take_back(Beliefs s, int x, int32_t j, int order) noexcept nogil:
    """The free of row *j* is undone."""
    cdef pageset *set = &s.sets[x]
    cdef int k = set.log_n - 1
    while k >= 0 and (set.log[k].op != OP_FREE or set.log[k].row != j):
        k -= 1
    if k >= 0:
        forget_op(s, x, k)
        if rerun(s, x):
            return
    add_pages(set, -(1 << order))


# -- what may have happened otherwise ------------------------------------------------

cdef int32_t next_flags(Beliefs s, int x, int32_t row) noexcept nogil:
    """Next row whose probe shows the flags of this pageset's zone, or -1."""
    cdef int32_t j
    cdef const int64_t *f
    cdef const event_row *r
    cdef zone_info *z = &s.zones[s.sets[x].zone]
    if s.effort < 0 or not s.holds_told:
        return -1
    for j in range(row, s.nr_rows):
        r = &s.rows[j]
        if r.probe >= 0:
            f = &s.probes[r.probe * P_COLUMNS]
            if f[P_ZONE_FLAGS] >= 0 and zone_told(s, f) == z:
                s.effort -= (j - row) >> 6
                return j
    s.effort -= (s.nr_rows - row) >> 6
    return -1


cdef inline bint sooner(Beliefs s, const candidate *a, const candidate *b, int pid) noexcept nogil:
    cdef bint mine = s.rows[a.report].pid == pid
    if mine != (s.rows[b.report].pid == pid):
        return mine
    return a.report < b.report


cdef void add_candidate(Beliefs s, const candidate *c, int pid) noexcept nogil:
    """Keep the likeliest: of the task that an interrupt stopped here, then who reports soonest."""
    cdef int k = s.nr_found
    if s.nr_found < MAX_CANDIDATES:
        s.nr_found += 1
    else:
        k -= 1
        if not sooner(s, c, &s.found[k], pid):
            return
    while k > 0 and sooner(s, c, &s.found[k - 1], pid):
        s.found[k] = s.found[k - 1]
        k -= 1
    s.found[k] = c[0]


cdef void find_candidates(Beliefs s, int x, int32_t row) noexcept nogil:
    """Pages that had left their lists by *row* though their lines come later, likeliest first.

    Such a page is at the head, or below pages that joined the list since its task was last seen, or
    below other such pages.
    """
    cdef pageset *set = &s.sets[x]
    cdef int i, depth
    cdef int32_t q, j, oldest
    cdef int32_t below[MAX_PCP_LISTS]
    cdef candidate c
    s.nr_found = 0
    for i in range(s.rules.nr_pcp_lists):
        q = set.list[i].head
        if not s.holds_told and i < MIGRATE_PCPTYPES:
            find_stacks(s, x, q, row)
        oldest = s.nr_rows      # oldest push among the pages above that did not leave
        depth = 0
        while q >= 0 and depth < MAX_DEPTH:
            j = s.page[q].cursor
            if in_flight(s, q, row) and s.link[j].own_prev < oldest:
                c = candidate(q, j, max(s.link[j].own_prev, s.page[q].pushed), oldest, 0,
                              pindex_to_order(i), -1)
                add_candidate(s, &c, s.rows[row].pid)
            # It may have stayed as well.
            oldest = min(oldest, s.page[q].pushed)
            depth += 1
            q = s.page[q].next
        below[i] = oldest if set.open[i] and q < 0 else 0
        s.effort -= depth >> 3
    if not s.holds_told:
        find_interrupted(s, x)
    if not s.dumped and s.rows[row].cpu == set.cpu:
        find_unseen(s, x, row, below)


cdef void find_unseen(Beliefs s, int x, int32_t row, const int32_t *below) noexcept nogil:
    """Pages that lay where nothing is known of a list, and had left by *row*.

    The next line of their task tells of them, and none before it did.  *below*: until when each
    list gave what lies below all that is known of it.
    """
    cdef pageset *set = &s.sets[x]
    cdef const event_row *r
    cdef int32_t j = row, until
    cdef int64_t p
    cdef int looked = 0
    cdef candidate c
    while looked < AHEAD_OF and s.link[j].next_cpu:
        looked += 1
        j = s.link[j].next_cpu
        r = &s.rows[j]
        if r.event != EV_ALLOC or r.flags & IRQ or s.link[j].own_prev >= row \
                or not 0 <= r.c < MIGRATE_PCPTYPES \
                or not pcp_allowed_order(s.rules.nr_pcp_lists, <int>r.b):
            continue
        p = index_of(s, r.a)
        if not is_told(s, p) or s.page[p].status != UNSEEN or s.page[p].where \
                or s.page[p].cursor != j or set_of(s, p, set.cpu) != x:
            continue
        until = below[order_to_pindex(s.rules.nr_pcp_lists, <int>r.c, <int>r.b)]
        if s.link[j].own_prev < until:
            c = candidate(<int32_t>p, j, s.link[j].own_prev, until, 0, <int>r.b, -1)
            add_candidate(s, &c, s.rows[row].pid)
    s.effort -= looked >> 3


cdef void find_interrupted(Beliefs s, int x) noexcept nogil:
    """Pages that may have left before an interrupt freed others, though told of after it."""
    cdef pageset *set = &s.sets[x]
    cdef int k
    cdef int32_t row, before, since
    for k in range(set.log_n - 1, max(set.log_n - MAX_DEPTH, 0), -1):
        row, before = set.log[k].row, set.log[k - 1].row
        since = line_before(s, row)
        if s.nr_found < MAX_CANDIDATES and set.log[k].op == OP_ALLOC \
                and set.log[k - 1].op == OP_FREE and s.rows[row].event == EV_ALLOC \
                and since < before < row and s.rows[before].flags & IRQ \
                and s.rows[before].pid == s.rows[row].pid and not s.rows[row].flags & IRQ:
            s.found[s.nr_found] = candidate(
                set.log[k].page, row, since, row, 0, set.log[k].order, k)
            s.nr_found += 1


cdef void find_stacks(Beliefs s, int x, int32_t q, int32_t row) noexcept nogil:
    """Pages from *q* on, of one stack, that are freed next though nobody tells who took them; below
    others that came later, if a new task tells of one.  At the head it may be of more stacks than
    one: each such candidate has those before, and so no two of them are taken."""
    cdef candidate c
    cdef int depth = 0, first = 0, k, above = 0
    cdef int32_t oldest = s.nr_rows, head = q
    while q >= 0 and depth < MAX_DEPTH:
        depth += 1
        k = stack_from(s, q, -1, &first) if goes_silently(s, q, row) else 0
        if k == 0:
            oldest = min(oldest, s.page[q].pushed)
            q = s.page[q].next
            continue
        c = candidate(q, s.page[q].cursor, 0, oldest, k, 0, -1)
        for _ in range(k):
            c.since = max(c.since, s.page[q].pushed)
            q = s.page[q].next
        if oldest == s.nr_rows:
            # What lies at the head was there when the list was last told of.
            c.since = max(c.since, s.sets[x].moved[(s.page[head].where - 1) & 15])
            above += k
            c.page, c.pages = head, above
            add_candidate(s, &c, -1)
        elif fork_between(s, s.sets[x].cpu, c.since, oldest, oldest + COPIED, 0) >= 0:
            add_candidate(s, &c, -1)
    s.effort -= depth >> 3


cdef void find_turns(Beliefs s, int x, int32_t row) noexcept nogil:
    """Before which operations the zone's flags can have turned.

    Only the drain of a commit clears ZONE_BELOW_HIGH, and its probe shows that it was set; it is
    set where free pages may be below the high watermark.  Only a kswapd that wakes sets
    ZONE_RECLAIM_ACTIVE, and it sleeps without it.  All this happens some time after its line.
    """
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef int32_t j = max(set.was_row - BEFORE, 0)
    cdef int k, turns = ZONE_RECLAIM_ACTIVE << CLEAR
    cdef const event_row *r
    cdef const int64_t *f
    s.effort -= (row - j) >> 6
    if not s.holds_told:
        turns |= ZONE_BELOW_HIGH << CLEAR
        if z.slept > z.woken and z.slept < j:
            turns |= ASLEEP
        elif z.woken > 0:
            turns |= ZONE_RECLAIM_ACTIVE
    for k in range(set.log_n + 1):
        while j < (set.log[k].row if k < set.log_n else row):
            r = &s.rows[j]
            if r.event == EV_KSWAPD_WAKE and (r.c == z.node or r.c < 0):
                turns = (turns | ZONE_RECLAIM_ACTIVE) & ~ASLEEP
            elif r.event == EV_KSWAPD_SLEEP and (r.c == z.node or r.c < 0):
                turns = (turns & ~ZONE_RECLAIM_ACTIVE) | ASLEEP
            elif r.event == EV_FREE_PCPPAGES_BULK and s.holds_told:
                f = &s.probes[r.probe * P_COLUMNS]
                if f[P_ZONE_FLAGS] & ZONE_BELOW_HIGH and zone_told(s, f) == z:
                    turns |= ZONE_BELOW_HIGH << CLEAR
            j += 1
        if may_be_low(s, x, j):
            turns |= ZONE_BELOW_HIGH
        s.turns[k] = <uint8_t>(turns | (k < set.log_n and may_wait(s, x, k)))


cdef void find_first(Beliefs s, int x, bint pages) noexcept nogil:
    """The first operation at which something, or one of the *pages* alone, can have gone otherwise.
    """
    cdef pageset *set = &s.sets[x]
    cdef int k = 0, c
    cdef int32_t since = s.nr_rows
    for c in range(s.nr_found):
        since = min(since, s.found[c].since)
    while k < set.log_n and set.log[k].row <= since and (pages or (
            not s.turns[k] & WAITS and not s.kinds
            and (k == 0 or set.log[k].zone_flags == set.log[k - 1].zone_flags))):
        k += 1
    s.first = k


cdef inline bint may_turn(int was, int now, int turns) noexcept nogil:
    return not (now & ~was & ~turns) and not (was & ~now & ~(turns >> CLEAR))


cdef inline bint may_wait(Beliefs s, int x, int k) noexcept nogil:
    """Whether an operation may have been done only after those that come next."""
    cdef pageset *set = &s.sets[x]
    cdef const operation *e = &set.log[k]
    if e.op == OP_FREE:
        return (s.page[e.page].where - 1) >> 4 == x and s.page[e.page].pushed == e.row \
            and may_be_delayed(s, e.page, s.search_row)
    return e.op == OP_ALLOC and k + 1 < set.log_n and e.row > set.log[k + 1].row


# -- states side by side -------------------------------------------------------------

cdef bint room_to_search(Beliefs s, int n) noexcept nogil:
    if s.trail == NULL:
        s.trail = <step_back *>malloc(MAX_TRAIL * sizeof(step_back))
        s.layers = <guess *>malloc(2 * MAX_GUESSES * sizeof(guess))
        if s.trail == NULL or s.layers == NULL:
            return False
    return has_room(<void **>&s.turns, &s.turns_cap, n, 1)


cdef inline bint same_waits(const guess *a, const guess *b) noexcept nogil:
    return a.waits[0] == b.waits[0] and a.waits[1] == b.waits[1]


cdef inline bint same_guess(const guess *a, const guess *b) noexcept nogil:
    return a.gone == b.gone and same_waits(a, b) and same_state(&a.s, &b.s)


cdef int add_guess(Beliefs s, guess *layer, int n, guess *new, int act, int what) noexcept nogil:
    """Put a state in a layer unless it is there with fewer assumptions."""
    cdef uint64_t h
    cdef int32_t at
    s.effort -= 1
    new.hash = hash_of(&new.s) ^ new.gone * 31 ^ <uint64_t>(new.waits[0] * 7 + new.waits[1])
    if 2 * n >= s.slots and not grow_table(s, layer, n):
        return n
    h = new.hash & (s.slots - 1)
    while s.table[h] >= 0:
        at = s.table[h]
        if layer[at].hash == new.hash and same_guess(&layer[at], new):
            if new.cost >= layer[at].cost:
                return n
            break
        h = (h + 1) & (s.slots - 1)
    else:
        if n == MAX_GUESSES:
            return n
        s.table[h] = at = n
        n += 1
    layer[at] = new[0]
    layer[at].trail = s.used
    s.trail[s.used] = step_back(new.trail, <int16_t>what, <int8_t>act, <int8_t>new.s.zone_flags)
    s.used += 1
    return n


cdef bint grow_table(Beliefs s, const guess *layer, int n) noexcept nogil:
    cdef int k
    cdef uint64_t h
    if not clear_table(s, 2 * n):
        return False
    for k in range(n):
        h = layer[k].hash & (s.slots - 1)
        while s.table[h] >= 0:
            h = (h + 1) & (s.slots - 1)
        s.table[h] = k
    return True


cdef inline int free_slot(const guess *v) noexcept nogil:
    return 0 if v.waits[0] == 0 else 1 if v.waits[1] == 0 else -1


cdef inline bint waits(const pageset *set, const guess *v, int op) noexcept nogil:
    """Whether an operation of this kind has not been done yet."""
    return (v.waits[0] and set.log[v.waits[0] - 1].op == op) \
        or (v.waits[1] and set.log[v.waits[1] - 1].op == op)


cdef inline void leave_early(Beliefs s, state *v, const candidate *c) noexcept nogil:
    if not c.pages:
        begin_alloc(&s.rules, v)
    for _ in range(max(c.pages, 1)):
        pcp_alloc_end(&v.pcp, &s.rules, c.order)


cdef inline bint goes_with(Beliefs s, uint64_t gone, int c) noexcept nogil:
    """Whether stacks that lie at the head have pages of others of these that are gone."""
    cdef int d = 0
    if not s.found[c].pages:
        return False
    while gone:
        if gone & 1 and s.found[d].pages and s.found[d].page == s.found[c].page:
            return True
        gone >>= 1
        d += 1
    return False


cdef int branch(Beliefs s, int x, int k, guess *layer, int have, int most) noexcept nogil:
    """What may have been done before operation *k*, out of its turn."""
    cdef pageset *set = &s.sets[x]
    cdef int n = set.log_n, i = 0, c, j, slot, cost
    cdef int32_t before = set.log[k - 1].row if k else -1
    cdef int32_t after = set.log[k].row if k < n else s.nr_rows
    cdef guess new
    while i < have and have < MAX_GUESSES:
        for slot in range(2):
            j = layer[i].waits[slot] - 1
            if j >= 0 and set.log[j].op == OP_ALLOC and j + 1 < k and before < set.log[j].row:
                new = layer[i]
                new.waits[slot] = 0
                new.cost += new.gone == 0
                if new.cost > most:
                    continue
                new.floats -= 1
                new.rank -= 1
                apply(&s.rules, &new.s, &set.log[j], NULL)
                have = add_guess(s, layer, have, &new, ACT_PLAIN, 0)
        # What was said to have left before others came was below a page that had left by then: one
        # cause for both.
        cost = 1 - waits(set, &layer[i], OP_ALLOC)
        if layer[i].cost + cost > most or layer[i].floats >= MAX_FLOATS:
            i += 1
            continue
        # Before or after an allocation is the same, unless another one waits: one look at each.
        for c in range(0 if cost and k < n and set.log[k].op == OP_ALLOC else s.nr_found):
            if layer[i].gone >> c & 1 or (k and before >= s.found[c].until) \
                    or after <= s.found[c].since or goes_with(s, layer[i].gone, c):
                continue
            new = layer[i]
            leave_early(s, &new.s, &s.found[c])
            new.gone |= <uint64_t>1 << c
            new.cost += cost
            new.floats += 1
            new.rank += c
            have = add_guess(s, layer, have, &new, ACT_GONE, c)
        i += 1
    return have


cdef int turned(Beliefs s, int x, int k, const guess *v, int flags, int turn, guess *into,
                int have) noexcept nogil:
    """Do operation *k* with these flags of the zone."""
    cdef const operation *e = &s.sets[x].log[k]
    cdef operation done
    cdef guess new = v[0]
    cdef state rest[MAX_SPLIT]
    cdef int depth = 1, tried = 0
    rest[0] = v.s
    rest[0].zone_flags = flags
    new.cost += turn != 0
    if e.op == OP_UNKNOWN:
        while depth <= e.got - e.begin and v.s.pcp.count >= e.begin + depth - 1:
            rest[depth] = rest[0]
            rest[depth].pcp.count -= e.begin + depth - 1
            depth += 1
    elif e.op == OP_MAYBE:
        new.s = rest[0]
        have = add_guess(s, into, have, &new, ACT_TURN if turn else ACT_PLAIN, turn)
        done = allocation(e)
        e = &done
    while depth:
        tried += 1
        if depth < MAX_SPLIT and e.op != OP_UNKNOWN \
                and apply(&s.rules, &rest[depth - 1], e, &rest[depth]):
            depth += 1  # cut in two: the second half is looked at first
            continue
        depth -= 1
        if decided(s, x, &rest[depth], e):
            new.s = rest[depth]
            have = add_guess(s, into, have, &new, ACT_TURN if turn else ACT_PLAIN, turn)
    s.effort -= tried >> 3  # free_count may have to be told value by value
    return have


cdef int advance(Beliefs s, int x, int k, guess *v, guess *into, int have, int most) noexcept nogil:
    """Do operation *k* in a state, in each way in which it may have gone."""
    cdef pageset *set = &s.sets[x]
    cdef const operation *e = &set.log[k]
    cdef int turns = s.turns[k], flags = v.s.zone_flags, to, turn, cost
    cdef int told = set.log[k - 1].zone_flags if k else flags
    cdef bint decides = e.op == OP_FREE or e.op == OP_REFILL
    cdef int c
    cdef guess new
    if v.gone and e.op == OP_ALLOC:
        for c in range(s.nr_found):
            if s.found[c].op == k and v.gone >> c & 1:  # it was done before
                new = v[0]
                new.s.zone_flags = e.zone_flags
                return add_guess(s, into, have, &new, ACT_PLAIN, 0)
    cost = WAIT_FREE if e.op == OP_FREE else 1
    if most and v.cost + cost <= most and v.floats < MAX_FLOATS and free_slot(v) >= 0 \
            and turns & WAITS:
        new = v[0]
        new.waits[free_slot(v)] = <int16_t>(k + 1)
        new.s.due = 0
        new.cost += cost
        new.floats += 1
        have = add_guess(s, into, have, &new, ACT_SKIP, k)
    if e.zone_flags != told:
        if most:
            # A probe on another CPU may show the flags later than they were so here.
            have = turned(s, x, k, v, flags, 0, into, have)
        flags = e.zone_flags
    if turns & ASLEEP:
        flags &= ~ZONE_RECLAIM_ACTIVE
    have = turned(s, x, k, v, flags, 0, into, have)
    if not decides or v.cost >= most:
        return have
    for turn in range(2, 8, 2):
        to = flags ^ turn
        if not turn & ~s.kinds and may_turn(flags, to, turns):
            have = turned(s, x, k, v, to, turn, into, have)
    return have


cdef inline bint likelier(const guess *a, const guess *b) noexcept nogil:
    if a.cost != b.cost:
        return a.cost < b.cost
    if a.floats != b.floats:
        return a.floats < b.floats
    return a.rank < b.rank


cdef void explain_way(Beliefs s, int x, int32_t row, const guess *v, int32_t shown) noexcept nogil:
    """Name what was assumed on the way to a state, each with the line that proves it."""
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef int32_t t = v.trail, why = 0, q
    cdef int turns = 0, cleared = 0, late = -1, c, k
    cdef const step_back *b
    while t >= 0:
        b = &s.trail[t]
        t = b.parent
        if b.act == ACT_TURN:
            turns |= b.what
            cleared |= b.what & ~b.zone_flags
        elif b.act == ACT_SKIP and set.log[b.what].op == OP_ALLOC:
            late = b.what
    for c in range(s.nr_found):
        if not v.gone >> c & 1:
            continue
        # What was said to have left before others came was below this one instead.
        if late >= 0 and instead(s, set.log[late].row, E_LATE, E_OVERTAKEN, s.found[c].report):
            late = -1
            continue
        if not s.found[c].pages:
            explain(s, row, E_IN_FLIGHT, x, s.found[c].report)
        q = s.found[c].page
        for k in range(s.found[c].pages):
            if k % STACK_PAGES == 0:
                explain(s, row, E_SILENT, x, s.page[q].cursor)
            q = s.page[q].next
    if late >= 0:
        explain(s, row, E_IN_FLIGHT, x, set.log[late].row)
    if turns:
        set.high_before = set.s[0].pcp.high if set.n else 0
        why = z.woken if turns & ZONE_RECLAIM_ACTIVE else min(z.low, s.large_row or s.nr_rows)
        if shown >= 0:
            why = shown
        elif why == s.nr_rows:
            why = z.drained if cleared & ZONE_BELOW_HIGH and z.drained else row
        # What a probe shows explains the operation that led there.
        explain(s, set.log[set.log_n - 1].row if why == row and set.log_n else row,
                E_ZONE_FLAGS, x, why)


cdef void take_way(Beliefs s, int x, int32_t row, const guess *v) noexcept nogil:
    """Put the lists right with what had left by then, or not come."""
    cdef pageset *set = &s.sets[x]
    cdef int c, i, mt, slot
    cdef int32_t q, nxt
    # By count alone nobody tells whether it was this one or one that a hidden task took.
    cdef int how = DOUBTED if set.hidden > set.counted and s.rows[row].cpu == set.cpu else SHOWN
    for c in range(s.nr_found):
        q = s.found[c].page
        if not v.gone >> c & 1 or s.found[c].op >= 0:
            continue
        if not s.page[q].where:
            if s.page[q].status == UNSEEN:
                s.page[q].pushed = row
                mt = <int>s.rows[s.found[c].report].c
                i = order_to_pindex(s.rules.nr_pcp_lists, mt, s.found[c].order)
                was_there(s, q, x, i, False)
                await_report(s, q, how, s.found[c].order, mt)
            continue
        i = (s.page[q].where - 1) & 15
        if not s.found[c].pages:
            work(s, WORK_ALLOC, q, pindex_to_order(i), i, set.cpu, 0, row)
            unlink_page(s, q)
            s.page[q].pushed = row
            await_report(s, q, how, pindex_to_order(i), pindex_to_only_type(i))
        set.silent += s.found[c].pages
        set.silent_by = row
        for _ in range(s.found[c].pages):
            nxt = s.page[q].next
            unlink_page(s, q)
            s.page[q].status = AWAY
            q = nxt
    for slot in range(2):
        if v.waits[slot]:
            q = set.log[v.waits[slot] - 1].page
            if s.page[q].where:
                put_off(s, x, q, row)


cdef int begin_search(Beliefs s, guess *layer) noexcept nogil:
    """The states where something can have gone otherwise."""
    cdef int k, have = 0
    cdef guess new
    s.used = 0
    memset(&new, 0, sizeof(guess))
    new.trail = -1
    if not clear_table(s, s.nr_spare):
        return 0
    for k in range(s.nr_spare):
        new.s = s.spare[k]
        have = add_guess(s, layer, have, &new, ACT_PLAIN, 0)
    return have


cdef bint search(Beliefs s, int x, int32_t row, const sight *g, int most, int32_t shown,
                 int last_flags) noexcept nogil:
    """What is known at *row*, with at most so many assumptions since the checkpoint.

    All states that the noted operations can have led to are followed side by side.  *shown*: row
    that shows the zone's flags next, if one does: *last_flags*.
    """
    cdef pageset *set = &s.sets[x]
    cdef int n = set.log_n, k, i, have, more, best = -1
    cdef const operation *last = &set.log[n - 1] if n else NULL
    cdef guess *layer
    cdef guess *into
    layer, into = s.layers, s.layers + MAX_GUESSES
    have = begin_search(s, layer)
    for k in range(s.first, n + 1):
        if most:
            have = branch(s, x, k, layer, have, most)
        if k == n:
            break
        if s.effort < s.enough or s.used + 16 * MAX_GUESSES > MAX_TRAIL \
                or not clear_table(s, have):
            return False
        more = 0
        for i in range(have):
            more = advance(s, x, k, &layer[i], into, more, most)
        if more == 0:
            return False
        s.most_states = max(s.most_states, more)
        layer, into, have = into, layer, more
    for i in range(have):
        layer[i].good = not waits(set, &layer[i], OP_ALLOC) \
            and (last_flags < 0 or may_turn(layer[i].s.zone_flags, last_flags, s.turns[n])) \
            and meets(s, set, &layer[i].s, last, g)
        if layer[i].good and (best < 0 or likelier(&layer[i], &layer[best])):
            best = i
    if best < 0:
        return False
    if layer[best].cost or layer[best].floats:
        explain_way(s, x, row, &layer[best], shown)
    more = 0
    for i in range(have):
        if layer[i].good and layer[i].cost == layer[best].cost \
                and layer[i].gone == layer[best].gone and same_waits(&layer[i], &layer[best]) \
                and room(s, &set.s, &set.cap, more + 1):
            set.s[more] = layer[i].s
            more += 1
    set.n = more
    s.moved_some = layer[best].floats > 0
    i = layer[best].trail
    for k in range(n - 1, s.first - 1 if not s.moved_some else n, -1):
        # Who goes through these again takes that way.
        set.log[k].zone_flags = <uint8_t>s.trail[i].zone_flags
        i = s.trail[i].parent
    take_way(s, x, row, &layer[best])
    return True


cdef bint find_way(Beliefs s, int x, int32_t row, const sight *g, int32_t shown,
                   int last_flags, bint pages) noexcept nogil:
    """The cheapest way from the checkpoint to what something shows; *pages*: by these alone."""
    cdef int most
    s.enough = max(s.effort - EFFORT // SHARE, 0)
    find_turns(s, x, row)
    find_first(s, x, pages)
    if not go_through(s, x, s.first):
        return False
    for most in range(MAX_COST + 1 if s.kinds else MAX_FLOATS + 1):
        if search(s, x, row, g, most, shown, last_flags):
            settle_way(s, x, row)
            return True
        if s.effort < s.enough:
            if s.effort < 0 and s.cut_row < 0:
                s.cut_row = row
            return False
    return False


cdef void settle_way(Beliefs s, int x, int32_t row) noexcept nogil:
    """What was found holds from here on."""
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    unfold(set)
    if set.n and set.s[0].zone_flags != <int>z.flags:
        z.flags = set.s[0].zone_flags
        z.told += 1
    set.zone_told = z.told
    if s.moved_some:
        checkpoint(s, x, row)
    else:
        milestone(s, x)


cdef bint may_hold(Beliefs s, int x, int pages) noexcept nogil:
    """Whether lists can hold so many pages, whatever a search may find since the checkpoint: that
    moves a few blocks, and flags of the zone move none."""
    cdef pageset *set = &s.sets[x]
    cdef const operation *e
    cdef int k, n, least = INT_MAX, most = 0, few = MAX_FLOATS << MAX_PAGE_ORDER
    for k in range(set.nr_was):
        least = min(least, set.was[k].pcp.count)
        most = max(most, set.was[k].pcp.count)
    for k in range(set.log_n):
        e = &set.log[k]
        n = 0
        if e.op == OP_ALLOC or e.op == OP_SILENT:
            n = -(1 << e.order)
        elif e.op == OP_FREE:
            n = 1 << e.order
        elif e.op == OP_REFILL:
            n = (e.got - (1 if e.begin and e.got > 0 else 0)) << e.order
        elif e.op == OP_DRAINED:
            n = -e.got
        elif e.op == OP_UNKNOWN:
            n = -<int>e.begin
            least -= e.got - 1 - <int>e.begin
        elif e.op == OP_MAYBE:
            least -= 1 << e.order
        least += n
        most += n
    return least - few <= pages <= most + few


cdef bint reconsider(Beliefs s, int x, int32_t row, const sight *g) noexcept nogil:
    """No state is as something shows: what may have gone otherwise since the checkpoint?"""
    cdef pageset *set = &s.sets[x]
    cdef zone_info *z = &s.zones[set.zone]
    cdef int32_t shown = row
    cdef int last_flags = -1, n = set.log_n
    if s.nr_unexplained:
        s.effort = min(s.effort, EFFORT)
    if s.effort < 0:
        return False
    if n == 0:
        save(s, set, &set.was, &set.nr_was, &set.was_cap)
    elif set.log[n - 1].op == OP_EMPTIED and not may_hold(s, x, set.log[n - 1].got):
        return False
    if not room_to_search(s, n + 1):
        return False
    s.search_row = row
    find_candidates(s, x, row)
    if g.fields == NULL:
        shown = next_flags(s, x, set.log[n - 1].row if n else row)
    if g.fields != NULL and g.fields[P_ZONE_FLAGS] >= 0:
        last_flags = <int>g.fields[P_ZONE_FLAGS] & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH)
    s.kinds = z.seen_flags
    if not s.holds_told:
        s.kinds = z.maybe
        if z.woken > 0:
            s.kinds |= ZONE_RECLAIM_ACTIVE
        if s.rules.below_high and may_be_low(s, x, row):
            s.kinds |= ZONE_BELOW_HIGH
    if find_way(s, x, row, g, shown, last_flags, False):
        return True
    if s.effort >= s.enough or not s.nr_found:
        return False
    # So much may have gone otherwise since the checkpoint that not all ways were gone.
    s.kinds = 0
    return find_way(s, x, row, g, shown, last_flags, True)

"""The event engine: one event per lock interaction.

Between two interactions a CPU touches only what is its own, so it is advanced
in one go: a run of PCP hits or of frees below ``high`` is a handful of integer
operations whatever its length.  When a CPU arrives at a lock its grant and its
hold are known at once, so the interaction needs no second event.

Arrivals are taken in order of (time, CPU number).  The order lives in a winner
tree over 64-bit keys, ``time << 10 | cpu``.  `pcpmodel.simulation.per_page`
does the same work a page at a time; both give the same numbers, bit for bit.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from pcpmodel.kernel.pages cimport pages_prefetch, pages_unlikely
from pcpmodel.machine.lock cimport fifo_lock, lock_free, lock_grant, lock_init, lock_leave
from pcpmodel.simulation.state cimport (
    ARRIVED,
    BLOCKED,
    BY_REMOTE,
    LRU,
    OP_ALLOC,
    RUNNING,
    State,
    account,
    arrive_direct,
    arrive_refill,
    control,
    cpu_t,
    doze,
    due,
    free_block,
    interact,
    lru_counts,
    op_t,
    pcp_of,
    pcp_t,
    put_pages,
    released,
    scaled,
    state_t,
    step_block,
    take_pages,
    trylock_fails,
    turns_back,
)
from pcpmodel.kernel.pcp cimport PCPF_PREV_FREE_HIGH_ORDER, pcp_clamp

__all__ = ["MAX_CPUS", "MAX_SECONDS", "Engine"]

cdef enum:
    CPU_BITS = 10

MAX_CPUS = 1 << CPU_BITS
MAX_SECONDS = 9007  # 2 ** 53 ps, what a key has room for

cdef uint64_t NEVER = <uint64_t> -1


@cython.cdivision(True)
cdef inline int fitting(int64_t k, int64_t ps, int64_t room) noexcept nogil:
    """How many of ``k`` steps of ``ps`` begin before ``room`` has passed."""
    if k * ps <= room:
        return <int> k
    return <int> ((room + ps - 1) // ps)


cdef inline void skip_allocs(state_t *s, cpu_t *c) noexcept nogil:
    """As many PCP hits as there are blocks, or arrive for a refill."""
    cdef op_t *op = c.pc
    cdef pcp_t *p = pcp_of(s, c, c.at[op.zone])
    cdef int k = min(c.left, p.blocks[op.pindex])
    cdef int64_t ps = scaled(op.ps, c.factor)
    if trylock_fails(s, c):
        arrive_direct(s, c)
        return
    if k == 0:
        arrive_refill(s, c)
        return
    if s.trylock:
        k = min(k, c.quiet)
    if op.depth:
        k = min(k, c.lru_left)
    k = fitting(k, ps, c.timer - c.time)
    # k times pcp_alloc_begin() and pcp_alloc_end()
    if s.rules.free_count:
        p.pcp.free_count >>= min(k, 31)
    else:
        p.pcp.free_factor >>= min(k, 31)
    p.pcp.count -= k << op.order
    if s.rules.count_min and p.pcp.count < p.pcp.count_min:
        p.pcp.count_min = p.pcp.count
    p.blocks[op.pindex] -= k
    take_pages(s, c, c.at[op.zone], op.pindex, k)
    s.count[c.id].alloc_blocks += k
    s.count[c.id].alloc_pages += <uint64_t> k << op.order
    c.left -= k
    c.time += k * ps
    lru_counts(s, c, k)
    if s.trylock:
        c.quiet -= k
    elif c.left > 0 and p.blocks[op.pindex] == 0 and c.time < c.timer and c.state == RUNNING:
        arrive_refill(s, c)


cdef inline void skip_frees(state_t *s, cpu_t *c) noexcept nogil:
    """As many order-0 frees as stay below ``high``; the next one goes step by step."""
    cdef op_t *op = c.pc
    cdef pcp_t *p = pcp_of(s, c, c.at[op.zone])
    cdef int k, high, full
    cdef int64_t ps
    if trylock_fails(s, c):
        arrive_direct(s, c)
        return
    if op.order or p.view or s.asks_high:
        free_block(s, c)
        return
    high = p.pcp.high_min
    if s.rules.auto_high:
        high = pcp_clamp(p.pcp.high, p.pcp.high_min, p.pcp.high_max)
    k = min(c.left, high - 1 - p.pcp.count)
    if k <= 0:
        free_block(s, c)
        return
    if s.trylock:
        k = min(k, c.quiet)
    if op.depth:
        k = min(k, c.lru_left)
    ps = scaled(op.ps, c.factor)
    k = fitting(k, ps, c.timer - c.time)
    # k times pcp_commit() and nr_pcp_high() with count < high
    if s.rules.alloc_scale:
        p.pcp.alloc_factor >>= min(k, 31)
    p.pcp.flags &= ~PCPF_PREV_FREE_HIGH_ORDER
    if s.rules.free_count:
        full = p.pcp.batch << s.rules.batch_scale_max
        if p.pcp.free_count < full:
            p.pcp.free_count = min(p.pcp.free_count + k, full)
    if s.rules.auto_high:
        p.pcp.high = high
    p.pcp.count += k
    put_pages(s, c, c.at[op.zone], op.pindex, k)
    s.count[c.id].free_pages += k
    c.left -= k
    c.time += k * ps
    lru_counts(s, c, k)
    if s.trylock:
        c.quiet -= k
    elif c.left > 0 and p.pcp.count == high - 1 and c.time < c.timer and c.state == RUNNING:
        free_block(s, c)


cdef inline void advance(state_t *s, cpu_t *c) noexcept nogil:
    """Run a CPU up to its next interaction, or until it blocks or finishes.

    Not past `careful_from`: from then on all go step by step, in the order of time.
    """
    while c.state == RUNNING and c.time < s.careful_from and not s.failed:
        # With blocks left of an operation and nothing else to do there is nothing to control.
        if (c.left <= 0 or c.chore or c.timer <= c.time) and control(s, c):
            return
        if c.pc.code == OP_ALLOC:
            skip_allocs(s, c)
        else:
            skip_frees(s, c)


cdef class Engine:
    """Runs a `State` to its end.

    Parameters
    ----------
    state : State
        Not run yet; changed in place.
    """

    cdef State state
    cdef fifo_lock *locks
    cdef uint64_t *tree  # tree[1] is the smallest key; leaf of CPU i is tree[leaves + i]
    cdef int leaves

    def __cinit__(self, State state):
        cdef uint64_t beside[CPU_BITS]
        cdef int i, k
        cdef state_t *s = &state.s
        self.state = state
        self.leaves = 2
        while self.leaves < s.cpus:
            self.leaves *= 2
        self.tree = <uint64_t *> calloc(2 * self.leaves, sizeof(uint64_t))
        self.locks = <fifo_lock *> calloc(state.nlocks, sizeof(fifo_lock))
        if self.tree == NULL or self.locks == NULL:
            raise MemoryError
        for i in range(state.nlocks):
            k = i >= s.zones
            lock_init(&self.locks[i], s.cpus, state.handoff[k][0], state.handoff[k][1])
        for i in range(2 * self.leaves):
            self.tree[i] = NEVER
        for i in range(s.cpus):
            self.look_beside(i, beside)
            self.run_cpu(&s.cpu[i], beside)
        state.check()

    def __dealloc__(self):
        cdef int i
        if self.locks != NULL:
            for i in range(self.state.nlocks):
                lock_free(&self.locks[i])
        free(self.locks)
        free(self.tree)

    cdef inline uint64_t key_of(self, cpu_t *c) noexcept nogil:
        """What the CPU's next time sorts by; of two at one time the lower number is first."""
        if c.state == ARRIVED or c.state == RUNNING:
            return <uint64_t> c.time << CPU_BITS | c.id
        if c.state == BLOCKED:
            return <uint64_t> due(&self.state.s, c) << CPU_BITS | c.id
        return NEVER

    cdef inline uint64_t look_beside(self, int cpu, uint64_t *beside) noexcept nogil:
        """The smallest key beside the CPU's way up, so far at each level, and in all."""
        cdef uint64_t key = NEVER
        cdef uint64_t *tree = self.tree
        cdef int i = self.leaves + cpu, level = 0
        while i > 1:
            key = min(key, tree[i ^ 1])
            beside[level] = key
            level += 1
            i >>= 1
        return key

    cdef inline void place(self, int cpu, uint64_t key, const uint64_t *beside) noexcept nogil:
        """Put a CPU's key into the tree."""
        cdef uint64_t *tree = self.tree
        cdef int i = self.leaves + cpu, level = 0
        tree[i] = key
        while i > 1:
            i >>= 1
            tree[i] = min(key, beside[level])
            level += 1

    cdef inline uint64_t run_cpu(self, cpu_t *c, uint64_t *beside) noexcept nogil:
        """Advance a CPU, and those that its messages set free.

        Returns its key; 0 if others have been set free, whose keys have changed, too.
        """
        cdef state_t *s = &self.state.s
        cdef uint64_t key
        advance(s, c)
        key = self.key_of(c)
        self.place(c.id, key, beside)
        while s.nwoken:
            s.nwoken -= 1
            c = &s.cpu[s.woken[s.nwoken]]
            advance(s, c)
            self.look_beside(c.id, beside)
            self.place(c.id, self.key_of(c), beside)
            key = 0
        return key

    def run(self, int64_t max_events=INT64_MAX):
        """Process up to ``max_events`` events; True once the run is over."""
        cdef bint over
        with nogil:
            over = self.loop(max_events)
        self.state.check()
        return over

    @property
    def now_ps(self):
        """Time of the next event [ps]; the end of the run once it is over."""
        if self.tree[1] == NEVER:
            return self.state.s.end
        return self.tree[1] >> CPU_BITS

    cdef bint loop(self, int64_t max_events) noexcept nogil:
        cdef state_t *s = &self.state.s
        cdef cpu_t *c
        cdef cpu_t *ahead
        cdef char *line
        cdef fifo_lock *lock
        cdef int64_t grant, hold, arrival
        cdef uint64_t first = self.tree[1], second
        cdef uint64_t beside[CPU_BITS]
        while max_events > 0:
            if first == NEVER or s.failed:
                return True
            max_events -= 1
            c = &s.cpu[first & ((1 << CPU_BITS) - 1)]
            second = self.look_beside(c.id, beside)
            # The state of all CPUs is more than the first cache holds: ask for what comes next.
            ahead = &s.cpu[0 if second == NEVER else second & ((1 << CPU_BITS) - 1)]
            pages_prefetch(ahead)
            pages_prefetch(<char *> ahead + 64)
            if (
                pages_unlikely((c.waiter | s.watch) != 0)
                and c.state == ARRIVED
                and turns_back(s, c)
            ):
                pass
            elif c.state == ARRIVED:
                arrival = c.time
                lock = &self.locks[c.lock]
                grant = lock_grant(lock, arrival)
                hold = interact(s, c)
                if s.failed:  # nothing was refilled: there is no block to go on with
                    return True
                line = <char *> pcp_of(s, ahead, ahead.zone)
                pages_prefetch(line)
                pages_prefetch(line + 64)
                line = <char *> &s.count[ahead.id]
                pages_prefetch(line)
                pages_prefetch(line + 64)
                account(s, c, arrival, grant, hold)
                c.time = grant + hold
                lock_leave(lock, c.time)
                if pages_unlikely(s.careful_from != INT64_MAX):
                    c.release_at = c.time
                    c.pcp_zone = c.zone if c.kind != LRU and c.why < BY_REMOTE else -1
                released(s, c)
            elif c.state == RUNNING:
                if c.time >= s.careful_from and not control(s, c):
                    step_block(s, c)
            else:  # asleep, and a timer is due
                doze(s, c, due(s, c))
                c.state = RUNNING
            # As a rule the runner-up is next.  The processor guesses that, and need not wait for
            # what this CPU's next time comes to.
            first = self.run_cpu(c, beside)
            first = self.tree[1] if pages_unlikely(first < second) else second
        return first == NEVER or s.failed

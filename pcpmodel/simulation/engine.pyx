"""The event engine: one event per lock interaction.

Between two interactions a CPU touches only what is its own, so it is advanced
in one go: a run of PCP hits or of frees below ``high`` is a handful of integer
operations whatever its length.  When a CPU arrives at a lock its grant and its
hold are known at once, so the interaction needs no second event.  Only a lock that is not
first come, first served has to be asked again when it is released.

Arrivals are taken in order of (time, CPU number).  The order lives in a winner
tree over 64-bit keys, ``time << 10 | cpu``, four to a match: half the levels of a tree of
pairs, and 8 % less time an event with 224 CPUs.  Sixteen to a match take 10 % more.
`pcpmodel.simulation.per_page` does the same work a page at a time; both give the
same numbers, bit for bit.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MAX as NEVER, INT64_MIN, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from pcpmodel.kernel.pages cimport pages_prefetch, pages_unlikely
from pcpmodel.kernel.pcp cimport pcp_alloc_hits, pcp_free_hits
from pcpmodel.hardware.lock cimport (
    crowd_free,
    crowd_init,
    crowd_join,
    crowd_leave,
    crowd_lock,
    crowd_take,
    fifo_lock,
    lock_free,
    lock_grant,
    lock_init,
    lock_leave,
)
from pcpmodel.simulation.cpu cimport doze, due, lock_of, scaled
from pcpmodel.simulation.lists cimport put_pages, take_pages
from pcpmodel.simulation.locks cimport account, interact, released, turns_back
from pcpmodel.simulation.program cimport (
    arrive_direct,
    arrive_refill,
    control,
    free_block,
    lru_counts,
    past_its_list,
    step_block,
)
from pcpmodel.simulation.state cimport State
from pcpmodel.simulation.structs cimport (
    ARRIVED,
    BLOCKED,
    BY_REMOTE,
    LRU,
    RUNNING,
    cpu_t,
    op_t,
    pcp_of,
    pcp_t,
    state_t,
)
from pcpmodel.workload.ops cimport OP_ALLOC

__all__ = ["MAX_CPUS", "MAX_SECONDS", "Engine"]

cdef enum:
    CPU_BITS = 10
    LEVELS = 5  # of the tree, for 4 ** 5 CPUs

MAX_CPUS = 1 << CPU_BITS
MAX_SECONDS = 9007  # 2 ** 53 ps, what a key has room for


cdef inline int64_t key_at(int64_t time, int cpu) noexcept nogil:
    """What sorts by time, then by CPU: signed, as the smaller of two is then found sooner."""
    return <int64_t> (<uint64_t> time << CPU_BITS | cpu) ^ INT64_MIN


@cython.cdivision(True)
cdef inline int fitting(int64_t k, int64_t ps, int64_t room) noexcept nogil:
    """How many of ``k`` steps of ``ps`` begin before ``room`` has passed."""
    if k * ps <= room:
        return <int> k
    return <int> ((room + ps - 1) // ps)


cdef inline void skip_allocs(state_t *s, cpu_t *c) noexcept nogil:
    """As many PCP hits as there are blocks, or arrive for a refill."""
    cdef op_t *op = c.task.pc
    cdef pcp_t *p = pcp_of(c, c.task.zone[op.zone])
    cdef int k
    cdef int64_t ps = scaled(op.ps, c.task.factor)
    if past_its_list(s, c):
        arrive_direct(c)
        return
    k = min(c.task.left, p.blocks[op.pindex])
    if k == 0:
        arrive_refill(c)
        return
    if s.lists.trylock:
        k = min(k, c.quiet)
    if op.depth:
        k = min(k, c.task.lru_left)
    k = fitting(k, ps, c.timer - c.time)
    pcp_alloc_hits(&p.pcp, &s.rules, k, op.order)
    p.blocks[op.pindex] -= k
    take_pages(s, c, c.task.zone[op.zone], op.pindex, k)
    c.task.left -= k
    c.time += k * ps
    lru_counts(s, c, k)
    if s.lists.trylock:
        c.quiet -= k
    elif c.task.left > 0 and p.blocks[op.pindex] == 0 and c.time < c.timer and c.state == RUNNING:
        arrive_refill(c)


cdef inline void skip_frees(state_t *s, cpu_t *c) noexcept nogil:
    """As many order-0 frees as stay below ``high``; the next one goes step by step."""
    cdef op_t *op = c.task.pc
    cdef pcp_t *p = pcp_of(c, c.task.zone[op.zone])
    cdef int k, n
    cdef int64_t ps
    if past_its_list(s, c):
        arrive_direct(c)
        return
    if op.order or s.lists.asks_high:
        free_block(s, c)
        return
    k = c.task.left
    if s.lists.trylock:
        k = min(k, c.quiet)
    if op.depth:
        k = min(k, c.task.lru_left)
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
    if s.lists.trylock:
        c.quiet -= n
    elif n < k:
        free_block(s, c)


cdef inline void advance(state_t *s, cpu_t *c) noexcept nogil:
    """Run a CPU up to its next interaction, or until it blocks or finishes.

    Not past `careful_from`: from then on all go step by step, in the order of time.
    """
    while c.state == RUNNING and c.time < s.changes.careful_from and not s.failed:
        # With blocks left of an operation and nothing else to do there is nothing to control.
        if (c.task.left <= 0 or c.chore.kind or c.timer <= c.time) and control(s, c):
            return
        if c.task.pc.code == OP_ALLOC:
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
    cdef crowd_lock *crowds  # NULL: locks are queued
    cdef int64_t *until  # of each CPU at an unfair lock: see at_crowd()
    # The keys of the CPUs, then the smallest of each four of them, and so on up to four.
    cdef int64_t *tree
    cdef size_t leaves
    cdef int64_t *top

    def __cinit__(self, State state not None):
        cdef int64_t beside[LEVELS]
        cdef size_t width
        cdef int i, k
        cdef state_t *s = &state.s
        state.take()
        self.state = state
        self.leaves = 4
        while self.leaves < <size_t> s.nr_cpus:
            self.leaves *= 4
        self.tree = <int64_t *> calloc(2 * self.leaves, sizeof(int64_t))
        self.locks = <fifo_lock *> calloc(state.nlocks, sizeof(fifo_lock))
        if self.tree == NULL or self.locks == NULL:
            raise MemoryError
        for i in range(state.nlocks):
            k = i >= s.nr_zones
            lock_init(&self.locks[i], s.nr_cpus, state.handoff[k][0], state.handoff[k][1])
        if state.test_and_set:
            self.until = <int64_t *> calloc(s.nr_cpus, sizeof(int64_t))
            self.crowds = <crowd_lock *> calloc(state.nlocks, sizeof(crowd_lock))
            if self.until == NULL or self.crowds == NULL:
                raise MemoryError
            for i in range(state.nlocks):
                crowd_init(&self.crowds[i], s.nr_cpus, state.seed + i)
            for i in range(s.nr_cpus):
                self.until[i] = -1
        self.top = self.tree
        width = self.leaves
        while width > 4:
            self.top += width
            width >>= 2
        for i in range(2 * <int> self.leaves):
            self.tree[i] = NEVER
        state.begin()
        for i in range(s.nr_cpus):
            self.look_beside(i, beside)
            self.run_cpu(&s.cpu[i], beside)
        state.end()
        state.check()

    def __dealloc__(self):
        cdef int i
        if self.locks != NULL:
            for i in range(self.state.nlocks):
                lock_free(&self.locks[i])
        if self.crowds != NULL:
            for i in range(self.state.nlocks):
                crowd_free(&self.crowds[i])
        free(self.crowds)
        free(self.until)
        free(self.locks)
        free(self.tree)

    cdef inline int64_t key_of(self, cpu_t *c) noexcept nogil:
        """What the CPU's next time sorts by; of two at one time the lower number is first."""
        if c.state == ARRIVED or c.state == RUNNING:
            if pages_unlikely(self.until != NULL) and self.until[c.id] >= 0:
                if self.until[c.id] == INT64_MAX:
                    return NEVER
                return key_at(self.until[c.id], c.id)
            return key_at(c.time, c.id)
        if c.state == BLOCKED:
            return key_at(due(&self.state.s, c), c.id)
        return NEVER

    cdef inline int64_t first(self) noexcept nogil:
        """The smallest key."""
        return min(min(self.top[0], self.top[1]), min(self.top[2], self.top[3]))

    cdef inline int64_t look_beside(self, int cpu, int64_t *beside) noexcept nogil:
        """The smallest key beside the CPU's way up, so far at each level, and in all."""
        cdef int64_t key = NEVER
        cdef int64_t *level = self.tree
        cdef size_t i = cpu, width = self.leaves
        while width > 1:
            key = min(key, min(level[i ^ 1], min(level[i ^ 2], level[i ^ 3])))
            beside[0] = key
            beside += 1
            level += width
            width >>= 2
            i >>= 2
        return key

    cdef inline void place(self, int cpu, int64_t key, const int64_t *beside) noexcept nogil:
        """Put a CPU's key into the tree."""
        cdef int64_t *level = self.tree
        cdef size_t i = cpu, width = self.leaves
        level[i] = key
        while width > 4:
            level += width
            width >>= 2
            i >>= 2
            level[i] = min(key, beside[0])
            beside += 1

    cdef inline int64_t run_cpu(self, cpu_t *c, int64_t *beside) noexcept nogil:
        """Advance a CPU, and those that its messages set free.

        Returns its key; INT64_MIN if others have been set free, whose keys have changed, too.
        """
        cdef state_t *s = &self.state.s
        cdef int64_t key
        advance(s, c)
        key = self.key_of(c)
        self.place(c.id, key, beside)
        while s.nwoken:
            s.nwoken -= 1
            c = &s.cpu[s.woken[s.nwoken]]
            advance(s, c)
            self.look_beside(c.id, beside)
            self.place(c.id, self.key_of(c), beside)
            key = INT64_MIN
        return key

    cdef void seize(self, cpu_t *c, int64_t now) noexcept nogil:
        """The CPU has an unfair lock at ``now``."""
        cdef state_t *s = &self.state.s
        cdef int64_t hold = interact(s, c)
        crowd_take(&self.crowds[lock_of(s, c)], c.id)
        account(s, c, c.time, now, hold)
        self.until[c.id] = now + hold

    cdef void expect(self, int cpu, int64_t at) noexcept nogil:
        """A waiting CPU sees that its lock is free at ``at``; INT64_MAX: it does not."""
        cdef int64_t beside[LEVELS]
        self.until[cpu] = at
        self.look_beside(cpu, beside)
        self.place(cpu, self.key_of(&self.state.s.cpu[cpu]), beside)

    cdef void at_crowd(self, cpu_t *c) noexcept nogil:
        """Next step of a CPU at an unfair lock.

        ``until`` is -1 for who comes, INT64_MAX for who waits, else when the holder leaves, or
        the heir sees the lock free.
        """
        cdef state_t *s = &self.state.s
        cdef crowd_lock *lock = &self.crowds[lock_of(s, c)]
        cdef int64_t *price = self.state.handoff[lock_of(s, c) >= s.nr_zones]
        cdef int64_t beside[LEVELS]
        cdef int64_t now
        cdef int other
        if self.until[c.id] < 0:  # a release, or a grant, precedes an arrival of the same time
            other = lock.heir if lock.holder < 0 else lock.holder
            if other >= 0 and self.until[other] <= c.time:
                c = &s.cpu[other]
        now = self.until[c.id]
        if now < 0:
            if pages_unlikely((c.waiter | s.zones.watch) != 0) and turns_back(s, c):
                pass
            elif lock.holder >= 0:
                crowd_join(lock, c.id)
                self.until[c.id] = INT64_MAX
            else:
                if lock.heir >= 0:
                    self.expect(lock.heir, INT64_MAX)
                self.seize(c, c.time)
        elif lock.holder != c.id:
            self.seize(c, now)
        else:
            self.until[c.id] = -1
            crowd_leave(lock)
            if lock.heir >= 0:
                self.expect(lock.heir, now + price[0] + price[1] * (lock.waiting - 1))
            c.time = now
            released(s, c)
        self.look_beside(c.id, beside)
        self.run_cpu(c, beside)

    def run(self, int64_t max_events=INT64_MAX):
        """Process up to ``max_events`` events; True once the run is over."""
        cdef bint over
        self.state.begin()
        with nogil:
            over = self.loop(max_events)
        self.state.end()
        self.state.check()
        return over

    @property
    def now_ps(self):
        """Time of the next event [ps]; the end of the run once it is over."""
        cdef int64_t first = self.first()
        if first == NEVER:
            return self.state.s.course.end
        return <uint64_t> (first ^ INT64_MIN) >> CPU_BITS

    cdef bint loop(self, int64_t max_events) noexcept nogil:
        cdef state_t *s = &self.state.s
        cdef cpu_t *c
        cdef cpu_t *ahead
        cdef char *line
        cdef fifo_lock *lock
        cdef int64_t grant, hold, arrival
        cdef int64_t first = self.first(), second
        cdef int64_t beside[LEVELS]
        while max_events > 0:
            if first == NEVER or s.failed:
                return True
            max_events -= 1
            c = &s.cpu[first & ((1 << CPU_BITS) - 1)]
            if pages_unlikely(self.until != NULL) and c.state == ARRIVED:
                self.at_crowd(c)
                first = self.first()
                continue
            second = self.look_beside(c.id, beside)
            # The state of all CPUs is more than the first cache holds: ask for what comes next.
            ahead = &s.cpu[0 if second == NEVER else second & ((1 << CPU_BITS) - 1)]
            pages_prefetch(ahead)
            pages_prefetch(<char *> ahead + 64)
            if (
                pages_unlikely((c.waiter | s.zones.watch) != 0)
                and c.state == ARRIVED
                and turns_back(s, c)
            ):
                pass
            elif c.state == ARRIVED:
                arrival = c.time
                lock = &self.locks[lock_of(s, c)]
                grant = lock_grant(lock, arrival)
                hold = interact(s, c)
                if s.failed:  # nothing was refilled: there is no block to go on with
                    return True
                line = <char *> pcp_of(ahead, ahead.ask.zone)
                pages_prefetch(line)
                pages_prefetch(line + 128)
                line = <char *> ahead.count
                pages_prefetch(line)
                pages_prefetch(line + 64)
                account(s, c, arrival, grant, hold)
                c.time = grant + hold
                lock_leave(lock, c.time)
                if pages_unlikely(s.changes.careful_from != INT64_MAX):
                    c.last.release_at = c.time
                    c.last.zone = c.ask.zone if c.ask.kind != LRU and c.ask.why < BY_REMOTE else -1
                released(s, c)
            elif c.state == RUNNING:
                if c.time >= s.changes.careful_from and not control(s, c):
                    step_block(s, c)
            else:  # asleep, and a timer is due
                doze(s, c, due(s, c))
                c.state = RUNNING
            # As a rule the runner-up is next.  The processor guesses that, and need not wait for
            # what this CPU's next time comes to.
            first = self.run_cpu(c, beside)
            first = self.first() if pages_unlikely(first < second) else second
        return first == NEVER or s.failed

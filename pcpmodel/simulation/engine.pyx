"""The event engine: one event per lock interaction.

Between two interactions a CPU touches only what is its own, so it is advanced in one go
(`pcpmodel.simulation.at_once`).  When a CPU arrives at a lock its grant and its hold are known at
once, so the interaction needs no second event.  Only a lock that is not first come, first served
has to be asked again when it is released.

Arrivals are taken in order of (time, CPU number).  The order lives in winner trees over 64-bit
keys, ``time << 10 | cpu``, one for each island: CPUs that share no node, channel or barrier with
others.  As long as no zone can become short of pages islands cannot notice each other, and one
event of each is done in turn, whatever their times: the processor works on one while another waits
for memory or for its place in the tree.
`pcpmodel.simulation.per_page` does the same work a page at a time; both give the
same numbers, bit for bit.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MAX as NEVER, INT64_MIN, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from pcpmodel.kernel.pages cimport pages_prefetch, pages_unlikely
from pcpmodel.hardware.lines cimport lines_reach, page_lines
from pcpmodel.hardware.lock cimport (
    crowd_free,
    crowd_init,
    crowd_join,
    crowd_leave,
    crowd_lock,
    crowd_take,
    lock_grant,
)
from pcpmodel.simulation.at_once cimport (
    STRETCH_EVENTS,
    advance,
    at_once,
    counts_alone,
    hold_at_once,
    lru_at_once,
)
from pcpmodel.simulation.cpu cimport doze, due, granted, meet
from pcpmodel.simulation.locks cimport (
    account,
    interact,
    may_turn_back,
    most_of_a_refill,
    quickest_refill,
    released,
    turns_back,
)
from pcpmodel.simulation.program cimport control, step_block
from pcpmodel.simulation.state cimport State
from pcpmodel.simulation.structs cimport (
    ARRIVED,
    BLOCKED,
    BY_REMOTE,
    DRAIN,
    LRU,
    REFILL,
    RUNNING,
    apart,
    cpu_t,
    handover,
    last_t,
    lock_t,
    state_t,
    zone_t,
)
from pcpmodel.workload.ops cimport HOME, PEER

__all__ = ["MAX_CPUS", "MAX_SECONDS", "Engine"]

cdef enum:
    CPU_BITS = 10

cdef int64_t LAST = (<int64_t> 1 << 53) - 1  # [ps], what a key has room for

MAX_CPUS = 1 << CPU_BITS
MAX_SECONDS = 9007  # 2 ** 53 ps, what a key has room for


cdef struct island_t:
    int64_t *tree  # the smaller of each two keys: at 1 of all; from `width` on those of the CPUs
    size_t width
    int cpus


cdef inline int64_t time_of(int64_t key) noexcept nogil:
    return <int64_t> (<uint64_t> (key ^ INT64_MIN) >> CPU_BITS)


cdef inline int64_t key_at(int64_t time, int cpu) noexcept nogil:
    """What sorts by time, then by CPU: signed, as the smaller of two is then found sooner."""
    return <int64_t> (<uint64_t> time << CPU_BITS | cpu) ^ INT64_MIN


class Parts:
    """Zones that belong together: a forest of them."""

    def __init__(self, zones):
        self.above = list(range(zones))

    def of(self, zone):
        while self.above[zone] != zone:
            zone = self.above[zone]
        return zone

    def join(self, a, b):
        self.above[self.of(b)] = self.of(a)


cdef inline int64_t up(int64_t *tree, size_t *i, int64_t key) noexcept nogil:
    """One level up in a tree."""
    cdef size_t at = i[0] ^ 1
    key = min(key, tree[at])
    i[0] = at >> 1
    tree[i[0]] = key
    return key


cdef class Engine:
    """Runs a `State` to its end.

    Parameters
    ----------
    state : State
        Not run yet; changed in place.
    """

    cdef State state
    cdef crowd_lock *crowds  # NULL: locks are queued
    cdef int64_t *until  # of each CPU at an unfair lock: see at_crowd()
    cdef bint plain  # counts alone, and queued locks
    cdef island_t *islands
    cdef int nr_islands
    cdef int32_t *island  # of each CPU
    cdef size_t *leaf  # of each CPU in the tree of its island
    cdef int64_t quickest  # refill [ps]
    cdef int64_t most  # pages of a refill

    def __cinit__(self, State state not None):
        cdef int i
        cdef state_t *s = &state.s
        state.take()
        self.state = state
        self.plain = counts_alone(s) and not state.test_and_set
        self.make_locks()
        self.make_islands()
        self.quickest, self.most = min(quickest_refill(s), 1 << 30), most_of_a_refill(s)
        if self.plain and not s.zones.watch:
            for i in range(s.nr_zones):
                s.zones.zone[i].plenty = s.zones.zone[i].high_wmark + self.most
        state.begin()
        for i in range(s.nr_cpus):
            advance(s, &s.cpu[i], False)
            self.follow(&s.cpu[i])
        state.end()
        state.check()

    cdef int make_locks(self) except -1:
        cdef State state = self.state
        cdef int i, cpus = state.s.nr_cpus
        if not state.test_and_set:
            return 0
        self.until = <int64_t *> calloc(cpus, sizeof(int64_t))
        self.crowds = <crowd_lock *> calloc(state.nlocks, sizeof(crowd_lock))
        if self.until == NULL or self.crowds == NULL:
            raise MemoryError
        for i in range(state.nlocks):
            crowd_init(&self.crowds[i], cpus, state.seed + i)
        for i in range(cpus):
            self.until[i] = -1
        return 0

    cdef int make_islands(self) except -1:
        """Part the CPUs, and give each island its tree, where all keys are NEVER yet."""
        cdef state_t *s = &self.state.s
        cdef island_t *island
        cdef cpu_t *c
        cdef int i, z
        cdef size_t k
        cdef bint alone = self.plain and not s.zones.watch  # kswapd wakes CPUs of all nodes
        parts = Parts(s.nr_zones)
        for z in range(s.nr_zones):
            for i in range(z):
                if not alone or s.zones.zone[i].node == s.zones.zone[z].node:
                    parts.join(i, z)
        for i in range(s.nr_cpus):
            parts.join(s.cpu[i].task.zone[HOME], s.cpu[i].task.zone[PEER])
        for i in range(s.nr_channels):
            parts.join(
                s.cpu[s.programs.channel[i].producer].task.zone[HOME],
                s.cpu[s.programs.channel[i].consumer].task.zone[HOME],
            )
        self.join_barriers(parts)
        for i in range(s.nr_cpus):
            if s.programs.sibling[i] >= 0:  # which sees how long this one waited
                parts.join(
                    s.cpu[i].task.zone[HOME], s.cpu[s.programs.sibling[i]].task.zone[HOME]
                )
        self.islands = <island_t *> calloc(s.nr_zones, sizeof(island_t))
        self.island = <int32_t *> calloc(s.nr_cpus, sizeof(int32_t))
        self.leaf = <size_t *> calloc(s.nr_cpus, sizeof(size_t))
        if self.islands == NULL or self.island == NULL or self.leaf == NULL:
            raise MemoryError
        numbers = {}
        for i in range(s.nr_cpus):
            c = &s.cpu[i]
            self.island[i] = numbers.setdefault(parts.of(c.task.zone[HOME]), len(numbers))
            self.leaf[i] = self.islands[self.island[i]].cpus
            self.islands[self.island[i]].cpus += 1
        self.nr_islands = len(numbers)
        for i in range(self.nr_islands):
            island = &self.islands[i]
            island.width = 2
            while island.width < <size_t> island.cpus:
                island.width *= 2
            island.tree = <int64_t *> calloc(2 * island.width, sizeof(int64_t))
            if island.tree == NULL:
                raise MemoryError
            for k in range(2 * island.width):
                island.tree[k] = NEVER
        for i in range(s.nr_cpus):
            self.leaf[i] += self.islands[self.island[i]].width
        return 0

    cdef int join_barriers(self, parts) except -1:
        cdef state_t *s = &self.state.s
        cdef int32_t *member
        cdef int b, i
        for b in range(s.programs.barriers):
            member = &s.programs.member[b * s.nr_cpus]
            for i in range(1, s.programs.barrier[b].members):
                parts.join(s.cpu[member[0]].task.zone[HOME], s.cpu[member[i]].task.zone[HOME])
        return 0

    def __dealloc__(self):
        cdef int i
        if self.crowds != NULL:
            for i in range(self.state.nlocks):
                crowd_free(&self.crowds[i])
        for i in range(self.nr_islands):
            free(self.islands[i].tree)
        free(self.crowds)
        free(self.until)
        free(self.islands)
        free(self.island)
        free(self.leaf)

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

    cdef inline void place(self, island_t *island, int cpu, int64_t key) noexcept nogil:
        """Put a CPU's key into the tree of its island."""
        cdef int64_t *tree = island.tree
        cdef size_t i = self.leaf[cpu]
        tree[i] = key
        while i > 3:
            key = up(tree, &i, key)
            key = up(tree, &i, key)
        if i > 1:
            up(tree, &i, key)

    cdef inline void fetch_first(self, island_t *island) noexcept nogil:
        """Have what the next event of an island needs of its CPU fetched, if there is one."""
        cdef char *c = <char *> &self.state.s.cpu[island.tree[1] & ((1 << CPU_BITS) - 1)]
        pages_prefetch(c)
        pages_prefetch(c + 64)

    cdef inline void follow(self, cpu_t *c) noexcept nogil:
        """What a CPU does next is known; so it is then for those that its messages set free."""
        cdef state_t *s = &self.state.s
        self.place(&self.islands[self.island[c.id]], c.id, self.key_of(c))
        while s.nwoken:
            s.nwoken -= 1
            c = &s.cpu[s.woken[s.nwoken]]
            advance(s, c, False)
            self.place(&self.islands[self.island[c.id]], c.id, self.key_of(c))

    cdef void seize(self, cpu_t *c, int64_t now) noexcept nogil:
        """The CPU has an unfair lock at ``now``."""
        cdef state_t *s = &self.state.s
        cdef int64_t hold = interact(s, c, apart(&s.lock[c.ask.lock], c))
        granted(c, now)
        crowd_take(&self.crowds[c.ask.lock], c.id)
        account(s, c, c.time, now, hold)
        self.until[c.id] = now + hold

    cdef void expect(self, int cpu, int64_t at) noexcept nogil:
        """A waiting CPU sees that its lock is free at ``at``; INT64_MAX: it does not."""
        self.until[cpu] = at
        self.follow(&self.state.s.cpu[cpu])

    cdef void at_crowd(self, cpu_t *c) noexcept nogil:
        """Next step of a CPU at an unfair lock.

        ``until`` is -1 for who comes, INT64_MAX for who waits, else when the holder leaves, or
        the heir sees the lock free.
        """
        cdef state_t *s = &self.state.s
        cdef int number = c.ask.lock
        cdef crowd_lock *lock = &self.crowds[number]
        cdef int64_t now
        cdef cpu_t *heir
        cdef int far, other
        if self.until[c.id] < 0:  # a release, or a grant, precedes an arrival of the same time
            other = lock.heir if lock.holder < 0 else lock.holder
            if other >= 0 and self.until[other] <= c.time:
                c = &s.cpu[other]
        now = self.until[c.id]
        if now < 0:
            if pages_unlikely(may_turn_back(s, c)) and turns_back(s, c):
                pass
            elif lock.holder >= 0:
                meet(s, c)
                crowd_join(lock, c.id)
                self.until[c.id] = INT64_MAX
            else:
                meet(s, c)
                if lock.heir >= 0:
                    self.expect(lock.heir, INT64_MAX)
                self.seize(c, c.time)
        elif lock.holder != c.id:
            self.seize(c, now)
        else:
            self.until[c.id] = -1
            crowd_leave(lock)
            if lock.heir >= 0:
                heir = &s.cpu[lock.heir]
                far = apart(&s.lock[number], heir)
                self.expect(heir.id, now + handover(s, heir.ask.kind, far))
            c.time = now
            released(s, c)
        advance(s, c, False)
        self.follow(c)

    cdef inline void at_queue(self, cpu_t *c) noexcept nogil:
        """A CPU comes to a queued lock: when it gets it, what it does with it and afterwards."""
        cdef state_t *s = &self.state.s
        cdef lock_t *lock = &s.lock[c.ask.lock]
        cdef last_t *last
        cdef int64_t arrival = c.time, hold
        cdef int far = apart(lock, c)
        cdef int64_t grant = lock_grant(&lock.queue, arrival, handover(s, c.ask.kind, far))
        meet(s, c)
        hold = interact(s, c, far)
        granted(c, grant)
        if s.failed:  # nothing was refilled: there is no block to go on with
            return
        account(s, c, arrival, grant, hold)
        c.time = grant + hold
        lock.queue.free_at = c.time
        if pages_unlikely(s.changes.careful_from != INT64_MAX):
            last = &s.changes.last[c.id]
            last.release_at = c.time
            last.zone = c.ask.zone if c.ask.kind != LRU and c.ask.why < BY_REMOTE else -1
        released(s, c)

    cdef void any_event(self, cpu_t *c) noexcept nogil:
        """What a CPU does, whatever it is."""
        cdef state_t *s = &self.state.s
        if self.until != NULL and c.state == ARRIVED:
            self.at_crowd(c)
            return
        if c.state == ARRIVED and may_turn_back(s, c) and turns_back(s, c):
            pass
        elif c.state == ARRIVED:
            self.at_queue(c)
        elif c.state == RUNNING:
            if c.time >= s.changes.careful_from and not control(s, c):
                step_block(s, c)
        else:  # asleep, and a timer is due
            doze(s, c, due(s, c))
            c.state = RUNNING
        advance(s, c, False)
        self.follow(c)

    def run(self, int64_t max_events=INT64_MAX):
        """Process up to ``max_events`` events; True once the run is over.

        A long stretch without a lock counts as many.
        """
        self.state.begin()
        with nogil:
            self.loop(max_events)
        self.state.end()
        self.state.check()
        return self.over()

    def run_until(self, int64_t max_events, int64_t step, int64_t blocks, int64_t pages):
        """`run`, ``step`` events at a time, until enough of the page lines have moved or been used.

        See `pcpmodel.hardware.lines.PageLines` for ``blocks`` and ``pages``.
        """
        cdef const page_lines *lines = self.state.followed()
        self.state.begin()
        with nogil:
            while not self.over() and max_events > 0 and not lines_reach(lines, blocks, pages):
                max_events -= step - self.loop(step)
        self.state.end()
        self.state.check()
        return self.over()

    @property
    def now_ps(self):
        """Time of the next event [ps]; the end of the run once it is over."""
        cdef int64_t first = self.islands[self.earliest()].tree[1]
        if first == NEVER:
            return self.state.s.course.end
        return time_of(first)

    cdef int earliest(self) noexcept nogil:
        """The island whose next event is the first of all."""
        cdef int i, best = 0
        for i in range(self.nr_islands):
            if self.islands[i].tree[1] < self.islands[best].tree[1]:
                best = i
        return best

    cdef int64_t others_first(self, int island) noexcept nogil:
        """The smallest key of the other islands."""
        cdef int64_t key = NEVER
        cdef int i
        for i in range(self.nr_islands):
            if i != island:
                key = min(key, self.islands[i].tree[1])
        return key

    @cython.cdivision(True)
    cdef int64_t part_until(self, int64_t first) noexcept nogil:
        """The key up to which islands cannot notice each other; ``first`` is the smallest of all.

        CPUs leave their zones, and look at others, only once a zone has been short of pages.  Up to
        a moment each CPU may have queued for one refill, and any more took their time.
        """
        cdef state_t *s = &self.state.s
        cdef zone_t *zone
        cdef int64_t refills = 1 << 30
        cdef int z
        if self.nr_islands == 1:
            return NEVER
        if s.zones.watch:
            return first
        for z in range(s.nr_zones):
            zone = &s.zones.zone[z]
            refills = min(refills, (zone.free - zone.high_wmark) // self.most - s.nr_cpus)
        if refills <= 0:
            return first
        return key_at(min(time_of(first) + refills * self.quickest, LAST), 0)

    cdef bint over(self) noexcept nogil:
        return self.state.s.failed or self.islands[self.earliest()].tree[1] == NEVER

    cdef int64_t loop(self, int64_t left) noexcept nogil:
        """Do ``left`` events, or all that there are; how many are left, or were too many."""
        cdef int64_t first, until
        cdef int at
        while left > 0 and not self.over():
            at = self.earliest()
            first = self.islands[at].tree[1]
            until = self.part_until(first)
            if until > first:
                left = self.run_islands(0, self.nr_islands, until, left)
            else:  # one after the other
                left = self.run_islands(at, at + 1, self.others_first(at), left)
        return left

    cdef int64_t run_islands(self, int begin, int end, int64_t until, int64_t left) noexcept nogil:
        """One event of each island in turn, up to a key or ``left`` events; how many are left."""
        cdef state_t *s = &self.state.s
        cdef island_t *island
        cdef island_t *last = &self.islands[end - 1]
        cdef cpu_t *c
        cdef int64_t before = 0
        cdef bint plain = self.plain
        while left != before and not s.failed:
            before = left
            island = &self.islands[begin]
            while island <= last and left > 0:
                if island.tree[1] < until:
                    left -= 1
                    c = &s.cpu[island.tree[1] & ((1 << CPU_BITS) - 1)]
                    if not plain or not at_once(s, c):
                        self.any_event(c)
                        if c.state == RUNNING and c.time < s.changes.careful_from:
                            left -= STRETCH_EVENTS
                    else:
                        if c.ask.kind == LRU:
                            lru_at_once(s, c)
                        elif c.ask.kind == REFILL:
                            if not hold_at_once(s, c, REFILL):
                                self.leave(c)
                        else:
                            hold_at_once(s, c, DRAIN)
                            self.leave(c)
                        advance(s, c, True)
                        if c.state == ARRIVED:
                            self.place(island, c.id, key_at(c.time, c.id))
                            if s.nwoken:
                                self.follow(c)
                        else:
                            self.follow(c)
                            if c.state == RUNNING:
                                left -= STRETCH_EVENTS
                    self.fetch_first(island)
                island += 1
        return left

    cdef void leave(self, cpu_t *c) noexcept nogil:
        """A CPU has just left a lock."""
        released(&self.state.s, c)

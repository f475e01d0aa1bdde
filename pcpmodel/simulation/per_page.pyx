"""The per-page engine: every page is a step of its own.

The oracle of `pcpmodel.simulation.engine`.  Steps of all CPUs run in order of
(time, CPU number) off a binary heap, not the engine's trees, each moving one
block; a lock is an explicit queue with a release event.  Same decisions, same
random streams, same counters; none of the short cuts.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free

from pcpmodel.hardware.lines cimport lines_reach, page_lines
from pcpmodel.hardware.lock cimport (
    crowd_free,
    crowd_init,
    crowd_join,
    crowd_leave,
    crowd_lock,
    crowd_take,
)
from pcpmodel.simulation.cpu cimport doze, due, granted, meet
from pcpmodel.simulation.locks cimport account, interact, released, turns_back
from pcpmodel.simulation.program cimport control, step_block
from pcpmodel.simulation.state cimport State
from pcpmodel.simulation.structs cimport (
    ARRIVED,
    BLOCKED,
    FINISHED,
    RUNNING,
    WAITING,
    apart,
    cpu_t,
    handover,
    state_t,
)

__all__ = ["PerPage"]

cdef enum:
    # At one time: first who leaves a lock or gets an unfair one, then who goes on.
    RELEASE = 0
    STEP = 1


cdef struct event_t:
    int64_t time
    int32_t rank
    int32_t cpu


cdef struct queue_t:
    int32_t *cpu  # ring of those at the lock, the holder first
    int64_t *arrival
    bint *waited  # somebody was at the lock when it arrived
    int32_t head
    int32_t length


cdef inline bint before(event_t *a, event_t *b) noexcept nogil:
    if a.time != b.time:
        return a.time < b.time
    if a.rank != b.rank:
        return a.rank < b.rank
    return a.cpu < b.cpu


cdef class PerPage:
    """Runs a `State` to its end, page by page.

    Parameters
    ----------
    state : State
        Not run yet; changed in place.
    """

    cdef State state
    cdef event_t *heap
    cdef int size
    cdef int32_t *at  # place of each CPU's event in the heap, -1 if none
    cdef queue_t *locks
    cdef crowd_lock *crowds  # NULL: locks are queued
    cdef bint *holds  # the CPU holds a lock
    cdef readonly int64_t steps

    def __cinit__(self, State state not None):
        cdef int i
        cdef state_t *s = &state.s
        state.take()
        self.state = state
        self.heap = <event_t *> calloc(s.nr_cpus, sizeof(event_t))
        self.at = <int32_t *> calloc(s.nr_cpus, sizeof(int32_t))
        self.holds = <bint *> calloc(s.nr_cpus, sizeof(bint))
        self.locks = <queue_t *> calloc(state.nlocks, sizeof(queue_t))
        if self.heap == NULL or self.at == NULL or self.holds == NULL or self.locks == NULL:
            raise MemoryError
        for i in range(state.nlocks):
            self.locks[i].cpu = <int32_t *> calloc(s.nr_cpus, sizeof(int32_t))
            self.locks[i].arrival = <int64_t *> calloc(s.nr_cpus, sizeof(int64_t))
            self.locks[i].waited = <bint *> calloc(s.nr_cpus, sizeof(bint))
            if self.locks[i].cpu == NULL or self.locks[i].arrival == NULL \
                    or self.locks[i].waited == NULL:
                raise MemoryError
        if state.test_and_set:
            self.crowds = <crowd_lock *> calloc(state.nlocks, sizeof(crowd_lock))
            if self.crowds == NULL:
                raise MemoryError
            for i in range(state.nlocks):
                crowd_init(&self.crowds[i], s.nr_cpus, state.seed + i)
        for i in range(s.nr_cpus):
            self.at[i] = -1
        for i in range(s.nr_cpus):
            self.schedule(i, STEP, s.cpu[i].time)

    def __dealloc__(self):
        cdef int i
        for i in range(self.state.nlocks if self.locks != NULL else 0):
            free(self.locks[i].cpu)
            free(self.locks[i].arrival)
            free(self.locks[i].waited)
        for i in range(self.state.nlocks if self.crowds != NULL else 0):
            crowd_free(&self.crowds[i])
        free(self.crowds)
        free(self.locks)
        free(self.holds)
        free(self.at)
        free(self.heap)

    cdef void sift(self, int i) noexcept nogil:
        """Move the event at ``i`` up or down to its place."""
        cdef event_t e = self.heap[i]
        cdef int child
        while i > 0 and before(&e, &self.heap[(i - 1) // 2]):
            self.heap[i] = self.heap[(i - 1) // 2]
            self.at[self.heap[i].cpu] = i
            i = (i - 1) // 2
        while True:
            child = 2 * i + 1
            if child >= self.size:
                break
            if child + 1 < self.size and before(&self.heap[child + 1], &self.heap[child]):
                child += 1
            if not before(&self.heap[child], &e):
                break
            self.heap[i] = self.heap[child]
            self.at[self.heap[i].cpu] = i
            i = child
        self.heap[i] = e
        self.at[e.cpu] = i

    cdef void schedule(self, int cpu, int rank, int64_t time) noexcept nogil:
        cdef int i = self.at[cpu]
        if i < 0:
            i = self.size
            self.size += 1
        self.heap[i] = event_t(time, rank, cpu)
        self.at[cpu] = i
        self.sift(i)

    cdef void unschedule(self, int cpu) noexcept nogil:
        cdef int i = self.at[cpu]
        if i < 0:
            return
        self.at[cpu] = -1
        self.size -= 1
        if i < self.size:
            self.heap[i] = self.heap[self.size]
            self.at[self.heap[i].cpu] = i
            self.sift(i)

    cdef void grant(self, int lock, int64_t now) noexcept nogil:
        """The CPU at the head of the queue gets the lock at ``now``."""
        cdef state_t *s = &self.state.s
        cdef queue_t *q = &self.locks[lock]
        cdef cpu_t *c = &s.cpu[q.cpu[q.head]]
        cdef int far = apart(&s.lock[lock], c)
        cdef int64_t hold
        if q.waited[q.head]:
            now += handover(s, c.ask.kind, far)
        hold = interact(s, c, far)
        granted(c, now)
        account(s, c, q.arrival[q.head], now, hold)
        self.holds[c.id] = True
        self.schedule(c.id, RELEASE, now + hold)

    cdef void seize(self, cpu_t *c, int64_t now) noexcept nogil:
        """The CPU has an unfair lock at ``now``."""
        cdef state_t *s = &self.state.s
        cdef int64_t hold = interact(s, c, apart(&s.lock[c.ask.lock], c))
        granted(c, now)
        crowd_take(&self.crowds[c.ask.lock], c.id)
        account(s, c, c.time, now, hold)
        self.holds[c.id] = True
        self.schedule(c.id, RELEASE, now + hold)

    cdef void contend(self, cpu_t *c) noexcept nogil:
        """The CPU comes to an unfair lock."""
        cdef state_t *s = &self.state.s
        cdef crowd_lock *lock = &self.crowds[c.ask.lock]
        meet(s, c)
        if lock.holder >= 0:
            crowd_join(lock, c.id)
            self.unschedule(c.id)
            return
        if lock.heir >= 0:
            self.unschedule(lock.heir)
        self.seize(c, c.time)

    cdef void leave(self, cpu_t *c, int64_t now) noexcept nogil:
        """The CPU leaves an unfair lock."""
        cdef state_t *s = &self.state.s
        cdef int number = c.ask.lock, far
        cdef cpu_t *heir
        cdef crowd_lock *lock = &self.crowds[number]
        crowd_leave(lock)
        if lock.heir >= 0:
            heir = &s.cpu[lock.heir]
            far = apart(&s.lock[number], heir)
            self.schedule(heir.id, RELEASE, now + handover(s, heir.ask.kind, far))

    cdef void step(self, event_t *e) noexcept nogil:
        cdef state_t *s = &self.state.s
        cdef cpu_t *c = &s.cpu[e.cpu]
        cdef queue_t *q
        cdef bint queued = False
        cdef int i
        if self.holds[c.id]:
            self.holds[c.id] = False
            if self.crowds != NULL:
                self.leave(c, e.time)
            else:
                q = &self.locks[c.ask.lock]
                q.head = (q.head + 1) % s.nr_cpus
                q.length -= 1
                if q.length:
                    self.grant(c.ask.lock, e.time)
            c.time = e.time
            released(s, c)
        elif e.rank == RELEASE:  # the heir of an unfair lock sees that it is free
            self.seize(c, e.time)
            queued = True
        elif c.state == ARRIVED and turns_back(s, c):
            pass
        elif c.state == ARRIVED and self.crowds != NULL:
            self.contend(c)
            queued = True
        elif c.state == ARRIVED:
            meet(s, c)
            q = &self.locks[c.ask.lock]
            i = (q.head + q.length) % s.nr_cpus
            q.cpu[i] = c.id
            q.arrival[i] = c.time
            q.waited[i] = q.length > 0
            q.length += 1
            self.unschedule(c.id)
            if q.length == 1:
                self.grant(c.ask.lock, c.time)
            queued = True
        elif c.state == BLOCKED:
            doze(s, c, due(s, c))
            c.state = RUNNING
        elif not control(s, c):
            step_block(s, c)
        if not queued:
            self.follow(c)
        while s.nwoken:
            s.nwoken -= 1
            self.follow(&s.cpu[s.woken[s.nwoken]])

    cdef void follow(self, cpu_t *c) noexcept nogil:
        """Schedule what the CPU does next."""
        if c.state == FINISHED or c.state == WAITING:
            self.unschedule(c.id)
        elif c.state == BLOCKED:
            self.schedule(c.id, STEP, due(&self.state.s, c))
        else:
            self.schedule(c.id, STEP, c.time)

    @property
    def now_ps(self):
        """Time of the next step [ps]; the end of the run once it is over."""
        return self.heap[0].time if self.size else self.state.s.course.end

    cdef bint loop(self, int64_t left) noexcept nogil:
        """Do ``left`` steps, or all that there are; True if there are no more."""
        cdef event_t e
        while left > 0 and self.size and not self.state.s.failed:
            left -= 1
            self.steps += 1
            e = self.heap[0]
            self.step(&e)
        return self.size == 0 or self.state.s.failed != 0

    def run(self, int64_t max_steps=INT64_MAX):
        """Do up to ``max_steps`` steps; True once the run is over."""
        cdef bint over
        self.state.begin()
        with nogil:
            over = self.loop(max_steps)
        self.state.end()
        self.state.check()
        return over

    def run_until(self, int64_t max_steps, int64_t step, int64_t blocks, int64_t pages):
        """`run`, ``step`` steps at a time, until enough of the page lines have moved or been used.

        See `pcpmodel.hardware.lines.PageLines` for ``blocks`` and ``pages``.
        """
        cdef bint over = False
        cdef const page_lines *lines = self.state.followed()
        self.state.begin()
        with nogil:
            while not over and max_steps > 0 and not lines_reach(lines, blocks, pages):
                over = self.loop(min(step, max_steps))
                max_steps -= step
        self.state.end()
        self.state.check()
        return over

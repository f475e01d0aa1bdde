"""A CPU, whatever it works on: it asks for a lock, sleeps, is woken, has timers.

Knows the structs alone.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from pcpmodel.simulation.structs cimport (
    ARRIVED,
    BLOCKED,
    BY_NEED,
    DRAIN,
    LOOK_BESIDE,
    LRU,
    OFFLINE,
    RUNNING,
    cpu_t,
    state_t,
    thread_t,
)
from pcpmodel.splitmix cimport draw
from pcpmodel.workload.ops cimport HOME, OP_ALLOC, OP_END, OP_FREE

cdef enum:
    ONE = 1 << 16  # a factor that changes nothing


cdef inline int64_t scaled(int64_t ps, uint32_t factor) noexcept nogil:
    """A time by a factor with 16 binary digits."""
    return (ps * factor) >> 16


cdef extern from *:
    """
    #define PCPMODEL_LONGEST ((int64_t)1 << 53)  /* ps: more than a run may last */
    #define PCPMODEL_LOOK_PS (INT64_C(10000000000))
    static inline int64_t pcpmodel_times(int64_t ps, uint64_t n, int shift)
    {
        unsigned __int128 t = (unsigned __int128)ps * n >> shift;
        return t < PCPMODEL_LONGEST ? (int64_t)t : PCPMODEL_LONGEST;
    }
    """
    const int64_t LOOK_PS "PCPMODEL_LOOK_PS"  # without a lock: see looks_beside()
    int64_t times "pcpmodel_times"(int64_t ps, uint64_t n, int shift) noexcept nogil


cdef inline int64_t lasts(cpu_t *c, uint32_t factor) noexcept nogil:
    """How long the work or the sleep of the operation at hand is, at a pace as in `scaled`."""
    cdef int64_t ps = c.task.pc.ps
    if c.task.pc.reg >= 0:
        ps = times(ps, c.vars.regs[c.task.pc.reg], 0)
    return times(ps, factor, 16)


cdef inline thread_t *sibling_of(const thread_t *thread) noexcept nogil:
    return <thread_t *> (<size_t> thread ^ sizeof(thread_t))


@cython.cdivision(True)
cdef inline void meet(state_t *s, cpu_t *c) noexcept nogil:
    """A CPU comes to a lock: until it comes to one again, its pace is what its core leaves to it.

    Two threads that work share the core; one that waits for a lock, or sleeps, leaves it to the
    other: for as much of the time to come as since the CPU last came to a lock.  Sleep is known
    once who slept comes to a lock, and counts from then on.
    """
    cdef thread_t *me = c.thread
    cdef thread_t *other
    cdef int64_t waited, alone
    cdef double passed
    if me == NULL:
        return
    if c.time > me.arrived:
        other = sibling_of(me)
        waited = other.waited + max(min(other.granted, c.time) - other.arrived, 0)
        alone = min(waited - me.other_waited, c.time - me.arrived)
        passed = <double> (c.time - me.arrived)
        c.pace = <uint32_t> (
            passed * s.programs.beside_one / (passed * ONE + <double> alone * s.programs.above_one)
        )
        me.other_waited += alone
    me.waited += me.granted - me.arrived + c.slept
    c.slept = 0
    me.arrived, me.granted = c.time, INT64_MAX


cdef inline void granted(cpu_t *c, int64_t at) noexcept nogil:
    """A CPU has the lock at ``at``."""
    if c.thread != NULL:
        c.thread.granted = at


cdef inline int64_t paced(const cpu_t *c, int64_t time) noexcept nogil:
    """A time by the pace of the CPU's core."""
    return scaled(time, c.pace)


cdef inline void draw_pace(state_t *s, cpu_t *c) noexcept nogil:
    """The pace of an operation that begins: its own luck, and what its core leaves."""
    c.task.factor = paced(c, s.programs.speed[draw(&c.rng) >> 54])


cdef inline void next_op(cpu_t *c) noexcept nogil:
    c.task.pc += 1
    c.task.left = -1
    c.vars.work_left = -1


cdef inline void arrive(cpu_t *c, int kind, int zone, int why) noexcept nogil:
    c.state = ARRIVED
    c.ask.lock = zone
    c.ask.kind = kind
    c.ask.why = why
    c.ask.zone = zone


cdef inline void count_blocks(cpu_t *c) noexcept nogil:
    """Into the books with what has been allocated or freed of the operation under way."""
    cdef int64_t blocks = c.task.counted - c.task.left
    if c.task.left < 0:
        return
    c.task.counted = c.task.left
    if c.task.pc.code == OP_ALLOC:
        c.count.alloc_blocks += blocks
        c.count.alloc_pages += blocks << c.task.pc.order
    elif c.task.pc.code == OP_FREE:
        c.count.free_pages += blocks << c.task.pc.order


cdef inline void arrive_beside(cpu_t *c) noexcept nogil:
    """To see what the core leaves: in order of time, as at a lock, though there is none."""
    arrive(c, LOOK_BESIDE, c.task.zone[HOME], BY_NEED)


cdef inline bint looks_beside(cpu_t *c) noexcept nogil:
    """Whether a CPU sees what its core leaves first: at no lock for long it would keep its pace."""
    if c.thread == NULL or c.time - c.thread.arrived < LOOK_PS:
        return False
    arrive_beside(c)
    return True


cdef inline void look_beside(state_t *s, cpu_t *c) noexcept nogil:
    """What `arrive_beside` is for; who has come to its program's end waits for the run's."""
    meet(s, c)
    granted(c, s.course.end if c.task.pc.code == OP_END else c.time)
    c.state = RUNNING


cdef inline void arrive_drain(cpu_t *c, int zone, int pindex, int why) noexcept nogil:
    arrive(c, DRAIN, zone, why)
    c.ask.pindex = pindex


cdef inline void arrive_lru(state_t *s, cpu_t *c, bint off) noexcept nogil:
    """At the lock of the LRU lists that the pages of the operation at hand are on."""
    arrive(c, LRU, c.task.zone[c.task.pc.zone], BY_NEED)
    c.ask.off = off
    c.ask.lock = s.zones.lru[2 * c.id + c.task.pc.zone] + s.zones.zone[c.ask.zone].node


cdef inline void set_timer(state_t *s, cpu_t *c) noexcept nogil:
    cdef int64_t t = min(min(s.course.end, c.timers.sample_at), c.timers.change_at)
    if not c.warm:
        t = min(t, s.course.warm)
    if s.course.tick:
        t = min(t, c.timers.tick_at)
    c.timer = t


cdef inline void doze(state_t *s, cpu_t *c, int64_t to) noexcept nogil:
    if to > c.time:
        c.count.idle_ps += to - c.time
        c.slept += to - c.time
        c.time = to


cdef inline int64_t due(state_t *s, cpu_t *c) noexcept nogil:
    """When a CPU that is asleep has something to do by itself."""
    if s.course.nohz_idle or c.chore.kind == OFFLINE:
        return min(s.course.end, c.timers.change_at)
    return c.timer


cdef inline bint jump(state_t *s, cpu_t *c, int64_t to) noexcept nogil:
    """Be idle until ``to``; False if a timer is due before."""
    cdef int64_t stop = min(to, due(s, c))
    doze(s, c, stop)
    return stop == to


cdef inline void wake(state_t *s, int cpu) noexcept nogil:
    if s.cpu[cpu].state == BLOCKED and s.cpu[cpu].chore.kind != OFFLINE:
        s.cpu[cpu].state = RUNNING
        s.woken[s.nwoken] = cpu
        s.nwoken += 1

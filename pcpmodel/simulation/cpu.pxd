"""A CPU, whatever it works on: it asks for a lock, sleeps, is woken, has timers.

Knows the structs alone.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint32_t, uint64_t

from pcpmodel.simulation.structs cimport ARRIVED, BLOCKED, DRAIN, OFFLINE, RUNNING, cpu_t, state_t


cdef inline int64_t scaled(int64_t ps, uint32_t factor) noexcept nogil:
    """A time by a factor with 16 binary digits."""
    return (ps * factor) >> 16


cdef extern from *:
    """
    #define PCPMODEL_LONGEST ((int64_t)1 << 53)  /* ps: more than a run may last */
    static inline int64_t pcpmodel_times(int64_t ps, uint64_t n, int shift)
    {
        unsigned __int128 t = (unsigned __int128)ps * n >> shift;
        return t < PCPMODEL_LONGEST ? (int64_t)t : PCPMODEL_LONGEST;
    }
    """
    int64_t times "pcpmodel_times"(int64_t ps, uint64_t n, int shift) noexcept nogil


cdef inline int64_t lasts(cpu_t *c, uint32_t factor) noexcept nogil:
    """How long the work or the sleep of the operation at hand is, at a pace as in `scaled`."""
    cdef int64_t ps = c.task.pc.ps
    if c.task.pc.reg >= 0:
        ps = times(ps, c.task.regs[c.task.pc.reg], 0)
    return times(ps, factor, 16)


cdef inline void next_op(cpu_t *c) noexcept nogil:
    c.task.pc += 1
    c.task.left = -1
    c.task.work_left = -1


cdef inline void arrive(cpu_t *c, int kind, int lock, int zone, int why) noexcept nogil:
    c.state = ARRIVED
    c.ask.kind = kind
    c.ask.why = why
    c.ask.lock = lock
    c.ask.zone = zone


cdef inline void arrive_drain(cpu_t *c, int zone, int pindex, int why) noexcept nogil:
    arrive(c, DRAIN, zone, zone, why)
    c.ask.pindex = pindex


cdef inline void set_timer(state_t *s, cpu_t *c) noexcept nogil:
    cdef int64_t t = min(min(s.course.end, c.timers.sample_at), c.timers.change_at)
    if not c.timers.warm:
        t = min(t, s.course.warm)
    if s.course.tick:
        t = min(t, c.timers.tick_at)
    c.timer = t


cdef inline void doze(state_t *s, cpu_t *c, int64_t to) noexcept nogil:
    if to > c.time:
        c.count.idle_ps += to - c.time
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

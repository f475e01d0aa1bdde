"""What is written down: counters, histograms of waits and holds, time series, the order of grants.

Reads the state, changes nothing but the books: a run without them would be the same.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy

from pcpmodel.simulation.structs cimport (
    HIST,
    LRU,
    SERIES,
    count_t,
    cpu_t,
    lock_t,
    pcp_of,
    pcp_t,
    state_t,
)
from pcpmodel.workload.ops cimport OP_FREE, PHASES


cdef extern from *:
    """
    #define pcpmodel_log2(x) (63 ^ __builtin_clzll(x))
    /* x / 1000 in one multiplication: exact below 2 ** 55, and never less. */
    #define pcpmodel_ns(x) ((uint64_t)((unsigned __int128)(x) * (UINT64_MAX / 1000 + 1) >> 64))
    """
    int64_t log2 "pcpmodel_log2"(uint64_t x) noexcept nogil
    uint64_t to_ns "pcpmodel_ns"(uint64_t ps) noexcept nogil


cdef inline int64_t bucket(int64_t ps) noexcept nogil:
    """Histogram bucket of a time: 8 per power of two of ns, exact below 16 ns."""
    cdef uint64_t ns = to_ns(<uint64_t> ps)
    cdef int64_t e = log2(ns | 8) - 3  # no branch: whether a CPU waits is hard to predict
    return min(e * 8 + <int64_t> (ns >> e), <int64_t> HIST - 1)


cdef inline void count_hold(state_t *s, cpu_t *c, lock_t *lock, int kind, int64_t arrival,
                            int64_t wait, int64_t hold) noexcept nogil:
    """A hold of the lock that the CPU has asked for, and the wait before it.

    ``kind``: of one block past the lists PAST.
    """
    cdef count_t *n = c.count
    cdef int i
    cdef int64_t limit
    cdef uint64_t order = lock.order
    s.books.events += 1
    order = (order ^ <uint64_t> arrival ^ <uint64_t> c.id << 48) * <uint64_t> 0x9E3779B97F4A7C15
    lock.order = order ^ order >> 29
    if kind == LRU:
        n.lru_wait_ps += wait
        n.lru_hold_ps += hold
        n.lru_wait_max_ps = max(n.lru_wait_max_ps, wait)
    else:
        n.wait_ps += wait
        n.hold_ps += hold
        if wait > n.wait_max_ps:
            n.wait_max_ps = wait
    if not c.warm:  # nor do the counters
        return
    s.books.wait_ps[kind] += wait
    s.books.hold_ps[kind] += hold
    s.books.wait[kind][bucket(wait)] += 1
    s.books.hold[kind][bucket(hold)] += 1
    wait += hold
    s.books.latency[kind][bucket(wait)] += 1
    limit = 100_000_000  # 100 us
    for i in range(3):
        if wait <= limit:
            break
        s.books.over[kind][i] += 1
        limit *= 10


cdef inline void mark_phase(state_t *s, cpu_t *c) noexcept nogil:
    """Counting begins here: of the run, or of a phase."""
    s.books.mark[c.id] = c.count[0]
    s.books.mark[c.id].end_ps = c.time


cdef inline void end_phase(state_t *s, cpu_t *c) noexcept nogil:
    """What the CPU has counted since its phase began is of that phase; the maxima mean nothing."""
    cdef count_t *sum = &s.books.phase[c.id * PHASES + s.books.phase_of[c.id]]
    cdef uint64_t *to = <uint64_t *> sum
    cdef uint64_t *now = <uint64_t *> c.count
    cdef uint64_t *since = <uint64_t *> &s.books.mark[c.id]
    cdef int64_t time = sum.end_ps + c.time - s.books.mark[c.id].end_ps
    cdef size_t i
    for i in range(sizeof(count_t) // sizeof(uint64_t)):
        to[i] += now[i] - since[i]
    sum.end_ps = time
    mark_phase(s, c)


cdef inline void sample(state_t *s, cpu_t *c) noexcept nogil:
    cdef pcp_t *p
    cdef int z
    cdef int64_t pcp = 0, held = s.lists.pages[c.id], at
    cdef int64_t now[SERIES]
    for z in range(s.nr_zones):
        p = pcp_of(c, z)
        pcp += p.locked if p.remote > c.time else p.pcp.count
    if c.task.left > 0:  # the operation under way was booked in full when it began
        at = <int64_t> c.task.left << c.task.pc.order
        held += at if c.task.pc.code == OP_FREE else -at
    now[0], now[1] = pcp, held
    now[2], now[3] = c.count.score, c.count.wait_ps
    now[4], now[5] = c.count.lru_wait_ps, c.count.idle_ps
    now[6], now[7] = c.count.refill_pages, s.lists.passed[c.id]
    while c.timers.sample_at <= c.time:
        memcpy(
            &s.books.series[(c.id * s.course.samples + c.timers.sample) * SERIES], now,
            SERIES * sizeof(int64_t))
        c.timers.sample += 1
        c.timers.sample_at += s.course.sample_every
        if c.timers.sample == s.course.samples:
            c.timers.sample_at = INT64_MAX

"""A queued spinlock: first come, first served, with a price for the hand-over.

A free lock costs nothing to take beyond the measured hold.  A waiting CPU gets it
``handoff_ps`` after its predecessor leaves, plus ``handoff_per_waiter_ps`` for every CPU
that was queued before it when it arrived (the holder not counted): 0 for an MCS-like lock,
above 0 where every waiter disturbs the hand-over.  Grant and release are thus known when a
CPU arrives, which is what lets one event stand for a whole interaction.  Times are integers
[ps].  After ``kernel/locking/qspinlock.c`` (v6.6) and Boyd-Wickizer et al. (2012).

``crowd_lock`` is a test-and-set lock, which is fair to nobody: of those who wait one, drawn
with equal chances, sees ``handoff_ps`` (and ``handoff_per_waiter_ps`` for every other one)
after the release that the lock is free.  Whoever comes by earlier takes it, above all the CPU
that has just released it and comes back.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc

from pcpmodel.errors import InputError

__all__ = ["FifoLock"]

cdef int64_t MAX_PS = 1 << 61  # of all holds together, and of the clock
cdef int64_t MAX_HANDOFF_PS = 1 << 40


cdef int lock_init(fifo_lock *lock, int cpus, int64_t handoff_ps,
                   int64_t handoff_per_waiter_ps) except -1 nogil:
    cdef int size = 2
    while size <= cpus:
        size *= 2
    lock.leave = <int64_t *> malloc(size * sizeof(int64_t))
    if lock.leave == NULL:
        with gil:
            raise MemoryError
    lock.mask = size - 1
    lock.head = lock.tail = 0
    lock.free_at = 0
    lock.handoff_ps = handoff_ps
    lock.handoff_per_waiter_ps = handoff_per_waiter_ps
    return 0


cdef void lock_free(fifo_lock *lock) noexcept nogil:
    free(lock.leave)
    lock.leave = NULL


cdef int crowd_init(crowd_lock *lock, int cpus, uint64_t seed) except -1 nogil:
    lock.waiter = <int32_t *> malloc(cpus * sizeof(int32_t))
    if lock.waiter == NULL:
        with gil:
            raise MemoryError
    lock.waiting = 0
    lock.holder = lock.heir = -1
    lock.rng = seed
    return 0


cdef void crowd_free(crowd_lock *lock) noexcept nogil:
    free(lock.waiter)
    lock.waiter = NULL


cdef class FifoLock:
    """One lock, step by step.

    Parameters
    ----------
    cpus : int
        CPUs that may be at the lock together, at least 1.
    handoff_ps, handoff_per_waiter_ps : int
        Price of a hand-over [ps].
    """

    cdef fifo_lock lock
    cdef int64_t last
    cdef int cpus

    def __cinit__(self, int cpus, int64_t handoff_ps=0, int64_t handoff_per_waiter_ps=0):
        if cpus < 1 or cpus > 1 << 20:
            raise InputError(f"cpus={cpus} is outside 1..{1 << 20}")
        for cost in (handoff_ps, handoff_per_waiter_ps):
            if not 0 <= cost <= MAX_HANDOFF_PS:
                raise InputError(f"a hand-over of {cost} ps is outside 0..{MAX_HANDOFF_PS} ps")
        self.cpus = cpus
        self.last = 0
        lock_init(&self.lock, cpus, handoff_ps, handoff_per_waiter_ps)

    def __dealloc__(self):
        lock_free(&self.lock)

    def acquire(self, int64_t now_ps, int64_t hold_ps):
        """Arrive at ``now_ps`` for a hold of ``hold_ps``; returns the time of the grant [ps].

        Raises
        ------
        InputError
            If time runs backwards, the hold is not positive, or more than ``cpus`` CPUs
            would be at a lock whose hand-over depends on their number.
        """
        cdef int64_t grant
        if now_ps < self.last:
            raise InputError(f"now_ps={now_ps} is before the last arrival at {self.last} ps")
        if not 0 < hold_ps <= MAX_PS - self.lock.free_at:
            raise InputError(f"hold_ps={hold_ps} is outside 1..{MAX_PS - self.lock.free_at}")
        if now_ps > MAX_PS:
            raise InputError(f"now_ps={now_ps} is above {MAX_PS}")
        grant = lock_grant(&self.lock, now_ps)
        if self.lock.tail - self.lock.head >= self.cpus:
            raise InputError(f"more than {self.cpus} CPUs at the lock")
        lock_leave(&self.lock, grant + hold_ps)
        self.last = now_ps
        return grant

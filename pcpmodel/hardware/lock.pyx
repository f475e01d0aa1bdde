"""A queued spinlock: first come, first served, with a price for the hand-over.

A free lock costs nothing to take beyond the measured hold.  A waiting CPU gets it the price of a
hand-over after its predecessor leaves, however many wait: MCS, a line per waiter.  Grant and
release are thus known when a CPU arrives, which is what lets one event stand for a whole
interaction.  Times are integers [ps].  After ``kernel/locking/qspinlock.c`` (v6.6).

``crowd_lock`` is a test-and-set lock, which is fair to nobody: of those who wait one, drawn
with equal chances, sees the price of a hand-over after the release that the lock is free.
Whoever comes by earlier takes it, above all the CPU that has just released it and comes back.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc

from pcpmodel.errors import InputError

__all__ = ["FifoLock"]

cdef int64_t MAX_PS = 1 << 61  # of all holds together, and of the clock
cdef int64_t MAX_HANDOVER_PS = 1 << 40


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
    handover_ps : int
        Price of a hand-over [ps].
    """

    cdef fifo_lock lock
    cdef int64_t last
    cdef int64_t handover

    def __cinit__(self, int64_t handover_ps=0):
        if not 0 <= handover_ps <= MAX_HANDOVER_PS:
            raise InputError(
                f"a hand-over of {handover_ps} ps is outside 0..{MAX_HANDOVER_PS} ps"
            )
        self.handover = handover_ps

    def acquire(self, int64_t now_ps, int64_t hold_ps):
        """Arrive at ``now_ps`` for a hold of ``hold_ps``; returns the time of the grant [ps].

        Raises
        ------
        InputError
            If time runs backwards, or the hold is not positive.
        """
        cdef int64_t grant
        if now_ps < self.last:
            raise InputError(f"now_ps={now_ps} is before the last arrival at {self.last} ps")
        if not 0 < hold_ps <= MAX_PS - self.lock.free_at:
            raise InputError(f"hold_ps={hold_ps} is outside 1..{MAX_PS - self.lock.free_at}")
        if now_ps > MAX_PS:
            raise InputError(f"now_ps={now_ps} is above {MAX_PS}")
        grant = lock_grant(&self.lock, now_ps, self.handover)
        self.lock.free_at = grant + hold_ps
        self.last = now_ps
        return grant

# SPDX-License-Identifier: GPL-2.0-only
from libc.stdint cimport int32_t, int64_t, uint64_t

from pcpmodel.splitmix cimport draw


cdef struct fifo_lock:
    int64_t free_at  # ps; when the last CPU granted so far leaves


cdef inline int64_t lock_grant(fifo_lock *lock, int64_t now, int64_t handover) noexcept nogil:
    """When a CPU arriving at ``now`` gets the lock; arrivals come in time order.

    ``handover`` is what it takes if the CPU has to wait.  A CPU that leaves at ``now`` has left:
    a release precedes an arrival of the same time.
    """
    return now if lock.free_at <= now else lock.free_at + handover


cdef struct crowd_lock:
    int32_t *waiter   # who waits, in no order
    int32_t waiting
    int32_t holder    # -1: the lock is free
    int32_t heir      # who sees it free at first; -1: nobody. Still among the waiters
    uint64_t rng


cdef inline void crowd_join(crowd_lock *lock, int32_t cpu) noexcept nogil:
    """A CPU finds the lock taken."""
    lock.waiter[lock.waiting] = cpu
    lock.waiting += 1


cdef inline void crowd_leave(crowd_lock *lock) noexcept nogil:
    """The holder leaves; one of those who wait will be the first to see it."""
    lock.holder = lock.heir = -1
    if lock.waiting:
        lock.heir = lock.waiter[draw(&lock.rng) % <uint64_t> lock.waiting]


cdef inline void crowd_take(crowd_lock *lock, int32_t cpu) noexcept nogil:
    """A CPU, the heir or one that just came by, has the lock."""
    cdef int32_t i
    lock.holder = cpu
    if cpu == lock.heir:
        for i in range(lock.waiting):
            if lock.waiter[i] == cpu:
                lock.waiting -= 1
                lock.waiter[i] = lock.waiter[lock.waiting]
                break
    lock.heir = -1


cdef int crowd_init(crowd_lock *lock, int cpus, uint64_t seed) except -1 nogil
cdef void crowd_free(crowd_lock *lock) noexcept nogil

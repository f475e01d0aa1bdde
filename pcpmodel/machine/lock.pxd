# SPDX-License-Identifier: GPL-2.0-only
from libc.stdint cimport int32_t, int64_t


cdef struct fifo_lock:
    int64_t free_at                # ps; when the last CPU granted so far leaves
    int64_t handoff_ps             # cost of handing over to a waiting CPU
    int64_t handoff_per_waiter_ps  # more for every CPU queued before it
    # Ring: when each CPU still at the lock leaves, ascending; kept only where the hand-over
    # depends on their number.
    int64_t *leave
    int32_t mask                   # ring size - 1; the size is a power of two > CPUs
    int32_t head                   # oldest entry
    int32_t tail                   # next free entry


cdef inline int64_t lock_grant(fifo_lock *lock, int64_t now) noexcept nogil:
    """When a CPU arriving at ``now`` gets the lock; arrivals come in time order.

    A CPU that leaves at ``now`` has left: a release precedes an arrival of the same time.
    """
    cdef int32_t head = lock.head
    if lock.handoff_per_waiter_ps == 0:  # nobody need be counted
        return now if lock.free_at <= now else lock.free_at + lock.handoff_ps
    while head != lock.tail and lock.leave[head & lock.mask] <= now:
        head += 1
    lock.head = head
    if head == lock.tail:
        return now
    return lock.free_at + lock.handoff_ps + lock.handoff_per_waiter_ps * (lock.tail - head - 1)


cdef inline void lock_leave(fifo_lock *lock, int64_t at) noexcept nogil:
    """Note when the CPU just granted leaves."""
    lock.free_at = at
    if lock.handoff_per_waiter_ps == 0:
        return
    lock.leave[lock.tail & lock.mask] = at
    lock.tail += 1


cdef int lock_init(fifo_lock *lock, int cpus, int64_t handoff_ps,
                   int64_t handoff_per_waiter_ps) except -1 nogil
cdef void lock_free(fifo_lock *lock) noexcept nogil

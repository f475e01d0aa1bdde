# cython: boundscheck=False, wraparound=False
"""Loads that time a machine from user space: no root, no kernel's help.

Each runs in the calling thread on the CPU where that is pinned, without the GIL; what to make of
the times is `pcpmodel.hardware.probe`'s.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from pcpmodel.errors import InputError

__all__ = ["bounce", "chase", "clear", "count", "link", "touch", "write_lines"]

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>

    static inline int64_t pcpm_now_ns(void)
    {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }

    static inline uint64_t pcpm_load(const uint64_t *p)
    {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }

    static inline void pcpm_store(uint64_t *p, uint64_t value)
    {
        __atomic_store_n(p, value, __ATOMIC_RELEASE);
    }

    /* Keeps a result alive, and what is before it before what is after it. */
    static inline void pcpm_use(uint64_t value)
    {
        __asm__ volatile("" : : "r"(value) : "memory");
    }
    """
    int64_t pcpm_now_ns() nogil
    uint64_t pcpm_load(const uint64_t *p) nogil
    void pcpm_store(uint64_t *p, uint64_t value) nogil
    void pcpm_use(uint64_t value) nogil

cdef enum:
    WORDS = 8  # words of a cache line of 64 bytes
    PATIENCE = 1 << 20  # turns of a wait between two looks at the clock


def link(uint64_t[::1] memory, int64_t[::1] order):
    """Chain the lines of ``memory`` into one ring, in the given order of their numbers."""
    cdef Py_ssize_t i, n = order.shape[0], lines = memory.shape[0] // WORDS
    if n < 2:
        raise InputError("order: at least 2 lines")
    for i in range(n):
        if not 0 <= order[i] < lines:
            raise InputError(f"order[{i}]={order[i]} is outside 0..{lines - 1}")
    with nogil:
        for i in range(n):
            memory[order[i] * WORDS] = order[(i + 1) % n] * WORDS


def chase(uint64_t[::1] memory, int64_t start, int64_t loads):
    """Follow a ring made by `link`; every load waits for the one before.

    Returns
    -------
    tuple of (float, int)
        Time of a load [ns], and the line where it stopped.
    """
    cdef uint64_t at = start * WORDS
    cdef int64_t _load, begin, end
    if loads < 1 or not 0 <= start < memory.shape[0] // WORDS:
        raise InputError(f"start={start}, loads={loads}: outside of the memory, or no load")
    with nogil:
        begin = pcpm_now_ns()
        for _load in range(loads):
            at = memory[at]
        pcpm_use(at)
        end = pcpm_now_ns()
    return <double> (end - begin) / loads, at // WORDS


def write_lines(uint64_t[::1] memory):
    """Make every line of ``memory`` this CPU's own and modified."""
    cdef Py_ssize_t i, lines = memory.shape[0] // WORDS
    with nogil:
        for i in range(lines):
            memory[i * WORDS + 1] += 1


def bounce(uint64_t[::1] line, int side, int64_t rounds, double patience_s):
    """Hand a cache line back and forth between two threads; the other calls with the other side.

    Parameters
    ----------
    line : (1,) uint64 memory
        Zero at first, the same for both.
    side : {0, 1}
    rounds : int
        Times that either side has the line.
    patience_s : float
        How long to wait for the other side [s].

    Returns
    -------
    float or None
        Time of one hand-over [ns], half a round; None: the other side did not come.
    """
    cdef uint64_t mine = side
    cdef int64_t i, turns, begin, end, late = <int64_t> (1e9 * patience_s)
    cdef bint gone = False
    if side not in (0, 1) or rounds < 1 or line.shape[0] < 1:
        raise InputError(f"side={side}, rounds={rounds}: side is 0 or 1, rounds at least 1")
    with nogil:
        begin = pcpm_now_ns()
        for i in range(rounds):
            turns = 0
            while pcpm_load(&line[0]) != mine:
                turns += 1
                if turns % PATIENCE == 0 and pcpm_now_ns() - begin > late:
                    gone = True
                    break
            if gone:
                break
            if i == 0 and side == 0:
                begin = pcpm_now_ns()
            pcpm_store(&line[0], mine + 1)
            mine += 2
        end = pcpm_now_ns()
    return None if gone else <double> (end - begin) / (2 * rounds)


def clear(unsigned char[::1] memory, Py_ssize_t page_bytes, double seconds):
    """Fill page after page with zeros, round and round, for so long.

    Returns
    -------
    float
        Time of a page [ns].
    """
    cdef Py_ssize_t at = 0, size = memory.shape[0]
    cdef int64_t pages = 0, begin, now, last = <int64_t> (1e9 * seconds)
    if page_bytes < 64 or size < page_bytes:
        raise InputError(f"page_bytes={page_bytes}: 64 or more, and no more than there are")
    with nogil:
        begin = now = pcpm_now_ns()
        while now - begin < last:
            memset(&memory[at], 0, page_bytes)
            at += page_bytes
            if at + page_bytes > size:
                at = 0
            pages += 1
            if pages & 15 == 0:
                now = pcpm_now_ns()
        now = pcpm_now_ns()
    return <double> (now - begin) / pages


def count(double seconds):
    """Do arithmetic for so long, four chains side by side.

    Returns
    -------
    float
        Steps per ns.
    """
    cdef uint64_t a = 1, b = 2, c = 3, d = 4, step = 6364136223846793005ULL
    cdef int64_t _step, steps = 0, begin, now, last = <int64_t> (1e9 * seconds)
    with nogil:
        begin = now = pcpm_now_ns()
        while now - begin < last:
            for _step in range(1024):
                a = a * step + 1
                b = b * step + 1
                c = c * step + 1
                d = d * step + 1
            steps += 1024
            now = pcpm_now_ns()
        pcpm_use(a ^ b ^ c ^ d)
    return <double> steps / (now - begin)


def touch(unsigned char[::1] memory, int64_t[::1] order, Py_ssize_t page_bytes, bint write):
    """Touch pages in the given order of their numbers: by a write, or by a read.

    Returns
    -------
    float
        Time of a page [ns].
    """
    cdef Py_ssize_t i, n = order.shape[0], pages = memory.shape[0] // page_bytes
    cdef int64_t begin, end
    cdef uint64_t sum_ = 0
    if n < 1:
        raise InputError("order: at least 1 page")
    for i in range(n):
        if not 0 <= order[i] < pages:
            raise InputError(f"order[{i}]={order[i]} is outside 0..{pages - 1}")
    with nogil:
        begin = pcpm_now_ns()
        if write:
            for i in range(n):
                memory[order[i] * page_bytes] = 1
        else:
            for i in range(n):
                sum_ += memory[order[i] * page_bytes]
        pcpm_use(sum_)
        end = pcpm_now_ns()
    return <double> (end - begin) / n

# cython: boundscheck=False, wraparound=False
"""Pages of a ring buffer as ``trace_pipe_raw`` gives them: time stamps to the nanosecond.

Text of a trace has microseconds; a page of a hold of the zone lock takes a tenth of one.  After
``include/linux/ring_buffer.h`` and ``kernel/trace/ring_buffer.c`` (v6.6): a page begins with a
time stamp and the number of bytes that are in use; an event has a word with its length (5 bits)
and the time since the one before (27 bits).  Little-endian machines with words of 64 bits.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from pcpmodel.errors import InputError

__all__ = ["read_pages"]

cdef enum:
    HEAD = 16  # bytes of a page before its events
    PADDING = 29
    TIME_EXTEND = 30
    TIME_STAMP = 31

cdef uint64_t IN_USE = (1 << 30) - 1
cdef uint64_t MISSED = 3 << 30  # RB_MISSED_EVENTS, RB_MISSED_STORED


cdef inline uint32_t word(const unsigned char *at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return value


def read_pages(const unsigned char[::1] raw, Py_ssize_t page_bytes, Py_ssize_t order_at):
    """Read one CPU's pages, oldest first.

    Parameters
    ----------
    raw : bytes
        Whole pages.
    page_bytes : int
        Size of each.
    order_at : int
        Where in an event of kmem its order stands (32 bits); of an event that ends before, or has
        something else there, what is found has no meaning.

    Returns
    -------
    tuple of ndarray
        Of every event: time [ns] (int64), identifier of its kind (uint16), order (uint32), and
        whether events before it were lost (bool).

    Raises
    ------
    InputError
        Where a page has what no ring buffer has.
    """
    cdef Py_ssize_t at, end, data, after, start, n = 0, size = raw.shape[0]
    cdef uint64_t now, commit
    cdef uint32_t head, kind, delta
    cdef bint missed
    if page_bytes < HEAD + 8 or size % page_bytes:
        raise InputError(f"{size} bytes are no whole pages of {page_bytes}")
    most = size // 8 + 1
    times, kinds = np.empty(most, np.int64), np.empty(most, np.uint16)
    orders, losses = np.empty(most, np.uint32), np.zeros(most, np.uint8)
    cdef int64_t[::1] time_ns = times
    cdef uint16_t[::1] id_ = kinds
    cdef uint32_t[::1] order = orders
    cdef unsigned char[::1] loss = losses
    for start in range(0, size, page_bytes):
        memcpy(&now, &raw[start], 8)
        memcpy(&commit, &raw[start + 8], 8)
        missed = (commit & MISSED) != 0
        at, end = start + HEAD, start + HEAD + <Py_ssize_t> (commit & IN_USE)
        if end > start + page_bytes:
            raise InputError(f"page {start // page_bytes} says that it is fuller than full")
        while at + 4 <= end:
            head = word(&raw[at])
            kind, delta = head & 31, head >> 5
            if kind in (0, PADDING, TIME_EXTEND, TIME_STAMP) and at + 8 > end:
                if kind == PADDING and delta == 0:
                    break
                raise InputError(f"page {start // page_bytes} ends within an event")
            if kind == PADDING:
                if delta == 0:
                    break
                now += delta
                at += 4 + word(&raw[at + 4])
                continue
            if kind == TIME_EXTEND:
                now += delta + (<uint64_t> word(&raw[at + 4]) << 27)
                at += 8
                continue
            if kind == TIME_STAMP:
                # The upper five bits are those of the time before.
                now = (now >> 59 << 59) | ((<uint64_t> word(&raw[at + 4]) << 27) + delta)
                at += 8
                continue
            now += delta
            if kind == 0:
                data, after = at + 8, at + 4 + word(&raw[at + 4])
            else:
                data, after = at + 4, at + 4 + 4 * kind
            if after > end or after < data + 2:
                raise InputError(f"page {start // page_bytes} ends within an event")
            time_ns[n] = <int64_t> now
            memcpy(&id_[n], &raw[data], 2)
            order[n] = word(&raw[data + order_at]) if data + order_at + 4 <= after else 0
            loss[n] = missed
            missed = False
            n += 1
            at = after
    return times[:n].copy(), kinds[:n].copy(), orders[:n].copy(), losses[:n].astype(bool)

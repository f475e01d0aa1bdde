"""Who is next of many CPUs: winner trees over 64-bit keys, ``time << CPU_BITS | cpu``."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT64_MIN, int64_t, uint64_t


cdef enum:
    CPU_BITS = 10


cdef inline int64_t time_of(int64_t key) noexcept nogil:
    return <int64_t> (<uint64_t> (key ^ INT64_MIN) >> CPU_BITS)


cdef inline int cpu_of(int64_t key) noexcept nogil:
    return <int> (key & ((1 << CPU_BITS) - 1))


cdef inline int64_t key_at(int64_t time, int cpu) noexcept nogil:
    """What sorts by time, then by CPU: signed, as the smaller of two is then found sooner."""
    return <int64_t> (<uint64_t> time << CPU_BITS | cpu) ^ INT64_MIN


cdef inline int64_t up(int64_t *tree, size_t *i, int64_t key) noexcept nogil:
    """One level up in a tree."""
    cdef size_t at = i[0] ^ 1
    key = min(key, tree[at])
    i[0] = at >> 1
    tree[i[0]] = key
    return key


cdef inline void place_key(int64_t *tree, size_t leaf, int64_t key) noexcept nogil:
    """Put a key at a leaf: the smaller of each two is above them, that of all at 1."""
    tree[leaf] = key
    while leaf > 3:
        key = up(tree, &leaf, key)
        key = up(tree, &leaf, key)
    if leaf > 1:
        up(tree, &leaf, key)

"""Random numbers of everything compiled: splitmix64 (Steele, Lea, Flood 2014)."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport uint64_t


cdef inline uint64_t draw(uint64_t *rng) noexcept nogil:
    """The next number of the sequence that begins with the seed in ``rng``."""
    cdef uint64_t z
    rng[0] += <uint64_t> 0x9E3779B97F4A7C15
    z = rng[0]
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EB
    return z ^ (z >> 31)

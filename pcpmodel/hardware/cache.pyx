"""Caches by the page: was the page that an allocation hands out still warm?

Every CPU has a private cache and shares a last-level cache with its
neighbours, both set-associative with least-recently-used replacement; the unit
is a whole page, as if one that is used were read or written from end to end.
Writes by one CPU do not take a page out of another's private cache.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from pcpmodel.exclusive cimport begin_use, end_use

from pcpmodel.errors import InputError

__all__ = ["PageCache"]


def _sets(name, pages, ways):
    """Number of sets, a power of two, nearest below what ``pages`` needs."""
    if isinstance(pages, bool) or not isinstance(pages, int) or not ways <= pages <= 1 << 24:
        raise InputError(f"{name}={pages!r} is not a whole number of pages in {ways}..{1 << 24}")
    return 1 << ((pages // ways).bit_length() - 1)


cdef class PageCache(Exclusive):
    """Private and last-level caches of a machine.

    Parameters
    ----------
    cpus : int
        Logical CPUs.
    private_pages : int
        Private cache of a CPU [pages]; rounded down to 8 ways of a power of two sets.
    llc_pages : int
        One last-level cache [pages]; 16 ways.
    llc_cpus : int
        CPUs that share it: CPU numbers are grouped in order.
    """

    def __cinit__(self, int cpus, private_pages, llc_pages, int llc_cpus):
        cdef page_cache *c = &self.cache
        if cpus < 1 or llc_cpus < 1:
            raise InputError(f"cpus={cpus}, llc_cpus={llc_cpus}: at least 1")
        self.cpus = cpus
        c.llc_cpus = llc_cpus
        c.own_mask = _sets("private_pages", private_pages, PRIVATE_WAYS) - 1
        c.llc_mask = _sets("llc_pages", llc_pages, LLC_WAYS) - 1
        c.own = <uint32_t *> calloc(
            <size_t> cpus * (c.own_mask + 1) * PRIVATE_WAYS, sizeof(uint32_t)
        )
        c.llc = <uint32_t *> calloc(
            <size_t> ((cpus - 1) // llc_cpus + 1) * (c.llc_mask + 1) * LLC_WAYS, sizeof(uint32_t)
        )
        if c.own == NULL or c.llc == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.cache.own)
        free(self.cache.llc)

    @property
    def private_pages(self):
        """Pages that a private cache holds."""
        return (self.cache.own_mask + 1) * PRIVATE_WAYS

    @property
    def llc_pages(self):
        """Pages that a last-level cache holds."""
        return (self.cache.llc_mask + 1) * LLC_WAYS

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def touch(self, int cpu, const uint32_t[::1] pages):
        """Use pages one after the other.

        Returns
        -------
        tuple of int
            How many were found in the private cache, in the last-level cache, in memory.

        Raises
        ------
        InputError
            For a CPU that is not there.
        """
        cdef int64_t found[3]
        cdef Py_ssize_t i
        if not 0 <= cpu < self.cpus:
            raise InputError(f"cpu={cpu} is outside 0..{self.cpus - 1}")
        found[0] = found[1] = found[2] = 0
        begin_use(self)
        with nogil:
            for i in range(pages.shape[0]):
                found[cache_touch(&self.cache, cpu, pages[i])] += 1
        end_use(self)
        return found[0], found[1], found[2]

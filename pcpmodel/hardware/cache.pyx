"""Caches by the page: was the page that an allocation hands out still warm?

Every CPU has a private cache and shares a last-level cache with those of its socket, both
set-associative with least-recently-used replacement; the unit is a whole page, as if one
that is used were read or written from end to end.  What another CPU of the socket has used
since is no longer in the private cache, but on the socket.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from pcpmodel.exclusive cimport begin_use, end_use

from pcpmodel.errors import InputError

__all__ = ["PageCache"]


def _sets(name, pages, ways):
    """Number of sets of a cache of as many pages."""
    if isinstance(pages, bool) or not isinstance(pages, int) or not ways <= pages <= 1 << 24:
        raise InputError(f"{name}={pages!r} is not a whole number of pages in {ways}..{1 << 24}")
    return pages // ways


cdef class PageCache(Exclusive):
    """Private and last-level caches of a machine.

    Parameters
    ----------
    cpus : int
        Logical CPUs.
    private_pages : int
        Private cache of a CPU [pages]; rounded down to sets of 8.
    llc_pages : int
        One last-level cache [pages]; rounded down to sets of 16.
    llc_of : sequence of int
        The last-level cache of every CPU, numbered from 0.
    """

    def __cinit__(self, int cpus, private_pages, llc_pages, llc_of):
        cdef page_cache *c = &self.cache
        cdef size_t own, llc
        cdef int i
        if cpus < 1:
            raise InputError(f"cpus={cpus}: at least 1")
        groups = list(llc_of)
        if len(groups) != cpus or not all(0 <= group < cpus for group in groups):
            raise InputError(f"llc_of={groups}: not {cpus} numbers in 0..{cpus - 1}")
        self.cpus = cpus
        c.own_sets = _sets("private_pages", private_pages, PRIVATE_WAYS)
        c.llc_sets = _sets("llc_pages", llc_pages, LLC_WAYS)
        c.group = <int *> calloc(cpus, sizeof(int))
        own, llc = <size_t> cpus * c.own_sets, <size_t> (max(groups) + 1) * c.llc_sets
        c.own = <uint32_t *> calloc(own * PRIVATE_WAYS, sizeof(uint32_t))
        c.llc = <uint32_t *> calloc(llc * LLC_WAYS, sizeof(uint32_t))
        c.user = <uint32_t *> calloc(llc * LLC_WAYS, sizeof(uint32_t))
        c.own_first = <uint8_t *> calloc(own, 1)
        c.llc_first = <uint8_t *> calloc(llc, 1)
        if (
            c.group == NULL or c.own == NULL or c.llc == NULL or c.user == NULL
            or c.own_first == NULL or c.llc_first == NULL
        ):
            raise MemoryError
        for i in range(cpus):
            c.group[i] = groups[i]

    def __dealloc__(self):
        free(self.cache.group)
        free(self.cache.own)
        free(self.cache.llc)
        free(self.cache.user)
        free(self.cache.own_first)
        free(self.cache.llc_first)

    @property
    def private_pages(self):
        """Pages that a private cache holds."""
        return self.cache.own_sets * PRIVATE_WAYS

    @property
    def llc_pages(self):
        """Pages that a last-level cache holds."""
        return self.cache.llc_sets * LLC_WAYS

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
            For a CPU that is not there, or the page 2**32 - 1.
        """
        cdef int64_t found[3]
        cdef Py_ssize_t i
        if not 0 <= cpu < self.cpus:
            raise InputError(f"cpu={cpu} is outside 0..{self.cpus - 1}")
        for i in range(pages.shape[0]):
            if pages[i] == UINT32_MAX:
                raise InputError(f"page {pages[i]} is outside 0..{UINT32_MAX - 1}", row=i)
        found[0] = found[1] = found[2] = 0
        begin_use(self)
        with nogil:
            for i in range(pages.shape[0]):
                found[cache_touch(&self.cache, cpu, pages[i])] += 1
        end_use(self)
        return found[0], found[1], found[2]

"""Where the cache line of every struct page is: who wrote it last, and how much since.

A struct page is a line of 64 bytes.  A CPU that takes a page from its lists, frees it to them or
moves it under the zone lock writes the line; so does whoever looks at a buddy, which stays where
it is for the model as well.  A line that its last writer has followed by as many others as its
private cache holds is in the last-level cache, after as many as its share of that in memory (least
recently used, as if caches had no sets).  The line beside the one before comes ahead, by the
prefetcher for pairs and for streams.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from pcpmodel.exclusive cimport check_idle

from pcpmodel.errors import InputError

__all__ = ["LINE_PLACES", "PageLines"]

#: Where a line was found.
LINE_PLACES = ("own", "ahead", "llc", "dirty", "memory")
_LINE_BYTES = 64


cdef class PageLines(Exclusive):
    """The lines of the struct pages of some zones.

    Parameters
    ----------
    cpus : int
        Logical CPUs.
    pages : sequence of int
        Pages of each zone.
    private_kib, llc_kib : float
        Private cache of a CPU, and its share of the last-level cache [KiB].
    """

    def __cinit__(self, int cpus, pages, private_kib, llc_kib):
        cdef page_lines *lines = &self.lines
        cdef int i
        if cpus < 1 or not pages:
            raise InputError(f"cpus={cpus}, {len(pages)} zones: at least 1")
        self.cpus, self.zones, self.pages = cpus, len(pages), tuple(pages)
        lines.own = int(private_kib * 1024) // _LINE_BYTES
        lines.both = lines.own + int(llc_kib * 1024) // _LINE_BYTES
        lines.last = <uint64_t **> calloc(self.zones, sizeof(uint64_t *))
        lines.used = <uint64_t *> calloc(cpus, sizeof(uint64_t))
        lines.found = <uint64_t *> calloc(2 * cpus * LINE_STATES, sizeof(uint64_t))
        lines.blocks = <uint64_t *> calloc(2 * cpus, sizeof(uint64_t))
        if lines.last == NULL or lines.used == NULL or lines.found == NULL or lines.blocks == NULL:
            raise MemoryError
        for i in range(self.zones):
            lines.last[i] = <uint64_t *> calloc(<size_t> pages[i], sizeof(uint64_t))
            if lines.last[i] == NULL:
                raise MemoryError

    def __dealloc__(self):
        cdef int i
        if self.lines.last != NULL:
            for i in range(self.zones):
                free(self.lines.last[i])
        free(self.lines.last)
        free(self.lines.used)
        free(self.lines.found)
        free(self.lines.blocks)

    def counts(self):
        """Lines touched under the zone lock.

        Returns
        -------
        dict
            ``refill`` and ``drain``: blocks moved, and lines by where they were (`LINE_PLACES`).
        """
        check_idle(self)
        told = {}
        for side, name in enumerate(("refill", "drain")):
            told[name] = {
                "blocks": sum([self.lines.blocks[2 * c + side] for c in range(self.cpus)])
            }
            for k, where in enumerate(LINE_PLACES):
                told[name][where] = sum(
                    [self.lines.found[(2 * c + side) * LINE_STATES + k] for c in range(self.cpus)]
                )
        return told

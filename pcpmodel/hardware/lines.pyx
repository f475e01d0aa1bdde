"""Where the cache line of every struct page is: who wrote it last, and how much since.

A struct page is a line of 64 bytes.  A CPU that moves a page under the zone lock writes the line,
and so does whoever looks at a buddy, which stays where it is for the model as well; who frees a
page to its lists writes the line of a page that is its own from then on.  A line that its last
writer has followed by as many others as its private cache holds is in the last-level cache, after
as many as its share of that in memory (least recently used, as if caches had no sets).  The line
beside the one before comes ahead, by the prefetcher for pairs and for streams.

What another CPU does without the lock is not looked at: who holds the lock would see it sooner or
later, depending on the order in which an engine comes to CPUs.  How much another CPU has used is
what it had at its own last hold.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from pcpmodel.exclusive cimport check_idle
from pcpmodel.kernel.pages cimport pages_zeros

from pcpmodel.errors import InputError

__all__ = ["LINE_PLACES", "PageLines"]

#: Where a line was found.
LINE_PLACES = ("own", "ahead", "beside", "llc", "dirty", "memory")
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
        lines.cpus, lines.zones = cpus, self.zones
        lines.last = <uint64_t **> calloc(self.zones, sizeof(uint64_t *))
        lines.freed = <uint32_t **> calloc(self.zones, sizeof(uint32_t *))
        lines.seen = <uint64_t *> calloc(cpus * self.zones, sizeof(uint64_t))
        lines.used = <uint64_t *> calloc(cpus, sizeof(uint64_t))
        lines.found = <uint64_t *> calloc(2 * cpus * LINE_ORDERS * LINE_STATES, sizeof(uint64_t))
        lines.blocks = <uint64_t *> calloc(2 * cpus * LINE_ORDERS, sizeof(uint64_t))
        if (
            lines.last == NULL or lines.freed == NULL or lines.used == NULL or lines.seen == NULL
            or lines.found == NULL or lines.blocks == NULL
        ):
            raise MemoryError
        for i in range(self.zones):
            lines.last[i] = <uint64_t *> pages_zeros(<size_t> pages[i] * sizeof(uint64_t))
            lines.freed[i] = <uint32_t *> pages_zeros(<size_t> pages[i] * sizeof(uint32_t))
            if lines.last[i] == NULL or lines.freed[i] == NULL:
                raise MemoryError

    def __dealloc__(self):
        cdef int i
        for i in range(self.zones):
            if self.lines.last != NULL:
                free(self.lines.last[i])
            if self.lines.freed != NULL:
                free(self.lines.freed[i])
        free(self.lines.last)
        free(self.lines.freed)
        free(self.lines.used)
        free(self.lines.seen)
        free(self.lines.found)
        free(self.lines.blocks)

    @property
    def blocks(self):
        """Blocks moved under the zone lock."""
        return self.lines.moved

    @property
    def pages_used(self):
        """Pages that the CPUs have allocated, about: all lines that they have used."""
        return pages_used(&self.lines)

    def counts(self):
        """Lines touched under the zone lock.

        Returns
        -------
        dict
            ``refill`` and ``drain``: order of a block -> blocks moved, and lines by where they were
            (`LINE_PLACES`); orders of which none was moved are left out.
        """
        cdef int side, order, cpu, k
        cdef size_t at
        check_idle(self)
        told = {}
        for side, name in enumerate(("refill", "drain")):
            told[name] = {}
            for order in range(LINE_ORDERS):
                found = [0] * (LINE_STATES + 1)
                for cpu in range(self.cpus):
                    at = (2 * cpu + side) * LINE_ORDERS + order
                    found[LINE_STATES] += self.lines.blocks[at]
                    for k in range(LINE_STATES):
                        found[k] += self.lines.found[at * LINE_STATES + k]
                if found[LINE_STATES]:
                    told[name][order] = dict(zip((*LINE_PLACES, "blocks"), found, strict=True))
        return told

"""`Memory` for modules that cimport it: `Memory.mm` is the whole state (`page_alloc.pxd`)."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.exclusive cimport Exclusive
from pcpmodel.kernel.buddy cimport zone
from pcpmodel.kernel.page_alloc cimport memory


cdef class Memory(Exclusive):
    cdef memory mm
    cdef dict __dict__  # what `Pagesets` keeps
    cdef readonly object release
    cdef readonly tuple zones
    cdef readonly int cpus
    cdef readonly tuple cpu_node
    cdef object _policy

    cdef int _check(self) except -1
    cdef int _done(self) except -1
    cdef int _cpu_number(self, cpu) except -1
    cdef int _zone_number(self, object zone) except -1
    cdef int _held(self, pfn, int order) except -1
    cdef int _zone_at(self, pfn) except -1
    cdef bint _on_lists(self, int z) noexcept
    cdef list _events(self)
    cdef int _free_batch(self, int c, list blocks) except -1
    cdef int _free_bulk(self, int c, list pfns) except -1

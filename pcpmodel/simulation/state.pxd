"""The state of a simulation as a Python object: what an engine takes."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint64_t

from pcpmodel.exclusive cimport Exclusive
from pcpmodel.hardware.cache cimport PageCache
from pcpmodel.hardware.lines cimport PageLines, page_lines
from pcpmodel.kernel.memory cimport Memory
from pcpmodel.simulation.structs cimport op_t, state_t


cdef class State(Exclusive):
    cdef bint taken  # by the one engine that may run it
    cdef state_t s
    cdef op_t *ops
    cdef Memory pages
    cdef PageCache caches
    cdef PageLines lines
    cdef object policy
    cdef readonly int nlocks
    cdef int cores  # with two tasks
    cdef bint test_and_set  # locks are not queued
    cdef uint64_t seed

    cdef int make_books(self, setup) except -1
    cdef int make_lines(self, setup) except -1
    cdef int make_zones(self, setup) except -1
    cdef int make_changes(self, setup) except -1
    cdef int make_lists(self, setup) except -1
    cdef list make_programs(self, setup)
    cdef int make_barriers(self, setup) except -1
    cdef int make_cpu(self, setup, int cpu, list starts) except -1
    cdef int cache(self, int cpu, int zone, pages) except -1
    cdef const page_lines *followed(self) except NULL
    cdef int take(self) except -1
    cdef int begin(self) except -1
    cdef void end(self) noexcept
    cdef int check(self) except -1

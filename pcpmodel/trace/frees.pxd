"""What joins a list, or goes past it."""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int32_t, int64_t, uint64_t

from pcpmodel.trace.beliefs cimport *

cdef void complete(Beliefs s, int k, int32_t row) noexcept nogil
cdef void freed(Beliefs s, int32_t row) noexcept nogil
cdef void batched(Beliefs s, int32_t row) noexcept nogil
cdef void freed_past(Beliefs s, int32_t row) noexcept nogil
cdef void freed_contig(Beliefs s, int32_t row) noexcept nogil
cdef void committed(Beliefs s, int32_t row) noexcept nogil
cdef void commit_contig(Beliefs s, int cpu, bint shown) noexcept nogil

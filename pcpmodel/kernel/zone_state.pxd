"""A zone's state: made, saved and loaded."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.kernel.buddy cimport zone
from pcpmodel.kernel.page_alloc cimport memory
from pcpmodel.kernel.rules cimport pcp_rules


cdef int zone_in_use(zone *z, const pcp_rules *rules, spec) except -1
cdef int zone_free(zone *z, const pcp_rules *rules, spec) except -1
cdef list free_list(const zone *z, int order, int mt)  # pfns, head first
cdef dict zone_state(memory *mm, int number)
cdef int load_zone(memory *mm, int number, spec, state) except -1

# cython: auto_pickle=False, autotestdict=False
"""When the flags of a zone can have turned, as far as lines tell.

ZONE_BOOSTED_WATERMARK in a fallback; ZONE_RECLAIM_ACTIVE once for each time that kswapd wakes;
ZONE_BELOW_HIGH where free pages are below the high watermark, boosted or not, and what is kept
from requests to higher zones, or where a large block is asked for.
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.kernel.pages cimport ZONE_BELOW_HIGH, ZONE_BOOSTED_WATERMARK, ZONE_RECLAIM_ACTIVE
from pcpmodel.trace.beliefs cimport unfold, zone_info, zone_told
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport D_ZONE_FLAGS, differ, index_of

cdef enum:
    MAX_AHEAD = 4096    # rows in which a CPU that holds a lock has its next event


cdef void kswapd(Beliefs s, int32_t row, bint wakes) noexcept nogil:
    """The kswapd of a node wakes, or goes to sleep for good."""
    cdef int x, k
    cdef const event_row *r = &s.rows[row]
    for k in range(s.nr_zones):
        if r.c < 0 or r.c == s.zones[k].node:
            if wakes:
                s.zones[k].woken = row
            else:
                s.zones[k].slept = row
    if wakes or s.holds_told:
        return
    for x in range(s.nr_sets):
        if s.zones[s.sets[x].zone].slept == row:
            s.zones[s.sets[x].zone].flags &= ~ZONE_RECLAIM_ACTIVE
            unfold(&s.sets[x])
            for k in range(s.sets[x].n):
                s.sets[x].s[k].zone_flags &= ~ZONE_RECLAIM_ACTIVE


cdef bint fallback_under_way(Beliefs s, const zone_info *z, int32_t row) noexcept nogil:
    """Whether a CPU that holds the zone's lock at *row* is about to show a fallback.

    Watermarks are boosted before mm_page_alloc_extfrag; until then it shows taken blocks alone.
    """
    cdef int32_t j, k
    cdef int64_t p
    for j in range(row + 1, min(row + MAX_AHEAD, s.nr_rows)):
        if s.rows[j].event != EV_EXTFRAG:
            continue
        p = index_of(s, s.rows[j].a)
        if p < 0 or &s.zones[s.zone_of[p >> 9]] != z:
            continue
        k = j
        while k > row:
            k -= 1
            if s.rows[k].cpu == s.rows[j].cpu and s.rows[k].event != EV_ZONE_LOCKED \
                    and s.rows[k].event != EV_EXTFRAG:
                break
        if k == row:
            return True
    return False


cdef bint woken_until(Beliefs s, const zone_info *z, int32_t row, int32_t until) noexcept nogil:
    """Whether the kswapd of a zone's node wakes in these rows."""
    cdef int32_t j
    for j in range(row, min(until, row + MAX_AHEAD)):
        if s.rows[j].event == EV_KSWAPD_WAKE and (s.rows[j].c < 0 or s.rows[j].c == z.node):
            return True
    return False


cdef void check_zone_flags(Beliefs s, int32_t row) noexcept nogil:
    """The flags that a probe shows turned only where something that the trace tells can have
    turned them.

    It reads them after its time stamp, and before the next line of its CPU.
    """
    cdef const int64_t *f = &s.probes[s.rows[row].probe * P_COLUMNS]
    cdef int flags = <int>f[P_ZONE_FLAGS], came, wrong, k
    cdef int32_t until = s.link[row].next_cpu or s.nr_rows
    cdef zone_info *z = zone_told(s, f)
    if z == NULL or flags < 0:
        return
    if f[P_NR_FREE] >= 0:
        z.nr_free = f[P_NR_FREE]
        z.least_free = min(z.least_free, z.nr_free)
        if z.nr_free <= z.enough:
            z.low = min(z.low, row)
    came = flags & ~z.told_flags
    for k in range(3):
        if z.cleared[k] > row:
            came &= ~(1 << k)
    wrong = flags & ~s.zone_flags & ~z.told_flags
    if (s.link[z.doubted].next_cpu or s.nr_rows) <= row:
        z.unboosted = z.doubted
    if came & ZONE_BOOSTED_WATERMARK and z.boosted <= z.unboosted \
            and not fallback_under_way(s, z, row):
        wrong |= ZONE_BOOSTED_WATERMARK
    if came & ZONE_RECLAIM_ACTIVE and z.woken <= z.reclaiming \
            and not woken_until(s, z, row, until):
        wrong |= ZONE_RECLAIM_ACTIVE
    if came & ZONE_BELOW_HIGH and z.least_free > z.enough and not s.large_row:
        wrong |= ZONE_BELOW_HIGH
    if wrong:
        differ(s, row, D_ZONE_FLAGS, -1, flags & ~wrong, flags)
    for k in range(3):
        if flags >> k & 1:
            z.cleared[k] = s.nr_rows
        else:
            z.cleared[k] = min(z.cleared[k], until)
    z.told_flags = flags
    if not flags & ZONE_BOOSTED_WATERMARK:
        z.doubted = row
    if flags & ZONE_RECLAIM_ACTIVE:
        z.reclaiming = row
    if not flags & ZONE_BELOW_HIGH:
        z.least_free = z.nr_free

"""per_cpu_pages: what an allocation, a free and a vmstat tick decide.

Mirrors mm/page_alloc.c of v6.1 ... v7.2: nr_pcp_alloc(), nr_pcp_high(),
nr_pcp_free(), the commit of a free, decay_pcp_high().
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython

from pcpmodel.kernel.pages cimport (
    HPAGE_PMD_ORDER,
    MAX_PCP_LISTS,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    ZONE_BELOW_HIGH,
    ZONE_RECLAIM_ACTIVE,
    order_to_pindex,
    pcp_allowed_order,
    pindex_to_order,
)
from pcpmodel.kernel.rules cimport COMMIT_CHUNKS, COMMIT_WHOLE, pcp_rules, rules_of

from operator import index

from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import release as find_release

# Larger than any zone's share and far from the end of a C int, so that sums
# and batch << batch_scale_max cannot overflow.
MAX_PAGES = 1 << 26
MAX_BATCH = 1 << 16


cdef int checked(str name, object value, int low, int high) except? -1:
    """An argument as a C int, or InputError."""
    if isinstance(value, bool):
        raise InputError(f"{name}={value!r} is not an integer")
    try:
        value = index(value)
    except TypeError:
        raise InputError(f"{name}={value!r} is not an integer") from None
    if not low <= value <= high:
        raise InputError(f"{name}={value} is outside {low}..{high}")
    return value


@cython.final
cdef class PerCpuPages:
    """A PCP whose lists hold counts of blocks, not page frames.

    For teaching and for tests: every refill is fully served, every chunk of a
    drain gets its locks back.

    Parameters
    ----------
    release : str or Release
        Kernel state.
    batch : int
        Pages per refill and drain [pages], 1..65536.
    high, high_min, high_max : int, optional
        [pages], 0..2**26.  Give ``high`` alone for a fixed threshold, or
        ``high_min`` and ``high_max`` (and ``high``, the tuned value to start
        from; by default ``high_min``).  A kernel without ``high_min`` takes
        ``high_min``, else ``high``, as its only ``high``.
    flags : int
        ``PCPF_PREV_FREE_HIGH_ORDER`` (1) and ``PCPF_FREE_HIGH_BATCH`` (2).

    Raises
    ------
    InputError
        For an argument out of its range.

    Examples
    --------
    >>> pcp = PerCpuPages("v6.7", high_min=500, high_max=8192)
    >>> pcp.alloc(), pcp.count, pcp.high, pcp.alloc_factor
    (63, 62, 563, 1)
    """

    cdef per_cpu_pages pcp
    cdef pcp_rules rules
    cdef unsigned int zone_flags
    cdef int nr[MAX_PCP_LISTS]
    cdef readonly object release

    def __init__(
        self, release="v6.7", *, batch=63, high=None, high_min=None, high_max=None, flags=0
    ):
        self.release = find_release(release)
        self.rules = rules_of(self.release)
        if high_min is None:
            high_min = high_max if high is None else high
        if high_min is None:
            raise InputError("give high, or high_min and high_max [pages]")
        if high_max is None or not self.rules.high_min_max:
            high_max = high_min
        if high is None or not self.rules.high_min_max:
            high = high_min
        self.pcp.batch = checked("batch", batch, 1, MAX_BATCH)
        self.pcp.high = checked("high", high, 0, MAX_PAGES)
        self.pcp.high_min = checked("high_min", high_min, 0, MAX_PAGES)
        self.pcp.high_max = checked("high_max", high_max, 0, MAX_PAGES)
        self.pcp.flags = checked("flags", flags, 0, 3)

    # Scalars under their kernel names; alloc_factor .. flags may be set.

    @property
    def count(self):
        return self.pcp.count

    @property
    def batch(self):
        return self.pcp.batch

    @property
    def high(self):
        return self.pcp.high

    @property
    def high_min(self):
        return self.pcp.high_min

    @property
    def high_max(self):
        return self.pcp.high_max

    @property
    def alloc_factor(self):
        return self.pcp.alloc_factor

    @alloc_factor.setter
    def alloc_factor(self, value):
        self.pcp.alloc_factor = checked("alloc_factor", value, 0, self.rules.batch_scale_max)

    @property
    def free_factor(self):
        return self.pcp.free_factor

    @free_factor.setter
    def free_factor(self, value):
        self.pcp.free_factor = checked("free_factor", value, 0, self.rules.batch_scale_max)

    @property
    def free_count(self):
        return self.pcp.free_count

    @free_count.setter
    def free_count(self, value):
        self.pcp.free_count = checked("free_count", value, 0, MAX_PAGES)

    @property
    def count_min(self):
        return self.pcp.count_min

    @count_min.setter
    def count_min(self, value):
        self.pcp.count_min = checked("count_min", value, 0, MAX_PAGES)

    @property
    def flags(self):
        return self.pcp.flags

    @flags.setter
    def flags(self, value):
        self.pcp.flags = checked("flags", value, 0, 3)

    @property
    def below_high(self):
        """ZONE_BELOW_HIGH of the zone."""
        return bool(self.zone_flags & ZONE_BELOW_HIGH)

    @below_high.setter
    def below_high(self, value):
        self.zone_flags = self.zone_flags & ~ZONE_BELOW_HIGH | (ZONE_BELOW_HIGH if value else 0)

    @property
    def reclaim_active(self):
        """ZONE_RECLAIM_ACTIVE of the zone."""
        return bool(self.zone_flags & ZONE_RECLAIM_ACTIVE)

    @reclaim_active.setter
    def reclaim_active(self, value):
        self.zone_flags = (
            self.zone_flags & ~ZONE_RECLAIM_ACTIVE | (ZONE_RECLAIM_ACTIVE if value else 0)
        )

    @property
    def lists(self):
        """Blocks on each list, by pindex."""
        return [self.nr[i] for i in range(self.rules.nr_pcp_lists)]

    def alloc(self, order=0, migratetype=MIGRATE_MOVABLE):
        """Allocate a block of 2**order pages.

        Parameters
        ----------
        order : int
            0..3 or 9.
        migratetype : int
            0 unmovable, 1 movable, 2 reclaimable.

        Returns
        -------
        int
            Blocks that the refill brought; 0 if the list had one.
        """
        cdef int o = self._order(order), n = 0
        cdef int i = order_to_pindex(self.rules.nr_pcp_lists, self._type(migratetype), o)
        pcp_alloc_begin(&self.pcp, &self.rules)
        if self.nr[i] == 0:
            n = nr_pcp_alloc(&self.pcp, &self.rules, self.zone_flags, o)
            self.nr[i] = n
            self.pcp.count += n << o
        self.nr[i] -= 1
        pcp_alloc_end(&self.pcp, &self.rules, o)
        return n

    def free(self, order=0, migratetype=MIGRATE_MOVABLE):
        """Free a block of 2**order pages.

        Parameters
        ----------
        order, migratetype : int
            As for `alloc`.

        Returns
        -------
        list of int
            Pages drained in each hold of the zone lock; empty if none was needed.
        """
        cdef int o = self._order(order), high, n, chunk
        cdef int i = order_to_pindex(self.rules.nr_pcp_lists, self._type(migratetype), o)
        cdef bint free_high
        if self.pcp.count > MAX_PAGES:
            raise InputError(f"count={self.pcp.count} is above {MAX_PAGES} pages already")
        self.nr[i] += 1
        free_high = pcp_commit(&self.pcp, &self.rules, o)
        high = nr_pcp_high(&self.pcp, &self.rules, self.zone_flags, free_high)
        if self.pcp.count < high:
            return []
        n = nr_pcp_free(&self.pcp, &self.rules, high, free_high)
        if self.rules.commit_drain == COMMIT_WHOLE:
            return [self._bulk(n, i)] if n > 0 else []
        holds = []
        while n > 0 and self.pcp.count >= (
            1 if self.rules.commit_drain == COMMIT_CHUNKS else max(high, 1)
        ):
            chunk = min(n, self.pcp.batch)
            holds.append(self._bulk(chunk, i))
            n -= chunk
        return holds

    def decay(self):
        """One vmstat tick: decay_pcp_high().

        Returns
        -------
        list of int
            Pages drained in each hold of the zone lock.
        """
        cdef bint work
        cdef int n = decay_pcp_high(&self.pcp, &self.rules, &work), chunk
        holds = []
        while n > 0:
            chunk = min(n, self.pcp.batch) if self.rules.decay_chunks else n
            holds.append(self._bulk(chunk, 0))
            n -= chunk
        self.pcp.count_min = self.pcp.count
        return holds

    def drain_zone_pages(self):
        """Drain a batch from list 0 on; returns the pages drained."""
        return self._bulk(self.pcp.batch, 0)

    def drain_pages_zone(self):
        """Drain everything; returns the pages of each hold."""
        cdef int chunk = self.pcp.batch << self.rules.batch_scale_max
        holds = []
        while self.pcp.count > 0:
            holds.append(self._bulk(chunk if self.rules.drain_zone_chunks else self.pcp.count, 0))
        return holds

    def pageset_update(self, high_min, high_max, batch):
        """New sizes, as a sysctl or CPU hot-plug writes them; ``high`` follows at its next use.

        A kernel without ``high_min`` takes it as ``high``.
        """
        self.pcp.high_min = checked("high_min", high_min, 0, MAX_PAGES)
        self.pcp.high_max = checked("high_max", high_max, 0, MAX_PAGES)
        self.pcp.batch = checked("batch", batch, 1, MAX_BATCH)
        if not self.rules.high_min_max:
            self.pcp.high = self.pcp.high_max = self.pcp.high_min

    def state(self):
        """Every scalar and list, for comparison."""
        return {**self.pcp, "lists": self.lists}

    cdef int _order(self, object order) except -1:
        cdef int o = checked("order", order, 0, HPAGE_PMD_ORDER)
        if not pcp_allowed_order(o):
            raise InputError(f"order={o} never enters a PCP list; allowed: 0, 1, 2, 3, 9")
        return o

    cdef int _type(self, object migratetype) except -1:
        return checked("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)

    cdef int _bulk(self, int n, int pindex) noexcept:
        """free_pcppages_bulk() on counts; returns base pages freed."""
        cdef int left = min(n, self.pcp.count), before = self.pcp.count, i = pindex - 1, o
        while left > 0:
            i = i + 1 if i + 1 < self.rules.nr_pcp_lists else 0
            o = pindex_to_order(i)
            while left > 0 and self.nr[i] > 0:
                self.nr[i] -= 1
                self.pcp.count -= 1 << o
                left -= 1 << o
        return before - self.pcp.count

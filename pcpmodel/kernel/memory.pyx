"""The memory of a machine, page by page, under the rules of one kernel.

Everything that is given is checked here, once; `page_alloc.pyx` trusts it.
"""

# SPDX-License-Identifier: GPL-2.0-only

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.stdlib cimport free as c_free

from pcpmodel.cython_pcp cimport pcp_policy
from pcpmodel.errors cimport whole
from pcpmodel.exclusive cimport Exclusive, begin_use, check_idle, end_use
from pcpmodel.kernel.buddy cimport (
    ALLOC_CMA,
    ALLOC_FLAGS,
    ALLOC_KSWAPD,
    ALLOC_WMARK_MIN,
    EV_EXTFRAG,
    EV_PCPU_DRAIN,
    EV_ZONE_LOCKED,
    block_type,
    event_buffer,
    isolate_free_page,
    list_fresh,
    mm_event,
    set_isolate,
    unreserve_highatomic_pageblock,
    unset_isolate,
    zone_copy,
    zone_destroy,
    zone_page,
    zone_spans,
    zone_watermark_ok,
)
from pcpmodel.kernel.lists cimport PCP_LISTS_ROOM, pcp_allowed_order
from pcpmodel.kernel.page_alloc cimport (
    GFP_KERNEL,
    RUN_BAD_CPU,
    RUN_BAD_OP,
    RUN_BAD_ORDER,
    RUN_BAD_REF,
    RUN_BAD_TYPE,
    alloc_bulk,
    alloc_from,
    alloc_many,
    alloc_pages,
    find_zone,
    free_many,
    free_pages,
    free_run,
    held_zone,
    highest_zone,
    memory,
    pageset_of,
    refresh_cpu_vm_stats,
    run_ops,
)
from pcpmodel.kernel.pages cimport (
    MAX_PAGE_ORDER,
    MIGRATE_CMA,
    MIGRATE_ISOLATE,
    MIGRATE_MOVABLE,
    MIGRATE_PCPTYPES,
    MIGRATE_TYPES,
    NR_PAGE_ORDERS,
    PAGEBLOCK_ORDER,
    PAGES_PER_SECTION,
    W_ORDER,
)
from pcpmodel.kernel.pcp cimport (
    PCPF_FREE_HIGH_BATCH,
    commit_begin,
    commit_end,
    decay_and_drain,
    drain_pages_zone,
    drain_plan,
    drain_step,
    drain_zone_pages,
    free_past,
    free_prepared,
    pageset,
    pageset_destroy,
    policy_failed,
    policy_from,
)
from pcpmodel.kernel.rules cimport pcp_rules, rules_of
from pcpmodel.kernel.tree_guard cimport tree_failed
from pcpmodel.kernel.zone_state cimport load_zone, zone_free, zone_in_use, zone_state

from pcpmodel.errors import InputError, NotHeldError, truth, unknown_name
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.zone import (
    GFP,
    MAX_BATCH,
    MAX_CPUS,
    MAX_PAGES,
    MAX_ZONE_PAGES,
    Pagesets,
    Zone,
    managed_pages,
    zonelists,
)

cdef tuple HOLDS = ("refill", "drain", "alloc", "free")


cdef class Memory(Exclusive, Pagesets):
    """Zones with buddy lists, and every CPU's page lists.

    Parameters
    ----------
    release : str or Release
        Kernel state.
    zones : sequence of Zone
    cpus : int
        Possible CPUs.
    cpu_node : sequence of int, optional
        Node of each CPU; all on node 0 by default.
    online : sequence of int, optional
        CPUs that are online; all by default.
    data_cache_bytes : int
        Data cache that a CPU can call its own [bytes], for ``PCPF_FREE_HIGH_BATCH``.
    watermark_boost_factor : int
        sysctl ``vm.watermark_boost_factor`` [1/10000].
    free : bool
        Whether all pages are on the free lists at first, or all in use.
    policy : optional
        A policy of your own (`pcpmodel.cython_pcp`).

    Examples
    --------
    >>> mem = Memory("v6.18", [Zone(4096, batch=7, high_min=28, high_max=512)])
    >>> [mem.alloc() for _ in range(3)]
    [0, 1, 2]
    >>> mem.free(0, 1)
    >>> mem.state()[0]["pcp"][0]["lists"]
    {1: [1, 3, 4, 5, 6]}
    """

    def __cinit__(
        self, release, zones, cpus=1, *, cpu_node=None, online=None, data_cache_bytes=0,
        watermark_boost_factor=15000, free=True, policy=None
    ):
        cdef const pcp_policy *asked
        cdef pcp_rules rules = rules_of(release)
        cdef memory *mm = &self.mm
        cdef int z, cpu, node
        cdef zone *at
        cdef list lists
        mm.nr_cpus = whole("cpus", cpus, 1, MAX_CPUS)
        factor = whole("watermark_boost_factor", watermark_boost_factor, 0, 1 << 30)
        try:
            nodes = [0] * cpus if cpu_node is None else list(cpu_node)
        except TypeError:
            raise InputError(f"cpu_node={cpu_node!r} is not a node for each CPU") from None
        if len(nodes) != cpus:
            raise InputError(f"cpu_node has {len(nodes)} entries for {cpus} CPUs")
        for number in nodes:
            whole("cpu_node", number, 0, 1023)
        if policy is None:
            policy = find_release(release).policy
        policy_from(policy, &rules, &asked)
        self._policy = policy
        cdef bint fresh = truth("free", free)
        if not isinstance(zones, (list, tuple)) or not all(isinstance(z, Zone) for z in zones):
            raise InputError(f"zones={zones!r} is not a sequence of Zone")
        self.zones = tuple(zones)
        if not self.zones:
            raise InputError("zones is empty; give at least one Zone")
        spans = sorted((spec.start_pfn, spec.end_pfn) for spec in self.zones)
        for before, after in zip(spans, spans[1:]):
            if before[1] > after[0]:
                raise InputError(f"zones overlap: pfns {before} and {after}")
        mm.nr_nodes = 1 + max([spec.node for spec in self.zones] + nodes)
        lists = zonelists(self.zones, mm.nr_nodes)
        mm.zone = <zone *>calloc(len(self.zones), sizeof(zone))
        mm.pageset = <pageset *>calloc(len(self.zones) * <size_t>mm.nr_cpus, sizeof(pageset))
        mm.cpu_node = <int *>calloc(mm.nr_cpus, sizeof(int))
        mm.zonelist = <int *>calloc(<size_t>mm.nr_nodes * len(self.zones), sizeof(int))
        mm.kswapd_running = <uint8_t *>calloc(mm.nr_nodes, 1)
        if (
            mm.zone == NULL or mm.pageset == NULL or mm.cpu_node == NULL
            or mm.zonelist == NULL or mm.kswapd_running == NULL
        ):
            raise MemoryError
        for cpu in range(mm.nr_cpus):
            mm.cpu_node[cpu] = nodes[cpu]
        for node in range(mm.nr_nodes):
            for z in range(len(self.zones)):
                mm.zonelist[node * len(self.zones) + z] = lists[node][z]
        for z, spec in enumerate(self.zones):
            at = &mm.zone[z]
            mm.nr_zones = z + 1
            if fresh:
                zone_free(at, &rules, spec)
            else:
                zone_in_use(at, &rules, spec)
            at.node = spec.node
            at.index = spec.index
            at.managed_pages = managed_pages(spec)
            at.watermark_boost_factor = factor
            for i in range(3):
                at.watermark[i] = spec.watermarks[i]
            for i in range(4):
                at.lowmem_reserve[i] = spec.lowmem_reserve[i]
            for cpu in range(mm.nr_cpus):
                pageset_of(mm, z, cpu).cpu = cpu
                pageset_of(mm, z, cpu).pcp.batch = 1
                pageset_of(mm, z, cpu).policy.policy = asked
                pageset_of(mm, z, cpu).policy.cpu = cpu
        self._check()
        self.release = find_release(release)
        self.cpus = mm.nr_cpus
        self.cpu_node = tuple(nodes)
        self._setup_pagesets(online, data_cache_bytes)

    def __dealloc__(self):
        cdef int z
        for z in range(self.mm.nr_zones):
            zone_destroy(&self.mm.zone[z])
            for cpu in range(self.mm.nr_cpus):
                pageset_destroy(pageset_of(&self.mm, z, cpu))
        c_free(self.mm.zone)
        c_free(self.mm.pageset)
        c_free(self.mm.cpu_node)
        c_free(self.mm.zonelist)
        c_free(self.mm.kswapd_running)
        c_free(self.mm.events.event)

    cdef int _check(self) except -1:
        """After an operation: did the memory last, and did the policy answer?"""
        cdef int z
        for z in range(self.mm.nr_zones):
            if self.mm.zone[z].broken:
                raise MemoryError("no memory for the lists of a zone; its state is lost")
        tree_failed(&self.mm.zone[0].rules)
        if self._policy is not None:
            for z in range(self.mm.nr_zones * self.mm.nr_cpus):
                policy_failed(&self.mm.pageset[z].policy)
        return 0

    cdef int _done(self) except -1:
        """The end of an operation that nothing in Python has interrupted."""
        end_use(self)
        return self._check()

    cdef int _cpu_number(self, cpu) except -1:
        return whole("cpu", cpu, 0, self.mm.nr_cpus - 1)

    cdef int _zone_number(self, object zone) except -1:
        return whole("zone", zone, 0, self.mm.nr_zones - 1)

    cdef int _held(self, pfn, int order) except -1:
        """Zone of a block in use, or InputError."""
        cdef int z
        whole("pfn", pfn, 0, (1 << 63) - 1)
        if pfn % (1 << order):
            raise InputError(f"pfn={pfn} is not aligned to order {order}")
        z = held_zone(&self.mm, pfn, order)
        if z < 0:
            raise NotHeldError(f"pfn={pfn}, order={order}: not all of these pages are in use")
        return z

    # What Pagesets needs

    def _pageset_update(self, z, batch, high_min, high_max):
        cdef pageset *ps
        cdef int at = self._zone_number(z), cpu
        cdef int pages = whole("batch", batch, 1, MAX_BATCH)
        cdef int least = whole("high_min", high_min, 0, MAX_PAGES)
        cdef int most = whole("high_max", high_max, 0, MAX_PAGES)
        check_idle(self)
        for cpu in range(self.mm.nr_cpus):
            ps = pageset_of(&self.mm, at, cpu)
            ps.pcp.batch = pages
            ps.pcp.high_min = least
            ps.pcp.high_max = most
            if not self.mm.zone[0].rules.high_min_max:
                ps.pcp.high = least

    def _cpu_vm_stats_fold(self, cpu):
        cdef int c = self._cpu_number(cpu), z
        for z in range(self.mm.nr_zones):
            pageset_of(&self.mm, z, c).stat_diff = 0

    def _free_high_batch(self, cpu, z, flag):
        cdef pageset *ps = pageset_of(&self.mm, self._zone_number(z), self._cpu_number(cpu))
        cdef bint on = flag
        check_idle(self)
        ps.pcp.flags &= ~PCPF_FREE_HIGH_BATCH
        if on:
            ps.pcp.flags |= PCPF_FREE_HIGH_BATCH

    def _watermark_boost(self, z):
        return self.mm.zone[self._zone_number(z)].watermark_boost

    def _set_watermarks(self, z, lowest, low, high):
        cdef zone *at = &self.mm.zone[self._zone_number(z)]
        cdef int64_t marks[3]
        cdef int i
        for i, pages in enumerate((lowest, low, high)):
            marks[i] = whole("watermark", pages, 0, MAX_ZONE_PAGES)
        check_idle(self)
        for i in range(3):
            at.watermark[i] = marks[i]
        at.watermark_boost = 0

    # Events and flags

    def record_events(self, on=True):
        """Start or stop to note events."""
        cdef event_buffer *where = &self.mm.events if truth("on", on) else NULL
        cdef int z
        check_idle(self)
        self.mm.events.n = 0
        for z in range(self.mm.nr_zones):
            self.mm.zone[z].events = where

    def take_events(self):
        """Events since the last call, in the kernel's order.

        Returns
        -------
        list of tuple
            ``("zone_locked", pfn, order, type, percpu_refill)``,
            ``("extfrag", pfn, order, fallback_order, type, fallback_type, change_ownership)``,
            ``("pcpu_drain", pfn, order, type)``, and ``("hold", reason, pages)`` at the end
            of a hold of the zone lock: "refill", "drain", "alloc" or "free".
        """
        begin_use(self)
        try:
            return self._events()
        finally:
            end_use(self)

    cdef list _events(self):
        cdef const mm_event *e
        cdef size_t i
        events = []
        for i in range(self.mm.events.n):
            e = &self.mm.events.event[i]
            if e.kind == EV_ZONE_LOCKED:
                events.append(("zone_locked", e.pfn, e.order, e.type, bool(e.flag)))
            elif e.kind == EV_EXTFRAG:
                events.append((
                    "extfrag", e.pfn, e.order, e.fallback_order, e.type, e.fallback_type,
                    bool(e.flag),
                ))
            elif e.kind == EV_PCPU_DRAIN:
                events.append(("pcpu_drain", e.pfn, e.order, e.type))
            else:
                events.append(("hold", HOLDS[e.order], e.pfn))
        self.mm.events.n = 0
        return events

    def set_flags(self, object zone, flags):
        """zone->flags: BOOSTED_WATERMARK 1, RECLAIM_ACTIVE 2, BELOW_HIGH 4."""
        cdef int z = self._zone_number(zone), bits = whole("flags", flags, 0, 7)
        check_idle(self)
        self.mm.zone[z].flags = bits

    def set_watermark_boost(self, object zone, pages):
        """zone->watermark_boost, as kswapd lowers it."""
        cdef int z = self._zone_number(zone)
        cdef int64_t boost = whole("pages", pages, 0, (1 << 31) - 1)
        check_idle(self)
        self.mm.zone[z].watermark_boost = boost

    def set_kswapd_running(self, node, running):
        """Whether kswapd of the node is at work."""
        cdef int n = whole("node", node, 0, self.mm.nr_nodes - 1)
        cdef bint runs = truth("running", running)
        check_idle(self)
        self.mm.kswapd_running[n] = runs

    # Allocation

    def alloc(self, cpu=0, order=0, migratetype=MIGRATE_MOVABLE, *, gfp="kernel", highest=None):
        """One request, walking the zones of the CPU's node.

        Parameters
        ----------
        cpu : int
        order : int
            0..10.
        migratetype : int
            0 unmovable, 1 movable, 2 reclaimable.
        gfp : str
            ``"kernel"``, ``"atomic"`` or ``"nowait"``.
        highest : int, optional
            Highest zone index allowed; by default Movable for movable requests, else Normal.

        Returns
        -------
        int or None
            pfn; None where the kernel would start to reclaim, or fail.
        """
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef int top, how
        cdef int64_t pfn
        if not isinstance(gfp, str) or gfp not in GFP:
            raise unknown_name("gfp", gfp, GFP)
        how = GFP.index(gfp)
        top = highest_zone(mt)
        if highest is not None:
            top = whole("highest", highest, 0, 3)
        begin_use(self)
        with nogil:
            pfn = alloc_pages(&self.mm, c, o, mt, how, top)
        self._done()
        return None if pfn < 0 else pfn

    def alloc_from(
        self, object zone, cpu=0, order=0, migratetype=MIGRATE_MOVABLE, *, direct=False,
        alloc_flags=ALLOC_KSWAPD
    ):
        """One request served by one zone, without watermarks: rmqueue().

        ``direct``: past the per-CPU lists, as when their lock is taken.
        """
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef unsigned int flags = whole("alloc_flags", alloc_flags, 0, ALLOC_FLAGS)
        cdef int z = self._zone_number(zone)
        cdef bint past = direct is not False and truth("direct", direct)
        cdef int64_t pfn
        begin_use(self)
        pfn = alloc_from(&self.mm, z, c, o, mt, flags, past)
        self._done()
        return None if pfn < 0 else pfn

    def alloc_many(self, int64_t[::1] out, cpu=0, order=0, migratetype=MIGRATE_MOVABLE):
        """As many requests as ``out`` has room for, one after the other.

        Parameters
        ----------
        out : (N,) array of int64
            Filled with pfns.
        cpu, order, migratetype : int
            As for `alloc`.

        Returns
        -------
        int
            Requests served; the rest of ``out`` is untouched but for one -1.
        """
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef int64_t n = out.shape[0], served = 0
        if n:
            begin_use(self)
            with nogil:
                served = alloc_many(
                    &self.mm, c, o, mt, GFP_KERNEL, highest_zone(mt), n, &out[0]
                )
            self._done()
        return served

    def alloc_pages_bulk(self, cpu, n, migratetype=MIGRATE_MOVABLE):
        """Up to n pages of order 0 in one go, without events of their own; list of pfns."""
        cdef int c = self._cpu_number(cpu)
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef int64_t want = whole("n", n, 0, (1 << 31) - 1), got, i
        cdef int64_t *pfns = <int64_t *>PyMem_Malloc(max(want, <int64_t>1) * sizeof(int64_t))
        if pfns == NULL:
            raise MemoryError
        try:
            begin_use(self)
            got = alloc_bulk(&self.mm, c, mt, want, pfns)
            self._done()
            return [pfns[i] for i in range(got)]
        finally:
            PyMem_Free(pfns)

    # Free

    def free(self, cpu, pfn, order=0, *, nolock=False):
        """Free a block.

        Parameters
        ----------
        cpu : int
        pfn : int
            Aligned to the order; all its pages must be in use.
        order : int
            0..10; it need not be the order of the allocation.
        nolock : bool
            free_pages_nolock() (v6.15 on): never drains.

        Raises
        ------
        InputError
            If a page is not in use (for example freed twice), or the release has no such free.
        """
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef bint drains_not = nolock is not False and truth("nolock", nolock)
        if drains_not:
            self._with_nolock()
        self._held(pfn, o)
        begin_use(self)
        free_pages(&self.mm, c, pfn, o, drains_not)
        self._done()

    def free_many(self, const int64_t[::1] pfns, cpu=0):
        """Free pages of order 0, one after the other.

        Parameters
        ----------
        pfns : (N,) array of int64
        cpu : int

        Raises
        ------
        InputError
            At the first page that is not in use; those before it are freed.
        """
        cdef int c = self._cpu_number(cpu)
        cdef int64_t n = pfns.shape[0], done = 0
        if n == 0:
            return
        begin_use(self)
        with nogil:
            done = free_many(&self.mm, c, &pfns[0], n)
        self._done()
        if done < n:
            raise InputError(
                f"pfn={pfns[done]} is not in use; the {done} pages before it were freed",
                row=done, column="pfns",
            )

    def run(
        self, const uint8_t[::1] op, const int32_t[::1] cpu, const uint8_t[::1] order,
        const uint8_t[::1] migratetype, const int64_t[::1] ref, int64_t[::1] pfn
    ):
        """A whole trace of operations, frees by the identity of their allocation.

        Parameters
        ----------
        op : (N,) array of uint8
            0 alloc, 1 free, 2 vmstat tick, 3 drain of all lists of the CPU.
        cpu : (N,) array of int32
        order, migratetype : (N,) array of uint8
            Of allocations; a free takes those of its allocation.
        ref : (N,) array of int64
            Of a free: the row that allocated the block.  Nothing happens if that failed.
        pfn : (N,) array of int64
            Filled: the pfn of each allocation, -1 for one that failed and for other rows.

        Raises
        ------
        InputError
            With the row that cannot be; the rows before it were done.
        """
        cdef int64_t n = op.shape[0], done = 0, i
        cdef int error = 0
        for name, column in (
            ("cpu", cpu), ("order", order), ("migratetype", migratetype), ("ref", ref),
            ("pfn", pfn),
        ):
            if column.shape[0] != n:
                raise InputError(f"{name} has {column.shape[0]} rows, op has {n}")
        if n == 0:
            return
        begin_use(self)
        with nogil:
            for i in range(n):
                pfn[i] = -1
            done = run_ops(
                &self.mm, n, &op[0], &cpu[0], &order[0], &migratetype[0], &ref[0], &pfn[0],
                &error,
            )
            for i in range(n):
                if pfn[i] < -1:
                    pfn[i] = -2 - pfn[i]
        self._done()
        if error:
            given, column, allowed = {
                RUN_BAD_CPU: (cpu[done], "cpu", f"0..{self.mm.nr_cpus - 1}"),
                RUN_BAD_OP: (op[done], "op", "0..3"),
                RUN_BAD_ORDER: (order[done], "order", f"0..{MAX_PAGE_ORDER}"),
                RUN_BAD_TYPE: (migratetype[done], "migratetype", "0..2"),
                RUN_BAD_REF: (ref[done], "ref", "an earlier allocation, not yet freed"),
            }[error]
            raise InputError(f"{given} is not {allowed}", row=done, column=column)

    def nbytes(self):
        """Memory of the page words, page blocks and lists [bytes]."""
        cdef size_t total = 0
        cdef int z, order, mt, i
        check_idle(self)
        for z in range(self.mm.nr_zones):
            total += <size_t>self.mm.zone[z].nr_words * 4
            total += (self.mm.zone[z].nr_words >> PAGEBLOCK_ORDER) * 2
            for order in range(NR_PAGE_ORDERS):
                for mt in range(MIGRATE_TYPES):
                    total += <size_t>self.mm.zone[z].free_area[order][mt].capacity * 4
        for z in range(self.mm.nr_zones * self.mm.nr_cpus):
            for i in range(PCP_LISTS_ROOM):
                total += <size_t>self.mm.pageset[z].lists[i].capacity * 4
        return total

    def free_direct(self, cpu, pfn, order=0):
        """Free a block past the per-CPU lists, as when their lock is taken."""
        cdef int c = self._cpu_number(cpu), o = whole("order", order, 0, MAX_PAGE_ORDER)
        cdef int z = self._held(pfn, o)
        begin_use(self)
        free_past(&self.mm.zone[z], pageset_of(&self.mm, z, c), zone_page(&self.mm.zone[z], pfn), o)
        self._done()

    def free_batch(self, cpu, blocks):
        """Free (pfn, order) in this order: free_unref_page_list() or free_unref_folios()."""
        cdef int c = self._cpu_number(cpu)
        blocks = list(blocks)
        for block in blocks:
            if not isinstance(block, (tuple, list)) or len(block) != 2:
                raise InputError(f"blocks has {block!r}, which is no (pfn, order)")
        blocks = [(pfn, whole("order", order, 0, MAX_PAGE_ORDER)) for pfn, order in blocks]
        begin_use(self)
        try:
            self._free_batch(c, blocks)
        finally:
            end_use(self)

    cdef int _free_batch(self, int c, list blocks) except -1:
        cdef int z, order, mt
        cdef uint32_t page
        cdef bint folios = self.mm.zone[0].rules.free_folios
        cdef drain_plan plan
        if not folios and any(order for _, order in blocks):
            raise InputError("free_unref_page_list() takes order 0 only")
        for pfn, order in blocks:
            self._held(pfn, order)
        seen = set()
        for pfn, order in blocks:
            pages = range(pfn, pfn + (1 << order))
            if not seen.isdisjoint(pages):
                raise InputError(f"pfn={pfn}, order={order}: a page occurs twice")
            seen.update(pages)
        second = []
        for pfn, order in blocks:
            z = find_zone(&self.mm, pfn)
            page = zone_page(&self.mm.zone[z], pfn)
            mt = block_type(&self.mm.zone[z], page)
            if (
                not pcp_allowed_order(self.mm.zone[z].rules.nr_pcp_lists, order)
                or (mt == MIGRATE_ISOLATE and not folios)
            ):
                free_past(&self.mm.zone[z], pageset_of(&self.mm, z, c), page, order)
            else:
                second.append((z, page, order, mt))
        for z, page, order, mt in second:
            if folios:
                free_prepared(&self.mm.zone[z], pageset_of(&self.mm, z, c), page, order, False)
                self._check()
                continue
            commit_begin(
                &self.mm.zone[z], pageset_of(&self.mm, z, c), page, order, mt, False, &plan
            )
            if plan.drained:
                while drain_step(&self.mm.zone[z], pageset_of(&self.mm, z, c), &plan):
                    pass
                commit_end(&self.mm.zone[z], &plan)
            self._check()
        self._check()
        return 0

    def free_pages_bulk(self, cpu, pfns):
        """Free pages of order 0 as vfree() does; v7.2 merges runs of the sequence first."""
        cdef int c = self._cpu_number(cpu)
        pfns = list(pfns)
        begin_use(self)
        try:
            self._free_bulk(c, pfns)
        finally:
            end_use(self)

    cdef int _free_bulk(self, int c, list pfns) except -1:
        cdef int z
        cdef Py_ssize_t i
        cdef uint64_t start, n
        for pfn in pfns:
            self._held(pfn, 0)
        if len(set(pfns)) < len(pfns):
            raise InputError("a page occurs twice")
        if not self.mm.zone[0].rules.free_coalesce:
            for pfn in pfns:
                free_pages(&self.mm, c, pfn, 0, False)
                self._check()
            return 0
        i = 0
        while i < len(pfns):
            start = pfns[i]
            z = find_zone(&self.mm, start)
            n = 1
            while (
                i + n < len(pfns) and pfns[i + n] == start + n
                and (start + n) % PAGES_PER_SECTION
                and zone_spans(&self.mm.zone[z], start + n)
            ):
                n += 1
            free_run(&self.mm, z, c, start, n)
            self._check()
            i += n
        return 0

    def free_contig_range(self, cpu, pfn, n):
        """Free n pages from pfn on."""
        whole("pfn", pfn, 0, 1 << 62)
        whole("n", n, 0, (1 << 31) - 1)
        self.free_pages_bulk(cpu, range(pfn, pfn + n))

    # Drains and the vmstat worker

    def drain_pages_zone(self, cpu, object zone):
        """Empty a CPU's lists of a zone."""
        cdef int c = self._cpu_number(cpu), z = self._zone_number(zone)
        begin_use(self)
        drain_pages_zone(&self.mm.zone[z], pageset_of(&self.mm, z, c))
        self._done()

    def drain_zone_pages(self, cpu, object zone):
        """Drain a batch."""
        cdef int c = self._cpu_number(cpu), z = self._zone_number(zone)
        begin_use(self)
        drain_zone_pages(&self.mm.zone[z], pageset_of(&self.mm, z, c))
        self._done()

    def decay_pcp_high(self, cpu, object zone):
        """Lower high and drain the excess; whether there was work."""
        cdef int c = self._cpu_number(cpu), z = self._zone_number(zone)
        cdef bint work
        begin_use(self)
        work = decay_and_drain(&self.mm.zone[z], pageset_of(&self.mm, z, c))
        self._done()
        return bool(work)

    def refresh_cpu_vm_stats(self, cpu):
        """The vmstat worker's tick on a CPU; whether it has reason to come back.

        Of the zone counters only NR_FREE_PAGES is known here.
        """
        cdef int c = self._cpu_number(cpu)
        cdef bint changed
        begin_use(self)
        changed = refresh_cpu_vm_stats(&self.mm, c)
        self._done()
        return bool(changed)

    # Reserve and isolation

    def unreserve_highatomic_pageblock(self, cpu=0, migratetype=MIGRATE_MOVABLE, *, force=False):
        """Give a high-atomic block back, in the order of the CPU's zones; did pages move?

        Of the zones that a request of this type may take from: of ZONE_MOVABLE for movable pages
        alone.
        """
        cdef int c = self._cpu_number(cpu), i, z
        cdef int mt = whole("migratetype", migratetype, 0, MIGRATE_PCPTYPES - 1)
        cdef bint forced = truth("force", force)
        check_idle(self)
        for i in range(self.mm.nr_zones):
            z = self.mm.zonelist[self.mm.cpu_node[c] * self.mm.nr_zones + i]
            if self.mm.zone[z].index <= highest_zone(mt) \
                    and unreserve_highatomic_pageblock(&self.mm.zone[z], mt, forced):
                return True
        return False

    cdef int _zone_at(self, pfn) except -1:
        cdef int z
        whole("pfn", pfn, 0, (1 << 63) - 1)
        z = find_zone(&self.mm, pfn)
        if z < 0:
            raise InputError(f"pfn={pfn} is in no zone")
        return z

    def isolate_free_page(self, pfn):
        """Take a free block off the lists without an event, as compaction does.

        Half a page block or more makes its page blocks movable; since v6.10 that moves
        whatever else is free in them to the ends of the movable lists.

        Parameters
        ----------
        pfn : int
            First page of a free block.

        Returns
        -------
        bool
            False if too few pages would be left (watermark min).

        Notes
        -----
        __isolate_free_page(), mm/page_alloc.c.
        """
        cdef zone *z = &self.mm.zone[self._zone_at(pfn)]
        cdef uint32_t page = zone_page(z, pfn)
        cdef int order
        check_idle(self)
        list_fresh(z, z.fresh_end)
        order = <int>(z.page[page] & W_ORDER) - 1
        if order < 0:
            raise InputError(f"no free block begins at pfn={pfn}")
        if block_type(z, page) != MIGRATE_ISOLATE and not zone_watermark_ok(
            z, 0, z.watermark[ALLOC_WMARK_MIN] + (1 << order), 0, ALLOC_CMA
        ):
            return False
        isolate_free_page(z, page)
        self._check()
        return True

    def set_isolate(self, pfn):
        """Isolate the page block of a page."""
        cdef zone *at = &self.mm.zone[self._zone_at(pfn)]
        cdef uint32_t page = zone_page(at, pfn)
        check_idle(self)
        if block_type(at, page) == MIGRATE_ISOLATE:
            raise InputError(f"the page block of pfn={pfn} is isolated already")
        if not set_isolate(at, page):
            raise InputError(f"the page block of pfn={pfn} sticks out of its zone (EBUSY)")
        self._check()

    def unset_isolate(self, pfn, migratetype=None):
        """End the isolation; the block gets its type back, or another one."""
        cdef zone *at = &self.mm.zone[self._zone_at(pfn)]
        cdef uint32_t page = zone_page(at, pfn)
        cdef int mt = -1
        if migratetype is not None:
            mt = whole("migratetype", migratetype, 0, MIGRATE_CMA)
        check_idle(self)
        if not at.isolated[page >> PAGEBLOCK_ORDER]:
            raise InputError(f"the page block of pfn={pfn} is not isolated")
        unset_isolate(at, page, mt)
        self._check()

    # State

    def state(self):
        """Everything, zone by zone.

        Returns
        -------
        list of dict
            ``free``: {(order, type): pfns in list order}; ``blocks``: type per page block;
            ``isolated``: (block, type underneath); ``held``: (pfn, pages, looks movable);
            ``pcp``: per CPU its scalars, ``lists``: {pindex: pfns, head first} and the
            ``cached`` types of these pages; and the zone's counters.
        """
        begin_use(self)
        try:
            return [zone_state(&self.mm, z) for z in range(self.mm.nr_zones)]
        finally:
            end_use(self)

    def copy_zone(self, object zone, Memory other not None, object source=0):
        """Put a zone into the state of another one, which may have other rules.

        Parameters
        ----------
        zone : int
            Its number.
        other : Memory
        source : int
            Number of the zone there.

        Raises
        ------
        InputError
            If the zones do not span the same pages of their largest blocks, or a CPU has pages of
            one on its lists.
        """
        cdef int z = self._zone_number(zone), of = other._zone_number(source)
        check_idle(self)
        check_idle(other)
        span = self.mm.zone[z].start, self.mm.zone[z].end
        its = other.mm.zone[of].start, other.mm.zone[of].end
        if span != its:
            raise InputError(f"a zone of pages {span} cannot be as one of pages {its}")
        if self._on_lists(z) or other._on_lists(of):
            raise InputError("there are pages of the zone on the lists of a CPU; drain them first")
        if &self.mm.zone[z] != &other.mm.zone[of]:
            if zone_copy(&self.mm.zone[z], &other.mm.zone[of]) < 0:
                raise MemoryError

    cdef bint _on_lists(self, int z) noexcept:
        """Whether a CPU has pages of a zone."""
        cdef int cpu
        for cpu in range(self.mm.nr_cpus):
            if pageset_of(&self.mm, z, cpu).pcp.count:
                return True
        return False

    def load(self, object zone, state):
        """Put a zone into a state, as ``state`` returns it for one zone.

        Parameters
        ----------
        zone : int
            Its number.
        state : dict
            Only ``free`` is needed.  Without ``held`` every other page is in use, and looks
            movable where its page block is MOVABLE.

        Raises
        ------
        InputError
            If the state is not one of this zone; the zone is unchanged then.
        """
        cdef int z = self._zone_number(zone)
        begin_use(self)
        try:
            load_zone(&self.mm, z, self.zones[z], state)
        except InputError:
            raise
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise InputError(
                f"state is not what state() returns for one zone ({type(error).__name__}: {error})"
            ) from None
        finally:
            end_use(self)

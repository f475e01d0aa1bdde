# cython: auto_pickle=False, autotestdict=False
"""The follower: does the model do, page for page, what a recorded kernel did?

One loop over the rows of a trace drives the kernel's own decisions (`kernel/pcp.pxd`) on the lists
of every CPU, from a first dump or from what `/proc/zoneinfo` tells.  Whatever the trace shows is
compared: the page of every allocation with the head of its list; the size and list of every refill;
the moment, size and start list of every drain, and its pages in order; the fields of
`struct per_cpu_pages` wherever a probe printed them; the lists in every later dump.

What a pageset may be is `beliefs`.  Where no dump told of the start, a page that leaves a list
before any event put it there was on it: those that are allocated in the order of the head, those
that are drained in the order of the tail; a list that is refilled was empty.  An event is foreseen
where all states agree on it; where they do not it serves to infer which are right.

A trace is written late: `mm_page_alloc` comes after the lists were unlocked, so another task may be
ahead of it in the text.  What may be assumed for such reasons is the table of `assumptions`; a
difference counts as explained only by the line that proves it, and the rest is listed.

Half of the file is the binding: what `replay` asks the one class for.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from pcpmodel.exclusive cimport begin_use, check_idle, end_use
from pcpmodel.kernel.lists cimport pindex_to_only_type, pindex_to_order, pindex_to_type
from pcpmodel.kernel.pages cimport (
    MAX_PAGE_ORDER, MIGRATE_ISOLATE, MIGRATE_PCPTYPES, ZONE_BELOW_HIGH, ZONE_BOOSTED_WATERMARK,
    ZONE_RECLAIM_ACTIVE, pages_unlikely,
)
from pcpmodel.kernel.pcp cimport per_cpu_pages, policy_failed, policy_from, policy_state
from pcpmodel.kernel.tree_guard cimport tree_failed
from pcpmodel.trace.asked cimport decisions_of
from pcpmodel.trace.assumptions cimport *
from pcpmodel.trace.beliefs cimport *
from pcpmodel.trace.drains cimport *
from pcpmodel.trace.events cimport *
from pcpmodel.trace.frees cimport *
from pcpmodel.trace.page_lists cimport *
from pcpmodel.trace.search cimport *
from pcpmodel.trace.taking cimport *
from pcpmodel.trace.work cimport *
from pcpmodel.trace.zone_flags cimport check_zone_flags, kswapd

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.trace.ftrace import PROBE_COLUMNS, ZONES
from pcpmodel.trace.start import enough
from pcpmodel.trace.work import WORK_OPS


cdef enum:
    BEFORE_TICK = 1024  # rows in which a task was stopped

# -- the loop ------------------------------------------------------------------------

cdef void over(Beliefs s, int cpu, int32_t row) noexcept nogil:
    """What ran with interrupts off on this CPU is over."""
    finish_run(s, cpu, row)
    if s.runs[cpu].contig.left:
        commit_contig(s, cpu, False)


cdef void tick_begins(Beliefs s, int32_t row) noexcept nogil:
    """The worker of vmstat_update() runs."""
    cdef const event_row *r = &s.rows[row]
    if not r.a:
        return
    work(s, WORK_TICK, -1, 0, 0, r.cpu, 0, row)
    s.runs[r.cpu].ticking = r.pid
    s.runs[r.cpu].decays = 0
    if not s.dumped:
        vmstat_update(s, row)


cdef void tick_ends(Beliefs s, int32_t row) noexcept nogil:
    cdef cpu_run *run = &s.runs[s.rows[row].cpu]
    if run.ticking == s.rows[row].pid and run.ticking:
        # refresh_cpu_vm_stats() goes through all zones with memory.
        run.ticking = 0
        if s.decay_told and run.decays != s.nr_populated:
            differ(s, row, D_TICK, -1, s.nr_populated, run.decays)


cdef void step_seldom(Beliefs s, int32_t row) noexcept nogil:
    """One event of those that come less often."""
    cdef const event_row *r = &s.rows[row]
    cdef int e = r.event, x
    cdef int64_t p
    if e == EV_FREE_PCPPAGES_BULK:
        x = find_set(s, row)
        if x >= 0 and s.sets[x].cpu != r.cpu and s.runs[s.sets[x].cpu].kind \
                and s.runs[s.sets[x].cpu].set == x:
            over(s, s.sets[x].cpu, row)
        drain_begins(s, row)
    elif e == EV_FREE_ONE_PAGE:
        freed_past(s, row)
    elif e == EV_PAGE_COMMIT:
        committed(s, row)
    elif e == EV_FREE_CONTIG:
        freed_contig(s, row)
    elif e == EV_DECAY_PCP_HIGH or e == EV_DRAIN_ZONE_PAGES:
        decays_or_expires(s, row)
    elif e == EV_DRAIN_PAGES_ZONE:
        empties(s, row)
    elif e == EV_RMQUEUE_BULK:
        refill_begins(s, row)
    elif e == EV_ALLOC_PAGES_BULK:
        bulk_begins(s, row)
    elif e == EV_ALLOC_PAGES_BULK_RET:
        bulk_returned(s, row)
    elif e == EV_WORK_START:
        tick_begins(s, row)
    elif e == EV_WORK_END:
        tick_ends(s, row)
    elif e == EV_FORK:
        forked(s, s.top_zone, row)
    elif e == EV_HIDDEN:
        had_by_others(s, r.cpu, row, row, row)
    elif e == EV_KSWAPD_WAKE or e == EV_KSWAPD_SLEEP:
        kswapd(s, row, e == EV_KSWAPD_WAKE)
    elif e == EV_SET_BLOCK_TYPE:
        p = index_of(s, <int64_t>(<uint64_t>r.a - s.vmemmap) >> 6)
        if p >= 0:
            s.block_type[p >> 9] = <int8_t>r.c


cdef void end_run(Beliefs s, int32_t row) noexcept nogil:
    """Does this event show that what ran with interrupts off on its CPU is over?"""
    cdef const event_row *r = &s.rows[row]
    cdef cpu_run *run = &s.runs[r.cpu]
    if run.kind == RUN_REFILL:
        if r.event != EV_ZONE_LOCKED and r.event != EV_EXTFRAG:
            over(s, r.cpu, row)
    elif r.event != EV_PCPU_DRAIN and not (
            # An interrupt may come between the probe and the zone lock.
            run.left == run.want and r.flags & (FL_SOFTIRQ | FL_HARDIRQ)
            and not s.rows[run.row].flags & (FL_SOFTIRQ | FL_HARDIRQ)):
        over(s, r.cpu, row)


cdef bint arrives(Beliefs s, int32_t row) noexcept nogil:
    """Whether an allocated page's free was under way until now; its list has it first."""
    cdef int64_t p = index_of(s, s.rows[row].a)
    cdef int k
    if p >= 0 and s.page[p].status & 15 == DELAYED:
        for k in range(s.nr_late):
            if s.late[k].page == p:
                complete(s, k, row)
                return True
    return False


cdef void complete_at(Beliefs s, int32_t row) noexcept nogil:
    """What is done with this line."""
    cdef int k
    for k in range(s.nr_late - 1, -1, -1):
        if k < s.nr_late and s.late[k].row == row:
            complete(s, k, row)


cdef void had_by_others(Beliefs s, int cpu, int32_t row, int32_t told,
                        int32_t since) noexcept nogil:
    """A task that writes no line has this CPU, or had it from *since* to *row*, as *told* shows."""
    cdef pageset *set
    cdef int32_t q, until = row
    cdef int64_t had
    cdef int z, i
    if since == row:    # until the CPU's next line
        until = row + 1
        while until < min(row + MAX_STAY, s.nr_rows - 1) and s.rows[until].cpu != cpu:
            until += 1
    # Times are printed in microseconds.
    had = s.rows[min(until, s.nr_rows - 1)].time - s.rows[since].time + 1000
    for z in range(s.nr_zones):
        set = &s.sets[z * s.cpus + cpu]
        if set.hidden <= set.counted:
            set.hidden_ns = 0
        set.hidden_ns += had
        set.hidden, set.hidden_by = row, told
        for i in range(s.rules.nr_pcp_lists):
            q = set.list[i].head
            for _ in range(TAKEN_AT_ONCE):
                if q < 0:
                    break
                s.page[q].exposed = True
                if s.page[q].pushed <= since and not in_flight(s, q, row) \
                        and not goes_silently(s, q, row):
                    break   # it is there; of the others those below may have been the head
                q = s.page[q].next


cdef inline void step(Beliefs s, int32_t row) noexcept nogil:
    """One event."""
    cdef const event_row *r = &s.rows[row]
    cdef cpu_run *run = &s.runs[r.cpu]
    cdef int e = r.event
    while pages_unlikely(s.untold[0] <= row):
        had_by_others(s, s.rows[s.untold[0]].cpu, s.untold[0], s.untold[1], s.untold[2])
        s.untold += 3
    if pages_unlikely(not is_heeded(s.unheeded, e)):
        return
    if pages_unlikely(r.probe >= 0) and s.dumped:
        check_zone_flags(s, row)
    if pages_unlikely(s.nr_late):
        complete_at(s, row)
    if run.kind:
        end_run(s, row)
    if pages_unlikely(run.contig.left) and (
            EV_ALLOC <= e <= EV_FREE or e == EV_FREE_CONTIG or e == EV_HIDDEN):
        commit_contig(s, r.cpu, True)
    if pages_unlikely(run.draining >= 0) and EV_ALLOC <= e <= EV_FREE_BATCHED \
            and not r.flags & IRQ:
        run.draining = -1
    if e == EV_ALLOC:
        reported(s, row, s.nr_late and arrives(s, row))
    elif e == EV_FREE:
        freed(s, row)
    elif e == EV_FREE_BATCHED:
        batched(s, row)
    elif e == EV_ZONE_LOCKED:
        taken_from_buddy(s, row)
    elif e == EV_PCPU_DRAIN:
        drained(s, row)
    elif e == EV_EXTFRAG:
        fallback(s, row)
    else:
        step_seldom(s, row)


cdef inline bint nobody_asks(Beliefs s) noexcept nogil:
    """Whether what comes is of no use any more."""
    return s.asked.failed != NULL or (s.hurried and s.nr_unexplained > 0)


cdef void steps(Beliefs s, int32_t row, int32_t stop) noexcept nogil:
    """Events one after the other.  Who looks at each asks for one: the loop is here once."""
    cdef bint may_end = s.asked.on or s.hurried
    cdef int32_t fetched = s.nr_rows - AHEAD
    while row < stop:
        if row < fetched:
            fetch_page(s, &s.rows[row + AHEAD])
        step(s, row)
        if may_end and nobody_asks(s):
            return
        row += 1


cdef void skip(Beliefs s, int32_t row) noexcept nogil:
    """Pass an event that the first dump contains."""
    cdef const event_row *r = &s.rows[row]
    cdef int64_t p = page_of(s, r), k
    if p >= 0 and r.event == EV_FREE_CONTIG:
        for k in range(p, min(p + r.d, s.nr_pages)):
            s.page[k].cursor = s.spans[s.link[row].chain + k - p]
    elif p >= 0:
        passed(s, p, row)


# -- dumps ---------------------------------------------------------------------------

# A pageset, and what a dump tells of it.
cdef struct watched:
    int x
    int lists           # bits of those that were never as told
    int fields          # ... and of what a probe prints, from P_COUNT on
    int least           # count meanwhile
    int most
    int32_t moved       # last row that touched it, 0 none
    int64_t touched
    const int64_t *pfn[MAX_PCP_LISTS]
    Py_ssize_t length[MAX_PCP_LISTS]
    int64_t field[P_COLUMNS]


cdef bint is_list(PageLists s, const page_list *lst, const int64_t *pfn,
                  Py_ssize_t length) noexcept nogil:
    """Whether a list has these page frames, head first."""
    cdef int32_t p = lst.head
    cdef Py_ssize_t k = 0
    while k < length and p >= 0 and pfn[k] == p + s.base:
        p = s.page[p].next
        k += 1
    return p < 0 and k == length


cdef void look(Beliefs s, watched *w) noexcept nogil:
    """Which lists are as told now, and of which fields some state has the value."""
    cdef pageset *set = &s.sets[w.x]
    cdef int64_t mine[NR_FIELDS]
    cdef int i, k, count
    unfold(set)
    count = set.s[0].pcp.count if set.n else -1
    for i in range(s.rules.nr_pcp_lists):
        if w.lists >> i & 1 and is_list(s, &set.list[i], w.pfn[i], w.length[i]):
            w.lists &= ~(1 << i)
    for k in range(set.n):
        if not w.fields:
            break
        fields_of(&set.s[k].pcp, mine)
        for i in range(NR_FIELDS):
            w.fields &= ~(<int>(mine[i] == w.field[P_COUNT + i]) << i)
    w.least = min(w.least, count)
    w.most = max(w.most, count)


cdef set counts_of(const pageset *some):
    """What the states say of count."""
    cdef int k
    return {some.s[k].pcp.count for k in range(some.n)}


cdef bint as_far_apart(const pageset *set, const watched *w) noexcept nogil:
    """Whether count was as far from high as told, in some state and at some moment of a dump."""
    cdef int64_t told = w.field[P_HIGH] - w.field[P_COUNT], gap
    cdef int k
    for k in range(set.n):
        gap = set.s[k].pcp.high - set.s[k].pcp.count
        if gap + set.s[0].pcp.count - w.most <= told <= gap + set.s[0].pcp.count - w.least:
            return True
    return False


# -- binding -------------------------------------------------------------------------

#: Of struct per_cpu_pages, as a dump names them, in the order of `fields_of`.
_FIELDS = PROBE_COLUMNS[P_COUNT:]
_NOTHING = np.empty(0, np.int64)


cdef class Follower(Beliefs):
    """The lists of one machine, and the trace that drives them."""

    def __dealloc__(self):
        free(self.runs)
        free(self.node_of_cpu)
        free(self.there)
        free(self.passed_pages)
        free(self.asked.of)
        free(self.asked.rows)

    def __cinit__(self, release, int cpus, snapshot, events, int32_t start, *, uint64_t vmemmap=0,
                  int p_lists=24, uint64_t unheeded=0, int64_t isolated=0, bint locks_sleep=False,
                  bint computed=False, bint hurried=False):
        """Lists as *snapshot* shows them, and the rows of *events* from *start* on.

        *unheeded*: bits of events that are passed over, as if their rows were not there.
        *isolated*: pages that may have been compaction's meanwhile, as vmstat tells.
        *locks_sleep*: with PREEMPT_RT any task may find the lists locked by another one, which has
        not the CPU.  *computed*: no file tells high_max, which is computed, from memory that may
        have been less at that time.  *hurried*: stop at the first difference that nothing explains.
        """
        cdef int z
        cdef Py_ssize_t k
        zones = snapshot.zones
        self.unheeded = unheeded
        self.isolated, self.locks_sleep = isolated, locks_sleep
        self.computed, self.hurried = computed, hurried
        self.set_up(cpus, zones, events)
        self.believe(release, events)
        self.dumped = snapshot.blocks is not None
        if not (self.dumped or self.rules.drain_by_list):
            raise InputError(
                f"release={release}: its drains take turns of the lists, which cannot be followed "
                f"without a dump of the lists before the trace; allowed: releases from v5.18 on"
            )
        self.p_lists = p_lists
        self.nr_populated = sum(zone.managed > 0 for zone in zones)
        if self.dumped:
            self.holds_told = bool(events.is_event("free_pcppages_bulk").any())
            self.refills_told = bool(events.is_event("rmqueue_bulk").any())
            self.commits_told = bool(events.is_event("page_commit").any())
            self.past_told = bool(events.is_event("free_one_page").any())
            self.decay_told = bool(events.is_event("decay_pcp_high").any())
        self.zone_flags = ZONE_BOOSTED_WATERMARK | ZONE_RECLAIM_ACTIVE
        if self.rules.below_high:
            self.zone_flags |= ZONE_BELOW_HIGH
        self.vmemmap = vmemmap or 0xFFFFEA0000000000
        self.runs = <cpu_run *>self.room(cpus, sizeof(cpu_run))
        self.node_of_cpu = <int *>self.room(cpus, sizeof(int))
        nodes = max(zone.node for zone in zones) + 1
        for cpu in range(cpus):
            self.runs[cpu].draining = -1
            self.node_of_cpu[cpu] = cpu * nodes // cpus
        awake = {node: 0 if self.dumped else self._awake(node, start)
                 for node in {zone.node for zone in zones}}
        for z, zone in enumerate(zones):
            self._load_zone(z, zone, snapshot, enough(zone, zones, cpus), awake[zone.node], start)
        for k in range(len(events.probes)):
            self._see_flags(&self.probes[k * P_COLUMNS])
        self.follow_rows(start)
        self.set_untold(_NOTHING.reshape(-1, 3))
        for z, zone in enumerate(zones):
            for cpu in range(cpus):
                self._load(z * cpus + cpu, snapshot.pcps.get((*zone.key, cpu)), start)

    cdef _load_zone(self, int z, zone, snapshot, int64_t enough_free, int awake, int32_t start):
        cdef zone_info *info = &self.zones[z]
        cdef const int8_t[::1] types
        cdef Py_ssize_t k, n = ((zone.end_pfn + 511) >> 9) - (zone.start_pfn >> 9)
        cdef int64_t first = (zone.start_pfn >> 9) - (self.base >> 9)
        info.start, info.end, info.node = zone.start_pfn, zone.end_pfn, zone.node
        info.name = ZONES.index(zone.name)
        info.nr_free = info.least_free = zone.nr_free
        info.enough = enough_free
        info.low = start if info.nr_free <= enough_free else self.nr_rows
        if zone.managed:
            self.top_zone = z
        if not self.dumped:
            info.maybe = self.zone_flags & (ZONE_BELOW_HIGH | awake)
            for k in range(n):
                self.block_type[first + k] = -1
            return
        info.flags = zone.flags & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH)
        info.told_flags = zone.flags
        for k in range(3):
            info.cleared[k] = self.nr_rows if zone.flags >> k & 1 else start
        info.unboosted = info.doubted = info.boosted = start
        info.woken = info.reclaiming = start
        at, seen = snapshot.blocks[zone.key]
        types = seen[(zone.start_pfn >> 9) - (at >> 9):]
        for k in range(n):
            self.block_type[first + k] = types[k]

    cdef int _awake(self, int node, int32_t start) noexcept:
        """ZONE_RECLAIM_ACTIVE, if the kswapd of a node is at work at the start, or nobody tells."""
        cdef int32_t j
        for j in range(start, self.nr_rows):
            if self.rows[j].event == EV_KSWAPD_WAKE or self.rows[j].event == EV_KSWAPD_SLEEP:
                if self.rows[j].c < 0 or self.rows[j].c == node:
                    return ZONE_RECLAIM_ACTIVE if self.rows[j].event == EV_KSWAPD_SLEEP else 0
        return 0

    cdef int _see_flags(self, const int64_t *told) except -1:
        """Which flags a probe shows that a zone may have."""
        cdef zone_info *z = zone_told(self, told)
        if z != NULL and told[P_ZONE_FLAGS] > 0:
            z.seen_flags |= told[P_ZONE_FLAGS] & (ZONE_RECLAIM_ACTIVE | ZONE_BELOW_HIGH)
        return 0

    cdef _load(self, int x, pcp, int32_t start):
        """A pageset as a dump shows it, or /proc/zoneinfo."""
        cdef pageset *set = &self.sets[x]
        cdef per_cpu_pages *first = &set.first
        cdef int i
        cdef const int64_t[::1] told
        cdef Py_ssize_t k
        cdef int32_t p
        for i in range(MAX_PCP_LISTS):
            set.open[i] = not self.dumped
            set.moved[i] = start
        set.was_row = start
        set.used = self.dumped
        if self.dumped:
            if not room(self, &set.s, &set.cap, 1):
                raise MemoryError
            memset(set.s, 0, sizeof(state))
            set.n = 1
        if pcp is None:
            return
        set.addr = pcp.addr
        first.count = pcp.count
        first.high = pcp.high
        resize_pcp(first, self.rules.high_min_max, pcp.batch, pcp.high_min, pcp.high_max,
                   pcp.high if self.dumped else -1)
        if not self.dumped:
            set.counts = <int *>self.room(1, sizeof(int))
            set.counts[0], set.nr_counts = pcp.count, 1
            return
        first.flags = max(pcp.flags, 0)
        first.alloc_factor = min(max(pcp.alloc_factor, 0), 10)
        first.free_factor = min(max(pcp.free_factor, 0), 20)
        first.free_count = max(pcp.free_count, 0)
        set.s[0].pcp = first[0]
        set.s[0].zone_flags = self.zones[set.zone].flags
        for i, pfns in pcp.lists.items():
            told = pfns
            for k in range(told.shape[0]):
                p = <int32_t>(told[k] - self.base)
                tell_of(self, p)
                if self.page[p].where:
                    raise InputError(f"page {told[k]:#x} is on two lists of the first dump")
                push(self, x, i, p, -1, True)
                self.page[p].cached = <int8_t>pindex_to_type(i)

    def resize(self, int x, int batch, int high_min, int high_max):
        """zone_set_pageset_high_and_batch() for one CPU."""
        cdef pageset *set = &self.sets[self.check_set(x)]
        cdef int k
        check_idle(self)
        resize_pcp(&set.first, self.rules.high_min_max, batch, high_min, high_max, -1)
        unfold(set)
        for k in range(set.n):
            resize_pcp(&set.s[k].pcp, self.rules.high_min_max, batch, high_min, high_max, -1)
        set.undecided = False
        set.log_n = 0
        set.above = True

    def keep_work(self, ops):
        """Note from now on what the kernel was given to do of these kinds; see `work`."""
        if self.work_done.ops:
            raise ValueError("work is kept already")
        for op in ops:
            self.work_done.ops |= 1 << <int>WORK_OPS[op]

    @property
    def work(self):
        """Work in the order in which the kernel did it: records of `WORK`."""
        check_idle(self)
        return work_of(&self.work_done)

    def ask(self, policy):
        """Ask this policy at every decision; see `decisions`."""
        cdef int x
        if self.asked.of != NULL:
            raise ValueError("a policy is asked already")
        check_idle(self)
        self.asked.of = <policy_state *>self.room(self.nr_sets, sizeof(policy_state))
        for x in range(self.nr_sets):
            policy_from(policy, &self.rules, &self.asked.of[x].policy)
            self.asked.of[x].cpu = self.sets[x].cpu
        self.asked.on = True
        self.keep.append(policy)

    @property
    def decisions(self):
        """Every decision that moved pages, the kernel's or the policy's: records of `DECISION`."""
        check_idle(self)
        return decisions_of(&self.asked, self.cpus, [
            (ZONES[self.zones[z].name], self.zones[z].node) for z in range(self.nr_zones)])

    # What is known of the start where no dump told.

    cdef const int32_t *_kept(self, values) except NULL:
        cdef const int32_t[::1] view
        self.keep.append(np.ascontiguousarray(values if len(values) else [0], np.int32))
        view = self.keep[-1]
        return &view[0]

    def set_forks(self, forks, made_since, workers):
        """Rows of new tasks, and that after which each was begun; indices of kworkers' names.

        Whoever made one took its stack on the CPU of that line, or, if it was moved meanwhile, on
        that of its line before.
        """
        cdef Py_ssize_t k
        cdef int32_t row, before
        cdef all_rows here
        check_idle(self)
        if self.forks != NULL or np.any(np.less(forks, 0)) \
                or np.any(np.greater_equal(forks, self.nr_rows)) or len(made_since) != len(forks):
            raise InputError("forks are not rows")
        places = []
        for k in range(len(forks)):
            row = forks[k]
            before = line_before(self, row)
            places.append((self.rows[row].cpu, row, k))
            if before and self.rows[before].cpu != self.rows[row].cpu:
                places.append((self.rows[before].cpu, row, k))
        places = np.array(sorted(places), np.int32).reshape(-1, 3)
        self.stacks = <uint8_t *>self.room(len(forks), 1)
        memset(self.stacks, STACK_PAGES, len(forks))
        self.thought_of = <uint8_t *>self.room(len(forks), 1)
        memset(self.thought_of, 0, len(forks))
        if len(forks):
            gone = []
            here = rows_in(self)
            find_stacks_freed(self, <int32_t *>by_row(&here, 3 * sizeof(int32_t), gone))
        self.workers = <uint8_t *>self.room(1 << 16, 1)
        for k in workers:
            if not 0 <= k < 1 << 16:
                raise InputError(f"{k} is no index of a name")
            self.workers[k] = 1
        self.forks_of = self._kept(np.searchsorted(places[:, 0], np.arange(self.cpus + 1)))
        self.forks = self._kept(places[:, 1])
        self.stack_of = self._kept(places[:, 2])
        self.made_since = self._kept(made_since)

    def set_switches(self, keys):
        """As of `switches`."""
        cdef const int64_t[::1] given = np.ascontiguousarray(keys, np.int64)
        check_idle(self)
        if np.any(np.diff(keys) < 0) or np.any((keys & 0xffffffff) >= self.nr_rows):
            raise InputError("the rows of sched_switch are not in order, or none")
        if not len(keys):
            return
        self.keep.append(given.base)
        self.switches, self.nr_switches = &given[0], len(keys)

    def set_untold(self, rows):
        """As of `untold`."""
        cdef const int32_t[::1] given
        check_idle(self)
        if np.any(np.diff(rows[:, 0]) <= 0) or np.any((rows < 0) | (rows >= self.nr_rows)):
            raise InputError("the rows of tasks that no sched_switch gave a CPU are not in order")
        given = np.append(rows.ravel(), INT32_MAX).astype(np.int32)
        self.keep.append(given.base)
        self.untold = &given[0]

    def set_moved(self, moved):
        """Pages that their tasks took before they were moved: (row of their mm_page_alloc, row
        before which the task lost the CPU that it took it on, that CPU), for some of them."""
        cdef int64_t p
        check_idle(self)
        for row, left, cpu in moved:
            if not (0 <= left <= row < self.nr_rows and 0 <= cpu < self.cpus) \
                    or self.rows[<int32_t>row].event != EV_ALLOC:
                raise InputError(f"row {row} tells of no page taken on CPU {cpu} at row {left}")
            p = index_of(self, self.rows[<int32_t>row].a)
            while not is_heeded(self.unheeded, self.rows[<int32_t>left].event):
                left += 1
            if is_told(self, p) and self.nr_late < MAX_LATE // 2:
                self.late[self.nr_late] = late_act(left, row, <int32_t>p, -1, cpu)
                self.nr_late += 1

    def set_counts(self, int x, counts):
        """Pages that the lists of a pageset may have held at the start."""
        cdef pageset *set = &self.sets[self.check_set(x)]
        check_idle(self)
        if set.used or len(counts) < 1:
            raise ValueError("the lists are followed already, or may have held nothing")
        self._may_hold(set, counts)

    def set_block_types(self, const int8_t[::1] types):
        """Migratetype of every block of 512 pages from the first zone's on, -1 unknown."""
        cdef Py_ssize_t b
        if types.shape[0] > self.nr_pages >> 9:
            raise InputError(f"{types.shape[0]} types of {self.nr_pages >> 9} blocks")
        check_idle(self)
        for b in range(types.shape[0]):
            if not -1 <= types[b] <= MIGRATE_ISOLATE:
                raise InputError(f"block {b}: {types[b]} is no migratetype")
            self.block_type[b] = types[b]

    def free_under_way(self, int32_t stop):
        """Pages freed before row *stop* whose batch comes to its lists only from there on."""
        cdef int32_t row
        cdef int64_t p
        check_idle(self)
        if not 0 <= stop <= self.nr_rows:
            raise IndexError(f"row {stop} is outside 0..{self.nr_rows}")
        for row in range(stop):
            p = index_of(self, self.rows[row].a)
            if self.rows[row].event == EV_FREE and is_told(self, p) \
                    and self.page[p].event == EV_FREE_BATCHED:
                self.page[p].status = <uint8_t>(FREED | self.rows[row].b << 4)

    def set_passed_over(self, freed, taken):
        """Rows of frees, ascending, and by type of list allocations that took what lay below."""
        for name, values in (("frees", freed), ("allocations", taken)):
            if np.any(np.less(values, 0)) or np.any(np.greater_equal(values, self.nr_rows)):
                raise InputError(f"{name} are not rows")
        if np.shape(taken) != (len(freed), MIGRATE_PCPTYPES) or np.any(np.diff(freed) <= 0):
            raise InputError(f"{len(freed)} frees, allocations of {np.shape(taken)}")
        check_idle(self)
        self.passed, self.passed_by = self._kept(freed), self._kept(np.ravel(taken))
        self.nr_passed = len(freed)

    def first_lists(self):
        """What the lists held at the start: {(set, pindex): (from the head, from the tail)}."""
        cdef int64_t k
        check_idle(self)
        answer = {}
        for k in range(self.nr_there):
            f = self.there[k]
            ends = answer.setdefault((f.set, f.pindex), ([], []))
            ends[f.drained].append(f.page + self.base)
        return answer

    def gone_past(self):
        """Pages that drains went past though they are believed to lie there: (page, line)."""
        cdef int64_t k
        check_idle(self)
        return [
            (self.passed_pages[k].page + self.base, self.rows[self.passed_pages[k].row].line)
            for k in range(self.nr_passed_pages)
        ]

    def states(self, int x):
        """(count, high, alloc_factor, free_count, free_factor, flags) of what a pageset may be, and
        the row since when it is one, or -1."""
        cdef int k
        cdef pageset *set = &self.sets[self.check_set(x)]
        check_idle(self)
        unfold(set)
        return [
            (set.s[k].pcp.count, set.s[k].pcp.high, set.s[k].pcp.alloc_factor,
             set.s[k].pcp.free_count, set.s[k].pcp.free_factor, set.s[k].pcp.flags)
            for k in range(min(set.n, 64))
        ], set.known_row if set.n == 1 else -1

    def more_below(self, int x, int i):
        """Whether there may be pages below those that are known to be on a list."""
        return bool(self.sets[self.check_set(x)].open[self.check_list(i)])

    # The loop.

    def run(self, int32_t start, int32_t stop):
        """Apply the events of rows *start* ... *stop* - 1."""
        cdef int32_t row, end
        check_idle(self)
        self.pass_rows(start, stop)
        begin_use(self)
        with nogil:
            row = start
            while row < stop:
                leave_links(self, row, 1)
                end = min((row | (STRETCH - 1)) + 1, stop)
                steps(self, row, end)
                if nobody_asks(self):
                    break
                row = end
        end_use(self)
        self._check()

    def nr_heeded(self, int32_t start, int32_t stop):
        """How many of the rows *start* ... *stop* - 1 are looked at."""
        cdef int32_t row, n = 0
        if not 0 <= start <= stop <= self.nr_rows:
            raise IndexError(f"rows {start}..{stop} are outside 0..{self.nr_rows}")
        for row in range(start, stop):
            leave_links(self, row, 1)
            n += is_heeded(self.unheeded, self.rows[row].event)
        return n

    cdef int _check(self) except -1:
        if self.asked.failed != NULL:
            policy_failed(self.asked.failed)
        tree_failed(&self.rules)
        if self.broken:
            raise MemoryError
        return 0

    @property
    def stopped(self):
        return self.hurried and self.nr_unexplained > 0

    def first_dump(self, int32_t start, int32_t stop):
        """Events while the first dump was taken: those that it does not contain.

        Returns the number of events that leave the start in doubt.
        """
        cdef int32_t row
        cdef int doubtful = 0
        cdef const event_row *r
        cdef int64_t p
        check_idle(self)
        self.pass_rows(start, stop)
        for row in range(start, stop):
            r = &self.rows[row]
            p = index_of(self, r.a) if EV_ALLOC <= r.event <= EV_EXTFRAG else -1
            if r.event == EV_DECAY_PCP_HIGH or r.event == EV_FREE_PCPPAGES_BULK:
                # Its probe shows the fields before it: if they are the dump's, it came later.
                x = find_set(self, row)
                if x >= 0 and self.sets[x].n and agrees(
                        &self.sets[x].s[0].pcp, &self.probes[r.probe * P_COLUMNS]) and (
                        r.event == EV_DECAY_PCP_HIGH or self.sets[x].undecided
                        or self.sets[x].due.why):
                    steps(self, row, row + 1)
                else:
                    doubtful += 1
            elif r.event == EV_PCPU_DRAIN and self.runs[r.cpu].kind == RUN_DRAIN:
                steps(self, row, row + 1)
            elif p < 0:
                skip(self, row)
            elif r.event == EV_FREE or r.event == EV_ALLOC:
                if (self.page[p].where == 0) == (r.event == EV_FREE):
                    steps(self, row, row + 1)
                else:
                    skip(self, row)
            else:
                doubtful += 1
                skip(self, row)
        return doubtful

    # Later dumps.

    cdef int _settle(self, int32_t row) except -1:
        """Complete what ran with interrupts off and has no further event."""
        cdef int cpu, e
        cdef int32_t j
        self._check_row(row)
        for cpu in range(self.cpus):
            for j in range(row, self.nr_rows):
                if self.rows[j].cpu == cpu:
                    e = self.rows[j].event
                    if e != EV_PCPU_DRAIN and e != EV_ZONE_LOCKED and e != EV_EXTFRAG:
                        over(self, cpu, row)
                    break
        return 0

    cdef watched *_watch(self, list pcps, int32_t begin, int32_t end, dict unlike,
                         list keep) except NULL:
        """Run through what was told between two rows, of (pageset, PcpState): when was it so?

        *unlike*: of a dump's lists, too; filled with those that were not so at the beginning, what
        was told and what they were.  Held by *keep*.
        """
        cdef watched *some = <watched *>untouched(len(pcps) * sizeof(watched), keep)
        cdef watched *w
        cdef int n = <int>len(pcps), k, i
        cdef bint dump = unlike is not None
        cdef const int64_t[::1] pfns
        self.pass_rows(begin, end)
        for k, (x, pcp) in enumerate(pcps):
            w = &some[k]
            w.x = self.check_set(x)
            w.least, w.most = INT32_MAX, -1
            w.touched = self.sets[w.x].touched
            memset(w.field, 255, sizeof(w.field))   # -1: not told
            for i, name in enumerate(_FIELDS):
                w.field[P_COUNT + i] = getattr(pcp, name)
                w.fields |= (w.field[P_COUNT + i] >= 0) << i
            told = [pcp.lists.get(i, _NOTHING) for i in range(self.rules.nr_pcp_lists * dump)]
            for i in range(len(told)):
                pfns = told[i]
                w.pfn[i], w.length[i] = &pfns[0] if pfns.shape[0] else NULL, pfns.shape[0]
                w.lists |= 1 << i
            look(self, w)
            for i in range(len(told)):
                if w.lists >> i & 1:
                    unlike[w.x, i] = told[i], self.pages_of(w.x, i)
        begin_use(self)
        with nogil:
            self._run_watched(some, n, begin, end, dump)
        end_use(self)
        self._check()
        return some

    cdef void _run_watched(self, watched *some, int n, int32_t row, int32_t end,
                           bint dump) noexcept nogil:
        cdef watched *w
        cdef int k
        while True:
            for k in range(n):
                w = &some[k]
                if dump and not w.lists and not w.fields:
                    self.doubt[w.x] = 0     # whatever differed before is over
            if row == end or self.asked.failed != NULL:
                return
            steps(self, row, row + 1)
            for k in range(n):
                w = &some[k]
                if (w.lists or w.fields) and self.sets[w.x].touched != w.touched:
                    w.touched = self.sets[w.x].touched
                    w.moved = row
                    look(self, w)
            row += 1

    def compare(self, dict pcps not None, int32_t begin, int32_t end, flags):
        """Run through a dump, {pageset: PcpState}; lists and fields must be so at some moment.

        *flags*: of each zone.  Returns the number of lists, of those that are so, and of the others
        that another line tells why.
        """
        cdef int k, i, wrong = 0, shown = 0
        cdef bint middle
        cdef watched *w
        cdef list gone = []
        given, unlike = [*pcps.items()], {}
        self._settle(begin)
        cdef watched *some = self._watch(given, begin, end, unlike, gone)
        for k, (x, pcp) in enumerate(given):
            w = &some[k]
            for i in range(self.rules.nr_pcp_lists):
                if w.lists >> i & 1:
                    wrong += 1
                    shown += self._unlike(w, i, begin, pcp.torn, unlike[w.x, i][1])
            w.lists = 0
            look(self, w)
            # Of one that moved, count may be read in the middle of a refill or a drain.
            middle = w.fields == 1 and w.moved and w.least < w.field[P_COUNT] < w.most
            if w.fields and not middle:
                self._tell_fields(w, begin, flags[self.sets[w.x].zone])
                continue
            self.t.probes.total += 1
            self.t.probes.explained += middle
            self.t.probes.foreseen += not middle
            if middle:
                explain(self, begin, E_MOVED, w.x, w.moved)
        total = len(given) * self.rules.nr_pcp_lists
        return total, total - wrong, shown

    def compare_counts(self, dict pcps not None, int32_t begin, int32_t end):
        """`compare` of what /proc/zoneinfo tells, count and high: pagesets instead of lists."""
        cdef watched *some
        cdef list gone = []
        cdef int k, wrong = 0, shown = 0
        self._check_row(end)
        some = self._watch([*pcps.items()], begin, end, None, gone)
        for k in range(len(pcps)):
            if some[k].fields:
                wrong += 1
                shown += self._tell_counts(&some[k], end)
        return wrong, shown

    def see_counts(self, dict pcps not None, dict counts not None, int32_t begin, int32_t end):
        """Run through a /proc/zoneinfo amid a recording, {pageset: PcpState}, and go on with that.

        *counts*: of each pageset what count may be at *end*, by what the trace tells of that
        moment.  Returns how many pagesets are not as told, and of how many of them another line
        tells why.
        """
        cdef watched *some
        cdef watched *w
        cdef pageset *set
        cdef int k, wrong = 0, shown = 0, said
        cdef bint moved
        cdef list gone = []
        self._check_row(end)
        some = self._watch([*pcps.items()], begin, end, None, gone)
        for k, x in enumerate(pcps):
            w, set = &some[k], &self.sets[some[k].x]
            wanted = counts[x]
            # Nobody has looked any more once it was as told.
            moved = w.moved or w.touched != set.touched
            if moved:
                w.field[P_HIGH] = -1
            said = self._keep_counts(w, wanted, end)
            # A tick that lowered high meanwhile moves no page.
            if said == SAID_NONE and w.fields:
                wrong += 1
                stacks = self._stacks_say(w, wanted, end)
                shown += stacks or self._tell_counts(w, end)
                if self._keep_counts(w, wanted, end) == SAID_NONE:
                    self._go_on_with(w, wanted, not stacks)
                    checkpoint(self, w.x, end)
                    # What is missing now is so no more when it shows that it had left.
                    set.counted = end
                    set.raised = set.vague = not stacks and w.field[P_HIGH] < 0
                    set.silent = 0
            if not moved and len(wanted) == 1 and (said != SAID_NONE or w.fields):
                if said == SAID_SOME:
                    checkpoint(self, w.x, end)  # a search goes on from what was read
                set.counted = end
                set.vague = set.raised = False
                set.silent = 0
        return wrong, shown

    cdef int _keep_counts(self, const watched *w, wanted, int32_t row) except -1:
        """`keep` where count is one of these, and high, if it is told, that.

        Where the moment is not known to an event count may be any in between, and all are kept.
        """
        cdef pageset *set = &self.sets[w.x]
        cdef int k, n = 0, had
        if set.cut:
            return SAID_NOTHING
        unfold(set)
        had = set.n
        if len(wanted) > 1:
            mine = counts_of(set)
            if mine and (min(mine) > wanted[-1] or max(mine) < wanted[0]):
                return SAID_NONE
            wanted = mine
        for k in range(had):
            if set.s[k].pcp.count in wanted and w.field[P_HIGH] in (-1, set.s[k].pcp.high):
                set.s[n] = set.s[k]
                n += 1
        if n == 0:
            return SAID_NONE
        set.n = n
        settle(self, w.x, row)
        return SAID_ALL if n == had else SAID_SOME

    cdef int _go_on_with(self, const watched *w, wanted, bint opened) except -1:
        """Follow all these counts; *opened*: nor is known any more what no file tells.

        A hidden task that takes pages changes alloc_factor and halves free_count.
        """
        cdef pageset *set = &self.sets[w.x]
        cdef per_cpu_pages like
        cdef int k, maybe = 0, some
        for k in range(set.n):
            maybe |= set.s[k].zone_flags
        resync(self, w.x, w.field)
        if opened:
            like = set.s[0].pcp
            self._may_hold(set, wanted)
            open_states(self, w.x, &like, True, maybe)
            return 0
        some = <int>len(wanted)
        if room(self, &set.s, &set.cap, some):
            for k in range(some):
                set.s[k] = set.s[0]
                set.s[k].pcp.count = wanted[k]
            set.n = some
        return 0

    cdef int _may_hold(self, pageset *set, counts) except -1:
        """Note the counts that `open_states` begins with."""
        cdef Py_ssize_t k
        free(set.counts)
        set.counts = NULL
        set.counts = <int *>self.room(len(counts), sizeof(int))
        for k in range(len(counts)):
            set.counts[k] = counts[k]
        set.nr_counts = <int>len(counts)
        return 0

    cdef bint _stacks_say(self, watched *w, wanted, int32_t row) except -1:
        """Whether count is off by stacks of new tasks, which were taken in silence, or were not.

        Which of these counts was told is the nearest from here on.
        """
        cdef pageset *set = &self.sets[w.x]
        mine = counts_of(set)
        gaps = sorted((abs(n - count), n, count) for count in wanted for n in mine)
        w.field[P_COUNT] = gaps[0][2] if gaps else wanted[0]
        if w.field[P_HIGH] not in (-1, set.s[0].pcp.high):
            return False
        for _, n, count in gaps:
            if off_by_stacks(self, w.x, row, n - count):
                w.field[P_COUNT] = count
                set.unnamed = max(n - count, 0)
                return True
        return False

    def is_followed(self, int x):
        """Whether there are states of a pageset to compare."""
        return bool(self.sets[self.check_set(x)].used) and not self.sets[x].cut

    cdef int _tell_fields(self, watched *w, int32_t row, int zone_flags) except -1:
        """`see_fields` for a dump."""
        cdef zone_info *z = &self.zones[self.sets[w.x].zone]
        cdef int flags = z.flags
        w.field[P_ZONE_FLAGS] = zone_flags
        see_fields(self, w.x, row, w.field, 0, 0)
        z.flags = flags
        z.told += 1
        return 0

    cdef int _check_row(self, int row) except -1:
        if not 0 <= row < self.nr_rows:
            raise IndexError(f"row {row} is outside 0..{self.nr_rows - 1}")
        return 0

    cdef bint _tell_counts(self, const watched *w, int32_t row) except -1:
        """Whether something that came before *row* shows why count and high are as told."""
        cdef int k
        cdef pageset *set = &self.sets[w.x]
        cdef sight g = sight(&w.field[0], 0, 0)
        if observe(self, w.x, row, &g) != SAID_NONE:
            return True
        unfold(set)
        off = min([abs(set.s[k].pcp.count - w.field[P_COUNT]) for k in range(set.n)], default=0)
        if sizes_unknown(self, w.x, row, True, True, off):
            return True
        # A tick makes high of count: what hidden tasks took or gave back before is in both then.
        if as_far_apart(set, w) and by_hidden(self, w.x, row, 0):
            return True
        if self._stopped_at_tick(w, row):
            return True
        for code in (D_TOLD_COUNT, D_TOLD_HIGH):
            told = w.field[P_HIGH if code == D_TOLD_HIGH else P_COUNT]
            mine = [set.s[k].pcp.high if code == D_TOLD_HIGH else set.s[k].pcp.count
                    for k in range(set.n)]
            if told >= 0 and told not in mine:
                near = min(mine, key=lambda value: abs(value - told), default=-1)
                differ(self, row, code, w.x, near, told)
        return False

    cdef bint _stopped_at_tick(self, const watched *w, int32_t row) except -1:
        """Whether a task was stopped amid a free, or an allocation, when the tick made high of
        count: its block was not on the list yet, or had left before its line came."""
        cdef pageset *set = &self.sets[w.x]
        cdef const event_row *r
        cdef int32_t j, before, then
        missing = {set.s[k].pcp.high - w.field[P_HIGH] for k in range(set.n)
                   if set.s[k].pcp.count == w.field[P_COUNT]} if w.field[P_HIGH] >= 0 else ()
        went_on = {0}
        for j in range(set.ticked - 1, max(set.ticked - BEFORE_TICK, 0), -1):
            r = &self.rows[j]
            if r.event != EV_SWITCH or r.cpu != set.cpu:
                continue
            went_on.add(r.a)
            if not r.b or r.c in went_on:
                continue
            before = j - 1
            while before > max(j - BEFORE_TICK, 0) and (self.rows[before].pid != r.c
                                                        or self.rows[before].event == EV_SWITCH):
                before -= 1
            then = self.link[before].own_next
            for k, event, code in ((before, EV_FREE, E_DELAYED), (then, EV_ALLOC, E_IN_FLIGHT)):
                page = index_of(self, self.rows[k].a)
                if page >= 0 and self.rows[k].event == event and self.rows[k].pid == r.c \
                        and self.rows[k].cpu == set.cpu and set_of(self, page, set.cpu) == w.x \
                        and 0 <= self.rows[k].b <= MAX_PAGE_ORDER \
                        and 1 << self.rows[k].b in missing:
                    explain(self, row, code, w.x, j)
                    return True
        return False

    cdef int _note_list(self, const watched *w, int i, int32_t row) except -1:
        """A list of a dump is not the model's: what explains it is a later mm_page_alloc."""
        cdef const page_list *lst = &self.sets[w.x].list[i]
        cdef int32_t p = lst.head, nxt
        cdef Py_ssize_t k
        wanted = {w.pfn[i][k] for k in range(w.length[i])}
        while p >= 0:
            nxt = self.page[p].next
            if p + self.base not in wanted:
                if not in_flight(self, p, row):
                    break
                explain(self, row, E_IN_FLIGHT, w.x, self.page[p].cursor)
                take(self, w.x, p, row, OP_ALLOC, 0, 0)
                await_report(self, p, SHOWN, pindex_to_order(i), pindex_to_only_type(i))
            p = nxt
        if not is_list(self, lst, w.pfn[i], w.length[i]):
            differ(self, row, D_FINAL_LIST, w.x, i, w.length[i])
        return 0

    cdef bint _unlike(self, const watched *w, int i, int32_t row, bint torn,
                      const int64_t[::1] before) except -1:
        """A list of a dump was never the model's while it was taken; is that explained?

        *before*: the list when the dump began.  If it moved since, whoever walked it
        saw pages of both states; what stayed must be there, what was there all in its order, and
        what was freed meanwhile above that, the last first, none between two of them left out.  A
        walk that was carried off to another list (torn) proves nothing.
        """
        cdef const page_list *lst = &self.sets[w.x].list[i]
        cdef int64_t was = self.nr_unexplained, p
        cdef int32_t newest = -1
        cdef int here = 1 + 16 * w.x + i
        cdef Py_ssize_t k, at = 0, seen = -1
        cdef int32_t last = self.nr_rows
        cdef bint good = True
        if not w.moved or is_list(self, lst, &before[0] if before.shape[0] else NULL,
                                  before.shape[0]):
            self._note_list(w, i, row)
            return self.nr_unexplained == was
        there, came = {before[k]: k for k in range(before.shape[0])}, set()
        for k in range(w.length[i]):
            p = index_of(self, w.pfn[i][k])
            if is_told(self, p) and self.page[p].pushed >= row:  # it came meanwhile
                if self.rows[self.page[p].pushed].event != EV_ZONE_LOCKED \
                        and w.pfn[i][k] not in there:
                    good = good and self.page[p].pushed < last and seen < 0
                    last = self.page[p].pushed
                    newest = max(newest, last)
                    came.add(p)
                continue
            good = good and there.get(w.pfn[i][k], -1) > seen
            seen = there.get(w.pfn[i][k], seen)
            if is_told(self, p) and self.page[p].where == here:
                at = self._stayed(before, at, here, row)
                good = good and at < before.shape[0] and before[at] == w.pfn[i][k]
                at += 1
        p = lst.head
        while p >= 0 and self.page[p].pushed >= row:
            good = good and (self.page[p].pushed > newest or p in came
                             or p + self.base in there
                             or self.rows[self.page[p].pushed].event == EV_ZONE_LOCKED)
            p = self.page[p].next
        good = good and self._stayed(before, at, here, row) == before.shape[0]
        if good or torn:
            explain(self, row, E_MOVED, w.x, w.moved)
        else:
            differ(self, row, D_FINAL_LIST, w.x, len(self.list_of(w.x, i)), w.length[i])
        return good or torn

    cdef Py_ssize_t _stayed(self, const int64_t[::1] pages, Py_ssize_t at, int where,
                            int32_t row) noexcept:
        """The place from *at* on of a page that is still on its list, where it was at *row*."""
        cdef const traced_page *page
        while at < pages.shape[0]:
            page = &self.page[pages[at] - self.base]
            if page.where == where and page.pushed < row:
                break
            at += 1
        return at

    @property
    def cut(self):
        """Line at which searches had cost what they may, or None."""
        return None if self.cut_row < 0 else self.rows[self.cut_row].line

    @property
    def tally(self):
        return self.t

# cython: cdivision=True
"""Hint faults over time: threads, CPUs, scanner, page accesses.

What happens at one instant is in ``faults.pxd``; this module decides when.
Every thread that runs in user space touches pages as a Poisson process, page
``i`` of its process with probability ``weight[i]``.  Only accesses that may
trap are simulated: each page whose entry is not accessible has one pending
"next access" of its process, drawn from the exponential distribution for
the fastest possible process and thinned (Lewis and Shedler 1979) by the
chance that the chosen thread is in user space, not in an interrupt, and as
fast as that.  Because the exponential has no memory, a pending access stays
valid when the entry becomes accessible and inaccessible again.

Simultaneous events: thread, CPU and scanner events come before page accesses;
among the former the lower index first, among the latter the lower page first.
``reference.Engine`` is the twin: same draws, same order, same counters.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.math cimport log
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memmove, memset

from pcpmodel.exclusive cimport Exclusive, begin_use, check_idle, end_use
from pcpmodel.kernel.buddy cimport zone, zone_page
from pcpmodel.kernel.memory cimport Memory
from pcpmodel.kernel.page_alloc cimport (
    GFP_NOWAIT, alloc_many, alloc_pages, free_many, free_pages, memory,
)
from pcpmodel.kernel.pages cimport MIGRATE_MOVABLE, pages_arena
from pcpmodel.numa.faults cimport (
    PAGE_HELD, PAGE_QUEUED, PAGE_REFUSED, PAGE_TARGET, PTE_ACC, PTE_MASK,
    STEP_FAULT, STEP_HIT, STEP_ISOLATED, STEP_MAPPED, STEP_RELOCK, STEP_RETRY,
    numa_access, numa_counts_dict, numa_fault, numa_finish, numa_machine,
    numa_machine_free, numa_machine_new, numa_relock, numa_scan_begin, numa_scan_end,
    numa_scan_flush, numa_scan_page, numa_thread, numa_unmap,
)
from pcpmodel.splitmix cimport draw

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) noexcept nogil

ctypedef unsigned long long u64
ctypedef long long i64

cdef enum:
    # What a thread does.
    USER = 0  # user space; on a CPU or waiting for one
    FAULT = 1  # kernel entry up to the isolation
    RELOCK = 2  # after a refused migration
    ISOLATE = 3  # page isolated and allocated, not yet unmapped
    UNMAP = 4  # unmapping and flushing
    COPY = 5  # copying and mapping again
    WAIT = 6  # asleep on a migration entry
    WAKE = 7  # being woken
    RETRY = 8  # about to repeat an access
    SCAN = 9  # task_numa_work(), changing PTEs
    SCAN_FLUSH = 10  # its flush

    SUB_BITS = 9  # the sort cuts a bucket in 512
    SUBS = 512
    CHUNK = 63  # entries in a calendar chunk: 512 bytes with its header
    NEAR_BITS = 8  # a group of the calendar is 256 buckets
    NEAR = 256
    SCAN_CHUNK = 512  # PTEs under one page-table lock
    SERIES = 5  # numbers of a sample
    ZONE_MOVABLE = 3
    AHEAD = 16  # accesses that the memory of a page is asked for in advance

cdef i64 NEVER = 0x7fffffffffffffff

# Least and most of what the engine counts, and of what leads somewhere; the rest are times [ns].
_RANGES = {
    "rules": (0, 7), "processes": (1, 1 << 12), "threads": (1, 1 << 8), "cpus": (1, 1 << 12),
    "pages": (1, 1 << 28), "node0_pages": (0, 1 << 31), "node1_pages": (0, 1 << 31),
    "eater_pages": (0, 1 << 31), "end_ns": (1, 1 << 50), "sample_ns": (1, 1 << 50),
    "slice_ns": (1, 1 << 50), "tick_ns": (1, 1 << 50), "scan_pages": (1, 1 << 31),
    "scan_period_min_ns": (1, 1 << 50), "scan_period_max_ns": (1, 1 << 50),
    "access_ns": (1e-3, 1e9), "refused_share": (0, 1), "unmap_failed_share": (0, 1),
    "seed": (0, (1 << 64) - 1),
}


def _check(config):
    """Every number of a run is in its range, or ValueError."""
    for name, (least, most) in _RANGES.items():
        if not least <= config[name] <= most:
            raise ValueError(f"{name}={config[name]!r} is outside {least}..{most}")
    for name, value in config.items():
        if name.endswith("_ns") and not 0 <= value <= 1 << 50:
            raise ValueError(f"{name}={value!r} is outside 0..{1 << 50}")
    if config["processes"] * config["pages"] > 1 << 30:
        raise ValueError(f"processes={config['processes']} of pages={config['pages']} are too many")
    if (config["end_ns"] - 1) // config["sample_ns"] > 1 << 20:
        raise ValueError(f"sample_ns={config['sample_ns']}: more than {1 << 20} samples")


cdef struct chunk:
    i64 next  # previous, full chunk of this bucket; -1: none
    u64 entry[CHUNK]  # offset in the group << 32 | page


cdef struct bucket_t:
    int last  # chunk that is being filled; -1: none
    int n  # entries in it: here, as the chunk itself misses all caches
    int full  # chunks before it


cdef struct event_t:
    i64 time  # [ns], NEVER: none
    int what  # thread, or leaf of the tree; of two at the same time the lower comes first


cdef struct costs_t:
    i64 fault, relock, isolate, unmap, copy, wake
    i64 flush_base, flush_target, flush_local, ipi
    i64 scan_pte, scan_skip
    double access, remote  # of one local access; extra of a remote one


cdef struct walker:
    # What the engine knows of a thread beyond ``numa_thread``.
    int phase
    int sleeping
    int on_cpu
    int after  # thread whose turn on its CPU is next
    i64 busy_until  # end of the last interrupt [ns]
    i64 flush_ns  # time of the unmap phase under way
    i64 hold  # page whose next access this thread keeps, -1: none
    int held  # where among those kept
    # Scanner side of the task.
    i64 period  # numa_scan_period [ns]
    i64 due  # node_stamp as wall time [ns]
    int seen_seq  # numa_scan_seq at the last update
    i64 scan_left, virt_left  # PTEs still to change, to look at
    i64 call_updates  # PTEs changed by this change_prot_numa() call
    i64 call_left
    i64 scan_start


cdef struct process_t:
    i64 last  # time up to which is settled [ns]
    int user  # threads in user space on a CPU
    int waiting  # threads asleep on a migration entry
    double remote  # probability that an access is remote
    double accesses
    double busy_ns
    i64 next_scan
    int scan_offset  # page index
    int scan_seq
    int scanning  # thread that scans, -1: none


cdef struct cpu_t:
    int current  # thread, -1: idle (lazy)
    int nthreads
    int need_resched


cdef long node_alloc(void* ctx, int node, int cpu) noexcept nogil:
    """alloc_misplaced_dst_page(): order 0, movable, this node only, no reclaim."""
    return alloc_pages((<memory**>ctx)[node], cpu, 0, MIGRATE_MOVABLE, GFP_NOWAIT, ZONE_MOVABLE)


cdef void node_free(void* ctx, int node, int cpu, long frame) noexcept nogil:
    free_pages((<memory**>ctx)[node], cpu, <u64>frame, 0, False)


cdef long node_nr_free(void* ctx, int node) noexcept nogil:
    return (<memory**>ctx)[node].zone[0].nr_free


@cython.final
@cython.auto_pickle(False)
cdef class Engine(Exclusive):
    """One run.

    Parameters
    ----------
    config : mapping
        All numbers of a run; see ``parameters.Experiment.config``.
    weight : (N,) float64
        Probability of each page of a process, sum 1.
    nodes : pair of pcpmodel.kernel.memory.Memory
        See ``pcpmodel.numa.nodes``.
    """

    cdef numa_machine* m
    cdef Memory other, target  # memory of node 0 and 1
    cdef memory* nodes[2]
    cdef walker* walk
    cdef process_t* proc
    cdef cpu_t* cpus
    cdef costs_t cost
    cdef double* weight
    cdef double* mean  # of the time to the next access of each page [ns]
    cdef int64_t* eater
    cdef i64 eater_pages, eater_kill
    cdef int nt, np_, nc
    cdef int T  # threads of a process
    cdef u64 pages_inverse  # 2^pages_shift / npages, rounded up
    cdef int pages_shift
    cdef i64 end, now, slice_ns, tick
    cdef i64 scan_pages, period_min, period_max
    cdef double fail_share
    cdef uint64_t rng
    # Winner tree over time slices, scans, the eater and samples, in this order.
    cdef int leaves
    cdef event_t* node  # 1: what comes first; from ``leaves`` on when each event comes
    # Events of threads in the kernel, the next one last; before all of them NEVER.
    cdef event_t* due
    cdef int ndue
    # Accesses that threads keep, in no order: most are forgotten before they come.
    cdef event_t* held
    cdef int nheld
    cdef i64 held_first  # none of them comes before
    # Calendar.
    cdef i64 nbuckets, bucket
    cdef i64 begin  # of the group that is being served [ns]
    cdef int shift  # a bucket is 2^shift ns
    cdef bucket_t* groups  # accesses of a group's buckets together, before it is begun
    cdef bucket_t near[NEAR]  # buckets of the group that is being served
    cdef chunk* chunks
    cdef int nchunks, free_chunk
    cdef u64* buf
    cdef u64* tmp
    cdef long nbuf, cap_buf, cursor
    # Counters beyond numa_counts.
    cdef i64 unmap_ns, refaults, window_hits, candidates, events
    cdef i64 interrupt_ns
    # Series: one row per sample.
    cdef double* series
    cdef i64 sample_ns
    cdef int nsamples, taken

    def __cinit__(self, config, const double[::1] weight, nodes):
        cdef int i, t
        cdef long j
        c = config
        _check(c)
        self.T = c["threads"]
        self.np_ = c["processes"]
        self.nt = self.np_ * self.T
        self.nc = c["cpus"]
        cdef int npages = c["pages"]
        if weight.shape[0] != npages:
            raise ValueError(f"weight has {weight.shape[0]} entries, pages={npages}")
        for j in range(npages):
            if not 0 <= weight[j] <= 1:
                raise ValueError(f"weight[{j}]={weight[j]} is outside 0..1")
        self.m = numa_machine_new(c["rules"], self.np_, self.T, npages, c["watermarks"][2])
        self.other, self.target = nodes
        if self.other is None or self.target is None or self.other is self.target:
            raise ValueError("nodes are not two memories")
        if self.other.mm.nr_cpus < self.nc or self.target.mm.nr_cpus < self.nc:
            raise ValueError(f"nodes have fewer CPUs than cpus={self.nc}")
        self.nodes[0] = &self.other.mm
        self.nodes[1] = &self.target.mm
        self.m.memory.ctx = self.nodes
        self.m.memory.alloc = node_alloc
        self.m.memory.free = node_free
        self.m.memory.nr_free = node_nr_free
        self.walk = <walker*>calloc(self.nt, sizeof(walker))
        self.proc = <process_t*>calloc(self.np_, sizeof(process_t))
        self.cpus = <cpu_t*>calloc(self.nc, sizeof(cpu_t))
        self.weight = <double*>pages_arena(npages * sizeof(double))
        self.mean = <double*>pages_arena(npages * sizeof(double))
        self.pages_shift = 30
        while 1 << (self.pages_shift - 30) < npages:
            self.pages_shift += 1
        self.pages_inverse = (<u64>1 << self.pages_shift) // <u64>npages + 1
        self.leaves = 1
        while self.leaves < self.nc + self.np_ + 2:
            self.leaves *= 2
        self.node = <event_t*>malloc(2 * self.leaves * sizeof(event_t))
        self.due = <event_t*>malloc((self.nt + 1) * sizeof(event_t))
        self.held = <event_t*>malloc(self.nt * sizeof(event_t))
        self.end = c["end_ns"]
        # About 2^17 buckets: each fits the L2 cache, and few accesses come so soon that
        # they belong into the bucket being served.  What is filled at a time, a few hundred
        # groups and the buckets of one, stays in the caches.
        self.shift = SUB_BITS
        while self.end >> self.shift > 1 << 17 and self.shift < 32 - NEAR_BITS:
            self.shift += 1
        self.nbuckets = (self.end >> self.shift) + 1
        cdef long ngroups = (self.nbuckets >> NEAR_BITS) + 1
        self.groups = <bucket_t*>malloc(ngroups * sizeof(bucket_t))
        # Full ones of all pages, one that is not of each bucket and group, and one that is
        # being emptied; memory is taken when first touched.
        self.chunks = <chunk*>pages_arena(
            (<size_t>self.np_ * npages // CHUNK + ngroups + NEAR + 1) * sizeof(chunk)
        )
        self.cap_buf = 4096
        self.buf = <u64*>malloc(self.cap_buf * sizeof(u64))
        self.tmp = <u64*>malloc(self.cap_buf * sizeof(u64))
        self.sample_ns = c["sample_ns"]
        self.nsamples = <int>((self.end - 1) // self.sample_ns)
        self.series = <double*>malloc(max(1, self.nsamples * SERIES) * sizeof(double))
        self.eater_pages = c["eater_pages"]
        self.eater = <int64_t*>pages_arena(self.eater_pages * sizeof(int64_t))
        if (self.walk == NULL or self.proc == NULL or self.cpus == NULL or self.weight == NULL
                or self.mean == NULL or self.node == NULL or self.due == NULL
                or self.held == NULL or self.groups == NULL
                or self.chunks == NULL or self.buf == NULL or self.tmp == NULL
                or self.eater == NULL or self.series == NULL):
            raise MemoryError
        self.free_chunk = -1
        self.cost.fault = c["fault_ns"]
        self.cost.relock = c["relock_ns"]
        self.cost.isolate = c["isolate_ns"]
        self.cost.unmap = c["unmap_ns"]
        self.cost.copy = c["copy_ns"]
        self.cost.wake = c["wake_ns"]
        self.cost.flush_base = c["flush_base_ns"]
        self.cost.flush_target = c["flush_target_ns"]
        self.cost.flush_local = c["flush_local_ns"]
        self.cost.ipi = c["ipi_ns"]
        self.cost.scan_pte = c["scan_pte_ns"]
        self.cost.scan_skip = c["scan_skip_ns"]
        self.cost.access = c["access_ns"]
        self.cost.remote = c["remote_extra_ns"]
        self.eater_kill = c["eater_kill_ns"]
        self.slice_ns = c["slice_ns"]
        self.tick = c["tick_ns"]
        self.scan_pages = c["scan_pages"]
        self.period_min = c["scan_period_min_ns"]
        self.period_max = c["scan_period_max_ns"]
        self.fail_share = c["unmap_failed_share"]
        self.rng = c["seed"]
        for j in range(npages):
            self.weight[j] = weight[j]
            self.mean[j] = self.cost.access / (self.T * weight[j]) if weight[j] > 0 else 1e300
        self.clear_events()
        for j in range(ngroups):
            self.groups[j] = bucket_t(last=-1, n=0, full=0)
        for j in range(NEAR):
            self.near[j] = bucket_t(last=-1, n=0, full=0)
        self.place(c["watermarks"][1], c["refused_share"])
        for i in range(self.nc):
            self.cpus[i].current = -1
        for i in range(self.nt):  # spread every process over the CPUs
            t = self.thread_at(i)
            self.m.thread[t].cpu = i % self.nc
            self.cpus[i % self.nc].nthreads += 1
            self.walk[t].after = self.thread_at(i + self.nc if i + self.nc < self.nt
                                                else i % self.nc)
            self.walk[t].hold = -1
            self.walk[t].period = self.period_min
        for i in range(self.np_):
            self.proc[i].scanning = -1
            # Processes start one after the other, not in step.
            self.proc[i].next_scan = <i64>(self.uniform() * self.period_min)
            self.set_key(self.nc + i, self.proc[i].next_scan)
        for i in range(self.nc):
            self.switch_to(i, self.thread_at(i) if i < self.nt else -1)
            if self.cpus[i].nthreads > 1:
                self.set_key(i, <i64>(self.uniform() * self.slice_ns) + 1)
        if self.eater_pages > 0:
            self.set_key(self.nc + self.np_, self.eater_kill)
        if self.nsamples:
            self.set_key(self.nc + self.np_ + 1, self.sample_ns)

    def __dealloc__(self):
        numa_machine_free(self.m)
        free(self.walk)
        free(self.proc)
        free(self.cpus)
        free(self.weight)
        free(self.mean)
        free(self.node)
        free(self.due)
        free(self.held)
        free(self.groups)
        free(self.chunks)
        free(self.buf)
        free(self.tmp)
        free(self.eater)
        free(self.series)

    # Randomness -------------------------------------------------------------

    cdef inline double uniform(self) noexcept nogil:
        """In (0, 1)."""
        return (<double>(draw(&self.rng) >> 11) + 0.5) * (1.0 / 9007199254740992.0)

    cdef inline unsigned int process_of(self, unsigned int g) noexcept nogil:
        """``g // npages`` of g < 2^30, without a division (Granlund and Montgomery 1994)."""
        return <unsigned int>(g * self.pages_inverse >> self.pages_shift)

    cdef inline i64 next_access(self, unsigned int i) noexcept nogil:
        """When somebody touches page ``i`` of a process next, at the earliest."""
        cdef double d = -log(self.uniform()) * self.mean[i]
        if d >= <double>(self.end - self.now):
            return NEVER
        return self.now + <i64>d + 1

    # Placement --------------------------------------------------------------

    cdef int place(self, long low_wmark, double refused_share) except -1:
        """First touch in address order, all processes abreast; the eater came first."""
        cdef long i, p
        cdef int node
        cdef long frame
        cdef unsigned int g
        if alloc_many(
            self.nodes[1], 0, 0, MIGRATE_MOVABLE, GFP_NOWAIT, ZONE_MOVABLE, self.eater_pages,
            self.eater,
        ) < self.eater_pages:
            raise ValueError("eater does not fit")
        for p in range(self.m.npages):
            for i in range(self.np_):
                node = self.m.memory.nr_free(self.m.memory.ctx, 1) > low_wmark
                frame = self.m.memory.alloc(self.m.memory.ctx, node, i % self.nc)
                if frame < 0:
                    node = 0
                    frame = self.m.memory.alloc(self.m.memory.ctx, 0, i % self.nc)
                if frame < 0:
                    raise ValueError("memory full")
                g = <unsigned int>(i * self.m.npages + p)
                self.m.frame[g] = <unsigned int>frame
                if node:
                    self.m.page[g] = PAGE_TARGET
                else:
                    self.proc[i].remote += self.weight[p]
                if refused_share > 0 and self.uniform() < refused_share:
                    self.m.page[g] |= PAGE_REFUSED
        return 0

    # Events but page accesses ---------------------------------------------------

    cdef void clear_events(self) noexcept nogil:
        cdef int i
        for i in range(self.leaves):
            self.node[self.leaves + i] = event_t(time=NEVER, what=i)
        for i in range(self.leaves - 1, 0, -1):
            self.node[i] = self.node[2 * i]
        self.due[0] = event_t(time=NEVER, what=-1)
        self.ndue = self.nheld = 0
        self.held_first = NEVER

    cdef inline void set_key(self, int leaf, i64 time) noexcept nogil:
        """Let an event come at ``time``: it plays against the winner of each other side."""
        cdef size_t i = self.leaves + leaf
        cdef event_t first = event_t(time=time, what=leaf)
        cdef event_t other
        self.node[i].time = time
        while i > 1:
            other = self.node[i ^ 1]
            # On the left, where the lower ones are, the other wins a draw too.
            if other.time - <i64>(i & 1) < first.time:
                first = other
            i >>= 1
            self.node[i] = first

    cdef inline void put_due(self, int i, event_t event) noexcept nogil:
        """Put an event into the gap ``i`` of those that are due, or later than that.

        Few threads are in the kernel at a time, and what begins now ends soon.
        """
        while self.due[i - 1].time < event.time or (
            self.due[i - 1].time == event.time and self.due[i - 1].what < event.what
        ):
            self.due[i] = self.due[i - 1]
            i -= 1
        self.due[i] = event

    cdef inline void set_due(self, int t, i64 time) noexcept nogil:
        """Let the next event of thread ``t``, which has none, come at ``time``."""
        self.ndue += 1
        self.put_due(self.ndue, event_t(time=time, what=t))

    cdef inline void delay(self, int t, i64 ns) noexcept nogil:
        """Let the event of thread ``t``, if it has one, come later."""
        cdef int i = self.ndue
        while i > 0 and self.due[i].what != t:
            i -= 1
        if i > 0:
            self.put_due(i, event_t(time=self.due[i].time + ns, what=t))

    cdef inline void hold(self, int t, unsigned int g, i64 time) noexcept nogil:
        """Thread ``t`` keeps the next access of page ``g``."""
        self.walk[t].hold = g
        self.walk[t].held = self.nheld
        self.held[self.nheld] = event_t(time=time, what=t)
        self.nheld += 1
        if time < self.held_first:
            self.held_first = time

    cdef inline i64 unhold(self, int t) noexcept nogil:
        """Take the access that thread ``t`` keeps from it; when it comes."""
        cdef int i = self.walk[t].held
        cdef i64 time = self.held[i].time
        self.nheld -= 1
        self.held[i] = self.held[self.nheld]
        self.walk[self.held[i].what].held = i
        self.walk[t].hold = -1
        return time

    cdef int next_held(self) noexcept nogil:
        """Thread that keeps the next access, -1: none; now known is when it comes."""
        cdef int i, t = -1
        self.held_first = NEVER
        for i in range(self.nheld):
            if self.held[i].time < self.held_first or (
                self.held[i].time == self.held_first and self.held[i].what < t
            ):
                self.held_first = self.held[i].time
                t = self.held[i].what
        return t

    # Calendar of page accesses ------------------------------------------------

    cdef int queue(self, unsigned int g, i64 time) except -1 nogil:
        """Remember the next access of page ``g``; beyond the end it never comes."""
        cdef i64 b
        cdef u64 entry
        cdef long lo, hi, mid
        if time >= self.end:
            return 0
        b = time >> self.shift
        entry = (<u64>(time & ((<i64>NEAR << self.shift) - 1)) << 32) | g
        if b == self.bucket:  # being served: insert in order, never before the cursor
            if self.nbuf == self.cap_buf:
                self.grow_buf(self.nbuf + 1)
            lo = self.cursor
            hi = self.nbuf
            while lo < hi:
                mid = (lo + hi) >> 1
                if self.buf[mid] < entry:
                    lo = mid + 1
                else:
                    hi = mid
            memmove(&self.buf[lo + 1], &self.buf[lo], (self.nbuf - lo) * sizeof(u64))
            self.buf[lo] = entry
            self.nbuf += 1
            return 0
        if b >> NEAR_BITS == self.bucket >> NEAR_BITS:
            self.add(&self.near[b & (NEAR - 1)], entry)
        else:
            self.add(&self.groups[b >> NEAR_BITS], entry)
        return 0

    cdef inline void add(self, bucket_t* k, u64 entry) noexcept nogil:
        cdef int c
        if k.last < 0 or k.n == CHUNK:
            c = self.new_chunk()
            self.chunks[c].next = k.last
            k.full = k.full + 1 if k.last >= 0 else 0
            k.last = c
            k.n = 0
        self.chunks[k.last].entry[k.n] = entry
        k.n += 1

    cdef inline void ask(self, unsigned int g) noexcept nogil:
        """Page words miss all caches: without this an access took twice as long."""
        prefetch(&self.m.page[g])
        prefetch(&self.mean[g - self.process_of(g) * <unsigned int>self.m.npages])

    cdef inline int new_chunk(self) noexcept nogil:
        """One that is free: a page has one entry at most, so there are always enough."""
        cdef int c = self.free_chunk
        if c >= 0:
            self.free_chunk = <int>self.chunks[c].next
            return c
        c = self.nchunks
        self.nchunks += 1
        return c

    cdef int grow_buf(self, long need) except -1 nogil:
        cdef long cap = self.cap_buf
        cdef u64* a
        cdef u64* b
        while cap < need:
            cap *= 2
        a = <u64*>realloc(self.buf, cap * sizeof(u64))
        if a != NULL:
            self.buf = a
        b = <u64*>realloc(self.tmp, cap * sizeof(u64))
        if b != NULL:
            self.tmp = b
        if a == NULL or b == NULL:
            with gil:
                raise MemoryError
        self.cap_buf = cap
        return 0

    cdef inline int emptied(self, int c) noexcept nogil:
        """Chunk ``c`` is free; the next one of its bucket, whose own next is asked for."""
        cdef int after = <int>self.chunks[c].next
        self.chunks[c].next = self.free_chunk
        self.free_chunk = c
        if after >= 0 and self.chunks[after].next >= 0:
            prefetch(&self.chunks[self.chunks[after].next])
        return after

    cdef void load_group(self, bucket_t* k) noexcept nogil:
        """Give the entries of a group to its buckets."""
        cdef int c = k.last, n = k.n, i
        cdef u64 entry
        while c >= 0:
            for i in range(n):
                entry = self.chunks[c].entry[i]
                self.add(&self.near[entry >> (32 + self.shift)], entry)
            c = self.emptied(c)
            n = CHUNK
        k.last = -1

    cdef int load_bucket(self, i64 b) except -1 nogil:
        """Take the entries of bucket ``b`` in order of time, then page.

        A counting sort into about as many parts as there are entries, at most 512, and an
        insertion sort: two passes over data in the L2 cache instead of n log n compares.
        """
        cdef unsigned int count[SUBS]
        cdef unsigned int part, before, total = 0, parts = 1
        cdef long i, j, n
        cdef int c, filled
        cdef u64 entry
        cdef int low = 32 + self.shift
        cdef bucket_t* k = &self.near[b & (NEAR - 1)]
        self.bucket = b
        self.nbuf = self.cursor = 0
        if b & (NEAR - 1) == 0:
            self.begin = b << self.shift
            self.load_group(&self.groups[b >> NEAR_BITS])
        if k.last < 0:
            return 0
        n = k.full * <long>CHUNK + k.n
        if n > self.cap_buf:
            self.grow_buf(n)
        while parts < n and parts < SUBS:
            parts *= 2
            low -= 1
        memset(count, 0, parts * sizeof(unsigned int))
        c = k.last
        filled = k.n
        j = 0
        while c >= 0:
            for i in range(filled):
                entry = self.chunks[c].entry[i]
                self.tmp[j] = entry
                j += 1
                count[(entry >> low) & (parts - 1)] += 1
            c = self.emptied(c)
            filled = CHUNK
        k.last = -1
        for part in range(parts):
            before = total
            total += count[part]
            count[part] = before
        for i in range(n):
            part = (self.tmp[i] >> low) & (parts - 1)
            self.buf[count[part]] = self.tmp[i]
            count[part] += 1
        for i in range(1, n):
            entry = self.buf[i]
            j = i
            while j > 0 and self.buf[j - 1] > entry:
                self.buf[j] = self.buf[j - 1]
                j -= 1
            self.buf[j] = entry
        self.nbuf = n
        for i in range(min(n, AHEAD)):
            self.ask(<unsigned int>self.buf[i])
        return 0

    # Time and CPUs -------------------------------------------------------------

    cdef inline double access_ns(self, int mm) noexcept nogil:
        return self.cost.access + self.cost.remote * self.proc[mm].remote

    cdef inline void settle(self, int mm) noexcept nogil:
        """Book the accesses and CPU time of process ``mm`` up to now."""
        cdef process_t* p = &self.proc[mm]
        cdef double dt = <double>(self.now - p.last)
        if dt > 0:
            p.accesses += p.user * dt / self.access_ns(mm)
            p.busy_ns += self.m.running[mm] * dt
            p.last = self.now

    cdef void interrupt(self, int t_from, int mm) noexcept nogil:
        """TLB shootdown: every CPU that runs ``mm``, but the sender's, is interrupted.

        Who runs, and in user space, is as good as random: the loop multiplies by 0 or 1
        where branches would be guessed wrong.
        """
        cdef int t
        cdef walker* w
        cdef i64 ipi = self.cost.ipi
        cdef double lost = ipi / self.access_ns(mm)  # accesses
        cdef bint hit, user
        for t in range(mm * self.T, (mm + 1) * self.T):
            w = &self.walk[t]
            hit = w.on_cpu & (t != t_from)
            user = hit & (w.phase == USER)
            self.interrupt_ns += hit * ipi
            w.busy_until += user * (ipi + (w.busy_until if w.busy_until > self.now else self.now)
                                    - w.busy_until)
            self.proc[mm].accesses -= user * lost
            if hit > user:
                self.delay(t, ipi)

    cdef int switch_to(self, int cpu, int t) except -1 nogil:
        """Run thread ``t`` on ``cpu``; -1: idle, the last mm stays loaded but lazy."""
        cdef int old = self.cpus[cpu].current
        cdef int mm
        self.cpus[cpu].need_resched = 0
        if old == t:
            return 0
        if old >= 0:
            mm = self.m.thread[old].mm
            self.settle(mm)
            self.m.running[mm] -= 1
            self.walk[old].on_cpu = 0
            if self.walk[old].phase == USER:
                self.proc[mm].user -= 1
        self.cpus[cpu].current = t
        if t >= 0:
            mm = self.m.thread[t].mm
            self.settle(mm)
            self.m.running[mm] += 1
            self.walk[t].on_cpu = 1
            if self.walk[t].phase == USER:
                self.proc[mm].user += 1
            elif self.walk[t].phase == RETRY:
                self.to_user(t, True)
            elif self.walk[t].phase == SCAN:
                self.walk[t].scan_start += self.now  # without the time that others ran
                self.scan_chunk(t)
        return 0

    cdef int scan_resched(self, int t) except -1 nogil:
        """cond_resched() of change_pmd_range(): the range stays begun while others run."""
        cdef int cpu = self.m.thread[t].cpu
        cdef int other = self.pick_next(cpu)
        if other == t:
            self.cpus[cpu].need_resched = 0
            return self.scan_chunk(t)
        self.walk[t].scan_start -= self.now
        return self.switch_to(cpu, other)

    cdef inline int thread_at(self, int i) noexcept nogil:
        """Thread ``i`` counted across the processes: first of each, second of each, ..."""
        return (i % self.np_) * self.T + i // self.np_

    cdef int pick_next(self, int cpu) noexcept nogil:
        """Next thread of ``cpu`` in round-robin order that can run, -1: none."""
        cdef int cur = self.cpus[cpu].current
        cdef int t = self.walk[cur].after if cur >= 0 else self.thread_at(cpu)
        cdef int _k
        for _k in range(self.cpus[cpu].nthreads):
            if not self.walk[t].sleeping:
                return t
            t = self.walk[t].after
        return -1

    # Threads --------------------------------------------------------------------

    cdef int to_user(self, int t, bint again) except -1 nogil:
        """Return from the kernel; ``again``: the access is repeated at once."""
        cdef walker* w = &self.walk[t]
        cdef int mm = self.m.thread[t].mm
        cdef int cpu = self.m.thread[t].cpu
        self.release(t)
        self.settle(mm)
        w.phase = USER
        self.proc[mm].user += 1
        if again and numa_access(self.m, t, self.m.thread[t].page) == STEP_FAULT:
            self.refaults += 1
            self.enter_fault(t)
            return 0
        if self.cpus[cpu].need_resched:
            self.switch_to(cpu, self.pick_next(cpu))
        return 0

    cdef inline void enter_fault(self, int t) noexcept nogil:
        cdef int mm = self.m.thread[t].mm
        self.settle(mm)
        self.proc[mm].user -= 1
        self.walk[t].phase = FAULT
        self.set_due(t, self.now + self.cost.fault)

    cdef int release(self, int t) except -1 nogil:
        """Give the access that thread ``t`` kept back to the calendar, if still needed."""
        cdef i64 g = self.walk[t].hold
        cdef i64 time
        if g < 0:
            return 0
        time = self.unhold(t)
        self.m.page[g] &= ~<unsigned int>PAGE_HELD
        if (self.m.page[g] & PTE_MASK) != PTE_ACC:
            self.m.page[g] |= PAGE_QUEUED
            self.queue(<unsigned int>g, time)
        return 0

    cdef inline int toucher(self, int mm) noexcept nogil:
        """Thread that makes the candidate access of process ``mm``, -1: it does not happen."""
        cdef u64 number = draw(&self.rng)
        cdef int t = mm * self.T + <int>(
            number & (self.T - 1) if self.T & (self.T - 1) == 0 else number % <u64>self.T
        )
        self.candidates += 1
        # Bitwise: one branch is guessed wrong once at most.
        if (self.walk[t].phase != USER) | (self.walk[t].on_cpu == 0) | (
                self.walk[t].busy_until > self.now):
            return -1
        if (self.proc[mm].remote > 0
                and self.uniform() * self.access_ns(mm) > self.cost.access):
            return -1
        return t

    cdef int calendar_access(self, unsigned int g) except -1 nogil:
        cdef int t, mm
        cdef unsigned int i
        if (self.m.page[g] & PTE_MASK) == PTE_ACC:
            self.m.page[g] &= ~<unsigned int>PAGE_QUEUED
            return 0
        mm = self.process_of(g)
        i = g - mm * <unsigned int>self.m.npages
        t = self.toucher(mm)
        if t < 0:  # its page stays as it is
            return self.queue(g, self.next_access(i))
        self.m.page[g] = (self.m.page[g] & ~<unsigned int>PAGE_QUEUED) | PAGE_HELD
        numa_access(self.m, t, g)
        self.hold(t, g, self.next_access(i))
        self.enter_fault(t)
        return 0

    cdef int held_access(self, int owner) except -1 nogil:
        """Somebody touches a page that ``owner`` is dealing with."""
        cdef unsigned int g = <unsigned int>self.walk[owner].hold
        cdef int mm = self.m.thread[owner].mm
        cdef int t = self.toucher(mm)
        if t >= 0:
            if numa_access(self.m, t, g) == STEP_HIT:
                self.window_hits += 1
            else:
                self.enter_fault(t)
        self.unhold(owner)
        self.hold(owner, g, self.next_access(g - mm * <unsigned int>self.m.npages))
        return 0

    cdef int thread_event(self, int t) except -1 nogil:
        """Thread ``t`` has finished a stretch of kernel code."""
        cdef walker* w = &self.walk[t]
        cdef numa_thread* th = &self.m.thread[t]
        cdef zone* old
        cdef int step, targets, mm = th.mm
        cdef bint moved
        if w.phase == FAULT or w.phase == RELOCK:
            if w.phase == FAULT:
                step = numa_fault(self.m, t)
            else:
                step = numa_relock(self.m, t)
            if step == STEP_MAPPED:
                self.placement(t)
                self.to_user(t, False)
            elif step == STEP_RETRY:
                self.to_user(t, True)
            elif step == STEP_RELOCK:
                w.phase = RELOCK
                self.set_due(t, self.now + self.cost.relock)
            elif step == STEP_ISOLATED:
                prefetch(&self.m.frame[th.page])  # for the next phase, and then the last
                prefetch(&self.weight[th.page - mm * <unsigned int>self.m.npages])
                w.phase = ISOLATE
                self.set_due(t, self.now + self.cost.isolate)
            else:
                w.phase = WAIT
                w.sleeping = 1
                self.proc[mm].waiting += 1
                self.switch_to(th.cpu, self.pick_next(th.cpu))
        elif w.phase == ISOLATE:
            self.settle(mm)
            targets = numa_unmap(self.m, t)
            old = &self.nodes[0].zone[0]
            prefetch(&old.page[zone_page(old, self.m.frame[th.page])])
            w.phase = UNMAP
            w.flush_ns = self.cost.unmap + self.flush(t, mm, targets)
            w.scan_start = self.now
            self.set_due(t, self.now + w.flush_ns)
        elif w.phase == UNMAP:
            self.unmap_ns += self.now - w.scan_start
            w.phase = COPY
            self.set_due(t, self.now + self.cost.copy)
        elif w.phase == COPY:
            moved = self.fail_share <= 0 or self.uniform() >= self.fail_share
            self.settle(mm)
            numa_finish(self.m, t, moved)
            if moved:
                self.proc[mm].remote -= self.weight[th.page - mm * <unsigned int>self.m.npages]
            self.placement(t)
            if self.proc[mm].waiting:
                self.wake(mm, th.page)
            self.to_user(t, False)
        elif w.phase == WAKE:
            w.sleeping = 0
            w.phase = RETRY
            if self.cpus[th.cpu].current < 0:
                self.switch_to(th.cpu, t)
        elif w.phase == SCAN:
            if self.cpus[th.cpu].need_resched:
                self.scan_resched(t)
            else:
                self.scan_chunk(t)
        elif w.phase == SCAN_FLUSH:
            numa_scan_end(self.m, mm)
            self.scan_call_done(t)
        return 0

    cdef void wake(self, int mm, unsigned int g) noexcept nogil:
        cdef int t
        for t in range(mm * self.T, (mm + 1) * self.T):
            if self.walk[t].phase == WAIT and self.m.thread[t].page == g:
                self.proc[mm].waiting -= 1
                self.walk[t].phase = WAKE
                self.set_due(t, self.now + self.cost.wake)

    cdef i64 flush(self, int t, int mm, int targets) noexcept nogil:
        """Time of a flush that interrupts ``targets`` CPUs; they are interrupted."""
        if targets < 0:
            return 0
        if targets == 0:
            return self.cost.flush_local
        self.interrupt(t, mm)
        return self.cost.flush_base + targets * self.cost.flush_target

    # Scanner ----------------------------------------------------------------------

    cdef int scan_event(self, int mm) except -1 nogil:
        """The tick of a running task finds that the process is due for a scan."""
        cdef process_t* p = &self.proc[mm]
        cdef int t, n = 0, pick = -1
        cdef int leaf = self.nc + mm
        cdef i64 due = NEVER
        if self.now < p.next_scan:  # slowed down meanwhile
            self.set_key(leaf, p.next_scan)
            return 0
        for t in range(mm * self.T, (mm + 1) * self.T):
            if self.walk[t].due < due:
                due = self.walk[t].due
            if self.walk[t].phase == USER and self.walk[t].on_cpu and self.walk[t].due <= self.now:
                n += 1
                if draw(&self.rng) % <u64>n == 0:
                    pick = t
        if pick < 0:
            self.set_key(leaf, due if due > self.now + self.tick else self.now + self.tick)
            return 0
        self.settle(mm)
        p.user -= 1
        p.scanning = pick
        p.next_scan = self.now + self.walk[pick].period
        self.set_key(leaf, NEVER)
        self.walk[pick].scan_left = self.scan_pages
        self.walk[pick].virt_left = 8 * self.scan_pages
        self.walk[pick].scan_start = self.now
        self.walk[pick].phase = SCAN
        self.scan_call(pick)
        return 0

    cdef int scan_call(self, int t) except -1 nogil:
        """Start one change_prot_numa() call."""
        cdef walker* w = &self.walk[t]
        cdef process_t* p = &self.proc[self.m.thread[t].mm]
        cdef i64 left = self.m.npages - p.scan_offset
        w.call_left = w.scan_left if w.scan_left < left else left
        w.virt_left -= w.call_left
        w.call_updates = 0
        numa_scan_begin(self.m, self.m.thread[t].mm)
        return self.scan_chunk(t)

    cdef int scan_chunk(self, int t) except -1 nogil:
        """PTEs of one page table, or the flush once the range is done."""
        cdef walker* w = &self.walk[t]
        cdef int mm = self.m.thread[t].mm
        cdef process_t* p = &self.proc[mm]
        cdef unsigned int g, start = <unsigned int>(mm * self.m.npages)
        cdef unsigned int first = start + <unsigned int>p.scan_offset
        cdef i64 n = SCAN_CHUNK - p.scan_offset % SCAN_CHUNK
        cdef i64 updated = 0
        cdef int targets
        if w.call_left == 0:
            self.settle(mm)
            targets = numa_scan_flush(self.m, mm, w.call_updates > 0)
            w.phase = SCAN_FLUSH
            self.set_due(t, self.now + self.flush(t, mm, targets))
            return 0
        if n > w.call_left:
            n = w.call_left
        for g in range(first, first + <unsigned int>n):
            if numa_scan_page(self.m, g):
                updated += 1
                if not self.m.page[g] & (PAGE_QUEUED | PAGE_HELD):
                    self.m.page[g] |= PAGE_QUEUED
                    self.queue(g, self.next_access(g - start))
        w.call_left -= n
        w.call_updates += updated
        p.scan_offset += <int>n
        self.set_due(t, self.now + n * self.cost.scan_skip + updated * self.cost.scan_pte)
        return 0

    cdef int scan_call_done(self, int t) except -1 nogil:
        cdef walker* w = &self.walk[t]
        cdef int mm = self.m.thread[t].mm
        cdef process_t* p = &self.proc[mm]
        cdef i64 spent
        if w.call_updates > 0:
            w.scan_left = 0  # the length of the call counts, not its updates
        if p.scan_offset == self.m.npages:
            p.scan_offset = 0
            p.scan_seq += 1
        elif w.scan_left > 0 and w.virt_left > 0:
            w.phase = SCAN
            return self.scan_call(t)
        spent = self.now - w.scan_start
        # Scanning may take 1/32 of a task's time; node_stamp moves on by a period.
        w.due = self.now + w.period + 2 * self.tick + 32 * spent
        p.scanning = -1
        self.set_key(self.nc + mm,
                     p.next_scan if p.next_scan > self.now else self.now + 1)
        return self.to_user(t, False)

    cdef void placement(self, int t) noexcept nogil:
        """task_numa_placement(), update_task_scan_period(), once per pass of the scanner."""
        cdef walker* w = &self.walk[t]
        cdef numa_thread* th = &self.m.thread[t]
        cdef process_t* p = &self.proc[th.mm]
        cdef i64 slot, lr, ps, ratio, diff
        if w.seen_seq == p.scan_seq:
            return
        w.seen_seq = p.scan_seq
        if th.local + th.shared == 0 or th.failed:
            w.period *= 2
            if w.period > self.period_max:
                w.period = self.period_max
            p.next_scan = self.now + w.period
            # The counters of failures are left as they are, up to now.
            th.shared = 0
            th.private_ = 0
            return
        slot = (w.period + 9) // 10
        lr = th.local * 10 // (th.local + th.remote) if th.local + th.remote else 0
        ps = th.private_ * 10 // (th.private_ + th.shared) if th.private_ + th.shared else 0
        if ps >= 7:
            diff = (ps - 7 if ps > 7 else 1) * slot
        elif lr >= 7:
            diff = (lr - 7 if lr > 7 else 1) * slot
        else:
            ratio = lr if lr > ps else ps
            diff = -(7 - ratio) * slot
        w.period += diff
        if w.period < self.period_min:
            w.period = self.period_min
        if w.period > self.period_max:
            w.period = self.period_max
        th.local = th.remote = th.failed = th.shared = th.private_ = 0

    # Run ------------------------------------------------------------------------------

    cdef void sample(self) noexcept nogil:
        cdef double* row = &self.series[SERIES * self.taken]
        cdef int i
        row[0] = row[1] = 0
        for i in range(self.np_):
            self.settle(i)
            row[0] += self.proc[i].accesses
            row[1] += self.proc[i].remote / self.np_
        row[2] = self.m.counts.migrated_pages
        row[3] = self.m.counts.unmap_interrupts
        row[4] = self.m.counts.scan_interrupts
        self.taken += 1

    cdef int loop(self) except -1 nogil:
        cdef int mm, owner
        cdef i64 te, ta
        cdef u64 entry
        cdef bint thread
        self.bucket = -1
        self.nbuf = self.cursor = 0
        while True:
            te = self.due[self.ndue].time
            thread = te <= self.node[1].time
            if not thread:
                te = self.node[1].time
            owner = -1
            if self.held_first <= te:
                owner = self.next_held()
                if self.held_first > te or (thread and self.held_first == te):
                    owner = -1
                else:
                    te = self.held_first
            while self.cursor == self.nbuf:
                if self.bucket + 1 >= self.nbuckets or (self.bucket + 1) << self.shift > te:
                    break
                self.load_bucket(self.bucket + 1)
            ta = NEVER
            if self.cursor < self.nbuf:
                entry = self.buf[self.cursor]
                ta = self.begin + <i64>(entry >> 32)
            if te >= self.end and ta >= self.end:
                break
            self.events += 1
            if ta < te:
                self.now = ta
                self.cursor += 1
                if self.cursor + AHEAD < self.nbuf:
                    self.ask(<unsigned int>self.buf[self.cursor + AHEAD])
                self.calendar_access(<unsigned int>entry)
                continue
            self.now = te
            if owner >= 0:
                self.held_access(owner)
            elif thread:
                self.ndue -= 1
                self.thread_event(self.due[self.ndue + 1].what)
            else:
                self.rare_event(self.node[1].what)
        self.now = self.end
        for mm in range(self.np_):
            self.settle(mm)
        return 0

    cdef int rare_event(self, int leaf) except -1 nogil:
        """The end of a time slice, the start of a scan, the eater's end, or a sample."""
        if leaf < self.nc:
            self.set_key(leaf, self.now + self.slice_ns)
            if self.cpus[leaf].current >= 0:
                if self.walk[self.cpus[leaf].current].phase == USER:
                    self.switch_to(leaf, self.pick_next(leaf))
                else:
                    self.cpus[leaf].need_resched = 1
        elif leaf < self.nc + self.np_:
            self.scan_event(leaf - self.nc)
        elif leaf == self.nc + self.np_:
            self.set_key(leaf, NEVER)
            free_many(self.nodes[1], 0, self.eater, self.eater_pages)
        else:
            self.sample()
            self.set_key(leaf, self.now + self.sample_ns if self.taken < self.nsamples else NEVER)
        return 0

    def run(self):
        """Run to the end; returns every counter.  Once."""
        cdef double accesses = 0, busy = 0, remote = 0
        cdef long i
        begin_use(self)
        try:
            if self.events:
                raise ValueError("has been run")
            begin_use(self.other)
            try:
                begin_use(self.target)
                with nogil:
                    self.loop()
                end_use(self.target)
            finally:
                end_use(self.other)
        finally:
            end_use(self)
        for i in range(self.np_):
            accesses += self.proc[i].accesses
            busy += self.proc[i].busy_ns
            remote += self.proc[i].remote
        return {
            **numa_counts_dict(self.m),
            "accesses": accesses,
            "busy_ns": busy,
            "remote_share": remote / self.np_,
            "unmap_ns": self.unmap_ns,
            "interrupt_ns": self.interrupt_ns,
            "refaults": self.refaults,
            "window_hits": self.window_hits,
            "candidates": self.candidates,
            "events": self.events,
            "scan_seq": sum([self.proc[i].scan_seq for i in range(self.np_)]),
            "series": [self.series[i] for i in range(SERIES * self.taken)],
        }

    def state(self):
        """Words (without the engine's bits) and frames of all pages; for tests."""
        cdef long i
        check_idle(self)
        n = <long>self.m.processes * self.m.npages
        mask = ~<unsigned int>(PAGE_QUEUED | PAGE_HELD)
        return [self.m.page[i] & mask for i in range(n)], [self.m.frame[i] for i in range(n)]

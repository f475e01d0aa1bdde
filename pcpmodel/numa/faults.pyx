"""Hint faults step by step: mm/memory.c, mm/mprotect.c, mm/migrate.c, mm/rmap.c.

Mirrors do_numa_page() and its callees of v5.12 (before b99a342d4f11, "NUMA
balancing: reduce TLB flush via delaying mapping on hint page fault"), v5.13,
v6.1 and v7.2, order-0 anonymous pages, two nodes, all threads on one of them.
The rules are in ``faults.pxd``; here are memory management and a binding
that lets a test call one step at a time.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.stdlib cimport calloc, free, malloc

from pcpmodel.kernel.pages cimport pages_zeros

from pcpmodel.errors import integer

STEPS = ("hit", "fault", "mapped", "retry", "wait", "relock", "isolated")


cdef long stack_alloc(void* ctx, int node, int cpu) noexcept nogil:
    cdef numa_stacks* s = <numa_stacks*>ctx
    if s.n[node] == 0:
        return -1
    s.n[node] -= 1
    return s.frame[node][s.n[node]]


cdef void stack_free(void* ctx, int node, int cpu, long frame) noexcept nogil:
    cdef numa_stacks* s = <numa_stacks*>ctx
    if frame < 0 or s.n[node] >= s.room:  # nothing that was taken from here
        return
    s.frame[node][s.n[node]] = <unsigned int>frame
    s.n[node] += 1


cdef long stack_nr_free(void* ctx, int node) noexcept nogil:
    return (<numa_stacks*>ctx).n[node]


cdef numa_stacks* numa_stacks_new(long node0_pages, long node1_pages, long others) except NULL:
    """Node 0 has frames 0 ..., node 1 the ones after; low frames are taken first.

    ``others``: pages that lie on node 0 without a frame of these, and may yet be freed.
    """
    cdef numa_stacks* s = <numa_stacks*>calloc(1, sizeof(numa_stacks))
    cdef long i
    if s == NULL:
        raise MemoryError
    s.n[0] = node0_pages
    s.n[1] = node1_pages
    s.room = node0_pages + node1_pages + others
    for node in range(2):
        s.frame[node] = <unsigned int*>malloc(max(1, s.room) * sizeof(unsigned int))
        if s.frame[node] == NULL:
            numa_stacks_free(s)
            raise MemoryError
    for i in range(node0_pages):
        s.frame[0][i] = <unsigned int>(node0_pages - 1 - i)
    for i in range(node1_pages):
        s.frame[1][i] = <unsigned int>(node0_pages + node1_pages - 1 - i)
    return s


cdef void numa_stacks_free(numa_stacks* s) noexcept:
    if s != NULL:
        free(s.frame[0])
        free(s.frame[1])
        free(s)


cdef void numa_stacks_use(numa_stacks* s, numa_memory* memory) noexcept:
    memory.ctx = s
    memory.alloc = stack_alloc
    memory.free = stack_free
    memory.nr_free = stack_nr_free


cdef numa_machine* numa_machine_new(int rules, int processes, int threads, int npages,
                                    long high_wmark) except NULL:
    """All pages accessible and on node 0, frames not assigned, no thread running."""
    cdef numa_machine* m = <numa_machine*>calloc(1, sizeof(numa_machine))
    cdef int t
    if m == NULL:
        raise MemoryError
    m.rules = rules
    m.processes = processes
    m.threads = threads
    m.npages = npages
    m.high_wmark = high_wmark
    m.page = <unsigned int*>pages_zeros(<size_t>processes * npages * sizeof(unsigned int))
    m.frame = <unsigned int*>pages_zeros(<size_t>processes * npages * sizeof(unsigned int))
    m.thread = <numa_thread*>calloc(processes * threads, sizeof(numa_thread))
    m.flush_pending = <int*>calloc(processes, sizeof(int))
    m.running = <int*>calloc(processes, sizeof(int))
    if (m.page == NULL or m.frame == NULL or m.thread == NULL
            or m.flush_pending == NULL or m.running == NULL):
        numa_machine_free(m)
        raise MemoryError
    for t in range(processes * threads):
        m.thread[t].mm = t // threads
        m.thread[t].frame = -1
    return m


cdef void numa_machine_free(numa_machine* m) noexcept:
    if m != NULL:
        free(m.page)
        free(m.frame)
        free(m.thread)
        free(m.flush_pending)
        free(m.running)
        free(m)


cdef dict numa_counts_dict(numa_machine* m):
    return m.counts


@cython.final
@cython.auto_pickle(False)
cdef class Machine:
    """One step at a time; for tests.  Same interface as ``reference.Machine``.

    Parameters
    ----------
    rules : int
        Sum of the ``RULE_`` bits, see ``pcpmodel.numa.RELEASES``.
    processes, threads, npages : int
        Processes; threads and pages of each [1].
    node0_pages, node1_pages : int
        Free page frames of the other node and of the threads' node.
    high_wmark : int
        High watermark of the threads' node [pages].
    """

    cdef numa_machine* m
    cdef numa_stacks* stacks
    cdef numa_batch batch

    def __cinit__(self, int rules, int processes, int threads, int npages,
                  long node0_pages, long node1_pages, long high_wmark=0):
        for name, value, least, most in (
            ("rules", rules, 0, 7), ("processes", processes, 1, 1 << 12),
            ("threads", threads, 1, 1 << 12), ("npages", npages, 1, 1 << 18),
            ("node0_pages", node0_pages, 0, 1 << 30), ("node1_pages", node1_pages, 0, 1 << 30),
        ):
            integer(name, value, least, most)
        self.m = numa_machine_new(rules, processes, threads, npages, high_wmark)
        self.stacks = numa_stacks_new(node0_pages, node1_pages, <long>processes * npages)
        numa_stacks_use(self.stacks, &self.m.memory)
        self.batch.page = <unsigned int*>malloc(max(1, npages) * sizeof(unsigned int))
        self.batch.frame = <long*>malloc(max(1, npages) * sizeof(long))
        if self.batch.page == NULL or self.batch.frame == NULL:
            raise MemoryError

    def __dealloc__(self):
        numa_machine_free(self.m)
        numa_stacks_free(self.stacks)
        free(self.batch.page)
        free(self.batch.frame)

    def place(self, unsigned int g, int node, bint refused=False):
        """Give page ``g`` a frame of ``node``; False: none left."""
        self.check_page(g)
        self.check_node(node)
        cdef long frame = stack_alloc(self.stacks, node, 0)
        if frame < 0:
            return False
        self.m.frame[g] = <unsigned int>frame
        self.m.page[g] = (PAGE_TARGET if node else 0) | (PAGE_REFUSED if refused else 0)
        return True

    cdef int check_page(self, unsigned int g) except -1:
        if g >= <unsigned int>(self.m.processes * self.m.npages):
            raise IndexError(g)
        return 0

    cdef int check_thread(self, int t) except -1:
        if not 0 <= t < self.m.processes * self.m.threads:
            raise IndexError(t)
        return 0

    cdef int check_node(self, int node) except -1:
        if not 0 <= node < 2:
            raise IndexError(node)
        return 0

    cdef int check_process(self, int mm) except -1:
        if not 0 <= mm < self.m.processes:
            raise IndexError(mm)
        return 0

    def run(self, int mm, int change):
        """``change`` more CPUs run threads of process ``mm``."""
        self.check_process(mm)
        if not 0 <= self.m.running[mm] + <long>change <= self.m.threads:
            raise IndexError(change)
        self.m.running[mm] += change

    def access(self, int t, unsigned int g):
        self.check_thread(t)
        self.check_page(g)
        return STEPS[numa_access(self.m, t, g)]

    def fault(self, int t):
        self.check_thread(t)
        return STEPS[numa_fault(self.m, t)]

    def relock(self, int t):
        self.check_thread(t)
        return STEPS[numa_relock(self.m, t)]

    def unmap(self, int t):
        self.check_thread(t)
        return numa_unmap(self.m, t)

    def finish(self, int t, bint moved):
        self.check_thread(t)
        numa_finish(self.m, t, moved)

    def scan_begin(self, int mm):
        self.check_process(mm)
        numa_scan_begin(self.m, mm)

    def scan_page(self, unsigned int g):
        self.check_page(g)
        return bool(numa_scan_page(self.m, g))

    def scan_flush(self, int mm, bint updated):
        self.check_process(mm)
        return numa_scan_flush(self.m, mm, updated)

    def scan_end(self, int mm):
        self.check_process(mm)
        numa_scan_end(self.m, mm)

    def batch_begin(self, int t, int node):
        self.check_thread(t)
        self.check_node(node)
        self.batch.mm = self.m.thread[t].mm
        self.batch.cpu = self.m.thread[t].cpu
        self.batch.node = node
        self.batch.n = 0
        self.batch.flush_required = False

    def batch_unmap(self, unsigned int g):
        self.check_page(g)
        if self.batch.n >= self.m.npages:
            raise IndexError(g)
        return bool(numa_batch_unmap(self.m, &self.batch, g))

    def batch_flush(self):
        return numa_batch_flush(self.m, &self.batch)

    def batch_finish(self):
        numa_batch_finish(self.m, &self.batch)

    @property
    def counts(self):
        return numa_counts_dict(self.m)

    @property
    def state(self):
        """Everything a twin must agree on."""
        cdef int i
        n = self.m.processes * self.m.npages
        return (
            [self.m.page[i] for i in range(n)],
            [self.m.frame[i] for i in range(n)],
            [self.m.flush_pending[i] for i in range(self.m.processes)],
            [self.stacks.n[0], self.stacks.n[1]],
        )

# SPDX-License-Identifier: GPL-2.0-only
"""The hint-fault rules, one kernel step per function, without time.

Each function is one stretch of kernel code that no other CPU can see half
done: it runs under the page-table lock, or touches one page's flags.  The
caller decides when each step happens; ``clock.pyx`` adds the time,
``reference.py`` says the same in Python.
"""

cdef enum:
    # Low two bits of a page's word: its page-table entry.
    PTE_ACC = 0  # present and accessible, on whatever node the page is now
    PTE_NONE = 1  # PROT_NONE hint: present for software, not for the MMU
    PTE_MIG = 2  # migration entry: who touches it waits
    PTE_MASK = 3
    PAGE_ISOLATED = 4  # off the LRU: somebody is migrating it
    PAGE_TARGET = 8  # lies on the node that the threads run on
    PAGE_REFUSED = 16  # shared executable or dirty file page
    PAGE_QUEUED = 32  # engine: its next access is in the calendar
    PAGE_HELD = 64  # engine: its next access is with a faulting thread
    PAGE_LAST_SHIFT = 8  # 8 bits: thread of the last hint fault + 1 (cpupid)
    PAGE_LAST_MASK = 255 << 8

    # What a step led to.
    STEP_HIT = 0  # access went through
    STEP_FAULT = 1  # access trapped
    STEP_MAPPED = 2  # PTE made accessible; back to user space
    STEP_RETRY = 3  # PTE changed meanwhile; back to user space, access again
    STEP_WAIT = 4  # migration entry: sleep until it is gone
    STEP_RELOCK = 5  # migration refused: take the page-table lock again, then map
    STEP_ISOLATED = 6  # page isolated, new page allocated; next: unmap

    RULE_DELAY_MAPPING = 1  # b99a342d4f11, v5.13
    RULE_UNCOUNTED_RETRY = 2  # no task_numa_fault() if the PTE changed
    RULE_PREPARE_LOCKED = 4  # checks and isolation under the page-table lock

cdef struct numa_memory:
    # Page frames of two nodes; 0: the other node, 1: the threads' node.
    void* ctx
    long (*alloc)(void* ctx, int node, int cpu) noexcept nogil  # frame, or -1
    void (*free)(void* ctx, int node, int cpu, long frame) noexcept nogil
    long (*nr_free)(void* ctx, int node) noexcept nogil  # pages

cdef struct numa_thread:
    int mm  # process
    int cpu  # CPU it is bound to
    unsigned int page  # page of the fault being handled
    unsigned int orig  # PTE state when it trapped
    long frame  # new page while migrating, else -1
    long local  # numa_faults_locality[1]
    long remote  # numa_faults_locality[0]
    long failed  # numa_faults_locality[2]
    long shared, private_  # hint faults by who faulted on the page before

cdef struct numa_counts:
    long hint_faults  # traps on a PROT_NONE entry
    long retries  # PTE had changed when the lock was taken
    long waits  # sleeps on a migration entry
    long local_faults  # page was on the right node already
    long migrated_pages
    long refused  # migrate_misplaced_page() said no before the unmap
    long unmap_failed  # given up after the unmap
    long unmaps
    long unmap_flushes  # unmaps that had to shoot TLBs down
    long pending_flushes  # of these: PROT_NONE, but another flush was on its way
    long unmap_interrupts  # IPIs of those
    long scans  # ranges scanned
    long scan_updates  # PTEs made PROT_NONE
    long scan_flushes
    long scan_interrupts

cdef struct numa_machine:
    int rules
    int processes, threads, npages  # threads and pages of one process
    long high_wmark  # of the threads' node [pages]
    unsigned int* page  # [processes * npages] words
    unsigned int* frame  # [processes * npages] page frames
    numa_thread* thread  # [processes * threads]
    int* flush_pending  # [processes] mm->tlb_flush_pending
    int* running  # [processes] CPUs that run one of its threads now
    numa_memory memory
    numa_counts counts


cdef inline int numa_access(numa_machine* m, int t, unsigned int g) noexcept nogil:
    """Thread ``t`` touches page ``g``: STEP_HIT or STEP_FAULT."""
    cdef unsigned int pte = m.page[g] & PTE_MASK
    if pte == PTE_ACC:
        return STEP_HIT
    m.thread[t].page = g
    m.thread[t].orig = pte
    if pte == PTE_NONE:
        m.counts.hint_faults += 1
    return STEP_FAULT


cdef inline void numa_account(numa_machine* m, int t, unsigned int g, bint local,
                              bint failed) noexcept nogil:
    """task_numa_fault(): who faulted here before, and was the page local?"""
    cdef numa_thread* th = &m.thread[t]
    cdef unsigned int me = <unsigned int>(t - th.mm * m.threads + 1)
    cdef unsigned int last = (m.page[g] & PAGE_LAST_MASK) >> PAGE_LAST_SHIFT
    if last == 0 or last == me:
        th.private_ += 1
    else:
        th.shared += 1
    m.page[g] = (m.page[g] & ~<unsigned int>PAGE_LAST_MASK) | (me << PAGE_LAST_SHIFT)
    if local:
        th.local += 1
    else:
        th.remote += 1
    if failed:
        th.failed += 1


cdef inline int numa_refuse(numa_machine* m, int t, bint locked) noexcept nogil:
    """migrate_misplaced_page() returned 0; ``locked``: still under the PTE lock."""
    cdef unsigned int g = m.thread[t].page
    m.counts.refused += 1
    if m.rules & RULE_DELAY_MAPPING and not locked:
        return STEP_RELOCK
    m.page[g] &= ~<unsigned int>PTE_MASK  # before: accessible already
    numa_account(m, t, g, False, True)
    return STEP_MAPPED


cdef inline int numa_fault(numa_machine* m, int t) noexcept nogil:
    """do_numa_page() up to the isolation; do_swap_page() for a migration entry."""
    cdef numa_thread* th = &m.thread[t]
    cdef unsigned int g = th.page
    cdef unsigned int word = m.page[g]
    cdef unsigned int pte = word & PTE_MASK
    cdef bint locked = (m.rules & RULE_PREPARE_LOCKED) != 0
    if pte != th.orig:
        m.counts.retries += 1
        return STEP_RETRY
    if pte == PTE_MIG:
        m.counts.waits += 1
        return STEP_WAIT
    if word & PAGE_TARGET or not m.rules & RULE_DELAY_MAPPING:
        word &= ~<unsigned int>PTE_MASK
        m.page[g] = word
    if word & PAGE_TARGET:
        m.counts.local_faults += 1
        numa_account(m, t, g, True, False)
        return STEP_MAPPED
    if (word & (PAGE_REFUSED | PAGE_ISOLATED)
            or m.memory.nr_free(m.memory.ctx, 1) <= m.high_wmark + 1):  # of one page
        return numa_refuse(m, t, locked)
    th.frame = m.memory.alloc(m.memory.ctx, 1, th.cpu)
    if th.frame < 0:
        return numa_refuse(m, t, False)
    m.page[g] |= PAGE_ISOLATED
    return STEP_ISOLATED


cdef inline int numa_relock(numa_machine* m, int t) noexcept nogil:
    """do_numa_page() after a refused migration, lock taken again."""
    cdef unsigned int g = m.thread[t].page
    if (m.page[g] & PTE_MASK) != PTE_NONE:
        m.counts.retries += 1
        if not m.rules & RULE_UNCOUNTED_RETRY:
            numa_account(m, t, g, False, True)
        return STEP_RETRY
    m.page[g] &= ~<unsigned int>PTE_MASK
    numa_account(m, t, g, False, True)
    return STEP_MAPPED


cdef inline int numa_targets(numa_machine* m, int mm) noexcept nogil:
    """CPUs that a flush of ``mm`` interrupts: they run it, and are not the caller's.

    Lazy CPUs (idle, or in a kernel thread) are not counted in ``running``.
    """
    return m.running[mm] - 1


cdef inline int numa_unmap(numa_machine* m, int t) noexcept nogil:
    """try_to_unmap(): PTE -> migration entry.  IPIs sent, or -1: no flush needed.

    ptep_clear_flush() flushes if the entry was accessible, or PROT_NONE while
    another flush of this mm is on its way (x86 pte_accessible()).
    """
    cdef numa_thread* th = &m.thread[t]
    cdef unsigned int pte = m.page[th.page] & PTE_MASK
    cdef int targets
    m.page[th.page] = (m.page[th.page] & ~<unsigned int>PTE_MASK) | PTE_MIG
    m.counts.unmaps += 1
    if pte != PTE_ACC and m.flush_pending[th.mm] == 0:
        return -1
    targets = numa_targets(m, th.mm)
    m.counts.unmap_flushes += 1
    m.counts.pending_flushes += pte != PTE_ACC
    m.counts.unmap_interrupts += targets
    return targets


cdef inline void numa_finish(numa_machine* m, int t, bint moved) noexcept nogil:
    """Copy done (or given up): migration entry -> accessible, page back on the LRU."""
    cdef numa_thread* th = &m.thread[t]
    cdef unsigned int g = th.page
    cdef unsigned int old = m.frame[g]
    cdef bint counted = moved or not m.rules & RULE_UNCOUNTED_RETRY
    m.page[g] &= ~<unsigned int>(PTE_MASK | PAGE_ISOLATED)
    if moved:
        m.frame[g] = <unsigned int>th.frame
        m.page[g] |= PAGE_TARGET
        m.counts.migrated_pages += 1
        m.memory.free(m.memory.ctx, 0, th.cpu, old)
    else:
        m.counts.unmap_failed += 1
        m.memory.free(m.memory.ctx, 1, th.cpu, th.frame)
    th.frame = -1
    if counted:
        numa_account(m, t, g, False, not moved)


cdef inline void numa_scan_begin(numa_machine* m, int mm) noexcept nogil:
    m.flush_pending[mm] += 1


cdef inline bint numa_scan_page(numa_machine* m, unsigned int g) noexcept nogil:
    """change_pte_range() for one PTE: was it changed?

    A process with one thread skips pages that are on its node already.
    """
    cdef unsigned int word = m.page[g]
    if (word & PTE_MASK) != PTE_ACC or (m.threads == 1 and word & PAGE_TARGET):
        return False
    m.page[g] = word | PTE_NONE
    m.counts.scan_updates += 1
    return True


cdef inline int numa_scan_flush(numa_machine* m, int mm, bint updated) noexcept nogil:
    """Flush of one scanned range: IPIs sent, or -1 if no PTE changed."""
    cdef int targets
    m.counts.scans += 1
    if not updated:
        return -1
    targets = numa_targets(m, mm)
    m.counts.scan_flushes += 1
    m.counts.scan_interrupts += targets
    return targets


cdef inline void numa_scan_end(numa_machine* m, int mm) noexcept nogil:
    m.flush_pending[mm] -= 1


cdef struct numa_batch:
    # One batch of migrate_pages(): unmap all, flush once, then copy and map all.
    int mm, cpu, node  # node: where the pages go
    int n
    unsigned int* page
    long* frame
    bint flush_required


cdef inline bint numa_batch_unmap(numa_machine* m, numa_batch* b, unsigned int g) noexcept nogil:
    """try_to_migrate() with TTU_BATCH_FLUSH; False: page refused or there already."""
    cdef unsigned int word = m.page[g]
    if word & (PAGE_REFUSED | PAGE_ISOLATED) or ((word & PAGE_TARGET) != 0) == (b.node == 1):
        return False
    cdef long frame = m.memory.alloc(m.memory.ctx, b.node, b.cpu)
    if frame < 0:
        return False
    if (word & PTE_MASK) == PTE_ACC or m.flush_pending[b.mm] != 0:
        b.flush_required = True
    m.page[g] = (word & ~<unsigned int>PTE_MASK) | PTE_MIG | PAGE_ISOLATED
    m.counts.unmaps += 1
    b.page[b.n] = g
    b.frame[b.n] = frame
    b.n += 1
    return True


cdef inline int numa_batch_flush(numa_machine* m, numa_batch* b) noexcept nogil:
    """try_to_unmap_flush(): IPIs sent for the whole batch, or -1."""
    cdef int targets
    if not b.flush_required:
        return -1
    targets = numa_targets(m, b.mm)
    m.counts.unmap_flushes += 1
    m.counts.unmap_interrupts += targets
    b.flush_required = False
    return targets


cdef inline void numa_batch_finish(numa_machine* m, numa_batch* b) noexcept nogil:
    """migrate_folio_move() of every page of the batch."""
    cdef int i
    cdef unsigned int g, old
    for i in range(b.n):
        g = b.page[i]
        old = m.frame[g]
        m.frame[g] = <unsigned int>b.frame[i]
        m.page[g] &= ~<unsigned int>(PTE_MASK | PAGE_ISOLATED)
        m.page[g] ^= PAGE_TARGET
        m.counts.migrated_pages += 1
        m.memory.free(m.memory.ctx, 1 - b.node, b.cpu, old)
    b.n = 0


cdef struct numa_stacks:
    # Plain page frames: one last-in first-out stack per node.
    unsigned int* frame[2]
    long n[2]
    long room  # of each stack: all frames there are


cdef numa_machine* numa_machine_new(int rules, int processes, int threads, int npages,
                                    long high_wmark) except NULL
cdef void numa_machine_free(numa_machine* m) noexcept
cdef numa_stacks* numa_stacks_new(long node0_pages, long node1_pages, long others) except NULL
cdef void numa_stacks_free(numa_stacks* s) noexcept
cdef void numa_stacks_use(numa_stacks* s, numa_memory* memory) noexcept
cdef dict numa_counts_dict(numa_machine* m)

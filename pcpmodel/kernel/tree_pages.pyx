# cython: cdivision=True
"""A pageset under the functions of a kernel tree, and where they decide otherwise than a release.

`TreePages` is to a tree what `PerCpuPages` is to a release.  `compare` puts both through the same
random operations and stops at the first in which a field, a list or a hold differs.
"""

# SPDX-License-Identifier: GPL-2.0-only

cimport cython
from libc.limits cimport LONG_MIN
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from pcpmodel.kernel.lists cimport (
    MAX_PCP_LISTS,
    drain_counts,
    order_to_pindex,
    pcp_allowed_order,
)
from pcpmodel.kernel.pages cimport ZONE_BELOW_HIGH, ZONE_RECLAIM_ACTIVE
from pcpmodel.kernel.pcp cimport (
    PCPF_FREE_HIGH_BATCH,
    PCPF_PREV_FREE_HIGH_ORDER,
    commit_goes_on,
    commit_hold,
    decay_hold,
    decay_pcp_high,
    nr_pcp_alloc,
    pcp_alloc_begin,
    pcp_alloc_end,
    pcp_alloc_hits,
    pcp_commit_due,
    pcp_free_hits,
    per_cpu_pages,
    refill_hold,
    remote_hold,
    zone_hold,
)
from pcpmodel.kernel.rules cimport DECAY_NONE, pcp_rules, rules_of
from pcpmodel.kernel.tree_guard cimport known, tell_failed, this_call, tree_call, tree_fields
from pcpmodel.splitmix cimport draw

import ctypes
import functools

from pcpmodel.errors import InputError, integer
from pcpmodel.kernel.lists import MIGRATETYPES, pcp_orders
from pcpmodel.kernel.sizing import SERVER_ZONE_BYTES
from pcpmodel.kernel.zone import MAX_BATCH, MAX_PAGES

cdef extern from "tree_abi.h":
    enum:
        PCPMODEL_TREE_ABI
        PCPMODEL_TREE_LISTS
        PCPMODEL_TREE_OWN

    struct tree_hold:
        int pages
        int blocks
        int asked
        int got

    enum tree_argument:
        TREE_FREE_LIST_TYPE
        TREE_FREE_BLOCK_TYPE
        TREE_ARGUMENTS

    struct tree_passed:
        unsigned int otherwise
        int due[TREE_ARGUMENTS]
        int passed[TREE_ARGUMENTS]

    struct tree_ops:
        int abi
        int nr_lists
        size_t size
        void (*init)(void *set) noexcept nogil
        void (*release)(void *set) noexcept nogil
        void (*get)(const void *set, tree_fields *fields, int *lists) noexcept nogil
        void (*put)(void *set, const tree_fields *fields, const int *lists) noexcept nogil
        int (*alloc)(
            void *set, unsigned int zone_flags, int order, int migratetype, long available
        ) noexcept nogil
        void (*commit)(
            void *set, unsigned int zone_flags, int order, int migratetype
        ) noexcept nogil
        int (*decay)(void *set, unsigned int zone_flags) noexcept nogil
        void (*drain_remote)(void *set) noexcept nogil
        void (*drain_all)(void *set) noexcept nogil
        int (*pindex)(int migratetype, int order) noexcept nogil
        int (*order)(int pindex) noexcept nogil
        int (*holds)(const void *set, const tree_hold **holds) noexcept nogil
        const tree_passed *(*passed)(const void *set) noexcept nogil
        int (*failed)(const void *set) noexcept nogil
        long (*batchsize)(unsigned long managed) noexcept nogil
        long (*highsize)(
            unsigned long managed, unsigned long low_wmark, int batch, int cpus, int all_cpus,
            int fraction, int cpu_online, int *set
        ) noexcept nogil
        const void *steps
        size_t pcp_size
        size_t own_size
        void (*own)(const void *set, char *own) noexcept nogil
        tree_call *(**this_call)() noexcept nogil


cdef tuple FAILED = (
    "",
    "there is no memory for what it does",
    "it touches a list that is not the pageset's",
    "a list grows beyond 2**28 blocks",
    "an operation takes the zone's lock without end",
    "a function does not come back",  # tell_failed() says more
    "it takes a block of an empty list",
)


# tree_argument, by its place: who is called, and with what; of a list which end.
ARGUMENTS = (
    ("__rmqueue", ""),
    ("__rmqueue", "order"),
    ("__rmqueue", "migratetype"),
    ("__rmqueue", "alloc_flags"),
    ("__rmqueue", "mode"),
    ("__free_one_page", "migratetype"),
    ("__free_one_page", "migratetype"),
    ("__free_one_page", "fpi_flags"),
    ("blocks leave a list at its", "end"),
    ("blocks come to a list at its", "end"),
)

# Differences after which an argument is not looked at any more: others are to be found, too.
cdef enum:
    MOST_TOLD = 20


@functools.cache
def loaded(path):
    """Address of what a tree's library has for the model; it stays loaded."""
    return ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(path), "pcpmodel_tree"))


cdef const tree_ops *ops_of(tree) except NULL:
    """The compiled functions of a `Tree`."""
    cdef const tree_ops *ops = <const tree_ops *><size_t>loaded(str(tree.library))
    if ops.abi != PCPMODEL_TREE_ABI:
        raise InputError(f"{tree.name}: compiled for interface {ops.abi}, not {PCPMODEL_TREE_ABI}")
    if not 0 < ops.nr_lists <= PCPMODEL_TREE_LISTS:
        raise InputError(
            f"{tree.name}: NR_PCP_LISTS is {ops.nr_lists}; allowed: 1..{PCPMODEL_TREE_LISTS}"
        )
    ops.this_call[0] = this_call
    known(ops, tree.name)
    known(ops.steps, tree.name)
    return ops


def steps_of_tree(tree):
    """Address of the decisions of a tree, as `pcp_rules.tree` holds it."""
    cdef const tree_ops *ops = ops_of(tree)
    if ops.pcp_size != sizeof(per_cpu_pages):
        raise InputError(f"{tree.name}: compiled for another struct per_cpu_pages")
    if ops.own_size > PCPMODEL_TREE_OWN:
        raise InputError(
            f"{tree.name}: struct per_cpu_pages has {ops.own_size} bytes of new fields "
            f"({', '.join(tree.new_fields)}); the engines carry up to {PCPMODEL_TREE_OWN}"
        )
    return <size_t>ops.steps


def lists_of_tree(tree):
    """NR_PCP_LISTS of a tree."""
    return ops_of(tree).nr_lists


def engine_lists(tree, release):
    """Lists that the engines have for a tree: its own, or a release's if each has its counterpart.

    Lists beyond those, of types that no release keeps apart, stay empty.
    """
    cdef const tree_ops *ops = ops_of(tree)
    cdef counted *c = <counted *>calloc(1, sizeof(counted))
    try:
        if c == NULL:
            raise MemoryError
        c.rules.nr_pcp_lists = ops.nr_lists
        if map_lists(tree, ops, c) is not None:
            c.rules = rules_of(release)
            map_lists(tree, ops, c)
            if corresponds(c):
                return c.rules.nr_pcp_lists
        return ops.nr_lists
    finally:
        free(c)


@cython.final
cdef class TreePages:
    """A pageset of a kernel tree, whose lists hold counts of blocks.

    Parameters
    ----------
    tree : Tree
    batch, high, high_min, high_max, flags
        As of `PerCpuPages`.

    Raises
    ------
    InputError
        For an argument out of its range.
    """

    cdef const tree_ops *ops
    cdef void *set
    cdef unsigned int zone_flags
    cdef readonly object tree

    def __cinit__(
        self, tree not None, *, batch=63, high=None, high_min=None, high_max=None, flags=0
    ):
        cdef tree_fields f
        cdef int lists[PCPMODEL_TREE_LISTS]
        self.ops = ops_of(tree)
        self.tree = tree
        self.set = calloc(1, self.ops.size)
        if self.set == NULL:
            raise MemoryError
        self.ops.init(self.set)
        memset(&f, 0, sizeof(f))
        memset(lists, 0, sizeof(lists))
        if high_min is None:
            high_min = high_max if high is None else high
        if high_min is None:
            raise InputError("give high, or high_min and high_max [pages]")
        f.batch = integer("batch", batch, 1, MAX_BATCH)
        f.high_min = integer("high_min", high_min, 0, MAX_PAGES)
        f.high_max = integer("high_max", high_min if high_max is None else high_max, 0, MAX_PAGES)
        f.high = integer("high", high_min if high is None else high, 0, MAX_PAGES)
        f.flags = integer("flags", flags, 0, 3)
        self.ops.put(self.set, &f, lists)

    def __dealloc__(self):
        if self.set != NULL:
            self.ops.release(self.set)
        free(self.set)

    def alloc(self, order=0, migratetype=1):
        """Allocate a block; the blocks that the refill brought, 0 if the list had one."""
        self.ops.alloc(
            self.set, self.zone_flags, self._order(order),
            integer("migratetype", migratetype, 0, 2), MAX_PAGES,
        )
        return sum(got for _, got in self._holds())

    def free(self, order=0, migratetype=1):
        """Free a block; the pages of each hold."""
        self.ops.commit(
            self.set, self.zone_flags, self._order(order), integer("migratetype", migratetype, 0, 2)
        )
        return [pages for pages, _ in self._holds()]

    def decay(self):
        """One vmstat tick: decay_pcp_high(); the pages of each hold."""
        self.ops.decay(self.set, self.zone_flags)
        return [pages for pages, _ in self._holds()]

    def drain_zone_pages(self):
        """Drain a batch from list 0 on; the pages drained."""
        self.ops.drain_remote(self.set)
        return sum(pages for pages, _ in self._holds())

    def drain_pages_zone(self):
        """Drain everything; the pages of each hold."""
        self.ops.drain_all(self.set)
        return [pages for pages, _ in self._holds()]

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

    def state(self):
        """Every scalar and list that a release has, for comparison."""
        cdef tree_fields f
        cdef int lists[PCPMODEL_TREE_LISTS]
        self.ops.get(self.set, &f, lists)
        return {**f, "lists": [lists[i] for i in range(self.ops.nr_lists)]}

    cdef int _order(self, order) except -1:
        cdef int o = integer("order", order, 0, 9)
        if not pcp_allowed_order(self.ops.nr_lists, o):
            allowed = ", ".join(map(str, pcp_orders(self.ops.nr_lists)))
            raise InputError(f"order={o} never enters a PCP list; allowed: {allowed}")
        return o

    cdef list _holds(self):
        cdef const tree_hold *holds
        cdef int i, n = self.ops.holds(self.set, &holds)
        tell_failed()
        if self.ops.failed(self.set):
            raise InputError(f"{self.tree.name}: {FAILED[self.ops.failed(self.set)]}")
        return [(holds[i].pages, holds[i].got) for i in range(n)]


def sizing(tree, managed, low_wmark, cpus, all_cpus, fraction=0, cpu_online=0):
    """zone_batchsize() and zone_highsize() of a tree; None where it has no such function.

    Parameters
    ----------
    tree : Tree
    managed, low_wmark : int
        Of the zone [pages].
    cpus, all_cpus : int
        CPUs of the zone's node, 0 or more, and of the machine, 1 or more.
    fraction : int
        vm.percpu_pagelist_high_fraction, 0 for none.
    cpu_online : int
        1 while a CPU comes online, which `cpus` does not count yet.

    Returns
    -------
    batch, high : int or None
        [pages], whatever the functions return.  The batch is that of zone_batchsize(), or what the
        one function of v5.13 and before sets.
    """
    cdef const tree_ops *ops = ops_of(tree)
    cdef long batch = ops.batchsize(integer("managed", managed, 0, 1 << 40)), high
    cdef int together = 0
    if batch == LONG_MIN:
        return None, None
    high = ops.highsize(
        managed, integer("low_wmark", low_wmark, 0, 1 << 40), <int>max(batch, 1),
        integer("cpus", cpus, 0, 1 << 14), integer("all_cpus", all_cpus, 1, 1 << 14),
        integer("fraction", fraction, 0, MAX_PAGES), integer("cpu_online", cpu_online, 0, 1),
        &together,
    )
    tell_failed()
    return together or batch, high if high != LONG_MIN else None


# The same operation by the rules of a release, on counts


cdef enum:
    OP_ALLOC = 0
    OP_FREE = 1
    OP_DECAY = 2
    OP_DRAIN_REMOTE = 3
    OP_DRAIN_ALL = 4
    OP_RESIZE = 5
    OP_FLAGS = 6
    NR_OPS = 7

    MOST_HOLDS = 1 << 16

OPS = ("alloc", "free", "decay", "drain_zone_pages", "drain_pages_zone", "resize", "flags")


cdef struct operation:
    int op
    int order
    int migratetype
    int available  # blocks that the buddy lists have
    int times  # in a row, as far as no lock is taken
    int high_min  # resize
    int high_max
    int batch
    int pcp_flags  # resize: PCPF_FREE_HIGH_BATCH
    unsigned int zone_flags


cdef struct counted:
    per_cpu_pages pcp
    pcp_rules rules
    unsigned int zone_flags
    int32_t nr[PCPMODEL_TREE_LISTS]
    int at[PCPMODEL_TREE_LISTS]  # the tree's list for each of the release; -1: none
    unsigned int orders  # whose blocks both keep apart alike: a bit each
    bint more  # the tree has lists of orders that the release has none for
    int nr_holds
    int times  # that the last operation was done
    bint work  # that decay_pcp_high() returned last, by the rules and of the tree
    bint tree_work
    int failed
    unsigned int arguments  # that are looked at: a bit each
    tree_hold hold[MOST_HOLDS]


cdef void give(counted *c, int n, int pindex) noexcept nogil:
    """One hold of free_pcppages_bulk()."""
    cdef tree_hold *hold = &c.hold[c.nr_holds]
    if c.nr_holds == MOST_HOLDS - 1:
        c.failed = 1
        c.pcp.count = 0
        return
    hold.asked = hold.got = 0
    hold.blocks = drain_counts(
        c.nr, &c.rules, min(n, c.pcp.count), pindex, &hold.pages
    )
    c.pcp.count -= hold.pages
    c.nr_holds += hold.pages > 0  # what is left of a decay by single pages may be larger blocks


cdef int refill(counted *c, int n, int available) noexcept nogil:
    """The holds of rmqueue_bulk() that is asked for n blocks; how many it got."""
    cdef tree_hold *hold
    cdef int got = 0, chunk
    while True:
        hold = &c.hold[c.nr_holds]
        if c.nr_holds == MOST_HOLDS - 1:
            c.failed = 1
            return 0
        chunk = refill_hold(&c.pcp, &c.rules, n)
        hold.pages = hold.blocks = 0
        hold.asked = min(chunk, available - got + 1)
        hold.got = min(chunk, available - got)
        c.nr_holds += 1
        got += hold.got
        n -= chunk
        if n <= 0 or hold.got < chunk:
            return got


cdef void by_rules(counted *c, const operation *o) noexcept nogil:
    cdef int i, n, high, chunk
    cdef bint more
    c.work = False
    c.nr_holds = 0
    c.times = 1
    if o.op == OP_ALLOC:
        i = order_to_pindex(c.rules.nr_pcp_lists, o.migratetype, o.order)
        if c.nr[i]:
            c.times = min(c.nr[i], o.times)
            c.nr[i] -= c.times
            pcp_alloc_hits(&c.pcp, &c.rules, c.times, o.order)
            return
        pcp_alloc_begin(&c.pcp, &c.rules)
        n = nr_pcp_alloc(&c.pcp, &c.rules, c.zone_flags, o.order)
        c.nr[i] = refill(c, n, o.available)
        c.pcp.count += c.nr[i] << o.order
        if c.nr[i]:
            c.nr[i] -= 1
            pcp_alloc_end(&c.pcp, &c.rules, o.order)
    elif o.op == OP_FREE:
        i = order_to_pindex(c.rules.nr_pcp_lists, o.migratetype, o.order)
        n = 0 if o.order else pcp_free_hits(&c.pcp, &c.rules, c.zone_flags, o.times)
        if n:
            c.times = n
            c.nr[i] += n
            return
        c.nr[i] += 1
        n = pcp_commit_due(&c.pcp, &c.rules, c.zone_flags, o.order, &high)
        more = n > 0
        while more and not c.failed:
            chunk = commit_hold(&c.pcp, &c.rules, n)
            give(c, chunk, i)
            n -= chunk
            more = commit_goes_on(&c.pcp, &c.rules, n, high)
    elif o.op == OP_DECAY:
        n = decay_pcp_high(&c.pcp, &c.rules, &c.work)
        while n > 0 and not c.failed:
            chunk = decay_hold(&c.pcp, &c.rules, n)
            give(c, chunk, 0)
            n -= chunk
        if c.rules.decay != DECAY_NONE:
            c.pcp.count_min = c.pcp.count
    elif o.op == OP_DRAIN_REMOTE:
        if c.pcp.count:
            give(c, remote_hold(&c.pcp, &c.rules), 0)
    elif o.op == OP_DRAIN_ALL:
        while c.pcp.count > 0 and not c.failed:
            give(c, zone_hold(&c.pcp, &c.rules), 0)


cdef void resize(per_cpu_pages *pcp, const pcp_rules *r, const operation *o) noexcept nogil:
    """pageset_update() and what decides about PCPF_FREE_HIGH_BATCH."""
    pcp.batch = o.batch
    pcp.high_min = o.high_min
    pcp.high_max = o.high_max if r.high_min_max else o.high_min
    if not r.high_min_max:
        pcp.high = o.high_min
    if r.free_high_batch:
        pcp.flags = pcp.flags & ~PCPF_FREE_HIGH_BATCH | o.pcp_flags


cdef void to_fields(const per_cpu_pages *pcp, tree_fields *f) noexcept nogil:
    f.count, f.high, f.high_min, f.high_max = pcp.count, pcp.high, pcp.high_min, pcp.high_max
    f.batch, f.flags, f.expire = pcp.batch, pcp.flags, pcp.expire
    f.alloc_factor, f.free_factor = pcp.alloc_factor, pcp.free_factor
    f.free_count, f.count_min = pcp.free_count, pcp.count_min


cdef bint by_tree(
    const tree_ops *ops, void *set, unsigned int zone_flags, const operation *o, int times
) noexcept nogil:
    """What decay_pcp_high() returns, else False."""
    if o.op == OP_ALLOC:
        for _ in range(times):
            ops.alloc(set, zone_flags, o.order, o.migratetype, o.available)
    elif o.op == OP_FREE:
        for _ in range(times):
            ops.commit(set, zone_flags, o.order, o.migratetype)
    elif o.op == OP_DECAY:
        return ops.decay(set, zone_flags) != 0
    elif o.op == OP_DRAIN_REMOTE:
        ops.drain_remote(set)
    elif o.op == OP_DRAIN_ALL:
        ops.drain_all(set)
    return False


# Fields that not every kernel has.
cdef enum:
    HAS_FLAGS = 1
    HAS_ALLOC_FACTOR = 2
    HAS_FREE_FACTOR = 4
    HAS_FREE_COUNT = 8
    HAS_COUNT_MIN = 16
    HAS_HIGH = 32
    HAS_EXPIRE = 64
    HAS_DECAY = 128


FIELDS = (
    "flags", "alloc_factor", "free_factor", "free_count", "count_min", "high", "expire", "returned",
)


cdef int fields_of(tree, const pcp_rules *r) except -1:
    """Those that both the tree and the release keep."""
    cdef int both = 0
    both |= HAS_FLAGS * (r.free_high_two_in_a_row and "flags" in tree.fields)
    both |= HAS_ALLOC_FACTOR * (r.alloc_scale and "alloc_factor" in tree.fields)
    both |= HAS_FREE_FACTOR * (not r.free_count and "free_factor" in tree.fields)
    both |= HAS_FREE_COUNT * (r.free_count and "free_count" in tree.fields)
    both |= HAS_COUNT_MIN * (r.count_min and "count_min" in tree.fields)
    # A limit that nothing tunes is not what v6.7 and later keep between high_min and high_max.
    both |= HAS_HIGH * (not r.high_min_max or "high_min" in tree.fields)
    both |= HAS_EXPIRE * ("expire" in tree.fields)
    both |= HAS_DECAY * (r.decay != DECAY_NONE and "decay_pcp_high" in tree.functions)
    return both


cdef unsigned int arguments_of(tree, release, const pcp_rules *r) except? 0:
    """Arguments that are compared; beside another tree those that it passes as releases do.

    From v6.10 on a drained page goes to the list of its page block's type, before to its own.
    """
    cdef unsigned int looked = (1 << TREE_ARGUMENTS) - 1
    looked &= ~(1 << (TREE_FREE_LIST_TYPE if r.drain_block_type else TREE_FREE_BLOCK_TYPE))
    if not r.tree:
        return looked
    other = getattr(release, "tree", None)
    if other is None or str(other.library) == str(tree.library):
        return 0
    return looked & ~<unsigned int>passed_otherwise(other, release.base)


def passed_otherwise(tree, release):
    """Arguments (a bit each) that a tree passes otherwise than a release."""
    key = (str(tree.library), release)
    if key not in PASSED:
        _, found = compare(tree, release, 100_000, 0, 1000)
        PASSED[key] = 0
        for example in found:
            for place in example.get("passed", ()):
                PASSED[key] |= 1 << place
    return PASSED[key]


cdef dict PASSED = {}


cdef inline int known_flags(const counted *c) noexcept nogil:
    """PCPF_* that are compared: those of the tree alone are as its own fields."""
    return -1 if c.rules.tree else PCPF_PREV_FREE_HIGH_ORDER | PCPF_FREE_HIGH_BATCH


cdef bint alike(
    const counted *c, const tree_ops *ops, const void *set, const operation *o, int fields
) noexcept nogil:
    """Whether fields, lists and holds are the same after an operation."""
    cdef tree_fields f, mine
    cdef char own[PCPMODEL_TREE_OWN]
    cdef int lists[PCPMODEL_TREE_LISTS]
    cdef int theirs[PCPMODEL_TREE_LISTS]
    cdef const tree_hold *holds
    cdef int i, k = 0, n
    if ops.failed(set) or ops.passed(set).otherwise & c.arguments:
        return False
    ops.get(set, &f, lists)
    to_fields(&c.pcp, &mine)
    if (
        f.count != mine.count
        or (fields & HAS_HIGH and f.high != mine.high)
        or (fields & HAS_FLAGS and (f.flags ^ mine.flags) & known_flags(c))
        or (fields & HAS_ALLOC_FACTOR and f.alloc_factor != mine.alloc_factor)
        or (fields & HAS_FREE_FACTOR and f.free_factor != mine.free_factor)
        or (fields & HAS_FREE_COUNT and f.free_count != mine.free_count)
        or (fields & HAS_COUNT_MIN and f.count_min != mine.count_min)
        or (fields & HAS_EXPIRE and f.expire != mine.expire)
        or (fields & HAS_DECAY and c.work != c.tree_work)
    ):
        return False
    lists_for_tree(c, theirs)
    for i in range(ops.nr_lists):
        if lists[i] != theirs[i]:
            return False
    if c.rules.tree:  # which carries the tree's own fields
        memset(own, 0, sizeof(own))
        ops.own(set, own)
        if memcmp(own, c.pcp.own, sizeof(own)):
            return False
    if o.op >= OP_RESIZE:
        return True
    n = ops.holds(set, &holds)
    for i in range(n):  # a hold that moves nothing is none
        if holds[i].pages == 0 and holds[i].asked == 0:
            continue
        while k < c.nr_holds and c.hold[k].pages == 0 and c.hold[k].asked == 0:
            k += 1
        if k == c.nr_holds:
            return False
        if (
            holds[i].pages != c.hold[k].pages or holds[i].blocks != c.hold[k].blocks
            or holds[i].got != c.hold[k].got or holds[i].asked != c.hold[k].asked
        ):
            return False
        k += 1
    while k < c.nr_holds and c.hold[k].pages == 0:
        k += 1
    return k == c.nr_holds


cdef int fields_alone(tree, const pcp_rules *r) except -1:
    """Those that the tree keeps and the release does not look at."""
    cdef int its = 0
    its |= HAS_FLAGS * (not r.free_high_two_in_a_row and "flags" in tree.fields)
    its |= HAS_ALLOC_FACTOR * (not r.alloc_scale and "alloc_factor" in tree.fields)
    its |= HAS_FREE_FACTOR * (r.free_count and "free_factor" in tree.fields)
    its |= HAS_FREE_COUNT * (not r.free_count and "free_count" in tree.fields)
    its |= HAS_COUNT_MIN * (not r.count_min and "count_min" in tree.fields)
    return its


cdef void take(int fields, const tree_fields *theirs, tree_fields *f) noexcept nogil:
    """Some fields of others."""
    if fields & HAS_FLAGS:
        f.flags = theirs.flags
    if fields & HAS_ALLOC_FACTOR:
        f.alloc_factor = theirs.alloc_factor
    if fields & HAS_FREE_FACTOR:
        f.free_factor = theirs.free_factor
    if fields & HAS_FREE_COUNT:
        f.free_count = theirs.free_count
    if fields & HAS_COUNT_MIN:
        f.count_min = theirs.count_min


cdef inline int below(uint64_t *rng, int n) noexcept nogil:
    return <int>((draw(rng) >> 32) * <uint64_t>n >> 32)


cdef enum:
    MOST_USUAL = 127  # twice the batch of any release


cdef int beyond(batch):
    """A batch that is larger than those of all releases; else 0."""
    return batch if batch is not None and MOST_USUAL < batch <= MAX_BATCH else 0


cdef int *BATCHES = [1, 7, 31, 63]
cdef int *ALLOCS = [0, 0, 256, 256, 128, 200, 56, 250]
cdef int *FLAGS = [0, 0, ZONE_BELOW_HIGH, ZONE_RECLAIM_ACTIVE]


cdef struct mood:
    int batch  # of a large zone, if that is beyond those of any release; else 0
    bint calm  # few ticks and drains, so that high comes to where machines have it
    int left  # operations until the next change of it
    int allocs  # of 256 operations
    int order  # -1: any
    int migratetype  # -1: any


cdef void sizes(uint64_t *rng, const mood *m, operation *o) noexcept nogil:
    """Sizes as machines have them, and odd ones."""
    cdef int kind = below(rng, 8)
    o.batch = BATCHES[below(rng, 4)] if kind < 6 else 1 + below(rng, MOST_USUAL)
    if m.batch and kind < 4:
        o.batch = m.batch
    o.high_min = 4 * o.batch + below(rng, 1 << below(rng, 12)) if kind else below(rng, 2000)
    o.high_max = o.high_min
    if kind != 1 and kind != 7:
        o.high_max += below(rng, 1 << below(rng, 16))
    o.pcp_flags = PCPF_FREE_HIGH_BATCH if draw(rng) & 1 else 0


cdef int *ORDERS = [0, 0, 0, 0, 0, 1, 2, 3, 1, 9, 0, 0, 0, 3, 2, 1]


cdef void any_operation(
    uint64_t *rng, mood *m, unsigned int orders, int count, operation *o
) noexcept nogil:
    cdef int dice
    if m.left == 0:
        m.left = 1 << (12 + below(rng, 5) if m.calm else below(rng, 13))
        # Refills after a few frees each raise high by a batch; then it takes as many to get there.
        m.allocs = 250 - m.allocs if m.calm and draw(rng) & 3 and m.allocs in (0, 250) \
            else ALLOCS[below(rng, 8)]
        m.order = ORDERS[below(rng, 16)] if draw(rng) & 3 else -1
        m.migratetype = below(rng, 3) if draw(rng) & 3 else -1
    m.left -= 1
    o.order = m.order if m.order >= 0 else ORDERS[below(rng, 16)]
    if not orders >> o.order & 1:
        o.order = 0
    o.migratetype = m.migratetype if m.migratetype >= 0 else below(rng, 3)
    o.available = 1 << 26
    o.times = 1
    dice = below(rng, 4096 << 10 if m.calm else 4096)
    if dice < 4 or count > 1 << 21:
        o.op = OP_DRAIN_ALL
    elif dice < 8:
        o.op = OP_RESIZE
        sizes(rng, m, o)
    elif dice < 20:
        o.op = OP_FLAGS
        o.zone_flags = FLAGS[below(rng, 4)]
        if below(rng, 16) == 0:
            o.zone_flags = below(rng, 8)
    elif dice < 60:
        o.op = OP_DECAY
    elif dice < 80:
        o.op = OP_DRAIN_REMOTE
    elif below(rng, 256) < m.allocs:
        o.op = OP_ALLOC
        if dice < 120:
            o.available = below(rng, 64)
    else:
        o.op = OP_FREE


def compare(
    tree, release, long n=10_000_000, unsigned long seed=0, int most=1, int length=1 << 17,
    bint rows=False, bint lists=True
):
    """Random operations on a tree and on the rules of a release.

    Parameters
    ----------
    tree : Tree
    release : str or Release
    n : int
        Operations at most.
    seed : int
    most : int
        Differences of each kind of operation after which it ends.  After each the tree goes on
        from the release's state.  Where blocks stand on other lists that is one, and of more those
        are compared that both keep apart.
    length : int
        Operations until both begin anew with empty lists and other sizes.
    lists : bool
        Other lists are a difference also where each of the release's has its counterpart.
    rows : bool
        Operations that take no lock are done many in a row, of the tree one by one.

    Returns
    -------
    done : int
        Operations.
    differences : list of dict
        Of each: the operation; fields, lists and holds before it, and after it by each.
    """
    cdef const tree_ops *ops = ops_of(tree)
    cdef counted *c = <counted *>calloc(1, sizeof(counted))
    cdef void *set = calloc(1, ops.size)
    cdef uint64_t rng = seed
    cdef long done = 0
    cdef int left = 0
    cdef int found[NR_OPS]
    cdef int told[TREE_ARGUMENTS]
    cdef int place
    cdef operation o
    cdef mood m
    cdef tree_fields before, theirs
    cdef int lists_before[PCPMODEL_TREE_LISTS]
    cdef int here[PCPMODEL_TREE_LISTS]
    cdef bint same = True
    cdef int fields, alone
    cdef unsigned int flags_before = 0
    memset(&o, 0, sizeof(o))
    memset(&m, 0, sizeof(m))
    m.batch = beyond(sizing(tree, SERVER_ZONE_BYTES >> 12, SERVER_ZONE_BYTES >> 22, 1, 1)[0])
    memset(found, 0, sizeof(found))
    memset(told, 0, sizeof(told))
    differences = []
    try:
        if c == NULL or set == NULL:
            raise MemoryError
        c.rules = rules_of(release)
        fields = fields_of(tree, &c.rules)
        alone = fields_alone(tree, &c.rules)
        c.arguments = arguments_of(tree, release, &c.rules)
        different = map_lists(tree, ops, c)
        if different and (lists or not corresponds(c)):
            differences.append({"op": "order_to_pindex", **different})
            if most == 1 or not c.orders & 1:
                return 0, differences
        while done < n:
            with nogil:
                while done < n:
                    if left == 0:
                        left = length
                        m.left = 0
                        m.calm = done > 0 and not m.calm
                        c.zone_flags = 0
                        memset(&c.pcp, 0, sizeof(per_cpu_pages))
                        memset(c.nr, 0, sizeof(c.nr))
                        sizes(&rng, &m, &o)
                        if m.calm and o.high_max > o.high_min:
                            o.high_max += 1 << (12 + below(&rng, 7))
                        resize(&c.pcp, &c.rules, &o)
                        c.pcp.high = c.pcp.high_min
                        if m.calm and c.rules.auto_high:
                            c.pcp.high += below(&rng, o.high_max - o.high_min + 1)
                        begin_from(c, ops, set)
                    left -= 1
                    any_operation(&rng, &m, c.orders, c.pcp.count, &o)
                    if rows and draw(&rng) & 1:
                        o.times = 1 + below(&rng, 1 << below(&rng, 13))
                    to_fields(&c.pcp, &before)
                    if alone:
                        ops.get(set, &theirs, here)
                        take(alone, &theirs, &before)
                    memcpy(lists_before, c.nr, sizeof(lists_before))
                    flags_before = c.zone_flags
                    done += 1
                    if not once(c, ops, set, &o, fields):
                        same = False
                        break
            if same:
                break
            tell_failed()
            same = True
            found[o.op] += 1
            differences.append(
                described(c, ops, set, &o, before, lists_before, flags_before, fields)
            )
            if found[o.op] == most:
                break
            for place in differences[-1]["passed"]:
                told[place] += 1
                if told[place] == MOST_TOLD:
                    c.arguments &= ~(1 << place)
            if c.failed:
                left = 0
            c.failed = 0
            c.pcp.due = 0
            memset(c.pcp.own, 0, sizeof(c.pcp.own))
            begin_from(c, ops, set)
        return done, differences
    finally:
        if set != NULL:
            ops.release(set)
        free(set)
        free(c)


cdef void begin_from(const counted *c, const tree_ops *ops, void *set) noexcept nogil:
    """A pageset of the tree in the state that the release's is in."""
    cdef tree_fields f
    cdef int lists[PCPMODEL_TREE_LISTS]
    ops.release(set)
    ops.init(set)
    to_fields(&c.pcp, &f)
    lists_for_tree(c, lists)
    ops.put(set, &f, lists)


cdef void lists_for_tree(const counted *c, int *lists) noexcept nogil:
    """The release's lists as those of the tree."""
    cdef int i
    memset(lists, 0, PCPMODEL_TREE_LISTS * sizeof(int))
    for i in range(c.rules.nr_pcp_lists):
        if c.at[i] >= 0:
            lists[c.at[i]] = c.nr[i]


cdef bint once(
    counted *c, const tree_ops *ops, void *set, const operation *o, int fields
) noexcept nogil:
    """One operation on both; whether they did alike."""
    cdef tree_fields f
    cdef int lists[PCPMODEL_TREE_LISTS]
    if o.op == OP_FLAGS:
        c.zone_flags = o.zone_flags
        return True
    if o.op == OP_RESIZE:
        resize(&c.pcp, &c.rules, o)
        ops.get(set, &f, lists)
        f.batch, f.high_min, f.high_max = c.pcp.batch, c.pcp.high_min, c.pcp.high_max
        f.flags = c.pcp.flags
        if not c.rules.high_min_max:
            f.high = c.pcp.high
        elif not fields & HAS_HIGH:
            f.high = c.pcp.high_min
        ops.put(set, &f, lists)
        return True
    if o.op == OP_DRAIN_REMOTE and c.pcp.count == 0:
        return True  # refresh_cpu_vm_stats() looks first
    by_rules(c, o)
    c.tree_work = by_tree(ops, set, c.zone_flags, o, c.times)
    return not c.failed and alike(c, ops, set, o, fields)


cdef dict described(
    const counted *c, const tree_ops *ops, const void *set, const operation *o,
    tree_fields before, const int *lists_before, unsigned int zone_flags, int fields
):
    cdef tree_fields mine, theirs
    cdef int lists[PCPMODEL_TREE_LISTS]
    cdef const tree_hold *holds
    cdef int i, n = ops.holds(set, &holds), nr = c.rules.nr_pcp_lists
    cdef const tree_passed *passed = ops.passed(set)
    to_fields(&c.pcp, &mine)
    ops.get(set, &theirs, lists)
    theirs.flags &= known_flags(c)
    if ops.failed(set):
        failed = FAILED[ops.failed(set)]
    else:
        failed = ""
    return {
        "op": OPS[o.op], "order": o.order, "migratetype": o.migratetype,
        "available": o.available, "zone_flags": zone_flags, "failed": failed,
        "compared": [name for i, name in enumerate(FIELDS) if fields >> i & 1],
        "passed": {
            i: (passed.due[i], passed.passed[i]) for i in range(TREE_ARGUMENTS)
            if passed.otherwise & c.arguments & 1 << i
        },
        "before": {**before, "lists": [lists_before[i] for i in range(nr)]},
        "release": {
            **mine, "returned": int(c.work), "lists": [c.nr[i] for i in range(nr)],
            "holds": [c.hold[i] for i in range(c.nr_holds)],
        },
        "tree": {
            **theirs, "returned": int(c.tree_work),
            "lists": [lists[c.at[i]] if c.at[i] >= 0 else 0 for i in range(nr)],
            "holds": [holds[i] for i in range(n)],
        },
    }


def try_once(tree, release, example):
    """An operation of `compare` again, from ``example["before"]``; None if both do alike."""
    cdef const tree_ops *ops = ops_of(tree)
    cdef counted *c = <counted *>calloc(1, sizeof(counted))
    cdef void *set = calloc(1, ops.size)
    cdef operation o
    cdef tree_fields f
    cdef int i
    cdef int lists[PCPMODEL_TREE_LISTS]
    cdef int before_[PCPMODEL_TREE_LISTS]
    cdef unsigned int zone_flags = example["zone_flags"]
    memset(&o, 0, sizeof(o))
    try:
        if c == NULL or set == NULL:
            raise MemoryError
        c.rules = rules_of(release)
        c.arguments = arguments_of(tree, release, &c.rules)
        map_lists(tree, ops, c)
        before = dict(example["before"])
        memset(before_, 0, sizeof(before_))
        for i, blocks in enumerate(before.pop("lists")):
            c.nr[i] = before_[i] = blocks
        f = before
        c.pcp.count, c.pcp.high, c.pcp.high_min = f.count, f.high, f.high_min
        c.pcp.high_max, c.pcp.batch, c.pcp.flags = f.high_max, f.batch, f.flags
        c.pcp.alloc_factor, c.pcp.free_factor = f.alloc_factor, f.free_factor
        c.pcp.free_count, c.pcp.count_min, c.pcp.expire = f.free_count, f.count_min, f.expire
        c.zone_flags = zone_flags
        ops.init(set)
        lists_for_tree(c, lists)
        ops.put(set, &f, lists)
        o.op = OPS.index(example["op"])
        o.order, o.migratetype = example["order"], example["migratetype"]
        o.available, o.times = example["available"], 1
        if once(c, ops, set, &o, fields_of(tree, &c.rules)):
            return None
        tell_failed()
        return described(c, ops, set, &o, f, before_, zone_flags, fields_of(tree, &c.rules))
    finally:
        if set != NULL:
            ops.release(set)
        free(set)
        free(c)


cdef bint corresponds(const counted *c) noexcept nogil:
    """Whether blocks of every order stand on lists that follow each other as the release's do."""
    cdef int i, last = -1
    if c.more:
        return False
    for i in range(c.rules.nr_pcp_lists):
        if c.at[i] <= last:
            return False
        last = c.at[i]
    return True


def lists_correspond(tree, release):
    """Whether a tree has a list for each of a release, in their order, and maybe more."""
    cdef counted *c = <counted *>calloc(1, sizeof(counted))
    try:
        if c == NULL:
            raise MemoryError
        c.rules = rules_of(release)
        map_lists(tree, ops_of(tree), c)
        return corresponds(c)
    finally:
        free(c)


cdef map_lists(tree, const tree_ops *ops, counted *c):
    """Find the tree's lists for those of a release; what is different about them, or None.

    Orders whose blocks do not stand on lists of their own in both are left out.
    """
    cdef int i, mt, mine, theirs, order
    cdef bint taken[PCPMODEL_TREE_LISTS]
    cdef int lists = c.rules.nr_pcp_lists
    found = None
    memset(taken, 0, sizeof(taken))
    c.orders = 0
    for i in range(PCPMODEL_TREE_LISTS):
        c.at[i] = -1
    if ops.nr_lists != lists:
        found = {"release": {"lists": lists}, "tree": {"lists": ops.nr_lists}}
    for order in pcp_orders(lists):
        at = {}
        for mt in MIGRATETYPES.values():
            mine, theirs = order_to_pindex(lists, mt, order), ops.pindex(mt, order)
            tell_failed()
            if found is None and not mine == theirs < ops.nr_lists:
                found = {
                    "order": order, "migratetype": mt, "release": {"pindex": mine},
                    "tree": {"pindex": theirs},
                }
            if not 0 <= theirs < ops.nr_lists or at.setdefault(mine, theirs) != theirs:
                break
            i = ops.order(theirs)
            tell_failed()
            if found is None and i != order:
                found = {"pindex": theirs, "release": {"order": order}, "tree": {"order": i}}
            if i != order or taken[theirs]:
                break
        else:
            if len(set(at.values())) == len(at):
                c.orders |= 1 << order
                for mine, theirs in at.items():
                    c.at[mine] = theirs
                    taken[theirs] = True
    c.more = False
    for order in set(pcp_orders(MAX_PCP_LISTS)) - set(pcp_orders(lists)):
        theirs = ops.pindex(1, order)
        tell_failed()
        if 0 <= theirs < ops.nr_lists:
            c.more = c.more or ops.order(theirs) == order
            tell_failed()
    if found is not None:
        found["left_out"] = [order for order in pcp_orders(lists) if not c.orders >> order & 1]
    return found

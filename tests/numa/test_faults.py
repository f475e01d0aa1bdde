"""The hint-fault rules: fast against slow, and both against CPUs with TLBs.

The TLBs are the test's own.  A CPU may use an entry as long as nobody took it away; what
the kernel's flushes must guarantee is checked at every step.
"""

# SPDX-License-Identifier: GPL-2.0-only

import random
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pcpmodel.numa.faults import Machine as Fast
from pcpmodel.numa.parameters import RELEASES
from pcpmodel.numa.reference import COUNTS
from pcpmodel.numa.reference import Machine as Slow

PROCESSES, THREADS, PAGES, CPUS = 2, 3, 2, 5
NT = PROCESSES * THREADS
ACC, NONE, MIG, ISOLATED, TARGET = 0, 1, 2, 4, 8


class HintFaults(RuleBasedStateMachine):
    """Threads, CPUs and TLBs around the two machines."""

    @initialize(
        release=st.sampled_from(sorted(RELEASES)),
        nodes=st.lists(st.booleans(), min_size=PROCESSES * PAGES, max_size=PROCESSES * PAGES),
        refused=st.integers(-1, PROCESSES * PAGES - 1),
        spare=st.integers(0, 6),
        high=st.integers(0, 2),
    )
    def start(self, release, nodes, refused, spare, high):
        room = (PROCESSES * PAGES, sum(nodes) + spare)
        args = (RELEASES[release], PROCESSES, THREADS, PAGES, *room, high)
        self.both = Fast(*args), Slow(*args)
        self.frames = sum(room)
        for g, node in enumerate(nodes):
            assert self.do("place", g, int(node), g == refused)
        self.tlb = [{} for _ in range(CPUS)]  # page -> frame
        self.loaded = [-1] * CPUS  # process whose page table the CPU has
        self.behind = [False] * CPUS  # lazy, and a flush was not sent to it
        self.current = [-1] * CPUS
        self.phase = ["user"] * NT
        self.batch = []
        self.batch_flushed = False
        self.scan = {}  # process -> [thread, updated, flushed]
        for cpu in range(CPUS):
            self.switch(cpu, 0)

    def do(self, what, *args):
        """Call both machines; they must agree."""
        one, two = (getattr(m, what)(*args) for m in self.both)
        assert one == two, what
        return one

    def pte(self, g):
        return self.words[g] & 3

    @property
    def words(self):
        return self.both[0].state[0]

    def frame(self, g):
        return self.both[0].state[1][g]

    def on_cpu(self, t):
        return self.current[t % CPUS] == t

    def threads(self, *phases):
        return [t for t in range(NT) if self.phase[t] in phases and self.on_cpu(t)]

    def shoot(self, mm, sender, targets, pages):
        """Deliver a flush; exactly the other CPUs that run ``mm`` are interrupted."""
        awake = [
            c for c in range(CPUS) if self.current[c] >= 0 and self.current[c] // THREADS == mm
        ]
        assert sender % CPUS in awake
        assert targets == len(awake) - 1
        for c in range(CPUS):
            if c in awake:
                for g in pages:
                    self.tlb[c].pop(g, None)
            elif self.loaded[c] == mm:
                self.behind[c] = True  # lazy: it looks when it comes back

    def usable(self, g):
        """CPUs that could still use a translation of page ``g`` without asking anybody."""
        return [c for c in range(CPUS) if g in self.tlb[c] and not self.behind[c]]

    # CPUs

    @rule(cpu=st.integers(0, CPUS - 1), pick=st.integers(0, 9))
    def switch(self, cpu, pick):
        old = self.current[cpu]
        if old >= 0 and self.phase[old] not in ("user", "wait", "retry"):
            return  # no preemption inside the kernel
        able = [t for t in range(cpu, NT, CPUS) if self.phase[t] in ("user", "retry")] + [-1]
        new = able[pick % len(able)]
        if new == old:
            return
        if old >= 0:
            for m in self.both:
                m.run(old // THREADS, -1)
        self.current[cpu] = new
        if new >= 0:
            mm = new // THREADS
            for m in self.both:
                m.run(mm, 1)
            if self.loaded[cpu] != mm or self.behind[cpu]:
                self.tlb[cpu] = {}
            self.loaded[cpu], self.behind[cpu] = mm, False

    # Threads

    @precondition(lambda self: self.threads("user", "retry"))
    @rule(pick=st.integers(0, 99), page=st.integers(0, PAGES - 1))
    def touch(self, pick, page):
        able = self.threads("user", "retry")
        t = able[pick % len(able)]
        g = t // THREADS * PAGES + page
        cache = self.tlb[t % CPUS]
        self.phase[t] = "user"
        if g in cache:
            # No access through a stale mapping: what is cached is where the page is.
            assert cache[g] == self.frame(g)
            return
        step = self.do("access", t, g)
        assert step == ("hit" if self.pte(g) == ACC else "fault")
        if step == "hit":
            cache[g] = self.frame(g)
        else:
            self.phase[t] = "fault"
            self.page = getattr(self, "page", {}) | {t: g}

    @precondition(lambda self: self.threads("fault", "relock", "isolated", "unmapped"))
    @rule(pick=st.integers(0, 99), moved=st.booleans())
    def step(self, pick, moved):
        able = self.threads("fault", "relock", "isolated", "unmapped")
        t = able[pick % len(able)]
        g = self.page[t]
        if self.phase[t] in ("fault", "relock"):
            self.phase[t] = self.do("fault" if self.phase[t] == "fault" else "relock", t)
            if self.phase[t] == "mapped":
                assert self.pte(g) == ACC
                self.phase[t] = "user"
        elif self.phase[t] == "isolated":
            mm = t // THREADS
            accessible = self.pte(g) == ACC
            pending = self.both[0].state[2][mm] > 0
            targets = self.do("unmap", t)
            assert (targets >= 0) == (accessible or pending)
            if targets >= 0:
                self.shoot(mm, t, targets, [g])
            assert self.pte(g) == MIG
            assert not self.usable(g)
            self.phase[t] = "unmapped"
        else:
            assert not self.usable(g)
            self.do("finish", t, moved)
            assert self.pte(g) == ACC
            self.phase[t] = "user"

    @rule()
    def wake(self):
        for t in range(NT):
            if self.phase[t] == "wait" and self.pte(self.page[t]) != MIG:
                self.phase[t] = "retry"

    # Scanner

    @precondition(lambda self: self.threads("user"))
    @rule(pick=st.integers(0, 99), pages=st.integers(1, PAGES))
    def scan_pages(self, pick, pages):
        able = [t for t in self.threads("user") if t // THREADS not in self.scan]
        if not able:
            return
        t = able[pick % len(able)]
        mm = t // THREADS
        self.phase[t] = "scan"
        self.do("scan_begin", mm)
        updated = False
        for g in range(mm * PAGES, mm * PAGES + pages):
            was = self.pte(g)
            changed = self.do("scan_page", g)
            assert changed == (was == ACC)
            updated |= changed
        self.scan[mm] = [t, updated, False]

    @precondition(lambda self: self.scan)
    @rule(pick=st.integers(0, 9))
    def scan_next(self, pick):
        mm = sorted(self.scan)[pick % len(self.scan)]
        t, updated, flushed = self.scan[mm]
        if not flushed:
            targets = self.do("scan_flush", mm, updated)
            assert (targets >= 0) == updated
            if updated:
                self.shoot(mm, t, targets, range(mm * PAGES, (mm + 1) * PAGES))
            self.scan[mm][2] = True
        else:
            self.do("scan_end", mm)
            self.phase[t] = "user"
            del self.scan[mm]

    # migrate_pages() with one flush for many pages

    @precondition(lambda self: not self.batch and self.threads("user"))
    @rule(
        pick=st.integers(0, 99),
        node=st.integers(0, 1),
        pages=st.lists(st.integers(0, PAGES - 1), max_size=PAGES),
    )
    def batch_unmap(self, pick, node, pages):
        able = self.threads("user")
        t = able[pick % len(able)]
        mm = t // THREADS
        self.do("batch_begin", t, node)
        for page in pages:
            if self.do("batch_unmap", mm * PAGES + page):
                self.batch.append(mm * PAGES + page)
        if self.batch:
            self.batch_thread, self.batch_flushed = t, False
            self.phase[t] = "batch"

    @precondition(lambda self: self.batch)
    @rule()
    def batch_next(self):
        t = self.batch_thread
        if not self.batch_flushed:
            targets = self.do("batch_flush")
            if targets >= 0:
                self.shoot(t // THREADS, t, targets, self.batch)
            self.batch_flushed = True
        else:
            assert not any(self.usable(g) for g in self.batch)
            self.do("batch_finish")
            self.batch = []
            self.phase[t] = "user"

    # What must always hold

    @invariant()
    def machines_agree(self):
        if hasattr(self, "both"):
            assert self.both[0].state == self.both[1].state
            assert self.both[0].counts == self.both[1].counts

    @invariant()
    def no_page_lost(self):
        if not hasattr(self, "both"):
            return
        _, frames, _, free = self.both[0].state
        moving = [t for t in range(NT) if self.phase[t] in ("isolated", "unmapped")]
        assert len(set(frames)) == len(frames)
        assert len(frames) + sum(free) + len(moving) + len(self.batch) == self.frames
        # Off the LRU or under a migration entry: exactly one thread will bring it back.
        owners = sorted([self.page[t] for t in moving] + self.batch)
        assert owners == [g for g, word in enumerate(self.words) if word & ISOLATED]
        assert all(word & ISOLATED for word in self.words if word & 3 == MIG)

    @invariant()
    def inaccessible_means_not_cached(self):
        """A hint without a flush on its way needs no flush later: nobody has it cached."""
        if not hasattr(self, "both"):
            return
        for g, word in enumerate(self.words):
            if word & 3 == NONE and self.both[0].state[2][g // PAGES] == 0:
                assert not self.usable(g)

    def teardown(self):
        """Whatever was under way can be finished, and every page is there again."""
        if not hasattr(self, "both"):
            return
        while self.batch:
            self.batch_next()
        while self.scan:
            self.scan_next(0)
        for _ in range(3 * NT):
            self.wake()
            for t in range(NT):
                if not self.on_cpu(t) and self.phase[t] not in ("user", "retry", "wait"):
                    raise AssertionError("preempted in the kernel")
            if self.threads("fault", "relock", "isolated", "unmapped"):
                self.step(0, True)
        assert not any(word & ISOLATED or word & 3 == MIG for word in self.words)
        assert set(self.phase) <= {"user", "retry"}
        self.machines_agree()
        self.no_page_lost()


TestHintFaults = HintFaults.TestCase
TestHintFaults.settings = settings(max_examples=60, stateful_step_count=60)


WALK = {
    "switch": 2, "touch": 6, "step": 9, "wake": 3, "scan_pages": 2, "scan_next": 2,
    "batch_unmap": 1, "batch_next": 3,
}  # fmt: skip


@pytest.mark.parametrize("release", sorted(RELEASES))
def test_long_random_walk(release):
    """Rare meetings of scanner, threads and batches: thousands of steps instead of tens."""
    draw = random.Random(release)
    met = Counter()
    for refused in (-1, -1, -1, -1, 0):
        walk = HintFaults()
        nodes = [False, *(draw.random() < 0.3 for _ in range(PROCESSES * PAGES - 1))]
        walk.start(release, nodes, refused, 6, 0)
        for _ in range(1200):
            name = draw.choices(list(WALK), list(WALK.values()))[0]
            pick, flag = draw.randrange(100), draw.random() < 0.7
            if name == "switch":
                walk.switch(draw.randrange(CPUS), pick)
            elif name == "touch" and walk.threads("user", "retry"):
                walk.touch(pick, draw.randrange(PAGES))
            elif name == "step" and walk.threads("fault", "relock", "isolated", "unmapped"):
                walk.step(pick, flag)
            elif name == "wake":
                walk.wake()
            elif name == "scan_pages" and walk.threads("user"):
                walk.scan_pages(pick, PAGES)
            elif name == "scan_next" and walk.scan:
                walk.scan_next(pick)
            elif name == "batch_unmap" and not walk.batch and walk.threads("user"):
                walk.batch_unmap(pick, int(flag), list(range(PAGES)))
            elif name == "batch_next" and walk.batch:
                walk.batch_next()
            walk.machines_agree()
            walk.no_page_lost()
            walk.inaccessible_means_not_cached()
        met.update(walk.both[0].counts)
        walk.teardown()
    assert all(met[name] for name in COUNTS), met


def machines(release, **kw):
    args = {"processes": 1, "threads": 3, "npages": 2, "node0_pages": 4, "node1_pages": 4} | kw
    for kind in (Fast, Slow):
        m = kind(RELEASES[release], *args.values())
        for g in range(args["npages"]):
            m.place(g, 0)
        m.run(0, args["threads"])
        m.scan_begin(0)
        for g in range(args["npages"]):
            m.scan_page(g)
        m.scan_flush(0, True)
        m.scan_end(0)
        yield m


def test_before_flushes_at_every_migration_and_after_at_none():
    for release, flush in (("v5.12", 2), ("v5.13", -1), ("v6.1", -1), ("v7.2", -1)):
        for m in machines(release):
            assert m.access(0, 0) == "fault"
            assert m.fault(0) == "isolated"
            assert (m.access(1, 0) == "hit") == (release == "v5.12")
            assert m.unmap(0) == flush
            m.finish(0, True)
            assert m.access(1, 0) == "hit"
            assert m.counts["migrated_pages"] == 1


def test_second_thread_that_maps_first_costs_the_first_a_flush():
    for m in machines("v5.13"):
        assert (m.access(0, 0), m.access(1, 0)) == ("fault", "fault")
        assert (m.fault(0), m.fault(1)) == ("isolated", "relock")
        assert m.relock(1) == "mapped"
        assert m.unmap(0) == 2
        m.finish(0, True)


def test_second_thread_that_comes_after_the_unmap_refaults_and_waits():
    for m in machines("v5.13"):
        assert (m.access(0, 0), m.access(1, 0)) == ("fault", "fault")
        assert (m.fault(0), m.fault(1)) == ("isolated", "relock")
        assert m.unmap(0) == -1
        assert m.relock(1) == "retry"
        assert m.access(1, 0) == "fault"
        assert m.fault(1) == "wait"
        m.finish(0, True)
        assert m.access(1, 0) == "hit"
        assert (m.counts["retries"], m.counts["waits"]) == (1, 1)


def test_isolation_under_the_lock_maps_at_once():
    for m in machines("v7.2"):
        assert (m.access(0, 0), m.access(1, 0)) == ("fault", "fault")
        assert (m.fault(0), m.fault(1)) == ("isolated", "mapped")
        assert m.unmap(0) == 2


def test_a_scan_under_way_makes_a_flush_necessary():
    for m in machines("v5.13"):
        assert (m.access(0, 0), m.fault(0)) == ("fault", "isolated")
        m.scan_begin(0)
        assert m.unmap(0) == 2
        m.scan_end(0)


@pytest.mark.parametrize("release", sorted(RELEASES))
def test_full_node_refuses_and_leaves_the_page_accessible(release):
    for m in machines(release, high_wmark=4):
        assert m.access(0, 0) == "fault"
        step = m.fault(0)
        if step == "relock":
            step = m.relock(0)
        assert step == "mapped"
        assert m.access(0, 0) == "hit"
        assert (m.counts["refused"], m.counts["unmaps"]) == (1, 0)


def test_single_threaded_process_is_not_scanned_on_its_node():
    for kind in (Fast, Slow):
        m = kind(1, 1, 1, 2, 4, 4)
        m.place(0, 0)
        m.place(1, 1)
        assert [m.scan_page(0), m.scan_page(1)] == [True, False]


def test_batch_flushes_once():
    for kind in (Fast, Slow):
        m = kind(7, 1, 4, 8, 8, 8)
        m.run(0, 4)
        for g in range(8):
            m.place(g, 0)
        m.batch_begin(0, 1)
        assert all(m.batch_unmap(g) for g in range(8))
        assert (m.batch_flush(), m.batch_flush()) == (3, -1)
        m.batch_finish()
        assert (m.counts["unmap_interrupts"], m.counts["migrated_pages"]) == (3, 8)


@pytest.mark.parametrize(
    ("call", "args"), [("access", (9, 0)), ("access", (0, 9)), ("fault", (-1,))]
)
def test_outside_is_refused(call, args):
    with pytest.raises((IndexError, OverflowError)):
        getattr(next(machines("v5.12")), call)(*args)

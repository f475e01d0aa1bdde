"""The slow twin of ``faults.pxd`` and ``clock.pyx``: same rules, plain Python.

Obvious before fast: one page is a dictionary entry, the clock looks at every
thread to find the next event, page accesses lie in one heap.  Given the same
configuration it draws the same random numbers in the same order, so that all
counters, times and page frames must be equal to the fast engine's, bit by bit.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["COUNTS", "Engine", "Machine"]

COUNTS = (
    "hint_faults", "retries", "waits", "local_faults", "migrated_pages", "refused",
    "unmap_failed", "unmaps", "unmap_flushes", "pending_flushes", "unmap_interrupts",
    "scans", "scan_updates", "scan_flushes", "scan_interrupts",
)  # fmt: skip

ACC, NONE, MIG = 0, 1, 2
DELAY_MAPPING, UNCOUNTED_RETRY, PREPARE_LOCKED = 1, 2, 4
NEVER = 0x7FFFFFFFFFFFFFFF


class Page:
    """One page of one process."""

    def __init__(self) -> None:
        self.pte = ACC
        self.isolated = False
        self.target = False  # on the node of the threads
        self.refused = False
        self.last = 0  # thread of the last hint fault + 1
        self.frame = 0
        self.queued = False
        self.held = False

    @property
    def word(self) -> int:
        """The bits as the fast machine keeps them."""
        return self.pte | self.isolated << 2 | self.target << 3 | self.refused << 4 | self.last << 8


class Thread:
    """What the kernel knows of one thread."""

    def __init__(self, mm: int) -> None:
        self.mm = mm
        self.cpu = 0
        self.page = 0
        self.orig = ACC
        self.frame = -1
        self.local = self.remote = self.failed = self.shared = self.private = 0


class Stacks:
    """Plain page frames: one last-in first-out stack per node, low frames first."""

    def __init__(self, *pages: int) -> None:
        first, self.free_frames = 0, []
        for n in pages:
            self.free_frames.append(list(range(first + n - 1, first - 1, -1)))
            first += n

    def alloc(self, node: int, cpu: int) -> int:
        return self.free_frames[node].pop() if self.free_frames[node] else -1

    def free(self, node: int, cpu: int, frame: int) -> None:
        self.free_frames[node].append(frame)

    def nr_free(self, node: int) -> int:
        return len(self.free_frames[node])


class Nodes:
    """Page frames of two kernel memories, one zone each; see ``pcpmodel.numa.nodes``."""

    def __init__(self, *memories: Any) -> None:
        self.memories = memories

    def alloc(self, node: int, cpu: int) -> int:
        frame = self.memories[node].alloc(cpu, gfp="nowait")
        return -1 if frame is None else frame

    def free(self, node: int, cpu: int, frame: int) -> None:
        self.memories[node].free(cpu, frame)

    def nr_free(self, node: int) -> int:
        return self.memories[node].zone[0].nr_free()


class Machine:
    """The kernel's steps, one at a time; see `pcpmodel.numa.faults.Machine` for the parameters."""

    def __init__(
        self,
        rules: int,
        processes: int,
        threads: int,
        npages: int,
        node0_pages: int,
        node1_pages: int,
        high_wmark: int = 0,
    ) -> None:
        self.rules = rules
        self.threads = threads
        self.npages = npages
        self.high_wmark = high_wmark
        self.pages = [Page() for _ in range(processes * npages)]
        self.thread = [Thread(t // threads) for t in range(processes * threads)]
        self.flush_pending = [0] * processes
        self.running = [0] * processes
        self.memory: Stacks | Nodes = Stacks(node0_pages, node1_pages)
        self.counts = dict.fromkeys(COUNTS, 0)
        self.batch: list[tuple[int, int]] = []

    def place(self, g: int, node: int, refused: bool = False, cpu: int = 0) -> bool:
        frame = self.memory.alloc(node, cpu)
        if frame < 0:
            return False
        page = self.pages[g]
        page.frame = frame
        page.target = bool(node)
        page.refused = refused
        return True

    def run(self, mm: int, change: int) -> None:
        self.running[mm] += change

    def access(self, t: int, g: int) -> str:
        page, th = self.pages[g], self.thread[t]
        if page.pte == ACC:
            return "hit"
        th.page, th.orig = g, page.pte
        if page.pte == NONE:
            self.counts["hint_faults"] += 1
        return "fault"

    def account(self, t: int, g: int, local: bool, failed: bool) -> None:
        """task_numa_fault()."""
        th, page = self.thread[t], self.pages[g]
        me = t % self.threads + 1
        if page.last in (0, me):
            th.private += 1
        else:
            th.shared += 1
        page.last = me
        if local:
            th.local += 1
        else:
            th.remote += 1
        th.failed += failed

    def refuse(self, t: int, locked: bool) -> str:
        """migrate_misplaced_page() returned 0."""
        self.counts["refused"] += 1
        if self.rules & DELAY_MAPPING and not locked:
            return "relock"
        g = self.thread[t].page
        self.pages[g].pte = ACC
        self.account(t, g, False, True)
        return "mapped"

    def fault(self, t: int) -> str:
        th = self.thread[t]
        page = self.pages[th.page]
        if page.pte != th.orig:
            self.counts["retries"] += 1
            return "retry"
        if page.pte == MIG:
            self.counts["waits"] += 1
            return "wait"
        if page.target or not self.rules & DELAY_MAPPING:
            page.pte = ACC
        if page.target:
            self.counts["local_faults"] += 1
            self.account(t, th.page, True, False)
            return "mapped"
        balanced = self.memory.nr_free(1) > self.high_wmark + 1  # with the one that comes
        if page.refused or page.isolated or not balanced:
            return self.refuse(t, bool(self.rules & PREPARE_LOCKED))
        th.frame = self.memory.alloc(1, th.cpu)
        if th.frame < 0:
            return self.refuse(t, False)
        page.isolated = True
        return "isolated"

    def relock(self, t: int) -> str:
        g = self.thread[t].page
        if self.pages[g].pte != NONE:
            self.counts["retries"] += 1
            if not self.rules & UNCOUNTED_RETRY:
                self.account(t, g, False, True)
            return "retry"
        self.pages[g].pte = ACC
        self.account(t, g, False, True)
        return "mapped"

    def flush_needed(self, mm: int, pte: int) -> bool:
        return pte == ACC or self.flush_pending[mm] > 0

    def shoot(self, mm: int, what: str) -> int:
        targets = self.running[mm] - 1
        self.counts[f"{what}_flushes"] += 1
        self.counts[f"{what}_interrupts"] += targets
        return targets

    def unmap(self, t: int) -> int:
        th = self.thread[t]
        page = self.pages[th.page]
        needed = self.flush_needed(th.mm, page.pte)
        self.counts["pending_flushes"] += needed and page.pte != ACC
        page.pte = MIG
        self.counts["unmaps"] += 1
        return self.shoot(th.mm, "unmap") if needed else -1

    def finish(self, t: int, moved: bool) -> None:
        th = self.thread[t]
        page = self.pages[th.page]
        page.pte = ACC
        page.isolated = False
        if moved:
            self.memory.free(0, th.cpu, page.frame)
            page.frame = th.frame
            page.target = True
            self.counts["migrated_pages"] += 1
        else:
            self.memory.free(1, th.cpu, th.frame)
            self.counts["unmap_failed"] += 1
        th.frame = -1
        if moved or not self.rules & UNCOUNTED_RETRY:
            self.account(t, th.page, False, not moved)

    def scan_begin(self, mm: int) -> None:
        self.flush_pending[mm] += 1

    def scan_page(self, g: int) -> bool:
        page = self.pages[g]
        if page.pte != ACC or (self.threads == 1 and page.target):
            return False
        page.pte = NONE
        self.counts["scan_updates"] += 1
        return True

    def scan_flush(self, mm: int, updated: bool) -> int:
        self.counts["scans"] += 1
        return self.shoot(mm, "scan") if updated else -1

    def scan_end(self, mm: int) -> None:
        self.flush_pending[mm] -= 1

    def batch_begin(self, t: int, node: int) -> None:
        self.batch = []
        self.batch_mm, self.batch_node = self.thread[t].mm, node
        self.batch_cpu = self.thread[t].cpu
        self.batch_needs_flush = False

    def batch_unmap(self, g: int) -> bool:
        page = self.pages[g]
        if page.refused or page.isolated or page.target == bool(self.batch_node):
            return False
        frame = self.memory.alloc(self.batch_node, self.batch_cpu)
        if frame < 0:
            return False
        self.batch_needs_flush |= self.flush_needed(self.batch_mm, page.pte)
        self.batch.append((g, frame))
        page.pte = MIG
        page.isolated = True
        self.counts["unmaps"] += 1
        return True

    def batch_flush(self) -> int:
        if not self.batch_needs_flush:
            return -1
        self.batch_needs_flush = False
        return self.shoot(self.batch_mm, "unmap")

    def batch_finish(self) -> None:
        for g, frame in self.batch:
            page = self.pages[g]
            self.memory.free(1 - self.batch_node, self.batch_cpu, page.frame)
            page.frame = frame
            page.pte = ACC
            page.isolated = False
            page.target = not page.target
            self.counts["migrated_pages"] += 1
        self.batch = []

    @property
    def state(self) -> tuple[list[int], list[int], list[int], list[int]]:
        return (
            [p.word for p in self.pages],
            [p.frame for p in self.pages],
            list(self.flush_pending),
            [self.memory.nr_free(0), self.memory.nr_free(1)],
        )


class Task:
    """What the engine knows of a thread."""

    def __init__(self, period: int) -> None:
        self.phase = "user"
        self.sleeping = False
        self.busy_until = 0
        self.unmap_start = 0
        self.scan_start = 0
        self.gave_way = 0
        self.hold = -1
        self.period = period
        self.due = 0
        self.seen_seq = 0


class Process:
    """What the engine knows of a process."""

    def __init__(self) -> None:
        self.last = 0
        self.user = 0
        self.waiting = 0
        self.remote = 0.0
        self.accesses = 0.0
        self.busy_ns = 0.0
        self.next_scan = 0
        self.scan_offset = 0
        self.scan_seq = 0


class Engine:
    """One run; see ``clock.Engine``.  The memories are `pcpmodel.kernel.reference.Memory`."""

    def __init__(
        self, config: Mapping[str, Any], weight: Sequence[float], nodes: Sequence[Any]
    ) -> None:
        self.c = c = dict(config)
        self.rng = c["seed"]
        self.now = 0
        self.end = c["end_ns"]
        self.nt = c["processes"] * c["threads"]
        self.nc = c["cpus"]
        self.m = Machine(
            c["rules"], c["processes"], c["threads"], c["pages"], 0, 0, c["watermarks"][2]
        )  # fmt: skip
        self.m.memory = Nodes(*nodes)
        self.weight = [float(w) for w in weight]
        self.mean = [c["access_ns"] / (c["threads"] * w) if w > 0 else 1e300 for w in self.weight]
        self.task = [Task(c["scan_period_min_ns"]) for _ in range(self.nt)]
        self.process = [Process() for _ in range(c["processes"])]
        self.calendar: list[tuple[int, int]] = []
        self.nodes = 2 * self.nt + self.nc
        self.key = [NEVER] * (self.nodes + c["processes"] + 2)
        self.key[-1] = c["sample_ns"] if c["sample_ns"] < self.end else NEVER
        self.series: list[float] = []
        self.unmap_ns = self.refaults = self.window_hits = 0
        self.candidates = self.events = self.interrupt_ns = 0
        self.eater = [self.m.memory.alloc(1, 0) for _ in range(c["eater_pages"])]
        self.place()
        self.current = [-1] * self.nc
        self.need_resched = [False] * self.nc
        self.bound: list[list[int]] = [[] for _ in range(self.nc)]
        for t in range(self.nt):
            cpu = (t % c["threads"] * c["processes"] + t // c["threads"]) % self.nc
            self.m.thread[t].cpu = cpu
            self.bound[cpu].append(t)
        for bound in self.bound:
            bound.sort(key=lambda t: (t % c["threads"], t // c["threads"]))
        for i, p in enumerate(self.process):
            p.next_scan = int(self.uniform() * c["scan_period_min_ns"])
            self.key[self.nodes + i] = p.next_scan
        for cpu in range(self.nc):
            self.switch_to(cpu, self.bound[cpu][0] if self.bound[cpu] else -1)
            if len(self.bound[cpu]) > 1:
                self.key[2 * self.nt + cpu] = int(self.uniform() * c["slice_ns"]) + 1
        if c["eater_pages"]:
            self.key[-2] = c["eater_kill_ns"]

    # Randomness

    def draw(self) -> int:
        mask = 0xFFFFFFFFFFFFFFFF
        self.rng = (self.rng + 0x9E3779B97F4A7C15) & mask
        z = self.rng
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def uniform(self) -> float:
        return (float(self.draw() >> 11) + 0.5) * (1.0 / 9007199254740992.0)

    def next_access(self, g: int) -> int:
        d = -math.log(self.uniform()) * self.mean[g % self.c["pages"]]
        return NEVER if d >= float(self.end - self.now) else self.now + int(d) + 1

    def place(self) -> None:
        for p in range(self.c["pages"]):
            for i, process in enumerate(self.process):
                node = int(self.m.memory.nr_free(1) > self.c["watermarks"][1])
                g = i * self.c["pages"] + p
                if not self.m.place(g, node, cpu=i % self.nc):
                    node = 0
                    if not self.m.place(g, 0, cpu=i % self.nc):
                        raise ValueError("memory full")
                if not node:
                    process.remote += self.weight[p]
                share = self.c["refused_share"]
                if share > 0 and self.uniform() < share:
                    self.m.pages[g].refused = True

    def queue(self, g: int, time: int) -> None:
        self.m.pages[g].queued = True
        if time < self.end:
            heapq.heappush(self.calendar, (time, g))

    # Time and CPUs

    def access_ns(self, mm: int) -> float:
        return self.c["access_ns"] + self.c["remote_extra_ns"] * self.process[mm].remote

    def settle(self, mm: int) -> None:
        p = self.process[mm]
        dt = float(self.now - p.last)
        if dt > 0:
            p.accesses += p.user * dt / self.access_ns(mm)
            p.busy_ns += self.m.running[mm] * dt
            p.last = self.now

    def on_cpu(self, t: int) -> bool:
        return self.current[self.m.thread[t].cpu] == t

    def threads_of(self, mm: int) -> range:
        return range(mm * self.c["threads"], (mm + 1) * self.c["threads"])

    def interrupt(self, sender: int, mm: int) -> None:
        ipi = self.c["ipi_ns"]
        for t in self.threads_of(mm):
            if t == sender or not self.on_cpu(t):
                continue
            task = self.task[t]
            self.interrupt_ns += ipi
            if task.phase == "user":
                task.busy_until = max(task.busy_until, self.now) + ipi
                self.process[mm].accesses -= ipi / self.access_ns(mm)
            elif self.key[t] != NEVER:
                self.key[t] += ipi

    def switch_to(self, cpu: int, t: int) -> None:
        old = self.current[cpu]
        self.need_resched[cpu] = False
        if old == t:
            return
        if old >= 0:
            mm = self.m.thread[old].mm
            self.settle(mm)
            self.m.running[mm] -= 1
            self.process[mm].user -= self.task[old].phase == "user"
        self.current[cpu] = t
        if t >= 0:
            mm = self.m.thread[t].mm
            self.settle(mm)
            self.m.running[mm] += 1
            if self.task[t].phase == "user":
                self.process[mm].user += 1
            elif self.task[t].phase == "retry":
                self.to_user(t, True)
            elif self.task[t].phase == "scan":
                self.task[t].scan_start += self.now - self.task[t].gave_way
                self.scan_chunk(t)

    def pick_next(self, cpu: int) -> int:
        bound, current = self.bound[cpu], self.current[cpu]
        i = bound.index(current) if current >= 0 else len(bound) - 1
        for k in range(1, len(bound) + 1):
            t = bound[(i + k) % len(bound)]
            if not self.task[t].sleeping:
                return t
        return -1

    # Threads

    def to_user(self, t: int, again: bool) -> None:
        th, cpu = self.m.thread[t], self.m.thread[t].cpu
        self.release(t)
        self.key[t] = NEVER
        self.settle(th.mm)
        self.task[t].phase = "user"
        self.process[th.mm].user += 1
        if again and self.m.access(t, th.page) == "fault":
            self.refaults += 1
            self.enter_fault(t)
        elif self.need_resched[cpu]:
            self.switch_to(cpu, self.pick_next(cpu))

    def enter_fault(self, t: int) -> None:
        mm = self.m.thread[t].mm
        self.settle(mm)
        self.process[mm].user -= 1
        self.task[t].phase = "fault"
        self.key[t] = self.now + self.c["fault_ns"]

    def release(self, t: int) -> None:
        g = self.task[t].hold
        if g < 0:
            return
        time = self.key[self.nt + t]
        self.task[t].hold = -1
        self.key[self.nt + t] = NEVER
        self.m.pages[g].held = False
        if self.m.pages[g].pte != ACC:
            self.queue(g, time)

    def toucher(self, g: int) -> int:
        mm = g // self.c["pages"]
        t = mm * self.c["threads"] + self.draw() % self.c["threads"]
        self.candidates += 1
        task = self.task[t]
        if task.phase != "user" or not self.on_cpu(t) or task.busy_until > self.now:
            return -1
        if (
            self.process[mm].remote > 0
            and self.uniform() * self.access_ns(mm) > self.c["access_ns"]
        ):
            return -1
        return t

    def calendar_access(self, g: int) -> None:
        page = self.m.pages[g]
        page.queued = False
        if page.pte == ACC:
            return
        t = self.toucher(g)
        if t < 0:
            self.queue(g, self.next_access(g))
            return
        self.m.access(t, g)
        self.task[t].hold = g
        page.held = True
        self.key[self.nt + t] = self.next_access(g)
        self.enter_fault(t)

    def held_access(self, owner: int) -> None:
        g = self.task[owner].hold
        t = self.toucher(g)
        if t >= 0:
            if self.m.access(t, g) == "hit":
                self.window_hits += 1
            else:
                self.enter_fault(t)
        self.key[self.nt + owner] = self.next_access(g)

    def thread_event(self, t: int) -> None:
        task, th, c = self.task[t], self.m.thread[t], self.c
        mm = th.mm
        if task.phase in ("fault", "relock"):
            step = self.m.fault(t) if task.phase == "fault" else self.m.relock(t)
            if step == "mapped":
                self.placement(t)
                self.to_user(t, False)
            elif step == "retry":
                self.to_user(t, True)
            elif step == "relock":
                task.phase = "relock"
                self.key[t] = self.now + c["relock_ns"]
            elif step == "isolated":
                task.phase = "isolate"
                self.key[t] = self.now + c["isolate_ns"]
            else:
                task.phase = "wait"
                task.sleeping = True
                self.process[mm].waiting += 1
                self.key[t] = NEVER
                self.switch_to(th.cpu, self.pick_next(th.cpu))
        elif task.phase == "isolate":
            self.settle(mm)
            targets = self.m.unmap(t)
            task.phase = "unmap"
            task.unmap_start = self.now
            self.key[t] = self.now + c["unmap_ns"] + self.flush(t, mm, targets)
        elif task.phase == "unmap":
            self.unmap_ns += self.now - task.unmap_start
            task.phase = "copy"
            self.key[t] = self.now + c["copy_ns"]
        elif task.phase == "copy":
            share = c["unmap_failed_share"]
            moved = share <= 0 or self.uniform() >= share
            self.settle(mm)
            self.m.finish(t, moved)
            if moved:
                self.process[mm].remote -= self.weight[th.page % c["pages"]]
            self.placement(t)
            self.wake(mm, th.page)
            self.to_user(t, False)
        elif task.phase == "wake":
            task.sleeping = False
            task.phase = "retry"
            self.key[t] = NEVER
            if self.current[th.cpu] < 0:
                self.switch_to(th.cpu, t)
        elif task.phase == "scan":
            other = self.pick_next(th.cpu) if self.need_resched[th.cpu] else t
            if other == t:
                self.need_resched[th.cpu] = False
                self.scan_chunk(t)
            else:  # cond_resched() in the middle of a range
                task.gave_way = self.now
                self.key[t] = NEVER
                self.switch_to(th.cpu, other)
        elif task.phase == "scan_flush":
            self.m.scan_end(mm)
            self.scan_call_done(t)

    def wake(self, mm: int, g: int) -> None:
        for t in self.threads_of(mm):
            if self.task[t].phase == "wait" and self.m.thread[t].page == g:
                self.process[mm].waiting -= 1
                self.task[t].phase = "wake"
                self.key[t] = self.now + self.c["wake_ns"]

    def flush(self, t: int, mm: int, targets: int) -> int:
        if targets < 0:
            return 0
        if targets == 0:
            return self.c["flush_local_ns"]
        self.interrupt(t, mm)
        return self.c["flush_base_ns"] + targets * self.c["flush_target_ns"]

    # Scanner

    def scan_event(self, mm: int) -> None:
        p, leaf = self.process[mm], self.nodes + mm
        if self.now < p.next_scan:
            self.key[leaf] = p.next_scan
            return
        n, pick = 0, -1
        for t in self.threads_of(mm):
            if self.task[t].phase == "user" and self.on_cpu(t) and self.task[t].due <= self.now:
                n += 1
                if self.draw() % n == 0:
                    pick = t
        if pick < 0:
            due = min(self.task[t].due for t in self.threads_of(mm))
            self.key[leaf] = max(due, self.now + self.c["tick_ns"])
            return
        self.settle(mm)
        p.user -= 1
        task = self.task[pick]
        p.next_scan = self.now + task.period
        self.key[leaf] = NEVER
        task.scan_left = self.c["scan_pages"]
        task.virt_left = 8 * self.c["scan_pages"]
        task.scan_start = self.now
        task.phase = "scan"
        self.scan_call(pick)

    def scan_call(self, t: int) -> None:
        task, mm = self.task[t], self.m.thread[t].mm
        task.call_left = min(task.scan_left, self.c["pages"] - self.process[mm].scan_offset)
        task.virt_left -= task.call_left
        task.call_updates = 0
        self.m.scan_begin(mm)
        self.scan_chunk(t)

    def scan_chunk(self, t: int) -> None:
        task, mm = self.task[t], self.m.thread[t].mm
        p = self.process[mm]
        if task.call_left == 0:
            self.settle(mm)
            targets = self.m.scan_flush(mm, task.call_updates > 0)
            task.phase = "scan_flush"
            self.key[t] = self.now + self.flush(t, mm, targets)
            return
        n = min(512 - p.scan_offset % 512, task.call_left)
        updated = 0
        for i in range(n):
            g = mm * self.c["pages"] + p.scan_offset + i
            if self.m.scan_page(g):
                updated += 1
                page = self.m.pages[g]
                if not (page.queued or page.held):
                    self.queue(g, self.next_access(g))
        task.call_left -= n
        task.call_updates += updated
        p.scan_offset += n
        self.key[t] = self.now + n * self.c["scan_skip_ns"] + updated * self.c["scan_pte_ns"]

    def scan_call_done(self, t: int) -> None:
        task, mm = self.task[t], self.m.thread[t].mm
        p = self.process[mm]
        if task.call_updates > 0:
            task.scan_left = 0
        if p.scan_offset == self.c["pages"]:
            p.scan_offset = 0
            p.scan_seq += 1
        elif task.scan_left > 0 and task.virt_left > 0:
            task.phase = "scan"
            self.scan_call(t)
            return
        spent = self.now - task.scan_start
        task.due = self.now + task.period + 2 * self.c["tick_ns"] + 32 * spent
        self.key[self.nodes + mm] = p.next_scan if p.next_scan > self.now else self.now + 1
        self.to_user(t, False)

    def placement(self, t: int) -> None:
        task, th = self.task[t], self.m.thread[t]
        p = self.process[th.mm]
        if task.seen_seq == p.scan_seq:
            return
        task.seen_seq = p.scan_seq
        longest = self.c["scan_period_max_ns"]
        if th.local + th.shared == 0 or th.failed:
            task.period = min(2 * task.period, longest)
            p.next_scan = self.now + task.period
            th.shared = th.private = 0
            return
        slot = -(-task.period // 10)
        lr = th.local * 10 // (th.local + th.remote) if th.local + th.remote else 0
        ps = th.private * 10 // (th.private + th.shared) if th.private + th.shared else 0
        if ps >= 7:
            diff = max(1, ps - 7) * slot
        elif lr >= 7:
            diff = max(1, lr - 7) * slot
        else:
            diff = -(7 - max(lr, ps)) * slot
        task.period = min(max(task.period + diff, self.c["scan_period_min_ns"]), longest)
        th.local = th.remote = th.failed = th.shared = th.private = 0

    # Run

    def total(self, name: str) -> float:
        """Plain sum in order; Python's own rounds better since 3.12."""
        value = 0.0
        for p in self.process:
            value += getattr(p, name)
        return value

    def sample(self) -> None:
        remote = 0.0
        for mm, p in enumerate(self.process):
            self.settle(mm)
            remote += p.remote / len(self.process)
        counts = self.m.counts
        self.series += [
            self.total("accesses"),
            remote,
            float(counts["migrated_pages"]),
            float(counts["unmap_interrupts"]),
            float(counts["scan_interrupts"]),
        ]

    def run(self) -> dict[str, Any]:
        while True:
            te = min(self.key)
            leaf = self.key.index(te)
            ta = self.calendar[0][0] if self.calendar else NEVER
            if te >= self.end and ta >= self.end:
                break
            self.events += 1
            if ta < te:
                self.now, g = heapq.heappop(self.calendar)
                self.calendar_access(g)
                continue
            self.now = te
            if leaf < self.nt:
                self.thread_event(leaf)
            elif leaf < 2 * self.nt:
                self.held_access(leaf - self.nt)
            elif leaf < self.nodes:
                cpu = leaf - 2 * self.nt
                self.key[leaf] = self.now + self.c["slice_ns"]
                if self.current[cpu] >= 0:
                    if self.task[self.current[cpu]].phase == "user":
                        self.switch_to(cpu, self.pick_next(cpu))
                    else:
                        self.need_resched[cpu] = True
            elif leaf < self.nodes + self.c["processes"]:
                self.scan_event(leaf - self.nodes)
            elif leaf == self.nodes + self.c["processes"]:
                self.key[leaf] = NEVER
                for frame in self.eater:
                    self.m.memory.free(1, 0, frame)
            else:
                self.sample()
                later = self.now + self.c["sample_ns"]
                self.key[leaf] = later if later < self.end else NEVER
        self.now = self.end
        for mm in range(len(self.process)):
            self.settle(mm)
        return {
            **self.m.counts,
            "accesses": self.total("accesses"),
            "busy_ns": self.total("busy_ns"),
            "remote_share": self.total("remote") / len(self.process),
            "unmap_ns": self.unmap_ns,
            "interrupt_ns": self.interrupt_ns,
            "refaults": self.refaults,
            "window_hits": self.window_hits,
            "candidates": self.candidates,
            "events": self.events,
            "scan_seq": sum(p.scan_seq for p in self.process),
            "series": self.series,
        }

    def state(self) -> tuple[list[int], list[int]]:
        return [p.word for p in self.m.pages], [p.frame for p in self.m.pages]

"""Random programs of every word that there is, for engines that must agree."""

# SPDX-License-Identifier: GPL-2.0-only

import random
from collections.abc import Callable, Sequence

from pcpmodel.workload import ALL, Channel, Program, Task, Workload
from pcpmodel.workload.ops import SEQUENCES
from pcpmodel.workload.program import Register

_TYPES = ("movable", "unmovable", "reclaimable")
_ORDERS = (0, 0, 0, 0, 1, 2, 3, 4, 7, 9, 10)


class _Writer:
    """Writes one program; keeps the kinds of blocks that it may hold."""

    def __init__(self, rng: random.Random, types: Sequence[str]) -> None:
        self.rng = rng
        self.types = types
        self.p = Program()
        self.kinds: set[tuple[int, str]] = set()

    def alloc(self) -> None:
        order, migratetype = self.rng.choice(_ORDERS), self.rng.choice(self.types)
        most = 400 if order == 0 else 6 if order < 7 else 1
        blocks = self.rng.randint(1, most)
        if self.rng.random() < 0.3:
            blocks = self.p.draw([self.rng.randint(0, most) for _ in range(5)], 0)
        self.p.alloc(
            blocks,
            order=order,
            migratetype=migratetype,
            ns=self.rng.choice([30, 200, 900]),
            lru=self.rng.random() < 0.3,
        )
        self.kinds.add((order, migratetype))

    def free(self) -> None:
        if self.kinds:
            order, migratetype = self.rng.choice(sorted(self.kinds))
            self.p.free(
                self.rng.choice([1, 7, 200, ALL]),
                order=order,
                migratetype=migratetype,
                ns=self.rng.choice([0, 40, 300]),
                lru=self.rng.random() < 0.3,
                sequence=self.rng.choice(sorted(SEQUENCES)),
            )

    def work(self) -> None:
        self.p.work(self.rng.choice([1, 800, 40_000]), times=self.number())

    def idle(self) -> None:
        self.p.idle(self.rng.choice([10, 5_000, 300_000]), times=self.number())

    def number(self) -> Register | None:
        if self.rng.random() < 0.7:
            return None
        return self.p.draw([0, 1, 1, self.rng.randint(1, 9)], 1)

    def score(self) -> None:
        self.p.score(self.rng.randint(1, 9))

    def loop(self, depth: int) -> None:
        with self.p.repeat(self.rng.randint(1, 4)):
            self.p.work(100)
            self.some(depth + 1)

    def perhaps(self, depth: int) -> None:
        with self.p.maybe(self.rng.random()):
            self.some(depth + 1)

    def either(self, depth: int) -> None:
        self.p.one_of([lambda: self.some(depth + 1)] * 2, [1, self.rng.randint(1, 5)])

    def rest(self) -> None:
        self.p.rest(self.rng.choice([0.5, 0.9, 1.0]))

    def drain(self) -> None:
        self.p.lru_drain()

    def part(self, depth: int) -> None:
        with self.p.phase(self.rng.choice(["fill", "drain", "rest"])):
            self.some(depth + 1)

    def some(self, depth: int) -> None:
        """A few words, and at most three levels of them."""
        plain: list[Callable[[], None]] = [
            self.alloc, self.alloc, self.free, self.work, self.idle, self.score,
            self.rest, self.drain,
        ]  # fmt: skip
        nested: list[Callable[[int], None]] = [self.loop, self.perhaps, self.either, self.part]
        for _ in range(self.rng.randint(1, 5)):
            if depth < 3 and self.rng.random() < 0.3:
                self.rng.choice(nested)(depth)
            else:
                self.rng.choice(plain)()

    def sends(self, kinds: list[tuple[int, str]]) -> None:
        """Give blocks to the neighbour, take those of the other one, free them."""
        p, rng = self.p, self.rng
        for order, migratetype in kinds:
            p.give(rng.choice([1, 30, ALL]), order=order, migratetype=migratetype)
        p.send(0)
        p.recv(1, **{f"{m}_{o}": ALL for o, m in kinds})
        for order, migratetype in kinds:
            p.free(
                order=order, migratetype=migratetype, ns=50, of="peer",
                sequence=rng.choice(sorted(SEQUENCES)),
            )  # fmt: skip

    def clean(self) -> None:
        """Nothing is left at the end of a round, so that memory lasts."""
        for order, migratetype in sorted(self.kinds):
            self.p.free(
                order=order, migratetype=migratetype, ns=20,
                sequence=self.rng.choice(sorted(SEQUENCES)),
            )  # fmt: skip


def random_workload(
    seed: int, tasks: int = 6, nodes: int = 2, types: Sequence[str] = _TYPES
) -> Workload:
    """A workload of random programs; on each node they hand pages round a ring."""
    rng = random.Random(seed)
    kinds = rng.sample([(o, m) for o in (0, 2, 5) for m in types], 2)
    barriers = rng.sample([0, 3], rng.randint(0, 2))  # in the same order in every program
    writers = []
    for _ in range(rng.randint(1, tasks)):
        w = _Writer(rng, types)
        w.some(0)  # what happens but once
        w.clean()
        # Some are amid their first round; not where others would wait for them at a barrier.
        amid = [] if barriers else w.p.enter([lambda w=w: w.some(1)] * rng.randint(1, 3))
        with w.p.forever():
            for jump in amid[1:]:
                w.p.land(jump)
                w.some(1)
            w.p.work(500)
            for jump in amid[:1]:
                w.p.land(jump)
            for number in barriers:
                w.p.barrier(number, ns=rng.choice([0, 900]))
            w.some(0)
            w.sends(kinds)
            w.clean()
        writers.append(w)
    bound, memcgs = rng.choice([(), (), (0,), (1, 0)]), rng.choice([1, 1, 3])
    rings = [list(range(k, tasks, nodes)) for k in range(nodes)]
    after = {g[i]: g[(i + 1) % len(g)] for g in rings for i in range(len(g))}
    before = {b: a for a, b in after.items()}
    return Workload(
        f"random {seed}",
        tuple(
            Task(
                writers[i % len(writers)].p,
                i % nodes,
                (i, before[i]),
                before[i],
                membind=bound,
                memcg=rng.randrange(memcgs),
            )
            for i in range(tasks)
        ),
        "units",
        tasks * 60_000,
        tuple(
            Channel(i, after[i], room=rng.randint(1, 3), latency_ns=rng.choice([0.3, 700]))
            for i in range(tasks)
        ),
    )

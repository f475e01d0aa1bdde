"""Call the compiled core in every wrong way: unmade objects, odd arguments, many threads.

``python tools/fuzz_api.py [--cases N] [--seed S] [--jobs J] [--seconds T]``.  Every case is a
process of its own.  It must end by itself within T seconds, without a signal, and what it raises
must be InputError, TypeError, or what the docstrings name; anything else is printed with the number
that repeats it (``--seed THAT --cases 1``), and the exit code is 1.

Under the sanitizers, after ``make sanitize`` (about 20 minutes)::

    cd build/sanitize
    LD_PRELOAD="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libstdc++.so.6)" \\
      PYTHONMALLOC=malloc UBSAN_OPTIONS=print_stacktrace=1 \\
      ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2000 \\
      ../../.venv/bin/python tools/fuzz_api.py
"""

# SPDX-License-Identifier: GPL-2.0-only

import argparse
import os
import pkgutil
import random
import resource
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import fuzz_trace  # noqa: E402

import pcpmodel as pm  # noqa: E402
from pcpmodel.errors import InputError  # noqa: E402
from pcpmodel.hardware.cache import PageCache  # noqa: E402
from pcpmodel.hardware.lines import PageLines  # noqa: E402
from pcpmodel.hardware.lock import FifoLock  # noqa: E402
from pcpmodel.kernel import pcp  # noqa: E402
from pcpmodel.kernel.memory import Memory  # noqa: E402
from pcpmodel.kernel.releases import release, releases  # noqa: E402
from pcpmodel.kernel.tree import open_tree  # noqa: E402
from pcpmodel.kernel.tree_pages import TreePages  # noqa: E402
from pcpmodel.kernel.zone import Zone  # noqa: E402
from pcpmodel.numa.clock import Engine as NumaEngine  # noqa: E402
from pcpmodel.numa.faults import Machine as NumaMachine  # noqa: E402
from pcpmodel.numa.nodes import nodes  # noqa: E402
from pcpmodel.numa.parameters import experiment  # noqa: E402
from pcpmodel.numa.runs import weights  # noqa: E402
from pcpmodel.simulation.engine import Engine  # noqa: E402
from pcpmodel.simulation.per_page import PerPage  # noqa: E402
from pcpmodel.simulation.pilot import prepare  # noqa: E402
from pcpmodel.simulation.spec import make_spec  # noqa: E402
from pcpmodel.trace import buddy_lists, ftrace, page_lists  # noqa: E402
from pcpmodel.trace.follower import Follower  # noqa: E402
from pcpmodel.trace.history import History  # noqa: E402
from pcpmodel.trace.start import memory_at_start  # noqa: E402

RECORDING = ROOT / "data/traces/6.18-pf1-2cpu"
TREE = ROOT / "pcpmodel/kernel/excerpt"
NAMES = [r.name for r in releases()]
GIB = 1 << 30

#: What may be raised: by all, and by what only the package itself calls.
DOCUMENTED = (InputError, TypeError, MemoryError)
INSIDE = (
    *(*DOCUMENTED, ValueError, IndexError, AttributeError, KeyError, OverflowError, BufferError),
    RuntimeError,
)


@cache
def compiled_types() -> dict[str, type]:
    """Every extension type of the package, by its name."""
    found = {}
    for module in pkgutil.walk_packages(pm.__path__, "pcpmodel."):
        spec = module.module_finder.find_spec(module.name, None)  # type: ignore[call-arg]
        if spec and spec.origin and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            for value in vars(import_module(module.name)).values():
                heap = 1 << 9
                if not isinstance(value, type) or value.__module__ != module.name:
                    continue
                if not value.__flags__ & heap or "__pyx_vtable__" in vars(value):
                    found[f"{module.name}.{value.__name__}"] = value
    return found


@cache
def recorded() -> Any:
    """A small recording, its first dump and its rows."""
    cap = pm.recording(RECORDING)
    return cap, cap.snapshot("before"), cap.trace


@cache
def _tree() -> Any:
    """Functions of a kernel tree, compiled."""
    return open_tree(TREE)


def _spec(**options: Any) -> Any:
    made = {"release": "v6.18", "machine": "ice-lake", "seconds": 0.002, "cpus": 4, "nodes": 1}
    made |= {"workload": pm.workload.page_fault1(2), "memory_gib": 1} | options
    return make_spec(**made)


def _follower() -> Any:
    """One that starts from a dump, or one that does not."""
    cap, dump, (events, _) = recorded()
    if random.random() < 0.5:
        return Follower(cap.release, cap.cpus, dump, events, 0)
    kept = np.isin(events.rows["event"], [ftrace.EVENT_IDS["mm_page_alloc"]])
    plain = ftrace.Events(events.rows[kept], events.probes[:0])
    return Follower(cap.release, cap.cpus, replace(dump, blocks=None), plain, 0)


def _buddy() -> Any:
    cap, dump, (events, _) = recorded()
    return buddy_lists.BuddyLists(
        memory_at_start(cap.release, dump, cap, resized=False), events.rows,
        History(events.rows, ()),
    )  # fmt: skip


def _numa() -> Any:
    config = experiment(scale=0.001, threads=2).config("v7.2")
    return NumaEngine(config, weights("normal", config["pages"]), nodes(config))


def _memory() -> Memory:
    zones = [Zone(4096, batch=7, high_min=28, high_max=512), Zone(2048, 8192, node=1)]
    return Memory(random.choice(NAMES), zones, 2, cpu_node=[0, 1])


#: How to make one of each; who reads this knows which types there are.
MADE: dict[str, Callable[[], Any]] = {
    "pcpmodel.exclusive.Exclusive": lambda: import_module("pcpmodel.exclusive").Exclusive(),
    "pcpmodel.kernel.memory.Memory": _memory,
    "pcpmodel.kernel.pcp.PerCpuPages": lambda: pcp.PerCpuPages(random.choice(NAMES), high=500),
    "pcpmodel.kernel.tree_pages.TreePages": lambda: TreePages(_tree(), high=500),
    "pcpmodel.hardware.cache.PageCache": lambda: PageCache(2, 512, 1024, [0, 0]),
    "pcpmodel.hardware.lines.PageLines": lambda: PageLines(2, [512], 1024, 1024),
    "pcpmodel.hardware.lock.FifoLock": lambda: FifoLock(50),
    "pcpmodel.numa.clock.Engine": _numa,
    "pcpmodel.numa.faults.Machine": lambda: NumaMachine(7, 2, 2, 8, 16, 16),
    "pcpmodel.simulation.engine.Engine": lambda: Engine(prepare(_spec())),
    "pcpmodel.simulation.per_page.PerPage": lambda: PerPage(prepare(_spec())),
    "pcpmodel.simulation.state.State": lambda: prepare(_spec()),
    "pcpmodel.trace.buddy_lists.BuddyLists": _buddy,
    "pcpmodel.trace.buddy_lists.Saved": lambda: _buddy().save(),
    "pcpmodel.trace.buddy_lists.Walk": lambda: buddy_lists.Walk(
        _buddy(), 0, 0, 1, np.arange(64), True
    ),
    "pcpmodel.trace.ftrace.TraceReader": lambda: ftrace.TraceReader(b""),
    "pcpmodel.trace.beliefs.Beliefs": lambda: import_module("pcpmodel.trace.beliefs").Beliefs(),
    "pcpmodel.trace.follower.Follower": _follower,
    "pcpmodel.trace.page_lists.PageLists": page_lists.PageLists,
}

#: Kept for people; the rest is called by the package alone.
PUBLIC = ("Memory", "PerCpuPages")


def odd_values() -> list[Any]:
    """What nobody should give, and a few that are right somewhere."""
    return [
        *(0, 1, 2, 3, 7, 9, 63, 512, 4096, -1, -2, 10**6, 2**31 - 1, 2**31, -(2**31), 2**32 - 1),
        *(2**63 - 1, 2**63, -(2**63), 2**64, 10**400, True, None, 1.5, float("nan"), float("inf")),
        *(
            "",
            "v6.18",
            "atomic",
            "\ud800",
            b"",
            b"x\n",
            (),
            [],
            {},
            [[]],
            (1, 2),
            [0, 1, 2],
            {"free": {}},
        ),
        *([(0, 1)], {"free": {(0, 1): [0, 1, 2]}}, {"free": {}, "pcp": [1]}, object(), len, set()),
        *(np.zeros(0, np.int64), np.arange(9), np.full(9, -1), np.zeros(3), np.zeros(9, np.int32)),
        *(np.zeros((4, 4), np.int64), np.zeros(3, buddy_lists.ACT), np.zeros(64, np.uint8)),
        *(np.zeros(4, np.uint32), np.zeros(4, np.int8), np.full((2, 4), 10**6)),
        *(ftrace.EVENT, np.zeros(4, ftrace.EVENT)),
        *(Zone(1024), [Zone(1024)], release("v6.18"), pm.workload.page_fault1(1)),
    ]


def members(thing: Any) -> list[str]:
    """Attributes to try, the special methods left out but for a few."""
    special = ("__repr__", "__reduce__", "__copy__", "__eq__", "__hash__", "__iter__", "__init__")
    return [
        name
        for name in dir(thing)
        if name in special
        or not name.startswith("_")
        # What only Python calls may trust Python.
        or not (name.startswith("__") or hasattr(getattr(type(thing), name, None), "__globals__"))
    ]


def poke(thing: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Read, set or call one member."""
    value = getattr(thing, name)
    if callable(value):
        found = value(*arguments, **options)
        if hasattr(found, "__next__"):
            for _ in range(100):
                next(found, None)
        return found
    if arguments and hasattr(type(thing), name):
        setattr(thing, name, arguments[0])
    return value


def allowed(thing: Any, name: str) -> tuple[type[BaseException], ...]:
    """What a member may raise."""
    kind = thing if isinstance(thing, type) else type(thing)
    if name.startswith("_") or not any(base.__name__ in PUBLIC for base in kind.__mro__):
        return INSIDE
    # A column that is no array of the right numbers is refused by the buffer protocol itself.
    return (*DOCUMENTED, AttributeError) if not callable(getattr(kind, name, None)) else DOCUMENTED


def tolerate(thing: Any, name: str, act: Callable[[], Any]) -> None:
    """Do it; only what may be raised is forgiven."""
    try:
        act()
    except allowed(thing, name):
        pass
    except BufferError:
        pass
    except ValueError as error:
        if not str(error).startswith(("Buffer ", "ndarray is not", "buffer source", "memoryview")):
            raise


# -- cases ------------------------------------------------------------------------------------


def unmade(dice: random.Random) -> None:
    """`cls.__new__(cls)`, and constructors with odd arguments."""
    for cls in compiled_types().values():
        pool = odd_values()
        for tries in range(6):
            given = [] if not tries else dice.choices(pool, k=dice.randint(0, 8))
            made = []
            tolerate(cls, "__new__", lambda g=given, c=cls, m=made: m.append(c.__new__(c, *g)))
            for one in made:
                for name in members(one):
                    args = tuple(dice.choices(pool, k=dice.randint(0, 3)))
                    tolerate(one, name, lambda a=args, o=one, n=name: poke(o, n, a, {}))


def odd_arguments(dice: random.Random) -> None:
    """Any member of a proper object, any argument, in any order."""
    thing = MADE[dice.choice(sorted(MADE))]()
    names, pool = members(thing), odd_values()
    for _ in range(120):
        name = dice.choice(names)
        args = tuple(dice.choices(pool, k=dice.choice((0, 1, 1, 2, 2, 3, 4, 5, 6, 8))))
        tolerate(thing, name, lambda a=args, n=name: poke(thing, n, a, {}))


def _work(thing: Any, dice: random.Random) -> tuple[str, tuple[Any, ...]]:
    """A call that does something, so that threads meet in it."""
    if isinstance(thing, Memory):
        out = np.zeros(600, np.int64)
        return dice.choice(
            [
                ("alloc_many", (out, dice.randrange(2))),
                ("alloc", (dice.randrange(2), dice.randrange(4))),
                ("free", (0, dice.randrange(4096))),
                ("free_many", (np.arange(dice.randrange(4000), 4096), 0)),
                ("drain_all_pages", ()),
                ("state", ()),
                ("record_events", (dice.random() < 0.5,)),
                ("take_events", ()),
                ("load", (0, {"free": {(0, 1): range(dice.randrange(4096))}})),
                ("alloc_pages_bulk", (0, 50)),
                ("refresh_cpu_vm_stats", (0,)),
                ("free_pages_bulk", (0, range(dice.randrange(64)))),
            ]
        )
    if isinstance(thing, (pcp.PerCpuPages, TreePages)):
        return dice.choice([("alloc", ()), ("free", ()), ("decay", ()), ("drain_pages_zone", ())])
    if isinstance(thing, PageCache):
        return "touch", (dice.randrange(2), np.arange(5000, dtype=np.uint32))
    if isinstance(thing, ftrace._Parser):
        rows = np.zeros(64 * 100, np.uint8)
        text = b"# tracer: nop\n#\n" * 50
        return "parse", (text, rows, np.zeros((9, 16), np.int64))
    if hasattr(thing, "run"):
        return dice.choice([("run", ()), ("run", (100,)), ("run", (0, 500)), ("run", (500, 900))])
    return dice.choice(members(thing)), ()


def threads(dice: random.Random) -> None:
    """Several threads at one object: an answer or an error, never a crash."""
    kinds = [*sorted(MADE), *["pcpmodel.kernel.memory.Memory"] * 8]
    kind = dice.choice(kinds)
    thing: Any = MADE[kind]()
    wrong: list[BaseException] = []
    until = time.monotonic() + 1.0
    seeds = [dice.random() for _ in range(dice.choice((2, 3, 6)))]

    def go(seed: float) -> None:
        mine = random.Random(seed)
        while time.monotonic() < until and not wrong:
            name, args = (
                _work(thing, mine) if mine.random() < 0.8 else (mine.choice(members(thing)), ())
            )
            try:
                poke(thing, name, args, {})
            except INSIDE:
                pass
            except BaseException as error:
                wrong.append(error)

    running = [threading.Thread(target=go, args=(seed,)) for seed in seeds]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if wrong:
        raise wrong[0]


def programs(dice: random.Random) -> None:
    """A workload whose operations were changed behind its back."""
    made = [
        lambda: pm.workload.page_fault1(2),
        lambda: pm.workload.unix_stream(1),
        lambda: pm.workload.kbuild(2),
        lambda: pm.workload.exit_storm(2),
    ]
    workload = dice.choice(made)()
    pool = odd_values()
    for _ in range(dice.randint(1, 3)):
        program = dice.choice(workload.tasks).program
        which = dice.randrange(len(program.ops))
        op = program.ops[which]
        if not hasattr(op, "_fields"):  # changed already, into what is no operation
            continue
        field = dice.choice(op._fields)
        kind = dice.randrange(6)
        if kind < 4:
            value = dice.choice([*range(-2, 16), 100, 2**30, 2**31, 2**63, dice.choice(pool)])
            program.ops[which] = op._replace(**{field: value})
        elif kind == 4:
            program.ops.insert(dice.randrange(len(program.ops) + 1), op)
        elif program.tables:
            program.tables[0] = dice.choice(pool)
        else:
            program.ops[which] = dice.choice([[*op], (*op, 0), dice.choice(pool)])
    options: dict[str, Any] = {"release": dice.choice(NAMES), "machine": "ice-lake"}
    options |= {"seconds": 0.0005, "cpus": 64, "nodes": 1, "memory_gib": 8, "workload": workload}
    options |= {"identity": dice.random() < 0.2}
    if dice.random() < 0.3:
        options[dice.choice(["seed", "jitter", "batch", "samples", "pagevec", "cpus"])] = (
            dice.choice(pool)
        )
    with suppress(*DOCUMENTED):
        pm.simulate(**options)


def public(dice: random.Random) -> None:
    """Constructors that people call, with one argument or two that are wrong."""
    pool = odd_values()
    zone: dict[str, Any] = {
        "pages": 2048,
        "start_pfn": 0,
        "batch": 7,
        "high_min": 28,
        "high_max": 90,
    }
    for _ in range(40):
        for name in dice.sample(
            [
                "pages",
                "start_pfn",
                "name",
                "node",
                "holes",
                "watermarks",
                "lowmem_reserve",
                "managed",
                "batch",
                "high_min",
            ],
            1,
        ):
            given = zone | {name: dice.choice(pool)}
        try:
            zones = [Zone(**given)] if dice.random() < 0.7 else dice.choice(pool)
            if not isinstance(zones, list) or any(
                isinstance(z, Zone) and z.pages > 1 << 22 for z in zones
            ):
                continue
            memory = Memory(
                dice.choice([*NAMES, *dice.choices(pool, k=2)]), zones,
                **{dice.choice(["cpus", "cpu_node", "online", "data_cache_bytes", "policy",
                                "watermark_boost_factor", "free"]): dice.choice(pool)},
            )  # fmt: skip
        except DOCUMENTED:
            continue
        for _ in range(10):
            name = dice.choice(members(memory))
            args = tuple(dice.choices(pool, k=dice.randint(0, 4)))
            tolerate(memory, name, lambda a=args, m=memory, n=name: poke(m, n, a, {}))


CASES = (
    unmade,
    odd_arguments,
    odd_arguments,
    odd_arguments,
    threads,
    threads,
    programs,
    programs,
    public,
)


def run_case(seed: int) -> None:
    """One case, here and now."""
    dice = random.Random(seed)
    random.seed(seed)
    np.seterr(all="ignore")
    CASES[seed % len(CASES)](dice)


# -- running ----------------------------------------------------------------------------------


def every_member(thing: Any) -> None:
    """Each member with each odd value, once."""
    pool = odd_values()
    for name in members(thing):
        for args in [(), *((v,) for v in pool), *((v, v) for v in pool), *((0, v) for v in pool)]:
            tolerate(thing, name, lambda a=args, n=name: poke(thing, n, a, {}))


def never_made(cls: type) -> None:
    """What `__new__` gives for nothing, or for many times the same."""
    for value in odd_values():
        for n in range(9):
            made: list[Any] = []
            tolerate(
                cls, "__new__", lambda v=value, n=n, m=made: m.append(cls.__new__(cls, *[v] * n))
            )
            if made and n == 0:
                every_member(made[0])
        if made:
            break


def _child(act: Callable[[], None], out: int) -> None:
    fuzz_trace.limit_memory(6 * GIB)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code = 0
    os.dup2(out, 2)
    try:
        act()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def run(
    acts: Mapping[Any, Callable[[], None]], jobs: int = 1, seconds: float = 60.0
) -> Iterator[tuple[Any, str, str]]:
    """Run each in a process of its own; yields what went wrong: key, how, and what was said."""
    waiting = list(acts)[::-1]
    running: dict[int, tuple[Any, float, int, list[bytes]]] = {}  # pid: key, until, pipe, said
    while waiting or running:
        while waiting and len(running) < jobs:
            seed = waiting.pop()
            inside, outside = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(inside)
                _child(acts[seed], outside)
            os.close(outside)
            running[pid] = seed, time.monotonic() + seconds, inside, []
        pipes = {pipe: said for _, _, pipe, said in running.values()}
        for pipe in select.select(list(pipes), [], [], 0.05)[0]:
            pipes[pipe].append(os.read(pipe, 1 << 16))
        for pid, (seed, until, pipe, said) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            how = ""
            if done:
                if os.WIFSIGNALED(status):
                    how = signal.Signals(os.WTERMSIG(status)).name
                elif os.WEXITSTATUS(status):
                    how = f"exit {os.WEXITSTATUS(status)}"
            elif time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                done, how = pid, f"no end within {seconds:g} s"
            if done:
                del running[pid]
                while rest := os.read(pipe, 1 << 16):
                    said.append(rest)
                os.close(pipe)
                if how:
                    yield seed, how, b"".join(said).decode(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    recorded(), compiled_types()  # once, for all
    began, wrong = time.monotonic(), 0
    cases = {seed: partial(run_case, seed) for seed in range(given.seed, given.seed + given.cases)}
    for seed, how, said in run(cases, given.jobs, given.seconds):
        wrong += 1
        print(f"case {seed} ({CASES[seed % len(CASES)].__name__}): {how}\n{said}", flush=True)
    took = time.monotonic() - began
    print(f"{given.cases} cases from {given.seed} on: {wrong} wrong, {took:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

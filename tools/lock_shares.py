"""How long the zone lock is held, by how often another CPU finds it taken: on this machine.

    python tools/lock_shares.py [--rounds 5]

Writes ``data/workload/lock-shares``.  Nothing is traced but contention (``lock:contention_begin``,
``contention_end``), which costs nothing where there is none: of the takings of one CPU as many find
the lock taken as the other holds it of its time.  Needs root, two CPUs, tracefs, cc, a kernel since
v5.19, and a machine with nothing else to do, for two minutes.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from summarise_native import write

TRACEFS = Path("/sys/kernel/tracing")
FRACTION = Path("/proc/sys/vm/percpu_pagelist_high_fraction")
SECONDS = 2.0
#: Loops between two calls, at most, of either CPU.
PAUSES = ((2000, 2000), (0, 20_000), (0, 60_000), (1000, 40_000))
#: Memory that is mapped, touched and unmapped [MiB], and the other CPU's pause.
MIBS, PROBE = (1, 4, 16, 128), 5000
TAKINGS = 2  # of the zone lock, by a call
_LINE = re.compile(
    r"-(\d+)\s+\[\d+\].*?\s(\d+): (?:contention_)?(begin|end|tracing_mark_write): (\w+)"
)

CALLS = [
    ("pause_0", "integer", "loops", "of CPU 0 between two calls, at most"),
    ("pause_1", "integer", "loops", "of CPU 1"),
    ("round", "integer", "1", "number of the round"),
    ("cpu", "integer", "1", "whose figures these are"),
    ("calls", "integer", "1", "each takes the zone lock twice, for a block of order 4"),
    ("call_ns", "number", "ns", "a call, with what comes between"),
    ("contended", "integer", "1", "takings that found the zone lock taken"),
    ("wait_ns", "number", "ns", "their mean wait, one event of the tracer included"),
]
FAULTS = [
    ("mib", "integer", "MiB", "mapped, touched and unmapped by CPU 0"),
    ("round", "integer", "1", "number of the round"),
    ("page_ns", "number", "ns", "a page of that"),
    ("calls", "integer", "1", "of CPU 1, as in the other table"),
    ("contended", "integer", "1", "takings of CPU 1 that found the zone lock taken"),
    ("wait_ns", "number", "ns", "their mean wait, one event of the tracer included"),
]


class Lock:
    """The zone lock, and who found it taken."""

    def __init__(self, load: Path) -> None:
        self.load = load
        self.trace = TRACEFS / "instances" / "lock-shares"
        self.trace.mkdir(exist_ok=True)
        self.set("buffer_size_kb", "60000")
        self.set("trace_clock", "x86-tsc")  # others are told to the microsecond
        self.tick_ns = self.tick()
        self.address = ""

    def set(self, name: str, value: str) -> None:
        (self.trace / name).write_text(value, encoding="ascii")

    def tick(self) -> float:
        """How long a tick of the clock is [ns]."""
        self.set("trace", "")
        at = []
        for pause in (0.5, 0.0):
            at.append(time.monotonic_ns())
            self.set("trace_marker", "now")
            time.sleep(pause)
        text = (self.trace / "trace").read_text(encoding="ascii")
        first, last = (int(m[2]) for m in _LINE.finditer(text))
        return (at[1] - at[0]) / (last - first)

    def close(self) -> None:
        self.trace.rmdir()

    def run(self, *loads: Sequence[str]) -> list[tuple[int, float, int, float]]:
        """Of each load: how often, how long each took [ns]; how often it waited, how long [ns]."""
        self.set("trace", "")
        self.set("events/lock/enable", "1")
        going = [
            subprocess.Popen([self.load, *load], stdout=subprocess.PIPE, text=True)
            for load in loads
        ]
        said = [process.communicate()[0].split() for process in going]
        self.set("events/lock/enable", "0")
        if any(process.returncode for process in going):
            raise SystemExit("a load failed")
        waits = self.waits([process.pid for process in going])
        found = []
        for process, (done, took) in zip(going, said, strict=True):
            mine = waits[process.pid]
            found.append((int(done), float(took), len(mine), sum(mine) / max(len(mine), 1)))
        return found

    def waits(self, loads: Sequence[int]) -> dict[int, list[float]]:
        """Process -> its waits for the zone lock [ns]: the lock that is waited for most."""
        begun: dict[int, tuple[int, str]] = {}
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        with (self.trace / "trace").open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                if not (m := _LINE.search(line)) or int(m[1]) not in loads:
                    continue
                pid, at = int(m[1]), int(m[2])
                if m[3] == "begin":
                    begun[pid] = at, m[4]
                elif pid in begun:
                    since, lock = begun.pop(pid)
                    found[lock][pid].append((at - since) * self.tick_ns)
        if not self.address:  # two that only call have hardly another lock in common
            self.address = max(found, key=lambda lock: sum(map(len, found[lock].values())))
        return found[self.address]


def measure(lock: Lock, rounds: int) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    calls: list[tuple[object, ...]] = []
    faults: list[tuple[object, ...]] = []
    for number in range(1, rounds + 1):
        for pauses in PAUSES:
            loads = [("calls", str(i), str(SECONDS), str(p)) for i, p in enumerate(pauses)]
            for cpu, (done, took, waited, wait) in enumerate(lock.run(*loads)):
                calls.append((*pauses, number, cpu, done, took, waited, round(wait, 1)))
    before = FRACTION.read_text(encoding="ascii")
    FRACTION.write_text("100000", encoding="ascii")  # lists of four batches, which stay so
    try:
        for number in range(1, rounds + 1):
            for mib in MIBS:
                (_, page, _, _), (done, _, waited, wait) = lock.run(
                    ("faults", "0", str(SECONDS + 0.2), str(mib)),
                    ("calls", "1", str(SECONDS), str(PROBE)),
                )
                faults.append((mib, number, page, done, waited, round(wait, 1)))
    finally:
        FRACTION.write_text(before, encoding="ascii")
    return calls, faults


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        load = Path(made) / "lock_shares"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O2", "-o", load, source], check=True)
        lock = Lock(load)
        try:
            calls, faults = measure(lock, given.rounds)
        finally:
            lock.close()
    kernel = ".".join(platform.release().split(".")[:2])
    write(
        "lock-shares",
        "How often one CPU finds the zone lock taken by another",
        {
            "title": f"A guest of the Sapphire Rapids class, two CPUs, v{kernel}",
            "note": "tools/lock_shares.py: two CPUs of one node and one last-level cache, each a "
            "core of its own. Lists of four batches where memory is mapped and unmapped.",
        },
        {"calls": (CALLS, calls), "faults": (FAULTS, faults)},
    )


if __name__ == "__main__":
    main()

"""Loads of the machine's own, each on a pair of CPUs, that touch and give back pages.

`KINDS` has what they do.  `Load` starts one process for each pair; a process waits for its orders
on standard input, works for so long as each says, and answers with what it did and took.  It ends
with its input, and the kernel ends it, and the processes that it made, if who started it is killed.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.hardware.probes import touch

__all__ = ["KINDS", "Kind", "Load", "most_pages", "tied_to"]

_PR_SET_PDEATHSIG = 1
_FEW = 64  # pages that go the other way
_WRITE = 64 << 10  # bytes of a write to a stream


class Kind(NamedTuple):
    """A kind of load."""

    pages: int  #: of a region, at most
    unit: str  #: what one unit of its work is
    cpus: int  #: that one process of it needs
    does: str


#: By name.  Unmapping goes in order of addresses, so that what was touched in order is freed in the
#: order in which it was allocated, and what was touched at random is not.
KINDS = {
    "faults": Kind(32768, "pages", 1, "touches a region in order and unmaps it"),
    "faults-random": Kind(32768, "pages", 1, "touches a region at random and unmaps it"),
    "hand-over": Kind(
        8064,
        "pages",
        2,
        "touches half of so many pages to all of them on one CPU, unmaps them on the other; 64 "
        "pages go the other way before, so that both sides begin again with small batches",
    ),
    "stream": Kind(16, "writes", 2, "writes 64 KiB to an AF_UNIX stream that the other CPU reads"),
    "exits": Kind(8192, "pages", 1, "forks a child, which touches a region in order and exits"),
}


def most_pages(processes: int) -> int:
    """Pages that so many processes of any kind hold at once, at most."""
    return processes * max(kind.pages for kind in KINDS.values())


class Load:
    """Processes that wait for orders; use it in a ``with`` statement.

    Parameters
    ----------
    pairs : sequence of (int, int)
        For each process its CPU, and the other of kinds that need two; they may be one.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs = pairs
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Load:
        try:
            for pair in self._pairs:
                self._running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", __name__, *map(str, (*pair, os.getpid()))],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                        process_group=0,  # Ctrl-C is for who started it
                    )
                )
            for each in self._running:
                self._answer(each)  # it is there
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._running:
            each.kill()
            each.communicate()
        self._running.clear()

    @property
    def pids(self) -> list[int]:
        """The processes; those that they make are not among them."""
        return [each.pid for each in self._running]

    def run(
        self, seconds: float, pages: int | None = None, kind: str = "hand-over"
    ) -> list[dict[str, float]]:
        """Let all work at once.

        Parameters
        ----------
        seconds : float
            For how long; the last round is finished [s].
        pages : int, optional
            Of a region, at most; default: the kind's.
        kind : str
            One of `KINDS`.

        Returns
        -------
        list of dict
            For each ``units`` and ``pages`` (that it touched, or wrote), ``cpu_s``, of that
            ``first_s`` (touching, or writing), and ``wall_s``.
        """
        if kind not in KINDS:
            raise unknown_name("kind of load", kind, KINDS)
        pages = KINDS[kind].pages if pages is None else pages
        for each in self._running:
            print(json.dumps([kind, seconds, pages]), file=each.stdin, flush=True)
        return [self._answer(each) for each in self._running]

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, float]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise InputError(f"a process of the load ended with {process.wait()}; see above")
        return json.loads(line)


# ------------------------------------------------------------ in the processes


def _cpu_s() -> float:
    """CPU time of this process and of the children that it waited for [s]."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _region(pages: int) -> tuple[mmap.mmap, NDArray[np.uint8]]:
    area = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    return area, np.frombuffer(area, dtype=np.uint8)


def _once(order: NDArray[np.int64], first: int, then: int) -> float:
    """Touch on one CPU, unmap on another; CPU time of touching [s]."""
    os.sched_setaffinity(0, {first})
    area, memory = _region(len(order))
    began = time.process_time()
    touch(memory, order, mmap.PAGESIZE, True)
    took = time.process_time() - began
    if first != then:
        os.sched_setaffinity(0, {then})
    del memory  # nothing holds the mapping any more
    area.close()
    return took


def tied_to(parent: int) -> None:
    """End with the parent, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before
        os._exit(1)


def _child(work: Callable[[], object]) -> int:
    """Fork; the child does the work and exits, without anything of Python's own."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        tied_to(parent)
        work()
        code = 0
    finally:
        os._exit(code)


def _until(end: float, round_: Callable[[], tuple[int, float]]) -> tuple[int, float]:
    done, first_s = 0, 0.0
    while time.monotonic() < end:
        pages, took = round_()
        done += pages
        first_s += took
    return done, first_s


def _faults(cpu: int, _: int, pages: int, end: float, random: bool = False) -> tuple[int, float]:
    order = np.random.default_rng(1).permutation(pages) if random else np.arange(pages)
    return _until(end, lambda: (pages, _once(order, cpu, cpu)))


def _faults_random(cpu: int, other: int, pages: int, end: float) -> tuple[int, float]:
    return _faults(cpu, other, pages, end, random=True)


def _hand_over(cpu: int, other: int, pages: int, end: float) -> tuple[int, float]:
    rng = np.random.default_rng(1)

    def burst() -> tuple[int, float]:
        some = int(rng.integers(pages // 2, pages, endpoint=True))
        _once(np.arange(_FEW), other, cpu)
        return some, _once(np.arange(some), cpu, other)

    return _until(end, burst)


def _stream(cpu: int, other: int, _: int, end: float) -> tuple[int, float]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def read() -> None:
        ours.close()
        os.sched_setaffinity(0, {other})
        buffer = bytearray(_WRITE)
        while theirs.recv_into(buffer):
            pass

    pid = _child(read)
    theirs.close()
    os.sched_setaffinity(0, {cpu})
    message, began = bytes(_WRITE), time.process_time()

    def write() -> tuple[int, float]:
        ours.sendall(message)
        return 1, 0.0

    done, _first = _until(end, write)
    took = time.process_time() - began
    ours.close()
    os.waitpid(pid, 0)
    return done, took


def _exits(cpu: int, _: int, pages: int, end: float) -> tuple[int, float]:
    order = np.arange(pages)

    def touch_and_exit() -> None:
        touch(_region(pages)[1], order, mmap.PAGESIZE, True)

    def storm() -> tuple[int, float]:
        pid = _child(touch_and_exit)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            raise InputError("a child of the load failed")
        return pages, 0.0

    os.sched_setaffinity(0, {cpu})
    return _until(end, storm)


_WORK = {
    "faults": _faults,
    "faults-random": _faults_random,
    "hand-over": _hand_over,
    "stream": _stream,
    "exits": _exits,
}


def _work(kind: str, cpu: int, other: int, seconds: float, pages: int) -> dict[str, float]:
    if pages < 1:
        raise InputError(f"pages={pages}: at least 1")
    began, cpu_s = time.monotonic(), _cpu_s()
    done, first_s = _WORK[kind](cpu, other, pages, began + seconds)
    return {
        "units": done,
        "pages": done * (_WRITE // mmap.PAGESIZE if kind == "stream" else 1),
        "first_s": first_s,
        "cpu_s": _cpu_s() - cpu_s,
        "wall_s": time.monotonic() - began,
    }


def _main(cpu: int, other: int, parent: int) -> None:
    tied_to(parent)
    print("{}", flush=True)
    for line in sys.stdin:
        kind, seconds, pages = json.loads(line)
        print(json.dumps(_work(kind, cpu, other, seconds, pages)), flush=True)


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))

"""A load of the machine's own: pages touched on one CPU and unmapped on another, in bursts.

One CPU of a pair then refills and the other drains.  A burst is of half of so many pages to all of
them, and a few pages go the other way before it, so that both sides begin again with small
batches: a drain is then of at most as many pages as a burst.

`Load` starts one process for each pair; a process waits for its orders on standard input, works
for so long as each says, and answers with pages and time.  It ends with its input, and the kernel
ends it if who started it is killed.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pcpmodel.errors import InputError
from pcpmodel.hardware.probes import touch

__all__ = ["Load"]

_PR_SET_PDEATHSIG = 1
_FEW = 64  # pages that go the other way


class Load:
    """Processes that wait for orders; use it in a ``with`` statement.

    Parameters
    ----------
    pairs : sequence of (int, int)
        For each process the CPU that refills and the one that drains; they may be one.
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

    def run(self, seconds: float, pages: int) -> list[dict[str, float]]:
        """Let all work at once, on regions of at most so many pages.

        Returns
        -------
        list of dict
            For each ``pages`` touched, ``cpu_s`` and ``wall_s``.
        """
        for each in self._running:
            print(json.dumps([seconds, pages]), file=each.stdin, flush=True)
        return [self._answer(each) for each in self._running]

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, float]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise InputError(f"a process of the load ended with {process.wait()}; see above")
        return json.loads(line)


def _region(pages: int) -> tuple[mmap.mmap, NDArray[np.uint8]]:
    area = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    return area, np.frombuffer(area, dtype=np.uint8)


def _once(pages: int, first: int, then: int) -> None:
    """Touch in order on one CPU, unmap on another."""
    os.sched_setaffinity(0, {first})
    area, memory = _region(pages)
    touch(memory, np.arange(pages), mmap.PAGESIZE, True)
    if first != then:
        os.sched_setaffinity(0, {then})
    del memory  # nothing holds the mapping any more
    area.close()


def _work(refills: int, drains: int, seconds: float, most: int) -> dict[str, float]:
    rng = np.random.default_rng(1)
    done, began, cpu = 0, time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        pages = int(rng.integers(most // 2, most, endpoint=True))
        _once(_FEW, drains, refills)
        _once(pages, refills, drains)
        done += pages
    return {
        "pages": done,
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.monotonic() - began,
    }


def _main(refills: int, drains: int, parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before
        return
    print("{}", flush=True)
    for line in sys.stdin:
        seconds, pages = json.loads(line)
        print(json.dumps(_work(refills, drains, seconds, pages)), flush=True)


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))

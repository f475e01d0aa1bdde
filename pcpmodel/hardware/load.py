"""A load of the machine's own: pages touched and unmapped by pinned processes.

`Load` starts one process for each piece; a process waits for its orders on standard input, works
for so long as each says, and answers with pages and time.  It ends with its input, and the kernel
ends it if who started it is killed.

``touch``: a region is touched in order, or at random, and unmapped, all on one CPU.
``burst``: half a region to a whole one is touched on one CPU and unmapped on another, so that one
refills and the other drains; a few pages go the other way between two bursts, so that both sides
begin again with small batches.  A drain is then of at most as many pages as a burst.
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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcpmodel.errors import InputError
from pcpmodel.hardware.probes import touch

__all__ = ["KINDS", "Load"]

KINDS = ("touch", "burst")
_PR_SET_PDEATHSIG = 1
_FEW = 64  # pages that go the other way


class Load:
    """Processes that wait for orders; use it in a ``with`` statement.

    Parameters
    ----------
    pieces : sequence of mapping
        Each with ``kind`` of `KINDS`, ``cpus`` (one, for ``burst`` two) and ``random`` (bool): the
        order of touching.
    """

    def __init__(self, pieces: Sequence[Mapping[str, Any]]) -> None:
        for piece in pieces:
            if piece["kind"] not in KINDS:
                raise InputError(f"kind={piece['kind']!r}; allowed: {', '.join(KINDS)}")
        self._pieces = pieces
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Load:
        try:
            for piece in self._pieces:
                self._running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", __name__, json.dumps(dict(piece)), str(os.getpid())],
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


def _once(order: NDArray[np.int64], first: int, then: int) -> None:
    """Touch on one CPU, unmap on another."""
    os.sched_setaffinity(0, {first})
    area, memory = _region(len(order))
    touch(memory, order, mmap.PAGESIZE, True)
    if first != then:
        os.sched_setaffinity(0, {then})
    del memory  # nothing holds the mapping any more
    area.close()


def _work(piece: Mapping[str, Any], seconds: float, most: int) -> dict[str, float]:
    cpus, burst = piece["cpus"], piece["kind"] == "burst"
    rng = np.random.default_rng(1)
    few = np.arange(_FEW)
    done, began, cpu = 0, time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        pages = int(rng.integers(most // 2, most, endpoint=True)) if burst else most
        order = rng.permutation(pages) if piece["random"] else np.arange(pages)
        if burst:
            _once(few, cpus[-1], cpus[0])
        _once(order, cpus[0], cpus[-1])
        done += pages
    return {
        "pages": done,
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.monotonic() - began,
    }


def _main(piece: Mapping[str, Any], parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before
        return
    print("{}", flush=True)
    for line in sys.stdin:
        seconds, pages = json.loads(line)
        print(json.dumps(_work(piece, seconds, pages)), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), int(sys.argv[2]))

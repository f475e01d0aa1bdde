"""Files of the kernel that others write to meanwhile: inotify, which Python has no call for."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Watched", "watching"]

_IN_MODIFY = 0x2


class Watched:
    """Tells of writes; where the kernel has no inotify, of none.

    Parameters
    ----------
    handle : int
        Of ``inotify_init1()``, or -1.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._poll = select.poll()
        if handle >= 0:
            self._poll.register(handle, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Sleep so long, or until a file has been written to; whether one was."""
        if self._handle < 0:
            time.sleep(seconds)
            return False
        # In whole milliseconds, as poll(2) has it; 0 would not sleep at all.
        if not self._poll.poll(max(1, int(1000 * seconds))):
            return False
        os.read(self._handle, 1 << 16)
        return True


@contextmanager
def watching(paths: Iterable[Path]) -> Iterator[Watched]:
    """Watch these files as long as the context lasts; those that are not there are left out.

    A write to a sysctl is told of once its handler has returned, within some 25 us (v6.18).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        handle = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    except AttributeError:  # no such call in this C library
        handle = -1
    try:
        for path in paths if handle >= 0 else ():
            libc.inotify_add_watch(handle, os.fsencode(path), _IN_MODIFY)
        yield Watched(handle)
    finally:
        if handle >= 0:
            os.close(handle)

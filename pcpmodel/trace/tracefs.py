"""Tracing instances: made, swept when their process was killed, removed whatever happens."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pcpmodel.errors import InputError
from pcpmodel.trace.owner import is_dead, own_name
from pcpmodel.trace.setting import sweep

__all__ = ["full_buffers", "instance", "lost_events", "reads", "text_of", "tries", "write"]

#: How long an instance may stay busy after those who used it have been ended, in seconds.
BUSY_S = 10.0


def text_of(path: Path) -> str:
    """A file of the kernel, whatever bytes it has."""
    with open(path, "rb") as f:
        return f.read().decode("utf-8", "replace")


def reads(path: Path) -> str:
    """What a file of the kernel says; empty if it is not there."""
    try:
        return text_of(path).strip()
    except OSError:
        return ""


def write(path: Path, text: str) -> None:
    """One write to a control file of the kernel; appends, as filters want it."""
    # Python's own, for appending, goes to the end of the file, which set_event_pid has none of.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, text.encode("ascii"))
    finally:
        os.close(handle)


def tries(path: Path, text: str) -> bool:
    """Write to a control file; whether the kernel took it."""
    try:
        write(path, text)
    except OSError:
        return False
    return True


def _remove(here: Path) -> None:
    """Put an instance out of work and remove it.

    It is busy as long as somebody has a buffer of it open: children of a process that was killed
    end with it, but those that give back gibibytes not at once.
    """
    tries(here / "tracing_on", "0")
    tries(here / "events" / "enable", "0")
    tries(here / "current_tracer", "nop")
    until = time.monotonic() + BUSY_S
    while True:
        try:
            here.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise
        else:
            return
        time.sleep(0.05)


def _sweep(tracefs: Path) -> None:
    """Remove what was left by those who could not: they were killed with SIGKILL."""
    sweep()
    for here in (tracefs / "instances").glob("pcpmodel_*"):
        if is_dead(here.name):
            with suppress(OSError):
                _remove(here)
    control = tracefs / "kprobe_events"
    with suppress(OSError):
        listed = text_of(control)
        for probe in re.findall(r"^p\S*:(pcpmodel_\w+/\w+) ", listed, re.M):
            if is_dead(probe.partition("/")[0]):
                tries(control, f"-:{probe}\n")


@contextmanager
def instance(tracefs: Path, needed: Sequence[str], number: int = 0) -> Iterator[Path]:
    """A tracing instance that is gone afterwards, whatever happens.

    Parameters
    ----------
    tracefs : Path
        Where that file system is mounted.
    needed : sequence of str
        Events, as ``group/event``, without which it is of no use.
    number : int
        Which of the instances of this process.

    Raises
    ------
    InputError
        If it cannot be made, or an event is not there; why.
    """
    name = own_name() + (f"_{number}" if number else "")
    here = tracefs / "instances" / name
    try:
        if not (tracefs / "events").is_dir():
            raise FileNotFoundError
        for event in needed:
            if not (tracefs / "events" / event).is_dir():
                raise InputError(
                    f"this kernel has no event {event}; it needs CONFIG_TRACING and mm tracepoints",
                    file=tracefs,
                )
        _sweep(tracefs)
        here.mkdir()
    except PermissionError:
        raise InputError(
            "tracing is not permitted; record as root (in a container: with the host's tracefs)",
            file=tracefs,
        ) from None
    except FileNotFoundError:
        raise InputError(
            "no tracefs here; as root: mount -t tracefs nodev /sys/kernel/tracing", file=tracefs
        ) from None
    except OSError as error:
        raise InputError(f"no tracing instance can be made: {error.strerror}", file=here) from None
    try:
        yield here
    finally:
        _remove(here)


def _stats(here: Path) -> dict[str, dict[str, int]]:
    """What the ring buffer of each CPU counts."""
    return {
        stats.parent.name.removeprefix("cpu"): {
            key: int(n) for key, n in re.findall(r"^(.+?): (\d+)$", text_of(stats), re.M)
        }
        for stats in sorted(here.glob("per_cpu/cpu*/stats"))
    }


def lost_events(here: Path) -> dict[str, int]:
    """Events lost per CPU amid what is in the ring buffers, by their own counts."""
    return {
        cpu: sum(n.get(key, 0) for key in ("overrun", "commit overrun"))
        for cpu, n in _stats(here).items()
    }


def full_buffers(here: Path) -> list[int]:
    """CPUs whose ring buffers took no more events, as nothing in them may be overwritten."""
    return sorted(int(cpu) for cpu, n in _stats(here).items() if n.get("dropped events"))

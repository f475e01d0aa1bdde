"""Tracing instances: made, swept when their process was killed, removed whatever happens."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pcpmodel.errors import InputError
from pcpmodel.files import read_text

__all__ = ["instance", "lost_events", "text_of", "tries", "write"]


def text_of(path: Path) -> str:
    """A file of the kernel, whatever bytes it has."""
    with open(path, "rb") as f:
        return f.read().decode("utf-8", "replace")


def write(path: Path, text: str) -> None:
    """One write to a control file of the kernel; appends, as filters want it."""
    with open(path, "a", encoding="ascii") as f:
        f.write(text)


def tries(path: Path, text: str) -> bool:
    """Write to a control file; whether the kernel took it."""
    try:
        write(path, text)
    except OSError:
        return False
    return True


def _start_time(pid: int) -> str | None:
    """When a process began, in ticks since boot; None if there is none."""
    try:
        stat = read_text(f"/proc/{pid}/stat")
    except InputError:
        return None
    return stat.rpartition(")")[2].split()[19]


def _own_name() -> str:
    """Name of this process's instance and probes; no other process has it, before or after."""
    pids = os.stat("/proc/self/ns/pid").st_ino
    return f"pcpmodel_{pids}_{os.getpid()}_{_start_time(os.getpid())}"


def _is_dead(name: str) -> bool:
    """Whether the process of `_own_name` is gone; those of another PID namespace are not seen."""
    found = re.fullmatch(r"pcpmodel_(\d+)_(\d+)_(\d+)(?:_\d+)?", name)
    return (
        found is not None
        and int(found[1]) == os.stat("/proc/self/ns/pid").st_ino
        and _start_time(int(found[2])) != found[3]
    )


def _remove(here: Path) -> None:
    """Put an instance out of work and remove it."""
    tries(here / "tracing_on", "0")
    tries(here / "events" / "enable", "0")
    tries(here / "current_tracer", "nop")
    here.rmdir()


def _sweep(tracefs: Path) -> None:
    """Remove what was left by those who could not: they were killed with SIGKILL."""
    for here in (tracefs / "instances").glob("pcpmodel_*"):
        if _is_dead(here.name):
            with suppress(OSError):
                _remove(here)
    control = tracefs / "kprobe_events"
    with suppress(OSError):
        listed = text_of(control)
        for probe in re.findall(r"^p\S*:(pcpmodel_\w+/\w+) ", listed, re.M):
            if _is_dead(probe.partition("/")[0]):
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
    name = _own_name() + (f"_{number}" if number else "")
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


def lost_events(here: Path) -> dict[str, int]:
    """Events lost per CPU, by the ring buffers' own counts."""
    lost = {}
    for stats in sorted(here.glob("per_cpu/cpu*/stats")):
        numbers = dict(re.findall(r"^(.+?): (\d+)", text_of(stats), re.M))
        lost[stats.parent.name.removeprefix("cpu")] = sum(
            int(numbers.get(k, 0)) for k in ("overrun", "commit overrun", "dropped events")
        )
    return lost

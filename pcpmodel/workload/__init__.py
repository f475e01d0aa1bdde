"""What the CPUs do.

A workload is a set of tasks, one per CPU, each running a small `Program`; the
functions here make the well-known ones, by name through `make`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from pcpmodel.arguments import checked
from pcpmodel.errors import InputError, truth, unknown_name
from pcpmodel.workload import builds, bursts, faults, streams, will_it_scale
from pcpmodel.workload import recorded as drawn
from pcpmodel.workload.common import COMMON, adapted
from pcpmodel.workload.program import ALL, Program
from pcpmodel.workload.recorded import recordings
from pcpmodel.workload.tasks import Channel, Task, Workload

__all__ = [
    "ALL",
    "WORKLOADS",
    "Channel",
    "Program",
    "Task",
    "Workload",
    "adapted",
    "containers",
    "exit_storm",
    "fallocate1",
    "file_churn",
    "idle_after_burst",
    "kbuild",
    "make",
    "malloc1",
    "page_fault1",
    "page_fault2",
    "page_fault3",
    "recorded",
    "recordings",
    "sctp_stream",
    "tlb_flush1",
    "tlb_flush2",
    "unix_stream",
]


def _named(make: Callable[..., Workload]) -> Callable[..., Workload]:
    """Take what all workloads take too; refuse what this one has not and offer the nearest."""
    name, known = make.__name__, inspect.signature(make).parameters
    needed = [k for k, p in known.items() if p.default is p.empty]
    flags = {k: p.default for k, p in known.items() if str(p.annotation).startswith("bool")}
    held = checked(make)

    @wraps(make)
    def made(*args: Any, **params: Any) -> Workload:
        for given in params:
            if given not in known and given not in COMMON:
                raise unknown_name(f"argument of workload {name}", given, [*known, *COMMON])
        missing = [k for k in needed[len(args) :] if k not in params]
        if missing:
            raise InputError(f"workload {name} needs {', '.join(missing)}")
        for flag, default in flags.items():
            if params.get(flag, default) is not default:
                params[flag] = truth(flag, params[flag])
        common = {k: params.pop(k) for k in COMMON if k in params and k not in known}
        workload = held(*args, **params)
        return adapted(workload, **common) if common else workload

    return made


containers = _named(drawn.containers)
exit_storm = _named(bursts.exit_storm)
fallocate1 = _named(will_it_scale.fallocate1)
file_churn = _named(bursts.file_churn)
idle_after_burst = _named(bursts.idle_after_burst)
kbuild = _named(builds.kbuild)
malloc1 = _named(will_it_scale.malloc1)
page_fault1 = _named(faults.page_fault1)
page_fault2 = _named(faults.page_fault2)
page_fault3 = _named(will_it_scale.page_fault3)
recorded = _named(drawn.recorded)
sctp_stream = _named(streams.sctp_stream)
tlb_flush1 = _named(will_it_scale.tlb_flush1)
tlb_flush2 = _named(will_it_scale.tlb_flush2)
unix_stream = _named(streams.unix_stream)

#: Workloads by name.
WORKLOADS = {
    f.__name__: f
    for f in (
        containers,
        exit_storm,
        fallocate1,
        file_churn,
        idle_after_burst,
        kbuild,
        malloc1,
        page_fault1,
        page_fault2,
        page_fault3,
        recorded,
        sctp_stream,
        tlb_flush1,
        tlb_flush2,
        unix_stream,
    )
}


@checked
def make(name: str, /, **params: Any) -> Workload:
    """Make a workload by name.

    Its pages are those of the machine that it comes to, where it can have such and
    ``page_size_kib`` is not among its arguments.

    Parameters
    ----------
    name : str
        One of `WORKLOADS`.
    **params
        Its arguments, and those of `adapted`.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For an unknown name or argument (the nearest is offered), or a missing one; for a test of
        will-it-scale that is not modelled, with the reason.
    """
    if name not in WORKLOADS:
        raise _unknown(name)
    work = WORKLOADS[name](**params)
    if work.made is None or "page_size_kib" not in work.made.given.keys() - params.keys():
        return work
    left = frozenset({"page_size_kib", "pages"} - params.keys())
    return replace(work, made=replace(work.made, left=left))


def _unknown(name: str) -> InputError:
    if name in will_it_scale.REFUSED:
        return InputError(
            f"will-it-scale's {name} has no workload here: {will_it_scale.REFUSED[name]}"
        )
    return unknown_name("workload", name, WORKLOADS)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(str(_unknown(name)))

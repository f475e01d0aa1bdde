"""What the CPUs do.

A workload is a set of tasks, one per CPU, each running a small `Program`; the
functions here make the well-known ones, by name through `make`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import inspect
from typing import Any

from pcpmodel.errors import InputError, unknown_name
from pcpmodel.workload.builds import kbuild
from pcpmodel.workload.bursts import exit_storm, file_churn, idle_after_burst
from pcpmodel.workload.faults import page_fault1, page_fault2
from pcpmodel.workload.program import ALL, Channel, Program, Task, Workload
from pcpmodel.workload.recorded import captures, containers, recorded
from pcpmodel.workload.streams import sctp_stream, unix_stream

__all__ = [
    "ALL",
    "WORKLOADS",
    "Channel",
    "Program",
    "Task",
    "Workload",
    "captures",
    "containers",
    "exit_storm",
    "file_churn",
    "idle_after_burst",
    "kbuild",
    "make",
    "page_fault1",
    "page_fault2",
    "recorded",
    "sctp_stream",
    "unix_stream",
]

#: Workloads by name.
WORKLOADS = {
    f.__name__: f
    for f in (
        containers,
        exit_storm,
        file_churn,
        idle_after_burst,
        kbuild,
        page_fault1,
        page_fault2,
        recorded,
        sctp_stream,
        unix_stream,
    )
}


def make(name: str, **params: Any) -> Workload:
    """Make a workload by name.

    Parameters
    ----------
    name : str
        One of `WORKLOADS`.
    **params
        Its arguments.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        For an unknown name or argument (the nearest is offered), or a missing one.
    """
    if name not in WORKLOADS:
        raise unknown_name("workload", name, WORKLOADS)
    known = inspect.signature(WORKLOADS[name]).parameters
    for given in params:
        if given not in known:
            raise unknown_name(f"argument of workload {name}", given, known)
    missing = [k for k, p in known.items() if p.default is p.empty and k not in params]
    if missing:
        raise InputError(f"workload {name} needs {', '.join(missing)}")
    return WORKLOADS[name](**params)

"""A recording of one's own as a workload."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from pathlib import Path

from pcpmodel.datasets import packages, store
from pcpmodel.errors import InputError
from pcpmodel.trace.processes import Processes
from pcpmodel.trace.recording import Recording
from pcpmodel.trace.recording import recording as open_recording

__all__ = ["add_workload"]

_NOTE = "Summary of a recording; under the recording's licence."


def add_workload(
    recording: str | Path | Recording,
    name: str,
    *,
    page_us: float | None = None,
    longest_gap_us: float = 1000.0,
    data: str | Path | None = None,
    replace: bool = False,
) -> tuple[Path, int]:
    """Summarise a recording, so that `pcpmodel.workload.recorded` can draw from it.

    Parameters
    ----------
    recording : str, path-like or Recording
        What ``pcpmodel record`` wrote, or as `pcpmodel.recording` opens it.
    name : str
        What it is called from then on: ``[a-z0-9][a-z0-9-]*``.
    page_us : float, optional
        CPU time per page at native speed [us], for recordings of emulated guests; by default
        as recorded.
    longest_gap_us : float
        A longer time without a page event on a CPU is cut to this: the CPU slept [us].
    data : path, optional
        Data directory; default: the package's.
    replace : bool
        Whether a workload of that name may be there already.

    Returns
    -------
    tuple of Path and int
        The directory written, and the number of processes in it.

    Raises
    ------
    InputError
        If the recording has no allocations, or it cannot be written.
    """
    cap = open_recording(recording)
    for key, value in (("page_us", page_us), ("longest_gap_us", longest_gap_us)):
        if value is not None and not 0.01 <= value <= 1e7:
            raise InputError(f"{key}={value} is outside 0.01..1e7 us")
    packages.check_name(name, "workload")
    made = Processes(cap.trace, round(longest_gap_us * 1000))
    recorded_us = made.page_us()
    if not recorded_us:
        raise InputError("holds no allocations that take time", file=cap.path)
    tables = made.tables(recorded_us if page_us is None else page_us)
    lost = f"; {cap.lost} events were lost" if cap.lost else ""
    files = store.table_files(
        name,
        f"What each process of the recording {cap.name} did with its pages",
        _NOTE,
        {"title": cap.name, "note": str(cap.meta.get("workload", ""))[:200] + lost},
        tables,
        added_by="pcpmodel data add workload",
    )
    root = packages.data_root(data)
    path = store.store_package(root, "workload", name, files, replace=replace)
    return path, len(tables["processes"][1])

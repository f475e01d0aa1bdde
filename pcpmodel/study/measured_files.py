"""The machine that `pcpmodel.study.measure` measured, as files of ``data/hardware``."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import dataclasses
import hashlib
import platform as host_platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from pcpmodel.datasets import packages
from pcpmodel.datasets.packages import (
    COSTS_RESOURCE,
    INTERVAL_RESOURCE,
    LATENCY_RESOURCE,
    PLATFORM_RESOURCE,
    RATES_RESOURCE,
)
from pcpmodel.datasets.store import dump_csv, dump_json, hardware_descriptor, store_package
from pcpmodel.errors import InputError
from pcpmodel.hardware.platform import Platform
from pcpmodel.hardware.probe import Cost
from pcpmodel.trace.hold_tracer import SIDES, Traced

__all__ = ["rows_of", "store"]


def rows_of(table: pd.DataFrame) -> list[list[Any]]:
    """Rows of a file: six digits, nothing for what is not known."""
    return [
        [("" if v != v else f"{v:.6g}") if isinstance(v, float) else v for v in row]
        for row in table.itertuples(index=False, name=None)
    ]


def store(
    root: Path,
    name: str,
    rows: Sequence[Cost],
    table: pd.DataFrame | None,
    interval: pd.DataFrame | None,
    cpus: Sequence[int],
    traced: Sequence[tuple[int, Traced]],
    replace: bool,
    rates: pd.DataFrame | None,
) -> Path:
    """Write a machine below ``root``; ``traced``: rounds by how many instances traced them.

    Without a table it is a cost sheet alone.
    """
    platform = Platform.of_host("/")
    model = platform.cpu_model or host_platform.machine()
    title = f"{model}, {platform.cpus} CPUs"
    if platform.kind == "virtual":
        title += ", virtual machine"
    known = dataclasses.replace(platform, name=name, title=title).as_dict()
    known["command"] = f"pcpmodel measure {name}"
    source: dict[str, Any] = {"title": f"pcpmodel measure {name}"}
    if table is None:
        source["note"] = "costs measured on the machine itself, but for its holds"
    else:
        known["workload"] = f"pages touched on CPU {cpus[0]} and unmapped on CPU {cpus[1]}"
        known["tool"] = "kmem events of the raw ring buffer, their cost taken off"
        source["sha256"] = _digest(traced)
        source["note"] = (
            "pages and time of every hold traced on the machine itself: from the first event of a "
            "hold to its last, which is one page less; taking and releasing the lock is not in it"
        )
    known["sources"] = [source]
    files = {
        COSTS_RESOURCE["path"]: dump_csv(
            COSTS_RESOURCE,
            [[r.operation, r.distance, *_plain(r), r.origin, r.source] for r in rows],
        ),
        PLATFORM_RESOURCE["path"]: dump_json(known).encode(),
    }
    if table is not None and interval is not None:
        files[LATENCY_RESOURCE["path"]] = dump_csv(
            LATENCY_RESOURCE,
            [
                [row[0], row[1], *map("{:.3f}".format, row[2:])]
                for row in table.itertuples(index=False, name=None)
            ],
        )
        files[INTERVAL_RESOURCE["path"]] = dump_csv(
            INTERVAL_RESOURCE,
            [
                [v if isinstance(v, int) else f"{max(v, 0.0):.3f}" for v in row]
                for row in interval.itertuples(index=False, name=None)
            ],
        )
    more = [] if rates is None or not len(rates) else [RATES_RESOURCE]
    if more:
        files[RATES_RESOURCE["path"]] = dump_csv(RATES_RESOURCE, rows_of(rates))
    descriptor = hardware_descriptor(
        name,
        f"{'Costs' if table is None else 'Batch latency and costs'}, {title}",
        [source],
        latency=table is not None,
        interval=table is not None,
        costs=True,
        others=more,
        added_by="pcpmodel measure",
    )
    files["datapackage.json"] = dump_json(descriptor).encode()
    with TemporaryDirectory() as scratch:  # what has a fault is not stored
        faults: list[InputError] = []
        tried = store_package(scratch, "hardware", name, files)
        packages.read_package(tried, "hardware", faults)
        packages.raise_first(faults)
    return store_package(root, "hardware", name, files, replace=replace)


def _digest(traced: Iterable[tuple[int, Traced]]) -> str:
    """SHA-256 of every hold that was traced."""
    digest = hashlib.sha256()
    for copies, each in traced:
        digest.update(bytes([copies]))
        for side in SIDES:
            holds = each.pages[side], each.span_ns[side]
            digest.update(b"".join(array.tobytes() for array in holds))
    return digest.hexdigest()


def _plain(row: Cost) -> tuple[str, str, str, str]:
    """Value, unit and interval as text that keeps their order."""
    value, low, high = (f"{v:.4g}" for v in (row.value, row.low, row.high))
    return value, row.unit, low, high

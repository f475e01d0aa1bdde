"""What was read of /proc/zoneinfo again and again, held against the trace and the first reading."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from pathlib import Path

from pcpmodel.errors import InputError
from pcpmodel.trace.markers import Markers
from pcpmodel.trace.recording import Recording, Snapshot
from pcpmodel.trace.start import sizes

__all__ = ["check_readings"]


def check_readings(cap: Recording, markers: Markers) -> list[str]:
    """Hold what was read of /proc/zoneinfo against the markers and against the first reading.

    Returns
    -------
    list of str
        What is told of and not there, for the user.

    Raises
    ------
    InputError
        Naming file and row, for a reading out of the order of the markers, or one of another
        machine: other zones, no lists of a CPU that was at work, another batch for as much memory.
    """
    first, series = cap.zoneinfo("before"), cap.zoneinfo_series
    told = markers.snapshot
    last = None
    for tag in (tag for tag in series if tag in told):
        if last is not None and told[tag].begin < told[last].begin:
            raise InputError(
                f"reading {tag!r} comes after {last!r}, but before it in the trace",
                file=cap.file("zoneinfo.series"), row=series[tag].row,
            )  # fmt: skip
        last = tag
    readings = [(seen, cap.file("zoneinfo.series")) for seen in series.values()]
    if cap.has("zoneinfo.after"):
        readings.append((cap.zoneinfo("after"), cap.file("zoneinfo.after")))
    offline: dict[int, list[str]] = {}
    for seen, file in readings:
        _check_zones(first, seen, file)
        _check_batches(cap, first, seen, file)
        for cpu in sorted({p.cpu for p in first.pcps.values()} - {key[2] for key in seen.pcps}):
            at = told.get(seen.tag)
            if at is not None and cpu in cap.trace[0].rows["cpu"][at.begin : at.end]:
                raise InputError(
                    f"reading {seen.tag!r} has no lists of CPU {cpu}, which was at work meanwhile",
                    file=file, row=seen.row,
                )  # fmt: skip
            offline.setdefault(cpu, []).append(seen.tag)
    notes = [
        f"{len(tags)} readings of /proc/zoneinfo, the first {tags[0]!r}, have no lists of CPU {cpu}"
        for cpu, tags in offline.items()
    ]
    if unmarked := [tag for tag in series if tag not in told]:
        notes.append(
            f"{len(unmarked)} readings of zoneinfo.series, the first {unmarked[0]!r}, are not "
            "compared: their markers are not in the trace"
        )
    if absent := [tag for tag in told if tag not in series and not cap.has(f"zoneinfo.{tag}")]:
        notes.append(
            f"{len(absent)} readings of /proc/zoneinfo of which the trace tells, the first "
            f"{absent[0]!r}, are not in the recording: not compared"
        )
    return notes


def _check_zones(first: Snapshot, seen: Snapshot, file: Path) -> None:
    begins = {z.key: z.start_pfn for z in first.zones}
    for zone in seen.zones:
        if begins.pop(zone.key, None) != zone.start_pfn:
            raise InputError(
                f"reading {seen.tag!r} has a zone {zone.name} of node {zone.node} that begins at "
                f"page {zone.start_pfn}, zoneinfo.before has none",
                file=file, row=seen.rows[zone.key],
            )  # fmt: skip
    for node, name in begins:
        raise InputError(
            f"reading {seen.tag!r} has no zone {name} of node {node}, zoneinfo.before has one",
            file=file, row=seen.row,
        )  # fmt: skip


def _check_batches(cap: Recording, first: Snapshot, seen: Snapshot, file: Path) -> None:
    """It follows from the zone's memory, and no sysctl changes it (from v5.14 on)."""
    rules = cap.release.rules
    memory = {z.key: z.managed for z in first.zones}
    for zone in seen.zones if rules.high_by_watermark else ():
        if zone.managed != memory[zone.key]:
            continue
        for key, pcp in seen.pcps.items():
            was = first.pcps.get(key)
            disabled = pcp.batch == 1 and pcp.high <= 1  # zone_pcp_disable()
            if key[:2] != zone.key or was is None or pcp.batch == was.batch or disabled:
                continue
            # At the start memory may have come or gone since it was computed.
            if pcp.batch != sizes(cap, zone, rules, 0)[0]:
                raise InputError(
                    f"reading {seen.tag!r} has batch={pcp.batch} of node {zone.node}, zone "
                    f"{zone.name}, CPU {pcp.cpu}, zoneinfo.before {was.batch} for as much memory",
                    file=file, row=seen.rows[zone.key],
                )  # fmt: skip

"""Where the sizes of the lists changed while a kernel without dumps was recorded.

/proc/zoneinfo was read again and again, and at once when a sysctl was written, as a marker says.
The lists had the new sizes a little before, as who writes the marker must get a CPU first.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import dataclass

from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.trace.markers import Markers
from pcpmodel.trace.recording import Recording, Snapshot
from pcpmodel.trace.start import sizes

__all__ = ["Resized", "changes_of_size"]

_MARKER = "sysctl "


@dataclass
class Resized:
    """Lists that have other sizes from some row on.

    Attributes
    ----------
    row : int
        From where on, as is thought: `latest` at first.
    earliest, latest : int
        Until which row they had not, and from which on they have.
    read : int
        Row at which that was read.
    sizes : dict
        (node, zone, CPU) -> ``batch``, ``high_min``, ``high_max``; before v6.7 one high, twice.
    """

    row: int
    earliest: int
    latest: int
    read: int
    sizes: dict[tuple[int, str, int], tuple[int, int, int]]


def changes_of_size(
    cap: Recording, state: Release, snapshot: Snapshot, markers: Markers
) -> list[Resized]:
    """Every change that a recording tells of, in its order.

    Parameters
    ----------
    cap : Recording
    state : Release
    snapshot : Snapshot
        ``zoneinfo.before``.
    markers : Markers
        Of the recording.
    """
    written = [row for row, text in markers.texts.items() if text.startswith(_MARKER)]
    known = _told(cap.zoneinfo("before"), state.rules) if cap.has("zoneinfo.before") else {}
    if not (known and cap.zoneinfo_series and "before" in markers.snapshot):
        return [
            Resized(row, row, row, row, _computed(cap, state, snapshot, fraction))
            for row, fraction in markers.fractions.items()
        ]
    before = markers.snapshot["before"].begin
    found: list[Resized] = []
    for tag, seen in cap.zoneinfo_series.items():
        at = markers.snapshot.get(tag)
        if at is None or at.end is None:
            continue
        told = _told(seen, state.rules)
        # A CPU that came online has lists of its zone's size.
        if any(known.get(key, size) != size for key, size in told.items()):
            latest = next((row for row in written if before < row <= at.begin), at.begin)
            found.append(Resized(latest, before, latest, at.end, told))
        # Of a CPU that is offline nothing is told.
        known, before = known | told, at.begin
    return found


def _computed(
    cap: Recording, state: Release, snapshot: Snapshot, fraction: int
) -> dict[tuple[int, str, int], tuple[int, int, int]]:
    """zone_set_pageset_high_and_batch() of all zones with memory."""
    return {
        (*zone.key, cpu): sizes(cap, zone, state.rules, fraction)
        for zone in snapshot.zones if zone.managed for cpu in range(cap.cpus)
    }  # fmt: skip


def _told(seen: Snapshot, rules: Rules) -> dict[tuple[int, str, int], tuple[int, int, int]]:
    """What /proc/zoneinfo prints; nothing of kernels from v6.7 on that print no high_min."""
    if not rules.high_min_max:
        return {key: (pcp.batch, pcp.high, pcp.high) for key, pcp in seen.pcps.items()}
    if any(pcp.high_min < 0 for pcp in seen.pcps.values()):
        return {}
    return {key: (pcp.batch, pcp.high_min, pcp.high_max) for key, pcp in seen.pcps.items()}

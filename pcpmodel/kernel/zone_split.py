"""Splitting zones into instances: "mm: improve page allocator scalability via splitting zones".

RFC of 11 May 2023 on v6.3, six patches, never merged.  An instance is a zone of
its own with its own lock, free lists, per-CPU lists and watermarks; CPUs prefer
different instances by their number.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Sequence

from pcpmodel.errors import InputError

__all__ = ["MAX_NR_ZONES_PER_TYPE", "instance_ranges", "nr_instances", "zonelist"]

#: 254 GiB of 4 KiB pages, what one instance is to have (patch 5).
SPLIT_PAGES = 254 << 18
MAX_NR_ZONES_PER_TYPE = 4
#: Instances that a node may have beyond one per type.
MAX_NR_SPLIT_ZONES = 4
#: An instance ends on a 1 GiB boundary, but the last (4 KiB pages).
ALIGN_PAGES = 1 << 18


def nr_instances(present_pages: int, extra_slots: int = MAX_NR_SPLIT_ZONES) -> int:
    """Instances that a zone type of a node is cut into (64-bit, patch 5).

    Parameters
    ----------
    present_pages : int
        Present pages of the type on the node [4 KiB pages]; below 508 GiB it stays whole.
    extra_slots : int
        Instances beyond one per type that lower types of the node left over, 0..4.

    Raises
    ------
    InputError
        If an argument is out of its range.
    """
    if present_pages < 0:
        raise InputError(f"present_pages={present_pages} is negative")
    if not 0 <= extra_slots <= MAX_NR_SPLIT_ZONES:
        raise InputError(f"extra_slots={extra_slots} is outside 0..{MAX_NR_SPLIT_ZONES}")
    if present_pages < 2 * SPLIT_PAGES:
        return 1
    return min(present_pages // SPLIT_PAGES, extra_slots + 1, MAX_NR_ZONES_PER_TYPE)


def instance_ranges(start_pfn: int, spanned_pages: int, instances: int) -> list[tuple[int, int]]:
    """First and past-the-last page frame of each instance, ascending (patch 5).

    Parameters
    ----------
    start_pfn, spanned_pages : int
        The zone type's span on the node [page frame, pages].
    instances : int
        1..4, as `nr_instances` gives.
    """
    _check_instances(instances)
    end = start_pfn + spanned_pages
    span = spanned_pages // instances
    bounds = [start_pfn]
    for _ in range(instances - 1):
        bounds.append(min(-(-(bounds[-1] + span) // ALIGN_PAGES) * ALIGN_PAGES, end))
    return list(zip(bounds, [*bounds[1:], end], strict=True))


def zonelist(cpu: int, instances: Sequence[int]) -> list[tuple[int, int]]:
    """Order in which a CPU tries the instances of one node (patch 6).

    Parameters
    ----------
    cpu : int
        Logical CPU number.
    instances : sequence of int
        Instances of every zone type, from the highest type to the lowest.

    Returns
    -------
    list of (type, instance)
        Positions in ``instances``, and instance numbers from 0.  The same holds for
        the nodes further away.
    """
    for count in instances:
        _check_instances(count)
    if cpu < 0 or not instances:
        raise InputError(f"cpu={cpu}, instances={list(instances)}: a CPU number and a type or more")
    first = cpu % max(instances)
    return [
        (kind, (first + step) % count)
        for kind, count in enumerate(instances)
        for step in range(count)
    ]


def _check_instances(instances: int) -> None:
    if not 1 <= instances <= MAX_NR_ZONES_PER_TYPE:
        raise InputError(f"instances={instances} is outside 1..{MAX_NR_ZONES_PER_TYPE}")

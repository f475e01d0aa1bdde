"""How large the per-CPU page lists of a zone are: plain integer arithmetic.

Restates `zone_batchsize()`, `zone_highsize()`, `zone_set_pageset_high_and_batch()` and
`__setup_per_zone_wmarks()` of mm/page_alloc.c, the recommendation of mm/khugepaged.c and the
cache rule behind ``PCPF_FREE_HIGH_BATCH``, for v4.17 ... v7.3 and `PAGE_SIZES_KIB`.
All quantities are whole pages unless the name says otherwise; divisions round down, as in C.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import Cacheinfo, CommitDrain, Rules

__all__ = [
    "BOOT_PAGESET_BATCH",
    "BOOT_PAGESET_HIGH",
    "LARGE_ZONE_BYTES",
    "MIN_PERCPU_PAGELIST_HIGH_FRACTION",
    "PAGE_SIZES_KIB",
    "CacheLeaf",
    "PagesetSize",
    "SizeError",
    "Watermarks",
    "ZoneMemory",
    "boot_pageset",
    "clamp",
    "data_cache_size",
    "drain_hold_limit",
    "drain_limit",
    "fixed_size",
    "free_high_batch",
    "high_fractions",
    "highsize_divisor",
    "highsize_total",
    "khugepaged_min_free_kbytes",
    "large_zone_batch",
    "least_high",
    "min_free_kbytes_at_boot",
    "page_shift",
    "percpu_pagelist_high_fraction",
    "refill_limit",
    "setup_per_zone_wmarks",
    "used_batch",
    "zone_batchsize",
    "zone_highsize",
    "zone_set_pageset_high_and_batch",
]

#: Greatest value of an int, which proc_dointvec_minmax() takes.
INT_MAX = 2**31 - 1
#: Smallest divisor that sysctl ``vm.percpu_pagelist_high_fraction`` takes beside 0.
MIN_PERCPU_PAGELIST_HIGH_FRACTION = 8

#: A zone's lists at boot, while disabled (`zone_pcp_disable()`) and without memory.
BOOT_PAGESET_HIGH, BOOT_PAGESET_BATCH = 0, 1

#: Base pages of the kernels that have other than 4 KiB: arm64, ppc64, loongarch.
PAGE_SIZES_KIB = (4, 16, 64)

#: A zone from which on the batch grows no more, whatever the page size: 4096 batches of 256 KiB.
LARGE_ZONE_BYTES = 1 << 30
#: A node of a large server.
SERVER_ZONE_BYTES = 256 << 30

_MIGRATE_PCPTYPES = 3


def page_shift(page_size_kib: object) -> int:
    """log2 of a page size in bytes.

    Parameters
    ----------
    page_size_kib : int
        One of `PAGE_SIZES_KIB` [KiB].

    Raises
    ------
    InputError
        For another.
    """
    if isinstance(page_size_kib, bool) or page_size_kib not in PAGE_SIZES_KIB:
        raise InputError(f"page_size_kib={page_size_kib!r}; allowed: 4, 16, 64")
    return (int(page_size_kib) << 10).bit_length() - 1  # type: ignore[call-overload]


def clamp(value: int, lo: int, hi: int) -> int:
    """Do what the kernel's ``clamp()`` does, also where ``lo > hi``.

    The upper bound is tested first: ``hi`` where ``value >= hi``, otherwise never
    less than ``lo``.
    """
    return hi if value >= hi else max(value, lo)


def zone_batchsize(managed_pages: int, rules: Rules, page_shift: int = 12) -> int:
    """Pages moved per refill or drain, as `zone_batchsize()` returns it.

    Parameters
    ----------
    managed_pages : int
        Managed pages of the zone [pages]; >= 0.
    rules : Rules
        ``batchsize_256k`` chooses the form of v6.19, ``batchsize_1m`` that of v4.19.
    page_shift : int
        log2 of the page size in bytes: 12, 14 or 16.

    Returns
    -------
    int
        One less than a power of two, or 1; zero for small zones before v6.19, where the
        caller takes 1 (`used_batch`).  Both forms give the same used batch for every zone:
        at most 63 with 4 KiB pages, 15 with 16 KiB and 3 with 64 KiB; before v4.19 at most 31,
        7 and 1.

    References
    ----------
    mm/page_alloc.c, zone_batchsize(), v4.17, v5.10, v6.6 and v6.19.
    """
    if (own := _of_tree(managed_pages, rules, page_shift)) is not None:
        return own
    if rules.batchsize_256k:
        batch = min(managed_pages >> 12, (256 << 10) >> page_shift)
        if batch <= 1:
            return 1
    else:
        most = 1 << (20 if rules.batchsize_1m else 19)
        batch = max(min(managed_pages >> 10, most >> page_shift) // 4, 1)
    batch += batch // 2
    return (1 << (batch.bit_length() - 1)) - 1


def _of_tree(managed_pages: int, rules: Rules, page_shift: int) -> int | None:
    """zone_batchsize() of a kernel tree; None for a release, or a tree that has none."""
    if rules.sizing is None:
        return None
    if page_shift != 12:
        raise InputError(f"page_shift={page_shift}: kernel trees are compiled for pages of 4 KiB")
    return rules.sizing(managed_pages, 0, 1, 1)[0]


class SizeError(InputError):
    """A size that no list can have, as a function of a kernel tree returns it."""

    def __init__(self, function: str, what: str) -> None:
        super().__init__(f"{function}() of the tree returns {what}")
        self.function = function


def used_batch(managed_pages: int, rules: Rules, page_shift: int = 12) -> int:
    """``pcp->batch`` that a zone gets: `zone_batchsize`, at least 1.

    Raises
    ------
    SizeError
        If zone_batchsize() of a kernel tree like v6.19 or later returns less: its caller takes that
        as it is.
    """
    batch = zone_batchsize(managed_pages, rules, page_shift)
    if batch < 1 and rules.sizing is not None and rules.batchsize_256k:
        raise SizeError(
            "zone_batchsize",
            f"{batch} for a zone of {managed_pages:,} pages, which its caller takes as it is since "
            f"v6.19: with a batch below 1 a refill asks for no page and a drain in batches does "
            f"not end",
        )
    return max(1, batch)


def large_zone_batch(rules: Rules, page_shift: int = 12) -> int:
    """``pcp->batch`` of a zone of any size from `LARGE_ZONE_BYTES` on: 63, 15 or 3 [pages].

    Before v4.19 31, 7 or 1.  A kernel tree is asked for that of the zone of a large server: its own
    zone_batchsize() may grow further.
    """
    size = LARGE_ZONE_BYTES if rules.sizing is None else SERVER_ZONE_BYTES
    return used_batch(size >> page_shift, rules, page_shift)


def percpu_pagelist_high_fraction(value: int) -> int:
    """Check a value of sysctl ``vm.percpu_pagelist_high_fraction``.

    Raises
    ------
    InputError
        For anything but 0 (the default) and 8 or more; the kernel answers EINVAL and
        keeps the old value.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"percpu_pagelist_high_fraction={value!r} is not an integer")
    if not (value == 0 or MIN_PERCPU_PAGELIST_HIGH_FRACTION <= value <= INT_MAX):
        raise InputError(
            f"percpu_pagelist_high_fraction={value} is refused by the kernel (EINVAL); "
            f"allowed: 0, or {MIN_PERCPU_PAGELIST_HIGH_FRACTION} to {INT_MAX}"
        )
    return value


def highsize_total(managed_pages: int, low_wmark_pages: int, high_fraction: int) -> int:
    """Pages that the CPUs of a node may share out: the low watermark or a fraction."""
    return managed_pages // high_fraction if high_fraction else low_wmark_pages


def highsize_divisor(node_cpus: int, online_cpus: int, cpu_online: int = 0) -> int:
    """CPUs that share: those of the zone's node, or all online ones if it has none.

    ``cpu_online`` is 1 while a CPU comes online: it is not in any node's mask yet, and
    zones of *every* node count it.
    """
    if node_cpus < 0 or online_cpus < 1 or cpu_online not in (0, 1):
        raise InputError(
            f"node_cpus={node_cpus}, online_cpus={online_cpus}, cpu_online={cpu_online}; "
            "allowed: node_cpus >= 0, online_cpus >= 1, cpu_online 0 or 1"
        )
    return node_cpus + cpu_online or online_cpus


def high_fractions(managed_pages: int, cpus: int, limit: int, batch: int) -> tuple[int, int]:
    """Least and most ``vm.percpu_pagelist_high_fraction`` that zone_highsize() gives a limit for.

    At four batches, the least limit, any larger one does (`INT_MAX`); of none the least is larger.
    """
    first = max(managed_pages // ((limit + 1) * cpus) + 1, MIN_PERCPU_PAGELIST_HIGH_FRACTION)
    return first, INT_MAX if limit == 4 * batch else managed_pages // (limit * cpus)


def zone_highsize(
    managed_pages: int,
    low_wmark_pages: int,
    batch: int,
    *,
    node_cpus: int,
    online_cpus: int,
    cpu_online: int = 0,
    high_fraction: int = 0,
) -> int:
    """Limit of a CPU's list, as `zone_highsize()` returns it [pages].

    .. math:: \\max(\\lfloor total / n \\rfloor, 4 \\cdot batch)

    Parameters
    ----------
    managed_pages, low_wmark_pages : int
        Of the zone, at the moment of sizing [pages]; the watermark includes the boost.
    batch : int
        The zone's batch [pages]; >= 1.
    node_cpus, online_cpus : int
        Online CPUs of the zone's node, and of the machine.
    cpu_online : int
        1 in the callback of a CPU that comes online, else 0.
    high_fraction : int
        0: share out the low watermark; else ``managed_pages // high_fraction``.

    References
    ----------
    mm/page_alloc.c, zone_highsize(), v5.14 ... v7.3.
    """
    total = highsize_total(managed_pages, low_wmark_pages, high_fraction)
    return max(total // highsize_divisor(node_cpus, online_cpus, cpu_online), 4 * batch)


class PagesetSize(NamedTuple):
    """What sizing writes into the lists of a zone [pages].

    Releases with ``high_min_max`` have ``high_min`` and ``high_max``, older ones ``high``;
    the others are None.
    """

    batch: int
    high: int | None
    high_min: int | None
    high_max: int | None


def _pageset_size(batch: int, high_min: int, high_max: int, rules: Rules) -> PagesetSize:
    if rules.high_min_max:
        return PagesetSize(batch, None, high_min, high_max)
    return PagesetSize(batch, high_min, None, None)


def boot_pageset(rules: Rules) -> PagesetSize:
    """Sizes at boot and while a zone's lists are disabled."""
    return _pageset_size(BOOT_PAGESET_BATCH, BOOT_PAGESET_HIGH, BOOT_PAGESET_HIGH, rules)


def least_high(batch: int, rules: Rules) -> int:
    """Limit that a batch brings at least, before v5.14 always: four batches, or six [pages]."""
    return (4 if rules.high_by_watermark else 6) * batch


def fixed_size(
    managed_pages: int, rules: Rules, high_fraction: int, page_shift: int = 12
) -> tuple[int, int]:
    """Batch and limit of a zone's lists before v5.14, whatever the watermarks and CPUs [pages].

    Six batches; none at all in a zone whose batch is not 1 but rounded down to nothing.  With
    sysctl ``vm.percpu_pagelist_fraction`` a part of the zone, and a quarter of that as batch, at
    most 8 times the page shift.

    References
    ----------
    mm/page_alloc.c, pageset_set_high_and_batch(), v5.10.
    """
    batch = zone_batchsize(managed_pages, rules, page_shift)
    high = least_high(batch, rules)
    if high_fraction:
        high = managed_pages // high_fraction
        batch = min(high // 4, page_shift * 8)
    if rules.sizing is not None:
        own, own_high = rules.sizing(managed_pages, 0, 1, 1, high_fraction)
        if own is not None and own_high is not None:  # one function sets both
            batch, high = own, own_high
    return max(batch, 1), high


def zone_set_pageset_high_and_batch(
    managed_pages: int,
    low_wmark_pages: int,
    rules: Rules,
    *,
    node_cpus: int,
    online_cpus: int,
    cpu_online: int = 0,
    high_fraction: int = 0,
    page_shift: int = 12,
    batch: int | None = None,
) -> PagesetSize:
    """Batch and limits of a zone's lists.

    Parameters are those of `zone_batchsize` and `zone_highsize`; ``high_fraction`` is
    sysctl ``vm.percpu_pagelist_high_fraction``: 0, or 8 and more.  With a ``batch`` that is not the
    kernel's the limits are those that it leads to: at least four (before v5.14 six) of it.

    Returns
    -------
    PagesetSize
        With the sysctl set, ``high_max`` equals ``high_min``: no auto-tuning.

    Raises
    ------
    InputError
        For a fraction that the kernel refuses or impossible CPU numbers.

    References
    ----------
    mm/page_alloc.c, zone_set_pageset_high_and_batch(), v6.6 and v6.7; `fixed_size`.
    """
    percpu_pagelist_high_fraction(high_fraction)
    own_batch = used_batch(managed_pages, rules, page_shift)
    fixed = 0
    if not rules.high_by_watermark:
        own_batch, fixed = fixed_size(managed_pages, rules, high_fraction, page_shift)
        if batch is not None and not high_fraction:
            fixed = least_high(batch, rules)
    used = own_batch if batch is None else batch

    def highsize(fraction: int) -> int:
        if rules.sizing is not None:
            highsize_divisor(node_cpus, online_cpus, cpu_online)
            own = rules.sizing(
                managed_pages, low_wmark_pages, node_cpus, online_cpus, fraction, cpu_online
            )[1]
            if own is not None:
                return own if used == own_batch else max(own, least_high(used, rules))
        return zone_highsize(
            managed_pages,
            low_wmark_pages,
            used,
            node_cpus=node_cpus,
            online_cpus=online_cpus,
            cpu_online=cpu_online,
            high_fraction=fraction,
        )

    high_max = highsize(high_fraction or MIN_PERCPU_PAGELIST_HIGH_FRACTION)
    high_min = highsize(high_fraction) if rules.high_by_watermark else fixed
    if min(high_min, high_max) < 0:
        raise SizeError(
            "zone_highsize",
            f"{min(high_min, high_max)} for a zone of {managed_pages:,} pages, of whose node "
            f"{node_cpus} CPUs are online: a list has 0 pages or more",
        )
    return _pageset_size(used, high_min, high_max, rules)


def refill_limit(batch: int, rules: Rules) -> int:
    """Most pages that one refill asks for, by the scale of the batch alone [pages]."""
    return batch << rules.batch_scale_max if rules.alloc_scale else batch


def drain_limit(batch: int, rules: Rules) -> int | None:
    """Most pages that one drain asks for, by the scale of the batch alone [pages].

    None where only ``high - batch`` stops the growth (v5.14 ... v6.6 before the cap).
    """
    if not rules.scaled_drains and not rules.free_count:
        return batch
    capped = rules.free_factor_cap or rules.free_count
    return batch << rules.batch_scale_max if capped else None


def drain_hold_limit(batch: int, rules: Rules) -> int | None:
    """Most pages that such a drain frees in one hold of the zone lock [pages].

    A batch where the drain of a commit is cut (v6.19 on), else `drain_limit`.
    """
    whole = rules.commit_drain == CommitDrain.WHOLE
    return drain_limit(batch, rules) if whole else batch


# Watermarks


class ZoneMemory(NamedTuple):
    """What the watermarks of a zone depend on.

    ``lowmem`` is False for highmem zones and, from v6.2 on, for ZONE_MOVABLE: they take no
    part in the share-out of ``min_free_kbytes``.
    """

    managed_pages: int
    lowmem: bool = True


@dataclass(frozen=True)
class Watermarks:
    """Watermarks of a zone without boost [pages]."""

    min: int
    low: int
    high: int
    promo: int


def setup_per_zone_wmarks(
    zones: Sequence[ZoneMemory],
    min_free_kbytes: int,
    watermark_scale_factor: int = 10,
    page_shift: int = 12,
) -> tuple[Watermarks, ...]:
    """Watermarks of every zone of the machine.

    Parameters
    ----------
    zones : sequence of ZoneMemory
        All zones of all nodes.
    min_free_kbytes : int
        sysctl ``vm.min_free_kbytes`` [KiB]; >= 0.
    watermark_scale_factor : int
        sysctl ``vm.watermark_scale_factor`` [1/10000 of the zone], 1 ... 3000.
    page_shift : int
        log2 of the page size in bytes.

    References
    ----------
    mm/page_alloc.c, __setup_per_zone_wmarks().
    """
    if min_free_kbytes < 0:
        raise InputError(f"min_free_kbytes={min_free_kbytes} is negative")
    if not 1 <= watermark_scale_factor <= 3000:
        raise InputError(f"watermark_scale_factor={watermark_scale_factor} is outside 1..3000")
    pages_min = min_free_kbytes >> (page_shift - 10)
    lowmem_pages = sum(zone.managed_pages for zone in zones if zone.lowmem)
    marks = []
    for managed, lowmem in zones:
        share = pages_min * managed // lowmem_pages if lowmem_pages else 0
        lowest = share if lowmem else clamp(managed // 1024, 32, 128)
        gap = max(share // 4, managed * watermark_scale_factor // 10000)
        marks.append(Watermarks(lowest, lowest + gap, lowest + 2 * gap, lowest + 3 * gap))
    return tuple(marks)


def min_free_kbytes_at_boot(lowmem_kbytes: int) -> int:
    """``min_free_kbytes`` that the kernel chooses for itself [KiB].

    .. math:: \\mathrm{clamp}(\\lfloor\\sqrt{16 \\cdot lowmem}\\rfloor, 128, 262144)

    Parameters
    ----------
    lowmem_kbytes : int
        Free buffer pages of the machine at that moment [KiB].

    References
    ----------
    mm/page_alloc.c, calculate_min_free_kbytes().
    """
    return clamp(isqrt(16 * lowmem_kbytes), 128, 262144)


def khugepaged_min_free_kbytes(
    zones: int, free_buffer_pages: int, page_shift: int = 12, pageblock_order: int = 9
) -> int:
    """``min_free_kbytes`` that khugepaged recommends when it starts [KiB].

    It raises the sysctl to this, never lowers it: two page blocks per zone, and one for every
    pair of the three types that have per-CPU lists, but at most 5 % of the free buffer pages.

    Parameters
    ----------
    zones : int
        Populated zones up to ZONE_NORMAL, all nodes.
    free_buffer_pages : int
        Managed pages of these zones above their high watermarks [pages].

    References
    ----------
    mm/khugepaged.c, set_recommended_min_free_kbytes().
    """
    blocks = zones * (2 + _MIGRATE_PCPTYPES * _MIGRATE_PCPTYPES)
    return min(blocks << pageblock_order, free_buffer_pages // 20) << (page_shift - 10)


# PCPF_FREE_HIGH_BATCH


class CacheLeaf(NamedTuple):
    """A cache that a CPU sees, as /sys/devices/system/cpu/cpuN/cache/indexM has it."""

    type: str  #: "Data", "Instruction" or "Unified"
    size_bytes: int
    shared_cpus: int  #: online CPUs that share it, >= 1


def data_cache_size(leaves: Iterable[CacheLeaf], rules: Rules) -> int:
    """Data cache that a CPU can call its own, as cacheinfo counts it [bytes].

    Parameters
    ----------
    leaves : iterable of CacheLeaf
        All leaves of one CPU, in index order; empty where the machine describes none.
    rules : Rules
        ``cacheinfo``: V2 of the series adds up every data leaf's share; v6.7 takes the share
        of the last leaf, if that one holds data.

    References
    ----------
    drivers/base/cacheinfo.c, update_per_cpu_data_slice_size_cpu(), v6.7.
    """
    shares = [size // shared if kind in ("Data", "Unified") else 0 for kind, size, shared in leaves]
    if rules.cacheinfo == Cacheinfo.DATA_4X:
        return sum(shares)
    return shares[-1] if shares and rules.cacheinfo == Cacheinfo.SLICE_3X else 0


def free_high_batch(
    batch: int, leaves: Iterable[CacheLeaf], rules: Rules, page_shift: int = 12
) -> bool:
    """Whether a CPU's lists carry ``PCPF_FREE_HIGH_BATCH``.

    Parameters
    ----------
    batch : int
        ``pcp->batch`` at the moment of the cacheinfo callback [pages].
    leaves : iterable of CacheLeaf
        The CPU's caches in index order.

    Returns
    -------
    bool
        True if its data cache holds more than 3 batches (V2 of the series: 4).

    References
    ----------
    mm/page_alloc.c, zone_pcp_update_cacheinfo(), v6.7.
    """
    return holds_batches(batch, data_cache_size(leaves, rules), rules, page_shift)


def holds_batches(batch: int, data_cache_bytes: int, rules: Rules, page_shift: int = 12) -> bool:
    """`free_high_batch` of a CPU whose data cache is known as one number [bytes]."""
    batches = 4 if rules.cacheinfo == Cacheinfo.DATA_4X else 3
    return bool(rules.free_high_batch) and data_cache_bytes >> page_shift > batches * batch

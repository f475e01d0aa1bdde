"""Named kernel states and the rules of ``mm/page_alloc.c`` that each one follows.

A *release* is a starting point plus an ordered list of *patches*; a patch sets
rules.  Rules are orthogonal: every decision function reads only the rules it
needs, so a patch can be put on or taken off any release and the result is a
defined kernel::

    >>> from pcpmodel.kernel.releases import release
    >>> str(release("v6.7").without("auto-high"))
    'v6.7-auto-high'
    >>> release("v6.6").plus("drain-two-in-a-row").rules == release("v6.6+p1").rules
    True

The numbering ``v6.6+p1`` ... ``v6.6+p10`` is that of version 2 of the series
"mm: PCP high auto-tuning" (26 Sep 2023), as its result tables use it; ``v6.7``
is version 3 as merged, which dropped V2's patch 9.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar

from pcpmodel.arguments import checked_methods
from pcpmodel.cached import cached_property
from pcpmodel.errors import InputError, integer, unknown_name

__all__ = [
    "Cacheinfo",
    "CommitDrain",
    "Decay",
    "Fallback",
    "MergeRetype",
    "Patch",
    "Release",
    "Rules",
    "nearest_release",
    "patches",
    "release",
    "releases",
]

#: Range of ``CONFIG_PCP_BATCH_SCALE_MAX`` (v6.7 Kconfig).
BATCH_SCALE_MAX_RANGE = (0, 6)


class Cacheinfo(IntEnum):
    """What ``PCPF_FREE_HIGH_BATCH`` compares with the batch."""

    NONE = 0  #: no such flag
    DATA_4X = 1  #: V2: all data caches of a CPU, more than 4 batches
    SLICE_3X = 2  #: v6.7: the CPU's slice of the last-level cache, more than 3 batches


class Decay(IntEnum):
    """How ``decay_pcp_high()`` lowers ``high`` at each vmstat tick."""

    NONE = 0  #: there is no decay
    FIFTH = 1  #: V2: by one fifth
    EIGHTH = 2  #: v6.7: by one eighth


class CommitDrain(IntEnum):
    """How the commit of a free cuts a long drain."""

    WHOLE = 0  #: one call, one hold
    CHUNKS_WHILE_HIGH = 1  #: Hahn v4: chunks of ``batch`` while ``count >= high``
    CHUNKS = 2  #: Hahn v5 (v6.19): chunks of ``batch`` until all is freed


class Fallback(IntEnum):
    """How a refill takes pages of another migratetype."""

    STEAL_THEN_RETRY = 0  #: ... v6.9: convert, then search the own lists again
    STEAL_PAGE = 1  #: v6.10 ... v6.14: the fallback returns the page itself
    CLAIM_OR_STEAL = 2  #: v6.15: claim from the largest order down, else steal the smallest


class MergeRetype(IntEnum):
    """What merging across page blocks of different types does to the types."""

    NONE = 0  #: ... v6.9: nothing
    FIRST_BLOCK = 1  #: v6.10 ... v6.18: the first block of the buddy
    ALL_BLOCKS = 2  #: v6.19: every block of the buddy


@dataclass(frozen=True)
class Rules:
    """What one kernel state does; read by ``kernel/*.pyx`` and ``kernel/reference/``.

    Every field is an integer or a truth value, so that the compiled core can
    hold the same record in a C struct.  The defaults are mainline v4.17.
    """

    #: zone_batchsize() and zone_highsize() of a kernel tree (`tree_pages.sizing`), where it is one
    sizing: ClassVar[Callable[..., tuple[int | None, int | None]] | None] = None

    # struct per_cpu_pages
    pcp_lock: bool = False  #: a lock of its own, not only disabled interrupts
    nr_pcp_lists: int = 3  #: 3: order 0 alone; else 12 and 3, 1 or 2 of huge pages

    # Sizing
    batchsize_1m: bool = False  #: zone_batchsize() by 1 MiB, not by half of it
    batchsize_256k: bool = False  #: v6.19 zone_batchsize(): min(M >> 12, 256 KiB)
    high_by_watermark: bool = False  #: zone_highsize(), not six batches
    high_min_max: bool = False  #: ``high_min``/``high_max`` instead of one ``high``
    batch_scale_max: int = 5  #: CONFIG_PCP_BATCH_SCALE_MAX
    cacheinfo: int = Cacheinfo.NONE

    # nr_pcp_alloc()
    alloc_scale: bool = False  #: batch << alloc_factor on consecutive refills
    auto_high: bool = False  #: ``high`` is tuned between high_min and high_max
    below_high: bool = False  #: ZONE_BELOW_HIGH stops the growth of ``high``

    # free_unref_page_commit() / free_frozen_page_commit()
    free_high: bool = False  #: a high-order free after a drain empties the lists
    free_high_two_in_a_row: bool = False  #: PCPF_PREV_FREE_HIGH_ORDER needed
    free_high_batch: bool = False  #: PCPF_FREE_HIGH_BATCH: keep up to a batch
    free_count: bool = False  #: ``free_count`` instead of ``free_factor``
    free_high_half_high_min: bool = False  #: threshold batch + high_min / 2
    free_high_pages: int = 0  #: this threshold instead [pages]; 0: by batch
    commit_drain: int = CommitDrain.WHOLE

    # nr_pcp_high(), nr_pcp_free()
    reclaim_limit: bool = False  #: four batches at most while pages are reclaimed
    high_decrement_batch: bool = False  #: lower ``high`` by max(free_count, batch)
    count_min: bool = False  #: V2 patch 9
    scaled_drains: bool = False  #: batch << free_factor, not a batch
    free_factor_cap: bool = False  #: free_factor stops at batch_scale_max
    free_factor_inclusive: bool = False  #: grow it also when n == high - batch
    free_high_limited: bool = False  #: free_high frees at most batch << batch_scale_max

    # free_pcppages_bulk()
    drain_by_list: bool = False  #: from the list of the free on, each list whole

    # decay_pcp_high(), drain_pages_zone(), refresh_cpu_vm_stats()
    decay: int = Decay.NONE
    decay_chunks: bool = False  #: in chunks of ``batch``
    drain_zone_chunks: bool = False  #: drain_pages_zone() by batch << batch_scale_max
    remote_expire_is_change: bool = False  #: a counting ``expire`` keeps the worker alive

    # Batched frees
    free_folios: bool = False  #: free_unref_folios() instead of free_unref_page_list()
    free_coalesce: bool = False  #: vfree() and free_contig_range() merge runs first

    # Buddy lists
    fallback: int = Fallback.STEAL_THEN_RETRY
    drain_block_type: bool = False  #: a drained page goes to its block's current type
    cma_balance: bool = False  #: CMA first where it has over half of the free memory
    merge_mergeable: bool = False  #: migratetype_is_mergeable(): CMA and high-atomic stay apart
    merge_retype: int = MergeRetype.NONE
    free_split_blocks: bool = False  #: free_one_page() splits above pageblock_order
    isolate_bit: bool = False  #: isolation is a bit beside the block's type
    nolock: bool = False  #: alloc_pages_nolock() / free_pages_nolock() exist
    zone_locked_list: bool = False  #: mm_page_alloc_zone_locked tells the list, not the request

    # Zone choice, watermarks and high-atomic reserve
    boost_watermark: bool = False  #: fallbacks boost the watermarks
    alloc_nofragment: bool = False  #: ALLOC_NOFRAGMENT: other zones before fallbacks
    boost_needs_kswapd: bool = False  #: rmqueue() looks at BOOSTED_WATERMARK with ALLOC_KSWAPD only
    alloc_non_block: bool = False  #: ALLOC_NON_BLOCK: GFP_NOWAIT counts reserves as free
    skip_busy_kswapd: bool = False  #: nodes whose kswapd runs are skipped at first
    highatomic_needs_gfp_high: bool = True  #: ALLOC_HIGHATOMIC only with __GFP_HIGH
    highatomic_last_resort: bool = False  #: non-blocking requests may take it before they fail
    highatomic_free_counter: bool = False  #: watermarks count nr_free_highatomic
    highatomic_limit_rounded: bool = False  #: 1 % rounded up to blocks, none if under one
    highatomic_in_buddy: bool = False  #: reserved in rmqueue_buddy(); PCP refill refused
    highatomic_fast_path: bool = False  #: flag on every attempt, reserved at WMARK_MIN only


@dataclass(frozen=True)
class Patch:
    """One change that can be put on or taken off a release.

    Attributes
    ----------
    name : str
        Name used by `Release.plus` and `Release.without`.
    form : str
        ``"v2"``, ``"v3"``, ... where a patch was posted and merged in several
        forms; empty otherwise.
    title : str
        What the change does, in the words of the field.
    origin : str
        Commit or posting, and the first release that has it.
    sets : mapping
        Rules that the patch sets, by name of the field of `Rules`.
    number : str
        Rule that a number given with the patch sets, as 126 in ``free-high-threshold=126``; empty
        if it takes none.
    """

    name: str
    form: str
    title: str
    origin: str
    sets: Mapping[str, int]
    number: str = ""

    @property
    def key(self) -> str:
        """``name`` or ``name@form``."""
        return f"{self.name}@{self.form}" if self.form else self.name


def _patch(key: str, title: str, origin: str, number: str = "", **sets: int) -> Patch:
    name, _, form = key.partition("@")
    return Patch(name, form, title, origin, MappingProxyType(sets), number)


_PATCHES: dict[str, Patch] = {
    p.key: p
    for p in (
        # Up to v6.6.
        _patch(
            "batchsize-1m",
            "zone_batchsize() by 1 MiB instead of half of it",
            "d8a759b57035, v4.19",
            batchsize_1m=True,
        ),
        _patch(
            "fragmentation-avoidance",
            "watermark boost, and other zones before fallbacks",
            "1c30844d2dfe and 6bb154504f8b, v5.0",
            boost_watermark=True,
            alloc_nofragment=True,
        ),
        _patch(
            "cma-balance",
            "movable pages from CMA while it has over half of the free memory",
            "16867664936e, v5.8",
            cma_balance=True,
        ),
        _patch(
            "high-by-watermark",
            "high from the low watermark and the CPUs of the node instead of six batches",
            "zone_highsize(), v5.14",
            high_by_watermark=True,
        ),
        _patch(
            "scaled-drains",
            "twice the pages at each drain in a row",
            "3b12e7e97938, v5.14",
            scaled_drains=True,
        ),
        _patch(
            "reclaim-limit",
            "four batches at most on the lists while pages are reclaimed",
            "nr_pcp_high(), v5.14",
            reclaim_limit=True,
        ),
        _patch(
            "high-order-lists",
            "lists of orders 1 to 3, and of huge pages of each type",
            "44042b449872, v5.14",
            nr_pcp_lists=15,
        ),
        _patch(
            "free-high",
            "empty the lists at high-order frees that follow a drain",
            "f26b3fa04611, v5.18",
            free_high=True,
        ),
        _patch(
            "drain-by-list",
            "drain list by list, that of the block freed first, instead of round-robin",
            "free_pcppages_bulk(), v5.18",
            drain_by_list=True,
        ),
        _patch(
            "merge-mergeable",
            "page blocks of CMA and high-atomic ones do not merge with others",
            "migratetype_is_mergeable(), 1dd214b8f21c, v5.18",
            merge_mergeable=True,
        ),
        _patch(
            "zone-locked-list",
            "mm_page_alloc_zone_locked: type of the list, percpu_refill of every order",
            "10e0f7530205, v5.19",
            zone_locked_list=True,
        ),
        _patch("one-thp-list", "one THP list for all types", "v6.0", nr_pcp_lists=13),
        _patch(
            "pcp-lock",
            "a spinlock of each CPU's lists instead of disabled interrupts alone",
            "struct per_cpu_pages, v6.0",
            pcp_lock=True,
        ),
        _patch(
            "boost-needs-kswapd",
            "a boosted zone wakes kswapd only for requests that may",
            "rmqueue(), v6.2",
            boost_needs_kswapd=True,
        ),
        _patch(
            "alloc-non-block",
            "ALLOC_NON_BLOCK: all that cannot reclaim count reserves as free, not GFP_ATOMIC alone",
            "gfp_to_alloc_flags(), v6.3, stable 6.1.y",
            alloc_non_block=True,
        ),
        # The series "mm: PCP high auto-tuning", V2 numbering.
        _patch(
            "drain-two-in-a-row",
            "drain for high-order frees only after two of them in a row",
            "ca71fe1ad922, patch 1, v6.7",
            free_high_two_in_a_row=True,
        ),
        _patch(
            "cacheinfo@v2",
            "per-CPU data cache size: sum over all data caches",
            "V2 patch 2",
            cacheinfo=Cacheinfo.DATA_4X,
        ),
        _patch(
            "cacheinfo@v3",
            "per-CPU slice of the last-level cache",
            "94a3bfe4073c, patch 2, v6.7",
            cacheinfo=Cacheinfo.SLICE_3X,
        ),
        _patch(
            "free-high-batch",
            "with a large cache keep up to a batch of high-order pages",
            "362d37a106dd, patch 3, v6.7",
            free_high_batch=True,
        ),
        _patch(
            "batch-scale-max",
            "cap the batch scale factor of frees",
            "52166607ecc9, patch 4, v6.7",
            free_factor_cap=True,
        ),
        _patch(
            "alloc-scale",
            "scale the refill batch on consecutive refills",
            "c0a242394cb9, patch 5, v6.7",
            alloc_scale=True,
        ),
        _patch(
            "high-min-max",
            "framework: high_min and high_max",
            "90b41691b988, patch 6, v6.7",
            high_min_max=True,
        ),
        _patch(
            "auto-high@v2",
            "tune high between high_min and high_max; decay by one fifth",
            "V2 patch 7",
            auto_high=True,
            decay=Decay.FIFTH,
            free_factor_inclusive=True,
            free_high_limited=True,
        ),
        _patch(
            "auto-high@v3",
            "tune high between high_min and high_max; decay by one eighth",
            "51a755c56dc0, patch 7, v6.7",
            auto_high=True,
            decay=Decay.EIGHTH,
            free_factor_inclusive=True,
            free_high_limited=True,
        ),
        _patch(
            "below-high",
            "lower high while free pages are under the high watermark",
            "57c0419c5f0e, patch 8, v6.7",
            below_high=True,
        ),
        _patch(
            "count-min",
            "decay only by the pages not used since the last tick",
            "V2 patch 9, never merged",
            count_min=True,
        ),
        _patch(
            "free-count@v2",
            "count freed pages instead of doubling a factor",
            "V2 patch 10",
            free_count=True,
        ),
        _patch(
            "free-count@v3",
            "count freed pages instead of doubling a factor; lower high by a batch at least",
            "6ccdcb6d3a74, V3 patch 9 (V2 patch 10), v6.7",
            free_count=True,
            high_decrement_batch=True,
        ),
        # Later and stable changes.
        _patch(
            "remote-drain",
            "a counting expire keeps the vmstat worker alive",
            '"mm: fix draining remote pageset", v6.7',
            remote_expire_is_change=True,
        ),
        _patch("free-folios", "free_unref_folios()", "v6.9", free_folios=True),
        _patch("thp-lists", "two THP lists", "bf14ed81f571, v6.10", nr_pcp_lists=14),
        _patch(
            "drain-zone-chunks",
            "drain_pages_zone() in chunks",
            "55f77df7d715 and 66eca1021a42, v6.10/v6.11",
            drain_zone_chunks=True,
        ),
        _patch(
            "freelist-hygiene",
            "no migratetype cache in pages; fallback returns the page",
            "17edeb5d3f76 and series, v6.10",
            fallback=Fallback.STEAL_PAGE,
            drain_block_type=True,
            merge_retype=MergeRetype.FIRST_BLOCK,
            free_split_blocks=True,
        ),
        _patch(
            "highatomic-v6.12",
            "reserve and its watermark by free high-atomic pages",
            "v6.12",
            highatomic_free_counter=True,
            highatomic_limit_rounded=True,
        ),
        _patch(
            "highatomic-non-blocking",
            "ALLOC_HIGHATOMIC for all that cannot reclaim",
            "1ebbb21811b7, v6.3",
            highatomic_needs_gfp_high=False,
        ),
        _patch(
            "highatomic-last-resort",
            "requests that cannot reclaim take high-atomic blocks before they fail",
            "281dd25c1a01, v6.12, stable 6.1.y",
            highatomic_last_resort=True,
        ),
        _patch(
            "highatomic-gfp-high",
            "ALLOC_HIGHATOMIC only with __GFP_HIGH",
            '"mm/page_alloc: only set ALLOC_HIGHATOMIC for __GPF_HIGH allocations", v6.18, '
            "stable 6.12.y and 6.17.y (October 2025)",
            highatomic_needs_gfp_high=True,
        ),
        _patch(
            "claim-or-steal",
            "claim a whole block or steal the smallest page",
            "c2f6ea38fc1b and 90abee6d7895, v6.15",
            fallback=Fallback.CLAIM_OR_STEAL,
        ),
        _patch("nolock", "opportunistic allocation and free", "97a769 series, v6.15", nolock=True),
        _patch(
            "free-high-threshold",
            "free_high only after batch + high_min / 2 pages",
            "c544a952ba61, v6.16",
            number="free_high_pages",
            free_high_half_high_min=True,
        ),
        _patch(
            "isolate-bit",
            "isolation as a bit of its own",
            'e904bce2d9d4 "mm/page_isolation: make page isolation a standalone bit", v6.17',
            isolate_bit=True,
        ),
        _patch(
            "skip-busy-kswapd",
            "first skip nodes whose kswapd runs",
            '"mm: page_alloc: avoid kswapd thrashing due to NUMA restrictions", v6.18',
            skip_busy_kswapd=True,
        ),
        _patch(
            "merge-retype-all",
            "merging across page blocks gives every block of the buddy the type",
            '7838a4eb8a1d "mm/page_alloc: change all pageblocks migrate type on coalescing", '
            "v6.19, stable 6.12.64",
            merge_retype=MergeRetype.ALL_BLOCKS,
        ),
        _patch(
            "decay-chunks",
            "decay_pcp_high() in chunks of batch",
            "fc4b909c368f, Hahn 2/3, v6.19 and stable",
            decay_chunks=True,
        ),
        _patch(
            "commit-chunks@v4",
            "cut the drain of a commit while count >= high",
            "Hahn v4 3/3, 13 Oct 2025, never merged in this form",
            commit_drain=CommitDrain.CHUNKS_WHILE_HIGH,
        ),
        _patch(
            "commit-chunks@v5",
            "cut the drain of a commit",
            "Hahn v5 3/3, v6.19",
            commit_drain=CommitDrain.CHUNKS,
        ),
        _patch("batchsize-256k", "zone_batchsize() by 256 KiB", "v6.19", batchsize_256k=True),
        _patch(
            "free-coalesce",
            "vfree() and free_contig_range() free runs as higher orders",
            "v7.2",
            free_coalesce=True,
        ),
        _patch(
            "highatomic-in-buddy",
            "high-atomic requests do not refill the PCP",
            '"mm/page_alloc: don\'t increase highatomic reserve after pcp alloc", v7.1',
            highatomic_in_buddy=True,
        ),
        _patch(
            "highatomic-fast-path",
            "ALLOC_HIGHATOMIC from the first attempt on, page blocks reserved at the min watermark",
            "__alloc_frozen_pages_noprof() and rmqueue_buddy(), v7.3",
            highatomic_fast_path=True,
        ),
    )
}

_SERIES_V2 = (
    "drain-two-in-a-row",
    "cacheinfo@v2",
    "free-high-batch",
    "batch-scale-max",
    "alloc-scale",
    "high-min-max",
    "auto-high@v2",
    "below-high",
    "count-min",
    "free-count@v2",
)
_V5_10 = ("batchsize-1m", "fragmentation-avoidance", "cma-balance")
_V5_17 = (*_V5_10, "high-by-watermark", "scaled-drains", "reclaim-limit", "high-order-lists")
_V6_1 = (
    *_V5_17,
    "free-high",
    "drain-by-list",
    "merge-mergeable",
    "zone-locked-list",
    "one-thp-list",
    "pcp-lock",
)
_V6_6 = (*_V6_1, "boost-needs-kswapd", "alloc-non-block", "highatomic-non-blocking")
_V6_7 = (
    *_V6_6,
    "drain-two-in-a-row",
    "cacheinfo@v3",
    "free-high-batch",
    "batch-scale-max",
    "alloc-scale",
    "high-min-max",
    "auto-high@v3",
    "below-high",
    "free-count@v3",
    "remote-drain",
)
_V6_12 = (
    *_V6_7,
    "free-folios",
    "thp-lists",
    "drain-zone-chunks",
    "freelist-hygiene",
    "highatomic-v6.12",
    "highatomic-last-resort",
)
_V6_16 = (*_V6_12, "claim-or-steal", "nolock", "free-high-threshold")
_V6_17 = (*_V6_16, "isolate-bit")
_V6_18 = (*_V6_17, "highatomic-gfp-high", "skip-busy-kswapd")
_V6_19 = (*_V6_18, "merge-retype-all", "decay-chunks", "commit-chunks@v5", "batchsize-256k")
_V7_1 = (*_V6_19, "highatomic-in-buddy")
_V7_2 = (*_V7_1, "free-coalesce")
_V7_3 = (*_V7_2, "highatomic-fast-path")

#: Release name -> patches over mainline v4.17, in order.
_RELEASES: dict[str, tuple[str, ...]] = {
    "v4.17": (),
    "v5.10": _V5_10,
    "v5.17": _V5_17,
    "debian-6.1.192": (
        *_V6_1,
        "alloc-non-block",
        "thp-lists",
        "batch-scale-max",
        "drain-zone-chunks",
        "highatomic-last-resort",
    ),
    "v6.6": _V6_6,
    **{f"v6.6+p{n}": (*_V6_6, *_SERIES_V2[:n]) for n in range(1, 11)},
    "v6.7": _V6_7,
    "v6.12": _V6_12,
    "debian-6.12.107": (
        *_V6_12,
        "highatomic-gfp-high",
        "claim-or-steal",
        "merge-retype-all",
        "decay-chunks",
    ),
    "v6.16": _V6_16,
    "debian-6.16.12": _V6_16,
    "v6.17": _V6_17,
    "v6.18": _V6_18,
    "v6.18+hahn-v4": (*_V6_18, "decay-chunks", "commit-chunks@v4"),
    "debian-6.18.15": (*_V6_18, "merge-retype-all", "decay-chunks"),
    "v6.19": _V6_19,
    "debian-6.19.14": _V6_19,
    "v7.0": _V6_19,
    "debian-7.0.13": _V6_19,
    "v7.1": _V7_1,
    "v7.2": _V7_2,
    "debian-7.2.13": _V7_2,
    "v7.3": _V7_3,
    "debian-7.3.4": _V7_3,
}


@checked_methods
@dataclass(frozen=True)
class Release:
    """A kernel state: a named starting point with patches put on or taken off.

    Attributes
    ----------
    name : str
        What `release` accepts to make the same state again.
    patches : tuple of str
        Keys of the patches in force over mainline v4.17, in order.
    batch_scale_max : int
        ``CONFIG_PCP_BATCH_SCALE_MAX`` [dimensionless], 0..6; 5 by default.
    """

    name: str
    patches: tuple[str, ...]
    batch_scale_max: int = 5

    @cached_property
    def rules(self) -> Rules:
        """Rules that this state follows."""
        values: dict[str, Any] = {}
        for key in self.patches:
            name, _, number = key.partition("=")
            values.update(_PATCHES[name].sets)
            if number:
                values[_PATCHES[name].number] = int(number)
        if "high-order-lists" not in self.patches:  # so that huge pages have none
            values.pop("nr_pcp_lists", None)
        return replace(Rules(), batch_scale_max=self.batch_scale_max, **values)

    @property
    def folio_batch(self) -> int:
        """Folios that go to or from the LRU at once: PAGEVEC_SIZE, 31 since v6.9, 15 before."""
        return 31 if self._since(6, 9) else 15

    @property
    def swap_cluster_max(self) -> int:
        """Pages that release_pages() takes off the LRU lists in one hold of their lock.

        SWAP_CLUSTER_MAX, 32, up to v6.8; 0 since v6.9: as many as the folio batch that
        folios_put_refs() is given has.
        """
        return 0 if self._since(6, 9) else 32

    @property
    def pgd_allocation_order(self) -> int:
        """Order of the root of a page table on x86-64 where page-table isolation is off.

        Up to v6.15 1, PGD_ALLOCATION_ORDER, wherever CONFIG_PAGE_TABLE_ISOLATION is built in, as
        it is by default; since v6.16 pgd_allocation_order() asks whether the CPU needs it.
        Recorded with mitigations=off: each exit under 6.12.107, none under 6.16.12.
        """
        return 0 if self._since(6, 16) else 1

    @property
    def uses_batch_scale_max(self) -> bool:
        """Whether any of the rules looks at CONFIG_PCP_BATCH_SCALE_MAX.

        nr_pcp_alloc(), nr_pcp_free(), free_unref_page_commit(), decay_pcp_high() of a ``high``
        that is tuned, and drain_pages_zone(), from v6.7 on and in Debian's 6.1.192.
        """
        r = self.rules
        return bool(
            r.alloc_scale
            or r.auto_high
            or r.free_count
            or r.free_factor_cap
            or r.free_high_limited
            or r.decay
            or r.drain_zone_chunks
        )

    def _since(self, *version: int) -> bool:
        """Whether it is a mainline version or later, by its name; without a number it is."""
        number = re.search(r"(\d+)\.(\d+)", self.name)
        return number is None or (int(number[1]), int(number[2])) >= version

    def plus(self, *names: str | int) -> Release:
        """Put patches on.

        Parameters
        ----------
        *names : str or int
            Patch names; of a patch with several forms the newest unless
            ``name@form`` is given.  A form already in force is replaced.  A number after a name
            is the patch's, as in ``plus("free-high-threshold", 126)``, which is the same as
            ``plus("free-high-threshold=126")``.

        Raises
        ------
        InputError
            For an unknown patch, one already in force, or a number that it does not take.
        """
        state = self
        for name in _with_numbers(names):
            patch, number = _find_patch(name)
            key = f"{patch.key}={number}" if number else patch.key
            if key in state.patches:
                raise InputError(f"{state.name} has {key!r} already")
            kept = tuple(k for k in state.patches if _name_of(k) != patch.name)
            state = replace(state, name=f"{state.name}+{name}", patches=(*kept, key))
        return state

    def without(self, *names: str) -> Release:
        """Take patches off.

        Raises
        ------
        InputError
            For an unknown patch, or one that is not in force.
        """
        state = self
        for name in names:
            patch, number = _find_patch(name)
            if number:
                raise InputError(f"{name!r}: a patch is taken off by its name alone")
            exact = "@" in name
            kept = tuple(
                k
                for k in state.patches
                if (k.partition("=")[0] != patch.key if exact else _name_of(k) != patch.name)
            )
            if len(kept) == len(state.patches):
                have = ", ".join(state.patches) or "none"
                raise InputError(f"{state.name} does not have {name!r}; it has: {have}")
            state = replace(state, name=f"{state.name}-{name}", patches=kept)
        return state

    def with_batch_scale_max(self, batch_scale_max: int) -> Release:
        """Set ``CONFIG_PCP_BATCH_SCALE_MAX``, 0..6 (v6.7 Kconfig)."""
        scale = integer("batch_scale_max", batch_scale_max, *BATCH_SCALE_MAX_RANGE)
        return replace(self, batch_scale_max=scale)

    def as_dict(self) -> dict[str, int]:
        """Rules by name, as plain integers and truth values."""
        values = {f.name: getattr(self.rules, f.name) for f in fields(Rules)}
        return {k: v if isinstance(v, bool) else int(v) for k, v in values.items()}

    #: A rule of one's own that decides on it; None: the kernel's alone.  Another:
    #: `pcpmodel.kernel.policies.RuledRelease`.
    policy: ClassVar[Any] = None

    def steps(self) -> dict[str, int]:
        """Where the compiled functions are that decide instead of the rules: none, here."""
        return {}

    @property
    def notes(self) -> list[str]:
        """What to know before using a result."""
        return []

    @property
    def recorded(self) -> dict[str, str]:
        """What a result's record says of it beside its name, where the name does not say all."""
        return {}

    def __str__(self) -> str:
        return self.name


#: Range of the numbers that patches take [pages].
_NUMBERS = (1, 1 << 26)


def _name_of(key: str) -> str:
    """Name of a patch in force."""
    return re.split("[@=]", key, maxsplit=1)[0]


def _with_numbers(names: tuple[str | int, ...]) -> list[str]:
    """Names of patches, each with the number that follows it."""
    found: list[str] = []
    for name in names:
        if isinstance(name, str):
            found.append(name)
        elif not found:
            raise InputError(f"{name!r} is neither a patch nor the number of one")
        elif "=" in found[-1]:
            raise InputError(f"{found[-1]}, {name}: a patch takes one number")
        else:
            found[-1] += f"={name}"
    return found


def _find_patch(name: str) -> tuple[Patch, str]:
    """A patch, and the number that goes with it."""
    key, equals, number = name.partition("=")
    forms = [_PATCHES[key]] if key in _PATCHES else [p for p in _PATCHES.values() if p.name == key]
    if not forms:
        known = sorted({p.name for p in _PATCHES.values()} | set(_PATCHES))
        raise unknown_name("patch", key, known)
    if equals:
        if not forms[-1].number:
            takers = ", ".join(p.key for p in _PATCHES.values() if p.number)
            raise InputError(f"{name!r}: {key} takes no number; those that do: {takers}")
        lo, hi = _NUMBERS
        if not re.fullmatch("[0-9]{1,9}", number, re.ASCII) or not lo <= int(number) <= hi:
            raise InputError(f"{name!r}: {number!r} is not a number of pages {lo}..{hi}")
        number = str(int(number))
    return forms[-1], number


def releases() -> tuple[Release, ...]:
    """Every named release, oldest first.

    Returns
    -------
    tuple of Release
    """
    return tuple(Release(name, keys) for name, keys in _RELEASES.items())


def patches() -> tuple[Patch, ...]:
    """Every patch that `Release.plus` and `Release.without` know.

    Returns
    -------
    tuple of Patch
    """
    return tuple(_PATCHES.values())


def release(name: str | Release) -> Release:
    """Look up a kernel state.

    Parameters
    ----------
    name : str, Release or Tree
        A release name, optionally followed by ``+patch`` and ``-patch``, as
        `Release.name` prints it; a `Release` is returned unchanged.  Of a kernel tree that was
        opened (`pcpmodel.tree`) the state that it decides by.

    Returns
    -------
    Release

    Raises
    ------
    InputError
        For an unknown name; the nearest known one is offered.

    Examples
    --------
    >>> release("v6.12").rules.free_high_half_high_min
    False
    >>> release("v6.12+free-high-threshold").rules.free_high_half_high_min
    True
    """
    if isinstance(name, Release):
        return name
    if hasattr(name, "as_release"):
        state: Release = name.as_release()
        return state
    if not isinstance(name, str):
        raise InputError(f"release name must be a string, not {name!r}")
    starts = [n for n in _RELEASES if name == n or name.startswith((n + "+", n + "-"))]
    if not starts:
        if re.fullmatch(r"v?[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,5})?", name, re.ASCII):
            near = nearest_release(name.removeprefix("v")).name  # not by spelling: v6.18 for v6.8
            raise InputError(
                f"unknown release {name!r}; did you mean {near!r}, the nearest known? "
                f"Known: {', '.join(_RELEASES)}"
            )
        raise unknown_name("release", name, _RELEASES)
    start = max(starts, key=len)
    state = Release(start, _RELEASES[start])
    rest = name[len(start) :]
    keys = sorted({*_PATCHES, *(p.name for p in _PATCHES.values())}, key=len, reverse=True)
    step = re.compile("([+-])((?:" + "|".join(map(re.escape, keys)) + r")(?:=[^+]*)?)(?=[+-]|$)")
    while rest:
        found = step.match(rest)
        if not found:
            known = sorted({p.name for p in _PATCHES.values()})
            raise unknown_name(f"patch in release {name!r}:", rest[1:], known)
        sign, key = found.groups()
        state = state.plus(key) if sign == "+" else state.without(key)
        rest = rest[found.end() :]
    return state


#: Kernels from which on a release's rules hold, where they are older than its name.
_SINCE = {"v5.10": (4, 19, 0), "v5.17": (5, 14, 0), "v6.6": (5, 18, 0)}


def nearest_release(kernel: str) -> Release:
    """Known release nearest to a kernel, by its version.

    Of the known releases with the same two leading numbers (mainline counts as patch level 0,
    ``debian-6.12.107`` as 107: it has the stable tree's backports), the newest that is not
    newer, or else the oldest; if there is none, the newest older mainline release.  Kernels
    before 4.19 count as 4.17, 4.19 ... 5.13 as 5.10, 5.14 ... 5.17 as 5.17, 5.18 ... 6.0 and 6.2
    ... 6.5 as 6.6.

    Parameters
    ----------
    kernel : str
        As ``uname -r`` prints it.

    Raises
    ------
    InputError
        If it does not start with a version.
    """
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,6}))?", kernel, re.ASCII)
    if not match:
        raise InputError(f"kernel release {kernel!r} does not start with a version such as 6.18.15")
    given = tuple(int(n or 0) for n in match.groups())
    known = []  # numbers of each, whether mainline, the state
    for state in releases():
        named = re.fullmatch(r"(v|debian-)([0-9.]+)", state.name, re.ASCII)
        if named:
            numbers = tuple(map(int, named[2].split(".")))
            known.append(((*numbers, 0)[:3], named[1] == "v", state))
    known.sort(key=lambda k: k[0])
    same = [k for k in known if k[0][:2] == given[:2]]
    older = [k for k in same if k[0] <= given]
    if same:
        return (older[-1] if older else same[0])[2]
    mainline = [(_SINCE.get(s.name, numbers), s) for numbers, is_one, s in known if is_one]
    before = [state for numbers, state in mainline if numbers <= given]
    return before[-1] if before else mainline[0][1]


# A patch that names a rule which does not exist is our own mistake: say so at import.
assert all(set(p.sets) <= {f.name for f in fields(Rules)} for p in _PATCHES.values())

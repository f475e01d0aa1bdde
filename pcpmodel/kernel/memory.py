"""The memory of a machine, page by page, under the rules of one kernel."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Sequence

from pcpmodel.kernel.page_alloc import PageAllocator
from pcpmodel.kernel.releases import Release, release
from pcpmodel.kernel.zone import Pagesets, Zone

__all__ = ["Memory", "Zone"]


class Memory(Pagesets, PageAllocator):
    """Zones with buddy lists, and every CPU's page lists.

    Parameters
    ----------
    release_ : str or Release
        Kernel state.
    zones : sequence of Zone
    cpus : int
        Possible CPUs.
    cpu_node : sequence of int, optional
        Node of each CPU; all on node 0 by default.
    online : sequence of int, optional
        CPUs that are online; all by default.
    data_cache_bytes : int
        Data cache that a CPU can call its own [bytes], for ``PCPF_FREE_HIGH_BATCH``.
    watermark_boost_factor : int
        sysctl ``vm.watermark_boost_factor`` [1/10000].
    free : bool
        Whether all pages are on the free lists at first, or all in use.
    policy : optional
        A policy of your own (`pcpmodel.cython_pcp`).

    Examples
    --------
    >>> mem = Memory("v6.18", [Zone(4096, batch=7, high_min=28, high_max=512)])
    >>> [mem.alloc() for _ in range(3)]
    [0, 1, 2]
    >>> mem.free(0, 1)
    >>> mem.state()[0]["pcp"][0]["lists"]
    {1: [1, 3, 4, 5, 6]}
    """

    def __init__(
        self,
        release_: str | Release,
        zones: Sequence[Zone],
        cpus: int = 1,
        *,
        cpu_node: Sequence[int] | None = None,
        online: Sequence[int] | None = None,
        data_cache_bytes: int = 0,
        watermark_boost_factor: int = 15000,
        free: bool = True,
        policy: object = None,
    ) -> None:
        self.release = release(release_)
        self.zones = tuple(zones)
        self.cpus = cpus
        self.cpu_node = (0,) * cpus if cpu_node is None else tuple(cpu_node)
        self._setup_pagesets(online, data_cache_bytes)

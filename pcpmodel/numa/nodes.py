"""Page frames of the two nodes: one zone each, under the kernel core's rules.

``__GFP_THISNODE`` is what migration asks with, so that each node is a memory of its own;
all CPUs are on node 1.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.zone import Zone

__all__ = ["nodes"]

MAX_ORDER_PAGES = 1024


def nodes(config: Mapping[str, Any], kind: Callable[..., Any] = Memory) -> tuple[Any, Any]:
    """Make the memory of the other node and of the threads' node.

    Parameters
    ----------
    config : mapping
        ``page_release``, ``node0_pages``, ``node1_pages``, ``watermarks``, ``cpus``.
    kind : callable
        `pcpmodel.kernel.memory.Memory`, or its slow twin.
    """
    start = -(-config["node0_pages"] // MAX_ORDER_PAGES) * MAX_ORDER_PAGES
    return tuple(
        kind(
            config["page_release"],
            [Zone(pages, first, watermarks=tuple(config["watermarks"]))],
            config["cpus"],
        )
        for pages, first in ((config["node0_pages"], 0), (config["node1_pages"], start))
    )

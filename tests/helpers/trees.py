"""Kernel trees to try things on: the excerpt or real sources, with parts of their text replaced."""

# SPDX-License-Identifier: GPL-2.0-only

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.paths import SHARED
from pcpmodel.kernel.tree import EXCERPT, FILES

#: Real kernel sources, which users do not have.
TREES = SHARED / "kernel-trees"

needs_trees = pytest.mark.skipif(not TREES.exists(), reason="real kernel sources are not at hand")

#: Of the excerpt: include/linux/mmzone.h with so many lists of huge pages and more fields.
HEADER = """
enum migratetype { MIGRATE_UNMOVABLE, MIGRATE_MOVABLE, MIGRATE_RECLAIMABLE, MIGRATE_PCPTYPES };
enum zone_flags { ZONE_BOOSTED_WATERMARK, ZONE_RECLAIM_ACTIVE, ZONE_BELOW_HIGH };
#define PAGE_ALLOC_COSTLY_ORDER 3
#define NR_LOWORDER_PCP_LISTS (MIGRATE_PCPTYPES * (PAGE_ALLOC_COSTLY_ORDER + 1))
#define NR_PCP_THP %(thp)d
#define NR_PCP_LISTS (NR_LOWORDER_PCP_LISTS + NR_PCP_THP)
#define PCPF_PREV_FREE_HIGH_ORDER BIT(0)
#define PCPF_FREE_HIGH_BATCH BIT(1)
struct per_cpu_pages {
	spinlock_t lock;
	int count, high, high_min, high_max, batch;
	u8 flags, alloc_factor;
	short free_count;%(more)s
	struct list_head lists[NR_PCP_LISTS];
};
"""

_DRAIN = r"clamp_t\(int, pcp->free_count, (\w+), ([^)]+)\)"


@dataclass(frozen=True)
class Patch:
    """A change of the page-list rules, as replacements that fit the excerpt and real sources.

    Attributes
    ----------
    functions : frozenset of str
        That may decide otherwise than those of v7.2.
    text, header : tuple of (pattern, replacement)
        In mm/page_alloc.c and include/linux/mmzone.h.
    """

    functions: frozenset[str]
    text: tuple[tuple[str, str], ...] = ()
    header: tuple[tuple[str, str], ...] = ()


PATCHES = {
    "cap": Patch(
        frozenset({"nr_pcp_free"}),
        ((_DRAIN, r"min(clamp_t(int, pcp->free_count, \1, \2), 4 * batch)"),),
    ),
    "threshold": Patch(
        frozenset({"nr_pcp_free", "nr_pcp_high", "free_frozen_page_commit"}),
        ((r"\(?batch \+ pcp->high_min / 2\)?", "2 * batch"),),
    ),
    # Drains are of one batch after every other allocation.
    "field": Patch(
        frozenset({"nr_pcp_free"}),
        (
            (r"\bpcp->free_count >>= 1;", "pcp->free_count >>= 1;\n	pcp->allocs++;"),
            (_DRAIN, r"(pcp->allocs & 1 ? batch : clamp_t(int, pcp->free_count, \1, \2))"),
        ),
        ((r"	struct list_head lists\[", "	int allocs;\n	struct list_head lists["),),
    ),
    "helper": Patch(
        frozenset({"nr_pcp_free"}),
        (
            (
                r"\bstatic int nr_pcp_free\(",
                "static int most_at_once(int batch)\n{\n	return batch << 2;\n}\n\n"
                "static int nr_pcp_free(",
            ),
            (
                r"return min\(pcp->count, batch << CONFIG_PCP_BATCH_SCALE_MAX\)",
                "return min(pcp->count, most_at_once(batch))",
            ),
        ),
    ),
    "quarter": Patch(frozenset({"decay_pcp_high"}), ((r"pcp->high >> 3", "pcp->high >> 2"),)),
    # Who waits for the zone gets it after 64 blocks of a refill.
    "refill-holds": Patch(
        frozenset({"rmqueue_bulk"}),
        (
            (
                r"(?m)^(\tenum rmqueue_mode \w+ = RMQUEUE_NORMAL;)",
                r"\1\n\tunsigned int taken = 0;",
            ),
            (
                r"(\t\tlist_add_tail\(&page->pcp_list, list\);)",
                r"\1\n\t\tif (!(++taken % 64)) {\n\t\t\tspin_unlock(&zone->lock);\n"
                r"\t\t\tspin_lock(&zone->lock);\n\t\t}",
            ),
        ),
    ),
    "nineteen-lists": Patch(
        frozenset({"order_to_pindex"}), header=((r"#define NR_PCP_THP 2", "#define NR_PCP_THP 7"),)
    ),
}  # fmt: skip


def patched(name: str, folder: Path, base: Path = EXCERPT) -> Path:
    """A tree with one of `PATCHES`, in a folder that is not there yet."""
    return edited(folder, PATCHES[name].text, PATCHES[name].header, base, each=1)


def edited(
    folder: Path,
    text: tuple[tuple[str, str], ...] = (),
    header: tuple[tuple[str, str], ...] = (),
    base: Path = EXCERPT,
    each: int = 0,
) -> Path:
    """A tree whose mm/page_alloc.c and include/linux/mmzone.h are changed, each pattern once.

    ``each``: how often a pattern must be there; 0: the first of them is replaced.
    """
    for file in FILES:
        if (base / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(base / file, folder / file)
    mmzone = folder / "include/linux/mmzone.h"
    if header and not mmzone.exists():
        mmzone.parent.mkdir(parents=True, exist_ok=True)
        mmzone.write_text(HEADER % {"thp": 2, "more": ""})
    for file, changes in ((folder / "mm/page_alloc.c", text), (mmzone, header)):
        for pattern, new in changes:
            made, n = re.subn(pattern, new, file.read_text(), count=0 if each else 1)
            assert n == (each or 1), (file, pattern, n)
            file.write_text(made)
    return folder


def changed_excerpt(folder: Path, *pairs: tuple[str, str], **files: str) -> Path:
    """The excerpt with parts of its text replaced, and files beside it (``mm__internal_h``)."""
    (folder / "mm").mkdir(parents=True)
    text = (EXCERPT / "mm/page_alloc.c").read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    (folder / "mm/page_alloc.c").write_text(text)
    for name, content in files.items():
        at = folder / name.replace("__", "/").replace("_h", ".h")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(content)
    return folder

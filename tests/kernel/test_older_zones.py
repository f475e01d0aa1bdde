"""Free lists and watermarks of kernels before v6.6: what is not as in v6.6."""

# SPDX-License-Identifier: GPL-2.0-only

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from helpers.trees import TREES, needs_trees
from pcpmodel.kernel import memory, reference
from pcpmodel.kernel.tree_source import Source
from pcpmodel.kernel.zone import Zone

UNMOVABLE, MOVABLE, RECLAIMABLE, HIGHATOMIC, CMA = range(5)
OLD = ["v4.17", "v5.10", "v5.17"]
NEW = ["debian-6.1.192", "v6.6"]


def free_of(mem):
    return {k: v for k, v in mem.state()[0]["free"].items() if v}


# Merging


@pytest.mark.parametrize("other", [HIGHATOMIC, CMA])
def test_blocks_of_all_types_merged_before_v5_18(make, other):
    """migratetype_is_mergeable(); before, has_isolate_pageblock() alone keeps blocks apart."""
    for name in OLD + NEW:
        for at, types, merged in ((0, [MOVABLE, other], MOVABLE), (512, [other, MOVABLE], other)):
            mem = make(name, {(9, types[1]): [512 - at]}, blocks=[types[at > 0], types[at == 0]])
            mem.free_direct(0, at, 9)
            apart = {(9, types[0]): [at], (9, types[1]): [512 - at]}
            del merged
            assert free_of(mem) == ({(10, types[0]): [0]} if name in OLD else apart)


def test_an_isolated_block_merges_with_none_but_its_like(make):
    for name in ["v5.10", "v6.6"]:
        mem = make(name, {(9, MOVABLE): [512]})
        mem.set_isolate(0)
        mem.free_direct(0, 0, 9)
        assert free_of(mem) == {(9, MOVABLE): [512], (9, 5): [0]}


_HARNESS = r"""
#include <stdbool.h>
#include <string.h>
#define unlikely(x) (x)
#define likely(x) (x)
#define min_t(t, a, b) ((t)(a) < (t)(b) ? (t)(a) : (t)(b))
#define MAX_ORDER 11
#define pageblock_order 9
#define PAGES 8192
#define FPI_TO_TAIL 2
#define FPI_SKIP_REPORT_NOTIFY 1
#define MIGRATE_PCPTYPES 3
typedef int fpi_t;
struct page { int order, list, next; };
struct zone { int head[MAX_ORDER][6]; };
struct capture_control;
static struct page map[2 * PAGES];
static int types[2 * PAGES >> pageblock_order];
static struct zone the_zone;
#define task_capc(zone) NULL
#define compaction_capture(...) false
#define VM_BUG_ON(x)
#define VM_BUG_ON_PAGE(x, page)
#define is_migrate_isolate(mt) ((mt) == 5)
#define __mod_zone_freepage_state(zone, n, mt)
#define pfn_valid_within(pfn) true
#define page_is_guard(page) false
#define clear_page_guard(...)
#define has_isolate_pageblock(zone) false
#define migratetype_is_mergeable(mt) ((mt) < MIGRATE_PCPTYPES)
#define is_shuffle_order(order) false
#define shuffle_pick_tail() false
#define page_reporting_notify_free(order)
#define get_pageblock_migratetype(page) types[(page) - map >> pageblock_order]
#define set_buddy_order(page, o) ((page)->order = (o))
#define page_is_buddy(page, buddy, o) ((buddy)->order == (o))
#define pfn_to_page(pfn) (map + (pfn))
static unsigned long __find_buddy_pfn(unsigned long pfn, unsigned int order)
{
	return pfn ^ (1UL << order);
}
static struct page *find_buddy_page_pfn(struct page *page, unsigned long pfn,
					unsigned int order, unsigned long *at)
{
	unsigned long buddy = __find_buddy_pfn(pfn, order);

	if (at)
		*at = buddy;
	return map[buddy].order == (int)order ? map + buddy : NULL;
}
static int *link_to(struct zone *zone, int order, int mt, int page)
{
	int *at = &zone->head[order][mt];

	while (*at != page)
		at = &map[*at].next;
	return at;
}
static void del_page_from_free_list(struct page *page, struct zone *zone, unsigned int order)
{
	*link_to(zone, order, page->list, page - map) = page->next;
	page->order = -1;
}
static void add_to_free_list(struct page *page, struct zone *zone, unsigned int order, int mt)
{
	page->list = mt;
	page->next = zone->head[order][mt];
	zone->head[order][mt] = page - map;
}
static void add_to_free_list_tail(struct page *page, struct zone *zone, unsigned int order,
				int mt)
{
	*link_to(zone, order, mt, -1) = page - map;
	page->list = mt;
	page->next = -1;
}
@FUNCTIONS@
void begin(const int *block_types)
{
	int i;

	memcpy(types, block_types, sizeof(int) * (PAGES >> pageblock_order));
	for (i = 0; i < 2 * PAGES; i++)
		map[i].order = -1;
	memset(&the_zone, 0xff, sizeof(the_zone));
}
void give(int pfn, int order)
{
	__free_one_page(map + pfn, pfn, &the_zone, order, types[pfn >> pageblock_order], 0);
}
int list(int order, int mt, int *pfns)
{
	int n = 0, at;

	for (at = the_zone.head[order][mt]; at >= 0; at = map[at].next)
		pfns[n++] = at;
	return n;
}
"""


@pytest.fixture(scope="module")
def free_one_page(tmp_path_factory):
    """__free_one_page() of a kernel's own text, on free lists of a zone of 8,192 pages."""
    folder = tmp_path_factory.mktemp("free-one-page")

    def of(version):
        source = Source("page_alloc.c", (TREES / version / "mm/page_alloc.c").read_bytes())
        texts = [source.defined(n)[-1].text for n in ("buddy_merge_likely", "__free_one_page")]
        at = folder / f"{version}.c"
        at.write_text(_HARNESS.replace("@FUNCTIONS@", "\n".join(texts)))
        library = at.with_suffix(".so")
        cc = [shutil.which("cc"), "-O1", "-w", "-fPIC", "-shared", "-o", library, at]
        subprocess.run(cc, check=True)
        return ctypes.CDLL(str(library))

    return of


@needs_trees
@pytest.mark.parametrize("kind", [memory.Memory, reference.Memory])
@pytest.mark.parametrize(("version", "name"), [("5.10.262", "v5.10"), ("5.10.262", "v5.17"),
                                               ("6.1.192", "debian-6.1.192")])  # fmt: skip
def test_free_lists_are_those_of_the_kernels_own_function(free_one_page, kind, version, name):
    theirs, pages = free_one_page(version), 8192
    pfns = (ctypes.c_int * pages)()
    for seed in range(12 if kind is memory.Memory else 2):
        rng = np.random.default_rng(seed)
        types = [int(t) for t in rng.choice([0, 1, 1, 2, 3, 4], pages // 512)]
        theirs.begin((ctypes.c_int * len(types))(*types))
        mem = kind(name, [Zone(pages)], free=False)
        mem.load(0, {"free": {}, "blocks": types})
        blocks, at = [], 0
        while at < pages:
            order = int(rng.choice([0, 1, 3, 5, 8, 9, 9, 9, 10]))
            while at % (1 << order):
                order -= 1
            blocks.append((at, order))
            at += 1 << order
        rng.shuffle(blocks)
        for pfn, order in blocks[: int(len(blocks) * rng.choice([0.7, 0.9, 1]))]:
            theirs.give(int(pfn), int(order))
            mem.free_direct(0, int(pfn), int(order))
        expected = {(o, t): pfns[:n] for o in range(11) for t in range(6)
                    if (n := theirs.list(o, t, pfns))}  # fmt: skip
        assert free_of(mem) == expected


# CMA and the trace


def test_the_half_of_free_memory_in_cma_counts_from_v5_8_on(make):
    """16867664936e; before, movable requests go there once their own lists are empty."""
    blocks = [MOVABLE, CMA, CMA, CMA]
    free = {(9, MOVABLE): [0], (9, CMA): [512, 1024, 1536]}
    for name in OLD + NEW:
        mem = make(name, free, pages=2048, blocks=blocks, batch=1, high=0)
        assert mem.alloc(0, 4, MOVABLE) == (0 if name == "v4.17" else 512)
    last = make("v4.17", {(9, CMA): [512]}, pages=2048, blocks=blocks, batch=1, high=0)
    assert last.alloc(0, 4, MOVABLE) == 512


def lines(mem):
    return [e[2:] for e in mem.take_events() if e[0] == "zone_locked"]


def test_the_line_of_a_page_taken_told_the_request_before_v5_19(make):
    """10e0f7530205: type of the list, and percpu_refill of every order that has one."""
    for name in OLD + NEW:
        old = name in OLD
        mem = make(name, {(9, CMA): [0]}, blocks=[CMA, MOVABLE], batch=1)
        assert mem.alloc(0, 0, MOVABLE) == 0
        assert lines(mem) == [(0, MOVABLE, True) if old else (0, CMA, False)]
        mem = make(name, {(9, MOVABLE): [0]}, blocks=[MOVABLE, MOVABLE], batch=4)
        assert mem.alloc(0, 1, MOVABLE) == 0
        assert {refill for *_, refill in lines(mem)} == {not old}
        mem = make(name, {(9, HIGHATOMIC): [0]}, blocks=[HIGHATOMIC, MOVABLE])
        assert mem.alloc(0, 4, UNMOVABLE, gfp="atomic") == 0
        assert lines(mem) == [(4, UNMOVABLE if old else HIGHATOMIC, False)]


# Watermarks


def short(make, name, **more):
    """One movable block, which an unmovable request takes a part of."""
    mem = make(name, {(5, MOVABLE): [0]}, pages=4096, blocks=[1] * 8, batch=1, high=0, **more)
    mem.set_watermarks(0, 1, 2, 30)
    return mem


def test_fallbacks_boost_watermarks_from_v5_0_on(make):
    """1c30844d2dfe"""
    for name in OLD + NEW:
        mem = short(make, name)
        assert mem.alloc_from(0, 0, 0, UNMOVABLE) == 0
        assert (mem.state()[0]["watermark_boost"] > 0) == (name != "v4.17")


@pytest.mark.parametrize("kind", [memory.Memory, reference.Memory])
def test_other_zones_come_before_fallbacks_from_v5_0_on(kind):
    """ALLOC_NOFRAGMENT, 6bb154504f8b"""
    for name in OLD + NEW:
        low, normal = Zone(4096, name="DMA32"), Zone(4096, start_pfn=4096)
        mem = kind(name, [low, normal], free=False)
        mem.load(0, {"free": {(10, UNMOVABLE): [0]}, "blocks": [0, 0, *[1] * 6]})
        mem.load(1, {"free": {(5, MOVABLE): [4096]}, "blocks": [1] * 8})
        assert mem.alloc(0, 4, UNMOVABLE) == (4096 if name == "v4.17" else 0)


def test_who_cannot_reclaim_counts_reserves_as_free_from_v6_3_on(make):
    """ALLOC_NON_BLOCK; before, ALLOC_HARDER of GFP_ATOMIC alone."""
    for name in OLD + NEW:
        mem = make(name, {(3, MOVABLE): [0]}, pages=4096, blocks=[1] * 8, batch=1, high=0)
        mem.load(0, {"free": {(3, MOVABLE): [0]}, "nr_reserved_highatomic": 512})
        assert (mem.alloc(0, 0, MOVABLE, gfp="nowait") == 0) == (name in NEW)
        assert mem.alloc(0, 0, MOVABLE, gfp="atomic") is not None


KSWAPD = 0x800


def test_a_boosted_zone_wakes_kswapd_for_whoever_comes_before_v6_2(make):
    """rmqueue() clears ZONE_BOOSTED_WATERMARK; where it fails past the lists, not before v6.0."""
    for name in [*OLD, *NEW]:
        for flags, order, page in ((KSWAPD, 0, 0), (0, 0, 0), (0, 4, 0), (0, 6, None)):
            mem = short(make, name)
            mem.set_flags(0, 1)
            assert mem.alloc_from(0, 0, order, MOVABLE, alloc_flags=flags) == page
            stays = (page is None and name in OLD) or (name == "v6.6" and not flags)
            assert mem.state()[0]["flags"] == stays


def test_without_a_lock_of_their_own_the_lists_have_the_last_word(make):
    """rmqueue() up to v5.19: what rmqueue_pcplist() does not have is not asked for past it."""
    for name in [*OLD, *NEW]:
        mem = make(name, {})
        assert mem.alloc_from(0, 0, 0, MOVABLE) is None
        holds = [e[1:] for e in mem.take_events() if e[0] == "hold"]
        assert holds == [("refill", 0)] + [("alloc", 0)] * (name in NEW)

"""Fields that a kernel tree adds to structures beside the page lists, and to those."""

# SPDX-License-Identifier: GPL-2.0-only

import difflib

import pytest

from helpers.trees import HEADER
from pcpmodel.errors import InputError
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.tree import open_tree
from pcpmodel.kernel.tree_compare import differences
from pcpmodel.kernel.tree_pages import TreePages
from pcpmodel.kernel.tree_rules import Hits
from pcpmodel.kernel.tree_source import cut, members

FREE = "	high = nr_pcp_high("
BATCH = "	if (!order)\n		n = base << pcp->alloc_factor;\n"


def of_one_batch(where):
    """Refills of order 0 as they are, but of one batch where that holds."""
    return BATCH, BATCH.replace("!order", f"!order && !({where})")


STRUCTS = """
enum zone_mood { ZONE_COLD, ZONE_WARM, NR_ZONE_MOODS };
struct per_cpu_zonestat {
	s8 stat_threshold;%(zonestat)s
};
struct zone {
	unsigned long _watermark[3], watermark_boost;
	struct pglist_data *zone_pgdat;
	CACHELINE_PADDING(_pad1_);
#ifdef CONFIG_CMA
	unsigned long cma_pages;
#endif%(zone)s
} ____cacheline_internodealigned_in_smp;
typedef struct pglist_data {
	struct zone node_zones[4];
	struct { int a; } kept_by_nobody;%(node)s
} pg_data_t;
"""


def tree_with(changed, *pairs, pcp="", zone="", node="", zonestat=""):
    fields = {"zone": zone, "node": node, "zonestat": zonestat}
    header = HEADER % {"thp": 2, "more": pcp} + STRUCTS % fields
    return changed(*pairs, include__linux__mmzone_h=header)


def refills(opened, n=1000):
    """Blocks of each refill of a list that is empty."""
    pages = TreePages(opened, high=4000)
    return [got for got in (pages.alloc() for _ in range(n)) if got]


EVERY_OTHER = [63, 63, 252, 63, 1008]  # of one batch


@pytest.mark.parametrize(
    ("where", "declared", "counts", "said"),
    [
        ("zone", "unsigned long refills;", "zone->refills++", "refills of struct zone"),
        ("zone", "u16 refills[NR_ZONE_MOODS][2] ____cacheline_aligned;",
         "zone->refills[ZONE_WARM][1]++", "refills of struct zone"),
        ("zone", "struct {\n		int refills;\n	} seen;", "zone->seen.refills++",
         "seen of struct zone"),
        ("node", "atomic_t refills __aligned(8);",
         "(atomic_inc(&zone->zone_pgdat->refills), atomic_read(&zone->zone_pgdat->refills) - 1)",
         "refills of struct pglist_data"),
        ("zone", "atomic64_t refills;", "(atomic64_inc_return(&zone->refills) - 1)",
         "refills of struct zone"),
        ("zonestat", "u8 refills, other;",
         "(__this_cpu_inc(zone->per_cpu_zonestats->refills),\n"
         "	     this_cpu_read(zone->per_cpu_zonestats->refills) - 1)",
         "refills of struct per_cpu_zonestat"),
    ],
)  # fmt: skip
def test_a_field_of_its_own_is_kept(changed, where, declared, counts, said):
    """Every other refill is of one batch: by hand 63 << 0, 63, 63 << 2, 63, 63 << 4."""
    uses = of_one_batch(f"{counts} & 1")
    opened = open_tree(tree_with(changed, uses, **{where: f"\n	{declared}"}))
    assert refills(opened) == EVERY_OTHER
    assert opened.new_fields == ()
    assert opened.caveats == [
        f"Begin at 0 and are kept once, whichever zone, CPU or run writes to them: {said}."
    ]


def test_one_that_only_counts_decides_nothing(changed):
    counts = (FREE, f"	zone->frees++;\n{FREE}")
    opened = open_tree(tree_with(changed, counts, zone="\n	unsigned long frees;"))
    assert differences(opened, "v7.2", 50_000)[0] == []
    assert PerCpuPages(release(opened), high=500).free() == []


@pytest.mark.parametrize(
    "counts",
    ["pcp->drained += left;", "pcp->drained = left;", "++pcp->drained;",
     "if (left > 1)\n		pcp->drained++;"],
)  # fmt: skip
def test_statistics_of_a_pageset_decide_nothing(changed, counts):
    """Those of a drain, too, which a run only foresees: such a tree could not be run."""
    drain = "	for (; left > 0; pindex ="
    opened = open_tree(tree_with(
        changed, (drain, f"	{counts}\n{drain}"), pcp="\n	unsigned long drained, shown[9];"
    ))  # fmt: skip
    assert opened.new_fields == ("drained", "shown")
    assert differences(opened, "v7.2", 50_000)[0] == []
    assert release(opened).hits == Hits.ALLOCS_AS_RULES | Hits.FREES_AS_RULES


@pytest.mark.parametrize(
    "counts", ["pcp->drained += pcp->drained < 9;", "if (pcp->drained++ > 9)\n		pindex = 0;"]
)
def test_what_a_pageset_counts_and_asks_for_is_no_statistics(changed, counts):
    drain = "	for (; left > 0; pindex ="
    opened = open_tree(
        tree_with(changed, (drain, f"	{counts}\n{drain}"), pcp="\n	unsigned long drained;")
    )
    with pytest.raises(InputError, match="does not fall into the engines' steps"):
        release(opened)


def test_how_a_structure_is_aligned_is_no_name_of_it(changed, tmp_path):
    """A patch of a field was said to change ____cacheline_aligned_in_smp."""
    plain = tree_with(changed)
    header = (plain / "include/linux/mmzone.h").read_text()
    more = header.replace("unsigned long cma_pages;", "unsigned long cma_pages, cma_most;")
    patch = tmp_path / "field.patch"
    patch.write_text("".join(difflib.unified_diff(
        header.splitlines(True), more.splitlines(True), "a/include/linux/mmzone.h",
        "b/include/linux/mmzone.h",
    )))  # fmt: skip
    opened = open_tree(plain, patch=patch)
    assert opened.passed_over == ()


def test_why_one_that_decides_is_not_run(changed):
    uses = of_one_batch("zone->refills++ & 1")
    with pytest.raises(InputError, match=r"has a part in it: refills of struct zone$"):
        release(open_tree(tree_with(changed, uses, zone="\n	int refills;")))


@pytest.mark.parametrize("field", ["watermark_boost", "_watermark[0]"])
def test_what_known_kernels_have_and_nothing_here(changed, field):
    uses = of_one_batch(f"zone->{field}")
    name = field.partition("[")[0]
    with pytest.raises(InputError, match=rf"line \d+: nr_pcp_alloc\(\) uses {name} of struct zone"):
        open_tree(tree_with(changed, uses))


def test_a_type_that_no_file_defines_is_named(changed):
    folder = tree_with(changed, of_one_batch("zone->refills.n"), zone="\n	refills_t refills;")
    said = r"include/linux/mmzone\.h: line \d+: uses refills_t, which is not in the files"
    with pytest.raises(InputError, match=said):
        open_tree(folder)


SETS = (
    "static void zone_pcp_set(struct zone *zone, struct per_cpu_pages *pcp)\n{{\n	{};\n}}\n\n{}"
)


@pytest.mark.parametrize(
    ("does", "refused"),
    [
        ("zone->mood = 2", True),
        ("WRITE_ONCE(zone->mood, pcp->batch)", True),
        ("zone->mood = 0", False),
        ("if (zone->mood == 2)\n		return", False),
        ("zone->mood++", True),
        ("--zone->mood", True),
        ("zone->mood |= 2", True),
        ("this_cpu_add(pcp->cap, 2)", True),
        ("pcp->cap = 2", True),
        ("pcp->cap = 0", False),
        ("per_cpu_ptr(zone->per_cpu_pageset, 0)->cap = 2", True),
        ("WRITE_ONCE(per_cpu_ptr(zone->per_cpu_pageset, 0)->cap, 2)", True),
        ("struct other *it = zone->it;\n\n	it->cap = it->mood = 2", False),
    ],
)
def test_what_gives_it_a_value_must_be_compiled(changed, does, refused):
    """Wherever that stands, it would be missed: they begin at 0."""
    at = "static int nr_pcp_free("
    used = of_one_batch("zone->mood || pcp->cap")
    folder = tree_with(changed, used, zone="\n	int mood;", pcp="\n	u8 cap;")
    (folder / "mm/pcp_init.c").write_text(SETS.format(does, at.partition("static int")[0]))
    if refused:
        field = "mood" if "mood" in does else "cap"
        with pytest.raises(InputError, match=rf"mm/pcp_init.c: line 3: {field} gets a value where"):
            open_tree(folder)
    else:
        open_tree(folder)


def test_names_of_members():
    struct = """struct it {
	int a, b[2], *c;
	int (*call)(int a, int b);
#if X || \\
    Y
	unsigned int bit : 3, flag : 1;
#endif
	union { u16 raw; struct { u8 low, high; }; };
	struct { int inner; } named[2] __aligned(8);
	struct other __rcu *pointer ____cacheline_aligned;
};"""
    assert [names for names, _, _ in members(struct)] == [
        ["a", "b", "c"], ["call"], ["bit", "flag"], ["raw", "low", "high"], ["named"], ["pointer"]
    ]  # fmt: skip
    left = cut(struct, {"flag"}, "int first;")
    assert left.count("\n") == struct.count("\n")
    assert " ".join(left.split()) == (
        "struct it { int first; #if X || \\ Y unsigned int bit : 3, flag : 1; #endif };"
    )
    assert " ".join(cut(struct, {"named"}, "").split()) == (
        "struct it { struct { int inner; } named[2] __aligned(8); };"
    )

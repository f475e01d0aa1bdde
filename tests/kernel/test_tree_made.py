"""What macros make in a kernel tree, and words of the kernel's own C that it is written with."""

# SPDX-License-Identifier: GPL-2.0-only

import pytest

from helpers.trees import HEADER
from pcpmodel.kernel.tree import open_tree
from pcpmodel.kernel.tree_pages import TreePages
from pcpmodel.kernel.tree_source import Source

FREE = "static int nr_pcp_free("
DRAINS = "	return clamp_t(int, pcp->free_count"
TWO = "static int two(int batch)\n{\n	return batch << 1;\n}\n"


def drains(changed, before, does, **files):
    """Pages of the first drains of a list of at most 500 pages, batch 63, that is freed to."""
    header = HEADER % {"thp": 2, "more": "\n	int seen; atomic_t mood;"}
    opened = open_tree(changed(
        (FREE, f"{before}\n\n{FREE}"), (DRAINS, f"{does}\n{DRAINS}"),
        include__linux__mmzone_h=header, **files,
    ))  # fmt: skip
    pages = TreePages(opened, batch=63, high=500)
    return opened, [sum(holds) for holds in (pages.free() for _ in range(1200)) if holds][:4]


@pytest.mark.parametrize(
    ("before", "does"),
    [
        ("#define PCP_GET(f) \\\nstatic inline int pcp_get_##f(struct per_cpu_pages *pcp) \\\n"
         "{ \\\n	return READ_ONCE(pcp->f); \\\n}\nPCP_GET(batch)\nPCP_GET(high_min)",
         "	return min(pcp_get_batch(pcp) * 2, pcp_get_high_min(pcp));"),
        (f"{TWO}DEFINE_STATIC_CALL(pcp_most, two);", "	return static_call(pcp_most)(batch);"),
        ("static DEFINE_SPINLOCK(tuned);",
         "	spin_lock(&tuned);\n	batch *= 2;\n	spin_unlock(&tuned);\n	return batch;"),
        ("static DEFINE_RAW_SPINLOCK(tuned);",
         "	scoped_guard(raw_spinlock_irqsave, &tuned)\n		return 2 * batch;"),
        ("struct tuned { local_lock_t lock; };\nstatic DEFINE_PER_CPU(struct tuned, tuned) = {\n"
         "	.lock = INIT_LOCAL_LOCK(lock),\n};",
         "	guard(local_lock)(&tuned.lock);\n	return 2 * batch;"),
        # What a guard does where its block ends is done: once there, seen is 2.
        ("DEFINE_GUARD(seen, struct per_cpu_pages *, _T->seen = 1, _T->seen++)",
         "	scoped_guard(seen, pcp)\n		batch *= pcp->seen;\n	return batch * pcp->seen;"),
        ("DEFINE_LOCK_GUARD_1(seen, struct per_cpu_pages, _T->lock->seen = 2, (void)0)",
         "	guard(seen)(pcp);\n	return batch * pcp->seen;"),
        ("DEFINE_CLASS(twice, int, (void)0, 2 * n, int n)",
         "	CLASS(twice, most)(batch);\n	return most;"),
        ("DEFINE_FREE(seen, struct per_cpu_pages *, if (_T) _T->seen = 2)",
         "	{\n		struct per_cpu_pages *it __free(seen) = pcp;\n	}\n"
         "	return batch * pcp->seen;"),
    ],
)  # fmt: skip
def test_what_macros_make(changed, before, does):
    """Two batches each, by hand."""
    assert drains(changed, before, does)[1] == [126] * 4


@pytest.mark.parametrize(
    ("does", "pages"),
    [
        ("return atomic_inc_return(&pcp->mood) & 1 ? 63 : 126;", [63, 126, 63, 126]),
        ("return atomic_fetch_add(2, &pcp->mood) ? 126 : 63;", [63, 126, 126, 126]),
        ("return cmpxchg(&pcp->seen, 0, 1) ? 126 : 63;", [63, 126, 126, 126]),
        ("return xchg(&pcp->seen, 126) ?: 63;", [63, 126, 126, 126]),
        ("return roundup(batch, 50) + round_down(batch, 2) + rounddown(batch, 50);", [212] * 4),
        ("return mult_frac(batch, 3, 2) + DIV_ROUND_CLOSEST(7, 2) + div_u64(9, 2);", [102] * 4),
        ("smp_mb();\n	cpu_relax();\n	might_sleep();\n	smp_store_release(&pcp->seen, 63);\n"
         "	return smp_load_acquire(&pcp->seen);", [63] * 4),
        ("return abs(-batch) + abs_diff(3, 5) + order_base_2(9);", [69] * 4),
        ("return check_add_overflow(batch, batch, &batch) ? 1 : batch;", [126] * 4),
        ("if (WARN_ONCE(batch < 0, \"%d\", batch))\n		pr_warn_ratelimited(\"it\\n\");\n"
         "	return 2 * batch;", [126] * 4),
    ],
)  # fmt: skip
def test_words_of_the_kernel_s_own(changed, does, pages):
    assert drains(changed, "", f"	{does}")[1] == pages


def test_a_tracepoint_of_fewer_arguments(changed):
    """Up to v5.18 mm_page_alloc_zone_locked has three; Android's refills call it themselves."""
    counts = "	return clamp_t(int, pcp->free_count, batch"
    calls = (
        f"	trace_mm_page_alloc_zone_locked((struct page *)NULL, 0, MIGRATE_MOVABLE);\n{counts}"
    )
    assert open_tree(changed((counts, calls))).tracepoints == ()


def test_a_header_that_was_missed_gives_no_more(changed):
    """It defines a word of the kernel's own, too, which page_alloc.c may see otherwise."""
    header = f"#define min(a, b) 1\nstatic inline {TWO.removeprefix('static ')}"
    does = "	return min(two(batch), 500);"
    assert drains(changed, "", does, include__linux__pcp_h=header)[1] == [126] * 4


def test_what_is_made_is_found_by_name():
    source = Source("mm/it.c", b"""
static DEFINE_PER_CPU(struct tuned, tuned) = {
	.scale = 1,
};
DECLARE_PER_CPU_READ_MOSTLY(int, other);
DEFINE_STATIC_KEY_MAYBE(CONFIG_X, maybe);
#define PAIR(a, ...) int a##_low; static int a##_high(int x, __VA_ARGS__) { return x; }
PAIR(pair, int y)
EXPORT_SYMBOL(nothing);
module_param(other, uint, 0644);
""")  # fmt: skip
    made = {n: i for n, items in source.items.items() for i in items if i.kind != "macro"}
    assert {n: (i.kind, i.line, i.declares) for n, i in made.items()} == {
        "tuned": ("variable", 2, False),
        "other": ("variable", 5, True),
        "maybe": ("variable", 6, False),
        "pair_low": ("made", 8, False),
        "pair_high": ("made", 8, False),
    }

"""What functions of a kernel tree use beside their arguments: variables, structures, CPUs."""

# SPDX-License-Identifier: GPL-2.0-only

import re
import shutil

import pytest

from helpers.trees import HEADER
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.tree import EXCERPT, open_tree
from pcpmodel.study.tree import tree

CAP = "min(pcp->count, batch << CONFIG_PCP_BATCH_SCALE_MAX)"
FREE = "static int nr_pcp_free("
FOUR = "static int four(int batch)\n{\n	return batch << 2;\n}\n\n"
STILL = (
    "Always of a task on CPU and node 0 where nobody waits, of a normal zone, of a page 0 whose "
    "page block is of its own type, and of requests and zones without flags of the tree's own"
)
AS_DEFINED = "Variables are as they are defined: cap."
ONCE = "Variables are kept once, whichever CPU or run writes to them: seen."


def with_cap(changed, declared, used, **files):
    return changed(
        (FREE, f"{declared}\n\n{FREE}"), (CAP, f"min(pcp->count, {used})"), **files
    )  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "used", "said"),
    [
        ("static int __maybe_unused cap __ro_after_init = 2;", "batch << cap", [AS_DEFINED]),
        ("static unsigned int __read_mostly cap = 2;\ncore_param(cap, cap, uint, 0644);",
         "batch << READ_ONCE(cap)", [AS_DEFINED]),
        ("static const int cap = 2;", "batch << cap", []),
        ("static const struct tuned {\n	int cap, other;\n} tuned = { .cap = 2 };",
         "batch << tuned.cap", []),
        (f"{FOUR}static int (*const capped)(int batch) = four;", "capped(batch)", []),
        (f"{FOUR}struct ops {{ int (*cap)(int); }};\nstatic const struct ops ops = {{ four }};",
         "ops.cap(batch)", []),
        ("static DEFINE_PER_CPU_READ_MOSTLY(int, cap) = 2;", "batch << this_cpu_read(cap)",
         [AS_DEFINED]),
        ("static atomic_t cap = ATOMIC_INIT(2);", "batch << atomic_read(&cap)", [AS_DEFINED]),
    ],
)  # fmt: skip
def test_variables_are_as_they_are_defined(changed, declared, used, said):
    answer = tree(with_cap(changed, declared, used)).compare("v7.2", operations=100_000)
    assert [d["function"] for d in answer.facts["differences"]] == ["nr_pcp_free"]
    assert answer.facts["notes"] == said


def test_one_of_another_file(changed):
    files = {"mm__internal_h": "extern int cap;\n"}
    folder = with_cap(changed, "", "batch << cap", **files)
    with pytest.raises(InputError, match=r"mm/page_alloc\.c: line \d+: cap is used and not def"):
        open_tree(folder)
    (folder / "mm/mm_init.c").write_text("int cap __ro_after_init = 2;\n")
    assert open_tree(folder).caveats == [AS_DEFINED]


@pytest.mark.parametrize(
    ("declared", "counts"),
    [
        ("static DEFINE_PER_CPU(unsigned long, seen);", "__this_cpu_inc(seen);"),
        ("static struct { int drains; } seen;", "seen.drains++;"),
        ("static atomic_long_t seen = ATOMIC_LONG_INIT(5);", "atomic_long_inc(&seen);"),
        ("", "static int seen;\n\n	seen++;"),
    ],
)  # fmt: skip
def test_what_is_written_is_said(changed, declared, counts):
    """Also by runs; what only counts decides nothing."""
    begin = "	if (free_high)\n		return min"
    folder = changed((FREE, f"{declared}\n\n{FREE}"), (begin, f"	{counts}\n{begin}"))
    opened = tree(folder)
    answer = opened.compare("v7.2", operations=50_000)
    assert answer.facts["differences"] == []
    assert answer.facts["notes"] == [ONCE]
    assert any(ONCE in note for note in release(opened).notes)
    assert opened.with_batch_scale_max(3).caveats == [ONCE]


def test_without_nm_nobody_knows_them(changed, monkeypatch):
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda n: None if n == "nm" else which(n))
    from pcpmodel.kernel.tree_outside import Outside

    opened = open_tree(with_cap(changed, "static int seen;", "seen++"))
    assert opened.outside == ("seen",)  # of another process
    with pytest.raises(InputError, match="nm is not installed"):
        Outside(opened.library)


TEXT = (EXCERPT / "mm/page_alloc.c").read_text()
EXTENDED = (
    "struct per_cpu_pages_ext {\n	struct per_cpu_pages pcp;\n	struct list_head more[4];\n};\n"
)


def test_an_extended_pageset_is_refused(changed):
    """As Android's kernels have had it."""
    drains = "void drain_zone_pages(struct zone *zone, struct per_cpu_pages"
    header = HEADER % {"thp": 2, "more": ""} + EXTENDED
    folder = changed((f"{drains} *pcp)", f"{drains}_ext *pcp)"), include__linux__mmzone_h=header)
    said = (r"mm/page_alloc\.c: line \d+: drain_zone_pages\(\) has a parameter "
            r"struct per_cpu_pages_ext \* pcp, of which nothing is known here")  # fmt: skip
    with pytest.raises(InputError, match=said):
        open_tree(folder)


AROUND = """
struct per_cpu_pages_ext {
	spinlock_t lock;
	struct per_cpu_pages pcp;
};

static inline struct per_cpu_pages_ext __percpu *zone_pagesets(struct zone *zone)
{
	return (struct per_cpu_pages_ext __percpu *)zone->per_cpu_pageset;
}
"""


def test_what_is_around_a_pageset_is_refused(changed):
    """The struct around was taken for the one in it: "do not come to an end" was the answer."""
    header = HEADER % {"thp": 2, "more": ""} + AROUND
    taken = "per_cpu_ptr(zone->per_cpu_pageset, cpu)"
    folder = changed((taken, "&per_cpu_ptr(zone_pagesets(zone), cpu)->pcp"),
                     include__linux__mmzone_h=header)  # fmt: skip
    said = (
        r"mmzone\.h: line \d+: each CPU has a struct per_cpu_pages_ext, of which nothing is known"
    )
    with pytest.raises(InputError, match=said):
        open_tree(folder)


def test_another_size_of_zones_is_named(changed):
    halved = (
        "static inline unsigned long zone_managed_pages(struct zone *zone)\n{\n	return %s;\n}\n"
    )
    header = HEADER % {"thp": 2, "more": ""}
    folder = changed(include__linux__mmzone_h=header + halved % "zone->managed_pages.counter / 2")
    text = tree(folder).compare("v7.2", operations=1000).text
    assert "the text of no known release: zone_managed_pages." in text


def test_the_size_of_a_zone_is_a_field_up_to_v4_20(changed):
    by_field = re.sub(r"zone_managed_pages\((\w+)\)", r"\1->managed_pages", TEXT)
    assert by_field.count("->managed_pages") == 2
    found = tree(changed((TEXT, by_field))).compare("v7.2", operations=100_000)
    assert found.facts["differences"] == []


ALLOCATED = "	pcp->free_count >>= 1;\n"


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ("num_online_cpus() > 64", "num_online_cpus"),
        ("pcp->count < zone_managed_pages(zone) / 8", "zone_managed_pages"),
        ("pcp->count > low_wmark_pages(zone)", "low_wmark_pages"),
        ("zone_watermark_ok(zone, 0, high_wmark_pages(zone), 0, 0)", "zone_watermark_ok"),
        ("pcp->count < zone->pageset_high_max", "pageset_high_max"),
        ("pcp->count < zone->managed_pages / 8", "managed_pages"),
        ("zone_batchsize(zone) > 31", "zone_managed_pages"),
    ],
)
def test_how_large_zone_and_machine_are_decides_sizes_alone(changed, asked, what):
    """Nobody knows where a page is allocated or freed; all were 0 there."""
    folder = changed((ALLOCATED, f"	if ({asked})\n	{ALLOCATED}"))
    with pytest.raises(InputError, match=rf"line \d+: \w+\(\) asks for {what}, which is given"):
        open_tree(folder)


def test_cpus_of_other_masks_are_not_counted_as_the_node_s(changed):
    folder = changed(("cpumask_weight(cpumask_of_node(zone_to_nid(zone)))",
                      "cpumask_weight(cpu_online_mask)"))  # fmt: skip
    with pytest.raises(InputError, match=r"line \d+: zone_highsize\(\) counts CPUs of a mask"):
        open_tree(folder)


ZONE_OF_ITS_OWN = (HEADER % {"thp": 2, "more": ""}).replace(
    "ZONE_BELOW_HIGH }", "ZONE_BELOW_HIGH, ZONE_HOT }"
)


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ("smp_processor_id() & 1", "smp_processor_id"),
        ("test_bit(ZONE_HOT, &zone->flags)", "ZONE_HOT"),
        ("alloc_flags & 0x20", "0x20"),
        ("zone_idx(zone) < 2", "zone_idx"),
        ("page_to_nid(page) != zone_to_nid(zone)", "page_to_nid, zone_to_nid"),
        ("page_to_pfn(page) & 1", "page_to_pfn"),
        ("zone_idx(zone) != page_zonenum(page)", "zone_idx"),  # which known kernels ask for there
        ("is_migrate_cma(migratetype)", "is_migrate_cma"),
        ("spin_is_contended(&zone->lock)", "spin_is_contended"),
        ("in_interrupt() || current_is_kswapd()", "current_is_kswapd, in_interrupt"),
        ("cond_resched_lock(&zone->lock)", "cond_resched_lock"),
        ("!spin_trylock(&zone->lock)", "spin_trylock"),
        ("test_bit(ZONE_BELOW_HIGH, &zone->flags)", ""),
    ],
)  # fmt: skip
def test_what_is_always_the_same_is_said(changed, asked, what):
    folder = changed(
        (ALLOCATED, f"	if (!({asked}))\n	{ALLOCATED}"),
        include__linux__mmzone_h=ZONE_OF_ITS_OWN,
    )
    notes = tree(folder).compare("v7.2", operations=20_000).facts["notes"]
    assert notes == ([f"{STILL}: {what}."] if what else [])

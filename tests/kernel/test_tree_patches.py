"""Patches as developers post them, and what of a tree stands outside its functions."""

import ast
import base64
import difflib
import quopri
import re

import pytest

from helpers.trees import HEADER, TREES, edited, needs_trees
from pcpmodel.errors import InputError
from pcpmodel.kernel import tree_compare
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.tree import EXCERPT, open_tree
from pcpmodel.kernel.tree_compare import closest, decides_as, differences, sizes_differ
from pcpmodel.kernel.tree_pages import sizing
from pcpmodel.kernel.tree_rules import Hits, nearest
from pcpmodel.study.tree import tree

PAGE_ALLOC = "mm/page_alloc.c"
CAP = ("min(pcp->count, batch << CONFIG_PCP_BATCH_SCALE_MAX)", "min(pcp->count, batch << 2)")
KCONFIG = """\
config PCP_BATCH_SCALE_MAX
	int "Maximum scale factor"
	default {scale}
	range 0 6

config PCP_SMALL_DRAINS
	bool "Small drains"
	default y
	depends on {needs}
"""


def text_of(*pairs):
    text = (EXCERPT / PAGE_ALLOC).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def diff(name, before, after):
    """As git writes it."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(
        difflib.unified_diff(old, new, f"a/{name}" if before else "/dev/null", f"b/{name}")
    )


def capped(*more):
    return diff(PAGE_ALLOC, text_of(), text_of(CAP, *more))


def functions_of(answer):
    return {d["function"] for d in answer.facts["differences"]}


# Sizes of lists


@pytest.mark.parametrize(
    ("old", "new", "highs"),
    [
        ("batch * 4", "batch * 8", (12, 24)),
        ("low_wmark_pages(zone)", "high_wmark_pages(zone)", (14, 25)),
    ],
)
def test_another_high_is_no_equal(changed, old, new, highs):
    text = (EXCERPT / PAGE_ALLOC).read_text()
    begin = text.index("static int zone_highsize(")
    end = text.index("\n}\n", begin)
    body = text[begin:end]
    assert old in body
    opened = tree(changed((body, body.replace(old, new, 1))))
    sized = sizes_differ(opened, release("v7.2"))
    assert sized.function == "zone_highsize"
    assert (sized.ours["high_min"], sized.theirs["high_min"]) == highs
    answer = opened.compare("v7.2", operations=1000)
    assert answer.facts["equal_to"] == []
    assert "zone_highsize(): size the lists of a zone of " in answer.text
    assert decides_as(opened, 1000) == ([], 0)


def test_releases_size_as_they_size():
    """What no function of it sizes is sized as by the release."""
    opened = open_tree(EXCERPT)
    assert sizes_differ(opened, release("v7.2")) is None
    assert sizes_differ(opened, release("v5.10")).function in ("zone_batchsize", "zone_highsize")


def test_high_of_a_batch_of_0(changed):
    """Kernels that let zone_batchsize() return it make it 1 before they ask for high."""
    opened = open_tree(changed((" - 1 : 1;", " - 1 : 0;")))
    assert sizing(opened, 4096, 5, 4, 8) == (0, 4)


@needs_trees
def test_a_fraction_that_zone_highsize_finds_itself():
    """Up to v6.6 it takes no argument for it."""
    for version in ("6.1.192", "7.3.4"):
        assert sizing(open_tree(TREES / version), 1 << 24, 60_000, 4, 8, fraction=8) == (
            63,
            1 << 19,
        )


# Other lists


OWN_CMA = ("MIGRATE_RECLAIMABLE, ", "MIGRATE_RECLAIMABLE, MIGRATE_CMA, ")


@pytest.mark.parametrize(
    ("header", "pairs", "lists", "said"),
    [
        # Lists of their own for CMA, as Android's kernels have them.
        (OWN_CMA, (), 18, "numbers of lists: lists 14 under v7.2, 18 in the tree."),
        (("NR_PCP_THP 2", "NR_PCP_THP 0"), (), 12, "numbers of lists (blocks of order 9 are not "),
        (("", ""), (("return migratetype +", "return (int[]){1, 0, 2}[migratetype] +"),), 14,
         "list of a block of order 0, unmovable: pindex 0 under v7.2, 1 in the tree."),
    ],
)  # fmt: skip
def test_blocks_on_other_lists_are_compared(changed, header, pairs, lists, said):
    mmzone = (HEADER % {"thp": 2, "more": ""}).replace(*header) if header[0] else None
    more = {"include__linux__mmzone_h": mmzone} if mmzone else {}
    plain = tree(changed(*pairs, **more)).compare("v7.2", operations=200_000)
    assert said in plain.text
    capped = tree(changed(*pairs, CAP, **more)).compare("v7.2", operations=200_000)
    (d,) = (d for d in capped.facts["differences"] if d["function"] == "nr_pcp_free")
    if lists == 14:
        # Drains begin with another type of block.
        assert {"order_to_pindex", "free_pcppages_bulk"} <= functions_of(plain)
    else:
        assert functions_of(plain) == {"order_to_pindex"}
        assert d["theirs"]["pages"] < d["ours"]["pages"]
        assert plain.facts["operations"] == 200_000


def test_lists_beyond_those_of_a_release_stay_empty(changed):
    """A tree with lists of CMA runs: its other blocks go by the lists that correspond."""
    mmzone = (HEADER % {"thp": 2, "more": ""}).replace(*OWN_CMA)
    opened = tree(changed(include__linux__mmzone_h=mmzone))
    state = release(opened)
    assert state.rules.nr_pcp_lists == 14
    assert any("of its 18 lists those that v7.3 does not have stay empty" in n for n in state.notes)
    ours = PerCpuPages("v7.2", high_min=500, high_max=4000)
    theirs = PerCpuPages(state, high_min=500, high_max=4000)
    for step in range(4000):
        order = (0, 0, 1, 9, 3)[step * 7 % 5]
        if step // 700 % 2:
            assert ours.alloc(order, step % 3) == theirs.alloc(order, step % 3)
        else:
            assert ours.free(order, step % 3) == theirs.free(order, step % 3)
    assert ours.state() == theirs.state()
    assert opened.compare("v7.2", operations=50_000).facts["cannot_run"] == ""


@needs_trees
@pytest.mark.parametrize("version", ["5.10.262", "6.1.192"])
def test_a_limit_that_nothing_tunes_beside_one_that_is_tuned(version):
    """struct per_cpu_pages has no high_min: what its `high` is not is no difference."""
    opened = open_tree(TREES / version)
    found, _ = differences(opened, "v7.2", 100_000)
    assert {d.function for d in found} - {"order_to_pindex", "decay_pcp_high"} <= {
        *opened.functions
    }
    assert all("high" not in d.ours and d.ours for d in found)


def test_the_smallest_state_is_on_one_list(changed):
    """A cap that blocks of any list come to: no reader wants to add six of them up."""
    found, _ = differences(open_tree(changed(CAP)), "v7.2", 300_000)
    (d,) = (d for d in found if d.function == "nr_pcp_free")
    assert len(d.state["lists"]) == 1


# Functions that are named


@pytest.mark.parametrize(
    ("old", "new", "function", "quantity"),
    [
        ("int surplus, batch", "int surplus = pcp->free_count = 0, batch", "decay_pcp_high",
         "free_count"),
        ("pcp->free_count >>= 1;", "pcp->free_count >>= 1;\n	pcp->flags = 0;", "rmqueue_pcplist",
         "flags"),
        ("	int some = ", "	int some = pcp->alloc_factor = 0;\n\n	some = ", "drain_zone_pages",
         "alloc_factor"),
        ("	while (pcp->count)\n", "	pcp->high = pcp->high_min;\n	while (pcp->count)\n",
         "drain_pages_zone", "high"),
    ],
)  # fmt: skip
def test_whatever_field_an_operation_changes(changed, old, new, function, quantity):
    """Of no operation a release changes all."""
    found, _ = differences(open_tree(changed((old, new))), "v7.2", 500_000)
    (d,) = found
    assert (d.function, [*d.ours]) == (function, [quantity])


@needs_trees
@pytest.mark.parametrize(
    ("old", "new", "function"),
    [
        (r"(for \(i = 0; i < )count;", r"\1min(count, 64UL);", "rmqueue_bulk"),
        (r"(count = min\(pcp->count, )count\);", r"\1min(count, 32));", "free_pcppages_bulk"),
        (r"pindex = pindex - 1;", "pindex = 0;", "free_pcppages_bulk"),
        (r"(max_nr_free = )high - batch;", r"\1min(high - batch, batch << 2);", "nr_pcp_free"),
    ],
)
def test_the_function_that_was_changed_is_named(tmp_path, old, new, function):
    """Not the one that asks it, whose text is a release's."""
    mine = tree(edited(tmp_path / "tree", ((old, new),), base=TREES / "7.3.4"))
    answer = mine.compare("v7.3", operations=500_000)
    assert functions_of(answer) == {function}
    assert "count_min" not in answer.text


def test_when_the_worker_comes_back_and_remote_lists_are_drained(changed):
    """What decay_pcp_high() returns, and a field that vmstat reads."""
    (d,) = differences(
        open_tree(changed(("	return again;", "	return false;"))), "v7.2", 100_000
    )[0]
    assert (d.function, d.ours, d.theirs) == ("decay_pcp_high", {"returned": 1}, {"returned": 0})
    fields = HEADER % {"thp": 2, "more": "\n	u8 expire;"}
    at = "	pcp->alloc_factor /= 2;\n"
    folder = changed((at, f"{at}	pcp->expire = 3;\n"), include__linux__mmzone_h=fields)
    (d,) = differences(open_tree(folder), "v7.2", 100_000)[0]
    assert (d.function, d.theirs) == ("free_frozen_page_commit", {"expire": 3})


# What a patch changes and nobody compiles


def test_what_a_patch_changes_elsewhere_is_said(tmp_path):
    beside = "static bool boost_watermark(struct zone *zone)\n{\n	return false;\n}\n\n"
    at = "static int nr_pcp_free("
    base = tmp_path / "base"
    (base / "mm").mkdir(parents=True)
    (base / PAGE_ALLOC).write_text(text_of((at, beside + at)))
    patch = tmp_path / "it.patch"
    patch.write_text(
        diff(
            PAGE_ALLOC, text_of((at, beside + at)),
            text_of((at, beside.replace("false", "true") + at)),
        )
    )  # fmt: skip
    opened = tree(base, patch=patch)
    assert opened.passed_over == ("boost_watermark",)
    lines = opened.compare("v7.2", operations=1000).text.splitlines()
    assert "decides as v7.2" in lines[0]
    assert lines[1].startswith("The patch changes what is not compiled")
    assert "changes what is not compiled" in " ".join(release(opened).notes)
    assert opened.caveats == opened.compare("v7.2", operations=1000).facts["notes"]
    patch.write_text(capped())
    assert open_tree(EXCERPT, patch=patch).passed_over == ()


# Options


@pytest.mark.parametrize(
    ("needs", "drains"),
    [("NUMA && SMP", True), ("NUMA && X", False), ("NUMA || X", True), ("SMP && !X", True)],
)
def test_defaults_of_the_trees_own_options(changed, needs, drains):
    small = "#ifdef CONFIG_PCP_SMALL_DRAINS\n	return 1;\n#endif\n	return clamp_t"
    folder = changed(("	return clamp_t", small))
    (folder / "mm/Kconfig").write_text(KCONFIG.format(scale=3, needs=needs))
    opened = tree(folder)
    assert opened.batch_scale_max == 3
    assert ("PCP_SMALL_DRAINS" in opened.options) == drains
    text = opened.compare("v7.2", operations=1000).text
    assert "CONFIG_PCP_BATCH_SCALE_MAX is 3" in text
    assert ("Off, as nothing sets it (--config does): CONFIG_PCP_SMALL_DRAINS." in text) != drains
    assert open_tree(folder, batch_scale_max=4).batch_scale_max == 4
    config = folder / "config"
    config.write_text("CONFIG_NUMA=y\nCONFIG_SMP=y\n# CONFIG_PCP_SMALL_DRAINS is not set\n")
    assert "PCP_SMALL_DRAINS" not in open_tree(folder, config=config).options
    assert open_tree(folder, config=config).batch_scale_max == 3


CHOICE = """\
choice
	prompt "What drains give back"
	default PCP_DRAIN_BATCH if SMP

config PCP_DRAIN_ALL
	bool "All"
	help
\t  if unsure, the other
\t  config is none

config PCP_DRAIN_BATCH
	bool "A batch"
endchoice

if !SMP
config PCP_ONE_CPU
	def_bool y
endif

config PCP_SCALE
	int "Scale"
	default 1 if NUMA && !(X || PREEMPT_RT)
	default 5
"""


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("NUMA=y\nCONFIG_SMP=y", {"PCP_DRAIN_BATCH": "1", "PCP_SCALE": "1"}),
        ("NUMA=y\nCONFIG_X=y", {"PCP_DRAIN_ALL": "1", "PCP_ONE_CPU": "1", "PCP_SCALE": "5"}),
        ("SMP=y\nCONFIG_NUMA=y\nCONFIG_PCP_DRAIN_ALL=y",
         {"PCP_DRAIN_ALL": "1", "PCP_SCALE": "1"}),
        ("NUMA=y\nCONFIG_SMP=y\n# CONFIG_PCP_DRAIN_BATCH is not set", {"PCP_SCALE": "1"}),
    ],
)  # fmt: skip
def test_defaults_that_depend_on_options(changed, config, found):
    """As Kconfig decides them: choices, blocks, conditions of each default."""
    names = ("PCP_DRAIN_ALL", "PCP_DRAIN_BATCH", "PCP_ONE_CPU", "PCP_SCALE")
    asks = " || ".join(f"IS_ENABLED(CONFIG_{n})" for n in names)
    folder = changed(
        ("	return clamp_t", f"	if ({asks})\n		return 1;\n	return clamp_t")
    )
    (folder / "mm/Kconfig").write_text(CHOICE)
    at = folder / "config"
    at.write_text(f"CONFIG_{config}\n")
    options = open_tree(folder, config=at).options
    assert {n: options[n] for n in names if n in options} == found


def test_a_patch_of_a_default(tmp_path, changed):
    folder = changed()
    (folder / "mm/Kconfig").write_text(KCONFIG.format(scale=5, needs="NUMA"))
    assert open_tree(folder).by_default == ()
    patch = tmp_path / "it.patch"
    patch.write_text(diff("mm/Kconfig", *(KCONFIG.format(scale=n, needs="NUMA") for n in (5, 2))))
    opened = open_tree(folder, patch=patch)
    assert (opened.batch_scale_max, opened.by_default) == (2, ("PCP_BATCH_SCALE_MAX",))
    assert opened.unread == ()


SCALES = """\
config PCP_SCALE
	int
	default 2

config PCP_SMALL
	bool

config PCP_LARGE
	bool "Large"
	default y
	select PCP_SMALL if SMP

comment "nothing is asked"
	depends on NEVER

config PCP_BATCH_SCALE_MAX
	int "Maximum scale factor"
	{default}
	default 5
	range {range}
"""


@pytest.mark.parametrize(
    ("default", "allowed", "scale", "asked"),
    [
        ("default 4 if X86_64", "0 6", 4, ""),
        ("default 4 if ARM64 && X86_64 && NEVER = y", "0 6", 5, "by ARM64, NEVER"),
        ("default 4 if MEMCG", "0 6", 5, "by MEMCG"),
        ("default 4 if MEMCG && !SMP", "0 6", 5, ""),
        ("default 4 if MEMCG || SMP", "0 6", 4, ""),
        ("default 4 if NR_CPUS >= 64", "0 6", 5, "by NR_CPUS"),
        ("default 4 if 1 < PCP_SCALE", "0 6", 4, ""),
        ("default PCP_SCALE", "0 6", 2, ""),
        ("default OTHER_SCALE", "0 6", 5, "by OTHER_SCALE, PCP_BATCH_SCALE_MAX"),
        ("default 4 if PCP_SMALL", "0 6", 4, ""),
        ("", "0 4", 4, ""),
        ("default 9", "0 6", 6, ""),
        ("default 1", "PCP_SCALE 6", 2, ""),
        ("default 1", "3 6 if !SMP\n	range 2 6", 2, ""),
    ],
)
def test_a_scale_of_the_trees_own(changed, default, allowed, scale, asked):
    """As Kconfig decides it, or said to be decided without what it asks for."""
    folder = changed()
    (folder / "mm/Kconfig").write_text(SCALES.format(default=default, range=allowed))
    opened = open_tree(folder)
    assert opened.batch_scale_max == scale
    said = [f"CONFIG_PCP_BATCH_SCALE_MAX {asked}"] if asked else []
    assert [*opened.undecided] == said
    assert any("others were off that nobody gave" in c for c in opened.caveats) == bool(asked)


def test_a_config_decides_what_a_default_asks_for(changed):
    folder = changed()
    config = folder / "config"
    for default, option, scale in (
        ("default 4 if NR_CPUS >= 64", "NR_CPUS=64", 4),
        ("default 4 if NR_CPUS >= 64", "NR_CPUS=8", 5),
        ("default 4 if MEMCG", "SMP=y", 5),
    ):
        (folder / "mm/Kconfig").write_text(SCALES.format(default=default, range="0 6"))
        config.write_text(f"CONFIG_NUMA=y\nCONFIG_{option}\n")
        opened = open_tree(folder, config=config)
        assert (opened.batch_scale_max, opened.undecided) == (scale, ())


def test_a_kernel_without_nodes_is_refused_by_its_option(tmp_path):
    config = tmp_path / "config"
    config.write_text("CONFIG_SMP=y\n# CONFIG_NUMA is not set\nCONFIG_PCP_BATCH_SCALE_MAX=5\n")
    with pytest.raises(InputError, match=r"config: CONFIG_NUMA is not set; .* CONFIG_NUMA=y"):
        open_tree(EXCERPT, config=config)


def test_a_scale_out_of_range_is_refused(changed):
    folder = changed()
    config = folder / "config"
    config.write_text("CONFIG_NUMA=y\nCONFIG_SMP=y\nCONFIG_PCP_BATCH_SCALE_MAX=9\n")
    said = r"config: CONFIG_PCP_BATCH_SCALE_MAX=9 is outside 0\.\."
    with pytest.raises(InputError, match=rf"{said}6$"):
        open_tree(folder, config=config)
    (folder / "mm/Kconfig").write_text(SCALES.format(default="", range="0 4"))
    with pytest.raises(InputError, match=rf"{said}4, its range in mm/Kconfig"):
        open_tree(folder, config=config)
    with pytest.raises(InputError, match=r"SCALE_MAX=5 is outside 0\.\.4, its range"):
        open_tree(folder, batch_scale_max=5)


# Words of the kernel's own C


@pytest.mark.parametrize(
    ("before", "inside", "said"),
    [
        ("static int drain_cap __read_mostly = 2;", "batch << drain_cap", ""),
        ("static DEFINE_STATIC_KEY_TRUE(small_drains);",
         "static_branch_likely(&small_drains) ? batch << 2 : pcp->count",
         "Static keys are as they are defined: small_drains on."),
        ("DEFINE_STATIC_KEY_FALSE_RO(whole_drains);",
         "static_branch_unlikely(&whole_drains) ? pcp->count : batch << 2",
         "Static keys are as they are defined: whole_drains off."),
        ("", "({ trace_mm_pcp_drains(pcp,\n		batch_data[zone_of(pcp)].pad); batch << 2; })",
         "hooks of its own do nothing, as nobody is attached to them: trace_mm_pcp_drains."),
        ("", "trace_mm_pcp_drains_enabled() ? pcp->count : batch << 2", "trace_mm_pcp_drains_en"),
        ("static noinline_for_stack __must_check int\nmost(int batch)\n{\n	return batch << 2;\n}",
         "most(batch)", ""),
    ],
)  # fmt: skip
def test_what_a_kernel_file_has_beside_c(changed, before, inside, said):
    at = "static int nr_pcp_free("
    opened = tree(changed((at, f"{before}\n\n{at}"), (CAP[0], f"min(pcp->count, {inside})")))
    answer = opened.compare("v7.2", operations=100_000)
    assert functions_of(answer) == {"nr_pcp_free"}
    assert said in answer.text
    capped = tree(changed((CAP[0], CAP[1]))).compare("v7.2", operations=100_000)
    assert answer.facts["differences"] == capped.facts["differences"]


def test_room_that_a_vendor_keeps_is_none(changed):
    more = "\n	VENDOR_DATA(1);\n	KABI_RESERVE(2)"
    opened = tree(changed(include__linux__mmzone_h=HEADER % {"thp": 2, "more": more}))
    assert opened.new_fields == ()
    assert opened.compare("v7.2", operations=50_000).facts["equal_to"] == ["v7.2"]


# Functions and structures that are otherwise


@pytest.mark.parametrize("first", ["PCPF_PREV_FREE_HIGH_ORDER", "PCPF_FREE_HIGH_BATCH"])
def test_flags_of_a_pageset_may_be_an_enum(changed, tmp_path, first):
    """They went by their values then, not by their names, and were "not compiled"."""
    before = HEADER % {"thp": 2, "more": ""}
    pattern = r"#define (PCPF_\w+) BIT\(\d\)\n"
    names = sorted(re.findall(pattern, before), key=lambda name: name != first)
    flags = ", ".join(f"{name} = BIT({n})" for n, name in enumerate(names))
    after = re.sub(pattern, "", before) + f"enum pcp_flags {{ {flags} }};\n"
    patch = tmp_path / "enum.patch"
    patch.write_text(diff("include/linux/mmzone.h", before, after))
    opened = open_tree(changed(include__linux__mmzone_h=before), patch=patch)
    assert opened.passed_over == ()
    assert differences(opened, "v7.2", 200_000)[0] == []


def test_a_flag_of_its_own_is_no_difference_but_what_it_leads_to(changed):
    """PCPF_* that no release has: left out of what is compared, as fields of its own are."""
    mmzone = HEADER % {"thp": 2, "more": "\n#define PCPF_COLD BIT(2)"}
    opened = tree(changed(
        ("	pcp->free_count >>= 1;\n",
         "	pcp->free_count >>= 1;\n	pcp->flags &= ~PCPF_COLD;\n"),
        (CAP[0], f"pcp->flags & PCPF_COLD ? {CAP[1]} : {CAP[0]}"),
        ("static int nr_pcp_high(", "static void cold(struct per_cpu_pages *pcp)\n{\n"
         "	if (pcp->free_count > 4 * pcp->batch)\n		pcp->flags |= PCPF_COLD;\n}\n\n"
         "static int nr_pcp_high("),
        ("	pcp->alloc_factor /= 2;\n", "	pcp->alloc_factor /= 2;\n	cold(pcp);\n"),
        include__linux__mmzone_h=mmzone,
    ))  # fmt: skip
    assert functions_of(opened.compare("v7.2", operations=200_000)) == {"nr_pcp_free"}


def test_structures_inside_of_the_pageset(changed):
    """Fields of one with a name are its own, those of one without are the pageset's."""
    inside = (
        "\n	struct { int seen, batch; } stats;\n	union { u16 raw; struct { u8 a, b; }; };"
    )
    opened = open_tree(changed(include__linux__mmzone_h=HEADER % {"thp": 2, "more": inside}))
    assert opened.new_fields == ("stats", "raw", "a", "b")
    assert differences(opened, "v7.2", 50_000)[0] == []


def test_parameters_at_other_places(changed):
    """As patches add them in front (gfp_flags to rmqueue_bulk()), or change their order."""
    bulk = "struct zone *zone, int count, struct per_cpu_pages *pcp, int pindex"
    mine = changed(
        (bulk, "struct zone *zone, struct per_cpu_pages *pcp, int pindex, int count"),
        ("static void free_pcppages_bulk(", "static int free_pcppages_bulk("),
        ("	guard(spinlock_irqsave)(&zone->lock);\n	for (; left > 0; pindex",
         "	if (!left)\n		return 0;\n	spin_lock(&zone->lock);\n	for (; left > 0; pindex"),
        ("					FPI_NONE);\n		}\n	}\n}",
         "					FPI_NONE);\n		}\n	}\n	return count;\n}"),
        ("rmqueue_bulk(struct zone *zone,", "rmqueue_bulk(struct zone *zone, gfp_t gfp_flags,"),
        ("rmqueue_bulk(zone,", "rmqueue_bulk(zone, 0,"),
    )  # fmt: skip
    file = mine / PAGE_ALLOC
    file.write_text(
        re.sub(r"free_pcppages_bulk\(zone, (.*), pcp, (\w+)\);",
               r"free_pcppages_bulk(zone, pcp, \2, \1);", file.read_text())
    )  # fmt: skip
    opened = open_tree(mine)
    assert differences(opened, "v7.2", 100_000)[0] == []
    assert release(opened).hits == Hits.ALLOCS_AS_RULES | Hits.FREES_AS_RULES  # it runs, too


GATHERS = """
struct guards { local_lock_t lock; };
static DEFINE_PER_CPU(struct guards, guards) = {
	.lock = INIT_LOCAL_LOCK(lock),
};

static void free_pcppages_bulk(struct zone *zone, int count, struct per_cpu_pages *pcp, int pindex)
{
	int left = min(count, pcp->count);
	struct page *last, *after;
	LIST_HEAD(waiting);
	unsigned long flags;

	local_lock_irqsave(&guards.lock, flags);
	for (; left > 0; pindex = pindex + 1 < NR_PCP_LISTS ? pindex + 1 : 0) {
		struct list_head *from = &pcp->lists[pindex];
		int order = pindex_to_order(pindex);

		for (; left > 0 && !list_empty(from); left -= 1 << order) {
			last = list_last_entry(from, struct page, lru);
			list_del(&last->lru);
			pcp->count -= 1 << order;
			last->index = last->index << 8 | order;
			list_add_tail(&last->lru, &waiting);
		}
	}
	spin_lock(&zone->lock);
	list_for_each_entry_safe(last, after, &waiting, lru) {
		int order = last->index & 0xff;

		last->index >>= 8;
		__free_one_page(last, page_to_pfn(last), zone, order,
				get_pageblock_migratetype(last), FPI_NONE);
	}
	spin_unlock(&zone->lock);
	local_unlock_irqrestore(&guards.lock, flags);
}
"""


@pytest.mark.parametrize(
    "begins", ["LIST_HEAD(waiting);", "struct list_head waiting;\n\n	INIT_LIST_HEAD(&waiting);"]
)
def test_blocks_that_wait_for_the_lock_keep_their_orders(changed, begins):
    """As of v5.14 .. v5.17, whose bulk frees note the order in page->index."""
    text = (EXCERPT / PAGE_ALLOC).read_text()
    begin = text.index("/* Gives back until")
    end = text.index("static int rmqueue_bulk(")
    gathers = GATHERS.replace("LIST_HEAD(waiting);", begins)
    opened = open_tree(changed((text[begin:end], gathers)))
    assert differences(opened, "v7.2", 300_000)[0] == []


@needs_trees
def test_order_and_type_of_what_waits_are_asked_for_at_once(tmp_path):
    """v5.14 .. v5.17 ask get_pcppage_migratetype() for what they noted beside the type."""
    asks = GATHERS.replace(
        "		int order = last->index & 0xff;\n\n		last->index >>= 8;\n",
        "		int mt = get_pcppage_migratetype(last), order = mt & 0xff;\n\n",
    ).replace("get_pageblock_migratetype(last)", "mt >> 8")
    text = (TREES / "6.1.192" / PAGE_ALLOC).read_text()
    begin = text.index("static void free_pcppages_bulk(")
    old = text[begin : text.index("static void free_one_page(")]
    mine = edited(tmp_path / "mine", ((re.escape(old), asks),), base=TREES / "6.1.192")
    opened = open_tree(mine)
    assert differences(opened, "debian-6.1.192", 300_000)[0] == []


def test_the_nearest_release_has_as_many_lists(changed):
    """Texts count for those alone: whatever the rest is, drains go by them."""
    fifteen = (HEADER % {"thp": 2, "more": ""}).replace("LISTS + NR_PCP_THP", "LISTS + 3")
    at = "NR_LOWORDER_PCP_LISTS + (migratetype == MIGRATE_MOVABLE ? 1 : 0)"
    mine = changed((at, "NR_LOWORDER_PCP_LISTS + migratetype"), include__linux__mmzone_h=fifteen)
    assert nearest(open_tree(mine)) == "v5.17"
    assert nearest(open_tree(EXCERPT)) == "v7.3"


def test_of_releases_as_near_the_one_with_fewest_differences(changed, monkeypatch):
    opened = open_tree(changed(CAP))
    for names in (["v7.2", "v6.12"], ["v6.12", "v7.2"]):
        monkeypatch.setattr(tree_compare, "near", lambda _, names=names: names)
        assert closest(opened, 50_000).name == "v7.2"


@pytest.mark.parametrize(
    ("header", "pairs", "said"),
    [
        (("int count, high,", "int count[16], high,"), (),
         "count of struct per_cpu_pages is an array; a number can be taken"),
        (("u8 flags, alloc_factor;", "u8 flags : 4, mode : 4; u8 alloc_factor;"), (),
         "flags of struct per_cpu_pages is a bit-field; a number can be taken"),
        (("int count, high,", "atomic_t count; int high,"), (),
         "mm/page_alloc.c: line "),
        (("", ""), (("pcp->free_count >>= 1;", "pcp->free_count >>= zone->pageset_cap;"),),
         "rmqueue_pcplist() uses pageset_cap of struct zone, of which nothing is there but"),
        (("", ""), (("pcp->free_count >>= 1;", "list_del(pcp->count);"),),
         "rmqueue_pcplist() "),
    ],
)  # fmt: skip
def test_structures_that_no_release_has(changed, header, pairs, said):
    mmzone = (HEADER % {"thp": 2, "more": ""}).replace(*header)
    with pytest.raises(InputError) as error:
        open_tree(changed(*pairs, include__linux__mmzone_h=mmzone))
    assert said in str(error.value)
    assert ": line " in str(error.value)


# Forms of patches


def test_a_helper_in_another_file(tmp_path):
    """One that the patch adds, as one that it changes, is read."""
    helper = "static inline int most_at_once(int batch)\n{\n	return batch << 2;\n}\n"
    helper = f"#define POLICY_H\n{helper}"
    use = (CAP[0], "min(pcp->count, most_at_once(batch))")
    patch = tmp_path / "it.patch"
    change = diff(PAGE_ALLOC, text_of(), text_of(use))
    patch.write_text(diff("include/linux/pcp_policy.h", "", helper) + change)
    opened = tree(EXCERPT, patch=patch)
    assert opened.caveats == []
    assert "most_at_once" in opened.taken
    assert functions_of(opened.compare("v7.2", operations=100_000)) == {"nr_pcp_free"}
    base = tmp_path / "base"
    (base / "mm").mkdir(parents=True)
    (base / PAGE_ALLOC).write_text(text_of())
    (base / "mm/policy.h").write_text("/* nothing */\n")
    patch.write_text(diff("mm/policy.h", "/* nothing */\n", helper) + change)
    assert open_tree(base, patch=patch).digest


def test_lines_that_end_as_mail_ends_them(tmp_path):
    patch = tmp_path / "it.patch"
    patch.write_bytes(capped().replace("\n", "\r\n").encode())
    found = open_tree(EXCERPT, patch=patch)
    patch.write_bytes(capped().encode())
    assert found.digest == open_tree(EXCERPT, patch=patch).digest


@pytest.mark.parametrize("encoding", ["quoted-printable", "base64", "8bit"])
def test_a_series_as_mails(tmp_path, encoding):
    """git format-patch, or a thread of lore.kernel.org: several mails that change one file."""
    first, second = text_of(CAP), text_of(CAP, ("pcp->high >> 3", "pcp->high >> 2"))
    code = {
        "quoted-printable": quopri.encodestring,
        "base64": base64.encodebytes,
        "8bit": lambda b: b,
    }[encoding]
    mails = [
        b"From 0123abcd Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH %d/2] it\n"
        b"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        b"Content-Transfer-Encoding: %b\n\n%b\n"
        % (n, encoding.encode(), code(f"Why.\n---\n{change}-- \n2.47.0\n\n".encode()))
        for n, change in enumerate(
            (diff(PAGE_ALLOC, text_of(), first), diff(PAGE_ALLOC, first, second)), 1
        )
    ]
    patch = tmp_path / "series.mbox"
    patch.write_bytes(b"".join(mails))
    answer = tree(EXCERPT, patch=patch).compare("v7.2", operations=100_000)
    assert functions_of(answer) == {"nr_pcp_free", "decay_pcp_high"}
    patch.write_bytes(mails[0].partition(b"\n")[2])
    answer = tree(EXCERPT, patch=patch).compare("v7.2", operations=100_000)
    assert functions_of(answer) == {"nr_pcp_free"}


def test_a_patch_that_is_in_the_tree_already(tmp_path, changed):
    patch = tmp_path / "it.patch"
    patch.write_text(capped())
    folder = changed(CAP)
    with pytest.raises(InputError, match=r"it\.patch: is in .* already"):
        open_tree(folder, patch=patch)


def test_no_patch_and_one_of_other_lines(tmp_path):
    patch = tmp_path / "it.patch"
    patch.write_text("Subject: hello\n\n mm/page_alloc.c | 2 +-\n")
    with pytest.raises(InputError, match="is no patch: has no '--- FILE'"):
        open_tree(EXCERPT, patch=patch)
    patch.write_text(re.sub(r"(?m)^ (.*;)$", r" \1 /* */", capped()))
    with pytest.raises(InputError, match=r"mm/page_alloc.c:\d+ \(every line of context must be"):
        open_tree(EXCERPT, patch=patch)


SHORTER = ("pcp->high >> 3", "pcp->high >> 2")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"(?=@@ -)", "\n"),
        (r"(?=@@ -)", "[ as in v1 ]\n"),
        (r"(@@ -.*) @@", r"\1"),
        (r"@@ -(\d+),\d+ \+(\d+),\d+", r"@@ -\1,6 +\2,6"),
        (r"@@ -(\d+),\d+ \+(\d+),\d+", r"@@ -\1,18 +\2,18"),
    ],
)
def test_a_hunk_that_is_damaged_is_not_left_out(tmp_path, pattern, instead, which):
    """As git apply: a patch is applied whole or not at all."""
    begin, *hunks = re.split(r"(?m)^(?=@@ )", capped(SHORTER))
    hunks[which] = re.sub(pattern, instead, hunks[which], count=1)
    text = begin + "".join(hunks) + "-- \n2.47\n"
    patch = tmp_path / "it.patch"
    patch.write_text(text)
    with pytest.raises(InputError, match=r"to no hunk|as many lines as it says") as refused:
        open_tree(EXCERPT, patch=patch)
    row, line = re.search(r"it\.patch: line (\d+): ('.*?') ", str(refused.value)).groups()
    assert text.splitlines()[int(row) - 1].startswith(ast.literal_eval(line))


def test_what_stands_between_files_of_a_patch_is_no_hunk(tmp_path):
    """What git writes: the next file, a signature, the next mail, a file without a last newline."""
    patch = tmp_path / "it.patch"
    new = "--- /dev/null\n+++ b/mm/policy.txt\n@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\n"
    mail = "-- \n2.47\n\nFrom 0123 Mon Sep 17\n\n@@ -1 +1 @@ is quoted\n---\n a | 2 +-\n"
    patch.write_text(f"{capped()}diff --git a/mm/policy.txt b/mm/policy.txt\n{new}{mail}{new}")
    opened = open_tree(EXCERPT, patch=patch)
    assert opened.unread == ("mm/policy.txt",)
    patch.write_text(capped())
    assert opened.digest == open_tree(EXCERPT, patch=patch).digest


@pytest.mark.parametrize(
    ("prefix", "file"),
    [
        ("a/", "tools/include/linux/gfp.h"),
        ("", "tools/include/linux/gfp.h"),
        ("/linux/", "arch/x86/mm/internal.h"),
        ("a/src/linux/", "tools/include/linux/gfp.h"),
    ],
)
def test_files_go_by_their_whole_names(tmp_path, prefix, file):
    """One of the same ending is another file."""
    base = tmp_path / "base"
    for name, text in ((PAGE_ALLOC, text_of()), ("include/linux/gfp.h", ""), ("mm/internal.h", "")):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
    other = diff(file, "", "#define CAP 1\n").replace(f"b/{file}", prefix + file)
    patch = tmp_path / "it.patch"
    patch.write_text(other + capped().replace("a/mm", f"{prefix}mm").replace("b/mm", f"{prefix}mm"))
    opened = open_tree(base, patch=patch)
    assert opened.unread == (file,)
    gone = diff(file, "#define CAP 1\n", "").replace(f"a/{file}", prefix + file)
    patch.write_text(patch.read_text() + gone.replace(f"b/{file}", "/dev/null"))
    assert open_tree(base, patch=patch).unread == (file,)
    patch.write_text(capped())
    assert opened.digest == open_tree(base, patch=patch).digest


@pytest.mark.long
@needs_trees
def test_real_trees_have_no_options_of_their_own():
    for version in ("5.10.262", "6.1.192", "6.12.107", "7.2.13", "7.3.4"):
        opened = open_tree(TREES / version)
        assert (opened.by_default, opened.unset) == ((), ())
        assert (opened.tracepoints, opened.static_keys) == ((), {})

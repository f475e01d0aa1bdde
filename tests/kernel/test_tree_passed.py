"""What functions of a kernel tree ask of the buddy lists and give them; who is named; all sizes."""

# SPDX-License-Identifier: GPL-2.0-only

import difflib
import re

import pytest

from helpers.trees import TREES, edited, needs_trees
from pcpmodel.errors import InputError
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.tree import EXCERPT, open_tree
from pcpmodel.kernel.tree_compare import decides_as, differences, sizes_differ
from pcpmodel.kernel.tree_source import Source
from pcpmodel.study.tree import tree

PAGE_ALLOC = "mm/page_alloc.c"
ASKS = "struct page *page = __rmqueue(zone, order, migratetype, alloc_flags, &where);"
GIVES = "get_pfnblock_migratetype(last, pfn),\n					FPI_NONE);"


def asks(how):
    return (ASKS, f"struct page *page = {how};")


@pytest.mark.parametrize(
    ("pair", "what", "ours", "theirs"),
    [
        (asks("__rmqueue(zone, order + 1, migratetype, alloc_flags, &where)"),
         "order of __rmqueue()", 0, 1),
        (asks("__rmqueue(zone, order, MIGRATE_MOVABLE, alloc_flags, &where)"),
         "migratetype of __rmqueue()", None, "movable"),
        (asks("__rmqueue(zone, order, migratetype, 0, &where)"),
         "alloc_flags of __rmqueue()", 0x800, 0),
        (asks("__rmqueue(zone, order, migratetype, alloc_flags, NULL)"),
         "mode of __rmqueue()", 0, -1),
        ((ASKS, f"{ASKS}\n\n		where = RMQUEUE_NORMAL;"), "mode of __rmqueue()", 1, 0),
        (asks("__rmqueue_smallest(zone, order, migratetype)"),
         "what the buddy lists are asked by", "__rmqueue()", "__rmqueue_smallest()"),
        (("					   migratetype, alloc_flags)", "MIGRATE_UNMOVABLE, alloc_flags)"),
         "migratetype of __rmqueue()", None, "unmovable"),
        ((GIVES, "MIGRATE_UNMOVABLE, FPI_NONE);"),
         "migratetype of __free_one_page()", None, "unmovable"),
        ((GIVES, "get_pcppage_migratetype(last), FPI_NONE);"),
         "migratetype of __free_one_page()", None, None),
        ((GIVES, GIVES.replace("NONE", "TO_TAIL")), "fpi_flags of __free_one_page()", 0, 2),
    ],
)  # fmt: skip
@pytest.mark.long
def test_what_is_passed_to_the_buddy_lists(changed, pair, what, ours, theirs):
    opened = open_tree(changed(pair))
    found, _ = differences(opened, "v7.2", 100_000)
    (d,) = (d for d in found if what in d.ours)
    assert len(found) == 1
    assert d.function == ("rmqueue_bulk" if "rmqueue" in f"{d.ours}" else "free_pcppages_bulk")
    assert d.ours[what] != d.theirs[what]
    assert ours is None or d.ours[what] == ours
    assert theirs is None or d.theirs[what] == theirs
    assert decides_as(opened, 50_000)[0] == []
    # No difference to itself, nor to one that passes the same.
    other = release(
        open_tree(changed(pair, ("pcp->alloc_factor /= 2;", "pcp->alloc_factor >>= 1;")))
    )
    assert differences(opened, other, 50_000)[0] == []


@pytest.mark.parametrize(
    ("pair", "what", "due", "function"),
    [
        (("list_last_entry(", "list_first_entry("), "blocks leave a list at its", "tail",
         "free_pcppages_bulk"),
        (("page = list_first_entry(", "page = list_last_entry("), "blocks leave a list at its",
         "head", "rmqueue_pcplist"),
        (("list_add_tail(", "list_add("), "blocks come to a list at its", "tail", "rmqueue_bulk"),
        (("list_add(&page->pcp_list, &", "list_add_tail(&page->pcp_list, &"),
         "blocks come to a list at its", "head", "free_frozen_page_commit"),
    ],
)  # fmt: skip
def test_at_which_end_of_a_list(changed, pair, what, due, function):
    """Drained hot, taken cold: the counts are the same."""
    opened = open_tree(changed(pair))
    (d,) = differences(opened, "v7.2", 100_000)[0]
    assert (d.function, d.ours) == (function, {what: due})
    assert d.theirs == {what: {"head": "tail", "tail": "head"}[due]}
    assert release(opened).hits  # and it runs


def test_a_block_that_is_looked_at_is_not_taken_there(changed):
    look = "		page = list_first_entry(list, struct page, pcp_list);\n"
    last = f"{look.replace('first', 'last')}		(void)page;\n"
    opened = open_tree(changed((look, last + look)))
    assert differences(opened, "v7.2", 100_000)[0] == []


@needs_trees
@pytest.mark.parametrize(("version", "base"), [("5.10.262", "v5.10"), ("6.1.192", "v6.6")])
def test_older_kernels_gather_blocks_first(version, base):
    found, _ = differences(open_tree(TREES / version), base, 100_000)
    assert not any("a list at its" in what for d in found for what in d.ours)


def test_what_is_passed_does_not_hide_other_differences(changed):
    opened = open_tree(changed((ASKS, ASKS.replace("order,", "0,")), ("high >> 3", "high >> 2"),
                               ("pcp->free_count >>= 1;", "pcp->free_count /= 4;")))  # fmt: skip
    found, _ = differences(opened, "v7.2", 300_000)
    assert {"rmqueue_bulk", "rmqueue_pcplist", "decay_pcp_high"} <= {d.function for d in found}


@needs_trees
@pytest.mark.parametrize(
    ("version", "base", "type_"),
    [("5.10.262", "v5.10", "page_type"), ("6.1.192", "debian-6.1.192", "page_type"),
     ("6.12.107", "debian-6.12.107", "block_type"), ("7.3.4", "v7.3", "block_type")],
)  # fmt: skip
def test_releases_differ_in_what_they_pass(tmp_path, version, base, type_):
    """Their own functions are the same as themselves; another type is a difference."""
    assert differences(open_tree(TREES / version), base, 100_000)[0] == []
    if type_ == "page_type":  # unless page blocks are isolated meanwhile
        pair = (r"if \(unlikely\(isolated_pageblocks\)\)\n\s*mt =", "mt =")
    else:
        pair = (r"mt = get_pfnblock_migratetype\(page, pfn\);\n\n", "mt = MIGRATE_MOVABLE;\n\n")
    opened = open_tree(edited(tmp_path / "it", (pair,), base=TREES / version))
    (d,) = differences(opened, base, 100_000)[0]
    assert (d.function, [*d.ours]) == ("free_pcppages_bulk", ["migratetype of __free_one_page()"])


# Who is named


@needs_trees
@pytest.mark.parametrize(
    ("version", "base", "pairs", "function"),
    [
        ("5.10.262", "v5.10", ((r"pcp->count >= READ_ONCE\(pcp->high\)|pcp->count >= pcp->high",
                                "pcp->count > pcp->high"),), "free_unref_page_commit"),
        ("6.1.192", "debian-6.1.192", ((r"max\(batch >> order, 2\)", "max(batch >> order, 4)"),),
         "__rmqueue_pcplist"),
        ("7.3.4", "v7.3", ((r"pcp->high_min / 2", "pcp->high_min"),), "free_frozen_page_commit"),
        ("7.3.4", "v7.3", ((r"if \(pcp->count < high\)", "if (pcp->count <= high)"),),
         "free_frozen_page_commit"),
        ("7.3.4", "v7.3", ((r"return min\(batch << 2, pcp->high\)", "return batch << 3"),),
         "nr_pcp_high"),
        ("7.3.4", "v7.3", ((r"max_nr_free = high - batch;", "max_nr_free = 2 * batch;"),),
         "nr_pcp_free"),
    ],
)  # fmt: skip
def test_the_function_that_was_changed_is_named(tmp_path, version, base, pairs, function):
    opened = open_tree(edited(tmp_path / "it", pairs, base=TREES / version))
    assert {d.function for d in differences(opened, base, 200_000)[0]} == {function}


@needs_trees
@pytest.mark.parametrize("version", ["5.10.262", "6.12.107"])
def test_only_functions_that_are_there_are_named(version):
    opened = open_tree(TREES / version)
    found = {d.function for d in differences(opened, "v7.3", 100_000)[0]}
    assert found - {"order_to_pindex", "decay_pcp_high"} <= {*opened.functions}


# Sizes


@pytest.mark.parametrize(
    ("old", "new", "function"),
    [
        ("rounddown_pow_of_two(batch + batch / 2)", "rounddown_pow_of_two(batch)",
         "zone_batchsize"),
        ("batch > 1 ?", "batch > 1 && is_power_of_2(batch) ?", "zone_batchsize"),
        ("(cpus ? cpus : num_online_cpus())", "(cpus ? min(cpus, 64) : num_online_cpus())",
         "zone_highsize"),
        ("(cpus ? cpus :", "(cpus > 1 ? cpus :", "zone_highsize"),
        ("zone_managed_pages(zone) / high_fraction", "zone_managed_pages(zone) / min(100, "
         "high_fraction)", "zone_highsize"),
        ("(zone_to_nid(zone))) + cpu_online;", "(zone_to_nid(zone)));", "zone_highsize"),
    ],
)  # fmt: skip
def test_sizes_of_odd_zones_and_many_cpus(changed, old, new, function):
    found = sizes_differ(open_tree(changed((old, new))), release("v7.2"))
    assert found.function == function
    assert "cpu_online" in found.state or "cpu_online;" not in old


@needs_trees
def test_a_batch_under_a_fraction(tmp_path):
    """Of v5.10, whose own function sets it and the limit."""
    assert sizes_differ(open_tree(TREES / "5.10.262"), release("v5.10")) is None
    pair = (r"batch = max\(1UL, high / 4\)", "batch = max(1UL, high / 8)")
    opened = open_tree(edited(tmp_path / "it", (pair,), base=TREES / "5.10.262"))
    found = sizes_differ(opened, release("v5.10"))
    assert found.function == "pageset_set_high_and_batch"
    assert (found.ours["batch"], found.state["percpu_pagelist_high_fraction"]) > (0, 7)


# What is said


@pytest.mark.parametrize(
    ("where", "said"),
    [("unlikely(alloc_flags & ALLOC_NOLOCK)", ()), ("order", ("spin_trylock_irqsave",))],
)  # fmt: skip
def test_a_lock_that_is_tried(changed, where, said):
    """For who may not wait since v6.15; what a patch does where it is held shows nowhere."""
    takes = "	spin_lock_irqsave(&zone->lock, irq);\n"
    tries = (
        f"	if ({where}) {{\n"
        f"		if (!spin_trylock_irqsave(&zone->lock, irq))\n			return 0;\n"
        f"	}} else {{\n	{takes}	}}\n"
    )
    opened = open_tree(changed((f"{takes}	while (got", f"{tries}	while (got")))
    assert opened.still == said
    assert differences(opened, "v7.2", 20_000)[0] == []


def test_the_type_of_a_page_block_is_that_of_what_is_freed(changed):
    """Not always the same one: a rule that goes by it is a difference, and is said to be one."""
    place = "	high = nr_pcp_high(pcp, zone, batch, free_high);\n"
    rule = "	if (get_pageblock_migratetype(page) == MIGRATE_RECLAIMABLE)\n		high >>= 1;\n"
    facts = tree(changed((place, place + rule))).compare("v7.2", operations=200_000).facts
    assert facts["differences"]
    assert "own: get_pageblock_migratetype." in facts["notes"][0]


def test_what_the_release_asks_for_too_is_not_said(changed):
    """free_pcppages_bulk() asks every kernel for the page block's type."""
    opened = open_tree(changed(("int left = min(count, pcp->count);",
                                "int left = min(pcp->count, count);")))  # fmt: skip
    assert opened.still == ()


def patch_of(folder, **files):
    """A patch of files of a tree: text before and after."""
    made = ""
    for name, (before, after) in files.items():
        file = name.replace("__", "/").replace("_h", ".h").replace("_c", ".c")
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(before)
        made += "".join(
            difflib.unified_diff(
                before.splitlines(True), after.splitlines(True), f"a/{file}", f"b/{file}"
            )
        )
    return made


def test_what_a_patch_leaves_in_others_is_not_said_to_be_changed(changed, tmp_path):
    """Files beside those that are read: a comment, and one name of several."""
    folder = changed()
    one = (
        "/* a word */\nint first(void)\n{\n	return 1;\n}\n\n"
        "int second(void)\n{\n	return 2;\n}\n"
    )
    patch = tmp_path / "some.patch"
    patch.write_text(patch_of(
        folder,
        mm__foo_c=(one, one.replace("a word", "words")),
        include__linux__foo_h=(one, one.replace("int second", "int third")),
    ))  # fmt: skip
    opened = open_tree(folder, patch=patch)
    assert opened.passed_over == ("third",)


# What cannot be taken


def test_errors_name_the_function_and_the_state(changed):
    with pytest.raises(
        InputError, match=r"rmqueue_pcplist\(\) asks for \d+ blocks.*where count \d"
    ):
        open_tree(changed(("max(high - pcp->count - base, base)", "min(high - pcp->count, base)"),
                          ("n = min(n, room);", "n = room;")))  # fmt: skip
    taken = "	if (!list_empty(list)) {\n		page ="
    with pytest.raises(
        InputError, match=r"in rmqueue_pcplist\(\) it takes a block of an empty list, where count"
    ):
        open_tree(changed((taken, "	{\n		page =")))


def test_patches_without_context_or_a_last_newline(tmp_path):
    text = (EXCERPT / PAGE_ALLOC).read_text()
    new = text.replace("pcp->high >> 3", "pcp->high >> 2")
    for n, words in ((0, "has hunks without a line of context"), (3, "")):
        made = "".join(
            difflib.unified_diff(
                text.splitlines(True), new.splitlines(True), f"a/{PAGE_ALLOC}", f"b/{PAGE_ALLOC}",
                n=n,
            )
        )  # fmt: skip
        patch = tmp_path / f"{n}.patch"
        patch.write_text(made.rstrip("\n"))
        if words:
            with pytest.raises(InputError, match=words):
                open_tree(EXCERPT, patch=patch)
        else:
            assert {d.function for d in differences(
                open_tree(EXCERPT, patch=patch), "v7.2", 50_000
            )[0]} == {"decay_pcp_high"}  # fmt: skip


def test_what_nobody_compiles_may_be_unbalanced(changed):
    left = "int left = min(count, pcp->count);\n"
    opened = open_tree(
        changed((left, f"{left}#if 0\n	if (count) {{\n#else\n	left += 0;\n#endif\n"))
    )
    assert differences(opened, "v7.2", 50_000)[0] == []
    text = "a\n#if 0\n{\n# ifdef B\n{\n# else\n{\n# endif\n#elif C\nb\n#endif\n"
    assert Source("x", text.encode()).text == re.sub(
        r"(?m)^(\{|# .*)$", "", text
    )  # fmt: skip
    with pytest.raises(InputError, match=r"tree\d+: mm/page_alloc\.c: line \d+: '\{' without"):
        open_tree(changed((left, f"{left}	if (left) {{\n")))

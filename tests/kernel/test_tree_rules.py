"""A kernel tree wherever a release is taken."""

import json
import os
import pickle
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

import pcpmodel as pm
from helpers.memory import busy
from helpers.paths import ROOT
from helpers.trees import HEADER, PATCHES, TREES, edited, needs_trees, patched
from pcpmodel.errors import InputError
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.tree import EXCERPT, open_tree
from pcpmodel.kernel.tree_compare import differences
from pcpmodel.kernel.tree_pages import TreePages, compare
from pcpmodel.kernel.tree_rules import Hits
from pcpmodel.kernel.zone import Zone
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.pilot import prepare
from pcpmodel.simulation.spec import make_spec
from pcpmodel.workload import Program, Task, Workload

#: What a patch that leaves the hits alone is found to do.
AS_RULES = Hits.ALLOCS_AS_RULES | Hits.FREES_AS_RULES

# Half of a drain in one hold, the rest by batches.
UNEVEN = tuple(
    f"free_pcppages_bulk(zone, {n}, pcp, pindex);\n		left -= {n};"
    for n in ("min(left, batch)", "max(left / 2, 1)")
)


@pytest.fixture(scope="module")
def excerpt():
    return open_tree(EXCERPT)


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """The excerpt with each of `PATCHES`, opened."""
    base = tmp_path_factory.mktemp("patched")
    return {name: open_tree(patched(name, base / name)) for name in PATCHES}


def worked(pages, seed=3, n=4000):
    """What every operation of a random mix answers, and the state after it."""
    rng = np.random.default_rng(seed)
    said = []
    for _ in range(n // 40):
        order = int(rng.choice([0, 0, 0, 1, 3, 9]))
        allocs = rng.random() < 0.5
        for _ in range(40):
            said.append(pages.alloc(order) if allocs else pages.free(order))
        dice = rng.random()
        if dice < 0.2:
            said.append(pages.decay())
        elif dice < 0.25:
            said.append(pages.drain_zone_pages())
        elif dice < 0.28:
            said.append(pages.drain_pages_zone())
        elif dice < 0.4:
            pages.below_high = rng.random() < 0.5
            pages.reclaim_active = rng.random() < 0.3
        state = pages.state()
        said.append({k: state[k] for k in ("count", "high", "lists", "flags")})
    return said


@pytest.mark.parametrize("name", PATCHES)
def test_steps_come_to_the_same_as_the_tree_s_operations(trees, name):
    ours = worked(PerCpuPages(trees[name], high_min=500, high_max=4000))
    assert ours == worked(TreePages(trees[name], high_min=500, high_max=4000))
    if name in ("cap", "threshold", "quarter"):  # what the others change is rarer
        assert ours != worked(PerCpuPages("v7.3", high_min=500, high_max=4000))


def test_the_excerpt_s_steps_come_to_the_same_as_its_operations(excerpt):
    ours = worked(PerCpuPages(excerpt, high_min=500, high_max=4000))
    assert ours == worked(TreePages(excerpt, high_min=500, high_max=4000))
    assert ours == worked(PerCpuPages("v7.3", high_min=500, high_max=4000))


def test_fifteen_lists_that_are_emptied_one_after_the_other(changed):
    """As of v5.18 and v5.19; those of v5.17, which has as many, take turns."""
    header = (HEADER % {"thp": 2, "more": ""}).replace("LISTS + NR_PCP_THP", "LISTS + 3")
    at = "NR_LOWORDER_PCP_LISTS + (migratetype == MIGRATE_MOVABLE ? 1 : 0)"
    mine = open_tree(
        changed((at, "NR_LOWORDER_PCP_LISTS + migratetype"), include__linux__mmzone_h=header)
    )
    assert release(mine).base == "v5.17+drain-by-list"
    assert release(mine).rules.nr_pcp_lists == 15
    ours = worked(PerCpuPages(mine, high_min=500, high_max=4000))
    assert ours == worked(TreePages(mine, high_min=500, high_max=4000))


def test_a_tree_is_named_by_its_folder_and_digest(excerpt):
    state = release(excerpt)
    assert state.name == f"excerpt#{excerpt.digest[:8]}"
    assert state.base == "v7.3"
    assert state.hits == AS_RULES
    assert release(state) is state
    assert release(excerpt) == state
    assert any(excerpt.digest in note for note in state.notes)


@pytest.mark.parametrize("folder", ["linux", "fix-2.6", "linux-6.12"])
def test_what_goes_by_the_version_is_the_nearest_release_s(tmp_path, folder):
    """A folder's name says no version: of any tree in linux/ the LRU's batches were v6.9's."""
    opened = {"v7.3": open_tree(edited(tmp_path / folder))}
    if TREES.exists():
        shutil.copytree(TREES / "6.1.192", tmp_path / "old" / folder)
        opened["debian-6.1.192"] = open_tree(tmp_path / "old" / folder)
    for name, tree in opened.items():
        state, known = release(tree), release(name)
        assert state.base == name
        for what in ("folio_batch", "swap_cluster_max", "pgd_allocation_order"):
            assert getattr(state, what) == getattr(known, what)


@needs_trees
def test_limit_refuses_a_tree_that_has_no_batch_scale_factor():
    """Of v5.10's functions it was: scale 6, of 4032 pages."""
    state = release(open_tree(TREES / "5.10.262"))
    assert not state.uses_batch_scale_max
    with pytest.raises(InputError, match="does not ask for CONFIG_PCP_BATCH_SCALE_MAX"):
        pm.limit("coffee-lake", release=state)
    assert release(open_tree(TREES / "6.1.192")).uses_batch_scale_max


# Each of the shortcuts is tried by itself.


@pytest.mark.parametrize("name", PATCHES)
def test_hits_go_by_the_rules_where_a_patch_leaves_them(trees, name):
    state = release(trees[name])
    more = {"field": Hits.ALLOCS_ADD, "refill-holds": Hits.REFILLS_IN_HOLDS}
    assert state.hits == AS_RULES | more.get(name, Hits.EACH)
    assert not any("asks the tree" in note for note in state.notes)


def test_fields_that_count_are_added_to(changed):
    # One counts frees, one allocations by their pages, one the other way round, one in the middle.
    tree = open_tree(changed(
        ("	pcp->free_count >>= 1;\n", "	pcp->free_count >>= 1;\n	pcp->pages += 1 << order;\n"
         "	pcp->left -= 3;\n	pcp->many[1]++;\n"),
        ("	pcp->alloc_factor /= 2;\n", "	pcp->alloc_factor /= 2;\n	pcp->frees++;\n"),
        ("return clamp_t(int, pcp->free_count, batch",
         "return clamp_t(int, pcp->frees + pcp->pages - pcp->left + pcp->many[1] & 255, batch"),
        include__linux__mmzone_h=HEADER % {
            "thp": 2, "more": "\n	u8 frees;\n	int pages;\n	short left;\n	u64 many[2];"},
    ))  # fmt: skip
    state = release(tree)
    assert state.hits == AS_RULES | Hits.ALLOCS_ADD | Hits.FREES_ADD
    assert compare(tree, state, 100_000, 11, rows=True)[1] == []
    assert simulated(tree) == simulated(tree, PerPage)
    leapt = replace(state, hits=Hits.ALLOCS_SKIP | Hits.FREES_SKIP)
    assert simulated(tree) == simulated(leapt)


def test_frees_are_leapt_over_where_they_change_otherwise(changed):
    state = release(open_tree(changed(("free_count += 1 << order;", "free_count += 2 << order;"))))
    assert state.hits == Hits.ALLOCS_AS_RULES | Hits.FREES_SKIP


def test_what_does_not_go_on_as_it_began_is_done_page_by_page(changed):
    # Every seventh allocation halves: two that change alike say nothing about the next.
    tree = open_tree(changed(
        ("	pcp->free_count >>= 1;\n",
         "	if (++pcp->seen %% 7 == 0)\n		pcp->free_count >>= 1;\n".replace("%%", "%")),
        include__linux__mmzone_h=HEADER % {"thp": 2, "more": "\n	unsigned int seen;"},
    ))  # fmt: skip
    state = release(tree)
    assert state.hits == Hits.FREES_AS_RULES
    assert any("every allocation asks the tree" in note for note in state.notes)
    assert simulated(tree) == simulated(tree, PerPage)


def test_leaps_come_to_the_same_as_steps(trees):
    tree = trees["field"]
    state = replace(release(tree), hits=Hits.ALLOCS_SKIP | Hits.FREES_SKIP)
    assert compare(tree, state, 100_000, 11, rows=True)[1] == []
    # It is noticed where they do not: the tree's allocations are not those of the release.
    wrong = replace(state, hits=Hits.ALLOCS_AS_RULES)
    assert compare(tree, wrong, 100_000, 11, rows=True)[1]


def test_patches_go_on_the_tree_itself(excerpt):
    state = release(excerpt)
    for change in (lambda: state.plus("free-coalesce"), lambda: state.without("auto-high")):
        with pytest.raises(InputError, match="patch the tree itself"):
            change()


def test_another_scale_is_compiled(excerpt):
    state = release(excerpt)
    assert state.with_batch_scale_max(5) is state
    with pytest.raises(InputError, match=r"batch_scale_max=7 is outside 0\.\.6"):
        state.with_batch_scale_max(7)
    third = state.with_batch_scale_max(3)
    assert third.digest == open_tree(EXCERPT, batch_scale_max=3).digest != state.digest
    work = [("alloc", 4000), ("free", 4000)]
    ladders = {
        r: pm.study.trajectory(r, work).events["pages"].tolist()
        for r in (state, third, release("v7.3"), release("v7.3").with_batch_scale_max(3))
    }
    five, three, known, known_three = ladders.values()
    assert (five, three) == (known, known_three)
    assert five != three


@pytest.mark.long
def test_another_scale_goes_through_simulate_sweep_and_limit(excerpt):
    runs = [simulated(r, batch_scale_max=k) for r in (excerpt, "v7.3") for k in (2, 5)]
    assert runs[:2] == runs[2:]
    assert runs[0] != runs[1]
    grid = {
        "machine": "sapphire-rapids", "workload": pm.workload.page_fault1(4, pages=2000),
        "cpus": 4, "memory_gib": 4.0, "seconds": 0.02, "warmup_s": 0.0,
    }  # fmt: skip
    own = pm.sweep(release=open_tree(EXCERPT, batch_scale_max=2), seed=[1], **grid)
    swept, known = (pm.sweep(release=r, batch_scale_max=[2, 5], **grid) for r in (excerpt, "v7.3"))
    assert swept["score_per_s"].values.tolist() == known["score_per_s"].values.tolist()
    assert swept["refills"].values.tolist() == known["refills"].values.tolist()
    two = known["refills"].sel(batch_scale_max=[2])
    assert own["refills"].values.tolist() == two.values.tolist()
    ours, theirs = (
        pm.limit("coffee-lake", release=r).as_dict()["per_scale"] for r in (excerpt, "v7.3")
    )
    assert ours == theirs


@pytest.mark.long
def test_a_limit_is_of_what_the_tree_moves(trees, changed):
    # Refills of a batch, however many there are.
    flat = open_tree(changed(("n = base << pcp->alloc_factor;", "n = base;")))
    answer = pm.limit("coffee-lake", release=flat)
    held = answer.as_dict()["per_scale"]
    assert [row["pages_per_hold"] for row in held] == [{"refill": 63, "drain": 63}] * 7
    most = f"a hold moves at most, by k [pages]: refill {'63, ' * 6}63; drain 63, 63, "
    assert most in answer.text
    held = pm.limit("coffee-lake", release=trees["refill-holds"]).as_dict()["per_scale"]
    assert [row["pages_per_hold"] for row in held] == (
        [{"refill": 63, "drain": 63}] + [{"refill": 64, "drain": 63}] * 6
    )


def test_rounding_is_by_masks_as_in_the_kernel(changed):
    """round_down() of a multiple of 63 is one of 64: (x & ~62), as in include/linux/math.h."""
    tree = open_tree(changed((
        "n = base << pcp->alloc_factor;", "n = round_down(base << pcp->alloc_factor, base);",
    )))  # fmt: skip
    pcp = PerCpuPages(tree, high_min=9000, high_max=9000)
    refills = [n for _ in range(4000) if (n := pcp.alloc())]
    assert refills[:6] == [1, 64, 192, 448, 960, 1984]
    assert worked(PerCpuPages(tree, high=500)) == worked(TreePages(tree, high=500))


@needs_trees
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"(rounddown_pow_of_two\(batch \+ batch/2\)) - 1;", r"zone_batchsize\(\) .* -1 for"),
        (r"(high = max\(high, batch << 2\));", r"zone_highsize\(\) .* returns -"),
    ],
)
def test_sizes_that_no_list_can_have_are_told(tmp_path, text, said):
    """They are not replaced by a release's: v7.3 takes what the functions return as it is."""
    new = r"\1 * 0 - 1;" if "high" not in text else r"high = high / 64 - batch;"
    tree = open_tree(edited(tmp_path / "tree", ((text, new),), base=TREES / "7.3.4"))
    with pytest.raises(InputError, match=said):
        simulated(tree)
    found = [d for d in differences(tree, "v7.3", 1000)[0] if "sizes" in d.theirs]
    assert len(found) == 1
    assert found[0].function == ("zone_highsize" if "high" in text else "zone_batchsize")


@needs_trees
def test_a_size_that_fails_is_no_difference(tmp_path):
    # A zone among those that are compared, and none that is tried when a tree is opened.
    fails = (
        r"(high = max\(high, batch << 2\));",
        r"\1;\n	if (zone_managed_pages(zone) == 16384)\n		high = *(volatile int *)8;",
    )
    tree = open_tree(edited(tmp_path / "tree", (fails,), base=TREES / "7.3.4"))
    with pytest.raises(InputError, match=r"zone_highsize\(\) .* touches what is not mapped"):
        differences(tree, "v7.3", 1000)


@needs_trees
def test_batches_of_its_own_are_among_those_that_are_tried(tmp_path):
    """Beyond those of all releases a tree may do otherwise."""
    changes = (
        (r"(rounddown_pow_of_two\(batch \+ batch/2\)) - 1;", r"8 * (\1 - 1);"),
        (r"pcp->free_count >>= 1;", "pcp->free_count >>= pcp->batch > 255 ? 3 : 1;"),
    )
    tree = open_tree(edited(tmp_path / "tree", changes, base=TREES / "7.3.4"))
    found = {d.function for d in differences(tree, "v7.3", 300_000)[0]}
    assert found == {"rmqueue_pcplist", "zone_batchsize"}
    assert not release(tree).hits & Hits.ALLOCS_AS_RULES


def test_state_that_does_not_show_is_told(changed):
    """Without a flag of the tree's own, which a drain has set, both do the same in that state."""
    more = "#define PCPF_DRAINED BIT(4)\n\nstatic int nr_pcp_free("
    tree = open_tree(changed(
        ("static int nr_pcp_free(", more),
        ("return clamp_t(int, pcp->free_count, batch",
         "pcp->flags |= PCPF_DRAINED;\n	return clamp_t(int, pcp->free_count, batch"),
        ("n = base << pcp->alloc_factor;",
         "n = pcp->flags & PCPF_DRAINED ? base : base << pcp->alloc_factor;"),
    ))  # fmt: skip
    found = {d.function: d for d in differences(tree, "v7.3", 300_000)[0]}
    assert found["nr_pcp_alloc"].state["and"].startswith("what the tree keeps of its own")
    (plain,) = differences(
        open_tree(changed(("n = base << pcp->alloc_factor;", "n = base;"))), "v7.3", 300_000
    )[0]
    assert "and" not in plain.state


@needs_trees
def test_what_of_a_tree_stays_the_release_s_is_told_in_a_run(tmp_path):
    tree = open_tree(edited(
        tmp_path / "tree", ((r"new_batch = zone_batchsize\(zone\);", "new_batch = 2;"),),
        base=TREES / "7.3.4",
    ))  # fmt: skip
    said = "of the tree these have the text of no known release: zone_set_pageset_high_and_batch."
    assert any(note.endswith(said) for note in release(tree).notes)
    assert not any("no known release" in n for n in release(open_tree(TREES / "7.3.4")).notes)


@needs_trees
def test_a_text_of_its_own_that_did_the_same_is_told(tmp_path):
    """What it does for requests that nobody makes here, "decides as v7.3" would deny."""
    asks = r"(?s)(struct page \*__rmqueue_pcplist\(.*?alloc_flags & )ALLOC_HIGHATOMIC"
    tree = edited(tmp_path / "tree", ((asks, r"\1(ALLOC_HIGHATOMIC | ALLOC_CMA)"),),
                  base=TREES / "7.3.4")  # fmt: skip
    plain, text = (
        pm.tree(t).compare("v7.3", operations=50_000).text for t in (TREES / "7.3.4", tree)
    )
    assert "It decides as v7.3" in plain
    assert "It decides as v7.3" in text
    assert "did the same in these operations" not in plain
    assert re.search(r"the text of no known release and did the same .*: __rmqueue_pcplist\.", text)


def test_a_batch_scale_factor_that_nobody_asks_for_is_refused(changed):
    tree = open_tree(changed(("CONFIG_PCP_BATCH_SCALE_MAX", "3")))
    assert not release(tree).uses_batch_scale_max
    with pytest.raises(InputError, match="batch_scale_max=1: what was compiled of"):
        release(tree).with_batch_scale_max(1)
    assert release(tree).with_batch_scale_max(tree.batch_scale_max) == release(tree)


def test_a_remote_drain_may_do_more_than_drain(changed):
    """It is called only where the lists hold something, so that it decides nothing elsewhere."""
    text = (EXCERPT / "mm/page_alloc.c").read_text()
    begin = text.index("void drain_zone_pages(")
    at = text.index("free_pcppages_bulk(", begin)
    lowers = "pcp->high = max(pcp->high_min, pcp->high - pcp->batch),\n		"
    tree = open_tree(changed((text[begin : at + 1], text[begin:at] + lowers + text[at])))
    assert {d.function for d in differences(tree, "v7.3", 300_000)[0]} == {"drain_zone_pages"}
    ours = worked(PerCpuPages(tree, high_min=500, high_max=4000))
    assert ours == worked(TreePages(tree, high_min=500, high_max=4000))


_OK = r"zone_watermark_ok\(zone, 0, high_wmark_pages\(zone\),\s*ZONE_MOVABLE, 0\)"


@needs_trees
@pytest.mark.parametrize(("new", "taken"), [
    (r"\2 && test_and_clear_bit(ZONE_BELOW_HIGH, &zone->flags)) {", True),
    (r"test_bit(ZONE_BELOW_HIGH, &zone->flags))\n		pcp->free_count = \2;\n	if (0) {", False),
])  # fmt: skip
def test_a_watermark_is_asked_for_to_clear_the_flag_and_for_nothing_else(tmp_path, new, taken):
    """It is always below, as the flag goes with the operation: else that would be an answer."""
    old = rf"(test_bit\(ZONE_BELOW_HIGH, &zone->flags\) &&\s*({_OK})\) {{)"
    tree = edited(tmp_path / "tree", ((old, new),), base=TREES / "7.3.4")
    if taken:
        assert compare(open_tree(tree), "v7.3", 100_000)[1] == []
    else:
        with pytest.raises(InputError, match="asks for zone_watermark_ok"):
            open_tree(tree)


@needs_trees
def test_a_flag_of_its_own_that_other_code_sets_is_refused(tmp_path):
    text = (
        (r"pcp->flags \|= PCPF_FREE_HIGH_BATCH;", "pcp->flags |= PCPF_NEW;"),
        (r"pcp->free_count >>= 1;", "pcp->free_count >>= pcp->flags & PCPF_NEW ? 0 : 1;"),
    )
    header = ((r"#define	PCPF_FREE", "#define	PCPF_NEW BIT(5)\n#define	PCPF_FREE"),)
    tree = edited(tmp_path / "tree", text, header, base=TREES / "7.3.4")
    with pytest.raises(InputError, match=r"line .*: PCPF_NEW is set where nothing is compiled"):
        open_tree(tree)


def test_advice_rests_on_the_tree(excerpt):
    zoneinfo = ROOT / "data/traces/7.2-pf1-8cpu/zoneinfo.after"
    ours, theirs = (
        pm.advise("coffee-lake", zoneinfo=zoneinfo, release=r).as_dict() for r in (excerpt, "v7.3")
    )
    assert ours["batch_scale_max"]["effect"] == theirs["batch_scale_max"]["effect"]
    assert ours["high_fraction"] == theirs["high_fraction"]
    assert ours["release"] == release(excerpt).name


def test_sizes_are_those_of_the_tree(excerpt, changed):
    from pcpmodel.hardware.sizes_explained import explain
    from pcpmodel.proc import zoneinfo

    info = zoneinfo.read(ROOT / "data/traces/7.3-unixpair-4cpu/zoneinfo.after")
    ours, theirs = (explain(info, r).as_dict()["zones"] for r in (excerpt, "v7.3"))
    assert ours == theirs
    assert all(zone["match"] for zone in ours)
    other = open_tree(changed(("return max((int)(pages / ", "return max((int)(pages / 2 / ")))
    wrong = [zone for zone in explain(info, other).as_dict()["zones"] if not zone["match"]]
    assert wrong
    for zone in wrong:
        said = " ".join(zone["formula"].values())
        assert "zone_highsize() of the tree; v7.3 would make it" in said


def test_nineteen_lists_run(trees):
    tree = trees["nineteen-lists"]
    pcp = PerCpuPages(tree, high_min=500, high_max=4000)
    assert len(pcp.lists) == 19
    assert simulated(tree)[:3] == simulated(tree, PerPage)[:3]
    zones = [Zone(1 << 15, batch=31, high_min=100, high_max=3000, watermarks=(100, 200, 4000))]
    ours, theirs = (busy(Memory(r, zones), np.random.default_rng(5)) for r in (tree, "v7.3"))
    assert ours == theirs  # lists beyond those that order_to_pindex() names stay empty
    assert pm.replay(pm.recording("7.3-unixpair-4cpu"), release=tree).nr_unexplained == 0


def test_more_lists_than_there_is_room_for_and_fewer(changed):
    """Lists that no release has stay empty; blocks that have none are not the engines'."""
    more = open_tree(changed(include__linux__mmzone_h=HEADER % {"thp": 21, "more": ""}))
    assert release(more).rules.nr_pcp_lists == 14
    fewer = open_tree(changed(include__linux__mmzone_h=HEADER % {"thp": 0, "more": ""}))
    with pytest.raises(InputError, match=r"NR_PCP_LISTS is 12; .* 13\.\.32"):
        release(fewer)


def test_fields_of_64_bytes_are_carried(changed):
    tree = open_tree(changed(
        ("	pcp->free_count >>= 1;\n",
         "	pcp->free_count >>= 1;\n	pcp->at[pcp->next++ & 5] += pcp->count;\n"),
        ("return clamp_t(int, pcp->free_count, batch",
         "return clamp_t(int, pcp->at[5] & 255, batch"),
        include__linux__mmzone_h=HEADER % {"thp": 2, "more": "\n	u64 next, at[7];"},
    ))  # fmt: skip
    ours = worked(PerCpuPages(tree, high_min=500, high_max=4000))
    assert ours == worked(TreePages(tree, high_min=500, high_max=4000))
    assert simulated(tree) == simulated(tree, PerPage)


def test_larger_fields_are_refused(changed):
    tree = open_tree(changed(
        ("return clamp_t(int, pcp->free_count, batch",
         "return clamp_t(int, pcp->at[5] + pcp->seen, batch"),
        include__linux__mmzone_h=HEADER % {"thp": 2, "more": "\n	long seen, at[8];"},
    ))  # fmt: skip
    with pytest.raises(InputError, match=r"72 bytes of new fields \(seen, at\); .* up to 64"):
        PerCpuPages(tree, high=500)


def test_holds_that_shrink_are_refused_by_name(changed):
    with pytest.raises(InputError, match="how the commit of a free drains"):
        PerCpuPages(open_tree(changed(UNEVEN)), high=500)


def test_a_policy_does_not_go_on_a_tree(excerpt):
    with pytest.raises(InputError, match="change the tree"):
        PerCpuPages(excerpt, high=500, policy="whatever")


def test_it_travels_to_other_processes(excerpt):
    state = release(excerpt)
    assert state.rules.sizing is not None
    again = pickle.loads(pickle.dumps(state))
    assert again == state
    assert worked(PerCpuPages(again, high=500), n=400) == worked(
        PerCpuPages(excerpt, high=500), n=400
    )


def test_memory_under_a_tree_is_memory_under_its_release(excerpt):
    zones = [Zone(1 << 15, batch=31, high_min=100, high_max=3000, watermarks=(100, 200, 4000))]
    both = [busy(Memory(r, zones), np.random.default_rng(5)) for r in (excerpt, "v7.3")]
    assert both[0] == both[1]


def simulated(release, engine=Engine, **options):
    """Counters and lists after a run with bursts, ticks and little memory."""
    arguments = {
        "release": release,
        "machine": "sapphire-rapids",
        "workload": pm.workload.page_fault1(6, pages=3000, fault_ns=300.0, unmap_ns=60.0),
        "cpus": 6,
        "nodes": 2,
        "memory_gib": 0.5,
        "watermark_scale_factor": 1500,
        "high_min_pages": 300,
        "seconds": 0.03,
        "stat_interval_s": 0.002,
        "warmup_s": 0.0,
    }
    state = prepare(make_spec(**arguments | options))
    assert engine(state).run()
    return state.counters(), state.pcps(), state.order_digests, state.zone_free(), state.times_ps()


@pytest.mark.parametrize("identity", [False, True])
def test_a_simulation_under_a_tree_is_one_under_its_release(excerpt, identity):
    ours = simulated(excerpt, identity=identity)
    assert ours == simulated("v7.3", identity=identity)
    assert ours == simulated(excerpt, PerPage, identity=identity)


@pytest.mark.parametrize("name", [n for n in PATCHES if n != "nineteen-lists"])
def test_engines_agree_under_a_changed_tree(trees, name):
    ours = simulated(trees[name], stat_interval_s=0.0005)
    assert ours == simulated(trees[name], PerPage, stat_interval_s=0.0005)
    if name in ("cap", "field", "quarter", "refill-holds"):  # others' differences need high orders
        assert ours != simulated("v7.3", stat_interval_s=0.0005)


def test_a_refill_that_fails_ends(changed):
    """The first one, of which nothing was asked before."""
    fails = "if (pcp->high_max == 77777)\n			n = *(volatile int *)8;\n		"
    at = "n = base << pcp->alloc_factor;"
    tree = open_tree(changed((at, fails + at)))
    zone = Zone(1 << 20, batch=63, high_min=77_777, high_max=77_777)
    with pytest.raises(InputError, match="touches what is not mapped"):
        Memory(tree, [zone], 1).alloc()
    with pytest.raises(InputError, match="touches what is not mapped"):
        PerCpuPages(tree, high_min=77_777, high_max=77_777).alloc()


def test_a_refill_that_lets_others_in(trees):
    tree = trees["refill-holds"]
    pcp = PerCpuPages(tree, high_min=4000, high_max=4000)
    assert pcp.refill_holds == []
    held = [pcp.refill_holds for _ in range(500) if pcp.alloc()]
    assert held == [[63], [64, 62], [64, 64, 64, 60], [64] * 7 + [56]]
    # What is left of a zone, too: the last hold gets less than it asks for, or nothing.
    for pages in (64 * 5, 64 * 5 + 7):
        sizes = {"batch": 63, "high_min": 4000, "high_max": 4000}
        mem = Memory(tree, [Zone(pages, watermarks=(0, 0, 0), **sizes)])
        mem.record_events()
        while mem.alloc(0) is not None:
            pass
        got = [e[2] for e in mem.take_events() if e[:2] == ("hold", "refill")]
        assert got[:4] == [63, 64, 62, 64]
        assert sum(got) == pages
        assert max(got) == 64
    told = pm.study.trajectory(tree, [("alloc", 300)], high_min=4000, high_max=4000).events
    assert told[["pages", "holds"]].values.tolist() == [[63, 1], [126, 2], [252, 4]]


@pytest.mark.parametrize(
    "options",
    [
        {"identity": True},
        {"spinlock": "test-and-set"},
        {"memory_gib": 0.25, "nodes": 1, "high_min_pages": 2000},
        {"trylock_failure": 0.01},
        {"changes": [pm.change(at / 1000, drain_all=at % 6) for at in range(1, 30)]},
        {"changes": [pm.change(0.01, offline=3), pm.change(0.02, online=3)]},
    ],
)
def test_engines_agree_where_a_refill_lets_others_in(trees, options):
    options = {"stat_interval_s": 0.0005, **options}
    ours = simulated(trees["refill-holds"], **options)
    assert ours == simulated(trees["refill-holds"], PerPage, **options)
    whole = simulated("v7.3", **options)
    refills, refilled = ([[c[name] for c in side[0]] for side in (ours, whole)]
                         for name in ("refills", "refill_pages"))  # fmt: skip
    assert sum(refills[0]) > 1.5 * sum(refills[1])
    assert sum(refilled[0]) < 1.5 * sum(refilled[1])


def test_a_refill_comes_from_one_zone_in_however_many_holds(trees):
    """Which is the next zone a CPU asks when its list is empty, not in the middle of a refill."""
    grows = Program()
    grows.alloc(80_000, ns=100)  # of 65,536 that its node has
    grows.idle(1e9)
    options = {
        "workload": Workload("grows", (Task(grows, 0),), "nothing", 80_000),
        "watermark_scale_factor": 400,  # 2,983 pages, below which a refill comes in the middle
        "high_min_pages": 5000,
    }
    whole, ours = (simulated(r, **options) for r in ("v7.3", trees["refill-holds"]))
    assert whole[3] == ours[3]
    assert whole[3][0] < 2_983 - 64
    assert whole[3][1] < 60_000


@needs_trees
@pytest.mark.parametrize(
    ("version", "known"),
    [("6.1.192", "debian-6.1.192"), ("6.12.107", "debian-6.12.107"), ("7.2.13", "debian-7.2.13"),
     ("7.3.4", "v7.3")],
)  # fmt: skip
def test_real_trees_run_as_their_releases(version, known):
    tree = open_tree(TREES / version)
    state = release(tree)
    assert state.hits == AS_RULES
    assert release(state.base).rules == release(known).rules
    assert simulated(tree, high_min_pages=None) == simulated(known, high_min_pages=None)


# Recordings


def alike(recording, tree):
    """What a replay and a what-if say under a tree and under the recording's own release."""
    cap = pm.recording(recording)
    said = []
    for rules in (None, tree):
        found = pm.replay(cap, release=rules).as_dict()
        found.pop("release")
        (outcome,) = pm.what_if(cap, [cap.release if rules is None else rules]).outcomes
        work = {k: v for k, v in vars(outcome).items() if k != "release"}
        said.append((found, {k: v.tolist() if hasattr(v, "tolist") else v
                             for k, v in work.items()}))  # fmt: skip
    return said[0] == said[1]


@pytest.mark.parametrize("recording", ["7.3-unixpair-4cpu", "7.2-detail-4cpu", "7.2-build-4cpu"])
def test_a_recording_is_replayed_under_the_excerpt_as_under_its_release(recording, excerpt):
    assert alike(recording, excerpt)


def test_another_rule_is_seen_in_a_recording(trees):
    cap = pm.recording("7.2-pf1-8cpu")
    assert pm.replay(cap).nr_unexplained == 0
    assert pm.replay(cap, release=trees["cap"]).nr_unexplained > 0


@needs_trees
@pytest.mark.long
@pytest.mark.parametrize(
    "recording",
    sorted({p.parent.name for p in (ROOT / "data/traces").glob("7.[23]-*/*before*")}),
)
def test_every_recording_of_a_tree_s_kernel(recording):
    cap = pm.recording(recording)
    assert alike(recording, open_tree(TREES / ("7.2.13" if cap.kernel[:3] == "7.2" else "7.3.4")))


# From a patch to its cover letter


def test_a_patch_is_tried(tmp_path):
    tree = pm.study.example_tree(tmp_path / "four-batches")
    tried = pm.study.try_patch(
        tree, "v7.3", workloads=["page_fault1"], cpus=8, seconds=0.2, seeds=2, operations=200_000,
        recording="7.2-detail-4cpu",
    )  # fmt: skip
    assert {d["function"] for d in tried.facts["differences"]} == {"nr_pcp_free"}
    rules = ["v7.3", f"four-batches#{tried.tree.digest[:8]}"]
    assert list(tried.tables["runs"]["rules"]) == rules
    assert list(tried.tables["recorded"]["release"]) == rules
    assert set(tried.ladders["drain"].groups) == set(rules)
    (letter,) = tried.letter.tables.values()
    assert list(letter["rules"]) == rules
    assert "nr_pcp_free() decides otherwise" in tried.text
    assert len(tried.digest) == 64
    with pytest.raises(InputError, match="is there already"):
        pm.study.example_tree(tree)
    with pytest.raises(InputError, match="unknown workload 'kbild'"):
        pm.study.try_patch(tree, workloads=["kbild"])


@pytest.mark.long
@pytest.mark.parametrize("base", [EXCERPT, pytest.param(TREES / "7.3.4", marks=needs_trees)],
                         ids=["excerpt", "7.3.4"])  # fmt: skip
@pytest.mark.parametrize("name", PATCHES)
def test_every_patch_comes_to_its_cover_letter(tmp_path, name, base):
    tried = pm.study.try_patch(
        patched(name, tmp_path / name, base), "v7.3", workloads=["page_fault1"], cpus=224,
        seconds=0.2, seeds=2, operations=200_000, recording="7.2-detail-4cpu",
    )  # fmt: skip
    changed = {d["function"] for d in tried.facts["differences"]}
    assert changed
    assert changed <= PATCHES[name].functions
    rules = ["v7.3", f"{name}#{tried.tree.digest[:8]}"]
    assert list(tried.tables["runs"]["rules"]) == rules
    (letter,) = tried.letter.tables.values()
    assert list(letter["rules"]) == rules


# Command line


def run(*arguments):
    from click.testing import CliRunner

    from pcpmodel.cli import main

    return CliRunner().invoke(main, [*map(str, arguments)])


def test_a_path_is_a_release_on_the_command_line(excerpt):
    work = ["--machine", "sapphire-rapids", "--workload", "page_fault1", "--processes", 4]
    size = ["--cpus", 4, "--memory-gib", 4, "--seconds", 0.02, "--warmup", 0, "--json"]
    said = [json.loads(run("simulate", "--release", r, *work, *size).stdout)
            for r in (EXCERPT, "v7.3")]  # fmt: skip
    assert said[0]["score"] == said[1]["score"]
    assert any(excerpt.digest in note for note in said[0]["notes"])
    policy = ROOT / "examples/cython/four_batches.pyx"
    ruled = run("simulate", "--release", "v7.3", "--policy", policy, *work, *size)
    assert ruled.exit_code == 0, ruled.output
    assert run("simulate", "--release", "./none", *work).exit_code == 2
    assert run("simulate", "--release", "v7.3", "--policy", "none.pyx", *work).exit_code == 2
    told = json.loads(run("replay", "7.3-unixpair-4cpu", "--release", EXCERPT, "--json").stdout)
    assert told["release"] == release(excerpt).name


@pytest.mark.long
def test_a_config_goes_with_the_tree(tmp_path):
    config = tmp_path / "config"
    config.write_text("CONFIG_NUMA=y\nCONFIG_SMP=y\nCONFIG_PCP_BATCH_SCALE_MAX=2\n")
    work = ["--machine", "sapphire-rapids", "--workload", "page_fault1", "--processes", 4]
    size = ["--cpus", 4, "--memory-gib", 4, "--seconds", 0.02, "--warmup", 0, "--json"]
    told = [
        json.loads(run("simulate", *rules, *work, *size).stdout)["refills"]
        for rules in (
            ["--release", EXCERPT, "--config", config],
            ["--release", "v7.3", "--set", "batch_scale_max=2"],
            ["--release", EXCERPT],
        )
    ]
    assert told[0] == told[1] > told[2]
    zoneinfo = ROOT / "data/traces/7.3-unixpair-4cpu/zoneinfo.after"
    explained = run("explain", "--zoneinfo", zoneinfo, "--release", EXCERPT, "--config", config)
    assert explained.exit_code == 0, explained.output
    limited = run("limit", "coffee-lake", "--p99-us", 100, "--release", EXCERPT, "--config", config)
    assert limited.exit_code == 0, limited.output
    for verb in (
        ["simulate", "--release", "v7.3", *work], ["limit", "coffee-lake", "--p99-us", 100],
        ["replay", "7.3-unixpair-4cpu"],
    ):  # fmt: skip
        refused = run(*verb, "--config", config)
        assert refused.exit_code == 2
        assert "is of a kernel tree, and none is given" in refused.output


def test_a_tree_and_the_cache_may_lie_anywhere(tmp_path, monkeypatch):
    """Names of files are bytes."""
    folder = tmp_path / os.fsdecode(b"two words\nand \xff")
    shutil.copytree(EXCERPT, folder / "tree")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    lists = PerCpuPages(open_tree(folder / "tree"), high=500)
    lists.free()
    assert lists.count == 1

"""Named kernel states: names, patches put on and taken off, errors."""

import json
import re
from dataclasses import fields

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.kernel.releases import Rules

NAMES = [r.name for r in pm.releases()]


def test_the_design_s_releases_are_all_there():
    series = {f"v6.6+p{n}" for n in range(1, 11)}
    mainline = {f"v{v}" for v in ("6.6", "6.7", "6.12", "6.16", "6.17", "6.18", "6.18+hahn-v4")}
    mainline |= {f"v{v}" for v in ("6.19", "7.0", "7.1", "7.2", "7.3")}
    points = ("6.1.192", "6.12.107", "6.16.12", "6.18.15", "6.19.14", "7.0.13", "7.2.13", "7.3.4")
    mainline |= {"v4.17", "v5.10", "v5.17"}
    assert set(NAMES) == series | mainline | {f"debian-{v}" for v in points}


@pytest.mark.parametrize(
    ("given", "near"),
    [("v6.8", "v6.7"), ("v4.19", "v5.10"), ("v5.15", "v5.17"), ("v7.4", "v7.3"), ("7.4.2", "v7.3"),
     ("6.12", "v6.12")],
)  # fmt: skip
def test_a_kernel_that_has_no_name_is_told_the_nearest_that_has(given, near):
    with pytest.raises(pm.InputError, match=f"did you mean '{re.escape(near)}', the nearest"):
        pm.release(given)


def test_each_release_differs_from_the_one_before_by_what_came_with_it():
    rules = {name: pm.release(name).as_dict() for name in NAMES}

    def between(old, new):
        return {k for k, v in rules[new].items() if v != rules[old][k]}

    assert between("v4.17", "v5.10") == {
        "batchsize_1m", "cma_balance", "boost_watermark", "alloc_nofragment"
    }  # fmt: skip
    assert between("v5.10", "v5.17") == {
        "high_by_watermark", "scaled_drains", "reclaim_limit", "nr_pcp_lists"
    }  # fmt: skip
    assert between("v5.17", "v6.6") == {
        "free_high", "drain_by_list", "nr_pcp_lists", "pcp_lock", "highatomic_needs_gfp_high",
        "merge_mergeable", "zone_locked_list", "boost_needs_kswapd", "alloc_non_block",
    }  # fmt: skip
    assert between("v6.12", "v6.16") == {"fallback", "nolock", "free_high_half_high_min"}
    assert between("v6.16", "v6.17") == {"isolate_bit"}
    assert between("v6.17", "v6.18") == {"highatomic_needs_gfp_high", "skip_busy_kswapd"}
    assert between("v6.18", "v6.19") == {
        "merge_retype", "decay_chunks", "commit_drain", "batchsize_256k"
    }  # fmt: skip
    assert between("v6.19", "v7.0") == set()
    assert between("v7.0", "v7.1") == {"highatomic_in_buddy"}
    assert between("v7.1", "v7.2") == {"free_coalesce"}
    assert between("v7.2", "v7.3") == {"highatomic_fast_path"}
    for name in ("6.16.12", "7.0.13", "7.2.13", "7.3.4"):
        assert between(f"debian-{name}", "v" + ".".join(name.split(".")[:2])) == set()


def test_the_root_of_a_page_table_is_of_order_1_up_to_v6_15():
    orders = {name: pm.release(name).pgd_allocation_order for name in NAMES}
    assert orders["v4.17"] == orders["v6.6"] == orders["v6.12"] == orders["debian-6.12.107"] == 1
    assert orders["v6.16"] == orders["debian-6.16.12"] == orders["v6.18"] == orders["v7.2"] == 0
    assert pm.release("v6.6").plus("drain-two-in-a-row").pgd_allocation_order == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_name_leads_back_to_its_release(name):
    assert pm.release(name).name == name
    assert pm.release(str(pm.release(name))) == pm.release(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("patch", [p.key for p in pm.patches()])
def test_every_patch_goes_on_or_comes_off_every_release(name, patch):
    state = pm.release(name)
    if patch in state.patches:
        changed = state.without(patch)
        assert patch not in changed.patches
    else:
        changed = state.plus(patch)
        assert patch in changed.patches
    assert pm.release(changed.name) == changed


def test_a_patch_taken_off_the_series_gives_the_state_before_it():
    for n in range(1, 11):
        after = pm.release(f"v6.6+p{n}")
        before = pm.release("v6.6" if n == 1 else f"v6.6+p{n - 1}")
        assert after.without(after.patches[-1]).rules == before.rules


def test_plus_replaces_another_form_of_the_same_patch():
    v3 = pm.release("v6.6+p10").plus("auto-high@v3")
    assert "auto-high@v2" not in v3.patches
    assert v3.rules.decay == pm.release("v6.7").rules.decay


def test_rules_are_plain_numbers():
    for field in fields(Rules):
        assert isinstance(field.default, int)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pm.release("v6.8"), "did you mean"),
        (lambda: pm.release("v6.7-autohigh"), "did you mean 'auto-high'"),
        (lambda: pm.release("v6.7").plus("auto-high"), "has 'auto-high@v3' already"),
        (lambda: pm.release("v6.6").without("auto-high"), "does not have"),
        (lambda: pm.release("v6.7").plus("drain-two"), "unknown patch"),
        (lambda: pm.release(6.7), r"allowed: str \| Release"),
        (lambda: pm.release("v6.7").with_batch_scale_max(7), "outside 0..6"),
        (
            lambda: pm.release("v6.7").with_batch_scale_max(True),
            "batch_scale_max=True; allowed: int",
        ),
    ],
)
def test_bad_names_are_refused_with_what_is_allowed(call, said):
    with pytest.raises(pm.InputError, match=said):
        call()


def test_releases_verb_prints_every_rule_as_json():
    result = CliRunner().invoke(main, ["releases", "--json"])
    assert result.exit_code == 0
    listed = {r["name"]: r["rules"] for r in json.loads(result.stdout)["releases"]}
    assert list(listed) == NAMES
    assert listed["v6.7"]["auto_high"] is True


def test_the_text_says_what_a_release_has_more_or_less_than_another():
    said = CliRunner().invoke(main, ["releases"]).stdout.partition("\n\n")[0].splitlines()
    assert max(map(len, said)) <= 98
    lines = {line.split()[0]: line.split()[1:] for line in said[1:] if not line.startswith("   ")}
    assert list(lines) == NAMES
    assert lines["v4.17"] == ["no", "patches"]
    older = ["v4.17", "+batchsize-1m", "+fragmentation-avoidance", "+cma-balance"]
    assert lines["v5.10"] == older
    assert lines["v6.6"][:3] == ["v5.17", "+free-high", "+drain-by-list"]
    assert lines["v6.6+p5"] == ["v6.6+p4", "+alloc-scale"]
    assert lines["v7.2"] == ["v7.1", "+free-coalesce"]
    assert lines["debian-7.3.4"] == ["v7.3"]
    assert lines["debian-7.2.13"] == ["v7.2"]


def test_a_patch_takes_a_number():
    state = pm.release("v6.7").without("auto-high").plus("free-high-threshold", 126)
    assert state.name == "v6.7-auto-high+free-high-threshold=126"
    assert state.rules.free_high_pages == 126
    assert pm.release(state.name) == state
    assert state.plus("free-high-threshold", 200).rules.free_high_pages == 200
    assert pm.release("v7.2").plus("free-high-threshold=63").rules.free_high_pages == 63
    assert pm.release("v7.2").rules.free_high_pages == 0
    off = state.without("free-high-threshold")
    assert not off.rules.free_high_pages
    assert not off.rules.free_high_half_high_min


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("auto-high", 3), "auto-high takes no number; those that do: free-high-threshold"),
        (("free-high-threshold", 0), "'0' is not a number of pages 1.."),
        (("free-high-threshold", -5), "'-5' is not a number of pages"),
        (("free-high-threshold=1x",), "'1x' is not a number of pages"),
        (("free-high-threshold=",), "'' is not a number of pages"),
        (("free-high-threshold", 2.5), r"names=2\.5; allowed: str \| int"),
        (("free-high-threshold", True), r"names=True; allowed: str \| int"),
        ((126,), "126 is neither a patch nor the number of one"),
        (("free-high-threshold=1", 2), "a patch takes one number"),
    ],
)
def test_wrong_numbers_are_refused(names, says):
    with pytest.raises(pm.InputError, match=says):
        pm.release("v6.12").plus(*names)


def test_a_patch_comes_off_by_its_name_alone():
    state = pm.release("v6.12").plus("free-high-threshold", 126)
    with pytest.raises(pm.InputError, match="by its name alone"):
        state.without("free-high-threshold=126")
    with pytest.raises(pm.InputError, match="is not a number of pages"):
        pm.release("v6.12+free-high-threshold=0")


def test_the_number_is_where_frees_of_high_order_drain():
    pages = pm.PerCpuPages("v7.2-auto-high+free-high-threshold=126", high=1000)
    for _ in range(128):
        pages.free(1)
    assert pages.count < 126 + 4

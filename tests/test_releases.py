"""Named kernel states: names, patches put on and taken off, errors."""

import json
from dataclasses import fields

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.kernel.releases import Rules

NAMES = [r.name for r in pm.releases()]


def test_the_design_s_releases_are_all_there():
    series = {f"v6.6+p{n}" for n in range(1, 11)}
    mainline = {"v6.6", "v6.7", "v6.12", "v6.18", "v6.18+hahn-v4", "v6.19", "v7.2"}
    debian = {f"debian-{v}" for v in ("6.1.192", "6.12.107", "6.18.15", "6.19.14", "7.2.13")}
    assert set(NAMES) == series | mainline | debian


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
        (lambda: pm.release(6.7), "must be a string"),
        (lambda: pm.release("v6.7").with_batch_scale_max(7), "outside 0..6"),
        (lambda: pm.release("v6.7").with_batch_scale_max(True), "not an integer"),
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
    assert lines["v6.6"] == ["no", "patches"]
    assert lines["v6.6+p5"] == ["v6.6+p4", "+alloc-scale"]
    assert lines["v7.2"] == ["v6.19", "+free-coalesce", "+highatomic-in-buddy"]
    assert lines["debian-7.2.13"] == ["v7.2"]

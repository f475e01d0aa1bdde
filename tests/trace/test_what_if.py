"""What-if: under the recorded rules it does what the kernel did; other rules change it."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import TRACES
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.trace.packed import open_text
from pcpmodel.trace.replay import work_without_dump


@pytest.mark.parametrize(
    "name",
    ["6.1-unixpair-4cpu", "6.12-tcp-4cpu", "6.12-fraction-4cpu", "6.18-unixpair-4cpu",
     "6.19-pf1-4cpu", "7.2-exitstorm-4cpu"],
)  # fmt: skip
def test_the_recorded_rules_give_the_recorded_numbers(name):
    cap = pm.recording(TRACES / name)
    real = pm.replay(cap)
    (same,) = pm.what_if(cap).outcomes
    assert same.release == cap.release.name
    assert (same.refills, same.drains) == (real.refills, real.drains)
    assert same.drained_pages == sum_of_drained(cap)
    assert same.failed == 0


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("7.2-detail-4cpu", None),
        ("7.2-build-4cpu", "comes to 150 refills for 147 and 349 drains for 316 as recorded"),
    ],
)
def test_what_its_own_rules_do_not_come_to_is_said(name, note):
    found = pm.what_if(name)
    real = pm.replay(name)
    assert found.recorded == {"refills": real.refills, "drains": real.drains}
    assert found.as_dict()["recorded"] == found.recorded
    assert found.as_dict()["judged"] == found.judged
    assert f"judged: {found.judged}" in repr(found)
    assert f"as recorded {real.refills} {real.drains}" in " ".join(repr(found).split())
    if note is None:
        assert found.notes == []
    else:
        assert note in found.notes[-1]
        assert note not in str(pm.what_if(name, ["v6.6"]))


def sum_of_drained(cap):
    """Pages that the kernel itself reports as drained after its first dump [pages]."""
    events, reader = cap.trace
    first = next(
        k
        for k in np.flatnonzero(events.is_event("tracing_mark_write"))
        if reader.markers[events.rows["a"][k]].endswith("state-before-end")
    )
    drained = events.is_event("mm_page_pcpu_drain")
    drained[:first] = False
    return int((1 << events.rows["b"][drained]).sum())


def test_a_what_if_has_the_parts_of_an_answer():
    found, other = (pm.what_if(TRACES / "6.18-pf1-2cpu", r) for r in (["v6.6"], ["v6.7"]))
    told = found.tables["releases"]
    assert list(told.index) == ["as recorded", "v6.6"]
    assert told.loc["as recorded", "refills"] == found.recorded["refills"]
    assert told.loc["v6.6", "drains"] == found["v6.6"].drains
    assert f"{found['v6.6'].refills} refills" in found.text
    assert found.judged in found.text
    assert found.digest != other.digest


def test_what_the_patches_changed_is_seen():
    found = pm.what_if(TRACES / "6.1-pf1-4cpu", ["v6.6", "v6.7", "v6.18", "v6.19"])
    old, tuned, later, pieces = found.outcomes
    # high is tuned: fewer, larger holds, more pages on the lists.
    assert tuned.refills < old.refills / 4
    assert tuned.zone_lock_holds < old.zone_lock_holds / 4
    assert tuned.pages_in_pcp_max > 4 * old.pages_in_pcp_max
    assert max(tuned.pages_per_hold) > max(old.pages_per_hold)
    # v6.19 cuts the same drains into pieces of a batch.
    assert pieces.drained_pages == later.drained_pages
    assert pieces.drains > 2 * later.drains
    assert found["v6.7"] is tuned
    for outcome in found.outcomes:
        assert sum(outcome.pages_per_hold.values()) == outcome.refills + outcome.drains
        assert outcome.pages_in_pcp.max() <= outcome.pages_in_pcp_max
        assert (np.diff(outcome.time_ns) >= 0).all()
        assert len(outcome.time_ns) > outcome.refills + outcome.drains
    assert "v6.7" in repr(found)


def test_pages_that_compaction_isolated_are_told():
    same, other = pm.what_if(TRACES / "6.19-pressure-4cpu", ["debian-6.19.14", "v6.6"]).outcomes
    assert 0 < same.unknown < 100
    assert other.refilled_pages > 0


def test_the_same_work_gives_the_same_bytes():
    one, two = (pm.what_if(TRACES / "6.18-pf1-2cpu", ["v6.6"]).as_dict() for _ in range(2))
    assert json.dumps(one) == json.dumps(two)


def test_a_patch_alone_can_be_tried():
    base, patched = pm.what_if(
        TRACES / "6.12-tcp-4cpu", ["v6.12", pm.release("v6.12").plus("free-high-threshold")]
    ).outcomes
    assert patched.release == "v6.12+free-high-threshold"
    assert patched.drains < base.drains


def test_other_sizes_than_recorded_are_not_held_against_the_rules():
    """What they bring is what was asked for; without, the note says how far off the rules are."""
    path = TRACES / "7.0-mixed-4cpu"
    own = pm.what_if(path)
    assert any("the recording's own rules" in note for note in own.notes)
    for settings in ({"batch": 7}, {"high_pages": 20_000}, {"high_fraction": 64}):
        other = pm.what_if(path, **settings)
        assert not any("the recording's own rules" in note for note in other.notes)


def test_settings_take_the_place_of_the_recorded_ones():
    path, rules = TRACES / "6.1-pf1-4cpu", ["v6.12"]
    plain, small, wide, narrow = (
        pm.what_if(path, rules, **settings).outcomes[0]
        for settings in ({}, {"batch": 7}, {"high_pages": 20_000}, {"high_fraction": 64})
    )
    assert small.refills > plain.refills
    assert wide.drains < plain.drains
    assert wide.pages_in_pcp_max > plain.pages_in_pcp_max > narrow.pages_in_pcp_max
    for wrong in ({"batch": 0}, {"high_fraction": 3}, {"high_pages": 1, "high_fraction": 8}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            pm.what_if(path, rules, **wrong)


def test_the_verb_sets_releases_side_by_side():
    path = str(TRACES / "6.18-pf1-2cpu")
    result = CliRunner().invoke(main, ["replay", path, "--what-if", "v6.6", "v7.2", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["releases"]
    assert [r["release"] for r in told] == ["v6.6", "v7.2"]
    for r in told:
        for key in ("refills", "drains", "zone_lock_holds", "pages_in_pcp_max"):
            assert isinstance(r[key], int)
    assert told[0]["refills"] > told[1]["refills"]
    for wrong in (
        ["replay", path, "--what-if"],
        ["replay", path, "v6.6"],
        ["replay", path, "--what-if", "v6.99"],
        ["replay", path, "--release", "v6.99", "--what-if", "v6.6"],
    ):
        assert CliRunner().invoke(main, wrong).exit_code == 2
    done = CliRunner().invoke(main, ["replay", path, "--what-if"])
    assert "--what-if needs the releases to try" in done.stderr


def test_that_a_recording_was_cut_is_said_of_its_work(tmp_path):
    whole = TRACES / "6.18-pf1-2cpu"
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    (cut / "trace.txt.zst").unlink()
    lines = b"".join(open_text(whole / "trace.txt.zst")).splitlines(keepends=True)
    (cut / "trace.txt").write_bytes(b"".join(lines[:20000]))
    said = str(pm.what_if(cut, ["v6.6"]))
    assert "note: the recording does not replay exactly (24107 events lost, 0 unexplained" in said
    assert "not replay exactly" not in str(pm.what_if(whole, ["v6.6"]))


@pytest.mark.slow
def test_a_policy_of_ones_own_meets_the_recorded_work(policies):
    # The kernel's rule restated as callbacks is that rule; another one is not.
    path = TRACES / "6.12-tcp-4cpu"
    (same,) = pm.what_if(path, policy=policies["kernel_rule"].policy).outcomes
    real = pm.what_if(path).outcomes[0]
    assert same.release == "policy"
    assert same.as_dict() | {"release": real.release} == real.as_dict()
    theirs, mine = pm.what_if(
        path, [pm.recording(path).release], policy=policies["bucket_growth"].policy
    ).outcomes
    assert mine.refills != theirs.refills


def test_a_policy_is_asked_at_every_decision_of_the_kernel(policies):
    for name in ("6.12-tcp-4cpu", "6.19-mixed-4cpu"):
        cap = pm.recording(TRACES / name)
        plain = pm.replay(cap)
        assert plain.decisions is None
        assert plain.policy == {}
        # The kernel's rule restated decides as the kernel did, each time.
        same = pm.replay(cap, policy=policies["kernel_rule"].policy)
        assert same.exact
        assert same == plain
        told = same.policy
        assert told["refills"] == told["refills_same"] == plain.refills
        # In one decision v6.19 drains several times, batch by batch.
        assert 0 < told["drains"] == told["drains_same"] <= plain.drains
        assert told["high_same"] == told["refills"] + told["drains"]
        assert json.loads(json.dumps(same.as_dict()))["policy"] == told
        # Another rule: the trace is explained as before, the decisions are its own.
        other = pm.replay(cap, policy=policies["bucket_growth"].policy)
        assert other.exact
        assert other.policy["refills_same"] < other.policy["refills"] == plain.refills
        d = other.decisions
        assert (d["kernel"] > 0).sum() == (same.decisions["kernel"] > 0).sum()
        refills = d[d["kind"] == "refill"]
        assert (refills["kernel"] > 0).all()
        assert (refills["policy"] > 0).all()
        assert set(d["zone"].tolist()) <= {z.name for z in cap.snapshot("before").zones}
        assert (np.diff(d["line"]) >= 0).all()


def test_a_policy_that_fails_in_a_replay_raises_its_own_error(policies):
    path = TRACES / "6.12-tcp-4cpu"
    with pytest.raises(InputError, match="pcp_policy_object"):
        pm.replay(path, policy=object())
    with pytest.raises(InputError, match="nr_pcp_alloc returned 0"):
        pm.replay(path, policy=policies["failing"].zero_blocks)
    with pytest.raises(RuntimeError, match="count is"):
        pm.replay(path, policy=policies["failing"].raises)


@pytest.mark.parametrize(
    ("policy", "error", "says"),
    [
        ("zero_blocks", InputError, r"nr_pcp_alloc returned 0; allowed: 1\.\."),
        ("negative_drain", InputError, r"nr_pcp_free returned -2; allowed: 0\.\."),
        ("raises", RuntimeError, "count is"),
    ],
)
def test_a_policy_that_answers_nonsense_ends_what_if(policies, policy, error, says):
    """An answer to a free is no page that compaction took."""
    broken = getattr(policies["failing"], policy)
    with pytest.raises(error, match=says):
        pm.what_if(TRACES / "6.12-tcp-4cpu", policy=broken)
    with pytest.raises(error, match=says):
        pm.study.recorded_work("6.12-tcp-4cpu", [], policy=broken)


def test_rules_that_are_asked_twice_are_refused():
    """The report's figure could not tell the rows apart, and ended in an error."""
    with pytest.raises(InputError, match=r"releases: 'v7.2' is there 2 times; give each once"):
        pm.what_if("6.18-pf1-2cpu", ["v7.2", "v6.6", "v7.2"])


def test_a_recording_without_its_first_lists_is_refused():
    boot = next(p for p in TRACES.iterdir() if "boot" in p.name)
    with pytest.raises(InputError, match="before"):
        pm.what_if(boot)


@pytest.fixture
def blind(tmp_path):
    """A recording as a kernel gives it that shows its lists to no one."""

    def without_dumps(name):
        target = tmp_path / name
        hidden = shutil.ignore_patterns("pcpstate.*", "buddylists.*", "pageblocks.*")
        shutil.copytree(TRACES / name, target, ignore=hidden)
        meta = json.loads((target / "meta.json").read_text())
        (target / "meta.json").write_text(json.dumps(meta | {"probes": []}))
        return target

    return without_dumps


@pytest.mark.parametrize(
    "name",
    ["6.1-fraction-4cpu", "6.12-thp-4cpu", "6.18-unixpair-4cpu", "6.19-pf1-4cpu", "7.2-tcp-4cpu"],
)
def test_without_dumps_the_work_comes_to_what_it_does_with_them(blind, name):
    """... under each kernel, though these are far apart."""
    made = blind(name)
    rules = [pm.recording(made).release.name, "v6.6", "v7.3"]
    known, supposed = (pm.what_if(where, rules) for where in (TRACES / name, made))
    for there, here in zip(known.outcomes, supposed.outcomes, strict=True):
        assert here.refills == pytest.approx(there.refills, rel=0.04, abs=2)
        assert here.drains == pytest.approx(there.drains, rel=0.07, abs=2)
        assert here.failed == 0
    counts = [outcome.zone_lock_holds for outcome in known.outcomes]
    assert max(counts) > 1.5 * min(counts)
    # Of a drain in pieces no line tells in how many holds it was done.
    assert supposed.recorded["draining"] == pytest.approx(known.outcomes[0].draining, rel=0.01)
    assert (
        f"as recorded {supposed.recorded['refills']} {supposed.recorded['draining']}"
        in " ".join(repr(supposed).split())
    )
    own = known.outcomes[0]
    assert (own.drains > 2 * own.draining) == name.startswith(("6.19", "7"))
    assert not [note for note in known.notes if "supposed" in note]
    assert [note for note in supposed.notes if "what they held at the start is supposed" in note]


def test_without_dumps_the_own_rules_are_held_against_what_was_recorded(blind):
    made = blind("6.12-build-4cpu")
    found = pm.what_if(made, ["v6.6"])
    assert [outcome.release for outcome in found.outcomes] == ["v6.6"]
    (note,) = [note for note in found.notes if "the recording's own rules" in note]
    assert re.search(r"comes to 11\d refills for 121 and 29 drains for 30 as recorded", note)
    assert not [n for n in pm.what_if(made, ["v6.6"], batch=31).notes if "own rules" in n]


@pytest.mark.parametrize("name", ["6.12-tcp-4cpu", "6.18-pf1-2cpu"])
def test_what_is_supposed_is_what_was_counted(blind, name):
    """Free pages, and pages on every pageset; the lists begin with what was taken first."""
    cap = pm.recording(blind(name))
    told = cap.zoneinfo("before")
    *_, dump = work_without_dump(cap)
    for zone in dump.zones:
        free = dump.free[zone.key]
        assert sum(len(pfns) << order for (order, _), pfns in free.items()) == zone.nr_free
        assert all((pfns % (1 << order) == 0).all() for (order, _), pfns in free.items())
    places = [pfn for pcp in dump.pcps.values() for pfns in pcp.lists.values() for pfn in pfns]
    assert len(places) == len(set(places))
    for key, pcp in dump.pcps.items():
        assert pcp.listed <= told.pcps[key].count
    real = pm.recording(TRACES / name).snapshot("before")
    same = off = 0
    for key, pcp in dump.pcps.items():
        for i, pfns in pcp.lists.items():
            first = real.pcps[key].lists.get(i, np.empty(0))[: len(pfns)]
            same += int((first == pfns[: len(first)]).sum())
            off += len(pfns)
    assert same >= 0.5 * off

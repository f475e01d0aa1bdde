"""Every recording under every other release: what tools/told_apart.py found is so today."""

# SPDX-License-Identifier: GPL-2.0-only

import json
from dataclasses import replace

import pytest
import told_apart

import pcpmodel as pm
from helpers.paths import TRACES
from pcpmodel.trace.replay import replay_work

TOLD = json.loads(told_apart.WRITTEN.read_text("utf-8"))
#: Short of memory: what reclaim does to the lists, a what-if does not know.
PRESSED = "6.18-pressure-4cpu"
#: Releases whose rules are near those of the recordings below, or far away.
FEW = ("v6.6", "v6.6+p10", "v6.18", "v6.18+hahn-v4", "v6.19")


def others(cap, names=None):
    return [
        same[0]
        for rules, same in told_apart.by_rules().items()
        if rules != cap.release.rules and (names is None or same[0].name in names)
    ]


def test_every_release_and_every_recording_is_in_the_table():
    """Run tools/told_apart.py --write if this fails."""
    groups = [[state.name for state in same] for same in told_apart.by_rules().values()]
    assert TOLD["rules"] == groups
    assert sorted(name for same in groups for name in same) == sorted(r.name for r in pm.releases())
    names = {cap.name for cap in told_apart.recordings([TRACES])}
    assert names <= set(TOLD["recordings"])
    for row in TOLD["recordings"].values():
        own = next(same for same in groups if row["release"] in same)
        assert {*row["apart"], *row["what_if"], own[0]} == {same[0] for same in groups}


def test_what_is_not_told_apart_counts_alike():
    """But where what-ifs are not in the states that the recorded kernel was in (docs/limits.md)."""
    found = TOLD["recordings"]
    assert {name for name, row in found.items() if any(row["what_if"].values())} == {PRESSED}
    assert found[PRESSED]["own"]["drains"][0] < found[PRESSED]["own"]["drains"][1]


@pytest.mark.parametrize("name", ["6.18-pf1-2cpu", "6.12-tcp-4cpu", "7.2-detail-4cpu"])
def test_a_recording_tells_these_rules_apart(name):
    cap = pm.recording(TRACES / name)
    apart, alike, own = told_apart.told_apart(cap, others(cap, FEW))
    row = TOLD["recordings"][name]
    assert apart == [n for n in row["apart"] if n in FEW]
    assert alike == {n: counts for n, counts in row["what_if"].items() if n in FEW}
    assert own == row["own"]
    assert "v6.6" in apart


def test_counts_that_differ_are_named(monkeypatch):
    """Were a rule not followed by the replay, its what-if would tell."""
    cap = pm.recording(TRACES / "6.18-pf1-2cpu")
    found = replay_work(cap, "v6.18", whole=False)
    monkeypatch.setattr(told_apart, "replay_work", lambda *_args, **_options: found)
    apart, alike, _ = told_apart.told_apart(cap, [pm.release("v6.6")])
    assert apart == []
    mine, other = alike["v6.6"]["refills"]
    assert mine == pm.what_if(cap).recorded["refills"] != other


def test_a_replay_may_end_at_the_first_difference():
    cap = pm.recording(TRACES / "7.2-detail-4cpu")
    whole = pm.replay(cap, release="v6.6")
    found, _, _ = replay_work(cap, "v6.6", whole=False)
    assert found.unexplained == whole.unexplained[: found.nr_unexplained]
    assert 0 < found.nr_unexplained < whole.nr_unexplained
    assert "ends where the first difference is that nothing explains" in found.notes
    mine, _, _ = replay_work(cap, ops=("direct_free",), whole=False)
    assert replace(mine, states=1) == replace(pm.replay(cap), states=1)


@pytest.mark.long
def test_every_recording_under_every_other_release():
    """Of data/traces, but those under memory pressure: a minute each."""
    for cap in told_apart.recordings([TRACES]):
        if "pressure" in cap.name:
            continue
        row = TOLD["recordings"][cap.name]
        found = told_apart.told_apart(cap, others(cap))
        assert list(found) == [row["apart"], row["what_if"], row["own"]], cap.name

"""Machines without a latency table: like others, or with a cost sheet alone."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import DATA
from pcpmodel.cli import main
from pcpmodel.datasets import packages
from pcpmodel.datasets.measured import COST_UNITS
from pcpmodel.errors import InputError
from pcpmodel.hardware.costs import OPERATIONS
from pcpmodel.hardware.hold_time import COLUMNS
from pcpmodel.hardware.sheet import BATCHES
from pcpmodel.study.sweep.grid import make_grid
from pcpmodel.workload import page_fault1


def test_a_machine_like_another_has_its_holds_and_a_wide_interval():
    like, other = pm.machine("new", like="ice-lake"), pm.machine("ice-lake")
    for key in COLUMNS:
        there = other.hold_time.curves[key].fits_ns(BATCHES)[0]
        assert np.allclose(like.hold_time.curves[key].fits_ns(BATCHES)[0], there, rtol=0.05)
        low, high = (like.hold_time.curves[key].predict(BATCHES).quantile_ns(q) for q in (0.1, 0.9))
        for name in (
            "cascade-lake",
            "coffee-lake",
            "sapphire-rapids",
        ):
            at = pm.machine(name).hold_time.curves[key].fits_ns(BATCHES)[0]
            assert ((low < at) & (at < high)).mean() > 0.4
    assert "ice-lake" in like.derived
    assert "new" not in pm.machines()
    assert like.digest not in (other.digest, pm.machine("newer", like="ice-lake").digest)
    both = pm.machine("new", like=("ice-lake", "coffee-lake"))
    at = [m.hold_time.refill(2016).mean_ns for m in (like, both, pm.machine("coffee-lake"))]
    assert at == sorted(at)


def test_nodes_of_one_socket_share_its_memory_s_rate():
    """NPS4, a node for each cache, SNC: a row of other machines is of a socket's channels."""
    bare = replace(pm.machine("ice-lake"), costs=None)

    def rate(**platform):
        return replace(bare, platform=platform).sheet["clear_rate", ""]

    whole = rate(sockets=2, nodes=2)
    for platform, part in (
        ({"sockets": 2, "nodes": 8}, 4),
        ({"sockets": 2, "cpus_per_node": "28,28,28,28,0,0", "nodes": 6}, 2),  # HBM beside
        ({"sockets": 1, "cpus_per_node": "72,0", "nodes": 2}, 1),
        ({"sockets": 2, "nodes": 1}, 1),
        ({"nodes": 8}, 1),
    ):
        found = rate(**platform)
        assert found[:3] == pytest.approx([of / part for of in whole[:3]])
        assert ("shared out" in found.source) == (part > 1)
    guest = {"kind": "virtual", "sockets": 1}
    assert rate(**guest, nodes=4) == rate(**guest, nodes=1)
    own = replace(pm.machine("ice-lake"), platform={"sockets": 2, "nodes": 8})
    assert own.sheet["clear_rate", ""] == pm.machine("ice-lake").sheet["clear_rate", ""]


def test_what_takes_a_machine_takes_one_that_is_like_another():
    like = pm.machine("new", like="ice-lake")
    one, known = (pm.limit(m).facts for m in (like, "ice-lake"))
    assert like.derived in one["notes"]
    assert all(row["measured"] is None for row in one["per_scale"])
    for a, b in zip(one["per_scale"], known["per_scale"], strict=True):
        assert a["interval"][0] < b["interval"][0] < b["interval"][1] < a["interval"][1]
    run = pm.simulate("v6.18", like, page_fault1(2), cpus=2, nodes=1, seconds=0.01, warmup_s=0.0)
    assert like.derived in run.summary()["notes"]
    grid = make_grid(
        release="v6.18",
        machine=["ice-lake", {"name": "new", "like": "ice-lake"}],
        workload={"name": "page_fault1", "processes": 2},
    )
    assert [spec.machine.derived for spec in grid.specs] == [None, like.derived]
    with pytest.raises(InputError, match="neither a name nor"):
        make_grid(release="v6.18", machine={"name": "new"}, workload=page_fault1(2))


def test_a_machine_that_is_like_one_of_large_pages_has_such():
    """It was asked about pages of 4 KiB, and its holds were said to be of no stated size."""
    ice = pm.machine("ice-lake")
    large = replace(ice, name="large", platform=ice.platform | {"page_size_kib": 64})
    like = pm.machine("new", like=large)
    assert like.page_size_kib == 64
    assert like.page_size_note(64) is None
    assert "The holds of new are for 64 KiB pages; they are used for 4" in like.page_size_note(4)
    assert pm.limit(like).facts["page_size_kib"] == 64
    both = pm.machine("new", like=[large, ice])
    assert both.page_size_kib == 4
    assert "for 4 and 64 KiB pages; they are used for 4 KiB" in both.page_size_note(4)
    assert pm.machine("new", like="ice-lake").page_size_note(4) is None


def test_the_command_line_takes_like():
    given = "--release v6.18 --machine new --like ice-lake --workload page_fault1 --processes 2"
    size = "--cpus 2 --nodes 1 --seconds 0.01 --warmup 0"
    run = CliRunner().invoke(main, ["simulate", *given.split(), *size.split()])
    assert run.exit_code == 0
    assert run.stdout.count("with holds x") == 2
    for arguments, message in (
        ("advise --like ice-lake", "--like needs --machine"),
        ("limit ice-lake --like coffee-lake --p99-us 100", "has a latency table"),
        ("limit new --like nothing --p99-us 100", "machine 'nothing'"),
        ("limit New --like ice-lake --p99-us 100", "not allowed"),
    ):
        wrong = CliRunner().invoke(main, arguments.split())
        assert wrong.exit_code == 2
        assert message in wrong.stderr


@pytest.fixture
def sheet_only(tmp_path, monkeypatch):
    """A data directory in which one machine has a cost sheet and no table."""
    shutil.copytree(DATA / "hardware", tmp_path / "hardware")
    path = tmp_path / "hardware" / "amd-epyc-vm"
    kept = {"costs", "platform"}
    for file in path.iterdir():
        if file.stem not in {*kept, "datapackage"}:
            file.unlink()
    descriptor = json.loads((path / "datapackage.json").read_text())
    descriptor["resources"] = [r for r in descriptor["resources"] if r["name"] in kept]
    (path / "datapackage.json").write_text(json.dumps(descriptor))
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path))
    return path


def test_a_cost_sheet_alone_makes_a_machine(sheet_only):
    assert packages.check(sheet_only.parents[1]) == []
    assert "amd-epyc-vm" not in pm.machines()
    found = pm.machine("amd-epyc-vm")
    assert "cost sheet" in found.derived
    costs = {row["operation"]: row for row in found.costs.records()}
    mean = found.hold_time.refill(2016)
    assert mean.mean_ns == pytest.approx(
        costs["hold_fixed"]["value"] + 2016 * costs["hold_page_alloc"]["value"], rel=0.01
    )
    low, high = mean.interval["mean_ns"]
    assert low < 2016 * costs["hold_page_alloc"]["low"] * 1.2
    assert high > 2016 * costs["hold_page_alloc"]["high"]
    assert found.line_memory.value == costs["line_memory"]["value"]
    assert "ice-lake" in pm.machine("amd-epyc-vm", like="ice-lake").derived
    text = (sheet_only / "costs.csv").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("hold_page_free")]
    (sheet_only / "costs.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"costs\.csv: has no hold_page_free"):
        pm.machine("amd-epyc-vm")


def test_a_sheet_may_have_every_row_that_a_run_takes():
    assert OPERATIONS.keys() < COST_UNITS.keys()


def test_rows_of_holds_are_assumed_only_where_holds_follow_from_the_sheet(sheet_only):
    rows = ["hold_fixed", "hold_page_alloc", "hold_page_free"]
    text = (sheet_only / "costs.csv").read_text().replace(",derived,", ",assumed,")
    (sheet_only / "costs.csv").write_text(text)
    by_sheet = pm.machine("amd-epyc-vm")
    assert [row for row in by_sheet.assumed if row in rows] == rows
    by_table = replace(pm.machine("ice-lake"), costs=None)
    for told in (by_table, pm.machine("amd-epyc-vm", like="ice-lake")):
        assert set(rows) & set(told.sheet.assumed)
        assert set(told.sheet.assumed) - set(told.assumed) <= set(rows)
        assert not set(rows) & set(told.assumed)
        run = make_grid(release="v6.18", machine=told, workload=page_fault1(2)).specs[0]
        assert not [said for said in run.assumed if said.startswith("hold_page")]


def test_cold_pages_cost_a_line_each():
    warm, cold = (pm.limit("ice-lake", pages=pages) for pages in ("warm", "cold"))
    line = pm.machine("ice-lake").line_memory
    for a, b in zip(warm.facts["per_scale"], cold.facts["per_scale"], strict=True):
        more_us = a["pages_per_hold"]["refill"] * line.value / 1e3
        assert a["mean_us"] + more_us == pytest.approx(b["mean_us"], rel=0.2)
        assert b["mean_interval"][1] - b["mean_interval"][0] > 0.5 * more_us
        assert b["measured"] is None
    assert cold.facts["batch_scale"] < warm.facts["batch_scale"]
    assert "Pages are cold" in cold.text
    assert "Pages are warm" in warm.text
    own = pm.machine("amd-epyc-vm").line_memory
    assert own.low > line.low  # measured on it
    with pytest.raises(InputError, match="kind of pages"):
        pm.limit("ice-lake", pages="hot")


def test_a_value_that_is_given_is_the_value():
    """Whatever was changed before, and in which order; what would change nothing is refused."""
    ice = pm.machine("ice-lake")
    slow = ice.slower(2.0).with_costs(handover=100.0)
    assert slow.sheet.value("handover", "llc") == 100.0
    assert slow.slower(2.0).sheet.value("handover", "llc") == 200.0
    assert slow.slower(2.0).sheet.value("line_memory") == 4 * ice.sheet.value("line_memory")
    rate = ice.with_costs(clear_rate=1e6).slower(2.0).sheet
    assert rate.value("clear_rate") == 5e5
    dirty = ice.with_costs(**{"line_dirty.node": 5.0}).with_costs(line_dirty=3.0).sheet
    assert dirty.value("line_dirty", "node") == 3.0
    for row in ("hold_fixed", "hold_page_alloc", "hold_page_free"):
        with pytest.raises(InputError, match=f"{row}: holds are those of the table"):
            ice.with_costs(**{row: 0.0})

"""Advice: what follows from a machine's tables and its zoneinfo."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError

DATA = Path(__file__).parents[1] / "data"
ZONEINFO = DATA / "traces" / "7.2-pf1-8cpu" / "zoneinfo.after"


def test_a_measured_machine_is_told_its_scale_and_the_price():
    told = pm.advise("coffee-lake", zoneinfo=ZONEINFO).as_dict()["batch_scale_max"]
    assert (told["now"], told["advice"], told["to"]) == (5, "lower", 4)
    assert told["line"].startswith("CONFIG_PCP_BATCH_SCALE_MAX=4")
    now, then = (figure for name, figure in told["effect"].items() if name.startswith("p99"))
    assert then["value"] < now["value"]
    assert then["value"] < 100
    for what in ("p99 of a hold", "zone-lock contention", "memory on the lists"):
        figures = [f for name, f in told["effect"].items() if name.startswith(what)]
        assert len(figures) == 2
        assert all(f["low"] <= f["value"] <= f["high"] for f in figures)
        assert all(f["low"] < f["high"] for f in figures)


def test_a_looser_limit_raises_and_the_shipped_scale_is_left():
    told = [
        pm.advise("ice-lake", zoneinfo=ZONEINFO, p99_us=us).batch_scale_max["advice"]
        for us in (20, 100, 1000)
    ]
    assert told == ["lower", "leave", "raise"]


def test_without_a_table_nothing_is_advised_for_the_scale():
    told = pm.advise(zoneinfo=ZONEINFO).batch_scale_max
    assert (told["advice"], told["line"], told["effect"]) == ("leave", None, {})
    assert "data add latency" in told["why"]
    assert "ice-lake" in told["why"]


def test_the_fraction_follows_from_the_share_of_memory():
    left = pm.advise(zoneinfo=ZONEINFO).high_fraction
    assert (left["advice"], left["line"]) == ("leave", None)
    told = pm.advise(zoneinfo=ZONEINFO, stranded_percent=5).high_fraction
    assert (told["advice"], told["to"]) == ("raise", 20)
    assert told["line"] == "sysctl vm.percpu_pagelist_high_fraction=20"
    assert "price" in told["why"]
    assert pm.advise(zoneinfo=ZONEINFO, stranded_percent=12.4).high_fraction["to"] == 9


def test_the_shipped_limits_are_left_as_they_are_on_a_machine_of_two_nodes():
    path = DATA / "traces" / "7.2-numa2-4cpu" / "zoneinfo.after"
    told = pm.advise(zoneinfo=path, stranded_percent=13).high_fraction
    assert told["advice"] == "leave"
    share = told["effect"]["share that the limits allow, now"]["value"]
    assert share == pytest.approx(12.5, abs=0.5)


def test_the_verb_reports_and_needs_no_root(tmp_path):
    lscpu = tmp_path / "lscpu"
    lscpu.write_text("Architecture: x86_64\nCPU(s):                8\n")
    args = ["advise", "--zoneinfo", str(ZONEINFO), "--lscpu", str(lscpu)]
    done = CliRunner().invoke(main, [*args, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {"batch_scale_max", "high_fraction", "rests_on", "does_not_apply"} <= set(told)
    text = CliRunner().invoke(main, args).stdout
    assert "CONFIG_PCP_BATCH_SCALE_MAX = 5: leave" in text
    assert "Does not apply to:" in text
    here = CliRunner().invoke(main, ["advise"])
    assert here.exit_code == 0, here.output


def test_the_memory_of_a_named_machine_is_never_this_hosts(tmp_path, monkeypatch):
    told = pm.advise("ice-lake")
    assert told.high_fraction["advice"] is None
    assert told.high_fraction["effect"] == {}
    assert "ice-lake are not known" in told.high_fraction["why"]
    assert "vm.percpu_pagelist_high_fraction = unknown: no advice\n" in str(told)
    assert not any("/proc/zoneinfo" in line for line in told.rests_on)
    assert any("(assumed: not known of it)" in line for line in told.rests_on)

    shutil.copytree(DATA, tmp_path / "data", symlinks=True, ignore=lambda *_: ["traces"])
    file = tmp_path / "data" / "hardware" / "ice-lake" / "platform.json"
    platform = json.loads(file.read_text()) | {"cpus": 64, "nodes": 2, "memory_gib": 128}
    file.write_text(json.dumps(platform))
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path / "data"))
    told = pm.advise("ice-lake")
    most = told.high_fraction["effect"]["most that the limits allow, now"]["value"]
    assert most == pytest.approx(128 * 1024 / 8, rel=0.01)
    assert told.high_fraction["advice"] == "leave"
    assert any("64 CPUs, 2 nodes, 128" in line for line in told.rests_on)
    assert not any("assumed" in line for line in told.rests_on)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"machine": "ice-lak"}, "ice-lake"),
        ({"release": "v6.6"}, r"v6\.6"),
        ({"p99_us": 0}, "p99_us=0"),
        ({"p99_us": float("nan")}, "p99_us=nan"),
        ({"stranded_percent": 101}, "stranded_percent=101"),
        ({"zoneinfo": "/no/such/file"}, "/no/such/file"),
        ({"zoneinfo": __file__}, "test_advise"),
        ({"lscpu": __file__}, "what lscpu prints"),
    ],
)
def test_what_is_wrong_is_named(change, match):
    with pytest.raises(InputError, match=match):
        pm.advise(**({"zoneinfo": ZONEINFO} | change))


def test_lscpu_of_another_machine_is_noticed(tmp_path):
    (tmp_path / "lscpu").write_text("CPU(s): 4\n")
    with pytest.raises(InputError, match="lists 8 CPUs, but lscpu says 4"):
        pm.advise(zoneinfo=ZONEINFO, lscpu=tmp_path / "lscpu")

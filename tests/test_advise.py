"""Advice: what follows from a machine's tables and its zoneinfo."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError

ZONEINFO = Path(__file__).parents[1] / "data" / "traces" / "7.2-pf1-8cpu" / "zoneinfo.after"


def test_a_measured_machine_is_told_its_scale_and_the_price():
    told = pm.advise("coffee-lake", zoneinfo=ZONEINFO).as_dict()["batch_scale_max"]
    assert (told["now"], told["advice"], told["to"]) == (5, "lower", 4)
    assert told["line"].startswith("CONFIG_PCP_BATCH_SCALE_MAX=4")
    p99 = {k: [float(x) for x in re.findall(r"[\d.]+(?= us|\)| \.\.\.)", v)]
           for k, v in told["effect"].items() if k.startswith("p99")}  # fmt: skip
    now, then = p99.values()
    assert then[0] < now[0]
    assert then[0] < 100
    assert sum(name.startswith("zone-lock contention") for name in told["effect"]) == 2


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
    assert "price" in told["effect"]
    assert pm.advise(zoneinfo=ZONEINFO, stranded_percent=12.4).high_fraction["to"] == 9


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

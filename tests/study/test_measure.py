"""Measuring this machine: figures come back as they were put in, and nothing is left behind."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import DATA
from pcpmodel.cli import main
from pcpmodel.datasets import packages
from pcpmodel.errors import InputError
from pcpmodel.hardware.probe import Missing
from pcpmodel.proc.host import HostFiles
from pcpmodel.study import measure as module
from pcpmodel.study.measure import CYCLE, PAGES, TARGETS
from pcpmodel.trace.hold_tracer import Traced

PAGE_NS, EVENT_NS = {"alloc": 200.0, "free": 120.0}, 170.0

FIGURES = (5e5, 4.9e5, 5.1e5, 4e5, 0.8, 1.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.5, math.nan)
RATES = pd.DataFrame(
    [["faults", 1, "pages", *FIGURES]],
    columns=[field["name"] for field in packages.RATES_RESOURCE["schema"]["fields"]],
)


def load_rates(path):
    columns = packages.read_package(path, "hardware", []).tables["rates"].columns
    names = ("workload", "processes", "rate", "rate_low", "rate_high")
    return list(zip(*(columns[n] for n in names), strict=True))


def rounds_of(page_ns, event_ns, times, seed=1):
    """Rounds on a machine whose pages and events take what is given, a tenth up or down."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(times):
        for copies in CYCLE:
            traced = None
            if copies:
                pages, span = {}, {}
                for side, ns in page_ns.items():
                    pages[side] = np.repeat(TARGETS, 40)
                    noise = rng.uniform(0.9, 1.1, len(pages[side]))
                    each = ns * noise + copies * event_ns
                    span[side] = np.rint((pages[side] - 1) * each).astype(np.int64)
                events = {"kmem/mm_page_alloc": 3000, "kmem/mm_page_free": 1000}
                traced = Traced(pages, span, events, False)
            cpu_s = 1000 * (2000 + 4 * event_ns * (copies > 0) + rng.normal(0, 5)) / 1e9
            did = {"pages": 1000.0, "cpu_s": cpu_s, "wall_s": 1.0}
            size = PAGES if number or copies != 1 else 126
            made.append(module._Round(copies, size, traced, did))
    return made


def pages(rows):
    return [row for row in rows if row.operation.startswith("hold_page")]


def events(rows):
    return [row for row in rows if row.operation.startswith("trace_event")]


def test_the_cost_of_tracing_comes_off():
    missing = []
    rows, table, interval, tracing = module._evaluate(rounds_of(PAGE_NS, EVENT_NS, 8), missing, [])
    assert missing == []
    assert [row.operation for row in events(rows)] == ["trace_event_alloc", "trace_event_free"]
    for row in events(rows):
        assert row.low <= EVENT_NS <= row.high
    for row, side in zip(pages(rows), PAGE_NS, strict=True):
        assert row.operation == f"hold_page_{side}"
        assert row.low <= PAGE_NS[side] <= row.high
        assert abs(row.value / PAGE_NS[side] - 1) < 0.03
    for event_ns in tracing.ns_per_event:
        assert abs(event_ns - EVENT_NS) < 0.03 * EVENT_NS
    assert list(table.batch) == list(TARGETS)
    for side, ns in PAGE_NS.items():
        avg = table[f"{side}_latency_avg_us"].to_numpy()
        assert np.allclose(avg, np.array(TARGETS) * ns / 1e3, rtol=0.03)
        low, high = (interval[f"{side}_latency_avg_{e}_us"].to_numpy() for e in ("low", "high"))
        assert ((low <= avg) & (avg <= high)).all()
        assert (table[f"{side}_latency_p99_us"] > avg).all()


def test_pages_cheaper_than_the_noise_of_tracing_are_not_measured():
    missing: list[Missing] = []
    rows, table, *_ = module._evaluate(
        rounds_of({"alloc": 1.0, "free": 0.0}, 170.0, 3), missing, []
    )
    assert table is None
    assert "holds, free" in {m.name for m in missing}
    assert all(row.low > 0 for row in rows)


def test_halves_that_do_not_agree_widen_the_interval_and_are_named():
    slow = {side: 2 * ns for side, ns in PAGE_NS.items()}
    rounds = [*rounds_of(PAGE_NS, EVENT_NS, 8), *rounds_of(slow, EVENT_NS, 8)]
    unsteady: list[str] = []
    rows, *_ = module._evaluate(rounds, [], unsteady)
    assert unsteady == ["hold_page_alloc", "hold_page_free"]
    for row, side in zip(pages(rows), PAGE_NS, strict=True):
        assert row.low <= PAGE_NS[side] < slow[side] <= row.high
    steady: list[str] = []
    module._evaluate(rounds_of(PAGE_NS, EVENT_NS, 16), [], steady)
    assert steady == []


def test_too_few_holds_make_no_table():
    missing: list[Missing] = []
    _, table, *_ = module._evaluate(rounds_of(PAGE_NS, EVENT_NS, 3), missing, [])
    assert table is None
    (why,) = (m.why for m in missing if m.name == "latency table")
    assert "--minutes" in why


def stored(data, rounds, rows, table, interval, rates=RATES):
    traced = [(each.copies, each.traced) for each in rounds if each.traced is not None]
    return module.store(data, "here", rows, table, interval, [0, 1], traced, False, rates)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "hardware").mkdir()
    return tmp_path


def test_what_is_stored_passes_every_check(data):
    rounds = rounds_of(PAGE_NS, EVENT_NS, 8)
    rows, table, interval, _ = module._evaluate(rounds, [], [])
    path = stored(data, rounds, rows, table, interval)
    assert packages.check(data) == []
    assert sorted(p.name for p in path.iterdir()) == [
        "batch_latency.csv",
        "batch_latency_interval.csv",
        "costs.csv",
        "datapackage.json",
        "platform.json",
        "rates.csv",
    ]
    assert load_rates(path) == [("faults", 1, 5e5, 4.9e5, 5.1e5)]
    with pytest.raises(InputError, match="there already"):
        stored(data, rounds, rows, table, interval)


def test_a_machine_of_that_name_is_measured_again_only_where_that_is_asked(data):
    (data / "hardware" / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match="'mine' is there already; --replace measures it again"):
        module.measure("mine", data=data)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["My_Server"], "machine name 'My_Server' is not allowed"),
        (["mine"], "{}/hardware/mine: machine 'mine' is there already"),
        (["new", "--minutes", "0"], "minutes=0.0 is outside"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_announced(words, said, data):
    (data / "hardware" / "mine").mkdir(parents=True)
    done = CliRunner().invoke(main, ["measure", *words, "--data", str(data)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"pcpmodel: {said.format(data)}")


def test_a_session_that_does_not_agree_with_the_one_before_takes_it_in(data):
    rounds = rounds_of(PAGE_NS, EVENT_NS, 8)
    rows, table, interval, _ = module._evaluate(rounds, [], [])
    path = stored(data, rounds, rows, table, interval)
    before = module._costs_before(path)
    assert set(before) == {(row.operation, "") for row in rows}
    unsteady: list[str] = []
    assert module._beside(rows, before, unsteady) == rows
    assert unsteady == []
    other, *_ = module._evaluate(rounds_of(PAGE_NS | {"free": 300.0}, EVENT_NS, 8), [], [])
    alloc, free = pages(module._beside(other, before, unsteady))
    assert unsteady == ["hold_page_free"]
    assert alloc.high < 250
    assert {row.operation for row in module._beside([], before, unsteady)} == {
        row.operation for row in rows
    }
    assert free.low < PAGE_NS["free"] < 300 <= free.high
    assert "measured before" in free.source
    assert module._costs_before(data / "hardware" / "nowhere") == {}


def test_rates_that_do_not_agree_with_those_before_take_them_in(data):
    rounds = rounds_of(PAGE_NS, EVENT_NS, 8)
    rows, table, interval, _ = module._evaluate(rounds, [], [])
    path = stored(data, rounds, rows, table, interval)
    before = module._rates_before(path)
    assert before == {("faults", 1): (4.9e5, 5.1e5)}
    unsteady: list[str] = []
    assert module._rates_beside(RATES, before, unsteady).equals(RATES)
    assert unsteady == []
    faster = RATES.assign(rate=6e5, rate_low=5.9e5, rate_high=6.1e5)
    both = module._rates_beside(faster, before, unsteady).iloc[0]
    assert (both.rate, both.rate_low, both.rate_high) == (6e5, 4.9e5, 6.1e5)
    assert unsteady == ["rate of faults, 1 processes"]
    assert module._rates_before(data / "nowhere") == {}


def test_a_machine_as_measured_answers_the_questions(data, monkeypatch):
    rounds = rounds_of(PAGE_NS, EVENT_NS, 8)
    rows, table, interval, _ = module._evaluate(rounds, [], [])
    stored(data, rounds, rows, table, interval)
    monkeypatch.setenv("PCPMODEL_DATA", str(data))
    assert pm.limit("here", p99_us=100).tables
    assert pm.fit("here").tables


def test_a_dry_run_touches_nothing(data):
    done = CliRunner().invoke(main, ["measure", "here", "--dry-run", "--json", "--data", str(data)])
    assert done.exit_code == 0
    assert done.stderr == ""  # what it says stands in its answer, once
    answer = json.loads(done.stdout)
    assert answer["path"] is None
    assert [row["what"] for row in answer["touched"]][:3] == ["CPUs", "memory", "tracing"]
    assert list((data / "hardware").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": "No Name"}, "not allowed"),
        ({"minutes": 0.0}, r"outside 0\.2\.\.60"),
        ({"cpus": [1 << 20]}, "only CPUs that this process may use"),
        ({"cpus": []}, "only CPUs that this process may use"),
    ],
)
def test_what_is_wrong_is_said(data, change, match):
    with pytest.raises(InputError, match=match):
        pm.measure(**({"name": "here", "data": data} | change))


def test_a_place_that_cannot_be_written_is_refused_before_minutes_are_spent(data, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != data / "hardware")
    with pytest.raises(InputError, match=f"^{data}/hardware: cannot be written; --data names"):
        pm.measure("here", data=data)


def test_a_busy_machine_is_left_alone(data, monkeypatch):
    monkeypatch.setattr(module, "_busy", lambda _: 90.0)
    with pytest.raises(InputError, match="CPUs are busy 90 %"):
        pm.measure("here", data=data)


def host_of(tmp_path, stalled=0.0):
    """A host of plain files, whose CPUs do nothing."""
    (tmp_path / "proc" / "pressure").mkdir(parents=True)
    (tmp_path / "proc" / "stat").write_text("cpu  90 0 10 800 20 0 0 80 0 0\n")
    (tmp_path / "proc" / "pressure" / "memory").write_text(
        f"some avg10={stalled:.2f} avg60=0.00 avg300=0.00 total=0\n"
    )
    return HostFiles(tmp_path)


def test_cpus_are_as_busy_as_they_are_now(tmp_path, monkeypatch):
    # A load average holds what ended minutes ago: measure had refused after itself.
    host = host_of(tmp_path)
    assert module._busy(host) == 0.0
    # Of 100 ticks: 30 of programs, 60 idle or waiting for a disk, 10 stolen by the host.
    later = "cpu  110 5 15 850 30 0 0 90 0 0\n"
    monkeypatch.setattr(time, "sleep", lambda _: (tmp_path / "proc" / "stat").write_text(later))
    assert module._busy(host) == pytest.approx(40.0)


def test_a_machine_short_of_memory_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    enough = 1 << 40
    module.refuse_busy(host_of(tmp_path / "idle"), [0], enough, force=False)
    stalled = host_of(tmp_path / "stalled", stalled=37.5)
    with pytest.raises(InputError, match=r"wait for memory 37\.5 % of the time, allowed is 5\.0 %"):
        module.refuse_busy(stalled, [0], enough, force=False)
    with pytest.raises(InputError, match=r"0 MiB may be used, needed are"):
        module.refuse_busy(host_of(tmp_path / "full"), [0], 1 << 19, force=False)
    module.refuse_busy(stalled, [0], 1 << 19, force=True)
    module.refuse_busy(stalled, [0], enough, force=True)


@pytest.fixture
def quick(monkeypatch):
    """A measurement of seconds."""
    monkeypatch.setattr(module.Probes, "run", lambda *_: None)
    monkeypatch.setattr(module, "ROUND_S", 0.05)
    monkeypatch.setattr(module, "LEAST_ROUNDS", 1)


def test_without_tracing_the_rest_is_named(data, quick, monkeypatch):
    monkeypatch.setattr(module, "_TRACEFS", data / "nowhere")
    answer = pm.measure("here", 0.2, force=True, data=data)
    why = {m["name"]: m["why"] for m in answer.as_dict()["not_measured"]}
    assert "tracefs" in why["holds"] or "two CPUs" in why["holds"]
    assert packages.check(data) == []
    monkeypatch.setenv("PCPMODEL_DATA", str(data))
    shutil.copytree(DATA / "hardware" / "ice-lake", data / "hardware" / "ice-lake")
    assert pm.machines() == ("ice-lake",)
    here = pm.machine("here")
    assert here.derived in pm.limit(here).text


RUN = """\
from pcpmodel.study import measure as module
module.Probes.run = lambda *_: None
print("begun", flush=True)
module.measure("here", 0.3, force=True, data={data!r})
"""


def instances(tracing):
    return {p for p in (tracing / "instances").iterdir() if p.name.startswith("pcpmodel_")}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("moment", [0.0, 0.7, 1.6])
def test_an_end_at_any_moment_leaves_no_tracing(data, tracing, number, moment):
    before = instances(tracing)
    run = subprocess.Popen(
        [sys.executable, "-c", RUN.format(data=str(data))], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout.readline() == "begun\n"
    time.sleep(moment)
    run.send_signal(number)
    run.communicate(timeout=60)
    assert run.returncode != 0
    if number == signal.SIGKILL:
        with module.hold_tracer(tracing, 1024):  # the next start
            pass
    assert instances(tracing) <= before
    assert list((data / "hardware").iterdir()) == []

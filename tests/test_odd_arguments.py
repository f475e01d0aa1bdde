"""Arguments of another shape than meant: an InputError, whatever they are."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import os
import time

import numpy as np
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import ROOT
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.study.published.cover_letter import _tex
from pcpmodel.workload import Program

ARRAY = np.array([1, 2])


def simulated(**change):
    given = {"release": "v6.18", "machine": "ice-lake", "workload": pm.workload.page_fault1(2),
             "seconds": 0.001, "cpus": 2, "memory_gib": 2}  # fmt: skip
    return pm.simulate(**{**given, **change})


@pytest.mark.parametrize(
    "name",
    ["cpus", "nodes", "memory_gib", "seconds", "seed", "release", "machine", "workload", "engine",
     "batch_scale_max", "changes", "jitter", "warmup_s"],
)  # fmt: skip
@pytest.mark.parametrize("value", [ARRAY, [1, 2], {"a": 1}, object()])
def test_no_argument_of_simulate_is_taken_for_another(name, value):
    with pytest.raises(InputError):
        simulated(**{name: value})


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.draw([[1], [1, 2]]),
        lambda p: p.draw([[1, 2]]),
        lambda p: p.draw(None),
        lambda p: p.draw("abc"),
        lambda p: p.alloc(1, order=ARRAY),
        lambda p: p.alloc(1, migratetype=["movable"]),
        lambda p: p.free(1, of=["home"]),
        lambda p: p.send(ARRAY),
        lambda p: p.one_of(None),
        lambda p: p.one_of([1]),
    ],
)
def test_an_operation_of_a_program_of_another_shape_is_refused(call):
    with pytest.raises(InputError):
        call(Program())


@pytest.mark.parametrize(
    "tables", [[np.zeros(3, np.int32)], [np.zeros((2, 1024), np.int32)], [1], ["x"], None]
)
def test_tables_of_another_shape_never_reach_the_engine(tables):
    work = pm.workload.page_fault1(2)
    work.tasks[0].program.tables = tables
    with pytest.raises(InputError, match=r"Program\.tables"):
        simulated(workload=work)


@pytest.mark.parametrize("value", ["no", "False", "", 8, None, [], ARRAY])
def test_no_other_word_is_taken_for_true(value):
    for make in (
        lambda: pm.workload.page_fault1(2, lru=value),
        lambda: pm.workload.page_fault1(2, threads=value),
        lambda: pm.workload.unix_stream(2, cross_node=value),
        lambda: pm.workload.make("exit_storm", processes=2, spread=value),
        lambda: Program().alloc(1, lru=value),
        lambda: simulated(nohz_idle=value),
    ):
        with pytest.raises(InputError, match="is neither True nor False"):
            make()
    assert pm.workload.page_fault1(2, lru=np.bool_(True)).params["lru"] is True


def test_numbers_of_an_array_are_as_good_as_any():
    """Also in what a result records of itself."""
    plain = {"cpus": 4, "nodes": 2, "memory_gib": 4, "seed": 3, "batch": 31, "high_fraction": 8,
             "batch_scale_max": 2, "samples": 20, "watermark_scale_factor": 20}  # fmt: skip
    arrays = {name: np.int64(value) for name, value in plain.items()}
    one, other = (simulated(**given, seconds=0.001) for given in (plain, arrays))
    assert one.to_dataset().identical(other.to_dataset())
    assert json.dumps(one.summary()["host"]) == json.dumps(other.summary()["host"])
    machine = pm.machine("ice-lake")
    assert pm.limit(machine, batch=np.int64(31)).facts == pm.limit(machine, batch=31).facts


@pytest.mark.parametrize("machine", [3, 1.5, b"ice-lake", [None]])
def test_what_names_no_machine_is_refused(machine):
    for ask in (
        lambda: pm.limit(machine),
        lambda: pm.fit(machine),
        lambda: pm.machine("mine", like=machine),
    ):
        with pytest.raises(InputError, match=r"(machine|like)=.*; allowed: str \| Machine"):
            ask()


def test_a_limit_that_no_double_holds_is_refused():
    for name in ("p99_us", "slowdown"):
        with pytest.raises(InputError, match=f"{name}=1000.*: give a number from 1e-06 to 1e"):
            pm.limit("ice-lake", **{name: 10**400})


@pytest.mark.parametrize("name", ["samples", "seed", "seconds", "jitter", "memory_gib"])
@pytest.mark.parametrize("value", [10**400, -(10**400), float("nan"), float("inf")])
def test_a_number_that_no_double_holds_is_refused(name, value):
    with pytest.raises(InputError, match=name):
        simulated(**{name: value})


@pytest.mark.parametrize("zones", [(1,), [None], 1, "ab", np.zeros(2)])
def test_memory_without_zones_is_refused(zones):
    with pytest.raises(InputError, match="is not a sequence of Zone"):
        pm.Memory("v6.18", zones)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ({"online": [0, 2]}, r"online CPU=2 is outside 0\.\.1"),
        ({"online": [-1]}, "online CPU=-1"),
        ({"online": "0"}, "online CPU='0' is not an integer"),
        ({"online": []}, "online names no CPU"),
        ({"data_cache_bytes": np.arange(9)}, "data_cache_bytes"),
        ({"data_cache_bytes": -1}, "data_cache_bytes=-1"),
    ],
)
def test_memory_with_other_cpus_or_no_data_cache_is_refused(argument, said):
    with pytest.raises(InputError, match=said):
        pm.Memory("v6.18", [pm.Zone(4096)], 2, **argument)


@pytest.mark.parametrize(
    "state",
    [None, [], 1, {"free": 1}, {"free": {0: 1}}, {"free": {}, "held": [1]},
     {"free": {}, "pcp": [1]}, {"free": {}, "blocks": 1}, {"free": [[[0, 1]]]}],
)  # fmt: skip
def test_a_state_of_another_nesting_is_refused_and_changes_nothing(state):
    memory = pm.Memory("v6.18", [pm.Zone(4096, batch=7, high_min=28, high_max=512)])
    before = memory.state()
    with pytest.raises(InputError):
        memory.load(0, state)
    assert memory.state() == before


# The command line -------------------------------------------------------------------------------

SIMULATE = ["simulate", "--release", "v6.6", "--machine", "ice-lake", "--workload", "page_fault1",
            "--processes", "2", "--seconds", "0.001", "--cpus", "2",
            "--memory-gib", "2"]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--param", "lru=no"], "lru='no' is neither True nor False"),
        (["--set", "warm=yes"], "warm='yes' is neither True nor False"),
        (["--param", "processes=3"], "--param processes: use --processes, and once"),
    ],
)
def test_what_two_options_or_no_truth_value_say_is_refused(given, said):
    done = CliRunner().invoke(main, [*SIMULATE, *given])
    assert done.exit_code == 2
    assert said in done.output


def test_truth_values_are_json_s_or_python_s():
    scores = [
        json.loads(CliRunner().invoke(main, [*SIMULATE, "--param", f"lru={word}", "--json"]).stdout)
        for word in ("true", "True", "false", "False")
    ]
    holds = [score["by_kind"]["lru"]["holds"] > 0 for score in scores]
    assert holds == [True, True, False, False]


LIMIT = "02-batch-scale-limit"  # has a parameter p99_us; the first of all notebooks has none


@pytest.mark.parametrize(
    "arguments",
    [
        [*SIMULATE, "--param", "name=2"],
        [*SIMULATE, "--param", "pages=" + "[" * 10_000],
        [*SIMULATE, "--param", "pages=1" + "0" * 400],
        [*SIMULATE, "--set", "jitter=NaN"],
        ["rerun", "--dry-run", "--param", "p99_us=1" + "0" * 400, LIMIT],
        ["rerun", "--dry-run", "--param", "p99_us=" + "[" * 10_000, LIMIT],
        ["record", "--out", "\0", "--seconds", "1"],
        ["advise", "--lscpu", "/dev/zero"],
        ["explain", "--zoneinfo", "fifo"],
        ["advise", "--lscpu", "fifo"],
        ["advise", "--zoneinfo", "fifo"],
        ["sweep", "sweep.json", "--out", "fifo"],
        ["data", "check", ".", "\x1b]0;x\x07"],
    ],
)
def test_what_is_odd_is_wrong_usage_at_once(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    (tmp_path / "data").symlink_to(ROOT / "data")
    base = {"release": "v6.6", "machine": "ice-lake", "cpus": 2, "memory_gib": 2}
    base |= {"workload": {"name": "page_fault1", "processes": 2}, "seconds": 0.001}
    (tmp_path / "sweep.json").write_text(json.dumps({"base": base, "grid": {"seed": [1, 2]}}))
    before = sorted(os.listdir())
    began = time.monotonic()
    done = CliRunner().invoke(main, arguments)
    assert time.monotonic() - began < 60
    assert done.exit_code == 2, (done.output, done.exception)
    assert isinstance(done.exception, SystemExit)
    assert done.stderr.strip()
    assert "\x1b" not in done.output
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    "change",
    [
        {"figures": 1.5}, {"figures": [[1]]}, {"figures": "score_per_s"}, {"labels": True},
        {"labels": [1, 2]}, {"options": 1}, {"options": [1]}, {"seeds": "x"}, {"releases": 1},
        {"releases": [1]}, {"workloads": [1]}, {"workloads": {}}, {"machine": []},
        {"workloads": [{"name": 5}]}, {"workloads": [{"name": "page_fault1", "name2": []}]},
        {"workloads": [{"published": []}]}, {"workloads": [{"published": "hahn-v4", "table": []}]},
    ],
)  # fmt: skip
def test_a_cover_letter_of_another_shape_is_wrong_usage(change, tmp_path):
    spec = {"releases": ["v6.6", "v6.6+p1"], "machine": "ice-lake", "seeds": 2,
            "workloads": [{"name": "page_fault1", "processes": 2}]}  # fmt: skip
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec | change))
    done = CliRunner().invoke(main, ["cover-letter", str(path)])
    assert done.exit_code == 2, (done.output, done.exception)


def test_latex_has_no_commands_but_our_own():
    said = _tex("x\\input{/etc/passwd} $a$ ~^ 5 % & # _ \n\\write18{id} ±")
    assert said == (
        r"x\textbackslash{}input\{/etc/passwd\} \$a\$ \textasciitilde{}\textasciicircum{} "
        r"5 \% \& \# \_  \textbackslash{}write18\{id\} $\pm$"
    )

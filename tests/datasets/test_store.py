"""data list, data remove, data update platform, and what a revision keeps."""

# SPDX-License-Identifier: GPL-2.0-only

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

from helpers.latency import SPR, add, raw_options, write
from helpers.paths import DATA
from pcpmodel.cli import main
from pcpmodel.datasets import packages, store
from pcpmodel.errors import InputError

MINE = ("batch_latency.csv", "batch_latency_interval.csv", "datapackage.json", "platform.json")


@pytest.fixture
def root(tmp_path):
    """One shipped machine, one that was added."""
    path = tmp_path / "data"
    shutil.copytree(DATA / "hardware/ice-lake", path / "hardware/ice-lake")
    platform = write(tmp_path, json.dumps({"title": "Mine", "cpus": 64, "memory_gib": 256}), "p")
    assert add(path, "--machine", "mine", *raw_options(tmp_path), "--platform", platform)
    return path


def run(root, *arguments):
    return CliRunner().invoke(main, ["data", *arguments, "--data", str(root)])


def platform(root, name="mine"):
    return json.loads((root / "hardware" / name / "platform.json").read_text())


def contents(root):
    return {str(p): p.read_bytes() for p in root.rglob("*") if p.is_file()}


# --- revisions ----------------------------------------------------------------


def test_the_tool_that_was_read_is_remembered(root):
    assert platform(root)["tool"] == "ftrace function_graph"


def test_a_revision_keeps_platform_and_hidden_files(root, tmp_path):
    (root / "hardware/mine/.notes").write_text("mine")
    done = json.loads(add(root, SPR, "--machine", "mine", "--replace").stdout)
    assert (done["kept"], done["dropped"]) == (["platform.json"], ["batch_latency_interval.csv"])
    assert platform(root)["cpus"] == 64
    assert platform(root)["title"] == "Mine"
    assert (root / "hardware/mine/.notes").read_text() == "mine"
    assert (root / "hardware/mine/batch_latency.csv").read_bytes() == SPR.read_bytes()
    more = write(tmp_path, '{"cpus": 128, "governor": "performance"}', "more.json")
    add(root, SPR, "--machine", "mine", "--replace", "--platform", more)
    known = platform(root)
    assert (known["title"], known["cpus"], known["memory_gib"]) == ("Mine", 128, 256)
    assert known["governor"] == "performance"
    assert packages.check(root) == []


def test_a_revision_of_figures_inside_their_intervals_keeps_these(root, tmp_path):
    interval = root / "hardware/mine/batch_latency_interval.csv"
    before = interval.read_bytes()
    lines = (root / "hardware/mine/batch_latency.csv").read_text().splitlines()
    lines[1] = lines[1].replace("63,,", "63,500000,")
    rev = write(tmp_path, "\n".join(lines) + "\n", "rev2.csv")
    done = json.loads(add(root, rev, "--machine", "mine", "--replace").stdout)
    assert done["kept"] == ["platform.json", "batch_latency_interval.csv"]
    assert done["dropped"] == []
    assert interval.read_bytes() == before
    titles = [s["title"] for s in json.loads(
        (root / "hardware/mine/datapackage.json").read_text())["sources"]]  # fmt: skip
    assert (titles[0], len(titles)) == ("rev2.csv", 9)
    assert packages.check(root) == []


def test_a_revision_does_not_lose_a_platform_that_cannot_be_read(root, tmp_path):
    (root / "hardware/mine/platform.json").write_text('{"cpus": 64, "cpu": 1}')
    before = contents(root)
    result = add(root, SPR, "--machine", "mine", "--replace")
    assert result.exit_code == 2
    assert "it would be lost: mend it, or give --platform" in result.stderr
    assert contents(root) == before
    given = write(tmp_path, "{}", "empty.json")
    assert add(root, SPR, "--machine", "mine", "--replace", "--platform", given).exit_code == 0


# --- list -----------------------------------------------------------------------


def test_list_says_name_title_tables_rows_and_source(root):
    (root / "hardware/ice-lake/more.csv").write_text("x")
    answer = json.loads(run(root, "list", "--json").stdout)
    ice, mine = answer["packages"]
    assert answer["data"] == str(root)
    assert (ice["kind"], ice["name"], ice["added"]) == ("hardware", "ice-lake", False)
    assert ice["title"] == "Batch latency, Ice Lake Server"
    assert ice["tables"] == [{"name": "batch_latency", "rows": 6}, {"name": "costs", "rows": 27}]
    assert ice["sources"] == ["Huang Ying 2023-09-20"]
    assert "more.csv: is not named in" in ice["faults"][0]
    assert (mine["name"], mine["added"], mine["rows"], mine["faults"]) == ("mine", True, 8, [])
    text = run(root, "list").stdout
    assert "  ice-lake: Batch latency, Ice Lake Server\n" in text
    assert "+ mine: Batch latency, Mine\n" in text
    assert "1 FAULTS: pcpmodel data check" in text
    assert run(root / "nowhere", "list").exit_code == 2


def test_list_shows_all_that_ships():
    listed = {(entry.kind, entry.name): entry for entry in store.entries(DATA)}
    assert {name for kind, name in listed if kind == "published"} == {
        path.name for path in (DATA / "published").iterdir()
    }
    assert all(entry.sources and entry.rows and not entry.faults for entry in listed.values())
    assert not any(entry.added for entry in listed.values())


# --- remove ---------------------------------------------------------------------


def test_remove_takes_the_machine_and_nothing_else(root):
    before = contents(root / "hardware/ice-lake")
    done = run(root, "remove", "mine", "--yes", "--json")
    assert done.exit_code == 0, done.output
    path = str(root / "hardware/mine")
    assert json.loads(done.stdout) == {"kind": "hardware", "name": "mine", "path": path, "rows": 8}
    assert [p.name for p in (root / "hardware").iterdir()] == ["ice-lake"]
    assert contents(root / "hardware/ice-lake") == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine"], "Nobody is there to ask; --yes does it"),
        (["ice-lake", "--yes"], "came with the data; --force removes it all the same"),
        (["published/mine", "--yes"], "unknown name 'published/mine'"),
        (["mne", "--yes"], "did you mean 'mine'?"),
        (["../hardware/mine", "--yes"], "unknown name"),
        (["", "--yes"], "unknown name"),
    ],
)
def test_remove_refuses_and_changes_nothing(arguments, said, root):
    before = contents(root)
    result = run(root, "remove", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert contents(root) == before


def test_remove_asks_where_somebody_can_answer(root, monkeypatch):
    monkeypatch.setattr("pcpmodel.cli._can_answer", lambda: True)
    command = ["data", "remove", "mine", "--data", str(root)]
    assert CliRunner().invoke(main, command, input="n\n").exit_code == 1
    assert (root / "hardware/mine").is_dir()
    done = CliRunner().invoke(main, command, input="y\n")
    assert done.exit_code == 0
    assert "its reports leave at the next pcpmodel rerun" in done.stdout
    assert not (root / "hardware/mine").exists()


def test_remove_of_what_shipped_needs_force_and_a_name_of_two_kinds_its_kind(root):
    shutil.copytree(root / "hardware/mine", root / "workload/mine")
    assert "say which: hardware/mine, workload/mine" in run(root, "remove", "mine").stderr
    assert run(root, "remove", "hardware/mine", "--yes").exit_code == 0
    assert (root / "workload/mine").is_dir()
    assert run(root, "remove", "ice-lake", "--yes", "--force").exit_code == 0
    assert list((root / "hardware").iterdir()) == []


# --- update platform --------------------------------------------------------------


def test_update_sets_typed_fields_and_leaves_the_rest(root):
    (root / "hardware/mine/.notes").write_text("mine")
    before = contents(root)
    done = run(root, "update", "platform", "mine", "cpus=128", "cpu_mhz=2e3", "kernel=6.18",
               "memory_gib=null", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["changed"] == {
        "cpus": {"before": 64, "now": 128},
        "cpu_mhz": {"before": None, "now": 2000.0},
        "kernel": {"before": None, "now": "6.18"},
        "memory_gib": {"before": 256, "now": None},
    }
    known = platform(root)
    assert (known["cpus"], known["kernel"], known["memory_gib"]) == (128, "6.18", None)
    assert known["title"] == "Mine"
    after = contents(root)
    path = str(root / "hardware/mine/platform.json")
    assert {p for p in before | after if before.get(p) != after.get(p)} == {path}
    assert packages.check(root) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine", "cpus=many"], "cpus: given 'many'; allowed: a whole number from 1 to 1048576"),
        (["mine", "kernel=6.18", "cpus=0"], "cpus: given 0; allowed"),
        (["mine", "page_size_kib=8"], "given 8; allowed: one of 4, 16, 64 or null"),
        (["mine", "cpus="], "cpus: given ''"),
        (["mine", "cpus_per_node=32;32"], "given '32;32'; allowed: a text that matches [0-9]"),
        (
            ["mine", "cpus_per_node=32,16"],
            "given '32,16', which are 48 cpus; allowed: those of cpu",
        ),
        (["mine", "nodes=3", "cpus_per_node=32,32"], "are 2 nodes; allowed: those of nodes, 3"),
        (["mine", "nodes=3", "gib_per_node=16,16"], "are 2 nodes; allowed: those of nodes, 3"),
        (
            ["mine", "memory_gib=64", "gib_per_node=16,16"],
            "given 32 GiB; allowed: those of memory_",
        ),
        (["mine", "cpuless_gib=256"], "given 256; allowed: less than memory_gib, 256"),
        (["mine", "gib_per_node=0,0"], "gib_per_node': given '0,0'; allowed: above 0 for one node"),
        (["mine", "cpus=8", "llc_cpus=16"], "llc_cpus': given 16; allowed: at most cpus, 8"),
        (["mine", "cpu_mhz=3.2"], "cpu_mhz: given 3.2; allowed: a number with a point from 10 to"),
        (["mine", "cpuless_gib=64"], "given 64; allowed: 0 where cpus_per_node names no node"),
        (["mine", "title="], "given ''; allowed: a text or null"),
        (["mine", "title=\udcff"], "given '\\udcff'; allowed: a text or null"),
        (["mine", "cpu=1"], "unknown field 'cpu'; did you mean 'cpus'?"),
        (["mine", "sources=[]"], "unknown field 'sources'"),
        (["mine", "cpus"], "'cpus' is not NAME=VALUE"),
        (["mine", "cpus=1", "cpus=2"], "'cpus' is given twice"),
        (["mne", "cpus=1"], "unknown machine 'mne'; did you mean 'mine'?"),
        (["mine"], "Missing argument"),
    ],
)
def test_update_refuses_and_changes_nothing(arguments, said, root):
    before = contents(root)
    result = run(root, "update", "platform", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert contents(root) == before


def test_update_mends_a_field_that_is_wrong(root):
    path = root / "hardware/mine/platform.json"
    path.write_text(json.dumps(platform(root) | {"cpus": "many"}))
    assert "column 'cpus'" in run(root, "update", "platform", "mine", "nodes=2").stderr
    assert run(root, "update", "platform", "mine", "cpus=64").exit_code == 0
    assert packages.check(root) == []


# --- several at once ------------------------------------------------------------


def in_between(monkeypatch, module, name, other):
    """Let ``other`` run in a thread once somebody calls a function of ``module``; its errors."""
    call, errors, started = getattr(module, name), [], []

    def one():
        try:
            other()
        except InputError as error:
            errors.append(str(error))

    def called(*args, **options):
        if not started:
            started.append(threading.Thread(target=one))
            started[0].start()
            started[0].join(0.5)  # it is through now, or waits
        return call(*args, **options)

    monkeypatch.setattr(module, name, called)
    return started, errors


def test_the_second_of_two_that_add_at_once_is_refused(root, monkeypatch):
    files = {name: (root / "hardware/mine" / name).read_bytes() for name in MINE}
    second = files | {"batch_latency.csv": b"another's"}
    started, errors = in_between(
        monkeypatch, os, "fsync", lambda: store.store_package(root, "hardware", "twice", second)
    )
    store.store_package(root, "hardware", "twice", files)
    started[0].join()
    assert (root / "hardware/twice/batch_latency.csv").read_bytes() == files["batch_latency.csv"]
    assert len(errors) == 1
    assert "machine 'twice' is there already; --replace overwrites it" in errors[0]
    assert sorted(os.listdir(root / "hardware")) == ["ice-lake", "mine", "twice"]


def test_the_second_is_refused_where_nothing_can_be_held(root, monkeypatch):
    files = {name: (root / "hardware/mine" / name).read_bytes() for name in MINE}
    monkeypatch.setattr(fcntl, "flock", no_locks)
    started, errors = in_between(
        monkeypatch, os, "fsync", lambda: store.store_package(root, "hardware", "twice", files)
    )
    with pytest.raises(InputError, match="'twice' is there already; --replace overwrites it"):
        store.store_package(root, "hardware", "twice", files)
    started[0].join()
    assert errors == []
    assert sorted(os.listdir(root / "hardware")) == ["ice-lake", "mine", "twice"]


def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def test_of_two_updates_at_once_neither_is_lost(root, monkeypatch):
    started, errors = in_between(
        monkeypatch, store, "dump_json", lambda: store.update_platform(
            "mine", {"governor": "performance"}, data=root)
    )  # fmt: skip
    store.update_platform("mine", {"cpus": "128"}, data=root)
    started[0].join()
    assert errors == []
    known = platform(root)
    assert (known["cpus"], known["governor"], known["title"]) == (128, "performance", "Mine")


def test_an_update_while_a_revision_comes_in_is_not_lost(root, monkeypatch):
    started, errors = in_between(
        monkeypatch, store, "dump_csv", lambda: store.update_platform(
            "mine", {"governor": "performance"}, data=root)
    )  # fmt: skip
    assert add(root, SPR, "--machine", "mine", "--replace").exit_code == 0
    started[0].join()
    assert errors == []
    assert platform(root)["governor"] == "performance"
    assert (root / "hardware/mine/batch_latency.csv").read_bytes() == SPR.read_bytes()


# --- after a kill ---------------------------------------------------------------


KILLED = (
    "import os, signal, sys; from pcpmodel.datasets import store\n"
    "store.shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
    "store.{}\n"
)


@pytest.mark.parametrize(
    "change", ["remove('mine', data={!r})", "update_platform('mine', {{'cpus': '64'}}, data={!r})"]
)
def test_what_a_killed_process_left_goes_with_the_next_change(change, root):
    kept = {".notes.0123456789abcdef.txt", ".mine"}
    for name in kept:
        (root / "hardware" / name).mkdir()
    code = KILLED.format(change.format(str(root)))
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    left = set(os.listdir(root / "hardware")) - {"ice-lake", "mine", *kept}
    assert len(left) == 1
    assert run(root, "update", "platform", "ice-lake", "cpus=64").exit_code == 0
    assert set(os.listdir(root / "hardware")) - {"mine"} == {"ice-lake", *kept}


def test_what_was_killed_between_two_renames_is_put_back(root):
    """Where the file system cannot exchange names."""
    fresh = root / "hardware/.ice-lake.0123456789abcdef"
    before = contents(root / "hardware/ice-lake")
    shutil.copytree(root / "hardware/ice-lake", fresh)
    (fresh / "platform.json").unlink()
    (root / "hardware/ice-lake").rename(f"{fresh}.old")
    assert run(root, "update", "platform", "mine", "cpus=64").exit_code == 0
    assert sorted(os.listdir(root / "hardware")) == ["ice-lake", "mine"]
    assert contents(root / "hardware/ice-lake") == before

"""Sweeps: the same bytes however they are computed, resumed or killed."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.simulation.run import make_spec
from pcpmodel.study.sweep import FIGURES, figures, read_spec

MACHINE = pm.machine("sapphire-rapids")
GRID = {"release": ["v6.6", "v6.7"], "high_pages": [361, 1000], "seed": [1, 2]}


def spec(**options):
    return make_spec(
        **{
            "release": "v6.6",
            "machine": MACHINE,
            "workload": pm.workload.page_fault1(8, pages=3000),
            "cpus": 8,
            "nodes": 2,
            "memory_gib": 16,
            "seconds": 0.02,
            **options,
        }
    )


def test_one_thread_two_threads_and_an_executor_give_the_same_bytes(tmp_path):
    files = []
    for name, how in (
        ("one", {"workers": 1}),
        ("two", {"workers": 2}),
        ("pool", {"executor": ThreadPoolExecutor(3)}),
    ):
        pm.sweep(spec(), out=tmp_path / name, **how, **GRID)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1] == files[2]
    assert sorted(os.listdir(tmp_path)) == ["one", "pool", "two"]


def test_every_cell_is_what_simulate_says(tmp_path):
    data = pm.sweep(spec(), **GRID)
    cell = data.sel(release="v6.7", high_pages=1000, seed=2)
    alone = figures(
        pm.simulate(
            release="v6.7",
            machine=MACHINE,
            workload=pm.workload.page_fault1(8, pages=3000),
            cpus=8,
            nodes=2,
            memory_gib=16,
            seconds=0.02,
            high_pages=1000,
            seed=2,
        )
    )
    for name in FIGURES:
        assert float(cell[name]) == alone[name]
        assert data[name].attrs["units"]
    assert data.sizes == {"release": 2, "high_pages": 2, "seed": 2}


def test_file_reads_back_as_it_was(tmp_path):
    data = pm.sweep(spec(), out=tmp_path / "grid.nc", **GRID)
    with xr.open_dataset(tmp_path / "grid.nc", engine="scipy") as back:
        assert back.attrs == data.attrs
        for name in FIGURES:
            np.testing.assert_array_equal(back[name], data[name])


def test_patches_and_workloads_can_be_axes():
    data = pm.sweep(
        spec(),
        patch=["", "drain-two-in-a-row", "alloc-scale"],
        workload=[pm.workload.page_fault1(4, pages=500), pm.workload.unix_stream(2)],
    )
    assert data.sizes == {"patch": 3, "workload": 2}
    assert float(data.refills[2, 0]) < float(data.refills[0, 0])


def test_a_finished_run_is_never_repeated(tmp_path, monkeypatch):
    out = tmp_path / "grid.nc"
    whole = pm.sweep(spec(), **GRID)
    from pcpmodel.study import sweep as module

    done = []
    real = module._cell

    def dies_at_the_fifth(one):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(one)
        return real(one)

    monkeypatch.setattr(module, "_cell", dies_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        pm.sweep(spec(), out=out, workers=1, **GRID)
    assert not out.exists()
    journal = out.with_name("grid.nc.cells")
    kept = journal.read_bytes()
    assert kept.count(b"\n") == 1 + 5
    journal.write_bytes(kept + b'{"run": 6, "figu')  # killed while writing
    again = []
    monkeypatch.setattr(module, "_cell", lambda one: again.append(one) or real(one))
    assert pm.sweep(spec(), out=out, workers=1, **GRID).identical(whole)
    assert len(again) == 8 - 5
    assert not journal.exists()


def test_a_journal_of_another_sweep_is_refused(tmp_path):
    out = tmp_path / "grid.nc"
    (tmp_path / "grid.nc.cells").write_text('{"sweep": "other", "version": "0"}\n')
    with pytest.raises(InputError, match="another sweep"):
        pm.sweep(spec(), out=out, **GRID)
    (tmp_path / "grid.nc.cells").write_text("rubbish\n")
    with pytest.raises(InputError, match="row 1: is not a journal"):
        pm.sweep(spec(), out=out, **GRID)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"release": "v6.6"}, "list of values"),
        ({"release": []}, "at least one"),
        ({"seed": [1, 1]}, "none twice"),
        ({"relase": ["v6.6"]}, "did you mean 'release'"),
        ({"release": ["v6.6", "v9"]}, "run release='v9'"),
        ({"high_pages": [30]}, "below batch"),
        ({"cpus": [8, 0]}, "cpus=0"),
        ({"cpus": [4]}, "8 tasks"),
        ({"memory_gib": [0.1]}, "memory_gib=0.1"),
        ({"high_fraction": [4]}, "EINVAL"),
        ({"patch": ["alloc-scael"]}, "did you mean 'alloc-scale'"),
        ({"seed": range(2000), "jitter": [i / 1000 for i in range(1000)]}, "at most"),
    ],
)
def test_impossible_grids_are_refused_before_anything_runs(grid, message, tmp_path):
    with pytest.raises(InputError, match=message):
        pm.sweep(spec(), out=tmp_path / "x.nc", **grid)
    assert not list(tmp_path.iterdir())


def describe(path, **change):
    text = {
        "base": {
            "release": "v6.6",
            "machine": "sapphire-rapids",
            "workload": {"name": "page_fault1", "processes": 64},
            "cpus": 64,
            "seconds": 0.2,
        },
        "grid": {"release": ["v6.6", "v6.6+p3"], "seed": list(range(20))},
        **change,
    }
    path.write_text(json.dumps(text))
    return path


@pytest.mark.slow
def test_killed_and_started_again_it_finishes_the_rest(tmp_path):
    description, out = describe(tmp_path / "sweep.json"), tmp_path / "grid.nc"
    code = "import sys; from pcpmodel.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "sweep", str(description), "--out", str(out), "--json"]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(pm.__file__))}
    journal = tmp_path / "grid.nc.cells"
    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if journal.exists() and journal.read_bytes().count(b"\n") > 5:
            break
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not out.exists()
    kept = journal.read_bytes().splitlines()
    assert len(kept) > 5
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"runs": 40, "out": str(out)}
    base, grid = read_spec(description)
    pm.sweep(base, out=tmp_path / "fresh.nc", **grid)
    assert out.read_bytes() == (tmp_path / "fresh.nc").read_bytes()


@pytest.mark.slow
def test_dask_with_a_killed_worker_gives_the_same_bytes(tmp_path):
    distributed = pytest.importorskip("distributed")
    grid = {"release": ["v6.6", "v6.7", "v6.19"], "seed": list(range(8))}
    base = spec(workload=pm.workload.page_fault1(64), cpus=64, memory_gib=64, seconds=1.0)
    pm.sweep(base, workers=1, out=tmp_path / "threads.nc", **grid)
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            protocol="tcp",
            dashboard_address=None,
            host="127.0.0.1",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())
        killed = []

        def kill_one(done, size):
            if done >= 4 and not killed:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        pm.sweep(
            base,
            executor=client.get_executor(retries=3),
            workers=2,
            out=tmp_path / "dask.nc",
            progress=kill_one,
            **grid,
        )
    assert killed
    assert (tmp_path / "dask.nc").read_bytes() == (tmp_path / "threads.nc").read_bytes()


def test_command_line_writes_the_grid(tmp_path):
    grid = {"release": ["v6.6", "v6.7"]}
    description = describe(tmp_path / "sweep.json", grid=grid)
    done = CliRunner().invoke(
        main, ["sweep", str(description), "--out", str(tmp_path / "o.nc"), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["runs"] == 2
    assert "2 runs, at most about" in done.stderr
    assert (tmp_path / "o.nc").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"base": {"release": "v6.6"}},
        {"base": []},
        {"grid": {"release": "v6.6"}},
        {"grid": {"workload": ["page_fault1"]}},
        {"base": {"release": "v6.6", "machine": "sapphire-rapids", "workload": {"name": "pf"}}},
        {"more": 1},
    ],
)
def test_command_line_refuses_wrong_descriptions(change, tmp_path):
    description = describe(tmp_path / "sweep.json", **change)
    done = CliRunner().invoke(main, ["sweep", str(description), "--out", str(tmp_path / "o.nc")])
    assert done.exit_code == 2, done.output
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.json"]


def test_command_line_refuses_what_is_not_json_and_where_nobody_listens(tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert CliRunner().invoke(main, ["sweep", str(broken), "--out", "x.nc"]).exit_code == 2
    description = describe(tmp_path / "sweep.json")
    out = str(tmp_path / "nowhere" / "o.nc")
    assert CliRunner().invoke(main, ["sweep", str(description), "--out", out]).exit_code == 2

"""Sweeps: the same bytes however they are computed, resumed or killed."""

# SPDX-License-Identifier: GPL-2.0-only

import inspect
import json
import multiprocessing
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import ROOT
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.simulation.run import execute
from pcpmodel.simulation.spec import make_spec
from pcpmodel.study.sweep import journal as journals
from pcpmodel.study.sweep import run as running
from pcpmodel.study.sweep import workers
from pcpmodel.study.sweep.grid import FIGURES, figures, make_grid, read_grid
from pcpmodel.study.sweep.run import run_grid
from pcpmodel.workload import Task, Workload

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


def test_a_warm_up_may_be_an_axis():
    """It is a figure of a run as well, of which no axis says it."""
    data = pm.sweep(spec(), warmup_s=[0.0, 0.01], progress=False)
    assert data.warmup_s.values.tolist() == [0.0, 0.01]
    assert "warmup_s" not in data.data_vars
    assert "warmup_s" in pm.sweep(spec(warmup_s=0.01), seed=[1], progress=False).data_vars


def test_over_100us_is_of_refills_and_drains_alone():
    """A block past the lists is neither, and there are many where trylocks fail."""
    given = {"hold": "drawn", "seconds": 0.1}
    data = pm.sweep(spec(**given), trylock_failure=[0.0, 0.2], progress=False)
    for failure in (0.0, 0.2):
        run = execute(spec(**given, trylock_failure=failure))
        over = [run.over_probability(kind)[100] for kind in ("refill", "drain")]
        told = float(data["over_100us"].sel(trylock_failure=failure))
        assert 0 < min(over) <= told <= max(over)


def test_what_nobody_sampled_is_no_number():
    data = pm.sweep(spec(), samples=[0, 20], progress=False)
    for name in ("pages_in_pcp_mean", "pages_in_pcp_max"):
        none, some = data[name].values
        assert np.isnan(none)
        assert some > 0


def test_file_reads_back_as_it_was(tmp_path):
    data = pm.sweep(spec(), out=tmp_path / "grid.nc", **GRID)
    with xr.open_dataset(tmp_path / "grid.nc", engine="scipy") as back:
        assert back.attrs == data.attrs
        for name in FIGURES:
            np.testing.assert_array_equal(back[name], data[name])


def test_what_a_run_does_not_know_goes_through_the_journal(tmp_path, monkeypatch):
    """Whether rates stood is not looked at where the warm-up is given."""
    out, given = tmp_path / "grid.nc", {**GRID, "warmup_s": 0.001}
    done, real = [], workers.compute

    def stopped(one, *how):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(one)
        return real(one, *how)

    monkeypatch.setattr(workers, "compute", stopped)
    with pytest.raises(KeyboardInterrupt):
        pm.sweep(spec(), out=out, workers=1, **given)
    monkeypatch.undo()
    data = pm.sweep(spec(), out=out, **given)
    assert np.isnan(data["stands"]).all()
    assert np.isfinite(data["score_per_s"]).all()
    assert data.equals(pm.sweep(spec(), **given))


def test_patches_and_workloads_can_be_axes():
    data = pm.sweep(
        spec(),
        patch=["", "drain-two-in-a-row", "alloc-scale"],
        warmup_s=0.0,
        workload=[pm.workload.page_fault1(4, pages=500), pm.workload.unix_stream(2)],
    )
    assert data.sizes == {"patch": 3, "workload": 2}
    assert float(data.refills[2, 0]) < float(data.refills[0, 0])


def test_what_a_kernel_does_not_look_at_makes_no_run_of_its_own(monkeypatch):
    """v6.6 has no CONFIG_PCP_BATCH_SCALE_MAX, v6.7 has; the first seed of all comes first."""
    grid = {"release": ["v6.6", "v6.7"], "batch_scale_max": [0, 5], "seed": [1, 2]}
    done, said = [], []
    monkeypatch.setattr(
        workers, "compute", lambda *run: done.append(run[0]) or running.compute(*run)
    )
    data = pm.sweep(spec(high_pages=361), workers=1, progress=lambda *now: said.append(now), **grid)
    told = [(run.seed, run.release.name, run.release.batch_scale_max) for run in done]
    assert told == [
        (seed, *state) for seed in (1, 2) for state in (("v6.6", 0), ("v6.7", 0), ("v6.7", 5))
    ]
    assert said == [(runs, 8) for runs in range(9)]
    alone = execute(spec(high_pages=361, batch_scale_max=5, seed=2))
    cell = data.sel(release="v6.6", batch_scale_max=5, seed=2)
    assert {name: float(cell[name]) for name in FIGURES} == figures(alone)
    assert (data.refills.sel(batch_scale_max=0) != data.refills.sel(batch_scale_max=5)).any()


def test_a_finished_run_is_never_repeated(tmp_path, monkeypatch, capsys):
    out = tmp_path / "grid.nc"
    whole = pm.sweep(spec(), **GRID)
    done = []
    real = workers.compute

    def dies_at_the_fifth(one, *how):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(one)
        return real(one, *how)

    monkeypatch.setattr(workers, "compute", dies_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        pm.sweep(spec(), out=out, workers=1, progress=False, **GRID)
    assert f"5 of 8 runs are kept in {out}.cells; start the same" in capsys.readouterr().err
    assert not out.exists()
    journal = out.with_name("grid.nc.cells")
    kept = journal.read_bytes()
    assert kept.count(b"\n") == 1 + 5
    journal.write_bytes(kept + b'{"run": 6, "figu')  # killed while writing
    again = []
    monkeypatch.setattr(workers, "compute", lambda one, *how: again.append(one) or real(one, *how))
    assert pm.sweep(spec(), out=out, workers=1, progress=False, **GRID).identical(whole)
    assert len(again) == 8 - 5
    assert not journal.exists()


def test_a_finished_sweep_is_read_and_not_run_again(tmp_path, monkeypatch, capsys):
    out = tmp_path / "grid.nc"
    made = pm.sweep(spec(), out=out, **GRID)
    written = out.read_bytes()
    monkeypatch.setattr("pcpmodel.study.sweep.workers.compute", None)
    assert pm.sweep(spec(), out=out, **GRID).identical(made)
    assert "nothing to do" in capsys.readouterr().err
    assert out.read_bytes() == written
    assert os.listdir(tmp_path) == ["grid.nc"]


@pytest.mark.parametrize("other", ["sweep", "text", "empty", "netcdf"])
def test_an_output_that_is_something_else_stays_as_it_is(other, tmp_path):
    out = tmp_path / "grid.nc"
    if other == "sweep":
        pm.sweep(spec(), out=out, progress=False, release=["v6.6"])
    elif other == "netcdf":
        xr.Dataset({"mine": ("x", [1.0])}).to_netcdf(out, engine="scipy")
    else:
        out.write_text("my notes\n" if other == "text" else "")
    before = out.read_bytes()
    with pytest.raises(InputError, match=r"grid\.nc: exists and is"):
        pm.sweep(spec(), out=out, **GRID)
    assert out.read_bytes() == before
    assert os.listdir(tmp_path) == ["grid.nc"]


HEAD = {"sweep": make_grid(spec(), **GRID).digest, "version": pm.__version__}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"sweep": "other", "version": "0"}\n', "row 1: belongs to another sweep"),
        ("cells of mine\n", "row 1: is not a journal"),
        ("no line end", "row 1: is not a journal"),
        ("\n", "row 1: is not a journal"),
        (json.dumps(HEAD) + '\n{"run": 0}\n', "row 2: is damaged"),
        (json.dumps(HEAD) + '\n{"run": 99, "figures": {}}\n', "row 2: is damaged"),
        (json.dumps(HEAD) + "\n[]\nrest", "row 2: is damaged"),
        (json.dumps(HEAD) + "\n\xff\n", "row 2: is damaged"),
    ],
)
def test_a_file_in_the_journals_place_stays_as_it_is(text, message, tmp_path):
    there = tmp_path / "grid.nc.cells"
    there.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=rf"grid\.nc\.cells, {message}"):
        pm.sweep(spec(), out=tmp_path / "grid.nc", **GRID)
    assert there.read_bytes() == text.encode("latin-1")


def test_on_a_full_disk_the_runs_that_are_done_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = pm.sweep(spec(), progress=False, **GRID)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))  # stands in for the disk
    try:
        with pytest.raises(InputError, match=r"grid\.nc\.cells: cannot be written: File too large"):
            pm.sweep(spec(), out="grid.nc", workers=1, progress=False, **GRID)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    kept = int(re.search(r"(\d) of 8 runs are kept", capsys.readouterr().err)[1])
    first = []
    again = pm.sweep(spec(), out="grid.nc", progress=lambda done, _: first.append(done), **GRID)
    assert first[0] == kept > 0
    assert again.identical(made)


def test_killed_while_the_journal_began_it_starts_anew(tmp_path):
    (tmp_path / "o.nc.cells").write_bytes(json.dumps(HEAD).encode()[:20])
    pm.sweep(spec(), out=tmp_path / "o.nc", progress=False, **GRID)
    assert os.listdir(tmp_path) == ["o.nc"]


def test_two_sweeps_cannot_write_one_output(tmp_path):
    out, refused = tmp_path / "grid.nc", []

    def second(done, size):
        with pytest.raises(InputError, match=r"grid\.nc\.cells: another sweep is writing"):
            pm.sweep(spec(), out=out, progress=False, **GRID)
        refused.append(done)

    made = pm.sweep(spec(), out=out, progress=second, **GRID)
    assert refused == list(range(9))
    with xr.open_dataset(out, engine="scipy") as back:
        assert back.identical(made)


def test_a_worker_process_that_outlives_a_killed_sweep_does_not_hold_the_lock(tmp_path):
    grid, path = make_grid(spec(), **GRID), tmp_path / "grid.nc.cells"
    mine = journals.Journal(path, grid)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    try:
        mine._file.close()  # as the kernel does at the end of a process
        for _ in range(500):
            try:
                journals.Journal(path, grid).close(finished=True)
                break
            except InputError:
                time.sleep(0.01)
        assert child.is_alive()
        assert not path.exists()
    finally:
        child.kill()
        child.join()


def test_a_link_to_nothing_is_refused_before_anything_is_run(tmp_path):
    (tmp_path / "grid.nc").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"grid\.nc: is no regular file"):
        pm.sweep(spec(), out=tmp_path / "grid.nc", progress=lambda *_: pytest.fail("runs"), **GRID)
    assert os.listdir(tmp_path) == ["grid.nc"]


def test_an_output_that_appears_meanwhile_is_not_overwritten(tmp_path):
    out = tmp_path / "grid.nc"

    def appear(done, size):
        if done == size:
            out.write_text("mine")

    with pytest.raises(InputError, match="has appeared"):
        pm.sweep(spec(), out=out, progress=appear, **GRID)
    assert out.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["grid.nc", "grid.nc.cells"]
    out.unlink()
    pm.sweep(spec(), out=out, progress=False, **GRID)
    assert os.listdir(tmp_path) == ["grid.nc"]


BOUND = Workload("bound", (Task(pm.workload.page_fault1(1).tasks[0].program, node=0),) * 5, "", 9)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"release": []}, "at least one"),
        ({"seed": [1, 1]}, "seed: 1 is there twice"),
        ({"seed": [1, 1.0]}, "seed=1.0 is not int"),
        ({"seconds": [1, 1.0]}, "seconds: 1.0 is there twice"),
        ({"patch": ["", ""]}, "patch: '' is there twice"),
        ({"relase": ["v6.6"]}, "did you mean 'release'"),
        ({"release": ["v6.6", "v9"]}, "unknown release 'v9'"),
        ({"release": [pm.release("v6.6").with_batch_scale_max(3)]}, "argument of its own"),
        ({"high_pages": [30]}, "run high_pages=30: .*below batch"),
        ({"cpus": [8, 0]}, "cpus=0"),
        ({"cpus": [4]}, "8 tasks"),
        ({"nodes": [0]}, "nodes=0"),
        ({"workload": [BOUND]}, "5 tasks are bound to node 0; it has 4"),
        ({"memory_gib": [0.1]}, "memory_gib=0.1"),
        ({"memory_gib": [10**400]}, "memory_gib=1000"),
        ({"high_fraction": [4]}, "EINVAL"),
        ({"patch": ["alloc-scael"]}, "did you mean 'alloc-scale'"),
        ({"patch": ["+alloc-scale-alloc-scael"]}, "did you mean 'alloc-scale'"),
        ({"patch": [5]}, "patch=5 is not str"),
        ({"batch_scale_max": [2.7]}, "batch_scale_max=2.7 is not int or None"),
        ({"batch_scale_max": ["3"]}, "batch_scale_max='3' is not int or None"),
        ({"batch_scale_max": [True]}, "batch_scale_max=True is not int or None"),
        ({"nohz_idle": ["yes"]}, "nohz_idle='yes' is not bool"),
        ({"nohz_idle": [1]}, "nohz_idle=1 is not bool"),
        ({"seconds": ["1"]}, "seconds='1' is not float"),
        ({"seconds": [float("nan")]}, "seconds=nan"),
        ({"high_pages": [[361]]}, "not int or None"),
        ({"high_pages": np.array([[361]])}, "not int or None"),
        ({"high_pages": {361}}, "not int or None"),
        ({"engine": ["evnt"]}, "did you mean 'event'"),
        ({"machine": ["ice-lak"]}, "ice-lake"),
        ({"workload": ["page_fault1"]}, "workload='page_fault1' is neither"),
        ({"workload": {"name": "page_falt1"}}, "did you mean 'page_fault1'"),
        ({"workload": {"name": "page_fault1", "processes": 8, "fault_ns": "x"}}, "fault_ns|<="),
        ({"seed": [2**53 + 1]}, "2\\*\\*53"),
        ({"seed": [-1]}, "seed=-1"),
        ({"seed": range(2000), "jitter": [i / 1000 for i in range(1000)]}, "more than 100000"),
        ({"seed": range(10**12)}, "more than 100000"),
        ({"seed": range(10**30)}, "more than 100000"),
        ({"seed": np.arange(200_000)}, "more than 100000"),
    ],
)
def test_impossible_grids_are_refused_before_anything_runs(grid, message, tmp_path):
    with pytest.raises(InputError, match=message):
        pm.sweep(spec(), out=tmp_path / "x.nc", **grid)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"workers": 0}, "workers=0"),
        ({"workers": 1.5}, "workers=1.5"),
        ({"out": "."}, "is a directory"),
        ({"out": "nowhere/x.nc"}, "nowhere: is not a directory: make it first"),
    ],
)
def test_impossible_ways_to_run_are_refused(how, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        pm.sweep(spec(), **how, **GRID)
    assert not list(tmp_path.iterdir())


def test_values_on_an_axis_stay_numbers(tmp_path):
    grid = {
        "high_pages": [None, 361],
        "seed": [1, 2**53],
        "nohz_idle": [True, False],
        "patch": [""],
        "cpus": np.array([8], dtype=np.int16),
    }
    made = pm.sweep(spec(), out=tmp_path / "o.nc", progress=False, **grid)
    with xr.open_dataset(tmp_path / "o.nc", engine="scipy") as data:
        assert data.identical(made)
        np.testing.assert_array_equal(data.high_pages, [np.nan, 361.0])
        assert data.high_pages.attrs["units"] == "pages"
        assert data.high_pages.attrs["comment"].startswith("NaN: not given")
        assert data.seed.values.tolist() == [1.0, 2.0**53]
        assert data.nohz_idle.dtype == bool
        assert data.cpus.values.tolist() == [8]
        assert data.patch.values.tolist() == [""]
    own = figures(execute(spec(seed=2**53, nohz_idle=False)))
    assert float(made.refills[0, 1, 1, 0, 0]) == own["refills"]


def test_out_of_memory_names_the_run(tmp_path):
    work = pm.workload.page_fault1(8, pages=300_000)
    hungry = Workload("hungry", work.tasks, work.unit, pages=1)
    with pytest.raises(InputError, match=r"run memory_gib=1\.0: .*ran out of memory"):
        pm.sweep(
            spec(workload=hungry, seconds=1.0),
            memory_gib=[64, 1],
            workers=1,
            out=tmp_path / "o.nc",
            progress=lambda *_: None,
        )
    assert os.listdir(tmp_path) == ["o.nc.cells"]  # the run that went well


def describe(path, **change):
    text = {
        "base": {
            "release": "v6.6",
            "machine": "sapphire-rapids",
            "workload": {"name": "page_fault1", "processes": 64},
            "cpus": 64,
            "seconds": 0.2,
        },
        "grid": {"release": ["v6.6", "v6.6+p3"], "seed": list(range(12))},
        **change,
    }
    path.write_text(json.dumps(text))
    return path


def test_the_example_is_a_sweep_and_the_help_has_it():
    example = json.loads((ROOT / "examples" / "sweep.json").read_text())
    grid = read_grid(ROOT / "examples" / "sweep.json")
    assert len(grid.specs) == 2 * 2 * 3
    said = CliRunner().invoke(main, ["sweep", "--help"]).output
    shown = re.search(r"SPEC.json: (\{.*\});", " ".join(said.split()))
    assert json.loads(shown[1]) == example


def test_a_flat_description_is_told_what_one_looks_like(tmp_path):
    flat = {"release": "v6.6", "machine": "sapphire-rapids", "workload": "page_fault1"}
    (tmp_path / "flat.json").write_text(json.dumps(flat))
    with pytest.raises(InputError, match='"base" and "grid"') as refused:
        read_grid(tmp_path / "flat.json")
    (tmp_path / "shown.json").write_text(re.search(r"\{.*\}", str(refused.value))[0])
    assert len(read_grid(tmp_path / "shown.json").specs) == 2


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """What `describe` asks for, made at one go: the file."""
    place = tmp_path_factory.mktemp("described")
    out = place / "grid.nc"
    run_grid(read_grid(describe(place / "sweep.json")), out=out, progress=False)
    return out.read_bytes()


def test_no_spec_is_needed_and_single_values_hold_for_all_runs():
    work = pm.workload.page_fault1(8, pages=3000)
    options = {"cpus": 8, "nodes": 2, "memory_gib": 16, "seconds": 0.02}
    data = pm.sweep(machine=MACHINE, workload=work, progress=False, **options, **GRID)
    assert data.identical(pm.sweep(spec(), progress=False, **GRID))
    with pytest.raises(InputError, match="a sweep needs machine"):
        pm.sweep(release="v6.6", workload=work)


def test_a_base_keeps_its_batch_scale_beside_a_release_axis():
    made = make_grid(spec(batch_scale_max=3), release=["v6.6", "v6.7"])
    assert [s.release.batch_scale_max for s in made.specs] == [3, 3]


def test_machines_on_an_axis_have_their_own_size_where_none_is_given():
    names = ["ice-lake", "sapphire-rapids"]
    made = make_grid(release="v6.6", workload=pm.workload.page_fault1(8), machine=names)
    for name, one in zip(names, made.specs, strict=True):
        alone = make_spec(release="v6.6", workload=pm.workload.page_fault1(8), machine=name)
        assert one.host == alone.host


def test_engines_on_an_axis_agree():
    data = pm.sweep(spec(), engine=["event", "per-page"], progress=False)
    assert data.isel(engine=0, drop=True).identical(data.isel(engine=1, drop=True))


def test_several_patches_in_one_value():
    made = make_grid(
        spec(), patch=["", "alloc-scale", "+alloc-scale+drain-two-in-a-row", "+count-min-count-min"]
    )
    before = pm.release("v6.6").patches
    assert all(s.release.patches[: len(before)] == before for s in made.specs)
    assert [s.release.patches[len(before) :] for s in made.specs] == [
        (),
        ("alloc-scale",),
        ("alloc-scale", "drain-two-in-a-row"),
        (),
    ]


@pytest.mark.parametrize("workload", sorted(pm.workload.WORKLOADS))
def test_the_result_says_how_to_repeat_it(workload, tmp_path, monkeypatch):
    # What the runs come to is looked at elsewhere.
    monkeypatch.setattr(workers, "compute", lambda *_: dict.fromkeys(FIGURES, 1.0))
    known = inspect.signature(pm.workload.WORKLOADS[workload]).parameters
    needed = [k for k, p in known.items() if p.default is p.empty]
    work = pm.workload.make(workload, **{k: {"recording": "6.12-tmpfs"}.get(k, 2) for k in needed})
    made = pm.sweep(
        spec(workload=work, high_min_pages=2000, batch_scale_max=3),
        seed=[1, 2],
        patch=["", "alloc-scale"],
        machine=[MACHINE, "ice-lake"],
        progress=False,
    )
    (tmp_path / "again.json").write_text(made.attrs["spec"])
    assert read_grid(tmp_path / "again.json").digest == made.attrs["sweep"]
    assert made.attrs["pcpmodel_version"] == pm.__version__
    assert json.loads(made.attrs["inputs"])["sapphire-rapids"] == MACHINE.digest
    assert "share their random numbers" in made.attrs["seeds"]
    assert made.attrs["seed"] == "[1, 2]"


def test_the_result_says_where_a_workload_runs_and_what_a_machine_takes(tmp_path):
    """Else what repeats it is another sweep."""
    ice = pm.machine("ice-lake")
    machines = [ice, ice.with_costs(handover=0.0), ice.slower(2.0).with_costs(handover=9.0)]
    faults = pm.workload.page_fault1
    works = [faults(4), faults(4, membind=0), faults(4, busy=0.5, frees="shuffled")]
    given = {"release": "v6.7", "cpus": 8, "memory_gib": 8, "seconds": 0.001, "warmup_s": 0.0}
    made = pm.sweep(machine=machines, workload=works, progress=False, **given)
    (tmp_path / "again.json").write_text(made.attrs["spec"])
    again = read_grid(tmp_path / "again.json")
    assert again.digest == made.attrs["sweep"]
    assert [s.machine.sheet.value("handover", "llc") for s in again.specs[::3]] == [
        ice.sheet.value("handover", "llc"), 0.0, 9.0,
    ]  # fmt: skip
    assert len(json.loads(made.attrs["inputs"])) == 3
    (tmp_path / "again.json").write_text(
        pm.sweep(
            machine="ice-lake", workload=replace(works[0], start_s=0.5), progress=False, **given
        ).attrs["spec"]
    )
    with pytest.raises(InputError, match="changed by hand"):
        read_grid(tmp_path / "again.json")
    for wrong in ({"name": "ice-lake", "times": "2"}, {"times": 2.0}, {"name": "ice-lake", "x": 1}):
        with pytest.raises(InputError):
            make_grid(machine=wrong, workload=works[0], **given)


def test_size_and_time_of_what_is_left_are_said_first(tmp_path, capsys):
    out = tmp_path / "grid.nc"

    def stop(done, size):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pm.sweep(spec(), out=out, progress=stop, workers=1, **GRID)
    pm.sweep(spec(), out=out, workers=1, **GRID)
    said = capsys.readouterr().err
    text = r"8 runs \(release 2 x high_pages 2 x seed 2\), 3 of them done before; about \S+ s on 1"
    assert re.search(text, said)
    pm.sweep(spec(), progress=False, **GRID)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pilot_s", "warmups"),
    [(0.02, [0.0, 4.0]), (10.0, [0.0, 4.0]), (0.05, [None])],
)
def test_time_is_estimated_within_a_factor_of_three(pilot_s, warmups, monkeypatch):
    """In CPU time: what else the machine does is not the estimate's fault.

    Where the warm-up is looked for, that is done once for all seeds.
    """
    monkeypatch.setattr(running, "_PILOT_S", pilot_s)
    monkeypatch.setattr(time, "perf_counter", time.thread_time)
    base = spec(workload=pm.workload.page_fault1(112), cpus=112, memory_gib=256, seconds=1.0)
    seeds = range(10 // len(warmups))
    made = make_grid(base, warmup_s=warmups, release=["v6.6", "v6.7"], seed=seeds)
    pilots = []
    monkeypatch.setattr(
        running, "compute", lambda *run: pilots.append(run[0]) or workers.compute(*run)
    )
    estimate = running._estimate_s(made, list(range(20)))
    began = time.thread_time()
    for one in made.specs:
        workers.compute(one, "event")
    took = time.thread_time() - began
    assert 1 / 3 < estimate / took < 3
    assert 0 < len(pilots) < len(made.specs) / 2


COMMAND = [sys.executable, "-c", "import sys; from pcpmodel.cli import main; main(sys.argv[1:])"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(pm.__file__))}


@pytest.mark.slow
def test_interrupted_in_long_runs_it_stops_soon_and_says_how_to_go_on(tmp_path):
    base = {"release": "v6.6", "machine": "ice-lake", "cpus": 224, "nodes": 2}
    base |= {"workload": {"name": "page_fault1", "processes": 224}}
    description = describe(tmp_path / "s.json", base=base, grid={"seconds": [0.001, 600.0, 601.0]})
    journal, out = tmp_path / "o.nc.cells", tmp_path / "o.nc"
    command = [*COMMAND, "sweep", str(description), "--out", str(out), "--workers", "2"]
    run = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") == 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=60)[1]
    assert time.monotonic() - began < 10  # of many minutes
    assert run.returncode == 130
    assert f"1 of 3 runs are kept in {journal}; start the same sweep again" in said
    assert sorted(os.listdir(tmp_path)) == ["o.nc.cells", "s.json"]


@pytest.mark.long
def test_killed_and_started_again_it_finishes_the_rest(tmp_path, described):
    description, out = describe(tmp_path / "sweep.json"), tmp_path / "grid.nc"
    command = [*COMMAND, "sweep", str(description), "--out", str(out), "--json"]
    journal = tmp_path / "grid.nc.cells"
    first = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
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
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"runs": 24, "out": str(out)}
    assert out.read_bytes() == described


def wait_until(met, seconds=60):
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def two_workers():
    return pytest.importorskip("distributed").LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        protocol="tcp",
        dashboard_address=None,
        host="127.0.0.1",
    )


@pytest.mark.long
def test_command_line_runs_on_a_dask_scheduler(tmp_path, described):
    distributed = pytest.importorskip("distributed")
    description = describe(tmp_path / "s.json")
    command = [*COMMAND, "sweep", str(description), "--out", str(tmp_path / "dask.nc"), "--json"]
    with two_workers() as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tcp://127.0.0.1:")
        done = subprocess.run(
            [*command, "--scheduler", address], env=ENVIRONMENT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"runs": 24, "out": str(tmp_path / "dask.nc")}
        assert "on 2 workers" in done.stderr
        with distributed.Client(cluster) as client:  # the workers did it, not this process
            used = client.run(lambda dask_worker: dask_worker.state.executed_count)
        assert sum(used.values()) >= 24
        assert all(used.values())
    assert (tmp_path / "dask.nc").read_bytes() == described


@pytest.mark.slow
def test_command_line_says_that_no_scheduler_answers(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "_ANSWER_S", 1)  # nobody ever will
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"  # bound: nobody else may listen on it
        description, out = describe(tmp_path / "s.json"), str(tmp_path / "o.nc")
        arguments = ["sweep", str(description), "--out", out, "--scheduler", address]
        done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert f"no Dask scheduler at '{address}'" in done.stderr
    assert os.listdir(tmp_path) == ["s.json"]


@pytest.mark.long
def test_dask_with_a_killed_worker_gives_the_same_bytes(tmp_path):
    distributed = pytest.importorskip("distributed")
    grid = {"release": ["v6.6", "v6.7", "v6.19"], "seed": list(range(8))}
    base = spec(workload=pm.workload.page_fault1(64), cpus=64, memory_gib=64, seconds=1.0)
    pm.sweep(base, workers=1, out=tmp_path / "threads.nc", **grid)
    with two_workers() as cluster, distributed.Client(cluster) as client:
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


@pytest.mark.long
@pytest.mark.parametrize("who", ["scheduler", "workers"])
def test_dask_that_is_gone_is_said_and_the_sweep_goes_on_later(who, tmp_path):
    pytest.importorskip("distributed")
    base = {"release": "v6.6", "machine": "sapphire-rapids", "cpus": 8, "seconds": 4.0}
    base |= {"workload": {"name": "page_fault1", "processes": 8}, "memory_gib": 4}
    grid = {"release": ["v6.6", "v6.7"], "seed": list(range(1, 21))}
    description = describe(tmp_path / "s.json", base=base, grid=grid)
    run_grid(read_grid(description), out=tmp_path / "threads.nc", progress=False)
    out = tmp_path / "dask.nc"
    command = [*COMMAND, "sweep", str(description), "--out", str(out)]
    serve = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0",
             "--no-dashboard", "--scheduler-file", str(tmp_path / "where")]  # fmt: skip
    work = [sys.executable, "-m", "dask", "worker", "--no-dashboard", "--no-nanny",
            "--nworkers", "1", "--nthreads", "1", "--scheduler-file", str(tmp_path / "where"),
            "--local-directory", str(tmp_path)]  # fmt: skip
    quiet = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [subprocess.Popen(serve, **quiet), subprocess.Popen(work, **quiet)]
    try:
        wait_until((tmp_path / "where").exists)
        address = json.loads((tmp_path / "where").read_text())["address"]
        sweeping = subprocess.Popen(
            [*command, "--scheduler", address], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        )
        journal = tmp_path / "dask.nc.cells"
        wait_until(lambda: journal.exists() and journal.read_text().count("\n") > 3, 240)
        dask[0 if who == "scheduler" else 1].kill()
        began = time.monotonic()
        _, said = sweeping.communicate(timeout=60)
        assert time.monotonic() - began < 30
    finally:
        for process in dask:
            process.kill()
            process.wait()
    assert sweeping.returncode == 2, said
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line and "run/s" not in line]
    assert "runs are kept in" in lines[-2]
    what = "is gone" if who == "scheduler" else "has no workers any more"
    assert lines[-1] == f"pcpmodel: the Dask scheduler at {address!r} {what}"
    kept = journal.read_text().count("\n") - 1
    assert kept >= 3
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{kept} of them done before" in done.stderr
    assert out.read_bytes() == (tmp_path / "threads.nc").read_bytes()


def test_command_line_writes_the_grid(tmp_path):
    grid = {"release": ["v6.6", "v6.7"]}
    description = describe(tmp_path / "sweep.json", grid=grid)
    done = CliRunner().invoke(
        main, ["sweep", str(description), "--out", str(tmp_path / "o.nc"), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["runs"] == 2
    assert "2 runs (release 2); about" in done.stderr
    assert (tmp_path / "o.nc").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"base": {"release": "v6.6"}},
        {"base": []},
        {"grid": {"release": "v6.6"}},
        {"grid": {"workload": ["page_fault1"]}},
        {"base": {"release": "v6.6", "machine": "sapphire-rapids", "workload": {"name": "pf"}}},
        {"base": {"release": ["v6.6"], "machine": "ice-lake"}},
        {"grid": {"seed": [1, 1]}},
        {"more": 1},
    ],
)
def test_command_line_refuses_wrong_descriptions(change, tmp_path):
    description = describe(tmp_path / "sweep.json", **change)
    done = CliRunner().invoke(main, ["sweep", str(description), "--out", str(tmp_path / "o.nc")])
    assert done.exit_code == 2, done.output
    assert str(description) in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.json"]


def test_command_line_refuses_what_is_not_json_and_where_nobody_listens(tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert CliRunner().invoke(main, ["sweep", str(broken), "--out", "x.nc"]).exit_code == 2
    description = describe(tmp_path / "sweep.json")
    out = str(tmp_path / "nowhere" / "o.nc")
    assert CliRunner().invoke(main, ["sweep", str(description), "--out", out]).exit_code == 2

"""A workspace is whole or not there; the package reads and writes in it."""

# SPDX-License-Identifier: GPL-2.0-only

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import DATA, ROOT
from pcpmodel.cli import main
from pcpmodel.datasets.packages import data_dir
from pcpmodel.reports import workspace
from pcpmodel.reports.plan import plan


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Something to copy, small: the checkout's tables and notebooks without its recordings."""
    source = tmp_path / "package"
    for part in ("examples", "notebooks", "data/hardware", "data/published"):
        shutil.copytree(ROOT / part, source / part)
    (source / "notebooks/.ipynb_checkpoints").mkdir()
    (source / "data/unrelated").touch()
    monkeypatch.setattr(workspace, "own_data", lambda: source / "data")
    monkeypatch.delenv("PCPMODEL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return source


def files(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def test_init_copies_everything_and_is_used_from_below(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_dir() == DATA
    done = CliRunner().invoke(main, ["init", "deep/mine"])
    assert done.exit_code == 0, done.output
    mine = tmp_path / "deep/mine"
    assert files(mine) == files(project) | {"pcpmodel-workspace.json"}
    assert not (mine / "notebooks/.ipynb_checkpoints").exists()
    assert [p.name for p in mine.parent.iterdir()] == ["mine"]
    for place in (mine, mine / "notebooks"):
        monkeypatch.chdir(place)
        assert data_dir() == mine / "data"
    monkeypatch.setenv("PCPMODEL_DATA", str(DATA))
    assert data_dir() == DATA


def test_what_is_added_in_a_workspace_stays_in_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.make_workspace("mine")
    monkeypatch.chdir("mine")
    before = files(project), files(DATA / "hardware")
    table = DATA / "hardware/ice-lake/batch_latency.csv"
    done = CliRunner().invoke(main, ["data", "add", "latency", str(table), "--machine", "own"])
    assert done.exit_code == 0, done.output
    assert "own" in pm.machines()
    assert (tmp_path / "mine/data/hardware/own/batch_latency.csv").is_file()
    assert (files(project), files(DATA / "hardware")) == before
    assert "own" in {run.data for run in plan(["03-new-hardware"])}


def test_init_takes_an_empty_directory_and_no_other(project: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    workspace.make_workspace("empty")
    assert (tmp_path / "empty/notebooks/00-start-here.ipynb").is_file()
    before = files(tmp_path)
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("empty", "link", "package/examples/cover-letter.json"):
        done = CliRunner().invoke(main, ["init", name])
        assert done.exit_code == 2
        assert f"{tmp_path / name}: is there already; give a new or an empty" in done.output
    assert files(tmp_path) == before


def test_what_cannot_be_copied_leaves_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workspace, "sync_tree", full)
    done = CliRunner().invoke(main, ["init", "mine"])
    assert done.exit_code == 2
    assert "No space left" in done.output
    assert {path.name for path in tmp_path.iterdir()} == {"package"}


def test_a_full_disk_is_said_in_a_line_that_names_the_first_file(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str, **_: object) -> None:
        raise OSError(28, "No space left on device", target)

    monkeypatch.setattr(shutil, "copyfile", full)
    done = CliRunner().invoke(main, ["init", "mine"])
    assert done.exit_code == 2
    said = (
        rf"pcpmodel: {project}/\S+: cannot be copied to {tmp_path}/mine: No space left on device\n"
    )
    assert re.fullmatch(said, done.output)
    assert {path.name for path in tmp_path.iterdir()} == {"package"}


def test_a_workspace_without_its_data_is_said_to_be_one(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.make_workspace("mine")
    shutil.rmtree("mine/data")
    monkeypatch.chdir("mine")
    with pytest.raises(pm.InputError, match="is not there, but its workspace is"):
        data_dir()

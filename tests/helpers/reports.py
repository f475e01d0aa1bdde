"""Which reports a test needs (fixture ``reported``), and the runs that they are made of."""

# SPDX-License-Identifier: GPL-2.0-only

import shutil
from pathlib import Path
from typing import Any

import pytest

import pcpmodel.reports.rerun as rerun_module

#: What simulates little: a question, the rules, a recording, a patch.
FEW = ("00-start-here", "04-refill-and-drain-rules", "05-replay", "16-your-patch")
#: All of them, which `make report` makes too.
ALL = pytest.param((), id="all", marks=pytest.mark.long)


def runs_of(out: Path) -> Path:
    """Where the runs are kept that notebooks of these reports left for each other."""
    return out.with_name(f"{out.name}-runs")


def keep_runs(patch: pytest.MonkeyPatch, out: Path) -> None:
    """Let a rerun into a folder keep them."""
    run_all = rerun_module._run_all

    def kept(runs: Any, place: Path, progress: Any) -> None:
        run_all(runs, place, progress)
        shutil.copytree(place / "runs", runs_of(out))

    patch.setattr(rerun_module, "_run_all", kept)


of_every_notebook = pytest.mark.parametrize("reported", [ALL], indirect=True)

"""Copies of this checkout."""

# SPDX-License-Identifier: GPL-2.0-only

import shutil
from pathlib import Path

from helpers.paths import ROOT


def copy_checkout(target: Path, *leave: str) -> Path:
    """Copy what a clone of this checkout would hold, changes included."""
    everywhere = shutil.ignore_patterns("*.egg-info", "__pycache__", ".*cache", *leave)
    at_top = {".git", ".venv", "build", "dist", "reports"}

    def ignored(directory: str, names: list[str]) -> set[str]:
        return everywhere(directory, names) | (at_top if Path(directory) == ROOT else set())

    shutil.copytree(ROOT, target, ignore=ignored, symlinks=True)
    return target

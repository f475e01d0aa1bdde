"""Arrows point down: nothing imports what is above it or beside it.

The layers stand in pyproject.toml once.  import-linter reads the .py files; it knows nothing of
compiled modules, so their ``import`` and ``cimport`` lines are read here.
"""

# SPDX-License-Identifier: GPL-2.0-only

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]
LAYERS = next(c["layers"] for c in CONTRACTS if c["type"] == "layers")
HEIGHT = {name.strip("() "): -row for row, line in enumerate(LAYERS) for name in line.split("|")}
ABOVE_ALL = {"__init__", "figures", "versions"}  # know nobody, or only the version
COMPILED = sorted(
    str(p.relative_to(ROOT))
    for p in (ROOT / "pcpmodel").rglob("*.p*")
    if p.suffix in (".pyx", ".pxd")
)
IMPORT = re.compile(
    r"^\s*(?:from\s+pcpmodel\.(\w+)|from\s+pcpmodel\s+c?import\s+([\w, ]+)"
    r"|c?import\s+pcpmodel\.(\w+))",
    re.MULTILINE,
)


def imported(text: str) -> set[str]:
    """Parts of the package that a Cython source imports or cimports."""
    return {name for found in IMPORT.findall(text) for name in re.findall(r"\w+", ",".join(found))}


def wrong(part: str, names: set[str]) -> list[str]:
    """Which of ``names`` the part may not import."""
    return sorted(n for n in names if n != part and HEIGHT[n] >= HEIGHT[part])


def test_imports_of_every_form_are_seen() -> None:
    text = (
        "from pcpmodel.kernel.pages cimport (\n  x)\ncimport pcpmodel.machine.lock\n"
        "from pcpmodel import study, numa\n    from pcpmodel.errors import InputError\n"
        "from libc.math cimport log\n"
    )
    assert imported(text) == {"kernel", "machine", "study", "numa", "errors"}


def test_an_arrow_up_or_sideways_is_found() -> None:
    assert wrong("kernel", {"errors", "kernel", "simulation"}) == ["simulation"]
    assert wrong("machine", {"workload", "kernel"}) == ["workload"]


def test_every_part_of_the_package_has_its_layer() -> None:
    parts = {p.stem for p in (ROOT / "pcpmodel").iterdir() if not p.name.startswith("__pyc")}
    parts = {p.split(".")[0] for p in parts if p not in ("data", "py")}
    assert parts == set(HEIGHT) | ABOVE_ALL


@pytest.mark.parametrize("source", COMPILED)
def test_compiled_modules_import_only_what_is_below(source: str) -> None:
    part = Path(source).with_suffix("").parts[1]
    assert wrong(part, imported((ROOT / source).read_text(encoding="utf-8"))) == []


def test_python_modules_import_only_what_is_below() -> None:
    lint = "from importlinter.cli import lint_imports_command as main; main()"
    done = subprocess.run(
        [sys.executable, "-c", lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in done.stdout

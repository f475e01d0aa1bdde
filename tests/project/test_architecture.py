"""Arrows point down: nothing imports what is above it or beside it, between rooms and inside them.

The layers stand in pyproject.toml once.  import-linter reads the .py files; it knows nothing of
compiled modules, so that the ``import`` and ``cimport`` lines of all sources are read here too.
"""

# SPDX-License-Identifier: GPL-2.0-only

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from helpers.paths import ROOT, TESTS
from pcpmodel.kernel.releases import Rules

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]
#: Container -> its parts, lowest 0.
HEIGHTS = {
    container: {
        name.strip("() "): height
        for height, line in enumerate(reversed(contract["layers"]))
        for name in line.split("|")
    }
    for contract in CONTRACTS
    if contract["type"] == "layers"
    for container in contract["containers"]
}
#: Not in the layers; figures has a contract of its own.
APART = {"__init__", "figures"}
SOURCES = sorted(
    (container, str(p.relative_to(ROOT)))
    for container in HEIGHTS
    for p in (ROOT / container.replace(".", "/")).rglob("*.p*")
    if p.suffix in (".py", ".pyx", ".pxd")
)


def part_of(container: str, source: str | Path) -> str:
    """The part of a container that a file belongs to."""
    place = Path(source).relative_to(container.replace(".", "/"))
    return place.parts[0].split(".")[0]


def imported(text: str, container: str = "pcpmodel") -> set[str]:
    """Parts of a container that a source imports or cimports."""
    here = re.escape(container)
    found = re.findall(
        rf"^\s*(?:from\s+{here}\.(\w+)|from\s+{here}\s+c?import\s+([\w, ]+)"
        rf"|c?import\s+{here}\.(\w+))",
        text,
        re.MULTILINE,
    )
    names = {name for groups in found for name in re.findall(r"\w+", ",".join(groups))}
    return names - {"__version__"}


def wrong(part: str, names: set[str], container: str = "pcpmodel") -> list[str]:
    """Which of ``names`` the part may not import."""
    heights = HEIGHTS[container]
    return sorted(n for n in names - APART - {part} if heights[n] >= heights[part])


def test_imports_of_every_form_are_seen() -> None:
    text = (
        "from pcpmodel.kernel.pages cimport (\n  x)\ncimport pcpmodel.hardware.lock\n"
        "from pcpmodel import study, numa\n    from pcpmodel.errors import InputError\n"
        "from libc.math cimport log\nfrom pcpmodel.trace.events cimport event\n"
    )
    assert imported(text) == {"kernel", "hardware", "study", "numa", "errors", "trace"}
    assert imported(text, "pcpmodel.trace") == {"events"}


def test_an_arrow_up_or_sideways_is_found() -> None:
    assert wrong("kernel", {"errors", "kernel", "simulation"}) == ["simulation"]
    assert wrong("hardware", {"workload", "kernel"}) == ["workload"]
    assert wrong("zones", {"zones", "structs", "program"}, "pcpmodel.simulation") == ["program"]
    assert wrong("ftrace", {"events", "replay", "record"}, "pcpmodel.trace") == ["record", "replay"]


@pytest.mark.parametrize("container", HEIGHTS)
def test_every_part_has_its_layer(container: str) -> None:
    parts = {part_of(container, source) for c, source in SOURCES if c == container}
    assert parts - APART == set(HEIGHTS[container])


@pytest.mark.parametrize(("container", "source"), SOURCES)
def test_modules_import_only_what_is_below(container: str, source: str) -> None:
    part = part_of(container, source)
    names = imported((ROOT / source).read_text(encoding="utf-8"), container)
    if part not in APART:
        assert not wrong(part, names, container)


def test_python_modules_import_only_what_is_below() -> None:
    lint = "from importlinter.cli import lint_imports_command as main; main()"
    done = subprocess.run(
        [sys.executable, "-c", lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in done.stdout


def test_tests_lie_as_the_package_does() -> None:
    """In the room of their module; project/ is about no room, and what is about all lies above."""
    rooms = {p.name for p in (ROOT / "pcpmodel").iterdir() if (p / "__init__.py").is_file()}
    for path in TESTS.rglob("test_*.py"):
        assert path.parent == TESTS or path.parent.name in rooms | {"project"}, path


def test_no_test_module_imports_another() -> None:
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(a.name for a in node.names)]
                assert not [n for n in names if re.search(r"(^|\.)(test_|conftest)", n)], path


def test_every_rule_decides_something():
    """What only stands in the record would change no kernel state, and say that it does."""
    kernel = ROOT / "pcpmodel" / "kernel"
    code = [f for f in kernel.rglob("*.p*") if f.suffix in (".py", ".pyx", ".pxd")]
    text = "\n".join(f.read_text() for f in code if f.name not in ("releases.py", "rules.pxd"))
    unread = {f.name for f in fields(Rules) if not re.search(rf"\b(r|_?rules)\.{f.name}\b", text)}
    # A block gets its type back in either case, unless it is told another (documentation, limits).
    assert unread == {"isolate_bit"}


def test_what_is_defined_is_named_elsewhere():
    """Functions and constants of modules, methods of compiled classes; `__all__` does not count."""
    suffixes = (".py", ".pyx", ".pxd", ".ipynb", ".md")
    folders = ("pcpmodel", "tests", "tools", "docs", "notebooks", "examples")
    text = {
        f: re.sub(r"__all__ = \[[^\]]*\]", "", f.read_text(encoding="utf-8"))
        for folder in folders for f in (ROOT / folder).rglob("*") if f.suffix in suffixes
    }  # fmt: skip
    found = Counter(word for t in text.values() for word in re.findall(r"\w+", t))
    alone = set()
    for file, source in text.items():
        if ROOT / "pcpmodel" not in file.parents or file.name == "cli.py":  # Click names those
            continue
        names = re.findall(r"^(?:(?:def|class) (\w+)|([A-Z_]\w+)(?:: .*)? =)", source, re.M)
        methods = re.findall(r"^    def (\w+)", source, re.M) if file.suffix == ".pyx" else []
        alone |= {n for n in [*methods, *(a or b for a, b in names)] if found[n] == 1}
    assert alone == set()

"""What is built and installed: one set of ranges, a wheel that stands alone."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pcpmodel as pm
from helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def required() -> dict[str, Requirement]:
    """All that the package and its extras require, by name."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    requirements = [Requirement(r) for r in chain(project["dependencies"], *extras)]
    names = [canonicalize_name(r.name) for r in requirements]
    assert len(set(names)) == len(names)
    return dict(zip(names, requirements, strict=True))


def pins() -> dict[str, str]:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [re.fullmatch(r"([\w.-]+)==([\w.+!]+)", line) for line in text.splitlines()]
    assert all(lines), "constraints.txt holds name==version lines and nothing else"
    return {canonicalize_name(line[1]): line[2] for line in lines if line}


def test_every_requirement_is_pinned_within_its_range() -> None:
    pinned = pins()
    build = [Requirement(line) for line in PROJECT["build-system"]["requires"]]
    for requirement in [*required().values(), *build]:
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} but pinned {version}"


def test_what_runs_here_is_what_is_pinned() -> None:
    from importlib.metadata import version

    pinned = pins()
    assert {n: version(n) for n in required()} == {n: pinned[n] for n in required()}


def test_tests_that_share_a_fixture_stay_on_one_worker(request: pytest.FixtureRequest) -> None:
    """A newer pytest hid the groups from pytest-xdist, and nothing failed but the clock."""
    grouped = bool(request.config.getoption("loadgroup", False))
    assert request.node.nodeid.endswith("@tests/project/test_build.py") == grouped


def test_conda_environment_has_the_same_ranges() -> None:
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    listed = [Requirement(line) for line in re.findall(r"^  - (\w\S+)$", text, re.MULTILINE)]
    names = {"playwright-python": "playwright"}  # the others are called alike
    conda = {names.get(r.name, r.name): str(r.specifier) for r in listed}
    for tool in ("conda-forge", "nodefaults", "c-compiler", "make", "pip"):
        assert conda.pop(tool) == ""
    assert conda.pop("python") == PROJECT["project"]["requires-python"]
    assert conda == {name: str(r.specifier) for name, r in required().items()}


def test_pixi_has_the_same_python_and_no_requirement_of_its_own() -> None:
    pixi = PROJECT["tool"]["pixi"]
    conda = {"python": PROJECT["project"]["requires-python"], "c-compiler": "*", "make": "*"}
    assert pixi["dependencies"] == conda
    assert list(pixi["pypi-dependencies"]) == [PROJECT["project"]["name"]]


def test_ranges_stay_below_what_seaborn_is_known_to_bear() -> None:
    assert not required()["matplotlib"].specifier.contains("3.13")
    assert not required()["pandas"].specifier.contains("4.0")


@pytest.mark.parametrize(
    "target",
    [
        "report",
        "test",
        "browser",
        "env",
        "lab",
        "bench",
        "docs",
        "lint",
        "wheel",
        "sanitize",
        "clean",
    ],
)
def test_make_knows(target: str) -> None:
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_lab_listens_on_this_machine_only_and_keeps_its_token() -> None:
    made = subprocess.run(
        ["make", "-n", "lab"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert "--ServerApp.ip=127.0.0.1" in made.stdout
    assert "/lab/tree/00-start-here.ipynb" in made.stdout
    assert "token" not in made.stdout
    assert "password" not in made.stdout


def make_env(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``make env`` on a machine where ``variables`` name its tools."""
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "pcpmodel").mkdir()
    arguments = [f"{name}={value}" for name, value in variables.items()]
    made = subprocess.run(["make", "env", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert not (tmp_path / ".venv").exists()
    return made


def test_make_says_that_python_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    made = make_env(tmp_path, PYTHON=str(old))
    assert made.returncode == 2
    assert "needs Python 3.11 or newer" in made.stderr
    assert "Python 3.9.2" in made.stderr


def test_make_says_that_the_compiler_is_missing(tmp_path: Path) -> None:
    made = make_env(tmp_path, PYTHON=sys.executable, CC="no-such-cc")
    assert made.returncode == 2
    assert "no C compiler: no-such-cc is not there" in made.stderr


@pytest.mark.long
@pytest.mark.slow
def test_neither_sdist_nor_wheel_carries_generated_code(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        packed = [name.partition("/")[2] for name in archive.getnames()]
    with zipfile.ZipFile(wheel) as archive:
        installed = archive.namelist()
    excerpt = "pcpmodel/kernel/excerpt/mm/page_alloc.c"  # written by hand
    assert {excerpt} <= {*packed} & {*installed}
    for name in {*packed, *installed} - {excerpt}:
        assert Path(name).suffix not in (".c", ".cpp", ".html"), name
    assert not [name for name in packed if name.endswith(".so")]
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "pcpmodel").rglob("*.py[xi]*")}
    assert sources <= set(packed)


@pytest.mark.long
@pytest.mark.slow
def test_wheel_carries_the_tables_but_no_recordings(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        installed = archive.namelist()
    tables = {
        f"pcpmodel/{path.relative_to(ROOT)}"
        for part in ("hardware", "published", "workload")
        for path in (ROOT / "data" / part).rglob("*")
        if path.is_file()
    }
    assert {name for name in installed if name.startswith("pcpmodel/data/")} == tables
    for part in ("notebooks/*.ipynb", "examples/*.json", "examples/cython/*.pyx"):
        there = {f"pcpmodel/{path.relative_to(ROOT)}" for path in ROOT.glob(part)}
        assert there
        assert there <= set(installed)
    for kind in ("*.py", "*.pxd", "*.h", "*.json"):
        there = {str(p.relative_to(ROOT)) for p in (ROOT / "pcpmodel").rglob(kind)}
        assert there
        assert there <= set(installed)
    examples = "pcpmodel/examples/cython/"
    assert not [n for n in installed if n.endswith(".pyx") and not n.startswith(examples)]


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel in an environment of its own, which shares this one's other packages."""
    home = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(built[1])], check=True, capture_output=True)
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def run_installed(home: Path, place: Path, *command: str) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("PCPMODEL_DATA", "PYTHONPATH")}
    env["IPYTHONDIR"] = str(place / "ipython")
    done = subprocess.run(
        [str(home / "bin/python"), *command], cwd=place, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.slow
def test_wheel_runs_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    def run(*command: str) -> str:
        return run_installed(installed, tmp_path, *command)

    where = run("-c", "import pcpmodel; print(pcpmodel.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "pcpmodel").rglob("*.pyx")
    ]
    run("-c", "".join(f"import {module}\n" for module in modules))
    tool = str(next(installed.glob("lib/*/site-packages/bin/pcpmodel")))
    names = [r["name"] for r in json.loads(run(tool, "releases", "--json"))["releases"]]
    assert "v6.7" in names
    assert run(tool, "--version").strip() == f"pcpmodel, version {pm.__version__}"
    assert pm.__version__ in run("-c", "import pcpmodel as p; p.show_versions()")
    run(tool, "init", "mine")
    where = run(
        "-c",
        "import os; from pcpmodel.datasets.packages import data_dir; os.chdir('mine'); "
        "print(data_dir())",
    )
    assert Path(where.strip()) == tmp_path / "mine/data"
    assert (tmp_path / "mine/notebooks/00-start-here.ipynb").is_file()


@pytest.mark.long
@pytest.mark.slow
def test_installed_wheel_passes_the_core_s_tests(installed: Path, tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    ignored = shutil.ignore_patterns("__pycache__", "benchmarks")
    shutil.copytree(ROOT / "tests", tests, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    core = ["test_buddy.py", "test_pcp.py", "test_releases.py", "test_sizing.py"]
    done = run_installed(
        installed,
        tmp_path,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"),
        *(f"tests/kernel/{name}" for name in core),
    )
    assert re.search(r"\d{2,} passed", done)


def run_own_rule(home: Path, place: Path) -> str:
    """Run notebook 07's rule, edited, in another folder; with nothing compiled before."""
    notebook = json.loads((ROOT / "notebooks" / "07-your-own-policy.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"]]
    cell = next(c for c in cells if c.startswith("%%cython"))
    assert "view.user[0] *= 2" in cell
    (place / "cell.py").write_text(cell.replace("user[0] *= 2", "user[0] *= 4"), "utf-8")
    (place / "script.py").write_text(
        "from IPython.core.interactiveshell import InteractiveShell as Shell\n"
        "shell = Shell.instance()\n"
        "shell.run_line_magic('load_ext', 'Cython')\n"
        "shell.run_cell(open('cell.py').read()).raise_error()\n"
        "import pcpmodel as pm\n"
        "mine = pm.PerCpuPages('v6.7', high=500, policy=shell.user_ns['doubling'])\n"
        "print([n for n in [mine.alloc() for _ in range(500)] if n])\n"
    )
    return run_installed(home, place, "script.py").splitlines()[-1]


@pytest.mark.slow
def test_a_rule_of_one_s_own_compiles_where_make_env_installed_the_package(tmp_path: Path) -> None:
    assert run_own_rule(Path(sys.prefix), tmp_path) == "[63, 252, 1008]"


@pytest.mark.long
@pytest.mark.slow
def test_a_rule_of_one_s_own_compiles_against_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert run_own_rule(installed, tmp_path) == "[63, 252, 1008]"


@pytest.mark.long
@pytest.mark.slow
def test_property_tests_have_fixed_examples_or_new_ones_that_can_be_repeated(
    tmp_path: Path,
) -> None:
    """`make test` has the same in every run, `make test-long` others, from a seed that it shows."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'tests'}\n")
    (tmp_path / "test_it.py").write_text(
        "from hypothesis import given, strategies\n"
        "@given(strategies.integers())\n"
        "def test_it(n):\n"
        "    print('drawn', n)\n"
    )

    def drawn(*options: str) -> tuple[list[str], str]:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *options],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return re.findall(r"drawn (-?\d+)", done.stdout), done.stdout

    fixed, _ = drawn()
    assert drawn()[0] == fixed
    new, said = drawn("--hypothesis-profile=random")
    assert fixed != new != drawn("--hypothesis-profile=random")[0] != fixed
    repeat = re.search(r"to repeat: (.+)", said)
    assert repeat is not None
    assert drawn(*repeat[1].split())[0] == new


def test_what_make_starts_keeps_the_modules_that_it_compiled():
    """Each of some hundred processes of `make test` compiled all of pandas and xarray else."""
    done = subprocess.run(
        ["make", "--silent", "--eval", "shown:;@echo [$$PYTHONDONTWRITEBYTECODE]", "shown"],
        cwd=ROOT,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"

"""What all tests share."""

# SPDX-License-Identifier: GPL-2.0-only

import os
import secrets
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from helpers.checkout import copy_checkout
from helpers.paths import ROOT
from helpers.policies import build_policies
from helpers.reports import ALL, FEW, keep_runs
from pcpmodel.reports.plan import Run
from pcpmodel.reports.rerun import rerun

# However slow the machine.  `make test` has the same examples in every run; `make test-long`, and
# so CI, new ones (--hypothesis-profile=random), from the seed that the heading shows.  What such a
# run finds is kept: as an @example, or as a test of its own where a state machine found it.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("fixed")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its options; xdist hands them on
def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed; and hear Ctrl-C and SIGHUP, which a script's background and nohup ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    option = config.option
    if option.hypothesis_profile == "random" and option.hypothesis_seed is None:
        option.hypothesis_seed = str(secrets.randbits(32))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which examples property tests have."""
    option = config.option
    if option.hypothesis_profile != "random":
        return []
    return [f"to repeat: --hypothesis-profile=random --hypothesis-seed={option.hypothesis_seed}"]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep on one worker what shares a costly fixture, a file or the reports, and begin there.

    What is long goes by itself, wherever a worker is idle, before what is not.
    """
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            used = getattr(item, "fixturenames", ())
            shared = [name for name in ("reported", "built", "tracefs") if name in used]
            file = item.nodeid.partition("::")[0]
            alone = item.nodeid if item.get_closest_marker("long") else file
            item.add_marker(pytest.mark.xdist_group(*(shared[:1] or [alone])))
        items.sort(
            key=lambda item: (
                item.get_closest_marker("xdist_group").args[0] != "reported",
                item.get_closest_marker("long") is None,
            )
        )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Shows beside the times of `make bench` what they come to per page, event or line."""
    session = getattr(config, "_benchmarksession", None)
    told = [b for b in getattr(session, "benchmarks", ()) if b.extra_info]
    if not told:
        return
    terminalreporter.section("per unit, from the medians (spread: IQR over median)")
    for b in sorted(told, key=lambda b: b.name):
        units = ", ".join(
            f"{k}={v:,.1f}" if isinstance(v, float) else f"{k}={v}" for k, v in b.extra_info.items()
        )
        terminalreporter.write_line(f"{b.name:64} {units}  ({b.stats.iqr / b.stats.median:.0%})")


@pytest.fixture
def tracefs() -> Path:
    """Where the kernel that runs here is traced; one worker's alone: who traces is in the way."""
    return Path("/sys/kernel/tracing")


@pytest.fixture
def tracing(tracefs: Path) -> Path:
    """Where two CPUs can be traced, by root."""
    if os.geteuid() != 0 or not (tracefs / "events/kmem").is_dir():
        pytest.skip("needs root and tracefs")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    return tracefs


@pytest.fixture(scope="session", params=[pytest.param(FEW, id="few"), ALL])
def reported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Run]]:
    """Reports of a few of the checkout's notebooks, or of all, made once for who needs them."""
    out = tmp_path_factory.mktemp("reported")
    with pytest.MonkeyPatch.context() as patch:
        keep_runs(patch, out)
        return out, rerun(request.param, project=ROOT, out=out, progress=print)


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """Rules of one's own, compiled: the examples, and ``failing``."""
    return build_policies(tmp_path_factory.mktemp("policies"))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sdist of a clean copy of the checkout, and wheel built from that sdist; made once.

    What GCC optimises is tried where it lies: here it does not, which takes a fifth.
    """
    place = tmp_path_factory.mktemp("built")
    copy_checkout(place / "checkout", "*.so")
    generated = place / "checkout" / "build" / "cython" / "pcpmodel" / "generated.c"
    generated.parent.mkdir(parents=True)
    generated.write_text("int left_by_make_env;\n")
    compiler = place / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)

    def backend(call: str, where: Path) -> Path:
        code = f"import sys; from setuptools import build_meta as b; b.{call}(sys.argv[1])"
        subprocess.run(
            [sys.executable, "-c", code, str(place)],
            cwd=where,
            env=os.environ | {"CC": str(compiler)},
            check=True,
            capture_output=True,
        )
        return next(place.glob("*.whl" if "wheel" in call else "*.tar.gz"))

    sdist = backend("build_sdist", place / "checkout")
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "sdist", filter="data")
    return sdist, backend("build_wheel", next((place / "sdist").iterdir()))

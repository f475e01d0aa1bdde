"""The command line as a whole; each verb has its tests beside its module."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [sys.executable, "-c", "from pcpmodel.cli import main; main(prog_name='pcpmodel')"]
HEAVY = {"IPython", "matplotlib", "numpy", "pandas", "papermill", "scipy", "seaborn", "xarray"}


@pytest.mark.parametrize(
    "code",
    [
        "import pcpmodel; dir(pcpmodel)",
        "from pcpmodel.cli import main; main(['--help'], standalone_mode=False)",
    ],
)
def test_starting_imports_nothing_heavy(code: str) -> None:
    report = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(json.loads(done.stderr))


def test_the_package_is_its_command_line() -> None:
    words = [sys.executable, "-m", "pcpmodel"]
    done = subprocess.run([*words, "releases"], capture_output=True, text=True, check=True)
    by_name = subprocess.run([*RUN, "releases"], capture_output=True, text=True, check=True)
    assert done.stdout == by_name.stdout
    bad = subprocess.run([*words, "limit", "nowhere"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2


def test_help_names_every_verb_with_what_it_answers() -> None:
    from click.testing import CliRunner

    from pcpmodel.cli import main

    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    for name in main.commands:
        assert name in shown.output
        (said,) = (line for line in shown.output.splitlines() if line.split()[:1] == [name])
        assert len(said.split()) > 2, f"{name} has no help"
        assert not said.endswith("..."), "cut off"


@pytest.mark.parametrize("arguments", [["--help"], ["limit", "--help"], ["releases", "--json"]])
def test_who_reads_the_results_may_go(arguments: list[str]) -> None:
    """As head does: nothing is said of it, as of other tools that SIGPIPE ends."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(RUN + arguments, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command line; standard streams as it says."""
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("--help", ""),
        ("limit --help", ""),
        ("releases", "the result cannot be written to stdout: "),
        ("releases --json", "the result cannot be written to stdout: "),
    ],
)
def test_results_that_cannot_be_written_are_bad_input(
    words: str, what: str, stdout: str, tmp_path: Path
) -> None:
    """Where stdout is closed the result was lost, with the exit code 0."""
    done = shell(f"{shlex.join(RUN)} {words} {stdout}", tmp_path)
    assert done.returncode == 2
    why = "No space left on device" if "full" in stdout else "Bad file descriptor"
    assert re.fullmatch(rf"pcpmodel: {what}(\[Errno \d+\] )?{why}\n", done.stderr)


SMALL = {
    "base": {"release": "v6.7", "machine": "ice-lake",
             "workload": {"name": "page_fault1", "processes": 2},
             "cpus": 2, "memory_gib": 4, "seconds": 0.01, "warmup_s": 0.0}
}  # fmt: skip


@pytest.mark.parametrize(
    ("streams", "code"), [("<&- >&- 2>&-", 2), ("2>&-", 0), ("2>/dev/full", 0)]
)
def test_results_do_not_hang_on_what_is_said_meanwhile(
    streams: str, code: int, tmp_path: Path
) -> None:
    """Nor is a file that is opened what a closed stream was, which anybody may write to."""
    (tmp_path / "spec.json").write_text(json.dumps(SMALL))
    done = shell(f"exec {shlex.join(RUN)} sweep spec.json --out grid.nc {streams}", tmp_path)
    assert done.returncode == code
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.nc", "spec.json"]
    assert "sweep: 1 run" not in done.stdout


@pytest.mark.parametrize("words", ["limit nowhere --p99-us 100", "limit", "frobnicate"])
@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2>&1 >/dev/null | true"])
def test_what_is_wrong_is_told_by_the_exit_code_where_nothing_can_be_said(
    words: str, stderr: str, tmp_path: Path
) -> None:
    """Wrong usage, which click says, had 1; so had all where nobody reads stderr."""
    shell(f"({shlex.join(RUN)} {words}; echo $? >code) {stderr}", tmp_path)
    assert (tmp_path / "code").read_text() == "2\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_is_heard_that_comes_where_nothing_can_be_raised(name: str) -> None:
    """In what an import calls back it was ignored, and the run went on."""
    code = (
        "import os, signal, time\n"
        "from pcpmodel.cli import main\n"
        "class Called:\n"
        "    def __del__(self):\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "        time.sleep(0)\n"
        "@main.command('wait')\n"
        "def wait():\n"
        "    Called()\n"
        "    time.sleep(60)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "main(['wait'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    said = "interrupted" if name == "SIGINT" else f"ended by {name}"
    assert (done.returncode, done.stderr) == (128 + signal.Signals[name], f"pcpmodel: {said}\n")


@pytest.mark.parametrize(
    "refusal",
    [
        MemoryError(),
        ImportError("libquadmath.so.0: failed to map segment from shared object"),  # ulimit -v
    ],
)
def test_memory_that_is_not_there_is_said(
    refusal: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from pcpmodel.cli import main

    def release_list() -> None:
        raise refusal

    monkeypatch.setattr("pcpmodel.kernel.releases.releases", release_list)
    done = CliRunner().invoke(main, ["releases"])
    assert done.exit_code == 2
    assert "not enough memory" in done.stderr


def test_where_no_figure_can_be_written_no_tree_is_read(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from pcpmodel.cli import main

    file = tmp_path / "file"
    file.write_text("")
    done = CliRunner().invoke(main, ["tree", str(tmp_path / "none"), "--figures", str(file)])
    assert done.exit_code == 2
    assert "file: is not a directory" in done.stderr


def test_a_whole_number_beyond_all_ranges_is_none_for_its_size() -> None:
    """It was called no whole number."""
    from click.testing import CliRunner

    from pcpmodel.cli import main

    words = "simulate --release v6.7 --machine ice-lake --workload page_fault1 --processes 2"
    done = CliRunner().invoke(main, [*words.split(), "--set", "batch=100000000000000000000"])
    assert done.exit_code == 2
    assert done.stderr == "pcpmodel: batch=100000000000000000000 is outside 1..16777216\n"


def test_an_unknown_verb_is_wrong_usage() -> None:
    from click.testing import CliRunner

    from pcpmodel.cli import main

    assert CliRunner().invoke(main, ["frobnicate"]).exit_code == 2

"""Damaged traces, recordings and command lines end in an answer or a clear error.

tools/fuzz_trace.py and tools/fuzz_cli.py are the long runs.
"""

# SPDX-License-Identifier: GPL-2.0-only

import random
import shutil
import subprocess
import sys

import click
import fuzz_cli
import fuzz_trace
import pytest

from helpers.paths import ROOT
from pcpmodel.cli import main

TOOLS = ROOT / "tools"


@pytest.mark.parametrize("tool", ["fuzz_api.py", "fuzz_cli.py", "fuzz_trace.py"])
def test_a_campaign_tries_the_package_that_it_lies_beside(tool, tmp_path):
    """Not the installed one: a copy under the sanitizer has a core of its own."""
    shutil.copytree(TOOLS, tmp_path / "tools")
    (tmp_path / "pcpmodel").mkdir()
    (tmp_path / "pcpmodel" / "__init__.py").write_text("raise SystemExit('the one beside it')")
    done = subprocess.run(
        [sys.executable, tmp_path / "tools" / tool, "--help"], capture_output=True, text=True
    )
    assert done.stderr.strip() == "the one beside it"


def test_command_lines_are_of_every_verb():
    def verbs(group: click.Group, *above: str):
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from verbs(command, *above, name)
            else:
                yield " ".join((*above, name))

    made = [" ".join(fuzz_cli.command(random.Random(n))) for n in range(1000)]
    assert [v for v in verbs(main) if not any(m.startswith(f"{v} ") for m in made)] == []


def test_damaged_lines_and_recordings(tmp_path):
    recording = tmp_path / "recording"
    files = fuzz_trace.small_recording(recording)
    read, refused, wrong = fuzz_trace.fuzz_lines(5000, 7, files["trace.txt"])
    assert wrong == []
    assert min(read, refused) > 1000
    replayed, refused, wrong = fuzz_trace.fuzz_recordings(150, 7, recording, files)
    assert wrong == []
    assert min(replayed, refused) > 10


def test_odd_command_lines():
    """In a process of its own: it forks, which threads of other tests would not survive."""
    tool = ROOT / "tools" / "fuzz_cli.py"
    done = subprocess.run(
        [sys.executable, tool, "--cases", "60", "--seed", "7", "--seconds", "300"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing went wrong" in done.stdout

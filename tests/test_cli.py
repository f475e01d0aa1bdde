"""The command line as a whole; each verb has its tests beside its module."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import subprocess
import sys

import pytest

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


def test_an_unknown_verb_is_wrong_usage() -> None:
    from click.testing import CliRunner

    from pcpmodel.cli import main

    assert CliRunner().invoke(main, ["frobnicate"]).exit_code == 2

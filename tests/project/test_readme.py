"""Every command that the README shows runs as it stands there.

They run one after the other in one copy of the checkout whose ``.venv`` is the
environment of the tests and whose ``reports/`` is what the tests of the
notebooks made.  Two are shown to be known to make instead of run:
``make test``, which is what runs this, and ``make lab``, which would not end.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click import Group

import pcpmodel as pm
from helpers.checkout import copy_checkout
from helpers.paths import ROOT
from helpers.reports import of_every_notebook
from pcpmodel.cli import main
from pcpmodel.reports.plan import Run

README = (ROOT / "README.md").read_text(encoding="utf-8")
DRY = {"make test": "make -n test", "make lab": "make -n lab"}


def commands(text: str) -> list[str]:
    """Lines of ``sh`` blocks, and of ``console`` blocks those after ``$``."""
    found = []
    for kind, block in re.findall(r"^```(sh|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if kind == "console" and not line.startswith("$ "):
                continue
            command = re.sub(r"(^|\s)#.*", "", line.removeprefix("$ ")).strip()
            if command:
                found.append(command)
    return found


def scripts(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_commands_are_found_in_both_kinds_of_block() -> None:
    text = "```sh\na  # why\n# why\nb \\\n c\n```\n```console\n$ d\noutput\n```\n```text\ne\n```\n"
    assert commands(text) == ["a", "b   c", "d"]


def test_the_two_commands_of_the_readme_are_there() -> None:
    shown = commands(README)
    assert {"make report", "make test"} <= set(shown)


def test_the_python_of_the_readme_runs_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(block, {})
        assert capsys.readouterr().out


def test_the_figures_of_the_readme_show_today_s_data() -> None:
    digests = {
        "docs/figures/scale-latency.svg": pm.limit(p99_us=100.0, slowdown=[1.0, 2.0, 4.0]).digest,
        "docs/figures/drain-ladder.svg": pm.study.ladder("drain").digest,
    }
    assert set(re.findall(r"!\[.+?\]\((.+?)\)", README)) == set(digests)
    for name, digest in digests.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert digest in text, f"{name} is of other data: copy the one that make report leaves"


def paths(svg: Path) -> list[float]:
    """Coordinates of everything drawn."""
    drawn = re.findall(r'<path[^>]* d="([^"]*)"', svg.read_text(encoding="utf-8"))
    return [float(number) for path in drawn for number in re.findall(r"-?[0-9.]+", path)]


def test_the_first_figure_of_the_readme_shows_today_s_fits(tmp_path: Path) -> None:
    # The digest is of the tables: it does not see that their reading changed.
    limits = pm.limit(p99_us=100.0, slowdown=[1.0, 2.0, 4.0])
    panels = pm.figures.panels(
        pm.figures.scale_latency, limits["per_scale"], by="machine", p99_us=100.0, height=2.3
    )
    pm.figures.save(panels, "scale-latency", tmp_path, digest=limits.digest)
    now, shown = (
        paths(tmp_path / "scale-latency.svg"),
        paths(ROOT / "docs/figures/scale-latency.svg"),
    )
    assert now == pytest.approx(shown, abs=0.5), "copy the one that make report leaves"


def test_every_file_that_the_readme_shows_is_there() -> None:
    named = re.findall(r"\]\(([^):#]+)\)", README)
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_section_that_the_readme_links_to_is_there() -> None:
    titles = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    linked = re.findall(r"\]\(#([^)]+)\)", README)
    assert linked
    assert set(linked) <= anchors


def test_every_verb_and_option_that_the_readme_names_exists() -> None:
    quoted = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", re.sub(r"```.*?```", "", README, flags=re.S))
    calls = [" ".join(text.split()).removeprefix("pcpmodel ") for text in quoted]
    first = {call.split()[0] for call in calls if call.split()[0] in main.commands}
    assert {"tree", "simulate", "cover-letter", "explain", "limit", "advise", "replay"} <= first
    assert {"sweep", "compare", "figures", "data", "measure", "validate"} <= first
    pcpmodel = [text.split()[1] for text in quoted if text.startswith("pcpmodel ")]
    assert [verb for verb in pcpmodel if verb not in main.commands] == []
    for call in calls:
        verb, *words = call.split()
        if verb in main.commands and not isinstance(main.commands[verb], Group):
            known = {o for p in main.commands[verb].params for o in p.opts}
            assert {word for word in words if word.startswith("--")} <= known, call


def test_what_the_readme_says_of_the_published_tables_is_counted() -> None:
    counted = json.loads((ROOT / "docs" / "verification.json").read_text(encoding="utf-8"))
    tables, nulls = counted["tables"], counted["null_models"]
    said, within = (sum(t[k] for t in tables) for k in ("predictions", "within"))
    text = " ".join(README.split())
    assert f"Of {said} predicted cells in {len(tables)} published tables {within} are" in text
    assert "none was fitted" in text
    model, nothing = nulls["model"], nulls["nothing changes"]
    assert f"of {model['cells']} cells with a row before them the model has" in text
    assert f'has {model["within"]}, and the guess "nothing changes" has {nothing["within"]}' in text
    row, constant = (nulls[name]["within"] for name in ("row before", "best constant"))
    assert f'"as the row before" {row}, the best constant of each column {constant}.' in text
    assert f"in {model['signs']} of {model['changes']} cells that changed" in text
    takings = nulls["lock takings"]
    assert f"lock takings alone in {takings['signs']} of {takings['changes']}." in text


@pytest.fixture
def checkout(tmp_path: Path, reported: tuple[Path, list[Run]]) -> Path:
    """A copy of the checkout that ``make env`` has nothing to do for."""
    checkout = copy_checkout(tmp_path / "checkout")
    shutil.copytree(reported[0], checkout / "reports")
    tools = checkout / ".venv/bin"
    tools.mkdir(parents=True)
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    start = "from pcpmodel.cli import main; main(prog_name='pcpmodel')"
    (tools / "pcpmodel").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    for stamp in (".installed", ".built"):
        (checkout / ".venv" / stamp).touch()
    return checkout


@pytest.mark.notebook
@of_every_notebook  # `make report` has nothing to do
def test_every_command_of_the_readme_runs(checkout: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    path = [str(checkout / ".venv/bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    env = os.environ | {"PATH": os.pathsep.join(path), "PYTHONPATH": str(checkout)}
    for name in ("MAKEFLAGS", "MAKELEVEL", "PCPMODEL_DATA"):
        env.pop(name, None)

    def run(*command: str) -> None:
        done = subprocess.run(
            command, cwd=checkout, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"

    for command in commands(text):
        run("sh", "-c", DRY.get(command, command))
    for script in scripts(text):
        run("python", "-c", script)

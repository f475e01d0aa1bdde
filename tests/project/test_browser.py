"""JupyterLab as a person meets it: ``make lab``, a browser, every notebook run from the menu.

The browser is Debian's chromium and reaches this machine alone.  Screenshots are left in
``build/browser``.
"""

# SPDX-License-Identifier: GPL-2.0-only

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from helpers.paths import ROOT
from pcpmodel.reports.notebook import read_notebook
from pcpmodel.study.published.shared import SHARED_RUNS

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.slow]

SHOTS = ROOT / "build" / "browser"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WINDOW = {"width": 1280, "height": 900}
MINUTES = 60_000  # ms; a slow machine is no fault

#: Less work for the notebooks that simulate for long; the others run as they are.
SMALL: dict[str, dict[str, Any]] = {
    "05-replay": {"recordings": ["7.2-idle-decay-4cpu"]},
    "06-what-if": {"releases": ["v6.6", "v6.7", "v7.2"]},
    "10-bulk-free-batching": {"seeds": [1, 2], "seconds": 0.5},
    "11-zone-splitting": {
        "instances": [1, 4],
        "seconds": 0.2,
        "seeds": [1, 2],
        "cpus": [56, 112],
        "memory_gib": [512.0, 1024.0],
    },
    "12-how-large-lists": {
        "batch_scale_max": [0, 5],
        "high_pages": [500, 5000],
        "seeds": [1, 2],
        "releases": ["v6.6", "v7.2"],
        "idle_seconds": 10.0,
    },
    "13-published-tables": {"source": ["pcp-auto-tuning-v2"]},
    "14-numa-delayed-mapping": {
        "scale": 0.005,
        "map_scales": [0.001],
        "threads": [1, 8],
        "situation_scale": 0.001,
        "seeds": 2,
    },
}

#: All cells in the page at once, also those that one would have to scroll to; no question first.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}

#: JupyterLab shows warnings and tracebacks alike.
COMPLAINT = '[data-mime-type="application/vnd.jupyter.stderr"]'
# Every code cell has its number, or one has failed and the rest will not run.
_DONE = r"""complaint => {
  const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')];
  return prompts.length && prompts.every(prompt => /^\[\d+\]:$/.test(prompt.textContent))
    || [...document.querySelectorAll(complaint)].some(said => /Traceback/.test(said.textContent));
}"""


def test_small_runs_name_parameters_that_are_there() -> None:
    for stem, values in SMALL.items():
        declared = read_notebook(ROOT / "notebooks" / f"{stem}.ipynb").parameters
        assert [name for name, value in values.items() if not declared[name].accepts(value)] == []


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What ``make lab`` starts, on copies of the notebooks and with nobody's settings.

    Its environment is the one that ``make env`` makes, as it is.
    """
    place = tmp_path_factory.mktemp("lab")
    (place / "notebooks").mkdir()
    for path in NOTEBOOKS:
        notebook = load_notebook_node(str(path))
        if path.stem in SMALL:
            names = {"kernel_name": "python3", "language": "python"}
            notebook = parameterize_notebook(notebook, SMALL[path.stem], **names)
        nbformat.write(notebook, place / "notebooks" / path.name)
    for name, chosen in SETTINGS.items():
        settings = place / "config/lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(chosen))
    flags = "LAB_FLAGS=--no-browser --allow-root"
    made = ["make", "--no-print-directory", "-n", "-o", "env", "lab", flags]
    shown = subprocess.run(made, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    program, *arguments = shlex.split(shown.replace("\\\n", " "))
    assert program == ".venv/bin/jupyter", shown
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {
        "HOME": str(place),
        "IPYTHONDIR": str(place / "ipython"),
        "JUPYTER_CONFIG_DIR": str(place / "config"),
        "JUPYTER_DATA_DIR": str(place / "share"),
        "JUPYTER_RUNTIME_DIR": str(place / "runtime"),
        # Notebook 13 is made of the runs of two before it: left for each other as in a rerun.
        SHARED_RUNS: str(place / "runs"),
    }
    (place / "runs").mkdir()
    SHOTS.mkdir(parents=True, exist_ok=True)
    with (SHOTS / "lab.log").open("w") as log:
        server = subprocess.Popen(
            [str(ROOT / program), *arguments],
            cwd=place,
            env=env,
            stdout=log,
            stderr=log,
        )
        try:
            yield _address(server, place / "runtime")
        finally:
            server.send_signal(signal.SIGTERM)  # it ends its kernels
            server.wait(60)


def _address(server: subprocess.Popen[bytes], runtime: Path) -> dict[str, Any]:
    """Wait for the file in which a running server tells where it listens."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert server.poll() is None, (SHOTS / "lab.log").read_text()
        for file in runtime.glob("jpserver-*.json"):
            return json.loads(file.read_text())
        time.sleep(0.1)
    raise AssertionError("JupyterLab did not start:\n" + (SHOTS / "lab.log").read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "there is no chromium (Debian: apt install chromium)"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, lab: dict[str, Any]) -> Iterator[Page]:
    """A fresh profile that reaches this machine alone; its kernel ends with it."""
    context = browser.new_context(viewport=WINDOW)
    context.set_default_timeout(2 * MINUTES)
    elsewhere: list[str] = []

    def guard(route: Any) -> None:
        if route.request.url.startswith(lab["url"]):
            route.fallback()
        else:
            elsewhere.append(route.request.url)
            route.abort()

    context.route("**/*", guard)
    page = context.new_page()
    yield page
    sessions = f"{lab['url']}api/sessions"
    headers = {"Authorization": f"token {lab['token']}"}
    for session in context.request.get(sessions, headers=headers).json():
        context.request.delete(f"{sessions}/{session['id']}", headers=headers)
    context.close()
    assert elsewhere == []


def run_all(page: Page) -> None:
    """Run every cell from the menu and wait for the last."""
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(_DONE, arg=COMPLAINT, timeout=10 * MINUTES)


def keep(page: Page, name: str) -> None:
    """Leave a picture of the whole notebook."""
    cells = page.locator(".jp-Notebook .jp-Cell")
    for _ in range(2):  # heights are known once all is in the window
        top, last = cells.first.bounding_box(), cells.last.bounding_box()
        height = int(last["y"] + last["height"] - top["y"]) + 160
        page.set_viewport_size({"width": WINDOW["width"], "height": height})
        cells.first.scroll_into_view_if_needed()
    page.screenshot(path=SHOTS / f"{name}.png")
    page.set_viewport_size(WINDOW)


def complaints(page: Page) -> list[str]:
    """Errors, and whatever else was written to stderr."""
    return page.locator(COMPLAINT).all_inner_texts()


def pixels(page: Page) -> np.ndarray:
    shot = page.locator("img.widget-image").screenshot()
    return np.asarray(Image.open(io.BytesIO(shot)).convert("L"), dtype=int)


def test_a_warning_and_an_error_do_not_go_unnoticed(page: Page, lab: dict[str, Any]) -> None:
    cells = ["import warnings; warnings.warn('mind the gap')", "1 / 0", "print('never')"]
    bad = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    bad.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(bad, Path(lab["root_dir"], "bad.ipynb"))
    page.goto(f"{lab['url']}lab/workspaces/bad/tree/bad.ipynb?token={lab['token']}")
    run_all(page)
    warning, error = complaints(page)
    assert "mind the gap" in warning
    assert "ZeroDivisionError" in error


def test_make_lab_opens_the_tour_and_its_picture_follows_a_slider(
    page: Page, lab: dict[str, Any]
) -> None:
    page.goto(f"{lab['url']}lab/tree/00-start-here.ipynb?token={lab['token']}")
    page.get_by_role("heading", name="What is a per-CPU page list?").wait_for()
    page.screenshot(path=SHOTS / "opened.png")
    run_all(page)
    picture = page.locator("img.widget-image")
    picture.wait_for()
    assert complaints(page) == []
    keep(page, "00-start-here")
    before = pixels(page)
    handle = page.locator(".widget-hslider", has_text="batch [pages]").locator(".noUi-handle")
    handle.focus()
    source = picture.get_attribute("src")
    handle.press("ArrowLeft")
    page.wait_for_function(
        "src => document.querySelector('img.widget-image').src != src", arg=source
    )
    after = pixels(page)
    keep(page, "00-start-here-moved")
    assert before.shape == after.shape
    assert (abs(before - after) > 64).mean() > 0.001, "the picture stayed the same"


@pytest.mark.parametrize("stem", [path.stem for path in NOTEBOOKS[1:]])
def test_runs_in_jupyterlab_without_a_complaint(page: Page, lab: dict[str, Any], stem: str) -> None:
    # A workspace of its own: none of the tabs of the notebook before.
    page.goto(f"{lab['url']}lab/workspaces/{stem}/tree/{stem}.ipynb?token={lab['token']}")
    run_all(page)
    keep(page, stem)
    assert complaints(page) == []
    assert page.locator(".jp-RenderedImage img, .jp-RenderedMarkdown").count()


def test_a_rule_edited_in_notebook_07_is_compiled_and_obeyed(
    page: Page, lab: dict[str, Any]
) -> None:
    page.goto(
        f"{lab['url']}lab/workspaces/edited/tree/07-your-own-policy.ipynb?token={lab['token']}"
    )
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    cell = page.locator(".jp-CodeCell", has_text="%%cython")
    source = next(
        cell.source
        for cell in nbformat.read(ROOT / "notebooks/07-your-own-policy.ipynb", 4).cells
        if cell.source.startswith("%%cython")
    )
    assert "view.user[0] *= 2" in source
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(source.replace("view.user[0] *= 2", "view.user[0] *= 4"))
    run_all(page)
    keep(page, "07-edited")
    assert complaints(page) == []
    said = page.locator(".jp-OutputArea-output", has_text="'doubling'").inner_text()
    assert "'doubling': [63, 252, 1008, 4032, 4032]" in said

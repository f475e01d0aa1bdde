"""The tour without an installation: one file, opened in a browser, that fetches nothing."""

# SPDX-License-Identifier: GPL-2.0-only

import shutil
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from helpers.paths import ROOT
from pcpmodel.reports.tour import Tour

sys.path.append(str(ROOT / "docs"))
import tour_page

CHOICES = {
    "release": ("v6.6", "v6.7"),
    "workload": ("large-bursts",),
    "batch": (63,),
    "high_min": (500, 4000),
    "batch_scale_max": (0, 5),
    "cpus": (56, 224),
}


@pytest.mark.browser
def test_controls_switch_between_the_precomputed_runs(tmp_path: Path) -> None:
    file = tmp_path / "tour.html"
    file.write_text(tour_page.page(CHOICES), encoding="utf-8")
    assert file.stat().st_size < 1 << 20
    chromium = shutil.which("chromium")
    assert chromium, "there is no chromium (Debian: apt install chromium)"
    expected = Tour(release="v6.7").prices(cpus=56, batch_scale_max=0).iloc[1]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        asked, wrong = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(file.as_uri())
        first = page.inner_text("#prices")
        before = page.inner_html("#life")
        page.select_option("[name=batch_scale_max]", "0")
        assert page.inner_html("#life") != before
        page.select_option("[name=cpus]", "56")
        said = page.inner_text("#prices")
        browser.close()
    assert said != first
    (row,) = (line for line in said.splitlines() if "waiting" in line)
    assert row.split("\t")[-1] == f"{expected['waiting_percent']:.2f}"
    (row,) = (line for line in said.splitlines() if "MiB" in line)
    assert row.split("\t")[-1] == f"{expected['list_mib']:,.1f}"
    assert asked == [file.as_uri()]
    assert not wrong


def test_the_first_settings_are_among_the_choices() -> None:
    for name, offered in tour_page.CHOICES.items():
        assert getattr(tour_page.START, name) in offered

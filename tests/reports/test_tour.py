"""The tour of 00-start-here: its numbers, its picture, its controls."""

# SPDX-License-Identifier: GPL-2.0-only

import math

import nbformat.v4 as nb
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import pcpmodel as pm
from pcpmodel.reports.pages import html, tidy

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def shown() -> pm.Tour:
    return pm.Tour()


def test_prices_are_those_of_the_simulator(shown: pm.Tour) -> None:
    prices = shown.prices(release="v6.6", batch=31, high_min=1000, cpus=56)
    run = pm.simulate(
        release="v6.6",
        machine="sapphire-rapids",
        workload=pm.workload.page_fault1(56, pages=4000),
        warm=True,
        seconds=0.05,
        warmup_s=0.05,
        cpus=224,
        nodes=2,
        memory_gib=512.0,
        batch=31,
        high_min_pages=1000,
        samples=50,
    )
    now = prices.iloc[1]
    assert now["waiting_percent"] == 100 * run.lock_contention > 1
    assert now["list_mib"] == run.pages_in_pcp.max() * 4096 / 2**20


def test_lives_are_the_rules_with_the_sizes_of_the_simulated_machine(shown: pm.Tour) -> None:
    old, new = shown.lives()
    work = [("alloc", 4000), ("free", 4000), ("decay", 15)]
    assert old.digest == pm.study.trajectory("v6.6", work, high_max=500).digest
    assert (new.release, new.batch, new.high_min) == ("v6.7", 63, 500)
    assert new.high_max == 512 * 2**18 // 2 // 8 // 112


def test_what_the_notebook_says_will_happen_happens(shown: pm.Tour) -> None:
    def now(**changed: object) -> dict[str, float]:
        return shown.prices(**changed).iloc[1].to_dict()

    old = now(release="v6.6")
    assert old["waiting_percent"] > 50 > 1 > now()["waiting_percent"]
    assert now(release="v6.6", cpus=28)["waiting_percent"] < 0.7 * old["waiting_percent"]
    roomy = now(release="v6.6", high_min=4000)
    assert roomy["waiting_percent"] < 1
    assert roomy["list_mib"] > 5 * old["list_mib"]
    assert now(batch_scale_max=0)["p99_us"] < now()["p99_us"] / 5
    for release in ("v6.6", "v7.2"):
        small = now(release=release, workload="small-bursts")
        assert math.isnan(small["p99_us"])
        assert "there are no refills and drains" in shown.summary(
            release=release, workload="small-bursts"
        )
    stream = [now(release=name, workload="stream") for name in ("v6.6", "v6.7")]
    assert stream[0]["waiting_percent"] > stream[1]["waiting_percent"] + 5


def test_prices_that_some_runs_do_not_have_are_not_compared() -> None:
    """Two CPUs hardly visit the zone under v6.7: one run of three did, ± nan."""
    said = pm.Tour(cpus=2).surprise()
    assert "73.6 µs in 1 of 3 runs, none in the others (not compared)" in said
    assert "nan" not in said
    assert "visit none and none (not compared)" in pm.Tour(workload="small-bursts").surprise()


def test_every_control_changes_the_picture_and_the_words() -> None:
    grid, picture, words = pm.Tour(release="v6.6", cpus=112).controls().children
    seen = {bytes(picture.value)}
    for control, value in zip(grid.children, ("v6.7", "stream", 31, 1000, 0, 56), strict=True):
        control.value = value
        assert bytes(picture.value) not in seen, control.description
        seen.add(bytes(picture.value))
    assert all(picture.startswith(b"\x89PNG") for picture in seen)
    assert "v6.7 on 56 CPUs, against v6.6" in words.value


def test_an_impossible_setting_is_said_beside_the_picture(shown: pm.Tour) -> None:
    grid, picture, words = pm.Tour(batch=400, high_min=500).controls().children
    good = bytes(picture.value)
    grid.children[3].value = 252
    assert "batch" in words.value
    assert bytes(picture.value) == good


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"release": "v6.77"}, "v6.7"),
        ({"before": "v66"}, "v6.6"),
        ({"workload": "large-burst"}, "large-bursts"),
        ({"cpus": 3}, "even number in 2..224"),
        ({"batch_scale_max": 7}, "0..6"),
        ({"batch": 600}, "batch"),
        ({"hihg_min": 1}, "high_min"),
        ({"machine": "saphire-rapids"}, "sapphire-rapids"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(pm.InputError, match=said):
        pm.Tour(**settings)


def test_same_settings_same_picture_and_digest() -> None:
    one, two = pm.Tour(cpus=56), pm.Tour(cpus=56)
    assert one.png() == two.png()
    assert one.digest == two.digest != pm.Tour(cpus=58).digest


@pytest.mark.parametrize("size", pm.figures.SIZES)
def test_nothing_of_the_picture_is_cut_off_or_overlaps(shown: pm.Tour, size: str) -> None:
    with pm.figures.output(size):
        figure = shown.figure()
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    drawn, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) > 0
    for ax in figure.axes:
        box = ax.xaxis.label.get_window_extent(renderer)
        low, high = ax.get_xlim()
        ticks = [t.label1 for t in ax.xaxis.get_major_ticks() if low <= t.get_loc() <= high]
        assert not any(tick.get_window_extent(renderer).overlaps(box) for tick in ticks)


def test_on_paper_the_picture_stays_and_the_controls_go(shown: pm.Tour) -> None:
    bundle = shown._repr_mimebundle_()
    assert {"image/png", WIDGET} <= set(bundle)
    picture = nb.new_output("execute_result", {**bundle, "image/png": "AAAA"})
    bare = nb.new_output("display_data", {WIDGET: {}, "text/plain": "IntSlider()"})
    notebook = tidy(nb.new_notebook(cells=[nb.new_code_cell("tour", outputs=[picture, bare])]))
    (left,) = notebook.cells[0].outputs
    assert set(left["data"]) == {"image/png", "text/plain"}
    page = html(notebook, "tour")
    assert "data:image/png;base64,AAAA" in page
    assert "<script src=" not in page

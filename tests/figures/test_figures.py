"""Figures: what they show, how they look, and the bytes they become."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import inspect
import io
import itertools
import json
import os
import re
import subprocess
import sys
import zlib

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from fontTools import subset
from fontTools.ttLib import TTFont
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from nbclient import NotebookClient

from pcpmodel import __version__, figures, study
from pcpmodel.errors import InputError
from pcpmodel.figures import style
from pcpmodel.figures.style import SERIES

DIGEST = "0123456789abcdef" * 4


def frames(machines=("one", "two", "three", "four", "five")):
    """Made-up data of the shape that the studies give."""
    points, lines, rows, scales, curves = [], [], [], [], []
    batch, pages = np.array([63, 127, 255, 511, 1023, 2047]), np.array([1, 32, 63, 2047, 8192])
    for m, machine in enumerate(machines):
        for i, (side, statistic) in enumerate(
            (s, t) for s in ("refill", "drain") for t in ("mean", "p99")
        ):
            keys = {"machine": machine, "side": side, "statistic": statistic}
            slope = 0.02 * (1 + i + m / 4)
            residual = np.array([1.0, -2.0, 3.0, -4.0, 30.0 if i else 2.0, -15.0])
            points.append(
                pd.DataFrame(
                    {**keys, "batch": batch, "measured_us": 1 + slope * batch}
                    | {
                        "residual_percent": residual,
                        "outlier": residual > 20,
                        "outside": False,
                        "made": False,
                    }
                )
            )
            fitted = 1 + slope * pages
            lines.append(
                pd.DataFrame({**keys, "pages": pages, "fitted_us": fitted}).assign(
                    fitted_all_us=fitted * 1.1, low_us=fitted / 1.2, high_us=fitted * 1.2
                )
            )
        gain = np.array([0.0, 1.0, 2.0, 1.2, 3.0, 3.2])
        rows.append(
            pd.DataFrame({"machine": machine, "batch": batch, "gain_percent": gain}).assign(
                explained_percent=gain / 3, noise_percent=0.3, falls=gain == 1.2
            )
        )
        for slowdown in (1.0, 2.0, 4.0):
            p99 = slowdown * (5 + m) * 2.0 ** np.arange(7)
            scales.append(
                pd.DataFrame({"machine": machine, "slowdown": slowdown, "batch_scale": range(7)})
                .assign(p99_us=p99, p99_low_us=p99 / 1.1, p99_high_us=p99 * 1.1)
                .assign(release="v6.18", p99_fitted_us=p99, p99_fitted_all_us=p99 / 1.05)
                .assign(
                    measured_p99_us=[*p99[:6], np.nan], measured_outlier=[False] * 5 + [True] * 2
                )
                .assign(probability=1 / (1 + (p99 / 100) ** 8))
            )
    for scale in range(7):
        at = np.geomspace(10, 1000, 41)
        curves.append(
            pd.DataFrame({"batch_scale": scale, "limit_us": at}).assign(
                probability=1 / (1 + (6 * 2**scale / at) ** 8)
            )
        )
    return [pd.concat(parts, ignore_index=True) for parts in (points, lines, rows, scales, curves)]


POINTS, LINES, ROWS, SCALES, CURVE = frames()


def one(frame, column="machine", value="one"):
    return frame[frame[column] == value]


AXES = {
    "hold_time": lambda ax=None: figures.hold_time(one(POINTS), one(LINES), ax=ax),
    "hold_time_per_page": lambda ax=None: figures.hold_time(
        one(POINTS), one(LINES), ax=ax, per_page=True
    ),
    "residuals": lambda ax=None: figures.residuals(one(POINTS), ax=ax),
    "throughput_gain": lambda ax=None: figures.throughput_gain(one(ROWS), ax=ax),
    "throughput_gain_unmeasured": lambda ax=None: figures.throughput_gain(ROWS[:0], ax=ax),
    "scale_latency": lambda ax=None: figures.scale_latency(one(SCALES), 100, ax=ax),
    "scale_probability": lambda ax=None: figures.scale_probability(
        one(SCALES, "slowdown", 1.0), ax=ax
    ),
    "limit_probability": lambda ax=None: figures.limit_probability(CURVE, 100, ax=ax),
}
PANELS = {
    "hold_time": lambda: figures.panels(figures.hold_time, POINTS, LINES, by="machine"),
    "residuals": lambda: figures.panels(figures.residuals, POINTS, by="machine"),
    "throughput_gain": lambda: figures.panels(
        figures.throughput_gain, ROWS, by="machine", share="x"
    ),
    "scale_latency": lambda: figures.panels(
        figures.scale_latency, SCALES, by="machine", p99_us=100
    ),
    "scale_probability": lambda: figures.panels(
        figures.scale_probability, SCALES, by="slowdown", title="times {:g}", height=1.8
    ),
}


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def tick_labels(axis, renderer):
    """Boxes of the tick labels within view."""
    low, high = sorted(axis.get_view_interval())
    ticks = [
        t for t in axis.get_major_ticks() if low <= t.get_loc() <= high and t.label1.get_text()
    ]
    return [t.label1.get_window_extent(renderer) for t in ticks if t.label1.get_visible()]


@pytest.mark.parametrize("name", AXES)
def test_data_in_axes_out_and_the_style_stays_inside(name):
    before = dict(mpl.rcParams)
    own = AXES[name]()
    _, ax = plt.subplots()
    assert AXES[name](ax) is ax
    assert isinstance(own, Axes)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", AXES)
def test_quantities_are_labelled_with_their_units(name):
    ax = AXES[name]()
    quantity = r"\[(%|µs|ns|pages|% of measured)\]|Pages|Batch scale factor|Probability"
    assert re.search(quantity, ax.get_xlabel())
    assert re.search(quantity, ax.get_ylabel()) or name == "scale_probability"


@pytest.mark.parametrize("name", ["hold_time", "residuals", "throughput_gain", "scale_latency"])
def test_model_and_measurement_differ_without_colour(name):
    drawn = [line for line in AXES[name]().lines if np.size(line.get_xdata()) > 2]
    models = [line for line in drawn if line.get_linestyle() != "None"]
    measured = [line for line in drawn if line.get_marker() not in ("None", "", None)]
    assert measured
    assert not set(models) & set(measured)
    markers = [line.get_marker() for line in measured]
    assert len(set(markers)) == len(markers) or name == "throughput_gain"


def test_series_differ_in_line_marker_and_grey():
    assert len({str(dash) for _, dash, _ in SERIES}) == len(SERIES)
    assert len({marker for _, _, marker in SERIES}) == len(SERIES)
    assert len({colour for colour, _, _ in SERIES}) == len(SERIES)
    grey = [np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) for colour, _, _ in SERIES]
    assert max(grey) < 0.75  # dark enough on white paper


@pytest.mark.parametrize("name", ["hold_time", "scale_latency"])
def test_uncertainty_is_shown_as_bands(name):
    assert AXES[name]().collections


def test_outliers_are_drawn_open():
    ax = AXES["hold_time"]()
    open_ = [x for line in ax.lines if line.get_mfc() == "white" for x in line.get_xdata()]
    assert sorted(open_) == [1023, 1023, 1023]


def test_residuals_beyond_the_edge_carry_their_value():
    texts = [text.get_text() for text in AXES["residuals"]().texts]
    assert texts.count("+30") == 3
    assert texts.count("-15") == 4


def test_residuals_beyond_one_edge_of_a_batch_do_not_lie_on_each_other():
    points = one(POINTS).copy()
    points["residual_percent"], points["outlier"] = 50.0, False
    ax = figures.residuals(points)
    places = [text.xy for text in ax.texts]
    assert len(places) == len(points) == len(set(places))
    assert all(0 < y < ax.get_ylim()[1] for _, y in places)


@pytest.mark.parametrize("batches", [6, 13])
@pytest.mark.parametrize("kind", ["alone", "panels"])
def test_values_at_an_edge_lie_beside_each_other(kind, batches):
    rows = one(POINTS)
    points = pd.concat(
        rows[rows["batch"] == 63].iloc[[i % 4]].assign(batch=63 * 2**i) for i in range(batches)
    ).reset_index(drop=True)
    points["residual_percent"], points["outlier"] = -17.0, False
    if kind == "alone":
        ax = figures.residuals(points)
    else:
        alike = pd.concat(points.assign(machine=name) for name in "abcde")
        ax = figures.panels(figures.residuals, alike, by="machine").axes[0]
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    markers = [ax.transData.transform(text.xy) for text in ax.texts]
    assert len(boxes) == batches
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert not any(box.contains(*at) for at in markers)


@pytest.mark.parametrize("draw", [*AXES.values(), *PANELS.values()], ids=[*AXES, *PANELS])
def test_nothing_is_cut_off_and_no_labels_of_an_axis_overlap(draw):
    made = draw()
    figure = made.figure if isinstance(made, Axes) else made
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    drawn, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert drawn.x0 > -0.01
    assert drawn.y0 > -0.01
    assert drawn.x1 < width + 0.01
    assert drawn.y1 < height + 0.01
    for ax in filter(lambda ax: ax.axison, figure.axes):
        titles = [t for t in (ax.xaxis.label, ax.yaxis.label, ax._left_title) if t.get_text()]
        boxes = [t.get_window_extent(renderer) for t in titles]
        boxes += tick_labels(ax.yaxis, renderer)
        if not any(label.get_rotation() for label in ax.get_xticklabels()):
            boxes += tick_labels(ax.xaxis, renderer)  # boxes of slanted words say nothing
        overlapping = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
        assert not overlapping
        for legend in figure.legends:
            assert not legend.get_window_extent(renderer).overlaps(ax.get_window_extent(renderer))


def test_every_curve_within_view_carries_its_scale_however_steep():
    limit = np.geomspace(10, 1000, 40)
    curve = pd.concat(
        pd.DataFrame({"batch_scale": k, "limit_us": limit, "probability": 1.0 * (limit > start)})
        for k, start in enumerate((1, 20, 200, 2000))
    )
    ax = figures.limit_probability(curve, 100)
    at = {text.get_text(): text.get_position()[0] for text in ax.texts}
    assert list(at) == ["1", "2"]
    assert at["1"] == pytest.approx(20, rel=0.2)
    assert at["2"] == pytest.approx(200, rel=0.2)


def test_probabilities_of_many_machines_are_read_one_by_one():
    """Names and numbers of fifteen lay on each other: the figure was as high as of five."""
    _, _, _, scales, _ = frames([f"machine-{i}" for i in range(15)])
    few = scales[scales["machine"].isin(["machine-0", "machine-1"])]
    draw = {"by": "slowdown", "height": 1.8}
    small = figures.panels(figures.scale_probability, few, **draw)
    assert small.get_figheight() == pytest.approx(2.2)
    figure = figures.panels(figures.scale_probability, scales, **draw)
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    for ax in figure.axes:
        boxes = [text.get_window_extent(renderer) for text in ax.texts]
        boxes += tick_labels(ax.yaxis, renderer)
        assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]


@pytest.mark.parametrize("large", ["one", "two", "three"])
def test_batches_of_large_pages_have_ticks_and_points_in_view_beside_others(large):
    """Ticks were those of the last panel, and its range cut what another one has below."""
    points, lines, *_ = frames(("one", "two", "three"))
    of = points["machine"] == large
    points["batch"] = points["batch"].where(~of, points["batch"] / 16)
    of = lines["machine"] == large
    lines["pages"] = lines["pages"].where(~of, lines["pages"] / 16)
    figure = figures.panels(figures.hold_time, points, lines, by="machine")
    for ax in figure.axes:
        low, high = ax.get_xlim()
        assert low < points["batch"].min()
        assert high >= lines["pages"].max()
        ticks = ax.get_xticks()
        assert np.min(ticks[1:] / ticks[:-1]) >= 1.6
        near = np.abs(np.log(points["batch"].to_numpy()[:, None] / ticks)).min(axis=1)
        assert near.max() < np.log(1.6)
        assert len(ax.xaxis.get_majorticklabels()) == len(ticks)
        assert all(label.get_text() for label in ax.xaxis.get_majorticklabels())


def test_a_ratio_that_has_no_logarithm_is_told_in_words():
    """Of two kernels alike nothing is saved: the figure broke (limits of NaN)."""
    rows = pd.DataFrame(
        {"quantity": ["throughput_gain", "migrated_pages"], "kernel": "v6.1", "fitted": False,
         "measured": [5.5, 9.2e6], "predicted": [-0.01, 9.1e6], "ratio": [-0.002, 0.99]}
    )  # fmt: skip
    ax = figures.numa_published(rows)
    said = [label.get_text() for label in ax.get_yticklabels()]
    assert said == ["throughput gain, v6.1: -0.01 (not drawn)", "migrated pages, v6.1"]


def test_panels_of_no_rows_say_so(tmp_path):
    """A table that a notebook's parameters did not select: "figures of none", with nan in it."""
    figure = figures.panels(figures.residuals, POINTS[:0], by="machine")
    figures.save(figure, "none", tmp_path, digest="d")
    told = json.loads((tmp_path / "none.json").read_text())
    assert (
        told["caption"] == told["alt"] == "Nothing is drawn: what was asked for has no such rows."
    )


def of_other_columns(draw):
    """What a figure has to be given, every frame without the columns that it takes."""
    frame = pd.DataFrame({"machine": ["one"], "nonsense": [1.0]})
    found = {}
    words = {"quantity": "remote_percent"}
    for name, argument in inspect.signature(draw).parameters.items():
        if argument.default is argument.empty:
            kind = str(argument.annotation)
            frames = {"one": frame} if "Mapping" in kind else frame
            found[name] = (
                frames
                if "DataFrame" in kind
                else 100.0
                if kind == "float"
                else words.get(name, "y")
            )
    return found


OF_FRAMES = [
    name
    for name in figures.__all__
    if name not in ("FORMATS", "SIZES", "panels")
    and "pd.DataFrame" in str(inspect.signature(getattr(figures, name)))
]


@pytest.mark.parametrize("name", OF_FRAMES)
def test_a_column_that_a_frame_has_not_got_is_named_and_no_figure_is_left(name):
    draw = getattr(figures, name)
    with pytest.raises(InputError, match=r"no column '\w+' in .* \(given: machine and nonsense\)"):
        draw(**of_other_columns(draw))
    assert not plt.get_fignums()


def test_of_two_frames_the_one_that_lacks_a_column_is_named():
    with pytest.raises(InputError, match=r"^no column 'statistic' in lines \(given: .*\);"):
        figures.hold_time(one(POINTS), one(LINES).drop(columns="statistic"))
    with pytest.raises(InputError, match="by: frame 2 has no column 'machine'; given: "):
        figures.panels(figures.hold_time, POINTS, LINES.drop(columns="machine"), by="machine")


def test_a_value_that_a_figure_does_not_know_is_not_called_a_column():
    rungs = study.ladder("drain", names=["v6.6"])["rungs"]
    for wrong in ({"kind": "nonsense"}, {"column": "operation"}):
        with pytest.raises(InputError, match=rf"unknown {next(iter(wrong))} '\w+'.* Known: "):
            figures.ladder(rungs, **{"kind": "drain", **wrong})
    with pytest.raises(InputError, match="unknown kind 'nonsense'"):
        figures.ladder(rungs.assign(kind="nonsense"))
    with pytest.raises(InputError, match=r"^points has no row of refill p99, .*: other mean, "):
        figures.hold_time(one(POINTS).assign(side="other"), one(LINES))
    with pytest.raises(InputError, match=r"given side and statistic: no rows$"):
        figures.hold_time(one(POINTS)[:0], one(LINES))
    with pytest.raises(InputError, match=r"unknown quantity 'time_s'.* Known: "):
        figures.numa_series(pd.DataFrame({"release": ["v7.2"], "time_s": [1.0]}), "time_s")

    @style.figure_style(size=(3, 2), caption=lambda rows: "")
    def looks_up(rows, ax=None):
        return {}[rows["kind"].iloc[0]]

    with pytest.raises(KeyError, match="drain"):
        looks_up(rungs)


def test_frames_may_be_given_by_name():
    by_name = figures.hold_time(points=one(POINTS), lines=one(LINES))
    by_place = figures.hold_time(one(POINTS), one(LINES))
    assert figures.caption(by_name) == figures.caption(by_place)
    assert by_name.get_title(loc="left") == by_place.get_title(loc="left") == "one"


def test_panels_of_two_columns_and_of_yes_and_no():
    table = pd.DataFrame(
        {"asleep": [False, True], "slow": [1.0, 2.0], "release": "v6.7", "time_s": 1.0, "mib": 2.0}
    )
    draw = figures.memory_on_lists
    figure = figures.panels(draw, table, by=["asleep", "slow"], title="{} x {:g}")
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["no x 1", "yes x 2"]


@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_panels_hold_any_number_of_machines_in_order(count):
    names = [f"m{i}" for i in range(count)]
    points, *_ = frames(names)
    figure = figures.panels(figures.residuals, points, by="machine")
    shown = [ax.get_title(loc="left") for ax in figure.axes if ax.axison]
    assert shown == names
    assert (len(figure.legends) or sum(ax.get_legend() is not None for ax in figure.axes)) == 1


@pytest.mark.long
@pytest.mark.notebook
def test_figures_show_themselves_in_a_notebook():
    draw = "pm.figures.panels(pm.figures.residuals, fit['points'], by='machine');"
    cells = ["import pcpmodel as pm; fit = pm.fit('comet-lake')", draw, draw]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    done = NotebookClient(book, kernel_name="python3", timeout=300).execute()
    shown = [[output.output_type for output in cell.outputs] for cell in done.cells]
    assert shown[1:] == [["display_data"], ["display_data"]]


@pytest.mark.parametrize("slow", ["one", "two", "three"])
@pytest.mark.parametrize("per_page", [False, True])
def test_a_slow_machine_is_in_view_whichever_panel_it_has(slow, per_page):
    points, lines, *_ = frames(("one", "two", "three"))
    points.loc[points["machine"] == slow, "measured_us"] *= 30
    figure = figures.panels(figures.hold_time, points, lines, by="machine", per_page=per_page)
    for ax in figure.axes:
        low, high = ax.get_ylim()
        drawn = np.concatenate(
            [line.get_ydata() for line in ax.lines if line.get_marker() != "None"]
        )
        assert low < drawn.min()
        assert drawn.max() < high


# ---------------------------------------------------------------- files

KINDS = ("svg", "pdf", "png")


def test_three_files_carry_version_and_digest(tmp_path):
    figures.save(AXES["residuals"](), "residuals", tmp_path / "new", digest=DIGEST)
    files = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    about = json.loads(files.pop("residuals.json"))
    tex = files.pop("residuals.tex").decode()
    assert "{residuals.pdf}" in tex
    assert "\\label{fig:residuals}" in tex
    assert sorted(files) == [f"residuals.{kind}" for kind in sorted(KINDS)]
    for content in files.values():
        assert f"pcpmodel {__version__}".encode() in content
        assert DIGEST.encode() in content
    assert (about["name"], about["digest"], about["pcpmodel"]) == (
        "residuals", DIGEST, __version__)  # fmt: skip
    assert about["alt"] in files["residuals.svg"].decode()
    assert about["alt"].encode() in files["residuals.png"]


@pytest.mark.parametrize("draw", [*AXES.values(), *PANELS.values()], ids=[*AXES, *PANELS])
def test_every_figure_has_a_caption_with_numbers_and_an_alt_text_with_its_axes(draw):
    made = draw()
    said, alt = figures.caption(made), figures.alt_text(made)
    assert re.search(r"\d", said)
    assert said.endswith(".")
    assert "nan" not in said
    for ax in made.axes if hasattr(made, "axes") and not isinstance(made, Axes) else [made]:
        if ax.axison and ax.get_xlabel():
            assert " ".join(ax.get_xlabel().split()) in alt
    assert alt.endswith(".")


def test_the_numbers_of_a_caption_follow_the_data():
    def said(points):
        return figures.caption(figures.residuals(one(points)))

    kept = one(POINTS)["residual_percent"][~one(POINTS)["outlier"]].abs()
    assert f"{kept.median():.1f} % in the median, {kept.max():.1f} % at most" in said(POINTS)
    assert "without 3 outliers of 24 rows" in said(POINTS)
    twice = POINTS.assign(residual_percent=2 * POINTS["residual_percent"])
    assert f"{2 * kept.max():.1f} % at most" in said(twice)


def legend(ax):
    return ax.get_legend_handles_labels()[1]


def test_only_what_was_measured_is_called_so():
    """Of a machine without a table markers were "measured", also where there were none."""
    made = POINTS.assign(made=True)
    curves, apart = (figures.hold_time(one(p), one(LINES)) for p in (made, POINTS))
    assert "Markers are measured;" in figures.caption(apart)
    assert "marker: measured, open: outlier" in legend(apart)
    assert figures.caption(curves).endswith("No hold of one was measured: those rows are made.")
    assert "Markers are measured" not in figures.caption(curves)
    assert "marker: made, open: outlier" in legend(curves)
    assert "No hold of one was measured" in figures.caption(figures.residuals(one(made)))
    mixed = POINTS.assign(made=POINTS["machine"] == "two")
    both = figures.panels(figures.hold_time, mixed, LINES, by="machine")
    assert "No hold of two was measured" in figures.caption(both)

    none = one(SCALES).assign(measured_p99_us=np.nan)
    bare, drawn = (figures.scale_latency(s, 100) for s in (none, one(SCALES)))
    for ax, are in ((bare, False), (drawn, True)):
        assert ("markers are measured" in figures.caption(ax)) == are
        assert ("marker: measured, open: outlier" in legend(ax)) == are


def test_a_caption_names_the_slowdowns_that_are_drawn():
    """It called the least of them "as measured", and a machine alone "1 times slower"."""

    def said(*slowdowns):
        drawn = one(SCALES)[one(SCALES)["slowdown"].isin(slowdowns)]
        return figures.caption(figures.scale_latency(drawn, 100))

    assert "under 100 µs as it is: one 4. " in said(1.0)
    assert "under 100 µs as it is (and taking 4 times as long): one 4 (2). " in said(1.0, 2.0, 4.0)
    assert "under 100 µs taking 2 times as long: one 3. " in said(2.0)


@pytest.mark.parametrize("size", figures.SIZES)
@pytest.mark.parametrize("draw", [*AXES.values(), *PANELS.values()], ids=[*AXES, *PANELS])
def test_nothing_is_cut_off_in_any_size(draw, size):
    with figures.output(size):
        made = draw()
    figure = made.figure if isinstance(made, Axes) else made
    wide, high = figures.SIZES[size]
    assert figure.get_figwidth() == wide
    assert high is None or figure.get_figheight() == high
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    drawn, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert drawn.x0 > -0.01
    assert drawn.y0 > -0.01
    assert drawn.x1 < width + 0.01
    assert drawn.y1 < height + 0.01
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert not any(box.overlaps(ax.get_tightbbox(renderer)) for ax in figure.axes)
    texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
    assert min(t.get_fontsize() for t in texts) >= 6


def test_size_formats_and_names_last_as_long_as_the_context(tmp_path):
    with figures.output("slide", ["png", "svg"], only=["residuals"], note="Seed 1."):
        slide = AXES["residuals"]()
        figures.save(slide, "residuals", tmp_path, digest=DIGEST)
        figures.save(slide, "other", tmp_path, digest=DIGEST)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "residuals.json", "residuals.png", "residuals.svg"]  # fmt: skip
    about = json.loads((tmp_path / "residuals.json").read_text())
    assert about["inches"] == [7.0, 3.938]
    assert about["caption"].endswith(" Seed 1.")
    assert AXES["residuals"]().figure.get_figwidth() == 3.4


@pytest.mark.parametrize(
    ("size", "formats", "match"),
    [
        ("two-colum", ["svg"], "two-column"),
        ("slide", ["svg", "jpg"], "unknown format 'jpg'"),
        ("slide", [], "formats=.* of at least one"),
    ],
)
def test_unknown_sizes_and_formats_are_refused(size, formats, match):
    with pytest.raises(InputError, match=match), figures.output(size, formats):
        pass


def test_print_needs_no_fonts_and_knows_no_date(tmp_path):
    load = subset.load_font
    figures.save(AXES["residuals"](), "residuals", tmp_path, digest=DIGEST)
    svg = (tmp_path / "residuals.svg").read_text()
    assert "<text" not in svg
    assert "dc:date" not in svg
    pdf = (tmp_path / "residuals.pdf").read_bytes()
    assert b"/FontFile2" in pdf
    assert b"CreationDate" not in pdf
    assert b"/Type3" not in pdf
    streams = re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL)
    plain = [zlib.decompressobj().decompress(s) for s in streams if s[:1] == b"x"]
    assert any(b"BT" in s for s in plain)
    fonts = [TTFont(io.BytesIO(s)) for s in plain if s[:4] == b"\0\1\0\0"]
    assert fonts
    for font in fonts:  # its glyphs have their places, so that nothing has to place them
        assert "glyf" in font
        assert not {"GDEF", "GPOS", "GSUB"} & set(font.keys())
    assert subset.load_font is load  # of whoever else cuts fonts down


def test_each_format_is_drawn_once_and_nothing_again_after(tmp_path, monkeypatch):
    figure = PANELS["hold_time"]()
    engine, drawn, draw = figure.get_layout_engine(), [], type(figure).draw
    assert not figure.stale
    monkeypatch.setattr(type(figure), "draw", lambda *args: drawn.append(draw(*args)))
    figures.save(figure, "figure", tmp_path, digest=DIGEST)
    assert len(drawn) == len(figures.FORMATS)
    assert not figure.stale  # a notebook draws what is
    assert figure.get_layout_engine() is engine


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import matplotlib; matplotlib.use("agg")
from test_figures import PANELS, AXES, DIGEST, figures
for name, draw in [("panels", PANELS["hold_time"]), ("alone", AXES["scale_latency"])]:
    figures.save(draw(), name, {out!r}, digest=DIGEST)
"""


@pytest.mark.long
def test_files_are_the_same_bytes_from_run_to_run(tmp_path):
    here = os.path.dirname(__file__)
    for run, seed in (("a", "1"), ("b", "2")):
        code = SCRIPT.format(tests=here, out=str(tmp_path / run))
        environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": f"UTC-{seed}"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=300)
    for name in ("panels", "alone"):
        for kind in KINDS:
            first, second = (tmp_path / run / f"{name}.{kind}" for run in "ab")
            assert first.read_bytes() == second.read_bytes(), f"{name}.{kind}"


def test_an_empty_directory_saves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    figures.save(AXES["residuals"](), "residuals", "", digest=DIGEST)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../up", "a/b", "A", "a b", ".hidden", "a.svg", "-a", "a\n"])
def test_names_that_are_no_plain_file_names_are_refused(name, tmp_path):
    with pytest.raises(InputError, match="figure name"):
        figures.save(AXES["residuals"](), name, tmp_path / "out", digest=DIGEST)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_midway_leaves_the_old_files(tmp_path, monkeypatch):
    ax = AXES["residuals"]()
    figures.save(ax, "residuals", tmp_path, digest="old")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    real = type(ax.figure).savefig

    def full_disk(self, path, *, format, **options):
        if format == "png":
            raise OSError(28, "No space left on device")
        real(self, path, format=format, **options)

    monkeypatch.setattr(type(ax.figure), "savefig", full_disk)
    full = f"^{re.escape(str(tmp_path))}/residuals: cannot be written: No space left on device$"
    with pytest.raises(InputError, match=full):
        figures.save(ax, "residuals", tmp_path, digest="new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_figures_know_nobody():
    code = "import pcpmodel.figures, sys; print([m for m in sys.modules if 'pcpmodel' in m])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    ).stdout
    assert not re.search(r"pcpmodel\.(hardware|study|datasets|kernel|cli)", found)


@pytest.mark.parametrize("size", ["one-column", "two-column"])
def test_names_of_machines_and_steps_do_not_run_into_each_other(size):
    names = ["large", "small", "large, small's memory", "page_fault1, 4 zones", "kbuild"]
    table = pd.DataFrame({"release": "v6.18", "machine": names, "gain": range(5)})
    steps = pd.DataFrame(
        {
            "source": "a", "table": "b", "step": names, "quantity": "score", "measured": 1.0,
            "mean": 1.0, "measured_half_width": np.nan, "half_width": 0.1, "within": True,
        }
    )  # fmt: skip
    two = [frame.assign(panel=panel) for panel in "xy" for frame in (table, steps)]
    with style.output(size=size):
        drawn = [
            figures.panels(
                figures.by_release, pd.concat(two[::2]), by="panel",
                x="machine", y="gain", xlabel="machine", ylabel="gain",
            ),
            figures.panels(figures.answer_key, pd.concat(two[1::2]), by="panel"),
        ]  # fmt: skip
    for figure in drawn:
        figure.draw_without_rendering()
        for ax in figure.axes:
            boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
            assert not [(a, b) for a, b in itertools.pairwise(boxes) if a.overlaps(b)], [
                t.get_text() for t in ax.get_xticklabels()
            ]
            assert all(
                0 <= end <= figure.bbox.width
                for box in (*boxes, ax.title.get_window_extent(), ax.get_tightbbox())
                for end in (box.x0, box.x1)
            )
        plt.close(figure)

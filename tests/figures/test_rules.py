"""Figures of page lists: every group and every visit is drawn."""

import pytest

import pcpmodel as pm
from pcpmodel import figures


@pytest.fixture(scope="module")
def drains():
    return pm.study.ladder("drain", names=["v6.6", "v6.18", "v6.19"], number=3000)


@pytest.mark.parametrize("column", ["pages", "holds_so_far", "count"])
def test_a_ladder_draws_every_rung_of_every_group(drains, column):
    ax = figures.ladder(drains.rungs, "drain", column)
    drawn = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    assert list(drawn) == list(drains.groups)
    for label, rows in drains.rungs.groupby("releases"):
        assert drawn[label].tolist() == rows[column].tolist()
    assert ax.get_xlabel() == "Pages freed in a row"


def test_groups_of_a_ladder_are_told_apart_in_grey(drains):
    lines = figures.ladder(drains.rungs, "drain").get_lines()
    looks = {(line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == len(lines)


def test_the_life_of_a_list_shows_every_visit_and_gives_ticks_room():
    run = pm.study.trajectory("v6.7", [("alloc", 1000), ("free", 1000), ("decay", 5)])
    ax = figures.page_list_life(run.steps, run.events, label=run.release)
    lines = {line.get_label(): line for line in ax.get_lines()}
    visits = run.events["kind"].value_counts()
    assert len(lines[f"refill ({visits['refill']})"].get_xdata()) == visits["refill"]
    assert len(lines[f"drain ({visits['drain']})"].get_xdata()) == visits["drain"]
    x = lines["count"].get_xdata()
    assert x[-1] - x[-2] > 10 * (x[1] - x[0])
    assert "idle: 5 vmstat ticks" in lines

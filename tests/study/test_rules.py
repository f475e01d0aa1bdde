"""Ladders and trajectories: the same work under several kernel states."""

import pytest

import pcpmodel as pm
from pcpmodel.errors import InputError
from pcpmodel.study.lists.ladder import ladder
from pcpmodel.study.lists.trajectory import trajectory


def test_a_ladder_puts_every_release_in_exactly_one_group():
    for kind in ("refill", "drain", "decay"):
        grouped = [name for names in ladder(kind).groups.values() for name in names]
        assert sorted(grouped) == sorted(r.name for r in pm.releases())


def test_refill_ladder_follows_the_series():
    # Sizes 500/500/8192, batch 63: by hand from nr_pcp_alloc(), v6.6 and v6.7.
    table = ladder("refill", names=["v6.6", "v6.6+p5", "v6.7"]).first(visits=6)
    assert table.loc["v6.6"].tolist() == [63] * 6
    assert table.loc["v6.6+p5"].tolist() == [63, 126, 252, 437, 437, 437]
    assert table.loc["v6.7"].tolist() == [63, 126, 252, 504, 1008, 2016]


def test_drain_ladder_counts_the_holds_of_a_cut_drain():
    ladder_ = ladder("drain", names=["v6.18", "v6.18+hahn-v4", "v6.19"], number=4000)
    assert ladder_.first().loc["v6.18"].dropna().tolist() == [437, 500, 1000, 2000]
    assert ladder_.first("holds").loc["v6.18"].dropna().tolist() == [1, 1, 1, 1]
    assert ladder_.first("holds").loc["v6.19"].dropna().tolist() == [7, 8, 16, 32]
    assert set(ladder_.first().loc["v6.18+hahn-v4"].dropna()) == {63}


def test_decay_ladder_has_a_row_for_every_tick_also_where_nothing_is_drained():
    ladder_ = ladder("decay", names=["v6.6", "v6.7"])
    by_release = ladder_.rungs.groupby("releases")
    assert by_release.size().tolist() == [22, 22]
    assert by_release["pages"].sum()["v6.6"] == 0
    v67 = ladder_.rungs[ladder_.rungs["releases"] == "v6.7"]
    assert v67["high"].tolist()[:4] == [7168, 6272, 5488, 4802]
    assert v67["count"].iloc[-1] == v67["high"].iloc[-1] == 500


def test_neighbouring_releases_that_agree_share_a_label():
    assert "v6.6+p5, v6.6+p6" in ladder("refill").groups
    assert "v6.19 … debian-7.3.4" in ladder("drain").groups


def test_trajectory_accounts_for_every_page():
    run = trajectory("v6.12", [("alloc", 3000), ("free", 3000), ("alloc", 10, 2), ("decay", 5)])
    moved = run.events.groupby("kind")["pages"].sum()
    assert len(run.steps) == 1 + 3000 + 3000 + 10 + 5
    assert run.steps["count"].iloc[-1] == moved["refill"] - 40 - moved["drain"]
    assert str(moved["refill"]) in run.text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ladder("refil"), "did you mean 'refill'"),
        (lambda: ladder("refill", names=["v6.8"]), "unknown release"),
        (lambda: trajectory("v6.7", [("allocate", 3)]), "did you mean 'alloc'"),
        (lambda: trajectory("v6.7", [("alloc", 0)]), "1 or more"),
        (lambda: trajectory("v6.7", [("alloc", 2.0)]), "must be an integer"),
        (lambda: trajectory("v6.7", ["alloc"]), "not \\(operation, number\\)"),
        (lambda: trajectory("v6.7", [("alloc", 1, 4)]), "order"),
        (lambda: trajectory("v6.7", [("alloc", 10**8)]), "at most"),
        (lambda: trajectory("v6.7", [("alloc", 1)], batch=64, high_min=63), "batch <= high_min"),
    ],
)
def test_bad_work_is_refused(call, said):
    with pytest.raises(pm.InputError, match=said):
        call()


def test_a_number_of_none_is_refused_by_its_name_and_one_is_told_as_one():
    with pytest.raises(InputError, match=r"number=0 is outside 1\.\."):
        ladder("decay", number=0)
    assert (
        "up to 15 pages a drain, 1 zone-lock hold in all"
        in ladder("drain", batch=15, number=500).text
    )


def test_work_too_short_for_a_single_visit_is_refused():
    with pytest.raises(InputError, match="number=10 pages make no drain under any; give more"):
        ladder("drain", number=10)

"""Drains cut into batches: what the rules, recordings and streams say."""

# SPDX-License-Identifier: GPL-2.0-only

import pandas as pd
import pytest

import pcpmodel as pm
from pcpmodel.errors import InputError
from pcpmodel.study.contention.runs import cuts_drains


def test_no_machine_has_a_drain_longer_than_the_scaled_batch():
    table = pm.study.largest_drains().table.set_index(["host", "release"])
    before = table.xs("v6.18", level="release")
    assert before["largest_drain"].tolist() == [63 << 5] * 3
    assert before["high_max"].nunique() == 3, "memory per CPU does differ"
    assert (table.xs("v6.19", level="release")["largest_hold"] == 63).all()


@pytest.mark.parametrize(
    ("releases", "cut"),
    [
        (["v6.18", "v6.18+hahn-v4", "v6.19"], True),
        (["v6.19", "v6.18"], False),
        (["v6.6", "v6.7"], False),  # refills change as well
        (["v6.7", "v6.12"], False),
    ],
)
def test_whether_a_change_cuts_drains_alone_is_asked_of_the_rules(releases, cut):
    assert cuts_drains(releases) == cut


def test_version_4_stops_early_without_a_race():
    answer = pm.study.early_stop()
    alone = answer.table[answer.table["visits"].notna()].set_index("release")
    assert alone["visits"].tolist() == [7, 158, 7]
    assert alone["holds"].tolist() == [7, 158, 159]
    stream = answer.table[answer.table["visits"].isna()].set_index("release")
    assert stream["holds"].tolist() == [1349, 2737, 2743]
    assert "1,349 holds" in answer.text
    assert "v6.18+hahn-v4 stops all the same" in answer.text


def test_streams_pay_for_shorter_drains():
    answer = pm.study.stream_price(seeds=[1, 2, 3], seconds=0.1)
    for row in answer.table.itertuples():
        assert row.score_change_percent + row.score_error_percent < 0
        assert row.drains_per_s_after > 1.7 * row.drains_per_s_before
    assert answer.table["score_change_percent"].iloc[1] < -1
    assert "all the time? Yes: 1." in answer.text or "all the time? Yes: 2." in answer.text
    with pytest.raises(InputError, match="scatter"):
        pm.study.stream_price(seeds=[1])


def test_recorded_boots_have_no_drain_of_2000_pages():
    table = pm.study.boot_drains().table
    assert (table["large"] == 0).all()
    assert (table["drained_pages"] >= table["longest_run"]).all()
    assert table["longest_run"].max() < 2000


def test_an_unfair_lock_makes_the_longest_wait_longer_and_chunks_do_not_help():
    answer = pm.study.unfair_lock(
        releases=["v6.18", "v6.19"], pages=10_000, seeds=[1, 2], seconds=1.0
    )
    wait = answer.table.set_index(["host", "spinlock", "release"])["wait_max_ms"]
    for host in ("large", "medium"):
        assert wait[host, "test-and-set", "v6.19"] > 2 * wait[host, "queued", "v6.19"]
    assert answer.table["wait_max_ms"].max() < 20e3
    assert "test-and-set" in answer.text
    # A longest wait is one event of a run: its scatter over the seeds stands beside it.
    assert (answer.table["wait_max_error_ms"] > 0).all()
    with pytest.raises(InputError, match="scatter"):
        pm.study.unfair_lock(seeds=[1])


def test_verdicts_follow_from_the_figures(monkeypatch):
    from pcpmodel.study.contention import batching
    from pcpmodel.study.contention.bulk_free import _surprise

    assert "refuted" in pm.study.largest_drains(["v6.18"]).text
    machines = {"cut": (8, 1, 16.0), "long": (8, 1, 0.1)}
    monkeypatch.setattr(batching, "hahn_machines", lambda: machines)
    assert "stands" in pm.study.largest_drains(["v6.18"]).text
    assert "No release stops early" in pm.study.early_stop(releases=["v6.18", "v6.19"]).text
    assert "No: before" in _surprise(pd.Series({"warm pages": 0.1}))
    assert "It does: before" in _surprise(pd.Series({"warm pages": 5.0}))


def test_the_stall_is_set_beside_the_kernel_that_it_was_reported_of():
    """The row that takes longest was of a kernel with the change, and was not named."""
    releases = ["v6.18", "v6.19"]
    answer = pm.study.lock_starvation(
        hosts={"small": (8, 1, 8.0)}, releases=releases, pages=4000, seeds=(1, 2), seconds=0.2
    )
    table = answer["hosts"].set_index(["holds", "release"])
    for holds in ("warm pages", "pages as they come"):
        before = table.loc[(holds, "v6.18")]
        said = answer.said[holds]
        seconds = f"{before.s_per_million_pages:.2f} ± {before.s_per_million_error:.2f} s"
        assert f"in {seconds} under v6.18, so " in said
        gib = 21.077 / before.s_per_million_pages * 1e6 * 4096 / 2**30
        assert f"so {gib:.1f} ± " in said

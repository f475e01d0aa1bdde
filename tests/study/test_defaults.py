"""`simulate` with no further option against what is published: every cell, hits and misses."""

# SPDX-License-Identifier: GPL-2.0-only

import pandas as pd
import pytest

from helpers.paths import ROOT
from pcpmodel.datasets.packages import load_published
from pcpmodel.study.published import defaults

CELLS = defaults.judged()
QUICK = {"zone-split-rfc", "high-order-pcp-2022"}


def run_and_compare(cells):
    for cell in cells.to_dict("records"):
        found = defaults.by_default(cell)
        where = {name: cell[name] for name in ("source", "table", "row", "column")}
        assert found.value == pytest.approx(cell["value"], rel=1e-5), where


def test_what_is_stored_is_what_a_run_says():
    faults = CELLS[CELLS["source"].isin(QUICK) & (CELLS["workload"] == "page_fault1")]
    few = faults.groupby("source", sort=False).head(2)
    assert set(few["source"]) == QUICK
    run_and_compare(few)


@pytest.mark.long
def test_every_stored_cell_is_what_a_run_says():
    """Else: python tools/judge_defaults.py, and look at what moved."""
    run_and_compare(CELLS)


def test_every_ready_made_workload_that_is_published_is_asked():
    assert set(CELLS["workload"]) == {
        "kbuild", "unix_stream", "sctp_stream", "page_fault1", "page_fault2",
    }  # fmt: skip
    assert (CELLS["measured"] > 0).all()
    base = CELLS[(CELLS["source"] == "pcp-auto-tuning-v3") & (CELLS["table"] == "unix")].iloc[0]
    table = load_published("pcp-auto-tuning-v3").tables["unix"].set_index("step")
    assert base["measured"] == table["lock_contend_cycles_pct"]["base"]


def test_a_null_model_that_is_as_near_is_named():
    frame = CELLS.set_index(["source", "row"])
    two = frame.loc[("high-order-pcp-2022", '{"processes": 2}')]
    five = frame.loc[("high-order-pcp-2022", '{"processes": 5}')]
    assert pd.isna(two["null: nothing changes"])  # the row that it starts from
    assert five["null: nothing changes"] == pytest.approx(2.5 * two["measured"])
    assert "nothing changes" in five["as_good"]


def test_the_page_says_what_is_stored():
    page = (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8")
    assert defaults.markdown(CELLS) in page
    for sentence in defaults.said_of(CELLS):
        assert sentence in page


def test_why_cells_are_missed_is_said_of_what_is_stored():
    page = " ".join((ROOT / "docs" / "defaults.md").read_text(encoding="utf-8").split())
    said = CELLS.set_index(["table", "row"])["value"]
    in_groups = said["kbuild", '{"step": "patch5"}']
    one, last = (said["kbuild_j224", f'{{"step": "patch{n}"}}'] for n in (5, 7))
    assert f"{in_groups:.1f} % for 10.9 and 11.0, {one:.1f} for 13.9" in page
    assert f"under patch 7, {last:.1f} % for 5.4" in page
    causes = " ".join((ROOT / "docs" / "causes.md").read_text(encoding="utf-8").split())
    assert f"`simulate` without options {one:.1f}, and {in_groups:.1f} for 11.0" in causes

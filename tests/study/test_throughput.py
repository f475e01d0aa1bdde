"""Throughput against batch, measured and explained by the hold times."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pcpmodel as pm
from pcpmodel.hardware.machines import Machine

BATCH = np.array([63, 127, 255, 511, 1023, 2047])
SHARES = pm.study.throughput_gain()["shares"].set_index("machine")


def machine(throughput):
    latency = pd.DataFrame(
        {
            "batch": BATCH,
            "throughput_pages_per_s": throughput,
            "alloc_latency_avg_us": 1.0 + 0.02 * BATCH,
            "free_latency_avg_us": 0.5 + 0.03 * BATCH,
        }
    )
    return Machine("made-up", latency, None, {}, "0" * 64)


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_the_share_put_in_comes_out(share):
    page_ns = 1500 + (1500 / BATCH + 50) / share
    (row,) = pm.study.throughput_gain(machine(1e9 / page_ns))["shares"].itertuples()
    assert row.share == pytest.approx(share)
    assert row.share_low == pytest.approx(share, rel=1e-3)
    assert row.noise_percent < 1e-6
    assert row.saved_by_holds_ns == pytest.approx(share * row.saved_ns)


def test_the_interval_covers_the_share():
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(200):
        page_ns = (1500 + 2 * (1500 / BATCH + 50)) * rng.lognormal(0, 0.002, 6)
        (row,) = pm.study.throughput_gain(machine(1e9 / page_ns))["shares"].itertuples()
        inside += row.share_low <= 0.5 <= (row.share_high if row.share_high > 0 else np.inf)
    # 200 draws at 0.95: fewer than 179 inside has a chance below one in 1000.
    assert inside >= 179


@pytest.mark.parametrize(
    ("name", "saved_ns", "by_holds_ns"),
    [("sapphire-rapids", 48.6, 28.3), ("ice-lake", 45.2, 20.3), ("coffee-lake", 35.6, 12.9)],
)
def test_savings_are_those_of_the_first_and_last_row(name, saved_ns, by_holds_ns):
    row = SHARES.loc[name]
    assert (row["saved_ns"], row["saved_by_holds_ns"]) == pytest.approx(
        (saved_ns, by_holds_ns), abs=0.05
    )


def test_the_holds_explain_about_half_or_less():
    known = SHARES[np.isfinite(SHARES["share_high"])]
    assert sorted(known.index) == ["coffee-lake", "comet-lake", "ice-lake", "sapphire-rapids"]
    assert known["share"].between(0.3, 0.56).all()
    assert (known["share_high"] <= 0.71).all()


def test_the_zig_zag_is_flagged_and_leaves_its_share_open():
    rows = pm.study.throughput_gain()["rows"]
    flagged = rows[rows["falls"]]
    assert list(zip(flagged["machine"], flagged["batch"], strict=True)) == [
        ("cascade-lake", 255),
        ("cascade-lake", 1023),
    ]
    assert np.isnan(SHARES.loc["cascade-lake", "share_high"])
    assert SHARES.loc["cascade-lake", "noise_percent"] > 10 * SHARES["noise_percent"].median()


def test_a_table_without_throughput_is_named_not_guessed():
    found = pm.study.throughput_gain([machine(np.nan), "ice-lake"])
    assert set(found["rows"]["machine"]) == {"ice-lake"}
    assert "made-up**: no throughput measured" in found.text
    alone = pm.study.throughput_gain(machine(np.nan))
    assert alone["rows"].empty
    assert alone.text == "- **made-up**: no throughput measured."


def test_every_share_is_in_the_summary():
    text = pm.study.throughput_gain().text
    for row in SHARES.itertuples():
        assert f"**{row.Index}**" in text
        assert f"{row.saved_by_holds_ns:.1f} ns" in text
    assert "33 to 54 %: about half or less" in text


def test_the_set_up_of_the_tables_is_simulated_beside_their_throughput():
    found = pm.study.throughput_simulated("coffee-lake", seeds=[1], seconds=0.3).table.set_index(
        "batch"
    )
    assert found.loc[63, ["measured_gain_percent", "simulated_gain_percent"]].tolist() == [0, 0]
    assert found["measured_gain_percent"].iloc[-1] == pytest.approx(1.85, abs=0.01)
    assert 0 < found["simulated_gain_percent"].iloc[-1] < 15


def test_a_machine_of_64_kib_pages_is_simulated_with_such_pages():
    ice = pm.machine("ice-lake")
    large = replace(ice, name="arm", platform={"page_size_kib": 64})
    found = pm.study.throughput_simulated([ice, large], seeds=[1], seconds=0.1)
    small, other = (rows for _, rows in found["gains"].groupby("machine", sort=False))
    # A fault of 16 times the memory takes longer, of which the holds are a smaller part.
    assert other["rate_ratio"].max() < 0.5 * small["rate_ratio"].min()
    assert 0 < other["simulated_gain_percent"].iloc[-1] < small["simulated_gain_percent"].iloc[-1]


def test_of_a_machine_without_throughput_nothing_is_simulated():
    found = pm.study.throughput_simulated("amd-epyc-vm")
    assert found.text == "- **amd-epyc-vm**: no throughput measured."
    assert found["gains"].empty
    assert "error_percent" in found["gains"]

"""Why one run is faster, in words."""

# SPDX-License-Identifier: GPL-2.0-only

import re
from typing import Any

import pytest

import pcpmodel as pm
from pcpmodel.simulation.pilot import mean_line_ns
from pcpmodel.simulation.result import Result


def run(release: str, workload: str = "page_fault1", pages: int = 32768, **options: Any) -> Result:
    return pm.simulate(
        release=release,
        machine="sapphire-rapids",
        workload=pm.workload.make(workload, processes=32, pages=pages),
        cpus=32,
        nodes=1,
        memory_gib=64,
        **{"warmup_s": 0.0, "seconds": 0.05} | options,
    )


def test_the_parts_add_up_to_the_change_within_72_columns() -> None:
    before, after = (run(r, seconds=1.0) for r in ("v6.6", "v6.7"))
    text = pm.study.explain(before, after).text
    assert max(map(len, text.splitlines())) <= 72
    said = " ".join(text.split())
    whole, parts = said.split("; negative is better. Of the ")
    first, last = (
        float(n) for n in re.search(r"from ([\d.]+) ns .* to ([\d.]+) ns", whole).groups()
    )
    total, *each = (float(n) for n in re.findall(r"([+-][\d.]+) ns", parts))
    assert total == pytest.approx(last - first, abs=0.11)
    assert sum(each) == pytest.approx(total, abs=0.06 * len(each))
    assert each[0] == min(each)
    low, high = (1 + s * float(re.search(r"± ([\d.]+)%", whole)[1]) / 100 for s in (-1, 1))
    assert low < 1 < high


def test_blocks_past_the_lists_are_holds_too() -> None:
    """v5.10 takes the lock for each block above order 0, and v5.17 for a list of them."""
    runs = [
        pm.simulate(
            release, "ice-lake", pm.workload.unix_stream(4), cpus=8, nodes=1, memory_gib=16,
            seconds=0.02, warmup_s=0.02, warm=True,
        )
        for release in ("v5.10", "v5.17")
    ]  # fmt: skip
    number, ns = (
        [int(of) / run.score for run, of in zip(runs, counts, strict=True)]
        for counts in (
            [run.zone_histogram("hold").total for run in runs],
            [run.per_cpu["hold_ps"].sum() / 1000 for run in runs],
        )
    )
    assert number[1] < number[0] / 10
    causes = pm.study.explain(*runs).tables["causes"].set_index("cause")["ns_per_unit"]
    fewer = (number[1] - number[0]) * ns[0] / number[0]
    assert causes["number of zone-lock holds"] == pytest.approx(fewer, rel=1e-3)
    assert causes["length of zone-lock holds"] == pytest.approx(ns[1] - ns[0] - fewer, rel=1e-3)


def test_colder_pages_are_a_cause_of_their_own() -> None:
    """More pages through the zone: each costs what a pilot says, whatever the number of holds."""
    before, after = (run(r, pages=1500) for r in ("v6.7", "v6.6"))
    causes = pm.study.explain(before, after).table.set_index("cause")["ns_per_unit"]
    moved = [r.per_cpu["moved_blocks"].sum() / r.score for r in (before, after)]
    assert moved[1] > 2 * moved[0]
    line_ns = [mean_line_ns(r.spec) for r in (before, after)]
    cold = [ns * blocks for ns, blocks in zip(line_ns, moved, strict=True)]
    assert min(line_ns) >= 0 < max(line_ns)
    assert causes["colder pages"] == pytest.approx(cold[1] - cold[0])
    assert causes.drop("after").sum() == pytest.approx(causes["after"])
    pages = after.per_cpu["refill_pages"].sum() + after.per_cpu["drain_pages"].sum()
    assert after.per_cpu["moved_blocks"].sum() == pages
    at_hand = run("v6.6", pages=1500, warm=True)
    warm = pm.study.explain(at_hand, after).table.set_index("cause")["ns_per_unit"]
    assert warm["colder pages"] == pytest.approx(cold[1])
    assert (
        pm.study.explain(run("v6.6", warm=True), run("v6.7", warm=True))
        .table.set_index("cause")
        .loc["colder pages"]
        .item()
        == 0
    )


def test_pages_fetched_from_memory_are_colder_pages_too() -> None:
    """With page_fetch_ns both wholes grow by it, and the cause by the difference."""
    runs = [run(r, pages=1500, identity=True, caches=True) for r in ("v6.6", "v6.7")]
    plain = pm.study.explain(*runs).table.set_index("cause")["ns_per_unit"]
    causes = pm.study.explain(*runs, page_fetch_ns=400.0).table.set_index("cause")["ns_per_unit"]
    missed = [400.0 * r.per_cpu["found_memory"].sum() / r.score for r in runs]
    assert causes["colder pages"] - plain["colder pages"] == pytest.approx(missed[1] - missed[0])
    for end, more in zip(("before", "after"), missed, strict=True):
        assert causes[end] - plain[end] == pytest.approx(more)
    assert causes.drop("after").sum() == pytest.approx(causes["after"])
    with pytest.raises(pm.InputError, match="caches=True"):
        pm.study.explain(run("v6.6"), run("v6.7"), page_fetch_ns=400.0)


def test_pages_whose_data_have_left_the_caches_are_no_work_between_holds() -> None:
    """Patch 7 lets a stream's lists outgrow the caches: all of it was called work."""
    runs = [
        pm.simulate(
            release,
            "ice-lake",
            pm.workload.unix_stream(16),
            cpus=128,
            nodes=2,
            memory_gib=256.0,
            seconds=0.1,
            warmup_s=0.05,
        )
        for release in ("v6.6+p5", "v6.6+p7")
    ]
    causes = pm.study.explain(*runs).table.set_index("cause")["ns_per_unit"]
    assert causes["colder pages"] > 500  # 15 pages a write, 5 % of them 64 lines from memory
    assert abs(causes["work between holds"]) < 50
    assert causes.drop("after").sum() == pytest.approx(causes["after"])


def test_equal_runs_have_no_cause_to_name() -> None:
    said = " ".join(pm.study.explain(run("v6.6"), run("v6.6")).text.split())
    assert "+0.0%: inside the noise" in said
    assert said.endswith("No difference is shown.")


@pytest.mark.slow
def test_two_seeds_of_one_kernel_differ_by_noise_alone() -> None:
    """It was sold as -2.1 %, with causes, in ns of nine digits."""
    runs = [
        pm.simulate("v6.18", "sapphire-rapids", pm.workload.kbuild(56), cpus=56, seed=s)
        for s in (1, 2)
    ]
    said = " ".join(pm.study.explain(*runs).text.split())
    assert re.search(r"seeds 1 and 2.* goes from [\d.]+ us with v6.18 to [\d.]+ us", said)
    assert "inside the noise" in said
    assert "Of the" not in said


def test_runs_of_different_work_are_refused() -> None:
    before, other = run("v6.6"), run("v6.6", "page_fault2")
    with pytest.raises(pm.InputError, match="different work"):
        pm.study.explain(before, other)

"""Why one run is faster, in words."""

# SPDX-License-Identifier: GPL-2.0-only

import re

import pytest

import pcpmodel as pm
from pcpmodel.simulation.result import Result


def run(release: str, workload: str = "page_fault1") -> Result:
    return pm.simulate(
        release=release,
        machine="sapphire-rapids",
        workload=pm.workload.make(workload, processes=32),
        seconds=0.05,
        cpus=32,
        nodes=1,
        memory_gib=64,
    )


def test_the_parts_add_up_to_the_change_within_72_columns() -> None:
    before, after = run("v6.6"), run("v6.7")
    text = pm.explain_paragraph(before, after)
    assert max(map(len, text.splitlines())) <= 72
    said = " ".join(text.split())
    whole, parts = said.split(" Of the ")
    first, last = (
        float(n) for n in re.search(r"from ([\d.]+) ns .* to ([\d.]+) ns", whole).groups()
    )
    total, *each = (float(n) for n in re.findall(r"([+-][\d.]+) ns", parts))
    assert total == pytest.approx(last - first, abs=0.11)
    assert sum(each) == pytest.approx(total, abs=0.06 * len(each))
    assert each[0] == min(each)
    assert "negative is better" in said


def test_equal_runs_have_no_cause_to_name() -> None:
    said = " ".join(pm.explain_paragraph(run("v6.6"), run("v6.6")).split())
    assert "+0.0%" in said
    assert said.endswith("all causes together +0.0 ns.")


def test_runs_of_different_work_are_refused() -> None:
    before, other = run("v6.6"), run("v6.6", "page_fault2")
    with pytest.raises(pm.InputError, match="different work"):
        pm.explain_paragraph(before, other)

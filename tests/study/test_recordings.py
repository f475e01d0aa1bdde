"""The notebooks' questions on recorded kernels."""

# SPDX-License-Identifier: GPL-2.0-only

import pandas as pd
import pytest

import pcpmodel as pm
from pcpmodel.errors import InputError


def test_exactness_is_one_row_per_recording():
    found = pm.study.recordings(["6.18-pf1-2cpu", "6.1-unixpair-4cpu"])
    assert list(found.table["recording"]) == ["6.18-pf1-2cpu", "6.1-unixpair-4cpu"]
    assert list(found.table["kernel"]) == ["debian-6.18.15", "debian-6.1.192"]
    assert (found.table["blocks"] == found.table["blocks_foreseen"]).all()
    # Two pages were taken before others and reported later.
    assert list(found.table["allocations_explained"]) == [4, 0]
    assert (found.table["allocations_unexplained"] == 0).all()
    assert "37,080 of 37,084 allocations (4 more explained)" in found.text
    assert found.text.startswith("Recordings: 2, kernels: 2")
    assert found.text.endswith("none is without.")
    with pytest.raises(InputError, match=r"6\.18-pf1-2cpu"):
        pm.study.recordings(["6.18-pf1-2cp"])


def test_the_model_counts_what_the_kernel_counts():
    found = pm.study.pages_over_time("7.2-idle-decay-4cpu")
    table = found.table
    assert table["time_s"].is_monotonic_increasing
    kernel = table["kernel"].dropna()
    model = table["model"].ffill()[kernel.index].fillna(0)
    assert len(kernel) > 10
    # While a dump walks the lists the machine works on.  It is idle at most of these dumps, and
    # there the counts are equal; at the others they differ by what moves meanwhile, below.
    equal = (model - kernel).abs() <= 1
    assert equal.sum() > (~equal).sum()
    assert ((model - kernel).abs() < 0.05 * kernel.max()).all()


def test_recorded_work_is_one_row_per_rules():
    releases = ["v6.6", "v6.6+p2", "v6.6+p3"]
    found = pm.study.recorded_work("6.18-unixpair-4cpu", releases)
    assert list(found.table["release"]) == releases
    base, patch2, patch3 = found.table["zone_lock_holds"]
    assert base > patch2 > 3 * patch3
    again = pm.study.recorded_work("6.18-unixpair-4cpu", releases)
    assert again.digest == found.digest
    pd.testing.assert_frame_equal(again.table, found.table)
    assert f"{base:,} times under v6.6" in found.text

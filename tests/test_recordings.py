"""The notebooks' questions on recorded kernels."""

# SPDX-License-Identifier: GPL-2.0-only

import pandas as pd
import pytest

import pcpmodel as pm
from pcpmodel.errors import InputError


def test_exactness_is_one_row_per_recording():
    found = pm.recordings(["6.18-pf1-2cpu", "6.1-unixpair-4cpu"])
    assert list(found.table["capture"]) == ["6.18-pf1-2cpu", "6.1-unixpair-4cpu"]
    assert list(found.table["kernel"]) == ["debian-6.18.15", "debian-6.1.192"]
    assert (found.table["blocks"] == found.table["blocks_exact"]).all()
    assert found.conclusion.startswith("Recordings: 2, kernels: 2")
    assert found.conclusion.endswith("none is without.")
    with pytest.raises(InputError, match=r"6\.18-pf1-2cpu"):
        pm.recordings(["6.18-pf1-2cp"])


def test_the_model_counts_what_the_kernel_counts():
    found = pm.pages_over_time("7.2-idle-decay-4cpu")
    table = found.table
    assert table["time_s"].is_monotonic_increasing
    kernel = table["kernel"].dropna()
    model = table["model"].ffill()[kernel.index].fillna(0)
    assert len(kernel) > 10
    # While the dumps are taken the machine works on; most counts are equal to the page.
    assert ((model - kernel).abs() <= 1).mean() > 0.7
    assert ((model - kernel).abs() < 0.05 * kernel.max()).all()


def test_recorded_work_is_one_row_per_rules():
    releases = ["v6.6", "v6.6+p2", "v6.6+p3"]
    found = pm.recorded_work("6.18-unixpair-4cpu", releases)
    assert list(found.table["release"]) == releases
    base, patch2, patch3 = found.table["zone_lock_holds"]
    assert base > patch2 > 3 * patch3
    again = pm.recorded_work("6.18-unixpair-4cpu", releases)
    assert again.digest == found.digest
    pd.testing.assert_frame_equal(again.table, found.table)
    assert "18,213 times under v6.6" in found.conclusion

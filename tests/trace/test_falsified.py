"""What no kernel could have written is found: a few of the copies that tools/falsify.py makes."""

# SPDX-License-Identifier: GPL-2.0-only

import falsify
import pytest

from helpers.paths import TRACES

FEW = (
    [
        ("6.18-pf1-2cpu", kind)
        for kind in (
            "5 of mm_page_free_batched removed",
            "order of mm_page_free",
            "migratetype of 100 mm_page_alloc",
            "CPU of half of all mm_page_alloc",
            "pages of two mm_page_free swapped",
            "mm_page_free up to 20 lines away",
            "a refill without any line",
            "pcpstate.snapA: high",
            "buddylists.after: blocks of a list swapped",
            "pageblocks.after: migratetype",
        )
    ]
    + [
        ("7.2-exitstorm-4cpu", kind)
        for kind in (
            "decay_pcp_high removed",
            "decay_pcp_high twice",
            "a drain without any line",
            "ZONE_BOOSTED_WATERMARK of decay_pcp_high turned",
            "ZONE_RECLAIM_ACTIVE of free_pcppages_bulk turned",
            "ZONE_BELOW_HIGH of free_pcppages_bulk turned",
            "fc of free_pcppages_bulk; af of free_pcppages_bulk",
        )
    ]
    + [("6.12-detail-4cpu", kind) for kind in ("order of mm_page_free", "a free without any line")]
)


@pytest.mark.parametrize(("name", "kind"), FEW)
def test_what_no_kernel_writes_is_found(name, kind, tmp_path):
    original = falsify.Original.read(TRACES / name)
    for file, lines in original.files.items():
        (tmp_path / file).write_bytes(b"".join(lines))
    change = falsify.falsified(original, kind, "1/0")
    how, found = falsify.verdict(tmp_path, original, change)
    assert how != "passed", (falsify.first_changed(original, change), found)

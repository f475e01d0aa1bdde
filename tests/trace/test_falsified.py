"""What no kernel could have written is found: a few of the copies that tools/falsify.py makes."""

# SPDX-License-Identifier: GPL-2.0-only

import json

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
#: Copies that passed once, each by a rule that was missing.
ONCE = (
    ("6.18-pf1-2cpu", "mm_page_free up to 20 lines away", "2/1"),  # alone, in the midst of a batch
    ("6.18-pf1-2cpu", "mm_page_free up to 2000 lines away", "2/0"),  # allocations in a batch
    ("6.12-tcp-4cpu", "mm_page_alloc up to 20 lines away", "2/0"),  # a refill's, after others
    ("7.2-tcp-4cpu", "mm_page_alloc up to 20 lines away", "2/1"),  # an interrupt that was over
    ("7.3-unixpair-4cpu", "mm_page_alloc removed", "2/1"),  # a refill's, never reported
    ("7.2-detail-4cpu", "CPU of mm_page_free", "2/1"),  # an interrupt on another CPU
    ("6.12-detail-4cpu", "mm_page_free_batched removed", "2/0"),  # alone, and in a batch
    ("6.18-exitstorm-4cpu", "mm_page_alloc up to 2000 lines away", "1/0"),  # amid an interrupt
    ("7.2-exitstorm-4cpu", "pages of two mm_page_alloc swapped", "31/0"),  # not charged
    ("7.2-tcp-4cpu", "pcpstate.snapA: blocks of a list missing", "31/0"),  # no reclaim: a dump
    ("7.3-unixpair-4cpu", "pcpstate.after: blocks of a list swapped", "31/2"),  # came meanwhile
    ("7.3-unixpair-4cpu", "pcpstate.after: blocks of a list missing", "37/0"),  # one between two
    ("7.2-detail-4cpu", "mm_page_free up to 2000 lines away", "37/1"),  # others before its commit
    ("7.2-detail-4cpu", "mm_page_free up to 2000 lines away", "43/2"),  # likewise
    ("6.12-detail-4cpu", "mm_page_free up to 2000 lines away", "77/1"),  # amid another batch
    ("7.2-exitstorm-4cpu", "mm_page_free up to 2000 lines away", "77/2"),  # before its task began
    ("7.2-exitstorm-4cpu", "pcpstate.snapA: blocks of a list swapped", "77/1"),  # came meanwhile
    ("7.2-tcp-4cpu", "pcpstate.after: blocks of a list swapped", "78/5"),  # one has left since
    ("6.1-unixpair-4cpu", "rmqueue_bulk removed", "80/0"),  # as nothing else hangs on it
    ("7.2-detail-4cpu", "page_commit removed", "80/0"),  # likewise
)


@pytest.mark.parametrize(("name", "kind", "seed"), [*((*few, "1/0") for few in FEW), *ONCE])
def test_what_no_kernel_writes_is_found(name, kind, seed, tmp_path):
    original = falsify.Original.read(TRACES / name)
    for file, lines in original.files.items():
        (tmp_path / file).write_bytes(b"".join(lines))
    change = falsify.falsified(original, kind, seed)
    how, found = falsify.verdict(tmp_path, original, change)
    assert how != "passed", (falsify.first_changed(original, change), found)


def test_the_table_has_every_kind_and_what_passes_has_a_reason():
    """Run tools/falsify.py --write if this fails."""
    told = json.loads(falsify.WRITTEN.read_text("utf-8"))
    assert [row["kind"] for row in told["kinds"]] == list(falsify.KINDS)
    assert sum(row[how] for row in told["kinds"] for how in falsify.HOW) >= 2000
    for row in told["kinds"]:
        assert row["possible"] == (falsify.POSSIBLE[row["kind"]] if row["passed"] else "")


def test_what_was_tried_is_not_tried_again(tmp_path, monkeypatch, capsys):
    rows, written = tmp_path / "rows", tmp_path / "table"
    kind = "pcpstate.snapA: high"
    words = ["falsify.py", "6.18-pf1-2cpu", "--copies", "1", "--kind", kind, "--rows", str(rows)]
    monkeypatch.setattr("sys.argv", [*words, "--write"])
    monkeypatch.setattr(falsify, "WRITTEN", written)
    assert falsify.main() == 0
    (row,) = map(json.loads, rows.read_text("utf-8").splitlines())
    assert (row["kind"], row["how"]) == (kind, "found")
    told = json.loads(written.read_text("utf-8"))
    assert told["kinds"] == [{"kind": kind, "refused": 0, "found": 1, "passed": 0, "possible": ""}]
    rows.write_text(json.dumps(row | {"how": "passed"}) + "\n", encoding="utf-8")
    assert falsify.main() == 1
    assert len(rows.read_text("utf-8").splitlines()) == 1
    assert " 1\n" in capsys.readouterr().out

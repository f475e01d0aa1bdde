"""Counts and sizes that a recording tells again and again."""

import dataclasses
import itertools
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import zstandard

import pcpmodel as pm
from helpers.paths import TESTS
from pcpmodel.trace import replay as replay_module
from pcpmodel.trace.counts import counts_amid
from pcpmodel.trace.ftrace import EVENT_IDS, HIT, Events
from pcpmodel.trace.markers import Markers, read_markers, stops
from pcpmodel.trace.packed import open_text
from pcpmodel.trace.resized import changes_of_size

#: vm.percpu_pagelist_high_fraction is written three times; a real kernel, no dump.
SIZES = TESTS / "data" / "native-sizes-2cpu"
SERIES = "zoneinfo.series.zst"
KEY = (0, "Normal", 1)


@pytest.fixture
def changed(tmp_path):
    """The recording with another series of /proc/zoneinfo, or none."""

    def changed(change):
        made = tmp_path / "made"
        shutil.copytree(SIZES, made)
        text = zstandard.ZstdDecompressor().decompressobj().decompress((made / SERIES).read_bytes())
        (made / SERIES).unlink()
        text = change(text.decode())
        if text:
            (made / "zoneinfo.series").write_text(text)
        return pm.replay(made)

    return changed


def _unwritten(tmp_path):
    """The recording without its markers of what was written."""
    made = tmp_path / "made"
    shutil.copytree(SIZES, made, ignore=shutil.ignore_patterns("trace.*"))
    text = b"".join(open_text(SIZES / "trace.txt.zst")).replace(b": sysctl vm", b": other vm")
    (made / "trace.txt").write_bytes(text)
    return made


def test_sizes_that_were_written_are_followed():
    found = pm.replay(SIZES)
    assert found.nr_unexplained == found.cut == 0, found
    assert found.count("refills")[0] == 36
    assert found.count("refills")[1] + found.inferred["refills"] == 36
    assert found.count("drains")[0] == 101
    assert found.probes == 8
    assert not [note for note in found.notes if "no line tells" in note]


def test_they_are_other_ones_before_whoever_tells_gets_a_cpu(monkeypatch):
    """From the marker on is too late: what was read then shows what a refill had made of high."""
    monkeypatch.setattr(replay_module._Inferred, "_resizes_before", lambda *_: False)
    assert {d.what for d in pm.replay(SIZES).unexplained} == {"high in /proc/zoneinfo"}


def test_sizes_that_nobody_wrote_are_those_that_were_read(tmp_path, monkeypatch):
    """... from that reading on, also where nothing before it shows them: a kernel that takes more
    memory into use as it is asked for computes them anew."""
    made = _unwritten(tmp_path)
    given = []

    class Seen(replay_module.Follower):
        def resize(self, x, batch, high_min, high_max):
            given.append((x, high_min))
            return super().resize(x, batch, high_min, high_max)

    monkeypatch.setattr(replay_module, "Follower", Seen)
    monkeypatch.setattr(replay_module._Inferred, "_resizes_before", lambda *_: False)
    pm.replay(made)
    series = pm.recording(made).zoneinfo_series
    told = [{pcp.high_min for pcp in seen.pcps.values() if pcp.zone == "DMA32"}
            for seen in series.values()]  # fmt: skip
    changes = [new for was, new in itertools.pairwise(told) if was != new]
    assert len(changes) >= 2
    assert all(high in [high for _, high in given] for (high,) in changes)


def test_without_the_series_they_are_computed_from_what_was_written(changed):
    found = changed(lambda text: "")
    assert found.probes == 2
    assert found.count("refills")[1] + found.inferred["refills"] == found.refills == 36


def test_a_count_that_is_not_as_told_is_told_of(changed):
    """One page more than the lines make, of lists that were left alone while it was read."""

    def more(text):
        before, tag, after = text.partition("=== counts-2\n")
        zone = after.index("zone   Normal")
        count = re.compile(r"(cpu: 1\n +count: +)(\d+)")
        return before + tag + after[:zone] + count.sub(
            lambda told: f"{told[1]}{int(told[2]) + 1}", after[zone:], count=1
        )  # fmt: skip

    found = changed(more)
    told = {(d.what, d.where) for d in found.unexplained}
    assert ("count in /proc/zoneinfo", "node 0 Normal cpu 1") in told, found


def test_a_series_of_something_else_is_refused(changed):
    with pytest.raises(pm.InputError, match=r"zoneinfo\.series"):
        changed(lambda text: text.replace("=== counts-1\n", ""))


def _of_one(tag, change):
    """A series with one of its readings changed."""

    def changed(text):
        before, mark, after = text.partition(f"=== {tag}\n")
        body, end, rest = after.partition("=== ")
        new = change(body)
        assert new != body
        return before + mark + new + end + rest

    return changed


def _without(cpu, text):
    return re.sub(rf"    cpu: {cpu}\n(?: {{14}}.*\n)*(?:  vm stats threshold.*\n)?", "", text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text + text[text.index("=== counts-3\n") :], "'counts-3' is there a second"),
        (
            lambda text: "".join(f"=== {part}" for part in text.split("=== ")[:0:-1]),
            "comes after .* but before it in the trace",
        ),
        (
            _of_one("counts-3", lambda text: text.replace("Node 0", "Node 3")),
            "of node 3 that",
        ),
        (
            _of_one("counts-3", lambda text: text.replace(" 1048576\n", " 4096\n")),
            "begins at page 4096, within zone DMA32",
        ),
        (
            _of_one("counts-3", lambda text: text.replace(" 1048576\n", " 1049600\n")),
            "zone Normal of node 0 that begins at page 1049600, zoneinfo.before has none",
        ),
        (
            _of_one("counts-3", lambda text: re.sub("(batch: +)63", r"\g<1>60", text)),
            "'counts-3' has batch=60 of node 0, zone DMA32, CPU 0, zoneinfo.before 63",
        ),
        (lambda text: _without(1, text), "has no lists of CPU 1, which was at work"),
    ],
)
def test_readings_that_contradict_each_other_or_the_trace_are_refused(changed, change, said):
    with pytest.raises(pm.InputError, match=rf"zoneinfo\.series, row \d+: .*{said}"):
        changed(change)


def test_sizes_that_changed_are_told_of(tmp_path):
    """... and where no sysctl was written."""
    said = "the sizes of the lists changed 3 times while it was recorded"
    assert said in pm.replay(SIZES).notes
    notes = pm.replay(_unwritten(tmp_path)).notes
    assert f"{said}, of these 3 times where no sysctl was written" in notes


def test_a_cpu_that_was_idle_may_have_been_offline(tmp_path):
    made = tmp_path / "made"
    shutil.copytree(SIZES, made, ignore=shutil.ignore_patterns("trace.*", SERIES))
    lines = b"".join(open_text(SIZES / "trace.txt.zst")).splitlines(keepends=True)
    begin, end = (k for k, line in enumerate(lines) if b": snapshot-counts-3" in line)
    reader = lines[begin].split(b"[")[1][:3]
    meanwhile = [t for t in lines[begin:end] if b"[%s]" % reader in t]
    (made / "trace.txt").write_bytes(b"".join([*lines[:begin], *meanwhile, *lines[end:]]))
    text = b"".join(open_text(SIZES / SERIES)).decode()
    idle = 1 - int(reader)
    (made / "zoneinfo.series").write_text(_of_one("counts-3", lambda t: _without(idle, t))(text))
    notes = pm.replay(made).notes
    said = f"1 readings of /proc/zoneinfo, the first 'counts-3', have no lists of CPU {idle}"
    assert said in notes
    assert "the sizes of the lists changed 3 times while it was recorded" in notes


def test_a_cpu_that_was_offline_at_the_start_begins_with_empty_lists(tmp_path):
    """Its lists are not in zoneinfo.before, and it has lines: the process ended there."""
    text = (SIZES / "zoneinfo.before").read_text()
    own = {}
    for name, changed in (
        ("offline", _without(1, text)),
        ("empty", re.sub(r"(    cpu: 1\n +count: +)\d+(\n +high: +)\d+", r"\g<1>0\g<2>0", text)),
    ):
        made = tmp_path / name
        shutil.copytree(SIZES, made)
        (made / "zoneinfo.before").write_text(changed)
        own[name] = pm.replay(made)
    assert own["offline"].count("refills") == own["empty"].count("refills")
    assert own["offline"].unexplained == own["empty"].unexplained
    assert own["offline"].notes == own["empty"].notes  # nor did the sizes of the lists change


def test_readings_that_are_not_there_or_in_no_trace_are_told_of(changed):
    text = (SIZES / "zoneinfo.before").read_text()
    assert not [note for note in pm.replay(SIZES).notes if "readings" in note]
    found = changed(lambda _: f"=== counts-1\n{text}=== else\n{text}")
    said = "\n".join(found.notes)
    assert re.search(r"1 readings of zoneinfo\.series, the first 'else', are not compared", said)
    assert re.search(r"\d+ readings .* the trace tells, the first 'counts-2', are not in", said)


def test_of_older_kernels_high_is_the_size_and_what_is_not_printed_is_computed():
    cap = pm.recording(SIZES)
    start, markers = cap.zoneinfo("before"), read_markers(cap)

    def changes(release):
        return changes_of_size(cap, pm.release(release), start, markers)

    seen = cap.zoneinfo_series["counts-1"].pcps[KEY]
    assert changes("v6.18")[0].sizes[KEY] == (seen.batch, seen.high_min, seen.high_max)
    assert changes("v6.6")[0].sizes[KEY] == (seen.batch, seen.high, seen.high)
    for pcps in start.pcps, *(told.pcps for told in cap.zoneinfo_series.values()):
        pcps.update({k: dataclasses.replace(p, high_min=-1, high_max=-1) for k, p in pcps.items()})
    computed = changes("v6.18")
    assert [change.row for change in computed] == [change.earliest for change in computed]
    assert [change.row for change in computed] == list(markers.fractions)
    batch, low, top = computed[0].sizes[KEY]  # a fraction of 8
    assert low == top
    assert batch == seen.batch


# -- at which row ---------------------------------------------------------------------

_READ = 900


def _amid(*lines):
    """Counts of CPU 1's lists, of which 100 pages were told: (event, CPU, task, page, order)."""
    cap = pm.recording(SIZES)
    seen = cap.zoneinfo_series["counts-1"]
    zone = next(z for z in seen.zones if z.key == KEY[:2])
    rows = np.zeros(len(lines), cap.trace[0].rows.dtype)
    for k, (event, cpu, task, page, order) in enumerate(lines):
        rows[k]["event"], rows[k]["cpu"], rows[k]["pid"] = EVENT_IDS[event], cpu, task
        rows[k]["a"], rows[k]["b"] = zone.start_pfn + page, order
    begin, end = np.flatnonzero(rows["event"] == EVENT_IDS["tracing_mark_write"])
    found = counts_amid(rows, int(begin), int(end), seen)
    return [n - seen.pcps[KEY].count for n in found[KEY]] if KEY in found else None


def _read(cpu):
    return ("tracing_mark_write", cpu, _READ, 0, 0)


_TAKEN = ("mm_page_alloc", 1, 11, 5, 0)
_LATER = ("mm_page_alloc", 1, 11, 6, 0)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # A page was taken before its line comes, here of two pages.
        ([_read(0), _read(0), ("mm_page_alloc", 1, 11, 5, 1)], [0, 2]),
        # What comes while it is read has been then, or not yet.
        ([_read(0), _TAKEN, _read(0)], [-1, 0]),
        # A page that was freed may not have joined its list.
        ([("mm_page_free", 1, 11, 5, 0), _read(0), _read(0)], [0, 1]),
        # Those of a batch join with a line of their own.
        ([("mm_page_free", 1, 11, 5, 0), ("mm_page_free", 1, 11, 6, 0), _read(0), _read(0),
          ("mm_page_free_batched", 1, 11, 5, 0), ("mm_page_free_batched", 1, 11, 6, 0)], [0]),
        ([("mm_page_free", 1, 11, 5, 0), _read(0), ("mm_page_free_batched", 1, 11, 5, 0),
          _read(0)], [0, 1]),
        # A refill is counted once it is over.
        ([("mm_page_alloc_zone_locked", 1, 11, 5, 0), ("mm_page_alloc_zone_locked", 1, 11, 6, 0),
          _read(0), _read(0), _TAKEN], [0, 1, 2, 3]),
        # ... as a whole, however long it is, and others as they go.
        ([*[("mm_page_alloc_zone_locked", 1, 11, 7 + k, 0) for k in range(1500)], _read(0),
          _read(0), _TAKEN], [0, 1, 1500, 1501]),
        # Amid one, and before a drain, nothing is known.
        ([_read(0), _read(0), ("mm_page_alloc_zone_locked", 1, 11, 5, 0)], None),
        ([_read(0), _read(0), ("mm_page_pcpu_drain", 1, 11, 5, 0)], None),
        # The task that whoever read came after may have been at it, on its CPU no other.
        ([_TAKEN, _read(1), _read(1), _LATER], [0, 1]),
        ([_TAKEN, _read(1), _read(1), ("mm_page_alloc", 1, 12, 6, 0)], [0]),
        # Other zones and other CPUs do not count.
        ([_read(0), ("mm_page_alloc", 1, 11, -5, 0), ("mm_page_alloc", 0, 11, 5, 0), _read(0)],
         [0]),
    ],
)  # fmt: skip
def test_counts_are_what_they_may_be_at_the_end(lines, expected):
    assert _amid(*lines) == expected


def test_a_snapshot_is_of_the_rows_between_its_markers():
    cap = pm.recording(SIZES)
    markers = read_markers(cap)
    for tag, seen in cap.zoneinfo_series.items():
        at = markers.snapshot[tag]
        assert at.begin < at.end
        assert all(counts_amid(cap.trace[0].rows, at.begin, at.end, seen).values())


def test_another_setting_leaves_the_fraction_as_it_was():
    """zone_set_pageset_high_and_batch() runs before the marker of what was written comes."""
    events = ["zone_set_pageset_high_and_batch", "__zone_set_pageset_high_and_batch"]
    rows = np.zeros(9, pm.recording(SIZES).trace[0].rows.dtype)
    for row in (0, 3, 6):
        rows["event"][row : row + 2] = [EVENT_IDS[event] + HIT for event in events]
        rows["event"][row + 2] = EVENT_IDS["tracing_mark_write"]
    texts = ["sysctl vm/percpu_pagelist_high_fraction=8 r=0", "sysctl vm/min_free_kbytes=1 r=0"]
    cap = SimpleNamespace(trace=(Events(rows, np.zeros((0, 8), np.int64)), None), high_fraction=8)
    markers = Markers({2: texts[0], 5: texts[1], 8: "phase 0 work end"}, {2: 8}, {}, {})
    assert [what[2] for what in stops(cap, markers).values()] == [8, 8, 8]
    # What was written at no time is as at the end, at any time before the first that was: 0.
    assert [what[2] for what in stops(cap, Markers({5: texts[1]}, {}, {}, {})).values()] == [8] * 3
    later = Markers({5: texts[1], 8: texts[0]}, {8: 8}, {}, {})
    assert [what[2] for what in stops(cap, later).values()] == [0, 0, 8]

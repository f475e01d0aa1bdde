"""Replay: the model does page for page what eight real kernels did, and sees when it does not."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import random
import re
import shutil
from itertools import pairwise

import numpy as np
import pytest
import replay_all
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import SHARED, TRACES
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.trace import ftrace
from pcpmodel.trace.assumptions import ASSUMPTIONS
from pcpmodel.trace.buddy_lists import KINDS
from pcpmodel.trace.exactness import COUNTED
from pcpmodel.trace.markers import read_markers
from pcpmodel.trace.packed import open_text
from pcpmodel.trace.unseen import ACTS

NAMES = sorted(p.name for p in TRACES.iterdir() if p.is_dir())
#: Counts of each recording, made by ``python tools/replay_all.py --pin``.
REPLAYED = json.loads(replay_all.PINNED.read_text("utf-8"))
KERNELS = ("6.1", "6.12", "6.16", "6.18", "6.19", "7.0", "7.2", "7.3")
WORKLOADS = (
    "boot", "build", "detail", "exitstorm", "exitstorm-pti", "fraction", "idle-decay", "mixed",
    "numa2", "pf1", "pressure", "sctp", "tcp", "thp", "tmpfs", "unixpair",
)  # fmt: skip


def test_the_selection_has_every_kernel_and_workload():
    assert {n.split("-")[0] for n in NAMES} == set(KERNELS)
    workloads = {n.removesuffix("-r2").split("-", 1)[1].rsplit("-", 1)[0] for n in NAMES}
    assert workloads == set(WORKLOADS)
    assert sum(p.stat().st_size for p in TRACES.rglob("*") if p.is_file()) < 29e6


def test_every_recording_with_a_first_dump_is_replayed():
    assert list(REPLAYED) == [n for n in NAMES if "boot" not in n]


def test_what_needs_another_line_to_be_explained_is_rare():
    """Of each kind less than one in a hundred, over all recordings."""
    for kind in COUNTED:
        counts = (r["counts"][kind] for r in REPLAYED.values())
        total, _, explained, left = map(sum, zip(*counts, strict=True))
        assert (100 * explained < total, left) == (True, 0), kind


@pytest.mark.parametrize("name", REPLAYED)
def test_replay_is_exact(name):
    """Foreseen, explained, unexplained: each number, and why what is not foreseen is explained."""
    found = pm.replay(TRACES / name)
    assert found.nr_unexplained == 0, found
    # Every kernel recorded here has a release that is named after it.
    assert found.release.startswith("debian-")
    assert not any("nearest known" in note for note in found.notes)
    assert replay_all.pinned(found) == REPLAYED[name]
    assert min(found.blocks, found.free_lists, found.refills) > 0
    for kind in COUNTED:
        total, foreseen, explained, left = found.count(kind)
        assert foreseen + explained == total, kind
        assert left == getattr(found, f"{kind}_unexplained") == 0
        assert getattr(found, f"{kind}_exact") == foreseen == found.as_dict()[f"{kind}_exact"]
        assert found.explained or not explained, kind


def test_a_replay_has_the_parts_of_an_answer():
    right, wrong = (pm.replay(TRACES / "6.18-pf1-2cpu", release=r) for r in (None, "v6.6"))
    assert right.digest == pm.replay(TRACES / "6.18-pf1-2cpu").digest != wrong.digest
    assert right.text.endswith("; exact.")
    assert f"not exact: {wrong.nr_unexplained} differences are unexplained" in wrong.text
    for found in (right, wrong):
        counted = found.tables["counted"]
        assert tuple(counted.loc["refills"]) == found.count("refills")
        assert f"{found.refills_foreseen} of {found.refills} refills" in found.text
        rows = found.tables["unexplained"]
        assert list(rows["line"]) == [d.line for d in found.unexplained]
        assert list(found.tables["explained"]["why"]) == [e.why for e in found.explained]
    assert len(wrong.tables["unexplained"])


def test_the_header_of_a_boot_trace_is_read_and_its_replay_refused():
    for name in set(NAMES) - set(REPLAYED):
        cap = pm.recording(TRACES / name)
        assert len(cap.trace[0]) == cap.meta["events_total"]
        with pytest.raises(InputError, match=r"has no zoneinfo\.before"):
            pm.replay(cap)


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("6.1-pf1-4cpu", "v6.7"),
        ("6.12-tcp-4cpu", "debian-6.18.15"),  # another free_high threshold
        ("6.18-tcp-4cpu", "v6.6"),  # pages are found gone while they are taken
        ("6.18-unixpair-4cpu", "debian-6.12.107"),
        ("6.19-pf1-4cpu", "debian-6.18.15"),  # drains in one piece
        ("7.2-detail-4cpu", "debian-6.18.15"),
    ],
)
def test_another_kernels_rules_do_not_pass(name, release):
    found = pm.replay(TRACES / name, release=release)
    assert found.nr_unexplained > 0


def test_what_searches_may_cost_is_bounded_and_the_note_names_the_line():
    found = pm.replay(TRACES / "6.18-exitstorm-4cpu", release="v6.6")
    (note,) = (n for n in found.notes if "no other order of operations" in n)
    assert re.match(r"from line \d+ on ", note)
    assert found.nr_unexplained > 0


@pytest.mark.parametrize("name", ["6.18-pf1-2cpu", "7.2-detail-4cpu"])
def test_events_that_lie_in_a_file_are_replayed_as_those_in_memory(name, monkeypatch):
    monkeypatch.setattr(ftrace, "IN_MEMORY", 1 << 20)
    cap = pm.recording(TRACES / name)
    assert cap.trace[0].spilled
    assert replay_all.pinned(pm.replay(cap)) == REPLAYED[name]


@pytest.mark.slow
def test_without_the_last_dump_what_compaction_holds_spoils_blocks_alone(tmp_path):
    """docs/limits.md: thousands of blocks unlike the model's are no sign of another rule."""
    target = tmp_path / "mine"
    name = "6.19-pressure-4cpu"
    shutil.copytree(TRACES / name, target, ignore=shutil.ignore_patterns("*.after*"))
    found = pm.replay(target)
    whole = REPLAYED[name]["counts"]
    for kind in ("allocations", "refills", "drains", "drained_pages"):
        assert list(found.count(kind)) == whole[kind]
    assert (found.count("blocks")[3], found.nr_unexplained) == (10_358, 10_358)


READ_MEANWHILE = "free list of the last dump that changed while it was read"


@pytest.mark.parametrize(
    ("name", "zone_list"),
    [
        # A drain of 599 pages ran while it was read; its last two blocks came at two moments.
        ("6.16-exitstorm-4cpu", "free node=0 zone=Normal order=1 mt=0:"),
        # The reader stood on its only block when that was merged away: "!dead...".
        ("7.2-tcp-4cpu-r2", "free node=0 zone=Normal order=0 mt=0:"),
    ],
)
def test_a_free_list_that_changed_while_it_was_dumped_is_read_link_by_link(
    name, zone_list, tmp_path
):
    assert pm.replay(TRACES / name).causes()[READ_MEANWHILE] == 1
    target = tmp_path / "mine"
    shutil.copytree(TRACES / name, target, ignore=shutil.ignore_patterns("buddylists.after*"))
    path = next((TRACES / name).glob("buddylists.after*"))
    lines = b"".join(open_text(path)).decode().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(zone_list))
    head, blocks = lines[at].partition(":")[0], lines[at].partition(":")[2].split()
    large = next(line for line in lines if "zone=Normal order=10 mt=1:" in line)
    if len(blocks) > 10:  # two blocks changed places; one is missing
        changed = [[*blocks[:5], blocks[6], blocks[5], *blocks[7:]], [*blocks[:9], *blocks[10:]]]
    else:  # a block that was there at no moment
        changed = [[large.split()[-1], *blocks[1:]]]
    for wrong in changed:
        lines[at] = f"{head}: {' '.join(wrong)}"
        (target / "buddylists.after").write_text("\n".join(lines) + "\n")
        found = pm.replay(target)
        assert found.free_lists_exact == found.free_lists - 1
        assert found.nr_unexplained == 1


def test_one_page_in_flight_explains_what_two_guesses_spoilt():
    """0x105a90 was taken before 0x105a98, which was reported first; free_count tells."""
    found = pm.replay(TRACES / "7.2-tcp-4cpu-r2")
    (page,) = (e for e in found.explained if e.line == 38492)
    assert (page.why, page.evidence) == ("taken before, reported later", 39336)
    assert found.drains_exact == found.drains == 806


def test_a_kernel_that_is_not_known_is_taken_for_the_nearest_release(tmp_path):
    target = tmp_path / "mine"
    shutil.copytree(TRACES / "6.18-pf1-2cpu", target)
    meta = json.loads((target / "meta.json").read_text())
    meta |= {"kernel_series": "6.20", "kernel": "Linux version 6.20.3-x", "debian_package": ""}
    (target / "meta.json").write_text(json.dumps(meta))
    said = "release v6.19, the nearest known to Linux 6.20.3"
    found = pm.replay(target)
    assert (found.release, found.notes) == ("v6.19", [said])
    assert said in repr(found)
    told = CliRunner().invoke(main, ["replay", str(target), "--json"])
    assert json.loads(told.stdout)["notes"] == [said]
    # --release is obeyed, and then nothing is assumed.
    told = CliRunner().invoke(main, ["replay", str(target), "--release", "v6.18+decay-chunks"])
    assert told.exit_code == 0
    assert "replayed as v6.18+decay-chunks" in told.stdout
    assert "nearest" not in told.stdout
    other = pm.what_if(target, ["v6.6"])
    assert other.notes == [f"recorded under {said}"]
    assert other.as_dict()["notes"] == other.notes
    assert said in repr(other)
    mine = ["--release", "v6.18+decay-chunks", "--what-if", "v6.6", "--json"]
    told = CliRunner().invoke(main, ["replay", str(target), *mine])
    assert json.loads(told.stdout)["notes"] == []
    assert said in pm.study.recorded_work(target, ["v6.6"]).text


@pytest.fixture(scope="module")
def small():
    """A whole recording, its text as lines."""
    path = TRACES / "6.18-pf1-2cpu"
    lines = b"".join(open_text(path / "trace.txt.zst")).splitlines(keepends=True)
    start = next(i for i, t in enumerate(lines) if b"state-before-end" in t)
    stop = next(i for i, t in enumerate(lines) if b"state-after-begin" in t)
    return path, lines, start + 1, stop


def _changed(tmp_path, source, lines):
    target = tmp_path / "recording"
    if not target.exists():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("trace.txt*"))
    (target / "trace.txt").write_bytes(b"".join(lines))
    return pm.replay(target)


def _heading(lines, n):
    """The heading again consistent with *n* events: nobody is told by the count alone."""
    i = next(i for i, t in enumerate(lines) if t.startswith(b"# entries-in-buffer"))
    return [*lines[:i], b"# entries-in-buffer/entries-written: %d/%d   #P:2\n" % (n, n),
            *lines[i + 1 :]]  # fmt: skip


def _events(lines):
    return sum(not t.startswith(b"#") for t in lines)


def test_the_recording_as_it_is_stays_exact(small, tmp_path):
    path, lines, *_ = small
    assert _changed(tmp_path, path, lines).exact


def test_a_removed_line_is_noticed_by_the_heading(small, tmp_path):
    path, lines, start, stop = small
    rng = random.Random(1)
    for _ in range(5):
        i = rng.randrange(start, stop)
        found = _changed(tmp_path, path, lines[:i] + lines[i + 1 :])
        assert found.lost == 1
        assert not found.exact


@pytest.mark.parametrize(
    "event", [b"mm_page_alloc:", b"mm_page_free_batched:", b"mm_page_alloc_zone_locked:"]
)
def test_a_removed_event_is_noticed_by_its_page(small, tmp_path, event):
    path, lines, start, stop = small
    rng = random.Random(2)
    places = [i for i in range(start, stop) if event in lines[i]]
    for i in rng.sample(places, 6):
        cut = lines[:i] + lines[i + 1 :]
        found = _changed(tmp_path, path, _heading(cut, _events(cut)))
        assert found.nr_unexplained > 0, lines[i]
        assert found.lost == 1  # by meta.json


def test_a_removed_drain_event_is_noticed(tmp_path):
    path = TRACES / "6.12-tcp-4cpu"
    lines = b"".join(open_text(path / "trace.txt.zst")).splitlines(keepends=True)
    start = next(i for i, t in enumerate(lines) if b"state-before-end" in t)
    rng = random.Random(3)
    places = [i for i in range(start, len(lines)) if b"mm_page_pcpu_drain:" in lines[i]]
    for i in rng.sample(places, 4):
        cut = lines[:i] + lines[i + 1 :]
        found = _changed(tmp_path, path, _heading(cut, _events(cut)))
        assert found.nr_unexplained > 0
        assert any(abs(d.line - i) < 3000 for d in found.unexplained)


@pytest.mark.parametrize("lost", [0, 1500])
def test_more_events_than_the_heading_says_are_none_that_were_lost(small, tmp_path, lost):
    path, lines, *_ = small
    n = sum(not t.startswith(b"#") for t in lines)
    i = next(i for i, t in enumerate(lines) if t.startswith(b"# entries-in-buffer"))
    told = lines[i].replace(b"%d/%d" % (n, n), b"%d/%d" % (n - 1000, n - 1000 + lost))
    found = _changed(tmp_path, path, [*lines[:i], told, *lines[i + 1 :]])
    assert (found.lost, found.exact) == (lost, lost == 0)
    assert any("1000 events more than its heading says: tracing went on" in t for t in found.notes)


def test_a_changed_page_number_is_noticed(small, tmp_path):
    path, lines, start, stop = small
    rng = random.Random(4)
    places = [i for i in range(start, stop) if b" pfn=0x" in lines[i]]
    for i in rng.sample(places, 12):
        at = lines[i].index(b" pfn=0x") + 7
        end = lines[i].index(b" ", at)
        other = int(lines[i][at:end], 16) ^ (1 << rng.randrange(8))
        changed = lines[i][:at] + b"%x" % other + lines[i][end:]
        found = _changed(tmp_path, path, [*lines[:i], changed, *lines[i + 1 :]])
        assert found.nr_unexplained > 0, lines[i]


def test_two_swapped_lines_are_noticed(small, tmp_path):
    path, lines, start, stop = small
    rng = random.Random(5)

    def time(line):
        return line[line.index(b"] ") + 7 :].split(b":")[0].split()[-1]

    done = 0
    while done < 8:
        i = rng.randrange(start, stop - 1)
        if time(lines[i]) == time(lines[i + 1]):
            continue  # same microsecond: either may have been first
        done += 1
        swapped = [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]
        with pytest.raises(InputError, match="time goes backwards") as error:
            _changed(tmp_path, path, swapped)
        assert error.value.row == i + 2


def test_a_trace_of_one_cpu_after_the_other_is_refused(small, tmp_path):
    """As of per_cpu/cpu*/trace: it was replayed, with thousands of differences of one cause."""
    path, lines, *_ = small
    apart = [[t for t in lines if b" [%03d] " % cpu in t] for cpu in (0, 1)]
    last, first = (_time(t)[:-1].decode() for t in (apart[0][-1], apart[1][0]))
    with pytest.raises(InputError) as error:
        _changed(tmp_path, path, [*apart[0], *apart[1]])
    assert error.value.row == len(apart[0]) + 1
    assert error.value.file.endswith("trace.txt")
    for said in (f"from {last}000 s to {first}000 s", "the kernel's file 'trace'"):
        assert said in error.value.message


def test_two_swapped_pages_are_noticed_though_the_times_are_right(small, tmp_path):
    path, lines, start, stop = small
    rng = random.Random(6)

    def fields(line):
        return line[line.index(b": page=") :]

    places = [
        i
        for i in range(start, stop - 1)
        if all(b"mm_page_alloc_zone_locked:" in t for t in lines[i : i + 2])
    ]
    for i in rng.sample(places, 8):
        a, b = lines[i], lines[i + 1]
        one = a[: a.index(b": page=")] + fields(b)
        two = b[: b.index(b": page=")] + fields(a)
        found = _changed(tmp_path, path, [*lines[:i], one, two, *lines[i + 2 :]])
        assert found.nr_unexplained > 0


def test_two_frees_far_from_where_they_were_are_noticed(tmp_path):
    """One of them is looked for as gone early while it is being taken."""
    path = TRACES / "6.19-pressure-4cpu"
    lines = b"".join(open_text(path / "trace.txt.zst")).splitlines(keepends=True)
    # A hundredth of the trace and two thirds of it from each other: no task waits that long.
    freed = [k for k, line in enumerate(lines) if b"mm_page_free_batched:" in line]
    i, j = freed[len(freed) // 100], freed[2 * len(freed) // 3]
    late, early = (
        lines[a].replace(_time(lines[a]), _time(lines[b]), 1) for a, b in ((j, i), (i, j))
    )
    swapped = [*lines[:i], late, *lines[i + 1 : j], early, *lines[j + 1 :]]
    assert _changed(tmp_path, path, swapped).nr_unexplained > 1


def test_no_compaction_explains_two_swapped_blocks(tmp_path):
    path = TRACES / "6.19-pressure-4cpu"
    lines = b"".join(open_text(path / "trace.txt.zst")).splitlines(keepends=True)
    key = b"mm_page_alloc_zone_locked: "
    rng = random.Random(8)
    places = [i for i, t in enumerate(lines[:-1]) if key in t and key in lines[i + 1]]
    i = rng.choice(places[len(places) // 2 :])
    one, two = (t.split(key) for t in lines[i : i + 2])
    swapped = [one[0] + key + two[1], two[0] + key + one[1]]
    found = _changed(tmp_path, path, [*lines[:i], *swapped, *lines[i + 2 :]])
    assert found.blocks_unexplained > 0
    assert any(abs(d.line - i) < 300 for d in found.unexplained)


@pytest.mark.slow
def test_no_compaction_explains_two_swapped_blocks_of_a_dump(tmp_path):
    """fast_find_migrateblock() turns no list of an order below 3."""
    target = tmp_path / "recording"
    shutil.copytree(TRACES / "6.19-pressure-4cpu", target)
    path = next(target.glob("buddylists.after*"))
    lines = b"".join(open_text(path)).splitlines(keepends=True)
    key = b"zone=DMA32 order=1 mt=1:"
    i = next(i for i, t in enumerate(lines) if key in t)
    head, pfns = lines[i].split(b": ")
    pfns = pfns.split()
    n = len(pfns) // 2
    pfns[n : n + 2] = pfns[n + 1], pfns[n]
    lines[i] = head + b": " + b" ".join(pfns) + b"\n"
    path.unlink()
    (target / "buddylists.after").write_bytes(b"".join(lines))
    found = pm.replay(target)
    assert found.free_lists_unexplained == 1
    assert not found.exact


def test_a_changed_field_of_a_probe_is_noticed(tmp_path):
    path = TRACES / "6.12-tcp-4cpu"
    lines = b"".join(open_text(path / "trace.txt.zst")).splitlines(keepends=True)
    start = next(i for i, t in enumerate(lines) if b"state-before-end" in t)
    rng = random.Random(7)
    places = [i for i in range(start, len(lines)) if b" free_pcppages_bulk:" in lines[i]]
    for key in (b" n=", b" pindex=", b" count=", b" high=", b" fc=", b" af="):
        i = rng.choice(places)
        at = lines[i].index(key) + len(key)
        end = lines[i].index(b" ", at)
        changed = lines[i][:at] + b"%d" % (int(lines[i][at:end]) + 1) + lines[i][end:]
        found = _changed(tmp_path, path, [*lines[:i], changed, *lines[i + 1 :]])
        assert any(d.line == i + 1 for d in found.unexplained), key


def test_a_lossy_trace_is_never_exact(small, tmp_path):
    path, lines, start, _ = small
    found = _changed(tmp_path, path, [*lines[:start], b"CPU:1 [LOST 7 EVENTS]\n", *lines[start:]])
    assert found.lost == 7
    assert found.nr_unexplained == 0
    assert not found.exact


def test_too_much_that_is_explained_proves_nothing(small, monkeypatch):
    """The recording needs two lines for others; what if that were too many?"""
    found = pm.replay(small[0])
    assert (found.nr_explained, found.exact) == (2, True)
    assert f"at most {found.states} states" in repr(found) if found.states > 1 else found.states
    monkeypatch.setattr("pcpmodel.trace.exactness.EVENTS_PER_EXPLAINED", found.events)
    assert not found.exact
    assert "is explained: not exact" in repr(found)
    result = CliRunner().invoke(main, ["replay", str(small[0]), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["exact"] is False
    assert "2 of" in result.stderr
    assert "events explained (at most 1 in 100 may be)" in result.stderr


def test_the_report_is_readable_and_the_verb_keeps_its_contract(tmp_path, small):
    path, lines, start, stop = small
    result = CliRunner().invoke(main, ["replay", str(path), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    for kind in COUNTED:
        assert told[kind] == told[f"{kind}_foreseen"] + told[f"{kind}_explained"]
        assert told[f"{kind}_exact"] == told[f"{kind}_foreseen"]
    assert told["allocations_explained"] == 4  # taken before, reported later
    assert told["isolated"] == 0
    assert (told["unexplained"], told["nr_causes"]) == ([], 0)
    assert told["exact"] is True
    i = next(i for i in range(start, stop) if b"mm_page_alloc:" in lines[i])
    _changed(tmp_path, path, lines[:i] + lines[i + 1 :])
    result = CliRunner().invoke(main, ["replay", str(tmp_path / "recording")])
    assert result.exit_code == 1
    assert "unexplained" in result.stdout
    assert " (causes: 0), 1 lost events, " in result.output
    result = CliRunner().invoke(main, ["replay", str(tmp_path / "no-such")])
    assert result.exit_code == 2
    result = CliRunner().invoke(main, ["replay", str(path), "--release", "v6.99"])
    assert result.exit_code == 2


def test_a_recording_that_contradicts_itself_is_bad_input(small, tmp_path):
    path, lines, *_ = small
    _changed(tmp_path, path, lines)
    target = tmp_path / "recording"
    state = (target / "pcpstate.before").read_text()
    for old, new in ((" cpu=1 ", " cpu=7 "), ("spanned=", "spanned=9999999999 x=")):
        (target / "pcpstate.before").write_text(state.replace(old, new))
        with pytest.raises(InputError):
            pm.replay(target)
    (target / "pcpstate.before").write_text(state)
    (target / "trace.txt").write_bytes(b"".join(t for t in lines if b"state-before" not in t))
    with pytest.raises(InputError, match="marker"):
        pm.replay(target)


@pytest.mark.slow
def test_all_recordings_that_are_at_hand():
    """The whole set of recordings, where this checkout stands beside it."""
    every = SHARED / "traces"
    if not every.is_dir():
        pytest.skip("no recordings beside this checkout")
    for path in sorted(every.iterdir()):
        if (path / "pcpstate.before").exists():
            found = pm.replay(path)
            assert not found.lost
            assert found.nr_unexplained == 0, found
            for kind in COUNTED:
                assert getattr(found, f"{kind}_unexplained") == 0


def test_a_process_that_linux_cannot_have_is_refused(tmp_path):
    target = tmp_path / "recording"
    shutil.copytree(TRACES / "7.2-tcp-4cpu", target)
    lines = b"".join(open_text(pm.recording(target).file("trace.txt"))).splitlines(keepends=True)
    for trace in target.glob("trace.txt*"):
        trace.unlink()
    task, _, rest = lines[-1].rpartition(b" [")
    name, _, _ = task.rpartition(b"-")
    lines[-1] = name + b"-4194304 [" + rest
    (target / "trace.txt").write_bytes(b"".join(lines))
    with pytest.raises(InputError, match="process 4194304"):
        pm.replay(target)


def _marker(lines, text):
    return next(i for i, t in enumerate(lines) if text in t)


@pytest.mark.parametrize(
    ("text", "to", "says"),
    [
        (b"state-before-begin", b"state-before-end", "no beginning|backwards"),
        (b"state-before-begin", 2000, "no beginning|backwards"),
        (b"state-before-end", b"state-after-begin", "has no end|backwards"),
        (b"state-after-end", b"state-after-begin", "no beginning|backwards"),
        (b"snapshot-before", b"state-before-end", "before its snapshot|backwards"),
        (b"state-snapA-begin", b"state-before-begin", "not the first|has no end|backwards"),
    ],
)
@pytest.mark.parametrize("retimed", [False, True])
def test_a_moved_marker_is_refused_with_its_line(small, tmp_path, text, to, says, retimed):
    """Once the rows between two markers in the wrong order were read out of bounds."""
    path, lines, *_ = small
    i = _marker(lines, text)
    rest = lines[:i] + lines[i + 1 :]
    first = text in (b"state-after-end", b"state-snapA-begin")  # is put before the other
    at = i + to if isinstance(to, int) else _marker(rest, to) + (not first)
    line = lines[i]
    if retimed:
        line = line.replace(_time(line), _time(rest[at - 1]), 1)
    with pytest.raises(InputError, match=says) as error:
        _changed(tmp_path, path, [*rest[:at], line, *rest[at:]])
    assert error.value.row > 0
    assert error.value.file.endswith("trace.txt")
    assert "marker 's" in str(error.value) or not retimed


def _time(line):
    return next(word for word in line.split() if word.endswith(b":") and b"." in word)


@pytest.mark.parametrize("edge", [b"begin", b"end"])
@pytest.mark.parametrize("tag", [b"before", b"snapA", b"after"])
def test_a_marker_that_stands_twice_or_alone_is_refused(small, tmp_path, tag, edge):
    path, lines, *_ = small
    i = _marker(lines, b"state-" + tag + b"-" + edge)
    with pytest.raises(InputError, match="a second time"):
        _changed(tmp_path, path, [*lines[: i + 1], lines[i], *lines[i + 1 :]])
    if (tag, edge) == (b"after", b"end"):
        return  # a trace that was cut off: the dump is not compared
    with pytest.raises(InputError, match=r"no beginning|has no end|no marker"):
        _changed(tmp_path, path, lines[:i] + lines[i + 1 :])


def test_a_marker_that_may_be_lost_is_told_with_how_many_events_were(small, tmp_path):
    path, lines, *_ = small
    i = _marker(lines, b"state-after-begin")
    target = tmp_path / "recording"
    shutil.copytree(path, target, ignore=shutil.ignore_patterns("trace.txt*"))
    meta = json.loads((target / "meta.json").read_text()) | {"lost_events": 77}
    (target / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(InputError, match=r"no beginning before it: 77 events were lost .*--buf"):
        _changed(tmp_path, path, lines[:i] + lines[i + 1 :])


def test_a_dump_without_its_markers_is_named(small, tmp_path):
    path, lines, *_ = small
    found = _changed(tmp_path, path, [t for t in lines if b"state-snapA" not in t])
    assert any("'snapA' is not compared" in note for note in found.notes)
    assert found.lists == 84


def test_the_order_and_type_of_a_refills_first_page_are_compared(small, tmp_path):
    """It goes to the task that waits for it: mm_page_alloc tells what that asked for."""
    path, lines, start, stop = small
    key = b"mm_page_alloc_zone_locked: "
    i = next(k for k in range(start, stop) if key in lines[k])
    pfn = lines[i].split(b" pfn=")[1].split()[0]
    k = next(k for k in range(i, stop) if b"mm_page_alloc: " in lines[k] and pfn in lines[k])
    for old, new, what in (
        (b"migratetype=1", b"migratetype=0", "migratetype"),
        (b"migratetype=0", b"migratetype=1", "migratetype"),
        (b"order=0", b"order=1", "order of an allocation"),
    ):
        if old not in lines[k]:
            continue
        changed = lines[k].replace(old, new)
        found = _changed(tmp_path, path, [*lines[:k], changed, *lines[k + 1 :]])
        assert any(d.line == k + 1 and d.what == what for d in found.unexplained), found
        assert found.allocations_unexplained >= 1


def stopped_between(cap):
    """(line of a refill's first block, line of a later free to its list), both from 0.

    The task of the free shows nothing in between, and is the next to show on its CPU.
    """
    events = cap.trace[0]
    rows = events.rows
    locked, freed = (events.is_event(f"mm_page_{name}") for name in ("alloc_zone_locked", "free"))
    allocated = events.is_event("mm_page_alloc")
    first = read_markers(cap).state["before"].end
    zones = [(z.start_pfn, z.end_pfn) for z in cap.snapshot("before").zones]
    for k in np.flatnonzero(locked[first:]) + first:
        r = rows[k]
        here = np.flatnonzero(rows["cpu"][k - 50 : k + 400] == r["cpu"]) + k - 50
        if r["b"] or locked[here[here < k][-1:]].any():
            continue
        zone = next(z for z in zones if z[0] <= r["a"] < z[1])
        for j, after in pairwise(here):
            f = rows[j]
            if j <= k or not freed[j] or f["b"] or rows["pid"][after] != f["pid"]:
                continue
            between = rows[k - 1 : j]
            later = np.flatnonzero((rows["a"] == f["a"]) & (np.arange(len(rows)) > j))
            if (
                (between["pid"] == f["pid"]).any()
                or (between["a"] == f["a"]).any()
                or not zone[0] <= f["a"] < zone[1]
                or not len(later)
                or not allocated[later[0]]
                or rows["c"][later[0]] != r["c"]
            ):
                continue
            return int(r["line"]) - 1, int(f["line"]) - 1
    raise AssertionError("no such free in the recording")


def test_a_task_that_is_stopped_between_a_free_and_its_list_is_no_difference(tmp_path):
    """Its page is not on the list yet when a refill finds that empty."""
    path = TRACES / "6.12-build-4cpu"
    cap = pm.recording(path)
    lines = b"".join(open_text(cap.file("trace.txt"))).splitlines(keepends=True)
    i, j = stopped_between(cap)
    late = lines[j].replace(_time(lines[j]), _time(lines[i]), 1)
    found = _changed(tmp_path, path, [*lines[:i], late, *lines[i:j], *lines[j + 1 :]])
    assert found.nr_unexplained == 0, found
    assert found.causes()["freed, but joined its list later"] == 1


def test_a_task_that_moved_shows_itself_where_it_was(small, tmp_path):
    """Allocations told by another CPU than that of their list need the task's line there."""
    path, lines, start, stop = small
    told = [k for k in range(start, stop) if b"mm_page_alloc: " in lines[k]][3000:3200]
    changed = list(lines)
    for k in told:
        here, there = (b"[000]", b"[001]") if b"[000]" in lines[k] else (b"[001]", b"[000]")
        changed[k] = lines[k].replace(here, there, 1)
    found = _changed(tmp_path, path, changed)
    assert any(d.what == "CPU of an allocation" for d in found.unexplained)
    assert found.allocations_foreseen < found.allocations - 100


def _damaged(tmp_path, source, name, change):
    """A replay of a recording with one other file, changed line by line."""
    target = tmp_path / "recording"
    shutil.copytree(source, target)
    path = next(target.glob(f"{name}*"))
    lines = b"".join(open_text(path)).splitlines(keepends=True)
    path.unlink()
    (target / name).write_bytes(b"".join(change(lines)))
    return pm.replay(target)


def test_the_types_of_the_page_blocks_at_the_end_are_compared(small, tmp_path):
    def change(lines):
        at = lines[-1].rindex(b"1")
        return [*lines[:-1], lines[-1][:at] + b"0" + lines[-1][at + 1 :]]

    found = _damaged(tmp_path, small[0], "pageblocks.after", change)
    assert found.page_blocks_unexplained == 1
    (wrong,) = (d for d in found.unexplained if d.what == "migratetype of a page block")
    assert (wrong.expected, wrong.got) == (1, 0)


def test_a_first_dump_that_contradicts_itself_is_refused(small, tmp_path):
    def change(lines):
        i = next(i for i, t in enumerate(lines) if t.startswith(b"pcp "))
        return [*lines[:i], lines[i].replace(b" count=0 ", b" count=5 "), *lines[i + 1 :]]

    with pytest.raises(InputError, match=r"count=\d+ of node 0, .*, but its lists hold \d+ pages"):
        _damaged(tmp_path, small[0], "pcpstate.before", change)


@pytest.mark.parametrize(
    ("kind", "field", "said"),
    [
        (
            b"zone",
            b"pageset_batch",
            r"row 5: batch=\d+ of node 0, zone DMA32, CPU 0, .* has 7",
        ),
        (b"zone", b"pageset_high_min", r"row 5: high_min=\d+ of node 0, zone DMA32, .* has 7"),
        (b"pcp", b"high_max", r"row 5: high_max=7 of node 0, zone DMA32, CPU 0, but its zone"),
        (b"zone", b"wmark_high", r"row 4: wmark_min=.* wmark_high=7 of .* do not ascend"),
    ],
)
def test_sizes_of_a_first_dump_that_contradict_each_other_are_refused(
    small, tmp_path, kind, field, said
):
    def change(lines):
        i = next(i for i, t in enumerate(lines) if t.startswith(kind + b" ") and b"=DMA32 " in t)
        changed = re.sub(rb" %s=\d+" % field, b" %s=7" % field, lines[i])
        return [*lines[:i], changed, *lines[i + 1 :]]

    with pytest.raises(InputError, match=said):
        _damaged(tmp_path, small[0], "pcpstate.before", change)


def test_a_later_dump_without_the_lists_of_a_cpu_is_refused(small, tmp_path):
    def change(lines):
        return [t for t in lines if b" cpu=1 " not in t]

    with pytest.raises(InputError, match=r"pcpstate\.after, row 1: no pcp line .*, CPU 1"):
        _damaged(tmp_path, small[0], "pcpstate.after", change)


def test_a_dump_that_only_the_trace_tells_of_is_named(small, tmp_path):
    shutil.copytree(small[0], tmp_path / "recording")
    next((tmp_path / "recording").glob("pcpstate.after*")).unlink()
    said = "dump 'after', of which the trace tells, is not in the recording"
    assert said in pm.replay(tmp_path / "recording").notes
    assert not pm.replay(small[0]).notes


def test_events_that_meta_json_tells_of_are_lost_if_they_are_not_there(small, tmp_path):
    """Also where the heading is gone or was edited."""
    path, lines, start, _ = small
    part = [t for t in lines[:start] if not t.startswith(b"#")]
    found = _changed(tmp_path, path, part)
    missing = _events(lines) - _events(part)
    assert found.lost == missing
    assert any(f"{missing} events of which meta.json tells are" in note for note in found.notes)
    more = _heading([*lines, lines[-1]], _events(lines) + 1)
    found = _changed(tmp_path, path, more)
    assert found.lost == 0
    assert any("1 events more than meta.json tells of" in note for note in found.notes)


def test_a_marker_of_a_sysctl_that_the_kernel_refuses_is_refused(small, tmp_path):
    path, lines, *_ = small
    i = next(i for i, t in enumerate(lines) if b"phase" in t and b"begin" in t)
    told = re.sub(rb"phase .*", b"sysctl vm/percpu_pagelist_high_fraction=7 r=0", lines[i])
    with pytest.raises(InputError, match=rf"trace\.txt, row {i + 1}: marker .* cannot be: .*=7 is"):
        _changed(tmp_path, path, [*lines[:i], told, *lines[i:]])


@pytest.mark.parametrize("tag", ["snapA", "after"])
@pytest.mark.parametrize("key", [b"high", b"batch", b"high_min", b"alloc_factor", b"free_count"])
def test_the_fields_of_a_later_dump_are_compared(small, tmp_path, tag, key):
    def change(lines):
        i = next(i for i, t in enumerate(lines) if t.startswith(b"pcp ") and b" count=0 " not in t)
        more = re.sub(
            rb"(?<= %s=)\d+" % key, lambda old: b"%d" % (int(old[0]) + 1), lines[i], count=1
        )
        return [*lines[:i], more, *lines[i + 1 :]]

    found = _damaged(tmp_path, small[0], f"pcpstate.{tag}", change)
    assert found.probes_unexplained >= 1  # the next dump shows what it was, again
    assert [d.what for d in found.unexplained][:1] == [key.decode()], found


def test_the_frees_of_a_batch_come_in_the_order_of_their_lists(small, tmp_path):
    """Two pages that one batch announces in the order in which it does not free them."""
    path, lines, start, stop = small
    key = b": mm_page_free: "

    def page(line):
        return line.partition(key)[2].split()[1]

    def batched(i):
        rest = (t for t in lines[i + 1 : stop] if b" " + page(lines[i]) + b" " in t)
        return b"mm_page_free_batched" in next(rest, b"")

    places = [
        i
        for i in range(start, stop - 1)
        if all(key in t for t in lines[i : i + 2])
        and lines[i].partition(b"] ")[0] == lines[i + 1].partition(b"] ")[0]
    ]
    done = 0
    for i in random.Random(9).sample(places, 20):
        if done == 3 or not batched(i) or not batched(i + 1):
            continue
        done += 1
        one, two = (t.split(key) for t in lines[i : i + 2])
        changed = [one[0] + key + two[1], two[0] + key + one[1]]
        found = _changed(tmp_path, path, [*lines[:i], *changed, *lines[i + 2 :]])
        assert [(d.line, d.what[:26]) for d in found.unexplained] == [
            (i + 1, "order of the frees of a ba")
        ]
    assert done == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"=0x1 spanned=4095 ", b"=0x0 spanned=4096 ", r"pcpstate\.after.*zones of dump 'after'"),
        (b" spanned=4095 ", b" spanned=4090 ", r"pcpstate\.after, row 1: .* spans 4090; .* 4095"),
    ],
)  # fmt: skip
def test_a_later_dump_of_other_zones_is_refused(old, new, said, small, tmp_path):
    def change(lines):
        assert any(old in t for t in lines)
        return [t.replace(old, new, 1) for t in lines]

    with pytest.raises(InputError, match=said):
        _damaged(tmp_path, small[0], "pcpstate.after", change)


def test_a_tick_while_the_first_dump_is_taken_is_not_lost(tmp_path):
    """The fields that its probe shows are those of the dump: it came after."""
    path = TRACES / "7.2-exitstorm-4cpu"
    lines = b"".join(open_text(pm.recording(path).file("trace.txt"))).splitlines(keepends=True)
    i = _marker(lines, b"state-before-end")
    last = max(k for k in range(i, i + 10) if b"decay_pcp_high" in lines[k])
    when = _time(lines[last])
    ends = [t.replace(_time(t), when, 1) for t in lines[i : i + 2]]  # and its snapshot's
    ticks = lines[i + 2 : last + 1]
    found = _changed(tmp_path, path, [*lines[:i], *ticks, *ends, *lines[last + 1 :]])
    assert found.nr_unexplained == 0, found
    # Without them ``high`` would be another one later.
    rest = [t for t in ticks if b"decay_pcp_high" not in t]
    without = [*lines[:i], *rest, *ends, *lines[last + 1 :]]
    assert _changed(tmp_path, path, _heading(without, _events(without))).nr_unexplained > 0


def test_what_may_be_assumed_is_one_table():
    """Every cause of a pinned replay is a row of it, and each row says all four things."""
    names = {row.name for row in ASSUMPTIONS.values()}
    assert len(names) == len(ASSUMPTIONS)
    assert all(row.when and row.does and row.proof for row in ASSUMPTIONS.values())
    assert {why for told in REPLAYED.values() for why in told["explained"]} <= names
    assert set(ACTS) == set(KINDS)


def test_compaction_isolates_no_more_than_vmstat_says(tmp_path):
    target = tmp_path / "6.12-pressure-4cpu"
    shutil.copytree(TRACES / target.name, target)
    assert pm.recording(target).compaction == 36
    for part in target.glob("vmstat.after*"):
        part.unlink()
    assert pm.recording(target).compaction is None
    (target / "vmstat.after").write_text("compact_isolated 3\n", encoding="utf-8")
    found = pm.replay(target)
    assert (found.isolated, found.isolated_at_most, found.nr_unexplained) == (4, 3, 1)

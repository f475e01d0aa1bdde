"""Replay: the model does page for page what five real kernels did, and sees when it does not."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.trace.ftrace import open_text

TRACES = Path(__file__).parents[1] / "data" / "traces"

NAMES = sorted(p.name for p in TRACES.iterdir() if p.is_dir())
REPLAYED = [n for n in NAMES if "boot" not in n]
KERNELS = ("6.1", "6.12", "6.18", "6.19", "7.2")
WORKLOADS = (
    "boot", "build", "detail", "exitstorm", "fraction", "idle-decay", "mixed", "numa2", "pf1",
    "pressure", "sctp", "tcp", "thp", "tmpfs", "unixpair",
)  # fmt: skip


def test_the_selection_has_every_kernel_and_workload():
    assert {n.split("-")[0] for n in NAMES} == set(KERNELS)
    assert {n.split("-", 1)[1].rsplit("-", 1)[0] for n in NAMES} == set(WORKLOADS)
    assert sum(p.stat().st_size for p in TRACES.rglob("*")) < 25e6


@pytest.mark.parametrize("name", REPLAYED)
def test_replay_is_exact(name):
    found = pm.replay(TRACES / name)
    assert found.nr_unexplained == 0, found
    assert found.blocks_exact == found.blocks > 0
    assert found.free_lists_exact == found.free_lists > 0
    assert found.allocations_exact == found.allocations > 5000
    assert found.refills_exact == found.refills > 0
    assert found.drains_exact == found.drains
    assert found.drained_pages_exact == found.drained_pages
    assert found.lists > 50
    # A list differs from its dump only where it moved while it was read.
    assert found.lists_exact >= 0.99 * found.lists
    # What needed another line to be explained stays rare.
    assert found.nr_explained < 0.02 * found.allocations


def test_the_header_of_a_boot_trace_is_read_and_its_replay_refused():
    for name in set(NAMES) - set(REPLAYED):
        cap = pm.capture(TRACES / name)
        assert len(cap.trace[0]) == cap.meta["events_total"]
        with pytest.raises(InputError, match="before"):
            pm.replay(cap)


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("6.1-pf1-4cpu", "v6.7"),
        ("6.12-tcp-4cpu", "debian-6.18.15"),  # another free_high threshold
        ("6.18-unixpair-4cpu", "debian-6.12.107"),
        ("6.19-pf1-4cpu", "debian-6.18.15"),  # drains in one piece
        ("7.2-detail-4cpu", "debian-6.18.15"),
    ],
)
def test_another_kernels_rules_do_not_pass(name, release):
    found = pm.replay(TRACES / name, release=release)
    assert found.nr_unexplained > 0


@pytest.fixture(scope="module")
def small():
    """A whole capture, its text as lines."""
    path = TRACES / "6.18-pf1-2cpu"
    lines = b"".join(open_text(path / "trace.txt.zst")).splitlines(keepends=True)
    start = next(i for i, t in enumerate(lines) if b"state-before-end" in t)
    stop = next(i for i, t in enumerate(lines) if b"state-after-begin" in t)
    return path, lines, start + 1, stop


def _changed(tmp_path, source, lines):
    target = tmp_path / "capture"
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


def test_the_capture_as_it_is_stays_exact(small, tmp_path):
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
        assert found.lost == 0


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
        found = _changed(tmp_path, path, swapped)
        assert any(d.what.startswith("time goes backwards") for d in found.unexplained)


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
    i, j = 34496, 241672
    assert all(b"mm_page_free_batched:" in lines[k] for k in (i, j))
    swapped = [*lines[:i], lines[j], *lines[i + 1 : j], lines[i], *lines[j + 1 :]]
    assert _changed(tmp_path, path, swapped).nr_unexplained > 1000


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
    assert found.blocks > found.blocks_exact
    assert any(abs(d.line - i) < 300 for d in found.unexplained)


@pytest.mark.slow
def test_no_compaction_explains_two_swapped_blocks_of_a_dump(tmp_path):
    """fast_find_migrateblock() turns no list of an order below 3."""
    target = tmp_path / "capture"
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
    assert found.free_lists - found.free_lists_exact == 1
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


def test_the_report_is_readable_and_the_verb_keeps_its_contract(tmp_path, small):
    path, lines, start, stop = small
    result = CliRunner().invoke(main, ["replay", str(path), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    for key in (
        "allocations", "allocations_exact", "refills", "refills_exact", "drains", "drains_exact",
        "drained_pages", "drained_pages_exact",
    ):  # fmt: skip
        assert isinstance(told[key], int)
    assert told["unexplained"] == []
    assert told["exact"] is True
    i = next(i for i in range(start, stop) if b"mm_page_alloc:" in lines[i])
    _changed(tmp_path, path, lines[:i] + lines[i + 1 :])
    result = CliRunner().invoke(main, ["replay", str(tmp_path / "capture")])
    assert result.exit_code == 1
    assert "unexplained" in result.stdout
    result = CliRunner().invoke(main, ["replay", str(tmp_path / "no-such")])
    assert result.exit_code == 2
    result = CliRunner().invoke(main, ["replay", str(path), "--release", "v6.99"])
    assert result.exit_code == 2


def test_a_capture_that_contradicts_itself_is_bad_input(small, tmp_path):
    path, lines, *_ = small
    _changed(tmp_path, path, lines)
    target = tmp_path / "capture"
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
    every = Path(__file__).parents[2] / "shared" / "traces"
    if not every.is_dir():
        pytest.skip("no recordings beside this checkout")
    for path in sorted(every.iterdir()):
        if (path / "pcpstate.before").exists():
            found = pm.replay(path)
            assert not found.lost
            assert found.nr_unexplained == 0, found
            assert found.allocations_exact == found.allocations
            assert found.drained_pages_exact == found.drained_pages


def test_a_process_that_linux_cannot_have_is_refused(tmp_path):
    target = tmp_path / "capture"
    shutil.copytree(TRACES / "7.2-tcp-4cpu", target)
    lines = b"".join(open_text(pm.capture(target).file("trace.txt"))).splitlines(keepends=True)
    for trace in target.glob("trace.txt*"):
        trace.unlink()
    task, _, rest = lines[-1].rpartition(b" [")
    name, _, _ = task.rpartition(b"-")
    lines[-1] = name + b"-4194304 [" + rest
    (target / "trace.txt").write_bytes(b"".join(lines))
    with pytest.raises(InputError, match="process 4194304"):
        pm.replay(target)

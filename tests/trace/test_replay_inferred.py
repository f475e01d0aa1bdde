"""Replay without a dump of the lists: the start follows from the trace, the rest is predicted."""

# SPDX-License-Identifier: GPL-2.0-only

import dataclasses
import json
import random
import re
import shutil
from bisect import bisect
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

import pcpmodel as pm
from helpers.paths import TESTS, TRACES
from pcpmodel.errors import InputError
from pcpmodel.kernel.sizing import zone_set_pageset_high_and_batch
from pcpmodel.trace import ftrace
from pcpmodel.trace import replay as replay_module
from pcpmodel.trace.ftrace import EVENT_IDS, FLAGS, HIDDEN, Events
from pcpmodel.trace.inferred import lay_elsewhere, made_since, types_told
from pcpmodel.trace.markers import read_markers
from pcpmodel.trace.packed import open_text
from pcpmodel.trace.recording import Snapshot
from pcpmodel.trace.replay import _sized, replay_without_dump
from pcpmodel.trace.start import guess_types
from pcpmodel.trace.switched import hand_over

#: Recordings that leave nothing unexplained without dumps: how many allocations,
#: refills, drains and drained pages are explained, and how many served to find out the start.
#: That ZONE_BELOW_HIGH may be set at the start takes one to three refills more on some.
TELLING = {
    "6.1-fraction-4cpu": ((6, 0, 0, 0), (2, 0, 1, 0)),
    "6.1-detail-4cpu": ((10, 0, 0, 0), (2, 0, 1, 0)),
    "6.1-pf1-4cpu": ((9, 0, 0, 0), (1, 0, 1, 0)),
    "6.1-pressure-4cpu": ((14, 0, 275, 13943), (26, 0, 0, 1)),
    "6.12-detail-4cpu": ((9, 0, 0, 0), (0, 4, 0, 0)),
    "6.12-fraction-4cpu": ((5, 0, 0, 0), (2, 4, 1, 0)),
    "6.12-mixed-4cpu": ((9, 0, 0, 0), (1, 5, 0, 0)),
    "6.12-numa2-4cpu": ((9, 0, 4, 207), (6, 4, 0, 0)),
    "6.12-pressure-4cpu": ((16, 6, 129, 13485), (0, 9, 5, 32)),
    "6.12-sctp-4cpu": ((11, 0, 0, 0), (1, 6, 1, 0)),
    "6.12-tcp-4cpu": ((16, 0, 0, 0), (1, 4, 1, 0)),
    "6.12-tmpfs-4cpu": ((3, 0, 0, 0), (2, 6, 0, 0)),
    "6.18-detail-2cpu": ((27, 1, 0, 0), (0, 2, 0, 0)),
    "6.18-exitstorm-4cpu": ((63, 0, 0, 0), (0, 5, 2, 0)),
    "6.18-pf1-2cpu": ((6, 0, 0, 0), (0, 3, 0, 0)),
    "6.18-unixpair-4cpu": ((12, 0, 0, 0), (0, 5, 0, 0)),
    "6.19-exitstorm-4cpu": ((40, 0, 0, 0), (0, 6, 0, 0)),
    "6.19-pf1-4cpu": ((2, 0, 0, 0), (0, 4, 0, 0)),
    "6.19-tmpfs-2cpu": ((0, 0, 0, 0), (1076, 3, 0, 0)),
    "7.2-build-4cpu": ((288, 0, 0, 0), (0, 3, 0, 0)),
    "7.2-detail-4cpu": ((21, 1, 0, 0), (0, 5, 0, 0)),
    "7.2-tcp-4cpu": ((29, 1, 1, 153), (0, 4, 0, 0)),
    "7.3-unixpair-4cpu": ((4, 0, 0, 0), (0, 4, 0, 0)),
}
#: Of these, those that do not need the flags, which perf does not print.
PERF = ("6.1-pf1-4cpu", "6.12-mixed-4cpu", "6.18-pf1-2cpu")
KINDS = ("allocations", "refills", "drains", "drained_pages")


@pytest.fixture
def blind(tmp_path):
    """A recording as a kernel gives it that shows its lists to no one."""

    def without_dumps(name, lines=None):
        target = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        hidden = shutil.ignore_patterns("pcpstate.*", "buddylists.*", "pageblocks.*")
        shutil.copytree(TRACES / name, target, ignore=hidden)
        meta = json.loads((target / "meta.json").read_text())
        if lines is not None:  # nobody is told by their number
            del meta["events"], meta["events_total"]
        (target / "meta.json").write_text(json.dumps(meta | {"probes": []}))
        if lines is not None:
            (target / "trace.txt.zst").unlink()
            (target / "trace.txt").write_bytes(b"".join(lines))
        return target

    return without_dumps


#: Linux 6.18.44 as a cloud builds it, recorded without a dump: the first lines.
NATIVE = TESTS / "data"


@pytest.fixture
def native(tmp_path):
    """A native recording with other lines."""

    def changed(name, change):
        lines = b"".join(open_text(NATIVE / name / "trace.txt.zst")).splitlines(keepends=True)
        shutil.copytree(NATIVE / name, tmp_path / name, ignore=shutil.ignore_patterns("trace.*"))
        (tmp_path / name / "trace.txt").write_bytes(b"".join(_heading(change(lines))))
        return pm.replay(tmp_path / name)

    return changed


@pytest.mark.parametrize("name", TELLING)
def test_all_that_is_not_inferred_is_predicted(blind, name):
    found = pm.replay(blind(name))
    assert found.nr_unexplained == 0, found
    assert found.exact
    for kind, explained, inferred in zip(KINDS, *TELLING[name], strict=True):
        left = found.count(kind)
        assert left == (left[0], left[0] - explained - inferred, explained, 0), kind
        assert found.inferred[kind] == inferred, kind
    # /proc/zoneinfo has the same counts and highs at the end.
    assert found.probes > 0


def _marks(cap):
    events, reader = cap.trace
    rows = np.flatnonzero(events.is_event("tracing_mark_write"))
    return {reader.markers[int(events.rows["a"][k])]: int(k) for k in rows}


def test_the_states_found_are_those_of_the_struct_and_the_lists():
    """What is known at the end, against the kernel's own memory then."""
    known = fields = pages = 0
    for name in ("6.12-tcp-4cpu", "6.12-mixed-4cpu", "6.18-unixpair-4cpu", "6.18-exitstorm-4cpu"):
        cap = pm.recording(TRACES / name)
        stop = _marks(cap)["pcpmodel: state-after-begin"]
        start = cap.zoneinfo("before")
        first = _marks(cap)["pcpmodel: snapshot-before-end"] + 1
        _, follower = replay_without_dump(cap, cap.release, start, first, stop)
        told = cap.snapshot("after")
        for x in range(len(start.zones) * cap.cpus):
            pcp = told.pcps[(*start.zones[x // cap.cpus].key, x % cap.cpus)]
            if not follower.is_followed(x):
                continue
            states, row = follower.states(x)
            for i in range(14):
                have, more_below = follower.list_of(x, i), follower.more_below(x, i)
                real = pcp.lists.get(i, np.empty(0, np.int64)).tolist()
                assert have == (real[: len(have)] if more_below else real), (name, x, i)
                pages += len(have)
            if row >= 0:
                known += 1
                assert len(states) == 1
                count, high, alloc_factor, free_count, _, flags = states[0]
                assert (count, high) == (pcp.count, pcp.high)
                assert (alloc_factor, free_count) == (pcp.alloc_factor, pcp.free_count)
                assert flags == pcp.flags
                fields += 6
    assert known == 8
    assert pages == 17658


def _hidden(dump):
    """A dump as /proc/zoneinfo shows it."""
    gone = dict.fromkeys(("flags", "alloc_factor", "free_factor", "free_count"), -1)
    pcps = {k: dataclasses.replace(p, lists={}, **gone) for k, p in dump.pcps.items()}
    return Snapshot(dump.tag, dump.zones, pcps)


@pytest.mark.parametrize(
    ("name", "tag", "pages"),
    [
        ("6.1-pf1-4cpu", "snapA", 387),
        ("6.12-sctp-4cpu", "snapA", 950),
        ("6.12-tcp-4cpu", "snapA", 505),
        ("6.12-tmpfs-4cpu", "snapA", 4060),
        ("6.18-tcp-4cpu", "snapA", 267),
    ],
)
def test_the_lists_of_the_start_are_those_of_the_dump_that_was_hidden(name, tag, pages):
    """In the middle of the work, with many pages on the lists."""
    cap = pm.recording(TRACES / name)
    dump = cap.snapshot(tag)
    first = _marks(cap)[f"pcpmodel: state-{tag}-end"] + 1
    found, follower = replay_without_dump(cap, cap.release, _hidden(dump), first)
    inferred = 0
    for (x, i), (from_head, from_tail) in follower.first_lists().items():
        zone = dump.zones[x // cap.cpus]
        real = dump.pcps[(*zone.key, x % cap.cpus)].lists[i].tolist()
        # In the same order; between them only what new tasks took in silence.
        place = {pfn: n for n, pfn in enumerate(real)}
        at = [place[pfn] for pfn in from_head]
        assert at == sorted(at)
        assert not at or at[-1] < len(at) + 8 * len(from_head)
        assert real[len(real) - len(from_tail) :][::-1] == from_tail
        inferred += len(from_head) + len(from_tail)
    assert inferred == found.inferred["allocations"] + found.inferred["drained_pages"]
    assert inferred == pages


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("6.12-tcp-4cpu", "debian-6.18.15"),
        ("6.18-unixpair-4cpu", "debian-6.12.107"),
        ("6.19-exitstorm-4cpu", "v6.7"),
    ],
)
def test_another_kernels_rules_do_not_pass_either(blind, name, release):
    assert pm.replay(blind(name), release=release).nr_unexplained > 0


@pytest.fixture(scope="module")
def text():
    path = TRACES / "6.12-tcp-4cpu" / "trace.txt.zst"
    lines = b"".join(open_text(path)).splitlines(keepends=True)
    # Of what is replayed, the second half: every CPU's state is known by then.
    middle = len(lines) // 2
    stop = next(i for i, t in enumerate(lines) if b"state-after-begin" in t)
    return lines, middle, stop


def _heading(lines):
    n = sum(not t.startswith(b"#") for t in lines)
    i = next(i for i, t in enumerate(lines) if t.startswith(b"# entries-in-buffer"))
    return [*lines[:i], b"# entries-in-buffer/entries-written: %d/%d   #P:4\n" % (n, n),
            *lines[i + 1 :]]  # fmt: skip


def _tampered(blind, lines, changed, at):
    """Differences of the changed trace, of which one must be near line *at*."""
    found = pm.replay(blind("6.12-tcp-4cpu", _heading(changed)))
    assert found.lost == 0
    assert found.nr_unexplained > 0, lines[at]
    assert any(at - 2000 < d.line < at + 5000 for d in found.unexplained), found


def test_the_trace_as_it_is_stays_exact(blind, text):
    assert pm.replay(blind("6.12-tcp-4cpu", text[0])).exact


@pytest.mark.parametrize("event", [b"mm_page_pcpu_drain:", b"mm_page_alloc:"])
def test_a_removed_event_is_noticed(blind, text, event):
    lines, middle, stop = text
    places = [i for i in range(middle, stop) if event in lines[i]]
    for i in random.Random(1).sample(places, 4):
        _tampered(blind, lines, lines[:i] + lines[i + 1 :], i)


def test_pages_freed_twice_end_in_differences(blind):
    """A free that waits for its task must not list a page that another one has listed since."""
    name = "6.18-exitstorm-4cpu"
    lines = b"".join(open_text(TRACES / name / "trace.txt.zst")).splitlines(keepends=True)
    start = next(i for i, t in enumerate(lines) if b"snapshot-before-end" in t)
    changed = []
    doubled = 0
    for i, t in enumerate(lines):
        changed.append(t)
        if i < start or b" mm_page_free: " not in t:
            continue
        head = t.split(b"]")[0]
        after = next((u for u in lines[i + 1 : i + 4] if u.split(b"]")[0] == head), b"")
        if b" free_pcppages_bulk: " in after:
            changed.append(t.replace(t.split()[0], b"other-1234", 1))
            doubled += 1
    assert doubled
    assert pm.replay(blind(name, _heading(changed))).nr_unexplained >= doubled


def test_a_whole_drain_that_is_missing_is_noticed(blind, text):
    lines, middle, stop = text
    places = [b"mm_page_pcpu_drain:" in t for t in lines]
    i = next(i for i in range(middle, stop) if all(places[i : i + 20]) and not places[i - 1])
    end = places.index(False, i)
    _tampered(blind, lines, lines[:i] + lines[end:], i)


def test_a_changed_page_number_is_noticed(blind, text):
    lines, middle, stop = text
    rng = random.Random(2)
    places = [
        i
        for i in range(middle, stop)
        if b"mm_page_alloc:" in lines[i] or b"mm_page_pcpu_drain:" in lines[i]
    ]
    for i in rng.sample(places, 6):
        at = lines[i].index(b" pfn=0x") + 7
        end = lines[i].index(b" ", at)
        other = b"%x" % (int(lines[i][at:end], 16) ^ (1 << rng.randrange(8)))
        changed = lines[i][:at] + other + lines[i][end:]
        _tampered(blind, lines, [*lines[:i], changed, *lines[i + 1 :]], i)


def test_two_swapped_pages_are_noticed(blind, text):
    lines, middle, stop = text
    event = b"mm_page_pcpu_drain: "
    places = [i for i in range(middle, stop) if event in lines[i] and event in lines[i + 1]]
    for i in random.Random(3).sample(places, 4):
        (a, one), (b, two) = (lines[k].split(event) for k in (i, i + 1))
        swapped = [*lines[:i], a + event + two, b + event + one, *lines[i + 2 :]]
        _tampered(blind, lines, swapped, i)


def _pfn(line):
    found = re.search(rb" pfn=(0x[0-9a-f]+) ", line)
    return found and found[1]


def _unused(lines, near, n):
    """Pages near another one of which no line tells, in blocks of which one does."""
    used = {_pfn(t) for t in lines}
    blocks = {int(pfn, 16) >> 9 for pfn in used if pfn}
    pages = range(int(near, 16) - (1 << 16), int(near, 16) + (1 << 16))
    return [b"%#x" % p for p in pages if p >> 9 in blocks and b"%#x" % p not in used][:n]


def _in_softirq(line, pages, depth):
    """Frees by an interrupt of what a line shows."""
    head = re.sub(rb"\] \S{5} ", b"] ..s%d. " % depth, line.partition(b": mm_page")[0])
    return [head + b": mm_page_free: page=0 pfn=%s order=0\n" % page for page in pages]


def test_an_interrupt_finds_the_lists_locked_though_a_batch_has_just_drained(blind):
    name = "6.12-build-4cpu"
    lines = b"".join(open_text(TRACES / name / "trace.txt.zst")).splitlines(keepends=True)
    drains, batched = (b": mm_page_pcpu_drain:", b": mm_page_free_batched:")
    i = next(
        i for i in range(len(lines) // 2, len(lines))
        if drains in lines[i] and batched in lines[i + 1]
        and lines[i].split(b"]")[0] == lines[i + 1].split(b"]")[0]
    )  # fmt: skip
    freed = _in_softirq(lines[i], _unused(lines, _pfn(lines[i]), 2), 3)
    found = pm.replay(blind(name, _heading([*lines[: i + 1], *freed, *lines[i + 1 :]])))
    assert found.nr_unexplained == 0, found
    assert found.causes()["lists were locked: freed straight to the buddy lists"] == 2


def test_more_than_new_stacks_take_was_never_on_the_list(native):
    """What an allocation takes lies below pages that went past the list, and are not seen again."""

    def changed(lines):
        fork = [i for i, t in enumerate(lines) if b": sched_process_fork:" in t][4]
        cpu = re.search(rb"\[\d+\]", lines[fork])[0]
        takes = [i for i, t in enumerate(lines) if cpu in t and b": mm_page_alloc:" in t]
        before = max(i for i in takes if i < fork)
        taken = next(i for i in takes if i > fork and b"order=0 migratetype=0" in lines[i])
        freed = _in_softirq(lines[before], _unused(lines, _pfn(lines[taken]), 13), 2)
        return [*lines[:before], *freed, *lines[before:]]

    found = native("native-tmpfs-2cpu", changed)
    assert found.nr_unexplained == 0, found
    assert found.causes()["lists were locked: freed straight to the buddy lists"] == 5


@pytest.mark.parametrize("depth", [2, 0])
def test_what_a_later_drain_does_not_take_was_never_on_the_list(native, depth):
    """A drain takes what came first: not what an interrupt freed while the lists were locked."""

    def changed(lines):
        drained = [
            i for i, t in enumerate(lines)
            if b": mm_page_pcpu_drain:" in t and b"order=0 migratetype=1" in t
        ]  # fmt: skip
        pages = {_pfn(lines[i]) for i in drained}
        freed = next(
            i for i in range(drained[0], 0, -1)
            if _pfn(lines[i]) in pages
            and b": mm_page_free: " in lines[i] and b"] ....." in lines[i]
        )  # fmt: skip
        block, used = int(_pfn(lines[drained[0]]), 16) & ~511, {_pfn(t) for t in lines}
        others = [b"%#x" % page for page in range(block, block + 512)]
        others = [page for page in others if page not in used][:2]
        return [*lines[:freed], *_in_softirq(lines[freed], others, depth), *lines[freed:]]

    found = native("native-thp-2cpu", changed)
    locked = found.causes().get("lists were locked: freed straight to the buddy lists", 0)
    assert (found.nr_unexplained == 0, locked) == (depth > 0, depth), found


def test_what_follows_from_one_cause_is_counted_under_it(blind, text):
    """A refill without a line: each of its pages leaves a list that it never joined."""
    lines, middle, _stop = text
    refill = b": mm_page_alloc_zone_locked:"
    i = next(i for i in range(middle, len(lines)) if refill in lines[i] and refill in lines[i + 1])
    end = next(k for k in range(i, len(lines)) if refill not in lines[k])
    found = pm.replay(blind("6.12-tcp-4cpu", _heading(lines[:i] + lines[end:])))
    assert end - i <= found.nr_unexplained < end - i + 4
    assert found.nr_causes == 1
    ((first, following),) = found.first_of_causes()
    assert first.line == min(d.line for d in found.unexplained)
    assert following == found.nr_unexplained - 1
    assert f"unexplained    {found.nr_unexplained:9} of 1 cause\n" in repr(found)
    assert f"{first}; {following} more follow from it\n" in repr(found)
    told = found.as_dict()
    assert told["nr_causes"] == 1
    assert {d["cause"] for d in told["unexplained"]} == {1}


def test_causes_on_lists_of_two_cpus_are_two(blind, text):
    lines, middle, stop = text
    takes = [i for i in range(middle, stop) if b": mm_page_alloc:" in lines[i]]
    gone = [next(i for i in takes if b"[00%d]" % cpu in lines[i]) for cpu in range(2)]
    kept = [t for i, t in enumerate(lines) if i not in gone]
    found = pm.replay(blind("6.12-tcp-4cpu", _heading(kept)))
    assert [n for _, n in found.first_of_causes()] == [0, 0], found


def test_pages_that_no_line_brought_do_not_spoil_the_rest_of_a_drain(blind):
    """A drain of some pages that were drained before: what lies below these is not there either."""
    name = "6.18-exitstorm-4cpu"
    lines = b"".join(open_text(TRACES / name / "trace.txt.zst")).splitlines(keepends=True)
    drain = b": mm_page_pcpu_drain:"
    at = next(
        i for i in range(len(lines) // 2, len(lines))
        if all(drain in t for t in lines[i : i + 8]) and drain not in lines[i - 1]
    )  # fmt: skip
    last = {_pfn(t): t for t in lines[:at]}
    later = {_pfn(t) for t in lines[at:]}
    same = (lines[at].split(b"[")[1][:3], lines[at].split()[-1])  # CPU and migratetype
    old = [
        pfn for pfn, t in last.items()
        if pfn not in later and drain in t and (t.split(b"[")[1][:3], t.split()[-1]) == same
    ][-8:]  # fmt: skip
    changed = [t.replace(_pfn(t), pfn) for t, pfn in zip(lines[at : at + 8], old, strict=True)]
    found = pm.replay(blind(name, _heading([*lines[:at], *changed, *lines[at + 8 :]])))
    assert 8 <= found.nr_unexplained < 12, found
    assert found.nr_causes == 1


def test_what_zoneinfo_must_have(blind):
    path = blind("6.12-tcp-4cpu")
    text = (path / "zoneinfo.before").read_text()
    for change, match in (
        (
            text.replace("        managed ", "        monaged "),
            "'managed' of node 0, zone DMA is missing",
        ),
        (text.replace("count: ", "caunt: "), "'count' of .*, cpu 0 is missing"),
        (text.replace("start_pfn: ", "stort_pfn: "), "'start_pfn' of .* is missing"),
        (text.replace("  start_pfn:           1\n", "  start_pfn: 99999999999999\n"), "start_pfn"),
        (
            re.sub(r"(zone +Normal\n(?:.*\n)*? +spanned +)\d+", r"\g<1>17179869184", text),
            r"row \d+: zone Normal of node 0 ends .*; at most 134217728 are replayed",
        ),
    ):
        (path / "zoneinfo.before").write_text(change)
        with pytest.raises(InputError, match=match):
            pm.replay(path)
    (path / "zoneinfo.before").unlink()
    with pytest.raises(InputError, match="before"):
        pm.replay(path)


def test_the_recordings_own_high_fraction_sizes_the_lists(blind):
    """What /proc/zoneinfo of a 6.12 does not print follows from the sysctl."""
    target = blind("6.12-tcp-4cpu")
    cap = pm.recording(target)
    assert cap.high_fraction == 0
    sizes = []
    for text in ("0\n", "8\n"):
        (target / "high_fraction").write_text(text)
        cap = pm.recording(target)
        start = cap.zoneinfo("before")
        start = _sized(start, cap.release, cap, read_markers(cap))
        pcp = start.pcps[0, "DMA32", 0]
        sizes.append((pcp.high_min, pcp.high_max))
    zone = next(z for z in start.zones if z.name == "DMA32")
    for size, fraction in zip(sizes, (0, 8), strict=True):
        wanted = zone_set_pageset_high_and_batch(
            zone.managed, zone.wmark_low, cap.release.rules, node_cpus=4, online_cpus=4,
            high_fraction=fraction,
        )  # fmt: skip
        assert size == (wanted.high_min, wanted.high_max)
    assert sizes[0] != sizes[1]
    for wrong in ("7\n", "x\n", "-1\n"):
        (target / "high_fraction").write_text(wrong)
        with pytest.raises(InputError, match="high_fraction"):
            pm.replay(pm.recording(target))


def test_memory_is_shared_out_among_the_cpus_that_are_online(blind):
    """Their numbers may have gaps; no file of v6.12 tells high_min."""
    target = blind("6.12-tcp-4cpu")
    text = (target / "zoneinfo.before").read_text()
    for cpu in 0, 2:
        listed = rf"    cpu: {cpu}\n(?: {{14}}.*\n)*(?:  vm stats threshold.*\n)?"
        text = re.sub(listed, "", text)
    (target / "zoneinfo.before").write_text(text)
    cap = pm.recording(target)
    assert (cap.cpus, cap.online_cpus) == (4, 2)
    zone = next(z for z in cap.zoneinfo("before").zones if z.name == "Normal")
    wanted = zone_set_pageset_high_and_batch(
        zone.managed, zone.wmark_low, cap.release.rules, node_cpus=2, online_cpus=2,
    )  # fmt: skip
    pcp = _sized(cap.zoneinfo("before"), cap.release, cap, read_markers(cap)).pcps[0, "Normal", 3]
    assert (pcp.high_min, pcp.high_max) == (wanted.high_min, wanted.high_max)


def as_perf_script(lines):
    """A trace from its first snapshot on, as ``perf script`` prints it: no flags, no markers."""
    tools = {"mm": "kmem", "sched": "sched", "workqueue": "workqueue"}
    for line in lines:
        found = re.match(rb" *(.+)-(\d+) +\[(\d+)\] \S+ +([\d.]+): (\w+): (.*)", line)
        if found is None or found[5].split(b"_")[0].decode() not in tools:
            continue
        task, pid, cpu, time, event, rest = (part.decode() for part in found.groups())
        group = tools[event.split("_")[0]]
        yield f"{task:>16} {pid:>7} [{cpu}] {time}: {group}:{event}: {rest}\n".encode()


@pytest.mark.parametrize("name", PERF)
def test_what_perf_prints_is_replayed(blind, name):
    """No markers: the start is where the trace begins."""
    lines = b"".join(open_text(TRACES / name / "trace.txt.zst")).splitlines(keepends=True)
    first = next(i for i, t in enumerate(lines) if b"snapshot-before-end" in t)
    found = pm.replay(blind(name, as_perf_script(lines[first + 1 :])))
    assert found.nr_unexplained == 0, found
    assert found.allocations > 10000
    for kind in KINDS:
        total, foreseen, _, left = found.count(kind)
        assert left == 0, kind
        assert foreseen > 0.99 * (total - found.inferred[kind]) - 5
    assert any("no markers" in note for note in found.notes)
    assert any("no line of the trace has flags" in note for note in found.notes)
    assert found.probes == 0


@pytest.mark.parametrize("event", ["mm_page_free_batched", "mm_page_pcpu_drain"])
def test_events_that_were_not_recorded_are_named(blind, event):
    name = "6.18-pf1-2cpu"
    lines = b"".join(open_text(TRACES / name / "trace.txt.zst")).splitlines(keepends=True)
    without = [t for t in lines if f": {event}:".encode() not in t]
    assert not [note for note in pm.replay(blind(name)).notes if "no line" in note]
    notes = pm.replay(blind(name, _heading(without))).notes
    (note,) = (note for note in notes if "no line" in note)
    assert note.startswith(f"no line of the trace is of {event}: ")


def as_trace_cmd_report(lines):
    """A trace as ``trace-cmd report`` prints it: markers and sched_switch in forms of its own."""
    yield b"cpus=2\n"
    switch = (
        rb"prev_comm=(.*) prev_pid=(\d+) (?:.*)_state=(.).* ==> next_comm=(.*) next_pid=(\d+) .*"
    )
    for line in lines:
        found = re.match(rb"(.{16}-\d+) +(\[\d+\] \S+ +[\d.]+): (\w+): (.*)", line)
        if found is None:
            continue
        task, head, event, rest = found.groups()
        if event == b"tracing_mark_write":
            event, rest = b"print", b"tracing_mark_write: " + rest
        elif event == b"sched_switch":
            rest = re.sub(switch, rb"\1:\2 [120] \3 ==> \4:\5 [120]", rest)
        yield b"%s %s: %-21s %s\n" % (task, head, event + b":", rest)


@pytest.mark.parametrize("name", ["native-cat-2cpu", "native-find-2cpu"])
def test_what_trace_cmd_prints_is_replayed_as_what_the_kernel_prints(tmp_path, name):
    """Markers and sched_switch, of which it has a form of its own, are needed for both."""
    shutil.copytree(NATIVE / name, tmp_path / name, ignore=shutil.ignore_patterns("trace.*"))
    lines = b"".join(open_text(NATIVE / name / "trace.txt.zst")).splitlines(keepends=True)
    (tmp_path / name / "trace.txt").write_bytes(b"".join(as_trace_cmd_report(lines)))
    found, wanted = (pm.replay(path / name) for path in (tmp_path, NATIVE))
    assert found.nr_explained == wanted.nr_explained > 0
    assert found.nr_unexplained == wanted.nr_unexplained == 0
    for kind in KINDS:
        assert found.count(kind) == wanted.count(kind)
    assert found.notes == wanted.notes


@pytest.mark.parametrize(
    ("name", "events", "allocations", "refills"),
    [
        ("native-forks-2cpu", 57182, 19708, 11),
        ("native-tmpfs-2cpu", 35921, 19646, 18),
        ("native-thp-2cpu", 14983, 411, 19),
    ],
)
def test_a_native_kernel_is_followed(name, events, allocations, refills):
    """Stacks taken in silence; interrupts that free while locks are held below."""
    found = pm.replay(NATIVE / name)
    assert found.nr_unexplained == 0, found
    assert (found.events, found.allocations, found.refills) == (events, allocations, refills)
    assert found.nr_explained < found.events / 300


def test_what_a_hidden_task_took_and_gave_back_is_all_that_it_explains():
    """A refill in its place raised alloc_factor, and 63 pages came to a list that was empty.

    A drain that a tick makes bears out neither, nor does it empty the lists after that one; a count
    that nobody knows any more stays so at the cost of one state, not of all.
    """
    found = pm.replay(NATIVE / "native-cat-2cpu")
    assert found.nr_unexplained == found.cut == 0, found
    assert found.count("refills") == (398, 397, 1, 0)
    assert found.count("drains") == (3, 2, 1, 0)
    assert found.causes() == {
        "a task of which no line tells had the CPU": 131,
        "stack of a new task, taken without a line": 4,
    }
    assert found.inferred["drained_pages"] == 2122


def test_a_page_that_count_shows_gone_may_be_one_that_a_hidden_task_took():
    """The next pages to be reported were each said to have left before, four drains in a row.

    Whether that one had left, or has only now, the next drain tells, by count and free_count.
    """
    found = pm.replay(NATIVE / "native-find-2cpu")
    assert found.nr_unexplained == found.cut == 0, found
    assert found.count("drains") == (51, 45, 2, 0)
    assert found.causes() == {
        "a task of which no line tells had the CPU": 3,
        "left the list at another moment than its line says": 1,
    }


def test_events_that_lie_in_a_file_are_followed_as_those_in_memory(monkeypatch):
    """Hidden tasks and stacks, with which lines are changed in place and looked up by row."""
    known = pm.replay(NATIVE / "native-cat-2cpu")
    monkeypatch.setattr(ftrace, "IN_MEMORY", 1 << 20)
    cap = pm.recording(NATIVE / "native-cat-2cpu")
    assert cap.trace[0].spilled
    assert pm.replay(cap) == known


def _followed_from(monkeypatch, name, cpu, *more):
    """A native recording with so many pages more, or fewer, on the lists of a CPU at the start."""

    def counts(rows, begin, first, snapshot):
        return {
            key: [pcp.count + n for n in (more if key[2] == cpu and pcp.count else (0,))]
            for key, pcp in snapshot.pcps.items()
        }

    monkeypatch.setattr(replay_module, "counts_at_start", counts)
    cap = pm.recording(NATIVE / name)
    found, follower = replay_without_dump(cap, cap.release)
    normal = len(cap.zoneinfo("before").zones) - 1
    return found, follower.states(normal * cap.cpus + cpu)[0]


@pytest.mark.parametrize(
    ("name", "cpu", "may"),
    [("native-forks-2cpu", 0, 8), ("native-forks-2cpu", 1, 2), ("native-tmpfs-2cpu", 0, 8)],
)
def test_of_many_counts_each_goes_as_by_itself(monkeypatch, name, cpu, may):
    """Their ends are followed until they part; a drain shows which may have been."""
    some = range(-16, 16, 4) if may == 8 else range(-4, 4)
    found, states = _followed_from(monkeypatch, name, cpu, *some)
    assert found.nr_unexplained == 0, found
    each = [_followed_from(monkeypatch, name, cpu, n) for n in some]
    good = [mine for one, mine in each if not one.nr_unexplained]
    assert len(good) == may
    assert {*states} == {v for mine in good for v in mine}


def _tire(monkeypatch, effort):
    """So much may be spent, and no more."""
    made = replay_module.Follower

    def tired(*args, **named):
        follower = made(*args, **named)
        follower.effort = effort
        return follower

    monkeypatch.setattr(replay_module, "Follower", tired)


def test_where_what_may_have_been_is_cut_nothing_is_exact(monkeypatch):
    """As if the states had cost what they may before there is any difference."""
    cap = pm.recording(NATIVE / "native-thp-2cpu")
    found, _ = replay_without_dump(cap, cap.release)
    assert found.exact
    assert not found.cut
    _tire(monkeypatch, 1000)
    found, _ = replay_without_dump(cap, cap.release)
    assert found.nr_unexplained == 0
    assert found.cut == 1
    assert not found.exact
    (note,) = [note for note in found.notes if "never exact" in note]
    assert "spent at line 69: of 1 pageset " in note


def test_what_a_hidden_task_has_made_of_count_costs_no_search_a_drain(monkeypatch):
    """To look for causes of drains that such a task explains took two million states more."""
    _tire(monkeypatch, 2_500_000)
    found = pm.replay(NATIVE / "native-cat-2cpu")
    assert found.nr_unexplained == 0, found
    assert not found.cut


def test_lists_that_hold_far_more_are_not_emptied_by_a_drain(native, monkeypatch):
    """No search can find them so: that took a quarter of a million states more."""
    _tire(monkeypatch, 950_000)

    def without(lines):
        drain = next(i for i, t in enumerate(lines) if b": mm_page_pcpu_drain:" in t)
        return lines[:drain] + lines[drain + 1 :]

    found = native("native-thp-2cpu", without)
    assert found.nr_unexplained == 1, found
    assert not found.cut


def test_where_only_pages_are_followed_a_drain_begins_with_the_list_that_it_shows(
    native, monkeypatch
):
    """Of a page that nobody knew, which was there from the start."""
    _tire(monkeypatch, -1)
    told = [
        *((11, 0, what, 600) for what in ("alloc movable", "free")),
        *((11, 0, what, page) for what in ("alloc", "free") for page in (1, 2)),
        (11, 0, "drain", 1),
        *((11, 0, what, 3) for what in ("alloc", "free")),
        (11, 0, "drain movable", 601),
    ]
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert found.cut
    assert not [d for d in found.unexplained if d.what == "page of a drain"], found


@pytest.mark.parametrize("learns", [True, False])
def test_what_was_passed_over_or_cannot_be_is_what_the_native_recording_needs(monkeypatch, learns):
    """Without either, pages of blocks that no line tells of stand on the movable list."""

    def nothing(*given):
        freed, shown = lay_elsewhere(*given)
        return freed, 0 * shown

    monkeypatch.setattr(replay_module, "lay_elsewhere", nothing)
    if not learns:
        monkeypatch.setattr(replay_module, "_GUESSES", 0)
    assert (pm.replay(NATIVE / "native-tmpfs-2cpu").nr_unexplained > 5) == (not learns)


@pytest.mark.parametrize("missing", [1, 2, 6])
def test_flags_assumed_in_error_do_not_spoil_what_follows(native, missing):
    """Frees without a line make a drain come too early, as with ZONE_BELOW_HIGH; but that lowers
    high, and the next free would drain again."""

    def without(lines):
        drain = next(i for i, t in enumerate(lines) if b": mm_page_pcpu_drain:" in t)
        batch = [i for i in range(drain - 500, drain) if b": mm_page_free_batched:" in lines[i]]
        pages = {_pfn(lines[i]) for i in batch[:missing]}
        gone = [b": mm_page_free" in t and _pfn(t) in pages for t in lines[:drain]]
        return [t for t, out in zip(lines, gone, strict=False) if not out] + lines[drain:]

    found = native("native-thp-2cpu", without)
    assert found.nr_unexplained == 1, found
    assert found.unexplained[0].what == "drain that did not come [pages]"
    assert found.causes()["zone flags changed between two probes"] == 1


def _switch(line, to):
    """sched_switch on the CPU of a line."""
    head = re.sub(rb"\] \S{5} ", b"] d..2. ", line.partition(b": mm_page")[0])
    return head + b": sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> " \
        b"next_comm=b next_pid=%d next_prio=120\n" % to  # fmt: skip


@pytest.mark.parametrize("to", ["hidden", "seen", "none"])
@pytest.mark.parametrize("event", [b"mm_page_alloc", b"mm_page_free"])
def test_a_task_of_which_no_line_tells_had_the_cpu(native, event, to):
    """What it took, or gave back, is explained by the line with which it got the CPU, and only if
    it wrote none of its own."""

    def without(lines):
        pfns = [_pfn(t) for t in lines]
        then = b": mm_page_alloc: "
        i = next(
            i for i in range(len(lines) // 2, len(lines))
            if b": %s: " % event in lines[i] and b"order=0" in lines[i] and b"] ....." in lines[i]
            and then in lines[pfns.index(pfns[i], i + (event == b"mm_page_free"))]
        )  # fmt: skip
        cpu, pid = re.search(rb"\[\d+\]", lines[i])[0], 99999
        if to == "seen":
            pid = int(re.search(rb"-(\d+) +\[", lines[i])[1])
        last = max(k for k, t in enumerate(lines) if cpu in t)  # it may have had no time to tell
        return [
            *lines[:i], *[_switch(lines[i], pid)] * (to != "none"), *lines[i + 1 : last + 1],
            _switch(lines[last], 1), *lines[last + 1 :],
        ]  # fmt: skip

    found = native("native-tmpfs-2cpu", without)
    assert (found.nr_unexplained == 0) == (to == "hidden"), found
    assert ("a task of which no line tells had the CPU" in found.causes()) == (to == "hidden")


_TAKES, _FREES, _JOINS, _DRAINS = (
    b": mm_page_%s: " % name for name in (b"alloc", b"free", b"free_batched", b"pcpu_drain")
)


def _drained_lines(cpu):
    """A recording's lines, those of them that tell of a CPU's pages, and where its drains begin."""
    lines = b"".join(open_text(TRACES / "6.18-exitstorm-4cpu" / "trace.txt.zst"))
    lines = lines.splitlines(keepends=True)
    start = next(i for i, t in enumerate(lines) if b"snapshot-before-end" in t)
    told = [i for i in range(start, len(lines)) if cpu in lines[i] and b": mm_page" in lines[i]]
    drains = [
        i for before, i in pairwise(told)
        if _DRAINS in lines[i] and _DRAINS not in lines[before]
    ]  # fmt: skip
    return lines, told, drains


def _was_hidden(lines, i, cpu):
    """A hidden task did what line *i* tells of; a batch joins its lists with lines of its own."""
    then = next(k for k in range(i + 1, len(lines)) if _pfn(lines[k]) == _pfn(lines[i]))
    changed = [t for k, t in enumerate(lines) if k != then or _JOINS not in t]
    changed[i] = _switch(lines[i], 99999)
    last = max(k for k, t in enumerate(changed) if cpu in t and b": mm_page" in t)
    changed.insert(last + 1, _switch(changed[last], 1))
    return _heading(changed)


@pytest.mark.parametrize("then", [_TAKES, _DRAINS])
def test_what_a_hidden_task_freed_before_a_drain_bore_count_out_is_counted_since(blind, then):
    """What shows it later does not change count again: the next drain comes as foreseen."""
    cpu = b"[002]"
    lines, told, drains = _drained_lines(cpu)
    freed, hidden = {}, None
    for i in told:
        pfn = _pfn(lines[i])
        if _FREES in lines[i] and b"] ....." in lines[i]:
            freed[pfn] = i
        elif _JOINS not in lines[i] and pfn in freed:
            # A drain after the free, another one before this line, and one after it.
            since, until = bisect(drains, freed[pfn]), bisect(drains, i)
            between = since < until - (then == _DRAINS) and until < len(drains)
            if between and then in lines[i] and b"order=0" in lines[i]:
                hidden = freed[pfn]
                break
            del freed[pfn]
    found = pm.replay(blind("6.18-exitstorm-4cpu", _was_hidden(lines, hidden, cpu)))
    assert found.nr_unexplained == 0, found
    assert found.causes()["a task of which no line tells had the CPU"] == 2  # the drain, this line


def test_what_a_hidden_task_took_before_a_drain_bore_count_out_is_counted_since(blind):
    """The free that shows it, after that drain, does not change count for it again."""
    cpu = b"[001]"
    lines, told, drains = _drained_lines(cpu)
    pfns = [_pfn(t) for t in lines]
    for drain in drains[:-1]:
        hidden = next(
            i for i in reversed(told[: told.index(drain)])
            if _TAKES in lines[i] and b"order=0" in lines[i] and b"] ....." in lines[i]
        )  # fmt: skip
        then = pfns.index(pfns[hidden], hidden + 1)
        if _FREES in lines[then] and then > drain:
            break
    else:
        pytest.fail("no page is told of again only after a drain")
    found = pm.replay(blind("6.18-exitstorm-4cpu", _was_hidden(lines, hidden, cpu)))
    assert found.nr_unexplained == 0, found
    assert "a task of which no line tells had the CPU" in found.causes()


@pytest.mark.parametrize("hidden", [True, False])
def test_high_that_hidden_refills_have_raised_is_known_by_count_alone(blind, hidden):
    """Two more batches than zoneinfo says: a drain shows how far count is off, until a tick."""
    cpu = b"[003]"
    lines, told, _ = _drained_lines(cpu)
    if hidden:
        lines.insert(told[-1] + 1, _switch(lines[told[-1]], 1))
        lines.insert(told[0], _switch(lines[told[0]], 99999))
    path = blind("6.18-exitstorm-4cpu", _heading(lines))
    text = (path / "zoneinfo.before").read_text()
    at = text.index("cpu: 3", text.index("Normal"))
    high = re.compile(r"high: +(\d+)").search(text, at)
    low = f"{int(high[1]) - 126}"
    (path / "zoneinfo.before").write_text(text[: high.start(1)] + low + text[high.end(1) :])
    found = pm.replay(path)
    assert (found.nr_unexplained == 0) == hidden, found
    assert (found.causes().get("a task of which no line tells had the CPU", 0) > 2) == hidden


@pytest.mark.parametrize("given_back", [0, 0.008])
@pytest.mark.parametrize("name", ["6.12-numa2-4cpu", "6.12-tmpfs-4cpu"])
def test_where_high_stops_no_file_tells(blind, name, given_back):
    """What the kernel has given back since it computed high_max is managed, too."""
    path = blind(name)
    for file in (path / "zoneinfo.before", path / "zoneinfo.after"):
        text = re.sub(
            r"(managed +)(\d+)",
            lambda found: f"{found[1]}{round(int(found[2]) * (1 + given_back))}",
            file.read_text(),
        )
        file.write_text(text)
    found = pm.replay(path)
    assert found.nr_unexplained == 0, found
    assert bool(found.causes().get("high came to high_max, which no file tells")) == (
        given_back > 0
    )


def test_who_is_hidden_from_the_tracer():
    softirq = FLAGS["softirq"]
    events = _events([
        _line(_SWITCH, 8), _line(_SWITCH, 9), _line(_ALLOC, 100, task=8),
        _line(_FREE, 100, task=9, flags=softirq),  # an interrupt above it
        _line(_SWITCH, 0), _line(_SWITCH, 9, cpu=1), _line(_SWITCH, 7),
        _line(_SWITCH, 6),  # the last one of its CPU may have had nothing to tell yet
    ])  # fmt: skip
    hand_over(events, 2)
    assert np.flatnonzero(events["event"] == HIDDEN).tolist() == [1]


def test_a_page_below_all_that_is_known_left_before_others_came(native):
    """An interrupt frees between an allocation and its line, of a page that nobody knew."""

    def interrupted(lines):
        pfns = [_pfn(t) for t in lines]
        there = b": mm_page_alloc: ", b"order=0 migratetype=0", b"] ....."
        i = max(
            i for i, t in enumerate(lines)
            if all(word in t for word in there) and pfns.index(pfns[i]) == i
        )  # fmt: skip
        pages = _unused(lines, pfns[i], 3)
        taken = [lines[i].replace(pfns[i], page) for page in reversed(pages)]
        return [*lines[:i], *_in_softirq(lines[i], pages, 1), lines[i], *taken]

    found = native("native-thp-2cpu", interrupted)
    assert found.nr_unexplained == 0, found
    assert found.causes()["reported after other pages had joined its list"] == 1


def test_a_batch_that_is_under_way_at_the_start(native):
    """Its pages were prepared before the first snapshot ends, and join their lists after it."""

    def later(lines):
        mark = next(i for i, t in enumerate(lines) if b"snapshot-before-end" in t)
        batch = next(
            i
            for i in range(mark, len(lines) - 1)
            if b": mm_page_free: " in lines[i] and b": mm_page_free_batched: " in lines[i + 1]
        )
        time = re.search(rb" +[\d.]+: ", lines[batch])[0]
        moved = re.sub(rb" +[\d.]+: ", time, lines[mark], count=1)
        return [*lines[:mark], *lines[mark + 1 : batch + 1], moved, *lines[batch + 1 :]]

    assert native("native-tmpfs-2cpu", later).nr_unexplained == 0


_WORDS = {
    "alloc": b"mm_page_alloc: page=0 pfn=%#x order=0 migratetype=0 gfp_flags=GFP_KERNEL",
    "free": b"mm_page_free: page=0 pfn=%#x order=0",
    "drain": b"mm_page_pcpu_drain: page=0 pfn=%#x order=0 migratetype=0",
    "refill": b"mm_page_alloc_zone_locked: page=0 pfn=%#x order=0 migratetype=0 percpu_refill=1",
    "fork": b"sched_process_fork: comm=a pid=11 child_comm=b child_pid=%d",
    "alloc movable": b"mm_page_alloc: page=0 pfn=%#x order=0 migratetype=1 gfp_flags=GFP_USER",
    "drain movable": b"mm_page_pcpu_drain: page=0 pfn=%#x order=0 migratetype=1",
    "tick": b"workqueue_execute_start: work struct %#x: function vmstat_update",
}


def _of_unmovable_pages(lines, told):
    """(task, CPU, what, page or new task) of each line from the start of the work on; the pages are
    numbered from the start of a block of which no line tells."""
    work = next(i for i, t in enumerate(lines) if b"phase 0 work begin" in t) + 1
    blocks = {int(pfn, 16) >> 9 for pfn in map(_pfn, lines) if pfn}
    base = next(block for block in range(max(blocks), 0, -1) if block not in blocks) << 9
    time = re.search(rb" [\d.]+: ", lines[work - 1])[0]
    head, flags = b"a-%d [%03d] %s " + time, {"refill": b"d..3."}
    return lines[:work] + [
        head % (task, cpu, flags.get(what, b"....."))
        + _WORDS[what] % (n if what == "fork" else base + n)
        + b"\n"
        for task, cpu, what, n in told
    ]


#: Task 11 frees six pages: the first of them is at the head of the list.
_SIX_FREED = [
    *((11, 0, "alloc", page) for page in range(6)),
    *((11, 0, "free", page) for page in reversed(range(6))),
    (12, 0, "alloc", 0),
]  # fmt: skip
_STACK = "stack of a new task, taken without a line"


@pytest.mark.parametrize(("before", "cause"), [(0, True), (1, False)])
def test_a_stack_is_of_the_cpu_that_a_task_was_on_before_it_was_moved_while_it_forked(
    native, before, cause
):
    """Unless another line shows that it had been moved by then."""
    fork = (11, before, "alloc", 100), (11, 1, "fork", 13)
    told = [*_SIX_FREED, *fork[1 - before :], (12, 0, "alloc", 5)]
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert (found.nr_unexplained == 0) == cause, found
    assert found.causes() == ({_STACK: 4} if cause else {})


@pytest.mark.parametrize("forks", [0, 1])
@pytest.mark.parametrize("again", [0, 1])
def test_a_stack_below_a_page_that_came_later_left_before_that_came(native, again, forks):
    """Whether it is freed again or its task, or the cache of stacks, keeps it to the end."""
    told = [
        *_SIX_FREED, *[(11, 0, "fork", 13)] * forks, (12, 0, "free", 0), (12, 0, "alloc", 0),
        (12, 0, "alloc", 5), *[(13, 0, "free", 1)] * again,
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert (found.nr_unexplained == 0) == forks, found
    assert found.causes() == ({_STACK: 4} if forks else {})


#: Task 11 frees twelve pages: page 0 is at the head of the list, page 11 at its end.
_TWELVE_FREED = [
    *((11, 0, "alloc", page) for page in range(12)),
    *((11, 0, "free", page) for page in reversed(range(12))),
]


def test_states_that_have_come_to_the_same_are_one_after_a_tick(native):
    """Of eight new tasks none to all had their stacks from what is not known of the list, whichever
    it was: nine counts, and 48 values of what nobody tells of the other fields."""
    told = [(11, 0, "alloc", 0)]
    for n in range(8):
        told += [(11, 0, "fork", 13 + n), (100, 0, "tick", n)]
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert found.nr_unexplained == 0, found
    assert found.states == 9 * 48


def _vfree(*pages, task=14):
    return [(task, 0, "free", page) for page in pages]


def test_pages_of_a_stack_below_those_that_an_interrupt_freed_amid_the_fork(native):
    """vfree() gives them back in the order in which they were taken."""
    told = [
        *_TWELVE_FREED, (12, 0, "alloc", 0),
        (0, 0, "free", 0),  # before task 12 reports page 5, which it had by then
        (12, 0, "alloc", 5), (12, 0, "fork", 13), (15, 0, "alloc", 0), *_vfree(1, 2, 3, 4),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert found.nr_unexplained == 0, found
    assert found.causes() == {_STACK: 4, "reported after other pages had joined its list": 1}


@pytest.mark.parametrize("parted", [True, False])
def test_a_worker_does_not_sleep_amid_a_stack_that_it_frees(native, parted):
    """Nor is all that vfree() gives back a stack: between two of these another task has the CPU."""
    told = [
        *_TWELVE_FREED, (12, 0, "alloc movable", 601), (11, 0, "fork", 13), (11, 0, "fork", 15),
        (12, 0, "alloc", 10), *_vfree(0, 1, 2, 3, 4, 5), *[(11, 0, "alloc movable", 600)] * parted,
        *_vfree(6, 7, 8, 9, 20, 21),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert (found.nr_unexplained == 0) == parted, found
    if parted:
        assert found.causes() == {_STACK: 10}


@pytest.mark.parametrize("forks", [1, 2])
def test_a_stack_has_what_came_after_another_one_had_left(native, forks):
    """Page 20 comes to the head when pages 0 to 3 have left, and leaves with pages 4 to 6."""
    told = [
        (12, 0, "alloc", 20), *_TWELVE_FREED, (11, 0, "fork", 13), (12, 0, "free", 20),
        *[(11, 0, "fork", 15)] * (forks - 1), (12, 0, "alloc", 7), *_vfree(0, 1, 2, 3),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert (found.nr_unexplained == 0) == (forks == 2), found
    if forks == 2:
        assert found.causes() == {_STACK: 8}


def _after(lines, n, to):
    """A task gets the CPU after *n* lines that were made."""
    at = next(i for i, t in enumerate(lines) if b"phase 0 work begin" in t) + n
    return [*lines[: at + 1], _switch(lines[at], to), *lines[at + 1 :]]


def test_a_refill_of_a_hidden_task_has_brought_more_than_the_page_that_shows_it(native):
    told = [
        (11, 0, "alloc", 100), *((11, 0, "refill", page) for page in range(63)),
        *((12, 0, "alloc", page) for page in (*range(63), 200, 201)),
    ]  # fmt: skip

    def made(lines):
        lines = _after(_of_unmovable_pages(lines, told), len(told), 1)
        return _after(lines, len(told) - 2, 99999)

    found = native("native-thp-2cpu", made)
    assert found.nr_unexplained == 0, found
    assert found.causes() == {"a task of which no line tells had the CPU": 1}


def test_flags_that_nothing_can_have_set_do_not_make_a_drain(tmp_path):
    """A hidden task took pages, so that a drain comes later than foreseen; free pages are many.

    Under ZONE_BELOW_HIGH it would have come at any count, and another one with every free.
    """
    told = [
        *((11, 1, "alloc", page) for page in range(20)), (12, 1, "alloc", 20),
        *((11, 1, "free", page) for page in range(4)),
        *((11, 1, "drain", 100 + page) for page in range(63)),
        *((11, 1, "free", page) for page in range(4, 20)), (12, 1, "alloc", 19),
    ]  # fmt: skip
    shutil.copytree(
        NATIVE / "native-thp-2cpu", tmp_path / "made", ignore=shutil.ignore_patterns("trace.*")
    )
    lines = b"".join(open_text(NATIVE / "native-thp-2cpu" / "trace.txt.zst"))
    lines = _of_unmovable_pages(lines.splitlines(keepends=True), told)
    lines = _after(_after(lines, len(told), 1), 21, 99999)
    (tmp_path / "made" / "trace.txt").write_bytes(b"".join(_heading(lines)))
    zoneinfo = tmp_path / "made" / "zoneinfo.before"
    text = zoneinfo.read_text()
    assert text.count("count:    5289\n              high:     7970\n") == 1
    zoneinfo.write_text(text.replace("5289", f"{7970 + 21 - 3}"))
    found = pm.replay(tmp_path / "made")
    assert found.nr_unexplained == 0, found
    assert found.causes() == {"a task of which no line tells had the CPU": 2}


def test_a_stack_of_which_a_refill_brought_the_rest(native):
    """How many of its pages that are shows in the order in which vfree() gives them back."""
    told = [
        (11, 0, "alloc", 100), *((11, 0, "refill", page) for page in range(63)),
        (11, 0, "fork", 13), (11, 0, "fork", 15), (11, 0, "alloc", 7),
        *_vfree(90, 0, 1, 2), *_vfree(3, 4, 5, 6, task=16),
    ]  # fmt: skip

    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert found.nr_unexplained == 0, found
    assert found.causes() == {_STACK: 7}


def test_a_refill_is_for_the_stack_of_the_task_that_is_told_of_next(native):
    """Four pages of the list had been a stack before; of this one are its last page and three."""
    told = [
        (11, 0, "alloc", 100), *((11, 0, "refill", page) for page in range(63)),
        *((12, 0, "alloc", page) for page in range(58)),
        *((11, 0, "refill", page) for page in range(70, 196)), (11, 0, "fork", 15),
        (12, 0, "alloc", 73), *_vfree(58, 59, 60, 61),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert found.nr_unexplained == 0, found
    assert found.causes() == {_STACK: 8}


def test_a_refill_had_not_the_rest_of_a_stack_if_whole_ones_have_left_it(native):
    """Who took the last two pages of the list took none of the refill: its first four are one's."""
    told = [
        (11, 0, "alloc", 100), *((11, 0, "refill", page) for page in range(63)),
        *((12, 0, "alloc", page) for page in range(61)),
        *((11, 0, "refill", page) for page in range(200, 326)), (11, 0, "free", 100),
        (11, 0, "fork", 15), (11, 0, "fork", 16), (12, 0, "alloc", 100), (12, 0, "alloc", 204),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert found.nr_unexplained == 0, found
    assert found.causes() == {_STACK: 6}


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_page_that_joined_its_list_after_an_interrupt_is_drained_after_its_pages(
    native, interrupted
):
    """Its task was stopped between mm_page_free and the list, and goes on with its next line."""
    freed = [(12, 0, "free", 0), (15, 0, "free", 1), (15, 0, "free", 2), (12, 0, "free", 3)]
    if not interrupted:
        freed.insert(1, freed.pop())
    told = [
        *((11, 0, "alloc", page) for page in range(4)), *freed,
        *((16, 0, "drain", page) for page in (1, 2, 0)),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    left = [d for d in found.unexplained if d.what == "page of a drain"]
    assert (not left) == interrupted, found


def test_what_a_stack_had_before_a_refill_is_not_of_the_next_one(native):
    """The first has a page that was freed and three of which nobody knew, the next four of it."""
    told = [
        (11, 0, "alloc", 100), (11, 0, "alloc", 101), (12, 0, "free", 101), (12, 0, "alloc", 102),
        *((12, 0, "refill", page) for page in range(63)), (12, 0, "alloc", 0), (12, 0, "fork", 13),
        (13, 0, "alloc", 5), (13, 0, "fork", 15),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert found.nr_unexplained == 0, found
    assert found.causes() == {_STACK: 5}


@pytest.mark.parametrize("forks", [1, 0])
def test_a_drain_goes_past_the_pages_that_a_new_task_had_for_its_stack(native, forks):
    """It ends before them though they are on the list, and goes on with the next list."""
    told = [
        (11, 0, "alloc movable", 600), (11, 0, "free", 600),
        *((11, 0, "refill", page) for page in range(63)), (11, 0, "alloc", 0),
        *[(11, 0, "fork", 13)] * forks,
        *((16, 0, "drain", page) for page in reversed(range(5, 63))),
        (16, 0, "drain movable", 600),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    left = [d for d in found.unexplained if d.what == "page of a drain"]
    assert (not left) == bool(forks), found
    assert found.causes().get(_STACK, 0) == 4 * forks


def test_of_all_pages_that_a_drain_goes_past_the_types_are_learned_at_once(native):
    """More of them than times that a recording is followed."""
    unknown = [-512 * block for block in range(1, 2 * replay_module._GUESSES)]
    told = [
        *((11, 0, "alloc movable", page) for page in (600, 601)),
        *((11, 0, "alloc", page) for page in (1, 2)),
        *((11, 0, "free", page) for page in (*unknown, 600, 601, 1, 2)),
        *((11, 0, "drain", page) for page in (1, 2)),
        *((11, 0, "drain movable", page) for page in (600, 601)),
    ]
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    left = [d for d in found.unexplained if d.what == "page of a drain"]
    assert not left, found


@pytest.mark.parametrize("shown", [False, True])
def test_a_page_that_cannot_have_left_the_unmovable_list_was_on_another_one(native, shown):
    """Unless a line shows the type of its block: a new task takes four pages, not one."""
    told = [
        *[(11, 0, "alloc", 1)] * shown,
        *((11, 0, "alloc movable", page) for page in (1100, 1101)),
        *((11, 0, "free", page) for page in (1100, 1101)),
        *((11, 0, "alloc", page) for page in (600, 601)),
        *((11, 0, "free", page) for page in (600, 601)),
        (11, 0, "free", 0), *((11, 0, "alloc movable", page) for page in (1101, 1100)),
        (11, 0, "fork", 13), (11, 0, "alloc", 601), (11, 0, "alloc", 600),
    ]  # fmt: skip
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    left = [d for d in found.unexplained if d.what.endswith("not at the head of its list")]
    assert bool(left) == shown, found


@pytest.mark.parametrize("born", [True, False])
def test_a_task_took_no_page_before_it_was_forked(native, born):
    """Another one reports the page below; who takes the first one reports it later."""
    told = [(12, 0, "alloc", 2), (13, 0, "alloc", 1)]
    told.insert(0 if born else 1, (11, 0, "fork", 13))
    told = [*_SIX_FREED, *told]
    found = native("native-thp-2cpu", lambda lines: _of_unmovable_pages(lines, told))
    assert (found.nr_unexplained == 0) == born, found
    assert found.causes() == ({"taken before, reported later": 1} if born else {})


def test_what_a_free_list_gives_shows_its_blocks_type(native):
    """A block merges with one of another type (__free_one_page()), and no line tells of that."""

    def merged(lines):
        work = next(i for i, t in enumerate(lines) if b"phase 0 work begin" in t) + 1
        head = next(t for t in lines[work:] if b": mm_page_alloc:" in t).partition(b": mm_")[0]
        locked, softirq = (re.sub(rb"\] \S{5} ", f, head) for f in (b"] d..3. ", b"] ..s2. "))
        block = int(_unused(lines, _pfn(lines[-1]), 1)[0], 16) & ~1023
        return lines[:work] + [
            start + b": mm_page_" + what % (b"page=0 pfn=%#x order" % pfn) + b"\n"
            for start, pfn, what in (
                (head, block, b"alloc: %s=0 migratetype=0 gfp_flags=GFP_KERNEL"),
                (head, block, b"free: %s=0"),
                (head, block, b"alloc: %s=0 migratetype=0 gfp_flags=GFP_KERNEL"),
                (softirq, block, b"free: %s=0"),
                (locked, block, b"alloc_zone_locked: %s=9 migratetype=1 percpu_refill=1"),
                (locked, block + 512, b"alloc_zone_locked: %s=9 migratetype=1 percpu_refill=1"),
                (head, block, b"alloc: %s=9 migratetype=1 gfp_flags=GFP_TRANSHUGE"),
                (head, block + 1, b"free: %s=0"),  # once the huge page is split
                (head, block + 1, b"alloc: %s=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE"),
            )
        ]

    found = native("native-thp-2cpu", merged)
    assert found.nr_unexplained == 0, found
    assert found.refills == 1


#: (event, CPU, task, flags, page, order, migratetype) of each line.
_ALLOC, _FREE, _BATCHED, _REFILL, _DRAIN, _FORK, _SWITCH = (
    EVENT_IDS[name]
    for name in (
        "mm_page_alloc", "mm_page_free", "mm_page_free_batched", "mm_page_alloc_zone_locked",
        "mm_page_pcpu_drain", "sched_process_fork", "sched_switch",
    )
)  # fmt: skip
_SOFTIRQ = FLAGS["softirq"]


def _events(lines):
    rows = np.zeros(len(lines), pm.recording(TRACES / PERF[0]).trace[0].rows.dtype)
    for row, line in zip(rows, lines, strict=True):
        for name, value in zip(("event", "cpu", "pid", "flags", "a", "b", "c"), line, strict=True):
            row[name] = value
    return Events(rows, np.zeros((0, 16), np.int64))


def _elsewhere(lines, forks=()):
    """Line -> types of lists that a page freed there was not on, with the line that shows it."""
    events = _events(lines)
    freed, shown = lay_elsewhere(events, 2, 0, [1], 1000, forks, made_since(events, forks))
    return defaultdict(dict, {
        int(k): {mt: int(by) for mt, by in enumerate(some) if by}
        for k, some in zip(freed, shown, strict=True)
    })  # fmt: skip


def _line(event, page, *, task=7, flags=0, cpu=0, order=0, mt=1):
    return event, cpu, task, flags, page, order, mt


#: A page joins its list, for certain only by the next line of a task.
_BELOW = [_line(_FREE, 100), _line(_ALLOC, 400)]
_ABOVE = _line(_FREE, 200, flags=_SOFTIRQ)
#: The first may have been under way when the interrupt came.
_THEN = [_line(_ALLOC, 300), _line(_ALLOC, 100)]


@pytest.mark.parametrize("mt", [0, 1, 2])
def test_an_allocation_from_below_shows_what_was_not_on_its_list(mt):
    lines = [*_BELOW, _ABOVE, _THEN[0], _line(_ALLOC, 100, mt=mt), _line(_ALLOC, 200)]
    assert _elsewhere(lines) == {2: {mt: 4}}


def test_a_batch_prints_order_0_of_larger_blocks():
    free, batched = _line(_FREE, 100, order=2), _line(_BATCHED, 100)
    above, other = _line(_FREE, 200, order=2, flags=_SOFTIRQ), _line(_ALLOC, 300)
    lines = [free, batched, other, above, other, _line(_ALLOC, 100, order=2)]
    assert _elsewhere(lines)[3] == {1: 5}


@pytest.mark.parametrize(
    "lines",
    [
        [*_BELOW, _line(_FREE, 200, flags=_SOFTIRQ, cpu=1), *_THEN],
        [*_BELOW, _line(_FREE, 200, flags=_SOFTIRQ, order=1), *_THEN],
        [*_BELOW, _ABOVE, _THEN[0], _line(_ALLOC, 200), _THEN[1]],  # gone by then
        [*_BELOW, _ABOVE, _THEN[1]],
        [_BELOW[0], _line(_ALLOC, 400, flags=_SOFTIRQ), _ABOVE, *_THEN],
    ],
)
def test_what_shows_nothing(lines):
    assert _elsewhere(lines)[2] == {}


def test_a_new_stack_may_have_taken_an_unmovable_page():
    lines = [*_BELOW, _ABOVE, *(_line(_ALLOC, page, mt=0) for page in (300, 100))]
    assert _elsewhere(lines)[2] == {0: 4}
    assert _elsewhere([*lines, _line(_FORK, 0)], [5])[2] == {}
    # It had not begun with that when it took a movable page.
    assert _elsewhere([*lines, _line(_ALLOC, 500), _line(_FORK, 0)], [6])[2] == {0: 4, 1: 5}
    for other in (8, -1, 2**31 - 1):
        assert _elsewhere([*lines, _line(_FORK, 0, task=other)], [5])[2] == {0: 4}
    assert _elsewhere([*_BELOW, _ABOVE, *_THEN, _line(_FORK, 0)], [5])[2] == {1: 4}


def test_a_page_of_a_refill_was_there_from_its_line_on():
    lines = [
        _line(_REFILL, 100),
        _line(_FREE, 200, flags=_SOFTIRQ),
        _line(_ALLOC, 300),
        _line(_ALLOC, 100),
    ]
    assert _elsewhere(lines)[1] == {1: 3}
    assert _elsewhere([lines[1], lines[0], *lines[2:]])[0] == {}


def _drained(lines, forks=(0,)):
    """By type the line that shows that the page freed first was not on that list."""
    shown = _elsewhere(lines, forks)[0]
    return [shown.get(mt, 0) for mt in range(3)]


def test_a_drain_of_later_pages_shows_what_was_not_on_its_list():
    first, other = _line(_FREE, 200, order=1), _line(_ALLOC, 300)
    later, drain = _line(_FREE, 100, order=1), _line(_DRAIN, 100, order=1, mt=0)
    lines = [first, other, later, drain]
    assert _drained(lines) == [3, 0, 0]
    assert _drained([*lines, _line(_FREE, 200, order=1)]) == [3, 0, 0]
    assert _drained([*lines, _line(_ALLOC, 200, order=1)]) == [0, 0, 0]  # reported late
    assert _drained([first, later, drain]) == [0, 0, 0]  # under way when the other one came
    assert _drained([first, other, later, _line(_DRAIN, 200, order=1), drain]) == [0, 0, 0]
    on_another = [_line(_FREE, 200, order=1, cpu=1), _line(_ALLOC, 300, cpu=1), later, drain]
    assert _drained(on_another) == [0, 0, 0]
    single = [_line(_FREE, 200), other, _line(_FREE, 100), _line(_DRAIN, 100, mt=0)]
    assert _drained(single) == [0, 0, 0]  # a new stack takes such pages in silence
    assert _drained(single, forks=()) == [3, 0, 0]
    assert _drained([*single[:3], _line(_DRAIN, 100, mt=2)]) == [0, 0, 3]


@pytest.mark.parametrize(
    ("past", "mt"),
    [
        ([0, 0, 0], -1), ([5, 0, 0], -1), ([0, 3, 0], 0), ([5, 3, 0], 2), ([0, 3, 5], 0),
        ([5, 3, 9], 2), ([9, 3, 5], 0), ([5, 9, 3], 1),
    ],
)  # fmt: skip
def test_a_block_of_which_no_line_tells_is_of_the_type_that_holds_out_longest(past, mt):
    """In the order of movable, unmovable, reclaimable, as long as nothing speaks against it."""
    told = types_told(_events([_line(_ALLOC, 1), _line(_FREE, 600)]), 0, 0, 2)
    assert told.tolist() == [1, -1]
    assert guess_types(told, np.array([1]), np.array([past]), 11).tolist() == [1, mt]


@pytest.mark.parametrize("task", [7, 8])
def test_an_interrupt_above_another_task_shows_that_one_before_is_over(task):
    flags = {"flags": _SOFTIRQ, "mt": 0}
    first, other = _line(_FREE, 200, order=2, **flags), _line(_FREE, 300, task=task, **flags)
    later, drain = (
        _line(event, 100, order=2, task=task, **flags) for event in (_FREE, _DRAIN)
    )  # fmt: skip
    assert _drained([first, other, later, drain]) == [3 * (task == 8), 0, 0]

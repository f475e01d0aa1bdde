"""trace/ftrace: what the kernel's tools print is read exactly, or refused with its line."""

# SPDX-License-Identifier: GPL-2.0-only

import bz2
import gzip
import lzma

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpmodel.errors import InputError
from pcpmodel.trace import ftrace
from pcpmodel.trace.ftrace import EVENT_IDS, FLAGS, HIT, read_trace
from pcpmodel.trace.packed import open_text

TRACE = b"""\
# tracer: nop
#
# entries-in-buffer/entries-written: 7/7   #P:4
#
            init-1       [000] d..3.     8.651368: mm_page_alloc_zone_locked: \
page=ffffea0004079100 pfn=0x101e44 order=0 migratetype=0 percpu_refill=1
            init-1       [000] .....     8.651400: mm_page_alloc: \
page=ffffea0004079100 pfn=0x101e44 order=0 migratetype=0 gfp_flags=GFP_KERNEL|__GFP_ZERO
     kworker/0:1-17      [003] b.s2.     9.000001: mm_page_free: \
page=ffffea0004079100 pfn=0x101e44 order=0
  cryptomgr te-75        [002] dNh2.     9.000002: mm_page_alloc_extfrag: page=ffffea0004070000 \
pfn=0x101c00 alloc_order=0 fallback_order=10 pageblock_order=9 alloc_migratetype=0 \
fallback_migratetype=2 fragmenting=0 change_ownership=1
          <idle>-0       [001] d..1.     9.000003: refresh_cpu_vm_stats <-vmstat_update
            init-1       [000] ...1.     9.000004: free_pcppages_bulk: \
(free_pcppages_bulk+0x0/0x280) n=32 pindex=0 pcp=0xffff88813bc37fc0 \
zone="Normal" node=0 zfl=0x4 free=188576 count=922 \
high=6664 batch=1 hmin=0 hmax=0 af=5 fc=-1 pfl=0x2
            init-1       [000] ...1.     9.000005: tracing_mark_write: pcpmodel: phase 0 begin
"""

PACK = [gzip.compress, zstandard.compress, lzma.compress, bz2.compress]


def test_every_field_of_the_kernels_own_format():
    events, reader = read_trace(TRACE)
    r = events.rows
    assert list(r["event"]) == [
        EVENT_IDS["mm_page_alloc_zone_locked"],
        EVENT_IDS["mm_page_alloc"],
        EVENT_IDS["mm_page_free"],
        EVENT_IDS["mm_page_alloc_extfrag"],
        EVENT_IDS["refresh_cpu_vm_stats"] + HIT,
        EVENT_IDS["free_pcppages_bulk"],
        EVENT_IDS["tracing_mark_write"],
    ]
    assert list(r["time"][:3]) == [8_651_368_000, 8_651_400_000, 9_000_001_000]
    assert list(r["cpu"]) == [0, 0, 3, 2, 1, 0, 0]
    assert [reader.comms[c] for c in r["comm"][:4]] == [
        "init",
        "init",
        "kworker/0:1",
        "cryptomgr te",
    ]
    assert list(r["pid"][:4]) == [1, 1, 17, 75]
    assert list(r["line"]) == [5, 6, 7, 8, 9, 10, 11]
    assert list(r["a"][:4]) == [0x101E44, 0x101E44, 0x101E44, 0x101C00]
    assert r["d"][0] == 1
    assert r["d"][3] == 10 | 2 << 8 | 1 << 16
    assert r["a"][4] == 1  # called by the vmstat worker
    assert r["flags"][0] == FLAGS["known"] | FLAGS["irqs_off"] | 3
    assert r["flags"][2] == FLAGS["known"] | FLAGS["bh_off"] | FLAGS["softirq"] | 2
    assert r["flags"][3] & (FLAGS["hardirq"] | FLAGS["need_resched"])
    probe = dict(zip(ftrace.PROBE_COLUMNS, events.probes[r["probe"][5]], strict=True))
    assert probe == {
        "n": 32, "pindex": 0, "pcp": 0xFFFF88813BC37FC0 - (1 << 64), "zone": 2, "node": 0,
        "zone_flags": 4, "nr_free": 188576, "count": 922, "high": 6664, "batch": 1, "high_min": 0,
        "high_max": 0, "alloc_factor": 5, "free_count": -1, "flags": 2, "free_factor": -1,
    }  # fmt: skip
    assert reader.markers == ["pcpmodel: phase 0 begin"]
    assert reader.lost == 0
    assert reader.missing == 0
    assert reader.truncated is None
    assert reader.numbers["vmemmap"] == 0xFFFFEA0000000000


@pytest.mark.parametrize(
    "line",
    [
        # trace-cmd report, with and without flags
        b"            init-1     [000]     8.651400: mm_page_alloc:        page=0xffffea0004079100 "
        b"pfn=0x101e44 order=1 migratetype=2 gfp_flags=GFP_KERNEL",
        b"            init-1     [000] .....     8.651400: mm_page_alloc: page=0xffffea0004079100 "
        b"pfn=0x101e44 order=1 migratetype=2 gfp_flags=GFP_KERNEL",
        # perf script
        b"init     1 [000]     8.651400: kmem:mm_page_alloc: page=0x101e44 pfn=0x101e44 order=1 "
        b"migratetype=2 gfp_flags=GFP_KERNEL",
        b"init 1 [000] 8.651400000:        kmem:mm_page_alloc: page=0x101e44 pfn=1056324 order=1 "
        b"migratetype=2 gfp_flags=GFP_KERNEL",
        # record-tgid; no page pointer; hashed pointer
        b"            init-1       (      1) [000] .....     8.651400: mm_page_alloc: "
        b"page=(____ptrval____) pfn=0x101e44 order=1 migratetype=2 gfp_flags=0",
        b"            init-1       [000] .....     8.651400: mm_page_alloc: pfn=0x101e44 order=1 "
        b"migratetype=2 gfp_flags=",
        b"            init-1       [000] d..2     8.651400: mm_page_alloc: page=ffffea0004079100 "
        b"pfn=0x101e44 order=1 migratetype=2\r",
        # trace-cmd report where it cannot compute an address, and raw (-R)
        b"            init-1     [000] .....     8.651400: mm_page_alloc:        [FAILED TO PARSE] "
        b"pfn=0x101e44 order=1 gfp_flags=3264 migratetype=2",
        b"            init-1     [000] .....     8.651400: mm_page_alloc:         pfn=0x101e44 "
        b"order=1 gfp_flags=0xcc0 migratetype=2",
        # perf script -F +period, +pid, and a name with blanks and brackets
        b"init     1 [000]     8.651400:          1 kmem:mm_page_alloc: page=0x101e44 pfn=0x101e44 "
        b"order=1 migratetype=2 gfp_flags=GFP_KERNEL",
        b"a [x]-2  77/1   [000]     8.651400: kmem:mm_page_alloc: page=0x101e44 pfn=0x101e44 "
        b"order=1 migratetype=2 gfp_flags=GFP_KERNEL",
    ],
)
def test_the_formats_of_the_tools_agree(line):
    events, _ = read_trace(line + b"\n")
    (r,) = events.rows
    assert (r["time"], r["cpu"], r["pid"]) == (8_651_400_000, 0, 1)
    assert (r["event"], r["a"], r["b"], r["c"]) == (EVENT_IDS["mm_page_alloc"], 0x101E44, 1, 2)


@pytest.mark.parametrize(
    "form",
    [
        b"%16s-4321    [002] d..2.     7.214960: mm_page_free: pfn=0x10 order=0\n",
        b"%16s-4321    (    12) [002] d..2.     7.214960: mm_page_free: pfn=0x10 order=0\n",
        b"%16s-4321  [1002]     7.214960: mm_page_free:         page=0x10 pfn=0x10 order=0\n",
        b"%16s  4321 [002]     7.214960: kmem:mm_page_free: page=0x10 pfn=0x10 order=0\n",
    ],
)
@pytest.mark.parametrize(
    "name", [b"a [1] b", b"w-9 [0] z", b"[000] 1.5: x", b"k-ev[2] .", b"x-2 [1] d..1.", b"a-1 (2)",
             b"p 7 [001]", b"p/7 [01] ", b"<...>", b"\xff\xfe"]
)  # fmt: skip
def test_a_task_has_any_name(form, name):
    events, reader = read_trace(form % name)
    (r,) = events.rows
    assert (r["time"], r["cpu"] % 1000, r["pid"], r["a"]) == (7_214_960_000, 2, 4321, 0x10)
    assert reader.comms[r["comm"]].strip() == name.decode("utf-8", "replace").strip()


def test_a_failed_request_has_no_page():
    line = b"            init-1       [000] .....     8.651400: mm_page_alloc: page=(null) pfn=0x0"
    events, _ = read_trace(line + b" order=0 migratetype=1 gfp_flags=GFP_NOWAIT\n")
    assert events["a"][0] == -1


def test_a_page_is_charged_as_its_own_line_says():
    line = b"a-1 [000] ..... 1.000001: mm_page_alloc: page=0 pfn=0x1 order=0 migratetype=0 %s\n"
    flags = (b"gfp_flags=GFP_KERNEL", b"gfp_flags=GFP_KERNEL_ACCOUNT", b"gfp_flags=A")
    events, _ = read_trace(b"".join(line % some for some in flags))
    assert events.rows["d"].tolist() == [0, 1, 0]


def test_a_tool_may_print_the_number_of_the_flags():
    """GFP_KERNEL and GFP_KERNEL_ACCOUNT of v5.10 to v7.3; trace-cmd has another order, too."""
    line = b"a-1 [000] ..... 1.000001: mm_page_alloc: page=0 pfn=0x1 order=0 migratetype=0 %s\n"
    flags = (b"gfp_flags=0xcc0", b"gfp_flags=0x400cc0", b"gfp_flags=3264", b"gfp_flags=4197568")
    raw = line.replace(
        b"page=0 pfn=0x1 order=0 migratetype=0 %s", b"pfn=0x1 order=0 %s migratetype=0"
    )
    for form in line, raw:
        events, _ = read_trace(b"".join(form % some for some in flags))
        assert events.rows["d"].tolist() == [0, 1, 0, 1]


def test_what_ftrace_itself_writes_is_read_as_trace_cmd_prints_it():
    own = (
        b"            init-1     [000] ...1.     9.000005: print:                "
        b"tracing_mark_write: pcpmodel: phase 0 begin\n"
        b"          <idle>-0     [001] d..1.     9.000006: function:             "
        b"refresh_cpu_vm_stats <-- vmstat_update\n"
        b"          <idle>-0     [001] d..1.     9.000007: function:             do_idle <-- x\n"
        b"            init-1     [000] ...1.     9.000008: print:                my_func: hello\n"
    )
    events, reader = read_trace(own)
    assert reader.markers == ["pcpmodel: phase 0 begin"]
    hit = EVENT_IDS["refresh_cpu_vm_stats"] + HIT
    assert list(events["event"]) == [EVENT_IDS["tracing_mark_write"], hit]
    assert events["a"][1] == 1
    assert reader.numbers["events"] == 4


def test_fields_as_they_are_recorded_lack_what_is_always_so():
    """A batch is of order 0, and no page is all ones: the kernel prints neither."""
    head = b"            init-1     [000] .....     8.651400: "
    events, _ = read_trace(
        head + b"mm_page_free_batched: [FAILED TO PARSE] pfn=0x10\n"
        + head + b"mm_page_alloc: pfn=0xffffffffffffffff order=1 gfp_flags=0x1 migratetype=1\n"
    )  # fmt: skip
    assert events["a"].tolist() == [0x10, -1]
    assert events["b"].tolist() == [0, 1]
    with pytest.raises(InputError, match="missing or unreadable"):
        read_trace(head + b"mm_page_free_batched: page=ffffea0000000400 pfn=0x10\n")


def test_stacks_between_the_lines_are_passed_over():
    """As the kernel prints them, trace-cmd, and perf script of a record with -g."""
    stacks = (
        b" => __alloc_pages\n => do_anonymous_page\n", b"=> __alloc_pages (ffffffff8128a470)\n",
        b"\tffffffff8128a470 __alloc_pages+0x190 ([kernel.kallsyms])\n\t    7f12 main (/bin/a)\n\n",
    )  # fmt: skip
    for stack in stacks:
        events, _ = read_trace(GOOD + stack + GOOD)
        assert len(events) == 2


def test_the_first_page_is_found_though_a_tool_adds_numbers_and_not_structs():
    """trace-cmd takes the address of the first struct page and adds the page's number."""
    head = b"            init-1     [000] .....     8.651400: mm_page_free: "
    line = head + b"page=0x%x pfn=0x%x order=0\n"
    for first in 0xFFFFEA0000000000, 0xFFFFF4A3C0000000:
        for size in 64, 1:
            pages = (1 << 20, 0x1347A7)  # nothing follows from the first
            text = b"".join(line % (first + size * pfn, pfn) for pfn in pages)
            assert read_trace(text)[1].numbers["vmemmap"] == first


def test_a_counter_clock_is_kept_as_it_is():
    line = b"   init-1 [000] ..... 123456789: mm_page_free: page=0 pfn=0x10 order=0\n"
    events, _ = read_trace(line)
    assert events["time"][0] == 123456789


def test_lost_events_are_counted():
    lost = b"CPU:2 [LOST 41 EVENTS]\nCPU:1 [3 EVENTS DROPPED]\nCPU:0 [LOST EVENTS]\n"
    _, reader = read_trace(TRACE + lost)
    assert reader.lost == 45
    _, reader = read_trace(TRACE.replace(b"7/7", b"7/19"))
    assert reader.lost == 12
    _, reader = read_trace(TRACE.replace(b"7/7", b"9/9"))
    assert reader.missing == 2
    _, reader = read_trace(TRACE.replace(b"7/7", b"4/10") + TRACE)  # put together of two
    assert (reader.lost, reader.missing) == (6, -7)


GOOD = (
    b"            init-1       [000] d..3.     8.651368: mm_page_alloc_zone_locked: "
    b"page=ffffea0004079100 pfn=0x101e44 order=0 migratetype=0 percpu_refill=1\n"
)


def _varied(n):
    """*n* lines that compress as badly as real ones."""
    pfns = np.random.default_rng(0).integers(0, 1 << 24, n)
    return b"".join(GOOD.replace(b"101e44", b"%06x" % pfn) for pfn in pfns)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"[000]", b"[0x0]", "not a trace line"),
        (b"[000]", b"[70000]", "CPU"),
        (b"8.651368", b"8,651368", "time"),
        (b"8.651368", b"99999999999999999999.1", "time"),
        (b"order=0", b"order=11", "order"),
        (b"order=0 ", b"", "missing or unreadable"),
        (b"order=0", b"order=x", "missing or unreadable"),
        (b"migratetype=0", b"migratetype=9", "migratetype"),
        (b"pfn=0x101e44", b"pfn=0x1000000000000", "pfn"),
        (b"pfn=0x101e44", b"pfn=0x11111111111111111", "missing or unreadable|64 bits"),
        (b"init-1", b"init 1x", "not a trace line"),
        (GOOD, b"hello\n", "not a trace line"),
        (b"init", b"in\0t", "not text|not a trace line|."),
    ],
)
def test_a_malformed_line_names_file_and_line(tmp_path, old, new, why):
    path = tmp_path / "trace.txt"
    path.write_bytes(b"# c\n" + GOOD + GOOD.replace(old, new) + GOOD)
    if old == b"init" and b"\0" in new:
        events, _ = read_trace(path)  # a task may choose its name
        assert len(events) == 3
        return
    with pytest.raises(InputError, match=why) as error:
        read_trace(path)
    assert error.value.file == str(path)
    assert error.value.row == 3


@pytest.mark.parametrize(
    ("fields", "pid"),
    [
        (
            b"prev_comm=a prev_pid=1 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=75 "
            b"next_prio=120",
            75,
        ),
        (
            b"prev_comm=next_pid=3 prev_pid=1 prev_prio=120 prev_state=S ==> "
            b"next_comm=( next_pid=4 x next_pid=0 next_prio=120",
            0,
        ),
        (b"a:1 [120] R ==> b:75 [120]", 75),  # as trace-cmd and perf print it
        (b"a ==> b:9 [1]:1 [120] S ==> x:1 [2]:75 [120]", 75),
        (
            b"prev_comm=a prev_pid=1 prev_prio=120 prev_state=0 next_comm=b next_pid=75 "
            b"next_prio=120",
            75,
        ),  # raw
        (b"a:1 [120] R ==> b", 0),
        (b" ==> ", 0),
        (b"next_pid=99999999999999999999", 0),
    ],
)
def test_who_gets_the_cpu(fields, pid):
    line = b"  a-1   [000] d..2.  9.000005: sched_switch: " + fields + b"\n"
    rows = read_trace(TRACE + line)[0].rows
    assert rows["event"][-1] == EVENT_IDS["sched_switch"]
    assert rows["a"][-1] == pid


@pytest.mark.parametrize(
    "form",
    [
        b"prev_comm=a prev_pid=1 prev_prio=120 prev_state=%s ==> next_comm=R next_pid=7 x=1",
        b"R:1 [120] %s ==> R:7 [120]",
    ],
)
@pytest.mark.parametrize("state", [b"R", b"R+", b"S", b"D|W"])
def test_whether_who_loses_the_cpu_goes_on(form, state):
    line = b"  a-1   [000] d..2.  9.000005: sched_switch: " + form % state + b"\n"
    assert read_trace(line)[0].rows["b"][-1] == state.startswith(b"R")


@pytest.mark.parametrize(("state", "runs"), [(b"0", 1), (b"0x100", 1), (b"1", 0), (b"0x2", 0)])
def test_whether_who_loses_the_cpu_goes_on_as_a_number_says(state, runs):
    fields = b"prev_comm=a prev_pid=1 prev_prio=1 prev_state=%s next_comm=R next_pid=7 next_prio=1"
    line = b"  a-1   [000] d..2.  9.000005: sched_switch: " + fields % state + b"\n"
    assert read_trace(line)[0].rows["b"][-1] == runs


def test_whom_a_fork_makes():
    fields = b"comm=child_pid=3 pid=1 child_comm=( child_pid=4 x child_pid=75"
    line = b"  a-1   [000] d..2.  9.000005: sched_process_fork: " + fields + b"\n"
    assert read_trace(TRACE + line)[0].rows["a"][-1] == 75


def test_a_truncated_last_line_is_told_and_not_fatal(tmp_path):
    events, reader = read_trace(GOOD * 3 + GOOD[:70])
    assert len(events) == 3
    assert reader.truncated == GOOD[:70].decode()


@pytest.mark.parametrize("pack", PACK)
def test_a_compressed_file_that_was_cut_is_damaged(tmp_path, pack):
    path = tmp_path / "trace"
    data = pack(_varied(40_000))
    for end in (6, len(data) * 2 // 3, len(data) - 20, len(data) - 8, len(data) - 1):
        path.write_bytes(data[:end])
        with pytest.raises(InputError, match="damaged compression"):
            read_trace(path)
    path.write_bytes(data)
    assert len(read_trace(path)[0]) == 40_000


def test_zeros_may_follow_a_gzip_file(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(TRACE) + bytes(1 << 19))
    assert len(read_trace(path)[0]) == 7


@pytest.mark.parametrize("pack", [bytes, *PACK])
def test_compression_is_known_by_its_first_bytes(tmp_path, pack):
    path = tmp_path / "any.name"
    path.write_bytes(pack(TRACE))
    events, _ = read_trace(path, progress=True)
    assert len(events) == 7


@pytest.mark.parametrize("pack", PACK)
def test_a_decompression_bomb_ends_in_a_clear_error(tmp_path, pack):
    path = tmp_path / "trace.txt.gz"
    path.write_bytes(pack((b"#" * 1000 + b"\n") * 100_000))
    with pytest.raises(InputError, match="expand"):
        for _ in open_text(path):
            pass
    with pytest.raises(InputError, match="expand"):
        read_trace(path)


@pytest.mark.parametrize("pack", PACK)
def test_damaged_compression_is_bad_input(tmp_path, pack):
    path = tmp_path / "t"
    data = bytearray(pack(TRACE * 50))
    data[14:60] = b"\xff" * 46
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match="damaged compression") as error:
        read_trace(path)
    assert error.value.file == str(path)


@pytest.mark.parametrize("pack", PACK)
def test_members_of_a_compressed_file_are_read_one_after_the_other(tmp_path, pack):
    path = tmp_path / "t"
    path.write_bytes(pack(TRACE) + pack(TRACE))
    assert len(read_trace(path)[0]) == 14


def test_a_line_without_end_is_refused():
    with pytest.raises(InputError, match="line of more than"):
        read_trace(b"a" * 200_000)


def test_blocks_do_not_depend_on_how_the_text_is_cut(monkeypatch, tmp_path):
    path = tmp_path / "t"
    path.write_bytes(TRACE * 40)
    whole, _ = read_trace(TRACE * 40)

    def pieces(n):
        def cut(path):
            text = TRACE * 40
            for i in range(0, len(text), n):
                yield text[i : i + n]

        return cut

    for n in (1, 7, 119, 1000):
        monkeypatch.setattr(ftrace, "open_text", pieces(n))
        got, reader = read_trace(path)
        assert np.array_equal(got.rows, whole.rows)
        assert np.array_equal(got.probes, whole.probes)
        assert reader.truncated is None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, len(GOOD)))
def test_no_bytes_crash_the_reader(junk, where):
    text = GOOD[:where] + junk + GOOD[where:]
    try:
        events, _ = read_trace(text)
    except InputError:
        return
    assert len(events) <= text.count(b"\n")
    assert (events["b"] >= -1).all()

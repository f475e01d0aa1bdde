"""Sources of holds beside the kmem events: each read from a stand-in, and held to the others."""

# SPDX-License-Identifier: GPL-2.0-only

import lzma
import os
import re
import stat
import struct
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from helpers.latency import HEADER
from helpers.paths import ROOT
from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input.function_graph import FunctionGraph
from pcpmodel.hardware.probe import Cost
from pcpmodel.signals import Shield
from pcpmodel.study import hold_sources as module
from pcpmodel.study.hold_sources import alike, compared, counted, graphed, mapped, through
from pcpmodel.study.measure import _best
from pcpmodel.trace.hold_tracer import BETWEEN, RELEASE, SIDES, WAITS, HoldTracer
from pcpmodel.trace.raw_buffer import read_pages

LATENCY = ROOT / "tests/data/latency"
BOTH = {"alloc": "rmqueue_bulk", "free": "free_pcppages_bulk"}


def a_drain(pages, us, event="mm_page_pcpu_drain"):
    """A call as function_graph prints it with the events within."""
    text = "page=000000000123abcd pfn=0x1234 order=0 migratetype=1"
    one = f" 0)               |    /* {event}: {text} */"
    function = BOTH["free" if "drain" in event else "alloc"]
    return [f" 0)               |  {function}() {{", *[one] * pages, f" 0)   {us:.3f} us |  }}"]


def test_calls_count_the_pages_whose_events_they_have():
    lines = [*a_drain(63, 5.0), *a_drain(3, 1.25), *a_drain(63, 7.0),
             *a_drain(31, 9.0, "mm_page_alloc_zone_locked"),
             " 0)   0.300 us    |  free_pcppages_bulk();",  # it found nothing to free
             " 0)   5.000 us    |  }"]  # fmt: skip
    found = graphed([HEADER + "\n".join(lines)], BOTH)
    assert found["free"].pages.tolist() == [3, 63]
    assert found["free"].holds.tolist() == [1, 2]
    assert found["free"].mean_ns.tolist() == [1250.0, 6000.0]
    assert found["alloc"].pages.tolist() == [31]
    twice = graphed([HEADER + "\n".join(lines)] * 2, BOTH)["free"]
    assert twice.holds.tolist() == [2, 4]
    assert twice.mean_ns.tolist() == [1250.0, 6000.0]


def test_the_line_through_holds_has_page_and_empty_hold():
    rng = np.random.default_rng(1)
    pages = np.repeat([63, 126, 252, 504, 1008], 200)
    ns = (700 + 45 * pages) * rng.uniform(0.8, 1.2, len(pages))
    page, half, fixed, fixed_half = through(counted(pages, ns))
    assert abs(page - 45) < half < 5
    assert abs(fixed - 700) < fixed_half < 500
    assert all(map(np.isnan, through(counted([63, 126] * 9, [1.0] * 18))))  # no residual
    few = counted([63, 126, 252], [1.0, 2.0, 3.0])
    assert all(map(np.isnan, through(few)))  # one hold of a size tells nothing


def test_holds_that_two_sources_know_alike():
    one = counted([63] * 10 + [126] * 5 + [1] * 50, np.ones(65))
    other = counted([63] * 9 + [252], np.ones(10))
    assert alike(one, one) == 1.0
    assert alike(one, other) == pytest.approx(9 / 16)  # single pages count for nothing
    assert np.isnan(alike(counted([], []), counted([1], [1.0])))


# --------------------------------------------------------------- the emulated guest's capture


#: What tools/emulated_guest.py wrote of one CPU, all of one load; its times mean nothing.  By
#: kernel: functions that could be traced, identifiers of the events, where the order stands.
GUESTS = {
    "6.1": (BOTH, {"alloc": 541, "free": 540}, 16),
    "7.2": ({"free": BOTH["free"]}, {"alloc": 620, "free": 619}, 16),
}


def guest(name):
    return lzma.decompress((LATENCY / f"guest-{name}.xz").read_bytes())


@pytest.mark.parametrize("kernel", GUESTS)
def test_the_guest_saw_the_same_holds_by_function_graph_and_by_kmem_events(kernel):
    functions, ids, order_at = GUESTS[kernel]
    text = guest(f"{kernel}.function_graph").decode()
    found = graphed([text], functions)
    _, kinds, order, loss = read_pages(guest(f"{kernel}.kmem"), 4096, order_at)
    kind = np.zeros(len(kinds), np.int8)
    for number, side in enumerate(SIDES, 1):
        kind[kinds == ids[side]] = number
    assert not loss.any()
    reader = FunctionGraph("")
    for row, line in enumerate(text.splitlines(), 1):
        reader.line(line, row)
    for number, side in enumerate(SIDES, 1):
        if side not in functions:
            continue
        calls = np.array(reader.pages[functions[side]])
        assert found[side].pages @ found[side].holds == calls.sum()
        # Holds as the events show them begin where the kind of event changes: whole calls each.
        here = kind == number
        begins = np.flatnonzero(here & np.concatenate(([True], kind[1:] != kind[:-1])))
        pages = np.add.reduceat(here * (1 << order.astype(np.int64)), begins)
        assert len(pages) > 5
        assert pages.sum() == calls.sum() > 1000
        assert np.isin(np.cumsum(pages), np.cumsum(calls)).all()


# --------------------------------------------------------------------------- stand-ins


def files(where, **contents):
    for name, text in contents.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A tracefs of plain files; an instance has what it would find there."""
    here = tmp_path / "instance"
    lines = HEADER + "\n".join(a_drain(63, 5.0) + a_drain(7, 2.0, "mm_page_alloc_zone_locked"))
    empty = ["tracing_on", "set_ftrace_filter", "buffer_size_kb", "current_tracer", "events/enable"]
    empty += [f"events/{event}/enable" for event in SIDES.values()]
    files(here, **dict.fromkeys(empty, ""))
    files(here, **{"per_cpu/cpu0/trace": lines, "per_cpu/cpu0/stats": "overrun: 0\n"})
    files(here, available_tracers="function_graph function nop\n")
    files(tmp_path, available_tracers="function_graph function nop\n")

    @contextmanager
    def instance(tracefs, needed, number=0):
        assert (tracefs, number) == (tmp_path, 3)
        yield here

    monkeypatch.setattr(module, "instance", instance)
    return tmp_path


def test_function_graph_is_on_for_the_work_alone(stand_in):
    here, seen = stand_in / "instance", []
    with module._function_graph(stand_in, None) as trace:
        found = trace(lambda: seen.append((here / "current_tracer").read_text()), [])
    assert seen == ["function_graph"]
    assert (here / "current_tracer").read_text() == "function_graphnop"
    assert (here / "tracing_on").read_text() == "010"
    assert (here / "set_ftrace_filter").read_text() == "rmqueue_bulk\nfree_pcppages_bulk\n"
    assert found["free"] == (63, 1, 5000.0)
    assert found["alloc"] == (7, 1, 2000.0)


def test_a_full_buffer_is_no_measurement(stand_in):
    (stand_in / "instance/per_cpu/cpu0/stats").write_text("overrun: 3\n")
    with (
        module._function_graph(stand_in, None) as trace,
        pytest.raises(InputError, match="3 events were lost"),
    ):
        trace(lambda: None, [])
    assert (stand_in / "instance/current_tracer").read_text().endswith("nop")


@pytest.mark.parametrize(
    ("own", "everywhere", "match"),
    [
        ("nop\n", "blk nop\n", "no such tracer"),
        ("nop\n", "function_graph nop\n", "would disturb others"),
    ],
)
def test_a_kernel_without_function_graph_says_so(stand_in, own, everywhere, match):
    (stand_in / "instance/available_tracers").write_text(own)
    (stand_in / "available_tracers").write_text(everywhere)
    with pytest.raises(InputError, match=match), module._function_graph(stand_in, None):
        pass


def test_a_function_that_was_inlined_has_no_holds(stand_in, monkeypatch):
    monkeypatch.setattr(module, "tries", lambda path, text: "rmqueue" not in text)
    with module._function_graph(stand_in, None) as trace:
        found = trace(lambda: None, [])
    assert len(found["alloc"].pages) == 0
    assert found["free"].pages.tolist() == [63]
    monkeypatch.setattr(
        module, "tries", lambda path, text: "bulk" not in text and "pcp" not in text
    )
    with (
        pytest.raises(InputError, match="cannot be traced: inlined"),
        module._function_graph(stand_in, None),
    ):
        pass


IDS = {event: 100 + i for i, event in enumerate((*SIDES.values(), *BETWEEN, *WAITS, RELEASE))}
ZONE, OTHER = 0xFFFF888000001000, 0xFFFF888000002000


def raw(*events):
    """A page of a ring buffer: (time [ns], event, address of the lock)."""
    data, before = b"", 0
    for at, name, lock in events:
        body = struct.pack("<HBBiQQi", IDS[name], 0, 0, 7, lock, 0, 0)
        data += struct.pack("<I", (at - before) << 5 | len(body) // 4) + body
        before = at
    return (struct.pack("<QQ", 0, len(data)) + data).ljust(4096, b"\0")


@pytest.fixture
def tracer(tmp_path):
    """A `HoldTracer` on plain files, and where its CPU's buffer is."""
    pages = " field:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n"
    locks = " field:void * lock_addr;\toffset:8;\tsize:8;\tsigned:0;\n"
    for event, number in IDS.items():
        form = locks if event.startswith("lock/") else pages
        files(tmp_path / "events" / event, id=f"{number}\n", format=form, enable="")
    files(tmp_path, **{"events/header_page": " field: local_t commit;\toffset:8;\tsize:8;\n"})
    here = tmp_path / "instances" / "one"
    files(here, **dict.fromkeys(("trace", "tracing_on", "set_event_pid", "options/event-fork",
          "events/enable", *(f"events/{event}/enable" for event in IDS)), ""))  # fmt: skip
    files(here, **{"per_cpu/cpu0/trace_pipe_raw": ""})
    return here / "per_cpu/cpu0/trace_pipe_raw", lambda: HoldTracer(tmp_path, [here])


def test_a_hold_between_two_waits_goes_from_the_wait_to_the_release(tracer):
    buffer, made = tracer
    begin, end = WAITS
    drain, refill = SIDES["free"], SIDES["alloc"]
    buffer.write_bytes(raw(
        (100, begin, ZONE), (200, end, ZONE),
        (210, drain, 0), (220, drain, 0), (230, drain, 0), (250, RELEASE, ZONE),
        (300, begin, OTHER), (310, end, OTHER), (320, RELEASE, OTHER),  # another lock
        (400, begin, ZONE), (500, end, ZONE), (510, refill, 0), (530, RELEASE, ZONE),
        (600, begin, ZONE), (700, end, ZONE), (710, drain, 0),  # nobody waits for this one
        (800, RELEASE, OTHER),
        (900, begin, ZONE), (950, end, ZONE), (960, RELEASE, ZONE),  # no page: free_one_page()
    ))  # fmt: skip
    with module._contention(None, made()) as trace:
        found = trace(lambda: None, [os.getpid()])
    assert found["free"] == (3, 1, 50.0)
    assert found["alloc"] == (1, 1, 30.0)


def test_a_kernel_without_contended_release_says_so(tracer, tmp_path):
    _, made = tracer
    (tmp_path / "events" / RELEASE / "format").unlink()
    with pytest.raises(InputError, match=RELEASE), module._contention(None, made()):
        pass


@pytest.fixture
def a_bpftrace(tmp_path, monkeypatch):
    """A bpftrace that attaches, waits for its end and prints what a real one printed."""

    def make(text):
        (tmp_path / "bin").mkdir(exist_ok=True)
        tool = tmp_path / "bin" / "bpftrace"
        tool.write_text(f"#!/bin/sh\n{text}")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    return make


def test_bpftrace_prints_its_maps_at_the_end_of_the_work(a_bpftrace, monkeypatch, tmp_path):
    sample = LATENCY / "bpftrace-pages.txt"
    a_bpftrace(
        f'echo "$@" > {tmp_path}/asked\necho Attaching 4 probes...\n'
        f"trap 'tail -n +2 {sample}; exit 0' INT\nwhile :; do sleep 0.05; done\n"
    )
    # The script asks this kernel for its functions; the stand-in has them all.
    script = re.sub(
        r"(?s)if traced rmqueue_bulk;.*?\nfi\n", "alloc=$called\n", module.SCRIPTS["bpftrace"]
    )
    monkeypatch.setitem(module.SCRIPTS, "bpftrace", script)
    done = []
    with module._bpftrace(None, None) as trace:
        found = trace(lambda: done.append(1), [])
    assert done == [1]
    assert "interval:s" not in (tmp_path / "asked").read_text()
    assert found["alloc"].pages.tolist() == [63, 126, 252]
    assert found["alloc"].holds.tolist() == [70, 51, 47]
    assert found["alloc"].mean_ns[0] == pytest.approx(3007205 / 70, rel=1e-3)
    assert found["free"].pages.tolist() == [2016]
    assert mapped(sample)["free"] == found["free"]


def test_what_bpftrace_says_in_the_end_is_the_reason(a_bpftrace):
    a_bpftrace("echo 'ERROR: kernel has no BTF' >&2\nexit 1\n")
    with module._bpftrace(None, None) as trace, pytest.raises(InputError) as said:
        trace(lambda: None, [])
    assert said.value.message in (
        "ERROR: kernel has no BTF",
        # where nothing can be probed, bpftrace is not even begun
        "neither rmqueue_bulk nor __rmqueue_pcplist can be probed: use pcpmodel measure",
    )


def test_without_bpftrace_it_is_said(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    with pytest.raises(InputError, match="not installed"), module._bpftrace(None, None):
        pass


# ----------------------------------------------------------------------- which one is taken


def row(side, value, half):
    ends = "ns", value - half, value + half, "derived", "kmem events"
    return Cost(f"hold_page_{side}", "", value, *ends)


def sources(*rows):
    columns = ["source", "side", "holds", "page_ns", "half_width_95", "empty_hold_ns",
               "empty_half_width_95", "load_ns_per_page", "pages_pct", "alike_pct"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def test_the_source_that_knows_best_says_what_a_page_takes():
    sheet, unsteady = [row("alloc", 100, 40), row("free", 60, 30)], []
    seen = sources(
        ("bpftrace", "alloc", 900, 90.0, 5.0, 800.0, 50.0, 12.0, 100.0, 99.0),
        ("bpftrace", "free", 900, 110.0, 5.0, 700.0, 50.0, 12.0, 100.0, 99.0),
    )
    found = {each.operation: each for each in _best(sheet, seen, unsteady)}
    assert (found["hold_page_alloc"].value, found["hold_page_alloc"].high) == (90.0, 95.0)
    assert "100 (60 to 140): kmem events" in found["hold_page_alloc"].source
    free = found["hold_page_free"]  # 30 to 90 and 105 to 115 do not meet
    assert (free.value, free.low, free.high) == (110.0, 30.0, 115.0)
    assert unsteady == ["hold_page_free by its sources"]
    empty = found["hold_empty_bpftrace_alloc"]
    assert (empty.value, empty.low, empty.high) == (800.0, 750.0, 850.0)
    assert _best(sheet, sources(), []) == sheet


def test_sources_that_are_not_there_are_named_with_the_reason(monkeypatch, tmp_path):
    class Nothing:
        def __init__(self, ring):
            self.ring = ring

        def __enter__(self):
            assert self.ring == [(0, 1), (1, 2), (2, 0)]
            return self

        def __exit__(self, *_):
            pass

    @contextmanager
    def no_tracer(tracefs):
        yield None

    @contextmanager
    def absent(tracefs, tracer):
        raise InputError("is not here")
        yield

    monkeypatch.setattr(module, "Load", Nothing)
    monkeypatch.setattr(module, "hold_tracer", no_tracer)
    monkeypatch.setattr(module, "SOURCES", {"one": module._Source(absent, 0, True)})
    missing = []
    nothing = dict.fromkeys(SIDES, (0.0, 0.0))
    table = compared(tmp_path, [0, 1, 2], 1.0, nothing, Shield(), missing, lambda _: None)
    assert list(table) == list(sources())
    assert table.empty
    assert missing == [("one", "is not here")]


def test_a_source_is_held_to_the_load_and_to_the_kmem_events():
    """A page of 50 ns and an empty hold of 400, by a source that makes the load a tenth dearer."""
    on = [False]

    class Work:
        pids = ()

        def run(self, seconds):
            return [{"cpu_s": 2200e-9 if on[0] else 2000e-9, "pages": 1}]

    sizes = np.repeat([63, 126, 252, 504], 50)

    def trace(work, pids):
        on[0] = True
        work()
        on[0] = False
        return dict.fromkeys(SIDES, counted(sizes, 400 + 60 * sizes))

    class Tracer:
        def trace(self, work):
            work()
            pages, moved = dict.fromkeys(SIDES, sizes[:190]), dict.fromkeys(SIDES, sizes.sum())
            seen = {"lost": False, "pages": pages, "span_ns": pages, "moved": moved}
            return type("Seen", (), seen)

    source = module._Source(None, 1, True)
    rows = module._session(
        "it", source, Work(), Tracer(), trace, 0.1, dict.fromkeys(SIDES, (10.0, 1.0))
    )
    assert [r[:3] for r in rows] == [("it", "alloc", 800), ("it", "free", 800)]
    for _, _, _, page, half, empty, _, load, pages, share in rows:
        assert pages == 100.0
        assert page == pytest.approx(50.0)  # one event a page comes off
        assert half == pytest.approx(1.0)
        assert empty == pytest.approx(400.0)
        assert load == pytest.approx(200.0)
        assert share == pytest.approx(95.0)


def test_sources_of_the_kernel_that_runs_here(tracing):
    """Whatever it offers is measured, whatever it does not is named; nothing is left."""
    before = {p.name for p in (tracing / "instances").iterdir()}
    missing, shield = [], Shield()
    cpus = sorted(os.sched_getaffinity(0))[:2]
    nothing = dict.fromkeys(SIDES, (0.0, 0.0))
    table = compared(tracing, cpus, 3.0, nothing, shield, missing, lambda _: None)
    assert {*table.source, *(m.name for m in missing)} == set(module.SOURCES)
    assert {p.name for p in (tracing / "instances").iterdir()} <= before

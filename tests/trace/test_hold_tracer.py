"""Holds from the raw ring buffer: pages of it, runs of events, and the kernel that runs here."""

# SPDX-License-Identifier: GPL-2.0-only

import itertools
import os
import struct

import numpy as np
import pytest

from pcpmodel.errors import InputError
from pcpmodel.hardware.load import Load
from pcpmodel.trace.hold_tracer import SIDES, hold_tracer, other_tracers, runs
from pcpmodel.trace.raw_buffer import read_pages

ORDER_AT = 16


def event(delta, id_, order=0):
    """An event of kmem: 28 bytes of data, its length in words in the head."""
    data = struct.pack("<HBBiQII i", id_, 0, 0, 77, 0x1234, order, 1, 1)[:28]
    return struct.pack("<I", delta << 5 | len(data) // 4) + data


def page(begin, *events, flags=0, size=4096):
    data = b"".join(events)
    return (struct.pack("<QQ", begin, len(data) | flags) + data).ljust(size, b"\0")


def test_every_kind_of_entry_is_read():
    raw = page(
        1000,
        event(5, 10),
        struct.pack("<II", 7 << 5 | 30, 1),  # 7 and 1 << 27 ns pass
        event(1, 11, order=3),
        struct.pack("<II8x", 3 << 5 | 29, 12),  # something thrown away after 3 ns
        event(2, 12),
        struct.pack("<II", 1 << 5 | 31, 9),  # it is 9 << 27 and 1 ns
        struct.pack("<II", 4 << 5, 28) + event(0, 13)[4:28],  # the length in a word of its own
        struct.pack("<I", 29),  # the rest is empty
    )
    time_ns, ids, order, loss = read_pages(raw, 4096, ORDER_AT)
    at = 1005 + 7 + (1 << 27) + 1
    assert list(time_ns) == [1005, at, at + 5, (9 << 27) + 1 + 4]
    assert list(ids) == [10, 11, 12, 13]
    assert list(order) == [0, 3, 0, 0]
    assert not loss.any()


def test_losses_stand_at_the_first_event_after_them():
    raw = page(0, event(1, 1), event(1, 1)) + page(50, event(1, 1), event(1, 1), flags=1 << 31)
    assert list(read_pages(raw, 4096, ORDER_AT)[3]) == [False, False, True, False]


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"\0" * 100, "no whole pages"),
        (struct.pack("<QQ", 0, 5000).ljust(4096, b"\0"), "fuller than full"),
        (page(0, event(1, 1)[:12]), "ends within an event"),
        (page(0, struct.pack("<II", 0, 4000)), "ends within an event"),
    ],
)
def test_pages_that_no_kernel_writes_are_refused(raw, what):
    with pytest.raises(InputError, match=what):
        read_pages(raw, 4096, ORDER_AT)


def test_a_run_of_one_kind_is_a_hold():
    #                0  1  1  0  1  1  1  2  2  0  2  2  0  1  1
    kind = np.array([0, 1, 1, 0, 1, 1, 1, 2, 2, 0, 2, 2, 0, 1, 1], np.int8)
    time_ns = np.arange(15) * 10
    order = np.zeros(15, np.uint32)
    nothing = np.zeros(15, bool)
    kinds, pages, span = runs(time_ns, kind, order, nothing)
    assert list(zip(kinds, pages, span, strict=True)) == [  # the last may go on
        (1, 2, 10), (1, 3, 20), (2, 2, 10), (2, 2, 10),
    ]  # fmt: skip
    order[5] = 2
    assert list(runs(time_ns, kind, order, nothing)[1]) == [2, 2, 2]
    lost = nothing.copy()
    lost[8] = True  # within the first drain: neither half is one
    assert list(runs(time_ns, kind, np.zeros(15, np.uint32), lost)[0]) == [1, 1, 2]


def test_others_who_trace_are_named(tmp_path):
    def place(where, on, event="1"):
        (where / "events" / SIDES["free"]).mkdir(parents=True)
        (where / "events" / SIDES["free"] / "enable").write_text(f"{event}\n")
        (where / "tracing_on").write_text(f"{on}\n")

    place(tmp_path, 0)
    place(tmp_path / "instances" / "perf", 1)
    place(tmp_path / "instances" / "idle", 1, event="0")
    place(tmp_path / "instances" / f"pcpmodel_1_{os.getpid()}_2", 1)
    assert other_tracers(tmp_path) == ["perf"]
    (tmp_path / "tracing_on").write_text("1")
    assert other_tracers(tmp_path) == ["tracefs itself", "perf"]


def test_the_kernel_that_runs_here(tracing):
    """Refills and drains of a load of our own, seen by one instance and by two."""
    before = {p.name for p in (tracing / "instances").iterdir()}
    cpus = sorted(os.sched_getaffinity(0))[:2]
    with Load([tuple(cpus)]) as load, hold_tracer(tracing, 4096) as tracer:

        def traced(instances):
            """On a busy machine, with lists that are full, it takes a while until they refill."""
            for seconds in (0.5, 2.0, 8.0):
                found = tracer.trace(lambda s=seconds: load.run(s, 4096), instances)
                if all(len(found.pages[side]) for side in SIDES):
                    break
            return found

        load.run(0.3, 4096)
        once, twice = traced(1), traced(2)
    assert {p.name for p in (tracing / "instances").iterdir()} <= before
    for seen, side in itertools.product((once, twice), SIDES):
        assert seen.pages[side].sum() <= sum(seen.events.values())
        assert (seen.span_ns[side] > 0).all()
    assert once.pages["alloc"].max() >= 63

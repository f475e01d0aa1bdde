"""Speed on recordings: lines read, events replayed, work done again under other rules.

``ns_per_line`` and ``lines_per_s`` are of the reader alone; ``ns_per_event`` of a
replay, trace and dumps being read already, per event from the first dump on.  The peer
is the same text taken apart by a compiled regular expression.
"""

# SPDX-License-Identifier: GPL-2.0-only

import re
import time

import pytest

import pcpmodel as pm
from helpers.paths import TRACES
from pcpmodel.trace.ftrace import read_trace
from pcpmodel.trace.packed import open_text

pytestmark = pytest.mark.benchmark(timer=time.process_time)

LINE = re.compile(
    rb"\s*(.+)-(\d+)\s+\[(\d+)\] (\S+)\s+(\d+\.\d+): (\w+): (?:page=\S+ )?pfn=0x([0-9a-f]+)"
    rb" order=(\d+)"
)


@pytest.fixture(scope="module")
def text():
    cap = pm.recording(TRACES / "6.12-build-4cpu")
    return b"".join(open_text(cap.file("trace.txt")))


@pytest.mark.benchmark(group="read")
def test_reader(benchmark, text):
    lines = text.count(b"\n")
    benchmark.pedantic(read_trace, (text,), rounds=10, warmup_rounds=1)
    per_line = benchmark.stats.stats.median / lines
    benchmark.extra_info["ns_per_line"] = per_line * 1e9
    benchmark.extra_info["lines_per_s"] = 1 / per_line


@pytest.mark.benchmark(group="read")
def test_reader_by_regular_expression(benchmark, text):
    lines = text.splitlines()

    def run():
        return [m.groups() for m in map(LINE.match, lines) if m]

    benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    per_line = benchmark.stats.stats.median / len(lines)
    benchmark.extra_info["ns_per_line"] = per_line * 1e9
    benchmark.extra_info["lines_per_s"] = 1 / per_line


@pytest.mark.benchmark(group="replay")
@pytest.mark.parametrize("name", ["6.1-pf1-4cpu", "6.12-build-4cpu", "7.2-exitstorm-4cpu"])
def test_replay(benchmark, name):
    cap = pm.recording(TRACES / name)
    events = pm.replay(cap).events
    benchmark.pedantic(pm.replay, (cap,), rounds=5, warmup_rounds=1)
    benchmark.extra_info["ns_per_event"] = benchmark.stats.stats.median / events * 1e9


@pytest.mark.benchmark(group="replay")
def test_what_if(benchmark):
    cap = pm.recording(TRACES / "6.12-build-4cpu")
    found = pm.what_if(cap)
    benchmark.pedantic(pm.what_if, (cap, ["v6.6"]), rounds=3, warmup_rounds=1)
    operations = found.allocations + found.frees
    benchmark.extra_info["ns_per_operation"] = benchmark.stats.stats.median / operations * 1e9

"""A trace larger than memory is read piece by piece, whatever it is packed in.

At size: ``PCPMODEL_TRACE_MIB=10240 python -m pytest -s tests/trace/test_recording_streaming.py``.
"""

# SPDX-License-Identifier: GPL-2.0-only

import bz2
import gzip
import lzma
import os
import subprocess
import sys
import threading

import pytest
import zstandard

from helpers.paths import TRACES
from pcpmodel.trace.packed import open_text

TRACE = TRACES / "6.18-unixpair-4cpu" / "trace.txt.zst"
SIZE = int(os.environ.get("PCPMODEL_TRACE_MIB", "256")) << 20  #: of text [bytes]

READER = """
import sys
from pcpmodel.trace import ftrace
ftrace.IN_MEMORY = 16 << 20
def peak():  # of this program; getrusage() would tell its parent's as well
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0])
early = peak()
events, reader = ftrace.read_trace(sys.argv[1])
print(len(events), reader.numbers["lines"], early, peak())
"""


@pytest.mark.slow  # and not for sanitizers, which keep what is freed
@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, zstandard.compress,
     *(pytest.param(slowly, marks=pytest.mark.long) for slowly in (lzma.compress, bz2.compress))],
)  # fmt: skip
def test_the_memory_to_read_a_trace_hardly_grows_with_it(tmp_path, pack):
    """Through a pipe: nothing of its text is ever on disk.  Two bytes of an event are kept."""
    lines = b"".join(open_text(TRACE)).splitlines(keepends=True)
    block = b"".join(t for t in lines if not t.startswith(b"#"))
    times = SIZE // len(block) + 1
    packed = pack(block)
    pipe = tmp_path / "trace.txt"
    os.mkfifo(pipe)

    def write():
        with open(pipe, "wb") as sink:
            for _ in range(times):
                sink.write(packed)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    run = subprocess.run(
        [sys.executable, "-c", READER, str(pipe)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    writer.join()
    events, read, early_kib, peak_kib = map(int, run.stdout.split())
    print(f"{times * len(block)} bytes, {events} events: {early_kib} -> {peak_kib} KiB")
    assert events == read == times * block.count(b"\n")
    assert peak_kib - early_kib < (80 << 10) + 4 * events // 1024

"""Damaged traces and captures end in an answer or a clear error.

tools/fuzz_trace.py is the long run.
"""

# SPDX-License-Identifier: GPL-2.0-only

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import fuzz_trace


def test_damaged_lines_and_captures(tmp_path):
    capture = tmp_path / "capture"
    files = fuzz_trace.small_capture(capture)
    read, refused, wrong = fuzz_trace.fuzz_lines(5000, 7, files["trace.txt"])
    assert wrong == []
    assert min(read, refused) > 1000
    replayed, refused, wrong = fuzz_trace.fuzz_captures(150, 7, capture, files)
    assert wrong == []
    assert min(replayed, refused) > 10

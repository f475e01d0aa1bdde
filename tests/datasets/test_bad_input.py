"""Bad input to pcpmodel data add latency: refused with exit code 2, nothing changed on disk.

Each case says which words the message must have: where (file, row, column),
what was given, what is allowed.
"""

# SPDX-License-Identifier: GPL-2.0-only

import errno
import gzip
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.latency import (
    ALLOC,
    FREE,
    HEADER,
    NS,
    bpftrace,
    funclatency,
    holds,
    leaves,
    raw_options,
)
from helpers.paths import ROOT
from pcpmodel import files
from pcpmodel.cli import main

COLUMNS = (
    "batch,throughput_pages_per_s,free_latency_avg_us,free_latency_p99_us,"
    "alloc_latency_avg_us,alloc_latency_p99_us\n"
)
ROWS = [
    "63,513633.4,2.33,3.57,2.67,6.83\n",
    "127,517616.7,4.35,6.65,4.22,13.03\n",
    "255,520822.8,8.29,13.32,7.52,25.24\n",
    "511,524122.0,15.79,23.42,14.02,49.35\n",
]
GOOD = COLUMNS + "".join(ROWS)


def tree(path):
    """Every path below a directory with its type, content and time of change."""
    return {
        str(p.relative_to(path)): (
            p.lstat().st_mode,
            p.lstat().st_mtime_ns,
            p.read_bytes() if p.is_file() else None,
        )
        for p in sorted(path.rglob("*"))
    }


@pytest.fixture
def root(tmp_path):
    """A data directory with one machine in it, "there"."""
    path = tmp_path / "data"
    path.mkdir()
    (tmp_path / "good.csv").write_text(GOOD)
    assert run(path, tmp_path / "good.csv", "--machine", "there").exit_code == 0
    return path


def run(root, *arguments):
    command = ["data", "add", "latency", "--data", str(root), *map(str, arguments)]
    return CliRunner().invoke(main, command)


def refused(root, arguments, *words):
    """The command must fail with these words in its message and leave no trace."""
    before = tree(root)
    result = run(root, *arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("pcpmodel: ")
    for word in words:
        assert word in result.stderr
    assert tree(root) == before


def edit(row, old, new):
    """The good table with a cell of one row (line of the file) changed."""
    lines = GOOD.splitlines(keepends=True)
    assert old in lines[row - 1]
    lines[row - 1] = lines[row - 1].replace(old, new, 1)
    return "".join(lines)


SPR_P99 = "column 'free_latency_p99_us'"
TABLES = {
    # header
    "missing-column": (
        GOOD.replace(",throughput_pages_per_s", ""),
        "row 1, column 'throughput_pages_per_s': column is missing; expected batch,",
    ),
    "wrong-unit": (
        edit(1, "free_latency_avg_us", "free_latency_avg_ms"),
        "row 1, column 'free_latency_avg_ms': unit in the header differs: "
        "expected 'free_latency_avg_us'",
    ),
    "wrong-throughput-unit": (
        edit(1, "pages_per_s", "pages_per_ms"),
        "expected 'throughput_pages_per_s'",
    ),
    "misspelt-column": (
        edit(1, "alloc_latency_p99_us", "alloc_latncy_p99_us"),
        "unknown column; did you mean 'alloc_latency_p99_us'? Allowed: batch, throughput",
    ),
    "extra-column": (
        GOOD.replace("\n", ",x\n"),
        "row 1, column 'x': unknown column; allowed: batch,",
    ),
    "duplicate-column": (
        edit(1, "alloc_latency_avg_us", "free_latency_avg_us"),
        "column 'free_latency_avg_us': column is there twice",
    ),
    "columns-in-another-order": (
        edit(1, "batch,throughput_pages_per_s", "throughput_pages_per_s,batch"),
        "columns in another order; expected batch,throughput_pages_per_s,",
    ),
    "no-header": ("".join(ROWS), "row 1, column '63': unknown column"),
    # cells
    "negative": (
        edit(2, "3.57", "-3.57"),
        f"row 2, {SPR_P99}: given -3.57; allowed: a number with a point from 0.001 to 1000000 [us]",
    ),
    "nan": (edit(3, "6.65", "NaN"), f"row 3, {SPR_P99}: given 'NaN'; allowed: a number"),
    "inf": (edit(3, "6.65", "inf"), f"row 3, {SPR_P99}: given 'inf'; allowed: a number"),
    "minus-inf": (edit(3, "6.65", "-Infinity"), "given '-Infinity'; allowed: a number"),
    "too-large-for-a-float": (edit(3, "6.65", "1e999"), "given '1e999'; allowed: a number"),
    "text": (edit(2, "2.33", "fast"), "row 2, column 'free_latency_avg_us': given 'fast'"),
    "unit-in-the-cell": (edit(2, "2.33", "2.33us"), "given '2.33us'; allowed: a number"),
    "empty-cell": (
        edit(2, "2.33", ""),
        "row 2, column 'free_latency_avg_us': is empty; allowed: a number",
    ),
    "blanks": (edit(2, "2.33", " 2.33"), "given ' 2.33'; allowed: a number"),
    "quoted-decimal-comma": (
        edit(2, "2.33", '"2,33"'),
        "given '2,33'; allowed: a number with a point from 0.001 to 1000000 [us] "
        "(a decimal point, not a comma)",
    ),
    "thousands-separator": (edit(2, "513633.4", "513 633.4"), "given '513 633.4'; allowed"),
    "underscore": (edit(2, "513633.4", "513_633.4"), "given '513_633.4'; allowed"),
    "hexadecimal": (edit(2, "63,", "0x3f,"), "column 'batch': given '0x3f'; allowed: a whole"),
    "digits-of-another-script": (edit(2, "63,", "٦٣,"), "given '٦٣'; allowed: a whole number"),
    "very-long-numeral": (edit(2, "63,", "9" * 5000 + ","), "...'; allowed: a whole number"),
    "latency-zero": (edit(2, "2.33", "0"), "given 0; allowed: a number with a point from 0.001"),
    "latency-beyond-range": (edit(2, "3.57", "2e6"), "given 2e6; allowed: a number with a point"),
    "throughput-zero": (edit(2, "513633.4", "0"), "column 'throughput_pages_per_s': given 0"),
    # batch
    "batch-not-whole": (edit(2, "63,", "63.5,"), "column 'batch': given '63.5'; allowed: a whole"),
    "batch-as-float": (edit(2, "63,", "63.0,"), "column 'batch': given '63.0'; allowed: a whole"),
    "batch-zero": (
        edit(2, "63,", "0,"),
        "column 'batch': given 0; allowed: a whole number from 1 to 65535 [pages]",
    ),
    "batch-negative": (edit(2, "63,", "-63,"), "column 'batch': given -63; allowed: a whole"),
    "batch-beyond-range": (edit(4, "255,", "65536,"), "row 4, column 'batch': given 65536"),
    "duplicate-batch": (
        edit(3, "127", "63"),
        "row 3, column 'batch': 63 is there twice, first in row 2",
    ),
    "unsorted": (
        COLUMNS + ROWS[1] + ROWS[0] + ROWS[2] + ROWS[3],
        "row 3, column 'batch': given 63 after 127; allowed: rising from row to row",
    ),
    # table
    "p99-below-mean": (
        edit(2, "3.57", "2.32"),
        f"row 2, {SPR_P99}: given 2.32; allowed: at least free_latency_avg_us = 2.33",
    ),
    "too-few-rows": (COLUMNS + "".join(ROWS[:3]), "has 3 rows below the header; allowed: at le"),
    "header-only": (COLUMNS, "has 0 rows below the header; allowed: at least 4"),
    "empty": ("", "row 1: has no header; expected batch,throughput"),
    "empty-line-only": ("\n", "row 1: has no header; expected batch,throughput"),
    "empty-line": (COLUMNS + "\n" + "".join(ROWS), "row 2: line is empty"),
    "short-row": (edit(3, ",13.03", ""), "row 3: has 5 cells; expected 6"),
    "long-row": (edit(3, "13.03", "13.03,1"), "row 3: has 7 cells; expected 6"),
    "cut-off": (GOOD[:-12], "row 5: has 5 cells; expected 6"),
    "unquoted-decimal-comma": (
        edit(2, "2.33", "2,33"),
        "row 2: has 7 cells; expected 6; a decimal comma?",
    ),
    "semicolons": (GOOD.replace(",", ";"), "row 1: columns are separated by ';' (semicolon); all"),
    "spreadsheet-of-another-locale": (
        GOOD.replace(",", ";").replace(".", ","),
        "columns are separated by ';' (semicolon); allowed: comma",
    ),
    "tabs": (GOOD.replace(",", "\t"), "columns are separated by '\\t' (tab); allowed: comma"),
    "unbalanced-quote": (edit(3, "127", '"127'), "row 3: quotes are not balanced or not doubled"),
    "quote-inside": (edit(3, "127", '"1"27'), "row 3: quotes are not balanced or not doubled"),
    "lone-cr": (GOOD.replace("\n", "\r"), "row 1: a lone CR; lines must end with LF or CRLF"),
    "json-for-csv": (json.dumps({"batch": [63]}), "row 1, column '{\"batch\": [63]}': unknown"),
    # bytes
    "utf-16": (GOOD.encode("utf-16"), "row 1: is UTF-16; save it as UTF-8"),
    "utf-16-without-mark": (GOOD.encode("utf-16-le"), "row 1: has a NUL byte; expected UTF-8"),
    "latin-1": (
        edit(3, "4.35", "4.35µ").encode("latin-1"),
        "row 3: byte 0xb5 is not UTF-8; save it as UTF-8",
    ),
    "nul-byte": (edit(3, "4.35", "4.\x0035").encode(), "row 3: has a NUL byte"),
    "gzip": (gzip.compress(GOOD.encode(), mtime=0), "row 1: is compressed (gzip); expected"),
    "spreadsheet": (
        b"PK\x03\x04\x14\0\x08\x08\xff",
        "row 1: is compressed (zip, as spreadsheets are)",
    ),
    "huge": (b"x" * (files.MAX_BYTES + 1), "bytes; allowed: at most 16777216"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_bad_table_is_refused(case, root, tmp_path):
    given, words = TABLES[case]
    path = tmp_path / "bad.csv"
    path.write_bytes(given if isinstance(given, bytes) else given.encode())
    refused(root, [path, "--machine", "new"], str(path), words)
    refused(root, [path, "--machine", "there", "--replace"], str(path), words)


def test_a_table_with_millions_of_faults_is_refused_shortly(root, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(COLUMNS + "a,b,c,d,e,f\n" * 1_000_000)
    refused(root, [path, "--machine", "new"], "row 2, column 'batch': given 'a'", " more faults)")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../new", "/etc/new", "a/b", "a\\b", "New", "-new", "new machine", "nëw",
     "new\n", "new.d", "a" * 65, "~", "$HOME", "new;rm"],
)  # fmt: skip
def test_a_bad_machine_name_is_refused(name, root, tmp_path):
    arguments = [tmp_path / "good.csv", f"--machine={name}"]
    refused(root, arguments, f"machine name {name!r} is not allowed", "[a-z0-9][a-z0-9-]*")
    assert not (tmp_path / "new").exists()


def fifo(path):
    os.mkfifo(path)


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as s:
        os.chdir(path.parent)
        s.bind(path.name)


SPECIAL = {
    "missing": (lambda path: None, "cannot be read: No such file"),
    "directory": (lambda path: path.mkdir(), "is a directory; expected a regular file"),
    "fifo": (fifo, "is not a regular file"),
    "socket": (unix_socket, "cannot be read"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "dangling-link": (lambda path: path.symlink_to("nowhere"), "cannot be read: No such file"),
    "link-to-itself": (lambda path: path.symlink_to(path), "cannot be read: Too many levels"),
}


@pytest.mark.parametrize("case", SPECIAL)
def test_what_is_no_regular_file_is_refused_and_does_not_hang(case, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, words = SPECIAL[case]
    path = tmp_path / "in"
    make(path)
    refused(root, [path, "--machine", "new"], str(path), words)
    good = tmp_path / "good.csv"
    refused(root, [good, "--machine", "new", "--platform", path], str(path), words)
    refused(root, ["--machine", "new", "--free", f"63={path}", "--alloc", f"63={good}"], words)


def test_a_link_to_a_good_table_is_followed(root, tmp_path):
    (tmp_path / "link.csv").symlink_to("good.csv")
    assert run(root, tmp_path / "link.csv", "--machine", "new").exit_code == 0


PLATFORMS = {
    "broken": ('{"cpus": 4,', "row 1: not valid JSON: "),
    "empty": ("", "row 1: not valid JSON: Expecting value"),
    "two-documents": ("{} {}", "not valid JSON: Extra data"),
    "no-object": ("[1, 2]", "expected an object, given a list"),
    "null": ("null", "expected an object, given null"),
    "text-for-a-number": ('{"cpus": "many"}', "column 'cpus': given 'many'; allowed: a whole"),
    "number-for-a-text": ('{"kernel": 6.7}', "column 'kernel': given 6.7; allowed: a text or null"),
    "bool-for-a-number": ('{"cpus": true}', "column 'cpus': given True; allowed: a whole number"),
    "float-for-a-count": ('{"cpus": 4.0}', "column 'cpus': given 4.0; allowed: a whole number"),
    "list": ('{"cpus": [4]}', "column 'cpus': given [4]; allowed: a whole number"),
    "zero": ('{"sockets": 0}', "column 'sockets': given 0; allowed: a whole number from 1"),
    "negative": ('{"memory_gib": -1}', "column 'memory_gib': given -1; allowed: a number"),
    "beyond-range": ('{"cpus": 99999999}', "given 99999999; allowed: a whole number from 1 to"),
    "not-one-of": ('{"page_size_kib": 8}', "given 8; allowed: one of 4, 16, 64"),
    "blank-text": ('{"title": " "}', "column 'title': given ' '; allowed: a text"),
    "unknown-field": ('{"cpu": 4}', "column 'cpu': unknown field 'cpu'; did you mean 'cpus'?"),
    "duplicate-key": ('{"cpus": 4, "cpus": 8}', "key 'cpus' is there twice in one object"),
    "nan": ('{"cpu_mhz": NaN}', "NaN is not a JSON number"),
    "inf": ('{"cpu_mhz": 1e999}', "1e999 is out of range"),
    "endless-number": ('{"cpus": ' + "9" * 5000 + "}", "not valid JSON"),
    "deep": ("[" * 200_000, "not valid JSON"),
    "sources": ('{"sources": "mine"}', "column 'sources': expected a list of objects"),
    "utf-16": ('{"cpus": 4}'.encode("utf-16"), "is UTF-16; save it as UTF-8"),
    "latin-1": (b'{"title": "\xb5"}', "byte 0xb5 is not UTF-8"),
    "huge": (b" " * (files.MAX_BYTES + 1), "bytes; allowed: at most 16777216"),
}


@pytest.mark.parametrize("case", PLATFORMS)
def test_a_bad_platform_file_is_refused(case, root, tmp_path):
    given, words = PLATFORMS[case]
    path = tmp_path / "platform.json"
    path.write_bytes(given if isinstance(given, bytes) else given.encode())
    arguments = [tmp_path / "good.csv", "--machine", "new", "--platform", path]
    refused(root, arguments, str(path), words)


LEAF = f" 1)   2.456 us    |  {FREE}();\n"
MANY = HEADER + LEAF * 400
HIST = funclatency(NS)
BPF = bpftrace(NS)
RAW = {
    # function_graph
    "cut-in-the-name": (MANY + LEAF[:-10], "row 404: no call follows the duration: "),
    "cut-in-the-duration": (MANY + LEAF[:8], "row 404: not a line of function_graph: '1)   2.'"),
    "other-tracer": (MANY.replace("_graph", ""), "row 1: given tracer 'function'; allowed: func"),
    "in-ms": (MANY + LEAF.replace(" us", " ms"), "row 404: given a duration in ms; function_gr"),
    "mixed-in-ns": (MANY + LEAF.replace(" us", " ns"), "row 404: given a duration in ns; function"),
    "no-durations": (
        HEADER + f" 1)               |  {FREE}();\n",
        "row 4: not a line of function_graph",
    ),
    "nothing-but-openings": (HEADER + f" 1)   |  {FREE}() {{\n", "has no durations of calls"),
    "header-only": (HEADER, "has no durations of calls"),
    "too-few": (HEADER + LEAF * 10, "has 10 samples of", "allowed: at least 368"),
    "other-side": (
        leaves(ALLOC, holds()),
        f"which one is the free side? Found: {ALLOC}; say --free-function NAME",
    ),
    "two-candidates": (
        MANY + LEAF.replace("_locked", "") * 400,
        f"Found: free_pcppages_bulk, {FREE}; say --free-function NAME",
    ),
    "perf-script": ("stress 4802 [001] 360.7: kmem:mm_page_alloc: page=1\n", "has no durations"),
    # histograms
    "gap": (
        "\n".join(line for line in HIST.splitlines() if " 4096 ->" not in line),
        "bucket from 8192 ns leaves a gap to the one before, which ends at 4096 ns",
    ),
    "overlap": (
        HIST.replace("      8192 -> 16383", "      4096 -> 16383"),
        "bucket from 4096 ns overlaps the one before, which ends at 8192 ns",
    ),
    "backwards": (HIST.replace("-> 16383 ", "-> 100   "), "bucket ends at 101, begins at 8192"),
    "no-counts": (
        "     nsecs               : count     distribution\n"
        "         0 -> 1          : 0        |                                        |\n",
        "has no counts in its histogram",
    ),
    "no-buckets": ("     nsecs               : count     distribution\n", "has no counts"),
    "broken-bucket": (HIST.replace("8192 -> 16383 ", "8192 -> many  "), "not a line of a histo"),
    "negative-count": (HIST.replace(": 0  ", ": -1 ", 1), "not a line of a histogram"),
    "unknown-unit": (HIST.replace("nsecs  ", "ticks  ", 1), "given a histogram of 'ticks'; all"),
    "mixed-units": (HIST + HIST.replace("nsecs", "usecs"), "given usecs, and nsecs above; one"),
    "average-in-another-unit": (
        HIST.replace("avg = ", "avg = 1 usecs, total: 1 usecs, count: 1\navg = "),
        "given usecs, and nsecs above; one unit per file",
    ),
    "two-runs": (HIST + HIST, "a second histogram; one file is one batch setting"),
    "other-count": (
        HIST.replace("count: 5000", "count: 5900"),
        "count 5900; the buckets hold 5000",
    ),
    "other-average": (HIST.replace("avg = ", "avg = 1"), "total / count is "),
    "impossible-average": (
        HIST[: HIST.index("avg")] + "avg = 9, total: 45000, count: 5000\n".replace(",", " nsecs,"),
        "average of 9 ns given below; the buckets allow ",
    ),
    "bpftrace-no-unit": (
        BPF.replace("@ns", "@"),
        "does not say its unit; give --unit ns, us or ms",
    ),
    "bpftrace-gap": (
        "\n".join(line for line in BPF.splitlines() if "[16K," not in line),
        "leaves a gap to the one before",
    ),
    "bpftrace-negative": (
        "@ns:\n(..., 0)    3 |@@@|\n[0, 10)    500 |@@@|\n",
        "3 samples in (..., 0), which has no end",
    ),
    "bpftrace-unbounded": (
        "@ns:\n[0, 10)    500 |@@@|\n[10, ...)    3 |@@@|\n",
        "3 samples in [10, ...), which has no end; widen the lhist()",
    ),
    "bpftrace-words": ("@ns:\n[few, many)    500 |@@@|\n", "given bucket [few, many); allowed"),
    "bpftrace-negative-count": ("@ns:\n[1, 2)    -5 |@@@|\n", "given a count of -5; allowed: 0"),
    "bpftrace-cut": ("@ns:\n[1, 2)    500 |@@@|\n[2, 4)    50", "row 3: not a line of a histogram"),
    "bpftrace-twice": (BPF + BPF, "@ns a second time; one file is one batch setting"),
    # any
    "empty": ("", "is empty; allowed: ftrace function_graph text, funclatency"),
    "prose": ("Dear colleague,\n\nhere it is.\n", "has no durations and no histogram; allowed"),
    "table": (GOOD, "has no durations and no histogram; allowed: ftrace"),
    "one-endless-line": ("x" * 100_000, "row 1: line is longer than 65536 bytes"),
    "nul": (MANY.replace("2.456", "2.\x0056", 1), "row 4: has a NUL byte; expected UTF-8 text"),
    "utf-16": (MANY.encode("utf-16"), "row 1: is UTF-16; save it as UTF-8"),
    "latin-1": (MANY.encode() + b"\xb5\n", "row 404: byte 0xb5 is not UTF-8"),
    "gzip": (gzip.compress(MANY.encode(), mtime=0), "row 1: is compressed (gzip); expected"),
}


@pytest.mark.parametrize("case", RAW)
def test_bad_tool_output_is_refused(case, root, tmp_path):
    given, *words = RAW[case]
    path, other = tmp_path / "bad.txt", tmp_path / "alloc.txt"
    path.write_bytes(given if isinstance(given, bytes) else given.encode())
    other.write_text(leaves(ALLOC, holds()))
    arguments = ["--machine", "new", "--free", f"63={path}", "--alloc", f"63={other}"]
    refused(root, arguments, str(path), *words)


def test_a_histogram_whose_mean_passes_its_p99_is_refused(root, tmp_path):
    lines = ["@ns:", "[1K, 2K)    9950 |@@@|"]
    lines += [f"[{1 << i}K, {2 << i}K)    0 |   |" for i in range(1, 10)]
    path = tmp_path / "heavy.txt"
    path.write_text("\n".join([*lines, "[1M, 2M)    50 |@|", ""]))
    options = [
        x for b in (1, 2, 3, 4) for s in ("free", "alloc") for x in (f"--{s}", f"{b}={path}")
    ]
    words = ("column 'free_latency_p99_us'", "allowed: at least free_latency_avg_us")
    refused(root, ["--machine", "new", *options], str(path), *words)


def test_bad_options_are_refused(root, tmp_path):
    good, free, alloc = tmp_path / "good.csv", tmp_path / "free.txt", tmp_path / "alloc.txt"
    free.write_text(leaves(FREE, holds()))
    alloc.write_text(leaves(ALLOC, holds()))
    new = ["--machine", "new"]
    pair = ["--free", f"63={free}", "--alloc", f"63={alloc}"]
    one_of_the_two = "give either FILE or --free and --alloc files, one of the two"
    refused(root, new, one_of_the_two)
    refused(root, [good, *new, *pair], one_of_the_two)
    refused(root, [good, *new, "--unit", "ns"], "go with --free and --alloc only")
    refused(root, [good, *new, "--throughput", "63=5"], "go with --free and --alloc only")
    refused(root, [*new, *pair[:2]], "batch 63 has no --alloc 63=FILE")
    refused(root, [*new, *pair, "--free", f"127={free}"], "batch 127 has no --alloc 127=FILE")
    refused(root, [*new, *pair, "--free", f"63={free}"], "batch 63 is there twice")
    refused(root, [*new, *pair, "--throughput", "64=5"], "--throughput 64: no such batch; given")
    refused(root, [*new, *pair, "--free-function", "x"], f"'x' is not there; found: {FREE}")
    for bad in ("63", "=x", "63=", "-63=x", "6.3=x", "٦٣=x", "999999=x"):
        refused(root, [*new, "--free", bad], f"--free {bad!r}: allowed: BATCH=..., BATCH from 1")
    refused(root, [*new, "--free", free], "give one for either side, and none with BATCH=")
    too_few = "--free and --alloc files of 1 batches; allowed: at least 4. Measure more batch"
    refused(root, [*new, *pair], too_few)
    more = raw_options(tmp_path)
    refused(root, [*new, *more, "--throughput", "63=fast"], "--throughput 63: given 'fast'")
    refused(root, [*new, *[x.replace("63=/", "0=/") for x in more]], "given 0; allowed: a whole")


def test_click_refuses_what_it_does_not_know(root, tmp_path):
    before = tree(root)
    good = tmp_path / "good.csv"
    for arguments in (["--machin", "x"], [good], [good, "--machine", "new", "--unit", "s"],
                      [good, good, "--machine", "new"]):  # fmt: skip
        result = run(root, *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "Error: " in result.stderr
    assert tree(root) == before


# --- where it goes ----------------------------------------------------------


@pytest.mark.parametrize("given", ["", "nowhere", "good.csv"])
def test_a_bad_data_directory_is_refused(given, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    result = run(given, "good.csv", "--machine", "new")
    assert result.exit_code == 2
    assert f"{given!r}: is not a directory" in result.stderr
    assert tree(tmp_path) == before


def test_a_target_that_is_a_file_or_a_link_is_refused(root, tmp_path):
    (root / "hardware" / "file").write_text("mine")
    (root / "hardware" / "link").symlink_to("there")
    for name in ("file", "link"):
        arguments = [tmp_path / "good.csv", "--machine", name, "--replace"]
        refused(root, arguments, str(root / "hardware" / name), "is there and is not a directory")
    refused(root, [tmp_path / "good.csv", "--machine", "there"], "is there already; --replace")


def test_hardware_that_is_a_file_is_refused(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    (root / "hardware").write_text("mine")
    (tmp_path / "good.csv").write_text(GOOD)
    refused(root, [tmp_path / "good.csv", "--machine", "new"], "cannot be written: Not a directory")


STEPS = {"mkdir": Path, "open": Path, "rename": Path, "fsync": os}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_a_step_of_writing_that_fails_leaves_nothing_behind(
    step, code, root, tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    words = (str(root / "hardware" / "new"), f"cannot be written: {os.strerror(code)}")
    before = tree(root)
    monkeypatch.setattr(STEPS[step], step, fail)
    result = run(root, tmp_path / "good.csv", "--machine", "new")
    monkeypatch.undo()
    assert result.exit_code == 2
    for word in words:
        assert word in result.stderr
    assert {k: v[2] for k, v in tree(root).items()} == {k: v[2] for k, v in before.items()}


@pytest.mark.parametrize("machine", [["new"], ["there", "--replace"]])
def test_a_disk_that_fills_up_leaves_nothing_behind(machine, root, tmp_path):
    # A limit on the size of a file stands in for the full disk: the real write() fails.
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    before = {k: v[2] for k, v in tree(root).items()}
    command = [sys.executable, "-c", "from pcpmodel.cli import main; main()", "data", "add",
               "latency", tmp_path / "good.csv", "--data", root, "--machine", *machine]  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert f"{root / 'hardware' / machine[0]}: cannot be written: File too large" in done.stderr
    assert {k: v[2] for k, v in tree(root).items()} == before


def test_an_interrupt_while_writing_leaves_nothing_behind(root, tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    run(root, tmp_path / "good.csv", "--machine", "new")
    assert [path.name for path in (root / "hardware").iterdir()] == ["there"]


# --- packages edited by hand: pcpmodel data check ---------------------------

PACKAGE = "datapackage.json"


def descriptor(change):
    def apply(directory):
        path = directory / PACKAGE
        given = json.loads(path.read_text())
        change(given)
        path.write_text(json.dumps(given))

    return apply


def replace(name, content):
    return lambda directory: (directory / name).write_text(content)


def table(given):
    return given["resources"][0]


PACKAGES = {
    "no-descriptor": (lambda d: (d / PACKAGE).unlink(), PACKAGE, "cannot be read: No such file"),
    "broken-descriptor": (replace(PACKAGE, "{"), PACKAGE, "not valid JSON"),
    "list": (replace(PACKAGE, "[]"), PACKAGE, "expected an object, given a list"),
    "other-name": (descriptor(lambda g: g.update(name="x")), PACKAGE, "'x' differs from the dir"),
    "no-title": (descriptor(lambda g: g.pop("title")), PACKAGE, "expected a text, given None"),
    "no-source": (descriptor(lambda g: g.update(sources=[])), PACKAGE, "at least one source"),
    "source": (descriptor(lambda g: g.update(sources=["x"])), PACKAGE, "an object with a title"),
    "no-resources": (descriptor(lambda g: g.update(resources=7)), PACKAGE, "at least one resour"),
    "resource": (descriptor(lambda g: g["resources"].append(7)), PACKAGE, "expected an object"),
    "twice": (
        descriptor(lambda g: g["resources"].append(table(g))),
        PACKAGE,
        "expected a name of its own, given 'batch_latency'",
    ),
    "path-out": (
        descriptor(lambda g: table(g).update(path="../x.csv")),
        PACKAGE,
        "expected a file name of this directory, given '../x.csv'",
    ),
    "absolute-path": (
        descriptor(lambda g: table(g).update(path="/etc/passwd")),
        PACKAGE,
        "expected a file name of this directory, given '/etc/passwd'",
    ),
    "linked-file": (
        lambda d: ((d / "platform.json").rename(d / ".p"), (d / "platform.json").symlink_to(".p")),
        "platform.json",
        "is a symbolic link; expected a regular file",
    ),
    "missing-file": (
        lambda d: (d / "batch_latency.csv").unlink(),
        "batch_latency.csv",
        "cannot be read: No such file",
    ),
    "unnamed-file": (replace("more.csv", "x"), "more.csv", f"is not named in {PACKAGE}"),
    "weaker-schema": (
        descriptor(lambda g: table(g)["schema"]["fields"][2].pop("constraints")),
        PACKAGE,
        "differs from what every machine's batch_latency has",
    ),
    "dropped-rules": (
        descriptor(lambda g: table(g).pop("rules")),
        PACKAGE,
        "differs from what every machine's batch_latency has",
    ),
    "unknown-resource": (
        descriptor(lambda g: g["resources"].append(table(g) | {"name": "x"})),
        PACKAGE,
        "unknown resource 'x'; allowed: batch_latency, platform, batch_latency_interval",
    ),
    "no-platform": (
        descriptor(lambda g: g["resources"].pop()),
        PACKAGE,
        "resource 'platform' is missing",
    ),
}


def checked(root):
    result = CliRunner().invoke(main, ["data", "check", str(root), "--json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("case", PACKAGES)
def test_check_finds_the_fault_of_a_package(case, root):
    change, file, words = PACKAGES[case]
    assert checked(root)[0] == 0
    change(root / "hardware" / "there")
    code, answer = checked(root)
    assert (code, answer["ok"]) == (1, False)
    assert any(
        words in error["message"] and error["file"].endswith(f"there/{file}")
        for error in answer["errors"]
    ), answer


FIELD = {"name": "a", "type": "number", "unit": "us", "description": "x"}
SCHEMAS = {
    "no-fields": ({"schema": {}}, "expected an object with a list of fields"),
    "unknown-key": ({"schema": {"fields": [FIELD], "foreignKeys": []}}, "not supported; allowed"),
    "missing-values": ({"schema": {"fields": [FIELD], "missingValues": ""}}, "a list of texts"),
    "field": ({"schema": {"fields": ["a"]}}, "expected an object with a name"),
    "type": ({"schema": {"fields": [FIELD | {"type": "date"}]}}, "'date' is not one of string"),
    "no-unit": ({"schema": {"fields": [FIELD | {"unit": ""}]}}, "a numeric field states its unit"),
    "no-description": ({"schema": {"fields": [FIELD | {"description": ""}]}}, "described in words"),
    "twice": ({"schema": {"fields": [FIELD, FIELD]}}, "field 'a' is there twice"),
    "key": ({"schema": {"fields": [FIELD], "primaryKey": ["b"]}}, "expected a list of fields"),
    "constraints": ({"schema": {"fields": [FIELD | {"constraints": 1}]}}, "expected an object"),
    **{
        f"constraint-{key}": (
            {"schema": {"fields": [FIELD | {"constraints": {key: value}}]}},
            "not supported; allowed keys: required, unique, minimum",
        )
        for key, value in (("minimum", "0"), ("maximum", True), ("enum", []), ("required", 1),
                           ("pattern", "(a+)+$"), ("minLength", 1))
    },
    **{
        f"rule-{key}": (
            {"schema": {"fields": [FIELD]}, "rules": {key: value}},
            "not supported; allowed rules: min_rows, ascending, at_least",
        )
        for key, value in (("min_rows", 0), ("ascending", ["b"]), ("at_least", [["a"]]), ("max", 1))
    },
    "rules": ({"schema": {"fields": [FIELD]}, "rules": []}, "expected an object"),
    "no-schema": ({}, "expected a schema or format json, given None"),
    "key-list": ({"schema": {"fields": [FIELD], "primaryKey": [["a"]]}}, "a list of fields"),
    "name-list": ({"schema": {"fields": [FIELD | {"name": ["a"]}]}}, "an object with a name"),
    "rule-list": ({"schema": {"fields": [FIELD]}, "rules": {"at_least": [[["a"], "a"]]}},
                  "not supported; allowed rules"),
    "rule-number": ({"schema": {"fields": [FIELD | {"name": "1"}]}, "rules": {"ascending": [1]}},
                    "not supported; allowed rules"),
    "huge-number": ({"schema": {"fields": [FIELD | {"constraints": {"minimum": 10**400}}]}},
                    "out of range"),
    "many-fields": ({"schema": {"fields": [FIELD] * 100_000}}, "has 100000 fields; allowed"),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEMAS)
def test_check_refuses_a_schema_that_it_could_not_hold_a_table_to(case, tmp_path):
    directory = tmp_path / "published" / "mine"
    directory.mkdir(parents=True)
    (directory / "t.csv").write_text("a\n1\n")
    change, words = SCHEMAS[case]
    good = {"name": "t", "path": "t.csv", "schema": {"fields": [FIELD]}}

    def write(resource):
        given = {"name": "mine", "title": "x", "sources": [{"title": "x"}], "resources": [resource]}
        (directory / PACKAGE).write_text(json.dumps(given))
        return checked(tmp_path)

    assert write(good)[0] == 0
    code, answer = write({k: v for k, v in good.items() if k != "schema"} | change)
    assert code == 1
    assert any(words in error["message"] for error in answer["errors"]), answer


def test_unique_required_enum_and_missing_values_are_held_to(tmp_path):
    directory = tmp_path / "published" / "mine"
    directory.mkdir(parents=True)
    fields = [
        {"name": "s", "type": "string", "description": "x", "constraints": {"required": True}},
        {"name": "u", "type": "integer", "unit": "1", "description": "x",
         "constraints": {"unique": True}},
        {"name": "e", "type": "string", "description": "x", "constraints": {"enum": ["x", "y"]}},
    ]  # fmt: skip
    resource_ = {"name": "t", "path": "t.csv", "schema": {"fields": fields, "missingValues": ["-"]}}
    given = {"name": "mine", "title": "x", "sources": [{"title": "x"}], "resources": [resource_]}
    (directory / PACKAGE).write_text(json.dumps(given))
    (directory / "t.csv").write_text("s,u,e\nabc,1,x\n-,-,-\nxyz,1,z\n,2,y\n")
    code, answer = checked(tmp_path)
    found = {(error["row"], error["column"], error["message"]) for error in answer["errors"]}
    assert code == 1
    assert found == {
        (3, "s", "is empty; allowed: a text"),
        (4, "u", "1 is there twice, first in row 2"),
        (4, "e", "given 'z'; allowed: one of x, y"),
    }


def test_check_refuses_what_is_no_data_directory(tmp_path):
    for given, words in ((tmp_path, "holds neither hardware/ nor published/"),
                         (tmp_path / "no", "is not a directory")):  # fmt: skip
        result = CliRunner().invoke(main, ["data", "check", str(given)])
        assert result.exit_code == 2
        assert words in result.stderr


def test_check_finds_what_lies_among_the_packages_by_mistake(root):
    (root / "hardware" / "notes.txt").write_text("x")
    (root / "hardware" / "My Machine").mkdir()
    code, answer = checked(root)
    assert code == 1
    assert [Path(error["file"]).name for error in answer["errors"]] == ["My Machine", "notes.txt"]

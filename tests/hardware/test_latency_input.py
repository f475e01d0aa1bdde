"""Tool output -> mean and 99th percentile of a hold, and a package on disk."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import math
from pathlib import Path

import frictionless
import numpy as np
import pytest

from helpers.latency import (
    ALLOC,
    FREE,
    HEADER,
    NS,
    SPR,
    add,
    bpftrace,
    funclatency,
    holds,
    leaves,
    raw_options,
    write,
)
from helpers.paths import TESTS
from pcpmodel.datasets import packages, store
from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input import MIN_SAMPLES, estimates, read_raw

DATA = TESTS / "data" / "latency"


def p99(values):
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def test_leaf_lines_give_exact_mean_and_p99(tmp_path):
    values = holds()
    got = read_raw(write(tmp_path, leaves(FREE, values)), "free")
    assert got.samples == 600
    assert got.avg_us == pytest.approx(np.mean(values), rel=1e-12)
    assert got.p99_us == p99(values)
    assert got.avg_low_us < got.avg_us < got.avg_high_us
    assert got.p99_low_us <= got.p99_us <= got.p99_high_us
    assert (got.name, got.tool) == (FREE, "ftrace function_graph")


MARKS = [(1.5, " "), (12.5, "+"), (123.456, "!"), (1234.567, "#"), (12345.67, "*"),
         (123456.7, "@"), (1234567.0, "$")]  # fmt: skip


@pytest.mark.parametrize(("duration", "mark"), MARKS)
def test_every_overhead_mark_is_read(tmp_path, duration, mark):
    shown = f"{duration:.3f}"[:7].rstrip(".")
    text = HEADER + f" 1) {mark} {shown} us |  {FREE}();\n" * 400
    assert read_raw(write(tmp_path, text), "free").avg_us == pytest.approx(float(shown))


def nested(tail):
    """An opening line, a call inside, and the closing brace."""
    return (
        f" 0)               |  {ALLOC}() {{\n"
        " 0)   0.100 us    |    __rmqueue_smallest();\n"
        " 0)               |    /* mm_page_alloc_zone_locked: pfn=1 | order=0 */\n"
        " 0)   ==========> |\n"
        " 0)               |    irq_enter() {\n"
        " 0)   0.300 us    |    }\n"
        " 0)   <========== |\n"
        f" 0)   2.500 us    |  }}{tail}\n"
    )


@pytest.mark.parametrize(
    "tail", ["", f" /* {ALLOC} */", f" /* {ALLOC} = 0x3f */", f" /* {ALLOC} ret=63 */"]
)
def test_a_closing_brace_belongs_to_its_opening_line(tmp_path, tail):
    got = read_raw(write(tmp_path, HEADER + nested(tail) * 400), "alloc")
    assert (got.samples, got.avg_us, got.p99_us) == (400, pytest.approx(2.5), 2.5)


@pytest.mark.parametrize(
    "line",
    [
        f" 1)    stress-4802   |   2.456 us    |  {FREE}();",
        f"  360.774522 |   1)   2.456 us    |  {FREE}();",
        f"  360.774522 |   1)  stress-4802   |  d..1. |   2.456 us    |  {FREE}();",
        f" 1)   2.456 us    |  {FREE} [pcp_debug]();",
        f" 1)   2.456 us    |  {FREE}(zone=0xffff88, count=63); /* = 0x0 */",
        f"  stress-4802  [001]   360.77: funcgraph_entry:        2.456 us   |  {FREE}();",
        f"   2.456 us    |  {FREE}();",
    ],
    ids=["proc", "abstime", "abstime-proc-irqs", "module", "args-retval", "trace-cmd", "nocpu"],
)
def test_every_layout_of_function_graph_is_read(tmp_path, line):
    got = read_raw(write(tmp_path, (line + "\n") * 400), "free")
    assert (got.samples, got.p99_us) == (400, 2.456)


def test_a_closing_brace_without_its_opening_line_is_left_out(tmp_path):
    lone = " 0)   9.000 us    |  }\n"
    switched = (
        f" 0)               |  {FREE}() {{\n"
        " ------------------------------------------\n"
        " 0)   stress-10   =>   <idle>-0   \n"
        " ------------------------------------------\n" + lone
    )
    lost = f" 0)               |  {FREE}() {{\nCPU:0 [LOST 12 EVENTS]\n" + lone
    text = HEADER + lone + (f" 0)   2.000 us    |  {FREE}();\n" * 400) + switched + lost
    got = read_raw(write(tmp_path, text), "free")
    assert (got.samples, got.avg_us) == (400, 2.0)


def test_one_file_serves_both_sides(tmp_path):
    path = write(tmp_path, leaves(FREE, holds(2.0)) + leaves(ALLOC, holds(3.0)))
    assert read_raw(path, "free").name == FREE
    assert read_raw(path, "alloc").avg_us == pytest.approx(np.mean(holds(3.0)))


def test_crlf_and_a_byte_order_mark_do_no_harm(tmp_path):
    text = leaves(FREE, holds())
    plain = read_raw(write(tmp_path, text), "free")
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read_raw(path, "free") == plain


# --- histograms ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        (funclatency(NS), "bcc funclatency"),
        (funclatency(NS, average=False), "bcc funclatency"),
        (funclatency(NS, "usecs"), "bcc funclatency"),
        (bpftrace(NS), "bpftrace"),
        (bpftrace([v // 1000 for v in NS], "@usecs[rmqueue_bulk]"), "bpftrace"),
    ],
    ids=["bcc-ns", "bcc-no-average", "bcc-us", "bpftrace-ns", "bpftrace-us"],
)
def test_the_intervals_of_a_histogram_hold_the_truth_and_the_estimate(tmp_path, text, tool):
    got = read_raw(write(tmp_path, text), "alloc")
    mean, high = np.mean(NS) / 1000, p99(NS) / 1000
    assert (got.samples, got.tool) == (5000, tool)
    assert got.avg_low_us <= mean <= got.avg_high_us
    assert got.avg_low_us <= got.avg_us <= got.avg_high_us
    assert got.p99_low_us <= high <= got.p99_high_us
    assert got.p99_low_us <= got.p99_us <= got.p99_high_us
    # Power-of-two buckets leave at most a factor of two (and its neighbour's) open.
    assert got.p99_high_us / got.p99_low_us <= 4
    assert got.avg_us == pytest.approx(mean, rel=0.15)
    assert got.p99_us == pytest.approx(high, rel=0.5)


def test_funclatency_s_total_makes_the_mean_exact(tmp_path):
    got = read_raw(write(tmp_path, funclatency(NS)), "alloc")
    assert got.avg_us == pytest.approx(np.mean(NS) / 1000, abs=1e-6)
    loose = read_raw(write(tmp_path, funclatency(NS, average=False)), "alloc")
    assert loose.avg_high_us - loose.avg_low_us > 10 * (got.avg_high_us - got.avg_low_us)


def test_a_published_funclatency_run_is_read(tmp_path):
    # rmqueue_bulk() on an EPYC 7W83 guest, batch scale factor 5: linux-mm, msg395237.
    got = read_raw(DATA / "funclatency-rmqueue_bulk.txt", "alloc")
    assert got.samples == 1305239  # three fewer than its count: read while calls went on
    assert got.avg_us == pytest.approx(587066511229 / 1305242 / 1000, rel=1e-9)
    assert (got.p99_low_us, got.p99_high_us) == (2097.152, 4194.304)


def test_linear_buckets_and_suffixes_of_bpftrace_are_read(tmp_path):
    text = "@free_us:\n[0, 10)   500 |@@@|\n[10, 20)  480 |@@|\n[20, 30)   20 |@|\n"
    got = read_raw(write(tmp_path, text), "free")
    assert (got.p99_low_us, got.p99_high_us) == (20, 30)
    text = "@:\n[512, 1K)  500 |@@@|\n[1K, 2K)  500 |@@|\n"
    got = read_raw(write(tmp_path, text), "free", unit="ns")
    assert (got.p99_low_us, got.p99_high_us) == (1.024, 2.048)


# --- the whole way ----------------------------------------------------------


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


def test_raw_output_becomes_a_package_that_every_check_accepts(tmp_path, root, monkeypatch):
    platform = write(tmp_path, json.dumps({"title": "My server", "cpus": 64}), "p.json")
    done = add(root, "--machine", "mine", *raw_options(tmp_path), "--throughput", "63=5e5",
               "--platform", platform)  # fmt: skip
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    path = str(root / "hardware" / "mine")
    assert answer == {"machine": "mine", "path": path, "rows": 4, "kept": [], "dropped": [],
                      "left_out": []}  # fmt: skip
    assert packages.check(root) == []
    report = frictionless.validate(str(root / "hardware" / "mine" / "datapackage.json"))
    assert report.valid, report.flatten(["fieldName", "message"])
    monkeypatch.setenv("PCPMODEL_DATA", str(root))
    machine = packages.load_hardware("mine")
    assert machine.platform["cpus"] == 64
    assert machine.platform["llc_kib"] is None
    assert machine.latency["throughput_pages_per_s"].isna().tolist() == [False, True, True, True]
    assert machine.latency["free_latency_avg_us"][0] == pytest.approx(
        np.mean(holds(2.52)), abs=5e-4
    )
    interval = machine.latency_interval
    assert (interval["alloc_samples"] == 600).all()
    for what in ("avg", "p99"):
        value = machine.latency[f"free_latency_{what}_us"]
        assert (interval[f"free_latency_{what}_low_us"] <= value).all()
        assert (value <= interval[f"free_latency_{what}_high_us"]).all()
    assert len(machine.sources) == 8
    assert all(len(source["sha256"]) == 64 for source in machine.sources)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw,
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: raw.rstrip(b"\n"),
        lambda raw: raw.replace(b"513633.4", b'"513633.4"'),
    ],
    ids=["as-is", "bom", "crlf", "no-last-newline", "quoted"],
)
def test_a_csv_is_taken_in_digit_for_digit(tmp_path, root, change):
    path = tmp_path / "mine.csv"
    path.write_bytes(change(SPR.read_bytes()))
    assert add(root, path, "--machine", "mine").exit_code == 0
    assert (root / "hardware" / "mine" / "batch_latency.csv").read_bytes() == SPR.read_bytes()
    assert packages.check(root) == []


def test_throughput_may_be_missing(tmp_path, root):
    path = write(tmp_path, SPR.read_text().replace("513633.4", ""), "mine.csv")
    assert add(root, path, "--machine", "mine").exit_code == 0


def test_a_machine_is_overwritten_only_when_told(tmp_path, root):
    changed = write(tmp_path, SPR.read_text().replace("2.33", "2.44"), "mine.csv")
    assert add(root, SPR, "--machine", "mine").exit_code == 0
    refused = add(root, changed, "--machine", "mine")
    assert refused.exit_code == 2
    assert "'mine' is there already; --replace overwrites it" in refused.stderr
    target = root / "hardware" / "mine" / "batch_latency.csv"
    assert "2.33" in target.read_text()
    assert add(root, changed, "--machine", "mine", "--replace").exit_code == 0
    assert "2.44" in target.read_text()
    assert [path.name for path in (root / "hardware").iterdir()] == ["mine"]


def test_without_an_exchanging_rename_a_failed_replacement_is_undone(root, monkeypatch):
    assert add(root, SPR, "--machine", "mine").exit_code == 0
    monkeypatch.setattr(store.ctypes, "CDLL", lambda *_, **__: object())
    assert add(root, SPR, "--machine", "mine", "--replace").exit_code == 0
    rename = Path.rename

    def refuse_the_fresh_one(self, target):
        if self.name.startswith(".") and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_the_fresh_one)
    failed = add(root, SPR, "--machine", "mine", "--replace")
    assert (failed.exit_code, "Input/output error" in failed.stderr) == (2, True)
    assert [path.name for path in (root / "hardware").iterdir()] == ["mine"]
    assert packages.check(root) == []


def test_the_same_input_gives_the_same_bytes(tmp_path):
    trees = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        options = raw_options(tmp_path)
        assert add(tmp_path / name, "--machine", "mine", *options).exit_code == 0
        files = sorted((tmp_path / name).rglob("*.*"))
        trees.append({path.name: path.read_bytes() for path in files if path.is_file()})
    assert trees[0] == trees[1]


def test_min_samples_is_where_the_largest_sample_bounds_the_percentile():
    assert 0.99**MIN_SAMPLES < 0.025 < 0.99 ** (MIN_SAMPLES - 1)
    assert estimates.p99_ranks(MIN_SAMPLES)[2] <= MIN_SAMPLES


def test_too_few_samples_are_refused(tmp_path):
    path = write(tmp_path, leaves(FREE, holds(n=MIN_SAMPLES - 1)))
    with pytest.raises(InputError, match=f"has {MIN_SAMPLES - 1} samples .* at least"):
        read_raw(path, "free")

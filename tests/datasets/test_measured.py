"""A table that measured nothing is refused; every machine that there could be is not."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
import random
import shutil

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import pcpmodel as pm
from helpers.latency import add, funclatency, si
from helpers.paths import DATA, TESTS
from pcpmodel.cli import main
from pcpmodel.datasets import measured, packages
from pcpmodel.hardware.latency_input import read_raw
from pcpmodel.hardware.machines import load_machines

ICE = DATA / "hardware" / "ice-lake" / "batch_latency.csv"
BATCHES = (63, 127, 255, 511, 1023, 2047)
COLUMNS = [f"{side}_latency_{what}_us" for side in ("free", "alloc") for what in ("avg", "p99")]


def table(avg, p99, batch=BATCHES):
    """Columns of a table, the same on both sides."""
    figures = {"avg": list(avg), "p99": list(p99)}
    return {"batch": list(batch)} | {
        f"{side}_latency_{what}_us": values
        for side in ("free", "alloc")
        for what, values in figures.items()
    }


def words(found):
    return " ".join(doubt.message for doubt in found)


def test_the_stated_range_is_that_of_the_published_tables():
    per_page, smallest = [], []
    for path in sorted((DATA / "hardware").glob("*/batch_latency.csv")):
        if path.parent.name == "amd-epyc-vm":  # not of that mail
            continue
        rows = pd.read_csv(path)
        for side in ("free", "alloc"):
            per_page += list(1e3 * rows[f"{side}_latency_avg_us"] / rows["batch"])
            smallest.append(rows[f"{side}_latency_avg_us"][0])
    assert (round(min(per_page), 1), round(max(per_page), 1)) == measured.NS_PER_PAGE
    assert max(smallest) == measured.SMALLEST_HOLD_US


@pytest.mark.parametrize("name", sorted(p.name for p in (DATA / "hardware").iterdir()))
@pytest.mark.parametrize("factor", [0.2, 1, 5])
def test_published_machines_pass_and_so_do_some_five_times_as_fast_or_slow(name, factor):
    rows = pd.read_csv(DATA / "hardware" / name / "batch_latency.csv")
    rows[COLUMNS] = (factor * rows[COLUMNS]).round(2)
    assert measured.doubts(rows.to_dict("list")) == []


@pytest.mark.parametrize("name", sorted(p.name for p in (DATA / "hardware").iterdir()))
@pytest.mark.parametrize("factor", [0.2, 1, 5])
@pytest.mark.parametrize("unit", [1000, 0.001])
def test_a_table_in_another_unit_is_refused(name, factor, unit):
    rows = pd.read_csv(DATA / "hardware" / name / "batch_latency.csv")
    rows[COLUMNS] *= factor * unit
    assert "ns a page" in words(measured.doubts(rows.to_dict("list")))


def test_a_published_guest_whose_holds_wait_is_no_unit_error():
    # rmqueue_bulk() with its wait on an EPYC 7W83 guest: 450 us for 2016 pages at the most.
    got = read_raw(TESTS / "data/latency/funclatency-rmqueue_bulk.txt", "alloc")
    batch = (252, 504, 1008, 2016)
    share = [n / 2016 for n in batch]
    assert measured.doubts(
        table([got.avg_us * s for s in share], [got.p99_us * s for s in share], batch)
    ) == []  # fmt: skip


@st.composite
def machines(draw):
    """Holds of a machine: fixed cost, cost per page, tail, noise; how it was measured."""
    per_page_ns = math.exp(draw(st.floats(math.log(4), math.log(600))))  # fast x86 ... slow ARM
    fixed_us = draw(st.floats(0.05, 3.0))  # the tracer's own cost included
    bend = draw(st.floats(0.8, 1.1))
    spread = draw(st.floats(0.02, 0.8))  # of one hold, log-normal
    disturbed = draw(st.floats(0.0, 0.02))  # share that an interrupt or the host lengthens
    disturbance_us = draw(st.floats(1.0, 200.0))
    first = draw(st.sampled_from([1, 3, 15, 31, 63]))
    rows = draw(st.integers(4, 7))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    holds = {}
    for row in range(rows):
        n = (first << row) + (1 << row) - 1
        mean = fixed_us + per_page_ns / 1e3 * (n / 63) ** bend * 63
        mean *= rng.uniform(0.9, 1.1)  # another run, another clock
        values = mean * rng.lognormal(-spread * spread / 2, spread, 2000)
        hit = rng.random(2000) < disturbed
        holds[n] = values + hit * rng.exponential(disturbance_us, 2000)
    return holds


def binned(values, edge):
    """Interval of p99 and mean from power-of-two buckets that begin at ``edge`` [us]."""
    p99 = np.sort(values)[math.ceil(0.99 * len(values)) - 1]
    if p99 < edge:
        return 0.0, edge
    low = edge * 2.0 ** math.floor(math.log2(p99 / edge))
    return low, 2 * low


@given(machines(), st.sampled_from([None, 0.001, 2.0]))
def test_a_machine_that_there_could_be_is_taken_whatever_measured_it(holds, bucket_us):
    batch = sorted(holds)
    avg = [round(float(holds[n].mean()), 3) for n in batch]
    p99 = [round(float(np.quantile(holds[n], 0.99, method="higher")), 3) for n in batch]
    interval = None
    if bucket_us is not None:
        ends = [binned(holds[n], bucket_us) for n in batch]
        interval = {}
        for side in ("free", "alloc"):
            interval[f"{side}_latency_p99_low_us"] = [low for low, _ in ends]
            interval[f"{side}_latency_p99_high_us"] = [high for _, high in ends]
            interval[f"{side}_latency_avg_low_us"] = [0.95 * a for a in avg]
            interval[f"{side}_latency_avg_high_us"] = [1.05 * a for a in avg]
        p99 = [min(max(p, low), high) for p, (low, high) in zip(p99, ends, strict=True)]
        p99 = [max(p, a) for p, a in zip(p99, avg, strict=True)]
    assert measured.doubts(table(avg, p99, batch), interval) == []


NOTHING = {
    "all-equal": ([5.0] * 6, [7.0] * 6, "does not grow with the batch: 5 us for 63 pages, 5 us"),
    "falling": ([50, 30, 20, 16, 15, 14], [60] * 6, "does not grow with the batch"),
    "same-p99": (
        [2.3, 4.4, 8.3, 15.8, 30.3, 59.4],
        [131.072] * 6,
        "99th percentile is 131.072 us at every batch",
    ),
    "p99-in-ns": (
        [2.3, 4.4, 8.3, 15.8, 30.3, 59.4],
        [3570, 6650, 13320, 23420, 44190, 84500],
        "one hold in 100 takes that long, so that the mean is 35.7 us or more",
    ),
    "smallest-numbers": ([0.001] * 6, [0.001] * 6, "measured machines take 19.2 to 56 ns"),
}


@pytest.mark.parametrize("case", NOTHING)
def test_what_no_machine_has_is_refused(case):
    avg, p99, said = NOTHING[case]
    found = measured.doubts(table(avg, p99))
    assert {doubt.side for doubt in found} == {"free", "alloc"}
    assert said in words(found)


# --- through the command line -----------------------------------------------


def in_ms(values_ns):
    """What ``funclatency -m`` prints of these holds."""
    total = sum(values_ns) // 1_000_000
    n = len(values_ns)
    return (
        'Tracing 1 functions for "x"... Hit Ctrl-C to end.\n^C\n\n'
        "     msecs               : count     distribution\n"
        f"         0 -> 1          : {n:<8} |{'*' * 40}|\n\n"
        f"avg = {total // n} msecs, total: {total} msecs, count: {n}\n\nDetaching...\n"
    )


def holds_ns(batch, n=40_000, per_page_ns=26.0):
    rng = random.Random(batch)
    return [
        int((800 + per_page_ns * batch) * rng.lognormvariate(0, 0.3)) for _ in range(n)
    ]  # fmt: skip


def histogram_options(tmp_path, text, batches=BATCHES):
    options = []
    for batch in batches:
        for side in ("free", "alloc"):
            path = tmp_path / f"{side}-{batch}.txt"
            path.write_text(text(batch))
            options += [f"--{side}", f"{batch}={path}"]
    return options


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


def test_milliseconds_for_holds_of_microseconds_are_refused_with_the_command(tmp_path, root):
    result = add(
        root, "--machine", "ms", *histogram_options(tmp_path, lambda b: in_ms(holds_ns(b)))
    )
    assert result.exit_code == 2
    assert f"{tmp_path / 'free-63.txt'}: the 99th percentile is not measured" in result.stderr
    assert "anywhere from 0 to 2000 us" in result.stderr
    assert "Measure anew: funclatency -d 10 free_pcppages_bulk\n" in result.stderr
    assert not (root / "hardware").exists()
    # The same holds, by the command that the message gives; and in us.
    for unit in ("nsecs", "usecs"):
        options = histogram_options(tmp_path, lambda b: funclatency(holds_ns(b), unit))  # noqa: B023
        assert add(root, "--machine", unit, *options).exit_code == 0
    assert packages.check(root) == []


def test_a_clock_that_shows_nothing_at_all_is_refused(tmp_path, root):
    options = histogram_options(tmp_path, lambda _: in_ms([100] * 5000))
    result = add(root, "--machine", "zero", *options)
    assert result.exit_code == 2
    assert "is not measured" in result.stderr


def test_bpftrace_in_wide_buckets_names_the_bpftrace_command(tmp_path, root):
    def lhist(batch):
        return f"@us:\n[0, {si(1024)})    {batch + 4000} |@@@|\n\n"

    result = add(root, "--machine", "wide", *histogram_options(tmp_path, lhist))
    assert result.exit_code == 2
    assert "Measure anew: bpftrace -e 'kprobe:free_pcppages_bulk {" in result.stderr


@pytest.mark.parametrize("cut", ["avg", "last-bucket", "first-bucket", "middle"])
def test_a_histogram_that_was_cut_off_is_refused(cut, tmp_path, root):
    lines = funclatency(holds_ns(63)).splitlines(keepends=True)
    first, last = (
        [at for at, line in enumerate(lines) if "->" in line][end] for end in (0, -1)
    )  # fmt: skip
    end = {"avg": last + 1, "last-bucket": last, "middle": last - 1}.get(cut)
    kept = lines[:end] if end else lines[:first] + lines[first + 1 :]
    options = histogram_options(tmp_path, lambda b: funclatency(holds_ns(b)), BATCHES[:4])
    (tmp_path / "free-63.txt").write_text("".join(kept))
    result = add(root, "--machine", "cut", *options)
    assert result.exit_code == 2
    assert str(tmp_path / "free-63.txt") in result.stderr
    assert "cut off?" in result.stderr


def test_a_bucket_that_went_is_missed_by_the_count_below(tmp_path, root):
    lines = funclatency(holds_ns(63)).splitlines(keepends=True)
    last = [at for at, line in enumerate(lines) if "->" in line][-1]
    options = histogram_options(tmp_path, lambda b: funclatency(holds_ns(b)), BATCHES[:4])
    (tmp_path / "free-63.txt").write_text("".join(lines[: last - 1] + lines[last + 1 :]))
    assert "count 40000; the buckets hold" in add(root, "--machine", "cut", *options).stderr


def test_every_function_of_one_bcc_file_is_found_by_its_name(tmp_path):
    free, alloc = holds_ns(63, 500), holds_ns(127, 500)
    head, _, _ = funclatency(free).partition("     nsecs")
    parts = [
        f"Function = b'{name}'\n" + funclatency(values, average=False)[len(head) :].split("\n\n")[0]
        for name, values in (("free_pcppages_bulk", free), ("rmqueue_bulk", alloc))
    ]
    total = sum(free) + sum(alloc)
    text = (
        "\n\n".join(parts) + f"\n\navg = {total // 1000} nsecs, total: {total} nsecs, count: 1000\n"
    )
    path = tmp_path / "both.txt"
    path.write_text(text)
    assert read_raw(path, "free").name == "free_pcppages_bulk"
    assert read_raw(path, "alloc", name="rmqueue_bulk").samples == 500
    path.write_text(
        text.replace("count: 1000", "count: 1500").replace(
            f"avg = {total // 1000}", f"avg = {total // 1500}"
        )
    )
    with pytest.raises(pm.InputError, match="count 1500; the buckets hold 1000"):
        read_raw(path, "free")


def test_two_batches_are_said_of_the_options_not_of_a_file_that_nobody_made(tmp_path, root):
    options = histogram_options(tmp_path, lambda b: funclatency(holds_ns(b)), BATCHES[:2])
    said = add(root, "--machine", "two", *options).stderr
    assert said == (
        "pcpmodel: --free and --alloc files of 2 batches; allowed: at least 4. "
        "Measure more batch settings\n"
    )


@pytest.fixture
def spoilt(tmp_path, monkeypatch):
    """The shipped machines and one whose table is in ns."""
    shutil.copytree(DATA / "hardware", tmp_path / "data" / "hardware")
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path / "data"))
    assert add(tmp_path / "data", ICE, "--machine", "wrong").exit_code == 0
    path = tmp_path / "data/hardware/wrong/batch_latency.csv"
    rows = pd.read_csv(path)
    rows[COLUMNS] *= 1000
    rows.to_csv(path, index=False)
    return tmp_path / "data"


def test_add_check_and_loader_refuse_a_table_in_ns(spoilt):
    path = spoilt / "hardware/wrong/batch_latency.csv"
    refused = add(spoilt, path, "--machine", "again")
    assert refused.exit_code == 2
    for said in (f"{path}, row 2, column 'free_latency_avg_us'", "35,079.4 ns a page",
                 "If they are nanoseconds, divide by 1000", "Measure anew: funclatency",
                 "(and 1 more fault)"):  # fmt: skip
        assert said in refused.stderr
    (fault, _) = packages.check(spoilt)
    assert (fault.file, fault.row) == (str(path), 2)
    with pytest.raises(pm.InputError, match="ns a page"):
        pm.machine("wrong")
    result = CliRunner().invoke(main, ["limit", "wrong", "--p99-us", "100"])
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_bad_machine_is_left_out_of_all_and_said(spoilt, caplog):
    found = [machine.name for machine in load_machines()]
    assert found == ["cascade-lake", "coffee-lake", "comet-lake", "ice-lake", "sapphire-rapids"]
    assert "machine wrong is left out: given a mean of 2210 us for 63 pages" in caplog.text
    for name in [*found, "amd-epyc-vm"]:
        shutil.rmtree(spoilt / "hardware" / name)
    with pytest.raises(pm.InputError, match="ns a page"):
        load_machines()

"""Waits for the zone lock, maps keyed by pages, funclatency of libbpf-tools: what each says.

contention-ftrace.txt, contention-perf.txt, lock-contention.txt and bpftrace-pages.txt were printed
by ftrace, perf 6.1 and bpftrace 0.17 on a machine of two CPUs under v6.18, cut to a few events;
tasks are renamed.  Its zone lock was waited for in ftrace's only.  lock-contention.csv (perf 7.2)
and funclatency-libbpf-free.txt (libbpf-tools 0.37) are of tools/emulated_guest.py's guest: their
times are an emulator's.  `CSV` is made up in the form of the former, ``libbpf()`` in that of the
latter.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
import re
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner

from helpers.latency import FREE, SPR, add, bpftrace, funclatency, holds, write
from helpers.paths import TESTS
from pcpmodel.cli import main
from pcpmodel.datasets import measured, packages
from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input import (
    MIN_SAMPLES,
    SCRIPTS,
    read_by_pages,
    read_raw,
    read_waits,
)

DATA = TESTS / "data" / "latency"
FTRACE, PERF = DATA / "contention-ftrace.txt", DATA / "contention-perf.txt"
TABLE, PAGES = DATA / "lock-contention.txt", DATA / "bpftrace-pages.txt"
CSV = """\
# output: contended, total wait, max wait, avg wait, type, caller
19, 194232, 21415, 10222, spinlock, free_pcppages_bulk+0x1f0
4, 80000, 40000, 20000, spinlock, __rmqueue_pcplist+0x40e
2, 20000, 10000, 10000, spinlock, free_pcppages_bulk.isra.0+0x1
15, 162748, 23843, 10849, rwsem:R, do_user_addr_fault+0x40e
# debug: total=40, bad=0, bad_task=0, bad_stack=0, bad_time=0, bad_data=0
"""


# Events -----------------------------------------------------------------------------------------


def test_the_stack_tells_the_zone_lock_and_the_side():
    waits, tool, others = read_waits(FTRACE)
    assert tool == "lock contention events"
    assert {(w.side, w.caller): w.waits for w in waits} == {
        ("alloc", "__rmqueue_pcplist"): 3,
        ("free", "free_pcppages_bulk"): 1,
    }
    refill = waits[0]
    assert (refill.total_us, refill.max_us, refill.p99_us) == (pytest.approx(424), 164, None)
    assert others == 2  # waits for runqueues and RCU, some in tasks that were inside the allocator


def test_perf_script_has_nanoseconds_and_an_address_can_be_given():
    address = PERF.read_text().split("contention_begin: ")[1].split()[0]
    with pytest.raises(InputError, match="3 waits, and none of them in a function that takes"):
        read_waits(PERF)
    (wait,), _, _ = read_waits(PERF, [address])
    assert (wait.side, wait.caller, wait.waits) == ("unknown", "folio_lruvec_lock_irqsave", 3)
    assert wait.total_us != round(wait.total_us)


def event(what, at="1.000001", task="kworker/u8:0-ev-12", cpu="001"):
    return f" {task} [{cpu}] d..2. {at}: {what}\n"


def pair(caller, us, lock="00000000f0f0f0f0", at=10, task="cc1 plus-17"):
    begin = event(f"contention_begin: {lock} (flags=SPIN)", f"{at}.000000", task)
    stack = event("<stack trace>", f"{at}.000001", task)
    stack += f" => native_queued_spin_lock_slowpath\n => _raw_spin_lock_irqsave\n => {caller}\n"
    return begin + stack + event(f"contention_end: {lock} (ret=0)", f"{at}.{us:06}", task)


def test_the_percentile_needs_samples_and_is_of_all_of_them(tmp_path):
    text = "".join(pair("rmqueue_bulk", 1 + i % 100, at=i) for i in range(1000))
    (wait,), _, _ = read_waits(write(tmp_path, text))
    assert (wait.waits, wait.p99_us, wait.max_us) == (1000, 99, 100)


def test_an_interrupted_allocation_waits_for_another_lock(tmp_path):
    text = pair("try_to_wake_up\n => asm_sysvec_apic_timer_interrupt\n => rmqueue_bulk", 9)
    with pytest.raises(InputError, match="1 waits, and none of them"):
        read_waits(write(tmp_path, text))


def test_a_wait_does_not_last_over_lost_events(tmp_path):
    lines = pair("rmqueue_bulk", 9).splitlines(keepends=True)
    text = pair("rmqueue_bulk", 7, at=5) + "".join(
        [*lines[:-1], "CPU:1 [LOST 12 EVENTS]\n", lines[-1]]
    )
    assert [w.waits for w in read_waits(write(tmp_path, text))[0]] == [1]


NO_STACK = "".join(line for line in pair("x", 5).splitlines(True) if "d..2." in line)
NO_STACK = NO_STACK.replace(event("<stack trace>", "10.000001", "cc1 plus-17"), "")
DAMAGED = {
    "no-stack": (NO_STACK, "1 of them without a stack: which lock it was cannot be told"),
    "cut-line": (pair("rmqueue_bulk", 9)[:-9], "row 6: not a line of ftrace or perf script"),
    "flags": (pair("rmqueue_bulk", 9).replace("(flags=SPIN)", ""), "row 1: not a line of ftrace"),
    "garbage": (pair("rmqueue_bulk", 9) + "%$!\n", "row 7: not a line of ftrace"),
    "backward": (
        pair("rmqueue_bulk", 9).replace("10.000009", "9.000009"),
        "row 6: a wait ends before it began",
    ),
    "clock": (pair("rmqueue_bulk", 0), "shorter than the clock's step of 1000 ns"),
    "seconds": (pair("rmqueue_bulk", 9).replace("10.000009", "900.0000"
                "09"), "given a mean wait of 8.9e+08 us; allowed are 0.01 to 100000 us"),
    "threads": (
        "".join(pair("rmqueue_bulk", 9).splitlines(True)[:-1]) + pair("rmqueue_bulk", 9),
        "row 11: 1 of 2 waits began while the same task waited for the same lock: threads",
    ),
    "prose": ("Dear all,\n", "has no lock contention events and no table of them"),
    "empty": ("", "is empty"),
    "long": (pair("rmqueue_bulk", 9) + "x" * 5000, "row 7: line is longer than 4096 bytes"),
    # perf lock contention
    "csv-cut": (CSV.replace("4, 80000, 40000", "4, 80000"), "row 3: '4, 80000, 20000"),
    "csv-number": (CSV.replace("80000,", "8e4,"), "row 3"),
    "csv-sum": (CSV.replace("80000,", "8000,"), "row 3: 4 waits of at most 40 us do not sum up"),
    "csv-twice": (CSV + CSV, "row 7: a second header"),
    "csv-empty": (CSV.splitlines(True)[0], "has a header and no row"),
    "csv-tasks": (CSV.replace("type, caller", "pid, comm"), "row 1: column 'pid' is not one of"),
    "table-unit": (TABLE.read_text().replace(" us ", " parsec ", 1), "not a line of perf lock"),
    "table-other-locks": (TABLE.read_text(), "none of them in a function that takes the zone lock"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_waits_are_refused(tmp_path, name):
    text, message = DAMAGED[name]
    with pytest.raises(InputError) as caught:
        read_waits(write(tmp_path, text))
    assert message in str(caught.value)


# Sums -------------------------------------------------------------------------------------------


def test_the_csv_of_perf_lock_contention_is_in_nanoseconds(tmp_path):
    waits, tool, others = read_waits(write(tmp_path, CSV))
    assert tool == "perf lock contention"
    assert others == 15
    assert [(w.side, w.caller, w.waits, w.total_us, w.max_us) for w in waits] == [
        ("alloc", "__rmqueue_pcplist", 4, 80.0, 40.0),
        ("free", "free_pcppages_bulk", 21, pytest.approx(214.232), 21.415),
    ]


def test_what_perf_printed_as_csv_is_read_and_its_damage_has_a_line(tmp_path):
    waits, _, others = read_waits(DATA / "lock-contention.csv")
    assert {(w.side, w.caller): w.waits for w in waits} == {
        ("alloc", "get_page_from_freelist"): 82,
        ("free", "free_unref_folios"): 1,
    }
    assert (waits[0].total_us, others) == (pytest.approx(379005.89), 1434)
    text = (DATA / "lock-contention.csv").read_text()
    for damage in (lambda line: line[: len(line) // 4], lambda line: line.replace(", ", ", 9", 1)):
        lines = text.splitlines()
        lines[4] = damage(lines[4])
        with pytest.raises(InputError, match="row 5: "):
            read_waits(write(tmp_path, "\n".join(lines) + "\n"))


def test_the_table_of_perf_lock_contention_carries_units(tmp_path):
    row = "         4     80.00 us     40.00 us     20.00 us     spinlock   rmqueue_bulk+0xcd\n"
    (wait,), _, others = read_waits(write(tmp_path, TABLE.read_text() + row))
    assert (wait.side, wait.caller, wait.waits, wait.total_us) == ("alloc", "rmqueue_bulk", 4, 80)
    assert others > 0


def test_locks_are_told_by_address(tmp_path):
    text = (
        "# output: contended, total wait, max wait, avg wait, address, symbol, type\n"
        "4, 80000, 40000, 20000, ffff88810850f298, , spinlock\n"
    )
    (wait,), _, _ = read_waits(write(tmp_path, text), ["0xFFFF88810850F298"])
    assert (wait.side, wait.caller) == ("unknown", "0xffff88810850f298")
    with pytest.raises(InputError, match="--zone-lock 'zone'"):
        read_waits(write(tmp_path, text), ["zone"])


# A machine --------------------------------------------------------------------------------------


def test_waits_stand_beside_the_table_and_change_nothing_in_it(tmp_path, monkeypatch):
    root = tmp_path / "data"
    root.mkdir()
    assert add(root, "--machine", "a", "--waits", FTRACE).exit_code == 2
    assert not (root / "hardware").exists()
    assert add(root, SPR, "--machine", "a", "--waits", FTRACE).exit_code == 0
    path = root / "hardware" / "a"
    table = (path / "batch_latency.csv").read_bytes()
    assert packages.check(root) == []
    csv = write(tmp_path, CSV, "perf.csv")
    got = add(root, "--machine", "a", "--waits", csv)
    assert got.exit_code == 0, got.stderr
    assert json.loads(got.stdout)["rows"] == 2
    assert (path / "batch_latency.csv").read_bytes() == table
    monkeypatch.setenv("PCPMODEL_DATA", str(root))
    machine = packages.load_hardware("a")
    assert list(machine.lock_wait.caller) == ["__rmqueue_pcplist", "free_pcppages_bulk"]
    assert [s["note"] for s in machine.sources if "waits" in s["note"]] == [
        "waits for the zone lock: perf lock contention; 15 waits for other locks are left out"
    ]
    again = add(root, SPR, "--machine", "a", "--replace")
    assert "lock_wait.csv" in json.loads(again.stdout)["kept"]
    assert packages.check(root) == []
    text = (path / "lock_wait.csv").read_text().replace("80.000", "80000000.000")
    (path / "lock_wait.csv").write_text(text)
    assert "given a mean wait of 2e+07 us" in str(packages.check(root)[0])


def test_waits_are_no_holds(tmp_path):
    with pytest.raises(InputError, match="has waits for locks, and no holds; give it as --waits"):
        read_raw(FTRACE, "free")
    with pytest.raises(InputError, match="has waits for locks, and no holds"):
        read_raw(write(tmp_path, CSV), "free")


@pytest.mark.parametrize(("given", "said"), [((5, 1e9, None), "a mean wait of 2e+08 us"),
                                             ((5, 1e-3, None), "multiply by 1000"),
                                             ((5, 50.0, 500.0), "a longest of 500")])  # fmt: skip
def test_wait_doubts(given, said):
    assert said in measured.wait_doubt(*given)
    assert measured.wait_doubt(5, 50.0, 20.0) is None


# Maps keyed by pages ----------------------------------------------------------------------------


def curve(pages=(63, 126, 252, 504, 1008), samples=600, totals=True):
    text = "Attaching 7 probes...\n\n"
    for side, cost in (("free", 35.0), ("alloc", 40.0)):
        for n in pages:
            ns = [round(1000 * v) for v in holds(n * cost / 1000, samples, seed=n)]
            text += bpftrace(ns, f"@{side}_ns[{n}]") + "\n"
            text += f"@{side}_total_ns[{n}]: {sum(ns)}\n" if totals else ""
    return text


def test_real_maps_keyed_by_pages_are_read_but_too_few():
    with pytest.raises(InputError, match="samples of one number of pages in @alloc_ns; allowed"):
        read_by_pages(PAGES, "alloc")


def test_a_sum_beside_the_histogram_makes_the_mean_exact(tmp_path):
    ns = [round(1000 * v) for v in holds(63 * 0.035, 600, seed=63)]
    enough, few = read_by_pages(write(tmp_path, curve()), "free")
    assert sorted(enough) == [63, 126, 252, 504, 1008]
    assert few == {}
    assert enough[63].avg_us == pytest.approx(np.mean(ns) / 1000, rel=1e-3)
    rough, _ = read_by_pages(write(tmp_path, curve(totals=False)), "free")
    assert rough[63].avg_high_us - rough[63].avg_low_us > 5 * (
        enough[63].avg_high_us - enough[63].avg_low_us
    )


def as_json(text):
    """The same maps as bpftrace -f json has them."""
    maps, sums, name = {}, {}, None
    scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for line in text.splitlines():
        if line.startswith("@") and line.endswith(":"):
            name, _, key = line.rstrip(":").rstrip("]").partition("[")
            buckets = maps.setdefault(name, {}).setdefault(key, [])
        elif line.startswith("@"):
            base, _, rest = line.partition("[")
            key, _, value = rest.partition("]: ")
            sums.setdefault(base, {})[key] = int(value)
        elif line.startswith("["):
            edges, count = line.split("|")[0].rsplit(None, 1)
            low, *high = edges.strip("[) ]").split(", ")
            low, high = (int(e.rstrip("KMG")) * scale[e.lstrip("0123456789")]
                         for e in (low, *(high or [low])))  # fmt: skip
            top = low if "]" in edges else high - 1
            buckets.append({"min": low, "max": top, "count": int(count)})
    objects = [{"type": "attached_probes", "data": {"probes": 7}}]
    objects += [{"type": "hist", "data": {name: keys}} for name, keys in maps.items()]
    objects += [{"type": "map", "data": {name: keys}} for name, keys in sums.items()]
    return "".join(json.dumps(o) + "\n" for o in objects)


def test_json_says_the_same(tmp_path):
    text = write(tmp_path, curve(), "a.txt")
    lines = write(tmp_path, as_json(curve()), "b.json")
    for side in ("free", "alloc"):
        assert read_by_pages(lines, side) == read_by_pages(text, side)


def test_a_wrong_unit_is_told_the_right_one(tmp_path):
    (tmp_path / "data").mkdir()
    path = write(tmp_path, curve(totals=False).replace("_ns[", "_took["))
    words = ["--machine", "a", "--free", path, "--alloc", path, "--unit"]
    assert "If they are ns, give --unit ns. Measure" in add(tmp_path / "data", *words, "us").stderr
    said = add(tmp_path / "data", *words, "ms").stderr
    assert "If they are us, give --unit us. Measure" in said
    assert "by 1000" not in said
    assert add(tmp_path / "data", *words, "ns").exit_code == 0


def test_one_file_is_a_whole_table(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    text = curve() + bpftrace([100000] * 5, "@free_ns[31]") + "\n"
    path = write(tmp_path, text)
    got = add(root, "--machine", "a", "--free", path, "--alloc", path)
    assert got.exit_code == 0, got.stderr
    done = json.loads(got.stdout)
    assert (done["rows"], done["left_out"]) == (5, [{"pages": 31, "free": 5, "alloc": 0}])
    assert packages.check(root) == []
    words = ["--machine", "a", "--free", str(path), "--alloc", str(path), "--replace"]
    text = CliRunner().invoke(main, ["data", "add", "latency", *words, "--data", str(root)]).stdout
    assert text.endswith(f"less than {MIN_SAMPLES} samples on a side: 31 (free 5, alloc 0)\n")
    few = write(tmp_path, curve((63, 126, 252)), "few.txt")
    got = add(root, "--machine", "b", "--free", few, "--alloc", few)
    assert "files of 3 batches (of 0 more numbers of pages" in got.stderr
    got = add(root, "--machine", "b", "--free", few, "--alloc", f"63={few}")
    assert "has every number of pages; give one for either side" in got.stderr


BAD_MAPS = {
    "total": (curve().replace("@free_total_ns[63]: ", "@free_total_ns[63]: 9"), "is a mean of"),
    "json-cut": (as_json(curve())[:400], "row 2: not valid JSON"),
    "json-bucket": (as_json(curve()).replace('"min"', '"least"', 1), "given bucket"),
    "json-float": (as_json(curve()).replace('"count": ', '"count": 0.', 1), "given bucket"),
    "no-side": (curve().replace("@free_", "@up_").replace("@alloc_", "@down_"), "which map, keyed"),
    "one-histogram": (bpftrace([1000] * 500), "which map, keyed by pages, is the free side?"),
    "no-unit": (curve().replace("_ns[", "[").replace("_total[", "_n_total["), "not say its unit"),
}


@pytest.mark.parametrize("name", BAD_MAPS)
def test_damaged_maps_are_refused(tmp_path, name):
    text, message = BAD_MAPS[name]
    with pytest.raises(InputError) as caught:
        read_by_pages(write(tmp_path, text), "free")
    assert message in str(caught.value)


# funclatency of libbpf-tools --------------------------------------------------------------------


def libbpf(values_ns):
    body = funclatency(values_ns, average=False).split("\n")
    at = next(i for i, line in enumerate(body) if "distribution" in line)
    end = next(i for i, line in enumerate(body) if i > at and "->" not in line)
    head = "     nsec                : count    distribution"
    return "\n".join([f"Tracing {FREE}.  Hit Ctrl-C to exit", "", head, *body[at + 1 : end],
                      f"Exiting trace of {FREE}", ""])  # fmt: skip


def test_what_funclatency_of_libbpf_tools_printed_is_read(tmp_path):
    path = DATA / "funclatency-libbpf-free.txt"
    got = read_raw(path, "free")
    assert (got.name, got.tool, got.samples) == (
        "free_pcppages_bulk", "libbpf-tools funclatency", 2086,
    )  # fmt: skip
    text = path.read_text()
    with pytest.raises(InputError, match=r"row 20: bucket from 131072 ns leaves a gap"):
        read_raw(write(tmp_path, re.sub(r" *65536 -> .*\n", "", text)), "free")
    with pytest.raises(InputError, match="row 20: not a line of a histogram"):
        read_raw(write(tmp_path, text.replace(": 250  ", ": 25O  ")), "free")


def test_funclatency_of_libbpf_tools(tmp_path):
    values = [round(1000 * v) for v in holds()]
    got = read_raw(write(tmp_path, libbpf(values)), "free")
    assert (got.name, got.tool, got.samples) == (FREE, "libbpf-tools funclatency", 600)
    assert got.avg_low_us <= np.mean(values) / 1000 <= got.avg_high_us
    with pytest.raises(InputError, match="ends with a histogram: cut off"):
        read_raw(write(tmp_path, libbpf(values).replace("Exiting", "")), "free")
    with pytest.raises(InputError, match="which one is the alloc side"):
        read_raw(write(tmp_path, libbpf(values)), "alloc")
    twice = libbpf(values).replace(
        "Exiting", "\n".join(libbpf(values).split("\n")[1:-2]) + "\nExiting"
    )
    with pytest.raises(InputError, match="a second histogram"):
        read_raw(write(tmp_path, twice), "free")


# Scripts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", SCRIPTS)
def test_scripts_say_what_they_count_and_are_printed(tool, tmp_path):
    got = CliRunner().invoke(main, ["measure", "--script", tool])
    assert got.stdout == SCRIPTS[tool]
    assert "Counts: " in got.stdout
    if tool != "bpftrace":
        path = write(tmp_path, got.stdout, "a.sh")
        assert subprocess.run(["sh", "-n", path], check=False).returncode == 0

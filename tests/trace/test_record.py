"""Recording: what `pcpmodel record` writes, and how it refuses."""

# SPDX-License-Identifier: GPL-2.0-only

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.signals import Ended
from pcpmodel.trace import owner
from pcpmodel.trace import record as record_module
from pcpmodel.trace import tracefs as tracefs_module
from pcpmodel.trace.packed import open_text
from pcpmodel.trace.record import EVENTS, Recorded, record
from pcpmodel.trace.watched import Watched, watching

TRACE = """\
# tracer: nop
#
          init-1       [000] .....     1.000000: tracing_mark_write: pcpmodel: tracing on
          init-1       [000] .....     1.000100: mm_page_free: page=ffffea0000000040 pfn=0x1 order=0
          init-1       [000] .....     1.000200: mm_page_alloc: page=ffffea0000000040 pfn=0x1 \
order=0 migratetype=0 gfp_flags=
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A tracefs and a /proc of plain files; an instance appears filled, as the kernel makes it."""
    tracefs, proc = tmp_path / "tracing", tmp_path / "proc"
    (tracefs / "instances").mkdir(parents=True)
    for event in EVENTS:
        (tracefs / "events" / event).mkdir(parents=True)
        (tracefs / "events" / event / "enable").write_text("0")
    proc.mkdir()
    (proc / "version").write_text("Linux version 6.12.107 (x) #1 SMP Debian 6.12.107-1 (2026)")
    (proc / "stat").write_text("cpu  1\ncpu0 1\ncpu1 1\nintr 1\n")
    (proc / "meminfo").write_text("MemTotal:        2097152 kB\n")
    (proc / "zoneinfo").write_text("Node 0, zone   Normal\n  pages free     1\n")
    for name in ("buddyinfo", "vmstat", "cmdline"):
        (proc / name).write_text(f"{name}\n")
    mkdir, rmdir = Path.mkdir, Path.rmdir

    def filled(self, *args, **kwargs):
        mkdir(self, *args, **kwargs)
        if self.parent == tracefs / "instances":
            shutil.copytree(tracefs / "events", self / "events")
            (self / "per_cpu" / "cpu1").mkdir(parents=True)
            (self / "per_cpu" / "cpu1" / "stats").write_text(
                "entries: 7\noverrun: 5\ncommit overrun: 1\ndropped events: 0\n"
            )
            (self / "trace").write_text(TRACE)
            for name in ("tracing_on", "trace_clock", "buffer_size_kb", "trace_marker"):
                (self / name).write_text("")

    def emptied(self):
        if self.parent == tracefs / "instances":
            for name in ("trace_marker", "buffer_size_kb"):
                shutil.copy(self / name, tracefs)
            shutil.rmtree(self)
        else:
            rmdir(self)

    monkeypatch.setattr(Path, "mkdir", filled)
    monkeypatch.setattr(Path, "rmdir", emptied)
    return {"tracefs": tracefs, "proc": proc}


def test_a_recording_has_the_files_that_the_reader_wants(fake, tmp_path):
    done = record(tmp_path / "mine", 60, [sys.executable, "-c", "pass"], **fake)
    assert (done.events, done.lost, done.interrupted, done.exit_code) == (3, 6, False, 0)
    cap = pm.recording(tmp_path / "mine")
    assert cap.release.name == "debian-6.12.107"
    assert (cap.cpus, cap.memory_mib, cap.numa_nodes, cap.lost) == (2, 2048, 1, 6)
    assert len(cap.trace[0]) == 3
    assert cap.meta["exit_code"] == 0
    assert cap.meta["events"]["mm_page_alloc"] == 1
    for name in ("zoneinfo.before", "zoneinfo.after", "buddyinfo.before", "vmstat.after"):
        assert (tmp_path / "mine" / name).is_file()
    packed = (tmp_path / "mine" / "trace.txt.zst").read_bytes()
    assert b"".join(open_text(tmp_path / "mine" / "trace.txt.zst")).decode() == TRACE
    assert zstandard.get_frame_parameters(packed).has_checksum
    marks = (fake["tracefs"] / "trace_marker").read_text()
    assert marks.index("state-before-end") < marks.index("work begin") < marks.index("state-after")
    assert list((fake["tracefs"] / "instances").iterdir()) == []


def test_every_switch_is_recorded_also_to_idle_tasks(fake, tmp_path, monkeypatch):
    """A filter left them out: nothing showed that the CPU of who sleeps was a hidden task's."""
    filtered, tries = [], record_module.tries

    def seen(path, text):
        if path.name == "filter":
            filtered.append(path.parent.name)
        return tries(path, text)

    monkeypatch.setattr(record_module, "tries", seen)
    record(tmp_path / "mine", 60, [sys.executable, "-c", "pass"], **fake)
    assert "sched/sched_switch" in pm.recording(tmp_path / "mine").meta["events_on"]
    assert filtered == ["workqueue_execute_start", "workqueue_execute_end"]


def test_a_recording_ends_where_the_first_buffer_is_full(fake, tmp_path, monkeypatch):
    """What came before is whole, as nothing is overwritten; what came later is left out."""
    told = iter([[], [1]])
    monkeypatch.setattr(record_module, "full_buffers", lambda _: next(told, [0, 1]))
    rest = TRACE.splitlines()[2:]
    lines = ["# entries-in-buffer/entries-written: 5/5   #P:2", rest[0]]
    lines += [line.replace("[000]", "[001]") for line in rest[1:2]] + rest[1:]
    mkdir = Path.mkdir

    def with_trace(self, *args, **kwargs):
        mkdir(self, *args, **kwargs)
        if self.parent == fake["tracefs"] / "instances":
            (self / "trace").write_text("\n".join(lines) + "\n")
            (self / "per_cpu" / "cpu1" / "stats").write_text("overrun: 0\ndropped events: 3\n")

    monkeypatch.setattr(Path, "mkdir", with_trace)
    out = tmp_path / "mine"
    begin = time.monotonic()
    done = record(out, 60, [sys.executable, "-c", "import time; time.sleep(60)"], **fake)
    assert time.monotonic() - begin < 30
    assert (done.full, done.lost, done.events, done.interrupted) == ((0, 1), 0, 2, False)
    assert 0 < done.seconds < 30
    assert b"".join(open_text(out / "trace.txt.zst")).decode().splitlines() == lines[1:3]
    assert not list(out.glob("*.after"))
    meta = pm.recording(out).meta
    assert (meta["full"], meta["events_total"], meta["lost_events"]) == ([0, 1], 2, 0)


def test_buffers_that_are_full_before_the_work_are_refused(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(record_module, "full_buffers", lambda _: [1])
    with pytest.raises(InputError, match="buffer_kb=64: a ring buffer was full before the work"):
        record(tmp_path / "mine", 1, buffer_kb=64, **fake)
    write = record_module.write

    def no_room(path, text):
        if path.name == "trace_marker":
            raise OSError(errno.EBADF, "Bad file descriptor")
        write(path, text)

    monkeypatch.setattr(record_module, "write", no_room)
    with pytest.raises(InputError, match="buffer_kb=64: a ring buffer was full before the work"):
        record(tmp_path / "mine", 1, buffer_kb=64, **fake)
    assert not (tmp_path / "mine").exists()


def test_what_was_recorded_until_a_buffer_was_full_is_replayed(tracefs, tmp_path):
    out = tmp_path / "here"
    work = [sys.executable, "-c", "while True: x = [bytearray(1 << 20) for _ in range(64)]"]
    args = ["record", "--out", str(out), "--seconds", "60", "--buffer-kb", "4000", "--", *work]
    result = CliRunner().invoke(main, args)
    if not os.access(tracefs / "instances", os.W_OK):
        assert result.exit_code == 2
        return
    assert result.exit_code == 0, result.output
    assert "0 lost; it ended after " in result.output
    found = pm.replay(out)
    assert found.lost == 0
    assert found.allocations > 5000
    assert found.allocations_exact + found.inferred["allocations"] > 0.99 * found.allocations


@pytest.mark.parametrize(
    ("available_mib", "buffer_kib"),
    [(None, 16384), (100, 16384), (4096, 131072), (1 << 20, 262144)],
)
def test_buffers_are_as_large_as_there_is_memory_for(fake, tmp_path, available_mib, buffer_kib):
    if available_mib is not None:
        with open(fake["proc"] / "meminfo", "a", encoding="ascii") as meminfo:
            meminfo.write(f"MemAvailable:  {available_mib << 10} kB\n")
    record(tmp_path / "mine", 0.01, **fake)
    assert (fake["tracefs"] / "buffer_size_kb").read_text() == str(buffer_kib)
    assert pm.recording(tmp_path / "mine").meta["options"]["buffer_kb"] == buffer_kib


def test_counts_are_read_again_and_at_once_where_a_size_changes(fake, tmp_path):
    vm = fake["proc"] / "sys" / "vm"
    vm.mkdir(parents=True)
    path = vm / "percpu_pagelist_high_fraction"
    path.write_text("0\n")
    (vm / "min_free_kbytes").write_text("1000\n")
    # Not emptied before, as no sysctl is.
    work = "; ".join([
        "import os, time", "time.sleep(0.05)", f"p = os.open({str(path)!r}, os.O_WRONLY)",
        "os.pwrite(p, b'8\\n', 0)", "time.sleep(0.3)", "os.pwrite(p, b'8\\n', 0)",
        "time.sleep(0.05)",
    ])  # fmt: skip
    record(tmp_path / "mine", 60, [sys.executable, "-S", "-c", work], **fake)
    marks = (fake["tracefs"] / "trace_marker").read_text()
    text = b"".join(open_text(tmp_path / "mine" / "zoneinfo.series.zst")).decode()
    tags = [line[4:] for line in text.splitlines() if line.startswith("=== ")]
    assert len(tags) >= 3
    assert text.count((fake["proc"] / "zoneinfo").read_text()) == len(tags)
    assert [marks.count(f"snapshot-{tag}\n") for tag in tags] == [1] * len(tags)
    # Written a second time it is what it was.
    told = "sysctl vm/percpu_pagelist_high_fraction="
    assert marks.count(f"{told}8 r=0\n") == 1
    after = marks[marks.index(f"{told}8") :].splitlines()
    assert after[1].startswith("pcpmodel: snapshot-counts-")


def test_what_is_read_again_stays_small(fake, tmp_path, monkeypatch):
    """However long the recording and however large the machine, a reader can take it."""
    size = len((fake["proc"] / "zoneinfo").read_text())
    monkeypatch.setattr(record_module, "_COUNTS_BYTES", 10 * size)
    counts = record_module._Counts(*_here(fake), seconds=60.0)
    assert counts._every == 6.0
    for _ in range(40):
        counts._next = 0.0
        counts.look(False)
    counts.save(tmp_path / "series.zst")
    text = b"".join(open_text(tmp_path / "series.zst")).decode()
    assert text.count("=== ") == 21
    assert zstandard.get_frame_parameters((tmp_path / "series.zst").read_bytes()).has_checksum


def _here(fake):
    """A tracing instance, and the rest that reads /proc/zoneinfo there."""
    here = fake["tracefs"] / "instances" / "mine"
    here.mkdir()
    return here, fake["proc"], (fake["proc"] / "zoneinfo").open("rb", buffering=0)


def test_a_watched_file_is_told_of_once_it_is_written_to(tmp_path):
    path = tmp_path / "file"
    path.write_text("0")
    with watching([path, tmp_path / "none"]) as watched:
        assert not watched.wait(0.01)
        path.write_text("1")
        assert watched.wait(10)
        assert not watched.wait(0.01)
    assert not Watched(-1).wait(0.001)


def test_the_time_ends_the_command(fake, tmp_path):
    done = record(
        tmp_path / "mine", 0.1, [sys.executable, "-c", "import time; time.sleep(60)"], **fake
    )
    assert (done.interrupted, done.exit_code) == (False, -signal.SIGTERM)
    assert json.loads((tmp_path / "mine" / "meta.json").read_text())["exit_code"] == -signal.SIGTERM


@pytest.mark.parametrize("code", [None, 0, -signal.SIGTERM, 3])
def test_a_command_that_failed_is_told_of(code, tmp_path, monkeypatch):
    """What is recorded of it is of little use; nothing was said."""
    done = Recorded(tmp_path, 7, 0, False, (), 1.0, code)
    monkeypatch.setattr("pcpmodel.trace.record.record", lambda *_, **__: done)
    words = ["record", "--out", "x", "--seconds", "1", "--", "make", "all"]
    said = CliRunner().invoke(main, words).stdout
    failed = "; make ended with the exit code 3" if code == 3 else ""
    assert said == f"{tmp_path}: 7 events, 0 lost{failed}\n"


def test_control_c_keeps_what_there_is(fake, tmp_path):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    done = record(tmp_path / "mine", 30, **fake)
    assert done.interrupted
    assert pm.recording(tmp_path / "mine").meta["interrupted"] is True


TREE = """\
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
time.sleep(60)
"""


def gone(pid: int) -> bool:
    """Whether a process has ended; init may not have collected it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("moment", ["work", "_snapshot", "_export", "lost_events"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_puts_everything_back(fake, tmp_path, monkeypatch, number, moment):
    """Whenever it comes: no instance, probe, half recording or command is left."""
    (fake["tracefs"] / "kprobe_events").write_text("")
    pids = tmp_path / "pids"
    kill = f"import os, signal; os.kill({os.getpid()}, {int(number)})"
    if moment == "work":
        command = [sys.executable, "-c", TREE, str(pids)]

        def when_it_runs():
            while not (pids.exists() and pids.read_text().count(" ")):
                time.sleep(0.01)
            os.kill(os.getpid(), number)

        threading.Thread(target=when_it_runs).start()
    else:
        command = [sys.executable, "-c", "pass"]
        called = getattr(record_module, moment)

        def interrupted(*args):
            subprocess.run([sys.executable, "-c", kill], check=True)
            return called(*args)

        monkeypatch.setattr(record_module, moment, interrupted)
    kept = number == signal.SIGINT and moment == "work"
    if kept:
        assert record(tmp_path / "mine", 30, command, **fake).interrupted
    else:
        with pytest.raises((Ended, KeyboardInterrupt)) as caught:
            record(tmp_path / "mine", 30, command, **fake)
        assert getattr(caught.value, "code", 130) in (128 + number, 130)
    assert (tmp_path / "mine").exists() == kept
    assert list((fake["tracefs"] / "instances").iterdir()) == []
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    probes = (fake["tracefs"] / "kprobe_events").read_text()
    made = re.findall(r"^[pr]\d*:(\S+) ", probes, re.M)
    assert made == re.findall(r"^-:(\S+)$", probes, re.M)
    assert len(made) == (6 if os.uname().machine == "x86_64" else 0)
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    if moment == "work":
        for pid in map(int, pids.read_text().split()):
            deadline = time.monotonic() + 5
            while not gone(pid) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert gone(pid)


def test_signals_while_it_puts_back_wait(fake, tmp_path, monkeypatch):
    """A terminal that closes sends SIGHUP, and an impatient user Ctrl-C twice."""
    remove = tracefs_module._remove

    def interrupted(here):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.01)
        remove(here)

    monkeypatch.setattr(tracefs_module, "_remove", interrupted)
    monkeypatch.setattr(signal, "raise_signal", lambda number: sys.exit(128 + number))
    with pytest.raises(SystemExit) as caught:
        record(tmp_path / "mine", 0.01, **fake)
    assert caught.value.code == 128 + signal.SIGHUP
    assert list((fake["tracefs"] / "instances").iterdir()) == []


def test_what_a_killed_recorder_left_is_removed(fake, tmp_path):
    instances, control = fake["tracefs"] / "instances", fake["tracefs"] / "kprobe_events"
    pids = os.stat("/proc/self/ns/pid").st_ino
    mother = os.getppid()
    dead = [f"pcpmodel_{pids}_{2**22 + 1}_77", f"pcpmodel_{pids}_{mother}_1"]
    others = [
        f"pcpmodel_{pids}_{mother}_{owner.start_time(mother)}",  # at work
        f"pcpmodel_{pids + 1}_{2**22 + 1}_77",  # of another PID namespace: who can tell
        "somebody",
    ]
    for name in dead + others:
        (instances / name).mkdir()
    control.write_text(
        "".join(f"p:{name}/decay_pcp_high decay_pcp_high\n" for name in dead + others)
    )
    left = tmp_path / ".mine.pcpmodel-abcdefgh"
    (left / "recording").mkdir(parents=True)
    record(tmp_path / "mine", 0.01, **fake)
    assert sorted(p.name for p in instances.iterdir()) == sorted(others)
    removed = re.findall(r"^-:(\S+)/decay_pcp_high$", control.read_text(), re.M)
    assert removed[:2] == dead
    assert not set(removed) & set(others)
    assert not left.exists()


def test_an_instance_that_is_busy_for_a_moment_is_removed_all_the_same(fake, tmp_path, monkeypatch):
    # Children of a killed process keep its buffers open until they have ended themselves.
    left = fake["tracefs"] / "instances" / f"pcpmodel_{os.stat('/proc/self/ns/pid').st_ino}_1_1"
    left.mkdir()
    rmdir, refusals = Path.rmdir, [errno.EBUSY, errno.EBUSY]

    def busy(self):
        if self == left and refusals:
            raise OSError(refusals.pop(), "busy")
        rmdir(self)

    monkeypatch.setattr(Path, "rmdir", busy)
    record(tmp_path / "mine", 0.01, **fake)
    assert not refusals
    assert not left.exists()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seconds": 0}, "seconds=0 is not above 0 and at most 3600"),
        ({"seconds": float("nan")}, "seconds=nan"),
        ({"seconds": "5"}, "seconds='5'"),
        ({"seconds": 1e9}, "seconds"),
        ({"buffer_kb": 1}, "buffer_kb=1"),
        ({"buffer_kb": True}, "buffer_kb=True"),
        ({"command": ["/no/such/program"]}, "/no/such/program"),
        ({"out": "."}, "exists already"),
        ({"out": "no/such/dir/mine"}, "no directory"),
        ({"tracefs": "nowhere"}, "mount -t tracefs"),
        ({"out": "a\0b"}, "no name for a recording"),
        ({"out": "a\x1b[31m"}, "no name for a recording"),
        ({"command": ["a\0b"]}, "cannot be run"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_left(fake, tmp_path, change, match):
    args = {"out": "mine", "seconds": 0.01, **fake, **change}
    args["out"] = tmp_path / args["out"]
    args["tracefs"] = tmp_path / args["tracefs"]
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=match):
        record(**args)
    left = set(tmp_path.rglob("*")) - set(before)
    assert {path.name for path in left} <= {"trace_marker", "buffer_size_kb"}  # the fake's own


def test_a_kernel_without_the_events_is_refused(fake, tmp_path):
    shutil.rmtree(fake["tracefs"] / "events" / "kmem" / "mm_page_pcpu_drain")
    with pytest.raises(InputError, match="mm_page_pcpu_drain"):
        record(tmp_path / "mine", 0.01, **fake)


def test_the_kernel_that_runs_here(tracefs, tmp_path):
    """A real recording where that is permitted; elsewhere the refusal is what is tested."""
    out = tmp_path / "here"
    work = [sys.executable, "-c", "for n in range(4): x = [bytearray(1 << 20) for _ in range(64)]"]
    args = ["record", "--out", str(out), "--seconds", "20", "--json", "--", *work]
    result = CliRunner().invoke(main, args)
    if not os.access(tracefs / "instances", os.W_OK):
        assert result.exit_code == 2
        assert "trac" in result.output
        assert not out.exists()
        return
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    cap = pm.recording(out)
    events = cap.trace[0]
    assert told["events"] == len(events) > 1000
    assert told["lost"] == cap.lost == 0
    # 64 MiB were touched: that many pages were asked for.
    assert events.is_event("mm_page_alloc").sum() > 64 * 256
    assert not list((tracefs / "instances").glob("pcpmodel_*"))
    explained = CliRunner().invoke(
        main, ["explain", "--zoneinfo", str(out / "zoneinfo.before"), "--json"]
    )
    assert explained.exit_code == 0, explained.output


def test_what_is_recorded_here_is_replayed(tracefs, tmp_path):
    """No dump of the lists here: the start is inferred, the rest predicted, and it is so.

    What others do on this machine is in the trace too, unless it is hidden from tracing: the
    best of a few recordings counts.
    """
    if not os.access(tracefs / "instances", os.W_OK):
        with pytest.raises(InputError, match="trac"):
            record(tmp_path / "here", 1)
        return
    work = [sys.executable, "-c", "for n in range(4): x = [bytearray(1 << 20) for _ in range(64)]"]
    for n in range(6):
        record(tmp_path / f"here{n}", 20, work)
        found = pm.replay(tmp_path / f"here{n}")
        assert found.lost == 0
        if found.nr_unexplained < 0.01 * found.allocations:
            break
    assert found.nr_unexplained < 0.01 * found.allocations, found
    compared = found.allocations - found.inferred["allocations"]
    assert compared > 5000
    assert found.allocations_exact > 0.99 * compared
    assert found.refills_exact + found.inferred["refills"] >= 0.9 * found.refills
    assert found.probes > 0
    assert "inferred" in repr(found)


def test_a_cpu_that_is_offline_at_the_end_counts(fake, tmp_path):
    """Their numbers have gaps, and the trace has lines of one that is gone."""
    (fake["proc"] / "stat").write_text("cpu  1\ncpu0 1\ncpu2 1\nintr 1\n")
    record(tmp_path / "mine", 0.01, **fake)
    assert pm.recording(tmp_path / "mine").cpus == 3
    gone = TRACE.replace("[000]", "[1004]").replace("[001]", "[1004]")
    lines = gone.encode().splitlines(keepends=True)
    seen, last = record_module._export(lines, tmp_path / "out.zst", False)
    assert (sum(seen.values()), last) == (3, {1004: len(lines)})


def test_the_package_is_not_that_of_the_compiler(fake, tmp_path):
    (fake["proc"] / "version").write_text(
        "Linux version 6.1.0-56-amd64 (d@l) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld (GNU "
        "Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)"
    )
    record(tmp_path / "mine", 0.01, **fake)
    cap = pm.recording(tmp_path / "mine")
    assert cap.meta["debian_package"] == "linux 6.1.192-2"
    assert cap.release.name == "debian-6.1.192"

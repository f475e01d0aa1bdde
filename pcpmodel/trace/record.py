"""Record this machine: kmem events and the /proc files beside them.

Works in a tracing instance of its own, so that nobody's settings change and
nothing has to be put back.  What a kernel without kprobes or /proc/kcore cannot
tell (the contents of the lists) is not in the recording; see ``meta.json``.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from pcpmodel.errors import InputError, integer
from pcpmodel.files import scratch, sync, sync_tree
from pcpmodel.signals import Shield, shielded
from pcpmodel.trace.tracefs import full_buffers, instance, lost_events, reads, tries, write
from pcpmodel.trace.watched import Watched, watching

__all__ = ["Recorded", "record"]

EVENTS = (
    "kmem/mm_page_alloc", "kmem/mm_page_free", "kmem/mm_page_free_batched",
    "kmem/mm_page_alloc_zone_locked", "kmem/mm_page_pcpu_drain", "kmem/mm_page_alloc_extfrag",
    "sched/sched_process_fork", "sched/sched_process_exec", "sched/sched_process_exit",
    "vmscan/mm_vmscan_kswapd_wake", "vmscan/mm_vmscan_kswapd_sleep",
    "vmscan/mm_vmscan_direct_reclaim_begin", "vmscan/mm_vmscan_direct_reclaim_end",
    "workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end", "sched/sched_switch",
)  # fmt: skip
#: Of a workqueue event only this work item: the tick at which high decays.
FILTERS = {
    "workqueue/workqueue_execute_start": "function.function == vmstat_update",
    "workqueue/workqueue_execute_end": "function.function == vmstat_update",
}
#: Without these there is nothing to record.
NEEDED = EVENTS[:5]
#: Functions whose calls the function tracer shows, where the compiler left them.
FUNCTIONS = (
    "refresh_cpu_vm_stats", "drain_local_pages", "drain_all_pages", "__drain_all_pages",
    "zone_pcp_disable", "zone_pcp_enable", "zone_set_pageset_high_and_batch",
    "__zone_set_pageset_high_and_batch", "setup_per_zone_wmarks", "__free_pages_ok",
    "unreserve_highatomic_pageblock",
)  # fmt: skip
#: From v6.10 on the first, until v6.9 the other.
BULK = ("alloc_pages_bulk_noprof", "__alloc_pages_bulk")
#: Probes by register (x86-64), where there are kprobes, and where: p, entry of a function; r, its
#: return, of so many calls at once.  Of more than one the first that the kernel takes, as a
#: function's name depends on the release.
PROBES = {
    "free_pcppages_bulk": ("p free_pcppages_bulk n=%si:s32 pindex=%cx:s32 pcp=%dx:x64",),
    "drain_pages_zone": ("p drain_pages_zone of_cpu=%di:u32",),
    "decay_pcp_high": ("p decay_pcp_high pcp=%si:x64",),
    # What it takes no other line tells of: vmalloc() asks it for pages, and a new task for a stack.
    "alloc_pages_bulk": tuple(
        f"p {function} gfp=%di:x32 nid=%si:s32 nr=%cx:s32" for function in BULK
    ),
    "alloc_pages_bulk_ret": tuple(f"r256 {function} n=$retval:u32" for function in BULK),
    # What vfree() has freed page by page joins the lists in larger blocks (v7.2).
    "free_prepared_contig_range": ("p free_prepared_contig_range page=%di:x64 nr=%si:u64",),
}
#: Ring buffers of all CPUs take so much of the memory that is available, and each [KiB] at least
#: and at most so much: 4 million events.
_SHARE, _LEAST_KB, _MOST_KB = 16, 16 << 10, 256 << 10
SNAPSHOT = ("zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat")
#: What sizes of lists follow from, below /proc/sys.
SIZING = ("vm/percpu_pagelist_high_fraction", "vm/min_free_kbytes", "vm/watermark_scale_factor")
#: How often the lists' counts are read [s]; it takes that share of the time at most, and so many
#: bytes, with as many more for sysctls that are written again and again: each is parsed.
COUNTS_S, _COUNTS_SHARE, _COUNTS_BYTES = 0.1, 0.01, 16 << 20
#: Who writes it writes min_free_kbytes, too (set_recommended_min_free_kbytes()).
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_EVENT = re.compile(rb" \[(\d{3,5})\] [^ ]* *\d+\.\d{3,9}: ([A-Za-z_]\w*)[: ]")


@dataclass(frozen=True)
class Recorded:
    """What `record` wrote.

    Attributes
    ----------
    path : pathlib.Path
    events : int
        Events in the trace.
    lost : int
        Events that the kernel lost amid the trace; a recording with losses is never exact.
    interrupted : bool
        Ctrl-C ended it before its time.
    full : tuple of int
        CPUs whose ring buffers were full, which ended it before its time.
    seconds : float
        How long it was recorded [s].
    exit_code : int or None
        Of the command; negative: the signal that ended it, as at the end of the time.
    """

    path: Path
    events: int
    lost: int
    interrupted: bool
    full: tuple[int, ...]
    seconds: float
    exit_code: int | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"path": str(self.path), "full": list(self.full)}


@contextmanager
def _probes(tracefs: Path, here: Path) -> Iterator[list[str]]:
    """The kprobes that this kernel takes, in a group of our own; removed afterwards."""
    control, group = tracefs / "kprobe_events", here.name
    made: dict[str, str] = {}
    try:
        if control.exists() and os.uname().machine == "x86_64":
            for name, forms in PROBES.items():
                for form in forms:
                    kind, _, what = form.partition(" ")
                    if tries(control, f"{kind}:{group}/{name} {what}\n"):
                        made[name] = what
                        tries(here / "events" / group / name / "enable", "1")
                        break
        yield list(made.values())
    finally:
        for name in made:
            tries(here / "events" / group / name / "enable", "0")
            tries(control, f"-:{group}/{name}\n")


def _arm(here: Path, buffer_kb: int) -> tuple[list[str], list[str]]:
    """Clock, buffers, events and function hooks; returns what could be had of the last two."""
    tries(here / "tracing_on", "0")
    tries(here / "trace_clock", "mono")
    # What was first stays: with that all that follows is known, up to where a buffer is full.
    tries(here / "options" / "overwrite", "0")
    try:
        write(here / "buffer_size_kb", str(buffer_kb))
    except OSError as error:
        raise InputError(
            f"buffer_kb={buffer_kb}: no memory for such ring buffers on every CPU "
            f"({error.strerror})",
            file=here,
        ) from None
    for event, only in FILTERS.items():
        tries(here / "events" / event / "filter", only)
    events = [e for e in EVENTS if tries(here / "events" / e / "enable", "1")]
    missing = [e for e in NEEDED if e not in events]
    if missing:
        raise InputError(f"event {missing[0]} cannot be switched on", file=here)
    functions = [f for f in FUNCTIONS if tries(here / "set_ftrace_filter", f + "\n")]
    # Without a filter every function of the kernel would be traced.
    if functions and not tries(here / "current_tracer", "function"):
        functions = []
    return events, functions


def _room_kb(proc: Path) -> int:
    """Ring buffer of each CPU that the machine has room for [KiB]."""
    available = re.search(r"MemAvailable:\s+(\d+) kB", reads(proc / "meminfo"))
    cpus = len(re.findall(r"^cpu\d", reads(proc / "stat"), re.M))
    share = int(available[1]) // (_SHARE * max(cpus, 1)) if available else 0
    return min(max(share, _LEAST_KB), _MOST_KB)


def _snapshot(tag: str, out: Path, here: Path, proc: Path) -> None:
    with ExitStack() as stack:
        files = {}
        for name in SNAPSHOT:
            try:
                files[name] = stack.enter_context(open(proc / name, "rb", buffering=1 << 16))
                files[name].read()  # whoever reads takes pages: rather before than meanwhile
                files[name].seek(0)
            except OSError:
                files.pop(name, None)  # pagetypeinfo is not in every kernel
        text = {name: f.read() for name, f in files.items() if name != "zoneinfo"}
        # The counts of the lists: as little as possible may happen meanwhile.
        for mark in (f"snapshot-{tag}", f"state-{tag}-begin"):
            write(here / "trace_marker", f"pcpmodel: {mark}\n")
        if "zoneinfo" in files:
            text["zoneinfo"] = files["zoneinfo"].read()
        for mark in (f"state-{tag}-end", f"snapshot-{tag}-end"):
            write(here / "trace_marker", f"pcpmodel: {mark}\n")
    for name, content in text.items():
        (out / f"{name}.{tag}").write_bytes(content)


def _begin(out: Path, here: Path, proc: Path) -> bool:
    """Begin to trace; whether all ring buffers have room for more when the work begins."""
    write(here / "tracing_on", "1")
    try:
        write(here / "trace_marker", "pcpmodel: tracing on\n")
        _snapshot("before", out, here, proc)
        write(here / "trace_marker", "pcpmodel: phase 0 work begin\n")
    except OSError as error:
        if error.errno != errno.EBADF:  # what a marker that finds no room gets
            raise
        return False
    return not full_buffers(here)


def _end(out: Path, here: Path, proc: Path) -> list[int]:
    """Stop tracing; CPUs whose ring buffers were full before: the trace has no end of the work."""
    if not full_buffers(here):
        try:
            write(here / "trace_marker", "pcpmodel: phase 0 work end\n")
            _snapshot("after", out, here, proc)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
    write(here / "tracing_on", "0")
    full = full_buffers(here)
    for name in SNAPSHOT if full else ():
        (out / f"{name}.after").unlink(missing_ok=True)
    return full


class _Counts:
    """/proc/zoneinfo again and again: what the lists hold and may hold, while work is recorded.

    Read now and then, and at once where a sysctl that sizes follow from has another value.
    """

    def __init__(self, here: Path, proc: Path, file: BinaryIO, seconds: float) -> None:
        import zstandard

        self._here, self._file = here, file
        self._paths = {name: proc / "sys" / name for name in SIZING}
        self._known = {name: reads(path) for name, path in self._paths.items()}
        self._packer = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
        self._packed = io.BytesIO()
        self._n = self._bytes = 0
        # The kernel keeps what it takes to read it until the file is closed.
        self._every = max(COUNTS_S, seconds * len(file.read()) / _COUNTS_BYTES)
        self._next = time.monotonic() + self._every

    def _mark(self, text: str) -> None:
        # A full ring buffer takes none: the trace ends before it.
        tries(self._here / "trace_marker", f"pcpmodel: {text}\n")

    def look(self, written: bool) -> list[int]:
        """Read it, if it is time to, or a setting was *written* and is another one.

        Returns the CPUs whose ring buffers are full by then.
        """
        changed = False
        # A shell that writes a file empties it first, which is a change to inotify.
        for name, path in self._paths.items() if written else ():
            now = reads(path)
            if now != self._known[name]:
                self._known[name], changed = now, True
                self._mark(f"sysctl {name}={now} r=0")
        begin = time.monotonic()
        if begin < self._next and not changed:
            return []
        if self._bytes <= 2 * _COUNTS_BYTES:
            self._read()
        full = full_buffers(self._here)
        if full:
            tries(self._here / "tracing_on", "0")
        now = time.monotonic()
        self._next = now + max(self._every, (now - begin) / _COUNTS_SHARE)
        return full

    def _read(self) -> None:
        self._n += 1
        tag = f"counts-{self._n}"
        self._file.seek(0)
        self._mark(f"snapshot-{tag}")
        text = self._file.read()
        self._mark(f"snapshot-{tag}-end")
        self._packed.write(self._packer.compress(f"=== {tag}\n".encode() + text))
        self._bytes += len(text)

    def save(self, target: Path) -> None:
        """Write all that was read, compressed."""
        if self._n:
            target.write_bytes(self._packed.getvalue() + self._packer.flush())


def _work(
    command: Sequence[str], seconds: float, shield: Shield, watched: Watched,
    counts: _Counts,
) -> tuple[bool, int | None]:  # fmt: skip
    """Let the time pass, or the command run, and read *counts* meanwhile; until a buffer is full.

    Returns whether it was interrupted, and the command's exit code or None.
    """
    child = None
    if command:
        try:
            # Results alone go to standard output.  A process group of its own: all of it ends.
            child = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=2, process_group=0
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{command[0]!r} cannot be run: {reason}") from None
    interrupted = False
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and (child is None or child.poll() is None):
            with shield.lifted():
                written = watched.wait(max(0.0, min(0.02, end - time.monotonic())))
            if counts.look(written):
                break
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if child is not None and child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return interrupted, None if child is None else child.returncode


def _export(
    lines: Iterable[bytes], target: Path, progress: bool
) -> tuple[Counter[str], dict[int, int]]:
    """Write a trace; how many events of each name it has, and the last line of each CPU, from 1."""
    import zstandard
    from tqdm import tqdm

    seen: Counter[str] = Counter()
    last: dict[bytes, int] = {}
    with (
        # A sixth of gzip's time, and half of it to read; no larger.
        open(target, "xb") as file,
        zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(file) as packed,
        io.BufferedWriter(packed, 1 << 20) as sink,
        tqdm(unit="line", unit_scale=True, disable=not progress, desc="writing") as bar,
    ):
        for n, line in enumerate(lines, 1):
            sink.write(line)
            if not line.startswith(b"#"):
                found = _EVENT.search(line)
                seen[found[2].decode() if found else "other"] += 1
                if found:
                    last[found[1]] = n
            bar.update()
    return seen, {int(cpu): n for cpu, n in last.items()}


def _export_until_full(
    here: Path, out: Path, full: Sequence[int], progress: bool
) -> tuple[Counter[str], dict[int, int]]:
    """`_export` of an instance's trace, up to the last event of the first CPU that took no more."""
    import zstandard

    target, whole = out / "trace.txt.zst", out / "whole.zst"
    with open(here / "trace", "rb") as source:
        seen, last = _export(source, target, progress)
    if full:
        end = min((last.get(cpu, 0) for cpu in full), default=0)
        target.rename(whole)
        with io.BufferedReader(zstandard.open(whole, "rb"), 1 << 20) as lines:
            # The heading counts what all buffers have.
            kept = (t for t in islice(lines, end) if not t.startswith(b"# entries-in-buffer"))
            seen, last = _export(kept, target, progress)
        whole.unlink()
    return seen, last


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A directory to be renamed to ``out``; gone if it was not."""
    with scratch(f".{out.name}.pcpmodel-", out.parent) as place:
        partial = place / "recording"  # with the permissions that any directory gets
        partial.mkdir()
        yield partial


def _machine(partial: Path, proc: Path, at_work: int) -> dict[str, Any]:
    """What meta.json says of the machine; its files of the kernel go beside.

    *at_work*: the last CPU of the trace.
    """
    version = reads(proc / "version")
    series = re.search(r"\bversion (\d+\.\d+)", version)
    if series is None:
        raise InputError(f"{version[:60]!r} names no kernel version", file=proc / "version")
    # Debian's compiler stands there too, before the number of the build.
    debian = re.search(r"#\d.* Debian (\d\S*)", version)
    # One that is offline now may have been at work, and the numbers may have gaps.
    cpus = 1 + max(map(int, re.findall(r"^cpu(\d+)", reads(proc / "stat"), re.M)), default=0)
    memory = re.search(r"MemTotal:\s+(\d+) kB", reads(proc / "meminfo"))
    nodes = set(re.findall(r"^Node (\d+)", reads(proc / "zoneinfo"), re.M))
    fraction = reads(proc / "sys" / "vm" / "percpu_pagelist_high_fraction")
    (partial / "meminfo.before").write_text(reads(proc / "meminfo") + "\n", "utf-8")
    (partial / "cmdline").write_text(reads(proc / "cmdline") + "\n", "utf-8")
    (partial / "high_fraction").write_text(fraction + "\n", "utf-8")
    return {
        "kernel": version,
        "kernel_series": series[1],
        "debian_package": f"linux {debian[1]}" if debian else "",
        "cpus": max(cpus, 1 + at_work),
        "memory_mib": int(memory[1]) >> 10 if memory else 0,
        "numa_nodes": max(1, len(nodes)),
    }


def record(
    out: str | os.PathLike[str],
    seconds: float,
    command: Sequence[str] = (),
    *,
    buffer_kb: int | None = None,
    tracefs: str | os.PathLike[str] = "/sys/kernel/tracing",
    proc: str | os.PathLike[str] = "/proc",
    progress: bool = False,
) -> Recorded:
    """Record the page allocator of this machine.

    Beside the trace, /proc/zoneinfo is read ten times a second, or less often where that would be
    much, and at once where a sysctl has another value that the sizes of the lists follow from:
    `pcpmodel.replay` goes on with that.

    Parameters
    ----------
    out : path-like
        Directory to make; `pcpmodel.recording` opens it.
    seconds : float
        How long to record [s], above 0 and up to 3600; with a command at most so long.
    command : sequence of str, optional
        Program and arguments to run meanwhile.
    buffer_kb : int, optional
        Ring buffer of each CPU [KiB], 64..4194304; the recording ends when one is full.  Default:
        all CPUs together take a 16th of the memory that is available, each 16 to 256 MiB.
    tracefs, proc : path-like
        Where these file systems are mounted.
    progress : bool
        Show a tqdm bar while the trace is written.

    Returns
    -------
    Recorded

    Raises
    ------
    InputError
        If tracing is not permitted or not there, ``out`` exists, or an argument is out of
        range.  Nothing is left behind then.
    Ended
        On SIGTERM or SIGHUP: the command it started is ended, tracing is put back, and nothing
        is left behind.  Ctrl-C does so too, but while the work is recorded: then it ends the
        recording, which is kept.  What a killed recorder left is removed by the next one.
    """
    out, tracefs, proc = Path(out), Path(tracefs), Path(proc)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InputError(f"seconds={seconds!r} is not a number")
    if not 0 < seconds <= 3600:
        raise InputError(f"seconds={seconds} is not above 0 and at most 3600 s")
    if buffer_kb is None:
        buffer_kb = _room_kb(proc)
    integer("buffer_kb", buffer_kb, 64, 4 << 20)
    if not out.name.isprintable() or not out.name:
        raise InputError(f"{str(out)!r} is no name for a recording")
    if os.path.lexists(out):
        raise InputError("exists already; a recording is never overwritten", file=out)
    if not out.parent.is_dir():
        raise InputError("is no directory", file=out.parent)
    try:
        with shielded() as shield, _beside(out) as partial:
            with (
                instance(tracefs, NEEDED) as here,
                _probes(tracefs, here) as probes,
                watching([*(proc / "sys" / name for name in SIZING), _THP]) as watched,
                open(proc / "zoneinfo", "rb", buffering=0) as zoneinfo,
            ):
                events, functions = _arm(here, buffer_kb)
                with shield.lifted():
                    if not _begin(partial, here, proc):
                        raise InputError(
                            f"buffer_kb={buffer_kb}: a ring buffer was full before the work began"
                        )
                began = time.monotonic()
                counts = _Counts(here, proc, zoneinfo, seconds)
                interrupted, code = _work(command, seconds, shield, watched, counts)
                took = time.monotonic() - began
                with shield.lifted():
                    full = _end(partial, here, proc)
                    seen, last = _export_until_full(here, partial, full, progress)
                    lost = lost_events(here)
                counts.save(partial / "zoneinfo.series.zst")
            meta = {
                "capture": out.name,
                **_machine(partial, proc, max(last, default=0)),
                "workload": " ".join(command) if command else f"this machine for {seconds} s",
                "phases": ["work"],
                "exit_code": code,
                "interrupted": interrupted,
                "full": full,
                "initial_state": "not read: the kernel shows the contents of the lists to no one",
                "options": {"trace_clock": "mono", "buffer_kb": buffer_kb},
                "events": dict(sorted(seen.items())),
                "events_total": sum(seen.values()),
                "events_on": events,
                "function_tracer": functions,
                "probes": probes,
                "lost_events": sum(lost.values()),
                "lost_per_cpu": lost,
            }
            (partial / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", "utf-8")
            sync_tree(partial)
            os.replace(partial, out)
            sync(out.parent)
    except OSError as error:
        raise InputError(f"recording failed: {error.strerror or error}", file=out) from None
    return Recorded(
        out, sum(seen.values()), sum(lost.values()), interrupted, tuple(full),
        round(took, 3), code,
    )  # fmt: skip

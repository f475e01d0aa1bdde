"""An emulated guest in which every source of holds and waits runs at once; do they agree?

    python tools/emulated_guest.py OUT [--kernel linux-image-VERSION] [--pages 25000]
    python tools/emulated_guest.py OUT --again      # only read what the guest wrote

Needs qemu-system-x86_64, apt-get, dpkg-deb, mke2fs and a C compiler; no root, no KVM, nothing is
installed.  The kernel, perf, bpftrace and libbpf-tools are Debian's, unpacked below OUT (700 MB).
The guest has 512 MB and three CPUs: a lock's first waiter spins on the pending bit and emits no
event (kernel/locking/qspinlock.c), so it takes three for a wait to be seen.  A guest that knows
itself to be one does not queue for locks at all; that bit of its CPUs is off.  What runs in it is
tools/guest/run.sh: a thread a CPU allocates and frees under function_graph, kprobes, kmem events,
bpftrace (`pcpmodel measure --script bpftrace`), funclatency, lock contention events and perf.
The times are an emulator's and mean nothing.  What the kernel lacks is named.  Exit code 1 if a
source was not read, or two do not agree.
"""

# SPDX-License-Identifier: GPL-2.0-only

import argparse
import gzip
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from pcpmodel.datasets.measured import KERNEL_FUNCTIONS
from pcpmodel.errors import InputError
from pcpmodel.hardware.latency_input import SCRIPTS, read_by_pages, read_raw
from pcpmodel.hardware.latency_input.bpftrace import Bpftrace, by_pages
from pcpmodel.hardware.latency_input.contention import Contention, side_of
from pcpmodel.hardware.latency_input.function_graph import FunctionGraph
from pcpmodel.hardware.latency_input.lock_table import LockTable
from pcpmodel.hardware.latency_input.raw import lines
from pcpmodel.study.hold_sources import FUNCTIONS
from pcpmodel.trace.hold_tracer import BETWEEN, SIDES, runs
from pcpmodel.trace.raw_buffer import read_pages

HERE = Path(__file__).resolve().parent / "guest"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITES = ("bookworm", "trixie", "sid")
TOOLS = ("linux-perf", "bpftrace", "libbpf-tools", "busybox-static")
#: Modules by which the guest finds its disk, where they are none of the kernel's own.
MODULES = ("virtio_pci", "virtio_blk", "ext4")
APPEND = "console=ttyS0 quiet panic=-1 no_timer_check nokaslr mitigations=off"
CPU = "max,-la57,-hypervisor"


def run(*command: object, **how: object) -> str:
    """Run a command; its output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, text=True, capture_output=True, check=False, **how)
    if done.returncode:
        sys.exit(f"{' '.join(words)[:200]}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout


def mirror() -> str:
    """The Debian mirror from which this machine's own packages come."""
    found = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)").split("\n")
    addresses = {line.partition(" ")[2] for line in found if line.startswith("Debian ")}
    main = sorted(address for address in addresses if "security" not in address)
    if not main:
        sys.exit("apt-get indextargets: no mirror of Debian's; run apt-get update first")
    return main[0]


class Apt:
    """Packages of Debian's, fetched and unpacked, not installed: apt with a state of its own."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        for part in ("lists/partial", "cache/archives/partial"):
            (home / part).mkdir(parents=True, exist_ok=True)
        (home / "status").touch()
        site = mirror()
        lines = (f"deb [signed-by={KEYS}] {site} {suite} main\n" for suite in SUITES)
        (home / "sources.list").write_text("".join(lines))
        settings = {
            "Dir::Etc::SourceList": home / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": home / "lists",
            "Dir::State::status": home / "status",
            "Dir::Cache": home / "cache",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
        }
        (home / "apt.conf").write_text("".join(f'{k} "{v}";\n' for k, v in settings.items()))
        self.home = home
        self.debs = home / "cache" / "archives"
        if not any(home.glob("lists/*Release")):
            run("apt-get", "-c", home / "apt.conf", "update")

    def closure(self, *packages: str) -> list[Path]:
        """Packages and all that they depend on."""
        run("apt-get", "-c", self.home / "apt.conf", "-y", "--download-only", "install", *packages)
        return sorted(self.debs.glob("*.deb"))

    def alone(self, package: str, to: Path) -> list[Path]:
        """A kernel: the package and those of its parts that have its version, nothing else."""
        version = package.removeprefix("linux-image-")
        depends = run("apt-cache", "-c", self.home / "apt.conf", "depends", package)
        parts = [f"linux-{part}-{version}" for part in ("binary", "modules")]
        parts = [package, *(part for part in parts if part in depends)]
        to.mkdir(parents=True, exist_ok=True)
        run("apt-get", "-c", self.home / "apt.conf", "download", *parts, cwd=to)
        return sorted(to.glob("*.deb"))


def unpack(debs: list[Path], to: Path) -> None:
    """Unpack packages below a folder in which /bin and /lib are those of /usr."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (to / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (to / name).is_symlink():
            (to / name).symlink_to(f"usr/{name}")
    for deb in debs:
        run("dpkg-deb", "-x", deb, to)


def needed(kernel: Path) -> dict[str, bytes]:
    """Modules that the guest's disk needs, each after those that it names in its "depends"."""
    files = {p.name.split(".ko")[0].replace("-", "_"): p for p in kernel.rglob("*.ko*")}
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name not in found and name in files:
            raw = plain(files[name])
            named = re.search(rb"\0depends=([^\0]*)\0", raw)
            for other in named[1].decode().split(",") if named else ():
                add(other.replace("-", "_"))
            found[name] = raw

    for name in MODULES:
        add(name)
    return found


def plain(module: Path) -> bytes:
    raw = module.read_bytes()
    return {".xz": lzma.decompress, ".gz": gzip.decompress}.get(module.suffix, bytes)(raw)


def newc(files: dict[str, tuple[int, bytes]]) -> bytes:
    """An initramfs: a cpio archive, form "newc" (Documentation/driver-api/early-userspace)."""

    def padded(raw: bytes) -> bytes:
        return raw + bytes(-len(raw) % 4)

    out = b""
    for number, (name, (mode, raw)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], 1):
        words = (number, mode, 0, 0, 1, 0, len(raw), 0, 0, 0, 0, len(name) + 1, 0)
        head = "070701" + "".join(f"{word:08X}" for word in words)
        out += padded(head.encode() + name.encode() + b"\0") + padded(raw)
    return out


def initramfs(root: Path, kernel: Path) -> dict[str, tuple[int, bytes]]:
    """Shell, modules and first process: mode and content by name."""
    modules = needed(kernel)
    files = {"dev": (0o40755, b""), "bin": (0o40755, b"")}
    files["bin/busybox"] = (0o100755, (root / "usr/bin/busybox").read_bytes())
    files |= {f"{name}.ko": (0o100644, raw) for name, raw in modules.items()}
    files["modules"] = (0o100644, "\n".join(f"{name}.ko" for name in modules).encode())
    files["init"] = (0o100755, (HERE / "init.sh").read_bytes())
    return files


def bpftrace_script() -> str:
    """The package's own, for the load's process alone, until it is stopped."""
    text = SCRIPTS["bpftrace"].replace("interval:s:10 { exit(); }\n", "")
    # Where the allocating side cannot be probed, the other alone: the package's script ends there.
    nothing = " ".join(f"@alloc_{name}[0] = 0;" for name in ("from", "count", "list"))
    text = re.sub(r"else\n  echo .*\n  exit 1\nfi", f"else alloc='BEGIN {{ {nothing} }}'\nfi", text)
    return re.sub(r"(?m)^(kprobe:\w+) \{", r"\1 /pid == (PID)/ {", text)


def boot(out: Path, kernel_package: str, pages: int, cpus: int, minutes: float) -> None:
    """Make the guest, run it, and unpack what it wrote to OUT/got."""
    apt = Apt(out / "apt")
    root, kernel, got = out / "root", out / kernel_package, out / "got"
    if not (root / "usr/bin/busybox").exists():
        print("tools of the guest", file=sys.stderr)
        unpack(apt.closure(*TOOLS), root)
    if not kernel.exists():
        print(kernel_package, file=sys.stderr)
        unpack(apt.alone(kernel_package, out / f"{kernel_package}.debs"), kernel)
    disk, written, load = out / "disk.img", out / "written.img", out / "load"
    if not disk.exists():
        for name in ("guest/bin", "dev", "proc", "sys", "tmp", "out"):
            (root / name).mkdir(parents=True, exist_ok=True)
        run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", root, disk, "1500M")
    run("cc", "-O1", "-static", "-pthread", "-o", load, HERE / "load.c")
    files = initramfs(root, kernel)
    files["guest"] = (0o40755, b"")
    files["guest/load"] = (0o100755, load.read_bytes())
    files["guest/run.sh"] = (0o100755, (HERE / "run.sh").read_bytes())
    files["guest/pages.sh"] = (0o100755, bpftrace_script().encode())
    settings = f"PAGES={pages}\nKMEM='{' '.join((*SIDES.values(), *BETWEEN))}'\n"
    settings += f"PAGE_EVENTS='{' '.join(SIDES.values())}'\n"
    files["guest/settings"] = (0o100644, settings.encode())
    with open(written, "wb") as file:
        file.truncate(512 << 20)
    (out / "initramfs.gz").write_bytes(gzip.compress(newc(files), 1))
    vmlinuz = next(kernel.rglob("vmlinuz*"))
    command = [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", cpus),
        *("-m", "512", "-nographic", "-no-reboot", "-nic", "none", "-kernel", vmlinuz),
        *("-initrd", out / "initramfs.gz", "-append", APPEND),
        *("-drive", f"file={disk},if=virtio,format=raw,snapshot=on"),
        *("-drive", f"file={written},if=virtio,format=raw"),
    ]
    with open(out / "console", "wb") as console:
        how = {"stdin": subprocess.DEVNULL, "stdout": console, "stderr": console, "check": True}
        subprocess.run(list(map(str, command)), timeout=60 * minutes, **how)
    shutil.rmtree(got, ignore_errors=True)
    with tarfile.open(written) as tar:
        tar.extractall(got, filter="data")


# What the sources say ---------------------------------------------------------------------------

PROBE = re.compile(
    r"^\s*.*-(\d+)\s+\[(\d+)\] \S+\s+(\d+)\.(\d{6}): (free|alloc|list)(_return)?: "
    r"\(.*?\)(?: order=(\d+))?(?: pages=(\d+))?\s*$"
)


class Hold(NamedTuple):
    """A function between its two probes [us]."""

    side: str
    cpu: int
    begin: int
    end: int
    pages: int


def probed(text: str) -> list[Hold]:
    """Holds of the probes at entry and return of the functions, in the order of their ends."""
    found, begun = [], {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        event = PROBE.match(line)
        if event is None:
            sys.exit(f"kprobes.txt: not a probe: {line[:100]}")
        at = int(event[3]) * 10**6 + int(event[4])
        open_calls = begun.setdefault((event[1], event[5]), [])  # an interrupt may nest one
        if not event[6]:
            open_calls.append((at, int(event[8] or 0) << int(event[7] or 0)))
        elif open_calls:
            begin, pages = open_calls.pop()
            found.append(Hold(event[5], int(event[2]), begin, at, pages))
    return found


class Agreement:
    """What was compared, a line each."""

    def __init__(self) -> None:
        self.good = True

    def say(self, what: str, text: object) -> None:
        print(f"{what:34} {text}")

    def same(self, what: str, *figures: object) -> None:
        """Say figures that must be the same."""
        alike = all(figure == figures[0] for figure in figures)
        self.good &= alike
        shown = " = ".join(map(str, dict.fromkeys(map(str, figures))))
        self.say(what, shown if alike else f"DIFFER: {' / '.join(map(str, figures))}")

    def holds(self, what: str, number: int, of: int, text: str) -> None:
        """Say of how many a statement is true that must be true of all."""
        self.good &= number == of and of > 0
        self.say(what, f"{'' if number == of and of else 'NOT ALL: '}{number} of {of} {text}")


def _begin(hold: Hold) -> int:
    return hold.begin


def nested(holds: list[Hold]) -> set[Hold]:
    """Holds within another, by an interrupt, and these: where one ends a microsecond is both's."""
    found = set()
    for side, cpu in {(hold.side, hold.cpu) for hold in holds}:
        own = sorted((h for h in holds if (h.side, h.cpu) == (side, cpu)), key=_begin)
        for outer, inner in pairwise(own):
            if inner.end < outer.end:
                found |= {outer, inner}
    return found


def place(us: np.ndarray, own: list[Hold]) -> np.ndarray:
    """Number of the innermost hold around each time; -1: none.  Holds are sorted by their begin."""
    ends = np.array([hold.end for hold in own])
    at = np.searchsorted([hold.begin for hold in own], us, side="right") - 1
    while (late := (at >= 0) & (us > ends[at])).any():
        at[late] -= 1
    return at


def merged(own: list[Hold], pages: list[int], between_us: np.ndarray) -> list[int]:
    """Pages of successive holds of a CPU with no other event between, as `runs` counts them."""
    found: list[int] = []
    end = None
    for hold, n in zip(own, pages, strict=True):
        first, last = (np.searchsorted(between_us, t) for t in (end or 0, hold.begin))
        if end is not None and first == last:
            found[-1] += n
        else:
            found.append(n)
        end = hold.end
    return found


def functions_agree(got: Path, holds: list[Hold], check: Agreement) -> None:
    """function_graph, funclatency and bpftrace against the probes: holds of each function."""
    for side, function in (*KERNEL_FUNCTIONS.items(), ("list", "__rmqueue_pcplist")):
        mine = [hold for hold in holds if hold.side == side]
        if not mine:
            continue
        counts = [len(mine)]
        per_cpu = []
        for path in sorted(got.glob("function_graph.cpu*.txt")):
            reader = FunctionGraph(path)
            for row, line in lines(path):
                reader.line(line, row)
            us = list(reader.found()[function].us)
            cpu = int(re.search(r"cpu(\d+)", path.name)[1])
            own = [hold.end - hold.begin for hold in mine if hold.cpu == cpu]
            per_cpu.append((len(own), len(us)))
            if len(us) == len(own) > 2:
                rank = spearmanr(us, own).statistic
                check.say(f"{function}, CPU {cpu}", f"durations: rank correlation {rank:.3f}")
        counts.append(sum(n for _, n in per_cpu))
        check.same(f"{function}, by CPU", [n for n, _ in per_cpu], [n for _, n in per_cpu])
        path = got / f"funclatency-{function}.txt"
        try:
            tool = read_raw(path, side if side != "list" else "alloc", name=function)
        except InputError as error:  # the load was too short for a percentile
            check.say(f"{function}: funclatency", error.message)
            continue
        check.same(f"{function}: kprobe, graph", *counts)
        # It has one start a task: of a hold and one within it, it sees one.
        twice = len(nested(mine)) // 2
        check.same(f"{function}: and funclatency", len(mine) - twice, tool.samples)
        if side != "list":
            graph = read_raw(got / "function_graph.txt", side)
            check.same(f"{function}, read as one side", graph.samples, len(mine))


def maps_agree(got: Path, holds: list[Hold], events: dict[str, int], check: Agreement) -> None:
    """bpftrace's maps keyed by pages against the probes' pages, and the pages of kmem's events."""
    reader = Bpftrace(got / "bpftrace.txt", None)
    row = 0
    for row, line in lines(got / "bpftrace.txt"):
        reader.line(line, row)
    reader.end(row)
    maps = by_pages(reader.found())
    for side in KERNEL_FUNCTIONS:
        if f"@{side}_ns" not in maps:
            check.say(f"{side}: bpftrace", "cannot be probed")
            continue
        one = {pages: found.samples for pages, found in maps[f"@{side}_ns"].items()}
        asked = Counter(hold.pages for hold in holds if hold.side == side)
        if asked:
            check.same(f"{side}: holds, bpftrace, kprobe", sum(one.values()), asked.total())
            differ = sum(one.get(n, 0) != asked[n] for n in {*one, *asked})
            check.holds(f"{side}: numbers of pages alike", len(asked) - differ, len(asked), "")
        moved = sum(pages * count for pages, count in one.items())
        if side == "alloc":
            check.same("alloc: pages by bpftrace, events", moved, events[side])
        try:
            enough, few = read_by_pages(got / "bpftrace.txt", side)
        except InputError as error:  # the load was too short for a percentile
            check.say(f"{side}: read_by_pages", error.message)
        else:
            text = f"{len(enough)} sizes, {len(few)} with too few holds"
            check.say(f"{side}: read_by_pages", text)


def events_agree(got: Path, holds: list[Hold], check: Agreement) -> dict[str, int]:
    """The kmem events of the raw ring buffer: each page in a probes' hold; holds of `runs`."""
    formats = {event: (got / "events" / event / "format").read_text() for event in SIDES.values()}
    ids = {event: int(re.search(r"^ID: (\d+)", text, re.M)[1]) for event, text in formats.items()}
    order_at = int(re.search(r" order;\s*offset:(\d+)", formats[SIDES["free"]])[1])
    sums = dict.fromkeys(SIDES, 0)
    for path in sorted(got.glob("kmem.cpu*.raw")):
        cpu = int(re.search(r"cpu(\d+)", path.name)[1])
        time_ns, kinds, order, loss = read_pages(path.read_bytes(), 4096, order_at)
        kind = np.zeros(len(kinds), np.int8)
        for number, (side, event) in enumerate(SIDES.items(), 1):
            kind[kinds == ids[event]] = number
            sums[side] += int((1 << order[kinds == ids[event]].astype(int)).sum())
        check.same(f"CPU {cpu}: events lost", int(loss.sum()), 0)
        found, pages, _ = runs(time_ns, kind, np.where(kind > 0, order, 0), loss)
        graph_agrees(got / f"function_graph.cpu{cpu}.txt", kind, order, check)
        for number, side in enumerate(SIDES, 1):
            own = sorted((h for h in holds if h.cpu == cpu and h.side == side), key=_begin)
            if not own:
                continue
            us = time_ns[kind == number] // 1000
            at = place(us, own)
            within = at >= 0
            what = f"CPU {cpu}, {side}"
            check.holds(f"{what}: page events", int(within.sum()), len(us), "in a kprobe hold")
            weight = 1 << order[kind == number].astype(int)
            each = np.bincount(at[within], weight[within], len(own)).astype(int)
            # A drain stops once it has given back what was asked, maybe within a larger block.
            last = np.zeros(len(own), int)
            np.maximum.at(last, at[within], weight[within] - 1)
            both = nested(own)
            most = [h in both or n <= h.pages + m for n, m, h in zip(each, last, own, strict=True)]
            short = sum(n < h.pages for n, h in zip(each, own, strict=True))
            text = f"have no more pages than asked; {short} have fewer, {len(both)} are nested"
            check.holds(f"{what}: kprobe holds", sum(most), len(own), text)
            check.good &= short * 100 <= len(own)
            # The reader leaves out the first and the last run, single pages, and larger blocks.
            known = merged(own, each.tolist(), time_ns[kind == 0] // 1000)
            seen = pages[found == number].tolist()
            odd = 2 + int((last > 0).sum()) + known.count(1)
            text = f"{len(seen)} for {len(known)}, longest {max(seen)} for {max(known)}"
            check.say(f"{what}: holds of measure", text)
            check.good &= len(known) - odd <= len(seen) <= len(known)
    return sums


def graph_agrees(path: Path, kind: np.ndarray, order: np.ndarray, check: Agreement) -> None:
    """The pages within function_graph's calls: holds as the events show them are whole calls."""
    reader = FunctionGraph(path)
    for row, line in lines(path):
        reader.line(line, row)
    for number, side in enumerate(SIDES, 1):
        for function in FUNCTIONS[side]:
            calls = np.array(reader.pages.get(function, ()), int)
            if not calls.any():
                continue
            here = kind == number
            begins = np.flatnonzero(here & np.concatenate(([True], kind[1:] != kind[:-1])))
            pages = np.add.reduceat(here * (1 << order.astype(np.int64)), begins)
            what = f"{path.name}, {function}"
            check.same(f"{what}: pages", int(calls.sum()), int(pages.sum()))
            whole = int(np.isin(np.cumsum(pages), np.cumsum(calls)).sum())
            check.holds(f"{what}: kmem holds", whole, len(pages), "are whole calls")


def waits_agree(got: Path, check: Agreement) -> None:
    """The events as ftrace and perf wrote them, and perf's sums."""
    zone: dict[str, dict[tuple[str, str], int]] = {}
    total = []
    for name in ("waits.txt", "perf-script.txt", "perf-lock.txt", "perf-lock.csv"):
        # Not by read_waits(), which refuses waits as long as an emulator's.
        reader = (Contention if "lock" not in name else LockTable)(got / name, ())
        row = 0
        for row, line in lines(got / name):
            if row > 1 or reader.begins(line) or isinstance(reader, Contention):
                reader.line(line, row)
        try:
            waits, tool, others = reader.end(row), reader.tool, reader.others
        except InputError as error:
            check.say(f"waits, {name}", f"NOT READ: {error.message}")
            check.good = False
            continue
        zone[name] = {(wait.side, wait.caller): wait.waits for wait in waits}
        total.append(sum(zone[name].values()) + others)
        check.say(f"waits, {name}", f"{tool}: {zone[name]}; {others} others")
    # perf's sums name the function above, where function_graph has put return_to_handler.
    check.same("waits of all locks, ftrace, perf", *total[:2])
    check.say("waits of all locks, perf's sums", total[2:])
    check.same(
        "by function, ftrace, perf script", zone.get("waits.txt"), zone.get("perf-script.txt")
    )
    check.same("perf's table and CSV", zone.get("perf-lock.txt"), zone.get("perf-lock.csv"))


RELEASE = re.compile(r"\[(\d+)\] \S+\s+(\d+)\.(\d{6}): contended_release: ")


def releases_agree(got: Path, holds: list[Hold], check: Agreement) -> None:
    """contended_release, where the kernel has it: in a function that the probes saw."""
    found, within = 0, 0
    at = None
    for line in (got / "waits.txt").read_text().splitlines():
        if event := RELEASE.search(line):
            at = int(event[1]), int(event[2]) * 10**6 + int(event[3])
        elif frame := re.match(r" => (\w+)", line):
            if at and side_of(frame[1]):
                cpu, us = at
                found += 1
                within += any(h.cpu == cpu and h.begin <= us <= h.end for h in holds)
                at = None
        elif "<stack trace>" not in line:
            at = None
    if found:
        check.holds("contended_release of zone locks", within, found, "in a kprobe hold")
    elif "contended_release" not in (got / "lacks").read_text():
        check.say("contended_release", "the event is there; no zone lock emitted one")


def compared(got: Path) -> bool:
    """Print what every source says; whether they agree."""
    check = Agreement()
    check.say("kernel", (got / "release").read_text().strip())
    for line in (got / "lacks").read_text().splitlines() if (got / "lacks").exists() else ():
        check.say("lacks", line)
    holds = probed((got / "kprobes.txt").read_text())
    functions_agree(got, holds, check)
    events = events_agree(got, holds, check)
    maps_agree(got, holds, events, check)
    waits_agree(got, check)
    releases_agree(got, holds, check)
    check.say("all agree", check.good)
    return check.good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernel", default="linux-image-7.2.13+deb14-cloud-amd64")
    parser.add_argument("--pages", type=int, default=25_000, help="pages that a thread touches")
    parser.add_argument("--cpus", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=30.0, help="the guest's time at most")
    parser.add_argument("--again", action="store_true", help="only read what the guest wrote")
    given = parser.parse_args()
    if not given.again:
        boot(given.out.resolve(), given.kernel, given.pages, given.cpus, given.minutes)
    return 0 if compared(given.out / "got" / "out") else 1


if __name__ == "__main__":
    sys.exit(main())

"""Give the command line what a hostile or unlucky user gives it.

``python tools/fuzz_cli.py [--cases N] [--seed S] [--jobs J] [--seconds T]
[--case K]``.  Every command line
must end within a minute, with exit code 0, 1 or 2 and, after ``--json``, one JSON text or a
reason on stderr: no traceback, no signal, no hang.  Each runs in a fork of its own, in an empty
directory with the files that it names, under limits of memory and time, so that none disturbs
another; what is wrong is printed with the command line and the number that repeats it
(``--case``), and the exit code is 1.

3,000 cases take about ten minutes on two idle cores.
"""

# SPDX-License-Identifier: GPL-2.0-only

import argparse
import contextlib
import gc
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import fuzz_trace

# No threads before the forks.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

MEMORY = 6 << 30
SECONDS = 60
ODD = (
    *("", " ", "-", "--", "0", "-1", "1e999", "nan", "NaN", "inf", "-inf", "1" * 400, "0.1e-400"),
    *("true", "null", "[]", "{}", "[" * 5000, '{"a":' * 3000, '"\\ud800"', "\udcff", "\0", "a\0b"),
    *(
        "../../etc/passwd",
        "/etc/passwd",
        "/dev/zero",
        "/dev/full",
        "%s%n",
        "{0.__class__}",
        "$(id)",
    ),
    *(
        "\x1b]0;x\x07",
        "ü",
        "\U0001d7d9",
        "1_000",
        "0x10",
        "+1",
        "1,5",
        "a=b=c",
        "name=2",
        "=",
        "x=",
        "=x",
    ),
    *("\u202e", "a" * 100_000, "9" * 19, str(2**63), str(-(2**63)), "1e308", "__import__('os')"),
)
RELEASES = ("v6.6", "v6.6+p1", "v6.18", "v6.19", "v5.12", "debian-6.12.107", "v6.6-p1", "v9")
MACHINES = ("ice-lake", "sapphire-rapids", "mine", "nobody")
WORKLOADS = ("page_fault1", "page_fault2", "exit_storm", "file_churn", "unix_stream", "recorded")
FILES = (
    *("tree", "page_alloc.c", "fix.patch", "config"),
    *("spec.json", "letter.json", "platform.json", "table.csv", "zoneinfo", "zoneinfo.gz", "lscpu"),
    *("graph.txt", "bcc.txt", "recording", "data", "project", "fifo", "link", "loop", "nothing"),
    *("empty", "binary", "deep.json", "surrogate.json", "twice.json", "long.json", "out.nc"),
)
SPEC = {
    "base": {
        "release": "v6.6",
        "machine": "ice-lake",
        "workload": {"name": "page_fault1", "processes": 2},
        "cpus": 2,
        "memory_gib": 2,
        "seconds": 0.002,
    },
    "grid": {"release": ["v6.6", "v6.7"], "seed": [1, 2]},
}
LETTER = {
    "releases": ["v6.6", "v6.6+p1"],
    "machine": "ice-lake",
    "workloads": [{"name": "page_fault1", "processes": 2}],
    "labels": ["base", "patch 1 & \\input{x}"],
    "seeds": 2,
    "figures": ["score_per_s"],
    "options": {"seconds": 0.002, "cpus": 2, "memory_gib": 2, "warmup_s": 0.001},
}
NUMBERS = (0, -1, 1, 2**31, 2**63, 10**400, 1e308, 5e-324, float("nan"), float("-inf"), 1.5)
PATCH = b"""--- a/mm/page_alloc.c
+++ b/mm/page_alloc.c
@@ -1,1 +1,1 @@
-// SPDX-License-Identifier: GPL-2.0-only
+// SPDX-License-Identifier: GPL-2.0-only OR MIT
"""
VALUES = (*NUMBERS, None, True, [], [1], {}, {"a": 1}, "", "x", "\ud800", "\x1b[31m", [[[[1]]]])


def damaged_json(value, dice):
    """A JSON value with one place changed: another value, a key less, twice or more."""
    if dice.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return dice.choice(VALUES)
    if isinstance(value, list):
        at = dice.randrange(len(value))
        return [damaged_json(v, dice) if i == at else v for i, v in enumerate(value)]
    key = dice.choice(list(value))
    if dice.random() < 0.2:
        return {k: v for k, v in value.items() if k != key}
    if dice.random() < 0.2:
        return {**value, dice.choice(("x", "\ud800", "\x1b]", key.upper())): dice.choice(VALUES)}
    return {k: damaged_json(v, dice) if k == key else v for k, v in value.items()}


def damaged(text: bytes, dice) -> bytes:
    """Contents of a file: as they are, changed, or of another kind altogether."""
    if dice.random() < 0.35:
        return text
    try:
        if dice.random() < 0.7:
            value = damaged_json(json.loads(text), dice)
            if dice.random() < 0.3:
                value = damaged_json(value, dice)
            return json.dumps(value).encode()
    except ValueError:
        pass
    return fuzz_trace.mutated(text, dice)


class Material:
    """Good files, read once; each case gets damaged copies."""

    def __init__(self, place: Path) -> None:
        root = fuzz_trace.ROOT
        recording = place / "recording"
        fuzz_trace.small_recording(recording, kept=300)
        self.recording = {p.name: p.read_bytes() for p in recording.iterdir()}
        hardware = root / "data" / "hardware" / "ice-lake"
        self.machine = {p.name: p.read_bytes() for p in hardware.iterdir()}
        notebook = next((root / "notebooks").glob("03-*.ipynb")).read_bytes()
        given = root / "tests" / "data"
        self.graph = [p.read_bytes() for p in sorted((given / "latency").rglob("*")) if p.is_file()]
        zoneinfo = self.recording["zoneinfo.before"]
        self.files = {
            "spec.json": json.dumps(SPEC).encode(),
            "letter.json": json.dumps(LETTER).encode(),
            "platform.json": self.machine["platform.json"],
            "table.csv": self.machine["batch_latency.csv"],
            "zoneinfo": zoneinfo,
            "lscpu": b"Architecture: x86_64\nCPU(s):                2\n",
            "notebook": notebook,
            "page_alloc.c": (root / "pcpmodel/kernel/excerpt/mm/page_alloc.c").read_bytes(),
            "fix.patch": PATCH,
            "config": b"CONFIG_SMP=y\nCONFIG_NUMA=y\n# CONFIG_HIGHMEM is not set\n",
        }

    def lay(self, here: Path, dice: random.Random, used: set[str]) -> None:
        """Put the files that a command line names into a directory."""
        for name in used & self.files.keys():
            (here / name).write_bytes(damaged(self.files[name], dice))
        simple = {
            "empty": b"",
            "binary": dice.randbytes(4096),
            "deep.json": b"[" * 100_000,
            "surrogate.json": b'{"base": {"release": "\\ud800"}}',
            "twice.json": b'{"base": {}, "base": {}}',
            "long.json": b'{"base": ' + b"9" * 100_000 + b"}",
            "out.nc": dice.randbytes(300)
            if dice.random() < 0.5
            else b"CDF\x01" + dice.randbytes(200),
            "graph.txt": damaged(dice.choice(self.graph), dice),
            "bcc.txt": damaged(dice.choice(self.graph), dice),
        }
        for name in used & simple.keys():
            (here / name).write_bytes(simple[name])
        if "zoneinfo.gz" in used:
            import gzip

            packed = gzip.compress(self.files["zoneinfo"])
            (here / "zoneinfo.gz").write_bytes(damaged(packed, dice))
        if "tree" in used:
            (here / "tree" / "mm").mkdir(parents=True)
            made = damaged(self.files["page_alloc.c"], dice)
            (here / "tree" / "mm" / "page_alloc.c").write_bytes(made)
        if "fifo" in used:
            os.mkfifo(here / "fifo")
        if "link" in used:
            (here / "link").symlink_to("nothing")
        if "loop" in used:
            (here / "loop").symlink_to("loop")
        if "recording" in used:
            (here / "recording").mkdir()
            hurt = dice.choice(list(self.recording))
            for name, content in self.recording.items():
                made = damaged(content, dice) if name == hurt else content
                (here / "recording" / name).write_bytes(made)
        if used & {"data", "project"}:
            self._package(here / "data" / "hardware" / "mine", dice)
        if "project" in used:
            project = here / "project"
            (project / "notebooks").mkdir(parents=True)
            shutil.copytree(here / "data", project / "data")
            (project / "notebooks" / "n.ipynb").write_bytes(damaged(self.files["notebook"], dice))
            report = project / "reports" / "n" / dice.choice(("all", "mine"))
            report.mkdir(parents=True)
            record = {"run": f"n/{report.name}", "inputs": {}, "outputs": []}
            (report / "inputs.json").write_bytes(damaged(json.dumps(record).encode(), dice))

    def _package(self, target: Path, dice: random.Random) -> None:
        target.mkdir(parents=True)
        hurt = dice.choice([*self.machine, "none"])
        renamed = self.machine | {
            "datapackage.json": self.machine["datapackage.json"].replace(b'"ice-lake"', b'"mine"')
        }
        for name, content in renamed.items():
            (target / name).write_bytes(damaged(content, dice) if name == hurt else content)


def command(dice: random.Random) -> list[str]:
    """One command line: mostly sensible, with something odd in it."""

    def odd(*usual: str, share: float = 0.3) -> str:
        if dice.random() < share:
            return dice.choice((*ODD, *FILES))
        return dice.choice(usual)

    def perhaps(*option: str, share: float = 0.4) -> list[str]:
        return list(option) if dice.random() < share else []

    def pair(*names: str) -> str:
        value = dice.choice((*ODD, "1", "2", "0.5", "true", "mine"))
        return odd(f"{dice.choice(names)}={value}", share=0.15)

    small = ["--seconds", odd("0.001", "0.002", share=0.1), "--cpus", odd("2", "4", share=0.15)]
    small += ["--memory-gib", odd("2", share=0.1)]
    verbs = {
        "releases": list,
        "explain": lambda: [
            *("--zoneinfo", odd("zoneinfo", "zoneinfo", "zoneinfo.gz", "fifo")),
            *perhaps("--release", odd(*RELEASES)),
            *perhaps("--cpus-per-node", odd("1", "2", "1,1", "2,2")),
            *perhaps("--high-fraction", odd("0", "8", "100")),
            *perhaps("--page-size", odd("4096", "16384", "65536")),
        ],
        "data check": lambda: [odd("data", "data", "project", ".")],
        "data add latency": lambda: [
            *perhaps(odd("table.csv"), share=0.7),
            *("--machine", odd("new", "mine", share=0.15)),
            *perhaps("--free", odd("63=graph.txt", "63=bcc.txt", "63=fifo")),
            *perhaps("--alloc", odd("63=graph.txt", "63=bcc.txt")),
            *perhaps("--unit", odd("ns", "us")),
            *perhaps("--throughput", odd("63=1e6")),
            *perhaps("--platform", odd("platform.json")),
            *("--data", odd("data", share=0.1)),
            *perhaps("--replace"),
        ],
        "data add workload": lambda: [
            *(odd("recording", share=0.2), "--name", odd("new", share=0.2)),
            *perhaps("--page-us", odd("0.5")),
            *("--data", odd("data", share=0.1)),
        ],
        "data add report": lambda: [
            *(odd("letter.json", "report", share=0.3), *perhaps("--name", odd("new"))),
            *("--data", odd("data", share=0.1)),
        ],
        "data list": lambda: ["--data", odd("data", "project", ".")],
        "data remove": lambda: [
            *(odd("mine", "hardware/mine"), *perhaps("--yes", share=0.7), *perhaps("--force")),
            *("--data", odd("data", share=0.1)),
        ],
        "data update platform": lambda: [
            *(odd("mine", share=0.1), pair("cpus", "nodes", "memory_gib", "title", "x")),
            *perhaps(pair("page_size_kib", "name", "tool")),
            *("--data", odd("data", share=0.1)),
        ],
        "tree": lambda: [
            *(odd("tree", "page_alloc.c", share=0.15), "--operations", odd("0", "500", "2000")),
            *perhaps("--against", odd(*RELEASES)),
            *perhaps("--patch", odd("fix.patch"), share=0.2),
            *perhaps("--config", odd("config"), share=0.2),
        ],
        "fit": lambda: [odd(*MACHINES)],
        "init": lambda: [odd("workspace", share=0.1)],
        "limit": lambda: [
            *(odd(*MACHINES), "--p99-us", odd("100", "50")),
            *perhaps("--slowdown", odd("2")),
        ],
        # Never the measurement itself: it loads the machine for minutes.
        "measure": lambda: [
            *("--dry-run", odd("mine", share=0.1)),
            *perhaps("--script", odd("bpftrace", "ftrace", "perf")),
            *perhaps("--minutes", odd("1", "0.1")),
            *perhaps("--cpus", odd("0", "0-1")),
            *perhaps("--data", odd("data", share=0.1)),
        ],
        # Neither is this one measured.
        "validate": lambda: [
            *(odd("amd-epyc-vm", "mine", share=0.1), dice.choice(("--stored", "--dry-run"))),
            *perhaps("--fraction", odd("0", "128")),
            *perhaps("--minutes", odd("1", "0.1")),
            *perhaps("--data", odd("data", share=0.1)),
        ],
        "numa": lambda: [
            *("--scale", odd("0.002", share=0.1)),
            *perhaps("--before", odd("v5.12", "v5.13")),
            *perhaps("--processes", odd("2", "8")),
            *perhaps("--threads", odd("2")),
            *perhaps("--pattern", odd("normal", "uniform")),
        ],
        "simulate": lambda: [
            *("--release", odd(*RELEASES, share=0.1), "--machine", odd(*MACHINES, share=0.1)),
            *("--workload", odd(*WORKLOADS, share=0.1), "--processes", odd("2", share=0.1)),
            *small,
            *perhaps("--param", pair("pages", "name", "jobs", "recording", "threads", "x")),
            *perhaps(
                "--set",
                pair(
                    "warmup_s",
                    "jitter",
                    "batch_scale_max",
                    "host",
                    "changes",
                    "x",
                    "engine",
                    "high_pages",
                    "watermark_scale_factor",
                    "policy",
                ),
            ),
        ],
        "compare": lambda: [odd("nothing", share=0.9)],
        "sweep": lambda: [
            *(odd("spec.json"), "--out", odd("new.nc", "out.nc", "fifo")),
            *perhaps("--workers", odd("1", "2")),
            *perhaps("--scheduler", odd("x", "tcp://127.0.0.1:1"), share=0.04),
        ],
        "replay": lambda: [
            *(odd("recording", share=0.2), *perhaps("--release", odd(*RELEASES))),
            *perhaps("--what-if", odd(*RELEASES), share=0.2),
        ],
        "record": lambda: [
            *("--out", odd("new"), "--seconds", odd("0.01")),
            *perhaps("--buffer-kb", odd("64")),
            *perhaps("--", odd("/bin/true")),
        ],
        "cover-letter": lambda: [
            odd("letter.json", share=0.15),
            *perhaps("--format", odd("text", "csv", "latex")),
        ],
        "advise": lambda: [
            *("--zoneinfo", odd("zoneinfo")),
            *perhaps("--lscpu", odd("lscpu", "lscpu", "fifo")),
            *perhaps("--p99-us", odd("50")),
            *perhaps("--stranded-percent", odd("5")),
            *perhaps("--release", odd(*RELEASES)),
        ],
        "rerun": lambda: [
            *("--project", odd("project", share=0.1), "--dry-run", *perhaps("--why")),
            *perhaps(
                "--param", pair("p99_us", "slowdown", "machine", "report_dir", "x"), share=0.6
            ),
            *perhaps(odd("n", "n/mine"), share=0.3),
        ],
        "pdf": lambda: [
            *(odd("n", "n/mine"), "--project", odd("project", share=0.1)),
            *perhaps("--with", odd("chromium", "pdflatex")),
            *perhaps("--out", odd("new.pdf", "fifo")),
        ],
        "figures": lambda: [
            *("--project", odd("project", share=0.1), "--dry-run"),
            *perhaps("--param", pair("p99_us", "x")),
            *perhaps("--size", odd("slide")),
        ],
    }
    slow = ("fit", "limit", "numa", "cover-letter", "tree")  # seconds each: fewer of them
    verb = dice.choices(list(verbs), [0.3 if verb in slow else 1 for verb in verbs])[0]
    made = [*verb.split(), *verbs[verb](), *perhaps("--json")]
    if dice.random() < 0.05:
        made.insert(dice.randrange(len(made) + 1), dice.choice(ODD))
    if dice.random() < 0.03:
        made.pop(dice.randrange(len(made)))
    if "compare" in made and all(a.startswith("--") for a in made if a != "compare"):
        made.append("nothing")  # without a table it simulates all of them, for minutes
    return made


def run(arguments: list[str], out: io.StringIO, err: io.StringIO) -> int:
    """The exit code of a command line, as a shell would see it."""
    from pcpmodel.cli import main

    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments, prog_name="pcpmodel")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            return 99
    return 0


def complaint(code: int, arguments: list[str], out: str, err: str) -> str | None:
    """What is wrong with how a command line ended."""
    if "Traceback" in err or code not in (0, 1, 2):
        return f"exit code {code}: {err[-1500:]}"
    if code and not err.strip():
        return f"exit code {code} without a word"
    if "\x1b" in out + err.replace("\x1b[A", ""):
        return "a terminal escape is printed raw"
    if "--" in arguments:  # the rest is another program's
        arguments = arguments[: arguments.index("--")]
    text = not {"--help", "--script"}.isdisjoint(arguments)  # these print it, and that is all
    if "--json" in arguments and code == 0 and out and not text:
        try:
            json.loads(out)
        except ValueError:
            return f"no JSON: {out[:300]!r}"
    return None


def one(number: int, seed: int, place: Path, material: Material) -> tuple[list[str], str]:
    """Run a case in this process, a fork that is thrown away; (command line, how it ended)."""
    dice = random.Random(f"{seed}/{number}")
    arguments = command(dice)
    here = place / str(number)
    here.mkdir()
    os.chdir(here)
    # What an option such as 63=graph.txt names is there too.
    named = {a.rpartition("=")[2] for a in arguments} | set(arguments)
    if "data" in arguments:  # never the checkout's, wherever --data got lost
        os.environ["PCPMODEL_DATA"] = str(here / "data")
    material.lay(here, dice, named & set(FILES))
    out, err = io.StringIO(), io.StringIO()
    code = run(arguments, out, err)
    wrong = complaint(code, arguments, out.getvalue(), err.getvalue())
    return arguments, f"{code}" if wrong is None else wrong


def started(number: int, seed: int, place: Path, material: Material) -> tuple[int, float]:
    """Fork; (its process, when it began).  Its answer is a file beside its directory."""
    pid = os.fork()
    if pid:
        return pid, time.monotonic()
    try:
        os.setpgid(0, 0)  # so that what it starts ends with it
        fuzz_trace.limit_memory(MEMORY)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        null = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(null, handle)
        try:
            answer = one(number, seed, place, material)
        except BaseException:
            answer = ([], "of the campaign itself: " + traceback.format_exc())
        (place / f"{number}.json").write_text(json.dumps(answer))
    finally:
        os._exit(0)  # whatever happens: what the campaign would undo at its end is not undone here


def campaign(
    cases: range, seed: int, jobs: int = 2, told=None, seconds: float = SECONDS
) -> tuple[Counter, list[str], list[tuple[float, float, int]]]:
    """Run cases; (how many ended with which exit code, what went wrong, what took long).

    The last are the longest three: seconds, of a CPU (its children's too), number of the case.
    """
    # Paid once, not in every fork.
    import distributed  # noqa: F401

    import pcpmodel.cli
    import pcpmodel.reports.publish
    import pcpmodel.study.hold.limit
    import pcpmodel.study.published.cover_letter
    import pcpmodel.trace.replay  # noqa: F401

    gc.freeze()  # what a fork would otherwise copy to look for garbage

    ends: Counter = Counter()
    wrong = []
    longest: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        place = Path(scratch)
        os.environ["TMPDIR"] = os.environ["XDG_CACHE_HOME"] = scratch
        material = Material(place)
        waiting, running = list(cases)[::-1], {}
        while waiting or running:
            while waiting and len(running) < jobs:
                number = waiting.pop()
                running[number] = started(number, seed, place, material)
            time.sleep(0.005)
            for number, (pid, began) in list(running.items()):
                done, status, used = os.wait4(pid, os.WNOHANG)
                took = time.monotonic() - began
                if not done and took <= seconds:
                    continue
                if not done:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                    _, status, used = os.wait4(pid, 0)
                del running[number]
                longest = sorted((*longest, (took, used.ru_utime + used.ru_stime, number)))[-3:]
                answer = place / f"{number}.json"
                text = answer.read_text() if answer.exists() else ""
                arguments, end = json.loads(text) if text else (command_of(number, seed), "")
                if not done:
                    end = f"still running after {seconds:g} s"
                elif not text:
                    end = f"ended without an answer, wait status {status:#x}"
                ends[end if end in ("0", "1", "2") else "wrong"] += 1
                if end not in ("0", "1", "2"):
                    shown = [a[:80] for a in arguments]
                    wrong.append(f"case {number} of seed {seed}: {shown}: {end}")
                    print(wrong[-1], flush=True)
                answer.unlink(missing_ok=True)
                shutil.rmtree(place / str(number), ignore_errors=True)
            if told:
                told(sum(ends.values()), ends, wrong)
    return ends, wrong, longest[::-1]


def command_of(number: int, seed: int) -> list[str]:
    """The command line of a case."""
    return command(random.Random(f"{seed}/{number}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="forks at once")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="longest that one may take; more if busy"
    )
    parser.add_argument("--case", type=int, help="repeat this one alone")
    args = parser.parse_args()
    cases = range(args.cases) if args.case is None else range(args.case, args.case + 1)
    began, said = time.monotonic(), [0]

    def told(done: int, ends: Counter, wrong: list[str]) -> None:
        if done >= said[0] + 100:
            said[0] = done
            took = time.monotonic() - began
            print(f"{done} command lines, {took:.0f} s: {dict(sorted(ends.items()))}", flush=True)

    ends, wrong, longest = campaign(cases, args.seed, args.jobs, told, args.seconds)
    print(f"{sum(ends.values())} command lines, {time.monotonic() - began:.0f} s: {dict(ends)}")
    for took, cpu, number in longest:
        shown = " ".join(a[:40] for a in command_of(number, args.seed))
        print(f"case {number} took {took:.1f} s, {cpu:.1f} s of a CPU: {shown[:150]!a}")
    print(f"{len(wrong)} went wrong" if wrong else "nothing went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

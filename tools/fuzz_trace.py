"""Feed damaged traces and recordings to the reader and the replay.

``python tools/fuzz_trace.py [--lines N] [--recordings N] [--seed S] [--repeat R]
[--recording NAME] [--kept LINES]``.  Every one must end
in an answer or in an InputError; anything else is printed with what is needed to
repeat it, and the exit code is 1.  A crash, and a case that takes more than a
minute of a CPU, ends the run with a traceback; the last line of fuzz-*/cases in the
directory for temporary files names the case.  A recording is damaged in any
of its files (bytes, numbers, lines), loses some, or has its markers moved,
doubled, dropped, exchanged and renamed.  Memory must not grow: after every tenth it
is printed what the process holds and what of it is allocated.  The first may grow,
as the holes that a large case leaves are filled by others; the second, if it goes
up when the same cases are repeated, is a leak, and the exit code is 1.
"""

# SPDX-License-Identifier: GPL-2.0-only

import argparse
import ctypes
import faulthandler
import gc
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the sanitizer's core, where it lies here

import pcpmodel as pm  # noqa: E402
from pcpmodel.errors import InputError  # noqa: E402
from pcpmodel.trace.ftrace import read_trace  # noqa: E402
from pcpmodel.trace.packed import open_text  # noqa: E402

RECORDING = "6.18-pf1-2cpu"
KEPT = 1500  # lines of the recording after its first dump
LEAK_MIB = 0.5  # Python's own caches come and go
LISTS = ("trace.txt", "buddylists.after", "pcpstate.after", "pcpstate.snapA")
MOST_S = 60  # that one case may take of a CPU [s]
NUMBERS = (
    *(b"0", b"-1", b"1", b"0x0", b"0xffffffffffffffff", b"18446744073709551616", b"4294967296"),
    *(b"2147483647", b"-9223372036854775808", b"99999999999999999999999", b"1e9", b""),
)


def mutated(text: bytes, dice: random.Random) -> bytes:
    """A few changes: bytes, numbers, pieces cut, doubled or moved."""
    for _ in range(dice.randint(1, 4)):
        if not text:
            return text
        at = dice.randrange(len(text))
        to = min(len(text), at + dice.choice((1, 1, 2, 8, 64, 4096)))
        kind = dice.randrange(6)
        if kind == 0:
            text = text[:at] + bytes([dice.randrange(256)]) + text[at + 1 :]
        elif kind == 1:
            text = text[:at] + text[to:]
        elif kind == 2:
            text = text[:to] + text[at:]
        elif kind == 3:
            other = dice.randrange(len(text))
            text = text[:other] + text[at:to] + text[other:]
        elif kind == 4:
            digits = at
            while digits < len(text) and not chr(text[digits]).isdigit():
                digits += 1
            end = digits
            while end < len(text) and chr(text[end]).isalnum():
                end += 1
            text = text[:digits] + dice.choice(NUMBERS) + text[end:]
        else:
            text = text[:to] if dice.random() < 0.1 else text
    return text


def moved(text: bytes, dice: random.Random) -> bytes:
    """A few lines lost, doubled, or each in the place of another."""
    lines = text.splitlines(keepends=True)
    for _ in range(dice.randint(1, 4)):
        i, j = dice.randrange(len(lines)), dice.randrange(len(lines))
        kind = dice.randrange(3)
        if kind == 0:
            lines[i] = b""
        elif kind == 1:
            lines[i] += lines[j]
        else:
            lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


def remarked(text: bytes, dice: random.Random) -> bytes:
    """Markers moved, doubled, dropped, exchanged or renamed, often with a time that fits."""
    lines = text.splitlines(keepends=True)
    for _ in range(dice.randint(1, 3)):
        marks = [i for i, line in enumerate(lines) if b"tracing_mark_write: pcpmodel: " in line]
        if not marks:
            break
        i, j = dice.choice(marks), dice.choice(marks)
        kind = dice.randrange(5)
        if kind == 0:
            del lines[i]
        elif kind == 1:  # exchanged
            one, two = (lines[k].partition(b"pcpmodel: ") for k in (i, j))
            lines[i], lines[j] = one[0] + one[1] + two[2], two[0] + two[1] + one[2]
        elif kind == 2:  # renamed: begin for end, another tag
            old, new = dice.choice(
                ((b"-end", b"-begin"), (b"-begin", b"-end"), (b"before", b"after"),
                 (b"after", b"before"), (b"snapA", b"before"), (b"state", b"snapshot"))
            )  # fmt: skip
            lines[i] = lines[i].replace(old, new)
        else:  # moved or doubled
            line = lines[i] if kind == 3 else lines.pop(i)
            far = dice.choice((1, 5, 50, 2000, len(lines)))
            at = min(max(i + dice.randint(-far, far), 0), len(lines) - 1)
            when, here = (re.search(rb" \d+\.\d{6}: ", t) for t in (line, lines[at]))
            if when and here and dice.random() < 0.7:
                line = line.replace(when[0], here[0], 1)
            lines.insert(at, line)
    return b"".join(lines)


def small_recording(target: Path, recording: str = RECORDING, kept: int = KEPT) -> dict[str, bytes]:
    """The first lines of a recording and all its markers, as plain files; their contents."""
    source = ROOT / "data" / "traces" / recording
    cap = pm.recording(source)
    target.mkdir()
    for path in source.iterdir():
        if not path.name.startswith("trace.txt"):
            name = path.name.removesuffix(".gz").removesuffix(".zst")
            (target / name).write_bytes(b"".join(open_text(path)))
    lines = b"".join(open_text(cap.file("trace.txt"))).splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if b"state-before-end" in line)
    marks = [line for line in lines[first + kept :] if b"tracing_mark_write" in line]
    (target / "trace.txt").write_bytes(b"".join(lines[: first + kept] + marks))
    return {path.name: path.read_bytes() for path in sorted(target.iterdir())}


def limit_memory(most: int) -> None:
    """Let this process map that many bytes; any number under AddressSanitizer, which maps all."""
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def held_mib() -> float:
    """Memory that this process holds now [MiB]."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


class Mallinfo(ctypes.Structure):
    """struct mallinfo2 of the GNU C library."""

    _fields_ = [(f"field{k}", ctypes.c_size_t) for k in range(10)]


def allocated_mib() -> float:
    """Memory that this process has allocated and not freed [MiB].

    As malloc() knows it, or the sanitizer in its place; what Python keeps in arenas of
    its own is counted with PYTHONMALLOC=malloc only.
    """
    gc.collect()
    c = ctypes.CDLL(None)
    try:
        count = c.__sanitizer_get_current_allocated_bytes
    except AttributeError:
        c.mallinfo2.restype = Mallinfo
        info = c.mallinfo2()
        return (info.field4 + info.field7) / 2**20  # hblkhd, uordblks
    count.restype = ctypes.c_size_t
    return count() / 2**20


def fuzz_lines(n: int, seed: int, good: bytes) -> tuple[int, int, list[str]]:
    """Damage single lines; (read, refused, what went wrong)."""
    dice = random.Random(seed)
    lines = good.splitlines(keepends=True)
    head = b"".join(line for line in lines if line.startswith(b"#"))
    body = [line for line in lines if not line.startswith(b"#")]
    read = refused = 0
    wrong = []
    for i in range(n):
        line = mutated(dice.choice(body), dice)
        try:
            events, _ = read_trace(head + line)
            read += 1
            if len(events) > line.count(b"\n") + 1:
                wrong.append(f"line {i} of seed {seed}: more events than lines: {line!r}")
        except InputError:
            refused += 1
        except Exception as error:
            wrong.append(f"line {i} of seed {seed}: {error!r} from {line[:200]!r}")
    return read, refused, wrong


def fuzz_recordings(n: int, seed: int, recording: Path, files: dict[str, bytes], last=None):
    """Damage whole recordings; (replayed, refused, what went wrong); *last* gets their names."""
    last = last or open(os.devnull, "w")  # noqa: SIM115
    replayed = refused = 0
    wrong = []
    for i in range(n):
        dice = random.Random(f"{seed}/{i}")
        names = dice.sample(sorted(files), dice.choice((1, 1, 1, 2)))
        if dice.random() < 0.6:
            names = [dice.choice(("trace.txt", *names))]
        for name in names:
            damage = moved if name in LISTS and dice.random() < 0.5 else mutated
            if name == "trace.txt" and dice.random() < 0.6:
                damage = remarked
            (recording / name).write_bytes(damage(files[name], dice))
            if name != "trace.txt" and dice.random() < 0.1:
                (recording / name).unlink()
        if dice.random() < 0.1:  # as a kernel gives it that shows its lists to no one
            hidden = [n for n in files if n.startswith(("pcpstate", "buddylists", "pageblocks"))]
            for name in hidden:
                (recording / name).unlink(missing_ok=True)
            names += hidden
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
        print(f"recording {i} of seed {seed}: {', '.join(names)}", file=last, flush=True)
        try:
            found = pm.replay(recording)
            repr(found), found.as_dict()
            if dice.random() < 0.25:
                repr(pm.what_if(recording, ["v6.6", "v7.2"]))
            replayed += 1
        except InputError:
            refused += 1
        except Exception as error:
            wrong.append(f"recording {i} of seed {seed} ({', '.join(names)}): {error!r}")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        for name in names:
            (recording / name).write_bytes(files[name])
    return replayed, refused, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--recordings", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1, help="times to go through the same cases")
    parser.add_argument("--recording", default=RECORDING, help="the one that is damaged")
    parser.add_argument("--kept", type=int, default=KEPT, help="lines of it after its first dump")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="fuzz-"))
    last = (scratch / "cases").open("w")  # the last line is the case that crashed
    faulthandler.enable()
    faulthandler.register(signal.SIGVTALRM, chain=True)  # which ends the run
    wrong = []
    try:
        recording = scratch / "recording"
        files = small_recording(recording, args.recording, args.kept)
        for name, work, total in (
            ("lines", lambda n, s: fuzz_lines(n, s, files["trace.txt"]), args.lines),
            (
                "recordings",
                lambda n, s: fuzz_recordings(n, s, recording, files, last),
                args.recordings,
            ),
        ):
            ends = []
            for _ in range(args.repeat if total else 0):
                start = time.perf_counter()
                good = bad = 0
                for part in range(10):
                    a, b, found = work(total // 10, args.seed * 1000 + part)
                    good, bad, wrong = good + a, bad + b, wrong + found
                    print(
                        f"{good + bad} damaged {name}: {good} read, {bad} refused, "
                        f"{time.perf_counter() - start:.0f} s; {held_mib():.1f} MiB held, "
                        f"{allocated_mib():.3f} MiB allocated",
                        flush=True,
                    )
                ends.append(allocated_mib())
            if len(ends) > 1 and ends[-1] - ends[0] > LEAK_MIB:
                wrong.append(f"{name}: repeated, they leave {ends[-1] - ends[0]:.3f} MiB allocated")
    finally:
        shutil.rmtree(scratch)
    print("\n".join(wrong[:50]) if wrong else "nothing went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""How many commands of a kernel build run at once: with few CPUs, of ``make`` with many jobs.

    python tools/build_phases.py TREE DIRECTORY [--config defconfig] [--jobs 28 224 512]

Writes ``data/workload/build-phases``.  Builds the kernel sources TREE (v6.12 of Debian's
linux-source-6.12) in DIRECTORY once, and notes what every command of its makefiles takes; then
``make`` runs again with each number of jobs, and whatever is compiled sleeps a multiple of what it
took instead, and what is linked, packed or checked takes that multiple.  So the dependences and the
jobs are make's own.  Takes 40 minutes on two CPUs; needs cc, flex, bison, bc, libelf, libssl and
5 GB.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from summarise_native import write

#: Times as long, of so many jobs at most: what is not compiled must find a CPU.
SLOW = {64: 5, 1024: 8}
#: What takes less of a CPU is no job [s].
LEAST = 0.01

RUNNING = [
    ("jobs", "integer", "1", "make -j of so many"),
    ("running", "integer", "1", "commands at once"),
    ("time_s", "number", "s", "each on a CPU of its own"),
]


def lines(log: Path) -> list[list[str]]:
    return [line.split("\t") for line in log.read_text(encoding="utf-8").splitlines()]


def build(make: list[str], told: dict[str, str]) -> None:
    subprocess.run(make, env=os.environ | told, stdout=subprocess.DEVNULL, check=True)


def running(log: Path, slow: float) -> dict[int, float]:
    """Commands at once -> time [s]."""
    moments: list[tuple[float, int]] = []
    for _, _, _, begin, end, cpu, _, _ in lines(log):
        if float(cpu) > LEAST:
            moments += [(float(begin), 1), (float(end), -1)]
    moments.sort()
    found: Counter[int] = Counter()
    now, last = 0, moments[0][0]
    for moment, step in moments:
        found[now] += moment - last
        now, last = now + step, moment
    return {n: round(time / slow, 3) for n, time in sorted(found.items()) if time / slow >= 0.001}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tree", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--config", default="defconfig")
    parser.add_argument("--jobs", type=int, nargs="+", default=[28, 224, 512])
    given = parser.parse_args()
    here = given.directory.resolve()
    shell, first, saved = here / "shell", here / "first.log", here / "saved"
    here.mkdir(exist_ok=True)
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O2", "-o", shell, source], check=True)
    make = ["make", "-C", str(given.tree.resolve()), "ARCH=x86_64"]
    if not first.exists():
        build([*make, f"O={saved}", given.config], {})
        part = here / "first.part"
        part.unlink(missing_ok=True)
        cpus = str(os.cpu_count())
        build([*make, f"O={saved}", "-j", cpus, f"SHELL={shell}"], {"LOG": str(part)})
        part.rename(first)
    costs = here / "costs"
    costs.write_text(
        "".join(f"{row[7]}\t{row[5]}\n" for row in lines(first) if row[6] in ("CC", "AS")),
        encoding="utf-8",
    )
    rows: list[tuple[object, ...]] = []
    for jobs in given.jobs:
        slow = next(times for most, times in SLOW.items() if jobs <= most)
        again, log, part = here / "again", here / f"{jobs}.log", here / f"{jobs}.part"
        if not log.exists():
            shutil.rmtree(again, ignore_errors=True)
            part.unlink(missing_ok=True)
            again.mkdir()
            shutil.copy(saved / ".config", again)
            told = {"LOG": part, "COSTS": costs, "SAVED": saved, "SLOW": slow}
            build(
                [*make, f"O={again}", "-j", str(jobs), f"SHELL={shell}"],
                {name: str(value) for name, value in told.items()},
            )
            part.rename(log)
        rows += [(jobs, n, time) for n, time in running(log, slow).items()]
    write(
        "build-phases",
        "How many commands of a kernel build run at once",
        {
            "title": f"{given.tree.resolve().name}, {given.config}, x86_64",
            "note": "tools/build_phases.py: a guest of the Sapphire Rapids class, two CPUs, gcc "
            "12. What is compiled slept a multiple of what it had taken.",
        },
        {"running": (RUNNING, rows)},
    )


if __name__ == "__main__":
    main()

"""How long the LRU lock is held, from where samples of the CPU's time are told: on this machine.

    python tools/lru_holds.py [--rounds 6] [--zone]

Writes ``data/workload/lru-holds``; with ``--zone`` says what a page of the zone lock's holds takes,
with lists of four batches, and writes nothing.  Nothing is traced.  A sample that falls due while
interrupts are off is told as they come on again: those in _raw_spin_unlock_irqrestore(), called by
folio_batch_move_lru() or folios_put_refs(), are of the holds of the LRU lock, as many of all as
these are of the CPU's time; those of rmqueue_bulk() and free_pcppages_bulk(), or of what they are
inlined in, of the zone lock's.  The period is another one each time, for the load goes round, too.
Needs root, perf, cc, a kernel since v6.9, and a machine with nothing else to do, for two minutes.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import argparse
import platform
import random
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from lock_shares import FRACTION
from summarise_native import write

SECONDS = 4.0
#: Memory that is mapped, touched and unmapped [MiB].
MIBS = (1, 16, 128)
PERIOD_NS = (150_000, 250_000)
_UNLOCK = "_raw_spin_unlock_irqrestore"
#: Who holds the LRU lock: for pages that go to the lists, that leave them; and who the zone lock.
_SIDES = {
    "folio_batch_move_lru": "added",
    "folios_put_refs": "removed",
    "rmqueue_bulk": "refilled",
    "__rmqueue_pcplist": "refilled",
    "free_pcppages_bulk": "drained",
    "free_frozen_page_commit": "drained",
}

HOLDS = [
    ("mib", "integer", "MiB", "mapped, touched and unmapped by one CPU, page by page"),
    ("round", "integer", "1", "number of the round"),
    ("pages", "integer", "pages", "faulted and freed"),
    ("page_ns", "number", "ns", "of a page, all that the CPU does"),
    ("period_ns", "integer", "ns", "from one sample to the next"),
    ("samples", "integer", "1", "taken"),
    ("added", "integer", "1", "of these in holds of the LRU lock for pages that go to its lists"),
    ("removed", "integer", "1", "for pages that leave them"),
]


def samples(data: Path) -> Counter[str]:
    """Samples by what they are of; all of them under ``all``."""
    script = ["perf", "script", "-i", str(data), "-F", "ip,sym"]
    told = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    found: Counter[str] = Counter()
    for sample in told.split("\n\n"):
        names = re.findall(r"^\s*[0-9a-f]+ (\S+)", sample, re.MULTILINE)
        if names:
            found["all"] += 1
            if names[0] == _UNLOCK and len(names) > 1 and names[1] in _SIDES:
                found[_SIDES[names[1]]] += 1
    return found


def once(made: Path, mib: int, dice: random.Random) -> tuple[int, float, int, Counter[str]]:
    """Run the load: pages, what each took [ns], the period [ns], and samples."""
    period, data = dice.randint(*PERIOD_NS), made / "samples"
    load = [str(made / "load"), "faults", "1", str(SECONDS), str(mib)]
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-c", str(period), "-g"]
    told = subprocess.run(
        [*record, "-o", str(data), *load], check=True, capture_output=True, text=True
    ).stdout
    pages, page_ns = told.split()
    return int(pages), float(page_ns), period, samples(data)


def measure(made: Path, rounds: int) -> list[tuple[object, ...]]:
    dice = random.Random(1)
    rows: list[tuple[object, ...]] = []
    for number in range(1, rounds + 1):
        for mib in MIBS:
            pages, page_ns, period, found = once(made, mib, dice)
            rows.append(
                (mib, number, pages, page_ns, period, found["all"], found["added"],
                 found["removed"])
            )  # fmt: skip
    return rows


def of_zone(made: Path, rounds: int) -> None:
    """Print what a page takes of holds of the zone lock, where lists keep next to none [ns]."""
    dice = random.Random(1)
    ns: dict[str, list[float]] = {"refilled": [], "drained": []}
    before = FRACTION.read_text(encoding="ascii")
    FRACTION.write_text("100000", encoding="ascii")
    try:
        for _ in range(rounds):
            _, page_ns, _, found = once(made, MIBS[-1], dice)
            for side, of_page in ns.items():
                of_page.append(page_ns * found[side] / found["all"])
    finally:
        FRACTION.write_text(before, encoding="ascii")
    for side, of_page in ns.items():
        print(
            f"{side}: {np.median(of_page):.1f} ns a page ({min(of_page):.1f} to {max(of_page):.1f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--zone", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        source = Path(__file__).with_name("lock_shares.c")
        subprocess.run(["cc", "-O2", "-o", made / "load", source], check=True)
        if given.zone:
            of_zone(made, given.rounds)
            return
        rows = measure(made, given.rounds)
    kernel = ".".join(platform.release().split(".")[:2])
    write(
        "lru-holds",
        "How long the LRU lock is held, by samples of a CPU's time",
        {
            "title": f"A guest of a Zen 5 EPYC, two CPUs, v{kernel}",
            "note": "tools/lru_holds.py: one process on one CPU, charged to a memory cgroup; list "
            "checks and safe returns are built in.",
        },
        {"holds": (HOLDS, rows)},
    )


if __name__ == "__main__":
    main()

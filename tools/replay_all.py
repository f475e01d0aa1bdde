"""Replay every recording of a directory and print how much is foreseen + explained + unexplained.

``python tools/replay_all.py [DIRECTORY ...] [--blind [--copies=N]] [--pin]``; default: the
recordings beside the checkout, else data/traces.  ``--blind`` hides all dumps of the lists and all
probes, and says what is left unexplained, by what, and in how many seconds of a CPU; with
``--copies`` also how many of N falsified copies of each clean one are found.  ``--pin`` writes the
counts of data/traces, and why what is not foreseen is explained, to tests/data/replayed.json, which
``tests/trace/test_replay.py`` holds.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import pcpmodel as pm
from pcpmodel.trace.exactness import COUNTED
from pcpmodel.trace.ftrace import Events
from pcpmodel.trace.markers import read_markers
from pcpmodel.trace.recording import Recording
from pcpmodel.trace.replay import replay_without_dump

ROOT = Path(__file__).parents[1]
PINNED = ROOT / "tests" / "data" / "replayed.json"


def pinned(found) -> dict:
    """What a replay found, as it is kept to be compared with."""
    counts = {kind: list(found.count(kind)) for kind in COUNTED}
    return {"counts": counts, "isolated": found.isolated, "explained": found.causes()}


#: What is changed in one line of a falsified copy: (event, field or "" to remove the line).
FALSE = (
    ("mm_page_pcpu_drain", ""), ("mm_page_alloc", ""), ("mm_page_free", ""),
    ("mm_page_alloc_zone_locked", ""), ("mm_page_pcpu_drain", "a"), ("mm_page_alloc", "a"),
    ("mm_page_alloc", "b"), ("mm_page_alloc", "cpu"), ("mm_page_free", "cpu"),
    ("mm_page_pcpu_drain", "c"),
)  # fmt: skip


def falsified(cap: Recording, n: int) -> Iterator[tuple[str, Recording]]:
    """*n* copies of a recording with one line changed in the second half of its work."""
    events, reader = cap.trace
    dice = random.Random(cap.name)
    after = read_markers(cap).snapshot.get("after")
    end = after.begin if after else len(events)
    for k in range(n):
        event, field = FALSE[(k + dice.randrange(len(FALSE))) % len(FALSE)]
        there = np.flatnonzero(events.is_event(event)[:end])
        there = there[there > end // 2]
        if not len(there):
            continue
        at = int(dice.choice(there))
        rows = np.delete(events.rows, at) if not field else events.rows.copy()
        if field == "a":
            rows["a"][at] ^= 1 << dice.randrange(9)
        elif field == "cpu":
            rows["cpu"][at] = (rows["cpu"][at] + 1) % cap.cpus
        elif field:
            rows[field][at] += 1
        copy = pm.recording(cap.path)
        copy.__dict__["trace"] = Events(rows, events.probes), reader
        yield f"{event} {field or 'removed'}", copy


def blind(places: list[Path], copies: int) -> int:
    """Replay without dumps and probes; 1 if less than 85 % are clean or one takes above 3 s.

    *copies*: falsified ones of each clean recording, of which it is said how many are found: to
    leave nothing unexplained is worth as much as what it finds.
    """
    clean, slow, lines = 0, 0, 0
    found: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    print(f"{'recording':26} {'events':>8} {'explained':>9} {'inferred':>8} {'unexplained':>11} "
          f"{'s':>6}")  # fmt: skip
    for path in places:
        cap = pm.recording(path)
        if not (cap.has("zoneinfo.before") and cap.has("trace.txt")):
            continue
        _ = cap.trace
        start = time.process_time()
        r = replay_without_dump(cap, cap.release)[0]
        took = time.process_time() - start
        what = Counter(d.what for d in r.unexplained)
        kinds.update(set(what))
        lines += 1
        clean += not r.nr_unexplained
        slow += took > 3
        print(f"{cap.name:26} {r.events:8} {r.nr_explained:9} {sum(r.inferred.values()):8} "
              f"{r.nr_unexplained:11} {took:6.2f}", flush=True)  # fmt: skip
        for d in r.unexplained[:1]:
            print(f"    first: {d}; {dict(what.most_common(4))}")
        for name, copy in falsified(cap, 0 if r.nr_unexplained else copies):
            tried[name] += 1
            found[name] += replay_without_dump(copy, cap.release)[0].nr_unexplained > 0
    print(f"{clean} of {lines} recordings ({clean / lines:.0%}) with nothing unexplained, "
          f"{slow} above 3 s")  # fmt: skip
    for what, n in kinds.most_common():
        print(f"  in {n:2} recordings: {what}")
    print(f"a null model that allows everything: {lines} of {lines} with nothing unexplained")
    if tried:
        print(f"falsified copies of the clean ones: {found.total()} of {tried.total()} found, "
              "0 by that null model")  # fmt: skip
    for name, n in sorted(tried.items()):
        print(f"  {found[name]:3} of {n:3}: {name}")
    return 0 if clean >= 0.85 * lines and not slow else 1


def main() -> int:
    beside = ROOT.parent / "shared" / "traces"
    default = beside if beside.is_dir() else ROOT / "data" / "traces"
    pin = "--pin" in sys.argv[1:]
    copies = next((int(w[9:]) for w in sys.argv[1:] if w.startswith("--copies=")), 0)
    given = [Path(word) for word in sys.argv[1:] if not word.startswith("--")]
    places = [
        path
        for where in ([ROOT / "data" / "traces"] if pin else given or [default])
        for path in sorted(where.iterdir())
        if (path / "meta.json").is_file()
    ]
    if "--blind" in sys.argv[1:]:
        return blind(places, copies)
    kept = {}
    print(
        f"{'recording':26} {'allocations':>15} {'refills':>11} {'blocks':>15} {'drains':>13} "
        f"{'pages':>15} {'lists':>9} {'free lists':>10} {'explained':>9} "
        f"{'unexplained':>11} {'ns/event':>8}"
    )
    bad = 0
    for path in places:
        cap = pm.recording(path)
        if "before" not in cap.tags:
            print(f"{cap.name:26} no first dump: not replayed")
            continue
        _ = cap.trace
        start = time.perf_counter()
        r = pm.replay(cap)
        ns = (time.perf_counter() - start) / max(1, r.events) * 1e9

        def pair(name: str, r=r) -> str:
            _, foreseen, explained, left = r.count(name)
            return f"{foreseen}+{explained}+{left}"

        print(
            f"{cap.name:26} {pair('allocations'):>15} {pair('refills'):>11} {pair('blocks'):>15} "
            f"{pair('drains'):>13} {pair('drained_pages'):>15} {pair('lists'):>9} "
            f"{pair('free_lists'):>10} {r.nr_explained:>9} {r.nr_unexplained:>11} {ns:>8.0f}",
            flush=True,
        )
        bad += not r.exact
        kept[cap.name] = pinned(r)
    if pin:
        rows = (f" {json.dumps(name)}: {json.dumps(row)}" for name, row in kept.items())
        PINNED.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

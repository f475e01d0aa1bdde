"""Replay every recording of a directory and print how much is foreseen + explained + unexplained.

``python tools/replay_all.py [DIRECTORY ...] [--blind] [--pin]``; default: the recordings beside the
checkout, else data/traces.  ``--blind`` hides all dumps of the lists and all probes, and says what
is left unexplained, by what, and in how many seconds of a CPU.  ``--pin`` writes the counts of
data/traces, and why what is not foreseen is explained, to tests/data/replayed.json, which
``tests/trace/test_replay.py`` holds.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
import sys
import time
from collections import Counter
from pathlib import Path

import pcpmodel as pm
from pcpmodel.trace.exactness import COUNTED
from pcpmodel.trace.start import replay_without_dump

ROOT = Path(__file__).parents[1]
PINNED = ROOT / "tests" / "data" / "replayed.json"


def pinned(found) -> dict:
    """What a replay found, as it is kept to be compared with."""
    counts = {kind: list(found.count(kind)) for kind in COUNTED}
    return {"counts": counts, "isolated": found.isolated, "explained": found.causes()}


def blind(places: list[Path]) -> int:
    """Replay without dumps and probes; 1 if less than 85 % are clean or one takes above 3 s."""
    clean, slow, lines = 0, 0, 0
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
    print(f"{clean} of {lines} recordings ({clean / lines:.0%}) with nothing unexplained, "
          f"{slow} above 3 s")  # fmt: skip
    for what, n in kinds.most_common():
        print(f"  in {n:2} recordings: {what}")
    return 0 if clean >= 0.85 * lines and not slow else 1


def main() -> int:
    beside = ROOT.parent / "shared" / "traces"
    default = beside if beside.is_dir() else ROOT / "data" / "traces"
    pin = "--pin" in sys.argv[1:]
    given = [Path(word) for word in sys.argv[1:] if not word.startswith("--")]
    places = [
        path
        for where in ([ROOT / "data" / "traces"] if pin else given or [default])
        for path in sorted(where.iterdir())
        if (path / "meta.json").is_file()
    ]
    if "--blind" in sys.argv[1:]:
        return blind(places)
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

"""Replay every recording of a directory and print how much is foreseen + explained + unexplained.

``python tools/replay_all.py [DIRECTORY] [--pin]``; default: the recordings beside the
checkout, else data/traces.  ``--pin`` writes the counts of data/traces, and why what is not
foreseen is explained, to tests/data/replayed.json, which ``tests/trace/test_replay.py`` holds.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
import sys
import time
from pathlib import Path

import pcpmodel as pm
from pcpmodel.trace.exactness import COUNTED

ROOT = Path(__file__).parents[1]
PINNED = ROOT / "tests" / "data" / "replayed.json"


def pinned(found) -> dict:
    """What a replay found, as it is kept to be compared with."""
    counts = {kind: list(found.count(kind)) for kind in COUNTED}
    return {"counts": counts, "isolated": found.isolated, "explained": found.causes()}


def main() -> int:
    beside = ROOT.parent / "shared" / "traces"
    default = beside if beside.is_dir() else ROOT / "data" / "traces"
    pin = "--pin" in sys.argv[1:]
    given = [Path(word) for word in sys.argv[1:] if word != "--pin"]
    where = ROOT / "data" / "traces" if pin else given[0] if given else default
    kept = {}
    print(
        f"{'recording':26} {'allocations':>15} {'refills':>11} {'blocks':>15} {'drains':>13} "
        f"{'pages':>15} {'lists':>9} {'free lists':>10} {'explained':>9} "
        f"{'unexplained':>11} {'ns/event':>8}"
    )
    bad = 0
    for path in sorted(where.iterdir()):
        if not (path / "meta.json").is_file():
            continue
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

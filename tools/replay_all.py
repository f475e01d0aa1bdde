"""Replay every capture of a directory and print how exact each one is.

``python tools/replay_all.py [DIRECTORY]``; default: the recordings beside the
checkout, else data/traces.
"""

# SPDX-License-Identifier: GPL-2.0-only

import sys
import time
from pathlib import Path

import pcpmodel as pm

ROOT = Path(__file__).parents[1]


def main() -> int:
    beside = ROOT.parent / "shared" / "traces"
    default = beside if beside.is_dir() else ROOT / "data" / "traces"
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    print(
        f"{'capture':26} {'allocations':>15} {'refills':>11} {'blocks':>15} {'drains':>13} "
        f"{'pages':>15} {'lists':>9} {'free lists':>10} {'explained':>9} "
        f"{'unexplained':>11} {'ns/event':>8}"
    )
    bad = 0
    for path in sorted(where.iterdir()):
        if not (path / "meta.json").is_file():
            continue
        cap = pm.capture(path)
        if "before" not in cap.tags:
            print(f"{cap.name:26} no first dump: not replayed")
            continue
        _ = cap.trace
        start = time.perf_counter()
        r = pm.replay(cap)
        ns = (time.perf_counter() - start) / max(1, r.events) * 1e9

        def pair(name: str, r=r) -> str:
            return f"{getattr(r, name + '_exact')}/{getattr(r, name)}"

        print(
            f"{cap.name:26} {pair('allocations'):>15} {pair('refills'):>11} {pair('blocks'):>15} "
            f"{pair('drains'):>13} {pair('drained_pages'):>15} {pair('lists'):>9} "
            f"{pair('free_lists'):>10} {r.nr_explained:>9} {r.nr_unexplained:>11} {ns:>8.0f}",
            flush=True,
        )
        bad += not r.exact
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

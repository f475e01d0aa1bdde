"""Replay every recording under every other release: which are not told apart, and do counts agree?

``python tools/told_apart.py [DIRECTORY ...] [--write]``; default: the recordings beside the
checkout, else data/traces.  Releases that follow the same rules are one.  Another one is told
apart from the recorded kernel's if its replay leaves anything unexplained.  Where it is not, a
what-if must come to the same counts under both, or one of the two is wrong: then the exit code is
1.  Unless the what-if under the recorded kernel's own rules does not come to what was recorded: it
then went through states which the kernel was never in, and nobody knows what it did there.
``--write`` puts what was found into docs/told-apart.json, from which the documentation is made.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pcpmodel as pm
from pcpmodel.kernel.releases import Release, Rules
from pcpmodel.trace.recording import Recording
from pcpmodel.trace.replay import replay_work

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "docs" / "told-apart.json"


def by_rules() -> dict[Rules, list[Release]]:
    """All releases, those that follow the same rules together."""
    found: dict[Rules, list[Release]] = {}
    for state in pm.releases():
        found.setdefault(state.rules, []).append(state)
    return found


Unlike = dict[str, list[Any]]


def told_apart(
    cap: Recording, states: Sequence[Release]
) -> tuple[list[str], dict[str, Unlike], Unlike]:
    """Releases whose rules a recording tells from its kernel's own, and the others' what-ifs.

    Of each of the others {count: [under the recorded kernel's rules, under these]}, and then
    {count: [under the recorded kernel's rules, recorded]}, of those counts that are not the same.
    """
    alike = [
        state
        for state in states
        if not replay_work(cap, state, ops=("direct_free",), whole=False)[0].nr_unexplained
    ]
    found = pm.what_if(cap, [cap.release, *alike])
    mine, *others = (outcome.as_dict() for outcome in found.outcomes)

    def unlike(other: Mapping[str, Any]) -> Unlike:
        return {k: [mine[k], n] for k, n in other.items() if k != "release" and mine[k] != n}

    what_if = {other["release"]: unlike(other) for other in others}
    apart = [state.name for state in states if state.name not in what_if]
    return apart, what_if, unlike(found.recorded)


def recordings(places: Sequence[Path]) -> list[Recording]:
    """Those with a first dump, each once."""
    paths = {
        path.name: path
        for where in places
        for path in sorted(where.iterdir())
        if (path / "meta.json").is_file()
    }
    caps = (pm.recording(paths[name]) for name in sorted(paths))
    return [cap for cap in caps if "before" in cap.tags]


def main() -> int:
    given = [Path(word) for word in sys.argv[1:] if not word.startswith("--")]
    shared = ROOT.parent / "shared"
    beside = [shared / name for name in ("traces", "more-traces") if (shared / name).is_dir()]
    groups = by_rules()
    kept, nr_apart, nr_alike, agree, wrong = {}, 0, 0, 0, 0
    for cap in recordings(given or beside or [ROOT / "data" / "traces"]):
        start = time.process_time()
        others = [same[0] for rules, same in groups.items() if rules != cap.release.rules]
        apart, alike, own = told_apart(cap, others)
        nr_apart += len(apart)
        nr_alike += len(alike)
        agree += sum(not counts for counts in alike.values())
        wrong += not own and any(alike.values())
        kept[cap.name] = {
            "release": cap.release.name, "apart": apart, "what_if": alike, "own": own
        }  # fmt: skip
        print(
            f"{cap.name:26} {cap.release.name:16} told apart from {len(apart):2}, "
            f"{time.process_time() - start:4.1f} s; not from {' '.join(alike)}",
            flush=True,
        )
        for name, counts in alike.items():
            if counts:
                print(f"    what-if under {name}: {counts}; its own, and recorded: {own}")
    print(f"{nr_apart} of {nr_apart + nr_alike} pairs are told apart; of the other {nr_alike} "
          f"what-ifs agree on {agree}")  # fmt: skip
    if "--write" in sys.argv[1:]:
        rules = [[state.name for state in same] for same in groups.values()]
        rows = (f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in kept.items())
        WRITTEN.write_text(
            f'{{\n "rules": {json.dumps(rules)},\n "recordings": {{\n'
            + ",\n".join(rows) + "\n }\n}\n", encoding="utf-8")  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Do the work of every recording again under the rules of each other kernel that did such work.

``python tools/judge_what_if.py DIRECTORY ...`` writes ``data/workload/what-if/``: what each
recording's kernel did (``recorded``), and what its work comes to under its own rules and under
those of every other kernel that was recorded at the same work with as many CPUs and as much
memory (``predicted``).  `pcpmodel.study.what_if_judged` holds the one against the other.
"""

# SPDX-License-Identifier: GPL-2.0-only

import sys
from pathlib import Path

from summarise_native import write

import pcpmodel as pm
from pcpmodel.errors import InputError
from pcpmodel.trace.judged import work_of

RECORDED = [
    ("recording", "string", "", "its name; -r2 repeats another"),
    ("workload", "string", "", "what was done, as the names of the recordings have it"),
    ("cpus", "integer", "CPUs", "of the machine"),
    ("memory_mib", "integer", "MiB", "of the machine"),
    ("release", "string", "", "rules of the recorded kernel, or the nearest known ones"),
    ("assumed", "integer", "1", "1: the kernel's own series is not modelled"),
    ("allocations", "integer", "blocks", "asked for"),
    ("refills", "integer", "holds", "by rmqueue_bulk()"),
    ("drains", "integer", "holds", "by free_pcppages_bulk()"),
]
PREDICTED = [
    ("recording", "string", "", "whose work is done again"),
    ("release", "string", "", "under these rules"),
    ("refills", "integer", "holds", "by rmqueue_bulk()"),
    ("drains", "integer", "holds", "by free_pcppages_bulk()"),
]


def main() -> int:
    caps = []
    for where in sys.argv[1:]:
        for path in sorted(Path(where).iterdir()):
            if (path / "meta.json").is_file():
                cap = pm.recording(path)
                if "before" in cap.tags:
                    caps.append(cap)
    alike: dict[tuple, set[str]] = {}

    def key(cap) -> tuple:
        return work_of(cap.name), cap.cpus, int(cap.meta["memory_mib"])

    for cap in caps:
        alike.setdefault(key(cap), set()).add(cap.release.name)
    recorded, predicted = [], []
    for cap in caps:
        own = cap.release.name
        others = sorted(alike[key(cap)] - {own})
        try:
            found = pm.what_if(cap, [own, *others])
        except InputError as error:
            print(f"{cap.name}: {error}", file=sys.stderr)
            continue
        told = found.recorded
        work, cpus, memory = key(cap)
        recorded.append(
            (cap.name, work, cpus, memory, own, int(bool(cap.assumed)), found.allocations,
             told["refills"], told["drains"])
        )  # fmt: skip
        predicted += [(cap.name, o.release, o.refills, o.drains) for o in found.outcomes]
        print(cap.name, told, {o.release: (o.refills, o.drains) for o in found.outcomes},
              file=sys.stderr, flush=True)  # fmt: skip
    write(
        "what-if",
        "Recorded work done again under the rules of other kernels",
        {
            "title": "Recordings of data/traces and more made alike; tools/judge_what_if.py",
            "note": "Emulated guests: counts, not times.  A repetition shows what chance does.",
        },
        {"recorded": (RECORDED, recorded), "predicted": (PREDICTED, predicted)},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

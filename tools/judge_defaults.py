"""Run every cell of ``data/workload/defaults`` with no further option, and store what comes out.

``python tools/judge_defaults.py [SOURCE ...]`` (about five minutes for all) writes ``said.csv`` and
prints the cells (Markdown); of other sources it keeps what is stored.
"""

# SPDX-License-Identifier: GPL-2.0-only

import sys

from summarise_native import write

from pcpmodel.datasets.packages import load_workload
from pcpmodel.study.published import defaults

ASKED = [
    ("source", "string", "", "directory below data/published"),
    ("table", "string", "", "its table"),
    ("row", "string", "", "what tells its row, column by column (JSON)"),
    ("column", "string", "", "its column"),
    ("workload", "string", "", "ready-made workload"),
    ("arguments", "string", "", "what it takes and the source states, the tasks first (JSON)"),
    ("release", "string", "", "kernel, or the release with the same rules of the lists"),
    ("machine", "string", "", "machine"),
    ("like", "string", "", "measured machines that it is like, with blanks between"),
    ("cpus", "integer", "CPUs", "stated by the source"),
    ("memory_gib", "number", "GiB", "stated by the source"),
    ("quantity", "string", "", "figure of a result: lock_contention or score_per_s"),
]
SAID = [
    *ASKED[:4],
    ("value", "number", "as in the column", "what simulate says"),
    ("half_width", "number", "as in the column", "half of the 95 % interval of the run"),
]


def main() -> int:
    tables = load_workload("defaults").tables
    asked = tables["asked"].astype(object)
    known = {
        tuple(row[:4]): tuple(row) for row in tables["said"].itertuples(index=False, name=None)
    }
    said = []
    for row in asked.to_dict("records"):
        key = tuple(row[name] for name, *_ in ASKED[:4])
        if sys.argv[1:] and row["source"] not in sys.argv[1:]:
            said.append(known[key])
            continue
        found = defaults.by_default(row)
        value, half_width = float(f"{found.value:.6g}"), float(f"{found.half_width:.3g}")
        said.append((*key, value, half_width))
        print(*key, *found, file=sys.stderr, flush=True)
    write(
        "defaults",
        "What simulate says with no further option, where something is published",
        {
            "title": "tools/judge_defaults.py: one run a cell, seed 1, 1 s after the warm-up found",
            "note": "Which cells: what of contention and rates is published for a machine and a "
            "kernel that are modelled; of what was posted several times the last.",
        },
        {
            "asked": (
                ASKED,
                list(asked.where(asked.notna(), None).itertuples(index=False, name=None)),
            ),
            "said": (SAID, said),
        },
    )
    cells = defaults.judged()
    print(defaults.markdown(cells))
    print(*defaults.said_of(cells), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

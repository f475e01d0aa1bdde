"""Fit ``data/workload/calibration/fitted.csv`` anew: python tools/fit_calibration.py

Values and figures fitted to are replaced in place; about two minutes.  Run it when a
table, a workload or the simulator has changed and tests/workload/test_calibration.py says so.
"""

# SPDX-License-Identifier: GPL-2.0-only

import csv
from pathlib import Path

from pcpmodel.datasets.packages import load_published
from pcpmodel.study.published.cases import cases
from pcpmodel.study.published.refit import refitted, refitted_miss_ns

CALIBRATION = Path(__file__).resolve().parent.parent / "data/workload/calibration"


def rewrite(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, rows[0], lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def main() -> None:
    fitted, tables = CALIBRATION / "fitted.csv", CALIBRATION / "tables.csv"
    values = list(csv.DictReader(fitted.open()))
    names = list(csv.DictReader(tables.open()))
    order = [case.name for case in cases() if case.fits]
    # Those that others take over come first.
    for name in sorted({row["calibration"] for row in values}, key=lambda n: (*order, n).index(n)):
        found = refitted(name)
        for row in values:
            if row["calibration"] == name and row["how"] == "fitted":
                print(f"{name}: {row['parameter']} {row['value']} -> {found[row['parameter']]!r}")
                row["value"] = repr(found[row["parameter"]])
        rewrite(fitted, values)
    latency = CALIBRATION.parent / "answer-key" / "miss_ns.csv"
    rewrite(
        latency,
        [
            {
                "calibration": row["calibration"],
                "miss_ns": repr(refitted_miss_ns(row["calibration"])),
            }
            for row in csv.DictReader(latency.open())
        ],
    )
    for row in names:
        row["digest"] = load_published(row["source"]).digest
    rewrite(tables, names)


if __name__ == "__main__":
    main()

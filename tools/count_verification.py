"""Count how many published cells the simulator predicts: docs/verification.json.

    python tools/count_verification.py

Takes a few minutes.  ``tests/project/test_docs.py`` tells when it has to be run again.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcpmodel.study.published.compare import compare

SEED = 1
COUNTED = (
    "cells",
    "within",
    "telling",
    "telling_within",
    "changes",
    "signs",
    "large_changes",
    "large_signs",
)


def tally(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Cells by table: predicted, within tolerance; the null models; tables not compared."""
    tables: dict[str, dict[str, Any]] = {}
    for row in answer["rows"]:
        name = f"{row['source']}/{row['table']}"
        counts = tables.setdefault(name, {"table": name, "predictions": 0, "within": 0})
        counts["predictions"] += 1
        counts["within"] += row["within"]
    nulls: dict[str, dict[str, int]] = {}
    for row in answer["null_models"]:
        counts = nulls.setdefault(row["predictor"], dict.fromkeys(COUNTED, 0))
        for name in COUNTED:
            counts[name] += row[name]
    rest = {kind: len(answer[kind]) for kind in ("elsewhere", "not_modelled")}
    return {"seed": SEED, "tables": list(tables.values()), "null_models": nulls, **rest}


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs" / "verification.json"
    counted = tally(compare(seed=SEED).facts)
    path.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")

"""Count how many published cells the simulator predicts: docs/verification.json.

    python tools/count_verification.py

Takes about a minute.  ``tests/test_docs.py`` tells when it has to be run again.
"""

# SPDX-License-Identifier: GPL-2.0-only

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcpmodel.study.compare import compare

SEED = 1


def tally(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Cells by table: predicted, within tolerance, fitted; and the tables not compared."""
    tables: dict[str, dict[str, Any]] = {}
    for row in answer["rows"]:
        name = f"{row['source']}/{row['table']}"
        zero = {"table": name, "predictions": 0, "within": 0, "fitted": 0}
        counts = tables.setdefault(name, zero)
        if row["fitted"]:
            counts["fitted"] += 1
        else:
            counts["predictions"] += 1
            counts["within"] += row["within"]
    rest = {kind: len(answer[kind]) for kind in ("elsewhere", "not_modelled")}
    return {"seed": SEED, "tables": list(tables.values()), **rest}


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs" / "verification.json"
    counted = tally(compare(seed=SEED))
    path.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")

"""What a table would be answered by predictors that know nothing of the allocator.

A tolerance that "nothing changes" passes proves nothing.  Each predicted cell of
a published table is therefore given to four null models too, and its change from
the row before is compared in sign.  Cells without a row before are left out: no
null model has an answer there.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

__all__ = ["NULL_MODELS", "best_constant", "change_of", "score_null_models", "sign_of"]

#: Name -> what it predicts.
NULL_MODELS = {
    "nothing changes": "the first row again",
    "row before": "what was measured in the row before",
    "lock takings": "counts by the rules alone, contention in proportion to the holds of the zone "
    "lock: no queue, no hold time",
    "best constant": "for each column the one number that is within tolerance most often, chosen "
    "with the answers in view",
}
#: The tables have one digit after the point: less is no change, measured or predicted.
_DIGIT = 0.05
#: Of the row before [%]; a smaller change may be noise, the tables state none.
LARGE_CHANGE = 2.0


def best_constant(ranges: Iterable[tuple[float, float]]) -> float:
    """The number that lies in the most of some closed ranges; NaN if there is none.

    Parameters
    ----------
    ranges : iterable of (low, high)

    Returns
    -------
    float
        The middle of where most of them overlap.

    Examples
    --------
    >>> best_constant([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    1.5
    """
    ranges = list(ranges)
    if not ranges:
        return float("nan")
    ends = sorted(low for low, _ in ranges)
    hits = [sum(low <= end <= high for low, high in ranges) for end in ends]
    start = ends[int(np.argmax(hits))]
    return (start + min(high for low, high in ranges if low <= start <= high)) / 2


def change_of(
    before: Sequence[float] | npt.NDArray[np.float64],
    after: Sequence[float] | npt.NDArray[np.float64],
) -> tuple[float, float]:
    """Change from one row to the next, and half its 95 % interval, over paired repetitions.

    Parameters
    ----------
    before, after : (seeds,) array_like
        The same quantity of both rows, by seed.

    Returns
    -------
    tuple of float
        Mean change; half of Student's interval, infinite for a single repetition.
    """
    changes = np.subtract(after, before)
    runs = len(changes)
    if runs < 2:
        return float(changes.mean()), float("inf")
    half = stdtrit(runs - 1, 0.975) * changes.std(ddof=1) / np.sqrt(runs)
    return float(changes.mean()), float(half)


def sign_of(measured: float | None, predicted: float | None, error: float | None) -> str | None:
    """Whether a predicted change goes the way of the measured one.

    Returns
    -------
    str or None
        ``same``, ``opposite`` or ``none`` (the prediction is not told from no change);
        None where nothing changed or there is no row before.
    """
    if measured is None or predicted is None or error is None or abs(measured) < _DIGIT:
        return None
    if abs(predicted) <= max(error, _DIGIT):
        return "none"
    return "same" if (predicted > 0) == (measured > 0) else "opposite"


def score_null_models(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Count, by table and column, the cells and signs that each predictor has right.

    Parameters
    ----------
    rows : iterable of dict
        As in `compare`'s answer; those without a row before are left out.

    Returns
    -------
    list of dict
        ``source``, ``table``, ``quantity``; ``predictor``: ``model`` or one of `NULL_MODELS`;
        ``cells`` and those ``within`` tolerance; ``changes`` and those with the same ``signs``;
        ``large_changes`` of more than `LARGE_CHANGE` % and their ``large_signs``; ``telling``:
        cells that neither "nothing changes" nor the row before has right, ``telling_within``
        those of them that the predictor has.
    """
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for row in rows:
        if not row["null_models"]:
            continue
        nulls = row["null_models"]
        telling = not any(nulls[n]["within"] for n in ("nothing changes", "row before"))
        model = {"within": row["within"], "sign": row["sign"]}
        for name, told in {"model": model, **nulls}.items():
            key = (row["source"], row["table"], row["quantity"], name)
            names = ("source", "table", "quantity", "predictor")
            counts = found.setdefault(
                key,
                dict(zip(names, key, strict=True))
                | dict.fromkeys(
                    ("cells", "within", "changes", "signs", "large_changes", "large_signs"), 0
                )
                | {"telling": 0, "telling_within": 0},
            )
            counts["cells"] += 1
            counts["within"] += told["within"]
            counts["telling"] += telling
            counts["telling_within"] += telling and told["within"]
            if row["sign"] is not None:
                right = told["sign"] == "same"
                counts["changes"] += 1
                counts["signs"] += right
                counts["large_changes"] += row["large_change"]
                counts["large_signs"] += row["large_change"] and right
    return list(found.values())

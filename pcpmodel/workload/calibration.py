"""Parameters fitted to published tables: ``data/workload/calibration``.

What the sources do not state of their machines, and what the model lacks there, is
one to three numbers for each workload.  They are kept in one place, with the cell
of the table that each was fitted to, and are what the ready-made workloads use
unless told otherwise.  `pcpmodel.study.published.refit` makes them anew.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pcpmodel.datasets.packages import load_workload
from pcpmodel.errors import unknown_name

__all__ = ["Calibrated", "calibration", "calibrations"]


@dataclass(frozen=True)
class Calibrated:
    """One parameter and where its value comes from.

    Attributes
    ----------
    parameter : str
        Argument of `pcpmodel.simulate` or of the workload.
    value : float
        In the unit that the name says.
    how : str
        "fitted" to the cell below, or "set": chosen with the table in view.
    calibration : str
        Name of the fit, source/table.
    step, quantity : str
        Row and column that it was fitted to; empty if set.
    measured : float
        The published figure there [%]; NaN if set.
    machine : str
        Whose measured hold times were used.
    """

    parameter: str
    value: float
    how: str
    calibration: str
    step: str
    quantity: str
    measured: float
    machine: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON: None where something is not said."""
        none = {"": None}
        values = {k: none.get(v, v) if isinstance(v, str) else v for k, v in vars(self).items()}
        return values | {"measured": None if math.isnan(self.measured) else self.measured}

    def __str__(self) -> str:
        cell = f": {self.quantity} of {self.step}, {self.measured:.4g} %" if self.step else ""
        verb = "fitted to" if self.how == "fitted" else "set for"
        return f"{self.parameter} = {self.value:.4g}, {verb} {self.calibration}{cell}"


@cache
def calibrations() -> Mapping[str, Mapping[str, Calibrated]]:
    """Every calibration: name -> parameter -> value, those taken over included."""
    read = load_workload("calibration").read
    tables, fitted = read["tables"].records(), read["fitted"].records()
    found: dict[str, dict[str, Calibrated]] = {}
    for table in tables:
        name = table["calibration"]
        found[name] = dict(found[table["like"]]) if table["like"] else {}
        for row in (row for row in fitted if row["calibration"] == name):
            found[name][row["parameter"]] = Calibrated(
                row["parameter"],
                float(row["value"]),
                row["how"],
                name,
                row["step"] or "",
                row["quantity"] or "",
                math.nan if row["measured"] is None else row["measured"],
                table["machine"],
            )
    return found


def calibration(name: str | None) -> dict[str, Calibrated]:
    """Parameters of a calibration by name; of None: none.

    Parameters
    ----------
    name : str or None
        Source and table that they were fitted to, ``"pcp-auto-tuning-v2/kbuild"``.

    Returns
    -------
    dict
        Parameter -> `Calibrated`.

    Raises
    ------
    InputError
        For an unknown name.
    """
    known = calibrations()
    if name is None:
        return {}
    if name not in known:
        raise unknown_name("calibration", name, known)
    return dict(known[name])

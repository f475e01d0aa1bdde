"""The tour of ``00-start-here`` as one page that needs no server: runs made while building."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pcpmodel.reports import tour

MACHINE = "sapphire-rapids"
#: What the controls offer: of the notebook's tour the ends and the middle.
CHOICES: dict[str, tuple[Any, ...]] = {
    "release": ("v6.6", "v6.7", "v7.2"),
    "workload": tuple(tour.WORKLOADS),
    "batch": (63, 252),
    "high_min": (500, 1000, 4000),
    "batch_scale_max": (0, 3, 5),
    "cpus": (2, 56, 224),
}
START = tour.Settings()
#: The kernel that stands beside, with the batch and the high that the tour starts with.
BEFORE = "v6.6"


def key(settings: tour.Settings) -> str:
    """Name of a run among the precomputed."""
    return "|".join(str(getattr(settings, name)) for name in CHOICES)


def _corners(x: np.ndarray, y: np.ndarray) -> list[list[float]]:
    """The points of a line between which it is straight."""
    slope = np.diff(y) / np.diff(x)
    keep = np.r_[True, slope[1:] != slope[:-1], True]
    return [[round(float(a), 1), int(b)] for a, b in zip(x[keep], y[keep], strict=True)]


def _life(settings: tour.Settings) -> dict[str, Any]:
    life = tour._life(settings, MACHINE)
    steps, events = life.steps, life.events
    width = max(int((~steps["tick"]).sum()) / 60, 1)  # as `page_list_life` draws ticks
    x = (steps["operation"] + steps["tick"].cumsum() * (width - 1)).to_numpy(float)
    at = dict(zip(steps["operation"], x, strict=True))
    return {
        "count": _corners(x, steps["count"].to_numpy()),
        "high": _corners(x, steps["high"].to_numpy()),
        "visits": [
            [round(at[e.operation], 1), int(e.count), int(e.kind == "refill")]
            for e in events[["operation", "count", "kind"]].itertuples(index=False, name="E")
        ],
    }


def runs(choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Every combination of the choices: prices by key, one list's life by key without the CPUs."""
    prices, lives = {}, {}
    for values in product(*choices.values()):
        settings = tour.Settings(**dict(zip(choices, values, strict=True)))
        name = key(settings)
        at = tour._price(settings, MACHINE)
        p99 = None if math.isnan(at["p99_us"]) else round(at["p99_us"], 1)
        prices[name] = [round(at["waiting_percent"], 2), p99, round(at["list_mib"], 1)]
        life = name.rpartition("|")[0]
        if life not in lives:
            lives[life] = _life(settings)
    return {"prices": prices, "lives": lives}


def page(choices: dict[str, tuple[Any, ...]] = CHOICES) -> str:
    """The page: controls, picture and words, with all that they need inside."""
    data = runs(choices) | {
        "choices": choices,
        "start": {name: getattr(START, name) for name in choices},
        "before": BEFORE,
        "titles": {name: kind.title for name, kind in tour.WORKLOADS.items()},
    }
    text = (Path(__file__).parent / "tour.html.in").read_text(encoding="utf-8")
    return text.replace("/*DATA*/null", json.dumps(data, separators=(",", ":")))


def write(directory: Path) -> None:
    """Write ``tour.html``."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tour.html").write_text(page(), encoding="utf-8")

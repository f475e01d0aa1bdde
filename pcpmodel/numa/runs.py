"""One kernel, one run of the experiment."""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from pcpmodel.errors import InputError
from pcpmodel.numa.clock import Engine
from pcpmodel.numa.nodes import nodes
from pcpmodel.numa.parameters import Experiment, experiment

__all__ = ["Run", "parameter_table", "run", "weights"]


def parameter_table() -> pd.DataFrame:
    """Every parameter: what it is, its default, unit, range and origin.

    Returns
    -------
    pandas.DataFrame
        Index: the parameters; ``type``, ``default``, ``what``, ``unit``, ``origin``, ``low``,
        ``high``.
    """
    return pd.DataFrame(Experiment.describe()).set_index("name")


def weights(pattern: str, pages: int) -> np.ndarray:
    """Probability of each page of a process in one access.

    Parameters
    ----------
    pattern : {"normal", "uniform"}
        ``normal``: mean in the middle, standard deviation ``pages / 12``, cut at
        six of them (pmbench's ``normal_ih``).
    pages : int
        Pages of the process.

    Returns
    -------
    (pages,) ndarray of float64
        Sum 1.
    """
    if pattern == "uniform":
        return np.full(pages, 1 / pages)
    weight = np.diff(special.ndtr(np.linspace(-6, 6, pages + 1)))
    return weight / weight.sum()


@dataclass(frozen=True, eq=False)
class Run:
    """One kernel, one run.

    Attributes
    ----------
    release : str
    experiment : Experiment
    counts : dict
        Every counter of the engine, as counted at the experiment's scale.
    series : pandas.DataFrame
        Index ``time_s``; ``accesses_per_second``, ``remote_percent`` (of the
        accesses), ``migrated_pages`` and ``shootdown_interrupts`` so far.
    """

    release: str
    experiment: Experiment
    counts: dict[str, Any]
    series: pd.DataFrame

    @property
    def migrated_pages(self) -> float:
        """Pages migrated; divided by the scale."""
        return self.counts["migrated_pages"] / self.experiment.scale

    @property
    def shootdown_interrupts(self) -> float:
        """IPIs of unmaps, divided by the scale, and of scans (as many ranges at any scale)."""
        c = self.counts
        return c["unmap_interrupts"] / self.experiment.scale + c["scan_interrupts"]

    @property
    def accesses_per_second(self) -> float:
        """Page accesses of all threads per second, mean of the run."""
        return self.counts["accesses"] / self.experiment.end_s

    @property
    def try_to_unmap_percent(self) -> float:
        """Share of the busy CPU time spent in try_to_unmap(), flushes included [%]."""
        return 100 * self.counts["unmap_ns"] / self.counts["busy_ns"]

    @property
    def interrupted_percent(self) -> float:
        """Share of the busy CPU time spent answering shootdowns [%]."""
        return 100 * self.counts["interrupt_ns"] / self.counts["busy_ns"]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, the four published ones first."""
        return {
            "release": self.release,
            "migrated_pages": self.migrated_pages,
            "shootdown_interrupts": self.shootdown_interrupts,
            "accesses_per_second": self.accesses_per_second,
            "try_to_unmap_percent": self.try_to_unmap_percent,
            "interrupted_percent": self.interrupted_percent,
            "counts": self.counts,
        }


def run(release: str, given: Experiment | None = None, **changes: Any) -> Run:
    """Run the experiment once.

    Parameters
    ----------
    release : str
        One of `RELEASES`: who maps when.
    given : Experiment, optional
        Default: the published one.
    **changes
        Parameters that differ, see `parameter_table`.

    Returns
    -------
    Run
        Counters, and series over time.

    Raises
    ------
    InputError
        If a name or a value is not allowed.
    """
    given = (given or experiment()).with_(**changes)
    config = given.config(release)
    try:
        engine = Engine(config, weights(given.pattern, given.pages), nodes(config))
    except ValueError as error:
        raise InputError(f"scale={given.scale:g}: {error}; too few pages are left") from None
    counts = engine.run()
    rows = np.array(counts.pop("series")).reshape(-1, 5)
    step = config["sample_ns"] / 1e9
    time = step * np.arange(1, len(rows) + 1)
    series = pd.DataFrame(
        {
            "accesses_per_second": np.diff(rows[:, 0], prepend=0) / step,
            "remote_percent": 100 * rows[:, 1],
            "migrated_pages": rows[:, 2] / given.scale,
            "shootdown_interrupts": rows[:, 3] / given.scale + rows[:, 4],
        },
        index=pd.Index(time / given.scale, name="time_s"),
    )
    return Run(release, given, counts, series)

"""Mean and 99th percentile of holds, from every duration or from a histogram.

The mean is exact for durations and where a histogram comes with total and count.
Otherwise a histogram's mean takes the values of a bucket as spread evenly on a
log scale.  The 99th percentile is the smallest value that 99 % of the samples
do not exceed; inside a bucket its place is interpolated on a log scale.

The interval of the 99th percentile goes between the two order statistics that
enclose it with 95 % probability, and on to the far edges of their buckets.  The
interval of the mean is what the bucket edges leave open, widened on both sides
by 1.96 standard errors; samples are taken as independent.  Both contain the
estimate, and neither knows of the tracer's own cost.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any

from pcpmodel.errors import InputError

__all__ = ["MIN_SAMPLES", "NS", "Durations", "Estimate", "Histogram", "p99_ranks"]

#: With fewer samples not even the largest one is above the 99th percentile
#: with 97.5 % probability.
MIN_SAMPLES = math.ceil(math.log(0.025) / math.log(0.99))

#: Unit as tools write it -> ns.
NS = {
    **dict.fromkeys(("ns", "nsec", "nsecs"), 1.0),
    **dict.fromkeys(("us", "usec", "usecs"), 1e3),
    **dict.fromkeys(("ms", "msec", "msecs"), 1e6),
}


@dataclass(frozen=True)
class Estimate:
    """Mean and 99th percentile of the holds in one file, with their intervals.

    Attributes
    ----------
    avg_us, p99_us : float
        Estimates [us].
    avg_low_us, avg_high_us, p99_low_us, p99_high_us : float
        Intervals that contain them [us].
    samples : int
        Holds measured.
    name : str
        Function or histogram they were read from; may be empty.
    tool : str
        What printed the file.
    """

    avg_us: float
    p99_us: float
    avg_low_us: float
    avg_high_us: float
    p99_low_us: float
    p99_high_us: float
    samples: int
    name: str
    tool: str


class Durations:
    """The durations of one function, every one of them."""

    def __init__(self) -> None:
        self.us = array("d")

    @property
    def samples(self) -> int:
        return len(self.us)

    def estimate(self, name: str) -> Estimate:
        values = sorted(self.us)
        n = len(values)
        mean = math.fsum(values) / n
        error = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
        rank, low, high = p99_ranks(n)
        return Estimate(
            mean,
            values[rank - 1],
            max(mean - 1.96 * error, values[0]),
            min(mean + 1.96 * error, values[-1]),
            values[low - 1],
            values[high - 1],
            n,
            name,
            "ftrace function_graph",
        )


@dataclass
class Histogram:
    """Counts of buckets [low, high), in ns."""

    path: Any
    tool: str
    buckets: list[tuple[float, float, int]] = field(default_factory=list)
    mean: tuple[float, float] | None = None  # of all samples: between these two [ns]

    @property
    def samples(self) -> int:
        return sum(count for _, _, count in self.buckets)

    def add(self, low: float, high: float, count: int, row: int) -> None:
        """Append a bucket, which must follow the one before."""
        if high <= low:
            raise InputError(f"bucket ends at {high:g}, begins at {low:g}", file=self.path, row=row)
        if self.buckets and low != self.buckets[-1][1]:
            what = "overlaps" if low < self.buckets[-1][1] else "leaves a gap to"
            raise InputError(
                f"bucket from {low:g} ns {what} the one before, which ends at "
                f"{self.buckets[-1][1]:g} ns",
                file=self.path,
                row=row,
            )
        self.buckets.append((low, high, count))

    def bounds(self) -> tuple[float, float]:
        """Least and largest mean that the buckets allow [ns]."""
        n = self.samples
        low = math.fsum(c * a for a, _, c in self.buckets) / n
        return low, math.fsum(c * b for _, b, c in self.buckets) / n

    def estimate(self, name: str) -> Estimate:
        n = self.samples
        low, high = self.bounds()
        mean = math.fsum(c * _log_mean(a, b) for a, b, c in self.buckets) / n
        if self.mean is not None:
            if self.mean[1] < low or self.mean[0] > high:
                raise InputError(
                    f"average of {self.mean[0]:g} ns given below; the buckets allow "
                    f"{low:g} to {high:g} ns",
                    file=self.path,
                )
            low, high = self.mean
            mean = (low + high) / 2
        square = math.fsum(c * b * b for _, b, c in self.buckets) / n
        error = 1.96 * math.sqrt(max(square - low * low, 0.0) / n)
        rank, first, last = p99_ranks(n)
        return Estimate(
            mean / 1e3,
            self._at(rank)[2] / 1e3,
            max(low - error, 0.0) / 1e3,
            (high + error) / 1e3,
            self._at(first)[0] / 1e3,
            self._at(last)[1] / 1e3,
            n,
            name,
            self.tool,
        )

    def _at(self, rank: int) -> tuple[float, float, float]:
        """Return edges of the bucket with the sample of this rank, and its place between them."""
        below = 0
        for low, high, count in self.buckets:
            if rank <= below + count:
                share = (rank - below - 0.5) / count
                return low, high, high * share if low == 0 else low * (high / low) ** share
            below += count
        raise AssertionError("rank beyond the last sample")


def _log_mean(low: float, high: float) -> float:
    """Mean of values spread evenly on a log scale; from 0, evenly."""
    return high / 2 if low == 0 else (high - low) / math.log(high / low)


def p99_ranks(n: int) -> tuple[int, int, int]:
    """Return rank of the 99th percentile among n samples, and 95 % bounds of it."""
    from scipy.stats import binom

    low, high = (int(binom.ppf(p, n, 0.99)) for p in (0.025, 0.975))
    return math.ceil(0.99 * n), max(low, 1), min(high + 1, n)

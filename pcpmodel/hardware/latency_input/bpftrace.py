"""bpftrace ``hist()`` or ``lhist()``: maps that hold histograms, as text or as ``-f json``.

A map keyed by one whole number is a histogram for each number of pages (`by_pages`).  Beside
``@free_ns[63]`` a map ``@free_total_ns[63]`` may hold the ``sum()`` of the same times, which
makes the mean exact; others that hold no histogram are left out.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pcpmodel.errors import InputError
from pcpmodel.files import parse_json
from pcpmodel.hardware.latency_input.estimates import NS, Histogram

__all__ = ["Bpftrace", "by_pages"]

_EDGE = r"(\d+)([KMGTPE]?)"
_MAP = re.compile(r"^(@\w*(?:\[.*\])?): *$")
_ROW = re.compile(r"^([\[(][^|]*[\])])\s+(-?\d+) \|[@ ]*\|\s*$")
_RANGE = re.compile(rf"^\[{_EDGE}, {_EDGE}\)$")
_ONE = re.compile(rf"^\[{_EDGE}\]$")
_SUM = re.compile(r"^(@\w*)_total(_\w+)(\[\d+\])?: (\d+)\s*$")
_JSON = re.compile(r'^\{"type": ?"\w+", ?"data":')
_PAGES = re.compile(r"^(@\w*)\[(\d{1,9})\]$")


class Bpftrace:
    """Reader of bpftrace maps that hold histograms."""

    @staticmethod
    def begins(line: str) -> bool:
        """Whether the line is one of this tool."""
        return any(known.match(line) for known in (_MAP, _ROW, _JSON))

    def __init__(self, path: Any, unit: str | None) -> None:
        self.path = path
        self.unit = unit
        self.histograms: dict[str, Histogram] = {}
        self.name = ""
        self.scale: float | None = None
        self.scales: dict[str, float] = {}
        self.totals: dict[str, tuple[int, int]] = {}  # map of the histogram: sum, row

    def line(self, line: str, row: int) -> None:
        """Take one line of text."""
        if named := _MAP.match(line):
            self._map(named[1], row)
        elif total := _SUM.match(line):
            self.totals[f"{total[1]}{total[2]}{total[3] or ''}"] = int(total[4]), row
        elif line.startswith("{"):
            self._json(parse_json(line, self.path, row=row), row)
        elif line.startswith(("[", "(")):
            bucket = _ROW.match(line)
            if not bucket:
                raise self._fault(f"not a line of a histogram: {line.strip()[:60]!r}", row)
            self._bucket(bucket[1], int(bucket[2]), row)

    def _map(self, name: str, row: int) -> None:
        self.name, self.scale = name, None
        if name in self.histograms:
            raise self._fault(f"{name} a second time; one file is one batch setting", row)

    def _json(self, given: Any, row: int) -> None:
        """Take one object of ``-f json``: its histograms and its sums."""
        data = given.get("data") if isinstance(given, dict) else None
        if not isinstance(data, dict):
            raise self._fault("not an object of bpftrace -f json: it has no data", row)
        if given.get("type") == "map":
            for name, value in data.items():
                for key, total in value.items() if isinstance(value, dict) else [("", value)]:
                    text = f"{name}[{key}]: {total}" if key else f"{name}: {total}"
                    if total := _SUM.match(text):
                        self.line(text, row)
        if given.get("type") != "hist":
            return
        for name, value in data.items():
            for key, buckets in value.items() if isinstance(value, dict) else [("", value)]:
                self._map(f"{name}[{key}]" if key else name, row)
                for bucket in buckets if isinstance(buckets, list) else [None]:
                    edges = bucket if isinstance(bucket, dict) else {}
                    low, high, count = (edges.get(k) for k in ("min", "max", "count"))
                    named = {"min", "max", "count"} >= set(edges) and len(edges) >= 2
                    if (
                        not named
                        or type(count) is not int
                        or not {type(low), type(high)} <= {int, type(None)}
                    ):
                        raise self._fault(
                            f"{self.name}: given bucket {str(bucket)[:60]}; allowed: whole min, "
                            "max, count",
                            row,
                        )
                    if low is None or high is None:
                        self._bucket(f"({low}...{high})", count, row)
                    else:
                        self._bucket(f"[{low}, {high + 1})", count, row)

    def _bucket(self, edges: str, count: int, row: int) -> None:
        if self.scale is None:
            self.scale = self._scale(row)
            self.scales[self.name] = self.scale
            self.histograms[self.name] = Histogram(self.path, "bpftrace")
        if found := _RANGE.match(edges):
            low, high = _edge(found[1], found[2]), _edge(found[3], found[4])
        elif found := _ONE.match(edges):
            low = _edge(found[1], found[2])
            high = low + 1
        elif "..." in edges:
            if count:
                raise self._fault(
                    f"{count} samples in {edges}, which has no end; widen the lhist()", row
                )
            return
        else:
            raise self._fault(f"given bucket {edges}; allowed: [low, high) of times", row)
        if count < 0:
            raise self._fault(f"given a count of {count}; allowed: 0 or more", row)
        self.histograms[self.name].add(low * self.scale, high * self.scale, count, row)

    def _scale(self, row: int) -> float:
        """Return the ns of one unit, from the map's name or --unit."""
        tail = re.sub(r"\[.*", "", self.name).lstrip("@").rpartition("_")[2]
        named = tail if tail in NS else None
        if named and self.unit and NS[named] != NS[self.unit]:
            raise self._fault(f"{self.name} says {named}, --unit says {self.unit}", row)
        unit = named or self.unit
        if unit is None:
            raise self._fault(
                f"{self.name or 'the histogram'} does not say its unit; give --unit ns, us or ms",
                row,
            )
        return NS[unit]

    def _fault(self, message: str, row: int) -> InputError:
        return InputError(message, file=self.path, row=row)

    def end(self, row: int) -> None:
        """Take the end of the file."""
        if not any(histogram.samples for histogram in self.histograms.values()):
            raise self._fault("has no counts in its histogram", row)
        for name, histogram in self.histograms.items():
            if not histogram.buckets[-1][2]:
                raise self._fault(
                    f"{name or 'the histogram'} ends with an empty bucket; bpftrace prints none "
                    "after the last that counts: cut off?",
                    row,
                )
        for name, (total, at) in self.totals.items():
            histogram = self.histograms.get(name)
            if histogram is not None and histogram.samples:
                one = self.scales[name] / histogram.samples
                low, high = total * one, (total + 1) * one
                below, above = histogram.bounds()
                if high < below or low > above:
                    raise self._fault(
                        f"sum {total} over {histogram.samples} samples is a mean of {low:g} ns; "
                        f"the buckets of {name} allow {below:g} to {above:g} ns",
                        at,
                    )
                histogram.mean = low, high

    def found(self) -> dict[str, Histogram]:
        """Return map -> histogram."""
        return self.histograms


def by_pages(maps: Mapping[str, Histogram]) -> dict[str, dict[int, Histogram]]:
    """Return name of the map -> number of pages -> histogram, for maps keyed by one number."""
    found: dict[str, dict[int, Histogram]] = {}
    for name, pages, histogram in _keyed(maps):
        found.setdefault(name, {})[pages] = histogram
    return found


def _keyed(maps: Mapping[str, Histogram]) -> Iterator[tuple[str, int, Histogram]]:
    for name, histogram in maps.items():
        if match := _PAGES.match(name):
            yield match[1], int(match[2]), histogram


def _edge(digits: str, suffix: str) -> float:
    """Return the value of an edge such as 16K, which is 16 * 1024."""
    return float(int(digits) << 10 * " KMGTPE".index(suffix or " "))

"""What a tool printed -> one row of a batch latency table.

Three kinds of text are read, one file per batch setting and side:

* ftrace ``function_graph`` (the ``trace`` file, or ``trace-cmd report``): every
  duration of the function that runs with the zone lock held, leaf lines and
  closing braces alike.  A closing brace without a name belongs to the opening
  line of the same CPU and indentation; one whose opening was not recorded is
  left out.
* bcc ``funclatency``: a power-of-two histogram, with total and count below it.
* bpftrace ``hist()`` or ``lhist()``.

The mean is exact for function_graph and for funclatency's total and count.
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

import csv
import hashlib
import io
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcpmodel import data_package
from pcpmodel.data_package import INTERVAL_RESOURCE, LATENCY_RESOURCE, PLATFORM_RESOURCE
from pcpmodel.errors import InputError

__all__ = ["MAX_RAW_BYTES", "MIN_SAMPLES", "SIDES", "Estimate", "add_latency", "read_raw"]

#: Largest file of tool output [bytes].
MAX_RAW_BYTES = 1 << 30
#: Longest line of one [bytes].
MAX_LINE = 1 << 16
#: With fewer samples not even the largest one is above the 99th percentile
#: with 97.5 % probability.
MIN_SAMPLES = math.ceil(math.log(0.025) / math.log(0.99))

#: Side -> how the kernel's own functions of that side begin.
SIDES = {"free": "free_pcppages_bulk", "alloc": "rmqueue_bulk"}

_UNUSUAL = re.compile(rb"[\0\r]")
_NS = {"ns": 1.0, "nsecs": 1.0, "us": 1e3, "usecs": 1e3, "ms": 1e6, "msecs": 1e6}


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


# ------------------------------------------------------------------ public


def add_latency(
    machine: str,
    *,
    table: str | Path | None = None,
    raw: Mapping[str, Mapping[int, str | Path]] | None = None,
    throughput: Mapping[int, str] | None = None,
    functions: Mapping[str, str] | None = None,
    unit: str | None = None,
    platform: str | Path | None = None,
    data: str | Path | None = None,
    replace: bool = False,
) -> tuple[Path, int]:
    """Bring in the batch latency table of a machine.

    Parameters
    ----------
    machine : str
        Its name, ``[a-z0-9][a-z0-9-]*``.
    table : path, optional
        ``batch_latency.csv``; or else ``raw``.
    raw : dict, optional
        ``{"free": {batch: file}, "alloc": {batch: file}}``, tool output.
    throughput : dict, optional
        Batch to throughput as text [pages/s], with ``raw``.
    functions : dict, optional
        Side to the function or histogram to read, where a file has several.
    unit : {"ns", "us", "ms"}, optional
        Unit of histograms that do not name it (bpftrace).
    platform : path, optional
        ``platform.json``; without it every field is null.
    data : path, optional
        Data directory; default `pcpmodel.data_package.data_dir`.
    replace : bool
        Whether to overwrite a machine of that name.

    Returns
    -------
    Path, int
        The machine's directory and the rows of its table.

    Raises
    ------
    InputError
        If anything is not as it must be; then nothing has changed on disk.
    """
    data_package.check_name(machine)
    root = data_package.data_root(data)
    target = root / "hardware" / machine
    if target.exists() and not replace:
        # Said before hours of trace are read; store_package() holds to it.
        raise InputError(f"machine {machine!r} is there already; --replace overwrites it",
                         file=target)  # fmt: skip
    faults: list[InputError] = []
    known = dict.fromkeys(data_package.PLATFORM_FIELDS) | {"sources": []}
    if platform is not None:
        given = data_package.parse_json(data_package.read_bytes(platform), platform, faults)
        if not faults:
            known = data_package.check_platform(given, platform, faults, sources=False)
        data_package.raise_first(faults)

    files: dict[str, bytes] = {}
    if table is not None:
        content = data_package.read_bytes(table)
        parsed = _parse(content, table, LATENCY_RESOURCE, faults)
        data_package.raise_first(faults)
        sources = [_source(table, content, "as given")]
        rows = parsed.cells
    else:
        rows, ranges, sources = _rows_from_raw(raw or {}, throughput or {}, functions or {}, unit)
        files[INTERVAL_RESOURCE["path"]] = _csv(INTERVAL_RESOURCE, ranges)
    files[LATENCY_RESOURCE["path"]] = _csv(LATENCY_RESOURCE, rows)
    files[PLATFORM_RESOURCE["path"]] = data_package.dump_json(known).encode()
    descriptor = data_package.hardware_descriptor(
        machine,
        f"Batch latency, {known['title'] or machine}",
        sources,
        interval=INTERVAL_RESOURCE["path"] in files,
    )
    files["datapackage.json"] = data_package.dump_json(descriptor).encode()
    return data_package.store_package(root, "hardware", machine, files, replace=replace), len(rows)


def read_raw(
    path: str | Path, side: str, *, name: str | None = None, unit: str | None = None
) -> Estimate:
    """Estimate mean and 99th percentile from one file of tool output.

    Parameters
    ----------
    path : path
        function_graph text, funclatency or bpftrace output.
    side : {"free", "alloc"}
        Which function to look for; see `SIDES`.
    name : str, optional
        Function or histogram to read instead.
    unit : {"ns", "us", "ms"}, optional
        Unit of a histogram that does not name it.

    Raises
    ------
    InputError
        If the text is of no known kind, is damaged, or has too few samples.
    """
    reader: _Graph | _Bcc | _Bpftrace | None = None
    row = 0
    for row, line in _lines(path):
        if reader is None:
            reader = _sniff(line, row, path, unit)
        if reader is not None:
            reader.line(line, row)
    if reader is None:
        what = "is empty" if row == 0 else "has no durations and no histogram"
        raise InputError(
            f"{what}; allowed: ftrace function_graph text, bcc funclatency, bpftrace hist()",
            file=path,
        )
    reader.end(row)
    found = reader.found()
    chosen = _choose(found, side, name, path)
    estimate = found[chosen]
    if estimate.samples < MIN_SAMPLES:
        raise InputError(
            f"has {estimate.samples} samples of {chosen or 'the histogram'}; "
            f"allowed: at least {MIN_SAMPLES}, for a 99th percentile",
            file=path,
        )
    return estimate.estimate(chosen)


# ------------------------------------------------------------------- table


def _parse(content: bytes, path: Any, resource: Mapping[str, Any], faults: list) -> Any:
    return data_package.parse_table(content, path, resource["schema"], resource["rules"], faults)


def _source(path: str | Path, content_or_digest: bytes | str, note: str) -> dict[str, Any]:
    digest = content_or_digest
    if isinstance(digest, bytes):
        digest = hashlib.sha256(digest).hexdigest()
    return {"title": Path(path).name, "sha256": digest, "note": note}


def _csv(resource: Mapping[str, Any], rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column["name"] for column in resource["schema"]["fields"]])
    writer.writerows(rows)
    return text.getvalue().encode()


def _rows_from_raw(
    raw: Mapping[str, Mapping[int, str | Path]],
    throughput: Mapping[int, str],
    functions: Mapping[str, str],
    unit: str | None,
) -> tuple[list[list[str]], list[list[str]], list[dict]]:
    """Return rows of the table, rows of the intervals, and the sources."""
    batches = sorted({batch for files in raw.values() for batch in files})
    for batch in batches:
        for side in SIDES:
            if batch not in raw.get(side, {}):
                raise InputError(f"batch {batch} has no --{side} {batch}=FILE")
    for batch in throughput:
        if batch not in batches:
            raise InputError(f"--throughput {batch}: no such batch; given: {batches}")
    rows, ranges, sources = [], [], []
    for batch in batches:
        row, interval = [str(batch), throughput.get(batch, "")], [str(batch)]
        for side in SIDES:
            path = raw[side][batch]
            got = read_raw(path, side, name=functions.get(side), unit=unit)
            row += [f"{got.avg_us:.3f}", f"{got.p99_us:.3f}"]
            interval.append(str(got.samples))
            for what in ("avg", "p99"):
                low, high = (getattr(got, f"{what}_{end}_us") for end in ("low", "high"))
                interval += [
                    f"{math.floor(low * 1e3) / 1e3:.3f}",
                    f"{math.ceil(high * 1e3) / 1e3:.3f}",
                ]
            what = f"{side} at batch {batch}: {got.tool}, {got.name or 'one histogram'}"
            sources.append(_source(path, _digest(path), what))
        rows.append(row)
        ranges.append(interval)
    faults: list[InputError] = []
    for resource, lines in ((LATENCY_RESOURCE, rows), (INTERVAL_RESOURCE, ranges)):
        _parse(_csv(resource, lines), resource["path"], resource, faults)
    for fault in faults:
        # Say it of the file that the figure came from.
        side = (fault.column or "").split("_")[0]
        if side in SIDES and fault.row is not None:
            path = raw[side][batches[fault.row - 2]]
            raise InputError(fault.message, file=path, column=fault.column)
    data_package.raise_first(faults)
    return rows, ranges, sources


def _digest(path: str | Path) -> str:
    with data_package.open_regular(path, MAX_RAW_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------- lines


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield the rows of a text file, numbered from 1."""
    with data_package.open_regular(path, MAX_RAW_BYTES) as file:
        row = 0
        while raw := file.readline(MAX_LINE):
            row += 1
            if len(raw) == MAX_LINE:
                raise InputError(
                    f"line is longer than {MAX_LINE} bytes; expected text", file=path, row=row
                )
            if raw.isascii() and not _UNUSUAL.search(raw):
                text = raw.decode("ascii")
            else:
                try:
                    text = data_package.decode(raw, path)
                except InputError as error:
                    raise InputError(error.message, file=path, row=row) from None
            yield row, text.rstrip("\n")


def _sniff(line: str, row: int, path: Any, unit: str | None) -> _Graph | _Bcc | _Bpftrace | None:
    """Return the reader that a line calls for, if it is telling."""
    if tracer := re.match(r"# tracer: (\S+)", line):
        if tracer[1] != "function_graph":
            raise InputError(
                f"given tracer {tracer[1]!r}; allowed: function_graph", file=path, row=row
            )
        return _Graph(path)
    if _BCC_HEAD.match(line):
        return _Bcc(path)
    if _BPF_MAP.match(line) or _BPF_ROW.match(line):
        return _Bpftrace(path, unit)
    if _OPEN.search(line) or ("|" in line and any(map(_DURATION.search, line.split("|")))):
        return _Graph(path)
    return None


def _choose(found: Mapping[str, Any], side: str, wanted: str | None, path: Any) -> str:
    """Return the name among those found that a side's figures are read from."""
    names = sorted(found)
    shown = ", ".join(name or "(no name)" for name in names) or "none"
    if wanted is not None:
        near = [name for name in names if wanted in (name, _bare(name))]
        if len(near) == 1:
            return near[0]
        raise InputError(f"--{side}-function {wanted!r} is not there; found: {shown}", file=path)
    own = [name for name in names if _bare(name).startswith(SIDES[side])]
    others = [begin for other, begin in SIDES.items() if other != side]
    if len(own) == 1:
        return own[0]
    if len(names) == 1 and not _bare(names[0]).startswith(tuple(others)):
        return names[0]
    raise InputError(
        f"which one is the {side} side? Found: {shown}; say --{side}-function NAME", file=path
    )


def _bare(name: str) -> str:
    """Return the function in ``@ns[function]``, ``@function`` or ``b'function' [pid]``."""
    found = re.match(r"@(\w*)(?:\[(.+)\])?$|b?'?([\w.]+)", name)
    return (found[2] or found[1] or found[3] or "") if found else name


# ----------------------------------------------------------- function_graph

_DURATION = re.compile(r"(?:^|[\s+!#*@$])(\d+(?:\.\d+)?) (us|ns|ms|s|usecs|nsecs|msecs)\s*$")
_CALL = r"(?P<name>[A-Za-z_][\w.]*)(?: \[\w+\])?\(.*\)"
_COMMENT = r"(?:\s*/\*.*\*/)?\s*$"
_OPEN = re.compile(r"\|(?P<indent> *)" + _CALL + r" \{" + _COMMENT)
_LEAF = re.compile(r"(?P<indent> *)" + _CALL + ";" + _COMMENT)
_CLOSE = re.compile(r"(?P<indent> *)\}(?: /\* (?P<name>[A-Za-z_][\w.]*)\b.*\*/)?\s*$")
_CPU = re.compile(r"(?:^|\s)(\d+)\)|\[(\d{3,})\]")
_LOST = re.compile(r"CPU:(\d+) \[LOST \d+ EVENTS\]")
_SWITCH = re.compile(r"^\s*(\d+)\)\s+.* => ")
_OTHER = re.compile(r"\s*$|\s*#|\s*-{10,}\s*$|.*\|\s*/\*.*\*/\s*$|.*(==========> |<========== )\|")


class _Durations:
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
        rank, low, high = _p99_ranks(n)
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


class _Graph:
    """Reader of function_graph text."""

    def __init__(self, path: Any) -> None:
        self.path = path
        self.durations: dict[str, _Durations] = {}
        self.open: dict[str, list[tuple[int, str]]] = {}  # by CPU: indentation, name

    def line(self, line: str, row: int) -> None:
        """Take one line of text."""
        parts = line.split("|")
        for at, part in enumerate(parts):
            if part.rstrip().endswith("s") and (found := _DURATION.search(part)):
                return self._timed(found, "|".join(parts[: at + 1]), parts[at + 1 :], row)
        return self._untimed(line, row)

    def _timed(self, found: re.Match, head: str, after: list[str], row: int) -> None:
        if found[2] != "us":
            raise self._fault(f"given a duration in {found[2]}; function_graph prints us", row)
        rest = "|".join(after)
        if leaf := _LEAF.match(rest):
            name: str | None = leaf["name"]
        elif close := _CLOSE.match(rest):
            name = self._close(self._cpu(head), len(close["indent"]), close["name"])
        else:
            raise self._fault(f"no call follows the duration: {rest.strip()[:60]!r}", row)
        if name is not None:
            if name not in self.durations:
                self.durations[name] = _Durations()
            self.durations[name].us.append(float(found[1]))

    def _untimed(self, line: str, row: int) -> None:
        if opened := _OPEN.search(line):
            stack = self.open.setdefault(self._cpu(line), [])
            indent = len(opened["indent"])
            while stack and stack[-1][0] >= indent:
                stack.pop()
            stack.append((indent, opened["name"]))
        elif gone := _LOST.search(line) or _SWITCH.search(line):
            self.open.pop(gone[1].lstrip("0") or "0", None)
        elif not _OTHER.match(line):
            raise self._fault(f"not a line of function_graph: {line.strip()[:60]!r}", row)

    def _close(self, cpu: str, indent: int, name: str | None) -> str | None:
        stack = self.open.get(cpu, [])
        while stack and stack[-1][0] > indent:
            stack.pop()
        opened = stack.pop()[1] if stack and stack[-1][0] == indent else None
        return name or opened

    @staticmethod
    def _cpu(head: str) -> str:
        found = _CPU.search(head)
        return (found[1] or found[2]).lstrip("0") or "0" if found else ""

    def _fault(self, message: str, row: int) -> InputError:
        return InputError(message, file=self.path, row=row)

    def end(self, row: int) -> None:
        """Take the end of the file."""
        if not self.durations:
            raise self._fault("has no durations of calls; is funcgraph-duration on?", row)

    def found(self) -> dict[str, _Durations]:
        """Return function -> durations."""
        return self.durations


# --------------------------------------------------------------- histograms

_BCC_HEAD = re.compile(r"^\s*(\S+)\s+: count\s+distribution\s*$")
_BCC_ROW = re.compile(r"^\s*(\d+) -> (\d+)\s*: (\d+)\s*\|[* +]*\|\s*$")
_BCC_AVG = re.compile(r"^avg = (\d+) (\w+), total: (\d+) (\w+), count: (\d+)\s*$")
_BCC_NAME = re.compile(r"^Function = (.*\S)\s*$")
_EDGE = r"(\d+)([KMGTPE]?)"
_BPF_MAP = re.compile(r"^(@\w*(?:\[.*\])?): *$")
_BPF_ROW = re.compile(r"^([\[(][^|]*[\])])\s+(-?\d+) \|[@ ]*\|\s*$")
_BPF_RANGE = re.compile(rf"^\[{_EDGE}, {_EDGE}\)$")
_BPF_ONE = re.compile(rf"^\[{_EDGE}\]$")


@dataclass
class _Histogram:
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

    def estimate(self, name: str) -> Estimate:
        n = self.samples
        low = math.fsum(c * a for a, _, c in self.buckets) / n
        high = math.fsum(c * b for _, b, c in self.buckets) / n
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
        rank, first, last = _p99_ranks(n)
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


def _p99_ranks(n: int) -> tuple[int, int, int]:
    """Return rank of the 99th percentile among n samples, and 95 % bounds of it."""
    from scipy.stats import binom

    low, high = (int(binom.ppf(p, n, 0.99)) for p in (0.025, 0.975))
    return math.ceil(0.99 * n), max(low, 1), min(high + 1, n)


class _Bcc:
    """Reader of funclatency output."""

    def __init__(self, path: Any) -> None:
        self.path = path
        self.histograms: dict[str, _Histogram] = {}
        self.scale = 0.0
        self.unit = ""
        self.name = ""
        self.current: _Histogram | None = None
        self.averages = 0

    def line(self, line: str, row: int) -> None:
        """Take one line of text."""
        if named := _BCC_NAME.match(line):
            self.name = named[1]
        elif head := _BCC_HEAD.match(line):
            self._begin(head[1], row)
        elif "->" in line and self.current is not None:
            bucket = _BCC_ROW.match(line)
            if not bucket:
                raise self._fault(f"not a line of a histogram: {line.strip()[:60]!r}", row)
            low, high, count = int(bucket[1]), int(bucket[2]) + 1, int(bucket[3])
            self.current.add(low * self.scale, high * self.scale, count, row)
        elif line.startswith("avg"):
            self._average(line, row)

    def _begin(self, unit: str, row: int) -> None:
        if unit not in _NS:
            raise self._fault(f"given a histogram of {unit!r}; allowed: nsecs, usecs, msecs", row)
        if self.unit not in ("", unit):
            raise self._fault(f"given {unit}, and {self.unit} above; one unit per file", row)
        if self.name in self.histograms:
            raise self._fault("a second histogram; one file is one batch setting", row)
        self.unit, self.scale = unit, _NS[unit]
        self.current = self.histograms[self.name] = _Histogram(self.path, "bcc funclatency")

    def _average(self, line: str, row: int) -> None:
        given = _BCC_AVG.match(line)
        if not given or self.current is None:
            raise self._fault(f"not an average of funclatency: {line.strip()[:60]!r}", row)
        average, total, count = (int(given[group]) for group in (1, 3, 5))
        for unit in (given[2], given[4]):
            if unit != self.unit:
                raise self._fault(f"given {unit}, and {self.unit} above; one unit per file", row)
        self.averages += 1
        if len(self.histograms) == 1:  # it is over all of them
            held = self.current.samples
            # The tool reads both while calls go on; they may differ by a few.
            if abs(count - held) > max(held, count) // 1000:
                raise self._fault(f"count {count}; the buckets hold {held}", row)
            if count and average != total // count:
                raise self._fault(f"average {average}; total / count is {total // count}", row)
            if count:
                self.current.mean = total * self.scale / count, (total + 1) * self.scale / count

    def _fault(self, message: str, row: int | None = None) -> InputError:
        return InputError(message, file=self.path, row=row)

    def end(self, row: int) -> None:
        """Take the end of the file."""
        if not any(histogram.samples for histogram in self.histograms.values()):
            raise self._fault("has no counts in its histogram", row)
        if self.averages and len(self.histograms) > 1:
            for histogram in self.histograms.values():
                histogram.mean = None

    def found(self) -> dict[str, _Histogram]:
        """Return function -> histogram."""
        return self.histograms


class _Bpftrace:
    """Reader of bpftrace maps that hold histograms."""

    def __init__(self, path: Any, unit: str | None) -> None:
        self.path = path
        self.unit = unit
        self.histograms: dict[str, _Histogram] = {}
        self.name = ""
        self.scale: float | None = None

    def line(self, line: str, row: int) -> None:
        """Take one line of text."""
        if named := _BPF_MAP.match(line):
            self.name, self.scale = named[1], None
            if self.name in self.histograms:
                raise self._fault(f"{self.name} a second time; one file is one batch setting", row)
        elif line.startswith(("[", "(")):
            bucket = _BPF_ROW.match(line)
            if not bucket:
                raise self._fault(f"not a line of a histogram: {line.strip()[:60]!r}", row)
            self._bucket(bucket[1], int(bucket[2]), row)

    def _bucket(self, edges: str, count: int, row: int) -> None:
        if self.scale is None:
            self.scale = self._scale(row)
            self.histograms[self.name] = _Histogram(self.path, "bpftrace")
        if found := _BPF_RANGE.match(edges):
            low, high = _edge(found[1], found[2]), _edge(found[3], found[4])
        elif found := _BPF_ONE.match(edges):
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
        named = tail if tail in _NS else None
        if named and self.unit and _NS[named] != _NS[self.unit]:
            raise self._fault(f"{self.name} says {named}, --unit says {self.unit}", row)
        unit = named or self.unit
        if unit is None:
            raise self._fault(
                f"{self.name or 'the histogram'} does not say its unit; give --unit ns, us or ms",
                row,
            )
        return _NS[unit]

    def _fault(self, message: str, row: int) -> InputError:
        return InputError(message, file=self.path, row=row)

    def end(self, row: int) -> None:
        """Take the end of the file."""
        if not any(histogram.samples for histogram in self.histograms.values()):
            raise self._fault("has no counts in its histogram", row)

    def found(self) -> dict[str, _Histogram]:
        """Return map -> histogram."""
        return self.histograms


def _edge(digits: str, suffix: str) -> float:
    """Return the value of an edge such as 16K, which is 16 * 1024."""
    return float(int(digits) << 10 * " KMGTPE".index(suffix or " "))

"""A kernel robot's mail -> a package below ``data/published``: its comparisons of two commits.

The robot (0-day, LKP) prints for each test a line of parameter names, a line of their values, the
two commits, and rows "before, change, after, metric" with a relative standard deviation behind a
figure that varies.  A change with ``%`` is relative; one without is the difference, for metrics
that are shares.  Mails come quoted, as quoted-printable or base64, and with the plus-minus sign
in whatever encoding an archive made of it.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import calendar
import email
import email.message
import email.policy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pcpmodel.datasets import packages, store
from pcpmodel.errors import InputError
from pcpmodel.files import decode, read_bytes

__all__ = ["Comparison", "Report", "add_report", "read_report"]

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
# The sign in front of the deviation is one character, or what is left of it.
_SPREAD = r"(?: ?(?:\+-|[^\x00-\x7f]{1,2}) *(\d+|NaN|-?nan)%)?"
_FIGURES = rf"^\s*({_NUMBER}){_SPREAD}\s+([+-]?{_NUMBER[2:]}%?)\s+({_NUMBER}){_SPREAD}"
_ROW = re.compile(rf"{_FIGURES}\s+([A-Za-z_]\S*)\s*$")
_HALF_ROW = re.compile(rf"{_FIGURES}\s*$")
_HEAD = re.compile(r"^\s*%stddev\s+%change\s+%stddev\s*$")
_OTHER_HEAD = re.compile(r"^\s*(%stddev|fail:runs|%reproduction).*(%stddev|fail:runs)\s*$")
_COMMIT = re.compile(r'^\s+([0-9a-f]{8,40})(?: \("(.*?)"?\)?)?\s*$')
_PAIR = re.compile(r"^([0-9a-f]{10,40}) ([0-9a-f]{10,40})\s*$")
_RULER = re.compile(r"^={20,}$")
_MACHINE = re.compile(
    r"test machine *[:|] *(\d+) (?:threads|cores)(?: (\d+) sockets?)? *(.*?)"
    r"(?: with (\d+)G memory)? *\|?\s*$"
)
_MESSAGE_ID = re.compile(r"<[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,200}@[A-Za-z0-9.-]{1,200}>")
_ALLOCATOR = re.compile(
    r"rmqueue|free_pcppages|free_unref|free_frozen|free_one_page|get_page_from_freelist"
    r"|__alloc_(frozen_)?pages|alloc_pages|release_pages|free_pages|clear_page|queued_spin_lock"
    r"|_raw_spin_lock|decay_pcp|drain_(zone|pages)|folios_put|free_folios|expand\b|zone_lock"
)
#: Names of parameters that say nothing of the workload; tbox_group is a host's name.
_NO_WORKLOAD = {"compiler", "kconfig", "rootfs", "tbox_group", "cpufreq_governor", "ucode"}
#: Case, parameter, its value, workload: that of the same name, if none is said.
_MODELS = (
    (
        "will-it-scale",
        "test",
        re.compile("(page_fault[123]|malloc1|tlb_flush[12]|fallocate1)$"),
        None,
    ),
    ("kbuild", None, None, "kbuild"),
    ("netperf", "test", re.compile("SCTP_STREAM"), "sctp_stream"),
)
_MOST_ROWS = 50_000
_LICENCE = (
    "Measured figures quoted from public kernel mailing lists; they belong to their authors. The "
    "compilation is under the licence of this project."
)
_WITHIN = "see column unit"
_FIELDS = (
    ("comparison", "integer", "1", "number of the comparison in the mail, from 1"),
    ("commit_before", "string", "", "commit it is compared with"),
    ("commit_after", "string", "", "commit measured"),
    ("machine", "string", "", "machine measured, as the mail describes it"),
    ("cpus", "integer", "CPUs", "logical CPUs"),
    ("sockets", "integer", "sockets", "processor packages"),
    ("memory_gb", "integer", "GB", "main memory"),
    ("workload", "string", "", "test case and its parameters"),
    ("model", "string", "", "workload of the simulator that it is; empty: none"),
    ("metric", "string", "", "what is measured, as the robot calls it"),
    ("unit", "string", "", "unit of the figures in this row"),
    ("before", "number", _WITHIN, "mean without the change"),
    ("before_stddev_pct", "number", "%", "its standard deviation; empty: below the robot's limit"),
    ("after", "number", _WITHIN, "mean with the change"),
    ("after_stddev_pct", "number", "%", "its standard deviation; empty: below the robot's limit"),
    ("change_pct", "number", "%", "relative change as stated"),
    ("change_points", "number", "percentage points", "difference as stated, of metrics in %"),
)


class Row(NamedTuple):
    """One line of a comparison, its numbers as text."""

    metric: str
    before: str
    before_spread: str
    change: str
    after: str
    after_spread: str


@dataclass
class Comparison:
    """Two commits under one test."""

    parameters: dict[str, str]
    commits: tuple[str, str]
    rows: list[Row] = field(default_factory=list)
    machine: tuple[str, str, str, str] = ("", "", "", "")  # text, CPUs, sockets, GB

    @property
    def workload(self) -> str:
        """Test case and what it was given."""
        case = self.parameters.get("testcase", "")
        rest = (f"{k}={v}" for k, v in self.parameters.items() if k not in _NO_WORKLOAD)
        return " ".join([case, *(word for word in rest if not word.startswith("testcase="))])

    @property
    def model(self) -> str:
        """Workload of the simulator that the test is, or nothing: of threads there is none."""
        if self.parameters.get("mode") == "thread":
            return ""
        for case, name, pattern, model in _MODELS:
            value = self.parameters.get(name or "", "")
            if self.parameters.get("testcase") == case and (not pattern or pattern.match(value)):
                return model or value
        return ""


@dataclass
class Report:
    """A mail: where it is from, and its comparisons."""

    title: str
    message_id: str
    date: str
    comparisons: list[Comparison]


def read_report(path: str | Path) -> Report:
    """Read a kernel robot's mail, or the text of one.

    Parameters
    ----------
    path : path
        RFC 5322 message (one, not a mailbox) or its text; at most 16 MiB.

    Raises
    ------
    InputError
        If it has no comparison of two commits, or one that is damaged or wrapped; rows are those of
        the file, or of the decoded text where the mail was encoded.
    """
    raw = read_bytes(path)
    title, message_id, date, text, first_row, shown = _unpacked(raw, path)
    lines = [re.sub(r"^(?:> ?|\| ?(?=>))+", "", line).rstrip() for line in text.split("\n")]
    reader = _Reader(lines, shown, first_row)
    comparisons = reader.comparisons()
    if not comparisons:
        raise InputError(
            "has no '%stddev %change %stddev' table; expected a kernel robot's report", file=path
        )
    if not message_id and (known := re.search(r"\b(\d{12}\.[0-9a-f]{6,12}-[\w.]+@[\w.-]+)", text)):
        message_id = known[1]
    return Report(title or Path(path).name, message_id, date, comparisons)


def _unpacked(raw: bytes, path: str | Path) -> tuple[str, str, str, str, int, str]:
    """Return title, message id, date, text, the row it begins at, and how to call it."""
    if not re.match(rb"(?:From \S[^\n]*\r?\n)?[A-Za-z][A-Za-z0-9-]{0,60}:[ \t]", raw):
        return "", "", "", decode(raw, path), 1, str(path)
    if len(re.findall(rb"(?m)^From \S+ .*\d{4}\r?$", raw)) > 1:
        raise InputError("is a mailbox of several mails; give one", file=path)
    message = email.message_from_bytes(raw, policy=email.policy.default)
    try:
        headers = {
            name: [str(value) for value in message.get_all(name, [])]
            for name in ("subject", "message-id", "date")
        }
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"has a damaged header: {error}", file=path, row=1) from None
    for name, values in headers.items():
        if len(values) > 1:
            raise InputError(f"has {len(values)} headers {name}; allowed: one", file=path)
        if any(not c.isprintable() for value in values for c in value):
            raise InputError(f"header {name} has a character that is not to be printed", file=path)
    message_id = "".join(headers["message-id"]).strip()
    if message_id and not _MESSAGE_ID.fullmatch(message_id):
        raise InputError(f"given Message-ID {message_id[:80]!r}; allowed: <left@right>", file=path)
    parts = [part for part in message.walk() if part.get_content_type() == "text/plain"]
    if not parts:
        raise InputError("has no part of plain text", file=path)
    body = max((_text(part, path) for part in parts[:20]), key=lambda t: t.count("%stddev"))
    encoded = message.is_multipart() or str(
        message.get("content-transfer-encoding", "")
    ).lower() in ("quoted-printable", "base64")
    head = re.split(rb"\r?\n\r?\n", raw, maxsplit=1)[0].count(b"\n") + 3
    date = "".join(headers["date"])
    found = re.search(r"(\d{1,2}) ([A-Z][a-z]{2}) (\d{4})", date)
    months = list(calendar.month_abbr)
    day = ""
    if found and found[2] in months:
        day = f"{found[3]}-{months.index(found[2]):02}-{int(found[1]):02}"
    title = " ".join("".join(headers["subject"]).split())[:300]
    shown = f"{path} (its text, decoded)" if encoded else str(path)
    return title, message_id.strip("<>"), day, body, 1 if encoded else head, shown


def _text(part: email.message.Message, path: str | Path) -> str:
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes):
        return ""
    charset = part.get_content_charset() or "utf-8"
    for known in (charset, "utf-8", "iso-8859-1"):
        try:
            text = raw.decode(known)
        except (LookupError, UnicodeDecodeError):
            continue
        return decode(text.encode(), path)
    raise InputError(f"is not text in {charset}", file=path)


class _Reader:
    """Goes over the lines once."""

    def __init__(self, lines: Sequence[str], path: str, first_row: int) -> None:
        self.lines = lines
        self.path = path
        self.first_row = first_row

    def _fault(self, message: str, at: int) -> InputError:
        return InputError(message, file=self.path, row=at + self.first_row)

    def comparisons(self) -> list[Comparison]:
        """Return every comparison, with the machine that it was measured on where that is said."""
        found, machines = [], []
        for at, line in enumerate(self.lines):
            if machine := _MACHINE.search(line):
                machines.append(tuple(cell or "" for cell in machine.group(3, 1, 2, 4)))
            if _HEAD.match(line):
                found.append(self._comparison(at))
                if sum(len(one.rows) for one in found) > _MOST_ROWS:
                    raise self._fault(f"more than {_MOST_ROWS} rows", at)
            elif _OTHER_HEAD.match(line) and line.count("%stddev") > 2:
                raise self._fault("compares more than two commits; allowed: two", at)
        # One machine is every test's; as many as tests are given in the tests' order.
        if len(set(machines)) == 1:
            machines = machines[:1] * len(found)
        if len(machines) == len(found):
            for one, machine in zip(found, machines, strict=True):
                one.machine = machine
        return found

    def _comparison(self, at: int) -> Comparison:
        pair = next((p for i in (1, 2, 3) if (p := _PAIR.match(self._line(at - i)))), None)
        if pair is None:
            raise self._fault("no line with the two commits stands above the table", at)
        commits: list[str] = []
        i = at - 1
        while i > max(at - 40, 0) and not _RULER.match(self._line(i)):
            if (commit := _COMMIT.match(self._line(i))) and len(commits) < 2:
                commits.insert(0, commit[1])
            i -= 1
        if not _RULER.match(self._line(i)):
            raise self._fault("no line of '=' with the test's parameters is above the table", at)
        long = (pair[1], pair[2])
        if len(commits) == 2 and not all(
            a.startswith(b) or b.startswith(a) for a, b in zip(long, commits, strict=True)
        ):
            raise self._fault(f"the columns are of {long}, the commits named are {commits}", at)
        names, values = (
            self._line(i + 1).strip().rstrip(":").split("/"),
            self._line(i + 2).split("/"),
        )
        if len(names) != len(values) or not re.fullmatch(r"[\w/-]+", "/".join(names)):
            raise self._fault(
                f"{len(names)} names of parameters and {len(values)} values: wrapped? Save it "
                "unwrapped",
                i + 1,
            )
        parameters = {n: v.strip() for n, v in zip(names, values, strict=True)}
        if "testcase" not in parameters:
            raise self._fault("the parameters name no testcase", i + 1)
        one = Comparison(parameters, long)
        one.rows += self._rows(at + 2)
        if not one.rows:
            raise self._fault("the table has no rows", at)
        return one

    def _line(self, at: int) -> str:
        return self.lines[at] if 0 <= at < len(self.lines) else ""

    def _rows(self, at: int) -> Iterator[Row]:
        while line := self._line(at).strip("\f"):
            text = line
            if _HALF_ROW.match(line) and re.fullmatch(r"\s*[A-Za-z_]\S*", self._line(at + 1)):
                at += 1  # only the name went to the next line
                text = f"{line}  {self._line(at).strip()}"
            found = _ROW.match(text)
            if not found:
                raise self._fault(
                    f"not a row of the table: {line.strip()[:60]!r}: wrapped or damaged? Save the "
                    "mail unwrapped",
                    at,
                )
            cells = [cell or "" for cell in found.groups()]
            row = Row(cells[5], *cells[:5])
            if not _follows(row):
                raise self._fault(
                    f"the change {row.change} does not follow from {row.before} and {row.after}", at
                )
            yield row
            at += 1


def _ends(text: str) -> tuple[float, float]:
    """Return what a printed number may have been before it was rounded."""
    digits, _, exponent = text.partition("e")
    step = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return float(text) - 0.6 * step, float(text) + 0.6 * step


def _follows(row: Row) -> bool:
    before, after = _ends(row.before), _ends(row.after)
    low, high = _ends(row.change.rstrip("%"))
    if not row.change.endswith("%"):
        return after[0] - before[1] <= high and low <= after[1] - before[0]
    if before[0] <= 0 <= before[1]:
        return True  # anything follows from a figure that is rounded to 0
    ratios = [100 * (a / b - 1) for a in after for b in before]
    slack = 0.05 + 0.002 * max(map(abs, ratios))
    return min(ratios) - slack <= high and low <= max(ratios) + slack


def _unit(metric: str) -> str:
    if metric.endswith("%") or metric.startswith("perf-profile.") or "_pct" in metric:
        return "%"
    if metric.endswith(("ops_per_sec", "per_process_ops", "per_thread_ops")):
        return "1/s"
    if metric.endswith("Mbps"):
        return "Mb/s"
    if metric.endswith(("_time", "elapsed_time.max")):
        return "s"
    return "as the metric says"


def _cells(number: int, one: Comparison, row: Row) -> list[str]:
    machine, cpus, sockets, memory = one.machine
    relative = row.change.endswith("%")
    spreads = ["" if "n" in s.lower() else s for s in (row.before_spread, row.after_spread)]
    change = row.change.rstrip("%").lstrip("+")
    return [
        *(str(number), *one.commits, machine, cpus, sockets, memory, one.workload, one.model),
        *(row.metric, _unit(row.metric), row.before, spreads[0], row.after, spreads[1]),
        *((change, "") if relative else ("", change)),
    ]


def add_report(
    path: str | Path,
    *,
    name: str | None = None,
    data: str | Path | None = None,
    replace: bool = False,
) -> tuple[Path, dict[str, int]]:
    """Bring in a kernel robot's mail as a published source.

    Parameters
    ----------
    path : path
        As in `read_report`.
    name : str, optional
        Of the package, ``[a-z0-9][a-z0-9-]*``; default: from the Message-ID.
    data : path, optional
        Data directory; default `pcpmodel.datasets.packages.data_dir`.
    replace : bool
        Whether a source of that name may be there.

    Returns
    -------
    Path, dict of str to int
        Directory, and rows by table: ``figures``, and ``profile`` with the rows of ``perf-profile``
        in which the page allocator or a spinlock is.  Other functions' and ``perf-sched``'s rows
        are left out.

    Raises
    ------
    InputError
        As `read_report`; if the package is there or cannot be written.
    """
    report = read_report(path)
    if name is None:
        left = report.message_id.split("@")[0]
        known = re.match(r"(\d{12})\.([0-9a-f]{6,40})", left)
        if not known:
            raise InputError(
                "has no Message-ID of the robot's to be called by; give --name", file=path
            )
        name = f"lkp-{known[1]}-{known[2]}"
    packages.check_name(name, "source")
    figures, profile = [], []
    for number, one in enumerate(report.comparisons, 1):
        for row in one.rows:
            if row.metric.startswith("perf-profile."):
                if _ALLOCATOR.search(row.metric):
                    profile.append(_cells(number, one, row))
            elif not row.metric.startswith("perf-sched."):
                figures.append(_cells(number, one, row))
    tables = {"figures": (_FIELDS, figures), "profile": (_FIELDS, profile)}
    tables = {table: (fields, rows) for table, (fields, rows) in tables.items() if rows}
    if not tables:
        raise InputError("has rows of other functions and of perf-sched only", file=path)
    source = {"title": report.title, "author": "kernel test robot"}
    source |= {"date": report.date} if report.date else {}
    source |= {"message_id": report.message_id} if report.message_id else {}
    files = store.table_files(
        name, report.title, _LICENCE, source, tables, added_by="pcpmodel data add report"
    )
    root = packages.data_root(data)
    stored = store.store_package(root, "published", name, files, replace=replace)
    return stored, {table: len(rows) for table, (_, rows) in tables.items()}

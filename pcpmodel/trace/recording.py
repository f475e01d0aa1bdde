"""A recording: a directory with one trace of one kernel and snapshots of its lists.

`recording` opens a directory; everything in it is read only when asked for, and
checked against the machine that the recording itself describes, since it may come
from a stranger: sizes, page numbers, names, references.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pcpmodel.arguments import checked_methods
from pcpmodel.cached import cached_property
from pcpmodel.datasets.packages import data_dir
from pcpmodel.errors import InputError, printable, unknown_name
from pcpmodel.files import read_json
from pcpmodel.kernel.releases import Release, nearest_release
from pcpmodel.kernel.releases import release as find_release
from pcpmodel.kernel.sizing import percpu_pagelist_high_fraction
from pcpmodel.trace.dumps import (
    MAX_CPUS,
    PcpState,
    Snapshot,
    ZoneState,
    number,
    read_blocks,
    read_free,
    read_pcps,
    read_zoneinfo,
    read_zoneinfo_series,
)
from pcpmodel.trace.ftrace import EVENT_IDS, ZONES, Events, read_trace
from pcpmodel.trace.packed import SUFFIXES, open_text
from pcpmodel.trace.page_lists import LAST_PID, MOST_ZONES
from pcpmodel.trace.preempt_rt import in_one_piece
from pcpmodel.trace.switched import hand_over

__all__ = ["PcpState", "Recording", "Snapshot", "ZoneState", "recording", "recording_names"]

MAX_STATE_BYTES = 1 << 28  #: largest snapshot file read [bytes]
MAX_META_BYTES = 1 << 22  #: largest meta.json read [bytes]
#: Of the events of single pages the one with the largest number.
_LAST_OF_PAGES = EVENT_IDS["mm_page_alloc_extfrag"]


def _read(path: Path, limit: int = MAX_STATE_BYTES) -> str:
    data = b"".join(open_text(path, max_bytes=limit))
    try:
        # A recording may have come by way of another system.
        return data.decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise InputError("not ASCII text", file=path, row=row) from error


_TAG = re.compile(
    rf"pcpstate\.([A-Za-z0-9][A-Za-z0-9._-]{{0,40}}?)(?:{'|'.join(map(re.escape, SUFFIXES))})$"
)


@checked_methods
class Recording:
    """One recording; made by `recording`.

    Attributes
    ----------
    path : pathlib.Path
    name : str
    meta : dict
        ``meta.json``.
    kernel : str
        Version of the recorded kernel: "6.12.107".
    release : Release
        The kernel state that was recorded, as given or `nearest_release` of the kernel.
    assumed : str
        Empty, or which release stands for a kernel that none is named after.
    cpus, memory_mib, numa_nodes : int
        The machine.
    tags : list of str
        Snapshots, in the order in which they were taken as far as it is known.
    progress : bool
        Show a tqdm bar while the trace is read.
    """

    progress = False

    def __init__(self, path: Path, meta: dict, release: str | Release | None = None) -> None:
        self.path = path
        self.meta = meta
        self.name = str(meta["capture"])
        self.cpus: int = meta["cpus"]
        self.memory_mib: int = meta.get("memory_mib", 0)
        self.numa_nodes: int = meta.get("numa_nodes", 1)
        self.kernel = _kernel_of(meta)
        self.assumed = ""
        if release is not None:
            self.release = find_release(release)
        else:
            try:
                self.release = nearest_release(self.kernel)
            except InputError as error:
                raise InputError(str(error), file=path / "meta.json") from None
            if self.release.name not in (f"v{self.kernel}", f"debian-{self.kernel}"):
                self.assumed = (
                    f"release {self.release.name}, the nearest known to Linux {self.kernel}"
                )
        self._snapshots: dict[str, Snapshot] = {}
        self._zoneinfo: dict[str, Snapshot] = {}
        self._series: tuple[Snapshot, ...] | None = None
        self.markers: Any = None  #: of the trace, once ``read_markers`` has read and checked them
        self.tags = sorted(
            (m[1] for p in path.iterdir() if (m := _TAG.match(p.name)) and m[1] != "series"),
            key=lambda t: (t != "before", t in ("after", "end"), t),
        )

    def __repr__(self) -> str:
        return (
            f"<Recording {self.name}: {self.release}, {self.cpus} CPUs, {self.memory_mib} MiB, "
            f"{self.numa_nodes} node{'s' * (self.numa_nodes > 1)}, "
            f"{printable(str(self.meta.get('workload', 'unknown workload')))[:200]}>"
        )

    def file(self, name: str) -> Path:
        """Path of a file of the recording, whether or not it is compressed.

        Raises
        ------
        InputError
            If there is none, or more than one; if it is no file, or leads out of the recording's
            directory.
        """
        if "/" in name or "\\" in name or name.startswith("."):
            raise InputError(f"{name!r} is not the name of a recording's file", file=self.path)
        found = self._named(name)
        if not found:
            raise InputError(f"the recording has no {name}", file=self.path)
        path, *others = found
        if others:
            raise InputError(
                f"is there beside {others[0].name}; which of them is the recording's?", file=path
            )
        if not path.exists():
            raise InputError("is a symbolic link to what is not there", file=path)
        if not path.is_file():
            what = "a directory" if path.is_dir() else "a pipe or device"
            raise InputError(f"is {what}; expected a regular file", file=path)
        if path.resolve().parent != self.path.resolve():
            raise InputError("leads out of the recording's directory", file=path)
        return path

    def has(self, name: str) -> bool:
        """Whether there is something of that name, be it what `file` refuses."""
        return bool(self._named(name))

    def _named(self, name: str) -> list[Path]:
        paths = (self.path / (name + suffix) for suffix in SUFFIXES)
        return [path for path in paths if os.path.lexists(path)]

    def snapshot(self, tag: str) -> Snapshot:
        """The lists at one moment: PCP lists and, where dumped, buddy lists and blocks.

        Read once and kept, as the trace is: for all who ask, and so not to be changed.
        """
        if tag not in self.tags:
            raise unknown_name("snapshot", tag, self.tags)
        if tag not in self._snapshots:
            self._snapshots[tag] = self._read_snapshot(tag)
        return self._snapshots[tag]

    def _read_snapshot(self, tag: str) -> Snapshot:
        path = self.file(f"pcpstate.{tag}")
        found = self._check(read_pcps(_read(path), path, tag), path)
        self._same_zones(found, path)
        zones = {z.key: z for z in found.zones}
        if self.has(f"buddylists.{tag}"):
            path = self.file(f"buddylists.{tag}")
            found.free, found.torn = read_free(_read(path), path, zones)
        if self.has(f"pageblocks.{tag}"):
            path = self.file(f"pageblocks.{tag}")
            found.blocks = read_blocks(_read(path), path, zones)
        return found

    def zoneinfo(self, tag: str) -> Snapshot:
        """What /proc/zoneinfo told at one moment: sizes and counts, no lists; kept, as others."""
        if tag not in self._zoneinfo:
            path = self.file(f"zoneinfo.{tag}")
            self._zoneinfo[tag] = self._check(read_zoneinfo(_read(path), path, tag), path)
        return self._zoneinfo[tag]

    @cached_property
    def zoneinfo_series(self) -> dict[str, Snapshot]:
        """What /proc/zoneinfo told again and again while work was recorded, by tag."""
        if not self.has("zoneinfo.series"):
            return {}
        path = self.file("zoneinfo.series")
        return {
            found.tag: self._check(found, path) for found in read_zoneinfo_series(_read(path), path)
        }

    @cached_property
    def online_cpus(self) -> int:
        """CPUs among which a zone's memory is shared out: those that ``zoneinfo.before`` lists.

        Their numbers may have gaps, where some are offline.
        """
        if not self.has("zoneinfo.before"):
            return self.cpus
        return len({key[2] for key in self.zoneinfo("before").pcps})

    @cached_property
    def compaction(self) -> int | None:
        """Pages that compaction isolated between the first and the last ``vmstat``; None: unknown.

        In use or free: ``compact_isolated`` counts both.
        """
        told = []
        for tag in ("before", "after"):
            if not self.has(f"vmstat.{tag}"):
                return None
            path = self.file(f"vmstat.{tag}")
            found = re.search(r"^compact_isolated (\d{1,18})$", _read(path), re.M)
            if found is None:
                return None
            told.append(int(found[1]))
        if told[1] < told[0]:
            raise InputError(
                f"compact_isolated={told[1]}, less than {told[0]} in vmstat.before", file=path
            )
        return told[1] - told[0]

    def series(self) -> tuple[Snapshot, ...]:
        """PCP lists of the one-per-second snapshots, if the recording has any; kept, as others."""
        if self._series is None:
            known = self.has("pcpstate.series")
            self._series = tuple(self._read_series()) if known else ()
        return self._series

    def _read_series(self) -> Iterator[Snapshot]:
        path = self.file("pcpstate.series")
        text = _read(path)
        row = 1
        for part in re.split(r"^=== ", text, flags=re.M):
            tag, _, body = part.partition("\n")
            if tag:
                row += 1
                found = self._check(read_pcps(body, path, tag.strip(), row), path)
                self._same_zones(found, path)
                yield found
            row += body.count("\n")

    def _check(self, found: Snapshot, path: Path) -> Snapshot:
        key = max(found.pcps, key=lambda key: key[2], default=None)
        if key is not None and key[2] >= self.cpus:
            raise InputError(
                f"pcp of CPU {key[2]}, but meta.json says cpus={self.cpus}",
                file=path, row=found.rows.get(key),
            )  # fmt: skip
        for zone in found.zones:
            if zone.name not in ZONES:
                raise InputError(
                    f"zone {zone.name!r}; expected one of {', '.join(ZONES)}",
                    file=path, row=found.rows.get(zone.key, found.row),
                )  # fmt: skip
        if len(found.zones) > MOST_ZONES:
            raise InputError(
                f"{len(found.zones)} zones with memory; 1 to {MOST_ZONES} are replayed",
                file=path, row=found.rows.get(found.zones[MOST_ZONES].key, found.row),
            )  # fmt: skip
        return found

    def _same_zones(self, found: Snapshot, path: Path) -> None:
        """A later dump has the zones of the first one."""
        if found.tag == "before" or "before" not in self.tags:
            return
        first = {z.key: (z.start_pfn, z.spanned) for z in self.snapshot("before").zones}
        zones = {z.key: (z.start_pfn, z.spanned) for z in found.zones}
        for key in first | zones:
            if zones.get(key) != first.get(key):
                then, now = (
                    "is not there" if at is None else f"begins at page {at[0]} and spans {at[1]}"
                    for at in (first.get(key), zones.get(key))
                )
                raise InputError(
                    f"the zones of dump {found.tag!r} are not those of the first one: zone "
                    f"{key[1]} of node {key[0]} {now}; in the first, it {then}",
                    file=path, row=found.rows.get(key, found.row),
                )  # fmt: skip

    @property
    def preempt_rt(self) -> bool:
        """Whether it is of a kernel with ``CONFIG_PREEMPT_RT``, as its /proc/version says."""
        return " PREEMPT_RT " in str(self.meta.get("kernel", ""))

    @property
    def high_fraction(self) -> int:
        """``vm.percpu_pagelist_high_fraction`` at the recording's end; 0 where it is not told."""
        if not self.has("high_fraction"):
            return 0
        path = self.file("high_fraction")
        value = number(_read(path, 64).strip(), "high_fraction", path, 1, 0, (1 << 31) - 1)
        try:
            return percpu_pagelist_high_fraction(value)
        except InputError as error:
            raise InputError(error.message, file=path, row=1) from None

    @cached_property
    def trace(self):
        """All events in order of time and the reader with its counters: (Events, TraceReader)."""
        events, reader = read_trace(self.file("trace.txt"), progress=self.progress)
        if reader.backwards is not None:
            # They are not put in order here: which of two CPUs was first is not told by a time
            # that several lines have, and the kernel knew more digits than it printed.
            line, before, then = reader.backwards
            raise InputError(
                f"time goes backwards, from {_seconds(before)} s to {_seconds(then)} s; expected "
                "the events of all CPUs in order of time, as the kernel's file 'trace' has them, "
                "and not per_cpu/cpu*/trace one after the other",
                file=self.file("trace.txt"),
                row=line,
            )
        if self.preempt_rt:
            events = Events(in_one_piece(events.rows), events.probes)
        numbers = reader.numbers
        if not numbers["events"]:
            raise InputError("holds no event", file=self.file("trace.txt"))
        if not (events.rows["event"] <= _LAST_OF_PAGES).any():
            raise InputError(
                f"holds {numbers['events']} events, of which none is of a page; expected those of "
                "kmem:mm_page_* among them",
                file=self.file("trace.txt"),
            )
        if numbers["max_pid"] > LAST_PID:
            lines = events.rows["line"][events.rows["pid"] > LAST_PID]
            raise InputError(
                f"process {numbers['max_pid']}; Linux has none above {LAST_PID}",
                file=self.file("trace.txt"),
                row=int(lines[0]) if len(lines) else None,
            )
        if numbers["max_cpu"] >= self.cpus:
            lines = events.rows["line"][events.rows["cpu"] >= self.cpus]
            raise InputError(
                f"an event of CPU {numbers['max_cpu']}, but meta.json says cpus={self.cpus}",
                file=self.file("trace.txt"),
                row=int(lines[0]) if len(lines) else None,
            )
        hand_over(events, self.cpus)
        return events, reader

    @property
    def missing(self) -> int:
        """Events that ``meta.json`` tells of and the trace does not have; below 0: those beyond."""
        told = [self.meta["events_total"]] if "events_total" in self.meta else []
        by_name = [
            _count(n, f"events {name}", self.path / "meta.json")
            for name, n in _members(self.meta, "events", self.path)
        ]
        told += [sum(by_name)] if by_name else []
        return max(told) - self.trace[1].numbers["events"] if told else 0

    @property
    def lost(self) -> int:
        """Events lost: by the account of ring buffers, headings and LOST lines, or missing here."""
        reader, meta = self.trace[1], self.meta
        by_ring = sum(
            _count(ring.get(key, 0), f"ring_buffer_stats {cpu} {key}", self.path / "meta.json")
            for cpu, ring in _members(meta, "ring_buffer_stats", self.path)
            for key in ("overrun", "commit overrun", "dropped events")
            if isinstance(ring, dict)
        )
        by_cpu = sum(
            _count(lost, f"lost_per_cpu {cpu}", self.path / "meta.json")
            for cpu, lost in _members(meta, "lost_per_cpu", self.path)
        )
        # One loss may be in several accounts.
        here = reader.lost + max(0, reader.missing, self.missing)
        return max(here, by_ring, by_cpu, meta.get("lost_events", 0))


def _members(meta: dict, name: str, path: Path) -> Iterable[tuple[str, Any]]:
    """Names and values of an object in ``meta.json``, which need not be there."""
    found = meta.get(name) or {}
    if not isinstance(found, dict):
        raise InputError(f"{name} is not a JSON object", file=path / "meta.json")
    return found.items()


def _count(value: Any, name: str, path: Path) -> int:
    """A count in ``meta.json``; the kernel's own are there as they were printed, in text."""
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) < 21):
        raise InputError(f"{name}={text[:40]!r} is not a count", file=path)
    return int(text)


def _seconds(ns: int) -> str:
    return f"{ns // 10**9}.{ns % 10**9:09}"


def _kernel_of(meta: dict) -> str:
    """Version of the recorded kernel: its package's, which has the point release, or its own."""
    series = meta["kernel_series"]
    for name, version in (
        ("debian_package", r"\s(\d+\.\d+\.\d+)(?:~\S*)?-\d"),
        ("kernel", r"#\d.* Debian (\d+\.\d+\.\d+)(?:~\S*)?-\d"),
        ("kernel", r"^Linux version (\d+\.\d+(?:\.\d+)?)"),
    ):
        found = re.search(version, str(meta.get(name, "")), re.ASCII)
        if found and f"{found[1]}.".startswith(f"{series}."):
            return found[1]
    return series


def recording_names() -> tuple[str, ...]:
    """Return the names of the recordings in ``data/traces``, sorted.

    Raises
    ------
    InputError
        If they are not there.
    """
    where = data_dir() / "traces"
    if not where.is_dir():
        raise InputError("no recordings here; they come with a checkout, not the wheel", file=where)
    return tuple(sorted(p.name for p in where.iterdir() if (p / "meta.json").is_file()))


def recording(
    name: str | os.PathLike[str] | Recording, release: str | Release | None = None
) -> Recording:
    """Open a recording: a directory with ``meta.json`` and ``trace.txt``, plain or compressed.

    Parameters
    ----------
    name : str, path-like or Recording
        The directory, or the name of one of ``data/traces``; a `Recording` is returned as it is.
    release : str or Release, optional
        Rules that the recorded kernel followed; by default those of the known release nearest to
        its version (its ``assumed`` says which if none is named after it).

    Returns
    -------
    Recording

    Raises
    ------
    InputError
        If there is none of that name (the nearest is offered), the directory is no recording, or
        its description is not believable.
    """
    if isinstance(name, Recording):
        return name
    path = Path(name)
    if not path.is_dir() and len(path.parts) == 1:
        if path.name not in recording_names():
            raise unknown_name("recording", path.name, recording_names())
        path = data_dir() / "traces" / path
    if not path.is_dir():
        raise InputError(
            "is not a directory; a recording is one, such as data/traces/6.12-tcp-4cpu", file=path
        )
    where = path / "meta.json"
    if not where.is_file():
        raise InputError("has no meta.json; is it a recording?", file=path)
    meta = read_json(where, MAX_META_BYTES)
    if not isinstance(meta, dict):
        raise InputError("is not a JSON object", file=where)
    for name, kind, lo, hi in (
        ("capture", str, 1, 200),
        ("kernel_series", str, 1, 20),
        ("cpus", int, 1, MAX_CPUS),
    ):
        value = meta.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"{name}={value!r} is not {kind.__name__}", file=where)
        if not lo <= (len(value) if isinstance(value, str) else value) <= hi:
            raise InputError(f"{name}={value!r} is not {kind.__name__} in {lo}..{hi}", file=where)
        if isinstance(value, str) and not value.isprintable():
            raise InputError(f"{name}={value!r} holds control characters", file=where)
    for name in ("memory_mib", "numa_nodes", "lost_events", "events_total"):
        value = meta.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
            raise InputError(f"{name}={value!r} is not a count", file=where)
    return Recording(path, meta, release)

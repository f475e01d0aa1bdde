"""Every number of a hint-fault experiment: unit, range, and where it comes from.

The kinds of origin: ``published`` (the set-up of the measurement that is
modelled), ``kernel`` (a constant or default of the source), ``measured`` (by
us, or by the kernel's developers), ``estimate`` (an order of magnitude,
neither measured nor fitted) and ``fitted`` (to the figure named; that figure
is then no prediction).
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pcpmodel.arguments import checked
from pcpmodel.errors import InputError, unknown_name
from pcpmodel.kernel.releases import release

__all__ = ["RELEASES", "Experiment", "experiment"]

PAGES_PER_MB = 256
PAGES_PER_GB = 262144

#: Releases that changed do_numa_page(), and their rules as the bits of ``faults.pxd``.
RELEASES: Mapping[str, int] = {
    "v5.12": 0,  # accessible first, then migrate
    "v5.13": 1,  # b99a342d4f11: map after the migration was tried
    "v6.1": 3,  # no task_numa_fault() call if the PTE changed meanwhile
    "v7.2": 7,  # checks and isolation under the page-table lock
}
PATTERNS = ("normal", "uniform")
SETUP = "pmbench run of [PATCH -V2], 2 Apr 2021"


def _p(
    what: str,
    default: Any,
    unit: str,
    origin: str,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    told = {"what": what, "unit": unit, "origin": origin, "low": low, "high": high}
    return field(default=default, metadata=told)


@checked
@dataclass(frozen=True)
class Experiment:
    """What runs where, and what everything costs.

    All fields are parameters; `describe` lists what each is, with unit and origin.
    The defaults are the experiment of the patch that delayed the mapping.
    """

    # The work
    processes: int = _p("processes of the benchmark", 8, "", f"published: {SETUP}", 1, 64)
    threads: int = _p("threads of each process", 8, "", f"published: {SETUP}", 1, 128)
    working_set_mb: float = _p(
        "memory of each process", 8960, "MiB", f"published: {SETUP}", 0.25, 2**22
    )
    pattern: str = _p(
        "which pages are accessed: one of the patterns",
        "normal",
        "",
        f"published: {SETUP}; as pmbench's normal_ih: mean in the middle, "
        "standard deviation 1/12 of the pages",
    )
    seconds: float = _p(
        "length of the run",
        39.0,
        "s",
        "fitted: 9.2e6 pages migrated by v5.12 (the length is not published)",
        1e-4,
        1e5,
    )
    access_ns: float = _p(
        "time of an access to local memory",
        400.0,
        "ns",
        "estimate: twelve random numbers, two time stamps, a TLB and a cache miss, "
        "two hardware threads per core; only its ratio to the rest matters",
        1,
        1e9,
    )
    # The machine
    cpus: int = _p(
        "CPUs that the threads run on, all of one node",
        47,
        "",
        "fitted: 4.7e7 interrupts of v5.12 (the server's CPUs are not published)",
        1,
        1024,
    )
    node_gb: float = _p(
        "memory of each of the two nodes", 64, "GiB", f"published: {SETUP}", 2**-12, 2**14
    )
    reserved_mb: float = _p(
        "memory of each node that nobody can allocate",
        2048,
        "MiB",
        "estimate: struct pages (1.6 %), kernel, page cache",
        0,
        2**22,
    )
    eater_gb: float = _p(
        "memory that another process holds on the threads' node at first",
        40,
        "GiB",
        f"published: {SETUP}",
        0,
        2**14,
    )
    eater_kill_s: float = _p("when that process is killed", 10, "s", f"published: {SETUP}", 0, 1e5)
    remote_extra_ns: float = _p(
        "what an access to the other node takes more",
        60.0,
        "ns",
        "estimate: idle latencies of two-socket Xeons, about 70-80 ns local, 130-140 ns remote",
        0,
        1e6,
    )
    page_release: str = _p(
        "release whose page allocator gives and takes the pages",
        "v6.6",
        "",
        "kernel: rules of the per-CPU page lists and buddy lists",
    )
    # Kernel costs
    fault_ns: int = _p(
        "a NUMA hint fault without the migration",
        1000,
        "ns",
        "estimate: entry, page-table lock, exit; about half of page_fault1's 1947 ns per page, "
        "which also allocates, clears and frees",
        1,
        1e9,
    )
    relock_ns: int = _p(
        "taking the page-table lock again", 100, "ns", "estimate: one uncontended lock", 1, 1e9
    )
    isolate_ns: int = _p(
        "isolating the old page and allocating the new one",
        800,
        "ns",
        "estimate: LRU isolation and one order-0 allocation",
        1,
        1e9,
    )
    unmap_ns: int = _p(
        "unmapping a page", 250, "ns", "estimate: rmap walk and one PTE, without flush", 1, 1e9
    )
    copy_ns: int = _p(
        "copying a page and putting the new one in its place",
        2000,
        "ns",
        "measured: 684 ns per copied page on one node of a two-CPU guest; "
        "estimate: as much again across the link, and mapping, LRU and freeing",
        1,
        1e9,
    )
    wake_ns: int = _p(
        "waking a thread that waited for a migration",
        2000,
        "ns",
        "estimate: wake-up of a sleeping thread",
        1,
        1e9,
    )
    flush_base_ns: int = _p(
        "a TLB shootdown, whoever is interrupted",
        10000,
        "ns",
        "fitted: 6.02 % of cycles below try_to_unmap() with v5.12",
        0,
        1e9,
    )
    flush_target_ns: int = _p(
        "what each interrupted CPU adds to a shootdown",
        200,
        "ns",
        "estimate: sending and awaiting one more interrupt",
        0,
        1e9,
    )
    flush_local_ns: int = _p(
        "a TLB flush of the own CPU", 200, "ns", "estimate: INVLPG with nobody to interrupt", 0, 1e9
    )
    ipi_ns: int = _p(
        "what a shootdown takes from a CPU that it interrupts",
        500,
        "ns",
        "estimate: interrupt from user space and INVLPG",
        0,
        1e9,
    )
    # The scanner and the scheduler
    scan_size_mb: float = _p(
        "memory that one scan looks at",
        256,
        "MiB",
        "kernel: sysctl numa_balancing_scan_size_mb",
        2,
        2**20,
    )
    scan_period_min_ms: float = _p(
        "shortest time in which the memory of a task is scanned once",
        1000,
        "ms",
        "kernel: sysctl numa_balancing_scan_period_min_ms",
        1,
        1e7,
    )
    scan_period_max_ms: float = _p(
        "longest time in which the memory of a task is scanned once",
        60000,
        "ms",
        "kernel: sysctl numa_balancing_scan_period_max_ms",
        1,
        1e7,
    )
    scan_pte_ns: int = _p(
        "what a scan takes for each entry that it changes",
        29,
        "ns",
        "measured: 1.9 ms per scan of 256 MiB, mean of the histogram in 'autonuma: Support to "
        "scan page table asynchronously' (2399 scans of 0.5-1 ms, 13436 of 1-2, 7435 of 2-4), "
        "pmbench on a two-socket server",
        0,
        1e6,
    )
    scan_skip_ns: int = _p(
        "what a scan takes for each entry that it only looks at",
        2,
        "ns",
        "estimate: a sequential read",
        0,
        1e6,
    )
    slice_ms: float = _p(
        "time that a thread runs before another has its CPU",
        4,
        "ms",
        "kernel: about one scheduler slice with two threads",
        0.001,
        1e4,
    )
    tick_ms: float = _p("time between two scheduler ticks", 1, "ms", "kernel: HZ=1000", 0.001, 100)
    # What fails
    refused_share: float = _p(
        "pages that are refused before they are isolated",
        0.0,
        "share",
        "none: shared executable or dirty file pages",
        0,
        1,
    )
    unmap_failed_share: float = _p(
        "migrations that are given up after the unmap",
        0.0,
        "share",
        "none: extra references seen after the unmap",
        0,
        1,
    )
    # How it is run
    scale: float = _p(
        "size of the experiment",
        1.0,
        "",
        "1 is the full size; less divides all memory sizes and all long times, "
        "so that shares stay as they are",
        1e-5,
        1,
    )
    seed: int = _p("seed", 1, "", "root of the random numbers", 0, 2**63 - 1)

    def __post_init__(self) -> None:
        for f in fields(self):
            value, low, high = getattr(self, f.name), f.metadata["low"], f.metadata["high"]
            if f.name == "pattern":
                if value not in PATTERNS:
                    raise unknown_name(f.name, value, PATTERNS)
                continue
            if f.name == "page_release":
                release(value)
                continue
            if f.type == "int":  # of an array, too
                object.__setattr__(self, f.name, int(value))
            if not low <= value <= high:
                raise InputError(
                    f"{f.name}={value!r} is out of range; allowed: {low:g} to {high:g}"
                    + (f" {f.metadata['unit']}" if f.metadata["unit"] else "")
                )
        if self.scan_period_min_ms > self.scan_period_max_ms:
            raise InputError(
                f"scan_period_min_ms={self.scan_period_min_ms:g} is above "
                f"scan_period_max_ms={self.scan_period_max_ms:g}"
            )
        room = self.node_pages
        if not room or self.eater_pages + self.high_wmark_pages >= room:
            raise InputError(
                f"eater_gb={self.eater_gb:g} does not fit node_gb={self.node_gb:g} "
                f"less reserved_mb={self.reserved_mb:g}"
            )
        if self.pages * self.processes > 2 * room - self.eater_pages - self.high_wmark_pages:
            raise InputError(
                f"processes={self.processes} with working_set_mb={self.working_set_mb:g} do not "
                f"fit two nodes of node_gb={self.node_gb:g} beside eater_gb={self.eater_gb:g}"
            )
        if self.pages * self.processes >= 2**31:
            raise InputError(f"working_set_mb={self.working_set_mb:g}: above 2^31 pages in all")

    # Sizes after scaling

    @property
    def pages(self) -> int:
        """Pages of one process."""
        return max(16, round(self.working_set_mb * PAGES_PER_MB * self.scale))

    @property
    def node_pages(self) -> int:
        """Usable pages of a node."""
        usable = self.node_gb * PAGES_PER_GB - self.reserved_mb * PAGES_PER_MB
        return max(0, round(usable * self.scale))

    @property
    def eater_pages(self) -> int:
        """Pages of the memory eater."""
        return round(self.eater_gb * PAGES_PER_GB * self.scale)

    @property
    def watermarks(self) -> tuple[int, int, int]:
        """Watermarks of a node: min, low, high [pages]; kernel defaults, one zone per node."""
        from pcpmodel.kernel import sizing

        full = round(self.node_gb * PAGES_PER_GB - self.reserved_mb * PAGES_PER_MB)
        both = [sizing.ZoneMemory(full)] * 2
        boot = sizing.min_free_kbytes_at_boot(8 * full)
        kbytes = max(boot, sizing.khugepaged_min_free_kbytes(len(both), 2 * full))
        marks = sizing.setup_per_zone_wmarks(both, kbytes)[1]
        low, mid, high = (round(m * self.scale) for m in (marks.min, marks.low, marks.high))
        return low, mid, high

    @property
    def high_wmark_pages(self) -> int:
        """High watermark of a node [pages]."""
        return self.watermarks[2]

    @property
    def end_s(self) -> float:
        """Simulated time [s]."""
        return self.seconds * self.scale

    @property
    def scan_periods_ms(self) -> tuple[float, float]:
        """Shortest and longest ``numa_scan_period`` of a task [ms].

        task_scan_min() and task_scan_max() (kernel/sched/fair.c, v5.12) for a
        task whose numa_group is not set up; full-size memory.
        """
        windows = max(1, math.ceil(self.working_set_mb / self.scan_size_mb))
        floor = 1000 / max(1, 2560 // self.scan_size_mb)
        low = max(floor, self.scan_period_min_ms / windows)
        return low, max(low, self.scan_period_max_ms / windows)

    def config(self, kernel: str) -> dict[str, Any]:
        """Return the numbers that the engine takes: pages and nanoseconds.

        Raises
        ------
        InputError
            If ``kernel`` is unknown.
        """
        if kernel not in RELEASES:
            raise unknown_name("release", kernel, RELEASES)
        shortest, longest = self.scan_periods_ms
        long_ns = 1e6 * self.scale
        end_ns = round(self.end_s * 1e9)
        return {
            "rules": RELEASES[kernel],
            "processes": self.processes,
            "threads": self.threads,
            "cpus": self.cpus,
            "pages": self.pages,
            "node0_pages": self.node_pages,
            "node1_pages": self.node_pages,
            "page_release": self.page_release,
            "watermarks": self.watermarks,
            "eater_pages": self.eater_pages,
            "eater_kill_ns": round(self.eater_kill_s * self.scale * 1e9),
            "end_ns": end_ns,
            "sample_ns": max(1, end_ns // SAMPLES),
            "fault_ns": self.fault_ns,
            "relock_ns": self.relock_ns,
            "isolate_ns": self.isolate_ns,
            "unmap_ns": self.unmap_ns,
            "copy_ns": self.copy_ns,
            "wake_ns": self.wake_ns,
            "flush_base_ns": self.flush_base_ns,
            "flush_target_ns": self.flush_target_ns,
            "flush_local_ns": self.flush_local_ns,
            "ipi_ns": self.ipi_ns,
            "scan_pte_ns": self.scan_pte_ns,
            "scan_skip_ns": self.scan_skip_ns,
            "access_ns": float(self.access_ns),
            "remote_extra_ns": float(self.remote_extra_ns),
            "slice_ns": max(1, round(self.slice_ms * long_ns)),
            "tick_ns": max(1, round(self.tick_ms * long_ns)),
            "scan_pages": max(1, round(self.scan_size_mb * PAGES_PER_MB * self.scale)),
            "scan_period_min_ns": max(1, round(shortest * long_ns)),
            "scan_period_max_ns": max(1, round(longest * long_ns)),
            "refused_share": float(self.refused_share),
            "unmap_failed_share": float(self.unmap_failed_share),
            "seed": self.seed,
        }

    def with_(self, **changes: Any) -> Experiment:
        """Return a copy with some parameters changed; unknown names are refused."""
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                raise unknown_name("parameter", name, known)
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """All parameters by name."""
        return asdict(self)

    @classmethod
    def describe(cls) -> list[dict[str, Any]]:
        """Name, type, default, what it is, unit, range and origin of every parameter."""
        return [
            {"name": f.name, "type": f.type, "default": f.default, **f.metadata}
            for f in fields(cls)
        ]


#: Rows of a run's time series.
SAMPLES = 120


def experiment(**parameters: Any) -> Experiment:
    """Make an `Experiment`, all defaults but those given.

    Parameters
    ----------
    **parameters
        As in `parameter_table`.

    Returns
    -------
    Experiment

    Raises
    ------
    InputError
        If a name is unknown (the nearest one is offered) or a value is not allowed.
    """
    return Experiment().with_(**parameters)

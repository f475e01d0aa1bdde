"""Transcribe published tables and figures into ``data/published/``.

    python tools/transcribe_published.py SHARED OUT

SHARED holds ``seeds/`` (texts of list mails) and ``published/`` (collected
CSV files); OUT gets one directory per source.  Numbers are copied as text,
digit for digit; a reduction gets a minus sign, "same" is replaced by what it
stands for, and a range such as 67-74 goes into two columns.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

from transcribe_hardware import LICENCE_NOTE
from transcribe_hardware import SOURCE as BATCH_SCALE_V1

from pcpmodel.data_package import dump_json

Row = dict[str, str]

#: Column -> (type, unit, description).
SEE_UNIT = "see column unit"
PERCENT = "%"
FIELDS: dict[str, tuple[str, str | None, str]] = {
    "5xbatch_hmean_mbps": ("number", "Mb/s", "harmonic mean, drain at five batches"),
    "after": ("number", SEE_UNIT, "with the change, or the only figure stated"),
    "after_to": ("number", SEE_UNIT, "upper end where a range is stated"),
    "alloc_path_pct": ("number", PERCENT, "cycles on the zone lock when allocating"),
    "alloc_zone_pct_of_base": (
        "number",
        PERCENT,
        "pages taken from the zone instead of the PCP, base = 100",
    ),
    "base": ("number", SEE_UNIT, "without the change"),
    "base_hmean_mbps": ("number", "Mb/s", "harmonic mean without the change"),
    "base_score_per_s": ("integer", "1/s", "will-it-scale score without the change"),
    "batch": ("integer", "pages", "PCP batch"),
    "batch31": ("number", SEE_UNIT, "result with batch 31"),
    "batch63": ("number", SEE_UNIT, "result with batch 63"),
    "batch127": ("number", SEE_UNIT, "result with batch 127"),
    "batch_plus_half_high_min_hmean_mbps": (
        "number",
        "Mb/s",
        "harmonic mean, drain at batch + high_min / 2",
    ),
    "before": ("number", SEE_UNIT, "without the change"),
    "before_to": ("number", SEE_UNIT, "upper end where a range is stated"),
    "better": ("string", None, "which direction is better"),
    "build_time_pct": ("number", PERCENT, "build time, base = 100"),
    "cache_miss_rate_pct": ("number", PERCENT, "perf cache-misses over cache-references"),
    "call": ("integer", "count", "number of the call in the trace"),
    "change63_pct": ("number", PERCENT, "batch 63 against batch 31"),
    "change127_pct": ("number", PERCENT, "batch 127 against batch 31"),
    "change_pct": ("number", PERCENT, "change as stated; negative: less"),
    "change_pct_to": ("number", PERCENT, "other end where a range is stated"),
    "clients": ("integer", "processes", "processes at once"),
    "commit_after": ("string", None, "commit measured"),
    "commit_before": ("string", None, "commit it is compared with"),
    "count_pages": ("integer", "pages", "pcp->count before the call"),
    "cpus": ("integer", "CPUs", "logical CPUs"),
    "cycles_alloc_free_4.6rc1": ("integer", "cycles", "one allocation and free, v4.6-rc1"),
    "cycles_alloc_free_node_lru": ("integer", "cycles", "the same with the node-lru series"),
    "cycles_per_page": ("integer", "cycles", "one allocation and free of a page"),
    "delta_pct": ("number", PERCENT, "change of the mean as stated; negative: less"),
    "elapsed_s": ("number", "s", "elapsed time"),
    "free_high_pct_of_base": (
        "number",
        PERCENT,
        "PCP drains by consecutive high-order frees, base = 100",
    ),
    "free_path_pct": ("number", PERCENT, "cycles on the zone lock when freeing"),
    "further_change_pct": ("number", PERCENT, "change by the prefetch on top"),
    "gib_per_cpu": ("number", "GiB/CPU", "memory per logical CPU as stated"),
    "high_pages": ("integer", "pages", "pcp->high"),
    "load": ("string", None, "what ran"),
    "lock_contend_cycles_pct": ("number", PERCENT, "CPU cycles spent waiting for spinlocks"),
    "lock_share_pct": ("number", PERCENT, "CPU cycles spent waiting for locks"),
    "lru_lock_pct": ("integer", PERCENT, "CPU cycles spent waiting for the LRU lock"),
    "machine": ("string", None, "machine measured"),
    "member": ("string", None, "member of struct per_cpu_pages; _hole: unused bytes"),
    "memory_gb": ("integer", "GB", "main memory"),
    "memory_gib": ("integer", "GiB", "main memory"),
    "message_bytes": ("integer", "bytes", "size of a message"),
    "metric": ("string", None, "what is measured"),
    "move_list_picking_score_per_s": (
        "integer",
        "1/s",
        "will-it-scale score with the list handling moved out of the lock",
    ),
    "offset_bytes": ("integer", "bytes", "offset of the member"),
    "optimised_amean": ("integer", "not stated", "arithmetic mean with the series"),
    "order": ("integer", "log2 pages", "order of the block"),
    "page_fault1_score_per_s": ("integer", "1/s", "will-it-scale score"),
    "pages_freed": ("integer", "pages", "pages freed by the call"),
    "patch": ("string", None, "patch of the series"),
    "patched": ("number", SEE_UNIT, "with the change"),
    "patched_hmean_mbps": ("number", "Mb/s", "harmonic mean with the change"),
    "patched_hmean_score_per_s": ("number", "1/s", "harmonic mean of the score with the series"),
    "pcp_high_6x_batch": ("integer", "pages", "PCP high, six batches"),
    "plus_prefetch_score_per_s": (
        "integer",
        "1/s",
        "will-it-scale score with the prefetch of the buddy as well",
    ),
    "processes": ("integer", "processes", "processes at once"),
    "quantity": ("string", None, "what is stated"),
    "report": ("string", None, "message id of the report"),
    "rest": ("string", None, "what the rest of the waiting is for"),
    "reverted_amean": ("integer", "not stated", "arithmetic mean with the commit reverted"),
    "score_pct": ("number", PERCENT, "score, base = 100"),
    "size_bytes": ("integer", "bytes", "size of the member"),
    "sockets": ("integer", "sockets", "processor packages"),
    "source": ("string", None, "where it was published"),
    "step": ("string", None, "base, or the series up to this patch"),
    "system_s": ("number", "s", "system time"),
    "testbox": ("string", None, "name of the machine in the source"),
    "threshold": (
        "integer",
        "counts",
        "per-CPU statistics threshold; 'no statistics' stands for none at all",
    ),
    "throughput": ("integer", "not stated", "throughput as stated, no unit given"),
    "total_lock_pct": ("integer", PERCENT, "CPU cycles spent waiting for either lock"),
    "type": ("string", None, "C type; empty where the source at hand does not show it"),
    "unit": ("string", None, "unit of the figures in this row"),
    "v6.6_pct": ("number", PERCENT, "v6.6, the reference"),
    "v6.7_pct": ("number", PERCENT, "v6.7"),
    "v6.7_with_patch_pct": ("number", PERCENT, "v6.7 with the change"),
    "value": ("number", SEE_UNIT, "the figure"),
    "vanilla_5.17rc3_hmean_score_per_s": ("number", "1/s", "harmonic mean of the score"),
    "vanilla_amean": ("integer", "not stated", "arithmetic mean without the change"),
    "vanilla_hmean_mbps": ("number", "Mb/s", "harmonic mean without the change"),
    "variant": ("string", None, "which state of the code"),
    "variation_pct_cv": ("number", PERCENT, "standard deviation over mean"),
    "version": ("string", None, "version of the series"),
    "what": ("string", None, "change that the figure belongs to"),
    "workload": ("string", None, "what ran"),
    "zone_lock_pct": ("integer", PERCENT, "CPU cycles spent waiting for the zone lock"),
}
#: Columns that are a share of something.
SHARES = {
    "lock_contend_cycles_pct",
    "lock_share_pct",
    "zone_lock_pct",
    "lru_lock_pct",
    "total_lock_pct",
    "alloc_path_pct",
    "free_path_pct",
    "cache_miss_rate_pct",
}
MISSING = {"threshold": "no statistics"}

#: Column names that lacked their unit.
RENAMED = {
    "aaronlu2018_v4_page_fault1": {
        "base": "base_score_per_s",
        "move_list_picking_out_of_lock": "move_list_picking_score_per_s",
        "plus_prefetch": "plus_prefetch_score_per_s",
    },
    "gorman2021_free_trace": {"count": "count_pages", "high": "high_pages"},
    "gorman2022_page_fault1_cascadelake": {
        "vanilla_5.17rc3_hmean": "vanilla_5.17rc3_hmean_score_per_s",
        "patched_hmean": "patched_hmean_score_per_s",
    },
}
#: Tables without a unit column get one: (column to look in, {pattern: unit}, before column).
UNITS: dict[str, tuple[str, dict[str, str], str]] = {
    "batchsize2018_other_workloads": (
        "workload",
        {r"buildtime s$": "s", r"Mbps$": "Mb/s", "": "score"},
        "batch31",
    ),
    "misc": ("quantity", {r"time s\b": "s", r"^pages": "pages", "^aim7": "jobs"}, "before"),
    "numa_balancing_tlb": (
        "metric",
        {"per second": "pages/s", "^TLB": "interrupts", "^pages": "pages"},
        "before",
    ),
    "series_per_patch": (
        "quantity",
        {"^rule": "batches", "^lock": "% of cycles", "^cache": "%"},
        "before",
    ),
}


class Shared:
    """The sources, read as text."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def mail(self, number: int) -> str:
        """Return a mail without quotation marks and with white space folded."""
        (path,) = (self.root / "seeds").glob(f"{number:03d}_*.txt")
        text = re.sub(r"(?m)^[> ]+", "", path.read_text(encoding="utf-8"))
        return " ".join(text.split())

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a collected CSV file, ditto marks resolved, ranges in two columns."""
        text = (self.root / "published" / f"{name}.csv").read_text(encoding="utf-8")
        rows: list[Row] = []
        for given in csv.DictReader(io.StringIO(text)):
            row = {}
            for column, cell in given.items():
                if cell == "same":
                    cell = rows[-1][RENAMED.get(name, {}).get(column, column)]
                row[RENAMED.get(name, {}).get(column, column)] = cell
            rows.append(row)
        for column in ("before", "after", "change_pct"):
            split = [
                re.fullmatch(r"(-?[\d.]+)(?:-| to )(-?[\d.]+)", row.get(column, "")) for row in rows
            ]
            if any(split):
                rows = [
                    _insert(
                        row | ({column: found[1]} if found else {}),
                        f"{column}_to",
                        found[2] if found else "",
                        after=column,
                    )
                    for row, found in zip(rows, split, strict=True)
                ]
        if name in UNITS:
            where, units, before = UNITS[name]
            rows = [
                _insert(
                    row,
                    "unit",
                    next((unit for p, unit in units.items() if re.search(p, row[where])), ""),
                    before=before,
                )
                for row in rows
            ]
        return rows


def _insert(row: Row, name: str, value: str, *, after: str = "", before: str = "") -> Row:
    made: Row = {}
    for key, cell in row.items():
        if key == before:
            made[name] = value
        made[key] = cell
        if key == after:
            made[name] = value
    return made


def find(text: str, pattern: str) -> tuple[str, ...]:
    """Return the groups of the one reading that a pattern has in a text."""
    readings = {match.groups() for match in re.finditer(pattern, text)}
    if len(readings) != 1:
        raise SystemExit(f"{pattern!r} has {len(readings)} readings")
    return readings.pop()


# --- tables read out of the mails -----------------------------------------

KBUILD = "kbuild 8x make -j28 in 8 cgroups, 2S 224 CPU"
SCTP = "netperf SCTP_STREAM_MANY 64 pairs, 2S 128 CPU"
UNIX = "lmbench3 UNIX 16 pairs, 2S 128 CPU"
V2 = "20230926060911.266511-1-ying.huang (v2 cover, 26 Sep 2023)"
V2P1 = "20230926060911.266511-2-ying.huang (v2 patch 1, 26 Sep 2023)"
HAHN = "Hahn, [PATCH v4 3/3] (13 Oct 2025)"
HAHN0 = "Hahn, [PATCH v4 0/3] (13 Oct 2025)"
SPLIT = "20230511065607.37407-1-ying.huang@intel.com (11 May 2023)"
NUMA = "Huang Ying, [PATCH -V2] (2 Apr 2021)"
NUMA_REPLY = "Mel Gorman, answer to [PATCH -V2] (7 Apr 2021)"
SCALE = "Huang Ying, [PATCH 04/10] (20 Sep 2023)"


def series(heading: str, columns: list[str]) -> Callable[[Shared], list[Row]]:
    """Rows base .. patch10 of one table of the V2 cover letter."""

    def read(shared: Shared) -> list[Row]:
        (body,) = find(shared.mail(0), re.escape(heading) + r" =+ (.*?) The PCP")
        return [
            {"step": step, **dict(zip(columns, cells.split(), strict=True)), "source": V2}
            for step, cells in re.findall(r"(base|patch\d+)((?: [\d.]+)+)", body)
        ]

    return read


def stated(*facts: tuple) -> Callable[[Shared], list[Row]]:
    """Rows of single figures.

    A fact is (mail number, columns as text, columns with a figure, pattern);
    the pattern's groups are the figures, "-" before a column negates it.
    """

    def read(shared: Shared) -> list[Row]:
        rows = []
        for number, words, figures, pattern in facts:
            row = dict(words)
            for column, figure in zip(figures, find(shared.mail(number), pattern), strict=True):
                sign = "-" if column.startswith("-") else ""
                row[column.lstrip("-")] = sign + figure
            rows.append(row)
        return rows

    return read


def both(*readers: Callable[[Shared], list[Row]]) -> Callable[[Shared], list[Row]]:
    """Rows of several readers."""
    return lambda shared: [row for reader in readers for row in reader(shared)]


def collected(name: str, **where: str) -> Callable[[Shared], list[Row]]:
    """Rows of a collected CSV file; ``where``: column=pattern of the rows that belong here."""
    return lambda shared: [
        row
        for row in shared.rows(name)
        if all(re.search(pattern, row[column]) for column, pattern in where.items())
    ]


TOTALS = {
    "size_bytes": "bytes",
    "cachelines": "count",
    "members": "count",
    "sum_members_bytes": "bytes",
    "holes": "count",
    "sum_holes_bytes": "bytes",
    "padding_bytes": "bytes",
    "alignment_bytes": "bytes",
}


def layout(shared: Shared) -> list[Row]:
    """Members and holes of both layouts of the V2 cover letter."""
    rows = []
    for variant, heading in (("v2 base", "base ===="), ("v2 patched", "patched =======")):
        (body,) = find(shared.mail(0), heading + r" struct per_cpu_pages \{ (.*?) /\* size:")
        for type_, member, offset, size, hole in re.findall(
            r"([\w ]+?) (\w+(?:\[\d+\])?); /\* (\d+) (\d+) \*/|/\* XXX (\d+) bytes? hole", body
        ):
            rows.append(
                {
                    "variant": variant,
                    "member": member or "_hole",
                    "type": type_.strip(),
                    "offset_bytes": offset,
                    "size_bytes": size or hole,
                    "source": V2,
                }
            )
    return rows


def layout_totals(shared: Shared) -> list[Row]:
    """Sums below both layouts of the V2 cover letter."""
    rows = []
    for variant, heading in (("v2 base", "base ===="), ("v2 patched", "patched =======")):
        figures = find(
            shared.mail(0),
            heading + r" struct per_cpu_pages \{(?:(?!struct per_cpu).)*?/\* size: (\d+), "
            r"cachelines: (\d+), members: (\d+) \*/ /\* sum members: (\d+), holes: (\d+), "
            r"sum holes: (\d+) \*/ /\* padding: (\d+) \*/ \} __attribute__\(\(__aligned__\((\d+)\)",
        )
        for (quantity, unit), value in zip(TOTALS.items(), figures, strict=True):
            rows.append(_total(variant, quantity, value, unit, V2))
    return rows


def _total(variant: str, quantity: str, value: str, unit: str, source: str) -> Row:
    return {
        "variant": variant,
        "quantity": quantity,
        "value": value,
        "unit": unit,
        "source": source,
    }


def layout_v3(shared: Shared) -> list[Row]:
    """Members and holes of V3's layout."""
    return [
        {
            "variant": row["variant"],
            "member": row["member"],
            "type": "",
            "offset_bytes": row["offset_bytes"],
            "size_bytes": row["size_or_value"],
            "source": row["source"],
        }
        for row in shared.rows("struct_layout_v3")
        if not row["member"].startswith("_total")
    ]


def layout_v3_totals(shared: Shared) -> list[Row]:
    """Sums below V3's layout."""
    rows = []
    for row in shared.rows("struct_layout_v3"):
        if row["member"].startswith("_total_"):
            short = row["member"].removeprefix("_total_")
            name = short if short in TOTALS else f"{short}_bytes"
            total = _total(row["variant"], name, row["size_or_value"], TOTALS[name], row["source"])
            rows.append(total)
    return rows


def hahn_kbuild(shared: Shared) -> list[Row]:
    """The three machines of Hahn's v4."""
    rows = []
    for size in ("Large", "Medium", "Small"):
        memory, cpus, body = find(
            shared.mail(1),
            size + r" machine \((\d+)GiB memory, (\d+) processors\) make -j\$\(nproc\) "
            r"[-+]+ \|[^|]+\|[^|]+\|[^|]+\| [-+]+ ((?:\|[^|]+\|[^|]+\|[^|]+\| )+)",
        )
        for metric, variation, delta in re.findall(
            r"\| (\w+) \| ([\d.]+) \| ([-+][ \d.]+) \|", body
        ):
            rows.append(
                {
                    "machine": size.lower(),
                    "memory_gib": memory,
                    "cpus": cpus,
                    "workload": "kbuild make -j$(nproc)",
                    "metric": metric,
                    "variation_pct_cv": variation,
                    "delta_pct": delta.replace(" ", "").removeprefix("+"),
                    "source": HAHN,
                }
            )
    return rows


def hahn_ratio(shared: Shared) -> list[Row]:
    """Memory per CPU of the three machines, as Hahn gives it."""
    return [
        {
            "machine": size.lower(),
            "gib_per_cpu": find(shared.mail(1), size + r" machine ?: ([\d.]+)")[0],
            "source": "Hahn, answer to Danton (14 Oct 2025)",
        }
        for size in ("Large", "Small", "Medium")
    ]


RCU = [
    ("time stamp of the report", "s", r"\[ ([\d.]+)\] rcu: INFO: rcu_sched self-detected stall"),
    ("CPU that stalled", "CPU number", r"rcu: (\d+)-\.\.\.\.: \("),
    ("ticks in this grace period", "ticks", r"\((\d+) ticks this GP\)"),
    ("softirqs when the grace period began", "count", r"softirq=(\d+)/"),
    ("softirqs now", "count", r"softirq=\d+/(\d+)"),
    ("force-quiescent-state passes", "count", r"fqs=(\d+)"),
    ("hardirqs in half a stall time", "count", r"number: (\d+) \d+ \d+"),
    ("softirqs in half a stall time", "count", r"number: \d+ (\d+) \d+"),
    ("context switches in half a stall time", "count", r"number: \d+ \d+ (\d+)"),
    ("CPU time in hardirqs", "ms", r"cputime: (\d+) \d+ \d+ ==>"),
    ("CPU time in softirqs", "ms", r"cputime: \d+ (\d+) \d+ ==>"),
    ("CPU time in tasks", "ms", r"cputime: \d+ \d+ (\d+) ==>"),
    ("time that the CPU times were taken over", "ms", r"==> (\d+)\(ms\)"),
    ("length of the stall", "jiffies", r"\(t=(\d+) jiffies"),
    ("grace period number", "count", r"jiffies g=(\d+)"),
    ("callbacks queued", "count", r" q=(\d+) ncpus"),
    ("CPUs online", "CPUs", r"ncpus=(\d+)\)"),
]


def setup(number: int, source: str, *facts: tuple[str, str, str, str]) -> Callable:
    """Rows workload, quantity, value, unit out of one mail."""
    return stated(
        *(
            (
                number,
                {"workload": w, "quantity": q, "value": "", "unit": u, "source": source},
                ["value"],
                p,
            )
            for w, q, u, p in facts
        )
    )


def figures(number: int, *facts: tuple) -> Callable:
    """Rows of changes: (words, unit, figure columns, pattern, source)."""

    def row(words: Row, unit: str, source: str) -> Row:
        return {
            **words,
            "unit": unit,
            **dict.fromkeys(("before", "after", "change_pct"), ""),
            "source": source,
        }

    return stated(*((number, row(w, u, s), cols, p) for w, u, cols, p, s in facts))


def v2_patch(patch: str, workload: str, quantity: str) -> Row:
    """The words of one figure of a V2 patch."""
    return {"version": "v2", "patch": patch, "workload": workload, "quantity": quantity}


SERIES_KBUILD = [
    "build_time_pct",
    "lock_contend_cycles_pct",
    "free_high_pct_of_base",
    "alloc_zone_pct_of_base",
]
SERIES_NET = ["score_pct", *SERIES_KBUILD[1:], "cache_miss_rate_pct"]
V2_KBUILD = r"On a (?:2)-socket Intel server with (?:224) logical CPU, we run "
V2_UNIX = r"UNIX \(AF_UNIX\) test case of lmbench test suite .*?"


def _source(title: str, author: str | None, date: str | None, message_id: str | None, **more: str):
    return {"title": title, "author": author, "date": date, "message_id": message_id, **more}


#: Directory -> (title, sources, {table: (reader, primary key)}).
PACKAGES: dict[str, tuple[str, list[dict], dict[str, tuple[Callable, list[str]]]]] = {
    "pcp-auto-tuning-v2": (
        "mm: PCP high auto-tuning, version 2",
        [
            _source(
                "mm: PCP high auto-tuning, v2 (cover letter, as taken into -mm with patch 1)",
                "Huang Ying",
                "2023-09-26",
                "20230926060911.266511-1-ying.huang",
                note="The text at hand masks the domain of the message id.",
            ),
            _source(
                "mm, pcp: avoid to drain PCP when process exit",
                "Huang Ying",
                "2023-09-26",
                "20230926060911.266511-2-ying.huang",
                note="Patch 1; the text at hand masks the domain of the message id.",
            ),
            _source(
                'Answer on "mm, pcp: avoid to reduce PCP high unnecessarily"',
                "Huang Ying",
                "2023-10",
                None,
                note="Patch 9; message id not at hand.",
            ),
        ],
        {
            "kbuild": (series("kbuild", SERIES_KBUILD), ["step"]),
            "sctp_stream_many": (series("netperf SCTP_STREAM_MANY", SERIES_NET), ["step"]),
            "unix": (series("lmbench3 UNIX (AF_UNIX)", SERIES_NET), ["step"]),
            "per_patch": (
                both(
                    figures(
                        0,
                        (
                            v2_patch("1", KBUILD, "lock contention cycles% (PCP size 361)"),
                            "% of cycles",
                            ["before", "after"],
                            r"decreases from ([\d.]+)% to ([\d.]+)% \(with PCP size == 361\)",
                            V2P1,
                        ),
                        (
                            v2_patch("1", KBUILD, "free_high"),
                            "",
                            ["-change_pct"],
                            r"\(with PCP size == 361\)\. The number of PCP draining for high order "
                            r"pages freeing \(free_high\) decreases ([\d.]+)%",
                            V2P1,
                        ),
                        (
                            v2_patch("1", UNIX, "bandwidth %"),
                            "",
                            ["change_pct"],
                            V2_UNIX + r"16-pair processes increase ([\d.]+)%",
                            V2P1,
                        ),
                        (
                            v2_patch("1", UNIX, "lock contention cycles%"),
                            "% of cycles",
                            ["before", "after"],
                            r"16-pair processes increase [\d.]+%\. The cycles% of the spinlock "
                            r"contention \(mostly for zone lock\) decreases from ([\d.]+)% "
                            r"to ([\d.]+)%",
                            V2P1,
                        ),
                        (
                            v2_patch("1", UNIX, "free_high"),
                            "",
                            ["-change_pct"],
                            r"decreases ([\d.]+)%\. The cache miss rate keeps",
                            V2P1,
                        ),
                        (
                            v2_patch("1", UNIX, "cache miss rate %, kept"),
                            "%",
                            ["after"],
                            r"The cache miss rate keeps ([\d.]+)%",
                            V2P1,
                        ),
                        (
                            v2_patch(
                                "7/9/10",
                                KBUILD,
                                "average used memory %, up to",
                            ),
                            "",
                            ["change_pct"],
                            r"average used memory during test increases up to ([\d.]+)%",
                            V2,
                        ),
                    ),
                    collected("series_per_patch", version="^v2$"),
                ),
                ["patch", "workload", "quantity"],
            ),
            "setup": (
                both(
                    setup(
                        0,
                        V2,
                        ("kbuild", "sockets", "sockets", r"a (\d)-socket[^.]*? we run"),
                        ("kbuild", "logical CPUs", "CPUs", r"with (\d+) logical CPU, we run"),
                        ("kbuild", "builds at once", "builds", r"we run (\d+) kbuild instances"),
                        ("kbuild", "jobs of one build", "jobs", r"each with `make -j (\d+)`"),
                        ("kbuild", "cgroups", "cgroups", r"`make -j 28`\) in (\d+) cgroup"),
                        ("kbuild", "PCP high, patch 1", "pages", r"PCP size == (\d+)"),
                        (
                            "netperf SCTP_STREAM_MANY",
                            "sockets",
                            "sockets",
                            r"a (\d)-socket Intel server with \d+ logical CPU, we tested SCTP",
                        ),
                        (
                            "netperf SCTP_STREAM_MANY",
                            "logical CPUs",
                            "CPUs",
                            r"with (\d+) logical CPU, we tested SCTP",
                        ),
                        (
                            "netperf SCTP_STREAM_MANY",
                            "pairs of processes",
                            "pairs",
                            r"netperf test suite with (\d+)-pair",
                        ),
                        (
                            "lmbench3 UNIX",
                            "sockets",
                            "sockets",
                            r"a (\d)-socket Intel server with \d+ logical CPU, we tested UNIX",
                        ),
                        (
                            "lmbench3 UNIX",
                            "logical CPUs",
                            "CPUs",
                            r"with (\d+) logical CPU, we tested UNIX",
                        ),
                        (
                            "lmbench3 UNIX",
                            "pairs of processes",
                            "pairs",
                            r"lmbench3 test suite with (\d+)-pair",
                        ),
                    ),
                ),
                ["workload", "quantity"],
            ),
            "struct_layout": (layout, []),
            "struct_totals": (layout_totals, ["variant", "quantity"]),
        },
    ),
    "pcp-auto-tuning-v3": (
        "mm: PCP high auto-tuning, version 3 (merged in v6.7)",
        [
            _source(
                "mm: PCP high auto-tuning, v3",
                "Huang Ying",
                "2023-10-16",
                "20231016053002.756205-1-ying.huang@intel.com",
                note="Single patches: the same id with -2- to -10-, named in the source column.",
            )
        ],
        {
            "kbuild": (collected("series_v3_kbuild"), ["step"]),
            "sctp_stream_many": (collected("series_v3_sctp"), ["step"]),
            "unix": (collected("series_v3_unix"), ["step"]),
            "per_patch": (
                collected("series_per_patch", version="^v3$"),
                ["patch", "workload", "quantity"],
            ),
            "struct_layout": (layout_v3, []),
            "struct_totals": (layout_v3_totals, ["variant", "quantity"]),
        },
    ),
    "pcp-auto-tuning-v1": (
        "mm: PCP high auto-tuning, version 1",
        [
            _source(
                "Answer to Andrew Morton on v1 of mm: PCP high auto-tuning",
                "Huang Ying",
                "2023-09-21",
                "87leczwt1o.fsf",
            ),
            _source(
                "v1 patch 3, mm, pcp: reduce lock contention for draining high-order pages",
                "Huang Ying",
                "2023-09-20",
                "20230920061856.257597-4",
            ),
        ],
        {
            "kbuild_8cgroups": (collected("series_v1_kbuild_8cgroups"), ["step"]),
            "kbuild_j224": (collected("series_v1_kbuild_j224"), ["step"]),
            "per_patch": (
                collected("series_per_patch", version="^v1$"),
                ["patch", "workload", "quantity"],
            ),
        },
    ),
    "pcp-auto-tuning-rfc": (
        "RFC: PCP high auto-tuning by allocation and free depth",
        [
            _source(
                "[RFC 2/2] mm: PCP high auto-tuning by allocation/free depth",
                "Huang Ying",
                "2023-07-10",
                "20230710065325.290366-3-ying.huang@intel.com",
            )
        ],
        {"kbuild_sctp": (collected("rfc2023_kbuild_sctp"), ["workload", "metric"])},
    ),
    "batch-scale-v1": (
        "Limit of the PCP batch scale factor: conditions and conclusion",
        [BATCH_SCALE_V1],
        {
            "setup": (
                setup(
                    2,
                    SCALE,
                    (
                        "default",
                        "batch of a large zone",
                        "pages",
                        r"the value is (\d+) for zone > 1GB",
                    ),
                    ("default", "zone above which it holds", "GB", r"for zone > (\d+)GB"),
                    (
                        "will-it-scale page_fault1",
                        "PCP high over batch",
                        "ratio",
                        r"Set PCP high to be (\d+) \* batch",
                    ),
                    *(
                        (
                            "will-it-scale page_fault1",
                            f"batch tried, number {n}",
                            "pages",
                            r"hard coded to be " + r"[^,]+, " * (n - 1) + r"(\d+)",
                        )
                        for n in range(1, 8)
                    ),
                    (
                        "conclusion",
                        "latency held in most times, below",
                        "us",
                        r"less than (\d+) us in most times",
                    ),
                    (
                        "conclusion",
                        "largest batch scale factor",
                        "scale",
                        r"max batch scale factor needs to be less than or equal to (\d+)",
                    ),
                ),
                ["workload", "quantity"],
            )
        },
    ),
    "hahn-v4": (
        "mm/page_alloc: Batch callers of free_pcppages_bulk, version 4",
        [
            _source(
                "[PATCH v4 0/3] mm/page_alloc: Batch callers of free_pcppages_bulk",
                "Joshua Hahn",
                "2025-10-13",
                None,
                note="Cover, patches and answers; the text at hand shows no message ids.",
            )
        ],
        {
            "kbuild": (hahn_kbuild, ["machine", "metric"]),
            "memory_per_cpu": (hahn_ratio, ["machine"]),
            "setup": (
                both(
                    setup(
                        1,
                        HAHN,
                        (
                            "Meta fleet, larger machines",
                            "pages to free in one free_frozen_page_commit(), above",
                            "pages",
                            r"consistently go above (\d+) in the Meta fleet",
                        ),
                    ),
                    setup(
                        1,
                        HAHN0,
                        (
                            "Meta fleet, boot",
                            "calls of free_pcppages_bulk() for 2k pages or more, over",
                            "calls",
                            r"2k\+ pages over (\d+) times just during boot",
                        ),
                        ("Meta fleet", "memory", "TB", r"\((\d+)Tb memory, 316 CPUs\)"),
                        ("Meta fleet", "logical CPUs", "CPUs", r"\(1Tb memory, (\d+) CPUs\)"),
                    ),
                ),
                ["workload", "quantity"],
            ),
            "rcu_stall": (
                setup(1, HAHN0, *(("Meta fleet", q, u, p) for q, u, p in RCU)),
                ["quantity"],
            ),
        },
    ),
    "hahn-v2": (
        "mm/page_alloc: Batch callers of free_pcppages_bulk, version 2",
        [
            _source(
                "v2 of mm/page_alloc: Batch callers of free_pcppages_bulk",
                "Joshua Hahn",
                "2025-09-24",
                "20250924204409.1706524-1",
            )
        ],
        {"stress_ng": (collected("hahn_stress_ng", version="^v2$"), ["workload", "metric"])},
    ),
    "hahn-v1": (
        "mm/page_alloc: the first patch, which gives up the zone lock in between",
        [
            _source(
                "First patch: relinquish the zone lock",
                "Joshua Hahn",
                "2025-08-18",
                "20250818185804.21044-1-joshua.hahnjy",
            )
        ],
        {"stress_ng": (collected("hahn_stress_ng", version="^first"), ["workload", "metric"])},
    ),
    "zone-split-rfc": (
        "RFC: mm: improve page allocator scalability via splitting zones",
        [
            _source(
                "[RFC 0/6] mm: improve page allocator scalability via splitting zones",
                "Huang Ying",
                "2023-05-11",
                "20230511065607.37407-1-ying.huang@intel.com",
                note="On top of v6.3.",
            )
        ],
        {
            "figures": (
                figures(
                    3,
                    (
                        {
                            "workload": "kernel build, make -j224",
                            "quantity": "zone lock contention cycles%, from about, "
                            "to less than, 4 zone instances",
                        },
                        "% of cycles",
                        ["before", "after"],
                        r"can reach up to about ([\d.]+)%.*?reduces to less than ([\d.]+)%",
                        SPLIT,
                    ),
                    (
                        {"workload": "page_fault1, 16 processes", "quantity": "score, up to"},
                        "",
                        ["change_pct"],
                        r"benchmark score increases up to ([\d.]+)%",
                        SPLIT,
                    ),
                    (
                        {
                            "workload": "page_fault1, 16 processes",
                            "quantity": "zone lock contention cycles%",
                        },
                        "% of cycles",
                        ["before", "after"],
                        r"zone lock contention reduces from ([\d.]+)% to ([\d.]+)%",
                        SPLIT,
                    ),
                ),
                ["workload", "quantity"],
            ),
            "setup": (
                setup(
                    3,
                    SPLIT,
                    ("kernel build, make -j224", "sockets", "sockets", r"an (\d)-socket Intel"),
                    (
                        "kernel build, make -j224",
                        "logical CPUs",
                        "CPUs",
                        r"machine with (\d+) logical CPUs",
                    ),
                    ("kernel build, make -j224", "jobs", "jobs", r"`make -j(\d+)`"),
                    (
                        "kernel build, make -j224",
                        "instances of ZONE_NORMAL",
                        "zones",
                        r"when (\d+) zone instances are created for ZONE_NORMAL",
                    ),
                    ("page_fault1", "processes", "processes", r"page_fault1 with (\d+) processes"),
                    (
                        "series",
                        "memory of one zone instance, about",
                        "GB",
                        r"for each about (\d+) GB memory",
                    ),
                    (
                        "server CPU of 2023",
                        "cores, lower figure",
                        "cores",
                        r"server CPU has (\d+), 64, or more",
                    ),
                    (
                        "server CPU of 2023",
                        "cores, higher figure",
                        "cores",
                        r"server CPU has 56, (\d+), or more",
                    ),
                ),
                ["workload", "quantity"],
            ),
        },
    ),
    "numa-delay-mapping-v2": (
        "NUMA balancing: reduce TLB flush via delaying mapping on hint page fault, version 2",
        [
            _source(
                "[PATCH -V2] NUMA balancing: reduce TLB flush via delaying mapping "
                "on hint page fault",
                "Huang Ying",
                "2021-04-02",
                None,
                note="The text at hand shows no message ids.",
            ),
            _source("Answer to it", "Mel Gorman", "2021-04-07", None),
        ],
        {
            "figures": (
                lambda shared: [
                    _insert(row, "change_pct_to", row.pop("change_pct_to", ""), after="change_pct")
                    for row in figures(
                        4,
                        (
                            {"workload": "pmbench", "quantity": "throughput"},
                            "page accesses/s",
                            ["change_pct"],
                            r"accesses/s\) increases ([\d.]+)%",
                            NUMA,
                        ),
                        (
                            {"workload": "pmbench", "quantity": "TLB shootdown interrupts, about"},
                            "interrupts",
                            ["-change_pct", "before", "after"],
                            r"interrupts reduces (\d+)% \(from ~([\d.e]+) to ~([\d.e]+)\)",
                            NUMA,
                        ),
                        (
                            {"workload": "pmbench", "quantity": "pages migrated, about"},
                            "pages",
                            ["after"],
                            r"with about ([\d.e]+) pages",
                            NUMA,
                        ),
                        (
                            {"workload": "pmbench", "quantity": "memory migrated, about"},
                            "GB",
                            ["after"],
                            r"pages \(([\d.]+)GB\) migrated",
                            NUMA,
                        ),
                        (
                            {
                                "workload": "pmbench",
                                "quantity": "try_to_unmap() and its callees",
                            },
                            "% of cycles",
                            ["before", "after"],
                            r"callees reduces from ([\d.]+)% to ([\d.]+)%",
                            NUMA,
                        ),
                        (
                            {
                                "workload": "some others",
                                "quantity": "gain, about",
                            },
                            "",
                            ["change_pct", "change_pct_to"],
                            # Quoted once more in the answer to the answer.
                            r"but a (\d)-(\d)% gain in some",
                            NUMA_REPLY,
                        ),
                    )(shared)
                ],
                ["workload", "quantity"],
            ),
            "setup": (
                setup(
                    4,
                    NUMA,
                    ("server", "sockets", "sockets", r"on a (\d)-socket Intel"),
                    ("server", "NUMA nodes per socket", "nodes", r"server \((\d) NUMA node per"),
                    ("server", "memory", "GB", r"with (\d+)GB DRAM"),
                    ("server", "memory per socket", "GB", r"\((\d+)GB per socket\)"),
                    ("memory eater", "node", "node number", r"memory eater on NUMA node (\d)"),
                    ("memory eater", "memory", "GB", r"to use (\d+)GB memory before"),
                    ("memory eater", "killed after", "s", r"processes run for (\d+) seconds"),
                    ("pmbench", "processes", "processes", r"with (\d+) processes, and"),
                    ("pmbench", "threads per process", "threads", r"and (\d+) threads per process"),
                    ("pmbench", "threads", "threads", r"there are (\d+) threads in total"),
                    ("pmbench", "working set per process", "MB", r"each process is (\d+)MB"),
                    ("pmbench", "working set", "GB", r"8960MB = (\d+)GB"),
                    ("pmbench", "node it is bound to", "node number", r"bound to node (\d)"),
                ),
                ["workload", "quantity"],
            ),
        },
    ),
    "numa-delay-mapping-v1": (
        "NUMA balancing: reduce TLB flush via delaying mapping on hint page fault, version 1",
        [
            _source(
                "NUMA balancing: reduce TLB flush via delaying mapping, v1",
                "Huang Ying",
                "2021-03-29",
                "20210329062651.2487905-1-ying.huang@intel.com",
            )
        ],
        {"tlb": (collected("numa_balancing_tlb", version="^RFC/v1"), ["metric"])},
    ),
    "migrate-pages-batch-v3": (
        "migrate_pages(): batch TLB flushing, version 3",
        [
            _source(
                "migrate_pages(): batch TLB flushing, v3",
                "Huang Ying",
                "2023-01-16",
                "20230116063057.653862-1-ying.huang@intel.com",
            )
        ],
        {"tlb": (collected("numa_balancing_tlb", version="^migrate"), ["metric"])},
    ),
    "batchsize-2018": (
        "mm, page_alloc: double zone's batchsize (v4.19)",
        [
            _source(
                "mm, page_alloc: double zone's batchsize",
                "Aaron Lu",
                "2018-07-11",
                "20180711055855.29072-1-aaron.lu@intel.com",
                commit="d8a759b57035",
            )
        ],
        {
            "page_fault1": (collected("batchsize2018_page_fault1"), ["machine", "batch"]),
            "other_workloads": (
                collected("batchsize2018_other_workloads"),
                ["workload", "testbox"],
            ),
        },
    ),
    "zone-lock-2018-v4": (
        "mm: less work under the zone lock, version 4",
        [
            _source(
                "Patches 3 and 4 of v4: pick pages outside the lock, prefetch the buddy",
                "Aaron Lu",
                "2018-03-01",
                "20180301062845.26038-3-aaron.lu@intel.com",
                note="Patch 4: the same id with -4-.",
            )
        ],
        {"page_fault1": (collected("aaronlu2018_v4_page_fault1"), ["machine"])},
    ),
    "no-merge-2018-rfc4": (
        "RFC: skip merging and allocate clusters, version 4",
        [
            _source(
                "RFC v4: no merging on free, cluster allocation",
                "Aaron Lu",
                "2018-10-17",
                "20181017063330.15384-1-aaron.lu@intel.com",
            )
        ],
        {"contention": (collected("aaronlu2018_rfc4"), ["machine", "workload", "metric"])},
    ),
    "pcp-high-2021": (
        "Calculate PCP high based on zone sizes, and scale the free batch (v5.14)",
        [
            _source(
                "PCP high and batch freeing",
                "Mel Gorman",
                "2021-05-25",
                "20210525080119.5455-1-mgorman@techsingularity.net",
                note="Patch: the same id with -5-.",
            )
        ],
        {"free_trace": (collected("gorman2021_free_trace"), ["variant", "call"])},
    ),
    "high-order-pcp-2021": (
        "mm/page_alloc: allow high-order pages to be stored on the per-cpu lists (v5.14)",
        [
            _source(
                "mm/page_alloc: allow high-order pages to be stored on the per-cpu lists",
                "Mel Gorman",
                "2021-06-03",
                "20210603084621.24109-3-mgorman",
                commit="44042b449872",
            )
        ],
        {"netperf_udp": (collected("gorman2021_netperf_udp_high_order"), ["message_bytes"])},
    ),
    "high-order-pcp-2022": (
        "Follow-up on high-order pages in the PCP lists (v5.18)",
        [
            _source(
                "Follow-up on high-order PCP caching, and its thread",
                "Mel Gorman",
                "2022-02-17",
                "20220217002227.5739-6-mgorman@techsingularity.net",
            ),
            _source("Answer in that thread", "Aaron Lu", "2022-02", "Yg4MFMvFt43et6Ck"),
        ],
        {
            "page_fault1": (collected("gorman2022_page_fault1_cascadelake"), ["processes"]),
            "truncate": (collected("gorman2022_truncate"), ["machine"]),
            "contention": (collected("aaronlu2022_contention"), ["machine"]),
        },
    ),
    "netperf-regression-2022": (
        "netperf after mm/page_alloc: limit number of high-order pages on PCP during bulk free",
        [
            _source(
                "Report on f26b3fa04611",
                "Aaron Lu",
                "2022-05-07",
                "ba83270a-4f37-7d5a-b37a-0b7a6df5f5b4@intel.com",
            )
        ],
        {"netperf": (collected("lkp_reports", report="Aaron Lu"), ["machine", "workload"])},
    ),
    "lkp-reports-2023": (
        "Reports of the kernel test robot on the auto-tuning series",
        [
            _source(f"kernel test robot report {report}", "kernel test robot", date, report)
            for report, date in (
                ("202310271441.71ce0a9", "2023-10-27"),
                ("202311061311.8d63998", "2023-11-06"),
                ("202311141422.64f32250", "2023-11-14"),
                ("202311171535.870e7726", "2023-11-17"),
                ("202311231029.3aa790", "2023-11-23"),
            )
        ],
        {
            "reports": (
                collected("lkp_reports", report="^2023"),
                ["report", "commit_before", "machine", "workload", "metric"],
            )
        },
    ),
    "remote-drain-2022": (
        "mm/page_alloc: remote per-cpu lists drain: pft without the series",
        [
            _source(
                "Remote per-cpu page list drain, and its thread",
                "Nicolas Saenz Julienne",
                "2022-02-08",
                "20220208100750.1189808-1-nsaenzju@redhat.com",
            )
        ],
        {"pft": (collected("pft_2022"), ["machine", "clients"])},
    ),
    "page-bench-2016": (
        "page_bench: cost of allocation and free by order and by number of CPUs",
        [
            _source(
                "page_bench results, MM-summit 2016 material and list mail",
                "Jesper Dangaard Brouer",
                "2016-04",
                None,
                note="The collection names no message id.",
            )
        ],
        {
            "order": (collected("page_bench_2016_order"), ["order"]),
            "parallel": (collected("page_bench_2016_parallel"), ["cpus", "order"]),
        },
    ),
    "numa-stat-2017": (
        "Threshold of the NUMA statistics and the cost of a page",
        [
            _source(
                "NUMA statistics threshold",
                "Kemi Wang",
                "2017-08",
                None,
                note="List mail of Aug-Sep 2017; the collection names no message id.",
            )
        ],
        {"threshold": (collected("numa_stat_threshold_2017"), [])},
    ),
    "dhama-v1": (
        "Draining of high-order pages, version 1: fourteen workloads",
        [_source("v1", "Dhama", "2025-01-07", "20250107091724.35287-1")],
        {"workloads": (collected("dhama_v1_workloads"), ["workload"])},
    ),
    "dhama-merged": (
        "Draining of high-order pages, as merged: netperf",
        [_source("As merged", "Dhama", "2025-04-07", "20250407105219.55351-1")],
        {"netperf_tcp": (collected("dhama_netperf_tcp"), ["message_bytes"])},
    ),
    "pcp-meminfo-2022": (
        "Pages in the PCP lists of an idle machine",
        [
            _source(
                "PCP pages in meminfo, v2, quoted in Hocko's answer of 23 Aug 2022",
                "Liu Shixin",
                "2022-08",
                None,
                note="The collection names no message id.",
            )
        ],
        {"stranded": (collected("stranded_2022"), ["quantity"])},
    ),
    "single-facts": (
        "Single figures of several sources, each named in its row",
        [
            _source("zone lock on its own cacheline", None, None, None, commit="a368ab67aa55"),
            _source("tiny PCP after deferred init", None, None, None, commit="3e8fc0075e24"),
            _source(
                "pageblock-owned PCP RFC",
                "Weiner",
                "2026-04",
                "20260403194526.477775",
                note="Second-hand figure.",
            ),
            _source("Meta fleet", None, None, None, note="See the row."),
        ],
        {"facts": (collected("misc"), ["what", "quantity"])},
    ),
}


def schema(columns: list[str], rows: list[Row], key: list[str]) -> dict:
    """Return the Table Schema of a transcribed table."""
    fields = []
    for column in columns:
        type_, unit, description = FIELDS[column]
        limits: dict = {}
        if column in key and all(row[column] for row in rows):
            limits["required"] = True
        if type_ != "string" and not re.match("change|further_change|delta", column):
            limits["minimum"] = 0
        if column in SHARES:
            limits["maximum"] = 100
        fields.append(
            {
                "name": column,
                "type": type_,
                **({"unit": unit} if unit else {}),
                "description": description,
                **({"constraints": limits} if limits else {}),
            }
        )
    missing = [""] + [MISSING[column] for column in columns if column in MISSING]
    made = {"fields": fields, "missingValues": missing}
    return made | ({"primaryKey": key} if key else {})


def main(shared: Shared, out: Path) -> None:
    """Write one package per source."""
    for name, (title, sources, tables) in PACKAGES.items():
        directory = out / name
        directory.mkdir(parents=True, exist_ok=True)
        resources = []
        for table, (reader, key) in tables.items():
            rows = reader(shared)
            if not rows:
                raise SystemExit(f"{name}/{table} has no rows")
            columns = list(rows[0])
            with (directory / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            resources.append(
                {
                    "name": table,
                    "type": "table",
                    "path": f"{table}.csv",
                    "format": "csv",
                    "mediatype": "text/csv",
                    "encoding": "utf-8",
                    "schema": schema(columns, rows, key),
                }
            )
        descriptor = {
            "name": name,
            "title": title,
            "licence_note": LICENCE_NOTE,
            "sources": sources,
            "resources": resources,
        }
        (directory / "datapackage.json").write_text(dump_json(descriptor), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Shared(Path(sys.argv[1])), Path(sys.argv[2]))

"""Transcribe published tables and figures into ``data/published/``.

    python tools/transcribe_published.py SHARED OUT

SHARED holds ``seeds/`` (texts of list mails), ``published/`` (collected CSV
files) and ``reviews/`` (of which one quotes reports); OUT gets one directory
per source.  What goes where, and what a column means, is in
``published.toml``.  Numbers are copied as text, digit for
digit; a reduction gets a minus sign, "same" is replaced by what it stands for,
and a range such as 67-74 goes into two columns.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import csv
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from transcribe_hardware import LICENCE_NOTE

from pcpmodel.datasets.store import dump_json

Row = dict[str, str]

SPEC = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
V2 = "20230926060911.266511-1-ying.huang (v2 cover, 26 Sep 2023)"
#: Sums below a struct layout, in the order in which pahole prints them.
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
        path = self.root / "published" / f"{name}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for above, row in zip([{}, *rows], rows, strict=False):
            row |= {column: above[column] for column, cell in row.items() if cell == "same"}
        for column in ("before", "after", "change_pct"):
            cells = [row.get(column, "") for row in rows]
            ranges = [re.fullmatch(r"(-?[\d.]+)(-| to )(-?[\d.]+)", cell) for cell in cells]
            if any(ranges):
                for row, found in zip(rows, ranges, strict=True):
                    row[column], upper = (found[1], found[3]) if found else (row[column], "")
                    insert(row, f"{column}_to", upper, after=column)
        if name in SPEC["units"]:
            rule = SPEC["units"][name]
            for row in rows:
                text = row[rule["look_in"]]
                unit = next((u for p, u in rule["patterns"] if re.search(p, text)), "")
                insert(row, "unit", unit, before=rule["before"])
        renamed = SPEC["renamed"].get(name, {})
        return [{renamed.get(column, column): cell for column, cell in r.items()} for r in rows]


def insert(row: Row, name: str, value: str, *, after: str = "", before: str = "") -> None:
    """Put a cell beside another."""
    cells = list(row.items())
    at = list(row).index(after or before) + bool(after)
    row.clear()
    row.update([*cells[:at], (name, value), *cells[at:]])


def find(text: str, pattern: str) -> tuple[str, ...]:
    """Return the groups of the one reading that a pattern has in a text."""
    readings = {match.groups() for match in re.finditer(pattern, text)}
    if len(readings) != 1:
        raise SystemExit(f"{pattern!r} has {len(readings)} readings")
    return readings.pop()


# --- rows out of the mails ---------------------------------------------------


def stated(shared: Shared, block: dict, columns: list[str]) -> Iterator[Row]:
    """Yield single figures: ``words | figure columns (default: value) | pattern``, one a line.

    The pattern's groups are the figures; "-" before a column negates it.
    """
    for line in block["facts"].strip().splitlines():
        *words, pattern = (cell.strip() for cell in line.split(" | "))
        figures = words.pop().split() if len(words) > len(block["words"]) else ["value"]
        row = dict.fromkeys(columns, "") | dict(zip(block["words"], words, strict=True))
        found = find(shared.mail(block["mail"]), pattern)
        for column, figure in zip(figures, found, strict=True):
            row[column.lstrip("-")] = "-" * column.startswith("-") + figure
        yield row | {"source": block["source"]}


def series(shared: Shared, heading: str) -> Iterator[Row]:
    """Yield base .. patch10 of one table of the V2 cover letter."""
    columns = ["lock_contend_cycles_pct", "free_high_pct_of_base", "alloc_zone_pct_of_base"]
    if heading == "kbuild":
        columns = ["build_time_pct", *columns]
    else:
        columns = ["score_pct", *columns, "cache_miss_rate_pct"]
    (body,) = find(shared.mail(0), re.escape(heading) + r" =+ (.*?) The PCP")
    for step, cells in re.findall(r"(base|patch\d+)((?: [\d.]+)+)", body):
        yield {"step": step, **dict(zip(columns, cells.split(), strict=True)), "source": V2}


def layouts(shared: Shared) -> Iterator[tuple[str, str]]:
    """Yield (variant, listing) of both struct layouts of the V2 cover letter."""
    for variant, heading in (("v2 base", "base ===="), ("v2 patched", "patched =======")):
        (body,) = find(shared.mail(0), heading + r" struct per_cpu_pages (\{.*?\} __attribute\S+)")
        yield variant, body


def layout(shared: Shared) -> Iterator[Row]:
    """Yield members and holes."""
    pattern = r"([\w ]+?) (\w+(?:\[\d+\])?); /\* (\d+) (\d+) \*/|/\* XXX (\d+) bytes? hole"
    for variant, body in layouts(shared):
        for type_, member, offset, size, hole in re.findall(pattern, body):
            yield {
                "variant": variant,
                "member": member or "_hole",
                "type": type_.strip(),
                "offset_bytes": offset,
                "size_bytes": size or hole,
                "source": V2,
            }


def total(variant: str, quantity: str, value: str, source: str) -> Row:
    """Return a row of sums."""
    unit = TOTALS[quantity]
    row = {"variant": variant, "quantity": quantity, "value": value, "unit": unit}
    return row | {"source": source}


def layout_totals(shared: Shared) -> Iterator[Row]:
    """Yield the sums below the members."""
    for variant, body in layouts(shared):
        figures = re.findall(r"\d+", body[body.index("/* size:") :])
        for quantity, value in zip(TOTALS, figures, strict=True):
            yield total(variant, quantity, value, V2)


def layout_v3(shared: Shared) -> Iterator[Row]:
    """Yield members and holes of V3's layout."""
    for row in shared.rows("struct_layout_v3"):
        if not row["member"].startswith("_total_"):
            row["size_bytes"] = row.pop("size_or_value")
            insert(row, "source", row.pop("source"), after="size_bytes")
            insert(row, "type", "", after="member")
            yield row


def layout_v3_totals(shared: Shared) -> Iterator[Row]:
    """Yield the sums below V3's layout."""
    for row in shared.rows("struct_layout_v3"):
        name = row["member"].removeprefix("_total_")
        if name != row["member"]:
            name = name if name in TOTALS else f"{name}_bytes"
            yield total(row["variant"], name, row["size_or_value"], row["source"])


def hahn_kbuild(shared: Shared) -> Iterator[Row]:
    """Yield the three machines of Hahn's v4."""
    for size in ("Large", "Medium", "Small"):
        memory, cpus, body = find(
            shared.mail(1),
            size + r" machine \((\d+)GiB memory, (\d+) processors\) make -j\$\(nproc\) "
            r"[-+]+ \|[^|]+\|[^|]+\|[^|]+\| [-+]+ ((?:\|[^|]+\|[^|]+\|[^|]+\| )+)",
        )
        for metric, cv, delta in re.findall(r"\| (\w+) \| (\S+) \| ([-+].*?) \|", body):
            yield {
                "machine": size.lower(),
                "memory_gib": memory,
                "cpus": cpus,
                "workload": "kbuild make -j$(nproc)",
                "metric": metric,
                "variation_pct_cv": cv,
                "delta_pct": delta.replace(" ", "").removeprefix("+"),
                "source": "Hahn, [PATCH v4 3/3] (13 Oct 2025)",
            }


def hahn_ratio(shared: Shared) -> Iterator[Row]:
    """Yield memory per CPU of the three machines, as Hahn gives it."""
    for size in ("Large", "Small", "Medium"):
        yield {
            "machine": size.lower(),
            "gib_per_cpu": find(shared.mail(1), size + r" machine ?: ([\d.]+)")[0],
            "source": "Hahn, answer to Danton (14 Oct 2025)",
        }


def robot_reports(shared: Shared) -> Iterator[Row]:
    """Yield the reports of 2025 that a review of the field quotes, a figure a row."""
    lines = (shared.root / "reviews" / "field.md").read_text(encoding="utf-8").splitlines()
    number = r"(-?[\d.,]+(?:e\d+)?)"
    pair = rf"{number} -> {number}"
    blank = dict.fromkeys(
        ("report", "commit_before", "commit_after", "machine", "cpus", "sockets", "memory_gb",
         "workload", "metric", "unit", "before", "after", "change_pct", "source"), "",
    )  # fmt: skip
    for line in SPEC["robot_reports"]["facts"].strip().splitlines():
        report, machine, cpus, memory, workload, metric, unit, pattern = line.split(" | ")
        known = SPEC["robot_reports"]["reports"][report]
        (row,) = (line for line in lines if report in line)
        figures = find(row, pattern.replace("PAIR", pair).replace("NUMBER", number))
        columns = ("before", "after", "change_pct") if "PAIR" in pattern else ("change_pct",)
        found = {c: f.replace(",", "") for c, f in zip(columns, figures, strict=False)}
        yield blank | {
            "report": report.split("-lkp")[0],
            "commit_before": known[0],
            "commit_after": known[1],
            "machine": machine,
            "cpus": cpus,
            "sockets": known[2],
            "memory_gb": memory,
            "workload": workload,
            "metric": metric,
            "unit": unit,
            **found,
            "source": f"kernel test robot, {report.split('-lkp')[0]}, and its thread",
        }


READERS = {
    reader.__name__: reader
    for reader in (
        layout, layout_totals, layout_v3, layout_v3_totals, hahn_kbuild, hahn_ratio, robot_reports,
    )
}  # fmt: skip

# --- packages ----------------------------------------------------------------


def rows_of(shared: Shared, table: dict) -> list[Row]:
    """Return the rows of one table of ``published.toml``."""
    rows: list[Row] = []
    if "reader" in table:
        rows += READERS[table["reader"]](shared)
    if "series" in table:
        rows += series(shared, table["series"])
    for block in table.get("stated", ()):
        rows += stated(shared, block, table["columns"])
    if "collected" in table:
        column, pattern = table.get("where", ["source", ""])
        rows += (r for r in shared.rows(table["collected"]) if re.search(pattern, r[column]))
    if not rows:
        raise SystemExit(f"{table['name']} has no rows")
    return rows


def schema(rows: list[Row], key: list[str]) -> dict:
    """Return the Table Schema of a transcribed table."""
    fields = []
    missing = [""]
    for column in rows[0]:
        type_, unit, description = SPEC["fields"][column]
        limits: dict = {}
        if column in key and all(row[column] for row in rows):
            limits["required"] = True
        if type_ != "string" and not re.match("change|further_change|delta", column):
            limits["minimum"] = 0
        if column in SPEC["shares"]:
            limits["maximum"] = 100
        field = {"name": column, "type": type_, "unit": unit, "description": description}
        if not unit:
            del field["unit"]
        fields.append(field | ({"constraints": limits} if limits else {}))
        missing += SPEC["missing"].get(column, [])
    return {"fields": fields, "missingValues": missing} | ({"primaryKey": key} if key else {})


def main(shared: Shared, out: Path) -> None:
    """Write one package per source."""
    for name, package in SPEC["packages"].items():
        directory = out / name
        directory.mkdir(parents=True, exist_ok=True)
        resources = []
        for table in package["tables"]:
            rows = rows_of(shared, table)
            path = directory / f"{table['name']}.csv"
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            resources.append(
                {
                    "name": table["name"],
                    "type": "table",
                    "path": path.name,
                    "format": "csv",
                    "mediatype": "text/csv",
                    "encoding": "utf-8",
                    "schema": schema(rows, table.get("key", [])),
                }
            )
        unknown = {"title": None, "author": None, "date": None, "message_id": None}
        descriptor = {
            "name": name,
            "title": package["title"],
            "licence_note": LICENCE_NOTE,
            "sources": [unknown | source for source in package["sources"]],
            "resources": resources,
        }
        (directory / "datapackage.json").write_text(dump_json(descriptor), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Shared(Path(sys.argv[1])), Path(sys.argv[2]))

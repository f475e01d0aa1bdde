"""data/published/: every row of the sources is there, and every number is in its source."""

# SPDX-License-Identifier: GPL-2.0-only

import csv
import re
import tomllib
from collections import Counter

import pytest

from helpers.paths import DATA, ROOT, SHARED
from pcpmodel.datasets import packages

PUBLISHED = DATA / "published"
SOURCES = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the sources beside the checkout")

#: Collected file -> tables that its rows went to.
PLACES = {
    "aaronlu2018_rfc4": ["no-merge-2018-rfc4/contention"],
    "aaronlu2018_v4_page_fault1": ["zone-lock-2018-v4/page_fault1"],
    "aaronlu2022_contention": ["high-order-pcp-2022/contention"],
    "batchsize2018_other_workloads": ["batchsize-2018/other_workloads"],
    "batchsize2018_page_fault1": ["batchsize-2018/page_fault1"],
    "dhama_netperf_tcp": ["dhama-merged/netperf_tcp"],
    "dhama_v1_workloads": ["dhama-v1/workloads"],
    "gorman2021_free_trace": ["pcp-high-2021/free_trace"],
    "gorman2021_netperf_udp_high_order": ["high-order-pcp-2021/netperf_udp"],
    "gorman2022_page_fault1_cascadelake": ["high-order-pcp-2022/page_fault1"],
    "gorman2022_truncate": ["high-order-pcp-2022/truncate"],
    "hahn_stress_ng": ["hahn-v1/stress_ng", "hahn-v2/stress_ng"],
    "lkp_reports": ["lkp-reports-2023/reports", "netperf-regression-2022/netperf"],
    "misc": ["single-facts/facts"],
    "numa_balancing_tlb": ["numa-delay-mapping-v1/tlb", "migrate-pages-batch-v3/tlb"],
    "numa_stat_threshold_2017": ["numa-stat-2017/threshold"],
    "page_bench_2016_order": ["page-bench-2016/order"],
    "page_bench_2016_parallel": ["page-bench-2016/parallel"],
    "pft_2022": ["remote-drain-2022/pft"],
    "rfc2023_kbuild_sctp": ["pcp-auto-tuning-rfc/kbuild_sctp"],
    "series_per_patch": [f"pcp-auto-tuning-{v}/per_patch" for v in ("v1", "v2", "v3")],
    "series_v1_kbuild_8cgroups": ["pcp-auto-tuning-v1/kbuild_8cgroups"],
    "series_v1_kbuild_j224": ["pcp-auto-tuning-v1/kbuild_j224"],
    "series_v3_kbuild": ["pcp-auto-tuning-v3/kbuild"],
    "series_v3_sctp": ["pcp-auto-tuning-v3/sctp_stream_many"],
    "series_v3_unix": ["pcp-auto-tuning-v3/unix"],
    "stranded_2022": ["pcp-meminfo-2022/stranded"],
    "struct_layout_v3": ["pcp-auto-tuning-v3/struct_layout", "pcp-auto-tuning-v3/struct_totals"],
}
#: Tables read out of the mails: directory -> number of the mail.
MAILS = {
    "pcp-auto-tuning-v2": 0,
    "hahn-v4": 1,
    "batch-scale-v1": 2,
    "zone-split-rfc": 3,
    "numa-delay-mapping-v2": 4,
}
#: Read out of a review that quotes the reports.
QUOTED = "lkp-reports-2025"


def rows_of(table: str) -> list[dict[str, str]]:
    with (PUBLISHED / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def mail(number: int) -> str:
    """A mail without quotation marks, on one line."""
    (path,) = (SHARED / "seeds").glob(f"{number:03d}_*.txt")
    return " ".join(re.sub(r"(?m)^[> ]+", "", path.read_text(encoding="utf-8")).split())


@pytest.mark.parametrize("source", packages.published_names())
def test_a_source_loads_typed_with_units_and_where_it_is_from(source):
    published = packages.load_published(source)
    assert published.tables
    assert published.title
    for origin in published.sources:
        assert origin["title"]
        # Unknown is said, never left out.
        assert {"author", "date", "message_id"} <= origin.keys()
        assert origin["message_id"] or origin.keys() & {"note", "commit"} or origin["author"]
    for name, table in published.tables.items():
        assert len(table) == len(rows_of(f"{source}/{name}"))
        assert table["source"].notna().all()
        numeric = [column for column in table if table[column].dtype != object]
        assert numeric
        assert numeric == [c for c in table if c in published.units[name]]
        see_unit = [u for u in published.units[name].values() if u == "see column unit"]
        assert not see_unit or "unit" in table


def expected_rows(name: str) -> list[dict[str, str]]:
    """Rows of a collected file with "same" replaced by what it repeats."""
    with (SHARED / "published" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for above, row in zip([{}, *rows], rows, strict=False):
        for column, cell in row.items():
            if cell == "same":
                row[column] = above[column]
    return rows


def as_collected(name: str, row: dict[str, str]) -> tuple[str, ...]:
    """A row of data/ in the form of the collected file: ranges joined, added columns left out."""
    row = dict(row)
    for column in [c for c in row if c.endswith("_to")]:
        if upper := row.pop(column):
            joint = " to " if upper.startswith("-") else "-"
            row[column.removesuffix("_to")] += joint + upper
    if name == "struct_layout_v3" and "quantity" in row:
        short = row["quantity"].removesuffix("_bytes")
        member = row["quantity"] if short == "size" else short
        member = "_total_" + member
        return row["variant"], member, "", row["value"], row["source"]
    added = {"unit"} if name not in ("aaronlu2018_rfc4", "lkp_reports", "rfc2023_kbuild_sctp",
                                     "stranded_2022") else set()  # fmt: skip
    added |= {"type"} if name == "struct_layout_v3" else set()
    return tuple(cell for column, cell in row.items() if column not in added)


@SOURCES
def test_every_collected_file_has_its_place():
    assert {path.stem for path in (SHARED / "published").glob("*.csv")} == PLACES.keys()
    taken = {table for tables in PLACES.values() for table in tables}
    there = {f"{path.parent.name}/{path.stem}" for path in PUBLISHED.glob("*/*.csv")}
    assert {table.split("/")[0] for table in there - taken} <= MAILS.keys() | {QUOTED}


@SOURCES
@pytest.mark.parametrize("name", PLACES)
def test_every_row_of_a_collected_file_is_there_once_and_nothing_else(name):
    here = [row for table in PLACES[name] for row in rows_of(table)]
    if name == "series_per_patch":  # V2's table also has rows out of its mail
        here = [row for row in here if "266511" not in row["source"]]
    expected = Counter(tuple(row.values()) for row in expected_rows(name))
    assert Counter(as_collected(name, row) for row in here) == expected


def test_every_unit_that_a_collected_file_gets_is_on_a_row_and_a_share_says_percent():
    """A threshold of four batches stood as 4 %: "^cache" of the misses' rate fits it, too."""
    spec = tomllib.loads((ROOT / "tools" / "published.toml").read_text(encoding="utf-8"))
    for name, rule in spec["units"].items():
        rows = [row for table in PLACES[name] for row in rows_of(table)]
        assert {unit for _, unit in rule["patterns"]} <= {row["unit"] for row in rows}, name
        shares = [row[rule["look_in"]] for row in rows if row["unit"] == "%"]
        assert all("%" in words for words in shares), name


@SOURCES
@pytest.mark.parametrize(
    ("table", "heading"),
    [
        ("kbuild", "kbuild ======"),
        ("sctp_stream_many", "netperf SCTP_STREAM_MANY ====="),
        ("unix", "lmbench3 UNIX (AF_UNIX) ====="),
    ],
)
def test_every_row_of_a_series_table_stands_below_its_heading(table, heading):
    section = mail(0).split(heading, 1)[1].split(" The PCP ", 1)[0]
    rows = rows_of(f"pcp-auto-tuning-v2/{table}")
    body = " ".join(" ".join(list(row.values())[:-1]) for row in rows)
    assert section.endswith(" " + body)
    assert [row["step"] for row in rows] == ["base", *(f"patch{n}" for n in (1, 3, 5, 7, 9, 10))]


@SOURCES
@pytest.mark.parametrize(("variant", "heading"), [("v2 base", "base"), ("v2 patched", "patched")])
def test_every_member_of_a_layout_stands_below_its_heading(variant, heading):
    section = re.split(rf" {heading} ===+ ", mail(0))[1].split("__attribute__")[0]
    rows = [r for r in rows_of("pcp-auto-tuning-v2/struct_layout") if r["variant"] == variant]
    at = 0
    for row in rows:
        if row["member"] == "_hole":
            found = re.search(rf"XXX {row['size_bytes']} bytes? hole", section[at:])
        else:
            text = "{type} {member}; /* {offset_bytes} {size_bytes} */".format(**row)
            found = re.search(re.escape(text), section[at:])
        assert found, row
        at += found.end()
    assert section.count(";") == sum(row["member"] != "_hole" for row in rows)
    totals = {
        row["quantity"]: row["value"]
        for row in rows_of("pcp-auto-tuning-v2/struct_totals")
        if row["variant"] == variant
    }
    assert totals.pop("alignment_bytes") in mail(0).split(section, 1)[1][:30]
    for quantity, value in totals.items():
        words = quantity.removesuffix("_bytes").replace("_", " ")
        assert re.search(rf"(?<!sum ){words}: {value}\b", section), quantity


@SOURCES
@pytest.mark.parametrize("size", ["large", "medium", "small"])
def test_every_figure_of_hahns_machines_stands_in_its_row(size):
    rows = [row for row in rows_of("hahn-v4/kbuild") if row["machine"] == size]
    assert [row["metric"] for row in rows] == ["real", "user", "sys"]
    heading = "{} machine ({memory_gib}GiB memory, {cpus} processors)"
    after = mail(1).split(heading.format(size.capitalize(), **rows[0]), 1)[1]
    for row in rows:
        sign = "-" if row["delta_pct"].startswith("-") else r"\+"
        delta = row["delta_pct"].lstrip("-")
        line = rf"\| {row['metric']} \| {row['variation_pct_cv']} \| {sign} ?{delta} \|"
        assert re.search(line, after[:400]), row


@SOURCES
def test_every_figure_of_the_robots_reports_of_2025_stands_in_its_row():
    quoted = (SHARED / "reviews" / "field.md").read_text(encoding="utf-8").splitlines()
    rows = rows_of(f"{QUOTED}/reports")
    assert len(rows) == 9
    for row in rows:
        (line,) = (line for line in quoted if row["report"] in line)
        figures = line.replace(",", "")
        assert row["workload"].split(",")[0].split()[-1] in line
        pair = f"{row['before']} -> {row['after']}"
        assert not row["before"] or pair in figures, row
        change = row["change_pct"]
        assert not change or re.search(rf"(?<![\d.]){re.escape(change)} %", figures), row
        for column in ("cpus", "memory_gb", "machine"):
            assert row[column].split(" cut to ")[0] in line, row


def stated_figures():
    """Each single figure out of a mail: (directory, words about it, figure)."""
    for directory in MAILS:
        for path in sorted((PUBLISHED / directory).glob("*.csv")):
            if re.search("kbuild|sctp|unix|struct|rcu", path.stem):
                continue
            for row in rows_of(f"{directory}/{path.stem}"):
                words = " ".join(
                    row.get(c, "") for c in ("workload", "quantity", "machine", "unit")
                )
                for column in ("before", "after", "change_pct", "change_pct_to", "value"):
                    if row.get(column) and "Huang reply" not in row["source"]:
                        yield directory, words, row[column]
                if "gib_per_cpu" in row:
                    yield directory, words, row["gib_per_cpu"]


@SOURCES
@pytest.mark.parametrize(("directory", "words", "figure"), list(stated_figures()))
def test_a_single_figure_stands_near_words_about_it(directory, words, figure):
    text = mail(MAILS[directory])
    stems = {word.lower()[:5] for word in re.findall(r"[A-Za-z_]{4,}|GB|TB|us", words)}
    number = re.escape(figure.lstrip("-"))
    best = 0
    for match in re.finditer(rf"(?<![\d.]){number}(?![\d]|\.\d)", text):
        around = text[max(0, match.start() - 300) : match.end() + 300].lower()
        if figure.startswith("-") and not re.search("reduc|decreas", around):
            continue
        best = max(best, sum(stem in around for stem in stems))
    assert best >= min(2, len(stems))


@SOURCES
def test_the_figures_of_the_stall_report_stand_in_it_in_this_order():
    report = mail(1).split("INFO: rcu_sched self-detected stall")
    stamp, figures = report[0].split("[")[-1].split("]")[0].strip(), report[1].split("lock cont")[0]
    numbers = iter(re.findall(r"\d+", re.sub(r"\[ *[\d.]+\]", "", figures)))
    rows = rows_of("hahn-v4/rcu_stall")
    assert rows[0]["value"] == stamp
    for row in rows[1:]:
        assert row["value"] in numbers, row


@SOURCES
@pytest.mark.parametrize(("directory", "number"), MAILS.items())
def test_no_percentage_of_a_mail_was_left_out(directory, number):
    here = {
        cell.lstrip("-")
        for path in (PUBLISHED / directory).glob("*.csv")
        for row in rows_of(f"{directory}/{path.stem}")
        for cell in row.values()
    }
    text = mail(number)
    stated = set(re.findall(r"(?<![\w.])(\d+(?:\.\d+)?)%", text))
    # The 99 % of the latency tables names a column of data/hardware.
    assert stated - {"99"} <= here
    assert stated or number in (1,)

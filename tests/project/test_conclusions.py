"""Executed notebooks: a conclusion states what the run found, and no interval denies a measurement.

The reader of a conclusion does not look at the tables above it.  So the numbers that
stand in its text must be in the outputs of the run, and an interval must hold the
measured value that is printed with it.
"""

# SPDX-License-Identifier: GPL-2.0-only

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest

import pcpmodel as pm
from helpers.paths import ROOT
from helpers.reports import of_every_notebook
from pcpmodel.datasets.packages import load_workload
from pcpmodel.reports.plan import Run
from pcpmodel.study.published.asked import ASKED
from pcpmodel.study.published.question import ASSUMED

NUMBER = re.compile(r"(?<![\w.])[-+\u2212]?\d[\d,]*(?:\.\d+)?(?![\w]|\.\d)")
#: What such a number counts is a name, or words of a source in quotation marks, not a finding.
NAMES = re.compile(
    r"(?:\b(?:patch(?:es)?|versions?|notebooks?|scale|order) \d+(?:(?:, | and | to )\d+)*"
    r"|\bv\d[\w.+-]*|`[^`]*`|\"[^\"]*\")"
)
#: Small counts stand in every notebook; with a unit they must stand there with it.
UNIT = re.compile(r" ?(%|us|µs|ms|GB|GiB|MiB|points|times)(?!\w)")
SMALL = 100
VALUE = r"([-+]?\d[\d,]*(?:\.\d+)?)"
INTERVALS = (
    re.compile(rf"\({VALUE}(?: us| µs| %)? (?:to|\.\.\.|…) {VALUE}"),
    re.compile(rf"95 % interval[^.;]*? {VALUE}(?: us| µs| %)? (?:to|\.\.\.|…) {VALUE}"),
)
PLUS_MINUS = re.compile(rf"{VALUE} ± {VALUE}")
MEASURED = re.compile(
    rf"(?:[Mm]easured:? {VALUE}|{VALUE}(?: us| µs| %)? (?:was |were )?(?:measured|published))"
)


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("\u2212", "-"))


def shown(notebook: Any) -> str:
    """All that the code cells put out, as text."""
    parts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            for kind in ("text/markdown", "text/plain"):
                parts.append("".join(data.get(kind, "")))
            parts.append(html.unescape(re.sub(r"<[^>]+>", " ", "".join(data.get("text/html", "")))))
            parts.append("".join(output.get("text", "")))
    return "\n".join(parts)


def concluding(notebook: Any) -> Iterator[str]:
    """The Markdown cells from the heading of the conclusion to the next other one."""
    inside = False
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        if heading := re.match(r"#+ (.*)", cell.source):
            inside = heading[1].startswith("Conclusion")
        if inside:
            yield "\n".join(line for line in cell.source.splitlines() if not line.startswith("#"))


def _numbers(text: str) -> Iterator[tuple[str, float, str]]:
    """Each number of a text as written, its size, and its unit if one follows."""
    for match in NUMBER.finditer(text):
        unit = UNIT.match(text, match.end())
        yield match[0], abs(_number(match[0])), unit[1] if unit else ""


def unsupported(notebook: Any) -> list[str]:
    """Numbers in the text of a conclusion that no output of the notebook has."""
    found = list(_numbers(shown(notebook)))
    missing = []
    for text in concluding(notebook):
        for said, stated, unit in _numbers(NAMES.sub(" ", text)):
            digits = len(said.partition(".")[2])
            small = unit and not digits and stated < SMALL
            if not any(
                abs(round(value, digits) - stated) < 1e-9 and (not small or unit == its)
                for _, value, its in found
            ):
                missing.append(said)
    return missing


def denied(notebook: Any) -> list[str]:
    """Sentences and rows of tables whose interval excludes the measured value beside it."""
    bad = []
    texts = [shown(notebook), *(c.source for c in notebook.cells if c.cell_type == "markdown")]
    for sentence in re.split(r"(?<=[.;])\s|\n", "\n".join(texts)):
        measured = [_number(m[1] or m[2]) for m in MEASURED.finditer(sentence)]
        ends = [(_number(m[1]), _number(m[2])) for p in INTERVALS for m in p.finditer(sentence)]
        for m in PLUS_MINUS.finditer(sentence):
            middle, half = _number(m[1]), _number(m[2])
            ends.append((middle - half, middle + half))
        if len(ends) == 1 and any(not ends[0][0] <= value <= ends[0][1] for value in measured):
            bad.append(sentence.strip())
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            page = "".join(output.get("data", {}).get("text/html", ""))
            bad += _rows(page)
    return bad


class _Tables(HTMLParser):
    """Heads and rows of the tables of a page; index cells may span rows."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[list[list[str]], list[list[str]]]] = []
        self.inside = self.cell = False

    def handle_starttag(self, tag: str, _: Any) -> None:
        if tag == "table":
            self.tables.append(([], []))
        elif tag in ("thead", "tbody"):
            self.inside = tag == "thead"
        elif tag == "tr" and self.tables:
            self.tables[-1][not self.inside].append([])
        elif tag in ("th", "td") and self.tables:
            self.tables[-1][not self.inside][-1].append("")
            self.cell = True

    def handle_endtag(self, tag: str) -> None:
        self.cell = self.cell and tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.tables[-1][not self.inside][-1][-1] += data.strip()


def _rows(page: str) -> Iterator[str]:
    """Rows in which measured_X_UNIT lies outside X_low_UNIT .. X_high_UNIT."""
    parser = _Tables()
    parser.feed(page)
    for head, body in parser.tables:
        names = ["".join(parts) for parts in zip(*head, strict=False)]
        for name in [n for n in names if n.startswith("measured_")]:
            stem, _, unit = name.removeprefix("measured_").rpartition("_")
            ends = f"{stem}_low_{unit}", f"{stem}_high_{unit}"
            if not set(ends) <= set(names):
                continue
            at = [names.index(column) - len(names) for column in (name, *ends)]
            for row in body:
                try:
                    value, low, high = (_number(row[i]) for i in at)
                except ValueError:  # nothing was measured here
                    continue
                if not low <= value <= high:
                    yield f"{name} {value} outside {low} to {high}"


def made(text: str = "", output: str = "", table: str = "") -> Any:
    """A small executed notebook."""
    data = {"text/html": table} if table else {"text/markdown": output}
    code = nbformat.v4.new_code_cell(
        "x", outputs=[nbformat.v4.new_output("display_data", data=data)]
    )
    return nbformat.v4.new_notebook(
        cells=[code, nbformat.v4.new_markdown_cell(f"## Conclusion\n\n{text}")]
    )


def test_a_number_in_a_conclusion_must_be_in_an_output():
    assert unsupported(made("It takes 572 us.", "572.4 us")) == []
    assert unsupported(made("It takes 572 us.", "102 us")) == ["572"]
    assert unsupported(made("Down by 1.2 %.", "| -1.23 |")) == []
    assert unsupported(made("Patches: patch 10 after patches 7 and 9, v6.19.", "")) == []
    assert unsupported(made('The published "9 pages (35.8 GB)" disagree by 5 %.', "")) == ["5"]
    assert unsupported(made("It gains 5 %.", "5 CPUs gain 7 %")) == ["5"]
    assert unsupported(made("It gains 5 % on 5 CPUs.", "5 CPUs gain 5.2 %")) == []
    other = made("", "")
    other.cells.append(nbformat.v4.new_markdown_cell("## Versions\n\n42"))
    assert unsupported(other) == []


def test_an_interval_must_hold_what_was_measured():
    said = "p99 of a hold, measured 140.8 us, expected 180 us (172 to 189)."
    assert denied(made(output=said)) == [said]
    assert denied(made(said))
    assert denied(made(output="measured 140.8 us, expected 150 us (120 to 189).")) == []
    assert denied(made(output="measured 7.7, modelled 1.1 ± 1.4."))
    assert denied(made(output="contention 12.8 ± 0.1 %, 13.0 % published."))
    assert denied(made(output="Measured: 7.7, modelled 7.1 ± 1.4.")) == []
    assert denied(made(output="It is 5 (4 to 6).\nThere 9 were measured.")) == []


def test_an_interval_in_a_table_must_hold_it_too():
    def table(high):
        frame = pd.DataFrame(
            {"p99_us": [180.0], "p99_low_us": [130.0], "p99_high_us": [high]}
        ).assign(measured_p99_us=140.8, machine="m")
        return frame.set_index("machine").to_html()

    assert denied(made(table=table(189.0))) == []
    assert denied(made(table=table(135.0))) == ["measured_p99_us 140.8 outside 130.0 to 135.0"]


@pytest.mark.notebook
def test_conclusions_of_the_executed_notebooks(reported: tuple[Path, list[Run]]) -> None:
    out, runs = reported
    faults = {}
    for run in runs:
        path = out / run.name / f"{run.notebook.name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        if found := unsupported(notebook) + denied(notebook):
            faults[run.name] = found
    assert faults == {}


ELSEWHERE = [
    row
    for row in load_workload("answer-key").tables["accounted"].to_dict("records")
    if row["how"] == "elsewhere"
]


def places(row: dict[str, str]) -> list[tuple[str, str]]:
    where, what = (row[column].split("; ") for column in ("place", "holds"))
    return list(zip(where, what, strict=True))


@pytest.mark.parametrize("row", ELSEWHERE, ids=lambda r: f"{r['source']}/{r['table']}")
def test_what_is_answered_elsewhere_names_a_place(row: dict[str, str]) -> None:
    for place, holds in places(row):
        assert holds
        if call := re.fullmatch(r"pm\.layout\((.+)\)", place):
            assert holds in str(pm.layout(call[1]))
        elif call := re.fullmatch(r"pm\.PerCpuPages\((.+), high=(\d+)\)", place):
            pages = pm.PerCpuPages(call[1], high=int(call[2]))
            drains = [str(sum(held)) for _ in range(40_000) if (held := pages.free())]
            assert " ".join(drains).startswith((holds, f"63 {holds}"))
        elif call := re.fullmatch(r"compare (.+)", place):
            assert call[1] in ASKED
            assert holds in ASSUMED.lower()
        else:
            number = re.fullmatch(r"notebook (\d\d)", place)
            assert number, place
            assert len(list((ROOT / "notebooks").glob(f"{number[1]}-*.ipynb"))) == 1


@pytest.mark.notebook
@of_every_notebook
def test_what_is_answered_elsewhere_stands_there(reported: tuple[Path, list[Run]]) -> None:
    out, _ = reported
    missing = []
    for row in ELSEWHERE:
        for place, holds in places(row):
            if place.startswith("notebook "):
                files = out.glob(f"{place.removeprefix('notebook ')}-*/[!.]*/*.ipynb")
                text = "\n".join(_whole(path) for path in files)
                if " ".join(holds.split()) not in text:
                    missing.append(f"{row['source']}/{row['table']}: {holds!r} in {place}")
    assert missing == []


def _whole(path: Path) -> str:
    """Everything that a reader of an executed notebook sees, on one line."""
    notebook = nbformat.read(path, as_version=4)
    said = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return " ".join("\n".join([*said, shown(notebook)]).split())

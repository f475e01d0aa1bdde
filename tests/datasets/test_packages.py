"""data/: what is there loads, typed and with its source; what is not allowed is refused."""

# SPDX-License-Identifier: GPL-2.0-only

import csv
import json
import re
import shutil
from pathlib import Path

import frictionless
import pytest
from click.testing import CliRunner

from helpers.paths import DATA, ROOT, SHARED
from pcpmodel.cli import main
from pcpmodel.datasets import packages
from pcpmodel.errors import InputError

PACKAGES = sorted(
    path.parent for kind in ("hardware", "published") for path in DATA.glob(f"{kind}/*/*e.json")
)
HEADINGS = {
    "sapphire-rapids": "Sapphire Rapids Server",
    "ice-lake": "Ice Lake Server",
    "cascade-lake": "Cascade Lake Server",
    "comet-lake": "Commet Lake Desktop",
    "coffee-lake": "Coffee Lake Desktop",
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A copy of the hardware packages that PCPMODEL_DATA points at."""
    shutil.copytree(DATA / "hardware", tmp_path / "data" / "hardware")
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_data_that_ships_has_no_fault():
    assert packages.check(DATA) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_frictionless_agrees_that_a_package_is_valid(package):
    report = frictionless.validate(str(package / "datapackage.json"))
    assert report.valid, report.flatten(["rowNumber", "fieldName", "message"])


def test_hardware_is_the_five_measured_machines_and_a_guest():
    assert packages.hardware_names() == tuple(sorted([*HEADINGS, "amd-epyc-vm"]))


def test_the_guest_names_every_measurement_that_its_intervals_take_in():
    guest = DATA / "hardware" / "amd-epyc-vm"
    for name in ("platform.json", "datapackage.json"):
        titles = [source["title"] for source in json.loads((guest / name).read_text())["sources"]]
        named = [title for title in titles if title.startswith("pcpmodel measure")]
        assert len(named) == len(set(named)) == 6
    # Documentation, ways in: the five on the guest before; the table's values are of the sixth.
    told = (ROOT / "docs" / "ways-in.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [1-5] \|(.*)\|(.*)\|(.*)\|$", told, re.M)
    assert len(rows) == 5
    costs = {row["operation"]: row for row in csv.DictReader((guest / "costs.csv").open())}
    for column, operation in enumerate(("line_dirty", "hold_page_alloc", "hold_page_free")):
        ends = [re.search(r"\((\S+) to (\S+)\)", row[column]).groups() for row in rows]
        row = costs[operation]
        highest = max(float(high) for _, high in ends)
        lowest = min(float(low) for low, _ in ends)
        assert float(row["high"]) == pytest.approx(highest, abs=0.5)
        assert float(row["low"]) <= lowest + 0.5


@pytest.mark.parametrize("name", HEADINGS)
def test_a_machine_loads_typed_with_units_and_source(name):
    machine = packages.load_hardware(name)
    assert machine.latency["batch"].dtype == "int64"
    assert set(machine.latency.dtypes[1:].astype(str)) == {"float64"}
    assert machine.latency["batch"].is_monotonic_increasing
    assert machine.latency["batch"].iloc[-1] == (1023 if name == "comet-lake" else 2047)
    assert machine.units["free_latency_p99_us"] == "us"
    assert machine.platform.keys() == {*packages.PLATFORM_FIELDS, "sources"}
    assert machine.sources[0]["date"] == "2023-09-20"
    assert machine.latency_interval is None
    assert machine.path == DATA / "hardware" / name


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the sources beside the checkout")
@pytest.mark.parametrize(("name", "heading"), HEADINGS.items())
def test_every_number_of_a_machine_is_in_its_source(name, heading):
    (mail,) = (SHARED / "seeds").glob("002_*.txt")
    after = mail.read_text().split(f">> {heading}\n", 1)[1]
    section = re.split(r"\n>> (?:\S+ )+(?:Server|Desktop)\n", after)[0].split("From the above")[0]
    source = [line.lstrip("> ").split() for line in section.splitlines()]
    source = [cells for cells in source if len(cells) == 6 and cells[0].isdigit()]
    lines = (DATA / "hardware" / name / "batch_latency.csv").read_text().splitlines()
    assert [line.split(",") for line in lines[1:]] == source


def test_the_digest_changes_with_any_byte_of_a_named_file_and_with_nothing_else(data):
    before = packages.load_hardware("ice-lake").digest
    (data / "hardware" / "ice-lake" / ".notes").write_text("hidden files are nobody's")
    assert packages.load_hardware("ice-lake").digest == before
    path = data / "hardware" / "ice-lake" / "batch_latency.csv"
    path.write_text(path.read_text().replace("620210.3", "620210.30"))
    assert packages.load_hardware("ice-lake").digest != before


def test_an_unknown_machine_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match="unknown machine 'ice_lake'; did you mean 'ice-lake'"):
        packages.load_hardware("ice_lake")


@pytest.mark.parametrize("name", ["../hardware/ice-lake", "/etc", "", ".", "ice-lake/", "Ice-Lake"])
def test_a_name_that_is_a_path_is_refused(name):
    with pytest.raises(InputError, match="unknown machine"):
        packages.load_hardware(name)


def test_a_data_directory_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path / "no"))
    with pytest.raises(InputError, match="PCPMODEL_DATA is not a directory"):
        packages.hardware_names()


def test_check_lists_every_fault_of_every_package(data):
    runner = CliRunner()
    assert runner.invoke(main, ["data", "check", str(data)]).exit_code == 0
    path = data / "hardware" / "ice-lake" / "batch_latency.csv"
    path.write_text(path.read_text().replace("4.35", "-4.35").replace("3.51", "3,51"))
    (data / "hardware" / "comet-lake" / "platform.json").write_text('{"cpus": "many"}')
    result = runner.invoke(main, ["data", "check", "--json", str(data)])
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["ok"] is False
    found = {(Path(e["file"]).parent.name, e["row"], e["column"]) for e in answer["errors"]}
    assert found == {
        ("ice-lake", 2, "alloc_latency_p99_us"),
        ("ice-lake", 3, None),
        ("comet-lake", None, "cpus"),
        ("comet-lake", None, "sources"),
    }


COSTS = (
    "operation,distance,value,unit,low,high,origin,source\n"
    "line_memory,,110.5,ns,100,120.25,measured,dependent loads\n"
    "handover,llc,50,ns,20,90,assumed,class\n"
)


def test_a_cost_sheet_is_read_and_its_faults_have_their_place(tmp_path):
    machine = tmp_path / "hardware" / "comet-lake"
    shutil.copytree(packages.data_dir() / "hardware" / "comet-lake", machine)
    sheet = machine / "costs.csv"
    sheet.write_text(COSTS)
    assert packages.check(tmp_path) == []
    for text, row, column in (
        (COSTS.replace("line_memory", "line_memmory"), 2, "operation"),
        (COSTS.replace("assumed", "guessed"), 3, "origin"),
        (COSTS.replace(",llc", ",far"), 3, "distance"),
        (COSTS.replace("110.5", "99"), 2, "value"),
        (COSTS.replace("50,ns", "50,us"), 3, "unit"),
        (COSTS.replace("50,ns", "50,1"), 3, "unit"),
        (COSTS + "smt_share,core,62.5,1,55,70,assumed,class\n", 4, "high"),
        (COSTS + COSTS.splitlines()[1] + "\n", 4, "operation, distance"),
    ):
        sheet.write_text(text)
        (fault,) = packages.check(tmp_path)
        assert (Path(fault.file).name, fault.row, fault.column) == ("costs.csv", row, column)


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """A copy of a publication, and how often a package was parsed."""
    shutil.copytree(DATA / "published/hahn-v4", tmp_path / "published/hahn-v4")
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path))
    count, real = [], packages.read_package
    monkeypatch.setattr(packages, "read_package", lambda *a: count.append(a) or real(*a))
    return tmp_path / "published/hahn-v4", count


def test_files_that_are_the_same_are_parsed_once(parsed):
    first, again = (packages.load_published("hahn-v4") for _ in range(2))
    assert len(parsed[1]) == 1
    assert first.digest == again.digest
    for name, frame in first.tables.items():
        assert frame.equals(again.tables[name])


def test_what_is_done_to_a_table_stays_with_who_did_it(parsed):
    mine = packages.load_published("hahn-v4")
    before = packages.load_published("hahn-v4").tables["kbuild"].copy()
    mine.tables["kbuild"].loc[:, "metric"] = "mine"
    mine.tables["kbuild"]["more"] = 1
    mine.units.clear()
    mine.sources[0].clear()
    other = packages.load_published("hahn-v4")
    assert other.tables["kbuild"].equals(before)
    assert other.units
    assert other.sources[0]
    assert len(parsed[1]) == 1


def test_files_that_changed_are_read_anew(parsed):
    where, _ = parsed
    before = packages.load_published("hahn-v4")
    table = next(where.glob("*.csv"))
    (where / "more.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match="is not named in"):
        packages.load_published("hahn-v4")
    (where / "more.csv").unlink()
    assert packages.load_published("hahn-v4").digest == before.digest
    table.write_text("nonsense\n" + table.read_text())
    with pytest.raises(InputError, match=table.name):
        packages.load_published("hahn-v4")

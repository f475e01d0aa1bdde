"""A kernel robot's mail: read as it came, damaged or wrapped refused with the line.

The mails are made up in the form of the robot's (lkp-tests); change and rmqueue_bulk of the first
are those that data/published/lkp-reports-2023 has of 202311171535.870e7726.
"""

# SPDX-License-Identifier: GPL-2.0-only

import base64
import json
import quopri

import pytest
from click.testing import CliRunner

from helpers.robot_report import BODY, RULER, TABLE
from pcpmodel.cli import main
from pcpmodel.datasets import load_published, packages
from pcpmodel.datasets.robot_report import read_report
from pcpmodel.errors import InputError
from pcpmodel.workload import WORKLOADS

HEADERS = """\
From: kernel test robot <robot@example.org>
Subject: [linus:master] [mm]  51a755c56d:  kbuild.buildtime -4.3% improvement
Date: Fri, 17 Nov 2023 15:35:00 +0800
Message-ID: <202311171535.870e7726-robot@example.org>
MIME-Version: 1.0
"""
PLAIN = 'Content-Type: text/plain; charset="{}"\nContent-Transfer-Encoding: {}\n\n'
FAULT = TABLE.replace("compiler/", "mode/test/compiler/").replace(
    "gcc-12/", "process/page_fault1/gcc-12/").replace("/kbuild", "/will-it-scale")  # fmt: skip


def write(tmp_path, content):
    path = tmp_path / "mail.eml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def mail(charset="utf-8", encoding="8bit", body=BODY):
    raw = body.encode(charset)
    raw = {"8bit": bytes, "quoted-printable": quopri.encodestring,
           "base64": base64.encodebytes}[encoding](raw)  # fmt: skip
    return (HEADERS + PLAIN.format(charset, encoding)).encode() + raw


FORMS = {
    "text": BODY,
    "8bit": mail(),
    "latin-1": mail("iso-8859-1"),
    "quoted-printable": mail(encoding="quoted-printable"),
    "base64": mail(encoding="base64"),
    "crlf": mail().replace(b"\n", b"\r\n"),
    "mbox": b"From robot Fri Nov 17 15:35:00 2023\n" + mail(),
    "another-sign": BODY.replace("±", "ą"),  # what became of it in one archive
    "ascii-sign": BODY.replace("±", "+-"),
    "quoted": "".join(f"> > {line}\n" for line in BODY.split("\n")),
    "multipart": HEADERS.encode() + b"Content-Type: multipart/mixed; boundary=b\n\n--b\n"
    + mail(encoding="quoted-printable").split(b"MIME-Version: 1.0\n")[1] + b"\n--b--\n",
    "name-on-the-next-line": BODY.replace("      cpuidle..", "\ncpuidle..").replace(
        "  cpuidle..", "\ncpuidle.."),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_mail_reads_the_same_in_every_form(tmp_path, form):
    report = read_report(write(tmp_path, FORMS[form]))
    (one,) = report.comparisons
    assert one.commits == ("90b41691b9881376", "51a755c56dc05a8b31ed28d24f2")
    assert (one.workload, one.model) == ("kbuild nr_task=200%", "kbuild")
    assert one.machine[1:] == ("224", "2", "512")
    assert one.machine[0] == "Intel(R) Xeon(R) Platinum 8480CTDX (Sapphire Rapids)"
    assert len(one.rows) == 10
    assert one.rows[2] == ("cpuidle..usage", "138055", "18", "+33.4%", "184128", "14")
    assert one.rows[7][1:] == ("6.45", "", "-6.3", "0.18", "10")
    if form not in ("text", "quoted", "another-sign", "ascii-sign", "name-on-the-next-line"):
        assert report.message_id == "202311171535.870e7726-robot@example.org"
        assert report.date == "2023-11-17"
        assert "improvement" in report.title


def run(*arguments):
    return CliRunner().invoke(main, ["data", "add", "report", *map(str, arguments), "--json"])


def test_it_becomes_a_published_source(tmp_path, monkeypatch):
    root = tmp_path / "data"
    root.mkdir()
    path = write(tmp_path, mail(encoding="quoted-printable", body=BODY + FAULT))
    got = run(path, "--data", root)
    assert got.exit_code == 0, got.output
    assert json.loads(got.stdout)["rows"] == {"figures": 12, "profile": 4}
    assert packages.check(root) == []
    monkeypatch.setenv("PCPMODEL_DATA", str(root))
    source = load_published("lkp-202311171535-870e7726")
    figures, profile = source.tables["figures"], source.tables["profile"]
    assert set(figures.model) == {"kbuild", "page_fault1"}
    assert set(figures.memory_gb) == {512}
    row = figures[figures.metric == "kbuild.buildtime.per_iteration"].iloc[0]
    assert (row.before, row.after, row.change_pct) == (26.42, 25.28, -4.3)
    assert profile.change_points.iloc[0] == -6.3
    assert profile.unit.iloc[0] == "%"
    assert not figures.metric.str.startswith("perf-sched").any()
    assert source.sources[0]["message_id"] == "202311171535.870e7726-robot@example.org"
    assert "box-2sp7" not in (source.path / "figures.csv").read_text()
    assert "is there already" in run(path, "--data", root).stderr
    assert run(path, "--data", root, "--replace").exit_code == 0


@pytest.mark.parametrize("test", ["page_fault3", "malloc1", "tlb_flush2", "fallocate1"])
def test_tests_of_will_it_scale_are_workloads_by_their_names(test, tmp_path):
    assert test in WORKLOADS
    for mode, model in (("process", test), ("thread", "")):
        body = BODY + FAULT.replace("process/page_fault1", f"{mode}/{test}")
        found = read_report(write(tmp_path, mail(body=body)))
        assert found.comparisons[-1].model == model


def test_it_gives_the_numbers_that_were_transcribed_by_hand(tmp_path, monkeypatch):
    known = load_published("lkp-reports-2023").tables["reports"]
    known = known[known.report == "202311171535.870e7726"]
    shares = known[known.unit == "cycles %"]
    rows = "".join(
        f"{row.before:10.2f} {row.after - row.before:+15.1f} {row.after:11.2f} ±  3%"
        f"  perf-profile.children.cycles-pp.{row.metric}\n"
        for row in shares.itertuples()
    )
    body = BODY.replace("    -68.07", rows + "    -68.07")
    root = tmp_path / "data"
    root.mkdir()
    assert run(write(tmp_path, mail(body=body)), "--data", root).exit_code == 0
    monkeypatch.setenv("PCPMODEL_DATA", str(root))
    tables = load_published("lkp-202311171535-870e7726").tables
    got = tables["profile"].set_index("metric")
    assert len(shares) == 8
    for row in shares.itertuples():
        one = got.loc[f"perf-profile.children.cycles-pp.{row.metric}"]
        assert (one.before, one.after, one.unit) == (row.before, row.after, "%")
        assert one.commit_before.startswith(row.commit_before)
        assert one.commit_after.startswith(row.commit_after)
        assert (one.cpus, one.sockets, one.memory_gb) == (row.cpus, row.sockets, row.memory_gb)
    time = tables["figures"].set_index("metric").loc["kbuild.buildtime.per_iteration"]
    assert time.change_pct == known[known.metric == "buildtime"].change_pct.iloc[0]


def lines_to(text, words):
    return text[: text.index(words)].count("\n") + 1


BAD = {
    "figure": (BODY.replace("25.28", "52.28"), "the change -4.3% does not follow from 26.42 and 5"),
    "points": (BODY.replace("-6.3 ", "+6.3 "), "the change +6.3 does not follow from 6.45 and"),
    "wrapped": (BODY.replace("proc-vmstat.numa_hit", "proc-vmstat.\nnuma_hit"),
                "not a row of the table: 'numa_hit': wrapped or damaged?"),
    "cut-row": (BODY.replace("3.853e+08        proc-vmstat.numa_hit", "3.853e"), "not a row"),
    "word": (BODY.replace("26.42", "many"), "not a row of the table: 'many"),
    "no-rows": (BODY[: BODY.index("     26.42")] + "\n", "the table has no rows"),
    "no-commits": (BODY.replace("90b41691b9881376 51a7", "nobody knows"), "no line with the two"),
    "other-commits": (BODY.replace("90b41691b9881376", "0000000000000000"), "the columns are of"),
    "no-ruler": (BODY.replace(RULER, ""), "no line of '=' with the test's parameters is"),
    "wrapped-parameters": (BODY.replace("/tbox_group/", "/\ntbox_group/"), "wrapped? Save it"),
    "no-testcase": (BODY.replace("group/testcase:", "group/case:"), "the parameters name no test"),
    "three": (BODY.replace("%change         %stddev", "%change  %stddev  %change  %stddev"),
              "compares more than two commits"),
    "nothing": (HEADERS + "\nHello,\n", "has no '%stddev %change %stddev' table"),
    "empty": ("", "has no '%stddev"),
    "nul": (BODY.replace("26.42", "26\x0042"), "has a NUL byte"),
    "not-utf-8": (BODY.encode("iso-8859-1"), "is not UTF-8"),
    "injected": (mail().replace(b"Message-ID: <", b"Message-ID: <x> <"), "given Message-ID"),
    "injected-line": (mail().replace(b"Subject: ", b"Subject: =?utf-8?q?a=0AX:_1?= "), "header"),
    "escape": (mail().replace(b"Subject: ", b"Subject: \x1b]0;x\x07"), "not to be printed"),
    "twice": (mail().replace(b"Date: ", b"Message-ID: <b@c>\nDate: "), "has 2 headers message-id"),
    "mailbox": ((b"From robot Fri Nov 17 15:35:00 2023\n" + mail()) * 2, "several mails"),
    "html": (mail().replace(b"text/plain", b"text/html"), "has no part of plain text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_damaged_is_refused(tmp_path, name):
    content, message = BAD[name]
    with pytest.raises(InputError) as caught:
        read_report(write(tmp_path, content))
    assert message in str(caught.value)


def test_the_row_is_that_of_the_file_or_of_the_decoded_text(tmp_path):
    body = BODY.replace("25.28", "52.28")
    row = lines_to(body, "     26.42")
    with pytest.raises(InputError) as caught:
        read_report(write(tmp_path, mail(body=body)))
    content = mail(body=body).decode()
    assert caught.value.row == lines_to(content, "     26.42")
    with pytest.raises(InputError) as caught:
        read_report(write(tmp_path, mail(encoding="base64", body=body)))
    assert (caught.value.row, "decoded" in caught.value.file) == (row, True)


def test_a_name_is_needed_without_a_message_id(tmp_path):
    (tmp_path / "data").mkdir()
    path = write(tmp_path, BODY)
    assert "give --name" in run(path, "--data", tmp_path / "data").stderr
    assert run(path, "--data", tmp_path / "data", "--name", "mine").exit_code == 0
    assert "not allowed" in run(path, "--data", tmp_path / "data", "--name", "../x").stderr

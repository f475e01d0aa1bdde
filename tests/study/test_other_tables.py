"""Tables that are asked for by name: of older kernels, and reports that were brought in."""

# SPDX-License-Identifier: GPL-2.0-only

import shutil
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from helpers.paths import DATA
from helpers.robot_report import BODY
from pcpmodel.cli import main
from pcpmodel.datasets.robot_report import add_report
from pcpmodel.errors import InputError
from pcpmodel.study.published import older, report
from pcpmodel.study.published.compare import compare


def test_a_table_of_an_older_kernel_is_compared(monkeypatch):
    monkeypatch.setattr(older, "_TIMES", {"seconds": 0.004, "warmup_s": 0.002})
    answer = compare("high-order-pcp-2022/page_fault1")
    cells = answer["cells"]
    assert len(cells) == 7
    assert set(cells.index.get_level_values("quantity")) == {"score"}
    assert (cells.predicted > 150).all()  # of what two processes do
    assert "Nothing is fitted" in answer.text
    assert not answer.facts["fitted"]


def test_they_are_not_judged_with_the_others():
    with pytest.raises(InputError, match="published source"):
        compare("batchsize-2018", left_out=True)


@pytest.fixture
def brought_in(tmp_path, monkeypatch):
    """A report in a data directory, and a simulator that takes no time."""
    shutil.copytree(DATA / "hardware", tmp_path / "hardware")
    mail = tmp_path / "mail.txt"
    spins = "perf-profile.self.cycles-pp.native_queued_spin_lock_slowpath"
    last = "      1.00            -0.5        0.50        perf-profile.self.cycles-pp.vfs_read\n"
    body = BODY.replace(last, f"{last}     10.91           -10.4        0.56        {spins}\n")
    assert spins in body
    mail.write_text(body)
    add_report(mail, name="lkp-mine", data=tmp_path)
    mail.unlink()
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path))
    asked = []

    def simulate(release, machine, workload, **given):
        asked.append((release.name, machine.name, len(workload.tasks), given["cpus"]))
        new = release.name.endswith("p7")
        return SimpleNamespace(score=105 if new else 100, lock_contention=0.01 if new else 0.1)

    monkeypatch.setattr(report, "simulate", simulate)
    return asked


def test_a_report_is_compared_with_two_releases(brought_in):
    answer = compare("lkp-mine", releases=("v6.6+p6", "v6.6+p7"))
    assert brought_in[0] == ("v6.6+p6", "sapphire-rapids", 224, 224)
    cells = answer["cells"].droplevel(["source", "table"])
    time = cells.loc[("1: kbuild.buildtime.per_iteration", "time change")]
    assert (time.measured, time.predicted) == (-4.3, pytest.approx(100 / 1.05 - 100))
    waits = cells[cells.index.get_level_values("quantity") == "lock_contention"]
    assert waits.measured.tolist() == [10.91, 0.56]
    assert waits.predicted.tolist() == pytest.approx([10.0, 1.0])
    assert "stand for its commits" in answer.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("lkp-mine", "name two releases"),
        ("lkp-mine --before v6.6", "go together"),
        ("lkp-mine --before v6.6 --after nonsense", "nonsense"),
        ("lkp-mine --before v6.6 --after v6.7 --machine none", "machine 'none'"),
        ("hahn-v4 --before v6.6 --after v6.7", "go with a report"),
    ],
)
def test_what_is_wrong_is_said(brought_in, arguments, message):
    wrong = CliRunner().invoke(main, ["compare", *arguments.split()])
    assert wrong.exit_code == 2
    assert message in wrong.stderr

"""A sosreport: read from its tarball in memory or from its folder, several in one table.

Their layout (a folder around it, files under their own names, sos_commands/kernel/uname_-a) is that
of sos 4; the machines in them are recorded guests, the host name is made up.
"""

# SPDX-License-Identifier: GPL-2.0-only

import gzip
import io
import json
import lzma
import os
import re
import tarfile

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.zoneinfo import text_of
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.hardware import fleet
from pcpmodel.hardware.platform import this_machine
from pcpmodel.proc import sos

TOP = "sosreport-host-2026-01-01-abcdefg"


def files(zoneinfo="7.2-numa2-4cpu.before", kernel="7.2.13+deb14-cloud-amd64", fraction=0):
    made = {
        "proc/zoneinfo": text_of(zoneinfo),
        "proc/cpuinfo": "".join(f"processor\t: {c}\nmodel name\t: X\n\n" for c in range(4)),
        "sys/devices/system/cpu/online": "0-3\n",
        "sos_commands/kernel/uname_-a": f"Linux host {kernel} #1 SMP x86_64 GNU/Linux\n",
        "sos_commands/kernel/sysctl_-a": f"vm.percpu_pagelist_high_fraction = {fraction}\n",
        "etc/shadow": "root:*:1:0:99999:7:::\n",
        "sys/devices/system/node/node0/cpulist": "0-1\n",
        "sys/devices/system/node/node1/cpulist": "2-3\n",
    }
    for cpu in range(4):
        cache = f"sys/devices/system/cpu/cpu{cpu}/cache/index0"
        made |= {f"{cache}/type": "Unified\n", f"{cache}/size": "1024K\n"}
        made[f"{cache}/shared_cpu_list"] = f"{cpu}\n"
    return made


def tarball(path, content, more=()):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, text in content.items():
            member = tarfile.TarInfo(f"{TOP}/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        for member in more:
            tar.addfile(member, io.BytesIO(b"\0" * member.size))
    pack = {".xz": lzma.compress, ".gz": gzip.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(raw.getvalue()))
    return path


def folder(path, content):
    for name, text in content.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def unnamed(machine):
    """What is said of a machine, but for the name of the file that says it."""
    said = machine.as_dict()
    del said["platform"]["title"]
    return said


@pytest.mark.parametrize("suffix", [".tar.xz", ".tar.gz", ".tar"])
def test_a_tarball_says_what_its_folder_says(tmp_path, suffix):
    packed = tarball(tmp_path / f"a{suffix}", files())
    loose = folder(tmp_path / "b", files())
    one, two = (fleet.explain_machines([p]).machines[str(p)] for p in (packed, loose))
    assert one.all_match
    assert unnamed(one) == unnamed(two)
    assert one.platform.kernel == "7.2.13+deb14-cloud-amd64"
    assert (one.platform.cpus, one.platform.nodes) == (4, 2)
    folder(tmp_path / "c" / TOP, files())
    inner = fleet.explain_machines([tmp_path / "c"]).machines[str(tmp_path / "c")]
    assert unnamed(inner) == unnamed(one)
    assert repr(one).startswith(f"a{suffix}: ")  # another machine than this one
    assert (one.platform.title, two.platform.title) == (f"a{suffix}", "b")


def test_the_whole_of_it_agrees_with_a_machine_of_the_same_files(tmp_path):
    loose = folder(tmp_path / "b", files())
    (loose / "proc/sys/kernel").mkdir(parents=True)
    (loose / "proc/sys/kernel/osrelease").write_text("7.2.13+deb14-cloud-amd64\n")
    found = fleet.explain_machines([loose]).machines[str(loose)]
    assert found.as_dict() == this_machine(loose).as_dict()


def test_nothing_is_written_and_nothing_else_is_kept(tmp_path):
    path = tarball(tmp_path / "a.tar.xz", files())
    before = sorted(os.listdir(tmp_path))
    host = sos.SosFiles(path)
    assert sorted(os.listdir(tmp_path)) == before
    assert "etc/shadow" not in host.files


def test_several_machines_make_one_table(tmp_path):
    a = tarball(tmp_path / "a.tar.xz", files())
    b = folder(tmp_path / "b", files("6.1-pf1-4cpu.before", "6.1.0-56-cloud-amd64"))
    for name in ("node0", "node1"):
        (b / f"sys/devices/system/node/{name}/cpulist").unlink()
    found = CliRunner().invoke(main, ["explain", str(a), str(b)])
    assert found.exit_code == 0, found.output
    rows = [line.split() for line in found.stdout.splitlines()]
    assert {row[0] for row in rows[1:]} == {"a.tar.xz", "b"}
    assert rows[0][:6] == ["machine", "kernel", "rules", "CPUs", "nodes", "zone"]
    as_json = json.loads(CliRunner().invoke(main, ["explain", str(a), str(b), "--json"]).stdout)
    assert as_json["all_match"]
    assert [m["release"] for m in as_json["machines"]] == ["debian-7.2.13", "debian-6.1.192"]
    assert pm.study.explain_machines([a, b]).as_dict() == as_json
    assert "<td>a.tar.xz</td>" in pm.study.explain_machines([a, b])._repr_html_()


def test_the_sysctl_is_taken_from_what_the_command_printed(tmp_path):
    made = files("6.1-fraction-4cpu.snap1", "6.1.0-56-cloud-amd64", fraction=8)
    for name in [n for n in made if "node" in n]:
        del made[name]
    path = tarball(tmp_path / "a.tar.gz", made)
    assert fleet.explain_machines([path]).machines[str(path)].explanation.high_fraction == 8


def test_a_size_that_does_not_follow_is_exit_code_1(tmp_path):
    made = files()
    made["proc/zoneinfo"] = re.sub(r"batch:( +)63", r"batch:\g<1>62", made["proc/zoneinfo"])
    path = tarball(tmp_path / "a.tar.gz", made)
    for paths in ([path], [path, tarball(tmp_path / "b.tar", files())]):
        found = CliRunner().invoke(main, ["explain", *map(str, paths)])
        assert found.exit_code == 1
        assert "MISMATCH" in found.stdout


def link(name, to, kind=tarfile.SYMTYPE):
    member = tarfile.TarInfo(f"{TOP}/{name}")
    member.type, member.linkname = kind, to
    return member


def without(name):
    made = files()
    del made[name]
    return made


def test_links_and_names_that_lead_out_are_refused(tmp_path):
    path = tmp_path / "a.tar.gz"
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        tarball(path, without("proc/zoneinfo"), [link("proc/zoneinfo", "/etc/shadow", kind)])
        with pytest.raises(InputError, match="proc/zoneinfo is a link or no regular file"):
            sos.SosFiles(path)
    for name in ("../../etc/passwd", "x/../../y"):
        tarball(path, files(), [tarfile.TarInfo(f"{TOP}/{name}")])
        with pytest.raises(InputError, match="leads out of the archive"):
            sos.SosFiles(path)
    loose = folder(tmp_path / "b", without("proc/zoneinfo"))
    (loose / "proc/zoneinfo").symlink_to(tmp_path / "a.tar.gz")
    with pytest.raises(InputError, match="is a symbolic link"):
        sos.SosFiles(loose)


def test_links_elsewhere_are_of_no_account(tmp_path):
    path = tarball(tmp_path / "a.tar.xz", files(), [link("etc/x", "/etc/shadow")])
    assert sos.SosFiles(path).online == (0, 1, 2, 3)


def huge(name, size):
    member = tarfile.TarInfo(f"{TOP}/{name}")
    member.size = size
    return member


def test_sizes_are_bounded(tmp_path, monkeypatch):
    path = tmp_path / "a.tar.gz"
    monkeypatch.setattr(sos, "_ONE", 1 << 20)
    monkeypatch.setattr(sos, "_UNPACKED", 4 << 20)
    monkeypatch.setattr(sos, "_MEMBERS", 50)
    tarball(path, without("proc/zoneinfo"), [huge("proc/zoneinfo", 2 << 20)])
    with pytest.raises(InputError, match="proc/zoneinfo has 2097152 bytes; allowed: 1048576"):
        sos.SosFiles(path)
    tarball(path, {}, [huge("var/log/messages", 8 << 20)])
    with pytest.raises(InputError, match="is no sound tarball"):
        sos.SosFiles(path)
    tarball(path, files(), [tarfile.TarInfo(f"{TOP}/x{i}") for i in range(60)])
    with pytest.raises(InputError, match="holds more than 50 members"):
        sos.SosFiles(path)
    monkeypatch.setattr(sos, "_AT_ONCE", 1 << 12)
    long = tarfile.TarInfo(f"{TOP}/{'x' * 90}")
    long.pax_headers = {"comment": "y" * 10_000}
    tarball(path, files(), [long])
    with pytest.raises(InputError, match="bytes at once; allowed: 4096"):
        sos.SosFiles(path)


DAMAGED = {
    "cut": (lambda raw: raw[: len(raw) // 2], "is no sound tarball"),
    "prose": (lambda raw: b"Dear all,\n" * 100, "is no sound tarball.*a sosreport.*--zoneinfo"),
    "empty": (lambda raw: b"", "has no proc/zoneinfo|is no sound tarball"),
    "flipped": (lambda raw: raw[:300] + b"\xff" * 20 + raw[320:], "is no sound tarball"),
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("suffix", [".tar.xz", ".tar.gz"])
def test_damaged_tarballs_are_refused(tmp_path, name, suffix):
    damage, message = DAMAGED[name]
    path = tarball(tmp_path / f"a{suffix}", files())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=message):
        sos.SosFiles(path)


def test_what_is_no_sosreport_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no proc/zoneinfo; expected a sosreport"):
        sos.SosFiles(tmp_path / "empty")
    made = files()
    made["proc/zoneinfo"] = made["proc/zoneinfo"].replace("managed", "mangled", 1)
    path = tarball(tmp_path / "a.tar", made)
    found = CliRunner().invoke(main, ["explain", str(path)])
    assert found.exit_code == 2
    assert "a.tar/proc/zoneinfo, row " in found.stderr
    other = tmp_path / "b.tar"
    other.symlink_to(path)
    for again in (path, other):
        said = CliRunner().invoke(main, ["explain", str(path), str(again)]).stderr
        assert said == f"pcpmodel: {again}: is {path} again; allowed: each machine once\n"
    with pytest.raises(InputError, match="given no machine"):
        fleet.explain_machines([])
    both = CliRunner().invoke(main, ["explain", str(path), "--zoneinfo", "x"])
    assert "go without a sosreport" in both.stderr

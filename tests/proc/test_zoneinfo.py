"""proc/zoneinfo: what the kernel prints is read whole, anything else is refused with its row."""

# SPDX-License-Identifier: GPL-2.0-only

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcpmodel as pm
from helpers.zoneinfo import NUMA, PF1, edited, kernel_text, one, text_of
from pcpmodel.proc import zoneinfo


def test_everything_printed_is_read():
    info = one("7.2-numa2-4cpu.before")
    assert info.nodes == (0, 1)
    assert info.online_cpus == (0, 1, 2, 3)
    assert info.node_stats[0]["nr_unevictable"] == 13290
    assert len(info.zones) == 10
    assert [z.name for z in info.populated] == ["DMA", "DMA32", "DMA32", "Normal"]
    zone = info.zones[1]
    assert (zone.free, zone.min, zone.low, zone.high, zone.promo) == (465980, 998, 1499, 2000, 2501)
    assert (zone.spanned, zone.present, zone.managed, zone.cma) == (520192, 520192, 501444, 0)
    assert zone.protection == (0, 0, 0, 0, 0)
    assert zone.stats["numa_miss"] == 34
    assert zone.pagesets[1] == zoneinfo.Pageset(1, 0, 7904, 63, 749, 31340, 30)
    assert dict(zone.extra) == {"reserved_highatomic": 0, "free_highatomic": 0}
    assert (zone.node_unreclaimable, zone.start_pfn) == (0, 4096)
    assert info.zones[3].pagesets == ()
    old = one("6.1-pf1-4cpu.before").zones[1]
    assert (old.promo, old.pagesets[0].high_min, dict(old.extra)) == (None, None, {})


def test_a_kernel_that_prints_neither_boost_nor_cma_is_read():
    lines = text_of("6.1-pf1-4cpu.before").splitlines()
    old = [line for line in lines if line.split()[:1] not in (["boost"], ["cma"])]
    assert len(old) < len(lines)
    (info,) = zoneinfo.parse("\n".join(old))
    zone = info.zones[1]
    assert (zone.boost, zone.cma) == (0, 0)


def test_a_kernel_that_prints_cma_but_no_boost_is_read():
    """v5.12 ... v5.15: cma came first."""
    lines = text_of("6.1-pf1-4cpu.before").splitlines()
    old = [line for line in lines if line.split()[:1] != ["boost"]]
    (info,) = zoneinfo.parse("\n".join(old))
    assert {zone.boost for zone in info.zones} == {0}
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["boost"])
    with pytest.raises(pm.InputError, match="'boost' is printed for some zones only"):
        zoneinfo.parse("\n".join(lines[:at] + lines[at + 1 :]))


@given(st.data())
def test_a_file_cut_off_anywhere_is_refused(data):
    text = text_of(data.draw(st.sampled_from(["6.1-pf1-4cpu.before", "7.2-numa2-4cpu.before"])))
    end = data.draw(st.integers(0, len(text) - 2))
    with pytest.raises(pm.InputError):
        zoneinfo.parse(text[:end])


@given(st.data())
def test_a_line_lost_never_passes_unless_it_is_one_statistic(data):
    lines = text_of("7.2-pf1-8cpu.before").splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    optional = lines[at].startswith("      ") and not lines[at].startswith("       ")
    optional |= "promo" in lines[at] or "highatomic" in lines[at] or "threshold" in lines[at]
    rest = "\n".join(lines[:at] + lines[at + 1 :])
    if optional:
        zoneinfo.parse(rest)
    else:
        with pytest.raises(pm.InputError):
            zoneinfo.parse(rest)


@pytest.mark.parametrize(
    ("text", "row", "said"),
    [
        ("", None, "empty"),
        ("\n", 1, "expected 'Node N, zone NAME'"),
        ("hello\n", 1, "'hello' is not what /proc/zoneinfo prints"),
        ("\0\1\2ELF\n", 1, "expected 'Node N"),
        ("=== a\n", None, "no zone has memory"),
        ("Node 0, zone DMA\n=== a\n", 1, "a series starts with"),
        (edited(PF1, "low      10", "low      -10"), 49, "'-10' is not a whole number"),
        (edited(PF1, "low      10", "low      1e3"), 49, "'1e3' is not a whole number"),
        (edited(PF1, "low      10", "low      " + "9" * 21), 49, "is not a whole number"),
        (edited(PF1, "low      10", "low      \u0661"), 49, "not a whole number"),
        (edited(PF1, "low      10", "low"), 49, "'low' of .* is missing"),
        (edited(PF1, "        low      10\n", ""), 54, "'low' of node 0, zone DMA is missing"),
        (edited(PF1, "low      10", "min      10"), 49, "'min' is given twice"),
        (edited(PF1, "boost    0", "boost    11"), 54, "boost 11 .* exceeds its low watermark"),
        (edited(PF1, "  pagesets\n", ""), 73, "expected 'pagesets'"),
        (edited(PF1, "    cpu: 0\n", "    cpu: 9\n"), 79, "cpu 1 of .* follows cpu 9"),
        (edited(PF1, "    cpu: 0\n", "    cpu: x\n"), 74, "'x' is not a whole number"),
        (edited(PF1, "batch: 1\n", "batch: 0\n"), 77, "it is 1 at least"),
        (edited(PF1, "              high:  4\n", ""), 77, "'high' of node 0, zone DMA, cpu 0"),
        (edited(PF1, "(0, 2960", "(0, -2960"), 55, "'-2960' is not a whole number"),
        (edited(PF1, "(0, 2960", "(0; 2960"), 55, "'0; 2960' is not a whole number"),
        (edited(PF1, "Node 0, zone    DMA32", "Node 0, zone      DMA"), 96, "given twice"),
        (edited(PF1, "Node 0, zone    DMA32", "Node -1, zone  DMA32"), 96, "expected 'Node N"),
        (edited(PF1, "\n", "\r\n", 219), 1, r"zone      DMA\\r' is not what"),
        (edited(NUMA, "high_max: 240\n", ""), 104, "'high_max' of .* is missing"),
        (edited(PF1, "start_pfn:           1\n", "start: 1\n"), 96, "'start_pfn' .* is missing"),
        (
            text_of(PF1).partition("Node 0, zone   Device")[0],
            1,
            "has 4 zones, but zone DMA protects",
        ),
        (text_of(PF1) + text_of(PF1), 220, "given twice"),
    ],
)
def test_bad_text_names_its_row(text, row, said):
    with pytest.raises(pm.InputError, match=said) as caught:
        zoneinfo.parse(text, "z")
    assert caught.value.file == "z"
    assert caught.value.row == row


def test_zones_that_list_different_cpus_are_refused():
    text = text_of(PF1)
    last = text.rindex("    cpu: 3\n")
    end = text.index("  node_unreclaimable", last)
    with pytest.raises(pm.InputError, match="lists 3 CPUs that are not the 4 of node 0, zone DMA"):
        zoneinfo.parse(text[:last] + text[end:])


def test_limits_printed_for_some_zones_only_are_refused():
    lines = kernel_text(
        [(0, "DMA32", 1 << 20, 99, 0, 63, 252, 9), (0, "Normal", 1 << 20, 99, 0, 63, 252, 9)], 1
    ).splitlines()
    at = len(lines) - 1 - lines[::-1].index("              high_min: 252")
    del lines[at : at + 2]
    with pytest.raises(pm.InputError, match="for some CPUs only"):
        zoneinfo.parse("\n".join(lines))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("utf8", b"Node 0, zone      DMA\n" * 2 + b"caf\xc3\xa9\n", "row 3: byte 0xc3"),
        ("bom", b"\xef\xbb\xbfNode 0, zone      DMA\n", "row 1: byte 0xef"),
        ("binary", bytes(range(256)), "is not ASCII"),
        ("utf16", "Node 0".encode("utf-16"), "is not ASCII"),
        ("empty", b"", "empty"),
        ("spaces", b" " * 2_000_000, "row 1"),
        ("letters", b"a" * 2_000_000 + b" " * 2_000_000, "row 1"),
        ("plain.gz", b"Node 0, zone      DMA\n", "cannot be read: Not a gzipped file"),
        ("cut.gz", gzip.compress(text_of(PF1).encode(), mtime=0)[:-20], "cannot be read"),
        ("bad.gz", gzip.compress(b"x" * 999, mtime=0)[:14] + b"\0" * 50, "cannot be read"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(pm.InputError, match=said) as caught:
        zoneinfo.read(path)
    assert caught.value.file == str(path)


def test_a_file_may_have_come_by_way_of_another_system(tmp_path):
    plain, windows = tmp_path / "plain", tmp_path / "windows"
    plain.write_bytes(text_of(PF1).encode())
    windows.write_bytes(text_of(PF1).replace("\n", "\r\n").encode())
    assert zoneinfo.read(windows)[0].zones == zoneinfo.read(plain)[0].zones


def test_a_file_without_end_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(zoneinfo, "MAX_BYTES", 1 << 20)
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(b"\n" * (2 << 20)))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for endless, said in (
        (bomb, "larger than 1 MiB"),
        (Path("/dev/zero"), "is not a regular file"),
        (pipe, "is not a regular file"),
    ):
        with pytest.raises(pm.InputError, match=said):
            zoneinfo.read(endless)

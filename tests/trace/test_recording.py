"""trace/recording: a recording's description and snapshots are read exactly, or refused."""

# SPDX-License-Identifier: GPL-2.0-only

import bz2
import gzip
import json
import lzma
import os

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import pcpmodel as pm
from pcpmodel.errors import InputError
from pcpmodel.trace.dumps import read_pcps

ZONE = (
    "zone node=0 idx=1 name=DMA32 addr=0xffff88813ffd36c0 nr_free=755404 flags=0x4 wmark_min=1505 "
    "wmark_low=2260 wmark_high=3015 wmark_promo=3770 managed=755532 start_pfn=0x1000 "
    "spanned=1044480 pageset_high_min=565 pageset_high_max=23610 pageset_batch=63"
)
PCP = (
    "pcp node=0 zone=DMA32 cpu=3 addr=0xffff88813bdb7e80 count=6 high=1068 high_min=565 "
    "high_max=23610 batch=63 flags=2 alloc_factor=1 free_factor=-1 expire=3 free_count=2016"
)
LISTS = "list node=0 zone=DMA32 cpu=3 idx=1: 2005 2004\nlist node=0 zone=DMA32 cpu=3 idx=6: 3000"
EVENT = "            init-1       [000] .....     8.651400: mm_page_free: pfn=0x10 order=0\n"
FREE = "free node=0 zone=DMA32 order=10 mt=1: 4800 4c00"
BLOCKS = "pageblocks node=0 zone=DMA32 first_block_pfn=0x1000 order=9: " + "01.I" * 510
META = {
    "capture": "mine", "kernel_series": "6.12", "cpus": 4, "memory_mib": 4096, "numa_nodes": 1,
    "debian_package": "linux-image-6.12.107+deb13-cloud-amd64 6.12.107-1",
}  # fmt: skip


@pytest.fixture
def make(tmp_path):
    def make(meta=META, **files):
        (tmp_path / "meta.json").write_text(json.dumps(meta))
        content = {
            "pcpstate.before": "\n".join((ZONE, PCP, LISTS)) + "\n",
            "buddylists.before": FREE + "\n",
            "pageblocks.before": BLOCKS + "\n",
            "trace.txt": "",
        }
        for name, text in {
            **content,
            **{k.replace("__", "."): v for k, v in files.items()},
        }.items():
            (tmp_path / name).write_text(text)
        return pm.recording(tmp_path)

    return make


def test_a_snapshot_has_every_field(make):
    state = make().snapshot("before")
    (zone,) = state.zones
    assert (zone.key, zone.idx, zone.start_pfn, zone.spanned) == ((0, "DMA32"), 1, 0x1000, 1044480)
    assert (zone.wmark_high, zone.managed, zone.flags) == (3015, 755532, 4)
    assert (zone.pageset_high_min, zone.pageset_high_max, zone.pageset_batch) == (565, 23610, 63)
    pcp = state.pcps[0, "DMA32", 3]
    assert (pcp.count, pcp.high, pcp.high_min, pcp.high_max) == (6, 1068, 565, 23610)
    assert (pcp.batch, pcp.flags, pcp.alloc_factor, pcp.free_factor) == (63, 2, 1, -1)
    assert (pcp.expire, pcp.free_count, pcp.addr) == (3, 2016, 0xFFFF88813BDB7E80)
    assert list(pcp.lists[1]) == [0x2005, 0x2004]  # head first
    assert pcp.listed == pcp.count
    assert list(state.free[0, "DMA32"][10, 1]) == [0x4800, 0x4C00]
    first, types = state.blocks[0, "DMA32"]
    assert first == 0x1000
    assert list(types[:4]) == [0, 1, -1, 5]


def test_a_list_that_moved_while_it_was_read_is_marked(make):
    torn = LISTS.replace("2004", "2004 !dead000000000100")
    pcp = make(pcpstate__before="\n".join((ZONE, PCP, torn))).snapshot("before").pcps[0, "DMA32", 3]
    assert pcp.torn
    assert list(pcp.lists[1]) == [0x2005, 0x2004]


@pytest.mark.parametrize(
    ("package", "kernel", "series", "expected"),
    [
        ("linux-image-6.1.0-56-cloud-amd64 6.1.192-2", "", "6.1", "debian-6.1.192"),
        ("linux-image-6.12.107+deb13-cloud-amd64 6.12.107-1", "", "6.12", "debian-6.12.107"),
        ("linux-image-6.18.15+deb13-cloud-amd64 6.18.15-1~bpo13+1", "", "6.18", "debian-6.18.15"),
        ("linux-binary-6.19.14+deb13-cloud-amd64 6.19.14-1~bpo13+1", "", "6.19", "debian-6.19.14"),
        ("linux-binary-7.2.13+deb14-cloud-amd64 7.2.13-1", "", "7.2", "debian-7.2.13"),
        ("", "Linux version 6.18.44-x", "6.18", "debian-6.18.15"),
        ("", "Linux version 6.18.0", "6.18", "v6.18"),
        ("", "", "7.2", "v7.2"),
        ("", "", "6.1", "debian-6.1.192"),
        ("", "Linux version 6.5.13-x", "6.5", "v6.6"),
        ("linux-image-6.16.12+deb13-amd64 6.16.12-1~bpo13+1", "", "6.16", "debian-6.16.12"),
        ("", "Linux version 6.17.13-x", "6.17", "v6.17"),
        ("linux-image-7.1.13-amd64 7.1.13-1", "", "7.1", "v7.1"),
        ("linux-image-7.3.4+deb13-cloud-amd64 7.3.4-1~bpo13+1", "", "7.3", "debian-7.3.4"),
        ("", "", "9.1", "v7.3"),
    ],
)
def test_the_release_is_the_recorded_kernel(make, package, kernel, series, expected):
    meta = META | {"debian_package": package, "kernel": kernel, "kernel_series": series}
    assert make(meta).release.name == expected


def test_a_recording_says_what_an_unknown_kernel_is_taken_for(make):
    meta = META | {"kernel": "Linux version 6.17.13-x", "kernel_series": "6.17"}
    assert make(meta).assumed == "release v6.17, the nearest known to Linux 6.17.13"
    package = "linux-image-6.12.107+deb13-cloud-amd64 6.12.107-1"
    assert make(META | {"debian_package": package}).assumed == ""
    # Debian's 6.1 calls itself 6.1.0 in the package's name; its version comes after that.
    package = "linux-image-6.1.0-56-cloud-amd64 6.1.192-2"
    old = make(META | {"debian_package": package, "kernel_series": "6.1"})
    assert (old.kernel, old.release.name, old.assumed) == ("6.1.192", "debian-6.1.192", "")


@pytest.mark.parametrize(
    "change",
    [
        {"cpus": 0}, {"cpus": "4"}, {"cpus": True}, {"cpus": 10**9}, {"capture": ""},
        {"kernel_series": "new"}, {"kernel_series": 6.12}, {"memory_mib": -1}, {"numa_nodes": "x"},
    ],
)  # fmt: skip
def test_a_description_that_cannot_be_is_refused(make, change):
    with pytest.raises(InputError, match=r"meta\.json"):
        make(META | change)


@pytest.mark.parametrize(
    ("name", "old", "new", "row"),
    [
        ("pcpstate.before", "count=6", "count=many", 2),
        ("pcpstate.before", "count=6", "", 2),
        ("pcpstate.before", "high=1068", "high=99999999999", 2),
        ("pcpstate.before", "flags=2", "flags=128", 2),
        ("pcpstate.before", "cpu=3 idx=6", "cpu=2 idx=6", 4),
        ("pcpstate.before", "idx=6", "idx=15", 4),
        ("pcpstate.before", "idx=6", "idx=1", 4),
        ("pcpstate.before", "3000", "3001", 4),  # not aligned to its order
        ("pcpstate.before", "2005", "fff", 3),  # outside the zone
        ("pcpstate.before", "2005", "20zz", 3),
        ("pcpstate.before", "spanned=1044480", "spanned=755000", 1),
        ("pcpstate.before", "name=DMA32", "name=", 1),
        ("pcpstate.before", "list node", "what node", 3),
        ("buddylists.before", "order=10", "order=11", 1),
        ("buddylists.before", "4c00", "4d00", 1),
        ("buddylists.before", "zone=DMA32", "zone=Normal", 1),
        ("buddylists.before", "mt=1:", "mt=1", 1),
        ("pageblocks.before", "01.I", "01.X", 1),
        ("pageblocks.before", "01.I" * 20, "01.I", 1),
    ],
)
def test_a_wrong_snapshot_names_file_and_row(make, tmp_path, name, old, new, row):
    cap = make()
    path = tmp_path / name
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError) as error:
        cap.snapshot("before")
    assert error.value.file == str(path)
    assert error.value.row == row


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".zst", zstandard.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
    ],
)
def test_trace_and_snapshots_are_found_compressed_too(make, tmp_path, suffix, pack):
    make(trace__txt="a-1 [000] ..... 1.000001: mm_page_free: page=0 pfn=0x1001 order=0\n")
    (tmp_path / f"pcpstate.after{suffix}").write_bytes(
        pack((tmp_path / "pcpstate.before").read_bytes())
    )
    plain = tmp_path / "trace.txt"
    (tmp_path / f"trace.txt{suffix}").write_bytes(pack(plain.read_bytes()))
    plain.unlink()
    cap = pm.recording(tmp_path)
    assert len(cap.trace[0]) == 1
    assert cap.tags == ["before", "after"]
    assert cap.snapshot("after").pcps.keys() == cap.snapshot("before").pcps.keys()
    with pytest.raises(InputError, match="did you mean 'after'"):
        cap.snapshot("afer")


def test_the_series_is_cut_at_its_tags(make, tmp_path):
    cap = make()
    body = (tmp_path / "pcpstate.before").read_text()
    (tmp_path / "pcpstate.series").write_text(f"=== decay.t00\n{body}=== decay.t01\n{body}")
    assert [s.tag for s in cap.series()] == ["decay.t00", "decay.t01"]
    (tmp_path / "pcpstate.series").write_text(
        f"=== decay.t00\n{body}=== decay.t01\n{body.replace('count=6', 'count=x')}"
    )
    with pytest.raises(InputError) as error:
        pm.recording(tmp_path).series()
    assert error.value.row == 8


def test_no_file_outside_the_recording_is_read(make, tmp_path):
    cap = make()
    secret = tmp_path.parent / "secret"
    secret.write_text(ZONE)
    (tmp_path / "pcpstate.evil").symlink_to(secret)
    cap = pm.recording(tmp_path)
    with pytest.raises(InputError, match="leads out"):
        cap.snapshot("evil")
    for name in ("../secret", "/etc/passwd", ".hidden", "a\\b"):
        with pytest.raises(InputError, match="not the name"):
            cap.file(name)


def test_an_event_of_a_cpu_that_the_machine_does_not_have_is_refused(make):
    line = "            init-1       [004] .....     8.651400: mm_page_free: pfn=0x10 order=0\n"
    with pytest.raises(InputError, match=r"trace\.txt, row 2: an event of CPU 4, .* cpus=4"):
        _ = make(trace__txt=line.replace("[004]", "[003]") + line).trace
    with pytest.raises(InputError, match=r"pcpstate\.before, row 2: pcp of CPU 3, .* cpus=2"):
        make(META | {"cpus": 2}).snapshot("before")


@pytest.mark.parametrize(
    ("extra", "lost"),
    [
        ({}, 0),
        ({"lost_events": 5}, 5),
        ({"ring_buffer_stats": {"cpu0": {"overrun": "7", "dropped events": "2"}}}, 9),
        ({"ring_buffer_stats": {"cpu0": {"overrun": "1" + 18 * "0"}}}, 10**18),
        ({"lost_per_cpu": {"0": 5, "1": 9}}, 14),
        ({"events_total": 1}, 0),
        ({"events_total": 5}, 4),
        ({"events": {"mm_page_alloc": 4, "mm_page_free": 3}}, 6),
    ],
)
def test_lost_events_count_by_every_account(make, extra, lost):
    assert make(META | extra, trace__txt=EVENT).lost == lost


@pytest.mark.parametrize(
    "extra",
    [
        {"ring_buffer_stats": {"cpu0": {"overrun": "-7"}}},
        {"ring_buffer_stats": {"cpu0": {"overrun": "7" * 40}}},
        {"ring_buffer_stats": [1]},
        {"lost_per_cpu": {"0": 0.5}},
        {"events": {"mm_page_free": True}},
    ],
)
def test_an_account_of_lost_events_that_is_none_is_refused(make, extra):
    with pytest.raises(InputError, match=r"meta\.json: .* is not a (count|JSON object)"):
        _ = make(META | extra, trace__txt=EVENT).lost


@pytest.mark.parametrize("text", ["", "# tracer: nop\n", EVENT[:60]])
def test_a_trace_without_events_is_refused(make, text):
    with pytest.raises(InputError, match=r"trace\.txt: holds no event"):
        _ = make(trace__txt=text).trace


def test_a_trace_without_any_event_of_a_page_is_refused(make):
    """Nothing in it can differ, and a replay was exact."""
    other = EVENT.replace("mm_page_free: pfn=0x10 order=0", "sched_waking: comm=a pid=1")
    with pytest.raises(InputError, match=r"trace\.txt: holds 2 events, of which none is of a page"):
        _ = make(trace__txt=other * 2).trace


def test_a_process_that_cannot_be_is_refused_with_its_file(make):
    text = EVENT + EVENT.replace("init-1  ", "init-4194304")
    with pytest.raises(InputError, match="process 4194304; Linux has none above 4194303") as error:
        _ = make(trace__txt=text).trace
    assert error.value.file.endswith("trace.txt")
    assert error.value.row == 2


def test_a_zone_that_no_kernel_has_is_refused_with_its_row(make):
    text = "\n".join((ZONE, PCP)).replace("=DMA32", "=Mine") + "\n"
    with pytest.raises(InputError, match="zone 'Mine'; expected one of DMA, DMA32") as error:
        make(pcpstate__before=text).snapshot("before")
    assert error.value.file.endswith("pcpstate.before")
    assert error.value.row == 1


def test_more_zones_than_are_followed_are_refused_with_the_row_of_the_first(make):
    zones = "".join(
        ZONE.replace("node=0", f"node={node}") + "\n" + PCP.replace("node=0", f"node={node}") + "\n"
        for node in range(33)
    )
    with pytest.raises(InputError, match="33 zones with memory; 1 to 32 are replayed") as error:
        make(pcpstate__before=zones).snapshot("before")
    assert error.value.row == 65


def test_files_of_a_recording_may_have_come_by_way_of_another_system(make, tmp_path):
    found = make()
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    again = pm.recording(tmp_path)
    assert again.snapshot("before").zones == found.snapshot("before").zones
    vmstat = b"nr_free_pages 1\r\ncompact_isolated %d\r\n"
    (tmp_path / "vmstat.before").write_bytes(vmstat % 3)
    (tmp_path / "vmstat.after").write_bytes(vmstat % 10)
    assert again.compaction == 7


def test_two_files_of_one_name_are_refused(make, tmp_path):
    (tmp_path / "trace.txt.gz").write_bytes(gzip.compress(EVENT.encode()))
    with pytest.raises(InputError, match=r"trace\.txt: is there beside trace\.txt\.gz"):
        _ = make(trace__txt=EVENT).trace


@pytest.mark.parametrize(
    ("name", "place", "said"),
    [
        (
            "buddylists.before",
            lambda p: p.symlink_to("gone"),
            "is a symbolic link to what is not there",
        ),
        ("buddylists.before", lambda p: p.mkdir(), "is a directory; expected a regular file"),
        ("pageblocks.before", os.mkfifo, "is a pipe or device; expected a regular file"),
    ],
)
def test_what_is_no_file_is_not_passed_over(make, tmp_path, name, place, said):
    cap = make()
    (tmp_path / name).unlink()
    place(tmp_path / name)
    with pytest.raises(InputError, match=f"{name}: {said}"):
        cap.snapshot("before")


def test_zones_of_a_node_do_not_overlap(make, tmp_path):
    other = ZONE.replace("DMA32", "Normal").replace("0x1000", "0xfffff")
    state = "\n".join((ZONE, PCP, other)) + "\n"
    with pytest.raises(InputError, match=r"row 3: zone Normal of node 0 begins at page 1048575, "):
        make(pcpstate__before=state).snapshot("before")
    moved = state.replace("Normal", "Movable")  # as with kernelcore=mirror
    assert len(read_pcps(moved, tmp_path / "pcpstate.before", "before").zones) == 2


def test_a_later_dump_that_was_cut_is_to_blame_itself(make):
    """... and not the buddy lists that have more zones."""
    other = ZONE.replace("DMA32", "Normal").replace("0x1000", "0x100000")
    whole = "\n".join((ZONE, PCP, other)) + "\n"
    blocks = f"{BLOCKS}\n" + BLOCKS.replace("DMA32", "Normal").replace("0x1000", "0x100000")
    cap = make(
        pcpstate__before=whole, pageblocks__before=blocks, pcpstate__after=f"{ZONE}\n{PCP}\n"
    )
    with pytest.raises(InputError, match=r"pcpstate\.after, row 1: .* zone Normal .* is not there"):
        cap.snapshot("after")


@pytest.mark.parametrize("lost", [-5, "x", True, 0.5])
def test_a_count_of_lost_events_that_is_none_is_refused(make, lost):
    with pytest.raises(InputError, match=r"meta\.json: lost_events=.* is not a count"):
        make(META | {"lost_events": lost})


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07\x1b[31m", "a\nb", "\ud800"])
def test_a_name_that_a_terminal_would_obey_is_refused(make, name):
    with pytest.raises(InputError) as caught:
        make(META | {"capture": name})
    assert "\x1b" not in str(caught.value)
    assert str(caught.value).isascii()


def test_what_is_no_recording_says_so(tmp_path):
    with pytest.raises(InputError, match="not a directory"):
        pm.recording(tmp_path / "none")
    with pytest.raises(InputError, match=r"no meta\.json"):
        pm.recording(tmp_path)
    (tmp_path / "meta.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="not valid JSON: is nested deeper"):
        pm.recording(tmp_path)
    (tmp_path / "meta.json").write_text("[]")
    with pytest.raises(InputError, match="not a JSON object"):
        pm.recording(tmp_path)


def test_a_recording_of_the_data_is_opened_by_its_name():
    found = pm.recording("6.18-pf1-2cpu")
    assert found.path.parts[-3:] == ("data", "traces", "6.18-pf1-2cpu")
    assert pm.recording(found.path).name == found.name == "6.18-pf1-2cpu"
    assert pm.recording(found) is found
    with pytest.raises(InputError, match=r"recording '6.18-pf1-2cp'.*6.18-pf1-2cpu"):
        pm.recording("6.18-pf1-2cp")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_mutation_of_a_snapshot_ends_in_another_error(data):
    from pcpmodel.trace.dumps import read_pcps

    text = bytearray("\n".join((ZONE, PCP, LISTS)).encode())
    for _ in range(data.draw(st.integers(1, 5))):
        where = data.draw(st.integers(0, len(text) - 1))
        text[where : where + data.draw(st.integers(0, 3))] = data.draw(
            st.text("0123456789abcdefx=: \n-!", max_size=4)
        ).encode()
    try:
        state = read_pcps(text.decode(), "file", "tag")
    except InputError:
        return
    for pcp in state.pcps.values():
        assert all(isinstance(pfns, np.ndarray) for pfns in pcp.lists.values())

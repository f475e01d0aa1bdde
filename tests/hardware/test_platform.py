"""Machines from platform.json, from made-up /proc and /sys trees, and the one this runs on."""

import json
import os

import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import TESTS
from pcpmodel.cli import main
from pcpmodel.datasets.packages import PLATFORM_FIELDS, check_platform
from pcpmodel.hardware.platform import Platform, this_machine
from pcpmodel.kernel.releases import nearest_release
from pcpmodel.kernel.sizing import CacheLeaf
from pcpmodel.proc.host import Node

DATA = TESTS / "data" / "zoneinfo"
MIB = 1 << 20
LIVE = pytest.mark.skipif(not os.path.exists("/proc/zoneinfo"), reason="needs a Linux kernel")

#: level, type, KiB, CPUs that share: of a core with two threads in a socket of `llc` CPUs
SERVER = [("Data", 48), ("Instruction", 32), ("Unified", 2048), ("Unified", 107520)]


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def add_cpu(root, cpu, package, siblings, caches):
    base = f"sys/devices/system/cpu/cpu{cpu}"
    write(root, f"{base}/topology/physical_package_id", package)
    write(root, f"{base}/topology/thread_siblings_list", siblings)
    for index, (kind, size_kib, shared) in enumerate(caches):
        write(root, f"{base}/cache/index{index}/type", kind)
        write(root, f"{base}/cache/index{index}/size", f"{size_kib}K")
        write(root, f"{base}/cache/index{index}/shared_cpu_list", shared)


def add_node(root, node, cpus, memory_kib):
    base = f"sys/devices/system/node/node{node}"
    write(root, f"{base}/cpulist", cpus)
    write(root, f"{base}/meminfo", f"Node {node} MemTotal:       {memory_kib} kB")


def add_proc(root, cpus, zoneinfo=None, kernel="6.18.15", memory_kib=4022120, flags="fpu sse"):
    records = [
        f"processor\t: {c}\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: {flags}" for c in cpus
    ]
    write(root, "proc/cpuinfo", "\n\n".join(records))
    write(root, "proc/meminfo", f"MemTotal:        {memory_kib} kB\nMemFree:  1 kB")
    write(root, "proc/sys/kernel/osrelease", kernel)
    write(root, "proc/sys/vm/percpu_pagelist_high_fraction", 0)
    if zoneinfo:
        write(root, "proc/zoneinfo", (DATA / zoneinfo).read_text().rstrip("\n"))


@pytest.fixture
def server(tmp_path):
    """Two sockets of two cores with two threads, and a node of memory only."""
    write(tmp_path, "sys/devices/system/cpu/online", "0-7")
    for cpu in range(8):
        core, package = cpu // 2 * 2, cpu // 4
        shared = [f"{core}-{core + 1}"] * 3 + [f"{package * 4}-{package * 4 + 3}"]
        caches = [(kind, size, s) for (kind, size), s in zip(SERVER, shared, strict=True)]
        add_cpu(tmp_path, cpu, package, f"{core}-{core + 1}", caches)
    add_node(tmp_path, 0, "0-3", 1 << 20)
    add_node(tmp_path, 1, "4-7", 1 << 20)
    add_node(tmp_path, 2, "", 2 << 20)
    add_proc(tmp_path, range(8), memory_kib=4 << 20)
    return tmp_path


def test_a_server_with_a_node_of_memory_only(server):
    found = Platform.of_host(server)
    assert found.node_list == (
        Node(0, (0, 1, 2, 3), 1 << 20),
        Node(1, (4, 5, 6, 7), 1 << 20),
        Node(2, (), 2 << 20),
    )
    assert (found.cpus, found.sockets, found.nodes, found.threads_per_core) == (8, 2, 3, 2)
    assert (found.cpus_per_node, found.cpuless_gib) == ("4,4,0", 2)
    assert found.gib_per_node == "1.000,1.000,2.000"
    assert (found.l1d_kib, found.l2_kib, found.llc_kib, found.llc_cpus) == (48, 2048, 107520, 4)
    assert (found.memory_gib, found.cpu_model, found.kind) == (4, "Some CPU @ 2 GHz", None)
    assert found.caches[5][3] == CacheLeaf("Unified", 105 * MIB, 4)
    assert found.kernel == "6.18.15"


def test_memory_that_no_node_manages_yet_is_of_none(server):
    """A kernel that initialises memory once it is used: nodes have 4 GiB of 16."""
    add_proc(server, range(8), memory_kib=16 << 20)
    found = Platform.of_host(server)
    assert (found.memory_gib, found.nodes, found.gib_per_node) == (16, 3, None)


def test_cores_of_two_kinds_have_no_one_size(tmp_path):
    write(tmp_path, "sys/devices/system/cpu/online", "0-2")
    llc = ("Unified", 12288, "0-2")
    for cpu in (0, 1):
        add_cpu(tmp_path, cpu, 0, "0-1", [("Data", 48, "0-1"), ("Unified", 1280, "0-1"), llc])
    add_cpu(tmp_path, 2, 0, "2", [("Data", 32, "2"), ("Unified", 2048, "2"), llc])
    found = Platform.of_host(tmp_path)
    assert (found.l1d_kib, found.l2_kib, found.llc_kib) == (None, None, 12288)
    assert found.threads_per_core == 2


def test_what_is_missing_is_not_known(tmp_path):
    write(tmp_path, "sys/devices/system/cpu/online", "0,2-3")
    found = Platform.of_host(tmp_path)
    assert found.cpus == 3
    assert found.caches == {0: (), 2: (), 3: ()}
    assert found.node_list == ()
    known = {k for k, v in found.as_dict().items() if v is not None}
    assert known == {"title", "cpus"}


def test_without_sysfs_the_cpus_are_those_of_cpuinfo(tmp_path):
    add_proc(tmp_path, (0, 1, 5), flags="fpu hypervisor sse")
    found = Platform.of_host(tmp_path)
    assert (found.cpus, list(found.caches), found.kind) == (3, [0, 1, 5], "virtual")


def test_a_cache_of_unknown_size_counts_nothing(tmp_path):
    write(tmp_path, "sys/devices/system/cpu/online", "0")
    add_cpu(tmp_path, 0, 0, "0", [("Data", 32, "0")])
    write(tmp_path, "sys/devices/system/cpu/cpu0/cache/index1/type", "Unified")
    assert Platform.of_host(tmp_path).caches[0][1] == CacheLeaf("Unified", 0, 1)


@pytest.mark.parametrize("page_kib", [4, 16, 64])
def test_the_page_size_follows_from_the_memory(tmp_path, page_kib):
    managed = 3840 + 757817 + 243730
    add_proc(tmp_path, range(4), "6.1-pf1-4cpu.before", memory_kib=managed * page_kib)
    assert Platform.of_host(tmp_path).page_size_kib == page_kib


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("sys/devices/system/cpu/online", "0-x", "'0-x' is not a CPU or a range"),
        ("sys/devices/system/cpu/online", "3-1", "'3-1' is not a CPU or a range"),
        ("sys/devices/system/cpu/cpu0/cache/index0/size", "32 KB", "'32 KB' is not a size"),
        ("sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list", "-1", "'-1' is not a CPU"),
        ("sys/devices/system/node/node0/cpulist", "all", "'all' is not a CPU"),
    ],
)
def test_what_no_kernel_prints_is_refused_with_its_file(server, path, text, said):
    write(server, path, text)
    with pytest.raises(pm.InputError, match=said) as caught:
        Platform.of_host(server)
    assert caught.value.file == str(server / path)


def test_a_root_without_a_machine_is_refused(tmp_path):
    with pytest.raises(pm.InputError, match="no CPU is listed"):
        Platform.of_host(tmp_path)


# platform.json


@pytest.mark.parametrize("name", pm.machines())
def test_every_measured_machine_has_a_platform(name):
    record = pm.machine(name).platform
    found = Platform.from_dict(name, record)
    assert found.name == name
    assert found.as_dict() == {k: record.get(k) for k in found.as_dict()}
    assert found.title in str(found)


def test_a_host_s_record_is_a_platform_json(server):
    record = Platform.of_host(server).as_dict()
    faults = []
    check_platform(json.loads(json.dumps(record)), "platform.json", faults, sources=False)
    assert faults == []
    assert set(PLATFORM_FIELDS) - set(record) == {"workload", "tool", "command"}
    again = Platform.from_dict("again", record)
    assert again.as_dict() == record


def test_an_unknown_field_is_refused():
    with pytest.raises(pm.InputError, match="did you mean 'cpus'"):
        Platform.from_dict("x", {"cpu": 3})


# Release by version


@pytest.mark.parametrize(
    ("kernel", "release"),
    [
        ("5.15.0-91-generic", "v5.17"),
        ("6.1.0-56-cloud-amd64", "debian-6.1.192"),
        ("6.1.192", "debian-6.1.192"),
        ("6.1.200", "debian-6.1.192"),
        ("6.2.16", "v6.6"),
        ("6.6.45", "v6.6"),
        ("6.7.0-rc8", "v6.7"),
        ("6.8.0-40-generic", "v6.7"),
        ("6.11", "v6.7"),
        ("6.12.8", "v6.12"),
        ("6.12.107+deb13-cloud-amd64", "debian-6.12.107"),
        ("6.12.200", "debian-6.12.107"),
        ("6.15.11", "v6.12"),
        ("6.16.12+deb13-cloud-amd64", "debian-6.16.12"),
        ("6.17.1", "v6.17"),
        ("6.18.2", "v6.18"),
        ("6.18.44-fc", "debian-6.18.15"),
        ("6.19.20", "debian-6.19.14"),
        ("7.0.3", "v7.0"),
        ("7.1.13", "v7.1"),
        ("7.2", "v7.2"),
        ("7.2.13+deb14-cloud-amd64", "debian-7.2.13"),
        ("7.3.4", "debian-7.3.4"),
        ("9.0.0", "v7.3"),
    ],
)
def test_the_nearest_release_of_a_version(kernel, release):
    assert nearest_release(kernel) == pm.release(release)


@pytest.mark.parametrize("kernel", ["", "linux", "v6.7", "6", "\u0666.\u0667"])
def test_a_version_that_is_none_is_refused(kernel):
    with pytest.raises(pm.InputError, match="does not start with a version"):
        nearest_release(kernel)


# A machine's lists


@pytest.fixture
def guest(tmp_path):
    """The recorded two-node guest, with caches of 1 MiB and of 512 KiB per CPU."""
    write(tmp_path, "sys/devices/system/cpu/online", "0-3")
    for cpu, size in enumerate((1024, 1024, 512, 512)):
        add_cpu(tmp_path, cpu, 0, cpu, [("Data", 32, cpu), ("Unified", size, cpu)])
    add_node(tmp_path, 0, "0-1", 2 << 20)
    add_node(tmp_path, 1, "2-3", 2 << 20)
    add_proc(tmp_path, range(4), "7.2-numa2-4cpu.before", kernel="7.2.13+deb14-cloud-amd64")
    return tmp_path


def test_a_machine_s_lists_are_explained_from_its_own_files(guest):
    found = this_machine(guest)
    assert found.all_match
    assert found.explanation.release.name == "debian-7.2.13"
    assert [z.cpus for z in found.zones] == [2, 2, 2, 2]
    assert "the nearest known to Linux 7.2.13+deb14" in str(found.explanation)
    # 3 * 63 pages are 756 KiB; zone DMA has a batch of 1
    assert found.free_high_batch == {
        (0, "DMA"): (0, 1, 2, 3),
        (0, "DMA32"): (0, 1),
        (1, "DMA32"): (0, 1),
        (1, "Normal"): (0, 1),
    }
    assert "node 0 DMA: every CPU" in repr(found)
    assert "node 1 Normal: CPU 0-1" in repr(found)
    assert found._repr_html_().count("<tr>") == 5


def test_arguments_go_before_what_the_machine_says(guest):
    found = this_machine(guest, release="v6.7", cpus_per_node=[3, 1], high_fraction=8)
    assert not found.all_match
    assert found.explanation.high_fraction == 8
    assert (found.zones[0].cpus, found.zones[-1].cpus) == (3, 1)
    assert found.explanation.assumptions == ()


def test_the_sysctl_is_read(guest):
    write(guest, "proc/sys/vm/percpu_pagelist_high_fraction", 1000)
    assert this_machine(guest).explanation.high_fraction == 1000


def test_without_nodes_in_sysfs_an_even_spread_is_assumed(guest):
    for file in guest.glob("sys/devices/system/node/node*/*"):
        file.unlink()
    for directory in guest.glob("sys/devices/system/node/node*"):
        directory.rmdir()
    found = this_machine(guest)
    assert found.all_match
    assert "spread evenly over 2 nodes" in " ".join(found.explanation.assumptions)


def test_a_kernel_without_numa_has_the_node_of_its_zones(tmp_path):
    """RISC-V boards: no nodes in sysfs, and two were assumed."""
    write(tmp_path, "sys/devices/system/cpu/online", "0-3")
    for cpu in range(4):
        add_cpu(tmp_path, cpu, 0, cpu, [("Data", 32, cpu), ("Unified", 2048, cpu)])
    add_proc(tmp_path, range(4), "6.1-pf1-4cpu.before")
    found = Platform.of_host(tmp_path)
    assert (found.nodes, found.cpus_per_node) == (1, None)
    assert "LLC 2048 KiB for 1 CPU, " in str(found)


def test_without_caches_no_list_carries_the_flag(guest):
    for file in guest.glob("sys/devices/system/cpu/cpu*/cache/index*/*"):
        file.unlink()
    for directory in guest.glob("sys/devices/system/cpu/cpu*/cache/index*"):
        directory.rmdir()
    found = this_machine(guest)
    assert set(found.free_high_batch.values()) == {()}
    assert "node 0 DMA: no CPU" in repr(found)


def test_a_machine_without_zoneinfo_is_refused(guest):
    (guest / "proc/zoneinfo").unlink()
    with pytest.raises(pm.InputError, match="zoneinfo: cannot be read"):
        this_machine(guest)


def test_a_file_without_permission_is_refused(guest, monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(pm.InputError, match="zoneinfo: cannot be read: Permission denied"):
        this_machine(guest)


def live():
    """This machine; memory that comes or goes meanwhile is given three chances to settle."""
    for _ in range(3):
        found = this_machine()
        if found.all_match:
            break
    return found


@LIVE
def test_every_size_on_this_machine_follows_or_dates_from_boot():
    found = live()
    assert found.zones
    for zone in found.zones:
        # A machine that never sized its zones anew after boot keeps limits computed from
        # fewer pages; nothing else may differ.
        late = [why for why in zone.why if why.startswith(("high_max ", "high "))]
        assert zone.match or (late == list(zone.why) and "not since" in " ".join(late)), zone
        assert zone.reported["batch"] == zone.batch


@LIVE
def test_this_machine_s_numbers_are_those_of_the_kernel():
    found = live()
    assert found.platform.cpus == os.sysconf("SC_NPROCESSORS_ONLN")
    assert found.platform.page_size_kib == os.sysconf("SC_PAGESIZE") >> 10
    assert found.platform.kernel == os.uname().release
    faults = []
    check_platform(found.platform.as_dict(), "platform.json", faults, sources=False)
    assert faults == []


@LIVE
def test_the_verb_explains_this_machine():
    result = CliRunner().invoke(main, ["explain", "--json"])
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if found["all_match"] else 1)
    assert found["platform"]["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    zones = [(z["node"], z["zone"]) for z in found["zones"]]
    assert [(z["node"], z["zone"]) for z in found["free_high_batch"]] == zones
    text = CliRunner().invoke(main, ["explain"]).stdout
    assert "PCPF_FREE_HIGH_BATCH expected" in text

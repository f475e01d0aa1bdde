"""Batch, high and watermarks: worked examples, both forms of the batch, every page size."""

import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcpmodel as pm
from helpers.paths import SHARED
from pcpmodel.kernel import sizing
from pcpmodel.kernel.sizing import CacheLeaf, ZoneMemory, zone_batchsize, zone_highsize

SOURCES = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the sources beside the checkout")
RULES = {r.name: r.rules for r in pm.releases()}
OLD, NEW = RULES["v6.18"], RULES["v6.19"]
FIXED_HIGH = [n for n, r in RULES.items() if not r.high_min_max]
TUNED_HIGH = [n for n, r in RULES.items() if r.high_min_max]
WATERMARK = [n for n, r in RULES.items() if r.high_by_watermark]  # v5.14 on
MIB = 1 << 20

pages = st.integers(0, 1 << 36)
cpus = st.integers(1, 1024)


# "T1": managed pages -> batch, 4 KiB pages
@pytest.mark.parametrize("release", [n for n in RULES if n != "v4.17"])
@pytest.mark.parametrize(
    ("managed", "batch"),
    [
        (0, 1),
        (3840, 1),
        (8191, 1),
        (12288, 3),
        (16384, 3),
        (24576, 7),
        (32768, 7),
        (49152, 15),
        (65536, 15),
        (98304, 31),
        (131072, 31),
        (174763, 31),
        (196608, 63),
        (262144, 63),
        (1 << 40, 63),
    ],
)
def test_batch_of_a_zone(release, managed, batch):
    assert sizing.used_batch(managed, RULES[release]) == batch


@pytest.mark.parametrize(
    ("threshold", "below", "batch"),
    [(12288, 1, 3), (24576, 3, 7), (45056, 7, 15), (90112, 15, 31), (176128, 31, 63)],
)
def test_batch_steps_up_exactly_at_its_threshold(threshold, below, batch):
    for rules in (OLD, NEW):
        assert sizing.used_batch(threshold - 1, rules) == below
        assert sizing.used_batch(threshold, rules) == batch


def test_small_zones_get_zero_before_v6_19_and_one_since():
    assert zone_batchsize(3840, OLD) == zone_batchsize(8191, OLD) == 0
    assert zone_batchsize(3840, NEW) == zone_batchsize(8191, NEW) == 1


@pytest.mark.parametrize(("page_shift", "largest"), [(12, 63), (14, 15), (16, 3)])
def test_both_forms_give_the_same_used_batch_for_every_zone(page_shift, largest):
    # Both forms look at managed >> 10 alone and are constant from 256 (4 KiB pages) on.
    seen = set()
    for managed in range((1 << 18) + 1025):
        batch = sizing.used_batch(managed, OLD, page_shift)
        assert sizing.used_batch(managed, NEW, page_shift) == batch
        seen.add(batch)
    assert max(seen) == largest
    assert seen == {(1 << bits) - 1 for bits in range(1, largest.bit_length() + 1)}


@given(pages, pages, st.sampled_from([12, 14, 16]))
def test_batch_never_falls_as_a_zone_grows(a, b, page_shift):
    small, large = sorted((a, b))
    for rules in (OLD, NEW):
        assert sizing.used_batch(small, rules, page_shift) <= sizing.used_batch(
            large, rules, page_shift
        )


# T2 ... T8: managed, low, node's CPUs -> batch, high_min, high_max
@pytest.mark.parametrize(
    ("managed", "low", "n", "batch", "high_min", "high_max"),
    [
        pytest.param(3840, 75, 2, 1, 37, 240, id="T2"),
        pytest.param(720896, 10165, 2, 63, 5082, 45056, id="T3"),
        pytest.param(772915, 10898, 2, 63, 5449, 48307, id="T4"),
        pytest.param(98304, 100, 4, 31, 124, 3072, id="T5"),
        pytest.param(196608, 1000, 4, 63, 252, 6144, id="T6"),
        pytest.param(1048576, 16000, 112, 63, 252, 1170, id="T7"),
    ],
)
@pytest.mark.parametrize("release", WATERMARK)
def test_sizes_of_a_zone(release, managed, low, n, batch, high_min, high_max):
    size = sizing.zone_set_pageset_high_and_batch(
        managed, low, RULES[release], node_cpus=n, online_cpus=n
    )
    if release in TUNED_HIGH:
        assert size == (batch, None, high_min, high_max)
    else:
        assert size == (batch, high_min, None, None)


@pytest.mark.parametrize("release", WATERMARK)
def test_t8_a_fraction_replaces_the_watermark_and_stops_the_tuning(release):
    size = sizing.zone_set_pageset_high_and_batch(
        98304, 100, RULES[release], node_cpus=4, online_cpus=4, high_fraction=8
    )
    tuned = release in TUNED_HIGH
    assert size == ((31, None, 3072, 3072) if tuned else (31, 3072, None, None))


def test_t9_watermarks_of_a_machine():
    zones = [ZoneMemory(3840), ZoneMemory(772915), ZoneMemory(720896), ZoneMemory(0, lowmem=False)]
    _, dma32, normal, movable = sizing.setup_per_zone_wmarks(zones, 67584)
    assert (dma32.min, dma32.low, dma32.high) == (8719, 10898, 13077)
    assert (normal.min, normal.low, normal.high) == (8132, 10165, 12198)
    assert movable == sizing.Watermarks(32, 32, 32, 32)
    assert sizing.khugepaged_min_free_kbytes(3, 1497651) == 67584


def test_t9_khugepaged_raises_the_watermarks_of_a_4_gib_guest_sevenfold():
    zones = [ZoneMemory(m) for m in (3840, 756461, 243710)]
    marks = sizing.setup_per_zone_wmarks(zones, sizing.khugepaged_min_free_kbytes(3, 1004011))
    assert [(m.min, m.low) for m in marks[1:]] == [(12730, 15912), (4101, 5126)]


def test_khugepaged_takes_at_most_a_twentieth_and_larger_blocks_of_larger_pages():
    assert sizing.khugepaged_min_free_kbytes(2, 100_000) == 100_000 // 20 * 4
    # 64 KiB pages, 512 MiB page blocks: 11 blocks of 8192 pages
    assert sizing.khugepaged_min_free_kbytes(1, 1 << 24, 16, 13) == 11 * 8192 * 64


@pytest.mark.parametrize(
    ("lowmem_kbytes", "min_free_kbytes"),
    [(0, 128), (1024, 128), (16 << 10, 512), (4 << 20, 8192), (1 << 40, 262144)],
)
def test_min_free_kbytes_at_boot_is_four_times_the_root_within_limits(
    lowmem_kbytes, min_free_kbytes
):
    assert sizing.min_free_kbytes_at_boot(lowmem_kbytes) == min_free_kbytes


# T10: recordings (kernel, fraction, n): zone's managed, low -> batch, high_min or high, high_max
GUEST_6_1 = [(3840, 10, 1, 4), (757817, 2265, 63, 566), (243730, 728, 63, 252)]
T10 = [
    *[("debian-6.1.192", 0, 4, m, low, b, high, None) for m, low, b, high in GUEST_6_1],
    ("debian-6.12.107", 0, 4, 756461, 2262, 63, 565, 23639),
    ("debian-6.12.107", 0, 4, 243710, 728, 63, 252, 7615),
    ("debian-6.18.15", 0, 4, 755998, 2260, 63, 565, 23624),
    ("debian-6.18.15", 0, 4, 243726, 728, 63, 252, 7616),
    ("debian-6.19.14", 0, 4, 755906, 2260, 63, 565, 23622),
    ("debian-6.16.12", 0, 4, 756395, 2262, 63, 565, 23637),
    ("debian-6.16.12", 0, 4, 243730, 728, 63, 252, 7616),
    ("debian-7.0.13", 0, 4, 755323, 2259, 63, 564, 23603),
    ("debian-7.0.13", 0, 4, 243726, 728, 63, 252, 7616),
    ("debian-7.3.4", 0, 4, 755009, 2259, 63, 564, 23594),
    ("debian-7.3.4", 0, 4, 243722, 728, 63, 252, 7616),
    ("debian-7.2.13", 0, 4, 755535, 2260, 63, 565, 23610),
    ("debian-7.2.13", 0, 4, 243725, 728, 63, 252, 7616),
    ("debian-6.1.192", 0, 4, 116301, 833, 31, 208, None),
    ("debian-6.12.107", 0, 4, 114926, 828, 31, 207, 3591),
    ("debian-6.12.107", 0, 4, 3840, 27, 1, 6, 120),
    ("debian-6.18.15", 0, 4, 3840, 27, 1, 6, 120),
    ("debian-6.18.15", 0, 4, 114479, 827, 31, 206, 3577),
    ("debian-6.19.14", 0, 4, 114387, 827, 31, 206, 3574),
    ("debian-6.1.192", 0, 2, 757817, 2260, 63, 1130, None),
    ("debian-6.1.192", 0, 2, 243851, 728, 63, 364, None),
    ("debian-7.2.13", 0, 2, 3840, 10, 1, 5, 240),
    ("debian-7.2.13", 0, 2, 501444, 1499, 63, 749, 31340),
    ("debian-7.2.13", 0, 2, 245728, 734, 63, 367, 15358),
    ("debian-7.2.13", 0, 2, 253581, 757, 63, 378, 15848),
    ("debian-6.12.107", 0, 2, 502363, 1501, 63, 750, 31397),
    ("debian-7.2.13", 0, 8, 3840, 10, 1, 4, 60),
    ("debian-7.2.13", 0, 8, 755535, 2260, 63, 282, 11805),
    ("debian-7.2.13", 0, 8, 243477, 728, 63, 252, 3804),
    ("debian-6.12.107", 0, 4, 3840, 80, 1, 20, 120),
    ("debian-6.12.107", 0, 4, 756461, 15912, 63, 3978, 23639),
    ("debian-6.12.107", 0, 4, 243710, 5126, 63, 1281, 7615),
    ("debian-6.1.192", 8, 4, 3840, 10, 1, 120, None),
    ("debian-6.1.192", 8, 4, 757817, 2265, 63, 23681, None),
    ("debian-6.1.192", 8, 4, 243730, 728, 63, 7616, None),
    ("debian-6.1.192", 1000, 4, 3840, 10, 1, 4, None),
    ("debian-6.1.192", 1000, 4, 757817, 2265, 63, 252, None),
    ("debian-6.1.192", 1000, 4, 243730, 728, 63, 252, None),
    ("debian-7.2.13", 8, 4, 3840, 10, 1, 120, 120),
    ("debian-7.2.13", 8, 4, 755535, 2260, 63, 23610, 23610),
    ("debian-7.2.13", 8, 4, 243725, 728, 63, 7616, 7616),
    ("debian-7.2.13", 1000, 4, 3840, 10, 1, 4, 4),
    ("debian-7.2.13", 1000, 4, 755535, 2260, 63, 252, 252),
    ("debian-7.2.13", 1000, 4, 243725, 728, 63, 252, 252),
]


@pytest.mark.parametrize(
    ("release", "fraction", "n", "managed", "low", "batch", "high_min", "high_max"), T10
)
def test_t10_sizes_of_recorded_kernels(
    release, fraction, n, managed, low, batch, high_min, high_max
):
    size = sizing.zone_set_pageset_high_and_batch(
        managed, low, RULES[release], node_cpus=n, online_cpus=n, high_fraction=fraction
    )
    if high_max is None:
        assert size == (batch, high_min, None, None)
    else:
        assert size == (batch, None, high_min, high_max)


@pytest.mark.parametrize(
    ("first", "last", "high_max"), [(752992, 753023, 23531), (754528, 754559, 23579)]
)
def test_t10b_managed_pages_that_give_an_earlier_high_max(first, last, high_max):
    def at(managed):
        return zone_highsize(managed, 0, 63, node_cpus=4, online_cpus=4, high_fraction=8)

    assert at(first) == at(last) == high_max
    assert at(first - 1) == high_max - 1
    assert at(last + 1) == high_max + 1


def test_a_node_without_cpus_divides_by_all_online_cpus():
    assert zone_highsize(1 << 20, 9000, 63, node_cpus=0, online_cpus=3) == 3000
    assert zone_highsize(1 << 20, 9000, 63, node_cpus=0, online_cpus=3, cpu_online=1) == 9000


def test_a_cpu_that_comes_online_counts_in_every_node():
    assert zone_highsize(1 << 20, 9000, 63, node_cpus=2, online_cpus=4, cpu_online=1) == 3000


def test_high_min_exceeds_high_max_where_the_low_watermark_exceeds_an_eighth():
    size = sizing.zone_set_pageset_high_and_batch(4000, 2000, NEW, node_cpus=1, online_cpus=1)
    assert (size.high_min, size.high_max) == (2000, 500)
    assert sizing.clamp(499, 2000, 500) == 2000
    assert sizing.clamp(500, 2000, 500) == sizing.clamp(3000, 2000, 500) == 500


@given(st.integers(), st.integers(), st.integers())
def test_clamp_is_the_usual_one_in_an_ordinary_range(value, a, b):
    lo, hi = sorted((a, b))
    assert sizing.clamp(value, lo, hi) == sorted((lo, value, hi))[1]


@given(pages, pages, cpus, cpus, st.sampled_from(sorted(WATERMARK)))
def test_high_is_at_least_four_batches_and_shrinks_with_more_cpus(managed, low, n, more, release):
    def size(cpus):
        return sizing.zone_set_pageset_high_and_batch(
            managed, low, RULES[release], node_cpus=cpus, online_cpus=cpus
        )

    few, many = size(n), size(n + more)
    for one, other in zip(few, many, strict=True):
        assert (one is None) == (other is None)
        assert one is None or one >= other
    assert all(high >= 4 * many.batch for high in many[1:] if high is not None)


@given(st.lists(st.tuples(pages, st.booleans()), max_size=8), st.integers(0, 1 << 20))
def test_watermarks_rise_evenly_and_share_out_no_more_than_there_is(zones, min_free_kbytes):
    memory = [ZoneMemory(*z) for z in zones]
    marks = sizing.setup_per_zone_wmarks(memory, min_free_kbytes)
    for mark in marks:
        gap = mark.low - mark.min
        assert gap == mark.high - mark.low == mark.promo - mark.high >= 0
    shared = sum(mark.min for mark, zone in zip(marks, memory, strict=True) if zone.lowmem)
    assert shared <= min_free_kbytes // 4


@pytest.mark.parametrize("release", RULES)
def test_boot_and_disabled_lists_hold_nothing(release):
    size = sizing.boot_pageset(RULES[release])
    assert size.batch == 1
    assert {h for h in size[1:] if h is not None} == {0}


def test_scale_limits_follow_the_release():
    limits = {
        name: (sizing.refill_limit(63, rules), sizing.drain_limit(63, rules))
        for name, rules in RULES.items()
    }
    assert {limits[n] for n in ("v6.6", "v6.6+p1", "v6.6+p3")} == {(63, None)}
    assert {limits[n] for n in ("debian-6.1.192", "v6.6+p4")} == {(63, 2016)}
    assert {limits[n] for n in ("v6.6+p5", "v6.7", "v6.18", "v7.2")} == {(2016, 2016)}
    none = pm.release("v6.7").with_batch_scale_max(0).rules
    most = pm.release("v6.7").with_batch_scale_max(6).rules
    assert (sizing.refill_limit(63, none), sizing.drain_limit(63, none)) == (63, 63)
    assert (sizing.refill_limit(63, most), sizing.drain_limit(63, most)) == (4032, 4032)


# PCPF_FREE_HIGH_BATCH
L1D, L1I = CacheLeaf("Data", 32 << 10, 2), CacheLeaf("Instruction", 32 << 10, 2)
L2, L3 = CacheLeaf("Unified", 2 * MIB, 2), CacheLeaf("Unified", 105 * MIB, 112)
SERVER = [L1D, L1I, L2, L3]


def test_v2_of_the_series_adds_up_all_data_caches_and_v6_7_takes_the_last_slice():
    assert sizing.data_cache_size(SERVER, RULES["v6.6+p3"]) == 16384 + MIB + 105 * MIB // 112
    assert sizing.data_cache_size(SERVER, RULES["v6.7"]) == 105 * MIB // 112
    assert sizing.data_cache_size(SERVER, RULES["v6.6"]) == 0
    assert sizing.data_cache_size([L2, L1I], RULES["v6.7"]) == 0
    assert sizing.data_cache_size([], RULES["v6.7"]) == 0


@pytest.mark.parametrize(("size_bytes", "flag"), [(190 << 12, True), ((190 << 12) - 1, False)])
def test_v6_7_needs_more_than_three_batches_of_cache(size_bytes, flag):
    leaves = [CacheLeaf("Unified", size_bytes, 1)]
    assert sizing.free_high_batch(63, leaves, RULES["v6.7"]) is flag
    assert sizing.free_high_batch(63, leaves, RULES["v7.2"]) is flag


@pytest.mark.parametrize(("size_bytes", "flag"), [(253 << 12, True), ((253 << 12) - 1, False)])
def test_v2_needs_more_than_four_batches_of_cache(size_bytes, flag):
    leaves = [CacheLeaf("Unified", size_bytes, 1)]
    assert sizing.free_high_batch(63, leaves, RULES["v6.6+p3"]) is flag


@pytest.mark.parametrize("release", ["debian-6.1.192", "v6.6", "v6.6+p1", "v6.6+p2"])
def test_before_patch_3_no_list_carries_the_flag(release):
    assert sizing.free_high_batch(1, SERVER, RULES[release]) is False


@pytest.mark.parametrize("fraction", [1, 7, -1, True, 8.0, "8"])
def test_a_fraction_that_the_kernel_refuses_is_refused(fraction):
    with pytest.raises(pm.InputError, match="percpu_pagelist_high_fraction"):
        sizing.zone_set_pageset_high_and_batch(
            98304, 100, NEW, node_cpus=4, online_cpus=4, high_fraction=fraction
        )


@pytest.mark.parametrize(
    "cpus",
    [
        {"node_cpus": 0, "online_cpus": 0},
        {"node_cpus": -1, "online_cpus": 4},
        {"node_cpus": 1, "online_cpus": 4, "cpu_online": 2},
    ],
)
def test_impossible_cpu_numbers_are_refused(cpus):
    with pytest.raises(pm.InputError, match="online_cpus >= 1"):
        zone_highsize(98304, 100, 31, **cpus)


@pytest.mark.parametrize(("kbytes", "factor"), [(-1, 10), (1024, 0), (1024, 3001)])
def test_impossible_watermark_settings_are_refused(kbytes, factor):
    with pytest.raises(pm.InputError, match=r"negative|outside 1\.\.3000"):
        sizing.setup_per_zone_wmarks([ZoneMemory(4096)], kbytes, factor)


@SOURCES
def test_sizes_kept_by_running_kernels_are_those_computed():
    """Zone lines of the dumps of kernel memory; 6.12 shows its limits nowhere else."""
    zone_line = re.compile(
        r"^zone .* name=(\w+) .* wmark_low=(\d+) .* managed=(\d+) .* pageset_high_min=(-?\d+) "
        r"pageset_high_max=(-?\d+) pageset_batch=(\d+)$",
        re.MULTILINE,
    )
    seen, wrong = 0, set()
    for path in sorted(SHARED.glob("traces/*/pcpstate.*")):
        recording, tag = path.parent.name, path.name.split(".")[1]
        meta = json.loads((path.parent / "meta.json").read_text())
        version = meta["debian_package"].split()[1].partition("-")[0]
        rules, cpus = RULES[f"debian-{version}"], meta["cpus"]
        fraction = {"snap0": 8, "snap1": 1000}.get(tag, 0) if "fraction" in recording else 0
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
            text = stream.read()
        for name, low, managed, high_min, high_max, batch in zone_line.findall(text):
            if not int(managed):
                continue
            size = sizing.zone_set_pageset_high_and_batch(
                int(managed),
                int(low),
                rules,
                node_cpus=cpus // meta["numa_nodes"],
                online_cpus=cpus,
                high_fraction=fraction,
            )
            mine = (size.high, -1) if size.high is not None else size[2:]
            assert size.batch == int(batch)
            seen += 1
            if mine != (int(high_min), int(high_max)):
                wrong.add((recording, name, *mine, int(high_min), int(high_max)))
    assert seen > 500
    # Sized late in boot, before the last pages were handed over, and not since.
    assert wrong == {
        ("6.12-boot-4cpu", "DMA32", 564, 23639, 564, 23579),
        ("7.2-boot-4cpu", "DMA32", 563, 23610, 563, 23531),
    }
